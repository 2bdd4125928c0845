//! A minimal receiver of streams over HTTP: sends requests, waits for bytes, reads and counts them.
//!
//! It inspects neither the answer nor the stream. Its cost is the minimum for any receiver that
//! reads connections when bytes are available.

mod kernel;

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use kernel::{Poll, Ready};

/// Place of standard input in the poll.
const INPUT: u64 = u64::MAX;

struct Options {
    urls: Vec<String>,
    clients: usize,
    ramp: Duration,
    buffer: usize,
}

struct Client {
    socket: TcpStream,
    began: Instant,
    bytes: u64,
    setup: Duration,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        urls: Vec::new(),
        clients: 1,
        ramp: Duration::ZERO,
        buffer: 256 * 1024,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let wrong = |_| format!("{name} {value}: not a number");
        match name.as_str() {
            "--url" => options.urls.push(value),
            "--clients" => options.clients = value.parse().map_err(wrong)?,
            "--buffer" => options.buffer = value.parse().map_err(wrong)?,
            "--ramp-ms" => {
                options.ramp = Duration::from_millis(value.parse().map_err(wrong)?);
            }
            _ => return Err(format!("{name}: unknown")),
        }
    }
    if options.urls.is_empty() || options.clients == 0 || options.buffer == 0 {
        return Err("--url URL, --clients and --buffer of at least 1 are needed".to_owned());
    }
    Ok(options)
}

fn main() {
    if let Err(error) = options().and_then(|options| run(&options)) {
        eprintln!("read peer: {error}");
        std::process::exit(1);
    }
}

/// Connects and sends the request.
fn ask(url: &str) -> Result<TcpStream, String> {
    let rest = url.strip_prefix("http://").ok_or("not a URL of HTTP")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let failed = |error: std::io::Error| format!("{url}: {error}");
    let mut socket = TcpStream::connect(host).map_err(failed)?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).map_err(failed)?;
    Ok(socket)
}

fn run(options: &Options) -> Result<(), String> {
    let system = |error: std::io::Error| error.to_string();
    kernel::raise_descriptor_limit();
    let poll = Poll::new().map_err(system)?;
    poll.add(0, INPUT).map_err(system)?;
    let mut buffer = vec![0; options.buffer];
    let mut clients: Vec<Client> = Vec::with_capacity(options.clients);
    let mut ready = Ready::new();
    let (mut begun, mut failed, mut playing, mut announced) = (0, 0, 0, false);
    let start = Instant::now();
    loop {
        let mut timeout = -1;
        while begun < options.clients {
            let due = start + options.ramp.mul_f64(begun as f64 / options.clients as f64);
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                timeout = i32::try_from(wait.as_millis() + 1).unwrap_or(i32::MAX);
                break;
            }
            let began = Instant::now();
            let url = &options.urls[begun % options.urls.len()];
            begun += 1;
            match ask(url) {
                Ok(socket) => {
                    poll.add(socket.as_raw_fd(), clients.len() as u64)
                        .map_err(system)?;
                    clients.push(Client {
                        socket,
                        began,
                        bytes: 0,
                        setup: Duration::ZERO,
                    });
                }
                Err(error) => {
                    failed += 1;
                    eprintln!("read peer: a client failed: {error}");
                }
            }
        }
        poll.wait(&mut ready, timeout).map_err(system)?;
        for place in ready.iter() {
            if place == INPUT {
                let Some(lines) = kernel::read_lines() else {
                    return report("done", &clients, failed);
                };
                for _ in 0..lines {
                    report("counts", &clients, failed)?;
                }
                continue;
            }
            let client = &mut clients[place as usize];
            let socket = client.socket.as_raw_fd();
            match kernel::read(socket, &mut buffer) {
                Ok(None) => {}
                Ok(Some(count @ 1..)) => {
                    if client.bytes == 0 {
                        client.setup = client.began.elapsed();
                        playing += 1;
                    }
                    client.bytes += count as u64;
                }
                Ok(Some(0)) | Err(_) => {
                    eprintln!("read peer: a connection has ended");
                    failed += 1;
                    poll.remove(socket).map_err(system)?;
                }
            }
        }
        if !announced && playing + failed >= options.clients {
            announced = true;
            report("playing", &clients, failed)?;
        }
    }
}

/// Writes a line of output: the bytes received so far.
fn report(event: &str, clients: &[Client], failed: usize) -> Result<(), String> {
    let began: Vec<&Client> = clients.iter().filter(|client| client.bytes > 0).collect();
    let bytes: u64 = began.iter().map(|client| client.bytes).sum();
    let mut setup: Vec<Duration> = began.iter().map(|client| client.setup).collect();
    setup.sort_unstable();
    let at = |part: f64| {
        let place = (part * setup.len().saturating_sub(1) as f64).round() as usize;
        setup.get(place).map_or(0.0, Duration::as_secs_f64)
    };
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{{\"event\":\"{event}\",\"playing\":{},\"failed\":{failed},\"bytes\":{bytes},\
         \"setup_p50\":{:.9},\"setup_p95\":{:.9}}}",
        began.len(),
        at(0.5),
        at(0.95),
    )
    .and_then(|()| out.flush())
    .map_err(|error| error.to_string())
}

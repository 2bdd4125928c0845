//! A minimal receiver of many RTP streams over sockets: epoll, recvmmsg and counters.
//!
//! It is controlled over its standard streams, line by line. Once all clients play, it prints
//! `{"event":"playing"}`. It answers each line of input with the counts so far. When its input
//! ends, it tears the sessions down, prints `{"event":"done"}` with the total counts, and exits.
//!
//! With `--drop`, its sockets have a filter that drops every packet, and nothing reads them. That
//! shows what the same traffic costs the machine without a receiver. The number of packets is then
//! the kernel's count of drops.

mod kernel;
mod rtsp;

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use kernel::{Batch, Poll, Ready};
use rtsp::Session;

/// Number of clients that connect at the same time, because each waits for the server's answers.
const CONNECTING: usize = 32;
/// Clock rate of RTP timestamps of video, in Hz.
const CLOCK: f64 = 90_000.0;
/// Place of standard input in the poll.
const INPUT: u64 = u64::MAX;

/// Counts of one client.
#[derive(Clone, Default)]
struct Counts {
    packets: u64,
    bytes: u64,
    expected: u64,
    last: u16,
    timestamp: u32,
    /// Duration of the media from the first packet to the last, in ticks of its clock.
    ticks: u64,
    setup: Duration,
}

impl Counts {
    fn packet(&mut self, bytes: &[u8], length: usize) {
        let Some(header) = bytes.first_chunk::<12>() else {
            return;
        };
        let sequence = u16::from_be_bytes([header[2], header[3]]);
        let timestamp = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let ahead = sequence.wrapping_sub(self.last);
        if self.packets == 0 {
            (self.expected, self.last, self.timestamp) = (1, sequence, timestamp);
        } else if ahead < 0x8000 {
            self.expected += u64::from(ahead);
            self.ticks += u64::from(timestamp.wrapping_sub(self.timestamp));
            (self.last, self.timestamp) = (sequence, timestamp);
        }
        self.packets += 1;
        self.bytes += length as u64;
    }
}

/// State that the connecting threads report to the receiving one.
struct Progress {
    /// Start of each client's connection, in nanoseconds since the start of the program.
    began: Vec<AtomicU64>,
    /// Time until PLAY was answered.
    answered: Vec<AtomicU64>,
    done: AtomicUsize,
    failed: AtomicUsize,
}

struct Options {
    url: String,
    clients: usize,
    ramp: Duration,
    drop: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        url: String::new(),
        clients: 1,
        ramp: Duration::ZERO,
        drop: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--drop" {
            options.drop = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let wrong = |_| format!("{name} {value}: not a number");
        match name.as_str() {
            "--url" => options.url = value,
            "--clients" => options.clients = value.parse().map_err(wrong)?,
            "--ramp-ms" => {
                options.ramp = Duration::from_millis(value.parse().map_err(wrong)?);
            }
            _ => return Err(format!("{name}: unknown")),
        }
    }
    if options.url.is_empty() || options.clients == 0 {
        return Err("--url URL and --clients of at least 1 are needed".to_owned());
    }
    Ok(options)
}

fn main() {
    if let Err(error) = options().and_then(|options| run(&options)) {
        eprintln!("recvmmsg peer: {error}");
        std::process::exit(1);
    }
}

fn run(options: &Options) -> Result<(), String> {
    kernel::raise_descriptor_limit();
    let clients = options.clients;
    let numbers = || (0..clients).map(|_| AtomicU64::new(0)).collect();
    let progress = Arc::new(Progress {
        began: numbers(),
        answered: numbers(),
        done: AtomicUsize::new(0),
        failed: AtomicUsize::new(0),
    });
    let poll = Arc::new(Poll::new().map_err(|error| error.to_string())?);
    poll.add(0, INPUT).map_err(|error| error.to_string())?;

    let start = Instant::now();
    let mut connecting: Vec<_> = (0..CONNECTING.min(clients))
        .map(|first| {
            let (progress, poll) = (Arc::clone(&progress), Arc::clone(&poll));
            let (url, drop, ramp) = (options.url.clone(), options.drop, options.ramp);
            thread::spawn(move || {
                let mut sessions = Vec::new();
                for index in (first..clients).step_by(CONNECTING) {
                    let due = start + ramp.mul_f64(index as f64 / clients as f64);
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let began = Instant::now();
                    progress.began[index].store(nanos(began - start), Relaxed);
                    let played = Session::set_up(&url, drop).and_then(|mut session| {
                        if !drop {
                            let place = (session.media.as_raw_fd() as u64) << 32 | index as u64;
                            poll.add(session.media.as_raw_fd(), place)?;
                        }
                        session.play()?;
                        Ok(session)
                    });
                    match played {
                        Ok(session) => sessions.push(session),
                        Err(error) => {
                            if progress.failed.fetch_add(1, Relaxed) == 0 {
                                eprintln!("recvmmsg peer: a client failed: {error}");
                            }
                        }
                    }
                    progress.answered[index].store(nanos(began.elapsed()), Relaxed);
                    progress.done.fetch_add(1, Relaxed);
                }
                sessions
            })
        })
        .collect();

    let mut sessions: Vec<Session> = Vec::new();
    let mut counts = vec![Counts::default(); clients];
    let mut playing = 0;
    let mut announced = false;
    let mut batch = Batch::new();
    let mut ready = Ready::new();
    loop {
        let timeout = if announced { -1 } else { 20 };
        poll.wait(&mut ready, timeout)
            .map_err(|error| error.to_string())?;
        for place in ready.iter() {
            if place == INPUT {
                let Some(lines) = kernel::read_lines() else {
                    report("done", &counts, &sessions, &progress, options.drop)?;
                    rtsp::tear_down(sessions);
                    return Ok(());
                };
                for _ in 0..lines {
                    report("counts", &counts, &sessions, &progress, options.drop)?;
                }
                continue;
            }
            let (socket, index) = ((place >> 32) as i32, (place & 0xffff_ffff) as usize);
            let count = &mut counts[index];
            if count.packets == 0 {
                let began = Duration::from_nanos(progress.began[index].load(Relaxed));
                count.setup = start.elapsed() - began;
                playing += 1;
            }
            batch.receive(socket, |bytes, length| count.packet(bytes, length));
        }
        let (done, failed) = (progress.done.load(Relaxed), progress.failed.load(Relaxed));
        if !announced && done == clients && (options.drop || playing + failed >= clients) {
            for thread in connecting.drain(..) {
                sessions.extend(thread.join().map_err(|_| "a thread panicked")?);
            }
            announced = true;
            report("playing", &counts, &sessions, &progress, options.drop)?;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Writes a line of output: the counts so far.
fn report(
    event: &str,
    counts: &[Counts],
    sessions: &[Session],
    progress: &Progress,
    drop: bool,
) -> Result<(), String> {
    let failed = progress.failed.load(Relaxed);
    let (mut packets, mut bytes, mut lost, mut ticks) = (0, 0, 0, 0);
    let mut setup: Vec<Duration> = Vec::new();
    if drop {
        for session in sessions {
            packets += u64::from(kernel::drops(session.media.as_raw_fd()));
        }
        setup.extend(
            progress
                .answered
                .iter()
                .map(|time| Duration::from_nanos(time.load(Relaxed))),
        );
    } else {
        for count in counts.iter().filter(|count| count.packets > 0) {
            packets += count.packets;
            bytes += count.bytes;
            lost += count.expected.saturating_sub(count.packets);
            ticks += count.ticks;
            setup.push(count.setup);
        }
    }
    setup.sort_unstable();
    let at = |part: f64| {
        let place = (part * setup.len().saturating_sub(1) as f64).round() as usize;
        setup.get(place).map_or(0.0, Duration::as_secs_f64)
    };
    let playing = if drop { sessions.len() } else { setup.len() };
    let media = ticks as f64 / CLOCK / playing.max(1) as f64;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{{\"event\":\"{event}\",\"playing\":{playing},\"failed\":{failed},\"packets\":{packets},\
         \"bytes\":{bytes},\"lost\":{lost},\"media_seconds\":{media:.6},\
         \"setup_p50\":{:.9},\"setup_p95\":{:.9}}}",
        at(0.5),
        at(0.95),
    )
    .and_then(|()| out.flush())
    .map_err(|error| error.to_string())
}

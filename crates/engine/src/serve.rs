//! Embedded reference servers.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use net::{Clock, PortRange};
use protocol::reference::{ReferenceServer, Second, Serve, Settings};

use crate::attend::{Heard, attend};
use crate::control::Control;
use crate::crew::{Crew, Duty};
use crate::error::EngineError;
use crate::messages::WorkerReport;
use crate::worker::{Accept, EndpointPlan, PopulationPlan, Serving};

/// Options of a reference server.
#[derive(Debug)]
pub struct ServeOptions {
    pub server: &'static ReferenceServer,
    /// Streams to serve, and faults to inject.
    pub settings: Box<dyn Settings>,
    /// Addresses to listen on, one worker each. Port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// PEM files of the certificate chain, the server's own certificate first, and of the key. All
    /// connections then use TLS. Default: no TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Report file, in JSON lines.
    pub report: Option<PathBuf>,
    /// Whether each datagram is passed to the kernel separately, instead of several of a stream in
    /// one buffer that the kernel splits (UDP_SEGMENT, udp(7)). A capture on the same machine shows
    /// such a buffer as one packet.
    pub apart: bool,
    /// Maximum number of sessions per address. Further connections are closed at once; UDP callers
    /// are refused.
    pub max_sessions: usize,
    /// Shutdown timeout of sessions.
    pub stop_timeout: Duration,
}

/// Progress of a reference server, reported once per second.
#[derive(Clone, Copy, Debug)]
pub struct ServeProgress<'a> {
    /// URLs of the addresses that it listens on.
    pub listening: &'a [String],
    /// Summary of its counts, in words.
    pub so_far: &'a str,
}

/// Source ports of reference servers and senders. Clients skip ports that are in use.
pub(crate) const PORTS: std::ops::Range<u16> = 30_000..32_768;

/// Serves until it is stopped. `progress` is called once it listens and then once per second.
/// Returns summary lines.
///
/// # Errors
/// An address cannot be listened on, the settings or certificates are not valid, or the report
/// cannot be written.
pub fn serve(
    options: ServeOptions,
    control: &Control,
    progress: &mut dyn FnMut(ServeProgress<'_>),
) -> Result<Vec<String>, EngineError> {
    // First of all, because the server's times count from the start of this clock.
    let clock = Clock::start();
    let wall_clock = Duration::from_nanos(u64::try_from(clock.started_at()).unwrap_or(0));
    let server = options.settings.server(wall_clock);
    let server: Arc<dyn Serve> = Arc::from(server.map_err(EngineError::Settings)?);
    let catalogue = server.catalogue();
    let accept: Accept = {
        let server = server.clone();
        Arc::new(move |number| server.session(number))
    };
    let mut report = options
        .report
        .as_ref()
        .map(ReportFile::create)
        .transpose()?;
    let tls = match &options.tls {
        Some((chain, key)) => Some(net::tls::Server::from_files(chain, key).map_err(settings)?),
        None => None,
    };
    let serving = || Serving {
        apart: options.apart,
        own_files: options.server.own_files,
        max_sessions: options.max_sessions,
        accept: accept.clone(),
        tls: tls.clone(),
    };
    let (duties, listening) = stand(&options.listen, &*server, options.max_sessions, serving)?;
    let url = |&address| server.url(address, options.tls.is_some());
    let listening: Vec<String> = listening.iter().map(url).collect();
    let mut crew = Crew::start(duties, options.stop_timeout, server.seed())?;
    crew.begin(&clock);
    let mut tally = server.tally(clock.to_monotonic_nanos(Time::ZERO));
    let mut tell = |so_far: &str| {
        progress(ServeProgress {
            listening: &listening,
            so_far,
        });
    };
    tell(&tally.so_far());
    let mut refused = Vec::new();
    attend(
        &crew,
        &clock,
        (catalogue, options.server.title),
        control,
        options.stop_timeout,
        &mut |heard| {
            let line = match heard {
                Heard::Window(window) => {
                    let Some(served) = window.populations.first() else {
                        return Ok(());
                    };
                    let line = tally.second(Second {
                        begins: window.begins,
                        seconds: window.seconds,
                        served,
                        tester: &window.tester,
                    });
                    tell(&tally.so_far());
                    line
                }
                Heard::WorkerReport(WorkerReport::Record(record)) => tally.done(record),
                Heard::WorkerReport(WorkerReport::Event {
                    kind: "sessions_refused",
                    text,
                    ..
                }) => {
                    refused.push(format!("{text} (--max-sessions)"));
                    None
                }
                Heard::WorkerReport(_) => None,
            };
            match (&mut report, line) {
                (Some(report), Some(line)) => report.line(&line),
                _ => Ok(()),
            }
        },
    )?;
    if let Some(report) = &mut report {
        report.line(&tally.last_line())?;
        report.finish()?;
    }
    let mut lines = tally.at_the_end();
    lines.append(&mut refused);
    Ok(lines)
}

/// Duties of the workers that serve these addresses, one each, and the bound addresses.
fn stand(
    listen_on: &[SocketAddr],
    server: &dyn Serve,
    max_sessions: usize,
    serving: impl Fn() -> Serving,
) -> Result<(Vec<Duty>, Vec<SocketAddr>), EngineError> {
    let mut duties = Vec::new();
    let mut listening = Vec::new();
    let count = u32::try_from(listen_on.len()).unwrap_or(1);
    for (index, &address) in (0u32..).zip(listen_on) {
        let failed = EngineError::system(format!("cannot listen on {address}"));
        let endpoint = server.endpoint(index);
        let wanted = (server.accepts_connections(), endpoint.is_some());
        let ports = Ports::bind(address, wanted).map_err(failed)?;
        let endpoints = ports.datagrams.zip(endpoint);
        let endpoints = endpoints.map(|(socket, endpoint)| EndpointPlan {
            socket,
            endpoint,
            population: 0,
            max_sessions,
        });
        let connections = ports.connections.map(|listener| (listener, serving()));
        listening.push(ports.bound);
        duties.push(Duty {
            populations: vec![PopulationPlan {
                name: "serving".to_owned(),
                catalogue: server.catalogue(),
                clients: None,
            }],
            goes_first: false,
            in_real_time: false,
            serving: connections.into_iter().collect(),
            endpoints: endpoints.into_iter().collect(),
            ports: PortRange::share(PORTS, index, count),
            ring: None,
        });
    }
    Ok((duties, listening))
}

/// Sockets of one address: TCP, UDP, or both with the same port number.
struct Ports {
    connections: Option<TcpListener>,
    datagrams: Option<UdpSocket>,
    bound: SocketAddr,
}

impl Ports {
    /// Number of attempts to find a free port if its number is taken for UDP.
    const TRIES: usize = 16;

    fn bind(address: SocketAddr, (connections, datagrams): (bool, bool)) -> io::Result<Ports> {
        let mut tries = 0;
        loop {
            tries += 1;
            let connections = connections.then(|| listen(address)).transpose()?;
            let bound = match &connections {
                Some(listener) => listener.local_addr()?,
                None => address,
            };
            let socket = datagrams.then(|| net::ports::bind(bound, RECEIVE_BUFFER));
            let datagrams = match socket.transpose() {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && address.port() == 0
                        && tries < Ports::TRIES =>
                {
                    continue;
                }
                socket => socket?,
            };
            let bound = match &datagrams {
                Some(socket) => socket.local_addr()?,
                None => bound,
            };
            return Ok(Ports {
                connections,
                datagrams,
                bound,
            });
        }
    }
}

pub(crate) fn settings(fault: net::tls::Fault) -> EngineError {
    EngineError::Settings(fault.text)
}

/// Receive buffer of an endpoint's socket in bytes. All clients of the endpoint share it.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Backlog of a listener: thousands of clients may connect at once.
const BACKLOG: i32 = 4096;

pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Report file, in JSON lines.
pub(crate) struct ReportFile {
    file: BufWriter<File>,
    path: PathBuf,
}

impl ReportFile {
    pub(crate) fn create(path: &PathBuf) -> Result<ReportFile, EngineError> {
        let failed = EngineError::system(format!("cannot write {}", path.display()));
        let file = File::create(path).map_err(failed)?;
        Ok(ReportFile {
            file: BufWriter::new(file),
            path: path.clone(),
        })
    }

    /// Writes a value as a line of JSON.
    pub(crate) fn write(&mut self, line: &impl serde::Serialize) -> Result<(), EngineError> {
        let text = serde_json::to_string(line).map_err(io::Error::from);
        self.line(&text.map_err(self.failed())?)
    }

    /// Writes a line and flushes it, so that readers see a session's line as soon as the session
    /// ends.
    fn line(&mut self, line: &str) -> Result<(), EngineError> {
        let failed = self.failed();
        writeln!(self.file, "{line}")
            .and_then(|()| self.file.flush())
            .map_err(failed)
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> EngineError + use<> {
        EngineError::system(format!("cannot write {}", self.path.display()))
    }

    pub(crate) fn finish(&mut self) -> Result<(), EngineError> {
        let failed = self.failed();
        self.file.flush().map_err(failed)
    }
}

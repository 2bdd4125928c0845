//! Embedded reference servers.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kit::reference::{Configured, ReferenceServer, RunningServer, Second};
use measure::Time;
use net::{Clock, PortRange};

use crate::control::Control;
use crate::error::EngineError;
use crate::machine::since_1970;
use crate::messages::WorkerReport;
use crate::modes::report_loop::{PoolReport, handle_reports};
use crate::worker::pool::{WorkerPlan, WorkerPool};
use crate::worker::{Accept, EndpointPlan, ListenerPlan, WorkerPopulation};

/// Options of a reference server.
#[derive(Debug)]
pub struct ServeOptions {
    pub server: &'static ReferenceServer,
    /// Settings from its flags. The server has one worker for each address; port 0 takes a free
    /// one. Above the maximum number of sessions, connections are closed at once, and UDP callers
    /// are refused.
    pub configured: Configured,
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
    let configured = options.configured;
    let server = configured.settings.server(since_1970(&clock));
    let server: Arc<dyn RunningServer> = Arc::from(server.map_err(EngineError::Settings)?);
    let catalogue = server.catalogue();
    let accept: Accept = {
        let server = server.clone();
        Arc::new(move |number| server.session(number))
    };
    let mut report = configured
        .report
        .as_ref()
        .map(ReportFile::create)
        .transpose()?;
    let tls = match &configured.tls {
        Some((chain, key)) => {
            let server = net::tls::Server::from_files(chain, key);
            Some(server.map_err(settings)?)
        }
        None => None,
    };
    let serving = || ListenerPlan {
        no_segmentation: server.sends_singly(),
        own_descriptor_tables: options.server.own_descriptor_tables,
        max_sessions: configured.max_sessions,
        accept: accept.clone(),
        tls: tls.clone(),
    };
    let max_sessions = configured.max_sessions;
    let (plans, listening) = bind_servers(&configured.listen, &*server, max_sessions, serving)?;
    let url = |&address| server.url(address, configured.tls.is_some());
    let listening: Vec<String> = listening.iter().map(url).collect();
    let mut pool = WorkerPool::start(plans, options.stop_timeout, server.seed())?;
    pool.begin(&clock);
    let mut tally = server.tally(clock.to_monotonic_nanos(Time::ZERO));
    let mut tell = |so_far: &str| {
        progress(ServeProgress {
            listening: &listening,
            so_far,
        });
    };
    tell(&tally.progress());
    let mut refused = Vec::new();
    handle_reports(
        &pool,
        &clock,
        (catalogue, options.server.title),
        control,
        options.stop_timeout,
        &mut |heard| {
            let line = match heard {
                PoolReport::Window(window) => {
                    let Some(served) = window.populations.first() else {
                        return Ok(());
                    };
                    let line = tally.second(Second {
                        start: window.begins,
                        seconds: window.seconds,
                        sessions: served,
                        tester: &window.tester(),
                    });
                    tell(&tally.progress());
                    line
                }
                PoolReport::WorkerReport(WorkerReport::Record(record)) => {
                    tally.session_ended(record)
                }
                PoolReport::WorkerReport(WorkerReport::Event {
                    kind: "sessions_refused",
                    text,
                    ..
                }) => {
                    refused.push(format!("{text} (--max-sessions)"));
                    None
                }
                PoolReport::WorkerReport(_) => None,
            };
            match (&mut report, line) {
                (Some(report), Some(line)) => report.line(&line),
                _ => Ok(()),
            }
        },
    )?;
    if let Some(report) = &mut report {
        report.line(&tally.final_line())?;
    }
    let mut lines = tally.result();
    lines.append(&mut refused);
    Ok(lines)
}

/// Plans of the workers that serve these addresses, one each, and the bound addresses.
fn bind_servers(
    listen_on: &[SocketAddr],
    server: &dyn RunningServer,
    max_sessions: usize,
    serving: impl Fn() -> ListenerPlan,
) -> Result<(Vec<WorkerPlan>, Vec<SocketAddr>), EngineError> {
    let mut plans = Vec::new();
    let mut listening = Vec::new();
    let count = u32::try_from(listen_on.len()).unwrap_or(1);
    for (index, &address) in (0u32..).zip(listen_on) {
        let failed = EngineError::system(format!("cannot listen on {address}"));
        let endpoint = server.endpoint(index);
        let ports = Ports::bind(address, server.accepts_connections(), endpoint.is_some());
        let ports = ports.map_err(failed)?;
        let endpoints = ports.datagrams.zip(endpoint);
        let endpoints = endpoints.map(|(socket, endpoint)| EndpointPlan {
            socket,
            endpoint,
            population: 0,
            max_sessions,
        });
        let connections = ports.connections.map(|listener| (listener, serving()));
        listening.push(ports.bound);
        let population = WorkerPopulation {
            name: "serving".to_owned(),
            catalogue: server.catalogue(),
            clients: None,
        };
        plans.push(WorkerPlan {
            serving: connections.into_iter().collect(),
            endpoints: endpoints.into_iter().collect(),
            ..WorkerPlan::new(vec![population], PortRange::share(PORTS, index, count))
        });
    }
    Ok((plans, listening))
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

    fn bind(address: SocketAddr, connections: bool, datagrams: bool) -> io::Result<Ports> {
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
}

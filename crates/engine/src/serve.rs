//! Embedded reference servers.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use measure::{Catalogue, Pacing, Time, Totals, tester};
use net::{Clock, PortRange};
use protocol::media::rtp::ServedStream;
use protocol::rtsp::server::{Server, ServerConfig};

use crate::attend::{Heard, attend};
use crate::control::Control;
use crate::crew::{Crew, Duty};
use crate::error::EngineError;
use crate::messages::Report;
use crate::worker::{Accept, PopulationPlan, Serving};

/// What a reference server is to do.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where it listens. One worker serves each address. A port of 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// What it serves, and what it does wrong on purpose. Its `wall_clock` is set by [`serve`].
    pub config: ServerConfig,
    /// Files (PEM) of the certificates, its own first, and of the key with which it speaks TLS on all of its connections.
    /// Default: it speaks none.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Where a line of JSON goes for each stream that was served, when its session has ended; and as the last
    /// line an object `pacing` ([`Pacing`]).
    pub report: Option<PathBuf>,
    /// Whether each datagram is handed to the kernel by itself, and not several of a stream in one piece that it cuts
    /// (UDP_SEGMENT; udp(7)): a capture on the same machine shows such a piece as one packet.
    pub apart: bool,
    /// How long sessions get to end when it is stopped.
    pub stop_timeout: Duration,
}

/// How a reference server stands, once a second.
#[derive(Clone, Debug)]
pub struct ServeProgress {
    /// Since it began.
    pub elapsed: Duration,
    /// Where it listens.
    pub listening: Vec<SocketAddr>,
    /// Streams served to their end so far.
    pub served: ServeFinished,
}

/// What a reference server did, all its streams together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServeFinished {
    /// Streams.
    pub streams: u64,
    /// Packets that left, first copies.
    pub sent: u64,
    /// Packets left out.
    pub lost: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets sent out of order.
    pub reordered: u64,
    /// How well they were paced, of all windows that are over.
    pub pacing: Pacing,
}

/// Out of which ports reference servers and sources send. Clients keep off those that are in use.
pub(crate) const PORTS: std::ops::Range<u16> = 30_000..32_768;

/// Serves until it is told to stop. `progress` is called when it listens, and then once a second.
///
/// # Errors
/// It cannot listen there, its settings make no server, or its report cannot be written.
pub fn serve(
    options: &ServeOptions,
    control: &Control,
    progress: &mut dyn FnMut(&ServeProgress),
) -> Result<ServeFinished, EngineError> {
    // Before all else, because the streams' sender reports count from its beginning.
    let clock = Clock::start();
    let config = ServerConfig {
        wall_clock: Duration::from_nanos(u64::try_from(clock.started_at()).unwrap_or(0)),
        ..options.config.clone()
    };
    let server = Server::new(config).map_err(EngineError::Settings)?;
    let server = Arc::new(server);
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
    let (duties, listening) = stand(&options.listen, server.catalogue(), || Serving {
        apart: options.apart,
        own_files: false,
        accept: accept.clone(),
        tls: tls.clone(),
    })?;
    let mut crew = Crew::start(duties, options.stop_timeout, options.config.seed)?;
    crew.begin(&clock);
    let mut served = ServeFinished::default();
    let mut pacing = Totals::new(tester::TESTER_CATALOGUE);
    let mut tell = |served: ServeFinished, elapsed| {
        progress(&ServeProgress {
            elapsed,
            listening: listening.clone(),
            served,
        });
    };
    tell(served, Duration::ZERO);
    attend(
        &crew,
        &clock,
        (server.catalogue(), "reference server"),
        control,
        options.stop_timeout,
        &mut |heard| {
            match heard {
                Heard::Window(window) => {
                    pacing.add(&window.tester, window.seconds);
                    served.pacing = Pacing::of(&pacing);
                    tell(
                        served,
                        window.begins.since_start() + Duration::from_secs_f64(window.seconds),
                    );
                }
                Heard::Report(Report::Served(mut stream)) => {
                    served.add(&stream);
                    if let Some(report) = &mut report {
                        stream.clock_monotonic_nanos = clock.to_monotonic_nanos(Time::ZERO);
                        report.write(stream.as_ref())?;
                    }
                }
                Heard::Report(_) => {}
            }
            Ok(())
        },
    )?;
    if let Some(report) = &mut report {
        report.write(&serde_json::json!({ "pacing": served.pacing }))?;
        report.finish()?;
    }
    Ok(served)
}

/// The duties of workers that serve these addresses, one each, and where they listen.
pub(crate) fn stand(
    listen_on: &[SocketAddr],
    catalogue: Catalogue,
    serving: impl Fn() -> Serving,
) -> Result<(Vec<Duty>, Vec<SocketAddr>), EngineError> {
    let mut duties = Vec::new();
    let mut listening = Vec::new();
    let count = u32::try_from(listen_on.len()).unwrap_or(1);
    for (index, &address) in (0u32..).zip(listen_on) {
        let failed = || EngineError::system(format!("cannot listen on {address}"));
        let listener = listen(address).map_err(failed())?;
        listening.push(listener.local_addr().map_err(failed())?);
        duties.push(Duty {
            populations: vec![PopulationPlan {
                name: "serving".to_owned(),
                catalogue,
                clients: None,
            }],
            goes_first: false,
            in_real_time: false,
            serving: vec![(listener, serving())],
            endpoints: Vec::new(),
            ports: PortRange::share(PORTS, index, count),
            ring: None,
        });
    }
    Ok((duties, listening))
}

pub(crate) fn settings(fault: net::tls::Fault) -> EngineError {
    EngineError::Settings(fault.text)
}

impl ServeFinished {
    fn add(&mut self, stream: &ServedStream) {
        self.streams += 1;
        self.sent += stream.sent;
        self.lost += stream.lost;
        self.duplicated += stream.duplicated;
        self.reordered += stream.reordered;
    }
}

/// How many connections may wait to be accepted: thousands of clients may begin at once.
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

/// The report of what was really sent.
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

    /// Each line is flushed: whoever waits for a session's line can read it as soon as it is over.
    pub(crate) fn write(&mut self, line: &impl serde::Serialize) -> Result<(), EngineError> {
        let failed = EngineError::system(format!("cannot write {}", self.path.display()));
        serde_json::to_writer(&mut self.file, line)
            .map_err(io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .and_then(|()| self.file.flush())
            .map_err(failed)
    }

    pub(crate) fn finish(&mut self) -> Result<(), EngineError> {
        let failed = EngineError::system(format!("cannot write {}", self.path.display()));
        self.file.flush().map_err(failed)
    }
}

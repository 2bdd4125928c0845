//! Receives media for runs on other machines: `streamgauge receive`.
//!
//! The receiver serves one run at a time. A run proves that it knows the secret and names the
//! populations whose media is to be received. Each population gets a listener at which its clients
//! request ports, one connection per client. The counts of their sessions go back to the run once a
//! second.

mod admission;

use std::fs::File;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use kit::remote_receiver::messages::LINE_MAX;
use kit::remote_receiver::{Receiver, ReceiverPorts, Secret, Terms};
use measure::{Catalogue, Window, tester};
use net::{Clock, PortRange};

use scenario::{Receive, Tester};

use crate::control::Control;
use crate::error::EngineError;
use crate::messages::{RunnerCommand, WorkerReport};
use crate::modes::serve::listen;
use crate::process::Process;
use crate::window_merger::{MergedWindow, WindowMerger};
use crate::worker::pool::{WorkerPlan, WorkerPool};
use crate::worker::receive_path::ReceivePath;
use crate::worker::remote::{
    ALIVE_EVERY, LineConnection, READ_TIMEOUT, ReceptionOrder, RunMessage, SILENCE_TIMEOUT,
    TransferredMetrics, TransferredWindow, WorkerMessage,
};
use crate::worker::{Accept, ListenerPlan, WorkerPopulation};

use admission::Admission;

#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// Address at which runs connect. The clients of each population connect to one of the ports
    /// above it, or to any port if the port is 0. Media is received at the same IP address.
    pub listen: SocketAddr,
    /// Secret that runs must know.
    pub secret: Secret,
    /// Ports for media. Default: a range that no run on this machine uses.
    pub ports: Option<ReceiverPorts>,
    /// Maximum number of concurrent streams.
    pub streams_max: usize,
    /// Receive path for media.
    pub receive: Receive,
    /// Version of this program. Both machines must use the same.
    pub version: String,
}

/// State of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiveProgress {
    pub listening: SocketAddr,
    /// Address of the run being served, if any.
    pub run: Option<SocketAddr>,
    /// Open streams.
    pub streams: usize,
    /// Number of runs served.
    pub runs: u64,
    /// Connections refused because of a wrong secret, an invalid message, or another run in
    /// progress.
    pub refused: u64,
}

/// Shutdown timeout of the sessions of a run.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// Maximum number of populations per run.
const POPULATIONS: usize = 64;

/// Receives media for other machines until it is stopped. `progress` is called once it listens, and
/// then several times a second.
///
/// # Errors
/// The address cannot be listened on.
pub fn receive(
    options: &ReceiveOptions,
    control: &Control,
    progress: &mut dyn FnMut(&ReceiveProgress),
) -> Result<(), EngineError> {
    let failed = || EngineError::system(format!("cannot listen on {}", options.listen));
    let listener = listen(options.listen).map_err(failed())?;
    let listening = listener.local_addr().map_err(failed())?;
    let terms = Terms::new(options.secret.clone(), random_key()?, options.streams_max);
    let terms = Arc::new(terms);
    let (_door, runs) = Admission::open(listener, terms.clone()).map_err(failed())?;
    let mut seen = ReceiveProgress {
        listening,
        run: None,
        streams: 0,
        runs: 0,
        refused: 0,
    };
    progress(&seen);
    while !control.is_stopped() {
        let run = match runs.recv_timeout(READ_TIMEOUT) {
            Ok(run) => Some(run),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let broken = io::Error::other("the thread that accepts connections ended");
                return Err(failed()(broken));
            }
        };
        if let Some((connection, wanted)) = run {
            seen.run = connection.stream.peer_addr().ok();
            let mut turn = |streams: usize, refused: u64| {
                while let Ok((mut other, _)) = runs.try_recv() {
                    terms.refuse();
                    let why = "it is receiving for another run".to_owned();
                    let _ = other.send(&WorkerMessage::Refused { why });
                }
                seen.streams = streams;
                seen.refused = terms.refused() + refused;
                progress(&seen);
            };
            let refused = serve_run(options, listening, connection, &wanted, control, &mut turn);
            for _ in 0..refused {
                terms.refuse();
            }
            seen.runs += 1;
            seen.run = None;
            seen.streams = 0;
        }
        seen.refused = terms.refused();
        progress(&seen);
    }
    Ok(())
}

/// Creates a random secret: 32 hexadecimal digits.
///
/// # Errors
/// The kernel's random source cannot be read.
pub fn draw_secret() -> Result<String, EngineError> {
    let key = random_key()?;
    Ok(key[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// 32 random bytes from the kernel.
fn random_key() -> Result<[u8; 32], EngineError> {
    let mut key = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut key))
        .map_err(EngineError::system("cannot read /dev/urandom"))?;
    Ok(key)
}

/// Serves one run. Returns the number of its connections that were refused.
fn serve_run(
    options: &ReceiveOptions,
    listening: SocketAddr,
    mut connection: LineConnection,
    wanted: &ReceptionOrder,
    control: &Control,
    turn: &mut dyn FnMut(usize, u64),
) -> u64 {
    let (run, answer) = match Reception::prepare(options, listening, wanted) {
        Ok(run) => run,
        Err(why) => {
            let _ = connection.send(&WorkerMessage::Refused { why });
            return 0;
        }
    };
    let terms = run.terms.clone();
    let result = connection
        .send(&answer)
        .and_then(|()| run.work(&mut connection, control, turn));
    // The run may be gone already.
    let _ = connection.send(&WorkerMessage::Ended {
        error: result.err(),
    });
    let _ = connection.stream.shutdown(Shutdown::Write);
    // Closing a socket with unread input resets the connection, and the last message may be lost.
    let until = Instant::now() + STOP_WITHIN;
    while Instant::now() < until && connection.receive::<RunMessage>(LINE_MAX).is_ok() {}
    terms.refused()
}

struct Reception {
    pool: WorkerPool,
    assembly: WindowMerger<Window>,
    terms: Arc<Terms>,
    process: Process,
    /// Keeps the ports claimed, so that other runs on this machine do not use them.
    _receive_path: ReceivePath,
}

impl Reception {
    fn prepare(
        options: &ReceiveOptions,
        listening: SocketAddr,
        wanted: &ReceptionOrder,
    ) -> Result<(Reception, WorkerMessage), String> {
        if wanted.version != options.version {
            return Err(format!(
                "it is streamgauge {}, but the run uses {}: use the same version on both machines",
                options.version, wanted.version
            ));
        }
        if wanted.populations.is_empty() || wanted.populations.len() > POPULATIONS {
            return Err("the number of populations is out of range".to_owned());
        }
        let ports = match (options.ports, wanted.ports) {
            (Some(mine), Some(theirs)) if !within(mine, theirs) => {
                return Err(format!(
                    "it may use ports {mine} only, not {theirs}: change its --ports or the `ports` of the scenario"
                ));
            }
            (mine, theirs) => theirs.or(mine),
        };
        let tester = Tester {
            receive: options.receive,
            // Bounded because another machine requests it.
            receive_buffer: wanted.receive_buffer.min(64 << 20),
            ring: wanted.ring.clamp(1 << 20, 256 << 20),
            ..Tester::default()
        };
        let streams = u64::try_from(options.streams_max).unwrap_or(u64::MAX);
        let in_words = |error: EngineError| error.to_string();
        let receive_path = ReceivePath::for_others(&tester, ports, streams).map_err(in_words)?;
        let key = random_key().map_err(in_words)?;
        let terms = Arc::new(Terms::new(options.secret.clone(), key, options.streams_max));
        let accept: Accept = {
            let terms = terms.clone();
            Arc::new(move |number| Box::new(Receiver::new(terms.clone(), number)))
        };
        let (mut plans, mut serving, mut heard_at) = (Vec::new(), Vec::new(), Vec::new());
        let mut catalogues: Vec<Catalogue> = Vec::new();
        for (offset, (name, protocol)) in (1u16..).zip(&wanted.populations) {
            let Some(protocol) = kit::registry::find(protocol) else {
                return Err(format!(
                    "it does not know the protocol `{}`",
                    protocol.escape_debug()
                ));
            };
            let port = match options.listen.port() {
                0 => 0,
                first => first
                    .checked_add(offset)
                    .ok_or("no port is left above its own")?,
            };
            let at = SocketAddr::new(listening.ip(), port);
            let listener =
                listen(at).map_err(|error| format!("it cannot listen on {at}: {error}"))?;
            let at = listener.local_addr().map_err(|error| error.to_string())?;
            heard_at.push(at.port());
            catalogues.push(protocol.catalogue);
            plans.push(WorkerPopulation {
                name: name.chars().take(64).collect(),
                catalogue: protocol.catalogue,
                clients: None,
            });
            // The sessions of a listener count for the population with the same index.
            let service = ListenerPlan {
                no_segmentation: false,
                own_descriptor_tables: false,
                max_sessions: usize::MAX,
                accept: accept.clone(),
                tls: None,
            };
            serving.push((listener, service));
        }
        let ports = PortRange::new(receive_path.ports())
            .with_receive_buffer(usize::try_from(tester.receive_buffer).unwrap_or(usize::MAX));
        let plan = WorkerPlan {
            serving,
            ring: receive_path.ring(&ports),
            ..WorkerPlan::new(plans, ports)
        };
        let crew = WorkerPool::start(vec![plan], STOP_WITHIN, 1).map_err(in_words)?;
        let path = receive_path.name().to_owned();
        let run = Reception {
            assembly: WindowMerger::new(1, catalogues),
            pool: crew,
            terms,
            process: Process::new(),
            _receive_path: receive_path,
        };
        let ports = heard_at;
        Ok((run, WorkerMessage::Ready { ports, path }))
    }

    /// Works until the run ends, or until its connection has been silent for [`SILENCE_TIMEOUT`].
    fn work(
        mut self,
        connection: &mut LineConnection,
        control: &Control,
        turn: &mut dyn FnMut(usize, u64),
    ) -> Result<(), String> {
        self.wait_for_begin(connection, control, turn)?;
        let clock = Clock::start();
        self.pool.begin(&clock);
        let (mut last_received, mut stopping) = (Instant::now(), false);
        while !self.assembly.is_over() {
            let mut stop = control.is_stopped();
            if let Some(order) = connection.receive::<RunMessage>(LINE_MAX)? {
                last_received = Instant::now();
                stop |= matches!(order, RunMessage::Stop);
            } else if last_received.elapsed() >= SILENCE_TIMEOUT {
                return Err("the run sent nothing for too long".to_owned());
            }
            while let Ok(report) = self.pool.reports.try_recv() {
                self.handle_report(report, connection)?;
            }
            self.send_windows(connection)?;
            let dead = |worker| self.pool.is_gone(worker) && self.pool.reports.is_empty();
            if self.assembly.running_members().any(dead) {
                return Err("its worker crashed".to_owned());
            }
            turn(self.terms.streams(), self.terms.refused());
            if stop && !stopping {
                stopping = true;
                let until = clock.now() + STOP_WITHIN;
                self.pool.broadcast(&RunnerCommand::Stop { until });
            }
        }
        self.send_windows(connection)?;
        match control.is_stopped() {
            true => Err("it was stopped".to_owned()),
            false => Ok(()),
        }
    }

    fn wait_for_begin(
        &self,
        connection: &mut LineConnection,
        control: &Control,
        turn: &mut dyn FnMut(usize, u64),
    ) -> Result<(), String> {
        let (mut last_received, mut last_sent) = (Instant::now(), Instant::now());
        loop {
            match connection.receive::<RunMessage>(LINE_MAX)? {
                Some(RunMessage::Begin) => return Ok(()),
                Some(RunMessage::Stop) => return Err("it was stopped before it began".to_owned()),
                Some(_) => last_received = Instant::now(),
                None if last_received.elapsed() >= SILENCE_TIMEOUT => {
                    return Err("the run sent nothing for too long".to_owned());
                }
                None if control.is_stopped() => return Err("it was stopped".to_owned()),
                None => {}
            }
            turn(0, self.terms.refused());
            if last_sent.elapsed() >= ALIVE_EVERY {
                last_sent = Instant::now();
                connection.send(&WorkerMessage::Alive)?;
            }
        }
    }

    fn handle_report(
        &mut self,
        report: WorkerReport,
        connection: &mut LineConnection,
    ) -> Result<(), String> {
        match report {
            WorkerReport::Window { worker, window } => self.assembly.add(worker, window),
            WorkerReport::Event { kind, text, .. } => {
                let text = format!("{kind}: {text}");
                connection.send(&WorkerMessage::Event { text })?;
            }
            WorkerReport::Finished { worker, error } => {
                self.assembly.member_ended(worker);
                if let Some(error) = error {
                    return Err(format!("its worker failed: {error}"));
                }
            }
            WorkerReport::Client(_)
            | WorkerReport::Record(_)
            | WorkerReport::TopicMessage { .. } => {}
        }
        Ok(())
    }

    /// Sends the windows that are complete.
    fn send_windows(&mut self, connection: &mut LineConnection) -> Result<(), String> {
        while let Some(window) = self.assembly.take() {
            let seen = self.seen(window);
            connection.send(&WorkerMessage::Window(Box::new(seen)))?;
        }
        Ok(())
    }

    fn seen(&mut self, window: MergedWindow<Window>) -> TransferredWindow {
        let mut tester = window.tester();
        tester.merge(&self.process.window(), tester::TESTER_CATALOGUE);
        TransferredWindow {
            index: window.index,
            seconds: window.seconds,
            populations: window
                .populations
                .iter()
                .map(TransferredMetrics::of)
                .collect(),
            tester: TransferredMetrics::of(&tester),
        }
    }
}

/// True if `all` contains all ports of `some`.
fn within(all: ReceiverPorts, some: ReceiverPorts) -> bool {
    let (all, some) = (all.range(), some.range());
    all.start <= some.start && some.end <= all.end
}

//! Receivers on other machines, from the point of view of the machine that runs the clients: each
//! counts as one more worker.
//!
//! A control connection per run names the populations whose media is to be received, starts and
//! stops the reception, and carries the windows. Each client has its own connection to the receiver
//! as well, over which its session requests ports.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use kit::remote_receiver::messages::{LINE_MAX, LineSplitter, ReceiverMessage, VERSION, to_line};
use kit::remote_receiver::{ReceiverPorts, Secret, proof};
use measure::{Catalogue, HistogramId, Time, Window, tester};
use scenario::Scenario;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::messages::WorkerReport;
use crate::run::parts::catalogues;
use crate::window_merger::{MergedWindow, TesterPart};
use crate::worker::WINDOW;

/// Silence after which the peer counts as lost. Both sides send a message every second.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for connecting and preparing.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between keep-alive messages.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// Read timeout of a connection, after which other work is checked.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// Maximum length of a line from a receiver in bytes: windows contain histograms.
const WINDOW_LINE_MAX: usize = 16 << 20;

/// Message of a run to its receiver, sent after the challenge.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunMessage {
    /// First message: proof of the secret.
    Proof { proof: String },
    /// Prepare for the run.
    Prepare(Box<ReceptionOrder>),
    /// Start the reception: the run begins.
    Begin,
    /// The run has ended.
    Stop,
    /// Keep-alive.
    Alive,
}

/// Reception that a run requests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReceptionOrder {
    /// Version of the run's program. Metrics differ between versions.
    pub(crate) version: String,
    /// Name and protocol of each population.
    pub(crate) populations: Vec<(String, String)>,
    /// Ports for media; `None` for any.
    pub(crate) ports: Option<ReceiverPorts>,
    /// Receive buffer of each socket, in bytes.
    pub(crate) receive_buffer: u64,
    /// Size of the packet ring, in bytes.
    pub(crate) ring: u64,
}

/// Message of a receiver to its run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerMessage {
    /// The receiver is ready.
    Ready {
        /// Port at which the clients of each population connect.
        ports: Vec<u16>,
        /// Receive path: `ring` or `sockets`.
        path: String,
    },
    /// The receiver refuses the run and closes the connection.
    Refused { why: String },
    /// Metrics of a window.
    Window(Box<TransferredWindow>),
    /// Entry for the event list.
    Event { text: String },
    /// Keep-alive.
    Alive,
    /// The reception has ended.
    Ended { error: Option<String> },
}

/// A window in transfer format.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TransferredWindow {
    pub(crate) index: u64,
    pub(crate) seconds: f64,
    pub(crate) populations: Vec<TransferredMetrics>,
    pub(crate) tester: TransferredMetrics,
}

/// Metrics of one subject in a window.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TransferredMetrics {
    counters: Vec<i64>,
    gauges: Vec<Option<f64>>,
    /// By histogram ID: the run file's blob, in hexadecimal.
    histograms: Vec<(u16, String)>,
}

impl TransferredMetrics {
    pub(crate) fn of(window: &Window) -> TransferredMetrics {
        let text = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        TransferredMetrics {
            counters: window.counters.clone(),
            gauges: window.gauges.clone(),
            histograms: window
                .histograms
                .iter()
                .map(|(id, sparse)| (id.0, text(runfile::blob::encode(sparse))))
                .collect(),
        }
    }

    /// Converts to a window. Returns `None` if the metrics do not match the catalogue.
    fn window(self, catalogue: Catalogue) -> Option<Window> {
        if self.counters.len() != catalogue.counters() || self.gauges.len() != catalogue.gauges() {
            return None;
        }
        let mut window = Window {
            counters: self.counters,
            gauges: self.gauges,
            ..Window::empty(catalogue)
        };
        for (id, text) in self.histograms {
            if usize::from(id) >= catalogue.histograms() {
                return None;
            }
            let sparse = runfile::blob::decode(&bytes_of(&text)?)?;
            window.histograms.insert(HistogramId(id), sparse);
        }
        Some(window)
    }
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok())
        .collect()
}

/// A receiver on another machine that is ready.
pub(crate) struct RemoteWorker {
    address: SocketAddr,
    /// Second handle of the connection, for commands.
    stream: TcpStream,
    orders: Sender<ReportTarget>,
    thread: Option<JoinHandle<()>>,
    stopped: bool,
    populations: Vec<String>,
    path: String,
}

/// Worker number and report channel.
type ReportTarget = (u32, Sender<WorkerReport>);

impl fmt::Display for RemoteWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.populations.join(", ");
        write!(
            f,
            "media of {names} is received at {}, by {}; its metrics and health are part of those of this run",
            self.address, self.path
        )
    }
}

/// Connects to all receivers that a scenario names. If there are any, `resolved` becomes the
/// scenario with the addresses at which they accept clients.
pub(crate) fn connect(
    scenario: &Scenario,
    version: &str,
    resolved: &mut Option<Scenario>,
) -> Result<Vec<RemoteWorker>, EngineError> {
    let mut wanted: Vec<(SocketAddr, Secret, Vec<usize>)> = Vec::new();
    for (index, population) in scenario.populations.iter().enumerate() {
        let media = population.config.facts().media;
        let Some((media, address)) = media.and_then(|media| Some((media, media.receiver?))) else {
            continue;
        };
        let secret = media.secret.clone().ok_or_else(|| EngineError::Receiver {
            address,
            population: population.name.clone(),
            message: format!(
                "its secret is missing: `streamgauge receive` prints it when it starts; put it into the environment variable \
                 STREAMGAUGE_CLIENTS__{}__MEDIA__SECRET",
                population.name.to_uppercase()
            ),
        })?;
        match wanted.iter_mut().find(|(other, _, _)| *other == address) {
            Some((_, _, populations)) => populations.push(index),
            None => wanted.push((address, secret, vec![index])),
        }
    }
    let mut found = Vec::new();
    for (address, secret, populations) in wanted {
        let scenario = resolved.get_or_insert_with(|| scenario.clone());
        let names = |index: &usize| scenario.populations[*index].name.clone();
        let names: Vec<String> = populations.iter().map(names).collect();
        let failed = |message: String| EngineError::Receiver {
            address,
            population: names.join(", "),
            message,
        };
        let (receiver, ports) =
            prepare(address, &secret, &populations, scenario, version).map_err(failed)?;
        for (&index, port) in populations.iter().zip(ports) {
            if let Some(media) = scenario.populations[index].config.media_mut() {
                media.clients_at = Some(SocketAddr::new(address.ip(), port));
            }
        }
        found.push(receiver);
    }
    Ok(found)
}

/// Prepares a receiver. Returns the port at which it accepts the clients of each population.
fn prepare(
    address: SocketAddr,
    secret: &Secret,
    populations: &[usize],
    scenario: &Scenario,
    version: &str,
) -> Result<(RemoteWorker, Vec<u16>), String> {
    let system = |error: io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "no process listens there: start `streamgauge receive` on that machine".to_owned()
        }
        _ => error.to_string(),
    };
    let stream = TcpStream::connect_timeout(&address, PREPARE_TIMEOUT).map_err(system)?;
    stream.set_nodelay(true).map_err(system)?;
    stream
        .set_read_timeout(Some(READ_TIMEOUT))
        .map_err(system)?;
    stream
        .set_write_timeout(Some(SILENCE_TIMEOUT))
        .map_err(system)?;
    let mut connection = LineConnection::new(stream);
    match connection.wait::<ReceiverMessage>(PREPARE_TIMEOUT)? {
        ReceiverMessage::Hello {
            version: VERSION,
            challenge,
        } => {
            let proof = proof(secret, &challenge);
            connection.send(&RunMessage::Proof { proof })?;
        }
        ReceiverMessage::Hello { .. } => return Err(other_version()),
        ReceiverMessage::Refused { why } => return Err(why),
        _ => return Err("it is not a receiver".to_owned()),
    }
    let named = |index: &usize| {
        let population = &scenario.populations[*index];
        let protocol = population.config.protocol().name.to_owned();
        (population.name.clone(), protocol)
    };
    let ports = |index: &usize| scenario.populations[*index].config.facts().media?.ports;
    let mut all = populations.iter().map(ports);
    let first = all.next().flatten();
    if all.any(|ports| ports != first) {
        return Err("its populations have different `ports`: name the same ones".to_owned());
    }
    connection.send(&RunMessage::Prepare(Box::new(ReceptionOrder {
        version: version.to_owned(),
        populations: populations.iter().map(named).collect(),
        ports: first,
        receive_buffer: scenario.tester.receive_buffer,
        ring: scenario.tester.ring,
    })))?;
    let (ports, path) = match connection.wait::<WorkerMessage>(PREPARE_TIMEOUT)? {
        WorkerMessage::Ready { ports, path } if ports.len() == populations.len() => (ports, path),
        WorkerMessage::Refused { why } => return Err(why),
        _ => return Err("it is not a receiver".to_owned()),
    };
    let stream = connection.stream.try_clone().map_err(system)?;
    let (orders, inbox) = bounded(1);
    let listening = ReceiverReader {
        connection,
        inbox,
        catalogues: catalogues(scenario),
        places: populations.to_vec(),
        next: 0,
    };
    let thread = std::thread::Builder::new()
        .name("receiver".to_owned())
        .spawn(move || listening.run(address))
        .map_err(system)?;
    let names = |index: &usize| scenario.populations[*index].name.clone();
    let receiver = RemoteWorker {
        address,
        stream,
        orders,
        thread: Some(thread),
        stopped: false,
        populations: populations.iter().map(names).collect(),
        path,
    };
    Ok((receiver, ports))
}

fn other_version() -> String {
    "it has another version: use the same version of streamgauge on both machines".to_owned()
}

impl RemoteWorker {
    /// Starts reporting under this worker number. Returns the thread that reports.
    pub(crate) fn report_to(
        &mut self,
        worker: u32,
        reports: Sender<WorkerReport>,
    ) -> Option<JoinHandle<()>> {
        let _ = self.orders.send((worker, reports));
        self.thread.take()
    }

    /// Tells the receiver that the run begins.
    pub(crate) fn begin(&mut self) {
        // A failure is noticed by the receiver's thread.
        let _ = self.stream.write_all(&to_line(&RunMessage::Begin));
    }

    /// Tells the receiver that the run has ended.
    pub(crate) fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            let _ = self.stream.write_all(&to_line(&RunMessage::Stop));
        }
    }
}

impl Drop for RemoteWorker {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A connection that carries messages as lines of JSON.
pub(crate) struct LineConnection {
    pub(crate) stream: TcpStream,
    lines: LineSplitter,
    received: std::collections::VecDeque<Vec<u8>>,
}

impl LineConnection {
    pub(crate) fn new(stream: TcpStream) -> LineConnection {
        LineConnection {
            stream,
            lines: LineSplitter::default(),
            received: std::collections::VecDeque::new(),
        }
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), String> {
        let sent = self.stream.write_all(&to_line(message));
        sent.map_err(|error| format!("the connection broke: {error}"))
    }

    /// Returns the next message. Reads once if it has none yet; `None` if that takes longer than
    /// the read timeout, or does not complete a message.
    pub(crate) fn receive<T: for<'a> Deserialize<'a>>(
        &mut self,
        max: usize,
    ) -> Result<Option<T>, String> {
        let mut bytes = [0; 16 * 1024];
        if self.received.is_empty() {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err("the connection ended".to_owned()),
                Ok(count) => {
                    let received = &mut self.received;
                    let fed = self.lines.feed(&bytes[..count], max, |line| {
                        received.push_back(line.to_vec())
                    });
                    fed.map_err(|_| "a message is too long".to_owned())?;
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock
                            | io::ErrorKind::TimedOut
                            | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(format!("the connection broke: {error}")),
            }
        }
        let Some(line) = self.received.pop_front() else {
            return Ok(None);
        };
        let read = serde_json::from_slice(&line);
        read.map(Some)
            .map_err(|error| format!("a message cannot be parsed: {error}"))
    }

    /// Waits up to `within` for the next message.
    pub(crate) fn wait<T: for<'a> Deserialize<'a>>(
        &mut self,
        within: Duration,
    ) -> Result<T, String> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(message) = self.receive(LINE_MAX)? {
                return Ok(message);
            }
        }
        Err(format!("it sent nothing for {} s", within.as_secs()))
    }
}

/// Reads the messages of a receiver, on its own thread.
struct ReceiverReader {
    connection: LineConnection,
    inbox: Receiver<ReportTarget>,
    catalogues: Vec<Catalogue>,
    /// Indices of the scenario's populations that it receives for.
    places: Vec<usize>,
    next: u64,
}

impl ReceiverReader {
    fn run(mut self, address: SocketAddr) {
        let mut to: Option<ReportTarget> = None;
        let result = self.listen(&mut to);
        if to.is_none() {
            // The connection was lost before the run began.
            to = self.inbox.recv().ok();
        }
        if let Some((worker, reports)) = to {
            let error = result
                .err()
                .map(|why| io::Error::other(format!("the receiver {address} was lost: {why}")));
            let _ = reports.send(WorkerReport::Finished { worker, error });
        }
    }

    fn listen(&mut self, to: &mut Option<ReportTarget>) -> Result<(), String> {
        let (mut last_received, mut last_sent) = (Instant::now(), Instant::now());
        loop {
            if to.is_none() {
                match self.inbox.try_recv() {
                    Ok(target) => *to = Some(target),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            if last_sent.elapsed() >= ALIVE_EVERY {
                last_sent = Instant::now();
                self.connection.send(&RunMessage::Alive)?;
            }
            match self.connection.receive::<WorkerMessage>(WINDOW_LINE_MAX)? {
                None if last_received.elapsed() >= SILENCE_TIMEOUT => {
                    return Err(format!(
                        "it sent nothing for {} s",
                        SILENCE_TIMEOUT.as_secs()
                    ));
                }
                None => continue,
                Some(WorkerMessage::Window(seen)) => self.window(*seen, to.as_ref())?,
                Some(WorkerMessage::Event { text }) => {
                    if let Some((_, reports)) = to {
                        let _ = reports.send(WorkerReport::Event {
                            at: Time::from_start(WINDOW * u32::try_from(self.next).unwrap_or(0)),
                            kind: "receiver",
                            subject: None,
                            text,
                        });
                    }
                }
                Some(WorkerMessage::Ended { error: None }) => return Ok(()),
                Some(
                    WorkerMessage::Ended { error: Some(why) } | WorkerMessage::Refused { why },
                ) => {
                    return Err(why);
                }
                Some(WorkerMessage::Alive | WorkerMessage::Ready { .. }) => {}
            }
            last_received = Instant::now();
        }
    }

    fn window(
        &mut self,
        seen: TransferredWindow,
        to: Option<&(u32, Sender<WorkerReport>)>,
    ) -> Result<(), String> {
        let wrong = || "its metrics do not match this program's".to_owned();
        let Some((worker, reports)) = to else {
            return Ok(());
        };
        let sound = seen.index == self.next
            && (0.0..=60.0).contains(&seen.seconds)
            && seen.populations.len() == self.places.len();
        if !sound {
            return Err(wrong());
        }
        self.next += 1;
        let catalogues = self.catalogues.iter().copied();
        let mut populations: Vec<Window> = catalogues.map(Window::empty).collect();
        for (&index, figures) in self.places.iter().zip(seen.populations) {
            populations[index] = figures.window(self.catalogues[index]).ok_or_else(wrong)?;
        }
        let tester = seen.tester.window(tester::TESTER_CATALOGUE);
        let window = MergedWindow {
            index: seen.index,
            begins: Time::from_start(WINDOW * u32::try_from(seen.index).unwrap_or(u32::MAX)),
            seconds: seen.seconds,
            populations,
            testers: vec![TesterPart {
                member: *worker,
                seconds: seen.seconds,
                figures: tester.ok_or_else(wrong)?,
            }],
        };
        let report = WorkerReport::Window {
            worker: *worker,
            window,
        };
        // If the coordinator has ended, the report is not needed.
        let _ = reports.send(report);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transferred_window_is_equal_or_rejected() {
        let catalogue = tester::TESTER_CATALOGUE;
        let mut recorder = measure::Recorder::new(catalogue);
        recorder.add(tester::SOCKET_OVERFLOW, 3);
        recorder.set(tester::CPU, 0.5);
        for value in [1, 70_000, 3_000_000_000] {
            recorder.record(tester::LAG, value);
        }
        let window = recorder.take_window();
        let text = serde_json::to_string(&TransferredMetrics::of(&window)).expect("plain data");
        let read =
            |text: &str| serde_json::from_str::<TransferredMetrics>(text).expect("as written");
        assert_eq!(read(&text).window(catalogue), Some(window));
        let other = protocols::PROTOCOLS[0].catalogue;
        assert_eq!(read(&text).window(other), None);
        for histogram in [
            "[[9999,\"00\"]]",
            "[[0,\"0\"]]",
            "[[0,\"zz\"]]",
            "[[0,\"ff\"]]",
        ] {
            let mut figures = read(&text);
            figures.histograms = serde_json::from_str(histogram).expect("its form is right");
            assert_eq!(figures.window(catalogue), None, "{histogram}");
        }
    }
}

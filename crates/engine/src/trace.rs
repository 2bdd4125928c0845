//! Traces: everything that selected clients sent and received, as capture files.
//!
//! A trace holds what the program read from and wrote to a client's sockets. It needs no privilege,
//! has nothing of other clients, and contains the plain text of traffic that is encrypted on the
//! wire. The time of received data is the arrival time that the client's metrics are based on,
//! relative to the same start of the run. The time of sent data is taken right before it was handed
//! to the kernel. The headers are synthetic (see [`packet_headers`]).
//!
//! A worker hands over records without blocking. A thread per trace sorts and writes them. The
//! queue and the file are bounded; records that do not fit are counted and reported.

mod packet_headers;
mod pcapng;
#[cfg(test)]
pub(crate) mod tests;
mod tracer;
mod writer;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, unbounded};
use measure::Time;
use net::Clock;
use scenario::Scenario;

use crate::error::EngineError;
use tracer::{Record, RecordKind, Shared};
pub(crate) use tracer::{TracedConnection, TracedSocket, Tracer};
pub(crate) use writer::ORDER_WITHIN;
use writer::{Writer, Written};

/// Maximum number of traced clients per run.
const CLIENTS_MAX: usize = 8;

/// Maximum size of a trace file in bytes: 1 GiB.
const FILE_BYTES: u64 = 1 << 30;

/// Maximum size of the record queue of a trace in bytes: 16 MiB.
const QUEUE_BYTES: usize = 16 << 20;

/// Comment in the header of every file.
const COMMENT: &str = "Data that one client of a streamgauge run read and wrote on its sockets, with the times of its report. \
                       Headers of IP, UDP and TCP are synthetic: a read or a write of a connection is a segment.";

/// Tracers of one population's clients, by client number.
pub(crate) type Traced = HashMap<u64, Tracer>;

/// A client as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Index of the population in the scenario.
    pub(crate) population: usize,
    /// Number within the population, counted from 0: its `slot` in the run file.
    pub(crate) number: u64,
    /// Name such as `viewers/17`.
    name: String,
}

/// Result of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Population and number, such as `viewers/17`.
    pub client: String,
    /// Capture file (pcapng).
    pub path: PathBuf,
    /// Number of packets in the file.
    pub packets: u64,
    /// Reason why data is missing; `None` if the trace is complete.
    pub incomplete: Option<String>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, packets) = (self.path.display(), self.packets);
        match packets {
            0 => write!(f, "{}: it sent and received nothing: {path}", self.client)?,
            1 => write!(f, "{}: 1 packet in {path}", self.client)?,
            _ => write!(f, "{}: {packets} packets in {path}", self.client)?,
        }
        match &self.incomplete {
            Some(why) => write!(f, "; incomplete: {why}"),
            None => Ok(()),
        }
    }
}

/// Finds the clients in `names`, each once: a population and a number, such as `viewers/17`, or the
/// number alone if there is one population.
///
/// # Errors
/// A name is malformed or unknown, or there are too many.
pub(crate) fn find(names: &[String], scenario: &Scenario) -> Result<Vec<Client>, EngineError> {
    let mut found: Vec<Client> = Vec::new();
    for name in names {
        let client = find_one(name, scenario)
            .map_err(|why| EngineError::Trace(format!("`{name}`: {why}")))?;
        if !found.contains(&client) {
            found.push(client);
        }
    }
    if found.len() > CLIENTS_MAX {
        return Err(EngineError::Trace(format!(
            "{} clients are too many: at most {CLIENTS_MAX} can be traced in a run",
            found.len()
        )));
    }
    Ok(found)
}

fn find_one(name: &str, scenario: &Scenario) -> Result<Client, String> {
    let populations = &scenario.populations;
    let there_are = || {
        let each = populations.iter().map(|population| {
            let name = &population.name;
            match population.load.clients_max() {
                0 => format!("no {name}"),
                1 => format!("{name}/0"),
                count => format!("{name}/0 to {name}/{}", count - 1),
            }
        });
        format!("there are {}", each.collect::<Vec<_>>().join(", "))
    };
    let (population, number) = match name.split_once('/') {
        Some((population, number)) => (Some(population), number),
        None => (None, name),
    };
    let Some(number) = digits(number) else {
        return Err(format!(
            "a client is named by its population and its number; {}",
            there_are()
        ));
    };
    let index = match population {
        Some(wanted) => populations.iter().position(|p| p.name == wanted),
        None if populations.len() == 1 => Some(0),
        None => {
            return Err(format!(
                "the population of client {number} is missing; {}",
                there_are()
            ));
        }
    };
    match index {
        Some(index) if number < populations[index].load.clients_max() => Ok(Client {
            population: index,
            number,
            name: format!("{}/{number}", populations[index].name),
        }),
        _ => Err(format!("no such client; {}", there_are())),
    }
}

/// Parses a number that consists of digits only: `+1` is not accepted.
fn digits(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// The traces of a run.
#[derive(Default)]
pub(crate) struct Traces {
    running: Vec<ActiveTrace>,
}

struct ActiveTrace {
    client: Client,
    path: PathBuf,
    tracer: Tracer,
    thread: Option<JoinHandle<Written>>,
    /// Events reported so far: gaps, end of the trace.
    reported: [bool; 2],
}

impl Traces {
    /// Creates a file for each client and starts the thread that writes it. The files are written
    /// next to the run file and named after it.
    ///
    /// # Errors
    /// A file cannot be created, or exists already and may not be replaced.
    pub(crate) fn start(
        clients: Vec<Client>,
        run_file: &Path,
        overwrite: bool,
        version: &str,
    ) -> Result<Traces, EngineError> {
        let mut traces = Traces::default();
        for client in clients {
            let path = path(run_file, &client);
            let refused = |error| {
                EngineError::system(format!("cannot write the trace {}", path.display()))(error)
            };
            let file = create(&path, overwrite).map_err(refused)?;
            // Bounded by bytes: see `Shared::room`.
            let (records, inbox) = unbounded();
            let shared = Arc::new(Shared::new(QUEUE_BYTES));
            let program = format!("streamgauge {version}");
            let title = [program, client.name.clone(), COMMENT.to_owned()];
            let writer = Writer::new(shared.clone(), file, FILE_BYTES, title);
            let thread = std::thread::Builder::new()
                .name("trace".to_owned())
                .spawn(move || writer.run(&inbox))
                .map_err(EngineError::system("cannot start a thread"))?;
            traces.running.push(ActiveTrace {
                client,
                path,
                tracer: Tracer { shared, records },
                thread: Some(thread),
                reported: [false; 2],
            });
        }
        Ok(traces)
    }

    /// Tracers of one population's clients.
    pub(crate) fn of(&self, population: usize) -> Traced {
        let running = self.running.iter();
        running
            .filter(|trace| trace.client.population == population)
            .map(|trace| (trace.client.number, trace.tracer.clone()))
            .collect()
    }

    /// Sets the start of the run: times in the files are relative to the same moment as those in
    /// the run file.
    pub(crate) fn begin(&self, clock: &Clock) {
        for trace in &self.running {
            let _ = trace.tracer.shared.started_at.set(clock.started_at());
        }
    }

    /// Messages about faults since the last call. Each fault is reported once.
    pub(crate) fn news(&mut self) -> Vec<String> {
        self.running
            .iter_mut()
            .filter_map(ActiveTrace::news)
            .collect()
    }

    pub(crate) fn finish(&mut self) -> Vec<Trace> {
        self.running.drain(..).map(ActiveTrace::finish).collect()
    }
}

impl ActiveTrace {
    fn news(&mut self) -> Option<String> {
        let shared = &self.tracer.shared;
        let (broken, full) = (shared.broken.get(), shared.full.load(Relaxed));
        let left_out = shared.missing.load(Relaxed) > 0;
        let [told_gaps, told_end] = &mut self.reported;
        let name = &self.client.name;
        if (broken.is_some() || full) && !*told_end {
            *told_end = true;
            let why = match broken {
                Some(error) => format!("{}: {error}", self.path.display()),
                None => format!("its file has reached {} MiB", FILE_BYTES >> 20),
            };
            return Some(format!("the trace of {name} ends here: {why}"));
        }
        if left_out && !*told_gaps && !*told_end {
            *told_gaps = true;
            return Some(format!(
                "the trace of {name} has gaps: data arrives faster than it is written"
            ));
        }
        None
    }

    fn finish(mut self) -> Trace {
        finish(&self.tracer.records);
        let joined = self.thread.take().map(JoinHandle::join);
        let shared = &self.tracer.shared;
        let left_out = shared.missing.load(Relaxed);
        let (packets, panicked) = match joined {
            Some(Ok(written)) => (written.packets, false),
            _ => (0, true),
        };
        let why = if let Some(error) = shared.broken.get() {
            Some(format!("writing the file failed: {error}"))
        } else if shared.full.load(Relaxed) {
            Some(format!("its file has reached {} MiB", FILE_BYTES >> 20))
        } else if panicked {
            Some("its writer crashed".to_owned())
        } else {
            (left_out > 0).then(|| "data arrived faster than it was written".to_owned())
        };
        Trace {
            client: self.client.name.clone(),
            path: self.path.clone(),
            packets,
            incomplete: why
                .map(|why| format!("{why}; {left_out} datagrams, reads or writes are missing")),
        }
    }
}

impl Drop for ActiveTrace {
    fn drop(&mut self) {
        // The thread is still here only if the run did not begin.
        if let Some(thread) = self.thread.take() {
            finish(&self.tracer.records);
            let _ = thread.join();
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn finish(records: &Sender<Record>) {
    // A writer that has ended needs no record.
    let _ = records.send(Record::event(Time::ZERO, Time::ZERO, RecordKind::Finish));
}

/// Path of a trace file: `x.run` becomes `x.run.viewers-17.pcapng`.
fn path(run_file: &Path, client: &Client) -> PathBuf {
    let mut path = OsString::from(run_file);
    path.push(format!(".{}.pcapng", client.name.replace('/', "-")));
    PathBuf::from(path)
}

/// Creates a file that only its owner can read: a trace contains passwords.
fn create(path: &Path, overwrite: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    match overwrite {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let file = options.open(path)?;
    if overwrite {
        // An existing file would keep its permissions.
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

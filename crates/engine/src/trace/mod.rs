//! Everything that chosen clients sent and received, as capture files.
//!
//! What is written is what the program itself read from and wrote to a client's sockets: it takes
//! no privilege, holds nothing of other clients, and will hold the clear text of what is encrypted
//! on the wire. The time of what was received is the same arrival time that the client's figures
//! are made from, counted from the same start of the run; the time of what was sent is that right
//! before it was handed to the kernel. The headers are made (see [`frames`]).
//!
//! A worker hands records over and waits for nobody; a thread for each trace puts them in order and
//! writes them. What waits is bounded, and so is the file: what has no place is counted, and told
//! of.

mod frames;
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
use tracer::{Record, Shared, What};
pub(crate) use tracer::{TracedConnection, TracedSocket, Tracer};
use writer::{Writer, Written};

/// How many clients can be traced in a run.
const CLIENTS_MAX: usize = 8;

/// How long the file of a trace becomes at most, in bytes: 1 GiB.
const FILE_BYTES: u64 = 1 << 30;

/// What may wait for the file of a trace at most, in bytes: 16 MiB.
const QUEUE_BYTES: usize = 16 << 20;

/// What every file says of itself.
const COMMENT: &str = "What one client of a streamgauge run read and wrote on its sockets, with the times of its report. \
                       Headers of IP, UDP and TCP are made: a read or a write of a connection is a segment.";

/// The traces of one population's clients, by the client's number.
pub(crate) type Traced = HashMap<u64, Tracer>;

/// A client, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Which population of the scenario.
    pub(crate) population: usize,
    /// Its number within, counted from 0: its `slot` in the run file.
    pub(crate) number: u64,
    /// `viewers/17`
    name: String,
}

/// A trace that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Whose: population and number, such as `viewers/17`.
    pub client: String,
    /// The capture file: pcapng.
    pub path: PathBuf,
    /// How many packets are in it.
    pub packets: u64,
    /// What is wrong with it; none where everything is in it.
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

/// Finds the clients that `names` name, each once: a population and a number, such as `viewers/17`,
/// or the number alone where there is one population.
///
/// # Errors
/// One is not named so, or does not exist; or there are too many.
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
                "which population's client {number} is not said; {}",
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
        _ => Err(format!("there is no such client; {}", there_are())),
    }
}

/// A number of nothing but digits: `+1` is none.
fn digits(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// The traces of a run.
#[derive(Default)]
pub(crate) struct Traces {
    running: Vec<Running>,
}

struct Running {
    client: Client,
    path: PathBuf,
    tracer: Tracer,
    thread: Option<JoinHandle<Written>>,
    /// What has been told of already: that there are gaps, that it has come to its end.
    told: [bool; 2],
}

impl Traces {
    /// Makes a file for each client and starts the thread that writes it. The files stand beside
    /// the run file and are named after it.
    ///
    /// # Errors
    /// A file cannot be made, or is there already and may not be replaced.
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
            traces.running.push(Running {
                client,
                path,
                tracer: Tracer { shared, records },
                thread: Some(thread),
                told: [false; 2],
            });
        }
        Ok(traces)
    }

    /// Those of one population's clients.
    pub(crate) fn of(&self, population: usize) -> Traced {
        let running = self.running.iter();
        running
            .filter(|trace| trace.client.population == population)
            .map(|trace| (trace.client.number, trace.tracer.clone()))
            .collect()
    }

    /// The run begins, by that clock: all times in the files are counted from the same moment as
    /// those in the run file.
    pub(crate) fn begin(&self, clock: &Clock) {
        for trace in &self.running {
            let _ = trace.tracer.shared.started_at.set(clock.started_at());
        }
    }

    /// What has gone wrong since this was asked last; each thing is told of once.
    pub(crate) fn news(&mut self) -> Vec<String> {
        self.running.iter_mut().filter_map(Running::news).collect()
    }

    /// Ends all traces.
    pub(crate) fn finish(&mut self) -> Vec<Trace> {
        self.running.drain(..).map(Running::finish).collect()
    }
}

impl Running {
    fn news(&mut self) -> Option<String> {
        let shared = &self.tracer.shared;
        let (broken, full) = (shared.broken.get(), shared.full.load(Relaxed));
        let left_out = shared.left_out.load(Relaxed) > 0;
        let [told_gaps, told_end] = &mut self.told;
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
                "the trace of {name} has gaps: it is written more slowly than it grows"
            ));
        }
        None
    }

    fn finish(mut self) -> Trace {
        finish(&self.tracer.records);
        let joined = self.thread.take().map(JoinHandle::join);
        let shared = &self.tracer.shared;
        let left_out = shared.left_out.load(Relaxed);
        let (packets, panicked) = match joined {
            Some(Ok(written)) => (written.packets, false),
            _ => (0, true),
        };
        let why = if let Some(error) = shared.broken.get() {
            Some(format!("it could not be written to its end: {error}"))
        } else if shared.full.load(Relaxed) {
            Some(format!("its file has reached {} MiB", FILE_BYTES >> 20))
        } else if panicked {
            Some("its writer broke down".to_owned())
        } else {
            (left_out > 0).then(|| "it was written more slowly than it grew".to_owned())
        };
        Trace {
            client: self.client.name.clone(),
            path: self.path.clone(),
            packets,
            incomplete: why
                .map(|why| format!("{why}; {left_out} datagrams, reads or writes are not in it")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of a run that did not begin.
        if let Some(thread) = self.thread.take() {
            finish(&self.tracer.records);
            let _ = thread.join();
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn finish(records: &Sender<Record>) {
    let record = Record {
        at: Time::ZERO,
        order: Time::ZERO,
        what: What::Finish,
        bytes: Box::default(),
    };
    // A writer that is gone has ended.
    let _ = records.send(record);
}

/// The run file's path with the client's name: `x.run` becomes `x.run.viewers-17.pcapng`.
fn path(run_file: &Path, client: &Client) -> PathBuf {
    let mut path = OsString::from(run_file);
    path.push(format!(".{}.pcapng", client.name.replace('/', "-")));
    PathBuf::from(path)
}

/// Creates a file that its owner alone can read: a trace has passwords in it.
fn create(path: &Path, overwrite: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    match overwrite {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let file = options.open(path)?;
    if overwrite {
        // A file that existed keeps its permissions otherwise.
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

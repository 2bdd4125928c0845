//! Processes of runners that the coordinator starts, here or by SSH.
//!
//! The first line of a runner's standard input is the address of NATS, with the password: it is in
//! no command line and no environment. The runner ends with its standard input, so it ends with its
//! coordinator, whatever happens to that.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::error::ClusterError;
use crate::nats_server::NatsServer;
use crate::placement::{Place, Site};

/// The running program, even if its file has been replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Name of the program on other machines.
const PROGRAM: &str = "streamgauge";

/// Time that a runner has to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum part of a log that is read for a message.
const LOG_MAX: u64 = 64 << 10;

/// Maximum length of a log.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// Interval between checks while ssh(1) connects.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Message of ssh(1) with the port that the other machine listens on.
const ALLOCATED: &str = "Allocated port ";

/// A runner's process.
#[derive(Debug)]
pub(crate) struct PlacedRunner {
    name: String,
    child: Child,
    /// Held open as long as the runner is to live.
    input: Option<ChildStdin>,
    /// Port of its machine that leads to NATS.
    port: Receiver<u16>,
    log: PathBuf,
}

impl PlacedRunner {
    /// Starts a runner. Its output goes to a file in `folder`.
    pub(crate) fn start(
        place: &Place,
        nats: &NatsServer,
        folder: &Path,
    ) -> Result<PlacedRunner, ClusterError> {
        let failed = |why: String| ClusterError::Launch {
            what: format!("runner `{}`", place.name),
            why,
        };
        let log = folder.join(format!("{}.log", place.name));
        let output = File::create(&log).map_err(|error| failed(error.to_string()))?;
        let mut command = match &place.site {
            Site::Local => Command::new(OWN_PROGRAM),
            Site::Ssh(destination) => over_ssh(destination, nats.port()),
        };
        let weight = place.weight.to_string();
        command.args(["runner", "--at", "-", "--name", &place.name]);
        command.args(["--weight", &weight, "--allow-target", "any"]);
        // A signal of the terminal is for the coordinator, which ends its runners in order.
        command.process_group(0);
        command.stdin(Stdio::piped());
        let copy = output.try_clone();
        command.stdout(copy.map_err(|error| failed(error.to_string()))?);
        match place.site {
            Site::Local => command.stderr(output),
            Site::Ssh(_) => command.stderr(Stdio::piped()),
        };
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (found, port) = bounded(1);
        match child.stderr.take() {
            Some(messages) => follow(messages, &log, found),
            None => drop(found.send(nats.port())),
        }
        Ok(PlacedRunner {
            name: place.name.clone(),
            input: child.stdin.take(),
            child,
            port,
            log,
        })
    }

    /// Tells the runner where NATS is, as soon as that is known.
    pub(crate) fn connect(
        &mut self,
        nats: &NatsServer,
        within: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), ClusterError> {
        let until = Instant::now() + within;
        let port = loop {
            match self.port.recv_timeout(CHECK_INTERVAL) {
                Ok(port) => break port,
                Err(RecvTimeoutError::Timeout) if stop() => return Err(ClusterError::Stopped),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => self.check()?,
                Err(_) => {
                    return Err(ClusterError::Launch {
                        what: format!("runner `{}`", self.name),
                        why: format!("ssh did not connect: {}", last_line(&self.log)),
                    });
                }
            }
        };
        if let Some(input) = &mut self.input {
            let line = format!("{}\n", nats.url_at(port));
            // A runner that has ended is noticed by `check`.
            let sent = input.write_all(line.as_bytes());
            let _ = sent.and_then(|()| input.flush());
        }
        Ok(())
    }

    /// Lets the runner end.
    pub(crate) fn end(&mut self) {
        self.input = None;
    }

    /// Checks that the process runs.
    pub(crate) fn check(&mut self) -> Result<(), ClusterError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(ClusterError::Runner {
                name: self.name.clone(),
                why: format!("it ended: {}", last_line(&self.log)),
            }),
        }
    }
}

impl Drop for PlacedRunner {
    fn drop(&mut self) {
        self.end();
        let until = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs the program on another machine, where a port leads to NATS here.
fn over_ssh(destination: &str, port: u16) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"]);
    // The port is named at this level, whatever the user's configuration says.
    command.args(["-o", "LogLevel=INFO", "-o", "ConnectTimeout=10"]);
    command.args(["-o", "ServerAliveInterval=5"]);
    let tunnel = format!("127.0.0.1:0:127.0.0.1:{port}");
    command.args(["-R", &tunnel]);
    command.args(["--", destination, PROGRAM]);
    command
}

/// Passes the messages of ssh(1) on into the log, and the forwarded port to `found`.
fn follow(messages: ChildStderr, log: &Path, found: Sender<u16>) {
    let log = log.to_owned();
    std::thread::spawn(move || {
        let mut output = File::options().append(true).open(log).ok();
        let mut found = Some(found);
        let mut lines = BufReader::new(messages.take(LOG_BYTES_MAX));
        let mut line = String::new();
        while matches!(lines.read_line(&mut line), Ok(1..)) {
            if let Some(output) = &mut output {
                let _ = output.write_all(line.as_bytes());
            }
            let after = line.split_once(ALLOCATED).map(|(_, after)| after);
            let port = after.and_then(|after| after.split(' ').next());
            if let Some(port) = port.and_then(|port| port.parse().ok())
                && let Some(found) = found.take()
            {
                let _ = found.send(port);
            }
            line.clear();
        }
    });
}

/// Last line of a log that is not empty.
fn last_line(log: &Path) -> String {
    let mut text = String::new();
    if let Ok(file) = File::open(log) {
        let _ = file.take(LOG_MAX).read_to_string(&mut text);
    }
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("without a message").trim().to_owned()
}

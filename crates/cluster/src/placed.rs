//! Processes of runners that the coordinator starts, here or by SSH.
//!
//! The first line of a runner's standard input is the address of NATS, with the password: it is in
//! no command line and no environment. The runner ends with its standard input, so it ends with its
//! coordinator, whatever happens to that.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

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

/// Message of ssh(1) with the port that the other machine listens on.
const ALLOCATED: &str = "Allocated port ";

/// A runner's process.
#[derive(Debug)]
pub(crate) struct PlacedRunner {
    name: String,
    child: Child,
    /// Held open as long as the runner is to live.
    input: Option<ChildStdin>,
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
        let records = folder.display().to_string();
        let mut arguments = vec![
            "runner",
            "--at",
            "-",
            "--name",
            &place.name,
            "--weight",
            &weight,
        ];
        arguments.extend(["--allow-target", "any"]);
        if place.site == Site::Local {
            arguments.extend(["--records", &records]);
        }
        command.args(&arguments).stdin(Stdio::piped());
        let copy = output
            .try_clone()
            .map_err(|error| failed(error.to_string()))?;
        command.stdout(copy);
        match place.site {
            Site::Local => command.stderr(output),
            Site::Ssh(_) => command.stderr(Stdio::piped()),
        };
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let port = match (&place.site, child.stderr.take()) {
            (Site::Ssh(_), Some(messages)) => {
                let port = forwarded_port(messages, &log);
                port.ok_or_else(|| failed(last_line(&log)))?
            }
            _ => nats.port(),
        };
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            let line = format!("{}\n", nats.url_at(port));
            // A runner that has ended is noticed by `check`.
            let _ = input
                .write_all(line.as_bytes())
                .and_then(|()| input.flush());
        }
        Ok(PlacedRunner {
            name: place.name.clone(),
            child,
            input,
            log,
        })
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
        self.input = None;
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
    command.args(["-o", "ServerAliveInterval=5"]);
    command
        .arg("-R")
        .arg(format!("127.0.0.1:0:127.0.0.1:{port}"));
    command.args(["--", destination, PROGRAM]);
    command
}

/// Reads the messages of ssh(1) until it has named the forwarded port. They go on into the log.
fn forwarded_port(messages: ChildStderr, log: &Path) -> Option<u16> {
    let mut output = File::options().append(true).open(log).ok()?;
    let mut lines = BufReader::new(messages);
    let mut line = String::new();
    let port = loop {
        line.clear();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let _ = output.write_all(line.as_bytes());
        if let Some((_, rest)) = line.split_once(ALLOCATED) {
            break rest.split(' ').next()?.parse().ok()?;
        }
    };
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut lines, &mut output);
    });
    Some(port)
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

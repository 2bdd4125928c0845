//! `streamgauge runner`: plays parts of the runs of a coordinator until it is stopped.

use std::io::{BufRead, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster::{Access, ClusterError, ObserverOptions, RunnerOptions, Targets, is_name};
use engine::Control;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::runs_folder::RunsFolder;
use crate::ui::console::Console;
use crate::ui::descriptor_limit;
use crate::ui::signals::Watch;
use crate::ui::version;

/// Maximum length of the address on standard input.
const URL_MAX: u64 = 4096;

/// Exits with 0 when it is stopped.
pub(crate) fn runner(arguments: &args::Runner, console: Console) -> Result<Exit, Failure> {
    let input_ended = Arc::new(AtomicBool::new(false));
    let url = match arguments.at.as_str() {
        "-" => url_of_input(&input_ended)?,
        url => url.to_owned(),
    };
    let access = Access::new(&url).map_err(Failure::bad)?;
    let name = arguments.name.clone().unwrap_or_else(own_name);
    if !is_name(&name) {
        return Err(Failure::bad(ClusterError::Name { name }));
    }
    let options = RunnerOptions {
        name,
        weight: arguments.weight,
        access: Access {
            credentials: arguments.creds.clone(),
            insecure: arguments.insecure,
            ..access
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: version::build(),
        targets: Targets::new(arguments.allow_targets.clone()),
        folder: match (&arguments.records, arguments.at.as_str()) {
            (None, "-") => None,
            (Some(folder), _) => Some(folder.clone()),
            (None, _) => Some(RunsFolder::of_environment().path),
        },
        once: arguments.once,
    };
    descriptor_limit::raise();
    let control = Control::new();
    let _watch = Watch::start(control.clone())?;
    let stop = || control.is_stopped() || input_ended.load(Ordering::Relaxed);
    let mut tell = |text: &str| console.say(text);
    let served = match &arguments.observe {
        None => cluster::serve(&options, &stop, &mut tell),
        Some(server) => {
            let server = ObserverOptions {
                pid: process_of(server)?,
                log: arguments.log.clone(),
            };
            cluster::observe(&options, &server, &stop, &mut tell)
        }
    };
    served.map_err(Failure::bad)?;
    Ok(Exit::Pass)
}

/// Process of a server that is named by its process ID or its unit of systemd.
fn process_of(server: &str) -> Result<u32, Failure> {
    if let Ok(pid) = server.parse() {
        return Ok(pid);
    }
    let bad = |why: &str| Failure::bad(format_args!("--observe {server}: {why}"));
    let asked = Command::new("systemctl")
        .args(["show", "--property=MainPID", "--value", "--", server])
        .stdin(Stdio::null())
        .output();
    let asked = asked.map_err(|error| {
        bad(&format!(
            "not a process ID, and systemctl cannot be run: {error}"
        ))
    })?;
    let answer = String::from_utf8_lossy(&asked.stdout);
    match answer.trim().parse() {
        Ok(0) | Err(_) => Err(bad("not a process ID, and not a running systemd unit")),
        Ok(pid) => Ok(pid),
    }
}

/// Reads the address from the first line of standard input, and notes when the input ends.
fn url_of_input(ended: &Arc<AtomicBool>) -> Result<String, Failure> {
    let mut line = String::new();
    let mut input = std::io::stdin().lock();
    let read = input.by_ref().take(URL_MAX).read_line(&mut line);
    read.map_err(|error| Failure::bad(format_args!("cannot read standard input: {error}")))?;
    if line.trim().is_empty() {
        return Err(Failure::bad(
            "--at -: there is no address in the first line of standard input",
        ));
    }
    let noted = ended.clone();
    std::thread::spawn(move || {
        let mut rest = [0; 256];
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut rest), Ok(1..)) {}
        noted.store(true, Ordering::Relaxed);
    });
    Ok(line.trim().to_owned())
}

/// The host name, as a name of a runner.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let word = |c: char| match c.is_ascii_alphanumeric() || c == '-' {
        true => c,
        false => '_',
    };
    let name: String = host.trim().chars().map(word).take(64).collect();
    match name.is_empty() {
        true => "runner".to_owned(),
        false => name,
    }
}

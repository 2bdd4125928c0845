//! `streamgauge link`: runs any program behind an emulated link.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use engine::link::{LinkPlan, LinkWindow, LinkedNamespace};
use measure::Totals;
use measure::link::{DOWNLINK, LINK_CATALOGUE, UPLINK};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use session::link::LinkConfig;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Default MTU.
const DEFAULT_MTU: u16 = 1500;

/// Placeholder for this machine's address in the program's arguments.
const HOST: &str = "{host}";

/// Environment variable that tells the program the same address. A run behind a link does not take
/// it for a key of the scenario.
pub(crate) const HOST_VARIABLE: &str = "STREAMGAUGE_LINK_HOST";

/// Version of the JSON record.
const RECORD_VERSION: u32 = 1;

/// Runs the program behind a link and returns its exit code.
pub(crate) fn link(arguments: &args::Link, console: Console) -> Result<Exit, Failure> {
    let config = config(arguments)?;
    let seed = arguments.seed.unwrap_or_else(args::new_seed);
    let plan = LinkPlan {
        timelines: config.timelines().map_err(Failure::bad)?,
        seed,
    };
    // Signals are for the program, so they are caught before anything starts.
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::bad(format_args!("cannot listen for signals: {error}")))?;
    let handle = signals.handle();
    let namespace =
        LinkedNamespace::make(plan, config.mtu.unwrap_or(DEFAULT_MTU)).map_err(link_failure)?;
    console.say(&format!(
        "link: {}; seed {seed}; this machine is {}, the program {}",
        config.summary(),
        namespace.machine(),
        namespace.program()
    ));
    if !namespace.raised_priority() {
        console.say(
            "warning: the link has no real-time priority (CAP_SYS_NICE): on a busy machine \
             packets leave late",
        );
    }
    // The network ends with this process, so the program must end with it as well.
    let guard = namespace.network().and_then(sut::Guard::over);
    let guard =
        guard.map_err(|error| Failure::bad(format_args!("cannot guard the program: {error}")))?;
    let mut child = start(&arguments.command, &namespace)?;
    let program = Pid::from_child(&child);
    let forward = std::thread::spawn(move || {
        for signal in signals.forever() {
            let signal = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                // The terminal sends them to the program itself.
                _ => continue,
            };
            // The program may have ended.
            let _ = kill_process(program, signal);
        }
    });
    let ended = child.wait();
    drop(guard);
    handle.close();
    let _ = forward.join();
    let record = namespace.stop();
    let status = ended.map_err(|error| {
        Failure::bad(format_args!("cannot wait for the program to end: {error}"))
    })?;
    let record = record.map_err(|error| {
        Failure::new(Exit::Invalid, format_args!("the link ended early: {error}"))
    })?;
    let behaved = show(record, &config, seed, arguments, console)?;
    Ok(match Exit::Program(code(status)) {
        Exit::Program(0) if !behaved => Exit::Invalid,
        exit => exit,
    })
}

fn config(arguments: &args::Link) -> Result<LinkConfig, Failure> {
    let mut config = arguments.config();
    if let Some(path) = &arguments.trace {
        let bad = |error: String| Failure::bad(format_args!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| bad(report::io_reason(&error)))?;
        config.stages = LinkConfig::stages_of_trace(&text).map_err(bad)?;
    }
    Ok(config)
}

fn link_failure(error: io::Error) -> Failure {
    let help = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ": it needs CAP_NET_ADMIN and CAP_SYS_ADMIN; run it as root"
        }
        io::ErrorKind::NotFound => ": there is no /dev/net/tun; load the kernel module `tun`",
        _ => "",
    };
    Failure::bad(format_args!("cannot make the link: {error}{help}"))
}

fn start(words: &[OsString], namespace: &LinkedNamespace) -> Result<Child, Failure> {
    let host = namespace.machine().to_string();
    let words: Vec<OsString> = words
        .iter()
        .map(|word| match word.to_str() {
            Some(word) => word.replace(HOST, &host).into(),
            None => word.clone(),
        })
        .collect();
    let Some((program, arguments)) = words.split_first() else {
        return Err(Failure::bad("no program: name it after `--`"));
    };
    let mut command = Command::new(program);
    command.args(arguments).env(HOST_VARIABLE, &host);
    namespace.spawn(&mut command).map_err(|error| {
        let program = program.to_string_lossy();
        Failure::bad(format_args!("cannot start `{program}`: {error}"))
    })
}

/// Returns the exit code as a shell reports it: 128 and the signal's number if a signal ended the
/// program.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    u8::try_from(code.unwrap_or(1)).unwrap_or(1)
}

/// Prints and writes the record. Returns `true` if the link behaved as configured.
fn show(
    record: Option<LinkWindow>,
    config: &LinkConfig,
    seed: u64,
    arguments: &args::Link,
    console: Console,
) -> Result<bool, Failure> {
    let Some(record) = record else {
        return Ok(true);
    };
    let directions = [(UPLINK, record.up), (DOWNLINK, record.down)].map(|(name, window)| {
        let mut totals = Totals::new(LINK_CATALOGUE);
        totals.add(&window, 0.0);
        (name, totals)
    });
    let mut reasons = Vec::new();
    for (name, totals) in &directions {
        let metrics = report::metrics::Metrics::of(totals);
        console.say(&format!("{name:<9} {}", report::link::line(&metrics)));
        reasons.extend(
            measure::link::invalid_reason(totals).map(|reason| format!("{name}: {reason}")),
        );
    }
    for reason in &reasons {
        console.say(&format!("the link is not to be trusted: {reason}"));
    }
    if let Some(path) = &arguments.json {
        let of = |totals: &Totals| report::metrics::Metrics::of(totals);
        let [up, down] = &directions;
        let record = json!({
            "link_version": RECORD_VERSION,
            "link": config,
            "seed": seed,
            "fit": reasons.is_empty(),
            "reasons": reasons,
            UPLINK: of(&up.1),
            DOWNLINK: of(&down.1),
        });
        let text = serde_json::to_string_pretty(&record).map_err(Failure::bad)? + "\n";
        std::fs::write(path, text).map_err(|error| {
            let reason = report::io_reason(&error);
            Failure::bad(format_args!("cannot write {}: {reason}", path.display()))
        })?;
    }
    Ok(reasons.is_empty())
}

//! `streamgauge demo`: a reference server launched like any server under test, clients against it,
//! and a report.

use std::collections::BTreeMap;
use std::time::Duration;

use kit::descriptor;
use measure::units::TimeSpan;
use protocols::{PROTOCOLS, Protocol};
use scenario::{OneLiner, Ready, Scenario, Server, ServerStart};

use crate::args;
use crate::commands::free_port::free_port;
use crate::commands::play::{Play, play};
use crate::commands::run::overrides;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Default ramp, or a quarter of the duration if that is shorter.
const RAMP: Duration = Duration::from_secs(2);

pub(crate) fn demo(arguments: &args::Demo, console: Console) -> Result<Exit, Failure> {
    let protocol = PROTOCOLS
        .iter()
        .find(|protocol| protocol.name == arguments.protocol)
        .expect("the arguments take only names of the registry");
    let reference = protocol
        .server
        .expect("the arguments take only what has a server");
    let shown = reference.demo.as_ref();
    let shown = shown.expect("the arguments take only what can be demonstrated");
    let bitrate = match &arguments.bitrate {
        Some(bitrate) => bitrate.to_string(),
        None => shown.bitrate.to_owned(),
    };
    // Invalid flags are reported here, before a server is launched with them.
    let flags = server_flags(arguments, &bitrate);
    reference.parse(&flags).map_err(Failure::bad)?;
    let port = free_port(protocol.transport)?;
    let clients = arguments.clients.unwrap_or(shown.clients);
    let url = shown.url.replace("{port}", &port.to_string());
    let mut scenario = scenario(arguments, url, clients)?;
    scenario.server = Some(reference_server(protocol, port, flags)?);
    let transport = arguments.transport.map(args::Transport::name);
    let transport = transport.map(|name| format!(", over {name}"));
    console.say(&format!(
        "{clients} clients play {bitrate} each from a reference server ({}) on port {port}{}",
        protocol.name,
        transport.unwrap_or_default(),
    ));
    let play_it = Play {
        scenario: &scenario,
        results: &arguments.results,
        tracing: &arguments.tracing,
        runners: &arguments.runners,
        unfinished: None,
    };
    play(play_it, console)
}

fn scenario(arguments: &args::Demo, url: String, clients: u32) -> Result<Scenario, Failure> {
    let usual = RAMP.min(arguments.duration.0 / 4);
    let ramp = arguments.ramp.unwrap_or(TimeSpan(usual));
    let line = OneLiner {
        urls: vec![url],
        clients: Some(clients.to_string()),
        ramp: Some(ramp.to_string()).filter(|_| !ramp.0.is_zero()),
        duration: Some(arguments.duration.to_string()),
        transport: arguments.transport.map(|one| one.name().to_owned()),
        thresholds: arguments.thresholds.clone(),
        seed: Some(arguments.seed.to_string()),
        ..OneLiner::default()
    };
    let mut overrides = overrides();
    overrides.options = arguments.receiving.settings();
    let mut scenario = Scenario::from_one_liner(&line, &overrides).map_err(Failure::diagnostic)?;
    scenario.name = "demo".to_owned();
    Ok(scenario)
}

fn server_flags(arguments: &args::Demo, bitrate: &str) -> Vec<String> {
    let mut flags = vec!["--bitrate".to_owned(), bitrate.to_owned()];
    flags.extend(["--seed".to_owned(), arguments.seed.to_string()]);
    for fault in &arguments.faults {
        flags.extend(["--fault".to_owned(), fault.clone()]);
    }
    flags
}

/// Returns this program as a reference server in a process of its own, so that it is observed like
/// any other server.
pub(crate) fn reference_server(
    protocol: &Protocol,
    port: u16,
    with: Vec<String>,
) -> Result<Server, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::bad(format_args!("cannot find this program: {error}")))?;
    let program = program.into_os_string().into_string().map_err(|path| {
        Failure::bad(format_args!(
            "this program's path is not UTF-8: {}",
            path.display()
        ))
    })?;
    let mut command: Vec<String> = vec![program];
    command.extend(["serve", protocol.name].map(str::to_owned));
    // A server without connections prints a line when it is ready.
    let ready = match protocol.transport {
        descriptor::Transport::Tcp => {
            command.push("--quiet".to_owned());
            Ready::Port(port)
        }
        descriptor::Transport::Udp => Ready::Line("listening on".to_owned()),
    };
    command.extend(["--port".to_owned(), port.to_string()]);
    command.extend(with);
    Ok(Server {
        interface: None,
        groups: Vec::new(),
        start: ServerStart::Command(command),
        clips: None,
        ready: Some(ready),
        ready_timeout: scenario::DEFAULT_READY_TIMEOUT,
        stop_timeout: scenario::DEFAULT_STOP_TIMEOUT,
        linger: None,
        log: scenario::ServerLog::default(),
        environment: BTreeMap::new(),
        user: None,
        directory: None,
    })
}

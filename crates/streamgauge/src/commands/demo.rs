//! `streamgauge demo`: a reference server launched like any server under test, clients against it,
//! a report.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use measure::units::TimeSpan;
use protocol::descriptor::Transport;
use protocol::reference::Flags;
use protocol::registry::{Protocol, RTSP_PROTOCOL};
use scenario::{OneLiner, Ready, Scenario, Server, ServerStart};

use crate::args;
use crate::commands::play::{Play, play};
use crate::commands::run::overrides;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Over how long clients start, at most and where nothing is said.
const RAMP: Duration = Duration::from_secs(2);

pub(crate) fn demo(arguments: &args::Demo, console: Console) -> Result<Exit, Failure> {
    let args::Protocol::Rtsp = arguments.protocol;
    // What is wrong with them is said here, not by the server that is launched with them.
    if let Some(reference) = RTSP_PROTOCOL.server {
        let flags = Flags::usual(reference.flags).with("fault", arguments.faults.clone());
        (reference.read)(&flags).map_err(Failure::bad)?;
    }
    let port = free_port()?;
    let mut scenario = clients(arguments, port)?;
    scenario.server = Some(server(arguments, port)?);
    console.say(&format!(
        "{} clients play {} from a reference server on port {port}, over {}",
        arguments.clients,
        arguments.bitrate,
        arguments.transport.name(),
    ));
    let play_it = Play {
        scenario: &scenario,
        results: &arguments.results,
        tracing: &arguments.tracing,
    };
    play(play_it, console)
}

/// A TCP port that nobody listens on. Another program may take it before the server does, which
/// then says so.
pub(crate) fn free_port() -> Result<u16, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::bad(format_args!("no port to serve on: {error}")))
}

fn clients(arguments: &args::Demo, port: u16) -> Result<Scenario, Failure> {
    let usual = RAMP.min(arguments.duration.0 / 4);
    let ramp = arguments.ramp.unwrap_or(TimeSpan(usual));
    let line = OneLiner {
        urls: vec![format!("rtsp://127.0.0.1:{port}/demo")],
        clients: Some(arguments.clients.to_string()),
        ramp: Some(ramp.to_string()).filter(|_| !ramp.0.is_zero()),
        duration: Some(arguments.duration.to_string()),
        transport: Some(arguments.transport.name().to_owned()),
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

fn server(arguments: &args::Demo, port: u16) -> Result<Server, Failure> {
    let mut with = vec!["--bitrate".to_owned(), arguments.bitrate.to_string()];
    with.extend(["--seed".to_owned(), arguments.seed.to_string()]);
    for fault in &arguments.faults {
        with.extend(["--fault".to_owned(), fault.clone()]);
    }
    reference_server(&RTSP_PROTOCOL, port, with)
}

/// This very program, as a reference server in a process of its own: so it is observed like any
/// other.
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
    // Where no connection shows that it listens, it says so.
    let ready = match protocol.transport {
        Transport::Tcp => {
            command.push("--quiet".to_owned());
            Ready::Port(port)
        }
        Transport::Udp => Ready::Line("listening on".to_owned()),
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

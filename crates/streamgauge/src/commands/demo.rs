//! `streamgauge demo`: an embedded server in this process, clients against it, a report.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use engine::{Control, EngineError, ServeFinished, ServeOptions};
use protocol::rtsp::server::ServerConfig;
use scenario::{OneLiner, Scenario};

use crate::args;
use crate::commands::play::{Play, play};
use crate::commands::run::overrides;
use crate::commands::serve::{STOP_TIMEOUT, faults, since_1970};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::files;

/// Descriptors of the server beside one for each connection: its ports, polls and timers.
const SERVER_FILES: u64 = 64;

pub(crate) fn demo(arguments: &args::Demo, console: Console) -> Result<Exit, Failure> {
    // The server accepts with the same limit.
    files::raise();
    let config = ServerConfig {
        bitrate: arguments.bitrate,
        seed: arguments.seed,
        faults: faults(&arguments.faults)?,
        wall_clock: since_1970(),
        ..ServerConfig::default()
    };
    let args::Protocol::Rtsp = arguments.protocol;
    let server = Server::start(config)?;
    let scenario = scenario(arguments, server.address)?;
    console.say(&format!(
        "{} clients play {} from an embedded server on {}, over {}",
        arguments.clients,
        arguments.bitrate,
        server.address,
        arguments.transport.name(),
    ));
    let play_it = Play {
        scenario: &scenario,
        base: PathBuf::from("."),
        results: &arguments.results,
        further_files: u64::from(arguments.clients) + SERVER_FILES,
    };
    let exit = play(play_it, console);
    server.stop()?;
    exit
}

fn scenario(arguments: &args::Demo, server: SocketAddr) -> Result<Scenario, Failure> {
    let line = OneLiner {
        urls: vec![format!("rtsp://{server}/demo")],
        clients: Some(arguments.clients.to_string()),
        ramp: Some(arguments.ramp.to_string()).filter(|_| !arguments.ramp.0.is_zero()),
        duration: Some(arguments.duration.to_string()),
        transport: Some(arguments.transport.name().to_owned()),
        thresholds: arguments.thresholds.clone(),
        seed: Some(arguments.seed.to_string()),
        ..OneLiner::default()
    };
    let mut scenario =
        Scenario::from_one_liner(&line, &overrides()).map_err(Failure::diagnostic)?;
    scenario.name = "demo".to_owned();
    Ok(scenario)
}

/// A reference server on a thread of its own. It ends when this is dropped.
struct Server {
    address: SocketAddr,
    control: Control,
    thread: Option<JoinHandle<Result<ServeFinished, EngineError>>>,
}

impl Server {
    /// Starts one on a free port, and returns when it listens.
    fn start(config: ServerConfig) -> Result<Server, Failure> {
        let options = ServeOptions {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            config,
            report: None,
            stop_timeout: STOP_TIMEOUT,
        };
        let control = Control::new();
        let (listens, heard) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("demo-server".to_owned())
            .spawn({
                let control = control.clone();
                move || {
                    engine::serve(&options, &control, &mut |progress| {
                        if let Some(&address) = progress.listening.first() {
                            // After the first time nobody listens any more.
                            let _ = listens.send(address);
                        }
                    })
                }
            });
        let thread = thread
            .map_err(|error| Failure::bad(format_args!("cannot start the server: {error}")))?;
        match heard.recv() {
            Ok(address) => Ok(Server {
                address,
                control,
                thread: Some(thread),
            }),
            // It ended without ever having listened.
            Err(_) => Err(match thread.join() {
                Ok(Err(error)) => Failure::bad(error),
                _ => Failure::bad("the embedded server broke down"),
            }),
        }
    }

    /// Ends it, and says what went wrong with it, if anything did.
    fn stop(mut self) -> Result<(), Failure> {
        self.control.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => Err(Failure::bad(error)),
            Some(Err(_)) => Err(Failure::bad("the embedded server broke down")),
            _ => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.kill();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

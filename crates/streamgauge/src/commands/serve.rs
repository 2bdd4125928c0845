//! `streamgauge serve`: runs an embedded reference server until it is stopped.

use std::net::{IpAddr, SocketAddr};

use engine::ServeOptions;
use kit::reference::common;

use super::long_running::{LongRunning, STOP_TIMEOUT};
use crate::args::Serve;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Exits with 0 when it is stopped, which is how every server ends.
pub(crate) fn serve(arguments: &Serve, console: Console) -> Result<Exit, Failure> {
    let flags = &arguments.flags;
    let ports: Vec<u16> = flags.values(common::PORT);
    let addresses: Vec<IpAddr> = flags.values(common::LISTEN);
    let listen = addresses.iter().flat_map(|&address| {
        let ports = ports.iter();
        ports.map(move |&port| SocketAddr::new(address, port))
    });
    let file = |name| arguments.files.get(name).cloned();
    let options = ServeOptions {
        server: arguments.server,
        settings: (arguments.server.read)(flags).map_err(Failure::bad)?,
        listen: listen.collect(),
        tls: file(common::TLS_CERT).zip(file(common::TLS_KEY)),
        report: file(common::REPORT),
        without_gso: flags.has(common::NO_GSO),
        max_sessions: flags.get(common::MAX_SESSIONS).unwrap_or(usize::MAX),
        stop_timeout: STOP_TIMEOUT,
    };
    let mut attended = LongRunning::start(console)?;
    let finished = engine::serve(options, &attended.control(), &mut |progress| {
        attended.announce(progress.listening.iter().cloned());
        attended.update_status(progress.so_far);
    });
    for line in attended.finish(finished)? {
        console.say(&line);
    }
    Ok(Exit::Pass)
}

//! `streamgauge serve http-ts`: the embedded reference relay until it is stopped.

use std::net::SocketAddr;

use engine::{RelayFinished, RelayOptions};
use protocol::http_ts::relay::RelayConfig;
use report::human::{count, plural};

use super::attend::{Attended, STOP_TIMEOUT};
use crate::args;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Ends with 0 when it is stopped: that is how every server ends.
pub(crate) fn http_ts(arguments: &args::ServeHttpTs, console: Console) -> Result<Exit, Failure> {
    let options = RelayOptions {
        listen: arguments
            .listen
            .iter()
            .map(|&address| SocketAddr::new(address, arguments.port))
            .collect(),
        config: config(arguments)?,
        report: arguments.report.clone(),
        stop_timeout: STOP_TIMEOUT,
    };
    let mut attended = Attended::begin(console)?;
    let finished = engine::relay(&options, &attended.control(), &mut |progress| {
        let addresses = progress.listening.iter();
        attended.listens(addresses.map(|address| format!("http://{address}/")));
        attended.goes_on(&so_far(&progress.relayed));
    });
    let finished = attended.end(finished)?;
    console.say(&so_far(&finished));
    Ok(Exit::Pass)
}

fn config(arguments: &args::ServeHttpTs) -> Result<RelayConfig, Failure> {
    let mut config = RelayConfig::new(args::interface(&arguments.interface));
    config.max_clients = arguments.max_clients;
    config.chunked = arguments.chunked;
    config.seed = arguments.seed;
    for fault in &arguments.faults {
        config.faults.add(fault).map_err(Failure::bad)?;
    }
    Ok(config)
}

fn so_far(relayed: &RelayFinished) -> String {
    let lost = match relayed.lost_at_sockets {
        0 => String::new(),
        lost => format!("; {} LOST at its own sockets", count(lost as f64)),
    };
    format!(
        "relayed to {} of {}: {} of {} passed on, {} left out, {} sent twice{lost}",
        count(relayed.served as f64),
        plural(relayed.connections as f64, "connection", "connections"),
        count(relayed.passed_on as f64),
        plural(relayed.datagrams as f64, "datagram", "datagrams"),
        count(relayed.left_out as f64),
        count(relayed.sent_twice as f64),
    )
}

//! The embedded reference relay: multicast groups to HTTP clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use measure::{Totals, tester};
use net::Clock;
use protocol::http_ts::relay::{Relay, RelayConfig, RelayedClient};

use crate::attend::{Heard, attend};
use crate::control::Control;
use crate::crew::Crew;
use crate::error::EngineError;
use crate::messages::Report;
use crate::serve::{ReportFile, stand};
use crate::worker::{Accept, Serving};

/// What a reference relay is to do.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Where it listens. One worker serves each address, and joins groups for itself. A port of 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// What it joins by, and what it does wrong on purpose.
    pub config: RelayConfig,
    /// Where a line of JSON goes for each connection when it has ended ([`RelayedClient`]), and one for all as the last
    /// ([`RelayFinished`]).
    pub report: Option<PathBuf>,
    /// How long sessions get to end when it is stopped.
    pub stop_timeout: Duration,
}

/// How a reference relay stands, once a second.
#[derive(Clone, Debug)]
pub struct RelayProgress {
    /// Where it listens.
    pub listening: Vec<SocketAddr>,
    /// What it did so far, for connections that have ended.
    pub relayed: RelayFinished,
}

/// What a reference relay did, for all connections together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RelayFinished {
    /// Connections.
    pub connections: u64,
    /// Those of them for which a group was passed on.
    pub served: u64,
    /// Datagrams that came for them, counted for each.
    pub datagrams: u64,
    /// Datagrams passed on, second copies not counted.
    pub passed_on: u64,
    /// Datagrams left out on purpose.
    pub left_out: u64,
    /// Second copies sent on purpose.
    pub sent_twice: u64,
    /// Datagrams that the kernel had no room for at the relay's sockets, counted for each client: a fault that nobody asked for.
    pub lost_at_sockets: u64,
}

impl RelayFinished {
    fn add(&mut self, client: &RelayedClient) {
        self.connections += 1;
        self.served += u64::from(client.group.is_some() && client.status == Some(200));
        self.datagrams += client.datagrams;
        self.passed_on += client.passed_on;
        self.left_out += client.left_out;
        self.sent_twice += client.sent_twice;
    }
}

/// Relays until it is told to stop. `progress` is called when it listens, and then once a second.
///
/// # Errors
/// It cannot listen there, or its report cannot be written.
pub fn relay(
    options: &RelayOptions,
    control: &Control,
    progress: &mut dyn FnMut(&RelayProgress),
) -> Result<RelayFinished, EngineError> {
    let clock = Clock::start();
    let relay = Relay::new(options.config.clone());
    let catalogue = relay.catalogue();
    let accept: Accept = Arc::new(move |number| relay.session(number));
    let mut report = options
        .report
        .as_ref()
        .map(ReportFile::create)
        .transpose()?;
    let (duties, listening) = stand(&options.listen, catalogue, || Serving {
        apart: false,
        own_files: false,
        accept: accept.clone(),
        tls: None,
    })?;
    let mut crew = Crew::start(duties, options.stop_timeout, options.config.seed)?;
    crew.begin(&clock);
    let mut relayed = RelayFinished::default();
    let mut totals = Totals::new(tester::TESTER_CATALOGUE);
    let mut tell = |relayed| {
        progress(&RelayProgress {
            listening: listening.clone(),
            relayed,
        });
    };
    tell(relayed);
    attend(
        &crew,
        &clock,
        (catalogue, "reference relay"),
        control,
        options.stop_timeout,
        &mut |heard| {
            match heard {
                Heard::Window(window) => {
                    totals.add(&window.tester, window.seconds);
                    let lost = totals.counter(tester::SOCKET_OVERFLOW);
                    relayed.lost_at_sockets = u64::try_from(lost).unwrap_or(0);
                    tell(relayed);
                }
                Heard::Report(Report::Relayed(client)) => {
                    relayed.add(&client);
                    if let Some(report) = &mut report {
                        report.write(client.as_ref())?;
                    }
                }
                Heard::Report(_) => {}
            }
            Ok(())
        },
    )?;
    if let Some(report) = &mut report {
        report.write(&serde_json::json!({ "relayed": relayed }))?;
        report.finish()?;
    }
    Ok(relayed)
}

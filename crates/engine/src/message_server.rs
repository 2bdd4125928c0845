//! The embedded reference server of messages.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use measure::{CounterId, Totals};
use net::Clock;
use protocol::messages::metrics as m;
use protocol::messages::server::MessageServerConfig;

use crate::attend::{Heard, attend};
use crate::control::Control;
use crate::crew::Crew;
use crate::error::EngineError;
use crate::serve::{ReportFile, settings, stand};
use crate::worker::{Accept, Serving};

/// What a reference server of messages is to do.
#[derive(Clone, Debug)]
pub struct MessageServerOptions {
    /// Where it listens. One worker serves each address, with descriptors of its own. A port of 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// What it does, and what it does wrong on purpose.
    pub config: MessageServerConfig,
    /// Files (PEM) of the certificates, its own first, and of the key with which it speaks TLS on all of its connections.
    /// Default: it speaks none.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Where a line of JSON goes for each second ([`MessageCounts`]), and one with an object `messages` for all as the last.
    pub report: Option<PathBuf>,
    /// How long connections get to end when it is stopped.
    pub stop_timeout: Duration,
}

/// What a reference server of messages counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MessageCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections that have ended.
    pub connections_ended: u64,
    /// Of those, the ones that broke: what was on its way on them is not known.
    pub broken: u64,
    /// Messages that came.
    pub messages: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Answers that were handed to the connection.
    pub replies: u64,
    /// Answers left out on purpose.
    pub dropped: u64,
    /// Answers made wrong on purpose.
    pub spoilt: u64,
    /// Connections closed on purpose.
    pub closed: u64,
}

/// How a reference server of messages stands, once a second.
#[derive(Clone, Debug)]
pub struct MessageServerProgress {
    /// Where it listens.
    pub listening: Vec<SocketAddr>,
    /// What it counted in the last second.
    pub last_second: MessageCounts,
    /// What it counted in all.
    pub all: MessageCounts,
}

impl MessageCounts {
    fn of(totals: &Totals) -> MessageCounts {
        let count = |id: CounterId| u64::try_from(totals.counter(id)).unwrap_or(0);
        MessageCounts {
            connections: count(m::CONNECTIONS),
            connections_ended: count(m::CONNECTIONS_ENDED),
            broken: count(m::BROKEN),
            messages: count(m::RECEIVED),
            bytes: count(m::RECEIVED_BYTES),
            replies: count(m::REPLIES),
            dropped: count(m::DROPPED),
            spoilt: count(m::SPOILT),
            closed: count(m::CLOSED),
        }
    }
}

/// Serves until it is told to stop. `progress` is called when it listens, and then once a second.
///
/// # Errors
/// It cannot listen there, its certificates are none, or its report cannot be written.
pub fn serve_messages(
    options: &MessageServerOptions,
    control: &Control,
    progress: &mut dyn FnMut(&MessageServerProgress),
) -> Result<MessageCounts, EngineError> {
    let clock = Clock::start();
    let catalogue = MessageServerConfig::CATALOGUE;
    let config = Arc::new(options.config.clone());
    let accept: Accept = Arc::new(move |number| config.session(number));
    let tls = options.tls.as_ref();
    let tls = tls.map(|(chain, key)| net::tls::Server::from_files(chain, key).map_err(settings));
    let tls = tls.transpose()?;
    let mut report = options
        .report
        .as_ref()
        .map(ReportFile::create)
        .transpose()?;
    let (duties, listening) = stand(&options.listen, catalogue, || Serving {
        apart: false,
        own_files: true,
        accept: accept.clone(),
        tls: tls.clone(),
    })?;
    let mut crew = Crew::start(duties, options.stop_timeout, options.config.seed)?;
    crew.begin(&clock);
    let mut totals = Totals::new(catalogue);
    let mut tell = |last_second, all| {
        progress(&MessageServerProgress {
            listening: listening.clone(),
            last_second,
            all,
        });
    };
    tell(MessageCounts::default(), MessageCounts::default());
    attend(
        &crew,
        &clock,
        (catalogue, "reference server"),
        control,
        options.stop_timeout,
        &mut |heard| {
            let Heard::Window(window) = heard else {
                return Ok(());
            };
            let Some(served) = window.populations.first() else {
                return Ok(());
            };
            totals.add(served, window.seconds);
            let last = MessageCounts::of(&Totals::of_window(catalogue, served, window.seconds));
            let all = MessageCounts::of(&totals);
            if let Some(report) = &mut report {
                let second = window.begins.since_start().as_secs_f64();
                report.write(&serde_json::json!({ "second": second, "counts": last }))?;
            }
            tell(last, all);
            Ok(())
        },
    )?;
    let all = MessageCounts::of(&totals);
    if let Some(report) = &mut report {
        report.write(&serde_json::json!({ "messages": all }))?;
        report.finish()?;
    }
    Ok(all)
}

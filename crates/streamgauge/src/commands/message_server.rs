//! `streamgauge serve messages`: the embedded reference server of messages until it is stopped.

use std::net::SocketAddr;

use engine::{MessageCounts, MessageServerOptions};
use protocol::messages::config;
use protocol::messages::frame::{Framing, LengthPrefix, Order};
use protocol::messages::server::{MessageFaults, MessageServerConfig, Mode};
use report::human::{count, plural};

use super::attend::{Attended, STOP_TIMEOUT};
use crate::args::{self, ByteOrder, MessageMode};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Ends with 0 when it is stopped: that is how every server ends.
pub(crate) fn messages(arguments: &args::ServeMessages, console: Console) -> Result<Exit, Failure> {
    let addresses = arguments.listen.iter().flat_map(|&address| {
        let ports = arguments.port.iter();
        ports.map(move |&port| SocketAddr::new(address, port))
    });
    let options = MessageServerOptions {
        listen: addresses.collect(),
        config: config(arguments)?,
        tls: arguments.tls_cert.clone().zip(arguments.tls_key.clone()),
        report: arguments.report.clone(),
        stop_timeout: STOP_TIMEOUT,
    };
    let scheme = match (arguments.websocket, options.tls.is_some()) {
        (false, false) => "tcp",
        (false, true) => "tls",
        (true, false) => "ws",
        (true, true) => "wss",
    };
    let mut attended = Attended::begin(console)?;
    let finished = engine::serve_messages(&options, &attended.control(), &mut |progress| {
        let addresses = progress.listening.iter();
        attended.listens(addresses.map(|address| format!("{scheme}://{address}")));
        let last = progress.last_second.messages as f64;
        attended.goes_on(&format!(
            "{} in the last second; {}",
            count(last),
            so_far(&progress.all)
        ));
    });
    let finished = attended.end(finished)?;
    console.say(&so_far(&finished));
    Ok(Exit::Pass)
}

fn config(arguments: &args::ServeMessages) -> Result<MessageServerConfig, Failure> {
    let mut faults = MessageFaults::default();
    for fault in &arguments.faults {
        faults.add(fault).map_err(Failure::bad)?;
    }
    let framing = match (arguments.length, &arguments.delimiter, arguments.websocket) {
        (Some(bytes), ..) => config::Framing::Length(LengthPrefix {
            bytes,
            order: match arguments.order {
                ByteOrder::Big => Order::Big,
                ByteOrder::Little => Order::Little,
            },
            includes_itself: arguments.includes_itself,
        }),
        (None, Some(text), _) => config::Framing::Delimiter(args::unescaped(text).into_owned()),
        (None, None, _) => config::Framing::None,
    };
    framing.check().map_err(Failure::bad)?;
    let framing = match arguments.websocket {
        true => Framing::WebSocket {
            masked: false,
            text: false,
        },
        false => framing.made(),
    };
    Ok(MessageServerConfig {
        mode: match arguments.mode {
            MessageMode::Sink => Mode::Sink,
            MessageMode::Echo => Mode::Echo,
        },
        framing,
        size: arguments.size as usize,
        faults,
        seed: arguments.seed,
    })
}

fn so_far(counts: &MessageCounts) -> String {
    let mut text = format!(
        "{} of {} on {}, {} sent back",
        plural(counts.messages as f64, "message", "messages"),
        plural(counts.bytes as f64, "byte", "bytes"),
        plural(counts.connections as f64, "connection", "connections"),
        count(counts.replies as f64),
    );
    for (number, what) in [
        (counts.dropped, "answers left out"),
        (counts.spoilt, "answers made wrong"),
        (counts.closed, "connections closed on purpose"),
        (counts.broken, "connections broken"),
    ] {
        if number > 0 {
            text += &format!(", {} {what}", count(number as f64));
        }
    }
    text
}

//! Cases of connections, with and without TLS.

use std::net::SocketAddr;

use super::{Case, Log, Server, end, log_and_end, open_tcp, open_tls, script, send, text};
use crate::{Context, Input, Outcome, Session};

/// Sends two pieces, and ends when both have come back.
fn sends_two(
    open: fn(&mut Context<'_>, SocketAddr),
    server: SocketAddr,
    log: Log,
) -> Box<dyn Session> {
    let mut received = Vec::new();
    script(move |cx, input, _| match input {
        Input::Start { .. } => open(cx, server),
        Input::Opened { .. } => {
            log.add("opened");
            send(cx, b"one ");
            send(cx, b"two");
        }
        Input::Bytes { bytes, .. } => {
            received.extend_from_slice(bytes);
            if received.len() == 7 {
                log_and_end(cx, &log, text(&received));
            }
        }
        _ => log.add("something else"),
    })
}

fn echoes_stream(log: Log) -> Box<dyn Session> {
    let mut received = Vec::new();
    script(move |cx, input, _| match input {
        Input::Start { .. } => {}
        Input::Opened { remote, .. } => log.add(format!("remote: {}", remote.is_some())),
        Input::Bytes { bytes, .. } => {
            received.extend_from_slice(bytes);
            if received.len() == 7 {
                log.add(text(&received));
                send(cx, &received);
            }
        }
        Input::Closed { reason, .. } => log_and_end(cx, &log, format!("{reason:?}")),
        _ => log.add("something else"),
    })
}

pub(super) const ECHO: Case = Case {
    name: "bytes of a connection arrive in order, and its end is reported",
    client: |server, log| sends_two(open_tcp, server, log),
    server: Server::Tcp(echoes_stream),
    stop: None,
    client_hears: &["opened", "one two"],
    server_hears: &["remote: true", "one two", "End"],
};

pub(super) const SECURE: Case = Case {
    name: "with TLS the channel carries plain text, and its end is reported",
    client: |server, log| sends_two(open_tls, server, log),
    server: Server::Tls(echoes_stream),
    ..ECHO
};

pub(super) const SECURE_GOODBYE: Case = Case {
    name: "bytes sent before the end of a TLS connection arrive before the end",
    client: |server, log| {
        let mut received = 0;
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_tls(cx, server),
            Input::Opened { .. } => send(cx, b"go"),
            Input::Bytes { bytes, .. } => received += bytes.len(),
            Input::Closed { reason, .. } => {
                log_and_end(cx, &log, format!("{received} bytes, {reason:?}"))
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Tls(|log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } | Input::Opened { .. } => {}
            Input::Bytes { bytes, .. } => {
                log.add(text(bytes));
                send(cx, &[7; 100_000]);
                end(cx, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    }),
    stop: None,
    client_hears: &["100000 bytes, End"],
    server_hears: &["go"],
};

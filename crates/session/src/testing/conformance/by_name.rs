//! Cases of UDP sockets connected to a named peer.

use std::net::SocketAddr;
use std::time::Duration;

use super::{CHANNEL, Case, ECHO_HEARS, Server, echo, log_until_bye, script, send_datagram};
use crate::{ChannelId, Context, Input, Open, Outcome, Output, ReadTiming};

fn open(cx: &mut Context<'_>, channel: ChannelId, to: SocketAddr, local_port: u16) {
    cx.out.push_back(Output::Open {
        channel,
        open: Open::UdpToHost {
            host: to.ip().to_string(),
            port: to.port(),
            local_port,
            timeout: Duration::from_secs(5),
            reading: ReadTiming::AtOnce,
            media: None,
        },
    });
}

pub(super) const CONNECTED: Case = Case {
    name: "a socket to a named host is connected to it",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open(cx, CHANNEL, server, 0),
            Input::Opened { remote, .. } => {
                log.add(format!("remote: {}", remote == Some(server)));
                send_datagram(cx, None, b"hello");
                send_datagram(cx, None, b"bye");
            }
            Input::Datagrams { datagrams, .. } => {
                log_until_bye(cx, &log, datagrams, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(echo),
    stop: None,
    client_hears: &["remote: true", "hello", "bye"],
    server_hears: ECHO_HEARS,
};

pub(super) const OWN_PORT: Case = Case {
    name: "a socket gets the requested local port unless it is in use",
    client: |server, log| {
        let mut free = None;
        script(move |cx, input, _| match input {
            Input::Start { .. } => open(cx, ChannelId(1), server, 0),
            Input::Opened { local, remote, .. } => match free {
                // A port that is free once this channel is closed.
                None => {
                    free = Some(local.port());
                    cx.out.push_back(Output::Close {
                        channel: ChannelId(1),
                    });
                    open(cx, CHANNEL, server, local.port());
                }
                Some(port) => {
                    log.add(format!("local: {}", local.port() == port));
                    log.add(format!("remote: {}", remote == Some(server)));
                    open(cx, ChannelId(2), server, port);
                }
            },
            Input::OpenFailed { channel, error } => {
                log.add(format!("{} {error:?}", channel.0));
                send_datagram(cx, None, b"hello");
                send_datagram(cx, None, b"bye");
            }
            Input::Datagrams { datagrams, .. } => {
                log_until_bye(cx, &log, datagrams, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(echo),
    stop: None,
    client_hears: &["local: true", "remote: true", "2 NoPorts", "hello", "bye"],
    server_hears: ECHO_HEARS,
};

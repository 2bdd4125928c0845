//! A case of media that is counted without the session.

use std::net::SocketAddr;
use std::time::Duration;

use measure::Recorder;

use super::{CHANNEL, Case, Server, end, open_tcp, script, send};
use crate::session::{
    Arrival, ChannelId, Context, Input, MediaEvent, Open, Outcome, Output, Port, Sink, SinkId,
    beside,
};

/// The channel of the media; the connection is the other.
const MEDIA: ChannelId = ChannelId(1);

/// Counts packets, and adds their bytes up.
#[derive(Debug, Default)]
struct Counts {
    packets: usize,
    bytes: usize,
    cut: usize,
}

impl Sink for Counts {
    fn packet(&mut self, arrival: &Arrival<'_>, _: &mut Recorder) -> Option<MediaEvent> {
        self.packets += 1;
        self.bytes += arrival.length;
        self.cut += usize::from(arrival.bytes.len() != arrival.length);
        (self.packets == 1).then_some(MediaEvent::First { at: arrival.at })
    }
}

fn open_pair(cx: &mut Context<'_>, beside: SocketAddr, sink: Option<SinkId>) {
    cx.out.push_back(Output::Open {
        channel: MEDIA,
        open: Open::UdpPair {
            local: beside.ip(),
            sink,
            shared: false,
        },
    });
}

fn name_peer(cx: &mut Context<'_>, peer: SocketAddr) {
    cx.out.push_back(Output::Peer {
        channel: MEDIA,
        media: peer,
        control: beside(peer, peer.port() + 1),
    });
}

fn send_on(cx: &mut Context<'_>, port: Port, bytes: &[u8]) {
    cx.out.push_back(Output::Send {
        channel: MEDIA,
        port,
        bytes: bytes.to_vec(),
    });
}

pub(super) const COUNTED: Case = Case {
    name: "a sink counts what comes on its channel, and the session hears of the first alone",
    client: |server, log| {
        let mut sink = None;
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => open_tcp(cx, server),
            Input::Opened {
                channel: CHANNEL,
                local,
                ..
            } => {
                sink = Some(cx.sinks.insert(Counts::default()));
                open_pair(cx, local, sink);
            }
            Input::Opened { local, .. } => {
                name_peer(cx, server);
                send(cx, &local.port().to_be_bytes());
            }
            Input::Media {
                event: MediaEvent::First { .. },
                ..
            } => {
                log.add("first");
                *deadline = Some(cx.now + Duration::from_millis(500));
            }
            // What comes on the other port of the pair is nothing for the sink.
            Input::Datagram { port, bytes, .. } => {
                log.add(format!("{port:?} {}", bytes.len()));
            }
            Input::Deadline => {
                *deadline = None;
                if let Some(sink) = sink {
                    let Counts {
                        packets,
                        bytes,
                        cut,
                    } = *cx.sinks.remove(sink);
                    log.add(format!("{packets} packets, {bytes} bytes, {cut} cut"));
                }
                end(cx, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Tcp(|log| {
        let mut ends = None;
        let mut port = Vec::new();
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => {}
            Input::Opened {
                channel: CHANNEL,
                local,
                remote,
            } => ends = Some(local).zip(remote),
            Input::Bytes { bytes, .. } => {
                port.extend_from_slice(bytes);
                if let (&[high, low], Some((local, remote))) = (&port[..], ends) {
                    log.add("asked");
                    open_pair(cx, local, None);
                    ends = Some((local, beside(remote, u16::from_be_bytes([high, low]))));
                }
            }
            Input::Opened { .. } => {
                if let Some((_, to)) = ends {
                    name_peer(cx, to);
                    (1..=20u8).for_each(|n| send_on(cx, Port::Media, &[n; 100]));
                    *deadline = Some(cx.now + Duration::from_millis(200));
                }
            }
            Input::Deadline => {
                *deadline = None;
                send_on(cx, Port::Control, b"report");
            }
            Input::Closed { how, .. } => {
                log.add(format!("{how:?}"));
                end(cx, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    }),
    stop: None,
    client_hears: &["first", "Control 6", "20 packets, 2000 bytes, 0 cut"],
    server_hears: &["asked", "End"],
};

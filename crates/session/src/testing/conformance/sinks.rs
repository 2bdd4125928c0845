//! Cases of media that is counted without the session.

use std::net::SocketAddr;
use std::time::Duration;

use measure::Recorder;

use super::{
    CHANNEL, Case, Server, datagram_script, end, log_and_end, open_tcp, script, send, send_datagram,
};
use crate::{
    Arrival, ChannelId, Context, Input, MediaEvent, MediaFilter, Open, Outcome, Output, Port,
    ReadTiming, Sink, SinkId, SocketMedia, with_port,
};

/// Channel of the media; the connection is the other channel.
const MEDIA: ChannelId = ChannelId(1);

/// Counts packets and sums their lengths.
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
        control: with_port(peer, peer.port() + 1),
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
    name: "a sink counts the packets of its channel, and only the first is reported",
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
            // Datagrams of the other port of the pair do not reach the sink.
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
                    ends = Some((local, with_port(remote, u16::from_be_bytes([high, low]))));
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
            Input::Closed { reason, .. } => log_and_end(cx, &log, format!("{reason:?}")),
            _ => log.add("something else"),
        })
    }),
    stop: None,
    client_hears: &["first", "Control 6", "20 packets, 2000 bytes, 0 cut"],
    server_hears: &["asked", "End"],
};

/// Media has a first byte from 128 on, but no second byte from 200 on.
const FILTER: MediaFilter = MediaFilter {
    first_byte: [128, 255],
    excluded_second_byte: Some([200, 255]),
};

pub(super) const SPLIT_BY_FILTER: Case = Case {
    name: "media of a socket goes to the sink, other datagrams to the session",
    client: |server, log| {
        let (mut sink, mut first, mut rest) = (None, false, Vec::new());
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => {
                let own = cx.sinks.insert(Counts::default());
                sink = Some(own);
                cx.out.push_back(Output::Open {
                    channel: CHANNEL,
                    open: Open::Udp {
                        local: with_port(server, 0),
                        peer: Some(server),
                        reading: ReadTiming::Late,
                        media: Some(SocketMedia {
                            sink: own,
                            filter: FILTER,
                        }),
                    },
                });
            }
            Input::Opened { .. } => {
                send_datagram(cx, None, b"hello");
                *deadline = Some(cx.now + Duration::from_millis(500));
            }
            Input::Media {
                event: MediaEvent::First { .. },
                ..
            } => first = true,
            Input::Datagrams { datagrams, .. } => {
                rest.extend(datagrams.iter().map(|datagram| datagram.bytes.to_vec()));
            }
            Input::Deadline => {
                *deadline = None;
                let counts = sink.map(|sink| cx.sinks.remove::<Counts>(sink));
                let Counts { packets, bytes, .. } = *counts.unwrap_or_default();
                log.add(format!("first: {first}, {packets} packets, {bytes} bytes"));
                log.add(format!("{rest:?}"));
                send_datagram(cx, None, b"bye");
                end(cx, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        datagram_script(move |cx, bytes| {
            if bytes == b"bye" {
                log.add("bye");
                return end(cx, Outcome::Completed);
            }
            for (first, second) in [(128, 96), (1, 96), (255, 199), (128, 200), (127, 0)] {
                send_datagram(cx, None, &[first, second]);
            }
            (0..20).for_each(|number| send_datagram(cx, None, &[200, number, 7]));
            send_datagram(cx, None, &[3]);
        })
    }),
    stop: None,
    client_hears: &[
        "first: true, 22 packets, 64 bytes",
        "[[1, 96], [128, 200], [127, 0], [3]]",
    ],
    server_hears: &["accepts", "bye", "session 0 has ended"],
};

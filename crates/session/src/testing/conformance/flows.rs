//! Cases of flows: media that leaves by its own schedule.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;

use super::{
    CHANNEL, Case, Log, Server, datagram_script, end, log_and_end, open_tcp, open_udp, script,
    send, send_datagram,
};
use crate::{
    ChannelId, Context, Flow, FlowId, FlowPacket, Handover, Input, Outcome, Output, PacketHeader,
    ReadTiming, Session, Tag,
};

/// Ten numbered packets, one every 10 ms, each with a header of three bytes and its number; then
/// the requested retransmissions.
#[derive(Debug)]
struct NumberedFlow {
    due: Time,
    next: u8,
    again: VecDeque<(Time, u8)>,
    /// `true` if the flow ends when it has nothing to send.
    ends: bool,
    left: usize,
}

/// Starts a flow whose first packet is due now.
fn start_flow(cx: &mut Context<'_>, channel: ChannelId, ends: bool) -> FlowId {
    let flow = cx.flows.insert(NumberedFlow {
        due: cx.now,
        next: 0,
        again: VecDeque::new(),
        ends,
        left: 0,
    });
    cx.out.push_back(Output::StartFlow { flow, channel });
    flow
}

/// Requests a retransmission.
fn send_again(cx: &mut Context<'_>, flow: FlowId, number: u8) {
    let asked = (cx.now, number);
    cx.flows
        .access_as(flow, |flow: &mut NumberedFlow| flow.again.push_back(asked));
}

fn left(cx: &mut Context<'_>, flow: FlowId) -> usize {
    cx.flows
        .access_as(flow, |flow: &mut NumberedFlow| flow.left)
}

/// Removes a flow, and logs how many of its packets have left.
fn log_removed(cx: &mut Context<'_>, log: &Log, flow: FlowId) {
    let flow: Box<NumberedFlow> = cx.flows.remove_as(flow);
    log.add(format!("{} left", flow.left));
}

impl Flow for NumberedFlow {
    fn next_due(&self) -> Option<Time> {
        let again = self.again.front().map(|&(asked, _)| asked);
        let next = (self.next < 10).then_some(self.due);
        again.or(next).or((!self.ends).then_some(Time::NEVER))
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        let due = self.next_due().filter(|&due| due <= now)?;
        let number = match self.again.pop_front() {
            Some((_, number)) => number,
            None => {
                self.next += 1;
                self.due += Duration::from_millis(10);
                self.next - 1
            }
        };
        Some(FlowPacket {
            due,
            header: PacketHeader::EMPTY.append(b"no.").append(&[number]),
            payload: Bytes::from(vec![number; 5]),
            tag: Tag(number.into()),
        })
    }

    fn packet_sent(&mut self, _: Tag, left: Option<Handover>) {
        self.left += usize::from(left.is_some());
    }
}

pub(super) const PACED: Case = Case {
    name: "a flow sends datagrams by its own schedule, and requested retransmissions",
    client: |server, log| {
        let mut came = Vec::new();
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::AtOnce),
            Input::Opened { .. } => send_datagram(cx, None, b"hello"),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    let [b'n', b'o', b'.', number, rest @ ..] = datagram.bytes else {
                        log.add(format!("{:?}", datagram.bytes));
                        continue;
                    };
                    assert_eq!(rest, vec![*number; 5]);
                    came.push(*number);
                    if came.len() == 10 {
                        log.add(format!("{came:?}"));
                        send_datagram(cx, None, &[4]);
                        send_datagram(cx, None, &[9]);
                    }
                    if came.len() == 12 {
                        log.add(format!("{:?}", &came[10..]));
                        send_datagram(cx, None, b"bye");
                        end(cx, Outcome::Completed);
                    }
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        let mut sending = None;
        script(move |cx, input, _| match input {
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    match (datagram.bytes, sending) {
                        (b"hello", _) => sending = Some(start_flow(cx, CHANNEL, false)),
                        (b"bye", Some(flow)) => {
                            cx.out.push_back(Output::StopFlow { flow });
                            log_removed(cx, &log, flow);
                            end(cx, Outcome::Completed);
                        }
                        (&[number], Some(flow)) => send_again(cx, flow, number),
                        _ => log.add("something else"),
                    }
                }
            }
            Input::FlowEnded { .. } => log.add("the flow has ended"),
            _ => {}
        })
    }),
    stop: None,
    client_hears: &["[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", "[4, 9]"],
    server_hears: &["accepts", "12 left", "session 0 has ended"],
};

/// A session with an unconnected socket learns the destination of its media later.
pub(super) const PACED_TO_A_NAMED_PEER: Case = Case {
    name: "a flow sends to the peer set for a socket, and ends if none is set",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, None, ReadTiming::AtOnce),
            Input::Opened { channel, .. } => {
                start_flow(cx, channel, true);
            }
            Input::FlowEnded { flow } => {
                let left = left(cx, flow);
                log.add(format!("{left} left"));
                let channel = CHANNEL;
                match left {
                    0 => {
                        send_datagram(cx, Some(server), b"hello");
                        let (media, control) = (server, server);
                        cx.out.push_back(Output::Peer {
                            channel,
                            media,
                            control,
                        });
                        cx.out.push_back(Output::StartFlow { flow, channel });
                    }
                    // Like datagrams without a destination of their own.
                    _ => send_datagram(cx, None, b"bye"),
                }
            }
            Input::Datagrams { .. } => log_and_end(cx, &log, "was answered"),
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        let mut came = 0;
        datagram_script(move |cx, bytes| match bytes {
            b"bye" => {
                log.add(format!("{came} came"));
                send_datagram(cx, None, b"bye");
                end(cx, Outcome::Completed);
            }
            b"hello" => {}
            _ => came += 1,
        })
    }),
    stop: None,
    client_hears: &["0 left", "10 left", "was answered"],
    server_hears: &["accepts", "10 came", "session 0 has ended"],
};

pub(super) const PACED_IN_A_CONNECTION: Case = Case {
    name: "an idle flow in a connection continues when it has something to send",
    client: |server, log| {
        let mut came: Vec<u8> = Vec::new();
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_tcp(cx, server),
            Input::Opened { .. } => {}
            Input::Bytes { bytes, .. } => {
                // Nine bytes a packet; the fourth is the number.
                came.extend_from_slice(bytes);
                if came.len() == 90 {
                    send(cx, &[4]);
                }
                if came.len() == 99 {
                    let numbers: Vec<u8> = came.chunks(9).map(|packet| packet[3]).collect();
                    log_and_end(cx, &log, format!("{numbers:?}"));
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Tcp(|log| {
        let mut sending = None;
        script(move |cx, input, _| match (input, sending) {
            (Input::Opened { channel, .. }, _) => sending = Some(start_flow(cx, channel, false)),
            (Input::Bytes { bytes, .. }, Some(flow)) => send_again(cx, flow, bytes[0]),
            (Input::Closed { .. }, Some(flow)) => {
                cx.out.push_back(Output::StopFlow { flow });
                log_removed(cx, &log, flow);
                end(cx, Outcome::Completed);
            }
            _ => {}
        })
    }),
    stop: None,
    client_hears: &["[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 4]"],
    server_hears: &["11 left"],
};

/// Sends ten packets, and after the end of the flow one more, but only after a pause and a new
/// start.
fn in_two_parts(log: Log) -> Box<dyn Session> {
    let mut sending = None;
    script(move |cx, input, deadline| match (input, sending) {
        (Input::Opened { channel, .. }, _) => sending = Some(start_flow(cx, channel, true)),
        (Input::FlowEnded { .. }, Some(flow)) => {
            send_again(cx, flow, 4);
            let left = left(cx, flow);
            log.add(format!("ended after {left}"));
            *deadline = (left == 10).then(|| cx.now + Duration::from_millis(100));
            if left > 10 {
                end(cx, Outcome::Completed);
            }
        }
        (Input::Deadline, Some(flow)) => {
            *deadline = None;
            log.add(format!("{} left", left(cx, flow)));
            let channel = CHANNEL;
            cx.out.push_back(Output::StartFlow { flow, channel });
        }
        _ => {}
    })
}

pub(super) const STARTED_AGAIN: Case = Case {
    name: "a flow ends once, and sends nothing until it is started again",
    client: |server, log| {
        let mut came = 0;
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::AtOnce),
            Input::Opened { .. } => send_datagram(cx, None, b"hello"),
            Input::Datagrams { datagrams, .. } => {
                came += datagrams.len();
                if came == 11 {
                    log_and_end(cx, &log, "all came");
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(in_two_parts),
    stop: None,
    client_hears: &["all came"],
    server_hears: &[
        "accepts",
        "ended after 10",
        "10 left",
        "ended after 11",
        "session 0 has ended",
    ],
};

pub(super) const STARTED_AGAIN_IN_A_CONNECTION: Case = Case {
    name: "an ended flow in a connection sends nothing until it is started again",
    client: |server, log| {
        let mut came = 0;
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_tcp(cx, server),
            Input::Opened { .. } => {}
            Input::Bytes { bytes, .. } => {
                came += bytes.len();
                if came == 11 * 9 {
                    log_and_end(cx, &log, "all came");
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Tcp(in_two_parts),
    stop: None,
    client_hears: &["all came"],
    server_hears: &["ended after 10", "10 left", "ended after 11"],
};

pub(super) const WITHOUT_PEER: Case = Case {
    name: "a flow whose channel has no peer ends at once",
    client: |_, log| {
        let mut sending = None;
        script(move |cx, input, _| match (input, sending) {
            (Input::Start { .. }, _) => open_udp(cx, None, ReadTiming::AtOnce),
            (Input::Opened { channel, .. }, _) => sending = Some(start_flow(cx, channel, false)),
            (Input::FlowEnded { .. }, Some(flow)) => {
                log_removed(cx, &log, flow);
                end(cx, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Nobody,
    stop: None,
    client_hears: &["0 left"],
    server_hears: &[],
};

pub(super) const TO_UNREACHABLE_PORT: Case = Case {
    name: "a flow to an unused port resets its channel",
    client: |server, log| {
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::Late),
            Input::Opened { channel, .. } => {
                start_flow(cx, channel, false);
                *deadline = Some(cx.now + Duration::from_secs(5));
            }
            Input::Closed { reason, .. } => log_and_end(cx, &log, format!("{reason:?}")),
            _ => log_and_end(cx, &log, "something else"),
        })
    },
    server: Server::Nobody,
    stop: None,
    client_hears: &["Reset"],
    server_hears: &[],
};

pub(super) const REMOVED_AT_ONCE: Case = Case {
    name: "a flow that is removed in the call that starts it is not started",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::AtOnce),
            Input::Opened { channel, .. } => {
                let flow = start_flow(cx, channel, true);
                cx.out.push_back(Output::StopFlow { flow });
                log_removed(cx, &log, flow);
                end(cx, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Nobody,
    stop: None,
    client_hears: &["0 left"],
    server_hears: &[],
};

pub(super) const REMOVED_AT_ONCE_IN_A_CONNECTION: Case = Case {
    name: "a flow that is removed in the call that starts it leaves its connection open",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_tcp(cx, server),
            Input::Opened { .. } => {}
            Input::Bytes { bytes, .. } => log.add(format!("{} bytes", bytes.len())),
            Input::Closed { .. } => end(cx, Outcome::Completed),
            _ => log.add("something else"),
        })
    },
    server: Server::Tcp(|log| {
        script(move |cx, input, deadline| match input {
            Input::Opened { channel, .. } => {
                let flow = start_flow(cx, channel, true);
                log_removed(cx, &log, flow);
                *deadline = Some(cx.now + Duration::from_millis(50));
            }
            Input::Deadline => {
                *deadline = None;
                cx.out.push_back(Output::Close { channel: CHANNEL });
                end(cx, Outcome::Completed);
            }
            Input::FlowEnded { .. } => log.add("a flow has ended"),
            _ => {}
        })
    }),
    stop: None,
    client_hears: &[],
    server_hears: &["0 left"],
};

//! What leaves by itself: media of flows, packet by packet when it is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use measure::{Time, tester};
use net::SendBatch;
use protocol::media::rtp::flow::{FlowPacket, Tag};
use protocol::session::{ChannelId, Closed, FlowId, Framing};
use slab::Slab;

use super::Worker;
use super::outputs::Pending;
use super::sessions::{Channel, SessionKey};
use super::sockets::Socket;

/// Flows are looked after at most this often: what falls due in between leaves together, at most this
/// much late, which saves most of the waking up.
const TICK: Duration = Duration::from_micros(250);

/// How many packets a flow may send in one turn: one that was held up must not keep the others waiting.
const PACKETS_A_TURN: usize = 256;

/// The flows that are sending.
#[derive(Default)]
pub(super) struct Sending {
    active: Slab<Active>,
    due: BinaryHeap<Reverse<(Time, usize, u64)>>,
    serial: u64,
    last_turn: Time,
    batch: SendBatch<Bytes>,
    /// The socket the batch is for.
    batch_socket: usize,
    /// Which flow each packet of the batch is of.
    batch_tags: Vec<(FlowId, Tag)>,
    /// Connections that were given packets in this turn.
    touched: Vec<usize>,
}

struct Active {
    serial: u64,
    flow: FlowId,
    session: SessionKey,
    target: Target,
}

#[derive(Clone, Copy)]
enum Target {
    Datagrams { socket: usize, to: SocketAddr },
    Interleaved { socket: usize, channel: u8 },
}

impl Sending {
    /// When flows have to be looked after next.
    pub(super) fn next(&self) -> Time {
        match self.due.peek() {
            Some(Reverse((at, ..))) => (*at).max(self.last_turn + TICK),
            None => Time::NEVER,
        }
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.active.try_remove(place);
    }
}

impl Worker {
    pub(super) fn start_flow(
        &mut self,
        key: SessionKey,
        flow: FlowId,
        channel: ChannelId,
        framing: Framing,
    ) {
        let Some(state) = self.slot(key).and_then(|slot| slot.channel(channel)) else {
            return;
        };
        let target = match (framing, state) {
            (
                Framing::Datagram,
                Channel::Pair {
                    media,
                    peer: Some(peer),
                    ..
                },
            ) => Target::Datagrams {
                socket: media,
                to: peer.media,
            },
            (Framing::Interleaved(channel), Channel::Stream(socket)) => {
                Target::Interleaved { socket, channel }
            }
            _ => return,
        };
        self.sending.serial += 1;
        let serial = self.sending.serial;
        let active = Active {
            serial,
            flow,
            session: key,
            target,
        };
        let place = self.sending.active.insert(active);
        match self.flows.with(flow, |flow| flow.next_due()) {
            Some(due) => self.sending.due.push(Reverse((due, place, serial))),
            None => self.pending.push_back((key, Pending::FlowEnded { flow })),
        }
        if let Some(slot) = self.slot(key) {
            slot.flows.push((flow, place));
        }
    }

    pub(super) fn stop_flow(&mut self, key: SessionKey, flow: FlowId) {
        let Some(slot) = self.slot(key) else { return };
        let Some(index) = slot.flows.iter().position(|(id, _)| *id == flow) else {
            return;
        };
        let (_, place) = slot.flows.swap_remove(index);
        self.sending.remove(place);
    }

    /// Sends what is due.
    pub(super) fn send_flows(&mut self, now: Time) {
        if self.sending.next() > now {
            return;
        }
        self.sending.last_turn = now;
        while let Some(&Reverse((at, place, serial))) = self.sending.due.peek() {
            if at > now {
                break;
            }
            self.sending.due.pop();
            let Some(active) = self
                .sending
                .active
                .get(place)
                .filter(|a| a.serial == serial)
            else {
                continue;
            };
            let (flow, session, target) = (active.flow, active.session, active.target);
            for _ in 0..PACKETS_A_TURN {
                let Some(packet) = self.flows.with(flow, |flow| flow.next_packet(now)) else {
                    break;
                };
                let late = now.since(packet.due);
                self.tester
                    .record(tester::SEND_LATENESS, late.as_nanos() as u64);
                self.emit(flow, target, packet);
            }
            match self.flows.with(flow, |flow| flow.next_due()) {
                Some(due) => self.sending.due.push(Reverse((due, place, serial))),
                None => self
                    .pending
                    .push_back((session, Pending::FlowEnded { flow })),
            }
        }
        self.flush_batch();
        for place in std::mem::take(&mut self.sending.touched) {
            if let Some(Socket::Stream(stream)) = self.sockets.get_mut(place)
                && stream.flush().is_err()
            {
                self.lose_stream(place, Closed::Reset);
            }
        }
    }

    fn emit(&mut self, flow: FlowId, target: Target, packet: FlowPacket) {
        match target {
            Target::Datagrams { socket, to } => {
                if self.sending.batch_socket != socket {
                    self.flush_batch();
                    self.sending.batch_socket = socket;
                }
                self.sending.batch_tags.push((flow, packet.tag));
                if self.sending.batch.push(to, packet.header, packet.payload) {
                    self.flush_batch();
                }
            }
            Target::Interleaved { socket, channel } => {
                let length = packet.header.len() + packet.payload.len();
                let left = match (self.sockets.get_mut(socket), u16::try_from(length)) {
                    (Some(Socket::Stream(stream)), Ok(length)) => {
                        let [high, low] = length.to_be_bytes();
                        let frame = [b'$', channel, high, low];
                        stream.queue([&frame, &packet.header, &packet.payload])
                    }
                    _ => false,
                };
                self.flows.with(flow, |flow| flow.left(packet.tag, left));
                if left {
                    if self.sending.touched.last() != Some(&socket) {
                        self.sending.touched.push(socket);
                    }
                } else {
                    self.tester.add(tester::SENDS_FAILED, 1);
                }
            }
        }
    }

    fn flush_batch(&mut self) {
        let Sending {
            batch,
            batch_socket,
            batch_tags,
            ..
        } = &mut self.sending;
        if batch.is_empty() {
            return;
        }
        let mut failed = 0;
        let mut tags = batch_tags.drain(..);
        let mut tell = |left: bool| {
            if let Some((flow, tag)) = tags.next() {
                self.flows.with(flow, |flow| flow.left(tag, left));
                failed += u64::from(!left);
            }
        };
        match self.sockets.get(*batch_socket) {
            Some(Socket::Udp(end)) => batch.send(&end.socket, &mut tell),
            Some(Socket::Shared(end)) => batch.send(&end.socket, &mut tell),
            _ => batch.discard(&mut tell),
        }
        drop(tags);
        self.tester.add(tester::SENDS_FAILED, failed);
    }
}

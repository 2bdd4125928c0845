//! What leaves by itself: media of flows, packet by packet when it is due.
//!
//! Datagrams are sent by the [`Pacer`]. Packets that are interleaved in a connection are sent here:
//! they share its queue with what the session says, and so its socket with this thread.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use measure::{Time, Window, tester};
use protocol::session::{ChannelId, Closed, FlowId, FlowPacket, Handover, Tag};
use slab::Slab;

use super::Worker;
use super::inbox::Pending;
use super::keys::{Place, SentBy, SessionKey};
use super::pacer::{How, LastSent, News, Pacer, Whose};
use super::sessions::Channel;

/// Flows are looked after at most this often: what falls due in between leaves together, at most
/// this much late, which saves most of the waking up.
const TICK: Duration = Duration::from_micros(250);

/// How many packets a flow may send in one turn: one that was held up must not keep the others
/// waiting.
const PACKETS_A_TURN: usize = 256;

/// The flows that are sending.
#[derive(Default)]
pub(super) struct Sending {
    /// Sends datagrams; there from the first flow on that needs it.
    pacer: Option<Pacer>,
    /// How it does that.
    how: How,
    /// The sockets that sessions share, as the pacer has them, by their place. They are open as
    /// long as the worker is.
    shared: HashMap<Place, Arc<OwnedFd>>,
    /// Those that are interleaved in a connection.
    active: Slab<Active>,
    due: BinaryHeap<Reverse<(Time, usize, u64)>>,
    serial: u64,
    /// How many turns there were.
    turn: u64,
    last_turn: Time,
    /// Connections that were given packets in this turn.
    touched: Vec<usize>,
    /// Packets given to connections in this turn, and when; without a time those that found no
    /// room.
    queued: Vec<(FlowId, Tag, Option<Time>)>,
}

struct Active {
    serial: u64,
    flow: FlowId,
    session: SessionKey,
    /// The connection's place.
    socket: usize,
    /// The time of its entry among those that are due. Entries of other times are left over.
    due: Time,
    last: LastSent,
}

impl Sending {
    /// When flows have to be looked after next.
    pub(super) fn next(&self) -> Time {
        match self.due.peek() {
            Some(Reverse((at, ..))) => (*at).max(self.last_turn + TICK),
            None => Time::NEVER,
        }
    }

    /// Has an active flow looked after at that time; never is no time.
    fn arm(&mut self, place: usize, due: Time) {
        if let Some(active) = self.active.get_mut(place) {
            active.due = due;
            if due != Time::NEVER {
                self.due.push(Reverse((due, place, active.serial)));
            }
        }
    }

    /// No flow yet, and whether what is sent goes before all else on this machine.
    pub(super) fn new(in_real_time: bool) -> Sending {
        Sending {
            how: How {
                in_real_time,
                ..How::default()
            },
            ..Sending::default()
        }
    }

    /// Whether each datagram is to leave by itself from now on. To be said before any is sent.
    pub(super) fn send_apart(&mut self, apart: bool) {
        self.how.apart = apart;
    }

    /// Processor time that the pacer used since the last time, in nanoseconds.
    pub(super) fn take_pacer_cpu(&mut self) -> u64 {
        self.pacer.as_mut().map_or(0, Pacer::take_cpu)
    }

    /// What the pacer measured since the last time.
    pub(super) fn take_pacer_window(&mut self) -> Option<Window> {
        self.pacer.as_mut().map(Pacer::take_window)
    }
}

impl Worker {
    pub(super) fn start_flow(&mut self, key: SessionKey, flow: FlowId, channel: ChannelId) {
        let Some(slot) = self.slot(key) else { return };
        let whose = Whose {
            session: key,
            flow,
            channel,
        };
        let sent_by = match slot.channel(channel) {
            Some(Channel::Pair {
                media,
                shared,
                peer: Some(peer),
                ..
            }) => {
                let place = match shared {
                    true => Place::Shared(media),
                    false => Place::Pair(media),
                };
                self.lend_to_pacer(whose, place, peer.media)
            }
            Some(Channel::Datagrams {
                place,
                to: Some(to),
                ..
            }) => self.lend_to_pacer(whose, Place::Single(place), to),
            Some(Channel::Stream(socket)) => Ok(self.interleave(key, flow, socket)),
            _ => Err(io::Error::other("a flow's channel leads nowhere")),
        };
        match sent_by {
            Ok(Some(sent_by)) => {
                if let Some(slot) = self.slot(key) {
                    slot.flows.push((flow, sent_by));
                }
            }
            Ok(None) => {}
            Err(error) => {
                self.note("flow_not_sent", None, error.to_string());
                self.runtime.inbox.push(key, Pending::FlowEnded { flow });
            }
        }
    }

    /// Lends a flow that is here; none where it is lent already.
    fn lend_to_pacer(
        &mut self,
        whose: Whose,
        place: Place,
        to: std::net::SocketAddr,
    ) -> io::Result<Option<SentBy>> {
        self.trace_misses(whose.session, "datagrams of media that it sends");
        let socket = match self.sending.shared.get(&place) {
            Some(socket) => socket.clone(),
            None => {
                // The pacer has a descriptor of its own, made here: the session may close its
                // channel at any time.
                let (socket, shared) = match place {
                    Place::Single(place) => self.datagrams.descriptor(place)?,
                    place => {
                        let socket = self.pairs.descriptor(place)?;
                        (socket, matches!(place, Place::Shared(_)))
                    }
                };
                let socket = Arc::new(socket);
                if shared {
                    self.sending.shared.insert(place, socket.clone());
                }
                socket
            }
        };
        let pacer = match &mut self.sending.pacer {
            Some(pacer) => pacer,
            none => {
                let waker = self.links.mailbox.waker.clone();
                let how = self.sending.how;
                none.insert(Pacer::start(
                    self.links.index,
                    &self.runtime.clock,
                    waker,
                    how,
                )?)
            }
        };
        let mut lease = None;
        self.flows.lend(whose.flow, |sender| {
            let (known_as, lender) = pacer.lend(sender, whose, socket, to);
            lease = Some(known_as);
            lender
        });
        Ok(lease.map(SentBy::Pacer))
    }

    /// Sends a flow in a connection from now on; none where it has nothing to send.
    fn interleave(&mut self, key: SessionKey, flow: FlowId, socket: usize) -> Option<SentBy> {
        let Some(due) = self.flows.reach(flow, |flow| flow.next_due()) else {
            self.runtime.inbox.push(key, Pending::FlowEnded { flow });
            return None;
        };
        self.sending.serial += 1;
        let serial = self.sending.serial;
        let place = self.sending.active.insert(Active {
            serial,
            flow,
            session: key,
            socket,
            due: Time::NEVER,
            last: LastSent::default(),
        });
        self.sending.arm(place, due);
        Some(SentBy::Loop(place))
    }

    /// A session may have given its flows something to send before what comes next. Those that are
    /// lent to the pacer are looked at there.
    pub(super) fn look_at_flows(&mut self, key: SessionKey) {
        let Some(slot) = self.slot(key).filter(|slot| !slot.flows.is_empty()) else {
            return;
        };
        let of_loop = |&(flow, sent_by)| match sent_by {
            SentBy::Loop(place) => Some((flow, place)),
            SentBy::Pacer(_) => None,
        };
        let flows: Vec<_> = slot.flows.iter().filter_map(of_loop).collect();
        for (flow, place) in flows {
            if self.flows.contains(flow)
                && let Some(due) = self.flows.reach(flow, |flow| flow.next_due())
                && self.sending.active.get(place).is_some_and(|a| due < a.due)
            {
                self.sending.arm(place, due);
            }
        }
    }

    pub(super) fn stop_flow(&mut self, key: SessionKey, flow: FlowId) {
        self.stop_flow_if(key, |&(id, _)| id == flow);
    }

    /// Lets the session's flow send no more that it is said of; says whether there is one.
    fn stop_flow_if(&mut self, key: SessionKey, is: impl Fn(&(FlowId, SentBy)) -> bool) -> bool {
        let Some(slot) = self.slot(key) else {
            return false;
        };
        let Some(index) = slot.flows.iter().position(is) else {
            return false;
        };
        let (flow, sent_by) = slot.flows.swap_remove(index);
        self.release_flow(flow, sent_by);
        true
    }

    /// A flow has come to its end: its session hears so once, and may start it again. Of one that
    /// was stopped meanwhile, to pause perhaps, it hears nothing.
    fn end_flow(&mut self, key: SessionKey, flow: FlowId, sent_by: SentBy) {
        if self.stop_flow_if(key, |&started| started == (flow, sent_by)) {
            self.runtime.inbox.push(key, Pending::FlowEnded { flow });
        }
    }

    /// Lets a flow send no more.
    pub(super) fn release_flow(&mut self, flow: FlowId, sent_by: SentBy) {
        match sent_by {
            SentBy::Loop(place) => {
                self.sending.active.try_remove(place);
            }
            // Its session may have taken it out, and another one's be in its place.
            SentBy::Pacer(lease) => {
                if self.sending.pacer.as_ref().is_some_and(|p| p.has(lease)) {
                    self.flows.take_back(flow);
                }
            }
        }
    }

    /// Takes up which of the paced flows have come to their end, and which sockets have said that
    /// nobody is there.
    pub(super) fn hear_pacer(&mut self) {
        let Some(pacer) = &self.sending.pacer else {
            return;
        };
        let News { ended, refused } = pacer.take_news();
        for (key, flow, lease) in ended {
            self.end_flow(key, flow, SentBy::Pacer(lease));
        }
        for (key, channel) in refused {
            if let Some(Channel::Datagrams {
                place,
                accepted: None,
                ..
            }) = self.slot(key).and_then(|slot| slot.channel(channel))
            {
                self.datagrams.refused(place, &mut self.runtime);
            }
        }
    }

    /// Sends what is due in connections.
    pub(super) fn send_flows(&mut self, now: Time) {
        if self.sending.next() > now {
            return;
        }
        self.sending.last_turn = now;
        self.sending.turn += 1;
        while let Some(&Reverse((at, place, serial))) = self.sending.due.peek() {
            if at > now {
                break;
            }
            self.sending.due.pop();
            let active = self.sending.active.get(place);
            let Some(active) = active.filter(|active| active.serial == serial && active.due == at)
            else {
                continue;
            };
            let (flow, session) = (active.flow, active.session);
            for _ in 0..PACKETS_A_TURN {
                let Some(packet) = self.flows.reach(flow, |flow| flow.next_packet(now)) else {
                    break;
                };
                self.emit(place, now, &packet);
            }
            match self.flows.reach(flow, |flow| flow.next_due()) {
                Some(due) => self.sending.arm(place, due),
                None => self.end_flow(session, flow, SentBy::Loop(place)),
            }
        }
        for place in std::mem::take(&mut self.sending.touched) {
            if let Some(stream) = self.connections.get_mut(place)
                && stream.flush().is_err()
            {
                self.lose_stream(place, Closed::Reset);
            }
        }
        let ended = self.runtime.clock.now();
        for (flow, tag, began) in self.sending.queued.drain(..) {
            let left = began.map(|began| Handover { began, ended });
            self.flows.reach(flow, |flow| flow.left(tag, left));
        }
    }

    /// Puts a packet of the flow in that place onto its connection.
    fn emit(&mut self, place: usize, now: Time, packet: &FlowPacket) {
        let turn = self.sending.turn;
        let Some(active) = self.sending.active.get_mut(place) else {
            return;
        };
        let (flow, socket) = (active.flow, active.socket);
        let burst = active.last.is_burst(turn, packet.due);
        let left = match self.connections.get_mut(socket) {
            Some(stream) => {
                let parts = [&packet.header[..], &packet.payload];
                // What was queued in this turn has not been offered to the kernel yet: a large
                // picture that is sent at once, or what a late turn makes up for, may fill the
                // queue alone.
                stream.queue(parts) || (stream.flush().is_ok() && stream.queue(parts))
            }
            None => false,
        };
        // When it really left is known once the connection was flushed.
        let wants_times = self.flows.reach(flow, |flow| flow.wants_times());
        let began = if wants_times {
            self.runtime.clock.now()
        } else {
            now
        };
        let queued = (flow, packet.tag, left.then_some(began));
        self.sending.queued.push(queued);
        if left {
            let late = now.since(packet.due).as_nanos() as u64;
            self.runtime.tester.record(tester::SEND_LATENESS, late);
            self.runtime.tester.add(tester::SENT_PACKETS, 1);
            self.runtime
                .tester
                .add(tester::SENT_IN_BURSTS, u64::from(burst));
            if self.sending.touched.last() != Some(&socket) {
                self.sending.touched.push(socket);
            }
        } else {
            self.runtime.tester.add(tester::SENDS_FAILED, 1);
        }
    }
}

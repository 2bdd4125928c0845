//! Sending of media flows: each packet leaves when it is due.
//!
//! Datagrams are sent by the [`Pacer`]. Packets that are interleaved in a connection are sent here,
//! because they share the connection's queue with the control messages of the session, and
//! therefore its socket with this thread.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use measure::{Recorder, Time, Window, tester};
use net::batch::Address;
use net::{Clock, Waker};
use session::{FlowId, FlowPacket, Flows, Handover, Tag};
use slab::Slab;

use super::connections::Connections;
use super::ids::{FlowSender, SessionKey, SocketId};
use super::pacer::{FlowOwner, LastSent, Pacer, PacerEvents, PacerOptions};
use super::runtime::Runtime;

/// Minimum interval between turns of sending. Packets that fall due within it leave together, late
/// by at most this time, which saves most wake-ups.
const TICK: Duration = Duration::from_micros(250);

/// Maximum number of packets of one flow in a turn. A flow that was held up must not delay the
/// others.
const PACKETS_A_TURN: usize = 256;

/// Interval at which a full connection is checked, for a flow that waits for room.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// The flows that are sending.
#[derive(Default)]
pub(super) struct Sending {
    /// Sends datagrams; started with the first flow that needs it.
    pacer: Option<Pacer>,
    /// Options of the pacer. They have an effect only before the first flow.
    pub(super) pacer_options: PacerOptions,
    /// The pacer's descriptors of sockets that sessions share. They stay open as long as the worker
    /// runs.
    shared: HashMap<SocketId, Arc<OwnedFd>>,
    /// Flows that are interleaved in a connection.
    active: Slab<Active>,
    due: BinaryHeap<Reverse<(Time, usize, u64)>>,
    serial: u64,
    /// Number of turns so far.
    turn: u64,
    last_turn: Time,
    /// Connections that received packets in this turn.
    touched: Vec<usize>,
    /// Packets handed to connections in this turn, with the time; `None` if the queue had no room.
    queued: Vec<(FlowId, Tag, Option<Time>)>,
    /// Packets of flows that wait for room, not yet taken completely by the kernel.
    held: Vec<PartialPacket>,
}

/// A packet that its connection has not taken completely.
struct PartialPacket {
    /// Index and serial number of the flow.
    index: usize,
    serial: u64,
    tag: Tag,
    began: Time,
}

struct Active {
    serial: u64,
    flow: FlowId,
    session: SessionKey,
    /// Index of the connection.
    socket: usize,
    /// Time of the flow's entry in `due`. Entries with another time are obsolete.
    due: Time,
    last: LastSent,
    /// Latest time at which the connection was full, for a flow that waits for room.
    full_until: Time,
}

impl Sending {
    /// Time of the next turn.
    pub(super) fn next(&self) -> Time {
        let due = match self.due.peek() {
            Some(Reverse((at, ..))) => (*at).max(self.last_turn + TICK),
            None => Time::NEVER,
        };
        match self.held.is_empty() {
            true => due,
            false => due.min(self.last_turn + ROOM_CHECK_INTERVAL),
        }
    }

    /// Schedules a flow for `due`, unless that is [`Time::NEVER`].
    fn arm(&mut self, index: usize, due: Time) {
        if let Some(active) = self.active.get_mut(index) {
            active.due = due;
            if due != Time::NEVER {
                self.due.push(Reverse((due, index, active.serial)));
            }
        }
    }

    /// Returns the processor time used by the pacer since the last call, in nanoseconds.
    pub(super) fn take_pacer_cpu(&mut self) -> u64 {
        self.pacer.as_mut().map_or(0, Pacer::take_cpu)
    }

    /// Returns the pacer's metrics since the last call.
    pub(super) fn take_pacer_window(&mut self) -> Option<Window> {
        self.pacer.as_mut().map(Pacer::take_window)
    }

    /// Returns the pacer's descriptor of a socket. `open` duplicates the descriptor, because a
    /// session may close its channel at any time, and returns whether sessions share the socket.
    pub(super) fn socket(
        &mut self,
        id: SocketId,
        open: impl FnOnce() -> io::Result<(OwnedFd, bool)>,
    ) -> io::Result<Arc<OwnedFd>> {
        if let Some(socket) = self.shared.get(&id) {
            return Ok(socket.clone());
        }
        let (socket, shared) = open()?;
        let socket = Arc::new(socket);
        if shared {
            self.shared.insert(id, socket.clone());
        }
        Ok(socket)
    }

    /// Starts the pacer unless it is running. It wakes worker `worker` with `waker`.
    pub(super) fn start_pacer(
        &mut self,
        worker: u32,
        clock: &Clock,
        waker: &Arc<Waker>,
    ) -> io::Result<()> {
        if self.pacer.is_none() {
            let pacer = Pacer::start(worker, clock, waker.clone(), self.pacer_options)?;
            self.pacer = Some(pacer);
        }
        Ok(())
    }

    /// Moves a flow to the pacer, which must have been started. Returns `None` if the pacer already
    /// has it.
    pub(super) fn lend(
        &mut self,
        flows: &mut Flows,
        whose: FlowOwner,
        socket: Arc<OwnedFd>,
        to: Address,
    ) -> Option<FlowSender> {
        let pacer = self.pacer.as_mut()?;
        let mut lease = None;
        flows.lend(whose.flow, |sender| {
            let (known_as, lender) = pacer.lend(sender, whose, socket, to);
            lease = Some(known_as);
            lender
        });
        lease.map(FlowSender::Pacer)
    }

    /// Starts sending a flow in a connection. Returns `None` if the flow has nothing to send.
    pub(super) fn interleave(
        &mut self,
        flows: &mut Flows,
        session: SessionKey,
        flow: FlowId,
        socket: usize,
    ) -> Option<FlowSender> {
        let due = flows.access(flow, |flow| flow.next_due())?;
        self.serial += 1;
        let index = self.active.insert(Active {
            serial: self.serial,
            flow,
            session,
            socket,
            due: Time::NEVER,
            last: LastSent::default(),
            full_until: Time::ZERO,
        });
        self.arm(index, due);
        Some(FlowSender::Loop(index))
    }

    /// Reschedules a session's flows whose next packet has become due earlier. Flows on the pacer
    /// are rescheduled there.
    pub(super) fn reschedule(&mut self, flows: &mut Flows, of_session: &[(FlowId, FlowSender)]) {
        for &(flow, sent_by) in of_session {
            if let FlowSender::Loop(index) = sent_by
                && flows.contains(flow)
                && let Some(due) = flows.access(flow, |flow| flow.next_due())
                && self.active.get(index).is_some_and(|a| due < a.due)
            {
                self.arm(index, due);
            }
        }
    }

    /// Stops a flow.
    pub(super) fn release(&mut self, flows: &mut Flows, flow: FlowId, sent_by: FlowSender) {
        match sent_by {
            FlowSender::Loop(index) => {
                self.active.try_remove(index);
            }
            // Its session may have removed the flow, and another session's flow may have its id.
            FlowSender::Pacer(lease) => {
                if self.pacer.as_ref().is_some_and(|pacer| pacer.has(lease)) {
                    flows.take_back(flow);
                }
            }
        }
    }

    /// Returns the events of the pacer: flows that ended, and sockets whose peer is unreachable.
    pub(super) fn take_events(&self) -> PacerEvents {
        self.pacer
            .as_ref()
            .map(Pacer::take_events)
            .unwrap_or_default()
    }

    /// Sends the packets that are due in connections.
    pub(super) fn send(
        &mut self,
        now: Time,
        flows: &mut Flows,
        connections: &mut Connections,
        runtime: &mut Runtime,
    ) -> SendResult {
        let mut sent = SendResult::default();
        if self.next() > now {
            return sent;
        }
        self.last_turn = now;
        self.turn += 1;
        self.finish_partial_packets(now, flows, connections);
        while let Some(&Reverse((at, index, serial))) = self.due.peek() {
            if at > now {
                break;
            }
            self.due.pop();
            let active = self.active.get(index);
            let Some(active) = active.filter(|active| active.serial == serial && active.due == at)
            else {
                continue;
            };
            let (flow, session) = (active.flow, active.session);
            if flows.access(flow, |flow| flow.is_byte_stream()) {
                self.send_in_order(index, now, flows, connections, runtime, &mut sent);
                continue;
            }
            for _ in 0..PACKETS_A_TURN {
                let Some(packet) = flows.access(flow, |flow| flow.next_packet(now)) else {
                    break;
                };
                let wants_times = flows.access(flow, |flow| flow.needs_send_times());
                self.emit(index, now, &packet, wants_times, connections, runtime);
            }
            match flows.access(flow, |flow| flow.next_due()) {
                Some(due) => self.arm(index, due),
                None => sent.ended.push((session, flow, FlowSender::Loop(index))),
            }
        }
        for index in self.touched.drain(..) {
            if let Some(stream) = connections.get_mut(index)
                && stream.flush().is_err()
            {
                sent.broken.push(index);
            }
        }
        let ended = runtime.clock.now();
        for (flow, tag, began) in self.queued.drain(..) {
            let left = began.map(|began| Handover { began, ended });
            flows.access(flow, |flow| flow.packet_sent(tag, left));
        }
        sent
    }

    /// Sends the due packets of a flow that waits for room, as far as its connection takes them.
    fn send_in_order(
        &mut self,
        index: usize,
        now: Time,
        flows: &mut Flows,
        connections: &mut Connections,
        runtime: &mut Runtime,
        sent: &mut SendResult,
    ) {
        let turn = self.turn;
        let Some(active) = self.active.get_mut(index) else {
            return;
        };
        let (flow, socket, serial) = (active.flow, active.socket, active.serial);
        for _ in 0..PACKETS_A_TURN {
            let Some(stream) = connections.get_mut(socket) else {
                return;
            };
            if !stream.is_drained() {
                active.full_until = now;
                return self.arm(index, now + ROOM_CHECK_INTERVAL);
            }
            let Some(packet) = flows.access(flow, |flow| flow.next_packet(now)) else {
                break;
            };
            let began = runtime.clock.now();
            let parts = [&packet.header[..], &packet.payload];
            let mut parts = parts.into_iter().filter(|part| !part.is_empty());
            if parts.any(|part| stream.send_all(part).is_err()) {
                sent.broken.push(socket);
                return;
            }
            // Time during which a full connection held the packet back does not count as lateness
            // of the tester.
            let could = packet.due.max(active.full_until);
            let burst = active.last.is_burst(turn, packet.due);
            count_sent(&mut runtime.tester, now.since(could), burst);
            let tag = packet.tag;
            if !stream.is_drained() {
                active.due = Time::NEVER;
                self.held.push(PartialPacket {
                    index,
                    serial,
                    tag,
                    began,
                });
                return;
            }
            let ended = runtime.clock.now();
            flows.access(flow, |flow| {
                flow.packet_sent(tag, Some(Handover { began, ended }))
            });
        }
        let session = active.session;
        match flows.access(flow, |flow| flow.next_due()) {
            Some(due) => self.arm(index, due),
            None => sent.ended.push((session, flow, FlowSender::Loop(index))),
        }
    }

    /// Notifies flows that wait for room of packets that have left by now.
    fn finish_partial_packets(&mut self, now: Time, flows: &mut Flows, connections: &Connections) {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|held| {
            let active = self.active.get_mut(held.index);
            let Some(active) = active.filter(|active| active.serial == held.serial) else {
                return false;
            };
            let (flow, socket) = (active.flow, active.socket);
            let stream = connections.get(socket);
            if stream.is_some_and(|stream| !stream.is_drained()) || !flows.contains(flow) {
                return flows.contains(flow);
            }
            active.full_until = now;
            let left = stream.map(|_| Handover {
                began: held.began,
                ended: now,
            });
            flows.access(flow, |flow| flow.packet_sent(held.tag, left));
            let due = flows.access(flow, |flow| flow.next_due());
            self.arm(held.index, due.unwrap_or(now));
            false
        });
        self.held = held;
    }

    /// Queues a packet of a flow on its connection.
    fn emit(
        &mut self,
        index: usize,
        now: Time,
        packet: &FlowPacket,
        wants_times: bool,
        connections: &mut Connections,
        runtime: &mut Runtime,
    ) {
        let turn = self.turn;
        let Some(active) = self.active.get_mut(index) else {
            return;
        };
        let (flow, socket) = (active.flow, active.socket);
        let burst = active.last.is_burst(turn, packet.due);
        let left = connections.get_mut(socket).is_some_and(|stream| {
            let parts = [&packet.header[..], &packet.payload];
            // What was queued in this turn has not been offered to the kernel yet. A large picture
            // that is sent at once, or the backlog of a late turn, may fill the queue alone.
            stream.queue(parts) || (stream.flush().is_ok() && stream.queue(parts))
        });
        // The actual time is known only after the connection was flushed.
        let began = match wants_times {
            true => runtime.clock.now(),
            false => now,
        };
        self.queued.push((flow, packet.tag, left.then_some(began)));
        if left {
            count_sent(&mut runtime.tester, now.since(packet.due), burst);
            if self.touched.last() != Some(&socket) {
                self.touched.push(socket);
            }
        } else {
            runtime.tester.add(tester::SENDS_FAILED, 1);
        }
    }
}

/// Counts a packet that was queued `late`.
fn count_sent(tester: &mut Recorder, late: Duration, burst: bool) {
    tester.record_duration(tester::SEND_LATENESS, late);
    tester.add(tester::SENT_PACKETS, 1);
    tester.add(tester::SENT_IN_BURSTS, u64::from(burst));
}

/// Result of a turn of sending in connections.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SendResult {
    /// Flows that have sent their last packet.
    pub(super) ended: Vec<(SessionKey, FlowId, FlowSender)>,
    /// Connections that broke.
    pub(super) broken: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use session::{Flow, PacketHeader};

    use super::*;

    /// A flow with packets at given times, which records for each whether it left.
    #[derive(Debug)]
    struct Planned {
        dues: Vec<Time>,
        left: Vec<bool>,
    }

    impl Flow for Planned {
        fn next_due(&self) -> Option<Time> {
            self.dues.first().copied()
        }

        fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
            let due = self.next_due().filter(|&due| due <= now)?;
            self.dues.remove(0);
            Some(FlowPacket {
                due,
                header: PacketHeader::EMPTY,
                payload: Bytes::from_static(b"media"),
                tag: Tag(0),
            })
        }

        fn packet_sent(&mut self, _: Tag, left: Option<Handover>) {
            self.left.push(left.is_some());
        }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    struct Bench {
        sending: Sending,
        flows: Flows,
        connections: Connections,
        runtime: Runtime,
    }

    impl Bench {
        fn new() -> Bench {
            let waker = Waker::new().expect("linux has it");
            let (reports, _) = crossbeam_channel::unbounded();
            Bench {
                sending: Sending::default(),
                flows: Flows::default(),
                connections: Connections::new(None, 1, 1),
                runtime: Runtime::new(&waker, reports).expect("linux has it"),
            }
        }

        fn begin(&mut self, millis: &[u64]) -> (FlowId, Option<FlowSender>) {
            let dues = millis.iter().map(|&millis| at(millis)).collect();
            let left = Vec::new();
            let flow = self.flows.insert(Planned { dues, left });
            let (flows, nobody) = (&mut self.flows, SessionKey::NONE);
            (flow, self.sending.interleave(flows, nobody, flow, 0))
        }

        fn send(&mut self, now: Time) -> SendResult {
            let (flows, connections) = (&mut self.flows, &mut self.connections);
            self.sending
                .send(now, flows, connections, &mut self.runtime)
        }
    }

    #[test]
    fn flow_is_served_when_due_and_notified_of_unsent_packets() {
        let mut bench = Bench::new();
        let (flow, sent_by) = bench.begin(&[10, 20]);
        let sent_by = sent_by.expect("it has something to send");
        assert_eq!(bench.sending.next(), at(10));
        assert_eq!(bench.send(at(9)), SendResult::default());
        assert_eq!(bench.send(at(10)), SendResult::default());
        assert_eq!(bench.sending.next(), at(20));
        let ended = vec![(SessionKey::NONE, flow, sent_by)];
        assert_eq!(bench.send(at(25)).ended, ended);
        // The connection does not exist.
        let left = bench.flows.remove_as::<Planned>(flow).left;
        assert_eq!(left, [false, false]);
        let failed = bench.runtime.tester.take_window();
        assert_eq!(failed.counters[usize::from(tester::SENDS_FAILED.0)], 2);
    }

    #[test]
    fn empty_and_released_flows_are_not_sent() {
        let mut bench = Bench::new();
        assert_eq!(bench.begin(&[]).1, None);
        let (flow, sent_by) = bench.begin(&[10]);
        let sent_by = sent_by.expect("it has something to send");
        bench.sending.release(&mut bench.flows, flow, sent_by);
        assert_eq!(bench.send(at(10)), SendResult::default());
        assert!(bench.flows.remove_as::<Planned>(flow).left.is_empty());
    }

    #[test]
    fn packet_inserted_before_the_next_one_is_scheduled() {
        let mut bench = Bench::new();
        let (flow, sent_by) = bench.begin(&[50]);
        let sent_by = sent_by.expect("it has something to send");
        let flows = &mut bench.flows;
        flows.access_as(flow, |flow: &mut Planned| flow.dues.insert(0, at(30)));
        bench.sending.reschedule(flows, &[(flow, sent_by)]);
        assert_eq!(bench.sending.next(), at(30));
    }
}

//! The thread that sends a worker's datagram flows, each packet when it is due.
//!
//! A flow is lent to the pacer ([`Flows::lend`](session::Flows::lend)) when it starts,
//! and taken back when it stops. All shared state is behind one lock. The pacer holds the lock
//! while it sends a batch, and releases it only when no packet is in flight. The holder of the lock
//! therefore sees exact counts, and a flow that was taken back has no packet under way. The worker
//! takes the lock when a session accesses a flow, and once for each window. It gets the lock within
//! one batch: the pacer sees that the worker waits, and yields.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use measure::{Recorder, Time, Window, tester};

use net::batch::{Address, SEND_COUNT};
use net::thread::CpuClock;
use net::{Clock, SendBatch, Waker};
use session::{Flow, FlowId, Handover, LentFlow, Tag};
use slab::Slab;

use super::ids::{ChannelKey, Lease, SessionKey};

/// Minimum interval between turns. Packets that fall due within it leave together, late by at most
/// this time. Thousands of streams therefore cost at most 4,000 wake-ups a second and leave in
/// batches, while each packet of a few dozen streams leaves when it is due.
const TICK: Duration = Duration::from_micros(250);

/// Minimum interval between turns if a flow needs even spacing. A flow that was late once is on
/// time again with its next datagram, instead of staying late by the part of its packet interval
/// that exceeds a turn.
const FINE_TICK: Duration = Duration::from_micros(100);

/// Reason why the lock is not poisoned.
const WHOLE: &str = "neither thread panics with it";

/// The worker's handle of its pacer. Ends the thread when dropped.
pub(super) struct Pacer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Swapped with the recorder in use, so that the window is assembled outside the lock.
    spare: Recorder,
    /// Processor time as of the last call of [`Pacer::take_cpu`].
    cpu_nanos: u64,
}

/// State shared by the two threads.
struct Shared {
    state: Mutex<State>,
    /// Wakes the pacer, the only thread that waits on it.
    wake: Condvar,
    /// True while the worker waits for the lock.
    worker_waits: AtomicBool,
    /// True if [`State::news`] is not empty.
    has_news: AtomicBool,
    cpu: OnceLock<CpuClock>,
}

struct State {
    active: Slab<Active>,
    /// Flows by the time of their next packet. May contain obsolete entries of flows that were
    /// taken back.
    due: BinaryHeap<Reverse<Due>>,
    serial: u64,
    /// Time until which the pacer sleeps; `None` while it works.
    sleeps_until: Option<Time>,
    /// True while the pacer yields the lock to the worker.
    yielding: bool,
    last_turn: Time,
    /// Minimum interval between turns.
    tick: Duration,
    recorder: Recorder,
    news: PacerEvents,
    stop: bool,
}

/// Events of the pacer for its worker.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PacerEvents {
    /// Flows that have sent their last packet.
    pub(super) ended: Vec<(SessionKey, FlowId, Lease)>,
    /// Channels whose connected socket reported an unreachable peer. The kernel reports it once, to
    /// the next user of the socket.
    pub(super) refused: Vec<ChannelKey>,
}

impl PacerEvents {
    fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.refused.is_empty()
    }
}

/// Time at which a flow must be served. Ordered by time only, because entries are compared a dozen
/// times for each packet.
#[derive(Clone, Copy)]
struct Due {
    at: Time,
    lease: Lease,
}

impl Ord for Due {
    #[inline]
    fn cmp(&self, other: &Due) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl PartialOrd for Due {
    #[inline]
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

struct Active {
    serial: u64,
    flow: Box<dyn Flow>,
    /// Time of the flow's entry in the queue. Entries with another time are obsolete.
    due: Time,
    whose: FlowOwner,
    socket: Arc<OwnedFd>,
    to: Address,
    last: LastSent,
}

/// Owner of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowOwner {
    pub(super) flow: FlowId,
    /// Channel on which the flow sends.
    pub(super) owner: ChannelKey,
}

/// Last packet of a flow, to detect bursts.
#[derive(Clone, Copy, Default)]
pub(super) struct LastSent(Option<(u64, Time)>);

impl LastSent {
    /// Returns `true` if a packet that leaves in `turn` follows a packet of the same turn that was
    /// due at another time.
    pub(super) fn is_burst(&mut self, turn: u64, due: Time) -> bool {
        let last = self.0.replace((turn, due));
        last.is_some_and(|(last_turn, last_due)| last_turn == turn && last_due != due)
    }
}

impl Pacer {
    /// Starts the thread. Must be called on the worker's thread, because the two share a descriptor
    /// table.
    pub(super) fn start(
        index: u32,
        clock: &Clock,
        waker: Arc<Waker>,
        options: PacerOptions,
    ) -> io::Result<Pacer> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                active: Slab::new(),
                due: BinaryHeap::new(),
                serial: 0,
                sleeps_until: None,
                yielding: false,
                last_turn: Time::ZERO,
                tick: TICK,
                recorder: Recorder::new(tester::TESTER_CATALOGUE),
                news: PacerEvents::default(),
                stop: false,
            }),
            wake: Condvar::new(),
            worker_waits: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            cpu: OnceLock::new(),
        });
        let thread = {
            let (shared, clock) = (shared.clone(), clock.same_start());
            std::thread::Builder::new()
                .name(format!("pacer-{index}"))
                .spawn(move || PacerThread::new(&shared, clock, waker, options).run())?
        };
        Ok(Pacer {
            shared,
            thread: Some(thread),
            spare: Recorder::new(tester::TESTER_CATALOGUE),
            cpu_nanos: 0,
        })
    }

    /// Takes over a flow and starts sending it. Returns its lease, and the handle through which its
    /// session accesses it.
    pub(super) fn lend(
        &self,
        flow: Box<dyn Flow>,
        whose: FlowOwner,
        socket: Arc<OwnedFd>,
        to: impl Into<Address>,
    ) -> (Lease, Box<dyn LentFlow>) {
        let lease = self.shared.with_state(|state| {
            state.serial += 1;
            let serial = state.serial;
            if flow.wants_even_spacing() {
                state.tick = FINE_TICK;
            }
            // A flow that has nothing to send is found to have ended like any other.
            let at = flow.next_due().unwrap_or(Time::ZERO);
            let index = state.active.insert(Active {
                serial,
                flow,
                due: at,
                whose,
                socket,
                to: to.into(),
                last: LastSent::default(),
            });
            let lease = Lease { index, serial };
            if at != Time::NEVER {
                state.due.push(Reverse(Due { at, lease }));
            }
            lease
        });
        let lender = Lent {
            shared: self.shared.clone(),
            lease,
        };
        (lease, Box::new(lender))
    }

    /// Returns `true` if the pacer still has the flow.
    pub(super) fn has(&self, lease: Lease) -> bool {
        self.shared.with_state(|state| state.find(lease).is_some())
    }

    /// Returns the events since the last call.
    pub(super) fn take_events(&self) -> PacerEvents {
        if !self.shared.has_news.swap(false, Relaxed) {
            return PacerEvents::default();
        }
        self.shared
            .with_state(|state| std::mem::take(&mut state.news))
    }

    /// Returns the metrics since the last call.
    pub(super) fn take_window(&mut self) -> Window {
        let spare = &mut self.spare;
        self.shared
            .with_state(|state| std::mem::swap(&mut state.recorder, spare));
        self.spare.take_window()
    }

    /// Returns the processor time used since the last call, in nanoseconds.
    pub(super) fn take_cpu(&mut self) -> u64 {
        let used = self.shared.cpu.get().and_then(|clock| clock.nanos());
        let used = used.unwrap_or(self.cpu_nanos);
        used.saturating_sub(std::mem::replace(&mut self.cpu_nanos, used))
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.shared.worker_waits.store(true, Relaxed);
        // If the pacer panicked, the lock is poisoned and the thread is ending.
        if let Ok(mut state) = self.shared.state.lock() {
            self.shared.worker_waits.store(false, Relaxed);
            state.stop = true;
        }
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // The panic message has been printed; a worker that accesses the state panics as well.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(WHOLE)
    }

    /// Calls `f` with the state locked, from the worker's thread.
    fn with_state<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        self.worker_waits.store(true, Relaxed);
        let mut state = self.lock();
        self.worker_waits.store(false, Relaxed);
        let result = f(&mut state);
        let earlier = state
            .sleeps_until
            .is_some_and(|until| state.next_turn() < until);
        let wake = earlier || state.yielding;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        result
    }
}

impl State {
    fn find(&mut self, lease: Lease) -> Option<&mut Active> {
        self.active
            .get_mut(lease.index)
            .filter(|active| active.serial == lease.serial)
    }

    /// Time of the pacer's next turn.
    fn next_turn(&self) -> Time {
        match self.due.peek() {
            Some(Reverse(first)) => first.at.max(self.last_turn + self.tick),
            None => Time::NEVER,
        }
    }
}

/// Handle through which the worker accesses a lent flow.
struct Lent {
    shared: Arc<Shared>,
    lease: Lease,
}

/// Only [`Lent::take_back`] removes a flow, and it consumes the lease.
const LENT_FLOW_EXISTS: &str = "a flow that was lent is there until it is taken back";

impl LentFlow for Lent {
    fn access(&mut self, f: &mut dyn FnMut(&mut dyn Flow)) {
        let lease = self.lease;
        self.shared.with_state(|state| {
            let active = state.find(lease).expect(LENT_FLOW_EXISTS);
            f(&mut *active.flow);
            // The next packet of the flow may have become due earlier.
            if let Some(at) = active.flow.next_due()
                && at < active.due
            {
                active.due = at;
                state.due.push(Reverse(Due { at, lease }));
            }
        });
    }

    fn take_back(self: Box<Self>) -> Box<dyn Flow> {
        self.shared.with_state(|state| {
            assert!(state.find(self.lease).is_some(), "{LENT_FLOW_EXISTS}");
            state.active.remove(self.lease.index).flow
        })
    }
}

/// Options of a pacer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacerOptions {
    /// True if datagrams are not joined for segmentation by the kernel (`UDP_SEGMENT`).
    pub(super) apart: bool,
    /// True if the thread requests real-time scheduling (`SCHED_FIFO`), for processes that only
    /// send.
    pub(super) realtime_pacer: bool,
}

/// State that only the pacer's thread uses.
struct PacerThread<'a> {
    shared: &'a Shared,
    clock: Clock,
    /// Wakes the worker.
    waker: Arc<Waker>,
    /// Number of turns so far.
    turn: u64,
    batch: SendBatch<Bytes>,
    /// Flow and packet of each datagram in the batch.
    made: Vec<BatchedPacket>,
}

#[derive(Clone, Copy)]
struct BatchedPacket {
    index: usize,
    tag: Tag,
    due: Time,
    burst: bool,
}

impl PacerThread<'_> {
    fn new(
        shared: &Shared,
        clock: Clock,
        waker: Arc<Waker>,
        options: PacerOptions,
    ) -> PacerThread<'_> {
        // If the kernel refuses, packets leave later, which their lateness shows.
        let _ = net::thread::minimize_timer_slack();
        if !options.realtime_pacer || net::thread::set_realtime_priority().is_err() {
            let _ = net::thread::raise_priority();
        }
        if let Ok(cpu) = CpuClock::of_this_thread() {
            // Set only here.
            let _ = shared.cpu.set(cpu);
        }
        PacerThread {
            shared,
            clock,
            waker,
            turn: 0,
            batch: SendBatch::new().with_gso(!options.apart),
            made: Vec::with_capacity(SEND_COUNT),
        }
    }

    fn run(&mut self) {
        let mut state = self.shared.lock();
        while !state.stop {
            let now = self.clock.now();
            let next = state.next_turn();
            if next > now {
                state = self.sleep(state, next, now);
                continue;
            }
            state.last_turn = now;
            self.turn += 1;
            while !state.stop
                && state
                    .due
                    .peek()
                    .is_some_and(|Reverse(first)| first.at <= now)
            {
                self.send_batch(&mut state, now);
                state = self.let_worker_in(state);
            }
            // Wakes the worker only once, however many events there are.
            if !state.news.is_empty() && !self.shared.has_news.swap(true, Relaxed) {
                self.waker.wake();
            }
        }
    }

    fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        next: Time,
        now: Time,
    ) -> MutexGuard<'a, State> {
        state.sleeps_until = Some(next);
        // The standard library waits for an absolute time of the monotonic clock
        // (FUTEX_WAIT_BITSET), with the precision given by the thread's timer slack.
        let mut state = if next == Time::NEVER {
            self.shared.wake.wait(state).expect(WHOLE)
        } else {
            let waited = self.shared.wake.wait_timeout(state, next.since(now));
            waited.expect(WHOLE).0
        };
        state.sleeps_until = None;
        state
    }

    /// Yields if the worker waits for the lock. Otherwise the pacer would take the lock again
    /// immediately, and the worker would not get it.
    fn let_worker_in<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !self.shared.worker_waits.load(Relaxed) {
            return state;
        }
        state.yielding = true;
        let waited = self.shared.wake.wait(state);
        let mut state = waited.expect(WHOLE);
        state.yielding = false;
        state
    }

    /// Sends the packets that are due, up to one batch for one socket.
    fn send_batch(&mut self, state: &mut State, now: Time) {
        let mut socket: Option<Arc<OwnedFd>> = None;
        let mut alone = false;
        while !alone
            && !self.batch.is_full()
            && let Some(mut top) = state.due.peek_mut()
        {
            let Reverse(Due { at, lease }) = *top;
            if at > now {
                break;
            }
            let active = state.active.get_mut(lease.index);
            let Some(active) =
                active.filter(|active| active.serial == lease.serial && active.due == at)
            else {
                PeekMut::pop(top);
                continue;
            };
            match &socket {
                None => socket = Some(active.socket.clone()),
                Some(socket) if Arc::ptr_eq(socket, &active.socket) => {}
                Some(_) => break,
            }
            let flow = &mut *active.flow;
            while !self.batch.is_full()
                && let Some(packet) = flow.next_packet(now)
            {
                self.made.push(BatchedPacket {
                    index: lease.index,
                    tag: packet.tag,
                    due: packet.due,
                    burst: active.last.is_burst(self.turn, packet.due),
                });
                self.batch.push(active.to, &packet.header, packet.payload);
                // A packet with exact times gets a system call of its own.
                if flow.needs_send_times() {
                    alone = true;
                    break;
                }
            }
            match flow.next_due() {
                // An update costs one sift-down of the heap, when `top` is dropped. A flow without
                // a due packet is scheduled again when its session gives it something to send.
                Some(Time::NEVER) => {
                    PeekMut::pop(top);
                    active.due = Time::NEVER;
                }
                Some(at) => {
                    top.0.at = at;
                    active.due = at;
                }
                None => {
                    PeekMut::pop(top);
                    // No due time is earlier, so the flow is not scheduled again until it is
                    // restarted.
                    active.due = Time::ZERO;
                    let FlowOwner { flow, owner } = active.whose;
                    state.news.ended.push((owner.session, flow, lease));
                }
            }
        }
        if let Some(socket) = socket {
            self.flush(state, &socket);
        }
    }

    fn flush(&mut self, state: &mut State, socket: &OwnedFd) {
        let (mut sent, mut in_bursts, mut refused) = (0, 0, 0);
        let (active, recorder) = (&mut state.active, &mut state.recorder);
        let nobody_there = self.batch.send(socket, &self.clock, |index, times| {
            let packet = self.made[index];
            let left = times.map(|(began, ended)| Handover { began, ended });
            active[packet.index].flow.packet_sent(packet.tag, left);
            match left {
                Some(Handover { began, .. }) => {
                    recorder.record_duration(tester::SEND_LATENESS, began.since(packet.due));
                    sent += 1;
                    in_bursts += u64::from(packet.burst);
                }
                None => refused += 1,
            }
        });
        // A connected socket belongs to one channel of one session.
        if nobody_there && let Some(first) = self.made.first() {
            let owner = active[first.index].whose.owner;
            if !state.news.refused.contains(&owner) {
                state.news.refused.push(owner);
            }
        }
        self.made.clear();
        recorder.add(tester::SENT_PACKETS, sent);
        recorder.add(tester::SENT_IN_BURSTS, in_bursts);
        recorder.add(tester::SENDS_FAILED, refused);
    }
}

#[cfg(test)]
mod tests;

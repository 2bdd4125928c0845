//! The thread that sends a worker's datagram flows, each packet when it is due.
//!
//! A flow is lent to it ([`Flows::lend`](protocol::session::Flows::lend)) when it starts, and taken
//! back when it stops. All that both threads touch is behind one lock. The pacer holds it while it
//! sends a batch, and lets go of it only with no packet in hand: so whoever holds the lock finds
//! exact counts, and a flow that was taken back has nothing under way. The worker takes it where a
//! session reaches for a flow, and once a window. It gets it within one batch: the pacer sees that
//! it waits, and stands back.

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
use protocol::session::{ChannelId, Flow, FlowId, Handover, Lender, Tag};
use slab::Slab;

use super::keys::{Lease, SessionKey};

/// Turns begin at least so far apart: what falls due in between leaves together, at most this much
/// late. So thousands of streams cost no more than 4,000 wake-ups a second and leave in batches,
/// while a few dozen leave each when it is due.
const TICK: Duration = Duration::from_micros(250);

/// The same where one is among them that wants even spacing. One that was late once is in time
/// again with its next datagram, and does not stay late by what its distance has over a turn.
const FINE_TICK: Duration = Duration::from_micros(100);

/// The worker's hold on its pacer. Ends the thread when it is dropped.
pub(super) struct Pacer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Changes places with the recorder in use, so that a window is put together outside of the
    /// lock.
    spare: Recorder,
    /// Processor time that has been taken up.
    cpu_nanos: u64,
}

/// What the two threads share.
struct Shared {
    state: Mutex<State>,
    /// Wakes the pacer, which is the only one that waits for it.
    wake: Condvar,
    /// Whether the worker waits for the lock.
    worker_waits: AtomicBool,
    /// Whether there is something in [`State::news`].
    has_news: AtomicBool,
    cpu: OnceLock<CpuClock>,
}

struct State {
    active: Slab<Active>,
    /// The flows by when their next packet is due. Of one that was taken back an entry may be left
    /// over.
    due: BinaryHeap<Reverse<Due>>,
    serial: u64,
    /// When the pacer means to work next; none while it is at work.
    sleeps_until: Option<Time>,
    /// Whether the pacer stands back to let the worker have the lock.
    stands_back: bool,
    last_turn: Time,
    /// How far apart turns begin at least.
    tick: Duration,
    recorder: Recorder,
    news: News,
    stop: bool,
}

/// What the worker has to hear of its pacer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// The flows that have sent their last packet.
    pub(super) ended: Vec<(SessionKey, FlowId, Lease)>,
    /// Channels whose connected socket said to the pacer that nobody is there. The kernel says it
    /// once, to whoever uses the socket next.
    pub(super) refused: Vec<(SessionKey, ChannelId)>,
}

impl News {
    fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.refused.is_empty()
    }
}

/// When a flow has to be looked after. Ordered by the time alone: this is compared a dozen times
/// for each packet.
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
    /// The time of its entry among those that are due. Entries of other times are left over.
    due: Time,
    whose: Whose,
    socket: Arc<OwnedFd>,
    to: Address,
    last: LastSent,
}

/// Whose a flow is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whose {
    pub(super) session: SessionKey,
    pub(super) flow: FlowId,
    /// The channel that it sends on.
    pub(super) channel: ChannelId,
}

/// The last packet of a flow, by which it is told whether the next one makes a burst of it.
#[derive(Clone, Copy, Default)]
pub(super) struct LastSent(Option<(u64, Time)>);

impl LastSent {
    /// Whether a packet that leaves in that turn follows right behind one that was due at another
    /// time.
    pub(super) fn is_burst(&mut self, turn: u64, due: Time) -> bool {
        let last = self.0.replace((turn, due));
        last.is_some_and(|(last_turn, last_due)| last_turn == turn && last_due != due)
    }
}

impl Pacer {
    /// Starts the thread. To be called on the worker's: the two share a table of descriptors.
    pub(super) fn start(
        index: u32,
        clock: &Clock,
        waker: Arc<Waker>,
        how: How,
    ) -> io::Result<Pacer> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                active: Slab::new(),
                due: BinaryHeap::new(),
                serial: 0,
                sleeps_until: None,
                stands_back: false,
                last_turn: Time::ZERO,
                tick: TICK,
                recorder: Recorder::new(tester::TESTER_CATALOGUE),
                news: News::default(),
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
                .spawn(move || Pacing::new(&shared, clock, waker, how).run())?
        };
        Ok(Pacer {
            shared,
            thread: Some(thread),
            spare: Recorder::new(tester::TESTER_CATALOGUE),
            cpu_nanos: 0,
        })
    }

    /// Takes a flow over and sends it from now on. Says how it is known here and how it is reached;
    /// none with the flow itself, where it will send nothing.
    pub(super) fn lend(
        &self,
        flow: Box<dyn Flow>,
        whose: Whose,
        socket: Arc<OwnedFd>,
        to: impl Into<Address>,
    ) -> (Lease, Box<dyn Lender>) {
        let lease = self.shared.reach(|state| {
            state.serial += 1;
            let serial = state.serial;
            if flow.wants_even_spacing() {
                state.tick = FINE_TICK;
            }
            // One that has nothing to send is found to have ended as all others are.
            let at = flow.next_due().unwrap_or(Time::ZERO);
            let place = state.active.insert(Active {
                serial,
                flow,
                due: at,
                whose,
                socket,
                to: to.into(),
                last: LastSent::default(),
            });
            let lease = Lease { place, serial };
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

    /// Whether the flow is still here.
    pub(super) fn has(&self, lease: Lease) -> bool {
        self.shared.reach(|state| state.find(lease).is_some())
    }

    /// What has come up since this was asked last.
    pub(super) fn take_news(&self) -> News {
        if !self.shared.has_news.swap(false, Relaxed) {
            return News::default();
        }
        self.shared.reach(|state| std::mem::take(&mut state.news))
    }

    /// What was measured since the last time.
    pub(super) fn take_window(&mut self) -> Window {
        let spare = &mut self.spare;
        self.shared
            .reach(|state| std::mem::swap(&mut state.recorder, spare));
        self.spare.take_window()
    }

    /// Processor time used since the last time, in nanoseconds.
    pub(super) fn take_cpu(&mut self) -> u64 {
        let used = self.shared.cpu.get().and_then(|clock| clock.nanos());
        let used = used.unwrap_or(self.cpu_nanos);
        used.saturating_sub(std::mem::replace(&mut self.cpu_nanos, used))
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.shared.worker_waits.store(true, Relaxed);
        // A pacer that broke down took the lock with it, and is at its end.
        if let Ok(mut state) = self.shared.state.lock() {
            self.shared.worker_waits.store(false, Relaxed);
            state.stop = true;
        }
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // What it panicked with has been printed; a worker that reaches for it panics as well.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("neither thread panics with it")
    }

    /// The worker's way to the state.
    fn reach<R>(&self, reach: impl FnOnce(&mut State) -> R) -> R {
        self.worker_waits.store(true, Relaxed);
        let mut state = self.lock();
        self.worker_waits.store(false, Relaxed);
        let result = reach(&mut state);
        let earlier = state
            .sleeps_until
            .is_some_and(|until| state.next_turn() < until);
        let wake = earlier || state.stands_back;
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
            .get_mut(lease.place)
            .filter(|active| active.serial == lease.serial)
    }

    /// When the pacer has to work next.
    fn next_turn(&self) -> Time {
        match self.due.peek() {
            Some(Reverse(first)) => first.at.max(self.last_turn + self.tick),
            None => Time::NEVER,
        }
    }
}

/// How a session's worker reaches a flow that was lent.
struct Lent {
    shared: Arc<Shared>,
    lease: Lease,
}

/// Only [`Lent::take`] takes a flow out, and it uses the lease up.
const HERE: &str = "a flow that was lent is there until it is taken back";

impl Lender for Lent {
    fn with(&mut self, reach: &mut dyn FnMut(&mut dyn Flow)) {
        let lease = self.lease;
        self.shared.reach(|state| {
            let active = state.find(lease).expect(HERE);
            reach(&mut *active.flow);
            // It may have been given something to send before what comes next.
            if let Some(at) = active.flow.next_due()
                && at < active.due
            {
                active.due = at;
                state.due.push(Reverse(Due { at, lease }));
            }
        });
    }

    fn take(self: Box<Self>) -> Box<dyn Flow> {
        self.shared.reach(|state| {
            assert!(state.find(self.lease).is_some(), "{HERE}");
            state.active.remove(self.lease.place).flow
        })
    }
}

/// How a pacer sends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// Whether each datagram leaves by itself.
    pub(super) apart: bool,
    /// Whether it goes before all else on this machine, where it may: for who does nothing but
    /// send.
    pub(super) in_real_time: bool,
}

/// The thread's own part.
struct Pacing<'a> {
    shared: &'a Shared,
    clock: Clock,
    /// Wakes the worker.
    waker: Arc<Waker>,
    /// How many turns there were.
    turn: u64,
    batch: SendBatch<Bytes>,
    /// Which packet of which flow each datagram of the batch is.
    made: Vec<Made>,
}

#[derive(Clone, Copy)]
struct Made {
    place: usize,
    tag: Tag,
    due: Time,
    burst: bool,
}

impl Pacing<'_> {
    fn new(shared: &Shared, clock: Clock, waker: Arc<Waker>, how: How) -> Pacing<'_> {
        // Where the kernel will not have it, packets leave later, and their lateness tells.
        let _ = net::thread::wake_exactly();
        if !how.in_real_time || net::thread::go_before_all().is_err() {
            let _ = net::thread::go_first();
        }
        if let Ok(cpu) = CpuClock::of_this_thread() {
            // It is set here and nowhere else.
            let _ = shared.cpu.set(cpu);
        }
        Pacing {
            shared,
            clock,
            waker,
            turn: 0,
            batch: SendBatch::new().with_joining(!how.apart),
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
            // The worker is woken once, however much it is.
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
        const WHOLE: &str = "neither thread panics with it";
        state.sleeps_until = Some(next);
        // The library waits for an absolute time of the monotonic clock (FUTEX_WAIT_BITSET), as
        // exactly as the thread's timer slack says.
        let mut state = if next == Time::NEVER {
            self.shared.wake.wait(state).expect(WHOLE)
        } else {
            let waited = self.shared.wake.wait_timeout(state, next.since(now));
            waited.expect(WHOLE).0
        };
        state.sleeps_until = None;
        state
    }

    /// Stands back where the worker waits for the lock: it would else not be given it by a pacer
    /// that takes it again at once.
    fn let_worker_in<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !self.shared.worker_waits.load(Relaxed) {
            return state;
        }
        state.stands_back = true;
        let waited = self.shared.wake.wait(state);
        let mut state = waited.expect("neither thread panics with it");
        state.stands_back = false;
        state
    }

    /// Sends as much of what is due as one batch holds and one socket takes.
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
            let active = state.active.get_mut(lease.place);
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
                self.made.push(Made {
                    place: lease.place,
                    tag: packet.tag,
                    due: packet.due,
                    burst: active.last.is_burst(self.turn, packet.due),
                });
                self.batch.push(active.to, &packet.header, packet.payload);
                // One that is to be timed exactly has a call of its own.
                if flow.wants_times() {
                    alone = true;
                    break;
                }
            }
            match flow.next_due() {
                // It costs one way down the heap, when `top` is dropped.
                // Whoever gives it something to send has it looked after again.
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
                    // Nothing is due before that: it is over until it is started again.
                    active.due = Time::ZERO;
                    let Whose { session, flow, .. } = active.whose;
                    state.news.ended.push((session, flow, lease));
                }
            }
        }
        if let Some(socket) = socket {
            self.flush(state, &socket);
        }
    }

    fn flush(&mut self, state: &mut State, socket: &OwnedFd) {
        let (mut sent, mut in_bursts, mut refused) = (0, 0, 0);
        let Pacing {
            batch, made, clock, ..
        } = self;
        let State {
            active,
            recorder,
            news,
            ..
        } = state;
        let nobody_there = batch.send(socket, clock, |index, times| {
            let packet = made[index];
            let left = times.map(|(began, ended)| Handover { began, ended });
            active[packet.place].flow.left(packet.tag, left);
            match left {
                Some(Handover { began, .. }) => {
                    let late = began.since(packet.due).as_nanos() as u64;
                    recorder.record(tester::SEND_LATENESS, late);
                    sent += 1;
                    in_bursts += u64::from(packet.burst);
                }
                None => refused += 1,
            }
        });
        // A connected socket is one session's, for one channel.
        if nobody_there && let Some(first) = made.first() {
            let Whose {
                session, channel, ..
            } = active[first.place].whose;
            if !news.refused.contains(&(session, channel)) {
                news.refused.push((session, channel));
            }
        }
        made.clear();
        recorder.add(tester::SENT_PACKETS, sent);
        recorder.add(tester::SENT_IN_BURSTS, in_bursts);
        recorder.add(tester::SENDS_FAILED, refused);
    }
}

#[cfg(test)]
mod tests;

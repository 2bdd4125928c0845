//! Handed-over connections: messages are sent and read on them without calling the session for
//! each.
//!
//! All connections of a population on a worker share one schedule, so the loop has one wake-up time
//! instead of one for each connection. When the time has come, the connections get their messages
//! one after the other. Between two system calls, the loop only builds the message and makes two
//! additions. Idle sockets are never checked, because readiness is edge-triggered.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use kit::metrics as clients;
use measure::{Recorder, Time, tester};
use net::timed_read::TimedRead;
use session::exchange::{BACKLOG_MAX, Exchange, ExchangeContext, ExchangeEnd, NextStep, Plan};
use session::schedule::{Schedule, Step};
use session::seeds::derive_seed;
use session::{ChannelId, CloseReason};
use slab::Slab;

use super::connections::{Connections, State, Stream};
use super::error_mapping::tls_error;
use super::ids::{ChannelKey, SessionKey, SocketId};
use super::populations::Populations;
use super::runtime::Runtime;

/// Size of a read while the shared buffer is in use by another connection.
const READ_BYTES_BESIDE: usize = 64 * 1024;

/// Maximum time of sending before the loop checks its sockets.
const SENDING: Duration = Duration::from_millis(1);

/// Maximum number of reads of a connection before others are served.
const READS_A_TURN: usize = 4;

/// Pause after a round in which no connection took a message, if the next round would follow
/// immediately.
const STALL_PAUSE: Duration = Duration::from_millis(1);

/// Overhead of TLS for a message: record header, content type and tag (RFC 8446, 5.2); with TLS 1.2
/// also a nonce.
const SEALING: usize = 5 + 1 + 16;

/// A handed-over connection.
struct RunningExchange {
    exchange: Box<dyn Exchange>,
    /// Index in the worker's connections.
    connection: usize,
    session: SessionKey,
    channel: ChannelId,
    population: usize,
    serial: u64,
    /// Time for which the exchange's later work is scheduled; [`Time::NEVER`] if it has none.
    armed: Time,
    /// True if no more messages are planned.
    finishing: bool,
    /// Time until which responses are awaited before the sending side is closed.
    patience: Time,
    /// True if the sending side is closed.
    shut: bool,
    /// True if the peer has closed its sending side.
    ended: bool,
    /// True if reading is paused because the peer does not read.
    paused: bool,
}

/// All handed-over connections of a worker.
#[derive(Default)]
pub(super) struct Exchanges {
    handed_over: Slab<RunningExchange>,
    /// Schedule of each population, with its plan.
    schedules: Vec<Option<(Schedule, Plan)>>,
    /// Connections with later work, by time.
    later: BinaryHeap<Reverse<(Time, usize, u64)>>,
    /// Connections that broke while a schedule was being processed.
    broken: Vec<usize>,
    /// True if any message of the current round was sent.
    taken: bool,
    /// Connections that have ended and whose sessions are not notified yet.
    ended: VecDeque<(ChannelKey, ExchangeEnd)>,
    out: Vec<u8>,
    scratch: Vec<u8>,
}

/// The parts of a worker that exchanges need in addition to their own state.
pub(super) struct ExchangeWorker<'a> {
    pub(super) connections: &'a mut Connections,
    pub(super) populations: &'a mut Populations,
    pub(super) runtime: &'a mut Runtime,
}

/// Borrows the fields of a worker that exchanges need, leaving the others usable.
macro_rules! around {
    ($worker:ident) => {
        &mut $crate::worker::exchanges::ExchangeWorker {
            connections: &mut $worker.connections,
            populations: &mut $worker.populations,
            runtime: &mut $worker.runtime,
        }
    };
}
pub(super) use around;

impl Exchanges {
    /// Time of the next work, not counting a round in progress.
    pub(super) fn next(&self) -> Time {
        let schedules = self.schedules.iter().flatten();
        let dues = schedules.map(|(schedule, _)| schedule.next_due());
        let dues = dues.filter(|&due| due > Time::ZERO);
        let later = self.later.peek().map(|Reverse((at, ..))| *at);
        dues.chain(later).min().unwrap_or(Time::NEVER)
    }

    /// Returns `true` if a round is in progress.
    pub(super) fn is_busy(&self) -> bool {
        let mut schedules = self.schedules.iter().flatten();
        schedules.any(|(schedule, _)| schedule.next_due() == Time::ZERO)
    }

    /// Returns what an exchange may use.
    fn context<'a>(
        out: &'a mut Vec<u8>,
        scratch: &'a mut Vec<u8>,
        recorder: &'a mut Recorder,
        now: Time,
    ) -> ExchangeContext<'a> {
        out.clear();
        ExchangeContext {
            now,
            recorder,
            out,
            scratch,
        }
    }

    fn leave(&mut self, index: usize) {
        let population = self.handed_over[index].population;
        if let Some(Some((schedule, _))) = self.schedules.get_mut(population) {
            schedule.remove(number(index));
        }
    }

    /// Takes over a connection of a session.
    pub(super) fn begin(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        owner: ChannelKey,
        population: usize,
        connection: usize,
        exchange: Box<dyn Exchange>,
    ) {
        let Some(stream) = worker.connections.get_mut(connection) else {
            return;
        };
        if !stream.is_open() {
            return;
        }
        if exchange.needs_arrival_times() {
            // Without kernel timestamps, the time of reading is used.
            let _ = net::timed_read::enable_timestamps(&stream.socket);
        }
        let serial = worker.runtime.next_serial();
        let now = worker.runtime.clock.now();
        let plan = exchange.plan();
        let index = self.handed_over.insert(RunningExchange {
            exchange,
            connection,
            session: owner.session,
            channel: owner.channel,
            population,
            serial,
            armed: Time::NEVER,
            finishing: false,
            patience: Time::ZERO,
            shut: false,
            ended: false,
            paused: false,
        });
        stream.state = State::Exchange { exchange: index };
        if self.schedules.len() <= population {
            self.schedules.resize_with(population + 1, || None);
        }
        self.schedules[population]
            .get_or_insert_with(|| (Schedule::new(plan.pace), plan))
            .0
            .add(
                number(index),
                now,
                derive_seed(&[worker.populations.seed, serial]),
            );
        let recorder = worker.populations.recorder(population);
        let mut cx = Exchanges::context(&mut self.out, &mut self.scratch, recorder, now);
        self.handed_over[index].exchange.start(&mut cx);
        self.send_out(worker, index);
        // Bytes that arrived after the last read were announced already.
        worker.runtime.read_later(SocketId::Connection(connection));
    }

    /// Sends the bytes that an exchange has added, and queues what the connection does not take.
    /// Returns `false` if the connection broke.
    fn send_out(&mut self, worker: &mut ExchangeWorker<'_>, index: usize) -> bool {
        let connection = self.handed_over[index].connection;
        if self.out.is_empty() {
            return true;
        }
        let Some(stream) = worker.connections.get_mut(connection) else {
            return false;
        };
        let sent = stream.send_all(&self.out);
        // Releases the memory of large messages.
        self.out.shrink_to(1 << 20);
        if sent.is_err() {
            self.end(worker, connection, ExchangeEnd::Closed(CloseReason::Reset));
            return false;
        }
        true
    }

    /// Sends what is due by schedule, for at most [`SENDING`], and does later work that is due.
    pub(super) fn send(&mut self, worker: &mut ExchangeWorker<'_>, now: Time) {
        for population in 0..self.schedules.len() {
            let Some((mut schedule, plan)) =
                self.schedules[population].take_if(|(own, _)| own.next_due() <= now)
            else {
                continue;
            };
            self.work_off(worker, population, &mut schedule, &plan, now + SENDING);
            self.schedules[population] = Some((schedule, plan));
            for connection in std::mem::take(&mut self.broken) {
                self.end(worker, connection, ExchangeEnd::Closed(CloseReason::Reset));
            }
        }
        while let Some(&Reverse((at, index, serial))) = self.later.peek()
            && at <= now
        {
            self.later.pop();
            self.do_later(worker, index, serial);
        }
    }

    fn work_off(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        population: usize,
        schedule: &mut Schedule,
        plan: &Plan,
        until: Time,
    ) {
        let mut now = worker.runtime.clock.now();
        while let Some(turn) = schedule.next(now) {
            match turn {
                Step::Send(index, planned) => {
                    self.send_planned(worker, population, index as usize, planned, now);
                    if !schedule.is_in_rounds() {
                        let late = now.since(planned).as_nanos() as u64;
                        worker.runtime.tester.record(tester::SEND_LATENESS, late);
                    }
                    now = worker.runtime.clock.now();
                    if now >= until {
                        return;
                    }
                }
                Step::RoundBegins(planned) => {
                    self.taken = false;
                    let late = now.since(planned).as_nanos() as u64;
                    worker.runtime.tester.record(tester::SEND_LATENESS, late);
                }
                Step::RoundEnded(began) => {
                    let recorder = worker.populations.recorder(population);
                    (plan.round_ended)(now.since(began), recorder);
                    if !self.taken {
                        schedule.delay_next_round(now + STALL_PAUSE);
                    }
                }
            }
        }
    }

    /// Sends the message of a connection that was planned for `planned`. The hot path.
    #[inline]
    fn send_planned(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        population: usize,
        index: usize,
        planned: Time,
        now: Time,
    ) {
        let Some(own) = self.handed_over.get_mut(index) else {
            return;
        };
        let Some(stream) = worker.connections.get_mut(own.connection) else {
            return;
        };
        let recorder = worker.populations.recorder(population);
        let mut cx = Exchanges::context(&mut self.out, &mut self.scratch, recorder, now);
        own.exchange.write_planned(&mut cx);
        if cx.out.is_empty() {
            return;
        }
        match stream.send_message(cx.out) {
            Ok(true) => {
                self.taken = true;
                if own.exchange.planned_sent(planned, &mut cx) != NextStep::Continue {
                    // Not immediately, because the schedule is being processed.
                    self.later.push(Reverse((now, index, own.serial)));
                }
            }
            Ok(false) => own.exchange.planned_dropped(cx.recorder),
            Err(_) => self.broken.push(own.connection),
        }
    }

    fn do_later(&mut self, worker: &mut ExchangeWorker<'_>, index: usize, serial: u64) {
        let now = worker.runtime.clock.now();
        let own = self.handed_over.get_mut(index);
        let Some(own) = own.filter(|own| own.serial == serial) else {
            return;
        };
        own.armed = Time::NEVER;
        let recorder = worker.populations.recorder(own.population);
        let mut cx = Exchanges::context(&mut self.out, &mut self.scratch, recorder, now);
        let after = own.exchange.run_scheduled(&mut cx);
        let connection = own.connection;
        if self.follow(worker, index, after) && after == NextStep::Continue {
            self.go_on(worker, connection);
        }
    }

    /// Sends what an exchange has added and does what it wants next. Returns `false` if it has
    /// ended.
    fn follow(&mut self, worker: &mut ExchangeWorker<'_>, index: usize, after: NextStep) -> bool {
        if !self.send_out(worker, index) {
            return false;
        }
        self.arm(index);
        match after {
            NextStep::Continue => {}
            NextStep::Finish => self.finish(worker, index),
            NextStep::Close => {
                let connection = self.handed_over[index].connection;
                self.end(worker, connection, ExchangeEnd::ClosedByUs);
            }
        }
        self.handed_over.contains(index)
    }

    /// Schedules the later work of an exchange.
    fn arm(&mut self, index: usize) {
        let own = &mut self.handed_over[index];
        if let Some(due) = own.exchange.next_due()
            && due < own.armed
        {
            own.armed = due;
            self.later.push(Reverse((due, index, own.serial)));
        }
    }

    /// Reads a handed-over connection.
    pub(super) fn read(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        connection: usize,
        index: usize,
    ) {
        let mut buffer = std::mem::take(&mut worker.connections.buffers.read);
        // The buffer is in use while the bytes of another connection are being delivered. A read
        // into an empty buffer would look like the end of the connection.
        if buffer.is_empty() {
            buffer.resize(READ_BYTES_BESIDE, 0);
        }
        for turn in 1.. {
            let Some(stream) = worker.connections.get_mut(connection) else {
                break;
            };
            let own = self.handed_over.get_mut(index);
            let wanted = |own: &&mut RunningExchange| own.connection == connection && !own.ended;
            let Some(own) = own.filter(wanted) else {
                break;
            };
            own.paused = stream.queued().max(own.exchange.backlog()) > BACKLOG_MAX;
            if own.paused {
                break;
            }
            let ended = stream.ended;
            let timed = own.exchange.needs_arrival_times();
            match stream.read(&mut buffer, timed, worker.runtime) {
                Ok(TimedRead { count: 0, .. }) => {
                    if stream.tls.is_some() {
                        let recorder = worker.populations.recorder(own.population);
                        recorder.add(clients::TLS_CUT_OFF, 1);
                    }
                    self.peer_finished(worker, index);
                    break;
                }
                Ok(TimedRead { count, at, .. }) => {
                    if !self.process_received(worker, connection, index, &buffer[..count], at) {
                        break;
                    }
                    // A read that leaves room in the buffer has taken all bytes, but not an end
                    // that was there before.
                    if count < buffer.len() && !ended {
                        break;
                    }
                    if turn >= READS_A_TURN {
                        worker.runtime.read_later(SocketId::Connection(connection));
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.end(worker, connection, ExchangeEnd::Closed(CloseReason::Reset));
                    break;
                }
            }
        }
        worker.connections.buffers.read = buffer;
    }

    /// Processes received bytes, decrypting them first if the connection uses TLS. Returns `true`
    /// if reading continues.
    fn process_received(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        connection: usize,
        index: usize,
        bytes: &[u8],
        at: Time,
    ) -> bool {
        let Some((stream, buffers)) = worker.connections.get_with_buffers(connection) else {
            return false;
        };
        if stream.tls.is_none() {
            if let Some(trace) = &mut stream.trace {
                trace.received(bytes, at);
            }
            return self.take_in(worker, index, bytes, at);
        }
        let mut plain = std::mem::take(&mut buffers.plain);
        let mut runs = std::mem::take(&mut buffers.plain_runs);
        plain.clear();
        runs.clear();
        let mut came = std::mem::take(&mut buffers.runs);
        came.clear();
        net::arrival_times::append_unseen(bytes.len(), at, false, &mut came);
        let opened = stream.open_sealed(bytes, &came, &mut plain, &mut runs);
        buffers.runs = came;
        if let Some(trace) = &mut stream.trace
            && !plain.is_empty()
        {
            trace.received(&plain, at);
        }
        let stands = match opened {
            Ok(taken) => {
                // TLS's own responses.
                let flushed = stream.flush().is_ok();
                self.opened(worker, index, &plain, at, taken.peer_closed, flushed)
            }
            Err(fault) => {
                let reason = CloseReason::Tls(tls_error(fault.reason));
                self.end(worker, connection, ExchangeEnd::Closed(reason));
                false
            }
        };
        worker.connections.buffers.plain = plain;
        worker.connections.buffers.plain_runs = runs;
        stands
    }

    /// Processes decrypted bytes, which may be empty. `ended` is true if the peer has closed TLS,
    /// `flushed` if TLS's own responses could be sent. Returns `true` if reading continues.
    pub(super) fn opened(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        index: usize,
        plain: &[u8],
        at: Time,
        ended: bool,
        flushed: bool,
    ) -> bool {
        let connection = self.handed_over[index].connection;
        if !plain.is_empty() && !self.take_in(worker, index, plain, at) {
            return false;
        }
        if ended {
            self.peer_finished(worker, index);
        } else if !flushed {
            self.end(worker, connection, ExchangeEnd::Closed(CloseReason::Reset));
        }
        !ended && flushed
    }

    fn take_in(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        index: usize,
        bytes: &[u8],
        at: Time,
    ) -> bool {
        let now = worker.runtime.clock.now();
        let own = &mut self.handed_over[index];
        let connection = own.connection;
        let recorder = worker.populations.recorder(own.population);
        let mut cx = Exchanges::context(&mut self.out, &mut self.scratch, recorder, now);
        // An exchange that is about to end starts nothing new.
        match own.exchange.received(bytes, at, &mut cx) {
            Ok(after) => self.follow(worker, index, after),
            Err(failure) => {
                // The close of a WebSocket is answered.
                if self.send_out(worker, index) {
                    self.end(worker, connection, ExchangeEnd::Failed(failure));
                }
                false
            }
        }
    }

    /// Processes the end of the peer's sending side.
    fn peer_finished(&mut self, worker: &mut ExchangeWorker<'_>, index: usize) {
        let own = &mut self.handed_over[index];
        own.ended = true;
        if !own.exchange.sends_after_peer_closed() && !own.finishing {
            let connection = own.connection;
            return self.end(worker, connection, ExchangeEnd::Closed(CloseReason::End));
        }
        // A server still answers what it has received.
        self.finish(worker, index);
    }

    /// Plans no more messages, on request of the session.
    pub(super) fn finish_early(&mut self, worker: &mut ExchangeWorker<'_>, connection: usize) {
        let stream = worker.connections.get(connection);
        if let Some(index) = stream.and_then(Stream::exchange) {
            // Received bytes are processed first: the peer may have closed the connection, and what
            // it reads now was sent before.
            self.read(worker, connection, index);
            let own = self.handed_over.get(index);
            if own.is_some_and(|own| own.connection == connection) {
                self.finish(worker, index);
            }
        }
    }

    fn finish(&mut self, worker: &mut ExchangeWorker<'_>, index: usize) {
        let own = &mut self.handed_over[index];
        let connection = own.connection;
        if !own.finishing {
            own.finishing = true;
            own.exchange.finish();
            if let Some(patience) = own.exchange.answer_timeout() {
                own.patience = worker.runtime.clock.now() + patience;
                let later = Reverse((own.patience, index, own.serial));
                self.later.push(later);
            }
            self.leave(index);
        }
        self.go_on(worker, connection);
    }

    /// Continues after the connection has taken its queue, or after another awaited event.
    pub(super) fn go_on(&mut self, worker: &mut ExchangeWorker<'_>, connection: usize) {
        let Some(stream) = worker.connections.get_mut(connection) else {
            return;
        };
        let Some(index) = stream.exchange() else {
            return;
        };
        let own = &mut self.handed_over[index];
        let waiting = own.exchange.backlog().max(stream.queued());
        if own.paused && waiting <= BACKLOG_MAX {
            worker.runtime.read_later(SocketId::Connection(connection));
        }
        if !own.finishing || waiting > 0 {
            return;
        }
        let waits = own.exchange.answer_timeout().is_some() && !own.ended;
        if waits && worker.runtime.clock.now() < own.patience {
            return;
        }
        self.out.clear();
        own.exchange.write_close(&mut self.out);
        if !self.out.is_empty() {
            // A broken connection is detected by reading it.
            let _ = stream.send_all(&self.out);
            if stream.queued() > 0 {
                return;
            }
        }
        if !own.shut && !own.exchange.awaits_close_answer() {
            own.shut = true;
            stream.close_tls();
            // A broken connection is detected by reading it.
            let _ = stream.socket.shutdown(Shutdown::Write);
        }
        if own.ended {
            self.end(worker, connection, ExchangeEnd::Finished);
        }
    }

    /// Removes a connection and notifies its session.
    pub(super) fn end(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        connection: usize,
        reason: ExchangeEnd,
    ) {
        if let Some(owner) = self.remove_exchange(worker, connection, &reason) {
            self.ended.push_back((owner, reason));
        }
    }

    /// Returns the next connection that has ended and whose session is not notified yet.
    #[inline]
    pub(super) fn next_ended(&mut self) -> Option<(ChannelKey, ExchangeEnd)> {
        self.ended.pop_front()
    }

    /// Removes a connection. Returns its channel.
    pub(super) fn remove_exchange(
        &mut self,
        worker: &mut ExchangeWorker<'_>,
        connection: usize,
        reason: &ExchangeEnd,
    ) -> Option<ChannelKey> {
        let index = worker.connections.get(connection)?.exchange()?;
        self.leave(index);
        self.take_up_acknowledged(worker, index);
        let mut stream = worker.connections.remove(connection)?;
        if let Some(trace) = &mut stream.trace {
            match reason {
                ExchangeEnd::Finished | ExchangeEnd::Closed(CloseReason::End) => {
                    trace.closed_by_peer()
                }
                ExchangeEnd::Closed(CloseReason::Reset) => trace.broke(),
                _ => {}
            }
        }
        let mut own = self.handed_over.remove(index);
        own.exchange
            .ended(reason, worker.populations.recorder(own.population));
        Some(own.session.channel(own.channel))
    }

    /// Notes how many of the sent bytes the peer's kernel has acknowledged.
    fn take_up_acknowledged(&mut self, worker: &mut ExchangeWorker<'_>, index: usize) {
        let own = &mut self.handed_over[index];
        let Some(stream) = worker.connections.get(own.connection) else {
            return;
        };
        if !own.exchange.tracks_acknowledgements() {
            return;
        }
        let Ok(waiting) = net::timed_read::unacknowledged(&stream.socket) else {
            return;
        };
        // For a Unix socket, the kernel reports memory usage instead of bytes.
        if stream.unix && waiting > 0 {
            return;
        }
        // The FIN has a sequence number of its own (RFC 9293, 3.4).
        let waiting = waiting.saturating_sub(u64::from(own.shut)) + stream.queued() as u64;
        let sealing = if stream.tls.is_some() { SEALING } else { 0 };
        let recorder = worker.populations.recorder(own.population);
        own.exchange.acknowledged(waiting, sealing, recorder);
    }

    /// Checks all handed-over connections at the end of each window.
    pub(super) fn check_timeouts(&mut self, worker: &mut ExchangeWorker<'_>) {
        if self.handed_over.is_empty() {
            return;
        }
        let now = worker.runtime.clock.now();
        for index in 0..self.handed_over.capacity() {
            if !self.handed_over.contains(index) {
                continue;
            }
            self.take_up_acknowledged(worker, index);
            let own = &mut self.handed_over[index];
            let recorder = worker.populations.recorder(own.population);
            let mut cx = Exchanges::context(&mut self.out, &mut self.scratch, recorder, now);
            let after = own.exchange.check_timeouts(&mut cx);
            if self.send_out(worker, index) && after == NextStep::Finish {
                self.finish(worker, index);
            }
        }
        // Entries of removed connections leave the heap only when their time has come.
        let handed_over = &self.handed_over;
        if self.later.len() > 2 * handed_over.len() + 1024 {
            let there = |&Reverse((_, index, serial)): &Reverse<(Time, usize, u64)>| {
                handed_over
                    .get(index)
                    .is_some_and(|own: &RunningExchange| own.serial == serial)
            };
            self.later.retain(there);
        }
    }
}

/// Number of a connection in its schedule.
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("there are not so many descriptors")
}

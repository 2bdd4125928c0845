//! Scheduling of connection reads: periodic reads by turns, fast connections in between.

use std::time::Duration;

use measure::Time;

use super::super::ids::{ChannelKey, SessionKey, SocketId};
use super::super::runtime::Runtime;
use super::early_reads::EarlyRead;
use super::segment_times::{LOW_WATER, SHARES, WatchedConnection};
use super::stream::State;
use super::{Connections, SegmentTimes};
use crate::trace::ORDER_WITHIN;

/// Interval at which a connection with media is read.
///
/// Measured over loopback with 1,000 clients of 1 Mb/s, 129,000 packets/s (2 cores of a busy
/// virtual machine, Linux 6.18), in µs of processor time for each packet: 5.7 when read on
/// readiness, 1.8 every 50 ms, 1.3 every 100 ms. With two testers of 500 such clients at the same
/// time, the cost every 200 ms and at the end of each window is 0.80 to 0.85 of that every 100 ms,
/// and the cost every 400 ms is 0.93 of that every 200 ms. Copying the bytes is more than half of
/// the remaining cost. A longer interval would also occupy more kernel memory, where the data
/// waits.
pub(crate) const READ_INTERVAL: Duration = Duration::from_millis(400);

// A trace sorts what is read that late.
const _: () = assert!(READ_INTERVAL.as_millis() < ORDER_WITHIN.as_millis());

/// Time between the turns of two shares.
const SHARE: Duration = Duration::from_millis(READ_INTERVAL.as_millis() as u64 / SHARES as u64);

/// Bytes that arrived less than this before their turn wait for the next turn. By then the ring has
/// delivered everything that arrived earlier. The contents of a turn, and of a window, therefore do
/// not depend on when the ring hands over a block.
const SHOWN_WITHIN: Duration = Duration::from_millis(15);

/// Minimum number of bytes with known arrival times at which a fast connection (one that receives
/// [`LOW_WATER`] bytes before its turn) is read while the loop is awake. Several such connections
/// are then read together, instead of waking the loop one by one.
const WITH_OTHERS: usize = LOW_WATER / 4;

/// Minimum interval between checks of the fast connections.
const FAST_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Time after which a segment that was seen but cannot be read counts as discarded by TCP.
const DISCARDED_AFTER: Duration = Duration::from_millis(50);

/// Maximum time without a read while the ring delivers no segments of a connection.
const UNHEARD: Duration = Duration::from_secs(1);

/// State of the periodic reads.
#[derive(Debug, Default)]
pub(super) struct ReadSchedule {
    /// Number of turns taken.
    taken: u64,
    /// Indices of the fast connections, which receive much between two turns. May contain
    /// connections that are not fast any more.
    fast: Vec<usize>,
    /// Time of the last check of the fast connections.
    looked: Time,
    /// Sessions that are stopping while their connections are read periodically.
    leaving: Vec<SessionKey>,
    /// Connections of the current turn.
    places: Vec<usize>,
}

/// Amount to read from a connection with periodic reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedRead {
    /// Bytes with known arrival times.
    Known(usize),
    /// All available bytes.
    All,
    Nothing,
}

impl WantedRead {
    /// Returns the planned time of a turn.
    pub(crate) fn planned(turn: u64) -> Time {
        Time::from_start(SHARE * u32::try_from(turn).unwrap_or(u32::MAX))
    }
}

/// Consequence of a readiness event of a connection.
pub(crate) enum ReadyAction {
    Read(WantedRead),
    /// The connection has ended. Everything is to be read, unless that must wait for the ring.
    Ending(ChannelKey),
}

impl Connections {
    fn are_read_periodically(&self) -> bool {
        self.segment_times
            .as_ref()
            .is_some_and(SegmentTimes::is_needed)
    }

    /// Returns what is to be read from a connection after a readiness event.
    pub(crate) fn on_readable(&mut self, index: usize, runtime: &mut Runtime) -> ReadyAction {
        let Some(stream) = self.streams.get_mut(index) else {
            return ReadyAction::Read(WantedRead::Nothing);
        };
        let (ended, state) = (stream.ended, &stream.state);
        let Some(watched) = stream.watched.as_mut().filter(|watched| watched.seldom) else {
            return ReadyAction::Read(WantedRead::All);
        };
        if watched.ending {
            return ReadyAction::Read(WantedRead::Nothing);
        }
        if ended && let State::Open(owner) = *state {
            watched.ending = true;
            return ReadyAction::Ending(owner);
        }
        // A connection that was fast and ended may have left its index in the list.
        if !std::mem::replace(&mut watched.fast, true) && !self.turns.fast.contains(&index) {
            self.turns.fast.push(index);
        }
        let known = watched.known();
        let wanted = match known {
            0 => WantedRead::Nothing,
            _ => WantedRead::Known(known),
        };
        // The ring will not deliver segments that it has missed.
        if watched.with(|segments| segments.has_gap()) == Some(true) {
            return ReadyAction::Read(WantedRead::All);
        }
        // The ring may be behind. The sender must not be blocked because of that, and unread bytes
        // would cause the next readiness event even sooner.
        ReadyAction::Read(match watched.hold(&stream.socket, runtime.turn) {
            EarlyRead::All => wanted,
            // Arrival times are then times of reading, and are counted as such.
            EarlyRead::Full => WantedRead::All,
            EarlyRead::Ended | EarlyRead::Broken => {
                stream.ended = true;
                runtime.read_later(SocketId::Connection(index));
                wanted
            }
        })
    }

    /// Notes that a read returned fewer bytes than the ring had delivered.
    pub(super) fn note_short_read(&self, index: usize, now: Time) {
        if let Some(stream) = self.streams.get(index)
            && let Some(watched) = &stream.watched
        {
            watched.with(|segments| {
                if segments
                    .oldest()
                    .is_some_and(|at| at + DISCARDED_AFTER < now)
                {
                    segments.forget_unread();
                }
            });
        }
    }

    /// Returns the session of a connection that could be read periodically if it carries media.
    pub(crate) fn periodic_candidate(&self, index: usize) -> Option<SessionKey> {
        let stream = self.streams.get(index)?;
        let State::Open(owner) = stream.state else {
            return None;
        };
        let watched = stream.watched.as_ref()?;
        (!watched.seldom && !stream.ended && !stream.prompt).then_some(owner.session)
    }

    /// Starts periodic reads of a connection with media, if the ring delivers its arrival times.
    pub(crate) fn start_periodic_reads(&mut self, index: usize) {
        let Some(stream) = self.streams.get_mut(index) else {
            return;
        };
        let Some(watched) = stream.watched.as_mut() else {
            return;
        };
        if watched.with(|segments| segments.saw_start()) != Some(true) {
            if let Some(times) = &self.segment_times {
                times.hurries.set(true);
            }
            return;
        }
        // If the kernel refuses, the connection is read on readiness as before.
        if watched.be_told_seldom(&stream.socket).is_ok() {
            watched.read_periodically(Some(index));
        }
    }

    /// Ends periodic reads: the connection is read on readiness.
    pub(crate) fn read_at_once(&mut self, index: usize) {
        if let Some(stream) = self.streams.get_mut(index)
            && let Some(watched) = &mut stream.watched
        {
            watched.read_periodically(None);
        }
    }

    /// Time of the next turn.
    pub(crate) fn next_turn(&self) -> Time {
        match self.are_read_periodically() {
            true => Time::from_nanos((self.turns.taken + 1) * SHARE.as_nanos() as u64),
            false => Time::NEVER,
        }
    }

    /// Returns the turns that have come, or `None` if no connection is read periodically.
    pub(crate) fn take_turns(&mut self, now: Time) -> Option<std::ops::Range<u64>> {
        let turn = now.as_nanos() / SHARE.as_nanos() as u64;
        // No connection is read twice because the loop was late.
        let from = self.turns.taken.max(turn.saturating_sub(SHARES as u64));
        self.turns.taken = turn;
        if !self.are_read_periodically() {
            self.turns.leaving.clear();
            return None;
        }
        Some(from..turn)
    }

    /// Processes the ring's segments for the connections of a turn, and returns their indices.
    pub(crate) fn indices_of_turn(&mut self, turn: u64) -> Vec<usize> {
        let mut indices = std::mem::take(&mut self.turns.places);
        if let Some(times) = &self.segment_times {
            let share = usize::try_from(turn % SHARES as u64).unwrap_or(0);
            times.begin_turn(share, &mut indices);
        }
        indices
    }

    /// Takes back the memory of [`Connections::indices_of_turn`].
    pub(crate) fn turn_ended(&mut self, mut indices: Vec<usize>) {
        indices.clear();
        self.turns.places = indices;
    }

    fn watched(&self, index: usize) -> Option<&WatchedConnection> {
        self.streams.get(index)?.watched.as_ref()
    }

    /// The connection, if it is read periodically and not ending.
    fn watched_seldom(&self, index: usize) -> Option<&WatchedConnection> {
        let watched = self.watched(index);
        watched.filter(|watched| watched.seldom && !watched.ending)
    }

    /// Returns what is to be read from a connection in its turn, planned for `planned`. Nothing, if
    /// the connection was read recently.
    pub(crate) fn wanted_in_turn(&self, index: usize, now: Time, planned: Time) -> WantedRead {
        match self
            .watched(index)
            .is_some_and(|watched| now.since(watched.read) < READ_INTERVAL / 2)
        {
            true => WantedRead::Nothing,
            false => self.wanted_by(index, now, planned),
        }
    }

    /// Returns the turns of all connections, for the end of a window, which must contain everything
    /// that arrived in it. Without these reads, windows would miss data while clients are being
    /// added: 3.5 % if their number grows by a quarter each second.
    pub(crate) fn all_turns(&self) -> std::ops::Range<u64> {
        match self.are_read_periodically() {
            true => 0..SHARES as u64,
            false => 0..0,
        }
    }

    /// Returns what is to be read from a connection, of the bytes that the ring must have delivered
    /// by `planned`.
    pub(crate) fn wanted_by(&self, index: usize, now: Time, planned: Time) -> WantedRead {
        let Some(watched) = self.watched_seldom(index) else {
            return WantedRead::Nothing;
        };
        let unheard = now.since(watched.read) >= UNHEARD;
        let until = Time::from_nanos(
            planned
                .as_nanos()
                .saturating_sub(SHOWN_WITHIN.as_nanos() as u64),
        );
        let known = watched.with(|segments| (segments.unread_before(until), segments.has_gap()));
        match known {
            Some((known @ 1.., false)) => WantedRead::Known(known),
            // The ring will not deliver segments that it has missed.
            Some((_, true)) => WantedRead::All,
            Some((0, false)) | None if unheard => WantedRead::All,
            Some((0, false)) | None => WantedRead::Nothing,
        }
    }

    /// Returns what is to be read from a connection, of all bytes with known arrival times.
    pub(crate) fn known(&self, index: usize) -> WantedRead {
        match self.watched_seldom(index).map(WatchedConnection::known) {
            None | Some(0) => WantedRead::Nothing,
            Some(known) => WantedRead::Known(known),
        }
    }

    /// Returns the fast connections if a check is due.
    pub(crate) fn take_fast(&mut self, now: Time) -> Option<Vec<usize>> {
        if self.turns.fast.is_empty() || now < self.turns.looked + FAST_CHECK_INTERVAL {
            return None;
        }
        self.turns.looked = now;
        Some(std::mem::take(&mut self.turns.fast))
    }

    /// Puts back the connections that are still fast.
    pub(crate) fn put_fast(&mut self, mut indices: Vec<usize>) {
        // No input adds one meanwhile, but none would be lost.
        indices.append(&mut self.turns.fast);
        self.turns.fast = indices;
    }

    /// Returns what is to be read from a fast connection, or `None` if it is not fast any more.
    pub(crate) fn check_fast(&mut self, index: usize, now: Time) -> Option<WantedRead> {
        let watched = self.streams.get_mut(index);
        let watched = watched.and_then(|stream| stream.watched.as_mut());
        // The index may belong to another connection by now.
        let watched = watched.filter(|watched| watched.fast)?;
        let known = watched.known();
        watched.fast = watched.seldom && now.since(watched.read) < READ_INTERVAL / 2;
        let wanted = match watched.ending || known < WITH_OTHERS {
            true => WantedRead::Nothing,
            false => WantedRead::Known(known),
        };
        watched.fast.then_some(wanted)
    }

    /// Notes that a session is stopping. Its connections are read more often, so that nothing has
    /// to wait for their turns.
    pub(crate) fn leaves(&mut self, key: SessionKey) {
        if self.are_read_periodically() {
            self.turns.leaving.push(key);
        }
    }

    /// Takes the sessions that are stopping. The caller puts back those that still exist.
    pub(crate) fn take_leaving(&mut self) -> Vec<SessionKey> {
        std::mem::take(&mut self.turns.leaving)
    }
}

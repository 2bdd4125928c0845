//! When which connection is read: those that are read seldom by turns, fast ones in between.

use std::time::Duration;

use measure::Time;
use protocol::session::ChannelId;

use super::super::keys::{Place, SessionKey};
use super::super::runtime::Runtime;
use super::early_reads::Holding;
use super::segment_times::{LOW_WATER, SHARES};
use super::stream::State;
use super::{Connections, SegmentTimes};

/// How often a connection is read whose media has begun.
///
/// Measured over loopback with 1,000 clients of 1 Mb/s, 129,000 packets/s (2 cores of a busy
/// virtual machine, Linux 6.18), in µs of processor time a packet: at once 5.7; every 50 ms 1.8;
/// every 100 ms 1.3. Every 200 ms, and at the end of each window, it is 0.80 to 0.85 of what it is
/// every 100 ms (two testers of 500 such clients beside each other), and every 400 ms 0.93 of what
/// it is every 200 ms. More than half of what is left is the copy of the bytes. Longer would also
/// fill more of the kernel's memory: what comes in that time waits there.
pub(crate) const READ_INTERVAL: Duration = Duration::from_millis(400);

/// How long after one share it is the next one's turn.
const SHARE: Duration = Duration::from_millis(READ_INTERVAL.as_millis() as u64 / SHARES as u64);

/// What came later than so long before its turn waits for the next one. By then the ring has shown
/// all that came before, so that what is read in a turn, and in a window, does not hang on when the
/// ring hands a block over.
const SHOWN_WITHIN: Duration = Duration::from_millis(15);

/// From how many bytes on, shown by the ring, a connection that brings [`LOW_WATER`] before its
/// turn is read whenever the loop is awake. So several of them are read in one go, where each by
/// itself would wake the loop.
const WITH_OTHERS: usize = LOW_WATER / 4;

/// How often they are looked at, at the most.
const LOOK_AT_FAST: Duration = Duration::from_millis(10);

/// How long after it was seen a segment that cannot be read was not taken by TCP.
const NOT_TAKEN: Duration = Duration::from_millis(50);

/// How long a connection may go unread on the ring's word that nothing has come.
const UNHEARD: Duration = Duration::from_secs(1);

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct ReadTurns {
    /// How many turns have been taken.
    taken: u64,
    /// The places of connections that bring much between two turns, and perhaps those of some that
    /// did and do no more.
    fast: Vec<usize>,
    /// When these were looked at last.
    looked: Time,
    /// Sessions that were told to stop while their connections are read seldom.
    leaving: Vec<SessionKey>,
    /// The connections whose turn it is.
    places: Vec<usize>,
}

/// What is to be read of a connection that is read seldom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedRead {
    /// So many bytes, whose times are known.
    Known(usize),
    /// Whatever there is.
    All,
    /// Nothing.
    Nothing,
}

impl WantedRead {
    /// When a turn is due.
    pub(crate) fn planned(turn: u64) -> Time {
        Time::from_start(SHARE * u32::try_from(turn).unwrap_or(u32::MAX))
    }
}

/// What follows from the kernel's telling of a connection.
pub(crate) enum Told {
    Read(WantedRead),
    /// It has ended: if that need not wait for the ring, all of it is to be read.
    Ending {
        session: SessionKey,
        channel: ChannelId,
    },
}

/// What becomes of a connection that was fast.
pub(crate) enum Fast {
    IsNoMore,
    Nothing,
    Read(WantedRead),
}

impl Connections {
    fn are_read_seldom(&self) -> bool {
        self.segment_times
            .as_ref()
            .is_some_and(SegmentTimes::is_needed)
    }

    /// What is to be read of a connection because the kernel has told of it.
    pub(crate) fn told(&mut self, place: usize, runtime: &mut Runtime) -> Told {
        let Some(stream) = self.streams.get_mut(place) else {
            return Told::Read(WantedRead::Nothing);
        };
        let (ended, state) = (stream.ended, &stream.state);
        let Some(watched) = stream.watched.as_mut().filter(|watched| watched.seldom) else {
            return Told::Read(WantedRead::All);
        };
        if watched.ending {
            return Told::Read(WantedRead::Nothing);
        }
        if ended && let State::Open { session, channel } = *state {
            watched.ending = true;
            return Told::Ending { session, channel };
        }
        // One that was fast, ended, and is so again at the same place may be there still.
        if !std::mem::replace(&mut watched.fast, true) && !self.turns.fast.contains(&place) {
            self.turns.fast.push(place);
        }
        let known = watched.known();
        let wanted = match known {
            0 => WantedRead::Nothing,
            _ => WantedRead::Known(known),
        };
        // What the ring has missed it will not show any more.
        if watched.with(|segments| segments.has_gap()) == Some(true) {
            return Told::Read(WantedRead::All);
        }
        // The ring may be behind. Nobody who sends is to be kept waiting for that, and what is left
        // there would have the kernel tell of it again all the sooner.
        Told::Read(match watched.hold(&stream.socket, runtime.turn) {
            Holding::All => wanted,
            // Times are then those of reading, and counted as such.
            Holding::Full => WantedRead::All,
            Holding::Ended | Holding::Broken => {
                stream.ended = true;
                runtime.readiness.read_later(Place::Connection(place));
                wanted
            }
        })
    }

    /// Less was read of a connection than the ring has shown.
    pub(super) fn came_short(&self, place: usize, now: Time) {
        if let Some(stream) = self.streams.get(place)
            && let Some(watched) = &stream.watched
        {
            watched.with(|segments| {
                if segments.oldest().is_some_and(|at| at + NOT_TAKEN < now) {
                    segments.nothing_more();
                }
            });
        }
    }

    /// The session of a connection that could be read seldom from now on, if media comes in it.
    pub(crate) fn could_be_seldom(&self, place: usize) -> Option<SessionKey> {
        let stream = self.streams.get(place)?;
        let State::Open { session, .. } = stream.state else {
            return None;
        };
        let watched = stream.watched.as_ref()?;
        (!watched.seldom && !stream.ended && !stream.prompt).then_some(session)
    }

    /// From now on a connection with media in it is read seldom, if the ring shows when that comes.
    pub(crate) fn read_seldom(&mut self, place: usize) {
        let Some(stream) = self.streams.get_mut(place) else {
            return;
        };
        let Some(watched) = stream.watched.as_mut() else {
            return;
        };
        if watched.with(|segments| segments.is_known()) != Some(true) {
            if let Some(times) = &self.segment_times {
                times.hurry();
            }
            return;
        }
        // Where it is refused, it goes on as it was.
        if watched.be_told_seldom(&stream.socket).is_ok() {
            watched.be_seldom(Some(place));
        }
    }

    /// From now on the connection is read whenever the kernel tells of it.
    pub(crate) fn read_at_once(&mut self, place: usize) {
        if let Some(stream) = self.streams.get_mut(place)
            && let Some(watched) = &mut stream.watched
        {
            watched.be_seldom(None);
        }
    }

    /// When there is the next turn.
    pub(crate) fn next_turn(&self) -> Time {
        match self.are_read_seldom() {
            true => Time::from_nanos((self.turns.taken + 1) * SHARE.as_nanos() as u64),
            false => Time::NEVER,
        }
    }

    /// The turns that have come; none where nothing is read seldom.
    pub(crate) fn take_turns(&mut self, now: Time) -> Option<std::ops::Range<u64>> {
        let turn = now.as_nanos() / SHARE.as_nanos() as u64;
        // Nobody's turn comes twice because the loop was late.
        let from = self.turns.taken.max(turn.saturating_sub(SHARES as u64));
        self.turns.taken = turn;
        if !self.are_read_seldom() {
            self.turns.leaving.clear();
            return None;
        }
        Some(from..turn)
    }

    /// Takes in what the ring has shown of those whose turn it is, and gives their places.
    pub(crate) fn places_of_turn(&mut self, turn: u64) -> Vec<usize> {
        let mut places = std::mem::take(&mut self.turns.places);
        if let Some(times) = &self.segment_times {
            let share = usize::try_from(turn % SHARES as u64).unwrap_or(0);
            times.begin_turn(share, &mut places);
        }
        places
    }

    /// Takes the memory of [`Connections::places_of_turn`] back.
    pub(crate) fn turn_ended(&mut self, mut places: Vec<usize>) {
        places.clear();
        self.turns.places = places;
    }

    /// What is to be read of a connection whose turn it is, which was due at `planned`, unless it
    /// was just read.
    pub(crate) fn wanted_in_turn(&self, place: usize, now: Time, planned: Time) -> WantedRead {
        let watched = self.streams.get(place);
        let watched = watched.and_then(|stream| stream.watched.as_ref());
        match watched.is_some_and(|watched| now.since(watched.read) < READ_INTERVAL / 2) {
            true => WantedRead::Nothing,
            false => self.wanted_by(place, now, planned),
        }
    }

    /// The turns of all connections: at the end of a window, which is to hold what came in it.
    /// While clients are being added, windows would else miss some of what came: 3.5 % where their
    /// number grows by a quarter a second.
    pub(crate) fn all_turns(&self) -> std::ops::Range<u64> {
        match self.are_read_seldom() {
            true => 0..SHARES as u64,
            false => 0..0,
        }
    }

    /// What is to be read of a connection, up to what the ring was to have shown at that time.
    pub(crate) fn wanted_by(&self, place: usize, now: Time, planned: Time) -> WantedRead {
        let watched = self.streams.get(place);
        let watched = watched.and_then(|stream| stream.watched.as_ref());
        let Some(watched) = watched.filter(|watched| watched.seldom && !watched.ending) else {
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
            // What the ring has missed it will not show any more.
            Some((_, true)) => WantedRead::All,
            Some((0, false)) | None if unheard => WantedRead::All,
            Some((0, false)) | None => WantedRead::Nothing,
        }
    }

    /// What is to be read of a connection, of all that is known to have come.
    pub(crate) fn known(&self, place: usize) -> WantedRead {
        let watched = self.streams.get(place);
        let watched = watched.and_then(|stream| stream.watched.as_ref());
        match watched.filter(|watched| watched.seldom && !watched.ending) {
            Some(watched) => match watched.known() {
                0 => WantedRead::Nothing,
                known => WantedRead::Known(known),
            },
            None => WantedRead::Nothing,
        }
    }

    /// The fast connections, where it is time to look at them.
    pub(crate) fn take_fast(&mut self, now: Time) -> Option<Vec<usize>> {
        if self.turns.fast.is_empty() || now < self.turns.looked + LOOK_AT_FAST {
            return None;
        }
        self.turns.looked = now;
        Some(std::mem::take(&mut self.turns.fast))
    }

    /// Puts those back that are fast still.
    pub(crate) fn put_fast(&mut self, mut places: Vec<usize>) {
        // Nothing that is heard meanwhile adds one, but let none be lost if it did.
        places.append(&mut self.turns.fast);
        self.turns.fast = places;
    }

    /// Whether a connection is fast still, and what is to be read of it.
    pub(crate) fn look_at_fast(&mut self, place: usize, now: Time) -> Fast {
        let watched = self.streams.get_mut(place);
        let watched = watched.and_then(|stream| stream.watched.as_mut());
        // The place may be another's by now.
        let Some(watched) = watched.filter(|watched| watched.fast) else {
            return Fast::IsNoMore;
        };
        let known = watched.known();
        watched.fast = watched.seldom && now.since(watched.read) < READ_INTERVAL / 2;
        match watched.fast {
            false => Fast::IsNoMore,
            true if watched.ending || known < WITH_OTHERS => Fast::Nothing,
            true => Fast::Read(WantedRead::Known(known)),
        }
    }

    /// A session is to end soon: what comes for it is read more often, for nobody is to wait for
    /// that.
    pub(crate) fn leaves(&mut self, key: SessionKey) {
        if self.are_read_seldom() {
            self.turns.leaving.push(key);
        }
    }

    /// The sessions that are to end soon; to be put back as long as they are there.
    pub(crate) fn take_leaving(&mut self) -> Vec<SessionKey> {
        std::mem::take(&mut self.turns.leaving)
    }
}

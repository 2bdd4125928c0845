//! Media sockets that are read in turn, not whenever something comes.
//!
//! To be told of each datagram and to fetch it alone costs more than all else that is done for it.
//! Arrival times are the kernel's, so that nothing is measured worse if a socket is read every
//! [`INTERVAL`], and then gives all that has come; of a slow stream less often. From its first
//! packet on a media socket is read so, if its buffer has room for much more than can be expected
//! meanwhile; one of a fast stream, which brings many datagrams at once anyway, is not.
//!
//! Whatever a session hears, it hears after the media that came before: its sockets are read then.

use std::io;
use std::time::Duration;

use measure::Time;
use net::batch::ReceiveBatch;

use super::Worker;
use super::keys::{Place, SessionKey};
use super::sessions::Channel;
use super::sockets::Socket;

/// How often a socket is read.
///
/// Measured over loopback with two testers beside each other, 600 clients of 1 Mb/s each (2 cores
/// of a busy virtual machine, Linux 6.18), processor time a packet against that with 50 ms: at once
/// 2.4, 25 ms 1.14, 100 ms 0.91.
pub(super) const INTERVAL: Duration = Duration::from_millis(50);

/// In how many parts the sockets are read, one after the other, so that the loop is never long at
/// it.
const SHARES: usize = 5;

/// How large a socket's receive buffer must be for it, as the kernel counts (`SO_RCVBUF`, twice
/// what was asked for; socket(7)): of usual datagrams it takes 900, more than a stream of 100 Mb/s
/// brings in one interval.
pub(super) const ROOM: usize = 2 << 20;

/// A socket that has brought fewer than so many datagrams is read half as often from then on, and
/// one that has brought more than [`MANY`] twice as often: a look that finds little costs as much
/// as one that finds much.
const FEW: usize = 4;
const MANY: usize = 32;

/// How often that halves: a socket is read every 0.4 s at the least, and at the end of each window.
const LEVELS: u32 = 3;

/// A socket that brings more than so many datagrams at a time, or one of [`FAST_BYTES`], is read at
/// once from then on.
pub(super) const FAST: usize = 256;
pub(super) const FAST_BYTES: usize = ROOM / 8;

/// How many datagrams are read at a time: more than a buffer holds, unless it is larger than need
/// be.
const MOST: usize = 4096;

/// A socket that is read in turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    place: usize,
    key: SessionKey,
    /// How many turns it sits out before the next.
    idle: u32,
    /// It is read once in 2 to the power of this many turns.
    level: u32,
}

impl Turn {
    /// Takes in how many datagrams it brought.
    fn brought(&mut self, count: usize) {
        if count < FEW {
            self.level = LEVELS.min(self.level + 1);
        } else if count > MANY {
            self.level = self.level.saturating_sub(1);
        }
        self.idle = (1 << self.level) - 1;
    }
}

/// The sockets that are read in turn.
pub(super) struct Turns {
    shares: [Vec<Turn>; SHARES],
    /// Which share the next socket goes to.
    next: usize,
    /// How many shares have had their turn since the run began.
    taken: u64,
    pub(super) batch: Option<ReceiveBatch>,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns {
            shares: Default::default(),
            next: 0,
            taken: 0,
            batch: Some(ReceiveBatch::new()),
        }
    }
}

/// Whether a socket goes on being read in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// And has brought so many datagrams.
    Goes(usize),
    IsFast,
    IsGone,
}

impl Worker {
    /// From now on a media socket is read in turn, if it can be.
    pub(super) fn read_in_turns(&mut self, place: usize) {
        let Some(Socket::Udp(end)) = self.sockets.get_mut(place) else {
            return;
        };
        let room = net::options::receive_buffer(&end.socket).unwrap_or(0);
        if end.in_turn || end.was_fast || end.trace.is_some() || room < ROOM {
            return;
        }
        if self.runtime.readiness.forget(&mut end.socket).is_err() {
            return;
        }
        end.in_turn = true;
        let key = end.session;
        let share = self.turns.next % SHARES;
        self.turns.next += 1;
        self.turns.shares[share].push(Turn {
            place,
            key,
            idle: 0,
            level: 0,
        });
        if let Some(slot) = self.slot(key) {
            slot.in_batches = true;
        }
    }

    /// When [`Worker::read_sockets_in_turn`] finds the next to read.
    pub(super) fn sockets_due(&self) -> Time {
        let length = INTERVAL / SHARES as u32;
        let turns = self.turns.taken..self.turns.taken + SHARES as u64;
        let share = |turn: u64| &self.turns.shares[(turn % SHARES as u64) as usize];
        let next = turns.into_iter().find(|&turn| !share(turn).is_empty());
        next.map_or(Time::NEVER, |turn| {
            Time::from_nanos((turn + 1) * length.as_nanos() as u64)
        })
    }

    /// Reads the sockets whose turn it is.
    pub(super) fn read_sockets_in_turn(&mut self, now: Time) {
        let length = INTERVAL / SHARES as u32;
        let turn = now.as_nanos() / length.as_nanos() as u64;
        // Nobody's turn comes twice because the loop was late.
        let from = self.turns.taken.max(turn.saturating_sub(SHARES as u64));
        self.turns.taken = turn;
        for turn in from..turn {
            let share = usize::try_from(turn % SHARES as u64).unwrap_or(0);
            self.read_share(share, |worker, turn| {
                if turn.idle > 0 {
                    turn.idle -= 1;
                    return true;
                }
                match worker.read_media(turn.place, turn.key) {
                    Verdict::Goes(count) => {
                        turn.brought(count);
                        true
                    }
                    Verdict::IsFast | Verdict::IsGone => false,
                }
            });
        }
        self.settle();
    }

    /// Reads all that are read in turn, whosever turn it is.
    pub(super) fn read_all_sockets(&mut self) {
        for share in 0..SHARES {
            self.read_share(share, |worker, turn| {
                matches!(worker.read_media(turn.place, turn.key), Verdict::Goes(_))
            });
        }
        self.settle();
    }

    /// Has `read` read each socket of a share, and say whether it goes on being read so.
    fn read_share(&mut self, share: usize, mut read: impl FnMut(&mut Worker, &mut Turn) -> bool) {
        let mut sockets = std::mem::take(&mut self.turns.shares[share]);
        sockets.retain_mut(|turn| read(self, turn));
        // What is heard meanwhile adds no socket, but let none be lost if it did.
        sockets.append(&mut self.turns.shares[share]);
        self.turns.shares[share] = sockets;
    }

    /// Reads what has come for a session's media sockets, before it hears of something else.
    pub(super) fn hear_media_first(&mut self, key: SessionKey) {
        self.hear_groups_first(key);
        self.hear_datagrams_first(key, false);
        let Some(slot) = self.slot(key).filter(|slot| slot.in_batches) else {
            return;
        };
        let own = |(_, channel): &(_, Channel)| match *channel {
            Channel::Pair {
                media,
                shared: false,
                ..
            } => Some(media),
            _ => None,
        };
        let places: Vec<usize> = slot.channels.iter().filter_map(own).collect();
        for place in places {
            self.read_media(place, key);
        }
    }

    /// Reads all that a media socket holds; what the session is to hear of it is pending then.
    fn read_media(&mut self, place: usize, key: SessionKey) -> Verdict {
        let Some(mut batch) = self.turns.batch.take() else {
            return Verdict::Goes(0);
        };
        let clock = self.runtime.clock.same_start();
        let (mut count, mut bytes) = (0, 0);
        let verdict = loop {
            let filled = match self.sockets.get(place) {
                Some(Socket::Udp(end)) if end.in_turn && end.session == key => {
                    batch.receive(&end.socket)
                }
                _ => break Verdict::IsGone,
            };
            let filled = match filled {
                Ok(filled) => filled,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    break Verdict::Goes(count);
                }
                // An error stands for one datagram or none.
                Err(_) if count < MOST => {
                    count += 1;
                    continue;
                }
                Err(_) => break Verdict::Goes(count),
            };
            if let Some(drops) = filled.drops {
                self.count_drops(place, drops);
            }
            for datagram in batch.datagrams(&clock) {
                count += 1;
                bytes += datagram.length;
                self.datagram(place, &datagram);
            }
            if !filled.more || count >= MOST {
                break Verdict::Goes(count);
            }
        };
        self.turns.batch = Some(batch);
        if verdict != Verdict::IsGone && (count > FAST || bytes > FAST_BYTES) {
            self.read_at_once_again(place);
            return Verdict::IsFast;
        }
        verdict
    }

    /// From now on a media socket is read whenever something comes, because so much does.
    pub(super) fn read_at_once_again(&mut self, place: usize) {
        let (socket, in_turn, was_fast) = match self.sockets.get_mut(place) {
            Some(Socket::Udp(end)) => (&mut end.socket, &mut end.in_turn, &mut end.was_fast),
            Some(Socket::Group(end)) => (&mut end.socket, &mut end.in_turn, &mut end.was_fast),
            _ => return,
        };
        let polled = self.runtime.readiness.poll(socket, Place::Socket(place));
        // Where that is refused, it stays as it is: read seldom is better than never.
        *in_turn = polled.is_err();
        *was_fast = true;
        self.runtime.readiness.read_later(Place::Socket(place));
    }
}

//! When media sockets are read in batches, and not whenever something comes.
//!
//! To be told of each datagram and to fetch it alone costs more than all else that is done for it.
//! Arrival times are the kernel's, so that nothing is measured worse if a socket is read every
//! [`INTERVAL`], and then gives all that has come; of a slow stream less often. From its first
//! packet on a media socket is read so, if its buffer has room for much more than can be expected
//! meanwhile; one of a fast stream, which brings many datagrams at once anyway, is not.
//!
//! Whatever a session hears, it hears after the media that came before: its sockets are read then.

use std::time::Duration;

use measure::Time;

use super::keys::SessionKey;

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
pub(super) const MOST: usize = 4096;

/// A socket that is read in batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketTurn {
    pub(super) place: usize,
    pub(super) key: SessionKey,
    /// How many turns it sits out before the next.
    idle: u32,
    /// It is read once in 2 to the power of this many turns.
    level: u32,
}

impl SocketTurn {
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

/// Whether a socket goes on being read in batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// And has brought so many datagrams.
    Goes(usize),
    IsFast,
    IsGone,
}

/// The sockets that are read in batches.
#[derive(Default)]
pub(super) struct BatchedReads {
    shares: [Vec<SocketTurn>; SHARES],
    /// Which share the next socket goes to.
    next: usize,
    /// How many shares have had their turn since the run began.
    taken: u64,
}

impl BatchedReads {
    /// A socket is read in batches from now on.
    pub(super) fn add(&mut self, place: usize, key: SessionKey) {
        let share = self.next % SHARES;
        self.next += 1;
        self.shares[share].push(SocketTurn {
            place,
            key,
            idle: 0,
            level: 0,
        });
    }

    /// When [`BatchedReads::read_due`] finds the next to read.
    pub(super) fn next(&self) -> Time {
        let length = INTERVAL / SHARES as u32;
        let turns = self.taken..self.taken + SHARES as u64;
        let share = |turn: u64| &self.shares[(turn % SHARES as u64) as usize];
        let next = turns.into_iter().find(|&turn| !share(turn).is_empty());
        next.map_or(Time::NEVER, |turn| {
            Time::from_nanos((turn + 1) * length.as_nanos() as u64)
        })
    }

    /// Has those read whose turn it is.
    pub(super) fn read_due(&mut self, now: Time, mut read: impl FnMut(&SocketTurn) -> Verdict) {
        let length = INTERVAL / SHARES as u32;
        let turn = now.as_nanos() / length.as_nanos() as u64;
        // Nobody's turn comes twice because the loop was late.
        let from = self.taken.max(turn.saturating_sub(SHARES as u64));
        self.taken = turn;
        for turn in from..turn {
            let share = usize::try_from(turn % SHARES as u64).unwrap_or(0);
            self.shares[share].retain_mut(|turn| {
                if turn.idle > 0 {
                    turn.idle -= 1;
                    return true;
                }
                match read(turn) {
                    Verdict::Goes(count) => {
                        turn.brought(count);
                        true
                    }
                    Verdict::IsFast | Verdict::IsGone => false,
                }
            });
        }
    }

    /// Has all read, whosever turn it is.
    pub(super) fn read_all(&mut self, mut read: impl FnMut(&SocketTurn) -> Verdict) {
        for share in &mut self.shares {
            share.retain(|turn| matches!(read(turn), Verdict::Goes(_)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_nanos(INTERVAL.as_nanos() as u64 / SHARES as u64);

    /// Reads what is due turn by turn, so many turns long; says after which of them something was
    /// read.
    fn read(reads: &mut BatchedReads, turns: u32, verdict: Verdict) -> Vec<u32> {
        let begun = u32::try_from(reads.taken).expect("few");
        let mut read = Vec::new();
        for turn in begun + 1..=begun + turns {
            let now = Time::from_start(LENGTH * turn);
            reads.read_due(now, |_| {
                read.push(turn);
                verdict
            });
        }
        read
    }

    #[test]
    fn a_socket_that_brings_little_is_read_half_as_often_and_half_of_that() {
        let mut reads = BatchedReads::default();
        assert_eq!(reads.next(), Time::NEVER);
        reads.add(7, SessionKey::NOBODY);
        assert_eq!(reads.next(), Time::from_start(LENGTH));
        let turns = SHARES as u32;
        let slow = read(&mut reads, 15 * turns, Verdict::Goes(FEW - 1));
        let rounds: Vec<u32> = slow.iter().map(|turn| (turn - 1) / turns).collect();
        assert_eq!(rounds, [0, 2, 6, 14]);
        let fast = read(&mut reads, 24 * turns, Verdict::Goes(MANY + 1));
        let rounds: Vec<u32> = fast.iter().map(|turn| (turn - 1) / turns).collect();
        assert_eq!(rounds[..5], [22, 26, 28, 29, 30]);
    }

    #[test]
    fn nobodys_turn_comes_twice_because_the_loop_was_late() {
        let mut reads = BatchedReads::default();
        reads.add(7, SessionKey::NOBODY);
        let mut count = 0;
        reads.read_due(Time::from_start(INTERVAL * 10), |_| {
            count += 1;
            Verdict::Goes(FEW)
        });
        assert_eq!(count, 1);
    }

    #[test]
    fn one_that_is_fast_or_gone_is_read_so_no_more() {
        for verdict in [Verdict::IsFast, Verdict::IsGone] {
            let mut reads = BatchedReads::default();
            reads.add(7, SessionKey::NOBODY);
            reads.read_all(|_| verdict);
            assert_eq!(reads.next(), Time::NEVER);
        }
    }
}

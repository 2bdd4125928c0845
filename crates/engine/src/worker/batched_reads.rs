//! Batched reads of media sockets, in place of reads on readiness.
//!
//! An event and a receive call for each datagram cost more than everything else that is done for
//! it. Arrival times are the kernel's, so measurements do not suffer if a socket is read every
//! [`INTERVAL`], and a slow stream even less often. A media socket is read in batches from its
//! first packet on, if its buffer has room for much more than is expected within the interval. A
//! fast stream, which delivers many datagrams at once anyway, is read on readiness.
//!
//! Before a session receives any input, its sockets are read, so that earlier media is counted
//! first.

use std::time::Duration;

use measure::Time;
use net::batch::ReceivedDatagram;

use super::ids::SessionKey;

/// Interval at which a socket is read.
///
/// Processor time for each packet, relative to 50 ms: 2.4 with reads on readiness, 1.14 with 25 ms,
/// 0.91 with 100 ms. Measured over loopback with two testers at the same time, 600 clients of 1
/// Mb/s each (2 cores of a busy virtual machine, Linux 6.18).
pub(super) const INTERVAL: Duration = Duration::from_millis(50);

/// Number of shares that are read one after the other, so that the loop is never busy with reading
/// for long.
const SHARES: usize = 5;

/// Minimum receive buffer for batched reads, as the kernel counts it (`SO_RCVBUF`, twice the
/// requested size; socket(7)). It holds about 900 datagrams of usual size, more than a stream of
/// 100 Mb/s delivers in one interval.
pub(super) const RECEIVE_BUFFER_MIN: usize = 2 << 20;

/// A socket that delivered fewer datagrams than this is read half as often from then on; a socket
/// that delivered more than [`MANY`] is read twice as often. A read that finds little costs as much
/// as one that finds much.
const FEW: usize = 4;
const MANY: usize = 32;

/// Maximum number of halvings: a socket is read at least every 0.4 s, and at the end of each
/// window.
const LEVELS: u32 = 3;

/// A socket that delivers more datagrams than this in one read, or more than [`FAST_BYTES`], is
/// read on readiness from then on.
const FAST: usize = 256;
const FAST_BYTES: usize = RECEIVE_BUFFER_MIN / 8;

/// Maximum number of datagrams in one read: more than a buffer holds, unless it is larger than
/// necessary.
pub(super) const DATAGRAMS_PER_READ_MAX: usize = 4096;

/// Totals of one read of a media socket.
#[derive(Default)]
pub(super) struct ReadTotals {
    pub(super) datagrams: usize,
    bytes: usize,
}

impl ReadTotals {
    #[inline]
    pub(super) fn add(&mut self, datagram: &ReceivedDatagram<'_>) {
        self.datagrams += 1;
        self.bytes += datagram.length;
    }

    /// Returns `true` if the socket delivered too much for batched reads.
    pub(super) fn are_fast(&self) -> bool {
        self.datagrams > FAST || self.bytes > FAST_BYTES
    }
}

/// A socket that is read in batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchedSocket {
    pub(super) place: usize,
    pub(super) key: SessionKey,
    /// Number of turns to skip before the next read.
    idle: u32,
    /// The socket is read once in 2 to the power of `level` turns.
    level: u32,
}

impl BatchedSocket {
    /// Adapts the interval to the number of datagrams that a read delivered.
    fn brought(&mut self, count: usize) {
        if count < FEW {
            self.level = LEVELS.min(self.level + 1);
        } else if count > MANY {
            self.level = self.level.saturating_sub(1);
        }
        self.idle = (1 << self.level) - 1;
    }
}

/// Number of datagrams of a batched read; `None` if batched reads of the socket end, because it is
/// fast or gone.
pub(super) type BatchRead = Option<usize>;

/// The sockets that are read in batches.
#[derive(Default)]
pub(super) struct BatchedReads {
    shares: [Vec<BatchedSocket>; SHARES],
    /// Share of the next socket.
    next: usize,
    /// Number of share turns since the start of the run.
    taken: u64,
}

impl BatchedReads {
    /// Starts batched reads of a socket.
    pub(super) fn add(&mut self, place: usize, key: SessionKey) {
        let share = self.next % SHARES;
        self.next += 1;
        self.shares[share].push(BatchedSocket {
            place,
            key,
            idle: 0,
            level: 0,
        });
    }

    /// Time at which [`BatchedReads::read_due`] next has a socket to read.
    pub(super) fn next(&self) -> Time {
        let length = INTERVAL / SHARES as u32;
        let turns = self.taken..self.taken + SHARES as u64;
        let share = |turn: u64| &self.shares[(turn % SHARES as u64) as usize];
        let next = turns.into_iter().find(|&turn| !share(turn).is_empty());
        next.map_or(Time::NEVER, |turn| {
            Time::from_nanos((turn + 1) * length.as_nanos() as u64)
        })
    }

    /// Reads the sockets that are due.
    pub(super) fn read_due(
        &mut self,
        now: Time,
        mut read: impl FnMut(&BatchedSocket) -> BatchRead,
    ) {
        let length = INTERVAL / SHARES as u32;
        let turn = now.as_nanos() / length.as_nanos() as u64;
        // No socket is read twice because the loop was late.
        let from = self.taken.max(turn.saturating_sub(SHARES as u64));
        self.taken = turn;
        for turn in from..turn {
            let share = usize::try_from(turn % SHARES as u64).unwrap_or(0);
            self.shares[share].retain_mut(|turn| {
                if turn.idle > 0 {
                    turn.idle -= 1;
                    return true;
                }
                let count = read(turn);
                count.inspect(|&count| turn.brought(count)).is_some()
            });
        }
    }

    /// Reads all sockets, due or not.
    pub(super) fn read_all(&mut self, mut read: impl FnMut(&BatchedSocket) -> BatchRead) {
        for share in &mut self.shares {
            share.retain(|turn| read(turn).is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_nanos(INTERVAL.as_nanos() as u64 / SHARES as u64);

    /// Reads what is due for `turns` turns. Returns the turns in which something was read.
    fn read(reads: &mut BatchedReads, turns: u32, verdict: BatchRead) -> Vec<u32> {
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
    fn socket_with_little_data_is_read_less_and_less_often() {
        let mut reads = BatchedReads::default();
        assert_eq!(reads.next(), Time::NEVER);
        reads.add(7, SessionKey::NONE);
        assert_eq!(reads.next(), Time::from_start(LENGTH));
        let turns = SHARES as u32;
        let slow = read(&mut reads, 15 * turns, Some(FEW - 1));
        let rounds: Vec<u32> = slow.iter().map(|turn| (turn - 1) / turns).collect();
        assert_eq!(rounds, [0, 2, 6, 14]);
        let fast = read(&mut reads, 24 * turns, Some(MANY + 1));
        let rounds: Vec<u32> = fast.iter().map(|turn| (turn - 1) / turns).collect();
        assert_eq!(rounds[..5], [22, 26, 28, 29, 30]);
    }

    #[test]
    fn late_loop_reads_each_socket_once() {
        let mut reads = BatchedReads::default();
        reads.add(7, SessionKey::NONE);
        let mut count = 0;
        reads.read_due(Time::from_start(INTERVAL * 10), |_| {
            count += 1;
            Some(FEW)
        });
        assert_eq!(count, 1);
    }

    #[test]
    fn batched_reads_end_for_fast_and_closed_sockets() {
        let mut reads = BatchedReads::default();
        reads.add(7, SessionKey::NONE);
        reads.read_all(|_| None);
        assert_eq!(reads.next(), Time::NEVER);
    }
}

//! Arrival times of the bytes of a TCP connection, from the headers of its segments.
//!
//! A read returns bytes without times of their own, but a [`crate::PacketRing`] shows each segment
//! with the kernel's time. [`SegmentArrivals`] combines the two: it converts sequence numbers (RFC
//! 9293, 3.4) to offsets in the stream, and records when each run of bytes had arrived. It does no
//! I/O and reads no clock.
//!
//! A byte is readable once all bytes before it have arrived. Bytes beyond a gap therefore have the
//! time at which the gap was filled, and a retransmission does not change the time of its bytes.
//! Segments that the ring missed are detected, because a read goes beyond the bytes seen;
//! [`ArrivalRun::exact`] is false for them.

use std::collections::VecDeque;

use measure::{ArrivalRun, Time};

/// Maximum number of separate runs of bytes per connection. Runs beyond it are merged.
const RUNS_MAX: usize = 4096;

/// Maximum number of runs beyond gaps. Others are treated as not seen.
const OUT_OF_ORDER_MAX: usize = 64;

/// Maximum distance of a segment from the bytes that have arrived: no window is larger (RFC 7323,
/// 2.3).
const WINDOW_MAX: u64 = 1 << 30;

/// Number of runs for which memory is kept while there are none.
const RUNS_RETAINED: usize = 32;

/// Contents of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Sequence number of the first byte, or of the SYN.
    pub sequence: u32,
    /// Length of the payload; the sum if the kernel merged several segments.
    pub length: usize,
    /// True if the segment opens the connection.
    pub syn: bool,
}

/// Completes the `runs` of a read of `count` bytes, for bytes at its end that the ring has not
/// seen. All of them arrived by `until`; if `exact`, the segment of the last byte arrived at that
/// time.
pub fn append_unseen(count: usize, until: Time, exact: bool, runs: &mut Vec<ArrivalRun>) {
    let known = runs.last().map_or(0, |run| run.end);
    let mut add = |end, exact| {
        let at = until;
        runs.push(ArrivalRun { end, at, exact });
    };
    if exact && count > known + 1 {
        add(count - 1, false);
    }
    if count > known {
        add(count, exact);
    }
}

/// Arrival times of the bytes of one connection in one direction.
#[derive(Clone, Debug, Default)]
pub struct SegmentArrivals {
    /// Sequence number of the stream's first byte.
    first: Option<u32>,
    /// All bytes before this offset have arrived.
    arrived: u64,
    /// All bytes before this offset have been read.
    read: u64,
    /// Bytes that arrived in order and have not been read.
    runs: VecDeque<StreamRun>,
    /// Bytes that arrived, or seem to have arrived, beyond a gap; in order, and separated by gaps.
    out_of_order: Vec<OutOfOrderRange>,
}

/// An [`ArrivalRun`] whose end is an offset in the stream.
#[derive(Clone, Copy, Debug)]
struct StreamRun {
    end: u64,
    at: Time,
    exact: bool,
}

#[derive(Clone, Copy, Debug)]
struct OutOfOrderRange {
    begin: u64,
    end: u64,
}

impl SegmentArrivals {
    /// Records a segment of this direction, in whatever order it arrives.
    #[inline]
    pub fn record_segment(&mut self, header: &SegmentHeader, at: Time) {
        // An answer to an earlier attempt from the same port may arrive late: the last SYN counts.
        if header.syn && (self.first.is_none() || (self.arrived == 0 && self.read == 0)) {
            self.first = Some(header.sequence.wrapping_add(1));
            self.out_of_order.clear();
            self.record_range(0, header.length as u64, at);
            return;
        }
        // Without the SYN, the position of a segment in the stream is unknown.
        let Some(first) = self.first else { return };
        if header.length == 0 {
            return;
        }
        // A SYN precedes the first byte.
        let sequence = header.sequence.wrapping_add(u32::from(header.syn));
        // Sequence numbers are offsets modulo 2^32: the offset meant is the one nearest to the
        // current position.
        let expected = first.wrapping_add(self.arrived as u32);
        let ahead = i64::from(sequence.wrapping_sub(expected) as i32);
        let Some(begin) = self.arrived.checked_add_signed(ahead) else {
            return;
        };
        if begin > self.arrived + WINDOW_MAX {
            return;
        }
        self.record_range(begin, begin + header.length as u64, at);
    }

    #[inline]
    fn record_range(&mut self, begin: u64, end: u64, at: Time) {
        if end <= self.arrived {
            // Before the bytes are read, it is not known which copy TCP accepted.
            if end > self.read {
                let again = self.runs.iter_mut().filter(|run| run.end > begin);
                again.for_each(|run| run.exact = false);
            }
            return;
        }
        if begin > self.arrived {
            self.insert_out_of_order(begin, end);
            return;
        }
        self.arrived = end;
        if !self.out_of_order.is_empty() {
            self.merge_out_of_order();
        }
        self.push(self.arrived, at, true);
    }

    /// Adds the bytes beyond a gap that has just been filled.
    fn merge_out_of_order(&mut self) {
        let joined = self.out_of_order.iter().take_while(|run| {
            let joins = run.begin <= self.arrived;
            if joins {
                self.arrived = self.arrived.max(run.end);
            }
            joins
        });
        let count = joined.count();
        self.out_of_order.drain(..count);
    }

    fn insert_out_of_order(&mut self, begin: u64, end: u64) {
        // Runs that the new one touches are merged with it.
        let from = self.out_of_order.partition_point(|run| run.end < begin);
        let to = self.out_of_order.partition_point(|run| run.begin <= end);
        match self.out_of_order.get(from..to) {
            Some([first, .., last] | [last @ first]) => {
                let run = OutOfOrderRange {
                    begin: first.begin.min(begin),
                    end: last.end.max(end),
                };
                self.out_of_order[from] = run;
                self.out_of_order.drain(from + 1..to);
            }
            _ if self.out_of_order.len() < OUT_OF_ORDER_MAX => self
                .out_of_order
                .insert(from, OutOfOrderRange { begin, end }),
            _ => {}
        }
    }

    fn push(&mut self, end: u64, at: Time, exact: bool) {
        if end <= self.read {
            return;
        }
        if self.runs.len() >= RUNS_MAX
            && let Some(last) = self.runs.back_mut()
        {
            *last = StreamRun {
                end,
                at,
                exact: false,
            };
            return;
        }
        self.runs.push_back(StreamRun { end, at, exact });
    }

    /// Reads the memory that [`SegmentArrivals::record_segment`] will need, to bring it into the
    /// caches. The result has no meaning.
    #[inline]
    pub fn touch(&self) -> u64 {
        self.arrived ^ self.runs.back().map_or(0, |run| run.end)
    }

    /// Returns `true` if the ring saw the start of the connection, without which nothing is known
    /// about it.
    pub fn saw_start(&self) -> bool {
        self.first.is_some()
    }

    /// Returns `true` if bytes beyond a gap were seen. The bytes in the gap were lost, delayed, or
    /// missed by the ring.
    pub fn has_gap(&self) -> bool {
        !self.out_of_order.is_empty()
    }

    /// Number of bytes that have arrived and have not been read, as far as known.
    pub fn unread(&self) -> usize {
        usize::try_from(self.arrived.saturating_sub(self.read)).unwrap_or(usize::MAX)
    }

    /// Number of unread bytes that arrived before `time`.
    pub fn unread_before(&self, time: Time) -> usize {
        let before = self.runs.iter().take_while(|run| run.at < time);
        let end = before.last().map_or(self.read, |run| run.end);
        usize::try_from(end.saturating_sub(self.read)).unwrap_or(usize::MAX)
    }

    /// Arrival time of the first unread byte.
    pub fn oldest(&self) -> Option<Time> {
        self.runs.front().map(|run| run.at)
    }

    /// Records that the next `count` bytes were read, all of which had arrived by `until`, and
    /// appends their times to `runs`. The ends of the runs are in order, and the last one is
    /// `count`.
    ///
    /// If the segment of the last byte was not seen, `exact` tells whether it arrived at `until`.
    pub fn record_read(
        &mut self,
        count: usize,
        until: Time,
        exact: bool,
        runs: &mut Vec<ArrivalRun>,
    ) {
        let begin = self.read;
        let end = begin + count as u64;
        self.read = end;
        let within = |offset: u64| usize::try_from(offset.saturating_sub(begin)).unwrap_or(0);
        while let Some(&run) = self.runs.front() {
            runs.push(ArrivalRun {
                end: within(run.end.min(end)),
                at: run.at,
                exact: run.exact,
            });
            if run.end > end {
                return;
            }
            self.runs.pop_front();
            if run.end == end {
                break;
            }
        }
        if self.arrived < end {
            self.read_past(end, until);
            append_unseen(count, until, exact, runs);
        }
        if self.runs.is_empty() && self.runs.capacity() > RUNS_RETAINED {
            self.runs = VecDeque::new();
        }
    }

    /// More was read than seen, so it had arrived. Bytes seen beyond the read are still to be read.
    fn read_past(&mut self, end: u64, until: Time) {
        self.arrived = end;
        self.out_of_order.retain(|beyond| beyond.end > end);
        if self.out_of_order.first().is_some_and(|b| b.begin <= end) {
            self.merge_out_of_order();
            self.push(self.arrived, until, false);
        }
    }

    /// Records that there was nothing more to read. Bytes that seem to have arrived are not part of
    /// the stream yet, because TCP did not accept their segment (wrong checksum, no space,
    /// firewall). The segment will be retransmitted.
    pub fn forget_unread(&mut self) {
        self.arrived = self.read;
        self.runs.clear();
        self.out_of_order.clear();
    }
}

#[cfg(test)]
mod tests;

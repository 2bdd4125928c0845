//! When the bytes of a TCP connection arrived, from the headers of its segments.
//!
//! A read of a connection gives bytes and no times of their own; but a [`crate::PacketRing`] shows
//! each segment with the kernel's time. [`Segments`] puts the two together: it turns sequence
//! numbers (RFC 9293, 3.4) into offsets in the stream, and keeps until when each run of bytes had
//! come. Pure: no I/O, no clock.
//!
//! A byte can be read once all before it have come. So what arrived before a gap was filled has the
//! time at which the gap was filled, and what is sent once more changes nothing. What the ring has
//! missed is known not to be known: a read goes past it, and [`Run::exact`] says so.

use std::collections::VecDeque;

use measure::{Run, Time};

/// How many runs of bytes are kept apart for one connection. Those beyond that are told of
/// together.
const RUNS_MAX: usize = 4096;

/// How many runs behind gaps are kept. Others are taken for not seen.
const BEYOND_MAX: usize = 64;

/// How far beyond what has come a segment may be: no window is larger (RFC 7323, 2.3).
const WINDOW_MAX: u64 = 1 << 30;

/// For how many runs memory is kept while there are none.
const RUNS_LASTING: usize = 32;

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sequence number of its first byte, or of its SYN.
    pub sequence: u32,
    /// How many bytes of payload it has; of one that the kernel has put together from several, of
    /// all.
    pub length: usize,
    /// Whether it opens the connection.
    pub syn: bool,
}

/// Adds to `runs` what is known of the times of so many bytes that were read, behind those that
/// `runs` tells of: all came by `until`, and with `exact` the last one in a segment that came just
/// then.
pub fn not_seen(count: usize, until: Time, exact: bool, runs: &mut Vec<Run>) {
    let known = runs.last().map_or(0, |run| run.end);
    let mut add = |end, exact| {
        let at = until;
        runs.push(Run { end, at, exact });
    };
    if exact && count > known + 1 {
        add(count - 1, false);
    }
    if count > known {
        add(count, exact);
    }
}

/// The times of one connection's bytes in one direction.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// The sequence number of the stream's first byte.
    first: Option<u32>,
    /// All bytes before this offset have come.
    arrived: u64,
    /// All bytes before this offset have been read.
    read: u64,
    /// What has come in order and has not been read.
    runs: VecDeque<Kept>,
    /// What has come, or seems to have, before something that is missing; apart from each other, in
    /// order.
    beyond: Vec<Beyond>,
}

/// As a [`Run`], by its end's offset in the stream.
#[derive(Clone, Copy, Debug)]
struct Kept {
    end: u64,
    at: Time,
    exact: bool,
}

#[derive(Clone, Copy, Debug)]
struct Beyond {
    begin: u64,
    end: u64,
}

impl Segments {
    /// Takes in a segment of this direction, whichever it is.
    #[inline]
    pub fn arrived(&mut self, header: &Header, at: Time) {
        let Some(first) = self.first else {
            // Without it nothing is known of where in the stream a segment belongs.
            if header.syn {
                self.first = Some(header.sequence.wrapping_add(1));
                self.bytes(0, header.length as u64, at);
            }
            return;
        };
        // Of an attempt before, from the same port, an answer may come late: the last one holds.
        if header.syn && self.arrived == 0 && self.read == 0 {
            self.first = Some(header.sequence.wrapping_add(1));
            self.beyond.clear();
            self.bytes(0, header.length as u64, at);
            return;
        }
        if header.length == 0 {
            return;
        }
        // A SYN stands before the first byte.
        let sequence = header.sequence.wrapping_add(u32::from(header.syn));
        // Sequence numbers are offsets modulo 2^32: the one meant is that next to where the stream
        // is.
        let expected = first.wrapping_add(self.arrived as u32);
        let ahead = i64::from(sequence.wrapping_sub(expected) as i32);
        let Some(begin) = self.arrived.checked_add_signed(ahead) else {
            return;
        };
        if begin > self.arrived + WINDOW_MAX {
            return;
        }
        self.bytes(begin, begin + header.length as u64, at);
    }

    #[inline]
    fn bytes(&mut self, begin: u64, end: u64, at: Time) {
        if end <= self.arrived {
            // Which of the copies was taken is not known as long as they are not read.
            if end > self.read {
                let again = self.runs.iter_mut().filter(|run| run.end > begin);
                again.for_each(|run| run.exact = false);
            }
            return;
        }
        if begin > self.arrived {
            self.keep_beyond(begin, end);
            return;
        }
        self.arrived = end;
        if !self.beyond.is_empty() {
            self.join();
        }
        self.push(self.arrived, at, true);
    }

    /// What was waiting for the bytes that have just come has come with them.
    fn join(&mut self) {
        let joined = self.beyond.iter().take_while(|run| {
            let joins = run.begin <= self.arrived;
            if joins {
                self.arrived = self.arrived.max(run.end);
            }
            joins
        });
        let count = joined.count();
        self.beyond.drain(..count);
    }

    fn keep_beyond(&mut self, begin: u64, end: u64) {
        // Runs that the new one touches become one with it.
        let from = self.beyond.partition_point(|run| run.end < begin);
        let to = self.beyond.partition_point(|run| run.begin <= end);
        match self.beyond.get(from..to) {
            Some([first, .., last] | [last @ first]) => {
                let run = Beyond {
                    begin: first.begin.min(begin),
                    end: last.end.max(end),
                };
                self.beyond[from] = run;
                self.beyond.drain(from + 1..to);
            }
            _ if self.beyond.len() < BEYOND_MAX => self.beyond.insert(from, Beyond { begin, end }),
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
            *last = Kept {
                end,
                at,
                exact: false,
            };
            return;
        }
        self.runs.push_back(Kept { end, at, exact });
    }

    /// Reads of it what [`Segments::arrived`] will need, so that the processor has it at hand; what
    /// is returned means nothing.
    #[inline]
    pub fn look(&self) -> u64 {
        self.arrived ^ self.runs.back().map_or(0, |run| run.end)
    }

    /// Whether the beginning of the connection was seen, without which nothing is known of it.
    pub fn is_known(&self) -> bool {
        self.first.is_some()
    }

    /// Whether bytes have been seen before which others have not: lost on the way, late, or missed.
    pub fn has_gap(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// How many bytes have come that have not been read, as far as is known.
    pub fn unread(&self) -> usize {
        usize::try_from(self.arrived.saturating_sub(self.read)).unwrap_or(usize::MAX)
    }

    /// How many of them came before that time.
    pub fn unread_before(&self, time: Time) -> usize {
        let before = self.runs.iter().take_while(|run| run.at < time);
        let end = before.last().map_or(self.read, |run| run.end);
        usize::try_from(end.saturating_sub(self.read)).unwrap_or(usize::MAX)
    }

    /// When the first of them came.
    pub fn oldest(&self) -> Option<Time> {
        self.runs.front().map(|run| run.at)
    }

    /// Takes in that the next `count` bytes were read, which had all come by `until`, and adds to
    /// `runs` what is known of their times. The ends of those are in order, and the last one is
    /// `count`.
    ///
    /// `exact` says whether `until` is when the segment came that bore the last of the bytes, for
    /// the case that it has not been seen.
    pub fn take(&mut self, count: usize, until: Time, exact: bool, runs: &mut Vec<Run>) {
        let begin = self.read;
        let end = begin + count as u64;
        self.read = end;
        let within = |offset: u64| usize::try_from(offset.saturating_sub(begin)).unwrap_or(0);
        while let Some(&run) = self.runs.front() {
            runs.push(Run {
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
            not_seen(count, until, exact, runs);
        }
        if self.runs.is_empty() && self.runs.capacity() > RUNS_LASTING {
            self.runs = VecDeque::new();
        }
    }

    /// More was read than was seen: so it had come. What was seen beyond that still is to be read.
    fn read_past(&mut self, end: u64, until: Time) {
        self.arrived = end;
        self.beyond.retain(|beyond| beyond.end > end);
        if self.beyond.first().is_some_and(|b| b.begin <= end) {
            self.join();
            self.push(self.arrived, until, false);
        }
    }

    /// Takes in that nothing more was to be read: what seemed to have come since is no part of the
    /// stream yet, because TCP did not take the segment (a wrong checksum, no room, a firewall). It
    /// will come once more.
    pub fn nothing_more(&mut self) {
        self.arrived = self.read;
        self.runs.clear();
        self.beyond.clear();
    }
}

#[cfg(test)]
mod tests;

//! One direction of a connection: reliable, in order, split anywhere.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Payload of a full TCP segment in bytes. A piece has up to eight.
const SEGMENT: u64 = 1460;

/// Maximum delay between pieces of one send, in nanoseconds.
const GAP_MAX: u64 = 200_000;

/// Bytes in transit from one end to the other.
#[derive(Debug)]
pub(super) struct Stream {
    delay: Duration,
    rng: Pcg64,
    bytes: VecDeque<u8>,
    /// Arrival times and lengths of the pieces.
    pieces: VecDeque<(Time, usize)>,
    last: Time,
    /// Arrival time of the end, once it was sent.
    end: Option<Time>,
}

impl Stream {
    pub(super) fn new(delay: Duration, seed: u64) -> Stream {
        Stream {
            delay,
            rng: Pcg64::seed_from_u64(seed),
            bytes: VecDeque::new(),
            pieces: VecDeque::new(),
            last: Time::ZERO,
            end: None,
        }
    }

    /// Sends bytes, and calls `arrives` with each time at which some of them become readable.
    pub(super) fn send(&mut self, now: Time, parts: [&[u8]; 2], mut arrives: impl FnMut(Time)) {
        let mut left = parts.iter().map(|part| part.len()).sum::<usize>();
        for part in parts {
            self.bytes.extend(part);
        }
        while left > 0 {
            // Mostly long pieces, and some of a few bytes, which find the bugs.
            let (max, apart) = match up_to(&mut self.rng, 7) {
                0 => (8, up_to(&mut self.rng, GAP_MAX)),
                1 => (SEGMENT, up_to(&mut self.rng, GAP_MAX)),
                _ => (SEGMENT * 8, 0),
            };
            let length = (1 + up_to(&mut self.rng, max - 1) as usize).min(left);
            left -= length;
            let at = (now + self.delay).max(self.last) + Duration::from_nanos(apart);
            self.last = at;
            match self.pieces.back_mut() {
                Some((last, bytes)) if *last == at => *bytes += length,
                _ => {
                    self.pieces.push_back((at, length));
                    arrives(at);
                }
            }
        }
    }

    /// Sends the end, and returns its arrival time.
    pub(super) fn end(&mut self, now: Time) -> Time {
        let at = (now + self.delay).max(self.last);
        self.end = Some(at);
        at
    }

    /// Reads all bytes that have arrived into `out`. Returns `true` if the end has arrived.
    pub(super) fn read(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        while let Some(&(at, length)) = self.pieces.front()
            && at <= now
        {
            self.pieces.pop_front();
            out.extend(self.bytes.drain(..length));
        }
        self.pieces.is_empty() && self.end.is_some_and(|at| at <= now)
    }
}

/// Returns a random number from 0 to `max`, inclusive.
fn up_to(rng: &mut impl Rng, max: u64) -> u64 {
    rng.random_range(0..=max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_however_they_are_split() {
        let mut stream = Stream::new(Duration::from_millis(5), 3);
        let mut times = Vec::new();
        let mut sent = Vec::new();
        for number in 0..200u64 {
            let part = vec![number as u8; (number * 37 % 4000) as usize];
            let now = Time::from_nanos(number * 10_000);
            stream.send(now, [&[1, 2], &part], |at| times.push(at));
            sent.extend_from_slice(&[1, 2]);
            sent.extend_from_slice(&part);
        }
        times.push(stream.end(Time::from_nanos(2_000_000)));
        assert!(times.is_sorted() && times[0] >= Time::from_nanos(5_000_000));
        let (mut read, mut reads, mut ended) = (Vec::new(), 0, false);
        for at in times {
            assert!(!ended || read.len() == sent.len());
            let before = read.len();
            ended = stream.read(at, &mut read);
            reads += usize::from(read.len() > before);
        }
        assert!(ended && reads > 50, "{reads}");
        assert_eq!(read, sent);
    }
}

//! Rates in acknowledgements (draft-sharabayko-srt-01, 3.2.4 and 5.2.1.3), estimated as in libsrt:
//! from the intervals between packets, not as a mean. Senders in message mode use the rate at the
//! end of slow start (5.2.1.1), so a mean that includes pauses would slow them down.

use measure::Time;

use super::AckRates;
use crate::codec::packet::HEADER;
use crate::seq::SeqNumber;

/// Number of intervals between packets, as in libsrt.
const ARRIVALS: usize = 16;

/// Number of intervals within packet pairs, as in libsrt.
const PAIRS: usize = 64;

/// Senders send one packet pair for every 16 packets, as in libsrt.
const PAIR_EVERY: u32 = 16;

/// Bytes of the IPv4, UDP and SRT headers, which the byte rate includes.
const HEADERS: u32 = 28 + HEADER as u32;

/// Maximum payload of libsrt, to which intervals of pairs are scaled.
const REFERENCE_PAYLOAD: u64 = 1456;

/// Initial intervals: 1 s between packets, 1 ms within a pair.
const FIRST_INTERVAL: u32 = 1_000_000;
const FIRST_PAIR: u32 = 1_000;

/// Intervals between recent packets, in microseconds.
#[derive(Debug)]
pub(super) struct RateEstimator {
    last: Option<Time>,
    intervals: [u32; ARRIVALS],
    payloads: [u32; ARRIVALS],
    next_interval: u8,
    next_pair: u8,
    /// First packet of a pair, and its arrival time.
    pair: Option<(SeqNumber, Time)>,
    pairs: Box<[u32; PAIRS]>,
}

impl Default for RateEstimator {
    fn default() -> RateEstimator {
        RateEstimator {
            last: None,
            intervals: [FIRST_INTERVAL; ARRIVALS],
            payloads: [REFERENCE_PAYLOAD as u32; ARRIVALS],
            next_interval: 0,
            next_pair: 0,
            pair: None,
            pairs: Box::new([FIRST_PAIR; PAIRS]),
        }
    }
}

impl RateEstimator {
    /// Adds a packet that arrived at `at`. Retransmissions and reordered packets (`out_of_order`)
    /// are not used for the capacity.
    #[inline]
    pub(super) fn packet(
        &mut self,
        sequence: SeqNumber,
        payload: usize,
        at: Time,
        out_of_order: bool,
    ) {
        let payload = payload as u32;
        if let Some(last) = self.last.replace(at) {
            let index = usize::from(self.next_interval) % ARRIVALS;
            self.intervals[index] = micros(last, at);
            self.payloads[index] = payload;
            self.next_interval = self.next_interval.wrapping_add(1);
        }
        match sequence.value() % PAIR_EVERY {
            0 => self.pair = (!out_of_order).then_some((sequence, at)),
            1 => {
                if let Some((first, began)) = self.pair.take()
                    && first.next() == sequence
                    && !out_of_order
                {
                    self.end_of_pair(micros(began, at), payload);
                }
            }
            _ => {}
        }
    }

    #[cold]
    fn end_of_pair(&mut self, interval: u32, payload: u32) {
        let usual = u64::from(interval) * REFERENCE_PAYLOAD / u64::from(payload.max(1));
        let index = usize::from(self.next_pair) % PAIRS;
        self.pairs[index] = u32::try_from(usual).unwrap_or(u32::MAX).max(1);
        self.next_pair = self.next_pair.wrapping_add(1);
    }

    /// Current rates. A rate is 0 if the intervals differ too much.
    pub(super) fn now(&self) -> AckRates {
        let middle = median(self.intervals);
        let (mut count, mut sum, mut bytes) = (0_u64, 0_u64, 0_u64);
        for (&interval, &payload) in self.intervals.iter().zip(&self.payloads) {
            if is_near(interval, middle) {
                count += 1;
                sum += u64::from(interval);
                bytes += u64::from(payload + HEADERS);
            }
        }
        let known = count > ARRIVALS as u64 / 2;
        let a_second = |count: u64| match known {
            true => saturated((count * 1_000_000).div_ceil(sum.max(1))),
            false => 0,
        };
        let middle = median(*self.pairs);
        let near = self.pairs.iter().filter(|&&own| is_near(own, middle));
        let (pairs, within) = near.fold((1, u64::from(middle)), |(count, sum), &own| {
            (count + 1, sum + u64::from(own))
        });
        AckRates {
            packets: a_second(count),
            capacity: saturated((pairs * 1_000_000_u64).div_ceil(within.max(1))),
            bytes: a_second(bytes),
        }
    }
}

fn saturated(rate: u64) -> u32 {
    u32::try_from(rate).unwrap_or(i32::MAX as u32)
}

/// Interval in microseconds. At least 1, because packets that the kernel received together have the
/// same time.
fn micros(from: Time, to: Time) -> u32 {
    let micros = to.since(from).as_micros();
    u32::try_from(micros).unwrap_or(u32::MAX).max(1)
}

fn median<const N: usize>(mut all: [u32; N]) -> u32 {
    *all.select_nth_unstable(N / 2).1
}

/// True if `own` is between an eighth and eight times `middle`.
fn is_near(own: u32, middle: u32) -> bool {
    u64::from(own) < u64::from(middle) * 8 && own > middle / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: usize = 1316;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1000)
    }

    #[test]
    fn rate_is_that_within_bursts_instead_of_the_mean() {
        let mut rates = RateEstimator::default();
        assert_eq!(rates.now().packets, 1);
        // Three packets every 20 ms, 50 µs apart.
        for number in 0..60_u32 {
            let (burst, place) = (u64::from(number / 3), u64::from(number % 3));
            let time = at(burst * 20_000 + place * 50);
            rates.packet(SeqNumber::new(number), PAYLOAD, time, false);
        }
        let now = rates.now();
        assert_eq!(now.packets, 20_000);
        assert_eq!(now.bytes, 20_000 * (PAYLOAD as u32 + HEADERS));
    }

    #[test]
    fn rate_is_zero_if_intervals_differ_too_much() {
        let mut rates = RateEstimator::default();
        let mut time = 0;
        for number in 0..40_u32 {
            time += 10_u64.pow(number % 6);
            rates.packet(SeqNumber::new(number), PAYLOAD, at(time), false);
        }
        assert_eq!((rates.now().packets, rates.now().bytes), (0, 0));
    }

    #[test]
    fn capacity_is_measured_by_packet_pairs() {
        let mut rates = RateEstimator::default();
        assert_eq!(rates.now().capacity, 1000);
        for number in 0..16 * 80_u32 {
            // The interval of a pair is 100 µs, or 300 µs if it contains a retransmission.
            let (pair, place) = (number / 16, number % 16);
            let anew = pair % 4 < 2 && place == pair % 4;
            let back = match (place, pair % 4) {
                (1, 0 | 1) => 700,
                (1, _) => 900,
                _ => 0,
            };
            let time = at(u64::from(number) * 1000 - back);
            rates.packet(SeqNumber::new(number), 1456, time, anew);
        }
        assert_eq!(rates.now().capacity, 10_000);
        // Simultaneous packets count as one microsecond apart.
        for number in 0..200_u32 {
            rates.packet(SeqNumber::new(number), PAYLOAD, at(9_000_000), false);
        }
        assert_eq!(rates.now().packets, 1_000_000);
    }
}

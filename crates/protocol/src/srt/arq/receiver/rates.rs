//! What acknowledgements say of rates (draft-sharabayko-srt-01, 3.2.4), estimated as libsrt does it:
//! out of the times between the last packets, not as a mean. Senders of messages take over the rate
//! after a loss (draft, 5.2.2.2), so a mean over a time in which little was sent would slow them.

use measure::Time;

use super::AckRates;
use crate::srt::codec::packet::HEADER;
use crate::srt::seq::SeqNumber;

/// Times between so many packets are kept (draft, 5.2.2.3).
const ARRIVALS: usize = 16;

/// Times between so many pairs of packets are kept (draft, 5.2.2.3).
const PAIRS: usize = 64;

/// Each sixteenth packet is sent at once with the one before (draft, 5.2.2.3).
const PAIR_EVERY: u32 = 16;

/// What counts beside the payload: the headers of IPv4, UDP and SRT.
const HEADERS: u32 = 28 + HEADER as u32;

/// The longest payload of libsrt, for which the capacity is stated.
const PAYLOAD_USUAL: u64 = 1456;

/// Before anything has come: a second between packets, a millisecond within a pair.
const FIRST_INTERVAL: u32 = 1_000_000;
const FIRST_PAIR: u32 = 1_000;

/// The times between the last packets, in microseconds.
#[derive(Debug)]
pub(super) struct Rates {
    last: Option<Time>,
    intervals: [u32; ARRIVALS],
    payloads: [u32; ARRIVALS],
    next_interval: u8,
    next_pair: u8,
    /// The first packet of a pair, and when it came.
    pair: Option<(SeqNumber, Time)>,
    pairs: Box<[u32; PAIRS]>,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates {
            last: None,
            intervals: [FIRST_INTERVAL; ARRIVALS],
            payloads: [PAYLOAD_USUAL as u32; ARRIVALS],
            next_interval: 0,
            next_pair: 0,
            pair: None,
            pairs: Box::new([FIRST_PAIR; PAIRS]),
        }
    }
}

impl Rates {
    /// Takes a packet in that arrived then. One that is `sent_anew`, or came out of order, tells
    /// nothing of the capacity.
    #[inline]
    pub(super) fn packet(
        &mut self,
        sequence: SeqNumber,
        payload: usize,
        at: Time,
        sent_anew: bool,
    ) {
        let payload = payload as u32;
        if let Some(last) = self.last.replace(at) {
            let place = usize::from(self.next_interval) % ARRIVALS;
            self.intervals[place] = micros(last, at);
            self.payloads[place] = payload;
            self.next_interval = self.next_interval.wrapping_add(1);
        }
        match sequence.value() % PAIR_EVERY {
            0 => self.pair = (!sent_anew).then_some((sequence, at)),
            1 => {
                if let Some((first, began)) = self.pair.take()
                    && first.next() == sequence
                    && !sent_anew
                {
                    self.end_of_pair(micros(began, at), payload);
                }
            }
            _ => {}
        }
    }

    #[cold]
    fn end_of_pair(&mut self, interval: u32, payload: u32) {
        let usual = u64::from(interval) * PAYLOAD_USUAL / u64::from(payload.max(1));
        let place = usize::from(self.next_pair) % PAIRS;
        self.pairs[place] = u32::try_from(usual).unwrap_or(u32::MAX).max(1);
        self.next_pair = self.next_pair.wrapping_add(1);
    }

    /// The rates now. 0 where the times differ too much to tell.
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

/// Packets that the kernel took in together have one time, and were no nearer than this.
fn micros(from: Time, to: Time) -> u32 {
    let micros = to.since(from).as_micros();
    u32::try_from(micros).unwrap_or(u32::MAX).max(1)
}

fn median<const N: usize>(mut all: [u32; N]) -> u32 {
    *all.select_nth_unstable(N / 2).1
}

/// Whether a time is less than eight times another, and more than an eighth of it.
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
    fn the_rate_is_that_of_what_is_sent_together_not_the_mean() {
        let mut rates = Rates::default();
        assert_eq!(rates.now().packets, 1);
        // Three packets each 20 ms, 50 µs apart.
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
    fn times_that_differ_too_much_tell_no_rate() {
        let mut rates = Rates::default();
        let mut time = 0;
        for number in 0..40_u32 {
            time += 10_u64.pow(number % 6);
            rates.packet(SeqNumber::new(number), PAYLOAD, at(time), false);
        }
        assert_eq!((rates.now().packets, rates.now().bytes), (0, 0));
    }

    #[test]
    fn the_capacity_is_that_of_pairs() {
        let mut rates = Rates::default();
        assert_eq!(rates.now().capacity, 1000);
        for number in 0..16 * 80_u32 {
            // Each pair takes 100 µs, and 300 µs if one of its packets was sent anew.
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
        // What came at the same time was a microsecond apart at least.
        for number in 0..200_u32 {
            rates.packet(SeqNumber::new(number), PAYLOAD, at(9_000_000), false);
        }
        assert_eq!(rates.now().packets, 1_000_000);
    }
}

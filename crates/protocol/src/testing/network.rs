//! One way that datagrams take.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use measure::Time;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// What a way does to datagrams. By default nothing: they arrive at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkSettings {
    /// How long each takes.
    pub delay: Duration,
    /// How much longer one may take, evenly spread. Those behind it wait: this alone reorders
    /// nothing.
    pub jitter: Duration,
    /// Share of datagrams that never arrive, 0 to 1.
    pub loss: f64,
    /// Share of datagrams that arrive twice, the second right after the first or up to `held_back`
    /// later.
    pub duplicate: f64,
    /// Share of datagrams that are held back, and overtaken meanwhile.
    pub reorder: f64,
    /// How long one is held back at most; evenly spread.
    pub held_back: Duration,
    /// Bits per second that pass, headers not counted; any number without. What is too much waits,
    /// without end.
    pub rate: Option<u64>,
}

/// What a way did: the truth that a measurement is held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Datagrams that were sent into it.
    pub sent: u64,
    /// Those that it lost.
    pub lost: u64,
    /// First copies that it handed over.
    pub delivered: u64,
    /// Second copies that it handed over.
    pub duplicated: u64,
    /// First copies that it handed over after one that was sent later.
    pub reordered: u64,
}

/// One way that datagrams of type `T` take, in virtual time.
#[derive(Debug)]
pub struct Network<T> {
    settings: NetworkSettings,
    rng: Pcg64,
    under_way: BinaryHeap<Reverse<UnderWay<T>>>,
    /// Before this nothing arrives, unless it was overtaken.
    last: Time,
    /// When what was sent so far has passed, where the rate is limited.
    passed: Time,
    /// One more than the highest number handed over.
    highest: u64,
    counts: NetworkCounts,
}

#[derive(Debug)]
struct UnderWay<T> {
    at: Time,
    number: u64,
    copy: bool,
    packet: T,
}

impl<T> UnderWay<T> {
    fn key(&self) -> (Time, u64, bool) {
        (self.at, self.number, self.copy)
    }
}

impl<T> PartialEq for UnderWay<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for UnderWay<T> {}

impl<T> PartialOrd for UnderWay<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for UnderWay<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T: Clone> Network<T> {
    /// A way on which nothing is.
    pub fn new(settings: NetworkSettings, seed: u64) -> Network<T> {
        Network {
            settings,
            rng: Pcg64::seed_from_u64(seed),
            under_way: BinaryHeap::new(),
            last: Time::ZERO,
            passed: Time::ZERO,
            highest: 0,
            counts: NetworkCounts::default(),
        }
    }

    /// Sends a datagram of so many bytes, and gives when its copies will arrive. To be called with
    /// times that never go back.
    pub fn send(&mut self, now: Time, length: usize, packet: T) -> [Option<Time>; 2] {
        let number = self.counts.sent;
        self.counts.sent += 1;
        let mut leaves = now;
        if let Some(rate) = self.settings.rate {
            let nanos = length as u64 * 8 * 1_000_000_000 / rate.max(1);
            self.passed = self.passed.max(now) + Duration::from_nanos(nanos);
            leaves = self.passed;
        }
        // Always drawn, so that one setting does not change what the others do.
        let (lost, doubled, held) = (self.chance(), self.chance(), self.chance());
        let (jitter, back, gap) = (self.chance(), self.chance(), self.chance());
        if lost < self.settings.loss {
            self.counts.lost += 1;
            return [None; 2];
        }
        let mut at = leaves + self.settings.delay + self.settings.jitter.mul_f64(jitter);
        at = at.max(self.last);
        if held < self.settings.reorder {
            at += self.settings.held_back.mul_f64(back);
        } else {
            self.last = at;
        }
        let copy = (doubled < self.settings.duplicate)
            .then(|| at + self.settings.held_back.mul_f64(gap * gap));
        if let Some(at) = copy {
            let packet = packet.clone();
            self.put(at, number, true, packet);
        }
        self.put(at, number, false, packet);
        [Some(at), copy]
    }

    fn put(&mut self, at: Time, number: u64, copy: bool, packet: T) {
        self.under_way.push(Reverse(UnderWay {
            at,
            number,
            copy,
            packet,
        }));
    }

    fn chance(&mut self) -> f64 {
        self.rng.random()
    }

    /// When the next datagram arrives.
    pub fn next_arrival(&self) -> Option<Time> {
        self.under_way.peek().map(|Reverse(first)| first.at)
    }

    /// The next datagram that has arrived by `now`, and when it did.
    pub fn take(&mut self, now: Time) -> Option<(Time, T)> {
        if self.next_arrival()? > now {
            return None;
        }
        let Reverse(first) = self.under_way.pop()?;
        if first.copy {
            self.counts.duplicated += 1;
        } else {
            self.counts.delivered += 1;
            if first.number < self.highest {
                self.counts.reordered += 1;
            }
        }
        self.highest = self.highest.max(first.number);
        Some((first.at, first.packet))
    }

    /// What it did so far.
    pub fn counts(&self) -> NetworkCounts {
        self.counts
    }
}

/// A number from 0 to `most`.
pub(super) fn up_to(rng: &mut impl Rng, most: u64) -> u64 {
    rng.random_range(0..=most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> NetworkSettings {
        NetworkSettings {
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(3),
            loss: 0.05,
            duplicate: 0.03,
            reorder: 0.1,
            held_back: Duration::from_millis(15),
            rate: None,
        }
    }

    fn run(settings: NetworkSettings, seed: u64) -> (Vec<(Time, u64)>, NetworkCounts) {
        let mut network = Network::new(settings, seed);
        let mut came = Vec::new();
        for number in 0..10_000u64 {
            let now = Time::from_nanos(number * 1_000_000);
            network.send(now, 1000, number);
            while let Some(arrival) = network.take(now) {
                came.push(arrival);
            }
        }
        while let Some(arrival) = network.take(Time::NEVER) {
            came.push(arrival);
        }
        (came, network.counts())
    }

    #[test]
    fn its_counts_are_what_one_sees_who_looks() {
        let (came, counts) = run(settings(), 1);
        let mut seen = vec![false; 10_000];
        let mut highest = 0;
        let mut found = NetworkCounts {
            sent: 10_000,
            lost: 10_000,
            ..NetworkCounts::default()
        };
        for &(_, number) in &came {
            if std::mem::replace(&mut seen[number as usize], true) {
                found.duplicated += 1;
                continue;
            }
            found.delivered += 1;
            found.lost -= 1;
            found.reordered += u64::from(number < highest);
            highest = highest.max(number);
        }
        assert_eq!(counts, found);
        assert!((400..600).contains(&counts.lost), "{counts:?}");
        assert!((200..400).contains(&counts.duplicated), "{counts:?}");
        assert!((600..1100).contains(&counts.reordered), "{counts:?}");
        assert!(came.is_sorted_by_key(|&(at, _)| at));
    }

    #[test]
    fn a_seed_does_the_same_every_time() {
        assert_eq!(run(settings(), 7), run(settings(), 7));
        assert_ne!(run(settings(), 7), run(settings(), 8));
    }

    #[test]
    fn jitter_alone_reorders_nothing_and_keeps_its_bounds() {
        let settings = NetworkSettings {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            ..settings()
        };
        let (came, counts) = run(settings, 3);
        assert_eq!((counts.delivered, counts.reordered), (10_000, 0));
        for (at, number) in came {
            let took = at.as_nanos() - number * 1_000_000;
            assert!((20_000_000..23_000_000).contains(&took), "{took}");
        }
    }

    #[test]
    fn a_rate_spreads_what_comes_at_once() {
        let settings = NetworkSettings {
            rate: Some(8_000_000),
            ..NetworkSettings::default()
        };
        let mut network = Network::new(settings, 0);
        for number in 1..=3 {
            let at = Time::from_nanos(number * 1_000_000);
            assert_eq!(network.send(Time::ZERO, 1000, number), [Some(at), None]);
        }
    }
}

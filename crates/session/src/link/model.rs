//! Model of one direction of a link.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

use super::codel::CoDel;
use super::counts::Counts;
use super::ordered_jitter::OrderedJitter;
use super::random::{Draws, RandomSource, delay, delay_min};
use super::settings::{Discipline, Lost, QueueLimit, Settings};
use departures::{Departure, Departures};

pub use departures::Delivery;

mod departures;

/// One direction of a link that carries packets of type `T`.
///
/// Times passed to it must not decrease. Memory is bounded by the queue if there is a rate, and by
/// the packets sent within the delay.
#[derive(Debug)]
pub struct Link<T> {
    settings: Settings,
    /// Future settings, in order of time.
    changes: VecDeque<(Time, Settings)>,
    random: RandomSource,
    ordered_jitter: OrderedJitter,
    queue: VecDeque<Waiting<T>>,
    queued: u64,
    codel: CoDel,
    /// Time until which the serialiser is busy.
    busy_until: Time,
    under_way: Departures<T>,
    /// Departure of the last packet that may not be overtaken.
    last_departure: Time,
    /// One more than the highest packet number that has left.
    highest: u64,
    counts: Counts,
}

#[derive(Debug)]
struct Waiting<T> {
    packet: T,
    bytes: usize,
    number: u64,
    sent_at: Time,
    draws: Draws,
}

impl<T: Clone> Link<T> {
    /// An empty link. `changes` replace its settings at the given times, which must be in order.
    pub fn new(settings: Settings, changes: Vec<(Time, Settings)>, seed: u64) -> Link<T> {
        Link {
            settings,
            changes: changes.into(),
            random: RandomSource::new(seed),
            ordered_jitter: OrderedJitter::new(seed),
            queue: VecDeque::new(),
            queued: 0,
            codel: CoDel::default(),
            busy_until: Time::ZERO,
            under_way: Departures::new(),
            last_departure: Time::ZERO,
            highest: 0,
            counts: Counts::default(),
        }
    }

    /// Sends a packet of `bytes` bytes, IP header included.
    ///
    /// # Errors
    /// The packet is lost, for this reason. An accepted packet may still be dropped by CoDel.
    pub fn send(&mut self, now: Time, bytes: usize, packet: T) -> Result<(), Lost> {
        self.advance(now);
        let number = self.counts.packets;
        self.counts.packets += 1;
        self.counts.bytes += bytes as u64;
        let draws = self.random.draw();
        // Evaluated for every packet, so that a burst of losses continues through an outage.
        let by_chance = self.random.loses(&self.settings.loss, number, draws.loss);
        let mut outages = self.settings.outages.iter();
        if outages.any(|outage| (outage.from..outage.until).contains(&now)) {
            self.counts.lost_in_outages += 1;
            return Err(Lost::Outage);
        }
        if self.settings.mtu.is_some_and(|mtu| bytes > mtu) {
            self.counts.lost_too_long += 1;
            return Err(Lost::TooLong);
        }
        if by_chance {
            self.counts.lost_by_chance += 1;
            return Err(Lost::Chance);
        }
        if self.is_full(now, bytes) {
            self.counts.lost_queue_full += 1;
            return Err(Lost::QueueFull);
        }
        self.queue.push_back(Waiting {
            packet,
            bytes,
            number,
            sent_at: now,
            draws,
        });
        self.queued += bytes as u64;
        self.advance(now);
        self.counts.queue_bytes_max = self.counts.queue_bytes_max.max(self.queued);
        Ok(())
    }

    fn is_full(&self, now: Time, bytes: usize) -> bool {
        let Some(rate) = self.settings.rate else {
            return false;
        };
        match self.settings.queue.limit {
            QueueLimit::Bytes(limit) => {
                // A packet that finds the serialiser idle does not wait.
                self.busy_until > now && self.queued + bytes as u64 > limit
            }
            QueueLimit::Time(limit) => {
                self.busy_until.since(now) + serialisation(self.queued, rate) > limit
            }
        }
    }

    /// Serialises queued packets and applies changes of settings up to `now`.
    fn advance(&mut self, now: Time) {
        loop {
            let begins = self
                .queue
                .front()
                .map(|first| first.sent_at.max(self.busy_until));
            let changes = self.changes.front().map(|&(at, _)| at);
            match (begins, changes) {
                (begins, Some(at)) if at <= now && begins.is_none_or(|begins| at <= begins) => {
                    if let Some((_, settings)) = self.changes.pop_front() {
                        self.settings = settings;
                    }
                }
                (Some(begins), _) if begins <= now => self.serialise(begins),
                _ => return,
            }
        }
    }

    /// Takes the first packet out of the queue at time `at`.
    fn serialise(&mut self, at: Time) {
        let Some(first) = self.queue.pop_front() else {
            return;
        };
        self.queued -= first.bytes as u64;
        let waited = at.since(first.sent_at);
        self.counts.waited_max = self.counts.waited_max.max(waited);
        let rate = self.settings.rate;
        if rate.is_some()
            && let Discipline::CoDel { target, interval } = self.settings.queue.discipline
            && self
                .codel
                .drops(at, waited, self.queue.is_empty(), target, interval)
        {
            self.counts.lost_by_codel += 1;
            return;
        }
        if let Some(rate) = rate {
            self.busy_until = at + serialisation(first.bytes as u64, rate);
        }
        let sent = if rate.is_some() { self.busy_until } else { at };
        self.propagate(first, sent);
    }

    /// Puts a packet under way whose last bit was sent at `sent`.
    fn propagate(&mut self, packet: Waiting<T>, sent: Time) {
        let Settings {
            jitter,
            reorder,
            held_back,
            duplicate,
            corrupt,
            ..
        } = self.settings;
        let Waiting {
            packet,
            bytes,
            number,
            sent_at,
            draws,
        } = packet;
        let mean = self.settings.delay;
        let mut due = match jitter.reorders {
            true => sent + delay(mean, &jitter, draws.jitter[0]),
            false => {
                self.last_departure = self
                    .last_departure
                    .max(sent + self.ordered_jitter.delay(sent, mean, &jitter));
                self.last_departure
            }
        };
        let second = (draws.duplicate < duplicate).then(|| {
            let second = sent + delay(mean, &jitter, draws.jitter[1]);
            match jitter.reorders {
                true => second,
                false => second.max(due),
            }
        });
        if draws.reorder < reorder {
            due += held_back;
        }
        // The copy that leaves first is the first copy.
        let (due, second) = match second {
            Some(second) if second < due => (second, Some(due)),
            second => (due, second),
        };
        let delivery = Delivery {
            packet,
            number,
            sent_at,
            due,
            copy: false,
            wrong_bit: (draws.corrupt < corrupt).then_some(draws.bit),
        };
        if let Some(due) = second {
            let delivery = Delivery {
                due,
                copy: true,
                wrong_bit: None,
                ..delivery.clone()
            };
            self.under_way.push(Departure { bytes, delivery });
        }
        self.under_way.push(Departure { bytes, delivery });
    }

    /// Time at which [`Link::take`] is to be called next, because a packet may leave then. `None`
    /// if the link is empty.
    pub fn next_departure(&self) -> Option<Time> {
        let soonest = delay_min(self.settings.delay, &self.settings.jitter);
        let queued = self.queue.front().map(|_| self.busy_until + soonest);
        queued.into_iter().chain(self.under_way.next()).min()
    }

    /// Returns the next packet that has left by `now`.
    pub fn take(&mut self, now: Time) -> Option<Delivery<T>> {
        self.take_early(now, Duration::ZERO)
    }

    /// Returns the next packet that has left by `now`, or that leaves within `early` and that
    /// nothing but its delay still holds.
    pub fn take_early(&mut self, now: Time, early: Duration) -> Option<Delivery<T>> {
        self.advance(now);
        if self.under_way.next()? > now + early {
            return None;
        }
        let Departure { bytes, delivery } = self.under_way.pop()?;
        if delivery.copy {
            self.counts.duplicated += 1;
        } else {
            self.counts.delivered += 1;
            self.counts.delivered_bytes += bytes as u64;
            self.counts.reordered += u64::from(delivery.number < self.highest);
            self.counts.corrupted += u64::from(delivery.wrong_bit.is_some());
            self.highest = self.highest.max(delivery.number);
        }
        Some(delivery)
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes in the queue.
    pub fn queued_bytes(&self) -> u64 {
        self.queued
    }

    /// Number of packets in the link: queued or under way, second copies included.
    pub fn held(&self) -> usize {
        self.queue.len() + self.under_way.len()
    }
}

/// Serialisation time of `bytes` bytes.
fn serialisation(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;

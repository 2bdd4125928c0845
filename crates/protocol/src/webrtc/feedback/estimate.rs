//! How much a sender may send, by what its receiver says: how the delay grows, and how much is
//! lost.
//!
//! A small relative of what browsers do (draft-ietf-rmcat-gcc-02). It begins with what it is given
//! and never probes for more than it has seen pass.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

/// Packets that leave within so long belong together: they queue behind each other anyway.
const GROUP: Duration = Duration::from_millis(5);

/// Of how many groups the growth of the delay is found.
const GROUPS: usize = 20;

/// How much of a new delay counts, against those before.
const SMOOTHING: f64 = 0.1;

/// What a growth of the delay is multiplied by before it is compared, so that a queue that grows by
/// 1 % of the time is found.
const GAIN: f64 = 4.0;

/// The bound that it is compared with, in milliseconds: where it begins, its limits, and how fast
/// it follows what is above it and below it, for each millisecond (draft-ietf-rmcat-gcc-02, 5.4).
const BOUND: f64 = 12.5;
const BOUND_LIMITS: (f64, f64) = (6.0, 600.0);
const BOUND_UP: f64 = 0.01;
const BOUND_DOWN: f64 = 0.000_18;

/// For how long the delay has to grow before that counts.
const GROWS_FOR: Duration = Duration::from_millis(10);

/// Over how long the rate is measured at which packets arrive.
const MEASURED: Duration = Duration::from_millis(500);

/// The most arrivals that are kept for that, whatever times the receiver tells: those of 190 Mb/s.
const ARRIVALS_MAX: usize = 8192;

/// What remains of the measured rate when the delay has grown (5.5).
const LOWERED: f64 = 0.85;

/// By how much the rate grows in a second, and by how much near where it was too much.
const GROWTH: f64 = 0.08;
const GROWTH_NEAR: f64 = 0.02;

/// How much more than what arrives may be estimated.
const AHEAD: f64 = 1.5;

/// How long nothing is lowered again: what left before is still on its way.
const PATIENCE: Duration = Duration::from_millis(300);

/// Over how many packets, and how long, loss is measured; the share up to which the rate may grow,
/// and above which it is lowered (6).
const LOSS_OF: u64 = 20;
const LOSS_EVERY: Duration = Duration::from_millis(500);
const LOSS_BORNE: f64 = 0.02;
const LOSS_TOO_MUCH: f64 = 0.1;

/// A delay that is so much longer than the least, in milliseconds, is that of a queue. With a full
/// one the delay grows no more, and what is lost is its overflow. The least grows with the time, as
/// far as clocks may differ.
const QUEUE: f64 = 60.0;
const DRIFT: f64 = 0.000_5;

/// How much shorter a delay is, in milliseconds, behind a queue that drains because less is sent;
/// and how often the rate is lowered at most if it is not.
const DRAINED: f64 = 10.0;
const IN_VAIN: u8 = 1;

/// A jump of the receiver's clock, after which nothing before can be compared.
const JUMP_NANOS: i64 = 3_000_000_000;

/// A packet that was sent, as the receiver tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// When it was sent.
    pub sent: Time,
    /// How long it is, headers included.
    pub bytes: u32,
    /// When it arrived, in nanoseconds of the receiver's clock; none where it did not.
    pub arrived: Option<i64>,
    /// Whether the receiver had said before that it had not.
    pub was_lost: bool,
}

/// Packets that left together.
#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent: Time,
    last_sent: Time,
    arrived: i64,
}

/// What the delay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    Stays,
    Grows,
    Shrinks,
}

/// An estimate of what can be sent.
#[derive(Debug)]
pub struct Estimator {
    /// In bits per second.
    rate: f64,
    limits: (f64, f64),
    /// What the receiver said that it can take.
    remb: Option<f64>,
    group: Option<Group>,
    before: Option<Group>,
    /// The delay against the first group, in milliseconds, as it is and smoothed.
    delay: f64,
    smoothed: f64,
    /// The least that it was.
    least_delay: f64,
    /// What it was when the rate was last lowered because of a full queue, and how often in a row
    /// it had not become less since the time before.
    full: Option<(f64, u8)>,
    /// When groups arrived, in milliseconds, and their smoothed delay.
    delays: VecDeque<(f64, f64)>,
    bound: f64,
    grows_since: Option<i64>,
    state: Delay,
    /// When packets arrived, and their bytes.
    arrivals: VecDeque<(i64, u32)>,
    arrived_bytes: u64,
    first_arrival: Option<i64>,
    /// The rate that was measured when it was last too much.
    too_much: Option<f64>,
    lowered_at: Option<Time>,
    grown_at: Option<Time>,
    /// Packets, and those of them that were lost, since then; and the last share.
    loss_of: (Time, u64, u64),
    loss: f64,
}

impl Estimator {
    /// One that begins with `rate` and stays between `least` and `most`, in bits per second.
    pub fn new(now: Time, rate: u64, least: u64, most: u64) -> Estimator {
        Estimator {
            rate: rate as f64,
            limits: (least as f64, most.max(least) as f64),
            remb: None,
            group: None,
            before: None,
            delay: 0.0,
            smoothed: 0.0,
            least_delay: 0.0,
            full: None,
            delays: VecDeque::new(),
            bound: BOUND,
            grows_since: None,
            state: Delay::Stays,
            arrivals: VecDeque::new(),
            arrived_bytes: 0,
            first_arrival: None,
            too_much: None,
            lowered_at: None,
            grown_at: None,
            loss_of: (now, 0, 0),
            loss: 0.0,
        }
    }

    /// The estimate, in bits per second.
    pub fn estimate(&self) -> u64 {
        let (least, _) = self.limits;
        self.remb
            .map_or(self.rate, |remb| self.rate.min(remb))
            .max(least) as u64
    }

    /// The receiver says how much it can take, in bits per second.
    pub fn remb(&mut self, bitrate: u64) {
        self.remb = Some(bitrate as f64);
    }

    /// The receiver says how many packets were sent, and how many of them lost, since it said so
    /// last, over all streams: for receivers that do not tell of each packet. Of few packets too
    /// little is known: they count with those of the next time.
    pub fn reported(&mut self, now: Time, packets: u64, lost: u64) {
        self.loss_of.1 += packets;
        self.loss_of.2 += lost.min(packets);
        if self.find_loss(now) {
            self.grow(now);
        }
    }

    /// The receiver tells of packets, in the order in which they were sent.
    pub fn told(&mut self, now: Time, packets: &[Told]) {
        for packet in packets {
            match packet.arrived {
                // Others have overtaken it: it tells how much arrives, but nothing of the delay.
                Some(at) if packet.was_lost => {
                    self.loss_of.2 = self.loss_of.2.saturating_sub(1);
                    self.count_arrival(at, packet.bytes);
                }
                Some(at) => {
                    self.loss_of.1 += 1;
                    self.arrived(packet, at);
                }
                None => {
                    self.loss_of.1 += 1;
                    self.loss_of.2 += 1;
                }
            }
        }
        self.find_loss(now);
        if self.state == Delay::Grows && self.may_lower(now) {
            let measured = self.measured().unwrap_or(self.rate);
            self.too_much = Some(measured);
            self.lower(now, measured.min(self.rate) * LOWERED);
        }
        self.grow(now);
    }

    /// Finds which share was lost, if it is time for that, and heeds it; says so.
    fn find_loss(&mut self, now: Time) -> bool {
        let (since, all, lost) = self.loss_of;
        if all < LOSS_OF || now.since(since) < LOSS_EVERY {
            return false;
        }
        self.loss = lost as f64 / all as f64;
        self.loss_of = (now, 0, 0);
        self.follow_loss(now);
        true
    }

    fn may_lower(&self, now: Time) -> bool {
        self.lowered_at.is_none_or(|at| now.since(at) >= PATIENCE)
    }

    fn lower(&mut self, now: Time, to: f64) {
        self.rate = to.max(self.limits.0);
        self.lowered_at = Some(now);
        self.grown_at = Some(now);
    }

    fn follow_loss(&mut self, now: Time) {
        if self.loss > LOSS_TOO_MUCH && self.may_lower(now) {
            let rate = self.rate * (1.0 - self.loss / 2.0);
            self.lower(now, rate);
        } else if self.loss > LOSS_BORNE
            && self.smoothed - self.least_delay > QUEUE
            && self.may_lower(now)
            && let Some(measured) = self.measured()
        {
            if self.is_no_queue() {
                return;
            }
            self.too_much = Some(measured);
            self.lower(now, measured.min(self.rate) * LOWERED);
        }
    }

    /// Whether the delay stays though the rate was lowered again and again: then it is the path
    /// that is longer now, and no queue.
    fn is_no_queue(&mut self) -> bool {
        let before = self.full.map_or(f64::MAX, |(delay, _)| delay);
        let in_vain = match self.smoothed > before - DRAINED {
            true => self.full.map_or(0, |(_, times)| times) + 1,
            false => 0,
        };
        self.full = Some((self.smoothed, in_vain));
        if in_vain < IN_VAIN {
            return false;
        }
        self.least_delay = self.smoothed;
        self.full = None;
        true
    }

    fn grow(&mut self, now: Time) {
        let since = self.grown_at.replace(now).unwrap_or(now);
        if self.state != Delay::Stays || self.loss > LOSS_BORNE {
            return;
        }
        let near = self.too_much.is_some_and(|much| self.rate > 0.8 * much);
        let growth = if near { GROWTH_NEAR } else { GROWTH };
        let seconds = now.since(since).as_secs_f64().min(1.0);
        let grown = self.rate * (1.0 + growth * seconds);
        let most = self.measured().map_or(self.limits.1, |rate| rate * AHEAD);
        // What is estimated already is not taken back: less may have been sent than could be.
        self.rate = grown.min(most.max(self.rate)).min(self.limits.1);
        // It passes what was too much by far: the path has changed.
        if self.too_much.is_some_and(|much| self.rate > 1.3 * much) {
            self.too_much = None;
        }
    }

    /// The rate at which packets arrive, in bits per second.
    fn measured(&self) -> Option<f64> {
        let newest = self.arrivals.back()?.0;
        let long = MEASURED.as_nanos() as i64;
        (newest - self.first_arrival? >= long)
            .then(|| self.arrived_bytes as f64 * 8.0 / MEASURED.as_secs_f64())
    }

    fn arrived(&mut self, packet: &Told, at: i64) {
        if self
            .arrivals
            .back()
            .is_some_and(|(last, _)| (at - last).abs() > JUMP_NANOS)
        {
            self.forget_delay();
        }
        self.count_arrival(at, packet.bytes);
        match &mut self.group {
            Some(group) if packet.sent.since(group.first_sent) <= GROUP => {
                group.last_sent = group.last_sent.max(packet.sent);
                group.arrived = group.arrived.max(at);
                return;
            }
            _ => {}
        }
        let next = Group {
            first_sent: packet.sent,
            last_sent: packet.sent,
            arrived: at,
        };
        let whole = self.group.replace(next);
        if let (Some(group), Some(before)) = (whole, self.before) {
            self.delayed(&before, &group);
        }
        self.before = whole;
    }

    /// Counts what arrives.
    fn count_arrival(&mut self, at: i64, bytes: u32) {
        // One that is told of late counts as of now.
        let at = self.arrivals.back().map_or(at, |(last, _)| at.max(*last));
        self.first_arrival.get_or_insert(at);
        self.arrivals.push_back((at, bytes));
        self.arrived_bytes += u64::from(bytes);
        while let Some((first, bytes)) = self.arrivals.front()
            && (at - first > MEASURED.as_nanos() as i64 || self.arrivals.len() > ARRIVALS_MAX)
        {
            self.arrived_bytes -= u64::from(*bytes);
            self.arrivals.pop_front();
        }
    }

    /// What was known of arrivals holds no more: the receiver tells of them no longer, or its clock
    /// has jumped.
    pub fn forget_delay(&mut self) {
        (self.group, self.before) = (None, None);
        (self.delay, self.smoothed, self.least_delay) = (0.0, 0.0, 0.0);
        self.full = None;
        self.delays.clear();
        self.grows_since = None;
        self.state = Delay::Stays;
        self.arrivals.clear();
        self.arrived_bytes = 0;
        self.first_arrival = None;
    }

    /// A group is whole: whether the delay grows.
    fn delayed(&mut self, before: &Group, group: &Group) {
        let nanos = (group.arrived - before.arrived) - group.last_sent.nanos_from(before.last_sent);
        self.delay += nanos as f64 / 1e6;
        self.smoothed += SMOOTHING * (self.delay - self.smoothed);
        let span = ((group.arrived - before.arrived) as f64 / 1e6).clamp(0.0, 100.0);
        self.least_delay = (self.least_delay + span * DRIFT).min(self.smoothed);
        if self.smoothed - self.least_delay <= QUEUE {
            // It has drained: the next one is another.
            self.full = None;
        }
        let at = group.arrived as f64 / 1e6;
        self.delays.push_back((at, self.smoothed));
        if self.delays.len() > GROUPS {
            self.delays.pop_front();
        }
        if self.delays.len() < GROUPS {
            return;
        }
        let growth = slope(&self.delays) * GROUPS as f64 * GAIN;
        self.state = if growth > self.bound {
            let since = *self.grows_since.get_or_insert(before.arrived);
            match group.arrived - since >= GROWS_FOR.as_nanos() as i64 {
                true => Delay::Grows,
                false => self.state,
            }
        } else {
            self.grows_since = None;
            match growth < -self.bound {
                true => Delay::Shrinks,
                false => Delay::Stays,
            }
        };
        // A sudden jump is no sign of what is usual.
        if growth.abs() <= self.bound + 15.0 {
            let speed = if growth.abs() > self.bound {
                BOUND_UP
            } else {
                BOUND_DOWN
            };
            let bound = self.bound + span * speed * (growth.abs() - self.bound);
            self.bound = bound.clamp(BOUND_LIMITS.0, BOUND_LIMITS.1);
        }
    }
}

/// By how much the second grows for each of the first: that of the straight line that is nearest.
fn slope(points: &VecDeque<(f64, f64)>) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
    let (x, y) = (x / count, y / count);
    let above: f64 = points.iter().map(|own| (own.0 - x) * (own.1 - y)).sum();
    let below: f64 = points.iter().map(|own| (own.0 - x) * (own.0 - x)).sum();
    if below > 0.0 { above / below } else { 0.0 }
}

#[cfg(test)]
mod tests;

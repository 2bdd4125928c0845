//! Estimates the bandwidth available to a sender from its receiver's feedback: growth of the delay,
//! and loss.
//!
//! A small relative of the algorithm in browsers (draft-ietf-rmcat-gcc-02). It starts at a given
//! rate and does not probe for more bandwidth than it has seen in use.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

/// Packets sent within this interval form a group: they queue behind each other anyway.
const GROUP: Duration = Duration::from_millis(5);

/// Number of groups over which the growth of the delay is determined.
const GROUPS: usize = 20;

/// Weight of a new delay in the smoothed one.
const SMOOTHING: f64 = 0.1;

/// Factor applied to the growth of the delay before it is compared, so that a queue that grows by 1
/// % of the elapsed time is detected.
const GAIN: f64 = 4.0;

/// Threshold for the growth of the delay, in milliseconds: initial value, limits, and the speed per
/// millisecond at which it adapts upwards and downwards (draft-ietf-rmcat-gcc-02, 5.4).
const BOUND: f64 = 12.5;
const BOUND_LIMITS: (f64, f64) = (6.0, 600.0);
const BOUND_UP: f64 = 0.01;
const BOUND_DOWN: f64 = 0.000_18;

/// Time for which the delay must grow before the growth counts.
const GROWS_FOR: Duration = Duration::from_millis(10);

/// Window over which the arrival rate is measured.
const MEASURED: Duration = Duration::from_millis(500);

/// Maximum number of arrivals in that window, whatever times the receiver reports: enough for 190
/// Mb/s.
const ARRIVALS_MAX: usize = 8192;

/// Factor applied to the measured rate when the delay grows (5.5).
const LOWERED: f64 = 0.85;

/// Growth of the rate per second: normally, and near the rate that was last too high.
const GROWTH: f64 = 0.08;
const GROWTH_NEAR: f64 = 0.02;

/// Maximum ratio of the estimate to the arrival rate.
const AHEAD: f64 = 1.5;

/// Minimum interval between two reductions: packets sent before the first are still in flight.
const PATIENCE: Duration = Duration::from_millis(300);

/// Minimum number of packets and minimum time for a loss measurement; the loss up to which the rate
/// may grow, and above which it is reduced (6).
const LOSS_OF: u64 = 20;
const LOSS_EVERY: Duration = Duration::from_millis(500);
const LOSS_BORNE: f64 = 0.02;
const LOSS_TOO_MUCH: f64 = 0.1;

/// Delay above the minimum, in milliseconds, that indicates a queue. Behind a full queue the delay
/// no longer grows, and loss is its overflow. The minimum rises by `DRIFT` milliseconds per
/// millisecond, the possible difference between the clocks.
const QUEUE: f64 = 60.0;
const DRIFT: f64 = 0.000_5;

/// Decrease of the delay, in milliseconds, that shows that a queue drains after a reduction; and
/// the number of reductions without it after which the delay is attributed to the path.
const DRAINED: f64 = 10.0;
const IN_VAIN: u8 = 1;

/// Jump of the receiver's clock after which earlier times cannot be compared.
const JUMP_NANOS: i64 = 3_000_000_000;

/// A sent packet with the status that the receiver reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub sent: Time,
    /// Length, headers included.
    pub bytes: u32,
    /// Arrival time in nanoseconds of the receiver's clock; `None` if the packet did not arrive.
    pub arrived: Option<i64>,
    /// True if the receiver had reported the packet as lost before.
    pub was_lost: bool,
}

/// Packets sent within [`GROUP`].
#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent: Time,
    last_sent: Time,
    arrived: i64,
}

/// Trend of the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    Stays,
    Grows,
    Shrinks,
}

/// Bandwidth estimator of a sender.
#[derive(Debug)]
pub struct Estimator {
    /// Bits per second.
    rate: f64,
    limits: (f64, f64),
    /// The receiver's last REMB, in bits per second.
    remb: Option<f64>,
    group: Option<Group>,
    before: Option<Group>,
    /// Delay relative to the first group, in milliseconds: latest and smoothed.
    delay: f64,
    smoothed: f64,
    /// Minimum of `smoothed`, corrected for clock drift.
    least_delay: f64,
    /// `smoothed` at the last reduction because of a full queue, and the number of consecutive
    /// reductions that did not shorten it.
    full: Option<(f64, u8)>,
    /// Arrival times of groups in milliseconds, with their smoothed delays.
    delays: VecDeque<(f64, f64)>,
    bound: f64,
    grows_since: Option<i64>,
    state: Delay,
    /// Arrival times of packets in nanoseconds, with their lengths.
    arrivals: VecDeque<(i64, u32)>,
    arrived_bytes: u64,
    first_arrival: Option<i64>,
    /// Arrival rate measured when the rate was last too high.
    too_much: Option<f64>,
    lowered_at: Option<Time>,
    grown_at: Option<Time>,
    /// Running loss measurement: its start, packets, and packets lost.
    loss_of: (Time, u64, u64),
    loss: f64,
}

impl Estimator {
    /// Starts at `rate` and stays between `least` and `most`, all in bits per second.
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

    /// Returns the estimate in bits per second.
    pub fn estimate(&self) -> u64 {
        let (least, _) = self.limits;
        self.remb
            .map_or(self.rate, |remb| self.rate.min(remb))
            .max(least) as u64
    }

    /// Sets the receiver's REMB, in bits per second.
    pub fn remb(&mut self, bitrate: u64) {
        self.remb = Some(bitrate as f64);
    }

    /// Records packets sent and lost since the last report, over all streams, for receivers that
    /// send no per-packet feedback. Counts are accumulated until they suffice for a measurement.
    pub fn reported(&mut self, now: Time, packets: u64, lost: u64) {
        self.loss_of.1 += packets;
        self.loss_of.2 += lost.min(packets);
        if self.find_loss(now) {
            self.grow(now);
        }
    }

    /// Records per-packet feedback, in order of sending.
    pub fn told(&mut self, now: Time, packets: &[Told]) {
        for packet in packets {
            match packet.arrived {
                // The packet was overtaken: it counts towards the arrival rate, but not towards the
                // delay.
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

    /// Measures the loss if enough packets and time have passed, and applies it to the rate.
    /// Returns `true` if it did.
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

    /// Returns `true` if the delay persists after reductions of the rate: then the path has become
    /// longer, and no queue exists.
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
        // Growth never lowers the estimate: the sender may have sent less than the path allows.
        self.rate = grown.min(most.max(self.rate)).min(self.limits.1);
        // The rate is far above the one that was too high: the path has changed.
        if self.too_much.is_some_and(|much| self.rate > 1.3 * much) {
            self.too_much = None;
        }
    }

    /// Returns the arrival rate in bits per second, or `None` if arrivals do not span the window
    /// yet.
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

    /// Adds an arrival to the measured window.
    fn count_arrival(&mut self, at: i64, bytes: u32) {
        // A packet reported late counts as arriving now.
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

    /// Discards the history of delays and arrivals: the receiver no longer reports arrivals, or its
    /// clock jumped.
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

    /// Updates the delay trend with a complete group.
    fn delayed(&mut self, before: &Group, group: &Group) {
        let nanos = (group.arrived - before.arrived) - group.last_sent.nanos_from(before.last_sent);
        self.delay += nanos as f64 / 1e6;
        self.smoothed += SMOOTHING * (self.delay - self.smoothed);
        let span = ((group.arrived - before.arrived) as f64 / 1e6).clamp(0.0, 100.0);
        self.least_delay = (self.least_delay + span * DRIFT).min(self.smoothed);
        if self.smoothed - self.least_delay <= QUEUE {
            // The queue has drained; the next one is a new queue.
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
        // A sudden jump is not representative.
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

/// Returns the slope of the least-squares line through the points.
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

//! Estimates the bandwidth available to a sender from its receiver's feedback: growth of the delay,
//! and loss.
//!
//! A small relative of the algorithm in browsers (draft-ietf-rmcat-gcc-02). It starts at a given
//! rate and does not probe for more bandwidth than it has seen in use.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

/// Packets sent within this interval form a group: they queue behind each other anyway.
const GROUP_SPAN: Duration = Duration::from_millis(5);

/// Number of groups over which the growth of the delay is determined.
const TREND_GROUPS: usize = 20;

/// Weight of a new delay in the smoothed one.
const SMOOTHING: f64 = 0.1;

/// Factor applied to the growth of the delay before it is compared, so that a queue that grows by 1
/// % of the elapsed time is detected.
const GAIN: f64 = 4.0;

/// Threshold for the growth of the delay, in milliseconds: initial value, limits, and the speed per
/// millisecond at which it adapts upwards and downwards (draft-ietf-rmcat-gcc-02, 5.4).
const THRESHOLD_MS: f64 = 12.5;
const THRESHOLD_LIMITS_MS: (f64, f64) = (6.0, 600.0);
const THRESHOLD_GAIN_UP: f64 = 0.01;
const THRESHOLD_GAIN_DOWN: f64 = 0.000_18;

/// Time for which the delay must grow before the growth counts.
const OVERUSE_TIME: Duration = Duration::from_millis(10);

/// Window over which the arrival rate is measured.
const RATE_WINDOW: Duration = Duration::from_millis(500);

/// Maximum number of arrivals in that window, whatever times the receiver reports: enough for 190
/// Mb/s.
const ARRIVALS_MAX: usize = 8192;

/// Factor applied to the measured rate when the delay grows (5.5).
const DECREASE_FACTOR: f64 = 0.85;

/// Growth of the rate per second: normally, and near the rate that was last too high.
const INCREASE_PER_SECOND: f64 = 0.08;
const INCREASE_NEAR_OVERUSE: f64 = 0.02;

/// Maximum ratio of the estimate to the arrival rate.
const ESTIMATE_TO_RATE_MAX: f64 = 1.5;

/// Minimum interval between two reductions: packets sent before the first are still in flight.
const DECREASE_INTERVAL_MIN: Duration = Duration::from_millis(300);

/// Minimum number of packets and minimum time for a loss measurement; the loss up to which the rate
/// may grow, and above which it is reduced (6).
const LOSS_PACKETS_MIN: u64 = 20;
const LOSS_INTERVAL_MIN: Duration = Duration::from_millis(500);
const LOSS_TOLERATED: f64 = 0.02;
const LOSS_HIGH: f64 = 0.1;

/// Delay above the minimum, in milliseconds, that indicates a queue. Behind a full queue the delay
/// no longer grows, and loss is its overflow. The minimum rises by `CLOCK_DRIFT` milliseconds per
/// millisecond, the possible difference between the clocks.
const QUEUE_DELAY_MS: f64 = 60.0;
const CLOCK_DRIFT: f64 = 0.000_5;

/// Decrease of the delay, in milliseconds, that shows that a queue drains after a reduction; and
/// the number of reductions without it after which the delay is attributed to the path.
const DRAINED_MS: f64 = 10.0;
const DECREASES_WITHOUT_EFFECT_MAX: u8 = 1;

/// Jump of the receiver's clock after which earlier times cannot be compared.
const CLOCK_JUMP_NANOS: i64 = 3_000_000_000;

/// A sent packet with the status that the receiver reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFeedback {
    pub sent_at: Time,
    /// Length, headers included.
    pub bytes: u32,
    /// Arrival time in nanoseconds of the receiver's clock; `None` if the packet did not arrive.
    pub arrived_nanos: Option<i64>,
    /// True if the receiver had reported the packet as lost before.
    pub was_lost: bool,
}

/// Packets sent within [`GROUP_SPAN`].
#[derive(Clone, Copy, Debug)]
struct PacketGroup {
    first_sent: Time,
    last_sent: Time,
    arrived: i64,
}

/// Trend of the delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DelayTrend {
    #[default]
    Stable,
    Growing,
    Shrinking,
}

/// Bandwidth estimator of a sender.
#[derive(Debug, Default)]
pub struct BandwidthEstimator {
    /// Bits per second.
    rate: f64,
    limits: (f64, f64),
    /// The receiver's last REMB, in bits per second.
    remb: Option<f64>,
    group: Option<PacketGroup>,
    previous_group: Option<PacketGroup>,
    /// Delay relative to the first group, in milliseconds: latest and smoothed.
    delay: f64,
    smoothed: f64,
    /// Minimum of `smoothed`, corrected for clock drift.
    min_delay: f64,
    /// `smoothed` at the last reduction because of a full queue, and the number of consecutive
    /// reductions that did not shorten it.
    full_queue: Option<(f64, u8)>,
    /// Arrival times of groups in milliseconds, with their smoothed delays.
    delays: VecDeque<(f64, f64)>,
    threshold: f64,
    overuse_since: Option<i64>,
    state: DelayTrend,
    /// Arrival times of packets in nanoseconds, with their lengths.
    arrivals: VecDeque<(i64, u32)>,
    arrived_bytes: u64,
    first_arrival: Option<i64>,
    /// Arrival rate measured when the rate was last too high.
    overuse_rate: Option<f64>,
    decreased_at: Option<Time>,
    increased_at: Option<Time>,
    /// Running loss measurement: its start, packets, and packets lost.
    loss_counts: (Time, u64, u64),
    loss: f64,
}

impl BandwidthEstimator {
    /// Starts at `rate` and stays between `rate_min` and `rate_max`, all in bits per second.
    pub fn new(now: Time, rate: u64, rate_min: u64, rate_max: u64) -> BandwidthEstimator {
        BandwidthEstimator {
            rate: rate as f64,
            limits: (rate_min as f64, rate_max.max(rate_min) as f64),
            threshold: THRESHOLD_MS,
            loss_counts: (now, 0, 0),
            ..BandwidthEstimator::default()
        }
    }

    /// Returns the estimate in bits per second.
    pub fn estimate(&self) -> u64 {
        let (rate_min, _) = self.limits;
        self.remb
            .map_or(self.rate, |remb| self.rate.min(remb))
            .max(rate_min) as u64
    }

    /// Sets the receiver's REMB, in bits per second.
    pub fn remb(&mut self, bitrate: u64) {
        self.remb = Some(bitrate as f64);
    }

    /// Records packets sent and lost since the last report, over all streams, for receivers that
    /// send no per-packet feedback. Counts are accumulated until they suffice for a measurement.
    pub fn record_loss_report(&mut self, now: Time, packets: u64, lost: u64) {
        self.loss_counts.1 += packets;
        self.loss_counts.2 += lost.min(packets);
        if self.measure_loss(now) {
            self.increase(now);
        }
    }

    /// Records per-packet feedback, in order of sending.
    pub fn record_feedback(&mut self, now: Time, packets: &[PacketFeedback]) {
        for packet in packets {
            match packet.arrived_nanos {
                // The packet was overtaken: it counts towards the arrival rate, but not towards the
                // delay.
                Some(at) if packet.was_lost => {
                    self.loss_counts.2 = self.loss_counts.2.saturating_sub(1);
                    self.count_arrival(at, packet.bytes);
                }
                Some(at) => {
                    self.loss_counts.1 += 1;
                    self.packet_arrived(packet, at);
                }
                None => {
                    self.loss_counts.1 += 1;
                    self.loss_counts.2 += 1;
                }
            }
        }
        self.measure_loss(now);
        if self.state == DelayTrend::Growing && self.may_decrease(now) {
            let measured = self.arrival_rate().unwrap_or(self.rate);
            self.overuse_rate = Some(measured);
            self.decrease(now, measured.min(self.rate) * DECREASE_FACTOR);
        }
        self.increase(now);
    }

    /// Measures the loss if enough packets and time have passed, and applies it to the rate.
    /// Returns `true` if it did.
    fn measure_loss(&mut self, now: Time) -> bool {
        let (since, all, lost) = self.loss_counts;
        if all < LOSS_PACKETS_MIN || now.since(since) < LOSS_INTERVAL_MIN {
            return false;
        }
        self.loss = lost as f64 / all as f64;
        self.loss_counts = (now, 0, 0);
        self.apply_loss(now);
        true
    }

    fn may_decrease(&self, now: Time) -> bool {
        self.decreased_at
            .is_none_or(|at| now.since(at) >= DECREASE_INTERVAL_MIN)
    }

    fn decrease(&mut self, now: Time, to: f64) {
        self.rate = to.max(self.limits.0);
        self.decreased_at = Some(now);
        self.increased_at = Some(now);
    }

    fn apply_loss(&mut self, now: Time) {
        if self.loss > LOSS_HIGH && self.may_decrease(now) {
            let rate = self.rate * (1.0 - self.loss / 2.0);
            self.decrease(now, rate);
        } else if self.loss > LOSS_TOLERATED
            && self.smoothed - self.min_delay > QUEUE_DELAY_MS
            && self.may_decrease(now)
            && let Some(measured) = self.arrival_rate()
        {
            if self.is_longer_path() {
                return;
            }
            self.overuse_rate = Some(measured);
            self.decrease(now, measured.min(self.rate) * DECREASE_FACTOR);
        }
    }

    /// Returns `true` if the delay persists after reductions of the rate: then the path has become
    /// longer, and no queue exists.
    fn is_longer_path(&mut self) -> bool {
        let before = self.full_queue.map_or(f64::MAX, |(delay, _)| delay);
        let without_effect = match self.smoothed > before - DRAINED_MS {
            true => self.full_queue.map_or(0, |(_, times)| times) + 1,
            false => 0,
        };
        self.full_queue = Some((self.smoothed, without_effect));
        if without_effect < DECREASES_WITHOUT_EFFECT_MAX {
            return false;
        }
        self.min_delay = self.smoothed;
        self.full_queue = None;
        true
    }

    fn increase(&mut self, now: Time) {
        let since = self.increased_at.replace(now).unwrap_or(now);
        if self.state != DelayTrend::Stable || self.loss > LOSS_TOLERATED {
            return;
        }
        let near = self
            .overuse_rate
            .is_some_and(|overuse| self.rate > 0.8 * overuse);
        let growth = if near {
            INCREASE_NEAR_OVERUSE
        } else {
            INCREASE_PER_SECOND
        };
        let seconds = now.since(since).as_secs_f64().min(1.0);
        let increased = self.rate * (1.0 + growth * seconds);
        let rate_max = self
            .arrival_rate()
            .map_or(self.limits.1, |rate| rate * ESTIMATE_TO_RATE_MAX);
        // Growth never lowers the estimate: the sender may have sent less than the path allows.
        self.rate = increased.min(rate_max.max(self.rate)).min(self.limits.1);
        // The rate is far above the one that was too high: the path has changed.
        if self
            .overuse_rate
            .is_some_and(|overuse| self.rate > 1.3 * overuse)
        {
            self.overuse_rate = None;
        }
    }

    /// Returns the arrival rate in bits per second, or `None` if arrivals do not span the window
    /// yet.
    fn arrival_rate(&self) -> Option<f64> {
        let newest = self.arrivals.back()?.0;
        let long = RATE_WINDOW.as_nanos() as i64;
        (newest - self.first_arrival? >= long)
            .then(|| self.arrived_bytes as f64 * 8.0 / RATE_WINDOW.as_secs_f64())
    }

    fn packet_arrived(&mut self, packet: &PacketFeedback, at: i64) {
        if self
            .arrivals
            .back()
            .is_some_and(|(last, _)| (at - last).abs() > CLOCK_JUMP_NANOS)
        {
            self.reset_delay();
        }
        self.count_arrival(at, packet.bytes);
        match &mut self.group {
            Some(group) if packet.sent_at.since(group.first_sent) <= GROUP_SPAN => {
                group.last_sent = group.last_sent.max(packet.sent_at);
                group.arrived = group.arrived.max(at);
                return;
            }
            _ => {}
        }
        let next = PacketGroup {
            first_sent: packet.sent_at,
            last_sent: packet.sent_at,
            arrived: at,
        };
        let whole = self.group.replace(next);
        if let (Some(group), Some(before)) = (whole, self.previous_group) {
            self.group_complete(&before, &group);
        }
        self.previous_group = whole;
    }

    /// Adds an arrival to the measured window.
    fn count_arrival(&mut self, at: i64, bytes: u32) {
        // A packet reported late counts as arriving now.
        let at = self.arrivals.back().map_or(at, |(last, _)| at.max(*last));
        self.first_arrival.get_or_insert(at);
        self.arrivals.push_back((at, bytes));
        self.arrived_bytes += u64::from(bytes);
        while let Some((first, bytes)) = self.arrivals.front()
            && (at - first > RATE_WINDOW.as_nanos() as i64 || self.arrivals.len() > ARRIVALS_MAX)
        {
            self.arrived_bytes -= u64::from(*bytes);
            self.arrivals.pop_front();
        }
    }

    /// Discards the history of delays and arrivals: the receiver no longer reports arrivals, or its
    /// clock jumped.
    pub fn reset_delay(&mut self) {
        (self.group, self.previous_group) = (None, None);
        (self.delay, self.smoothed, self.min_delay) = (0.0, 0.0, 0.0);
        self.full_queue = None;
        self.delays.clear();
        self.overuse_since = None;
        self.state = DelayTrend::Stable;
        self.arrivals.clear();
        self.arrived_bytes = 0;
        self.first_arrival = None;
    }

    /// Updates the delay trend with a complete group.
    fn group_complete(&mut self, before: &PacketGroup, group: &PacketGroup) {
        let nanos = (group.arrived - before.arrived) - group.last_sent.nanos_from(before.last_sent);
        self.delay += nanos as f64 / 1e6;
        self.smoothed += SMOOTHING * (self.delay - self.smoothed);
        let span = ((group.arrived - before.arrived) as f64 / 1e6).clamp(0.0, 100.0);
        self.min_delay = (self.min_delay + span * CLOCK_DRIFT).min(self.smoothed);
        if self.smoothed - self.min_delay <= QUEUE_DELAY_MS {
            // The queue has drained; the next one is a new queue.
            self.full_queue = None;
        }
        let at = group.arrived as f64 / 1e6;
        self.delays.push_back((at, self.smoothed));
        if self.delays.len() > TREND_GROUPS {
            self.delays.pop_front();
        }
        if self.delays.len() < TREND_GROUPS {
            return;
        }
        let growth = slope(&self.delays) * TREND_GROUPS as f64 * GAIN;
        self.state = if growth > self.threshold {
            let since = *self.overuse_since.get_or_insert(before.arrived);
            match group.arrived - since >= OVERUSE_TIME.as_nanos() as i64 {
                true => DelayTrend::Growing,
                false => self.state,
            }
        } else {
            self.overuse_since = None;
            match growth < -self.threshold {
                true => DelayTrend::Shrinking,
                false => DelayTrend::Stable,
            }
        };
        // A sudden jump is not representative.
        if growth.abs() <= self.threshold + 15.0 {
            let speed = if growth.abs() > self.threshold {
                THRESHOLD_GAIN_UP
            } else {
                THRESHOLD_GAIN_DOWN
            };
            let threshold = self.threshold + span * speed * (growth.abs() - self.threshold);
            self.threshold = threshold.clamp(THRESHOLD_LIMITS_MS.0, THRESHOLD_LIMITS_MS.1);
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

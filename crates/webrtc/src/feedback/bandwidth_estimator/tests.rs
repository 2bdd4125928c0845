//! A sender over a path of a known rate, in virtual time.

use super::*;

const START: Time = Time::from_nanos(1_000_000_000);

/// A path with a rate in bits per second, a queue of 200 ms, a delay in seconds, and a loss of
/// every `one_in`th packet.
struct Path {
    rate: f64,
    delay: f64,
    one_in: Option<u64>,
    free_at: f64,
    count: u64,
}

impl Path {
    fn send(&mut self, at: f64, bytes: u32) -> Option<i64> {
        self.count += 1;
        let begins = self.free_at.max(at);
        let by_chance = self
            .one_in
            .is_some_and(|one| self.count.is_multiple_of(one));
        if begins - at > 0.2 || by_chance {
            return None;
        }
        self.free_at = begins + f64::from(bytes) * 8.0 / self.rate;
        Some(((self.free_at + self.delay) * 1e9) as i64 + 77_000_000_000)
    }
}

/// Sends packets of 1,000 bytes at the estimated rate, with feedback every 50 ms. Returns the
/// estimate at the end of each second.
fn follow(path: &mut Path, from: &mut BandwidthEstimator, begin: f64, seconds: u32) -> Vec<u64> {
    let (mut at, mut waiting) = (begin, Vec::new());
    let mut found = Vec::new();
    for tick in 1..=seconds * 20 {
        let end = begin + f64::from(tick) * 0.05;
        while at < end {
            waiting.push(PacketFeedback {
                sent_at: START + Duration::from_secs_f64(at),
                bytes: 1000,
                arrived_nanos: path.send(at, 1000),
                was_lost: false,
            });
            at += 8000.0 / from.estimate() as f64;
        }
        from.record_feedback(START + Duration::from_secs_f64(end), &waiting);
        waiting.clear();
        if tick % 20 == 0 {
            found.push(from.estimate());
        }
    }
    found
}

fn path(rate: f64) -> Path {
    Path {
        rate,
        delay: 0.02,
        one_in: None,
        free_at: 0.0,
        count: 0,
    }
}

#[test]
fn estimate_converges_to_the_path_rate() {
    for rate in [300_000, 800_000, 1_500_000] {
        let mut estimator = BandwidthEstimator::new(START, 2_000_000, 50_000, 2_000_000);
        let found = follow(&mut path(rate as f64), &mut estimator, 0.0, 60);
        let late = &found[20..];
        let mean = late.iter().sum::<u64>() / late.len() as u64;
        assert!(
            mean > rate * 75 / 100 && mean < rate * 105 / 100,
            "{rate}: {found:?}"
        );
        assert!(
            late.iter().all(|own| *own < rate * 125 / 100),
            "{rate}: {found:?}"
        );
    }
}

#[test]
fn estimate_grows_when_the_path_widens() {
    let mut estimator = BandwidthEstimator::new(START, 400_000, 50_000, 2_000_000);
    let mut narrow = path(400_000.0);
    let found = follow(&mut narrow, &mut estimator, 0.0, 20);
    assert!(found[19] < 500_000, "{found:?}");
    narrow.rate = 5_000_000.0;
    let found = follow(&mut narrow, &mut estimator, 20.0, 60);
    assert!(found[59] > 1_500_000, "{found:?}");
    assert!(found.iter().all(|own| *own <= 2_000_000));
}

#[test]
fn only_heavy_loss_lowers_the_estimate() {
    for (one_in, expected) in [
        (5, 50_000..300_000),
        (20, 1_000_000..1_100_000),
        (100, 1_400_000..2_000_001),
    ] {
        let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 2_000_000);
        let mut lossy = Path {
            one_in: Some(one_in),
            ..path(50_000_000.0)
        };
        let found = follow(&mut lossy, &mut estimator, 0.0, 20);
        assert!(expected.contains(&found[19]), "{one_in}: {found:?}");
    }
    // Receivers that report loss ratios only.
    let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 2_000_000);
    for second in 1..10 {
        estimator.record_loss_report(START + Duration::from_secs(second), 100, 20);
    }
    assert!(estimator.estimate() < 500_000);
}

#[test]
fn longer_path_is_not_taken_for_a_queue() {
    let mut estimator = BandwidthEstimator::new(START, 1_000_000, 30_000, 1_000_000);
    let mut lossy = Path {
        one_in: Some(33),
        ..path(50_000_000.0)
    };
    let before = follow(&mut lossy, &mut estimator, 0.0, 20)[19];
    lossy.delay = 0.17;
    let found = follow(&mut lossy, &mut estimator, 20.0, 60);
    // It is taken for a queue once, and several times for a growing delay, which it is.
    let minimum = before as f64 * 0.5;
    assert!(found.iter().all(|own| *own as f64 > minimum), "{found:?}");
}

#[test]
fn refilled_queue_lowers_the_estimate_again() {
    let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 1_000_000);
    let queue = |estimator: &mut BandwidthEstimator, delay: f64| {
        estimator.smoothed = delay;
        estimator.loss = 0.05;
        estimator.decreased_at = None;
        estimator
            .arrivals
            .extend([(0, 1000), (1_000_000_000, 1000)]);
        estimator.first_arrival = Some(0);
        estimator.arrived_bytes = 1_000_000;
        let before = estimator.estimate();
        estimator.apply_loss(START);
        estimator.estimate() < before
    };
    assert!(queue(&mut estimator, 200.0));
    // The queue drains.
    let group = PacketGroup {
        first_sent: START,
        last_sent: START,
        arrived: 0,
    };
    estimator.smoothed = 10.0;
    estimator.delay = 10.0;
    estimator.group_complete(&group, &group);
    assert!(queue(&mut estimator, 195.0));
    // The delay stays although less is sent: not a queue.
    assert!(!queue(&mut estimator, 195.0));
    assert!(!queue(&mut estimator, 195.0));
}

#[test]
fn loss_reports_count_by_packets_in_any_order() {
    for video_first in [true, false] {
        let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 2_000_000);
        for second in 1..20 {
            let now = START + Duration::from_secs(second);
            let mut streams = [(100, 5), (50, 0)];
            if !video_first {
                streams.reverse();
            }
            for (packets, lost) in streams {
                estimator.record_loss_report(now, packets, lost);
            }
        }
        // 3.3 % of all packets: the estimate neither grows nor falls, except at the first report,
        // whose duration is unknown.
        let found = estimator.estimate();
        assert!((990_000..1_100_000).contains(&found), "{found}");
    }
    // One of two packets of silent audio: too few for a measurement.
    let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 2_000_000);
    for second in 1..10 {
        estimator.record_loss_report(START + Duration::from_secs(second), 2, 1);
    }
    assert_eq!(estimator.estimate(), 1_000_000);
}

#[test]
fn overtaken_packets_are_not_losses() {
    let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 2_000_000);
    for second in 1..20 {
        let now = START + Duration::from_secs(second);
        let feedback = |index: u64, arrived, was_lost| PacketFeedback {
            sent_at: now + Duration::from_millis(index),
            bytes: 1000,
            arrived_nanos: arrived,
            was_lost,
        };
        let arrival = |index: u64| (second * 1000 + index) as i64 * 1_000_000;
        let all: Vec<PacketFeedback> = (0..100)
            .map(|index| feedback(index, (index % 4 > 0).then(|| arrival(index)), false))
            .chain((0..25).map(|index| feedback(4 * index, Some(arrival(100)), true)))
            .collect();
        estimator.record_feedback(now, &all);
    }
    assert!(estimator.estimate() >= 1_000_000);
}

#[test]
fn estimate_never_exceeds_the_remb() {
    let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 2_000_000);
    estimator.remb(256_000);
    assert_eq!(estimator.estimate(), 256_000);
    estimator.remb(10);
    assert_eq!(estimator.estimate(), 50_000);
    estimator.remb(u64::MAX);
    assert_eq!(estimator.estimate(), 1_000_000);
}

#[test]
fn frozen_receiver_clock_does_not_grow_memory() {
    let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 2_000_000);
    for millis in 0..20_000 {
        let packet = PacketFeedback {
            sent_at: START + Duration::from_millis(millis),
            bytes: 1000,
            arrived_nanos: Some(77),
            was_lost: false,
        };
        estimator.record_feedback(packet.sent_at, &[packet]);
    }
    assert!(estimator.arrivals.len() <= ARRIVALS_MAX);
    let kept: u64 = estimator.arrivals.iter().map(|own| u64::from(own.1)).sum();
    assert_eq!(estimator.arrived_bytes, kept);
}

proptest::proptest! {
    #[test]
    fn estimate_stays_within_limits_for_any_feedback(
        packets in proptest::collection::vec(
            (0_u64..10_000_000, 0_u32..70_000, proptest::option::of(proptest::num::i64::ANY)),
            0..300,
        ),
    ) {
        let mut estimator = BandwidthEstimator::new(START, 1_000_000, 50_000, 2_000_000);
        let (mut sent, mut all) = (START, Vec::new());
        for (step, bytes, arrived) in packets {
            sent += Duration::from_micros(step);
            // Receiver times have 24 bits of 64 ms, plus the deltas.
            let arrived = arrived.map(|at| at >> 12);
            all.push(PacketFeedback {
                sent_at: sent,
                bytes,
                arrived_nanos: arrived,
                was_lost: bytes % 5 == 0,
            });
        }
        for part in all.chunks(7) {
            estimator.record_feedback(part[0].sent_at, part);
            proptest::prop_assert!((50_000..=2_000_000).contains(&estimator.estimate()));
            proptest::prop_assert!(estimator.delays.len() <= TREND_GROUPS);
        }
    }
}

use super::*;
use crate::link::settings::{Jitter, Loss, Outage, Queue, Shape};
use proptest::prelude::*;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

/// Sends a packet of 1,000 bytes every `gap`. Returns the deliveries and the counts.
fn run(settings: &Settings, gap: Duration, count: u64, seed: u64) -> (Vec<Delivery<u64>>, Counts) {
    let mut link = Link::new(settings.clone(), Vec::new(), seed);
    let mut left = Vec::new();
    for number in 0..count {
        let now = Time::ZERO + gap * u32::try_from(number).expect("few packets");
        while let Some(next) = link.next_departure().filter(|&next| next <= now) {
            left.extend(std::iter::from_fn(|| link.take(next)));
        }
        let _ = link.send(now, 1000, number);
    }
    left.extend(std::iter::from_fn(|| link.take(Time::NEVER)));
    assert_eq!(link.held(), 0);
    (left, link.counts())
}

/// Delays of first copies, in milliseconds.
fn delays(deliveries: &[Delivery<u64>]) -> Vec<f64> {
    deliveries
        .iter()
        .filter(|delivery| !delivery.copy)
        .map(|delivery| delivery.due.since(delivery.sent_at).as_secs_f64() * 1e3)
        .collect()
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / count;
    (mean, variance.sqrt())
}

#[test]
fn link_with_default_settings_delivers_at_once() {
    let (left, counts) = run(&Settings::default(), ms(1), 1000, 1);
    assert!(left.iter().all(|delivery| delivery.due == delivery.sent_at));
    assert_eq!((counts.delivered, counts.lost()), (1000, 0));
    assert_eq!(counts.delivered_bytes, 1_000_000);
}

#[test]
fn packet_may_leave_early_by_its_delay_but_not_before_a_change() {
    let settings = |loss| Settings {
        delay: ms(20),
        loss,
        ..Settings::default()
    };
    let lossy = settings(Loss::Random(1.0));
    let mut link = Link::new(settings(Loss::default()), vec![(at(21), lossy)], 1);
    link.send(at(0), 100, 0).expect("nothing is lost yet");
    assert!(link.take_early(at(18), ms(1)).is_none());
    assert!(link.take_early(at(19), ms(1)).is_some());
    link.send(at(20), 100, 1).expect("nothing is lost yet");
    // The change after that does not begin early.
    assert!(link.take_early(at(20), ms(5)).is_none());
    assert!(link.send(at(20), 100, 2).is_ok());
    assert_eq!(link.send(at(21), 100, 3), Err(Lost::Chance));
}

#[test]
fn same_seed_gives_the_same_fates_at_any_times() {
    let settings = Settings {
        delay: ms(50),
        jitter: Jitter {
            spread: ms(5),
            shape: Shape::Normal,
            reorders: true,
        },
        loss: Loss::Bursts {
            share: 0.02,
            length: 3.0,
        },
        duplicate: 0.01,
        corrupt: 0.01,
        ..Settings::default()
    };
    let fates = |gap: Duration, seed| {
        let (mut left, counts) = run(&settings, gap, 20_000, seed);
        left.sort_by_key(|delivery| (delivery.number, delivery.copy));
        let fates: Vec<_> = left
            .iter()
            .map(|one| {
                (
                    one.number,
                    one.copy,
                    one.wrong_bit,
                    one.due.since(one.sent_at),
                )
            })
            .collect();
        (fates, counts.lost())
    };
    assert_eq!(fates(ms(1), 7), fates(Duration::from_micros(313), 7));
    assert_ne!(fates(ms(1), 7), fates(ms(1), 8));
}

#[test]
fn one_setting_does_not_change_the_effect_of_another() {
    let plain = Settings {
        loss: Loss::Random(0.05),
        ..Settings::default()
    };
    let more = Settings {
        duplicate: 0.1,
        corrupt: 0.1,
        jitter: Jitter {
            spread: ms(3),
            ..Jitter::default()
        },
        delay: ms(10),
        ..plain.clone()
    };
    let arrived = |settings| {
        let (mut left, _) = run(settings, ms(1), 10_000, 3);
        left.retain(|delivery| !delivery.copy);
        left.iter()
            .map(|delivery| delivery.number)
            .collect::<Vec<_>>()
    };
    assert_eq!(arrived(&plain), arrived(&more));
}

#[test]
fn losses_match_their_share_and_burst_length() {
    let lost = |loss: Loss| {
        let settings = Settings {
            loss,
            ..Settings::default()
        };
        let (left, counts) = run(&settings, ms(1), 200_000, 11);
        let mut came = vec![false; 200_000];
        left.iter()
            .for_each(|delivery| came[delivery.packet as usize] = true);
        let bursts = came.windows(2).filter(|pair| pair[0] && !pair[1]).count();
        assert_eq!(counts.lost_by_chance, counts.lost());
        let share = counts.lost() as f64 / 200_000.0;
        (share, counts.lost() as f64 / bursts as f64)
    };
    let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.1;
    let (share, length) = lost(Loss::Random(0.05));
    assert!(
        near(share, 0.05) && near(length, 1.0 / 0.95),
        "{share} {length}"
    );
    let (share, length) = lost(Loss::Bursts {
        share: 0.05,
        length: 4.0,
    });
    assert!(near(share, 0.05) && near(length, 4.0), "{share} {length}");
    assert_eq!(lost(Loss::Every(50)).0, 0.02);
    assert_eq!(lost(Loss::Every(1)).0, 1.0);
    assert_eq!(lost(Loss::Every(0)).0, 0.0);
    assert_eq!(lost(Loss::List(vec![3, 4, 199_999])).0, 3.0 / 200_000.0);
}

#[test]
fn impossible_losses_are_refused_with_a_reason() {
    let check = |share, length| Loss::Bursts { share, length }.check();
    assert_eq!(check(0.5, 1.0), Ok(()));
    assert!(check(0.6, 1.0).is_err_and(|why| why.contains("at least 1.50 packets")));
    assert!(check(1.0, 9.0).is_err());
    assert!(check(0.1, 0.5).is_err());
    assert!(check(0.1, f64::NAN).is_err());
    assert!(Loss::Random(1.01).check().is_err());
    assert_eq!(Loss::Random(1.0).check(), Ok(()));
}

#[test]
fn jitter_has_its_mean_and_spread() {
    for (shape, deviation) in [
        (Shape::Uniform, 5.0 / 3f64.sqrt()),
        (Shape::Normal, 5.0),
        (Shape::Pareto, 5.0),
    ] {
        let jitter = Jitter {
            spread: ms(5),
            shape,
            reorders: true,
        };
        let settings = Settings {
            delay: ms(50),
            jitter,
            ..Settings::default()
        };
        let (left, counts) = run(&settings, ms(1), 100_000, 5);
        let delays = delays(&left);
        let (mean, found) = mean_and_deviation(&delays);
        // The Pareto distribution has a heavy tail, so its deviation is estimated less exactly.
        let by = if shape == Shape::Pareto { 0.1 } else { 0.01 };
        assert!((mean - 50.0).abs() < 0.1, "{shape:?} {mean}");
        assert!((found / deviation - 1.0).abs() < by, "{shape:?} {found}");
        assert!(counts.reordered > 1000, "{shape:?} {counts:?}");
        let soonest = delay_min(ms(50), &jitter).as_secs_f64() * 1e3;
        assert!(delays.iter().all(|&delay| delay >= soonest), "{shape:?}");
    }
}

#[test]
fn jitter_keeps_the_order_unless_it_may_reorder() {
    let jitter = Jitter {
        spread: ms(5),
        ..Jitter::default()
    };
    let settings = Settings {
        delay: ms(50),
        jitter,
        duplicate: 0.1,
        ..Settings::default()
    };
    let (left, counts) = run(&settings, ms(1), 10_000, 5);
    assert_eq!(counts.reordered, 0);
    assert!(left.is_sorted_by_key(|delivery| (delivery.due, delivery.number)));
    assert!((900..1100).contains(&counts.duplicated), "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// At any packet rate, in order or not, the mean is the configured one.
    #[test]
    fn jitter_keeps_its_mean_at_any_packet_rate(
        packets_a_second in 20u32..20_000,
        (mean, spread) in (40u64..200, 1u64..10),
        shape in prop::sample::select(vec![Shape::Uniform, Shape::Normal, Shape::Pareto]),
        reorders: bool,
        seed: u64,
    ) {
        let gap = Duration::from_secs(1) / packets_a_second;
        // Enough levels for a stable mean: one per packet, or one per step of time.
        let levels = gap.as_nanos().max(u128::from(8 * spread) * 1_000_000) * 4_000;
        let count = (levels / gap.as_nanos()) as u64;
        let jitter = Jitter { spread: ms(spread), shape, reorders };
        let mut link = Link::new(
            Settings { delay: ms(mean), jitter, ..Settings::default() },
            Vec::new(),
            seed,
        );
        let (mut sum, mut squares, mut left) = (0.0, 0.0, 0u64);
        let mut take = |link: &mut Link<()>, now| {
            while let Some(delivery) = link.take(now) {
                let off = delivery.due.since(delivery.sent_at).as_secs_f64() * 1e3 - mean as f64;
                sum += off;
                squares += off * off;
                left += 1;
            }
        };
        let mut now = Time::ZERO;
        for _ in 0..count {
            now += gap;
            take(&mut link, now);
            prop_assert!(link.send(now, 1000, ()).is_ok());
        }
        take(&mut link, Time::NEVER);
        prop_assert_eq!(left, count);
        prop_assert!(reorders || link.counts().reordered == 0);
        let spread = spread as f64;
        let (off, deviation) = (sum / left as f64 / spread, (squares / left as f64).sqrt() / spread);
        prop_assert!(off.abs() < 0.1, "{off} spreads off");
        let asked = if shape == Shape::Uniform { 1.0 / 3f64.sqrt() } else { 1.0 };
        // The Pareto distribution has a heavy tail.
        let by = if shape == Shape::Pareto { 0.5 } else { 0.12 };
        prop_assert!((deviation / asked - 1.0).abs() < by, "deviation {deviation} of {asked}");
    }
}

#[test]
fn held_back_packets_are_overtaken_and_delay_no_others() {
    let settings = Settings {
        reorder: 0.1,
        held_back: ms(3),
        ..Settings::default()
    };
    let (left, counts) = run(&settings, ms(1), 10_000, 5);
    let held = delays(&left).iter().filter(|&&delay| delay == 3.0).count() as u64;
    assert!((900..1100).contains(&held), "{held}");
    assert!(
        delays(&left)
            .iter()
            .all(|&delay| delay == 0.0 || delay == 3.0)
    );
    // A packet is not overtaken if the next three are held back as well.
    assert!(
        counts.reordered > held * 95 / 100 && counts.reordered <= held,
        "{counts:?}"
    );
}

#[test]
fn rate_serialises_and_its_queue_is_bounded_in_time_and_bytes() {
    // 1,000 bytes take 8 ms and arrive every millisecond, so seven of eight packets are too many.
    for limit in [QueueLimit::Time(ms(80)), QueueLimit::Bytes(9_000)] {
        let queue = Queue {
            limit,
            discipline: Discipline::DropTail,
        };
        let settings = Settings {
            rate: Some(1_000_000),
            queue,
            ..Settings::default()
        };
        let (left, counts) = run(&settings, ms(1), 8_000, 5);
        for pair in left.windows(2) {
            assert_eq!(pair[1].due.since(pair[0].due), ms(8));
        }
        assert!(
            (1000..1015).contains(&counts.delivered),
            "{limit:?} {counts:?}"
        );
        assert_eq!(counts.lost_queue_full, 8_000 - counts.delivered);
        assert!(
            (9_000..=10_000).contains(&counts.queue_bytes_max),
            "{limit:?} {counts:?}"
        );
        assert!(
            (ms(70)..=ms(81)).contains(&counts.waited_max),
            "{limit:?} {counts:?}"
        );
    }
}

#[test]
fn sufficient_rate_delays_by_serialisation_only() {
    let settings = Settings {
        rate: Some(8_000_000),
        delay: ms(20),
        ..Settings::default()
    };
    let (left, counts) = run(&settings, ms(1), 1000, 5);
    assert!(delays(&left).iter().all(|&delay| delay == 21.0));
    assert_eq!((counts.lost(), counts.waited_max), (0, Duration::ZERO));
}

#[test]
fn codel_keeps_a_standing_queue_short() {
    // Like a TCP sender: increases its rate until a packet is lost, then halves it.
    let controlled = |discipline| {
        let limit = QueueLimit::Time(ms(500));
        let queue = Queue { limit, discipline };
        let settings = Settings {
            rate: Some(8_000_000),
            queue,
            ..Settings::default()
        };
        let mut link = Link::new(settings, Vec::new(), 1);
        let (mut rate, mut now, mut lost, mut waited) = (0.9, Time::ZERO, 0, Vec::new());
        while now < at(20_000) {
            let _ = link.send(now, 1000, ());
            while let Some(left) = link.take(now) {
                waited.push(left.due.since(left.sent_at).as_secs_f64() * 1e3 - 1.0);
            }
            rate = match link.counts().lost() > lost {
                true => rate / 2.0,
                false => rate + 0.001,
            };
            lost = link.counts().lost();
            now += Duration::from_secs_f64(0.001 / rate);
        }
        (mean_and_deviation(&waited).0, link.counts())
    };
    let (drop_tail, _) = controlled(Discipline::DropTail);
    let (codel, counts) = controlled(Discipline::CoDel {
        target: ms(5),
        interval: ms(100),
    });
    assert!(drop_tail > 100.0, "{drop_tail}");
    assert!(codel < 25.0, "{codel} {counts:?}");
    assert!(
        counts.lost_by_codel > 0 && counts.lost_queue_full == 0,
        "{counts:?}"
    );
}

#[test]
fn codel_drops_at_shrinking_intervals_while_the_queue_stands() {
    let mut codel = CoDel::default();
    let (target, interval) = (ms(5), ms(100));
    let drops: Vec<u64> = (0..1000)
        .filter(|&now| codel.drops(at(now), ms(50), false, target, interval))
        .collect();
    // The first drop comes after one interval, later ones after the interval divided by the root of
    // their number.
    assert_eq!(drops[..5], [100, 200, 271, 329, 379]);
    assert!(!codel.drops(at(1001), ms(4), false, target, interval));
    assert!(!codel.drops(at(1002), ms(50), false, target, interval));
}

#[test]
fn outage_loses_new_packets_and_delivers_those_under_way() {
    let outages = vec![
        Outage {
            from: at(100),
            until: at(200),
        },
        Outage {
            from: at(500),
            until: at(501),
        },
    ];
    let settings = Settings {
        delay: ms(30),
        outages,
        ..Settings::default()
    };
    let (left, counts) = run(&settings, ms(1), 1000, 5);
    assert_eq!((counts.lost_in_outages, counts.lost()), (101, 101));
    assert!(left.iter().any(|delivery| delivery.due == at(129)));
    assert!(
        left.iter()
            .all(|delivery| !(100..200).contains(&delivery.number))
    );
}

#[test]
fn packets_longer_than_the_mtu_are_lost() {
    let settings = Settings {
        mtu: Some(1400),
        ..Settings::default()
    };
    let mut link = Link::new(settings, Vec::new(), 1);
    assert_eq!(link.send(at(1), 1400, 'a'), Ok(()));
    assert_eq!(link.send(at(1), 1401, 'b'), Err(Lost::TooLong));
    assert_eq!(link.counts().lost_too_long, 1);
}

#[test]
fn settings_change_in_time_while_packets_wait() {
    let rate = |rate| Settings {
        rate: Some(rate),
        ..Settings::default()
    };
    // Three packets of 8 ms arrive at once. The third is sent after the rate has doubled.
    let mut link = Link::new(rate(1_000_000), vec![(at(12), rate(2_000_000))], 1);
    for number in 0..3 {
        assert_eq!(link.send(at(0), 1000, number), Ok(()));
    }
    let due: Vec<Time> = std::iter::from_fn(|| link.take(Time::NEVER))
        .map(|delivery| delivery.due)
        .collect();
    assert_eq!(due, [at(8), at(16), at(20)]);
}

#[test]
fn wrong_bits_are_counted_and_never_in_second_copies() {
    let settings = Settings {
        corrupt: 0.1,
        duplicate: 0.5,
        ..Settings::default()
    };
    let (left, counts) = run(&settings, ms(1), 10_000, 5);
    let wrong = left.iter().filter(|delivery| delivery.wrong_bit.is_some());
    assert!(wrong.clone().all(|delivery| !delivery.copy));
    assert_eq!(wrong.count() as u64, counts.corrupted);
    assert!((900..1100).contains(&counts.corrupted), "{counts:?}");
}

proptest! {
    /// With any settings, every packet is lost, delivered or held, and none leaves early.
    #[test]
    fn every_packet_is_accounted_for(
        (delay, spread, reorders) in (0u64..100, 0u64..20, any::<bool>()),
        (share, length, every) in (0.0..0.4f64, 1.0..5.0f64, 0u64..5),
        rate in prop::option::of(1u64..20_000_000),
        (limit, codel) in (0u64..30_000, any::<bool>()),
        (duplicate, reorder, corrupt) in (0.0..0.3f64, 0.0..0.3f64, 0.0..0.3f64),
        (from, long) in (0u64..500, 0u64..100),
        gaps in prop::collection::vec((0u64..5, 20usize..2_000), 1..300),
        seed: u64,
    ) {
        let loss = match every {
            0 | 1 => Loss::Bursts { share, length },
            2 => Loss::Random(share),
            _ => Loss::Every(every),
        };
        prop_assert_eq!(loss.check(), Ok(()));
        let discipline = match codel {
            true => Discipline::CoDel { target: ms(5), interval: ms(100) },
            false => Discipline::DropTail,
        };
        let settings = Settings {
            delay: ms(delay),
            jitter: Jitter { spread: ms(spread), shape: Shape::Normal, reorders },
            loss,
            rate,
            queue: Queue { limit: QueueLimit::Bytes(limit), discipline },
            duplicate,
            reorder,
            held_back: ms(5),
            corrupt,
            outages: vec![Outage { from: at(from), until: at(from + long) }],
            mtu: Some(1_500),
        };
        let changes = vec![(at(200), Settings { rate: Some(1_000_000), ..settings.clone() })];
        let mut link = Link::new(settings, changes, seed);
        let (mut now, mut seen) = (Time::ZERO, Vec::new());
        for (number, &(gap, bytes)) in gaps.iter().enumerate() {
            now += ms(gap);
            while let Some(delivery) = link.take(now) {
                prop_assert!(delivery.due <= now && delivery.sent_at <= delivery.due);
                seen.push(delivery);
            }
            let _ = link.send(now, bytes, number);
            let counts = link.counts();
            let first = seen.iter().filter(|delivery| !delivery.copy).count() as u64;
            prop_assert_eq!(counts.delivered, first);
            prop_assert!(counts.queue_bytes_max <= limit || rate.is_none() || now >= at(200));
        }
        while let Some(next) = link.next_departure() {
            // A packet may leave at this time; if CoDel drops it, none does.
            seen.extend(std::iter::from_fn(|| link.take(next.max(now))));
            now = now.max(next);
        }
        let counts = link.counts();
        prop_assert_eq!(link.held(), 0);
        prop_assert_eq!(counts.packets, gaps.len() as u64);
        prop_assert_eq!(counts.delivered + counts.lost(), counts.packets);
        prop_assert_eq!(counts.delivered + counts.duplicated, seen.len() as u64);
        prop_assert!(seen.is_sorted_by_key(|delivery| delivery.due) || reorders || reorder > 0.0);
    }
}

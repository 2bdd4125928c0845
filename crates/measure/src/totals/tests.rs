use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::metric::GaugeId;
use crate::recorder::Recorder;
use crate::tester::{CPU_NANOS, TESTER_CATALOGUE};

#[test]
fn shutdown_counts_are_in_no_rate() {
    let stopped_at = Time::from_start(Duration::from_millis(2_500));
    let mut totals = Totals::new(TESTER_CATALOGUE);
    for second in 0..5 {
        let mut recorder = Recorder::new(TESTER_CATALOGUE);
        recorder.add(CPU_NANOS, 100);
        let begins = Time::from_start(Duration::from_secs(second));
        totals.add_until(&recorder.take_window(), begins, 1.0, stopped_at);
    }
    assert_eq!(totals.counter(CPU_NANOS), 500);
    // Two windows ended before the stop. It is unknown how much of the third one precedes it.
    assert_eq!(totals.seconds(), 2.0);
    assert_eq!(totals.timed[usize::from(CPU_NANOS.0)], 200);
}

#[test]
fn window_that_ends_slightly_late_counts_before_the_stop() {
    let at = |millis| Time::from_start(Duration::from_millis(millis));
    assert_eq!(measured_seconds(at(2_000), 1.003, at(3_000)), Some(1.003));
    assert_eq!(measured_seconds(at(2_000), 1.0, at(2_500)), None);
    assert_eq!(measured_seconds(at(3_000), 1.0, at(3_000)), None);
    assert_eq!(measured_seconds(at(3_000), 0.4, Time::NEVER), Some(0.4));
    // The rest of a second that begins at the stop, however short, belongs to the time after it.
    assert_eq!(measured_seconds(at(3_000), 0.012, at(3_000)), None);
    assert_eq!(measured_seconds(at(3_000), 0.012, at(3_001)), Some(0.012));
    // The window for resources that the server released after the run has no length.
    assert_eq!(measured_seconds(at(9_000), 0.0, at(3_000)), Some(0.0));
}

crate::metrics! {
    /// A counter with its rate, and levels of every unit.
    SOME after crate::metric::Group::NONE;
    counters {
        /// Bytes.
        BYTES = "bytes", Bytes, "";
    }
    gauges {
        /// Cores in use.
        CORES = "cores", Cores, "", Max;
        /// A share of the time.
        SHARE = "share", Ratio, "", Max;
        /// A rate that the server reports.
        SPEED = "speed", BitsPerSecond, "", Max;
        /// Clients at a moment.
        CLIENTS = "clients", Count, "", Sum;
        /// Bytes held.
        HELD = "held", Bytes, "", Max;
        /// Time in a queue.
        WAIT = "wait", Seconds, "", Max;
    }
    distributions {}
    derived {
        /// The rate of the bytes.
        "rate", BitsPerSecond, "", Rate(BYTES, 8);
    }
}
static SOME_GROUPS: [&crate::metric::Group; 1] = [&SOME];
const SOME_CATALOGUE: Catalogue = Catalogue(&SOME_GROUPS);
const LEVELS: [(GaugeId, &str); 6] = [
    (CORES, "cores"),
    (SHARE, "share"),
    (SPEED, "speed"),
    (CLIENTS, "clients"),
    (HELD, "held"),
    (WAIT, "wait"),
];

/// A window in which every gauge has the value `rate`.
fn at_rate(rate: f64, seconds: f64) -> Window {
    let mut recorder = Recorder::new(SOME_CATALOGUE);
    recorder.add(BYTES, (rate * seconds) as u64);
    for (gauge, _) in LEVELS {
        recorder.set(gauge, rate);
    }
    recorder.take_window()
}

fn totals_of(windows: &[(f64, f64)]) -> Totals {
    let mut totals = Totals::new(SOME_CATALOGUE);
    for &(rate, seconds) in windows {
        totals.add(&at_rate(rate, seconds), seconds);
    }
    totals
}

#[test]
fn short_last_window_sets_no_peak_of_averages() {
    // A clock tick of 10 ms that falls into the 12 ms after the planned end.
    let totals = totals_of(&[(0.02, 1.0), (0.03, 1.0), (0.04, 1.0), (0.83, 0.012)]);
    let of = |name, statistic| totals.named(name, statistic).expect("it was taken");
    assert!((of("cores", Statistic::Mean) - 0.033).abs() < 0.001);
    assert!((of("cores", Statistic::Max) - 0.0494).abs() < 0.001);
    // Gauges of counts keep the extremes of short windows.
    assert_eq!(of("clients", Statistic::Max), 0.83);
    let alone = totals_of(&[(0.83, 0.012)]);
    assert_eq!(alone.named("cores", Statistic::Max), Some(0.83));
}

#[test]
fn zero_length_windows_have_gauges_but_no_weight() {
    let mut totals = totals_of(&[(0.2, 1.0), (0.9, 0.0)]);
    assert_eq!(totals.named("cores", Statistic::Mean), Some(0.2));
    assert_eq!(totals.named("cores", Statistic::Max), Some(0.2));
    let only = totals_of(&[(3.0, 0.0), (5.0, 0.0)]);
    assert_eq!(only.named("cores", Statistic::Mean), Some(4.0));
    assert_eq!(only.named("cores", Statistic::Max), Some(5.0));
    // A damaged file may state any length.
    for seconds in [f64::NAN, f64::INFINITY, -1.0] {
        totals.add(&at_rate(0.9, 0.0), seconds);
        assert_eq!(totals.named("cores", Statistic::Mean), Some(0.2));
    }
}

proptest! {
    /// Each figure covers the same time, however that time is cut into windows.
    #[test]
    fn figures_do_not_depend_on_window_lengths(
        windows in proptest::collection::vec((0.0..1e6f64, 0.001..1.2f64), 1..30),
        cuts in 1..40usize,
    ) {
        let whole = totals_of(&windows);
        let pieces: Vec<(f64, f64)> = windows
            .iter()
            .flat_map(|&(rate, seconds)| vec![(rate, seconds / cuts as f64); cuts])
            .collect();
        let cut = totals_of(&pieces);
        let all: f64 = windows.iter().map(|&(_, seconds)| seconds).sum();
        let done: f64 = windows.iter().map(|&(rate, seconds)| rate * seconds).sum();
        for (_, name) in LEVELS {
            for totals in [&whole, &cut] {
                let of = |statistic| totals.named(name, statistic).expect("it was taken");
                prop_assert!((of(Statistic::Mean) - done / all).abs() <= 1e-6 * (1.0 + done / all));
                prop_assert!(of(Statistic::Min) <= of(Statistic::Mean));
                prop_assert!(of(Statistic::Mean) <= of(Statistic::Max));
            }
        }
        // Each window counts whole bytes.
        let lost = 8.0 * (windows.len() + 1) as f64 / all;
        let rate = whole.named("rate", Statistic::Value).expect("there was time");
        prop_assert!((rate - 8.0 * done / all).abs() <= lost);
    }

    /// A short window raises a peak by at most its share of an interval.
    #[test]
    fn peaks_cover_at_least_half_a_second(
        levels in proptest::collection::vec(0.0..1.0f64, 1..10),
        short in 0.001..0.499f64,
        at in 0..11usize,
    ) {
        let mut windows: Vec<(f64, f64)> = levels.iter().map(|&level| (level, 1.0)).collect();
        windows.insert(at.min(levels.len()), (100.0, short));
        let totals = totals_of(&windows);
        let most = levels.iter().copied().fold(0.0, f64::max);
        for (_, name) in LEVELS {
            let found = totals.named(name, Statistic::Max).expect("it was taken");
            if SOME_CATALOGUE.find(name).expect("above").unit.is_over_time() {
                prop_assert!(found <= (most + 100.0 * short) / (1.0 + short) + 1e-9);
            } else {
                prop_assert_eq!(found, 100.0);
            }
        }
    }
}

crate::metrics! {
    /// Clients that come and go.
    GUESTS after crate::metric::Group::NONE;
    counters {
        /// Packets.
        PACKETS = "packets", Count, "";
        /// Clients that were satisfied.
        SATISFIED = "satisfied", Count, "";
        /// Clients that were not.
        ANGRY = "angry", Count, "";
    }
    gauges {}
    distributions {
        /// Time of the start.
        START = "start", Seconds, "";
        /// Any other time.
        OTHER = "other", Seconds, "";
    }
    derived {
        /// Share of satisfied clients.
        "satisfaction", Ratio, "", Share(SATISFIED, ANGRY);
    }
    starts { START; }
    whole_run {
        SATISFIED;
        ANGRY;
    }
}
static GUEST_GROUPS: [&crate::metric::Group; 1] = [&GUESTS];

#[test]
fn warm_up_counts_for_counters_of_the_whole_run_only() {
    for starts in [false, true] {
        let mut totals = Totals::new(Catalogue(&GUEST_GROUPS));
        for second in 0..4 {
            let mut recorder = Recorder::new(Catalogue(&GUEST_GROUPS));
            recorder.add(PACKETS, 10);
            recorder.add(SATISFIED, 3);
            recorder.add(ANGRY, u64::from(second == 0) * 4);
            recorder.record(START, 1);
            recorder.record(OTHER, 1);
            let window = recorder.take_window();
            match second {
                0 => totals.add_warm_up(&window, starts),
                _ => totals.add(&window, 1.0),
            }
        }
        assert_eq!((totals.counter(PACKETS), totals.seconds()), (30, 3.0));
        assert_eq!(totals.named("satisfaction", Statistic::Value), Some(0.75));
        let counts = ["start", "other"].map(|name| totals.named(name, Statistic::Count));
        assert_eq!(counts, [Some(if starts { 4.0 } else { 3.0 }), Some(3.0)]);
    }
}

//! Tests of the health checks.

use super::*;
use crate::recorder::Recorder;

crate::metrics! {
    /// A population.
    pub(crate) POPULATION after crate::Group::NONE;
    counters {
        /// Packets that were sent.
        EXPECTED = "expected", Count, "";
        /// Packets.
        RECEIVED = "received", Count, "";
        /// Clients.
        STARTED = "started", Count, "";
    }
    gauges {}
    distributions {}
    derived {}
}
static GROUPS: [&crate::Group; 1] = [&POPULATION];
const VIEWERS: Catalogue = Catalogue(&GROUPS);

fn health(warm_up: u64) -> Health {
    let subjects = [("viewers", VIEWERS), ("tester", tester::TESTER_CATALOGUE)];
    Health::new(HealthBounds::default(), &subjects, warm_up)
}

/// Adds a window with `received` packets, in which `set` records the tester's figures.
fn add_window(health: &mut Health, index: u64, received: u64, set: impl FnOnce(&mut Recorder)) {
    let mut viewers = Recorder::new(VIEWERS);
    viewers.add(EXPECTED, received);
    viewers.add(RECEIVED, received);
    viewers.add(STARTED, 1);
    let mut tester = Recorder::new(tester::TESTER_CATALOGUE);
    set(&mut tester);
    let subjects = BTreeMap::from([
        ("viewers".to_owned(), viewers.take_window()),
        ("tester".to_owned(), tester.take_window()),
    ]);
    health.window(index, 1.0, &subjects);
}

#[test]
fn overflow_is_judged_over_the_run() {
    let mut exact = health(0);
    add_window(&mut exact, 0, 100_000, |t| {
        t.add(tester::SOCKET_OVERFLOW, 2)
    });
    assert_eq!(exact.reasons().len(), 1);
    assert!(exact.reasons()[0].contains("in window 0"));
    assert_eq!(exact.last_window().len(), 1);
    add_window(&mut exact, 1, 100_000, |_| ());
    assert_eq!(exact.reasons(), Vec::<String>::new());
    add_window(&mut exact, 2, 1, |t| t.add(tester::SOCKET_OVERFLOW, 1));
    assert_eq!(exact.reasons().len(), 1);
}

#[test]
fn a_bound_may_be_crossed_in_one_window_of_twenty() {
    let mut tester = health(0);
    let slow = |t: &mut Recorder| t.record(tester::LAG, 150_000_000);
    for index in 0..20 {
        match index {
            7 => add_window(&mut tester, index, 10, slow),
            _ => add_window(&mut tester, index, 10, |t| t.record(tester::LAG, 1_000_000)),
        }
    }
    assert!(tester.reasons().is_empty());
    add_window(&mut tester, 20, 10, slow);
    let reasons = tester.reasons();
    assert_eq!(reasons.len(), 1);
    assert!(reasons[0].contains("2 of 21 windows"), "{reasons:?}");
    assert!(reasons[0].contains("in windows 7, 20,"), "{reasons:?}");
    assert!(reasons[0].contains("150 ms"), "{reasons:?}");
}

#[test]
fn late_collapse_does_not_hide_in_the_mean() {
    let mut tester = health(0);
    for index in 0..94 {
        add_window(&mut tester, index, 10, |t| {
            t.set(tester::CPU_HOTTEST_WORKER, 0.1);
        });
    }
    for index in 94..100 {
        add_window(&mut tester, index, 10, |t| {
            t.set(tester::CPU_HOTTEST_WORKER, 0.97);
        });
    }
    assert!(tester.reasons()[0].contains("in windows 94 to 99"));
}

#[test]
fn burst_of_late_starts_in_one_window_is_detected() {
    let mut tester = health(0);
    add_window(&mut tester, 0, 10, |t| {
        t.add(tester::NOT_STARTED_IN_TIME, 6)
    });
    for index in 1..100 {
        add_window(&mut tester, index, 10, |_| ());
    }
    assert!(tester.reasons()[0].starts_with("6 of 100 clients"));
}

#[test]
fn warm_up_is_shown_but_not_judged() {
    let mut tester = health(2);
    for index in 0..2 {
        add_window(&mut tester, index, 0, |t| {
            t.add(tester::SOCKET_OVERFLOW, 100)
        });
        assert_eq!(tester.last_window().len(), 1);
    }
    add_window(&mut tester, 2, 10, |_| ());
    assert!(tester.reasons().is_empty());
}

/// A run of `windows` windows, in which `set` applies to `bad` windows from window 2 on.
fn run(windows: u64, bad: u64, set: impl Fn(&mut Recorder)) -> Health {
    let mut tester = health(0);
    for index in 0..windows {
        match index {
            index if (2..2 + bad).contains(&index) => add_window(&mut tester, index, 1000, &set),
            _ => add_window(&mut tester, index, 1000, |t| {
                t.record(tester::LAG, 1_000_000)
            }),
        }
    }
    tester
}

#[test]
fn short_run_is_forgiven_one_bad_window_but_not_two() {
    let late = |t: &mut Recorder| t.record(tester::LAG, 300_000_000);
    for windows in [4, 10, 19] {
        assert!(run(windows, 1, late).reasons().is_empty(), "{windows}");
        let reasons = run(windows, 2, late).reasons();
        assert_eq!(reasons.len(), 1, "{windows}");
        assert!(reasons[0].contains("(1 allowed); in windows 2 to 3"));
    }
    // One of three windows is a third of the run.
    assert_eq!(run(3, 1, late).reasons().len(), 1);
    assert!(run(100, 5, late).reasons().is_empty());
    assert_eq!(run(100, 6, late).reasons().len(), 1);
}

#[test]
fn zero_share_of_windows_forgives_none() {
    let mut strict = health(0);
    strict.bounds.windows = 0.0;
    for index in 0..30 {
        let lag = if index == 9 { 200_000_000 } else { 1000 };
        add_window(&mut strict, index, 10, |t| t.record(tester::LAG, lag));
    }
    assert_eq!(strict.reasons().len(), 1);
}

#[test]
fn one_long_stall_invalidates_a_run_of_any_length() {
    let stopped = |t: &mut Recorder| {
        for hundredths in 0..100 {
            t.record(tester::LAG, 2_000_000_000 - hundredths * 10_000_000);
        }
    };
    // Two windows of 1,000 are far below 5 %.
    let reasons = run(1000, 2, stopped).reasons();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    for word in [
        "longest stall",
        "tester.lag.max",
        "over 1 s",
        "windows 2 to 3",
        "worst 2 s in window",
    ] {
        assert!(reasons[0].contains(word), "{word}: {}", reasons[0]);
    }
    let nearly = |t: &mut Recorder| t.record(tester::LAG, 990_000_000);
    assert!(run(1000, 2, nearly).reasons().is_empty());
}

#[test]
fn exhausted_descriptors_or_ports_invalidate_the_run() {
    let full = |t: &mut Recorder| {
        t.set(tester::FILE_DESCRIPTORS_SHARE, 0.97);
        t.set(tester::PORTS_SHARE, 0.99);
        t.add(tester::SOCKETS_REFUSED, 3);
    };
    let reasons = run(1000, 1, full).reasons();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(reasons[1].contains("ulimit -n"), "{reasons:?}");
    let half = |t: &mut Recorder| t.set(tester::FILE_DESCRIPTORS_SHARE, 0.5);
    assert!(run(10, 10, half).reasons().is_empty());
}

#[test]
fn processor_wait_and_steal_are_detected() {
    let waits = |t: &mut Recorder| t.set(tester::CPU_WAIT, 0.8);
    let reasons = run(10, 5, waits).reasons();
    assert!(reasons[0].contains("waited for a processor (tester.cpu_wait) was over 50 %"));
    let stolen = |t: &mut Recorder| t.set(tester::STEAL, 0.9);
    let reasons = run(10, 5, stolen).reasons();
    assert!(reasons[0].contains("hypervisor"), "{reasons:?}");
}

#[test]
fn kernel_drops_count_up_to_the_missing_packets() {
    let reasons_of = |expected: u64, dropped: u64| {
        let mut tester = health(0);
        let mut viewers = Recorder::new(VIEWERS);
        viewers.add(EXPECTED, expected);
        viewers.add(RECEIVED, 100_000);
        let mut own = Recorder::new(tester::TESTER_CATALOGUE);
        own.add(tester::SOFTNET_DROPS, dropped);
        let subjects = BTreeMap::from([
            ("viewers".to_owned(), viewers.take_window()),
            ("tester".to_owned(), own.take_window()),
        ]);
        tester.window(0, 1.0, &subjects);
        tester.reasons()
    };
    assert!(reasons_of(100_000, 500).is_empty());
    assert!(reasons_of(100_001, 500).is_empty());
    assert!(reasons_of(100_500, 0).is_empty());
    let reasons = reasons_of(100_010, 500);
    assert!(reasons[0].contains("netdev_max_backlog"), "{reasons:?}");
}

#[test]
fn short_last_window_is_not_judged_as_a_window() {
    let mut tester = health(0);
    for index in 0..5 {
        add_window(&mut tester, index, 10, |t| t.record(tester::LAG, 1000));
    }
    let mut own = Recorder::new(tester::TESTER_CATALOGUE);
    own.record(tester::LAG, 500_000_000);
    own.add(tester::SOCKET_OVERFLOW, 7);
    let subjects = BTreeMap::from([("tester".to_owned(), own.take_window())]);
    tester.window(5, 0.02, &subjects);
    assert_eq!(tester.windows, 5);
    let reasons = tester.reasons();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].starts_with("7 packets"));
}

#[test]
fn findings_cover_every_bound() {
    let late = |t: &mut Recorder| t.record(tester::LAG, 300_000_000);
    let findings = run(10, 2, late).findings();
    let found = |bound: &str| {
        let finding = findings.iter().find(|finding| finding.bound == bound);
        finding.unwrap_or_else(|| panic!("{bound}")).clone()
    };
    let lag = found("lag_p99");
    assert!(lag.invalid);
    assert_eq!((lag.windows, lag.worst_window), (2, Some(2)));
    assert!((lag.worst.expect("it is known") - 0.3).abs() < 0.001);
    let overflow = found("overflow");
    assert!(!overflow.invalid);
    assert_eq!((overflow.worst, overflow.limit), (Some(0.0), 1e-5));
    // `cpu_wait` was not recorded.
    assert_eq!(found("cpu_wait").worst, None);
    assert_eq!(findings.iter().filter(|finding| finding.invalid).count(), 1);
}

/// Adds a window in which `packets` packets left the downlink `late`, and `dropped` were dropped.
fn add_link_window(health: &mut Health, index: u64, packets: u64, late: Duration, dropped: u64) {
    let mut down = Recorder::new(crate::LINK_CATALOGUE);
    for _ in 0..packets {
        down.record(crate::link::LATENESS, late.as_nanos() as u64);
    }
    down.add(crate::link::OVERLOAD, dropped);
    let mut tester = Recorder::new(tester::TESTER_CATALOGUE);
    let subjects = BTreeMap::from([
        ("downlink".to_owned(), down.take_window()),
        ("tester".to_owned(), tester.take_window()),
    ]);
    health.window(index, 1.0, &subjects);
}

fn health_of_a_link() -> Health {
    let subjects = [
        ("downlink", crate::LINK_CATALOGUE),
        ("tester", tester::TESTER_CATALOGUE),
    ];
    Health::new(HealthBounds::default(), &subjects, 1)
}

#[test]
fn late_or_dropping_link_makes_the_run_invalid() {
    const LATE: Duration = Duration::from_millis(2);
    const IN_TIME: Duration = Duration::from_micros(30);
    let mut late = health_of_a_link();
    // The warm-up, and one window that is forgiven.
    add_link_window(&mut late, 0, 1000, LATE, 5);
    for index in 1..5 {
        add_link_window(&mut late, index, 1000, IN_TIME, 0);
    }
    add_link_window(&mut late, 5, 1000, LATE, 0);
    assert_eq!(late.last_window().len(), 1);
    assert_eq!(late.reasons(), Vec::<String>::new());
    add_link_window(&mut late, 6, 1000, LATE, 0);
    let reasons = late.reasons();
    assert!(reasons[0].contains("left the emulated link"), "{reasons:?}");
    let mut dropped = health_of_a_link();
    add_link_window(&mut dropped, 1, 1000, IN_TIME, 1);
    add_link_window(&mut dropped, 2, 1000, IN_TIME, 0);
    let reasons = dropped.reasons();
    assert!(reasons[0].contains("could not keep up"), "{reasons:?}");
}

#[test]
fn few_link_packets_are_judged_over_several_windows() {
    const LATE: Duration = Duration::from_millis(2);
    let mut health = health_of_a_link();
    let found = |health: &Health| {
        let mut findings = health.findings().into_iter();
        let lateness = findings.find(|finding| finding.bound == "link_lateness_p99");
        let lateness = lateness.expect("it is judged");
        (lateness.windows, lateness.invalid)
    };
    // Fewer than 100 packets are not judged.
    add_link_window(&mut health, 1, 99, LATE, 0);
    assert_eq!(found(&health), (0, false));
    add_link_window(&mut health, 2, 101, LATE, 0);
    assert_eq!(found(&health), (2, true));
    assert_eq!(health.reasons().len(), 1);
    // 1,000 packets are judged together: 20 late ones are too many, 5 are not.
    let mut mixed = health_of_a_link();
    for index in 1..=10 {
        let late = if index <= 5 { LATE } else { Duration::ZERO };
        add_link_window(&mut mixed, index, 1, late, 0);
        add_link_window(&mut mixed, index, 199, Duration::ZERO, 0);
    }
    assert_eq!(found(&mixed), (0, false));
    for index in 11..=15 {
        add_link_window(&mut mixed, index, 4, LATE, 0);
        add_link_window(&mut mixed, index, 196, Duration::ZERO, 0);
    }
    assert_eq!(found(&mixed), (5, true));
}

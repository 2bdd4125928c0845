use std::collections::BTreeMap;

use super::*;
use crate::clock_error::ClockError;
use crate::metric::Group;
use crate::recorder::{Recorder, Window};
use crate::server::{self, SERVER_CATALOGUE};
use crate::tester::{self, TESTER_CATALOGUE};

crate::metrics! {
    /// A population.
    pub(crate) POPULATION after Group::NONE;
    counters {
        /// Clients that failed.
        FAILED = "failed", Count, "";
        /// Packets sent.
        EXPECTED = "expected", Count, "";
        /// Packets received.
        RECEIVED = "received", Count, "";
        /// Bytes.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
    }
    gauges {
        /// Clients.
        ACTIVE = "active", Count, "", Sum;
    }
    distributions {
        /// A delay.
        STARTUP_DELAY = "startup_delay", Seconds, "";
        /// A delay from another client.
        FRAME_DELAY = "frame_delay", Seconds, "", BetweenClients;
        /// A length.
        LOSS_BURST_LENGTH = "loss_burst_length", Count, "";
    }
    derived {
        /// Packets lost.
        "lost", Count, "", Difference(EXPECTED, RECEIVED);
        /// Share lost.
        "loss", Ratio, "", LossRatio(EXPECTED, RECEIVED);
        /// Bit rate.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
    }
}
static GROUPS: [&Group; 1] = [&POPULATION];
const VIEWERS: Catalogue = Catalogue(&GROUPS);
const SUBJECTS: [(&str, Catalogue); 3] = [
    ("viewers", VIEWERS),
    ("server", SERVER_CATALOGUE),
    ("tester", TESTER_CATALOGUE),
];

fn limit(text: &str) -> f64 {
    let threshold = Threshold::parse(text).unwrap_or_else(|bad| panic!("{text}: {bad}"));
    threshold
        .resolve(&SUBJECTS)
        .unwrap_or_else(|bad| panic!("{text}: {bad}"))
        .limit
}

fn wrong(text: &str) -> ThresholdError {
    Threshold::parse(text)
        .and_then(|threshold| threshold.check(&SUBJECTS))
        .expect_err(text)
}

#[test]
fn quantities_are_read_in_the_unit_of_the_metric() {
    for (text, expected) in [
        ("viewers.loss < 7%", 0.07),
        ("viewers.loss<=7 %", 0.07),
        ("viewers.loss <= 100%", 1.0),
        ("viewers.loss == 0", 0.0),
        ("  viewers.startup_delay.p95 < 2s ", 2.0),
        ("viewers.startup_delay.p99.9.worst<500ms", 0.5),
        ("viewers.startup_delay.count >= 10", 10.0),
        ("viewers.loss_burst_length.max < 30", 30.0),
        ("viewers.active.max >= 200", 200.0),
        ("viewers.bitrate.worst > 20Mbps", 20e6),
        ("viewers.failed == 0", 0.0),
        ("viewers.failures.status_404 != 3", 3.0),
        ("viewers.failures.worst <= 3", 3.0),
        ("viewers.startup_delay.max > 0", 0.0),
        ("server.cpu < 95%", 0.95),
        ("server.cpu.max < 1.5cores", 1.5),
        ("server.cpu < 150%", 1.5),
        ("server.uss.max < 64MiB", 67_108_864.0),
        ("tester.overflow == 0", 0.0),
        ("tester.cpu_seconds < 1m", 60.0),
    ] {
        assert_eq!(limit(text), expected, "{text}");
    }
}

#[test]
fn errors_state_their_position() {
    for (text, offset, message, help) in [
        ("", 0, "no comparison", "such as `viewers.loss < 7%`"),
        ("viewers.loss", 0, "no comparison", ""),
        ("loss < 7%", 0, "must name a subject and a metric", ""),
        ("viewers..loss < 7%", 8, "a name is missing", ""),
        ("< 7%", 0, "a name is missing", ""),
        ("viewers.lo ss < 7%", 8, "`lo ss` is not a name", ""),
        (
            "viewers loss < 7%",
            0,
            "`viewers loss` is not a name",
            "did you mean `viewers.loss < 7%`?",
        ),
        (
            "viewers.loss < 7%, viewers.bitrate > 1Mbps",
            19,
            "several comparisons",
            "`viewers.bitrate > 1Mbps`",
        ),
        (
            "viewers.loss > 1% and < 7%",
            22,
            "several comparisons",
            "`viewers.loss < 7%`",
        ),
        (
            "viewers.loss < 7% and viewers.failed == 0 && a < 1",
            22,
            "several comparisons",
            "`viewers.failed == 0`",
        ),
        ("viewers.loss = 7%", 13, "unknown operator `=`", "=="),
        ("viewers.loss =< 7%", 13, "unknown operator `=<`", "<="),
        ("viewers.loss < ", 15, "missing", "7%"),
        ("viewers.loss < much", 15, "much", ""),
        ("viewers.loss < 7% 8%", 15, "", ""),
        ("viewer.loss < 7%", 0, "no population `viewer`", "`viewers`"),
        ("viewers.los < 7%", 8, "no metric `los`", "`loss`"),
        (
            "viewers.startup_dealy < 2s",
            8,
            "no metric",
            "`startup_delay`",
        ),
        (
            "server.xyzzy < 2",
            7,
            "no metric",
            "expected one of: socket_drops, udp_receive_errors, ",
        ),
        (
            "viewers.startup_delay.p95 < 2",
            28,
            "is a duration, but",
            "500ms",
        ),
        (
            "viewers.startup_delay < 2s",
            8,
            "`startup_delay` is a distribution",
            "`startup_delay.p95`",
        ),
        ("viewers.startup_delay.p95 < 7%", 28, "a duration", ""),
        ("viewers.loss < 7s", 15, "a share", "0.5%"),
        ("viewers.loss < 7", 15, "has no unit", "`7%`"),
        ("viewers.loss < 1", 15, "has no unit", "`1%`, or `100%`"),
        ("viewers.loss < 0.07", 15, "has no unit", "`0.07%`, or `7%`"),
        ("viewers.loss < 101%", 15, "above 100%", "from 0% to 100%"),
        ("server.cpu < 95", 13, "has no unit", "`95%` of one core"),
        ("viewers.failed < 1%", 17, "a plain number", ""),
        ("viewers.active.max > 5s", 21, "a plain number", ""),
        (
            "viewers.startup_delay.p100 < 2s",
            22,
            "unknown statistic `p100`",
            "",
        ),
        (
            "viewers.startup_delay.maxx < 2s",
            22,
            "unknown statistic",
            "`max`",
        ),
        (
            "viewers.startup_delay.p9x < 2s",
            22,
            "unknown statistic",
            "",
        ),
        ("viewers.startup_delay.worst.p95 < 2s", 22, "", "comes last"),
        ("viewers.active.p95 > 5", 15, "a level", "mean, min and max"),
        ("viewers.loss.max < 7%", 13, "single value", "`loss.worst`"),
        ("viewers.failures.timeout.max < 7", 25, "single value", ""),
        ("tester.failures < 7", 7, "no metric `failures`", ""),
        ("viewers.löss < 7%", 8, "`löss`", ""),
    ] {
        let error = wrong(text);
        assert!(error.message.contains(message), "{text}: {error}");
        assert!(error.help.contains(help), "{text}: {error}");
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
    assert!(Threshold::parse(&"v".repeat(1_000_000)).is_err());
}

/// A window with these numbers of expected and received packets.
fn packets(expected: u64, received: u64) -> BTreeMap<String, Window> {
    let mut viewers = Recorder::new(VIEWERS);
    viewers.add(EXPECTED, expected);
    viewers.add(RECEIVED, received);
    BTreeMap::from([("viewers".to_owned(), viewers.take_window())])
}

/// Judges windows of one second, excluding the first `warm_up`.
fn judge(
    thresholds: &[&str],
    warm_up: u64,
    windows: &[BTreeMap<String, Window>],
) -> Vec<ThresholdResult> {
    let thresholds = thresholds
        .iter()
        .map(|text| Threshold::parse(text).expect(text))
        .collect();
    let mut judge = Judge::new(thresholds, &SUBJECTS, warm_up).expect("they fit");
    let mut totals: BTreeMap<String, Totals> = BTreeMap::new();
    for (index, window) in (0..).zip(windows) {
        judge.window(index, 1.0, window);
        for (name, figures) in window.iter().filter(|_| index >= warm_up) {
            let (_, catalogue) = SUBJECTS.iter().find(|(n, _)| n == name).expect("known");
            totals
                .entry(name.clone())
                .or_insert_with(|| Totals::new(*catalogue))
                .add(figures, 1.0);
        }
    }
    judge.finish(&totals, ClockError::NONE)
}

#[test]
fn thresholds_read_the_run_or_its_worst_window() {
    let windows = [
        packets(100, 0),
        packets(100, 99),
        packets(0, 0),
        packets(100, 90),
        packets(100, 100),
    ];
    let results = judge(
        &[
            "viewers.loss < 5%",
            "viewers.loss.worst < 5%",
            "viewers.received.worst >= 1",
            "viewers.lost == 11",
            "viewers.lost.worst == 1",
            "viewers.lost.worst != 1",
        ],
        1,
        &windows,
    );
    let found: Vec<_> = results
        .iter()
        .map(|result| (result.value, result.window, result.passed))
        .collect();
    assert_eq!(found[0], (Some(11.0 / 300.0), None, true));
    assert_eq!(found[1], (Some(0.1), Some(3), false));
    assert_eq!(found[2], (Some(0.0), Some(2), false));
    assert_eq!(found[3], (Some(11.0), None, true));
    assert_eq!(found[4], (Some(10.0), Some(3), false));
    assert_eq!(found[5], (Some(1.0), Some(1), false));
    assert!(results.iter().all(|result| !result.in_doubt));
    // The implied threshold comes last.
    assert_eq!(results[6].text, "viewers.failed == 0");
    assert!(results[6].implied && results[6].passed);
    assert_eq!(results.len(), 7);
}

#[test]
fn zero_threshold_is_implied_unless_one_is_written() {
    let results = |written: &[&str]| {
        let thresholds = written
            .iter()
            .map(|text| Threshold::parse(text).expect("right"));
        let judge = Judge::new(thresholds.collect(), &SUBJECTS, 0).expect("they fit");
        let mut judge = judge
            .with("viewers.expected == 0", &SUBJECTS)
            .expect("it is a metric");
        assert!(
            judge
                .clone()
                .with("viewers.nothing == 0", &SUBJECTS)
                .is_err()
        );
        judge.window(0, 1.0, &packets(7, 7));
        let mut totals = Totals::new(VIEWERS);
        totals.add(&packets(7, 7)["viewers"], 1.0);
        judge.finish(
            &BTreeMap::from([("viewers".to_owned(), totals)]),
            ClockError::NONE,
        )
    };
    let found = results(&[]);
    let last = found.last().expect("two");
    assert_eq!(
        (last.text.as_str(), last.value),
        ("viewers.expected == 0", Some(7.0))
    );
    assert!(last.implied && !last.passed);
    // A bound on the other side does not replace it.
    assert_eq!(results(&["viewers.expected > 1"]).len(), 3);
    let found = results(&["viewers.expected < 10"]);
    assert_eq!(found.len(), 2);
    assert!(
        found
            .iter()
            .all(|result| result.text != "viewers.expected == 0")
    );
}

#[test]
fn short_last_window_is_not_the_worst() {
    let thresholds = vec![Threshold::parse("viewers.loss.worst < 5%").expect("right")];
    let mut judge = Judge::new(thresholds, &SUBJECTS, 0).expect("it fits");
    judge.window(0, 1.0, &packets(100, 99));
    judge.window(1, 0.1, &packets(2, 1));
    let results = judge.finish(&BTreeMap::new(), ClockError::NONE);
    assert_eq!((results[0].value, results[0].window), (Some(0.01), Some(0)));
    judge.window(1, 0.9, &packets(2, 1));
    let results = judge.finish(&BTreeMap::new(), ClockError::NONE);
    assert_eq!((results[0].value, results[0].window), (Some(0.5), Some(1)));
}

#[test]
fn threshold_without_data_fails() {
    let results = judge(
        &[
            "viewers.startup_delay.p95 < 2s",
            "viewers.loss.worst < 1%",
            "viewers.loss < 1%",
            "server.cpu < 95%",
            "server.socket_drops == 0",
        ],
        0,
        &[packets(0, 0)],
    );
    for result in &results[..5] {
        assert!(result.no_data && !result.passed, "{result:?}");
        assert_eq!(result.value, None);
    }
    // A run that consists of warm-up only has no data, not even for counts.
    for result in judge(&[], 1, &[packets(10, 10)]) {
        assert!(result.no_data && !result.passed, "{result:?}");
    }
}

#[test]
fn gauge_of_nan_is_no_data() {
    let mut server = Recorder::new(SERVER_CATALOGUE);
    server.set(server::CPU, f64::NAN);
    let window = BTreeMap::from([("server".to_owned(), server.take_window())]);
    for result in judge(
        &["server.cpu != 1cores", "server.cpu.worst != 100%"],
        0,
        &[window],
    ) {
        assert!(!result.passed, "{result:?}");
    }
}

#[test]
fn failures_are_counted_by_reason_and_in_total() {
    let mut viewers = Recorder::new(VIEWERS);
    viewers.fail("status_404");
    viewers.fail("status_404");
    viewers.fail("timeout");
    viewers.add(FAILED, 3);
    let window = BTreeMap::from([("viewers".to_owned(), viewers.take_window())]);
    let read = |text: &str| judge(&[text], 0, std::slice::from_ref(&window));
    let values = |results: &[ThresholdResult]| -> Vec<_> {
        results.iter().map(|r| (r.value, r.implied)).collect()
    };
    // A threshold on a single reason does not replace the implied one.
    let both = [(Some(2.0), false), (Some(3.0), true)];
    assert_eq!(values(&read("viewers.failures.status_404 <= 2")), both);
    let none = [(Some(0.0), false), (Some(3.0), true)];
    assert_eq!(values(&read("viewers.failures.refused == 0")), none);
    for text in [
        "viewers.failures <= 3",
        "viewers.failed <= 3",
        "viewers.failed.worst <= 3",
    ] {
        let results = read(text);
        assert_eq!(values(&results), [(Some(3.0), false)], "{text}");
        assert!(results[0].passed);
    }
}

#[test]
fn reason_includes_its_more_specific_reasons() {
    let mut viewers = Recorder::new(VIEWERS);
    for reason in ["tls_expired", "tls_alert", "tlsx", "tls"] {
        viewers.fail(reason);
    }
    let window = BTreeMap::from([("viewers".to_owned(), viewers.take_window())]);
    for (reason, count) in [("tls", 3.0), ("tls_alert", 1.0), ("tl", 0.0)] {
        for statistic in ["", ".worst"] {
            let text = format!("viewers.failures.{reason}{statistic} <= 9");
            let results = judge(&[&text], 0, std::slice::from_ref(&window));
            assert_eq!(results[0].value, Some(count), "{text}");
        }
    }
}

#[test]
fn warm_up_counts_towards_clients_only() {
    let window = |received: u64, failed: u64| {
        let mut viewers = Recorder::new(VIEWERS);
        viewers.add(EXPECTED, 100);
        viewers.add(RECEIVED, received);
        viewers.add(FAILED, failed);
        (0..failed).for_each(|_| viewers.fail("status_503"));
        BTreeMap::from([("viewers".to_owned(), viewers.take_window())])
    };
    // The second window belongs to the warm-up too, and the last has no failures.
    let windows = [window(50, 1), window(60, 3), window(99, 1), window(100, 0)];
    let read = |text: &str| {
        let result = judge(&[text], 2, &windows).swap_remove(0);
        (result.value, result.passed, result.window)
    };
    for text in [
        "viewers.failed <= 4",
        "viewers.failures <= 4",
        "viewers.failures.status_503 <= 4",
    ] {
        assert_eq!(read(text), (Some(5.0), false, None), "{text}");
    }
    assert_eq!(
        read("viewers.failures.timeout == 0"),
        (Some(0.0), true, None)
    );
    for text in ["viewers.failed.worst <= 2", "viewers.failures.worst <= 2"] {
        assert_eq!(read(text), (Some(3.0), false, Some(1)), "{text}");
    }
    assert_eq!(read("viewers.lost <= 1"), (Some(1.0), true, None));
    assert_eq!(read("viewers.lost.worst <= 1"), (Some(1.0), true, Some(2)));
    // The last window is too short.
    let threshold = Threshold::parse("viewers.failed.worst >= 1").expect("it is one");
    let mut judge_of_worst = Judge::new(vec![threshold], &SUBJECTS, 2).expect("it fits");
    judge_of_worst.window(0, 1.0, &windows[0]);
    judge_of_worst.window(1, 0.1, &windows[3]);
    assert_eq!(
        judge_of_worst.finish(&BTreeMap::new(), ClockError::NONE)[0].value,
        Some(1.0)
    );
    // The implied threshold.
    let unwritten = &judge(&[], 2, &windows)[0];
    assert_eq!((unwritten.value, unwritten.passed), (Some(5.0), false));
    // A run that ended within its warm-up measured nothing, except that clients failed.
    assert_eq!(
        judge(&["viewers.failed <= 4"], 4, &windows)[0].value,
        Some(5.0)
    );
    assert!(judge(&["viewers.failed <= 4"], 1, &windows[3..])[0].no_data);
}

#[test]
fn packets_lost_by_the_tester_put_thresholds_in_doubt() {
    let with_overflow = |overflow: u64| {
        let mut tester = Recorder::new(TESTER_CATALOGUE);
        tester.add(tester::SOCKET_OVERFLOW, overflow);
        let mut first = packets(100_000, 99_990);
        first.insert("tester".to_owned(), tester.take_window());
        vec![first, packets(100, 99)]
    };
    let doubt = |text: &str, overflow: u64| judge(&[text], 0, &with_overflow(overflow))[0].in_doubt;
    // 11 of 100,100 were lost.
    assert!(!doubt("viewers.lost < 11", 0));
    assert!(doubt("viewers.lost < 11", 1));
    assert!(!doubt("viewers.lost < 10", 1));
    assert!(doubt("viewers.lost < 10", 2));
    assert!(!doubt("viewers.lost < 12", 2));
    assert!(doubt("viewers.lost > 10", 1));
    assert!(!doubt("viewers.lost > 9", 1));
    assert!(doubt("viewers.lost == 0", 11));
    assert!(!doubt("viewers.lost == 0", 10));
    assert!(doubt("viewers.lost == 11", 1));
    assert!(doubt("viewers.loss < 0.0105%", 1));
    assert!(!doubt("viewers.loss < 0.0095%", 1));
    // In the second window one packet was lost, 1 %; in the first window 10 packets, 0.01 %.
    assert!(doubt("viewers.loss.worst < 0.5%", 1));
    assert!(!doubt("viewers.loss.worst < 0.005%", 1));
    assert!(!doubt("viewers.loss.worst < 2%", 5));
    assert!(!doubt("viewers.bitrate > 1Mbps", 5));
}

/// Judges the delays in milliseconds, one a window, with clocks of two runners that are wrong by 5
/// ms each.
fn judge_delays(text: &str, delays: &[u64]) -> ThresholdResult {
    let runner = |name: &str| tester::RunnerSummary {
        name: name.to_owned(),
        clock_error: Some(0.005),
        ..Default::default()
    };
    let clocks = ClockError::of(&[runner("one"), runner("two")]);
    let threshold = Threshold::parse(text).expect(text);
    let mut judge = Judge::new(vec![threshold], &SUBJECTS, 0).expect("it fits");
    let mut totals = BTreeMap::from([("viewers".to_owned(), Totals::new(VIEWERS))]);
    for (index, delay) in (0..).zip(delays) {
        let mut viewers = Recorder::new(VIEWERS);
        viewers.record(FRAME_DELAY, delay * 1_000_000);
        viewers.record(STARTUP_DELAY, delay * 1_000_000);
        let window = viewers.take_window();
        totals.get_mut("viewers").expect("added").add(&window, 1.0);
        judge.window(
            index,
            1.0,
            &BTreeMap::from([("viewers".to_owned(), window)]),
        );
    }
    let violated = judge.violated(0, &totals, || clocks);
    let result = judge.finish(&totals, clocks).remove(0);
    assert_eq!(violated.is_some(), result.has_failed() && !result.no_data);
    result
}

#[test]
fn delay_within_clock_error_neither_passes_nor_fails() {
    let word = |text: &str, delays: &[u64]| {
        let result = judge_delays(text, delays);
        match (result.passed, result.undecided) {
            (true, false) => "held",
            (false, true) => "undecided",
            (false, false) => "failed",
            (true, true) => panic!("{result:?}"),
        }
    };
    // The error of two clocks is 10 ms.
    for (text, delays, expected) in [
        ("viewers.frame_delay.max < 60ms", &[40][..], "held"),
        ("viewers.frame_delay.max < 51ms", &[40], "held"),
        ("viewers.frame_delay.max < 45ms", &[40], "undecided"),
        ("viewers.frame_delay.max < 31ms", &[40], "undecided"),
        ("viewers.frame_delay.max < 29ms", &[40], "failed"),
        ("viewers.frame_delay.max > 29ms", &[40], "held"),
        ("viewers.frame_delay.max == 40ms", &[40], "undecided"),
        // Below three errors nothing is said, however far the limit is.
        ("viewers.frame_delay.max < 2s", &[29], "undecided"),
        ("viewers.frame_delay.max < 2s", &[31], "held"),
        ("viewers.frame_delay.min > 1ms", &[29, 90], "undecided"),
        ("viewers.frame_delay.max.worst < 60ms", &[29, 40], "held"),
        (
            "viewers.frame_delay.max.worst < 60ms",
            &[29, 55],
            "undecided",
        ),
        ("viewers.frame_delay.count >= 2", &[1, 2], "held"),
        ("viewers.startup_delay.max < 2s", &[29], "held"),
        ("viewers.frame_delay.max < 2s", &[], "failed"),
    ] {
        assert_eq!(word(text, delays), expected, "{text} {delays:?}");
    }
    let result = judge_delays("viewers.frame_delay.max < 45ms", &[40]);
    assert_eq!(result.clock_error, Some(0.01));
    assert_eq!(judge_delays("viewers.failed == 0", &[40]).clock_error, None);
    let why = result.explain();
    assert!(
        why.contains("the max was ~40 ms") && why.contains("by 10 ms"),
        "{why}"
    );
    let verdict = crate::Verdict::decide(&[result], crate::VerdictInput::default());
    assert_eq!((verdict.exit_code(), &verdict.reasons), (110, &vec![why]));
}

crate::metrics! {
    /// A population whose content can be checked.
    pub(crate) CHECKED after POPULATION;
    counters {
        /// Duplicates.
        AGAIN = "again", Count, "";
        /// Truncated packets.
        CUT = "cut", Count, "";
    }
    gauges {}
    distributions {}
    derived {
        /// Share of wrong content.
        "wrong", Ratio, "", WrongShare(&[EXPECTED, AGAIN], RECEIVED, CUT);
    }
}
static CHECKED_GROUPS: [&Group; 2] = [&POPULATION, &CHECKED];
const CHECKED_VIEWERS: Catalogue = Catalogue(&CHECKED_GROUPS);

/// Result of the implied threshold on content if `written` is given, or `None` if it is not judged.
fn on_content(written: &str, counts: [u64; 4]) -> Option<bool> {
    let subjects = [("viewers", CHECKED_VIEWERS)];
    let mut recorder = Recorder::new(CHECKED_VIEWERS);
    for (counter, count) in [EXPECTED, RECEIVED, AGAIN, CUT].into_iter().zip(counts) {
        recorder.add(counter, count);
    }
    let totals = Totals::of_window(CHECKED_VIEWERS, &recorder.take_window(), 1.0);
    let written = Threshold::parse(written).expect("it is one");
    let judge = Judge::new(vec![written], &subjects, 0).expect("it fits");
    let results = judge.finish(
        &BTreeMap::from([("viewers".to_owned(), totals)]),
        ClockError::NONE,
    );
    let mut results = results.iter();
    let found = results.find(|result| result.text == "viewers.wrong <= 0.1%")?;
    assert!(found.implied);
    Some(found.passed)
}

#[test]
fn implied_threshold_on_content_is_judged() {
    let other = "viewers.bitrate >= 0bps";
    assert_eq!(on_content(other, [1000, 1000, 0, 0]), Some(true));
    assert_eq!(on_content(other, [1000, 999, 0, 0]), Some(true));
    assert_eq!(on_content(other, [1000, 998, 0, 0]), Some(false));
    assert_eq!(on_content(other, [1000, 1000, 0, 2]), Some(false));
    assert_eq!(on_content(other, [1000, 1000, 2, 0]), Some(false));
    // The correct content is unknown.
    assert_eq!(on_content(other, [0; 4]), None);
    // An explicit limit on loss or wrong content replaces it.
    for written in [
        "viewers.wrong <= 5%",
        "viewers.loss <= 5%",
        "viewers.lost <= 5",
    ] {
        assert_eq!(on_content(written, [1000, 998, 0, 0]), None, "{written}");
    }
}

#[test]
fn pooled_figures_come_from_summed_counters() {
    let one = |expected, received, delay| {
        let mut recorder = Recorder::new(CHECKED_VIEWERS);
        recorder.add(EXPECTED, expected);
        recorder.add(RECEIVED, received);
        recorder.set(ACTIVE, 1.0);
        recorder.record(STARTUP_DELAY, delay);
        Totals::of_window(CHECKED_VIEWERS, &recorder.take_window(), 1.0)
    };
    let other = Totals::new(SERVER_CATALOGUE);
    let all = [
        one(1000, 900, 1_000_000_000),
        other,
        one(10, 10, 3_000_000_000),
    ];
    let pooled = |name, statistic| Totals::pooled(&all, name, statistic);
    for name in ["loss", "wrong"] {
        assert_eq!(pooled(name, Statistic::Value), Some(100.0 / 1010.0));
    }
    assert_eq!(pooled("lost", Statistic::Value), Some(100.0));
    assert_eq!(pooled("startup_delay", Statistic::Mean), Some(2.0));
    assert_eq!(pooled("startup_delay", Statistic::Max), Some(3.0));
    assert_eq!(pooled("active", Statistic::Max), None, "when was that?");
    assert_eq!(pooled("surprise", Statistic::Value), None);
}

#[test]
fn rates_exclude_the_shutdown() {
    let window = || {
        let mut viewers = Recorder::new(VIEWERS);
        viewers.add(PAYLOAD_BYTES, 100);
        viewers.take_window()
    };
    let mut totals = Totals::new(VIEWERS);
    totals.add(&window(), 1.0);
    totals.add_shutdown(&window());
    assert_eq!(totals.named("payload_bytes", Statistic::Value), Some(200.0));
    assert_eq!(totals.named("bitrate", Statistic::Value), Some(800.0));
}

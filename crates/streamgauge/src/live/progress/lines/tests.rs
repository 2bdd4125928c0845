use engine::{ClientRole, Failures, PopulationProgress, Rates, StartDelay, TesterProgress};
use measure::tester::RunnerState;
use measure::{ThresholdResult, Unit};
use report::paint::Paint;

use super::*;

fn viewers() -> PopulationProgress {
    PopulationProgress {
        role: ClientRole::Play,
        planned: Some(1500),
        active: 1200,
        playing: 1190,
        starting: 10,
        started: 1210,
        failed: 10,
        start_delay: Some(StartDelay {
            metric: "startup_delay",
            p95: 0.12,
        }),
        rates: Some(Rates {
            bitrate: 120e6,
            expected: 10_000,
            received: 9_990,
            ..Rates::default()
        }),
    }
}

fn senders() -> PopulationProgress {
    PopulationProgress {
        role: ClientRole::Send,
        planned: Some(1000),
        active: 1000,
        playing: 1000,
        rates: Some(Rates {
            sent: 12_345.0,
            answered: 9_999.0,
            ..Rates::default()
        }),
        ..PopulationProgress::default()
    }
}

fn progress() -> Progress {
    Progress {
        elapsed: Duration::from_secs(75),
        phase: Phase::Running,
        populations: vec![("viewers".to_owned(), viewers())],
        thresholds: Vec::new(),
        server_cpu: Some(0.5),
        tester: TesterProgress {
            cpu: Some(0.25),
            lag_p99: Some(0.0012),
            overflow: 3,
            healthy: false,
        },
        runners: Vec::new(),
        failures: Vec::new(),
        is_held: false,
        held: Duration::ZERO,
    }
}

fn refused(number: u64, count: u64) -> Failures {
    Failures {
        population: "viewers".to_owned(),
        reason: format!("refused_{number}"),
        count,
    }
}

/// Returns a window that was cut short, like the last one of a run.
fn cut_short() -> Progress {
    let mut progress = progress();
    progress.phase = Phase::Stopping;
    progress.populations[0].1.rates = None;
    progress.server_cpu = None;
    progress.tester.cpu = None;
    progress
}

fn history(windows: &[f64]) -> History {
    let mut history = History::default();
    for bitrate in windows {
        let mut seen = progress();
        seen.populations[0].1.rates = Some(Rates {
            bitrate: *bitrate,
            expected: 1000,
            received: if *bitrate > 50.0 { 995 } else { 1000 },
            ..Rates::default()
        });
        seen.populations.push(("chat".to_owned(), senders()));
        history.add(&seen);
    }
    history
}

fn shown(
    progress: &Progress,
    history: &History,
    planned: Option<u64>,
    size: (usize, usize),
) -> Vec<String> {
    let view = View {
        progress,
        history,
        planned: planned.map(Duration::from_secs),
        urls: &BTreeMap::new(),
        obeys_keys: false,
        shows_keys: false,
    };
    drawn(&view, size)
}

fn drawn(view: &View<'_>, (columns, rows): (usize, usize)) -> Vec<String> {
    let lines = view.lines(Size { columns, rows });
    assert!(lines.len() <= rows, "{lines:?}");
    for line in &lines {
        assert!(line.width() <= columns, "{line:?}");
    }
    let lines = lines.iter();
    lines.map(|line| line.painted(Paint::default())).collect()
}

#[test]
fn block_fits_80_columns() {
    let history = history(&[0.0, 20.0, 40.0, 60.0, 80.0]);
    assert_eq!(
        shown(&progress(), &history, Some(120), (80, 24)),
        [
            "━━━━━━━━━━━━━━━━━━━━━━━━━─────────────── 1 min 15 s of 2 min, 45 s left",
            "viewers: 1,190 of 1,500 playing, 10 failed, startup_delay p95 120 ms",
            "      120 Mbit/s                   ▁▃▅▆█  loss 0.1 %                       ▁▁▁▅▅",
            "server CPU 50 %, tester CPU 25 %, 3 packets lost here: OVERLOADED",
        ]
    );
}

#[test]
fn block_fits_40_columns_with_what_matters() {
    let history = history(&[0.0, 20.0, 40.0, 60.0, 80.0]);
    assert_eq!(
        shown(&progress(), &history, Some(120), (40, 24)),
        [
            "━━━━━━━━━━━━━━━━━━━─────────── 45 s left",
            "viewers: 1,190 playing, 10 failed",
            "  120 Mbit/s   ▁▃▅▆█  loss 0.1 %   ▁▁▁▅▅",
            "server CPU 50 %, tester OVERLOADED",
        ]
    );
}

#[test]
fn block_of_120_columns_shows_all() {
    let history = history(&[0.0, 20.0, 40.0, 60.0, 80.0]);
    let lines = shown(&progress(), &history, Some(120), (120, 24));
    assert_eq!(
        lines[3],
        "server CPU 50 %, tester CPU 25 %, lag p99 1.2 ms, 3 packets lost here: OVERLOADED"
    );
    assert_eq!(
        lines[2].chars().filter(|c| ('▁'..='█').contains(c)).count(),
        10
    );
}

#[test]
fn run_without_end_is_endless() {
    let history = history(&[40.0]);
    for columns in [40, 80, 120] {
        let lines = shown(&progress(), &history, None, (columns, 24));
        assert_eq!(lines[0], "1 min 15 s, endless, Ctrl-C to finish");
    }
}

#[test]
fn launching_shows_no_clients() {
    let launching = Progress {
        phase: Phase::Launching("waiting up to 10 s for port 8554 of 127.0.0.1".to_owned()),
        populations: Vec::new(),
        ..progress()
    };
    let lines = |columns| shown(&launching, &History::default(), Some(8), (columns, 24));
    assert_eq!(lines(80), ["waiting up to 10 s for port 8554 of 127.0.0.1"]);
    assert_eq!(lines(40), ["waiting up to 10 s …rt 8554 of 127.0.0.1"]);
}

#[test]
fn stopping_says_how_to_stop_at_once() {
    let mut stopping = progress();
    stopping.phase = Phase::Stopping;
    let history = history(&[40.0]);
    let first = |planned, columns| shown(&stopping, &history, planned, (columns, 24)).remove(0);
    assert_eq!(
        first(Some(75), 120),
        format!(
            "{} 1 min 15 s of 1 min 15 s, stopping (Ctrl-C to stop at once)",
            "━".repeat(40)
        )
    );
    assert_eq!(
        first(Some(75), 40),
        "━━━━━━━━━━━━━ stopping (Ctrl-C: at once)"
    );
    assert_eq!(
        first(None, 80),
        "1 min 15 s, stopping (Ctrl-C to stop at once)"
    );
}

#[test]
fn window_cut_short_shows_no_rates() {
    let history = history(&[40.0, 60.0]);
    let lines = shown(&cut_short(), &history, Some(75), (80, 24)).join("\n");
    assert!(
        !lines.contains("bit/s") && !lines.contains("loss"),
        "{lines}"
    );
    let line = plain(&cut_short(), Some(Duration::from_secs(75)));
    assert_eq!(
        line,
        "1 min 15 s of 1 min 15 s, stopping (Ctrl-C to stop at once); \
         viewers: 1,190 of 1,500 playing, 10 failed, startup_delay p95 120 ms, 10 starting; \
         tester lag p99 1.2 ms, 3 packets lost here: OVERLOADED"
    );
    let mut unchanged = History::default();
    unchanged.add(&cut_short());
    assert!(unchanged.populations.is_empty());
}

#[test]
fn messages_are_counted_in_messages() {
    let mut progress = progress();
    progress.populations = vec![("chat".to_owned(), senders())];
    let history = history(&[40.0, 60.0]);
    let lines = |columns| shown(&progress, &history, None, (columns, 24));
    assert_eq!(lines(120)[1], "chat: 1,000 of 1,000 connected, 0 failed");
    assert_eq!(
        lines(80)[2],
        "  12,345 messages/s                   ██  9,999 answered/s                   ██"
    );
    assert_eq!(lines(40)[2], "  12,345 messages/s   9,999 answered/s ");
}

#[test]
fn many_populations_are_bounded_by_the_height() {
    let mut progress = progress();
    progress.populations = (0..8)
        .map(|number| (format!("viewers{number}"), viewers()))
        .collect();
    let history = History::default();
    let ten = shown(&progress, &history, Some(120), (80, 10));
    assert_eq!(ten.len(), 10);
    assert_eq!(
        ten[1],
        "viewers0: 1,190 of 1,500 playing, 10 failed, 120 Mbit/s, loss 0.1 %"
    );
    let six = shown(&progress, &history, Some(120), (80, 6));
    assert_eq!(six.len(), 6);
    assert!(six[3].starts_with("viewers2: "), "{six:?}");
    assert_eq!(six[4], "... and 5 more");
    assert!(six[5].starts_with("server CPU 50 %"), "{six:?}");
    for rows in 1..6 {
        for columns in [1, 2, 5, 20] {
            shown(&progress, &history, Some(120), (columns, rows));
        }
    }
}

#[test]
fn plain_line_shows_populations_server_and_tester() {
    let planned = Some(Duration::from_secs(120));
    assert_eq!(
        plain(&progress(), planned),
        "1 min 15 s of 2 min, running; \
         viewers: 1,190 of 1,500 playing, 10 failed, 120 Mbit/s, loss 0.1 %, \
         startup_delay p95 120 ms, 10 starting; server CPU 50 %, tester CPU 25 %, lag p99 1.2 ms, 3 packets lost here: OVERLOADED"
    );
    let publishers = PopulationProgress {
        role: ClientRole::Publish,
        active: 3,
        playing: 2,
        starting: 1,
        rates: Some(Rates {
            sent_bitrate: 4e6,
            ..Rates::default()
        }),
        ..PopulationProgress::default()
    };
    assert_eq!(
        plain_population("cameras", &publishers),
        "cameras: 2 of 3 publishing, 0 failed, 4 Mbit/s sent, 1 starting"
    );
    assert_eq!(
        plain_population("chat", &senders()),
        "chat: 1,000 of 1,000 connected, 0 failed, 12,345 messages/s, 9,999 answered/s"
    );
}

#[test]
fn charts_are_above_and_failures_below_populations() {
    let mut history = History::default();
    for second in 70..=75 {
        let mut progress = progress();
        progress.elapsed = Duration::from_secs(second);
        // Each of these seconds has one more reason than the second before.
        let reasons = 0..second.saturating_sub(70);
        progress.failures = reasons.map(|number| refused(number, 2)).collect();
        history.add(&progress);
    }
    let lines = shown(&progress(), &history, Some(120), (80, 24));
    let text = lines.join("\n");
    assert!(lines.len() <= 23, "{text}");
    assert!(
        text.contains("132 Mbit/s") && text.contains("clients"),
        "{text}"
    );
    assert!(
        lines.iter().any(|line| line.contains("viewers: 1,190")),
        "{text}"
    );
    let below = &lines[lines.len() - FAILURES_MAX..];
    assert_eq!(
        below,
        [
            "2 older reasons",
            "6 × refused_2 of viewers, 1 min 13 s to 1 min 15 s",
            "4 × refused_3 of viewers, 1 min 14 s to 1 min 15 s",
            "2 × refused_4 of viewers, 1 min 15 s",
        ]
    );
    for size in [(71, 24), (80, 17), (40, 20)] {
        let text = shown(&progress(), &history, Some(120), size).join("\n");
        assert!(!text.contains("132 Mbit/s"), "{text}");
        assert!(text.contains("refused_4"), "{text}");
    }
    // More important lines take precedence.
    let text = shown(&progress(), &history, Some(120), (80, 3)).join("\n");
    assert!(!text.contains("refused_"), "{text}");
}

#[test]
fn held_run_is_marked_and_ends_later() {
    let mut progress = progress();
    progress.is_held = true;
    progress.held = Duration::from_secs(20);
    let first = |size| shown(&progress, &History::default(), Some(120), size).remove(0);
    let wide = first((80, 24));
    assert!(
        wide.ends_with("1 min 15 s of 2 min 20 s, held (h to resume)"),
        "{wide}"
    );
    let narrow = first((40, 24));
    assert!(narrow.ends_with(" held (h to resume)"), "{narrow}");
    let endless = shown(&progress, &History::default(), None, (80, 24)).remove(0);
    assert_eq!(endless, "1 min 15 s, endless, held (h to resume)");
}

fn runner(number: u64) -> RunnerState {
    RunnerState {
        name: format!("load{number}"),
        active: Some(300),
        playing: Some(300 - number),
        cpu: Some(0.04),
        lag_max: Some(0.0021),
        healthy: true,
        lost: false,
    }
}

#[test]
fn runners_are_below_the_tester() {
    let history = history(&[40.0]);
    let mut seen = progress();
    seen.runners = (0..4).map(runner).collect();
    seen.runners[1].healthy = false;
    seen.runners[2] = RunnerState {
        name: "load2".to_owned(),
        healthy: true,
        ..RunnerState::default()
    };
    seen.runners[3] = RunnerState {
        name: "load3".to_owned(),
        lost: true,
        ..seen.runners[2].clone()
    };
    assert_eq!(
        shown(&seen, &history, Some(120), (80, 24))[4..],
        [
            "  load0: 300 playing, CPU 4 %, lag max 2.1 ms",
            "  load1: OVERLOADED, 299 of 300 playing, CPU 4 %, lag max 2.1 ms",
            "  load2: ended",
            "  load3: LOST",
        ]
    );
    assert_eq!(
        shown(&seen, &history, Some(120), (30, 24))[5],
        "  load1: OVERLOADED, 299 of 3…"
    );
}

#[test]
fn of_many_runners_those_with_a_fault_are_shown() {
    let history = history(&[40.0]);
    let mut seen = progress();
    seen.runners = (0..256).map(runner).collect();
    seen.runners[200].healthy = false;
    let lines = shown(&seen, &history, Some(120), (80, 24));
    assert_eq!(lines.len(), 4 + RUNNERS_MAX);
    assert!(lines[4].starts_with("  load200: OVERLOADED"), "{lines:?}");
    assert!(lines[5].starts_with("  load0: "), "{lines:?}");
    assert_eq!(lines[11], "  and 249 more");
    let few = shown(&seen, &history, Some(120), (80, 6));
    assert_eq!((few.len(), few[5].as_str()), (6, "  and 255 more"));
    // Populations and the state of the tester have precedence.
    assert_eq!(shown(&seen, &history, Some(120), (80, 5)).len(), 4);
}

#[test]
fn url_and_thresholds_are_shown_with_the_population() {
    let history = history(&[40.0]);
    let mut seen = progress();
    let threshold = |text: &str, value, passed| ThresholdResult {
        text: text.to_owned(),
        subject: "viewers".to_owned(),
        value: Some(value),
        statistic: None,
        unit: Unit::Seconds,
        limit: 2.0,
        passed,
        window: None,
        no_data: false,
        implied: false,
        in_doubt: false,
        undecided: false,
        clock_error: None,
    };
    seen.thresholds = vec![
        threshold("viewers.startup_delay.p95 < 2s", 0.12, true),
        threshold("viewers.longest_gap.p95 < 2s", 3.1, false),
    ];
    let url = "rtsp://127.0.0.1:8554/a/path/that/is/rather/long";
    let urls = BTreeMap::from([("viewers".to_owned(), url.to_owned())]);
    let view = View {
        progress: &seen,
        history: &history,
        planned: Some(Duration::from_secs(120)),
        urls: &urls,
        obeys_keys: true,
        shows_keys: false,
    };
    let lines = drawn(&view, (80, 24));
    assert_eq!(lines[2], format!("  {url}"));
    assert_eq!(
        lines[4..],
        [
            "✓ 120 ms  viewers.startup_delay.p95 < 2s",
            "✗  3.1 s  viewers.longest_gap.p95 < 2s",
            "server CPU 50 %, tester CPU 25 %, 3 packets lost here: OVERLOADED",
            "q: stop and report, h: hold the ramp, ?: all keys",
        ]
    );
    let narrow = drawn(&view, (40, 24));
    assert_eq!(narrow[2], "  rtsp://127.0.0.1:8554…t/is/rather/long");
    assert_eq!(narrow[4], "✓ 120 ms  viewers.startup_delay.p95 < 2s");
    assert_eq!(narrow[7], "q: stop, h: hold, ?: all keys");
    // Without a row of its own, the URL is at the end of the line of its population.
    let low = drawn(&view, (200, 6));
    assert!(low[1].ends_with(&format!(", {url}")), "{low:?}");
}

#[test]
fn all_keys_are_shown_on_request() {
    let history = history(&[40.0]);
    let launching = Progress {
        phase: Phase::Launching("starting vlc".to_owned()),
        populations: Vec::new(),
        ..progress()
    };
    for seen in [progress(), launching] {
        let view = View {
            progress: &seen,
            history: &history,
            planned: None,
            urls: &BTreeMap::new(),
            obeys_keys: true,
            shows_keys: true,
        };
        for columns in [40, 120] {
            let lines = drawn(&view, (columns, 24));
            assert_eq!(
                lines[lines.len() - 4..],
                [
                    "q       stop and report, like Ctrl-C",
                    "Ctrl-C  stop; again: stop at once",
                    "h       hold the ramp",
                    "?       hide the keys",
                ]
            );
        }
    }
}

#[test]
fn participant_of_a_room_shows_what_it_sends() {
    let rates = |bitrate, sent_bitrate| Rates {
        bitrate,
        sent_bitrate,
        ..Rates::default()
    };
    let line = |role, rates| {
        let mut seen = progress();
        let population = &mut seen.populations[0].1;
        (population.role, population.rates) = (role, Some(rates));
        let mut history = History::default();
        history.add(&seen);
        let mut line = shown(&seen, &history, None, (80, 24)).remove(2);
        line.truncate(line.trim_end().len());
        line
    };
    let play = line(ClientRole::Play, rates(12e6, 3e6));
    assert!(play.starts_with("  12 Mbit/s, 3 Mbit/s sent "), "{play}");
    // No packets were expected, so there is no loss.
    assert!(!play.contains("loss"), "{play}");
    // The first participant of a room, and one with `subscribe: nobody`.
    for role in [ClientRole::Play, ClientRole::Publish] {
        let alone = line(role, rates(0.0, 3e6));
        assert!(alone.starts_with("   3 Mbit/s sent "), "{alone}");
        assert!(alone.ends_with('█') && !alone.contains("loss"), "{alone}");
    }
}

//! Series with message servers: eligibility as the best, and the cost of a message.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use measure::{
    Recorder, SERVER_CATALOGUE, TESTER_CATALOGUE, ThresholdResult, Time, Verdict, VerdictResult,
    server,
};
use messages::metrics as m;
use report::series::{Series, table};
use report::{Layout, Report, open};
use runfile::{Header, Machine, RunFile, SubjectHeader, WindowRow};
use serde_json::{Value, json};

use crate::catalogue_of;

const SENT: u64 = 100_000;

/// Messages with each result, in each of two seconds.
#[derive(Clone, Copy, Default)]
struct Made {
    lost: u64,
    not_taken: u64,
    wrong: u64,
    unanswered: u64,
    /// Back-pressure that the scenario allows.
    allowed: Option<f64>,
    cores: f64,
}

/// Writes a run with these varied values, which sends `sent` messages in each of two seconds.
fn write(folder: &Path, at: usize, varied: &[(&str, String)], sent: u64, made: Made) {
    let subject = |name: &str, kind: &str| SubjectHeader {
        name: name.to_owned(),
        kind: kind.to_owned(),
        catalogue: catalogue_of(kind).expect("it is a known kind"),
    };
    let varied: Vec<Value> = varied
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    let header = Header {
        version: "0.1.0".to_owned(),
        scenario: json!({"name": "chats", "varied": varied}),
        machine: Machine::default(),
        seed: 7,
        started_at: Duration::from_secs(1_798_761_599),
        warm_up: Duration::ZERO,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: vec![
            subject("users", "messages"),
            subject("server", "server"),
            subject("tester", "tester"),
        ],
    };
    let run = RunFile::create(&folder.join(format!("{at:02}.run")), &header).expect("can be made");
    for index in 0..2u64 {
        let mut users = Recorder::new(catalogue_of("messages").expect("it is a protocol"));
        users.add(m::SENT, sent);
        users.add(m::ACKNOWLEDGED, sent - made.lost);
        users.add(m::BYTES_SENT, 36 * sent);
        users.add(m::LOST_IN_FLIGHT, made.lost);
        users.add(m::DUE_NOT_SENT, made.not_taken);
        users.add(m::ANSWERS_WRONG, made.wrong);
        users.add(m::ANSWERS_TIMED_OUT, made.unanswered);
        users.record(m::ROUND_TRIP, 2_000_000);
        let mut server = Recorder::new(SERVER_CATALOGUE);
        server.set(server::CPU, made.cores);
        let mut tester = Recorder::new(TESTER_CATALOGUE);
        run.window(WindowRow {
            index,
            start: Time::from_start(Duration::from_secs(index)),
            seconds: 1.0,
            subjects: BTreeMap::from([
                ("users".to_owned(), users.take_window()),
                ("server".to_owned(), server.take_window()),
                ("tester".to_owned(), tester.take_window()),
            ]),
        });
    }
    let verdict = Verdict {
        result: VerdictResult::Pass,
        reasons: Vec::new(),
        stopped_by_user: false,
    };
    let threshold = made.allowed.map(|limit| ThresholdResult {
        text: format!("users.back_pressure < {}%", limit * 100.0),
        subject: "users".to_owned(),
        unit: measure::Unit::Ratio,
        limit,
        value: Some(limit / 2.0),
        statistic: None,
        passed: true,
        window: None,
        no_data: false,
        implied: false,
        in_doubt: false,
        undecided: false,
        clock_error: None,
    });
    run.verdict(&verdict, threshold.as_slice());
    run.finish().expect("it can be written");
}

#[test]
fn only_servers_that_answer_all_messages_can_be_the_best() {
    let good = Made {
        cores: 0.8,
        ..Made::default()
    };
    let cheap = Made { cores: 0.1, ..good };
    let runs = [
        (good, None),
        // A share below the limit does not count.
        (
            Made {
                not_taken: 90,
                ..good
            },
            None,
        ),
        (
            Made {
                lost: 2_000,
                ..cheap
            },
            Some("2 % lost in flight"),
        ),
        (
            Made {
                wrong: 500,
                ..cheap
            },
            Some("0.5 % answered wrong"),
        ),
        (
            Made {
                unanswered: 30_000,
                ..cheap
            },
            Some("30 % not answered"),
        ),
        (
            Made {
                not_taken: 100_000,
                ..cheap
            },
            Some("50 % not taken"),
        ),
        (
            Made {
                not_taken: 50_000,
                allowed: Some(1.0),
                cores: 0.9,
                ..good
            },
            None,
        ),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (at, (made, _)) in runs.iter().enumerate() {
        let varied = [("server.launch", at.to_string())];
        write(folder.path(), at, &varied, SENT, *made);
    }
    let series = Series::open(folder.path(), catalogue_of).expect("it is a series");
    for (row, (_, word)) in series.runs.iter().zip(&runs) {
        assert_eq!(row.out_of_contest.as_deref(), *word, "{row:?}");
        assert!(word.is_none() || row.best.is_empty(), "{row:?}");
    }
    let first = &series.runs[0];
    assert!(first.best.contains(&"cpu_per_message"), "{first:?}");
    let figures = first.figures.as_ref().expect("it was measured");
    assert_eq!(figures.messages, Some(100_000.0));
    assert_eq!(figures.bitrate, Some(28_800_000.0));
    assert_eq!(figures.cpu_per_message, Some(8e-6));
    let alone = Report::from_run(
        &open(&folder.path().join("00.run"), catalogue_of).expect("it can be read"),
    );
    let mut json = Vec::new();
    report::json::write(&alone.expect("it is a run"), std::iter::empty(), &mut json)
        .expect("it can be written");
    let alone: Value = serde_json::from_slice(&json).expect("it is JSON");
    assert_eq!(alone["cpu_per_message"], json!(8e-6));
    let layout = Layout {
        width: 140,
        ..Layout::default()
    };
    let table = table(&series, layout);
    for part in [
        "messages",
        "100,000",
        "28.8",
        "PASS, not ranked",
        "not ranked: 50 % not taken",
        "8*",
    ] {
        assert!(table.contains(part), "no `{part}` in:\n{table}");
    }
    for part in ["loss", "jitter", "startup"] {
        assert!(!table.contains(part), "`{part}` in:\n{table}");
    }
}

#[test]
fn best_concurrency_and_ineligible_runs_are_stated() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let lost = Made {
        lost: 50_000,
        ..Made::default()
    };
    let runs = [
        ("5ms", 1000, 50_000, Made::default()),
        ("5ms", 2000, 96_000, Made::default()),
        ("5ms", 3000, 100_000, Made::default()),
        ("5ms", 4000, 70_000, Made::default()),
        ("5ms", 5000, 300_000, lost),
        ("20ms", 1000, 30_000, Made::default()),
        ("20ms", 2000, 60_000, Made::default()),
        ("100ms", 1000, 200_000, lost),
    ];
    for (at, (sleep, clients, sent, made)) in runs.into_iter().enumerate() {
        let varied = [
            ("clients.users.plan.sleep", sleep.to_owned()),
            ("clients.users.load.clients", clients.to_string()),
        ];
        write(folder.path(), at, &varied, sent, made);
    }
    let series = Series::open(folder.path(), catalogue_of).expect("it is a series");
    let [short, long, none] = series.most_messages.as_slice() else {
        panic!("{:?}", series.most_messages);
    };
    assert_eq!(
        (short.clients, short.messages, short.nearly_with),
        (Some(3000), Some(100_000.0), Some(2000))
    );
    assert!(!short.at_the_end, "{short:?}");
    assert_eq!(short.left_out.len(), 1, "{short:?}");
    assert_eq!(short.left_out[0].clients, 5000);
    assert_eq!((long.clients, long.nearly_with), (Some(2000), Some(2000)));
    assert!(long.at_the_end && long.left_out.is_empty(), "{long:?}");
    assert_eq!((none.clients, none.messages), (None, None));
    assert!(!none.at_the_end, "{none:?}");
    let layout = Layout {
        width: 400,
        ..Layout::default()
    };
    let table = table(&series, layout);
    for part in [
        "with sleep 5ms: 100,000 messages/s with 3,000 clients, the best of all; \
         at least 95 % of that with 2,000 already; left out: 5,000 (16.7 % lost in flight)",
        "with sleep 20ms: 60,000 messages/s with 2,000 clients; no eligible run had more clients, \
         so the maximum may be higher\n",
        "with sleep 100ms: no eligible run; left out: 1,000 (25 % lost in flight)",
    ] {
        assert!(table.contains(part), "no `{part}` in:\n{table}");
    }
}

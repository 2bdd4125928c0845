//! Eligibility of a series' runs as the best, and unknown figures.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kit::media::ts::metrics as ts;
use kit::metrics as clients;
use measure::{Recorder, SERVER_CATALOGUE, TESTER_CATALOGUE, Time, Verdict, VerdictResult, server};
use report::Layout;
use report::series::{Row, Series, table};
use runfile::{ClientOutcome, ClientRow, Header, Machine, RunFile, SubjectHeader, WindowRow};
use serde_json::json;

use crate::catalogue_of;

const KEY: &str = "server.launch";

/// Media that one of eight clients receives, of 10,000 datagrams or of a stream without stamps.
#[derive(Clone, Copy, Default)]
struct Got {
    failed: Option<&'static str>,
    /// The stream has no stamps, so the sent data is unknown.
    unstamped: bool,
    lost: u64,
    duplicated: u64,
    foreign: u64,
    damaged: u64,
    continuity_errors: u64,
    /// Packets with an unknown arrival time.
    by_reading: u64,
}

const EXPECTED: u64 = 10_000;

struct Made {
    name: &'static str,
    /// Clients that differ; the others receive everything.
    clients: Vec<Got>,
    cores: f64,
    result: VerdictResult,
}

fn made(name: &'static str, clients: &[Got], cores: f64) -> Made {
    Made {
        name,
        clients: clients.to_vec(),
        cores,
        result: VerdictResult::Pass,
    }
}

fn write(folder: &Path, at: usize, made: &Made) {
    let subject = |name: &str, kind: &str| SubjectHeader {
        name: name.to_owned(),
        kind: kind.to_owned(),
        catalogue: catalogue_of(kind).expect("it is a known kind"),
    };
    let header = Header {
        version: "0.1.0".to_owned(),
        scenario: json!({"name": "relays", "varied": [{"key": KEY, "value": made.name}]}),
        machine: Machine::default(),
        seed: 7,
        started_at: Duration::from_secs(1_798_761_599),
        warm_up: Duration::ZERO,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: vec![
            subject("viewers", "http-ts"),
            subject("server", "server"),
            subject("tester", "tester"),
        ],
    };
    let path = folder.join(format!("{at}.run"));
    let run = RunFile::create(&path, &header).expect("a run file can be made");
    let mut viewers = Recorder::new(catalogue_of("http-ts").expect("it is a protocol"));
    for id in 0..8u64 {
        let got = made.clients.get(id as usize).copied().unwrap_or_default();
        let mut streams = json!([]);
        if let Some(reason) = got.failed {
            viewers.add(clients::FAILED, 1);
            viewers.fail(reason);
        } else {
            let expected = if got.unstamped { 0 } else { EXPECTED };
            let received = expected - got.lost.min(expected);
            viewers.add(ts::EXPECTED, expected);
            viewers.add(ts::RECEIVED, received);
            viewers.add(ts::DUPLICATED, got.duplicated);
            viewers.add(ts::FOREIGN, got.foreign);
            viewers.add(ts::DAMAGED, got.damaged);
            viewers.add(ts::CONTINUITY_ERRORS, got.continuity_errors);
            viewers.add(ts::TS_PACKETS, 7 * EXPECTED);
            viewers.add(ts::TIMED_BY_READING, got.by_reading);
            viewers.add(ts::PAYLOAD_BYTES, 7 * 188 * EXPECTED);
            if !got.unstamped {
                viewers.record(ts::DATAGRAM_DELAY, 1_000_000 * (1 + at as u64));
            }
            streams = json!([{
                "kind": "multiplex", "expected": expected, "received": received,
                "duplicated": got.duplicated, "late": 0,
                "ts": {
                    "continuity_errors": got.continuity_errors, "continuity_lost": 0,
                    "ts_packets": 7 * EXPECTED,
                    "datagrams": {
                        "damaged": got.damaged, "duplicated": got.duplicated,
                        "foreign": got.foreign, "late": 0,
                    },
                },
            }]);
        }
        run.client(ClientRow {
            id,
            subject: "viewers".to_owned(),
            first_media: got
                .failed
                .is_none()
                .then(|| Time::from_start(Duration::ZERO)),
            outcome: Some(match got.failed {
                Some(_) => ClientOutcome::Failed,
                None => ClientOutcome::Stopped,
            }),
            reason: got.failed.map(str::to_owned),
            streams,
            ..ClientRow::default()
        });
    }
    let mut server = Recorder::new(SERVER_CATALOGUE);
    server.set(server::CPU, made.cores);
    let mut tester = Recorder::new(TESTER_CATALOGUE);
    run.window(WindowRow {
        index: 0,
        start: Time::from_start(Duration::ZERO),
        seconds: 1.0,
        subjects: BTreeMap::from([
            ("viewers".to_owned(), viewers.take_window()),
            ("server".to_owned(), server.take_window()),
            ("tester".to_owned(), tester.take_window()),
        ]),
    });
    let verdict = Verdict {
        result: made.result,
        reasons: Vec::new(),
        stopped_by_user: false,
    };
    run.verdict(&verdict, &[]);
    run.finish().expect("it can be written");
}

fn series(runs: &[Made]) -> (tempfile::TempDir, Series) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (at, made) in runs.iter().enumerate() {
        write(folder.path(), at, made);
    }
    let series = Series::open(folder.path(), catalogue_of).expect("it is a series");
    (folder, series)
}

fn text(series: &Series, width: usize) -> String {
    let layout = Layout {
        width,
        ..Layout::default()
    };
    table(series, layout)
}

const REFUSED: Got = Got {
    failed: Some("status_503"),
    ..GOOD
};
const GOOD: Got = Got {
    failed: None,
    unstamped: false,
    lost: 0,
    duplicated: 0,
    foreign: 0,
    damaged: 0,
    continuity_errors: 0,
    by_reading: 0,
};

fn replaced(number: u64) -> Got {
    Got {
        lost: number,
        duplicated: number,
        ..GOOD
    }
}

#[test]
fn only_runs_that_served_the_request_can_be_the_best() {
    let foreign = Got {
        foreign: 500,
        ..GOOD
    };
    let damaged = Got {
        damaged: 500,
        ..GOOD
    };
    let unreachable = Got {
        failed: Some("reset"),
        ..GOOD
    };
    let few = Got { lost: 9, ..GOOD };
    let mut failed = made("failed", &[], 0.01);
    failed.result = VerdictResult::Fail;
    let mut invalid = made("invalid", &[], 0.01);
    invalid.result = VerdictResult::Invalid;
    let runs = [
        (made("honest", &[few], 0.5), None),
        (made("idle", &[REFUSED; 3], 0.1), Some("refused 3 of 8")),
        (
            made("broken", &[REFUSED, unreachable], 0.1),
            Some("2 of 8 failed"),
        ),
        (
            made("loses", &[replaced(7290); 8], 0.1),
            Some("72.9 % lost"),
        ),
        (made("mixes", &[foreign; 8], 0.1), Some("wrong content")),
        (made("cuts", &[damaged; 8], 0.1), Some("wrong content")),
        // A single client among many is hidden in the sums.
        (
            made("unfair", &[replaced(30)], 0.1),
            Some("wrong for 1 of 8"),
        ),
        (failed, Some("a threshold failed")),
        (invalid, Some("invalid")),
    ];
    let (runs, words): (Vec<Made>, Vec<Option<&str>>) = runs.into_iter().unzip();
    let (_folder, series) = series(&runs);
    let found: Vec<Option<&str>> = series
        .runs
        .iter()
        .map(|row| row.out_of_contest.as_deref())
        .collect();
    assert_eq!(found, words);
    let honest = &series.runs[0];
    for name in [
        "served",
        "duplicated",
        "foreign",
        "server_cpu",
        "cpu_per_gbit",
    ] {
        assert!(honest.best.contains(&name), "{name}: {honest:?}");
    }
    assert!(series.runs[1..].iter().all(|row| row.best.is_empty()));
    let served = |row: &Row| {
        let figures = row.figures.as_ref().expect("it was measured");
        (figures.served, figures.asked)
    };
    let served: Vec<(u64, u64)> = series.runs[..7].iter().map(served).collect();
    let expected = [(8, 8), (5, 8), (6, 8), (0, 8), (0, 8), (0, 8), (7, 8)];
    assert_eq!(served, expected);
    let table = text(&series, 140);
    for part in [
        "FAIL\n",
        "PASS, not ranked",
        "- idle: not ranked: refused 3 of 8",
        "7 of 8 ",
        "8 of 8*",
    ] {
        assert!(table.contains(part), "no `{part}` in:\n{table}");
    }
}

#[test]
fn equal_values_are_not_marked_as_the_best() {
    let (_folder, series) = series(&[made("one", &[], 0.5), made("two", &[], 0.4)]);
    assert!(series.runs[1].best.contains(&"server_cpu"));
    for row in &series.runs {
        for name in ["served", "loss", "foreign"] {
            assert!(!row.best.contains(&name), "{row:?}");
        }
    }
}

#[test]
fn unknown_values_are_not_zero() {
    let unstamped = Got {
        unstamped: true,
        ..GOOD
    };
    let broken = Got {
        continuity_errors: 700,
        ..unstamped
    };
    let runs = [
        made("whole", &[unstamped; 8], 0.5),
        made("broken", &[broken; 8], 0.1),
        made("stamped", &[], 0.6),
    ];
    let (_folder, series) = series(&runs);
    let figures = series.runs[0].figures.as_ref().expect("it was measured");
    assert_eq!(
        (figures.loss, figures.wrong, figures.cpu_per_gbit),
        (None, None, None)
    );
    assert_eq!(figures.columns["foreign"], None);
    assert_eq!(figures.columns["continuity_errors"], Some(0.0));
    assert_eq!(figures.served, 8);
    let stamped = series.runs[2].figures.as_ref().expect("it was measured");
    assert_eq!(stamped.columns["foreign"], Some(0.0));
    assert_eq!(stamped.columns["continuity_errors"], None);
    let word = series.runs[1].out_of_contest.as_deref();
    assert_eq!(word, Some("5,600 continuity errors"));
    let table = text(&series, 140);
    assert!(table.contains("unknown"), "{table}");
    // No client changed the channel.
    assert!(!table.contains("zapping"), "{table}");
}

#[test]
fn values_from_times_of_reading_are_marked_and_never_the_best() {
    let some = Got {
        by_reading: 7 * EXPECTED / 50,
        ..GOOD
    };
    let (_folder, series) = series(&[made("exact", &[], 0.5), made("read", &[some; 8], 0.5)]);
    // 2 % of the packets may include the slowest one, but not half of all.
    let read = &series.runs[1];
    let table = text(&series, 140);
    assert_eq!(
        table.matches('~').count(),
        2,
        "a cell and the legend:\n{table}"
    );
    assert!(read.best.is_empty(), "{read:?}");
    let exact = &series.runs[0];
    assert!(exact.best.contains(&"datagram_delay_p99"), "{exact:?}");
}

#[test]
fn table_fits_in_100_columns_and_names_hidden_columns() {
    let runs = [
        made("rtp2httpd", &[], 0.5),
        made("msd_lite", &[], 0.4),
        made("tvgate", &[replaced(7290); 8], 0.7),
    ];
    let (_folder, series) = series(&runs);
    for (width, whole) in [(60, false), (100, true), (140, true)] {
        let table = text(&series, width);
        let headings = table.matches("launch").count();
        assert_eq!(headings == 1, whole, "{width}\n{table}");
        let shortened = table.contains("hidden to fit");
        assert_eq!(shortened, width < 140, "{width}\n{table}");
        for line in table.lines().filter(|line| !line.starts_with("series")) {
            assert!(line.chars().count() <= width, "{width}: {line}\n{table}");
        }
    }
}

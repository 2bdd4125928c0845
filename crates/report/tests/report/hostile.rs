//! A run file whose texts try to control the terminal of the reader.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kit::metrics as clients;
use measure::{Recorder, ThresholdResult, Time, Unit, Verdict, VerdictInput};
use report::paint::Paint;
use report::{Layout, Report, source, summary};
use runfile::{
    ClientOutcome, ClientRow, EventRow, Fact, Header, Machine, RunFile, SubjectHeader, WindowRow,
};
use serde_json::json;

use crate::catalogue_of;

/// A forged line, one of our colours, a cleared screen, the title, an 8-bit sequence, reversed text
/// direction, and invisible characters.
const HOSTILE: &str = "x\nFORGED\r\n\u{1b}[32mFORGED\u{1b}[0m\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}2J\u{202e}\u{200b}\u{2028}\u{7f}";

fn make(path: &Path) {
    let names = [
        (HOSTILE, "rtsp"),
        ("other", "rtsp"),
        ("server", "server"),
        ("tester", "tester"),
    ];
    let header = Header {
        version: HOSTILE.to_owned(),
        scenario: json!({"name": HOSTILE, "varied": [{"key": HOSTILE, "value": HOSTILE}]}),
        machine: Machine::default(),
        seed: 7,
        started_at: Duration::from_secs(1),
        warm_up: Duration::ZERO,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: names
            .map(|(name, kind)| SubjectHeader {
                name: name.to_owned(),
                kind: kind.to_owned(),
                catalogue: catalogue_of(kind).expect("it is known"),
            })
            .into(),
    };
    let file = RunFile::create(path, &header).expect("a new file");
    let mut viewers = Recorder::new(catalogue_of("rtsp").expect("it is known"));
    viewers.add(clients::STARTED, 1);
    viewers.add(clients::FAILED, 1);
    viewers.fail(HOSTILE);
    file.window(WindowRow {
        index: 0,
        start: Time::ZERO,
        seconds: 1.0,
        subjects: BTreeMap::from([(HOSTILE.to_owned(), viewers.take_window())]),
    });
    file.client(ClientRow {
        id: 1,
        subject: HOSTILE.to_owned(),
        url: HOSTILE.to_owned(),
        outcome: Some(ClientOutcome::Failed),
        reason: Some(HOSTILE.to_owned()),
        detail: Some(HOSTILE.to_owned()),
        ..ClientRow::default()
    });
    for kind in ["server_ended", "ports_used_up", HOSTILE] {
        file.event(EventRow {
            time: Time::ZERO,
            kind: kind.to_owned(),
            subject: Some(HOSTILE.to_owned()),
            text: HOSTILE.to_owned(),
        });
    }
    file.note(Fact::new("receive_path").of(&HOSTILE));
    file.note(Fact::new("receive_hint").of(&HOSTILE));
    let build = serde_json::json!({"commit": HOSTILE, "modified": false, "target": HOSTILE});
    file.note(Fact::new("build").of(&build));
    let described =
        json!({"population": HOSTILE, "url": HOSTILE, "description": null, "failure": HOSTILE});
    let difference = json!({"population": HOSTILE, "text": HOSTILE});
    let media = json!({"urls": [described], "differences": [difference]});
    file.note(Fact::new("media").of(&media));
    let thresholds = vec![ThresholdResult {
        text: HOSTILE.to_owned(),
        subject: HOSTILE.to_owned(),
        value: Some(1.0),
        statistic: Some(HOSTILE.to_owned()),
        unit: Unit::Count,
        limit: 0.0,
        passed: false,
        window: None,
        no_data: false,
        implied: false,
        in_doubt: false,
        undecided: false,
        clock_error: None,
    }];
    let verdict = Verdict::decide(
        &thresholds,
        VerdictInput {
            invalid: vec![HOSTILE.to_owned()],
            ..VerdictInput::default()
        },
    );
    file.verdict(&verdict, &thresholds);
    file.finish().expect("nothing is in its way");
}

fn check(text: &str, colour: bool) {
    assert!(text.contains("FORGED"), "it is shown: {text}");
    let mut rest = text.to_owned();
    if colour {
        assert!(!text.contains("\u{1b}[32mFORGED"), "{text:?}");
        for code in ["31", "32", "33", "1", "2", "0"] {
            rest = rest.replace(&format!("\u{1b}[{code}m"), "");
        }
    }
    let steers = |c: char| {
        (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{200b}' | '\u{2028}')
    };
    assert!(!rest.contains(steers), "{rest:?}");
    let forged = rest.lines().any(|line| line.starts_with("FORGED"));
    assert!(!forged, "{rest}");
}

#[test]
fn hostile_text_does_not_control_a_terminal() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("hostile.run");
    make(&path);
    let reader = report::open(&path, catalogue_of).expect("it is a run file");
    let report = Report::from_run(&reader).expect("it can be reported");
    for colour in [false, true] {
        for (width, everything) in [(80, false), (40, false), (400, true)] {
            let layout = Layout {
                width,
                paint: Paint { colour },
                verbose: everything,
            };
            check(&summary(&report, layout), colour);
        }
        let series = report::series::Series::open(folder.path(), catalogue_of);
        let series = series.expect("the run says that it is of a series");
        let layout = Layout {
            paint: Paint { colour },
            ..Layout::default()
        };
        check(&report::series::table(&series, layout), colour);
    }
    for line in report::media::lines(&report.media) {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[test]
fn json_report_keeps_hostile_text_in_escaped_form() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("hostile.run");
    make(&path);
    let reader = report::open(&path, catalogue_of).expect("it is a run file");
    let report = Report::from_run(&reader).expect("it can be reported");
    let mut out = Vec::new();
    report::json::write(&report, source::windows(&reader), &mut out).expect("memory takes it");
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    assert!(!text.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}')));
    let json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(json["run"]["name"], HOSTILE);
    assert_eq!(json["events"][0]["text"], HOSTILE);
}

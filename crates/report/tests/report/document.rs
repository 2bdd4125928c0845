//! Reports of synthetic run files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kit::browser::BROWSER_CATALOGUE;
use kit::media::rtp::metrics as rtp;
use kit::metrics as clients;
use measure::tester::RunnerSummary;
use measure::{
    Catalogue, ClockError, Judge, Recorder, SERVER_CATALOGUE, TESTER_CATALOGUE, Threshold,
    ThresholdResult, Time, Totals, Unit, Verdict, VerdictInput, server, tester,
};
use protocols::PROTOCOLS;
use report::metrics::MetricFigures;
use report::paint::Paint;
use report::{Layout, Report, source, summary};
use runfile::{
    ClientOutcome, ClientRow, EventRow, Fact, Header, Machine, RunFile, SubjectHeader, WindowRow,
    fact,
};

use crate::catalogue_of;

fn header(warm_up: Duration) -> Header {
    let subject = |name: &str, kind: &str| SubjectHeader {
        name: name.to_owned(),
        kind: kind.to_owned(),
        catalogue: catalogue_of(kind).expect("it is a known kind"),
    };
    Header {
        version: "0.1.0".to_owned(),
        scenario: serde_json::json!({"name": "evening"}),
        machine: Machine::default(),
        seed: 7,
        started_at: Duration::from_secs(1_798_761_599),
        warm_up,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: vec![
            subject("viewers", "rtsp"),
            subject("server", "server"),
            subject("tester", "tester"),
        ],
    }
}

/// Records a window of the viewers: ten clients, one of which fails in the first second.
fn viewers(index: u64) -> Recorder {
    let mut recorder = Recorder::new(catalogue_of("rtsp").expect("it is a protocol"));
    if index == 0 {
        recorder.add(clients::STARTED, 10);
        recorder.add(clients::FAILED, 1);
        recorder.fail("connection_refused");
        for delay in [20_000_000, 30_000_000, 40_000_000] {
            recorder.record(clients::STARTUP_DELAY, delay);
        }
    }
    recorder.set(clients::ACTIVE, if index == 0 { 10.0 } else { 9.0 });
    recorder.set(clients::PLAYING, 9.0);
    recorder.add(rtp::EXPECTED, 1_000_000);
    recorder.add(rtp::RECEIVED, 999_000);
    recorder.add(rtp::DUPLICATED, 3);
    recorder.add(rtp::REORDERED, 4);
    recorder.add(rtp::PAYLOAD_BYTES, 125_000_000);
    recorder.add(rtp::WIRE_BYTES, 130_000_000);
    recorder.record(rtp::JITTER, 100_000);
    recorder.record(rtp::JITTER, 2_000_000);
    recorder
}

fn own(index: u64) -> (Recorder, Recorder) {
    let mut server = Recorder::new(SERVER_CATALOGUE);
    server.set(server::CPU, 0.4 + index as f64 / 10.0);
    server.set(server::CPU_HOTTEST_THREAD, 0.35);
    server.set(server::USS, 12e6);
    server.set(server::RSS, 20e6);
    server.set(server::THREADS, 4.0);
    let mut tester = Recorder::new(TESTER_CATALOGUE);
    tester.add(tester::CPU_NANOS, 250_000_000);
    tester.set(tester::CPU, 0.25);
    tester.set(tester::CPU_HOTTEST_WORKER, 0.2);
    tester.record(tester::LAG, 300_000);
    (server, tester)
}

fn threshold(text: &str, value: Option<f64>, passed: bool) -> ThresholdResult {
    ThresholdResult {
        text: text.to_owned(),
        subject: "viewers".to_owned(),
        value,
        statistic: None,
        unit: if text.contains("loss") {
            Unit::Ratio
        } else {
            Unit::Count
        },
        limit: 0.0005,
        passed,
        window: None,
        no_data: value.is_none(),
        implied: text.contains("failed"),
        in_doubt: false,
        undecided: false,
        clock_error: None,
    }
}

/// A run file in its own folder.
struct Made {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn make(windows: u64, warm_up: Duration, with_verdict: bool) -> Made {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("evening.run");
    let file = RunFile::create(&path, &header(warm_up)).expect("a run file can be made");
    file.note(fact::RECEIVE_PATH.of(&"ring".to_owned()));
    file.note(Fact::new("build").of(&serde_json::json!({
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "modified": true,
        "target": "x86_64-unknown-linux-musl",
    })));
    for index in 0..windows {
        let (mut server, mut tester) = own(index);
        let subjects = BTreeMap::from([
            ("viewers".to_owned(), viewers(index).take_window()),
            ("server".to_owned(), server.take_window()),
            ("tester".to_owned(), tester.take_window()),
        ]);
        let start = Time::from_start(Duration::from_secs(index));
        file.window(WindowRow {
            index,
            start,
            seconds: 1.0,
            subjects,
        });
    }
    file.client(ClientRow {
        id: 1,
        subject: "viewers".to_owned(),
        outcome: Some(ClientOutcome::Failed),
        reason: Some("connection_refused".to_owned()),
        detail: Some("TCP to 127.0.0.1:8554\r\nwas refused\u{1b}[31m".to_owned()),
        ..ClientRow::default()
    });
    file.event(EventRow {
        time: Time::from_start(Duration::from_millis(1_500)),
        kind: "server_ended".to_owned(),
        subject: Some("server".to_owned()),
        text: "the server ended".to_owned(),
    });
    if with_verdict {
        let thresholds = vec![
            threshold("viewers.failed == 0", Some(1.0), false),
            threshold("viewers.loss < 0.05%", Some(0.001), false),
            threshold("viewers.reordered < 100", Some(12.0), true),
            threshold("viewers.received > 1", None, false),
        ];
        let verdict = Verdict::decide(&thresholds, VerdictInput::default());
        file.verdict(&verdict, &thresholds);
    }
    file.finish().expect("the run file can be finished");
    Made {
        _folder: folder,
        path,
    }
}

fn report_of(path: &Path) -> Report {
    let reader = report::open(path, catalogue_of).expect("it is a run file");
    let mut report = Report::from_run(&reader).expect("it can be reported");
    report.path = PathBuf::from("evening.run");
    report
}

fn json_of(path: &Path) -> serde_json::Value {
    let reader = report::open(path, catalogue_of).expect("it is a run file");
    let report = Report::from_run(&reader).expect("it can be reported");
    let mut out = Vec::new();
    report::json::write(&report, source::windows(&reader), &mut out).expect("memory takes it");
    serde_json::from_slice(&out).expect("it is JSON")
}

fn schema() -> serde_json::Value {
    let protocols: Vec<Catalogue> = PROTOCOLS
        .iter()
        .map(|protocol| protocol.catalogue)
        .chain([BROWSER_CATALOGUE])
        .collect();
    report::schema::report_schema(&protocols, SERVER_CATALOGUE, TESTER_CATALOGUE)
}

#[test]
fn the_summary_fits_one_screen_and_answers_in_order() {
    let made = make(3, Duration::ZERO, true);
    let text = summary(&report_of(&made.path), Layout::default());
    assert!(text.lines().count() <= 40, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

#[test]
fn times_of_reading_are_named_as_such() {
    let made = make(1, Duration::ZERO, true);
    let mut report = report_of(&made.path);
    let label = "5 % of packets have the time of reading";
    assert!(!summary(&report, Layout::default()).contains(label));
    let metrics = &mut report.populations[0].metrics.0;
    for (name, value) in [("received", 1000.0), ("timed_by_reading", 50.0)] {
        let counter = metrics.iter_mut().find(|m| m.name == name);
        counter.expect("it is measured").figures = MetricFigures::Value(Some(value));
    }
    let text = summary(&report, Layout::default());
    assert!(text.contains(label), "{text}");
}

#[test]
fn colour_is_optional_and_changes_no_text() {
    let made = make(3, Duration::ZERO, true);
    let report = report_of(&made.path);
    let plain = summary(&report, Layout::default());
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let layout = Layout {
        paint: Paint { colour: true },
        ..Layout::default()
    };
    let mut coloured = summary(&report, layout);
    for code in ["31", "32", "33", "1", "2", "0"] {
        coloured = coloured.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(coloured, plain);
}

#[test]
fn summary_fits_a_narrow_terminal() {
    let made = make(3, Duration::ZERO, true);
    let layout = Layout {
        width: 50,
        ..Layout::default()
    };
    let text = summary(&report_of(&made.path), layout);
    assert!(
        text.lines().all(|line| line.chars().count() <= 50),
        "{text}"
    );
}

#[test]
fn verbose_summary_has_every_metric_and_event() {
    let made = make(2, Duration::ZERO, true);
    let layout = Layout {
        verbose: true,
        ..Layout::default()
    };
    let text = summary(&report_of(&made.path), layout);
    for catalogue in ["rtsp", "server", "tester"].map(|kind| catalogue_of(kind).expect("known")) {
        for metric in catalogue.metrics() {
            assert!(text.contains(metric.name), "{} is missing", metric.name);
        }
    }
    assert!(text.contains("server_ended"));
}

#[test]
fn json_has_the_stable_names_in_base_units() {
    let json = json_of(&make(3, Duration::ZERO, true).path);
    assert_eq!(json["verdict"]["result"], "fail");
    let reasons = json["verdict"]["reasons"].as_array().expect("a list");
    assert_eq!(reasons.len(), 3);
    let viewers = &json["populations"]["viewers"];
    assert_eq!(viewers["clients"]["started"], 10);
    assert_eq!(viewers["clients"]["active_max"], 10);
    assert_eq!(viewers["clients"]["failed"], 1);
    assert_eq!(viewers["clients"]["failures"]["connection_refused"], 1);
    let metrics = &viewers["metrics"];
    assert_eq!(metrics["expected"], 3_000_000);
    assert_eq!(metrics["lost"], 3_000);
    assert_eq!(metrics["loss"], 0.001);
    assert_eq!(metrics["bitrate"], 1_000_000_000);
    assert_eq!(metrics["jitter"]["max"], 0.002);
    assert_eq!(metrics["startup_delay"]["mean"], 0.03);
    // The figure was never recorded: it is missing, not zero.
    assert!(metrics["teardown_delay"].is_null());
    assert_eq!(json["server"]["cpu"]["max"], 0.6);
    assert_eq!(json["server"]["uss"]["mean"], 12_000_000.0);
    assert_eq!(json["tester"]["cpu_seconds"], 0.75);
    assert_eq!(json["tester"]["overflow"], 0);
    assert_eq!(json["tester"]["lag"]["count"], 3);
    assert_eq!(json["run"]["started_at"], "2026-12-31T23:59:59Z");
    assert_eq!(json["run"]["duration"], 3.0);
    let windows = json["windows"].as_array().expect("a list");
    assert_eq!(windows.len(), 3);
    assert_eq!(windows[1]["start"], 1.0);
    assert_eq!(windows[1]["populations"]["viewers"]["metrics"]["active"], 9);
    assert_eq!(
        windows[0]["populations"]["viewers"]["metrics"]["startup_delay"]["count"],
        3
    );
    assert_eq!(
        windows[0]["populations"]["viewers"]["failures"]["connection_refused"],
        1
    );
    assert_eq!(windows[2]["server"]["cpu"], 0.6);
}

#[test]
fn json_report_matches_the_schema() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).expect("it is a good schema");
    for (windows, warm_up, with_verdict) in
        [(3, 0, true), (3, 1, true), (0, 0, true), (2, 0, false)]
    {
        let made = make(windows, Duration::from_secs(warm_up), with_verdict);
        let json = json_of(&made.path);
        let problems: Vec<String> = validator
            .iter_errors(&json)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

/// Makes a run whose clients are on two runners with these clock errors, in seconds. The delay of
/// most frames is 4 ms, and that of the last 50 ms.
fn make_on_runners(errors: [Option<f64>; 2]) -> Made {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("evening.run");
    let file = RunFile::create(&path, &header(Duration::ZERO)).expect("a run file can be made");
    let runners = errors.map(|clock_error| RunnerSummary {
        name: "one".to_owned(),
        clock_error,
        ..RunnerSummary::default()
    });
    file.note(fact::RUNNERS.of(&runners.to_vec()));
    let mut window = viewers(1);
    for delay in [4_000_000; 97].into_iter().chain([50_000_000; 3]) {
        window.record(rtp::FRAME_DELAY, delay);
    }
    let window = window.take_window();
    let (_, mut tester) = own(0);
    let subjects = BTreeMap::from([
        ("viewers".to_owned(), window),
        ("tester".to_owned(), tester.take_window()),
    ]);
    let catalogue = catalogue_of("rtsp").expect("it is a protocol");
    let known = [("viewers", catalogue)];
    let text = [
        "viewers.frame_delay.p50 < 1s",
        "viewers.frame_delay.max < 1s",
    ];
    let thresholds = text.map(|text| Threshold::parse(text).expect(text));
    let mut judge = Judge::new(thresholds.into(), &known, 0).expect("they fit");
    judge.window(0, 1.0, &subjects);
    let mut totals = Totals::new(catalogue);
    totals.add(&subjects["viewers"], 1.0);
    let totals = BTreeMap::from([("viewers".to_owned(), totals)]);
    let thresholds = judge.finish(&totals, ClockError::of(&runners));
    file.window(WindowRow {
        index: 0,
        start: Time::ZERO,
        seconds: 1.0,
        subjects,
    });
    file.verdict(
        &Verdict::decide(&thresholds, VerdictInput::default()),
        &thresholds,
    );
    file.finish().expect("the run file can be finished");
    Made {
        _folder: folder,
        path,
    }
}

#[test]
fn delays_below_three_clock_errors_are_marked_everywhere() {
    let validator = jsonschema::validator_for(&schema()).expect("it is a good schema");
    // The error between the two is the sum.
    for (errors, marks) in [
        ([Some(0.0005), Some(0.0005)], [false, false]),
        ([Some(0.001), Some(0.0005)], [true, false]),
        ([Some(0.01), Some(0.01)], [true, true]),
        ([Some(0.0005), None], [true, true]),
    ] {
        let made = make_on_runners(errors);
        let json = json_of(&made.path);
        let problems: Vec<String> = validator
            .iter_errors(&json)
            .map(|e| e.to_string())
            .collect();
        assert!(problems.is_empty(), "{problems:#?}");
        let sum = errors[0].zip(errors[1]).map(|(a, b)| a + b);
        for figures in [&json["populations"], &json["windows"][0]["populations"]] {
            let delay = &figures["viewers"]["metrics"]["frame_delay"];
            assert_eq!(delay["clock_error"]["seconds"].as_f64(), sum);
            let uncertain = &delay["clock_error"]["uncertain"];
            let found = ["p50", "max"].map(|name| uncertain[name] == true);
            assert_eq!(found, marks, "{errors:?}");
            assert!(
                figures["viewers"]["metrics"]["startup_delay"]
                    .get("clock_error")
                    .is_none()
            );
        }
        let undecided = [0, 1].map(|at| json["thresholds"][at]["undecided"] == true);
        let passed = [0, 1].map(|at| json["thresholds"][at]["passed"] == true);
        assert_eq!(undecided, marks, "{errors:?}");
        assert_eq!(passed, marks.map(|mark| !mark), "{errors:?}");
        let report = report_of(&made.path);
        let reader = report::open(&made.path, catalogue_of).expect("it is a run file");
        let (mut markdown, mut page) = (Vec::new(), Vec::new());
        report::markdown::write(&report, &mut markdown).expect("memory takes it");
        report::html::write(&report, &reader, &mut page).expect("memory takes it");
        let mut junit = Vec::new();
        report::junit::write(&report, &mut junit).expect("memory takes it");
        let [markdown, page, junit] =
            [markdown, page, junit].map(|bytes| String::from_utf8(bytes).expect("it is text"));
        let terminal = summary(&report, Layout::default());
        let markdown = markdown.replace('\\', "");
        for (text, what) in [
            (&terminal, "terminal"),
            (&markdown, "markdown"),
            (&page, "page"),
        ] {
            for (mark, marked) in marks.into_iter().zip(["~4 ms", "~50 ms"]) {
                assert_eq!(text.contains(marked), mark, "{what} {errors:?}\n{text}");
            }
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let is_noted = text.contains("can neither pass nor fail");
            assert_eq!(is_noted, marks[0], "{what} {errors:?}\n{text}");
        }
        assert_eq!(
            junit.contains("undecided: measured ~4 ms"),
            marks[0],
            "{junit}"
        );
        assert!(
            terminal.lines().all(|line| line.chars().count() <= 80),
            "{terminal}"
        );
    }
}

#[test]
fn schema_rejects_unknown_and_missing_fields() {
    let validator = jsonschema::validator_for(&schema()).expect("it is a good schema");
    let good = json_of(&make(1, Duration::ZERO, true).path);
    for pointer in [
        "",
        "/verdict",
        "/populations/viewers/clients",
        "/server",
        "/windows/0",
    ] {
        let mut bad = good.clone();
        bad.pointer_mut(pointer).expect("it is there")["surprise"] = 1.into();
        assert!(!validator.is_valid(&bad), "a surprise at `{pointer}`");
    }
    for (pointer, key) in [
        ("", "windows"),
        ("/populations/viewers/metrics", "failed"),
        ("/tester", "lag"),
    ] {
        let mut bad = good.clone();
        let object = bad
            .pointer_mut(pointer)
            .and_then(|value| value.as_object_mut());
        object
            .expect("it is an object")
            .remove(key)
            .expect("it was there");
        assert!(!validator.is_valid(&bad), "without {pointer}/{key}");
    }
}

/// To regenerate the file: `STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-report`.
#[test]
fn schema_in_the_repository_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/report.schema.json");
    let made = serde_json::to_string_pretty(&schema()).expect("it has string keys") + "\n";
    if std::env::var_os("STREAMGAUGE_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &made).expect("the schema can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the schema is in the repository");
    assert!(
        kept == made,
        "regenerate it: STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-report"
    );
}

#[test]
fn warm_up_is_excluded_from_metrics_only() {
    let json = json_of(&make(3, Duration::from_secs(1), true).path);
    let viewers = &json["populations"]["viewers"];
    assert_eq!(viewers["clients"]["started"], 10);
    assert_eq!(viewers["clients"]["failed"], 1);
    assert_eq!(viewers["metrics"]["started"], 0);
    assert_eq!(viewers["metrics"]["expected"], 2_000_000);
    assert!(viewers["metrics"]["startup_delay"].is_null());
    assert_eq!(json["windows"].as_array().map(Vec::len), Some(3));
}

#[test]
fn interrupted_run_is_reported_as_invalid() {
    let made = make(2, Duration::ZERO, false);
    let report = report_of(&made.path);
    assert_eq!(report.verdict.result.name(), "invalid");
    assert!(report.verdict.reasons[0].contains("cut off"));
    assert_eq!(
        report.populations[0].metrics.value("expected"),
        Some(2_000_000.0)
    );
}

#[test]
fn error_for_other_files_names_the_path() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "hello").expect("it can be written");
    for path in [path, folder.path().join("absent.run")] {
        let error = report::open(&path, catalogue_of).expect_err("it is no run file");
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
    }
}

#[test]
fn junit_has_cause_time_and_file_of_the_run() {
    let made = make(3, Duration::ZERO, true);
    let mut junit = Vec::new();
    report::junit::write(&report_of(&made.path), &mut junit).expect("memory takes it");
    let junit = String::from_utf8(junit).expect("it is text");
    let cause = "1 of 10 clients failed: TCP to 127.0.0.1:8554 was refused";
    for part in [
        "timestamp=\"2026-12-31T23:59:59Z\"",
        "time=\"3.000\"",
        "file=\"evening.run\"",
        &format!("<property name=\"cause\" value=\"{cause}"),
        // The text of each failure.
        &format!("the limit is 0.0005\">{cause}"),
    ] {
        assert!(junit.contains(part), "{part} is missing in {junit}");
    }
    // A case that passed has no text.
    assert!(!junit.contains("reordered &lt; 100\" classname=\"evening\" file=\"evening.run\">"));
}

#[test]
fn markdown_of_a_pass_has_its_thresholds() {
    let made = make(3, Duration::ZERO, true);
    let mut report = report_of(&made.path);
    report.thresholds.retain(|threshold| threshold.passed);
    report.verdict.result = measure::VerdictResult::Pass;
    let write = |report: &Report| {
        let mut markdown = Vec::new();
        report::markdown::write(report, &mut markdown).expect("memory takes it");
        String::from_utf8(markdown).expect("it is text")
    };
    let text = write(&report);
    assert!(
        text.contains("| ok | viewers.reordered &lt; 100 | 12 |"),
        "{text}"
    );
    assert!(text.contains("2026-12-31 23:59:59 UTC, 3 s"), "{text}");
    assert!(
        text.contains("\n**viewers**: loss 0.1 %, startup\\_delay 40 ms (p95), bitrate 1 Gbit/s"),
        "{text}"
    );
    for threshold in &mut report.thresholds {
        threshold.implied = true;
    }
    let text = write(&report);
    assert!(
        text.contains("1 implied threshold held: viewers.reordered &lt; 100"),
        "{text}"
    );
}

#[test]
fn short_windows_are_marked_in_csv() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("short.run");
    let file = RunFile::create(&path, &header(Duration::ZERO)).expect("a run file can be made");
    for (index, seconds) in [(0, 1.0), (1, 0.96), (2, 0.3)] {
        file.window(WindowRow {
            index,
            start: Time::from_start(Duration::from_secs(index)),
            seconds,
            subjects: BTreeMap::from([("viewers".to_owned(), viewers(index).take_window())]),
        });
    }
    file.finish().expect("the run file can be finished");
    let reader = report::open(&path, catalogue_of).expect("it is a run file");
    let open = |table: report::csv::Table| std::fs::File::create(folder.path().join(table.file));
    let mut tables = report::csv::TableWriter::begin(open).expect("files can be made");
    tables.add("short.run", &reader).expect("it can be read");
    tables.end().expect("files can be written");
    let text = std::fs::read_to_string(folder.path().join(report::csv::WINDOWS.file));
    let text = text.expect("it was written");
    let lines = text
        .lines()
        .filter(|line| line.contains(",viewers,expected,"));
    let marks: Vec<&str> = lines.filter_map(|line| line.rsplit(',').next()).collect();
    assert_eq!(marks, ["false", "false", "true"]);
    assert!(text.starts_with("run,start_s,") && text.contains(",value,partial\n"));
}

//! HTML reports of synthetic run files.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kit::media::rtp::metrics as rtp;
use kit::metrics as clients;
use measure::{
    Finding, HealthBounds, Recorder, SERVER_CATALOGUE, TESTER_CATALOGUE, ThresholdResult, Time,
    Unit, Verdict, VerdictInput, server, tester,
};
use report::{Report, html};
use runfile::{
    ClientOutcome, ClientRow, EventRow, Fact, Header, Machine, RunFile, SubjectHeader, WindowRow,
};
use serde_json::{Value, json};

use crate::catalogue_of;

/// Text that could become markup, a script or the end of the data, or stay invisible.
const HOSTILE: &str = "x</script><script>alert(1)</script><img src=x onerror=alert(1)><!--\
                       \"'&lt; \u{1b}[2J\u{202e}\u{2028}${1}";

fn header(name: &str, viewers: &str) -> Header {
    let subjects = [
        (viewers, "rtsp"),
        ("server", "server"),
        ("tester", "tester"),
    ];
    let load = json!({"shape": {"clients": 10, "ramp": "4s"}});
    Header {
        version: "0.1.0".to_owned(),
        scenario: json!({"name": name, "populations": [{"name": viewers, "load": load}]}),
        machine: Machine::default(),
        seed: 7,
        started_at: Duration::from_secs(1_798_761_599),
        warm_up: Duration::from_secs(2),
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: subjects
            .map(|(name, kind)| SubjectHeader {
                name: name.to_owned(),
                kind: kind.to_owned(),
                catalogue: catalogue_of(kind).expect("it is a known kind"),
            })
            .into(),
    }
}

/// Records a window: with loss from the sixth on, and with a late tester in the eighth.
fn window(file: &RunFile, viewers: &str, index: u64) {
    let mut seen = Recorder::new(catalogue_of("rtsp").expect("it is a protocol"));
    seen.set(clients::ACTIVE, 10.0);
    seen.set(clients::PLAYING, 9.0);
    seen.add(rtp::EXPECTED, 1_000);
    seen.add(rtp::RECEIVED, if index >= 6 { 980 } else { 1_000 });
    seen.add(rtp::PAYLOAD_BYTES, 1_000_000);
    seen.record(rtp::JITTER, 1_000_000 + index);
    if index == 3 {
        seen.add(clients::FAILED, 1);
        seen.fail("connection_refused");
    }
    let mut server = Recorder::new(SERVER_CATALOGUE);
    server.set(server::CPU, 0.4);
    server.set(server::RSS, 20e6);
    let mut own = Recorder::new(TESTER_CATALOGUE);
    own.record(tester::LAG, if index == 8 { 300_000_000 } else { 300_000 });
    file.window(WindowRow {
        index,
        start: Time::from_start(Duration::from_secs(index)),
        seconds: 1.0,
        subjects: BTreeMap::from([
            (viewers.to_owned(), seen.take_window()),
            ("server".to_owned(), server.take_window()),
            ("tester".to_owned(), own.take_window()),
        ]),
    });
}

fn make(path: &Path, name: &str, viewers: &str, threshold: &str, windows: u64) {
    let file = RunFile::create(path, &header(name, viewers)).expect("a run file can be made");
    for index in 0..windows {
        window(&file, viewers, index);
    }
    file.client(ClientRow {
        id: 1,
        subject: viewers.to_owned(),
        url: name.to_owned(),
        outcome: Some(ClientOutcome::Failed),
        reason: Some("connection_refused".to_owned()),
        detail: Some(name.to_owned()),
        ..ClientRow::default()
    });
    file.event(EventRow {
        time: Time::from_start(Duration::from_secs(5)),
        kind: "server_log".to_owned(),
        subject: Some("server".to_owned()),
        text: name.to_owned(),
    });
    let lag = Finding {
        bound: "lag_p99".to_owned(),
        metric: "tester.lag.p99".to_owned(),
        unit: Unit::Seconds,
        limit: 0.1,
        worst: Some(0.3),
        worst_window: Some(8),
        windows: 1,
        invalid: false,
    };
    file.note(Fact::new("health").of(&json!([lag])));
    file.note(Fact::new("command").of(&format!("streamgauge run {name}")));
    file.note(Fact::new("receive_hint").of(&name));
    file.note(Fact::new("media").of(&json!({"urls": [{"population": viewers, "url": name, "description": null, "failure": name}], "differences": []})));
    let thresholds = vec![ThresholdResult {
        text: threshold.to_owned(),
        subject: viewers.to_owned(),
        value: Some(0.008),
        statistic: None,
        unit: Unit::Ratio,
        limit: 0.005,
        passed: false,
        window: None,
        no_data: false,
        implied: false,
        in_doubt: false,
        undecided: false,
        clock_error: None,
    }];
    let verdict = Verdict::decide(&thresholds, VerdictInput::default());
    file.verdict(&verdict, &thresholds);
    file.finish().expect("nothing is in its way");
}

fn page(path: &Path) -> String {
    let reader = report::open(path, catalogue_of).expect("it is a run file");
    let report = Report::from_run(&reader).expect("it can be reported");
    let mut page = Vec::new();
    html::write(&report, &reader, &mut page).expect("a vector takes all");
    String::from_utf8(page).expect("it is text")
}

/// Returns the page's block of data, as a browser extracts it.
fn data(page: &str) -> Value {
    let begins = "<script type=\"application/json\" id=\"data\">";
    let from = page.find(begins).expect("there is data") + begins.len();
    let to = from + page[from..].find("</script").expect("it ends");
    serde_json::from_str(&page[from..to]).expect("it is JSON")
}

#[test]
fn foreign_texts_are_neither_markup_nor_hidden() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("x.run");
    make(&path, HOSTILE, HOSTILE, HOSTILE, 10);
    let page = page(&path);
    for bad in ["<img", "alert(1)</script", "\u{1b}", "\u{202e}", "\u{2028}"] {
        assert!(!page.contains(bad), "{bad:?}");
    }
    // The title and the text without scripts are plain text.
    assert!(page.contains("<title>FAIL: x&lt;/script&gt;"), "{page}");
    let data = data(&page);
    let shown = data["runs"][0]["name"].as_str().expect("it has a name");
    assert!(shown.starts_with("x</script><script>alert(1)"), "{shown}");
    assert!(shown.contains("␛[2J<U+202E><U+2028>"), "{shown}");
    assert_eq!(data["runs"][0]["events"][1]["text"], shown);
}

#[test]
fn page_loads_nothing_and_runs_only_its_own_scripts() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("x.run");
    make(&path, "evening", "viewers", "viewers.loss < 0.5%", 10);
    let page = page(&path);
    assert!(page.starts_with(html::FIRST_LINES));
    for bad in [
        " src=",
        " href=",
        "url(",
        "@import",
        "<link",
        "style=\"",
        "innerHTML",
        "eval(",
    ] {
        assert!(!page.contains(bad), "{bad}");
    }
    let policy = page
        .split("Content-Security-Policy\" content=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("there is a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
    assert!(policy.contains("require-trusted-types-for 'script'"));
    assert!(!policy.contains("inline"), "{policy}");
}

#[test]
fn page_states_failure_its_extent_and_its_start() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("x.run");
    make(&path, "evening", "viewers", "viewers.loss < 0.5%", 10);
    let data = data(&page(&path));
    let run = &data["runs"][0];
    assert_eq!(run["verdict"]["result"], "fail");
    let sentence = run["verdict"]["sentence"].as_str().expect("a sentence");
    assert_eq!(
        sentence,
        "Loss of viewers was 0.8 %, but less than 0.5 % is required: 1.6 times as much."
    );
    // The last four of the eight seconds after the warm-up.
    let since = run["verdict"]["since"].as_str().expect("it is known");
    assert_eq!(
        since,
        "This was the case in 4 of 8 seconds, first 6 s after the start of the run."
    );
    assert_eq!(run["command"], "streamgauge run evening");
    assert_eq!(run["warm_up"], 2.0);
    assert_eq!(run["course"]["shades"], json!([[8.0, 9.0, "lag p99"]]));
    let kinds: Vec<&str> = run["events"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["first failure", "server log"]);
}

#[test]
fn page_of_a_run_in_progress_has_figures_after_the_warm_up() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("x.run");
    let file = RunFile::create(&path, &header("evening", "viewers")).expect("a run file");
    file.flush().expect("there is room");
    let reader = report::open(&path, catalogue_of).expect("it is a run file");
    let mut live = html::Live::new(&reader, &[], HealthBounds::default()).expect("it can be read");
    assert!(!live.update(&reader).expect("it can be read"));
    assert!(!live.has_windows());
    let mut shown_after = |windows: std::ops::Range<u64>| {
        for index in windows {
            window(&file, "viewers", index);
        }
        file.flush().expect("there is room");
        assert!(live.update(&reader).expect("it can be read"));
        live.value(&reader).expect("it can be read")
    };
    let figures = |run: &Value| run["populations"][0]["figures"].as_array().map(Vec::len);
    // The warm-up takes two seconds.
    let run = shown_after(0..1);
    assert_eq!(run["warming_up"], "2 s");
    let sentence = "1 s: warm-up until 2 s, the tester is fit.";
    assert_eq!(run["verdict"]["sentence"], sentence);
    assert_eq!(figures(&run), Some(0));
    assert_eq!(figures(&shown_after(1..2)), Some(0));
    let run = shown_after(2..3);
    assert_eq!(run["warming_up"], Value::Null);
    assert!(figures(&run) > Some(0), "{run}");
}

#[test]
fn charts_follow_from_the_catalogues() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("x.run");
    make(&path, "evening", "viewers", "viewers.loss < 0.5%", 10);
    let data = data(&page(&path));
    let course = &data["runs"][0]["course"];
    let charts = course["charts"].as_array().expect("a list");
    let titles: Vec<&str> = charts
        .iter()
        .filter_map(|one| one["title"].as_str())
        .collect();
    assert_eq!(
        titles,
        [
            "Clients",
            "Clients that failed, per second",
            "Bit rate",
            "Loss, by where it happened",
            "Jitter",
            "Server: processor",
            "Server: memory",
            "Tester: use of each health bound",
            "Tester: lag of its event loop",
        ]
    );
    let line = |chart: usize, line: usize| &charts[chart]["lines"][line]["values"];
    // The ramp: ten clients in four seconds.
    assert_eq!(charts[0]["lines"][2]["label"], "wanted");
    assert_eq!(line(0, 2)[0], 3);
    assert_eq!(line(0, 2)[9], 10);
    assert_eq!(line(2, 0)[0], 8_000_000);
    assert_eq!(
        line(3, 0).as_array().map(|all| &all[5..7]),
        Some(&[json!(0), json!(0.02)][..])
    );
    assert_eq!(charts[3]["limits"][0]["value"], 0.005);
    assert_eq!(charts[3]["limits"][0]["passed"], false);
    // Lateness of the tester as a share of its bound.
    let late = line(7, 0)[8].as_f64().expect("a number");
    assert!((late - 3.0).abs() < 0.01, "{late}");
    let heat = charts[4]["heat"]["columns"].as_array().expect("a list");
    assert_eq!(heat.len(), 10);
}

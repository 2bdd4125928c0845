//! Reports of synthetic series.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kit::media::rtp::metrics as rtp;
use kit::metrics as clients;
use measure::{Recorder, SERVER_CATALOGUE, TESTER_CATALOGUE, Time, Verdict, VerdictResult, server};
use report::Layout;
use report::schema::series_schema;
use report::series::{RowOutcome, Series, table};
use runfile::series::{Axis, Entry, EntryOutcome, INDEX, INDEX_VERSION, Index};
use runfile::{Header, Machine, RunFile, SubjectHeader, WindowRow};
use serde_json::{Value, json};

use crate::catalogue_of;

const KEY: &str = "clients.viewers.load.clients";

/// A run: number of clients, bytes of media in each second, and outcome.
struct Made {
    clients: u32,
    bytes: Vec<u64>,
    lost: u64,
    failed: u64,
    result: VerdictResult,
    stopped: bool,
}

fn good(clients: u32, bits: f64) -> Made {
    Made {
        clients,
        // The mean counts, not the seconds.
        bytes: [0.2, 1.3, 1.0, 1.5, 1.0]
            .map(|share| (bits / 8.0 * share).round() as u64)
            .to_vec(),
        lost: 0,
        failed: 0,
        result: VerdictResult::Pass,
        stopped: false,
    }
}

fn write(folder: &Path, file: &str, made: &Made) {
    let subject = |name: &str, kind: &str| SubjectHeader {
        name: name.to_owned(),
        kind: kind.to_owned(),
        catalogue: catalogue_of(kind).expect("it is a known kind"),
    };
    let header = Header {
        version: "0.1.0".to_owned(),
        scenario: serde_json::json!({
            "name": "evening",
            "varied": [{"key": KEY, "value": made.clients.to_string()}],
        }),
        machine: Machine::default(),
        seed: 7,
        started_at: Duration::from_secs(1_798_761_599),
        warm_up: Duration::ZERO,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: vec![
            subject("viewers", "rtsp"),
            subject("server", "server"),
            subject("tester", "tester"),
        ],
    };
    let run = RunFile::create(&folder.join(file), &header).expect("a run file can be made");
    for (index, &bytes) in made.bytes.iter().enumerate() {
        let mut viewers = Recorder::new(catalogue_of("rtsp").expect("it is a protocol"));
        viewers.set(clients::PLAYING, f64::from(made.clients));
        viewers.add(rtp::PAYLOAD_BYTES, bytes);
        viewers.add(rtp::EXPECTED, 100 + made.lost);
        viewers.add(rtp::RECEIVED, 100);
        viewers.record(rtp::JITTER, 1_000_000);
        if index == 0 {
            viewers.record(clients::STARTUP_DELAY, u64::from(made.clients) * 1_000_000);
            viewers.add(clients::FAILED, made.failed);
        }
        let mut server = Recorder::new(SERVER_CATALOGUE);
        server.set(server::CPU, f64::from(made.clients) / 1000.0);
        server.set(server::USS, f64::from(1 << 20));
        let mut tester = Recorder::new(TESTER_CATALOGUE);
        run.window(WindowRow {
            index: index as u64,
            start: Time::from_start(Duration::from_secs(index as u64)),
            seconds: 1.0,
            subjects: BTreeMap::from([
                ("viewers".to_owned(), viewers.take_window()),
                ("server".to_owned(), server.take_window()),
                ("tester".to_owned(), tester.take_window()),
            ]),
        });
    }
    let reasons = match made.result {
        VerdictResult::Pass => Vec::new(),
        _ => vec!["`viewers.loss < 1%`: it was 9 %".to_owned()],
    };
    let verdict = Verdict {
        result: made.result,
        reasons,
        stopped_by_user: made.stopped,
    };
    run.verdict(&verdict, &[]);
    run.finish().expect("it can be written");
}

/// Creates a series with these runs, and one that could not begin.
fn series(runs: &[Made]) -> (tempfile::TempDir, Series) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let entry = |clients: u32, outcome| Entry {
        values: vec![clients.to_string()],
        file: format!("{clients:03}.run"),
        outcome,
        reason: (outcome == EntryOutcome::NotBegun).then(|| "no such program".to_owned()),
        trial: None,
    };
    let mut entries = Vec::new();
    for made in runs {
        let entry = entry(made.clients, EntryOutcome::Pass);
        write(folder.path(), &entry.file, made);
        entries.push(entry);
    }
    entries.push(entry(999, EntryOutcome::NotBegun));
    let index = Index {
        index_version: INDEX_VERSION,
        streamgauge: "0.1.0".to_owned(),
        name: "evening".to_owned(),
        started_at: 1_798_761_599.0,
        settle: 5.0,
        varied: vec![Axis {
            key: KEY.to_owned(),
            values: entries
                .iter()
                .map(|entry| entry.values[0].clone())
                .collect(),
        }],
        find: None,
        capacity: None,
        min_effect: None,
        runs: entries,
        ended: true,
    };
    index.write(folder.path()).expect("it can be written");
    let series = Series::open(folder.path(), catalogue_of).expect("it is a series");
    (folder, series)
}

/// Output of a server that follows the law with these parameters.
fn law(n: u32) -> f64 {
    let n = f64::from(n);
    1.1e6 * n / (1.0 + 0.01 * (n - 1.0) + 2e-5 * n * (n - 1.0))
}

fn scaling_series() -> (tempfile::TempDir, Series) {
    let mut runs: Vec<Made> = [20, 60, 100, 140, 180, 220, 260]
        .map(|clients| good(clients, law(clients)))
        .into();
    runs[5].result = VerdictResult::Fail;
    runs[5].lost = 10;
    runs[6].result = VerdictResult::Fail;
    runs[6].lost = 20;
    // Both runs are far off, and neither says anything about the server.
    let mut invalid = good(280, 1e6);
    invalid.result = VerdictResult::Invalid;
    let mut broken = good(300, 1e6);
    broken.failed = 3;
    broken.result = VerdictResult::Fail;
    runs.extend([invalid, broken]);
    series(&runs)
}

#[test]
fn figures_are_those_of_the_runs() {
    let (_folder, series) = scaling_series();
    let outcomes: Vec<&str> = series.runs.iter().map(|row| row.outcome.name()).collect();
    assert_eq!(
        outcomes,
        [
            "pass",
            "pass",
            "pass",
            "pass",
            "pass",
            "fail",
            "fail",
            "invalid",
            "fail",
            "not_begun"
        ]
    );
    let figures = series.runs[1].figures.clone().expect("it has a run file");
    assert_eq!(figures.playing, 60);
    let rate = figures.bitrate.expect("media came");
    assert!((rate / law(60) - 1.0).abs() < 1e-6, "{rate}");
    assert_eq!(figures.received, 500);
    assert_eq!(figures.loss, Some(0.0));
    let delay = figures.startup_delay_p95.expect("it was recorded");
    assert!((delay - 0.06).abs() < 1e-4, "{delay}");
    assert_eq!(figures.server_cpu_peak, Some(0.06));
    assert_eq!(
        series.runs[8]
            .figures
            .as_ref()
            .map(|figures| figures.failed),
        Some(3)
    );
    assert_eq!(series.runs[9].reasons, ["no such program"]);
}

#[test]
fn the_best_of_each_column_is_marked_among_runs_that_passed() {
    let (_folder, series) = scaling_series();
    let best = |name: &str| -> Vec<&str> {
        let rows = series.runs.iter().filter(|row| row.best.contains(&name));
        rows.map(|row| row.values[0].as_str()).collect()
    };
    // Failed runs have more playing clients and a higher bit rate; the run with 280 cannot be
    // trusted.
    assert_eq!(best("playing"), ["180"]);
    assert_eq!(best("bitrate"), ["180"]);
    assert_eq!(best("startup_delay_p95"), ["20"]);
    assert_eq!(best("loss"), ["20", "60", "100", "140", "180"]);
    assert!(best("jitter").is_empty(), "all are alike");
}

#[test]
fn model_is_fitted_and_lists_runs_left_out() {
    let (_folder, series) = scaling_series();
    let [model] = series.scaling.as_slice() else {
        panic!("one model: {:?}", series.scaling);
    };
    assert_eq!(model.points, 7);
    let left_out: Vec<String> = model
        .left_out
        .iter()
        .map(|run| format!("{}: {}", run.clients, run.reason))
        .collect();
    assert_eq!(
        left_out,
        [
            "280: invalid",
            "300: 3 clients failed",
            "999: did not begin"
        ]
    );
    let value = |interval: Option<report::series::Interval>| interval.expect("it was fitted").value;
    assert!(
        (value(model.lambda) / 1.1e6 - 1.0).abs() < 1e-4,
        "{model:?}"
    );
    assert!((value(model.sigma) - 0.01).abs() < 1e-4, "{model:?}");
    assert!((value(model.kappa) / 2e-5 - 1.0).abs() < 1e-3, "{model:?}");
    let knee = model.knee.expect("it is curved");
    assert!(
        (knee.clients.value - (0.99_f64 / 2e-5).sqrt()).abs() < 0.1,
        "{knee:?}"
    );
    assert!(knee.measured);
    let capacity = &series.capacity[0];
    assert_eq!(capacity.passed, Some(180));
    assert_eq!(capacity.first_not_passed, Some(220));
    assert_eq!(capacity.outcome, Some(RowOutcome::Fail));
}

#[test]
fn too_few_runs_yield_no_model() {
    let (_folder, series) = series(&[good(10, 1e6), good(20, 2e6), good(30, 3e6)]);
    let refused = series.scaling[0].refused.as_deref().expect("it is refused");
    assert!(
        refused.starts_with("3 different numbers of clients"),
        "{refused}"
    );
    assert_eq!(series.scaling[0].lambda, None);
}

#[test]
fn table_fits_the_terminal_and_is_complete() {
    let (_folder, series) = scaling_series();
    for width in [80, 100, 120] {
        let layout = Layout {
            width,
            ..Layout::default()
        };
        let text = table(&series, layout);
        for line in text.lines().filter(|line| !line.starts_with("series")) {
            // The mark of a best value in the last column is included.
            assert!(line.chars().count() <= width, "{width}: {line}\n{text}");
        }
        for part in [
            "NOT BEGUN",
            "INVALID",
            "no such program",
            "passed up to 180 clients",
            "222 (222 to 222) clients",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }
}

#[test]
fn report_without_index_has_the_same_rows() {
    let (folder, with) = scaling_series();
    std::fs::remove_file(folder.path().join(INDEX)).expect("it is there");
    let without = Series::open(folder.path(), catalogue_of).expect("the run files say all");
    assert_eq!(without.varied, with.varied);
    assert_eq!(without.scaling[0].knee, with.scaling[0].knee);
    for (one, other) in with.runs.iter().zip(&without.runs) {
        assert_eq!(one.values, other.values);
        assert_eq!(one.figures, other.figures);
        assert_eq!(one.best, other.best);
    }
    assert_eq!(without.ended, None);
}

#[test]
fn other_folders_are_rejected_and_a_broken_run_is_a_row() {
    let empty = tempfile::tempdir().expect("a temporary folder can be made");
    let error = Series::open(empty.path(), catalogue_of).expect_err("nothing is in it");
    assert!(error.to_string().contains(INDEX), "{error}");
    let (folder, _) = scaling_series();
    std::fs::write(folder.path().join("060.run"), "hello").expect("it can be written");
    std::fs::remove_file(folder.path().join("100.run")).expect("it is there");
    let series = Series::open(folder.path(), catalogue_of).expect("the others are whole");
    for (at, reason) in [(1, "060.run"), (2, "missing")] {
        let row = &series.runs[at];
        assert_eq!(row.outcome, RowOutcome::Invalid);
        assert!(row.reasons[0].contains(reason), "{row:?}");
    }
}

#[test]
fn json_report_matches_its_schema() {
    let (_folder, series) = scaling_series();
    let mut bytes = Vec::new();
    report::json::write_series(&series, &mut bytes).expect("it can be written");
    let json: Value = serde_json::from_slice(&bytes).expect("it is JSON");
    let validator = jsonschema::validator_for(&series_schema()).expect("it is a schema");
    if let Err(error) = validator.validate(&json) {
        panic!("{error} at {}", error.instance_path());
    }
    let mut bad = json;
    bad["runs"][0]["figures"]["surprise"] = 1.into();
    assert!(!validator.is_valid(&bad));
}

/// To regenerate the file: `STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-report`.
#[test]
fn schema_in_the_repository_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/series.schema.json");
    let made = serde_json::to_string_pretty(&series_schema()).expect("it has string keys") + "\n";
    if std::env::var_os("STREAMGAUGE_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &made).expect("the schema can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the schema is in the repository");
    assert!(
        kept == made,
        "regenerate it: STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-report"
    );
}

/// Writes the page of a series.
fn page(folder: &Path, series: &Series) -> String {
    let mut page = Vec::new();
    let reader_of = |file: &str| report::open(&folder.join(file), catalogue_of).ok();
    report::html::write_series(series, reader_of, &mut page).expect("a vector takes all");
    String::from_utf8(page).expect("it is text")
}

fn block(page: &str, name: &str) -> Option<Value> {
    let begins = format!("<script type=\"application/json\" id=\"{name}\">");
    let from = page.find(&begins)? + begins.len();
    let to = from + page[from..].find("</script").expect("it ends");
    Some(serde_json::from_str(&page[from..to]).expect("it is JSON"))
}

#[test]
fn page_has_conclusions_and_a_page_for_every_run() {
    let (folder, series) = scaling_series();
    let page = page(folder.path(), &series);
    assert!(page.starts_with(report::html::FIRST_LINES));
    let data = block(&page, "data").expect("there is data");
    let shown = &data["series"];
    let sentence = shown["sentence"].as_str().expect("a sentence");
    assert!(
        sentence.starts_with("Passed up to 180 clients"),
        "{sentence}"
    );
    assert!(sentence.contains("largest at 222 clients"), "{sentence}");
    assert_eq!(
        shown["outcomes"],
        json!([
            ["pass", "5 passed"],
            ["fail", "3 failed"],
            ["invalid", "1 invalid"],
            ["not_begun", "1 could not begin"]
        ])
    );
    for at in 0..9 {
        let run = block(&page, &format!("data-{at}")).expect("it has a page");
        assert_eq!(run["name"], "evening");
        assert_eq!(shown["rows"][at]["page"], true);
    }
    assert_eq!(block(&page, "data-9"), None);
    assert_eq!(shown["rows"][9]["page"], false);
    assert_eq!(shown["rows"][9]["reason"], "no such program");
    let why = shown["rows"][5]["reason"].as_str().expect("it failed");
    assert!(why.contains("it was 9 %"), "{why}");
    assert_eq!(shown["rows"][0]["reason"], Value::Null);
}

#[test]
fn charts_have_every_run_and_the_model() {
    let (folder, series) = scaling_series();
    let data = block(&page(folder.path(), &series), "data").expect("there is data");
    let shown = &data["series"];
    assert_eq!(shown["axis"]["title"], "clients");
    assert_eq!(shown["axis"]["numeric"], true);
    assert_eq!(shown["axis"]["panels"], json!([""]));
    assert_eq!(shown["axis"]["spots"][1], json!([0, 0, 60.0]));
    let charts = shown["charts"].as_array().expect("a list");
    let titles: Vec<&str> = charts
        .iter()
        .filter_map(|one| one["title"].as_str())
        .collect();
    assert!(titles.contains(&"Startup delay, p95"), "{titles:?}");
    assert!(titles.contains(&"Server CPU, mean"), "{titles:?}");
    let rates = charts.iter().find(|one| one["name"] == "bitrate");
    let rates = rates.expect("there are bit rates");
    let knee = &rates["models"][0]["knee"];
    assert!(
        (knee["at"].as_f64().expect("a knee") - 222.0).abs() < 2.0,
        "{knee}"
    );
    let curve = rates["models"][0]["curve"].as_array().expect("a curve");
    let of_20 = curve[0][1].as_f64().expect("a number");
    assert!((of_20 / law(20) - 1.0).abs() < 0.02, "{of_20}");
    let marks: Vec<&str> = shown["rows"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["mark"].as_str())
        .collect();
    assert_eq!(
        marks[4..],
        ["counts", "out", "out", "doubt", "out", "doubt"]
    );
    // Every figure has a definition.
    for chart in charts {
        let name = chart["name"].as_str().expect("a name");
        let text = &data["definitions"]["series"][name][0];
        assert!(
            text.as_str().is_some_and(|text| text.len() > 10),
            "{name}: {text}"
        );
    }
}

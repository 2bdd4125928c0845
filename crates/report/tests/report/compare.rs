//! Comparisons of synthetic runs and series.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kit::media::rtp::metrics as rtp;
use kit::metrics as clients;
use measure::capacity::{Method, Scale, Settings, Trial, ValueKind};
use measure::comparison::MIN_EFFECT;
use measure::comparison::Word;
use measure::{
    Catalogue, Judge, Recorder, SERVER_CATALOGUE, TESTER_CATALOGUE, Threshold, Time, Totals,
    Verdict, VerdictResult, server,
};
use report::Layout;
use report::series::{CompareError, Series, side_by_side, table};
use runfile::series::{Axis, CapacityGoal, Entry, EntryOutcome, INDEX_VERSION, Index, TrialEntry};
use runfile::{Header, Machine, RunFile, SubjectHeader, WindowRow};
use serde_json::{Value, json};

use crate::catalogue_of;

/// A run of 20 clients.
#[derive(Clone)]
struct Made {
    /// Lost packets of 1,000 in each second.
    lost: [u64; 3],
    /// Processor time of the server, in cores.
    cpu: f64,
    failed: u64,
    result: VerdictResult,
    thresholds: Vec<&'static str>,
    varied: Value,
    clients: u32,
    silent: bool,
}

impl Made {
    fn good(lost: u64, cpu: f64) -> Made {
        Made {
            lost: [lost; 3],
            cpu,
            failed: 0,
            result: VerdictResult::Pass,
            thresholds: vec!["viewers.loss < 50%", "server.cpu < 4cores"],
            varied: json!([]),
            clients: 20,
            silent: false,
        }
    }
}

/// Writes a run file with three windows.
fn write(path: &Path, made: &Made) {
    let subjects = [
        ("viewers", "rtsp"),
        ("server", "server"),
        ("tester", "tester"),
    ];
    let header = Header {
        version: "0.1.0".to_owned(),
        scenario: json!({
            "name": "evening",
            "seed": 7,
            "duration": 3.0,
            "server": {"start": {"command": [path.to_string_lossy()]}},
            "varied": made.varied,
            "populations": [{"name": "viewers", "load": {"clients": made.clients}, "urls": [path.to_string_lossy()]}],
        }),
        machine: Machine {
            kernel: "Linux 6".to_owned(),
            ..Machine::default()
        },
        seed: 7,
        started_at: Duration::from_secs(1_798_761_599),
        warm_up: Duration::ZERO,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: subjects
            .map(|(name, kind)| SubjectHeader {
                name: name.to_owned(),
                kind: kind.to_owned(),
                catalogue: catalogue_of(kind).expect("it is a known kind"),
            })
            .to_vec(),
    };
    let run = RunFile::create(path, &header).expect("a run file can be made");
    let catalogues: Vec<(&str, Catalogue)> = subjects
        .map(|(name, kind)| (name, catalogue_of(kind).expect("it is a known kind")))
        .to_vec();
    let thresholds = made.thresholds.iter();
    let thresholds = thresholds.map(|text| Threshold::parse(text).expect("it is a threshold"));
    let mut judge = Judge::new(thresholds.collect(), &catalogues, 0).expect("the names exist");
    let mut totals: BTreeMap<String, Totals> = catalogues
        .iter()
        .map(|(name, catalogue)| ((*name).to_owned(), Totals::new(*catalogue)))
        .collect();
    for index in 0..3 {
        let lost = made.lost[index as usize];
        let mut viewers = Recorder::new(catalogues[0].1);
        viewers.set(clients::PLAYING, f64::from(made.clients));
        viewers.add(rtp::PAYLOAD_BYTES, 1_000_000 - 1_000 * lost);
        if !made.silent {
            viewers.add(rtp::EXPECTED, 1_000);
            viewers.add(rtp::RECEIVED, 1_000 - lost);
        }
        if index == 0 {
            viewers.add(clients::STARTED, u64::from(made.clients));
            viewers.add(clients::FAILED, made.failed);
        }
        let mut server = Recorder::new(SERVER_CATALOGUE);
        server.set(server::CPU, made.cpu);
        let row = WindowRow {
            index,
            start: Time::from_start(Duration::from_secs(index)),
            seconds: 1.0,
            subjects: BTreeMap::from([
                ("viewers".to_owned(), viewers.take_window()),
                ("server".to_owned(), server.take_window()),
                (
                    "tester".to_owned(),
                    Recorder::new(TESTER_CATALOGUE).take_window(),
                ),
            ]),
        };
        judge.window(index, 1.0, &row.subjects);
        for (name, window) in &row.subjects {
            totals
                .get_mut(name)
                .expect("it is a subject")
                .add(window, 1.0);
        }
        run.window(row);
    }
    let verdict = Verdict {
        result: made.result,
        reasons: Vec::new(),
        stopped_by_user: false,
    };
    let results = judge.finish(&totals, measure::ClockError::NONE);
    run.verdict(&verdict, &results);
    run.finish().expect("the disk has space");
}

/// Writes the series of two variants, whose runs alternate.
fn alternating(folder: &Path, pairs: &[(Made, Made)]) -> Series {
    let names = ["old", "new"];
    let mut runs = Vec::new();
    for (at, (a, b)) in pairs.iter().enumerate() {
        let mut both = [(names[0], a), (names[1], b)];
        if at % 2 == 1 {
            both.reverse();
        }
        for (name, made) in both {
            let file = format!("{:02}-{name}.run", runs.len() + 1);
            let values = vec![(at + 1).to_string(), name.to_owned()];
            let varied = json!([
                {"key": "repeat", "value": values[0]},
                {"key": "compare", "value": name},
            ]);
            let made = Made {
                varied,
                ..made.clone()
            };
            write(&folder.join(&file), &made);
            runs.push(Entry {
                values,
                file,
                outcome: EntryOutcome::Pass,
                reason: None,
                trial: None,
            });
        }
    }
    let axis = |key: &str, values: Vec<String>| Axis {
        key: key.to_owned(),
        values,
    };
    let repeated = (1..=pairs.len()).map(|at| at.to_string()).collect();
    let index = Index {
        index_version: INDEX_VERSION,
        streamgauge: "0.1.0".to_owned(),
        name: "evening".to_owned(),
        started_at: 0.0,
        settle: 0.0,
        varied: vec![
            axis("repeat", repeated),
            axis("compare", names.map(str::to_owned).to_vec()),
        ],
        find: None,
        capacity: None,
        min_effect: Some(MIN_EFFECT),
        runs,
        ended: true,
    };
    index.write(folder).expect("the folder can be written");
    Series::open(folder, catalogue_of).expect("it is a series")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

/// Returns the word for a metric.
fn word(series: &Series, metric: &str) -> Word {
    let metrics = series.comparisons[0].metrics.iter();
    let names: Vec<&str> = metrics.clone().map(|one| one.name.as_str()).collect();
    let mut found = metrics.filter(|one| one.name == metric);
    found.next().unwrap_or_else(|| panic!("{names:?}")).result
}

/// Pairs whose second run has more loss and less processor time.
fn pairs() -> Vec<(Made, Made)> {
    [0.50, 0.52, 0.49, 0.51, 0.50, 0.48]
        .into_iter()
        .zip([20, 21, 19, 20, 22, 18])
        .map(|(cpu, lost)| (Made::good(1, cpu), Made::good(lost, cpu * 0.8)))
        .collect()
}

#[test]
fn metrics_of_the_thresholds_are_judged_by_pairs() {
    let folder = folder();
    let series = alternating(folder.path(), &pairs());
    let found = &series.comparisons[0];
    assert_eq!((found.a.as_str(), found.b.as_str()), ("old", "new"));
    assert!(found.paired);
    // Runs of the second pair are in reversed order.
    assert_eq!(found.runs_a, [0, 3, 4, 7, 8, 11]);
    assert_eq!(found.runs_b, [1, 2, 5, 6, 9, 10]);
    assert_eq!(word(&series, "viewers.loss"), Word::Worse);
    assert_eq!(word(&series, "server.cpu"), Word::Better);
    assert_eq!(word(&series, "failed"), Word::Same);
    assert_eq!(found.result, Word::Worse);
    let cpu = found.metrics.iter().find(|one| one.name == "server.cpu");
    let cpu = cpu.expect("a threshold reads it");
    assert!(
        (cpu.effect.expect("both have it") - 0.8).abs() < 1e-6,
        "{cpu:?}"
    );
    let text = table(&series, Layout::default());
    assert!(
        text.contains("new against old: worse in loss; better in"),
        "{text}"
    );
    assert!(text.contains("6 pairs of runs that alternated"), "{text}");
    // The page has a curve of each variant, and the page of each run.
    let mut page = Vec::new();
    let open = |file: &str| report::open(&folder.path().join(file), catalogue_of).ok();
    report::html::write_series(&series, open, &mut page).expect("it can be written");
    let page = String::from_utf8(page).expect("it is UTF-8");
    assert!(page.contains(r#""curve_a":[[0,0.001],[1,0.001],[2,0.001]]"#));
    assert!(page.contains(r#"id="data-11""#));
    let mut junit = Vec::new();
    report::junit::write_series(&series, |_| None, &mut junit).expect("it can be written");
    let junit = String::from_utf8(junit).expect("it is UTF-8");
    assert!(junit.contains("new against old: loss"), "{junit}");
    assert!(
        junit.contains("<failure message=\"worse: 0.1 % → 2 %"),
        "{junit}"
    );
}

#[test]
fn pair_with_a_run_that_cannot_be_trusted_is_left_out_and_named() {
    let folder = folder();
    let mut pairs = pairs();
    pairs[2].1.result = VerdictResult::Invalid;
    // This value would change the word.
    pairs[2].1.cpu = 50.0;
    let series = alternating(folder.path(), &pairs);
    let found = &series.comparisons[0];
    assert_eq!(found.runs_a.len(), 5);
    assert_eq!(found.left_out, ["pair 3: the run of new is invalid"]);
    let pairs = found.metrics.iter().map(|metric| metric.pairs.clone());
    assert!(pairs.into_iter().all(|numbers| numbers == [1, 2, 4, 5, 6]));
    assert_eq!(word(&series, "server.cpu"), Word::Better);
    let text = table(&series, Layout::default());
    assert!(text.contains("left out: pair 3"), "{text}");
}

#[test]
fn metric_that_only_one_variant_has_cannot_be_told() {
    let folder = folder();
    let mut pairs = pairs();
    for (_, made) in &mut pairs {
        // A server that sends no packets.
        made.silent = true;
    }
    let series = alternating(folder.path(), &pairs);
    assert_eq!(word(&series, "viewers.loss"), Word::CannotTell);
    assert_eq!(series.comparisons[0].result, Word::CannotTell);
    let text = table(&series, Layout::default());
    assert!(text.contains("→ no value"), "{text}");
    assert_eq!(word(&series, "server.cpu"), Word::Better);
}

#[test]
fn thresholds_that_only_one_has_are_not_compared() {
    let folder = folder();
    let [a, b] = ["a.run", "b.run"].map(|name| folder.path().join(name));
    write(&a, &Made::good(0, 0.5));
    let other = Made {
        thresholds: vec!["viewers.loss < 50%", "viewers.jitter.mean < 1s"],
        ..Made::good(0, 0.6)
    };
    write(&b, &other);
    let series = compared(&a, &b, false).expect("they are comparable");
    let judged = series.comparisons[0]
        .metrics
        .iter()
        .filter(|one| one.judged);
    let judged: Vec<&str> = judged.map(|one| one.name.as_str()).collect();
    assert_eq!(judged, ["viewers.loss", "failed"]);
}

#[test]
fn threshold_without_data_in_both_is_never_the_same() {
    let folder = folder();
    let pairs: Vec<(Made, Made)> = (0..6)
        .map(|_| {
            let made = Made {
                // No jitter is recorded.
                thresholds: vec!["viewers.loss < 50%", "viewers.jitter.mean < 1s"],
                ..Made::good(1, 0.5)
            };
            (made.clone(), made)
        })
        .collect();
    let series = alternating(folder.path(), &pairs);
    assert_eq!(word(&series, "viewers.loss"), Word::Same);
    let found = &series.comparisons[0];
    assert_eq!(found.without_data, ["jitter mean"]);
    assert_eq!(found.result, Word::CannotTell);
    let mut junit = Vec::new();
    report::junit::write_series(&series, |_| None, &mut junit).expect("it can be written");
    let junit = String::from_utf8(junit).expect("it is UTF-8");
    assert!(junit.contains("new against old: jitter mean"), "{junit}");
    assert!(
        junit.contains("<error message=\"cannot tell: no data\"/>"),
        "{junit}"
    );
}

#[test]
fn series_without_its_index_is_not_compared() {
    let folder = folder();
    alternating(folder.path(), &pairs());
    std::fs::remove_file(folder.path().join("series.json")).expect("it is there");
    let series = Series::open(folder.path(), catalogue_of).expect("the runs are there");
    assert_eq!(series.runs.len(), 12);
    assert!(series.comparisons.is_empty());
}

#[test]
fn servers_that_fail_their_clients_are_worse_without_any_figure() {
    let folder = folder();
    let failing = Made {
        failed: 20,
        clients: 20,
        result: VerdictResult::Fail,
        ..Made::good(0, 0.5)
    };
    let pairs: Vec<(Made, Made)> = (0..3)
        .map(|_| (Made::good(0, 0.5), failing.clone()))
        .collect();
    let series = alternating(folder.path(), &pairs);
    assert_eq!(word(&series, "failed"), Word::Worse);
    assert_eq!(series.comparisons[0].result, Word::Worse);
}

#[test]
fn all_figures_are_judged_without_thresholds() {
    let folder = folder();
    let mut pairs = pairs();
    for made in pairs.iter_mut().flat_map(|(a, b)| [a, b]) {
        made.thresholds.clear();
    }
    let series = alternating(folder.path(), &pairs);
    assert!(series.comparisons[0].metrics.iter().all(|one| one.judged));
    assert_eq!(word(&series, "loss"), Word::Worse);
    assert_eq!(word(&series, "server_cpu"), Word::Better);
}

/// Writes a series of repeated runs.
fn repeated(folder: &Path, name: &str, runs: &[Made]) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir(&path).expect("the folder can be written");
    let entries = runs.iter().enumerate().map(|(at, made)| {
        let file = format!("{}.run", at + 1);
        let value = (at + 1).to_string();
        let made = Made {
            varied: json!([{"key": "repeat", "value": value}]),
            ..made.clone()
        };
        write(&path.join(&file), &made);
        Entry {
            values: vec![value],
            file,
            outcome: EntryOutcome::Pass,
            reason: None,
            trial: None,
        }
    });
    let index = Index {
        index_version: INDEX_VERSION,
        streamgauge: "0.1.0".to_owned(),
        name: "evening".to_owned(),
        started_at: 0.0,
        settle: 0.0,
        varied: vec![Axis {
            key: "repeat".to_owned(),
            values: (1..=runs.len()).map(|at| at.to_string()).collect(),
        }],
        find: None,
        capacity: None,
        min_effect: None,
        runs: entries.collect(),
        ended: true,
    };
    index.write(&path).expect("the folder can be written");
    path
}

fn compared(a: &Path, b: &Path, anyway: bool) -> Result<Series, CompareError> {
    side_by_side(a, b, MIN_EFFECT, anyway, catalogue_of)
}

#[test]
fn series_that_were_made_separately_are_compared() {
    let folder = folder();
    let [a, b]: [Vec<Made>; 2] = [0, 1].map(|side| {
        let pairs = pairs().into_iter();
        pairs.map(|(a, b)| if side == 0 { a } else { b }).collect()
    });
    let a = repeated(folder.path(), "main.series", &a);
    let b = repeated(folder.path(), "branch.series", &b);
    let series = compared(&a, &b, false).expect("they are comparable");
    let found = &series.comparisons[0];
    assert!(!found.paired);
    assert_eq!((found.a.as_str(), found.b.as_str()), ("main", "branch"));
    assert_eq!(found.differences, Vec::<String>::new());
    assert_eq!(found.runs_b, [6, 7, 8, 9, 10, 11]);
    assert_eq!(word(&series, "viewers.loss"), Word::Worse);
    assert_eq!(word(&series, "server.cpu"), Word::Better);
    // A series is the same as itself.
    let same = compared(&a, &a, false).expect("they are comparable");
    assert_eq!(same.comparisons[0].b, "main again");
    assert_eq!(word(&same, "viewers.loss"), Word::Same);
}

#[test]
fn one_run_each_gives_the_difference_but_no_word() {
    let folder = folder();
    let [a, b] = ["a.run", "b.run"].map(|name| folder.path().join(name));
    write(&a, &Made::good(0, 0.5));
    write(&b, &Made::good(0, 0.6));
    let series = compared(&a, &b, false).expect("they are comparable");
    assert_eq!(word(&series, "server.cpu"), Word::CannotTell);
    let text = table(&series, Layout::default());
    assert!(text.contains("50 % → 60 %  +20.0 %"), "{text}");
    assert!(text.contains("too few runs"), "{text}");
}

#[test]
fn differences_of_what_was_measured_are_named() {
    let folder = folder();
    let [a, b, invalid] = ["a.run", "b.run", "c.run"].map(|name| folder.path().join(name));
    write(&a, &Made::good(0, 0.5));
    let more = Made {
        clients: 30,
        ..Made::good(0, 0.5)
    };
    write(&b, &more);
    let series = compared(&a, &b, false).expect("the caller decides");
    assert_eq!(
        series.comparisons[0].differences,
        ["clients.viewers.load.clients: 20 in the first, 30 in the second"]
    );
    let bad = Made {
        result: VerdictResult::Invalid,
        ..Made::good(0, 0.5)
    };
    write(&invalid, &bad);
    let refused = compared(&a, &invalid, false).expect_err("it is invalid");
    assert!(matches!(refused, CompareError::Invalid { .. }), "{refused}");
    let anyway = compared(&a, &invalid, true).expect("the user wants it");
    assert_eq!(anyway.comparisons[0].runs_b, [1]);
}

#[test]
fn things_of_different_kinds_are_refused() {
    let folder = folder();
    let two = folder.path().join("two.series");
    std::fs::create_dir(&two).expect("the folder can be written");
    alternating(&two, &pairs());
    let single = folder.path().join("a.run");
    write(&single, &Made::good(0, 0.5));
    let refused = compared(&two, &single, true).expect_err("it has two variants");
    assert!(matches!(refused, CompareError::TwoVariants(_)), "{refused}");
    let missing = compared(&single, &folder.path().join("b.run"), true);
    assert!(matches!(missing, Err(CompareError::Report(_))));
    // Series over other keys.
    let varied = folder.path().join("varied.series");
    std::fs::create_dir(&varied).expect("the folder can be written");
    let made = Made {
        varied: json!([{"key": "duration", "value": "3s"}]),
        ..Made::good(0, 0.5)
    };
    write(&varied.join("1.run"), &made);
    let refused = compared(&single, &varied, true).expect_err("one of them is varied");
    assert!(refused.to_string().contains("duration"), "{refused}");
}

#[test]
fn threshold_that_broke_first_is_named_in_a_search() {
    let folder = folder();
    let thresholds = vec![
        "viewers.loss < 1%",
        "server.cpu < 0.4cores",
        "viewers.failed == 0",
    ];
    let made = |lost, failed, cpu| Made {
        lost,
        failed,
        result: VerdictResult::Fail,
        thresholds: thresholds.clone(),
        ..Made::good(0, cpu)
    };
    // The loss begins in the second second, the other breaks at once.
    let trials = [made([0, 90, 90], 0, 0.5), made([0, 90, 90], 2, 0.1)];
    let entries = trials.iter().enumerate().map(|(at, made)| {
        let file = format!("{at}.run");
        write(&folder.path().join(&file), made);
        Entry {
            values: vec!["20".to_owned()],
            file,
            outcome: EntryOutcome::Fail,
            reason: None,
            trial: Some(TrialEntry {
                combination: 0,
                trial: Trial {
                    load: 20,
                    hold: Duration::from_secs(3),
                    verdict: measure::capacity::Verdict::Failed,
                    served: None,
                    took: Duration::from_secs(3),
                    fresh: true,
                },
                worsened: None,
            }),
        }
    });
    let key = "clients.viewers.load.clients".to_owned();
    let index = Index {
        index_version: INDEX_VERSION,
        streamgauge: "0.1.0".to_owned(),
        name: "evening".to_owned(),
        started_at: 0.0,
        settle: 0.0,
        varied: vec![Axis {
            key: key.clone(),
            values: Vec::new(),
        }],
        find: None,
        min_effect: None,
        capacity: Some(CapacityGoal {
            key,
            scale: Scale {
                kind: ValueKind::Count,
                exponent: 0,
            },
            settings: Settings {
                from: 20,
                min: 1,
                max: 100,
                hold: Duration::from_secs(3),
                sure: 0.95,
                within: 0.1,
                budget: Duration::from_secs(60),
                method: Method::Interval,
                continuing: false,
            },
            scenario: Value::Null,
            ended: Vec::new(),
        }),
        runs: entries.collect(),
        ended: false,
    };
    index
        .write(folder.path())
        .expect("the folder can be written");
    let series = Series::open(folder.path(), catalogue_of).expect("it is a series");
    let broke = series.searches[0].broke.iter();
    let broke: Vec<(&str, u64, u64)> = broke
        .map(|one| (one.threshold.as_str(), one.trials, one.first))
        .collect();
    assert_eq!(
        broke,
        [
            ("server.cpu < 0.4cores", 1, 1),
            ("viewers.failed == 0", 1, 1),
            ("viewers.loss < 1%", 2, 0),
        ]
    );
}

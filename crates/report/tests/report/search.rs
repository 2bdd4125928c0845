//! Reports of capacity searches, from an index alone: its trials have no run files.

use std::time::Duration;

use measure::capacity::{End, Method, Scale, Settings, Trial, ValueKind, Verdict};
use measure::comparison::Word;
use report::series::{Series, side_by_side, table};
use report::{Layout, junit};
use runfile::series::{
    Axis, CapacityGoal, EndedSearch, Entry, EntryOutcome, INDEX_VERSION, Index, TrialEntry,
};

const HOLD: Duration = Duration::from_secs(30);

/// Returns the settings of a search from 100 clients on.
fn settings(method: Method) -> Settings {
    Settings {
        from: 100,
        min: 1,
        max: 1_000,
        hold: HOLD,
        sure: 0.95,
        within: 0.1,
        budget: Duration::from_secs(1_800),
        method,
        continuing: false,
    }
}

/// Returns the index of a search with these trials: load and verdict.
fn index(settings: Settings, trials: &[(u64, Verdict)], end: Option<End>) -> Index {
    let entry = |(at, &(load, verdict)): (usize, &(u64, Verdict))| Entry {
        values: vec![load.to_string()],
        file: format!("{at:03}.run"),
        outcome: match verdict {
            Verdict::Held | Verdict::GettingWorse => EntryOutcome::Pass,
            Verdict::Failed => EntryOutcome::Fail,
            Verdict::Invalid => EntryOutcome::Invalid,
        },
        reason: None,
        trial: Some(TrialEntry {
            combination: 0,
            trial: Trial {
                load,
                hold: HOLD,
                verdict,
                served: None,
                took: Duration::from_secs(45),
                fresh: true,
            },
            worsened: (verdict == Verdict::GettingWorse)
                .then(|| "`server.uss < 2GB` gets worse".to_owned()),
        }),
    };
    Index {
        index_version: INDEX_VERSION,
        streamgauge: "0.1.0".to_owned(),
        name: "viewers".to_owned(),
        started_at: 0.0,
        settle: 5.0,
        varied: vec![Axis {
            key: "clients.viewers.load.clients".to_owned(),
            values: Vec::new(),
        }],
        find: None,
        min_effect: None,
        capacity: Some(CapacityGoal {
            key: "clients.viewers.load.clients".to_owned(),
            scale: Scale {
                kind: ValueKind::Count,
                exponent: 0,
            },
            settings,
            scenario: serde_json::Value::Null,
            ended: end
                .map(|end| EndedSearch {
                    combination: 0,
                    end,
                })
                .into_iter()
                .collect(),
        }),
        runs: trials.iter().enumerate().map(entry).collect(),
        ended: end.is_some(),
    }
}

fn series(index: &Index) -> Series {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    index.write(folder.path()).expect("it can be written");
    Series::open(folder.path(), |_| None).expect("it can be read")
}

/// Returns the answer of the table in one line.
fn answer(index: &Index) -> String {
    let text = table(&series(index), Layout::default());
    let from = text.find("\ncapacity").expect("there is an answer") + 1;
    let words = text[from..].split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn answer_of_each_end_says_what_is_known() {
    use Verdict::{Failed, GettingWorse, Held, Invalid};
    let quick = settings(Method::Quick);
    for (trials, end, begins) in [
        (
            &[(100, Held), (200, Failed), (141, Held), (142, Failed)][..],
            Some(End::Found),
            "capacity 141 clients largest",
        ),
        (
            &[(100, Failed), (1, Failed)],
            Some(End::BelowMin),
            "capacity below 1 client: the smallest load failed",
        ),
        (
            &[(1_000, Held)],
            Some(End::AboveMax),
            "capacity at least 1,000 clients: the largest load held",
        ),
        (
            &[(100, Held), (200, Invalid), (200, Invalid)],
            Some(End::TesterLimit),
            "capacity at least 100 clients: the tester ends here",
        ),
        (
            &[(100, Held), (200, Held)],
            Some(End::Budget),
            "capacity at least 200 clients: the budget ended",
        ),
        (
            &[(100, Held), (200, Failed)],
            None,
            "capacity 100 clients; the search was cut off",
        ),
        (
            &[(100, Invalid)],
            None,
            "capacity unknown: the search was cut off",
        ),
        (
            &[(100, GettingWorse), (100, GettingWorse), (50, Held)],
            None,
            "capacity 50 clients; the search was cut off",
        ),
    ] {
        let text = answer(&index(quick.clone(), trials, end));
        assert!(text.starts_with(begins), "{trials:?}: {text}");
        let settles = trials.iter().all(|trial| trial.1 != GettingWorse);
        assert_eq!(text.contains("does not settle"), !settles, "{text}");
    }
}

#[test]
fn interval_follows_from_the_trials() {
    use Verdict::{Failed, Held};
    let trials = [
        (100, Held),
        (200, Held),
        (400, Failed),
        (283, Failed),
        (238, Held),
        (238, Held),
        (283, Failed),
        (260, Failed),
        (260, Failed),
        (249, Held),
        (249, Held),
        (255, Failed),
    ];
    let made = index(settings(Method::Interval), &trials, Some(End::Found));
    let series = series(&made);
    let search = &series.searches[0];
    let value = |load: &Option<report::series::LoadValue>| load.as_ref().map(|load| load.value);
    let (low, high) = (value(&search.low), value(&search.high));
    assert!(
        low.is_some_and(|low| (225.0..250.0).contains(&low)),
        "{low:?}"
    );
    assert!(
        high.is_some_and(|high| (249.0..275.0).contains(&high)),
        "{high:?}"
    );
    assert!(search.distribution.len() > 10);
    let sum: f64 = search
        .distribution
        .iter()
        .map(|point| point.probability)
        .sum();
    assert!((0.99..1.001).contains(&sum), "{sum}");
    assert!(
        answer(&made).contains("clients (95 %: "),
        "{}",
        answer(&made)
    );
    let mut xml = Vec::new();
    junit::write_series(&series, |_| None, &mut xml).expect("memory takes it");
    let xml = String::from_utf8(xml).expect("XML is UTF-8");
    assert!(
        xml.contains("capacity: 2") && xml.contains("clients (95 %"),
        "{xml}"
    );
}

#[test]
fn impossible_search_is_refused() {
    let good = index(settings(Method::Quick), &[(100, Verdict::Held)], None);
    let changes: [fn(&mut Index); 6] = [
        |index| index.runs[0].trial.as_mut().expect("a trial").trial.load = u64::MAX,
        |index| index.capacity.as_mut().expect("a goal").scale.exponent = i32::MIN,
        |index| index.capacity.as_mut().expect("a goal").settings.min = 0,
        |index| index.capacity.as_mut().expect("a goal").settings.max = 50,
        |index| index.capacity.as_mut().expect("a goal").settings.sure = 2.0,
        |index| index.runs = vec![index.runs[0].clone(); 61],
    ];
    for change in changes {
        let mut bad = good.clone();
        change(&mut bad);
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        bad.write(folder.path()).expect("it can be written");
        assert!(Series::open(folder.path(), |_| None).is_err());
    }
    assert_eq!(series(&good).searches.len(), 1);
}

/// Returns the trials of a search around this capacity: each load three times.
fn around(capacity: u64) -> Vec<(u64, Verdict)> {
    let loads = [80, 90, 96, 99, 101, 104, 110, 120].map(|percent| capacity * percent / 100);
    let each = loads.into_iter().flat_map(|load| [load; 3]);
    each.map(|load| match load <= capacity {
        true => (load, Verdict::Held),
        false => (load, Verdict::Failed),
    })
    .collect()
}

#[test]
fn two_capacities_are_compared_by_their_distributions() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let write = |name: &str, trials: &[(u64, Verdict)], end| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("the folder can be written");
        let index = index(settings(Method::Interval), trials, end);
        index.write(&path).expect("the folder can be written");
        path
    };
    let found = Some(End::Found);
    let old = write("old.series", &around(400), found);
    let slower = write("slower.series", &around(340), found);
    let again = write("again.series", &around(404), found);
    let nothing = write(
        "nothing.series",
        &[(100, Verdict::Invalid)],
        Some(End::TesterLimit),
    );
    let compared = |a, b| side_by_side(a, b, 0.05, true, |_| None).expect("both are searches");
    for (a, b, word) in [
        (&old, &slower, Word::Worse),
        (&slower, &old, Word::Better),
        (&old, &again, Word::Same),
        (&old, &nothing, Word::CannotTell),
    ] {
        let series = compared(a, b);
        let [found] = series.capacity_comparisons.as_slice() else {
            panic!("one comparison: {:?}", series.capacity_comparisons);
        };
        assert_eq!(found.result, word, "{found:?}");
        assert!(series.comparisons.is_empty());
        assert_eq!(series.searches.len(), 2);
        let runs = series.runs.len();
        let trials = series.searches.iter().flat_map(|search| &search.trials);
        let of_trials: Vec<usize> = trials.map(|trial| trial.run).collect();
        assert_eq!(of_trials, (0..runs).collect::<Vec<_>>());
        let text = table(&series, Layout::default());
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(word.text()), "{text}");
        let mut written = Vec::new();
        junit::write_series(&series, |_| None, &mut written).expect("it can be written");
        let written = String::from_utf8(written).expect("it is UTF-8");
        let fails = written.matches("<failure").count();
        assert_eq!(fails, usize::from(word == Word::Worse), "{written}");
    }
    let single = folder.path().join("a.run");
    let mixed = side_by_side(&old, &single, 0.05, true, |_| None);
    assert!(mixed.is_err(), "there is no such run");
}

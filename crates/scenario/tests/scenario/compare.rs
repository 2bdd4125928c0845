//! Comparisons of two variants: their keys, and the order of their runs.

use scenario::{Overrides, Plan, Series};

const BASE: &str = "clients: {viewers: {urls: [rtsp://h/a], load: {clients: 40}}}\n\
                    duration: 9s\nseed: 4\n";

fn plan(text: &str) -> Result<Plan, scenario::ScenarioError> {
    protocols::install();
    Plan::parse("c.yaml", text, &Overrides::default())
}

fn series(text: &str) -> Series {
    match plan(text) {
        Ok(Plan::Series(series)) => *series,
        Ok(other) => panic!("it is no series: {other:?}"),
        Err(error) => panic!("{:?}", error.problems()),
    }
}

/// Formats the position, message and help of each problem.
fn refused(text: &str) -> String {
    let error = plan(text).expect_err("it is wrong");
    let problems = error.problems().iter();
    problems.map(|problem| format!("{problem:?}\n")).collect()
}

/// Returns the values of each run, in order.
fn values(series: &Series) -> Vec<String> {
    (0..series.runs())
        .map(|run| {
            let settings = series.settings(run).into_iter();
            settings
                .map(|setting| setting.value)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

const TWO: &str =
    "compare: {old: {clients.viewers.transport: udp}, new: {clients.viewers.transport: tcp}}\n";

#[test]
fn runs_of_two_variants_alternate() {
    let found = series(&format!("{BASE}{TWO}repeat: 3\n"));
    assert_eq!(
        values(&found),
        ["1 old", "1 new", "2 new", "2 old", "3 old", "3 new"]
    );
    // An odd seed begins with the other variant.
    let other = series(&format!("{BASE}{TWO}repeat: 2\n").replace("seed: 4", "seed: 5"));
    assert_eq!(values(&other), ["1 new", "1 old", "2 old", "2 new"]);
    let transports: Vec<String> = (0..found.runs())
        .map(|run| {
            let scenario = found.scenario(run).expect("it is valid");
            format!("{:?}", scenario.shown()["populations"][0]["config"]).to_lowercase()
        })
        .collect();
    assert!(transports[0].contains("udp"), "{}", transports[0]);
    assert!(transports[1].contains("tcp"), "{}", transports[1]);
    assert_eq!(transports[1], transports[2]);
    let seeds = (0..found.runs()).map(|run| found.scenario(run).expect("it is valid").seed);
    assert_eq!(seeds.collect::<Vec<_>>(), [4, 4, 5, 5, 6, 6]);
}

#[test]
fn defaults_are_six_pairs_and_five_percent() {
    let found = series(&format!("{BASE}{TWO}"));
    assert_eq!(found.runs(), 12);
    let comparison = found.comparison().expect("it is one");
    assert_eq!(comparison.min_effect, 0.05);
    let own = series(&format!("{BASE}{TWO}min_effect: 2%\n"));
    let own = own.comparison().expect("it is one").min_effect;
    assert!((own - 0.02).abs() < 1e-12, "{own}");
    let lines = found.lines().join("\n");
    assert!(lines.contains("12 runs"), "{lines}");
    assert!(
        lines.contains("old (clients.viewers.transport: udp)"),
        "{lines}"
    );
    assert!(
        lines.contains("6 runs of each, in alternating order"),
        "{lines}"
    );
}

#[test]
fn each_combination_of_other_values_is_compared() {
    let text = format!("{BASE}{TWO}repeat: 2\nvary: {{clients.viewers.load.clients: [1, 2]}}\n");
    assert_eq!(
        values(&series(&text)),
        [
            "1 1 old", "1 1 new", "1 2 old", "1 2 new", "2 1 new", "2 1 old", "2 2 new", "2 2 old"
        ]
    );
}

#[test]
fn scenario_without_variants_is_repeated() {
    let found = series(&format!("{BASE}repeat: 3\n"));
    assert_eq!(values(&found), ["1", "2", "3"]);
    assert!(found.comparison().is_none());
    let seeds = (0..3).map(|run| found.scenario(run).expect("it is valid").seed);
    assert_eq!(seeds.collect::<Vec<_>>(), [4, 5, 6]);
    let once = series(&format!("{BASE}repeat: 1\n"));
    assert_eq!(values(&once), [""]);
}

#[test]
fn wrong_comparisons_are_refused_at_their_position() {
    for (more, position, message) in [
        (
            "compare: {old: {duration: 5s}}\n",
            "4:1",
            "needs two variants",
        ),
        (
            "compare: {a: {duration: 5s}, b: {duration: 6s}, c: {duration: 7s}}\n",
            "4:1",
            "has 3 variants",
        ),
        ("compare: [1, 2]\n", "4:10", "a mapping of two variants"),
        ("compare: {a: 5, b: {duration: 6s}}\n", "4:14", "compare.a"),
        (
            "compare: {a: {durations: 5s}, b: {duration: 6s}}\n",
            "4:15",
            "durations",
        ),
        (
            "compare: {a: {settle: 5s}, b: {duration: 6s}}\n",
            "4:15",
            "`settle` cannot be varied",
        ),
        ("repeat: 0\n", "4:9", "from 1 to 100"),
        ("repeat: 101\n", "4:9", "from 1 to 100"),
        ("min_effect: 5%\n", "4:1", "needs a series"),
        ("repeat: 2\nmin_effect: 5%\n", "5:1", "add `compare`"),
        (
            "compare: {a: {duration: 5s}, b: {duration: 6s}}\nmin_effect: 0%\n",
            "5:13",
            "0.1%",
        ),
        (
            "compare: {a: {duration: 5s}, b: {duration: 6s}}\nvary: {duration: [5s]}\n",
            "4:1",
            "already varied",
        ),
        (
            "compare: {a: {duration: 5s}, b: {duration: 6s}}\nstop_at: fail\n",
            "5:1",
            "needs all its runs",
        ),
        (
            "vary: {clients.viewers.load.clients: [1, 2]}\nfind: clients.viewers.load.clients\nrepeat: 2\n",
            "5:1",
            "several",
        ),
        (
            "thresholds: [\"viewers.loss < 1%\"]\ncapacity: {}\ncompare: {a: {duration: 5s}, b: {duration: 6s}}\n",
            "6:1",
            "vary: {cases",
        ),
        (
            "thresholds: [\"viewers.loss < 1%\"]\ncapacity: {}\nrepeat: 3\n",
            "6:1",
            "repeats trials as needed",
        ),
    ] {
        let found = refused(&format!("{BASE}{more}"));
        assert!(
            found.contains(&format!("c.yaml:{position}: ")),
            "{more}: {found}"
        );
        assert!(found.contains(message), "{more}: {found}");
    }
}

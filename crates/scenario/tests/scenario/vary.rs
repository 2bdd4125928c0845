//! Series: several runs of one scenario.

use proptest::prelude::*;
use scenario::{Overrides, Plan, Scenario, ScenarioError, Series, StopAt, schema};

const BASE: &str = "clients: {viewers: {urls: [rtsp://h/a], load: {clients: 10}}}\nduration: 10s\n";

fn plan(text: &str, set: &[&str]) -> Result<Plan, ScenarioError> {
    protocols::install();
    let overrides = Overrides {
        set: set.iter().map(|&set| set.to_owned()).collect(),
        ..Overrides::default()
    };
    Plan::parse("s.yaml", text, &overrides)
}

fn series(vary: &str, set: &[&str]) -> Series {
    match plan(&format!("{BASE}{vary}"), set) {
        Ok(Plan::Series(series)) => *series,
        Ok(other) => panic!("it is no series: {other:?}"),
        Err(error) => panic!("{:?}", error.problems()),
    }
}

/// Formats the position, message and help of each problem.
fn refused(vary: &str, set: &[&str]) -> String {
    let error = plan(&format!("{BASE}{vary}"), set).expect_err("it is wrong");
    error
        .problems()
        .iter()
        .map(|problem| format!("{problem:?}\n"))
        .collect()
}

/// Returns the values of each run.
fn values(series: &Series) -> Vec<Vec<String>> {
    (0..series.runs())
        .map(|run| {
            let settings = series.settings(run).into_iter();
            settings.map(|setting| setting.value).collect()
        })
        .collect()
}

#[test]
fn first_varied_key_changes_slowest() {
    let series = series(
        "vary:\n  clients.viewers.transport: [udp, tcp]\n  clients.viewers.load.clients: [50, 100]\n",
        &[],
    );
    assert_eq!(
        values(&series),
        [["udp", "50"], ["udp", "100"], ["tcp", "50"], ["tcp", "100"]]
    );
    assert_eq!(series.settle().as_secs(), 5);
    assert_eq!(series.stop_at(), StopAt::Never);
    let third = series.scenario(2).expect("it was checked");
    assert_eq!(third.populations[0].load.clients_max(), 50);
    let text = serde_json::to_string(&third).expect("it can be written");
    assert!(
        text.contains("\"varied\":[{\"key\":\"clients.viewers.transport\",\"value\":\"tcp\"}"),
        "{text}"
    );
    assert_eq!(third.varied[1].value, "50");
}

#[test]
fn server_and_absent_keys_can_be_varied() {
    let series = series(
        "vary:\n  server: [{command: [a, -x]}, {observe: {pid: 7}}]\n  tester.receive: [ring, ~]\nsettle: 1s\nstop_at: fail\n",
        &[],
    );
    assert_eq!(values(&series)[0], ["{command: [a, -x]}", "ring"]);
    assert_eq!(values(&series)[3], ["{observe: {pid: 7}}", "-"]);
    assert!(series.scenario(3).expect("it was checked").server.is_some());
    assert_eq!(series.settle().as_secs(), 1);
    assert_eq!(series.stop_at(), StopAt::Fail);
}

#[test]
fn one_search_per_combination_of_other_values() {
    let series = series(
        "vary:\n  clients.viewers.transport: [udp, tcp]\n  \
         clients.viewers.load.clients: [5, 6, 7]\n  \
         tester.receive: [ring, sockets]\nfind: clients.viewers.load.clients\n",
        &[],
    );
    assert_eq!(series.find(), Some("clients.viewers.load.clients"));
    let searches = series.searches();
    let values = values(&series);
    assert_eq!(searches.len(), 4);
    for runs in searches {
        let [transport, _, receive] = &values[runs[0]][..] else {
            panic!("three keys");
        };
        for (run, clients) in runs.iter().zip(["5", "6", "7"]) {
            assert_eq!(values[*run], [transport, clients, receive]);
        }
    }
    let lines = series.lines();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("finds: the first"))
    );
    for wrong in [
        "find: duration\n",
        "find: [a]\n",
        "find: duration\nstop_at: fail\n",
    ] {
        let text = format!("{BASE}vary: {{clients.viewers.load.clients: [1, 2]}}\n{wrong}");
        assert!(plan(&text, &[]).is_err(), "{wrong}");
    }
}

#[test]
fn series_can_be_set_on_the_command_line() {
    let key = "clients.viewers.load.clients";
    let made = series("", &[&format!("vary.{key}=[1, 2]")]);
    assert_eq!(values(&made), [["1"], ["2"]]);
    let file = format!("vary: {{{key}: [5]}}\n");
    let changed = series(&file, &[&format!("vary.{key}=[1, 2]")]);
    assert_eq!(values(&changed), [["1"], ["2"]]);
    let one = plan(&format!("{BASE}{file}"), &["vary=", &format!("{key}=7")]);
    assert!(matches!(one, Ok(Plan::Run(run)) if run.varied.is_empty()));
}

#[test]
fn wrong_values_are_reported_at_their_position() {
    let text = refused(
        "vary:\n  clients.viewers.load.clients: [10, many, 0]\n",
        &[],
    );
    assert!(
        text.contains("s.yaml:4:38") && text.contains("many"),
        "{text}"
    );
    // A load of `0` is only found to be wrong when the load is read.
    assert!(
        text.contains("with `clients.viewers.load.clients: 0`: "),
        "{text}"
    );
    let text = refused("vary: {clients.viewer.load.clients: [10]}\n", &[]);
    assert!(text.contains("s.yaml:3:16"), "{text}");
    assert!(text.contains("did you mean `viewers`"), "{text}");
    let text = refused("vary: {clients.viewers.load.cleints: [10, 20]}\n", &[]);
    assert!(
        text.contains("s.yaml:3:29") && text.contains("cleints"),
        "{text}"
    );
    // Wrong only in combination with another key.
    let text = refused("warm_up: 7s\nvary: {duration: [20s, 5s]}\n", &[]);
    assert!(
        text.contains("s.yaml:3:10") && text.contains("with `duration: 5s`: "),
        "{text}"
    );
    // Wrong in every run.
    let text = refused("seed: x\nvary: {duration: [20s, 5s]}\n", &[]);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("with `duration"), "{text}");
}

#[test]
fn meaningless_series_are_refused() {
    protocols::install();
    for (vary, expected) in [
        ("vary: {}\n", "names no key"),
        ("vary: [1]\n", "must be a mapping"),
        ("vary: {duration: 5s}\n", "must be a list of values"),
        ("vary: {duration: []}\n", "has no value"),
        ("vary: {settle: [1s]}\n", "cannot be varied"),
        ("vary: {name: [a, b]}\n", "cannot be varied"),
        (
            "vary: {clients.viewers.load: [{clients: 1}], clients.viewers.load.clients: [1]}\n",
            "already",
        ),
        ("settle: 5s\n", "`settle` needs a series"),
        (
            "vary: {duration: [5s]}\nstop_at: fial\n",
            "did you mean `fail`",
        ),
        ("vary: {duration: [5s]}\nsettle: 5\n", "unit"),
    ] {
        let text = refused(vary, &[]);
        assert!(text.contains(expected), "{vary}: {text}");
    }
    let text = refused("vary: {duration: [5s]}\n", &["duration=9s"]);
    assert!(
        text.contains("--set duration=9s") && text.contains("vary="),
        "{text}"
    );
    let many = (1..60)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let text = refused(
        &format!("vary: {{seed: [{many}], clients.viewers.load.clients: [{many}]}}\n"),
        &[],
    );
    assert!(text.contains("3481 runs"), "{text}");
    let error = Scenario::parse(
        "s.yaml",
        &format!("{BASE}vary: {{duration: [5s]}}\n"),
        &Overrides::default(),
    );
    assert!(format!("{:?}", error.expect_err("one run is wanted")).contains("several runs"));
}

#[test]
fn varied_passwords_are_masked() {
    let series = series(
        "vary:\n  clients.viewers.urls: [[\"rtsp://me:secret@h/a\"]]\n",
        &[],
    );
    assert_eq!(values(&series), [["[rtsp://me:***@h/a]"]]);
}

#[test]
fn schema_accepts_a_series() {
    protocols::install();
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).expect("it is a schema");
    let good = serde_json::json!({
        "clients": {"viewers": {"urls": ["rtsp://h/a"], "load": {"clients": 10}}},
        "vary": {"clients.viewers.load.clients": [1, 2]}, "settle": "1s", "stop_at": "fail"
    });
    assert!(validator.is_valid(&good));
    for (key, value) in [
        ("vary", serde_json::json!({"duration": "5s"})),
        ("settle", serde_json::json!(5)),
        ("stop_at", serde_json::json!("first")),
    ] {
        let mut bad = good.clone();
        bad[key] = value;
        assert!(!validator.is_valid(&bad), "{bad}");
    }
}

proptest! {
    #[test]
    fn any_text_under_vary_is_handled(key in "[a-z.\"']{0,40}", value in "\\PC{0,40}") {
        let _ = plan(&format!("{BASE}vary: {{{key}: [{value}]}}\n"), &[]);
        let _ = plan(BASE, &[&format!("vary.{key}={value}")]);
    }
}

const CASES: &str = "link: {rtt: 1ms}
server: {command: [s]}
vary:
  clients.viewers.load.clients: [10, 20]
  cases:
    - {name: Frankfurt, set: {link.rtt: 17ms, link.loss: 0.1%}}
    - name: Singapore
      set: {link.rtt: 178ms, link.down: {rate: 20Mbps}}
";

#[test]
fn cases_are_combined_with_other_keys() {
    let series = series(CASES, &[]);
    assert_eq!(
        values(&series),
        [
            ["10", "Frankfurt"],
            ["10", "Singapore"],
            ["20", "Frankfurt"],
            ["20", "Singapore"]
        ]
    );
    assert_eq!(series.settings(0)[1].key, "case");
    let line = |run: usize| {
        let scenario = series.scenario(run).expect("it was checked");
        scenario.link.expect("it has one").line()
    };
    assert_eq!(line(2), "RTT 17ms, loss 0.1%");
    assert_eq!(line(3), "RTT 178ms, down: rate 20Mbps");
    let lines = series.lines().join("\n");
    assert!(
        lines.contains("varies: case: Frankfurt (link.rtt: 17ms, link.loss: 0.1%), Singapore"),
        "{lines}"
    );
    let text = format!("{BASE}{CASES}");
    let Plan::Run(one) = plan(&text, &["vary="]).expect("it can be") else {
        panic!("one run");
    };
    assert_eq!(one.link.expect("it has one").line(), "RTT 1ms");
}

#[test]
fn case_that_sets_nothing_is_the_scenario_as_it_is() {
    let text = "link: {rtt: 1ms}
server: {command: [s]}
vary: {cases: [{name: near, set: {}}, {name: far, set: {link.rtt: 17ms}}]}
";
    let series = series(text, &[]);
    let line = |run: usize| {
        let scenario = series.scenario(run).expect("it was checked");
        scenario.link.expect("it has one").line()
    };
    assert_eq!([line(0), line(1)], ["RTT 1ms", "RTT 17ms"]);
    let lines = series.lines().join("\n");
    assert!(
        lines.contains("varies: case: near, far (link.rtt: 17ms)"),
        "{lines}"
    );
}

#[test]
fn case_mistakes_are_reported_at_their_position() {
    for (vary, expected) in [
        ("vary: {cases: 3}", "must be a list of cases"),
        ("vary: {cases: []}", "must be a list of cases"),
        (
            "vary: {cases: [{set: {duration: 1s}}]}",
            "`name` is missing",
        ),
        ("vary: {cases: [{name: a}]}", "`set` is missing"),
        ("vary: {cases: [{name: a, set: 3}]}", "a mapping of keys"),
        (
            "vary: {cases: [{name: a, set: {settle: 1s}}]}",
            "`settle` cannot be varied",
        ),
        ("vary: {cases: [{name: a, sett: {}}]}", "unknown key `sett`"),
        (
            "vary: {cases: [{name: a, set: {duration: 1s}}, {name: a, set: {duration: 2s}}]}",
            "two cases have the name `a`",
        ),
        (
            "vary: {duration: [1s], cases: [{name: a, set: {duration: 1s}}]}",
            "`duration` is already varied with `duration`",
        ),
        (
            "vary: {cases: [{name: a, set: {clients.viewers: 1, clients.viewers.load: 1}}]}",
            "is already set with `clients.viewers`",
        ),
        (
            "vary: {cases: [{name: a, set: {duration: soon}}, {name: b, set: {duration: 9s}}]}",
            "s.yaml:3:42",
        ),
    ] {
        let text = refused(&format!("{vary}\n"), &[]);
        assert!(text.contains(expected), "{vary}: {text}");
    }
    let text = refused(
        "vary: {cases: [{name: a, set: {duration: 9s}}]}\n",
        &["duration=3s"],
    );
    assert!(
        text.contains("`duration` is varied, and also set here"),
        "{text}"
    );
}

//! Capacity searches: their keys, and the scenario of a trial.

use std::time::Duration;

use measure::capacity::{Method, ValueKind};
use scenario::{CapacitySearch, Overrides, Plan};

const BASE: &str = "clients: {viewers: {urls: [rtsp://h/a], load: {clients: 40, ramp: 4s}}}\n\
                    thresholds: [\"viewers.loss < 1%\"]\n";

fn plan(text: &str, set: &[&str]) -> Result<Plan, scenario::ScenarioError> {
    protocols::install();
    let overrides = Overrides {
        set: set.iter().map(|&set| set.to_owned()).collect(),
        ..Overrides::default()
    };
    Plan::parse("c.yaml", text, &overrides)
}

fn search(text: &str, set: &[&str]) -> CapacitySearch {
    match plan(text, set) {
        Ok(Plan::Capacity(search)) => *search,
        Ok(other) => panic!("it is no search: {other:?}"),
        Err(error) => panic!("{:?}", error.problems()),
    }
}

/// Formats the position, message and help of each problem.
fn refused(text: &str) -> String {
    let error = plan(text, &[]).expect_err("it is wrong");
    let problems = error.problems().iter();
    problems.map(|problem| format!("{problem:?}\n")).collect()
}

#[test]
fn search_begins_with_the_clients_of_the_only_population() {
    let search = search(&format!("{BASE}capacity:\n"), &[]);
    assert_eq!(search.key(), "clients.viewers.load.clients");
    let settings = search.settings();
    assert_eq!(
        (settings.from, settings.min, settings.max),
        (40, 1, 10_000_000)
    );
    assert_eq!((settings.sure, settings.within), (0.95, 0.1));
    assert_eq!(settings.hold, Duration::from_secs(30));
    assert_eq!(settings.budget, Duration::from_secs(1_800));
    assert_eq!(settings.method, Method::Interval);
    assert_eq!(search.combinations().runs(), 1);
    let bounded = self::search(&format!("{BASE}capacity: {{max: 20}}\n"), &[]);
    assert_eq!(bounded.settings().from, 20);
}

#[test]
fn warm_up_of_a_trial_covers_ramp_and_settling() {
    let search = search(
        &format!("{BASE}duration: 9s\ncapacity: {{hold: 20s}}\n"),
        &[],
    );
    let hold = search.settings().hold;
    let trial = search.scenario(0, 80, hold).expect("it is a scenario");
    assert_eq!(trial.populations[0].load.clients_max(), 80);
    // The last of 80 clients starts after 79 parts of 80 of the ramp.
    assert_eq!(trial.warm_up, Duration::from_millis(3_950 + 5_000));
    assert_eq!(trial.duration, Some(trial.warm_up + hold));
    assert!(trial.starts_in_warm_up);
    let varied = &trial.varied[0];
    assert_eq!(
        (varied.key.as_str(), varied.value.as_str()),
        (search.key(), "80")
    );
    assert!(trial.warnings().is_empty(), "{:?}", trial.warnings());
}

#[test]
fn quantities_are_loads() {
    let text = "clients: {viewers: {urls: [rtsp://h/a], load: {arrivals: 20/s, max_clients: 900}}}\n\
                thresholds: [\"viewers.loss < 1%\"]\n\
                capacity: {of: clients.viewers.load.arrivals, min: 1/s, max: 500/s, quick: true}\n";
    let search = search(text, &["capacity.from=25/s"]);
    assert_eq!(search.scale().kind, ValueKind::Frequency);
    let settings = search.settings();
    let text = |load| search.scale().text(load);
    assert_eq!(text(settings.from), "25/s");
    assert_eq!(
        (text(settings.min), text(settings.max)),
        ("1/s".into(), "500/s".into())
    );
    assert_eq!(settings.method, Method::Quick);
    let trial = search.scenario(0, settings.from * 2, settings.hold);
    let load = &trial.expect("it is a scenario").populations[0].load;
    assert!(format!("{load:?}").contains("per_second: 50.0"), "{load:?}");
}

#[test]
fn each_combination_is_searched() {
    let text =
        format!("{BASE}vary: {{clients.viewers.transport: [udp, tcp]}}\ncapacity: {{from: 8}}\n");
    let search = search(&text, &[]);
    assert_eq!(search.combinations().runs(), 2);
    let trial = search.scenario(1, 8, search.settings().hold);
    let varied = trial.expect("it is a scenario").varied;
    let values: Vec<&str> = varied
        .iter()
        .map(|setting| setting.value.as_str())
        .collect();
    assert_eq!(values, ["tcp", "8"]);
    assert!(matches!(plan(&text, &["capacity="]), Ok(Plan::Series(_))));
}

#[test]
fn wrong_searches_are_refused_at_their_position() {
    let two = "clients: {a: {urls: [rtsp://h/a], load: {clients: 1}}, b: {urls: [rtsp://h/b], load: {clients: 1}}}\n\
               thresholds: [\"a.loss < 1%\"]\n";
    let without = "clients: {viewers: {urls: [rtsp://h/a], load: {clients: 40}}}\n";
    for (text, position, message) in [
        (
            format!("{BASE}capacity: {{of: clients.viewers.transport, from: udp}}"),
            "3:49",
            "not a number or a quantity",
        ),
        (
            format!("{BASE}capacity: {{of: clients.viewers.latency}}"),
            "3:16",
            "no value of",
        ),
        (
            format!("{BASE}capacity: {{of: clients.viewers.urls}}"),
            "1:27",
            "not a number or a quantity",
        ),
        (
            format!("{BASE}capacity: {{from: 0}}"),
            "3:18",
            "not a number or a quantity",
        ),
        (
            format!("{BASE}capacity: {{min: 50, max: 20}}"),
            "3:17",
            "above the largest",
        ),
        (
            format!("{BASE}capacity: {{from: 10, min: 20}}"),
            "3:18",
            "not between",
        ),
        (
            format!("{BASE}capacity: {{max: 20s}}"),
            "3:17",
            "cannot be compared",
        ),
        (format!("{BASE}capacity: {{hold: 1s}}"), "3:18", "2s"),
        (format!("{BASE}capacity: {{sure: 100%}}"), "3:18", "99.9%"),
        (
            format!("{BASE}capacity: {{budget: 1m}}"),
            "3:20",
            "too short",
        ),
        (
            format!("{BASE}capacity: {{of: duration, from: 3s}}"),
            "3:16",
            "chosen by the search",
        ),
        (
            format!("{BASE}capacity: {{of: vary}}"),
            "3:16",
            "cannot be varied",
        ),
        (
            format!("{BASE}capacity: {{of: stop_timeout, from: 3s, continue: true}}"),
            "3:50",
            "not a number of clients",
        ),
        (format!("{BASE}capacity: {{off: 3}}"), "3:12", "unknown key"),
        (format!("{BASE}capacity: 5"), "3:11", "mapping"),
        (
            format!("{without}capacity: {{}}"),
            "2:1",
            "needs thresholds",
        ),
        (
            format!("{two}capacity: {{}}"),
            "3:1",
            "several populations (a, b)",
        ),
        (
            format!("{BASE}vary: {{clients.viewers.load.clients: [1, 2]}}\ncapacity: {{}}"),
            "4:1",
            "also varied",
        ),
        (
            format!("{BASE}vary: {{seed: [1, 2]}}\nfind: seed\ncapacity: {{}}"),
            "4:1",
            "two searches",
        ),
        (
            format!("{BASE}capacity: {{}}\nstop_at: fail"),
            "4:1",
            "trials that fail",
        ),
        (
            format!("{BASE}capacity: {{}}\ncapacity: {{}}"),
            "4:1",
            "duplicate key",
        ),
        (
            format!("{BASE}capacity: {{from: 20000000}}"),
            "3:18",
            "not between",
        ),
    ] {
        let problems = refused(&text);
        let is_there =
            problems.contains(&format!("c.yaml:{position}")) && problems.contains(message);
        assert!(
            is_there,
            "{text}\nhas, instead of {position} {message}:\n{problems}"
        );
        assert_eq!(problems.lines().count(), 1, "{text}\n{problems}");
    }
}

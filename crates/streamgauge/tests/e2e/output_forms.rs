//! What is printed, in the form that is asked for: with colours or without, as data.

use serde_json::Value;

use crate::support::{Process, RUN_WITHIN, folder, run, streamgauge};

/// Whether an error is coloured, with these arguments and this environment.
fn coloured(arguments: &[&str], environment: &[(&str, &str)]) -> bool {
    let folder = folder();
    let mut command = streamgauge(["report", "missing.run"]);
    command
        .args(arguments)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE");
    command
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let finished = Process::start(command, folder.path())
        .finish(RUN_WITHIN)
        .expect(104);
    finished.stderr.contains('\u{1b}')
}

#[test]
fn colours_are_where_they_are_asked_for() {
    let (no, force) = (("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1"));
    // Nobody looks at a file.
    assert!(!coloured(&[], &[]));
    assert!(coloured(&["--color", "always"], &[]));
    assert!(coloured(&["--color=always"], &[no]));
    assert!(coloured(&[], &[force]));
    assert!(!coloured(&[], &[no, force]));
    assert!(!coloured(&["--color", "never"], &[force]));
    assert!(!coloured(&["--no-color"], &[force]));
    let folder = folder();
    run(folder.path(), ["metrics", "--color", "sometimes"])
        .expect(104)
        .names("always");
}

fn metrics(arguments: &[&str]) -> Value {
    let folder = folder();
    let finished = run(folder.path(), arguments).expect(0);
    serde_json::from_str(&finished.stdout).expect("it is JSON")
}

#[test]
fn metrics_can_be_had_as_data() {
    let all = metrics(&["metrics", "--json"]);
    assert_eq!(all["metrics_version"], 1);
    let subjects = all["subjects"].as_array().expect("a list");
    let named = |metric: &Value| {
        assert!(metric["name"].is_string() && metric["unit"].is_string());
        let definition = metric["definition"].as_str().expect("a text");
        assert!(!definition.is_empty(), "{metric}");
    };
    for subject in subjects {
        subject["metrics"]
            .as_array()
            .expect("a list")
            .iter()
            .for_each(named);
    }
    let rtsp = subjects
        .iter()
        .find(|subject| subject["protocol"] == "rtsp");
    let rtsp = rtsp.expect("it is a protocol");
    assert_eq!(rtsp["subject"], "population");
    let found = |name: &str| {
        let metrics = rtsp["metrics"].as_array().expect("a list");
        metrics
            .iter()
            .find(|metric| metric["name"] == name)
            .expect("it is measured")
    };
    assert_eq!(found("received")["kind"], "counter");
    assert_eq!(found("loss")["kind"], "derived");
    assert_eq!(found("loss")["unit"], "ratio");
    assert_eq!(found("active")["kind"], "level");
    let delay = found("startup_delay");
    assert_eq!(delay["kind"], "distribution");
    assert_eq!(delay["unit"], "seconds");
    assert_eq!(
        delay["statistics"],
        serde_json::json!(["mean", "min", "max", "percentiles", "count"])
    );
    for name in ["server", "tester"] {
        let alone = subjects.iter().filter(|subject| subject["subject"] == name);
        assert_eq!(alone.count(), 1, "{name}");
    }

    let some = metrics(&["metrics", "jitter", "--json"]);
    let text = some.to_string();
    assert!(
        text.contains("jitter") && !text.contains("startup_delay"),
        "{text}"
    );
    let folder = folder();
    run(folder.path(), ["metrics", "nonsense", "--json"])
        .expect(104)
        .names("no metric has `nonsense`");
}

#[test]
fn metrics_are_folded_between_words_and_name_their_source() {
    let folder = folder();
    let listed = run(folder.path(), ["metrics"]).expect(0).stdout;
    assert!(listed.contains("\n      Source: RFC 3550, 6.4.1 and A.8\n"));
    let wide = listed.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);
}

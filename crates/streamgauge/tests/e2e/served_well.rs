//! Viewers that were served well: each injected fault spoils exactly its own viewers, and the
//! counts of several workers and runners add up.

use std::fs;

use serde_json::Value;

use crate::support::{Process, RUN_TIMEOUT, Report, Server, folder, have, number, streamgauge};

/// Viewers of each server.
const EACH: u64 = 3;

/// Plays from servers with one fault each. Bounds are so far from the faults that it does not
/// matter how busy the machine is.
fn judged(settings: &str, arguments: &[&str]) -> Report {
    let folder = folder();
    let media = ["--length", "4s", "--bitrate", "400kbps", "--seed", "5"];
    let with = |fault: &[&str]| {
        let mut all = media.to_vec();
        all.extend(fault.iter().flat_map(|fault| ["--fault", fault]));
        Server::start(folder.path(), &all)
    };
    let servers = [
        with(&[]),
        with(&["refuse=setup:461"]),
        with(&["slow=play:9s"]),
        with(&["loss=20%"]),
    ];
    let frozen = with(&["stall=1s+2s"]);
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let scenario = format!(
        "clients:
  viewers:
    urls: {urls:?}
    pick: in_turn
    leave: at_end
    end_silence: 10s
    playout_buffer: 60s
    served_well: {{start: 6s, loss: 5%}}
    load: {{clients: {viewers}}}
  frozen:
    urls: [{frozen:?}]
    leave: at_end
    end_silence: 10s
    playout_buffer: 100ms
    served_well: {{start: 60s, loss: 100%}}
    load: {{clients: {EACH}}}
thresholds:
  - viewers.served_well >= 25%
  - viewers.served_well > 25%
  - frozen.served_well == 0%
  - frozen.viewers_stalled == {EACH}
  - viewers.failed <= {EACH}
{settings}
",
        viewers = 4 * EACH,
        frozen = frozen.url(),
    );
    fs::write(folder.path().join("test.yaml"), scenario).expect("the test's folder can be written");
    let mut all = vec!["run", "test.yaml", "--json", "out.json"];
    all.extend(arguments);
    Process::start(streamgauge(all), folder.path())
        .finish(RUN_TIMEOUT)
        .expect(99);
    Report::read(&folder.path().join("out.json"))
}

#[track_caller]
fn assert_exact(report: &Report) {
    report.tester_was_fit();
    let populations = &report.0["populations"];
    let count = |of: &str, name: &str| number(&populations[of]["metrics"][name]);
    for (name, viewers, frozen) in [
        ("viewers_judged", 4 * EACH, EACH),
        ("viewers_served_well", EACH, 0),
        ("viewers_served_badly", 3 * EACH, EACH),
        ("viewers_failed", EACH, 0),
        ("viewers_started_late", EACH, 0),
        ("viewers_stalled", 0, EACH),
        ("viewers_with_loss", EACH, 0),
    ] {
        let found = (count("viewers", name), count("frozen", name));
        assert_eq!(found, (viewers, frozen), "{name}: {populations}");
    }
    let results = report.0["thresholds"].as_array();
    let passed = |text: &str| -> Option<bool> {
        let mut all = results.iter().flat_map(|all| all.iter());
        all.find(|one| one["threshold"] == text)?["passed"].as_bool()
    };
    assert_eq!(passed("viewers.served_well >= 25%"), Some(true));
    assert_eq!(passed("viewers.served_well > 25%"), Some(false));
    assert_eq!(passed("frozen.served_well == 0%"), Some(true));
    assert_eq!(passed("frozen.viewers_stalled == 3"), Some(true));
    let share: &Value = report.metric("served_well");
    assert_eq!(share.as_f64(), Some(0.25));
}

#[test]
fn each_fault_spoils_its_own_viewers() {
    // Refused clients end in the warm-up, and count.
    assert_exact(&judged("workers: 3\nwarm_up: 1s", &[]));
}

#[test]
fn viewers_of_several_runners_add_up() {
    if have("nats-server") {
        assert_exact(&judged("", &["--runners", "local:2"]));
    }
}

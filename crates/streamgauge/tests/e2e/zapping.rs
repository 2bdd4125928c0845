//! Clients that change channel, and what a relay releases after they have left.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::namespace::Namespace;
use crate::support::{Finished, Process, RUN_TIMEOUT, Report, folder, number, streamgauge};

/// Number of channel changes per client.
const CHANGES: u64 = 3;

/// Runs this many clients, each of which changes channel [`CHANGES`] times among four, against the
/// reference relay with these faults. Returns `None` if no namespace can be made.
fn zap(clients: u64, faults: &[&str], folder: &Path) -> Option<(Report, Finished)> {
    let namespace = Namespace::with_multicast()?;
    let faults: String = faults
        .iter()
        .map(|fault| format!(", --fault, {fault}"))
        .collect();
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let scenario = format!(
        "
server:
  command: [{program}, serve, http-ts, --quiet, --interface, lo, --port, \"8080\"{faults}]
  ready: {{ port: 8080 }}
  linger: 6s
clients:
  viewers:
    urls: [\"http://127.0.0.1:8080/udp/239.81.0.{{1..4}}:4056\"]
    pick: in_turn
    zap: {{ every: 4s, count: {CHANGES} }}
    load: {{ clients: {clients} }}
thresholds: [\"server.groups_kept == 0\", \"server.file_descriptors_kept <= 1\"]
"
    );
    fs::write(folder.join("scenario.yaml"), scenario).expect("the folder can be written");
    let mut send = streamgauge(["send", "--quiet", "--interface", "lo", "-b", "2Mbps"]);
    send.arg("udp://239.81.0.{1..4}:4056");
    let source = Process::start(namespace.within(&send), folder);
    let run = streamgauge(["run", "scenario.yaml", "--quiet", "--json", "out.json"]);
    let finished = Process::start(namespace.within(&run), folder).finish(RUN_TIMEOUT);
    source.signal("INT");
    source.finish(RUN_TIMEOUT);
    Some((Report::read(&folder.join("out.json")), finished))
}

fn held(report: &Report, what: &str) -> [u64; 3] {
    let held: &Value = &report.0["server_gave_back"][what];
    ["before", "peak", "after"].map(|when| number(&held[when]))
}

#[test]
fn zaps_are_counted_and_an_honest_relay_releases_all() {
    let folder = folder();
    let Some((report, finished)) = zap(4, &[], folder.path()) else {
        return;
    };
    finished.expect(0);
    report.tester_was_fit();
    let metric = |name: &str| number(report.metric(name));
    assert_eq!(
        (report.clients("stopped"), report.clients("failed")),
        (4, 0)
    );
    assert_eq!(
        (
            metric("zaps"),
            metric("zaps_failed"),
            metric("zaps_unfinished")
        ),
        (4 * CHANGES, 0, 0)
    );
    for name in ["zap_delay", "zap_first_byte_delay"] {
        let delay = report.metric(name);
        assert_eq!(number(&delay["count"]), 4 * CHANGES, "{name}: {delay}");
        assert!(
            delay["max"].as_f64().is_some_and(|max| max < 4.0),
            "{delay}"
        );
    }
    assert_eq!(number(&report.metric("random_access_delay")["count"]), 4);
    assert_eq!(
        (
            report.counts().lost,
            metric("foreign"),
            metric("continuity_errors")
        ),
        (0, 0, 0)
    );
    assert_eq!(held(&report, "groups"), [0, 4, 0]);
    let [before, peak, after] = held(&report, "file_descriptors");
    assert!(
        after <= before + 1 && peak >= before + 4,
        "{before} {peak} {after}"
    );
    let within = &report.0["server"]["groups_left_within"]["max"];
    assert!(
        within.as_f64().is_some_and(|within| within < 5.0),
        "{within}"
    );
}

#[test]
fn relay_that_keeps_groups_and_sockets_is_detected() {
    let folder = folder();
    let Some((report, finished)) = zap(4, &["keep-groups", "keep-files"], folder.path()) else {
        return;
    };
    finished.expect(99);
    assert_eq!(number(report.metric("zaps_failed")), 0);
    assert_eq!(held(&report, "groups"), [0, 4, 4]);
    let gave_back = &report.0["server_gave_back"];
    assert_eq!(number(&gave_back["groups_kept"]), 4);
    assert!(gave_back["groups_left_within"].is_null(), "{gave_back}");
    assert_eq!(gave_back["kept"][0], "239.81.0.1");
    // Two for each time that a client left a channel.
    let [before, _, after] = held(&report, "file_descriptors");
    assert!(after >= before + 2 * 4 * (CHANGES + 1), "{before} {after}");
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(
        reasons.contains("groups_kept") && reasons.contains("file_descriptors_kept"),
        "{reasons}"
    );
}

#[test]
fn datagrams_of_the_previous_channel_are_counted() {
    let folder = folder();
    let Some((report, finished)) = zap(1, &["old-channel=20"], folder.path()) else {
        return;
    };
    // The run has no threshold, but datagrams of another channel are wrong content.
    finished.expect(99);
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(reasons.contains(".wrong <= 0.1%"), "{reasons}");
    let metric = |name: &str| number(report.metric(name));
    assert_eq!(
        (metric("old_channel"), metric("foreign")),
        (20 * CHANGES, 20 * CHANGES)
    );
    assert_eq!((metric("zaps"), metric("zaps_failed")), (CHANGES, 0));
    assert_eq!((report.counts().lost, metric("continuity_errors")), (0, 0));
}

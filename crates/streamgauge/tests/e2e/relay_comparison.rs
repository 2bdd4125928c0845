//! Series that compare relays: a relay that serves too little or the wrong media wins nothing,
//! whatever resources it saves that way.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::namespace::Namespace;
use crate::support::{Finished, Process, RUN_TIMEOUT, folder, number, streamgauge, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a namespace in which a source sends to a group.
fn sent_to(folder: &Path) -> Option<(Namespace, Process)> {
    let namespace = Namespace::with_multicast()?;
    let send = "send udp://239.81.0.1:4056 --interface lo -b 4Mbps -d 120s";
    let source = Process::start(namespace.within(&streamgauge(send.split(' '))), folder);
    Some((namespace, source))
}

/// Returns the command of a reference relay with these arguments, in the syntax of scenarios.
fn relay(arguments: &str) -> String {
    let program = env!("CARGO_BIN_EXE_streamgauge");
    format!("[{program}, serve, http-ts, --interface, lo, --port, \"8080\"{arguments}]")
}

/// Runs eight clients against one relay after the other.
fn compare(namespace: &Namespace, folder: &Path, relays: &[&str], more: &str) -> Finished {
    let list: Vec<String> = relays.iter().map(|arguments| relay(arguments)).collect();
    let text = format!(
        "name: relays\nduration: 6s\nsettle: 0s\n\
         server:\n  command: {}\n  ready: {{port: 8080}}\n\
         clients:\n  viewers:\n    protocol: http-ts\n    urls: [\"http://127.0.0.1:8080/udp/239.81.0.1:4056\"]\n    \
         load: {{clients: 8}}\nvary:\n  server.command:\n    - {}\n{more}",
        list[0],
        list.join("\n    - ")
    );
    fs::write(folder.join("s.yaml"), text).expect("the test's folder can be written");
    let arguments = [
        "run", "s.yaml", "--quiet", "--out", "x.series", "--json", "x.json",
    ];
    Process::start(namespace.within(&streamgauge(arguments)), folder).finish(RUN_TIMEOUT)
}

fn report(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("x.json")).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

fn best(row: &Value) -> Vec<&str> {
    let names = row["best"].as_array().expect("a list");
    names.iter().filter_map(Value::as_str).collect()
}

#[test]
fn relay_with_wrong_or_missing_media_wins_nothing() {
    let folder = folder();
    let Some((namespace, _source)) = sent_to(folder.path()) else {
        return;
    };
    let relays = ["", ", --fault, replace=20%", ", --max-clients, \"5\""];
    // The scenario has no threshold: relays that win nothing fail anyway, although clients were
    // refused in the warm-up.
    compare(&namespace, folder.path(), &relays, "warm_up: 1s\n").expect(99);
    let report = report(folder.path());
    let rows = &report["runs"];
    let words = [0, 1, 2].map(|at| {
        let row = &rows[at];
        let word = row["out_of_contest"].as_str().unwrap_or("in");
        (row["outcome"].as_str(), word.to_owned())
    });
    assert_eq!(words[0], (Some("pass"), "in".to_owned()), "{rows}");
    assert_eq!(
        words[2],
        (Some("fail"), "refused 3 of 8".to_owned()),
        "{rows}"
    );
    assert_eq!(words[1].0, Some("fail"));
    assert!(words[1].1.ends_with(" % lost"), "{words:?}");
    let served = [0, 1, 2].map(|at| {
        let figures = &rows[at]["figures"];
        (number(&figures["served"]), number(&figures["asked"]))
    });
    assert_eq!(served, [(8, 8), (0, 8), (5, 8)]);
    // The honest relay is the best wherever the others differ, although the last one has less to
    // do.
    let honest = best(&rows[0]);
    for name in ["served", "loss", "duplicated", "server_cpu"] {
        assert!(honest.contains(&name), "{name}: {rows}");
    }
    for at in [1, 2] {
        assert!(best(&rows[at]).is_empty(), "{rows}");
    }
    for (at, reason) in [
        (1, "viewers.wrong <= 0.1%"),
        (2, "3 of 8 clients failed: 503"),
    ] {
        let reasons = rows[at]["reasons"].to_string();
        assert!(reasons.contains(reason), "{reasons}");
    }
    let columns = &rows[0]["figures"]["columns"];
    assert!(columns["datagram_delay_p99"].is_number(), "{columns}");
    assert!(columns["continuity_errors"].is_null(), "{columns}");

    let arguments = ["report", "x.series"];
    let shown = Process::start(streamgauge(arguments), folder.path()).finish(PATIENCE);
    let shown = shown.expect(0).stdout;
    for part in ["FAIL, refused 3 of 8", "8 of 8*", "5 of 8 ", "0 of 8 "] {
        assert!(shown.contains(part), "no `{part}` in:\n{shown}");
    }
}

#[test]
fn allowed_failures_pass_but_win_nothing() {
    let folder = folder();
    let Some((namespace, _source)) = sent_to(folder.path()) else {
        return;
    };
    let relays = ["", ", --max-clients, \"5\""];
    let allowed = "thresholds: [\"viewers.failed <= 3\"]\n";
    compare(&namespace, folder.path(), &relays, allowed).expect(0);
    let report = report(folder.path());
    let [honest, other] = [0, 1].map(|at| &report["runs"][at]);
    assert_eq!(other["outcome"], "pass");
    assert_eq!(other["out_of_contest"], "refused 3 of 8");
    assert!(best(other).is_empty() && !best(honest).is_empty());
}

#[test]
fn left_over_relay_on_the_port_is_not_measured() {
    let folder = folder();
    let Some((namespace, _source)) = sent_to(folder.path()) else {
        return;
    };
    let start = |port: &str| {
        let serve = ["serve", "http-ts", "--interface", "lo", "--port", port];
        let relay = Process::start(namespace.within(&streamgauge(serve)), folder.path());
        let bound = format!(":{:04X} ", port.parse::<u16>().expect("a port"));
        wait_for("the relay listens", PATIENCE, || {
            let rows = namespace.table("tcp");
            let listens = |row: &str| row.contains(&bound) && row.contains(" 0A ");
            rows.lines().any(listens).then_some(())
        });
        relay
    };
    // The left-over relay serves, while the observed one is idle.
    let (_left_over, idle) = (start("8080"), start("8081"));
    let load = format!(
        "load http://127.0.0.1:8080/udp/239.81.0.1:4056 -c 2 -d 2s --pid {} --quiet",
        idle.id()
    );
    let load = namespace.within(&streamgauge(load.split(' ')));
    let finished = Process::start(load, folder.path()).finish(RUN_TIMEOUT);
    finished.expect(110);
    // A relay that is to be launched on this port cannot start.
    let finished = compare(&namespace, folder.path(), &["", ", --chunked"], "").expect(104);
    let report = report(folder.path());
    for at in [0, 1] {
        assert_eq!(report["runs"][at]["outcome"], "not_begun");
        let reasons = report["runs"][at]["reasons"].to_string();
        assert!(reasons.contains("8080"), "{reasons} {finished:?}");
    }
}

#[test]
fn remultiplexer_is_compared_by_known_figures_only() {
    let folder = folder();
    // Prints itself why there is no namespace.
    if Namespace::with_multicast().is_none() {
        return;
    }
    let groups = "\"rtp://239.81.0.{1..2}:4056\"";
    let text = format!(
        "name: relays\nduration: 12s\nsettle: 0s\nnetwork: loopback\n\
         sources:\n  channels: {{to: [{groups}], bitrate: 4Mbps}}\n\
         server: {{launch: vlc-relay}}\n\
         clients:\n  viewers:\n    protocol: http-ts\n    \
         urls: [\"http://{{server}}:8080/rtp/239.81.0.{{1..2}}:4056\"]\n    pick: own\n    load: {{clients: 2}}\n\
         vary:\n  server:\n    - {{launch: vlc-relay, port: 8080, groups: [{groups}]}}\n    \
         - {{command: {}, ready: {{port: 8080}}}}\n",
        relay("")
    );
    fs::write(folder.path().join("s.yaml"), text).expect("the test's folder can be written");
    let arguments = [
        "run", "s.yaml", "--quiet", "--out", "x.series", "--json", "x.json",
    ];
    Process::start(streamgauge(arguments), folder.path()).finish(RUN_TIMEOUT);
    let report = report(folder.path());
    let [vlc, reference] = [0, 1].map(|at| &report["runs"][at]["figures"]);
    for relay in [vlc, reference] {
        let served = (number(&relay["served"]), number(&relay["asked"]));
        assert_eq!(served, (2, 2), "{report}");
    }
    // VLC makes a stream of its own, so losses of the original stream are unknown.
    assert!(vlc["loss"].is_null() && vlc["wrong"].is_null(), "{vlc}");
    // VLC may lose some packets on a busy machine.
    let errors = &vlc["columns"]["continuity_errors"];
    assert!(errors.is_number(), "{vlc}");
    let picture = &vlc["columns"]["random_access_delay_p50"];
    assert!(picture.as_f64().is_some_and(|delay| delay > 0.0), "{vlc}");
    assert_eq!(reference["loss"].as_f64(), Some(0.0), "{reference}");
    assert!(reference["columns"]["continuity_errors"].is_null());
    let delay = &reference["columns"]["datagram_delay_p99"];
    assert!(delay.is_number(), "{reference}");
}

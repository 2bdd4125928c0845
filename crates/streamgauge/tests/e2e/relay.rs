//! `streamgauge serve http-ts`: HTTP clients get what was sent to the group, with the faults that
//! were asked for.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::mediagen::ts::packet::{Header, PACKET_LEN};
use kit::mediagen::ts::stamp::Stamp;
use serde_json::Value;

use crate::namespace::Namespace;
use crate::support::{
    Finished, Process, RUN_TIMEOUT, Report, folder, have, number, streamgauge, wait_for,
};

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// 200 datagrams a second to each group: few enough that the relay's sockets hold those of some
/// seconds, if a busy machine interrupts it.
const RATE: &str = "2105600bps";

/// Number of datagrams that a client asks for.
const WANTED: usize = 800;

/// Bytes of a datagram.
const DATAGRAM: usize = 7 * PACKET_LEN;

/// A relay, and a source that sends to its groups, in a namespace.
struct Relayed {
    namespace: Namespace,
    relay: Process,
    source: Process,
}

impl Relayed {
    fn new(folder: &Path, groups: &[&str], arguments: &[&str]) -> Option<Relayed> {
        let namespace = Namespace::with_multicast()?;
        let mut serve = streamgauge(["serve", "http-ts", "--report", "relayed.jsonl"]);
        serve.args(arguments);
        let mut relay = Process::start(namespace.within(&serve), folder);
        wait_for("the relay listens", PATIENCE, || {
            assert!(relay.runs(), "{}", relay.stderr_text());
            // Port 8080, and the state LISTEN (linux/include/net/tcp_states.h).
            let rows = namespace.table("tcp");
            rows.lines()
                .any(|row| row.contains(":1F90 ") && row.contains(" 0A "))
                .then_some(())
        });
        let mut send = streamgauge(["send", "--interface", "lo", "-b", RATE, "-d", "300s"]);
        send.args(groups);
        let source = Process::start(namespace.within(&send), folder);
        Some(Relayed {
            namespace,
            relay,
            source,
        })
    }

    /// Starts a client that writes this many bytes of the body to a file.
    fn get(&self, path: &str, bytes: usize, to: &str, folder: &Path) -> Process {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/get.py");
        let mut python = Command::new("python3");
        let url = format!("http://127.0.0.1:8080{path}");
        python.args([program, &url, &bytes.to_string(), to]);
        Process::start(self.namespace.within(&python), folder)
    }

    /// Stops the source and the relay. Returns the relay's report about its connections, by
    /// requested target.
    fn stop(self, folder: &Path) -> HashMap<String, Value> {
        self.source.signal("INT");
        self.source.finish(PATIENCE);
        self.relay.signal("INT");
        self.relay.finish(PATIENCE).expect(0);
        let report = fs::read_to_string(folder.join("relayed.jsonl")).expect("it was written");
        let lines = report.lines().map(|line| {
            let line: Value = serde_json::from_str(line).expect("a line of JSON each");
            (line["target"].as_str().unwrap_or("all").to_owned(), line)
        });
        lines.collect()
    }
}

/// Returns the numbers of the stamps in a stream of whole packets.
fn numbers(stream: &[u8], group: &str) -> Vec<u64> {
    let packets = stream.as_chunks::<PACKET_LEN>().0.iter();
    let stamps = packets.filter_map(|packet| {
        Header::parse(packet).expect("whole packets, one after the other");
        Stamp::read(packet)
    });
    stamps
        .map(|stamp| {
            assert_eq!(stamp.group.to_string(), group);
            stamp.number
        })
        .collect()
}

#[test]
fn clients_get_every_datagram_of_their_group() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    for framing in [&[][..], &["--chunked"]] {
        let groups = ["udp://239.81.0.1:4056", "rtp://239.81.0.2:4058"];
        let Some(relayed) = Relayed::new(folder.path(), &groups, framing) else {
            return;
        };
        let asked = [
            ("/udp/239.81.0.1:4056", "239.81.0.1:4056", "one"),
            ("/udp/239.81.0.1:4056?again", "239.81.0.1:4056", "two"),
            ("/rtp/239.81.0.2:4058", "239.81.0.2:4058", "three"),
        ];
        let clients =
            asked.map(|(path, _, file)| relayed.get(path, WANTED * DATAGRAM, file, folder.path()));
        for client in clients {
            let finished = client.finish(PATIENCE).expect(0);
            assert_eq!(finished.stdout.trim(), "200");
        }
        let report = relayed.stop(folder.path());
        for (path, group, file) in asked {
            let stream = fs::read(folder.path().join(file)).expect("it was written");
            let numbers = numbers(&stream, group);
            assert_eq!(numbers.len(), WANTED);
            assert!(
                numbers.is_sorted_by(|one, next| one + 1 == *next),
                "{numbers:?}"
            );
            let line = &report[path];
            assert!(number(&line["passed_on"]) >= WANTED as u64, "{line}");
            assert_eq!(number(&line["passed_on"]), number(&line["datagrams"]));
        }
        let all = &report["all"]["relayed"];
        assert_eq!(
            (number(&all["served"]), number(&all["lost_at_sockets"])),
            (3, 0)
        );
    }
}

#[test]
fn replacing_fault_and_limit_of_clients_are_applied() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    let faults = ["--fault", "replace=5%", "--max-clients", "1"];
    let Some(relayed) = Relayed::new(folder.path(), &["udp://239.81.0.1:4056"], &faults) else {
        return;
    };
    let path = "/udp/239.81.0.1:4056";
    // Keeps the first client connected until the second has been refused.
    const MANY: usize = 4 * WANTED;
    let served = relayed.get(path, MANY * DATAGRAM, "served", folder.path());
    wait_for("the first to be served", PATIENCE, || {
        fs::metadata(folder.path().join("served")).ok()
    });
    let refused = relayed.get("/udp/239.81.0.1:4056?second", 1, "refused", folder.path());
    assert_eq!(refused.finish(PATIENCE).expect(0).stdout.trim(), "503");
    served.finish(PATIENCE).expect(0);
    let report = relayed.stop(folder.path());
    let stream = fs::read(folder.path().join("served")).expect("it was written");
    // As many datagrams as without a fault, some of them twice.
    let numbers = numbers(&stream, "239.81.0.1:4056");
    assert_eq!(numbers.len(), MANY);
    let twice = numbers.windows(2).filter(|two| two[0] == two[1]).count() as u64;
    let line = &report[path];
    assert!(
        twice > 0 && twice <= number(&line["sent_twice"]),
        "{twice}, {line}"
    );
    assert_eq!(number(&line["sent_twice"]), number(&line["left_out"]));
    assert_eq!(
        number(&report["/udp/239.81.0.1:4056?second"]["status"]),
        503
    );
}

/// Runs clients against the relay, in its namespace. Returns their report and the end of the run.
fn play(relayed: &Relayed, clients: &str, folder: &Path) -> (Report, Finished) {
    let url = "http://127.0.0.1:8080/udp/239.81.0.1:4056";
    let mut load = streamgauge(["load", url, "-c", clients, "-d", "8s", "--json", "out.json"]);
    load.arg("--quiet");
    let finished = Process::start(relayed.namespace.within(&load), folder).finish(RUN_TIMEOUT);
    (Report::read(&folder.join("out.json")), finished)
}

/// Returns the relay's report about the connections that it served.
fn served_reports(folder: &Path) -> Vec<Value> {
    let report = fs::read_to_string(folder.join("relayed.jsonl")).expect("it was written");
    let lines = report
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON each"));
    lines.filter(|line: &Value| line["status"] == 200).collect()
}

#[test]
fn wrong_content_is_detected_despite_the_right_length() {
    let folder = folder();
    for (fault, hides) in [("replace=5%", true), ("lose=5%", false)] {
        let faults = ["--fault", fault];
        let group = ["udp://239.81.0.1:4056"];
        let Some(relayed) = Relayed::new(folder.path(), &group, &faults) else {
            return;
        };
        let (report, finished) = play(&relayed, "2", folder.path());
        // It fails although the run has no threshold.
        finished.expect(99);
        relayed.stop(folder.path());
        let reports = served_reports(folder.path());
        assert_eq!(reports.len(), 2);
        let sum = |key: &str| reports.iter().map(|line| number(&line[key])).sum::<u64>();
        let counts = report.counts();
        // A receiver cannot know of datagrams that were left out before the first or after the last
        // that it received. It also misses those in flight when it left, here at most those of the
        // last two and a half seconds, in which a busy relay may not notice that it left.
        let near = |seen: u64, done: u64, few| seen <= done && seen + few >= done;
        let (received, passed_on) = (counts.received, sum("passed_on"));
        assert!(near(received, passed_on, 1000), "{counts:?} {reports:?}");
        for (seen, done) in [
            (counts.lost, sum("left_out")),
            (counts.duplicated, sum("sent_twice")),
        ] {
            assert!(near(seen, done, 100), "{counts:?} {reports:?}");
        }
        assert!(
            counts.lost > 50 && (counts.duplicated > 50) == hides,
            "{counts:?}"
        );
        assert_eq!(number(report.metric("foreign")), 0);
    }
}

#[test]
fn refused_clients_do_not_count_as_served() {
    let folder = folder();
    let limit = ["--max-clients", "3"];
    let Some(relayed) = Relayed::new(folder.path(), &["udp://239.81.0.1:4056"], &limit) else {
        return;
    };
    let (report, finished) = play(&relayed, "8", folder.path());
    finished.expect(99);
    relayed.stop(folder.path());
    assert_eq!(
        (report.clients("failed"), report.clients("stopped")),
        (5, 3)
    );
    assert_eq!(report.failures("status_503"), 5);
    assert_eq!(report.counts().lost, 0);
}

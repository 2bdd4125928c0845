//! Multicast between two network namespaces: one copy on the wire serves all clients, and each
//! client is measured.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::namespace::Namespace;
use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, have, number, run, streamgauge, wait_for,
};

/// Number of clients that play at a time.
const CLIENTS: u64 = 8;

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two namespaces, connected by a virtual cable.
struct Cable {
    server: Namespace,
    clients: Namespace,
}

impl Cable {
    fn new() -> Option<Cable> {
        let (Some(server), Some(clients)) = (Namespace::new(), Namespace::new()) else {
            // Printed on purpose: readers of the test's output must know.
            let why = "making a network namespace needs the capability CAP_SYS_ADMIN";
            let _ = writeln!(std::io::stderr(), "left out: {why}");
            return None;
        };
        server.ip("link set lo up");
        clients.ip("link set lo up");
        let peer = clients.id();
        server.ip(&format!(
            "link add cable type veth peer name cable netns {peer}"
        ));
        for (end, number) in [(&server, 1), (&clients, 2)] {
            end.ip(&format!("address add 10.81.0.{number}/24 dev cable"));
            end.ip(&format!(
                "address add 2001:db8:81::{number}/64 dev cable nodad"
            ));
            end.ip("link set cable up");
        }
        // For servers that leave the choice of the interface to the routes.
        server.ip("route add 224.0.0.0/4 dev cable");
        Some(Cable { server, clients })
    }

    /// Waits until both ends are ready for IPv6: the kernel first checks that their link-local
    /// addresses are unique (RFC 4862, 5.4).
    fn settle_ipv6(&self) {
        const TENTATIVE: u32 = 0x40;
        for end in [&self.server, &self.clients] {
            wait_for("the addresses of the link", PATIENCE, || {
                let table = end.table("if_inet6");
                let own = table
                    .lines()
                    .find(|row| row.starts_with("fe80") && row.ends_with("cable"));
                let flags = own?.split_whitespace().nth(4)?;
                let flags = u32::from_str_radix(flags, 16).ok()?;
                (flags & TENTATIVE == 0).then_some(())
            });
        }
    }

    /// Starts a server and waits until it listens on port 8554.
    fn serve(&self, command: &Command, folder: &Path) -> Process {
        let mut process = Process::start(self.server.within(command), folder);
        wait_for("the server listens", PATIENCE, || {
            assert!(
                process.runs(),
                "the server ended: {}",
                process.stderr_text()
            );
            let tables = [self.server.table("tcp"), self.server.table("tcp6")];
            let listens = tables.iter().any(|table| {
                let mut rows = table.lines().map(|row| row.split_whitespace());
                rows.any(|mut row| {
                    let local = row.nth(1).unwrap_or_default();
                    local.ends_with(":216A") && row.nth(1) == Some("0A")
                })
            });
            listens.then_some(())
        });
        process
    }

    /// Returns the number of packets that have arrived at the clients' end.
    fn arrived(&self) -> u64 {
        let table = self.clients.table("dev");
        let row = table
            .lines()
            .find_map(|row| row.trim().strip_prefix("cable:"));
        let packets = row.and_then(|row| row.split_whitespace().nth(1));
        packets
            .and_then(|count| count.parse().ok())
            .expect("the cable is there")
    }

    fn load(&self, url: &str, more: &[&str], folder: &Path) -> Process {
        let clients = CLIENTS.to_string();
        let mut load = streamgauge(["load", url, "-c", &clients, "--transport", "multicast"]);
        load.args(["--json", "load.json"]).args(more);
        // A pause of the server near the end of its media is not the end.
        load.env("STREAMGAUGE_CLIENTS__VIEWERS__END_SILENCE", "10s");
        Process::start(self.clients.within(&load), folder)
    }
}

/// Plays a stream of the reference server with faults to its end. Meanwhile, a table of the kernel
/// must contain `joined`.
fn one_copy_serves_all(group: &str, server: &str, host: &str, (table, joined): (&str, &str)) {
    let Some(cable) = Cable::new() else { return };
    if server.contains(':') {
        cable.settle_ipv6();
    }
    let folder = folder();
    let mut serve = streamgauge(["serve", "rtsp", "--listen", server, "--multicast", group]);
    serve.args([
        "--length",
        "8s",
        "--fault",
        "loss=2%",
        "--fault",
        "duplicate=1%",
    ]);
    serve.args(["--report", "served.jsonl"]);
    let serving = cable.serve(&serve, folder.path());
    let before = cable.arrived();
    let load = cable.load(&format!("rtsp://{host}:8554/a"), &[], folder.path());
    wait_for("the membership", PATIENCE, || {
        cable.clients.table(table).contains(joined).then_some(())
    });
    load.finish(RUN_TIMEOUT).expect(0);
    let arrived = cable.arrived() - before;
    assert!(
        !cable.clients.table(table).contains(joined),
        "nobody wants it any more"
    );
    serving.signal("TERM");
    serving.finish(PATIENCE);
    let served = fs::read_to_string(folder.path().join("served.jsonl"));
    let served = served.expect("the server wrote its report");
    let lines: Vec<Value> = served
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON each"))
        .collect();
    assert_eq!(lines.len(), 2, "the stream was sent once: {served}");
    let of = |name: &str| number(&lines[0][name]);
    let report = Report::read(&folder.path().join("load.json"));
    report.tester_was_fit();
    assert_eq!(report.clients("completed"), CLIENTS);
    let counts = report.counts();
    // Each client counts from its PLAY on, so the last clients miss the first few packets: on a
    // busy machine those of some seconds.
    for (counted, done) in [
        (counts.received, of("sent")),
        (counts.lost, of("lost")),
        (counts.duplicated, of("duplicated")),
    ] {
        let all = CLIENTS * done;
        assert!(
            (all / 3..=all).contains(&counted),
            "{counted} of {all}: {counts:?}"
        );
    }
    assert!(counts.lost > 0 && counts.duplicated > 0, "{counts:?}");
    assert!(
        arrived < 2 * of("sent"),
        "{arrived} packets came for a stream of {}",
        of("sent")
    );
}

#[test]
fn multicast_over_ipv4_is_counted() {
    let joined = ("igmp", "012AFFEF");
    one_copy_serves_all("239.255.42.1", "10.81.0.1", "10.81.0.1", joined);
}

#[test]
fn multicast_over_ipv6_is_counted() {
    let joined = ("igmp6", "ff150000000000000000000000420001");
    one_copy_serves_all("ff15::42:1", "2001:db8:81::1", "[2001:db8:81::1]", joined);
}

#[test]
fn source_specific_multicast_is_counted() {
    // The group and its only permitted source.
    let joined = ("mcfilter", "0xe8050607 0x0a510001");
    one_copy_serves_all("232.5.6.7", "10.81.0.1", "10.81.0.1", joined);
}

#[test]
fn multicast_of_gstreamer_is_counted() {
    if !have("python3") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let folder = folder();
    // The program that `launch: gstreamer` starts. In its template, braces that are not
    // placeholders are doubled.
    let listed = run(folder.path(), ["servers", "gstreamer", "--json"]).expect(0);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("it is JSON");
    let text = listed["config"]["text"].as_str().expect("a program");
    let program = folder.path().join("server.py");
    let written = fs::write(&program, text.replace("{{", "{").replace("}}", "}"));
    written.expect("there is room");
    // The Python of the system has the bindings.
    let mut python = Command::new("/usr/bin/python3");
    python.arg(&program).args(["--port", "8554", "--"]);
    let mut attempts = 0..3;
    let (finished, arrived) = loop {
        let mut serving = cable.serve(&python, folder.path());
        let before = cable.arrived();
        let load = cable.load("rtsp://10.81.0.1:8554/live", &["-d", "8s"], folder.path());
        let finished = load.finish(RUN_TIMEOUT);
        let arrived = cable.arrived() - before;
        attempts.next();
        // GStreamer 1.22 sometimes crashes when several clients begin at once, which is not tested
        // here.
        if serving.runs() || attempts.is_empty() {
            break (finished, arrived);
        }
    };
    finished.expect(0);
    let report = Report::read(&folder.path().join("load.json"));
    report.tester_was_fit();
    assert_eq!(
        (report.clients("failed"), report.clients("stopped")),
        (0, CLIENTS)
    );
    let received = number(report.metric("received"));
    assert!(
        // Clients that begin late receive less, but several clients count each packet that arrived.
        arrived > 0 && received > arrived,
        "{received} counted of {arrived} that came"
    );
    // GStreamer leaves out a packet for all clients whenever another one begins to play; nothing
    // else is lost.
    assert!(report.counts().lost <= CLIENTS * CLIENTS);
    assert_eq!(number(report.metric("malformed")), 0);
}

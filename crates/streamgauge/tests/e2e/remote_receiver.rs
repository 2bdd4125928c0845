//! Media that goes to another address than the signalling: to another one of this machine, and to
//! another machine on which a receiver counts it.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::namespace::Namespace;
use crate::support::{
    Counts, Process, RUN_TIMEOUT, Report, Server, folder, free_port, number, streamgauge, wait_for,
};

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

const SECRET: &str = "not to be guessed";

/// Writes a scenario of six clients that play to the end of the media. A server that a busy machine
/// interrupts has not ended its media.
fn scenario(folder: &Path, url: &str, media: &str) {
    let text = format!(
        "clients: {{viewers: {{urls: ['{url}'], media: {media}, end_silence: 3s, \
         load: {{clients: 6, ramp: 500ms}}}}}}\n"
    );
    fs::write(folder.join("apart.yaml"), text).expect("the test's folder can be written");
}

/// Returns the command that runs the scenario.
fn run() -> Command {
    let mut run = streamgauge(["run", "apart.yaml", "--json", "apart.json"]);
    run.args(["-o", "apart.run"]);
    run.env("STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET", SECRET);
    run
}

/// Returns the command of a receiver at this address.
fn receive(folder: &Path, at: &str) -> Command {
    fs::write(folder.join("secret"), SECRET).expect("the test's folder can be written");
    streamgauge(["receive", "--listen", at, "--secret-file", "secret"])
}

/// Starts a receiver on this machine. Returns it with its address.
fn receiver(folder: &Path) -> (Process, String) {
    let port = free_port();
    let at = format!("127.0.0.3:{port}");
    let mut process = Process::start(receive(folder, &at), folder);
    process.listen(port);
    (process, at)
}

const FAULTY: [&str; 11] = [
    "--length",
    "3s",
    "--audio",
    "--fault",
    "loss=2%",
    "--fault",
    "duplicate=1%",
    "--fault",
    "reorder=1%x3",
    "--bitrate",
    "400kbps",
];

fn faulty(more: &[&'static str]) -> Vec<&'static str> {
    FAULTY.iter().chain(more).copied().collect()
}

#[test]
fn media_to_another_local_address_is_counted_exactly() {
    let folder = folder();
    let server = Server::start(
        folder.path(),
        &faulty(&["--allow-destination", "127.0.0.2"]),
    );
    let media = "{address: 127.0.0.2, ports: 7000..}";
    scenario(folder.path(), &server.url(), media);
    let mut run = run();
    run.env_remove("STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET");
    Process::start(run, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    let (_, done) = server.stop();
    let report = Report::read(&folder.path().join("apart.json"));
    report.tester_was_fit();
    assert_eq!(report.clients("completed"), 6);
    assert_eq!(report.counts(), done);
}

#[test]
fn refused_destination_is_a_failure_reason() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    scenario(folder.path(), &server.url(), "{address: 127.0.0.2}");
    let mut run = run();
    run.env_remove("STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET");
    Process::start(run, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(99);
    drop(server);
    let report = Report::read(&folder.path().join("apart.json"));
    assert_eq!(report.failures("destination_refused"), 6);
}

#[test]
fn foreign_address_or_wrong_secret_starts_nothing() {
    let folder = folder();
    // An address for documentation, which nobody has (RFC 5737).
    scenario(
        folder.path(),
        "rtsp://127.0.0.1:9/a",
        "{address: 192.0.2.1}",
    );
    let mut wrong = run();
    wrong.env_remove("STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET");
    Process::start(wrong, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(104)
        .names("192.0.2.1");
    let (receiver, at) = receiver(folder.path());
    scenario(
        folder.path(),
        "rtsp://127.0.0.1:9/a",
        &format!("{{receiver: '{at}'}}"),
    );
    let mut wrong = run();
    wrong.env(
        "STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET",
        "guessed badly",
    );
    Process::start(wrong, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(104)
        .names("wrong secret");
    let mut stranger = TcpStream::connect(&at).expect("it listens");
    stranger
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("it takes what comes");
    drop(stranger);
    receiver.signal("INT");
    let ended = receiver.finish(PATIENCE).expect(0);
    let counted = ended.stderr.contains("refused") && !ended.stderr.contains("; 0 connections");
    assert!(counted, "{}", ended.stderr);
    assert!(!ended.stdout.contains(SECRET) && !ended.stderr.contains(SECRET));
}

#[test]
fn idle_strangers_do_not_keep_a_run_out() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--allow-destination", "127.0.0.3"]);
    let (receiver, at) = receiver(folder.path());
    let idle: Vec<TcpStream> = (0..64)
        .map(|_| TcpStream::connect(&at).expect("it listens"))
        .collect();
    let media = format!("{{receiver: '{at}'}}");
    scenario(folder.path(), &server.url(), &media);
    let mut run = run();
    run.args(["--set", "duration=5s"]);
    Process::start(run, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    drop(idle);
    receiver.signal("INT");
    receiver.finish(PATIENCE).expect(0);
    drop(server);
}

#[test]
fn lost_receiver_invalidates_and_lost_tester_closes_ports() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--allow-destination", "127.0.0.3"]);
    let playing = |at: &str| {
        let media = format!("{{receiver: '{at}', ports: 7200..}}");
        scenario(folder.path(), &server.url(), &media);
        let mut run = run();
        run.args(["--set", "duration=30s"]);
        let run = Process::start(run, folder.path());
        wait_for("media ports", PATIENCE, || {
            (ports_from(7200) == 12).then_some(())
        });
        run
    };
    let (receiver, at) = receiver(folder.path());
    // The tester is killed: the receiver closes its ports.
    let run = playing(&at);
    run.signal("KILL");
    run.finish(PATIENCE);
    wait_for("ports are given back", PATIENCE, || {
        (ports_from(7200) == 0).then_some(())
    });
    // The receiver is killed: what arrived since is unknown.
    fs::remove_file(folder.path().join("apart.run")).expect("it was begun");
    let run = playing(&at);
    receiver.signal("KILL");
    receiver.finish(PATIENCE);
    run.finish(RUN_TIMEOUT).expect(110);
    let report = Report::read(&folder.path().join("apart.json"));
    assert_eq!(report.failures("receiver_lost"), 6);
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(reasons.contains("was lost"), "{reasons}");
    drop(server);
}

/// Returns the number of UDP sockets on this port and the 99 above it.
fn ports_from(first: u16) -> usize {
    let table = fs::read_to_string("/proc/net/udp").expect("Linux has it");
    let port = |line: &str| {
        let local = line.split_whitespace().nth(1)?;
        u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
    };
    let ports = table.lines().filter_map(port);
    ports
        .filter(|port| (first..first + 100).contains(port))
        .count()
}

/// Returns the sums of a server's report over all streams.
fn done(path: &Path) -> Counts {
    let text = fs::read_to_string(path).expect("the server wrote its report");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON each"))
        .filter(|line: &Value| line["pacing"].is_null())
        .collect();
    let sum = |name: &str| lines.iter().map(|line| number(&line[name])).sum();
    Counts {
        expected: sum("expected"),
        received: sum("sent"),
        lost: sum("lost"),
        duplicated: sum("duplicated"),
        reordered: sum("reordered"),
    }
}

#[test]
fn media_to_another_machine_is_counted_exactly() {
    let namespaces = (Namespace::new(), Namespace::new(), Namespace::new());
    let (Some(server), Some(clients), Some(apart)) = namespaces else {
        // Printed on purpose: readers of the test's output must know.
        let why = "making a network namespace needs the capability CAP_SYS_ADMIN";
        let _ = writeln!(std::io::stderr(), "left out: {why}");
        return;
    };
    // Three machines on one switch, which is in the clients' namespace.
    clients.ip("link add switch type bridge");
    clients.ip("address add 10.82.0.2/24 dev switch");
    clients.ip("link set switch up");
    for (end, name, address) in [(&server, "server", 1), (&apart, "apart", 3)] {
        let peer = clients.id();
        end.ip(&format!(
            "link add cable type veth peer name {name} netns {peer}"
        ));
        end.ip(&format!("address add 10.82.0.{address}/24 dev cable"));
        end.ip("link set cable up");
        clients.ip(&format!("link set {name} master switch up"));
    }
    let folder = folder();
    let listens_at = |end: &Namespace, port: u16| {
        let sign = format!(":{port:04X} ");
        let table = end.table("tcp");
        let listens = table
            .lines()
            .any(|row| row.contains(&sign) && row.contains(" 0A "));
        listens.then_some(())
    };
    let mut serve = streamgauge(["serve", "rtsp", "--listen", "10.82.0.1"]);
    serve.args(["--report", "served.jsonl"]);
    serve.args(faulty(&["--allow-destination", "10.82.0.3"]));
    let serving = Process::start(server.within(&serve), folder.path());
    let receive = receive(folder.path(), "10.82.0.3:8560");
    let receiving = Process::start(apart.within(&receive), folder.path());
    wait_for("the server listens", PATIENCE, || listens_at(&server, 8554));
    wait_for("the receiver listens", PATIENCE, || {
        listens_at(&apart, 8560)
    });
    let media = "{receiver: '10.82.0.3:8560', ports: 40000..40099}";
    scenario(folder.path(), "rtsp://10.82.0.1:8554/a", media);
    let mut run = clients.within(&run());
    run.env("STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET", SECRET);
    Process::start(run, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    for process in [serving, receiving] {
        process.signal("INT");
        process.finish(PATIENCE);
    }
    let report = Report::read(&folder.path().join("apart.json"));
    report.tester_was_fit();
    assert_eq!(report.clients("completed"), 6);
    assert_eq!(report.counts(), done(&folder.path().join("served.jsonl")));
    // The clients' machine itself has received no datagram: those that its switch passes on are not
    // addressed to it.
    let table = clients.table("snmp");
    let mut udp = table.lines().filter_map(|row| row.strip_prefix("Udp: "));
    let (names, values) = (udp.next(), udp.next());
    let fields = names.zip(values).map(|(names, values)| {
        let fields = names.split_whitespace().zip(values.split_whitespace());
        fields.filter(|(name, _)| ["InDatagrams", "NoPorts"].contains(name))
    });
    let received: Vec<&str> = fields
        .into_iter()
        .flatten()
        .map(|(_, value)| value)
        .collect();
    assert_eq!(received, ["0", "0"], "{table}");
}

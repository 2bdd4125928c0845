//! Scenarios with sources and networks of their own: everything sent is accounted for, nothing is
//! left behind, and nothing gets out.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::namespace::Namespace;
use crate::support::{
    Finished, Process, RUN_TIMEOUT, Report, folder, number, run, streamgauge,
    streamgauge_with_bound, wait_for,
};

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// 100 datagrams a second to each group: the relay's sockets have room for those of some seconds.
const RATE: &str = "1052800bps";
const A_SECOND: u64 = 100;

/// Returns `true` if networks can be made here. If not, the test prints that it was skipped.
fn may_make_networks() -> bool {
    // Prints itself why there is no namespace.
    Namespace::with_multicast().is_some()
}

/// Writes a scenario of a source, the reference relay and two clients in this kind of network. The
/// relay's command contains `folder`, so that its process can be found.
fn scenario(folder: &Path, network: &str, port: u16, rest: &str) {
    let interface = if network == "veth" { "sources" } else { "lo" };
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let report = folder.join("relayed.jsonl");
    let text = format!(
        "network: {network}
sources:
  channels: {{ to: ['rtp://239.81.0.{{1..2}}:{port}'], bitrate: {RATE} }}
server:
  command: ['{program}', serve, http-ts, --listen, 0.0.0.0, --interface, {interface}, --report, '{}']
  ready: {{ port: 8080 }}
clients:
  viewers:
    urls: ['http://{{server}}:8080/rtp/239.81.0.{{1..2}}:{port}']
    pick: own
    load: {{ clients: 2 }}
seed: 7
{rest}
",
        report.display()
    );
    fs::write(folder.join("relay.yaml"), text).expect("there is room");
}

/// Returns the processes whose command contains the folder.
fn processes(folder: &Path) -> Vec<u32> {
    let folder = folder.to_string_lossy().into_owned();
    let all = fs::read_dir("/proc").expect("Linux has it").flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let names = |id: &u32| {
        let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&folder)
    };
    ids.filter(names).collect()
}

/// Returns the interfaces of this machine's own network.
pub(crate) fn interfaces() -> BTreeSet<String> {
    let all = fs::read_dir("/sys/class/net").expect("Linux has it");
    let names = all.map(|entry| entry.expect("it can be read").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Joins the first group in this machine's own network, where it must not be received.
fn outsider() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("there is a free port");
    let port = socket.local_addr().expect("it is bound").port();
    socket
        .join_multicast_v4(&Ipv4Addr::new(239, 81, 0, 1), &Ipv4Addr::LOCALHOST)
        .expect("anybody may join");
    socket.set_nonblocking(true).expect("it can be told so");
    (socket, port)
}

/// Plays the scenario in the folder.
fn play(folder: &Path) -> (Finished, Report) {
    let finished = run(
        folder,
        ["run", "relay.yaml", "--out", "x.run", "--json", "x.json"],
    );
    let report = Report::read(&folder.join("x.json"));
    (finished, report)
}

/// Checks that every datagram that was due during the measurement arrived once, of those that the
/// sources report as sent.
fn is_accounted_for(report: &Report) {
    report.tester_was_fit();
    assert_eq!(report.result(), "pass", "{}", report.0["verdict"]);
    let sources = report.0["sources"]["streams"].as_array();
    let sources = sources.expect("there are sources");
    assert_eq!(sources.len(), 2);
    for stream in sources {
        assert_eq!(stream["source"], "channels");
        assert_eq!(number(&stream["refused"]), 0, "{stream}");
        assert_eq!(number(&stream["sent"]), number(&stream["datagrams"]));
    }
    let sent: u64 = sources.iter().map(|stream| number(&stream["sent"])).sum();
    assert_eq!(
        number(&report.0["sources"]["pacing"]["packets"]),
        sent,
        "{}",
        report.0["sources"]
    );
    let counts = report.counts();
    assert_eq!(counts.received, counts.expected);
    assert_eq!((counts.lost, counts.duplicated), (0, 0));
    assert_eq!(number(report.metric("foreign")), 0);
    // Clients expect what was due in the measured time, except for datagrams in flight at both
    // ends.
    let windows = report.0["windows"].as_array().expect("there are some");
    let measured = windows
        .iter()
        .filter(|window| window["start"].as_f64() >= Some(1.0));
    let seconds: f64 = measured
        .filter_map(|window| window["seconds"].as_f64())
        .sum();
    let due = 2.0 * A_SECOND as f64 * seconds;
    // On a busy machine clients begin late, and datagrams arrive late.
    let share = counts.expected as f64 / due;
    assert!((0.5..1.2).contains(&share), "{counts:?} of {due}");
    assert!(counts.expected < sent, "{counts:?} of {sent}");
}

/// Plays source, relay and clients in this kind of network, which is invisible from outside.
fn in_a_network(network: &str) {
    if !may_make_networks() {
        return;
    }
    let folder = folder();
    let (outsider, port) = outsider();
    let before = interfaces();
    scenario(
        folder.path(),
        network,
        port,
        "duration: 8s\nwarm_up: 1s\nthresholds: ['viewers.loss <= 0%']",
    );
    let (finished, report) = play(folder.path());
    finished.expect(0);
    is_accounted_for(&report);
    let mut datagram = [0; 2048];
    let received = outsider.recv(&mut datagram);
    let error = received.expect_err("nothing gets out");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(interfaces(), before);
    wait_for("the end of all that it started", PATIENCE, || {
        processes(folder.path()).is_empty().then_some(())
    });
    // The relay agrees: it passed on everything that it received for each group.
    let relayed = fs::read_to_string(folder.path().join("relayed.jsonl")).expect("it was written");
    let sums: serde_json::Value = relayed
        .lines()
        .last()
        .map(|line| serde_json::from_str(line).expect("a line of JSON each"))
        .expect("it ends with its sums");
    assert_eq!(number(&sums["relayed"]["lost_at_sockets"]), 0, "{sums}");
}

#[test]
fn source_relay_and_clients_share_their_own_loopback() {
    in_a_network("loopback");
}

#[test]
fn source_relay_and_clients_are_linked_by_virtual_ethernet() {
    in_a_network("veth");
}

#[test]
fn rtsp_over_virtual_ethernet_is_counted_exactly() {
    if !may_make_networks() {
        return;
    }
    let folder = folder();
    let text = format!(
        "network: veth
server:
  command: ['{}', serve, rtsp, --listen, 0.0.0.0, --report, served.jsonl]
  ready: {{ port: 8554 }}
clients:
  viewers: {{ urls: ['rtsp://{{server}}:8554/1'], load: {{ clients: 5 }} }}
duration: 6s
",
        env!("CARGO_BIN_EXE_streamgauge")
    );
    fs::write(folder.path().join("relay.yaml"), text).expect("there is room");
    let (finished, report) = play(folder.path());
    finished.expect(0);
    report.tester_was_fit();
    let counts = report.counts();
    assert!(counts.received > 0);
    assert_eq!(counts.received, counts.expected);
    let served = fs::read_to_string(folder.path().join("served.jsonl")).expect("it was written");
    let lines = served
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON each"));
    let sent: u64 = lines
        .filter(|line: &serde_json::Value| line["sent"].is_u64())
        .map(|line| number(&line["sent"]))
        .sum();
    assert_eq!(counts.received, sent);
    assert_eq!(report.0["sources"], serde_json::Value::Null);
}

#[test]
fn nothing_is_left_of_a_network_after_kill_9() {
    if !may_make_networks() {
        return;
    }
    let folder = folder();
    let before = interfaces();
    scenario(folder.path(), "veth", 4056, "duration: 60s");
    let mut playing = Process::start(
        streamgauge(["run", "relay.yaml", "--out", "x.run"]),
        folder.path(),
    );
    let own = fs::read_link("/proc/self/ns/net").expect("Linux has namespaces");
    let relay = wait_for("the relay is in a network of its own", PATIENCE, || {
        assert!(playing.runs(), "{}", playing.stderr_text());
        let apart = |id: &u32| {
            let namespace = fs::read_link(format!("/proc/{id}/ns/net"));
            let joined = fs::read_to_string(format!("/proc/{id}/net/igmp")).unwrap_or_default();
            // The first group, in the notation of little-endian or of big-endian machines.
            namespace.is_ok_and(|namespace| namespace != own)
                && (joined.contains("010051EF") || joined.contains("EF510001"))
        };
        processes(folder.path()).into_iter().find(apart)
    });
    assert!(Path::new(&format!("/proc/{relay}")).exists());
    playing.signal("KILL");
    playing.finish(PATIENCE);
    wait_for("the end of all that it started", PATIENCE, || {
        processes(folder.path()).is_empty().then_some(())
    });
    assert_eq!(interfaces(), before);
}

#[test]
fn late_source_invalidates_only_its_run_of_a_series() {
    if !may_make_networks() {
        return;
    }
    let folder = folder();
    scenario(
        folder.path(),
        "loopback",
        4056,
        "duration: 5s
settle: 0s
vary:
  sources.flood.bitrate: [10Gbps, 1Mbps]
",
    );
    let path = folder.path().join("relay.yaml");
    let text = fs::read_to_string(&path).expect("it was just written");
    // More than can be sent, to groups without receivers. One group is not enough: 10 Gb/s to it
    // leave in time.
    let flood = "sources:\n  flood: { to: ['udp://239.81.1.{1..20}:4056'], bitrate: 1Mbps }\n";
    fs::write(&path, text.replace("sources:\n", flood)).expect("there is room");
    // A busy machine delays the packets of the second run by less.
    let command = streamgauge_with_bound(
        ("SEND_LATENESS_P99", "2s"),
        ["run", "relay.yaml", "--out", "x", "--json", "x.json"],
    );
    let finished = Process::start(command, folder.path()).finish(RUN_TIMEOUT);
    finished.expect(110);
    let text = fs::read_to_string(folder.path().join("x.json")).expect("it was written");
    let series: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let runs = series["runs"].as_array().expect("there are runs");
    let outcomes: Vec<&serde_json::Value> = runs.iter().map(|run| &run["outcome"]).collect();
    assert_eq!(outcomes, ["invalid", "pass"], "{series}");
    let reasons = runs[0]["reasons"].to_string();
    assert!(reasons.contains("tester.send_lateness"), "{reasons}");
}

#[test]
fn errors_about_sources_and_networks_name_the_cause() {
    let folder = folder();
    let text = "sources: { channels: { to: 'udp://239.81.0.1:4056', interface: nosuch0 } }
clients: { viewers: { urls: ['http://127.0.0.1:9/udp/239.81.0.1:4056'], load: { clients: 1 } } }
duration: 1s
";
    fs::write(folder.path().join("relay.yaml"), text).expect("there is room");
    let finished = run(folder.path(), ["run", "relay.yaml", "--out", "x.run"]);
    finished.expect(104).names("no interface is called nosuch0");
    // Root drops the capability, so that the error about it is tested as well.
    scenario(folder.path(), "loopback", 4056, "duration: 1s");
    let plain = streamgauge(["run", "relay.yaml", "--out", "y.run"]);
    let mut denied = Command::new("setpriv");
    denied
        .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"])
        .arg(plain.get_program())
        .args(plain.get_args())
        .env("NO_COLOR", "1");
    let command = match Namespace::new() {
        Some(_) => denied,
        None => plain,
    };
    let finished = Process::start(command, folder.path()).finish(RUN_TIMEOUT);
    finished.expect(104).names("CAP_SYS_ADMIN");
}

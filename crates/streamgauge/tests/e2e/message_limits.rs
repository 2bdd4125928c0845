//! Limits of a load of messages: a server that stops reading, a tester that is stopped, and source
//! addresses without a free port.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::message_peers::Peer;
use crate::messages::{PATIENT_END, Server, count};
use crate::namespace::Namespace;
use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, have, number, streamgauge, streamgauge_with_bound,
    wait_for,
};

fn go_by(time: Duration) {
    let began = Instant::now();
    wait_for("the time goes by", RUN_TIMEOUT, || {
        (began.elapsed() >= time).then_some(())
    });
}

#[test]
fn stalled_server_does_not_delay_rounds() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    let peer = Peer::start(folder.path(), "tcp", &["size=65536"]);
    let url = peer.url();
    let arguments = [
        "load", &url, "-c", "5", "--every", "10ms", "--size", "65536",
    ];
    // On a busy machine the server may have unread messages at the end.
    let lost = ["--threshold", "senders.lost_in_flight < 1000"];
    let more = ["-d", "8s", "--json", "out.json"];
    let command = streamgauge(arguments.iter().chain(&more).chain(&lost));
    let process = Process::start(command, folder.path());
    wait_for("the run goes on", RUN_TIMEOUT, || {
        process.stderr_text().contains("running").then_some(())
    });
    // 26 MB are due on each connection meanwhile, more than the kernel's buffers can grow to.
    peer.signal("STOP");
    go_by(Duration::from_secs(4));
    peer.signal("CONT");
    process.finish(RUN_TIMEOUT).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    let (sent, not_sent) = (count(&report, "sent"), count(&report, "due_not_sent"));
    assert!(not_sent > 300, "{sent} sent, {not_sent} not");
    let rounds = count(&report, "rounds");
    // 800 were due, and more if the end is late. There would be 400 if none began while the server
    // was stopped.
    assert!((500..=1500).contains(&rounds), "{rounds} rounds");
    // Every message that was due is accounted for: each round has five.
    let due = count(&report, "due");
    assert!(due == sent + not_sent && due >= 5 * (rounds - 2), "{due}");
    report.tester_was_fit();
    let counted = peer.stop();
    let (arrived, lost) = (
        number(&counted["messages"]),
        count(&report, "lost_in_flight"),
    );
    assert!((sent - lost..=sent).contains(&arrived), "{counted}");
}

#[test]
fn stalled_tester_is_no_back_pressure() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--mode", "sink"]);
    let arguments = format!(
        "load {} -c 20 --every 10ms -d 6s --json out.json",
        server.url()
    );
    let mut command = streamgauge_with_bound(("LONGEST_STALL", "1s"), arguments.split(' '));
    command.envs(PATIENT_END);
    let process = Process::start(command, folder.path());
    wait_for("the run goes on", RUN_TIMEOUT, || {
        process.stderr_text().contains("running").then_some(())
    });
    process.signal("STOP");
    go_by(Duration::from_secs(2));
    process.signal("CONT");
    process.finish(RUN_TIMEOUT).expect(110);
    let report = Report::read(&folder.path().join("out.json"));
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(reasons.contains("tester."), "{reasons}");
    assert_eq!(count(&report, "due_not_sent"), 0);
    let late = &report.metric("message_lateness")["max"];
    assert!(late.as_f64() > Some(1.5), "{late}");
    let served = server.stop();
    assert_eq!(count(&report, "sent"), number(&served["messages"]));
}

/// Number of ports from which the kernel chooses in the tests below.
const PORTS: usize = 20;

#[test]
fn connections_use_the_next_source_address_until_none_is_left() {
    let folder = folder();
    let Some(namespace) = Namespace::with_multicast() else {
        return;
    };
    let mut few = Command::new("sh");
    let range = format!(
        "echo 40000 {} >/proc/sys/net/ipv4/ip_local_port_range",
        40000 + PORTS - 1
    );
    few.args(["-c", &range]);
    let done = namespace.within(&few).status().expect("nsenter is there");
    assert!(done.success());
    let command = streamgauge(["serve", "messages", "--mode", "sink", "--port", "9000"]);
    let mut server = Process::start(namespace.within(&command), folder.path());
    wait_for("the server listens", RUN_TIMEOUT, || {
        assert!(server.runs(), "it ended: {}", server.stderr_text());
        namespace.table("tcp").contains(":2328 ").then_some(())
    });
    let scenario = |sources: &str, clients: usize| {
        let text = format!(
            "duration: 5s\nclients:\n  viewers:\n    protocol: messages\n    urls: [\"tcp://127.0.0.1:9000\"]\n    plan: {{rate: 10/s}}\n    {sources}\n    load: {{clients: {clients}}}\n"
        );
        fs::write(folder.path().join("s.yaml"), text).expect("it can be written");
    };
    let run = |code: i32| {
        let command = streamgauge(["run", "s.yaml", "--json", "out.json"]);
        let finished =
            Process::start(namespace.within(&command), folder.path()).finish(RUN_TIMEOUT);
        let shown = finished.expect(code).stdout;
        (Report::read(&folder.path().join("out.json")), shown)
    };
    // Destinations in 127.0.0.0/8 have more source addresses.
    scenario("", 5 * PORTS);
    let (report, _) = run(0);
    assert_eq!(report.clients("stopped"), 5 * PORTS as u64);
    // Other addresses than before, because the kernel keeps the ports of closed connections for a
    // minute.
    scenario("source_addresses: [127.0.1.2, 127.0.1.3]", 2 * PORTS + 7);
    // The tester is the limit.
    let (report, shown) = run(110);
    assert_eq!(
        report.failures("local_ports"),
        7,
        "{}",
        report.0["populations"]
    );
    let events = report.0["events"].to_string();
    for part in [
        "2 source addresses",
        "the 20 ports 40000 to 40019",
        "source_addresses",
    ] {
        assert!(events.contains(part), "no `{part}` in {events}");
        let shown: Vec<&str> = shown.split_whitespace().collect();
        let shown = shown.join(" ");
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
}

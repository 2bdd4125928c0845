//! Runs over an emulated link: clients and other programs see exactly what it did to packets.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::namespace::Namespace;
use crate::support::{
    Finished, Process, Report, folder, have, number, run, streamgauge, streamgauge_with_bound,
    wait_for,
};

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns `true` if links can be made here. If not, the test prints that it was skipped.
fn may_make_links() -> bool {
    // Prints itself why there is no namespace.
    Namespace::with_multicast().is_some() && Path::new("/dev/net/tun").exists()
}

/// Writes a scenario of the RTSP reference server with this text added.
fn scenario(folder: &Path, rest: &str) {
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let text = format!(
        "server:
  command: ['{program}', serve, rtsp, --listen, 0.0.0.0, --report, served.jsonl]
  ready: {{ port: 8554 }}
seed: 7
{rest}
"
    );
    fs::write(folder.join("link.yaml"), text).expect("there is room");
}

fn play(folder: &Path) -> (Finished, Report) {
    let arguments = ["run", "link.yaml", "--out", "x.run", "--json", "x.json"];
    let finished = run(folder, arguments);
    let report = Report::read(&folder.join("x.json"));
    (finished, report)
}

fn link<'a>(report: &'a Report, direction: &str) -> &'a Value {
    &report.0["links"][direction]["metrics"]
}

/// Returns the number of media packets that the server reports as sent.
fn sent(folder: &Path) -> u64 {
    let served = fs::read_to_string(folder.join("served.jsonl")).expect("it was written");
    let lines = served
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON each"));
    lines.filter_map(|line| line["sent"].as_u64()).sum()
}

#[test]
fn clients_miss_exactly_what_the_link_lost() {
    if !may_make_links() {
        return;
    }
    let folder = folder();
    // The answers to the only client come over TCP before its media, and the first report after 5 s
    // of media, so all listed packets are media. None is the last of a stream, whose loss would go
    // unnoticed, even if a busy machine begins late.
    scenario(
        folder.path(),
        "link: { rtt: 100ms, down: { loss: 'packets 100, 101, 102, 200, 250' } }
clients:
  viewers: { urls: ['rtsp://{server}:8554/1'], load: { clients: 1 } }
duration: 8s
thresholds: ['downlink.lost == 5', 'viewers.lost == 5', 'downlink.delay.p50 >= 50ms', 'uplink.lost == 0']",
    );
    let (finished, report) = play(folder.path());
    finished.expect(0);
    report.tester_was_fit();
    let down = link(&report, "downlink");
    assert_eq!(down["lost_by_chance"], 5, "{down}");
    assert_eq!(down["planned_delay"]["max"], 0.05, "{down}");
    assert_eq!(down["overload"], 0, "{down}");
    let counts = report.counts();
    assert_eq!(counts.expected - counts.received, 5);
    assert_eq!(counts.expected, sent(folder.path()));
    let lost = &report.0["populations"]["viewers"]["where_lost"];
    assert_eq!(
        (&lost["on_link"], &lost["elsewhere"]),
        (&5.into(), &0.into())
    );
    assert!(summary(folder.path()).contains("emulated link 5 (100 %), server 0"));
    // The sums over all windows are the same.
    let windows = report.0["windows"].as_array().expect("there are some");
    for name in ["packets", "lost", "delivered"] {
        // A last window of a few milliseconds may have nothing of the link.
        let of = |window: &Value| match &window["links"]["downlink"] {
            Value::Null => 0,
            link => number(&link[name]),
        };
        let sum: u64 = windows.iter().map(of).sum();
        assert_eq!(sum, number(&down[name]), "{name}");
    }
    let counted = number(&down["delivered"]) + number(&down["lost"]);
    assert_eq!(counted, number(&down["packets"]), "all had arrived");
}

/// Returns the summary of the run file.
fn summary(folder: &Path) -> String {
    run(folder, ["report", "x.run"]).stdout
}

#[test]
fn each_population_has_the_delay_of_its_own_link() {
    if !may_make_links() {
        return;
    }
    let folder = folder();
    scenario(
        folder.path(),
        "link: { rtt: 20ms }
clients:
  near: { urls: ['rtsp://{server}:8554/1'], load: { clients: 1 } }
  far:
    urls: ['rtsp://{server}:8554/1']
    load: { clients: 1 }
    link: { up: { delay: 10ms }, down: { delay: 150ms } }
duration: 8s
thresholds: ['far_downlink.lost == 0', 'downlink.lost == 0', 'far.loss <= 0%', 'near.loss <= 0%']",
    );
    let (finished, report) = play(folder.path());
    finished.expect(0);
    for (direction, delay) in [
        ("uplink", 0.01),
        ("downlink", 0.01),
        ("far_uplink", 0.01),
        ("far_downlink", 0.15),
    ] {
        let link = link(&report, direction);
        assert_eq!(link["planned_delay"]["max"], delay, "{direction}: {link}");
        assert!(number(&link["packets"]) > 0, "{direction}: {link}");
    }
    // Connecting and playing takes at least three answers.
    let startup = |population: &str| {
        let found = &report.0["populations"][population]["metrics"]["startup_delay"];
        found["max"].as_f64().expect("it played")
    };
    assert!(startup("far") >= 3.0 * 0.16, "{}", startup("far"));
}

#[test]
fn link_changes_at_its_stages() {
    if !may_make_links() {
        return;
    }
    let folder = folder();
    let trace = "time,rate,delay,loss\n4,,0.08,\n";
    fs::write(folder.path().join("trace.csv"), trace).expect("there is room");
    scenario(
        folder.path(),
        "link: { delay: 5ms, stages: [{ at: 7s, down: { loss: every 2 } }] }
clients:
  viewers:
    urls: ['rtsp://{server}:8554/1']
    load: { clients: 1 }
    link: { delay: 10ms, trace: trace.csv }
  others:
    urls: ['rtsp://{server}:8554/1']
    load: { clients: 1 }
duration: 11s",
    );
    let (_, report) = play(folder.path());
    let windows = report.0["windows"].as_array().expect("there are some");
    // Whether there were packets before and after each change: on a busy machine a second may have
    // none. The second after a change may have packets from before it.
    let mut seen = [[false; 2]; 2];
    for window in windows.iter().filter(|window| window["seconds"] == 1.0) {
        let start = window["start"].as_f64().expect("a number");
        let links = &window["links"];
        let planned = links["viewers_downlink"]["planned_delay"]["max"].as_f64();
        if let Some(planned) = planned.filter(|_| start != 4.0) {
            let is_after = start > 4.0;
            let expected = if is_after { 0.08 } else { 0.01 };
            assert_eq!(planned, expected, "{start}");
            seen[0][usize::from(is_after)] = true;
        }
        let [lost, packets] = ["lost", "packets"].map(|name| links["downlink"][name].as_u64());
        if let (Some(lost), Some(packets @ 1..)) = (lost, packets)
            && start != 7.0
        {
            let is_after = start > 7.0;
            let min = if is_after { packets / 2 } else { 0 };
            assert!(
                (min..=min + 1).contains(&lost),
                "{start}: {lost} of {packets}"
            );
            seen[1][usize::from(is_after)] = true;
        }
    }
    assert_eq!(seen, [[true; 2]; 2]);
}

#[test]
fn unreadable_trace_is_an_error_before_the_run() {
    let folder = folder();
    scenario(
        folder.path(),
        "link: { trace: trace.csv }
clients: { viewers: { urls: ['rtsp://{server}:8554/1'], load: { clients: 1 } } }
duration: 1s",
    );
    let check = || run(folder.path(), ["check", "--offline", "link.yaml"]);
    check().expect(104).names("trace.csv: ");
    fs::write(folder.path().join("trace.csv"), "1,fast,,\n").expect("there is room");
    check().expect(104).names("line 1: `fast` is not a rate");
    fs::write(folder.path().join("trace.csv"), "1,1e6,,\n").expect("there is room");
    check().expect(0);
}

#[test]
fn stalled_link_makes_the_run_invalid() {
    if !may_make_links() {
        return;
    }
    let folder = folder();
    scenario(
        folder.path(),
        "link: { rtt: 20ms }
clients:
  viewers: { urls: ['rtsp://{server}:8554/1'], load: { clients: 4 } }
duration: 16s",
    );
    let arguments = ["run", "link.yaml", "--out", "x.run", "--json", "x.json"];
    let command = streamgauge_with_bound(("LINK_LATENESS_P99", "1ms"), arguments);
    let playing = Process::start(command, folder.path());
    wait_for("the clients play", PATIENCE, || {
        playing
            .stderr_text()
            .contains("4 of 4 playing")
            .then_some(())
    });
    // In three windows the process is stopped for a moment in which packets should have left.
    for _ in 0..3 {
        playing.signal("STOP");
        passes(Duration::from_millis(300));
        playing.signal("CONT");
        passes(Duration::from_millis(800));
    }
    let finished = playing.finish(PATIENCE).expect(110);
    let report = Report::read(&folder.path().join("x.json"));
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(reasons.contains("left the emulated link"), "{finished:?}");
    let late = link(&report, "downlink")["lateness"]["max"].as_f64();
    assert!(late.is_some_and(|late| late > 0.1), "{late:?}");
}

/// Waits until this time has passed: its passing is part of the test.
fn passes(time: Duration) {
    let begun = Instant::now();
    wait_for("time to pass", PATIENCE, || {
        (begun.elapsed() >= time).then_some(())
    });
}

/// Returns the time of each media packet of a capture, by its content.
fn captured(file: &Path) -> BTreeMap<String, f64> {
    let output = Command::new("tshark")
        .arg("-r")
        .arg(file)
        .args([
            "-Y",
            "ip.src == 10.81.0.2 && udp",
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
        ])
        .args(["-e", "udp.dstport", "-e", "udp.payload"])
        .output()
        .expect("tshark is there");
    let text = String::from_utf8(output.stdout).expect("plain text");
    let lines = text.lines().filter_map(|line| {
        let (time, packet) = line.split_once('\t')?;
        Some((packet.to_owned(), time.parse().expect(line)))
    });
    lines.collect()
}

#[test]
fn captures_at_both_ends_agree_with_the_record() {
    if !may_make_links() || !have("tshark") {
        return;
    }
    let folder = folder();
    scenario(
        folder.path(),
        "link: { rtt: 100ms, down: { loss: every 50 } }
clients:
  viewers: { urls: ['rtsp://{server}:8554/1'], load: { clients: 2 } }
duration: 16s",
    );
    // The server's end is captured inside its namespace, which is found through its process.
    let arguments = ["run", "link.yaml", "--out", "x.run", "--json", "x.json"];
    let playing = Process::start(streamgauge(arguments), folder.path());
    let [near, far] = ["near.pcapng", "far.pcapng"].map(|name| folder.path().join(name));
    let own = fs::read_link("/proc/self/ns/net").expect("Linux has namespaces");
    let server = wait_for("the server is in its network", PATIENCE, || {
        descendants(playing.id()).into_iter().find(|id| {
            let namespace = fs::read_link(format!("/proc/{id}/ns/net"));
            let command = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            command.contains("served.jsonl") && namespace.is_ok_and(|namespace| namespace != own)
        })
    });
    let capture = |id: u32, interface: &str, file: &Path| {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &id.to_string(), "--"]);
        command
            .args(["tshark", "-q", "-i", interface, "-w"])
            .arg(file);
        Process::start(command, folder.path())
    };
    let captures = [
        capture(playing.id(), "server", &near),
        capture(server, "clients", &far),
    ];
    let finished = playing.finish(PATIENCE);
    finished.expect(0);
    for capture in captures {
        capture.signal("INT");
        capture.finish(PATIENCE);
    }
    let (sent, arrived) = (captured(&far), captured(&near));
    let delays: Vec<f64> = sent
        .iter()
        .filter_map(|(packet, at)| Some(arrived.get(packet)? - at))
        .collect();
    assert!(delays.len() > 100, "{} of {}", delays.len(), sent.len());
    let min = delays.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let report = Report::read(&folder.path().join("x.json"));
    let [recorded, late] = ["delay", "lateness"].map(|name| {
        let mean = &link(&report, "downlink")[name]["mean"];
        mean.as_f64().expect("packets arrived")
    });
    // The capture is timed before the link takes a packet, and after the link has delivered it.
    assert!((0.05..0.051).contains(&min), "{min}");
    // The captures begin late, and all late packets may be among those that they have.
    let delivered = number(&link(&report, "downlink")["delivered"]) as f64;
    let late = late * (delivered / delays.len() as f64).max(1.0);
    let differs = (mean - recorded).abs();
    assert!(
        differs <= 0.001 + late,
        "{mean} and {recorded}, late {late}"
    );
    // One in fifty of the packets in the capture at the server's end is lost. Only the time between
    // two packets that arrived counts: none overtakes another, however late the link is.
    let first = arrived.values().copied().fold(f64::INFINITY, f64::min);
    let last = arrived.keys().filter_map(|packet| sent.get(packet));
    let last = last.copied().fold(0.0, f64::max);
    let between = sent.iter().filter(|(_, at)| (first..last).contains(*at));
    let (mut all, mut lost) = (0, 0);
    for (packet, _) in between {
        all += 1;
        lost += u32::from(!arrived.contains_key(packet));
    }
    let expected = f64::from(all) / 50.0;
    assert!((f64::from(lost) - expected).abs() <= 2.0, "{lost} of {all}");
}

#[test]
fn tcp_uses_the_congestion_control_of_the_scenario() {
    if !may_make_links() || !have("ss") {
        return;
    }
    let folder = folder();
    scenario(
        folder.path(),
        "link: { rtt: 20ms }
network: { congestion: reno }
clients:
  viewers: { urls: ['rtsp://{server}:8554/1'], load: { clients: 2 }, transport: tcp }
duration: 60s",
    );
    let playing = Process::start(
        streamgauge(["run", "link.yaml", "--out", "x.run"]),
        folder.path(),
    );
    wait_for("the clients play", PATIENCE, || {
        playing
            .stderr_text()
            .contains("2 of 2 playing")
            .then_some(())
    });
    let server = descendants(playing.id()).into_iter().find(|id| {
        let command = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        command.contains("served.jsonl")
    });
    let server = server.expect("it runs");
    for id in [playing.id(), server] {
        let output = Command::new("nsenter")
            .args(["--net", "--target", &id.to_string(), "--", "ss", "-tin"])
            .output()
            .expect("nsenter is there");
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let of = |word: &str| output.split_whitespace().filter(|one| *one == word).count();
        assert_eq!((of("ESTAB"), of("reno")), (2, 2), "{output}");
    }
    playing.signal("INT");
    playing.finish(PATIENCE).expect(105);
    let path = folder.path().join("link.yaml");
    let text = fs::read_to_string(&path).expect("it was just written");
    fs::write(&path, text.replace("reno", "nosuch")).expect("there is room");
    let refused = run(folder.path(), ["run", "link.yaml", "--out", "y.run"]);
    refused.expect(104).names("this kernel has ");
}

/// Returns all descendants of a process.
pub(crate) fn descendants(id: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{id}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|id| id.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

//! A starved tester reports itself as the limit, not the server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::exclusive::{alone, first, run_first, strict};
use crate::support::{
    Process, RUN_TIMEOUT, Report, Server, folder, free_port, have, listens, number, streamgauge,
    wait_for, wrap_command,
};

/// Busy loops that starve a tester on the same core.
const BUSY_LOOPS: usize = 24;

/// Returns the first and the last core that this process may run on.
fn cores() -> (String, String) {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("Linux tells");
    let cores: Vec<&str> = list.trim().split([',', '-']).collect();
    let end = |core: Option<&&str>| (*core.expect("there is a core")).to_owned();
    (end(cores.first()), end(cores.last()))
}

fn pinned(core: &str, command: &Command) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", core]);
    wrap_command(pinned, command)
}

/// Starts processes that keep a core busy until they are dropped.
fn busy_loops(core: &str, folder: &Path) -> Vec<Process> {
    let mut busy = Command::new("sh");
    busy.args(["-c", "while :; do :; done"]);
    let start = |_| Process::start(pinned(core, &busy), folder);
    (0..BUSY_LOOPS).map(start).collect()
}

/// Returns the finding of a health bound in the report.
#[track_caller]
fn finding<'a>(report: &'a Report, bound: &str) -> &'a Value {
    let findings = report.0["tester"]["health"].as_array();
    findings
        .and_then(|findings| findings.iter().find(|finding| finding["bound"] == bound))
        .unwrap_or_else(|| panic!("no {bound} in {}", report.0["tester"]["health"]))
}

fn reasons(report: &Report) -> String {
    report.0["verdict"]["reasons"].to_string()
}

fn read(folder: &Path) -> Report {
    Report::read(&folder.join("out.json"))
}

#[test]
fn one_core_shared_with_busy_loops_makes_the_run_invalid() {
    let _alone = alone();
    if !have("taskset") {
        return;
    }
    let folder = folder();
    let (ours, the_servers) = cores();
    // 24 busy loops leave the tester 4 % of the core. Reading these streams from sockets takes
    // more on any machine; from a packet ring, a fast core needs less.
    let server = Server::start(folder.path(), &["--bitrate", "2Mbps"]);
    let moved = Command::new("taskset")
        .args(["-acp", &the_servers, &server.id().to_string()])
        .output()
        .expect("there is a taskset");
    assert!(moved.status.success(), "{moved:?}");
    let loops = busy_loops(&ours, folder.path());
    let url = server.url();
    let arguments = format!("load {url} -c 300 -d 5s --receive sockets --json out.json");
    let starved = pinned(&ours, &strict(arguments.split(' ')));
    Process::start(starved, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(110);
    drop(loops);
    let report = read(folder.path());
    assert_eq!(report.result(), "invalid");
    let reasons = reasons(&report);
    assert!(reasons.contains("tester.lag"), "{reasons}");
    assert!(reasons.contains("more or faster cores"), "{reasons}");
    // Not every kernel accounts for it. Without it, the lag alone makes the run invalid.
    let wait = finding(&report, "cpu_wait");
    if !wait["worst"].is_null() {
        assert_eq!(wait["invalid"], true, "{wait}");
        assert!(reasons.contains("waited for a processor"), "{reasons}");
    }
}

#[test]
fn starved_tester_still_counts_messages_exactly() {
    let _alone = alone();
    if !have("taskset") {
        return;
    }
    let folder = folder();
    let port = free_port();
    let serve = format!("serve messages --mode echo --port {port} --report served.jsonl");
    let server = Process::start(streamgauge(serve.split(' ')), folder.path());
    wait_for("the server listens", RUN_TIMEOUT, || {
        listens(port).then_some(())
    });
    let (ours, _) = cores();
    let loops = busy_loops(&ours, folder.path());
    let arguments = format!(
        "load tcp://127.0.0.1:{port} -c 300 --every 20ms --answers echo -d 5s --json out.json"
    );
    let starved = pinned(&ours, &strict(arguments.split(' ')));
    Process::start(starved, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(110);
    drop(loops);
    let report = read(folder.path());
    assert_eq!(report.result(), "invalid");
    assert!(reasons(&report).contains("tester."), "{}", reasons(&report));
    server.signal("INT");
    server.finish(RUN_TIMEOUT).expect(0);
    let served = fs::read_to_string(folder.path().join("served.jsonl")).expect("it was written");
    let all = served.lines().last().expect("it ends with its sums");
    let all: Value = serde_json::from_str(all).expect("a line of JSON each");
    // Counts are exact even though the tester was late.
    let served = &all["messages"]["messages"];
    assert_eq!(number(report.metric("sent")), number(served), "{all}");
}

#[test]
fn loss_at_tiny_socket_buffers_is_the_testers() {
    let _alone = alone();
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "60Mbps"]);
    let url = server.url();
    let arguments = format!(
        "load {url} -c 10 -d 4s --receive sockets --receive-buffer 4KiB --json out.json --threshold"
    );
    // Few packets are lost on a fast machine, thousands on a busy one.
    let threshold = "viewers.loss == 0";
    let command = strict(arguments.split(' ').chain([threshold]));
    let finished = Process::start(command, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(110);
    let report = read(folder.path());
    let reasons = reasons(&report);
    for word in [
        "tester.overflow",
        "at its sockets",
        "tester.receive_buffer",
        "could have gone the other way",
    ] {
        assert!(reasons.contains(word), "no `{word}` in {reasons}");
    }
    let lost = &report.0["populations"]["viewers"]["where_lost"];
    assert!(number(&lost["in_tester"]) > 0, "{lost}");
    // The server lost nothing, and there is no network between processes of one machine.
    assert_eq!(number(&lost["elsewhere"]), 0, "{lost}");
    assert_eq!(
        number(&lost["lost"]),
        number(&lost["in_tester"]) + number(&lost["in_kernel"])
    );
    assert_eq!(lost, &report.0["tester"]["where_lost"]);
    let shown = finished.stdout;
    assert!(shown.contains("network or server 0, tester"), "{shown}");
}

#[test]
fn stall_of_two_seconds_makes_the_run_invalid() {
    let _alone = alone();
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let scenario = format!(
        "clients: {{viewers: {{urls: [\"{}\"], load: {{clients: 5}}}}}}\nduration: 6s\n\
         # As in a long run, in which two seconds are few of the windows.\n\
         tester: {{health: {{windows: 90%, cpu_wait: 100%}}}}\n",
        server.url()
    );
    fs::write(folder.path().join("s.yaml"), scenario).expect("the folder can be written");
    let command = strict(["run", "s.yaml", "--json", "out.json"]);
    let process = Process::start(first(&command), folder.path());
    wait_for("the run goes on", Duration::from_secs(20), || {
        process.stderr_text().contains("running").then_some(())
    });
    process.signal("STOP");
    let stopped = Instant::now();
    wait_for("two seconds go by", RUN_TIMEOUT, || {
        (stopped.elapsed() >= Duration::from_secs(2)).then_some(())
    });
    process.signal("CONT");
    process.finish(RUN_TIMEOUT).expect(110);
    let report = read(folder.path());
    let reasons = reasons(&report);
    assert!(reasons.contains("longest stall of a worker"), "{reasons}");
    assert!(reasons.contains("see what stopped the tester"), "{reasons}");
    let stall = finding(&report, "longest_stall");
    assert!(stall["worst"].as_f64() > Some(1.5), "{stall}");
    assert_eq!(finding(&report, "lag_p99")["invalid"], false);
}

#[test]
fn fit_tester_is_trusted_and_shows_its_findings() {
    let _alone = alone();
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "200kbps"]);
    let arguments = format!(
        "load {} -c 20 --ramp 1s -d 5s --json out.json",
        server.url()
    );
    run_first(folder.path(), arguments.split(' ')).expect(0);
    let report = read(folder.path());
    report.tester_was_fit();
    for bound in [
        "overflow",
        "longest_stall",
        "lag_p99",
        "worker_cpu",
        "ports",
    ] {
        let finding = finding(&report, bound);
        assert_eq!(finding["invalid"], false, "{finding}");
        let (worst, limit) = (finding["worst"].as_f64(), finding["limit"].as_f64());
        assert!(worst.is_some(), "{finding}");
        assert!(limit > Some(0.0), "{finding}");
    }
    let tester = &report.0["tester"];
    assert!(tester["file_descriptors"]["max"].as_f64() > Some(20.0));
    let share = tester["file_descriptors_share"]["max"].as_f64();
    assert!(share > Some(0.0) && share < Some(0.95), "{share:?}");
    let workers = tester["workers"].as_array().expect("a list");
    assert!(workers[0]["cpu_mean"].as_f64() > Some(0.0), "{workers:?}");
}

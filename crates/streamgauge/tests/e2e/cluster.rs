//! Runs over several runners, connected by a NATS server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Counts, Process, Report, Server, established, folder, free_port, have, number, run,
    streamgauge, wait_for,
};

/// Time limit of everything that is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Media with faults that end by themselves.
pub(crate) const FAULTY: [&str; 11] = [
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

/// Starts a NATS server on this machine. Returns it with its address.
pub(crate) fn nats(folder: &Path) -> (Process, String) {
    nats_with(folder, "")
}

/// Starts a NATS server with more settings of its store.
pub(crate) fn nats_with(folder: &Path, store: &str) -> (Process, String) {
    let port = free_port();
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}/{port}\"\n{store} }}\n\
         authorization {{ user: \"me\", password: \"secret\" }}\n",
        folder.display()
    );
    let path = folder.join(format!("nats-{port}.conf"));
    fs::write(&path, text).expect("the test's folder can be written");
    let mut command = std::process::Command::new("nats-server");
    command.arg("-c").arg(&path);
    let mut process = Process::start(command, folder);
    process.listen(port);
    (process, format!("nats://me:secret@127.0.0.1:{port}"))
}

/// Starts a runner that waits at this address.
pub(crate) fn runner(folder: &Path, at: &str, name: &str) -> Process {
    let mut process = Process::start(streamgauge(["runner", "--at", at, "--name", name]), folder);
    wait_for("the runner waits for runs", PATIENCE, || {
        assert!(process.runs(), "it ended: {}", process.stderr_text());
        process
            .stderr_text()
            .contains("waits for runs")
            .then_some(())
    });
    process
}

/// Writes a scenario whose clients play to the end of the media.
pub(crate) fn scenario(folder: &Path, url: &str, clients: u32, more: &str) {
    let text = format!(
        "clients: {{viewers: {{urls: ['{url}'], end_silence: 3s, load: {{clients: {clients}, ramp: 1s}}}}}}\n\
         {more}"
    );
    fs::write(folder.join("many.yaml"), text).expect("the test's folder can be written");
}

pub(crate) fn summaries(report: &Report) -> Vec<Value> {
    let runners = report.0["runners"].as_array();
    runners.cloned().unwrap_or_default()
}

/// Number of seconds in the run file `many.run` of a run that goes on.
pub(crate) fn seconds_so_far(folder: &Path) -> usize {
    let shown = run(folder, ["report", "many.run", "--json", "-"]);
    let report: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
    report["windows"].as_array().map_or(0, Vec::len)
}

/// Waits until this many clients of the run `many.run` are connected. A connection of the
/// coordinator, which asks for a description of the media, is closed before the first second ends.
pub(crate) fn wait_for_clients(folder: &Path, server: &Server, clients: usize) {
    wait_for("all clients are there", PATIENCE, || {
        let there = seconds_so_far(folder) >= 1 && established(server.port) >= clients;
        there.then_some(())
    });
}

#[test]
fn several_runners_count_what_the_server_sent() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &FAULTY);
    scenario(folder.path(), &server.url(), 10, "");
    let ran = run(
        folder.path(),
        [
            "run",
            "many.yaml",
            "--runners",
            "local:3",
            "--json",
            "many.json",
            "-o",
            "many.run",
        ],
    );
    // Loss is above the implied threshold.
    assert!(matches!(ran.status.code(), Some(0 | 99)), "{}", ran.stderr);
    let (_, sent) = server.stop();
    let report = Report::read(&folder.path().join("many.json"));
    report.tester_was_fit();
    assert_eq!(
        (report.clients("started"), report.clients("completed")),
        (10, 10)
    );
    assert!(sent.lost > 0 && sent.duplicated > 0, "{sent:?}");
    assert_eq!(report.counts(), sent);
    let runners = summaries(&report);
    let clients: Vec<u64> = runners
        .iter()
        .map(|one| number(&one["clients_max"]))
        .collect();
    assert_eq!(clients, [4, 3, 3]);
    for runner in &runners {
        let uncertainty = runner["clock_uncertainty"].as_f64().expect("it is known");
        let offset = runner["clock_offset"].as_f64().expect("it is known");
        // All processes of a machine have the same clock.
        assert!(offset.abs() <= uncertainty + 1e-6, "{runner}");
        assert!(runner["began_late"].as_f64().is_some(), "{runner}");
        assert_eq!(runner["lost"], Value::Null, "{runner}");
    }
}

#[test]
fn stream_of_one_runner_is_awaited_by_players_of_another() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let url = format!("rtsp://127.0.0.1:{}/published", server.port);
    let text = format!(
        "duration: 5s\nclients:\n  publishers: {{urls: ['{url}'], publish: {{}}, load: {{clients: 1}}}}\n  \
         viewers: {{urls: ['{url}'], load: {{clients: 4}}}}\n"
    );
    fs::write(folder.path().join("many.yaml"), text).expect("the test's folder can be written");
    let ran = run(
        folder.path(),
        [
            "run",
            "many.yaml",
            "--runners",
            "local:2",
            "--json",
            "many.json",
            "-o",
            "many.run",
        ],
    );
    let ran = ran.expect(0);
    let report = Report::read(&folder.path().join("many.json"));
    let ends = &report.0["populations"]["viewers"]["clients"];
    assert_eq!(number(&ends["failed"]), 0, "{ends}\n{}", ran.stderr);
    let played = &report.0["populations"]["viewers"]["metrics"];
    assert!(number(&played["frames_delivered"]) > 0, "{played}");
}

/// Process IDs of the descendants of a process whose program or first argument is `word`.
fn descendants(of: u32, word: &str) -> Vec<u32> {
    let field = |pid: u32, name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let parent = |pid: u32| -> Option<u32> {
        let stat = field(pid, "stat")?;
        stat.rsplit(')')
            .next()?
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let belongs = |pid: u32| {
        let mut above = Some(pid);
        while let Some(pid) = above.filter(|pid| *pid > 1) {
            if pid == of {
                return true;
            }
            above = parent(pid);
        }
        false
    };
    let all = fs::read_dir("/proc").expect("Linux has it");
    let all = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.parse().ok());
    let is_named = |pid: u32| {
        let words = field(pid, "cmdline").unwrap_or_default();
        words.split('\0').take(2).any(|one| one == word)
    };
    all.filter(|&pid| is_named(pid) && belongs(pid)).collect()
}

#[test]
fn nats_that_is_killed_costs_no_figure() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--length", "8s", "--fault", "loss=2%"]);
    scenario(folder.path(), &server.url(), 6, "");
    let mut command = streamgauge(["run", "many.yaml", "--runners", "local:2"]);
    command.args(["--json", "many.json", "-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for_clients(folder.path(), &server, 6);
    let nats = descendants(coordinator.id(), "nats-server");
    assert_eq!(nats.len(), 1);
    let killed = std::process::Command::new("kill")
        .args(["-9", &nats[0].to_string()])
        .status();
    assert!(killed.expect("there is a kill").success());
    coordinator.finish(PATIENCE);
    let (_, sent) = server.stop();
    let report = Report::read(&folder.path().join("many.json"));
    report.tester_was_fit();
    assert_eq!(report.counts(), sent);
    assert_eq!(report.clients("completed"), 6);
}

#[test]
fn interrupted_run_ends_its_clients_in_order() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--length", "600s"]);
    scenario(folder.path(), &server.url(), 6, "duration: 300s\n");
    let mut command = streamgauge(["run", "many.yaml", "--runners", "local:2"]);
    command.args(["--json", "many.json", "-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for_clients(folder.path(), &server, 6);
    let runners = descendants(coordinator.id(), "runner");
    assert_eq!(runners.len(), 2);
    // As a terminal does it: but runners leave the signal to their coordinator.
    let group = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat
            .rsplit(')')
            .next()
            .map(str::to_owned)
            .unwrap_or_default();
        rest.split_whitespace().nth(2).map(str::to_owned)
    };
    let own = group(coordinator.id());
    assert!(
        runners.iter().any(|pid| group(*pid) != own),
        "they have groups of their own"
    );
    coordinator.signal("INT");
    coordinator.finish(PATIENCE).expect(105);
    let report = Report::read(&folder.path().join("many.json"));
    assert_eq!(
        (report.clients("stopped"), report.clients("failed")),
        (6, 0)
    );
    assert_eq!(established(server.port), 0);
    wait_for("the runners have ended", PATIENCE, || {
        let mut runners = runners.iter();
        runners
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            .then_some(())
    });
}

#[test]
fn unusable_runners_are_one_clear_error() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &[]);
    scenario(folder.path(), &server.url(), 2, "duration: 2s\n");
    let try_at = |arguments: &[&str], text: &str| {
        let all = ["run", "many.yaml", "--no-run-file"]
            .iter()
            .chain(arguments);
        run(folder.path(), all).expect(104).names(text);
    };
    let nobody = format!("nats://127.0.0.1:{}", free_port());
    try_at(
        &["--runners", "2", "--at", &nobody],
        "no process listens there",
    );
    let stranger = at.replace("secret", "wrong");
    try_at(
        &["--runners", "2", "--at", &stranger],
        "refused the user and password",
    );
    try_at(
        &["--runners", "2", "--at", "nats://192.0.2.1"],
        "use `tls://`",
    );
    try_at(&["--runners", "2"], "name the NATS server");
    try_at(&["--runners", "local:0"], "1 to 256 runners");
    try_at(&["--at", &at], "say how many runners");
    let soon = ["--runners", "2", "--runner-timeout", "1s", "--at", &at];
    try_at(&soon, "0 of 2 runners are ready after 1 s");
    let one = runner(folder.path(), &at, "one");
    try_at(&soon, "1 of 2 runners are ready after 1 s (one)");
    run(folder.path(), ["runner", "--at", &at, "--name", "one"])
        .expect(104)
        .names("another runner is called `one`");
    run(folder.path(), ["runner", "--at", &at, "--name", "a.b"])
        .expect(104)
        .names("write 1 to 64 letters");
    drop(one);
    // A runner sends only where its owner permits it.
    let strict = streamgauge([
        "runner",
        "--at",
        &at,
        "--name",
        "strict",
        "--allow-target",
        "::1",
    ]);
    let strict = Process::start(strict, folder.path());
    wait_for("the runner waits for runs", PATIENCE, || {
        strict
            .stderr_text()
            .contains("waits for runs")
            .then_some(())
    });
    let alone = ["--runners", "1", "--at", &at];
    try_at(
        &alone,
        "runner `strict`: its owner permits no clients that send to 127.0.0.1",
    );
    assert_eq!(established(server.port), 0);
    let counts = server.stop().1;
    assert_eq!(counts, Counts::default(), "nothing was started");
}

//! Runs over several runners, connected by a NATS server.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{
    Counts, Process, Report, Server, established, folder, free_port, have, listens, number, run,
    streamgauge, wait_for,
};

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Media with faults that end by themselves.
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

/// Starts a NATS server on this machine. Returns it with its address.
fn nats(folder: &Path) -> (Process, String) {
    let port = free_port();
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}/{port}\" }}\n\
         authorization {{ user: \"me\", password: \"secret\" }}\n",
        folder.display()
    );
    let path = folder.join(format!("nats-{port}.conf"));
    fs::write(&path, text).expect("the test's folder can be written");
    let mut command = std::process::Command::new("nats-server");
    command.arg("-c").arg(&path);
    let mut process = Process::start(command, folder);
    wait_for("NATS listens", PATIENCE, || {
        assert!(process.runs(), "it ended: {}", process.stderr_text());
        listens(port).then_some(())
    });
    (process, format!("nats://me:secret@127.0.0.1:{port}"))
}

/// Starts a runner that waits at this address.
fn runner(folder: &Path, at: &str, name: &str) -> Process {
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
fn scenario(folder: &Path, url: &str, clients: u32, more: &str) {
    let text = format!(
        "clients: {{viewers: {{urls: ['{url}'], end_silence: 3s, load: {{clients: {clients}, ramp: 1s}}}}}}\n\
         {more}"
    );
    fs::write(folder.join("many.yaml"), text).expect("the test's folder can be written");
}

fn summaries(report: &Report) -> Vec<Value> {
    let runners = report.0["runners"].as_array();
    runners.cloned().unwrap_or_default()
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
    wait_for("all clients are there", PATIENCE, || {
        (established(server.port) >= 6).then_some(())
    });
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
    wait_for("all clients are there", PATIENCE, || {
        (established(server.port) >= 6).then_some(())
    });
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
fn runner_that_is_ended_makes_the_run_invalid() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &["--length", "600s"]);
    let one = runner(folder.path(), &at, "one");
    scenario(folder.path(), &server.url(), 3, "duration: 300s\n");
    let mut command = streamgauge(["run", "many.yaml", "--runners", "1", "--at", &at]);
    command.args(["--json", "many.json", "-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for("all clients are there", PATIENCE, || {
        (established(server.port) >= 3).then_some(())
    });
    one.signal("INT");
    coordinator.finish(PATIENCE).expect(110);
    one.finish(PATIENCE).expect(0);
    let report = Report::read(&folder.path().join("many.json"));
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(
        reasons.contains("runner one: it stopped its clients by itself"),
        "{reasons}"
    );
    assert_eq!(
        (report.clients("stopped"), report.clients("failed")),
        (3, 0)
    );
    // The name is free at once.
    let _again = runner(folder.path(), &at, "one");
}

/// Kills one of two runners during a run. Returns the report.
fn run_that_loses_a_runner(more: &str, code: i32) -> Option<Report> {
    if !have("nats-server") {
        return None;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &["--length", "600s"]);
    let _one = runner(folder.path(), &at, "one");
    let two = runner(folder.path(), &at, "two");
    let more = format!("duration: 300s\n{more}");
    scenario(folder.path(), &server.url(), 6, &more);
    let mut command = streamgauge(["run", "many.yaml", "--runners", "2", "--at", &at]);
    command.args(["--json", "many.json", "-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for("whole seconds with all clients are there", PATIENCE, || {
        let there = established(server.port) >= 6 && seconds_so_far(folder.path()) >= 4;
        there.then_some(())
    });
    two.signal("KILL");
    let killed = Instant::now();
    let ended = coordinator.finish(PATIENCE).expect(code);
    assert!(
        killed.elapsed() < Duration::from_secs(30),
        "{}",
        ended.stderr
    );
    let report = Report::read(&folder.path().join("many.json"));
    let runners = summaries(&report);
    assert_eq!(runners[0]["lost"], Value::Null);
    assert_ne!(runners[1]["lost"], Value::Null);
    assert!(
        ended.stdout.contains("runner two of 2 was lost"),
        "{}",
        ended.stdout
    );
    Some(report)
}

/// Number of seconds in the run file `many.run` of a run that goes on.
fn seconds_so_far(folder: &Path) -> usize {
    let shown = run(folder, ["report", "many.run", "--json", "-"]);
    let report: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
    report["windows"].as_array().map_or(0, Vec::len)
}

#[test]
fn killed_runner_makes_the_run_invalid() {
    run_that_loses_a_runner("", 110);
}

#[test]
fn run_that_may_lose_a_runner_is_judged_by_the_seconds_with_all() {
    let Some(report) = run_that_loses_a_runner("tester: {may_lose: 1}\n", 0) else {
        return;
    };
    assert_eq!(report.0["verdict"]["result"], "pass");
    let judged = report.0["run"]["duration"].as_f64().expect("a number");
    // The loss is noticed after ten seconds, in which the clients of one runner were missing.
    assert!((4.0..300.0).contains(&judged), "{judged}");
    let windows = report.0["windows"].as_array().expect("they are listed");
    let playing = |window: &Value| {
        let begins = window["start"].as_f64().expect("a number");
        let active = window["populations"]["viewers"]["metrics"]["active"].as_f64();
        (begins, active)
    };
    for (begins, active) in windows.iter().map(playing) {
        if (2.0..judged).contains(&begins) {
            assert_eq!(
                active,
                Some(6.0),
                "at {begins} s of {judged} s: {windows:?}"
            );
        }
    }
}

#[test]
fn runner_stops_its_clients_if_the_coordinator_is_killed() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &["--length", "600s"]);
    let one = runner(folder.path(), &at, "one");
    scenario(folder.path(), &server.url(), 4, "duration: 300s\n");
    let mut command = streamgauge(["run", "many.yaml", "--runners", "1", "--at", &at]);
    command.args(["-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for("all clients are there", PATIENCE, || {
        (established(server.port) >= 4).then_some(())
    });
    coordinator.signal("KILL");
    wait_for("the clients have left", PATIENCE, || {
        (established(server.port) == 0).then_some(())
    });
    // The run file of the runner is complete.
    wait_for("the runner has left the run", PATIENCE, || {
        one.stderr_text().contains("has ended").then_some(())
    });
    let own = fs::read_dir(folder.path()).expect("it can be read");
    let mut own = own.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let own = own.find(|name| name.ends_with("-one.sgrun"));
    let shown = run(folder.path(), ["report", &own.expect("it has a file")]);
    assert!(
        shown.stdout.contains("viewers"),
        "{}{}",
        shown.stdout,
        shown.stderr
    );
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

#[test]
fn run_goes_on_after_its_coordinator_was_killed() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let longer = FAULTY.map(|word| if word == "3s" { "20s" } else { word });
    let server = Server::start(folder.path(), &longer);
    let _runners = ["one", "two"].map(|name| runner(folder.path(), &at, name));
    scenario(folder.path(), &server.url(), 6, "");
    let words = ["run", "many.yaml", "--runners", "2", "--at", &at];
    let mut command = streamgauge(words);
    command.args(["-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for("whole seconds with all clients are there", PATIENCE, || {
        let there = established(server.port) >= 6 && seconds_so_far(folder.path()) >= 3;
        there.then_some(())
    });
    let mut command = streamgauge(words);
    command.args(["--resume", "many.run", "--json", "many.json"]);
    let early = Process::start(command, folder.path());
    let told = early.finish(PATIENCE).expect(104).stderr;
    assert!(told.contains("its coordinator is alive"), "{told}");
    coordinator.signal("KILL");
    coordinator.finish(PATIENCE);
    let mut command = streamgauge(words);
    command.args(["--resume", "many.run", "--json", "many.json"]);
    let ran = Process::start(command, folder.path()).finish(PATIENCE);
    // Loss is above the implied threshold.
    assert!(matches!(ran.status.code(), Some(0 | 99)), "{}", ran.stderr);
    let (_, sent) = server.stop();
    let report = Report::read(&folder.path().join("many.json"));
    report.tester_was_fit();
    assert_eq!(
        (report.clients("started"), report.clients("completed")),
        (6, 6)
    );
    assert!(sent.lost > 0 && sent.duplicated > 0, "{sent:?}");
    assert_eq!(report.counts(), sent);
    let starts = report.0["windows"].as_array().expect("they are listed");
    let starts: Vec<f64> = starts
        .iter()
        .filter_map(|one| one["start"].as_f64())
        .collect();
    let seconds: Vec<f64> = (0..starts.len()).map(|second| second as f64).collect();
    assert_eq!(starts, seconds, "no second is missing or twice");
    let mut command = streamgauge(words);
    command.args(["--resume", "many.run"]);
    let again = Process::start(command, folder.path());
    let told = again.finish(PATIENCE).expect(104).stderr;
    assert!(told.contains("the run has ended"), "{told}");
}

/// Speaks to NATS over TLS with the certificate that it is given, or none, and prints the answers.
const STRANGER: &str = "
import socket, ssl, sys
port, authority, own, *lines = sys.argv[1:]
plain = socket.create_connection(('localhost', int(port)), timeout=20)
plain.recv(4096)
context = ssl.create_default_context(cafile=authority)
if own:
    context.load_cert_chain(own)
try:
    nats = context.wrap_socket(plain, server_hostname='localhost')
    nats.sendall(''.join(line + '\\r\\n' for line in ['CONNECT {\"verbose\":false}', *lines, 'PING']).encode())
    answer = b''
    while b'PONG' not in answer:
        part = nats.recv(65536)
        if not part:
            break
        answer += part
    print(answer.decode())
except OSError as error:
    print('refused:', error)
";

#[test]
fn keys_permit_each_only_its_own_and_strangers_nothing() {
    let needed = ["nats-server", "python3", "ffmpeg"];
    if !needed.into_iter().all(have) {
        return;
    }
    let folder = folder();
    let port = free_port().to_string();
    let made = ["cluster", "keys", "--host", "localhost", "--port", &port];
    let runners = ["--runner", "one", "--runner", "two"];
    run(folder.path(), made.into_iter().chain(runners)).expect(0);
    let keys = folder.path().join("cluster-keys");
    let mut command = std::process::Command::new("nats-server");
    command.args(["-c", "nats.conf"]);
    let mut nats = Process::start(command, &keys);
    wait_for("NATS listens", PATIENCE, || {
        assert!(nats.runs(), "it ended: {}", nats.stderr_text());
        listens(port.parse().expect("a port")).then_some(())
    });
    let at = format!("tls://localhost:{port}");
    let credentials = |name: &str| match name {
        "coordinator" => keys.join("coordinator.pem"),
        name => keys.join("runners").join(format!("{name}.pem")),
    };
    let command = |words: &[&str], name: &str| {
        let mut command = streamgauge(words.iter().copied());
        command
            .args(["--at", &at, "--creds"])
            .arg(credentials(name));
        command
    };

    let runners = ["one", "two"].map(|name| {
        let mut process = Process::start(command(&["runner", "--name", name], name), folder.path());
        wait_for("the runner waits for runs", PATIENCE, || {
            assert!(process.runs(), "it ended: {}", process.stderr_text());
            let text = process.stderr_text();
            text.contains("waits for runs").then_some(())
        });
        process
    });
    let server = Server::start(folder.path(), &[]);
    clip(&folder.path().join("clip.ts"));
    let url = format!("rtsp://127.0.0.1:{}/published", server.port);
    let text = format!(
        "duration: 5s\nclients:\n  publishers: {{urls: ['{url}'], publish: {{file: clip.ts}}, load: {{clients: 1}}}}\n  \
         viewers: {{urls: ['{url}'], load: {{clients: 4}}}}\n"
    );
    fs::write(folder.path().join("many.yaml"), text).expect("the test's folder can be written");
    let words = ["run", "many.yaml", "--runners", "2", "--json", "many.json"];
    let ran = Process::start(command(&words, "coordinator"), folder.path());
    let ran = ran.finish(PATIENCE);
    // Nobody lacked a right.
    let log = nats.stderr_text();
    assert!(!log.contains("Violation"), "{log}");
    ran.expect(0);
    let report = Report::read(&folder.path().join("many.json"));
    let played = &report.0["populations"]["viewers"]["metrics"];
    assert!(number(&played["frames_delivered"]) > 0, "{played}");

    // A runner cannot take the name in the certificate of another.
    let wrong = Process::start(command(&["runner", "--name", "one"], "two"), folder.path());
    let told = wrong.finish(PATIENCE).expect(104).stderr;
    assert!(
        told.contains("does not permit this runner the name `one`"),
        "{told}"
    );
    let unknown = Process::start(streamgauge(["runner", "--at", &at]), folder.path());
    unknown.finish(PATIENCE).expect(104);

    let speak = |name: Option<&str>, lines: &[&str]| {
        let own = name.map(credentials);
        let mut python = std::process::Command::new("python3");
        python
            .args(["-c", STRANGER, &port])
            .arg(keys.join("ca.pem"));
        python.arg(own.unwrap_or_default()).args(lines);
        let output = python.output().expect("python3 is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told = speak(None, &["SUB sg.> 1", "PUB sg.hello 2\r\n{}"]);
    assert!(told.contains("refused") && !told.contains("PONG"), "{told}");
    // A runner neither reads nor writes what is another's.
    for line in [
        "SUB sg.do.one.* 1",
        "SUB sg.r.*.one 1",
        "SUB sg.> 1",
        "SUB _INBOX_one.> 1",
        "SUB _INBOX_coordinator.> 1",
        "SUB > 1",
        "PUB sg.do.one.x 2\r\n{}",
        "PUB sg.hello 2\r\n{}",
        "PUB sg.lead.x 2\r\n{}",
        "PUB sg.r.x.one 2\r\n{}",
        "PUB sg.beat.x.one 2\r\n{}",
        "PUB _INBOX_coordinator.x 2\r\n{}",
        "PUB $KV.sg_names.one 2\r\n{}",
        "PUB $O.sg_files.C.x 2\r\n{}",
        "PUB $JS.API.STREAM.DELETE.SG_REPORTS 2\r\n{}",
        "PUB $JS.API.STREAM.UPDATE.SG_REPORTS 2\r\n{}",
        "PUB $JS.API.STREAM.PURGE.SG_REPORTS 2\r\n{}",
        "PUB $JS.API.CONSUMER.CREATE.SG_REPORTS.x 2\r\n{}",
        "PUB $JS.API.CONSUMER.DURABLE.CREATE.SG_REPORTS.x 2\r\n{}",
        "PUB $JS.API.STREAM.MSG.GET.SG_REPORTS 2\r\n{}",
    ] {
        let told = speak(Some("two"), &[line]);
        assert!(told.contains("Permissions Violation"), "{line}: {told}");
    }
    let told = speak(
        Some("two"),
        &["SUB sg.do.two.* 1", "PUB sg.r.x.two 2\r\n{}"],
    );
    assert!(told.contains("PONG") && !told.contains("-ERR"), "{told}");
    drop(runners);
}

/// Makes a short clip.
fn clip(path: &Path) {
    let mut command = std::process::Command::new("ffmpeg");
    command.args([
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "testsrc=size=160x120:rate=25:duration=2",
    ]);
    command
        .args(["-c:v", "libx264", "-bf", "0", "-g", "25", "-f", "mpegts"])
        .arg(path);
    let made = command.status().expect("ffmpeg is there");
    assert!(made.success());
}

#[test]
fn runner_observes_the_server_on_its_machine() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &[]);
    // A machine without systemd has none.
    let systemctl = folder.path().join("systemctl");
    let script = format!("#!/bin/sh\necho {}\n", server.id());
    fs::write(&systemctl, script).expect("the test's folder can be written");
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).expect("it was written");
    fs::write(folder.path().join("server.log"), "error: before\n").expect("it can be written");
    let path = std::env::var("PATH").expect("there is one");
    let mut command = streamgauge(["runner", "--at", &at, "--name", "beside"]);
    command.args(["--observe", "media.service", "--log", "server.log"]);
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    let mut beside = Process::start(command, folder.path());
    wait_for("the runner waits for runs", PATIENCE, || {
        assert!(beside.runs(), "it ended: {}", beside.stderr_text());
        let text = beside.stderr_text();
        text.contains("waits for runs").then_some(())
    });
    let _one = runner(folder.path(), &at, "one");
    let more = "duration: 8s\nserver: {observe: {runner: beside}, log: {match: [broken]}}\n\
                thresholds: ['server.rss > 1MB', 'server.cpu > 0.1%', 'server.log_complaints >= 1']\n";
    scenario(folder.path(), &server.url(), 20, more);
    let mut command = streamgauge(["run", "many.yaml", "--runners", "1", "--at", &at]);
    command.args(["--json", "many.json", "-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for("all clients are there", PATIENCE, || {
        (established(server.port) >= 20).then_some(())
    });
    let mut log = fs::File::options();
    let log = log.append(true).open(folder.path().join("server.log"));
    let added = writeln!(log.expect("it is there"), "something is broken\nan error");
    added.expect("it can be written");
    coordinator.finish(PATIENCE).expect(0);
    let report = Report::read(&folder.path().join("many.json"));
    let complaints = &report.0["server"]["log_complaints"];
    assert_eq!(number(complaints), 1, "{}", report.0["server"]);

    server.signal("KILL");
    // Without its server it has nothing to do.
    beside.finish(PATIENCE).expect(104);
}

#[test]
fn run_fails_if_the_server_that_a_runner_observes_ends() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &[]);
    // The clients do not notice its end.
    let mut other = std::process::Command::new("sleep");
    other.arg("600");
    let other = Process::start(other, folder.path());
    let mut command = streamgauge(["runner", "--at", &at, "--name", "beside", "--once"]);
    command.args(["--observe", &other.id().to_string()]);
    let mut beside = Process::start(command, folder.path());
    wait_for("the runner waits for runs", PATIENCE, || {
        assert!(beside.runs(), "it ended: {}", beside.stderr_text());
        let text = beside.stderr_text();
        text.contains("waits for runs").then_some(())
    });
    let _one = runner(folder.path(), &at, "one");
    let more = "duration: 6s\nserver: {observe: {runner: beside}}\n";
    scenario(folder.path(), &server.url(), 2, more);
    let words = ["run", "many.yaml", "--runners", "1", "--at", &at];
    let coordinator = Process::start(streamgauge(words), folder.path());
    wait_for("all clients are there", PATIENCE, || {
        (established(server.port) >= 2).then_some(())
    });
    other.signal("KILL");
    let told = coordinator.finish(PATIENCE).expect(99);
    assert!(told.stdout.contains("the server ended"), "{}", told.stdout);
    beside.finish(PATIENCE).expect(0);
}

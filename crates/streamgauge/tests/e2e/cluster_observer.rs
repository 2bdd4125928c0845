//! A runner that observes the server on its machine.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use crate::cluster::{PATIENCE, nats, runner, scenario};
use crate::support::{
    Process, Report, Server, established, folder, have, number, streamgauge, wait_for,
};

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

//! The process that is measured must be the one that serves.

use crate::support::{Process, Report, Server, folder, run, streamgauge};
use std::time::Duration;

fn load(folder: &std::path::Path, url: &str, pid: u32) -> crate::support::Finished {
    let arguments = format!("load {url} -c 3 -d 5s --pid {pid} --json out.json");
    run(folder, arguments.split(' '))
}

#[test]
fn process_that_serves_is_measured() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "1Mbps"]);
    load(folder.path(), &server.url(), server.id()).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    let server = &report.0["server"];
    assert!(server["cpu"]["mean"].as_f64() > Some(0.0), "{server}");
    assert!(server["uss"]["max"].as_f64() > Some(100_000.0), "{server}");
    assert!(server["threads"]["max"].as_f64() >= Some(1.0), "{server}");
}

#[test]
fn wrong_process_makes_the_run_invalid_and_is_named() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let other = Server::start(folder.path(), &[]);
    load(folder.path(), &server.url(), other.id()).expect(110);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.result(), "invalid");
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(reasons.contains(&server.id().to_string()), "{reasons}");
}

#[test]
fn process_without_the_port_makes_the_run_invalid() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    // The discard port, on which nobody listens.
    load(folder.path(), "rtsp://127.0.0.1:9/a", server.id()).expect(110);
    let report = Report::read(&folder.path().join("out.json"));
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(
        reasons.contains("no process listens on port 9"),
        "{reasons}"
    );
}

#[test]
fn process_that_does_not_run_is_an_error() {
    let folder = folder();
    let gone = Process::start(streamgauge(["--version"]), folder.path());
    let pid = gone.id();
    gone.finish(Duration::from_secs(60));
    load(folder.path(), "rtsp://127.0.0.1:9/a", pid)
        .expect(104)
        .names(&pid.to_string());
}

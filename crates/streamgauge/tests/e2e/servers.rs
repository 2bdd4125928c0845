//! Real servers: what they send arrives and is counted, and clients end with the media.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{Process, RUN_TIMEOUT, Report, folder, free_port, have, number, streamgauge};

/// Number of clients.
const CLIENTS: u64 = 5;

/// Runs a scenario in which a known server plays video clips of four seconds to their end.
fn plays_to_the_end(server: &str, transport: &str) -> Report {
    let folder = folder();
    let port = free_port();
    let text = format!(
        "name: {server} over {transport}
server:
  launch: {server}
  port: {port}
  clips: {{ directory: clips, count: 3, length: 4s, video: 1Mbps }}
clients:
  viewers:
    protocol: rtsp
    urls: [\"rtsp://127.0.0.1:{port}/clip{{1..3}}\"]
    transport: {transport}
    leave: at_end
    load: {{ clients: {CLIENTS}, start: at_once }}
thresholds:
  - \"viewers.loss <= 0%\"
"
    );
    fs::write(folder.path().join("test.yaml"), text).expect("the test's folder can be written");
    let arguments = ["run", "test.yaml", "--json", "out.json"];
    let run = Process::start(streamgauge(arguments), folder.path());
    // The time limit includes making the clips.
    run.finish(RUN_TIMEOUT + Duration::from_secs(30)).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    report.tester_was_fit();
    assert_eq!(report.result(), "pass");
    assert_eq!(report.clients("started"), CLIENTS);
    assert_eq!(
        report.clients("completed"),
        CLIENTS,
        "{}",
        report.0["populations"]
    );
    let counts = report.counts();
    assert_eq!(
        (counts.lost, counts.duplicated, counts.reordered),
        (0, 0, 0),
        "{counts:?}"
    );
    // One megabit a second for about four seconds each. VLC ends before its clip, on a busy machine
    // perhaps earlier than usual.
    let bytes = number(report.metric("payload_bytes"));
    let whole = CLIENTS * 4 * 125_000;
    assert!(
        (whole * 4 / 10..whole * 14 / 10).contains(&bytes),
        "{bytes} of {whole}"
    );
    assert!(
        report.0["server"]["cpu"]["mean"].as_f64() > Some(0.0),
        "{}",
        report.0["server"]
    );
    report
}

#[test]
fn vlc_plays_to_the_end_over_udp() {
    if have("vlc") && have("ffmpeg") {
        plays_to_the_end("vlc", "udp");
    }
}

#[test]
fn gstreamer_plays_to_the_end_over_udp() {
    if have("ffmpeg") && have_gstreamer() {
        plays_to_the_end("gstreamer", "udp");
    }
}

#[test]
fn gstreamer_plays_to_the_end_over_tcp() {
    if have("ffmpeg") && have_gstreamer() {
        plays_to_the_end("gstreamer", "tcp");
    }
}

#[test]
fn refusal_of_tcp_by_vlc_is_the_failure_of_every_client() {
    if !(have("vlc") && have("ffmpeg")) {
        return;
    }
    let folder = folder();
    let port = free_port();
    let text = format!(
        "server: {{ launch: vlc, port: {port}, clips: {{ directory: clips, count: 1, length: 2s }} }}
clients:
  viewers: {{ protocol: rtsp, urls: [\"rtsp://127.0.0.1:{port}/clip1\"], transport: tcp, load: {{ clients: 3 }} }}
name: VLC has no RTP over TCP
"
    );
    fs::write(folder.path().join("test.yaml"), text).expect("the test's folder can be written");
    let arguments = ["run", "test.yaml", "--json", "out.json"];
    let run = Process::start(streamgauge(arguments), folder.path());
    run.finish(RUN_TIMEOUT).expect(99);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(
        report.failures("status_461"),
        3,
        "{}",
        report.0["populations"]
    );
}

pub(crate) fn have_gstreamer() -> bool {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ];
    let found = folders.iter().any(|folder| {
        Path::new(folder)
            .join("girepository-1.0/GstRtspServer-1.0.typelib")
            .exists()
    });
    assert!(
        found || std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some(),
        "GStreamer's RTSP server is missing: ./test installs it"
    );
    found
}

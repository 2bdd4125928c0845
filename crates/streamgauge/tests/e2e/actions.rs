//! Clients that pause, seek and ask for fast forward, against the servers of GStreamer and VLC.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port, have, run_concurrently, streamgauge,
};

const CLIENTS: u64 = 3;

/// Runs clients that pause once, seek twice (the second time back), ask for double speed and leave.
/// Returns the report.
fn acts(server: &str, transport: &str) -> Report {
    let folder = folder();
    let port = free_port();
    let text = format!(
        "name: {server} over {transport}
server:
  launch: {server}
  port: {port}
  clips: {{ directory: clips, count: 1, length: 30s, video: 500kbps }}
clients:
  viewers:
    protocol: rtsp
    urls: [\"rtsp://127.0.0.1:{port}/clip1\"]
    transport: {transport}
    playout_buffer: 3s
    load: {{ clients: {CLIENTS}, one_every: 200ms }}
    actions:
      - wait: 1s
      - pause: 4s
      - wait: 4s
      - seek: 15s..20s
      - wait: 4s
      - seek: 2s
      - wait: 4s
      - scale: 2
      - wait: 1s
      - leave: {{}}
"
    );
    fs::write(folder.path().join("test.yaml"), text).expect("the test's folder can be written");
    let arguments = ["run", "test.yaml", "--json", "out.json"];
    let run = Process::start(streamgauge(arguments), folder.path());
    // The time limit includes making the clip.
    run.finish(RUN_TIMEOUT + Duration::from_secs(30)).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    report.tester_was_fit();
    let populations = &report.0["populations"];
    assert_eq!(report.clients("stopped"), CLIENTS, "{populations}");
    let count = |name: &str| report.metric(name).as_u64();
    assert_eq!(count("actions"), Some(4 * CLIENTS), "{populations}");
    // The pause is longer than the playout buffer. The playout buffer is longer than a busy machine
    // keeps a server from sending.
    for none in [
        "actions_refused",
        "range_mismatch",
        "position_untold",
        "restarts",
        "stalls",
    ] {
        assert_eq!(count(none), Some(0), "{none}: {populations}");
    }
    // Both servers report that they do not support it: one plays as usual, the other calls it
    // `Speed`.
    assert_eq!(count("scale_mismatch"), Some(CLIENTS), "{populations}");
    let often = |name: &str| report.metric(name)["count"].as_u64();
    assert_eq!(often("seek_delay"), Some(2 * CLIENTS));
    assert_eq!(often("seek_to_media"), Some(2 * CLIENTS));
    assert_eq!(often("resume_to_media"), Some(CLIENTS));
    report
}

#[test]
fn gstreamer_pauses_and_seeks() {
    if have("ffmpeg") && crate::servers::have_gstreamer() {
        run_concurrently(&["udp", "tcp"], |transport| {
            let report = acts("gstreamer", transport);
            // A pause of four seconds is no gap.
            let gap: &Value = &report.metric("longest_gap")["max"];
            assert!(gap.as_f64() < Some(3.5), "{gap}");
        });
    }
}

#[test]
fn vlc_pauses_and_seeks_late() {
    if have("ffmpeg") && have("vlc") {
        let report = acts("vlc", "udp");
        // VLC continues with its buffered media of the old position and does not announce it. It
        // does the same in a pause, which therefore counts as a gap once it ends.
        assert!(report.metric("clock_jumps").as_u64() > Some(0));
    }
}

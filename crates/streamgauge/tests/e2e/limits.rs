//! What limited the server: what is said of it, and that it is said of nothing else.

use std::fs;
use std::time::Duration;

use crate::support::{
    Process, RUN_WITHIN, Report, folder, free_port, have, number, run, streamgauge,
};

/// The statement of that kind.
fn limit(report: &Report, kind: &str) -> Option<String> {
    let limits = report.0["server_limits"].as_array().expect("a list");
    let found = limits.iter().find(|limit| limit["kind"] == kind)?;
    Some(found["text"].as_str().expect("a text").to_owned())
}

#[test]
fn vlc_that_may_open_few_files_is_found_out() {
    if !(have("vlc") && have("ffmpeg") && have("setpriv")) {
        return;
    }
    let folder = folder();
    let vlm = folder.path().join("vlm.conf");
    let clip = folder.path().join("clips/clip1.mp4");
    let conf = format!("new v vod enabled\nsetup v input {}\n", clip.display());
    fs::write(&vlm, conf).expect("written");
    // Each client costs it about five, so that it stays within five of its limit where there is no
    // room for one more: 2 %. Nobody leaves before the end: one second at the limit is not told
    // yet, and a busy machine takes seconds to get there.
    // Without file descriptors VLC's libgcrypt aborts if it was not initialised before: what that
    // looks like is not tested here.
    const ATTEMPTS: usize = 5;
    for (files, clients, seconds) in [(240, 60, 25), (900, 3, 8)] {
        let port = free_port();
        let text = format!(
            "server:
  command: [setpriv, --reuid, '65534', --regid, '65534', --clear-groups, env, HOME=/tmp, sh, -c,
    'ulimit -n {files} && exec vlc -I dummy --rtsp-port {port} --vlm-conf {}']
  clips: {{ directory: clips, count: 1, length: 30s, video: 300kbps }}
  ready: {{ port: {port} }}
clients:
  viewers: {{ urls: ['rtsp://127.0.0.1:{port}/v'], load: {{ clients: {clients}, ramp: 2s }}, request_timeout: 5s, no_media: 20s }}
duration: {seconds}s
thresholds: ['viewers.failed <= 100']
",
            vlm.display()
        );
        fs::write(folder.path().join("test.yaml"), text).expect("written");
        let arguments = ["run", "test.yaml", "--json", "out.json", "--no-run-file"];
        let play = || {
            let run = Process::start(streamgauge(arguments), folder.path());
            run.finish(RUN_WITHIN + Duration::from_secs(30))
        };
        let mut attempts = (0..ATTEMPTS).map(|_| play());
        let finished = attempts.find(|finished| !finished.stdout.contains("libgcrypt: Too many"));
        finished.expect("VLC goes on").expect(0);
        let report = Report::read(&folder.path().join("out.json"));
        let (descriptors, log) = (limit(&report, "file_descriptors"), limit(&report, "log"));
        let share = &report.0["server"]["file_descriptors_share"]["max"];
        if clients == 3 {
            assert_eq!((descriptors, log), (None, None));
            assert!(share.as_f64() < Some(0.3), "{share}");
            continue;
        }
        assert!(share.as_f64() >= Some(0.95), "{share}");
        let descriptors = descriptors.expect("it had no more");
        assert!(
            descriptors.contains(" % of the file descriptors"),
            "{descriptors}"
        );
        let log = log.expect("it said so");
        assert!(log.contains("lines"), "{log}");
        let said = report.0["server_log"]["complaints"].to_string();
        assert!(
            said.contains("Too many open files") || said.contains("error"),
            "{said}"
        );
    }
}

#[test]
fn a_named_log_is_held_against_own_patterns() {
    let folder = folder();
    let port = free_port();
    fs::write(folder.path().join("server.log"), "overrun 0\n").expect("written");
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let text = format!(
        "server:
  command: [sh, -c, '(while sleep 0.5; do echo overrun 7 >> server.log; echo overrun 8 again >> server.log; echo an error; done) & exec {program} serve rtsp -q --port {port}']
  directory: .
  ready: {{ port: {port} }}
  log: {{ file: server.log, match: ['overrun [1-9]'], ignore: [again] }}
clients: {{ viewers: {{ urls: ['rtsp://127.0.0.1:{port}/a'], load: {{ clients: 1 }} }} }}
duration: 4s
"
    );
    fs::write(folder.path().join("test.yaml"), text).expect("written");
    let arguments = ["run", "test.yaml", "--json", "out.json"];
    run(folder.path(), arguments).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    let complaints = &report.0["server_log"]["complaints"];
    assert_eq!(complaints.as_array().map(Vec::len), Some(1), "{complaints}");
    assert_eq!(complaints[0]["first"], "overrun 7");
    let lines = number(&report.0["server"]["log_complaints"]);
    assert!((3..=12).contains(&lines), "{lines}");
    assert_eq!(number(&complaints[0]["lines"]), lines);
    let text = limit(&report, "log").expect("it is said");
    assert!(text.contains(&format!("{lines} such as")), "{text}");
    let events = report.0["events"].to_string();
    assert_eq!(events.matches("server_log").count(), 3, "{events}");

    fs::write(
        folder.path().join("test.yaml"),
        "server: {observe: {pid: 1}, log: {match: [a]}}\nclients: {viewers: {urls: ['rtsp://h/a'], load: {clients: 1}}}\n",
    )
    .expect("written");
    let refused = run(folder.path(), ["check", "--offline", "test.yaml"]).expect(104);
    refused.names("log: {file:");

    fs::write(
        folder.path().join("test.yaml"),
        "server: {launch: vlc, log: {ignore: []}}\nclients: {viewers: {urls: ['rtsp://h/a'], load: {clients: 1}}}\n",
    )
    .expect("written");
    let refused = run(folder.path(), ["check", "--offline", "test.yaml"]).expect(104);
    refused.names("server.log.ignore");
}

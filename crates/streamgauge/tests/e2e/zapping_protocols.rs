//! Clients that change between streams of the reference servers of each protocol.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port, free_udp_port, listens, number, run,
    streamgauge, wait_for,
};

/// Number of clients, and of channel changes of each.
const CLIENTS: u64 = 3;
const CHANGES: u64 = 3;

/// Runs clients that change channel against the reference server of this protocol. Returns the
/// report, and the lines that the server reported.
fn zap(protocol: &str, port: u16, urls: &str, keys: &str, folder: &Path) -> (Report, Vec<String>) {
    let arguments = ["serve", protocol, "--port", &port.to_string()];
    let mut command = streamgauge(arguments);
    command.args(["--report", "served.jsonl"]);
    let server = Process::start(command, folder);
    wait_for("the server is ready", Duration::from_secs(60), || {
        (listens(port) || crate::srt::sockets(port, false) > 0).then_some(())
    });
    let scenario = format!(
        "duration: 120s
clients:
  viewers:
    urls: [\"{urls}\"]
    pick: in_turn
    {keys}
    zap: {{ every: 2s, count: {CHANGES} }}
    load: {{ clients: {CLIENTS}, start: at_once }}
"
    );
    fs::write(folder.join("run.yaml"), scenario).expect("the folder can be written to");
    run(folder, ["run", "run.yaml", "--json", "out.json"]).expect(0);
    server.signal("TERM");
    server.finish(RUN_TIMEOUT);
    let served = fs::read_to_string(folder.join("served.jsonl")).expect("it was written");
    let lines = served.lines().map(str::to_owned).collect();
    (Report::read(&folder.join("out.json")), lines)
}

#[track_caller]
fn assert_all_changed(report: &Report) {
    let count = |name: &str| number(report.metric(name));
    assert_eq!(report.clients("failed"), 0);
    assert_eq!(count("zaps"), CLIENTS * CHANGES);
    assert_eq!(
        (count("zaps_failed"), count("zaps_unfinished")),
        (0, 0),
        "{:?}",
        report.metric("zap_delay")
    );
    for name in ["zap_delay", "zap_first_byte_delay"] {
        let delay = report.metric(name);
        assert_eq!(
            number(&delay["count"]),
            CLIENTS * CHANGES,
            "{name}: {delay}"
        );
    }
    assert_eq!(number(&report.metric("startup_delay")["count"]), CLIENTS);
}

#[test]
fn rtsp_clients_play_other_streams() {
    for transport in ["tcp", "udp"] {
        let (folder, port) = (folder(), free_port());
        let keys = format!("transport: {transport}");
        let urls = format!("rtsp://127.0.0.1:{port}/channel{{1..4}}");
        let (report, served) = zap("rtsp", port, &urls, &keys, folder.path());
        assert_all_changed(&report);
        assert_eq!(number(report.metric("lost")), 0);
        // A line for each stream that was played, and one for all.
        assert_eq!(served.len() as u64, CLIENTS * (CHANGES + 1) + 1);
    }
}

#[test]
fn rtmp_clients_play_other_streams_in_their_connections() {
    let (folder, port) = (folder(), free_port());
    let urls = format!("rtmp://127.0.0.1:{port}/live/channel{{1..4}}");
    let (report, _) = zap("rtmp", port, &urls, "silence: 5s", folder.path());
    assert_all_changed(&report);
    assert_eq!(number(&report.metric("connect_delay")["count"]), CLIENTS);
}

#[test]
fn srt_clients_connect_with_other_stream_ids() {
    let (folder, port) = (folder(), free_udp_port());
    // With its usual latency SRT gives up what a busy machine keeps for a second.
    let urls = format!("srt://127.0.0.1:{port}?streamid=channel{{1..4}}&latency=4000");
    let (report, served) = zap("srt", port, &urls, "silence: 5s", folder.path());
    assert_all_changed(&report);
    assert_eq!(number(report.metric("continuity_errors")), 0);
    let connections = served.iter().filter(|line| line.contains("\"connection\""));
    assert_eq!(connections.count() as u64, CLIENTS * (CHANGES + 1));
    // The pictures of the reference server have time codes.
    let published = number(report.metric("frames_published"));
    assert!(published > 0);
    assert_eq!(number(report.metric("frames_delivered")), published);
    assert_eq!(number(&report.metric("frame_delay")["count"]), published);
}

#[test]
fn whep_clients_open_other_sessions() {
    let (folder, port) = (folder(), free_port());
    let urls = format!("whep+http://127.0.0.1:{port}/whep/channel{{1..4}}");
    let keys = "receive: decrypted";
    let (report, served) = zap("webrtc", port, &urls, keys, folder.path());
    assert_all_changed(&report);
    assert_eq!(number(report.metric("lost")), 0);
    assert_eq!(served.len() as u64, CLIENTS * (CHANGES + 1) + 1);
}

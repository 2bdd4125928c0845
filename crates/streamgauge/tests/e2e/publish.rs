//! Clients that publish and clients that play their streams, in one scenario, through the reference
//! server.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Process, Report, Server, folder, have, number, run, streamgauge, wait_for};

fn scenario(url: &str, up: &str, down: &str) -> String {
    format!(
        "name: relay
duration: 6s
clients:
  publishers:
    urls: [\"{url}{{1..2}}\"]
    transport: {up}
    publish: {{ bitrate: 500kbps, audio: true }}
    load: {{ clients: 2 }}
  viewers:
    urls: [\"{url}{{1..2}}\"]
    pick: in_turn
    transport: {down}
    load: {{ clients: 4 }}
thresholds: [\"viewers.frame_loss <= 0%\", \"publishers.publish_delay.p99 < 20s\"]
"
    )
}

fn of<'a>(report: &'a Report, population: &str, metric: &str) -> &'a Value {
    &report.0["populations"][population]["metrics"][metric]
}

/// Publishes over `up`, plays over `down`, receives media over UDP by `receive`, and checks that
/// every frame arrives. Returns the receive path, or `None` if a ring is demanded that this machine
/// does not have.
fn every_frame_comes(up: &str, down: &str, receive: &str) -> Option<String> {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let text = scenario(&server.url(), up, down);
    fs::write(folder.path().join("relay.yaml"), text).expect("the folder is ours");
    let set = format!("tester.receive={receive}");
    let arguments = ["run", "relay.yaml", "--json", "relay.json", "--set", &set];
    let finished = run(folder.path(), arguments);
    if finished
        .stderr
        .contains("cannot be received by a packet ring")
    {
        return None;
    }
    finished.expect(0);
    let report = Report::read(&folder.path().join("relay.json"));
    report.tester_was_fit();
    let count = |population, metric| number(of(&report, population, metric));
    // Six seconds of 25 pictures for each of four viewers, or fewer if a busy machine begins late.
    let published = count("viewers", "frames_published");
    assert!(published >= 200, "{published} {up} {down}");
    assert_eq!(count("viewers", "frames_delivered"), published);
    assert_eq!(count("viewers", "time_codes_ahead"), 0);
    let delays = &of(&report, "viewers", "frame_delay");
    assert_eq!(number(&delays["count"]), published);
    let p50 = delays["p50"].as_f64().expect("a time");
    assert!(p50 > 0.0 && p50 < 5.0, "{p50} s");
    // Two publishers send pictures, and sound of 50 frames a second. Two viewers get each picture,
    // so for two frames of theirs there are three that were sent, or more if viewers come late.
    let sent = count("publishers", "sent_frames");
    assert!(2 * sent + 60 >= 3 * published, "{sent} {published}");
    assert_eq!(count("publishers", "stopped"), 2);
    assert_eq!(count("viewers", "failed"), 0);
    drop(server.stop());
    let path = report.0["tester"]["receive_path"].as_str();
    Some(path.unwrap_or_default().to_owned())
}

#[test]
fn every_frame_comes_over_tcp() {
    assert!(every_frame_comes("tcp", "tcp", "auto").is_some());
}

#[test]
fn every_frame_comes_over_udp_by_sockets() {
    let path = every_frame_comes("udp", "udp", "sockets");
    assert_eq!(path.as_deref(), Some("sockets"));
}

#[test]
fn every_frame_comes_over_udp_by_ring() {
    // `None` if there is no ring.
    let path = every_frame_comes("udp", "udp", "ring");
    assert!(path.is_none_or(|path| path == "ring"));
}

#[test]
fn refused_publishing_fails_publishers_and_waiting_viewers() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--fault", "refuse=ANNOUNCE:405"]);
    let text = scenario(&server.url(), "tcp", "tcp");
    fs::write(folder.path().join("relay.yaml"), text).expect("the folder is ours");
    let ran = run(folder.path(), ["run", "relay.yaml", "--json", "relay.json"]).expect(99);
    // The cause, although its consequence concerns more clients.
    let second = ran.stdout.lines().nth(1).unwrap_or_default();
    assert!(
        second.contains("2 of 2 clients of `publishers` failed"),
        "{}",
        ran.stdout
    );
    let report = Report::read(&folder.path().join("relay.json"));
    let failed = |population: &str, reason: &str| {
        let failures = &report.0["populations"][population]["clients"]["failures"];
        failures[reason].as_u64()
    };
    assert_eq!(failed("publishers", "status_405"), Some(2));
    assert_eq!(failed("viewers", "no_publisher"), Some(4));
    drop(server.stop());
}

#[test]
fn ffmpeg_decodes_what_is_published() {
    if !have("ffmpeg") {
        return;
    }
    let folder = folder();
    // The server's own stream has another name, so ffmpeg can only find what was published.
    let server = Server::start(folder.path(), &["--streams", "1"]);
    let text = scenario(&server.url(), "tcp", "tcp").replace("6s", "180s");
    fs::write(folder.path().join("relay.yaml"), text).expect("the folder is ours");
    let publishing = Process::start(streamgauge(["run", "relay.yaml"]), folder.path());
    let url = format!("{}1", server.url());
    let decoded = wait_for("a decoded picture", Duration::from_secs(60), || {
        let output = Command::new("ffmpeg")
            .args([
                "-v",
                "error",
                "-xerror",
                "-rtsp_transport",
                "tcp",
                "-i",
                &url,
            ])
            .args(["-map", "0", "-frames:v", "30", "-f", "null", "-"])
            .output()
            .expect("it is installed");
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    publishing.signal("INT");
    drop(publishing);
    assert!(!decoded.contains("error"), "{decoded}");
    drop(server.stop());
}

#[test]
fn files_are_published_in_a_loop() {
    if !have("ffmpeg") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    for name in ["clip.mp4", "clip.ts"] {
        let made = Command::new("ffmpeg")
            .args([
                "-v",
                "error",
                "-f",
                "lavfi",
                "-i",
                "testsrc2=size=320x240:rate=25",
            ])
            .args([
                "-f", "lavfi", "-i", "sine", "-t", "2", "-c:v", "libx264", "-bf", "2",
            ])
            .args(["-preset", "veryfast", "-g", "25", "-c:a", "aac"])
            .arg(folder.path().join(name))
            .status();
        assert!(made.expect("it is installed").success());
    }
    // The playout buffer hides a stall of a busy machine, but not a loop that begins again in time.
    let text = scenario(&server.url(), "tcp", "udp")
        .replace("{ bitrate: 500kbps, audio: true }", "{ file: clip.mp4 }")
        .replace("pick: in_turn", "pick: in_turn\n    playout_buffer: 5s")
        .replace("6s", "15s")
        + &format!(
            "  more:
    urls: [\"{0}3\"]
    transport: udp
    publish: {{ file: clip.ts, audio: false, pacing: spread }}
    load: {{ clients: 1 }}
  watchers:
    urls: [\"{0}3\"]
    transport: tcp
    playout_buffer: 5s
    load: {{ clients: 2 }}
",
            server.url()
        );
    // Thresholds are at the end, and populations before them.
    let (before, thresholds) = text.split_once("thresholds:").expect("there are some");
    let (thresholds, more) = thresholds.split_once('\n').expect("a line of its own");
    let text = format!("{before}{more}thresholds:{thresholds}\n");
    fs::write(folder.path().join("relay.yaml"), text).expect("the folder is ours");
    run(folder.path(), ["run", "relay.yaml", "--json", "relay.json"]).expect(0);
    let report = Report::read(&folder.path().join("relay.json"));
    report.tester_was_fit();
    for (players, clients) in [("viewers", 4), ("watchers", 2)] {
        let published = number(of(&report, players, "frames_published"));
        // At least two loops, with every frame of each.
        assert!(published >= clients * 100, "{published} {players}");
        assert_eq!(number(of(&report, players, "frames_delivered")), published);
        assert_eq!(number(of(&report, players, "restarts")), 0);
        assert_eq!(number(of(&report, players, "stalls")), 0);
    }
    drop(server.stop());
    run(
        folder.path(),
        [
            "run",
            "relay.yaml",
            "--set",
            "clients.more.publish.file=none.mp4",
        ],
    )
    .expect(104)
    .names("none.mp4");
}

//! WebRTC: counts equal what the reference server did, over WHEP and through WHIP.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Process, Report, folder, free_port, number, run, run_concurrently, streamgauge, wait_for,
};

/// Starts the reference server on this port.
fn serve(folder: &Path, port: u16, with: &[&str]) -> Process {
    let mut command = streamgauge(["serve", "webrtc", "--port", &port.to_string()]);
    command.args(["--report", "served.jsonl"]).args(with);
    let mut server = Process::start(command, folder);
    server.listen(port);
    server
}

/// Stops the server. Returns its report about each session, and the totals.
fn served(server: Process, folder: &Path) -> (Vec<Value>, Value) {
    server.signal("TERM");
    server.finish(Duration::from_secs(60));
    let text = fs::read_to_string(folder.join("served.jsonl")).expect("it was written");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let mut lines: Vec<Value> = lines.map(|line| line.expect("a line of JSON")).collect();
    let all = lines.pop().expect("a last line");
    (lines, all["served"].clone())
}

fn sum(lines: &[Value], pointer: &str) -> u64 {
    let counts = lines
        .iter()
        .filter_map(|line| line.pointer(pointer)?.as_u64());
    counts.sum()
}

fn play(folder: &Path, scenario: &str) -> Report {
    fs::write(folder.join("run.yaml"), scenario).expect("the folder can be written to");
    run(folder, ["run", "run.yaml", "--json", "out.json"]).expect(0);
    Report::read(&folder.join("out.json"))
}

#[test]
fn every_count_of_the_faulty_reference_server_is_exact() {
    run_concurrently(
        &[
            ("nack: false", false),
            ("nack: false, receive: decrypted", true),
        ],
        |&(keys, replays)| {
            let folder = folder();
            let port = free_port();
            let faults =
                "--audio --length 4s --fault loss=2% --fault duplicate=2% --fault reorder=2%x3";
            let with: Vec<&str> = faults.split(' ').collect();
            let server = serve(folder.path(), port, &with);
            let keys = keys.replace(", ", "\n    ");
            let report = play(
                folder.path(),
                &format!(
                    "duration: 20s\nclients:\n  viewers:\n    leave: at_end\n    {keys}\n    \
                 urls: [\"whep+http://127.0.0.1:{port}/whep/one\"]\n    \
                 load: {{ clients: 5, start: at_once }}\n"
                ),
            );
            let (served, all) = served(server, folder.path());
            assert_eq!(report.clients("completed"), 5);
            let count = |name: &str| number(report.metric(name));
            let sent = |name: &str| sum(&served, &format!("/sent/{name}"));
            assert!(sent("lost") > 20 && sent("duplicated") > 20 && sent("reordered") > 20);
            let doubled = if replays { "replayed" } else { "duplicated" };
            for (name, truth) in [
                ("expected", sent("expected")),
                ("received", sent("sent")),
                (doubled, sent("duplicated")),
                ("reordered", sent("reordered")),
                ("payload_bytes", sent("payload_bytes")),
                ("unauthentic", 0),
                ("malformed", 0),
            ] {
                assert_eq!(count(name), truth, "{name} {keys}");
            }
            assert_eq!(number(&all["sessions"]), 5);
            assert_eq!(number(&all["connected"]), 5);
            assert_eq!(number(&all["door"]["refused"]), 0);
        },
    );
}

#[test]
fn participants_in_a_reference_room_receive_each_other() {
    // All over one peer connection, each over one of its own, and with packets that the server
    // leaves out.
    run_concurrently(
        &[
            ("receive: decrypted", 2 * 4, &[][..]),
            ("subscribe: each", 4 + 4 * 3, &["--transport-cc"]),
            (
                "receive: decrypted",
                2 * 4,
                &["--fault", "loss=2%", "--token", "hush-hush"],
            ),
        ],
        |&(keys, peers, with)| {
            let folder = folder();
            let port = free_port();
            let server = serve(folder.path(), port, with);
            let report = play(
                folder.path(),
                &format!(
                    "duration: 8s\nclients:\n  people:\n    token: hush-hush\n    {keys}\n    \
                 urls: [\"janus+ws://127.0.0.1:{port}/videoroom/7\"]\n    \
                 participate: {{ bitrate: 256kbps, audio: true, audio_codec: opus }}\n    \
                 load: {{ clients: 4, ramp: 2s }}\n"
                ),
            );
            let (served, all) = served(server, folder.path());
            let people = &report.0["populations"]["people"]["metrics"];
            let count = |name: &str| number(&people[name]);
            assert_eq!(count("peers_connected"), peers, "{keys}");
            assert_eq!(number(&all["connected"]), peers, "{keys}");
            assert_eq!(count("refusals"), 0);
            assert_eq!(number(&all["door"]["checks_of_nobody"]), 0);
            let sent = |name: &str| sum(&served, &format!("/sent/{name}"));
            // Packets in flight to a client that leaves are not counted, on a busy machine those of
            // two seconds.
            let (received, sent_to_it) = (count("received"), sent("sent") + sent("recovered"));
            assert!(
                received > 2000 && received <= sent_to_it && sent_to_it - received < sent_to_it / 2,
                "{received} of {sent_to_it}, {keys}"
            );
            assert_eq!(count("unauthentic"), 0);
            assert_eq!(sum(&served, "/received/received"), count("sent_packets"));
            match with {
                // Packets of the last moment are requested too late.
                ["--fault", ..] => {
                    let (recovered, lost) = (sent("recovered"), count("lost"));
                    assert!(recovered > 20 && lost < recovered, "{lost} {recovered}");
                }
                _ => assert_eq!(count("lost"), 0),
            }
            if keys == "receive: decrypted" {
                let delay = people["frame_delay"]["p50"].as_f64();
                assert!(delay > Some(0.0), "time codes come through");
            }
        },
    );
}

#[test]
fn lost_packets_are_recovered_and_publications_passed_on() {
    let folder = folder();
    let port = free_port();
    let with = ["--fault", "loss=3%", "--token", "hush-hush"];
    let server = serve(folder.path(), port, &with);
    let report = play(
        folder.path(),
        &format!(
            "duration: 20s\nclients:\n  cameras:\n    token: hush-hush\n    \
             urls: [\"whip+http://127.0.0.1:{port}/whip/cam{{1..2}}\"]\n    \
             publish: {{ bitrate: 1Mbps, audio: true }}\n    leave: {{ after: 8s }}\n    \
             load: {{ clients: 2, start: at_once }}\n  viewers:\n    token: hush-hush\n    \
             receive: decrypted\n    pick: in_turn\n    \
             urls: [\"whep+http://127.0.0.1:{port}/whep/cam{{1..2}}\"]\n    \
             load: {{ clients: 4, start: at_once }}\n"
        ),
    );
    let (served, all) = served(server, folder.path());
    let of = |population: &str, name: &str| {
        number(&report.0["populations"][population]["metrics"][name])
    };
    let sent = |name: &str| sum(&served, &format!("/sent/{name}"));
    let received = |name: &str| sum(&served, &format!("/received/{name}"));
    assert!(received("received") > 2 * 400);
    assert_eq!(of("cameras", "sent_packets"), received("received"));
    assert_eq!((received("lost"), received("unauthentic")), (0, 0));
    assert_eq!(of("cameras", "reported_lost"), 0);
    assert!(sent("recovered") > 10, "{all}");
    for (name, truth) in [
        ("expected", sent("expected")),
        ("received", sent("sent") + sent("recovered")),
        ("recovered_packets", sent("recovered")),
        ("unauthentic", 0),
        ("time_codes_ahead", 0),
    ] {
        assert_eq!(of("viewers", name), truth, "{name} {all}");
    }
    // Pictures are retransmitted in a stream of their own, sound in the same stream.
    let twice = of("viewers", "replayed") + of("viewers", "duplicated");
    assert_eq!(twice, sent("again_in_vain"), "{all}");
    assert!(of("viewers", "rtx_packets") > 10);
    assert!(of("viewers", "frames_delivered") > 4 * 50);
    let text = fs::read(folder.path().join("out.json")).expect("it is there");
    assert!(!String::from_utf8_lossy(&text).contains("hush-hush"));
}

#[test]
fn wrong_token_and_wrong_fault_are_named() {
    let folder = folder();
    let port = free_port();
    let finished = run(folder.path(), ["serve", "webrtc", "--fault", "lose=1%"]);
    finished.expect(104).names("`loss-again=10%`");
    let server = serve(folder.path(), port, &["--token", "hush-hush"]);
    let url = format!("whep+http://127.0.0.1:{port}/whep/one");
    let arguments = [
        "load", &url, "-c", "2", "-d", "20s", "--json", "out.json", "--force",
    ];
    run(folder.path(), arguments).expect(99);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.failures("unauthorized"), 2);
    let (sessions, all) = served(server, folder.path());
    assert!(sessions.is_empty());
    assert_eq!(number(&all["door"]["unauthorized"]), 2);
}

#[test]
fn clients_of_a_full_server_can_end_their_sessions() {
    let folder = folder();
    let port = free_port().to_string();
    let arguments = ["serve", "webrtc", "--port", &port, "--max-sessions", "3"];
    let server = Process::start(streamgauge(arguments), folder.path());
    wait_for("the server listens", Duration::from_secs(60), || {
        server.stdout_text().contains("listening on").then_some(())
    });
    let url = format!("whep+http://127.0.0.1:{port}/whep/live");
    // Each client requests the end of its session (DELETE) over a new connection. A session that
    // goes on would leave no room for the clients of the next run.
    for _ in 0..3 {
        run(
            folder.path(),
            ["load", &url, "-c", "3", "-d", "5s", "--no-run-file"],
        )
        .expect(0);
    }
}

//! Rooms of LiveKit. It is not packaged, so these tests run only if `livekit-server` is in PATH.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::srt;
use crate::support::{
    Process, Report, assert_most_arrived, folder, free_port, have_built, number, run, streamgauge,
    wait_for,
};

const SECRET: &str = "a-secret-of-these-tests-and-of-nobody-else";

/// Starts LiveKit. Returns `None` if it is not installed.
fn start(folder: &Path) -> Option<(Process, u16)> {
    if !have_built("livekit-server") {
        return None;
    }
    let (port, media) = (free_port(), srt::free_port());
    let config = format!(
        "port: {port}\nbind_addresses: [127.0.0.1]\nrtc:\n  udp_port: {media}\n  tcp_port: 0\n  \
         node_ip: 127.0.0.1\n  ips: {{ includes: [127.0.0.1/32] }}\n  \
         enable_loopback_candidate: true\n  use_external_ip: false\n\
         keys: {{ one: {SECRET} }}\nlogging: {{ level: warn }}\n"
    );
    fs::write(folder.join("livekit.yaml"), config).expect("there is room");
    let mut command = Command::new("livekit-server");
    command.args(["--config", "livekit.yaml"]);
    let mut server = Process::start(command, folder);
    server.listen(port);
    Some((server, port))
}

fn scenario(port: u16, secret: &str, keys: &str, duration: &str) -> String {
    format!(
        "clients:
  viewers:
    protocol: webrtc
    urls: ['livekit+ws://127.0.0.1:{port}/room']
    api_key: one
    api_secret: {secret}
    {keys}
    load: {{ clients: 4, ramp: 1s }}
duration: {duration}
"
    )
}

const PARTICIPATE: &str = "participate: { bitrate: 256kbps, audio: true, audio_codec: opus }";

#[test]
fn participants_of_a_livekit_room_receive_each_other() {
    let folder = folder();
    let Some((_server, port)) = start(folder.path()) else {
        return;
    };
    let keys = format!("{PARTICIPATE}\n    receive: decrypted");
    let text = scenario(port, SECRET, &keys, "7s");
    fs::write(folder.path().join("room.yaml"), text).expect("there is room");
    run(folder.path(), ["run", "room.yaml", "--json", "room.json"]).expect(0);
    let report = Report::read(&folder.path().join("room.json"));
    let count = |name: &str| number(report.metric(name));
    // One to send and one to receive.
    assert_eq!(count("peers"), 8);
    assert_eq!(count("peers_connected"), 8);
    let (sent, received) = (count("sent_packets"), count("received"));
    // Each packet goes to three others, once they have joined, which takes a busy machine a while.
    assert!(
        received > sent && received <= 3 * sent,
        "{sent} and {received}"
    );
    assert_eq!(count("unauthentic"), 0);
    assert!(count("rembs_sent") > 0, "it asks how much can be taken");
    for delay in [
        "websocket_delay",
        "join_delay",
        "offer_delay",
        "answer_delay",
    ] {
        assert_eq!(number(&report.metric(delay)["count"]), 4, "{delay}");
    }
    let delay = report.metric("frame_delay")["p50"].as_f64();
    assert!(
        delay.is_some_and(|p50| p50 > 0.0),
        "time codes come through"
    );
}

/// The layers have 800, 200 and 50 kb/s. A population that plays one reports how much it received.
#[test]
fn subscribers_in_a_livekit_room_choose_a_layer() {
    let folder = folder();
    let Some((_server, port)) = start(folder.path()) else {
        return;
    };
    let population = |name: &str, keys: &str| {
        format!(
            "  {name}:
    protocol: webrtc
    urls: ['livekit+ws://127.0.0.1:{port}/room']
    api_key: one
    api_secret: {SECRET}
    {keys}
    load: {{ clients: 1, start: at_once }}
"
        )
    };
    let speaker = "participate: { bitrate: 800kbps, simulcast: true, audio: false }\n    \
                   subscribe: nobody";
    let text = [
        "clients:\n".to_owned(),
        population("speaker", speaker),
        population("best", "layer: high"),
        population("middle", "layer: middle"),
        population("low", "layer: low"),
        "duration: 20s\n".to_owned(),
    ];
    fs::write(folder.path().join("layers.yaml"), text.concat()).expect("there is room");
    run(
        folder.path(),
        ["run", "layers.yaml", "--json", "layers.json"],
    )
    .expect(0);
    let report = Report::read(&folder.path().join("layers.json"));
    let populations = &report.0["populations"];
    let count = |name: &str, metric: &str| number(&populations[name]["metrics"][metric]);
    // Over about 19 seconds. Each client starts with the layer that is available, and gets its own
    // with the next key frame, after 2 s at most; on a busy machine all of this takes longer.
    let kilobits = |name: &str| count(name, "payload_bytes") * 8 / 1000 / 19;
    let (best, middle, low) = (kilobits("best"), kilobits("middle"), kilobits("low"));
    assert!(
        best > 450 && (100..400).contains(&middle) && (20..250).contains(&low),
        "{best}, {middle} and {low}"
    );
    // All three layers are sent. LiveKit loses packets only while a busy machine keeps it waiting.
    assert!(count("speaker", "sent_bytes") * 8 > 12 * 1_000_000);
    for name in ["best", "middle", "low"] {
        assert_most_arrived(count(name, "received"), count(name, "expected"));
    }
}

#[test]
fn refusal_and_death_of_livekit_have_failure_reasons() {
    let folder = folder();
    let Some((server, port)) = start(folder.path()) else {
        return;
    };
    let text = scenario(
        port,
        "'another secret than that of the server'",
        PARTICIPATE,
        "3s",
    );
    fs::write(folder.path().join("refused.yaml"), text).expect("there is room");
    run(
        folder.path(),
        ["run", "refused.yaml", "--json", "refused.json"],
    )
    .expect(99);
    let report = Report::read(&folder.path().join("refused.json"));
    assert_eq!(report.failures("unauthorized"), 4);
    let text = scenario(port, SECRET, PARTICIPATE, "20s");
    fs::write(folder.path().join("room.yaml"), text).expect("there is room");
    let command = streamgauge(["run", "room.yaml", "--json", "room.json"]);
    let running = Process::start(command, folder.path());
    wait_for("everybody plays", Duration::from_secs(60), || {
        running
            .stderr_text()
            .contains("4 of 4 playing")
            .then_some(())
    });
    drop(server);
    let ended = running.finish(Duration::from_secs(60));
    assert_eq!(ended.status.code(), Some(99), "{}", ended.stderr);
    let report = Report::read(&folder.path().join("room.json"));
    assert_eq!(report.failures("signalling_closed"), 4);
}

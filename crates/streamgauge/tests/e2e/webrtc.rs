//! WebRTC against Janus, in a network of the run's own, because Janus offers no address of the
//! loopback interface.

use std::fs;

use serde_json::Value;

use crate::janus::{Over, configure};
use crate::namespace::Namespace;
use crate::support::{Report, assert_most_arrived, folder, have, number, run};

/// Returns the report of four participants in a room of Janus, or `None` if Janus or namespaces are
/// not available.
fn meet(keys: &str, audio: &str) -> Option<Report> {
    meet_in("publishers: 10", keys, audio)
}

/// As `meet`, with these settings of the room.
fn meet_in(room: &str, keys: &str, audio: &str) -> Option<Report> {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return None;
    }
    let folder = folder();
    let scenario = format!(
        "network: veth
server: {{ launch: janus }}
clients:
  viewers:
    protocol: webrtc
    urls: ['janus+ws://{{server}}:8188/videoroom/77']
    participate: {{ bitrate: 256kbps, audio: true{audio} }}
    room: {{ {room} }}
    {keys}
    load: {{ clients: 4, ramp: 2s }}
duration: 10s
"
    );
    fs::write(folder.path().join("room.yaml"), scenario).expect("there is room");
    let ended = run(folder.path(), ["run", "room.yaml", "--json", "room.json"]);
    ended.expect(0);
    Some(Report::read(&folder.path().join("room.json")))
}

fn count(report: &Report, name: &str) -> u64 {
    number(report.metric(name))
}

#[test]
fn janus_participants_receive_each_other_over_one_peer() {
    let Some(report) = meet("subscribe: together", "") else {
        return;
    };
    // One to send and one to receive.
    assert_eq!(count(&report, "peers"), 8);
    assert_eq!(count(&report, "peers_connected"), 8);
    assert_eq!(report.clients("failed"), 0);
    let (sent, received) = (count(&report, "sent_packets"), count(&report, "received"));
    // Each packet goes to the three others, as far as they have joined.
    assert!(
        received > sent && received <= 3 * sent,
        "{sent} and {received}"
    );
    assert_most_arrived(received, count(&report, "expected"));
    assert!(count(&report, "receiver_reports") > 0);
    assert!(count(&report, "reports_sent") > 0);
    // Janus requests a key frame for each participant that joins. The one for the last came long
    // before the end.
    assert!(count(&report, "early_key_frames") >= 3);
}

#[test]
fn counts_of_janus_agree_with_those_of_its_receivers() {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    // The publishers have left when Janus is asked for the last time, so nothing is in flight.
    let scenario = "network: veth
server: { launch: janus }
clients:
  speakers:
    protocol: webrtc
    urls: ['janus+ws://{server}:8188/videoroom/77']
    participate: { bitrate: 256kbps, audio: true }
    subscribe: nobody
    room: { publishers: 10 }
    leave: { after: 4s }
    load: { clients: 2, start: at_once }
  viewers:
    protocol: webrtc
    urls: ['janus+ws://{server}:8188/videoroom/77']
    room: { publishers: 10 }
    load: { clients: 3, start: at_once }
duration: 9s
";
    fs::write(folder.path().join("room.yaml"), scenario).expect("there is room");
    let ended = run(folder.path(), ["run", "room.yaml", "--json", "room.json"]);
    ended.expect(0);
    let report = Report::read(&folder.path().join("room.json"));
    let server = &report.0["server"];
    let viewers = &report.0["populations"]["viewers"]["metrics"];
    let received = number(&viewers["received"]);
    assert!(received > 500, "{received}");
    assert_most_arrived(received, number(&viewers["expected"]));
    assert_eq!(number(&server["counted_packets_out"]), received);
    assert_eq!(number(&server["counts_failed"]), 0);
    assert_eq!(number(&server["counted_lost_out"]), 0);
}

#[test]
fn media_of_a_janus_room_decrypts_and_has_time_codes() {
    let Some(report) = meet(
        "subscribe: each\n    receive: decrypted",
        ", audio_codec: opus",
    ) else {
        return;
    };
    assert_eq!(count(&report, "peers_connected"), 4 + 4 * 3);
    assert_eq!(count(&report, "unauthentic"), 0);
    assert_eq!(count(&report, "replayed"), 0);
    let path = report.0["tester"]["receive_path"].as_str();
    assert!(matches!(path, Some("ring" | "sockets")), "{path:?}");
    assert!(count(&report, "frames_published") > 0);
    let delay = report.metric("frame_delay");
    assert!(
        delay["p50"].as_f64().is_some_and(|p50| p50 > 0.0),
        "{delay}"
    );
}

#[test]
fn receivers_read_who_talks_in_plain_headers() {
    let talk = ", audio_codec: opus, talk: { speakers: 2, turn: 1s }";
    let Some(report) = meet("subscribe: together", talk) else {
        return;
    };
    let sent = count(&report, "sent_voice_packets");
    let voice = count(&report, "voice_packets");
    // Each of four participants receives three, once it has joined. Two of them talk at a time.
    assert!(
        sent > 50 && voice > sent && voice <= 3 * sent,
        "{voice} of {sent}"
    );
    let level = report.metric("audio_level");
    let middle = level["p50"].as_f64().expect("there is sound");
    assert!((20.0..=41.0).contains(&middle), "{level}");
    assert_eq!(count(&report, "streams_silent"), 0);
}

#[test]
fn following_publishers_keep_to_the_bit_rate_of_the_room() {
    let room = "publishers: 10, bitrate: 150kbps";
    let keys = "congestion: follow\n    transport_cc: false";
    let Some(report) = meet_in(room, keys, "") else {
        return;
    };
    assert!(count(&report, "rembs_received") > 0);
    assert!(count(&report, "transport_feedback_received") > 0);
    let estimate = report.metric("estimated_bitrate");
    // Exact except for the buckets of the distribution.
    assert!(
        estimate["p50"].as_f64().is_some_and(|p50| p50 < 155_000.0),
        "{estimate}"
    );
    let target = report.metric("target_bitrate");
    assert!(
        target["p50"].as_f64().is_some_and(|p50| p50 < 140_000.0),
        "{target}"
    );
}

#[test]
fn janus_receivers_get_the_h264_layer_that_they_choose() {
    layers_of("h264");
}

#[test]
fn janus_receivers_get_the_vp8_layer_that_they_choose() {
    layers_of("vp8");
}

fn layers_of(codec: &str) {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    // The first client creates the room.
    let viewers = |name: &str| {
        format!(
            "  {name}:
    protocol: webrtc
    urls: ['janus+ws://{{server}}:8188/videoroom/77']
    layer: {name}
    receive: decrypted
    time_codes: true
    room: {{ publishers: 10 }}
    load: {{ clients: 1, start: at_once }}
"
        )
    };
    let scenario = format!(
        "network: veth
server: {{ launch: janus }}
clients:
  camera:
    protocol: webrtc
    urls: ['janus+ws://{{server}}:8188/videoroom/77']
    participate: {{ bitrate: 1600kbps, video_codec: {codec}, simulcast: true }}
    subscribe: nobody
    room: {{ publishers: 10 }}
    load: {{ clients: 1, start: at_once }}
{}{}{}duration: 15s
",
        viewers("high"),
        viewers("middle"),
        viewers("low")
    );
    fs::write(folder.path().join("room.yaml"), scenario).expect("there is room");
    let ended = run(folder.path(), ["run", "room.yaml", "--json", "room.json"]);
    ended.expect(0);
    let report = Report::read(&folder.path().join("room.json"));
    let of = |name: &str, metric: &str| {
        let value = &report.0["populations"][name]["metrics"][metric];
        value.as_f64().unwrap_or_else(|| panic!("{name}.{metric}"))
    };
    // Three layers: the full bit rate, a quarter and a sixteenth of it.
    let sent = of("camera", "sent_bitrate");
    assert!((1.2e6..2.3e6).contains(&sent), "{sent}");
    for (name, bitrate) in [("high", 1.6e6), ("middle", 0.4e6), ("low", 0.1e6)] {
        let found = of(name, "bitrate");
        assert!((found / bitrate - 1.0).abs() < 0.5, "{name}: {found}");
        // Janus drops packets and frames only if it gets no processor for a second or two.
        assert!(of(name, "received") > 0.0);
        assert_most_arrived(of(name, "received") as u64, of(name, "expected") as u64);
        assert_eq!(of(name, "unauthentic"), 0.0, "{name}");
        // Each frame has its time code.
        let delays = &report.0["populations"][name]["metrics"]["frame_delay"];
        assert!(delays["count"].as_f64() > Some(100.0), "{name}: {delays}");
        assert!(delays["p50"].as_f64() > Some(0.0), "{name}: {delays}");
        // If the requested layer is late by 250 ms, as on a busy machine, Janus sends the one below
        // for a moment (`fallback`), and a frame is missing between them.
        assert!(of(name, "frame_loss") < 0.25, "{name}");
    }
}

#[test]
fn viewers_of_a_mount_point_get_all_that_is_fed_to_it() {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    let scenario = "network: veth
server: { launch: janus }
clients:
  camera:
    protocol: webrtc
    urls: ['janus+ws://{server}:8188/streaming/5']
    feed: { bitrate: 500kbps, video_codec: vp8, gop: 250, audio: true, audio_codec: opus }
    load: { clients: 1, start: at_once }
  viewers:
    protocol: webrtc
    urls: ['janus+ws://{server}:8188/streaming/5']
    receive: decrypted
    time_codes: true
    load: { clients: 3, ramp: 3s }
duration: 11s
";
    fs::write(folder.path().join("room.yaml"), scenario).expect("there is room");
    run(folder.path(), ["run", "room.yaml", "--json", "room.json"]).expect(0);
    let report = Report::read(&folder.path().join("room.json"));
    let of = |population: &str, name: &str| {
        number(&report.0["populations"][population]["metrics"][name])
    };
    let (sent, received) = (of("camera", "sent_packets"), of("viewers", "received"));
    assert!(
        received > sent && received <= 3 * sent,
        "{received} of {sent}"
    );
    assert_most_arrived(received, of("viewers", "expected"));
    assert_eq!(of("viewers", "unauthentic"), 0);
    assert_eq!(of("viewers", "streams_silent"), 0);
    let delays = &report.0["populations"]["viewers"]["metrics"]["frame_delay"];
    assert!(delays["count"].as_f64() > Some(100.0), "{delays}");
    // Janus passes on the key frame requests of viewers that join later. A loop alone would have no
    // key frame then.
    assert!(of("camera", "key_frame_requests") > 0);
    assert!(of("camera", "early_key_frames") > 0);
    assert!(of("viewers", "key_frames") >= 3);
}

#[test]
fn only_the_speaker_of_a_janus_room_is_seen() {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    let people = |name: &str, keys: &str, load: &str| {
        format!(
            "  {name}:
    protocol: webrtc
    urls: ['janus+ws://{{server}}:8188/videoroom/77']
    {keys}
    load: {{ {load} }}
"
        )
    };
    let silent = "participate: { bitrate: 100kbps }
    subscribe: nobody
    room: { publishers: 10 }";
    // The first client creates the room.
    let viewers = "last_n: 1
    room: { publishers: 10 }";
    let speaker = "participate: { bitrate: 800kbps, audio: true, audio_codec: opus,
                   talk: { speakers: 1, turn: 2s } }
    subscribe: nobody";
    let late = "stages: [{ clients: 0, over: 3s }, { clients: 1, over: 1s }]";
    let scenario = format!(
        "network: veth
server: {{ launch: janus }}
clients:
{}{}{}duration: 14s
",
        people("silent", silent, "clients: 2, start: at_once"),
        people("viewers", viewers, "clients: 2, start: at_once"),
        people("speaker", speaker, late)
    );
    fs::write(folder.path().join("room.yaml"), scenario).expect("there is room");
    run(folder.path(), ["run", "room.yaml", "--json", "room.json"]).expect(0);
    let report = Report::read(&folder.path().join("room.json"));
    let viewers = &report.0["populations"]["viewers"]["metrics"];
    assert_eq!(number(&viewers["video_switches"]), 2, "one for each");
    assert_eq!(viewers["switch_delay"]["count"], 2);
    assert_eq!(number(&viewers["streams_silent"]), 0);
    // The bit rate tells whose video is received: first that of a silent participant, then that of
    // the speaker alone.
    let windows = report.0["windows"].as_array().expect("each second");
    let rate = |own: &Value| own["populations"]["viewers"]["metrics"]["bitrate"].as_f64();
    let rates: Vec<f64> = windows
        .iter()
        .map(|own| rate(own).unwrap_or_default() / 2.0)
        .collect();
    // The speaker comes after three seconds. On a busy machine bytes move into a later second, but
    // not into an earlier one. So the later seconds bound the rate from below only, and the
    // switches above say that it is one stream.
    let before = rates.iter().take(3).sum::<f64>() / 3.0;
    let means = rates.windows(4).map(|some| some.iter().sum::<f64>() / 4.0);
    let after = means.fold(0.0, f64::max);
    // The message has the delays, which tell what was late.
    let delays = [
        ("speaker", "join_delay"),
        ("speaker", "ice_delay"),
        ("speaker", "dtls_delay"),
        ("speaker", "publish_delay"),
        ("viewers", "switch_delay"),
    ];
    let delays = delays.map(|(who, name)| {
        let delay = &report.0["populations"][who]["metrics"][name]["max"];
        format!("{who} {name} {delay}")
    });
    assert!(before < 200e3, "{rates:?} {delays:?}");
    assert!(after > 400e3, "{rates:?} {delays:?}");
}

#[test]
fn media_of_a_population_uses_its_own_link() {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    let far = |name: &str, link: &str, keys: &str| {
        format!(
            "  {name}:
    protocol: webrtc
    urls: ['janus+ws://{{server}}:8188/videoroom/77']
    link: {{ {link} }}
    {keys}
    load: {{ clients: 1, start: at_once }}
"
        )
    };
    let camera = "participate: { bitrate: 800kbps }
    subscribe: nobody
    retransmit: false
    room: { publishers: 10 }";
    let scenario = format!(
        "network: veth
server: {{ launch: janus }}
clients:
{}{}duration: 14s
",
        far("camera", "delay: 20ms, up: { loss: 4% }", camera),
        // The first client creates the room, and the camera's first packet may be lost.
        far(
            "viewers",
            "delay: 50ms, down: { loss: 4% }",
            "nack: false\n    room: { publishers: 10 }"
        )
    );
    fs::write(folder.path().join("room.yaml"), scenario).expect("there is room");
    run(folder.path(), ["run", "room.yaml", "--json", "room.json"]).expect(0);
    let report = Report::read(&folder.path().join("room.json"));
    let of = |population: &str, name: &str| {
        number(&report.0["populations"][population]["metrics"][name])
    };
    let by_link = |name: &str, what: &str| number(&report.0["links"][name]["metrics"][what]);
    let sent = of("camera", "sent_packets");
    assert!(sent > 500, "{sent}");
    assert!(by_link("camera_uplink", "packets") > sent);
    assert!(by_link("camera_uplink", "lost") > 10);
    assert!(by_link("viewers_downlink", "packets") > of("viewers", "received"));
    assert!(by_link("viewers_downlink", "lost") > 10);
    assert!(of("viewers", "lost") > 10);
}

#[test]
fn participants_meet_over_http_as_over_a_websocket() {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    configure(folder.path(), "10.81.0.2", Over::Http);
    let place = folder.path().display();
    let scenario = format!(
        "network: veth
server:
  command: [janus, -C, '{place}/janus.jcfg', -F, '{place}', --disable-colors]
  ready: {{ port: 8088 }}
clients:
  viewers:
    protocol: webrtc
    urls: ['janus+http://{{server}}:8088/janus/videoroom/77']
    participate: {{ bitrate: 256kbps, audio: true }}
    room: {{ publishers: 10 }}
    load: {{ clients: 4, ramp: 2s }}
duration: 10s
"
    );
    fs::write(folder.path().join("room.yaml"), scenario).expect("there is room");
    let ended = run(folder.path(), ["run", "room.yaml", "--json", "room.json"]);
    ended.expect(0);
    let report = Report::read(&folder.path().join("room.json"));
    assert_eq!(count(&report, "peers_connected"), 8);
    assert_eq!(report.clients("failed"), 0);
    let (sent, received) = (count(&report, "sent_packets"), count(&report, "received"));
    assert!(
        received > sent && received <= 3 * sent,
        "{sent} and {received}"
    );
    assert_most_arrived(received, count(&report, "expected"));
    assert!(report.metric("join_delay")["p50"].as_f64() > Some(0.0));
}

//! Calibration trials of WebRTC.

use kit::calibration::{Check, Evidence, Trial, TrialClients, TrialLink, TrueValue};

/// Returns clients that play the first generated stream.
const fn players(name: &'static str, number: u32, keys: &'static [&'static str]) -> TrialClients {
    TrialClients {
        name,
        number,
        url: "whep+http://{address}/whep/stream1",
        keys,
    }
}

pub(super) static TRIALS: &[Trial] = &[
    Trial {
        server: "--bitrate 1Mbps --audio --length {length}",
        link: None,
        thresholds: &[],
        clients: &[players("steady", 10, &["receive: headers"])],
        checks: &[
            Check::count("steady", "expected", &["/sent/planned"]),
            Check::count("steady", "received", &["/sent/sent"]),
            Check::count("steady", "payload_bytes", &["/sent/payload_bytes"]),
            Check::zero("steady", "duplicated"),
            Check::zero("steady", "reordered"),
            Check::zero("steady", "malformed"),
            Check::zero("steady", "unknown_media"),
            Check::zero("steady", "asked_packets"),
            Check::delay("steady", "startup_delay", startup_delay),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --fps 50 --length {length}",
        link: None,
        thresholds: &[],
        clients: &[players(
            "decrypted",
            10,
            &["receive: decrypted", "time_codes: true"],
        )],
        checks: &[
            Check::count("decrypted", "expected", &["/sent/planned"]),
            Check::count("decrypted", "received", &["/sent/sent"]),
            Check::count("decrypted", "payload_bytes", &["/sent/payload_bytes"]),
            Check::count("decrypted", "frames_published", &["/sent/frames"]),
            Check::count("decrypted", "frames_delivered", &["/sent/frames"]),
            Check::zero("decrypted", "time_codes_ahead"),
            Check::zero("decrypted", "unauthentic"),
            Check::zero("decrypted", "replayed"),
            Check::delay("decrypted", "frame_delay", frame_delay),
        ],
    },
    Trial {
        server: "--bitrate 1Mbps --length {length} --fault loss=2% --fault loss-burst=0.5%x4 \
                 --fault duplicate=2% --fault reorder=2%x3",
        link: None,
        thresholds: &[],
        clients: &[players("faulty", 10, &["nack: false"])],
        checks: &[
            Check::count("faulty", "expected", &["/sent/expected"]),
            Check::count("faulty", "received", &["/sent/sent"]),
            Check::count("faulty", "lost", &["/sent/lost"]),
            Check::count("faulty", "duplicated", &["/sent/duplicated"]),
            Check::count("faulty", "reordered", &["/sent/reordered"]),
            Check::count("faulty", "payload_bytes", &["/sent/payload_bytes"]),
            Check::zero("faulty", "malformed"),
        ],
    },
    Trial {
        server: "--bitrate 1Mbps --length {length} --fault loss=3% --fault loss-again=10%",
        link: None,
        thresholds: &[],
        clients: &[players("recovered", 10, &["receive: decrypted"])],
        checks: &[
            Check::count("recovered", "expected", &["/sent/expected"]),
            Check::count("recovered", "received", &["/sent/sent", "/sent/recovered"]),
            Check::count("recovered", "lost", &["/sent/lost"]),
            Check::count("recovered", "recovered_packets", &["/sent/recovered"]),
            Check::count("recovered", "reordered", &["/sent/recovered"]),
            Check::count("recovered", "duplicated", &["/sent/again_in_vain"]),
            Check::count("recovered", "rtx_packets", &["/sent/again"]),
            Check::zero("recovered", "replayed"),
            Check::zero("recovered", "unauthentic"),
        ],
    },
    Trial {
        server: "--fault loss=5%",
        link: None,
        thresholds: &[],
        clients: &[
            TrialClients {
                name: "publishers",
                number: 4,
                url: "whip+http://{address}/whip/own{1..4}",
                keys: &[
                    "publish: { bitrate: 400kbps, frame_rate: 50 }",
                    "leave: { after: {length} }",
                ],
            },
            TrialClients {
                name: "viewers",
                number: 8,
                url: "whep+http://{address}/whep/own{1..4}",
                keys: &["pick: in_turn", "nack: false"],
            },
        ],
        checks: &[
            Check::count("publishers", "sent_packets", &["/received/received"]),
            Check::count("publishers", "sent_bytes", &["/received/payload_bytes"]),
            Check::zero("publishers", "not_taken"),
            Check::zero("publishers", "reported_lost"),
            Check::zero("publishers", "nacked_packets"),
            Check::count("viewers", "expected", &["/sent/expected"]),
            Check::count("viewers", "received", &["/sent/sent"]),
            Check::count("viewers", "lost", &["/sent/lost"]),
            Check::zero("viewers", "duplicated"),
            Check::zero("viewers", "reordered"),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --fps 50 --length {length}",
        link: Some(LINK),
        thresholds: &[],
        clients: &[players(
            "far",
            5,
            &["receive: decrypted", "time_codes: true"],
        )],
        checks: &[
            Check::count("far", "expected", &["/sent/planned"]),
            Check::count("far", "received", &["/sent/sent"]),
            Check::count("far", "frames_delivered", &["/sent/frames"]),
            Check::zero("far", "duplicated"),
            Check::delay("far", "frame_delay", frame_delay),
        ],
    },
];

/// The delays of both directions differ, so that a mix-up shows.
const LINK: TrialLink = TrialLink { up: 10, down: 25 };

/// Mean lateness of a frame's last packet at the server, plus the delay from there.
fn frame_delay(evidence: &Evidence) -> Option<TrueValue> {
    let frames = evidence.sum("/sent/frames")?;
    let late = evidence.sum("/sent/frames_late_nanos")?;
    Some(TrueValue::exactly(late / frames / 1e9) + evidence.down)
}

/// Mean time from a client's planned start to its first packet leaving the server, plus the delay
/// from there.
fn startup_delay(evidence: &Evidence) -> Option<TrueValue> {
    let pointer = "/sent/first_left_nanos";
    let clients = evidence.numbers(pointer).count() as f64;
    let played = evidence.served.iter().filter(|line| {
        let first = line.pointer(pointer);
        first.is_some_and(serde_json::Value::is_u64)
    });
    let clocks = played.map(|line| line["clock_monotonic_nanos"].as_f64());
    let clock = clocks.sum::<Option<f64>>()? / clients;
    let due = evidence.start_nanos + evidence.start_interval_nanos * (clients - 1.0) / 2.0;
    let first = TrueValue::exactly((clock + evidence.mean(pointer)? - due) / 1e9);
    Some(first + evidence.down)
}

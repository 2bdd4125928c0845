//! Calibration trials of the RTMP metrics.

use kit::calibration::{
    Check, Evidence, Statistic, Tolerance, Trial, TrialClients, TrialLink, TrueValue, Truth,
};

/// URL of generated media that clients play.
const GENERATED_URL: &str = "rtmp://{address}/made/stream1";
/// URLs that some clients publish and others play.
const PUBLISHED_URL: &str = "rtmp://{address}/own/stream{1..4}";
/// Playout buffer in seconds of the clients whose media stalls.
const PLAYOUT_BUFFER_S: f64 = 0.1;
/// Duration of a video frame of these clients in seconds. Audio frames are longer.
const FRAME_S: f64 = 0.02;

/// After a stall, frames arrive in a burst. One read returns many frames, all with the time of the
/// last (`timed_by_reading`), which on a busy machine is some milliseconds after the first.
const BURST_TOLERANCE: Tolerance = Tolerance::Absolute(5e-3);

pub(super) static TRIALS: &[Trial] = &[
    Trial {
        server: "--bitrate 400kbps --fps 50 --audio --length {length}",
        link: None,
        thresholds: &[],
        clients: &[players("steady", 10, &["time_codes: true"])],
        checks: &[
            Check::count("steady", "video_frames", VIDEO),
            Check::count("steady", "audio_frames", AUDIO),
            Check::count("steady", "key_frames", &["/sent/key_frames"]),
            payload("steady"),
            Check::count("steady", "frames_published", VIDEO),
            Check::count("steady", "frames_delivered", VIDEO),
            Check::zero("steady", "malformed"),
            Check::zero("steady", "stalls"),
            Check::zero("steady", "clock_jumps"),
            Check::zero("steady", "time_codes_ahead"),
            Check::delay("steady", "frame_delay", frame_delay),
            Check::delay("steady", "startup_delay", startup_delay),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --fps 50 --audio --length {length} --fault lose=5% --fault \
                 malformed=3% --fault stall=1s+300ms",
        link: None,
        thresholds: &[],
        clients: &[players(
            "faulty",
            10,
            &["time_codes: true", "playout_buffer: 100ms"],
        )],
        checks: &[
            Check::count("faulty", "video_frames", VIDEO),
            Check::count("faulty", "audio_frames", AUDIO),
            Check::count("faulty", "key_frames", &["/sent/key_frames"]),
            payload("faulty"),
            Check::count(
                "faulty",
                "frames_published",
                &["/sent/video_frames", "/sent/missed"],
            ),
            Check::count("faulty", "frames_delivered", VIDEO),
            Check::count("faulty", "malformed", &["/sent/malformed"]),
            Check::exact("faulty", "stalls", stalls),
            Check::zero("faulty", "clock_jumps"),
            Check {
                clients: "faulty",
                metric: "stall_time",
                figure: Statistic::Mean,
                truth: Truth::Known(stall_time),
                tolerance: BURST_TOLERANCE,
            },
            Check::delay("faulty", "startup_delay", startup_delay),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --audio --length {length} --fault skew=200ms",
        link: None,
        thresholds: &[],
        clients: &[players("skewed", 5, &["time_codes: true"])],
        checks: &[
            Check::count("skewed", "video_frames", VIDEO),
            Check::count("skewed", "audio_frames", AUDIO),
            Check {
                clients: "skewed",
                metric: "av_skew",
                figure: Statistic::Count,
                truth: Truth::Sum(AUDIO),
                tolerance: Tolerance::Exact,
            },
            Check::delay("skewed", "av_skew", |evidence| {
                Some(TrueValue::exactly(0.2) + unread(evidence))
            }),
        ],
    },
    Trial {
        server: "--fault lose=3% --fault malformed=2%",
        link: None,
        thresholds: &[],
        clients: &[publishers("publishers"), viewers("viewers", 8)],
        checks: &[
            Check::count("publishers", "sent_frames", &["/received_frames"]),
            Check::count("publishers", "sent_bytes", &["/received_bytes"]),
            Check::zero("publishers", "not_taken"),
            Check::count("viewers", "video_frames", VIDEO),
            Check::count("viewers", "audio_frames", AUDIO),
            Check::count("viewers", "key_frames", &["/sent/key_frames"]),
            payload("viewers"),
            Check::count(
                "viewers",
                "frames_published",
                &["/sent/video_frames", "/sent/missed"],
            ),
            Check::count("viewers", "frames_delivered", VIDEO),
            Check::count("viewers", "malformed", &["/sent/malformed"]),
            Check::zero("viewers", "stalls"),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --fps 50 --audio --length {length}",
        link: Some(LINK),
        thresholds: &[],
        clients: &[players("far", 5, &["time_codes: true"])],
        checks: &[
            Check::count("far", "video_frames", VIDEO),
            Check::count("far", "audio_frames", AUDIO),
            payload("far"),
            Check::count("far", "frames_published", VIDEO),
            Check::count("far", "frames_delivered", VIDEO),
            Check::zero("far", "stalls"),
            Check::delay("far", "frame_delay", frame_delay),
            Check::delay("far", "startup_delay", startup_delay),
        ],
    },
    Trial {
        server: "",
        link: Some(LINK),
        thresholds: &[],
        clients: &[publishers("far_publishers"), viewers("far_viewers", 4)],
        checks: &[
            Check::count("far_publishers", "sent_frames", &["/received_frames"]),
            Check::count("far_publishers", "sent_bytes", &["/received_bytes"]),
            Check::zero("far_publishers", "not_taken"),
            Check::count("far_viewers", "video_frames", VIDEO),
            Check::count("far_viewers", "audio_frames", AUDIO),
            Check::count("far_viewers", "frames_published", VIDEO),
            Check::count("far_viewers", "frames_delivered", VIDEO),
            Check::delay("far_viewers", "frame_delay", end_to_end_frame_delay),
        ],
    },
];

/// The delays of the two directions differ, so that mixing them up is detected. Every frame fits
/// into TCP's initial window (10 segments, RFC 6928), so that none waits for an acknowledgement.
const LINK: TrialLink = TrialLink { up: 10, down: 25 };

const VIDEO: &[&str] = &["/sent/video_frames"];
const AUDIO: &[&str] = &["/sent/audio_frames"];

const fn players(name: &'static str, number: u32, keys: &'static [&'static str]) -> TrialClients {
    TrialClients {
        name,
        number,
        url: GENERATED_URL,
        keys,
    }
}

const fn viewers(name: &'static str, number: u32) -> TrialClients {
    TrialClients {
        url: PUBLISHED_URL,
        ..players(name, number, &["pick: in_turn"])
    }
}

const fn publishers(name: &'static str) -> TrialClients {
    TrialClients {
        name,
        number: 4,
        url: PUBLISHED_URL,
        keys: &[
            "publish: { bitrate: 400kbps, frame_rate: 50, audio: true }",
            "leave: { after: {length} }",
        ],
    }
}

/// Payload is counted without the FLV header of each frame: five bytes for H.264, two for AAC (FLV,
/// E.4.2.1 and E.4.3.1).
const fn payload(clients: &'static str) -> Check {
    Check::exact(clients, "payload_bytes", |evidence| {
        let before =
            5.0 * evidence.sum("/sent/video_frames")? + 2.0 * evidence.sum("/sent/audio_frames")?;
        Some(TrueValue::exactly(
            evidence.sum("/sent/payload_bytes")? - before,
        ))
    })
}

/// Delay of the server's video frames when sent, plus the delay of the link to the client.
fn frame_delay(evidence: &Evidence) -> Option<TrueValue> {
    let frames = evidence.sum("/sent/video_frames")?;
    let given = evidence.sum("/sent/given_after_nanos")?;
    let taken = evidence.sum("/sent/taken_after_nanos")?;
    let sent = TrueValue::between_nanos(given / frames, taken / frames);
    Some(sent + evidence.down + unread(evidence))
}

/// Time for which data may have waited in a connection until it was read, and by which its arrival
/// time is wrong.
fn unread(evidence: &Evidence) -> TrueValue {
    TrueValue {
        value: 0.0,
        uncertainty: longest_lag(evidence),
    }
}

/// Longest time for which a worker of the clients or of the server stood still, in seconds. A
/// standstill between two heartbeats (40 ms) does not show.
fn longest_lag(evidence: &Evidence) -> f64 {
    let server = evidence.numbers("/served/longest_lag_nanos");
    server.fold(evidence.longest_lag, |max, nanos| max.max(nanos / 1e9))
}

/// Delay that the publishers report, plus the link to the server, the time that the server needed
/// to relay a frame, and the link to the client.
fn end_to_end_frame_delay(evidence: &Evidence) -> Option<TrueValue> {
    let late = evidence.measured("far_publishers", "send_queue_delay")?;
    Some(TrueValue::exactly(late) + evidence.up + frame_delay(evidence)?)
}

/// Time from when each client was due to when its first frame left the server, plus the delay of
/// the link.
fn startup_delay(evidence: &Evidence) -> Option<TrueValue> {
    let pointer = "/sent/first_given_nanos";
    let clients = evidence.numbers(pointer).count() as f64;
    // Connections that did not play have no first frame, and the totals of the report have no
    // clock.
    let clocks = evidence
        .served
        .iter()
        .filter(|line| line.pointer(pointer).is_some_and(serde_json::Value::is_u64));
    let clocks = clocks.map(|line| line["clock_monotonic_nanos"].as_f64());
    let clock = clocks.sum::<Option<f64>>()? / clients;
    let due = evidence.start_nanos + evidence.start_interval_nanos * (clients - 1.0) / 2.0;
    let at = |pointer| Some(clock + evidence.mean(pointer)? - due);
    let first = TrueValue::between_nanos(at(pointer)?, at("/sent/first_taken_nanos")?);
    Some(first + evidence.down + unread(evidence))
}

/// Pauses that the server made.
fn stalls(evidence: &Evidence) -> Option<TrueValue> {
    Some(TrueValue {
        value: evidence.sum("/sent/stalls")?,
        uncertainty: further_stalls(evidence)?,
    })
}

/// Number of stalls that may come from the machine: none, unless the server or a worker of the
/// clients stood still for so long that a frame arrived after the next one was to be shown. Then
/// each stream may have one more.
fn further_stalls(evidence: &Evidence) -> Option<f64> {
    let frames = evidence.numbers("/sent/latest_nanos");
    let latest = frames.fold(longest_lag(evidence), |max, nanos| max.max(nanos / 1e9));
    match latest < FRAME_S {
        true => Some(0.0),
        false => evidence.sum("/sent/stalls"),
    }
}

/// Duration of the media's pause, less the playout buffer. Rounding of timestamps to milliseconds
/// affects it as it affects the clients' measurements.
fn stall_time(evidence: &Evidence) -> Option<TrueValue> {
    let stalls = evidence.sum("/sent/stalls")?;
    let mean = |pointer| Some(evidence.sum(pointer)? / stalls / 1e9);
    let value = mean("/sent/stalled_nanos")? - PLAYOUT_BUFFER_S;
    let further = further_stalls(evidence)?;
    Some(TrueValue {
        value,
        uncertainty: mean("/sent/stalled_unsure_nanos")? + value * further / (stalls + further),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn evidence(latest_nanos: u64, longest_lag: f64) -> Evidence {
        let sent = json!({
            "stalls": 2,
            "stalled_nanos": 600_000_000,
            "stalled_unsure_nanos": 2_000_000,
            "latest_nanos": latest_nanos,
        });
        Evidence {
            served: vec![json!({ "sent": sent })],
            longest_lag,
            ..Evidence::default()
        }
    }

    #[test]
    fn stalls_are_known_unless_a_process_stood_still() {
        let known = evidence(19_000_000, 0.019);
        assert_eq!(stalls(&known), Some(TrueValue::exactly(2.0)));
        let time = stall_time(&known).expect("there are stalls");
        assert!((time.value - 0.2).abs() < 1e-9 && (time.uncertainty - 1e-3).abs() < 1e-9);
        let mut server = evidence(0, 0.0);
        let served = json!({ "served": { "longest_lag_nanos": 21_000_000 } });
        server.served.push(served);
        for disturbed in [evidence(21_000_000, 0.0), evidence(0, 0.021), server] {
            let found = stalls(&disturbed).expect("there are stalls");
            assert_eq!((found.value, found.uncertainty), (2.0, 2.0));
            // With twice as many stalls, each is half as long.
            let time = stall_time(&disturbed).expect("there are stalls");
            assert!((time.value - 0.2).abs() < 1e-9 && (time.uncertainty - 0.101).abs() < 1e-9);
        }
        assert_eq!(stalls(&Evidence::default()), None);
    }
}

//! Clients that pause, seek and leave against the reference server, in virtual time: requested
//! actions are carried out, delays match the network's, and nothing counts as loss.

use std::time::Duration;

use kit::faults::FaultSet as _;
use kit::media::rtp::metrics::{self as rtp, RTP};
use kit::media::rtp::summaries;
use kit::media::rtp::{ServedStream, StreamSummary};
use kit::metrics::{CLIENTS, ZAPPING};
use kit::viewer::VIEWERS;
use measure::units::BitRate;
use measure::{Catalogue, CounterId, HistogramId};
use rtsp::actions::Action;
use rtsp::client::Client;
use rtsp::config::{ClientConfig, Transport};
use rtsp::metrics::{self as m, RTSP};
use rtsp::server::{Server, ServerConfig};
use session::link::Settings;
use session::testing::{Pair, PairSettings, RunEnd, SessionNumber, Side};
use session::{Outcome, Output};

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &RTP, &RTSP]);
const FIRST: SessionNumber = SessionNumber(0);
const BOTH: [Transport; 2] = [Transport::Udp, Transport::Tcp];

fn server_config() -> ServerConfig {
    ServerConfig {
        bitrate: BitRate(400_000),
        length: Some(Duration::from_secs(60)),
        audio: true,
        first_seq: Some(65_300),
        ..ServerConfig::default()
    }
}

/// A client with these actions, written as JSON.
fn client_config(transport: Transport, actions: &str) -> ClientConfig {
    ClientConfig {
        transport,
        actions: serde_json::from_str::<Vec<Action>>(actions).expect("valid actions"),
        ..ClientConfig::default()
    }
}

fn pair(settings: PairSettings, client: ClientConfig, server: ServerConfig) -> Pair {
    let client = Client::new(client, "rtsp://server/a", settings.seed).expect("a URL");
    let server = Server::new(server).expect("valid settings");
    Pair::new(settings, Box::new(client), move |_| server.session(1))
}

fn played(settings: PairSettings, client: ClientConfig, server: ServerConfig) -> Pair {
    let mut pair = pair(settings, client, server);
    assert_eq!(pair.run(Duration::from_secs(300)), RunEnd::Ended);
    pair
}

fn settings() -> PairSettings {
    PairSettings::new(1, CATALOGUE)
}

/// Counts of the client and records of the server, stream by stream.
fn counts_and_records(pair: &Pair) -> Vec<(StreamSummary, ServedStream)> {
    let mut counted = Vec::new();
    let mut served = Vec::new();
    for (_, output) in pair.outputs() {
        match output {
            Output::Streams(streams) => counted.extend(summaries(streams)),
            Output::Record(record) => served.extend(record.downcast_ref::<ServedStream>().cloned()),
            _ => {}
        }
    }
    assert_eq!(counted.len(), served.len());
    served.sort_by(|a, b| a.url.cmp(&b.url));
    counted.sort_by(|a, b| a.url.cmp(&b.url));
    counted.into_iter().zip(served).collect()
}

fn count(pair: &mut Pair, counter: CounterId) -> u64 {
    pair.recorder(Side::Client).counter(counter)
}

/// Number of measurements and their maximum in milliseconds.
fn delay(pair: &mut Pair, histogram: HistogramId) -> (u64, f64) {
    match pair.recorder(Side::Client).histogram(histogram) {
        Some(histogram) => (histogram.count(), histogram.max().unwrap_or(0) as f64 / 1e6),
        None => (0, 0.0),
    }
}

fn assert_delay(got: (u64, f64), count: u64, ms: f64) {
    assert_eq!(got.0, count, "{got:?}");
    assert!(
        (got.1 - ms).abs() <= 0.01 * ms + 0.1,
        "{got:?}, not {ms} ms"
    );
}

#[test]
fn pause_and_seek_cause_no_loss_gap_or_stall() {
    for transport in BOTH {
        let actions = r#"[{"wait":"5s"},{"pause":"20s"},{"wait":"3s"},{"seek":"50s"}]"#;
        let mut network = settings();
        network.stream_delay = Duration::from_millis(20);
        network.up.delay = Duration::from_millis(20);
        network.down.delay = Duration::from_millis(20);
        let mut pair = played(network, client_config(transport, actions), server_config());
        assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));
        // 5 s, a pause of 20 s, 3 s more, and the last 10 s.
        let took = pair.now().as_secs_f64();
        assert!((38.0..39.5).contains(&took), "{took}");
        for (summary, served) in counts_and_records(&pair) {
            let counts = summary.counts;
            assert_eq!(
                (counts.expected, counts.received, counts.restarts),
                (served.expected, served.sent, 0),
                "{served:?}"
            );
            assert_eq!(served.lost, 0);
            // The client watched everything that was sent.
            let seconds = served.payload_bytes as f64 * 8.0;
            let rate = if served.media == "video" {
                400_000.0
            } else {
                64_000.0
            };
            assert!((seconds / rate - 18.0).abs() < 0.5, "{served:?}");
            assert!(
                summary.longest_gap < Duration::from_millis(150),
                "{summary:?}"
            );
            assert!(
                summary.jitter_mean < Some(Duration::from_millis(20)),
                "{summary:?}"
            );
        }
        assert_eq!(count(&mut pair, rtp::STALLS), 0);
        assert_eq!(count(&mut pair, rtp::FRAMES_BROKEN), 0);
        assert_eq!(count(&mut pair, rtp::RTP_INFO_MISMATCH), 0);
        assert_eq!(count(&mut pair, m::ACTIONS), 2);
        assert_eq!(count(&mut pair, m::ACTIONS_REFUSED), 0);
        assert_eq!(count(&mut pair, m::RANGE_MISMATCH), 0);
        assert_eq!(count(&mut pair, m::POSITION_UNTOLD), 0);
        // Each action sends a PAUSE first; a round trip is 40 ms.
        assert_delay(delay(&mut pair, m::PAUSE_DELAY), 2, 40.0);
        assert_delay(delay(&mut pair, m::PLAY_DELAY), 3, 40.0);
        assert_delay(delay(&mut pair, m::RESUME_DELAY), 1, 40.0);
        assert_delay(delay(&mut pair, m::SEEK_DELAY), 1, 80.0);
        assert_delay(delay(&mut pair, m::SEEK_TO_MEDIA), 1, 80.0);
        assert_delay(delay(&mut pair, m::RESUME_TO_MEDIA), 1, 40.0);
    }
}

#[test]
fn seek_starts_at_the_previous_key_frame() {
    let actions =
        r#"[{"play":{"from":"13s"}},{"wait":"2s"},{"seek":"31500ms"},{"wait":"2s"},{"leave":{}}]"#;
    let client = client_config(Transport::Udp, actions);
    let mut pair = played(settings(), client, server_config());
    assert_eq!(pair.outcome(FIRST), Some(&Outcome::Stopped));
    // A key frame every two seconds: 12 s for 13 s, 30 s for 31.5 s.
    assert_delay(delay(&mut pair, m::SEEK_DISTANCE), 2, 1500.0);
    for (_, served) in counts_and_records(&pair) {
        let rate = if served.media == "video" {
            400_000.0
        } else {
            64_000.0
        };
        let seconds = served.payload_bytes as f64 * 8.0 / rate;
        assert!((seconds - 4.0).abs() < 0.5, "{served:?}");
    }
}

#[test]
fn ranges_are_played_one_after_the_other() {
    for transport in BOTH {
        let actions = r#"[{"play":{"from":"10s","to":"14s"}},{"play":{"from":"40s","to":"43s"}}]"#;
        let mut pair = played(
            settings(),
            client_config(transport, actions),
            server_config(),
        );
        assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));
        let took = pair.now().as_secs_f64();
        assert!((7.0..11.0).contains(&took), "{took}");
        for (summary, served) in counts_and_records(&pair) {
            assert_eq!(summary.counts.received, served.sent);
            let rate = if served.media == "video" {
                400_000.0
            } else {
                64_000.0
            };
            let seconds = served.payload_bytes as f64 * 8.0 / rate;
            assert!((seconds - 7.0).abs() < 0.5, "{served:?}");
        }
        assert_eq!(count(&mut pair, m::ACTIONS), 1);
    }
}

#[test]
fn counts_match_the_server_on_a_lossy_network() {
    for seed in 0..40 {
        let mut network = PairSettings::new(seed, CATALOGUE);
        network.down = Settings {
            delay: Duration::from_millis(30),
            ..network.down.clone()
        };
        network.stream_delay = Duration::from_millis(30);
        let actions = r#"[{"wait":"2s..4s"},{"pause":"0s..4s"},{"seek":"5s..50s"},{"wait":"1s..3s"},{"seek":"0s..30s"},{"wait":"4s"},{"leave":{}}]"#;
        let mut server = server_config();
        server.seed = seed;
        for fault in ["loss=3%", "duplicate=3%", "loss-burst=0.3%x5"] {
            server.faults.add(fault).expect("a fault");
        }
        let transport = BOTH[seed as usize % 2];
        let mut pair = played(network, client_config(transport, actions), server);
        assert_eq!(pair.outcome(FIRST), Some(&Outcome::Stopped));
        for (summary, served) in counts_and_records(&pair) {
            let counts = summary.counts;
            // The client does not see packets in transit when it leaves.
            assert!(served.sent - counts.received <= 10, "{counts:?} {served:?}");
            assert!(
                served.expected - counts.expected <= 10,
                "{counts:?} {served:?}"
            );
            assert_eq!(counts.restarts + counts.malformed + counts.late, 0);
            let lost = counts.lost().abs_diff(served.lost);
            assert!(lost <= 5, "seed {seed}: {counts:?} {served:?}");
        }
        assert_eq!(count(&mut pair, rtp::RTP_INFO_MISMATCH), 0, "seed {seed}");
        assert_eq!(count(&mut pair, rtp::STALLS), 0);
        assert_eq!(count(&mut pair, m::ACTIONS), 3);
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let actions = r#"[{"wait":"1s..9s"},{"seek":"5s..50s"},{"wait":"1s..9s"},{"leave":{"chance":"50%"}}]"#;
        let network = PairSettings::new(seed, CATALOGUE);
        let pair = played(
            network,
            client_config(Transport::Tcp, actions),
            server_config(),
        );
        (pair.now(), pair.outcome(FIRST).cloned())
    };
    let outcomes: Vec<_> = (0..20).map(run).collect();
    assert_eq!(outcomes, (0..20).map(run).collect::<Vec<_>>());
    let left = outcomes
        .iter()
        .filter(|(_, outcome)| *outcome == Some(Outcome::Stopped));
    assert!((4..=16).contains(&left.count()), "{outcomes:?}");
}

#[test]
fn refused_actions_are_counted_and_playback_continues() {
    // Beyond the end of the media: playback continues at the old position.
    let actions = r#"[{"wait":"2s"},{"seek":"90s"},{"wait":"2s"},{"leave":{}}]"#;
    let mut pair = played(
        settings(),
        client_config(Transport::Udp, actions),
        server_config(),
    );
    assert_eq!(pair.outcome(FIRST), Some(&Outcome::Stopped));
    assert_eq!(count(&mut pair, m::ACTIONS_REFUSED), 1);
    assert_eq!(count(&mut pair, m::ACTIONS_REFUSED_457), 1);
    for (summary, served) in counts_and_records(&pair) {
        assert_eq!(summary.counts.lost(), 0);
        let rate = if served.media == "video" {
            400_000.0
        } else {
            64_000.0
        };
        assert!((served.payload_bytes as f64 * 8.0 / rate - 4.0).abs() < 0.5);
    }
    // A server without PAUSE: the pause is skipped, and the seek works without one.
    let actions = r#"[{"wait":"2s"},{"pause":"3s"},{"seek":"50s"},{"wait":"2s"},{"leave":{}}]"#;
    let mut server = server_config();
    server.faults.add("refuse=pause:501").expect("a fault");
    let mut pair = played(settings(), client_config(Transport::Tcp, actions), server);
    assert_eq!(pair.outcome(FIRST), Some(&Outcome::Stopped));
    assert_eq!(count(&mut pair, m::ACTIONS_REFUSED_501), 1);
    assert_eq!(delay(&mut pair, m::SEEK_TO_MEDIA).0, 1);
    for (summary, _) in counts_and_records(&pair) {
        assert_eq!(summary.counts.lost(), 0, "{summary:?}");
    }
}

#[test]
fn without_rtp_info_no_delay_to_media_is_recorded() {
    let actions = r#"[{"wait":"2s"},{"seek":"50s"},{"wait":"2s"},{"leave":{}}]"#;
    let server = ServerConfig {
        rtp_info: false,
        ..server_config()
    };
    let mut pair = played(settings(), client_config(Transport::Udp, actions), server);
    assert_eq!(count(&mut pair, m::POSITION_UNTOLD), 1);
    assert_eq!(delay(&mut pair, m::SEEK_DELAY).0, 1);
    assert_eq!(delay(&mut pair, m::SEEK_TO_MEDIA).0, 0);
    assert_eq!(count(&mut pair, rtp::STALLS), 0);
    for (summary, _) in counts_and_records(&pair) {
        assert_eq!(summary.counts.lost(), 0, "{summary:?}");
    }
}

#[test]
fn actions_after_the_end_of_media_are_counted_as_left_out() {
    let actions = r#"[{"seek":"55s"},{"wait":"20s"},{"seek":"1s"},{"pause":"1s"},{"leave":{}}]"#;
    let mut pair = played(
        settings(),
        client_config(Transport::Udp, actions),
        server_config(),
    );
    assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));
    assert_eq!(count(&mut pair, m::ACTIONS_LEFT_OUT), 2);
}

/// Seconds of media sent, computed from the bytes.
fn sent(served: &ServedStream) -> f64 {
    let rate = match served.media.as_str() {
        "video" => 400_000.0,
        _ => 64_000.0,
    };
    served.payload_bytes as f64 * 8.0 / rate
}

#[test]
fn scale_changes_how_much_media_passes_at_the_same_bit_rate() {
    // 10 s at normal scale, then the rest of the media in the direction of the scale, divided by
    // it.
    for (scale, seconds) in [("2", 35.0), ("0.5", 110.0), ("-1", 20.0), ("-4", 12.5)] {
        for transport in BOTH {
            let actions = format!(r#"[{{"wait":"10s"}},{{"scale":{scale}}}]"#);
            let client = client_config(transport, &actions);
            let mut pair = played(settings(), client, server_config());
            assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed), "{scale}");
            for (summary, served) in counts_and_records(&pair) {
                let counts = summary.counts;
                assert_eq!((counts.lost(), counts.restarts), (0, 0));
                assert_eq!(counts.received, served.sent);
                assert!((sent(&served) - seconds).abs() < 0.7, "{scale}: {served:?}");
            }
            assert_eq!(count(&mut pair, m::SCALE_MISMATCH), 0);
            assert_eq!(count(&mut pair, m::RANGE_MISMATCH), 0);
            assert_eq!(count(&mut pair, rtp::RTP_INFO_MISMATCH), 0);
            assert_eq!(count(&mut pair, rtp::CLOCK_JUMPS), 0);
            assert_eq!(count(&mut pair, rtp::STALLS), 0);
            assert_eq!(delay(&mut pair, m::SCALE_TO_MEDIA).0, 1);
        }
    }
}

#[test]
fn speed_changes_the_delivery_rate_of_all_media() {
    for (speed, took) in [("2", 35.0), ("0.5", 110.0)] {
        for transport in BOTH {
            let actions = format!(r#"[{{"wait":"10s"}},{{"speed":{speed}}}]"#);
            let client = client_config(transport, &actions);
            let mut pair = played(settings(), client, server_config());
            assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed), "{speed}");
            let now = pair.now().as_secs_f64();
            assert!((now - took).abs() < 1.5, "{speed}: {now}");
            for (summary, served) in counts_and_records(&pair) {
                let counts = summary.counts;
                assert_eq!((counts.lost(), counts.restarts), (0, 0));
                assert!((sent(&served) - 60.0).abs() < 0.7, "{speed}: {served:?}");
            }
            assert_eq!(count(&mut pair, m::SPEED_MISMATCH), 0);
            assert_eq!(count(&mut pair, m::SPEED_CLOCK_MISMATCH), 0);
            assert_eq!(count(&mut pair, rtp::CLOCK_JUMPS), 0);
            // A player at normal speed runs dry if the media arrives more slowly.
            assert_eq!(count(&mut pair, rtp::STALLS) > 0, speed == "0.5");
            assert_eq!(delay(&mut pair, m::SPEED_TO_MEDIA).0, 1);
        }
    }
}

#[test]
fn playback_returns_to_normal_after_changes() {
    let actions = r#"[{"wait":"4s"},{"speed":4},{"wait":"5s"},{"speed":1},{"scale":-2},{"wait":"5s"},
        {"play":{"scale":1,"from":"50s"}},{"wait":"1s"},{"pause":"3s"}]"#;
    for transport in BOTH {
        let client = client_config(transport, actions);
        let mut pair = played(settings(), client, server_config());
        assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));
        for (summary, served) in counts_and_records(&pair) {
            let counts = summary.counts;
            assert_eq!((counts.lost(), counts.restarts), (0, 0), "{summary:?}");
            // 4 s, 20 s, 5 s, and from 50 s to the end.
            assert!((sent(&served) - 39.0).abs() < 1.0, "{served:?}");
        }
        for none in [
            m::SCALE_MISMATCH,
            m::SPEED_MISMATCH,
            m::SPEED_CLOCK_MISMATCH,
            m::RANGE_MISMATCH,
            m::POSITION_MISMATCH,
            rtp::RTP_INFO_MISMATCH,
            rtp::CLOCK_JUMPS,
            rtp::STALLS,
        ] {
            assert_eq!(count(&mut pair, none), 0, "{none:?}");
        }
    }
}

#[test]
fn servers_that_ignore_a_confirmed_change_are_detected() {
    let actions = |change: &str| {
        format!(r#"[{{"wait":"12s"}},{change},{{"wait":"10s"}},{{"pause":"1s"}},{{"leave":{{}}}}]"#)
    };
    for (fault, change, counter, stated) in [
        (
            "pretend=scale",
            r#"{"scale":2}"#,
            m::POSITION_MISMATCH,
            m::SCALE_MISMATCH,
        ),
        (
            "pretend=scale",
            r#"{"scale":-1}"#,
            m::POSITION_MISMATCH,
            m::SCALE_MISMATCH,
        ),
        (
            "pretend=speed",
            r#"{"speed":2}"#,
            m::SPEED_CLOCK_MISMATCH,
            m::SPEED_MISMATCH,
        ),
        (
            "pretend=speed",
            r#"{"speed":0.5}"#,
            m::SPEED_CLOCK_MISMATCH,
            m::SPEED_MISMATCH,
        ),
        (
            "pretend=range",
            r#"{"seek":"40s"}"#,
            m::POSITION_MISMATCH,
            m::RANGE_MISMATCH,
        ),
    ] {
        for transport in BOTH {
            let client = client_config(transport, &actions(change));
            let honest = played(settings(), client.clone(), server_config());
            let mut server = server_config();
            server.faults.add(fault).expect("a fault");
            let lying = played(settings(), client, server);
            for (mut pair, times) in [(honest, 0), (lying, 1)] {
                assert_eq!(pair.outcome(FIRST), Some(&Outcome::Stopped));
                assert_eq!(count(&mut pair, counter), times, "{fault} {change}");
                assert_eq!(count(&mut pair, stated), 0, "{fault} {change}");
            }
        }
    }
}

#[test]
fn range_without_a_start_continues_at_the_current_position() {
    let actions = r#"[{"wait":"5s"},{"play":{"to":"12s"}},{"play":{"to":"20s"}}]"#;
    let client = client_config(Transport::Udp, actions);
    let mut pair = played(settings(), client, server_config());
    assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));
    for (summary, served) in counts_and_records(&pair) {
        assert_eq!(summary.counts.lost(), 0, "{summary:?}");
        // Playback restarts at a key frame; there is one every two seconds.
        assert!((20.0..24.5).contains(&sent(&served)), "{served:?}");
    }
    assert_eq!(count(&mut pair, m::ACTIONS_REFUSED), 0);
    assert_eq!(count(&mut pair, m::RANGE_MISMATCH), 0);
}

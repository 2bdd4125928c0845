//! RTSP client and reference server against each other, in virtual time over a seeded network: the
//! client's counts match the server's and the network's.

use std::time::Duration;

use kit::faults::FaultSet as _;
use kit::media::rtp::metrics::{self as rtp, RTP};
use kit::media::rtp::summaries;
use kit::media::rtp::{ServedStream, StreamSummary};
use kit::metrics::{CLIENTS, ZAPPING};
use kit::viewer::VIEWERS;
use measure::Catalogue;
use measure::units::{BitRate, TimeSpan};
use rtsp::client::Client;
use rtsp::config::{ClientConfig, Transport};
use rtsp::metrics::{self as m, RTSP};
use rtsp::server::{AuthScheme, Server, ServerConfig, Transports};
use session::link::{Jitter, Loss, Settings};
use session::testing::{
    Pair, PairSettings, RunEnd, ServerReaction, SessionNumber, Side, judgements,
};
use session::{Judgement, Outcome, Output};

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &RTP, &RTSP]);
const FIRST: SessionNumber = SessionNumber(0);

fn server_config() -> ServerConfig {
    ServerConfig {
        bitrate: BitRate(400_000),
        length: Some(Duration::from_secs(10)),
        audio: true,
        // A wrap of the sequence numbers in each stream.
        first_seq: Some(65_300),
        ..ServerConfig::default()
    }
}

fn with_faults(faults: &[&str]) -> ServerConfig {
    let mut config = server_config();
    for fault in faults {
        config.faults.add(fault).unwrap();
    }
    config
}

fn client_config(transport: Transport) -> ClientConfig {
    ClientConfig {
        transport,
        ..ClientConfig::default()
    }
}

fn pair(settings: PairSettings, client: &ClientConfig, url: &str, server: ServerConfig) -> Pair {
    let server = Server::new(server).unwrap();
    pair_with(settings, client, url, &server, 1)
}

/// A client, and the server's session for connection `number`.
fn pair_with(
    settings: PairSettings,
    client: &ClientConfig,
    url: &str,
    server: &Server,
    number: u64,
) -> Pair {
    let client = Client::new(client.clone(), url, settings.seed).unwrap();
    let server = server.clone();
    Pair::new(settings, Box::new(client), move |_| server.session(number))
}

fn settings(seed: u64) -> PairSettings {
    PairSettings::new(seed, CATALOGUE)
}

const URL: &str = "rtsp://server/a";

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
    counted
        .into_iter()
        .map(|summary| {
            let place = served
                .iter()
                .position(|served| Some(served.ssrc) == summary.ssrc);
            let served = served.swap_remove(place.expect("each stream was served"));
            assert_eq!(served.url, summary.url);
            (summary, served)
        })
        .collect()
}

fn reason(pair: &Pair) -> &'static str {
    match pair.outcome(FIRST) {
        Some(Outcome::Failed(failure)) => failure.reason,
        other => panic!("{other:?}"),
    }
}

fn notes(pair: &Pair) -> Vec<&'static str> {
    pair.outputs()
        .iter()
        .filter_map(|(_, output)| match output {
            Output::Note(note) => Some(note.kind),
            _ => None,
        })
        .collect()
}

/// Runs a pair to its end, and compares every count of the client with the server's.
fn counts_agree(pair: &mut Pair) -> Vec<(StreamSummary, ServedStream)> {
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));
    let told = counts_and_records(pair);
    for (summary, served) in &told {
        let counts = summary.counts;
        assert_eq!(
            (
                counts.expected,
                counts.received,
                counts.duplicated,
                counts.reordered
            ),
            (
                served.expected,
                served.sent,
                served.duplicated,
                served.reordered
            ),
            "{served:?}"
        );
        assert_eq!(counts.payload_bytes, served.payload_bytes);
        assert_eq!(
            counts.late + counts.malformed + counts.restarts,
            0,
            "{counts:?}"
        );
        assert!(
            served.ended && served.last_extended_seq > 65_536,
            "{served:?}"
        );
    }
    told
}

#[test]
fn clean_play_to_the_end() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut pair = pair(settings(1), &client_config(transport), URL, server_config());
        let told = counts_agree(&mut pair);
        assert_eq!(told.len(), 2);
        let (video, audio) = (&told[0].1, &told[1].1);
        assert!(video.payload_bytes.abs_diff(500_000) < 1000, "{video:?}");
        assert_eq!((audio.sent, audio.payload_bytes), (500, 80_000));
        for (_, served) in &told {
            assert_eq!(
                served.lost + served.lost_tail + served.duplicated + served.reordered,
                0
            );
        }
        assert!(
            pair.now().as_secs_f64() < 12.0,
            "ended by BYE, not by silence"
        );
        let recorder = pair.recorder(Side::Client);
        assert_eq!(recorder.counter(m::REFUSALS), 0);
        assert_eq!(recorder.counter(rtp::SENDER_REPORTS), 4);
        assert_eq!(notes(&pair), [""; 0]);
    }
}

#[test]
fn faults_of_the_server_are_found_exactly() {
    let cases: [&[&str]; 7] = [
        &["loss=3%"],
        &["loss-burst=0.5%x7"],
        &["duplicate=4%"],
        &["reorder=4%x3"],
        &["jitter=30ms"],
        &["delay=80ms", "stall=3s+1s"],
        &[
            "loss=2%",
            "loss-burst=0.2%x5",
            "duplicate=3%",
            "reorder=3%x5",
            "jitter=4ms",
        ],
    ];
    for transport in [Transport::Udp, Transport::Tcp] {
        for (seed, faults) in (0..).zip(cases) {
            let mut config = with_faults(faults);
            config.seed = seed;
            let mut pair = pair(settings(seed), &client_config(transport), URL, config);
            let told = counts_agree(&mut pair);
            let video = &told[0].1;
            let struck = video.lost + video.duplicated + video.reordered;
            let only_late = faults[0].starts_with("delay");
            assert_eq!(struck == 0, only_late, "{faults:?}: {video:?}");
        }
    }
}

#[test]
fn faults_of_the_network_are_found_exactly() {
    let mut settings = settings(3);
    settings.down = Settings {
        delay: Duration::from_millis(20),
        jitter: Jitter {
            spread: Duration::from_millis(3),
            ..Jitter::default()
        },
        loss: Loss::Random(0.03),
        duplicate: 0.02,
        reorder: 0.05,
        held_back: Duration::from_millis(40),
        ..Settings::default()
    };
    let config = ServerConfig {
        audio: false,
        ..server_config()
    };
    let mut pair = pair(settings, &client_config(Transport::Udp), URL, config);
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));
    let (summary, served) = &counts_and_records(&pair)[0];
    assert_eq!((served.lost, served.reordered), (0, 0));
    let path = pair
        .paths()
        .max_by_key(|path| path.counts.packets)
        .expect("media took a path");
    let counts = summary.counts;
    assert_eq!(path.counts.packets, served.sent);
    assert_eq!(counts.received, path.counts.delivered);
    assert_eq!(counts.duplicated, path.counts.duplicated);
    assert_eq!(counts.reordered, path.counts.reordered);
    assert!(path.counts.lost() > 0 && path.counts.duplicated > 0 && path.counts.reordered > 0);
    // Losses after the last received packet are invisible.
    assert!(
        served.expected - counts.expected <= 3,
        "{counts:?} {served:?}"
    );
}

#[test]
fn viewers_are_judged_by_the_injected_faults() {
    let cases: [(&[&str], Judgement); 8] = [
        (&[], Judgement::Well),
        (&["loss=0.2%"], Judgement::Well),
        (&["loss=3%"], Judgement::Loss),
        (&["stall=3s+900ms"], Judgement::Well),
        (&["stall=3s+1500ms"], Judgement::Stalled),
        (&["slow=play:1500ms"], Judgement::Well),
        (&["slow=play:2500ms"], Judgement::StartedLate),
        (&["refuse=setup:461"], Judgement::Failed),
    ];
    for transport in [Transport::Udp, Transport::Tcp] {
        for (faults, expected) in cases {
            let config = client_config(transport);
            let mut pair = pair(settings(1), &config, URL, with_faults(faults));
            assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
            assert_eq!(
                judgements(&pair),
                [Some(expected)],
                "{transport:?} {faults:?}"
            );
        }
    }
    // With bounds of its own.
    let mut config = client_config(Transport::Udp);
    config.served_well.stalled = TimeSpan(Duration::from_secs(1));
    let mut pair = pair(settings(1), &config, URL, with_faults(&["stall=3s+1500ms"]));
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(judgements(&pair), [Some(Judgement::Well)]);
}

#[test]
fn without_a_first_number_counting_starts_at_the_first_packet() {
    let mut config = with_faults(&["loss=20%"]);
    config.rtp_info = false;
    config.seed = 11;
    let mut pair = pair(settings(1), &client_config(Transport::Udp), URL, config);
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    for (summary, served) in counts_and_records(&pair) {
        assert!(!served.base_told);
        let expected = served.last_left_extended_seq - served.first_left_extended_seq + 1;
        assert_eq!(summary.counts.expected, expected);
        assert_eq!(summary.counts.received, served.sent);
    }
}

#[test]
fn all_authentication_schemes_work() {
    for auth in [
        AuthScheme::Digest,
        AuthScheme::DigestSha256,
        AuthScheme::Basic,
        AuthScheme::Any,
    ] {
        let config = || ServerConfig {
            user: Some("ann".to_owned()),
            password: "p:w d".to_owned(),
            auth,
            ..server_config()
        };
        let url = "rtsp://ann:p%3Aw%20d@server/a";
        let mut right = pair(settings(1), &client_config(Transport::Tcp), url, config());
        counts_agree(&mut right);
        for wrong in ["rtsp://ann:no@server/a", URL] {
            let mut pair = pair(settings(1), &client_config(Transport::Tcp), wrong, config());
            assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
            assert_eq!(reason(&pair), "status_401", "{auth:?}");
        }
    }
}

#[test]
fn each_failure_has_its_reason() {
    let no_stream = ServerConfig {
        streams: Some(3),
        ..server_config()
    };
    let udp_only = ServerConfig {
        transports: Transports::Udp,
        ..server_config()
    };
    let all_lost = ServerConfig {
        length: None,
        ..with_faults(&["loss=100%"])
    };
    let cases: [(ServerConfig, &str, &str); 11] = [
        (no_stream, "status_404", ""),
        (udp_only, "status_461", ""),
        (
            with_faults(&["refuse=setup:461"]),
            "status_461",
            "fault_refuse",
        ),
        (
            with_faults(&["refuse=describe:503"]),
            "status_503",
            "fault_refuse",
        ),
        (
            with_faults(&["silent=options"]),
            "timeout_options",
            "fault_silent",
        ),
        (
            with_faults(&["silent=describe"]),
            "timeout_describe",
            "fault_silent",
        ),
        (
            with_faults(&["silent=setup"]),
            "timeout_setup",
            "fault_silent",
        ),
        (
            with_faults(&["silent=play"]),
            "timeout_play",
            "fault_silent",
        ),
        (
            with_faults(&["cut=describe"]),
            "closed_in_describe",
            "fault_cut",
        ),
        (with_faults(&["cut=3s"]), "closed_in_play", "fault_cut"),
        (all_lost, "no_media", ""),
    ];
    for (config, expected, note) in cases {
        let mut pair = pair(settings(1), &client_config(Transport::Tcp), URL, config);
        assert_eq!(
            pair.run(Duration::from_secs(120)),
            RunEnd::Ended,
            "{expected}"
        );
        assert_eq!(reason(&pair), expected);
        assert!(note.is_empty() || notes(&pair).contains(&note), "{note}");
    }
}

#[test]
fn silent_end_of_media_is_detected() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let config = ServerConfig {
            length: Some(Duration::from_secs(60)),
            ..with_faults(&["stop=3s"])
        };
        let mut pair = pair(settings(1), &client_config(transport), URL, config);
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        assert_eq!(reason(&pair), "media_stopped");
        for (summary, served) in counts_and_records(&pair) {
            assert!(!served.ended);
            assert_eq!(summary.counts.received, served.sent);
        }
    }
}

#[test]
fn refused_and_silent_servers_are_reported() {
    for (door, expected) in [
        (ServerReaction::Refuse, "refused"),
        (ServerReaction::Ignore, "connect_timeout"),
    ] {
        let mut settings = settings(1);
        settings.server_reaction = door;
        let mut pair = pair(
            settings,
            &client_config(Transport::Udp),
            URL,
            server_config(),
        );
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        assert_eq!(reason(&pair), expected);
    }
}

#[test]
fn client_keeps_its_session_alive() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let client = ClientConfig {
            receiver_reports: false,
            ..client_config(transport)
        };
        let config = ServerConfig {
            session_timeout: Duration::from_secs(2),
            ..server_config()
        };
        let mut pair = pair(settings(1), &client, URL, config);
        counts_agree(&mut pair);
        let requests = pair.recorder(Side::Client).counter(m::REQUESTS);
        assert!((10..25).contains(&requests), "{requests}");
    }
}

#[test]
fn garbage_and_late_responses_are_tolerated() {
    let config = with_faults(&["garbage=50%", "slow=300ms"]);
    let mut pair = pair(settings(1), &client_config(Transport::Tcp), URL, config);
    counts_agree(&mut pair);
    let notes = notes(&pair);
    assert!(notes.contains(&"fault_garbage") && notes.contains(&"fault_slow"));
    assert!(pair.recorder(Side::Client).counter(m::GARBAGE_BYTES) > 0);
}

#[test]
fn wrong_content_length_never_hangs() {
    for seed in 0..8 {
        let mut config = with_faults(&["content-length"]);
        config.seed = seed;
        let client = ClientConfig {
            request_timeout: TimeSpan(Duration::from_secs(2)),
            ..client_config(Transport::Tcp)
        };
        let mut pair = pair(settings(seed), &client, URL, config);
        assert_eq!(pair.run(Duration::from_secs(120)), RunEnd::Ended, "{seed}");
        assert!(notes(&pair).contains(&"fault_content_length"));
    }
}

#[test]
fn stopped_client_tears_down() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let config = ServerConfig {
            length: None,
            ..server_config()
        };
        let mut pair = pair(settings(1), &client_config(transport), URL, config);
        assert_eq!(pair.run(Duration::from_secs(20)), RunEnd::TimeUp);
        pair.stop(FIRST, Duration::from_secs(5));
        assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::Ended);
        assert_eq!(pair.outcome(FIRST), Some(&Outcome::Stopped));
        for (summary, served) in counts_and_records(&pair) {
            // The client does not see packets in transit when it leaves.
            assert!(served.sent - summary.counts.received <= 10, "{served:?}");
            assert_eq!(served.lost, 0);
            assert_eq!(summary.counts.expected, summary.counts.received);
        }
    }
}

#[test]
fn counts_agree_for_many_seeds() {
    let config = ServerConfig {
        length: Some(Duration::from_secs(2)),
        audio: false,
        ..with_faults(&["loss=3%", "duplicate=3%", "reorder=3%x4", "jitter=10ms"])
    };
    let server = Server::new(config).unwrap();
    let mut ended = 0;
    for seed in 0..300 {
        let transport = if seed % 2 == 0 {
            Transport::Udp
        } else {
            Transport::Tcp
        };
        let mut pair = pair_with(
            settings(seed),
            &client_config(transport),
            URL,
            &server,
            seed,
        );
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        for (summary, served) in counts_and_records(&pair) {
            let counts = summary.counts;
            assert_eq!(
                (
                    counts.expected,
                    counts.received,
                    counts.duplicated,
                    counts.reordered
                ),
                (
                    served.expected,
                    served.sent,
                    served.duplicated,
                    served.reordered
                )
            );
            ended += u64::from(served.ended);
        }
    }
    assert_eq!(ended, 300);
}

#[test]
fn describing_client_gets_the_description_and_plays_nothing() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let server = Server::new(ServerConfig {
            auth: AuthScheme::Digest,
            user: Some("me".to_owned()),
            password: "secret".to_owned(),
            ..server_config()
        })
        .unwrap();
        let url = "rtsp://me:secret@server/a";
        let client = Client::describing(client_config(transport), url, 1).unwrap();
        let sessions = server.clone();
        let mut pair = Pair::new(settings(1), Box::new(client), move |_| sessions.session(1));
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));
        let said: Vec<_> = pair
            .outputs()
            .iter()
            .filter_map(|(_, output)| match output {
                Output::Described(said) => Some(said),
                Output::Record(_) | Output::Playing { .. } => {
                    panic!("{output:?}")
                }
                _ => None,
            })
            .collect();
        assert_eq!(said.len(), 1, "{transport:?}");
        assert_eq!(said[0].length, Some(10.0));
        assert_eq!(said[0].kinds_without_bitrate(), [] as [&str; 0]);
        let [video, audio] = &said[0].streams[..] else {
            panic!("two streams: {said:?}");
        };
        assert_eq!(video.codec.as_deref(), Some("H264"));
        assert!(video.resolution.is_some());
        assert_eq!(audio.kind, "audio");
        assert!(said[0].bitrate >= Some(400_000), "{said:?}");
    }
}

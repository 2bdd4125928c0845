//! Tests of the client with the reference server in virtual time.

use std::sync::Arc;

use measure::{Catalogue, CounterId, HistogramId};

use super::*;
use crate::codec::handshake::HandshakeVariant;
use crate::metrics::RTMP;
use crate::server::{ServedClient, Server, ServerConfig};
use crate::source::Tracks;
use kit::awaiting_publisher::{AwaitedStreams, WaitingClient};
use kit::faults::FaultSet as _;
use kit::media::frames::metrics::{self as frames, FRAMES_GROUP};
use kit::media::source::SourceConfig;
use kit::metrics::{CLIENTS, ZAPPING};
use kit::viewer::VIEWERS;
use session::Judgement;
use session::testing::{
    Pair, PairSettings, RunEnd, ServerReaction, SessionNumber, Side, judgements,
};

mod odd_servers;

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &FRAMES_GROUP, &RTMP]);
const CLIENT: SessionNumber = SessionNumber(0);
const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);
const URL: &str = "rtmp://10.0.0.2/live/stream1?token=x";

fn client(config: ClientConfig) -> Box<Client> {
    let client = Client::new(config, URL, 7).expect("a URL");
    Box::new(client.with_wall_clock(WALL_CLOCK))
}

fn settings() -> PairSettings {
    PairSettings {
        port: 1935,
        ..PairSettings::new(1, CATALOGUE)
    }
}

fn server(faults: &[&str]) -> Server {
    let mut config = ServerConfig {
        source: SourceConfig {
            audio: Some(true),
            ..SourceConfig::default()
        },
        wall_clock: WALL_CLOCK,
        ..ServerConfig::default()
    };
    for fault in faults {
        config.faults.add(fault).expect("it is known");
    }
    Server::new(config).expect("it can be made")
}

/// Client that plays from a server with these faults.
fn pair(faults: &[&str], config: ClientConfig) -> Pair {
    let server = server(faults);
    Pair::new(settings(), client(config), move |number| {
        server.session(number.0 as u64)
    })
}

/// Returns the reason and the detail of the client's failure, within 30 s.
fn failure_of(faults: &[&str]) -> (&'static str, String) {
    let config = ClientConfig {
        handshake: match faults.contains(&"handshake=digest") {
            true => HandshakeVariant::Digest,
            false => HandshakeVariant::Plain,
        },
        ..ClientConfig::default()
    };
    let mut pair = pair(faults, config);
    pair.run(Duration::from_secs(30));
    match pair.outcome(CLIENT) {
        Some(
            Outcome::Failed(failure)
            | Outcome::EndedByServer {
                in_order: false,
                failure,
                ..
            },
        ) => (failure.reason, failure.detail.clone()),
        other => panic!("{faults:?}: {other:?}"),
    }
}

fn counters<const N: usize>(pair: &mut Pair, counters: [CounterId; N]) -> [u64; N] {
    let recorder = pair.recorder(Side::Client);
    counters.map(|counter| recorder.counter(counter))
}

fn histogram_max(pair: &mut Pair, histogram: HistogramId) -> Option<Duration> {
    let histogram = pair.recorder(Side::Client).histogram(histogram)?;
    histogram.max().map(Duration::from_nanos)
}

/// Returns the server's report on a connection.
fn served(pair: &Pair) -> ServedClient {
    let mut records = pair.outputs().iter().filter_map(|(_, said)| match said {
        Output::Record(record) => record.downcast_ref::<ServedClient>(),
        _ => None,
    });
    records.next_back().expect("it has ended").clone()
}

/// A publishing client, and a client that plays its stream, on a server with these faults.
fn publisher_and_player(faults: &[&str], config: ClientConfig) -> Pair {
    let server = server(faults);
    let source = SourceConfig {
        audio: Some(true),
        ..SourceConfig::default()
    };
    let tracks = Tracks::new(&source, None).expect("it can be made");
    let publisher = client(config).publishing(Arc::new(tracks));
    let mut pair = Pair::new(settings(), Box::new(publisher), move |number| {
        server.session(number.0 as u64)
    });
    pair.add_client(waiting(*client(ClientConfig::default())));
    pair
}

/// A client that waits for its stream.
fn waiting(client: Client) -> Box<WaitingClient> {
    let awaited = AwaitedStreams::stream(client.url.topic());
    Box::new(WaitingClient::new(Box::new(client), Arc::new(awaited)))
}

#[test]
fn every_published_frame_reaches_the_players() {
    for chunk_size in [128, 4096, 65_536] {
        let config = ClientConfig {
            chunk_size,
            ..ClientConfig::default()
        };
        let mut pair = publisher_and_player(&[], config);
        assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::TimeUp);
        pair.stop(CLIENT, Duration::from_secs(1));
        assert_eq!(pair.run(Duration::from_secs(2)), RunEnd::Ended);
        assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Stopped));
        // The server reports the end of the stream.
        assert_eq!(pair.outcome(SessionNumber(1)), Some(&Outcome::Completed));
        let own = [
            m::SENT_FRAMES,
            frames::FRAMES,
            frames::FRAMES_PUBLISHED,
            frames::FRAMES_DELIVERED,
            m::VIDEO_FRAMES,
            m::NOT_TAKEN,
            m::MALFORMED,
        ];
        let [
            sent,
            came,
            published,
            delivered,
            video,
            not_taken,
            malformed,
        ] = counters(&mut pair, own);
        assert!((700..720).contains(&sent), "{sent}");
        // The player began some milliseconds later, and the last frames are in flight.
        assert!(sent - came <= 6, "{sent} {came}");
        assert_eq!((published, delivered), (video, video));
        assert_eq!((not_taken, malformed), (0, 0));
        let delay = histogram_max(&mut pair, frames::FRAME_DELAY).expect("measured");
        assert!(delay < Duration::from_millis(6), "{delay:?}");
        let held = histogram_max(&mut pair, m::SEND_QUEUE_DELAY).expect("measured");
        assert_eq!(held, Duration::ZERO);
        assert!(histogram_max(&mut pair, m::PUBLISH_DELAY).is_some());
    }
}

#[test]
fn refused_publishers_fail_with_the_reason() {
    for (fault, reason) in [
        ("answer=bad-name", "publish_bad_name"),
        ("answer=close", "closed_in_command"),
        ("answer=silent", "timeout_connect"),
        ("close=3s", "closed_in_publishing"),
    ] {
        let mut pair = publisher_and_player(&[fault], ClientConfig::default());
        pair.run(Duration::from_secs(40));
        let outcome = pair.outcome(CLIENT);
        assert!(
            matches!(outcome, Some(Outcome::Failed(failure)) if failure.reason == reason),
            "{fault}: {outcome:?}"
        );
        if fault.starts_with("answer") {
            // The stream that the other client waits for was never published.
            let outcome = pair.outcome(SessionNumber(1));
            assert!(
                matches!(outcome, Some(Outcome::Failed(failure)) if failure.reason == "no_publisher"),
                "{outcome:?}"
            );
        }
    }
}

#[test]
fn every_sent_frame_is_counted_with_its_delay() {
    let mut pair = pair(&[], ClientConfig::default());
    assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::TimeUp);
    pair.stop(CLIENT, Duration::from_secs(1));
    assert_eq!(pair.run(Duration::from_secs(20)), RunEnd::Ended);
    assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Stopped));
    let served = served(&pair);
    let own = [
        m::VIDEO_FRAMES,
        m::AUDIO_FRAMES,
        m::KEY_FRAMES,
        m::MEDIA_CONFIGS,
        m::METADATA,
        m::MALFORMED,
        m::COMMANDS,
        m::REFUSALS,
    ];
    let [
        video,
        audio,
        key,
        configs,
        metadata,
        malformed,
        commands,
        refusals,
    ] = counters(&mut pair, own);
    assert_eq!((video, key), (250, 5));
    // Frames of the last millisecond are in flight.
    assert!(served.sent.video_frames - video <= 1);
    assert!(served.sent.audio_frames - audio <= 1 && audio > 460);
    assert_eq!((configs, metadata, malformed, refusals), (2, 1, 0, 0));
    assert_eq!(commands, 3);
    assert_eq!(
        (served.app.as_deref(), served.stream.as_deref()),
        (Some("live"), Some("stream1?token=x"))
    );
    let of_frames = [
        frames::FRAMES,
        frames::FRAMES_PUBLISHED,
        frames::FRAMES_DELIVERED,
        frames::STALLS,
        frames::CLOCK_JUMPS,
    ];
    assert_eq!(
        counters(&mut pair, of_frames),
        [video + audio, 250, 250, 0, 0]
    );
    // One millisecond, plus up to 0.2 ms per piece.
    let delay = histogram_max(&mut pair, frames::FRAME_DELAY).expect("measured");
    assert!(
        (Duration::from_millis(1)..Duration::from_millis(4)).contains(&delay),
        "{delay:?}"
    );
    for histogram in [
        m::HANDSHAKE_DELAY,
        m::CONNECT_COMMAND_DELAY,
        m::CREATE_STREAM_DELAY,
        m::PLAY_DELAY,
        m::KEY_FRAME_DELAY,
    ] {
        let delay = histogram_max(&mut pair, histogram).expect("measured");
        assert!((2..20).contains(&delay.as_millis()), "{delay:?}");
    }
}

#[test]
fn media_of_known_length_ends_with_exact_counts() {
    for lose in ["lose=0%", "lose=7%"] {
        let mut config = ServerConfig {
            source: SourceConfig {
                audio: Some(true),
                ..SourceConfig::default()
            },
            length: Some(Duration::from_secs(4)),
            ..ServerConfig::default()
        };
        config.faults.add(lose).expect("it is known");
        let server = Server::new(config).expect("it can be made");
        let mut pair = Pair::new(settings(), client(ClientConfig::default()), move |number| {
            server.session(number.0 as u64)
        });
        assert_eq!(pair.run(Duration::from_secs(9)), RunEnd::Ended);
        assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Completed));
        let sent = served(&pair).sent;
        let own = [
            m::VIDEO_FRAMES,
            m::AUDIO_FRAMES,
            frames::FRAMES_PUBLISHED,
            frames::PAYLOAD_BYTES,
        ];
        let [video, audio, published, bytes] = counters(&mut pair, own);
        assert_eq!((video, audio), (sent.video_frames, sent.audio_frames));
        assert_eq!(video + audio + sent.left_out, 100 + 188);
        assert_eq!(published - video, sent.missed);
        // Without the codec headers.
        assert_eq!(bytes + 5 * video + 2 * audio, sent.payload_bytes);
        assert_eq!(sent.left_out > 0, lose == "lose=7%");
    }
}

#[test]
fn viewers_are_judged_by_the_injected_faults() {
    let cases: [(&[&str], Judgement); 6] = [
        (&[], Judgement::Well),
        (&["stall=1s+900ms"], Judgement::Well),
        (&["stall=1s+1500ms"], Judgement::Stalled),
        (&["lose=7%"], Judgement::Loss),
        (&["answer=not-found"], Judgement::Failed),
        (&["answer=no-media"], Judgement::Failed),
    ];
    for (faults, expected) in cases {
        let mut pair = pair(faults, ClientConfig::default());
        pair.run(Duration::from_secs(8));
        if pair.outcome(CLIENT).is_none() {
            pair.stop(CLIENT, Duration::from_secs(1));
            pair.run(Duration::from_secs(1));
        }
        assert_eq!(judgements(&pair), [Some(expected)], "{faults:?}");
    }
}

#[test]
fn publisher_is_not_judged() {
    let mut pair = publisher_and_player(&[], ClientConfig::default());
    pair.run(Duration::from_secs(4));
    pair.stop(CLIENT, Duration::from_secs(1));
    assert_eq!(pair.run(Duration::from_secs(2)), RunEnd::Ended);
    assert_eq!(judgements(&pair), [Some(Judgement::Well)]);
}

#[test]
fn rows_summarize_each_stream() {
    let mut pair = pair(&[], ClientConfig::default());
    pair.run(Duration::from_secs(4));
    pair.stop(CLIENT, Duration::from_secs(1));
    pair.run(Duration::from_secs(1));
    let rows = pair.outputs().iter().find_map(|(_, said)| match said {
        Output::Streams(rows) => Some(rows),
        _ => None,
    });
    let rows = rows.expect("it had streams");
    let rows: Vec<&StreamSummary> = rows.iter().filter_map(StreamRow::downcast_ref).collect();
    let [video, audio] = rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!((video.kind, audio.kind), ("video", "audio"));
    assert_eq!((video.frames, video.key_frames), (100, 2));
    assert!(video.width.is_some() && video.payload_bytes > 490_000);
    let object = serde_json::to_value(video).expect("plain data");
    assert_eq!(object["codec"], "h264");
    let mut columns: Vec<String> = object
        .as_object()
        .expect("it is one")
        .keys()
        .map(|key| format!("/{key}"))
        .collect();
    let mut declared = COLUMNS.to_vec();
    declared.sort_unstable();
    columns.sort_unstable();
    assert_eq!(columns, declared);
}

#[test]
fn dropped_frames_are_missed() {
    let mut pair = pair(&["lose=5%"], ClientConfig::default());
    pair.run(Duration::from_secs(20));
    pair.stop(CLIENT, Duration::from_secs(1));
    pair.run(Duration::from_secs(1));
    let [published, delivered, video] = counters(
        &mut pair,
        [
            frames::FRAMES_PUBLISHED,
            frames::FRAMES_DELIVERED,
            m::VIDEO_FRAMES,
        ],
    );
    assert_eq!(delivered, video);
    let lost = published - delivered;
    assert!((10..45).contains(&lost), "{lost}");
    // Dropped audio frames are included.
    assert!(served(&pair).sent.left_out >= lost);
}

#[test]
fn stalls_and_late_audio_are_measured() {
    let mut stalled = pair(&["stall=5s+3s"], ClientConfig::default());
    stalled.run(Duration::from_secs(12));
    stalled.stop(CLIENT, Duration::from_secs(1));
    stalled.run(Duration::from_secs(1));
    // One of video and one of audio, with a playout buffer of one second.
    assert_eq!(counters(&mut stalled, [frames::STALLS]), [2]);
    let stall = histogram_max(&mut stalled, frames::STALL_TIME).expect("measured");
    assert!(
        stall.abs_diff(Duration::from_secs(2)) < Duration::from_millis(50),
        "{stall:?}"
    );
    let buffer = histogram_max(&mut stalled, frames::PLAYOUT_BUFFER).expect("measured");
    assert!(
        buffer.abs_diff(Duration::from_secs(3)) < Duration::from_millis(50),
        "{buffer:?}"
    );
    let mut skewed = pair(&["skew=200ms"], ClientConfig::default());
    skewed.run(Duration::from_secs(5));
    let skew = histogram_max(&mut skewed, m::AV_SKEW).expect("measured");
    assert!(
        skew.abs_diff(Duration::from_millis(200)) < Duration::from_millis(5),
        "{skew:?}"
    );
}

#[test]
fn each_server_fault_has_its_failure_reason() {
    for (fault, reason) in [
        ("handshake=silent", "timeout_handshake"),
        ("handshake=cut", "closed_in_handshake"),
        ("handshake=version", "handshake_version"),
        ("handshake=digest", "handshake_digest"),
        ("handshake=repeat", "malformed_message"),
        ("answer=silent", "timeout_connect"),
        ("answer=invalid-app", "invalid_app"),
        ("answer=rejected", "connect_rejected"),
        ("answer=not-found", "stream_not_found"),
        ("answer=close", "closed_in_command"),
        ("answer=deep-amf", "amf_too_deep"),
        ("answer=chunk-size-zero", "bad_chunk_size"),
        ("answer=chunk-size-huge", "bad_chunk_size"),
        ("answer=endless-status", "flooded"),
        ("answer=no-media", "no_media"),
        ("stop=3s", "media_stopped"),
        ("close=3s", "closed_in_media"),
    ] {
        let (found, detail) = failure_of(&[fault]);
        assert_eq!(found, reason, "{fault}: {detail}");
        assert!(detail.contains("10.0.0.2:1935"), "{detail}");
    }
}

#[test]
fn endless_statuses_fail_early() {
    // Endless statuses fail long before there are many.
    let mut pair = pair(&["answer=endless-status"], ClientConfig::default());
    pair.run(Duration::from_secs(30));
    let [answers] = counters(&mut pair, [m::ANSWERS]);
    assert!(
        answers <= u64::from(MESSAGES_WITHOUT_MEDIA_MAX) + 2,
        "{answers}"
    );
    assert!(pair.now() < Time::from_start(Duration::from_secs(1)));
}

#[test]
fn refused_and_unanswered_connections_fail() {
    for (door, reason) in [
        (ServerReaction::Refuse, "refused"),
        (ServerReaction::Ignore, "connect_timeout"),
    ] {
        let server = server(&[]);
        let own = PairSettings {
            server_reaction: door,
            ..settings()
        };
        let mut pair = Pair::new(own, client(ClientConfig::default()), move |number| {
            server.session(number.0 as u64)
        });
        pair.run(Duration::from_secs(30));
        assert!(
            matches!(pair.outcome(CLIENT), Some(Outcome::Failed(failure)) if failure.reason == reason)
        );
    }
}

#[test]
fn run_shorter_than_the_timeouts_does_not_pass() {
    for (fault, reason) in [
        ("handshake=silent", "timeout_handshake"),
        ("answer=silent", "timeout_connect"),
        ("answer=no-media", "no_media"),
    ] {
        let mut pair = pair(&[fault], ClientConfig::default());
        pair.run(Duration::from_secs(3));
        pair.stop(CLIENT, Duration::from_secs(1));
        pair.run(Duration::from_secs(1));
        let outcome = pair.outcome(CLIENT);
        assert!(
            matches!(outcome, Some(Outcome::Failed(failure)) if failure.reason == reason),
            "{fault}: {outcome:?}"
        );
    }
}

#[test]
fn server_has_only_the_configured_streams() {
    let config = ServerConfig {
        streams: Some(0),
        ..ServerConfig::default()
    };
    let server = Server::new(config).expect("it can be made");
    let mut pair = Pair::new(settings(), client(ClientConfig::default()), move |number| {
        server.session(number.0 as u64)
    });
    pair.run(Duration::from_secs(30));
    assert!(
        matches!(pair.outcome(CLIENT), Some(Outcome::Failed(failure)) if failure.reason == "stream_not_found")
    );
}

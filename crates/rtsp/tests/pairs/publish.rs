//! Clients that publish to the reference server, and clients that play their streams, in virtual
//! time over a seeded network: the media reaches all players, frame by frame, and all figures
//! agree.

use std::sync::Arc;
use std::time::Duration;

use kit::awaiting_publisher::{AwaitedStreams, WaitingClient};
use kit::media::rtp::StreamSummary;
use kit::media::rtp::metrics::{self as rtp, RTP};
use kit::media::rtp::summaries;
use kit::media::source::{MediaSource, SourceConfig};
use kit::metrics::{CLIENTS, ZAPPING};
use kit::viewer::VIEWERS;
use measure::Catalogue;
use measure::units::BitRate;
use rtsp::client::Client;
use rtsp::config::{ClientConfig, Transport};
use rtsp::metrics::{self as m, RTSP};
use rtsp::server::{Server, ServerConfig};
use rtsp::url::Url;
use session::link::{Loss, Settings};
use session::testing::{Pair, PairSettings, RunEnd, SessionNumber, Side};
use session::{Outcome, Output, Session};

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &RTP, &RTSP]);
const URL: &str = "rtsp://server/live";
const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

fn client(transport: Transport, seed: u64) -> Client {
    let config = ClientConfig {
        transport,
        ..ClientConfig::default()
    };
    let client = Client::new(config, URL, seed).expect("a URL");
    client.with_wall_clock(WALL_CLOCK)
}

fn publisher(transport: Transport, seed: u64) -> Box<Client> {
    let config = SourceConfig {
        bitrate: Some(BitRate(800_000)),
        audio: Some(true),
        ..SourceConfig::default()
    };
    let source = MediaSource::new(&config, None);
    Box::new(client(transport, seed).with_source(Arc::new(source.expect("valid"))))
}

fn player(transport: Transport, seed: u64) -> Box<WaitingClient> {
    let url = Url::parse(URL).expect("a valid URL");
    let awaited = Arc::new(AwaitedStreams::stream(url.stream_name()));
    Box::new(WaitingClient::new(
        Box::new(client(transport, seed)),
        awaited,
    ))
}

/// A publisher, and a server with a session for each connection.
fn pair(settings: PairSettings, first: Box<dyn Session>) -> Pair {
    let config = ServerConfig {
        streams: None,
        ..ServerConfig::default()
    };
    let server = Server::new(config).expect("valid");
    Pair::new(settings, first, move |number| {
        server.session(u64::try_from(number.0).expect("few"))
    })
}

fn streams(pair: &Pair, session: SessionNumber) -> Vec<StreamSummary> {
    let said = pair.outputs().iter().filter(|(who, _)| *who == session);
    said.filter_map(|(_, output)| match output {
        Output::Streams(streams) => Some(summaries(streams)),
        _ => None,
    })
    .flatten()
    .collect()
}

#[test]
fn published_streams_reach_all_players_over_any_transport() {
    use Transport::{Tcp, Udp};
    for (up, down) in [(Tcp, Tcp), (Tcp, Udp), (Udp, Tcp), (Udp, Udp)] {
        let mut pair = pair(PairSettings::new(1, CATALOGUE), publisher(up, 1));
        let players = [
            pair.add_client(player(down, 2)),
            pair.add_client(player(down, 3)),
        ];
        assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::TimeUp);
        for session in players {
            pair.stop(session, Duration::from_secs(2));
        }
        assert_eq!(pair.run(Duration::from_secs(1)), RunEnd::TimeUp);
        pair.stop(SessionNumber(0), Duration::from_secs(2));
        assert_eq!(
            pair.run(Duration::from_secs(10)),
            RunEnd::Ended,
            "{up:?} {down:?}"
        );
        for session in [SessionNumber(0), players[0], players[1]] {
            assert_eq!(
                pair.outcome(session),
                Some(&Outcome::Stopped),
                "{up:?} {down:?}"
            );
        }
        for session in players {
            let streams = streams(&pair, session);
            assert_eq!(streams.len(), 2);
            for stream in streams {
                let counts = stream.counts;
                assert!(counts.received > 200, "{counts:?}");
                assert_eq!(
                    (counts.lost(), counts.restarts, counts.malformed),
                    (0, 0, 0),
                    "{up:?} {down:?}"
                );
            }
        }
        let recorder = pair.recorder(Side::Client);
        let count = |id| recorder.counter(id);
        // Ten seconds of 25 frames at two players; at the publisher eleven seconds, with 50 audio
        // frames a second as well.
        let published = count(rtp::FRAMES_PUBLISHED);
        assert!((480..=502).contains(&published), "{published}");
        assert_eq!(count(rtp::FRAMES_DELIVERED), published);
        assert!(
            (800..=826).contains(&count(m::SENT_FRAMES)),
            "{}",
            count(m::SENT_FRAMES)
        );
        // 1 ms in each direction.
        let delays = recorder.histogram(rtp::FRAME_DELAY).expect("recorded");
        assert_eq!(delays.count(), published);
        let delay = delays.quantile(0.5).expect("some");
        assert!(
            delay.abs_diff(2_000_000) < 300_000,
            "{delay} {up:?} {down:?}"
        );
        assert_eq!(
            recorder.histogram(m::PUBLISH_DELAY).map(|h| h.count()),
            Some(1)
        );
    }
}

#[test]
fn frames_lost_by_the_network_are_counted() {
    let mut settings = PairSettings::new(7, CATALOGUE);
    settings.up = Settings {
        loss: Loss::Random(0.02),
        delay: Duration::from_millis(20),
        ..Settings::default()
    };
    let mut pair = pair(settings, publisher(Transport::Udp, 1));
    let player = pair.add_client(player(Transport::Tcp, 2));
    pair.run(Duration::from_secs(20));
    pair.stop(player, Duration::from_secs(2));
    pair.stop(SessionNumber(0), Duration::from_secs(2));
    assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::Ended);
    let recorder = pair.recorder(Side::Client);
    let [published, delivered, whole] =
        [rtp::FRAMES_PUBLISHED, rtp::FRAMES_DELIVERED, rtp::FRAMES].map(|id| recorder.counter(id));
    assert!((490..=502).contains(&published), "{published}");
    assert!(
        delivered < published && delivered > published * 7 / 10,
        "{delivered}"
    );
    assert!(delivered <= whole);
    let delay = recorder
        .histogram(rtp::FRAME_DELAY)
        .and_then(|h| h.quantile(0.5));
    let delay = delay.expect("recorded");
    assert!(delay.abs_diff(21_000_000) < 1_000_000, "{delay}");
}

#[test]
fn players_wait_for_their_stream_and_leave_with_it() {
    let mut pair = pair(PairSettings::new(1, CATALOGUE), player(Transport::Tcp, 2));
    pair.run(Duration::from_secs(5));
    let publisher = pair.add_client(publisher(Transport::Tcp, 1));
    pair.run(Duration::from_secs(5));
    pair.stop(publisher, Duration::from_secs(2));
    assert_eq!(pair.run(Duration::from_secs(30)), RunEnd::Ended);
    assert_eq!(pair.outcome(SessionNumber(0)), Some(&Outcome::Completed));
    let recorder = pair.recorder(Side::Client);
    // Measured from the publication of the stream, not from the start of the wait.
    let startup = recorder
        .histogram(kit::metrics::STARTUP_DELAY)
        .and_then(|h| h.max());
    assert!(
        startup.is_some_and(|nanos| nanos < 100_000_000),
        "{startup:?}"
    );
}

#[test]
fn player_fails_if_its_stream_is_never_published() {
    let mut pair = pair(PairSettings::new(1, CATALOGUE), player(Transport::Tcp, 2));
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    match pair.outcome(SessionNumber(0)) {
        Some(Outcome::Failed(failure)) => assert_eq!(failure.reason, "no_publisher"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn stream_has_one_publisher_at_a_time() {
    let mut pair = pair(
        PairSettings::new(1, CATALOGUE),
        publisher(Transport::Tcp, 1),
    );
    pair.run(Duration::from_secs(2));
    let second = pair.add_client(publisher(Transport::Tcp, 2));
    pair.run(Duration::from_secs(2));
    match pair.outcome(second) {
        Some(Outcome::Failed(failure)) => assert_eq!(failure.reason, "status_403"),
        other => panic!("{other:?}"),
    }
    pair.stop(SessionNumber(0), Duration::from_secs(2));
    assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::Ended);
    let third = pair.add_client(publisher(Transport::Udp, 3));
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.outcome(third), None, "the stream is free again");
    pair.break_connections();
    assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::Ended);
    match pair.outcome(third) {
        Some(Outcome::Failed(failure)) => assert_eq!(failure.reason, "reset_in_record"),
        other => panic!("{other:?}"),
    }
}

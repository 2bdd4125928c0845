//! Forwarding of published media to players.

use super::*;
use crate::url::Url;
use kit::awaiting_publisher::{AwaitedStreams, WaitingClient};
use kit::media::source::{AudioCodec, MediaSource};
use kit::media::talk::{Member, TalkConfig, TurnSchedule};
use measure::units::TimeSpan;

/// Media that clients publish: audio and video.
pub(super) fn published_media() -> SourceConfig {
    let config = SourceConfig {
        bitrate: Some(BitRate(1_000_000)),
        audio: Some(true),
        ..SourceConfig::default()
    };
    crate::config::with_limited_mtu(&config)
}

/// Client that publishes audio and video under a name.
fn publisher(name: &str, seed: u64) -> Client {
    publisher_by(ClientConfig::default(), name, seed)
}

fn publisher_by(config: ClientConfig, name: &str, seed: u64) -> Client {
    let source = MediaSource::new(&published_media(), None);
    let client = client(config, &url("whip", name), seed);
    client.with_source(Arc::new(source.expect("it can be made")))
}

/// Client that waits until a stream is published.
fn waiting(client: Client, name: &str) -> WaitingClient {
    let url = Url::parse(&url("whep", name)).expect("it is one");
    let awaited = AwaitedStreams::stream(url.topic());
    WaitingClient::new(Box::new(client), Arc::new(awaited))
}

fn player(name: &str, seed: u64, nack: bool) -> WaitingClient {
    let config = receiving(Receive::Decrypted, nack);
    let client = client(config, &url("whep", name), seed);
    waiting(client.with_time_codes(), name)
}

/// Runs a publisher and two players for some seconds, then stops the publisher. Returns the run,
/// the publisher's record and the players' records.
fn publish_and_play(
    settings: PairSettings,
    faults: &[&str],
) -> (TestRun, ServedPeer, Vec<ServedPeer>) {
    let nack = !faults.is_empty();
    let mut test = TestRun::begin(settings, publisher("own", 1), server(faults));
    let players = [2, 3].map(|seed| {
        let player = player("own", seed, nack);
        test.pair.add_client(Box::new(player))
    });
    test.pair.run(Duration::from_secs(8));
    test.pair.stop(CLIENT, Duration::from_secs(2));
    assert_eq!(test.pair.run(Duration::from_secs(60)), RunEnd::Ended);
    for player in players {
        assert_eq!(test.pair.outcome(player), Some(&Outcome::Completed));
    }
    let (publishers, players): (Vec<_>, Vec<_>) =
        test.served().into_iter().partition(|peer| peer.published);
    let [publisher] = &publishers[..] else {
        panic!("{publishers:?}");
    };
    assert_eq!(players.len(), 2);
    (test, publisher.clone(), players)
}

#[test]
fn refused_simulcast_sends_the_best_layer() {
    let source = SourceConfig {
        simulcast: true,
        ..published_media()
    };
    let source = MediaSource::adaptive(&source, None).expect("it can be made");
    assert_eq!(source.lower_layers.len(), 2);
    let best = source.clips[0].bits_per_second() + source.clips[1].bits_per_second();
    let camera = client(ClientConfig::default(), &url("whip", "own"), 1);
    let camera = camera.with_source(Arc::new(source));
    let mut test = TestRun::begin(settings(1), camera, server(&[]));
    let player = player("own", 2, false);
    let player = test.pair.add_client(Box::new(player));
    test.pair.run(Duration::from_secs(8));
    test.pair.stop(CLIENT, Duration::from_secs(2));
    assert_eq!(test.pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(test.pair.outcome(player), Some(&Outcome::Completed));
    let output = test.pair.outputs().iter();
    let refused = output.filter(
        |(_, output)| matches!(output, Output::Note(note) if note.kind == "simulcast_refused"),
    );
    assert_eq!(refused.count(), 1);
    let sent = test.count(m::SENT_BYTES) * 8;
    assert!(sent.abs_diff(8 * best) < best / 2, "{sent} of {best} bit/s");
    assert_eq!(test.count(rtp::EXPECTED), test.count(rtp::RECEIVED));
}

#[test]
fn every_packet_reaches_each_player_with_its_time_code() {
    let (mut test, publisher, players) = publish_and_play(settings(1), &[]);
    let received = publisher.received.expect("it published");
    assert_eq!(received.received, test.count(m::SENT_PACKETS));
    assert_eq!((received.lost, received.forwarded), (0, received.received));
    // Both players request a key frame at the same time. The second request gets a key frame of its
    // own.
    assert_eq!(received.pictures_asked, 2);
    assert_eq!(test.count(m::KEY_FRAME_REQUESTS), received.pictures_asked);
    assert!(test.count(m::RECEIVER_REPORTS) > 0);
    assert_eq!(test.count(m::REPORTED_LOST), 0);
    let sent = players.iter().map(|player| player.sent.expect("it played"));
    let mut all = SentCounts::default();
    for sent in sent {
        assert!(
            sent.sent > 300 && sent.sent <= received.forwarded,
            "{sent:?}"
        );
        assert_eq!((sent.lost, sent.overflown), (0, 0));
        all.add(sent);
    }
    assert!(players.iter().all(|player| player.relayed));
    for (id, expected) in [
        (rtp::EXPECTED, all.sent),
        (rtp::RECEIVED, all.sent),
        (rtp::PAYLOAD_BYTES, all.payload_bytes),
        (rtp::REORDERED, 0),
        (m::UNAUTHENTIC, 0),
        (m::UNKNOWN_MEDIA, 0),
    ] {
        assert_eq!(test.count(id), expected, "{id:?}");
    }
    assert!(test.count(rtp::FRAMES_DELIVERED) > 100);
    assert_eq!(
        test.count(rtp::FRAMES_DELIVERED),
        test.count(rtp::FRAMES_PUBLISHED)
    );
    assert!(test.count(rtp::SENDER_REPORTS) > 2);
    // The name is free again.
    assert!(test.server.0.publication("own").is_none());
}

#[test]
fn publisher_sends_sender_reports_unless_disabled() {
    for sender_reports in [true, false] {
        let config = ClientConfig {
            sender_reports,
            ..ClientConfig::default()
        };
        let camera = publisher_by(config, "own", 1);
        let mut test = TestRun::begin(settings(1), camera, server(&[]));
        let viewer = test.pair.add_client(Box::new(player("own", 2, false)));
        test.pair.run(Duration::from_secs(8));
        test.pair.stop(CLIENT, Duration::from_secs(2));
        assert_eq!(test.pair.run(Duration::from_secs(60)), RunEnd::Ended);
        assert_eq!(test.pair.outcome(viewer), Some(&Outcome::Completed));
        assert!(test.count(rtp::RECEIVED) > 300);
        let reports = test.count(rtp::SENDER_REPORTS);
        // One report a second on audio and one on video, which the server forwards.
        let expected = if sender_reports { 12..=16 } else { 0..=0 };
        assert!(expected.contains(&reports), "{reports}");
    }
}

#[test]
fn losses_are_recovered_on_each_side_separately() {
    for seed in 0..8 {
        let link = LinkSettings {
            delay: Duration::from_millis(5),
            loss: Loss::Random(0.02),
            ..LinkSettings::default()
        };
        let settings = PairSettings {
            up: link,
            ..settings(seed)
        };
        let (mut test, publisher, players) =
            publish_and_play(settings, &["loss=2%", "duplicate=1%"]);
        let received = publisher.received.expect("it published");
        assert!(received.asked > 0 && received.recovered > 0, "{received:?}");
        assert!(test.count(m::RETRANSMITTED_PACKETS) >= received.recovered);
        let mut all = SentCounts::default();
        for player in &players {
            all.add(player.sent.expect("it played"));
        }
        assert!(all.recovered > 0 && all.left_out > 0);
        for (id, expected) in [
            (rtp::EXPECTED, all.expected),
            (rtp::RECEIVED, all.sent + all.recovered),
            (m::UNAUTHENTIC, 0),
        ] {
            assert_eq!(test.count(id), expected, "{id:?} {seed} {all:?}");
        }
    }
}

#[test]
fn published_stream_without_media_counts_as_silent() {
    for (faults, silent) in [(&[][..], 0), (&["silent=audio"], 2), (&["silent=video"], 2)] {
        for publisher_first in [false, true] {
            let mut test = TestRun::begin(settings(1), publisher("own", 1), server(faults));
            let players = [2, 3].map(|seed| {
                let player = player("own", seed, false);
                test.pair.add_client(Box::new(player))
            });
            test.pair.run(Duration::from_secs(8));
            let mut all = vec![CLIENT];
            match publisher_first {
                true => all.extend(players),
                false => all.splice(0..0, players).for_each(drop),
            }
            for client in all {
                test.pair.stop(client, Duration::from_secs(2));
                test.pair.run(Duration::from_secs(4));
            }
            let found = test.count(rtp::STREAMS_SILENT);
            assert_eq!(found, silent, "{faults:?} {publisher_first}");
        }
    }
    // No publisher is known to send audio.
    let config = ClientConfig::default();
    let alone = client(config, &url("whep", "own"), 2);
    let mut test = TestRun::begin(settings(1), alone, server(&["silent=audio"]));
    assert_eq!(test.pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(test.count(rtp::STREAMS_SILENT), 0);
}

/// Client that publishes a voice, which talks for about half of the time.
fn voice(name: &str, seed: u64) -> Client {
    let talk = TalkConfig {
        speakers: 0.5,
        turn: TimeSpan(Duration::from_secs(2)),
    };
    let config = SourceConfig {
        audio_codec: Some(AudioCodec::Opus),
        talk: Some(talk),
        ..published_media()
    };
    let source = MediaSource::new(&config, None).expect("it can be made");
    let client = client(ClientConfig::default(), &url("whip", name), seed);
    let client = client.with_source(Arc::new(source));
    let (index, group_size) = (0, 1);
    client.with_talk(TurnSchedule::new(
        talk,
        Member {
            seed,
            index,
            group_size,
        },
    ))
}

#[test]
fn players_read_audio_levels_and_tolerate_silence() {
    let mut with_silence = 0;
    for seed in 0..12 {
        let mut test = TestRun::begin(settings(seed), voice("own", seed), server(&[]));
        // Headers are sufficient, because they are not encrypted.
        let config = receiving(Receive::Headers, false);
        let player = waiting(client(config, &url("whep", "own"), 99), "own");
        let player = test.pair.add_client(Box::new(player));
        test.pair.run(Duration::from_millis(20_000 + 700 * seed));
        let levels = test.pair.recorder(Side::Client).histogram(m::AUDIO_LEVEL);
        let levels = levels.expect("there is sound");
        let (lowest, highest) = (levels.min(), levels.max());
        test.pair.stop(player, Duration::from_secs(1));
        test.pair.run(Duration::from_secs(2));
        let heard = test.count(m::VOICE_PACKETS);
        test.pair.stop(CLIENT, Duration::from_secs(2));
        assert_eq!(test.pair.run(Duration::from_secs(60)), RunEnd::Ended);
        assert_eq!(test.pair.outcome(player), Some(&Outcome::Stopped));
        let sent = test.count(m::SENT_VOICE_PACKETS);
        // The player joins up to 2 s late and leaves 2 s early.
        assert!(
            heard > 200 && heard <= sent && sent < heard + 250,
            "{heard} of {sent}"
        );
        assert!((Some(20)..=Some(40)).contains(&lowest), "{lowest:?}");
        with_silence += u32::from(highest == Some(127));
        assert_eq!(test.count(rtp::STREAMS_SILENT), 0, "{seed}");
        assert_eq!(test.count(rtp::EXPECTED), test.count(rtp::RECEIVED));
        assert_eq!(test.count(rtp::STALLS), 0);
    }
    assert_eq!(with_silence, 12);
}

#[test]
fn stream_has_one_publisher_at_a_time() {
    let mut test = TestRun::begin(settings(1), publisher("own", 1), server(&[]));
    test.pair.run(Duration::from_secs(1));
    let second = test.pair.add_client(Box::new(publisher("own", 2)));
    test.pair.run(Duration::from_secs(1));
    let outcome = test.pair.outcome(second);
    assert!(matches!(outcome, Some(Outcome::Failed(_))), "{outcome:?}");
    test.pair.stop(CLIENT, Duration::from_secs(2));
    test.pair.run(Duration::from_secs(1));
    let third = test.pair.add_client(Box::new(publisher("own", 3)));
    test.pair.run(Duration::from_secs(3));
    test.pair.stop(third, Duration::from_secs(2));
    assert_eq!(test.pair.run(Duration::from_secs(60)), RunEnd::Ended);
    let published = test.served().into_iter().filter(|peer| peer.published);
    assert_eq!(published.count(), 2);
}

#[test]
fn publisher_that_never_starts_releases_its_name() {
    let config = server(&["silent=ice"]);
    let mut test = TestRun::begin(settings(1), publisher("own", 1), config);
    test.pair.run(Duration::from_secs(5));
    assert!(test.server.0.publication("own").is_some());
    // The publisher deletes its session after it has given up.
    test.pair.run(Duration::from_secs(60));
    assert!(test.server.0.publication("own").is_none());
    assert_eq!(test.server.listener_counts().never_came, 1);
}

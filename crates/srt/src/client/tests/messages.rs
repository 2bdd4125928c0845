//! Messages in both directions.

use measure::units::Size;

use super::*;
use crate::arq::message_source::MessageSource;

/// 50 messages per second.
const MADE: MessageSource = MessageSource {
    size: 10_000,
    bits_per_second: 4_000_000,
    in_order: true,
    ttl: None,
};

fn serves(source: MessageSource, faults: &[&str]) -> ServerConfig {
    ServerConfig {
        messages: Some(source),
        ..server(faults)
    }
}

fn plays() -> ClientConfig {
    ClientConfig {
        messages: true,
        ..ClientConfig::default()
    }
}

fn publishes() -> ClientConfig {
    ClientConfig {
        messages: true,
        publish: Some(SourceConfig {
            bitrate: Some(BitRate(4_000_000)),
            ..SourceConfig::default()
        }),
        message_size: Size(10_000),
        ..ClientConfig::default()
    }
}

fn publisher(settings: &PairSettings, config: ClientConfig, query: &str) -> Client {
    let made = config
        .source_media(None)
        .expect("nothing is read")
        .expect("it publishes");
    client(settings, config, query).publishing(made)
}

#[test]
fn messages_are_played_whole_to_their_end() {
    for (source, settings, faults) in [
        (MADE, settings(), &[][..]),
        (
            MADE,
            settings(),
            &["lose=5%", "lose-again=20%", "duplicate=2%"][..],
        ),
        (MADE, lossy(0.05), &[][..]),
        (
            MessageSource {
                in_order: false,
                ..MADE
            },
            lossy(0.05),
            &[][..],
        ),
        (
            MessageSource {
                size: 1,
                bits_per_second: 4000,
                ..MADE
            },
            lossy(0.05),
            &[][..],
        ),
    ] {
        let expected = 5 * source.bits_per_second / (8 * source.size as u64);
        let mut played = play(settings, plays(), "streamid=some", serves(source, faults));
        let served = played.served();
        let sent = served[0].messages.and_then(|messages| messages.sent);
        let sent = sent.expect("it sent messages");
        assert_eq!(
            (sent.taken, sent.acknowledged),
            (expected, expected),
            "{source:?}"
        );
        assert_eq!(served[0].media, expected);
        for (id, expected) in [
            (m::MESSAGES_WHOLE, expected),
            (m::MESSAGES_EXPECTED, expected),
            (m::MESSAGE_BYTES, expected * source.size as u64),
            (m::MESSAGES_INCOMPLETE, 0),
            (m::PKT_RCV_DROP, 0),
        ] {
            assert_eq!(played.count(id), expected, "{id:?} {source:?} {faults:?}");
        }
    }
}

#[test]
fn only_dropped_messages_are_missed() {
    let source = MessageSource {
        ttl: Some(Duration::from_millis(60)),
        ..MADE
    };
    for seed in 0..20 {
        let settings = PairSettings { seed, ..lossy(0.1) };
        let mut played = play(settings, plays(), "", serves(source, &[]));
        let messages = played.served()[0].messages.expect("it has messages");
        let sent = messages.sent.expect("it sent some");
        assert_eq!(sent.taken, 250, "{seed}");
        assert_eq!(sent.acknowledged + sent.dropped, sent.taken, "{seed}");
        assert!(sent.dropped > 0, "{seed}");
        let whole = played.count(m::MESSAGES_WHOLE);
        assert!(whole >= sent.acknowledged, "{seed}");
        // Some of the dropped messages had arrived, but their acknowledgement was late.
        let missed = played.count(m::MESSAGES_EXPECTED) - whole;
        assert!(missed > 0 && missed <= sent.dropped, "{seed}: {missed}");
    }
}

#[test]
fn published_messages_are_relayed_whole() {
    for (query, in_order, passphrase) in [
        ("", true, None),
        (
            "&passphrase=0123456789",
            false,
            Passphrase::new("0123456789").ok(),
        ),
    ] {
        let settings = lossy(0.05);
        let config = ClientConfig {
            messages_in_order: in_order,
            ..publishes()
        };
        let publisher = publisher(&settings, config, &format!("streamid=publish:own{query}"));
        let player = client(&settings, plays(), &format!("streamid=own{query}"));
        let server = ServerConfig {
            passphrase,
            ..serves(MADE, &[])
        };
        let mut pair = begin(settings, publisher, server);
        let player = pair.add_client(waiting(player));
        pair.run(Duration::from_secs(5));
        pair.stop(CLIENT, Duration::from_secs(20));
        assert_eq!(pair.run(Duration::from_secs(40)), RunEnd::Ended);
        assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Stopped));
        assert_eq!(pair.outcome(player), Some(&Outcome::Completed));
        let mut played = Played(pair);
        let served = played.served();
        let one = |published| served.iter().find(|served| served.published == published);
        let took = one(true).expect("it says so");
        let passed = one(false).expect("it says so");
        let sent = played.count(m::MESSAGES_SENT);
        assert!(sent > 240, "{sent}");
        assert_eq!(played.count(m::MESSAGES_ACKNOWLEDGED), sent);
        for id in [
            m::MESSAGES_DROPPED,
            m::MESSAGES_UNACKED,
            m::MESSAGES_NOT_TAKEN,
        ] {
            assert_eq!(played.count(id), 0, "{id:?}");
        }
        let received = took.messages.and_then(|messages| messages.received);
        let received = received.expect("it has messages");
        assert_eq!((received.whole, received.expected), (sent, sent));
        assert_eq!(received.bytes, sent * 10_000);
        assert_eq!(received.early > 0, !in_order);
        assert_eq!(took.media, sent);
        // The player is notified shortly after the first messages.
        let whole = played.count(m::MESSAGES_WHOLE);
        assert_eq!(whole, passed.media);
        assert!(whole <= sent && whole + 10 > sent, "{whole} of {sent}");
        assert_eq!(played.count(m::MESSAGES_EXPECTED), whole);
        assert_eq!(played.count(m::MESSAGE_BYTES), whole * 10_000);
        let delays = played
            .0
            .recorder(Side::Client)
            .histogram(m::SEND_QUEUE_DELAY);
        let delays = delays.expect("it sent");
        assert_eq!(delays.count(), played.count(m::PKT_SENT_UNIQUE));
    }
}

#[test]
fn messages_above_the_bandwidth_wait_and_are_delivered() {
    let settings = settings();
    // Twice as much is due as the bandwidth allows.
    let config = ClientConfig {
        max_bandwidth: Some(BitRate(2_000_000)),
        ..publishes()
    };
    let publisher = publisher(&settings, config, "streamid=publish:own");
    let mut pair = begin(settings, publisher, serves(MADE, &[]));
    pair.run(Duration::from_secs(4));
    pair.stop(CLIENT, Duration::from_secs(20));
    assert_eq!(pair.run(Duration::from_secs(40)), RunEnd::Ended);
    let mut played = Played(pair);
    let delays = played
        .0
        .recorder(Side::Client)
        .histogram(m::SEND_QUEUE_DELAY);
    let delays = delays.expect("it sent");
    // After 4 s the last messages have waited for another 4 s, and slightly longer because of
    // headers.
    let most = Duration::from_nanos(delays.max().expect("it has some"));
    assert!(
        most > Duration::from_secs(4) && most < Duration::from_secs(5),
        "{most:?}"
    );
    assert_eq!(
        played.count(m::MESSAGES_ACKNOWLEDGED),
        played.count(m::MESSAGES_SENT)
    );
}

#[test]
fn live_media_and_messages_are_incompatible() {
    for (server, config) in [
        (serves(MADE, &[]), ClientConfig::default()),
        (server(&[]), plays()),
    ] {
        let played = play(settings(), config, "", server);
        assert_eq!(played.reason(), "other_mode");
    }
}

//! Clients against the reference server in virtual time.

mod congestion;
mod hostile;
mod passing_on;
mod rooms;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use link::{Loss, Settings as LinkSettings};
use measure::CounterId;
use measure::units::BitRate;

use super::*;
use crate::media::rtp::metrics as rtp;
use crate::session::{Outcome, Output};
use crate::testing::{End, Pair, PairSettings, SessionNumber, Side};
use crate::webrtc::client::Client;
use crate::webrtc::config::{ClientConfig, Receive};
use crate::webrtc::metrics as m;

const CLIENT: SessionNumber = SessionNumber(0);
const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

/// Making one takes as long as some cases.
static CERTIFICATE: LazyLock<Arc<Certificate>> =
    LazyLock::new(|| Arc::new(Certificate::generate(7)));

fn settings(seed: u64) -> PairSettings {
    PairSettings::new(seed, CATALOGUE)
}

/// A network that does so to datagrams, both ways.
fn over(seed: u64, link: LinkSettings) -> PairSettings {
    PairSettings {
        up: link.clone(),
        down: link,
        ..settings(seed)
    }
}

fn url(kind: &str, name: &str) -> String {
    format!("{kind}+http://10.0.0.2:554/{kind}/{name}")
}

fn client(config: ClientConfig, url: &str, seed: u64) -> Client {
    let client = Client::new(config, url, seed, CERTIFICATE.clone()).expect("a good URL");
    client.with_wall_clock(WALL_CLOCK)
}

fn server(faults: &[&str]) -> ServerConfig {
    let mut all = ServerFaults::default();
    for fault in faults {
        all.add(fault).expect("it is one");
    }
    ServerConfig {
        source: SourceConfig {
            bitrate: Some(BitRate(2_000_000)),
            audio: Some(true),
            ..SourceConfig::default()
        },
        length: Some(Duration::from_secs(4)),
        wall_clock: WALL_CLOCK,
        faults: all,
        ..ServerConfig::default()
    }
}

/// Clients of the server, with its door.
struct Played {
    pair: Pair,
    server: Server,
}

impl Played {
    fn begin(settings: PairSettings, first: Client, config: ServerConfig) -> Played {
        let server = Server::new(config).expect("it can be made");
        let accepts = server.clone();
        let mut pair = Pair::new(settings, Box::new(first), move |_| accepts.session());
        pair.answer_datagrams(server.endpoint(0));
        Played { pair, server }
    }

    fn count(&mut self, id: CounterId) -> u64 {
        self.pair.recorder(Side::Client).counter(id)
    }

    fn served(&self) -> Vec<ServedPeer> {
        let said = self.pair.said().iter();
        let records = said.filter_map(|(_, said)| match said {
            Output::Record(record) => record.get::<ServedPeer>().cloned(),
            _ => None,
        });
        records.collect()
    }

    /// What the only player was sent.
    fn sent(&self) -> SentCounts {
        let served = self.served();
        let [served] = &served[..] else {
            panic!("{served:?}");
        };
        served.sent.expect("it played")
    }

    fn reason(&self) -> &'static str {
        match self.pair.outcome(CLIENT) {
            Some(Outcome::Failed(failure) | Outcome::EndedByServer { failure, .. }) => {
                failure.reason
            }
            other => panic!("{other:?}"),
        }
    }
}

fn play(settings: PairSettings, config: ClientConfig, server: ServerConfig) -> Played {
    let client = client(config, &url("whep", "stream1"), 5);
    let mut played = Played::begin(settings, client.looking_for_codes(), server);
    assert_eq!(played.pair.run(Duration::from_secs(60)), End::Ended);
    played
}

fn receiving(receive: Receive, nack: bool) -> ClientConfig {
    ClientConfig {
        receive,
        nack,
        ..ClientConfig::default()
    }
}

#[test]
fn a_stream_is_played_to_its_end_and_every_packet_is_found() {
    for receive in [Receive::Headers, Receive::Decrypted] {
        let mut played = play(settings(1), receiving(receive, true), server(&[]));
        assert_eq!(played.reason(), "ended_by_server");
        let sent = played.sent();
        assert!(sent.sent > 800, "{sent:?}");
        assert_eq!((sent.planned, sent.lost), (sent.sent, 0));
        for (id, expected) in [
            (rtp::EXPECTED, sent.sent),
            (rtp::RECEIVED, sent.sent),
            (rtp::PAYLOAD_BYTES, sent.payload_bytes),
            (rtp::DUPLICATED, 0),
            (rtp::REORDERED, 0),
            (rtp::MALFORMED, 0),
            (m::UNKNOWN_MEDIA, 0),
            (m::UNAUTHENTIC, 0),
            (m::PEERS_CONNECTED, 1),
        ] {
            assert_eq!(played.count(id), expected, "{id:?} {receive:?}");
        }
        let codes = played.count(rtp::FRAMES_DELIVERED);
        match receive {
            Receive::Decrypted => assert_eq!(codes, 100),
            Receive::Headers => assert_eq!(codes, 0),
        }
        let served = &played.served()[0];
        assert!(
            served.connected && served.ended.contains("deleted"),
            "{served:?}"
        );
        assert_eq!(played.server.door().refused, 0);
        assert!(played.server.0.registry().has_room());
    }
}

#[test]
fn who_comes_long_after_the_server_began_is_served_too() {
    let config = ServerConfig {
        length: None,
        ..server(&[])
    };
    let first = client(
        receiving(Receive::Headers, true),
        &url("whep", "stream1"),
        5,
    );
    let mut played = Played::begin(settings(1), first, config);
    assert_eq!(played.pair.run(Duration::from_secs(40)), End::TimeUp);
    let late = client(
        receiving(Receive::Headers, true),
        &url("whep", "stream2"),
        6,
    );
    let late = played.pair.add_client(Box::new(late));
    assert_eq!(played.pair.run(Duration::from_secs(5)), End::TimeUp);
    assert_eq!(played.pair.outcome(late), None, "it plays");
    assert_eq!(played.count(m::PEERS_CONNECTED), 2);
}

#[test]
fn every_count_of_what_is_done_wrong_is_found() {
    let faults = [
        "loss=2%",
        "loss-burst=0.3%x4",
        "duplicate=2%",
        "reorder=2%x3",
    ];
    for seed in 0..12 {
        for receive in [Receive::Headers, Receive::Decrypted] {
            let config = ServerConfig {
                seed,
                ..server(&faults)
            };
            let mut played = play(settings(seed), receiving(receive, false), config);
            let sent = played.sent();
            assert!(sent.lost > 0 && sent.duplicated > 0 && sent.reordered > 0);
            assert!(sent.lost <= sent.left_out, "{sent:?}");
            // SRTP tells copies itself where it opens packets.
            let (doubled, replayed) = match receive {
                Receive::Headers => (sent.duplicated, 0),
                Receive::Decrypted => (0, sent.duplicated),
            };
            for (id, expected) in [
                (rtp::EXPECTED, sent.expected),
                (rtp::RECEIVED, sent.sent),
                (rtp::DUPLICATED, doubled),
                (m::REPLAYED, replayed),
                (rtp::REORDERED, sent.reordered),
                (rtp::PAYLOAD_BYTES, sent.payload_bytes),
                (rtp::MALFORMED, 0),
                (m::UNAUTHENTIC, 0),
            ] {
                let found = played.count(id);
                assert_eq!(found, expected, "{id:?} {receive:?} {seed} {sent:?}");
            }
        }
    }
}

#[test]
fn what_is_left_out_is_asked_for_and_sent_again_unless_that_is_left_out_too() {
    let ways = [Receive::Headers, Receive::Decrypted];
    let ways = ways.map(|receive| [(receive, None), (receive, Some(false))]);
    for (seed, (receive, rtx)) in (0..24).zip(ways.into_iter().flatten().cycle()) {
        let config = ServerConfig {
            seed,
            ..server(&["loss=4%", "loss-again=30%"])
        };
        let client = ClientConfig {
            rtx,
            ..receiving(receive, true)
        };
        let mut played = play(settings(seed), client, config);
        let sent = played.sent();
        // Pictures come again in a stream of their own.
        let own_stream = played.count(m::RTX_PACKETS);
        match rtx {
            None => {
                assert!(own_stream > 0 && own_stream < sent.again, "{sent:?}");
            }
            _ => assert_eq!(own_stream, 0),
        }
        assert!(sent.recovered > 10 && sent.left_out_again > 0, "{sent:?}");
        assert_eq!(sent.again_in_vain, 0);
        for (id, expected) in [
            (rtp::EXPECTED, sent.expected),
            (rtp::RECEIVED, sent.sent + sent.recovered),
            (rtp::REORDERED, sent.reordered + sent.recovered),
            (m::RECOVERED_PACKETS, sent.recovered),
            (rtp::DUPLICATED, 0),
        ] {
            let found = played.count(id);
            assert_eq!(found, expected, "{id:?} {seed} {sent:?}");
        }
        let lost = played.count(rtp::EXPECTED) - played.count(rtp::RECEIVED);
        assert_eq!(lost, sent.lost);
        assert!(played.count(m::ASKED_PACKETS) >= sent.asked);
    }
}

#[test]
fn the_arrival_of_each_packet_is_told_where_the_server_numbers_them() {
    let faults = ["loss=3%", "loss-again=30%", "reorder=1%x2"];
    for (seed, receive) in (0..6).zip([Receive::Headers, Receive::Decrypted].into_iter().cycle()) {
        for (server_numbers, client_tells) in [(true, true), (true, false), (false, true)] {
            let config = ServerConfig {
                seed,
                transport_cc: server_numbers,
                ..server(&faults)
            };
            let client = ClientConfig {
                transport_cc: client_tells,
                ..receiving(receive, true)
            };
            let mut played = play(settings(seed), client, config);
            let served = &played.served()[0];
            let sent = played.sent();
            let told = played.count(m::ARRIVALS_TOLD);
            assert_eq!(served.arrivals_told, told);
            if !(server_numbers && client_tells) {
                assert_eq!(told, 0);
                continue;
            }
            // All that left, first or again, but for what came since the last message.
            let left = sent.sent + sent.again;
            assert!(told <= left && told + 40 > left, "{told} of {sent:?}");
            let messages = played.count(m::TRANSPORT_FEEDBACK_SENT);
            assert!((35..=45).contains(&messages), "{messages}");
            assert_eq!(played.count(m::REMBS_SENT), 0);
            let received = sent.sent + sent.recovered;
            assert_eq!(played.count(rtp::RECEIVED), received, "{sent:?}");
            assert_eq!(played.count(rtp::MALFORMED), 0);
        }
    }
}

#[test]
fn how_much_can_be_taken_is_told_with_the_report_or_alone_where_there_is_none() {
    for (seed, receiver_reports) in [(1, true), (2, false)] {
        let config = ServerConfig {
            seed,
            transport_cc: false,
            ..server(&[])
        };
        let client = ClientConfig {
            receiver_reports,
            ..receiving(Receive::Headers, false)
        };
        let mut played = play(settings(seed), client, config);
        let told = played.count(m::REMBS_SENT);
        let reports = played.count(m::REPORTS_SENT);
        assert!((2..=4).contains(&told), "{told}");
        assert_eq!(played.served()[0].rembs, told);
        // Both sources are reported on from the first second on, of which nothing is known yet.
        assert_eq!(reports, if receiver_reports { 2 * (told + 1) } else { 0 });
    }
}

#[test]
fn over_a_bad_network_clients_connect_and_nothing_is_counted_that_did_not_come() {
    for seed in 0..60 {
        let part = |modulus: u64| (seed % modulus) as f64 / modulus as f64;
        let link = LinkSettings {
            delay: Duration::from_millis(1 + seed % 40),
            loss: Loss::Random(0.1 * part(5)),
            duplicate: 0.1 * part(3),
            ..LinkSettings::default()
        };
        let nack = seed % 2 == 0;
        let config = ServerConfig {
            seed,
            length: Some(Duration::from_secs(2)),
            ..server(&["reorder=1%x2"])
        };
        let client = client(
            receiving(Receive::Decrypted, nack),
            &url("whep", "stream1"),
            seed,
        );
        let mut played = Played::begin(over(seed, link), client, config);
        played.pair.run(Duration::from_secs(5));
        // Where its goodbye was lost, the client does not know that the stream is over.
        played.pair.stop(CLIENT, Duration::from_secs(2));
        played.pair.run(Duration::from_secs(60));
        let served = played.served();
        let sent = served[0].sent.expect("it played");
        assert!(served[0].connected && sent.sent > 200, "{seed} {served:?}");
        let (received, expected) = (played.count(rtp::RECEIVED), played.count(rtp::EXPECTED));
        assert!(
            received <= sent.sent + sent.recovered,
            "{seed} {received} {sent:?}"
        );
        assert!(received <= expected && expected <= sent.expected, "{seed}");
        assert_eq!(played.count(m::UNAUTHENTIC), 0);
        let lost: u64 = played
            .pair
            .paths()
            .map(|path| path.counts.lost_by_chance)
            .sum();
        if lost == 0 {
            assert_eq!((received, expected), (sent.sent, sent.expected), "{seed}");
        }
        if !nack {
            assert!(sent.sent - received <= lost, "{seed}");
            assert_eq!((sent.asked, sent.again), (0, 0));
        }
    }
}

#[test]
fn who_is_refused_hears_why() {
    let token = |token: &str| ClientConfig {
        token: Some(token.to_owned()),
        ..ClientConfig::default()
    };
    let guarded = || ServerConfig {
        token: Some("secret".to_owned()),
        ..server(&[])
    };
    let few = |config: ServerConfig| ServerConfig {
        streams: Some(3),
        ..config
    };
    for (name, config, server, reason) in [
        ("stream1", token("secret"), guarded(), None),
        ("stream1", token("guessed"), guarded(), Some("unauthorized")),
        (
            "stream1",
            ClientConfig::default(),
            guarded(),
            Some("unauthorized"),
        ),
        ("stream3", ClientConfig::default(), few(server(&[])), None),
        (
            "stream4",
            ClientConfig::default(),
            few(server(&[])),
            Some("not_found"),
        ),
        (
            "a",
            ClientConfig::default(),
            server(&["answer=503"]),
            Some("overloaded"),
        ),
        (
            "a",
            ClientConfig::default(),
            server(&["silent=http"]),
            Some("request_timeout"),
        ),
        (
            "a",
            ClientConfig::default(),
            server(&["silent=ice"]),
            Some("ice_timeout"),
        ),
        (
            "a",
            ClientConfig::default(),
            server(&["silent=dtls"]),
            Some("dtls_timeout"),
        ),
        (
            "a",
            ClientConfig::default(),
            server(&["silent=media"]),
            Some("no_media"),
        ),
    ] {
        let client = client(config, &url("whep", name), 3);
        let mut played = Played::begin(settings(1), client, server);
        played.pair.run(Duration::from_secs(90));
        match reason {
            None => assert_eq!(played.reason(), "ended_by_server"),
            Some(reason) => assert_eq!(played.reason(), reason, "{name}"),
        }
    }
}

#[test]
fn there_are_no_more_sessions_than_may_be_and_one_that_ends_makes_room() {
    let config = ServerConfig {
        sessions: 1,
        ..server(&[])
    };
    let first = client(ClientConfig::default(), &url("whep", "a"), 3);
    let mut played = Played::begin(settings(1), first, config);
    played.pair.run(Duration::from_secs(1));
    let second = client(ClientConfig::default(), &url("whep", "a"), 4);
    let second = played.pair.add_client(Box::new(second));
    played.pair.run(Duration::from_secs(1));
    let outcome = played.pair.outcome(second);
    assert!(
        matches!(outcome, Some(Outcome::Failed(failure)) if failure.reason == "overloaded"),
        "{outcome:?}"
    );
    played.pair.stop(CLIENT, Duration::from_secs(2));
    played.pair.run(Duration::from_secs(1));
    let third = client(ClientConfig::default(), &url("whep", "a"), 5);
    let third = played.pair.add_client(Box::new(third));
    assert_eq!(played.pair.run(Duration::from_secs(60)), End::Ended);
    let outcome = played.pair.outcome(third).expect("it has ended");
    let reason = outcome.failure().map(|failure| failure.reason);
    assert_eq!(reason, Some("ended_by_server"));
    assert_eq!(played.server.door().refused, 1);
}

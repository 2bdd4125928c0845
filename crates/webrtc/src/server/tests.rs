//! Clients against the reference server in virtual time.

mod congestion;
mod forwarding;
mod hostile;
mod rooms;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use measure::CounterId;
use measure::units::BitRate;

use super::*;
use crate::client::Client;
use crate::config::{ClientConfig, Receive};
use crate::metrics as m;
use ::session::link::{Loss, Settings as LinkSettings};
use ::session::testing::{Pair, PairSettings, RunEnd, SessionNumber, Side, judgements};
use ::session::{Judgement, Outcome, Output};
use kit::faults::FaultSet as _;
use kit::media::rtp::metrics as rtp;

const CLIENT: SessionNumber = SessionNumber(0);
const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

/// Generating a certificate takes as long as some test cases.
static CERTIFICATE: LazyLock<Arc<Certificate>> =
    LazyLock::new(|| Arc::new(Certificate::generate(7)));

fn settings(seed: u64) -> PairSettings {
    PairSettings::new(seed, CATALOGUE)
}

/// Network with the same link in both directions.
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

/// Run of clients against a server.
struct TestRun {
    pair: Pair,
    server: Server,
}

impl TestRun {
    fn begin(settings: PairSettings, first: Client, config: ServerConfig) -> TestRun {
        let server = Server::new(config).expect("it can be made");
        let accepts = server.clone();
        let mut pair = Pair::new(settings, Box::new(first), move |_| accepts.session());
        pair.set_endpoint(server.endpoint(0));
        TestRun { pair, server }
    }

    fn count(&mut self, id: CounterId) -> u64 {
        self.pair.recorder(Side::Client).counter(id)
    }

    fn served(&self) -> Vec<ServedPeer> {
        let output = self.pair.outputs().iter();
        let records = output.filter_map(|(_, output)| match output {
            Output::Record(record) => record.downcast_ref::<ServedPeer>().cloned(),
            _ => None,
        });
        records.collect()
    }

    /// Counts of the only player.
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

fn play(settings: PairSettings, config: ClientConfig, server: ServerConfig) -> TestRun {
    let client = client(config, &url("whep", "stream1"), 5);
    let mut test = TestRun::begin(settings, client.with_time_codes(), server);
    assert_eq!(test.pair.run(Duration::from_secs(60)), RunEnd::Ended);
    test
}

fn receiving(receive: Receive, nack: bool) -> ClientConfig {
    ClientConfig {
        receive,
        nack,
        ..ClientConfig::default()
    }
}

#[test]
fn stream_plays_to_its_end_without_a_missing_packet() {
    for receive in [Receive::Headers, Receive::Decrypted] {
        let mut test = play(settings(1), receiving(receive, true), server(&[]));
        assert_eq!(test.reason(), "ended_by_server");
        let sent = test.sent();
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
            assert_eq!(test.count(id), expected, "{id:?} {receive:?}");
        }
        let codes = test.count(rtp::FRAMES_DELIVERED);
        match receive {
            Receive::Decrypted => assert_eq!(codes, 100),
            Receive::Headers => assert_eq!(codes, 0),
        }
        let served = &test.served()[0];
        assert!(
            served.connected && served.ended.contains("deleted"),
            "{served:?}"
        );
        assert_eq!(test.server.listener_counts().refused, 0);
        assert!(test.server.0.registry().has_room());
    }
}

#[test]
fn client_joining_40_s_after_server_start_is_served() {
    let config = ServerConfig {
        length: None,
        ..server(&[])
    };
    let first = client(
        receiving(Receive::Headers, true),
        &url("whep", "stream1"),
        5,
    );
    let mut test = TestRun::begin(settings(1), first, config);
    assert_eq!(test.pair.run(Duration::from_secs(40)), RunEnd::TimeUp);
    let late = client(
        receiving(Receive::Headers, true),
        &url("whep", "stream2"),
        6,
    );
    let late = test.pair.add_client(Box::new(late));
    assert_eq!(test.pair.run(Duration::from_secs(5)), RunEnd::TimeUp);
    assert_eq!(test.pair.outcome(late), None, "it plays");
    assert_eq!(test.count(m::PEERS_CONNECTED), 2);
}

#[test]
fn client_counts_match_the_injected_faults() {
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
            let mut test = play(settings(seed), receiving(receive, false), config);
            let sent = test.sent();
            assert!(sent.lost > 0 && sent.duplicated > 0 && sent.reordered > 0);
            assert!(sent.lost <= sent.left_out, "{sent:?}");
            // SRTP detects copies itself if packets are decrypted.
            let (duplicated, replayed) = match receive {
                Receive::Headers => (sent.duplicated, 0),
                Receive::Decrypted => (0, sent.duplicated),
            };
            for (id, expected) in [
                (rtp::EXPECTED, sent.expected),
                (rtp::RECEIVED, sent.sent),
                (rtp::DUPLICATED, duplicated),
                (m::REPLAYED, replayed),
                (rtp::REORDERED, sent.reordered),
                (rtp::PAYLOAD_BYTES, sent.payload_bytes),
                (rtp::MALFORMED, 0),
                (m::UNAUTHENTIC, 0),
            ] {
                let found = test.count(id);
                assert_eq!(found, expected, "{id:?} {receive:?} {seed} {sent:?}");
            }
        }
    }
}

#[test]
fn viewers_are_judged_by_the_injected_faults() {
    let cases: [(&[&str], bool, Judgement); 5] = [
        (&[], true, Judgement::Well),
        (&["loss=4%"], false, Judgement::Loss),
        // Retransmissions repair the loss.
        (&["loss=4%"], true, Judgement::Well),
        (&["stall=1s+900ms"], true, Judgement::Well),
        (&["stall=1s+1500ms"], true, Judgement::Stalled),
    ];
    for (faults, nack, expected) in cases {
        let test = play(
            settings(1),
            receiving(Receive::Headers, nack),
            server(faults),
        );
        assert_eq!(
            judgements(&test.pair),
            [Some(expected)],
            "{faults:?} {nack}"
        );
    }
}

#[test]
fn dropped_packets_are_recovered_by_retransmission() {
    let modes = [Receive::Headers, Receive::Decrypted];
    let modes = modes.map(|receive| [(receive, None), (receive, Some(false))]);
    for (seed, (receive, rtx)) in (0..24).zip(modes.into_iter().flatten().cycle()) {
        let config = ServerConfig {
            seed,
            ..server(&["loss=4%", "loss-again=30%"])
        };
        let client = ClientConfig {
            rtx,
            ..receiving(receive, true)
        };
        let mut test = play(settings(seed), client, config);
        let sent = test.sent();
        // Video is retransmitted in a stream of its own.
        let own_stream = test.count(m::RTX_PACKETS);
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
            let found = test.count(id);
            assert_eq!(found, expected, "{id:?} {seed} {sent:?}");
        }
        let lost = test.count(rtp::EXPECTED) - test.count(rtp::RECEIVED);
        assert_eq!(lost, sent.lost);
        assert!(test.count(m::ASKED_PACKETS) >= sent.asked);
    }
}

#[test]
fn arrivals_are_reported_if_both_sides_enable_transport_cc() {
    let faults = ["loss=3%", "loss-again=30%", "reorder=1%x2"];
    for (seed, receive) in (0..6).zip([Receive::Headers, Receive::Decrypted].into_iter().cycle()) {
        for (server_numbers, client_reports) in [(true, true), (true, false), (false, true)] {
            let config = ServerConfig {
                seed,
                transport_cc: server_numbers,
                ..server(&faults)
            };
            let client = ClientConfig {
                transport_cc: client_reports,
                ..receiving(receive, true)
            };
            let mut test = play(settings(seed), client, config);
            let served = &test.served()[0];
            let sent = test.sent();
            let reported = test.count(m::ARRIVALS_TOLD);
            assert_eq!(served.arrivals_told, reported);
            if !(server_numbers && client_reports) {
                assert_eq!(reported, 0);
                continue;
            }
            // All packets that were sent, except those after the last feedback message.
            let left = sent.sent + sent.again;
            assert!(
                reported <= left && reported + 40 > left,
                "{reported} of {sent:?}"
            );
            let messages = test.count(m::TRANSPORT_FEEDBACK_SENT);
            assert!((35..=45).contains(&messages), "{messages}");
            assert_eq!(test.count(m::REMBS_SENT), 0);
            let received = sent.sent + sent.recovered;
            assert_eq!(test.count(rtp::RECEIVED), received, "{sent:?}");
            assert_eq!(test.count(rtp::MALFORMED), 0);
        }
    }
}

#[test]
fn remb_is_sent_with_reports_or_alone_without_them() {
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
        let mut test = play(settings(seed), client, config);
        let rembs = test.count(m::REMBS_SENT);
        let reports = test.count(m::REPORTS_SENT);
        assert!((2..=4).contains(&rembs), "{rembs}");
        assert_eq!(test.served()[0].rembs, rembs);
        // Both sources are reported on from the first second. The first report comes before the
        // first estimate.
        assert_eq!(reports, if receiver_reports { 2 * (rembs + 1) } else { 0 });
    }
}

#[test]
fn clients_connect_and_count_right_over_a_lossy_network() {
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
        let mut test = TestRun::begin(over(seed, link), client, config);
        test.pair.run(Duration::from_secs(5));
        // If the goodbye was lost, the client does not know that the stream ended.
        test.pair.stop(CLIENT, Duration::from_secs(2));
        test.pair.run(Duration::from_secs(60));
        let served = test.served();
        let sent = served[0].sent.expect("it played");
        assert!(served[0].connected && sent.sent > 200, "{seed} {served:?}");
        let (received, expected) = (test.count(rtp::RECEIVED), test.count(rtp::EXPECTED));
        assert!(
            received <= sent.sent + sent.recovered,
            "{seed} {received} {sent:?}"
        );
        assert!(received <= expected && expected <= sent.expected, "{seed}");
        assert_eq!(test.count(m::UNAUTHENTIC), 0);
        let lost: u64 = test
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
fn refusals_and_timeouts_have_a_reason() {
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
        let mut test = TestRun::begin(settings(1), client, server);
        test.pair.run(Duration::from_secs(90));
        match reason {
            None => assert_eq!(test.reason(), "ended_by_server"),
            Some(reason) => assert_eq!(test.reason(), reason, "{name}"),
        }
    }
}

#[test]
fn session_limit_holds_and_an_ended_session_frees_a_slot() {
    let config = ServerConfig {
        sessions_max: 1,
        ..server(&[])
    };
    let first = client(ClientConfig::default(), &url("whep", "a"), 3);
    let mut test = TestRun::begin(settings(1), first, config);
    test.pair.run(Duration::from_secs(1));
    let second = client(ClientConfig::default(), &url("whep", "a"), 4);
    let second = test.pair.add_client(Box::new(second));
    test.pair.run(Duration::from_secs(1));
    let outcome = test.pair.outcome(second);
    assert!(
        matches!(outcome, Some(Outcome::Failed(failure)) if failure.reason == "overloaded"),
        "{outcome:?}"
    );
    test.pair.stop(CLIENT, Duration::from_secs(2));
    test.pair.run(Duration::from_secs(1));
    let third = client(ClientConfig::default(), &url("whep", "a"), 5);
    let third = test.pair.add_client(Box::new(third));
    assert_eq!(test.pair.run(Duration::from_secs(60)), RunEnd::Ended);
    let outcome = test.pair.outcome(third).expect("it has ended");
    let reason = outcome.failure().map(|failure| failure.reason);
    assert_eq!(reason, Some("ended_by_server"));
    assert_eq!(test.server.listener_counts().refused, 1);
}

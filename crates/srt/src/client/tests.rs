//! Client against the reference server in virtual time.

mod media;
mod messages;
mod rendezvous;

use std::sync::Arc;
use std::time::Duration;

use measure::units::{BitRate, TimeSpan};
use measure::{Catalogue, CounterId};
use session::link::{Loss, Settings as LinkSettings};

use super::*;
use crate::config;
use crate::metrics::SRT;
use crate::server::{ServedClient, Server, ServerConfig, ServerFaults};
use kit::awaiting_publisher::{AwaitedStreams, WaitingClient};
use kit::faults::FaultSet as _;
use kit::media::source::SourceConfig;
use kit::media::ts::metrics::{self as ts, TS};
use kit::metrics::{CLIENTS, ZAPPING};
use kit::viewer::VIEWERS;
use session::testing::{Pair, PairSettings, RunEnd, SessionNumber, Side, judgements};
use session::{Judgement, Outcome};

/// Packets of five seconds at 1 Mb/s, 1,316 bytes each.
const PACKETS: u64 = 475;

const CLIENT: SessionNumber = SessionNumber(0);
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &TS, &SRT]);

fn settings() -> PairSettings {
    PairSettings::new(1, CATALOGUE)
}

fn url(settings: &PairSettings, query: &str) -> String {
    format!("srt://10.0.0.2:{}?{query}", settings.port)
}

fn client(settings: &PairSettings, config: ClientConfig, query: &str) -> Client {
    let client = Client::new(config, &url(settings, query), 7).expect("a good URL");
    client.with_wall_clock(Duration::from_secs(1_700_000_000))
}

fn server(faults: &[&str]) -> ServerConfig {
    let mut all = ServerFaults::default();
    for fault in faults {
        all.add(fault).expect("it is one");
    }
    ServerConfig {
        length: Some(Duration::from_secs(5)),
        wall_clock: Duration::from_secs(1_700_000_000),
        faults: all,
        ..ServerConfig::default()
    }
}

struct Played(Pair);

impl Played {
    fn count(&mut self, id: CounterId) -> u64 {
        self.0.recorder(Side::Client).counter(id)
    }

    fn served(&self) -> Vec<ServedClient> {
        let said = self.0.outputs().iter();
        let records = said.filter_map(|(_, said)| match said {
            Output::Record(record) => record.downcast_ref::<ServedClient>().cloned(),
            _ => None,
        });
        records.collect()
    }

    fn failure(&self) -> &session::Failure {
        match self.0.outcome(CLIENT) {
            Some(Outcome::Failed(failure) | Outcome::EndedByServer { failure, .. }) => failure,
            other => panic!("{other:?}"),
        }
    }

    fn reason(&self) -> &'static str {
        self.failure().reason
    }

    fn detail(&self) -> &str {
        &self.failure().detail
    }
}

/// Client that waits for its stream.
fn waiting(client: Client) -> Box<WaitingClient> {
    let awaited = AwaitedStreams::stream(client.url.stream_name());
    Box::new(WaitingClient::new(Box::new(client), Arc::new(awaited)))
}

fn begin(settings: PairSettings, client: Client, server: ServerConfig) -> Pair {
    let mut pair = Pair::new(settings, Box::new(client), |_| unreachable!("it is UDP"));
    let server = Server::new(server).expect("it can be made");
    pair.set_endpoint(server.endpoint(0));
    pair
}

fn play(settings: PairSettings, config: ClientConfig, query: &str, server: ServerConfig) -> Played {
    let client = client(&settings, config, query);
    let mut pair = begin(settings, client, server);
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    Played(pair)
}

fn lossy(loss: f64) -> PairSettings {
    let link = LinkSettings {
        delay: Duration::from_millis(10),
        loss: Loss::Random(loss),
        ..LinkSettings::default()
    };
    PairSettings {
        up: link.clone(),
        down: link,
        ..settings()
    }
}

#[test]
fn stream_is_played_to_its_end_without_loss() {
    for (passphrase, query) in [
        (None, "streamid=stream1"),
        (Some("0123456789"), "passphrase=0123456789&pbkeylen=24"),
    ] {
        let server = ServerConfig {
            passphrase: passphrase.and_then(|text| Passphrase::new(text).ok()),
            ..server(&[])
        };
        let mut played = play(settings(), ClientConfig::default(), query, server);
        assert_eq!(played.reason(), "peer_shutdown");
        let served = played.served();
        let [served] = &served[..] else {
            panic!("{served:?}");
        };
        assert_eq!(served.media, PACKETS);
        for (id, expected) in [
            (m::PKT_RECV_UNIQUE, served.media),
            (m::PKT_RCV_EXPECTED, served.media),
            (m::PKT_RCV_LOSS, 0),
            (m::PKT_RCV_UNDECRYPT, 0),
            (m::PKT_MALFORMED, 0),
            (ts::EXPECTED, served.media),
            (ts::RECEIVED, served.media),
            (ts::DAMAGED, 0),
            (ts::CONTINUITY_ERRORS, 0),
            (ts::STAMPS_AHEAD, 0),
        ] {
            assert_eq!(played.count(id), expected, "{id:?} {query}");
        }
    }
}

#[test]
fn packets_lost_once_are_recovered_in_order() {
    for seed in 1..=12 {
        assert_all_faults_are_counted(seed);
    }
}

fn assert_all_faults_are_counted(seed: u64) {
    let server = ServerConfig {
        seed,
        ..server(&["lose=5%", "duplicate=2%", "reorder=5%"])
    };
    let mut played = play(settings(), ClientConfig::default(), "", server);
    let served = played.served();
    let wrongs = served[0].wrongs;
    assert!(wrongs.left_out > 10 && wrongs.duplicated > 2 && wrongs.reordered > 8);
    // Packets after the last arrival are unknown to the client.
    let unknown = wrongs.left_out_at_the_end;
    let (came, left_out) = (PACKETS - unknown, wrongs.left_out - unknown);
    for (id, expected) in [
        (m::PKT_RECV_UNIQUE, came),
        (m::PKT_RCV_DROP, 0),
        (ts::RECEIVED, came),
        (ts::CONTINUITY_ERRORS, 0),
        (ts::REORDERED, 0),
        (ts::DUPLICATED, 0),
    ] {
        assert_eq!(played.count(id), expected, "{id:?} {seed}");
    }
    // A reordered packet may arrive twice, because it is requested at once. A packet that should
    // follow another one is not reordered if that one is left out.
    let lost = played.count(m::PKT_RCV_LOSS);
    let recovered = played.count(m::PKT_RCV_RECOVERED);
    assert_eq!(recovered + played.count(m::PKT_RCV_REORDERED), lost);
    assert!(recovered >= left_out, "{recovered} {left_out} {seed}");
    let most = left_out + wrongs.reordered;
    assert!((most - 2..=most).contains(&lost), "{lost} {most} {seed}");
    assert_eq!(
        played.count(m::PKT_RCV_DUPLICATE),
        played.count(m::PKT_RECV) - came
    );
}

#[test]
fn viewers_are_judged_by_the_injected_faults() {
    let cases: [(&[&str], Judgement); 5] = [
        (&[], Judgement::Well),
        (&["lose=5%"], Judgement::Well),
        (&["lose=5%", "lose-again=100%"], Judgement::Loss),
        (&["stall=1s+900ms"], Judgement::Well),
        (&["stall=1s+1500ms"], Judgement::Stalled),
    ];
    for (faults, expected) in cases {
        let played = play(settings(), ClientConfig::default(), "", server(faults));
        assert_eq!(judgements(&played.0), [Some(expected)], "{faults:?}");
    }
    let faults = ["handshake=silent"];
    let played = play(settings(), ClientConfig::default(), "", server(&faults));
    assert_eq!(judgements(&played.0), [Some(Judgement::Failed)]);
}

#[test]
fn unrecovered_packets_are_missing_in_the_stream() {
    let server = server(&["lose=2%", "lose-again=100%"]);
    let mut played = play(settings(), ClientConfig::default(), "", server);
    let left_out = played.served()[0].wrongs.left_out;
    assert!(left_out > 3);
    assert_eq!(played.count(m::PKT_RCV_DROP), left_out);
    assert_eq!(played.count(ts::RECEIVED), PACKETS - left_out);
    assert!(played.count(ts::CONTINUITY_ERRORS) > 0);
}

#[test]
fn corrupted_packets_are_counted() {
    let mut played = play(
        settings(),
        ClientConfig::default(),
        "",
        server(&["corrupt=2%"]),
    );
    let corrupted = played.served()[0].wrongs.corrupted;
    assert!(corrupted > 3);
    assert_eq!(played.count(ts::DAMAGED), corrupted);
}

#[test]
fn lossy_network_is_repaired_within_the_latency() {
    for seed in 0..20 {
        let settings = PairSettings { seed, ..lossy(0.1) };
        let mut played = play(
            settings,
            ClientConfig::default(),
            "latency=1000",
            server(&[]),
        );
        // The shutdown may be lost as well.
        let reason = played.reason();
        assert!(matches!(reason, "peer_shutdown" | "peer_idle"), "{seed}");
        let lost = played.count(m::PKT_RCV_DROP);
        // Losses at the end are unknown to the client.
        let known = played.count(m::PKT_RECV_UNIQUE) + lost;
        assert!(known <= PACKETS && known + 3 >= PACKETS, "{seed}");
        assert!(played.count(m::PKT_RCV_RECOVERED) > 20, "{seed}");
        assert_eq!(lost, 0, "{seed}");
        assert_eq!(played.count(ts::CONTINUITY_ERRORS), 0, "{seed}");
    }
}

#[test]
fn published_stream_is_relayed_to_players() {
    let looped = config::stream(
        &SourceConfig {
            bitrate: Some(BitRate(1_000_000)),
            ..SourceConfig::default()
        },
        None,
    )
    .expect("it can be made");
    let settings = lossy(0.02);
    let publisher = client(
        &settings,
        ClientConfig {
            latency: TimeSpan(Duration::from_millis(500)),
            ..ClientConfig::default()
        },
        "streamid=#!::r=own,m=publish",
    );
    let publisher = publisher.publishing(Arc::new(looped));
    let player = client(
        &settings,
        ClientConfig::default(),
        "streamid=own&latency=500",
    );
    let mut pair = begin(settings, publisher, server(&[]));
    let player = pair.add_client(waiting(player));
    pair.run(Duration::from_secs(5));
    pair.stop(CLIENT, Duration::from_secs(5));
    assert_eq!(pair.run(Duration::from_secs(20)), RunEnd::Ended);
    assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Stopped));
    assert_eq!(pair.outcome(player), Some(&Outcome::Completed));
    let mut played = Played(pair);
    let served = played.served();
    let publisher = served.iter().find(|served| served.published);
    let publisher = publisher.expect("it says so");
    let sent = played.count(m::PKT_SENT_UNIQUE);
    assert_eq!(publisher.media, sent);
    assert_eq!(played.count(m::NOT_TAKEN), 0);
    // The player is notified shortly after the first packets.
    let received = played.count(m::PKT_RECV_UNIQUE);
    assert!(
        received <= sent && received + 20 > sent,
        "{received} of {sent}"
    );
    assert_eq!(played.count(ts::CONTINUITY_ERRORS), 0);
    assert_eq!(played.count(ts::EXPECTED), played.count(ts::RECEIVED));
}

#[test]
fn tail_loss_is_known_from_the_publisher() {
    let source = SourceConfig {
        bitrate: Some(BitRate(1_000_000)),
        ..SourceConfig::default()
    };
    let looped = config::stream(&source, None).expect("it can be made");
    // Packets from the server are lost while the stream ends.
    let outage = session::link::Outage {
        from: Time::from_start(Duration::from_millis(4900)),
        until: Time::from_start(Duration::from_millis(5100)),
    };
    let mut settings = lossy(0.0);
    settings.down.outages.push(outage);
    let publisher = client(&settings, ClientConfig::default(), "streamid=publish:own");
    let publisher = publisher.publishing(Arc::new(looped));
    let player = client(&settings, ClientConfig::default(), "streamid=read:own");
    let mut pair = begin(settings, publisher, server(&[]));
    let player = pair.add_client(waiting(player));
    pair.run(Duration::from_secs(5));
    pair.stop(CLIENT, Duration::from_secs(5));
    assert_eq!(pair.run(Duration::from_secs(20)), RunEnd::Ended);
    assert_eq!(pair.outcome(player), Some(&Outcome::Completed));
    let mut played = Played(pair);
    let lost = played.count(m::TAIL_LOST);
    // 95 packets per second.
    assert!((5..15).contains(&lost), "{lost}");
    assert_eq!(played.count(m::PKT_RCV_LOSS), 0);
    assert_eq!(
        played.count(ts::EXPECTED),
        played.count(ts::RECEIVED) + lost
    );
    // The server received all packets.
    assert_eq!(played.count(m::PKT_SND_UNACKED), 0);
}

#[test]
fn tail_loss_of_a_publisher_is_not_acknowledged() {
    let source = SourceConfig {
        bitrate: Some(BitRate(1_000_000)),
        ..SourceConfig::default()
    };
    let looped = config::stream(&source, None).expect("it can be made");
    let outage = session::link::Outage {
        from: Time::from_start(Duration::from_millis(4900)),
        until: Time::from_start(Duration::from_millis(5100)),
    };
    let mut settings = lossy(0.0);
    settings.up.outages.push(outage);
    let publisher = client(&settings, ClientConfig::default(), "streamid=publish:own");
    let mut pair = begin(
        settings,
        publisher.publishing(Arc::new(looped)),
        server(&[]),
    );
    pair.run(Duration::from_secs(5));
    pair.stop(CLIENT, Duration::from_secs(5));
    assert_eq!(pair.run(Duration::from_secs(20)), RunEnd::Ended);
    let mut played = Played(pair);
    let unacked = played.count(m::PKT_SND_UNACKED);
    assert!((5..15).contains(&unacked), "{unacked}");
    let came = played.served()[0].media;
    assert_eq!(came + unacked, played.count(m::PKT_SENT_UNIQUE));
}

#[test]
fn every_failure_has_its_reason() {
    let secret = |config: ServerConfig| ServerConfig {
        passphrase: Passphrase::new("0123456789").ok(),
        ..config
    };
    let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
    let endless = |config: ServerConfig| ServerConfig {
        length: None,
        ..config
    };
    for (server, query, reason) in [
        (server(&["handshake=silent"]), "", "handshake_timeout"),
        (
            server(&["handshake=unfinished"]),
            "",
            "handshake_unfinished",
        ),
        (server(&["handshake=malformed"]), "", "malformed_handshake"),
        (server(&["reject=2404"]), "", "stream_not_found"),
        (server(&["reject=2402"]), "", "overloaded"),
        (server(&["reject=1002"]), "", "rejected_by_peer"),
        (server(&["reject=2415"]), "", "rejected_other"),
        (secret(server(&[])), "", "passphrase_missing"),
        (
            secret(server(&[])),
            "passphrase=0123456780",
            "wrong_passphrase",
        ),
        (
            server(&[]),
            "passphrase=0123456780",
            "passphrase_unexpected",
        ),
        (endless(server(&["stop=1s"])), "", "media_stopped"),
        (endless(server(&["silent=1s"])), "", "peer_idle"),
        (server(&["close=1s"]), "", "peer_shutdown"),
        (server(&["stop=0s"]), "", "no_media"),
    ] {
        let config = ClientConfig {
            no_media: seconds(3),
            silence: seconds(8),
            ..ClientConfig::default()
        };
        let played = play(settings(), config, query, server.clone());
        assert_eq!(played.reason(), reason, "{:?} {query}", server.faults);
    }
    for (query, is_advised) in [("", true), ("streamid=a", false)] {
        let played = play(
            settings(),
            ClientConfig::default(),
            query,
            server(&["reject=1002"]),
        );
        let advised = played.detail().contains("try `?streamid=NAME`");
        assert_eq!(advised, is_advised, "{}", played.detail());
    }
    let streams = ServerConfig {
        streams: Some(2),
        ..server(&[])
    };
    for (id, is_one) in [("stream2", true), ("stream3", false), ("", false)] {
        let query = match id {
            "" => String::new(),
            id => format!("streamid={id}"),
        };
        let played = play(settings(), ClientConfig::default(), &query, streams.clone());
        match is_one {
            true => assert_eq!(played.reason(), "peer_shutdown"),
            false => assert_eq!(played.reason(), "stream_not_found"),
        }
    }
}

//! RTSP clients and the reference server over multicast, in virtual time over a seeded network: one
//! copy of each packet serves all, and the counts of every client are exact.

use std::time::Duration;

use kit::faults::FaultSet as _;
use kit::media::rtp::metrics::{self as rtp, RTP};
use kit::media::rtp::summaries;
use kit::media::rtp::{ServedStream, StreamSummary};
use kit::metrics::{CLIENTS, ZAPPING};
use kit::viewer::VIEWERS;
use measure::Catalogue;
use measure::units::BitRate;
use rtsp::client::Client;
use rtsp::config::{ClientConfig, Transport};
use rtsp::metrics::RTSP;
use rtsp::server::{MulticastConfig, Server, ServerConfig};
use session::link::{Loss, Settings};
use session::testing::{Pair, PairSettings, RunEnd, SessionNumber, Side};
use session::{Outcome, Output};

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &RTP, &RTSP]);
const URL: &str = "rtsp://server/a";

fn server(faults: &[&str]) -> Server {
    let mut config = ServerConfig {
        bitrate: BitRate(400_000),
        length: Some(Duration::from_secs(10)),
        audio: true,
        first_seq: Some(65_300),
        multicast: Some(MulticastConfig::default()),
        ..ServerConfig::default()
    };
    for fault in faults {
        config.faults.add(fault).unwrap();
    }
    Server::new(config).unwrap()
}

fn client(url: &str, seed: u64) -> Box<Client> {
    let config = ClientConfig {
        transport: Transport::Multicast,
        ..ClientConfig::default()
    };
    Box::new(Client::new(config, url, seed).unwrap())
}

/// A first client, and a server with a session for each connection.
fn pair(settings: PairSettings, url: &str, server: Server) -> Pair {
    let seed = settings.seed;
    Pair::new(settings, client(url, seed), move |number| {
        server.session(u64::try_from(number.0).unwrap())
    })
}

fn counted(pair: &Pair, session: SessionNumber) -> Vec<StreamSummary> {
    let said = pair.outputs().iter().filter(|(who, _)| *who == session);
    said.filter_map(|(_, output)| match output {
        Output::Streams(streams) => Some(summaries(streams)),
        _ => None,
    })
    .flatten()
    .collect()
}

fn served(pair: &Pair) -> Vec<ServedStream> {
    let said = pair.outputs().iter();
    said.filter_map(|(_, output)| match output {
        Output::Record(record) => record.downcast_ref::<ServedStream>().cloned(),
        _ => None,
    })
    .collect()
}

#[test]
fn one_copy_serves_all_and_every_count_agrees() {
    for seed in 0..8 {
        let faults = ["loss=3%", "duplicate=2%", "reorder=2%x4"];
        let mut pair = pair(PairSettings::new(seed, CATALOGUE), URL, server(&faults));
        let others = [
            pair.add_client(client(URL, 2)),
            pair.add_client(client(URL, 3)),
        ];
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        let served = served(&pair);
        assert_eq!(served.len(), 2, "each media was sent once");
        for session in [SessionNumber(0), others[0], others[1]] {
            assert_eq!(pair.outcome(session), Some(&Outcome::Completed));
            let counted = counted(&pair, session);
            assert_eq!(counted.len(), 2);
            for summary in counted {
                let served = served.iter().find(|s| Some(s.ssrc) == summary.ssrc);
                let served = served.expect("it was sent");
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
                );
                assert_eq!(counts.late + counts.malformed + counts.restarts, 0);
            }
        }
        assert_eq!(
            pair.recorder(Side::Client).counter(rtp::RTP_INFO_MISMATCH),
            0
        );
    }
}

#[test]
fn network_loss_affects_all_members_alike() {
    let mut settings = PairSettings::new(7, CATALOGUE);
    settings.down = Settings {
        loss: Loss::Random(0.02),
        delay: Duration::from_millis(5),
        ..Settings::default()
    };
    let mut pair = pair(settings, URL, server(&[]));
    let other = pair.add_client(client(URL, 2));
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    let sent: u64 = served(&pair).iter().map(|stream| stream.sent).sum();
    let of = |session| -> (u64, u64) {
        let counted = counted(&pair, session);
        let sum = |part: fn(&StreamSummary) -> u64| counted.iter().map(part).sum();
        (sum(|s| s.counts.received), sum(|s| s.counts.lost()))
    };
    let (received, lost) = of(SessionNumber(0));
    assert_eq!(of(other), (received, lost));
    assert!(
        lost > 0 && received + lost <= sent,
        "{received} + {lost} of {sent}"
    );
}

#[test]
fn first_member_may_leave_and_late_members_lose_nothing() {
    let mut pair = pair(PairSettings::new(1, CATALOGUE), URL, server(&[]));
    assert_eq!(pair.run(Duration::from_secs(3)), RunEnd::TimeUp);
    let late = pair.add_client(client(URL, 2));
    assert_eq!(pair.run(Duration::from_secs(2)), RunEnd::TimeUp);
    // The flow has used the first session's channel so far.
    pair.stop(SessionNumber(0), Duration::from_secs(1));
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(pair.outcome(SessionNumber(0)), Some(&Outcome::Stopped));
    assert_eq!(pair.outcome(late), Some(&Outcome::Completed));
    let served = served(&pair);
    assert_eq!(served.len(), 2);
    for stream in &served {
        assert!(stream.ended && stream.lost == 0, "{stream:?}");
        let of = |session| {
            let counted = counted(&pair, session).into_iter();
            let mut counted = counted.filter(|summary| summary.ssrc == Some(stream.ssrc));
            counted.next().expect("it was received").counts
        };
        let (first, second) = (of(SessionNumber(0)), of(late));
        assert_eq!((first.lost(), second.lost()), (0, 0));
        // Received from its PLAY on: the first 3 of 10 seconds do not count.
        let share = |received: u64| received as f64 / stream.sent as f64;
        assert!((share(first.received) - 0.5).abs() < 0.05, "{first:?}");
        assert!((share(second.received) - 0.7).abs() < 0.05, "{second:?}");
    }
}

#[test]
fn stream_restarts_after_all_members_have_left() {
    let mut pair = pair(PairSettings::new(1, CATALOGUE), URL, server(&[]));
    pair.run(Duration::from_secs(2));
    pair.stop(SessionNumber(0), Duration::from_secs(1));
    pair.run(Duration::from_secs(2));
    assert_eq!(served(&pair).len(), 2);
    let second = pair.add_client(client(URL, 9));
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(pair.outcome(second), Some(&Outcome::Completed));
    let served = served(&pair);
    assert_eq!(served.len(), 4);
    assert_ne!(served[0].ssrc, served[2].ssrc);
    for summary in counted(&pair, second) {
        let served = served.iter().find(|s| Some(s.ssrc) == summary.ssrc);
        assert_eq!(served.map(|s| s.sent), Some(summary.counts.received));
    }
}

#[test]
fn streams_have_groups_of_their_own() {
    let mut pair = pair(PairSettings::new(1, CATALOGUE), URL, server(&[]));
    let other = pair.add_client(client("rtsp://server/b", 2));
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(served(&pair).len(), 4);
    for session in [SessionNumber(0), other] {
        for summary in counted(&pair, session) {
            let counts = summary.counts;
            assert_eq!(
                (counts.lost(), counts.restarts, counts.malformed),
                (0, 0, 0)
            );
        }
    }
    let mut groups: Vec<String> = pair.paths().map(|path| path.to.ip().to_string()).collect();
    groups.retain(|group| group.starts_with("239."));
    groups.sort();
    groups.dedup();
    assert_eq!(groups, ["239.255.42.1", "239.255.42.2"]);
}

#[test]
fn server_without_multicast_answers_461() {
    let server = Server::new(ServerConfig::default()).unwrap();
    let mut pair = pair(PairSettings::new(1, CATALOGUE), URL, server);
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    match pair.outcome(SessionNumber(0)) {
        Some(Outcome::Failed(failure)) => assert_eq!(failure.reason, "status_461"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_groups_are_rejected() {
    let with = |multicast| {
        Server::new(ServerConfig {
            multicast: Some(multicast),
            ..ServerConfig::default()
        })
    };
    let good = MulticastConfig::default();
    assert!(with(good).is_ok());
    for bad in [
        MulticastConfig {
            group: "10.0.0.1".parse().unwrap(),
            ..good
        },
        MulticastConfig {
            group: "239.255.255.250".parse().unwrap(),
            ..good
        },
        MulticastConfig { port: 5005, ..good },
        MulticastConfig { port: 0, ..good },
        MulticastConfig { ttl: 0, ..good },
    ] {
        assert!(with(bad).is_err(), "{bad:?}");
    }
}

//! Janus clients in rooms of the server.

use super::forwarding::published_media;
use super::*;
use crate::signalling::janus::room_config::Subscribe;
use ::session::{Context, Flows, Input, Outbox, Sinks};
use kit::media::source::MediaSource;
use measure::{Recorder, Time};

fn participant(subscribe: Subscribe, seed: u64) -> Client {
    let config = ClientConfig {
        subscribe,
        participate: Some(published_media()),
        ..receiving(Receive::Decrypted, false)
    };
    let source = MediaSource::adaptive(&published_media(), None).expect("it can be made");
    let client = client(config, "janus+ws://10.0.0.2:554/videoroom/7", seed);
    client.with_source(Arc::new(source)).with_time_codes()
}

/// Runs four participants: one joins each second, and the first leaves before the others.
fn run_room(settings: PairSettings, subscribe: Subscribe) -> TestRun {
    let mut test = TestRun::begin(settings, participant(subscribe, 1), server(&[]));
    let mut clients = vec![CLIENT];
    for seed in 2..=4 {
        test.pair.run(Duration::from_secs(1));
        let next = participant(subscribe, seed);
        clients.push(test.pair.add_client(Box::new(next)));
    }
    test.pair.run(Duration::from_secs(4));
    for client in clients {
        test.pair.stop(client, Duration::from_secs(2));
        test.pair.run(Duration::from_secs(2));
        let outcome = test.pair.outcome(client);
        assert_eq!(outcome, Some(&Outcome::Stopped), "{subscribe:?}");
    }
    test
}

#[test]
fn room_participants_receive_all_others_until_they_leave() {
    for (subscribe, peers) in [(Subscribe::Together, 2 * 4), (Subscribe::Each, 4 + 3 * 4)] {
        let mut test = run_room(settings(1), subscribe);
        assert_eq!(test.count(m::PEERS_CONNECTED), peers, "{subscribe:?}");
        assert_eq!(test.count(m::REFUSALS), 0);
        let served = test.served();
        let sent = served.iter().filter_map(|peer| peer.sent);
        let mut all = SentCounts::default();
        sent.for_each(|sent| all.add(sent));
        let published = served.iter().filter_map(|peer| peer.received);
        let received_by_server: u64 = published.map(|received| received.received).sum();
        assert_eq!(received_by_server, test.count(m::SENT_PACKETS));
        // Each packet goes to three participants, except those who joined later or left earlier.
        assert!(
            all.sent > 2 * received_by_server && all.sent < 3 * received_by_server,
            "{} of {received_by_server}",
            all.sent
        );
        let received = test.count(rtp::RECEIVED);
        // Packets on their way to a leaving participant are not counted: one frame of each
        // publisher.
        assert!(
            received <= all.sent && all.sent - received < 40,
            "{received} of {}",
            all.sent
        );
        for (id, expected) in [
            (rtp::EXPECTED, received),
            (rtp::STREAMS_SILENT, 0),
            (m::UNAUTHENTIC, 0),
            (m::UNKNOWN_MEDIA, 0),
        ] {
            assert_eq!(test.count(id), expected, "{id:?} {subscribe:?}");
        }
        assert!(test.count(rtp::FRAMES_DELIVERED) > 300);
        // All names are free again.
        assert!(test.server.0.publications().is_empty());
        assert!(test.server.0.rooms().has_nothing_pending());
    }
}

#[test]
fn rooms_work_over_a_lossy_network() {
    for (seed, subscribe) in (0..12).zip([Subscribe::Together, Subscribe::Each].into_iter().cycle())
    {
        let link = LinkSettings {
            delay: Duration::from_millis(1 + seed * 3),
            loss: Loss::Random(0.02 * (seed % 3) as f64),
            duplicate: 0.01,
            ..LinkSettings::default()
        };
        let mut test = run_room(over(seed, link), subscribe);
        assert!(test.count(rtp::RECEIVED) > 1000, "{seed}");
        assert_eq!(test.count(m::UNAUTHENTIC), 0);
        assert!(test.server.0.publications().is_empty());
    }
}

#[test]
fn remaining_participant_receives_later_ones() {
    for subscribe in [Subscribe::Together, Subscribe::Each] {
        let mut test = TestRun::begin(settings(1), participant(subscribe, 1), server(&[]));
        let mut received = Vec::new();
        for seed in 2..=4 {
            let next = test.pair.add_client(Box::new(participant(subscribe, seed)));
            test.pair.run(Duration::from_secs(4));
            test.pair.stop(next, Duration::from_secs(2));
            // The remaining participant is alone for longer than an idle PeerConnection would last.
            test.pair.run(Duration::from_secs(9));
            assert_eq!(test.pair.outcome(next), Some(&Outcome::Stopped));
            received.push(test.count(rtp::RECEIVED));
        }
        test.pair.stop(CLIENT, Duration::from_secs(2));
        test.pair.run(Duration::from_secs(3));
        assert_eq!(test.pair.outcome(CLIENT), Some(&Outcome::Stopped));
        // All participants received each other, every time.
        let each = received[0];
        assert!(each > 500 && received[2] > 5 * each / 2, "{received:?}");
        let peers = if subscribe == Subscribe::Together {
            8
        } else {
            10
        };
        assert_eq!(test.count(m::PEERS_CONNECTED), peers, "{subscribe:?}");
    }
}

#[test]
fn end_of_a_subscriber_is_announced_in_the_room() {
    let server = Server::new(server(&[])).expect("it can be made");
    let now = Time::from_nanos(1_000_000_000);
    let negotiating = server.0.create_peer(now, ([10, 0, 0, 2], 554).into(), true);
    let negotiating = negotiating.expect("there is room");
    let pending = PendingPeer {
        number: negotiating.number,
        name: "room 7".to_owned(),
        peer: Box::new(negotiating.peer),
        role: session::Role::Subscriber {
            feeds: Vec::new(),
            topic: "the room".to_owned(),
        },
    };
    let number = pending.number;
    let mut peer = session::PeerSession::new(now, server.0.clone(), pending, 0);
    // A change is pending.
    let changes = vec![crate::server::rooms::PlayChange::Stop(1)];
    server.0.rooms().add_changes(number, changes);
    let mut out = std::collections::VecDeque::new();
    let mut cx = Context {
        now,
        recorder: &mut Recorder::new(CATALOGUE),
        sinks: &mut Sinks::default(),
        flows: &mut Flows::default(),
        out: &mut out,
        outbox: &mut Outbox::default(),
    };
    peer.handle(&mut cx, Input::Stop { until: now });
    let is_announced =
        |output: &Output| matches!(output, Output::Publish { topic, .. } if topic == "the room");
    assert_eq!(out.iter().filter(|output| is_announced(output)).count(), 1);
    assert!(server.0.rooms().has_nothing_pending());
}

//! Clients of Janus in rooms of the server.

use super::passing_on::made;
use super::*;
use crate::media::source::MediaSource;
use crate::webrtc::signalling::janus::Subscribe;

fn person(subscribe: Subscribe, seed: u64) -> Client {
    let config = ClientConfig {
        subscribe,
        participate: Some(made()),
        ..receiving(Receive::Decrypted, false)
    };
    let source = MediaSource::live(&made(), None).expect("it can be made");
    let client = client(config, "janus+ws://10.0.0.2:554/videoroom/7", seed);
    client.publishing(Arc::new(source)).looking_for_codes()
}

/// Four people of whom one comes each second, and the first leaves before the others do.
fn meet(settings: PairSettings, subscribe: Subscribe) -> Played {
    let mut played = Played::begin(settings, person(subscribe, 1), server(&[]));
    let mut people = vec![CLIENT];
    for seed in 2..=4 {
        played.pair.run(Duration::from_secs(1));
        let next = person(subscribe, seed);
        people.push(played.pair.add_client(Box::new(next)));
    }
    played.pair.run(Duration::from_secs(4));
    for person in people {
        played.pair.stop(person, Duration::from_secs(2));
        played.pair.run(Duration::from_secs(2));
        let outcome = played.pair.outcome(person);
        assert_eq!(outcome, Some(&Outcome::Stopped), "{subscribe:?}");
    }
    played
}

#[test]
fn everybody_in_a_room_receives_everybody_else_until_they_leave() {
    for (subscribe, peers) in [(Subscribe::Together, 2 * 4), (Subscribe::Each, 4 + 3 * 4)] {
        let mut played = meet(settings(1), subscribe);
        assert_eq!(played.count(m::PEERS_CONNECTED), peers, "{subscribe:?}");
        assert_eq!(played.count(m::REFUSALS), 0);
        let served = played.served();
        let sent = served.iter().filter_map(|peer| peer.sent);
        let mut all = SentCounts::default();
        sent.for_each(|sent| all.add(&sent));
        let published = served.iter().filter_map(|peer| peer.received);
        let came: u64 = published.map(|received| received.received).sum();
        assert_eq!(came, played.count(m::SENT_PACKETS));
        // Three others receive each, but for who came later or left before.
        assert!(
            all.sent > 2 * came && all.sent < 3 * came,
            "{} of {came}",
            all.sent
        );
        let received = played.count(rtp::RECEIVED);
        // What is on its way to who leaves is counted by nobody: a picture from each of the others.
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
            assert_eq!(played.count(id), expected, "{id:?} {subscribe:?}");
        }
        assert!(played.count(rtp::FRAMES_DELIVERED) > 300);
        // No name is taken any more.
        assert!(played.server.0.publications().is_empty());
    }
}

#[test]
fn over_a_bad_network_rooms_go_on() {
    for (seed, subscribe) in (0..12).zip([Subscribe::Together, Subscribe::Each].into_iter().cycle())
    {
        let link = LinkSettings {
            delay: Duration::from_millis(1 + seed * 3),
            loss: Loss::Random(0.02 * (seed % 3) as f64),
            duplicate: 0.01,
            ..LinkSettings::default()
        };
        let mut played = meet(over(seed, link), subscribe);
        assert!(played.count(rtp::RECEIVED) > 1000, "{seed}");
        assert_eq!(played.count(m::UNAUTHENTIC), 0);
        assert!(played.server.0.publications().is_empty());
    }
}

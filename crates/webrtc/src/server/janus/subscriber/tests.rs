//! Offers that overlap with changes in a room.

use std::collections::VecDeque;

use measure::{Recorder, Time};

use super::*;
use crate::certificate::Certificate;
use crate::peer::{Peer, PeerConfig};
use crate::sdp::AnswerConfig;
use crate::server::publication::Track;
use crate::server::{CATALOGUE, Server, ServerConfig};
use session::{Flows, Outbox, Sinks};

const NOW: Time = Time::from_nanos(1_000_000_000);

/// Publication of a video track by a participant over PeerConnection `number`.
fn feed(participant: u64, number: u64) -> BTreeMap<u64, Arc<Publication>> {
    let track = Track {
        kind: MediaKind::Video,
        codec: Codec::new(100, "H264", 90_000),
    };
    let publication = Publication {
        number,
        name: String::new(),
        publisher_slot: 0,
        stream_index: 0,
        tracks: vec![track],
    };
    BTreeMap::from([(participant, Arc::new(publication))])
}

/// Answer of a client that accepts everything.
fn answer(offer: &str) -> String {
    let offer = SessionDescription::parse(offer).expect("it is right");
    let config = PeerConfig::new(Arc::new(Certificate::generate(3)), 3);
    let mut peer = Peer::answerer(NOW, &config);
    let theirs = offer.transport().expect("it is right");
    assert_eq!(peer.set_remote(NOW, &theirs), Ok(()));
    let config = AnswerConfig::receive_all(1);
    offer.answer(&config, &peer.local_transport()).to_string()
}

fn sdp_of((_, jsep): (Value, Jsep)) -> String {
    jsep.expect("the event has an offer").1
}

fn answered(subscriber: &mut Subscriber, sdp: Option<&str>) -> Result<(), u64> {
    let mut cx = Context {
        now: NOW,
        recorder: &mut Recorder::new(CATALOGUE),
        sinks: &mut Sinks::default(),
        flows: &mut Flows::default(),
        out: &mut VecDeque::new(),
        outbox: &mut Outbox::default(),
    };
    subscriber
        .handle_answer(&mut cx, sdp)
        .map_err(|(code, _)| code)
}

fn subscribe(
    subscriber: &mut Subscriber,
    feeds: &BTreeMap<u64, Arc<Publication>>,
    streams: &Value,
) -> Result<(), u64> {
    let wanted = subscriber.select_tracks(feeds, streams);
    subscriber.subscribe(wanted.map_err(|(code, _)| code)?);
    Ok(())
}

/// Publishers of the streams to be played, in the order of their negotiation.
fn plays(subscriber: &Subscriber) -> Vec<u64> {
    let mut registry = subscriber.shared.registry();
    let Some(PendingPeer {
        role: Role::Subscriber { feeds, .. },
        ..
    }) = registry.pending(&subscriber.id)
    else {
        panic!("it has not begun");
    };
    let numbers = feeds.iter().filter_map(|feed| feed.publication.as_ref());
    numbers.map(|publication| publication.number).collect()
}

#[test]
fn publisher_joining_during_an_offer_is_in_the_next_one() {
    let server = Server::new(ServerConfig::default()).expect("it can be made");
    let shared = server.0.clone();
    let negotiating = shared.create_peer(NOW, ([127, 0, 0, 1], 8889).into(), true);
    let negotiating = negotiating.expect("there is room");
    let mut subscriber = Subscriber::new(shared, JanusId::Number(7), String::new(), negotiating);
    let wants = |participant: u64| json!([{"feed": participant}]);
    let first = feed(1, 10);
    let both = json!([{"feed": 1}, {"feed": 2}]);
    let refused = subscribe(&mut subscriber, &first, &both);
    assert_eq!(refused, Err(code::NO_SUCH_FEED));
    assert!(subscriber.sections.is_empty() && subscriber.next_offer().is_none());
    assert_eq!(subscribe(&mut subscriber, &first, &wants(1)), Ok(()));
    let offer = sdp_of(subscriber.create_offer("attached"));
    // An invalid answer changes nothing.
    assert_eq!(answered(&mut subscriber, None), Err(code::INVALID_SDP));
    let wrong = answer(&offer).replace("a=ice-pwd", "a=nice-pwd");
    assert_eq!(
        answered(&mut subscriber, Some(&wrong)),
        Err(code::INVALID_SDP)
    );
    assert_eq!(answered(&mut subscriber, Some(&answer(&offer))), Ok(()));
    assert_eq!(plays(&subscriber), [10]);
    // The first publisher leaves, and another one joins before the subscriber has answered.
    subscriber.unsubscribe_departed(&BTreeMap::new());
    let offer = sdp_of(subscriber.next_offer().expect("something has changed"));
    assert!(offer.contains("a=inactive"), "{offer}");
    assert_eq!(subscribe(&mut subscriber, &feed(2, 11), &wants(2)), Ok(()));
    assert!(subscriber.next_offer().is_none() && subscriber.offer_pending);
    assert_eq!(answered(&mut subscriber, Some(&answer(&offer))), Ok(()));
    assert_eq!(plays(&subscriber), [10]);
    let event = subscriber.next_offer().expect("it was not offered yet");
    assert_eq!(event.0["streams"][0]["feed_id"], 2);
    let offer = sdp_of(event);
    assert_eq!(answered(&mut subscriber, Some(&answer(&offer))), Ok(()));
    assert_eq!(plays(&subscriber), [10, 11]);
    // The new track reuses the section of the first one, and there is nothing more to offer.
    assert!(subscriber.sections.len() == 1 && subscriber.next_offer().is_none());
}

#[test]
fn ended_subscriber_leaves_no_pending_state() {
    let server = Server::new(ServerConfig::default()).expect("it can be made");
    let shared = server.0.clone();
    let negotiating = shared.create_peer(NOW, ([127, 0, 0, 1], 8889).into(), true);
    let negotiating = negotiating.expect("there is room");
    let mut subscriber = Subscriber::new(
        shared.clone(),
        JanusId::Number(7),
        String::new(),
        negotiating,
    );
    assert_eq!(
        subscribe(&mut subscriber, &feed(1, 10), &json!([{"feed": 1}])),
        Ok(())
    );
    let offer = sdp_of(subscriber.create_offer("attached"));
    let gone = shared.registry().remove(&subscriber.id);
    assert!(gone.is_some());
    assert_eq!(
        answered(&mut subscriber, Some(&answer(&offer))),
        Err(code::UNKNOWN)
    );
    let number = subscriber.number;
    assert!(shared.rooms().take_changes(number).is_empty());
    assert!(shared.rooms().pending_answers.remove(&number).is_none());
    // A PeerConnection that never started leaves nothing behind either.
    let negotiating = shared.create_peer(NOW, ([127, 0, 0, 1], 8889).into(), true);
    let negotiating = negotiating.expect("there is room");
    let subscriber = Subscriber::new(
        shared.clone(),
        JanusId::Number(7),
        String::new(),
        negotiating,
    );
    shared
        .rooms()
        .add_changes(subscriber.number, vec![PlayChange::Stop(1)]);
    shared.purge_expired(NOW + CONNECTED_LATER);
    assert!(shared.rooms().has_nothing_pending());
}

/// Time after which a PeerConnection that has not started expires.
const CONNECTED_LATER: std::time::Duration = std::time::Duration::from_secs(60);

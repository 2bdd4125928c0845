//! Shared PeerConnection of a subscriber, and the videos that it receives.

use super::*;

/// Returns a client that receives only the video of the last speaker. 5 and 6 are in the room, and
/// 6 talks.
fn client_with_one_video() -> TestClient {
    let mut client = TestClient::in_room(ClientConfig {
        last_n: Some(1),
        ..config()
    });
    come(&mut client, &[5, 6]);
    client.attached(99);
    agree(&mut client, "attached");
    talk(&mut client, 6);
    assert_eq!(client.last()["body"]["request"], "update");
    client
}

fn come(client: &mut TestClient, ids: &[u64]) {
    let streams = json!([{"type": "video", "mid": "0"}, {"type": "audio", "mid": "1"}]);
    let all: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "streams": streams}))
        .collect();
    let came = json!({"videoroom": "event", "room": 1234, "publishers": all});
    client.room_says(ROOM_HANDLE, Value::Null, came, false);
}

fn talk(client: &mut TestClient, id: u64) {
    let talks = json!({"videoroom": "talking", "room": 1234, "id": id});
    client.room_says(ROOM_HANDLE, Value::Null, talks, false);
}

fn agree(client: &mut TestClient, how: &str) {
    let transaction = client.last_transaction();
    client.room_says(99, transaction, json!({"videoroom": how}), true);
    let Some(&SignallingAction::AnswerOffer { peer, .. }) = client.actions.last() else {
        panic!("{:?}", client.actions);
    };
    client.does(|janus, scope| janus.local_description(scope, peer, "v=0\r\n"));
    let transaction = client.last_transaction();
    let started = json!({"videoroom": "event", "started": "ok"});
    client.room_says(99, transaction, started, false);
}

fn refuse(client: &mut TestClient) {
    let transaction = client.last_transaction();
    let refused = json!({"videoroom": "event", "error_code": 428, "error": "No such feed"});
    client.room_says(99, transaction, refused, false);
}

#[test]
fn publisher_that_comes_while_a_speaker_leaves_is_received() {
    let mut client = client_with_one_video();
    // While 6 takes the place of 5, 7 comes and 5 talks. Both are requested together.
    come(&mut client, &[7]);
    talk(&mut client, 5);
    agree(&mut client, "updated");
    let asked = json!([{"feed": 7, "mid": "1"}, {"feed": 5, "mid": "0"}]);
    assert_eq!(client.last()["body"]["subscribe"], asked);
    // By then 5 has left.
    let before = client.requests.len();
    refuse(&mut client);
    let leaves = json!({"videoroom": "event", "room": 1234, "unpublished": 5});
    client.room_says(ROOM_HANDLE, Value::Null, leaves, false);
    let heard = json!({"feed": 7, "mid": "1"});
    let said = &client.requests[before..];
    let lists = said
        .iter()
        .flat_map(|said| [&said["body"]["streams"], &said["body"]["subscribe"]]);
    let mut streams = lists.filter_map(|list| list.as_array()).flatten();
    assert!(streams.any(|own| *own == heard), "{said:?}");
}

#[test]
fn refused_switch_has_no_delay() {
    let mut client = client_with_one_video();
    refuse(&mut client);
    let leaves = json!({"videoroom": "event", "room": 1234, "unpublished": 6});
    client.room_says(ROOM_HANDLE, Value::Null, leaves, false);
    // Janus removes the audio of the publisher that left, much later.
    client.now += Duration::from_secs(9);
    client.room_says(99, Value::Null, json!({"videoroom": "updated"}), true);
    let Some(&SignallingAction::AnswerOffer { peer, .. }) = client.actions.last() else {
        panic!("{:?}", client.actions);
    };
    client.does(|janus, scope| janus.local_description(scope, peer, "v=0\r\n"));
    let transaction = client.last_transaction();
    let started = json!({"videoroom": "event", "started": "ok"});
    client.room_says(99, transaction, started, false);
    let delays = client.recorder.histogram(m::SWITCH_DELAY);
    assert_eq!(delays.map_or(0, |delays| delays.count()), 0);
}

/// Returns the number of switched videos, the number of recorded delays, and the longest delay in
/// seconds.
fn switches(client: &TestClient) -> (u64, u64, u64) {
    let delays = client.recorder.histogram(m::SWITCH_DELAY);
    let switched = client.recorder.counter(m::VIDEO_SWITCHES);
    let most = |own: &measure::Histogram| own.max().unwrap_or(0) / 1_000_000_000;
    delays.map_or((switched, 0, 0), |own| (switched, own.count(), most(&own)))
}

/// Delivers an offer that Janus makes unsolicited or from its queue, and answers it.
fn offer(client: &mut TestClient) {
    client.room_says(99, Value::Null, json!({"videoroom": "updated"}), true);
    let Some(&SignallingAction::AnswerOffer { peer, .. }) = client.actions.last() else {
        panic!("{:?}", client.actions);
    };
    client.does(|janus, scope| janus.local_description(scope, peer, "v=0\r\n"));
}

fn start(client: &mut TestClient, transaction: Value) {
    let started = json!({"videoroom": "event", "started": "ok"});
    client.room_says(99, transaction, started, false);
}

#[test]
fn switch_ends_when_its_own_offer_is_answered() {
    let mut client = client_with_one_video();
    let update = client.last_transaction();
    // Janus made another offer before it received the request.
    client.now += Duration::from_secs(2);
    offer(&mut client);
    let other = client.last_transaction();
    let updating = json!({"videoroom": "updating", "room": 1234});
    client.room_says(99, update, updating, false);
    let said = client.requests.len();
    // A publisher that talks meanwhile is requested after the change.
    talk(&mut client, 5);
    start(&mut client, other);
    assert_eq!(
        (client.requests.len(), switches(&client)),
        (said, (0, 0, 0))
    );
    client.now += Duration::from_secs(3);
    offer(&mut client);
    let own = client.last_transaction();
    assert_eq!(switches(&client), (0, 0, 0));
    start(&mut client, own);
    assert_eq!(switches(&client), (1, 1, 5));
    assert_eq!(client.last()["body"]["request"], "update");
    assert_eq!(client.last()["body"]["subscribe"][0]["feed"], 5);
    // The next change is not queued.
    client.now += Duration::from_secs(1);
    agree(&mut client, "updated");
    assert_eq!(switches(&client), (2, 2, 5));
}

#[test]
fn earlier_offer_does_not_end_a_switch() {
    let mut client = client_with_one_video();
    let update = client.last_transaction();
    offer(&mut client);
    let other = client.last_transaction();
    start(&mut client, other);
    assert_eq!(switches(&client), (0, 0, 0));
    client.now += Duration::from_secs(1);
    // No change was needed.
    let updated = json!({"videoroom": "updated", "room": 1234});
    client.room_says(99, update, updated, false);
    assert_eq!(switches(&client), (0, 0, 0));
    talk(&mut client, 5);
    assert_eq!(client.last()["body"]["subscribe"][0]["feed"], 5);
}

#[test]
fn speaker_without_video_is_never_due() {
    let mut client = client_with_one_video();
    agree(&mut client, "updated");
    assert_eq!(switches(&client), (1, 1, 0));
    let sound = json!([{"type": "audio", "mid": "1"}]);
    let came = json!({"videoroom": "event", "publishers": [{"id": 7, "streams": sound}]});
    client.room_says(ROOM_HANDLE, Value::Null, came, false);
    agree(&mut client, "updated");
    let said = client.requests.len();
    talk(&mut client, 7);
    assert_eq!(client.requests.len(), said);
    client.now += Duration::from_secs(9);
    talk(&mut client, 5);
    agree(&mut client, "updated");
    assert_eq!(switches(&client), (2, 2, 0));
}

#[test]
fn free_place_is_filled_after_a_late_refusal() {
    let mut client = TestClient::in_room(ClientConfig {
        last_n: Some(2),
        ..config()
    });
    come(&mut client, &[5, 6, 7, 8]);
    client.attached(99);
    agree(&mut client, "attached");
    talk(&mut client, 7);
    // The speaker and one of those shown leave. Only 6 is shown until Janus reports that.
    for id in [7, 5] {
        let leaves = json!({"videoroom": "event", "room": 1234, "unpublished": id});
        client.room_says(ROOM_HANDLE, Value::Null, leaves, false);
    }
    refuse(&mut client);
    let body = json!({"request": "subscribe", "streams": [{"feed": 8, "mid": "0"}]});
    assert_eq!(client.last()["body"], body);
    // The request is not repeated.
    let said = client.requests.len();
    refuse(&mut client);
    assert_eq!((client.requests.len(), client.failure()), (said, None));
}

#[test]
fn video_of_the_speaker_replaces_another() {
    let mut client = TestClient::in_room(ClientConfig {
        last_n: Some(1),
        ..config()
    });
    let streams = json!([{"type": "video", "mid": "0"}, {"type": "audio", "mid": "1"}]);
    let both = json!([{"id": 5, "streams": streams}, {"id": 6, "streams": streams}]);
    let came = json!({"videoroom": "event", "room": 1234, "publishers": both});
    client.room_says(ROOM_HANDLE, Value::Null, came, false);
    client.attached(99);
    let first = json!([
        {"feed": 5, "mid": "1"}, {"feed": 6, "mid": "1"}, {"feed": 5, "mid": "0"},
    ]);
    assert_eq!(client.last()["body"]["streams"], first);
    agree(&mut client, "attached");
    let before = client.requests.len();
    let talks = |id: u64| json!({"videoroom": "talking", "room": 1234, "id": id});
    // One whose video is shown already, and one who is unknown.
    for id in [5, 9] {
        client.room_says(ROOM_HANDLE, Value::Null, talks(id), false);
    }
    assert_eq!(client.requests.len(), before);
    client.room_says(ROOM_HANDLE, Value::Null, talks(6), false);
    let body = json!({
        "request": "update",
        "subscribe": [{"feed": 6, "mid": "0"}],
        "unsubscribe": [{"feed": 5, "mid": "0"}],
    });
    assert_eq!(client.last()["body"], body);
    // Another publisher talks during the negotiation. Its video is shown afterwards.
    let asked = client.requests.len();
    client.room_says(ROOM_HANDLE, Value::Null, talks(5), false);
    assert_eq!(client.requests.len(), asked);
    agree(&mut client, "updated");
    let body = json!({
        "request": "update",
        "subscribe": [{"feed": 5, "mid": "0"}],
        "unsubscribe": [{"feed": 6, "mid": "0"}],
    });
    assert_eq!(client.last()["body"], body);
    // The speaker leaves, so the other video is shown again.
    agree(&mut client, "updated");
    let leaves = json!({"videoroom": "event", "room": 1234, "unpublished": 5});
    client.room_says(ROOM_HANDLE, Value::Null, leaves, false);
    let body = json!({"request": "subscribe", "streams": [{"feed": 6, "mid": "0"}]});
    assert_eq!(client.last()["body"], body);
    assert_eq!(client.failure(), None);
    assert_eq!(client.recorder.counter(m::VIDEO_SWITCHES), 2);
    let delays = client.recorder.histogram(m::SWITCH_DELAY);
    assert_eq!(delays.map(|delays| delays.count()), Some(2));
}

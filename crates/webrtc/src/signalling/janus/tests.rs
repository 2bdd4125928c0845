use std::collections::VecDeque;

use measure::units::TimeSpan;
use measure::{Catalogue, Recorder};
use serde_json::Value;

use super::room_config::RoomConfig;
use super::*;
use crate::config::Layer;
use crate::signalling::{Direction, FeedPorts};
use kit::media::source::SourceConfig;
use kit::metrics::{CLIENTS, ZAPPING};
use kit::websocket::{Reassembler, Received};

const GROUPS: &[&measure::Group] = &[
    &CLIENTS,
    &ZAPPING,
    &kit::viewer::VIEWERS,
    &kit::media::rtp::metrics::RTP,
    &m::WEBRTC,
];

/// Messages of Janus 1.1.2 about a mount point that is watched.
const WATCH: &str = include_str!("../../testdata/janus_watch.jsonl");
/// Messages of Janus 1.1.2 about a room that already exists.
const JOIN: &str = include_str!("../../testdata/janus_join.jsonl");

/// Client side, with its requests.
struct TestClient {
    janus: Janus,
    now: Time,
    recorder: Recorder,
    /// Requested actions other than sending.
    actions: Vec<SignallingAction>,
    requests: Vec<Value>,
    frames: Reassembler,
    /// Request for the WebSocket.
    upgrade_request: String,
}

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn config() -> ClientConfig {
    ClientConfig {
        request_timeout: TimeSpan(Duration::from_secs(5)),
        user_agent: String::new(),
        ..ClientConfig::default()
    }
}

fn room(number: u64) -> Resource {
    Resource::Room(JanusId::Number(number))
}

fn mount_point(number: u64) -> Resource {
    Resource::Mountpoint(JanusId::Number(number))
}

impl TestClient {
    /// Returns a client with an open WebSocket.
    fn new(config: ClientConfig, resource: Resource) -> TestClient {
        let url = url::Url {
            endpoint: websocket::parse_url("ws://10.77.0.1:8188/").expect("a URL"),
            long_poll: false,
            resource,
        };
        let mut client = TestClient {
            janus: Janus::new(config.into(), url, 7),
            now: ms(1),
            recorder: Recorder::new(Catalogue(GROUPS)),
            actions: Vec::new(),
            requests: Vec::new(),
            frames: Reassembler::default(),
            upgrade_request: String::new(),
        };
        client.does(|janus, scope| janus.begin(scope));
        let [SignallingAction::Connect(_, target)] = &client.actions[..] else {
            panic!("{:?}", client.actions);
        };
        assert_eq!(target.port, 8188);
        client.actions.clear();
        let mut request = Vec::new();
        {
            let mut actions = VecDeque::new();
            let mut scope = SignallingContext {
                now: client.now,
                recorder: &mut client.recorder,
                actions: &mut actions,
            };
            client.janus.connected(&mut scope, Connection::First);
            for action in actions {
                let SignallingAction::Send(Connection::First, bytes) = action else {
                    panic!("{action:?}");
                };
                request.extend(bytes);
            }
        }
        let mut acceptance = websocket::ServerHandshake::new(&[SUBPROTOCOL]);
        let answer = acceptance
            .read_request(&mut &request[..])
            .expect("a request");
        client.upgrade_request = String::from_utf8(request).expect("text");
        client.bytes(&answer.expect("it is whole"));
        client
    }

    fn does(&mut self, does: impl FnOnce(&mut Janus, &mut SignallingContext<'_>)) {
        let mut actions = VecDeque::new();
        let mut scope = SignallingContext {
            now: self.now,
            recorder: &mut self.recorder,
            actions: &mut actions,
        };
        does(&mut self.janus, &mut scope);
        for action in actions {
            let SignallingAction::Send(Connection::First, bytes) = action else {
                self.actions.push(action);
                continue;
            };
            let mut rest = &bytes[..];
            while let Some(item) = self.frames.next(true, &LIMITS, &mut rest).expect("frames") {
                if let Received::Message(frame) = item {
                    let body = frame.body.expect("it is kept");
                    self.requests
                        .push(serde_json::from_slice(body).expect("JSON"));
                }
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.does(|janus, scope| janus.bytes(scope, Connection::First, bytes));
    }

    /// Delivers a message of Janus.
    fn receive(&mut self, text: &str) {
        let mut frame = Vec::new();
        websocket::write_message(websocket::TEXT, text.as_bytes(), None, &mut frame);
        self.bytes(&frame);
    }

    fn receive_json(&mut self, value: Value) {
        self.receive(&value.to_string());
    }

    /// Returns the last request.
    fn last(&self) -> &Value {
        self.requests.last().expect("it said something")
    }

    fn last_transaction(&self) -> Value {
        self.last()["transaction"].clone()
    }

    fn failure(&self) -> Option<(Failure, &str)> {
        match self.actions.last() {
            Some(SignallingAction::Failed { failure, detail }) => Some((*failure, detail)),
            _ => None,
        }
    }

    /// Returns a client that has joined the room.
    fn in_room(config: ClientConfig) -> TestClient {
        let config = ClientConfig {
            room: Some(RoomConfig::default()),
            ..config
        };
        let mut client = TestClient::new(config, room(1234));
        JOIN.lines().for_each(|line| client.receive(line));
        client
    }

    /// Answers the last request, which attached a handle.
    fn attached(&mut self, handle: u64) {
        assert_eq!(self.last()["janus"], "attach");
        let transaction = self.last_transaction();
        self.receive_json(json!({
            "janus": "success", "transaction": transaction, "data": {"id": handle}
        }));
    }

    /// Delivers an event of the room.
    fn room_says(&mut self, handle: u64, transaction: Value, data: Value, offers: bool) {
        let mut message = json!({
            "janus": "event", "sender": handle,
            "plugindata": {"plugin": "janus.plugin.videoroom", "data": data},
        });
        if !transaction.is_null() {
            message["transaction"] = transaction;
        }
        if offers {
            message["jsep"] = json!({"type": "offer", "sdp": "v=0\r\n"});
        }
        self.receive_json(message);
    }
}

const ROOM_HANDLE: u64 = 3783219663756637;

#[test]
fn websocket_request_has_additional_fields() {
    let config = ClientConfig {
        user_agent: "me".to_owned(),
        headers: serde_json::from_str(r#"{"X-Key":"a"}"#).expect("fields"),
        ..config()
    };
    let request = TestClient::new(config, room(9)).upgrade_request;
    for field in [
        "User-Agent: me",
        "X-Key: a",
        "Sec-WebSocket-Protocol: janus-protocol",
    ] {
        let found = request.matches(&format!("\r\n{field}\r\n")).count();
        assert_eq!(found, 1, "{field} in {request}");
    }
}

#[test]
fn mount_point_is_watched_and_started() {
    let mut client = TestClient::new(config(), mount_point(1));
    WATCH.lines().for_each(|line| client.receive(line));
    let kinds: Vec<_> = client
        .requests
        .iter()
        .map(|said| said["janus"].clone())
        .collect();
    assert_eq!(kinds, ["create", "attach", "message"]);
    assert_eq!(
        client.requests[2]["body"],
        json!({"request": "watch", "id": 1})
    );
    let [SignallingAction::AnswerOffer { peer, offer }] = &client.actions[..] else {
        panic!("{:?}", client.actions);
    };
    assert!(offer.contains("a=ice-ufrag:Ca0a\r\n"));
    let peer = *peer;
    client.does(|janus, scope| janus.local_description(scope, peer, "v=0\r\n"));
    assert_eq!(client.last()["body"], json!({"request": "start"}));
    assert_eq!(client.last()["jsep"]["type"], "answer");
    let delays = client.recorder.histogram(m::OFFER_DELAY);
    assert_eq!(delays.expect("it is measured").count(), 1);
}

#[test]
fn mount_point_is_created_fed_and_destroyed() {
    let made = |ports: Value| {
        let mut client = TestClient::new(config(), mount_point(1));
        let media = |kind, codec: &str, payload_type| FeedStream {
            kind,
            codec: codec.to_owned(),
            payload_type,
            parameters: "x=1".to_owned(),
        };
        let media = vec![media("video", "H264", 96), media("audio", "opus", 111)];
        client.janus.set_fed_streams(media);
        WATCH.lines().take(3).for_each(|line| client.receive(line));
        let body = client.last()["body"].clone();
        assert_eq!(
            (&body["request"], &body["id"]),
            (&json!("create"), &json!(1))
        );
        let first = json!({
            "type": "video", "mid": "0", "port": 0, "rtcpport": 0, "pt": 96, "codec": "h264",
            "fmtp": "x=1",
        });
        assert_eq!(body["media"][0], first);
        let transaction = client.last_transaction();
        let data = json!({"streaming": "created", "stream": {"id": 1, "ports": ports}});
        client.receive_json(json!({
            "janus": "success", "sender": 684590207563262u64, "transaction": transaction,
            "plugindata": {"data": data},
        }));
        client
    };
    // In another order, and the audio without RTCP.
    let mut client = made(json!([
        {"type": "audio", "mid": "1", "port": 5002},
        {"type": "video", "mid": "0", "port": 5000, "rtcp_port": 5001},
    ]));
    let port = |media, control| FeedPorts { media, control };
    let ports = vec![port(5000, Some(5001)), port(5002, None)];
    assert_eq!(
        client.actions.last(),
        Some(&SignallingAction::FeedTo { ports })
    );
    assert!(!client.janus.expects_media());
    client.does(|janus, scope| janus.leave(scope));
    let [.., mount, session] = &client.requests[..] else {
        panic!("{:?}", client.requests);
    };
    assert_eq!(mount["body"], json!({"request": "destroy", "id": 1}));
    assert_eq!(session["janus"], "destroy");
    for ports in [
        json!(null),
        json!([{"mid": "0", "port": 5000}]),
        json!([{"mid": "0", "port": 5000}, {"mid": "1", "port": 70_000}]),
        json!([{"mid": "0", "port": 5000}, {"mid": "1", "port": 0}]),
    ] {
        let client = made(ports.clone());
        let failure = client.failure().map(|failure| failure.0);
        assert_eq!(failure, Some(Failure::MalformedJson), "{ports}");
    }
}

#[test]
fn errors_are_failures_with_a_reason() {
    for (code, failure) in [
        (456, Failure::Conflict),
        (457, Failure::Unauthorized),
        (458, Failure::OtherRefusal),
        (450, Failure::OtherRefusal),
    ] {
        let mut client = TestClient::new(config(), mount_point(77));
        WATCH.lines().take(3).for_each(|line| client.receive(line));
        let transaction = client.last_transaction();
        client.receive_json(json!({
            "janus": "event", "sender": 684590207563262u64, "transaction": transaction,
            "plugindata": {"data": {
                "streaming": "event", "error_code": code, "error": "No such mountpoint/stream 77"
            }},
        }));
        let (found, detail) = client.failure().expect("it failed");
        assert_eq!(found, failure);
        assert!(
            detail.contains("`watch`") && detail.contains("stream 77"),
            "{detail}"
        );
    }
    // The client asks for the list of mount points, and reports it.
    for (answer, words) in [
        (
            Some(json!({"list": [{"id": 1}, {"id": "two"}]})),
            "the server lists 1, two",
        ),
        (Some(json!({"list": []})), "the server lists none"),
        (
            Some(json!({"list": (0..12).map(|id| json!({"id": id})).collect::<Vec<_>>()})),
            "8, 9 and 2 more",
        ),
        (
            Some(json!({"list": [7, {"id": []}]})),
            "the server lists none",
        ),
        (
            Some(json!({"error_code": 450, "error": "no"})),
            "does not list",
        ),
        (None, "No such 77 (ws"),
    ] {
        let mut client = TestClient::new(config(), mount_point(77));
        WATCH.lines().take(3).for_each(|line| client.receive(line));
        let transaction = client.last_transaction();
        client.receive_json(json!({
            "janus": "event", "sender": 684590207563262u64, "transaction": transaction,
            "plugindata": {"data": {"error_code": 455, "error": "No such 77"}},
        }));
        assert_eq!(client.failure(), None);
        assert_eq!(client.last()["body"], json!({"request": "list"}));
        assert_eq!(client.recorder.counter(m::REFUSALS), 1);
        let transaction = client.last_transaction();
        match answer {
            Some(answer) => client.receive_json(json!({
                "janus": "success", "sender": 684590207563262u64, "transaction": transaction,
                "plugindata": {"data": answer},
            })),
            None => client.receive_json(json!({
                "janus": "error", "transaction": transaction,
                "error": {"code": 403, "reason": "no list for you"},
            })),
        }
        let (found, detail) = client.failure().expect("it failed");
        assert_eq!(found, Failure::NotFound);
        assert!(detail.contains("455 for `watch`: No such 77"), "{detail}");
        assert!(
            detail.contains(words) && detail.matches("455").count() == 1,
            "{detail}"
        );
    }
    let mut client = TestClient::new(config(), room(1234));
    client
        .receive(r#"{"janus":"error","transaction":"1","error":{"code":403,"reason":"no token"}}"#);
    assert_eq!(
        client.failure().map(|failure| failure.0),
        Some(Failure::Unauthorized)
    );
    assert!(client.actions.contains(&SignallingAction::Disconnect));
}

#[test]
fn missing_room_is_created_and_published_in() {
    let mut client = TestClient::in_room(ClientConfig {
        participate: Some(SourceConfig::default()),
        ..config()
    });
    assert_eq!(client.requests[2]["body"]["request"], "create");
    assert_eq!(client.requests[3]["body"]["request"], "join");
    let [SignallingAction::CreateOffer { peer, direction }] = client.actions[..] else {
        panic!("{:?}", client.actions);
    };
    assert_eq!(direction, Direction::Send);
    client.does(|janus, scope| janus.local_description(scope, peer, "v=0\r\n"));
    assert_eq!(client.last()["body"]["request"], "publish");
    assert_eq!(client.last()["jsep"]["type"], "offer");
    let transaction = client.last_transaction();
    client.receive_json(json!({
        "janus": "event", "sender": ROOM_HANDLE, "transaction": transaction,
        "plugindata": {"data": {"videoroom": "event", "configured": "ok"}},
        "jsep": {"type": "answer", "sdp": "v=0\r\n"},
    }));
    assert!(matches!(
        client.actions.last(),
        Some(SignallingAction::RemoteAnswer { .. })
    ));
    // No publisher is left in the room.
    client.does(|janus, scope| janus.leave(scope));
    let [.., room, session] = &client.requests[..] else {
        panic!("{:?}", client.requests);
    };
    assert_eq!(room["body"], json!({"request": "destroy", "room": 1234}));
    assert_eq!(session["janus"], "destroy");
    let transaction = client.last_transaction();
    client.receive_json(json!({"janus": "success", "transaction": transaction}));
    assert_eq!(client.actions.last(), Some(&SignallingAction::Left));
}

#[test]
fn publisher_that_comes_during_a_change_is_requested_later() {
    let mut client = TestClient::in_room(config());
    let feeds = |ids: &[u64]| -> Value {
        let all: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
        json!({"videoroom": "event", "room": 1234, "publishers": all})
    };
    client.room_says(ROOM_HANDLE, Value::Null, feeds(&[5, 6]), false);
    client.attached(99);
    assert_eq!(
        client.last()["body"]["streams"],
        json!([{"feed": 5}, {"feed": 6}])
    );
    assert_eq!(client.last()["body"]["ptype"], "subscriber");
    assert_eq!(client.last()["body"]["private_id"], 1516492696);
    let transaction = client.last_transaction();
    client.room_says(99, transaction, json!({"videoroom": "attached"}), true);
    let Some(&SignallingAction::AnswerOffer { peer, .. }) = client.actions.last() else {
        panic!("{:?}", client.actions);
    };
    // A known publisher, the client itself, and a new publisher.
    client.room_says(
        ROOM_HANDLE,
        Value::Null,
        feeds(&[6, 8706306606338763, 7]),
        false,
    );
    client.does(|janus, scope| janus.local_description(scope, peer, "v=0\r\n"));
    assert_eq!(client.last()["body"]["request"], "start");
    let before = client.requests.len();
    let transaction = client.last_transaction();
    client.room_says(
        99,
        transaction,
        json!({"videoroom": "event", "started": "ok"}),
        false,
    );
    assert_eq!(client.requests.len(), before + 1);
    let body = json!({"request": "subscribe", "streams": [{"feed": 7}]});
    assert_eq!(client.last()["body"], body);
    // The new publisher leaves before it is received.
    let transaction = client.last_transaction();
    let refused = json!({"videoroom": "event", "error_code": 428, "error": "No such feed"});
    client.room_says(99, transaction, refused, false);
    assert_eq!(client.failure(), None);
}

#[test]
fn if_one_of_many_has_left_others_are_requested_one_by_one() {
    let mut client = TestClient::in_room(ClientConfig {
        layer: Some(Layer::Low),
        ..config()
    });
    let three = json!([{"id": 5}, {"id": 6}, {"id": 7}]);
    let came = json!({"videoroom": "event", "room": 1234, "publishers": three});
    client.room_says(ROOM_HANDLE, Value::Null, came, false);
    client.attached(99);
    let refused = json!({"videoroom": "event", "error_code": 428, "error": "No such feed (6)"});
    let mut asked = Vec::new();
    for answer in 0..4 {
        let body = &client.last()["body"];
        assert_eq!(body["request"], "join", "the handle has not joined yet");
        let streams = body["streams"].as_array().expect("they are asked for");
        asked.push(
            streams
                .iter()
                .map(|own| own["feed"].as_u64())
                .collect::<Vec<_>>(),
        );
        assert!(streams.iter().all(|own| own["substream"] == 0));
        let transaction = client.last_transaction();
        if answer == 1 {
            break;
        }
        client.room_says(99, transaction, refused.clone(), false);
    }
    assert_eq!(asked, [vec![Some(5), Some(6), Some(7)], vec![Some(5)]]);
    // The first publisher is received. Both requests for the others are refused.
    let transaction = client.last_transaction();
    client.room_says(99, transaction, json!({"videoroom": "attached"}), true);
    let Some(&SignallingAction::AnswerOffer { peer, .. }) = client.actions.last() else {
        panic!("{:?}", client.actions);
    };
    client.does(|janus, scope| janus.local_description(scope, peer, "v=0\r\n"));
    let transaction = client.last_transaction();
    let started = json!({"videoroom": "event", "started": "ok"});
    client.room_says(99, transaction, started, false);
    for id in [6, 7] {
        let body = json!({"request": "subscribe", "streams": [{"feed": id, "substream": 0}]});
        assert_eq!(client.last()["body"], body);
        let transaction = client.last_transaction();
        client.room_says(99, transaction, refused.clone(), false);
    }
    assert_eq!(client.failure(), None);
}

#[test]
fn each_publisher_has_its_own_handle_until_it_leaves() {
    let mut client = TestClient::in_room(ClientConfig {
        subscribe: Subscribe::Each,
        ..config()
    });
    let one = json!({"videoroom": "event", "publishers": [{"id": 5}]});
    client.room_says(ROOM_HANDLE, Value::Null, one, false);
    client.attached(50);
    let transaction = client.last_transaction();
    client.room_says(50, transaction, json!({"videoroom": "attached"}), true);
    assert!(matches!(
        client.actions.last(),
        Some(SignallingAction::AnswerOffer {
            peer: PeerNumber(1),
            ..
        })
    ));
    let leaves = json!({"videoroom": "event", "leaving": 5});
    client.room_says(ROOM_HANDLE, Value::Null, leaves, false);
    assert_eq!(client.last()["janus"], "detach");
    assert_eq!(
        client.actions.last(),
        Some(&SignallingAction::DropPeer {
            peer: PeerNumber(1)
        })
    );
}

#[test]
fn session_is_kept_alive_and_fails_without_an_answer() {
    let mut client = TestClient::in_room(config());
    assert_eq!(client.janus.awaited(), None);
    let due = client.janus.deadline().expect("a sign of life is due");
    assert_eq!(due, ms(1) + KEEPALIVE_INTERVAL);
    client.now = due;
    client.does(|janus, scope| janus.handle_due(scope));
    assert_eq!(client.last()["janus"], "keepalive");
    let transaction = client.last_transaction();
    client.receive_json(json!({"janus": "ack", "transaction": transaction}));
    client.now = due + KEEPALIVE_INTERVAL;
    client.does(|janus, scope| janus.handle_due(scope));
    client.now += Duration::from_secs(5);
    assert_eq!(client.janus.deadline(), Some(client.now));
    client.does(|janus, scope| janus.handle_due(scope));
    let (failure, detail) = client.failure().expect("it failed");
    assert_eq!(failure, Failure::RequestTimeout);
    assert!(detail.contains("`keepalive` within 5.000 s"), "{detail}");
}

#[test]
fn parts_of_the_wrong_type_are_ignored() {
    for part in ["5", "[]", "\"a\"", "null", "{\"data\":7}"] {
        for kind in [
            "event", "success", "error", "media", "slowlink", "trickle", "hangup",
        ] {
            let text = format!(
                "{{\"janus\":\"{kind}\",\"transaction\":\"1\",\"plugindata\":{part},\"data\":{part},\
                 \"error\":{part},\"candidate\":{part},\"sender\":{part}}}"
            );
            let mut client = TestClient::new(config(), room(1234));
            client.receive(&text);
            assert!(JanusMessage::parse(text.as_bytes()).is_ok(), "{text}");
        }
    }
}

#[test]
fn malformed_and_oversized_messages_fail() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for text in ["", "{", "[]", r#"{"a":1}"#, deep.as_str(), r#"{"janus":7}"#] {
        let mut client = TestClient::new(config(), room(1234));
        client.receive(text);
        let failure = client.failure().map(|failure| failure.0);
        assert_eq!(failure, Some(Failure::MalformedJson), "{:.20}", text);
    }
    let mut client = TestClient::new(config(), room(1234));
    let mut header = Vec::new();
    websocket::write_header(websocket::TEXT, LIMITS.keep_max + 1, None, &mut header);
    client.bytes(&header);
    assert_eq!(
        client.failure().map(|failure| failure.0),
        Some(Failure::MalformedMessage)
    );
}

#[test]
fn timeout_and_hang_up_fail_the_client() {
    let mut client = TestClient::in_room(config());
    client.receive(r#"{"janus":"timeout","session_id":789594799619525}"#);
    assert_eq!(
        client.failure().map(|failure| failure.0),
        Some(Failure::SessionTimeout)
    );
    let mut client = TestClient::in_room(config());
    client.receive_json(json!({"janus": "hangup", "sender": ROOM_HANDLE, "reason": "ICE failed"}));
    let (failure, detail) = client.failure().expect("it failed");
    assert_eq!(failure, Failure::HungUp);
    assert!(detail.starts_with("ICE failed"), "{detail}");
}

#[test]
fn uplink_of_janus_is_the_downlink_of_the_client() {
    let mut client = TestClient::in_room(config());
    for (uplink, lost) in [(true, 5), (true, 6), (false, 7)] {
        client.receive_json(json!({
            "janus": "slowlink", "sender": ROOM_HANDLE, "media": "video", "uplink": uplink,
            "lost": lost,
        }));
    }
    let counters = [m::SLOW_DOWNLINKS, m::SLOW_UPLINKS, m::SLOW_LINK_LOST];
    let counts = counters.map(|counter| client.recorder.counter(counter));
    assert_eq!(counts, [2, 1, 18]);
}

#[test]
fn trickled_candidates_follow_the_answer() {
    let config = ClientConfig {
        trickle: true,
        ..config()
    };
    let mut client = TestClient::new(config, mount_point(1));
    WATCH.lines().for_each(|line| client.receive(line));
    let sdp =
        "v=0\r\na=mid:v\r\na=candidate:1 1 udp 1 10.0.0.1 9 typ host\r\na=end-of-candidates\r\n";
    client.does(|janus, scope| janus.local_description(scope, PeerNumber(0), sdp));
    let [.., start, candidate, end] = &client.requests[..] else {
        panic!("{:?}", client.requests);
    };
    assert_eq!(start["jsep"]["sdp"], "v=0\r\na=mid:v\r\n");
    assert_eq!(
        candidate["candidate"]["candidate"],
        "candidate:1 1 udp 1 10.0.0.1 9 typ host"
    );
    assert_eq!(candidate["candidate"]["sdpMid"], "v");
    assert_eq!(end["candidate"], json!({"completed": true}));
}

#[test]
fn room_with_other_publishers_is_not_destroyed() {
    let mut client = TestClient::in_room(config());
    let one = json!({"videoroom": "event", "publishers": [{"id": 5}]});
    client.room_says(ROOM_HANDLE, Value::Null, one, false);
    client.does(|janus, scope| janus.leave(scope));
    let destroyed = |said: &Value| said["body"]["request"] == "destroy";
    assert!(
        !client.requests.iter().any(destroyed),
        "{:?}",
        client.requests
    );
}

mod shared_subscription;

//! Client of a room over HTTP, and its failures.

use std::collections::VecDeque;

use measure::units::TimeSpan;
use measure::{Catalogue, Recorder};

use super::*;
use crate::metrics as m;
use crate::signalling::{Signalling, SignallingTarget};
use crate::url::{JanusId, Resource};
use kit::metrics::{CLIENTS, ZAPPING};

const GROUPS: &[&measure::Group] = &[
    &CLIENTS,
    &ZAPPING,
    &kit::viewer::VIEWERS,
    &kit::media::rtp::metrics::RTP,
    &m::WEBRTC,
];

const START: Time = Time::from_nanos(1_000_000_000);

/// Client, with its requested actions.
struct TestClient {
    janus: Janus,
    now: Time,
    recorder: Recorder,
    actions: VecDeque<SignallingAction>,
}

impl TestClient {
    fn new() -> TestClient {
        let config = ClientConfig {
            request_timeout: TimeSpan(Duration::from_secs(5)),
            token: Some("a b".to_owned()),
            user_agent: "me".to_owned(),
            headers: serde_json::from_str(r#"{"X-Key":"a"}"#).expect("fields"),
            ..ClientConfig::default()
        };
        let url = crate::url::Url {
            endpoint: Url::parse("http://h:8088/janus").expect("a URL"),
            long_poll: true,
            resource: Resource::Room(JanusId::Number(9)),
        };
        TestClient {
            janus: Janus::new(config.into(), url, 7),
            now: START,
            recorder: Recorder::new(Catalogue(GROUPS)),
            actions: VecDeque::new(),
        }
    }

    fn does(&mut self, does: impl FnOnce(&mut Janus, &mut SignallingContext<'_>)) {
        let mut scope = SignallingContext {
            now: self.now,
            recorder: &mut self.recorder,
            actions: &mut self.actions,
        };
        does(&mut self.janus, &mut scope);
    }

    /// Returns the next action.
    fn next(&mut self) -> SignallingAction {
        self.actions.pop_front().expect("it wants something")
    }

    /// Returns the first line and the body of the next POST.
    fn next_post(&mut self) -> (String, Value) {
        let SignallingAction::Send(Connection::First, bytes) = self.next() else {
            panic!("it asks nothing");
        };
        let text = String::from_utf8(bytes).expect("it is text");
        let (head, body) = text.split_once("\r\n\r\n").expect("it is whole");
        assert!(head.contains("\r\nX-Key: a"), "{head}");
        let line = head.lines().next().expect("it is there").to_owned();
        (line, serde_json::from_str(body).expect("it is JSON"))
    }

    fn next_poll(&mut self) -> String {
        let SignallingAction::Send(Connection::Second, bytes) = self.next() else {
            panic!("it does not wait for events");
        };
        let text = String::from_utf8(bytes).expect("it is text");
        assert!(text.contains("\r\nX-Key: a\r\n"), "{text}");
        text.lines().next().expect("it is there").to_owned()
    }

    /// Answers a POST, in pieces.
    fn answer(&mut self, status: &str, body: &str) {
        let length = body.len();
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
        for piece in text.as_bytes().chunks(7) {
            self.does(|janus, scope| janus.bytes(scope, Connection::First, piece));
        }
    }

    /// Answers the pending GET.
    fn receive(&mut self, body: &str) {
        let length = body.len();
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        self.does(|janus, scope| janus.bytes(scope, Connection::Second, text.as_bytes()));
    }

    /// Returns a client with a session, which waits for events and has requested a handle.
    fn in_session() -> TestClient {
        let mut client = TestClient::new();
        client.does(|janus, scope| janus.begin(scope));
        let to = |action| match action {
            SignallingAction::Connect(_, target) => target,
            action => panic!("{action:?}"),
        };
        let target = SignallingTarget {
            host: "h".to_owned(),
            port: 8088,
            secure: false,
        };
        assert_eq!(to(client.next()), target);
        client.does(|janus, scope| janus.connected(scope, Connection::First));
        let (line, asked) = client.next_post();
        assert_eq!(line, "POST /janus HTTP/1.1");
        assert_eq!(
            (&asked["janus"], &asked["token"]),
            (&json!("create"), &json!("a b"))
        );
        client.answer(
            "200 OK",
            r#"{"janus":"success","transaction":"1","data":{"id":5}}"#,
        );
        let (line, asked) = {
            // The handle is requested on the first connection, and events on a second one.
            let second = client
                .actions
                .iter()
                .position(|own| matches!(own, SignallingAction::Connect(Connection::Second, _)));
            let second = client
                .actions
                .remove(second.expect("it is wanted"))
                .expect("it is there");
            assert_eq!(to(second), target);
            client.next_post()
        };
        assert_eq!(
            (&*line, &asked["janus"]),
            ("POST /janus/5 HTTP/1.1", &json!("attach"))
        );
        client.does(|janus, scope| janus.connected(scope, Connection::Second));
        assert_eq!(
            client.next_poll(),
            "GET /janus/5?maxev=10&rid=1&token=a%20b HTTP/1.1"
        );
        assert!(client.actions.is_empty());
        client
    }

    fn failure(&self) -> Option<Failure> {
        match self.actions.back() {
            Some(SignallingAction::Failed { failure, .. }) => Some(*failure),
            _ => None,
        }
    }
}

#[test]
fn client_requests_by_post_and_gets_events_until_it_left() {
    let mut client = TestClient::in_session();
    client.answer(
        "200 OK",
        r#"{"janus":"success","transaction":"2","data":{"id":6}}"#,
    );
    let (line, asked) = client.next_post();
    assert_eq!(line, "POST /janus/5/6 HTTP/1.1");
    assert_eq!(asked["body"]["request"], json!("join"));
    client.answer(
        "200 OK",
        r#"{"janus":"ack","session_id":5,"transaction":"3"}"#,
    );
    // First no event, then several at once.
    client.receive(r#"{"janus":"keepalive"}"#);
    assert_eq!(
        client.next_poll(),
        "GET /janus/5?maxev=10&rid=2&token=a%20b HTTP/1.1"
    );
    client.receive(
        r#"[{"janus":"webrtcup","session_id":5,"sender":6},
            {"janus":"event","session_id":5,"sender":6,"transaction":"3","plugindata":{"data":
             {"videoroom":"joined","room":9,"id":1,"private_id":2,"publishers":[]}}}]"#,
    );
    assert_eq!(
        client.next_poll(),
        "GET /janus/5?maxev=10&rid=3&token=a%20b HTTP/1.1"
    );
    assert!(
        client
            .janus
            .deadline()
            .is_some_and(|due| due == START + Duration::from_secs(35))
    );
    // Janus closes the first connection meanwhile, so the next request uses another one.
    client.does(|janus, scope| janus.closed(scope, Connection::First, CloseReason::End));
    assert!(client.actions.is_empty());
    client.does(|janus, scope| janus.leave(scope));
    assert!(matches!(
        client.next(),
        SignallingAction::Connect(Connection::First, _)
    ));
    client.does(|janus, scope| janus.connected(scope, Connection::First));
    let (line, asked) = client.next_post();
    assert_eq!(
        (&*line, &asked["janus"]),
        ("POST /janus/5 HTTP/1.1", &json!("destroy"))
    );
    // The pending GET of a session that ends is answered with an error.
    client.receive(r#"{"janus":"error","error":{"code":458,"reason":"No such session"}}"#);
    assert!(client.actions.is_empty());
    client.answer(
        "200 OK",
        r#"{"janus":"success","session_id":5,"transaction":"4"}"#,
    );
    assert_eq!(client.next(), SignallingAction::Disconnect);
    assert_eq!(client.next(), SignallingAction::Left);
}

#[test]
fn bad_answers_are_failures_with_a_reason() {
    for (status, body, failure) in [
        ("404 Not Found", "nobody", Failure::NotFound),
        ("503 Busy", "", Failure::Overloaded),
        ("503 Busy", r#"{"error":"no backend"}"#, Failure::Overloaded),
        ("200 OK", "<html>", Failure::MalformedJson),
        ("200 OK", "7", Failure::MalformedJson),
        ("200 OK", "[7]", Failure::MalformedJson),
        (
            "403 Forbidden",
            r#"{"janus":"error","transaction":"2","error":{"code":403,"reason":"no"}}"#,
            Failure::Unauthorized,
        ),
    ] {
        let mut client = TestClient::in_session();
        client.answer(status, body);
        assert_eq!(client.failure(), Some(failure), "{status} {body}");
    }
    let mut client = TestClient::in_session();
    client.does(|janus, scope| janus.bytes(scope, Connection::First, b"SSH-2.0-x\r\n\r\n"));
    assert_eq!(client.failure(), Some(Failure::NotHttp));
}

#[test]
fn endless_answer_fails() {
    let mut client = TestClient::in_session();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n";
    client.does(|janus, scope| janus.bytes(scope, Connection::Second, head));
    for _ in 0..700 {
        if client.failure().is_none() {
            client.does(|janus, scope| janus.bytes(scope, Connection::Second, &[b' '; 8192]));
        }
    }
    assert_eq!(client.failure(), Some(Failure::MalformedResponse));
}

#[test]
fn overdue_and_truncated_polls_fail() {
    let mut client = TestClient::in_session();
    client.answer(
        "200 OK",
        r#"{"janus":"success","transaction":"2","data":{"id":6}}"#,
    );
    client.answer(
        "200 OK",
        r#"{"janus":"ack","session_id":5,"transaction":"3"}"#,
    );
    client.receive(r#"{"janus":"event","sender":6,"transaction":"3","plugindata":{"data":{}}}"#);
    client.actions.clear();
    client.now += Duration::from_secs(34);
    client.does(|janus, scope| janus.handle_due(scope));
    assert_eq!(client.failure(), None);
    client.now += Duration::from_secs(1);
    client.does(|janus, scope| janus.handle_due(scope));
    assert_eq!(client.failure(), Some(Failure::RequestTimeout));

    let mut client = TestClient::in_session();
    client.does(|janus, scope| {
        janus.bytes(scope, Connection::Second, b"HTTP/1.1 200 OK\r\n");
        janus.closed(scope, Connection::Second, CloseReason::Reset);
    });
    assert_eq!(client.failure(), Some(Failure::SignallingClosed));
}

#[test]
fn request_lost_with_its_connection_is_repeated() {
    // The connection for events, even if it was not in use before.
    let mut client = TestClient::in_session();
    for how in [CloseReason::Reset, CloseReason::End] {
        client.does(|janus, scope| janus.closed(scope, Connection::Second, how));
        if how == CloseReason::Reset {
            assert!(matches!(
                client.next(),
                SignallingAction::Connect(Connection::Second, _)
            ));
            client.does(|janus, scope| janus.connected(scope, Connection::Second));
            assert_eq!(
                client.next_poll(),
                "GET /janus/5?maxev=10&rid=1&token=a%20b HTTP/1.1",
                "the same request"
            );
        }
    }
    assert_eq!(client.failure(), Some(Failure::SignallingClosed), "once");

    // A GET is repeated as often as a proxy ends its connection after a long wait, and may be
    // pending for the full time again.
    let mut client = TestClient::in_session();
    let attached = r#"{"janus":"success","transaction":"2","data":{"id":6}}"#;
    client.answer("200 OK", attached);
    client.answer("200 OK", r#"{"janus":"ack","transaction":"3"}"#);
    let joined = r#"{"videoroom":"joined","id":1,"publishers":[]}"#;
    client.receive(&format!(
        r#"{{"janus":"event","sender":6,"transaction":"3","plugindata":{{"data":{joined}}}}}"#
    ));
    client.actions.clear();
    for _ in 0..3 {
        client.now += Duration::from_secs(20);
        client.does(|janus, scope| janus.handle_due(scope));
        // An answer that nobody awaits changes nothing.
        client.answer("200 OK", r#"{"janus":"ack"}"#);
        client.actions.clear();
        client.does(|janus, scope| janus.closed(scope, Connection::Second, CloseReason::End));
        assert!(matches!(
            client.next(),
            SignallingAction::Connect(Connection::Second, _)
        ));
        client.does(|janus, scope| janus.connected(scope, Connection::Second));
        assert!(client.next_poll().contains("rid=2&"), "the same request");
    }
    assert_eq!(client.recorder.counter(m::REQUESTS_AGAIN), 3);
    client.now += POLL_DURATION_MIN - Duration::from_nanos(1);
    client.does(|janus, scope| janus.closed(scope, Connection::Second, CloseReason::End));
    assert_eq!(
        client.failure(),
        Some(Failure::SignallingClosed),
        "too soon"
    );

    // A connection that was in use: it ended while a request was on its way.
    let mut client = TestClient::in_session();
    client.does(|janus, scope| janus.closed(scope, Connection::First, CloseReason::End));
    assert!(matches!(
        client.next(),
        SignallingAction::Connect(Connection::First, _)
    ));
    client.does(|janus, scope| janus.connected(scope, Connection::First));
    let (line, asked) = client.next_post();
    assert_eq!(
        (&*line, &asked["janus"]),
        ("POST /janus/5 HTTP/1.1", &json!("attach"))
    );
    assert_eq!(client.recorder.counter(m::REQUESTS_AGAIN), 1);
    // A connection that was not in use: the server refuses the request.
    client.does(|janus, scope| janus.closed(scope, Connection::First, CloseReason::End));
    assert_eq!(client.failure(), Some(Failure::SignallingClosed));
}

#[test]
fn connection_that_ends_with_an_answer_is_replaced() {
    let heads = [
        "HTTP/1.1 200 OK\r\nConnection: close",
        "HTTP/1.0 200 OK",
        "HTTP/1.1 200 OK\r\nConnection: foo, Close",
    ];
    for head in heads {
        let mut client = TestClient::in_session();
        let body = r#"{"janus":"success","transaction":"2","data":{"id":6}}"#;
        let text = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.does(|janus, scope| janus.bytes(scope, Connection::First, text.as_bytes()));
        assert!(
            matches!(
                client.next(),
                SignallingAction::Connect(Connection::First, _)
            ),
            "{head}"
        );
        client.does(|janus, scope| janus.connected(scope, Connection::First));
        let (line, asked) = client.next_post();
        assert_eq!(line, "POST /janus/5/6 HTTP/1.1");
        assert_eq!(asked["body"]["request"], json!("join"));
        assert_eq!(client.failure(), None);
    }
}

#[test]
fn request_time_out_starts_when_the_request_is_sent() {
    let mut client = TestClient::in_session();
    // The client leaves while the handle is still requested, so its `destroy` is queued.
    client.now += Duration::from_secs(4);
    client.does(|janus, scope| janus.leave(scope));
    assert!(client.actions.is_empty());
    let due = |client: &TestClient| client.janus.deadline();
    assert_eq!(due(&client), Some(START + Duration::from_secs(5)));
    let asked = client.recorder.counter(m::REQUESTS);
    client.answer(
        "200 OK",
        r#"{"janus":"success","transaction":"2","data":{"id":6}}"#,
    );
    let (_, request) = client.next_post();
    assert_eq!(request["janus"], json!("destroy"));
    assert_eq!(due(&client), Some(client.now + Duration::from_secs(5)));
    assert_eq!(client.recorder.counter(m::REQUESTS), asked + 1);
}

#[test]
fn answer_with_events_is_limited_to_the_length_of_ten_messages() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n";
    let mut client = TestClient::in_session();
    client.does(|janus, scope| janus.bytes(scope, Connection::Second, head));
    for _ in 0..EVENTS_MAX {
        client.does(|janus, scope| {
            janus.bytes(scope, Connection::Second, &vec![b' '; LIMITS.keep_max])
        });
    }
    assert_eq!(client.failure(), None);
    client.does(|janus, scope| janus.bytes(scope, Connection::Second, b" "));
    assert_eq!(client.failure(), Some(Failure::MalformedResponse));
}

#[test]
fn next_poll_uses_the_connection_if_it_is_kept_alive() {
    for (head, keeps) in [
        ("HTTP/1.1 200 OK", true),
        ("HTTP/1.1 200 OK\r\nConnection: Close", false),
        ("HTTP/1.0 200 OK", false),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive", true),
        ("HTTP/1.0 200 OK\r\nConnection: x, close, keep-alive", false),
    ] {
        let mut client = TestClient::in_session();
        client.actions.clear();
        let body = r#"{"janus":"keepalive"}"#;
        let text = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.does(|janus, scope| janus.bytes(scope, Connection::Second, text.as_bytes()));
        if !keeps {
            assert!(
                matches!(
                    client.next(),
                    SignallingAction::Connect(Connection::Second, _)
                ),
                "{head}"
            );
            client.does(|janus, scope| janus.connected(scope, Connection::Second));
        }
        assert!(client.next_poll().contains("rid=2&"), "{head}");
        assert_eq!(client.recorder.counter(m::REQUESTS_AGAIN), 0, "{head}");
    }
}

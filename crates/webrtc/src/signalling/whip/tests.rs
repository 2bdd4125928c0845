use std::collections::VecDeque;
use std::time::Duration;

use measure::units::TimeSpan;
use measure::{Catalogue, Recorder};

use super::*;
use kit::metrics::{CLIENTS, ZAPPING};

const GROUPS: &[&measure::Group] = &[
    &CLIENTS,
    &ZAPPING,
    &kit::viewer::VIEWERS,
    &kit::media::rtp::metrics::RTP,
    &m::WEBRTC,
];

/// Answers of MediaMTX to an offer: with a stream, and while nobody publishes.
const CREATED: &str = include_str!("../../testdata/mediamtx_created.http");
const NOT_FOUND: &str = include_str!("../../testdata/mediamtx_not_found.http");

const OFFER: &str = "v=0\r\na=ice-ufrag:u\r\na=ice-pwd:p\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
                     a=mid:0\r\na=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\n\
                     a=end-of-candidates\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\n\
                     a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\na=end-of-candidates\r\n";

/// Client side, with its requested actions.
struct TestClient {
    whip: Whip,
    now: Time,
    recorder: Recorder,
    actions: VecDeque<SignallingAction>,
}

fn config() -> ClientConfig {
    ClientConfig {
        request_timeout: TimeSpan(Duration::from_secs(5)),
        user_agent: "streamgauge".to_owned(),
        ..ClientConfig::default()
    }
}

impl TestClient {
    fn new(config: ClientConfig) -> TestClient {
        let url = Url::parse("http://u:secret@127.0.0.1:8889/live/whep").expect("a URL");
        let mut client = TestClient {
            whip: Whip::new(config.into(), url, Direction::Receive),
            now: Time::from_nanos(1),
            recorder: Recorder::new(Catalogue(GROUPS)),
            actions: VecDeque::new(),
        };
        client.does(|whip, scope| whip.begin(scope));
        let connect = client.actions.pop_front();
        assert!(matches!(
            connect,
            Some(SignallingAction::Connect(
                Connection::First,
                SignallingTarget { port: 8889, .. }
            ))
        ));
        client.does(|whip, scope| whip.connected(scope, Connection::First));
        let offer = client.actions.pop_front();
        assert!(matches!(
            offer,
            Some(SignallingAction::CreateOffer { peer: PEER, .. })
        ));
        client
    }

    /// Returns a client that has posted its offer, and the request.
    fn posted(config: ClientConfig) -> (TestClient, String) {
        let mut client = TestClient::new(config);
        client.does(|whip, scope| whip.local_description(scope, PEER, OFFER));
        let request = client.sent();
        (client, request)
    }

    fn does(&mut self, does: impl FnOnce(&mut Whip, &mut SignallingContext<'_>)) {
        let mut scope = SignallingContext {
            now: self.now,
            recorder: &mut self.recorder,
            actions: &mut self.actions,
        };
        does(&mut self.whip, &mut scope);
    }

    fn receive(&mut self, text: &str) {
        self.does(|whip, scope| whip.bytes(scope, Connection::First, text.as_bytes()));
    }

    /// Returns the text that the client sends next.
    fn sent(&mut self) -> String {
        match self.actions.pop_front() {
            Some(SignallingAction::Send(Connection::First, bytes)) => {
                String::from_utf8(bytes).expect("text")
            }
            other => panic!("{other:?}"),
        }
    }

    fn failure(&self) -> Option<(Failure, &str)> {
        match self.actions.back() {
            Some(SignallingAction::Failed { failure, detail }) => Some((*failure, detail)),
            _ => None,
        }
    }
}

#[test]
fn session_is_posted_answered_and_deleted() {
    let (mut client, request) = TestClient::posted(config());
    assert!(request.starts_with("POST /live/whep HTTP/1.1\r\nHost: 127.0.0.1:8889\r\n"));
    assert!(request.contains("\r\nContent-Type: application/sdp\r\n"));
    assert!(request.contains("\r\nAuthorization: Basic dTpzZWNyZXQ=\r\n"));
    assert!(request.ends_with(OFFER));
    // In pieces that are cut anywhere.
    for piece in CREATED.as_bytes().chunks(7) {
        client.does(|whip, scope| whip.bytes(scope, Connection::First, piece));
    }
    let Some(SignallingAction::RemoteAnswer { peer: PEER, answer }) = client.actions.pop_front()
    else {
        panic!("{:?}", client.actions);
    };
    assert!(answer.starts_with("v=0\r\n") && answer.contains("a=fingerprint:sha-256 "));
    assert_eq!(
        client.actions.pop_front(),
        Some(SignallingAction::Disconnect)
    );
    assert_eq!(
        (client.whip.deadline(), client.whip.awaited()),
        (None, None)
    );

    client.does(|whip, scope| whip.leave(scope));
    assert!(matches!(
        client.actions.pop_front(),
        Some(SignallingAction::Connect(Connection::First, _))
    ));
    client.does(|whip, scope| whip.connected(scope, Connection::First));
    let request = client.sent();
    assert!(request.starts_with("DELETE /live/whep/"), "{request}");
    assert!(!request.contains("Content-Type"));
    client.receive("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(
        client.actions,
        [SignallingAction::Disconnect, SignallingAction::Left]
    );
    assert_eq!(client.recorder.counter(m::REQUESTS), 2);
    assert_eq!(client.recorder.counter(m::RESPONSES), 2);
    assert_eq!(client.recorder.counter(m::REFUSALS), 0);
}

#[test]
fn refusals_are_failures_with_the_servers_words() {
    let (mut client, _) = TestClient::posted(config());
    client.receive(NOT_FOUND);
    let (failure, detail) = client.failure().expect("it failed");
    assert_eq!(failure, Failure::NotFound);
    assert!(detail.contains("404 Not Found for POST: {"), "{detail}");
    assert!(
        detail.contains("no stream is available") && !detail.contains("secret"),
        "{detail}"
    );
    for (status, failure) in [
        (400, Failure::BadRequest),
        (401, Failure::Unauthorized),
        (409, Failure::Conflict),
        (415, Failure::OfferRefused),
        (429, Failure::Overloaded),
        (500, Failure::ServerError),
        (503, Failure::Overloaded),
        (418, Failure::OtherRefusal),
    ] {
        let (mut client, _) = TestClient::posted(config());
        client.receive(&format!(
            "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(client.failure().map(|own| own.0), Some(failure), "{status}");
    }
}

#[test]
fn token_takes_precedence_over_password() {
    let mut with_token = config();
    with_token.token = Some("abc".to_owned());
    let (_, request) = TestClient::posted(with_token);
    assert!(request.contains("\r\nAuthorization: Bearer abc\r\n"));
    assert!(!request.contains("Basic"));
}

#[test]
fn token_is_sent_only_to_the_host_and_port_of_the_url() {
    for (location, shown) in [
        ("http://127.0.0.1:8889/other", true),
        ("http://127.0.0.1:8890/", false),
        ("http://10.0.0.1:8889/", false),
        ("https://127.0.0.1:8889/", true),
    ] {
        let mut with_token = config();
        with_token.token = Some("abc".to_owned());
        with_token.follow = RedirectPolicy::Any;
        let (mut client, _) = TestClient::posted(with_token);
        client.receive(&format!(
            "HTTP/1.1 307 No\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        ));
        client.actions.clear();
        client.does(|whip, scope| whip.connected(scope, Connection::First));
        assert_eq!(client.sent().contains("Bearer abc"), shown, "{location}");
    }
}

#[test]
fn without_redirects_delete_goes_only_to_the_same_host() {
    for (host, deletes) in [("127.0.0.1:9", true), ("10.0.0.1", false)] {
        let (mut client, _) = TestClient::posted(ClientConfig {
            follow: RedirectPolicy::None,
            ..config()
        });
        client.receive(&format!(
            "HTTP/1.1 201 Created\r\nLocation: http://{host}/a\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(client.failure(), None, "{host}");
        client.actions.clear();
        client.does(|whip, scope| whip.leave(scope));
        let connects = matches!(
            client.actions.front(),
            Some(SignallingAction::Connect(Connection::First, _))
        );
        assert_eq!(connects, deletes, "{host}");
    }
}

#[test]
fn client_plays_without_a_usable_location() {
    for location in ["", "Location: \r\n", "Location: udp://x\r\n"] {
        for trickle in [false, true] {
            let (mut client, _) = TestClient::posted(ClientConfig {
                trickle,
                ..config()
            });
            client.receive(&format!(
                "HTTP/1.1 201 Created\r\n{location}Content-Length: 5\r\n\r\nv=0\r\n"
            ));
            let [
                SignallingAction::Note { kind, text },
                SignallingAction::RemoteAnswer { .. },
                SignallingAction::Disconnect,
            ] = &client.actions.make_contiguous()[..]
            else {
                panic!("{location}: {:?}", client.actions);
            };
            assert_eq!(*kind, "session_not_deletable");
            assert!(text.contains("cannot be deleted"), "{text}");
            client.actions.clear();
            client.does(|whip, scope| whip.leave(scope));
            assert_eq!(client.actions, [SignallingAction::Left], "{location}");
        }
    }
}

#[test]
fn relative_locations_resolve_as_references() {
    for (location, path) in [
        ("../res/1", "/res/1"),
        ("./1", "/live/1"),
        ("/a/./b/../1?x=../y", "/a/1?x=../y"),
        ("../../..//h/..", "//"),
        ("1", "/live/1"),
    ] {
        let (mut client, _) = TestClient::posted(config());
        client.receive(&format!(
            "HTTP/1.1 201 Created\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        ));
        client.does(|whip, scope| whip.leave(scope));
        client.actions.clear();
        client.does(|whip, scope| whip.connected(scope, Connection::First));
        let request = client.sent();
        let wanted = format!("DELETE {path} HTTP/1.1\r\nHost: 127.0.0.1:8889\r\n");
        assert!(request.starts_with(&wanted), "{location}: {request}");
        assert!(request.contains("Authorization"), "{request}");
    }
}

#[test]
fn candidates_use_a_new_connection_if_the_old_one_ended() {
    let (mut client, _) = TestClient::posted(ClientConfig {
        trickle: true,
        ..config()
    });
    client.receive(
        "HTTP/1.1 201 Created\r\nLocation: http://127.0.0.1:8889/live/whep/1\r\n\r\nv=0\r\n",
    );
    client.does(|whip, scope| whip.closed(scope, Connection::First, CloseReason::End));
    let actions: Vec<_> = client.actions.drain(..).collect();
    assert!(
        matches!(
            actions.last(),
            Some(SignallingAction::Connect(Connection::First, _))
        ),
        "{actions:?}"
    );
    client.does(|whip, scope| whip.connected(scope, Connection::First));
    assert!(client.sent().starts_with("PATCH /live/whep/1 "));
}

#[test]
fn redirects_are_followed_within_the_rules() {
    let (mut client, _) = TestClient::posted(config());
    client.receive(
        "HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:8890/b\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!(
        client.actions.pop_front(),
        Some(SignallingAction::Disconnect)
    );
    let connect = client.actions.pop_front();
    assert!(matches!(
        connect,
        Some(SignallingAction::Connect(
            Connection::First,
            SignallingTarget { port: 8890, .. }
        ))
    ));
    client.does(|whip, scope| whip.connected(scope, Connection::First));
    let request = client.sent();
    assert!(request.starts_with("POST /b ") && request.ends_with(OFFER));
    assert!(!request.contains("Authorization"), "{request}");
    for (location, failure) in [
        ("http://10.0.0.1/", Failure::RedirectRefused),
        ("http://127.0.0.1:8889/live/whep", Failure::RedirectLoop),
        ("udp://x", Failure::BadRedirect),
    ] {
        let (mut client, _) = TestClient::posted(config());
        client.receive(&format!(
            "HTTP/1.1 308 No\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(
            client.failure().map(|own| own.0),
            Some(failure),
            "{location}"
        );
    }
}

#[test]
fn additional_fields_are_in_each_request() {
    let fields = r#"{"Origin":"https://o","authorization":"Bearer x"}"#;
    let with_fields = || {
        let mut config = config();
        config.trickle = true;
        config.headers = serde_json::from_str(fields).expect("fields");
        config
    };
    let has_both = |request: &str| {
        assert!(request.contains("\r\nOrigin: https://o\r\n"), "{request}");
        let own = request.contains("\r\nauthorization: Bearer x\r\n");
        assert!(own && !request.contains("Basic"), "{request}");
    };
    let (mut client, post) = TestClient::posted(with_fields());
    has_both(&post);
    client.receive(CREATED);
    client.actions.pop_front();
    has_both(&client.sent());
    client.receive("HTTP/1.1 204 No\r\n\r\n");
    client.actions.clear();
    client.does(|whip, scope| whip.leave(scope));
    client.actions.clear();
    client.does(|whip, scope| whip.connected(scope, Connection::First));
    let delete = client.sent();
    assert!(delete.starts_with("DELETE "), "{delete}");
    has_both(&delete);

    // Another port does not get the credentials.
    let (mut client, _) = TestClient::posted(with_fields());
    client.receive(
        "HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:8890/b\r\nContent-Length: 0\r\n\r\n",
    );
    client.actions.clear();
    client.does(|whip, scope| whip.connected(scope, Connection::First));
    let post = client.sent();
    assert!(post.contains("\r\nOrigin: https://o\r\n"), "{post}");
    assert!(!post.to_lowercase().contains("authorization"), "{post}");
}

#[test]
fn trickled_candidates_follow_by_patch() {
    let (mut client, request) = TestClient::posted(ClientConfig {
        trickle: true,
        ..config()
    });
    assert!(!request.contains("a=candidate"), "{request}");
    client.receive(CREATED);
    assert!(matches!(
        client.actions.pop_front(),
        Some(SignallingAction::RemoteAnswer { .. })
    ));
    let patch = client.sent();
    assert!(patch.starts_with("PATCH /live/whep/"), "{patch}");
    assert!(patch.contains("\r\nIf-Match: *\r\n"), "{patch}");
    assert!(patch.contains("\r\nContent-Type: application/trickle-ice-sdpfrag\r\n"));
    let body = "a=ice-ufrag:u\r\na=ice-pwd:p\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
                a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\na=end-of-candidates\r\n";
    assert!(patch.ends_with(&format!("\r\n\r\n{body}")), "{patch}");
    client.receive(
        "HTTP/1.1 200 OK\r\nContent-Length: 52\r\n\r\na=mid:0\r\n\
         a=candidate:2 1 udp 1 127.0.0.2 9 typ host\r\n",
    );
    assert!(matches!(
        client.actions.pop_front(),
        Some(SignallingAction::RemoteCandidate { candidate, .. }) if candidate.starts_with("candidate:2 ")
    ));
    assert_eq!(
        client.actions.pop_front(),
        Some(SignallingAction::Disconnect)
    );
}

#[test]
fn truncated_late_and_endless_answers_fail() {
    let (mut client, _) = TestClient::posted(config());
    client.receive(&CREATED[..100]);
    client.does(|whip, scope| whip.closed(scope, Connection::First, CloseReason::Reset));
    assert_eq!(
        client.failure().map(|own| own.0),
        Some(Failure::SignallingClosed)
    );

    let (mut client, _) = TestClient::posted(config());
    client.now = client.whip.deadline().expect("an answer is waited for");
    client.does(|whip, scope| whip.handle_due(scope));
    assert_eq!(
        client.failure().map(|own| own.0),
        Some(Failure::RequestTimeout)
    );

    let (mut client, _) = TestClient::posted(config());
    client.receive("HTTP/1.1 201 Created\r\nLocation: /a\r\n\r\n");
    for _ in 0..=SDP_MAX / 1000 {
        client.receive(&"a".repeat(1000));
    }
    assert_eq!(client.failure().map(|own| own.0), Some(Failure::SdpTooLong));
}

#[test]
fn client_leaves_whatever_the_answer_to_delete() {
    for answer in [
        "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
        "",
        "nonsense\r\n\r\n",
    ] {
        let (mut client, _) = TestClient::posted(config());
        client.receive(CREATED);
        client.actions.clear();
        client.does(|whip, scope| whip.leave(scope));
        client.does(|whip, scope| whip.connected(scope, Connection::First));
        match answer {
            "" => {
                client.does(|whip, scope| whip.closed(scope, Connection::First, CloseReason::End))
            }
            answer => client.receive(answer),
        }
        assert_eq!(
            client.actions.back(),
            Some(&SignallingAction::Left),
            "{answer}"
        );
        let mut actions = client.actions.iter();
        let noted = actions.any(|own| matches!(own, SignallingAction::Note { .. }));
        assert_eq!(noted, !answer.contains("404"), "{answer}");
    }
    // Before a session exists.
    let (mut client, _) = TestClient::posted(config());
    client.does(|whip, scope| whip.leave(scope));
    assert_eq!(
        client.actions,
        [SignallingAction::Disconnect, SignallingAction::Left]
    );
}

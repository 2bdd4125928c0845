//! Hostile input from strangers: all state stays bounded, and everything is counted.

use measure::{Recorder, Time};

use super::*;
use crate::peer::{Peer, PeerConfig};
use crate::sdp::{OfferConfig, OfferedMedia, SessionDescription, known};
use ::session::{ChannelId, Context, Datagram, Endpoint as _, Flows, Input, Outbox, Route, Sinks};

/// Server without a network: bytes and datagrams are handed in directly.
struct BareServer {
    server: Server,
    endpoint: endpoint::Endpoint,
    recorder: Recorder,
    now: Time,
}

impl BareServer {
    fn new(config: ServerConfig) -> BareServer {
        let server = Server::new(config).expect("it can be made");
        BareServer {
            endpoint: endpoint::Endpoint::new(server.0.clone(), 0),
            recorder: Recorder::new(CATALOGUE),
            now: Time::from_nanos(1_000_000_000),
            server,
        }
    }

    /// Sends text on a new connection, in pieces, and returns all answers.
    fn send_text(&mut self, text: &[u8]) -> String {
        let mut session = self.server.session();
        let (mut out, mut outbox) = (std::collections::VecDeque::new(), Outbox::default());
        let (mut sinks, mut flows) = (Sinks::default(), Flows::default());
        let mut answers = String::new();
        let opened = Input::Opened {
            channel: ChannelId(0),
            local: ([10, 0, 0, 2], 554).into(),
            remote: None,
        };
        let pieces = text.chunks(1 << 14).map(|bytes| Input::Bytes {
            channel: ChannelId(0),
            bytes,
            at: self.now,
            runs: &[],
        });
        for input in std::iter::once(opened).chain(pieces) {
            let mut cx = Context {
                now: self.now,
                recorder: &mut self.recorder,
                sinks: &mut sinks,
                flows: &mut flows,
                out: &mut out,
                outbox: &mut outbox,
            };
            session.handle(&mut cx, input);
            for output in out.drain(..) {
                if let Output::Send { bytes, .. } = output {
                    answers.push_str(&String::from_utf8_lossy(&bytes));
                }
            }
        }
        answers
    }

    fn post(&mut self, path: &str, sdp: &str) -> String {
        let length = sdp.len();
        self.send_text(
            format!(
                "POST {path} HTTP/1.1\r\nContent-Type: application/sdp\r\nContent-Length: \
                 {length}\r\n\r\n{sdp}"
            )
            .as_bytes(),
        )
    }

    /// Returns how a datagram is routed.
    fn route(&mut self, port: u16, bytes: &[u8]) -> &'static str {
        let datagram = Datagram {
            from: ([10, 0, 0, 9], port).into(),
            at: self.now,
            bytes,
        };
        let mut answer = Vec::new();
        let route = self.endpoint.route(self.now, &datagram, true, &mut answer);
        assert!(answer.is_empty(), "strangers get no answer");
        match route {
            Route::Session(_) => "session",
            Route::Accept(..) => "accept",
            Route::Answer => "answer",
            Route::Discard => "drop",
        }
    }

    fn known(&self) -> usize {
        let mut ids = 0;
        while self.server.0.registry().next_slot() > ids {
            ids += 1;
        }
        ids
    }
}

/// Peer that wants to play, and its offer.
fn offers(now: Time, seed: u64) -> (Peer, String) {
    let config = PeerConfig::new(CERTIFICATE.clone(), seed);
    let mut peer = Peer::offerer(now, &config);
    peer.add_local_candidate(now, ([10, 0, 0, 9], 6000).into());
    let media = |kind, codecs, direction| OfferedMedia {
        kind,
        direction,
        codecs,
        extensions: Vec::new(),
        source: None,
    };
    use crate::sdp::{Direction, FeedbackTypes, MediaKind};
    let config = OfferConfig {
        session_id: 1,
        media: vec![
            media(MediaKind::Audio, known::all_audio(), Direction::RecvOnly),
            media(MediaKind::Video, known::all_video(), Direction::RecvOnly),
        ],
        feedback: FeedbackTypes::default(),
    };
    let offer = SessionDescription::offer(&config, &peer.local_transport());
    (peer, offer.to_string())
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let mut lines = answer.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no {name} in {answer}"))
}

#[test]
fn only_an_authentic_check_starts_a_session() {
    let mut bare = BareServer::new(server(&[]));
    let now = bare.now;
    let (mut peer, offer) = offers(now, 1);
    let answer = bare.post("/whep/a", &offer);
    assert_eq!(status(&answer), "201", "{answer}");
    let sdp = answer.split_once("\r\n\r\n").expect("it has a body").1;
    let sdp = SessionDescription::parse(sdp).expect("it is one");
    let mut transport = sdp.transport().expect("it tells how");
    assert!(transport.lite);
    let (_, other) = offers(now, 2);
    let other = SessionDescription::parse(&other).expect("it is one");
    let mut wrong = offers(now, 3).0;
    let check = |peer: &mut Peer, transport: &_| {
        peer.set_remote(now, transport).expect("it can be used");
        let mut bytes = Vec::new();
        peer.poll_transmit(&mut bytes).expect("it checks");
        bytes
    };
    // This sender knows the user fragment, but not the password.
    let pwd = std::mem::replace(
        &mut transport.pwd,
        other.transport().expect("it tells how").pwd,
    );
    let guessed = check(&mut wrong, &transport);
    assert_eq!(bare.route(1, &guessed), "drop");
    transport.pwd = pwd;
    let good = check(&mut peer, &transport);
    let mut spoilt = good.clone();
    *spoilt.last_mut().expect("it is long") ^= 1;
    for garbage in [
        &[][..],
        &[0],
        &good[..good.len() - 1],
        &[0; 20],
        &[22, 254, 253, 0, 0],
        &[128, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1],
        &[128, 200, 0, 1, 0, 0, 0, 0],
        &[255; 1500],
    ] {
        assert_eq!(bare.route(2, garbage), "drop");
    }
    assert_eq!(bare.route(3, &good), "accept");
    assert_eq!(bare.route(3, &good), "session");
    assert_eq!(bare.route(3, &[22, 254, 253]), "session");
    // Only authentic checks are accepted from another address.
    assert_eq!(bare.route(4, &[22, 254, 253]), "drop");
    assert_eq!(bare.route(4, &guessed), "drop");
    // The number of addresses is bounded.
    for port in 10..1000 {
        assert_eq!(bare.route(port, &good), "session");
    }
    assert!(bare.endpoint.address_count() <= 32);
    let counts = bare.server.listener_counts();
    assert_eq!(counts.checks_unauthentic, 2);
    assert!(
        counts.checks_malformed >= 3 && counts.strangers >= 4,
        "{counts:?}"
    );
    bare.endpoint.session_ended(::session::PeerId(0));
    assert_eq!(bare.endpoint.address_count(), 0);
    assert_eq!(bare.route(3, &[22, 254, 253]), "drop");
}

#[test]
fn checks_with_unknown_fragments_leave_no_state() {
    let mut bare = BareServer::new(server(&[]));
    let now = bare.now;
    for seed in 0..300 {
        let (mut peer, offer) = offers(now, 1000 + seed);
        let theirs = SessionDescription::parse(&offer).expect("it is one");
        let transport = theirs.transport().expect("it tells how");
        let transport = crate::sdp::TransportParameters {
            setup: crate::sdp::Setup::Active,
            ..transport
        };
        peer.set_remote(now, &transport).expect("it can be used");
        let mut check = Vec::new();
        peer.poll_transmit(&mut check).expect("it checks");
        assert_eq!(bare.route(seed as u16, &check), "drop");
    }
    assert_eq!(bare.endpoint.address_count(), 0);
    assert_eq!(bare.server.listener_counts().checks_of_nobody, 300);
}

/// WebSocket handshake and messages, masked as clients mask them.
fn socket(messages: &[String]) -> Vec<u8> {
    let mut bytes = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Protocol: janus-protocol\r\n\r\n"
        .to_vec();
    for message in messages {
        let text = message.as_bytes();
        kit::websocket::write_message(kit::websocket::TEXT, text, Some(7), &mut bytes);
    }
    bytes
}

fn bytes(at: Time, bytes: &[u8]) -> Input<'_> {
    Input::Bytes {
        channel: ChannelId(0),
        bytes,
        at,
        runs: &[],
    }
}

#[test]
fn room_errors_use_the_codes_of_janus() {
    for (of_handle, body, expected) in [
        (true, r#"{"request":"nothing"}"#, 423),
        (true, r#"{"request":"publish"}"#, 424),
        (true, r#"{"request":"start"}"#, 424),
        (true, r#"{"request":"update"}"#, 424),
        (true, r#"{"request":"join","ptype":"publisher"}"#, 430),
        (true, r#"{"request":"join","ptype":"nobody","room":1}"#, 430),
        (
            true,
            r#"{"request":"join","ptype":"subscriber","room":1}"#,
            426,
        ),
        (true, r#"{"request":"destroy","room":1}"#, 426),
        (
            false,
            r#"{"request":"join","ptype":"publisher","room":1}"#,
            459,
        ),
    ] {
        let mut bare = BareServer::new(server(&[]));
        let shared = bare.server.0.clone();
        let [session, handle] = [0, 1].map(|number| shared.seeded_random(number, &[30]) >> 11);
        let handle = if of_handle { handle } else { handle + 1 };
        let answer = bare.send_text(&socket(&[
            r#"{"janus":"create","transaction":"1"}"#.to_owned(),
            format!(
                r#"{{"janus":"attach","session_id":{session},
                "plugin":"janus.plugin.videoroom","transaction":"2"}}"#
            ),
            format!(
                r#"{{"janus":"message","session_id":{session},"handle_id":{handle},
                "body":{body},"transaction":"3"}}"#
            ),
        ]));
        assert_eq!(status(&answer), "101", "{answer}");
        let code = format!(r#"code":{expected},"#);
        assert!(answer.contains(&code), "{body} {answer}");
        assert!(answer.contains(r#""transaction":"3""#), "{answer}");
        assert_eq!(bare.server.listener_counts().refused, 1, "{body}");
    }
    for (message, expected) in [
        ("", 454),
        ("[", 454),
        ("7", 458),
        (r#"{"janus":"attach"}"#, 458),
        (r#"{"janus":"message","session_id":7}"#, 458),
        (&"[".repeat(100_000)[..], 454),
        (&r#"{"janus":"#.repeat(50_000)[..], 454),
    ] {
        let mut bare = BareServer::new(server(&[]));
        let answer = bare.send_text(&socket(&[message.to_owned()]));
        let code = format!(r#"code":{expected},"#);
        assert!(answer.contains(&code), "{answer}");
    }
    // A GET without an upgrade, an upgrade without a key, and a frame that breaks the rules.
    let mut bare = BareServer::new(server(&[]));
    assert_eq!(status(&bare.send_text(b"GET / HTTP/1.1\r\n\r\n")), "404");
    let no_key = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(status(&bare.send_text(no_key)), "400");
    let unmasked = [&socket(&[])[..], &[0x81, 1, b'x']].concat();
    assert_eq!(status(&bare.send_text(&unmasked)), "101");
}

#[test]
fn every_room_message_needs_the_token() {
    let config = ServerConfig {
        token: Some("secret".to_owned()),
        ..server(&[])
    };
    for (token, is_accepted) in [
        ("", false),
        (r#""token":"other","#, false),
        (r#""token":7,"#, false),
        (r#""token":"secret","#, true),
    ] {
        let mut bare = BareServer::new(config.clone());
        let create = format!(r#"{{"janus":"create",{token}"transaction":"1"}}"#);
        let answer = bare.send_text(&socket(&[create]));
        let expected = if is_accepted {
            r#""janus":"success""#
        } else {
            r#"code":403,"#
        };
        assert!(answer.contains(expected), "{token} {answer}");
        let counts = bare.server.listener_counts();
        let refused = u64::from(!is_accepted);
        assert_eq!((counts.refused, counts.unauthorized), (refused, refused));
    }
}

#[test]
fn room_publisher_is_told_of_its_end_and_may_publish_again() {
    let server = Server::new(server(&[])).expect("it can be made");
    let shared = server.0.clone();
    let (mut session, mut recorder) = (server.session(), Recorder::new(CATALOGUE));
    let now = Time::from_nanos(1_000_000_000);
    let mut deliver = |input: Input<'_>| {
        let mut out = std::collections::VecDeque::new();
        let mut cx = Context {
            now,
            recorder: &mut recorder,
            sinks: &mut Sinks::default(),
            flows: &mut Flows::default(),
            out: &mut out,
            outbox: &mut Outbox::default(),
        };
        session.handle(&mut cx, input);
        let sent = out.iter().filter_map(|output| match output {
            Output::Send { bytes, .. } => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        });
        sent.collect::<String>()
    };
    deliver(Input::Opened {
        channel: ChannelId(0),
        local: ([10, 0, 0, 2], 554).into(),
        remote: None,
    });
    let [id, handle] = [0, 1].map(|number| shared.seeded_random(number, &[30]) >> 11);
    let (_, offer) = offers(now, 1);
    let sends = offer.replace("a=recvonly", "a=sendonly");
    let request = |body: serde_json::Value| {
        let mut message = serde_json::json!({"janus": "message", "session_id": id});
        message["handle_id"] = handle.into();
        message["body"] = body;
        message["jsep"] = serde_json::json!({"type": "offer", "sdp": sends});
        message.to_string()
    };
    let publish = request(serde_json::json!({"request": "publish"}));
    let attach =
        format!(r#"{{"janus":"attach","session_id":{id},"plugin":"janus.plugin.videoroom"}}"#);
    let join = serde_json::json!({"request": "join", "ptype": "publisher", "room": 1});
    let messages = [
        r#"{"janus":"create"}"#.to_owned(),
        attach,
        request(join),
        publish.clone(),
        publish.clone(),
    ];
    let answer = deliver(bytes(now, &socket(&messages)));
    // The second one is refused because the handle already publishes.
    assert_eq!(
        answer.matches(r#""configured":"ok""#).count(),
        1,
        "{answer}"
    );
    assert!(answer.contains(r#""error_code":434"#), "{answer}");
    let changed_message: Arc<str> = "changed".into();
    let changed = || Input::TopicMessage {
        topic: "webrtc-server/room/0",
        message: &changed_message,
    };
    assert_eq!(deliver(changed()), "");
    // The first datagram never arrives.
    shared.purge_expired(now + Duration::from_secs(60));
    let answer = deliver(changed());
    assert!(answer.contains(r#""janus":"hangup""#), "{answer}");
    let mut again = Vec::new();
    kit::websocket::write_message(1, publish.as_bytes(), Some(7), &mut again);
    let answer = deliver(bytes(now, &again));
    assert!(answer.contains(r#""configured":"ok""#), "{answer}");
    assert_eq!(server.listener_counts().never_came, 1);
}

#[test]
fn bad_offers_are_refused_and_sessions_are_bounded() {
    let mut bare = BareServer::new(ServerConfig {
        sessions_max: 8,
        ..server(&[])
    });
    let (_, offer) = offers(bare.now, 1);
    let long = format!("{offer}{}", "\r\n".repeat(41_000));
    let huge = format!("{offer}{}", "a=x:y\r\n".repeat(100_000));
    let audio_only = offer.replace("m=video 9", "m=video 0");
    let no_ice = offer.replace("a=ice-pwd", "a=nice-pwd");
    for (path, sdp, expected) in [
        ("/whep/a", "", "400"),
        ("/whep/a", "v=0\r\n", "400"),
        ("/whep/a", &long[..], "400"),
        ("/whep/a", &huge, "413"),
        ("/whep/a", &no_ice, "400"),
        ("/whip/a", &offer, "406"),
        ("/whep/", &offer, "404"),
        ("/nothing/a", &offer, "404"),
        ("/", &offer, "404"),
    ] {
        let answer = bare.post(path, sdp);
        assert_eq!(status(&answer), expected, "{path} {answer}");
    }
    let answer = bare.post("/whep/a", &audio_only);
    assert_eq!(status(&answer), "201", "{answer}");
    assert!(answer.contains("m=video 0 "), "{answer}");
    for _ in 1..8 {
        assert_eq!(status(&bare.post("/whep/a", &offer)), "201");
    }
    for _ in 0..20 {
        assert_eq!(status(&bare.post("/whep/a", &offer)), "503");
    }
    assert_eq!(bare.known(), 8);
    // Sessions that did not start are removed.
    bare.now += Duration::from_secs(16);
    assert_eq!(status(&bare.post("/whep/a", &offer)), "201");
    assert_eq!(bare.server.listener_counts().never_came, 8);
}

#[test]
fn patch_and_delete_follow_the_rules_of_whip() {
    let mut bare = BareServer::new(server(&[]));
    let (_, offer) = offers(bare.now, 1);
    let answer = bare.post("/whep/a", &offer);
    let (location, etag) = (field(&answer, "Location"), field(&answer, "ETag"));
    let mut request = |method: &str, path: &str, fields: &str, body: &str| {
        let length = body.len();
        let text =
            format!("{method} {path} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
        let answer = bare.send_text(text.as_bytes());
        status(&answer).to_owned()
    };
    let kind = "Content-Type: application/trickle-ice-sdpfrag\r\n";
    let matching = format!("{kind}If-Match: {etag}\r\n");
    let ufrag = offer.lines().find(|line| line.starts_with("a=ice-ufrag"));
    let ufrag = format!("{}\r\n", ufrag.expect("it has one"));
    for (method, path, fields, body, expected) in [
        ("OPTIONS", "/whep/a", "", "", "204"),
        ("GET", "/whep/a", "", "", "405"),
        ("GET", location, "", "", "405"),
        ("PATCH", location, &matching[..], &ufrag[..], "204"),
        ("PATCH", location, kind, &ufrag, "428"),
        ("PATCH", location, "", &ufrag, "415"),
        (
            "PATCH",
            location,
            &format!("{kind}If-Match: \"x\"\r\n"),
            &ufrag,
            "412",
        ),
        (
            "PATCH",
            location,
            &format!("{kind}If-Match: *\r\n"),
            &ufrag,
            "422",
        ),
        ("PATCH", location, &matching, "a=ice-ufrag:other\r\n", "422"),
        ("DELETE", location, "", "", "200"),
        ("DELETE", location, "", "", "404"),
        ("PATCH", location, &matching, &ufrag, "404"),
    ] {
        assert_eq!(
            request(method, path, fields, body),
            expected,
            "{method} {fields}"
        );
    }
    assert_eq!(bare.known(), 0);
}

#[test]
fn endless_request_is_refused_with_431() {
    let mut bare = BareServer::new(server(&[]));
    let endless = format!("POST /whep/a HTTP/1.1\r\nA: {}", "x".repeat(1 << 20));
    assert_eq!(status(&bare.send_text(endless.as_bytes())), "431");
    assert_eq!(
        status(&bare.send_text(b"\x16\x03\x01 TLS, perhaps\r\n\r\n")),
        "400"
    );
    assert_eq!(bare.server.listener_counts().refused, 2);
}

//! Two participants on WebSockets of the WebRTC server's rooms, who send anything.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use kit::reference::RunningServer;
use kit::websocket::{self, ClientHandshake, Limits, Reassembler, Received};
use measure::{Catalogue, Recorder, Time};
use serde_json::{Value, json};
use session::{
    ChannelId, CloseReason, Context, Datagram, Endpoint, Flows, Input as Event, Outbox, Output,
    Route, Session, Sinks,
};
use webrtc::certificate::Certificate;
use webrtc::peer::{Peer, PeerConfig, PeerState};
use webrtc::sdp::{
    AnswerConfig, Direction, FeedbackTypes, MediaKind, OfferConfig, OfferedMedia,
    SessionDescription, known,
};
use webrtc::server::{Server, ServerConfig};

use crate::input::{Input, text};

const CHANNEL: ChannelId = ChannelId(0);
const NOW: Time = Time::from_nanos(1_000_000_000);
const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 9], 6000);
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 8889);

/// Maximum number of PeerConnections of the server. What one input leaves behind is missing for the
/// next one.
const SESSIONS: usize = 20;

/// Maximum number of steps of an input.
const STEPS: usize = 60;

const LIMITS: Limits = Limits {
    keep_max: 1 << 20,
    length_max: 1 << 20,
};

struct Fixture {
    server: Server,
    /// An offer that sends audio and video.
    offer: String,
    certificate: Arc<Certificate>,
    /// Publishes in room 1 for all inputs, so that there is something to receive.
    _publisher: (Participant, ServerPeer),
    /// The number of the publisher's feed.
    feed: u64,
}

thread_local! {
    static FIXTURE: RefCell<Option<Fixture>> = const { RefCell::new(None) };
}

/// Checks that each message gets a response, and that a closed connection leaves nothing behind.
pub(crate) fn room(bytes: &[u8]) {
    FIXTURE.with_borrow_mut(|fixture| {
        let fixture = fixture.get_or_insert_with(|| {
            let config = ServerConfig {
                sessions_max: SESSIONS,
                ..ServerConfig::default()
            };
            let server = Server::new(config).expect("its media can be made");
            let certificate = Arc::new(Certificate::generate(1));
            let (_, offer) = offer(&certificate);
            let (publisher, feed) = publish(&server, &certificate);
            Fixture {
                server,
                offer,
                certificate,
                _publisher: publisher,
                feed,
            }
        });
        let mut people = [0, 1].map(|seed| Participant::new(&fixture.server, seed));
        let mut input = Input::new(bytes);
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            let who = usize::from(input.byte() & 1);
            let message = people[who].message(&mut input, fixture);
            people[who].send(&message);
            deliver_messages(&mut people);
        }
        for who in 0..2 {
            people[who].handle(Event::Closed {
                channel: CHANNEL,
                reason: CloseReason::End,
            });
            assert!(people[who].ended, "a closed connection ends its session");
            deliver_messages(&mut people);
        }
        // All PeerConnections are free again.
        let mut last = Participant::new(&fixture.server, 7);
        last.publish(&fixture.offer);
        last.handle(Event::Closed {
            channel: CHANNEL,
            reason: CloseReason::End,
        });
    });
}

/// Publishes in room 1. Returns the participant with its PeerConnection, and the number of the
/// feed.
fn publish(server: &Server, certificate: &Arc<Certificate>) -> ((Participant, ServerPeer), u64) {
    let (mut peer, offer) = offer(certificate);
    let mut person = Participant::new(server, 8);
    let answer = person.publish(&offer);
    let answer = SessionDescription::parse(&answer).expect("the server's answer is valid");
    let theirs = answer.transport().expect("the server's transport is valid");
    peer.set_remote(NOW, &theirs)
        .expect("the transport is accepted");
    let (endpoint, catalogue) = (server.endpoint(0), server.catalogue());
    let mut carried = ServerPeer {
        endpoint,
        catalogue,
        session: None,
    };
    for _ in 0..50 {
        let mut datagram = Vec::new();
        while peer.poll_transmit(&mut datagram).is_some() {
            for answer in carried.handle_datagram(&datagram) {
                let _ = peer.handle_datagram(NOW, SERVER.into(), &answer);
            }
            datagram.clear();
        }
        peer.handle_timeout(NOW);
    }
    assert_eq!(
        peer.state(),
        PeerState::Connected,
        "datagrams are not lost here"
    );
    // The room announces its publishers to a new participant.
    let mut second = Participant::new(server, 9);
    second.join();
    let feed = second.feed.expect("the feed is announced");
    second.handle(Event::Closed {
        channel: CHANNEL,
        reason: CloseReason::End,
    });
    ((person, carried), feed)
}

/// The server's side of a PeerConnection.
struct ServerPeer {
    endpoint: Box<dyn Endpoint>,
    catalogue: Catalogue,
    session: Option<(Box<dyn Session>, Recorder, Sinks, Flows)>,
}

impl ServerPeer {
    /// Handles a datagram and returns the responses.
    fn handle_datagram(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let datagram = Datagram {
            from: CLIENT.into(),
            at: NOW,
            bytes,
        };
        let mut answer = Vec::new();
        match self.endpoint.route(NOW, &datagram, true, &mut answer) {
            Route::Session(_) => {}
            Route::Accept(_, session) => {
                let recorder = Recorder::new(self.catalogue);
                self.session = Some((session, recorder, Sinks::default(), Flows::default()));
                self.handle(Event::Start { due: NOW });
                let (local, remote) = (SERVER.into(), Some(CLIENT.into()));
                self.handle(Event::Opened {
                    channel: CHANNEL,
                    local,
                    remote,
                });
            }
            Route::Answer => return vec![answer],
            Route::Discard => return Vec::new(),
        }
        self.handle(Event::Datagrams {
            channel: CHANNEL,
            datagrams: &[datagram],
        })
    }

    fn handle(&mut self, event: Event<'_>) -> Vec<Vec<u8>> {
        let (session, recorder, sinks, flows) = self.session.as_mut().expect("it was accepted");
        let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
        let outbox = &mut outbox;
        let mut cx = Context {
            now: NOW,
            recorder,
            sinks,
            flows,
            out: &mut out,
            outbox,
        };
        session.handle(&mut cx, event);
        let mut sent = Vec::new();
        for output in out {
            if let Output::Transmit(transmit) = output {
                let pieces = outbox.bytes(&transmit).chunks(transmit.segment_size);
                sent.extend(pieces.map(<[u8]>::to_vec));
            }
        }
        sent
    }
}

/// Delivers messages on topics until there are no more.
fn deliver_messages(people: &mut [Participant; 2]) {
    for _ in 0..100 {
        let topic_messages: Vec<_> = people
            .iter_mut()
            .flat_map(|person| person.topic_messages.drain(..))
            .collect();
        if topic_messages.is_empty() {
            return;
        }
        for (topic, message) in topic_messages {
            for person in &mut *people {
                person.handle(Event::TopicMessage {
                    topic: &topic,
                    message: &message,
                });
            }
        }
    }
    panic!("the participants send messages without end");
}

fn offer(certificate: &Arc<Certificate>) -> (Peer, String) {
    let mut peer = Peer::offerer(NOW, &PeerConfig::new(certificate.clone(), 1));
    peer.add_local_candidate(NOW, CLIENT.into());
    let media = |kind, codecs| OfferedMedia {
        kind,
        direction: Direction::SendOnly,
        codecs,
        extensions: Vec::new(),
        source: None,
    };
    let config = OfferConfig {
        session_id: 1,
        media: vec![
            media(MediaKind::Audio, known::all_audio()),
            media(MediaKind::Video, known::all_video()),
        ],
        feedback: FeedbackTypes::default(),
    };
    let offer = SessionDescription::offer(&config, &peer.local_transport()).to_string();
    (peer, offer)
}

struct Participant {
    session: Box<dyn Session>,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    frames: Reassembler,
    upgrade: Option<ClientHandshake>,
    id: u64,
    handles: Vec<u64>,
    /// The server's last session description.
    sdp: Option<String>,
    /// The feed of another publisher.
    feed: Option<u64>,
    topic_messages: VecDeque<(String, Arc<str>)>,
    answers: usize,
    ended: bool,
}

impl Participant {
    fn new(server: &Server, seed: u64) -> Participant {
        let url = websocket::parse_url("ws://10.0.0.2:8889/").expect("the URL is valid");
        let (upgrade, request) = ClientHandshake::begin(&url, &["janus-protocol"], seed);
        let mut person = Participant {
            session: server.session(),
            recorder: Recorder::new(server.catalogue()),
            sinks: Sinks::default(),
            flows: Flows::default(),
            frames: Reassembler::default(),
            upgrade: Some(upgrade),
            id: 0,
            handles: Vec::new(),
            sdp: None,
            feed: None,
            topic_messages: VecDeque::new(),
            answers: 0,
            ended: false,
        };
        person.handle(Event::Opened {
            channel: CHANNEL,
            local: SERVER.into(),
            remote: None,
        });
        person.bytes(&request);
        assert!(person.upgrade.is_none(), "the upgrade was accepted");
        person
    }

    fn of_session(&self, mut message: Value) -> Value {
        message["session_id"] = self.id.into();
        message
    }

    /// Joins room 1.
    fn join(&mut self) {
        self.send(json!({"janus": "create"}).to_string().as_bytes());
        let attach = json!({"janus": "attach", "plugin": "janus.plugin.videoroom"});
        self.send(self.of_session(attach).to_string().as_bytes());
        self.request(json!({"request": "create", "room": 1}), Value::Null);
        self.request(
            json!({"request": "join", "ptype": "publisher", "room": 1}),
            Value::Null,
        );
    }

    /// Joins room 1 and publishes. Returns the server's answer.
    fn publish(&mut self, offer: &str) -> String {
        self.join();
        self.request(
            json!({"request": "publish"}),
            json!({"type": "offer", "sdp": offer}),
        );
        self.sdp.take().expect("there is a free PeerConnection")
    }

    fn request(&mut self, body: Value, jsep: Value) {
        let mut message = self.of_session(json!({"janus": "message", "body": body, "jsep": jsep}));
        message["handle_id"] = self.handles.last().copied().into();
        self.send(message.to_string().as_bytes());
    }

    /// Returns the participant's next message.
    fn message(&mut self, input: &mut Input<'_>, fixture: &Fixture) -> Vec<u8> {
        let handle = usize::from(input.byte());
        let handle = self
            .handles
            .get(handle % self.handles.len().max(1))
            .copied();
        let number = u64::from(input.byte());
        let feed = fixture.feed;
        let feeds = match number & 3 {
            0 => json!([{"feed": feed}]),
            1 => json!([{"feed": feed, "mid": "1"}, {"feed": feed, "mid": "0"}]),
            2 => json!([{"sub_mid": (number / 4).to_string()}]),
            _ => json!([{"feed": feed + number / 4}]),
        };
        let room = number % 3;
        let (word, body, sdp) = match input.byte() % 18 {
            0 => return input.piece().to_vec(),
            1 => ("create", Value::Null, None),
            2 => ("attach", Value::Null, None),
            3 => ("detach", Value::Null, None),
            4 => ("hangup", Value::Null, None),
            5 => ("destroy", Value::Null, None),
            6 => {
                let text = text(input.piece());
                (
                    "message",
                    serde_json::from_str(&text).unwrap_or_default(),
                    None,
                )
            }
            7 => ("message", json!({"request": "create", "room": room}), None),
            8 => ("message", json!({"request": "destroy", "room": room}), None),
            9 | 10 => {
                let body = json!({"request": "join", "ptype": "publisher", "room": room});
                ("message", body, None)
            }
            11 => {
                let mut body = json!({"request": "join", "ptype": "subscriber", "room": room});
                body["streams"] = feeds;
                ("message", body, None)
            }
            12 => (
                "message",
                json!({"request": "publish"}),
                Some(fixture.offer.clone()),
            ),
            13 => ("message", json!({"request": "start"}), self.answer(fixture)),
            14 => {
                let body = json!({"request": "update", "subscribe": feeds});
                ("message", body, None)
            }
            15 => {
                let body = json!({"request": "unsubscribe", "streams": feeds});
                ("message", body, None)
            }
            16 => ("message", json!({"request": "unpublish"}), None),
            _ => {
                let sdp = text(input.piece()).into_owned();
                ("message", json!({"request": "start"}), Some(sdp))
            }
        };
        let mut message = json!({"janus": word, "plugin": "janus.plugin.videoroom"});
        if word != "create" {
            message = self.of_session(message);
        }
        message["handle_id"] = handle.into();
        message["body"] = body;
        if let Some(sdp) = sdp {
            message["jsep"] = json!({"type": "answer", "sdp": sdp});
        }
        message.to_string().into_bytes()
    }

    /// Returns an answer to the server's last offer.
    fn answer(&self, fixture: &Fixture) -> Option<String> {
        let offer = SessionDescription::parse(self.sdp.as_ref()?);
        let offer = offer.expect("the server's offer is valid");
        let mut peer = Peer::answerer(NOW, &PeerConfig::new(fixture.certificate.clone(), 2));
        let theirs = offer.transport().expect("the server's transport is valid");
        // The last description may be an answer, which cannot be answered.
        peer.set_remote(NOW, &theirs).ok()?;
        let config = AnswerConfig::receive_all(1);
        Some(offer.answer(&config, &peer.local_transport()).to_string())
    }

    fn send(&mut self, message: &[u8]) {
        let before = self.answers;
        let mut out = Vec::new();
        websocket::write_message(websocket::TEXT, message, Some(7), &mut out);
        self.bytes(&out);
        assert!(
            self.ended || self.answers > before,
            "each message gets a response"
        );
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.handle(Event::Bytes {
            channel: CHANNEL,
            bytes,
            at: NOW,
            runs: &[],
        });
    }

    fn handle(&mut self, event: Event<'_>) {
        if self.ended {
            return;
        }
        let (mut out, mut outbox) = (VecDeque::new(), Outbox::default());
        let mut cx = Context {
            now: NOW,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut outbox,
        };
        self.session.handle(&mut cx, event);
        for output in out {
            match output {
                Output::Send { bytes, .. } => self.on_bytes(&bytes),
                Output::Publish { topic, message } => {
                    self.topic_messages.push_back((topic, message))
                }
                Output::Ended(_) => self.ended = true,
                _ => {}
            }
        }
    }

    fn on_bytes(&mut self, mut bytes: &[u8]) {
        if let Some(upgrade) = &mut self.upgrade {
            let whole = upgrade
                .read_response(&mut bytes)
                .expect("the upgrade is accepted");
            assert!(whole, "the response is complete");
            self.upgrade = None;
        }
        let mut frames = std::mem::take(&mut self.frames);
        while let Some(item) = frames.next(false, &LIMITS, &mut bytes).expect("frames") {
            let Received::Message(frame) = item else {
                continue;
            };
            let body = frame.body.expect("the body is within the limit");
            self.on_message(&serde_json::from_slice(body).expect("JSON"));
        }
        self.frames = frames;
    }

    fn on_message(&mut self, message: &Value) {
        self.answers += 1;
        if let Some(sdp) = message["jsep"]["sdp"].as_str() {
            self.sdp = Some(sdp.to_owned());
        }
        if let Some(feed) = message["plugindata"]["data"]["publishers"][0]["id"].as_u64() {
            self.feed = Some(feed);
        }
        if let Some(id) = message["data"]["id"].as_u64() {
            match self.id {
                0 => self.id = id,
                _ => self.handles.push(id),
            }
        }
    }
}

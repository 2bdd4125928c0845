use std::collections::VecDeque;

use kit::mediagen::picture_size::PictureSize;
use measure::units::TimeSpan;
use measure::{Catalogue, Recorder};
use proptest::prelude::*;

use super::message::{
    JoinResponse, MuteTrackRequest, ParticipantInfo, ParticipantPermission, ParticipantState,
    ParticipantUpdate, Pong, RequestResponse, StreamStateInfo, StreamStateUpdate,
    SubscriptionResponse, TrackInfo, TrackPublishedResponse, TrackType, TrackUnpublishedResponse,
};
use super::*;
use crate::config::Layer;
use crate::signalling::janus::room_config::Subscribe;
use kit::media::source::SourceConfig;
use kit::metrics::{CLIENTS, ZAPPING};
use kit::websocket::{Limits, Reassembler, Received, ServerHandshake};

const GROUPS: &[&measure::Group] = &[
    &CLIENTS,
    &ZAPPING,
    &kit::viewer::VIEWERS,
    &kit::media::rtp::metrics::RTP,
    &m::WEBRTC,
];

const LIMITS: Limits = Limits {
    keep_max: MESSAGE_BYTES_MAX,
    length_max: MESSAGE_BYTES_MAX as u64,
};

/// Offer of one audio and one video track, reduced to what is read.
const OFFER: &str = concat!(
    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n",
    "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\na=sendonly\r\na=rtpmap:96 H264/90000\r\n",
    "a=candidate:1 1 udp 2130706431 127.0.0.1 4000 typ host\r\na=msid:streamgauge video0\r\n",
    "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:1\r\na=sendonly\r\na=rtpmap:111 opus/48000/2\r\n",
    "a=msid:streamgauge audio1\r\n",
);

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn config() -> ClientConfig {
    ClientConfig {
        request_timeout: TimeSpan(Duration::from_secs(5)),
        user_agent: String::new(),
        api_key: Some("devkey".to_owned()),
        api_secret: Some("secret".to_owned()),
        participate: Some(source(false)),
        ..ClientConfig::default()
    }
}

fn source(simulcast: bool) -> SourceConfig {
    SourceConfig {
        size: Some(PictureSize {
            width: 640,
            height: 360,
        }),
        simulcast,
        ..SourceConfig::default()
    }
}

/// Client side, and a server that a test controls.
struct TestClient {
    livekit: LiveKit,
    now: Time,
    recorder: Recorder,
    /// Requested actions other than sending.
    actions: Vec<SignallingAction>,
    requests: Vec<Request>,
    /// Request for the WebSocket.
    request: String,
    frames: Reassembler,
}

impl TestClient {
    /// Returns a client that has requested the room.
    fn asking(config: ClientConfig) -> TestClient {
        TestClient::with_seed(config, 7)
    }

    fn with_seed(config: ClientConfig, seed: u64) -> TestClient {
        let url = websocket::parse_url("ws://127.0.0.1:7880/").expect("a URL");
        let mut client = TestClient {
            livekit: LiveKit::new(config.into(), "a room".to_owned(), url, seed),
            now: ms(1),
            recorder: Recorder::new(Catalogue(GROUPS)),
            actions: Vec::new(),
            requests: Vec::new(),
            request: String::new(),
            frames: Reassembler::default(),
        };
        client
            .livekit
            .set_wall_clock(Duration::from_secs(1_000_000));
        client.does(|livekit, scope| livekit.begin(scope));
        let [SignallingAction::Connect(_, target)] = &client.actions[..] else {
            panic!("{:?}", client.actions);
        };
        assert_eq!(target.port, 7880);
        client.actions.clear();
        let mut actions = VecDeque::new();
        let mut scope = SignallingContext {
            now: client.now,
            recorder: &mut client.recorder,
            actions: &mut actions,
        };
        client.livekit.connected(&mut scope, Connection::First);
        for action in actions {
            match action {
                SignallingAction::Send(Connection::First, bytes) => {
                    client.request += &String::from_utf8_lossy(&bytes)
                }
                other => client.actions.push(other),
            }
        }
        client
    }

    /// Returns a client with an open WebSocket.
    fn new(config: ClientConfig) -> TestClient {
        let mut client = TestClient::asking(config);
        let mut acceptance = ServerHandshake::default();
        let answer = acceptance.read_request(&mut client.request.as_bytes());
        let answer = answer.expect("a request").expect("it is whole");
        client.bytes(&answer);
        client
    }

    /// Returns a client in the room, with others who publish or alone.
    fn in_room(config: ClientConfig, others: &[&str]) -> TestClient {
        let mut client = TestClient::new(config);
        client.now = ms(30);
        client.receive(Response::Join(JoinResponse {
            participant: Some(participant("PA_own", false)),
            other_participants: others.iter().map(|sid| participant(sid, true)).collect(),
            server_version: "1.8.4".to_owned(),
            ping_interval: 5,
        }));
        client
    }

    fn does(&mut self, does: impl FnOnce(&mut LiveKit, &mut SignallingContext<'_>)) {
        let mut actions = VecDeque::new();
        let mut scope = SignallingContext {
            now: self.now,
            recorder: &mut self.recorder,
            actions: &mut actions,
        };
        does(&mut self.livekit, &mut scope);
        for action in actions {
            let SignallingAction::Send(Connection::First, bytes) = action else {
                self.actions.push(action);
                continue;
            };
            let mut rest = &bytes[..];
            while let Some(item) = self.frames.next(true, &LIMITS, &mut rest).expect("frames") {
                if let Received::Message(frame) = item {
                    let body = frame.body.expect("it is kept");
                    let request = SignalRequest::decode(body).expect("a request");
                    self.requests
                        .push(request.message.expect("it says something"));
                }
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.does(|livekit, scope| livekit.bytes(scope, Connection::First, bytes));
    }

    fn receive(&mut self, response: Response) {
        let message = SignalResponse {
            message: Some(response),
        };
        self.receive_bytes(&message.encode_to_vec());
    }

    fn receive_bytes(&mut self, body: &[u8]) {
        let mut frame = Vec::new();
        websocket::write_message(websocket::BINARY, body, None, &mut frame);
        self.bytes(&frame);
    }

    fn failure(&self) -> Option<(Failure, &str)> {
        match self.actions.last() {
            Some(SignallingAction::Failed { failure, detail }) => Some((*failure, detail)),
            _ => None,
        }
    }

    fn counted(&self, counter: measure::CounterId) -> u64 {
        self.recorder.counter(counter)
    }
}

fn participant(sid: &str, sends: bool) -> ParticipantInfo {
    let track = TrackInfo {
        sid: format!("TR_{sid}"),
        kind: TrackType::Video as i32,
        muted: false,
    };
    ParticipantInfo {
        sid: sid.to_owned(),
        state: ParticipantState::Active as i32,
        tracks: if sends { vec![track] } else { Vec::new() },
        permission: None,
    }
}

fn published(cid: &str) -> Response {
    Response::TrackPublished(TrackPublishedResponse {
        cid: cid.to_owned(),
    })
}

fn description(kind: &str, sdp: &str, id: u32) -> SessionDescription {
    SessionDescription {
        kind: kind.to_owned(),
        sdp: sdp.to_owned(),
        id,
    }
}

#[test]
fn client_requests_its_room_with_its_own_token() {
    let client = TestClient::asking(config());
    let first = client.request.lines().next();
    assert_eq!(
        first,
        Some("GET /rtc?protocol=15&auto_subscribe=1 HTTP/1.1")
    );
    let mut lines = client.request.lines();
    let token = lines.find_map(|line| line.strip_prefix("Authorization: Bearer "));
    let token = token.expect("it shows one").to_owned();
    assert_eq!(token.split('.').count(), 3);
    let given = TestClient::asking(ClientConfig {
        token: Some("given".to_owned()),
        subscribe: Subscribe::Nobody,
        ..config()
    });
    assert!(given.request.contains("Authorization: Bearer given\r\n"));
    assert!(given.request.contains("auto_subscribe=0"));
    let mut with_fields = config();
    with_fields.user_agent = "me".to_owned();
    with_fields.headers = serde_json::from_str(r#"{"X-Key":"a"}"#).expect("fields");
    let request = TestClient::asking(with_fields).request;
    let user_agents = request.matches("\r\nUser-Agent: me\r\n").count();
    assert_eq!(
        (user_agents, request.contains("\r\nX-Key: a\r\n")),
        (1, true)
    );
    let other = TestClient::with_seed(config(), 8);
    assert!(!other.request.contains(&token), "names differ");
    let without = TestClient::asking(ClientConfig {
        api_key: None,
        ..config()
    });
    assert_eq!(
        without.failure().map(|own| own.0),
        Some(Failure::Unauthorized)
    );
}

#[test]
fn tracks_are_announced_before_they_are_offered() {
    let mut client = TestClient::in_room(config(), &[]);
    assert!(matches!(
        &client.actions[..],
        [SignallingAction::CreateOffer {
            peer: PUBLISHER,
            direction: Direction::Send
        }]
    ));
    client.does(|livekit, scope| livekit.local_description(scope, PUBLISHER, OFFER));
    let tracks = client.requests.iter().map(|said| match said {
        Request::AddTrack(track) => (&track.cid[..], track.kind, track.width),
        other => panic!("{other:?}"),
    });
    let tracks = tracks.collect::<Vec<_>>();
    let (audio, video) = (TrackType::Audio as i32, TrackType::Video as i32);
    assert_eq!(tracks, [("video0", video, 640), ("audio1", audio, 0)]);
    client.receive(published("video0"));
    client.receive(published("video0"));
    assert_eq!(client.requests.len(), 2, "one is not taken yet");
    client.receive(published("audio1"));
    let Some(Request::Offer(offer)) = client.requests.last() else {
        panic!("{:?}", client.requests);
    };
    assert_eq!((&offer.kind[..], &offer.sdp[..]), ("offer", OFFER));
    client.now = ms(40);
    client.receive(Response::Answer(description("answer", "an answer", 1)));
    let answered = SignallingAction::RemoteAnswer {
        peer: PUBLISHER,
        answer: "an answer".to_owned(),
    };
    assert_eq!(client.actions.last(), Some(&answered));
    // A second answer is ignored.
    let before = client.actions.len();
    client.receive(Response::Answer(description("answer", "another", 1)));
    assert_eq!(client.actions.len(), before);
    assert_eq!(
        (client.counted(m::REQUESTS), client.counted(m::RESPONSES)),
        (4, 4)
    );
}

#[test]
fn layers_are_announced_and_chosen_once_for_each_new_track() {
    let mut client = TestClient::in_room(
        ClientConfig {
            participate: Some(source(true)),
            layer: Some(Layer::Low),
            ..config()
        },
        &["PA_1"],
    );
    client.does(|livekit, scope| livekit.local_description(scope, PUBLISHER, OFFER));
    let layers: Vec<_> = client
        .requests
        .iter()
        .filter_map(|said| match said {
            Request::AddTrack(track) => Some(&track.layers),
            _ => None,
        })
        .map(|layers| {
            let layers = layers.iter();
            let each = layers.map(|own| (own.quality, own.width, own.bitrate, &own.rid[..]));
            each.collect::<Vec<_>>()
        })
        .collect();
    let expected = [
        (2, 640, 1_000_000, "f"),
        (1, 320, 250_000, "h"),
        (0, 160, 62_500, "q"),
    ];
    // Audio has no layers.
    assert_eq!(layers, [expected.to_vec(), Vec::new()]);
    let chosen = |client: &TestClient| {
        let settings = client.requests.iter().filter_map(|said| match said {
            Request::TrackSettings(own) => Some((own.track_sids.join(" "), own.quality)),
            _ => None,
        });
        settings.collect::<Vec<_>>()
    };
    assert_eq!(chosen(&client), [("TR_PA_1".to_owned(), 0)]);
    let all = ["PA_1", "PA_2", "PA_3", "PA_own"];
    for _ in 0..2 {
        client.receive(Response::Update(ParticipantUpdate {
            participants: all.iter().map(|sid| participant(sid, true)).collect(),
        }));
    }
    let new = ("TR_PA_2 TR_PA_3".to_owned(), 0);
    assert_eq!(chosen(&client), [("TR_PA_1".to_owned(), 0), new]);
}

#[test]
fn offer_of_the_server_is_answered_with_its_id() {
    let mut client = TestClient::in_room(config(), &["PA_1"]);
    assert!(client.actions.contains(&SignallingAction::ExpectMedia));
    client.receive(Response::Offer(description("offer", "its offer", 41)));
    let answer = SignallingAction::AnswerOffer {
        peer: SUBSCRIBER,
        offer: "its offer".to_owned(),
    };
    assert_eq!(client.actions.last(), Some(&answer));
    client.does(|livekit, scope| livekit.local_description(scope, SUBSCRIBER, "ours"));
    let ours = Request::Answer(description("answer", "ours", 41));
    assert_eq!(client.requests.last(), Some(&ours));
    let init = r#"{"candidate":"candidate:1 1 udp 1 127.0.0.1 7882 typ host","sdpMid":"0"}"#;
    for (target, peer) in [(0, PUBLISHER), (1, SUBSCRIBER)] {
        client.receive(Response::Trickle(TrickleRequest {
            candidate_init: init.to_owned(),
            target,
            is_final: false,
        }));
        let Some(SignallingAction::RemoteCandidate {
            peer: of,
            candidate,
        }) = client.actions.last()
        else {
            panic!("{:?}", client.actions);
        };
        assert_eq!((*of, candidate.ends_with("typ host")), (peer, true));
    }
}

#[test]
fn trickled_candidates_follow_the_offer() {
    let mut client = TestClient::in_room(
        ClientConfig {
            trickle: true,
            ..config()
        },
        &[],
    );
    client.does(|livekit, scope| livekit.local_description(scope, PUBLISHER, OFFER));
    client.receive(published("video0"));
    client.receive(published("audio1"));
    let [.., Request::Offer(offer), Request::Trickle(trickle)] = &client.requests[..] else {
        panic!("{:?}", client.requests);
    };
    assert!(!offer.sdp.contains("candidate"));
    assert!(trickle.candidate_init.contains("127.0.0.1 4000 typ host"));
}

#[test]
fn media_is_expected_while_others_send() {
    let mut client = TestClient::in_room(config(), &[]);
    let update = |participants| Response::Update(ParticipantUpdate { participants });
    assert!(!client.livekit.expects_media());
    client.receive(update(vec![participant("PA_own", true)]));
    assert!(
        !client.livekit.expects_media(),
        "the client itself does not count"
    );
    client.receive(update(vec![
        participant("PA_1", true),
        participant("PA_2", true),
    ]));
    assert!(client.livekit.expects_media());
    client.receive(update(vec![participant("PA_1", false)]));
    let gone = ParticipantInfo {
        state: ParticipantState::Disconnected as i32,
        ..participant("PA_2", true)
    };
    client.receive(update(vec![gone]));
    assert!(!client.livekit.expects_media());
    let mut muted = participant("PA_3", true);
    muted.tracks[0].muted = true;
    client.receive(update(vec![muted]));
    assert!(
        !client.livekit.expects_media(),
        "muted participants do not send"
    );
}

#[test]
fn client_pings_as_requested_and_fails_without_an_answer() {
    let mut client = TestClient::in_room(config(), &[]);
    client.receive(Response::Offer(description("offer", "o", 1)));
    assert_eq!(client.livekit.deadline(), Some(ms(5_030)));
    client.now = ms(5_030);
    client.does(|livekit, scope| livekit.handle_due(scope));
    assert!(matches!(client.requests.last(), Some(Request::Ping(_))));
    client.receive(Response::Pong(Pong {
        last_ping_timestamp: 5_030,
    }));
    client.now = ms(10_030);
    client.does(|livekit, scope| livekit.handle_due(scope));
    assert_eq!(client.failure(), None, "the first was answered");
    client.now = ms(15_030);
    client.does(|livekit, scope| livekit.handle_due(scope));
    let (failure, detail) = client.failure().expect("nothing was answered");
    assert_eq!(failure, Failure::RequestTimeout);
    assert!(detail.contains("`ping`"), "{detail}");
}

#[test]
fn each_step_times_out() {
    let wait = |client: &mut TestClient, what: &str| {
        client.now = client.livekit.deadline().expect("it waits");
        client.does(|livekit, scope| livekit.handle_due(scope));
        let (failure, detail) = client.failure().expect(what);
        assert_eq!(failure, Failure::RequestTimeout);
        assert!(detail.contains(what), "{detail}");
    };
    wait(&mut TestClient::asking(config()), "the WebSocket");
    wait(&mut TestClient::new(config()), "the answer to the join");
    let quiet = || {
        let mut client = TestClient::in_room(config(), &[]);
        client.livekit.ping_at = Time::NEVER;
        client
    };
    wait(&mut quiet(), "the server's offer");
    let mut client = quiet();
    client.receive(Response::Offer(description("offer", "o", 1)));
    client.does(|livekit, scope| livekit.local_description(scope, PUBLISHER, OFFER));
    wait(&mut client, "`add_track`");
    let mut client = quiet();
    client.receive(Response::Offer(description("offer", "o", 1)));
    client.does(|livekit, scope| livekit.local_description(scope, PUBLISHER, OFFER));
    client.receive(published("video0"));
    client.receive(published("audio1"));
    wait(&mut client, "`offer`");
}

#[test]
fn refusals_are_failures_with_the_servers_words() {
    for (status, words, failure) in [
        (
            "401 Unauthorized",
            "invalid API key: other",
            Failure::Unauthorized,
        ),
        (
            "404 Not Found",
            "requested room does not exist",
            Failure::NotFound,
        ),
        ("503 Service Unavailable", "", Failure::Overloaded),
    ] {
        let mut client = TestClient::asking(config());
        let length = words.len();
        client.bytes(
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{words}").as_bytes(),
        );
        let (found, detail) = client.failure().expect(status);
        assert_eq!(found, failure);
        assert!(
            detail.contains(status) && detail.contains(words),
            "{detail}"
        );
        assert_eq!(client.counted(m::REFUSALS), 1);
        assert_eq!(client.counted(m::RESPONSES), 1);
    }
    for (reason, failure, words) in [
        (
            DisconnectReason::DuplicateIdentity as i32,
            Failure::Conflict,
            "DuplicateIdentity",
        ),
        (
            DisconnectReason::RoomDeleted as i32,
            Failure::HungUp,
            "RoomDeleted",
        ),
        (99, Failure::HungUp, "99"),
        // The reason that is sent if a PeerConnection of the client has failed.
        (
            DisconnectReason::ConnectionTimeout as i32,
            Failure::IceFailed,
            "ConnectionTimeout, Resume",
        ),
        (
            DisconnectReason::JoinFailure as i32,
            Failure::HungUp,
            "LiveKit 1.8.4; before 1.9.1",
        ),
    ] {
        let mut client = TestClient::in_room(config(), &[]);
        let action = LeaveAction::Resume as i32;
        client.receive(Response::Leave(LeaveRequest { reason, action }));
        let (found, detail) = client.failure().expect(words);
        assert_eq!(found, failure);
        assert!(detail.contains(words), "{detail}");
    }
    let mut client = TestClient::in_room(config(), &[]);
    let answer = |reason, message: &str| {
        let message = message.to_owned();
        Response::RequestResult(RequestResponse { reason, message })
    };
    client.receive(answer(RequestReason::Queued as i32, ""));
    assert_eq!(client.failure(), None);
    client.receive(answer(RequestReason::NotAllowed as i32, "may not publish"));
    let (failure, detail) = client.failure().expect("it is refused");
    assert_eq!(failure, Failure::Forbidden);
    assert!(detail.contains("may not publish"), "{detail}");
    assert_eq!(client.counted(m::RESPONSES), 2);
    // A client that fails leaves the room. The server would keep it otherwise.
    assert!(matches!(client.requests.last(), Some(Request::Leave(_))));
    // A token that does not permit subscribing.
    for subscribes in [true, false] {
        let mut client = TestClient::new(ClientConfig {
            subscribe: match subscribes {
                true => Subscribe::Together,
                false => Subscribe::Nobody,
            },
            ..config()
        });
        let own = ParticipantInfo {
            permission: Some(ParticipantPermission {
                can_subscribe: false,
            }),
            ..participant("PA_own", false)
        };
        client.receive(Response::Join(JoinResponse {
            participant: Some(own),
            ..JoinResponse::default()
        }));
        let expected = subscribes.then_some(Failure::Forbidden);
        assert_eq!(client.failure().map(|own| own.0), expected);
    }
}

#[test]
fn muted_and_undeliverable_tracks_are_known() {
    let mut client = TestClient::in_room(config(), &["PA_1", "PA_2"]);
    let mut update = |at: u64, muted: bool, state: ParticipantState| {
        let mut one = participant("PA_1", true);
        one.tracks[0].muted = muted;
        one.state = state as i32;
        client.now = ms(at);
        client.receive(Response::Update(ParticipantUpdate {
            participants: vec![one],
        }));
        client.livekit.muted_until("TR_PA_1")
    };
    let active = ParticipantState::Active;
    assert_eq!(update(1_000, false, active), None);
    assert_eq!(update(2_000, true, active), Some(Time::NEVER));
    assert_eq!(update(3_000, false, active), Some(ms(3_000)));
    assert_eq!(update(4_000, false, active), Some(ms(3_000)));
    assert_eq!(update(5_000, true, active), Some(Time::NEVER));
    let gone = ParticipantState::Disconnected;
    assert_eq!(update(6_000, true, gone), Some(ms(6_000)));
    assert_eq!(client.livekit.muted_until("TR_PA_2"), None);
    client.receive(Response::SubscriptionFailed(SubscriptionResponse {
        track_sid: "TR_PA_2".to_owned(),
        error: SubscriptionError::CodecUnsupported as i32,
    }));
    let missing = client.livekit.missing_tracks();
    assert_eq!(missing, [("TR_PA_2", "CodecUnsupported")]);
    // No participant has this track any more.
    client.receive(Response::SubscriptionFailed(SubscriptionResponse {
        track_sid: "TR_PA_1".to_owned(),
        error: SubscriptionError::TrackNotFound as i32,
    }));
    assert_eq!(client.livekit.missing_tracks().len(), 1);
    client.receive(Response::Update(ParticipantUpdate {
        participants: vec![participant("PA_2", false)],
    }));
    assert_eq!(client.livekit.missing_tracks(), []);
    // The number of tracks that are kept is bounded.
    let many = (0..30_000).map(|at| {
        let mut one = participant(&format!("PA_{at}"), true);
        one.tracks[0].muted = true;
        one
    });
    client.receive(Response::Update(ParticipantUpdate {
        participants: many.collect(),
    }));
    let known = |at: &u32| client.livekit.muted_until(&format!("TR_PA_{at}")).is_some();
    assert_eq!((0..30_000).filter(known).count(), 2 * 5_000);
}

#[test]
fn unpublishing_a_track_of_the_client_fails_it() {
    let mut client = TestClient::in_room(config(), &["PA_1"]);
    let sid = "TR_ours".to_owned();
    let track = MuteTrackRequest { sid, muted: true };
    client.receive(Response::Mute(track));
    let Some(SignallingAction::Note { kind, text }) = client.actions.last() else {
        panic!("{:?}", client.actions);
    };
    assert_eq!(*kind, "track_muted");
    assert!(text.contains("mutes track TR_ours"), "{text}");
    client.receive(Response::TrackUnpublished(TrackUnpublishedResponse {
        track_sid: "TR_ours".to_owned(),
    }));
    let (failure, detail) = client.failure().expect("it is published no more");
    assert_eq!(failure, Failure::HungUp);
    assert!(detail.contains("TR_ours"), "{detail}");
}

#[test]
fn paused_streams_are_noted() {
    let mut client = TestClient::in_room(config(), &["PA_1"]);
    let state = |state: StreamState| {
        let state = state as i32;
        let states = vec![StreamStateInfo { state }];
        Response::StreamState(StreamStateUpdate { states })
    };
    let before = client.actions.len();
    client.receive(state(StreamState::Active));
    assert_eq!(client.actions.len(), before);
    client.receive(state(StreamState::Paused));
    assert!(matches!(
        client.actions.last(),
        Some(SignallingAction::Note {
            kind: "stream_paused",
            ..
        })
    ));
}

#[test]
fn client_leaves_gracefully_and_does_not_wait_forever() {
    let mut client = TestClient::in_room(config(), &[]);
    client.does(|livekit, scope| livekit.leave(scope));
    assert!(matches!(client.requests.last(), Some(Request::Leave(_))));
    client.does(|livekit, scope| livekit.closed(scope, Connection::First, CloseReason::End));
    assert_eq!(client.actions.last(), Some(&SignallingAction::Left));
    let mut silent = TestClient::in_room(config(), &[]);
    silent.does(|livekit, scope| livekit.leave(scope));
    silent.now = silent.livekit.deadline().expect("it waits");
    silent.does(|livekit, scope| livekit.handle_due(scope));
    assert_eq!(silent.actions.last(), Some(&SignallingAction::Left));
    let mut early = TestClient::asking(config());
    early.does(|livekit, scope| livekit.leave(scope));
    assert_eq!(early.actions.last(), Some(&SignallingAction::Left));
}

#[test]
fn oversized_and_malformed_messages_fail_the_client() {
    let mut client = TestClient::in_room(config(), &[]);
    let long = "a".repeat(SDP_BYTES_MAX + 1);
    client.receive(Response::Offer(description("offer", &long, 1)));
    assert_eq!(client.failure().map(|own| own.0), Some(Failure::SdpTooLong));
    let mut client = TestClient::in_room(config(), &[]);
    // Deeply nested messages.
    let mut nested = Vec::new();
    for _ in 0..1_000 {
        let mut outer = vec![0x0a];
        prost::encode_length_delimiter(nested.len(), &mut outer).expect("a vector grows");
        outer.append(&mut nested);
        nested = outer;
    }
    client.receive_bytes(&nested);
    client.receive_bytes(&[0x0a, 0xff]);
    assert_eq!(
        client.failure().map(|own| own.0),
        Some(Failure::MalformedMessage)
    );
    // A message full of participants, of which a limited number is kept.
    let mut client = TestClient::in_room(config(), &[]);
    let many = (0..20_000).map(|at| participant(&format!("PA_{at}"), true));
    client.receive(Response::Update(ParticipantUpdate {
        participants: many.collect(),
    }));
    assert_eq!(client.livekit.room.len(), crate::signalling::FEEDS_MAX);
    let mut client = TestClient::in_room(config(), &[]);
    client.receive_bytes(&vec![0; MESSAGE_BYTES_MAX + 1]);
    assert_eq!(
        client.failure().map(|own| own.0),
        Some(Failure::MalformedMessage)
    );
}

proptest! {
    /// Arbitrary messages in arbitrary pieces never panic, and nothing follows a failure.
    #[test]
    fn arbitrary_messages_never_panic(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8),
        cut in 1_usize..40,
        joined in any::<bool>(),
    ) {
        let mut client = match joined {
            true => TestClient::in_room(config(), &["PA_1"]),
            false => TestClient::new(config()),
        };
        let mut all = Vec::new();
        for message in &messages {
            websocket::write_message(websocket::BINARY, message, None, &mut all);
        }
        for piece in all.chunks(cut) {
            client.bytes(piece);
        }
        let failures = client.actions.iter().filter(|own| matches!(own, SignallingAction::Failed { .. }));
        prop_assert!(failures.count() <= 1);
        if let Some(at) = client.actions.iter().position(|own| matches!(own, SignallingAction::Failed { .. })) {
            prop_assert_eq!(at, client.actions.len() - 1);
        }
    }

    /// Descriptions that one side writes are read by the other, and undeclared fields are ignored.
    #[test]
    fn descriptions_round_trip(sdp in ".{0,200}", id in any::<u32>(), more in any::<u64>()) {
        let sent = SignalResponse {
            message: Some(Response::Offer(description("offer", &sdp, id))),
        };
        let mut bytes = sent.encode_to_vec();
        // Field 24 as a varint: an undeclared kind of message.
        prost::encoding::encode_key(24, prost::encoding::WireType::Varint, &mut bytes);
        prost::encoding::encode_varint(more, &mut bytes);
        prop_assert_eq!(SignalResponse::decode(&bytes[..]), Ok(sent));
    }
}

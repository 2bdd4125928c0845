//! LiveKit: Protocol Buffers messages over a WebSocket, whose request also joins a room.
//!
//! Each client has at most two PeerConnections. It offers the one in which it publishes. The server
//! offers the other one, over which all other participants arrive, and offers it again when a
//! participant starts or stops publishing. livekit/protocol defines the protocol.

mod keys;
mod message;
mod room;
mod token;
mod tracks;

pub use tracks::LAYER_RIDS;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use prost::Message as _;

use super::websocket::WebsocketClient;
use super::{
    Connection, Direction, PeerNumber, Signalling, SignallingAction, SignallingContext,
    SignallingTarget,
};
use crate::config::ClientConfig;
use crate::failure::Failure;
use crate::metrics as m;
use kit::http1::Url;
use kit::websocket;
use session::CloseReason;
use session::seeds::derive_seed;

use message::{
    DisconnectReason, LeaveAction, LeaveRequest, Ping, Request, RequestReason, Response,
    SessionDescription, SignalRequest, SignalResponse, SignalTarget, StreamState,
    SubscriptionError, TrickleRequest,
};
use room::RoomState;
use token::{Grant, token};

/// Version of the protocol: the first in which a server reports what it refuses.
const VERSION: u32 = 15;

/// Maximum length of a message, in bytes. The list of a room of a thousand is shorter.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Maximum length of a description, in bytes. The server writes about 3,000 for each participant
/// with audio and video, because it offers all codecs again.
const SDP_BYTES_MAX: usize = 1_000_000;

/// Bounds of the ping interval that a server may request.
const PING_INTERVAL_MIN: Duration = Duration::from_secs(1);
const PING_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// PeerConnection in which the client publishes.
const PUBLISHER: PeerNumber = PeerNumber(0);
/// PeerConnection in which the client receives.
const SUBSCRIBER: PeerNumber = PeerNumber(1);

/// Progress of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Connecting,
    /// The WebSocket was requested, and the room with it.
    Upgrading,
    /// The WebSocket is open.
    Joining,
    InRoom,
    /// The leave request was sent.
    Leaving,
    Ended,
}

/// Client in a room of LiveKit.
#[derive(Debug)]
pub struct LiveKit {
    config: Arc<ClientConfig>,
    /// Name of the room.
    room_name: String,
    seed: u64,
    server_url: Url,
    /// URL in failure details, without user name and password.
    shown_url: String,
    /// Wall-clock time at [`Time::ZERO`], since 1970.
    wall_clock: Duration,
    phase: Phase,
    socket: WebsocketClient,
    /// Start of the current step.
    step_started_at: Time,
    /// True if the connection is open or being opened.
    has_connection: bool,
    room: RoomState,
    server_version: String,
    /// Tracks that were announced to the server, and that it has not accepted yet.
    unaccepted_tracks: Vec<String>,
    /// Time when they were announced.
    tracks_announced_at: Time,
    /// Our offer, until the server has accepted its tracks.
    pending_offer: Option<String>,
    /// Time when our offer was sent. `None` once it is answered.
    offer_sent_at: Option<Time>,
    /// Time since which the server's first offer is awaited.
    offer_awaited_since: Option<Time>,
    /// Id of the server's last offer.
    offer_id: u32,
    /// Ping interval that the server has requested.
    ping_interval: Option<Duration>,
    /// Time of the next ping.
    ping_at: Time,
    /// Time of the first ping that is unanswered.
    ping_sent_at: Option<Time>,
}

impl LiveKit {
    /// Creates a client in the room with this name, of the server at this URL of a WebSocket.
    /// Random values are drawn from `seed`.
    pub fn new(config: Arc<ClientConfig>, room_name: String, url: Url, seed: u64) -> LiveKit {
        let secure = if url.is_secure() { "s" } else { "" };
        let path = url.target().trim_end_matches('/').to_owned();
        LiveKit {
            shown_url: format!("ws{secure}://{}{path}/rtc", url.authority()),
            config,
            room_name,
            seed,
            server_url: url,
            wall_clock: Duration::ZERO,
            phase: Phase::Idle,
            socket: WebsocketClient::new(MESSAGE_BYTES_MAX, seed),
            step_started_at: Time::ZERO,
            has_connection: false,
            room: RoomState::default(),
            server_version: String::new(),
            unaccepted_tracks: Vec::new(),
            tracks_announced_at: Time::ZERO,
            pending_offer: None,
            offer_sent_at: None,
            offer_awaited_since: None,
            offer_id: 0,
            ping_interval: None,
            ping_at: Time::NEVER,
            ping_sent_at: None,
        }
    }

    /// Returns the token for the server.
    fn token(&self, now: Time) -> Option<String> {
        if let Some(token) = &self.config.token {
            return Some(token.clone());
        }
        let api_key = self.config.api_key.as_ref()?;
        let secret = self.config.api_secret.as_ref()?;
        // Two runs with one seed, perhaps on two machines, would otherwise have clients with the
        // same identities. The server would then remove the earlier clients.
        let run = self.wall_clock.as_nanos() as u64;
        let identity = derive_seed(&[self.seed, 22, run]);
        let identity = format!("streamgauge-{identity:016x}");
        let grant = Grant {
            api_key,
            identity: &identity,
            room: &self.room_name,
            publishes: self.config.participate.is_some(),
            subscribes: self.config.receives_others(),
        };
        Some(token(
            &grant,
            secret,
            self.wall_clock + now.since(Time::ZERO),
        ))
    }

    fn send(&mut self, scope: &mut SignallingContext<'_>, request: Request) {
        let message = SignalRequest {
            message: Some(request),
        };
        self.socket
            .send(scope, websocket::BINARY, &message.encode_to_vec());
    }

    fn fail(&mut self, scope: &mut SignallingContext<'_>, failure: Failure, what: impl Display) {
        if self.phase == Phase::Ended {
            return;
        }
        if self.has_connection && matches!(self.phase, Phase::Joining | Phase::InRoom) {
            // Otherwise the client would stay in the room without sending, until the server's ICE
            // fails.
            self.send(scope, leave_request());
        }
        self.phase = Phase::Ended;
        scope.disconnect(&mut self.has_connection);
        scope.fail(failure, format!("{what} ({})", self.shown_url));
    }

    fn finish(&mut self, scope: &mut SignallingContext<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        scope.disconnect(&mut self.has_connection);
        scope.push(SignallingAction::Left);
    }

    /// Handles bytes of the answer to the request for a WebSocket. Returns `true` once it is open.
    fn upgrade(&mut self, scope: &mut SignallingContext<'_>, bytes: &mut &[u8]) -> bool {
        match self.socket.handle_upgrade(bytes) {
            Ok(true) => {}
            Ok(false) => return false,
            Err((status, why)) => {
                let failure = status.map_or(Failure::WebsocketRefused, Failure::from_status);
                if status.is_some() {
                    scope.recorder.add(m::RESPONSES, 1);
                    scope.recorder.add(m::REFUSALS, 1);
                }
                self.fail(scope, failure, why);
                return false;
            }
        }
        scope.record_delay(m::WEBSOCKET_DELAY, self.step_started_at);
        self.phase = Phase::Joining;
        true
    }

    fn message(&mut self, scope: &mut SignallingContext<'_>, message: Response) {
        if self.phase == Phase::Leaving {
            if let Response::Leave(_) = message {
                self.finish(scope);
            }
            return;
        }
        match message {
            Response::Join(joined) if self.phase == Phase::Joining => self.joined(scope, joined),
            Response::Leave(leave) => self.handle_leave(scope, &leave),
            Response::RequestResult(answer) => {
                let reason = RequestReason::try_from(answer.reason);
                if matches!(reason, Ok(RequestReason::Ok | RequestReason::Queued)) {
                    return;
                }
                scope.recorder.add(m::RESPONSES, 1);
                scope.recorder.add(m::REFUSALS, 1);
                let name = reason.map_or(answer.reason.to_string(), |reason| format!("{reason:?}"));
                let failure = match reason {
                    Ok(RequestReason::NotAllowed) => Failure::Forbidden,
                    Ok(RequestReason::NotFound) => Failure::NotFound,
                    Ok(RequestReason::LimitExceeded) => Failure::Overloaded,
                    _ => Failure::OtherRefusal,
                };
                let words = shortened(&answer.message);
                self.fail(scope, failure, format!("{name}: {words}"));
            }
            // All other messages are for clients in the room.
            _ if self.phase != Phase::InRoom => {}
            Response::Offer(offer) => self.handle_offer(scope, offer),
            Response::Answer(answer) => self.handle_answer(scope, answer),
            Response::Trickle(trickle) => candidate(scope, &trickle),
            Response::Update(update) => {
                self.room.update(scope.now, &update.participants);
                self.choose_layers(scope, &update.participants);
            }
            Response::TrackPublished(published) => {
                let before = self.unaccepted_tracks.len();
                self.unaccepted_tracks.retain(|own| *own != published.cid);
                if self.unaccepted_tracks.len() < before {
                    scope.recorder.add(m::RESPONSES, 1);
                }
                self.offer_if_ready(scope);
            }
            Response::StreamState(update) => {
                let mut states = update.states.iter();
                if states.any(|own| own.state == StreamState::Paused as i32) {
                    let text = format!("the server paused streams ({})", self.shown_url);
                    scope.note("stream_paused", text);
                }
            }
            Response::TrackUnpublished(track) => {
                let track = shortened(&track.track_sid);
                let what = format!("the server unpublished track {track}");
                self.fail(scope, Failure::HungUp, what);
            }
            Response::Mute(track) => {
                let what = if track.muted { "mutes" } else { "unmutes" };
                let track = shortened(&track.sid);
                let text = format!("the server {what} track {track} ({})", self.shown_url);
                scope.note("track_muted", text);
            }
            Response::SubscriptionFailed(failed) => {
                let error = SubscriptionError::try_from(failed.error);
                let why = error.map_or(failed.error.to_string(), |error| format!("{error:?}"));
                self.room.set_missing(&failed.track_sid, why);
            }
            Response::Pong(_) => {
                if self.ping_sent_at.take().is_some() {
                    scope.recorder.add(m::RESPONSES, 1);
                }
            }
            Response::Join(_) => {}
        }
    }

    fn joined(&mut self, scope: &mut SignallingContext<'_>, joined: message::JoinResponse) {
        scope.recorder.add(m::RESPONSES, 1);
        scope.record_delay(m::JOIN_DELAY, self.step_started_at);
        self.phase = Phase::InRoom;
        self.server_version = shortened(&joined.server_version);
        let permission = joined.participant.as_ref().and_then(|own| own.permission);
        if self.config.receives_others() && permission.is_some_and(|own| !own.can_subscribe) {
            let what = "the token does not permit subscribing: write `subscribe: nobody`";
            return self.fail(scope, Failure::Forbidden, what);
        }
        self.room.own_sid = joined.participant.map(|own| own.sid);
        self.room.update(scope.now, &joined.other_participants);
        self.choose_layers(scope, &joined.other_participants);
        let interval = u64::try_from(joined.ping_interval).unwrap_or(0);
        if interval > 0 {
            let interval =
                Duration::from_secs(interval).clamp(PING_INTERVAL_MIN, PING_INTERVAL_MAX);
            self.ping_interval = Some(interval);
            self.ping_at = scope.now + interval;
        }
        if self.config.participate.is_some() {
            scope.push(SignallingAction::CreateOffer {
                peer: PUBLISHER,
                direction: Direction::Send,
            });
        }
        if self.config.receives_others() {
            self.offer_awaited_since = Some(scope.now);
            if self.room.has_publishers() {
                scope.push(SignallingAction::ExpectMedia);
            }
        }
    }

    fn handle_leave(&mut self, scope: &mut SignallingContext<'_>, leave: &LeaveRequest) {
        let reason = DisconnectReason::try_from(leave.reason);
        let failure = match reason {
            Ok(DisconnectReason::DuplicateIdentity) => Failure::Conflict,
            // The server sends this reason if a PeerConnection has failed.
            Ok(DisconnectReason::ConnectionTimeout) => Failure::IceFailed,
            _ => Failure::HungUp,
        };
        let name = reason.map_or(leave.reason.to_string(), |reason| format!("{reason:?}"));
        let action = LeaveAction::try_from(leave.action);
        let action = action.map_or(leave.action.to_string(), |action| format!("{action:?}"));
        let mut what = format!("told to leave: {name}, {action}");
        if reason == Ok(DisconnectReason::JoinFailure) {
            // Before livekit/livekit 1.9.1, a client without data channels counts as never
            // connected.
            what = format!(
                "{what} (LiveKit {}; before 1.9.1 it removes clients without data channels after \
                 a minute)",
                self.server_version
            );
        }
        self.fail(scope, failure, what);
    }

    /// Handles an offer of the server.
    fn handle_offer(&mut self, scope: &mut SignallingContext<'_>, offer: SessionDescription) {
        if let Some(since) = self.offer_awaited_since.take() {
            scope.record_delay(m::OFFER_DELAY, since);
        }
        self.offer_id = offer.id;
        let peer = SUBSCRIBER;
        self.pass_on(scope, offer.sdp, |offer| SignallingAction::AnswerOffer {
            peer,
            offer,
        });
    }

    /// Handles the answer to our offer. An unexpected answer is ignored.
    fn handle_answer(&mut self, scope: &mut SignallingContext<'_>, answer: SessionDescription) {
        let Some(since) = self.offer_sent_at.take() else {
            return;
        };
        scope.recorder.add(m::RESPONSES, 1);
        scope.record_delay(m::ANSWER_DELAY, since);
        let peer = PUBLISHER;
        self.pass_on(scope, answer.sdp, |answer| SignallingAction::RemoteAnswer {
            peer,
            answer,
        });
    }

    /// Passes a description on, unless it is too long.
    fn pass_on(
        &mut self,
        scope: &mut SignallingContext<'_>,
        sdp: String,
        action: impl FnOnce(String) -> SignallingAction,
    ) {
        if sdp.len() > SDP_BYTES_MAX {
            let what = format!("a session description of {} bytes", sdp.len());
            return self.fail(scope, Failure::SdpTooLong, what);
        }
        scope.push(action(sdp));
    }

    /// Sends one of our descriptions, followed by its candidates if they trickle.
    fn send_description(
        &mut self,
        scope: &mut SignallingContext<'_>,
        target: SignalTarget,
        id: u32,
        sdp: String,
    ) {
        let (sdp, candidates) = match self.config.trickle {
            true => super::split_candidates(&sdp),
            false => (sdp, Vec::new()),
        };
        let description = |kind: &str, sdp: String| SessionDescription {
            kind: kind.to_owned(),
            sdp,
            id,
        };
        let request = match target {
            SignalTarget::Publisher => Request::Offer(description("offer", sdp)),
            SignalTarget::Subscriber => Request::Answer(description("answer", sdp)),
        };
        self.send(scope, request);
        for candidate in candidates {
            let init = serde_json::json!({"candidate": candidate, "sdpMLineIndex": 0});
            let request = TrickleRequest {
                candidate_init: init.to_string(),
                target: target as i32,
                is_final: false,
            };
            self.send(scope, Request::Trickle(request));
        }
    }

    /// Returns what has been awaited from the server for longest, and since when.
    fn oldest_awaited(&self) -> Option<(&'static str, Time)> {
        let tracks = (!self.unaccepted_tracks.is_empty()).then_some(self.tracks_announced_at);
        let step = match self.phase {
            Phase::Upgrading => Some(("the WebSocket handshake", self.step_started_at)),
            Phase::Joining => Some(("the answer to the join request", self.step_started_at)),
            Phase::Leaving => return Some(("the end of the session", self.step_started_at)),
            Phase::InRoom => None,
            Phase::Idle | Phase::Connecting | Phase::Ended => return None,
        };
        let all = [
            step,
            tracks.map(|since| ("the answer to `add_track`", since)),
            self.offer_sent_at
                .map(|since| ("the answer to `offer`", since)),
            self.offer_awaited_since
                .map(|since| ("the server's offer", since)),
            self.ping_sent_at
                .map(|since| ("the answer to `ping`", since)),
        ];
        all.into_iter().flatten().min_by_key(|(_, since)| *since)
    }
}

impl Signalling for LiveKit {
    fn begin(&mut self, scope: &mut SignallingContext<'_>) {
        self.phase = Phase::Connecting;
        self.step_started_at = scope.now;
        self.has_connection = true;
        let target = SignallingTarget::of(&self.server_url);
        scope.push(SignallingAction::Connect(Connection::First, target));
    }

    fn set_wall_clock(&mut self, wall_clock: Duration) {
        self.wall_clock = wall_clock;
    }

    fn connected(&mut self, scope: &mut SignallingContext<'_>, _: Connection) {
        if self.phase != Phase::Connecting {
            return;
        }
        let subscribe = u8::from(self.config.receives_others());
        let url = format!(
            "{}?protocol={VERSION}&auto_subscribe={subscribe}",
            self.shown_url
        );
        let (Ok(url), Some(token)) = (websocket::parse_url(&url), self.token(scope.now)) else {
            return self.fail(scope, Failure::Unauthorized, "no token");
        };
        self.phase = Phase::Upgrading;
        self.step_started_at = scope.now;
        scope.recorder.add(m::REQUESTS, 1);
        let config = &self.config;
        let authorization = format!("Bearer {token}");
        let mut headers = vec![
            ("User-Agent", config.user_agent.as_str()),
            ("Authorization", &authorization),
        ];
        headers.extend(config.headers.of_request(true));
        self.socket.send_upgrade(scope, &url, &[], &headers);
    }

    fn bytes(&mut self, scope: &mut SignallingContext<'_>, _: Connection, mut bytes: &[u8]) {
        if self.phase == Phase::Upgrading && !self.upgrade(scope, &mut bytes) {
            return;
        }
        while self.phase != Phase::Ended {
            match self.socket.next(scope, &mut bytes) {
                Ok(None) => break,
                Ok(Some(body)) => match SignalResponse::decode(&body[..]) {
                    Ok(SignalResponse {
                        message: Some(message),
                    }) => self.message(scope, message),
                    // A kind of message that is not used here.
                    Ok(SignalResponse { message: None }) => {}
                    Err(why) => self.fail(scope, Failure::MalformedMessage, why),
                },
                Err((Failure::SignallingClosed, _)) if self.phase == Phase::Leaving => {
                    self.finish(scope)
                }
                Err((failure, what)) => self.fail(scope, failure, what),
            }
        }
    }

    fn closed(&mut self, scope: &mut SignallingContext<'_>, _: Connection, how: CloseReason) {
        self.has_connection = false;
        if self.phase == Phase::Leaving {
            return self.finish(scope);
        }
        let (failure, what) = super::closed_failure(how);
        self.fail(scope, failure, what);
    }

    fn local_description(
        &mut self,
        scope: &mut SignallingContext<'_>,
        peer: PeerNumber,
        sdp: &str,
    ) {
        if self.phase != Phase::InRoom {
            return;
        }
        if peer == PUBLISHER {
            self.pending_offer = Some(sdp.to_owned());
            self.add_tracks(scope, sdp);
            return self.offer_if_ready(scope);
        }
        self.send_description(
            scope,
            SignalTarget::Subscriber,
            self.offer_id,
            sdp.to_owned(),
        );
    }

    fn deadline(&self) -> Option<Time> {
        let timeout = self.config.request_timeout.0;
        let answer = self.oldest_awaited().map(|(_, since)| since + timeout);
        let ping =
            (self.phase == Phase::InRoom && self.ping_at != Time::NEVER).then_some(self.ping_at);
        answer.into_iter().chain(ping).min()
    }

    fn handle_due(&mut self, scope: &mut SignallingContext<'_>) {
        let timeout = self.config.request_timeout.0;
        if let Some((what, since)) = self.oldest_awaited()
            && scope.now >= since + timeout
        {
            if self.phase == Phase::Leaving {
                return self.finish(scope);
            }
            let what = format!("waited for {what} for {:.3} s", timeout.as_secs_f64());
            return self.fail(scope, Failure::RequestTimeout, what);
        }
        if let Some(interval) = self.ping_interval
            && self.phase == Phase::InRoom
            && scope.now >= self.ping_at
        {
            self.ping_at = scope.now + interval;
            self.ping_sent_at.get_or_insert(scope.now);
            scope.recorder.add(m::REQUESTS, 1);
            let timestamp = scope.now.since(Time::ZERO).as_millis() as i64;
            self.send(scope, Request::Ping(Ping { timestamp }));
        }
    }

    fn leave(&mut self, scope: &mut SignallingContext<'_>) {
        match self.phase {
            Phase::InRoom => {
                // The server closes the connection.
                self.send(scope, leave_request());
                self.phase = Phase::Leaving;
                self.step_started_at = scope.now;
            }
            Phase::Leaving | Phase::Ended => {}
            _ => self.finish(scope),
        }
    }

    fn expects_media(&self) -> bool {
        self.config.receives_others() && self.room.has_publishers()
    }

    fn muted_until(&self, track: &str) -> Option<Time> {
        self.room.muted_until(track)
    }

    fn missing_tracks(&self) -> Vec<(&str, &str)> {
        let all = self.room.missing.iter();
        all.map(|(track, why)| (&track[..], &why[..])).collect()
    }

    fn awaited(&self) -> Option<(Time, String)> {
        let (what, since) = match self.phase {
            Phase::Connecting => ("a connection", self.step_started_at),
            _ => self.oldest_awaited()?,
        };
        Some((since, format!("for {what} ({})", self.shown_url)))
    }
}

/// Returns the message by which the client leaves.
fn leave_request() -> Request {
    Request::Leave(LeaveRequest {
        reason: DisconnectReason::ClientInitiated as i32,
        action: LeaveAction::Disconnect as i32,
    })
}

/// Passes a candidate of the server on.
fn candidate(scope: &mut SignallingContext<'_>, trickle: &TrickleRequest) {
    let Ok(init) = serde_json::from_str::<serde_json::Value>(&trickle.candidate_init) else {
        return;
    };
    let peer = match SignalTarget::try_from(trickle.target) {
        Ok(SignalTarget::Publisher) => PUBLISHER,
        Ok(SignalTarget::Subscriber) => SUBSCRIBER,
        Err(_) => return,
    };
    if let Some(candidate) = init["candidate"].as_str().filter(|text| !text.is_empty()) {
        scope.push(SignallingAction::RemoteCandidate {
            peer,
            candidate: candidate.to_owned(),
        });
    }
}

/// Returns the first 200 characters of a server's text.
fn shortened(words: &str) -> String {
    words.chars().take(200).collect()
}

#[cfg(test)]
mod tests;

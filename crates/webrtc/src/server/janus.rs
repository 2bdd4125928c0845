//! Rooms over a WebSocket, with those messages of Janus' API that a participant needs
//! (<https://janus.conf.meetecho.com/docs/rest.html>, plug-in VideoRoom). Clients of Janus work
//! unchanged. A room is created when its first participant joins.

mod subscriber;
mod videoroom;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use measure::Time;
use serde_json::{Value, json};

use super::faults::Silence;
use super::rooms::announce_change;
use super::{Shared, add, send};
use crate::url::JanusId;
use kit::websocket::{self, Limits, Reassembler, Received, ServerHandshake};
use session::Context;
use subscriber::Subscriber;

/// WebSocket subprotocol of Janus.
const SUBPROTOCOL: &str = "janus-protocol";

/// Maximum length of a message, in bytes: a description and the JSON around it.
const MESSAGE_MAX: usize = 512 * 1024;

const LIMITS: Limits = Limits {
    keep_max: MESSAGE_MAX,
    length_max: MESSAGE_MAX as u64,
};

/// Idle timeout of a session (`session_timeout`).
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of handles per session.
const HANDLES_MAX: usize = 10_000;

/// Error codes of Janus and of VideoRoom.
mod code {
    pub(super) const UNAUTHORIZED: u64 = 403;
    pub(super) const UNKNOWN_REQUEST: u64 = 453;
    pub(super) const INVALID_JSON: u64 = 454;
    pub(super) const SESSION_NOT_FOUND: u64 = 458;
    pub(super) const HANDLE_NOT_FOUND: u64 = 459;
    pub(super) const PLUGIN_NOT_FOUND: u64 = 460;
    pub(super) const UNKNOWN: u64 = 490;

    pub(super) const INVALID_REQUEST: u64 = 423;
    pub(super) const JOIN_FIRST: u64 = 424;
    pub(super) const ALREADY_JOINED: u64 = 425;
    pub(super) const NO_SUCH_ROOM: u64 = 426;
    pub(super) const ROOM_EXISTS: u64 = 427;
    pub(super) const NO_SUCH_FEED: u64 = 428;
    pub(super) const INVALID_ELEMENT: u64 = 430;
    pub(super) const PUBLISHERS_FULL: u64 = 432;
    pub(super) const ALREADY_PUBLISHED: u64 = 434;
    pub(super) const NOT_PUBLISHED: u64 = 435;
    pub(super) const INVALID_SDP: u64 = 437;
}

/// Reason for a refusal: a code and a text.
type JanusError = (u64, String);

fn janus_error(code: u64, why: &str) -> JanusError {
    (code, why.to_owned())
}

/// Participant of a room.
#[derive(Debug)]
struct JoinedParticipant {
    room: JanusId,
    number: u64,
    /// Topic on which changes of the room are announced.
    topic: String,
    /// ID of the participant's PeerConnection, while it publishes.
    peer_id: Option<String>,
    /// Publishers that the participant was notified of, with the numbers of their PeerConnections.
    known_publishers: BTreeMap<u64, u64>,
}

impl JoinedParticipant {
    /// Ends what the participant publishes. Returns false if it publishes nothing.
    fn unpublish(&mut self, cx: &mut Context<'_>, shared: &Shared) -> bool {
        let Some(peer_id) = self.peer_id.take() else {
            return false;
        };
        let topic = shared.rooms().stop_publishing(&self.room, self.number);
        announce_change(cx, topic);
        shared.end_peer(cx, &peer_id);
        true
    }
}

/// Use of a handle.
#[derive(Debug)]
enum HandleUse {
    Unused,
    Participant(Box<JoinedParticipant>),
    Subscriber(Box<Subscriber>),
}

/// WebSocket connection of a Janus client.
#[derive(Debug)]
pub(super) struct JanusConnection {
    shared: Arc<Shared>,
    local: SocketAddr,
    acceptance: Option<ServerHandshake>,
    assembly: Reassembler,
    /// ID of the session, once it is created.
    session: Option<u64>,
    handles: BTreeMap<u64, HandleUse>,
    /// Time at which the connection is closed if nothing arrives.
    pub(super) idle_deadline: Time,
    ended: bool,
}

impl JanusConnection {
    pub(super) fn new(now: Time, shared: Arc<Shared>, local: SocketAddr) -> JanusConnection {
        JanusConnection {
            shared,
            local,
            acceptance: Some(ServerHandshake::new(&[SUBPROTOCOL])),
            assembly: Reassembler::default(),
            session: None,
            handles: BTreeMap::new(),
            idle_deadline: now + IDLE_TIMEOUT,
            ended: false,
        }
    }

    /// Handles received bytes. Returns `false` if the connection ends. An error says why the
    /// WebSocket handshake failed.
    pub(super) fn bytes(
        &mut self,
        cx: &mut Context<'_>,
        mut bytes: &[u8],
    ) -> Result<bool, &'static str> {
        self.idle_deadline = cx.now + IDLE_TIMEOUT;
        if let Some(acceptance) = &mut self.acceptance {
            let Some(answer) = acceptance.read_request(&mut bytes)? else {
                return Ok(true);
            };
            self.acceptance = None;
            send(cx, answer);
        }
        let mut assembly = std::mem::take(&mut self.assembly);
        while !self.ended {
            match assembly.next(true, &LIMITS, &mut bytes) {
                Ok(None) => break,
                Ok(Some(Received::Message(frame))) => {
                    self.handle_message(cx, frame.body.unwrap_or_default())
                }
                Ok(Some(Received::Ping(payload))) => {
                    let mut out = Vec::new();
                    websocket::write_control(websocket::PONG, payload, None, &mut out);
                    send(cx, out);
                }
                Ok(Some(Received::Close(_))) => {
                    let mut out = Vec::new();
                    let code = websocket::NORMAL.to_be_bytes();
                    websocket::write_control(websocket::CLOSE, &code, None, &mut out);
                    send(cx, out);
                    self.ended = true;
                }
                Err(_) => self.ended = true,
            }
        }
        self.assembly = assembly;
        Ok(!self.ended)
    }

    /// Handles one message.
    fn handle_message(&mut self, cx: &mut Context<'_>, body: &[u8]) {
        let counters = &self.shared.counters;
        add(&counters.requests, 1);
        if self.shared.config.faults.silent == Some(Silence::Http) {
            return;
        }
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return self.refuse(cx, &Value::Null, code::INVALID_JSON, "not JSON");
        };
        let result = match message["janus"].as_str() {
            _ if !self.is_authorized(&message) => {
                add(&self.shared.counters.unauthorized, 1);
                Err(janus_error(code::UNAUTHORIZED, "missing or wrong token"))
            }
            Some("create") if self.session.is_none() => {
                let id = self.draw_id();
                self.session = Some(id);
                Ok(json!({"janus": "success", "data": {"id": id}}))
            }
            _ if self.session.is_none() || message["session_id"].as_u64() != self.session => {
                Err(janus_error(code::SESSION_NOT_FOUND, "no such session"))
            }
            Some("keepalive") => Ok(json!({"janus": "ack"})),
            Some("destroy") => {
                self.end(cx);
                Ok(json!({"janus": "success"}))
            }
            Some("attach") => self.attach(&message),
            Some(request @ ("detach" | "hangup" | "trickle" | "message")) => {
                return self.handle_request(cx, request, &message);
            }
            _ => Err(janus_error(code::UNKNOWN_REQUEST, "unknown request")),
        };
        match result {
            Ok(answer) => self.answer(cx, &message, answer),
            Err((code, why)) => self.refuse(cx, &message, code, &why),
        }
    }

    fn is_authorized(&self, message: &Value) -> bool {
        let token = self.shared.config.token.as_ref();
        token.is_none_or(|token| message["token"].as_str() == Some(token))
    }

    /// Draws an ID for a session or a handle.
    fn draw_id(&mut self) -> u64 {
        let number = self.shared.janus_id_count.fetch_add(1, Ordering::Relaxed);
        // JavaScript represents integers exactly up to 53 bits.
        self.shared.seeded_random(number, &[30]) >> 11
    }

    fn attach(&mut self, message: &Value) -> Result<Value, JanusError> {
        if message["plugin"].as_str() != Some("janus.plugin.videoroom") {
            return Err(janus_error(code::PLUGIN_NOT_FOUND, "only VideoRoom exists"));
        }
        if self.handles.len() >= HANDLES_MAX {
            return Err(janus_error(code::UNKNOWN, "too many handles"));
        }
        let id = self.draw_id();
        self.handles.insert(id, HandleUse::Unused);
        Ok(json!({"janus": "success", "data": {"id": id}}))
    }

    /// Handles a message that is addressed to a handle.
    fn handle_request(&mut self, cx: &mut Context<'_>, request: &str, message: &Value) {
        let id = message["handle_id"].as_u64().unwrap_or(0);
        let Some(handle_use) = self.handles.get_mut(&id) else {
            return self.refuse(cx, message, code::HANDLE_NOT_FOUND, "no such handle");
        };
        match request {
            // The server only answers checks, so it needs no candidates of the client.
            "trickle" => self.answer(cx, message, json!({"janus": "ack"})),
            "hangup" => {
                // A participant remains in the room; only the PeerConnection ends.
                match handle_use {
                    HandleUse::Participant(participant) => {
                        participant.unpublish(cx, &self.shared);
                    }
                    _ => {
                        let handle_use = std::mem::replace(handle_use, HandleUse::Unused);
                        self.release(cx, handle_use);
                    }
                }
                self.answer(cx, message, json!({"janus": "success"}));
            }
            "detach" => {
                let handle_use = std::mem::replace(handle_use, HandleUse::Unused);
                self.release(cx, handle_use);
                self.handles.remove(&id);
                self.answer(cx, message, json!({"janus": "success"}));
            }
            _ => self.plugin_message(cx, id, message),
        }
    }

    /// Releases what a handle used.
    fn release(&mut self, cx: &mut Context<'_>, handle_use: HandleUse) {
        match handle_use {
            HandleUse::Unused => {}
            HandleUse::Participant(participant) => {
                let topic = self
                    .shared
                    .rooms()
                    .leave(&participant.room, participant.number);
                announce_change(cx, topic);
                if let Some(id) = participant.peer_id {
                    self.shared.end_peer(cx, &id);
                }
            }
            HandleUse::Subscriber(subscriber) => {
                self.shared.end_peer(cx, &subscriber.id);
            }
        }
    }

    /// Releases all handles at the end of the connection.
    pub(super) fn end(&mut self, cx: &mut Context<'_>) {
        for (_, handle_use) in std::mem::take(&mut self.handles) {
            self.release(cx, handle_use);
        }
        self.session = None;
    }

    /// Handles a change in a room.
    pub(super) fn room_changed(&mut self, cx: &mut Context<'_>, topic: &str) {
        let ids: Vec<u64> = self.handles.keys().copied().collect();
        for id in ids {
            self.notify_changes(cx, id, topic);
            self.check_peer_ended(cx, id);
        }
    }

    /// Notifies the client if a handle's PeerConnection has ended. The handle can then be used
    /// again.
    fn check_peer_ended(&mut self, cx: &mut Context<'_>, id: u64) {
        let Some(handle_use) = self.handles.get_mut(&id) else {
            return;
        };
        let peer_id = match handle_use {
            HandleUse::Unused => None,
            HandleUse::Participant(participant) => participant.peer_id.as_deref(),
            HandleUse::Subscriber(subscriber) => Some(&subscriber.id[..]),
        };
        if peer_id.is_none_or(|peer_id| self.shared.registry().find(peer_id).is_some()) {
            return;
        }
        match handle_use {
            HandleUse::Participant(participant) => participant.peer_id = None,
            other => *other = HandleUse::Unused,
        }
        let reason = "the PeerConnection ended";
        self.send(
            cx,
            json!({"janus": "hangup", "sender": id, "reason": reason}),
        );
    }

    /// Sends the answer to a message.
    fn answer(&self, cx: &mut Context<'_>, message: &Value, mut answer: Value) {
        if !message["transaction"].is_null() {
            answer["transaction"] = message["transaction"].clone();
        }
        self.send(cx, answer);
    }

    fn refuse(&self, cx: &mut Context<'_>, message: &Value, code: u64, why: &str) {
        add(&self.shared.counters.refused, 1);
        let error = json!({"janus": "error", "error": {"code": code, "reason": why}});
        self.answer(cx, message, error);
    }

    /// Sends an event of the plug-in for a handle.
    fn event(&self, cx: &mut Context<'_>, handle: u64, message: &Value, data: Value, sdp: Jsep) {
        let mut event = json!({
            "janus": "event",
            "sender": handle,
            "plugindata": {"plugin": "janus.plugin.videoroom", "data": data},
        });
        if let Some((kind, sdp)) = sdp {
            event["jsep"] = json!({"type": kind, "sdp": sdp});
        }
        self.answer(cx, message, event);
    }

    fn send(&self, cx: &mut Context<'_>, mut message: Value) {
        if let Some(session) = self.session {
            message["session_id"] = session.into();
        }
        let mut out = Vec::new();
        let text = message.to_string();
        websocket::write_message(websocket::TEXT, text.as_bytes(), None, &mut out);
        send(cx, out);
    }
}

/// Description: its type (`offer` or `answer`) and SDP.
type Jsep = Option<(&'static str, String)>;

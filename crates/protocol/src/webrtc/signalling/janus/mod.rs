//! Janus over a WebSocket (`janus-protocol`) or HTTP: sessions, handles of plug-ins, and what is said
//! to them. One connection for each client, as a browser has it, or two; many handles in it.
//!
//! The protocol is that of Janus' documentation ("JSON API", "VideoRoom", "Streaming"). Names of
//! requests are Janus' own.

mod long_poll;
mod message;
mod room;
mod streaming;

use std::collections::BTreeMap;
use std::time::Duration;

use measure::Time;
use serde_json::{Value, json};

use super::{Common, PeerNumber, Scope, Signalling, Target, Wanted, ended, split_candidates};
use crate::http1::Url;
use crate::mix::mix;
use crate::session::Closed;
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;
use crate::webrtc::url::{Id, Place};
use crate::websocket::{self, Assembly, Item, Limits, Upgrade};

use long_poll::{LongPoll, Which};
use message::of_error;
pub use message::{Jsep, Kind, Message};
use room::Room;

/// The subprotocol.
const SUBPROTOCOL: &str = "janus-protocol";

/// The longest message that is taken: a room of hundreds with all its streams, or a description of
/// them, is below.
const LIMITS: Limits = Limits {
    keep: 512 * 1024,
    longest: 512 * 1024,
};

/// How often a session shows that it lives: Janus ends it after 60 s (`session_timeout`).
const KEEPALIVE_EVERY: Duration = Duration::from_secs(25);

/// The most requests that wait for an answer at a time.
const PENDING_MAX: usize = 10_000;

/// The most handles of a client.
const HANDLES_MAX: usize = 10_000;

/// How a participant of a room receives the others.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Subscribe {
    /// All of them over one PeerConnection.
    #[default]
    Together,
    /// Each over a PeerConnection of its own.
    Each,
    /// None of them.
    Nobody,
}

/// How a session of Janus is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What all kinds are set up with.
    pub common: Common,
    /// What is played, or where.
    pub place: Place,
    /// Whether candidates follow a description in messages of their own, and are not in it.
    pub trickle: bool,
    /// Whether the client publishes in the room.
    pub publishes: bool,
    /// How it receives others in the room.
    pub subscribe: Subscribe,
    /// Janus' API secret.
    pub api_secret: Option<String>,
    /// The PIN of the room or mount point.
    pub pin: Option<String>,
    /// A room that is made where there is none: what the request says of it.
    pub room: Option<Value>,
    /// Whether it is spoken to over HTTP, and events are waited for.
    pub long_poll: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Connecting,
    /// The handshake of the WebSocket.
    Upgrading,
    /// The session is asked for.
    Creating,
    /// It stands.
    Session(u64),
    /// Its end was asked for.
    Leaving,
    Over,
}

/// A handle: what a plug-in knows this client by, with one PeerConnection at most.
#[derive(Debug)]
struct Handle {
    /// Once it is attached.
    id: Option<u64>,
    role: Role,
    /// Whether a description of Janus is being answered.
    answering: bool,
    gone: bool,
}

/// What a handle is for.
#[derive(Clone, Debug, PartialEq)]
enum Role {
    /// It plays a mount point.
    Mountpoint,
    /// It is in the room, and may publish.
    Participant,
    /// It receives all others.
    Everybody,
    /// It receives that one.
    Feed(Id),
}

/// What a request was about.
#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Create,
    Attach(usize),
    KeepAlive,
    Destroy,
    /// To a plug-in, by that name.
    Plugin(usize, &'static str),
    Trickle,
    Detach,
}

impl Asked {
    /// As details name it.
    fn name(&self) -> &'static str {
        match self {
            Asked::Create => "create",
            Asked::Attach(_) => "attach",
            Asked::KeepAlive => "keepalive",
            Asked::Destroy => "destroy",
            Asked::Plugin(_, name) => name,
            Asked::Trickle => "trickle",
            Asked::Detach => "detach",
        }
    }
}

/// One client's session with Janus.
#[derive(Debug)]
pub struct Janus {
    settings: Settings,
    at: Url,
    /// As details name it.
    url: String,
    phase: Phase,
    upgrade: Option<Upgrade>,
    assembly: Assembly,
    handles: Vec<Handle>,
    /// What was asked and is not answered, by its number: what, and when.
    pending: BTreeMap<u64, (Asked, Time)>,
    /// The number of the last request.
    last: u64,
    masks: u64,
    keepalive_at: Time,
    asked: Time,
    room: Room,
    open: bool,
    /// Where it is spoken to over HTTP.
    long_poll: Option<LongPoll>,
}

impl Janus {
    /// A session at that WebSocket, or that place of HTTP.
    pub fn new(settings: Settings, url: Url) -> Janus {
        let long_poll = settings.long_poll;
        Janus {
            url: name_of(&url, long_poll),
            long_poll: long_poll.then(|| LongPoll::new(url.clone(), &settings)),
            settings,
            at: url,
            phase: Phase::Idle,
            upgrade: None,
            assembly: Assembly::default(),
            handles: Vec::new(),
            pending: BTreeMap::new(),
            last: 0,
            masks: 0,
            keepalive_at: Time::NEVER,
            asked: Time::ZERO,
            room: Room::default(),
            open: false,
        }
    }

    fn target(&self) -> Target {
        Target {
            host: self.at.host().to_owned(),
            port: self.at.port(),
            secure: self.at.is_secure(),
        }
    }

    fn frame(&mut self, scope: &mut Scope<'_>, opcode: u8, payload: &[u8]) {
        self.masks += 1;
        let mask = mix(&[self.settings.common.seed, 21, self.masks]) as u32;
        let mut out = Vec::with_capacity(payload.len() + 14);
        websocket::write_message(opcode, payload, Some(mask), &mut out);
        scope.want(Wanted::Send(out));
    }

    /// Asks something of Janus. `more` are the request's own fields.
    fn ask(&mut self, scope: &mut Scope<'_>, asked: Asked, janus: &str, mut more: Value) {
        if self.pending.len() >= PENDING_MAX {
            let detail = format!("{PENDING_MAX} requests without an answer, by {}", self.url);
            return self.fail(scope, Failure::RequestTimeout, detail);
        }
        self.last += 1;
        let number = self.last;
        more["janus"] = janus.into();
        more["transaction"] = number.to_string().into();
        if let Phase::Session(session) = self.phase {
            more["session_id"] = session.into();
        }
        if let Some(token) = &self.settings.common.token {
            more["token"] = token.as_str().into();
        }
        if let Some(secret) = &self.settings.api_secret {
            more["apisecret"] = secret.as_str().into();
        }
        self.pending.insert(number, (asked, scope.now));
        scope.recorder.add(m::REQUESTS, 1);
        let text = more.to_string();
        match &mut self.long_poll {
            None => self.frame(scope, websocket::TEXT, text.as_bytes()),
            Some(own) => {
                own.ask(
                    more["session_id"].as_u64(),
                    more["handle_id"].as_u64(),
                    &text,
                );
                self.go_on(scope);
            }
        }
    }

    /// Asks something of a plug-in; the body has its `request` already.
    fn ask_plugin(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        name: &'static str,
        mut body: Value,
        jsep: Option<Jsep>,
    ) {
        let Some(id) = self.handles.get(handle).and_then(|handle| handle.id) else {
            return;
        };
        body["request"] = name.into();
        let mut more = json!({"handle_id": id, "body": body});
        let mut told = None;
        let mut mid = String::new();
        if let Some(jsep) = jsep {
            let mut lines = jsep.sdp.lines();
            let first = lines.find_map(|line| line.strip_prefix("a=mid:"));
            mid = first.unwrap_or_default().to_owned();
            let (sdp, candidates) = match self.settings.trickle {
                true => split_candidates(&jsep.sdp),
                false => (jsep.sdp, Vec::new()),
            };
            let kind = if jsep.is_offer { "offer" } else { "answer" };
            more["jsep"] = json!({"type": kind, "sdp": sdp, "trickle": self.settings.trickle});
            told = self.settings.trickle.then_some(candidates);
        }
        self.ask(scope, Asked::Plugin(handle, name), "message", more);
        for candidate in told.iter().flatten() {
            let more = json!({
                "handle_id": id,
                "candidate": {"candidate": candidate, "sdpMid": mid, "sdpMLineIndex": 0},
            });
            self.ask(scope, Asked::Trickle, "trickle", more);
        }
        if told.is_some() {
            let more = json!({"handle_id": id, "candidate": {"completed": true}});
            self.ask(scope, Asked::Trickle, "trickle", more);
        }
    }

    /// Attaches a new handle.
    fn attach(&mut self, scope: &mut Scope<'_>, role: Role) {
        if self.handles.len() >= HANDLES_MAX {
            return;
        }
        let plugin = match role {
            Role::Mountpoint => "janus.plugin.streaming",
            Role::Participant | Role::Everybody | Role::Feed(_) => "janus.plugin.videoroom",
        };
        let handle = self.handles.len();
        self.handles.push(Handle {
            id: None,
            role,
            answering: false,
            gone: false,
        });
        let more = json!({"plugin": plugin});
        self.ask(scope, Asked::Attach(handle), "attach", more);
    }

    /// Gives a handle up.
    fn detach(&mut self, scope: &mut Scope<'_>, handle: usize) {
        let own = &mut self.handles[handle];
        if std::mem::replace(&mut own.gone, true) {
            return;
        }
        if let Some(id) = own.id {
            self.ask(scope, Asked::Detach, "detach", json!({"handle_id": id}));
        }
        scope.want(Wanted::Forget {
            peer: PeerNumber(handle as u32),
        });
    }

    fn fail(&mut self, scope: &mut Scope<'_>, failure: Failure, detail: String) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        if std::mem::take(&mut self.open) {
            scope.want(Wanted::HangUp);
        }
        scope.fail(failure, detail);
    }

    /// Fails because something was refused.
    fn refused(&mut self, scope: &mut Scope<'_>, what: &str, code: u64, reason: &str) {
        scope.recorder.add(m::REFUSALS, 1);
        let detail = format!("error {code} to `{what}`: {reason}, by {}", self.url);
        self.fail(scope, of_error(code), detail);
    }

    fn message(&mut self, scope: &mut Scope<'_>, message: Message) {
        let is_final = !matches!(message.kind, Kind::Ack | Kind::Trickle(_));
        let sync = match message.kind {
            // An acknowledgement is all that comes of these.
            Kind::Ack => {
                let number = message.transaction.unwrap_or(0);
                if let Some((Asked::KeepAlive | Asked::Trickle, _)) = self.pending.get(&number) {
                    self.pending.remove(&number);
                }
                return;
            }
            _ if is_final => message
                .transaction
                .and_then(|number| self.pending.remove(&number)),
            _ => None,
        };
        if sync.is_some() {
            scope.recorder.add(m::RESPONSES, 1);
        }
        let handle = message.sender.and_then(|id| {
            let mut handles = self.handles.iter();
            handles.position(|handle| handle.id == Some(id))
        });
        match message.kind {
            Kind::Success { id, data } => {
                if let Some(asked) = sync {
                    self.done(scope, asked, id, &data);
                }
            }
            Kind::Error { code, reason } => match sync {
                Some((Asked::Destroy, _)) => self.left(scope),
                // The handle is gone by itself.
                Some((Asked::Detach | Asked::Trickle, _)) => {}
                Some((asked, _)) => self.refused(scope, asked.name(), code, &reason),
                None if self.phase == Phase::Leaving => {}
                None => self.refused(scope, "?", code, &reason),
            },
            Kind::Event { data, jsep } => {
                if let Some(handle) = handle {
                    self.event(scope, handle, sync, data, jsep);
                }
            }
            Kind::SlowLink { uplink, lost } => {
                let counter = if uplink {
                    m::SLOW_UPLINKS
                } else {
                    m::SLOW_DOWNLINKS
                };
                scope.recorder.add(counter, 1);
                scope
                    .recorder
                    .add(m::SLOW_LINK_LOST, lost.min(u64::from(u32::MAX)));
            }
            Kind::HangUp { reason } => {
                let Some(handle) = handle.filter(|&handle| !self.handles[handle].gone) else {
                    return;
                };
                if let Role::Feed(_) = self.handles[handle].role {
                    // Whoever is received has left, or is about to be told of as having left. If not,
                    // the note says what is missing from now on.
                    let kind = "feed_hung_up";
                    let text = format!("{reason}, by {}", self.url);
                    scope.want(Wanted::Note { kind, text });
                    return self.detach(scope, handle);
                }
                let detail = format!("{reason}, by {}", self.url);
                self.fail(scope, Failure::HungUp, detail);
            }
            Kind::Timeout => {
                let detail = format!("the session timed out, by {}", self.url);
                self.fail(scope, Failure::SessionTimeout, detail);
            }
            Kind::Trickle(Some(candidate)) => {
                if let Some(handle) = handle {
                    scope.want(Wanted::Candidate {
                        peer: PeerNumber(handle as u32),
                        candidate,
                    });
                }
            }
            Kind::Ack
            | Kind::WebrtcUp
            | Kind::Media { .. }
            | Kind::Detached
            | Kind::Trickle(None)
            | Kind::Other(_) => {}
        }
    }

    /// A request was done.
    fn done(
        &mut self,
        scope: &mut Scope<'_>,
        (asked, at): (Asked, Time),
        id: Option<u64>,
        data: &Value,
    ) {
        match asked {
            Asked::Create => {
                let Some(id) = id else {
                    let detail = format!("no id of the session, by {}", self.url);
                    return self.fail(scope, Failure::MalformedJson, detail);
                };
                self.phase = Phase::Session(id);
                // Who waits for events lives.
                if self.long_poll.is_none() {
                    self.keepalive_at = scope.now + KEEPALIVE_EVERY;
                }
                let role = match self.settings.place {
                    Place::Mountpoint(_) => Role::Mountpoint,
                    _ => Role::Participant,
                };
                self.attach(scope, role);
            }
            Asked::Attach(handle) => {
                let Some(id) = id else {
                    let detail = format!("no id of the handle, by {}", self.url);
                    return self.fail(scope, Failure::MalformedJson, detail);
                };
                self.handles[handle].id = Some(id);
                match self.handles[handle].role {
                    Role::Mountpoint => self.watch(scope, handle),
                    Role::Participant => self.enter(scope, handle),
                    Role::Everybody | Role::Feed(_) => self.subscribe(scope, handle),
                }
            }
            Asked::Plugin(handle, name) => self.plugin_done(scope, handle, (name, at), data),
            Asked::Destroy => self.left(scope),
            Asked::KeepAlive | Asked::Trickle | Asked::Detach => {}
        }
    }

    /// A plug-in says something.
    fn event(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        answers: Option<(Asked, Time)>,
        data: Value,
        jsep: Option<Jsep>,
    ) {
        let name = match &answers {
            Some((Asked::Plugin(_, name), at)) => Some((*name, *at)),
            _ => None,
        };
        if let Some(jsep) = jsep {
            self.described_by_janus(scope, handle, name, jsep);
        }
        match self.settings.place {
            Place::Mountpoint(_) => self.streaming_event(scope, name, &data),
            _ => self.room_event(scope, handle, name, &data),
        }
    }

    fn described_by_janus(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        answers: Option<(&'static str, Time)>,
        jsep: Jsep,
    ) {
        let peer = PeerNumber(handle as u32);
        if let Some((_, at)) = answers {
            let delay = match jsep.is_offer {
                true => m::OFFER_DELAY,
                false => m::ANSWER_DELAY,
            };
            let waited = scope.now.since(at);
            scope.recorder.record(delay, waited.as_nanos() as u64);
        }
        let Jsep { is_offer, sdp } = jsep;
        if sdp.len() > super::SDP_MAX {
            let detail = format!("{} bytes, by {}", sdp.len(), self.url);
            return self.fail(scope, Failure::SdpTooLong, detail);
        }
        match is_offer {
            true => {
                self.handles[handle].answering = true;
                scope.want(Wanted::Answer { peer, offer: sdp });
            }
            false => scope.want(Wanted::Answered { peer, answer: sdp }),
        }
    }

    fn left(&mut self, scope: &mut Scope<'_>) {
        if self.phase == Phase::Over {
            return;
        }
        if self.open {
            if self.long_poll.is_none() {
                let code = websocket::NORMAL.to_be_bytes();
                self.frame(scope, websocket::CLOSE, &code);
            }
            scope.want(Wanted::HangUp);
            self.open = false;
        }
        self.phase = Phase::Over;
        scope.want(Wanted::Left);
    }

    /// The request that has waited longest, and since when.
    fn oldest(&self) -> Option<(&Asked, Time)> {
        let mut all = self.pending.values();
        all.next().map(|(asked, at)| (asked, *at))
    }
}

impl Signalling for Janus {
    fn begin(&mut self, scope: &mut Scope<'_>) {
        self.phase = Phase::Connecting;
        self.asked = scope.now;
        self.open = true;
        scope.want(Wanted::Connect(self.target()));
    }

    fn connected(&mut self, scope: &mut Scope<'_>) {
        if self.long_poll.is_some() {
            return self.http_connected(scope, Which::Requests);
        }
        if self.phase != Phase::Connecting {
            return;
        }
        let seed = self.settings.common.seed;
        let (upgrade, request) = Upgrade::begin(&self.at, &[SUBPROTOCOL], seed);
        self.upgrade = Some(upgrade);
        self.phase = Phase::Upgrading;
        self.asked = scope.now;
        scope.want(Wanted::Send(request));
    }

    fn second_connected(&mut self, scope: &mut Scope<'_>) {
        self.http_connected(scope, Which::Events);
    }

    fn second_bytes(&mut self, scope: &mut Scope<'_>, bytes: &[u8]) {
        self.http_bytes(scope, Which::Events, bytes);
    }

    fn second_closed(&mut self, scope: &mut Scope<'_>, how: Closed) {
        self.http_closed(scope, Which::Events, how);
    }

    fn bytes(&mut self, scope: &mut Scope<'_>, mut bytes: &[u8]) {
        if self.long_poll.is_some() {
            return self.http_bytes(scope, Which::Requests, bytes);
        }
        if self.phase == Phase::Upgrading {
            let Some(upgrade) = &mut self.upgrade else {
                return;
            };
            match upgrade.answered(&mut bytes) {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => {
                    let detail = format!("{why}, by {}", self.url);
                    return self.fail(scope, Failure::WebsocketRefused, detail);
                }
            }
            self.upgrade = None;
            let waited = scope.now.since(self.asked);
            scope
                .recorder
                .record(m::WEBSOCKET_DELAY, waited.as_nanos() as u64);
            self.phase = Phase::Creating;
            self.ask(scope, Asked::Create, "create", json!({}));
        }
        let mut assembly = std::mem::take(&mut self.assembly);
        while !matches!(self.phase, Phase::Over) {
            match assembly.next(false, &LIMITS, &mut bytes) {
                Ok(None) => break,
                Ok(Some(Item::Frame(frame))) => {
                    match Message::parse(frame.body.unwrap_or_default()) {
                        Ok(message) => self.message(scope, message),
                        Err(why) => {
                            let detail = format!("{why}, by {}", self.url);
                            self.fail(scope, Failure::MalformedJson, detail);
                        }
                    }
                }
                Ok(Some(Item::Ping(payload))) => {
                    let payload = payload.to_vec();
                    self.frame(scope, websocket::PONG, &payload);
                }
                Ok(Some(Item::Close(code))) => {
                    if self.phase == Phase::Leaving {
                        self.left(scope);
                    } else {
                        let code = code.map_or("none".to_owned(), |code| code.to_string());
                        let detail = format!("a close with code {code}, by {}", self.url);
                        self.fail(scope, Failure::SignallingClosed, detail);
                    }
                }
                Err(malformed) => {
                    let detail = format!("{malformed}, by {}", self.url);
                    self.fail(scope, Failure::MalformedMessage, detail);
                }
            }
        }
        self.assembly = assembly;
    }

    fn closed(&mut self, scope: &mut Scope<'_>, how: Closed) {
        self.open = false;
        if self.long_poll.is_some() {
            return self.http_closed(scope, Which::Requests, how);
        }
        if self.phase == Phase::Leaving {
            return self.left(scope);
        }
        let (failure, what) = ended(how);
        let detail = format!("{what}, with {}", self.url);
        self.fail(scope, failure, detail);
    }

    fn described(&mut self, scope: &mut Scope<'_>, peer: PeerNumber, sdp: &str) {
        let handle = peer.0 as usize;
        let Some(own) = self.handles.get_mut(handle).filter(|own| !own.gone) else {
            return;
        };
        let is_offer = own.role == Role::Participant;
        own.answering = false;
        let jsep = Some(Jsep {
            is_offer,
            sdp: sdp.to_owned(),
        });
        match own.role {
            Role::Participant => self.publish(scope, handle, jsep),
            _ => self.ask_plugin(scope, handle, "start", json!({}), jsep),
        }
    }

    fn stands(&mut self, _scope: &mut Scope<'_>, _peer: PeerNumber) {}

    fn deadline(&self) -> Option<Time> {
        let timeout = self.settings.common.request_timeout;
        let answer = match self.phase {
            Phase::Upgrading => Some(self.asked + timeout),
            Phase::Creating | Phase::Session(_) | Phase::Leaving => {
                self.oldest().map(|(_, at)| at + timeout)
            }
            Phase::Idle | Phase::Connecting | Phase::Over => return None,
        };
        let alive = matches!(self.phase, Phase::Session(_)).then_some(self.keepalive_at);
        let poll = self.long_poll.as_ref().and_then(|own| own.overdue(timeout));
        answer.into_iter().chain(alive).chain(poll).min()
    }

    fn look(&mut self, scope: &mut Scope<'_>) {
        let timeout = self.settings.common.request_timeout;
        let since = match self.phase {
            Phase::Upgrading => Some(("the WebSocket", self.asked)),
            Phase::Idle | Phase::Connecting | Phase::Over => None,
            _ => self.oldest().map(|(asked, at)| (asked.name(), at)),
        };
        if let Some((what, at)) = since
            && scope.now >= at + timeout
        {
            if self.phase == Phase::Leaving {
                return self.left(scope);
            }
            let detail = format!(
                "no answer to `{what}` within {:.3} s, by {}",
                timeout.as_secs_f64(),
                self.url
            );
            return self.fail(scope, Failure::RequestTimeout, detail);
        }
        let poll = self.long_poll.as_ref().and_then(|own| own.overdue(timeout));
        if poll.is_some_and(|due| due <= scope.now) {
            let detail = format!("no answer to who waits for events, by {}", self.url);
            return self.fail(scope, Failure::RequestTimeout, detail);
        }
        if matches!(self.phase, Phase::Session(_)) && scope.now >= self.keepalive_at {
            self.keepalive_at = scope.now + KEEPALIVE_EVERY;
            self.ask(scope, Asked::KeepAlive, "keepalive", json!({}));
        }
    }

    fn leave(&mut self, scope: &mut Scope<'_>) {
        match self.phase {
            Phase::Session(_) => {
                self.end_room(scope);
                self.ask(scope, Asked::Destroy, "destroy", json!({}));
                self.phase = Phase::Leaving;
            }
            Phase::Leaving | Phase::Over => {}
            _ => {
                if std::mem::take(&mut self.open) {
                    scope.want(Wanted::HangUp);
                }
                self.phase = Phase::Over;
                scope.want(Wanted::Left);
            }
        }
    }

    fn expects_media(&self) -> bool {
        match self.settings.place {
            Place::Room(_) => self.has_feeds(),
            _ => true,
        }
    }

    fn waits(&self) -> Option<(Time, String)> {
        let (what, since) = match self.phase {
            Phase::Connecting => ("a connection".to_owned(), self.asked),
            Phase::Upgrading => ("the WebSocket".to_owned(), self.asked),
            Phase::Idle | Phase::Over => return None,
            _ => {
                let (asked, at) = self.oldest()?;
                (format!("the answer to `{}`", asked.name()), at)
            }
        };
        Some((since, format!("for {what} of {}", self.url)))
    }
}

/// The place as it is written: without name and password.
fn name_of(url: &Url, long_poll: bool) -> String {
    let secure = if url.is_secure() { "s" } else { "" };
    let scheme = if long_poll { "http" } else { "ws" };
    format!("{scheme}{secure}://{}{}", url.authority(), url.target())
}

#[cfg(test)]
mod tests;

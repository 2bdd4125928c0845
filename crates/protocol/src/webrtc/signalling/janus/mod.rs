//! Janus over a WebSocket (`janus-protocol`) or HTTP: sessions, handles of plug-ins, and requests
//! to them. Each client has one connection, as a browser has, or two with HTTP, and many handles.
//!
//! The protocol is that of Janus' documentation ("JSON API", "VideoRoom", "Streaming"). Names of
//! requests are Janus' own.

mod answers;
mod last_speakers;
mod long_poll;
mod message;
mod requests;
mod room;
mod streaming;
mod together;

use std::collections::BTreeMap;
use std::time::Duration;

use measure::Time;
use serde_json::{Value, json};

use super::{Common, FedMedia, PeerNumber, Scope, Signalling, Target, Wanted, ended};
use crate::http1::Url;
use crate::session::Closed;
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;
use crate::webrtc::url::{Id, Place};
use crate::websocket::{self, Assembly, Item, Limits, Upgrade};

use long_poll::{LongPoll, Which};
pub use message::{Jsep, Kind, Message};
use requests::{Asked, Pending};
use room::Room;

/// WebSocket subprotocol of Janus.
const SUBPROTOCOL: &str = "janus-protocol";

/// Maximum length of a message. The streams of a room of hundreds, or their description, are
/// shorter.
const LIMITS: Limits = Limits {
    keep: 512 * 1024,
    longest: 512 * 1024,
};

/// Interval between keep-alives. Janus ends a session after 60 s without one (`session_timeout`).
const KEEPALIVE_EVERY: Duration = Duration::from_secs(25);

/// How a client in a room receives the other participants.
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
    /// All over one PeerConnection.
    #[default]
    Together,
    /// Each over its own PeerConnection.
    Each,
    /// Other participants are not received.
    Nobody,
}

/// Settings of a Janus session.
#[derive(Clone, Debug)]
pub struct Settings {
    pub common: Common,
    /// Room or mount point.
    pub place: Place,
    /// True if candidates follow a description in messages of their own instead of being part of
    /// it.
    pub trickle: bool,
    /// True if the client publishes in the room.
    pub publishes: bool,
    /// How the other participants of the room are received.
    pub subscribe: Subscribe,
    /// API secret of Janus.
    pub api_secret: Option<String>,
    /// PIN of the room or mount point.
    pub pin: Option<String>,
    /// Body of the request that creates the room if it does not exist. `None` to create no room.
    pub room: Option<Value>,
    /// Layer of a simulcast that is received, in Janus' numbering.
    pub substream: Option<u64>,
    /// Number of last speakers whose video is received. `None` for all publishers.
    pub last_n: Option<usize>,
    /// True for HTTP with long polling, false for a WebSocket.
    pub long_poll: bool,
}

/// Progress of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Connecting,
    /// WebSocket handshake.
    Upgrading,
    /// The session was requested.
    Creating,
    /// The session with this id is established.
    Session(u64),
    /// The end of the session was requested.
    Leaving,
    Over,
}

/// Handle of a plug-in, with at most one PeerConnection.
#[derive(Debug)]
struct Handle {
    /// `None` until the handle is attached.
    id: Option<u64>,
    role: Role,
    /// True while a description of Janus is being answered.
    answering: bool,
    /// True once a description was answered.
    answered: bool,
    /// True once the handle was detached.
    gone: bool,
}

/// Purpose of a handle.
#[derive(Clone, Debug, PartialEq)]
enum Role {
    /// Plays a mount point, or creates one that the client feeds.
    Mountpoint,
    /// Is in the room, and may publish.
    Participant,
    /// Receives all other publishers.
    Everybody,
    /// Receives this publisher.
    Feed(Id),
}

/// Janus session of a client.
#[derive(Debug)]
pub struct Janus {
    settings: Settings,
    at: Url,
    /// URL in failure details, without user name and password.
    url: String,
    phase: Phase,
    upgrade: Option<Upgrade>,
    assembly: Assembly,
    handles: Vec<Handle>,
    /// Unanswered requests, by their numbers.
    pending: BTreeMap<u64, Pending>,
    /// Number of the last request.
    last: u64,
    /// Number of WebSocket masks drawn so far.
    masks: u64,
    /// Time of the next keep-alive.
    keepalive_at: Time,
    /// Start of the current step of the connection.
    asked: Time,
    room: Room,
    /// Streams that the client feeds to a mount point, which it creates. Empty if it feeds none.
    fed: Vec<FedMedia>,
    /// True while that mount point exists.
    mounted: bool,
    /// Detail of the failure, while Janus is asked for its mount points.
    unknown: Option<String>,
    /// True if a connection is open or being opened.
    open: bool,
    /// `None` with a WebSocket.
    long_poll: Option<LongPoll>,
}

impl Janus {
    /// Creates a session at this URL of a WebSocket or of the HTTP API.
    pub fn new(settings: Settings, url: Url) -> Janus {
        let (long_poll, last_n) = (settings.long_poll, settings.last_n);
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
            room: Room::new(last_n),
            fed: Vec::new(),
            mounted: false,
            unknown: None,
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

    fn fail(&mut self, scope: &mut Scope<'_>, mut failure: Failure, mut detail: String) {
        if self.phase == Phase::Over {
            return;
        }
        if let Some(known) = self.unknown.take() {
            // The mount point is missing, even if the list of mount points fails.
            (failure, detail) = (Failure::NotFound, format!("{known} ({})", self.url));
        }
        self.phase = Phase::Over;
        if std::mem::take(&mut self.open) {
            scope.want(Wanted::HangUp);
        }
        scope.fail(failure, detail);
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
}

impl Signalling for Janus {
    fn begin(&mut self, scope: &mut Scope<'_>) {
        self.phase = Phase::Connecting;
        self.asked = scope.now;
        self.open = true;
        scope.want(Wanted::Connect(self.target()));
    }

    fn tell_media(&mut self, media: Vec<FedMedia>) {
        if let Place::Mountpoint(_) = self.settings.place {
            self.fed = media;
        }
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
                    let detail = format!("{why} ({})", self.url);
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
                            let detail = format!("{why} ({})", self.url);
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
                        let detail = format!(
                            "the server closed the WebSocket with code {code} ({})",
                            self.url
                        );
                        self.fail(scope, Failure::SignallingClosed, detail);
                    }
                }
                Err(malformed) => {
                    let detail = format!("{malformed} ({})", self.url);
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
        let detail = format!("{what} ({})", self.url);
        self.fail(scope, failure, detail);
    }

    fn described(&mut self, scope: &mut Scope<'_>, peer: PeerNumber, sdp: &str) {
        let handle = peer.0 as usize;
        let Some(own) = self.handles.get_mut(handle).filter(|own| !own.gone) else {
            return;
        };
        let is_offer = own.role == Role::Participant;
        own.answering = false;
        own.answered = true;
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
            Phase::Upgrading => Some(("WebSocket handshake", self.asked)),
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
                "no answer to `{what}` within {:.3} s ({})",
                timeout.as_secs_f64(),
                self.url
            );
            return self.fail(scope, Failure::RequestTimeout, detail);
        }
        let poll = self.long_poll.as_ref().and_then(|own| own.overdue(timeout));
        if poll.is_some_and(|due| due <= scope.now) {
            let detail = format!("no answer to the long poll ({})", self.url);
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
                self.end_mountpoint(scope);
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
            _ => self.fed.is_empty(),
        }
    }

    fn waits(&self) -> Option<(Time, String)> {
        let (what, since) = match self.phase {
            Phase::Connecting => ("a connection".to_owned(), self.asked),
            Phase::Upgrading => ("the WebSocket handshake".to_owned(), self.asked),
            Phase::Idle | Phase::Over => return None,
            _ => {
                let (asked, at) = self.oldest()?;
                (format!("the answer to `{}`", asked.name()), at)
            }
        };
        Some((since, format!("for {what} ({})", self.url)))
    }
}

/// Returns the URL without user name and password.
fn name_of(url: &Url, long_poll: bool) -> String {
    let secure = if url.is_secure() { "s" } else { "" };
    let scheme = if long_poll { "http" } else { "ws" };
    format!("{scheme}{secure}://{}{}", url.authority(), url.target())
}

#[cfg(test)]
mod tests;

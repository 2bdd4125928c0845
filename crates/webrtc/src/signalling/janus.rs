//! Janus over a WebSocket (`janus-protocol`) or HTTP: sessions, handles of plug-ins, and requests
//! to them. Each client has one connection, as a browser has, or two with HTTP, and many handles.
//!
//! The protocol is that of Janus' documentation ("JSON API", "VideoRoom", "Streaming"). Names of
//! requests are Janus' own.

mod keys;
mod last_speakers;
mod long_poll;
mod message;
mod message_handling;
mod requests;
mod room;
pub mod room_config;
mod shared_subscription;
mod streaming;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use serde_json::json;

use super::websocket::WebsocketClient;
use super::{
    Connection, FeedStream, PeerNumber, Signalling, SignallingAction, SignallingContext,
    SignallingTarget, closed_failure,
};
use crate::config::ClientConfig;
use crate::failure::Failure;
use crate::metrics as m;
use crate::url::{self, JanusId, Resource};
use kit::http1::Url;
use kit::websocket::{self, Limits};
use session::CloseReason;

use long_poll::LongPoll;
pub use message::{JanusMessage, Jsep, MessageContent};
use requests::{PendingRequest, RequestKind};
use room::RoomState;
use room_config::Subscribe;

/// WebSocket subprotocol of Janus.
const SUBPROTOCOL: &str = "janus-protocol";

/// Maximum length of a message. The streams of a room of hundreds, or their description, are
/// shorter.
const LIMITS: Limits = Limits {
    keep_max: 512 * 1024,
    length_max: 512 * 1024,
};

/// Interval between keep-alives. Janus ends a session after 60 s without one (`session_timeout`).
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(25);

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
    Ended,
}

/// Handle of a plug-in, with at most one PeerConnection.
#[derive(Debug)]
struct Handle {
    /// `None` until the handle is attached.
    id: Option<u64>,
    role: Role,
    /// True once a description was answered.
    has_answered: bool,
    /// True once the handle was detached.
    is_detached: bool,
}

/// Purpose of a handle.
#[derive(Clone, Debug, PartialEq)]
enum Role {
    /// Plays a mount point, or creates one that the client feeds.
    Mountpoint,
    /// Is in the room, and may publish.
    Participant,
    /// Receives all other publishers.
    AllPublishers,
    /// Receives this publisher.
    Publisher(JanusId),
}

/// Janus session of a client.
#[derive(Debug)]
pub struct Janus {
    config: Arc<ClientConfig>,
    /// Room or mount point.
    place: Resource,
    api_url: Url,
    /// URL in failure details, without user name and password.
    shown_url: String,
    phase: Phase,
    /// Unused with HTTP.
    socket: WebsocketClient,
    handles: Vec<Handle>,
    /// Unanswered requests, by their numbers.
    pending: BTreeMap<u64, PendingRequest>,
    /// Number of the last request.
    last_transaction: u64,
    /// Time of the next keep-alive.
    keepalive_at: Time,
    /// Start of the current step of the connection.
    step_started_at: Time,
    room: RoomState,
    /// Streams that the client feeds to a mount point, which it creates. Empty if it feeds none.
    fed_streams: Vec<FeedStream>,
    /// True while that mount point exists.
    has_mountpoint: bool,
    /// Detail of the failure, while Janus is asked for its mount points.
    missing_mountpoint: Option<String>,
    /// True if a connection is open or being opened.
    has_connection: bool,
    /// `None` with a WebSocket.
    long_poll: Option<LongPoll>,
}

impl Janus {
    /// Creates a session for the room or mount point of a URL. Random values are drawn from `seed`.
    pub fn new(config: Arc<ClientConfig>, url: url::Url, seed: u64) -> Janus {
        let (api_url, long_poll) = (url.endpoint, url.long_poll);
        let last_n = config.last_n.map(|count| count as usize);
        Janus {
            shown_url: url_without_credentials(&api_url, long_poll),
            long_poll: long_poll.then(|| LongPoll::new(api_url.clone(), config.clone())),
            config,
            place: url.resource,
            api_url,
            phase: Phase::Idle,
            socket: WebsocketClient::new(LIMITS.keep_max, seed),
            handles: Vec::new(),
            pending: BTreeMap::new(),
            last_transaction: 0,
            keepalive_at: Time::NEVER,
            step_started_at: Time::ZERO,
            room: RoomState::new(last_n),
            fed_streams: Vec::new(),
            has_mountpoint: false,
            missing_mountpoint: None,
            has_connection: false,
        }
    }

    fn fail(&mut self, scope: &mut SignallingContext<'_>, failure: Failure, what: impl Display) {
        if self.phase == Phase::Ended {
            return;
        }
        let (failure, what) = match self.missing_mountpoint.take() {
            // The mount point is missing, even if the list of mount points fails.
            Some(known) => (Failure::NotFound, known),
            None => (failure, what.to_string()),
        };
        self.phase = Phase::Ended;
        scope.disconnect(&mut self.has_connection);
        scope.fail(failure, format!("{what} ({})", self.shown_url));
    }

    fn finish(&mut self, scope: &mut SignallingContext<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        if self.has_connection && self.long_poll.is_none() {
            let code = websocket::NORMAL.to_be_bytes();
            self.socket.send(scope, websocket::CLOSE, &code);
        }
        self.end(scope);
    }

    fn end(&mut self, scope: &mut SignallingContext<'_>) {
        scope.disconnect(&mut self.has_connection);
        self.phase = Phase::Ended;
        scope.push(SignallingAction::Left);
    }
}

impl Signalling for Janus {
    fn begin(&mut self, scope: &mut SignallingContext<'_>) {
        self.phase = Phase::Connecting;
        self.step_started_at = scope.now;
        self.has_connection = true;
        let target = SignallingTarget::of(&self.api_url);
        scope.push(SignallingAction::Connect(Connection::First, target));
    }

    fn set_fed_streams(&mut self, media: Vec<FeedStream>) {
        if let Resource::Mountpoint(_) = self.place {
            self.fed_streams = media;
        }
    }

    fn connected(&mut self, scope: &mut SignallingContext<'_>, which: Connection) {
        if self.long_poll.is_some() {
            return self.http_connected(scope, which);
        }
        if self.phase != Phase::Connecting {
            return;
        }
        let mut headers = vec![("User-Agent", self.config.user_agent.as_str())];
        headers.extend(self.config.headers.of_request(true));
        self.socket
            .send_upgrade(scope, &self.api_url, &[SUBPROTOCOL], &headers);
        self.phase = Phase::Upgrading;
        self.step_started_at = scope.now;
    }

    fn bytes(&mut self, scope: &mut SignallingContext<'_>, which: Connection, mut bytes: &[u8]) {
        if self.long_poll.is_some() {
            return self.http_bytes(scope, which, bytes);
        }
        if self.phase == Phase::Upgrading {
            match self.socket.handle_upgrade(&mut bytes) {
                Ok(true) => {}
                Ok(false) => return,
                Err((_, why)) => return self.fail(scope, Failure::WebsocketRefused, why),
            }
            scope.record_delay(m::WEBSOCKET_DELAY, self.step_started_at);
            self.phase = Phase::Creating;
            self.send_request(scope, RequestKind::Create, json!({}));
        }
        while self.phase != Phase::Ended {
            match self.socket.next(scope, &mut bytes) {
                Ok(None) => break,
                Ok(Some(body)) => match JanusMessage::parse(&body) {
                    Ok(message) => self.message(scope, message),
                    Err(why) => self.fail(scope, Failure::MalformedJson, why),
                },
                Err((Failure::SignallingClosed, _)) if self.phase == Phase::Leaving => {
                    self.finish(scope)
                }
                Err((failure, what)) => self.fail(scope, failure, what),
            }
        }
    }

    fn closed(&mut self, scope: &mut SignallingContext<'_>, which: Connection, how: CloseReason) {
        self.has_connection &= which == Connection::Second;
        if self.long_poll.is_some() {
            return self.http_closed(scope, which, how);
        }
        if self.phase == Phase::Leaving {
            return self.finish(scope);
        }
        let (failure, what) = closed_failure(how);
        self.fail(scope, failure, what);
    }

    fn local_description(
        &mut self,
        scope: &mut SignallingContext<'_>,
        peer: PeerNumber,
        sdp: &str,
    ) {
        let handle = peer.0 as usize;
        let Some(own) = self.handles.get_mut(handle).filter(|own| !own.is_detached) else {
            return;
        };
        let is_offer = own.role == Role::Participant;
        own.has_answered = true;
        let jsep = Some(Jsep {
            is_offer,
            sdp: sdp.to_owned(),
        });
        let name = if is_offer { "publish" } else { "start" };
        self.send_plugin_request(scope, handle, name, json!({}), jsep);
    }

    fn deadline(&self) -> Option<Time> {
        let timeout = self.config.request_timeout.0;
        if let Phase::Idle | Phase::Connecting | Phase::Ended = self.phase {
            return None;
        }
        let answer = self.oldest_awaited().map(|(_, at)| at + timeout);
        let alive = matches!(self.phase, Phase::Session(_)).then_some(self.keepalive_at);
        let poll = self
            .long_poll
            .as_ref()
            .and_then(|own| own.poll_deadline(timeout));
        answer.into_iter().chain(alive).chain(poll).min()
    }

    fn handle_due(&mut self, scope: &mut SignallingContext<'_>) {
        let timeout = self.config.request_timeout.0;
        if let Some((what, at)) = self.oldest_awaited()
            && scope.now >= at + timeout
        {
            if self.phase == Phase::Leaving {
                return self.finish(scope);
            }
            let what = format!(
                "no answer to `{what}` within {:.3} s",
                timeout.as_secs_f64()
            );
            return self.fail(scope, Failure::RequestTimeout, what);
        }
        let poll = self
            .long_poll
            .as_ref()
            .and_then(|own| own.poll_deadline(timeout));
        if poll.is_some_and(|due| due <= scope.now) {
            return self.fail(scope, Failure::RequestTimeout, "no answer to the long poll");
        }
        if matches!(self.phase, Phase::Session(_)) && scope.now >= self.keepalive_at {
            self.keepalive_at = scope.now + KEEPALIVE_INTERVAL;
            self.send_request(scope, RequestKind::KeepAlive, json!({}));
        }
    }

    fn leave(&mut self, scope: &mut SignallingContext<'_>) {
        match self.phase {
            Phase::Session(_) => {
                self.destroy_room(scope);
                self.destroy_mountpoint(scope);
                self.send_request(scope, RequestKind::Destroy, json!({}));
                self.phase = Phase::Leaving;
            }
            Phase::Leaving | Phase::Ended => {}
            _ => self.end(scope),
        }
    }

    fn expects_media(&self) -> bool {
        match self.place {
            Resource::Room(_) => self.has_publishers(),
            _ => self.fed_streams.is_empty(),
        }
    }

    fn awaited(&self) -> Option<(Time, String)> {
        let (what, since) = match self.phase {
            Phase::Connecting => ("a connection".to_owned(), self.step_started_at),
            Phase::Upgrading => ("the WebSocket handshake".to_owned(), self.step_started_at),
            _ => {
                let (request, at) = self.oldest_awaited()?;
                (format!("the answer to `{request}`"), at)
            }
        };
        Some((since, format!("for {what} ({})", self.shown_url)))
    }
}

/// Returns the URL without user name and password.
fn url_without_credentials(url: &Url, long_poll: bool) -> String {
    let secure = if url.is_secure() { "s" } else { "" };
    let scheme = if long_poll { "http" } else { "ws" };
    format!("{scheme}{secure}://{}{}", url.authority(), url.target())
}

#[cfg(test)]
mod tests;

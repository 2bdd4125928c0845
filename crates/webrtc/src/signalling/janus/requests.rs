//! Requests to Janus and its plug-ins, kept by their numbers until they are answered.

use measure::Time;
use serde_json::{Value, json};

use super::{Handle, Janus, Jsep, Phase, Role};
use crate::failure::Failure;
use crate::metrics as m;
use crate::signalling::{PeerNumber, SignallingAction, SignallingContext, split_candidates};
use kit::websocket;

/// Maximum number of unanswered requests.
const PENDING_MAX: usize = 10_000;

/// Maximum number of handles of a client.
const HANDLES_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestKind {
    Create,
    Attach(usize),
    KeepAlive,
    Destroy,
    /// Request to the plug-in of a handle, with the name of the request.
    Plugin(usize, &'static str),
    Trickle,
    Detach,
}

impl RequestKind {
    /// Name of the request in failure details.
    pub(super) fn name(&self) -> &'static str {
        match self {
            RequestKind::Create => "create",
            RequestKind::Attach(_) => "attach",
            RequestKind::KeepAlive => "keepalive",
            RequestKind::Destroy => "destroy",
            RequestKind::Plugin(_, name) => name,
            RequestKind::Trickle => "trickle",
            RequestKind::Detach => "detach",
        }
    }
}

/// Request without an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingRequest {
    pub(super) kind: RequestKind,
    /// Time when it was sent. `None` while it waits for earlier answers.
    pub(super) sent_at: Option<Time>,
}

impl Janus {
    /// Sends a request to Janus or, with HTTP, queues it. `more` has the request's own fields.
    pub(super) fn send_request(
        &mut self,
        scope: &mut SignallingContext<'_>,
        kind: RequestKind,
        mut more: Value,
    ) {
        if self.pending.len() >= PENDING_MAX {
            let what = format!("{PENDING_MAX} requests are unanswered");
            return self.fail(scope, Failure::RequestTimeout, what);
        }
        self.last_transaction += 1;
        let number = self.last_transaction;
        more["janus"] = match kind {
            RequestKind::Plugin(..) => "message".into(),
            _ => kind.name().into(),
        };
        more["transaction"] = number.to_string().into();
        if let Phase::Session(session) = self.phase {
            more["session_id"] = session.into();
        }
        if let Some(token) = &self.config.token {
            more["token"] = token.as_str().into();
        }
        if let Some(secret) = &self.config.api_secret {
            more["apisecret"] = secret.as_str().into();
        }
        let sent_at = self.long_poll.is_none().then_some(scope.now);
        self.pending
            .insert(number, PendingRequest { kind, sent_at });
        let text = more.to_string();
        match &mut self.long_poll {
            None => {
                scope.recorder.add(m::REQUESTS, 1);
                self.socket.send(scope, websocket::TEXT, text.as_bytes());
            }
            Some(own) => {
                own.queue_request(
                    number,
                    more["session_id"].as_u64(),
                    more["handle_id"].as_u64(),
                    &text,
                );
                self.send_next(scope);
            }
        }
    }

    /// Sends the request `name` to a plug-in. `body` has the request's other fields.
    pub(super) fn send_plugin_request(
        &mut self,
        scope: &mut SignallingContext<'_>,
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
        let mut trickled = None;
        let mut mid = String::new();
        if let Some(jsep) = jsep {
            let mut lines = jsep.sdp.lines();
            let first = lines.find_map(|line| line.strip_prefix("a=mid:"));
            mid = first.unwrap_or_default().to_owned();
            let (sdp, candidates) = match self.config.trickle {
                true => split_candidates(&jsep.sdp),
                false => (jsep.sdp, Vec::new()),
            };
            let kind = if jsep.is_offer { "offer" } else { "answer" };
            more["jsep"] = json!({"type": kind, "sdp": sdp, "trickle": self.config.trickle});
            trickled = self.config.trickle.then_some(candidates);
        }
        self.send_request(scope, RequestKind::Plugin(handle, name), more);
        for candidate in trickled.iter().flatten() {
            let more = json!({
                "handle_id": id,
                "candidate": {"candidate": candidate, "sdpMid": mid, "sdpMLineIndex": 0},
            });
            self.send_request(scope, RequestKind::Trickle, more);
        }
        if trickled.is_some() {
            let more = json!({"handle_id": id, "candidate": {"completed": true}});
            self.send_request(scope, RequestKind::Trickle, more);
        }
    }

    /// Returns the body of a request with the PIN of the room or mount point, if that has one.
    pub(super) fn with_pin(&self, mut body: Value) -> Value {
        if let Some(pin) = &self.config.pin {
            body["pin"] = pin.as_str().into();
        }
        body
    }

    /// Attaches a new handle.
    pub(super) fn attach(&mut self, scope: &mut SignallingContext<'_>, role: Role) {
        if self.handles.len() >= HANDLES_MAX {
            return;
        }
        let plugin = match role {
            Role::Mountpoint => "janus.plugin.streaming",
            Role::Participant | Role::AllPublishers | Role::Publisher(_) => {
                "janus.plugin.videoroom"
            }
        };
        let handle = self.handles.len();
        self.handles.push(Handle {
            id: None,
            role,
            has_answered: false,
            is_detached: false,
        });
        let more = json!({"plugin": plugin});
        self.send_request(scope, RequestKind::Attach(handle), more);
    }

    /// Detaches a handle.
    pub(super) fn detach(&mut self, scope: &mut SignallingContext<'_>, handle: usize) {
        let own = &mut self.handles[handle];
        if std::mem::replace(&mut own.is_detached, true) {
            return;
        }
        if let Some(id) = own.id {
            self.send_request(scope, RequestKind::Detach, json!({"handle_id": id}));
        }
        scope.push(SignallingAction::DropPeer {
            peer: PeerNumber(handle as u32),
        });
    }

    /// Returns what has been awaited from Janus for longest, and since when. Requests are sent in
    /// the order of their numbers.
    pub(super) fn oldest_awaited(&self) -> Option<(&'static str, Time)> {
        match self.phase {
            Phase::Idle | Phase::Connecting | Phase::Ended => None,
            Phase::Upgrading => Some(("WebSocket handshake", self.step_started_at)),
            Phase::Creating | Phase::Session(_) | Phase::Leaving => {
                let oldest = self.pending.values().next()?;
                Some((oldest.kind.name(), oldest.sent_at?))
            }
        }
    }
}

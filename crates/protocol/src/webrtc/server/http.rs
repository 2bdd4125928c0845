//! HTTP connection: WHIP (RFC 9725) under `/whip/NAME`, WHEP (draft-ietf-wish-whep) under
//! `/whep/NAME`, and the resulting sessions under `/session/ID`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::agree::{Agreed, Refused};
use super::faults::Silence;
use super::janus;
use super::request::{Came, Request, RequestReader};
use super::{CHANNEL, Shared, add};
use crate::http1;
use crate::session::{Context, Input, Outcome, Output, Port, Session};
use crate::webrtc::sdp::Fragment;

/// Idle timeout of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum length of a stream name, in bytes.
const NAME_MAX: usize = 200;

/// HTTP connection, which may become a WebSocket.
#[derive(Debug)]
pub(super) struct HttpSession {
    shared: Arc<Shared>,
    reader: RequestReader,
    local: Option<SocketAddr>,
    /// Handler of the WebSocket, once the client has requested one.
    room: Option<Box<janus::Door>>,
    /// Time at which the connection is closed if nothing arrives.
    until: Time,
    over: bool,
}

/// HTTP response.
#[derive(Debug, Default)]
struct Answer {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: String,
}

impl Answer {
    fn of(status: u16) -> Answer {
        Answer {
            status,
            ..Answer::default()
        }
    }

    /// Response that refuses a request, with the reason as its body.
    fn refused(status: u16, why: impl Into<String>) -> Answer {
        let why: String = why.into();
        Answer::of(status)
            .with("Content-Type", "text/plain")
            .body(format!("{why}\n"))
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.fields.push((name, value.into()));
        self
    }

    fn body(self, body: String) -> Answer {
        Answer { body, ..self }
    }

    fn write(&self, keep: bool) -> Vec<u8> {
        let line = format!("HTTP/1.1 {} {}", self.status, reason(self.status));
        let length = self.body.len().to_string();
        let mut fields: Vec<(&str, &str)> = vec![
            ("Server", concat!("streamgauge/", env!("CARGO_PKG_VERSION"))),
            // Pages in browsers come from another origin.
            ("Access-Control-Allow-Origin", "*"),
            ("Access-Control-Expose-Headers", "Location, ETag"),
        ];
        let own = self.fields.iter();
        fields.extend(own.map(|(name, value)| (*name, &value[..])));
        if self.status != 204 {
            fields.push(("Content-Length", &length));
        }
        if !keep {
            fields.push(("Connection", "close"));
        }
        let mut bytes = http1::write_head(&line, &fields);
        bytes.extend_from_slice(self.body.as_bytes());
        bytes
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        428 => "Precondition Required",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Refused",
    }
}

/// Target of a request path.
enum Target<'a> {
    /// Endpoint where a client publishes or plays a stream.
    Offer {
        name: &'a str,
        publish: bool,
    },
    /// ID of a PeerConnection.
    Resource(&'a str),
    Nothing,
}

fn target(path: &str) -> Target<'_> {
    let Some((kind, name)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
        return Target::Nothing;
    };
    let name = name.trim_end_matches('/');
    if name.is_empty() || name.len() > NAME_MAX {
        return Target::Nothing;
    }
    match kind {
        "whip" => Target::Offer {
            name,
            publish: true,
        },
        "whep" => Target::Offer {
            name,
            publish: false,
        },
        "session" => Target::Resource(name),
        _ => Target::Nothing,
    }
}

fn is_of_type(request: &Request, wanted: &str) -> bool {
    let kind = request.headers.get("Content-Type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(wanted)
}

fn asks_for_websocket(request: &Request) -> bool {
    let upgrade = request.headers.get("Upgrade").unwrap_or_default();
    request.method == "GET" && upgrade.eq_ignore_ascii_case("websocket")
}

fn etag(id: &str) -> String {
    format!("\"{id}\"")
}

impl HttpSession {
    pub(super) fn new(shared: Arc<Shared>) -> HttpSession {
        HttpSession {
            shared,
            reader: RequestReader::new(),
            local: None,
            room: None,
            until: Time::NEVER,
            over: false,
        }
    }

    fn send(cx: &mut Context<'_>, bytes: Vec<u8>) {
        cx.out.push_back(Output::Send {
            channel: CHANNEL,
            port: Port::Media,
            bytes,
        });
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if !std::mem::replace(&mut self.over, true) {
            if let Some(room) = &mut self.room {
                room.end(cx);
            }
            cx.out.push_back(Output::Close { channel: CHANNEL });
            cx.out.push_back(Output::Ended(outcome));
        }
    }

    fn bytes(&mut self, cx: &mut Context<'_>, mut bytes: &[u8]) {
        self.until = cx.now + PATIENCE;
        if self.room.is_some() {
            return self.room_bytes(cx, bytes);
        }
        while !self.over {
            let (answer, goes_on) = match self.reader.take(&mut bytes) {
                Ok(Came::Part) => return,
                Ok(Came::Waits) => {
                    Self::send(cx, b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
                    continue;
                }
                Ok(Came::Request(request)) if asks_for_websocket(&request) => {
                    return self.open_room(cx, &request, bytes);
                }
                Ok(Came::Request(request)) => {
                    let close = request.headers.get("Connection");
                    let close = close.is_some_and(|text| text.eq_ignore_ascii_case("close"));
                    (self.answer(cx, &request), !close)
                }
                Err(status) => (Answer::refused(status, "unreadable request"), false),
            };
            let door = &self.shared.door;
            add(&door.requests, 1);
            add(&door.refused, u64::from(answer.status >= 400));
            add(&door.unauthorized, u64::from(answer.status == 401));
            if self.shared.config.faults.silent == Some(Silence::Http) {
                continue;
            }
            Self::send(cx, answer.write(goes_on));
            if !goes_on {
                self.end(cx, Outcome::Completed);
            }
        }
    }

    /// Upgrades the connection to a WebSocket for rooms.
    fn open_room(&mut self, cx: &mut Context<'_>, request: &Request, rest: &[u8]) {
        let Some(local) = self.local else {
            return self.end(cx, Outcome::Completed);
        };
        // The WebSocket handshake parses a request head of its own.
        let mut head = b"GET / HTTP/1.1\r\n".to_vec();
        for name in ["Sec-WebSocket-Key", "Sec-WebSocket-Protocol"] {
            for value in request.headers.all(name) {
                head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
        }
        head.extend_from_slice(b"\r\n");
        let door = janus::Door::new(cx.now, self.shared.clone(), local);
        self.room = Some(Box::new(door));
        self.room_bytes(cx, &head);
        self.room_bytes(cx, rest);
    }

    fn room_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        let Some(room) = self.room.as_mut().filter(|_| !self.over) else {
            return;
        };
        match room.bytes(cx, bytes) {
            Ok(true) => self.until = room.until(),
            Ok(false) => self.end(cx, Outcome::Completed),
            Err(why) => {
                add(&self.shared.door.requests, 1);
                add(&self.shared.door.refused, 1);
                Self::send(cx, Answer::refused(400, why).write(false));
                self.end(cx, Outcome::Completed);
            }
        }
    }

    fn answer(&self, cx: &mut Context<'_>, request: &Request) -> Answer {
        self.shared.forget_who_never_came(cx.now);
        let at = target(&request.path);
        // Browsers send this preflight request before they present a token (RFC 9725, 4.4).
        if request.method == "OPTIONS" {
            return Answer::of(204)
                .with(
                    "Access-Control-Allow-Methods",
                    "OPTIONS, POST, PATCH, DELETE",
                )
                .with(
                    "Access-Control-Allow-Headers",
                    "Authorization, Content-Type, If-Match",
                )
                .with("Accept-Post", "application/sdp");
        }
        if !self.is_authorized(request) {
            return Answer::refused(401, "missing or wrong bearer token")
                .with("WWW-Authenticate", "Bearer");
        }
        match (at, &request.method[..]) {
            (Target::Offer { name, publish }, "POST") => self.offered(cx, request, name, publish),
            (Target::Resource(id), "PATCH") => self.patched(request, id),
            (Target::Resource(id), "DELETE") => self.deleted(cx, id),
            (Target::Nothing, _) => Answer::refused(404, "use /whip/NAME or /whep/NAME"),
            (Target::Offer { .. }, _) => {
                Answer::refused(405, "send offers by POST").with("Allow", "OPTIONS, POST")
            }
            (Target::Resource(_), _) => Answer::refused(405, "use PATCH or DELETE on a session")
                .with("Allow", "OPTIONS, PATCH, DELETE"),
        }
    }

    fn is_authorized(&self, request: &Request) -> bool {
        let Some(token) = &self.shared.config.token else {
            return true;
        };
        let said = request.headers.get("Authorization").unwrap_or_default();
        let shown = said
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        shown.is_some_and(|(_, shown)| shown.trim() == token)
    }

    /// Handles an offer (RFC 9725, 4.2).
    fn offered(
        &self,
        cx: &mut Context<'_>,
        request: &Request,
        name: &str,
        publish: bool,
    ) -> Answer {
        if let Some(status) = self.shared.config.faults.answer {
            return Answer::refused(status, "refused on purpose");
        }
        if !is_of_type(request, "application/sdp") {
            return Answer::refused(415, "expected application/sdp");
        }
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Answer::refused(400, "the offer is not UTF-8");
        };
        let Some(local) = self.local else {
            return Answer::refused(500, "the connection has no local address");
        };
        let shared = &self.shared;
        let agreed = shared
            .begin_to_answer(cx.now, local, text)
            .and_then(|(offer, begun)| match publish {
                true => shared.agree_to_publish(&offer, name, begun),
                false => shared.agree_to_play(&offer, name, begun),
            });
        match agreed {
            Ok(Agreed { id, answer }) => Answer::of(201)
                .with("Content-Type", "application/sdp")
                .with("Location", format!("/session/{id}"))
                .with("ETag", etag(&id))
                .with("Accept-Patch", "application/trickle-ice-sdpfrag")
                .body(answer.to_string()),
            Err(Refused { status, why }) => Answer::refused(status, why),
        }
    }

    /// Handles candidates that the client sends later (RFC 9725, 4.3). They are ignored, because
    /// the server only answers checks.
    fn patched(&self, request: &Request, id: &str) -> Answer {
        let Some(known) = self.shared.registry().find(id).cloned() else {
            return Answer::refused(404, "no such session");
        };
        if !is_of_type(request, "application/trickle-ice-sdpfrag") {
            return Answer::refused(415, "expected application/trickle-ice-sdpfrag");
        }
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Answer::refused(400, "the fragment is not UTF-8");
        };
        let Some(tag) = request.headers.get("If-Match") else {
            return Answer::refused(428, "If-Match is missing");
        };
        let fragment = Fragment::parse(text);
        let is_of_another = |ufrag: &String| *ufrag != known.remote_ufrag;
        // A client requests a restart with `*` (4.3.2), or by sending other credentials.
        if tag == "*" || fragment.ufrag.as_ref().is_some_and(is_of_another) {
            return Answer::refused(422, "ICE restarts are not supported");
        }
        if tag != etag(id) {
            return Answer::refused(412, "If-Match differs from the session's ETag");
        }
        Answer::of(204)
    }

    /// Ends a session that the client deletes (RFC 9725, 4.2).
    fn deleted(&self, cx: &mut Context<'_>, id: &str) -> Answer {
        match self.shared.end_peer(cx, id) {
            true => Answer::of(200),
            false => Answer::refused(404, "no such session"),
        }
    }
}

impl Session for HttpSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.over {
            return;
        }
        match input {
            Input::Opened { local, .. } => {
                self.local = Some(local);
                self.until = cx.now + PATIENCE;
            }
            Input::Bytes { bytes, .. } => self.bytes(cx, bytes),
            Input::Closed { .. } => self.end(cx, Outcome::Completed),
            Input::Deadline if cx.now >= self.until => self.end(cx, Outcome::Completed),
            Input::Told { topic, .. } => {
                if let Some(room) = &mut self.room {
                    room.told(cx, topic);
                }
            }
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        (!self.over && self.until != Time::NEVER).then_some(self.until)
    }
}

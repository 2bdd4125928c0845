//! HTTP connection: WHIP (RFC 9725) under `/whip/NAME`, WHEP (draft-ietf-wish-whep) under
//! `/whep/NAME`, and the resulting sessions under `/session/ID`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::faults::Silence;
use super::janus;
use super::negotiation::{NegotiatedPeer, NegotiationError};
use super::request::{ReadResult, Request, RequestReader};
use super::{CHANNEL, Shared, add, send};
use crate::sdp::SdpFragment;
use kit::http1;
use session::{Context, Input, Outcome, Output, Session};

/// Idle timeout of a connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a stream name, in bytes.
const NAME_MAX: usize = 200;

/// HTTP connection, which may become a WebSocket.
#[derive(Debug)]
pub(super) struct HttpSession {
    shared: Arc<Shared>,
    reader: RequestReader,
    local: Option<SocketAddr>,
    /// Handler of the WebSocket, once the client has requested one.
    websocket: Option<Box<janus::JanusConnection>>,
    /// Time at which the connection is closed if nothing arrives.
    idle_deadline: Time,
    ended: bool,
}

/// HTTP response.
#[derive(Debug, Default)]
struct Response {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: String,
}

impl Response {
    fn of(status: u16) -> Response {
        Response {
            status,
            ..Response::default()
        }
    }

    /// Response that refuses a request, with the reason as its body.
    fn refusal(status: u16, why: impl Into<String>) -> Response {
        let why: String = why.into();
        Response::of(status)
            .with("Content-Type", "text/plain")
            .body(format!("{why}\n"))
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.fields.push((name, value.into()));
        self
    }

    fn body(self, body: String) -> Response {
        Response { body, ..self }
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
    Unknown,
}

fn target(path: &str) -> Target<'_> {
    let Some((kind, name)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
        return Target::Unknown;
    };
    let name = name.trim_end_matches('/');
    if name.is_empty() || name.len() > NAME_MAX {
        return Target::Unknown;
    }
    match kind {
        "whip" | "whep" => Target::Offer {
            name,
            publish: kind == "whip",
        },
        "session" => Target::Resource(name),
        _ => Target::Unknown,
    }
}

fn has_content_type(request: &Request, wanted: &str) -> bool {
    let kind = request.headers.get("Content-Type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(wanted)
}

fn is_websocket_upgrade(request: &Request) -> bool {
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
            websocket: None,
            idle_deadline: Time::NEVER,
            ended: false,
        }
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if !std::mem::replace(&mut self.ended, true) {
            if let Some(websocket) = &mut self.websocket {
                websocket.end(cx);
            }
            cx.out.push_back(Output::Close { channel: CHANNEL });
            cx.out.push_back(Output::Ended(outcome));
        }
    }

    fn bytes(&mut self, cx: &mut Context<'_>, mut bytes: &[u8]) {
        self.idle_deadline = cx.now + IDLE_TIMEOUT;
        if self.websocket.is_some() {
            return self.websocket_bytes(cx, bytes);
        }
        while !self.ended {
            let (answer, keeps_alive) = match self.reader.take(&mut bytes) {
                Ok(ReadResult::Incomplete) => return,
                Ok(ReadResult::ExpectsContinue) => {
                    send(cx, b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
                    continue;
                }
                Ok(ReadResult::Request(request)) if is_websocket_upgrade(&request) => {
                    return self.upgrade(cx, &request, bytes);
                }
                Ok(ReadResult::Request(request)) => {
                    let close = request.headers.get("Connection");
                    let close = close.is_some_and(|text| text.eq_ignore_ascii_case("close"));
                    (self.answer(cx, &request), !close)
                }
                Err(status) => (Response::refusal(status, "unreadable request"), false),
            };
            let counters = &self.shared.counters;
            add(&counters.requests, 1);
            add(&counters.refused, u64::from(answer.status >= 400));
            add(&counters.unauthorized, u64::from(answer.status == 401));
            if self.shared.config.faults.silent == Some(Silence::Http) {
                continue;
            }
            send(cx, answer.write(keeps_alive));
            if !keeps_alive {
                self.end(cx, Outcome::Completed);
            }
        }
    }

    /// Upgrades the connection to a WebSocket for rooms.
    fn upgrade(&mut self, cx: &mut Context<'_>, request: &Request, rest: &[u8]) {
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
        let connection = janus::JanusConnection::new(cx.now, self.shared.clone(), local);
        self.websocket = Some(Box::new(connection));
        self.websocket_bytes(cx, &head);
        self.websocket_bytes(cx, rest);
    }

    fn websocket_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        let Some(websocket) = self.websocket.as_mut().filter(|_| !self.ended) else {
            return;
        };
        match websocket.bytes(cx, bytes) {
            Ok(true) => self.idle_deadline = websocket.idle_deadline,
            Ok(false) => self.end(cx, Outcome::Completed),
            Err(why) => {
                add(&self.shared.counters.requests, 1);
                add(&self.shared.counters.refused, 1);
                send(cx, Response::refusal(400, why).write(false));
                self.end(cx, Outcome::Completed);
            }
        }
    }

    fn answer(&self, cx: &mut Context<'_>, request: &Request) -> Response {
        self.shared.purge_expired(cx.now);
        let at = target(&request.path);
        // Browsers send this preflight request before they present a token (RFC 9725, 4.4).
        if request.method == "OPTIONS" {
            return Response::of(204)
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
            return Response::refusal(401, "missing or wrong bearer token")
                .with("WWW-Authenticate", "Bearer");
        }
        match (at, &request.method[..]) {
            (Target::Offer { name, publish }, "POST") => {
                self.handle_offer(cx, request, name, publish)
            }
            (Target::Resource(id), "PATCH") => self.handle_patch(request, id),
            (Target::Resource(id), "DELETE") => self.handle_delete(cx, id),
            (Target::Unknown, _) => Response::refusal(404, "use /whip/NAME or /whep/NAME"),
            (Target::Offer { .. }, _) => {
                Response::refusal(405, "send offers by POST").with("Allow", "OPTIONS, POST")
            }
            (Target::Resource(_), _) => Response::refusal(405, "use PATCH or DELETE on a session")
                .with("Allow", "OPTIONS, PATCH, DELETE"),
        }
    }

    fn is_authorized(&self, request: &Request) -> bool {
        let Some(token) = &self.shared.config.token else {
            return true;
        };
        let field = request.headers.get("Authorization").unwrap_or_default();
        let presented = field
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        presented.is_some_and(|(_, presented)| presented.trim() == token)
    }

    /// Handles an offer (RFC 9725, 4.2).
    fn handle_offer(
        &self,
        cx: &mut Context<'_>,
        request: &Request,
        name: &str,
        publish: bool,
    ) -> Response {
        if let Some(status) = self.shared.config.faults.answer {
            return Response::refusal(status, "refused on purpose");
        }
        if !has_content_type(request, "application/sdp") {
            return Response::refusal(415, "expected application/sdp");
        }
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Response::refusal(400, "the offer is not UTF-8");
        };
        let Some(local) = self.local else {
            return Response::refusal(500, "the connection has no local address");
        };
        let shared = &self.shared;
        let negotiated =
            shared
                .create_answerer(cx.now, local, text)
                .and_then(|(offer, negotiating)| match publish {
                    true => shared.negotiate_publisher(&offer, name, negotiating),
                    false => shared.negotiate_player(&offer, name, negotiating),
                });
        match negotiated {
            Ok(NegotiatedPeer { id, answer }) => Response::of(201)
                .with("Content-Type", "application/sdp")
                .with("Location", format!("/session/{id}"))
                .with("ETag", etag(&id))
                .with("Accept-Patch", "application/trickle-ice-sdpfrag")
                .body(answer.to_string()),
            Err(NegotiationError { status, text: why }) => Response::refusal(status, why),
        }
    }

    /// Handles candidates that the client sends later (RFC 9725, 4.3). They are ignored, because
    /// the server only answers checks.
    fn handle_patch(&self, request: &Request, id: &str) -> Response {
        let remote_ufrag = self
            .shared
            .registry()
            .find(id)
            .map(|peer| peer.remote_ufrag.clone());
        let Some(remote_ufrag) = remote_ufrag else {
            return Response::refusal(404, "no such session");
        };
        if !has_content_type(request, "application/trickle-ice-sdpfrag") {
            return Response::refusal(415, "expected application/trickle-ice-sdpfrag");
        }
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Response::refusal(400, "the fragment is not UTF-8");
        };
        let Some(tag) = request.headers.get("If-Match") else {
            return Response::refusal(428, "If-Match is missing");
        };
        let fragment = SdpFragment::parse(text);
        let is_of_another = |ufrag: &String| *ufrag != remote_ufrag;
        // A client requests a restart with `*` (4.3.2), or by sending other credentials.
        if tag == "*" || fragment.ufrag.as_ref().is_some_and(is_of_another) {
            return Response::refusal(422, "ICE restarts are not supported");
        }
        if tag != etag(id) {
            return Response::refusal(412, "If-Match differs from the session's ETag");
        }
        Response::of(204)
    }

    /// Ends a session that the client deletes (RFC 9725, 4.2).
    fn handle_delete(&self, cx: &mut Context<'_>, id: &str) -> Response {
        match self.shared.end_peer(cx, id) {
            true => Response::of(200),
            false => Response::refusal(404, "no such session"),
        }
    }
}

impl Session for HttpSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.ended {
            return;
        }
        match input {
            Input::Opened { local, .. } => {
                self.local = Some(local);
                self.idle_deadline = cx.now + IDLE_TIMEOUT;
            }
            Input::Bytes { bytes, .. } => self.bytes(cx, bytes),
            Input::Closed { .. } => self.end(cx, Outcome::Completed),
            Input::Deadline if cx.now >= self.idle_deadline => self.end(cx, Outcome::Completed),
            Input::TopicMessage { topic, .. } => {
                if let Some(websocket) = &mut self.websocket {
                    websocket.room_changed(cx, topic);
                }
            }
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        (!self.ended && self.idle_deadline != Time::NEVER).then_some(self.idle_deadline)
    }
}

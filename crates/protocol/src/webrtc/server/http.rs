//! A connection of HTTP: WHIP (RFC 9725) under `/whip/NAME`, WHEP (draft-ietf-wish-whep) under
//! `/whep/NAME`, and what came of either under `/session/ID`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use measure::Time;

use super::faults::Silence;
use super::negotiate::{self, Own};
use super::registry::{New, Registry, Removed};
use super::relay::{Publication, Word, topic_of_peer};
use super::request::{Came, Request, RequestReader};
use super::session::{Role, Waiting};
use super::{CHANNEL, Shared, add};
use crate::http1;
use crate::published_streams::Refusal;
use crate::session::{Context, Input, Outcome, Output, Port, Session};
use crate::webrtc::peer::{Peer, PeerConfig};
use crate::webrtc::sdp::{Fragment, SessionDescription, Transport};

/// How long a client may take for its next request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a PeerConnection may take to be connected, and to begin.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);

/// The longest name of a stream, in bytes.
const NAME_MAX: usize = 200;

/// A connection.
#[derive(Debug)]
pub(super) struct HttpSession {
    shared: Arc<Shared>,
    reader: RequestReader,
    local: Option<SocketAddr>,
    /// When it has waited long enough for a request.
    until: Time,
    over: bool,
}

/// What is answered.
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

    /// A refusal, with its reason in words.
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
            // Pages in browsers come from elsewhere.
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

/// What a path leads to.
enum Target<'a> {
    /// Where a client publishes, or plays, the stream of that name.
    Offer {
        name: &'a str,
        publish: bool,
    },
    /// A PeerConnection.
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

fn etag(id: &str) -> String {
    format!("\"{id}\"")
}

impl HttpSession {
    pub(super) fn new(shared: Arc<Shared>) -> HttpSession {
        HttpSession {
            shared,
            reader: RequestReader::new(),
            local: None,
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
            cx.out.push_back(Output::Close { channel: CHANNEL });
            cx.out.push_back(Output::Ended(outcome));
        }
    }

    fn bytes(&mut self, cx: &mut Context<'_>, mut bytes: &[u8]) {
        self.until = cx.now + PATIENCE;
        while !self.over {
            let (answer, goes_on) = match self.reader.take(&mut bytes) {
                Ok(Came::Part) => return,
                Ok(Came::Waits) => {
                    Self::send(cx, b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
                    continue;
                }
                Ok(Came::Request(request)) => {
                    let close = request.headers.get("Connection");
                    let close = close.is_some_and(|text| text.eq_ignore_ascii_case("close"));
                    (self.answer(cx, &request), !close)
                }
                Err(status) => (Answer::refused(status, "this is no request"), false),
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

    fn answer(&self, cx: &mut Context<'_>, request: &Request) -> Answer {
        let gone = self.shared.registry().purge(cx.now);
        self.shared.give_back(gone);
        let at = target(&request.path);
        // Browsers ask before they show a token (RFC 9725, 4.4).
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
            return Answer::refused(401, "the token is not the one that is wanted")
                .with("WWW-Authenticate", "Bearer");
        }
        match (at, &request.method[..]) {
            (Target::Offer { name, publish }, "POST") => self.offered(cx, request, name, publish),
            (Target::Resource(id), "PATCH") => self.patched(request, id),
            (Target::Resource(id), "DELETE") => self.deleted(cx, id),
            (Target::Nothing, _) => Answer::refused(404, "there are /whip/NAME and /whep/NAME"),
            (Target::Offer { .. }, _) => {
                Answer::refused(405, "an offer is posted").with("Allow", "OPTIONS, POST")
            }
            (Target::Resource(_), _) => Answer::refused(405, "a session is patched or deleted")
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

    /// An offer (RFC 9725, 4.2).
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
            return Answer::refused(415, "an offer is of the type application/sdp");
        }
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Answer::refused(400, "the offer is no text");
        };
        let read = SessionDescription::parse(text).and_then(|offer| {
            let transport = offer.transport()?;
            Ok((offer, transport))
        });
        let (offer, theirs) = match read {
            Ok(read) => read,
            Err(error) => return Answer::refused(400, error.to_string()),
        };
        let Some(local) = self.local else {
            return Answer::refused(500, "this connection has no address");
        };
        if !self.shared.registry().has_room() {
            return Answer::refused(503, "there are as many sessions as may be");
        }
        let number = self.shared.peers.fetch_add(1, Ordering::Relaxed);
        let seed = self.shared.drawn(number, &[0]);
        let mut config = PeerConfig::new(self.shared.certificate.clone(), seed);
        config.ice_lite = true;
        config.connect_timeout = CONNECT_WITHIN;
        let mut peer = Peer::answerer(cx.now, &config);
        peer.add_local_candidate(cx.now, local);
        if let Err(failure) = peer.set_remote(cx.now, &theirs) {
            return Answer::refused(400, failure.to_string());
        }
        let begun = Begun {
            number,
            peer,
            remote_ufrag: theirs.ufrag,
            until: cx.now + CONNECT_WITHIN,
        };
        match publish {
            true => self.publishes(&offer, name, begun),
            false => self.plays(&offer, name, begun),
        }
    }

    fn plays(&self, offer: &SessionDescription, name: &str, begun: Begun) -> Answer {
        let publication = self.shared.publication(name);
        let tracks = match &publication {
            Some(publication) => &publication.tracks,
            None if self.shared.makes(name) => &self.shared.made,
            None => return Answer::refused(404, "there is no stream of that name"),
        };
        let number = begun.number;
        let ours = begun.peer.local_transport();
        let own = self.own(&ours, number);
        let ssrcs = |track| self.shared.ssrcs(number, track);
        let answer = negotiate::answer_player(offer, tracks, ssrcs, &own.as_own());
        let Some((answer, planned)) = answer else {
            let codecs: Vec<&str> = tracks.iter().map(|track| &track.codec.name[..]).collect();
            let why = format!(
                "the stream has {}, which the offer takes not",
                codecs.join(", ")
            );
            return Answer::refused(406, why);
        };
        let role = Role::Plays {
            planned,
            publication,
        };
        let mut registry = self.shared.registry();
        self.accept(&mut registry, name, &answer, ours, begun, role)
    }

    fn publishes(&self, offer: &SessionDescription, name: &str, begun: Begun) -> Answer {
        let number = begun.number;
        let ours = begun.peer.local_transport();
        let own = self.own(&ours, number);
        let Some((answer, taken)) = negotiate::answer_publisher(offer, &own.as_own()) else {
            return Answer::refused(406, "the offer sends nothing that is taken here");
        };
        let index = match self.shared.published.begin(name) {
            Ok(index) => index,
            Err(Refusal::Taken) => return Answer::refused(409, "somebody publishes that stream"),
            Err(Refusal::Full) => return Answer::refused(503, "there are too many streams"),
        };
        // Its place is not to become another's meanwhile.
        let mut registry = self.shared.registry();
        let publication = Arc::new(Publication {
            number,
            slot: registry.next_slot(),
            index,
            tracks: taken.iter().map(|taken| taken.track.clone()).collect(),
        });
        let mut publications = self.shared.publications();
        publications.insert(name.to_owned(), publication.clone());
        drop(publications);
        let role = Role::Publishes { taken, publication };
        self.accept(&mut registry, name, &answer, ours, begun, role)
    }

    fn own(&self, transport: &Transport, number: u64) -> OwnParts {
        OwnParts {
            transport: transport.clone(),
            session_id: self.shared.drawn(number, &[3]) >> 2,
            cname: self.shared.cname(),
            transport_cc: self.shared.config.transport_cc,
        }
    }

    fn accept(
        &self,
        registry: &mut Registry<Waiting>,
        name: &str,
        answer: &SessionDescription,
        ours: Transport,
        begun: Begun,
        role: Role,
    ) -> Answer {
        let number = begun.number;
        let id = format!("{:016x}", self.shared.drawn(number, &[4]));
        let Transport { ufrag, pwd, .. } = ours;
        registry.add(New {
            id: id.clone(),
            number,
            ufrag,
            pwd,
            remote_ufrag: begun.remote_ufrag,
            until: begun.until,
            waiting: Waiting {
                number,
                name: name.to_owned(),
                peer: Box::new(begun.peer),
                role,
            },
        });
        Answer::of(201)
            .with("Content-Type", "application/sdp")
            .with("Location", format!("/session/{id}"))
            .with("ETag", etag(&id))
            .with("Accept-Patch", "application/trickle-ice-sdpfrag")
            .body(answer.to_string())
    }

    /// Addresses of the client that come later (RFC 9725, 4.3). This side only answers checks, so
    /// none is needed.
    fn patched(&self, request: &Request, id: &str) -> Answer {
        let Some(known) = self.shared.registry().find(id).cloned() else {
            return Answer::refused(404, "there is no such session");
        };
        if !is_of_type(request, "application/trickle-ice-sdpfrag") {
            return Answer::refused(415, "it is of the type application/trickle-ice-sdpfrag");
        }
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Answer::refused(400, "it is no text");
        };
        let Some(tag) = request.headers.get("If-Match") else {
            return Answer::refused(428, "If-Match is missing");
        };
        let fragment = Fragment::parse(text);
        let is_of_another = |ufrag: &String| *ufrag != known.remote_ufrag;
        // A restart is asked for with `*` (4.3.2), or shows by other credentials.
        if tag == "*" || fragment.ufrag.as_ref().is_some_and(is_of_another) {
            return Answer::refused(422, "ICE is not begun anew here");
        }
        if tag != etag(id) {
            return Answer::refused(412, "If-Match is not the session's ETag");
        }
        Answer::of(204)
    }

    /// The client ends what it began (RFC 9725, 4.2).
    fn deleted(&self, cx: &mut Context<'_>, id: &str) -> Answer {
        // The lock is not held while what was taken is given back.
        let removed = self.shared.registry().remove(id);
        match removed {
            None => Answer::refused(404, "there is no such session"),
            Some(Removed::Waiting(waiting)) => {
                self.shared.give_back([waiting]);
                Answer::of(200)
            }
            Some(Removed::Begun(known)) => {
                cx.out.push_back(Output::Tell {
                    topic: topic_of_peer(known.slot),
                    message: Word::Close.about(known.number).into(),
                });
                Answer::of(200)
            }
        }
    }
}

/// A PeerConnection that is being agreed upon.
struct Begun {
    number: u64,
    peer: Peer,
    remote_ufrag: String,
    until: Time,
}

/// What our answer says, kept.
struct OwnParts {
    transport: Transport,
    session_id: u64,
    cname: String,
    transport_cc: bool,
}

impl OwnParts {
    fn as_own(&self) -> Own<'_> {
        Own {
            transport: &self.transport,
            session_id: self.session_id,
            cname: &self.cname,
            transport_cc: self.transport_cc,
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
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        (!self.over && self.until != Time::NEVER).then_some(self.until)
    }
}

//! WHIP (RFC 9725) and WHEP (draft-ietf-wish-whep). The client sends its offer by POST, the answer
//! names the URL of a session, and the client ends that session by DELETE. Section numbers are
//! those of RFC 9725.
//!
//! Each request has its own connection, except candidates that follow the offer. Servers close idle
//! connections after some seconds, and a client may play for hours before its next request.

mod keys;

use std::sync::Arc;

use measure::Time;

use super::{
    Connection, Direction, PeerNumber, SDP_MAX, Signalling, SignallingAction, SignallingContext,
    SignallingTarget, closed_failure, split_candidates,
};
use crate::config::ClientConfig;
use crate::failure::Failure;
use crate::metrics as m;
use kit::auth;
use kit::http1::{self, CloseState, Head, ResponseDecoder, ResponseItem, Url, UrlError, Version};
use kit::redirect_policy::RedirectPolicy;
use session::CloseReason;

/// Maximum number of redirects of a client.
const MAX_REDIRECTS: usize = 5;

/// Maximum number of bytes of a refusal's body that are shown.
const REFUSAL_MAX: usize = 200;

/// The only PeerConnection.
pub const PEER: PeerNumber = PeerNumber(0);

/// Progress of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The connection for a request is being opened.
    Connecting(Request),
    /// Our offer is being created.
    Describing,
    /// The answer to a request is awaited.
    Awaiting(Request),
    /// Media flows. No request is needed.
    Established,
    Ended,
}

/// Request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Post,
    /// Sends the candidates that follow the offer.
    Patch,
    /// Ends the session.
    Delete,
}

impl Request {
    const fn method(self) -> &'static str {
        match self {
            Request::Post => "POST",
            Request::Patch => "PATCH",
            Request::Delete => "DELETE",
        }
    }
}

/// Session of a client.
#[derive(Debug)]
pub struct Whip {
    config: Arc<ClientConfig>,
    /// Current endpoint: the given URL, or the one to which the client was redirected.
    url: Url,
    /// Endpoints before it.
    visited: Vec<Url>,
    direction: Direction,
    phase: Phase,
    /// True if a connection is open or being opened.
    has_connection: bool,
    offer: String,
    /// URL of the session, once the offer is answered.
    session_url: Option<Url>,
    etag: Option<String>,
    decoder: ResponseDecoder,
    head: Option<Box<Head>>,
    body: Vec<u8>,
    /// Time when the connection was requested, or the request was sent.
    asked_at: Time,
}

impl Whip {
    /// Creates a session with the endpoint at `url`.
    pub fn new(config: Arc<ClientConfig>, url: Url, direction: Direction) -> Whip {
        Whip {
            config,
            url,
            visited: Vec::new(),
            direction,
            phase: Phase::Idle,
            has_connection: false,
            offer: String::new(),
            session_url: None,
            etag: None,
            decoder: ResponseDecoder::new(),
            head: None,
            body: Vec::new(),
            asked_at: Time::ZERO,
        }
    }

    /// Returns the URL of a request: the session's, once there is one, except for an offer.
    fn url_of(&self, request: Request) -> &Url {
        let session = self.session_url.as_ref();
        session
            .filter(|_| request != Request::Post)
            .unwrap_or(&self.url)
    }

    fn connect(&mut self, scope: &mut SignallingContext<'_>, request: Request) {
        let target = SignallingTarget::of(self.url_of(request));
        self.phase = Phase::Connecting(request);
        self.has_connection = true;
        self.asked_at = scope.now;
        scope.push(SignallingAction::Connect(Connection::First, target));
    }

    /// True if the session's URL has the host, port and scheme of the endpoint.
    fn session_is_on_endpoint(&self) -> bool {
        let origin = |url: &Url| (url.host().to_ascii_lowercase(), url.port(), url.is_secure());
        let resource = self.session_url.as_ref();
        resource.is_none_or(|resource| origin(resource) == origin(&self.url))
    }

    fn send_request(&mut self, scope: &mut SignallingContext<'_>, request: Request) {
        let url = self.url_of(request);
        let (kind, body) = match request {
            Request::Post if self.config.trickle => {
                ("application/sdp", split_candidates(&self.offer).0)
            }
            Request::Post => ("application/sdp", self.offer.clone()),
            Request::Patch => (
                "application/trickle-ice-sdpfrag",
                candidate_fragment(&self.offer).unwrap_or_default(),
            ),
            Request::Delete => ("", String::new()),
        };
        let config = &self.config;
        let is_named_server = self.named_url().shares_credentials_with(url);
        let token = config.token.as_ref().filter(|_| is_named_server);
        let bearer = token.map(|token| format!("Bearer {token}"));
        let authorization = bearer.or_else(|| url.user_info().map(auth::basic));
        let is_replaced = is_named_server && config.headers.contains("Authorization");
        let authorization = authorization.filter(|_| !is_replaced);
        let length = body.len().to_string();
        let mut headers = vec![("User-Agent", config.user_agent.as_str())];
        if let Some(authorization) = &authorization {
            headers.push(("Authorization", authorization));
        }
        match request {
            Request::Post => headers.push(("Accept", "application/sdp")),
            Request::Patch => {
                // ETag of the ICE session (RFC 9725, 4.3.1).
                if let Some(etag) = &self.etag {
                    headers.push(("If-Match", etag));
                }
            }
            Request::Delete => {}
        }
        if request != Request::Delete {
            headers.extend([("Content-Type", kind), ("Content-Length", &length)]);
        }
        headers.extend(config.headers.of_request(is_named_server));
        let mut bytes = http1::write_request(request.method(), url, Version::Http11, &headers);
        bytes.extend_from_slice(body.as_bytes());
        self.decoder = ResponseDecoder::new();
        self.head = None;
        self.body.clear();
        self.phase = Phase::Awaiting(request);
        self.asked_at = scope.now;
        scope.recorder.add(m::REQUESTS, 1);
        scope.push(SignallingAction::Send(Connection::First, bytes));
    }

    /// The URL that the user named. Token and passwords are sent only to its server.
    fn named_url(&self) -> &Url {
        self.visited.first().unwrap_or(&self.url)
    }

    /// Handles the head of an answer.
    fn head(&mut self, scope: &mut SignallingContext<'_>, head: Box<Head>) {
        let Phase::Awaiting(request) = self.phase else {
            return;
        };
        scope.recorder.add(m::RESPONSES, 1);
        let refused = head.status >= 300 && !had_already_ended(request, head.status);
        scope.recorder.add(m::REFUSALS, u64::from(refused));
        if request == Request::Post && matches!(head.status, 301 | 302 | 303 | 307 | 308) {
            return self.follow_redirect(scope, &head);
        }
        self.head = Some(head);
    }

    /// Follows a redirect of the endpoint (4.5).
    fn follow_redirect(&mut self, scope: &mut SignallingContext<'_>, head: &Head) {
        scope.recorder.add(m::REDIRECTS, 1);
        let status = head.status;
        let location = head.headers.get("Location").unwrap_or_default();
        let url = match self.url.redirect(location) {
            Ok(url) => url,
            Err(error) => {
                let detail = format!("{status} with `Location: {location}`: {error}");
                return self.fail(scope, Failure::BadRedirect, detail);
            }
        };
        let own = self.named_url().host();
        if let Err(why) = self.config.follow.check(own, None, url.host()) {
            let detail = format!("{status} redirects to {url}: {why}");
            return self.fail(scope, Failure::RedirectRefused, detail);
        }
        let before = std::mem::replace(&mut self.url, url);
        self.visited.push(before);
        if self
            .visited
            .iter()
            .any(|url| url.is_same_resource(&self.url))
        {
            let detail = format!(
                "{status} redirects to {}, which was visited before",
                self.url
            );
            return self.fail(scope, Failure::RedirectLoop, detail);
        }
        if self.visited.len() > MAX_REDIRECTS {
            let detail = format!("{status} to {} after {MAX_REDIRECTS} redirects", self.url);
            return self.fail(scope, Failure::TooManyRedirects, detail);
        }
        scope.disconnect(&mut self.has_connection);
        self.connect(scope, Request::Post);
    }

    /// Handles a complete answer.
    fn handle_response(&mut self, scope: &mut SignallingContext<'_>) {
        let (Phase::Awaiting(request), Some(head)) = (self.phase, self.head.take()) else {
            return;
        };
        match (request, head.status) {
            (Request::Post, 200..=299) => self.handle_answer(scope, &head),
            (Request::Post, status) => {
                let detail = self.describe_refusal(&head);
                self.fail(scope, Failure::from_status(status), detail);
            }
            (Request::Patch, status) => {
                if status >= 300 {
                    scope.note("candidates_refused", self.describe_refusal(&head));
                }
                self.candidates(scope);
                self.established(scope);
            }
            (Request::Delete, status) => {
                if status >= 300 && !had_already_ended(request, status) {
                    scope.note("delete_refused", self.describe_refusal(&head));
                }
                self.finish(scope);
            }
        }
    }

    fn handle_answer(&mut self, scope: &mut SignallingContext<'_>, head: &Head) {
        scope.record_delay(m::ANSWER_DELAY, self.asked_at);
        let status = head.status;
        match self.resolve_location(head) {
            Ok(url) => self.session_url = Some(url),
            // Only DELETE and PATCH need it: browsers play without it.
            Err(why) => scope.note(
                "session_not_deletable",
                format!("{why}: the session cannot be deleted ({})", self.url),
            ),
        }
        self.etag = head.headers.get("ETag").map(str::to_owned);
        let Ok(answer) = String::from_utf8(std::mem::take(&mut self.body)) else {
            let detail = format!("{status} with a body that is not UTF-8 ({})", self.url);
            return self.fail(scope, Failure::BadSdp, detail);
        };
        scope.push(SignallingAction::RemoteAnswer { peer: PEER, answer });
        match self.config.trickle && self.session_url.is_some() {
            // The connection may have ended with the answer, and the session may be on another
            // host.
            true if self.has_connection && self.session_is_on_endpoint() => {
                self.send_request(scope, Request::Patch)
            }
            true => {
                scope.disconnect(&mut self.has_connection);
                self.connect(scope, Request::Patch);
            }
            false => self.established(scope),
        }
    }

    /// Returns the URL of the session (4.2), resolved by RFC 3986, 5.2, or the reason why it cannot
    /// be used.
    fn resolve_location(&self, head: &Head) -> Result<Url, String> {
        let status = head.status;
        let Some(location) = head.headers.get("Location") else {
            return Err(format!("{status} without a Location"));
        };
        let url = self.url.redirect(location).and_then(without_dot_segments);
        let url = url.map_err(|error| format!("{status} with `Location: {location}`: {error}"))?;
        // A session on another host would receive the last requests of a whole run. The session has
        // its own URL even if the client follows no redirects.
        let follow = match self.config.follow {
            RedirectPolicy::None => RedirectPolicy::SameHost,
            follow => follow,
        };
        match follow.check(self.url.host(), None, url.host()) {
            Ok(()) => Ok(url),
            Err(why) => Err(format!("{status} with a Location of {url}: {why}")),
        }
    }

    /// Handles the server's candidates in the answer to ours (4.3.2).
    fn candidates(&mut self, scope: &mut SignallingContext<'_>) {
        let body = std::mem::take(&mut self.body);
        let text = String::from_utf8_lossy(&body);
        for line in text.lines().take(100) {
            if let Some(candidate) = line.trim_end().strip_prefix("a=")
                && candidate.starts_with("candidate:")
            {
                let candidate = candidate.to_owned();
                scope.push(SignallingAction::RemoteCandidate {
                    peer: PEER,
                    candidate,
                });
            }
        }
    }

    fn established(&mut self, scope: &mut SignallingContext<'_>) {
        scope.disconnect(&mut self.has_connection);
        self.phase = Phase::Established;
        self.body = Vec::new();
        self.offer = String::new();
    }

    fn finish(&mut self, scope: &mut SignallingContext<'_>) {
        scope.disconnect(&mut self.has_connection);
        self.phase = Phase::Ended;
        scope.push(SignallingAction::Left);
    }

    fn fail(&mut self, scope: &mut SignallingContext<'_>, failure: Failure, detail: String) {
        scope.disconnect(&mut self.has_connection);
        self.phase = Phase::Ended;
        scope.fail(failure, detail);
    }

    /// Describes a refusal, with the server's words.
    fn describe_refusal(&self, head: &Head) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text = text.trim();
        let method = match self.phase {
            Phase::Awaiting(request) => request.method(),
            _ => "",
        };
        let (status, reason) = (head.status, &head.reason);
        match text.is_empty() {
            true => format!("{status} {reason} for {method} ({})", self.url),
            false => format!("{status} {reason} for {method}: {text} ({})", self.url),
        }
    }

    /// Handles an answer that did not arrive or cannot be parsed: the connection ended or broke, or
    /// the answer is late or malformed.
    fn handle_missing_answer(
        &mut self,
        scope: &mut SignallingContext<'_>,
        failure: Failure,
        what: &str,
    ) {
        match self.phase {
            Phase::Connecting(Request::Post)
            | Phase::Describing
            | Phase::Awaiting(Request::Post) => {
                let detail = format!("{what} ({})", self.url);
                self.fail(scope, failure, detail);
            }
            Phase::Connecting(request) | Phase::Awaiting(request) => {
                let text = format!("{what} for {} ({})", request.method(), self.url);
                scope.note("signalling_closed", text);
                match request {
                    Request::Delete => self.finish(scope),
                    _ => self.established(scope),
                }
            }
            Phase::Idle | Phase::Established | Phase::Ended => {}
        }
    }
}

impl Signalling for Whip {
    fn begin(&mut self, scope: &mut SignallingContext<'_>) {
        self.connect(scope, Request::Post);
    }

    fn connected(&mut self, scope: &mut SignallingContext<'_>, _: Connection) {
        match self.phase {
            Phase::Connecting(Request::Post) if self.offer.is_empty() => {
                self.phase = Phase::Describing;
                scope.push(SignallingAction::CreateOffer {
                    peer: PEER,
                    direction: self.direction,
                });
            }
            Phase::Connecting(request) => self.send_request(scope, request),
            _ => {}
        }
    }

    fn bytes(&mut self, scope: &mut SignallingContext<'_>, _: Connection, bytes: &[u8]) {
        let mut at = 0;
        while let Phase::Awaiting(_) = self.phase {
            match self.decoder.next(bytes, &mut at) {
                Ok(Some(ResponseItem::Head(head))) => self.head(scope, head),
                Ok(Some(ResponseItem::Body { bytes, .. })) => {
                    let refused = self.head.as_ref().is_some_and(|head| head.status >= 300);
                    let length_max = if refused { REFUSAL_MAX } else { SDP_MAX };
                    let remaining = length_max - self.body.len();
                    if bytes.len() > remaining && !refused {
                        let detail =
                            format!("the answer has more than {SDP_MAX} bytes ({})", self.url);
                        return self.fail(scope, Failure::SdpTooLong, detail);
                    }
                    self.body
                        .extend_from_slice(&bytes[..bytes.len().min(remaining)]);
                }
                Ok(Some(ResponseItem::End)) => self.handle_response(scope),
                Ok(None) => return,
                Err(malformed) => {
                    let what = malformed.to_string();
                    return self.handle_missing_answer(
                        scope,
                        Failure::from_malformed(malformed),
                        &what,
                    );
                }
            }
        }
    }

    fn closed(&mut self, scope: &mut SignallingContext<'_>, _: Connection, how: CloseReason) {
        self.has_connection = false;
        if self.decoder.at_close() == CloseState::UntilClose && how == CloseReason::End {
            return self.handle_response(scope);
        }
        let (failure, mut what) = closed_failure(how);
        if failure == Failure::SignallingClosed {
            what += " before the answer";
        }
        self.handle_missing_answer(scope, failure, &what);
    }

    fn local_description(
        &mut self,
        scope: &mut SignallingContext<'_>,
        _peer: PeerNumber,
        sdp: &str,
    ) {
        if self.phase == Phase::Describing {
            self.offer = sdp.to_owned();
            self.send_request(scope, Request::Post);
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Awaiting(_) => Some(self.asked_at + self.config.request_timeout.0),
            _ => None,
        }
    }

    fn handle_due(&mut self, scope: &mut SignallingContext<'_>) {
        if self.deadline().is_some_and(|due| scope.now >= due) {
            let what = format!(
                "no answer within {:.3} s",
                self.config.request_timeout.0.as_secs_f64()
            );
            self.handle_missing_answer(scope, Failure::RequestTimeout, &what);
        }
    }

    fn leave(&mut self, scope: &mut SignallingContext<'_>) {
        match self.phase {
            Phase::Ended => {}
            // The session is already being deleted.
            Phase::Connecting(Request::Delete) | Phase::Awaiting(Request::Delete) => {}
            _ if self.session_url.is_some() => {
                scope.disconnect(&mut self.has_connection);
                self.connect(scope, Request::Delete);
            }
            _ => self.finish(scope),
        }
    }

    fn expects_media(&self) -> bool {
        self.direction == Direction::Receive
    }

    fn awaited(&self) -> Option<(Time, String)> {
        match self.phase {
            Phase::Connecting(_) => {
                Some((self.asked_at, format!("for a connection to {}", self.url)))
            }
            Phase::Awaiting(request) => Some((
                self.asked_at,
                format!("for the answer to {} from {}", request.method(), self.url),
            )),
            _ => None,
        }
    }
}

/// Removes dot segments from the path of a URL (RFC 3986, 5.2.4).
fn without_dot_segments(url: Url) -> Result<Url, UrlError> {
    let target = url.target();
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    if !path.split('/').any(is_dots) {
        return Ok(url);
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    // A path that ends with a dot segment names a folder.
    if path.rsplit('/').next().is_some_and(is_dots) {
        kept.push("");
    }
    let path = format!("/{}{query}", kept.join("/"));
    match path.starts_with("//") {
        false => url.redirect(&path),
        // Without a host before it, `//` would begin one.
        true => url.redirect(&format!("//{}{path}", url.authority())),
    }
}

/// Returns `true` if the answer to a DELETE says that the session had already ended. Servers end
/// the sessions of streams that are no longer published.
fn had_already_ended(request: Request, status: u16) -> bool {
    request == Request::Delete && matches!(status, 404 | 410)
}

/// Returns the fragment with the candidates of an offer (RFC 8840, 4.4): the ICE credentials, the
/// first media section with its `mid`, and the candidates. `None` if credentials or section are
/// missing.
fn candidate_fragment(sdp: &str) -> Option<String> {
    let line = |start: &str| sdp.lines().find(|line| line.starts_with(start));
    let mut out = String::new();
    for start in ["a=ice-ufrag:", "a=ice-pwd:", "m=", "a=mid:"] {
        out += line(start)?;
        out += "\r\n";
    }
    for candidate in split_candidates(sdp).1 {
        out += &format!("a={candidate}\r\n");
    }
    out += "a=end-of-candidates\r\n";
    Some(out)
}

#[cfg(test)]
mod tests;

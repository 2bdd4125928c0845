//! Janus over HTTP. Requests are sent by POST, one at a time. Events arrive as answers to GET, of
//! which one is always pending ("long poll").

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use serde_json::{Value, json};

use super::super::{Connection, SignallingAction, SignallingContext, SignallingTarget};
use super::{Janus, JanusMessage, LIMITS, Phase, RequestKind, closed_failure};
use crate::config::ClientConfig;
use crate::failure::Failure;
use crate::metrics as m;
use kit::http1::{self, CloseState, Head, ResponseDecoder, ResponseItem, Url, Version};
use session::CloseReason;

/// Maximum number of events in one answer. Janus keeps events for the next answer while no GET is
/// pending.
const EVENTS_MAX: usize = 10;

/// Time after which Janus answers a GET although nothing has happened (`keepalive`).
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// Minimum time that a GET must have been pending for the end of its connection to be no refusal.
const POLL_DURATION_MIN: Duration = Duration::from_secs(1);

/// One of the two HTTP connections.
#[derive(Debug, Default)]
pub(super) struct HttpConnection {
    /// Maximum length of an answer, in bytes.
    keep: usize,
    /// True if the connection is open.
    is_open: bool,
    /// True if the connection is being opened.
    is_opening: bool,
    /// True once an answer has arrived on this connection.
    has_answered: bool,
    /// Time since which an answer is awaited. `None` if none is.
    asked_at: Option<Time>,
    /// Pending request, until its answer is complete.
    request: Vec<u8>,
    /// True if the pending request was repeated.
    is_repeated: bool,
    decoder: ResponseDecoder,
    head: Option<Box<Head>>,
    body: Vec<u8>,
}

impl HttpConnection {
    /// Creates a connection whose answers have at most `keep` bytes.
    fn new(keep: usize) -> HttpConnection {
        HttpConnection {
            keep,
            ..HttpConnection::default()
        }
    }

    /// Handles the opened connection. Returns the pending request, which is repeated because the
    /// previous connection ended before its answer.
    fn connected(&mut self, now: Time) -> Option<Vec<u8>> {
        (self.is_open, self.is_opening, self.has_answered) = (true, false, false);
        self.asked_at?;
        // A repeated GET may be pending for the full time again.
        self.asked_at = Some(now);
        self.decoder = ResponseDecoder::new();
        Some(self.request.clone())
    }

    /// Records a request that is sent now.
    fn begin_request(&mut self, now: Time, request: &[u8]) {
        self.asked_at = Some(now);
        self.request = request.to_vec();
        self.is_repeated = false;
        self.decoder = ResponseDecoder::new();
        self.head = None;
        self.body.clear();
    }

    /// Returns `true` if a POST is to be repeated: no part of its answer has arrived, it was not
    /// repeated before, and its connection was in use before. No server closes a new connection for
    /// being idle. Browsers do the same, because a server or proxy may close a persistent
    /// connection at any time (RFC 9112, 9.3.1 and 9.5).
    fn should_repeat_post(&mut self) -> bool {
        let is_empty = self.asked_at.is_some() && self.decoder.at_close() == CloseState::Empty;
        is_empty && self.has_answered && !std::mem::replace(&mut self.is_repeated, true)
    }

    /// Returns `true` if a GET is to be repeated. A GET may be pending for longer than a proxy
    /// allows, so it is repeated as often as that happens, but only once if the connection ends
    /// soon after the GET was sent: a server that ends it at once does not accept the GET.
    fn should_repeat_get(&mut self, now: Time) -> bool {
        let is_empty = self.decoder.at_close() == CloseState::Empty;
        let has_waited = |asked| now.since(asked) >= POLL_DURATION_MIN;
        is_empty
            && self.asked_at.is_some_and(|asked| {
                let was_repeated = std::mem::replace(&mut self.is_repeated, true);
                !was_repeated || has_waited(asked)
            })
    }

    /// Handles received bytes. Returns the messages of Janus once an answer is complete.
    fn bytes(&mut self, bytes: &[u8]) -> Result<Option<Vec<Value>>, (Failure, String)> {
        let mut at = 0;
        while self.asked_at.is_some() {
            match self.decoder.next(bytes, &mut at) {
                Ok(Some(ResponseItem::Head(head))) => self.head = Some(head),
                Ok(Some(ResponseItem::Body { bytes, .. })) => {
                    if bytes.len() > self.keep - self.body.len() {
                        let text = format!("the answer has more than {} bytes", self.keep);
                        return Err((Failure::MalformedResponse, text));
                    }
                    self.body.extend_from_slice(bytes);
                }
                Ok(Some(ResponseItem::End)) => return self.take_answer().map(Some),
                Ok(None) => return Ok(None),
                Err(malformed) => {
                    return Err((Failure::from_malformed(malformed), malformed.to_string()));
                }
            }
        }
        Ok(None)
    }

    /// Handles the end of the connection. Returns the messages of Janus if the end completes an
    /// answer.
    fn closed(&mut self) -> Option<Result<Vec<Value>, (Failure, String)>> {
        (self.is_open, self.is_opening) = (false, false);
        let until_close = self.decoder.at_close() == CloseState::UntilClose;
        (self.asked_at.is_some() && until_close).then(|| self.take_answer())
    }

    fn take_answer(&mut self) -> Result<Vec<Value>, (Failure, String)> {
        self.asked_at = None;
        self.has_answered = true;
        self.request = Vec::new();
        let (body, head) = (std::mem::take(&mut self.body), self.head.take());
        // If this connection is not kept alive, the next request needs another one.
        self.is_open &= head.as_ref().is_some_and(|head| head.keeps_alive());
        let status = head.map_or(0, |head| head.status);
        let is_fine = (200..300).contains(&status);
        match serde_json::from_slice(&body) {
            Ok(Value::Array(all)) if is_fine => return Ok(all),
            // Other servers refuse by a status, whatever the body is. Janus may refuse with a
            // message.
            Ok(Value::Object(object)) if is_fine || object.contains_key("janus") => {
                return Ok(vec![Value::Object(object)]);
            }
            Ok(_) | Err(_) => {}
        }
        Err(match status {
            200..=299 => (
                Failure::MalformedJson,
                "the answer is no JSON message of Janus".to_owned(),
            ),
            _ => (Failure::from_status(status), format!("status {status}")),
        })
    }
}

/// Both HTTP connections.
#[derive(Debug)]
pub(super) struct LongPoll {
    api_url: Url,
    config: Arc<ClientConfig>,
    /// Token and API secret, as they are appended to the query of a GET.
    credentials_query: String,
    /// Requests with their numbers that wait for earlier answers. Their number is bounded by that
    /// of unanswered requests.
    queue: VecDeque<(u64, Vec<u8>)>,
    /// Connection for requests.
    requests: HttpConnection,
    /// Connection for events.
    events: HttpConnection,
    /// Number of GETs so far.
    polls: u64,
}

impl LongPoll {
    pub(super) fn new(api_url: Url, config: Arc<ClientConfig>) -> LongPoll {
        let secrets = [("token", &config.token), ("apisecret", &config.api_secret)];
        let secrets = secrets.into_iter().filter_map(|(name, secret)| {
            let secret = secret.as_ref()?;
            Some(format!("&{name}={}", percent_encoded(secret)))
        });
        LongPoll {
            api_url,
            credentials_query: secrets.collect(),
            config,
            queue: VecDeque::new(),
            requests: HttpConnection::new(LIMITS.keep_max),
            // One message may be as long as the longest of a WebSocket.
            events: HttpConnection::new(EVENTS_MAX * LIMITS.keep_max),
            polls: 0,
        }
    }

    /// Returns the URL of `path` below that of the API.
    fn url_below(&self, path: &str) -> Url {
        let target = self.api_url.target();
        let base = target.split_once('?').map_or(target, |(path, _)| path);
        let url = format!("{}{path}", base.trim_end_matches('/'));
        let url = self.api_url.redirect(&url);
        url.expect("numbers and encoded text keep the URL valid")
    }

    /// Queues a request with its number, to Janus, a session, or a handle of a session.
    pub(super) fn queue_request(
        &mut self,
        number: u64,
        session: Option<u64>,
        handle: Option<u64>,
        text: &str,
    ) {
        let parts = [session, handle].into_iter().flatten();
        let path: String = parts.map(|part| format!("/{part}")).collect();
        let length = text.len().to_string();
        let mut headers = vec![
            ("User-Agent", &*self.config.user_agent),
            ("Content-Type", "application/json"),
            ("Content-Length", &length),
        ];
        headers.extend(self.config.headers.of_request(true));
        let url = self.url_below(&path);
        let mut bytes = http1::write_request("POST", &url, Version::Http11, &headers);
        bytes.extend_from_slice(text.as_bytes());
        self.queue.push_back((number, bytes));
    }

    fn begin_poll(&mut self, now: Time, session: u64) -> Vec<u8> {
        // The number makes each URL different, in case of a cache in between.
        self.polls += 1;
        let (number, secrets) = (self.polls, &self.credentials_query);
        let path = format!("/{session}?maxev={EVENTS_MAX}&rid={number}{secrets}");
        let mut headers = vec![("User-Agent", &*self.config.user_agent)];
        headers.extend(self.config.headers.of_request(true));
        let request =
            http1::write_request("GET", &self.url_below(&path), Version::Http11, &headers);
        self.events.begin_request(now, &request);
        request
    }

    fn connection(&mut self, which: Connection) -> &mut HttpConnection {
        match which {
            Connection::First => &mut self.requests,
            Connection::Second => &mut self.events,
        }
    }

    /// Returns the time at which the answer to a GET is overdue.
    pub(super) fn poll_deadline(&self, timeout: Duration) -> Option<Time> {
        Some(self.events.asked_at? + KEEPALIVE_AFTER + timeout)
    }
}

impl Janus {
    /// Sends what can be sent, and opens connections if they are needed.
    pub(super) fn send_next(&mut self, scope: &mut SignallingContext<'_>) {
        let target = SignallingTarget::of(&self.api_url);
        let Some(own) = &mut self.long_poll else {
            return;
        };
        let requests = &mut own.requests;
        if requests.is_open && requests.asked_at.is_none() {
            if let Some((number, next)) = own.queue.pop_front() {
                requests.begin_request(scope.now, &next);
                // The time-out starts now. Time in the queue does not count.
                if let Some(pending) = self.pending.get_mut(&number) {
                    pending.sent_at = Some(scope.now);
                }
                scope.recorder.add(m::REQUESTS, 1);
                scope.push(SignallingAction::Send(Connection::First, next));
            }
        } else if !requests.is_open && !requests.is_opening && !own.queue.is_empty() {
            requests.is_opening = true;
            self.has_connection = true;
            scope.push(SignallingAction::Connect(Connection::First, target.clone()));
        }
        let Phase::Session(session) = self.phase else {
            return;
        };
        let events = &mut own.events;
        if events.is_open && events.asked_at.is_none() {
            let poll = own.begin_poll(scope.now, session);
            scope.push(SignallingAction::Send(Connection::Second, poll));
        } else if !events.is_open && !events.is_opening {
            events.is_opening = true;
            scope.push(SignallingAction::Connect(Connection::Second, target));
        }
    }

    /// Handles one of the connections after it was opened.
    pub(super) fn http_connected(&mut self, scope: &mut SignallingContext<'_>, which: Connection) {
        if let Some(own) = &mut self.long_poll
            && let Some(request) = own.connection(which).connected(scope.now)
        {
            scope.recorder.add(m::REQUESTS_AGAIN, 1);
            scope.push(SignallingAction::Send(which, request));
        }
        if self.phase == Phase::Connecting {
            self.phase = Phase::Creating;
            self.send_request(scope, RequestKind::Create, json!({}));
        }
        self.send_next(scope);
    }

    /// Handles bytes of one of the connections.
    pub(super) fn http_bytes(
        &mut self,
        scope: &mut SignallingContext<'_>,
        which: Connection,
        bytes: &[u8],
    ) {
        let Some(own) = &mut self.long_poll else {
            return;
        };
        match own.connection(which).bytes(bytes) {
            Ok(Some(all)) => self.handle_messages(scope, all),
            Ok(None) => {}
            Err((failure, why)) => self.http_failed(scope, failure, why),
        }
    }

    /// Handles the end of one of the connections.
    pub(super) fn http_closed(
        &mut self,
        scope: &mut SignallingContext<'_>,
        which: Connection,
        how: CloseReason,
    ) {
        let target = SignallingTarget::of(&self.api_url);
        let Some(own) = &mut self.long_poll else {
            return;
        };
        let connection = own.connection(which);
        match connection.closed() {
            Some(Ok(all)) => return self.handle_messages(scope, all),
            Some(Err((failure, why))) => return self.http_failed(scope, failure, why),
            None => {}
        }
        // Janus closes idle connections, and a proxy may close one at any time.
        if matches!(how, CloseReason::End | CloseReason::Reset) {
            if connection.asked_at.is_none() {
                return self.send_next(scope);
            }
            let should_repeat = match which {
                Connection::First => connection.should_repeat_post(),
                Connection::Second => connection.should_repeat_get(scope.now),
            };
            if should_repeat {
                connection.is_opening = true;
                self.has_connection |= which == Connection::First;
                return scope.push(SignallingAction::Connect(which, target));
            }
        }
        let (failure, what) = closed_failure(how);
        self.http_failed(scope, failure, what);
    }

    fn http_failed(&mut self, scope: &mut SignallingContext<'_>, failure: Failure, why: String) {
        if self.phase == Phase::Leaving {
            return self.finish(scope);
        }
        self.fail(scope, failure, why);
    }

    /// Handles messages of Janus.
    fn handle_messages(&mut self, scope: &mut SignallingContext<'_>, all: Vec<Value>) {
        for value in all {
            match JanusMessage::from_json(value) {
                Ok(message) => self.message(scope, message),
                Err(why) => self.http_failed(scope, Failure::MalformedJson, why),
            }
            if self.phase == Phase::Ended {
                return;
            }
        }
        self.send_next(scope);
    }
}

/// Returns a text percent-encoded for a query (RFC 3986, 2.3).
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests;

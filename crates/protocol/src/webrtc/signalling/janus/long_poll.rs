//! Janus over HTTP. Requests are sent by POST, one at a time. Events arrive as answers to GET, of
//! which one is always pending ("long poll").

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;
use serde_json::{Value, json};

use super::super::{Scope, Wanted};
use super::{Asked, Janus, LIMITS, Message, Phase, Settings, ended};
use crate::http1::{self, AtClose, Decoder, Head, Item, Malformed, Url, Version};
use crate::session::Closed;
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;

/// Maximum number of events in one answer. Janus keeps events for the next answer while no GET is
/// pending.
const EVENTS_MAX: usize = 10;

/// Time after which Janus answers a GET although nothing has happened (`keepalive`).
const QUIET: Duration = Duration::from_secs(30);

/// Minimum time that a GET must have been pending for the end of its connection to be no refusal.
const SOON: Duration = Duration::from_secs(1);

/// One of the two HTTP connections.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Maximum length of an answer, in bytes.
    keep: usize,
    /// True if the connection is open.
    stands: bool,
    /// True if the connection is being opened.
    wanted: bool,
    /// True once an answer has arrived on this connection.
    used: bool,
    /// Time since which an answer is awaited. `None` if none is.
    asked: Option<Time>,
    /// Pending request, until its answer is complete.
    request: Vec<u8>,
    /// True if the pending request was repeated.
    again: bool,
    decoder: Decoder,
    head: Option<Box<Head>>,
    body: Vec<u8>,
}

impl Exchange {
    /// Creates a connection whose answers have at most `keep` bytes.
    fn new(keep: usize) -> Exchange {
        Exchange {
            keep,
            stands: false,
            wanted: false,
            used: false,
            asked: None,
            request: Vec::new(),
            again: false,
            decoder: Decoder::default(),
            head: None,
            body: Vec::new(),
        }
    }

    /// Handles the opened connection. Returns the pending request, which is repeated because the
    /// previous connection ended before its answer.
    fn connected(&mut self, now: Time) -> Option<Vec<u8>> {
        (self.stands, self.wanted, self.used) = (true, false, false);
        self.asked?;
        // A repeated GET may be pending for the full time again.
        self.asked = Some(now);
        self.decoder = Decoder::new();
        Some(self.request.clone())
    }

    /// Records a request that is sent now.
    fn ask(&mut self, now: Time, request: &[u8]) {
        self.asked = Some(now);
        self.request = request.to_vec();
        self.again = false;
        self.decoder = Decoder::new();
        self.head = None;
        self.body.clear();
    }

    /// Returns `true` if a POST is to be repeated: no part of its answer has arrived, it was not
    /// repeated before, and its connection was in use before. No server closes a new connection for
    /// being idle. Browsers do the same, because a server or proxy may close a persistent
    /// connection at any time (RFC 9112, 9.3.1 and 9.5).
    fn asks_again(&mut self) -> bool {
        let nothing = self.asked.is_some() && self.decoder.at_close() == AtClose::Nothing;
        nothing && self.used && !std::mem::replace(&mut self.again, true)
    }

    /// Returns `true` if a GET is to be repeated. A GET may be pending for longer than a proxy
    /// allows, so it is repeated as often as that happens, but only once if the connection ends
    /// soon after the GET was sent: a server that ends it at once does not accept the GET.
    fn polls_again(&mut self, now: Time) -> bool {
        let nothing = self.decoder.at_close() == AtClose::Nothing;
        let waited = |asked| now.since(asked) >= SOON;
        nothing
            && self.asked.is_some_and(|asked| {
                let again = std::mem::replace(&mut self.again, true);
                !again || waited(asked)
            })
    }

    /// Handles received bytes. Returns the messages of Janus once an answer is complete.
    fn bytes(&mut self, bytes: &[u8]) -> Result<Option<Vec<Value>>, (Failure, String)> {
        let mut at = 0;
        while self.asked.is_some() {
            match self.decoder.next(bytes, &mut at) {
                Ok(Some(Item::Head(head))) => self.head = Some(head),
                Ok(Some(Item::Body { bytes, .. })) => {
                    if bytes.len() > self.keep - self.body.len() {
                        let text = format!("the answer has more than {} bytes", self.keep);
                        return Err((Failure::MalformedResponse, text));
                    }
                    self.body.extend_from_slice(bytes);
                }
                Ok(Some(Item::End)) => return self.over().map(Some),
                Ok(None) => return Ok(None),
                Err(malformed) => return Err(of(malformed)),
            }
        }
        Ok(None)
    }

    /// Handles the end of the connection. Returns the messages of Janus if the end completes an
    /// answer.
    fn closed(&mut self) -> Option<Result<Vec<Value>, (Failure, String)>> {
        (self.stands, self.wanted) = (false, false);
        let until_close = self.decoder.at_close() == AtClose::UntilClose;
        (self.asked.is_some() && until_close).then(|| self.over())
    }

    fn over(&mut self) -> Result<Vec<Value>, (Failure, String)> {
        self.asked = None;
        self.used = true;
        self.request = Vec::new();
        let (body, head) = (std::mem::take(&mut self.body), self.head.take());
        // If this connection is not kept alive, the next request needs another one.
        self.stands &= head.as_ref().is_some_and(|head| head.keeps_alive());
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
            _ => (Failure::of_status(status), format!("status {status}")),
        })
    }
}

fn of(malformed: Malformed) -> (Failure, String) {
    (Failure::of_malformed(malformed), malformed.to_string())
}

/// Both HTTP connections.
#[derive(Debug)]
pub(super) struct LongPoll {
    at: Url,
    user_agent: String,
    /// Token and API secret, as they are appended to the query of a GET.
    secrets: String,
    /// Requests with their numbers that wait for earlier answers. Their number is bounded by that
    /// of unanswered requests.
    queue: VecDeque<(u64, Vec<u8>)>,
    /// Connection for requests.
    requests: Exchange,
    /// Connection for events.
    events: Exchange,
    /// Number of GETs so far.
    polls: u64,
}

impl LongPoll {
    pub(super) fn new(at: Url, settings: &Settings) -> LongPoll {
        let secrets = [
            ("token", &settings.common.token),
            ("apisecret", &settings.api_secret),
        ];
        let secrets = secrets.into_iter().filter_map(|(name, secret)| {
            let secret = secret.as_ref()?;
            Some(format!("&{name}={}", encoded(secret)))
        });
        LongPoll {
            at,
            user_agent: settings.common.user_agent.clone(),
            secrets: secrets.collect(),
            queue: VecDeque::new(),
            requests: Exchange::new(LIMITS.keep),
            // One message may be as long as the longest of a WebSocket.
            events: Exchange::new(EVENTS_MAX * LIMITS.keep),
            polls: 0,
        }
    }

    /// Returns the URL of `path` below that of the API.
    fn below(&self, path: &str) -> Url {
        let target = self.at.target();
        let base = target.split_once('?').map_or(target, |(path, _)| path);
        let url = format!("{}{path}", base.trim_end_matches('/'));
        let url = self.at.redirect(&url);
        url.expect("numbers and encoded text keep the URL valid")
    }

    /// Queues a request with its number, to Janus, a session, or a handle of a session.
    pub(super) fn ask(
        &mut self,
        number: u64,
        session: Option<u64>,
        handle: Option<u64>,
        text: &str,
    ) {
        let parts = [session, handle].into_iter().flatten();
        let path: String = parts.map(|part| format!("/{part}")).collect();
        let length = text.len().to_string();
        let headers = [
            ("User-Agent", &*self.user_agent),
            ("Content-Type", "application/json"),
            ("Content-Length", &length),
        ];
        let url = self.below(&path);
        let mut bytes = http1::write_request("POST", &url, Version::Http11, &headers);
        bytes.extend_from_slice(text.as_bytes());
        self.queue.push_back((number, bytes));
    }

    fn poll(&mut self, now: Time, session: u64) -> Vec<u8> {
        // The number makes each URL different, in case of a cache in between.
        self.polls += 1;
        let (number, secrets) = (self.polls, &self.secrets);
        let path = format!("/{session}?maxev={EVENTS_MAX}&rid={number}{secrets}");
        let headers = [("User-Agent", &*self.user_agent)];
        let request = http1::write_request("GET", &self.below(&path), Version::Http11, &headers);
        self.events.ask(now, &request);
        request
    }

    /// Returns the time at which the answer to a GET is overdue.
    pub(super) fn overdue(&self, timeout: Duration) -> Option<Time> {
        Some(self.events.asked? + QUIET + timeout)
    }
}

impl Janus {
    /// Sends what can be sent, and opens connections if they are needed.
    pub(super) fn go_on(&mut self, scope: &mut Scope<'_>) {
        let target = self.target();
        let Some(own) = &mut self.long_poll else {
            return;
        };
        let requests = &mut own.requests;
        if requests.stands && requests.asked.is_none() {
            if let Some((number, next)) = own.queue.pop_front() {
                requests.ask(scope.now, &next);
                // The time-out starts now. Time in the queue does not count.
                if let Some(pending) = self.pending.get_mut(&number) {
                    pending.sent = Some(scope.now);
                }
                scope.recorder.add(m::REQUESTS, 1);
                scope.want(Wanted::Send(next));
            }
        } else if !requests.stands && !requests.wanted && !own.queue.is_empty() {
            requests.wanted = true;
            self.open = true;
            scope.want(Wanted::Connect(target.clone()));
        }
        let Phase::Session(session) = self.phase else {
            return;
        };
        let events = &mut own.events;
        if events.stands && events.asked.is_none() {
            let poll = own.poll(scope.now, session);
            scope.want(Wanted::SendSecond(poll));
        } else if !events.stands && !events.wanted {
            events.wanted = true;
            scope.want(Wanted::ConnectSecond(target));
        }
    }

    /// Handles one of the connections after it was opened.
    pub(super) fn http_connected(&mut self, scope: &mut Scope<'_>, which: Which) {
        if let Some(own) = &mut self.long_poll
            && let Some(request) = own.exchange(which).connected(scope.now)
        {
            scope.recorder.add(m::REQUESTS_AGAIN, 1);
            scope.want(match which {
                Which::Requests => Wanted::Send(request),
                Which::Events => Wanted::SendSecond(request),
            });
        }
        if self.phase == Phase::Connecting {
            self.phase = Phase::Creating;
            self.ask(scope, Asked::Create, "create", json!({}));
        }
        self.go_on(scope);
    }

    /// Handles bytes of one of the connections.
    pub(super) fn http_bytes(&mut self, scope: &mut Scope<'_>, which: Which, bytes: &[u8]) {
        let Some(own) = &mut self.long_poll else {
            return;
        };
        match own.exchange(which).bytes(bytes) {
            Ok(Some(all)) => self.said(scope, all),
            Ok(None) => {}
            Err((failure, why)) => self.http_failed(scope, failure, &why),
        }
    }

    /// Handles the end of one of the connections.
    pub(super) fn http_closed(&mut self, scope: &mut Scope<'_>, which: Which, how: Closed) {
        let target = self.target();
        let Some(own) = &mut self.long_poll else {
            return;
        };
        let exchange = own.exchange(which);
        match exchange.closed() {
            Some(Ok(all)) => return self.said(scope, all),
            Some(Err((failure, why))) => return self.http_failed(scope, failure, &why),
            None => {}
        }
        // Janus closes idle connections, and a proxy may close one at any time.
        if matches!(how, Closed::End | Closed::Reset) {
            if exchange.asked.is_none() {
                return self.go_on(scope);
            }
            let again = match which {
                Which::Requests => exchange.asks_again(),
                Which::Events => exchange.polls_again(scope.now),
            };
            if again {
                exchange.wanted = true;
                return scope.want(match which {
                    Which::Requests => {
                        self.open = true;
                        Wanted::Connect(target)
                    }
                    Which::Events => Wanted::ConnectSecond(target),
                });
            }
        }
        let (failure, what) = ended(how);
        self.http_failed(scope, failure, &what);
    }

    fn http_failed(&mut self, scope: &mut Scope<'_>, failure: Failure, why: &str) {
        if self.phase == Phase::Leaving {
            return self.left(scope);
        }
        let detail = format!("{why} ({})", self.url);
        self.fail(scope, failure, detail);
    }

    /// Handles messages of Janus.
    fn said(&mut self, scope: &mut Scope<'_>, all: Vec<Value>) {
        for value in all {
            match Message::of(value) {
                Ok(message) => self.message(scope, message),
                Err(why) => self.http_failed(scope, Failure::MalformedJson, &why),
            }
            if self.phase == Phase::Over {
                return;
            }
        }
        self.go_on(scope);
    }
}

/// Names one of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Requests,
    Events,
}

impl LongPoll {
    fn exchange(&mut self, which: Which) -> &mut Exchange {
        match which {
            Which::Requests => &mut self.requests,
            Which::Events => &mut self.events,
        }
    }
}

/// Returns a text percent-encoded for a query (RFC 3986, 2.3).
fn encoded(text: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests;

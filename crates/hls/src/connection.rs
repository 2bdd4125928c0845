//! A connection for requests, one at a time. It stays open between them, and is made again if the
//! server has closed it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::units::TimeSpan;
use measure::{Recorder, Time};

use super::caching::Caching;
use super::config::ClientConfig;
use super::failure::Failure;
use super::metrics as m;
use super::playlist::{ByteRange, Extent};
use kit::auth;
use kit::http1::{self, CloseState, Cookies, Head, ResponseDecoder, Url, Version};
use kit::lifecycle::{self, Addresses};
use kit::redirect_policy::RedirectPolicy;
use session::{AckDelay, ChannelId, CloseReason, Context, Open, Output, Port};

/// Maximum number of redirects in a row.
const REDIRECTS_MAX: usize = 5;

/// Maximum number of keys that are kept.
const KEYS_MAX: usize = 8;

/// Minimum number of bytes of a body that are worth reading together.
const LONG_REST: u64 = 16 << 10;

/// Maximum number of bytes of the body of a refusal that are read.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;

/// Maximum time for which the body of a refusal is awaited.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(2);

/// State that the connections of a client share.
#[derive(Debug)]
pub(super) struct Shared {
    /// URL of the client, whose server gets the credentials.
    pub(super) url: Url,
    pub(super) cookies: Cookies,
    /// Address of the URL's host, once it is known.
    pub(super) reached: Option<IpAddr>,
    /// Number of the next connection.
    pub(super) next_channel: u32,
    /// The keys that were received last, with their URLs.
    keys: VecDeque<(Url, [u8; 16])>,
}

/// A connection, and the request on it.
#[derive(Debug, Default)]
pub(super) struct Connection {
    channel: Option<ChannelId>,
    /// Server of the connection.
    server: Option<Url>,
    state: State,
    addresses: Option<Addresses>,
    pub(super) decoder: ResponseDecoder,
    request: Option<Box<Request>>,
    /// A response was received to its end, so that the server may close the connection at any time.
    is_used: bool,
    keeps_alive: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Opening,
    Idle,
    /// The response head has not arrived.
    Requested,
    Body,
}

/// A resource, and how it is requested.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) url: Url,
    pub(super) extent: Extent,
    /// Time for which the server may wait with the response, if it is longer than
    /// `request_timeout`.
    pub(super) patience: Duration,
    /// True if the body may be compressed.
    pub(super) takes_gzip: bool,
}

/// A request, and where it has been redirected to.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) url: Url,
    extent: Extent,
    /// Time of the request before any redirect.
    pub(super) since: Time,
    /// Time when the current request was sent, or its connection was begun.
    sent_at: Time,
    /// Time when the head of the response arrived.
    pub(super) head_at: Option<Time>,
    /// Time for which the server may wait with the response, if it is longer than
    /// `request_timeout`.
    patience: Duration,
    takes_gzip: bool,
    /// Coding of the body; `None`: it is as it is.
    pub(super) coding: Option<String>,
    /// Time that the response was in caches, if it states one.
    pub(super) age: Option<Duration>,
    /// Set while the body of a refusal arrives.
    refused: Option<Box<Refused>>,
    visited: Vec<Url>,
}

/// A refusal whose body is read, so that the connection can be used again.
#[derive(Debug)]
struct Refused {
    refusal: Refusal,
    /// Number of bytes of the body that have arrived.
    bytes: u64,
}

/// Reason why a request failed.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) failure: Failure,
    pub(super) detail: String,
}

impl Connection {
    /// True if a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.request.is_some()
    }

    pub(super) fn is(&self, channel: ChannelId) -> bool {
        self.channel == Some(channel)
    }

    /// True if the head of a response has arrived, and its body is to follow.
    pub(super) fn is_receiving(&self) -> bool {
        self.state == State::Body
    }

    /// Part of the resource that is being requested; `None`: all of it, or all that follows.
    pub(super) fn range(&self) -> Option<ByteRange> {
        match self.request.as_ref()?.extent {
            Extent::Range(range) => Some(range),
            Extent::Whole | Extent::From(_) => None,
        }
    }

    /// Requests a resource. The connection must not be busy.
    pub(super) fn fetch(
        &mut self,
        cx: &mut Context<'_>,
        config: &ClientConfig,
        shared: &mut Shared,
        wish: Wish,
    ) {
        self.request = Some(Box::new(Request {
            url: wish.url,
            extent: wish.extent,
            since: cx.now,
            sent_at: cx.now,
            head_at: None,
            patience: wish.patience,
            takes_gzip: wish.takes_gzip,
            coding: None,
            age: None,
            refused: None,
            visited: Vec::new(),
        }));
        self.send_or_open(cx, config, shared);
    }

    fn send_or_open(&mut self, cx: &mut Context<'_>, config: &ClientConfig, shared: &mut Shared) {
        let Some(request) = &mut self.request else {
            return;
        };
        request.sent_at = cx.now;
        request.head_at = None;
        let url = &request.url;
        let is_there = |server: &Url| {
            server.is_secure() == url.is_secure() && server.authority() == url.authority()
        };
        if self.state == State::Idle && self.server.as_ref().is_some_and(is_there) {
            return self.send(cx, config, shared);
        }
        let url = url.clone();
        self.close(cx);
        let channel = ChannelId(shared.next_channel);
        shared.next_channel += 1;
        let timeout = config.connect_timeout.0;
        let open = Open::server(
            url.host(),
            url.port(),
            timeout,
            url.is_secure(),
            &config.tls,
        );
        cx.out.push_back(Output::Open { channel, open });
        self.channel = Some(channel);
        self.server = Some(url);
        self.state = State::Opening;
        self.is_used = false;
    }

    pub(super) fn handle_opened(
        &mut self,
        cx: &mut Context<'_>,
        config: &ClientConfig,
        shared: &mut Shared,
        (local, remote): (SocketAddr, Option<SocketAddr>),
    ) {
        if self.state == State::Opening {
            self.addresses = Some((local, remote));
            let is_named = |server: &Url| server.host() == shared.url.host();
            if self.server.as_ref().is_some_and(is_named) {
                shared.reached = remote.map(|remote| remote.ip());
            }
            if let Some(channel) = self.channel {
                // The next request is sent when a response is complete: it must be read at once.
                let delay = AckDelay::AtOnce;
                cx.out.push_back(Output::Acknowledge { channel, delay });
            }
            self.send(cx, config, shared);
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, config: &ClientConfig, shared: &Shared) {
        let (Some(channel), Some(request)) = (self.channel, &mut self.request) else {
            return;
        };
        let url = &request.url;
        let accepted = match request.takes_gzip {
            true => "gzip",
            false => "identity",
        };
        let credentials = url.user_info().map(auth::basic);
        let range = match request.extent {
            Extent::Whole => None,
            Extent::From(offset) => Some(format!("bytes={offset}-")),
            Extent::Range(range) => {
                let last = range.offset.checked_add(range.length - 1);
                last.map(|last| format!("bytes={}-{last}", range.offset))
            }
        };
        let mut headers = vec![
            ("User-Agent", config.user_agent.as_str()),
            ("Accept-Encoding", accepted),
        ];
        let is_named_server = shared.url.shares_credentials_with(url);
        let further: Vec<(&str, &str)> = config.headers.of_request(is_named_server).collect();
        let is_there = |wanted: &str| {
            let mut names = further.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(wanted))
        };
        if !is_there("Accept") {
            headers.push(("Accept", "*/*"));
        }
        let cookies = shared.cookies.for_request(url);
        for (name, value) in [
            ("Range", &range),
            ("Authorization", &credentials),
            ("Cookie", &cookies),
        ] {
            if let Some(value) = value.as_deref().filter(|_| !is_there(name)) {
                headers.push((name, value));
            }
        }
        headers.extend(further);
        let bytes = http1::write_request("GET", url, Version::Http11, &headers);
        cx.recorder.add(m::REQUESTS, 1);
        cx.out.push_back(Output::Send {
            channel,
            port: Port::Media,
            bytes,
        });
        request.sent_at = cx.now;
        self.decoder = ResponseDecoder::new();
        self.state = State::Requested;
    }

    /// Takes the head of the response. Returns `true` if a body follows, `false` if the client was
    /// redirected.
    pub(super) fn handle_head(
        &mut self,
        cx: &mut Context<'_>,
        config: &ClientConfig,
        shared: &mut Shared,
        head: &Head,
        at: Time,
    ) -> Result<bool, Refusal> {
        let Some(request) = &mut self.request else {
            return Ok(false);
        };
        let delay = at.since(request.sent_at);
        // A response that waits for something says nothing about the server's speed.
        if request.patience.is_zero() {
            cx.recorder.record_duration(m::RESPONSE_DELAY, delay);
        }
        cx.recorder.add(m::RESPONSES, 1);
        let caching = Caching::read(&head.headers);
        for (counter, count) in [
            (m::REFUSALS, head.status >= 300),
            (m::RESPONSES_4XX, (400..500).contains(&head.status)),
            (m::RESPONSES_5XX, head.status >= 500),
            (m::CACHE_HITS, caching.is_hit == Some(true)),
            (m::CACHE_MISSES, caching.is_hit == Some(false)),
        ] {
            cx.recorder.add(counter, u64::from(count));
        }
        request.age = caching.age;
        request.head_at = Some(at);
        let coding = head.headers.get("Content-Encoding").map(str::trim);
        request.coding = coding
            .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
            .map(str::to_owned);
        self.state = State::Body;
        self.keeps_alive = head.keeps_alive();
        shared.cookies.store(&request.url, &head.headers);
        match head.status {
            status @ (200..=205 | 207..=299) if matches!(request.extent, Extent::From(1..)) => {
                let text = format!("{status} instead of a byte range");
                Err(self.refusal(Failure::WrongRange, &text))
            }
            200..=299 => {
                let offset = match request.extent {
                    Extent::From(offset) => Some(offset),
                    Extent::Whole | Extent::Range(_) => None,
                };
                let sent = head.headers.get("Content-Range").and_then(first_byte);
                match offset
                    .zip(sent)
                    .is_some_and(|(offset, sent)| offset != sent)
                {
                    true => Err(self.refusal(Failure::WrongRange, "it is another byte range")),
                    false => Ok(true),
                }
            }
            301 | 302 | 303 | 307 | 308 => {
                self.redirect(cx.recorder, config, shared, head)?;
                // The rest of the response is of no use, and may be long.
                self.close(cx);
                self.send_or_open(cx, config, shared);
                Ok(false)
            }
            status => {
                let failure = Failure::from_status(status);
                let refusal = self.refusal(failure, &format!("{status} {}", head.reason));
                let rest = self.decoder.bytes_left();
                let is_long = rest.is_some_and(|rest| rest > REFUSAL_BYTES_MAX);
                let may_stay = self.keeps_alive && !is_long;
                match self.request.as_mut().filter(|_| may_stay) {
                    Some(request) => {
                        let bytes = 0;
                        request.refused = Some(Box::new(Refused { refusal, bytes }));
                        Ok(true)
                    }
                    None => Err(refusal),
                }
            }
        }
    }

    fn redirect(
        &mut self,
        recorder: &mut Recorder,
        config: &ClientConfig,
        shared: &Shared,
        head: &Head,
    ) -> Result<(), Refusal> {
        recorder.add(m::REDIRECTS, 1);
        let status = head.status;
        let Some(request) = &self.request else {
            return Ok(());
        };
        let Some(location) = head.headers.get("Location") else {
            let text = format!("{status} without a Location");
            return Err(self.refusal(Failure::BadRedirect, &text));
        };
        let url = request
            .url
            .redirect(location)
            .map_err(|error| self.refusal(Failure::BadRedirect, &format!("{status}: {error}")))?;
        shared.check_host(config.follow, &url).map_err(|why| {
            let text = format!("{status} to {url}: {why}");
            self.refusal(Failure::RedirectRefused, &text)
        })?;
        let is_loop = url.is_same_resource(&request.url)
            || request.visited.iter().any(|own| own.is_same_resource(&url));
        if shared.cookies.is_empty() && is_loop {
            let text = format!("{status} to {url}, which was requested before");
            return Err(self.refusal(Failure::RedirectLoop, &text));
        }
        if request.visited.len() == REDIRECTS_MAX {
            let text = format!("{status} to {url} after {REDIRECTS_MAX} others");
            return Err(self.refusal(Failure::TooManyRedirects, &text));
        }
        if let Some(request) = &mut self.request {
            let before = std::mem::replace(&mut request.url, url);
            request.visited.push(before);
        }
        Ok(())
    }

    /// Lets the time limit of the body begin again, because a part of it was useful.
    pub(super) fn renew(&mut self, now: Time) {
        if let Some(request) = &mut self.request {
            request.head_at = request.head_at.map(|_| now);
        }
    }

    /// True while the body of a refusal arrives.
    pub(super) fn is_refused(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| request.refused.is_some())
    }

    /// Skips bytes of the body of a refusal. Returns the refusal if they are too many.
    pub(super) fn skip_refused(&mut self, bytes: u64) -> Option<Refusal> {
        let refused = self.request.as_mut()?.refused.as_mut()?;
        refused.bytes += bytes;
        let is_long = refused.bytes > REFUSAL_BYTES_MAX;
        is_long.then(|| self.take_refused()).flatten()
    }

    /// Ends the response that is complete. Returns the refusal if it was one; the request is to be
    /// given up then.
    pub(super) fn end_response(&mut self, cx: &mut Context<'_>) -> Option<Refusal> {
        self.is_used = true;
        self.state = State::Idle;
        if !self.keeps_alive || self.channel.is_none() {
            self.close(cx);
        }
        self.take_refused()
    }

    fn take_refused(&mut self) -> Option<Refusal> {
        Some(self.request.as_mut()?.refused.take()?.refusal)
    }

    /// Ends the request whose response is complete.
    pub(super) fn finish_response(&mut self, cx: &mut Context<'_>) -> Option<Box<Request>> {
        self.end_response(cx);
        self.request.take()
    }

    /// Closes the connection after the response, because more bytes arrived than belong to it.
    pub(super) fn distrust(&mut self) {
        self.keeps_alive = false;
    }

    /// Gives up the request. A connection whose response is complete stays open.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_>) -> Option<Box<Request>> {
        if self.request.is_some() && self.state != State::Idle {
            self.close(cx);
        }
        self.request.take()
    }

    /// Forgets a connection that could not be made.
    pub(super) fn forget(&mut self) {
        self.channel = None;
        self.state = State::Closed;
    }

    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        if let Some(channel) = self.channel.take() {
            cx.out.push_back(Output::Close { channel });
        }
        self.state = State::Closed;
        self.addresses = None;
    }

    /// Takes the end of the connection. Returns `Ok(true)` if it was also the end of the response.
    pub(super) fn handle_closed(
        &mut self,
        cx: &mut Context<'_>,
        config: &ClientConfig,
        shared: &mut Shared,
        how: CloseReason,
    ) -> Result<bool, Refusal> {
        self.channel = None;
        let state = std::mem::replace(&mut self.state, State::Closed);
        if self.request.is_none() {
            return Ok(false);
        }
        if let Some(refusal) = self.take_refused() {
            return Err(refusal);
        }
        let at_close = self.decoder.at_close();
        // The server closed the idle connection before it had the request (RFC 9112, 9.3.1).
        if state == State::Requested && self.is_used && at_close == CloseState::Empty {
            cx.recorder.add(m::RECONNECTIONS, 1);
            self.send_or_open(cx, config, shared);
            return Ok(false);
        }
        if let Some(failure) = Failure::from_closed(how) {
            let why = match how {
                CloseReason::Tls(error) => error.to_string(),
                CloseReason::SendQueueFull => "the server stopped reading".to_owned(),
                _ => "the server reset the connection".to_owned(),
            };
            return Err(self.refusal(failure, &why));
        }
        match (state, at_close) {
            (State::Body, CloseState::UntilClose | CloseState::Over) => Ok(true),
            (State::Body, _) => {
                let text = "the server closed the connection before the body was complete";
                Err(self.refusal(Failure::CutOff, text))
            }
            _ => {
                let text = "the server closed the connection before its answer was complete";
                Err(self.refusal(Failure::ClosedInResponse, text))
            }
        }
    }

    /// Time at which the request fails; `None` while the connection is being made, which has a time
    /// limit of its own.
    pub(super) fn deadline(&self, config: &ClientConfig) -> Option<Time> {
        let request = self.request.as_ref()?;
        match self.state {
            State::Requested => {
                Some(request.sent_at + config.request_timeout.0.max(request.patience))
            }
            State::Body => {
                let limit = match request.refused {
                    Some(_) => config.body_timeout.0.min(REFUSAL_TIME_MAX),
                    None => config.body_timeout.0,
                };
                Some(request.head_at? + limit)
            }
            State::Closed | State::Opening | State::Idle => None,
        }
    }

    /// Returns why the request fails at its deadline.
    pub(super) fn late(&mut self, config: &ClientConfig) -> Refusal {
        if let Some(refusal) = self.take_refused() {
            return refusal;
        }
        match self.state {
            State::Body => {
                let text = format!("the body was not complete within {}", config.body_timeout);
                self.refusal(Failure::TimeoutBody, &text)
            }
            _ => {
                let patience = self.request.as_ref().map(|request| request.patience);
                let limit = config.request_timeout.0.max(patience.unwrap_or_default());
                let text = format!("no answer within {}", TimeSpan(limit));
                self.refusal(Failure::TimeoutResponse, &text)
            }
        }
    }

    /// Lets the rest of a body be read in large pieces, if its length is known and worth it.
    pub(super) fn expect_rest(&self, cx: &mut Context<'_>) {
        let rest = self.decoder.bytes_left();
        if let (Some(channel), Some(bytes)) = (self.channel, rest.filter(|rest| *rest >= LONG_REST))
        {
            cx.out.push_back(Output::Expect { channel, bytes });
        }
    }

    /// Returns a reason with the addresses and the resource.
    pub(super) fn refusal(&self, failure: Failure, why: &str) -> Refusal {
        let detail = self.describe(why);
        Refusal { failure, detail }
    }

    /// Adds the addresses and the URL of the last request to a reason.
    pub(super) fn describe(&self, why: &str) -> String {
        let url = self.request.as_ref().map(|request| &request.url);
        match url.or(self.server.as_ref()) {
            Some(url) => format!("{why}, {}: {url}", self.describe_addresses(url)),
            None => why.to_owned(),
        }
    }

    fn describe_addresses(&self, url: &Url) -> String {
        lifecycle::describe_addresses(self.addresses, url.host(), url.port())
    }
}

/// Returns the first byte of a `Content-Range` (RFC 9110, 14.4).
fn first_byte(range: &str) -> Option<u64> {
    let (first, _) = range.trim().strip_prefix("bytes ")?.split_once('-')?;
    first.trim().parse().ok()
}

impl Shared {
    pub(super) fn new(url: Url) -> Shared {
        Shared {
            url,
            cookies: Cookies::default(),
            reached: None,
            next_channel: 0,
            keys: VecDeque::new(),
        }
    }

    /// Returns the key at this URL, if it was received.
    pub(super) fn key(&self, url: &Url) -> Option<[u8; 16]> {
        let mut keys = self.keys.iter();
        let (_, key) = keys.find(|(own, _)| own.is_same_resource(url))?;
        Some(*key)
    }

    pub(super) fn keep_key(&mut self, url: Url, key: [u8; 16]) {
        if self.key(&url).is_some() {
            return;
        }
        if self.keys.len() == KEYS_MAX {
            self.keys.pop_front();
        }
        self.keys.push_back((url, key));
    }

    fn check_host(&self, follow: RedirectPolicy, url: &Url) -> Result<(), String> {
        follow.check(self.url.host(), self.reached, url.host())
    }

    /// Resolves a URI of a playlist at `base`. A key that forbids redirects does not forbid the
    /// URIs of the host.
    pub(super) fn resolve(
        &self,
        config: &ClientConfig,
        base: &Url,
        uri: &str,
    ) -> Result<Url, Refusal> {
        let refusal = |failure, why: String| Refusal {
            failure,
            detail: format!("{why}, in the playlist {base}"),
        };
        let url = base
            .redirect(uri)
            .map_err(|error| refusal(Failure::BadPlaylist, error.to_string()))?;
        let follow = match config.follow {
            RedirectPolicy::None => RedirectPolicy::SameHost,
            other => other,
        };
        self.check_host(follow, &url)
            .map_err(|why| refusal(Failure::RedirectRefused, why))?;
        Ok(url)
    }
}

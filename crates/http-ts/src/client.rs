//! Client that requests a stream and receives it until it is stopped.
//!
//! The client connects, sends a GET, follows redirects, and passes the body to a [`TsChecker`].
//! Requests ask for no content coding and for a connection that closes after the response, so that
//! the body is the stream and nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::config::ClientConfig;
use super::failure::Failure;
use super::metrics as m;
use kit::auth;
use kit::connect_failure::ConnectFailure;
use kit::http1::{self, Cookies, Head, ResponseDecoder, ResponseItem, Url, UrlError};
use kit::lifecycle::{self, Addresses, FAILED_WAIT_MIN, MediaTimes};
use kit::media::rtp::StreamSummary;
use kit::media::ts::checker::{TsChecker, TsCheckerConfig};
use kit::media::ts::metrics as ts;
use kit::metrics as clients;
use kit::zapping::Channels;
use session::{
    ArrivalTimes, ChannelId, CloseReason, Context, Input, Open, Outcome, Output, Port, Session,
    Sinks, StreamRow,
};

mod body_prefix;
mod media;
mod redirects;
#[cfg(test)]
mod tests;
mod zap;

use body_prefix::BodyPrefix;
use zap::Zapping;

/// A body that has no three packets in a row within this number of bytes is not a transport stream.
const UNSYNCED_BYTES_MAX: usize = 32 * 1024;

/// Progress of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The connection is being opened.
    Connecting,
    /// Waits for the response head.
    Requested,
    /// Receives the response body.
    Body,
    /// A channel change failed, and the next one is not due.
    BetweenChannels,
    Ended,
}

/// Client that plays one URL.
#[derive(Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    /// URL of the current request: the original one, or that of a redirect.
    current_url: Url,
    /// URLs requested before it.
    visited: Vec<Url>,
    /// Number of URLs in `visited` that were requested with other cookies. Requesting one of them
    /// again is not a loop.
    visited_with_other_cookies: usize,
    /// Cookies set along the current chain of redirects.
    cookies: Cookies,
    phase: Phase,
    /// Channel of the connection. Each connection has a new number.
    channel: ChannelId,
    open: bool,
    /// Local and remote address of the connection.
    addresses: Option<Addresses>,
    decoder: ResponseDecoder,
    /// Present from the head of the response that carries media.
    checker: Option<Box<TsChecker>>,
    /// Beginning of the body, until its first packet is found.
    body_prefix: Option<Box<BodyPrefix>>,
    wire_bytes: u64,
    /// Length of the body, if the server stated one.
    stated_length: Option<u64>,
    /// Planned time of the first request, and actual start of the client.
    planned_start: Time,
    started: Time,
    /// Time when the connection was started, or the request was sent.
    requested_at: Time,
    /// Arrival of the head of the response that carries media.
    response_at: Time,
    /// True if media of the current channel has arrived.
    has_media: bool,
    /// Arrival of the first media of any channel.
    first_media: Option<Time>,
    /// True after a channel change, until there is a picture.
    awaits_picture: bool,
    zapping: Option<Box<Zapping>>,
    /// Time of the next timeout check.
    next_check_at: Option<Time>,
    /// Wall-clock time since 1970 at [`Time::ZERO`]; `None` if unknown.
    wall_clock: Option<Duration>,
}

impl Client {
    /// Creates a client that plays `url`.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(config: impl Into<Arc<ClientConfig>>, url: &str) -> Result<Client, UrlError> {
        let config = config.into();
        Ok(Client {
            config,
            current_url: Url::parse(url)?,
            visited: Vec::new(),
            visited_with_other_cookies: 0,
            cookies: Cookies::default(),
            phase: Phase::Idle,
            channel: ChannelId(0),
            open: false,
            addresses: None,
            decoder: ResponseDecoder::new(),
            checker: None,
            body_prefix: None,
            wire_bytes: 0,
            stated_length: None,
            planned_start: Time::ZERO,
            started: Time::ZERO,
            requested_at: Time::ZERO,
            response_at: Time::ZERO,
            has_media: false,
            first_media: None,
            awaits_picture: false,
            zapping: None,
            next_check_at: None,
            wall_clock: None,
        })
    }

    /// Sets the wall-clock time since 1970 at [`Time::ZERO`], to which the delay of stamped
    /// datagrams refers. Without it, that delay is not measured.
    pub fn with_wall_clock(mut self, wall_clock: Duration) -> Client {
        self.wall_clock = Some(wall_clock);
        self
    }

    /// Makes the client change between these channels, if its configuration asks for it. Its random
    /// choices derive from `seed`.
    pub fn zapping(mut self, channels: Arc<Channels<Url>>, seed: u64) -> Client {
        let zapping = |zap| Box::new(Zapping::new(zap, channels, &self.current_url, seed));
        self.zapping = self.config.zap.map(zapping);
        self
    }

    fn connect(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Connecting;
        self.requested_at = cx.now;
        self.next_check_at = None;
        self.decoder = ResponseDecoder::new();
        self.open = true;
        self.addresses = None;
        let timeout = self.config.connect_timeout.0;
        let open = Open::server(
            self.current_url.host(),
            self.current_url.port(),
            timeout,
            self.current_url.is_secure(),
            &self.config.tls,
        );
        cx.out.push_back(Output::Open {
            channel: self.channel,
            open,
        });
    }

    fn handle_opened(
        &mut self,
        cx: &mut Context<'_>,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) {
        if self.phase != Phase::Connecting {
            return;
        }
        self.addresses = Some((local, remote));
        if self.visited.is_empty() && self.changed_at().is_none() {
            let delay = cx.now.since(self.started);
            cx.recorder.record_duration(clients::CONNECT_DELAY, delay);
        }
        let credentials = self.current_url.user_info().map(auth::basic);
        let mut headers = vec![
            ("User-Agent", self.config.user_agent.as_str()),
            // A compressed body cannot be checked on arrival.
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
        ];
        let named = self.visited.first().unwrap_or(&self.current_url);
        let is_named_server = named.shares_credentials_with(&self.current_url);
        let further: Vec<(&str, &str)> = self.config.headers.of_request(is_named_server).collect();
        let is_there = |wanted: &str| {
            let mut names = further.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(wanted))
        };
        if !is_there("Accept") {
            headers.push(("Accept", "*/*"));
        }
        if let Some(credentials) = credentials
            .as_deref()
            .filter(|_| !is_there("Authorization"))
        {
            headers.push(("Authorization", credentials));
        }
        let cookies = self.cookies.for_request(&self.current_url);
        if let Some(cookies) = cookies.as_deref().filter(|_| !is_there("Cookie")) {
            headers.push(("Cookie", cookies));
        }
        headers.extend(further);
        let version = self.config.http_version;
        let bytes = http1::write_request("GET", &self.current_url, version, &headers);
        cx.recorder.add(m::REQUESTS, 1);
        cx.out.push_back(Output::Send {
            channel: self.channel,
            port: Port::Media,
            bytes,
        });
        self.phase = Phase::Requested;
        self.requested_at = cx.now;
        self.next_check_at = Some(cx.now + self.config.request_timeout.0);
    }

    /// Processes received bytes (hot path of media).
    fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8], mut times: ArrivalTimes<'_>) {
        self.wire_bytes += bytes.len() as u64;
        cx.recorder.add(ts::WIRE_BYTES, bytes.len() as u64);
        let channel = self.channel;
        let mut at = 0;
        while self.phase != Phase::Ended && self.channel == channel {
            match self.decoder.next(bytes, &mut at) {
                Ok(Some(ResponseItem::Body { bytes, start })) if self.phase == Phase::Body => {
                    self.handle_media(cx, bytes, start, &mut times);
                }
                // The body of a response without media.
                Ok(Some(ResponseItem::Body { .. })) => {}
                Ok(Some(ResponseItem::Head(head))) => {
                    self.handle_response_head(cx, &head, times.arrival_of(at).0)
                }
                Ok(Some(ResponseItem::End)) => self.handle_response_end(cx),
                Ok(None) => return,
                Err(malformed) => {
                    let failure = Failure::from_malformed(malformed);
                    self.fail_at_server(cx, failure, &malformed.to_string());
                }
            }
        }
    }

    #[inline]
    fn handle_media(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        start: usize,
        times: &mut ArrivalTimes<'_>,
    ) {
        let Some(checker) = &mut self.checker else {
            return;
        };
        let Some(beginning) = &mut self.body_prefix else {
            checker.feed(bytes, start, times, cx.recorder);
            if self.awaits_picture {
                self.check_for_picture(cx);
            }
            return;
        };
        if beginning.is_empty() {
            let (at, _) = times.clone().arrival_of(start + 1);
            let changed = self.zapping.as_ref().and_then(|zapping| zapping.last_due);
            let (delay, from) = match changed {
                Some(due) => (clients::ZAP_FIRST_BYTE_DELAY, due),
                None => (m::FIRST_BYTE_DELAY, self.planned_start),
            };
            cx.recorder.record_duration(delay, at.since(from));
        }
        beginning.extend(bytes);
        if beginning.recognized_format().is_some() {
            return self.fail_not_ts(cx);
        }
        checker.feed(bytes, start, times, cx.recorder);
        if let Some(at) = checker.first_arrival() {
            let stride = checker.stride();
            self.body_prefix = None;
            self.note_packet_size(cx, stride);
            self.handle_first_packet(cx, at);
            if self.awaits_picture {
                self.check_for_picture(cx);
            }
        } else if checker.bytes_without_packet() > UNSYNCED_BYTES_MAX {
            self.fail_not_ts(cx);
        }
    }

    fn handle_first_packet(&mut self, cx: &mut Context<'_>, at: Time) {
        self.has_media = true;
        self.next_check_at = Some(at + self.config.silence.0);
        if self.first_media.is_some() {
            return;
        }
        self.first_media = Some(at);
        lifecycle::record_startup(cx.recorder, at, self.planned_start, self.started);
        cx.out.push_back(Output::Playing { at });
    }

    /// Fails because the body is not a transport stream.
    fn fail_not_ts(&mut self, cx: &mut Context<'_>) {
        if let Some(beginning) = &self.body_prefix {
            self.fail_at_server(cx, Failure::NotTs, &beginning.to_string());
        }
    }

    fn handle_response_head(&mut self, cx: &mut Context<'_>, head: &Head, at: Time) {
        let delay = at.since(self.requested_at);
        cx.recorder.record_duration(m::RESPONSE_DELAY, delay);
        cx.recorder.add(m::RESPONSES, 1);
        let chunked = head.headers.contains_token("Transfer-Encoding", "chunked");
        cx.recorder.add(m::CHUNKED, u64::from(chunked));
        cx.recorder.add(m::REFUSALS, u64::from(head.status >= 300));
        match head.status {
            200..=299 => {}
            301 | 302 | 303 | 307 | 308 => return self.handle_redirect(cx, head),
            status => {
                let detail = format!(
                    "{status} {}, {}{}",
                    head.reason,
                    self.describe_addresses(),
                    self.advice_on_status()
                );
                return self.fail(cx, Failure::from_status(status), detail);
            }
        }
        let length = head.headers.list("Content-Length").next();
        self.stated_length = length
            .filter(|_| !chunked)
            .and_then(|text| text.parse().ok());
        let mut codings = head.headers.list("Content-Encoding");
        if let Some(coding) = codings.find(|coding| !coding.eq_ignore_ascii_case("identity")) {
            let detail = format!("Content-Encoding: {coding}");
            return self.fail_at_server(cx, Failure::NotTs, &detail);
        }
        self.phase = Phase::Body;
        self.response_at = at;
        self.next_check_at = Some(cx.now + self.config.no_media.0);
        self.body_prefix = Some(Box::new(BodyPrefix::new(head.headers.get("Content-Type"))));
        self.checker = Some(Box::new(TsChecker::new(&TsCheckerConfig {
            due: self.channel_due(),
            group: self.config.group_of(&self.current_url),
            previous_channel: self.zapping.as_ref().and_then(|zapping| zapping.previous()),
            wall_clock: self.wall_clock,
            playout_buffer: self.config.playout_buffer.0,
        })));
    }

    /// Returns what to try if the server refuses the URL; empty if nothing is known to help.
    fn advice_on_status(&self) -> String {
        let path = self.current_url.target().split('?').next();
        let mut parts = path.unwrap_or("").split('/');
        let Some(signalling) = parts.find(|part| ["whep", "whip"].contains(part)) else {
            return String::new();
        };
        let scheme = match self.current_url.is_secure() {
            true => "https",
            false => "http",
        };
        format!("; the path looks like WebRTC: try `{signalling}+{scheme}://`")
    }

    /// Handles the end of the response, as given by its framing.
    fn handle_response_end(&mut self, cx: &mut Context<'_>) {
        if self.has_media && !self.awaits_picture {
            let by = self.note_end(cx);
            let how = format!("ended the stream by {by}");
            return self.end_by_server(cx, Failure::EndedByServer, &how);
        }
        if self.has_media {
            let detail = "the stream ended before its first random-access point";
            return self.fail_at_server(cx, Failure::ClosedInMedia, detail);
        }
        match &self.body_prefix {
            Some(beginning) if !beginning.is_empty() => self.fail_not_ts(cx),
            _ => self.fail_at_server(cx, Failure::EmptyBody, "the answer has no body"),
        }
    }

    fn handle_closed(&mut self, cx: &mut Context<'_>, how: CloseReason) {
        self.open = false;
        let ends = self.describe_addresses();
        if let Some(failure) = Failure::from_closed(how) {
            let why = match how {
                CloseReason::Tls(error) => error.to_string(),
                CloseReason::SendQueueFull => "the server stopped reading".to_owned(),
                _ => "the server reset the connection".to_owned(),
            };
            let detail = format!("{why} {} ({ends})", self.describe_progress(cx.now));
            return self.fail(cx, failure, detail);
        }
        match self.decoder.at_close() {
            http1::CloseState::Empty | http1::CloseState::TruncatedHead => {
                let detail = format!(
                    "the server closed the connection before its answer was complete ({ends})"
                );
                self.fail(cx, Failure::ClosedInResponse, detail);
            }
            http1::CloseState::Over => self.handle_response_end(cx),
            http1::CloseState::UntilClose if self.has_media && !self.awaits_picture => {
                self.end_by_server(cx, Failure::ClosedInMedia, "closed the connection");
            }
            http1::CloseState::UntilClose => self.handle_response_end(cx),
            http1::CloseState::TruncatedBody => {
                let detail = format!(
                    "the server closed the connection before the body was complete, {} ({ends})",
                    self.describe_progress(cx.now)
                );
                self.fail(cx, Failure::CutOff, detail);
            }
        }
    }

    /// Ends the client because the server ended the stream during playback.
    fn end_by_server(&mut self, cx: &mut Context<'_>, failure: Failure, how: &str) {
        let detail = format!(
            "the server {how} {} ({})",
            self.describe_progress(cx.now),
            self.describe_addresses()
        );
        let outcome = Outcome::EndedByServer {
            at: cx.now,
            in_order: failure == Failure::EndedByServer,
            failure: failure.with(detail),
        };
        self.finish(cx, outcome);
    }

    /// Describes the client's progress, for failure details.
    fn describe_progress(&self, now: Time) -> String {
        let checker = self.checker.as_ref();
        lifecycle::describe_progress(checker.and_then(|checker| checker.first_arrival()), now)
    }

    /// Checks for timeouts, if a check is due.
    fn check_timeouts(&mut self, cx: &mut Context<'_>) {
        if self.next_check_at.is_none_or(|check| cx.now < check) {
            return;
        }
        match self.phase {
            Phase::Requested => {
                let detail = format!("no answer within {}", self.config.request_timeout);
                self.fail_at_server(cx, Failure::TimeoutResponse, &detail);
            }
            Phase::Body => {
                let last = self
                    .checker
                    .as_ref()
                    .and_then(|checker| checker.last_arrival());
                let Some(last) = last else {
                    let detail = self.describe_missing_media(&self.config.no_media.to_string());
                    return self.fail(cx, Failure::NoMedia, detail);
                };
                let until = last + self.config.silence.0;
                if cx.now < until {
                    self.next_check_at = Some(until);
                    return;
                }
                let progress = self.describe_progress(last);
                let detail = format!("no packet for {}, {progress}", self.config.silence);
                self.fail_at_server(cx, Failure::MediaStopped, &detail);
            }
            Phase::Idle | Phase::Connecting | Phase::BetweenChannels | Phase::Ended => {
                self.next_check_at = None
            }
        }
    }

    fn describe_missing_media(&self, within: &str) -> String {
        let came = match &self.body_prefix {
            Some(beginning) if !beginning.is_empty() => format!("; {beginning}"),
            _ => String::new(),
        };
        format!(
            "no packet within {within} after the head of the answer{came}, {}",
            self.describe_addresses()
        )
    }

    /// Handles the request to stop. The server needs no notification: the connection is closed.
    fn stop(&mut self, cx: &mut Context<'_>) {
        if let Some((failure, detail)) = self.media_stopped_failure(cx.now) {
            // A channel change in progress fails with it.
            self.fail(cx, failure, detail);
        }
        self.finish_channel(cx);
        self.finish(cx, Outcome::Stopped);
    }

    /// Returns a failure if the client is about to leave the channel and has waited for the server
    /// for too long.
    fn unanswered_failure(&self, now: Time) -> Option<(Failure, String)> {
        let since = match self.phase {
            Phase::Body => self.response_at,
            _ => self.requested_at,
        };
        let waited = now.since(since);
        let waits = matches!(
            self.phase,
            Phase::Connecting | Phase::Requested | Phase::Body
        );
        if self.has_media || !waits || waited < FAILED_WAIT_MIN {
            return None;
        }
        let waited = lifecycle::describe_wait(waited);
        Some(match self.phase {
            Phase::Body => (Failure::NoMedia, self.describe_missing_media(&waited)),
            Phase::Requested => (
                Failure::TimeoutResponse,
                format!("no answer in {waited} ({})", self.describe_addresses()),
            ),
            _ => (
                ConnectFailure::TimedOut.into(),
                format!("no connection in {waited} ({})", self.describe_addresses()),
            ),
        })
    }

    /// Returns a failure if media has stopped for longer than the gaps before would explain.
    fn media_stopped_failure(&self, now: Time) -> Option<(Failure, String)> {
        let checker = self.checker.as_ref().filter(|_| self.has_media)?;
        let (first, last) = checker.first_arrival().zip(checker.last_arrival())?;
        let times = MediaTimes {
            first,
            last,
            longest_gap: checker.longest_gap(),
        };
        let silent = times.stopped_for(now, self.config.silence.0)?;
        let detail = lifecycle::describe_stopped("packet", silent, &self.describe_addresses());
        Some((Failure::MediaStopped, detail))
    }

    /// Fails with a detail, behind which the addresses of the connection follow.
    fn fail_at_server(&mut self, cx: &mut Context<'_>, failure: Failure, detail: &str) {
        let detail = format!("{detail}, {}", self.describe_addresses());
        self.fail(cx, failure, detail);
    }

    fn fail(&mut self, cx: &mut Context<'_>, failure: Failure, detail: String) {
        if failure == Failure::MediaStopped
            && let Some(checker) = &mut self.checker
        {
            checker.count_silence_until(cx.now, cx.recorder);
        }
        if self.awaits_picture {
            return self.count_failed_change(cx, failure, detail);
        }
        self.finish(cx, Outcome::Failed(failure.with(detail)));
    }

    /// Ends the client: closes the connection, and adds the remaining figures.
    fn finish(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if self.phase == Phase::Ended {
            return;
        }
        let outcome = match (outcome, self.no_picture_failure()) {
            (Outcome::Failed(failure), _) => Outcome::Failed(failure),
            (_, Some((failure, detail))) => Outcome::Failed(failure.with(detail)),
            (outcome, None) => outcome,
        };
        match outcome {
            Outcome::Failed(_) => {}
            Outcome::Completed | Outcome::EndedByServer { .. } => {
                self.count_silent_streams(cx, false)
            }
            Outcome::Stopped => self.count_silent_streams(cx, true),
        }
        self.phase = Phase::Ended;
        self.next_check_at = None;
        if self.open {
            cx.out.push_back(Output::Close {
                channel: self.channel,
            });
        }
        if let Some(checker) = &mut self.checker {
            checker.finish(cx.recorder);
        }
        let viewing = self.viewing(cx.now);
        let service = self.config.served_well.judge(&viewing);
        cx.out.push_back(Output::Viewed(service));
        let summaries = self.summaries();
        if !summaries.is_empty() {
            cx.out.push_back(Output::Streams(summaries));
        }
        self.checker = None;
        cx.out.push_back(Output::Ended(outcome));
    }

    fn summaries(&self) -> Vec<StreamRow> {
        let checker = self.checker.as_deref();
        let summary = checker.map(|checker| {
            StreamSummary::from_checker(self.current_url.to_string(), self.wire_bytes, checker)
        });
        let earlier = self
            .zapping
            .as_ref()
            .and_then(|zapping| zapping.earlier_summary.as_deref());
        let summaries = earlier.cloned().into_iter().chain(summary);
        summaries.map(StreamRow::new).collect()
    }

    /// Describes the addresses of the connection, for failure details.
    fn describe_addresses(&self) -> String {
        let url = &self.current_url;
        lifecycle::describe_addresses(self.addresses, url.host(), url.port())
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        match input {
            Input::Start { due } if self.phase == Phase::Idle => {
                self.planned_start = due;
                self.started = cx.now;
                if let Some(zapping) = &mut self.zapping {
                    zapping.begin(due);
                }
                self.connect(cx);
            }
            Input::Opened {
                channel,
                local,
                remote,
            } if channel == self.channel => self.handle_opened(cx, local, remote),
            Input::OpenFailed { channel, error } if channel == self.channel => {
                self.open = false;
                let detail = format!("{error} ({})", self.describe_addresses());
                self.fail(cx, Failure::Connect(error.into()), detail);
            }
            Input::Bytes {
                channel,
                bytes,
                at,
                runs,
            } if channel == self.channel => {
                self.handle_bytes(cx, bytes, ArrivalTimes::new(runs, at));
            }
            Input::Closed {
                channel,
                reason: how,
            } if channel == self.channel => self.handle_closed(cx, how),
            Input::Stop { .. } => self.stop(cx),
            _ => {}
        }
        self.check_timeouts(cx);
        self.change_if_due(cx);
    }

    fn deadline(&self) -> Option<Time> {
        let change = self.zapping.as_ref().map(|zapping| zapping.next_due);
        match self.phase {
            Phase::Idle | Phase::Ended => None,
            _ => change.into_iter().chain(self.next_check_at).min(),
        }
    }

    fn streams(&self, _sinks: &mut Sinks) -> Vec<StreamRow> {
        self.summaries()
    }
}

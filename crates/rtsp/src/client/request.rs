//! Outstanding requests: numbers, deadlines and delays.

use std::fmt::Display;

use measure::{HistogramId, Time};

use super::{Client, Phase};
use crate::codec::{self, Headers, Method, Request, Response};
use crate::failure::Failure;
use crate::headers::write_methods;
use crate::metrics as m;
use session::Context;

/// An outstanding request.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) cseq: u32,
    pub(super) method: Method,
    pub(super) uri: String,
    /// Headers in addition to those of every request.
    pub(super) headers: Vec<(&'static str, String)>,
    /// Time when it was due to be sent.
    pub(super) due: Time,
    pub(super) deadline: Time,
    /// True for a keep-alive.
    pub(super) keep_alive: bool,
    /// Whether it carried an authorization, and whether that was the second one.
    pub(super) authorized: bool,
    pub(super) second_authorization: bool,
}

impl Pending {
    /// Returns a request that [`Client::send`] numbers.
    pub(super) fn new(
        method: Method,
        uri: String,
        headers: Vec<(&'static str, String)>,
        due: Time,
    ) -> Pending {
        Pending {
            cseq: 0,
            method,
            uri,
            headers,
            due,
            deadline: due,
            keep_alive: false,
            authorized: false,
            second_authorization: false,
        }
    }
}

/// Maximum session timeout in seconds. A longer timeout stated by the server is cut to this.
const SESSION_TIMEOUT_MAX: u32 = 24 * 3600;

/// Maximum number of unanswered keep-alives. Beyond it, the oldest one is dropped.
const KEEP_ALIVES_MAX: usize = 8;

fn delay_metric(method: &Method) -> Option<HistogramId> {
    Some(match method {
        Method::Options => m::OPTIONS_DELAY,
        Method::Describe => m::DESCRIBE_DELAY,
        Method::Setup => m::SETUP_DELAY,
        Method::Play => m::PLAY_DELAY,
        Method::Pause => m::PAUSE_DELAY,
        Method::Announce => m::ANNOUNCE_DELAY,
        Method::Record => m::RECORD_DELAY,
        Method::GetParameter => m::GET_PARAMETER_DELAY,
        Method::Teardown => m::TEARDOWN_DELAY,
        _ => return None,
    })
}

impl Client {
    /// Sends a request that the session depends on, and that is due now.
    pub(super) fn send_request(
        &mut self,
        cx: &mut Context<'_>,
        method: Method,
        uri: String,
        headers: Vec<(&'static str, String)>,
    ) {
        self.send(cx, Pending::new(method, uri, headers, cx.now));
    }

    /// Numbers a request and sends it.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, mut pending: Pending) {
        pending.cseq = self.conversation.cseq;
        self.conversation.cseq = self.conversation.cseq.wrapping_add(1);
        pending.deadline = cx.now + self.config.request_timeout.0;
        let mut request = Request::new(pending.method.clone(), pending.uri.clone());
        let headers = &mut request.headers;
        headers.push("CSeq", pending.cseq.to_string());
        headers.push("User-Agent", self.config.user_agent.clone());
        let authorization = match self.sends_authorization_field() {
            true => None,
            false => self
                .conversation
                .auth
                .authorize(pending.method.name(), &pending.uri),
        };
        pending.authorized = authorization.is_some();
        if let Some(value) = authorization {
            headers.push("Authorization", value);
        }
        if let Some(session) = &self.conversation.session {
            headers.push("Session", session.id.clone());
        }
        for (name, value) in &pending.headers {
            headers.push(*name, value.clone());
        }
        for (name, value) in self.additional_fields() {
            headers.push(name, value);
        }
        request.body = self.body_of(&pending.method);
        cx.recorder.add(m::REQUESTS, 1);
        if pending.method == Method::Play {
            self.starts.play_sent = Some(cx.now);
        }
        self.send_bytes(cx, request.encode());
        self.conversation.pending.push(pending);
    }

    /// Returns the fields of `headers` for the current server.
    pub(super) fn additional_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_named_server = self.given_url.shares_credentials_with(&self.url);
        self.config.headers.of_request(is_named_server)
    }

    /// Returns `true` if `headers` give `Authorization`, which replaces the URL's credentials.
    fn sends_authorization_field(&self) -> bool {
        let mut fields = self.additional_fields();
        fields.any(|(name, _)| name.eq_ignore_ascii_case("Authorization"))
    }

    /// Removes and returns the request that an answer belongs to.
    ///
    /// An answer without a number, or with one that was never used, belongs to the only outstanding
    /// request, or to the oldest keep-alive if only keep-alives are outstanding. An answer with an
    /// old number is late and belongs to none, unless it is a refusal while only keep-alives are
    /// outstanding: some servers give such answers the number of the previous request.
    fn take_pending(&mut self, headers: &Headers, status: u16) -> Option<Pending> {
        let cseq = codec::cseq(headers);
        let past = cseq.is_some_and(|cseq| cseq != 0 && cseq < self.conversation.cseq);
        let all = &mut self.conversation.pending;
        let only_alive = all.iter().all(|pending| pending.keep_alive);
        let exact = all.iter().position(|pending| Some(pending.cseq) == cseq);
        match exact {
            Some(index) => Some(all.remove(index)),
            None if all.is_empty() => None,
            None if only_alive && (!past || status >= 400) => Some(all.remove(0)),
            None if all.len() == 1 && !past => all.pop(),
            None => None,
        }
    }

    /// Handles an answer.
    pub(super) fn response(&mut self, cx: &mut Context<'_>, response: Response, at: Time) {
        // Provisional: the final answer follows (RFC 2326, 7.1.1).
        if response.status < 200 {
            return;
        }
        let Some(mut pending) = self.take_pending(&response.headers, response.status) else {
            return;
        };
        cx.recorder.add(m::RESPONSES, 1);
        if response.status >= 300 {
            cx.recorder.add(m::REFUSALS, 1);
        }
        if let Some(histogram) = delay_metric(&pending.method) {
            cx.recorder
                .record_duration(histogram, at.since(pending.due));
        }
        let refused = if response.status == 401 && self.sends_authorization_field() {
            ", with the `Authorization` of `headers`"
        } else if response.status == 401 {
            use kit::auth::ChallengeOutcome;
            match self.conversation.auth.handle_challenges(
                &response.headers,
                pending.authorized,
                pending.second_authorization,
            ) {
                ChallengeOutcome::Retry => {
                    pending.second_authorization = pending.authorized;
                    pending.due = at;
                    return self.send(cx, pending);
                }
                ChallengeOutcome::NoCredentials => {
                    "; the URL has no name and password: write `NAME:PASSWORD@` before the host"
                }
                ChallengeOutcome::NoScheme => {
                    "; the server offers no supported authentication scheme"
                }
                ChallengeOutcome::Refused => {
                    "; the server refused the name and password of the URL"
                }
            }
        } else {
            ""
        };
        self.on_final_answer(cx, &pending, response, at, refused);
    }

    /// Fails the session because of an answer, in which this is wrong.
    pub(super) fn reject(
        &mut self,
        cx: &mut Context<'_>,
        failure: Failure,
        wrong: impl Display,
        pending: &Pending,
        response: &Response,
    ) {
        let detail = format!("{wrong}: {}", self.describe_answer(pending, response));
        self.fail(cx, failure, detail);
    }

    /// Describes request and answer, for failure details.
    pub(super) fn describe_answer(&self, pending: &Pending, response: &Response) -> String {
        let location = response.headers.get("Location");
        let to = match location.filter(|_| (300..400).contains(&response.status)) {
            Some(location) => format!(" to {location}"),
            None => String::new(),
        };
        format!(
            "{} {} (CSeq {}): {} {}{to}, {}",
            pending.method,
            pending.uri,
            pending.cseq,
            response.status,
            response.reason,
            self.describe_addresses()
        )
    }

    /// Gives up requests that were not answered in time.
    pub(super) fn overdue_requests(&mut self, cx: &mut Context<'_>) {
        loop {
            let all = &mut self.conversation.pending;
            let Some(index) = all.iter().position(|own| cx.now >= own.deadline) else {
                return;
            };
            let pending = all.remove(index);
            let description = format!(
                "{} {} (CSeq {}) not answered within {}{} ({})",
                pending.method,
                pending.uri,
                pending.cseq,
                self.config.request_timeout,
                self.describe_useless_bytes(),
                self.describe_addresses()
            );
            if pending.keep_alive {
                // Only the media shows whether the session is alive.
                self.keep_alive_failed(cx, "keep_alive_unanswered", description);
            } else if self.phase == Phase::TearingDown {
                return self.finish(cx);
            } else {
                return self.fail(cx, Failure::from_timeout(&pending.method), description);
            }
        }
    }

    /// Schedules the next keep-alive, after half of the server's session timeout (RFC 2326, 12.37).
    pub(super) fn plan_keep_alive(&mut self, from: Time) {
        let session = self.conversation.session.as_ref();
        let timeout = session
            .and_then(|session| session.timeout)
            .filter(|&timeout| timeout > 0)
            .unwrap_or(60)
            .min(SESSION_TIMEOUT_MAX);
        let half = std::time::Duration::from_millis(u64::from(timeout) * 500);
        self.conversation.keep_alive_due = Some(from + half);
    }

    /// Sends a keep-alive if one is due.
    pub(super) fn due_keep_alive(&mut self, cx: &mut Context<'_>) {
        let due = self.conversation.keep_alive_due;
        let Some(due) = due.filter(|&due| cx.now >= due) else {
            return;
        };
        // Scheduled from the due time, so that a late keep-alive does not delay all others. Missed
        // keep-alives are not made up for.
        self.plan_keep_alive(due);
        let next = self.conversation.keep_alive_due;
        if next.is_some_and(|next| cx.now >= next) {
            self.plan_keep_alive(cx.now);
        }
        // A server may accept a keep-alive without answering it, so the next one does not wait for
        // an answer.
        let all = &mut self.conversation.pending;
        if all.iter().filter(|own| own.keep_alive).count() >= KEEP_ALIVES_MAX
            && let Some(oldest) = all.iter().position(|own| own.keep_alive)
        {
            all.remove(oldest);
        }
        self.send_keep_alive(cx, due);
    }

    /// Answers a request of the server.
    pub(super) fn on_server_request(&mut self, cx: &mut Context<'_>, request: &Request) {
        const KNOWN: [Method; 4] = [
            Method::Options,
            Method::Announce,
            Method::GetParameter,
            Method::SetParameter,
        ];
        let known = KNOWN.contains(&request.method);
        let ends = matches!(request.method, Method::Teardown | Method::Redirect);
        if ends {
            self.remember_end_request(cx, request);
        }
        let mut response = Response::new(if known || ends { 200 } else { 501 });
        if let Some(cseq) = request.headers.get("CSeq") {
            response.headers.push("CSeq", cseq);
        }
        if let Some(session) = request.headers.get("Session") {
            response.headers.push("Session", session);
        }
        if request.method == Method::Options || !(known || ends) {
            response.headers.push("Public", write_methods(&KNOWN));
        }
        self.send_bytes(cx, response.encode());
    }
}

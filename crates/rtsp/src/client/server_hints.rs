//! Statements of the server that explain the end of a session: its own requests, refused
//! keep-alives, unreadable answers.

use std::fmt::Write;
use std::net::IpAddr;

use measure::Time;

use super::request::Pending;
use super::{Client, Phase};
use crate::codec::{Malformed, Method, Request, Response};
use crate::config::KeepAlive;
use session::{Context, Note, Output};

/// Maximum length of a quotation from the server, in characters.
const WORDS_MAX: usize = 200;

/// Hints for the detail of a failure.
#[derive(Debug, Default)]
pub(super) struct ServerHints {
    /// The server's request to end the session.
    end_request: Option<Box<str>>,
    /// The last keep-alive, if it was refused or not answered.
    keep_alive: Option<Box<str>>,
    /// The last answer that could not be read.
    unreadable_answer: Option<Box<str>>,
    /// Source address of datagrams that did not come from the server.
    pub(super) foreign_source: Option<IpAddr>,
    /// Bytes since the last answer that are neither message nor packet.
    pub(super) useless_bytes: u64,
}

impl ServerHints {
    /// Returns the text to append to the detail of a failure. Empty without hints.
    pub(super) fn hints(&self) -> String {
        let all = [&self.end_request, &self.keep_alive, &self.unreadable_answer];
        let hints = all.into_iter().flatten();
        let mut hints: String = hints.map(|hint| format!("; {hint}")).collect();
        if let Some(from) = self.foreign_source {
            let _ = write!(
                hints,
                "; datagrams came from {from}, which is not the server's address"
            );
        }
        hints
    }

    /// Returns whether the server asked to end the session.
    pub(super) fn is_asked_to_end(&self) -> bool {
        self.end_request.is_some()
    }

    /// Clears the hints that a valid answer invalidates.
    pub(super) fn answer_was_read(&mut self) {
        self.useless_bytes = 0;
        self.unreadable_answer = None;
    }
}

fn truncated(text: &str) -> String {
    text.chars().take(WORDS_MAX).collect()
}

impl Client {
    /// Remembers an unreadable answer that the session does not depend on.
    pub(super) fn remember_unreadable(&mut self, malformed: &Malformed) {
        let (reason, line) = (malformed.reason, truncated(&malformed.start_line));
        self.conversation.server_hints.unreadable_answer =
            Some(format!("a message could not be read: {reason} in `{line}`").into());
    }

    /// Remembers that the server asked to end the session or to move to another URL.
    pub(super) fn remember_end_request(&mut self, cx: &mut Context<'_>, request: &Request) {
        let to = request.headers.get("Location").map(truncated);
        let to = to.map_or(String::new(), |to| format!(" to {to}"));
        let text = format!("the server had sent {}{to}", request.method);
        if self.conversation.server_hints.end_request.is_none() {
            cx.out.push_back(Output::Note(Note {
                kind: "server_request",
                text: format!("{text} ({})", self.describe_addresses()),
            }));
        }
        self.conversation.server_hints.end_request = Some(text.into());
    }

    /// Handles the answer to a keep-alive.
    pub(super) fn keep_alive_answered(
        &mut self,
        cx: &mut Context<'_>,
        pending: &Pending,
        response: &Response,
        refused: &str,
    ) {
        let status = response.status;
        if status < 300 {
            self.conversation.server_hints.keep_alive = None;
            return;
        }
        let reason = truncated(&response.reason);
        self.keep_alive_failed(
            cx,
            "keep_alive_refused",
            format!(
                "keep-alive {} was answered {status} {reason}{refused}",
                pending.method
            ),
        );
        // The server may list a method in `Public` and still refuse it.
        if pending.method == Method::GetParameter && status >= 400 && status != 454 {
            let falls_back = std::mem::take(&mut self.conversation.supports_get_parameter)
                && self.config.keep_alive == KeepAlive::Auto
                && matches!(self.phase, Phase::Playing | Phase::Recording);
            if falls_back {
                self.send_keep_alive(cx, cx.now);
            }
        }
    }

    /// Remembers the failure of a keep-alive. Only the first in a row is noted.
    pub(super) fn keep_alive_failed(
        &mut self,
        cx: &mut Context<'_>,
        kind: &'static str,
        text: String,
    ) {
        if self.conversation.server_hints.keep_alive.is_none() {
            let text = text.clone();
            cx.out.push_back(Output::Note(Note { kind, text }));
        }
        self.conversation.server_hints.keep_alive = Some(text.into());
    }

    /// Sends a keep-alive that was due at `due`.
    pub(super) fn send_keep_alive(&mut self, cx: &mut Context<'_>, due: Time) {
        let method = match self.config.keep_alive {
            KeepAlive::GetParameter => Method::GetParameter,
            KeepAlive::Auto if self.conversation.supports_get_parameter => Method::GetParameter,
            KeepAlive::Auto | KeepAlive::Options => Method::Options,
        };
        let mut pending = Pending::new(method, self.aggregate.clone(), Vec::new(), due);
        pending.keep_alive = true;
        self.send(cx, pending);
    }
}

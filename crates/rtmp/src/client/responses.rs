//! Commands of the server: responses, statuses, calls.

use measure::{HistogramId, Time};

use super::{Client, Phase};
use crate::codec::amf0::Value;
use crate::codec::message::Command;
use crate::failure::Failure;
use crate::metrics as m;
use session::{Context, Note, Output};

impl Client {
    /// Processes a command of the server that arrived at `at`.
    pub(super) fn handle_command(&mut self, cx: &mut Context<'_>, command: &Command, at: Time) {
        match command.name.as_str() {
            "_result" if self.is_awaited(command) => self.handle_result(cx, command, at),
            "_error" if self.is_awaited(command) => {
                cx.recorder.add(m::ANSWERS, 1);
                self.handle_error(cx, command);
            }
            "onStatus" => self.handle_status(cx, command, at),
            // Bandwidth tests and the like, on which nothing depends.
            _ => {}
        }
    }

    /// Returns true if this is the response to the last command.
    fn is_awaited(&self, command: &Command) -> bool {
        command.transaction == f64::from(self.last_transaction) && self.phase.command().is_some()
    }

    fn handle_result(&mut self, cx: &mut Context<'_>, command: &Command, at: Time) {
        cx.recorder.add(m::ANSWERS, 1);
        match self.phase {
            Phase::Connect => {
                self.record_response_delay(cx, m::CONNECT_COMMAND_DELAY, at);
                self.send_create_stream(cx);
            }
            Phase::CreateStream => {
                self.record_response_delay(cx, m::CREATE_STREAM_DELAY, at);
                // The stream ID is the only number after the command object.
                let mut numbers = command.arguments.iter().filter_map(Value::as_number);
                let Some(stream) = numbers.next() else {
                    let detail = "the answer to createStream has no stream ID";
                    return self.fail(cx, Failure::CommandRefused, detail);
                };
                self.message_stream = stream as u32;
                match self.publishing {
                    Some(_) => self.send_publish(cx),
                    None => self.send_play(cx),
                }
            }
            // Most servers answer `play` with a status only.
            _ => {}
        }
    }

    pub(super) fn record_response_delay(&self, cx: &mut Context<'_>, delay: HistogramId, at: Time) {
        cx.recorder
            .record_duration(delay, at.since(self.requested_at));
    }

    fn handle_error(&mut self, cx: &mut Context<'_>, command: &Command) {
        cx.recorder.add(m::REFUSALS, 1);
        if let Some(target) = command.redirect_url() {
            return self.fail_redirected(cx, command, target);
        }
        let code = command.information_property("code").unwrap_or_default();
        let failure = match (Failure::from_status_code(code), self.phase) {
            (Failure::StatusError, Phase::Connect) => Failure::ConnectFailed,
            (Failure::StatusError, _) => Failure::CommandRefused,
            (failure, _) => failure,
        };
        let detail = format!(
            "{} was refused: {}",
            self.phase.command().unwrap_or("a command"),
            describe_status(command),
        );
        self.fail(cx, failure, detail);
    }

    /// Fails because of a redirect. The client does not follow it, so that load never reaches a
    /// server that the user did not choose.
    fn fail_redirected(&mut self, cx: &mut Context<'_>, command: &Command, target: &str) {
        let detail = format!(
            "{}; redirected to `{}`, which is not followed",
            describe_status(command),
            excerpt(target),
        );
        self.fail(cx, Failure::RedirectRefused, detail);
    }

    /// Handles `onStatus` (RTMP, 7.2.2).
    fn handle_status(&mut self, cx: &mut Context<'_>, command: &Command, at: Time) {
        cx.recorder.add(m::ANSWERS, 1);
        let code = command.information_property("code").unwrap_or_default();
        if command.information_property("level") == Some("error") {
            cx.recorder.add(m::REFUSALS, 1);
            if let Some(target) = command.redirect_url() {
                return self.fail_redirected(cx, command, target);
            }
            let detail = describe_status(command);
            return self.fail(cx, Failure::from_status_code(code), detail);
        }
        match code {
            "NetStream.Play.Start" if self.phase == Phase::Play => self.handle_play_started(cx, at),
            "NetStream.Publish.Start" if self.phase == Phase::Publish => {
                self.record_response_delay(cx, m::PUBLISH_DELAY, at);
                self.handle_publish_started(cx);
            }
            // Servers send this status only at the end of a file.
            "NetStream.Play.Complete" => {
                self.is_recorded = true;
                self.handle_stream_ended(cx, &describe_status(command));
            }
            "NetStream.Play.Stop" => self.handle_stream_ended(cx, &describe_status(command)),
            // Some servers send StreamIsRecorded for live streams, too. Files have no publisher.
            "NetStream.Play.UnpublishNotify" => {
                self.is_recorded = false;
                self.handle_stream_ended(cx, &describe_status(command));
            }
            // Enhanced RTMP v2, "Reconnect Request": the server continues to send until the client
            // leaves.
            "NetConnection.Connect.ReconnectRequest" => {
                let target = command.information_property("tcUrl").map(excerpt);
                let target = target.unwrap_or_else(|| "the same server".to_owned());
                cx.out.push_back(Output::Note(Note {
                    kind: "reconnect_request",
                    text: self.with_addresses(format!("{}, to {target}", describe_status(command))),
                }));
            }
            "NetConnection.Connect.AppShutdown" | "NetConnection.Connect.Closed" => {
                self.fail(cx, Failure::AppShutdown, describe_status(command));
            }
            _ => {}
        }
    }
}

/// Maximum number of characters shown of a redirect target.
const TARGET_MAX: usize = 200;

/// Returns the part of a target that is shown. Servers may send anything.
fn excerpt(target: &str) -> String {
    let shown = target.chars().filter(|letter| !letter.is_control());
    shown.take(TARGET_MAX).collect()
}

/// Returns the code and the description of a response or status.
fn describe_status(command: &Command) -> String {
    let part = |name: &str| command.information_property(name).unwrap_or_default();
    let (code, description) = (part("code"), part("description"));
    match (code, description) {
        ("", "") => "no reason given".to_owned(),
        (code, "") => code.to_owned(),
        ("", description) => description.to_owned(),
        (code, description) => format!("{code}: {description}"),
    }
}

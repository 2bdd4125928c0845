//! End of a client: failures, timeouts, and shutdown.

use std::fmt::Display;

use super::*;
use kit::lifecycle::{self, FAILED_WAIT_MIN};
use kit::viewer::Viewing;

/// Delay before an unpublished live stream counts as ended. The publisher may come back, and
/// players keep showing the last picture until then.
const REPUBLISH_TIMEOUT: Duration = Duration::from_secs(3);

/// A live stream that is no longer published, as its server reported.
#[derive(Debug)]
pub(super) struct Unpublished {
    since: Time,
    /// Description of the end, for the failure.
    text: String,
}

impl Client {
    /// Handles the end of the stream. `reason` names the event or status that reported it: for live
    /// streams and files, servers send an event, a status or both, in any order.
    pub(super) fn handle_stream_ended(&mut self, cx: &mut Context<'_>, reason: &str) {
        // Before the first frame it means that the stream is not published yet.
        if !self.has_played() || self.phase == Phase::Ended {
            return;
        }
        let known = self.unpublished.take();
        let progress = self.describe_progress(cx.now);
        let text = self.with_addresses(format!("the server ended the stream {progress}: {reason}"));
        if known.is_none() {
            cx.out.push_back(Output::Note(Note {
                kind: "ended_by_server",
                text: text.clone(),
            }));
        }
        // In a file, audio and video may differ in length.
        if self.is_recorded {
            return match self.no_picture_failure(cx.now) {
                Some((failure, detail)) => self.fail(cx, failure, detail),
                None => self.finish(cx, Outcome::Completed),
            };
        }
        if self.publisher.has_left() {
            return self.end_live_stream(cx, cx.now, text);
        }
        let since = known.map_or(cx.now, |known| known.since);
        self.unpublished = Some(Unpublished { since, text });
        self.next_check_at = Some(since + REPUBLISH_TIMEOUT);
    }

    /// Ends the client after the end of a live stream. `text` describes the end, `at` is its time.
    fn end_live_stream(&mut self, cx: &mut Context<'_>, at: Time, text: String) {
        if let Some((failure, detail)) = self.no_picture_failure(at) {
            return self.fail(cx, failure, detail);
        }
        self.report_silent_stream(cx, at);
        let outcome = match self.publisher.has_left() {
            true => Outcome::Completed,
            false => Outcome::EndedByServer {
                at,
                in_order: true,
                failure: Failure::EndedByServer.with(text),
            },
        };
        self.finish(cx, outcome);
    }

    /// Checks whether an unpublished stream has come back; its last frame arrived at `last`.
    /// Returns true if the stream is still unpublished, so that no other check applies.
    fn check_unpublished(&mut self, cx: &mut Context<'_>, last: Time) -> bool {
        let Some(unpublished) = self.unpublished.take_if(|own| last <= own.since) else {
            self.unpublished = None;
            return false;
        };
        let until = unpublished.since + REPUBLISH_TIMEOUT;
        if cx.now < until {
            self.unpublished = Some(unpublished);
            self.next_check_at = Some(until);
        } else {
            self.end_live_stream(cx, unpublished.since, unpublished.text);
        }
        true
    }

    /// Reports audio or video that had stopped by then while the other played on.
    fn report_silent_stream(&mut self, cx: &mut Context<'_>, by: Time) {
        let Some(playing) = &mut self.playing else {
            return;
        };
        if let Some(text) = playing.count_silent_stream(by, self.config.silence.0, cx.recorder) {
            let text = format!("{text}: {}", self.url);
            cx.out.push_back(Output::Note(Note {
                kind: "silent_stream",
                text,
            }));
        }
    }

    /// Returns a failure if the stream has video, but a viewer saw no picture.
    fn no_picture_failure(&self, now: Time) -> Option<(Failure, String)> {
        let missed = self.playing.as_ref()?.describe_missing_key_frame(now)?;
        Some((Failure::NoPicture, missed))
    }

    fn has_played(&self) -> bool {
        let playing = self.playing.as_ref();
        playing.is_some_and(|playing| playing.first_arrival().is_some())
    }

    pub(super) fn closed(&mut self, cx: &mut Context<'_>, how: CloseReason) {
        self.open = false;
        let when = self.describe_progress(cx.now);
        if let Some(failure) = Failure::from_closed(how) {
            let why = match how {
                CloseReason::Tls(error) => error.to_string(),
                CloseReason::SendQueueFull => "the server stopped reading".to_owned(),
                _ => "the server reset the connection".to_owned(),
            };
            return self.fail(cx, failure, format!("{why} {when}"));
        }
        if let Some(unpublished) = self.unpublished.take() {
            return self.end_live_stream(cx, unpublished.since, unpublished.text);
        }
        if self.publisher.has_left() && self.has_played() {
            return self.finish(cx, Outcome::Completed);
        }
        let failure = match self.phase {
            Phase::Handshake => Failure::ClosedInHandshake,
            Phase::Connect => Failure::ClosedInConnect,
            Phase::Playing if self.has_played() => Failure::ClosedInMedia,
            Phase::Publishing => Failure::ClosedInPublishing,
            _ => Failure::ClosedInCommand,
        };
        let detail = format!("the server closed the connection {when}");
        if failure != Failure::ClosedInMedia {
            return self.fail(cx, failure, detail);
        }
        let outcome = Outcome::EndedByServer {
            at: cx.now,
            in_order: false,
            failure: failure.with(self.with_addresses(detail)),
        };
        self.finish(cx, outcome);
    }

    /// Describes the client's progress, for failure details.
    pub(super) fn describe_progress(&self, now: Time) -> String {
        let first = self.playing.as_ref().and_then(|own| own.first_arrival());
        match (first, &self.handshake, self.phase) {
            (Some(_), ..) | (_, None, Phase::Playing) => lifecycle::describe_progress(first, now),
            (_, Some(handshake), _) => {
                format!("before {} of the handshake", handshake.awaited_packet())
            }
            (_, _, Phase::Publishing) => "while the client published".to_owned(),
            (_, _, phase) => match phase.command() {
                Some(command) => format!("before the answer to {command}"),
                None => "before the handshake".to_owned(),
            },
        }
    }

    /// Checks for timeouts, if a check is due.
    pub(super) fn check_timeouts(&mut self, cx: &mut Context<'_>) {
        let looks = !matches!(self.phase, Phase::Publishing | Phase::Ended);
        if !looks || self.next_check_at.is_none_or(|check| cx.now < check) {
            return;
        }
        if self.phase != Phase::Playing {
            let within = self.config.request_timeout.to_string();
            return match self.no_answer_failure(&within) {
                Some((failure, detail)) => self.fail(cx, failure, detail),
                None => self.next_check_at = None,
            };
        }
        let last = self.playing.as_ref().and_then(|own| own.last_arrival());
        let Some(last) = last else {
            let within = self.config.no_media.to_string();
            let detail = self.describe_missing_media(&within);
            return self.fail(cx, Failure::NoMedia, detail);
        };
        if self.check_unpublished(cx, last) {
            return;
        }
        let until = last + self.config.silence.0;
        if cx.now < until {
            self.next_check_at = Some(until);
            return;
        }
        if self.publisher.has_left() {
            return self.finish(cx, Outcome::Completed);
        }
        let progress = self.describe_progress(last);
        let detail = format!("no frame for {}, {progress}", self.config.silence);
        self.fail(cx, Failure::MediaStopped, detail);
    }

    /// Returns the failure for a missing answer, or `None` if no answer is awaited.
    fn no_answer_failure(&self, within: &str) -> Option<(Failure, String)> {
        let failure = match self.phase {
            Phase::Handshake => Failure::TimeoutHandshake,
            Phase::Connect => Failure::TimeoutConnect,
            Phase::CreateStream => Failure::TimeoutCreateStream,
            Phase::Play => Failure::TimeoutPlay,
            Phase::Publish => Failure::TimeoutPublish,
            _ => return None,
        };
        let unreadable = match self.unreadable_commands {
            0 => String::new(),
            count => format!("; {count} commands could not be parsed"),
        };
        let what = match (&self.handshake, self.phase.command()) {
            (Some(handshake), _) => format!("{} of the handshake", handshake.awaited_packet()),
            (_, Some(command)) => format!("answer to {command}"),
            _ => return None,
        };
        Some((failure, format!("no {what} within {within}{unreadable}")))
    }

    fn describe_missing_media(&self, within: &str) -> String {
        let playing = self.playing.as_ref();
        let unknown = playing.map(|playing| playing.describe_unknown_media());
        let unknown = unknown.unwrap_or_default();
        format!("no frame within {within} after the answer to play{unknown}")
    }

    /// Handles the request to stop.
    pub(super) fn stop(&mut self, cx: &mut Context<'_>) {
        let last = self.playing.as_ref().and_then(|own| own.last_arrival());
        let unpublished = self.unpublished.take_if(|own| last <= Some(own.since));
        if let Some(unpublished) = unpublished {
            return self.end_live_stream(cx, unpublished.since, unpublished.text);
        }
        let failed = self
            .unanswered_failure(cx.now)
            .or_else(|| self.media_stopped_failure(cx.now))
            .or_else(|| self.no_picture_failure(cx.now));
        if let Some((failure, detail)) = failed {
            return self.fail(cx, failure, detail);
        }
        if !self.publisher.has_left() {
            self.report_silent_stream(cx, cx.now);
        }
        self.finish(cx, Outcome::Stopped);
    }

    /// Returns a failure if the client has waited for the server for too long.
    fn unanswered_failure(&self, now: Time) -> Option<(Failure, String)> {
        let waited = now.since(self.play_answered_at.unwrap_or(self.requested_at));
        let waits = !matches!(self.phase, Phase::Idle | Phase::Ended);
        let waits = waits && self.phase != Phase::Publishing;
        if self.has_played() || !waits || waited < FAILED_WAIT_MIN {
            return None;
        }
        let waited = lifecycle::describe_wait(waited);
        Some(match self.phase {
            Phase::Playing => (Failure::NoMedia, self.describe_missing_media(&waited)),
            _ => self.no_answer_failure(&waited).unwrap_or_else(|| {
                let detail = format!("no connection in {waited}");
                (ConnectFailure::TimedOut.into(), detail)
            }),
        })
    }

    /// Returns a failure if media has stopped for longer than the gaps before would explain.
    fn media_stopped_failure(&self, now: Time) -> Option<(Failure, String)> {
        if self.publisher.has_left() {
            return None;
        }
        let times = self.playing.as_ref()?.media_times?;
        let silent = times.stopped_for(now, self.config.silence.0)?;
        let detail = lifecycle::describe_silence("frame", silent);
        Some((Failure::MediaStopped, detail))
    }

    /// Ends the client with a failure. The addresses of the connection follow `detail`.
    pub(super) fn fail(&mut self, cx: &mut Context<'_>, failure: Failure, detail: impl Display) {
        let detail = self.with_addresses(detail);
        if failure == Failure::MediaStopped
            && let Some(playing) = &mut self.playing
        {
            playing.finish(Some(cx.now), cx.recorder);
        }
        self.finish(cx, Outcome::Failed(failure.with(detail)));
    }

    /// Judges how the viewer was served on its stream.
    pub(super) fn judge_viewer(&self, cx: &mut Context<'_>) {
        let playing = self.playing.as_deref();
        let viewing = Viewing {
            due: self.planned_start,
            first_media: playing.and_then(Playing::first_arrival),
            ended: cx.now,
            delivery: playing.map(Playing::delivery).unwrap_or_default(),
        };
        let service = self.config.served_well.judge(&viewing);
        cx.out.push_back(Output::Viewed(service));
    }

    /// Ends the client: notifies the server, closes the connection, and adds the remaining figures.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if self.phase == Phase::Ended {
            return;
        }
        self.end_publishing(cx);
        if std::mem::take(&mut self.open) {
            if self.message_stream != 0 && outcome == Outcome::Stopped {
                self.send_delete_stream(cx);
            }
            cx.out.push_back(Output::Close { channel: CHANNEL });
        }
        self.phase = Phase::Ended;
        self.next_check_at = None;
        if let Some(playing) = &mut self.playing {
            playing.finish(None, cx.recorder);
        }
        if self.publishing.is_none() {
            self.judge_viewer(cx);
        }
        let rows = self.rows();
        if !rows.is_empty() {
            cx.out.push_back(Output::Streams(rows));
        }
        self.playing = None;
        cx.out.push_back(Output::Ended(outcome));
    }

    pub(super) fn rows(&self) -> Vec<StreamRow> {
        let playing = self.playing.as_ref();
        playing.map_or_else(Vec::new, |playing| playing.rows(&self.url.to_string()))
    }

    /// Appends the addresses of the connection to a description.
    pub(super) fn with_addresses(&self, text: impl Display) -> String {
        let (host, port) = (&self.url.host, self.url.port);
        let ends = lifecycle::describe_addresses(self.addresses, host, port);
        format!("{text} ({ends})")
    }
}

//! End of a client.

use std::fmt::Display;

use measure::Time;

use super::player_sink::PlayerSink;
use super::{Client, Phase};
use crate::codec::packet::Control;
use crate::failure::Failure;
use kit::connect_failure::ConnectFailure;
use kit::lifecycle::{self, FAILED_WAIT_MIN, MediaTimes};
use kit::media::ts::metrics as ts;
use kit::viewer::Viewing;
use session::{Context, Note, Outcome, Output, Sinks, StreamRow};

impl Client {
    fn has_played(&self) -> bool {
        self.media_times.is_some()
    }

    /// Handles a shutdown by the server.
    pub(super) fn peer_shut_down(&mut self, cx: &mut Context<'_>, at: Time) {
        let failure = match self.phase {
            Phase::Publishing | Phase::Finishing => Failure::ShutdownInPublishing,
            _ if !self.has_played() => Failure::ShutdownBeforeMedia,
            _ if self.publisher.has_left() => return self.finish(cx, Outcome::Completed),
            _ => Failure::PeerShutdown,
        };
        let progress = self.describe_progress(at);
        let detail = format!("the server shut the connection down {progress}");
        if failure != Failure::PeerShutdown {
            return self.fail(cx, failure, detail);
        }
        let outcome = Outcome::EndedByServer {
            at,
            in_order: true,
            failure: failure.with(self.with_addresses(detail)),
        };
        self.finish(cx, outcome);
    }

    /// Handles the end of the flow: everything is acknowledged, dropped or too late, or the flow
    /// cannot send.
    pub(super) fn handle_flow_end(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Publishing {
            self.fail(cx, Failure::NotSent, "sending failed");
        }
        self.messages_settled(cx.now);
    }

    /// Describes the progress of the client.
    pub(super) fn describe_progress(&self, now: Time) -> String {
        let first = self.media_times.map(|times| times.first);
        match (first, self.phase) {
            (Some(_), _) | (_, Phase::Playing) => lifecycle::describe_progress(first, now),
            (_, Phase::Publishing | Phase::Finishing) => "while the client published".to_owned(),
            _ => "within the handshake".to_owned(),
        }
    }

    /// Checks whether awaited media has arrived, if the check is due.
    pub(super) fn check_timeouts(&mut self, cx: &mut Context<'_>) {
        if self.check.is_none_or(|check| cx.now < check) {
            return;
        }
        match self.phase {
            Phase::Playing => self.check_for_media(cx),
            Phase::Finishing => self.finish(cx, Outcome::Stopped),
            _ => self.check = None,
        }
    }

    fn check_for_media(&mut self, cx: &mut Context<'_>) {
        let Some(MediaTimes { last, .. }) = self.media_times else {
            let detail = describe_no_media(self.config.no_media);
            return self.fail(cx, Failure::NoMedia, detail);
        };
        let until = last + self.config.silence.0;
        if cx.now < until {
            self.check = Some(until);
            return;
        }
        if self.publisher.has_left() {
            return self.finish(cx, Outcome::Completed);
        }
        let progress = self.describe_progress(last);
        let detail = format!("no media for {}, {progress}", self.config.silence);
        self.fail(cx, Failure::MediaStopped, detail);
    }

    /// Shuts down gracefully before `until`.
    pub(super) fn stop(&mut self, cx: &mut Context<'_>, until: Time) {
        if let Some((failure, detail)) = self
            .failed_wait(cx.now)
            .or_else(|| self.stopped_media(cx.now))
        {
            return self.fail(cx, failure, detail);
        }
        if until > cx.now && self.finish_publishing(cx, until) {
            return;
        }
        if self.phase == Phase::Finishing && until > cx.now {
            return;
        }
        self.finish(cx, Outcome::Stopped);
    }

    /// Failure of a server that the client has waited for.
    fn failed_wait(&self, now: Time) -> Option<(Failure, String)> {
        let waited = now.since(self.waiting_since);
        if waited < FAILED_WAIT_MIN {
            return None;
        }
        let within = lifecycle::describe_wait(waited);
        match self.phase {
            Phase::Playing if !self.has_played() => {
                Some((Failure::NoMedia, describe_no_media(within)))
            }
            Phase::Handshake => Some((
                Failure::HandshakeTimeout,
                format!("handshake not completed in {within}"),
            )),
            Phase::Opening => Some((
                ConnectFailure::TimedOut.into(),
                format!("address not resolved in {within}"),
            )),
            _ => None,
        }
    }

    /// Failure if media has stopped for longer than its earlier gaps explain.
    fn stopped_media(&self, now: Time) -> Option<(Failure, String)> {
        if self.publisher.has_left() {
            return None;
        }
        let silent = self.media_times?.stopped_for(now, self.config.silence.0)?;
        let detail = lifecycle::describe_silence("media", silent);
        Some((Failure::MediaStopped, detail))
    }

    /// Ends the client with a failure. Its detail also shows the addresses.
    pub(super) fn fail(&mut self, cx: &mut Context<'_>, failure: Failure, detail: impl Display) {
        if matches!(failure, Failure::MediaStopped | Failure::PeerIdle)
            && let Some(receiver) = self.receiver(cx.sinks)
        {
            receiver.fell_silent(cx.now, cx.recorder);
        }
        let failure = failure.with(self.with_addresses(detail));
        self.finish(cx, Outcome::Failed(failure));
    }

    /// Ends the client, and reports its figures.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if self.phase == Phase::Ended {
            return;
        }
        let outcome = self.judge_media(cx, outcome);
        let is_connected = matches!(
            self.phase,
            Phase::Playing | Phase::Publishing | Phase::Finishing
        );
        if is_connected {
            let header = self.header(cx.now);
            cx.transmit(self.channel, None, |out| {
                Control::Shutdown.write(header, out)
            });
        }
        let waited = self.phase == Phase::Finishing;
        self.phase = Phase::Ended;
        self.check = None;
        self.end_publishing(cx, waited);
        let total_sent = self
            .publisher
            .final_counts()
            .filter(|_| matches!(outcome, Outcome::Completed | Outcome::EndedByServer { .. }));
        if let Some(receiver) = self.receiver(cx.sinks) {
            receiver.finish(cx.now, total_sent, cx.recorder);
        }
        if self.publishing.is_none() {
            let delivery = self.receiver(cx.sinks).map(|receiver| receiver.delivery());
            let viewing = Viewing {
                due: self.planned_start,
                first_media: self.media_times.map(|times| times.first),
                ended: cx.now,
                delivery: delivery.unwrap_or_default(),
            };
            let service = self.config.served_well.judge(&viewing);
            cx.out.push_back(Output::Viewed(service));
        }
        let rows = self.rows(cx.sinks);
        if !rows.is_empty() {
            cx.out.push_back(Output::Streams(rows));
        }
        if let Some(sink) = self.player.take() {
            cx.sinks.remove::<PlayerSink>(sink);
        }
        cx.out.push_back(Output::Ended(outcome));
    }

    /// Judges the picture and sound of a stream that has not failed: fails the client if there was
    /// no picture, and counts video or audio that was silent while the rest of the stream arrived.
    fn judge_media(&self, cx: &mut Context<'_>, outcome: Outcome) -> Outcome {
        let receiver = match outcome {
            Outcome::Failed(_) => None,
            _ => self.receiver(cx.sinks),
        };
        let Some(checker) = receiver.as_ref().and_then(|receiver| receiver.checker()) else {
            return outcome;
        };
        if let Some(time) = checker.without_picture() {
            let time = time.as_secs_f64();
            let detail = format!("no random-access point in {time:.3} s of video, so no picture");
            return Outcome::Failed(Failure::NoPicture.with(self.with_addresses(detail)));
        }
        // Video and audio may differ in length in a stream that has ended.
        let is_live = outcome == Outcome::Stopped;
        for silent in checker
            .silent_media()
            .filter(|silent| is_live || silent.never_arrived())
        {
            cx.recorder.add(ts::STREAMS_SILENT, 1);
            cx.out.push_back(Output::Note(Note {
                kind: "silent_stream",
                text: format!("{silent}: {}", self.url),
            }));
        }
        outcome
    }

    pub(super) fn rows(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        let receiver = self.receiver(sinks);
        let row = receiver.and_then(|receiver| receiver.row(self.url.to_string()));
        row.map(StreamRow::new).into_iter().collect()
    }

    fn with_addresses(&self, detail: impl Display) -> String {
        format!("{detail} ({})", self.describe_addresses())
    }

    /// Local and remote address, for details of failures.
    pub(super) fn describe_addresses(&self) -> String {
        let (host, port) = (&self.url.host, self.url.port);
        let addresses = lifecycle::describe_addresses(self.addresses, host, port);
        match self.foreign_source {
            Some(from) => format!("{addresses}; datagrams came from {from}, which do not count"),
            None => addresses,
        }
    }
}

fn describe_no_media(within: impl Display) -> String {
    format!("no media within {within} after the handshake")
}

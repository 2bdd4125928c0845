//! End of a client: failures, shutdown and results.

use std::time::Duration;

use measure::Time;

use super::{Client, Phase, note};
use crate::failure::Failure;
use crate::signalling::Signalling;
use crate::tracks::Tracks;
use kit::lifecycle::{self, FAILED_WAIT_MIN};
use kit::media::rtp::StreamSummary;
use kit::viewer::Delivery;
use session::{Context, Outcome, Output, Sinks, StreamRow};

/// Maximum time for the goodbye to the server.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of rows of ended streams. Their number is unbounded in a room where participants
/// come and go. Streams beyond the limit count only in the figures of the population.
const ROWS_MAX: usize = 2048;

/// Rows of streams that have ended, and what they delivered.
#[derive(Debug, Default)]
pub(super) struct EndedStreams {
    pub(super) rows: Vec<StreamSummary>,
    pub(super) delivery: Delivery,
}

impl EndedStreams {
    pub(super) fn add(&mut self, rows: Vec<StreamSummary>) {
        for row in rows {
            self.delivery.add(row.delivery());
            if self.rows.len() < ROWS_MAX {
                self.rows.push(row);
            }
        }
    }
}

impl Client {
    /// Handles the deadlines of the shutdown and of the checks for media.
    pub(super) fn check_deadlines(&mut self, cx: &mut Context<'_>) {
        match self.phase {
            Phase::Leaving if cx.now >= self.leave_deadline => self.finish(cx),
            Phase::Active => self.check_media(cx),
            _ => {}
        }
    }

    /// Shuts the client down before `until`.
    pub(super) fn stop(&mut self, cx: &mut Context<'_>, until: Time) {
        if self.phase == Phase::Leaving {
            if until <= cx.now {
                self.finish(cx);
            }
            return;
        }
        let failed = self
            .overdue_failure(cx)
            .or_else(|| self.silence_failure(cx));
        match failed {
            Some((failure, detail)) => self.fail(cx, failure, detail),
            None => self.begin_leaving(cx, Outcome::Stopped),
        }
        self.leave_deadline = self.leave_deadline.min(until);
        if until <= cx.now {
            self.finish(cx);
        }
    }

    /// Returns the failure of a client that has waited for at least [`FAILED_WAIT_MIN`] when it is
    /// stopped.
    fn overdue_failure(&self, cx: &mut Context<'_>) -> Option<(Failure, String)> {
        let now = cx.now;
        let long = |since: Time| now.since(since) >= FAILED_WAIT_MIN;
        let within = |since: Time| lifecycle::describe_wait(now.since(since));
        if let Some((since, what)) = self
            .signalling
            .kind
            .awaited()
            .filter(|(since, _)| long(*since))
        {
            let detail = format!("waited {what} for {}", within(since));
            return Some((Failure::RequestTimeout, detail));
        }
        let mut links = self.links.iter();
        let failed = links.find_map(|link| link.overdue_failure(now));
        if failed.is_some() {
            return failed;
        }
        let expected = self.signalling.media_expected_since?;
        if self.links.media_times(cx.sinks).is_some() {
            return None;
        }
        let receive = self.links.iter().filter(|link| link.sink.is_some());
        let connected = receive
            .filter_map(|link| link.connected_at)
            .min()?
            .max(expected);
        long(connected).then(|| (Failure::NoMedia, self.no_media_detail(&within(connected))))
    }

    /// Handles a failure of the signalling. A client that is leaving has then left.
    pub(super) fn signalling_failed(
        &mut self,
        cx: &mut Context<'_>,
        failure: Failure,
        detail: String,
    ) {
        match self.phase {
            Phase::Leaving => self.goodbye_unanswered(cx, &detail),
            _ => self.fail(cx, failure, detail),
        }
        // The signalling is closed, so it sends no goodbye.
        self.signalling_has_ended(cx);
    }

    pub(super) fn fail(&mut self, cx: &mut Context<'_>, failure: Failure, detail: String) {
        if failure == Failure::MediaStopped {
            self.checks.loss_counted_until = Some(cx.now);
        }
        let outcome = match failure.is_orderly_end() && self.links.media_times(cx.sinks).is_some() {
            true if self.publisher.has_left() => Outcome::Completed,
            true => Outcome::EndedByServer {
                at: cx.now,
                // Servers also hang up after a failure of ICE. A published stream is never ended by
                // the server in good order.
                in_order: failure != Failure::HungUp && self.setup.source.is_none(),
                failure: failure.with(detail),
            },
            false => Outcome::Failed(failure.with(detail)),
        };
        self.begin_leaving(cx, outcome);
    }

    /// Stops receiving and sending, and starts the shutdown.
    pub(super) fn begin_leaving(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if self.is_leaving() {
            return;
        }
        let outcome = match outcome {
            Outcome::Failed(_) => outcome,
            other => self.unknown_media_failure(cx.sinks).unwrap_or(other),
        };
        if !matches!(outcome, Outcome::Failed(_)) {
            self.note_silent_streams(cx);
        }
        self.phase = Phase::Leaving;
        self.outcome = Some(outcome);
        self.checks.next_at = None;
        self.leave_deadline = cx.now + LEAVE_TIMEOUT;
        self.announce_published(cx, false);
        self.end_feeding(cx);
        while let Some(link) = self.links.first() {
            self.close_link(cx, link.channel);
        }
        self.signalling.call(cx, Signalling::leave);
    }

    /// Adds a note that the server may keep the session, because it did not answer the goodbye.
    pub(super) fn goodbye_unanswered(&self, cx: &mut Context<'_>, why: &str) {
        let url = &self.setup.url;
        let text = format!("{why}: the server may keep the session ({url})");
        note(cx, "goodbye_unanswered", text);
    }

    /// Handles the end of the signalling.
    pub(super) fn signalling_has_ended(&mut self, cx: &mut Context<'_>) {
        self.signalling.has_ended = true;
        self.finish_if_left(cx);
    }

    /// Ends the client if the signalling has ended and all relayed addresses are released.
    pub(super) fn finish_if_left(&mut self, cx: &mut Context<'_>) {
        if self.signalling.has_ended && self.releasing_relays.is_empty() {
            self.finish(cx);
        }
    }

    /// Ends the client, even if a goodbye is still unanswered.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        if !self.signalling.has_ended
            && let Some((since, what)) = self.signalling.kind.awaited()
        {
            let waited = cx.now.since(since).as_secs_f64();
            self.goodbye_unanswered(cx, &format!("waited {what} for {waited:.3} s"));
        }
        self.signalling.disconnect(cx);
        self.releasing_relays.close(cx);
        self.phase = Phase::Ended;
        if self.setup.is_viewer() {
            let delivery = self.ended_streams.delivery;
            let viewing = self.startup.viewing(cx.now, delivery);
            let service = self.setup.config.served_well.judge(&viewing);
            cx.out.push_back(Output::Viewed(service));
        }
        let rows = std::mem::take(&mut self.ended_streams.rows).into_iter();
        let rows: Vec<StreamRow> = rows.map(StreamRow::new).collect();
        if !rows.is_empty() {
            cx.out.push_back(Output::Streams(rows));
        }
        let outcome = self.outcome.take().unwrap_or(Outcome::Stopped);
        cx.out.push_back(Output::Ended(outcome));
    }

    pub(super) fn all_rows(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        let mut rows = self.ended_streams.rows.clone();
        let url = self.setup.url.to_string();
        for sink in self.links.iter().filter_map(|link| link.sink) {
            rows.extend(sinks.get::<Tracks>(sink).rows(&url));
        }
        rows.into_iter().map(StreamRow::new).collect()
    }
}

#[cfg(test)]
mod tests;

//! End of a client: checks for received media, failures, and shutdown.

use std::time::Duration;

use measure::Time;

use super::{Client, Phase};
use crate::failure::Failure;
use crate::tracks::Tracks;
use kit::lifecycle::{self, FAILED_WAIT_MIN, MediaTimes};
use kit::media::silence;
use kit::viewer::Viewing;
use session::{Context, Note, Outcome, Output, Sinks, StreamRow};

/// Maximum time for the goodbye to the server.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

impl Client {
    /// Arrival times of all media. Of the longest gaps of all streams, the shortest counts.
    fn media_times(&self, sinks: &mut Sinks) -> Option<MediaTimes> {
        let mut times: Option<MediaTimes> = None;
        for link in &self.links {
            let Some(tracks) = link.sink.map(|sink| sinks.get::<Tracks>(sink)) else {
                continue;
            };
            let Some((first, last)) = tracks.first_arrival().zip(tracks.last_arrival()) else {
                continue;
            };
            let longest_gap = tracks.longest_gap();
            times = Some(match times {
                None => MediaTimes {
                    first,
                    last,
                    longest_gap,
                },
                Some(own) => MediaTimes {
                    first: own.first.min(first),
                    last: own.last.max(last),
                    longest_gap: own.longest_gap.min(longest_gap),
                },
            });
        }
        times
    }

    /// Describes how long media had been received at `now`.
    fn media_progress(&self, times: Option<MediaTimes>, now: Time) -> String {
        lifecycle::describe_progress(times.map(|own| own.first), now)
    }

    /// Handles the deadlines of the shutdown and of the checks for media.
    pub(super) fn check_deadlines(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Leaving && cx.now >= self.leave_deadline {
            return self.finish(cx);
        }
        if self.phase == Phase::Active && self.leave_after_bye_at.is_some_and(|at| cx.now >= at) {
            self.leave_after_bye_at = None;
            if self.all_sources_left(cx.sinks) {
                let when = self.media_progress(self.media_times(cx.sinks), cx.now);
                let detail = format!(
                    "the server ended all streams (BYE) {when} ({})",
                    self.setup.url
                );
                return self.fail(cx, Failure::EndedByServer, detail);
            }
        }
        if self.media_check_at.is_none_or(|check| cx.now < check) {
            return;
        }
        self.media_check_at = None;
        if self.phase == Phase::Active {
            self.check_media(cx);
        }
    }

    /// True if every source of received media has sent BYE.
    fn all_sources_left(&self, sinks: &mut Sinks) -> bool {
        let mut receive = self.links.iter().filter_map(|link| link.sink);
        receive.all(|sink| sinks.get::<Tracks>(sink).all_sources_left())
    }

    fn check_media(&mut self, cx: &mut Context<'_>) {
        // A publisher that came later has as much time as the first one.
        let earliest = self
            .media_expected_since
            .map(|since| since + self.setup.config.no_media.0);
        let Some(earliest) = earliest.filter(|earliest| *earliest <= cx.now) else {
            self.media_check_at = Some(earliest.unwrap_or(cx.now + self.setup.config.silence.0));
            return;
        };
        let Some(times) = self.media_times(cx.sinks) else {
            let within = self.setup.config.no_media.to_string();
            let detail = self.no_media_detail(&within);
            return self.fail(cx, Failure::NoMedia, detail);
        };
        let until = (times.last + self.setup.config.silence.0).max(earliest);
        if cx.now < until {
            self.media_check_at = Some(until);
            return;
        }
        if self.publisher.has_left() {
            return self.begin_leaving(cx, Outcome::Completed);
        }
        let when = self.media_progress(Some(times), times.last);
        let detail = format!(
            "no media for {}, {when} ({})",
            self.setup.config.silence, self.setup.url
        );
        self.fail(cx, Failure::MediaStopped, detail);
    }

    fn no_media_detail(&self, within: &str) -> String {
        let what = format!("no media within {within} after the handshake");
        match self.links.iter().position(|link| link.sink.is_some()) {
            None => format!("{what} ({})", self.setup.url),
            Some(at) => self.describe_link(at, &what),
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
        if let Some((since, what)) = self.signalling.awaited().filter(|(since, _)| long(*since)) {
            let detail = format!("waited {what} for {}", within(since));
            return Some((Failure::RequestTimeout, detail));
        }
        for (at, link) in self.links.iter().enumerate() {
            if let Some(since) = link.relay_awaited_since().filter(|since| long(*since)) {
                let what = format!("no relayed address in {}", within(since));
                return Some((Failure::TurnTimeout, self.describe_link(at, &what)));
            }
            if let Some(since) = link.channel_awaited_since() {
                if long(since) {
                    let what = format!("no TURN channel in {}", within(since));
                    return Some((Failure::TurnTimeout, self.describe_link(at, &what)));
                }
                continue;
            }
            let (since, failure, what) =
                match (link.negotiated_at, link.ice_connected_at, link.connected_at) {
                    (Some(since), None, _) => {
                        (since, Failure::IceTimeout, "no working candidate pair")
                    }
                    (_, Some(since), None) => (since, Failure::DtlsTimeout, "DTLS not connected"),
                    _ => continue,
                };
            let why = link.no_remote_reason();
            if let Some(why) = why.filter(|_| long(since) && failure == Failure::IceTimeout) {
                let detail = self.describe_link(at, &format!("{why}, in {}", within(since)));
                return Some((Failure::NoCandidates, detail));
            }
            if long(since) {
                let detail = self.describe_link(at, &format!("{what} in {}", within(since)));
                return Some((failure, detail));
            }
        }
        let expected = self.media_expected_since?;
        if self.media_times(cx.sinks).is_some() {
            return None;
        }
        let receive = self.links.iter().filter(|link| link.sink.is_some());
        let connected = receive
            .filter_map(|link| link.connected_at)
            .min()?
            .max(expected);
        long(connected).then(|| (Failure::NoMedia, self.no_media_detail(&within(connected))))
    }

    /// Returns the failure of a client whose media has stopped, if the silence is too long to be a
    /// gap like those before it.
    fn silence_failure(&self, cx: &mut Context<'_>) -> Option<(Failure, String)> {
        let expected = self
            .media_expected_since
            .filter(|_| !self.publisher.has_left())?;
        let times = self.media_times(cx.sinks)?;
        let (received_for, silent) = (
            times.last.since(times.first),
            cx.now.since(times.last.max(expected)),
        );
        let bound = silence::bound(received_for, times.longest_gap, self.setup.config.silence.0);
        (silent >= bound).then(|| {
            let detail = lifecycle::describe_stopped("media", silent, &self.setup.url.to_string());
            (Failure::MediaStopped, detail)
        })
    }

    /// Returns a failure if a large part of the packets of a PeerConnection had to be discarded as
    /// unknown media.
    fn unknown_media_failure(&self, sinks: &mut Sinks) -> Option<Outcome> {
        self.links.iter().enumerate().find_map(|(at, link)| {
            let what = sinks.get::<Tracks>(link.sink?).describe_unknown_media()?;
            let detail = self.describe_link(at, &what);
            Some(Outcome::Failed(Failure::UnknownMedia.with(detail)))
        })
    }

    /// Handles a failure of the signalling. A client that is leaving has then left.
    pub(super) fn signalling_failed(
        &mut self,
        cx: &mut Context<'_>,
        failure: Failure,
        detail: String,
    ) {
        match self.phase {
            Phase::Leaving => {
                self.goodbye_unanswered(cx, &detail);
                self.signalling_has_ended(cx);
            }
            _ => {
                self.fail(cx, failure, detail);
                // The signalling is closed, so it sends no goodbye.
                self.signalling_has_ended(cx);
            }
        }
    }

    pub(super) fn fail(&mut self, cx: &mut Context<'_>, failure: Failure, detail: String) {
        if failure == Failure::MediaStopped {
            self.loss_counted_until = Some(cx.now);
        }
        let outcome = match failure.is_orderly_end() && self.media_times(cx.sinks).is_some() {
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
        self.media_check_at = None;
        self.leave_deadline = cx.now + LEAVE_TIMEOUT;
        self.announce_published(cx, false);
        self.end_feeding(cx);
        while !self.links.is_empty() {
            self.close_link(cx, 0);
        }
        self.call_signalling(cx, |signalling, scope| signalling.leave(scope));
    }

    /// Adds a note that the server may keep the session, because it did not answer the goodbye.
    pub(super) fn goodbye_unanswered(&self, cx: &mut Context<'_>, why: &str) {
        cx.out.push_back(Output::Note(Note {
            kind: "goodbye_unanswered",
            text: format!(
                "{why}: the server may keep the session ({})",
                self.setup.url
            ),
        }));
    }

    /// Handles the end of the signalling.
    pub(super) fn signalling_has_ended(&mut self, cx: &mut Context<'_>) {
        self.signalling_ended = true;
        if self.releasing_relays.is_empty() {
            self.finish(cx);
        }
    }

    /// Ends the client, even if a goodbye is still unanswered.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        if !self.signalling_ended
            && let Some((since, what)) = self.signalling.awaited()
        {
            let waited = cx.now.since(since).as_secs_f64();
            self.goodbye_unanswered(cx, &format!("waited {what} for {waited:.3} s"));
        }
        for channel in [self.channel.take(), self.second_signalling_channel.take()] {
            cx.out
                .extend(channel.map(|channel| Output::Close { channel }));
        }
        let releasing = std::mem::take(&mut self.releasing_relays).into_iter();
        cx.out.extend(releasing.map(|own| Output::Close {
            channel: own.channel(),
        }));
        self.phase = Phase::Ended;
        if self.setup.is_viewer() {
            let service = self.setup.config.served_well.judge(&self.viewing(cx.now));
            cx.out.push_back(Output::Viewed(service));
        }
        let rows = std::mem::take(&mut self.rows).into_iter();
        let rows: Vec<StreamRow> = rows.map(StreamRow::new).collect();
        if !rows.is_empty() {
            cx.out.push_back(Output::Streams(rows));
        }
        let outcome = self.outcome.take().unwrap_or(Outcome::Stopped);
        cx.out.push_back(Output::Ended(outcome));
    }

    /// State of the viewer at its end. Its start cannot be late if no one published when it
    /// entered the room.
    fn viewing(&self, now: Time) -> Viewing {
        let due = self.planned_start;
        let (first_media, ended) = match self.expects_media_at_start {
            true => (self.first_media, now),
            false => (self.first_media.map(|_| due), due),
        };
        Viewing {
            due,
            first_media,
            ended,
            delivery: self.delivery,
        }
    }

    pub(super) fn all_rows(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        let mut rows = self.rows.clone();
        let url = self.setup.url.to_string();
        for link in &self.links {
            if let Some(sink) = link.sink {
                rows.extend(sinks.get::<Tracks>(sink).rows(&url));
            }
        }
        rows.into_iter().map(StreamRow::new).collect()
    }
}

#[cfg(test)]
mod tests;

//! Ends of a player: why it fails, and what is said of it then.

use measure::Time;

use super::{Client, Phase};
use crate::connection::Refusal;
use crate::failure::Failure;
use kit::lifecycle::{self, FAILED_WAIT_MIN};
use kit::viewer::{Delivery, Viewing};
use session::{Context, Outcome, Output};

impl Client {
    /// Time at which the client fails because no segment was complete.
    pub(super) fn silence_at(&self) -> Time {
        match self.last_segment {
            None => self.started + self.config.no_media.0,
            Some(last) => {
                // As long as the buffer lasts, nothing is missing.
                let dry = self.playback.dry_at().unwrap_or(last);
                dry.max(last) + self.config.silence.0
            }
        }
    }

    pub(super) fn check_progress(&mut self, cx: &mut Context<'_>) {
        let is_over = self.tracks.iter().all(|track| track.is_over);
        if is_over {
            let has_ended = self.playback.dry_at().is_none_or(|end| end <= cx.now);
            if has_ended {
                self.end_of_media(cx);
            }
            return;
        }
        if self.silence_at() > cx.now {
            return;
        }
        let refusal = match self.last_segment {
            None => self.no_media(&self.config.no_media.to_string()),
            Some(_) => {
                let text = format!("no segment was complete for {}", self.config.silence);
                self.tracks[0].media.refusal(Failure::MediaStopped, &text)
            }
        };
        self.fail(cx, refusal);
    }

    fn no_media(&self, within: &str) -> Refusal {
        let text = format!("no segment was complete within {within}");
        self.tracks[0].media.refusal(Failure::NoMedia, &text)
    }

    fn end_of_media(&mut self, cx: &mut Context<'_>) {
        if !self.playback.has_begun() {
            let text = "the playlist has ended, and held nothing to play";
            let refusal = self.tracks[0].media.refusal(Failure::NoMedia, text);
            return self.fail(cx, refusal);
        }
        if !self.is_live {
            return self.finish(cx, Outcome::Completed);
        }
        let progress = lifecycle::describe_progress(self.first_media, cx.now);
        let detail = format!("the playlist has ended, {progress}: {}", self.tracks[0].url);
        let outcome = Outcome::EndedByServer {
            at: cx.now,
            in_order: true,
            failure: Failure::EndedByServer.with(detail),
        };
        self.finish(cx, outcome);
    }

    pub(super) fn fail(&mut self, cx: &mut Context<'_>, refusal: Refusal) {
        let failure = refusal.failure.with(refusal.detail);
        self.finish(cx, Outcome::Failed(failure));
    }

    pub(super) fn stop(&mut self, cx: &mut Context<'_>) {
        let waited = cx.now.since(self.started);
        if self.phase == Phase::Active && self.segments == 0 && waited >= FAILED_WAIT_MIN {
            let refusal = self.no_media(&lifecycle::describe_wait(waited));
            return self.fail(cx, refusal);
        }
        // A server adds a segment every target duration: after two it has stopped.
        let patience = 2 * self.tracks[0].target;
        let stood = self
            .playback
            .stands_since(cx.now)
            .map(|since| cx.now.since(since));
        if let Some(stood) = stood.filter(|stood| *stood >= patience.max(FAILED_WAIT_MIN)) {
            let text = lifecycle::describe_stopped("segment", stood, "after the end of the buffer");
            let refusal = self.tracks[0].media.refusal(Failure::MediaStopped, &text);
            return self.fail(cx, refusal);
        }
        self.finish(cx, Outcome::Stopped);
    }

    pub(super) fn finish(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        for track in &mut self.tracks {
            track.playlists.close(cx);
            track.media.close(cx);
        }
        for track in 0..self.tracks.len() {
            // The player needed the segment, and was to request it again.
            if self.tracks[track].attempts.forget().is_some() {
                self.count_failed_segment(cx);
            }
        }
        self.count_shown(cx);
        let is_over = matches!(outcome, Outcome::Completed | Outcome::EndedByServer { .. });
        if let Some(stalled) = self.playback.finish(cx.now, is_over) {
            self.count_stall(cx, stalled);
        }
        let service = self.config.served_well.judge(&Viewing {
            due: self.planned_start,
            first_media: self.playback_began,
            ended: cx.now,
            delivery: Delivery {
                stalled: self.playback.stalled(),
                expected: self.segments_due,
                missing: self.segments_due - self.segments,
            },
        });
        cx.out.push_back(Output::Viewed(service));
        cx.out.push_back(Output::Ended(outcome));
    }
}

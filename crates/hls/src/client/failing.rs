//! Requests that fail, and what a player does then.

use super::Client;
use super::track::{Lane, Wanted, count_wasted};
use crate::connection::Refusal;
use crate::metrics as m;
use measure::Time;
use session::{Context, Note, Output};

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failed<'a> {
    pub(super) track: usize,
    pub(super) lane: Lane,
    /// Time of the request.
    pub(super) asked_at: Option<Time>,
    pub(super) refusal: &'a Refusal,
}

impl Client {
    /// Handles a request that failed. Playback goes on unless it is hopeless.
    pub(super) fn refuse(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        lane: Lane,
        refusal: Refusal,
    ) {
        if self.handle_refusal(cx, track, lane, refusal) {
            self.advance(cx, track);
        }
    }

    /// Handles a request that failed. Returns `true` if the track can go on with another request.
    pub(super) fn handle_refusal(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        lane: Lane,
        refusal: Refusal,
    ) -> bool {
        let own = &mut self.tracks[track];
        let request = own.lane_mut(lane).give_up(cx);
        let asked_at = request.map(|request| request.since);
        if let (Lane::Media, Some(Wanted::Hint(_))) = (lane, &own.wanted) {
            // The part or section is requested once the playlist lists it.
            let (kind, text) = ("hint_failed", refusal.detail);
            cx.out.push_back(Output::Note(Note { kind, text }));
            let bytes = own.body_bytes;
            if !own.waste_open_range(cx) {
                count_wasted(cx, bytes);
            }
            own.skip(&self.config);
            return true;
        }
        if lane == Lane::Playlists && own.names_reported {
            let (kind, text) = ("playlist_failed", refusal.detail);
            cx.out.push_back(Output::Note(Note { kind, text }));
            self.request_playlist(cx, track);
            return false;
        }
        let failed = Failed {
            track,
            lane,
            asked_at,
            refusal: &refusal,
        };
        if self.change_early(cx, &failed) {
            let (kind, text) = ("request_failed", refusal.detail);
            cx.out.push_back(Output::Note(Note { kind, text }));
            return false;
        }
        let own = &mut self.tracks[track];
        let has_played = self.last_segment.is_some();
        if lane == Lane::Media && has_played && own.plan_retry(cx.now, asked_at, &refusal) {
            let (kind, text) = ("request_failed", refusal.detail);
            cx.out.push_back(Output::Note(Note { kind, text }));
            return false;
        }
        let mut is_gone = lane == Lane::Playlists && own.count_failure(lane, &self.config);
        // A playlist is requested again, unless another attempt can bring nothing else.
        let may_pass = lane == Lane::Playlists
            && (own.awaited.is_some() || refusal.failure.retries().is_some());
        let is_first = !has_played && (lane == Lane::Media || own.playlist.is_none());
        let is_hopeless = is_gone || is_first || !may_pass;
        if self.leave_stream(cx, &failed, is_hopeless) {
            let (kind, text) = ("variant_failed", refusal.detail);
            cx.out.push_back(Output::Note(Note { kind, text }));
            return false;
        }
        let own = &mut self.tracks[track];
        if lane == Lane::Media {
            is_gone = own.count_failure(lane, &self.config);
            if has_played {
                own.attempts.forget();
                self.count_failed_segment(cx);
            }
        }
        if is_gone || is_first {
            self.fail(cx, refusal);
            return false;
        }
        let own = &mut self.tracks[track];
        let text = refusal.detail;
        match lane {
            Lane::Playlists => {
                own.reload_at = Some(cx.now + own.retry_after());
                own.asks_plainly = own.awaited.is_some();
                let kind = "playlist_failed";
                cx.out.push_back(Output::Note(Note { kind, text }));
                false
            }
            Lane::Media => {
                let kind = "segment_failed";
                cx.out.push_back(Output::Note(Note { kind, text }));
                if let Some(bytes) = own.skip(&self.config) {
                    count_wasted(cx, bytes);
                }
                true
            }
        }
    }

    /// Gives up a segment that left the playlist before another attempt.
    pub(super) fn give_up_segment(&mut self, cx: &mut Context<'_>, track: usize, refusal: Refusal) {
        self.count_failed_segment(cx);
        if self.tracks[track].count_failure(Lane::Media, &self.config) {
            return self.fail(cx, refusal);
        }
        let (kind, text) = ("segment_failed", refusal.detail);
        cx.out.push_back(Output::Note(Note { kind, text }));
    }

    /// Counts a segment that was needed, and was not received.
    pub(super) fn count_failed_segment(&mut self, cx: &mut Context<'_>) {
        cx.recorder.add(m::SEGMENTS_FAILED, 1);
        self.count_due(cx, 1);
    }
}

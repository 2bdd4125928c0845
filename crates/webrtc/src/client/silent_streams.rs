//! Detection of streams that never started, or stopped, while others played on.

use std::time::Duration;

use super::{Client, Phase, note};
use crate::tracks::{MediaStatus, Section, Tracks};
use kit::media::rtp::metrics::STREAMS_SILENT;
use kit::media::silence;
use session::Context;

impl Client {
    /// Counts silent streams at the end of a client that has not failed, and adds a note about
    /// each.
    ///
    /// A stream that never started counts only if its publisher belongs to the same run and is
    /// known to send it: servers also negotiate audio for publishers that have none.
    pub(super) fn note_silent_streams(&self, cx: &mut Context<'_>) {
        if self.phase != Phase::Active {
            return;
        }
        let (silence, url) = (self.setup.config.silence.0, &self.setup.url);
        // No media was expected after that.
        let until = self.publisher.left_at().unwrap_or(cx.now);
        let mut statuses = Vec::new();
        let muted_until = |track: &str| self.signalling.kind.muted_until(track);
        for link in self.links.iter() {
            if let (Some(sink), Some(connected_at)) = (link.sink, link.connected_at) {
                let tracks = cx.sinks.get::<Tracks>(sink);
                let all = tracks.section_statuses(until, connected_at, silence, muted_until);
                let own = |(section, status): (&Section, _)| {
                    (section.track.clone(), section.kind, status)
                };
                statuses.extend(all.into_iter().map(own));
            }
        }
        if statuses
            .iter()
            .all(|(.., status)| *status != MediaStatus::Flowing)
        {
            return;
        }
        for (missing, why) in self.signalling.kind.missing_tracks() {
            let is_it = |track: &Option<String>| track.as_deref() == Some(missing);
            let mut own = statuses.iter().filter(|(track, ..)| is_it(track));
            if own.any(|(.., status)| matches!(status, MediaStatus::Flowing | MediaStatus::Muted)) {
                continue;
            }
            // A track is reported once.
            statuses.retain(|(track, ..)| !is_it(track));
            let text = format!("the server cannot deliver track {missing}: {why} ({url})");
            note_silent(cx, text);
        }
        let wait_min = silence::bound(Duration::ZERO, Duration::ZERO, silence);
        for (_, kind, status) in statuses {
            let what = match status {
                MediaStatus::Stopped(silent) => {
                    format!("no packet for {:.3} s", silent.as_secs_f64())
                }
                MediaStatus::NeverArrived(waited)
                    if waited >= wait_min && self.publisher.sends(kind) =>
                {
                    "no packet".to_owned()
                }
                _ => continue,
            };
            let kind = kind.name();
            let text = format!("{what} of {kind} ({url}), while other streams played");
            note_silent(cx, text);
        }
    }
}

fn note_silent(cx: &mut Context<'_>, text: String) {
    note(cx, "silent_stream", text);
    cx.recorder.add(STREAMS_SILENT, 1);
}

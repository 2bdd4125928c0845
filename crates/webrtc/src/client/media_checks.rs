//! Checks for received media.

use measure::Time;

use super::Client;
use super::links::Links;
use crate::failure::Failure;
use crate::tracks::Tracks;
use kit::lifecycle::{self, MediaTimes};
use kit::media::silence;
use kit::zapping::Viewer;
use session::{Context, Outcome, Sinks};

/// State of the checks for received media.
#[derive(Debug, Default)]
pub(super) struct MediaChecks {
    /// Time of the next check.
    pub(super) next_at: Option<Time>,
    /// Time at which the client leaves because the server ended all streams (BYE).
    pub(super) leave_at: Option<Time>,
    /// Set if media stopped: packets missing up to this time count as lost.
    pub(super) loss_counted_until: Option<Time>,
}

impl Links {
    /// Arrival times of all media. Of the longest gaps of all streams, the shortest counts.
    pub(super) fn media_times(&self, sinks: &mut Sinks) -> Option<MediaTimes> {
        let times = self.iter().filter_map(|link| {
            let tracks = sinks.get::<Tracks>(link.sink?);
            Some(MediaTimes {
                first: tracks.first_arrival()?,
                last: tracks.last_arrival()?,
                longest_gap: tracks.longest_gap(),
            })
        });
        times.reduce(|all, own| MediaTimes {
            first: all.first.min(own.first),
            last: all.last.max(own.last),
            longest_gap: all.longest_gap.min(own.longest_gap),
        })
    }

    /// True if every source of received media has sent BYE.
    fn all_sources_left(&self, sinks: &mut Sinks) -> bool {
        let mut receive = self.iter().filter_map(|link| link.sink);
        receive.all(|sink| sinks.get::<Tracks>(sink).all_sources_left())
    }
}

impl Client {
    /// Handles the deadlines of the checks.
    pub(super) fn check_media(&mut self, cx: &mut Context<'_>) {
        if self.checks.leave_at.is_some_and(|at| cx.now >= at) {
            self.checks.leave_at = None;
            if self.links.all_sources_left(cx.sinks) {
                let first = self.links.media_times(cx.sinks).map(|own| own.first);
                let when = lifecycle::describe_progress(first, cx.now);
                let url = &self.setup.url;
                let detail = format!("the server ended all streams (BYE) {when} ({url})");
                return self.fail(cx, Failure::EndedByServer, detail);
            }
        }
        if self.checks.next_at.is_none_or(|check| cx.now < check) {
            return;
        }
        self.checks.next_at = None;
        // A publisher that came later has as much time as the first one.
        let since = self.signalling.media_expected_since;
        let earliest = since.map(|since| since + self.setup.config.no_media.0);
        let Some(earliest) = earliest.filter(|earliest| *earliest <= cx.now) else {
            self.checks.next_at = Some(earliest.unwrap_or(cx.now + self.setup.config.silence.0));
            return;
        };
        let Some(times) = self.links.media_times(cx.sinks) else {
            let detail = self.no_media_detail(&self.setup.config.no_media.to_string());
            return self.fail(cx, Failure::NoMedia, detail);
        };
        let until = (times.last + self.setup.config.silence.0).max(earliest);
        if cx.now < until {
            self.checks.next_at = Some(until);
            return;
        }
        if self.publisher.has_left() {
            return self.begin_leaving(cx, Outcome::Completed);
        }
        let when = lifecycle::describe_progress(Some(times.first), times.last);
        let detail = format!(
            "no media for {}, {when} ({})",
            self.setup.config.silence, self.setup.url
        );
        self.fail(cx, Failure::MediaStopped, detail);
    }

    pub(super) fn no_media_detail(&self, within: &str) -> String {
        let what = format!("no media within {within} after the handshake");
        match self.links.iter().find(|link| link.sink.is_some()) {
            None => format!("{what} ({})", self.setup.url),
            Some(link) => link.describe(&what),
        }
    }

    /// Returns the failure of a client whose media has stopped, if the silence is too long to be a
    /// gap like those before it.
    pub(super) fn silence_failure(&self, cx: &mut Context<'_>) -> Option<(Failure, String)> {
        let expected = self
            .signalling
            .media_expected_since
            .filter(|_| !self.publisher.has_left())?;
        let times = self.links.media_times(cx.sinks)?;
        let received_for = times.last.since(times.first);
        let silent = cx.now.since(times.last.max(expected));
        let bound = silence::bound(received_for, times.longest_gap, self.setup.config.silence.0);
        (silent >= bound).then(|| {
            let detail = lifecycle::describe_stopped("media", silent, &self.setup.url.to_string());
            (Failure::MediaStopped, detail)
        })
    }

    /// Returns a failure if a large part of the packets of a PeerConnection had to be discarded as
    /// unknown media.
    pub(super) fn unknown_media_failure(&self, sinks: &mut Sinks) -> Option<Outcome> {
        self.links.iter().find_map(|link| {
            let what = sinks.get::<Tracks>(link.sink?).describe_unknown_media()?;
            let detail = link.describe(&what);
            Some(Outcome::Failed(Failure::UnknownMedia.with(detail)))
        })
    }
}

impl Viewer for Client {
    fn first_picture(&self, sinks: &mut Sinks) -> Option<Time> {
        let links = self.links.iter().filter_map(|link| link.sink);
        let pictures = links.filter_map(|sink| sinks.get::<Tracks>(sink).first_picture());
        pictures.min()
    }
}

//! Channel changes.
//!
//! Like a set-top box, the client closes the connection and requests the next channel on a new one.
//! A failure of the first channel, or after a picture, fails the client, as without channel
//! changes.

use std::sync::Arc;

use measure::{CounterId, Time};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{Client, Phase};
use crate::failure::Failure;
use kit::http1::Url;
use kit::media::rtp::StreamSummary;
use kit::media::ts::checker::PreviousChannel;
use kit::metrics as m;
use kit::zapping::{Channels, Zap, counter_of_connect_failure};
use session::{Context, Note, Outcome, Output};

/// Channel changes of a client.
#[derive(Debug)]
pub(super) struct Zapping {
    zap: Zap,
    channels: Arc<Channels<Url>>,
    random: Pcg64Mcg,
    /// Index of the current channel.
    index: usize,
    /// Number of changes so far.
    changes: u32,
    /// Time when the next change is due.
    pub(super) next_due: Time,
    /// Time when the last change was due; `None` before the first.
    pub(super) last_due: Option<Time>,
    previous: PreviousChannel,
    /// Summary of all previous channels.
    pub(super) earlier_summary: Option<Box<StreamSummary>>,
}

impl Zapping {
    pub(super) fn new(zap: Zap, channels: Arc<Channels<Url>>, url: &Url, seed: u64) -> Zapping {
        let index = channels.urls.iter().position(|other| other == url);
        Zapping {
            zap,
            random: Pcg64Mcg::seed_from_u64(seed),
            index: index.unwrap_or(0),
            channels,
            changes: 0,
            next_due: Time::NEVER,
            last_due: None,
            previous: PreviousChannel { group: None },
            earlier_summary: None,
        }
    }

    /// Starts the schedule.
    pub(super) fn begin(&mut self, due: Time) {
        self.next_due = due + self.zap.every.draw(&mut self.random);
    }

    /// Returns the previous channel, or `None` on the first.
    pub(super) fn previous(&self) -> Option<PreviousChannel> {
        self.last_due.map(|_| self.previous)
    }
}

impl Client {
    /// Time when the last change was due; `None` before the first.
    pub(super) fn changed_at(&self) -> Option<Time> {
        self.zapping.as_ref()?.last_due
    }

    /// Time from which the delays of the current channel are measured.
    pub(super) fn channel_due(&self) -> Time {
        self.changed_at().unwrap_or(self.planned_start)
    }

    /// Changes channel, or leaves after the last change, if that is due.
    pub(super) fn change_if_due(&mut self, cx: &mut Context<'_>) {
        let Some(zapping) = &self.zapping else { return };
        if cx.now < zapping.next_due || matches!(self.phase, Phase::Idle | Phase::Ended) {
            return;
        }
        let is_last = zapping
            .zap
            .count
            .is_some_and(|count| zapping.changes >= count);
        self.finish_channel(cx);
        if self.phase == Phase::Ended {
            return;
        }
        if is_last {
            return self.finish(cx, Outcome::Stopped);
        }
        let group = self.checker.as_ref().and_then(|checker| checker.group());
        self.close_connection(cx);
        self.add_to_earlier(cx);
        let Some(zapping) = &mut self.zapping else {
            return;
        };
        let due = zapping.next_due;
        zapping.last_due = Some(due);
        zapping.changes += 1;
        zapping.next_due = due + zapping.zap.every.draw(&mut zapping.random);
        let index = zapping
            .channels
            .next_index(zapping.index, &mut zapping.random);
        let named = self.config.group_of(&zapping.channels.urls[zapping.index]);
        zapping.previous.group = named.or(group);
        zapping.index = index;
        self.current_url = zapping.channels.urls[index].clone();
        self.visited.clear();
        self.visited_with_other_cookies = 0;
        self.cookies.clear();
        self.has_media = false;
        self.awaits_picture = true;
        cx.recorder.add(m::ZAPS, 1);
        self.connect(cx);
    }

    /// Counts the outcome of the current channel, which the client is about to leave. A channel
    /// that was awaited for too long is a failure.
    pub(super) fn finish_channel(&mut self, cx: &mut Context<'_>) {
        if let Some((failure, detail)) = self.unanswered_failure(cx.now) {
            return self.fail(cx, failure, detail);
        }
        if let Some((failure, detail)) = self.no_picture_failure() {
            return self.fail(cx, failure, detail);
        }
        if !self.awaits_picture {
            return;
        }
        let counts = self
            .checker
            .as_ref()
            .and_then(|checker| checker.datagrams());
        if let Some(counts) = counts.filter(|counts| counts.received == 0 && counts.foreign > 0) {
            let detail = format!(
                "{} datagrams of other groups received, {} of them of the previous channel, and none of the new one",
                counts.foreign, counts.old_channel
            );
            return self.fail_at_server(cx, Failure::WrongChannel, &detail);
        }
        self.awaits_picture = false;
        cx.recorder.add(m::ZAPS_UNFINISHED, 1);
    }

    /// Counts a failed channel change. The client waits for the next one.
    pub(super) fn count_failed_change(
        &mut self,
        cx: &mut Context<'_>,
        failure: Failure,
        detail: String,
    ) {
        self.awaits_picture = false;
        cx.recorder.add(m::ZAPS_FAILED, 1);
        cx.recorder.add(counter_of(failure), 1);
        let failure = failure.with(detail);
        cx.out.push_back(Output::Note(Note {
            kind: "zap_failed",
            text: format!(
                "{}: {}: {}",
                self.current_url, failure.reason, failure.detail
            ),
        }));
        self.close_connection(cx);
        self.has_media = false;
        self.phase = Phase::BetweenChannels;
        self.next_check_at = None;
    }

    /// Checks whether the picture of the new channel has arrived.
    #[cold]
    pub(super) fn check_for_picture(&mut self, cx: &mut Context<'_>) {
        let found = self
            .checker
            .as_ref()
            .and_then(|checker| checker.random_access());
        if let Some(at) = found {
            self.awaits_picture = false;
            let delay = at.since(self.channel_due());
            cx.recorder.record_duration(m::ZAP_DELAY, delay);
        }
    }

    /// Adds the figures of the current channel to those of the previous ones.
    fn add_to_earlier(&mut self, cx: &mut Context<'_>) {
        self.count_silent_streams(cx, true);
        let Some(mut checker) = self.checker.take() else {
            return;
        };
        checker.finish(cx.recorder);
        let summary = StreamSummary::from_checker("", self.wire_bytes, &checker);
        self.body_prefix = None;
        self.wire_bytes = 0;
        let Some(zapping) = &mut self.zapping else {
            return;
        };
        match &mut zapping.earlier_summary {
            Some(earlier) => earlier.add(&summary),
            None => zapping.earlier_summary = Some(Box::new(summary)),
        }
        if let Some(earlier) = &mut zapping.earlier_summary {
            earlier.url = match zapping.changes {
                0 => "the previous channel".to_owned(),
                count => format!("the {} previous channels", count + 1),
            };
        }
    }
}

/// Returns the counter for changes with this failure.
const fn counter_of(failure: Failure) -> CounterId {
    match failure {
        Failure::Status503 => m::ZAPS_FAILED_503,
        Failure::Status400
        | Failure::Status401
        | Failure::Status403
        | Failure::Status404
        | Failure::Status4xx
        | Failure::Status500
        | Failure::Status502
        | Failure::Status504
        | Failure::Status5xx
        | Failure::StatusOther
        | Failure::RedirectLoop
        | Failure::TooManyRedirects
        | Failure::BadRedirect
        | Failure::RedirectRefused => m::ZAPS_FAILED_STATUS,
        Failure::Connect(failure) => counter_of_connect_failure(failure),
        Failure::TimeoutResponse
        | Failure::NoMedia
        | Failure::EmptyBody
        | Failure::MediaStopped => m::ZAPS_FAILED_SILENT,
        Failure::ClosedInResponse
        | Failure::NotHttp
        | Failure::MalformedResponse
        | Failure::HeaderTooLong
        | Failure::BadChunk
        | Failure::Flooded
        | Failure::EndedByServer
        | Failure::ClosedInMedia
        | Failure::CutOff
        | Failure::Reset
        | Failure::Stuck => m::ZAPS_FAILED_BROKEN,
        Failure::NotTs => m::ZAPS_FAILED_NOT_TS,
        Failure::WrongChannel => m::ZAPS_FAILED_WRONG_CHANNEL,
        Failure::NoPicture => m::ZAPS_FAILED_NO_PICTURE,
    }
}

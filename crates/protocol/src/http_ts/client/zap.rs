//! Channel changes, as viewers make them.
//!
//! Like a set-top box, the client closes the connection and requests the next channel on a new one.
//! Changes follow a schedule: each stay begins when the change before it was due, counted from the
//! client's planned start, however long a change takes. Delays are measured from when the change
//! was due.
//!
//! A failed change is counted, and the client waits for the next one, as a viewer without a picture
//! would. A failure of the first channel, or after a picture, fails the client, as without channel
//! changes.

use std::sync::Arc;

use measure::{CounterId, Time};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Client, Phase};
use crate::http_ts::config::Zap;
use crate::http_ts::failure::Failure;
use crate::http_ts::metrics as m;
use crate::http1::{Url, UrlError};
use crate::media::rtp::StreamSummary;
use crate::media::ts::checker::Before;
use crate::session::{Context, Note, Outcome, Output};

/// Channels between which the clients of a population change.
#[derive(Debug)]
pub struct Channels {
    urls: Vec<Url>,
    in_turn: bool,
}

impl Channels {
    /// Creates a list, which must have at least two different channels. If `in_turn`, each is
    /// followed by the next, otherwise by any other.
    ///
    /// # Errors
    /// A URL is invalid.
    pub fn new(urls: &[String], in_turn: bool) -> Result<Channels, UrlError> {
        let urls = urls.iter().map(|url| Url::parse(url));
        Ok(Channels {
            urls: urls.collect::<Result<_, _>>()?,
            in_turn,
        })
    }

    /// Returns the index of the channel after `place`.
    pub(super) fn after(&self, place: usize, random: &mut Pcg64Mcg) -> usize {
        let count = self.urls.len().max(2);
        let drawn = random.next_u64() % (count as u64 - 1);
        let step = 1 + if self.in_turn { 0 } else { drawn as usize };
        let others = (0..count).map(|more| (place + step + more) % count);
        // A channel that is listed twice does not follow itself.
        let differs = |&other: &usize| self.urls.get(other) != self.urls.get(place);
        others.into_iter().find(differs).unwrap_or(place)
    }
}

/// Channel changes of a client.
#[derive(Debug)]
pub(super) struct Zapping {
    zap: Zap,
    channels: Arc<Channels>,
    random: Pcg64Mcg,
    /// Index of the current channel.
    place: usize,
    /// Number of changes so far.
    made: u32,
    /// Time when the next change is due.
    next: Time,
    /// Time when the last change was due; `None` before the first.
    pub(super) due: Option<Time>,
    /// The previous channel.
    before: Before,
    /// Summary of all previous channels.
    pub(super) earlier: Option<Box<StreamSummary>>,
}

impl Zapping {
    pub(super) fn new(zap: Zap, channels: Arc<Channels>, url: &Url, seed: u64) -> Zapping {
        let place = channels.urls.iter().position(|other| other == url);
        Zapping {
            zap,
            random: Pcg64Mcg::seed_from_u64(seed),
            place: place.unwrap_or(0),
            channels,
            made: 0,
            next: Time::NEVER,
            due: None,
            before: Before { group: None },
            earlier: None,
        }
    }

    /// Starts the schedule.
    pub(super) fn begin(&mut self, due: Time) {
        self.next = due + self.zap.every.draw(&mut self.random);
    }

    /// Time when the next change is due.
    pub(super) fn deadline(&self) -> Time {
        self.next
    }

    /// Returns the previous channel, or `None` on the first.
    pub(super) fn before(&self) -> Option<Before> {
        self.due.map(|_| self.before)
    }
}

impl Client {
    /// Time from which the delays of the current channel are measured.
    pub(super) fn channel_due(&self) -> Time {
        let changed = self.zapping.as_ref().and_then(|zapping| zapping.due);
        changed.unwrap_or(self.due)
    }

    /// Returns true after the first change.
    pub(super) fn has_changed(&self) -> bool {
        self.zapping
            .as_ref()
            .is_some_and(|zapping| zapping.due.is_some())
    }

    /// Changes channel, or leaves after the last change, if that is due.
    pub(super) fn zap(&mut self, cx: &mut Context<'_>) {
        let Some(zapping) = &self.zapping else { return };
        if cx.now < zapping.next || matches!(self.phase, Phase::Idle | Phase::Ended) {
            return;
        }
        let is_last = zapping.zap.count.is_some_and(|count| zapping.made >= count);
        self.leave_channel(cx);
        if self.phase == Phase::Ended {
            return;
        }
        if is_last {
            return self.finish(cx, Outcome::Stopped);
        }
        let group = self.checker.as_ref().and_then(|checker| checker.group());
        self.hang_up(cx);
        self.put_by(cx);
        let Some(zapping) = &mut self.zapping else {
            return;
        };
        let due = zapping.next;
        zapping.due = Some(due);
        zapping.made += 1;
        zapping.next = due + zapping.zap.every.draw(&mut zapping.random);
        let place = zapping.channels.after(zapping.place, &mut zapping.random);
        let named = self.config.group_of(&zapping.channels.urls[zapping.place]);
        zapping.before.group = named.or(group);
        zapping.place = place;
        self.url = zapping.channels.urls[place].clone();
        self.visited.clear();
        self.asked_otherwise = 0;
        self.cookies.clear();
        self.playing = false;
        self.awaits_picture = true;
        cx.recorder.add(m::ZAPS, 1);
        self.connect(cx);
    }

    /// Counts the outcome of the current channel, which the client is about to leave. A channel
    /// that was awaited for too long is a failure.
    pub(super) fn leave_channel(&mut self, cx: &mut Context<'_>) {
        if let Some((failure, detail)) = self.in_vain(cx.now) {
            return self.fail(cx, failure, detail);
        }
        if let Some((failure, detail)) = self.without_picture() {
            return self.fail(cx, failure, detail);
        }
        if !self.awaits_picture {
            return;
        }
        let own = self
            .checker
            .as_ref()
            .and_then(|checker| checker.datagrams());
        if let Some(own) = own.filter(|own| own.received == 0 && own.foreign > 0) {
            let detail = format!(
                "{} datagrams of other groups received, {} of them of the previous channel, and none of the new one, {}",
                own.foreign,
                own.old_channel,
                self.ends()
            );
            return self.fail(cx, Failure::WrongChannel, detail);
        }
        self.awaits_picture = false;
        cx.recorder.add(m::ZAPS_UNFINISHED, 1);
    }

    /// Counts a failed channel change. The client waits for the next one.
    pub(super) fn change_failed(&mut self, cx: &mut Context<'_>, failure: Failure, detail: String) {
        self.awaits_picture = false;
        cx.recorder.add(m::ZAPS_FAILED, 1);
        cx.recorder.add(counter_of(failure), 1);
        let failure = failure.with(detail);
        cx.out.push_back(Output::Note(Note {
            kind: "zap_failed",
            text: format!("{}: {}: {}", self.url, failure.reason, failure.detail),
        }));
        self.hang_up(cx);
        self.playing = false;
        self.phase = Phase::Between;
        self.check = None;
    }

    /// Checks whether the picture of the new channel has arrived.
    #[cold]
    pub(super) fn look_for_picture(&mut self, cx: &mut Context<'_>) {
        let found = self
            .checker
            .as_ref()
            .and_then(|checker| checker.random_access());
        if let Some(at) = found {
            self.awaits_picture = false;
            let delay = at.since(self.channel_due());
            cx.recorder.record(m::ZAP_DELAY, delay.as_nanos() as u64);
        }
    }

    /// Adds the figures of the current channel to those of the previous ones.
    fn put_by(&mut self, cx: &mut Context<'_>) {
        self.count_silent(cx, true);
        let Some(mut checker) = self.checker.take() else {
            return;
        };
        checker.finish(cx.recorder);
        let own = StreamSummary::of_transport_stream("", self.wire_bytes, &checker);
        self.beginning = None;
        self.wire_bytes = 0;
        let Some(zapping) = &mut self.zapping else {
            return;
        };
        match &mut zapping.earlier {
            Some(earlier) => earlier.add(&own),
            None => zapping.earlier = Some(Box::new(own)),
        }
        if let Some(earlier) = &mut zapping.earlier {
            earlier.url = match zapping.made {
                0 => "the previous channel".to_owned(),
                made => format!("the {} previous channels", made + 1),
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
        Failure::Connect(failure) if failure.is_local() => m::ZAPS_FAILED_LOCAL,
        Failure::Connect(_) => m::ZAPS_FAILED_CONNECT,
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

//! Changing channel, as viewers do.
//!
//! A set-top box closes the connection and asks for the next channel on a new one: so does this.
//! When each change is due is kept against the plan: the stays follow each other from when the
//! client was due, whatever a change takes, and its delays count from when it was due.
//!
//! A change that fails is counted, and the client waits for the next one, as a viewer would who
//! sees nothing. What fails of the first channel, or breaks off after a picture was there, fails
//! the client as it does without changes.

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

/// The channels that clients of a population change between.
#[derive(Debug)]
pub struct Channels {
    urls: Vec<Url>,
    in_turn: bool,
}

impl Channels {
    /// These, at least two different ones. `in_turn` says that each is followed by the next, else
    /// any other follows.
    ///
    /// # Errors
    /// What is wrong with a URL.
    pub fn new(urls: &[String], in_turn: bool) -> Result<Channels, UrlError> {
        let urls = urls.iter().map(|url| Url::parse(url));
        Ok(Channels {
            urls: urls.collect::<Result<_, _>>()?,
            in_turn,
        })
    }

    /// Which one follows.
    pub(super) fn after(&self, place: usize, random: &mut Pcg64Mcg) -> usize {
        let count = self.urls.len().max(2);
        let drawn = random.next_u64() % (count as u64 - 1);
        let step = 1 + if self.in_turn { 0 } else { drawn as usize };
        let others = (0..count).map(|more| (place + step + more) % count);
        // One may be in the list twice: that is no other channel.
        let differs = |&other: &usize| self.urls.get(other) != self.urls.get(place);
        others.into_iter().find(differs).unwrap_or(place)
    }
}

/// What a client that changes channel knows of it.
#[derive(Debug)]
pub(super) struct Zapping {
    zap: Zap,
    channels: Arc<Channels>,
    random: Pcg64Mcg,
    /// Where the present channel is in the list.
    place: usize,
    /// How many changes there have been.
    made: u32,
    /// When the next is due.
    next: Time,
    /// When the last was due; none before the first.
    pub(super) due: Option<Time>,
    /// The channel before.
    before: Before,
    /// What came of the channels before this one.
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

    /// The plan begins.
    pub(super) fn begin(&mut self, due: Time) {
        self.next = due + self.zap.every.draw(&mut self.random);
    }

    /// When something is to be done.
    pub(super) fn deadline(&self) -> Time {
        self.next
    }

    /// The channel before; none on the first.
    pub(super) fn before(&self) -> Option<Before> {
        self.due.map(|_| self.before)
    }
}

impl Client {
    /// From when delays of the present channel count.
    pub(super) fn channel_due(&self) -> Time {
        let changed = self.zapping.as_ref().and_then(|zapping| zapping.due);
        changed.unwrap_or(self.due)
    }

    /// Whether it has changed channel.
    pub(super) fn has_changed(&self) -> bool {
        self.zapping
            .as_ref()
            .is_some_and(|zapping| zapping.due.is_some())
    }

    /// Changes channel, or leaves after the last change, where that is due.
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

    /// The present channel is left: says what became of it. Of one that was waited for in vain that
    /// is a failure.
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
                "{} datagrams of other groups came, {} of them of the channel before, and none of the new one, {}",
                own.foreign,
                own.old_channel,
                self.ends()
            );
            return self.fail(cx, Failure::WrongChannel, detail);
        }
        self.awaits_picture = false;
        cx.recorder.add(m::ZAPS_UNFINISHED, 1);
    }

    /// Counts a change of channel that failed; the client waits for the next.
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

    /// Looks whether the picture of the new channel is there.
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

    /// Adds what came of the present channel to that of those before.
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
                0 => "the channel before".to_owned(),
                made => format!("the {} channels before", made + 1),
            };
        }
    }
}

/// Where changes are counted that fail so.
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

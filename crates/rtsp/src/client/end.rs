//! End of a session: teardown, stop or failure, without leaving anything behind.

use std::fmt::Display;
use std::time::Duration;

use measure::Time;

use super::{Client, Phase};
use crate::codec::Method;
use crate::config::Transport;
use crate::failure::Failure;
use kit::connect_failure::ConnectFailure;
use kit::lifecycle::{self, FAILED_WAIT_MIN};
use kit::media::rtp::RtpReceiver;
use kit::media::silence;
use kit::viewer::{Delivery, Viewing};
use session::{Context, Outcome, Output, StreamRow};

/// Timeout for the answer to TEARDOWN.
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(2);

impl Client {
    /// Ends the session before `until`.
    pub(super) fn stop(&mut self, cx: &mut Context<'_>, until: Time) {
        match &mut self.ending {
            Some((_, own)) => *own = (*own).min(until),
            None => match self.failed_wait(cx.now).or_else(|| self.fell_silent(cx)) {
                Some((failure, detail)) => self.fail(cx, failure, detail),
                None => self.tear_down(cx, Outcome::Stopped, Some(until)),
            },
        }
    }

    /// Returns the server's failure if a client that is stopped before any media arrived has waited
    /// too long.
    fn failed_wait(&self, now: Time) -> Option<(Failure, String)> {
        if self.starts.first_media.is_some() {
            return None;
        }
        let (failure, since, what) = match self.phase {
            Phase::Idle | Phase::Recording | Phase::TearingDown | Phase::Ended => return None,
            Phase::Connecting => (
                ConnectFailure::TimedOut.into(),
                self.starts.started,
                "no connection".to_owned(),
            ),
            Phase::Playing => {
                let answered = self.starts.play_answered.unwrap_or(now);
                let what = "no media packet".to_owned();
                (self.no_media_failure(), answered, what)
            }
            Phase::Options
            | Phase::Describe
            | Phase::Announce
            | Phase::Setup(_)
            | Phase::Play
            | Phase::Record => {
                let pending = self.conversation.pending.first()?;
                let what = format!("no answer to {}", pending.method);
                (Failure::from_timeout(&pending.method), pending.due, what)
            }
        };
        let waited = now.since(since);
        (waited >= FAILED_WAIT_MIN).then(|| {
            let waited = lifecycle::describe_wait(waited);
            let (ends, useless) = (self.describe_addresses(), self.describe_useless_bytes());
            (failure, format!("{what} in {waited}{useless} ({ends})"))
        })
    }

    /// Returns the server's hints at the reason of a failure, or else what to try; empty if neither
    /// is known.
    fn hints(&self, failure: Failure) -> String {
        let hints = self.conversation.server_hints.hints();
        let over_udp = self.config.transport == Transport::Udp && self.remote.link.is_none();
        if hints.is_empty() && over_udp && failure == Failure::NoMedia {
            let advice = "try `--transport tcp`, or `transport: tcp` in a scenario";
            return format!("; UDP may be blocked: {advice}");
        }
        hints
    }

    /// Returns the server's failure if the media had stopped before the client was stopped: so long
    /// before that the silence is not a gap like the earlier ones.
    fn fell_silent(&self, cx: &mut Context<'_>) -> Option<(Failure, String)> {
        if self.phase != Phase::Playing
            || !self.expects_media()
            || self.publisher.has_left()
            || self.media_is_over(cx)
            || self.describe_early_end(cx).is_some()
        {
            return None;
        }
        let (first, last) = self.arrivals(cx)?;
        // The longest gap of any stream, because it is unknown which stream the last packets belong
        // to.
        let streams = self.streams.iter();
        let gaps = streams.map(|stream| stream.receiver(cx.sinks).longest_gap());
        let gap = gaps.max().unwrap_or_default();
        // A remote receiver reports only now and then.
        let came = match self.remote.link {
            Some(_) => Duration::ZERO,
            None => last.since(first),
        };
        // A new position cannot play before its request is answered.
        let since = last.max(self.starts.play_answered.unwrap_or(last));
        let silent = cx.now.since(since);
        (silent >= silence::bound(came, gap, self.config.silence.0)).then(|| {
            let detail = lifecycle::describe_stopped("packet", silent, &self.describe_addresses());
            (Failure::MediaStopped, detail)
        })
    }

    /// Tears down the server's session, then ends with `outcome`.
    pub(super) fn tear_down(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Outcome,
        until: Option<Time>,
    ) {
        self.stop_sending(cx);
        self.count_silent_streams(cx, matches!(outcome, Outcome::Failed(_)));
        let own = cx.now + TEARDOWN_TIMEOUT;
        self.ending = Some((outcome, until.map_or(own, |until| until.min(own))));
        if !self.can_tear_down() {
            return self.finish(cx);
        }
        self.phase = Phase::TearingDown;
        self.ask_teardown(cx);
    }

    /// Fails the session. TEARDOWN is sent, but its answer is not awaited: the client ends at once.
    /// A fault during teardown does not change the outcome.
    pub(super) fn fail(&mut self, cx: &mut Context<'_>, failure: Failure, detail: String) {
        if self.ending.is_none() {
            if failure == Failure::MediaStopped {
                for stream in self.streams.iter().filter(|stream| stream.bye_at.is_none()) {
                    let receiver = stream.receiver(cx.sinks);
                    receiver.fell_silent(cx.now, cx.recorder);
                }
            }
            self.stop_sending(cx);
            if self.can_tear_down() {
                self.ask_teardown(cx);
            }
            let detail = format!("{detail}{}", self.hints(failure));
            self.ending = Some((Outcome::Failed(failure.with(detail)), cx.now));
        }
        self.finish(cx);
    }

    /// Fails the session, and adds the addresses of the connection to the detail.
    pub(super) fn fail_here(
        &mut self,
        cx: &mut Context<'_>,
        failure: Failure,
        detail: impl Display,
    ) {
        let detail = format!("{detail}, {}", self.describe_addresses());
        self.fail(cx, failure, detail);
    }

    /// Returns the outcome of a client that the server left at `at`.
    pub(super) fn ended_by_server(&self, at: Time, failure: Failure, detail: &str) -> Outcome {
        let hints = self.conversation.server_hints.hints();
        Outcome::EndedByServer {
            at,
            in_order: failure == Failure::EndedByServer,
            failure: failure.with(format!("{detail}{hints}")),
        }
    }

    /// Returns whether there is a session to tear down, and a connection to do so.
    fn can_tear_down(&self) -> bool {
        self.conversation.session.is_some() && self.conversation.connection.ends.is_some()
    }

    fn ask_teardown(&mut self, cx: &mut Context<'_>) {
        // Other outstanding requests no longer matter.
        self.conversation.pending.clear();
        let url = self.aggregate.clone();
        self.send_request(cx, Method::Teardown, url, Vec::new());
    }

    /// Drops all streams before a redirect is followed.
    pub(super) fn drop_streams(&mut self, cx: &mut Context<'_>) {
        self.conversation.session = None;
        self.conversation.session_is_early = false;
        for stream in std::mem::take(&mut self.streams) {
            if let Some(channel) = stream.channel {
                cx.out.push_back(Output::Close { channel });
            }
            cx.sinks.remove::<RtpReceiver>(stream.sink);
        }
    }

    /// Closes the connection to the server, or both connections of a tunnel.
    pub(super) fn close_connection(&mut self, cx: &mut Context<'_>) {
        let connection = &self.conversation.connection;
        let post = connection.tunnel.as_ref().and_then(|tunnel| tunnel.post);
        let own = connection.open.then_some(connection.channel);
        for channel in own.into_iter().chain(post) {
            cx.out.push_back(Output::Close { channel });
        }
    }

    /// Ends the session: closes all channels and delivers the results.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>) {
        let Some((outcome, _)) = self.ending.take() else {
            return;
        };
        if self.phase == Phase::Ended {
            return;
        }
        self.count_silent_streams(cx, matches!(outcome, Outcome::Failed(_)));
        self.phase = Phase::Ended;
        self.conversation.pending = Vec::new();
        self.end_publishing(cx);
        self.close_connection(cx);
        self.close_link(cx);
        for stream in &self.streams {
            if let Some(channel) = stream.channel {
                cx.out.push_back(Output::Close { channel });
            }
            cx.sinks.get::<RtpReceiver>(stream.sink).finish(cx.recorder);
        }
        let summaries = self.stream_summaries(cx.sinks);
        if self.publishing.is_none() {
            let mut delivery = Delivery::default();
            summaries
                .iter()
                .for_each(|stream| delivery.add(stream.delivery()));
            let viewing = Viewing {
                due: self.starts.due,
                first_media: self.starts.first_media,
                ended: cx.now,
                delivery,
            };
            let service = self.config.served_well.judge(&viewing);
            cx.out.push_back(Output::Viewed(service));
        }
        for stream in std::mem::take(&mut self.streams) {
            cx.sinks.remove::<RtpReceiver>(stream.sink);
        }
        if !summaries.is_empty() {
            let rows = summaries.into_iter().map(StreamRow::new).collect();
            cx.out.push_back(Output::Streams(rows));
        }
        cx.out.push_back(Output::Ended(outcome));
    }
}

//! A client of any protocol that changes channel: a sequence of clients, each of which plays one
//! channel.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use measure::Time;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::viewer::{Viewer, ViewerFactory};
use super::watched::{NUMBERS, Watched, to_own};
use super::{Channels, Zap};
use crate::descriptor::ClientIdentity;
use crate::metrics as m;
use session::seeds::derive_seed;
use session::{
    ChannelId, Context, Failure, Input, Note, Outcome, Output, Service, Session, Sinks, Start,
    StreamRow,
};

/// Maximum time for the goodbye to the server of the previous channel. It takes place while the
/// next channel is requested.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which a client that awaits a picture looks for it. The delay is measured by the
/// picture's arrival, so this only decides the second in which it counts.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time for the answer to a change on a connection that is used again. After it, the server
/// counts as one that plays only one stream in a connection. Media may take longer: servers begin
/// with a key frame.
const REUSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Channels of a population, and what its clients know about the server.
#[derive(Debug)]
struct Surroundings {
    channels: Channels<String>,
    zap: Zap,
    factory: Arc<dyn ViewerFactory>,
    /// True once the server has refused to play another stream in a connection.
    refuses_reuse: AtomicBool,
}

/// Factory of clients that change channel.
#[derive(Clone, Debug)]
pub(super) struct ZappingClients(Arc<Surroundings>);

impl ZappingClients {
    /// Creates the factory for a population with these URLs.
    ///
    /// # Errors
    /// If a URL is invalid; the text says why.
    pub(super) fn new(
        zap: Zap,
        urls: &[String],
        in_turn: bool,
        factory: Arc<dyn ViewerFactory>,
    ) -> Result<ZappingClients, String> {
        for url in urls {
            factory.viewer(url, ClientIdentity::default(), false)?;
        }
        Ok(ZappingClients(Arc::new(Surroundings {
            channels: Channels::new(urls.to_vec(), in_turn),
            zap,
            factory,
            refuses_reuse: AtomicBool::new(false),
        })))
    }

    /// Makes a client whose first channel is `url`.
    pub(super) fn client(&self, url: &str, identity: ClientIdentity) -> ZappingClient {
        let index = self.0.channels.urls.iter().position(|other| other == url);
        ZappingClient {
            own: self.0.clone(),
            random: Pcg64Mcg::seed_from_u64(derive_seed(&[identity.seed, 41])),
            identity,
            is_started: false,
            index: index.unwrap_or(0),
            changes: 0,
            next_due: Time::NEVER,
            current: None,
            leaving: Vec::new(),
            serial: 0,
            outputs: VecDeque::new(),
            left_rows: None,
            left_channels: 0,
            last_rows: Vec::new(),
            next_look: Time::NEVER,
            outcome: None,
            service: None,
            has_ended: false,
        }
    }
}

/// A client that changes channel by its schedule.
pub(super) struct ZappingClient {
    own: Arc<Surroundings>,
    random: Pcg64Mcg,
    identity: ClientIdentity,
    is_started: bool,
    /// Index of the current channel.
    index: usize,
    /// Number of changes so far.
    changes: u32,
    /// Time when the next change is due.
    next_due: Time,
    /// Client of the current channel. `None` after a failed change.
    current: Option<Box<Watched>>,
    /// Clients of previous channels that say goodbye.
    leaving: Vec<Watched>,
    /// Number of clients so far.
    serial: u32,
    /// Outputs of one call of a client. Kept to be used again.
    outputs: VecDeque<Output>,
    /// Sum of the channels that were left, and their number.
    left_rows: Option<StreamRow>,
    left_channels: u32,
    /// Results of the last channel.
    last_rows: Vec<StreamRow>,
    /// Time of the next look for a picture.
    next_look: Time,
    /// Set once the client is to end.
    outcome: Option<Outcome>,
    /// How the client was served on the channels that it left.
    service: Option<Service>,
    has_ended: bool,
}

impl Debug for ZappingClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.own.channels.urls.get(self.index);
        write!(out, "ZappingClient({url:?}, {} changes)", self.changes)
    }
}

impl ZappingClient {
    /// Delivers an input to the client of a channel. Returns its outcome if it ended.
    fn call(
        &mut self,
        cx: &mut Context<'_>,
        watched: &mut Watched,
        input: Input<'_>,
    ) -> Option<Outcome> {
        self.drive(cx, watched, |viewer, cx| viewer.handle(cx, input))
    }

    /// Calls the client of a channel, and passes its outputs on.
    fn drive(
        &mut self,
        cx: &mut Context<'_>,
        watched: &mut Watched,
        call: impl FnOnce(&mut dyn Viewer, &mut Context<'_>),
    ) -> Option<Outcome> {
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut own = Context {
            now: cx.now,
            recorder: cx.recorder,
            sinks: cx.sinks,
            flows: cx.flows,
            out: &mut outputs,
            outbox: cx.outbox,
        };
        call(&mut *watched.viewer, &mut own);
        let mut outcome = None;
        for output in outputs.drain(..) {
            match output {
                Output::Playing { at } => self.media_began(cx, watched, at),
                Output::Streams(rows) => {
                    let left = std::mem::replace(&mut watched.rows, rows);
                    self.add_left(left);
                }
                Output::Viewed(service) => self.add_service(watched, service),
                Output::Ended(ended) => outcome = Some(ended),
                other => cx.out.push_back(watched.translate(other)),
            }
        }
        self.outputs = outputs;
        if outcome.is_some() {
            // The engine closes the channels of a session that ends. This one continues.
            for channel in std::mem::take(&mut watched.open) {
                let channel = ChannelId(watched.first_number + channel.0);
                cx.out.push_back(Output::Close { channel });
            }
        }
        outcome
    }

    /// Adds how the client was served on one channel. Only its first channel has a start.
    fn add_service(&mut self, watched: &Watched, service: Service) {
        let sum = self.service.get_or_insert(Service {
            start: Start::Unknown,
            stalled: false,
            lossy: false,
        });
        if watched.due.is_none() {
            sum.start = service.start;
        }
        sum.stalled |= service.stalled;
        sum.lossy |= service.lossy;
    }

    /// Handles the first media of a channel.
    fn media_began(&self, cx: &mut Context<'_>, watched: &mut Watched, at: Time) {
        match watched.due {
            None => cx.out.push_back(Output::Playing { at }),
            Some(due) => {
                if std::mem::take(&mut watched.awaits_media) {
                    cx.recorder
                        .record_duration(m::ZAP_FIRST_BYTE_DELAY, at.since(due));
                }
            }
        }
    }

    /// Adds results of channels that the client has left to the sum of earlier ones.
    fn add_left(&mut self, rows: Vec<StreamRow>) {
        if rows.is_empty() {
            return;
        }
        self.left_channels += 1;
        let before = self.left_rows.take();
        let all: Vec<StreamRow> = before.into_iter().chain(rows).collect();
        self.left_rows = self.sum_left(&all);
    }

    fn sum_left(&self, rows: &[StreamRow]) -> Option<StreamRow> {
        let title = match self.left_channels {
            1 => "the previous channel".to_owned(),
            count => format!("the {count} previous channels"),
        };
        self.own.factory.sum_rows(rows, &title)
    }

    /// Starts to play the current channel. `due` is `None` for the first one, whose start was due
    /// at `start`.
    fn watch(&mut self, cx: &mut Context<'_>, start: Time, due: Option<Time>) {
        let url = self.own.channels.urls[self.index].clone();
        let mut identity = self.identity;
        if due.is_some() {
            identity.seed = derive_seed(&[identity.seed, 42, self.serial.into()]);
        }
        let viewer = self.own.factory.viewer(&url, identity, due.is_none());
        let mut watched = Box::new(Watched {
            viewer: viewer.expect("each URL was checked when the factory was made"),
            url,
            first_number: self.serial.wrapping_mul(NUMBERS),
            open: Vec::new(),
            sinks: Vec::new(),
            due,
            awaits_picture: due.is_some(),
            awaits_media: due.is_some(),
            is_reused: false,
            rows: Vec::new(),
            is_last: false,
            until: Time::NEVER,
        });
        self.serial = self.serial.wrapping_add(1);
        self.look_later(cx.now, &watched);
        let outcome = self.call(cx, &mut watched, Input::Start { due: start });
        self.keep_current(cx, watched, outcome);
    }

    fn look_later(&mut self, now: Time, watched: &Watched) {
        self.next_look = match watched.awaits_picture {
            true => now + LOOK_INTERVAL,
            false => Time::NEVER,
        };
    }

    /// Keeps the client of the current channel, or handles its end.
    fn keep_current(
        &mut self,
        cx: &mut Context<'_>,
        mut watched: Box<Watched>,
        outcome: Option<Outcome>,
    ) {
        let Some(outcome) = outcome else {
            self.look_for_picture(cx, &mut watched);
            self.current = Some(watched);
            return;
        };
        if watched.is_reused && watched.awaits_media && outcome.failure().is_some() {
            return self.connect_anew(cx, &watched);
        }
        if watched.awaits_picture {
            self.count_without_picture(cx, &watched, &outcome);
            return self.add_left(std::mem::take(&mut watched.rows));
        }
        // The stream ended, or failed after its picture.
        self.last_rows = std::mem::take(&mut watched.rows);
        self.end(cx, outcome);
    }

    /// Requests the current channel again on a new connection, because the server does not play
    /// another stream in the old one.
    fn connect_anew(&mut self, cx: &mut Context<'_>, watched: &Watched) {
        self.own.refuses_reuse.store(true, Ordering::Relaxed);
        let due = watched.due.unwrap_or(cx.now);
        self.watch(cx, due, Some(due));
    }

    /// Records the delay of a change once its picture has arrived.
    fn look_for_picture(&mut self, cx: &mut Context<'_>, watched: &mut Watched) {
        if !watched.awaits_picture {
            return;
        }
        if let (Some(at), Some(due)) = (watched.viewer.first_picture(cx.sinks), watched.due) {
            watched.awaits_picture = false;
            cx.recorder.record_duration(m::ZAP_DELAY, at.since(due));
        }
    }

    /// Counts a change whose client ended before its picture.
    fn count_without_picture(&self, cx: &mut Context<'_>, watched: &Watched, outcome: &Outcome) {
        let Some(failure) = outcome.failure() else {
            return cx.recorder.add(m::ZAPS_UNFINISHED, 1);
        };
        let Failure { reason, detail } = failure;
        cx.recorder.add(m::ZAPS_FAILED, 1);
        let counter = self.own.factory.zap_failed_counter(reason);
        cx.recorder.add(counter, 1);
        cx.out.push_back(Output::Note(Note {
            kind: "zap_failed",
            text: format!("{}: {reason}: {detail}", watched.url),
        }));
    }

    /// Stops the client of a channel that the client leaves.
    fn leave(&mut self, cx: &mut Context<'_>, mut watched: Watched, until: Time) {
        self.look_for_picture(cx, &mut watched);
        watched.until = until;
        match self.call(cx, &mut watched, Input::Stop { until }) {
            Some(outcome) => self.left(cx, watched, &outcome),
            None => self.leaving.push(watched),
        }
    }

    /// Handles the end of a channel that the client left.
    fn left(&mut self, cx: &mut Context<'_>, mut watched: Watched, outcome: &Outcome) {
        if watched.awaits_picture {
            self.count_without_picture(cx, &watched, outcome);
        } else if let Outcome::Failed(failure) = outcome {
            // A stream that broke off before it was left is a failure, as without changes.
            let is_failed = matches!(self.outcome, Some(Outcome::Failed(_)));
            if !is_failed {
                self.end(cx, Outcome::Failed(failure.clone()));
            }
        }
        let rows = std::mem::take(&mut watched.rows);
        match watched.is_last {
            true => self.last_rows = rows,
            false => self.add_left(rows),
        }
    }

    /// Changes channel, or leaves after the last change, if that is due.
    fn change_if_due(&mut self, cx: &mut Context<'_>) {
        if self.outcome.is_some() || !self.is_started || cx.now < self.next_due {
            return;
        }
        let zap = self.own.zap;
        if zap.count.is_some_and(|count| self.changes >= count) {
            return self.end(cx, Outcome::Stopped);
        }
        let due = self.next_due;
        self.next_due = due + zap.every.draw(&mut self.random);
        self.index = self.own.channels.next_index(self.index, &mut self.random);
        self.changes += 1;
        cx.recorder.add(m::ZAPS, 1);
        if let Some(current) = self.current.take() {
            let Some(current) = self.change_stream(cx, *current, due) else {
                return;
            };
            self.leave(cx, current, cx.now + GOODBYE_TIMEOUT);
        }
        if self.outcome.is_none() {
            self.watch(cx, due, Some(due));
        }
    }

    /// Changes channel on the open connection. Returns the client if that is not possible.
    fn change_stream(
        &mut self,
        cx: &mut Context<'_>,
        mut current: Watched,
        due: Time,
    ) -> Option<Watched> {
        let has_picture = !current.awaits_picture;
        if !has_picture || self.own.refuses_reuse.load(Ordering::Relaxed) {
            return Some(current);
        }
        let url = self.own.channels.urls[self.index].clone();
        let mut has_changed = false;
        let outcome = self.drive(cx, &mut current, |viewer, cx| {
            has_changed = viewer.change_stream(cx, &url, due);
        });
        if !has_changed {
            return Some(current);
        }
        self.add_left(std::mem::take(&mut current.rows));
        current.url = url;
        current.due = Some(due);
        (current.awaits_picture, current.awaits_media) = (true, true);
        current.is_reused = true;
        self.look_later(cx.now, &current);
        self.keep_current(cx, Box::new(current), outcome);
        None
    }

    /// Gives up a connection that is used again if the server does not answer.
    fn check_reuse(&mut self, cx: &mut Context<'_>) {
        let is_late = self.current.as_ref().is_some_and(|current| {
            let due = current.due.unwrap_or(Time::NEVER);
            let is_open = current.is_reused && current.awaits_media;
            is_open && !current.viewer.is_change_answered() && cx.now >= due + REUSE_TIMEOUT
        });
        if is_late && let Some(mut current) = self.current.take() {
            // Only the attempt has this outcome: the change goes on with a new connection.
            let outcome = self.call(cx, &mut current, Input::Stop { until: cx.now });
            debug_assert!(outcome.is_some(), "a client ends when its time is over");
            self.connect_anew(cx, &current);
        }
    }

    /// Ends the client with this outcome, once the goodbyes are said.
    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        self.outcome = Some(outcome);
        self.leave_last(cx, cx.now + GOODBYE_TIMEOUT);
    }

    /// Leaves the last channel.
    fn leave_last(&mut self, cx: &mut Context<'_>, until: Time) {
        self.next_look = Time::NEVER;
        if let Some(mut current) = self.current.take() {
            current.is_last = true;
            self.leave(cx, *current, until);
        }
    }

    /// Stops clients that have had their time for the goodbye.
    fn end_goodbyes(&mut self, cx: &mut Context<'_>) {
        let mut at = 0;
        while let Some(leaving) = self.leaving.get(at) {
            if leaving.until > cx.now {
                at += 1;
                continue;
            }
            let mut watched = self.leaving.remove(at);
            let until = cx.now;
            let outcome = self.call(cx, &mut watched, Input::Stop { until });
            self.left(cx, watched, &outcome.unwrap_or(Outcome::Stopped));
        }
    }

    /// Ends the session if it is to end and no goodbye is outstanding.
    fn finish_if_done(&mut self, cx: &mut Context<'_>) {
        if !self.leaving.is_empty() || self.has_ended {
            return;
        }
        let Some(outcome) = self.outcome.take() else {
            return;
        };
        self.has_ended = true;
        let rows = std::mem::take(&mut self.last_rows).into_iter();
        let rows: Vec<StreamRow> = rows.chain(self.left_rows.take()).collect();
        if !rows.is_empty() {
            cx.out.push_back(Output::Streams(rows));
        }
        if let Some(service) = self.service.take() {
            cx.out.push_back(Output::Viewed(service));
        }
        cx.out.push_back(Output::Ended(outcome));
    }

    /// Delivers an input to the client that it belongs to.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        input: Input<'_>,
        belongs: impl Fn(&Watched) -> bool,
    ) {
        if self.outcome.is_none() && self.current.as_ref().is_some_and(|own| belongs(own)) {
            if let Some(mut current) = self.current.take() {
                let input = to_own(input, &mut current);
                let outcome = self.call(cx, &mut current, input);
                self.keep_current(cx, current, outcome);
            }
        } else if let Some(at) = self.leaving.iter().position(belongs) {
            let mut watched = self.leaving.remove(at);
            let input = to_own(input, &mut watched);
            match self.call(cx, &mut watched, input) {
                Some(outcome) => self.left(cx, watched, &outcome),
                None => self.leaving.insert(at, watched),
            }
        }
    }

    /// Delivers the deadlines that have come.
    fn deliver_deadlines(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let is_due = |own: &Watched| own.viewer.deadline().is_some_and(|due| due <= now);
        let mut rounds = 1 + self.leaving.len();
        while rounds > 0 && self.leaving.iter().any(is_due)
            || self.outcome.is_none() && self.current.as_deref().is_some_and(is_due) && rounds > 0
        {
            rounds -= 1;
            self.deliver(cx, Input::Deadline, is_due);
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>, until: Time) {
        if !self.is_started {
            self.outcome = Some(Outcome::Stopped);
            return;
        }
        if self.outcome.is_none() {
            self.outcome = Some(Outcome::Stopped);
            self.leave_last(cx, until);
        }
        for leaving in &mut self.leaving {
            leaving.until = leaving.until.min(until);
        }
    }
}

impl Session for ZappingClient {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.has_ended {
            return;
        }
        match input {
            Input::Start { due } if !self.is_started => {
                self.is_started = true;
                self.next_due = due + self.own.zap.every.draw(&mut self.random);
                self.watch(cx, due, None);
            }
            Input::Opened { channel, .. }
            | Input::OpenFailed { channel, .. }
            | Input::Bytes { channel, .. }
            | Input::Datagram { channel, .. }
            | Input::Datagrams { channel, .. }
            | Input::Closed { channel, .. }
            | Input::ExchangeEnded { channel, .. } => {
                self.deliver(cx, input, |own| own.holds(channel));
            }
            Input::Media { sink, .. } => self.deliver(cx, input, |own| own.sinks.contains(&sink)),
            // Messages are about the publisher of the first channel.
            Input::TopicMessage { .. } => self.deliver(cx, input, |own| own.due.is_none()),
            Input::Stop { until } => self.stop(cx, until),
            // Players have no flows.
            Input::Start { .. } | Input::FlowEnded { .. } => {}
            Input::Deadline => self.deliver_deadlines(cx),
        }
        if cx.now >= self.next_look {
            self.next_look = Time::NEVER;
            if let Some(mut current) = self.current.take() {
                self.look_for_picture(cx, &mut current);
                self.look_later(cx.now, &current);
                self.current = Some(current);
            }
        }
        self.check_reuse(cx);
        self.change_if_due(cx);
        self.end_goodbyes(cx);
        self.finish_if_done(cx);
    }

    fn deadline(&self) -> Option<Time> {
        if self.has_ended || !self.is_started {
            return None;
        }
        let goodbyes = self.leaving.iter().map(|leaving| leaving.until);
        let leaving = self.leaving.iter().filter_map(|own| own.viewer.deadline());
        let mut due = goodbyes.chain(leaving).min().unwrap_or(Time::NEVER);
        if self.outcome.is_none() {
            due = due.min(self.next_due).min(self.next_look);
            if let Some(current) = &self.current {
                due = due.min(current.viewer.deadline().unwrap_or(Time::NEVER));
            }
        }
        (due != Time::NEVER).then_some(due)
    }

    fn awaits_input(&self, now: Time) -> bool {
        let current = self.current.as_deref().into_iter();
        let mut all = current.chain(&self.leaving);
        all.any(|own| own.awaits_picture || own.viewer.awaits_input(now))
    }

    fn streams(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        let current = self.current.as_deref().into_iter();
        let all = current.chain(&self.leaving);
        let mut rows: Vec<StreamRow> = all.flat_map(|own| own.viewer.streams(sinks)).collect();
        let left = self.left_rows.as_ref();
        rows.extend(left.and_then(|left| self.sum_left(std::slice::from_ref(left))));
        rows
    }
}

//! A connection on which messages are sent and read without its session: what a worker holds for
//! each, and calls for each message.
//!
//! It does no I/O: bytes to be sent come out, bytes that came go in. Both sides of a conversation
//! are such: a client's [`Caller`], and a reference server's [`Answerer`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use measure::{Recorder, Time};

use super::config::{Answers, ClientConfig};
use super::failure::Failure;
use super::frame::{Framing, Item, Reader, Wanted};
use super::metrics as m;
use super::schedule::Pace;
use super::server::Answerer;
use super::template::{Filling, Template};
use crate::mix::mix;
use crate::session;
use crate::websocket as ws;
use mediagen::steps;

/// How many messages before and behind the one that is due an answer is compared with.
const LOOK_AROUND: u64 = 16;

/// The most pings of a WebSocket that one read may bring. Each is answered with as much, so that a
/// peer that sends nothing else would make its worker do nothing else.
const PINGS_A_READ: usize = 256;

/// Counts a ping.
pub(super) fn one_ping_more(pings: &mut usize) -> Result<(), session::Failure> {
    *pings += 1;
    match *pings > PINGS_A_READ {
        true => Err(Failure::Flooded.with(format!("more than {PINGS_A_READ} pings at once"))),
        false => Ok(()),
    }
}

/// What may wait to be sent on a connection before nothing more is read from it: a side that does
/// not read what it asked for.
pub const CONGESTED: usize = 256 * 1024;

/// What an exchange may use while it is called.
#[derive(Debug)]
pub struct Tools<'a> {
    /// The time now.
    pub now: Time,
    /// Where the population's figures are added to.
    pub recorder: &'a mut Recorder,
    /// What is to be sent is added to it.
    pub out: &'a mut Vec<u8>,
    /// Room to compare in; what is in it means nothing.
    pub scratch: &'a mut Vec<u8>,
}

/// What is to be done after bytes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing but to send what was added.
    Go,
    /// All that was planned is through: nothing more is to be sent after this.
    Finish,
    /// The connection is to be closed.
    Close,
}

/// How a connection that was handed over ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides had nothing more to say.
    InOrder,
    /// It was to be closed.
    OnPurpose,
    /// The other side closed it first, or it broke.
    Closed(session::Closed),
    /// What came is of no use.
    Failed(session::Failure),
}

/// One side of messages on a connection.
#[derive(Debug)]
pub enum Exchange {
    /// A client's.
    Caller(Caller),
    /// A reference server's.
    Answerer(Answerer),
}

/// What all clients of a population send, and what they expect.
#[derive(Debug)]
pub struct Script {
    template: Template,
    framing: Framing,
    answers: Answers,
    pace: Pace,
    /// How many messages may be on their way where answers let the next be sent.
    in_flight: usize,
    limit: u64,
    longest: u64,
    answer_timeout: Duration,
    patience: Duration,
    /// What the wall clock showed, in nanoseconds since 1970, when the run's time began.
    wall_nanos: u64,
}

impl Script {
    /// Out of a configuration that was checked; `websocket` says whether messages go over one.
    ///
    /// # Errors
    /// What the check would have said.
    pub fn new(
        config: &ClientConfig,
        websocket: bool,
        wall_clock: Duration,
    ) -> Result<Script, String> {
        let template = config.template().map_err(|(_, error)| error)?;
        let framing = match websocket {
            true => Framing::WebSocket {
                masked: true,
                text: config.websocket_text.unwrap_or(template.is_text()),
            },
            false => config.framing.made(),
        };
        Ok(Script {
            in_flight: config.in_flight(),
            limit: config.messages.unwrap_or(u64::MAX),
            longest: config.longest_answer.0,
            answer_timeout: config.answer_timeout.0,
            patience: config.close_timeout.0 / 2,
            wall_nanos: u64::try_from(wall_clock.as_nanos()).unwrap_or(0),
            answers: config.expects(),
            template,
            framing,
            pace: config.pace(),
        })
    }

    /// How messages are framed.
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// How many bytes message `number` has with its framing, sealed where `sealing` bytes are added
    /// to each.
    fn framed(&self, number: u64, sealing: usize) -> u64 {
        let length = self.template.length(number);
        (length + self.framing.overhead(length) + sealing) as u64
    }
}

/// A message that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Pending {
    planned: Time,
    sent: Time,
}

/// A client's side.
#[derive(Debug)]
pub struct Caller {
    script: Arc<Script>,
    seed: u64,
    sent: u64,
    acknowledged: u64,
    /// The last messages sent, which wait for their answers.
    pending: VecDeque<Pending>,
    reader: Reader,
    /// Whether any answer was given up: then one may come late.
    gave_up: bool,
    /// Whether nothing more is to be sent.
    finished: bool,
    /// Of a WebSocket: whether its close was sent (RFC 6455, 7.1.2).
    said_close: bool,
    /// Of a WebSocket: whether that of the server has come.
    heard_close: bool,
}

impl Caller {
    /// One that has sent nothing yet. What it draws follows from `seed`.
    pub fn new(script: Arc<Script>, seed: u64) -> Caller {
        Caller {
            script,
            seed,
            sent: 0,
            acknowledged: 0,
            pending: VecDeque::new(),
            reader: Reader::default(),
            gave_up: false,
            finished: false,
            said_close: false,
            heard_close: false,
        }
    }

    /// With what has come already of a message from the server.
    pub fn with_reader(mut self, reader: Reader) -> Caller {
        self.reader = reader;
        self
    }

    /// Whether another message may be sent now.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.pending.len() < self.script.in_flight && !self.is_spent()
    }

    /// Whether it has sent all that it ever will.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.sent >= self.script.limit || self.finished
    }

    /// Sends nothing more.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    fn is_websocket(&self) -> bool {
        matches!(self.script.framing, Framing::WebSocket { .. })
    }

    /// Adds the close of a WebSocket, once.
    fn goodbye(&mut self, out: &mut Vec<u8>) {
        if self.is_websocket() && !self.said_close {
            self.said_close = true;
            let mask = mix(&[self.seed, self.sent, 8]) as u32;
            ws::write_control(ws::CLOSE, &ws::NORMAL.to_be_bytes(), Some(mask), out);
        }
    }

    /// Whether it is spent, and waits for nothing.
    pub fn is_done(&self) -> bool {
        self.is_spent() && self.pending.is_empty()
    }

    fn filling(&self, number: u64, sent: Time) -> Filling {
        filling(&self.script, self.seed, number, sent)
    }

    /// Adds the next message to `out`. It counts once it was [sent](Caller::sent). The hot path.
    #[inline]
    pub fn write_next(&self, now: Time, out: &mut Vec<u8>) {
        let number = self.sent + 1;
        write(&self.script, &self.filling(number, now), out);
    }

    /// Says that the message written last was sent, `bytes` long with its framing.
    #[inline]
    pub fn sent(&mut self, planned: Time, now: Time, bytes: usize, recorder: &mut Recorder) {
        self.sent += 1;
        recorder.add(m::SENT, 1);
        recorder.add(m::BYTES_SENT, bytes as u64);
        recorder.record(m::MESSAGE_LATENESS, now.since(planned).as_nanos() as u64);
        if self.script.answers != Answers::None {
            self.pending.push_back(Pending { planned, sent: now });
        }
    }

    /// Adds what answers let be sent, planned for `planned`.
    fn send_on(&mut self, planned: Time, tools: &mut Tools<'_>) {
        if self.script.pace != Pace::Answers {
            return;
        }
        while self.may_send() {
            let from = tools.out.len();
            self.write_next(tools.now, tools.out);
            self.sent(planned, tools.now, tools.out.len() - from, tools.recorder);
        }
    }

    fn received(
        &mut self,
        bytes: &[u8],
        at: Time,
        tools: &mut Tools<'_>,
    ) -> Result<After, session::Failure> {
        tools.recorder.add(m::BYTES_RECEIVED, bytes.len() as u64);
        if self.script.answers == Answers::None && !self.is_websocket() {
            tools.recorder.add(m::UNASKED, 1);
            return Ok(After::Go);
        }
        let mut input = bytes;
        let mut pings = 0;
        while !input.is_empty() {
            let script = &*self.script;
            let first = self.sent - self.pending.len() as u64 + 1;
            let awaited = script.template.length(first);
            let wanted = Wanted {
                fixed: match (script.answers, self.pending.is_empty()) {
                    (Answers::Echo, false) => awaited,
                    _ => 0,
                },
                keep: match script.answers {
                    Answers::Echo => script.template.longest(),
                    Answers::Any | Answers::None => 0,
                },
                longest: script.longest,
            };
            let item = self.reader.next(&script.framing, &wanted, &mut input);
            match item.map_err(Failure::of_malformed)? {
                None => break,
                Some(Item::Ping(payload)) => {
                    one_ping_more(&mut pings)?;
                    let mask = mix(&[self.seed, self.sent]) as u32;
                    ws::write_control(ws::PONG, payload, Some(mask), tools.out);
                }
                Some(Item::Close(_)) if self.finished => {
                    self.heard_close = true;
                    return Ok(After::Finish);
                }
                Some(Item::Close(code)) => {
                    // It is answered (RFC 6455, 5.5.1).
                    self.goodbye(tools.out);
                    let code = code.map_or_else(String::new, |code| format!(" with code {code}"));
                    let detail = format!("the server closed the WebSocket{code}");
                    return Err(Failure::ClosedByServer.with(detail));
                }
                Some(Item::Frame(frame)) => {
                    let answer = Answer {
                        body: frame.body,
                        at,
                        first,
                    };
                    answer.take(script, self.seed, self.gave_up, &mut self.pending, tools);
                }
            }
        }
        self.reader.rest();
        self.send_on(at, tools);
        Ok(match self.is_done() {
            true => After::Finish,
            false => After::Go,
        })
    }

    /// Gives answers up that have not come in time.
    fn look(&mut self, tools: &mut Tools<'_>) -> After {
        let before = self.pending.len();
        while let Some(first) = self.pending.front()
            && tools.now.since(first.sent) >= self.script.answer_timeout
        {
            self.pending.pop_front();
        }
        let given_up = before - self.pending.len();
        if given_up > 0 {
            self.gave_up = true;
            tools.recorder.add(m::ANSWERS_TIMED_OUT, given_up as u64);
            self.send_on(tools.now, tools);
        }
        match self.is_done() {
            true => After::Finish,
            false => After::Go,
        }
    }

    /// How many of the messages sent have a byte among the last `bytes` that were.
    fn messages_in(&self, bytes: u64, sealing: usize) -> u64 {
        let (mut left, mut number, mut messages) = (bytes, self.sent, 0);
        while left > 0 && number > 0 {
            // All numbers of as many digits make messages of one length.
            let least = match self.script.template.is_of_one_length() {
                true => 1,
                false => 10u64.pow(number.ilog10()),
            };
            let length = self.script.framed(number, sealing).max(1);
            let here = left.div_ceil(length).min(number - least + 1);
            messages += here;
            number -= here;
            left = left.saturating_sub(here * length);
        }
        messages
    }

    /// Takes up what has been acknowledged; `waiting` bytes have not, and TLS adds `sealing` to
    /// each message.
    fn acknowledged(&mut self, waiting: u64, sealing: usize, recorder: &mut Recorder) {
        let close = match self.said_close {
            true => ws::overhead(2, true) + 2 + sealing,
            false => 0,
        };
        let waiting = waiting.saturating_sub(close as u64);
        let acknowledged = self.sent - self.messages_in(waiting, sealing);
        if let Some(more) = acknowledged.checked_sub(self.acknowledged) {
            recorder.add(m::ACKNOWLEDGED, more);
            self.acknowledged = acknowledged;
        }
    }

    fn ended(&mut self, recorder: &mut Recorder) {
        recorder.add(m::LOST_IN_FLIGHT, self.sent - self.acknowledged);
        recorder.add(m::UNANSWERED, self.pending.len() as u64);
    }
}

#[inline]
fn filling(script: &Script, seed: u64, number: u64, sent: Time) -> Filling {
    Filling {
        number,
        nanos: script.wall_nanos.saturating_add(sent.as_nanos()),
        seed,
    }
}

#[inline]
fn write(script: &Script, filling: &Filling, out: &mut Vec<u8>) {
    let length = script.template.length(filling.number);
    let mask = match script.framing {
        Framing::WebSocket { masked: true, .. } => mix(&[filling.seed, filling.number, 5]) as u32,
        _ => 0,
    };
    script.framing.begin(length, mask, out);
    script.template.write(filling, out);
    script.framing.end(length, mask, out);
}

/// A message that came.
struct Answer<'a> {
    body: Option<&'a [u8]>,
    at: Time,
    /// The number of the first message that waits for its answer.
    first: u64,
}

impl Answer<'_> {
    fn take(
        self,
        script: &Script,
        seed: u64,
        gave_up: bool,
        pending: &mut VecDeque<Pending>,
        tools: &mut Tools<'_>,
    ) {
        if pending.is_empty() {
            return tools.recorder.add(m::UNASKED, 1);
        }
        let mut is = |number: u64, sent: Time| {
            // To make a message costs what it is long: not for an answer that can be told by its
            // own length.
            let length = script.template.length(number);
            if self.body.is_none_or(|body| body.len() != length) {
                return false;
            }
            steps::took(length);
            tools.scratch.clear();
            script
                .template
                .write(&filling(script, seed, number, sent), tools.scratch);
            self.body == Some(&**tools.scratch)
        };
        let place = match script.answers {
            Answers::Echo => (self.first..self.first + LOOK_AROUND)
                .zip(pending.iter())
                .position(|(number, pending)| is(number, pending.sent)),
            Answers::Any => Some(0),
            Answers::None => return tools.recorder.add(m::UNASKED, 1),
        };
        match place {
            Some(skipped) => {
                tools.recorder.add(m::ANSWERS_MISSED, skipped as u64);
                pending.drain(..skipped);
                if let Some(message) = pending.pop_front() {
                    tools.recorder.add(m::ANSWERED, 1);
                    for (histogram, from) in [
                        (m::ROUND_TRIP, message.planned),
                        (m::ROUND_TRIP_FROM_SENT, message.sent),
                    ] {
                        tools
                            .recorder
                            .record(histogram, self.at.since(from).as_nanos() as u64);
                    }
                }
            }
            // One that was given up for lost; when it was sent is not known any more.
            None if gave_up && !script.template.tells_time() && {
                let earlier = self.first.saturating_sub(LOOK_AROUND).max(1)..self.first;
                earlier.rev().any(|number| is(number, Time::ZERO))
            } =>
            {
                tools.recorder.add(m::UNASKED, 1);
            }
            None => {
                pending.pop_front();
                tools.recorder.add(m::ANSWERS_WRONG, 1);
            }
        }
    }
}

impl Exchange {
    /// By what its messages are planned.
    pub fn pace(&self) -> Pace {
        match self {
            Exchange::Caller(caller) => caller.script.pace,
            Exchange::Answerer(_) => Pace::Answers,
        }
    }

    /// Whether it matters when bytes came: then the kernel is asked for their time.
    pub fn wants_times(&self) -> bool {
        match self {
            Exchange::Caller(caller) => caller.script.answers != Answers::None,
            Exchange::Answerer(_) => false,
        }
    }

    /// A client's side.
    #[inline]
    pub fn caller(&mut self) -> Option<&mut Caller> {
        match self {
            Exchange::Caller(caller) => Some(caller),
            Exchange::Answerer(_) => None,
        }
    }

    /// Sets to work: adds what may be sent at once, where nothing is planned.
    pub fn begin(&mut self, tools: &mut Tools<'_>) {
        match self {
            Exchange::Caller(caller) => caller.send_on(tools.now, tools),
            Exchange::Answerer(_) => {}
        }
    }

    /// Takes bytes in that came, the last of them at `at`.
    ///
    /// # Errors
    /// They are of no use: the connection is to be given up.
    pub fn received(
        &mut self,
        bytes: &[u8],
        at: Time,
        tools: &mut Tools<'_>,
    ) -> Result<After, session::Failure> {
        match self {
            Exchange::Caller(caller) => caller.received(bytes, at, tools),
            Exchange::Answerer(answerer) => answerer.received(bytes, tools),
        }
    }

    /// When [`Exchange::due`] is to be called; at any time nothing else is due.
    pub fn next_due(&self) -> Option<Time> {
        match self {
            Exchange::Caller(_) => None,
            Exchange::Answerer(answerer) => answerer.next_due(),
        }
    }

    /// Adds what was to wait until now.
    pub fn due(&mut self, tools: &mut Tools<'_>) {
        if let Exchange::Answerer(answerer) = self {
            answerer.due(tools);
        }
    }

    /// Has a look at what has not happened. Called about once a second.
    pub fn look(&mut self, tools: &mut Tools<'_>) -> After {
        match self {
            Exchange::Caller(caller) => caller.look(tools),
            Exchange::Answerer(_) => After::Go,
        }
    }

    /// Whether [`Exchange::acknowledged`] would tell anything new.
    #[inline]
    pub fn wants_acknowledged(&self) -> bool {
        match self {
            Exchange::Caller(caller) => caller.acknowledged < caller.sent,
            Exchange::Answerer(_) => false,
        }
    }

    /// Takes up what has been acknowledged: of all bytes sent `waiting` have not; TLS adds
    /// `sealing` to each message.
    pub fn acknowledged(&mut self, waiting: u64, sealing: usize, recorder: &mut Recorder) {
        if let Exchange::Caller(caller) = self {
            caller.acknowledged(waiting, sealing, recorder);
        }
    }

    /// How long answers are waited for when nothing more is planned, before the other side is told
    /// so: many servers answer nothing any more once they are. None where no answer is to come.
    pub fn patience(&self) -> Option<Duration> {
        match self {
            Exchange::Caller(caller) => {
                let waits = !caller.pending.is_empty() && !caller.heard_close;
                waits.then_some(caller.script.patience)
            }
            Exchange::Answerer(_) => None,
        }
    }

    /// Adds what tells the other side that nothing more comes, where messages have a way of their
    /// own to say so. Called when nothing else is to be sent.
    pub fn goodbye(&mut self, out: &mut Vec<u8>) {
        if let Exchange::Caller(caller) = self {
            caller.goodbye(out);
        }
    }

    /// Whether the other side is to answer that before the connection is closed (RFC 6455, 7.1.1).
    pub fn waits_for_goodbye(&self) -> bool {
        match self {
            Exchange::Caller(caller) => caller.said_close && !caller.heard_close,
            Exchange::Answerer(_) => false,
        }
    }

    /// How many bytes wait in it to be sent later.
    pub fn waiting(&self) -> usize {
        match self {
            Exchange::Caller(_) => 0,
            Exchange::Answerer(answerer) => answerer.waiting(),
        }
    }

    /// Counts what can only be known at the end. Called once.
    pub fn ended(&mut self, how: &Ended, recorder: &mut Recorder) {
        match self {
            Exchange::Caller(caller) => {
                recorder.add(m::CLOSED_IN_ORDER, u64::from(*how == Ended::InOrder));
                caller.ended(recorder);
            }
            Exchange::Answerer(answerer) => answerer.ended(how, recorder),
        }
    }
}

#[cfg(test)]
mod tests;

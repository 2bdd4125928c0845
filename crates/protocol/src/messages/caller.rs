//! Client's side of a connection that was handed over: sends messages by a schedule or as answers
//! arrive, and matches answers with messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use measure::{Recorder, Time};

use super::config::{Answers, ClientConfig};
use super::failure::{Failure, one_ping_more};
use super::frame::{Framing, Item, MessageReader, ReadLimits};
use super::metrics as m;
use super::template::{Filling, Template};
use crate::mix::mix;
use crate::session::exchange::{After, Ended, Exchange, Plan, Tools};
use crate::session::{self, Pace};
use crate::websocket as ws;
use mediagen::steps;

/// Number of messages after the first pending one, and before it, with which an answer is compared.
const LOOK_AROUND: u64 = 16;

/// Messages and expected answers that all clients of a population share.
#[derive(Debug)]
pub struct Script {
    template: Template,
    framing: Framing,
    answers: Answers,
    pace: Pace,
    /// Maximum number of messages in flight.
    in_flight: usize,
    limit: u64,
    longest: u64,
    answer_timeout: Duration,
    patience: Duration,
    /// Wall-clock time in nanoseconds since 1970 when the run's time began.
    wall_nanos: u64,
}

impl Script {
    /// Creates a script from a checked configuration. `websocket` is true if messages use a
    /// WebSocket.
    ///
    /// # Errors
    /// The reason that the check gives, if the configuration is invalid.
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

    /// Framing of messages.
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// Returns the length of message `number` with its framing and `sealing` bytes of TLS.
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

/// Client's side of a connection.
#[derive(Debug)]
pub struct Caller {
    script: Arc<Script>,
    seed: u64,
    sent: u64,
    acknowledged: u64,
    /// Messages that wait for their answers: the last ones sent.
    pending: VecDeque<Pending>,
    reader: MessageReader,
    /// True if an answer timed out, so that it may arrive late.
    gave_up: bool,
    /// True if nothing more may be sent.
    finished: bool,
    /// For a WebSocket: true if the client sent its close frame (RFC 6455, 7.1.2).
    said_close: bool,
    /// For a WebSocket: true if the server's close frame arrived.
    heard_close: bool,
}

impl Caller {
    /// Creates a caller that has sent nothing. Its random choices derive from `seed`.
    pub fn new(script: Arc<Script>, seed: u64) -> Caller {
        Caller {
            script,
            seed,
            sent: 0,
            acknowledged: 0,
            pending: VecDeque::new(),
            reader: MessageReader::default(),
            gave_up: false,
            finished: false,
            said_close: false,
            heard_close: false,
        }
    }

    /// Sets a reader that may hold the beginning of a message from the server.
    pub fn with_reader(mut self, reader: MessageReader) -> Caller {
        self.reader = reader;
        self
    }

    /// Returns true if another message may be sent now.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.pending.len() < self.script.in_flight && !self.is_spent()
    }

    /// Returns true if all messages were sent, or no more may be.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.sent >= self.script.limit || self.finished
    }

    fn is_websocket(&self) -> bool {
        matches!(self.script.framing, Framing::WebSocket { .. })
    }

    /// Returns true if it is [spent](Caller::is_spent), and waits for no answer.
    pub fn is_done(&self) -> bool {
        self.is_spent() && self.pending.is_empty()
    }

    fn after(&self) -> After {
        match self.is_done() {
            true => After::Finish,
            false => After::Go,
        }
    }

    fn filling(&self, number: u64, sent: Time) -> Filling {
        filling(&self.script, self.seed, number, sent)
    }

    /// Appends the next message to `out` (hot path). It counts once it was [sent](Caller::sent).
    #[inline]
    pub fn write_next(&self, now: Time, out: &mut Vec<u8>) {
        let number = self.sent + 1;
        write(&self.script, &self.filling(number, now), out);
    }

    /// Records that the last message written was sent, with `bytes` bytes including framing.
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

    /// Appends the messages that answers allow, planned for `planned`.
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

    /// Returns the number of messages that have a byte among the last `bytes` bytes sent.
    fn messages_in(&self, bytes: u64, sealing: usize) -> u64 {
        let (mut left, mut number, mut messages) = (bytes, self.sent, 0);
        while left > 0 && number > 0 {
            // Messages whose numbers have equally many digits have the same length.
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
}

impl Exchange for Caller {
    fn plan(&self) -> Plan {
        Plan {
            pace: self.script.pace,
            round_ended: |took, recorder| {
                recorder.add(m::ROUNDS, 1);
                recorder.record(m::ROUND_DURATION, took.as_nanos() as u64);
            },
        }
    }

    fn wants_times(&self) -> bool {
        self.script.answers != Answers::None
    }

    fn begin(&mut self, tools: &mut Tools<'_>) {
        self.send_on(tools.now, tools);
    }

    fn write_planned(&mut self, tools: &mut Tools<'_>) {
        if self.may_send() {
            self.write_next(tools.now, tools.out);
        } else if !self.is_spent() {
            self.planned_not_sent(tools.recorder);
        }
    }

    fn planned_sent(&mut self, planned: Time, tools: &mut Tools<'_>) -> After {
        self.sent(planned, tools.now, tools.out.len(), tools.recorder);
        self.after()
    }

    fn planned_not_sent(&mut self, recorder: &mut Recorder) {
        recorder.add(m::DUE_NOT_SENT, 1);
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
            let wanted = ReadLimits {
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
                    // The close frame is answered (RFC 6455, 5.5.1).
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
        Ok(self.after())
    }

    fn due(&mut self, _: &mut Tools<'_>) -> After {
        self.after()
    }

    // Gives up answers that have timed out.
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
        self.after()
    }

    fn wants_acknowledged(&self) -> bool {
        self.acknowledged < self.sent
    }

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

    fn finish(&mut self) {
        self.finished = true;
    }

    fn patience(&self) -> Option<Duration> {
        let waits = !self.pending.is_empty() && !self.heard_close;
        waits.then_some(self.script.patience)
    }

    // Sends the close frame of a WebSocket, once.
    fn goodbye(&mut self, out: &mut Vec<u8>) {
        if self.is_websocket() && !self.said_close {
            self.said_close = true;
            let mask = mix(&[self.seed, self.sent, 8]) as u32;
            ws::write_control(ws::CLOSE, &ws::NORMAL.to_be_bytes(), Some(mask), out);
        }
    }

    // RFC 6455, 7.1.1.
    fn waits_for_goodbye(&self) -> bool {
        self.said_close && !self.heard_close
    }

    fn ended(&mut self, how: &Ended, recorder: &mut Recorder) {
        recorder.add(m::CLOSED_IN_ORDER, u64::from(*how == Ended::InOrder));
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

/// A received message.
struct Answer<'a> {
    body: Option<&'a [u8]>,
    at: Time,
    /// Number of the first message that waits for its answer.
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
            // Building a message takes time proportional to its length, so an answer of another
            // length is rejected first.
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
            // A late answer to a message that was given up, whose time of sending is no longer
            // known.
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

#[cfg(test)]
mod tests;

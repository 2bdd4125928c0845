//! Client's side of a connection that was handed over: sends messages by a schedule or as answers
//! arrive, and matches answers with messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use measure::{Recorder, Time};

use super::config::{Answers, ClientConfig};
use super::failure::{Failure, count_ping};
use super::framing::{Framing, MessageReader, ReadLimits, Received};
use super::metrics as m;
use super::template::{PlaceholderValues, Template};
use kit::mediagen::steps;
use kit::websocket as ws;
use session::Pace;
use session::exchange::{Exchange, ExchangeContext, ExchangeEnd, NextStep, Plan};
use session::seeds::derive_seed;

/// Number of messages after the first pending one, and before it, with which an answer is compared.
const COMPARED_MESSAGES: u64 = 16;

/// Messages and expected answers that all clients of a population share.
#[derive(Debug)]
pub struct ClientScript {
    template: Template,
    framing: Framing,
    answers: Answers,
    pace: Pace,
    /// Maximum number of messages in flight.
    in_flight: usize,
    limit: u64,
    longest: u64,
    answer_timeout: Duration,
    answer_wait_at_end: Duration,
    /// Wall-clock time in nanoseconds since 1970 when the run's time began.
    wall_nanos: u64,
}

impl ClientScript {
    /// Creates a script from a checked configuration. `websocket` is true if messages use a
    /// WebSocket.
    ///
    /// # Errors
    /// The reason that the check gives, if the configuration is invalid.
    pub fn new(
        config: &ClientConfig,
        websocket: bool,
        wall_clock: Duration,
    ) -> Result<ClientScript, String> {
        let template = config.template().map_err(|(_, error)| error)?;
        let framing = match websocket {
            true => Framing::WebSocket {
                masked: true,
                text: config.websocket_text.unwrap_or(template.is_text()),
            },
            false => config.framing.to_wire_framing(),
        };
        Ok(ClientScript {
            in_flight: config.in_flight(),
            limit: config.messages.unwrap_or(u64::MAX),
            longest: config.longest_answer.0,
            answer_timeout: config.answer_timeout.0,
            answer_wait_at_end: config.close_timeout.0 / 2,
            wall_nanos: u64::try_from(wall_clock.as_nanos()).unwrap_or(0),
            answers: config.expected_answers(),
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
    fn framed_length(&self, number: u64, sealing: usize) -> u64 {
        let length = self.template.length(number);
        (length + self.framing.overhead(length) + sealing) as u64
    }

    /// Values for the placeholders of message `number`, sent at `sent`.
    #[inline]
    pub(super) fn placeholder_values(
        &self,
        seed: u64,
        number: u64,
        sent: Time,
    ) -> PlaceholderValues {
        PlaceholderValues {
            number,
            nanos: self.wall_nanos.saturating_add(sent.as_nanos()),
            seed,
        }
    }

    /// Appends a message with its framing.
    #[inline]
    fn write(&self, values: &PlaceholderValues, out: &mut Vec<u8>) {
        let length = self.template.length(values.number);
        let mask = match self.framing {
            Framing::WebSocket { masked: true, .. } => {
                derive_seed(&[values.seed, values.number, 5]) as u32
            }
            _ => 0,
        };
        self.framing.write_header(length, mask, out);
        self.template.write(values, out);
        self.framing.write_trailer(length, mask, out);
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
pub struct ClientExchange {
    script: Arc<ClientScript>,
    seed: u64,
    sent: u64,
    acknowledged: u64,
    /// Messages that wait for their answers: the last ones sent.
    pending: VecDeque<Pending>,
    reader: MessageReader,
    /// True if an answer timed out, so that it may arrive late.
    has_timed_out: bool,
    /// True if nothing more may be sent.
    finished: bool,
    /// For a WebSocket: true if the client sent its close frame (RFC 6455, 7.1.2).
    close_sent: bool,
    /// For a WebSocket: true if the server's close frame arrived.
    close_received: bool,
}

impl ClientExchange {
    /// Creates an exchange in which nothing was sent. Its random choices derive from `seed`.
    pub fn new(script: Arc<ClientScript>, seed: u64) -> ClientExchange {
        ClientExchange {
            script,
            seed,
            sent: 0,
            acknowledged: 0,
            pending: VecDeque::new(),
            reader: MessageReader::default(),
            has_timed_out: false,
            finished: false,
            close_sent: false,
            close_received: false,
        }
    }

    /// Sets a reader that may hold the beginning of a message from the server.
    pub fn with_reader(mut self, reader: MessageReader) -> ClientExchange {
        self.reader = reader;
        self
    }

    /// Returns true if another message may be sent now.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.pending.len() < self.script.in_flight && !self.has_sent_all()
    }

    /// Returns true if all messages were sent, or no more may be.
    #[inline]
    pub fn has_sent_all(&self) -> bool {
        self.sent >= self.script.limit || self.finished
    }

    fn is_websocket(&self) -> bool {
        matches!(self.script.framing, Framing::WebSocket { .. })
    }

    /// Returns true if all messages were sent, or no more may be, and no answer is awaited.
    pub fn is_done(&self) -> bool {
        self.has_sent_all() && self.pending.is_empty()
    }

    fn next_step(&self) -> NextStep {
        match self.is_done() {
            true => NextStep::Finish,
            false => NextStep::Continue,
        }
    }

    /// Appends the next message to `out` (hot path). It counts once it was
    /// [sent](ClientExchange::record_sent).
    #[inline]
    pub fn write_next(&self, now: Time, out: &mut Vec<u8>) {
        let number = self.sent + 1;
        let script = &self.script;
        script.write(&script.placeholder_values(self.seed, number, now), out);
    }

    /// Records that the last message written was sent, with `bytes` bytes including framing.
    #[inline]
    pub fn record_sent(&mut self, planned: Time, now: Time, bytes: usize, recorder: &mut Recorder) {
        self.sent += 1;
        recorder.add(m::SENT, 1);
        recorder.add(m::BYTES_SENT, bytes as u64);
        recorder.record_duration(m::MESSAGE_LATENESS, now.since(planned));
        if self.script.answers != Answers::None {
            self.pending.push_back(Pending { planned, sent: now });
        }
    }

    /// Appends the messages that answers allow, planned for `planned`.
    fn send_allowed(&mut self, planned: Time, tools: &mut ExchangeContext<'_>) {
        if self.script.pace != Pace::OnAnswer {
            return;
        }
        while self.may_send() {
            let from = tools.out.len();
            self.write_next(tools.now, tools.out);
            self.record_sent(planned, tools.now, tools.out.len() - from, tools.recorder);
        }
    }

    /// Returns the number of messages that have a byte among the last `bytes` bytes sent.
    fn messages_in_last_bytes(&self, bytes: u64, sealing: usize) -> u64 {
        let (mut left, mut number, mut messages) = (bytes, self.sent, 0);
        while left > 0 && number > 0 {
            // Messages whose numbers have equally many digits have the same length.
            let least = match self.script.template.has_fixed_length() {
                true => 1,
                false => 10u64.pow(number.ilog10()),
            };
            let length = self.script.framed_length(number, sealing).max(1);
            let here = left.div_ceil(length).min(number - least + 1);
            messages += here;
            number -= here;
            left = left.saturating_sub(here * length);
        }
        messages
    }
}

impl Exchange for ClientExchange {
    fn plan(&self) -> Plan {
        Plan {
            pace: self.script.pace,
            round_ended: |took, recorder| {
                recorder.add(m::ROUNDS, 1);
                recorder.record_duration(m::ROUND_DURATION, took);
            },
        }
    }

    fn needs_arrival_times(&self) -> bool {
        self.script.answers != Answers::None
    }

    fn start(&mut self, tools: &mut ExchangeContext<'_>) {
        self.send_allowed(tools.now, tools);
    }

    fn write_planned(&mut self, tools: &mut ExchangeContext<'_>) {
        if self.may_send() {
            self.write_next(tools.now, tools.out);
        } else if !self.has_sent_all() {
            self.planned_dropped(tools.recorder);
        }
    }

    fn planned_sent(&mut self, planned: Time, tools: &mut ExchangeContext<'_>) -> NextStep {
        self.record_sent(planned, tools.now, tools.out.len(), tools.recorder);
        self.next_step()
    }

    fn planned_dropped(&mut self, recorder: &mut Recorder) {
        recorder.add(m::DUE_NOT_SENT, 1);
    }

    fn received(
        &mut self,
        bytes: &[u8],
        at: Time,
        tools: &mut ExchangeContext<'_>,
    ) -> Result<NextStep, session::Failure> {
        tools.recorder.add(m::BYTES_RECEIVED, bytes.len() as u64);
        if self.script.answers == Answers::None && !self.is_websocket() {
            tools.recorder.add(m::UNASKED, 1);
            return Ok(NextStep::Continue);
        }
        let mut input = bytes;
        let mut pings = 0;
        while !input.is_empty() {
            let script = &*self.script;
            let first = self.sent - self.pending.len() as u64 + 1;
            let awaited = script.template.length(first);
            let limits = ReadLimits {
                unframed_length: match (script.answers, self.pending.is_empty()) {
                    (Answers::Echo, false) => awaited,
                    _ => 0,
                },
                kept_bytes_max: match script.answers {
                    Answers::Echo => script.template.length_max(),
                    Answers::Any | Answers::None => 0,
                },
                length_max: script.longest,
            };
            let item = self.reader.next_item(&script.framing, &limits, &mut input);
            match item.map_err(Failure::from_malformed)? {
                None => break,
                Some(Received::Ping(payload)) => {
                    count_ping(&mut pings)?;
                    let mask = derive_seed(&[self.seed, self.sent]) as u32;
                    ws::write_control(ws::PONG, payload, Some(mask), tools.out);
                }
                Some(Received::Close(_)) if self.finished => {
                    self.close_received = true;
                    return Ok(NextStep::Finish);
                }
                Some(Received::Close(code)) => {
                    // The close frame is answered (RFC 6455, 5.5.1).
                    self.write_close(tools.out);
                    let code = code.map_or_else(String::new, |code| format!(" with code {code}"));
                    let detail = format!("the server closed the WebSocket{code}");
                    return Err(Failure::ClosedByServer.with(detail));
                }
                Some(Received::Message(frame)) => {
                    let answer = ReceivedAnswer {
                        body: frame.body,
                        at,
                        first,
                    };
                    answer.match_pending(
                        script,
                        self.seed,
                        self.has_timed_out,
                        &mut self.pending,
                        tools,
                    );
                }
            }
        }
        self.reader.release_memory();
        self.send_allowed(at, tools);
        Ok(self.next_step())
    }

    fn run_scheduled(&mut self, _: &mut ExchangeContext<'_>) -> NextStep {
        self.next_step()
    }

    // Gives up answers that have timed out.
    fn check_timeouts(&mut self, tools: &mut ExchangeContext<'_>) -> NextStep {
        let before = self.pending.len();
        while let Some(first) = self.pending.front()
            && tools.now.since(first.sent) >= self.script.answer_timeout
        {
            self.pending.pop_front();
        }
        let given_up = before - self.pending.len();
        if given_up > 0 {
            self.has_timed_out = true;
            tools.recorder.add(m::ANSWERS_TIMED_OUT, given_up as u64);
            self.send_allowed(tools.now, tools);
        }
        self.next_step()
    }

    fn tracks_acknowledgements(&self) -> bool {
        self.acknowledged < self.sent
    }

    fn acknowledged(&mut self, waiting: u64, sealing: usize, recorder: &mut Recorder) {
        let close = match self.close_sent {
            true => ws::header_len(2, true) + 2 + sealing,
            false => 0,
        };
        let waiting = waiting.saturating_sub(close as u64);
        let acknowledged = self.sent - self.messages_in_last_bytes(waiting, sealing);
        if let Some(more) = acknowledged.checked_sub(self.acknowledged) {
            recorder.add(m::ACKNOWLEDGED, more);
            self.acknowledged = acknowledged;
        }
    }

    fn finish(&mut self) {
        self.finished = true;
    }

    fn answer_timeout(&self) -> Option<Duration> {
        let waits = !self.pending.is_empty() && !self.close_received;
        waits.then_some(self.script.answer_wait_at_end)
    }

    // Sends the close frame of a WebSocket, once.
    fn write_close(&mut self, out: &mut Vec<u8>) {
        if self.is_websocket() && !self.close_sent {
            self.close_sent = true;
            let mask = derive_seed(&[self.seed, self.sent, 8]) as u32;
            ws::write_control(ws::CLOSE, &ws::NORMAL.to_be_bytes(), Some(mask), out);
        }
    }

    // RFC 6455, 7.1.1.
    fn awaits_close_answer(&self) -> bool {
        self.close_sent && !self.close_received
    }

    fn ended(&mut self, how: &ExchangeEnd, recorder: &mut Recorder) {
        recorder.add(m::CLOSED_IN_ORDER, u64::from(*how == ExchangeEnd::Finished));
        recorder.add(m::LOST_IN_FLIGHT, self.sent - self.acknowledged);
        recorder.add(m::UNANSWERED, self.pending.len() as u64);
    }
}

/// A received message.
struct ReceivedAnswer<'a> {
    body: Option<&'a [u8]>,
    at: Time,
    /// Number of the first message that waits for its answer.
    first: u64,
}

impl ReceivedAnswer<'_> {
    fn match_pending(
        self,
        script: &ClientScript,
        seed: u64,
        gave_up: bool,
        pending: &mut VecDeque<Pending>,
        tools: &mut ExchangeContext<'_>,
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
            steps::count_bytes(length);
            tools.scratch.clear();
            let values = script.placeholder_values(seed, number, sent);
            script.template.write(&values, tools.scratch);
            self.body == Some(&**tools.scratch)
        };
        let position = match script.answers {
            Answers::Echo => (self.first..self.first + COMPARED_MESSAGES)
                .zip(pending.iter())
                .position(|(number, pending)| is(number, pending.sent)),
            Answers::Any => Some(0),
            Answers::None => return tools.recorder.add(m::UNASKED, 1),
        };
        match position {
            Some(skipped) => {
                tools.recorder.add(m::ANSWERS_MISSED, skipped as u64);
                pending.drain(..skipped);
                if let Some(message) = pending.pop_front() {
                    tools.recorder.add(m::ANSWERED, 1);
                    for (histogram, from) in [
                        (m::ROUND_TRIP, message.planned),
                        (m::ROUND_TRIP_FROM_SENT, message.sent),
                    ] {
                        let took = self.at.since(from);
                        tools.recorder.record_duration(histogram, took);
                    }
                }
            }
            // A late answer to a message that was given up, whose time of sending is no longer
            // known.
            None if gave_up && !script.template.contains_time() && {
                let earlier = self.first.saturating_sub(COMPARED_MESSAGES).max(1)..self.first;
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

//! Message reference server: counts messages, sends them back in echo mode, injects faults on
//! request, and counts exactly what it did.

pub(super) mod reference;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use measure::{Catalogue, Recorder, Time};

use super::failure::{Failure, count_ping};
use super::framing::{Framing, MessageReader, ReadLimits, Received};
use super::metrics::{self as m, SERVED};
use kit::faults::{FaultSet, share, time};
use kit::metrics::CLIENTS;
use kit::websocket::{self as ws, ServerHandshake};
use session::exchange::{Exchange, ExchangeContext, ExchangeEnd, NextStep};
use session::seeds::derive_seed;
use session::{ChannelId, Context, Input, Outcome, Output, Port, Session};

/// Maximum length of a message that is buffered: over a WebSocket each message is, otherwise only
/// if its answer may be corrupted, delayed or dropped.
const PARSED_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a message.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Treatment of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Messages are counted.
    Sink,
    /// Messages are counted and sent back.
    #[default]
    Echo,
}

/// Faults to inject. Default: none. Shares refer to messages and are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MessageFaults {
    /// Delay of answers.
    pub delay: Duration,
    /// Share of messages without an answer.
    pub drop: f64,
    /// Share of messages whose answer has a wrong last byte.
    pub wrong: f64,
    /// Share of messages after which the connection is closed without an answer.
    pub close: f64,
    /// True if the server never reads.
    pub deaf: bool,
}

impl FaultSet for MessageFaults {
    fn known() -> Vec<&'static str> {
        vec!["delay=5ms", "drop=1%", "wrong=1%", "close=1%", "deaf"]
    }

    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "delay" => time(value).map(|delay| self.delay = delay),
            "drop" => share(value).map(|share| self.drop = share),
            "wrong" => share(value).map(|share| self.wrong = share),
            "close" => share(value).map(|share| self.close = share),
            "deaf" if value.is_empty() => {
                self.deaf = true;
                Ok(())
            }
            _ => return None,
        })
    }
}

impl MessageFaults {
    /// Returns true if each message must be parsed.
    fn need_parsing(&self) -> bool {
        !self.delay.is_zero() || self.drop > 0.0 || self.wrong > 0.0 || self.close > 0.0
    }
}

/// Settings of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageServerConfig {
    /// Treatment of messages.
    pub mode: Mode,
    /// Framing of messages.
    pub framing: Framing,
    /// Message size in bytes if there is no framing.
    pub size: usize,
    /// Faults to inject.
    pub faults: MessageFaults,
    /// Seed of all random choices.
    pub seed: u64,
}

impl MessageServerConfig {
    /// Metrics of the server's connections.
    pub const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &SERVED]);

    /// Creates the session of the accepted connection `number`.
    pub fn session(self: &Arc<MessageServerConfig>, number: u64) -> Box<dyn Session> {
        Box::new(ServerSession {
            config: self.clone(),
            number,
            state: State::New,
            handshake: ServerHandshake::default(),
            handshake_until: None,
        })
    }
}

/// Server's side of a connection.
#[derive(Debug)]
pub struct ServerExchange {
    config: Arc<MessageServerConfig>,
    number: u64,
    /// Number of messages so far.
    messages: u64,
    /// Number of bytes of an incomplete message without framing.
    incomplete_bytes: usize,
    reader: MessageReader,
    /// Delayed answers with their due times.
    delayed: VecDeque<(Time, Box<[u8]>)>,
    delayed_bytes: usize,
}

impl ServerExchange {
    pub(super) fn new(config: Arc<MessageServerConfig>, number: u64) -> ServerExchange {
        ServerExchange {
            config,
            number,
            messages: 0,
            incomplete_bytes: 0,
            reader: MessageReader::default(),
            delayed: VecDeque::new(),
            delayed_bytes: 0,
        }
    }

    /// Returns true if a fault with this share affects the current message. `which` distinguishes
    /// faults.
    fn has_fault(&self, share: f64, which: u64) -> bool {
        share > 0.0
            && (derive_seed(&[self.config.seed, self.number, self.messages, which]) as f64)
                < share * u64::MAX as f64
    }

    /// Sends the answer in `scratch`, or queues it for its delay.
    fn send_or_delay(&mut self, config: &MessageServerConfig, tools: &mut ExchangeContext<'_>) {
        if config.faults.delay.is_zero() {
            tools.out.extend_from_slice(tools.scratch);
            count_answer(tools.scratch.len(), tools.recorder);
        } else {
            self.delayed_bytes += tools.scratch.len();
            let due = tools.now + config.faults.delay;
            self.delayed
                .push_back((due, tools.scratch.as_slice().into()));
        }
    }

    /// Handles bytes without faults: counts messages, and in echo mode sends the bytes back
    /// unchanged.
    fn count_and_echo(
        &mut self,
        config: &MessageServerConfig,
        bytes: &[u8],
        tools: &mut ExchangeContext<'_>,
    ) -> Result<NextStep, session::Failure> {
        let before = self.messages;
        match &config.framing {
            Framing::None => {
                let all = self.incomplete_bytes + bytes.len();
                let size = config.size.max(1);
                self.messages += (all / size) as u64;
                self.incomplete_bytes = all % size;
            }
            framing => {
                let limits = ReadLimits {
                    unframed_length: 0,
                    kept_bytes_max: 0,
                    length_max: MESSAGE_BYTES_MAX,
                };
                let mut input = bytes;
                while let Some(item) = self
                    .reader
                    .next_item(framing, &limits, &mut input)
                    .map_err(Failure::from_malformed)?
                {
                    self.messages += u64::from(matches!(item, Received::Message(_)));
                }
            }
        }
        let messages = self.messages - before;
        tools.recorder.add(m::RECEIVED, messages);
        if config.mode == Mode::Echo {
            tools.out.extend_from_slice(bytes);
            tools.recorder.add(m::ANSWERS, messages);
            tools.recorder.add(m::REPLIED_BYTES, bytes.len() as u64);
        }
        Ok(NextStep::Continue)
    }
}

impl Exchange for ServerExchange {
    fn sends_after_peer_closed(&self) -> bool {
        true
    }

    fn received(
        &mut self,
        bytes: &[u8],
        _: Time,
        tools: &mut ExchangeContext<'_>,
    ) -> Result<NextStep, session::Failure> {
        tools.recorder.add(m::RECEIVED_BYTES, bytes.len() as u64);
        let config = self.config.clone();
        if !config.faults.need_parsing() && !matches!(config.framing, Framing::WebSocket { .. }) {
            return self.count_and_echo(&config, bytes, tools);
        }
        let limits = ReadLimits {
            unframed_length: config.size,
            kept_bytes_max: PARSED_BYTES_MAX,
            length_max: MESSAGE_BYTES_MAX,
        };
        let mut input = bytes;
        let mut pings = 0;
        loop {
            let item = self.reader.next_item(&config.framing, &limits, &mut input);
            let frame = match item.map_err(Failure::from_malformed)? {
                None => break,
                Some(Received::Message(frame)) => frame,
                Some(Received::Ping(payload)) => {
                    count_ping(&mut pings)?;
                    ws::write_control(ws::PONG, payload, None, tools.out);
                    continue;
                }
                Some(Received::Close(code)) => {
                    let code = code.map(u16::to_be_bytes);
                    let payload = code.as_ref().map_or(&[][..], |code| code);
                    ws::write_control(ws::CLOSE, payload, None, tools.out);
                    return Ok(NextStep::Finish);
                }
            };
            self.messages += 1;
            tools.recorder.add(m::RECEIVED, 1);
            tools.scratch.clear();
            match frame.body {
                Some(body) => config.framing.write(body, 0, tools.scratch),
                None => {
                    let detail = format!(
                        "message of {} bytes; WebSockets and faults support at most {PARSED_BYTES_MAX}",
                        frame.length
                    );
                    return Err(Failure::MalformedAnswer.with(detail));
                }
            }
            let body = frame.length as usize;
            if self.has_fault(config.faults.close, 1) {
                tools.recorder.add(m::CLOSED, 1);
                return Ok(NextStep::Close);
            }
            if config.mode == Mode::Sink {
                continue;
            }
            if self.has_fault(config.faults.drop, 2) {
                tools.recorder.add(m::DROPPED, 1);
                continue;
            }
            if self.has_fault(config.faults.wrong, 3) && body > 0 {
                tools.recorder.add(m::CORRUPTED, 1);
                corrupt(&config.framing, body, tools.scratch);
            }
            self.send_or_delay(&config, tools);
        }
        self.reader.release_memory();
        Ok(NextStep::Continue)
    }

    fn next_due(&self) -> Option<Time> {
        self.delayed.front().map(|(due, _)| *due)
    }

    fn run_scheduled(&mut self, tools: &mut ExchangeContext<'_>) -> NextStep {
        while let Some((due, _)) = self.delayed.front()
            && *due <= tools.now
            && let Some((_, bytes)) = self.delayed.pop_front()
        {
            self.delayed_bytes -= bytes.len();
            tools.out.extend_from_slice(&bytes);
            count_answer(bytes.len(), tools.recorder);
        }
        NextStep::Continue
    }

    fn backlog(&self) -> usize {
        match self.config.faults.deaf {
            // Backpressure so high that nothing is ever read.
            true => usize::MAX,
            false => self.delayed_bytes,
        }
    }

    fn ended(&mut self, how: &ExchangeEnd, recorder: &mut Recorder) {
        recorder.add(m::CONNECTIONS_ENDED, 1);
        let broken = !matches!(how, ExchangeEnd::Finished | ExchangeEnd::ClosedByUs);
        recorder.add(m::BROKEN, u64::from(broken));
    }
}

fn count_answer(bytes: usize, recorder: &mut Recorder) {
    recorder.add(m::ANSWERS, 1);
    recorder.add(m::REPLIED_BYTES, bytes as u64);
}

/// Changes the last byte of a framed message of `body` bytes, but never to a byte of the delimiter.
fn corrupt(framing: &Framing, body: usize, framed: &mut [u8]) {
    let behind = match framing {
        Framing::Delimiter(delimiter) => delimiter.len(),
        _ => 0,
    };
    let last = framed.len() - behind - 1;
    debug_assert!(body > 0 && behind + body <= framed.len());
    let ends =
        |byte: u8| matches!(framing, Framing::Delimiter(delimiter) if delimiter.contains(&byte));
    let other = [1, 2, 4, 8, 16]
        .into_iter()
        .map(|bit| framed[last] ^ bit)
        .find(|&byte| !ends(byte));
    framed[last] = other.unwrap_or(framed[last] ^ 1);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    HandedOver,
    Ended,
}

/// Time limit for a complete WebSocket request. Slower clients are disconnected, so that they
/// cannot hold unused connections. (Plain connections have no handshake: a client that sends
/// nothing on one is waiting.)
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Channel of the accepted connection.
const CHANNEL: ChannelId = ChannelId(0);

/// Session of a connection: hands it over, and ends with it.
struct ServerSession {
    config: Arc<MessageServerConfig>,
    number: u64,
    state: State,
    /// State of the WebSocket handshake.
    handshake: ServerHandshake,
    /// Time limit for the handshake, while it is incomplete.
    handshake_until: Option<Time>,
}

impl ServerSession {
    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if self.state != State::Ended {
            self.state = State::Ended;
            cx.out.push_back(Output::Ended(outcome));
        }
    }

    fn opened(&mut self, cx: &mut Context<'_>) {
        cx.recorder.add(m::CONNECTIONS, 1);
        match self.config.framing {
            Framing::WebSocket { .. } => self.handshake_until = Some(cx.now + HANDSHAKE_TIMEOUT),
            _ => self.hand_over(cx),
        }
    }

    /// Ends a connection on which no WebSocket was established.
    fn fail_handshake(&mut self, cx: &mut Context<'_>, why: &str) {
        cx.recorder.add(m::CONNECTIONS_ENDED, 1);
        cx.recorder.add(m::BROKEN, 1);
        self.end(cx, Outcome::Failed(Failure::WebSocketRefused.with(why)));
    }

    /// Answers a WebSocket handshake once the request is complete.
    fn upgrade(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        let mut rest = bytes;
        let answer = match self.handshake.read_request(&mut rest) {
            Ok(None) => return,
            Ok(Some(answer)) => answer,
            Err(why) => return self.fail_handshake(cx, why),
        };
        cx.out.push_back(Output::Send {
            channel: CHANNEL,
            port: Port::Media,
            bytes: answer,
        });
        // A client must wait for the answer before it sends more (RFC 6455, 4.1).
        if !rest.is_empty() {
            cx.recorder.add(m::BROKEN, 1);
        }
        self.hand_over(cx);
    }

    fn hand_over(&mut self, cx: &mut Context<'_>) {
        self.state = State::HandedOver;
        self.handshake_until = None;
        let exchange = ServerExchange::new(self.config.clone(), self.number);
        cx.out.push_back(Output::Exchange {
            channel: CHANNEL,
            exchange: Box::new(exchange),
        });
    }
}

impl Session for ServerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Opened { .. } => self.opened(cx),
            Input::Bytes { bytes, .. } if self.state == State::New => self.upgrade(cx, bytes),
            Input::ExchangeEnded { .. } => self.end(cx, Outcome::Completed),
            Input::Closed { .. } => {
                cx.recorder.add(m::CONNECTIONS_ENDED, 1);
                self.end(cx, Outcome::Completed);
            }
            Input::Stop { until } if self.state == State::HandedOver && cx.now < until => {
                cx.out
                    .push_back(Output::FinishExchange { channel: CHANNEL });
            }
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
        if self.handshake_until.is_some_and(|until| cx.now >= until) && self.state == State::New {
            self.fail_handshake(
                cx,
                &format!("no complete request within {HANDSHAKE_TIMEOUT:?}"),
            );
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.handshake_until.filter(|_| self.state == State::New)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let mut faults = MessageFaults::default();
        for known in MessageFaults::known() {
            faults.add(known).expect("it is known");
        }
        let expected = MessageFaults {
            delay: Duration::from_millis(5),
            drop: 0.01,
            wrong: 0.01,
            close: 0.01,
            deaf: true,
        };
        assert_eq!(faults, expected);
        for wrong in ["", "lose=1%", "drop", "drop=2", "delay=5", "deaf=1"] {
            let error = faults.add(wrong).expect_err("it is wrong");
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }

    #[test]
    fn corrupted_messages_keep_their_framing() {
        let mut framed = b"ab\x0b\n".to_vec();
        corrupt(&Framing::Delimiter(b"\n".as_slice().into()), 3, &mut framed);
        assert_eq!(framed, b"ab\x09\n");
        let mut framed = b"\x02ab".to_vec();
        corrupt(&Framing::None, 3, &mut framed);
        assert_eq!(framed, b"\x02ac");
    }

    /// A session of a WebSocket server with its surroundings.
    struct Bench {
        session: Box<dyn Session>,
        recorder: Recorder,
        out: VecDeque<Output>,
        now: Time,
    }

    impl Bench {
        fn opened(framing: Framing) -> Bench {
            let config = Arc::new(MessageServerConfig {
                mode: Mode::Echo,
                framing,
                size: 16,
                faults: MessageFaults::default(),
                seed: 1,
            });
            let mut bench = Bench {
                session: config.session(1),
                recorder: Recorder::new(MessageServerConfig::CATALOGUE),
                out: VecDeque::new(),
                now: Time::from_start(Duration::from_secs(1)),
            };
            bench.input(Input::Opened {
                channel: CHANNEL,
                local: "10.0.0.1:80".parse().expect("an address"),
                remote: None,
            });
            bench
        }

        fn input(&mut self, input: Input<'_>) {
            let mut cx = Context {
                now: self.now,
                recorder: &mut self.recorder,
                sinks: &mut session::Sinks::default(),
                flows: &mut session::Flows::default(),
                out: &mut self.out,
                outbox: &mut session::Outbox::default(),
            };
            self.session.handle(&mut cx, input);
        }

        fn bytes(&mut self, bytes: &[u8]) {
            let at = self.now;
            self.input(Input::Bytes {
                channel: CHANNEL,
                bytes,
                at,
                runs: &[],
            });
        }
    }

    const WEBSOCKET: Framing = Framing::WebSocket {
        masked: false,
        text: true,
    };

    #[test]
    fn slow_handshake_ends_after_its_time_limit() {
        for trickles in [false, true] {
            let mut bench = Bench::opened(WEBSOCKET);
            let until = bench.now + HANDSHAKE_TIMEOUT;
            let mut request = b"GET / HTTP/1.1\r\nX: "
                .iter()
                .chain(std::iter::repeat(&b'y'));
            while bench.now < until {
                assert_eq!(bench.session.deadline(), Some(until));
                assert!(bench.out.is_empty(), "{:?}", bench.out);
                bench.now += Duration::from_millis(500);
                if trickles && bench.now < until {
                    bench.bytes(&[*request.next().expect("it has no end")]);
                }
            }
            bench.input(Input::Deadline);
            assert!(
                matches!(
                    bench.out.pop_front(),
                    Some(Output::Ended(Outcome::Failed(failure)))
                        if failure.reason == "websocket_refused" && failure.detail.contains("10s")
                ),
                "{trickles}"
            );
            assert_eq!(bench.session.deadline(), None);
            assert_eq!(bench.recorder.counter(m::BROKEN), 1);
            assert_eq!(bench.recorder.counter(m::CONNECTIONS_ENDED), 1);
        }
    }

    #[test]
    fn only_the_handshake_has_a_time_limit() {
        let mut bench = Bench::opened(WEBSOCKET);
        bench.now += HANDSHAKE_TIMEOUT / 2;
        bench.bytes(b"GET / HTTP/1.1\r\nSec-WebSocket-Key: x\r\n\r\n");
        assert_eq!(bench.session.deadline(), None);
        bench.now += HANDSHAKE_TIMEOUT;
        bench.input(Input::Deadline);
        assert!(
            !bench
                .out
                .iter()
                .any(|output| matches!(output, Output::Ended(_)))
        );
        assert_eq!(Bench::opened(Framing::None).session.deadline(), None);
    }
}

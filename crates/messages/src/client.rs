//! Message client: connects, exchanges the greeting, and hands the connection over.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use measure::Time;

use super::config::{ClientConfig, Step, parse_hex};
use super::exchange::{ClientExchange, ClientScript};
use super::failure::Failure;
use super::framing::{MessageReader, ReadLimits, Received};
use super::metrics as m;
use super::template::Template;
use super::url::Target;
use kit::connect_failure::ConnectFailure;
use kit::lifecycle::{self, FAILED_WAIT_MIN};
use kit::metrics as clients;
use kit::websocket::{self as ws, ClientHandshake};
use session::exchange::ExchangeEnd;
use session::seeds::derive_seed;
use session::{ChannelId, CloseReason, Context, Input, Note, Open, Outcome, Output, Port, Session};

const CHANNEL: ChannelId = ChannelId(0);

/// Maximum length of the server's part of the greeting.
const GREETING_BYTES_MAX: usize = 64 * 1024;

/// State that all clients of a population with the same URL share.
#[derive(Debug)]
pub struct ClientPlan {
    config: ClientConfig,
    target: Target,
    script: Arc<ClientScript>,
    steps: Vec<PreparedStep>,
    /// Answers to the offer of subprotocols that an event has reported.
    reported_subprotocols: Mutex<BTreeSet<Option<String>>>,
}

/// A prepared step of the greeting.
#[derive(Debug)]
enum PreparedStep {
    Send(Template),
    Expect(Box<[u8]>),
}

impl ClientPlan {
    /// Creates a plan from a checked configuration. `wall_clock` is the time since 1970 when the
    /// run's time began.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(
        config: &ClientConfig,
        url: &str,
        wall_clock: Duration,
    ) -> Result<ClientPlan, String> {
        let target = Target::parse(url).map_err(|error| error.to_string())?;
        let script = ClientScript::new(config, target.is_websocket(), wall_clock)?;
        let steps = config.greeting.iter().map(|step| {
            Ok(match step {
                Step::Send(text) => PreparedStep::Send(Template::parse(text)?),
                Step::SendHex(digits) => {
                    PreparedStep::Send(Template::from_bytes(&parse_hex(digits)?))
                }
                Step::Expect(text) => PreparedStep::Expect(text.as_bytes().into()),
                Step::ExpectHex(digits) => PreparedStep::Expect(parse_hex(digits)?.into()),
            })
        });
        Ok(ClientPlan {
            steps: steps.collect::<Result<_, String>>()?,
            config: config.clone(),
            target,
            script: Arc::new(script),
            reported_subprotocols: Mutex::default(),
        })
    }

    /// Counts the server's choice of a subprotocol. The first client with a choice reports it by an
    /// event.
    fn report_subprotocol(&self, cx: &mut Context<'_>, chosen: Option<&str>) {
        if self.config.subprotocols.is_empty() {
            return;
        }
        let counter = match chosen {
            Some(_) => m::SUBPROTOCOLS_CHOSEN,
            None => m::SUBPROTOCOLS_DECLINED,
        };
        cx.recorder.add(counter, 1);
        // A panic in here leaves the set unchanged.
        let reported = &self.reported_subprotocols;
        let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.insert(chosen.map(str::to_owned)) {
            let text = match chosen {
                Some(chosen) => format!("{} chose the subprotocol `{chosen}`", self.target),
                None => format!("{} chose none of the offered subprotocols", self.target),
            };
            let kind = "subprotocol";
            cx.out.push_back(Output::Note(Note { kind, text }));
        }
    }
}

/// Progress of a client.
#[derive(Debug)]
enum State {
    Idle,
    Connecting,
    /// Performs the handshake of a WebSocket, or the greeting.
    Greeting(Box<Greeting>),
    /// Exchanges messages without the session. `stopping` is the time limit once the client was
    /// told to stop.
    HandedOver {
        stopping: Option<Time>,
    },
    Ended,
}

/// State of the greeting.
#[derive(Debug, Default)]
struct Greeting {
    /// Index of the next step.
    step: usize,
    /// Handshake of a WebSocket, until it is complete.
    upgrade: Option<ClientHandshake>,
    reader: MessageReader,
    /// Without framing: received bytes that no step has consumed.
    unconsumed: Vec<u8>,
    /// Number of these bytes that were already searched.
    searched: usize,
    /// Total number of bytes received.
    received_bytes: usize,
    since: Time,
    addresses: Option<(SocketAddr, Option<SocketAddr>)>,
}

/// A client with one connection.
#[derive(Debug)]
pub struct Client {
    plan: Arc<ClientPlan>,
    seed: u64,
    state: State,
    /// Actual start of the client, and later the start of the current wait.
    waiting_since: Time,
}

impl Client {
    /// Creates a client that has not started. Its random choices derive from `seed`.
    pub fn new(plan: Arc<ClientPlan>, seed: u64) -> Client {
        Client {
            plan,
            seed,
            state: State::Idle,
            waiting_since: Time::ZERO,
        }
    }

    fn connect(&mut self, cx: &mut Context<'_>) {
        self.state = State::Connecting;
        self.waiting_since = cx.now;
        let timeout = self.plan.config.connect_timeout.0;
        let open = match &self.plan.target {
            Target::Unix(path) => Open::Unix { path: path.clone() },
            Target::Tcp {
                host, port, secure, ..
            } => Open::server(host, *port, timeout, *secure, &self.plan.config.tls),
        };
        cx.out.push_back(Output::Open {
            channel: CHANNEL,
            open,
        });
    }

    fn handle_opened(&mut self, cx: &mut Context<'_>, addresses: (SocketAddr, Option<SocketAddr>)) {
        let delay = cx.now.since(self.waiting_since);
        cx.recorder.record_duration(clients::CONNECT_DELAY, delay);
        self.waiting_since = cx.now;
        let upgrade = match &self.plan.target {
            Target::Tcp {
                websocket: Some(url),
                ..
            } => {
                let ClientConfig {
                    subprotocols,
                    headers,
                    ..
                } = &self.plan.config;
                let offered: Vec<&str> = subprotocols.iter().map(String::as_str).collect();
                let further: Vec<(&str, &str)> = headers.of_request(true).collect();
                let (upgrade, request) =
                    ClientHandshake::begin_with(url, &offered, &further, self.seed);
                send(cx, request);
                Some(upgrade)
            }
            _ => None,
        };
        if upgrade.is_none() && self.plan.steps.is_empty() {
            return self.hand_over(cx, MessageReader::default());
        }
        self.state = State::Greeting(Box::new(Greeting {
            upgrade,
            since: cx.now,
            addresses: Some(addresses),
            ..Greeting::default()
        }));
        self.continue_greeting(cx, &[]);
    }

    /// Continues the greeting after `bytes` were received.
    fn continue_greeting(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        let State::Greeting(greeting) = &mut self.state else {
            return;
        };
        match greeting.advance(&self.plan, self.seed, cx, bytes) {
            Ok(false) => {}
            Ok(true) => {
                let delay = cx.now.since(greeting.since);
                cx.recorder.record_duration(m::GREETING_DELAY, delay);
                let reader = std::mem::take(&mut greeting.reader);
                self.hand_over(cx, reader);
            }
            Err((failure, detail)) => self.fail(cx, failure, detail),
        }
    }

    fn hand_over(&mut self, cx: &mut Context<'_>, reader: MessageReader) {
        self.state = State::HandedOver { stopping: None };
        let exchange = ClientExchange::new(self.plan.script.clone(), self.seed).with_reader(reader);
        cx.out.push_back(Output::Playing { at: cx.now });
        cx.out.push_back(Output::Exchange {
            channel: CHANNEL,
            exchange: Box::new(exchange),
        });
    }

    fn handle_exchange_ended(&mut self, cx: &mut Context<'_>, how: ExchangeEnd) {
        let State::HandedOver { stopping } = self.state else {
            return;
        };
        match how {
            ExchangeEnd::Finished | ExchangeEnd::ClosedByUs if stopping.is_some() => {
                self.finish(cx, Outcome::Stopped)
            }
            ExchangeEnd::Finished | ExchangeEnd::ClosedByUs => self.finish(cx, Outcome::Completed),
            ExchangeEnd::Closed(how) => {
                let detail = match how {
                    CloseReason::Tls(error) => error.to_string(),
                    CloseReason::End => "the server closed the connection".to_owned(),
                    CloseReason::Reset | CloseReason::SendQueueFull => {
                        "the connection broke".to_owned()
                    }
                };
                self.fail(cx, Failure::from_closed(how), detail);
            }
            ExchangeEnd::Failed(failure) => self.finish(cx, Outcome::Failed(failure)),
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>, until: Time) {
        let waited = cx.now.since(self.waiting_since);
        match &mut self.state {
            State::HandedOver { stopping } if cx.now < until => {
                if stopping.is_none() {
                    *stopping = Some(until.min(cx.now + self.plan.config.close_timeout.0));
                    cx.out
                        .push_back(Output::FinishExchange { channel: CHANNEL });
                }
            }
            State::Connecting if waited >= FAILED_WAIT_MIN => {
                let detail = format!("no connection in {}", lifecycle::describe_wait(waited));
                self.fail(cx, ConnectFailure::TimedOut.into(), detail);
            }
            State::Greeting(greeting) if waited >= FAILED_WAIT_MIN => {
                let detail = greeting.describe_wait(&self.plan);
                self.fail(cx, Failure::TimeoutGreeting, detail);
            }
            _ => self.finish(cx, Outcome::Stopped),
        }
    }

    fn check_timeouts(&mut self, cx: &mut Context<'_>) {
        if self.deadline().is_none_or(|deadline| cx.now < deadline) {
            return;
        }
        match &self.state {
            State::Greeting(greeting) => {
                let detail = greeting.describe_wait(&self.plan);
                self.fail(cx, Failure::TimeoutGreeting, detail);
            }
            // Many servers do not close the connection. All that can be known is known.
            State::HandedOver { .. } => self.finish(cx, Outcome::Stopped),
            State::Idle | State::Connecting | State::Ended => {}
        }
    }

    fn fail(&mut self, cx: &mut Context<'_>, failure: Failure, detail: String) {
        let addresses = match &self.state {
            State::Greeting(greeting) => greeting.addresses,
            _ => None,
        };
        let detail = match addresses {
            Some((local, _)) => format!("{detail} ({local} to {})", self.plan.target),
            None => format!("{detail} ({})", self.plan.target),
        };
        self.finish(cx, Outcome::Failed(failure.with(detail)));
    }

    fn finish(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if !matches!(self.state, State::Ended) {
            self.state = State::Ended;
            cx.out.push_back(Output::Ended(outcome));
        }
    }
}

fn send(cx: &mut Context<'_>, bytes: Vec<u8>) {
    cx.out.push_back(Output::Send {
        channel: CHANNEL,
        port: Port::Media,
        bytes,
    });
}

impl Greeting {
    /// Performs as many steps as possible. Returns true if all are done.
    fn advance(
        &mut self,
        plan: &ClientPlan,
        seed: u64,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Result<bool, (Failure, String)> {
        self.received_bytes = self.received_bytes.saturating_add(bytes.len());
        let mut bytes = bytes;
        if let Some(upgrade) = &mut self.upgrade {
            match upgrade
                .read_response(&mut bytes)
                .map_err(|why| (Failure::WebSocketRefused, why))?
            {
                true => plan.report_subprotocol(cx, upgrade.protocol()),
                false => return Ok(false),
            }
            self.upgrade = None;
        }
        // The queue exists for one call only: bytes received are read once.
        let mut messages: VecDeque<Vec<u8>> = VecDeque::new();
        let framing = plan.script.framing();
        let unframed = *framing == super::framing::Framing::None;
        if unframed {
            self.unconsumed.extend_from_slice(bytes);
        } else {
            let limits = ReadLimits {
                unframed_length: 0,
                kept_bytes_max: GREETING_BYTES_MAX,
                length_max: GREETING_BYTES_MAX as u64,
            };
            loop {
                let item = self.reader.next_item(framing, &limits, &mut bytes);
                match item.map_err(|malformed| (Failure::MalformedAnswer, malformed.to_string()))? {
                    None => break,
                    Some(Received::Message(frame)) => {
                        messages.push_back(frame.body.unwrap_or_default().to_vec())
                    }
                    Some(Received::Ping(payload)) => {
                        let mut pong = Vec::new();
                        let mask = derive_seed(&[seed, 9]) as u32;
                        ws::write_control(ws::PONG, payload, Some(mask), &mut pong);
                        send(cx, pong);
                    }
                    Some(Received::Close(_)) => {
                        return Err((
                            Failure::ClosedInGreeting,
                            "the server closed the WebSocket".to_owned(),
                        ));
                    }
                }
            }
        }
        while let Some(step) = plan.steps.get(self.step) {
            match step {
                PreparedStep::Send(template) => {
                    let of_step = derive_seed(&[seed, self.step as u64]);
                    let values = plan.script.placeholder_values(of_step, 1, cx.now);
                    let (mut body, mut out) = (Vec::new(), Vec::new());
                    template.write(&values, &mut body);
                    let mask = derive_seed(&[seed, self.step as u64, 7]) as u32;
                    framing.write(&body, mask, &mut out);
                    cx.recorder.add(m::GREETINGS_SENT, 1);
                    send(cx, out);
                }
                PreparedStep::Expect(expected) if unframed => {
                    // The expected text may begin within bytes that were already searched.
                    let from = self.searched.saturating_sub(expected.len() - 1);
                    match find(&self.unconsumed[from..], expected) {
                        Some(at) => {
                            self.unconsumed.drain(..from + at + expected.len());
                            self.searched = 0;
                        }
                        None => {
                            self.searched = self.unconsumed.len();
                            return self.check_length(plan);
                        }
                    }
                }
                PreparedStep::Expect(expected) => loop {
                    match messages.pop_front() {
                        Some(message) if find(&message, expected).is_some() => break,
                        Some(_) => {}
                        None => return self.check_length(plan),
                    }
                },
            }
            self.step += 1;
        }
        Ok(true)
    }

    fn check_length(&self, plan: &ClientPlan) -> Result<bool, (Failure, String)> {
        match self.received_bytes > GREETING_BYTES_MAX {
            true => Err((Failure::WrongGreeting, self.describe_wait(plan))),
            false => Ok(false),
        }
    }

    /// Describes what the greeting waits for.
    fn describe_wait(&self, plan: &ClientPlan) -> String {
        let received = match self.received_bytes {
            0 => "nothing received".to_owned(),
            bytes => {
                let last = &self.unconsumed[self.unconsumed.len().saturating_sub(80)..];
                match last.is_empty() {
                    true => format!("{bytes} bytes received"),
                    false => format!("{bytes} bytes received, last `{}`", last.escape_ascii()),
                }
            }
        };
        if self.upgrade.is_some() {
            return format!("no answer to the WebSocket handshake: {received}");
        }
        match plan.steps.get(self.step) {
            Some(PreparedStep::Expect(expected)) => {
                format!(
                    "step {} of the greeting expects `{}`: {received}",
                    self.step + 1,
                    expected.escape_ascii()
                )
            }
            _ => received,
        }
    }
}

/// Returns the offset of `wanted`, which is not empty, in `bytes`.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len().max(1))
        .position(|window| window == wanted)
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match (&self.state, input) {
            (State::Ended, _) => return,
            (State::Idle, Input::Start { .. }) => self.connect(cx),
            (State::Connecting, Input::Opened { local, remote, .. }) => {
                self.handle_opened(cx, (local, remote))
            }
            (State::Connecting, Input::OpenFailed { error, .. }) => {
                self.fail(cx, Failure::Connect(error.into()), error.to_string());
            }
            (State::Greeting(_), Input::Bytes { bytes, .. }) => self.continue_greeting(cx, bytes),
            (State::Greeting(greeting), Input::Closed { reason: how, .. }) => {
                let failure = match how {
                    CloseReason::End => Failure::ClosedInGreeting,
                    how => Failure::from_closed(how),
                };
                let detail = greeting.describe_wait(&self.plan);
                self.fail(cx, failure, detail);
            }
            (State::HandedOver { .. }, Input::ExchangeEnded { reason: how, .. }) => {
                self.handle_exchange_ended(cx, how)
            }
            (_, Input::Stop { until }) => self.stop(cx, until),
            _ => {}
        }
        self.check_timeouts(cx);
    }

    fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Greeting(greeting) => Some(greeting.since + self.plan.config.greeting_timeout.0),
            State::HandedOver { stopping } => *stopping,
            State::Idle | State::Connecting | State::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests;

//! Message client: connects, exchanges the greeting, and hands the connection over.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::caller::{Caller, Script};
use super::config::{ClientConfig, Step, hex};
use super::failure::Failure;
use super::frame::{Item, MessageReader, ReadLimits};
use super::metrics as m;
use super::template::{Filling, Template};
use super::url::Target;
use crate::connect_failure::ConnectFailure;
use crate::metrics as clients;
use crate::mix::mix;
use crate::session::exchange::Ended;
use crate::session::{ChannelId, Closed, Context, Input, Open, Outcome, Output, Port, Session};
use crate::websocket::{self as ws, Upgrade};

const CHANNEL: ChannelId = ChannelId(0);

/// Maximum length of the server's part of the greeting.
const GREETING_MAX: usize = 64 * 1024;

/// Minimum time that a stopped client must have waited for its greeting to count as failed.
const IN_VAIN: Duration = Duration::from_secs(1);

/// State that all clients of a population with the same URL share.
#[derive(Debug)]
pub struct Plan {
    config: ClientConfig,
    target: Target,
    script: Arc<Script>,
    steps: Vec<Made>,
    wall_nanos: u64,
}

/// A prepared step of the greeting.
#[derive(Debug)]
enum Made {
    Send(Template),
    Expect(Box<[u8]>),
}

impl Plan {
    /// Creates a plan from a checked configuration. `wall_clock` is the time since 1970 when the
    /// run's time began.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(config: &ClientConfig, url: &str, wall_clock: Duration) -> Result<Plan, String> {
        let target = Target::parse(url).map_err(|error| error.to_string())?;
        for (key, is_written) in [
            ("headers", !config.headers.is_empty()),
            ("subprotocols", !config.subprotocols.is_empty()),
        ] {
            if is_written && !target.is_websocket() {
                return Err(format!("`{key}` needs a `ws` or `wss` URL"));
            }
        }
        let script = Script::new(config, target.is_websocket(), wall_clock)?;
        let steps = config.greeting.iter().map(|step| {
            Ok(match step {
                Step::Send(text) => Made::Send(Template::parse(text)?),
                Step::SendHex(digits) => Made::Send(Template::of_bytes(&hex(digits)?)),
                Step::Expect(text) => Made::Expect(text.as_bytes().into()),
                Step::ExpectHex(digits) => Made::Expect(hex(digits)?.into()),
            })
        });
        Ok(Plan {
            steps: steps.collect::<Result<_, String>>()?,
            config: config.clone(),
            target,
            script: Arc::new(script),
            wall_nanos: u64::try_from(wall_clock.as_nanos()).unwrap_or(0),
        })
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
    upgrade: Option<Upgrade>,
    reader: MessageReader,
    /// Without framing: received bytes that no step has consumed.
    heard: Vec<u8>,
    /// Number of these bytes that were already searched.
    looked: usize,
    /// Total number of bytes received.
    bytes: usize,
    since: Time,
    channel_ends: Option<(SocketAddr, Option<SocketAddr>)>,
}

/// A client with one connection.
#[derive(Debug)]
pub struct Client {
    plan: Arc<Plan>,
    seed: u64,
    state: State,
    /// Actual start of the client, and later the start of the current wait.
    since: Time,
}

impl Client {
    /// Creates a client that has not started. Its random choices derive from `seed`.
    pub fn new(plan: Arc<Plan>, seed: u64) -> Client {
        Client {
            plan,
            seed,
            state: State::Idle,
            since: Time::ZERO,
        }
    }

    fn connect(&mut self, cx: &mut Context<'_>) {
        self.state = State::Connecting;
        self.since = cx.now;
        let timeout = self.plan.config.connect_timeout.0;
        let open = match &self.plan.target {
            Target::Unix(path) => Open::Unix { path: path.clone() },
            Target::Port {
                host,
                port,
                secure: true,
                ..
            } => Open::Tls {
                host: host.clone(),
                port: *port,
                timeout,
                server_name: self.plan.config.tls.server_name.clone(),
            },
            Target::Port { host, port, .. } => Open::Tcp {
                host: host.clone(),
                port: *port,
                timeout,
            },
        };
        cx.out.push_back(Output::Open {
            channel: CHANNEL,
            open,
        });
    }

    fn opened(&mut self, cx: &mut Context<'_>, ends: (SocketAddr, Option<SocketAddr>)) {
        let delay = cx.now.since(self.since);
        cx.recorder
            .record(clients::CONNECT_DELAY, delay.as_nanos() as u64);
        self.since = cx.now;
        let upgrade = match &self.plan.target {
            Target::Port {
                websocket: Some(url),
                ..
            } => {
                let ClientConfig {
                    subprotocols,
                    headers,
                    ..
                } = &self.plan.config;
                let offered: Vec<&str> = subprotocols.iter().map(String::as_str).collect();
                let further: Vec<(&str, &str)> = headers
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str()))
                    .collect();
                let (upgrade, request) = Upgrade::begin_with(url, &offered, &further, self.seed);
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
            channel_ends: Some(ends),
            ..Greeting::default()
        }));
        self.greet(cx, &[]);
    }

    /// Continues the greeting after `bytes` were received.
    fn greet(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        let State::Greeting(greeting) = &mut self.state else {
            return;
        };
        match greeting.go_on(&self.plan, self.seed, cx, bytes) {
            Ok(false) => {}
            Ok(true) => {
                let delay = cx.now.since(greeting.since);
                cx.recorder
                    .record(m::GREETING_DELAY, delay.as_nanos() as u64);
                let reader = std::mem::take(&mut greeting.reader);
                self.hand_over(cx, reader);
            }
            Err((failure, detail)) => self.fail(cx, failure, detail),
        }
    }

    fn hand_over(&mut self, cx: &mut Context<'_>, reader: MessageReader) {
        self.state = State::HandedOver { stopping: None };
        let caller = Caller::new(self.plan.script.clone(), self.seed).with_reader(reader);
        cx.out.push_back(Output::Playing { at: cx.now });
        cx.out.push_back(Output::Exchange {
            channel: CHANNEL,
            exchange: Box::new(caller),
        });
    }

    fn exchanged(&mut self, cx: &mut Context<'_>, how: Ended) {
        let State::HandedOver { stopping } = self.state else {
            return;
        };
        match how {
            Ended::InOrder | Ended::OnPurpose if stopping.is_some() => {
                self.finish(cx, Outcome::Stopped)
            }
            Ended::InOrder | Ended::OnPurpose => self.finish(cx, Outcome::Completed),
            Ended::Closed(how) => {
                let detail = match how {
                    Closed::Tls(error) => error.to_string(),
                    Closed::End => "the server closed the connection".to_owned(),
                    Closed::Reset | Closed::Stuck => "the connection broke".to_owned(),
                };
                self.fail(cx, Failure::of_closed(how), detail);
            }
            Ended::Failed(failure) => self.finish(cx, Outcome::Failed(failure)),
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>, until: Time) {
        let waited = cx.now.since(self.since);
        match &mut self.state {
            State::HandedOver { stopping } if cx.now < until => {
                if stopping.is_none() {
                    *stopping = Some(until.min(cx.now + self.plan.config.close_timeout.0));
                    cx.out
                        .push_back(Output::FinishExchange { channel: CHANNEL });
                }
            }
            // A run shorter than the timeouts must not pass with a server that never answers.
            State::Connecting if waited >= IN_VAIN => {
                let detail = format!(
                    "no connection in {:.3} s, until the client was stopped",
                    waited.as_secs_f64()
                );
                self.fail(cx, ConnectFailure::TimedOut.into(), detail);
            }
            State::Greeting(greeting) if waited >= IN_VAIN => {
                let detail = greeting.waits_for(&self.plan);
                self.fail(cx, Failure::TimeoutGreeting, detail);
            }
            _ => self.finish(cx, Outcome::Stopped),
        }
    }

    /// Checks for timeouts.
    fn look(&mut self, cx: &mut Context<'_>) {
        if self.deadline().is_none_or(|deadline| cx.now < deadline) {
            return;
        }
        match &self.state {
            State::Greeting(greeting) => {
                let detail = greeting.waits_for(&self.plan);
                self.fail(cx, Failure::TimeoutGreeting, detail);
            }
            // Many servers do not close the connection. All that can be known is known.
            State::HandedOver { .. } => self.finish(cx, Outcome::Stopped),
            State::Idle | State::Connecting | State::Ended => {}
        }
    }

    fn fail(&mut self, cx: &mut Context<'_>, failure: Failure, detail: String) {
        let ends = match &self.state {
            State::Greeting(greeting) => greeting.channel_ends,
            _ => None,
        };
        let detail = match ends {
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
    fn go_on(
        &mut self,
        plan: &Plan,
        seed: u64,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Result<bool, (Failure, String)> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        let mut bytes = bytes;
        if let Some(upgrade) = &mut self.upgrade {
            match upgrade
                .answered(&mut bytes)
                .map_err(|why| (Failure::WebSocketRefused, why))?
            {
                true => self.upgrade = None,
                false => return Ok(false),
            }
        }
        // The queue exists for one call only: bytes received are read once.
        let mut heard: VecDeque<Vec<u8>> = VecDeque::new();
        let framing = plan.script.framing();
        let unframed = *framing == super::frame::Framing::None;
        if unframed {
            self.heard.extend_from_slice(bytes);
        } else {
            let wanted = ReadLimits {
                fixed: 0,
                keep: GREETING_MAX,
                longest: GREETING_MAX as u64,
            };
            loop {
                let item = self.reader.next(framing, &wanted, &mut bytes);
                match item.map_err(|malformed| (Failure::MalformedAnswer, malformed.to_string()))? {
                    None => break,
                    Some(Item::Frame(frame)) => {
                        heard.push_back(frame.body.unwrap_or_default().to_vec())
                    }
                    Some(Item::Ping(payload)) => {
                        let mut pong = Vec::new();
                        ws::write_control(
                            ws::PONG,
                            payload,
                            Some(mix(&[seed, 9]) as u32),
                            &mut pong,
                        );
                        send(cx, pong);
                    }
                    Some(Item::Close(_)) => {
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
                Made::Send(template) => {
                    let filling = Filling {
                        number: 1,
                        nanos: plan.wall_nanos.saturating_add(cx.now.as_nanos()),
                        seed: mix(&[seed, self.step as u64]),
                    };
                    let (mut body, mut out) = (Vec::new(), Vec::new());
                    template.write(&filling, &mut body);
                    framing.write(&body, mix(&[seed, self.step as u64, 7]) as u32, &mut out);
                    cx.recorder.add(m::GREETINGS_SENT, 1);
                    send(cx, out);
                }
                Made::Expect(expected) if unframed => {
                    // The expected text may begin within bytes that were already searched.
                    let from = self.looked.saturating_sub(expected.len() - 1);
                    match find(&self.heard[from..], expected) {
                        Some(at) => {
                            self.heard.drain(..from + at + expected.len());
                            self.looked = 0;
                        }
                        None => {
                            self.looked = self.heard.len();
                            return self.still_waits(plan);
                        }
                    }
                }
                Made::Expect(expected) => loop {
                    match heard.pop_front() {
                        Some(message) if find(&message, expected).is_some() => break,
                        Some(_) => {}
                        None => return self.still_waits(plan),
                    }
                },
            }
            self.step += 1;
        }
        Ok(true)
    }

    fn still_waits(&self, plan: &Plan) -> Result<bool, (Failure, String)> {
        match self.bytes > GREETING_MAX {
            true => Err((Failure::WrongGreeting, self.waits_for(plan))),
            false => Ok(false),
        }
    }

    /// Describes what the greeting waits for.
    fn waits_for(&self, plan: &Plan) -> String {
        let heard = match self.bytes {
            0 => "nothing received".to_owned(),
            bytes => {
                let last = &self.heard[self.heard.len().saturating_sub(80)..];
                match last.is_empty() {
                    true => format!("{bytes} bytes received"),
                    false => format!("{bytes} bytes received, last `{}`", last.escape_ascii()),
                }
            }
        };
        if self.upgrade.is_some() {
            return format!("no answer to the WebSocket handshake: {heard}");
        }
        match plan.steps.get(self.step) {
            Some(Made::Expect(expected)) => {
                format!(
                    "step {} of the greeting expects `{}`: {heard}",
                    self.step + 1,
                    expected.escape_ascii()
                )
            }
            _ => heard,
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
                self.opened(cx, (local, remote))
            }
            (State::Connecting, Input::OpenFailed { error, .. }) => {
                self.fail(cx, Failure::Connect(error.into()), error.to_string());
            }
            (State::Greeting(_), Input::Bytes { bytes, .. }) => self.greet(cx, bytes),
            (State::Greeting(greeting), Input::Closed { how, .. }) => {
                let failure = match how {
                    Closed::End => Failure::ClosedInGreeting,
                    how => Failure::of_closed(how),
                };
                let detail = greeting.waits_for(&self.plan);
                self.fail(cx, failure, detail);
            }
            (State::HandedOver { .. }, Input::Exchanged { how, .. }) => self.exchanged(cx, how),
            (_, Input::Stop { until }) => self.stop(cx, until),
            _ => {}
        }
        self.look(cx);
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

//! Cases of connections that sessions hand over.

use std::net::SocketAddr;
use std::time::Duration;

use measure::{Recorder, Time};

use super::{CHANNEL, Case, Log, Server, log_and_end, open_tcp, open_tls, script};
use crate::exchange::{Exchange, ExchangeContext, ExchangeEnd, NextStep, Plan};
use crate::{ChannelId, Context, Failure, Input, Output, Pace, Port, Session};

/// The message of these cases.
const MESSAGE: &[u8] = b"ping";

/// Sends `messages_max` messages at its pace, and receives the same number.
#[derive(Debug)]
struct AskingExchange {
    pace: Pace,
    messages_max: usize,
    sent: usize,
    received_bytes: usize,
    finished: bool,
    log: Log,
}

impl AskingExchange {
    fn after(&self) -> NextStep {
        let all = self.finished || self.sent == self.messages_max;
        match all && self.received_bytes == self.sent * MESSAGE.len() {
            true => NextStep::Finish,
            false => NextStep::Continue,
        }
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        if self.sent < self.messages_max && !self.finished {
            out.extend_from_slice(MESSAGE);
        }
    }

    /// With [`Pace::OnAnswer`]: sends one message at a time.
    fn advance(&mut self, tools: &mut ExchangeContext<'_>) {
        if self.pace == Pace::OnAnswer && self.received_bytes == self.sent * MESSAGE.len() {
            self.write(tools.out);
            self.sent += usize::from(!tools.out.is_empty());
        }
    }
}

impl Exchange for AskingExchange {
    fn plan(&self) -> Plan {
        Plan {
            pace: self.pace,
            ..Plan::default()
        }
    }

    fn start(&mut self, tools: &mut ExchangeContext<'_>) {
        self.advance(tools);
    }

    fn write_planned(&mut self, tools: &mut ExchangeContext<'_>) {
        self.write(tools.out);
    }

    fn planned_sent(&mut self, planned: Time, tools: &mut ExchangeContext<'_>) -> NextStep {
        if planned > tools.now || tools.out != MESSAGE {
            self.log.add("sent something else, or too early");
        }
        self.sent += 1;
        self.after()
    }

    fn received(
        &mut self,
        bytes: &[u8],
        _: Time,
        tools: &mut ExchangeContext<'_>,
    ) -> Result<NextStep, Failure> {
        self.received_bytes += bytes.len();
        self.advance(tools);
        Ok(self.after())
    }

    fn finish(&mut self) {
        self.finished = true;
    }

    fn answer_timeout(&self) -> Option<Duration> {
        (self.after() == NextStep::Continue).then_some(Duration::from_secs(2))
    }

    fn write_close(&mut self, out: &mut Vec<u8>) {
        if self.messages_max > 0 {
            out.extend_from_slice(b"bye");
            self.messages_max = 0;
        }
    }

    fn ended(&mut self, reason: &ExchangeEnd, _: &mut Recorder) {
        let all = self.received_bytes == self.sent * MESSAGE.len() && self.sent > 0;
        self.log.add(format!("all came back: {all}, {reason:?}"));
    }
}

/// Echoes all messages except the goodbye.
#[derive(Debug)]
struct EchoExchange {
    received_bytes: Vec<u8>,
    log: Log,
}

impl Exchange for EchoExchange {
    fn sends_after_peer_closed(&self) -> bool {
        true
    }

    fn received(
        &mut self,
        bytes: &[u8],
        _: Time,
        tools: &mut ExchangeContext<'_>,
    ) -> Result<NextStep, Failure> {
        self.received_bytes.extend_from_slice(bytes);
        while let Some(rest) = self.received_bytes.strip_prefix(MESSAGE) {
            tools.out.extend_from_slice(MESSAGE);
            self.received_bytes = rest.to_vec();
        }
        match self.received_bytes.starts_with(b"no!") {
            true => Err(Failure {
                reason: "no",
                detail: String::new(),
            }),
            false => Ok(NextStep::Continue),
        }
    }

    fn ended(&mut self, reason: &ExchangeEnd, _: &mut Recorder) {
        let last = super::text(&self.received_bytes);
        self.log.add(format!("last words: {last}, {reason:?}"));
    }
}

fn asking_session(
    open: fn(&mut Context<'_>, SocketAddr),
    (pace, messages_max): (Pace, usize),
    server: SocketAddr,
    log: Log,
) -> Box<dyn Session> {
    script(move |cx, input, _| match input {
        Input::Start { .. } => open(cx, server),
        Input::Opened { .. } => {
            let exchange = AskingExchange {
                pace,
                messages_max,
                sent: 0,
                received_bytes: 0,
                finished: false,
                log: log.clone(),
            };
            cx.out.push_back(Output::Exchange {
                channel: CHANNEL,
                exchange: Box::new(exchange),
            });
        }
        Input::Stop { .. } => {
            log.add("stop");
            cx.out
                .push_back(Output::FinishExchange { channel: CHANNEL });
        }
        Input::ExchangeEnded { reason, .. } => log_and_end(cx, &log, format!("{reason:?}")),
        _ => log.add("something else"),
    })
}

fn echo_session(log: Log) -> Box<dyn Session> {
    script(move |cx, input, _| match input {
        Input::Start { .. } => {}
        Input::Opened { .. } => cx.out.push_back(Output::Exchange {
            channel: CHANNEL,
            exchange: Box::new(EchoExchange {
                received_bytes: Vec::new(),
                log: log.clone(),
            }),
        }),
        Input::ExchangeEnded { reason, .. } => log_and_end(cx, &log, format!("{reason:?}")),
        _ => log.add("something else"),
    })
}

const RATE: (Pace, usize) = (Pace::Rate(Duration::from_millis(10)), 5);
const ROUNDS: (Pace, usize) = (Pace::RoundEvery(Duration::from_millis(10)), 5);
const ANSWERS: (Pace, usize) = (Pace::OnAnswer, 5);
const ENDLESS: (Pace, usize) = (Pace::OnAnswer, usize::MAX);

pub(super) const BY_ANSWERS: Case = Case {
    name: "an exchange ends in order after the last answer",
    client: |server, log| asking_session(open_tcp, ANSWERS, server, log),
    server: Server::Tcp(echo_session),
    stop: None,
    client_hears: &["all came back: true, Finished", "Finished"],
    server_hears: &["last words: bye, Finished", "Finished"],
};

pub(super) const BY_RATE: Case = Case {
    name: "messages of an exchange leave at their rate",
    client: |server, log| asking_session(open_tcp, RATE, server, log),
    ..BY_ANSWERS
};

pub(super) const BY_ROUNDS: Case = Case {
    name: "messages of an exchange leave in rounds",
    client: |server, log| asking_session(open_tcp, ROUNDS, server, log),
    ..BY_ANSWERS
};

pub(super) const SECURE: Case = Case {
    name: "a TLS connection can be handed over",
    client: |server, log| asking_session(open_tls, RATE, server, log),
    server: Server::Tls(echo_session),
    ..BY_ANSWERS
};

pub(super) const STOPPED: Case = Case {
    name: "a stopped client finishes its exchange",
    client: |server, log| asking_session(open_tcp, ENDLESS, server, log),
    stop: Some(Duration::from_millis(300)),
    client_hears: &["stop", "all came back: true, Finished", "Finished"],
    ..BY_ANSWERS
};

/// A second connection, which is not handed over.
const OTHER: ChannelId = ChannelId(9);

pub(super) const FINISHED_BY_ANOTHER: Case = Case {
    name: "bytes of another connection can finish an exchange",
    client: |server, log| {
        let mut asks = asking_session(open_tcp, ENDLESS, server, log.clone());
        script(move |cx, input, deadline| match input {
            Input::ExchangeEnded { .. } | Input::Start { .. } => asks.handle(cx, input),
            Input::Opened { channel, .. } if channel == CHANNEL => {
                asks.handle(cx, input);
                *deadline = Some(cx.now + Duration::from_millis(50));
            }
            Input::Deadline => {
                *deadline = None;
                super::open_stream(cx, OTHER, server, false);
            }
            Input::Opened { .. } => cx.out.push_back(Output::Send {
                channel: OTHER,
                port: Port::Media,
                bytes: MESSAGE.to_vec(),
            }),
            Input::Bytes { .. } => cx
                .out
                .push_back(Output::FinishExchange { channel: CHANNEL }),
            _ => log.add("something else"),
        })
    },
    client_hears: &["all came back: true, Finished", "Finished"],
    server_hears: &[
        "last words: bye, Finished",
        "Finished",
        "last words: , Finished",
        "Finished",
    ],
    ..BY_ANSWERS
};

pub(super) const REFUSED: Case = Case {
    name: "an exchange that rejects the bytes ends its connection",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_tcp(cx, server),
            Input::Opened { .. } => super::send(cx, b"pingno!"),
            Input::Bytes { .. } => {}
            Input::Closed { reason, .. } => log_and_end(cx, &log, format!("{reason:?}")),
            _ => log.add("something else"),
        })
    },
    client_hears: &["End"],
    server_hears: &[
        "last words: no!, Failed(Failure { reason: \"no\", detail: \"\" })",
        "Failed(Failure { reason: \"no\", detail: \"\" })",
    ],
    ..BY_ANSWERS
};

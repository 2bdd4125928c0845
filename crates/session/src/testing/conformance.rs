//! Behaviour that every driver of sessions must share: the virtual [`Pair`](super::Pair), and the
//! engine's workers over real sockets.
//!
//! A [`Case`] is a small client and a small server that log their inputs. Every driver must produce
//! the same logs: [`Case::check`].

mod by_name;
mod connections;
mod exchanges;
mod flows;
mod sinks;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use measure::Time;

use crate::tls::TlsConfig;
use crate::{
    ChannelId, CloseReason, Context, Datagram, Endpoint, Failure, Input, Open, Outcome, Output,
    PeerId, Port, ReadTiming, Route, Session,
};

/// Log of one side.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Adds a line.
    pub fn add(&self, line: impl Into<String>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.into());
    }

    /// All lines in order.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }
}

/// Makes a client of the server at an address.
type MakeClient = fn(SocketAddr, Log) -> Box<dyn Session>;

/// Kind of server.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    /// A TCP listener; makes a session for each connection.
    Tcp(fn(Log) -> Box<dyn Session>),
    /// A TCP listener with TLS. Its certificate need not be trusted.
    Tls(fn(Log) -> Box<dyn Session>),
    /// A UDP endpoint: [`by_address`] with this function.
    Udp(fn(Log) -> Box<dyn Session>),
    /// A UDP port without a socket.
    Nobody,
}

/// A client and a server with their expected logs.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it shows.
    pub name: &'static str,
    /// Creates the client.
    pub client: MakeClient,
    /// The other side.
    pub server: Server,
    /// Time at which the client is asked to stop; `None` if it is not.
    pub stop: Option<Duration>,
    /// Expected log of the client.
    client_hears: &'static [&'static str],
    /// Expected log of the server.
    server_hears: &'static [&'static str],
}

impl Case {
    /// Compares the logs of both sides with the expected ones.
    ///
    /// # Panics
    /// If a log differs.
    pub fn check(&self, client: &Log, server: &Log) {
        assert_eq!(client.lines(), self.client_hears, "{}: client", self.name);
        assert_eq!(server.lines(), self.server_hears, "{}: server", self.name);
    }

    /// Returns `true` if the server's log is complete, so that the driver may be stopped.
    pub fn is_server_done(&self, server: &Log) -> bool {
        server.lines().len() >= self.server_hears.len()
    }
}

const CHANNEL: ChannelId = ChannelId(0);

/// Logs datagrams, and ends with `bye`.
fn log_until_bye(cx: &mut Context<'_>, log: &Log, datagrams: &[Datagram<'_>], outcome: Outcome) {
    for datagram in datagrams {
        log.add(text(datagram.bytes));
        if datagram.bytes == b"bye" {
            end(cx, outcome.clone());
        }
    }
}

/// A session made of a function, which may also set the deadline.
struct Script<F> {
    act: F,
    deadline: Option<Time>,
}

impl<F: FnMut(&mut Context<'_>, Input<'_>, &mut Option<Time>)> Session for Script<F> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        (self.act)(cx, input, &mut self.deadline);
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

fn script<F>(act: F) -> Box<dyn Session>
where
    F: FnMut(&mut Context<'_>, Input<'_>, &mut Option<Time>) + 'static,
{
    Box::new(Script {
        act,
        deadline: None,
    })
}

/// A session that handles the bytes of each datagram and ignores all other inputs.
fn datagram_script(mut act: impl FnMut(&mut Context<'_>, &[u8]) + 'static) -> Box<dyn Session> {
    script(move |cx, input, _| {
        if let Input::Datagrams { datagrams, .. } = input {
            datagrams
                .iter()
                .for_each(|datagram| act(cx, datagram.bytes));
        }
    })
}

fn open_stream(cx: &mut Context<'_>, channel: ChannelId, to: SocketAddr, secure: bool) {
    let (host, timeout) = (to.ip().to_string(), Duration::from_secs(5));
    let open = Open::server(host, to.port(), timeout, secure, &TlsConfig::default());
    cx.out.push_back(Output::Open { channel, open });
}

fn open_tcp(cx: &mut Context<'_>, to: SocketAddr) {
    open_stream(cx, CHANNEL, to, false);
}

fn open_tls(cx: &mut Context<'_>, to: SocketAddr) {
    open_stream(cx, CHANNEL, to, true);
}

fn open_udp(cx: &mut Context<'_>, peer: Option<SocketAddr>, reading: ReadTiming) {
    let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    cx.out.push_back(Output::Open {
        channel: CHANNEL,
        open: Open::Udp {
            local,
            peer,
            reading,
            media: None,
        },
    });
}

fn send(cx: &mut Context<'_>, bytes: &[u8]) {
    cx.out.push_back(Output::Send {
        channel: CHANNEL,
        port: Port::Media,
        bytes: bytes.to_vec(),
    });
}

fn send_datagram(cx: &mut Context<'_>, to: Option<SocketAddr>, bytes: &[u8]) {
    cx.transmit(CHANNEL, to, |out| out.extend_from_slice(bytes));
}

fn end(cx: &mut Context<'_>, outcome: Outcome) {
    cx.out.push_back(Output::Ended(outcome));
}

fn log_and_end(cx: &mut Context<'_>, log: &Log, line: impl Into<String>) {
    log.add(line);
    end(cx, Outcome::Completed);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// See [`by_address`].
struct ByAddress {
    /// Clients by session number; `None` once the session has ended.
    peers: Vec<Option<SocketAddr>>,
    log: Log,
    serve: fn(Log) -> Box<dyn Session>,
}

impl Endpoint for ByAddress {
    fn route(
        &mut self,
        _: Time,
        datagram: &Datagram<'_>,
        room: bool,
        answer: &mut Vec<u8>,
    ) -> Route {
        let known = self
            .peers
            .iter()
            .position(|&peer| peer == Some(datagram.from));
        match (known, datagram.bytes) {
            (Some(number), _) => Route::Session(PeerId(number as u64)),
            (None, b"hello") if room => {
                self.log.add("accepts");
                self.peers.push(Some(datagram.from));
                let number = self.peers.len() as u64 - 1;
                Route::Accept(PeerId(number), (self.serve)(self.log.clone()))
            }
            (None, b"who?") => {
                answer.extend_from_slice(b"say hello");
                Route::Answer
            }
            _ => Route::Discard,
        }
    }

    fn session_ended(&mut self, session: PeerId) {
        self.peers[session.0 as usize] = None;
        self.log.add(format!("session {} has ended", session.0));
    }
}

/// An endpoint that finds sessions by the sender's address. `hello` starts a session, `who?` is
/// answered directly, and other datagrams are dropped.
pub fn by_address(log: Log, serve: fn(Log) -> Box<dyn Session>) -> Box<dyn Endpoint> {
    Box::new(ByAddress {
        peers: Vec::new(),
        log,
        serve,
    })
}

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![
        connections::ECHO,
        connections::SECURE,
        connections::SECURE_GOODBYE,
        exchanges::BY_ANSWERS,
        exchanges::BY_RATE,
        exchanges::BY_ROUNDS,
        exchanges::SECURE,
        exchanges::STOPPED,
        exchanges::FINISHED_BY_ANOTHER,
        exchanges::REFUSED,
        sinks::COUNTED,
        sinks::SPLIT_BY_FILTER,
        CHALLENGE,
        by_name::CONNECTED,
        by_name::OWN_PORT,
        UNCONNECTED,
        BATCHES,
        RETRANSMISSION,
        NEW_SESSION_AFTER_GOODBYE,
        flows::PACED,
        flows::PACED_TO_A_NAMED_PEER,
        flows::PACED_IN_A_CONNECTION,
        flows::STARTED_AGAIN,
        flows::STARTED_AGAIN_IN_A_CONNECTION,
        flows::WITHOUT_PEER,
        flows::TO_UNREACHABLE_PORT,
        flows::REMOVED_AT_ONCE,
        flows::REMOVED_AT_ONCE_IN_A_CONNECTION,
        LATE_BEFORE_THE_DEADLINE,
        UNREACHABLE_PORT,
        DEADLINE,
        STOP,
    ]
}

/// Log of [`echo`] for a client that says `hello` and `bye`.
const ECHO_HEARS: &[&str] = &[
    "accepts",
    "remote: true",
    "hello",
    "bye",
    "session 0 has ended",
];

/// Echoes every datagram and ends with `bye`.
fn echo(log: Log) -> Box<dyn Session> {
    script(move |cx, input, _| match input {
        Input::Start { .. } => {}
        Input::Opened { remote, .. } => log.add(format!("remote: {}", remote.is_some())),
        Input::Datagrams { datagrams, .. } => {
            for datagram in datagrams {
                log.add(text(datagram.bytes));
                send_datagram(cx, None, datagram.bytes);
                if datagram.bytes == b"bye" {
                    end(cx, Outcome::Completed);
                }
            }
        }
        _ => log.add("something else"),
    })
}

const CHALLENGE: Case = Case {
    name: "an endpoint answers strangers and accepts those that send hello",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::AtOnce),
            Input::Opened { remote, .. } => {
                log.add(format!("remote: {}", remote == Some(server)));
                send_datagram(cx, None, b"who?");
            }
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    assert_eq!(datagram.from, server);
                    log.add(text(datagram.bytes));
                    match datagram.bytes {
                        b"say hello" => send_datagram(cx, None, b"hello"),
                        b"hello" => send_datagram(cx, None, b"bye"),
                        _ => end(cx, Outcome::Completed),
                    }
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(echo),
    stop: None,
    client_hears: &["remote: true", "say hello", "hello", "bye"],
    server_hears: ECHO_HEARS,
};

const UNCONNECTED: Case = Case {
    name: "a socket without a peer sends to explicit destinations, and may be read late",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, None, ReadTiming::Late),
            Input::Opened { remote, .. } => {
                log.add(format!("remote: {}", remote.is_some()));
                // Not sent: the socket has no peer.
                send_datagram(cx, None, b"hello");
                send_datagram(cx, Some(server), b"hello");
                send_datagram(cx, Some(server), b"bye");
            }
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    log.add(format!(
                        "{} {}",
                        datagram.from == server,
                        text(datagram.bytes)
                    ));
                    if datagram.bytes == b"bye" {
                        end(cx, Outcome::Completed);
                    }
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(echo),
    stop: None,
    client_hears: &["remote: false", "true hello", "true bye"],
    server_hears: ECHO_HEARS,
};

/// Number and length of the datagrams in the batch case: more than one system call can send.
const BATCH_COUNT: usize = 150;
const BATCH_DATAGRAM_BYTES: usize = 1000;

/// Bytes of a datagram of the batch case. The last one is shorter.
fn batch_datagram(number: usize) -> Vec<u8> {
    let length = match number {
        _ if number == BATCH_COUNT - 1 => 7,
        _ => BATCH_DATAGRAM_BYTES,
    };
    vec![number as u8; length]
}

const BATCHES: Case = Case {
    name: "many datagrams leave in one call and arrive unchanged",
    client: |server, log| {
        let mut came = 0;
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::AtOnce),
            Input::Opened { .. } => send_datagram(cx, None, b"hello"),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    if datagram.bytes != batch_datagram(came) {
                        log.add(format!("{came} is wrong"));
                    }
                    came += 1;
                }
                if came == BATCH_COUNT {
                    log_and_end(cx, &log, "all came");
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        datagram_script(move |cx, _| {
            (0..BATCH_COUNT).for_each(|number| send_datagram(cx, None, &batch_datagram(number)));
            let transmits = cx.out.iter();
            let sent = transmits.filter(|o| matches!(o, Output::Transmit(_)));
            log.add(format!("{} transmits", sent.count()));
            end(cx, Outcome::Completed);
        })
    }),
    stop: None,
    client_hears: &["all came"],
    server_hears: &["accepts", "3 transmits", "session 0 has ended"],
};

const RETRANSMISSION: Case = Case {
    name: "missing datagrams are requested at a deadline and arrive",
    client: |server, log| {
        let mut missing: Vec<u8> = (0..10).collect();
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::Late),
            Input::Opened { .. } => {
                send_datagram(cx, None, b"hello");
                *deadline = Some(cx.now + Duration::from_millis(200));
            }
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    missing.retain(|&number| datagram.bytes != [number]);
                }
                if missing.is_empty() {
                    log.add("complete");
                    send_datagram(cx, None, b"bye");
                    end(cx, Outcome::Completed);
                }
            }
            Input::Deadline => {
                *deadline = None;
                log.add(format!("missing: {missing:?}"));
                for &number in &missing {
                    send_datagram(cx, None, &[number]);
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        datagram_script(move |cx, bytes| match bytes {
            b"hello" => {
                let numbers = (0..10).filter(|number| ![3, 7].contains(number));
                numbers.for_each(|number| send_datagram(cx, None, &[number]));
            }
            b"bye" => log_and_end(cx, &log, "bye"),
            asked => {
                log.add(format!("again: {asked:?}"));
                send_datagram(cx, None, asked);
            }
        })
    }),
    stop: None,
    client_hears: &["missing: [3, 7]", "complete"],
    server_hears: &[
        "accepts",
        "again: [3]",
        "again: [7]",
        "bye",
        "session 0 has ended",
    ],
};

const NEW_SESSION_AFTER_GOODBYE: Case = Case {
    name: "a hello right after a goodbye starts another session",
    client: |server, log| {
        let mut over = 0;
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::AtOnce),
            Input::Opened { .. } => {
                // One read returns several datagrams.
                for _ in 0..4 {
                    send_datagram(cx, None, b"hello");
                    send_datagram(cx, None, b"bye");
                }
            }
            Input::Datagrams { datagrams, .. } => {
                over += datagrams.len();
                if over == 4 {
                    log_and_end(cx, &log, "4 goodbyes");
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|_| {
        datagram_script(|cx, bytes| {
            if bytes == b"bye" {
                send_datagram(cx, None, b"bye");
                end(cx, Outcome::Completed);
            }
        })
    }),
    stop: None,
    client_hears: &["4 goodbyes"],
    server_hears: &[
        "accepts",
        "session 0 has ended",
        "accepts",
        "session 1 has ended",
        "accepts",
        "session 2 has ended",
        "accepts",
        "session 3 has ended",
    ],
};

const LATE_BEFORE_THE_DEADLINE: Case = Case {
    name: "datagrams that move a deadline are delivered before it",
    client: |server, log| {
        // Time of the last deadline.
        let mut passed = Time::ZERO;
        let mut answered = false;
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::Late),
            Input::Opened { .. } => {
                send_datagram(cx, None, b"hello");
                // Not at the heartbeat of a worker, at which it is awake anyway.
                *deadline = Some(cx.now + Duration::from_millis(17));
            }
            Input::Datagrams { datagrams, .. } => {
                let came = datagrams.iter().map(|datagram| datagram.at).min();
                // Some time may pass between reading the socket and delivering the deadline.
                let slack = Duration::from_millis(2);
                if came.is_some_and(|came| came + slack < passed) {
                    log.add("delivered after a deadline that was later");
                }
                answered = true;
                *deadline = Some(cx.now + Duration::from_millis(200));
            }
            // On a busy machine the server may not have answered yet.
            Input::Deadline if !answered => {
                passed = cx.now;
                send_datagram(cx, None, b"hello");
                *deadline = Some(cx.now + Duration::from_millis(17));
            }
            Input::Deadline => {
                let early = deadline.is_some_and(|deadline| cx.now < deadline);
                log.add(format!("early: {early}"));
                send_datagram(cx, None, b"bye");
                end(cx, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|_| {
        datagram_script(|cx, bytes| match bytes {
            b"bye" => end(cx, Outcome::Completed),
            _ => send_datagram(cx, None, bytes),
        })
    }),
    stop: None,
    client_hears: &["early: false"],
    server_hears: &["accepts", "session 0 has ended"],
};

const UNREACHABLE_PORT: Case = Case {
    name: "a socket connected to an unused port is reset",
    client: |server, log| {
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::AtOnce),
            Input::Opened { .. } => {
                send_datagram(cx, None, b"hello");
                *deadline = Some(cx.now + Duration::from_secs(5));
            }
            Input::Closed { reason: how, .. } => {
                log.add(format!("{how:?}"));
                let reason = "nobody";
                let detail = String::new();
                assert_eq!(how, CloseReason::Reset);
                end(cx, Outcome::Failed(Failure { reason, detail }));
            }
            _ => log_and_end(cx, &log, "something else"),
        })
    },
    server: Server::Nobody,
    stop: None,
    client_hears: &["Reset"],
    server_hears: &[],
};

const DEADLINE: Case = Case {
    name: "a deadline is delivered on time, and once",
    client: |_, log| {
        let mut began = Time::ZERO;
        let mut times = 0;
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => {
                began = cx.now;
                *deadline = Some(cx.now + Duration::from_millis(30));
            }
            Input::Deadline => {
                let early = cx.now < began + Duration::from_millis(30);
                log.add(format!("early: {early}"));
                times += 1;
                *deadline = (times == 1).then(|| cx.now + Duration::from_millis(30));
                if times == 2 {
                    end(cx, Outcome::Completed);
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Nobody,
    stop: None,
    client_hears: &["early: false", "early: false"],
    server_hears: &[],
};

const STOP: Case = Case {
    name: "a stopped client says goodbye, and earlier datagrams still arrive",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), ReadTiming::AtOnce),
            Input::Opened { .. } => send_datagram(cx, None, b"hello"),
            Input::Datagrams { datagrams, .. } => {
                log_until_bye(cx, &log, datagrams, Outcome::Stopped);
            }
            Input::Stop { .. } => {
                log.add("stop");
                send_datagram(cx, None, b"bye");
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(echo),
    stop: Some(Duration::from_millis(300)),
    client_hears: &["hello", "stop", "bye"],
    server_hears: ECHO_HEARS,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Pair, PairSettings, RunEnd, SessionNumber};

    #[test]
    fn virtual_network_passes_all_conformance_cases() {
        for case in cases() {
            let (client, server) = (Log::default(), Log::default());
            let settings = PairSettings::new(1, measure::Catalogue(&[]));
            let to = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), settings.port);
            let made = (case.client)(to, client.clone());
            let log = server.clone();
            let mut pair = Pair::new(settings, made, move |_| match case.server {
                Server::Tcp(serve) | Server::Tls(serve) => serve(log.clone()),
                Server::Udp(_) | Server::Nobody => unreachable!("no TCP server"),
            });
            if let Server::Udp(serve) = case.server {
                pair.set_endpoint(by_address(server.clone(), serve));
            }
            if let Some(after) = case.stop {
                pair.run(after);
                pair.stop(SessionNumber(0), Duration::from_secs(5));
            }
            assert_eq!(
                pair.run(Duration::from_secs(10)),
                RunEnd::Ended,
                "{}",
                case.name
            );
            case.check(&client, &server);
        }
    }
}

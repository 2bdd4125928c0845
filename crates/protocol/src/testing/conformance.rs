//! What every carrier of sessions must do alike: the virtual [`Pair`](super::Pair), and the
//! engine's workers over real sockets.
//!
//! A [`Case`] is a small client and a small server that write down what they hear. Wherever it is
//! carried, both sides must write down the same: [`Case::check`].

mod by_name;
mod connections;
mod exchanges;
mod flows;
mod sinks;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use measure::Time;

use crate::session::{
    ChannelId, Closed, Context, Datagram, Endpoint, Failure, Input, Open, Outcome, Output, PeerId,
    Port, Reading, Route, Session,
};

/// What one side wrote down.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Adds a line.
    pub fn add(&self, line: impl Into<String>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.into());
    }

    /// All lines, in order.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }
}

/// Makes a client that speaks to a server at that address.
type MakeClient = fn(SocketAddr, Log) -> Box<dyn Session>;

/// What the server is.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    /// A listener of TCP; makes a session for each connection.
    Tcp(fn(Log) -> Box<dyn Session>),
    /// The same with TLS. Its certificate need not be one that anybody trusts.
    Tls(fn(Log) -> Box<dyn Session>),
    /// An endpoint of UDP.
    Udp(fn(Log) -> Box<dyn Endpoint>),
    /// A UDP port that nobody has.
    Nobody,
}

/// A client and a server, and what they must hear.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The client.
    pub client: MakeClient,
    /// The server.
    pub server: Server,
    /// When the client is told to stop, if it is.
    pub stop: Option<Duration>,
    /// What the client must write down.
    client_hears: &'static [&'static str],
    /// What the server must write down.
    server_hears: &'static [&'static str],
}

impl Case {
    /// Says so if the two sides have not written down what they must.
    ///
    /// # Panics
    /// Then.
    pub fn check(&self, client: &Log, server: &Log) {
        assert_eq!(client.lines(), self.client_hears, "{}: client", self.name);
        assert_eq!(server.lines(), self.server_hears, "{}: server", self.name);
    }

    /// Whether the server has heard all that it must: a carrier may be stopped then.
    pub fn server_is_through(&self, server: &Log) -> bool {
        server.lines().len() >= self.server_hears.len()
    }
}

const CHANNEL: ChannelId = ChannelId(0);

/// A session out of a function, which may also set the deadline.
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

fn open_tcp(cx: &mut Context<'_>, to: SocketAddr) {
    cx.out.push_back(Output::Open {
        channel: CHANNEL,
        open: Open::Tcp {
            host: to.ip().to_string(),
            port: to.port(),
            timeout: Duration::from_secs(5),
        },
    });
}

fn open_tls(cx: &mut Context<'_>, to: SocketAddr) {
    cx.out.push_back(Output::Open {
        channel: CHANNEL,
        open: Open::Tls {
            host: to.ip().to_string(),
            port: to.port(),
            timeout: Duration::from_secs(5),
            server_name: None,
        },
    });
}

fn open_udp(cx: &mut Context<'_>, peer: Option<SocketAddr>, reading: Reading) {
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

fn say(cx: &mut Context<'_>, to: Option<SocketAddr>, bytes: &[u8]) {
    cx.transmit(CHANNEL, to, |out| out.extend_from_slice(bytes));
}

fn end(cx: &mut Context<'_>, outcome: Outcome) {
    cx.out.push_back(Output::Ended(outcome));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Finds sessions by the sender's address. Those begin that say `hello`; who says `who?` is
/// answered at once, and all others are nobody's.
struct ByAddress {
    /// Each that has begun; none, once it is over.
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
            _ => Route::Drop,
        }
    }

    fn ended(&mut self, session: PeerId) {
        self.peers[session.0 as usize] = None;
        self.log.add(format!("session {} is over", session.0));
    }
}

fn by_address(log: Log, serve: fn(Log) -> Box<dyn Session>) -> Box<dyn Endpoint> {
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
        sinks::TOLD_APART,
        CHALLENGE,
        by_name::CONNECTED,
        by_name::OWN_PORT,
        UNCONNECTED,
        BATCHES,
        RETRANSMISSION,
        ANEW_AT_ONCE,
        flows::PACED,
        flows::PACED_TO_A_NAMED_PEER,
        flows::PACED_IN_A_CONNECTION,
        flows::STARTED_AGAIN,
        flows::STARTED_AGAIN_IN_A_CONNECTION,
        flows::TO_NOWHERE,
        flows::TO_NOBODY,
        flows::TAKEN_OUT_AT_ONCE,
        flows::TAKEN_OUT_AT_ONCE_IN_A_CONNECTION,
        LATE_BEFORE_THE_DEADLINE,
        NOBODY,
        DEADLINE,
        STOP,
    ]
}

/// Answers every datagram with the same, and is over with `bye`.
fn echo(log: Log) -> Box<dyn Session> {
    script(move |cx, input, _| match input {
        Input::Start { .. } => {}
        Input::Opened { remote, .. } => log.add(format!("remote: {}", remote.is_some())),
        Input::Datagrams { datagrams, .. } => {
            for datagram in datagrams {
                log.add(text(datagram.bytes));
                say(cx, None, datagram.bytes);
                if datagram.bytes == b"bye" {
                    end(cx, Outcome::Completed);
                }
            }
        }
        _ => log.add("something else"),
    })
}

const CHALLENGE: Case = Case {
    name: "an endpoint answers strangers, and accepts who says the word",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), Reading::AtOnce),
            Input::Opened { remote, .. } => {
                log.add(format!("remote: {}", remote == Some(server)));
                say(cx, None, b"who?");
            }
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    assert_eq!(datagram.from, server);
                    log.add(text(datagram.bytes));
                    match datagram.bytes {
                        b"say hello" => say(cx, None, b"hello"),
                        b"hello" => say(cx, None, b"bye"),
                        _ => end(cx, Outcome::Completed),
                    }
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| by_address(log, echo)),
    stop: None,
    client_hears: &["remote: true", "say hello", "hello", "bye"],
    server_hears: &[
        "accepts",
        "remote: true",
        "hello",
        "bye",
        "session 0 is over",
    ],
};

const UNCONNECTED: Case = Case {
    name: "a socket without a peer says where each datagram goes, and may be read late",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, None, Reading::Late),
            Input::Opened { remote, .. } => {
                log.add(format!("remote: {}", remote.is_some()));
                // Goes nowhere: there is no peer.
                say(cx, None, b"hello");
                say(cx, Some(server), b"hello");
                say(cx, Some(server), b"bye");
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
    server: Server::Udp(|log| by_address(log, echo)),
    stop: None,
    client_hears: &["remote: false", "true hello", "true bye"],
    server_hears: &[
        "accepts",
        "remote: true",
        "hello",
        "bye",
        "session 0 is over",
    ],
};

/// How many datagrams of which length the case of batches sends: more than one system call takes.
const MANY: usize = 150;
const LONG: usize = 1000;

const BATCHES: Case = Case {
    name: "many datagrams leave in one call, and come as they were",
    client: |server, log| {
        let mut came = 0;
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), Reading::AtOnce),
            Input::Opened { .. } => say(cx, None, b"hello"),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    let number = u8::try_from(came).unwrap_or(u8::MAX);
                    let length = if came == MANY - 1 { 7 } else { LONG };
                    if datagram.bytes != vec![number; length] {
                        log.add(format!("{number} is wrong"));
                    }
                    came += 1;
                }
                if came == MANY {
                    log.add("all came");
                    end(cx, Outcome::Completed);
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        by_address(log, |log| {
            script(move |cx, input, _| {
                if let Input::Datagrams { .. } = input {
                    for number in 0..MANY {
                        let length = if number == MANY - 1 { 7 } else { LONG };
                        cx.transmit(CHANNEL, None, |out| {
                            out.extend(std::iter::repeat_n(number as u8, length));
                        });
                    }
                    let transmits = cx.out.iter();
                    let sent = transmits.filter(|o| matches!(o, Output::Transmit(_)));
                    log.add(format!("{} transmits", sent.count()));
                    end(cx, Outcome::Completed);
                }
            })
        })
    }),
    stop: None,
    client_hears: &["all came"],
    server_hears: &["accepts", "3 transmits", "session 0 is over"],
};

const RETRANSMISSION: Case = Case {
    name: "what is missing is asked for when its time has come, and comes",
    client: |server, log| {
        let mut missing: Vec<u8> = (0..10).collect();
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => open_udp(cx, Some(server), Reading::Late),
            Input::Opened { .. } => {
                say(cx, None, b"hello");
                *deadline = Some(cx.now + Duration::from_millis(200));
            }
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    missing.retain(|&number| datagram.bytes != [number]);
                }
                if missing.is_empty() {
                    log.add("complete");
                    say(cx, None, b"bye");
                    end(cx, Outcome::Completed);
                }
            }
            Input::Deadline => {
                *deadline = None;
                log.add(format!("missing: {missing:?}"));
                for &number in &missing {
                    say(cx, None, &[number]);
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        by_address(log, |log| {
            script(move |cx, input, _| {
                let Input::Datagrams { datagrams, .. } = input else {
                    return;
                };
                for datagram in datagrams {
                    match datagram.bytes {
                        b"hello" => {
                            let numbers = (0..10).filter(|number| ![3, 7].contains(number));
                            numbers.for_each(|number| say(cx, None, &[number]));
                        }
                        b"bye" => {
                            log.add("bye");
                            end(cx, Outcome::Completed);
                        }
                        asked => {
                            log.add(format!("again: {asked:?}"));
                            say(cx, None, asked);
                        }
                    }
                }
            })
        })
    }),
    stop: None,
    client_hears: &["missing: [3, 7]", "complete"],
    server_hears: &[
        "accepts",
        "again: [3]",
        "again: [7]",
        "bye",
        "session 0 is over",
    ],
};

const ANEW_AT_ONCE: Case = Case {
    name: "who says hello right after its goodbye has another session",
    client: |server, log| {
        let mut over = 0;
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), Reading::AtOnce),
            Input::Opened { .. } => {
                // Many are there at one look.
                for _ in 0..4 {
                    say(cx, None, b"hello");
                    say(cx, None, b"bye");
                }
            }
            Input::Datagrams { datagrams, .. } => {
                over += datagrams.len();
                if over == 4 {
                    log.add("4 goodbyes");
                    end(cx, Outcome::Completed);
                }
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        by_address(log, |_| {
            script(move |cx, input, _| {
                if let Input::Datagrams { datagrams, .. } = input
                    && datagrams.iter().any(|datagram| datagram.bytes == b"bye")
                {
                    say(cx, None, b"bye");
                    end(cx, Outcome::Completed);
                }
            })
        })
    }),
    stop: None,
    client_hears: &["4 goodbyes"],
    server_hears: &[
        "accepts",
        "session 0 is over",
        "accepts",
        "session 1 is over",
        "accepts",
        "session 2 is over",
        "accepts",
        "session 3 is over",
    ],
};

const LATE_BEFORE_THE_DEADLINE: Case = Case {
    name: "what has come is heard before a deadline that it moves",
    client: |server, log| {
        // When a deadline was heard of last.
        let mut passed = Time::ZERO;
        let mut answered = false;
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => open_udp(cx, Some(server), Reading::Late),
            Input::Opened { .. } => {
                say(cx, None, b"hello");
                // Off the beat at which a worker is awake anyway.
                *deadline = Some(cx.now + Duration::from_millis(17));
            }
            Input::Datagrams { datagrams, .. } => {
                let came = datagrams.iter().map(|datagram| datagram.at).min();
                // Between looking for it and telling of the deadline some time may pass.
                let slack = Duration::from_millis(2);
                if came.is_some_and(|came| came + slack < passed) {
                    log.add("heard behind a deadline that came after it");
                }
                answered = true;
                *deadline = Some(cx.now + Duration::from_millis(200));
            }
            // On a busy machine the server may not have found time for an answer.
            Input::Deadline if !answered => {
                passed = cx.now;
                say(cx, None, b"hello");
                *deadline = Some(cx.now + Duration::from_millis(17));
            }
            Input::Deadline => {
                let early = deadline.is_some_and(|deadline| cx.now < deadline);
                log.add(format!("early: {early}"));
                say(cx, None, b"bye");
                end(cx, Outcome::Completed);
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| {
        by_address(log, |_| {
            script(move |cx, input, _| {
                let Input::Datagrams { datagrams, .. } = input else {
                    return;
                };
                for datagram in datagrams {
                    match datagram.bytes {
                        b"bye" => end(cx, Outcome::Completed),
                        _ => say(cx, None, datagram.bytes),
                    }
                }
            })
        })
    }),
    stop: None,
    client_hears: &["early: false"],
    server_hears: &["accepts", "session 0 is over"],
};

const NOBODY: Case = Case {
    name: "who is connected to a port that nobody has hears so",
    client: |server, log| {
        script(move |cx, input, deadline| match input {
            Input::Start { .. } => open_udp(cx, Some(server), Reading::AtOnce),
            Input::Opened { .. } => {
                say(cx, None, b"hello");
                *deadline = Some(cx.now + Duration::from_secs(5));
            }
            Input::Closed { how, .. } => {
                log.add(format!("{how:?}"));
                let reason = "nobody";
                let detail = String::new();
                assert_eq!(how, Closed::Reset);
                end(cx, Outcome::Failed(Failure { reason, detail }));
            }
            _ => {
                log.add("something else");
                end(cx, Outcome::Completed);
            }
        })
    },
    server: Server::Nobody,
    stop: None,
    client_hears: &["Reset"],
    server_hears: &[],
};

const DEADLINE: Case = Case {
    name: "a deadline comes when it was named, and not twice",
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
    name: "who is told to stop says goodbye, and what was sent before still comes",
    client: |server, log| {
        script(move |cx, input, _| match input {
            Input::Start { .. } => open_udp(cx, Some(server), Reading::AtOnce),
            Input::Opened { .. } => say(cx, None, b"hello"),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    log.add(text(datagram.bytes));
                    if datagram.bytes == b"bye" {
                        end(cx, Outcome::Stopped);
                    }
                }
            }
            Input::Stop { .. } => {
                log.add("stop");
                say(cx, None, b"bye");
            }
            _ => log.add("something else"),
        })
    },
    server: Server::Udp(|log| by_address(log, echo)),
    stop: Some(Duration::from_millis(300)),
    client_hears: &["hello", "stop", "bye"],
    server_hears: &[
        "accepts",
        "remote: true",
        "hello",
        "bye",
        "session 0 is over",
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{End, Pair, PairSettings, SessionNumber};

    #[test]
    fn the_virtual_network_carries_sessions_as_it_must() {
        for case in cases() {
            let (client, server) = (Log::default(), Log::default());
            let settings = PairSettings::new(1, crate::registry::RTSP_PROTOCOL.catalogue);
            let to = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), settings.port);
            let made = (case.client)(to, client.clone());
            let log = server.clone();
            let mut pair = Pair::new(settings, made, move |_| match case.server {
                Server::Tcp(serve) | Server::Tls(serve) => serve(log.clone()),
                Server::Udp(_) | Server::Nobody => unreachable!("nobody connects"),
            });
            if let Server::Udp(endpoint) = case.server {
                pair.answer_datagrams(endpoint(server.clone()));
            }
            if let Some(after) = case.stop {
                pair.run(after);
                pair.stop(SessionNumber(0), Duration::from_secs(5));
            }
            assert_eq!(
                pair.run(Duration::from_secs(10)),
                End::Ended,
                "{}",
                case.name
            );
            case.check(&client, &server);
        }
    }
}

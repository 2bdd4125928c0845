//! Tests of a worker with toy sessions, over real loopback sockets.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kit::media::rtp::flow::{Clip, Faults, FlowSettings, Pacing};
use kit::media::rtp::receiver::ReceiverConfig;
use kit::media::rtp::{RtpFlow, RtpReceiver};
use kit::metrics as clients;
use measure::load::{Load, Shape, Share};
use measure::metric::CounterId;
use measure::{Recorder, Time, Window, tester};
use net::ring::RingSettings;
use net::{Clock, PortRange, ReceiveBatch};
use protocols::RTSP_PROTOCOL;
use scenario::{Leave, Pick};
use session::{
    ChannelError, ChannelId, CloseReason, Context, Failure, FlowId, Input, Open, Outcome, Output,
    Port, ReadTiming, Session,
};

mod conformance;
mod datagrams;
mod deferred_inputs;
pub(super) mod ring;
mod segment_times;
mod targets;
mod tasks;

use super::{
    Accept, ClientPlan, EndpointPlan, ListenerPlan, MakeClient, RunnerPlace, WINDOW,
    WorkerPopulation,
};
use crate::messages::{ClientState, RunnerCommand, WorkerReport};
use crate::network::target_filter::TargetFilter;
use crate::worker::pool::{WorkerPlan, WorkerPool};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CHANNEL: ChannelId = ChannelId(0);

/// Maximum duration of any wait in these tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// A session made of a closure, which can also set the deadline.
struct Toy<F> {
    act: F,
    deadline: Option<Time>,
}

impl<F: FnMut(&mut Context<'_>, Input<'_>, &mut Option<Time>)> Session for Toy<F> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        (self.act)(cx, input, &mut self.deadline);
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

fn toy<F>(act: F) -> Box<dyn Session>
where
    F: FnMut(&mut Context<'_>, Input<'_>, &mut Option<Time>) + 'static,
{
    Box::new(Toy {
        act,
        deadline: None,
    })
}

fn tcp(to: SocketAddr, timeout: Duration) -> Output {
    let (host, port) = (to.ip().to_string(), to.port());
    Output::Open {
        channel: CHANNEL,
        open: Open::Tcp {
            host,
            port,
            timeout,
        },
    }
}

fn pair(sink: Option<session::SinkId>, shared: bool) -> Output {
    Output::Open {
        channel: CHANNEL,
        open: Open::UdpPair {
            local: LOCAL,
            sink,
            shared,
        },
    }
}

fn send(port: Port, bytes: &[u8]) -> Output {
    Output::Send {
        channel: CHANNEL,
        port,
        bytes: bytes.to_vec(),
    }
}

fn peer(port: &str) -> Output {
    let port: u16 = port.parse().expect("a port");
    Output::Peer {
        channel: CHANNEL,
        media: SocketAddr::new(LOCAL, port),
        control: SocketAddr::new(LOCAL, port + 1),
    }
}

fn failed(reason: &'static str, detail: impl std::fmt::Debug) -> Output {
    Output::Ended(Outcome::Failed(Failure {
        reason,
        detail: format!("{detail:?}"),
    }))
}

fn tell(topic: &str, message: impl ToString) -> Output {
    Output::Publish {
        topic: topic.to_owned(),
        message: message.to_string().into(),
    }
}

fn listen(topic: &str) -> Output {
    Output::Subscribe {
        topic: topic.to_owned(),
    }
}

/// Reports of the workers.
#[derive(Default)]
struct Seen {
    clients: Vec<ClientState>,
    events: Vec<&'static str>,
    tester: Vec<Window>,
    population: Vec<Window>,
    windows: Vec<(u32, u64, Time, f64)>,
}

impl Seen {
    fn outcomes(&self) -> Vec<&Outcome> {
        let ended = self.clients.iter().filter_map(|c| c.ended.as_ref());
        ended.map(|(_, outcome)| outcome).collect()
    }

    fn sum(windows: &[Window], id: CounterId) -> i64 {
        windows.iter().map(|w| w.counters[usize::from(id.0)]).sum()
    }

    fn tester(&self, id: CounterId) -> i64 {
        Seen::sum(&self.tester, id)
    }
}

/// Returns a port range that no concurrent test and no other program uses.
pub(super) fn ports() -> PortRange {
    static NEXT: Mutex<u16> = Mutex::new(20_000);
    let mut next = NEXT.lock().expect("no test panics with it");
    loop {
        let range = *next..*next + 40;
        *next = range.end;
        let mut tried = PortRange::new(range.clone());
        let free: Vec<_> = std::iter::from_fn(|| tried.bind(LOCAL).ok()).collect();
        if free.len() == tried.pairs() {
            return PortRange::new(range);
        }
    }
}

/// Runs one client for each URL, in turn, on `workers` workers, until all have ended. `during` is
/// called repeatedly with the workers and their reports so far.
fn run_on(
    workers: u32,
    urls: &[&str],
    ports: impl Fn(PortRange) -> PortRange,
    client: MakeClient,
    during: impl FnMut(&WorkerPool, &Clock, &Seen),
) -> Seen {
    play(plans(workers, urls, ports, &client), during)
}

/// Plans of workers that run one client for each URL.
fn plans(
    workers: u32,
    urls: &[&str],
    ports: impl Fn(PortRange) -> PortRange,
    client: &MakeClient,
) -> Vec<WorkerPlan> {
    let load = Load {
        shape: Shape::AtOnce {
            clients: urls.len() as u64,
        },
        rejoin: false,
        after: Duration::ZERO,
    };
    let duty = |worker| WorkerPlan {
        populations: vec![WorkerPopulation {
            name: "toys".to_owned(),
            catalogue: RTSP_PROTOCOL.catalogue,
            clients: Some(ClientPlan {
                share: Share::new(&load, worker, workers),
                urls: urls.iter().map(ToString::to_string).collect(),
                pick: Pick::InTurn,
                leave: Leave::AtEnd,
                run_ends: Time::NEVER,
                tls: Arc::new(net::tls::Client::new(net::tls::Trust::default())),
                client: client.clone(),
                traced: crate::trace::Traced::default(),
                media: true,
                reads_at_once: false,
                sources: Vec::new(),
            }),
        }],
        raised_priority: false,
        realtime_pacer: false,
        serving: Vec::new(),
        endpoints: Vec::new(),
        ports: ports(self::ports()),
        ring: None,
    };
    (0..workers).map(duty).collect()
}

/// Runs clients until they have ended.
fn play(plans: Vec<WorkerPlan>, during: impl FnMut(&WorkerPool, &Clock, &Seen)) -> Seen {
    play_to(TargetFilter::default(), plans, during)
}

/// Runs clients, which may send to these targets only, until they have ended.
fn play_to(
    targets: TargetFilter,
    plans: Vec<WorkerPlan>,
    mut during: impl FnMut(&WorkerPool, &Clock, &Seen),
) -> Seen {
    let workers = plans.len();
    let place = RunnerPlace::ALONE;
    let crew = WorkerPool::start_at(place, targets, plans, Duration::from_secs(1), 1);
    let mut crew = crew.expect("workers");
    let clock = Clock::start();
    crew.begin(&clock);
    let mut seen = Seen::default();
    let mut at_work = workers;
    let give_up = Instant::now() + PATIENCE;
    while at_work > 0 {
        assert!(Instant::now() < give_up, "the workers do not end");
        during(&crew, &clock, &seen);
        match crew.reports.recv_timeout(Duration::from_millis(20)) {
            Ok(WorkerReport::Client(client)) => seen.clients.push(*client),
            Ok(WorkerReport::Event { kind, .. }) => seen.events.push(kind),
            Ok(WorkerReport::Window { worker, window }) => {
                let (index, begins, seconds) = (window.index, window.begins, window.seconds);
                seen.windows.push((worker, index, begins, seconds));
                seen.tester.push(window.tester());
                seen.population.extend(window.populations);
            }
            Ok(WorkerReport::Finished { error, .. }) => {
                assert!(error.is_none(), "{error:?}");
                at_work -= 1;
            }
            Ok(WorkerReport::Record(_) | WorkerReport::TopicMessage { .. }) => {}
            Err(error) => assert!(error.is_timeout(), "a worker broke down"),
        }
    }
    seen
}

fn run_one(act: impl Fn() -> Box<dyn Session> + Send + Sync + 'static) -> Seen {
    let client: MakeClient = Arc::new(move |_, _| Ok(act()));
    run_on(1, &["toy"], |ports| ports, client, |_, _, _| {})
}

/// Opens a connection, and fails if the connection fails.
fn connecting(to: SocketAddr, timeout: Duration) -> Box<dyn Session> {
    toy(move |cx, input, _| match input {
        Input::Start { .. } => cx.out.push_back(tcp(to, timeout)),
        Input::OpenFailed { error, .. } => cx.out.push_back(failed("open", error)),
        Input::Opened { .. } => cx.out.push_back(Output::Ended(Outcome::Completed)),
        _ => {}
    })
}

fn detail(seen: &Seen) -> String {
    match seen.outcomes()[..] {
        [Outcome::Failed(failure)] => failure.detail.clone(),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn connecting_to_a_closed_port_is_refused() {
    let listener = TcpListener::bind((LOCAL, 0)).expect("a port");
    let to = listener.local_addr().expect("bound");
    drop(listener);
    let seen = run_one(move || connecting(to, PATIENCE));
    assert_eq!(detail(&seen), format!("{:?}", ChannelError::Refused));
    assert_eq!(
        Seen::sum(&seen.population, clients::STARTED),
        Seen::sum(&seen.population, clients::FAILED)
    );
}

#[test]
fn connecting_to_a_full_accept_queue_times_out() {
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any = SocketAddr::new(LOCAL, 0);
    listener.bind(&any.into()).expect("a port");
    listener.listen(0).expect("listens");
    let to: SocketAddr = listener
        .local_addr()
        .ok()
        .and_then(|address| address.as_socket())
        .expect("bound");
    // Connections that fill the accept queue.
    let waiting: Vec<socket2::Socket> = (0..4)
        .map(|_| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
                .expect("a socket");
            socket.set_nonblocking(true).expect("non-blocking");
            let _ = socket.connect(&to.into());
            socket
        })
        .collect();
    let begun = Instant::now();
    let seen = run_one(move || connecting(to, Duration::from_millis(200)));
    drop(waiting);
    assert_eq!(detail(&seen), format!("{:?}", ChannelError::TimedOut));
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[test]
fn host_name_is_resolved_and_its_addresses_are_tried_in_turn() {
    // If `localhost` resolves to an IPv6 address first, nobody listens there.
    let listener = TcpListener::bind((LOCAL, 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let open = move |host: &'static str| {
        toy(move |cx, input, _| match input {
            Input::Start { .. } => cx.out.push_back(Output::Open {
                channel: CHANNEL,
                open: Open::Tcp {
                    host: host.to_owned(),
                    port,
                    timeout: PATIENCE,
                },
            }),
            Input::OpenFailed { error, .. } => cx.out.push_back(failed("open", error)),
            Input::Opened { .. } => cx.out.push_back(Output::Ended(Outcome::Completed)),
            _ => {}
        })
    };
    let seen = run_one(move || open("localhost"));
    assert_eq!(seen.outcomes(), [&Outcome::Completed]);
    let seen = run_one(move || open(""));
    assert_eq!(detail(&seen), format!("{:?}", ChannelError::NameNotFound));
}

/// A listener with a small receive buffer, so that senders have to wait.
fn narrow_listener() -> TcpListener {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("linux takes it");
    let any = SocketAddr::new(LOCAL, 0);
    socket.bind(&any.into()).expect("a port");
    socket.listen(1).expect("listens");
    socket.into()
}

#[test]
fn bytes_arrive_whole_both_ways_however_they_are_split() {
    const LENGTH: usize = 300_000;
    let listener = narrow_listener();
    let to = listener.local_addr().expect("bound");
    let message: Vec<u8> = (0..LENGTH).map(|index| (index % 251) as u8).collect();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut bytes = vec![0; LENGTH];
        stream.read_exact(&mut bytes).expect("all of it");
        stream.write_all(&bytes).expect("taken");
    });
    let seen = run_one(move || {
        let message = message.clone();
        let mut back = Vec::new();
        toy(move |cx, input, _| match input {
            // Bytes sent before the connection is established leave once it is.
            Input::Start { .. } => {
                cx.out.push_back(tcp(to, PATIENCE));
                cx.out.push_back(send(Port::Media, &message[..1000]));
            }
            Input::Opened { .. } => cx.out.push_back(send(Port::Media, &message[1000..])),
            Input::Bytes { bytes, .. } => {
                back.extend_from_slice(bytes);
                if back.len() >= LENGTH {
                    let outcome = if back == message {
                        Output::Ended(Outcome::Completed)
                    } else {
                        failed("changed", back.len())
                    };
                    cx.out.push_back(outcome);
                }
            }
            Input::Closed { reason, .. } => cx.out.push_back(failed("closed", reason)),
            _ => {}
        })
    });
    assert_eq!(seen.outcomes(), [&Outcome::Completed]);
    echo.join().expect("it got everything");
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    let seen = run_one(move || {
        let mut heard = Vec::new();
        let mut listening = None;
        // All on the worker's own thread, which has a descriptor table of its own.
        toy(move |cx, input, deadline| match input {
            Input::Start { .. } => {
                let listener = TcpListener::bind((LOCAL, 0)).expect("a port");
                let to = listener.local_addr().expect("an address");
                listening = Some(listener);
                cx.out.push_back(tcp(to, PATIENCE));
            }
            Input::Opened { .. } => *deadline = Some(cx.now),
            // The bytes and the end are both there before the worker reads again.
            Input::Deadline => {
                *deadline = None;
                let (mut stream, _) = listening
                    .as_ref()
                    .expect("since the start")
                    .accept()
                    .expect("the worker has connected");
                stream.write_all(b"the last").expect("room for it");
            }
            Input::Bytes { bytes, .. } => heard.extend_from_slice(bytes),
            Input::Closed { reason, .. } if heard == b"the last" && reason == CloseReason::End => {
                cx.out.push_back(Output::Ended(Outcome::Completed));
            }
            input => cx.out.push_back(failed("other", (input, &heard))),
        })
    });
    assert_eq!(seen.outcomes(), [&Outcome::Completed]);
}

#[test]
fn connection_whose_peer_does_not_read_is_closed() {
    let listener = narrow_listener();
    let to = listener.local_addr().expect("bound");
    let seen = run_one(move || {
        toy(move |cx, input, _| match input {
            Input::Start { .. } => cx.out.push_back(tcp(to, PATIENCE)),
            Input::Opened { .. } => {
                let more = std::iter::repeat_with(|| send(Port::Media, &[0; 65536]));
                cx.out.extend(more.take(500));
            }
            Input::Closed { reason, .. } => cx.out.push_back(failed("closed", reason)),
            _ => {}
        })
    });
    assert_eq!(detail(&seen), format!("{:?}", CloseReason::SendQueueFull));
    assert!(seen.tester(tester::SENDS_FAILED) >= 1);
}

/// One side of an exchange of datagrams. The sides exchange their ports by topics. The player sends
/// first; the server answers on a pair that it shares with other servers.
fn talker(url: &str) -> Box<dyn Session> {
    let (serves, name) = match url.strip_prefix("serve-") {
        Some(name) => (true, name.to_owned()),
        None => (false, url.to_owned()),
    };
    let (own, other) = match serves {
        true => (url.to_owned(), name.clone()),
        false => (name.clone(), format!("serve-{name}")),
    };
    let (question, answer) = (format!("from {name}"), format!("to {name}"));
    toy(move |cx, input, _| match input {
        Input::Start { .. } => cx.out.push_back(pair(None, serves)),
        Input::Opened { local, .. } => {
            cx.out.push_back(tell(&own, local.port()));
            cx.out.push_back(listen(&other));
        }
        // The server knows the player's port by now.
        Input::TopicMessage { topic, .. } if topic.ends_with("ready") => {
            cx.out.push_back(send(Port::Control, question.as_bytes()));
        }
        Input::TopicMessage { message, .. } => {
            cx.out.push_back(peer(message));
            cx.out.push_back(match serves {
                true => tell(&format!("{own} ready"), ""),
                false => listen(&format!("{other} ready")),
            });
        }
        Input::Datagram { port, bytes, .. } => {
            let expected = if serves { &question } else { &answer };
            if port != Port::Control || bytes != expected.as_bytes() {
                cx.out.push_back(failed("not_mine", bytes));
                return;
            }
            if serves {
                cx.out.push_back(send(Port::Control, answer.as_bytes()));
            }
            cx.out.push_back(Output::Ended(Outcome::Completed));
        }
        Input::OpenFailed { error, .. } => cx.out.push_back(failed("open", error)),
        _ => {}
    })
}

#[test]
fn sessions_of_two_workers_share_topics_and_a_port_pair() {
    // Slots alternate between the workers: servers on the first, players on the second.
    let urls = ["serve-a", "a", "serve-b", "b"];
    let client: MakeClient = Arc::new(|url, _| Ok(talker(url)));
    let seen = run_on(2, &urls, |ports| ports, client, |_, _, _| {});
    assert_eq!(seen.outcomes(), [&Outcome::Completed; 4]);
    assert_eq!(seen.tester(tester::FOREIGN_PACKETS), 0);
}

fn flow(cx: &mut Context<'_>, interleaved: Option<u8>, faults: &[(&str, &str)]) -> FlowId {
    let mut all = Faults::default();
    for (name, value) in faults {
        all.set(name, value).expect("a fault").expect("its value");
    }
    let mut flow = RtpFlow::new(FlowSettings {
        clip: Arc::new(Clip::audio()),
        pacing: Pacing::Spread,
        ssrc: 7,
        first_seq: 65_530,
        first_timestamp: 0,
        length: Some(Duration::from_millis(800)),
        faults: all,
        seed: 3,
        log: false,
    });
    flow.set_interleaved_channel(interleaved);
    flow.start(cx.now);
    cx.flows.insert(flow)
}

#[test]
fn sink_counts_what_a_udp_flow_sent() {
    let client: MakeClient = Arc::new(|url, _| {
        Ok(match url {
            "send" => toy(move |cx, input, _| match input {
                Input::Start { .. } => cx.out.push_back(pair(None, false)),
                Input::Opened { .. } => cx.out.push_back(listen("port")),
                Input::TopicMessage { message, .. } => {
                    cx.out.push_back(peer(message));
                    let flow = flow(cx, None, &[("loss", "20%"), ("duplicate", "20%")]);
                    cx.out.push_back(Output::StartFlow {
                        flow,
                        channel: CHANNEL,
                    });
                }
                Input::FlowEnded { flow } => {
                    let flow: Box<RtpFlow> = cx.flows.remove_as(flow);
                    let served = flow.statistics();
                    assert!(served.lost > 0 && served.duplicated > 0, "{served:?}");
                    assert_eq!(served.not_taken, 0);
                    let counts = format!("{} {}", served.sent, served.duplicated);
                    cx.out.push_back(tell("sent", counts));
                    cx.out.push_back(Output::Ended(Outcome::Completed));
                }
                _ => {}
            }),
            _ => {
                let mut sink = None;
                let mut sent = None;
                toy(move |cx, input, deadline| match input {
                    Input::Start { .. } => {
                        let receiver = RtpReceiver::new(&ReceiverConfig {
                            clock_rate: 8000,
                            payload_types: Vec::new(),
                            playout_buffer: Duration::ZERO,
                        });
                        sink = Some(cx.sinks.insert(receiver));
                        cx.out.push_back(pair(sink, false));
                        cx.out.push_back(listen("sent"));
                    }
                    Input::Opened { local, .. } => cx.out.push_back(tell("port", local.port())),
                    Input::TopicMessage { message, .. } => {
                        sent = Some((message.to_string(), cx.now + PATIENCE / 2));
                        *deadline = Some(cx.now);
                    }
                    Input::Deadline => {
                        let (sent, give_up) = sent.as_ref().expect("told");
                        let counts = *cx.sinks.get::<RtpReceiver>(sink.expect("made")).counts();
                        let counted = format!("{} {}", counts.received, counts.duplicated);
                        if counted == *sent {
                            cx.sinks.remove::<RtpReceiver>(sink.expect("made"));
                            cx.out.push_back(Output::Ended(Outcome::Completed));
                        } else if cx.now > *give_up {
                            cx.out.push_back(failed("differs", (counted, sent)));
                        }
                        *deadline = Some(cx.now + Duration::from_millis(5));
                    }
                    _ => {}
                })
            }
        })
    });
    let seen = run_on(1, &["receive", "send"], |ports| ports, client, |_, _, _| {});
    assert_eq!(seen.outcomes(), [&Outcome::Completed; 2]);
}

#[test]
fn interleaved_flow_arrives_as_sent() {
    let listener = TcpListener::bind((LOCAL, 0)).expect("a port");
    let to = listener.local_addr().expect("bound");
    let reader = std::thread::spawn(move || {
        let (mut stream, _): (TcpStream, _) = listener.accept().expect("a client");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("all of it");
        let (mut rest, mut count) = (&bytes[..], 0u64);
        while let [b'$', 4, high, low, after @ ..] = rest {
            rest = &after[usize::from(u16::from_be_bytes([*high, *low]))..];
            count += 1;
        }
        assert!(rest.is_empty(), "not a frame: {rest:?}");
        count
    });
    let sent = Arc::new(Mutex::new(0));
    let told = sent.clone();
    let seen = run_one(move || {
        let told = told.clone();
        toy(move |cx, input, _| match input {
            Input::Start { .. } => cx.out.push_back(tcp(to, PATIENCE)),
            Input::Opened { .. } => {
                let flow = flow(cx, Some(4), &[("loss", "10%")]);
                cx.out.push_back(Output::StartFlow {
                    flow,
                    channel: CHANNEL,
                });
            }
            Input::FlowEnded { flow } => {
                let flow: Box<RtpFlow> = cx.flows.remove_as(flow);
                *told.lock().expect("nobody panics with it") = flow.statistics().sent;
                cx.out.push_back(Output::Ended(Outcome::Completed));
            }
            _ => {}
        })
    });
    assert_eq!(seen.outcomes(), [&Outcome::Completed]);
    let sent = *sent.lock().expect("nobody panics with it");
    assert!(sent > 20);
    assert_eq!(reader.join().expect("whole frames"), sent);
}

#[test]
fn session_that_never_ends_is_stopped_twice_and_then_cut() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let client: MakeClient = Arc::new(move |_, _| {
        let log = log.clone();
        Ok(toy(move |cx, input, _| {
            if let Input::Stop { until } = input {
                let over = until <= cx.now;
                log.lock().expect("nobody panics with it").push(over);
            }
        }))
    });
    let mut stopped = false;
    let seen = run_on(
        1,
        &["toy"],
        |ports| ports,
        client,
        |crew, clock, _| {
            if !std::mem::replace(&mut stopped, true) {
                let until = clock.now() + Duration::from_millis(100);
                crew.broadcast(&RunnerCommand::Stop { until });
            }
        },
    );
    assert_eq!(seen.outcomes(), [&Outcome::Stopped]);
    assert_eq!(seen.events, ["session_cut"]);
    assert_eq!(*told.lock().expect("over"), [false, true]);
}

#[test]
fn deadline_in_the_past_does_not_starve_the_loop() {
    let client: MakeClient = Arc::new(|_, _| {
        Ok(toy(|cx, input, deadline| match input {
            Input::Stop { .. } => cx.out.push_back(Output::Ended(Outcome::Stopped)),
            _ => *deadline = Some(Time::ZERO),
        }))
    });
    let seen = run_on(
        1,
        &["toy"],
        |ports| ports,
        client,
        |crew, clock, seen| {
            if !seen.windows.is_empty() {
                let until = clock.now() + PATIENCE;
                crew.broadcast(&RunnerCommand::Stop { until });
            }
        },
    );
    assert_eq!(seen.outcomes(), [&Outcome::Stopped]);
}

#[test]
fn loop_keeps_running_while_many_sessions_are_stopped() {
    const EACH: Duration = Duration::from_millis(5);
    let (first, last) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    let (began, ended) = (first.clone(), last.clone());
    let begun = Arc::new(Mutex::new(0));
    let counted = begun.clone();
    let client: MakeClient = Arc::new(move |_, _| {
        *counted.lock().expect("nobody panics with it") += 1;
        let (began, ended) = (began.clone(), ended.clone());
        Ok(toy(move |cx, input, _| {
            if matches!(input, Input::Stop { .. }) {
                began
                    .lock()
                    .expect("nobody panics with it")
                    .get_or_insert_with(Instant::now);
                let over = Instant::now() + EACH;
                while Instant::now() < over {
                    std::hint::spin_loop();
                }
                *ended.lock().expect("nobody panics with it") = Some(Instant::now());
                cx.out.push_back(Output::Ended(Outcome::Stopped));
            }
        }))
    });
    let mut stopped = false;
    let stop = |crew: &WorkerPool, clock: &Clock, _: &Seen| {
        let all = *begun.lock().expect("nobody panics with it") == 200;
        if all && !std::mem::replace(&mut stopped, true) {
            let until = clock.now() + PATIENCE;
            crew.broadcast(&RunnerCommand::Stop { until });
        }
    };
    let seen = run_on(1, &["toy"; 200], |ports| ports, client, stop);
    assert_eq!(seen.outcomes().len(), 200);
    let time = |at: &Mutex<Option<Instant>>| at.lock().expect("nobody panics with it").take();
    let (first, last) = (time(&first), time(&last));
    let took = last.expect("all were told") - first.expect("all were told");
    let lags = seen.tester.iter();
    let lags = lags.filter_map(|window| window.histograms.get(&tester::LAG));
    let max = lags.map(|lag| lag.max).max();
    // About a second of work, or more on a busy machine. The loop does a part at a time.
    let max = Duration::from_nanos(max.expect("it was measured"));
    assert!(max < took / 2, "{max:?} of {took:?}");
}

#[test]
fn killed_run_still_counts_every_client() {
    let client: MakeClient = Arc::new(|_, _| Ok(toy(|_, _, _| {})));
    let mut killed = false;
    let seen = run_on(
        1,
        &["a", "b", "c"],
        |ports| ports,
        client,
        |crew, _, seen| {
            // A whole window first, so that the window that is cut short is the second.
            if !seen.windows.is_empty() && !std::mem::replace(&mut killed, true) {
                crew.broadcast(&RunnerCommand::Kill);
            }
        },
    );
    assert_eq!(seen.outcomes(), [&Outcome::Stopped; 3]);
    assert_eq!(Seen::sum(&seen.population, clients::STOPPED), 3);
    for (windows, (_, index, begins, seconds)) in seen.windows.iter().enumerate() {
        assert_eq!(*index, windows as u64);
        assert_eq!(*begins, Time::ZERO + WINDOW * (windows as u32));
        assert!(*seconds <= 1.0);
    }
}

#[test]
fn long_running_clients_are_reported_before_they_end() {
    let client: MakeClient = Arc::new(|_, _| Ok(toy(|_, _, _| {})));
    let mut killed = false;
    let seen = run_on(
        1,
        &["a"],
        |ports| ports,
        client,
        |crew, _, seen| {
            if !seen.clients.is_empty() && !std::mem::replace(&mut killed, true) {
                crew.broadcast(&RunnerCommand::Kill);
            }
        },
    );
    assert!(seen.clients[0].ended.is_none());
    assert_eq!(seen.clients.len(), 2);
    assert_eq!(seen.clients[0].client.id, seen.clients[1].client.id);
}

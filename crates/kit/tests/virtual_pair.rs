//! The harness that drives two sessions against each other, tested with two toy sessions: a client
//! that requests media over a connection, and a server that sends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kit::media::rtp::metrics::{self as m, RTP};
use kit::media::rtp::{
    Faults, FlowSettings, Pacing, ReceiverConfig, RtpFlow, RtpReceiver, ServedStream,
};
use kit::mediagen::clip::Clip;
use kit::mediagen::frame_rate::FrameRate;
use kit::mediagen::video::{PictureForm, VideoSettings};
use kit::metrics::{CLIENTS, ZAPPING};
use measure::{Catalogue, Group, Time};
use session::link::{Jitter, Loss, Settings};
use session::testing::{Pair, PairSettings, RunEnd, ServerReaction, SessionNumber, Side};
use session::{
    Arrival, ChannelError, ChannelId, CloseReason, Context, Failure, FlowId, Input, MediaEvent,
    Note, Open, Outcome, Output, Port, Record, Session, SinkId,
};

static GROUPS: [&Group; 4] = [&CLIENTS, &ZAPPING, &kit::viewer::VIEWERS, &RTP];

const CONNECTION: ChannelId = ChannelId(0);
const MEDIA: ChannelId = ChannelId(1);
const UDP: Option<u8> = None;
const TCP: Option<u8> = Some(0);
const FIRST: SessionNumber = SessionNumber(0);

fn settings(seed: u64) -> PairSettings {
    PairSettings::new(seed, Catalogue(&GROUPS))
}

fn note(kind: &'static str, text: String) -> Output {
    Output::Note(Note { kind, text })
}

/// Requests media on a port, or on the connection (`PLAY 0`), and counts it until the server
/// closes.
struct Client {
    interleaved: Option<u8>,
    port: u16,
    timeout: Duration,
    /// Time after which it gives up.
    give_up_after: Option<Duration>,
    deadline: Option<Time>,
    sink: Option<SinkId>,
    buffer: Vec<u8>,
}

impl Client {
    fn new(interleaved: Option<u8>) -> Client {
        Client {
            interleaved,
            port: 554,
            timeout: Duration::from_secs(5),
            give_up_after: None,
            deadline: None,
            sink: None,
            buffer: Vec::new(),
        }
    }

    fn boxed(interleaved: Option<u8>) -> Box<dyn Session> {
        Box::new(Client::new(interleaved))
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if let Some(sink) = self.sink.take() {
            cx.sinks.get::<RtpReceiver>(sink).finish(cx.recorder);
            cx.sinks.remove::<RtpReceiver>(sink);
        }
        cx.out.push_back(Output::Ended(outcome));
    }
}

fn failed(reason: &'static str) -> Outcome {
    let detail = String::new();
    Outcome::Failed(Failure { reason, detail })
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Start { due } => {
                assert_eq!(due, cx.now);
                self.deadline = self.give_up_after.map(|patience| cx.now + patience);
                let receiver = RtpReceiver::new(&ReceiverConfig {
                    clock_rate: 90_000,
                    payload_types: vec![],
                    playout_buffer: Duration::from_secs(1),
                });
                self.sink = Some(cx.sinks.insert(receiver));
                cx.out.push_back(Output::Open {
                    channel: CONNECTION,
                    open: Open::Tcp {
                        host: "server".to_owned(),
                        port: self.port,
                        timeout: self.timeout,
                    },
                });
            }
            Input::Opened {
                channel: CONNECTION,
                remote,
                ..
            } => {
                assert!(remote.is_some_and(|remote| remote.port() == self.port));
                if self.interleaved == UDP {
                    cx.out.push_back(Output::Open {
                        channel: MEDIA,
                        open: Open::UdpPair {
                            local: [0, 0, 0, 0].into(),
                            sink: self.sink,
                            shared: false,
                        },
                    });
                } else {
                    send(cx, CONNECTION, b"PLAY 0\n");
                }
            }
            Input::Opened { local, .. } => {
                assert!(local.port() % 2 == 0);
                send(cx, CONNECTION, format!("PLAY {local}\n").as_bytes());
            }
            Input::OpenFailed { error, .. } => self.end(
                cx,
                failed(match error {
                    ChannelError::Refused => "refused",
                    ChannelError::TimedOut => "timed out",
                    _ => "other",
                }),
            ),
            Input::Bytes { bytes, at, .. } => {
                self.buffer.extend_from_slice(bytes);
                while let [b'$', 0, high, low, rest @ ..] = &self.buffer[..] {
                    let length = usize::from(u16::from_be_bytes([*high, *low]));
                    let Some(bytes) = rest.get(..length) else {
                        break;
                    };
                    let arrival = Arrival {
                        at,
                        bytes,
                        length,
                        overhead: 4,
                    };
                    let sink = self.sink.unwrap();
                    cx.sinks.packet(sink, &arrival, cx.recorder);
                    self.buffer.drain(..length + 4);
                }
                // The server announces the address of its media.
                if self.buffer.first() == Some(&b'P') && self.buffer.ends_with(b"\n") {
                    let text = String::from_utf8(std::mem::take(&mut self.buffer)).unwrap();
                    let media: SocketAddr = text[1..].trim().parse().unwrap();
                    cx.out.push_back(peer(media));
                }
            }
            Input::Media {
                event: MediaEvent::First { at },
                ..
            } => cx
                .out
                .push_back(note("first", format!("{}", at.as_nanos()))),
            Input::Closed { reason: how, .. } => {
                let outcome = match how {
                    CloseReason::End => Outcome::Completed,
                    _ => failed("reset"),
                };
                self.end(cx, outcome);
            }
            Input::Deadline => self.end(cx, failed("impatient")),
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            other => panic!("{other:?}"),
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

fn peer(media: SocketAddr) -> Output {
    let control = SocketAddr::new(media.ip(), media.port() + 1);
    Output::Peer {
        channel: MEDIA,
        media,
        control,
    }
}

fn send(cx: &mut Context<'_>, channel: ChannelId, bytes: &[u8]) {
    cx.out.push_back(Output::Send {
        channel,
        port: Port::Media,
        bytes: bytes.to_vec(),
    });
}

/// Sends a clip to the client that asks, waits a second, reports its counts and closes.
struct Server {
    clip: Arc<Clip>,
    length: Option<Duration>,
    flow: Option<FlowId>,
    asked: Vec<u8>,
    interleaved: Option<u8>,
    closes: Option<Time>,
}

impl Server {
    fn play(&mut self, cx: &mut Context<'_>, channel: ChannelId) {
        let mut flow = RtpFlow::new(FlowSettings {
            clip: Arc::clone(&self.clip),
            pacing: Pacing::Spread,
            ssrc: 7,
            first_seq: 65_000,
            first_timestamp: u32::MAX - 90_000,
            length: self.length,
            faults: Faults::default(),
            seed: 1,
            log: false,
        });
        flow.set_interleaved_channel(self.interleaved);
        flow.start(cx.now);
        let flow = cx.flows.insert(flow);
        self.flow = Some(flow);
        cx.out.push_back(Output::StartFlow { flow, channel });
    }

    fn leave(&mut self, cx: &mut Context<'_>) {
        if let Some(flow) = self.flow.take() {
            let flow: Box<RtpFlow> = cx.flows.remove_as(flow);
            let served = flow.statistics();
            cx.out.push_back(Output::Record(Record::new(served)));
        }
        cx.out.push_back(Output::Ended(Outcome::Completed));
    }
}

impl Session for Server {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Start { .. } => {}
            Input::Opened {
                channel: CONNECTION,
                ..
            } => {}
            Input::Opened { channel, local, .. } => {
                let media = String::from_utf8_lossy(&self.asked[5..]).trim().parse();
                cx.out.push_back(peer(media.unwrap()));
                send(cx, CONNECTION, format!("P{local}\n").as_bytes());
                self.play(cx, channel);
            }
            Input::Bytes { bytes, .. } => {
                self.asked.extend_from_slice(bytes);
                if self.asked == b"PLAY 0\n" {
                    self.interleaved = TCP;
                    self.play(cx, CONNECTION);
                } else if self.asked.ends_with(b"\n") {
                    cx.out.push_back(Output::Open {
                        channel: MEDIA,
                        open: Open::UdpPair {
                            local: [0, 0, 0, 0].into(),
                            sink: None,
                            shared: true,
                        },
                    });
                }
            }
            Input::FlowEnded { flow } => {
                assert_eq!(Some(flow), self.flow);
                self.closes = Some(cx.now + Duration::from_secs(1));
            }
            Input::Deadline | Input::Closed { .. } => self.leave(cx),
            other => panic!("{other:?}"),
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.closes
    }
}

fn server(length: Option<u64>) -> impl FnMut(SessionNumber) -> Box<dyn Session> {
    let clip = Arc::new(
        Clip::video(&VideoSettings {
            bits_per_second: 400_000,
            frame_rate: FrameRate::whole(25),
            gop: 25,
            mtu: 600,
            form: PictureForm::default(),
        })
        .unwrap(),
    );
    move |_| {
        Box::new(Server {
            clip: Arc::clone(&clip),
            length: length.map(Duration::from_secs),
            flow: None,
            asked: Vec::new(),
            interleaved: UDP,
            closes: None,
        })
    }
}

fn rough(delay: u64) -> Settings {
    Settings {
        delay: Duration::from_millis(delay),
        jitter: Jitter {
            spread: Duration::from_millis(5),
            ..Jitter::default()
        },
        loss: Loss::Random(0.05),
        duplicate: 0.03,
        reorder: 0.05,
        held_back: Duration::from_millis(40),
        ..Settings::default()
    }
}

/// All outputs and counts of a run, for comparison with another run.
fn run_log(pair: &mut Pair) -> String {
    let paths: Vec<_> = pair.paths().collect();
    let counters = [m::EXPECTED, m::RECEIVED, m::DUPLICATED, m::REORDERED];
    let counts = counters.map(|counter| pair.recorder(Side::Client).counter(counter));
    let jitter = pair.recorder(Side::Client).histogram(m::JITTER);
    format!(
        "{:?} {} {paths:?} {counts:?} {:?} {:?}",
        pair.now(),
        pair.steps(),
        pair.outputs(),
        jitter.map(|jitter| jitter.to_sparse())
    )
}

#[test]
fn receiver_counts_match_a_lossy_path() {
    for seed in 0..20 {
        let mut settings = settings(seed);
        settings.down = rough(20);
        let mut pair = Pair::new(settings, Client::boxed(UDP), server(Some(20)));
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        assert_eq!(pair.outcome(FIRST), Some(&Outcome::Completed));

        let down = pair.paths().find(|path| path.to.port() == 20_000).unwrap();
        let truth = down.counts;
        assert_eq!(truth.packets, truth.delivered + truth.lost());
        assert!(truth.lost() > 10 && truth.duplicated > 10 && truth.reordered > 10);
        let recorder = pair.recorder(Side::Client);
        let [received, duplicated, reordered, expected] =
            [m::RECEIVED, m::DUPLICATED, m::REORDERED, m::EXPECTED]
                .map(|counter| recorder.counter(counter));
        assert_eq!(
            [received, duplicated, reordered],
            [truth.delivered, truth.duplicated, truth.reordered]
        );
        // Losses before the first and after the last received packet are invisible.
        assert!(expected <= truth.packets && expected + 5 > truth.packets);
        assert_eq!(pair.foreign(), 0);
        let served = pair.outputs().iter().find_map(|(_, said)| match said {
            Output::Record(record) => record
                .downcast_ref::<ServedStream>()
                .map(|served| served.sent),
            _ => None,
        });
        assert_eq!(served, Some(truth.packets));
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let mut settings = settings(seed);
        settings.down = rough(10);
        let mut pair = Pair::new(settings, Client::boxed(UDP), server(Some(5)));
        pair.add_client(Client::boxed(TCP));
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        run_log(&mut pair)
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

#[test]
fn many_clients_share_ports_without_loss() {
    let transports = [UDP, TCP];
    let mut pair = Pair::new(settings(1), Client::boxed(transports[0]), server(Some(2)));
    for number in 1..30 {
        pair.add_client(Client::boxed(transports[number % 2]));
    }
    assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::Ended);
    assert_eq!(pair.sessions(Side::Client).count(), 30);
    assert_eq!(pair.sessions(Side::Server).count(), 30);
    let sent: u64 = pair
        .outputs()
        .iter()
        .map(|(_, said)| match said {
            Output::Record(record) => record
                .downcast_ref::<ServedStream>()
                .map_or(0, |served| served.sent),
            _ => 0,
        })
        .sum();
    let recorder = pair.recorder(Side::Client);
    assert_eq!(recorder.counter(m::RECEIVED), sent);
    assert_eq!(recorder.counter(m::EXPECTED), sent);
    assert_eq!(recorder.counter(m::REORDERED), 0);
    assert_eq!(pair.paths().count(), 15);
}

#[test]
fn first_packet_arrives_after_the_expected_round_trips() {
    let mut settings = settings(1);
    settings.stream_delay = Duration::from_millis(30);
    settings.down.delay = Duration::from_millis(50);
    let mut pair = Pair::new(settings, Client::boxed(UDP), server(Some(1)));
    pair.run(Duration::from_secs(10));
    let first = pair.outputs().iter().find_map(|(_, said)| match said {
        Output::Note(note) if note.kind == "first" => note.text.parse::<u64>().ok(),
        _ => None,
    });
    // Connecting takes a round trip, the request one way, the media the other way; pieces arrive up
    // to 200 us late.
    let took = Duration::from_nanos(first.unwrap());
    assert!(took >= Duration::from_millis(140) && took < Duration::from_millis(142));
}

#[test]
fn refused_and_silent_connections_are_reported() {
    for (door, port, reason, after) in [
        (ServerReaction::Refuse, 554, "refused", 2),
        (ServerReaction::Accept, 555, "refused", 2),
        (ServerReaction::Ignore, 554, "timed out", 5000),
    ] {
        let mut settings = settings(1);
        settings.server_reaction = door;
        let mut client = Client::new(TCP);
        client.port = port;
        let mut pair = Pair::new(settings, Box::new(client), server(None));
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        assert_eq!(pair.outcome(FIRST), Some(&failed(reason)));
        assert_eq!(pair.now(), Time::from_start(Duration::from_millis(after)));
    }
}

#[test]
fn deadlines_stops_and_resets_are_delivered() {
    let endless = || Pair::new(settings(1), Client::boxed(TCP), server(None));
    let mut pair = endless();
    assert_eq!(pair.run(Duration::from_secs(3)), RunEnd::TimeUp);
    pair.stop(FIRST, Duration::from_secs(1));
    assert_eq!(pair.run(Duration::from_secs(3)), RunEnd::Ended);
    assert_eq!(pair.outcome(FIRST), Some(&Outcome::Stopped));
    assert_eq!(
        pair.outcome(SessionNumber(1)),
        Some(&Outcome::Completed),
        "the server is notified of the client's end"
    );

    let mut pair = endless();
    assert_eq!(pair.run(Duration::from_secs(3)), RunEnd::TimeUp);
    pair.break_connections();
    assert_eq!(pair.run(Duration::ZERO), RunEnd::Ended);
    assert_eq!(pair.outcome(FIRST), Some(&failed("reset")));

    let mut client = Client::new(UDP);
    client.give_up_after = Some(Duration::from_millis(1500));
    let mut settings = settings(1);
    settings.stream_delay = Duration::from_millis(50);
    let mut pair = Pair::new(settings, Box::new(client), server(None));
    assert_eq!(pair.run(Duration::from_secs(3)), RunEnd::Ended);
    assert_eq!(pair.outcome(FIRST), Some(&failed("impatient")));
    assert!(
        pair.foreign() > 0,
        "media continues until the server is notified"
    );
}

/// A session with an endless deadline loop, or one that waits forever.
struct ToySession(Option<Time>);

impl Session for ToySession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if let Input::Start { .. } = input {
            for topic in ["a", "b"] {
                let topic = topic.to_owned();
                cx.out.push_back(Output::Subscribe { topic });
            }
            let (topic, message) = ("a".to_owned(), Arc::from("hello"));
            cx.out.push_back(Output::Publish { topic, message });
        }
        if let Input::TopicMessage { topic, message } = input {
            cx.out.push_back(note("told", format!("{topic} {message}")));
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.0
    }
}

#[test]
fn endless_runs_are_stopped() {
    let mut settings = settings(1);
    settings.steps_max = 1000;
    let restless = Box::new(ToySession(Some(Time::ZERO)));
    let mut pair = Pair::new(settings.clone(), restless, server(None));
    assert_eq!(pair.run(Duration::from_secs(1)), RunEnd::StepsUp);
    let mut pair = Pair::new(settings, Box::new(ToySession(None)), server(None));
    assert_eq!(pair.run(Duration::from_secs(1)), RunEnd::Idle);
}

#[test]
fn topic_messages_reach_current_and_later_subscribers() {
    let mut pair = Pair::new(settings(1), Box::new(ToySession(None)), server(None));
    assert_eq!(pair.run(Duration::from_secs(1)), RunEnd::Idle);
    pair.add_client(Box::new(ToySession(None)));
    assert_eq!(pair.run(Duration::from_secs(1)), RunEnd::Idle);
    let told: Vec<usize> = pair
        .outputs()
        .iter()
        .map(|(session, _)| session.0)
        .collect();
    // The first session receives its own message and the second's; the second receives the earlier
    // message and its own.
    assert_eq!(told.iter().filter(|&&session| session == 0).count(), 2);
    assert_eq!(told.iter().filter(|&&session| session == 1).count(), 2);
}

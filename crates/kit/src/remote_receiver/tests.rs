//! A receiver against a scripted client, and a client's link against a scripted receiver.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::{Recorder, Time};
use proptest::prelude::*;

use super::messages::{ClientMessage, ReceiverMessage, StreamRequest, VERSION, to_line};
use super::{Link, Receiver, ReceiverEvent, Secret, Terms, proof};
use crate::media::rtcp;
use crate::media::rtp::metrics as rtp;
use crate::metrics::{CLIENTS, ZAPPING};
use crate::viewer::VIEWERS;
use session::{
    Arrival, ChannelId, Context, Flows, Input, Open, Output, Port, Session, SinkId, Sinks,
};

const CONTROL: ChannelId = ChannelId(0);

const CATALOGUE: measure::Catalogue =
    measure::Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &rtp::RTP]);

struct Bench {
    session: Receiver,
    terms: Arc<Terms>,
    now: Time,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    messages: VecDeque<ReceiverMessage>,
    opened: Vec<(ChannelId, SinkId)>,
    peers: Vec<(SocketAddr, SocketAddr)>,
    reports: usize,
    listens: usize,
    /// Messages published to other sessions.
    published: VecDeque<Arc<str>>,
    ended: bool,
}

fn secret() -> Secret {
    Secret::new("known to both")
}

fn wanted(stream: u8) -> ClientMessage {
    ClientMessage::Open(StreamRequest {
        stream,
        clock_rate: 90_000,
        payload_types: vec![96],
        playout_buffer: 1_000_000_000,
        reports: true,
        every: 200_000_000,
    })
}

impl Bench {
    fn new(streams_max: usize) -> Bench {
        Bench::among(&Arc::new(Terms::new(secret(), [1; 32], streams_max)), 7)
    }

    /// A session among others with the same terms.
    fn among(terms: &Arc<Terms>, number: u64) -> Bench {
        let terms = terms.clone();
        let mut bench = Bench {
            session: Receiver::new(terms.clone(), number),
            terms,
            now: Time::from_start(Duration::from_secs(1)),
            recorder: Recorder::new(CATALOGUE),
            sinks: Sinks::default(),
            flows: Flows::default(),
            messages: VecDeque::new(),
            opened: Vec::new(),
            peers: Vec::new(),
            reports: 0,
            listens: 0,
            published: VecDeque::new(),
            ended: false,
        };
        let due = bench.now;
        bench.input(Input::Start { due });
        bench.input(Input::Opened {
            channel: CONTROL,
            local: "[::ffff:10.0.0.3]:8561".parse().expect("an address"),
            remote: Some("10.0.0.2:50000".parse().expect("an address")),
        });
        bench
    }

    /// A session whose client has proven that it knows the secret.
    fn admitted(streams_max: usize) -> Bench {
        let mut bench = Bench::new(streams_max);
        bench.prove();
        bench
    }

    /// Proves that the client knows the secret.
    fn prove(&mut self) {
        let Some(ReceiverMessage::Hello {
            version: VERSION,
            challenge,
        }) = self.messages.pop_front()
        else {
            panic!("a challenge comes first");
        };
        let proof = proof(&secret(), &challenge);
        self.ask(&ClientMessage::Proof { proof });
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut session::Outbox::default(),
        };
        self.session.handle(&mut cx, input);
        for output in out {
            assert!(!self.ended, "{output:?} after the end");
            match output {
                Output::Send {
                    channel: CONTROL,
                    bytes,
                    ..
                } => {
                    let parsed = serde_json::from_slice(&bytes);
                    self.messages.push_back(parsed.expect("a message"));
                }
                Output::Send { port, bytes, .. } => {
                    assert_eq!(port, Port::Control);
                    assert!(rtcp::packets(&bytes).all(|packet| packet.is_ok()));
                    self.reports += 1;
                }
                Output::Open {
                    channel,
                    open:
                        Open::UdpPair {
                            local,
                            sink: Some(sink),
                            shared: false,
                        },
                } => {
                    assert_eq!(local.to_string(), "10.0.0.3");
                    self.opened.push((channel, sink));
                }
                Output::Subscribe { .. } => self.listens += 1,
                Output::Publish { message, .. } => self.published.push_back(message),
                Output::Peer { media, control, .. } => self.peers.push((media, control)),
                Output::Close { .. } => {}
                Output::Ended(_) => self.ended = true,
                other => panic!("{other:?}"),
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let at = self.now;
        self.input(Input::Bytes {
            channel: CONTROL,
            bytes,
            at,
            runs: &[],
        });
    }

    fn ask(&mut self, asked: &ClientMessage) {
        self.bytes(&to_line(asked));
    }

    /// Requests a stream and opens its ports.
    fn open(&mut self, stream: u8) {
        self.ask(&wanted(stream));
        let (channel, _) = *self.opened.last().expect("ports are wanted");
        self.input(Input::Opened {
            channel,
            local: "10.0.0.3:40000".parse().expect("an address"),
            remote: None,
        });
        assert_eq!(
            self.messages.pop_front(),
            Some(ReceiverMessage::Opened {
                stream,
                address: "10.0.0.3".parse().expect("an address"),
                port: 40_000
            })
        );
    }

    fn packet(&mut self, seq: u16) {
        let mut packet = vec![0x80, 96];
        packet.extend_from_slice(&seq.to_be_bytes());
        packet.extend_from_slice(&(u32::from(seq) * 3600).to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 9, 1, 2, 3, 4]);
        let (_, sink) = self.opened[0];
        let arrival = Arrival {
            at: self.now,
            bytes: &packet,
            length: packet.len(),
            overhead: 28,
        };
        let event = self.sinks.packet(sink, &arrival, &mut self.recorder);
        if let Some(event) = event {
            self.now += Duration::from_millis(3);
            self.input(Input::Media { sink, event });
        }
    }

    fn refusal(&mut self) -> String {
        match self.messages.pop_back() {
            Some(ReceiverMessage::Closed { .. }) => self.refusal(),
            Some(ReceiverMessage::Refused { why }) => {
                assert!(self.ended);
                why
            }
            other => panic!("{other:?} is not a refusal"),
        }
    }
}

#[test]
fn stream_is_received_from_open_to_close() {
    let mut bench = Bench::admitted(9);
    bench.open(0);
    assert_eq!(bench.terms.streams(), 1);
    let end = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let (media, control) = (end("10.0.0.1:6000"), end("10.0.0.1:6001"));
    bench.ask(&ClientMessage::Peer {
        stream: 0,
        media,
        control,
    });
    assert_eq!(bench.peers, [(media, control)]);
    bench.packet(102);
    let first = ReceiverMessage::First {
        stream: 0,
        age: 3_000_000,
    };
    assert_eq!(bench.messages.pop_front(), Some(first));
    bench.ask(&ClientMessage::Base {
        rtptime: None,
        stream: 0,
        sequence: 100,
    });
    bench.now += Duration::from_millis(300);
    bench.input(Input::Deadline);
    let Some(ReceiverMessage::Seen(state)) = bench.messages.pop_front() else {
        panic!("interim counts are sent");
    };
    assert_eq!(state.ages, Some((303_000_000, 303_000_000)));
    assert_eq!((state.counts.expected, state.counts.received), (3, 1));
    bench.now += Duration::from_secs(9);
    bench.input(Input::Deadline);
    assert_eq!(bench.reports, 1);
    let mut bye = Vec::new();
    rtcp::write_receiver_report(&mut bye, 9, &[]);
    rtcp::write_bye(&mut bye, &[9], None);
    let (channel, at) = (bench.opened[0].0, bench.now);
    bench.input(Input::Datagram {
        channel,
        port: Port::Control,
        from: control,
        bytes: &bye,
        at,
    });
    let messages: Vec<ReceiverMessage> = bench.messages.drain(..).collect();
    assert_eq!(
        messages.last(),
        Some(&ReceiverMessage::Bye { stream: 0, age: 0 })
    );
    let many = bye.repeat(100);
    bench.input(Input::Datagram {
        channel,
        port: Port::Control,
        from: control,
        bytes: &many,
        at,
    });
    assert!(bench.messages.is_empty(), "one BYE: {:?}", bench.messages);
    bench.ask(&ClientMessage::Close);
    assert!(
        matches!(bench.messages.back(), Some(ReceiverMessage::Closed { streams }) if streams.len() == 1)
    );
    assert!(bench.ended);
    assert_eq!(bench.recorder.counter(rtp::EXPECTED), 3);
    assert_eq!(bench.terms.streams(), 0);
}

#[test]
fn clients_without_the_secret_are_refused() {
    for asked in [
        wanted(0),
        ClientMessage::Close,
        ClientMessage::Proof {
            proof: "0".repeat(64),
        },
    ] {
        let mut bench = Bench::new(9);
        bench.ask(&asked);
        bench.refusal();
        assert!(bench.opened.is_empty());
        assert_eq!(bench.terms.refused(), 1);
    }
    let mut bench = Bench::new(9);
    bench.bytes(&[b'x'; 5000]);
    assert_eq!(bench.refusal(), "line too long");
    let mut bench = Bench::new(9);
    bench.now = bench.session.deadline().expect("the wait is limited");
    bench.input(Input::Deadline);
    assert_eq!(bench.refusal(), "no proof in time");
}

/// Sessions with the same terms, which receive each other's messages.
struct Sessions {
    terms: Arc<Terms>,
    all: Vec<Bench>,
}

impl Sessions {
    fn new(streams_max: usize) -> Sessions {
        let terms = Arc::new(Terms::new(secret(), [1; 32], streams_max));
        let all = Vec::new();
        Sessions { terms, all }
    }

    /// Adds a session and delivers its message to the others.
    fn connect(&mut self) -> usize {
        let number = self.all.len();
        let mut bench = Bench::among(&self.terms, number as u64);
        let published = bench.published.pop_front();
        self.all.push(bench);
        if let Some(message) = published {
            for bench in self.all.iter_mut().filter(|bench| !bench.ended) {
                assert_eq!(bench.listens, 1);
                bench.input(Input::TopicMessage {
                    topic: "dropped",
                    message: &message,
                });
            }
        }
        number
    }
}

#[test]
fn newcomers_replace_idle_connections_but_not_proven_ones() {
    for streams_max in [1, 64, 100] {
        let mut sessions = Sessions::new(streams_max);
        let bound = sessions.terms.unproven_max();
        assert_eq!(bound, streams_max.max(64));
        let early = sessions.connect();
        sessions.all[early].prove();
        sessions.all[early].open(0);
        let waiting = sessions.connect();
        for _ in 0..10 * bound {
            let number = sessions.connect();
            assert!(!sessions.all[number].ended, "the newcomer is accepted");
            assert!(sessions.terms.unproven() <= bound);
        }
        assert!(sessions.all[waiting].ended, "the oldest was dropped");
        assert!(
            sessions.all[waiting]
                .refusal()
                .contains("newer connections")
        );
        assert!(!sessions.all[early].ended, "a proven connection stays");
        let late = sessions.connect();
        sessions.all[late].prove();
        assert!(!sessions.all[late].ended);
        // All connections except the two proven ones count as unproven until they end.
        let idle = sessions.all.iter().filter(|bench| !bench.ended).count() - 2;
        assert_eq!(sessions.terms.unproven(), idle);
        sessions.all.clear();
        assert_eq!(sessions.terms.unproven(), 0);
    }
}

#[test]
fn unproven_connections_have_three_seconds() {
    let mut bench = Bench::new(9);
    assert_eq!(bench.terms.unproven(), 1);
    bench.now += Duration::from_millis(2999);
    bench.input(Input::Deadline);
    assert!(!bench.ended);
    bench.now += Duration::from_millis(1);
    bench.input(Input::Deadline);
    assert_eq!(bench.refusal(), "no proof in time");
    assert_eq!(bench.terms.unproven(), 0);
    let mut bench = Bench::admitted(9);
    bench.now += Duration::from_secs(60);
    bench.input(Input::Deadline);
    assert!(!bench.ended);
}

#[test]
fn number_of_open_streams_is_bounded() {
    let mut bench = Bench::admitted(1);
    bench.open(0);
    bench.ask(&wanted(1));
    assert!(bench.refusal().contains("no more streams"));
    assert_eq!(bench.terms.streams(), 0);
    let mut bench = Bench::admitted(9);
    bench.open(0);
    bench.ask(&wanted(0));
    bench.refusal();
    let mut bench = Bench::admitted(9);
    bench.ask(&wanted(32));
    bench.refusal();
    let mut bench = Bench::admitted(9);
    bench.bytes(&vec![b'x'; 100_000]);
    assert_eq!(bench.refusal(), "line too long");
    // However a session ends, its streams are released.
    let mut bench = Bench::admitted(9);
    bench.open(0);
    let terms = bench.terms.clone();
    drop(bench);
    assert_eq!(terms.streams(), 0);
}

proptest! {
    #[test]
    fn hostile_bytes_are_handled_without_panic(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..10),
        admitted in any::<bool>(),
    ) {
        let mut bench = if admitted { Bench::admitted(2) } else { Bench::new(2) };
        for part in parts {
            bench.bytes(&part);
            bench.bytes(b"\n");
            prop_assert!(bench.opened.len() <= 2);
        }
    }
}

/// A client's link to a scripted receiver.
struct LinkBench {
    link: Link,
    now: Time,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
    out: VecDeque<Output>,
}

impl LinkBench {
    /// A link that has requested a stream before the receiver has sent anything.
    fn new() -> LinkBench {
        let mut link = Link::new(ChannelId(3), secret());
        link.opened(Some("10.0.0.3:8561".parse().expect("an address")));
        let mut bench = LinkBench {
            link,
            now: Time::from_start(Duration::from_secs(5)),
            recorder: Recorder::new(CATALOGUE),
            sinks: Sinks::default(),
            flows: Flows::default(),
            out: VecDeque::new(),
        };
        bench.with(|link, cx| link.send_request(cx, wanted(0)));
        bench
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Link, &mut Context<'_>) -> T) -> T {
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut self.out,
            outbox: &mut session::Outbox::default(),
        };
        act(&mut self.link, &mut cx)
    }

    fn deliver(&mut self, message: &ReceiverMessage) -> Result<Vec<ReceiverEvent>, String> {
        let at = self.now;
        self.with(|link, cx| link.received(cx, &to_line(message), at))
    }

    /// Delivers a message after some milliseconds.
    fn hear_after(
        &mut self,
        millis: u64,
        message: &ReceiverMessage,
    ) -> Result<Vec<ReceiverEvent>, String> {
        self.now += Duration::from_millis(millis);
        self.deliver(message)
    }

    /// Sends the challenge.
    fn greet(&mut self) {
        let hello = ReceiverMessage::Hello {
            version: VERSION,
            challenge: "abc".to_owned(),
        };
        assert!(self.deliver(&hello).is_ok_and(|events| events.is_empty()));
    }

    fn asked(&mut self) -> Vec<ClientMessage> {
        let asked = |output| match output {
            Output::Send { bytes, .. } => serde_json::from_slice(&bytes).expect("a message"),
            other => panic!("{other:?}"),
        };
        self.out.drain(..).map(asked).collect()
    }
}

fn opened(address: &str, port: u16) -> ReceiverMessage {
    ReceiverMessage::Opened {
        stream: 0,
        address: address.parse().expect("an address"),
        port,
    }
}

#[test]
fn link_converts_times_to_its_own_clock() {
    let mut bench = LinkBench::new();
    assert_eq!(bench.asked(), [], "no request before the challenge");
    bench.greet();
    let proof = proof(&secret(), "abc");
    assert_eq!(bench.asked(), [ClientMessage::Proof { proof }, wanted(0)]);
    let events = bench.hear_after(8, &opened("10.0.0.3", 40_000));
    let port = 40_000;
    assert!(
        matches!(events.as_deref(), Ok([ReceiverEvent::Opened { stream: 0, port: at }]) if *at == port)
    );
    assert_eq!(bench.link.round_trip(), Some(Duration::from_millis(8)));
    let first = ReceiverMessage::First {
        stream: 0,
        age: 30_000_000,
    };
    let events = bench.hear_after(992, &first);
    // 30 ms before the message was sent, and 4 ms in transit.
    let really = Time::from_start(Duration::from_millis(5966));
    assert!(
        matches!(events.as_deref(), Ok([ReceiverEvent::FirstPacket { stream: 0, at }]) if *at == really)
    );
}

#[test]
fn receiver_can_announce_only_its_own_address() {
    for (address, port) in [("10.0.0.9", 40_000), ("10.0.0.3", 0), ("10.0.0.3", 40_001)] {
        let mut bench = LinkBench::new();
        bench.greet();
        assert!(
            bench.deliver(&opened(address, port)).is_err(),
            "{address}:{port}"
        );
    }
    // A receiver with a second challenge could have any challenge answered.
    let mut bench = LinkBench::new();
    bench.greet();
    let again = ReceiverMessage::Hello {
        version: VERSION,
        challenge: "another".to_owned(),
    };
    assert!(bench.deliver(&again).is_err());
    let mut bench = LinkBench::new();
    let why = "full".to_owned();
    let events = bench.deliver(&ReceiverMessage::Refused { why });
    assert!(events.is_err_and(|why| why.contains("full")));
    let mut bench = LinkBench::new();
    let other = ReceiverMessage::Hello {
        version: VERSION + 1,
        challenge: String::new(),
    };
    assert!(
        bench
            .deliver(&other)
            .is_err_and(|why| why.contains("version"))
    );
}

//! Tests of pairs without a worker: which session receives a datagram.

use std::net::Ipv4Addr;

use measure::Recorder;
use protocols::RTSP_PROTOCOL;
use session::{Arrival, ChannelId, Input, MediaEvent, Sink, Sinks};

use super::super::ids::{ClientIds, RunnerPlace};
use super::super::pending_inputs::Pending;
use super::super::populations::{Populations, WorkerPopulation};
use super::super::tests::ports;
use super::*;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CHANNEL: ChannelId = ChannelId(3);

fn session(serial: u64) -> SessionKey {
    SessionKey { index: 1, serial }
}

#[derive(Debug)]
struct Nothing;

impl Sink for Nothing {
    fn packet(&mut self, _: &Arrival<'_>, _: &mut Recorder) -> Option<MediaEvent> {
        None
    }
}

struct Bench {
    pairs: Pairs,
    sinks: Sinks,
    populations: Populations,
    runtime: Runtime,
}

impl Bench {
    fn new() -> Bench {
        let waker = net::Waker::new().expect("linux has it");
        let (reports, _) = crossbeam_channel::unbounded();
        let plan = WorkerPopulation {
            name: "toys".to_owned(),
            catalogue: RTSP_PROTOCOL.catalogue,
            clients: None,
        };
        Bench {
            pairs: Pairs::new(ports()),
            sinks: Sinks::default(),
            populations: Populations::new(vec![plan], 0, ClientIds::new(RunnerPlace::ALONE, 0, 1)),
            runtime: Runtime::new(&waker, reports).expect("linux has it"),
        }
    }

    fn take_in(&mut self, place: SocketId, from: SocketAddr) -> Disposition {
        let datagram = ReceivedDatagram {
            from,
            to: None,
            at: Time::ZERO,
            bytes: b"report",
            length: 6,
        };
        let counting = &mut MediaCounter {
            sinks: &mut self.sinks,
            populations: &mut self.populations,
            runtime: &mut self.runtime,
        };
        self.pairs.process(place, &datagram, counting)
    }

    fn foreign(&mut self) -> i64 {
        let window = self.runtime.tester.take_window();
        window.counters[usize::from(tester::FOREIGN_PACKETS.0)]
    }
}

fn from(last: u8, port: u16) -> SocketAddr {
    SocketAddr::new([127, 0, 0, last].into(), port)
}

#[test]
fn pair_accepts_only_its_peer_and_is_free_once_closed() {
    let mut bench = Bench::new();
    let request = PairRequest {
        owner: session(1).channel(CHANNEL),
        population: 0,
        local: LOCAL,
        sink: None,
        on_ring: false,
        tracer: None,
    };
    let opened = bench.pairs.open(&bench.runtime, &request);
    let (_, pair) = opened.expect("free ports");
    let for_session = Disposition::For(session(1).channel(CHANNEL), Port::Media);
    let place = SocketId::Pair(pair.media);
    assert_eq!(
        bench.take_in(place, from(9, 7)),
        for_session,
        "nobody is named yet"
    );
    let peer = Peer {
        media: from(1, 7),
        control: from(1, 8),
    };
    assert_eq!(bench.pairs.name_peer(pair, peer), None);
    assert_eq!(bench.take_in(place, from(1, 99)), for_session);
    assert_eq!(bench.take_in(place, from(9, 7)), Disposition::Counted);
    assert_eq!(bench.foreign(), 1);
    assert_eq!(bench.pairs.ports.pairs_taken(), 1);
    assert_eq!(bench.pairs.close(pair, &mut bench.runtime), None);
    assert_eq!(
        (bench.pairs.ports.pairs_taken(), bench.pairs.count()),
        (0, 0)
    );
}

#[test]
fn sessions_on_a_shared_pair_receive_only_from_their_peer() {
    let mut bench = Bench::new();
    let mut open = || bench.pairs.open_shared(&bench.runtime, LOCAL, None);
    let (_, pair) = open().expect("free ports");
    let (_, second) = open().expect("it is there");
    assert_eq!(pair, second);
    let peer = |port| Peer {
        media: from(1, port),
        control: from(1, port + 1),
    };
    for number in [1, 2] {
        let port = u16::try_from(number * 10).expect("few");
        let key = session(number);
        bench
            .pairs
            .route(pair, key.channel(CHANNEL), peer(port), None);
    }
    // The peer of the first session changes.
    let (key, before) = (session(1), Some(peer(10)));
    bench
        .pairs
        .route(pair, key.channel(CHANNEL), peer(30), before);
    bench.pairs.leave(pair, session(1), peer(20));
    let place = SocketId::Shared(pair.media);
    assert_eq!(bench.take_in(place, from(1, 10)), Disposition::Counted);
    for (port, number) in [(30, 1), (20, 2)] {
        let for_session = Disposition::For(session(number).channel(CHANNEL), Port::Media);
        assert_eq!(bench.take_in(place, from(1, port)), for_session);
    }
    assert_eq!(bench.foreign(), 1);
}

#[test]
fn session_is_notified_of_the_first_foreign_datagram() {
    let mut bench = Bench::new();
    let sink = bench.sinks.insert(Nothing);
    let request = PairRequest {
        owner: session(1).channel(CHANNEL),
        population: 0,
        local: LOCAL,
        sink: Some(sink),
        on_ring: false,
        tracer: None,
    };
    let opened = bench.pairs.open(&bench.runtime, &request);
    let (_, pair) = opened.expect("free ports");
    let peer = Peer {
        media: from(1, 7),
        control: from(1, 8),
    };
    bench.pairs.name_peer(pair, peer);
    for last in [9, 9, 8] {
        let taken = bench.take_in(SocketId::Pair(pair.media), from(last, 7));
        assert_eq!(taken, Disposition::Counted);
    }
    assert_eq!(bench.foreign(), 3);
    let pending = bench.runtime.inbox.pop();
    let Some((key, Pending::Input(Input::Media { event, .. }))) = pending else {
        panic!("it is told");
    };
    let stranger = from(9, 7).ip();
    assert_eq!(key, session(1));
    assert_eq!(event, MediaEvent::Foreign { from: stranger });
    assert!(bench.runtime.inbox.pop().is_none());
}

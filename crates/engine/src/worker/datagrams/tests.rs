use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Instant;

use measure::Recorder;
use session::{Context, Flows, Outbox, Output, Sinks};

use super::super::receiving::{BatchUse, Batches};
use super::*;

const SESSION: SessionKey = SessionKey {
    index: 1,
    serial: 1,
};

const CHANNEL: ChannelId = ChannelId(3);

fn runtime() -> Runtime {
    let waker = net::Waker::new().expect("linux has it");
    let (reports, _) = crossbeam_channel::unbounded();
    Runtime::new(&waker, reports).expect("linux has it")
}

fn local() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Opens a socket of the session.
fn open_socket(
    datagrams: &mut Datagrams,
    runtime: &Runtime,
    peer: Option<SocketAddr>,
    reading: ReadTiming,
    media: MediaPath,
) -> (usize, SocketAddr) {
    let request = DatagramRequest {
        owner: SESSION.channel(CHANNEL),
        socket: net::ports::bind(local(), 0).expect("a free port"),
        peer,
        reading,
        media,
        tracer: None,
    };
    datagrams.open(runtime, request).expect("a free port")
}

/// Opens a socket of the session without a media path, connected to `peer` if given.
fn open(
    datagrams: &mut Datagrams,
    runtime: &Runtime,
    peer: Option<SocketAddr>,
    reading: ReadTiming,
) -> (usize, SocketAddr) {
    open_socket(datagrams, runtime, peer, reading, MediaPath::None)
}

/// Receives until datagrams arrive.
fn receive_once(
    datagrams: &mut Datagrams,
    index: usize,
    runtime: &mut Runtime,
) -> (ReceiveOutcome, Vec<Vec<u8>>) {
    let give_up = Instant::now() + Duration::from_secs(10);
    let mut batch = ReceiveBatch::bulk();
    loop {
        let looked = datagrams.receive(index, &mut batch, runtime);
        if !matches!(looked, ReceiveOutcome::Nothing | ReceiveOutcome::Error(_)) {
            let clock = runtime.clock.same_start();
            let came = batch.datagrams(&clock).map(|came| came.bytes.to_vec());
            return (looked, came.collect());
        }
        assert!(Instant::now() < give_up, "nothing comes");
        std::thread::park_timeout(Duration::from_micros(100));
    }
}

#[test]
fn sockets_on_the_ring_are_read_late_only_at_deadlines() {
    let (mut datagrams, runtime) = (Datagrams::default(), runtime());
    let ways = [
        (ReadTiming::Late, MediaPath::None, true),
        (ReadTiming::Late, MediaPath::Ring, false),
        (ReadTiming::AtDeadlines, MediaPath::Ring, true),
        (ReadTiming::AtOnce, MediaPath::None, false),
    ];
    for (reading, media, expected) in ways {
        let at_once = ReadTiming::AtOnce;
        let (index, _) = open_socket(&mut datagrams, &runtime, None, at_once, media);
        assert!(!datagrams.is_late(index));
        let set = datagrams.set_reading(index, reading, &runtime);
        set.expect("it can be polled");
        assert_eq!(datagrams.is_late(index), expected, "{reading:?} {media:?}");
        assert_eq!(datagrams.is_on_ring(index), media == MediaPath::Ring);
    }
}

#[test]
fn datagrams_arrive_and_closed_socket_is_not_read_late() {
    let (mut datagrams, mut runtime) = (Datagrams::default(), runtime());
    let (receiver, to) = open(&mut datagrams, &runtime, None, ReadTiming::Late);
    let (sender, _) = open(&mut datagrams, &runtime, None, ReadTiming::AtOnce);
    assert_eq!(datagrams.late(), [receiver]);
    let mut out = VecDeque::new();
    let mut outbox = Outbox::default();
    let mut context = Context {
        now: Time::ZERO,
        recorder: &mut Recorder::new(tester::TESTER_CATALOGUE),
        sinks: &mut Sinks::default(),
        flows: &mut Flows::default(),
        out: &mut out,
        outbox: &mut outbox,
    };
    for bytes in [b"one", b"two"] {
        context.transmit(CHANNEL, None, |out| out.extend_from_slice(bytes));
    }
    while let Some(Output::Transmit(transmit)) = out.pop_front() {
        let bytes = outbox.bytes(&transmit);
        datagrams.transmit(sender, Some(to), None, &transmit, bytes, &mut runtime);
    }
    let (looked, came) = receive_once(&mut datagrams, receiver, &mut runtime);
    let owner = Owner::Session(SESSION, CHANNEL);
    assert!(matches!(looked, ReceiveOutcome::Filled { .. }));
    assert_eq!(datagrams.owner(receiver), Some(owner));
    assert_eq!(came, [b"one", b"two"]);
    datagrams.close_channel(receiver, None, &mut runtime);
    assert!(datagrams.late().is_empty());
    assert_eq!(datagrams.count(), 1);
}

#[test]
fn reading_mode_of_a_socket_can_be_changed() {
    let (mut datagrams, mut runtime) = (Datagrams::default(), runtime());
    let (index, to) = open(&mut datagrams, &runtime, None, ReadTiming::AtOnce);
    let other = std::net::UdpSocket::bind(local()).expect("a free port");
    let mut ready = crate::worker::readiness::Ready::new();
    for (reading, word) in [
        (ReadTiming::Late, b"one"),
        (ReadTiming::AtOnce, b"two"),
        (ReadTiming::AtOnce, b"six"),
    ] {
        other.send_to(word, to).expect("it is there");
        let set = datagrams.set_reading(index, reading, &runtime);
        set.expect("linux takes it");
        let is_late = reading == ReadTiming::Late;
        assert_eq!(datagrams.late().contains(&index), is_late);
        let give_up = Instant::now() + Duration::from_secs(10);
        // Datagrams that arrived before are reported too.
        loop {
            let clock = runtime.clock.same_start();
            let waited = runtime
                .readiness
                .wait(&mut ready, Time::NEVER, true, &clock);
            assert!(waited.expect("linux has it"));
            let ready_count = match is_late {
                true => ready.control().count(),
                false => ready.events().count(),
            };
            if ready_count > 0 {
                break;
            }
            assert!(Instant::now() < give_up, "nothing is told");
        }
        let (looked, came) = receive_once(&mut datagrams, index, &mut runtime);
        assert!(matches!(looked, ReceiveOutcome::Filled { .. }));
        assert_eq!(came, [word]);
    }
}

#[test]
fn sockets_on_the_ring_are_read_at_few_deadlines() {
    let (mut datagrams, runtime) = (Datagrams::default(), runtime());
    let mut due = |media, reading| {
        let (index, _) = open_socket(&mut datagrams, &runtime, None, reading, media);
        let millis = |millis: u64| Time::from_start(Duration::from_millis(1000 + millis));
        [0, 10, 39, 40, 50, 90].map(|at| datagrams.is_due(index, millis(at)))
    };
    let seldom = due(MediaPath::Ring, ReadTiming::AtDeadlines);
    assert_eq!(seldom, [true, false, false, true, false, true]);
    // Media itself is read at each deadline.
    assert_eq!(due(MediaPath::None, ReadTiming::AtDeadlines), [true; 6]);
    assert_eq!(due(MediaPath::Ring, ReadTiming::AtOnce), [true; 6]);
    assert!(!datagrams.is_due(99, Time::ZERO));
}

#[test]
fn unreachable_peer_is_reported_after_all_datagrams() {
    let (mut datagrams, mut runtime) = (Datagrams::default(), runtime());
    let nobody = std::net::UdpSocket::bind(local()).expect("a free port");
    let peer = nobody.local_addr().ok();
    let (index, to) = open(&mut datagrams, &runtime, peer, ReadTiming::AtOnce);
    nobody.send_to(b"the last", to).expect("it is there");
    drop(nobody);
    datagrams.refused(index, &mut runtime);
    let unread = runtime.readiness.take_unread();
    assert_eq!(unread, [SocketId::Single(index)]);
    let (looked, came) = receive_once(&mut datagrams, index, &mut runtime);
    assert!(matches!(looked, ReceiveOutcome::Filled { more: true, .. }));
    assert_eq!(came, [b"the last"]);
    let mut batches = Batches::new();
    let batch = batches.of(BatchUse::Single).take();
    let mut batch = batch.expect("nobody hears anything");
    assert!(batches.is_delivering(BatchUse::Single));
    let looked = datagrams.receive(index, &mut batch, &mut runtime);
    assert!(matches!(
        looked,
        ReceiveOutcome::NobodyThere(owner) if owner == SESSION.channel(CHANNEL)
    ));
}

#[test]
fn socket_with_the_shortest_interval_wakes_the_loop() {
    let (mut datagrams, mut runtime) = (Datagrams::default(), runtime());
    let mut open = |reading, media| open_socket(&mut datagrams, &runtime, None, reading, media).0;
    let millis = |millis| Time::from_start(Duration::from_millis(millis));
    let within = |millis| ReadTiming::Soon(Duration::from_millis(millis));
    let eight = open(within(8), MediaPath::None);
    let one = open(
        ReadTiming::MediaSoon(Duration::from_millis(1)),
        MediaPath::None,
    );
    // The ring wakes the loop for these.
    let ring = open(within(1), MediaPath::Ring);
    assert_eq!(datagrams.next_look(millis(5)), millis(6));
    datagrams
        .set_reading(one, within(3), &runtime)
        .expect("it can be polled");
    assert_eq!(datagrams.next_look(millis(5)), millis(8));
    for index in [one, ring] {
        datagrams.close_channel(index, None, &mut runtime);
    }
    assert_eq!(datagrams.next_look(millis(5)), millis(13));
    datagrams
        .set_reading(eight, ReadTiming::Late, &runtime)
        .expect("it can be polled");
    assert_eq!(datagrams.next_look(millis(5)), Time::NEVER);
}

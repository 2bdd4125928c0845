//! Tests of a pacer without a worker, against plain sockets. Loopback delivers within the sending
//! call, so the packets that a flow counts as sent are always the packets that the socket holds.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use kit::media::rtp::{Clip, Faults, FlowSettings, RtpFlow};
use kit::mediagen::frame_rate::FrameRate;
use kit::mediagen::video::{PictureForm, VideoSettings};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use session::{ChannelId, FlowPacket, Flows, PacketHeader};

use super::*;

/// Maximum duration of any wait in these tests.
const PATIENCE: Duration = Duration::from_secs(20);

const SESSION: SessionKey = SessionKey {
    index: 0,
    serial: 0,
};

const CHANNEL: ChannelId = ChannelId(3);

/// The worker's side of the pacer.
struct Bench {
    clock: Clock,
    poll: Poll,
    flows: Flows,
    pacer: Pacer,
    /// Shared by all flows.
    socket: Arc<OwnedFd>,
}

impl Bench {
    fn new() -> Bench {
        let clock = Clock::start();
        let poll = Poll::new().expect("linux has it");
        let waker = Waker::new().expect("linux has it");
        poll.registry()
            .register(
                &mut SourceFd(&waker.as_raw_fd()),
                Token(0),
                Interest::READABLE,
            )
            .expect("linux has it");
        let pacer =
            Pacer::start(0, &clock, Arc::new(waker), PacerOptions::default()).expect("a thread");
        Bench {
            clock,
            poll,
            flows: Flows::default(),
            pacer,
            socket: Arc::new(socket().into()),
        }
    }

    /// Lends a flow that is or will be started.
    fn lend(&mut self, flow: RtpFlow, to: SocketAddr) -> (FlowId, Lease) {
        let id = self.flows.insert(flow);
        (id, self.lend_again(id, to))
    }

    fn lend_again(&mut self, id: FlowId, to: SocketAddr) -> Lease {
        let (pacer, socket) = (&self.pacer, self.socket.clone());
        let mut lease = None;
        self.flows.lend(id, |flow| {
            let whose = FlowOwner {
                flow: id,
                owner: SESSION.channel(CHANNEL),
            };
            let (known_as, lender) = pacer.lend(flow, whose, socket, to);
            lease = Some(known_as);
            lender
        });
        lease.expect("it was at home")
    }

    fn sent(&mut self, id: FlowId) -> u64 {
        self.flows.access_as(id, |flow: &mut RtpFlow| flow.sent().0)
    }

    fn wait_for(&mut self, what: &str, mut holds: impl FnMut(&mut Bench) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < give_up, "{what}");
            std::thread::park_timeout(Duration::from_micros(100));
        }
    }

    /// Removes the flow and returns its counts.
    fn remove(&mut self, id: FlowId) -> ServedCounts {
        let flow: Box<RtpFlow> = self.flows.remove_as(id);
        let served = flow.statistics();
        ServedCounts {
            left: flow.sent().0,
            not_taken: served.not_taken,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ServedCounts {
    left: u64,
    not_taken: u64,
}

fn socket() -> UdpSocket {
    net::ports::bind("127.0.0.1:0".parse().expect("an address"), 1 << 20).expect("a free port")
}

/// Returns all datagrams that arrived since the last call.
fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec())).collect()
}

/// About 250 packets a second, most of them equally long, in 50 frames.
fn flow(pacing: kit::media::rtp::Pacing, length: Option<Duration>, ssrc: u32) -> RtpFlow {
    static CLIP: OnceLock<Arc<Clip>> = OnceLock::new();
    let clip = CLIP.get_or_init(|| {
        let video = Clip::video(&VideoSettings {
            bits_per_second: 2_000_000,
            frame_rate: FrameRate::whole(50),
            gop: 25,
            mtu: 1200,
            form: PictureForm::default(),
        });
        Arc::new(video.expect("enough for pictures"))
    });
    RtpFlow::new(FlowSettings {
        clip: clip.clone(),
        pacing,
        ssrc,
        first_seq: 65_500,
        first_timestamp: 0,
        length,
        faults: Faults::default(),
        seed: 0,
        log: false,
    })
}

fn spread(length: Option<Duration>, ssrc: u32) -> RtpFlow {
    flow(kit::media::rtp::Pacing::Spread, length, ssrc)
}

#[test]
fn counts_of_a_stopped_flow_equal_what_arrived() {
    let mut bench = Bench::new();
    let receivers: Vec<UdpSocket> = (0..12).map(|_| socket()).collect();
    let address = |receiver: &UdpSocket| receiver.local_addr().expect("bound");
    let mut flows = Vec::new();
    for (ssrc, receiver) in (0..).zip(&receivers) {
        let mut flow = spread(None, ssrc);
        flow.start(bench.clock.now());
        let (id, lease) = bench.lend(flow, address(receiver));
        flows.push((id, lease, receiver));
    }
    for (wanted, (id, lease, receiver)) in (1..).zip(flows) {
        bench.wait_for("packets leave", |bench| bench.sent(id) >= wanted);
        let mut arrived = 0;
        if wanted % 2 == 0 {
            // Pause and resume.
            bench.flows.access_as(id, RtpFlow::pause);
            let sent = bench.sent(id);
            arrived = received(receiver).len() as u64;
            assert_eq!(arrived, sent);
            bench.flows.take_back(id);
            assert!(!bench.pacer.has(lease));
            let now = bench.clock.now();
            bench
                .flows
                .access_as(id, |flow: &mut RtpFlow| flow.start(now));
            let again = bench.lend_again(id, address(receiver));
            assert!(bench.pacer.has(again) && again != lease);
            bench.wait_for("it goes on", |bench| bench.sent(id) > sent);
        }
        let served = bench.remove(id);
        arrived += received(receiver).len() as u64;
        assert_eq!((served.left, served.not_taken), (arrived, 0));
    }
    // Taking windows loses no counts.
    let window = bench.pacer.take_window();
    assert!(window.counters[usize::from(tester::SENT_PACKETS.0)] >= 12);
    assert!(window.histograms.contains_key(&tester::SEND_LATENESS));
    drop(bench);
    assert!(
        receivers
            .iter()
            .all(|receiver| received(receiver).is_empty())
    );
}

#[test]
fn joined_datagrams_arrive_intact_and_the_end_is_reported() {
    let mut bench = Bench::new();
    for pacing in [
        kit::media::rtp::Pacing::AtOnce,
        kit::media::rtp::Pacing::Spread,
    ] {
        let receiver = socket();
        let length = Some(Duration::from_millis(300));
        let mut twin = flow(pacing, length, 9);
        twin.start(Time::ZERO);
        let late = Time::ZERO + Duration::from_secs(10);
        let expected: Vec<Vec<u8>> = std::iter::from_fn(|| twin.next_packet(late))
            .map(|packet| [&packet.header[..], &packet.payload].concat())
            .collect();
        assert!(expected.len() > 50);
        let mut flow = flow(pacing, length, 9);
        flow.start(bench.clock.now());
        let (id, lease) = bench.lend(flow, receiver.local_addr().expect("bound"));
        let mut events = Events::with_capacity(1);
        let mut ended = Vec::new();
        let give_up = Instant::now() + PATIENCE;
        while ended.is_empty() {
            assert!(Instant::now() < give_up, "its end is not told");
            bench
                .poll
                .poll(&mut events, Some(PATIENCE))
                .expect("it polls");
            ended = bench.pacer.take_events().ended;
        }
        assert_eq!(ended, [(SESSION, id, lease)]);
        assert!(received(&receiver) == expected, "{pacing:?}");
        let served = bench.remove(id);
        assert_eq!(served.left, expected.len() as u64);
        let window = bench.pacer.take_window();
        let count = |id: measure::CounterId| window.counters[usize::from(id.0)];
        assert_eq!(count(tester::SENT_PACKETS), expected.len() as i64);
        assert_eq!(count(tester::SENDS_FAILED), 0);
    }
    assert!(bench.pacer.take_cpu() > 0);
}

#[test]
fn refused_datagrams_do_not_delay_other_flows() {
    let mut bench = Bench::new();
    let receivers: Vec<UdpSocket> = (0..4).map(|_| socket()).collect();
    let length = Some(Duration::from_millis(200));
    // Broadcast without SO_BROADCAST is refused (EACCES).
    let refused: SocketAddr = "127.255.255.255:9".parse().expect("an address");
    let places = receivers.iter().map(|r| r.local_addr().expect("bound"));
    let mut flows = Vec::new();
    for (ssrc, to) in (0..).zip(places.flat_map(|to| [to, refused])) {
        let mut flow = spread(length, ssrc);
        flow.start(bench.clock.now());
        flows.push(bench.lend(flow, to).0);
    }
    let mut ended = 0;
    let all = flows.len();
    bench.wait_for("all come to their end", |bench| {
        ended += bench.pacer.take_events().ended.len();
        ended == all
    });
    for (receiver, pair) in receivers.iter().zip(flows.chunks(2)) {
        let (taken, not_taken) = (bench.remove(pair[0]), bench.remove(pair[1]));
        let arrived = received(receiver).len() as u64;
        assert!(arrived > 20);
        assert_eq!((taken.left, taken.not_taken), (arrived, 0));
        assert_eq!((not_taken.left, not_taken.not_taken), (0, arrived));
    }
    let window = bench.pacer.take_window();
    let count = |id: measure::CounterId| window.counters[usize::from(id.0)];
    assert_eq!(count(tester::SENT_PACKETS), count(tester::SENDS_FAILED));
}

/// Flows with years of backlog keep the pacer busy without end.
#[test]
fn overloaded_pacer_yields_the_lock_and_counts_bursts() {
    let mut bench = Bench::new();
    let receiver = socket();
    let to = receiver.local_addr().expect("bound");
    bench.wait_for("time goes on", |bench| {
        bench.clock.now() > Time::ZERO + Duration::from_millis(50)
    });
    let ids: Vec<FlowId> = (0..2000)
        .map(|ssrc| {
            let mut flow = spread(None, ssrc);
            flow.start(Time::ZERO);
            bench.lend(flow, to).0
        })
        .collect();
    for &id in &ids {
        let _ = bench.sent(id);
    }
    let id = ids[0];
    bench.wait_for("it is sent as well", |bench| bench.sent(id) > 1);
    let window = bench.pacer.take_window();
    assert!(window.counters[usize::from(tester::SENT_IN_BURSTS.0)] > 0);
    for id in ids {
        bench.remove(id);
    }
}

#[test]
fn packets_due_apart_that_leave_in_one_turn_are_a_burst() {
    let mut last = LastSent::default();
    let at = Time::from_nanos;
    let bursts: Vec<bool> = [(1, 5), (1, 5), (1, 6), (2, 7), (2, 7), (2, 8)]
        .map(|(turn, due)| last.is_burst(turn, at(due)))
        .to_vec();
    assert_eq!(bursts, [false, false, true, false, false, true]);
}

/// Sends when told to, and otherwise has nothing to send.
#[derive(Debug)]
struct Idle {
    wanted: VecDeque<Time>,
    /// True if an empty queue is the end of the flow.
    ends: bool,
    left: u64,
}

impl Flow for Idle {
    fn next_due(&self) -> Option<Time> {
        let idle = (!self.ends).then_some(Time::NEVER);
        self.wanted.front().copied().or(idle)
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        let due = self.next_due().filter(|&due| due <= now)?;
        self.wanted.pop_front();
        Some(FlowPacket {
            due,
            header: PacketHeader::EMPTY,
            payload: Bytes::from_static(b"packet"),
            tag: Tag(0),
        })
    }

    fn packet_sent(&mut self, _: Tag, left: Option<Handover>) {
        self.left += u64::from(left.is_some());
    }
}

#[test]
fn repeatedly_woken_flow_leaves_no_obsolete_entries() {
    let mut bench = Bench::new();
    let receiver = socket();
    let id = bench.flows.insert(Idle {
        wanted: VecDeque::new(),
        ends: false,
        left: 0,
    });
    let to = receiver.local_addr().expect("it is bound");
    bench.lend_again(id, to);
    for wanted in 1..=100 {
        let now = bench.clock.now();
        bench
            .flows
            .access_as(id, |flow: &mut Idle| flow.wanted.push_back(now));
        bench.wait_for("it leaves", |bench| {
            bench.flows.access_as(id, |flow: &mut Idle| flow.left) >= wanted
        });
    }
    let waiting = bench.pacer.shared.with_state(|state| state.due.len());
    assert!(waiting <= 1, "{waiting} entries of one flow");
    assert_eq!(bench.flows.remove_as::<Idle>(id).left, 100);
}

#[test]
fn unreachable_peer_seen_by_the_pacer_is_reported() {
    let mut bench = Bench::new();
    let to = socket().local_addr().expect("it is bound");
    let connected = socket();
    connected.connect(to).expect("any address will do");
    // The kernel reports the unreachable peer at the second call.
    connected.send(b"first").expect("it is sent");
    bench.socket = Arc::new(connected.into());
    // From now on the port is bound: only the pacer has seen the error.
    let _receiver = net::ports::bind(to, 1 << 20).expect("it was free");
    let flow = Idle {
        wanted: VecDeque::from([bench.clock.now()]),
        ends: false,
        left: 0,
    };
    let id = bench.flows.insert(flow);
    bench.lend_again(id, to);
    let mut refused = Vec::new();
    bench.wait_for("the worker hears of it", |bench| {
        refused.extend(bench.pacer.take_events().refused);
        !refused.is_empty()
    });
    assert_eq!(refused, [SESSION.channel(CHANNEL)]);
    assert_eq!(bench.flows.remove_as::<Idle>(id).left, 1);
}

#[test]
fn ended_flow_sends_nothing_until_restarted() {
    let mut bench = Bench::new();
    let receiver = socket();
    let to = receiver.local_addr().expect("it is bound");
    let now = bench.clock.now();
    let id = bench.flows.insert(Idle {
        wanted: VecDeque::from([now]),
        ends: true,
        left: 0,
    });
    for sent in [1, 2] {
        let lease = bench.lend_again(id, to);
        let mut ended = Vec::new();
        bench.wait_for("it ends", |bench| {
            ended.extend(bench.pacer.take_events().ended);
            !ended.is_empty()
        });
        assert_eq!(ended, [(SESSION, id, lease)]);
        bench
            .flows
            .access_as(id, |flow: &mut Idle| flow.wanted.push_back(now));
        // A packet that is due later has left, so the pacer has passed the ended flow.
        let later = Idle {
            wanted: VecDeque::from([bench.clock.now()]),
            ends: false,
            left: 0,
        };
        let later = bench.flows.insert(later);
        bench.lend_again(later, to);
        bench.wait_for("it leaves", |bench| {
            bench.flows.access_as(later, |flow: &mut Idle| flow.left) == 1
        });
        assert_eq!(bench.flows.access_as(id, |flow: &mut Idle| flow.left), sent);
        bench.flows.take_back(id);
    }
}

//! Tests of the packet ring against sockets, with the same packets on both paths.

use crate::worker::receive_path;
use kit::media::rtp::{READ_NEEDS, StreamSummary};
use kit::media::sdp::MediaKind;
use net::ring::{self, Family, PacketRing};
use session::MediaEvent;

use super::*;

/// Payload size of a packet in bytes: more than the ring keeps.
const PAYLOAD: usize = 700;

/// Returns `true` if this process may open a packet ring. Otherwise prints the reason.
pub(in crate::worker) fn may_have_a_ring() -> bool {
    let settings = RingSettings::new(Family::V4, 0..=0);
    match PacketRing::open(&settings) {
        Ok(_) => true,
        Err(error) => {
            let why = format!("skipped, because no packet ring is available: {error}\n");
            let _ = io::stderr().write_all(why.as_bytes());
            false
        }
    }
}

/// Reports of the receivers: their ports, and finally what they received.
#[derive(Default)]
struct ReceiverReports {
    ports: Vec<u16>,
    summaries: Vec<(u16, StreamSummary)>,
}

/// Receives until a datagram arrives on the RTCP port, and then ends immediately.
fn receiver(reports: Arc<Mutex<ReceiverReports>>) -> Box<dyn Session> {
    let mut sink = None;
    let mut port = 0;
    toy(move |cx, input, _| match input {
        Input::Start { .. } => {
            let receiver = RtpReceiver::new(&ReceiverConfig {
                clock_rate: 90_000,
                payload_types: Vec::new(),
                playout_buffer: Duration::ZERO,
            });
            sink = Some(cx.sinks.insert(receiver));
            cx.out.push_back(pair(sink, false));
        }
        Input::Opened { local, .. } => {
            port = local.port();
            reports
                .lock()
                .expect("nobody panics with it")
                .ports
                .push(port);
        }
        Input::Media {
            event: MediaEvent::First { at },
            ..
        } => cx.out.push_back(Output::Playing { at }),
        Input::Datagram { .. } => {
            let mut receiver = cx.sinks.remove::<RtpReceiver>(sink.expect("made"));
            receiver.finish(cx.recorder);
            let summary = StreamSummary::from_receiver(MediaKind::Video, "", &receiver);
            let mut reports = reports.lock().expect("nobody panics with it");
            reports.summaries.push((port, summary));
            cx.out.push_back(Output::Ended(Outcome::Completed));
        }
        _ => {}
    })
}

/// Runs a receiver on a worker with a ring and one on a worker without. Calls `send` once with both
/// ports.
fn both_paths(send: impl Fn(&[u16]) + Send + 'static) -> Vec<(u16, StreamSummary)> {
    let reports = Arc::new(Mutex::new(ReceiverReports::default()));
    let client: MakeClient = {
        let reports = reports.clone();
        Arc::new(move |_, _| Ok(receiver(reports.clone())))
    };
    let load = Load {
        shape: Shape::AtOnce { clients: 2 },
        rejoin: false,
        after: Duration::ZERO,
    };
    let duties = (0..2).map(|worker| {
        let ports = ports();
        WorkerPlan {
            populations: vec![WorkerPopulation {
                name: "toys".to_owned(),
                catalogue: RTSP_PROTOCOL.catalogue,
                clients: Some(ClientPlan {
                    share: Share::new(&load, worker, 2),
                    urls: vec!["toy".to_owned()],
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
            ring: (worker == 0).then(|| {
                receive_path::settings(
                    8 << 20,
                    ports.ports().expect("some"),
                    Some(READ_NEEDS),
                    false,
                )
                .into()
            }),
            ports,
        }
    });
    let mut send = Some(send);
    let mut sender = None;
    let seen = play(duties.collect(), |_, _, _| {
        let ports = reports.lock().expect("nobody panics with it").ports.clone();
        if ports.len() == 2
            && let Some(send) = send.take()
        {
            sender = Some(std::thread::spawn(move || send(&ports)));
        }
    });
    sender.expect("begun").join().expect("sent all");
    assert_eq!(seen.outcomes(), [&Outcome::Completed; 2]);
    assert_eq!(seen.tester(tester::RING_OVERFLOW), 0);
    assert_eq!(seen.tester(tester::RING_MISSED), 0);
    std::mem::take(&mut reports.lock().expect("nobody panics with it").summaries)
}

/// An RTP packet. Every seventh has padding.
fn packet(sequence: u16, timestamp: u32) -> Vec<u8> {
    let mut bytes = vec![0; 12 + PAYLOAD];
    bytes[0] = 0x80;
    bytes[1] = 96;
    bytes[2..4].copy_from_slice(&sequence.to_be_bytes());
    bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
    bytes[11] = 1;
    if sequence.is_multiple_of(7) {
        bytes[0] |= 0x20;
        bytes[11 + PAYLOAD] = 100;
    }
    bytes
}

fn send_to(socket: &UdpSocket, bytes: &[u8], port: u16) {
    let sent = socket
        .send_to(bytes, (LOCAL, port))
        .expect("loopback takes it");
    assert_eq!(sent, bytes.len());
}

/// Sequence numbers with losses, duplicates and reordering at fixed positions, across a
/// wrap-around.
fn disorder() -> Vec<u16> {
    let mut order: Vec<u16> = (0..600).map(|n: u16| n.wrapping_add(65_300)).collect();
    order.retain(|n| n % 37 != 5);
    order.insert(50, order[48]);
    order.insert(200, order[120]);
    for place in [77, 140, 333] {
        order.swap(place, place + 3);
    }
    order
}

/// Sends packets in disorder to each of the ports, unevenly spaced to produce jitter.
fn send_in_disorder(socket: &UdpSocket, ports: &[u16]) {
    let begun = Instant::now();
    for (index, sequence) in disorder().into_iter().enumerate() {
        let number = sequence.wrapping_sub(65_300);
        let due = Duration::from_micros(1_000 * index as u64 + u64::from(number % 7) * 400);
        while begun.elapsed() < due {
            std::hint::spin_loop();
        }
        let bytes = packet(sequence, u32::from(number) * 90);
        for &port in ports {
            send_to(socket, &bytes, port);
        }
    }
}

fn is_in_disorder(counts: &kit::media::rtp::StreamCounts) -> bool {
    counts.received > 500 && counts.lost() > 10 && counts.duplicated == 2 && counts.reordered > 0
}

#[test]
fn workers_with_and_without_ring_count_the_same() {
    if !may_have_a_ring() {
        return;
    }
    let summaries = both_paths(|ports| {
        let socket = UdpSocket::bind((LOCAL, 0)).expect("a port");
        send_in_disorder(&socket, ports);
        for &port in ports {
            send_to(&socket, b"leave", port + 1);
        }
    });
    let [(_, one), (_, other)] = &summaries[..] else {
        panic!("{summaries:?}");
    };
    assert!(is_in_disorder(&one.counts), "{one:?}");
    let unpadded = one.counts.received * PAYLOAD as u64;
    assert!(one.counts.payload_bytes < unpadded - 5_000, "{one:?}");
    assert_eq!(one.counts, other.counts);
}

/// Passes a packet of one path to a receiver.
fn take(
    receiver: &mut RtpReceiver,
    recorder: &mut Recorder,
    at: Time,
    bytes: &[u8],
    length: usize,
    overhead: usize,
) {
    let arrival = session::Arrival {
        at,
        bytes,
        length,
        overhead,
    };
    receiver.packet(&arrival, recorder);
}

/// The same packets on both paths: the ring receives them in addition to the socket.
#[test]
fn ring_and_socket_measure_the_same_for_the_same_packets() {
    if !may_have_a_ring() {
        return;
    }
    let mut ports = ports();
    let media = ports.bind(LOCAL).expect("a free pair");
    let settings =
        receive_path::settings(8 << 20, media.port..=media.port, Some(READ_NEEDS), false);
    let mut ring = PacketRing::open(&settings).expect("just tried");
    let port = media.port;
    let sender = std::thread::spawn(move || {
        let socket = UdpSocket::bind((LOCAL, 0)).expect("a port");
        send_in_disorder(&socket, &[port]);
    });
    let config = ReceiverConfig {
        clock_rate: 90_000,
        payload_types: Vec::new(),
        playout_buffer: Duration::ZERO,
    };
    let mut receivers = [RtpReceiver::new(&config), RtpReceiver::new(&config)];
    let mut recorder = Recorder::new(RTSP_PROTOCOL.catalogue);
    let clock = Clock::start();
    let mut batch = ReceiveBatch::new();
    let give_up = Instant::now() + PATIENCE;
    let sent = disorder().len();
    let mut left = [sent; 2];
    while left != [0, 0] {
        assert!(Instant::now() < give_up, "{left:?} of {sent} have not come");
        let [by_ring, by_socket] = &mut receivers;
        ring.receive(&clock, 1000, |datagram| {
            let ring::CapturedDatagram {
                bytes,
                length,
                overhead,
                at,
                ..
            } = *datagram;
            let padded = bytes[0] & READ_NEEDS.whole_if != 0;
            assert_eq!(
                bytes.len() == length,
                padded,
                "of others the ring keeps a part"
            );
            take(by_ring, &mut recorder, at, bytes, length, overhead);
            left[0] -= 1;
        });
        if batch.receive(&media.media).is_ok() {
            for datagram in batch.datagrams(&clock) {
                let net::batch::ReceivedDatagram {
                    bytes, length, at, ..
                } = datagram;
                take(by_socket, &mut recorder, at, bytes, length, 28);
                left[1] -= 1;
            }
        }
        std::thread::park_timeout(Duration::from_micros(100));
    }
    sender.join().expect("sent all");
    let [by_ring, by_socket] = receivers;
    assert!(is_in_disorder(by_ring.counts()), "{by_ring:?}");
    assert_eq!(by_ring.counts(), by_socket.counts());
    let jitter = |of: &RtpReceiver| of.mean_jitter().expect("of many packets").as_secs_f64();
    let (one, other) = (jitter(&by_ring), jitter(&by_socket));
    assert!((one / other - 1.0).abs() < 0.01, "{one} {other}");
}

#[test]
fn packets_right_before_the_leave_are_all_counted() {
    if !may_have_a_ring() {
        return;
    }
    const SENT: u16 = 500;
    for _ in 0..5 {
        let summaries = both_paths(|ports| {
            let socket = UdpSocket::bind((LOCAL, 0)).expect("a port");
            for &port in ports {
                for sequence in 0..SENT {
                    send_to(&socket, &packet(sequence, 0), port);
                }
                send_to(&socket, b"leave", port + 1);
            }
        });
        for (_, summary) in summaries {
            assert_eq!(summary.counts.received, u64::from(SENT));
        }
    }
}

/// Time for which the loop is blocked around the end of the first window.
const KEPT: Duration = Duration::from_millis(100);

#[test]
fn window_counts_by_arrival_even_if_the_loop_is_late() {
    // One packet every half a millisecond, across the end of the first window.
    const COUNT: u16 = 2800;
    const EVERY: Duration = Duration::from_micros(500);
    const COUNTED: CounterId = kit::media::rtp::metrics::RECEIVED;
    if !may_have_a_ring() {
        return;
    }
    for ring in [true, false] {
        let reported_port = Arc::new(Mutex::new(0));
        let client: MakeClient = {
            let reported_port = reported_port.clone();
            Arc::new(move |_, _| Ok(kept_from_work(reported_port.clone())))
        };
        let load = Load {
            shape: Shape::AtOnce { clients: 1 },
            rejoin: false,
            after: Duration::ZERO,
        };
        let ports = ports();
        let duty = WorkerPlan {
            populations: vec![WorkerPopulation {
                name: "toys".to_owned(),
                catalogue: RTSP_PROTOCOL.catalogue,
                clients: Some(ClientPlan {
                    share: Share::new(&load, 0, 1),
                    urls: vec!["toy".to_owned()],
                    pick: Pick::InTurn,
                    leave: Leave::AtEnd,
                    run_ends: Time::NEVER,
                    tls: Arc::new(net::tls::Client::new(net::tls::Trust::default())),
                    client,
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
            ring: ring.then(|| {
                receive_path::settings(
                    8 << 20,
                    ports.ports().expect("some"),
                    Some(READ_NEEDS),
                    false,
                )
                .into()
            }),
            ports,
        };
        let mut sender = None;
        let seen = play(vec![duty], |_, clock, _| {
            let port = *reported_port.lock().expect("nobody panics with it");
            if port != 0 && sender.is_none() {
                let clock = clock.same_start();
                sender = Some(std::thread::spawn(move || {
                    let socket = UdpSocket::bind((LOCAL, 0)).expect("a port");
                    let begin = clock.now();
                    let sent: Vec<(Time, Time)> = (0..COUNT)
                        .map(|number| {
                            let due = begin + EVERY * u32::from(number);
                            while clock.now() < due {
                                std::hint::spin_loop();
                            }
                            let before = clock.now();
                            send_to(&socket, &packet(number, u32::from(number) * 45), port);
                            (before, clock.now())
                        })
                        .collect();
                    send_to(&socket, b"leave", port + 1);
                    sent
                }));
            }
        });
        let sent = sender.expect("begun").join().expect("sent all");
        let end = Time::ZERO + WINDOW;
        // Packets in flight at the end of the window may count in either.
        let min = sent.iter().filter(|(_, after)| *after < end).count();
        let max = sent.iter().filter(|(before, _)| *before < end).count();
        assert!(max < sent.len(), "it is sent for longer");
        let first = usize::try_from(Seen::sum(&seen.population[..1], COUNTED)).expect("counted");
        assert!((min..=max).contains(&first), "{first} of {min} to {max}");
        let all = Seen::sum(&seen.population, COUNTED);
        assert_eq!(all, i64::from(COUNT), "none is lost between two windows");
    }
}

/// Receives until a datagram arrives on the RTCP port. Blocks its worker around the end of the
/// first window.
fn kept_from_work(reported_port: Arc<Mutex<u16>>) -> Box<dyn Session> {
    let mut sink = None;
    toy(move |cx, input, deadline| match input {
        Input::Start { .. } => {
            let receiver = RtpReceiver::new(&ReceiverConfig {
                clock_rate: 90_000,
                payload_types: Vec::new(),
                playout_buffer: Duration::ZERO,
            });
            sink = Some(cx.sinks.insert(receiver));
            cx.out.push_back(pair(sink, false));
        }
        Input::Opened { local, .. } => {
            *reported_port.lock().expect("nobody panics with it") = local.port();
            *deadline = Some(Time::ZERO + (WINDOW - KEPT / 2));
        }
        Input::Media {
            event: MediaEvent::First { at },
            ..
        } => cx.out.push_back(Output::Playing { at }),
        Input::Deadline => {
            let until = cx.now + KEPT;
            let begun = Instant::now();
            while begun.elapsed() < until.since(cx.now) {
                std::hint::spin_loop();
            }
            *deadline = None;
        }
        Input::Datagram { .. } => {
            let mut receiver = cx.sinks.remove::<RtpReceiver>(sink.expect("made"));
            receiver.finish(cx.recorder);
            cx.out.push_back(Output::Ended(Outcome::Completed));
        }
        _ => {}
    })
}

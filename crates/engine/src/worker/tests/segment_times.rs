//! Tests of media in a connection, with arrival times from the packet ring.

use std::net::TcpStream;
use std::sync::{PoisonError, mpsc};

use measure::ArrivalRun;
use net::ring::Family;

use super::ring::may_have_a_ring;
use super::*;

/// Size of a segment in bytes, as of a media packet.
const SEGMENT: usize = 1200;

/// Counter of the bytes that a client received.
const COUNTED: CounterId = kit::media::rtp::metrics::PAYLOAD_BYTES;

/// Data that a client received on the connection with media.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    /// By offset in the stream.
    runs: Vec<(usize, ArrivalRun)>,
    reads: usize,
    closed: Option<CloseReason>,
    /// Number of bytes in the first window.
    first_window: i64,
    /// True if the client connected from a port of the worker's own range.
    from_own_port: bool,
}

/// Connects, reports playing at the first byte, and receives until the connection ends.
fn listener_to(to: SocketAddr, heard: Arc<Mutex<Heard>>) -> Box<dyn Session> {
    toy(move |cx, input, _| match input {
        Input::Start { .. } => cx.out.push_back(tcp(to, PATIENCE)),
        Input::Bytes {
            bytes, at, runs, ..
        } => {
            let mut heard = heard.lock().expect("nobody panics with it");
            if heard.bytes.is_empty() {
                cx.out.push_back(Output::Playing { at });
            }
            let begin = heard.bytes.len();
            heard
                .runs
                .extend(runs.iter().map(|run| (begin + run.end, *run)));
            heard.bytes.extend_from_slice(bytes);
            heard.reads += 1;
            cx.recorder.add(COUNTED, bytes.len() as u64);
        }
        Input::Closed { reason, .. } => {
            heard.lock().expect("nobody panics with it").closed = Some(reason);
            cx.out.push_back(Output::Ended(Outcome::Completed));
        }
        Input::Stop { .. } => cx.out.push_back(Output::Ended(Outcome::Stopped)),
        _ => {}
    })
}

/// Runs one client on a worker with a ring. `serve` gets the server's side of the connection and
/// the clock of the run.
fn heard_of(segments: bool, serve: impl FnOnce(TcpStream, &Clock) + Send + 'static) -> Heard {
    heard_of_at(LOCAL, segments, false, serve)
}

/// As [`heard_of`], with a given loopback address.
fn heard_of_at(
    address: IpAddr,
    segments: bool,
    reads_at_once: bool,
    serve: impl FnOnce(TcpStream, &Clock) + Send + 'static,
) -> Heard {
    // One at a time: a sender keeps a processor busy, and late segments leave in bursts.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let listener = TcpListener::bind((LOCAL, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let to = SocketAddr::new(address, port);
    let (clock, begun) = mpsc::channel::<Clock>();
    let server = std::thread::spawn(move || {
        let (stream, from) = listener.accept().expect("it connects");
        stream.set_nodelay(true).expect("it is open");
        let clock = begun.recv().expect("the run begins");
        serve(stream, &clock);
        from.port()
    });
    let heard = Arc::new(Mutex::new(Heard::default()));
    let client: MakeClient = {
        let heard = heard.clone();
        Arc::new(move |_, _| Ok(listener_to(to, heard.clone())))
    };
    let load = Load {
        shape: Shape::AtOnce { clients: 1 },
        rejoin: false,
        after: Duration::ZERO,
    };
    let ports = ports();
    let own_ports = ports.ports().expect("some");
    let settings = RingSettings::new(Family::V4, own_ports.clone());
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
                client,
                tls: Arc::new(net::tls::Client::new(net::tls::Trust::default())),
                traced: crate::trace::Traced::default(),
                media: true,
                reads_at_once,
                sources: Vec::new(),
            }),
        }],
        raised_priority: false,
        realtime_pacer: false,
        serving: Vec::new(),
        endpoints: Vec::new(),
        ring: Some(
            RingSettings {
                segments,
                ..settings
            }
            .into(),
        ),
        ports,
    };
    let seen = play(vec![duty], |_, run, _| {
        let _ = clock.send(run.same_start());
    });
    let from = server.join().expect("it served");
    assert_eq!(seen.outcomes(), [&Outcome::Completed]);
    let mut heard = heard.lock().expect("nobody panics with it");
    heard.from_own_port = own_ports.contains(&from);
    heard.first_window = Seen::sum(&seen.population[..1], COUNTED);
    std::mem::take(&mut *heard)
}

/// The bytes of a segment.
fn segment(number: usize) -> Vec<u8> {
    vec![u8::try_from(number % 251).expect("it is less"); SEGMENT]
}

fn wait_until(clock: &Clock, due: Time) {
    while clock.now() < due {
        std::thread::park_timeout(Duration::from_micros(100));
    }
}

/// Sends `count` segments, one every two milliseconds, and returns their send times.
fn send_paced(stream: &mut TcpStream, clock: &Clock, count: usize) -> Vec<Time> {
    send_every(Duration::from_millis(2), stream, clock, count)
}

/// As [`send_paced`], with a given interval.
fn send_every(every: Duration, stream: &mut TcpStream, clock: &Clock, count: usize) -> Vec<Time> {
    let begin = clock.now();
    (0..count)
        .map(|number| {
            let offset = every * u32::try_from(number).expect("few");
            wait_until(clock, begin + offset);
            let now = clock.now();
            stream.write_all(&segment(number)).expect("there is room");
            now
        })
        .collect()
}

fn all(count: usize) -> Vec<u8> {
    (0..count).flat_map(segment).collect()
}

#[test]
fn connections_that_are_read_at_once_are_not_on_the_ring() {
    const COUNT: usize = 20;
    if !may_have_a_ring() {
        return;
    }
    for reads_at_once in [false, true] {
        let heard = heard_of_at(LOCAL, true, reads_at_once, |mut stream, clock| {
            send_paced(&mut stream, clock, COUNT);
        });
        assert_eq!(
            (heard.bytes == all(COUNT), heard.closed),
            (true, Some(CloseReason::End))
        );
        // The ring receives the segments of these ports alone.
        assert_eq!(heard.from_own_port, !reads_at_once);
    }
}

#[test]
fn segments_keep_exact_times_with_periodic_reads() {
    const COUNT: usize = 300;
    if !may_have_a_ring() {
        return;
    }
    // A sender that was delayed sends a burst, which may be read before the ring delivers it. Such
    // a run says nothing about the worker.
    let disturbed = |sent: &[Time]| {
        let due = (0u32..).map(|number| sent[0] + Duration::from_millis(2) * number);
        let mut late = sent.iter().zip(due).map(|(at, due)| at.since(due));
        late.any(|late| late > Duration::from_millis(10))
    };
    let deadline = Instant::now() + PATIENCE;
    let (heard, sent) = loop {
        let (tell, told) = mpsc::channel();
        let heard = heard_of(true, move |mut stream, clock| {
            let sent = send_paced(&mut stream, clock, COUNT);
            tell.send(sent).expect("it is waited for");
        });
        let sent = told.recv().expect("all was sent");
        assert_eq!(
            (heard.bytes == all(COUNT), heard.closed),
            (true, Some(CloseReason::End))
        );
        // 600 ms, with a read every 400. Until the ring has delivered the beginning of the media,
        // the connection is read on readiness, which on a busy machine causes many reads.
        if !disturbed(&sent) && heard.reads < COUNT / 4 {
            break (heard, sent);
        }
        let reads = heard.reads;
        assert!(
            Instant::now() < deadline,
            "no sender was left in peace and read seldom; {reads} reads at last"
        );
    };
    let exact: Vec<&(usize, ArrivalRun)> = heard.runs.iter().filter(|(_, run)| run.exact).collect();
    assert!(exact.len() >= COUNT - 10, "{} of {COUNT}", exact.len());
    let mut late: Vec<Duration> = exact
        .iter()
        .map(|(end, run)| {
            let sent = sent[(end - 1) / SEGMENT];
            assert!(run.at >= sent, "{:?} before {sent:?}", run.at);
            run.at.since(sent)
        })
        .collect();
    late.sort_unstable();
    assert!(late[late.len() / 2] < Duration::from_millis(1), "{late:?}");
}

#[test]
fn window_counts_segments_by_arrival() {
    const COUNT: usize = 130;
    // Slow enough for reads by turn: little data arrives between turns.
    const EVERY: Duration = Duration::from_millis(10);
    if !may_have_a_ring() {
        return;
    }
    let (tell, told) = mpsc::channel();
    let heard = heard_of(true, move |mut stream, clock| {
        let sent = send_every(EVERY, &mut stream, clock, COUNT);
        tell.send(sent).expect("it is waited for");
    });
    let sent = told.recv().expect("all was sent");
    // Segments right before the end may count in the next window, because the ring delivers them
    // later and the loop may be late.
    let slack = Duration::from_millis(50);
    let by = |offset| sent.iter().filter(|at| **at < Time::ZERO + offset).count() * SEGMENT;
    let holds = by(WINDOW - slack)..=by(WINDOW + slack);
    let first = usize::try_from(heard.first_window).expect("it is counted up");
    assert!(*holds.end() < COUNT * SEGMENT, "it is sent for longer");
    assert!(holds.contains(&first), "{first} of {holds:?}");
}

#[test]
fn connection_invisible_to_the_ring_is_read_at_once() {
    const COUNT: usize = 50;
    if !may_have_a_ring() {
        return;
    }
    // First case: no segments requested. Second case: the client connected to ::ffff:127.0.0.1, so
    // packets from 127.0.0.1 do not match its peer.
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
    for (address, segments) in [(LOCAL, false), (mapped, true)] {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let heard = heard_of_at(address, segments, false, |mut stream, clock| {
                send_paced(&mut stream, clock, COUNT);
            });
            assert_eq!(
                (heard.bytes == all(COUNT), heard.closed),
                (true, Some(CloseReason::End))
            );
            // On a busy machine, several segments arrive before the worker runs.
            if heard.reads > COUNT / 4 {
                break;
            }
            assert!(Instant::now() < deadline, "{} reads", heard.reads);
        }
    }
}

#[test]
fn data_before_the_end_is_not_lost() {
    // 300 ms, so that the connection is read periodically when the end comes. That begins only
    // after the first read of the ring.
    const BEFORE: usize = 150;
    const COUNT: usize = BEFORE + 10;
    if !may_have_a_ring() {
        return;
    }
    for reset in [false, true] {
        let heard = heard_of(true, move |mut stream, clock| {
            send_paced(&mut stream, clock, BEFORE);
            let rest: Vec<u8> = (BEFORE..COUNT).flat_map(segment).collect();
            stream.write_all(&rest).expect("there is room");
            if reset {
                // A reset discards data in flight; on loopback there is none for long.
                wait_until(clock, clock.now() + Duration::from_millis(5));
                let linger = Some(Duration::ZERO);
                socket2::SockRef::from(&stream)
                    .set_linger(linger)
                    .expect("it is open");
            }
        });
        let closed = if reset {
            CloseReason::Reset
        } else {
            CloseReason::End
        };
        assert_eq!(
            (heard.bytes == all(COUNT), heard.closed),
            (true, Some(closed))
        );
        // Without the ring, only the arrival time of the last byte would be known.
        let rest = heard.runs.iter().filter(|(end, _)| *end > BEFORE * SEGMENT);
        let rest: Vec<&(usize, ArrivalRun)> = rest.collect();
        assert!(
            rest.iter().all(|(_, run)| run.exact),
            "the end has waited for the ring: {rest:?}"
        );
    }
}

#[test]
fn fast_media_keeps_exact_times_with_a_late_ring() {
    // 64 KiB every millisecond: 524 Mb/s, more than may wait in the kernel until the ring delivers
    // it.
    const PIECE: usize = 64 * 1024;
    const COUNT: usize = 500;
    const EVERY: Duration = Duration::from_millis(1);
    // Read on readiness until media has begun and the ring has delivered its beginning.
    const AT_ONCE: usize = 50;
    if !may_have_a_ring() {
        return;
    }
    let (tell, told) = mpsc::channel();
    let heard = heard_of(true, move |mut stream, clock| {
        let begin = clock.now();
        let sent: Vec<Time> = (0..COUNT)
            .map(|number| {
                let due = begin + EVERY * u32::try_from(number).expect("few");
                wait_until(clock, due);
                let now = clock.now();
                stream.write_all(&[1; PIECE]).expect("it is read");
                now
            })
            .collect();
        tell.send(sent).expect("it is waited for");
    });
    let sent = told.recv().expect("all was sent");
    assert_eq!(heard.bytes.len(), COUNT * PIECE);
    let mut begin = 0;
    let (mut exact, mut late) = (0, Vec::new());
    for (end, run) in heard.runs {
        if begin >= AT_ONCE * PIECE && run.exact {
            exact += end - begin;
            let sent = sent[(end - 1) / PIECE];
            assert!(run.at >= sent, "{:?} before {sent:?}", run.at);
            late.push(run.at.since(sent));
        }
        begin = end;
    }
    let all = (COUNT - AT_ONCE) * PIECE;
    // All of them, unless the worker was delayed for longer than memory can hold. Without the ring
    // none would be exact.
    assert!(exact > all / 2, "{exact} of {all}");
    late.sort_unstable();
    assert!(late[late.len() / 2] < Duration::from_millis(1), "{late:?}");
}

#[test]
fn fast_sender_is_not_blocked() {
    // More than any receive buffer holds: it can only be sent if it is read.
    const COUNT: usize = 50_000;
    if !may_have_a_ring() {
        return;
    }
    let (tell, told) = mpsc::channel();
    let heard = heard_of(true, move |mut stream, clock| {
        send_paced(&mut stream, clock, 10);
        let begin = clock.now();
        for number in 10..COUNT {
            stream.write_all(&segment(number)).expect("it is read");
        }
        tell.send(clock.now().since(begin))
            .expect("it is waited for");
    });
    let took = told.recv().expect("all was sent");
    assert_eq!(
        (heard.bytes == all(COUNT), heard.closed),
        (true, Some(CloseReason::End))
    );
    // 60 MB. With a read of 64 kB every 400 ms, it would take more than a minute.
    assert!(took < PATIENCE / 2, "{took:?}");
}

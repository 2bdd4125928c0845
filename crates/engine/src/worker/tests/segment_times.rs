//! Media in a connection, with times out of the packet ring.

use std::net::TcpStream;
use std::sync::{PoisonError, mpsc};

use measure::Run;
use net::ring::Family;

use super::ring::may_have_a_ring;
use super::*;

/// Bytes of each segment: as of a packet of media.
const SEGMENT: usize = 1200;

/// What of a window counts the bytes that a client heard.
const COUNTED: CounterId = protocol::media::rtp::metrics::PAYLOAD_BYTES;

/// What a client heard of the connection with media in it.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    /// By offset in the stream.
    runs: Vec<(usize, Run)>,
    reads: usize,
    closed: Option<Closed>,
    /// How many bytes the first window holds.
    first_window: i64,
}

/// Connects, says that it plays at the first byte, and hears until the connection ends.
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
        Input::Closed { how, .. } => {
            heard.lock().expect("nobody panics with it").closed = Some(how);
            cx.out.push_back(Output::Ended(Outcome::Completed));
        }
        Input::Stop { .. } => cx.out.push_back(Output::Ended(Outcome::Stopped)),
        _ => {}
    })
}

/// Plays one client on a worker with a ring against what `serve` does with its connection, with the
/// run's clock.
fn heard_of(segments: bool, serve: impl FnOnce(TcpStream, &Clock) + Send + 'static) -> Heard {
    heard_of_at(LOCAL, segments, serve)
}

/// The same, at that address of loopback.
fn heard_of_at(
    address: IpAddr,
    segments: bool,
    serve: impl FnOnce(TcpStream, &Clock) + Send + 'static,
) -> Heard {
    // One after the other: who sends keeps a processor busy, and what is sent late comes in bursts.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let listener = TcpListener::bind((LOCAL, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let to = SocketAddr::new(address, port);
    let (clock, begun) = mpsc::channel::<Clock>();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("it connects");
        stream.set_nodelay(true).expect("it is open");
        let clock = begun.recv().expect("the run begins");
        serve(stream, &clock);
    });
    let heard = Arc::new(Mutex::new(Heard::default()));
    let client: MakeClient = {
        let heard = heard.clone();
        Arc::new(move |_, _| Ok(listener_to(to, heard.clone())))
    };
    let load = Load {
        shape: Shape::AtOnce { clients: 1 },
        rejoin: false,
    };
    let ports = ports();
    let settings = RingSettings::new(Family::V4, ports.ports().expect("some"));
    let duty = Duty {
        populations: vec![PopulationPlan {
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
                sources: Vec::new(),
            }),
        }],
        goes_first: false,
        in_real_time: false,
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
    server.join().expect("it served");
    assert_eq!(seen.outcomes(), [&Outcome::Completed]);
    let mut heard = heard.lock().expect("nobody panics with it");
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

/// Sends so many segments, one every two milliseconds, and says when each was sent.
fn send_paced(stream: &mut TcpStream, clock: &Clock, count: usize) -> Vec<Time> {
    send_every(Duration::from_millis(2), stream, clock, count)
}

/// The same, one every so often.
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
fn segments_have_their_times_though_they_are_read_seldom() {
    const COUNT: usize = 300;
    if !may_have_a_ring() {
        return;
    }
    // What is sent in a burst, because the sender was kept from its work, may be read before the
    // ring shows it. Such a sender says nothing of the worker.
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
            (true, Some(Closed::End))
        );
        // 600 ms, a read every 200; what comes before the ring has shown that media has begun is
        // read at once, which on a busy machine is much.
        if !disturbed(&sent) && heard.reads < COUNT / 4 {
            break (heard, sent);
        }
        let reads = heard.reads;
        assert!(
            Instant::now() < deadline,
            "no sender was left in peace and read seldom; {reads} reads at last"
        );
    };
    let exact: Vec<&(usize, Run)> = heard.runs.iter().filter(|(_, run)| run.exact).collect();
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
fn a_window_holds_what_came_in_it() {
    const COUNT: usize = 130;
    // So slowly that it is read when its turn comes, and not because much has come.
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
    // What came right before its end may be the next one's, because the ring shows it later; and
    // the loop may be late.
    let slack = Duration::from_millis(50);
    let by = |offset| sent.iter().filter(|at| **at < Time::ZERO + offset).count() * SEGMENT;
    let holds = by(WINDOW - slack)..=by(WINDOW + slack);
    let first = usize::try_from(heard.first_window).expect("it is counted up");
    assert!(*holds.end() < COUNT * SEGMENT, "it is sent for longer");
    assert!(holds.contains(&first), "{first} of {holds:?}");
}

#[test]
fn a_connection_that_the_ring_does_not_show_is_read_at_once() {
    const COUNT: usize = 50;
    if !may_have_a_ring() {
        return;
    }
    // None is asked for; and what comes from 127.0.0.1 is from none to whom it has connected as
    // ::ffff:127.0.0.1.
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
    for (address, segments) in [(LOCAL, false), (mapped, true)] {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let heard = heard_of_at(address, segments, |mut stream, clock| {
                send_paced(&mut stream, clock, COUNT);
            });
            assert_eq!(
                (heard.bytes == all(COUNT), heard.closed),
                (true, Some(Closed::End))
            );
            // On a busy machine several come before the worker has its turn.
            if heard.reads > COUNT / 4 {
                break;
            }
            assert!(Instant::now() < deadline, "{} reads", heard.reads);
        }
    }
}

#[test]
fn nothing_that_came_before_the_end_is_lost() {
    // 300 ms: so that it is read seldom when the end comes, which takes until the ring is first
    // looked into.
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
                // What is still on its way is thrown away with a reset; on loopback nothing is for
                // long.
                wait_until(clock, clock.now() + Duration::from_millis(5));
                let linger = Some(Duration::ZERO);
                socket2::SockRef::from(&stream)
                    .set_linger(linger)
                    .expect("it is open");
            }
        });
        let closed = if reset { Closed::Reset } else { Closed::End };
        assert_eq!(
            (heard.bytes == all(COUNT), heard.closed),
            (true, Some(closed))
        );
        // Of what the ring has not shown only the last byte's time would be known.
        let rest = heard.runs.iter().filter(|(end, _)| *end > BEFORE * SEGMENT);
        let rest: Vec<&(usize, Run)> = rest.collect();
        assert!(
            rest.iter().all(|(_, run)| run.exact),
            "the end has waited for the ring: {rest:?}"
        );
    }
}

#[test]
fn fast_media_has_its_times_though_the_ring_shows_it_later() {
    // 64 KiB every millisecond: 524 Mb/s, more than may wait in the kernel until the ring shows it.
    const PIECE: usize = 64 * 1024;
    const COUNT: usize = 500;
    const EVERY: Duration = Duration::from_millis(1);
    // Until media has begun, and the ring has shown that, it is read at once.
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
    // Less only where the worker was kept from its work for longer than memory is held.
    assert!(exact > all / 10 * 9, "{exact} of {all}");
    late.sort_unstable();
    assert!(late[late.len() / 2] < Duration::from_millis(1), "{late:?}");
}

#[test]
fn who_sends_fast_is_not_kept_waiting() {
    // More than any receive buffer holds: if it were not read, it would never be sent.
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
        (true, Some(Closed::End))
    );
    // 60 MB. Were it read each 200 ms, 64 kB at a time, it would take more than a minute.
    assert!(took < PATIENCE / 2, "{took:?}");
}

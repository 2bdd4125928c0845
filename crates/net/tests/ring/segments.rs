//! Headers of TCP segments, compared with reads of the connection.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use measure::{ArrivalRun, Time};
use net::arrival_times::SegmentArrivals;
use net::options::set_receive_low_water;
use net::ring::{Family, RingPacket};
use net::{Clock, ConnectPorts, PacketRing};
use rustix::event::{PollFd, PollFlags, poll};

use crate::support::{Tap, wait_for};

/// Our end of a connection, the peer's end, and a ring that sees what the peer sends.
struct Watched {
    tap: Tap,
    segments: SegmentArrivals,
    /// Number of segments with payload that the ring has shown.
    shown: usize,
    ours: TcpStream,
    theirs: TcpStream,
    from: SocketAddr,
    to: SocketAddr,
}

impl Watched {
    fn open(family: Family, ports: std::ops::RangeInclusive<u16>) -> Option<Watched> {
        let tap = Tap::open(family, ports.clone(), |settings| {
            settings.segments = true;
            // While no blocks are taken out of the ring, each holds only some milliseconds.
            settings.bytes = 8 << 20;
        })?;
        let any = match family {
            Family::V4 => "127.0.0.1:0",
            Family::V6 => "[::1]:0",
        };
        let listener = TcpListener::bind(any).expect("a free port");
        let from = listener.local_addr().expect("it is bound");
        let mut ports = ConnectPorts::new(ports);
        let (ours, _) = ports.connect(from).expect("a free port");
        let (theirs, to) = listener.accept().expect("it connects");
        theirs.set_nodelay(true).expect("it is open");
        net::timed_read::enable_timestamps(&ours).expect("linux has it");
        Some(Watched {
            tap,
            segments: SegmentArrivals::default(),
            shown: 0,
            ours,
            theirs,
            from,
            to,
        })
    }

    /// Processes what the ring has received so far.
    fn process_ring(&mut self) {
        let Watched {
            tap: Tap { ring, clock, .. },
            segments,
            shown,
            from,
            to,
            ..
        } = self;
        wait_for("the kernel to hand over the last block", || {
            *shown += take(ring, clock, segments, (*from, *to));
            let seen = ring.kernel_counts().expect("the kernel tells");
            seen.arrived - seen.dropped == ring.handled()
        });
    }

    fn send(&mut self, bytes: &[u8]) {
        self.theirs.write_all(bytes).expect("it takes them");
    }

    /// Reads once, and returns the number of bytes and the kernel's time of the last one.
    fn read(&self, buffer: &mut [u8]) -> io::Result<(usize, Time)> {
        let read = net::timed_read::read_timed(&self.ours, buffer, &self.tap.clock)?;
        Ok((read.count, read.at))
    }
}

/// Processes the segments of the connection, and returns how many had a payload.
fn take(
    ring: &mut PacketRing,
    clock: &Clock,
    segments: &mut SegmentArrivals,
    ends: (SocketAddr, SocketAddr),
) -> usize {
    let mut shown = 0;
    ring.receive_all(
        clock,
        usize::MAX,
        &mut |arrived: RingPacket<'_>| match arrived {
            RingPacket::Segment(segment) if (segment.from, segment.to) == ends => {
                segments.record_segment(&segment.header, segment.at);
                shown += usize::from(segment.header.length > 0);
            }
            RingPacket::Segment(_) => {}
            RingPacket::Datagram(datagram) => panic!("nobody sent {datagram:?}"),
        },
    );
    shown
}

#[test]
fn ring_times_match_reads_of_single_segments() {
    for (family, ports) in [(Family::V4, 21_100..=21_149), (Family::V6, 21_150..=21_199)] {
        let Some(mut watched) = Watched::open(family, ports) else {
            return;
        };
        let mut truth = Vec::new();
        let mut buffer = [0; 2000];
        for length in (100..1300).step_by(100) {
            watched.send(&vec![7; length]);
            wait_for("the segment to arrive", || {
                match watched.read(&mut buffer) {
                    Ok((count, at)) => {
                        assert_eq!(count, length);
                        truth.push((length, at));
                        true
                    }
                    Err(_) => false,
                }
            });
        }
        let total: usize = truth.iter().map(|(length, _)| length).sum();
        wait_for("the ring to show all", || {
            watched.process_ring();
            watched.segments.unread() == total
        });
        assert!(watched.segments.saw_start() && !watched.segments.has_gap());
        let mut runs: Vec<ArrivalRun> = Vec::new();
        let now = watched.tap.clock.now();
        watched.segments.record_read(total, now, false, &mut runs);
        let mut begin = 0;
        for (run, &(length, at)) in runs.iter().zip(&truth) {
            assert_eq!((run.end - begin, run.exact), (length, true));
            let apart = run.at.nanos_from(at).unsigned_abs();
            assert!(apart <= 100_000, "{apart} ns apart");
            begin = run.end;
        }
        assert_eq!(runs.len(), truth.len());
    }
}

/// Sends 20 segments, each as soon as the one before has arrived, and returns for each the times
/// before its departure and after its arrival. Returns `None` if the sender has retransmitted one
/// (a probe does so after some milliseconds, RFC 8985, 7.3), which then has two times.
fn send_one_by_one(watched: &mut Watched) -> Option<Vec<(Time, Time)>> {
    let mut peeked = vec![0; 30_000];
    let times = (1..=20)
        .map(|number| {
            // The clock of the times in the ring.
            let before = watched.tap.clock.now();
            watched.send(&[7; 1000]);
            wait_for("the segment to arrive", || {
                watched
                    .ours
                    .peek(&mut peeked)
                    .is_ok_and(|count| count == number * 1000)
            });
            (before, watched.tap.clock.now())
        })
        .collect();
    // No more than the smallest window takes, which is 32 kB for small segments.
    wait_for("the ring to show all", || {
        watched.process_ring();
        watched.segments.unread() == 20_000
    });
    (watched.shown == 20).then_some(times)
}

#[test]
fn late_read_has_the_arrival_time_of_each_segment() {
    wait_for("segments without a retransmission", || {
        let Some(mut watched) = Watched::open(Family::V4, 21_200..=21_249) else {
            return true;
        };
        let Some(times) = send_one_by_one(&mut watched) else {
            return false;
        };
        let mut buffer = vec![0; 30_000];
        let (count, last) = watched.read(&mut buffer).expect("it has arrived");
        assert_eq!(count, 20_000);
        let mut runs: Vec<ArrivalRun> = Vec::new();
        watched.segments.record_read(count, last, true, &mut runs);
        assert_eq!(runs.len(), 20);
        for (run, &(before, after)) in runs.iter().zip(&times) {
            assert!(run.exact && (before..=after).contains(&run.at), "{runs:?}");
        }
        assert!((times[19].0..=times[19].1).contains(&last), "{last:?}");
        true
    });
}

#[test]
fn one_header_covers_all_merged_segments() {
    let Some(mut watched) = Watched::open(Family::V4, 21_250..=21_299) else {
        return;
    };
    watched.send(&vec![7; 200_000]);
    let mut buffer = vec![0; 100_000];
    let (mut total, mut runs, mut all) = (0, Vec::new(), 0);
    wait_for("all to arrive", || {
        watched.process_ring();
        if let Ok((count, at)) = watched.read(&mut buffer) {
            total += count;
            runs.clear();
            watched.segments.record_read(count, at, true, &mut runs);
            all += runs.len();
        }
        total == 200_000
    });
    assert_eq!(watched.segments.unread(), 0);
    assert!(all < 100, "{all} segments on loopback, whose MTU is 65536");
}

#[test]
fn low_water_mark_holds_back_data_but_not_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let to = listener.local_addr().expect("it is bound");
    for reset in [false, true] {
        let ours = TcpStream::connect(to).expect("it listens");
        let (mut theirs, _) = listener.accept().expect("it connected");
        theirs.set_nodelay(true).expect("it is open");
        set_receive_low_water(&ours, 10_000).expect("it is open");
        ours.set_nonblocking(true).expect("it is open");
        let ready = |wait| {
            let interest = PollFlags::IN | PollFlags::RDHUP;
            let mut fds = [PollFd::new(&ours, interest)];
            let wait = rustix::event::Timespec {
                tv_sec: wait,
                tv_nsec: 0,
            };
            poll(&mut fds, Some(&wait)).expect("it can be polled");
            fds[0].revents()
        };
        theirs.write_all(&[7; 5000]).expect("it takes them");
        let mut buffer = vec![0; 20_000];
        wait_for("the bytes to arrive", || {
            ours.peek(&mut buffer).is_ok_and(|count| count == 5000)
        });
        assert_eq!(ready(0), PollFlags::empty());
        theirs.write_all(&[7; 5000]).expect("it takes them");
        assert!(ready(10).contains(PollFlags::IN));
        let clock = Clock::start();
        let read = net::timed_read::read_timed(&ours, &mut buffer, &clock).expect("they are there");
        assert_eq!(read.count, 10_000);
        theirs.write_all(&[7; 10]).expect("it takes them");
        wait_for("the bytes to arrive", || ours.peek(&mut buffer).is_ok());
        assert_eq!(ready(0), PollFlags::empty());
        if reset {
            socket2::SockRef::from(&theirs)
                .set_linger(Some(std::time::Duration::ZERO))
                .expect("it is open");
        }
        drop(theirs);
        let told = ready(10);
        assert!(told.contains(PollFlags::IN), "{told:?}");
        assert!(told.contains(PollFlags::RDHUP), "{told:?}");
        // Bytes that arrived before the end can be read.
        let read = net::timed_read::read_timed(&ours, &mut buffer, &clock).expect("they are there");
        assert_eq!(read.count, 10);
    }
}

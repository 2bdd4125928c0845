//! Tests of the path of segments from the ring to their connections.

use super::*;

const FIRST: u16 = 41_000;

fn to() -> SocketAddr {
    "10.0.0.1:554".parse().expect("an address")
}

fn segment(port: u16, sequence: u32, syn: bool) -> Segment {
    Segment {
        from: to(),
        to: SocketAddr::new([10, 0, 0, 2].into(), port),
        header: SegmentHeader {
            sequence,
            length: if syn { 0 } else { 100 },
            syn,
        },
        at: Time::from_nanos(u64::from(sequence)),
    }
}

/// Creates a watcher with connections from `ports` ports.
fn watching(ports: u16) -> SegmentTimes {
    let watcher = SegmentTimes::new(FIRST..=FIRST + 39);
    for port in FIRST..FIRST + ports {
        watcher.watch.borrow_mut().open(port, to());
    }
    watcher
}

/// Returns the number of bytes known to have arrived, without processing queued segments.
fn known(watcher: &SegmentTimes, port: u16) -> Option<usize> {
    let mut watch = watcher.watch.borrow_mut();
    let segments = &watch.connection(port)?.segments;
    segments.saw_start().then(|| segments.unread())
}

fn aside(watcher: &SegmentTimes) -> usize {
    watcher.watch.borrow().aside.iter().map(Vec::len).sum()
}

#[test]
fn turn_processes_only_segments_of_its_share() {
    let watcher = watching(40);
    let shares = u16::try_from(SHARES).expect("few");
    // Interleaved segments of two connections of one share, and of one of another share.
    for (sequence, syn) in [(0, true), (1, false), (101, false)] {
        for port in [FIRST + 3, FIRST + 3 + shares, FIRST + 4] {
            watcher.queue(&segment(port, sequence, syn));
        }
    }
    assert_eq!(known(&watcher, FIRST + 3), None);
    watcher.watch.borrow_mut().connections[3]
        .as_mut()
        .expect("it is open")
        .periodic = Some(77);
    let mut indices = Vec::new();
    watcher.begin_turn(3, &mut indices);
    assert_eq!(indices, [77]);
    assert_eq!(known(&watcher, FIRST + 3), Some(200));
    assert_eq!(known(&watcher, FIRST + 3 + shares), Some(200));
    assert_eq!((known(&watcher, FIRST + 4), aside(&watcher)), (None, 3));
}

#[test]
fn segment_queue_is_bounded_and_loses_nothing() {
    let watcher = watching(1);
    watcher.queue(&segment(FIRST, 0, true));
    let count = 3 * ASIDE_MAX;
    for number in 0..u32::try_from(count).expect("few") {
        watcher.queue(&segment(FIRST, 1 + 100 * number, false));
        assert!(aside(&watcher) < ASIDE_MAX);
    }
    watcher.begin_turn(0, &mut Vec::new());
    assert_eq!(known(&watcher, FIRST), Some(100 * count));
}

#[test]
fn connection_ignores_segments_of_others() {
    let watcher = watching(1);
    // Segments of the previous connection from the same port.
    watcher.queue(&segment(FIRST, 5000, true));
    watcher.queue(&segment(FIRST, 5001, false));
    watcher.watch.borrow_mut().open(FIRST, to());
    watcher.queue(&segment(FIRST, 0, true));
    watcher.queue(&segment(FIRST, 1, false));
    // Segments of other senders, and for ports that are unused or outside the range.
    for from in ["10.0.0.9:554", "10.0.0.1:555"] {
        watcher.queue(&Segment {
            from: from.parse().expect("an address"),
            ..segment(FIRST, 101, false)
        });
    }
    for port in [FIRST + 1, FIRST - 1, FIRST + 40] {
        watcher.queue(&segment(port, 101, false));
    }
    assert_eq!(aside(&watcher), 2);
    watcher.begin_turn(0, &mut Vec::new());
    assert_eq!(known(&watcher, FIRST), Some(100));
}

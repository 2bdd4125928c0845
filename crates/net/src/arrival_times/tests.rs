use proptest::prelude::*;

use super::*;

const FIRST: u32 = u32::MAX - 1000;

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn opened() -> SegmentArrivals {
    let mut segments = SegmentArrivals::default();
    let syn = SegmentHeader {
        sequence: FIRST.wrapping_sub(1),
        length: 0,
        syn: true,
    };
    segments.record_segment(&syn, at(0));
    assert!(segments.saw_start());
    segments
}

/// Records a segment with the bytes of the stream from `begin` to `end`.
fn arrive(segments: &mut SegmentArrivals, begin: u32, end: u32, nanos: u64) {
    let header = SegmentHeader {
        sequence: FIRST.wrapping_add(begin),
        length: (end - begin) as usize,
        syn: false,
    };
    segments.record_segment(&header, at(nanos));
}

/// Reads, and returns end, time and exactness of each run. Bytes whose time is unknown have the
/// time 999.
fn take(segments: &mut SegmentArrivals, count: usize) -> Vec<(usize, u64, bool)> {
    let mut runs = Vec::new();
    segments.record_read(count, at(999), false, &mut runs);
    runs.iter()
        .map(|run| (run.end, run.at.as_nanos(), run.exact))
        .collect()
}

#[test]
fn each_segment_has_its_time_across_sequence_wraparound() {
    let mut segments = opened();
    for number in 0..4 {
        arrive(
            &mut segments,
            number * 500,
            number * 500 + 500,
            u64::from(number) + 1,
        );
    }
    assert_eq!((segments.unread(), segments.oldest()), (2000, Some(at(1))));
    assert_eq!(take(&mut segments, 700), [(500, 1, true), (700, 2, true)]);
    assert_eq!(segments.unread(), 1300);
    let before = [2, 3, 4, 5].map(|time| segments.unread_before(at(time)));
    assert_eq!(before, [0, 300, 800, 1300]);
    assert_eq!(
        take(&mut segments, 1300),
        [(300, 2, true), (800, 3, true), (1300, 4, true)]
    );
    assert_eq!((segments.unread(), segments.oldest()), (0, None));
}

#[test]
fn retransmission_keeps_the_first_time_but_is_inexact() {
    let mut segments = opened();
    arrive(&mut segments, 0, 100, 1);
    arrive(&mut segments, 0, 100, 2);
    arrive(&mut segments, 50, 150, 3);
    arrive(&mut segments, 100, 150, 4);
    // TCP may have accepted the second copy.
    assert_eq!(take(&mut segments, 150), [(100, 1, false), (150, 3, false)]);
    // A retransmission after the bytes were read.
    arrive(&mut segments, 0, 150, 5);
    assert_eq!(segments.unread(), 0);
}

#[test]
fn bytes_beyond_a_gap_have_the_time_it_was_filled() {
    let mut segments = opened();
    arrive(&mut segments, 0, 100, 1);
    arrive(&mut segments, 200, 300, 2);
    arrive(&mut segments, 400, 500, 3);
    arrive(&mut segments, 300, 400, 4);
    assert!(segments.has_gap());
    assert_eq!(segments.unread(), 100);
    arrive(&mut segments, 100, 200, 5);
    assert!(!segments.has_gap());
    assert_eq!(take(&mut segments, 500), [(100, 1, true), (500, 5, true)]);
}

#[test]
fn unseen_bytes_have_the_time_of_reading() {
    let mut segments = opened();
    arrive(&mut segments, 0, 100, 1);
    arrive(&mut segments, 200, 300, 2);
    assert_eq!(segments.unread(), 100);
    assert_eq!(
        take(&mut segments, 250),
        [(100, 1, true), (250, 999, false)]
    );
    assert_eq!(segments.unread(), 50);
    arrive(&mut segments, 300, 400, 3);
    assert_eq!(take(&mut segments, 150), [(50, 999, false), (150, 3, true)]);
    // Read before the segment is seen.
    assert_eq!(take(&mut segments, 100), [(100, 999, false)]);
    arrive(&mut segments, 400, 500, 4);
    assert_eq!(segments.unread(), 0);
    arrive(&mut segments, 500, 600, 5);
    assert_eq!(take(&mut segments, 100), [(100, 5, true)]);
}

#[test]
fn last_byte_of_an_unseen_read_has_the_kernels_time() {
    let mut segments = opened();
    let mut runs = Vec::new();
    segments.record_read(100, at(7), true, &mut runs);
    let run = |end, exact| ArrivalRun {
        end,
        at: at(7),
        exact,
    };
    assert_eq!(runs, [run(99, false), run(100, true)]);
}

#[test]
fn segment_rejected_by_tcp_counts_when_retransmitted() {
    let mut segments = opened();
    arrive(&mut segments, 0, 100, 1);
    arrive(&mut segments, 100, 200, 2);
    assert_eq!(take(&mut segments, 100), [(100, 1, true)]);
    segments.forget_unread();
    assert_eq!(segments.unread(), 0);
    arrive(&mut segments, 100, 200, 50);
    assert_eq!(take(&mut segments, 100), [(100, 50, true)]);
}

#[test]
fn connection_without_its_syn_is_unknown() {
    let mut segments = SegmentArrivals::default();
    arrive(&mut segments, 0, 100, 1);
    assert!(!segments.saw_start());
    assert_eq!(take(&mut segments, 100), [(100, 999, false)]);
    // A second SYN changes nothing.
    let mut segments = opened();
    arrive(&mut segments, 0, 100, 1);
    segments.record_segment(
        &SegmentHeader {
            sequence: 77,
            length: 0,
            syn: true,
        },
        at(2),
    );
    assert_eq!(take(&mut segments, 100), [(100, 1, true)]);
}

#[test]
fn memory_is_bounded() {
    let mut segments = opened();
    for number in 0..100_000u32 {
        arrive(&mut segments, number, number + 1, u64::from(number));
    }
    assert_eq!(segments.runs.len(), RUNS_MAX);
    let runs = take(&mut segments, 100_000);
    assert_eq!(runs[0], (1, 0, true));
    assert_eq!(runs.last(), Some(&(100_000, 99_999, false)));
    assert!(segments.runs.capacity() <= RUNS_RETAINED);
    for number in 0..1000 {
        arrive(&mut segments, 100_001 + 2 * number, 100_002 + 2 * number, 1);
    }
    assert_eq!(segments.out_of_order.len(), OUT_OF_ORDER_MAX);
    // Farther than any window.
    let mut segments = opened();
    arrive(&mut segments, (1 << 30) + 1, (1 << 30) + 2, 1);
    assert!(!segments.has_gap());
}

/// Model of a receiver that sees every segment: the time at which all bytes before each offset had
/// arrived.
fn model(segments: &[(u32, u32)], length: u32) -> Vec<Option<u64>> {
    let mut came = vec![None; length as usize];
    for (time, &(begin, end)) in segments.iter().enumerate() {
        for byte in &mut came[begin as usize..end as usize] {
            byte.get_or_insert(time as u64);
        }
    }
    let mut readable = Some(0);
    came.into_iter()
        .map(|byte| {
            readable = readable.and_then(|before: u64| byte.map(|byte| before.max(byte)));
            readable
        })
        .collect()
}

proptest! {
    /// Segments are reordered, lost, duplicated and resegmented, and read at any time in any
    /// pieces: each byte has the time at which it became readable.
    #[test]
    fn bytes_have_the_time_they_became_readable(
        sent in prop::collection::vec((0u32..400, 1u32..60), 1..60),
        reads in prop::collection::vec(1usize..100, 1..40),
    ) {
        let sent: Vec<(u32, u32)> =
            sent.iter().map(|&(begin, length)| (begin, (begin + length).min(400))).collect();
        let truth = model(&sent, 400);
        let mut segments = opened();
        for (time, &(begin, end)) in sent.iter().enumerate() {
            arrive(&mut segments, begin, end, time as u64);
        }
        let covered = |byte| sent.iter().filter(|&&(begin, end)| begin <= byte && byte < end).count();
        let none_twice = (0..400).all(|byte| covered(byte) < 2);
        let readable = truth.iter().take_while(|time| time.is_some()).count();
        prop_assert_eq!(segments.unread(), readable);
        let mut offset = 0;
        for read in reads {
            let read = read.min(segments.unread());
            let mut begin = 0;
            for (end, time, exact) in take(&mut segments, read) {
                prop_assert!(end > begin);
                prop_assert!(exact || !none_twice);
                for byte in begin..end {
                    prop_assert_eq!(truth[offset + byte], Some(time));
                }
                begin = end;
            }
            prop_assert_eq!(begin, read);
            offset += read;
        }
    }

    /// Arbitrary headers and reads: the state stays consistent, and every byte read has a run.
    #[test]
    fn arbitrary_headers_and_reads_stay_consistent(
        steps in prop::collection::vec(
            (any::<u32>(), 0usize..70_000, any::<bool>(), any::<bool>(), any::<bool>()),
            0..200,
        ),
        near in any::<bool>(),
    ) {
        let mut segments = SegmentArrivals::default();
        let mut runs = Vec::new();
        for (number, length, syn, read, nothing) in steps {
            let sequence = if near { number % 200_000 } else { number };
            if read {
                runs.clear();
                segments.record_read(length, at(u64::from(number)), syn, &mut runs);
                let ends: Vec<usize> = runs.iter().map(|run| run.end).collect();
                prop_assert!(ends.is_sorted());
                prop_assert_eq!(ends.last().copied().unwrap_or(0), length);
                if nothing {
                    segments.forget_unread();
                    prop_assert_eq!(segments.unread(), 0);
                }
            } else {
                segments.record_segment(&SegmentHeader { sequence, length, syn }, at(u64::from(number)));
            }
            prop_assert!(segments.runs.len() <= RUNS_MAX && segments.out_of_order.len() <= OUT_OF_ORDER_MAX);
            let apart = segments.out_of_order.windows(2).all(|pair| pair[0].end < pair[1].begin);
            prop_assert!(apart, "{:?}", segments.out_of_order);
            prop_assert!(segments.out_of_order.first().is_none_or(|first| first.begin > segments.arrived));
        }
    }
}

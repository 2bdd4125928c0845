use std::collections::HashSet;

use measure::{Catalogue, CounterId, HistogramId};
use proptest::prelude::*;

use super::*;
use crate::mediagen::ts::packet::write_pcr;
use crate::metrics::{CLIENTS, ZAPPING};
use crate::viewer::VIEWERS;

mod coded_pictures;
mod fast_path;
mod media_arrivals;
mod strided;

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &m::TS]);
const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);
const VIDEO: u16 = 0x100;
const MAP: u16 = 0x1000;

fn group() -> SocketAddr {
    "239.81.0.1:4056".parse().expect("an address")
}

fn ms(millis: u64) -> Time {
    Time::from_start(Duration::from_millis(millis))
}

struct Bench {
    checker: TsChecker,
    recorder: Recorder,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            checker: TsChecker::new(&TsCheckerConfig {
                previous_channel: None,
                due: ms(100),
                group: Some(group()),
                wall_clock: Some(WALL_CLOCK),
                playout_buffer: Duration::from_secs(1),
            }),
            recorder: Recorder::new(CATALOGUE),
        }
    }

    fn feed(&mut self, bytes: &[u8], at: Time) {
        let mut times = ArrivalTimes::new(&[], at);
        self.checker.feed(bytes, 0, &mut times, &mut self.recorder);
        assert!(
            self.checker.held.len() <= SYNC_SEARCH_LEN_MAX
                && self.checker.held.capacity() <= SYNC_PACKETS * PACKET_LEN
        );
    }

    fn count(&self, counter: CounterId) -> u64 {
        self.recorder.counter(counter)
    }

    /// The only value of a distribution, in milliseconds.
    fn delay(&self, histogram: HistogramId) -> Option<u64> {
        let histogram = self.recorder.histogram(histogram)?;
        assert_eq!(histogram.count(), 1);
        Some(histogram.max()? / 1_000_000)
    }
}

/// Builds a packet with payload only.
fn plain(pid: u16, continuity: u64, start: bool, payload: &[u8]) -> [u8; PACKET_LEN] {
    let mut packet = [0xff; PACKET_LEN];
    let [high, low] = pid.to_be_bytes();
    packet[..4].copy_from_slice(&[
        SYNC,
        high | if start { 0x40 } else { 0 },
        low,
        0x10 | (continuity % 16) as u8,
    ]);
    packet[4..4 + payload.len()].copy_from_slice(payload);
    packet
}

/// Builds a packet with a clock reference and these flags.
fn clock(continuity: u64, flags: u8, pcr: u64) -> [u8; PACKET_LEN] {
    let mut packet = plain(VIDEO, continuity, flags & 0x40 != 0, &[7, flags | 0x10]);
    packet[3] |= 0x20;
    packet[6..12].copy_from_slice(&write_pcr(pcr));
    packet
}

fn section(pid: u16, continuity: u64, table: u8, data: &[u8]) -> [u8; PACKET_LEN] {
    let mut section = vec![table, 0xb0, (data.len() + 4) as u8];
    section.extend_from_slice(data);
    section.extend_from_slice(&tables::crc(&section).to_be_bytes());
    section.insert(0, 0);
    plain(pid, continuity, true, &section)
}

fn pat() -> [u8; PACKET_LEN] {
    section(0, 0, 0, &[0, 1, 0xc1, 0, 0, 0, 7, 0xf0, 0])
}

fn pmt() -> [u8; PACKET_LEN] {
    section(
        MAP,
        0,
        2,
        &[0, 7, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 0],
    )
}

/// Builds a datagram of seven packets from our own source.
fn datagram(source: u64, number: u64, due: Time) -> Vec<u8> {
    let rest: Vec<u8> = (0..6)
        .flat_map(|n| plain(VIDEO, number * 6 + n, false, &number.to_be_bytes()))
        .collect();
    let stamp = Stamp {
        packets: 7,
        group: group(),
        source,
        number,
        due: (WALL_CLOCK.as_nanos() as u64) + due.as_nanos(),
        check: crc32fast::hash(&rest),
    };
    [&stamp.write()[..], &rest].concat()
}

/// Feeds clock references of a stream at 40 ms intervals. `arrival` returns the arrival time of
/// each, in milliseconds from the first, and its clock in milliseconds.
fn stalls_of(count: u64, arrival: impl Fn(u64) -> (u64, u64)) -> (u64, Duration) {
    let mut bench = Bench::new();
    bench.feed(&pat(), ms(1000));
    bench.feed(&pmt(), ms(1000));
    for number in 0..count {
        let (at, shows) = arrival(number);
        bench.feed(&clock(0, 0, shows * 27_000), ms(1000 + at));
    }
    (bench.count(m::STALLS), bench.checker.stalled())
}

#[test]
fn stalls_are_lateness_beyond_the_buffer() {
    let none = (0, Duration::ZERO);
    let late = |number: u64, by: u64| number * 40 + if number < 50 { 0 } else { by };
    assert_eq!(stalls_of(100, |n| (n * 40, n * 40)), none);
    assert_eq!(stalls_of(100, |n| (late(n, 1000), n * 40)), none);
    let stalled = (1, Duration::from_millis(300));
    assert_eq!(stalls_of(100, |n| (late(n, 1300), n * 40)), stalled);
    // Media that arrived ahead of time is played first.
    assert_eq!(
        stalls_of(100, |n| (late(n, 3000).max(2000) - 2000, n * 40)),
        none
    );
    // An outage whose media is sent afterwards, all at once, and a second one as long.
    let outages = |n: u64| {
        let at = match n {
            25..75 => 3000,
            100..150 => 6000,
            _ => n * 40,
        };
        (at, n * 40)
    };
    assert_eq!(stalls_of(200, outages), (1, Duration::from_secs(1)));
    // A clock that starts again, without a gap in the arrivals.
    assert_eq!(stalls_of(200, |n| (n * 40, n % 100 * 40)), none);
}

#[test]
fn silence_at_the_end_is_a_stall() {
    let mut bench = Bench::new();
    bench.feed(&pat(), ms(1000));
    bench.feed(&pmt(), ms(1000));
    bench.feed(&clock(0, 0, 0), ms(1000));
    bench
        .checker
        .count_silence_until(ms(4000), &mut bench.recorder);
    // 3 s, less the buffer of 1 s and the longest interval between references.
    assert_eq!(bench.checker.stalled(), Duration::from_millis(1900));
}

#[test]
fn viewer_begins_with_map_and_key_picture() {
    let mut bench = Bench::new();
    // A key picture before the map is useless.
    bench.feed(&clock(0, 0x40, 0), ms(110));
    bench.feed(&pat(), ms(120));
    bench.feed(&plain(VIDEO, 1, false, &[]), ms(130));
    bench.feed(&pmt(), ms(140));
    bench.feed(
        &plain(VIDEO, 2, true, &[0, 0, 1, 0xe0, 0, 0, 1, 0x41]),
        ms(150),
    );
    bench.feed(&clock(3, 0x40, 0), ms(160));
    bench.feed(&clock(4, 0x40, 2_700_000), ms(300));
    bench.checker.finish(&mut bench.recorder);
    // The first three packets are recognised when the third arrives, but have their own arrival
    // times.
    assert_eq!(bench.checker.first_arrival(), Some(ms(110)));
    assert_eq!(bench.delay(m::PAT_DELAY), Some(20));
    assert_eq!(bench.delay(m::PMT_DELAY), Some(40));
    assert_eq!(bench.delay(m::RANDOM_ACCESS_DELAY), Some(60));
    assert_eq!(bench.delay(m::PCR_INTERVAL), Some(100));
    assert!(
        bench
            .delay(m::PCR_JITTER)
            .is_some_and(|jitter| (39..=40).contains(&jitter))
    );
    assert_eq!(bench.delay(m::LONGEST_GAP), Some(140));
    assert_eq!(
        *bench.checker.counts(),
        TsCounts {
            ts_packets: 7,
            ..TsCounts::default()
        }
    );
    assert_eq!(bench.count(m::TS_PACKETS), 7);
    assert_eq!(bench.count(m::PAYLOAD_BYTES), 7 * 188);
    assert_eq!(bench.count(m::TIMED_BY_READING), 7);
    assert!(bench.checker.datagrams().is_none());
}

#[test]
fn parameter_sets_mark_a_key_picture_without_flag() {
    let mut bench = Bench::new();
    let all = [
        pat(),
        pmt(),
        plain(VIDEO, 0, true, &[0, 0, 1, 0xe0, 0, 0, 0, 1, 0x67]),
    ]
    .concat();
    bench.feed(&all, ms(130));
    assert_eq!(bench.delay(m::RANDOM_ACCESS_DELAY), Some(30));
}

#[test]
fn continuity_is_per_pid_and_allows_one_duplicate() {
    let mut bench = Bench::new();
    let mut all = Vec::new();
    for counter in [14, 15, 0, 1, 1, 2, 5, 5, 5] {
        all.extend(plain(VIDEO, counter, false, &[]));
        all.extend(plain(NULL_PID, 3, false, &[]));
    }
    // An announced jump, and packets without payload.
    let mut jump = clock(11, 0x80, 0);
    all.extend(jump);
    jump[3] = 0x20 | 11;
    jump[4] = 183;
    jump[5] = 0;
    all.extend([jump, jump].concat());
    all.extend(plain(VIDEO, 12, false, &[]));
    bench.feed(&all, ms(1));
    let counts = *bench.checker.counts();
    // One jump by two, and one packet that arrived three times.
    assert_eq!(
        (
            counts.continuity_errors,
            counts.continuity_lost,
            counts.ts_duplicates
        ),
        (2, 2, 2)
    );
    assert_eq!(bench.count(m::CONTINUITY_ERRORS), 2);
    assert_eq!(bench.count(m::TS_PACKETS), 9 + 9 + 4);
    assert_eq!(bench.count(m::NON_NULL_PACKETS), 9 + 4);
    let pids: Vec<PidCounts> = bench.checker.pids().collect();
    assert_eq!(
        pids,
        [PidCounts {
            pid: VIDEO,
            packets: 13,
            continuity_errors: 2
        }]
    );
    for pid in 0..100 {
        bench.feed(&plain(0x200 + pid, 0, false, &[]), ms(2));
    }
    assert_eq!(
        (
            bench.checker.pids().count(),
            bench.checker.counts().untracked_packets
        ),
        (32, 69)
    );
}

#[test]
fn damaged_packets_and_clock_jumps_are_counted() {
    let mut bench = Bench::new();
    let mut marked = plain(VIDEO, 9, false, &[]);
    marked[1] |= 0x80;
    let mut wrong = plain(VIDEO, 9, false, &[]);
    wrong[3] &= 0x0f;
    let all = [
        pat(),
        pmt(),
        clock(0, 0, 1000),
        marked,
        wrong,
        clock(1, 0, 60 * 27_000_000),
        clock(2, 0x80, 5),
        clock(3, 0, PACKET_LEN as u64),
    ];
    bench.feed(&all.concat(), ms(1));
    let counts = bench.checker.counts();
    assert_eq!(
        (counts.transport_errors, counts.malformed, counts.pcr_jumps),
        (1, 1, 1)
    );
    assert_eq!(counts.continuity_errors, 0);
    assert_eq!(
        bench
            .recorder
            .histogram(m::PCR_INTERVAL)
            .map(|found| found.count()),
        Some(1)
    );
}

#[test]
fn sync_is_regained_after_three_packets() {
    let mut bench = Bench::new();
    let packet = |n| plain(VIDEO, n, false, &[]);
    let mut all = b"garbage G".to_vec();
    all.extend((0..5).flat_map(packet));
    // The second half of a packet is missing: the packet after it is lost as well.
    all.extend(&packet(5)[..90]);
    all.extend((6..10).flat_map(packet));
    bench.feed(&all, ms(1));
    bench.checker.finish(&mut bench.recorder);
    let counts = *bench.checker.counts();
    assert_eq!((counts.sync_losses, counts.ts_packets), (1, 5 + 1 + 3));
    assert_eq!(counts.out_of_sync_bytes, 9 + 90);
    assert_eq!(counts.continuity_lost, 1);
    assert_eq!(bench.checker.bytes_without_packet(), 0);
}

#[test]
fn data_without_sync_takes_bounded_memory() {
    let mut bench = Bench::new();
    let page = b"<html><body>G</body></html>".repeat(4000);
    for piece in page.chunks(7001) {
        bench.feed(piece, ms(1));
    }
    assert_eq!(bench.checker.bytes_without_packet(), page.len());
    assert_eq!(bench.checker.first_arrival(), None);
    bench.checker.finish(&mut bench.recorder);
    assert_eq!(bench.count(m::OUT_OF_SYNC_BYTES), page.len() as u64);
}

#[test]
fn every_datagram_is_accounted_for() {
    let mut bench = Bench::new();
    let one = |number: u64| datagram(5, number, ms(number));
    // 12 and 14 are lost, 13 is duplicated, 16 is before 15, and 10 is below the first one.
    for number in [11, 13, 13, 16, 15, 10] {
        bench.feed(&one(number), ms(number + 3));
    }
    // From another group, from another source, and damaged in three ways: a changed byte, a packet
    // less, a packet more.
    let mut elsewhere = one(17);
    elsewhere[17] ^= 1;
    bench.feed(&elsewhere, ms(20));
    bench.feed(&datagram(6, 17, ms(17)), ms(20));
    let mut changed = one(17);
    changed[500] ^= 1;
    bench.feed(&changed, ms(20));
    bench.feed(&one(18)[..6 * PACKET_LEN], ms(21));
    bench.feed(&one(19), ms(22));
    bench.feed(&plain(VIDEO, 3, false, &[]), ms(22));
    let counts = *bench.checker.datagrams().expect("there are some");
    assert_eq!(
        counts,
        DatagramCounts {
            expected: 10,
            received: 8,
            duplicated: 1,
            reordered: 2,
            late: 0,
            foreign: 2,
            old_channel: 0,
            damaged: 2,
            stray_packets: 1,
            restarts: 0,
        }
    );
    assert_eq!(
        (
            bench.count(m::EXPECTED),
            bench.count(m::RECEIVED),
            bench.count(m::FOREIGN)
        ),
        (10, 8, 2)
    );
    let delays = bench
        .recorder
        .histogram(m::DATAGRAM_DELAY)
        .expect("recorded");
    assert_eq!(
        (delays.count(), delays.min().map(|delay| delay / 100_000)),
        (6, Some(30))
    );
    // Received before it was sent.
    bench.feed(&one(20), ms(19));
    assert_eq!(bench.count(m::STAMPS_AHEAD), 1);
}

#[test]
fn persistent_new_source_takes_over() {
    let mut bench = Bench::new();
    bench.feed(&datagram(5, 1000, ms(0)), ms(1));
    for number in 0..150 {
        bench.feed(&datagram(6, number, ms(0)), ms(1));
    }
    let counts = bench.checker.datagrams().expect("there are some");
    assert_eq!(
        (
            counts.foreign,
            counts.restarts,
            counts.received,
            counts.expected
        ),
        (99, 1, 52, 52)
    );
}

#[test]
fn old_copies_are_late_and_leaps_are_restarts() {
    let mut bench = Bench::new();
    for number in [5_000, 10_000, 5_000, 100_000_000, 100_000_001] {
        bench.feed(&datagram(5, number, ms(0)), ms(1));
    }
    let counts = bench.checker.datagrams().expect("there are some");
    assert_eq!((counts.late, counts.restarts), (1, 1));
    assert_eq!((counts.received, counts.expected), (4, 5_003));
}

#[test]
fn checker_takes_less_than_2_kib() {
    let boxed = size_of::<Datagrams>();
    let held = SYNC_SEARCH_LEN;
    assert!(
        size_of::<TsChecker>() + boxed + held < 2048 - 100,
        "{} and {boxed}",
        size_of::<TsChecker>()
    );
}

/// Counts of all datagrams, computed with sets only.
fn model(arrived: &[u64]) -> (u64, u64, u64, u64) {
    let (mut seen, mut highest) = (HashSet::new(), None);
    let (mut duplicated, mut reordered) = (0, 0);
    for &number in arrived {
        if !seen.insert(number) {
            duplicated += 1;
        } else if highest.is_some_and(|highest| number < highest) {
            reordered += 1;
        }
        highest = highest.max(Some(number));
    }
    let lowest = seen.iter().min().copied().unwrap_or(0);
    let expected = highest.map_or(0, |highest| highest - lowest + 1);
    (expected, seen.len() as u64, duplicated, reordered)
}

proptest! {
    #[test]
    fn counts_match_a_simple_model(
        steps in prop::collection::vec((0u64..4, 0u64..12, any::<bool>()), 1..120),
        cut in 1usize..3000,
    ) {
        let (mut arrived, mut number) = (Vec::new(), 20u64);
        for (ahead, back, again) in steps {
            number += ahead;
            arrived.push(if again { number - back } else { number });
        }
        let bytes: Vec<u8> = arrived.iter().flat_map(|&number| datagram(5, number, ms(0))).collect();
        let mut bench = Bench::new();
        for piece in bytes.chunks(cut) {
            bench.feed(piece, ms(1));
        }
        let counts = *bench.checker.datagrams().expect("there are some");
        prop_assert_eq!((counts.expected, counts.received, counts.duplicated, counts.reordered), model(&arrived));
        prop_assert_eq!((counts.damaged, counts.foreign, counts.late, counts.stray_packets), (0, 0, 0, 0));
        prop_assert_eq!(bench.checker.counts().sync_losses, 0);
    }

    #[test]
    fn piece_sizes_make_no_difference(
        parts in prop::collection::vec((0u8..8, any::<u16>()), 0..40),
        cuts in prop::collection::vec(1usize..700, 1..40),
    ) {
        let mut bytes = Vec::new();
        for (number, &(kind, random)) in parts.iter().enumerate() {
            let number = number as u64;
            match kind {
                0 => bytes.extend(pat()),
                1 => bytes.extend(pmt()),
                2 => bytes.extend(clock(number, random as u8, u64::from(random) * 1000)),
                3 => bytes.extend(&plain(VIDEO, number, false, &[])[..usize::from(random) % PACKET_LEN]),
                4 => bytes.extend(vec![SYNC; usize::from(random) % 400]),
                5 => bytes.extend(&datagram(5, number, ms(0))[usize::from(random) % 9..]),
                _ => bytes.extend(datagram(5, number, ms(0))),
            }
        }
        let check = |pieces: &mut dyn Iterator<Item = usize>| {
            let mut bench = Bench::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(pieces.next().expect("endless").min(rest.len()));
                bench.feed(piece, ms(1));
                rest = after;
            }
            bench.checker.finish(&mut bench.recorder);
            let counts = bench.checker.counts();
            let held = if bench.checker.synced { bench.checker.held.len() as u64 } else { 0 };
            let seen = counts.ts_packets * 188 + counts.out_of_sync_bytes + held;
            // Long runs of sync bytes are read as packets of 192 or 204 bytes.
            let between = bytes.len() as u64 - seen;
            assert!(between.is_multiple_of(4) && between <= counts.ts_packets * 16, "{between}");
            (*counts, bench.checker.datagrams().copied(), bench.checker.pids().collect::<Vec<_>>(), bench.recorder.take_window())
        };
        let whole = check(&mut std::iter::repeat(usize::MAX));
        prop_assert_eq!(check(&mut cuts.into_iter().cycle()), whole);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000), every in 1usize..400) {
        // With sync bytes, so that parsing gets far.
        let mut bytes = bytes;
        for offset in (0..bytes.len()).step_by(if every % 2 == 0 { 188 } else { every }) {
            bytes[offset] = SYNC;
        }
        let mut bench = Bench::new();
        for piece in bytes.chunks(every) {
            bench.feed(piece, ms(1));
        }
        bench.checker.finish(&mut bench.recorder);
    }
}

#[test]
fn streams_are_checked_in_linear_time() {
    let null = [&[SYNC, 0x1f, 0xff, 0x10][..], &[0xff; 184]].concat();
    let table = [
        &[SYNC, 0x40, 0, 0x10, 0][..],
        &[0, 0xb0, 9].repeat(60),
        &[0xff; 3],
    ]
    .concat();
    let torn = [&null[..], &null, &null, &[0]].concat();
    for (what, text) in [
        ("packets", &null[..]),
        ("no sync", &[0]),
        ("sync alone", &[SYNC]),
        ("sync that is lost again and again", &torn),
        ("tables", &table),
    ] {
        let make = |size| text.iter().copied().cycle().take(size).collect();
        // During the search for sync, bytes that may be a packet are inspected with each piece: two
        // packets at most.
        let per_byte = 2 * (SYNC_SEARCH_LEN_MAX as u64 + 8);
        steps::assert_linear(what, per_byte, make, |pieces| {
            let mut bench = Bench::new();
            for piece in pieces {
                bench.feed(piece, ms(1));
            }
        });
    }
}

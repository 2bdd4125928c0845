use std::collections::BTreeSet;

use measure::{Catalogue, CounterId, Group, HistogramId};
use proptest::prelude::*;

use super::*;
use crate::media::rtcp::{ReportBlock, SenderInfo};
use crate::metrics::{CLIENTS, ZAPPING};

mod fast_path;
mod outages;
mod padding;
mod position_changes;
mod rtp_info;

static GROUPS: [&Group; 4] = [&CLIENTS, &ZAPPING, &crate::viewer::VIEWERS, &m::RTP];

const SSRC: u32 = 0x1234_5678;
const PAYLOAD: usize = 100;

/// A receiver of video at 90 kHz, and its recorder.
struct Bench {
    receiver: RtpReceiver,
    recorder: Recorder,
    ssrc: u32,
    at: Time,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(&ReceiverConfig {
            clock_rate: 90_000,
            payload_types: vec![96],
            playout_buffer: Duration::from_millis(100),
        })
    }

    fn with(config: &ReceiverConfig) -> Bench {
        Bench {
            receiver: RtpReceiver::new(config),
            recorder: Recorder::new(Catalogue(&GROUPS)),
            ssrc: SSRC,
            at: Time::from_start(Duration::from_secs(1)),
        }
    }

    fn header(&self, sequence: u16, timestamp: u32, marker: bool) -> Header {
        Header {
            marker,
            ..Header::new(96, sequence, timestamp, self.ssrc)
        }
    }

    fn send(&mut self, header: &Header) -> Option<MediaEvent> {
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(12 + PAYLOAD, 0);
        self.raw(&bytes)
    }

    fn raw(&mut self, bytes: &[u8]) -> Option<MediaEvent> {
        let arrival = Arrival {
            at: self.at,
            bytes,
            length: bytes.len(),
            overhead: 28,
        };
        self.receiver.packet(&arrival, &mut self.recorder)
    }

    /// Sends a packet that is a complete frame.
    fn packet(&mut self, sequence: u16) -> Option<MediaEvent> {
        let header = self.header(sequence, u32::from(sequence) * 3600, true);
        self.send(&header)
    }

    fn packets(&mut self, sequences: impl IntoIterator<Item = u16>) {
        for sequence in sequences {
            self.packet(sequence);
        }
    }

    fn set_base(&mut self, base: u16) {
        self.receiver.set_base(base, None, &mut self.recorder);
    }

    fn finish(&mut self) {
        self.receiver.finish(&mut self.recorder);
    }

    fn count(&self, counter: CounterId) -> u64 {
        self.recorder.counter(counter)
    }

    fn values(&self, histogram: HistogramId) -> Vec<(u64, u64)> {
        self.recorder
            .histogram(histogram)
            .map(|h| h.to_sparse().buckets)
            .unwrap_or_default()
    }

    /// Expected, received, duplicated, reordered, late, malformed, restarts.
    fn counts(&self) -> [u64; 7] {
        let c = self.receiver.counts();
        let counts = [
            c.expected,
            c.received,
            c.duplicated,
            c.reordered,
            c.late,
            c.malformed,
            c.restarts,
        ];
        let recorded = [
            m::EXPECTED,
            m::RECEIVED,
            m::DUPLICATED,
            m::REORDERED,
            m::LATE,
            m::MALFORMED,
            m::RESTARTS,
        ];
        assert_eq!(counts, recorded.map(|counter| self.count(counter)));
        assert_eq!(c.payload_bytes, self.count(m::PAYLOAD_BYTES));
        assert_eq!(c.wire_bytes, self.count(m::WIRE_BYTES));
        counts
    }
}

/// Counts of an independent implementation, from the numbers of all packets in order of arrival.
#[derive(Debug, PartialEq, Eq)]
struct Naive {
    counts: [u64; 4],
    distances: Vec<u64>,
    bursts: Vec<u64>,
}

fn naive(arrivals: &[i64], base: Option<i64>) -> Naive {
    let distinct: BTreeSet<i64> = arrivals.iter().copied().collect();
    let highest = *distinct.last().unwrap();
    let lowest = base.unwrap_or(*distinct.first().unwrap());
    let mut distances = Vec::new();
    let mut seen = BTreeSet::new();
    for &number in arrivals {
        if seen.contains(&number) {
            continue;
        }
        if let Some(&before) = seen.last()
            && before > number
        {
            distances.push((before - number) as u64);
        }
        seen.insert(number);
    }
    let mut bursts = Vec::new();
    let mut run = 0;
    for number in lowest..=highest {
        if !distinct.contains(&number) {
            run += 1;
        } else if run > 0 {
            bursts.push(std::mem::take(&mut run));
        }
    }
    let duplicated = arrivals.len() - distinct.len();
    distances.sort_unstable();
    bursts.sort_unstable();
    Naive {
        counts: [
            (highest - lowest + 1) as u64,
            distinct.len() as u64,
            duplicated as u64,
            distances.len() as u64,
        ],
        distances,
        bursts,
    }
}

fn spread(values: Vec<(u64, u64)>) -> Vec<u64> {
    values
        .into_iter()
        .flat_map(|(value, count)| std::iter::repeat_n(value, count as usize))
        .collect()
}

/// Effects of a path on each packet: loss, delay, and the delay of a second copy.
fn fates() -> impl Strategy<Value = Vec<(bool, u32, Option<u32>)>> {
    let fate = (
        prop::bool::weighted(0.1),
        prop_oneof![8 => Just(0u32), 2 => 0u32..20, 1 => 0u32..900],
        prop::option::weighted(0.1, 0u32..900),
    );
    let outage = (1usize..300).prop_map(|n| vec![(true, 0, None); n]);
    let part = prop_oneof![
        20 => prop::collection::vec(fate, 1..60),
        2 => outage,
    ];
    prop::collection::vec(part, 1..20).prop_map(|parts| parts.concat())
}

/// Number of packets in an outage: any number, and numbers near a wrap-around.
fn outage() -> impl Strategy<Value = i64> {
    prop_oneof![
        2 => 0..70_000i64,
        1 => 2900..3100i64,
        1 => 32_000..33_500i64,
        2 => CYCLE - 2100..CYCLE + 100,
    ]
}

const CYCLE: i64 = 65_536;

fn arrivals(fates: &[(bool, u32, Option<u32>)]) -> Vec<i64> {
    timed(fates).into_iter().map(|(_, number)| number).collect()
}

/// Packets that arrive: time in packets, and number.
fn timed(fates: &[(bool, u32, Option<u32>)]) -> Vec<(i64, i64)> {
    let mut arrivals = Vec::new();
    for (number, &(lost, later, copy)) in fates.iter().enumerate() {
        let number = number as i64;
        if !lost {
            arrivals.push((number + i64::from(later), number));
        }
        if let Some(later) = copy {
            arrivals.push((number + i64::from(later), number));
        }
    }
    arrivals.sort_by_key(|&(at, _)| at);
    arrivals
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn counts_match_an_independent_implementation(
        fates in fates(), start: u16, base_said: bool, base_at in 0usize..1500,
    ) {
        let arrivals = arrivals(&fates);
        prop_assume!(!arrivals.is_empty());
        let mut bench = Bench::new();
        for (index, &number) in arrivals.iter().enumerate() {
            if base_said && index == base_at.min(arrivals.len() - 1) {
                bench.set_base(start);
            }
            bench.at += Duration::from_millis(1);
            bench.packet(start.wrapping_add(number as u16));
        }
        bench.finish();
        let expected = naive(&arrivals, base_said.then_some(0));
        let [e, r, d, o, late, malformed, restarts] = bench.counts();
        let bursts = spread(bench.values(m::LOSS_BURST_LENGTH));
        prop_assert_eq!(bursts.len() as u64, bench.count(m::LOSS_BURSTS));
        let ours = Naive {
            counts: [e, r, d, o],
            distances: spread(bench.values(m::REORDER_DISTANCE)),
            bursts,
        };
        prop_assert_eq!(ours, expected);
        prop_assert_eq!([late, malformed, restarts, bench.count(m::RTP_INFO_MISMATCH)], [0; 4]);
        prop_assert_eq!(bench.receiver.counts().payload_bytes, r * PAYLOAD as u64);
        prop_assert_eq!(bench.receiver.counts().wire_bytes, arrivals.len() as u64 * (PAYLOAD as u64 + 40));
    }

    #[test]
    fn outages_of_any_length_count_as_loss(
        parts in prop::collection::vec((fates(), outage()), 1..6),
        start: u16, first_timestamp: u32, micros in 120u64..4000,
    ) {
        // Numbers and time advance across each outage; losses directly before and after it are part
        // of it.
        let mut fates = Vec::new();
        let mut turns = Vec::new();
        for (part, outage) in &parts {
            fates.extend_from_slice(part);
            // The packets before and after it arrive, so that its length is exactly the stated one.
            fates.push((false, 0, None));
            // Whole cycles cannot be detected: they do not count.
            if *outage >= CYCLE { turns.push((fates.len() as i64 + outage % CYCLE, outage - outage % CYCLE)); }
            fates.extend(vec![(true, 0, None); (outage % CYCLE) as usize]);
            fates.push((false, 0, None));
        }
        let arrivals = timed(&fates);
        let mut bench = Bench::new();
        let begin = bench.at;
        for &(slot, number) in &arrivals {
            // The elapsed time, including whole cycles.
            let later = |number: i64| turns.iter().filter(|&&(from, _)| number >= from).map(|&(_, by)| by).sum::<i64>();
            bench.at = begin + Duration::from_micros((slot + later(number)) as u64 * micros);
            let ticks = (number + later(number)) as u64 * micros * 9 / 100;
            let timestamp = first_timestamp.wrapping_add(ticks as u32);
            let header = bench.header(start.wrapping_add(number as u16), timestamp, true);
            bench.send(&header);
        }
        bench.finish();
        let arrivals: Vec<i64> = arrivals.into_iter().map(|(_, number)| number).collect();
        let mut expected = naive(&arrivals, None);
        let [e, r, d, o, late, malformed, restarts] = bench.counts();
        let bursts = spread(bench.values(m::LOSS_BURST_LENGTH));
        prop_assert_eq!(bursts.len() as u64, bench.count(m::LOSS_BURSTS));
        let mut distances = spread(bench.values(m::REORDER_DISTANCE));
        // The histogram keeps three digits.
        for (ours, theirs) in [(&bursts, &mut expected.bursts), (&distances, &mut expected.distances)] {
            prop_assert_eq!(ours.len(), theirs.len());
            for (ours, theirs) in ours.iter().zip(theirs) {
                prop_assert!(ours.abs_diff(*theirs) <= *theirs / 500, "{} for {}", ours, theirs);
                *theirs = *ours;
            }
        }
        distances.sort_unstable();
        prop_assert_eq!(Naive { counts: [e, r, d, o], distances, bursts }, expected);
        prop_assert_eq!([late, malformed, restarts], [0; 3]);
    }

    #[test]
    fn counters_balance_for_arbitrary_packets(
        packets in prop::collection::vec((any::<u16>(), 0u32..3, any::<u32>(), any::<bool>()), 1..400),
        steps in prop::collection::vec(prop_oneof![4 => 1u16..3, 1 => any::<u16>()], 400),
        base: u16, base_at in 0usize..400,
    ) {
        let mut bench = Bench::new();
        let mut sequence = 0u16;
        for (index, &(jump, ssrc, timestamp, marker)) in packets.iter().enumerate() {
            if index == base_at { bench.set_base(base); }
            sequence = if jump < 3000 { jump } else { sequence.wrapping_add(steps[index]) };
            bench.at += Duration::from_micros(u64::from(jump));
            bench.ssrc = SSRC + ssrc / 2;
            let header = bench.header(sequence, timestamp, marker);
            bench.send(&header);
            bench.receiver.report_block(bench.at);
        }
        bench.finish();
        let [expected, received, duplicated, reordered, late, malformed, _] = bench.counts();
        prop_assert!(received <= expected && reordered < received);
        prop_assert_eq!(received + duplicated + late + malformed, packets.len() as u64);
        let bursts: u64 = spread(bench.values(m::LOSS_BURST_LENGTH)).iter().sum();
        // The histogram keeps three digits.
        let lost = expected - received;
        prop_assert!(bursts.abs_diff(lost) <= lost / 500, "{} {}", bursts, lost);
    }
}

#[test]
fn wrap_around_loses_nothing() {
    let mut bench = Bench::new();
    bench.packets([65_534, 65_535, 1, 0, 2]);
    assert_eq!(bench.counts(), [5, 5, 0, 1, 0, 0, 0]);
    assert_eq!(bench.receiver.highest_sequence(), Some(65_538));
}

#[test]
fn packets_before_the_first_lower_the_base() {
    let mut bench = Bench::new();
    bench.packets([0, 65_534, 65_534, 1]);
    assert_eq!(bench.counts(), [4, 3, 1, 1, 0, 0, 0]);
}

#[test]
fn packets_older_than_the_window_are_late() {
    let mut bench = Bench::new();
    bench.packets([0, 1]);
    bench.packets(3..=2050);
    // 2050 - 2047 is the oldest number in the window.
    bench.packet(3);
    bench.packet(2);
    bench.packet(2051);
    assert_eq!(bench.counts(), [2052, 2051, 1, 0, 1, 0, 0]);
}

#[test]
fn implausible_rtp_info_is_rejected() {
    for (base, first) in [(101, 100), (3100, 100), (100, 3100), (0, 40_000)] {
        for early in [true, false] {
            let mut bench = Bench::new();
            if early {
                bench.set_base(base);
            }
            bench.packet(first);
            if !early {
                bench.set_base(base);
            }
            assert_eq!(bench.counts()[0], 1, "{base} {first}");
            assert_eq!(bench.count(m::RTP_INFO_MISMATCH), 1, "{base} {first}");
        }
    }
    // Refuted later: the mismatch counts once.
    let mut bench = Bench::new();
    bench.set_base(10);
    bench.packets([10, 11, 9, 8]);
    assert_eq!(bench.counts(), [4, 4, 0, 2, 0, 0, 0]);
    assert_eq!(bench.count(m::RTP_INFO_MISMATCH), 1);
}

#[test]
fn cost_per_packet_is_bounded_despite_large_gaps() {
    for stride in [2, 65, 500, 2047, 2048, 2049, 2999] {
        let mut bench = Bench::new();
        let packets = 5000u16;
        let steps = crate::mediagen::steps::of(|| {
            bench.packets((0..packets).map(|number| number.wrapping_mul(stride)));
        });
        // The words of the window, and each number in the words that are not skipped as a whole.
        let bound = u64::from(packets) * (32 + 3 * 64);
        assert!(steps < bound, "{steps} steps for leaving out {stride}");
        bench.finish();
        let expected = 1 + u64::from(packets - 1) * u64::from(stride);
        assert_eq!(bench.counts()[..2], [expected, packets.into()]);
        assert_eq!(
            bench
                .values(m::LOSS_BURST_LENGTH)
                .iter()
                .map(|v| v.1)
                .sum::<u64>(),
            u64::from(packets - 1)
        );
    }
}

#[test]
fn late_rtp_info_counts_the_loss_before_the_first() {
    let mut bench = Bench::new();
    bench.packets(500..3000);
    bench.set_base(400);
    bench.finish();
    assert_eq!(bench.counts()[..2], [2600, 2500]);
    assert_eq!(bench.values(m::LOSS_BURST_LENGTH), [(100, 1)]);

    // Some of the numbers in between have already left the window.
    let mut bench = Bench::new();
    bench.packets(500..2500);
    bench.set_base(400);
    bench.packets(2500..2600);
    bench.finish();
    assert_eq!(bench.values(m::LOSS_BURST_LENGTH), [(100, 1)]);
}

#[test]
fn sequence_jump_restarts_the_stream() {
    let mut bench = Bench::new();
    bench.packets([1, 2, 4]);
    assert_eq!(bench.packet(20_000), None);
    assert_eq!(bench.counts(), [4, 3, 0, 0, 0, 0, 0]);
    assert_eq!(bench.packet(20_001), None);
    bench.packet(20_003);
    bench.finish();
    assert_eq!(bench.counts(), [8, 6, 0, 0, 0, 0, 1]);
    assert_eq!(bench.values(m::LOSS_BURST_LENGTH), [(1, 2)]);
}

#[test]
fn a_new_source_needs_two_packets() {
    let mut bench = Bench::new();
    bench.packets([1, 2]);
    bench.ssrc = 7;
    bench.packet(3);
    bench.ssrc = SSRC;
    bench.packet(3);
    assert_eq!(bench.counts(), [3, 3, 0, 0, 0, 1, 0]);
    assert_eq!(bench.receiver.ssrc(), Some(SSRC));
    // Duplicated and reordered during the change.
    bench.ssrc = 7;
    assert_eq!(bench.packet(101), None);
    assert_eq!(bench.packet(101), None);
    let changed = bench.packet(100);
    assert_eq!(changed, Some(MediaEvent::SourceChanged { ssrc: 7 }));
    bench.packet(102);
    assert_eq!(bench.counts(), [6, 6, 1, 1, 0, 1, 1]);
    assert_eq!(bench.receiver.ssrc(), Some(7));
}

#[test]
fn stray_is_malformed_if_ahead_and_late_if_behind() {
    let mut bench = Bench::new();
    bench.packets([10_000, 30_000, 10_001, 5000, 10_002, 40_000]);
    assert_eq!(bench.counts(), [3, 3, 0, 0, 1, 1, 0]);
    bench.finish();
    assert_eq!(bench.counts(), [3, 3, 0, 0, 1, 2, 0]);
}

#[test]
fn packets_foreign_to_the_stream_are_malformed() {
    let mut bench = Bench::new();
    assert_eq!(bench.raw(&[]), None);
    assert_eq!(bench.raw(&[0x80; 11]), None);
    assert_eq!(bench.raw(&[0x00; 40]), None);
    let other = Header::new(97, 1, 1, SSRC);
    assert_eq!(bench.send(&other), None);
    assert_eq!(bench.counts()[5], 4);
    assert_eq!(bench.receiver.first_arrival(), None);

    // Every payload type is accepted if none was announced, except misdirected RTCP.
    let mut bench = Bench::with(&ReceiverConfig {
        clock_rate: 8000,
        payload_types: vec![],
        playout_buffer: Duration::ZERO,
    });
    for kind in 0..128 {
        bench.send(&Header::new(kind, u16::from(kind), 0, SSRC));
    }
    let [_, received, .., malformed, _] = bench.counts();
    assert_eq!((received, malformed), (123, 5));
}

#[test]
fn arrivals_and_longest_gap_are_measured() {
    let mut bench = Bench::new();
    let start = bench.at;
    assert_eq!(bench.packet(1), Some(MediaEvent::First { at: start }));
    bench.at += Duration::from_millis(70);
    assert_eq!(bench.packet(2), None);
    bench.at += Duration::from_millis(30);
    bench.packet(2);
    assert_eq!(bench.receiver.first_arrival(), Some(start));
    assert_eq!(bench.receiver.last_arrival(), Some(bench.at));
    bench.finish();
    bench.finish();
    let gaps = bench.recorder.histogram(m::LONGEST_GAP).unwrap();
    assert_eq!((gaps.count(), gaps.max()), (1, Some(70_000_000)));
}

/// RFC 3550, A.8, verbatim, over all packets in order of arrival.
fn textbook_jitter(packets: &[(Time, u32)], clock: f64) -> f64 {
    let mut jitter = 0.0;
    for pair in packets.windows(2) {
        let transit =
            |(at, timestamp): (Time, u32)| at.as_secs_f64() * clock - f64::from(timestamp);
        let mut d = transit(pair[1]) - transit(pair[0]);
        // The difference of timestamps wraps around.
        d -= (d / 4_294_967_296.0).round() * 4_294_967_296.0;
        jitter += (d.abs() - jitter) / 16.0;
    }
    jitter / clock
}

proptest! {
    #[test]
    fn jitter_matches_rfc_3550(
        delays in prop::collection::vec(0u64..40_000, 2..200), start: u32, twice in 0usize..200,
    ) {
        let mut bench = Bench::new();
        let begin = bench.at;
        let mut packets = Vec::new();
        for (number, &delay) in delays.iter().enumerate() {
            let sent = number as u64 * 20_000;
            bench.at = begin + Duration::from_micros(sent + delay);
            let timestamp = start.wrapping_add(number as u32 * 1800);
            let header = bench.header(number as u16, timestamp, true);
            for _ in 0..if number == twice { 2 } else { 1 } {
                bench.send(&header);
                packets.push((bench.at, timestamp));
            }
        }
        let expected = textbook_jitter(&packets, 90_000.0);
        let ours = bench.receiver.jitter().as_secs_f64();
        prop_assert!((ours - expected).abs() < 1e-8, "{} {}", ours, expected);
        let recorded = bench.recorder.histogram(m::JITTER).unwrap();
        prop_assert_eq!(recorded.count(), packets.len() as u64 - 1);
        let mean = bench.receiver.mean_jitter().unwrap().as_nanos() as f64;
        prop_assert!((mean - recorded.mean().unwrap()).abs() <= 1.0);
        let sides = [m::EARLY, m::LATENESS].map(|side| bench.recorder.histogram(side).map_or(0, |h| h.count()));
        prop_assert_eq!(sides[0] + sides[1], packets.len() as u64 - 1);
        let block = bench.receiver.report_block(bench.at);
        // `ours` is rounded to a nanosecond, the report to units of the clock, downwards.
        let units = [-0.5e-9, 0.5e-9].map(|rounding| ((ours + rounding) * 90_000.0) as u32);
        prop_assert!(units.contains(&block.jitter), "{} {:?}", block.jitter, units);
    }
}

/// Sends frames of two packets each, 40 ms apart, each delayed by `late` milliseconds, and omits
/// the packets in `without`.
fn film(late: &[u64], without: &[u16]) -> Bench {
    let mut bench = Bench::new();
    let begin = bench.at;
    for (frame, &late) in late.iter().enumerate() {
        bench.at = begin + Duration::from_millis(frame as u64 * 40 + late);
        for half in 0..2 {
            let sequence = (frame * 2 + half) as u16;
            let header = bench.header(sequence, frame as u32 * 3600, half == 1);
            if !without.contains(&sequence) {
                bench.send(&header);
            }
        }
    }
    bench.finish();
    bench
}

#[test]
fn playout_buffer_covers_the_latest_frame() {
    let bench = film(&[5, 0, 25, 0, 12, 30, 0], &[]);
    let needed = bench.receiver.playout_buffer().unwrap();
    assert_eq!(needed, Duration::from_millis(25));
    let recorded = bench.recorder.histogram(m::PLAYOUT_BUFFER).unwrap();
    assert_eq!((recorded.count(), recorded.max()), (1, Some(25_000_000)));
    assert_eq!(bench.receiver.frames(), (7, 0, 0));
}

#[test]
fn playback_stalls_when_the_buffer_runs_dry() {
    // 150 ms late with a buffer of 100 ms: playback stalls for 50 ms, and then has 150 ms in
    // reserve.
    let bench = film(&[0, 0, 150, 140, 0, 0, 170, 0], &[]);
    assert_eq!(bench.receiver.frames(), (8, 0, 2));
    assert_eq!(bench.count(m::STALLS), 2);
    let stalls = bench.recorder.histogram(m::STALL_TIME).unwrap();
    assert_eq!(
        (stalls.max(), stalls.min()),
        (Some(50_000_000), Some(20_000_000))
    );
}

#[test]
fn missing_packets_break_their_frames() {
    // The sequence number does not tell which frame a missing packet belongs to. A frame with the
    // marker bit is complete, so the packet began the next one. Without the marker bit, it was the
    // last packet of that frame.
    let whole = film(&[0; 20], &[]);
    assert_eq!(whole.receiver.frames(), (20, 0, 0));
    assert_eq!(film(&[0; 20], &[9]).receiver.frames(), (19, 1, 0));
    assert_eq!(film(&[0; 20], &[8]).receiver.frames(), (19, 1, 0));
    // A frame of which no packet arrived is not noticed.
    assert_eq!(film(&[0; 20], &[8, 9]).receiver.frames(), (18, 1, 0));
    // Truncated by the end of the stream: neither complete nor broken.
    assert_eq!(film(&[0; 20], &[39]).receiver.frames(), (19, 0, 0));
}

#[test]
fn frames_without_a_marker_end_at_the_next() {
    let mut bench = Bench::new();
    for sequence in 0..30u16 {
        let header = bench.header(sequence, u32::from(sequence) * 160, false);
        if sequence != 12 {
            bench.send(&header);
        }
    }
    bench.finish();
    // The two frames next to the missing packet may be incomplete.
    assert_eq!(bench.receiver.frames(), (27, 2, 0));
}

#[test]
fn frames_sent_out_of_display_order_play_in_time() {
    // I P B B: the timestamps are 0, 3, 1, 2, and every packet arrives when it is sent.
    let mut bench = Bench::new();
    let begin = bench.at;
    for group in 0..10u16 {
        for (index, shown) in [0u16, 3, 1, 2].into_iter().enumerate() {
            let number = group * 4 + index as u16;
            bench.at = begin + Duration::from_millis(u64::from(number) * 40);
            let timestamp = u32::MAX.wrapping_add(u32::from(group * 4 + shown) * 3600);
            let header = bench.header(number, timestamp, true);
            bench.send(&header);
        }
    }
    bench.finish();
    assert_eq!(bench.receiver.frames(), (40, 0, 0));
    let needed = bench.receiver.playout_buffer();
    assert_eq!(needed, Some(Duration::from_millis(40)));
}

#[test]
fn reordered_packets_find_their_frames() {
    let mut bench = Bench::new();
    let mut sequences: Vec<u16> = (0..200).collect();
    for chunk in sequences.chunks_mut(5) {
        chunk.reverse();
    }
    for sequence in sequences {
        let header = bench.header(sequence, u32::from(sequence / 4) * 3600, sequence % 4 == 3);
        bench.send(&header);
    }
    bench.finish();
    assert_eq!(bench.receiver.frames(), (50, 0, 0));
}

fn report(packet_count: u32) -> SenderInfo {
    SenderInfo {
        ssrc: SSRC,
        ntp_time: 0x1111_2222_3333_4444,
        packet_count,
        ..SenderInfo::default()
    }
}

impl Bench {
    fn report(&mut self, packet_count: u32) {
        let (at, recorder) = (self.at, &mut self.recorder);
        self.receiver
            .sender_report(&report(packet_count), at, recorder);
    }
}

#[test]
fn lost_tail_is_known_from_the_final_report() {
    let mut bench = Bench::new();
    bench.report(0);
    bench.packets(0..90);
    bench.report(100);
    assert_eq!(bench.count(m::SENDER_REPORTS), 2);
    // Without BYE, more packets may be in flight.
    bench.receiver.source_ended(SSRC + 1);
    assert_eq!(bench.receiver.counts().lost_tail, None);
    bench.packets(92..95);
    bench.receiver.source_ended(SSRC);
    bench.finish();
    assert_eq!(bench.receiver.counts().lost_tail, Some(5));
    assert_eq!(bench.count(m::LOST_TAIL), 5);
    assert_eq!(bench.counts()[..2], [95, 93]);
}

#[test]
fn lost_tail_is_unknown_without_comparable_report() {
    // The server sent the stream to other clients before us.
    let mut bench = Bench::new();
    bench.packets(0..90);
    bench.report(5090);
    bench.packets(90..100);
    bench.report(5100);
    bench.receiver.source_ended(SSRC);
    bench.finish();
    assert_eq!(bench.receiver.counts().lost_tail, None);

    // The source is the same with a new base after a jump, or another one.
    for ssrc in [SSRC, 9] {
        let mut bench = Bench::new();
        bench.report(0);
        bench.packets(0..90);
        bench.ssrc = ssrc;
        bench.packets(20_000..20_050);
        bench.report(140);
        bench.receiver.source_ended(ssrc);
        bench.finish();
        assert_eq!(bench.receiver.counts().lost_tail, None, "{ssrc}");
    }

    // The end was not seen.
    let mut bench = Bench::new();
    bench.report(0);
    bench.packets(0..90);
    bench.report(100);
    bench.finish();
    assert_eq!(bench.receiver.counts().lost_tail, None);
}

#[test]
fn report_blocks_reflect_received_packets() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.receiver.report_block(bench.at),
        ReportBlock::default()
    );
    bench.packets((65_530..=65_535).chain([0, 1, 3, 5]));
    bench.report(12);
    let block = bench
        .receiver
        .report_block(bench.at + Duration::from_millis(1500));
    assert_eq!(block.ssrc, SSRC);
    assert_eq!(block.fraction_lost, (2 * 256 / 12) as u8);
    assert_eq!(block.cumulative_lost, 2);
    assert_eq!(block.extended_highest, 65_536 + 5);
    assert_eq!(block.last_sr, 0x2222_3333);
    assert_eq!(block.delay_since_last_sr, 98_304);
    // Then duplicates: more packets arrived than expected.
    bench.packets([5, 5, 5]);
    let block = bench.receiver.report_block(bench.at);
    assert_eq!((block.fraction_lost, block.cumulative_lost), (0, 0));
}

#[test]
fn receiver_takes_at_most_1_kib() {
    assert!(
        size_of::<RtpReceiver>() <= 1024,
        "{}",
        size_of::<RtpReceiver>()
    );
}

//! Round trips of the codec, and both sides of each kind of feedback against each other.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use measure::Time;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use kit::media::rtcp::{RtcpError, write_receiver_report};
use session::PacketHeader;

fn read(compound: &[u8]) -> Vec<Message> {
    let all: Result<Vec<Message>, RtcpError> = messages(compound).collect();
    all.expect("it was written")
}

fn at(micros: u64) -> Time {
    Time::from_nanos(1_000_000_000 + micros * 1000)
}

#[test]
fn feedback_has_the_standard_wire_format() {
    let mut out = Vec::new();
    write_nack(&mut out, 1, 2, &[65_535, 0, 15, 16]);
    // 0 and 15 are 1 and 16 after the first; 16 begins the next entry.
    assert_eq!(
        out,
        [
            0x81, 205, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xff, 0x80, 0x01, 0, 16, 0, 0
        ]
    );
    out.clear();
    write_pli(&mut out, 1, 2);
    assert_eq!(out, [0x81, 206, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
    out.clear();
    write_fir(&mut out, 1, 2, 3);
    assert_eq!(
        out,
        [
            0x84, 206, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0
        ]
    );
    out.clear();
    write_remb(&mut out, 1, 1 << 20, &[2]);
    let bitrate = [1, 3 << 2 | 2, 0, 0];
    let head = [0x8f, 206, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(out, [&head[..], b"REMB", &bitrate, &[0, 0, 0, 2]].concat());
    out.clear();
    write_nack(&mut out, 1, 2, &[]);
    assert!(out.is_empty());
}

/// One chunk of each type: a run, a one-bit vector and a two-bit vector.
#[test]
fn arrivals_parse_from_every_chunk_type() {
    let body = [
        0x8f,
        205,
        0,
        8,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        2,
        0,
        10,
        0,
        21,
        0xff,
        0xff,
        0xfe,
        7, // head
        0x20,
        0x03, // run: three received
        0b1010_0000,
        0b0000_0001, // one-bit vector: first and last of fourteen
        0b1100_0110,
        0b0000_0000, // two-bit vector, four of seven used: one small, one large delta
        1,
        2,
        3,
        4,
        5,
        0xff,
        0xfe,
        6,
        0,
        0,
    ];
    let messages = read(&body[..36]);
    let none = [None; 12];
    let expected = [
        &[Some(1), Some(2), Some(3), Some(4)][..],
        &none,
        &[Some(5), None, Some(6), Some(-2)],
    ];
    let [Message::TransportCc(message)] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert_eq!(
        (
            message.base_sequence,
            message.reference_time,
            message.feedback_count
        ),
        (10, -2, 7)
    );
    assert_eq!(message.receive_deltas.len(), 21);
    assert_eq!(message.receive_deltas[..4], expected[0][..]);
    assert_eq!(message.receive_deltas[16], Some(5));
}

fn any_message() -> impl Strategy<Value = Message> {
    let ids = || (any::<u32>(), any::<u32>());
    let delta = prop_oneof![
        4 => (0i16..256).prop_map(Some),
        3 => Just(None),
        1 => any::<i16>().prop_map(Some),
    ];
    let runs = prop::collection::vec((delta, prop_oneof![Just(1usize), 1usize..40]), 1..60);
    prop_oneof![
        (ids(), prop::collection::btree_set(any::<u16>(), 1..200)).prop_map(
            |((sender, media), missing)| Message::Nack {
                sender,
                media,
                missing: missing.into_iter().collect(),
            }
        ),
        ids().prop_map(|(sender, media)| Message::PictureLoss { sender, media }),
        (ids(), any::<u8>()).prop_map(|((sender, media), number)| Message::FullIntra {
            sender,
            requests: vec![(media, number)],
        }),
        (
            any::<u32>(),
            0u32..46,
            0u64..1 << 18,
            prop::collection::vec(any::<u32>(), 0..5)
        )
            .prop_map(|(sender, exponent, mantissa, sources)| Message::Remb {
                sender,
                bitrate: mantissa << exponent,
                sources,
            }),
        (
            ids(),
            any::<u16>(),
            -0x80_0000i32..0x80_0000,
            any::<u8>(),
            runs
        )
            .prop_map(|((sender, media), base, reference, number, runs)| {
                let arrivals = runs.into_iter();
                let arrivals = arrivals.flat_map(|(delta, run)| std::iter::repeat_n(delta, run));
                Message::TransportCc(TransportCc {
                    sender,
                    media,
                    base_sequence: base,
                    reference_time: reference,
                    feedback_count: number,
                    receive_deltas: arrivals.collect(),
                })
            }),
    ]
}

fn write(out: &mut Vec<u8>, message: &Message) {
    match message {
        Message::Nack {
            sender,
            media,
            missing,
        } => write_nack(out, *sender, *media, missing),
        Message::PictureLoss { sender, media } => write_pli(out, *sender, *media),
        Message::FullIntra { sender, requests } => {
            write_fir(out, *sender, requests[0].0, requests[0].1);
        }
        Message::Remb {
            sender,
            bitrate,
            sources,
        } => write_remb(out, *sender, *bitrate, sources),
        Message::TransportCc(message) => message.write(out),
    }
}

proptest! {
    #[test]
    fn written_feedback_parses_back(written in prop::collection::vec(any_message(), 0..5)) {
        let mut compound = Vec::new();
        write_receiver_report(&mut compound, 5, &[]);
        for message in &written {
            write(&mut compound, message);
        }
        prop_assert_eq!(compound.len() % 4, 0);
        prop_assert_eq!(read(&compound), written.clone());
        let cut = compound.len() - 2;
        let last = messages(&compound[..cut]).last();
        prop_assert!(matches!(last, Some(Err(RtcpError::Truncated))), "{:?}", last);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200), format in 0u8..32, payload: bool,
    ) {
        let mut bytes = bytes;
        bytes.resize(bytes.len().next_multiple_of(4).max(12), 0);
        let words = (bytes.len() / 4 - 1) as u16;
        bytes[..2].copy_from_slice(&[0x80 | format, if payload { 206 } else { 205 }]);
        bytes[2..4].copy_from_slice(&words.to_be_bytes());
        for message in messages(&bytes).flatten() {
            if let Message::TransportCc(message) = message {
                prop_assert!(message.receive_deltas.len() <= 65_535);
            }
        }
    }
}

/// Over a lossy and reordering network, missing packets are requested and retransmitted in the
/// retransmission stream until all have arrived.
#[test]
fn lost_packets_are_requested_and_retransmitted() {
    for seed in 0..200 {
        let mut random = Pcg64::seed_from_u64(seed);
        let (loss_rate, first) = (0.3 * (seed % 8) as f64 / 8.0, random.random::<u16>());
        let mut history = SendHistory::new(512);
        let mut missing = NackTracker::new(Duration::from_millis(seed % 3));
        let mut stream = RtxStream {
            ssrc: 8,
            payload_type: 97,
            next_sequence: 65_530,
        };
        let round_trip = Duration::from_millis(20);
        missing.set_round_trip(round_trip);
        history.set_round_trip(round_trip);
        let mut arrived_numbers = std::collections::BTreeSet::new();
        let mut in_flight: Vec<(Time, u16)> = Vec::new();
        for step in 0..2000u32 {
            let now = at(u64::from(step) * 2000);
            let sequence = first.wrapping_add(step as u16);
            // The last packets always arrive, so that gaps before them are detected.
            if step < 1500 {
                let header = PacketHeader::EMPTY
                    .append(&[0x80, 0x80 | 96])
                    .append(&sequence.to_be_bytes())
                    .append(&[0, 0, 0, 9, 0, 0, 0, 7]);
                history.store(sequence, header, Bytes::from(step.to_be_bytes().to_vec()));
                if step > 1490 || step == 0 || !random.random_bool(loss_rate) {
                    let late = Duration::from_micros(random.random_range(0..5000));
                    in_flight.push((now + late, sequence));
                }
            }
            let mut requested = Vec::new();
            if missing.next_due().is_some_and(|due| due <= now) {
                missing.take_requests(now, &mut requested);
            }
            let mut compound = Vec::new();
            write_nack(&mut compound, 1, 7, &requested);
            let feedback = read(&compound);
            if let [Message::Nack { missing, .. }] = &feedback[..] {
                assert_eq!(*missing, requested);
                for sequence in missing {
                    let Some(sent) = history.retransmit(*sequence, now) else {
                        continue;
                    };
                    let mut payload = BytesMut::new();
                    let header = stream.wrap(&sent.header, &sent.payload, &mut payload);
                    let header = header.expect("it is RTP");
                    assert_eq!(header[..2], [0x80, 0x80 | 97]);
                    assert_eq!(header[8..12], 8u32.to_be_bytes());
                    let (original, rest) = parse_rtx(&payload).expect("it carries one");
                    assert_eq!((original, rest), (*sequence, &sent.payload[..]));
                    if !random.random_bool(loss_rate) {
                        in_flight.push((now + round_trip, original));
                    }
                }
            }
            in_flight.sort();
            let arrived = in_flight.partition_point(|(at, _)| *at <= now);
            for (at, sequence) in in_flight.drain(..arrived) {
                missing.record_arrival(sequence, at);
                arrived_numbers.insert(sequence);
            }
        }
        // All within ten requests each, except one in a hundred thousand.
        assert!(
            arrived_numbers.len() >= 1499,
            "case {seed}: {}",
            arrived_numbers.len()
        );
        let counts = missing.counts();
        let found = counts.recovered + counts.reordered + counts.given_up;
        assert_eq!(counts.missing, found, "case {seed}: {counts:?}");
        let answered = history.counts();
        assert_eq!(
            answered.requested,
            answered.retransmitted + answered.too_soon + answered.unknown
        );
        assert_eq!(answered.requested, counts.requested);
    }
}

#[test]
fn restarted_source_gets_nacks_for_new_gaps() {
    let mut missing = NackTracker::new(Duration::ZERO);
    let mut requested = Vec::new();
    for sequence in [40_000, 40_001, 40_003] {
        missing.record_arrival(sequence, at(0));
    }
    // A single packet may be a straggler, and so may two that are not consecutive.
    for sequence in [30_000, 20_000, 25_000, 40_004, 25_001, 40_005] {
        missing.record_arrival(sequence, at(1));
    }
    missing.take_requests(at(2), &mut requested);
    assert_eq!(requested, [40_002]);
    for sequence in [20_100, 20_101, 20_103] {
        missing.record_arrival(sequence, at(3));
    }
    requested.clear();
    missing.take_requests(at(500), &mut requested);
    assert_eq!(requested, [20_102]);
    assert_eq!(missing.counts().given_up, 1);
    // Two consecutive stragglers do not mean a restart while newer packets keep arriving.
    missing.record_arrival(20_104, at(600));
    let before = missing.counts();
    for sequence in [5_000, 20_105, 5_001, 20_106] {
        missing.record_arrival(sequence, at(601));
    }
    assert_eq!(missing.counts().missing, before.missing);
}

#[test]
fn receiver_and_sender_state_is_bounded() {
    let mut missing = NackTracker::new(Duration::ZERO);
    let mut arrivals = Arrivals::default();
    let mut random = Pcg64::seed_from_u64(1);
    for step in 0..20_000u64 {
        let sequence = random.random::<u16>();
        missing.record_arrival(sequence, at(step));
        arrivals.record_arrival(sequence, at(step));
    }
    let mut requested = Vec::new();
    missing.take_requests(at(30_000), &mut requested);
    assert!(requested.len() <= 1000, "{}", requested.len());
    assert!(missing.take_key_frame_needed() && !missing.take_key_frame_needed());
    let mut out = Vec::new();
    assert!(arrivals.write(1, 2, &mut out));
    assert!(out.len() < 8000, "{}", out.len());
    // After ten requests a packet is given up.
    for turn in 0..12 {
        requested.clear();
        missing.take_requests(at(1_000_000 * (turn + 1)), &mut requested);
    }
    assert!(requested.is_empty() && missing.next_due().is_none());
    let mut history = SendHistory::new(100);
    for sequence in 0..=u16::MAX {
        history.store(sequence, PacketHeader::EMPTY, Bytes::new());
    }
    let later = at(1_000_000);
    let kept = (0..=u16::MAX).filter(|sequence| history.retransmit(*sequence, later).is_some());
    assert_eq!(kept.count(), 128);
}

/// Overtaken packets are reported once each, whenever they arrive.
#[test]
fn overtaken_packets_are_reported_once() {
    for seed in 0..200u64 {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut arrivals = Arrivals::default();
        let first = random.random::<u16>();
        let mut order: Vec<(u32, u16)> = (0..1000u16)
            .map(|step| {
                let late = random.random_bool(0.05);
                let by = if late { random.random_range(0..300) } else { 0 };
                (u32::from(step) + by, first.wrapping_add(step))
            })
            .collect();
        order.sort_unstable();
        let mut reported = Vec::new();
        for (step, &(_, number)) in order.iter().enumerate() {
            arrivals.record_arrival(number, at(step as u64));
            // A duplicate is reported once.
            if random.random_bool(0.05) {
                arrivals.record_arrival(number, at(step as u64));
            }
            if random.random_bool(0.05) || step + 1 == order.len() {
                let mut out = Vec::new();
                while arrivals.write(1, 2, &mut out) {}
                for message in read(&out) {
                    let Message::TransportCc(message) = message else {
                        panic!("{message:?}");
                    };
                    let received = (0u16..).zip(message.receive_deltas);
                    let received = received.filter(|(_, arrival)| arrival.is_some());
                    reported.extend(
                        received.map(|(place, _)| message.base_sequence.wrapping_add(place)),
                    );
                }
            }
        }
        assert_eq!(arrivals.counts().reported, 1000, "case {seed}");
        reported.sort_unstable_by_key(|number| number.wrapping_sub(first));
        let all = (0..1000u16).map(|step| first.wrapping_add(step));
        assert!(reported.into_iter().eq(all), "case {seed}");
    }
}

/// Reported arrivals match the real ones to 250 µs, and each packet is reported once.
#[test]
fn reported_arrivals_match_real_ones() {
    for seed in 0..200u64 {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut arrivals = Arrivals::default();
        let mut number = random.random::<u16>();
        let mut now = random.random_range(0..4_000_000_000u64);
        let (mut truth, mut reported) = (Vec::new(), Vec::new());
        let mut expected = 0;
        for _ in 0..1000 {
            now += match random.random_range(0..100) {
                0 => 9_000_000,
                1..10 => random.random_range(0..200_000),
                _ => random.random_range(0..900),
            };
            number = number.wrapping_add(if random.random_bool(0.1) { 3 } else { 1 });
            arrivals.record_arrival(number, at(now));
            truth.push((number, at(now)));
            if random.random_bool(0.05) {
                let mut out = Vec::new();
                while arrivals.write(1, 2, &mut out) {}
                for message in read(&out) {
                    let Message::TransportCc(message) = message else {
                        panic!("{message:?}");
                    };
                    assert_eq!(message.feedback_count, expected);
                    expected = expected.wrapping_add(1);
                    let mut ticks = i64::from(message.reference_time) * 256;
                    let mut packet_number = message.base_sequence;
                    for arrival in message.receive_deltas {
                        if let Some(delta) = arrival {
                            ticks += i64::from(delta);
                            reported.push((packet_number, ticks));
                        }
                        packet_number = packet_number.wrapping_add(1);
                    }
                }
            }
        }
        assert!(
            reported.len() >= 500 && arrivals.counts().unreported == 0,
            "case {seed}"
        );
        for ((number, at), (reported_number, ticks)) in truth.iter().zip(&reported) {
            assert_eq!(number, reported_number);
            let nanos = (at.as_nanos() / 250_000) as i64;
            // The reference time has 24 bits of 64 ms.
            let turn = (1 << 24) * 256;
            assert_eq!(
                nanos.rem_euclid(turn),
                ticks.rem_euclid(turn),
                "case {seed}"
            );
        }
    }
}

use std::collections::HashMap;

use proptest::prelude::*;

mod files;
mod programmes;

use super::*;
use crate::mediagen::ts::looped_stream::PACKETS_PER_DATAGRAM;
use crate::mediagen::ts::packet::PACKET_LEN;
use crate::mediagen::ts::packet::{Header, NULL_PID, PAT_PID, PCR_HZ, PCR_WRAP};
use crate::mediagen::ts::stamp::STAMP_PID;
use crate::mediagen::ts::stamp::Stamp;

const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

pub(crate) fn settings(looped: &Arc<LoopedStream>) -> TsFlowSettings {
    TsFlowSettings {
        looped: looped.clone(),
        group: "239.81.0.1:4056".parse().expect("an address"),
        source: 7,
        rtp: None,
        wall_clock: WALL_CLOCK,
        length: None,
    }
}

/// All datagrams that a flow sends within a time: due time and bytes of each.
pub(crate) fn all_of(settings: TsFlowSettings, seconds: u64) -> Vec<(Time, Vec<u8>)> {
    let mut flow = TsFlow::new(settings);
    let start = Time::from_nanos(5);
    flow.start(start);
    let mut sent = Vec::new();
    while let Some(due) = flow.next_due()
        && due < start + Duration::from_secs(seconds)
    {
        assert!(
            flow.next_packet(Time::from_nanos(due.as_nanos() - 1))
                .is_none()
        );
        let packet = flow.next_packet(due).expect("it is due");
        assert_eq!(packet.due, due);
        let mut bytes = packet.header.to_vec();
        bytes.extend_from_slice(&packet.payload);
        flow.packet_sent(Tag(0), Some(Handover::at(due)));
        sent.push((due, bytes));
    }
    assert_eq!(flow.statistics().sent, sent.len() as u64);
    sent
}

/// Asserts what holds for every stream: constant bit rate, stamps, continuity, clock. Returns the
/// number of packets of each PID.
pub(crate) fn check(rate: u64, clock_pid: u16, sent: &[(Time, Vec<u8>)]) -> HashMap<u16, u64> {
    let (mut pids, mut continuity) = (HashMap::new(), HashMap::<u16, u8>::new());
    let (mut first_clock, mut last_clock) = (None, None);
    let mut tables = Vec::new();
    for (number, (due, bytes)) in (0u64..).zip(sent) {
        let wanted = u128::from(number) * u128::from(DATAGRAM_BITS) * 1_000_000_000;
        let wanted = 5 + (wanted / u128::from(rate)) as u64;
        assert_eq!(due.as_nanos(), wanted, "datagram {number}");
        let packets = bytes.as_chunks::<PACKET_LEN>().0;
        assert_eq!(packets.len(), PACKETS_PER_DATAGRAM);
        for (index, packet) in (0u64..).zip(packets) {
            let header = Header::parse(packet).expect("a packet");
            *pids.entry(header.pid).or_insert(0) += 1;
            let last = continuity.insert(header.pid, header.continuity);
            if header.pid != NULL_PID
                && let Some(last) = last
            {
                let wanted = (last + u8::from(header.has_payload)) & 0x0f;
                assert_eq!(header.continuity, wanted, "PID {} in {number}", header.pid);
            }
            assert_eq!(index == 0, header.pid == STAMP_PID);
            let stamp = Stamp::read(packet);
            assert_eq!(stamp.is_some(), index == 0);
            if let Some(stamp) = stamp {
                let due = WALL_CLOCK.as_nanos() as u64 + due.as_nanos();
                assert_eq!((stamp.number, stamp.due), (number, due));
                assert_eq!(stamp.check, crc32fast::hash(&bytes[PACKET_LEN..]));
                assert_eq!(stamp.packets, 7);
            }
            let packet_index = number * 7 + index;
            if header.pid == PAT_PID {
                tables.push(packet_index);
            }
            if header.pid == clock_pid
                && let Some(clock) = header.pcr
            {
                // The position of a packet determines its clock, to within one tick.
                let (first_place, first) = *first_clock.get_or_insert((packet_index, clock));
                let passed = u128::from(packet_index - first_place) * 8 * PACKET_LEN as u128;
                let passed = passed * u128::from(PCR_HZ) / u128::from(rate);
                let shown = (clock + PCR_WRAP - first) % PCR_WRAP;
                assert!(passed.abs_diff(shown.into()) <= 1, "{passed} {shown}");
                if let Some(last) = last_clock.replace(clock) {
                    assert!((clock + PCR_WRAP - last) % PCR_WRAP <= PCR_HZ / 25);
                }
            }
        }
    }
    assert!(first_clock.is_some());
    let apart = PCR_HZ / 10 * rate / PCR_HZ / (8 * PACKET_LEN as u64);
    assert!(
        tables.windows(2).all(|two| two[1] - two[0] <= apart),
        "{tables:?}"
    );
    pids
}

#[test]
fn generated_streams_meet_the_standard() {
    for rate in [1_000_000, 4_000_000, 40_000_000] {
        let looped = Arc::new(LoopedStream::synthetic(rate).expect("a possible rate"));
        let sent = all_of(settings(&looped), 7);
        let pids = check(rate, 0x100, &sent);
        let all: u64 = pids.values().sum();
        assert_eq!(all, 7 * sent.len() as u64);
        assert!(pids[&0x100] > 7 * 25, "{pids:?}");
        let nothing = pids.get(&NULL_PID).copied().unwrap_or(0);
        assert!(rate > 4_000_000 || nothing < all / 3, "{pids:?}");
        assert_eq!(pids.len(), 5, "{pids:?}");
    }
}

#[test]
fn refused_datagrams_are_counted_and_length_is_kept() {
    let looped = Arc::new(LoopedStream::synthetic(1_052_800).expect("a possible rate"));
    let mut flow = TsFlow::new(TsFlowSettings {
        length: Some(Duration::from_secs(1)),
        ..settings(&looped)
    });
    assert_eq!(flow.next_due(), None);
    flow.start(Time::ZERO);
    let late = Time::ZERO + Duration::from_secs(9);
    let mut left = 0;
    while flow.next_packet(late).is_some() {
        left += 1;
        flow.packet_sent(Tag(0), (left % 4 != 0).then_some(Handover::at(late)));
    }
    assert_eq!((left, flow.next_due()), (100, None));
    let sent = flow.statistics();
    assert_eq!((sent.datagrams, sent.sent, sent.refused), (100, 75, 25));
    assert_eq!(sent.bytes, 75 * 1316);
    assert_eq!(sent.url, "udp://239.81.0.1:4056");
    let wall_clock = WALL_CLOCK.as_nanos() as u64;
    assert_eq!(
        sent.from_to_nanos,
        Some((wall_clock, wall_clock + 9_000_000_000))
    );
}

#[test]
fn rtp_header_precedes_the_packets() {
    let looped = Arc::new(LoopedStream::synthetic(2_000_000).expect("a possible rate"));
    let rtp = RtpStart {
        ssrc: 0x0102_0304,
        sequence: 65_535,
        timestamp: u32::MAX - 100,
    };
    let sent = all_of(
        TsFlowSettings {
            rtp: Some(rtp),
            ..settings(&looped)
        },
        1,
    );
    for (number, (_, bytes)) in (0u64..).zip(&sent) {
        assert_eq!(bytes.len(), 12 + DATAGRAM);
        assert_eq!(bytes[..2], [0x80, 33]);
        assert_eq!(
            bytes[2..4],
            (65_535u16.wrapping_add(number as u16)).to_be_bytes()
        );
        let passed = number * DATAGRAM_BITS * 90_000 / 2_000_000;
        let timestamp = rtp.timestamp.wrapping_add(passed as u32);
        assert_eq!(bytes[4..8], timestamp.to_be_bytes());
        assert_eq!(bytes[8..12], [1, 2, 3, 4]);
    }
    let stripped: Vec<(Time, Vec<u8>)> = sent
        .into_iter()
        .map(|(due, bytes)| (due, bytes[12..].to_vec()))
        .collect();
    check(2_000_000, 0x100, &stripped);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn clock_and_continuity_are_right_at_any_rate(rate in 700_000u64..30_000_000) {
        let looped = Arc::new(LoopedStream::synthetic(rate).expect("a possible rate"));
        check(rate, 0x100, &all_of(settings(&looped), 5));
    }
}

#[test]
fn sending_a_datagram_does_not_allocate() {
    let looped = Arc::new(LoopedStream::synthetic(4_000_000).expect("a possible rate"));
    let mut flow = TsFlow::new(settings(&looped));
    flow.start(Time::ZERO);
    let late = Time::ZERO + Duration::from_secs(60);
    // At any time, a batch of datagrams is in use.
    let mut send = |batches: usize| {
        let mut batch = Vec::with_capacity(64);
        for _ in 0..batches {
            batch.extend((0..64).map_while(|_| flow.next_packet(late)));
            assert_eq!(batch.len(), 64);
            batch.clear();
        }
    };
    send(2);
    let taken = allocation_counter::measure(|| send(100));
    assert!(taken.count_total < 100, "{taken:?}");
}

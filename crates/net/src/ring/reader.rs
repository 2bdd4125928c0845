//! Converts frames to datagrams and segments: parses their headers, splits packets of several
//! datagrams, reassembles fragments, and counts packets that cannot be used.

use std::ops::RangeInclusive;

use measure::Time;

use super::block::Frame;
use super::packet::{Packet, Udp};
use super::port_order::Batch;
use super::reassembly::{AddOutcome, Reassembler};
use super::{
    CapturedDatagram, Counters, PacketHandler, RingPacket, Segment, ShortCapture, WANTED_BYTES,
};
use crate::clock::Clock;

/// Processing of frames, independent of the memory that holds them.
#[derive(Debug)]
pub(super) struct FrameReader {
    ports: RangeInclusive<u16>,
    segments: bool,
    brief: Option<ShortCapture>,
    pub(super) fragments: Reassembler,
    pub(super) counters: Counters,
    /// True once a packet held several datagrams, and the headers of some were not captured.
    pub(super) keep_whole: bool,
    /// Packets being processed.
    batch: Batch,
}

/// Parses arbitrary bytes as the ring would, and checks the results: for fuzzing. The first byte
/// holds flags. If bit 0 is clear, the rest is a block; if it is set, the rest is packets, each
/// after 6 bytes with its length and the kernel's metadata. If bit 1 is set, the ring is for
/// 2048 ports, else for all. If bit 2 is set, little is wanted of most datagrams.
///
/// # Panics
/// If a result is impossible for this input.
#[cfg(any(test, fuzzing))]
pub fn read_any(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let ports = if kind & 2 == 0 {
        1..=u16::MAX
    } else {
        40_000..=42_047
    };
    let brief = (kind & 4 != 0).then_some(ShortCapture {
        unless: 0x3f,
        bytes: 12,
    });
    let mut reader = FrameReader::new(ports, true, brief);
    let clock = Clock::start();
    let mut count = 0;
    let mut check = |arrived: RingPacket<'_>| {
        let datagram = match arrived {
            RingPacket::Datagram(datagram) => datagram,
            RingPacket::Segment(segment) => {
                return assert!(
                    segment.to.port() > 0 && segment.header.length <= u32::MAX as usize
                );
            }
        };
        assert!(datagram.bytes.len() <= datagram.length && datagram.overhead >= 28);
        assert!(datagram.bytes.len() <= bytes.len() && datagram.to.port() > 0);
        count += 1;
    };
    let datagrams = if kind & 1 == 0 {
        reader
            .take_blocks(bytes, bytes.len().max(1), &clock, &mut check)
            .1
    } else {
        let mut rest = bytes;
        std::iter::from_fn(|| {
            let (head, after) = rest.split_first_chunk::<6>()?;
            let [length, kind, segment @ .., more, _] = *head;
            let (packet, after) = after.split_at_checked(length.into())?;
            rest = after;
            let segment = u16::from_be_bytes(segment);
            let frame = Frame {
                packet,
                length: packet.len() + 16 * usize::from(more),
                realtime_nanos: clock.started_at(),
                kind,
                interface: 1,
                segment: (segment > 0).then_some(segment),
            };
            Some(reader.take_frame(&frame, &clock, &mut check))
        })
        .sum()
    };
    assert_eq!(datagrams, count);
}

impl FrameReader {
    pub(super) fn new(
        ports: RangeInclusive<u16>,
        segments: bool,
        brief: Option<ShortCapture>,
    ) -> FrameReader {
        FrameReader {
            ports,
            segments,
            brief,
            fragments: Reassembler::default(),
            counters: Counters::default(),
            keep_whole: false,
            batch: Batch::default(),
        }
    }

    /// Delivers what the blocks in `memory` hold, by port. Returns the number of frames according
    /// to the kernel, and the number of datagrams delivered.
    pub(super) fn take_blocks(
        &mut self,
        memory: &[u8],
        block_bytes: usize,
        clock: &Clock,
        take: &mut impl PacketHandler,
    ) -> (u64, u64) {
        let mut batch = std::mem::take(&mut self.batch);
        let (frames, malformed) = batch.gather(memory, block_bytes, &self.ports, self.brief);
        self.counters.malformed += malformed;
        let mut others = 0;
        let datagrams = batch.hand_over(memory, clock, take, |frame, take| {
            others += self.take_frame(frame, clock, take);
        });
        self.batch = batch;
        (frames, datagrams + others)
    }

    /// Processes one frame with the full parser.
    fn take_frame(
        &mut self,
        frame: &Frame<'_>,
        clock: &Clock,
        take: &mut impl PacketHandler,
    ) -> u64 {
        let counters = &mut self.counters;
        if matches!(frame.kind, libc::PACKET_OTHERHOST | libc::PACKET_OUTGOING) {
            counters.other_host += 1;
            return 0;
        }
        let at = clock.from_realtime(frame.realtime_nanos);
        match Packet::read(frame) {
            Packet::Udp(udp) if self.ports.contains(&udp.to.port()) => {
                return self.split(frame, &udp, at, take);
            }
            Packet::Fragment(fragment) => match self.fragments.add(&fragment, at, &self.ports) {
                AddOutcome::Whole(whole) => {
                    let datagram = CapturedDatagram {
                        from: whole.from,
                        to: whole.to,
                        bytes: whole.bytes(),
                        length: whole.length,
                        overhead: whole.overhead,
                        at,
                        interface: whole.interface,
                    };
                    self.count_if_truncated(&datagram);
                    take.take(RingPacket::Datagram(&datagram));
                    return 1;
                }
                AddOutcome::Waiting => {}
                AddOutcome::Foreign => counters.foreign += 1,
                AddOutcome::Malformed => counters.malformed += 1,
            },
            Packet::Tcp(tcp) if self.segments && self.ports.contains(&tcp.to.port()) => {
                take.take(RingPacket::Segment(&Segment {
                    from: tcp.from,
                    to: tcp.to,
                    header: tcp.header,
                    at,
                }));
            }
            Packet::Udp(_) | Packet::Tcp(_) | Packet::Other => counters.foreign += 1,
            Packet::Malformed => counters.malformed += 1,
        }
        0
    }

    /// Delivers the datagrams that a packet holds: one or several.
    fn split(
        &mut self,
        frame: &Frame<'_>,
        udp: &Udp<'_>,
        at: Time,
        take: &mut impl PacketHandler,
    ) -> u64 {
        let segment = frame.segment.map_or(udp.length, usize::from);
        let mut datagram = CapturedDatagram {
            from: udp.from,
            to: udp.to,
            bytes: udp.kept,
            length: udp.length,
            overhead: udp.overhead,
            at,
            interface: frame.interface,
        };
        if segment >= udp.length {
            self.count_if_truncated(&datagram);
            take.take(RingPacket::Datagram(&datagram));
            return 1;
        }
        let mut count = 0;
        let mut begin = 0;
        while begin < udp.length {
            let end = udp.length.min(begin + segment);
            let kept = udp.kept.len();
            datagram.bytes = &udp.kept[begin.min(kept)..end.min(kept)];
            datagram.length = end - begin;
            self.keep_whole |= self.count_if_truncated(&datagram);
            take.take(RingPacket::Datagram(&datagram));
            count += 1;
            begin = end;
        }
        count
    }

    fn count_if_truncated(&mut self, datagram: &CapturedDatagram<'_>) -> bool {
        let bytes = datagram.bytes;
        if bytes.len() >= WANTED_BYTES {
            return false;
        }
        let wanted = match (self.brief, bytes.first()) {
            (Some(ShortCapture { unless, bytes }), Some(first)) if first & unless == 0 => {
                bytes.into()
            }
            _ => WANTED_BYTES,
        };
        let truncated = bytes.len() < datagram.length.min(wanted);
        self.counters.truncated += u64::from(truncated);
        truncated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::block::tests::{TestPacket, write};
    use crate::ring::packet::tests::{tcp_v4, v4};
    use proptest::prelude::*;

    fn take_block(
        reader: &mut FrameReader,
        block: &[u8],
        mut take: impl FnMut(RingPacket<'_>),
    ) -> u64 {
        reader
            .take_blocks(block, block.len(), &Clock::start(), &mut take)
            .1
    }

    /// Returns what a ring for port 5000 delivers: length and captured bytes of each datagram; and
    /// the reader with its counters.
    fn take(packets: &[TestPacket]) -> (Vec<(usize, usize)>, FrameReader) {
        let mut reader = FrameReader::new(5000..=5000, false, None);
        let mut taken = Vec::new();
        let block = write(packets);
        let count = take_block(&mut reader, &block, |arrived| {
            let RingPacket::Datagram(datagram) = arrived else {
                panic!("no segments were asked for");
            };
            taken.push((datagram.length, datagram.bytes.len()));
        });
        assert_eq!(count, taken.len() as u64);
        (taken, reader)
    }

    #[test]
    fn combined_packets_are_split_and_truncated_ones_counted() {
        let whole = TestPacket {
            segment: 400,
            ..TestPacket::new(v4(0, 5000, &[1; 1000]))
        };
        let (taken, reader) = take(std::slice::from_ref(&whole));
        assert_eq!(taken, [(400, 400), (400, 400), (200, 200)]);
        assert!(!reader.keep_whole);
        let truncated = TestPacket {
            packet: whole.packet[..500].to_vec(),
            more: 528,
            ..whole.clone()
        };
        let (taken, reader) = take(&[truncated]);
        assert_eq!(taken, [(400, 400), (400, 72), (200, 0)]);
        assert_eq!((reader.counters.truncated, reader.keep_whole), (2, true));
        // A single truncated datagram implies nothing about others.
        let single = TestPacket {
            packet: whole.packet[..60].to_vec(),
            more: 968,
            segment: 0,
            ..whole
        };
        let (taken, reader) = take(&[single]);
        assert_eq!(taken, [(1000, 32)]);
        assert_eq!((reader.counters.truncated, reader.keep_whole), (1, false));
    }

    #[test]
    fn unused_packets_are_counted_by_reason() {
        let good = TestPacket::new(v4(0, 5000, &[1; 100]));
        let other_host = TestPacket {
            kind: libc::PACKET_OTHERHOST,
            ..good.clone()
        };
        let foreign = TestPacket::new(v4(0, 5001, &[1; 100]));
        let malformed = TestPacket::new(vec![0x45; 10]);
        let segment = TestPacket::new(tcp_v4(5000, 1, 0x10, 100));
        let (taken, reader) = take(&[other_host, foreign, segment, malformed, good]);
        assert_eq!(taken, [(100, 100)]);
        let expected = Counters {
            malformed: 1,
            foreign: 2,
            other_host: 1,
            ..Counters::default()
        };
        assert_eq!(reader.counters, expected);
    }

    #[test]
    fn segment_headers_are_delivered_on_request() {
        let block = write(&[
            TestPacket {
                // One header for many segments, truncated after the header.
                packet: tcp_v4(5000, 7, 0x10, 60_000)[..40].to_vec(),
                more: 60_012,
                ..TestPacket::new(Vec::new())
            },
            TestPacket::new(tcp_v4(5001, 7, 0x10, 100)),
            TestPacket::new(v4(0, 5000, &[1; 100])),
        ]);
        let mut reader = FrameReader::new(5000..=5000, true, None);
        let mut seen = Vec::new();
        let count = take_block(&mut reader, &block, |arrived| {
            seen.push(match arrived {
                RingPacket::Datagram(datagram) => (0, datagram.length),
                RingPacket::Segment(segment) => (segment.header.sequence, segment.header.length),
            });
        });
        assert_eq!(seen, [(7, 60_000), (0, 100)]);
        assert_eq!((count, reader.counters.foreign), (1, 1));
    }

    #[test]
    fn brief_datagrams_are_cut_only_below_their_own_limit() {
        let brief = Some(ShortCapture {
            unless: 0x3f,
            bytes: 12,
        });
        let mut reader = FrameReader::new(5000..=5000, false, brief);
        let payload = |first: u8| -> Vec<u8> { (0..100).map(|byte| byte | first).collect() };
        let kept = |first: u8, kept: usize| {
            let packet = v4(0, 5000, &payload(first));
            TestPacket {
                packet: packet[..28 + kept].to_vec(),
                more: 100 - kept as u32,
                ..TestPacket::new(Vec::new())
            }
        };
        // As the filter captures them; then two of which it captured too little.
        let block = write(&[
            kept(0x80, 16),
            kept(0x90, 90),
            kept(0xa0, 100),
            kept(0x80, 11),
            kept(0x81, 75),
        ]);
        let mut taken = Vec::new();
        take_block(&mut reader, &block, |arrived| {
            let RingPacket::Datagram(datagram) = arrived else {
                panic!("no segments were asked for");
            };
            let first = datagram.bytes[0];
            assert!(payload(first).starts_with(datagram.bytes));
            taken.push((first, datagram.bytes.len(), datagram.length));
        });
        let expected = [
            (0x80, 12, 100),
            (0x90, 90, 100),
            (0xa0, 100, 100),
            (0x80, 11, 100),
            (0x81, 75, 100),
        ];
        assert_eq!(taken, expected);
        assert_eq!(reader.counters.truncated, 2);
    }

    /// Returns what a ring for ports 5000 to 5009 delivers from several blocks: port and length of
    /// each datagram.
    fn take_from_blocks(blocks: &[Vec<TestPacket>]) -> Vec<(u16, usize)> {
        let blocks: Vec<_> = blocks.iter().map(|packets| write(packets)).collect();
        let length = blocks.iter().map(Vec::len).max().unwrap_or(1);
        let mut memory = Vec::new();
        for block in blocks {
            memory.extend(block);
            memory.resize(memory.len().next_multiple_of(length), 0);
        }
        let mut taken = Vec::new();
        let mut take = |arrived: RingPacket<'_>| match arrived {
            RingPacket::Datagram(datagram) => taken.push((datagram.to.port(), datagram.length)),
            RingPacket::Segment(_) => panic!("no segments were asked for"),
        };
        FrameReader::new(5000..=5009, false, None).take_blocks(
            &memory,
            length,
            &Clock::start(),
            &mut take,
        );
        taken
    }

    #[test]
    fn fragment_keeps_all_packets_in_order_of_arrival() {
        let packet = |port, length| TestPacket::new(v4(0, port, &vec![0; length]));
        let mut parts = [packet(5003, 16), packet(5003, 8)];
        // The first 24 bytes, including the header, and the rest.
        parts[0].packet[6] = 0x20;
        parts[1].packet[7] = 3;
        let rest = parts[1].packet.split_off(28);
        parts[1].packet.truncate(20);
        parts[1].packet.extend(rest);
        parts[1].packet[3] = 28;
        parts[0].packet[25] = 32;
        let [first, second] = parts;
        let mut packets = vec![packet(5005, 1), packet(5003, 2), packet(5001, 3)];
        assert_eq!(
            take_from_blocks(std::slice::from_ref(&packets)),
            [(5001, 3), (5003, 2), (5005, 1)]
        );
        packets.insert(0, first);
        packets.insert(2, second);
        assert_eq!(
            take_from_blocks(&[packets]),
            [(5005, 1), (5003, 24), (5003, 2), (5001, 3)]
        );
    }

    proptest! {
        #[test]
        fn packets_are_delivered_by_port_in_order_of_arrival(
            ports in prop::collection::vec(prop::collection::vec(4998u16..5012, 0..200), 1..5),
        ) {
            let mut number = 0;
            let blocks: Vec<Vec<TestPacket>> = ports
                .iter()
                .map(|ports| {
                    let packets = ports.iter().map(|&port| {
                        number += 1;
                        // The number of a packet determines its length. Every third packet is
                        // captured so short that it needs the full parser.
                        let length = number + 4;
                        let kept = if number % 3 == 0 { 4 } else { length };
                        let mut packet = v4(0, port, &vec![0; length]);
                        packet.truncate(28 + kept);
                        TestPacket { more: (length - kept) as u32, ..TestPacket::new(packet) }
                    });
                    packets.collect()
                })
                .collect();
            let mut expected: Vec<(u16, usize)> = ports
                .iter()
                .flatten()
                .zip(1..)
                .filter(|(port, _)| (5000..=5009).contains(*port))
                .map(|(&port, number)| (port, number + 4))
                .collect();
            expected.sort_by_key(|&(port, _)| port);
            prop_assert_eq!(take_from_blocks(&blocks), expected);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            read_any(&bytes);
        }

        #[test]
        fn arbitrary_packets_in_valid_blocks_do_not_panic(
            packets in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 20..120), any::<u16>(), 0u32..2000),
                1..30,
            ),
        ) {
            let packets: Vec<TestPacket> = packets
                .into_iter()
                .map(|(mut packet, segment, more)| {
                    packet[0] = 0x45;
                    packet[2] = 0;
                    packet[9] = if packet[1] & 1 == 0 { 17 } else { 6 };
                    TestPacket { segment, more, ..TestPacket::new(packet) }
                })
                .collect();
            let block = write(&packets);
            for kind in [0, 4] {
                read_any(&[&[kind], block.as_slice()].concat());
            }
        }
    }
}

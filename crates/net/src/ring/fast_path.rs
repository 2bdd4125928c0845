//! Fast path for the frames that are by far the most frequent: one whole datagram of one sender in
//! IPv4 without options, with its headers and the beginning of its payload captured. All other
//! frames are left to the parsers in `block` and `packet`. For a frame of the fast path they find
//! the same, step by step.

use std::net::Ipv4Addr;

use super::block::{BLOCK_HEADER, FRAME_HEADER, Frames, SEGMENT_HEADER};

/// Number of payload bytes that are kept with the addresses: the fixed header of RTP.
pub(super) const HEAD: usize = 12;

const IP: usize = 20;
const UDP: usize = 8;
/// IPv4 with a header of 20 bytes.
const V4_FAST_PATH: u8 = 0x45;
const PROTOCOL_UDP: u8 = 17;
/// Flag `more fragments`, and the offset.
const FRAGMENT: u16 = 0x3fff;

/// Contents of such a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FastFrame {
    pub(super) realtime_nanos: i64,
    pub(super) interface: u32,
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
    pub(super) from_port: u16,
    pub(super) to_port: u16,
    /// Length of the payload.
    pub(super) length: u16,
    /// Beginning of the payload.
    pub(super) head: [u8; HEAD],
}

impl FastFrame {
    /// Length of the IP and UDP headers in bytes.
    pub(super) const OVERHEAD: u8 = (IP + UDP) as u8;
}

impl Frames<'_> {
    /// Returns the next frame if the fast path can read it. Otherwise returns `None`, and the frame
    /// remains the next one.
    #[inline(always)]
    pub(super) fn next_fast_path(&mut self) -> Option<FastFrame> {
        if self.left == 0 || self.offset < BLOCK_HEADER {
            return None;
        }
        let rest = self.block.get(self.offset..)?;
        let header: &[u8; FRAME_HEADER] = rest.first_chunk()?;
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let half = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        let (next, kept, length) = (word(0) as usize, word(12) as usize, word(16) as usize);
        let (link, network) = (half(24), half(26));
        let kind = header[48 + 10];

        let link_length = network.checked_sub(link)?;
        let segments = link.checked_sub(SEGMENT_HEADER)?;
        let packet_kept = kept.checked_sub(link_length)?;
        let packet_length = length.checked_sub(link_length)?;
        let packet: &[u8; IP + UDP + HEAD] = rest.get(network..)?.first_chunk()?;
        // Neither the sums nor the index can fail: all these numbers were checked and are small.
        if segments < FRAME_HEADER
            || packet_kept < packet.len()
            || packet_kept > rest.len() - network
            || packet_kept > packet_length
            || rest[segments + 1] != 0
            || kind == libc::PACKET_OTHERHOST
            || kind == libc::PACKET_OUTGOING
        {
            return None;
        }

        let short = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let (total, udp_length) = (usize::from(short(2)), usize::from(short(IP + 4)));
        if packet[0] != V4_FAST_PATH
            || packet[9] != PROTOCOL_UDP
            || short(6) & FRAGMENT != 0
            || total > packet_length
            || udp_length < UDP + HEAD
            || udp_length + IP > total
        {
            return None;
        }
        if self.left > 1 {
            // Frames do not overlap, so each one brings the end nearer.
            if next < network + packet_kept {
                return None;
            }
            self.offset = self.offset.checked_add(next)?;
        }
        self.left -= 1;
        let address =
            |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
        Some(FastFrame {
            realtime_nanos: i64::from(word(4)) * 1_000_000_000 + i64::from(word(8)),
            interface: word(48 + 4),
            from: address(12),
            to: address(16),
            from_port: short(IP),
            to_port: short(IP + 2),
            length: (udp_length - UDP) as u16,
            head: *packet.last_chunk()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::block::tests::{TestPacket, write};
    use super::super::packet::tests::v4;
    use super::super::packet::whole_udp_v4;
    use super::*;

    /// Reads a block to its end in both ways, and returns the number of frames that took the fast
    /// path.
    fn read_both_ways(block: &[u8]) -> usize {
        let mut frames = Frames::new(block);
        let mut plain = 0;
        loop {
            let mut steps = frames.clone();
            let read = steps.next();
            if let Some(found) = frames.next_fast_path() {
                plain += 1;
                let frame = read.expect("there is one").expect("it is sound");
                let udp = whole_udp_v4(&frame).expect("it is a whole datagram");
                assert_eq!(udp.from, (found.from, found.from_port).into());
                assert_eq!(udp.to, (found.to, found.to_port).into());
                assert_eq!(udp.length, usize::from(found.length));
                assert_eq!(udp.overhead, usize::from(FastFrame::OVERHEAD));
                assert_eq!(udp.kept.first_chunk(), Some(&found.head));
                assert_eq!(frame.realtime_nanos, found.realtime_nanos);
                assert_eq!(frame.interface, found.interface);
                assert_eq!(frame.segment, None);
                assert!(frame.kind != libc::PACKET_OTHERHOST);
                assert!(frame.kind != libc::PACKET_OUTGOING);
            } else if frames.next().is_none() {
                return plain;
            }
            assert_eq!((frames.offset, frames.left), (steps.offset, steps.left));
        }
    }

    fn datagram(port: u16, length: usize) -> TestPacket {
        let payload: Vec<u8> = (0..length as u8).collect();
        TestPacket::new(v4(0, port, &payload))
    }

    #[test]
    fn ordinary_frames_take_the_fast_path() {
        let mut cut = datagram(3, 200);
        cut.packet.truncate(40);
        cut.more = 188;
        let padded = TestPacket {
            more: 20,
            ..datagram(4, 12)
        };
        let packets = [datagram(1, 12), datagram(2, 100), cut, padded];
        assert_eq!(read_both_ways(&write(&packets)), packets.len());
    }

    #[test]
    fn other_frames_do_not_take_the_fast_path() {
        let changed = |change: &dyn Fn(&mut TestPacket)| {
            let mut packet = datagram(5004, 60);
            change(&mut packet);
            // One after it, which must be found.
            read_both_ways(&write(&[packet, datagram(1, 30)]))
        };
        assert_eq!(changed(&|_| {}), 2);
        assert_eq!(changed(&|packet| packet.packet[0] = 0x46), 1, "options");
        assert_eq!(changed(&|packet| packet.packet[0] = 0x65), 1, "IPv6");
        assert_eq!(changed(&|packet| packet.packet[9] = 6), 1, "TCP");
        assert_eq!(
            changed(&|packet| packet.packet[6] = 0x20),
            1,
            "a first part"
        );
        assert_eq!(changed(&|packet| packet.packet[7] = 1), 1, "a later part");
        assert_eq!(
            changed(&|packet| packet.packet[2] = 9),
            1,
            "longer than it is"
        );
        assert_eq!(
            changed(&|packet| packet.packet[24] = 1),
            1,
            "UDP longer than IP"
        );
        assert_eq!(
            changed(&|packet| packet.packet[25] = 19),
            1,
            "no whole head"
        );
        assert_eq!(changed(&|packet| packet.segment = 20), 1, "several in one");
        for kind in [libc::PACKET_OTHERHOST, libc::PACKET_OUTGOING] {
            assert_eq!(changed(&|packet| packet.kind = kind), 1, "{kind}");
        }
        for kept in 28..40 {
            let cut = |packet: &mut TestPacket| {
                packet.more = (packet.packet.len() - kept) as u32;
                packet.packet.truncate(kept);
            };
            assert_eq!(changed(&cut), 1, "{kept} bytes were kept");
        }
    }

    proptest! {
        #[test]
        fn fast_path_agrees_with_the_full_parser(
            lengths in prop::collection::vec(8usize..80, 1..8),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in 0usize..200,
        ) {
            let puts: Vec<TestPacket> = lengths.iter().map(|&length| datagram(5004, length)).collect();
            let mut block = write(&puts);
            for (place, value) in changes {
                let place = place.index(block.len());
                block[place] = value;
            }
            block.truncate(block.len() - cut.saturating_sub(100));
            read_both_ways(&block);
        }
    }
}

//! Splits a block of the ring into frames. Every number in the block is checked against its end:
//! whatever the bytes are, the parser stays within them and terminates.
//!
//! A block (`TPACKET_V3`, linux/if_packet.h; all numbers in native byte order) begins with its
//! number of frames and the offset of the first. Each frame begins with the distance to the next
//! frame, the time, the length of the packet and how much of it was captured, and the offsets of
//! the link-layer header and the network header within the frame. The interface is at offset 48
//! (`struct sockaddr_ll`). The kernel's information on segmentation is right before the link-layer
//! header (`struct virtio_net_hdr`).

/// A frame: what the kernel captured of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Captured bytes, from the network header on.
    pub(super) packet: &'a [u8],
    /// Length of the packet from the network header on.
    pub(super) length: usize,
    /// Kernel arrival time, in nanoseconds since 1970.
    pub(super) realtime_nanos: i64,
    /// Packet type: `PACKET_HOST` and so on (packet(7)).
    pub(super) kind: u8,
    /// Index of the receiving interface.
    pub(super) interface: u32,
    /// Payload length of each datagram but the last, if the packet holds several (UDP GSO).
    pub(super) segment: Option<u16>,
}

/// A frame contradicts itself. The rest of its block is lost as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Iterator over the frames of a block.
#[derive(Clone, Debug)]
pub(super) struct Frames<'a> {
    pub(super) block: &'a [u8],
    /// Offset of the next frame.
    pub(super) offset: usize,
    pub(super) left: u32,
}

const BLOCK_FRAMES: usize = 12;
const BLOCK_FIRST: usize = 16;
/// Length of the block's own header; no frame begins before its end.
pub(super) const BLOCK_HEADER: usize = 48;

/// Lengths of `struct tpacket3_hdr`, aligned to 16, and `struct sockaddr_ll`.
pub(super) const FRAME_HEADER: usize = 48 + 20;
/// Length of `struct virtio_net_hdr`.
pub(super) const SEGMENT_HEADER: usize = 10;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`, and the bit that may be set in addition (`VIRTIO_NET_HDR_GSO_ECN`).
const SEGMENTS_UDP: u8 = 5;
const SEGMENTS_ECN: u8 = 0x80;

impl<'a> Frames<'a> {
    /// Iterates over the frames of a block that the kernel has handed over.
    pub(super) fn new(block: &'a [u8]) -> Frames<'a> {
        Frames {
            block,
            offset: u32_at(block, BLOCK_FIRST).unwrap_or(0) as usize,
            left: u32_at(block, BLOCK_FRAMES).unwrap_or(0),
        }
    }

    /// Offset of the next frame in the block.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Number of remaining frames, according to the kernel.
    pub(super) fn remaining(&self) -> u32 {
        self.left
    }

    #[inline]
    fn frame(&mut self) -> Option<Frame<'a>> {
        if self.offset < BLOCK_HEADER {
            return None;
        }
        let rest = self.block.get(self.offset..)?;
        let header: &[u8; FRAME_HEADER] = rest.first_chunk()?;
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let half = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        let (next, seconds, nanos) = (word(0) as usize, word(4), word(8));
        let (kept, length) = (word(12) as usize, word(16) as usize);
        let (link, network) = (half(24), half(26));
        let link_length = network.checked_sub(link)?;
        // The segmentation header is between the kernel's own header and the packet.
        let segments: &[u8; SEGMENT_HEADER] = rest
            .get(
                link.checked_sub(SEGMENT_HEADER)
                    .filter(|&at| at >= FRAME_HEADER)?..,
            )?
            .first_chunk()?;
        let packet = rest.get(network..link.checked_add(kept)?)?;
        let length = length.checked_sub(link_length)?;
        if packet.len() > length {
            return None;
        }
        if self.left > 1 {
            // Frames do not overlap, so each one brings the end nearer.
            if next < network + packet.len() {
                return None;
            }
            self.offset = self.offset.checked_add(next)?;
        }
        let segment = u16::from_ne_bytes([segments[4], segments[5]]);
        Some(Frame {
            packet,
            length,
            realtime_nanos: i64::from(seconds) * 1_000_000_000 + i64::from(nanos),
            kind: header[48 + 10],
            interface: word(48 + 4),
            segment: (segments[1] & !SEGMENTS_ECN == SEGMENTS_UDP && segment > 0)
                .then_some(segment),
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        match self.frame() {
            Some(frame) => {
                self.left -= 1;
                Some(Ok(frame))
            }
            None => {
                self.left = 0;
                Some(Err(Malformed))
            }
        }
    }
}

/// Returns the frame at `offset`, which [`Frames`] has already found valid.
pub(super) fn frame_at(memory: &[u8], offset: usize) -> Option<Frame<'_>> {
    let mut frames = Frames {
        block: memory,
        offset,
        // No next frame is needed.
        left: 1,
    };
    frames.frame()
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet to be written to a block.
    #[derive(Clone, Debug)]
    pub(in crate::ring) struct TestPacket {
        pub(in crate::ring) packet: Vec<u8>,
        pub(in crate::ring) link_length: usize,
        /// Length of the packet beyond the captured bytes.
        pub(in crate::ring) more: u32,
        pub(in crate::ring) kind: u8,
        pub(in crate::ring) segment: u16,
    }

    impl TestPacket {
        pub(in crate::ring) fn new(packet: Vec<u8>) -> TestPacket {
            TestPacket {
                packet,
                link_length: 14,
                more: 0,
                kind: 0,
                segment: 0,
            }
        }
    }

    const TIME: [u32; 2] = [1_700_000_000, 999_999_999];

    /// Builds a block in the kernel's layout.
    pub(in crate::ring) fn write(packets: &[TestPacket]) -> Vec<u8> {
        let mut block = vec![0; BLOCK_HEADER];
        set(&mut block, BLOCK_FRAMES, packets.len() as u32);
        set(&mut block, BLOCK_FIRST, BLOCK_HEADER as u32);
        for (index, packet) in packets.iter().enumerate() {
            let start = block.len();
            let network = (FRAME_HEADER + packet.link_length.max(16)).next_multiple_of(16) + 10;
            let link = network - packet.link_length;
            let kept = (packet.link_length + packet.packet.len()) as u32;
            block.resize(start + network, 0);
            block.extend(&packet.packet);
            block.resize(block.len().next_multiple_of(8), 0);
            let last = index + 1 == packets.len();
            let next = if last { 0 } else { block.len() - start };
            for (at, value) in [(0, next as u32), (4, TIME[0]), (8, TIME[1]), (12, kept)] {
                set(&mut block, start + at, value);
            }
            set(&mut block, start + 16, kept + packet.more);
            let offsets = [link as u16, network as u16].map(u16::to_ne_bytes).concat();
            block[start + 24..start + 28].copy_from_slice(&offsets);
            set(&mut block, start + 52, 3);
            block[start + 58] = packet.kind;
            if packet.segment > 0 {
                let segment = start + link - SEGMENT_HEADER;
                block[segment + 1] = SEGMENTS_UDP;
                block[segment + 4..segment + 6].copy_from_slice(&packet.segment.to_ne_bytes());
            }
        }
        block
    }

    fn set(block: &mut [u8], at: usize, value: u32) {
        block[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn three() -> Vec<u8> {
        write(&[1, 2, 3].map(|number| TestPacket::new(vec![number; 100])))
    }

    /// Returns the number of frames read, and whether the block was valid.
    fn read(block: &[u8]) -> (usize, bool) {
        let (sound, malformed): (Vec<_>, Vec<_>) = Frames::new(block).partition(Result::is_ok);
        assert!(malformed.len() <= 1, "it ends at the first");
        (sound.len(), malformed.is_empty())
    }

    /// Reads three frames after changing one number of the second.
    fn read_with(at: usize, value: u32) -> (usize, bool) {
        let mut block = three();
        let second = BLOCK_HEADER + u32_at(&block, BLOCK_HEADER).expect("it is there") as usize;
        set(&mut block, second + at, value);
        read(&block)
    }

    #[test]
    fn wrong_frame_count_ends_the_block() {
        let mut block = three();
        assert_eq!(read(&block), (3, true));
        for count in [4, 5, u32::MAX] {
            set(&mut block, BLOCK_FRAMES, count);
            // The third frame claims to be the last, which contradicts the count.
            assert_eq!(read(&block), (2, false), "{count}");
        }
        for count in [0, 1, 2] {
            set(&mut block, BLOCK_FRAMES, count);
            assert_eq!(read(&block), (count as usize, true));
        }
    }

    #[test]
    fn invalid_distances_end_the_block() {
        assert_eq!(read_with(0, 208), (3, true), "the true distance");
        // A distance to the frame itself, and into it.
        for next in [0, 8, 100, 205] {
            assert_eq!(read_with(0, next), (1, false), "{next}");
        }
        // A distance beyond the block, or backwards if sums wrapped around: the frame itself is
        // valid.
        for next in [1 << 20, u32::MAX, u32::MAX - 207] {
            assert_eq!(read_with(0, next), (2, false), "{next}");
        }
        let mut block = three();
        for first in [0, 8, 47, 1 << 20, u32::MAX] {
            set(&mut block, BLOCK_FIRST, first);
            assert_eq!(read(&block), (0, false), "{first}");
        }
    }

    #[test]
    fn invalid_lengths_end_the_block() {
        // Captured length: zero, less than the link-layer header, beyond the block.
        for kept in [0, 13, 10_000, u32::MAX] {
            assert_eq!(read_with(12, kept), (1, false), "{kept}");
        }
        // Length of the packet: less than what was captured.
        for length in [0, 13, 113] {
            assert_eq!(read_with(16, length), (1, false), "{length}");
        }
        // Headers before the end of the frame's own header, or in the wrong order: 16 bits each,
        // here as one word.
        let offsets = |link: u16, network: u16| {
            let [a, b] = link.to_ne_bytes();
            let [c, d] = network.to_ne_bytes();
            u32::from_ne_bytes([a, b, c, d])
        };
        for (link, network) in [(0, 0), (9, 9), (77, 106), (106, 92), (65_535, 65_535)] {
            assert_eq!(read_with(24, offsets(link, network)), (1, false), "{link}");
        }
    }

    #[test]
    fn truncated_block_is_malformed() {
        let block = three();
        for length in 0..block.len() - 4 {
            let (frames, sound) = read(&block[..length]);
            assert!(
                frames < 3 && (!sound || length < BLOCK_FRAMES + 4),
                "{length}"
            );
        }
    }

    prop_compose! {
        fn any_packet()(
            packet in prop::collection::vec(any::<u8>(), 0..300),
            link_length in prop::sample::select(vec![0usize, 14, 18, 22]),
            more in 0u32..2000,
            kind in 0u8..5,
            segment in any::<u16>(),
        ) -> TestPacket {
            TestPacket { packet, link_length, more, kind, segment }
        }
    }

    proptest! {
        #[test]
        fn written_packets_are_read_back(packets in prop::collection::vec(any_packet(), 0..20)) {
            let block = write(&packets);
            let frames: Vec<Frame<'_>> =
                Frames::new(&block).map(|frame| frame.expect("it is sound")).collect();
            prop_assert_eq!(frames.len(), packets.len());
            for (frame, packet) in frames.iter().zip(&packets) {
                prop_assert_eq!(frame.packet, &packet.packet);
                prop_assert_eq!(frame.length, packet.packet.len() + packet.more as usize);
                prop_assert_eq!((frame.kind, frame.interface), (packet.kind, 3));
                prop_assert_eq!(frame.segment, (packet.segment > 0).then_some(packet.segment));
                prop_assert_eq!(frame.realtime_nanos, 1_700_000_000_999_999_999);
            }
        }

        #[test]
        fn arbitrary_bytes_terminate(block in prop::collection::vec(any::<u8>(), 0..2000)) {
            let frames = Frames::new(&block).count();
            prop_assert!(frames <= block.len() / FRAME_HEADER + 1);
        }

        #[test]
        fn corrupted_block_terminates(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut block = three();
            for (index, value) in changes {
                let at = index.index(block.len());
                block[at] = value;
            }
            let frames = Frames::new(&block).count();
            prop_assert!(frames <= block.len() / FRAME_HEADER + 1);
        }
    }
}

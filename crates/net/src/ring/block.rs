//! Takes a block of the ring apart into frames. Every number in it is checked against the block's end:
//! whatever the bytes are, the parser stays inside of them and comes to an end.
//!
//! A block (`TPACKET_V3`, linux/if_packet.h; all numbers in the machine's order) begins with the
//! number of frames in it and the offset of the first. Each frame begins with the distance to the next one, the time,
//! the packet's own length and how much of it was kept, and where within the frame the link-layer
//! and the network header are; the interface follows at offset 48 (`struct sockaddr_ll`), and right
//! before the link-layer header lies what the kernel knows of segmentation (`struct virtio_net_hdr`).

/// A frame: what the kernel kept of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// What was kept, from the network header on.
    pub(super) packet: &'a [u8],
    /// How long the packet is from the network header on.
    pub(super) length: usize,
    /// When the kernel took it in: nanoseconds since 1970.
    pub(super) realtime_nanos: i64,
    /// For whom it is: `PACKET_HOST` and so on (packet(7)).
    pub(super) kind: u8,
    /// The index of the interface it came in on.
    pub(super) interface: u32,
    /// Payload of each datagram but the last, where the packet stands for several (UDP GSO).
    pub(super) segment: Option<u16>,
}

/// A frame does not hold what it says; what follows it in the block is lost as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The frames of a block.
#[derive(Clone, Debug)]
pub(super) struct Frames<'a> {
    block: &'a [u8],
    /// Where the next frame begins.
    offset: usize,
    left: u32,
}

const BLOCK_FRAMES: usize = 12;
const BLOCK_FIRST: usize = 16;
/// Where the block's own header ends; no frame begins before.
const BLOCK_HEADER: usize = 48;

/// `struct tpacket3_hdr`, aligned to 16, and `struct sockaddr_ll`.
const FRAME_HEADER: usize = 48 + 20;
/// `struct virtio_net_hdr`.
const SEGMENT_HEADER: usize = 10;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`, and the bit that may be set besides (`VIRTIO_NET_HDR_GSO_ECN`).
const SEGMENTS_UDP: u8 = 5;
const SEGMENTS_ECN: u8 = 0x80;

impl<'a> Frames<'a> {
    /// The frames of a block that the kernel has handed over.
    pub(super) fn new(block: &'a [u8]) -> Frames<'a> {
        Frames {
            block,
            offset: u32_at(block, BLOCK_FIRST).unwrap_or(0) as usize,
            left: u32_at(block, BLOCK_FRAMES).unwrap_or(0),
        }
    }

    /// How many frames the kernel says are left.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

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
        // The kernel has put the segmentation header between its own and the packet.
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
            // Frames do not overlap: so each one brings the end nearer.
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

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

//! The stream that packets are sent again in (RFC 4588).

use bytes::BytesMut;

use crate::session::PacketHeader;

/// The source of retransmissions of one other source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmissions {
    /// Its synchronisation source.
    pub ssrc: u32,
    /// Its payload type.
    pub payload_type: u8,
    /// The sequence number of its next packet.
    pub next: u16,
}

impl Retransmissions {
    /// Makes the packet that carries another again: appends its payload, which is the other's
    /// sequence number and payload (RFC 4588, 4), and gives its header. What is no header of RTP is
    /// not carried.
    pub fn carry(
        &mut self,
        header: &PacketHeader,
        payload: &[u8],
        out: &mut BytesMut,
    ) -> Option<PacketHeader> {
        if header.len() < 12 {
            return None;
        }
        out.extend_from_slice(&header[2..4]);
        out.extend_from_slice(payload);
        let carried = PacketHeader::EMPTY
            .with(&[header[0], header[1] & 0x80 | self.payload_type])
            .with(&self.next.to_be_bytes())
            .with(&header[4..8])
            .with(&self.ssrc.to_be_bytes())
            .with(&header[12..]);
        self.next = self.next.wrapping_add(1);
        Some(carried)
    }
}

/// What a payload of retransmissions carries: the sequence number of the packet that is sent again,
/// and its payload. `None` where it is padding alone (RFC 4588, 4).
pub fn original(payload: &[u8]) -> Option<(u16, &[u8])> {
    let (sequence, payload) = payload.split_first_chunk()?;
    Some((u16::from_be_bytes(*sequence), payload))
}

//! Retransmission streams (RFC 4588).

use bytes::BytesMut;

use session::PacketHeader;

/// Retransmission stream of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtxStream {
    pub ssrc: u32,
    pub payload_type: u8,
    /// Sequence number of the next packet.
    pub next_sequence: u16,
}

impl RtxStream {
    /// Wraps a packet for retransmission: appends its sequence number and payload to `out` (RFC
    /// 4588, 4) and returns the header. Returns `None` if `header` is too short for RTP.
    pub fn wrap(
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
        let rtx_header = PacketHeader::EMPTY
            .append(&[header[0], header[1] & 0x80 | self.payload_type])
            .append(&self.next_sequence.to_be_bytes())
            .append(&header[4..8])
            .append(&self.ssrc.to_be_bytes())
            .append(&header[12..]);
        self.next_sequence = self.next_sequence.wrapping_add(1);
        Some(rtx_header)
    }
}

/// Splits the payload of a retransmission into the original sequence number and payload. Returns
/// `None` if the payload is only padding (RFC 4588, 4).
pub fn parse_rtx(payload: &[u8]) -> Option<(u16, &[u8])> {
    let (sequence, payload) = payload.split_first_chunk()?;
    Some((u16::from_be_bytes(*sequence), payload))
}

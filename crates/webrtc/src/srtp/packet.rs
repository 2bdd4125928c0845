//! Parts of a packet that SRTP treats differently.

use super::error::SrtpError;

/// Length of the fixed RTP header, in bytes (RFC 3550, 5.1).
const RTP_HEADER_LENGTH: usize = 12;

/// Length of the part of an RTCP compound that is not encrypted, in bytes (RFC 3711, 3.4).
pub(super) const RTCP_HEADER_LENGTH: usize = 8;

/// Parts of an RTP packet that SRTP uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RtpParts {
    /// Synchronisation source.
    pub(crate) ssrc: u32,
    /// Sequence number.
    pub(crate) sequence: u16,
    /// Length of the header with contributing sources and extensions, which is not encrypted.
    pub(crate) header_length: usize,
}

impl RtpParts {
    /// Parses the header.
    #[inline]
    pub(crate) fn parse(packet: &[u8]) -> Result<RtpParts, SrtpError> {
        let fixed: &[u8; RTP_HEADER_LENGTH] = packet.first_chunk().ok_or(SrtpError::Malformed)?;
        if fixed[0] >> 6 != 2 {
            return Err(SrtpError::Malformed);
        }
        let mut header = RTP_HEADER_LENGTH + 4 * usize::from(fixed[0] & 0x0f);
        if fixed[0] & 0x10 != 0 {
            let extension: &[u8; 4] = packet
                .get(header..)
                .and_then(|rest| rest.first_chunk())
                .ok_or(SrtpError::Malformed)?;
            header += 4 + 4 * usize::from(u16::from_be_bytes([extension[2], extension[3]]));
        }
        if packet.len() < header {
            return Err(SrtpError::Malformed);
        }
        Ok(RtpParts {
            ssrc: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
            sequence: u16::from_be_bytes([fixed[2], fixed[3]]),
            header_length: header,
        })
    }
}

/// Returns the SSRC of the first packet's sender in an RTCP compound.
pub(super) fn rtcp_sender_ssrc(compound: &[u8]) -> Result<u32, SrtpError> {
    let header: &[u8; RTCP_HEADER_LENGTH] = compound.first_chunk().ok_or(SrtpError::Malformed)?;
    if header[0] >> 6 != 2 {
        return Err(SrtpError::Malformed);
    }
    Ok(u32::from_be_bytes([
        header[4], header[5], header[6], header[7],
    ]))
}

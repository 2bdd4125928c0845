//! Parses the feedback messages of compound packets.

use super::packet_types::{AFB, FIR, NACK, PLI, PSFB, REMB, RTPFB, TRANSPORT_CC};
use super::transport_cc::TransportCc;
use kit::media::rtcp::RtcpError;

/// Maximum number of missing packets taken from one message; more are ignored. A datagram of 1,500
/// bytes cannot name more.
const MISSING_MAX: usize = 17 * 366;

/// A feedback message. `sender` is the SSRC of the message's sender, `media` that of the source it
/// concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Missing packets (generic NACK).
    Nack {
        sender: u32,
        media: u32,
        /// Sequence numbers of the missing packets.
        missing: Vec<u16>,
    },
    /// Picture loss indication (PLI): the receiver needs a key frame.
    PictureLoss {
        sender: u32,
        /// SSRC of the source.
        media: u32,
    },
    /// Full intra requests (FIR): the receiver demands key frames of some sources.
    FullIntra {
        sender: u32,
        /// SSRCs, each with a sequence number that grows with each new request.
        requests: Vec<(u32, u8)>,
    },
    /// Receiver estimated maximum bitrate (REMB).
    Remb {
        sender: u32,
        /// Bits per second.
        bitrate: u64,
        /// SSRCs of the sources that share the bitrate.
        sources: Vec<u32>,
    },
    /// Arrival times of packets.
    TransportCc(TransportCc),
}

/// Returns the feedback messages of a compound, in order. Other packets are skipped. The iterator
/// ends after the first error.
pub fn messages(mut rest: &[u8]) -> impl Iterator<Item = Result<Message, RtcpError>> {
    let packets = std::iter::from_fn(move || {
        let packet = (!rest.is_empty()).then(|| next_message(&mut rest))?;
        if packet.is_err() {
            rest = &[];
        }
        Some(packet.transpose())
    });
    packets.flatten()
}

/// Takes the next packet off `rest`. Returns `None` if it is not a known feedback message.
fn next_message(rest: &mut &[u8]) -> Result<Option<Message>, RtcpError> {
    let [first, packet_type, l0, l1] = *rest.first_chunk().ok_or(RtcpError::Truncated)?;
    if first >> 6 != 2 {
        return Err(RtcpError::Version(first >> 6));
    }
    let length = (usize::from(u16::from_be_bytes([l0, l1])) + 1) * 4;
    let (packet, after) = rest.split_at_checked(length).ok_or(RtcpError::Truncated)?;
    *rest = after;
    if !matches!(packet_type, RTPFB | PSFB) {
        return Ok(None);
    }
    let mut body = &packet[4..];
    if first & 0x20 != 0 {
        let padding = usize::from(*body.last().ok_or(RtcpError::Padding)?);
        let unpadded = body.len().checked_sub(padding).filter(|_| padding > 0);
        body = &body[..unpadded.ok_or(RtcpError::Padding)?];
    }
    let (sender, media) = (word(&mut body)?, word(&mut body)?);
    let message = match (packet_type, first & 0x1f) {
        (RTPFB, NACK) => Message::Nack {
            sender,
            media,
            missing: nack_entries(body)?,
        },
        (RTPFB, TRANSPORT_CC) => Message::TransportCc(TransportCc::parse(sender, media, body)?),
        (PSFB, PLI) => Message::PictureLoss { sender, media },
        (PSFB, FIR) => Message::FullIntra {
            sender,
            requests: fir_entries(body)?,
        },
        (PSFB, AFB) if body.starts_with(REMB) => remb(sender, &body[REMB.len()..])?,
        _ => return Ok(None),
    };
    Ok(Some(message))
}

fn word(body: &mut &[u8]) -> Result<u32, RtcpError> {
    let (word, rest) = body.split_first_chunk().ok_or(RtcpError::Counts)?;
    *body = rest;
    Ok(u32::from_be_bytes(*word))
}

/// Parses NACK entries. Each names one packet and, in a bit mask, any of the 16 after it (RFC 4585,
/// 6.2.1).
fn nack_entries(mut body: &[u8]) -> Result<Vec<u16>, RtcpError> {
    let mut missing = Vec::new();
    while !body.is_empty() && missing.len() < MISSING_MAX {
        let entry = word(&mut body)?;
        let first = (entry >> 16) as u16;
        missing.push(first);
        let after = (0..16).filter(|bit| entry & (1 << bit) != 0);
        missing.extend(after.map(|bit| first.wrapping_add(bit + 1)));
    }
    Ok(missing)
}

fn fir_entries(mut body: &[u8]) -> Result<Vec<(u32, u8)>, RtcpError> {
    let mut entries = Vec::new();
    while !body.is_empty() {
        let ssrc = word(&mut body)?;
        let number = (word(&mut body)? >> 24) as u8;
        entries.push((ssrc, number));
    }
    Ok(entries)
}

/// Parses the number of sources, an exponent of 6 bits, a mantissa of 18 bits, and the sources
/// (draft-alvestrand-rmcat-remb-03, 2.2).
fn remb(sender: u32, mut body: &[u8]) -> Result<Message, RtcpError> {
    let head = word(&mut body)?;
    let (exponent, mantissa) = (head >> 18 & 0x3f, u64::from(head & 0x3_ffff));
    let sources: Result<Vec<u32>, RtcpError> = (0..head >> 24).map(|_| word(&mut body)).collect();
    Ok(Message::Remb {
        sender,
        // A bitrate that overflows becomes the maximum.
        bitrate: mantissa
            .checked_shl(exponent)
            .filter(|bitrate| bitrate >> exponent == mantissa)
            .unwrap_or(u64::MAX),
        sources: sources?,
    })
}

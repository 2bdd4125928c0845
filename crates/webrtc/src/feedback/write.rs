//! Writes feedback messages. Each function appends to a compound packet, which must begin with a
//! report unless both sides negotiated reduced-size RTCP (RFC 5506).

use super::packet_types::{AFB, FIR, NACK, PLI, PSFB, REMB, RTPFB};
use kit::media::rtcp;

/// Maximum number of entries in one NACK: with a report they fit into a datagram of 1,500 bytes.
const NACK_ENTRIES_MAX: usize = 300;

/// Writes the common header and both SSRCs of a packet; `words` 32-bit words follow.
pub(super) fn write_header(
    out: &mut Vec<u8>,
    packet_type: u8,
    format: u8,
    sender: u32,
    media: u32,
    words: usize,
) {
    out.extend_from_slice(&[0x80 | format, packet_type]);
    out.extend_from_slice(&(words as u16 + 2).to_be_bytes());
    out.extend_from_slice(&sender.to_be_bytes());
    out.extend_from_slice(&media.to_be_bytes());
}

/// Writes a NACK for missing packets of a source, given in sequence order. Packets that exceed the
/// maximum number of entries are left out. Writes nothing if `missing` is empty.
pub fn write_nack(out: &mut Vec<u8>, sender: u32, media: u32, missing: &[u16]) {
    let mut entries: Vec<(u16, u16)> = Vec::new();
    for &sequence in missing {
        let is_full = entries.len() >= NACK_ENTRIES_MAX;
        match entries.last_mut() {
            Some((first, after)) if (1..=16).contains(&sequence.wrapping_sub(*first)) => {
                *after |= 1 << (sequence.wrapping_sub(*first) - 1);
            }
            _ if is_full => break,
            _ => entries.push((sequence, 0)),
        }
    }
    if entries.is_empty() {
        return;
    }
    write_header(out, RTPFB, NACK, sender, media, entries.len());
    for (first, after) in entries {
        out.extend_from_slice(&first.to_be_bytes());
        out.extend_from_slice(&after.to_be_bytes());
    }
}

/// Writes a picture loss indication for a source.
pub fn write_pli(out: &mut Vec<u8>, sender: u32, media: u32) {
    write_header(out, PSFB, PLI, sender, media, 0);
}

/// Writes a full intra request for a source. `number` grows with each new request and stays the
/// same for a repeated one.
pub fn write_fir(out: &mut Vec<u8>, sender: u32, media: u32, number: u8) {
    write_header(out, PSFB, FIR, sender, 0, 2);
    out.extend_from_slice(&media.to_be_bytes());
    out.extend_from_slice(&[number, 0, 0, 0]);
}

/// Writes a REMB for `sources`, of which only the first 255 are used. `bitrate` is in bits per
/// second and is rounded down to 18 significant bits.
pub fn write_remb(out: &mut Vec<u8>, sender: u32, bitrate: u64, sources: &[u32]) {
    let sources = &sources[..sources.len().min(255)];
    let exponent = (64 - bitrate.leading_zeros()).saturating_sub(18);
    let mantissa = (bitrate >> exponent) as u32;
    write_header(out, PSFB, AFB, sender, 0, 2 + sources.len());
    out.extend_from_slice(REMB);
    let head = (sources.len() as u32) << 24 | exponent << 18 | mantissa;
    out.extend_from_slice(&head.to_be_bytes());
    for source in sources {
        out.extend_from_slice(&source.to_be_bytes());
    }
}

/// Returns a compound with the goodbye (BYE) of a source that sends no report with it. An empty
/// receiver report comes first (RFC 3550, 6.1).
pub fn bare_goodbye(ssrc: u32, cname: &str) -> Vec<u8> {
    let mut compound = Vec::new();
    rtcp::write_receiver_report(&mut compound, ssrc, &[]);
    rtcp::write_cname(&mut compound, ssrc, cname);
    rtcp::write_bye(&mut compound, &[ssrc], None);
    compound
}

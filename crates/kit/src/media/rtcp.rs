//! RTCP (RFC 3550, 6): reports that accompany an RTP stream.
//!
//! [`packets`] parses: it iterates over the packets of a compound packet and ends at the first
//! error. The `write` functions append to a buffer. A compound packet consists of several packets
//! written one after another: a report first, with a source description.

mod interval;

pub use interval::{ReportInterval, randomise};

use thiserror::Error;

/// Sender report.
const SR: u8 = 200;
/// Receiver report.
const RR: u8 = 201;
/// Source description.
const SDES: u8 = 202;
/// Goodbye.
const BYE: u8 = 203;

/// SDES item type of the canonical name.
const CNAME: u8 = 1;

/// Maximum number of blocks or sources per packet: the count has five bits.
const COUNT_MAX: usize = 31;

/// Size of a reception report block in bytes.
const REPORT_BLOCK_LEN: usize = 24;

/// Reasons why bytes are not RTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum RtcpError {
    /// The bytes end in the middle of a packet.
    #[error("cut off")]
    Truncated,
    #[error("version {0} instead of 2")]
    Version(u8),
    /// The padding is longer than the packet, or has length 0.
    #[error("wrong padding")]
    Padding,
    /// The packet is shorter than its counts say.
    #[error("shorter than its counts")]
    Counts,
}

/// Sender information of a sender report (RFC 3550, 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderInfo {
    /// SSRC of the sender.
    pub ssrc: u32,
    /// NTP time of the report: seconds since 1900 in the upper half, fractions in the lower.
    pub ntp_time: u64,
    /// RTP timestamp of the same instant.
    pub rtp_time: u32,
    /// Packets sent since the start of the stream.
    pub packet_count: u32,
    /// Bytes of payload sent since the start of the stream.
    pub octet_count: u32,
}

/// Reception report block about one source (RFC 3550, 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportBlock {
    /// SSRC of the source.
    pub ssrc: u32,
    /// Share of the packets lost since the previous report, in 256ths.
    pub fraction_lost: u8,
    /// Packets lost since the start of reception, less duplicates: 24 bits, signed.
    pub cumulative_lost: i32,
    /// Extended highest sequence number: the number of wrap-arounds is in the upper half.
    pub extended_highest: u32,
    /// Interarrival jitter, in units of the RTP timestamp.
    pub jitter: u32,
    /// Middle 32 bits of the NTP time in the last sender report; 0 if none arrived.
    pub last_sr: u32,
    /// Time since the last sender report arrived, in 65536ths of a second.
    pub delay_since_last_sr: u32,
}

/// One packet of a compound packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Report of a participant that sends.
    SenderReport {
        info: SenderInfo,
        /// At most 31.
        blocks: Vec<ReportBlock>,
    },
    /// Report of a participant that only receives.
    ReceiverReport {
        ssrc: u32,
        /// At most 31.
        blocks: Vec<ReportBlock>,
    },
    /// Source description. Items other than CNAME are ignored.
    SourceDescription {
        /// SSRC and text of each CNAME item. A packet describes at most 31 sources.
        names: Vec<(u32, String)>,
    },
    /// Sources that leave.
    Bye {
        /// At most 31.
        sources: Vec<u32>,
        /// Reason for leaving, if stated.
        reason: Option<String>,
    },
    /// Packet of another type, not parsed.
    Other {
        /// Packet type; APP is 204.
        packet_type: u8,
    },
}

/// Iterates over the packets of a compound packet. Ends after the first error.
pub fn packets(compound: &[u8]) -> impl Iterator<Item = Result<Packet, RtcpError>> {
    let mut rest = compound;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let result = take_packet(&mut rest);
        if result.is_err() {
            rest = &[];
        }
        Some(result)
    })
}

/// True if a compound packet may come from a media sender: it contains a sender report or a
/// goodbye. Only the types and lengths of the packets are read.
pub fn may_be_from_sender(compound: &[u8]) -> bool {
    let mut rest = compound;
    while let [first, kind, high, low, ..] = *rest {
        if first >> 6 != 2 {
            return false;
        }
        if matches!(kind, SR | BYE) {
            return true;
        }
        let length = 4 * (usize::from(u16::from_be_bytes([high, low])) + 1);
        let Some(next) = rest.get(length..) else {
            return false;
        };
        rest = next;
    }
    false
}

fn take_packet(rest: &mut &[u8]) -> Result<Packet, RtcpError> {
    let [first, packet_type, l0, l1] = *rest.first_chunk().ok_or(RtcpError::Truncated)?;
    if first >> 6 != 2 {
        return Err(RtcpError::Version(first >> 6));
    }
    let length = (usize::from(u16::from_be_bytes([l0, l1])) + 1) * 4;
    let (packet, after) = rest.split_at_checked(length).ok_or(RtcpError::Truncated)?;
    *rest = after;
    let mut body = &packet[4..];
    if first & 0x20 != 0 {
        let padding = usize::from(*body.last().ok_or(RtcpError::Padding)?);
        let kept = body.len().checked_sub(padding).filter(|_| padding > 0);
        body = &body[..kept.ok_or(RtcpError::Padding)?];
    }
    let count = usize::from(first & 0x1f);
    match packet_type {
        SR => {
            let info = SenderInfo {
                ssrc: take_u32(&mut body)?,
                ntp_time: u64::from(take_u32(&mut body)?) << 32 | u64::from(take_u32(&mut body)?),
                rtp_time: take_u32(&mut body)?,
                packet_count: take_u32(&mut body)?,
                octet_count: take_u32(&mut body)?,
            };
            let blocks = take_blocks(&mut body, count)?;
            Ok(Packet::SenderReport { info, blocks })
        }
        RR => {
            let ssrc = take_u32(&mut body)?;
            let blocks = take_blocks(&mut body, count)?;
            Ok(Packet::ReceiverReport { ssrc, blocks })
        }
        SDES => Ok(Packet::SourceDescription {
            names: take_cnames(&mut body, count)?,
        }),
        BYE => {
            let sources = (0..count)
                .map(|_| take_u32(&mut body))
                .collect::<Result<Vec<u32>, RtcpError>>()?;
            let reason = body.split_first().and_then(|(&length, text)| {
                let text = text.get(..usize::from(length))?;
                Some(String::from_utf8_lossy(text).into_owned())
            });
            Ok(Packet::Bye { sources, reason })
        }
        packet_type => Ok(Packet::Other { packet_type }),
    }
}

fn take_u32(body: &mut &[u8]) -> Result<u32, RtcpError> {
    let (word, rest) = body.split_first_chunk().ok_or(RtcpError::Counts)?;
    *body = rest;
    Ok(u32::from_be_bytes(*word))
}

fn take_blocks(body: &mut &[u8], count: usize) -> Result<Vec<ReportBlock>, RtcpError> {
    if body.len() < count * REPORT_BLOCK_LEN {
        return Err(RtcpError::Counts);
    }
    (0..count)
        .map(|_| {
            let ssrc = take_u32(body)?;
            let lost = take_u32(body)?;
            Ok(ReportBlock {
                ssrc,
                fraction_lost: (lost >> 24) as u8,
                // Shifted up and down to extend the sign from 24 to 32 bits.
                cumulative_lost: (lost << 8) as i32 >> 8,
                extended_highest: take_u32(body)?,
                jitter: take_u32(body)?,
                last_sr: take_u32(body)?,
                delay_since_last_sr: take_u32(body)?,
            })
        })
        .collect()
}

fn take_cnames(body: &mut &[u8], count: usize) -> Result<Vec<(u32, String)>, RtcpError> {
    let mut names = Vec::new();
    for _ in 0..count {
        let before = body.len();
        let ssrc = take_u32(body)?;
        loop {
            let (&item, rest) = body.split_first().ok_or(RtcpError::Counts)?;
            *body = rest;
            if item == 0 {
                break;
            }
            let (&length, rest) = body.split_first().ok_or(RtcpError::Counts)?;
            let (text, rest) = rest
                .split_at_checked(usize::from(length))
                .ok_or(RtcpError::Counts)?;
            *body = rest;
            if item == CNAME {
                names.push((ssrc, String::from_utf8_lossy(text).into_owned()));
            }
        }
        // A chunk ends on a 32-bit boundary. A last chunk without its padding is accepted.
        let over = (before - body.len()) % 4;
        let fill = if over == 0 { 0 } else { 4 - over };
        *body = body.get(fill..).unwrap_or(&[]);
    }
    Ok(names)
}

/// Appends a sender report with the first 31 of the blocks.
pub fn write_sender_report(out: &mut Vec<u8>, info: &SenderInfo, blocks: &[ReportBlock]) {
    let blocks = &blocks[..blocks.len().min(COUNT_MAX)];
    write_header(out, blocks.len(), SR, 24 + blocks.len() * REPORT_BLOCK_LEN);
    out.extend_from_slice(&info.ssrc.to_be_bytes());
    out.extend_from_slice(&info.ntp_time.to_be_bytes());
    out.extend_from_slice(&info.rtp_time.to_be_bytes());
    out.extend_from_slice(&info.packet_count.to_be_bytes());
    out.extend_from_slice(&info.octet_count.to_be_bytes());
    write_blocks(out, blocks);
}

/// Appends a receiver report with the first 31 of the blocks.
pub fn write_receiver_report(out: &mut Vec<u8>, ssrc: u32, blocks: &[ReportBlock]) {
    let blocks = &blocks[..blocks.len().min(COUNT_MAX)];
    write_header(out, blocks.len(), RR, 4 + blocks.len() * REPORT_BLOCK_LEN);
    out.extend_from_slice(&ssrc.to_be_bytes());
    write_blocks(out, blocks);
}

/// Appends a source description with one source and the first 255 bytes of its CNAME.
pub fn write_cname(out: &mut Vec<u8>, ssrc: u32, cname: &str) {
    let cname = truncate_at_char(cname, 255);
    // SSRC, item type, length, text, and at least one zero byte up to the next 32-bit boundary.
    let body = (4 + 2 + cname.len() + 1).next_multiple_of(4);
    write_header(out, 1, SDES, body);
    let end = out.len() + body;
    out.extend_from_slice(&ssrc.to_be_bytes());
    out.push(CNAME);
    out.push(cname.len() as u8);
    out.extend_from_slice(cname.as_bytes());
    out.resize(end, 0);
}

/// Appends a goodbye with the first 31 of the sources.
pub fn write_bye(out: &mut Vec<u8>, sources: &[u32], reason: Option<&str>) {
    let sources = &sources[..sources.len().min(COUNT_MAX)];
    let reason = reason.map(|reason| truncate_at_char(reason, 255));
    let text = reason.map_or(0, |text| (1 + text.len()).next_multiple_of(4));
    let body = sources.len() * 4 + text;
    write_header(out, sources.len(), BYE, body);
    let end = out.len() + body;
    for source in sources {
        out.extend_from_slice(&source.to_be_bytes());
    }
    if let Some(text) = reason {
        out.push(text.len() as u8);
        out.extend_from_slice(text.as_bytes());
    }
    out.resize(end, 0);
}

fn write_header(out: &mut Vec<u8>, count: usize, packet_type: u8, body: usize) {
    out.push(0x80 | count as u8);
    out.push(packet_type);
    // A body has at most 31 blocks or 64 words of text, so the length fits into 16 bits.
    out.extend_from_slice(&((body / 4) as u16).to_be_bytes());
}

fn write_blocks(out: &mut Vec<u8>, blocks: &[ReportBlock]) {
    for block in blocks {
        let lost = block.cumulative_lost.clamp(-0x80_0000, 0x7f_ffff) as u32 & 0xff_ffff;
        for word in [
            block.ssrc,
            u32::from(block.fraction_lost) << 24 | lost,
            block.extended_highest,
            block.jitter,
            block.last_sr,
            block.delay_since_last_sr,
        ] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
}

/// Returns the longest prefix of at most `bytes` bytes that ends on a character boundary.
fn truncate_at_char(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn block()(
            words in any::<[u32; 5]>(), fraction_lost: u8, cumulative_lost in -0x80_0000i32..0x80_0000,
        ) -> ReportBlock {
            let [ssrc, extended_highest, jitter, last_sr, delay_since_last_sr] = words;
            ReportBlock {
                ssrc, fraction_lost, cumulative_lost, extended_highest, jitter, last_sr, delay_since_last_sr,
            }
        }
    }

    fn any_packet() -> impl Strategy<Value = Packet> {
        let blocks = || prop::collection::vec(block(), 0..=COUNT_MAX);
        let info = any::<(u32, u64, u32, u32, u32)>().prop_map(
            |(ssrc, ntp_time, rtp_time, packet_count, octet_count)| SenderInfo {
                ssrc,
                ntp_time,
                rtp_time,
                packet_count,
                octet_count,
            },
        );
        prop_oneof![
            (info, blocks()).prop_map(|(info, blocks)| Packet::SenderReport { info, blocks }),
            (any::<u32>(), blocks())
                .prop_map(|(ssrc, blocks)| Packet::ReceiverReport { ssrc, blocks }),
            (any::<u32>(), "[a-zä]{0,100}")
                .prop_map(|name| Packet::SourceDescription { names: vec![name] }),
            (
                prop::collection::vec(any::<u32>(), 0..=COUNT_MAX),
                prop::option::of("[a-z]{0,255}")
            )
                .prop_map(|(sources, reason)| Packet::Bye { sources, reason }),
        ]
    }

    fn write(out: &mut Vec<u8>, packet: &Packet) {
        match packet {
            Packet::SenderReport { info, blocks } => write_sender_report(out, info, blocks),
            Packet::ReceiverReport { ssrc, blocks } => write_receiver_report(out, *ssrc, blocks),
            Packet::SourceDescription { names } => {
                for (ssrc, name) in names {
                    write_cname(out, *ssrc, name);
                }
            }
            Packet::Bye { sources, reason } => write_bye(out, sources, reason.as_deref()),
            Packet::Other { packet_type } => write_header(out, 0, *packet_type, 0),
        }
    }

    proptest! {
        #[test]
        fn written_packets_are_parsed_back(written in prop::collection::vec(any_packet(), 0..5)) {
            let mut bytes = Vec::new();
            for packet in &written {
                write(&mut bytes, packet);
            }
            let read: Result<Vec<Packet>, RtcpError> = packets(&bytes).collect();
            prop_assert_eq!(read, Ok(written.clone()));

            // Truncated: the packets before the cut are parsed, then comes one error, then nothing.
            let cut = bytes.len().saturating_sub(3);
            let read: Vec<_> = packets(&bytes[..cut]).collect();
            prop_assert_eq!(read.len(), written.len());
            if let Some(last) = read.last() {
                prop_assert_eq!(last, &Err(RtcpError::Truncated));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 200u8..206) {
            prop_assert!(packets(&bytes).count() <= bytes.len() / 4 + 1);
            // With a valid header, so that parsing gets beyond it.
            if bytes.len() >= 4 {
                let words = bytes.len() / 4 - 1;
                bytes[0] = 0x80 | bytes[0] & 0x3f;
                bytes[1] = kind;
                bytes[2..4].copy_from_slice(&(words as u16).to_be_bytes());
                prop_assert!(packets(&bytes).count() <= bytes.len() / 4 + 1);
            }
        }
    }

    #[test]
    fn malformed_packets_name_the_reason() {
        let all = |bytes: &[u8]| packets(bytes).collect::<Vec<_>>();
        assert_eq!(all(&[0x80]), [Err(RtcpError::Truncated)]);
        assert_eq!(all(&[0x00, 201, 0, 0]), [Err(RtcpError::Version(0))]);
        assert_eq!(
            all(&[0x81, 201, 0, 1, 0, 0, 0, 1]),
            [Err(RtcpError::Counts)]
        );
        assert_eq!(
            all(&[0xa0, 201, 0, 1, 0, 0, 0, 9]),
            [Err(RtcpError::Padding)]
        );
        assert_eq!(all(&[0xa0, 203, 0, 0]), [Err(RtcpError::Padding)]);
        assert_eq!(
            all(&[0x81, 202, 0, 1, 0, 0, 0, 1]),
            [Err(RtcpError::Counts)]
        );
        assert_eq!(
            all(&[0x80, 204, 0, 0]),
            [Ok(Packet::Other { packet_type: 204 })]
        );
    }
}

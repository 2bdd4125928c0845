//! Transport-wide congestion control feedback: arrival times of packets by their transport-wide
//! sequence numbers (draft-holmer-rmcat-transport-wide-cc-extensions-01, 3.1).

use std::time::Duration;

use super::packet_types::{RTPFB, TRANSPORT_CC};
use super::write::write_header;
use kit::media::rtcp::RtcpError;

/// Resolution of receive deltas.
pub const TICK: Duration = Duration::from_micros(250);

/// Resolution of the reference time in ticks: 64 ms.
pub(super) const TICKS_PER_REFERENCE: i64 = 256;

/// Packet status symbols.
const NOT_RECEIVED: u8 = 0;
const SMALL_DELTA: u8 = 1;
const LARGE_DELTA: u8 = 2;

/// Maximum length of a run in one chunk.
const RUN_MAX: usize = 0x1fff;

/// A feedback message: arrivals of consecutively numbered packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportCc {
    /// SSRC of the sender of this message.
    pub sender: u32,
    /// SSRC of any source of the transport; it has no further meaning.
    pub media: u32,
    /// Transport-wide sequence number of the first packet.
    pub base_sequence: u16,
    /// Reference time of the first delta, in units of 64 ms: 24 bits, signed.
    pub reference_time: i32,
    /// Number of this message (feedback packet count).
    pub feedback_count: u8,
    /// Receive delta of each packet: time since the arrival of the previously received packet, in
    /// ticks of 250 µs. `None` if the packet was not received. At most 65,535 entries.
    pub receive_deltas: Vec<Option<i16>>,
}

fn status(arrival: Option<i16>) -> u8 {
    match arrival {
        None => NOT_RECEIVED,
        Some(0..=255) => SMALL_DELTA,
        Some(_) => LARGE_DELTA,
    }
}

impl TransportCc {
    /// Parses the part of a message that follows both SSRCs.
    pub(super) fn parse(sender: u32, media: u32, body: &[u8]) -> Result<TransportCc, RtcpError> {
        let (head, mut rest) = body.split_first_chunk::<8>().ok_or(RtcpError::Counts)?;
        let [b0, b1, c0, c1, r0, r1, r2, number] = *head;
        let count = usize::from(u16::from_be_bytes([c0, c1]));
        let mut statuses = Vec::with_capacity(count.min(4096));
        while statuses.len() < count {
            let (chunk, after) = rest.split_first_chunk().ok_or(RtcpError::Counts)?;
            rest = after;
            let chunk = u16::from_be_bytes(*chunk);
            let left = count - statuses.len();
            if chunk & 0x8000 == 0 {
                let run = usize::from(chunk & 0x1fff).min(left);
                // A run of length 0 would loop forever.
                if run == 0 {
                    return Err(RtcpError::Counts);
                }
                statuses.extend(std::iter::repeat_n((chunk >> 13) as u8 & 3, run));
            } else if chunk & 0x4000 == 0 {
                let symbols = (0..14).rev().map(|bit| (chunk >> bit) as u8 & 1);
                statuses.extend(symbols.take(left));
            } else {
                let symbols = (0..7).rev().map(|pair| (chunk >> (2 * pair)) as u8 & 3);
                statuses.extend(symbols.take(left));
            }
        }
        let arrival = |status: u8| -> Result<Option<i16>, RtcpError> {
            match status {
                NOT_RECEIVED => Ok(None),
                SMALL_DELTA => {
                    let (&delta, after) = rest.split_first().ok_or(RtcpError::Counts)?;
                    rest = after;
                    Ok(Some(i16::from(delta)))
                }
                LARGE_DELTA => {
                    let (delta, after) = rest.split_first_chunk().ok_or(RtcpError::Counts)?;
                    rest = after;
                    Ok(Some(i16::from_be_bytes(*delta)))
                }
                _ => Err(RtcpError::Counts),
            }
        };
        let arrivals: Result<_, _> = statuses.into_iter().map(arrival).collect();
        Ok(TransportCc {
            sender,
            media,
            base_sequence: u16::from_be_bytes([b0, b1]),
            // Shifted left and right to extend the sign from 24 to 32 bits.
            reference_time: i32::from_be_bytes([r0, r1, r2, 0]) >> 8,
            feedback_count: number,
            receive_deltas: arrivals?,
        })
    }

    /// Appends the message to `out`.
    ///
    /// # Panics
    /// Panics if there are more than 65,535 arrivals, or if the message would exceed the maximum
    /// length of an RTCP packet (256 KiB).
    pub fn write(&self, out: &mut Vec<u8>) {
        let count = u16::try_from(self.receive_deltas.len()).expect("at most 65,535 arrivals");
        let statuses: Vec<u8> = self
            .receive_deltas
            .iter()
            .map(|arrival| status(*arrival))
            .collect();
        let mut body = Vec::new();
        body.extend_from_slice(&self.base_sequence.to_be_bytes());
        body.extend_from_slice(&count.to_be_bytes());
        body.extend_from_slice(&(self.reference_time << 8).to_be_bytes()[..3]);
        body.push(self.feedback_count);
        write_statuses(&mut body, &statuses);
        for arrival in self.receive_deltas.iter().flatten() {
            match status(Some(*arrival)) {
                SMALL_DELTA => body.push(*arrival as u8),
                _ => body.extend_from_slice(&arrival.to_be_bytes()),
            }
        }
        let padding = body.len().next_multiple_of(4) - body.len();
        body.resize(body.len() + padding, 0);
        let begin = out.len();
        let words = body.len() / 4;
        assert!(words + 2 <= usize::from(u16::MAX), "too long for RTCP");
        write_header(out, RTPFB, TRANSPORT_CC, self.sender, self.media, words);
        if padding > 0 {
            out[begin] |= 0x20;
            *body.last_mut().expect("it has a head") = padding as u8;
        }
        out.extend_from_slice(&body);
    }
}

/// Writes packet status chunks: a run length chunk for a run of one symbol, else a status vector
/// chunk of 14 one-bit or 7 two-bit symbols.
fn write_statuses(out: &mut Vec<u8>, mut statuses: &[u8]) {
    while let [first, ..] = statuses {
        let alike = |status: &&u8| *status == first;
        let run = statuses.iter().take_while(alike).count().min(RUN_MAX);
        let is_one_bit = statuses
            .iter()
            .take(14)
            .all(|status| *status != LARGE_DELTA);
        let (chunk, covered) = if run >= 14 || run == statuses.len() {
            (u16::from(*first) << 13 | run as u16, run)
        } else if is_one_bit {
            let bits = statuses.iter().take(14).zip((0..14).rev());
            let bits = bits.map(|(status, bit)| u16::from(*status) << bit);
            (0x8000 | bits.sum::<u16>(), 14)
        } else {
            let pairs = statuses.iter().take(7).zip((0..7).rev());
            let pairs = pairs.map(|(status, pair)| u16::from(*status) << (2 * pair));
            (0xc000 | pairs.sum::<u16>(), 7)
        };
        out.extend_from_slice(&chunk.to_be_bytes());
        statuses = &statuses[covered.min(statuses.len())..];
    }
}

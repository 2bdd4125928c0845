//! Packets retransmitted in a stream of their own (RFC 4588), which are turned into the originals.

use measure::Recorder;

use super::{HEADER_MAX, PADDING, Track, Tracks};
use crate::feedback::parse_rtx;
use crate::metrics as m;
use kit::media::rtp::header::{FIXED_LENGTH, Header};
use kit::media::rtp::metrics as rtp;
use session::{Arrival, MediaEvent};

/// Marker bit of the second byte.
const MARKER: u8 = 0x80;

/// Length of the original sequence number at the start of a retransmission's payload.
const OSN_LENGTH: usize = 2;

impl Tracks {
    /// Counts a packet of the retransmission stream at `at` in the repaired stream, as if it had
    /// arrived there. The packet is not counted there if it is padding, or if its original cannot
    /// be determined and no requested packet is missing.
    pub(super) fn count_retransmission(
        &mut self,
        at: usize,
        payload_type: u8,
        arrival: &Arrival<'_>,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        recorder.add(m::RTX_PACKETS, 1);
        let mut restored = std::mem::take(&mut self.restored_packet);
        restored.clear();
        let track = match self.srtp_overhead {
            0 => self.restore(at, payload_type, arrival, &mut restored),
            _ => self.restore_header(at, payload_type, arrival, &mut restored),
        };
        let event = match track {
            Some((track, more)) => {
                let again = Arrival {
                    bytes: &restored,
                    length: arrival.length - more,
                    overhead: arrival.overhead + more,
                    ..*arrival
                };
                self.count_media(track, &again, recorder)
            }
            None => {
                let wire = arrival.length + arrival.overhead;
                recorder.add(rtp::WIRE_BYTES, wire as u64);
                None
            }
        };
        self.restored_packet = restored;
        event
    }

    /// Appends the original packet. Returns its track, and by how many bytes it is shorter.
    fn restore(
        &self,
        at: usize,
        payload_type: u8,
        arrival: &Arrival<'_>,
        out: &mut Vec<u8>,
    ) -> Option<(usize, usize)> {
        let header = Header::parse(arrival.bytes, arrival.length).ok()?;
        let end = header.payload_offset + header.payload_length;
        let payload = arrival.bytes.get(header.payload_offset..end)?;
        let (sequence, payload) = parse_rtx(payload)?;
        let (repaired, payload_type) = self.repaired_track(at, payload_type)?;
        out.extend_from_slice(&arrival.bytes[..header.payload_offset]);
        self.restore_rtp_header(repaired, payload_type, sequence, out);
        out.extend_from_slice(payload);
        debug_assert!(out.len() + OSN_LENGTH <= arrival.length);
        Some((repaired, arrival.length - out.len()))
    }

    /// Appends the header of the original packet, if the payload is encrypted. Only the original
    /// sequence number is decrypted. If the packet ring did not keep it, the oldest requested
    /// packet is assumed, because servers retransmit in order.
    fn restore_header(
        &mut self,
        at: usize,
        payload_type: u8,
        arrival: &Arrival<'_>,
        out: &mut Vec<u8>,
    ) -> Option<(usize, usize)> {
        let (repaired, payload_type) = self.repaired_track(at, payload_type)?;
        // Bandwidth is probed with packets that contain only padding.
        if arrival.bytes[0] & PADDING != 0
            || arrival.length < FIXED_LENGTH + self.srtp_overhead + OSN_LENGTH
        {
            return None;
        }
        let first_packets = self.check.as_mut();
        let sequence = match first_packets.and_then(|check| check.original_sequence(arrival.bytes))
        {
            Some(sequence) => sequence,
            None => self.tracks[repaired]
                .nack_tracker
                .as_ref()?
                .oldest_requested()?,
        };
        let header = arrival.bytes.len().min(HEADER_MAX);
        out.extend_from_slice(&arrival.bytes[..header]);
        self.restore_rtp_header(repaired, payload_type, sequence, out);
        Some((repaired, OSN_LENGTH))
    }

    /// Turns the header of a retransmission into that of the original packet.
    fn restore_rtp_header(
        &self,
        repaired: usize,
        payload_type: u8,
        sequence: u16,
        header: &mut [u8],
    ) {
        header[0] &= !PADDING;
        header[1] = header[1] & MARKER | payload_type;
        header[2..4].copy_from_slice(&sequence.to_be_bytes());
        header[8..12].copy_from_slice(&self.tracks[repaired].ssrc.to_be_bytes());
    }

    /// Returns the track that is repaired by the one at `at`, and the payload type of the
    /// originals.
    fn repaired_track(&self, at: usize, payload_type: u8) -> Option<(usize, u8)> {
        let mut formats = self.formats.iter();
        let rtx = formats.find(|own| own.is_rtx && own.payload_type == payload_type)?;
        let repaired = self.track_repaired_by(self.tracks[at].ssrc, rtx.apt?)?;
        Some((repaired, rtx.apt?))
    }

    /// Returns the stream that an RTX source repairs: the one that the description names, otherwise
    /// the only one with that payload type.
    fn track_repaired_by(&self, rtx: u32, payload_type: u8) -> Option<usize> {
        let mut sources = self.sections.iter().flat_map(|section| &section.sources);
        if let Some((ssrc, _)) = sources.find(|(_, own)| *own == Some(rtx)) {
            let position = self.position(*ssrc).ok();
            return position.filter(|position| self.tracks[*position].receiver.is_some());
        }
        let may_be_repaired =
            |track: &Track| track.receiver.is_some() && track.payload_type == payload_type;
        let mut candidates =
            (0..self.tracks.len()).filter(|position| may_be_repaired(&self.tracks[*position]));
        let only = candidates.next()?;
        candidates.next().is_none().then_some(only)
    }
}

//! Packets that come again in a stream of their own (RFC 4588), and become what they were.

use measure::Recorder;

use super::{Track, Tracks};
use crate::media::rtp::header::Header;
use crate::media::rtp::metrics as rtp;
use crate::session::{Arrival, MediaEvent};
use crate::webrtc::feedback::original;
use crate::webrtc::metrics as m;

/// Bits of the first byte that say there is padding, and of the second that are the marker.
const PADDING: u8 = 0x20;
const MARKER: u8 = 0x80;

/// The bytes that a packet of retransmissions has more than the original: its sequence number.
const NUMBER: usize = 2;

impl Tracks {
    /// Takes in a packet of the stream of retransmissions at `at`. Where it can be read it counts
    /// for the stream that it belongs to, as if it had come there.
    pub(super) fn again(
        &mut self,
        at: usize,
        payload_type: u8,
        arrival: &Arrival<'_>,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        recorder.add(m::RTX_PACKETS, 1);
        let mut restored = std::mem::take(&mut self.restored);
        restored.clear();
        let place = self
            .restore(at, payload_type, arrival, &mut restored)
            .filter(|_| self.trailer == 0);
        let event = match place {
            Some(place) => {
                let again = Arrival {
                    bytes: &restored,
                    length: restored.len(),
                    overhead: arrival.overhead + arrival.length.saturating_sub(restored.len()),
                    ..*arrival
                };
                self.media(place, &again, recorder)
            }
            None => {
                let wire = arrival.length + arrival.overhead;
                recorder.add(rtp::WIRE_BYTES, wire as u64);
                None
            }
        };
        self.restored = restored;
        event
    }

    /// Appends the packet that is carried, and says in which track it is.
    fn restore(
        &self,
        at: usize,
        payload_type: u8,
        arrival: &Arrival<'_>,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let header = Header::parse(arrival.bytes, arrival.length).ok()?;
        let end = header.payload_offset + header.payload_length;
        let payload = arrival.bytes.get(header.payload_offset..end)?;
        let (sequence, payload) = original(payload)?;
        let mut agreed = self.agreed.iter();
        let repairs = agreed.find(|own| own.is_rtx && own.payload_type == payload_type)?;
        let place = self.repaired_by(self.tracks[at].ssrc, repairs.apt?)?;
        let payload_type = repairs.apt?;
        out.extend_from_slice(&arrival.bytes[..header.payload_offset]);
        out[0] &= !PADDING;
        out[1] = out[1] & MARKER | payload_type;
        out[2..4].copy_from_slice(&sequence.to_be_bytes());
        out[8..12].copy_from_slice(&self.tracks[place].ssrc.to_be_bytes());
        out.extend_from_slice(payload);
        debug_assert!(out.len() + NUMBER <= arrival.length);
        Some(place)
    }

    /// The stream that is repaired by that one: as the description says, or else the only one of
    /// that payload type.
    fn repaired_by(&self, rtx: u32, payload_type: u8) -> Option<usize> {
        let mut sources = self.sections.iter().flat_map(|section| &section.sources);
        if let Some((ssrc, _)) = sources.find(|(_, own)| *own == Some(rtx)) {
            let place = self.tracks.binary_search_by_key(ssrc, |track| track.ssrc);
            return place
                .ok()
                .filter(|place| self.tracks[*place].receiver.is_some());
        }
        let is_of = |track: &Track| track.receiver.is_some() && track.payload_type == payload_type;
        let mut places = (0..self.tracks.len()).filter(|place| is_of(&self.tracks[*place]));
        let only = places.next()?;
        places.next().is_none().then_some(only)
    }
}

//! Contents of payloads: time codes, and the first picture with which a decoder can begin.

use measure::{Recorder, Time};

use super::{RtpMetrics, RtpReceiver};
use crate::media::rtp::VideoCodec;
use crate::media::rtp::frame_assembler::PictureSearch;
use crate::media::rtp::header::Header;
use crate::mediagen::time_code::TimeCode;
use session::Arrival;

impl RtpReceiver {
    /// Searches for the first key frame. The first bytes of each payload have to be captured until
    /// it is found.
    pub fn with_picture(mut self, codec: VideoCodec) -> RtpReceiver {
        self.playout.expect_picture(PictureSearch::Awaited(codec));
        self
    }

    /// Arrival of the first packet of the first key frame. Without a search for it
    /// ([`RtpReceiver::with_picture`]), of the first packet.
    pub fn first_picture(&self) -> Option<Time> {
        match self.playout.picture() {
            None => self.first_arrival,
            Some(PictureSearch::Awaited(_)) => None,
            Some(PictureSearch::Found(at)) => Some(at),
        }
    }

    /// Searches the payload of a packet. Parses the header again: the payloads of few streams are
    /// searched, and keeping the parsed header for them would cost every packet.
    #[cold]
    pub(super) fn read_payload(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) {
        let Ok(header) = Header::parse(arrival.bytes, arrival.length) else {
            return;
        };
        let payload = arrival.bytes.get(header.payload_offset..);
        let Some(payload) = payload.filter(|_| self.payload_types.has(header.payload_type)) else {
            return;
        };
        if let Some(codes) = self.playout.codes()
            && let Some(code) = TimeCode::find(payload)
        {
            codes.frame_code::<RtpMetrics>(header.timestamp, code, recorder);
        }
        if let Some(PictureSearch::Awaited(codec)) = self.playout.picture()
            && codec.begins_key_frame(payload)
        {
            self.playout
                .expect_picture(PictureSearch::Found(arrival.at));
        }
    }
}

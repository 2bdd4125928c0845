//! Packets without payload: padding only (RFC 3550, 5.1), which senders use to probe the path.
//!
//! Padding packets use sequence numbers of the stream, so they count as expected, received and
//! lost. They are not media: they belong to no frame, their timestamps are ignored, and a stream
//! with only padding is silent.

use measure::Recorder;

use super::super::metrics as m;
use super::super::sequence::{NewNumber, SequenceClass};
use super::{BaseStatement, ReceivedPacket, RtpReceiver};
use session::MediaEvent;

impl RtpReceiver {
    /// Handles a packet without payload.
    #[cold]
    pub(super) fn handle_padding(&mut self, packet: &ReceivedPacket, recorder: &mut Recorder) {
        let Some(source) = &mut self.source else {
            return self.begin_with_padding(packet, recorder);
        };
        let class = match source.ssrc == packet.ssrc {
            true => source.sequence.classify(packet.sequence, recorder),
            false => SequenceClass::TooFarAhead,
        };
        match class {
            SequenceClass::New(number) => self.count_padding(number, recorder),
            SequenceClass::Duplicate => {
                recorder.count(&mut self.counts.duplicated, m::DUPLICATED, 1);
            }
            SequenceClass::TooFarBehind => recorder.count(&mut self.counts.late, m::LATE, 1),
            SequenceClass::TooFarAhead => return self.count_malformed(recorder),
        }
        self.count_arrival();
    }

    fn count_padding(&mut self, number: NewNumber, recorder: &mut Recorder) {
        self.count_number(number, recorder);
        self.playout.padding(number.extended);
    }

    /// Begins a stream whose first packet is not media: its sequence numbers count from here.
    fn begin_with_padding(&mut self, packet: &ReceivedPacket, recorder: &mut Recorder) {
        let number = self.begin_source(packet, true);
        self.count_arrival();
        self.count_padding(number, recorder);
        // The timestamp of padding is not a media timestamp.
        if let BaseStatement::StatedWithTime(seq, _) = self.base {
            self.base = BaseStatement::Stated(seq);
        }
        self.compare_base(self.base, packet.timestamp, recorder);
    }

    /// Handles the first media packet after padding only.
    #[cold]
    pub(super) fn begin_media(
        &mut self,
        packet: &ReceivedPacket,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        let class = match &mut self.source {
            Some(source) if source.ssrc == packet.ssrc => {
                source.only_padding = false;
                source.newest = packet.packet_time();
                source.sequence.classify(packet.sequence, recorder)
            }
            _ => SequenceClass::TooFarAhead,
        };
        let SequenceClass::New(number) = class else {
            // The padding belonged to another stream.
            self.source = None;
            self.begin_stream(packet, recorder);
            return Some(MediaEvent::First { at: packet.at });
        };
        self.media_begins(packet);
        self.count_first_copy::<true>(packet, number, recorder);
        self.count_copy(packet, recorder);
        Some(MediaEvent::First { at: packet.at })
    }
}

//! Packets without payload: padding only (RFC 3550, 5.1), which senders use to probe the path.
//!
//! Padding packets use sequence numbers of the stream, so they count as expected, received and
//! lost. They are not media: they belong to no frame, their timestamps are ignored, and a stream
//! with only padding is silent.

use measure::Recorder;

use super::super::metrics as m;
use super::super::sequence::{SequenceClass, SequenceTracker};
use super::{BaseStatement, CurrentSource, ReceivedPacket, RtpReceiver, SenderReports};
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
            SequenceClass::New {
                extended,
                grown,
                distance,
            } => {
                source.arrived += 1;
                self.count_padding(extended, grown, distance, recorder);
            }
            SequenceClass::Duplicate => {
                source.arrived += 1;
                self.counts.duplicated += 1;
                recorder.add(m::DUPLICATED, 1);
            }
            SequenceClass::TooFarBehind => {
                source.arrived += 1;
                self.counts.late += 1;
                recorder.add(m::LATE, 1);
            }
            SequenceClass::TooFarAhead => self.count_malformed(recorder),
        }
    }

    fn count_padding(&mut self, extended: u64, grown: u64, distance: u64, recorder: &mut Recorder) {
        self.counts.received += 1;
        recorder.add(m::RECEIVED, 1);
        self.counts.expected += grown;
        recorder.add(m::EXPECTED, grown);
        if distance > 0 {
            self.counts.reordered += 1;
            recorder.add(m::REORDERED, 1);
            recorder.record(m::REORDER_DISTANCE, distance);
        }
        self.playout.padding(extended);
    }

    /// Begins a stream whose first packet is not media: its sequence numbers count from here.
    fn begin_with_padding(&mut self, packet: &ReceivedPacket, recorder: &mut Recorder) {
        let sequence = SequenceTracker::new(packet.sequence);
        let extended = sequence.highest();
        self.source = Some(CurrentSource {
            ssrc: packet.ssrc,
            first: packet.sequence,
            only_padding: true,
            sequence,
            newest: packet.packet_time(),
            arrived: 1,
            reported: (0, 0),
        });
        if self.report.ssrc != packet.ssrc {
            self.report = SenderReports::default();
        }
        self.count_padding(extended, 1, 0, recorder);
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
        let SequenceClass::New {
            extended,
            grown,
            distance,
        } = class
        else {
            // The padding belonged to another stream.
            self.source = None;
            self.begin_stream(packet, recorder);
            return Some(MediaEvent::First { at: packet.at });
        };
        self.media_begins(packet);
        self.count_first_copy::<true>(packet, extended, grown, distance, recorder);
        self.count_copy(packet, recorder);
        Some(MediaEvent::First { at: packet.at })
    }
}

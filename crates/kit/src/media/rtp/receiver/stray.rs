//! Packets that do not fit the stream: each is judged when the next one arrives.

use measure::{Recorder, Time};

use super::super::header::Header;
use super::super::metrics as m;
use super::super::outage::{ClockComparison, PacketTime};
use super::super::sequence::{MAX_DROPOUT, WINDOW};
use super::RtpReceiver;
use session::MediaEvent;

/// Maximum distance of the sequence numbers of two packets that restart a stream.
const RESTART_DISTANCE_MAX: u16 = 16;

/// An RTP packet that the receiver is classifying. If it does not fit the stream, it is kept until
/// the next packet: it may be the first of a new stream, or a stray.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedPacket {
    pub(super) ssrc: u32,
    pub(super) sequence: u16,
    pub(super) marker: bool,
    /// True if the packet is far behind in the current stream: late if no other follows it.
    pub(super) behind: bool,
    /// True if the packet is from the current source and its time fits: packets in between were
    /// lost.
    pub(super) after_outage: bool,
    pub(super) timestamp: u32,
    pub(super) payload_length: usize,
    pub(super) at: Time,
}

impl ReceivedPacket {
    #[inline]
    pub(super) fn new(header: &Header, at: Time) -> ReceivedPacket {
        ReceivedPacket {
            ssrc: header.ssrc,
            sequence: header.sequence,
            marker: header.marker,
            behind: false,
            after_outage: false,
            timestamp: header.timestamp,
            payload_length: header.payload_length,
            at,
        }
    }

    #[inline]
    pub(super) fn packet_time(&self) -> PacketTime {
        PacketTime {
            at: self.at,
            timestamp: self.timestamp,
        }
    }

    /// True if `other` would belong to the stream, if this packet were the highest.
    pub(super) fn is_near(&self, other: &ReceivedPacket) -> bool {
        let ahead = other.sequence.wrapping_sub(self.sequence);
        ahead < MAX_DROPOUT || u64::from(ahead.wrapping_neg()) < WINDOW
    }
}

impl RtpReceiver {
    /// Handles a packet that does not fit the stream.
    #[cold]
    pub(super) fn handle_stray(
        &mut self,
        mut packet: ReceivedPacket,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        if let Some(first) = self.stray
            && first.ssrc == packet.ssrc
        {
            let apart = packet.sequence.wrapping_sub(first.sequence) as i16;
            if apart == 0 {
                recorder.count(&mut self.counts.duplicated, m::DUPLICATED, 1);
                return None;
            }
            if first.after_outage && self.confirms(&first, &packet) {
                self.stray = None;
                self.continue_after_outage(&first, recorder);
                return self.handle_at_position::<true>(packet, recorder);
            }
            if apart.unsigned_abs() <= RESTART_DISTANCE_MAX {
                self.stray = None;
                return self.restart_stream(&first, &packet, recorder);
            }
        }
        self.reject_stray(recorder);
        packet.after_outage = self
            .source
            .as_ref()
            .is_some_and(|source| source.is_after_outage(&packet, self.clock_rate));
        self.stray = Some(packet);
        None
    }

    /// True if `second` confirms that `first`, which came after an outage, belongs to the stream:
    /// by its number, or by its time if there was another outage between them.
    fn confirms(&self, first: &ReceivedPacket, second: &ReceivedPacket) -> bool {
        first.is_near(second)
            || first
                .packet_time()
                .compare_elapsed(second.packet_time(), self.clock_rate)
                != ClockComparison::Disagree
    }

    /// Continues after an outage: all numbers before this packet are lost.
    pub(super) fn continue_after_outage(
        &mut self,
        packet: &ReceivedPacket,
        recorder: &mut Recorder,
    ) {
        if let Some(source) = &mut self.source {
            let number = source.sequence.skip_to(packet.sequence, recorder);
            self.count_first_copy::<true>(packet, number, recorder);
            self.count_copy(packet, recorder);
        }
    }

    /// Counts a stray that no other packet confirmed as late or malformed.
    #[cold]
    pub(super) fn reject_stray(&mut self, recorder: &mut Recorder) {
        match self.stray.take() {
            Some(stray) if stray.behind => {
                recorder.count(&mut self.counts.late, m::LATE, 1);
                self.count_arrival();
            }
            Some(_) => self.count_malformed(recorder),
            None => {}
        }
    }

    #[cold]
    pub(super) fn count_malformed(&mut self, recorder: &mut Recorder) {
        recorder.count(&mut self.counts.malformed, m::MALFORMED, 1);
    }
}

//! Packets that fit no stream as yet: each is judged when the next one comes.

use measure::{Recorder, Time};

use super::super::header::Header;
use super::super::metrics as m;
use super::super::outage::{Clocks, Moment};
use super::super::sequence::{MAX_DROPOUT, WINDOW};
use super::RtpReceiver;
use crate::session::MediaEvent;

/// How far apart the sequence numbers of the two packets may be that begin a stream anew.
const NEAR: u16 = 16;

/// A packet that fits no stream as yet: the first of a new one, or a stray.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stray {
    pub(super) ssrc: u32,
    pub(super) sequence: u16,
    pub(super) marker: bool,
    /// Whether it is far behind in the stream that is received, so late where nothing follows it.
    pub(super) behind: bool,
    /// Whether it is of the source that is received and its time fits: what lies between was lost.
    pub(super) after_outage: bool,
    pub(super) timestamp: u32,
    pub(super) payload_length: usize,
    pub(super) at: Time,
}

impl Stray {
    #[inline]
    pub(super) fn new(header: &Header, at: Time) -> Stray {
        Stray {
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
    pub(super) fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            timestamp: self.timestamp,
        }
    }

    /// Whether another packet would be of the stream, were this one the highest of it.
    pub(super) fn is_near(&self, other: &Stray) -> bool {
        let ahead = other.sequence.wrapping_sub(self.sequence);
        ahead < MAX_DROPOUT || u64::from(ahead.wrapping_neg()) < WINDOW
    }
}

impl RtpReceiver {
    /// Takes a packet that does not fit the stream.
    #[cold]
    pub(super) fn stray(
        &mut self,
        mut packet: Stray,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        if let Some(first) = self.stray
            && first.ssrc == packet.ssrc
        {
            let apart = packet.sequence.wrapping_sub(first.sequence) as i16;
            if apart == 0 {
                self.counts.duplicated += 1;
                recorder.add(m::DUPLICATED, 1);
                return None;
            }
            if first.after_outage && self.follows(&first, &packet) {
                self.stray = None;
                self.go_on(&first, recorder);
                return self.take_here::<true>(packet, recorder);
            }
            if apart.unsigned_abs() <= NEAR {
                self.stray = None;
                return self.begin_anew(&first, &packet, recorder);
            }
        }
        self.judge_stray(recorder);
        packet.after_outage = self
            .source
            .as_ref()
            .is_some_and(|source| source.is_after_outage(&packet, self.clock_rate));
        self.stray = Some(packet);
        None
    }

    /// Whether a packet bears out that the one before it, which came after an outage, is of the
    /// stream: by its number, or by its time where there was another outage between them.
    fn follows(&self, first: &Stray, second: &Stray) -> bool {
        first.is_near(second)
            || first.moment().until(second.moment(), self.clock_rate) != Clocks::Disagree
    }

    /// Goes on after an outage: all up to this packet was lost.
    pub(super) fn go_on(&mut self, packet: &Stray, recorder: &mut Recorder) {
        if let Some(source) = &mut self.source {
            let (extended, grown) = source.sequence.skip(packet.sequence, recorder);
            self.first_copy::<true>(packet, extended, grown, 0, recorder);
            self.any_copy(packet, recorder);
        }
    }

    /// Gives up a packet that nothing followed.
    #[cold]
    pub(super) fn judge_stray(&mut self, recorder: &mut Recorder) {
        match self.stray.take() {
            Some(stray) if stray.behind => {
                self.counts.late += 1;
                recorder.add(m::LATE, 1);
                if let Some(source) = &mut self.source {
                    source.arrived += 1;
                }
            }
            Some(_) => self.malformed(recorder),
            None => {}
        }
    }

    #[cold]
    pub(super) fn malformed(&mut self, recorder: &mut Recorder) {
        self.counts.malformed += 1;
        recorder.add(m::MALFORMED, 1);
    }
}

//! Feedback to the server: receiver reports and requests for missing packets.

use std::time::Duration;

use measure::{Recorder, Time};

use super::{KeyFrameRequest, STREAMS_PER_CALL, Track, Tracks};
use crate::feedback;
use crate::metrics as m;
use kit::media::rtcp;

/// Time for which a stream is reported after its last packet, as in browsers. RFC 3550, 6.4 limits
/// reports to sources heard since the last one; a stream that is lost entirely would then seem
/// healthy.
const ACTIVE_FOR: Duration = Duration::from_secs(8);

/// Minimum interval between requests for the same packet, as in browsers: a server may process
/// requests only this often.
const REQUEST_INTERVAL_MIN: Duration = Duration::from_millis(100);

impl Track {
    /// Returns `true` if the stream must be reported: it has recent packets, and its source sent no
    /// BYE.
    pub(super) fn is_active(&self, now: Time) -> bool {
        let last = self.receiver.as_ref().and_then(|own| own.last_arrival());
        !self.bye_received && last.is_some_and(|last| now.since(last) < ACTIVE_FOR)
    }
}

impl Tracks {
    /// Writes a report on each stream, in a compound of its own: Janus assigns the rest of a
    /// compound to the first of its streams. Begins with the stream at `from`, covers at most
    /// [`STREAMS_PER_CALL`] streams and returns where to continue. `send` may append to the
    /// compound.
    pub(crate) fn write_reports(
        &mut self,
        now: Time,
        own: u32,
        cname: &str,
        from: usize,
        mut send: impl FnMut(&mut Vec<u8>),
    ) -> Option<usize> {
        let mut compound = Vec::with_capacity(64);
        for track in self.tracks.iter_mut().skip(from).take(STREAMS_PER_CALL) {
            if !track.is_active(now) {
                continue;
            }
            let Some(receiver) = &mut track.receiver else {
                continue;
            };
            compound.clear();
            let block = receiver.report_block(now);
            rtcp::write_receiver_report(&mut compound, own, &[block]);
            rtcp::write_cname(&mut compound, own, cname);
            send(&mut compound);
        }
        Some(from + STREAMS_PER_CALL).filter(|next| *next < self.tracks.len())
    }

    /// Returns `true` if missing packets may be requested.
    pub(crate) fn may_request(&self) -> bool {
        self.nack_enabled && self.formats.iter().any(|format| format.nack)
    }

    /// True if packets are missing that may be requested now or later. Enables the report of the
    /// next gap ([`MediaEvent::FeedbackDue`](session::MediaEvent)), even if older gaps are
    /// open: the first NACK waits for no timer.
    pub(crate) fn has_requests(&mut self) -> bool {
        let mut all = self
            .tracks
            .iter()
            .filter_map(|track| track.nack_tracker.as_ref());
        self.reports_next_gap = true;
        all.any(|tracker| tracker.has_requests())
    }

    /// Returns `true` if the last call of [`Tracks::write_requests`] left streams for the next
    /// one.
    pub(crate) fn has_more_requests(&self) -> bool {
        self.next_nack_track > 0
    }

    /// Requests missing packets, in a compound for each stream, for at most [`STREAMS_PER_CALL`]
    /// streams; the others follow in the next call. A packet is requested again after `round_trip`.
    /// Returns the number of key frame requests.
    pub(crate) fn write_requests(
        &mut self,
        now: Time,
        own: u32,
        round_trip: Option<Duration>,
        mut send: impl FnMut(&[u8]),
    ) -> u64 {
        let (mut key_frames, mut streams) = (0, 0);
        let (mut compound, mut missing) = (Vec::new(), Vec::new());
        let retry_interval = round_trip.unwrap_or_default().max(REQUEST_INTERVAL_MIN);
        let count = self.tracks.len();
        let first = std::mem::take(&mut self.next_nack_track) % count.max(1);
        for index in (first..count).chain(0..first) {
            if streams >= STREAMS_PER_CALL {
                self.next_nack_track = index;
                break;
            }
            let track = &mut self.tracks[index];
            let Some(tracker) = &mut track.nack_tracker else {
                continue;
            };
            tracker.set_round_trip(retry_interval);
            let needed = tracker.take_key_frame_needed();
            let key_frame = track.key_frame_request.filter(|_| needed);
            if key_frame.is_none() && tracker.next_due().is_none_or(|due| due > now) {
                continue;
            }
            missing.clear();
            tracker.take_requests(now, &mut missing);
            if missing.is_empty() && key_frame.is_none() {
                continue;
            }
            compound.clear();
            rtcp::write_receiver_report(&mut compound, own, &[]);
            if !missing.is_empty() {
                feedback::write_nack(&mut compound, own, track.ssrc, &missing);
            }
            match key_frame {
                Some(KeyFrameRequest::Pli) => feedback::write_pli(&mut compound, own, track.ssrc),
                Some(KeyFrameRequest::Fir) => {
                    track.fir_sequence = track.fir_sequence.wrapping_add(1);
                    feedback::write_fir(&mut compound, own, track.ssrc, track.fir_sequence);
                }
                None => {}
            }
            key_frames += u64::from(key_frame.is_some());
            streams += 1;
            send(&compound);
        }
        key_frames
    }

    /// Adds the packets requested and recovered since the last call to the metrics.
    pub(crate) fn record_requests(&mut self, recorder: &mut Recorder) {
        let all = self
            .tracks
            .iter()
            .filter_map(|track| track.nack_tracker.as_ref());
        let counts = all.map(|tracker| tracker.counts());
        let now = counts.fold([0; 2], |[requested, recovered], own| {
            [requested + own.requested, recovered + own.recovered]
        });
        let counters = [m::ASKED_PACKETS, m::RECOVERED_PACKETS];
        m::add_new(recorder, counters, &mut self.counted_requests, now);
    }
}

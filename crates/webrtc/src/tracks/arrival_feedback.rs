//! Arrival times of a PeerConnection's packets, and its bandwidth estimate (REMB).

use std::time::Duration;

use measure::Time;

use super::Tracks;
use crate::extension;
use crate::feedback::{self, Arrivals};
use kit::media::rtcp;
use session::{Arrival, MediaEvent};

/// Loss up to which the estimate is not reduced; senders use the same limit
/// (draft-ietf-rmcat-gcc-02, 6).
const LOSS_HIGH: f64 = 0.1;

/// Minimum estimate, in bits per second: enough for a sender to start with.
const ESTIMATE_MIN: f64 = 300_000.0;

/// Arrivals by transport-wide sequence number.
#[derive(Debug)]
pub(super) struct ArrivalFeedback {
    /// ID of the header extension.
    extension: u8,
    arrivals: Arrivals,
    /// SSRC of the last packet.
    media: u32,
    /// True if the first number must be reported to the session, which polls rarely.
    reports_first: bool,
}

/// Counts at the time of an estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EstimateCounts {
    at: Option<Time>,
    bytes: u64,
    expected: u64,
    received: u64,
}

impl Tracks {
    /// Enables the recording of arrival times, by the numbers in that header extension; `None`
    /// disables it.
    pub(crate) fn set_arrivals_extension(&mut self, extension: Option<u8>) {
        let known = self.arrival_feedback.as_ref().map(|own| own.extension);
        if known != extension {
            self.arrival_feedback = extension.map(|extension| {
                Box::new(ArrivalFeedback {
                    extension,
                    arrivals: Arrivals::default(),
                    media: 0,
                    reports_first: false,
                })
            });
        }
    }

    /// Returns `true` if arrival times are recorded.
    pub(crate) fn records_arrivals(&self) -> bool {
        self.arrival_feedback.is_some()
    }

    /// Returns `true` if arrival times are recorded and media has arrived, but without numbers.
    /// Some servers negotiate numbers and send none, others number video but not audio. The first
    /// number is then reported to the session.
    pub(crate) fn lacks_numbers(&mut self) -> bool {
        let mut receivers = self.tracks.iter().filter_map(|own| own.receiver.as_ref());
        let Some(feedback) = &mut self.arrival_feedback else {
            return false;
        };
        let lacks =
            !feedback.arrivals.has_arrivals() && receivers.any(|own| own.counts().received > 0);
        feedback.reports_first = lacks;
        lacks
    }

    /// Returns the event for the first number, if the session waits for it.
    pub(super) fn first_number_event(&mut self) -> Option<MediaEvent> {
        let feedback = self.arrival_feedback.as_mut()?;
        std::mem::take(&mut feedback.reports_first).then_some(MediaEvent::FirstTransportNumber)
    }

    /// Writes compounds with the arrivals since the last call. Returns the number of packets in
    /// those compounds that `send` accepted.
    pub(crate) fn write_arrivals(&mut self, own: u32, mut send: impl FnMut(&[u8]) -> bool) -> u64 {
        let Some(feedback) = &mut self.arrival_feedback else {
            return 0;
        };
        let (mut reported, mut compound) = (0, Vec::new());
        loop {
            let before = feedback.arrivals.counts().reported;
            compound.clear();
            rtcp::write_receiver_report(&mut compound, own, &[]);
            if !feedback.arrivals.write(own, feedback.media, &mut compound) {
                return reported;
            }
            if send(&compound) {
                reported += feedback.arrivals.counts().reported - before;
            }
        }
    }

    /// Appends a REMB and returns it, in bits per second. The estimate is 1.5 times the rate
    /// received since the last call. If more than 10 % of the packets were lost, it is reduced by
    /// half of that share. Returns `None` on the first call, without recent media, or within 100 ms
    /// of the last call.
    pub(crate) fn write_remb(
        &mut self,
        now: Time,
        own: u32,
        compound: &mut Vec<u8>,
    ) -> Option<u64> {
        let mut sum = EstimateCounts {
            at: Some(now),
            ..EstimateCounts::default()
        };
        let mut sources = Vec::new();
        for track in &self.tracks {
            if let Some(receiver) = &track.receiver {
                let counts = receiver.counts();
                sum.bytes += counts.wire_bytes;
                sum.expected += counts.expected;
                sum.received += counts.received;
                sources.extend(track.is_active(now).then_some(track.ssrc));
            }
        }
        let before = std::mem::replace(&mut self.last_estimate, sum);
        let span = now.since(before.at?);
        if span < Duration::from_millis(100) || sources.is_empty() {
            return None;
        }
        let rate = (sum.bytes - before.bytes) as f64 * 8.0 / span.as_secs_f64();
        let expected = sum.expected.saturating_sub(before.expected);
        let received = sum.received.saturating_sub(before.received);
        // Late packets may belong to the previous estimate.
        let lost = expected.saturating_sub(received) as f64;
        let loss = lost / expected.max(1) as f64;
        let factor = match loss > LOSS_HIGH {
            true => 1.0 - loss / 2.0,
            false => 1.0,
        };
        let estimate = ((rate * 1.5).max(ESTIMATE_MIN) * factor) as u64;
        feedback::write_remb(compound, own, estimate, &sources);
        Some(estimate)
    }
}

impl ArrivalFeedback {
    /// Records the arrival of a packet. Returns `true` if the session waits for its number.
    #[inline]
    pub(super) fn record_arrival(&mut self, ssrc: u32, arrival: &Arrival<'_>) -> bool {
        let Some(&[high, low]) = extension::find_element(arrival.bytes, self.extension) else {
            return false;
        };
        self.media = ssrc;
        let number = u16::from_be_bytes([high, low]);
        self.arrivals.record_arrival(number, arrival.at);
        self.reports_first
    }
}

//! Feedback that controls the bit rate of outgoing media.

use super::*;

impl OutgoingMedia {
    /// Handles transport feedback.
    pub(super) fn handle_transport_feedback(
        &mut self,
        message: &TransportCc,
        now: Time,
        flows: &mut Flows,
    ) {
        let Some(congestion) = &mut self.congestion else {
            return;
        };
        for stream in &self.streams {
            stream.access(flows, |encrypted| {
                let follows = matches!(encrypted.media, StreamMedia::Live(_));
                if let Some(numbered) = &mut encrypted.numbering {
                    numbered.collect_into(follows, congestion);
                }
            });
        }
        congestion.handle_transport_feedback(now, message);
        self.apply_estimate(flows);
    }

    /// Sets the bit rate of the video to the estimate.
    pub(super) fn apply_estimate(&mut self, flows: &mut Flows) {
        let Some(congestion) = &self.congestion else {
            return;
        };
        let (_, target) = congestion.estimate();
        // Each change is a message to the thread that sends, so changes below 1 % are skipped.
        if target.abs_diff(self.requested_bitrate) * 100 < self.requested_bitrate {
            return;
        }
        self.requested_bitrate = target;
        for stream in &self.streams {
            stream.access(flows, |encrypted| {
                if let StreamMedia::Live(flow) = &mut encrypted.media {
                    self.target = flow.set_bitrate(target);
                }
            });
        }
    }
}

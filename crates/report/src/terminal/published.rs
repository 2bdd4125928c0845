//! What is shown of clients that publish, and of frames from end to end.

use measure::Unit;

use super::Screen;
use crate::human::{count, figure, figure_or_dash};
use crate::model::Metrics;

impl Screen {
    /// What a population sent; says whether it sent anything.
    pub(super) fn published(&mut self, metrics: &Metrics) -> bool {
        let Some(packets) = metrics.value("sent_packets").filter(|&sent| sent > 0.0) else {
            return false;
        };
        let rate = figure_or_dash(Unit::BitsPerSecond, metrics.value("sent_bitrate"));
        let frames = count(metrics.value("sent_frames").unwrap_or(0.0));
        let text = format!(
            "{rate} of media; {frames} frames in {} packets",
            count(packets)
        );
        self.row("sent", &text);
        if let Some(delay) = metrics.find("publish_delay") {
            self.distribution("publish delay", delay, "p50");
        }
        if metrics
            .value("receiver_reports")
            .is_some_and(|reports| reports > 0.0)
        {
            let lost = metrics.value("reported_lost").unwrap_or(0.0);
            self.row(
                "server says",
                &format!("{} packets lost on the way to it", count(lost)),
            );
        }
        true
    }

    /// How long frames of a publisher of ours were on their way, and how many did not come.
    pub(super) fn frames(&mut self, metrics: &Metrics) {
        let Some(published) = metrics.value("frames_published").filter(|&all| all > 0.0) else {
            return;
        };
        if let Some(delay) = metrics.find("frame_delay") {
            self.distribution("frame delay", delay, "p50");
        }
        let missed = published - metrics.value("frames_delivered").unwrap_or(0.0);
        let share = metrics.value("frame_loss").unwrap_or(0.0);
        let text = format!(
            "{}   {} of {} did not come whole",
            figure(Unit::Ratio, share),
            count(missed.max(0.0)),
            count(published)
        );
        self.row("frames lost", &text);
        let ahead = metrics
            .value("time_codes_ahead")
            .filter(|&ahead| ahead > 0.0);
        if let Some(ahead) = ahead {
            let text = format!(
                "{} frames came before they were sent: the clocks differ",
                count(ahead)
            );
            self.row("clocks", &text);
        }
    }
}

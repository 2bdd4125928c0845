//! Sources of the run in the summary.

use measure::Unit;

use super::Screen;
use crate::human::{count, figure, plural, ratio, seconds};
use crate::model::Report;

impl Screen {
    /// Writes the multicast that the run itself sent, and the accuracy of its pacing.
    pub(super) fn sources(&mut self, report: &Report) {
        let Some(sources) = &report.sources else {
            return;
        };
        let rate = figure(Unit::BitsPerSecond, sources.bits_per_second() as f64);
        let groups = plural(sources.streams.len() as f64, "group", "groups");
        self.heading("sources", &format!("{groups}, {rate} in total"));
        let mut text = format!(
            "{} of {} datagrams",
            count(sources.sent() as f64),
            count(sources.datagrams() as f64)
        );
        let refused = sources.refused();
        if refused > 0 {
            text += &format!(
                "; the network stack refused {} of them",
                count(refused as f64)
            );
        }
        self.row("sent", &text);
        let pacing = &sources.pacing;
        if let (Some(half), Some(most), Some(last), Some(bursts)) = (
            pacing.lateness_p50_seconds,
            pacing.lateness_p99_seconds,
            pacing.lateness_max_seconds,
            sources.burst_share(),
        ) {
            let text = format!(
                "lateness p50 {}, p99 {}, max {}; {} left in bursts",
                seconds(half),
                seconds(most),
                seconds(last),
                ratio(bursts)
            );
            self.row("pacing", &text);
        }
        if self.layout.verbose {
            for stream in &sources.streams {
                let text = format!(
                    "{}: {} of {} datagrams to {}",
                    stream.source,
                    count(stream.sent as f64),
                    count(stream.datagrams as f64),
                    stream.url
                );
                self.row("", &text);
            }
        }
    }
}

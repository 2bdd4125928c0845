//! What is said of transport streams.

use super::Screen;
use crate::human::{count, plural};
use crate::model::{Figures, Metrics};

impl Screen {
    /// How whole the streams were, and when a viewer could begin, where that was looked at. `began`: whether anybody did, in the time
    /// that counts.
    pub(super) fn multiplex(&mut self, metrics: &Metrics, began: bool) {
        if metrics
            .value("ts_packets")
            .is_none_or(|packets| packets == 0.0)
        {
            return;
        }
        let number = |name: &str| metrics.value(name).unwrap_or(0.0);
        let list = |named: &[(&str, &str)]| {
            let found = named.iter().filter(|(name, _)| number(name) > 0.0);
            let found: Vec<String> = found
                .map(|(name, words)| format!("{} {words}", count(number(name))))
                .collect();
            found.join(", ")
        };
        let wrong = list(&[
            ("foreign", "datagrams of another group or source"),
            ("old_channel", "of them of the channel before"),
            ("damaged", "damaged"),
            ("stray_packets", "packets of no datagram"),
            ("late", "too old to tell"),
        ]);
        if !wrong.is_empty() {
            self.row("content", &wrong);
        }
        let broken = list(&[
            ("sync_losses", "losses of sync"),
            ("continuity_errors", "continuity errors"),
            ("transport_errors", "packets marked as damaged"),
            ("table_errors", "damaged tables"),
            ("pcr_jumps", "jumps of the clock"),
            ("malformed", "malformed packets"),
        ]);
        match broken.is_empty() {
            true => self.row("stream", "in sync, and every packet follows the one before"),
            false => self.row("stream", &broken),
        }
        if let Some(delay) = metrics.find("random_access_delay") {
            match delay.figures {
                Figures::Distribution(None) if !began => {}
                Figures::Distribution(None) => {
                    self.row(
                        "to picture",
                        "none: nothing came with which a decoder can begin",
                    );
                }
                _ => self.distribution("to picture", delay, "p50"),
            }
        }
        let delay = metrics.find("datagram_delay");
        if let Some(delay) =
            delay.filter(|delay| matches!(delay.figures, Figures::Distribution(Some(_))))
        {
            self.distribution("relay delay", delay, "p50");
        }
        let ahead = number("stamps_ahead");
        if ahead > 0.0 {
            let text = format!(
                "{} datagrams came before they were sent: the clocks differ",
                count(ahead)
            );
            self.row("clocks", &text);
        }
    }

    /// How changes of channel went, where there were any.
    pub(super) fn changes(&mut self, metrics: &Metrics) {
        let number = |name: &str| metrics.value(name).unwrap_or(0.0);
        let zaps = number("zaps");
        if zaps == 0.0 {
            return;
        }
        let (failed, unfinished) = (number("zaps_failed"), number("zaps_unfinished"));
        let mut text = plural(zaps, "change of channel", "changes of channel");
        if failed > 0.0 {
            let ways = [
                ("503", "with status 503"),
                ("status", "with another status"),
                ("connect", "without a connection"),
                ("silent", "silent"),
                ("broken", "broken off"),
                ("not_ts", "no transport stream"),
                ("wrong_channel", "another channel"),
                ("local", "the tester's own limits"),
            ];
            let count_of = |way: &str| number(&format!("zaps_failed_{way}"));
            let ways = ways.iter().filter(|(way, _)| count_of(way) > 0.0);
            let ways: Vec<String> = ways
                .map(|(way, words)| format!("{} {words}", count(count_of(way))))
                .collect();
            text += &format!("; {} FAILED ({})", count(failed), ways.join(", "));
        }
        if unfinished > 0.0 {
            text += &format!("; {} without a picture", count(unfinished));
        }
        self.row("zapping", &text);
        if let Some(delay) = metrics.find("zap_delay") {
            self.distribution("to new picture", delay, "p50");
        }
    }

    /// That nothing tells what was lost; says whether media came at all.
    pub(super) fn without_loss(&mut self, metrics: &Metrics) -> bool {
        let came = metrics.value("bitrate").is_some_and(|rate| rate > 0.0);
        match came && metrics.find("ts_packets").is_some() {
            true => self.row("loss", "unknown: nothing in it says what was sent"),
            false => self.row("media", "none came"),
        }
        came
    }
}

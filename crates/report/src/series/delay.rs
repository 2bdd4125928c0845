//! Parts of a viewer's delay over an emulated link.

use measure::link::{DOWNLINK, UPLINK};
use schemars::JsonSchema;

use crate::metrics::{Metrics, round_figure};
use crate::model::Report;

/// Metrics of the delay of media, measured by time codes. The first that all players have is used.
const MEDIA_DELAY_METRICS: [&str; 2] = ["frame_delay", "datagram_delay"];

/// Metric of the delay in the sender's queue.
const HELD_BACK: &str = "send_queue_delay";

/// Metrics of the player's buffer: the negotiated latency, or else the smallest buffer without a
/// stall.
const AGREED: &str = "agreed_latency";
const NEEDED: &str = "playout_buffer";

/// Delay of a viewer and its parts, in seconds. The parts of `media` are means, because only means
/// add up. `viewer` is not the sum of `media` and `buffer`: the buffer absorbs the same waits that
/// raise the mean.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct DelayParts {
    /// Delay between the time at which media was due at its source and its arrival at the players:
    /// sender, link and the rest.
    pub media: f64,
    /// Delay in the connections of publishers; null if nothing is published or the delay is not
    /// measured.
    pub sender: Option<f64>,
    /// Delay on the emulated link according to its own record: the mean over all packets from the
    /// publishers, plus the mean over all packets to the players.
    pub link: f64,
    /// Remaining delay: the server, and the wait for retransmissions of lost packets.
    pub rest: f64,
    /// Delay of the player's buffer: the negotiated latency, or the smallest buffer without a
    /// stall.
    pub buffer: Option<f64>,
    /// Delay on the viewer's screen: the delay of media without waits, plus the buffer. Without a
    /// negotiated latency, this is the longest delay of any frame.
    pub viewer: Option<f64>,
}

fn publishes(metrics: &Metrics) -> bool {
    metrics.value("sent_bytes").is_some_and(|bytes| bytes > 0.0)
}

/// Returns the mean over several populations or directions, weighted by their number of values.
fn mean<'a>(of: impl Iterator<Item = &'a Metrics>, name: &str) -> Option<f64> {
    let known = of.filter_map(|metrics| metrics.distribution(name));
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), one| {
        (sum + one.mean * one.count as f64, count + one.count as f64)
    });
    (count > 0.0).then(|| sum / count)
}

/// Maximum excess of the parts over the whole, in seconds. With a larger excess they are not parts
/// of the same delay.
const TOLERANCE: f64 = 0.001;

/// Returns the parts of the delay. `shortest` returns the smallest value of a distribution over all
/// players. Returns `None` unless every population has a link and all players know when media was
/// due, so that all parts cover the same populations. Also returns `None` if the parts exceed the
/// whole by more than [`TOLERANCE`].
pub(super) fn parts(report: &Report, shortest: impl Fn(&str) -> Option<f64>) -> Option<DelayParts> {
    let populations = || report.populations.iter().map(|one| &one.metrics);
    let publishers = || populations().filter(|metrics| publishes(metrics));
    let players = || populations().filter(|metrics| !publishes(metrics));
    let all_know = |name: &&&str| players().all(|metrics| metrics.distribution(name).is_some());
    let known = MEDIA_DELAY_METRICS.iter().find(all_know)?;
    let media = mean(players(), known)?;
    // Either one direction for all populations, or one for each of them.
    let direction = |way: &str, to_publish: bool| {
        let of = |whose: &str| {
            let mut links = report.links.iter();
            let is_its = |name: &str| {
                let own = name.strip_suffix(way);
                own.is_some_and(|own| own.trim_end_matches('_') == whose)
            };
            links
                .find(|link| is_its(&link.name))
                .map(|link| &link.metrics)
        };
        let owners = report.populations.iter();
        let owners = owners.filter(|one| publishes(&one.metrics) == to_publish);
        let links = owners.map(|one| of(&one.name).or_else(|| of("")));
        let links: Option<Vec<&Metrics>> = links.collect();
        mean(links?.into_iter(), "delay")
    };
    let up = match publishers().next() {
        Some(_) => direction(UPLINK, true)?,
        None => 0.0,
    };
    let link = up + direction(DOWNLINK, false)?;
    let sender = mean(publishers(), HELD_BACK);
    let agree = players().all(|metrics| metrics.distribution(AGREED).is_some());
    let agreed = mean(players(), AGREED).filter(|_| agree);
    let longest = |name: &str| {
        let all = players().filter_map(|metrics| metrics.distribution(name));
        all.map(|found| found.max).reduce(f64::max)
    };
    let buffer = agreed.or_else(|| longest(NEEDED));
    let viewer = match agreed {
        Some(agreed) => shortest(known).map(|shortest| shortest + agreed),
        None => longest(known).filter(|_| buffer.is_some()),
    };
    let rest = media - link - sender.unwrap_or(0.0);
    if rest < -TOLERANCE {
        return None;
    }
    Some(DelayParts {
        media: round_figure(media),
        sender: sender.map(round_figure),
        link: round_figure(link),
        rest: round_figure(rest),
        buffer: buffer.map(round_figure),
        viewer: viewer.map(round_figure),
    })
}

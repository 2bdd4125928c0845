//! What a viewer's delay over an emulated link is made of.

use measure::link::{DOWNLINK, UPLINK};
use schemars::JsonSchema;

use crate::metrics::{Metrics, tidy};
use crate::model::Report;

/// How long media was on its way on average, by whose time codes that is known.
const ON_THE_WAY: [&str; 2] = ["frame_delay", "datagram_delay"];

/// What is held back before it is sent.
const HELD_BACK: &str = "send_queue_delay";

/// How long a player waits before it plays: agreed upon, or else the smallest that would have done.
const AGREED: &str = "agreed_latency";
const NEEDED: &str = "playout_buffer";

/// A viewer's delay and its parts, in seconds. The parts of `media` are means, because only means
/// add up. `viewer` is not the sum of `media` and `buffer`: the buffer absorbs the same waits that
/// raise the mean.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct DelayParts {
    /// From when media was due at its source to when it came to the players: sender, link and the
    /// rest.
    pub media: f64,
    /// What publishers' connections held back; null where nothing is published, or it is not
    /// measured.
    pub sender: Option<f64>,
    /// What the emulated link took, as its own record says: the mean over all packets on the way
    /// from the publishers, and on that to the players.
    pub link: f64,
    /// What is left: the server, and the wait for what was lost and sent again.
    pub rest: f64,
    /// What players wait before they play: the latency agreed upon, or the smallest buffer without
    /// a stall.
    pub buffer: Option<f64>,
    /// Delay on the viewer's screen: the delay of media without waits, plus the buffer. Without an
    /// agreed latency, this is the longest delay of any frame.
    pub viewer: Option<f64>,
}

fn publishes(metrics: &Metrics) -> bool {
    metrics.value("sent_bytes").is_some_and(|bytes| bytes > 0.0)
}

/// The mean over several populations or directions, each as heavy as it has values.
fn mean<'a>(of: impl Iterator<Item = &'a Metrics>, name: &str) -> Option<f64> {
    let known = of.filter_map(|metrics| metrics.distribution(name));
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), one| {
        (sum + one.mean * one.count as f64, count + one.count as f64)
    });
    (count > 0.0).then(|| sum / count)
}

/// How far the parts may be beside the whole before they are taken for parts of something else, in
/// seconds.
const TOLERANCE: f64 = 0.001;

/// The parts; `shortest` gives the smallest value of a distribution over all players. None without
/// a link for all, or where not all players know when media was due. So a part is never of some
/// populations, and another of others.
pub(super) fn parts(report: &Report, shortest: impl Fn(&str) -> Option<f64>) -> Option<DelayParts> {
    let populations = || report.populations.iter().map(|one| &one.metrics);
    let publishers = || populations().filter(|metrics| publishes(metrics));
    let players = || populations().filter(|metrics| !publishes(metrics));
    let all_know = |name: &&&str| players().all(|metrics| metrics.distribution(name).is_some());
    let known = ON_THE_WAY.iter().find(all_know)?;
    let media = mean(players(), known)?;
    // A direction that all share, or that each population of that kind has for itself.
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
        media: tidy(media),
        sender: sender.map(tidy),
        link: tidy(link),
        rest: tidy(rest),
        buffer: buffer.map(tidy),
        viewer: viewer.map(tidy),
    })
}

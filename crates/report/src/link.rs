//! Description of an emulated link in words.

use measure::Unit;

use crate::human::{count, plural, ratio, seconds};
use crate::metrics::Metrics;

/// Reasons of loss on a link: the metric, and its description.
pub(crate) const LOSS_REASONS: [(&str, &str); 5] = [
    ("lost_by_chance", "by chance"),
    ("lost_in_outages", "in outages"),
    ("lost_too_long", "too long"),
    ("lost_queue_full", "queue full"),
    ("lost_by_codel", "by CoDel"),
];

/// Describes a direction in one line. Its metrics are those of [`measure::LINK_CATALOGUE`].
pub fn line(metrics: &Metrics) -> String {
    let [packets, times] = lines(metrics);
    match times.is_empty() {
        true => packets,
        false => format!("{packets}; {times}"),
    }
}

/// Describes a direction in two lines: what happened to its packets, and their delays. The second
/// line is empty if no packet was delivered.
pub(crate) fn lines(metrics: &Metrics) -> [String; 2] {
    [packets(metrics), times(metrics)]
}

/// Lists the reasons why packets were lost, with their numbers.
pub(crate) fn loss_reasons(metrics: &Metrics) -> String {
    let reasons = LOSS_REASONS.into_iter().filter_map(|(name, words)| {
        let lost = metrics.value(name).filter(|&lost| lost > 0.0)?;
        Some(format!("{} {words}", count(lost)))
    });
    reasons.collect::<Vec<_>>().join(", ")
}

fn packets(metrics: &Metrics) -> String {
    let value = |metric| metrics.value(metric).unwrap_or(0.0);
    let mut line = plural(value("packets"), "packet", "packets");
    let lost = value("lost");
    if lost > 0.0 {
        line += &format!(
            ", {} lost ({}): {}",
            count(lost),
            ratio(value("loss")),
            loss_reasons(metrics)
        );
    } else {
        line += ", none lost";
    }
    for name in ["duplicated", "reordered", "corrupted"] {
        if value(name) > 0.0 {
            line += &format!(", {} {name}", count(value(name)));
        }
    }
    if value("overload") > 0.0 {
        line += &format!("; {} dropped by its own fault", count(value("overload")));
    }
    line
}

fn times(metrics: &Metrics) -> String {
    let distribution = |name: &str| metrics.distribution(name);
    let mut parts = Vec::new();
    if let Some(queue) = metrics.level("queue_bytes").filter(|queue| queue.max > 0.0) {
        parts.push(format!(
            "queue up to {}",
            crate::human::figure(Unit::Bytes, queue.max)
        ));
    }
    if let (Some(planned), Some(real)) = (distribution("planned_delay"), distribution("delay")) {
        parts.push(format!(
            "delay p50 {} (planned {})",
            seconds(real.p50),
            seconds(planned.p50)
        ));
    }
    if let Some(late) = distribution("lateness") {
        parts.push(format!(
            "late p99 {}, max {}",
            seconds(late.p99),
            seconds(late.max)
        ));
    }
    parts.join("; ")
}

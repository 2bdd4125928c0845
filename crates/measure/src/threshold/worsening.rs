//! Metrics that get worse while the load is constant: their threshold still holds, but would be
//! violated soon.

use std::collections::BTreeMap;

use super::{Comparison, Threshold, ThresholdFigure};
use crate::metric::{Catalogue, MetricSource, Statistic, Unit};
use crate::totals::Totals;

/// Number of blocks into which the time is divided. Consecutive windows depend on each other, so a
/// line is fitted to blocks of windows.
pub const BLOCKS: usize = 6;

/// Quantiles of Student's t distribution with 1, 2, 3 and 4 degrees of freedom: a slope beyond its
/// standard error times this has a 95 % confidence interval that excludes 0. A line through three
/// to six blocks has two degrees less than blocks.
const T_QUANTILES: [f64; 4] = [12.706, 4.303, 3.182, 2.776];

/// Smallest number of blocks with a value that a line is fitted to.
const POINTS_MIN: usize = 3;

/// A metric that gets worse.
#[derive(Clone, Debug, PartialEq)]
pub struct Worsening {
    /// Threshold as written.
    pub threshold: String,
    /// Value in the last block that has one.
    pub value: f64,
    /// Limit of the threshold.
    pub limit: f64,
    /// Unit of value and limit.
    pub unit: Unit,
    /// Expected time from the end of the last block to the violation, in seconds.
    pub crosses_after: f64,
}

/// Returns the worsening of the metric of `threshold` over [`BLOCKS`] consecutive blocks of
/// `seconds` each, if a fitted line has a slope that excludes 0 and crosses the limit within
/// `ahead` seconds. Blocks without a value are left out: some metrics are not measured every
/// second. `None` as well if fewer than three blocks have a value, or if the threshold reads a
/// count or the worst window.
pub fn worsening(
    threshold: &Threshold,
    subjects: &[(&str, Catalogue)],
    blocks: &[BTreeMap<String, Totals>; BLOCKS],
    seconds: f64,
    ahead: f64,
) -> Option<Worsening> {
    let resolved = threshold.resolve(subjects).ok()?;
    // A count grows with the time, and its limit is for all of it.
    let is_count = match &resolved.reads {
        ThresholdFigure::Metric(_, Statistic::Count) | ThresholdFigure::Failures(_) => true,
        ThresholdFigure::Metric(metric, _) => matches!(
            metric.source,
            MetricSource::Counter(_)
                | MetricSource::Sum(..)
                | MetricSource::Difference(..)
                | MetricSource::Scaled(..)
        ),
    };
    if is_count || threshold.reads_worst_window() {
        return None;
    }
    let value = |block: &BTreeMap<String, Totals>| resolved.value(block.get(threshold.subject())?);
    let points = blocks.iter().enumerate();
    let points: Vec<(f64, f64)> = points
        .filter_map(|(at, block)| Some((at as f64, value(block)?)))
        .collect();
    let quantile = T_QUANTILES.get(points.len().checked_sub(POINTS_MIN)?)?;
    let (slope, error) = line(&points);
    let rises = match threshold.comparison {
        Comparison::Less | Comparison::AtMost => true,
        Comparison::Greater | Comparison::AtLeast => false,
        Comparison::Equal | Comparison::NotEqual => return None,
    };
    let is_significant = slope.abs() > quantile * error && (slope > 0.0) == rises && slope != 0.0;
    let (last_at, last) = *points.last()?;
    let after_last = (BLOCKS - 1) as f64 - last_at;
    let limit = resolved.limit;
    // The last block may be beyond the limit already, although the whole time is not.
    let crosses_after = (((limit - last) / slope - after_last) * seconds).max(0.0);
    let is_soon = crosses_after <= ahead;
    (is_significant && is_soon).then(|| Worsening {
        threshold: threshold.text.clone(),
        value: last,
        limit,
        unit: resolved.unit,
        crosses_after,
    })
}

/// Returns the slope of the least-squares line through at least three points, and the standard
/// error of the slope.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (middle, level) = (mean(|point| point.0), mean(|point| point.1));
    let centred = || points.iter().map(|(x, y)| (x - middle, y - level));
    let spread: f64 = centred().map(|(x, _)| x * x).sum();
    let slope = centred().map(|(x, y)| x * y).sum::<f64>() / spread;
    let residuals: f64 = centred().map(|(x, y)| (y - slope * x).powi(2)).sum();
    (slope, (residuals / (count - 2.0) / spread).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Window;

    crate::metrics! {
        /// Packets of a viewer.
        VIEWER after crate::Group::NONE;
        counters {
            /// Packets that were sent.
            SENT = "sent", Count, "";
            /// Packets that arrived.
            ARRIVED = "arrived", Count, "";
        }
        gauges {}
        distributions {}
        derived {
            /// Share of lost packets.
            "loss", Ratio, "", LossRatio(SENT, ARRIVED);
        }
    }

    const CATALOGUE: Catalogue = Catalogue(&[&VIEWER]);

    /// Finds the worsening with these losses of 1,000 packets in blocks of 5 s.
    fn find(losses: [i64; BLOCKS], text: &str) -> Option<Worsening> {
        let blocks = losses.map(|lost| {
            let mut window = Window::empty(CATALOGUE);
            let sent = if lost == 1_000 { 0 } else { 1_000 };
            window.counters[usize::from(SENT.0)] = sent;
            window.counters[usize::from(ARRIVED.0)] = sent.min(1_000 - lost);
            let totals = Totals::of_window(CATALOGUE, &window, 5.0);
            BTreeMap::from([("viewers".to_owned(), totals)])
        });
        let threshold = Threshold::parse(text).expect("it is a threshold");
        worsening(&threshold, &[("viewers", CATALOGUE)], &blocks, 5.0, 300.0)
    }

    #[test]
    fn metric_on_its_way_to_the_limit_is_found() {
        let found = find([1, 2, 2, 4, 4, 5], "viewers.loss < 1%").expect("it rises");
        // About 0.8 a block.
        assert!((25.0..40.0).contains(&found.crosses_after), "{found:?}");
        assert_eq!((found.value, found.limit), (0.005, 0.01));
        let beyond = find([0, 2, 4, 8, 12, 16], "viewers.loss < 1%");
        assert_eq!(beyond.map(|found| found.crosses_after), Some(0.0));
    }

    #[test]
    fn metric_that_is_not_measured_in_each_block_is_found() {
        // No packets: no loss.
        const NONE: i64 = 1_000;
        let text = "viewers.loss < 1%";
        let rising = find([NONE, 1, NONE, 3, NONE, 5], text).expect("it rises");
        assert!((20.0..30.0).contains(&rising.crosses_after), "{rising:?}");
        // The time counts from the end of the last block, not of the last value.
        let early = find([1, 2, 3, 4, 5, NONE], text).expect("it rises");
        assert!((19.0..21.0).contains(&early.crosses_after), "{early:?}");
        // Three points are hardly a line.
        assert_eq!(find([NONE, 1, NONE, 4, NONE, 5], text), None);
        assert_eq!(find([NONE, 1, NONE, NONE, NONE, 5], text), None);
    }

    #[test]
    fn metric_that_holds_is_not_found() {
        for (losses, text) in [
            ([0; BLOCKS], "viewers.loss < 1%"),
            // Noise.
            ([5, 1, 7, 2, 6, 3], "viewers.loss < 1%"),
            // The loss decreases.
            ([6, 5, 4, 3, 2, 1], "viewers.loss < 1%"),
            // The limit is far away.
            ([1, 2, 3, 4, 5, 6], "viewers.loss < 50%"),
            ([1, 2, 3, 4, 5, 6], "viewers.loss.worst < 1%"),
            ([1, 2, 3, 4, 5, 6], "others.loss < 1%"),
            ([9, 8, 7, 6, 5, 4], "viewers.arrived < 999"),
        ] {
            assert_eq!(find(losses, text), None, "{losses:?} {text}");
        }
        assert!(find([6, 5, 4, 3, 2, 1], "viewers.loss > 0%").is_some());
    }
}

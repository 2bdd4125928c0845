//! Metrics that get worse while the load is constant: their threshold still holds, but would not for
//! long.

use std::collections::BTreeMap;

use super::{Comparison, Threshold, ThresholdFigure};
use crate::metric::{Catalogue, MetricSource, Statistic, Unit};
use crate::totals::Totals;

/// Number of blocks into which the time is divided. The windows within a block are dependent on each
/// other, so a line is fitted to the blocks.
pub const BLOCKS: usize = 6;

/// Quantile of Student's t distribution with [`BLOCKS`] - 2 degrees of freedom: a slope beyond it
/// has a 95 % confidence interval that excludes 0.
const T_QUANTILE: f64 = 2.776;

/// A metric that gets worse.
#[derive(Clone, Debug, PartialEq)]
pub struct Worsening {
    /// Threshold as written.
    pub threshold: String,
    /// Value in the last block.
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
/// `ahead` seconds. `None` as well if a block has no value, or if the threshold reads the worst
/// window or does not fit the subjects.
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
    let values: Vec<f64> = blocks.iter().map(value).collect::<Option<_>>()?;
    let (slope, error) = line(&values);
    let rises = match threshold.comparison {
        Comparison::Less | Comparison::AtMost => true,
        Comparison::Greater | Comparison::AtLeast => false,
        Comparison::Equal | Comparison::NotEqual => return None,
    };
    let is_significant = slope.abs() > T_QUANTILE * error && (slope > 0.0) == rises && slope != 0.0;
    let last = *values.last()?;
    let limit = resolved.limit;
    // The last block may be beyond the limit already, although the whole time is not.
    let crosses_after = ((limit - last) / slope * seconds).max(0.0);
    let is_soon = crosses_after <= ahead;
    (is_significant && is_soon).then(|| Worsening {
        threshold: threshold.text.clone(),
        value: last,
        limit,
        unit: resolved.unit,
        crosses_after,
    })
}

/// Returns the slope of the least-squares line through values at 0, 1, 2 and so on, and its standard
/// error.
fn line(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, values.iter().sum::<f64>() / count);
    let points = || {
        values
            .iter()
            .enumerate()
            .map(|(at, value)| (at as f64 - middle, value - mean))
    };
    let spread: f64 = points().map(|(x, _)| x * x).sum();
    let slope = points().map(|(x, y)| x * y).sum::<f64>() / spread;
    let residuals: f64 = points().map(|(x, y)| (y - slope * x).powi(2)).sum();
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
            window.counters[usize::from(SENT.0)] = 1_000;
            window.counters[usize::from(ARRIVED.0)] = 1_000 - lost;
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
    fn metric_that_holds_is_not_found() {
        for (losses, text) in [
            ([0; BLOCKS], "viewers.loss < 1%"),
            // Noise.
            ([5, 1, 7, 2, 6, 3], "viewers.loss < 1%"),
            // It gets better.
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

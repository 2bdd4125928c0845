//! Down-sampling that keeps extremes: if there are too many windows to draw, each period keeps its
//! lowest and its highest value, in the order in which they occurred.
//!
//! The number of windows of a run is unknown before they are read. Each period therefore begins as
//! one window, and periods are joined in pairs whenever there are too many. Memory does not grow
//! with the length of the run.

use serde_json::{Value, json};

/// Lowest and highest value of a line in a period. NaN if it has no value.
#[derive(Clone, Copy, Debug)]
struct Extremes {
    low: f64,
    high: f64,
    /// True if the lowest value came after the highest.
    low_is_later: bool,
}

impl Extremes {
    const NONE: Extremes = Extremes {
        low: f64::NAN,
        high: f64::NAN,
        low_is_later: false,
    };

    fn of(value: Option<f64>) -> Extremes {
        match value.filter(|value| value.is_finite()) {
            Some(value) => Extremes {
                low: value,
                high: value,
                low_is_later: false,
            },
            None => Extremes::NONE,
        }
    }

    /// Joins the extremes of two periods, of which `self` is the earlier one.
    fn join(self, later: Extremes) -> Extremes {
        if self.low.is_nan() {
            return later;
        }
        if later.low.is_nan() {
            return self;
        }
        let (low_is_later, high_is_later) = (later.low < self.low, later.high > self.high);
        Extremes {
            low: self.low.min(later.low),
            high: self.high.max(later.high),
            low_is_later: match (low_is_later, high_is_later) {
                (true, false) => true,
                (false, true) => false,
                (false, false) => self.low_is_later,
                (true, true) => later.low_is_later,
            },
        }
    }
}

/// Period of time.
#[derive(Clone, Copy, Debug)]
struct Period {
    begins: f64,
    ends: f64,
}

/// Lines over one time axis, down-sampled together.
#[derive(Clone, Debug)]
pub(super) struct Downsampled {
    /// Maximum number of points of a line.
    points_max: usize,
    /// Number of windows per period.
    pub(super) step: usize,
    /// Number of windows in the last period so far.
    filled: usize,
    periods: Vec<Period>,
    lines: Vec<Vec<Extremes>>,
}

impl Downsampled {
    pub(super) fn new(lines: usize, points_max: usize) -> Downsampled {
        Downsampled {
            points_max: points_max.max(8),
            step: 1,
            filled: 0,
            periods: Vec::new(),
            lines: vec![Vec::new(); lines],
        }
    }

    /// Adds a window with a value for each line.
    pub(super) fn push(&mut self, begins: f64, seconds: f64, values: &[Option<f64>]) {
        let ends = begins + seconds;
        let values = values.iter().copied().map(Extremes::of);
        match self.periods.last_mut() {
            Some(last) if self.filled < self.step => {
                last.ends = ends;
                for (line, value) in self.lines.iter_mut().zip(values) {
                    if let Some(last) = line.last_mut() {
                        *last = last.join(value);
                    }
                }
                self.filled += 1;
            }
            _ => {
                self.periods.push(Period { begins, ends });
                for (line, value) in self.lines.iter_mut().zip(values) {
                    line.push(value);
                }
                self.filled = 1;
            }
        }
        while self.points() > self.points_max {
            self.join();
        }
    }

    fn points(&self) -> usize {
        match self.step {
            1 => self.periods.len(),
            _ => 2 * self.periods.len(),
        }
    }

    fn join(&mut self) {
        // Of an odd number of periods the last has no partner, and is filled up later.
        if self.periods.len().is_multiple_of(2) {
            self.filled += self.step;
        }
        self.step *= 2;
        let pairs = self.periods.chunks(2).map(|pair| Period {
            begins: pair[0].begins,
            ends: pair[pair.len() - 1].ends,
        });
        self.periods = pairs.collect();
        for line in &mut self.lines {
            let pairs = line.chunks(2);
            let joined = pairs.map(|pair| pair.iter().copied().reduce(Extremes::join));
            *line = joined.flatten().collect();
        }
    }

    /// Returns the times of the points of all lines: the middle of each window, or the quarters of
    /// each period.
    pub(super) fn times(&self) -> Value {
        let at = |stretch: &Period, share: f64| {
            rounded(stretch.begins + share * (stretch.ends - stretch.begins), 3)
        };
        let times: Vec<f64> = match self.step {
            1 => self.periods.iter().map(|one| at(one, 0.5)).collect(),
            _ => {
                let pairs = self.periods.iter();
                pairs
                    .flat_map(|one| [at(one, 0.25), at(one, 0.75)])
                    .collect()
            }
        };
        json!(times)
    }

    /// Returns `true` if a line has a value other than zero.
    pub(super) fn is_nonzero(&self, line: usize) -> bool {
        let line = self.lines.get(line).into_iter().flatten();
        line.clone().any(|one| one.high > 0.0 || one.low < 0.0)
    }

    /// Returns `true` if a line has a value.
    pub(super) fn has_values(&self, line: usize) -> bool {
        let mut line = self.lines.get(line).into_iter().flatten();
        line.any(|one| !one.low.is_nan())
    }

    /// Returns the values of a line, with null for missing ones.
    pub(super) fn line(&self, line: usize) -> Value {
        let line = self.lines.get(line).into_iter().flatten();
        let values = line.flat_map(|one| match (self.step, one.low_is_later) {
            (1, _) => [Some(one.low), None],
            (_, false) => [Some(one.low), Some(one.high)],
            (_, true) => [Some(one.high), Some(one.low)],
        });
        Value::Array(values.flatten().map(round_significant).collect())
    }
}

/// Rounds a value to four significant digits, which is as much as a chart shows. Whole numbers
/// below 10^7 stay unchanged.
pub(super) fn round_significant(value: f64) -> Value {
    if value.is_nan() {
        return Value::Null;
    }
    if value.fract() == 0.0 && value.abs() < 1e7 {
        return json!(value as i64);
    }
    let short: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    match short.fract() == 0.0 && short.abs() < 1e15 {
        true => json!(short as i64),
        false => json!(short),
    }
}

/// Rounds a value to `digits` decimal places.
pub(super) fn rounded(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn downsampled(values: &[Option<f64>], points_max: usize) -> Downsampled {
        let mut downsampled = Downsampled::new(1, points_max);
        for (index, &value) in values.iter().enumerate() {
            downsampled.push(index as f64, 1.0, &[value]);
        }
        downsampled
    }

    fn numbers(value: &Value) -> Vec<Option<f64>> {
        let list = value.as_array().expect("a list");
        list.iter().map(Value::as_f64).collect()
    }

    #[test]
    fn few_windows_are_kept_unchanged() {
        let values = [Some(1.0), None, Some(0.5), Some(123_456.0)];
        let downsampled = downsampled(&values, 8);
        assert_eq!(numbers(&downsampled.line(0)), values);
        assert_eq!(
            numbers(&downsampled.times()),
            [0.5, 1.5, 2.5, 3.5].map(Some).to_vec()
        );
    }

    #[test]
    fn order_of_extremes_is_kept() {
        let values: Vec<Option<f64>> = (0..16)
            .map(|index| Some(if index == 5 { 9.0 } else { -f64::from(index) }))
            .collect();
        let downsampled = downsampled(&values, 8);
        assert_eq!(downsampled.step, 4);
        let line = numbers(&downsampled.line(0));
        assert_eq!(line[..4], [0.0, -3.0, 9.0, -7.0].map(Some));
    }

    proptest! {
        #[test]
        fn extremes_of_each_period_are_kept(
            values in proptest::collection::vec(proptest::option::of(0u32..9_999), 1..500),
        ) {
            let values: Vec<Option<f64>> = values.iter().map(|value| value.map(f64::from)).collect();
            let downsampled = downsampled(&values, 16);
            prop_assert!(downsampled.points() <= 16);
            prop_assert_eq!(downsampled.has_values(0), values.iter().any(Option::is_some));
            let line = numbers(&downsampled.line(0));
            let per = if downsampled.step == 1 { 1 } else { 2 };
            prop_assert_eq!(line.len(), numbers(&downsampled.times()).len());
            for (index, period) in values.chunks(downsampled.step).enumerate() {
                let shown = &line[per * index..per * (index + 1)];
                let low = period.iter().flatten().copied().reduce(f64::min);
                let high = period.iter().flatten().copied().reduce(f64::max);
                prop_assert_eq!(shown.iter().flatten().copied().reduce(f64::min), low);
                prop_assert_eq!(shown.iter().flatten().copied().reduce(f64::max), high);
            }
        }
    }
}

//! Compares measured figures with true ones: errors, tolerances and judgements.

pub(super) use kit::calibration::{DELAY_TOLERANCE as STARTUP, Tolerance, TrueValue};
use measure::Unit;

/// Counts must be exact.
pub(super) const COUNT: Tolerance = Tolerance::Exact;
/// The mean of the interarrival jitter: 2 %, or 20 µs.
pub(super) const JITTER: Tolerance = Tolerance::RelativeOrAbsolute(0.02, 20e-6);
/// Bit rates: 0.1 %.
pub(super) const BIT_RATE: Tolerance = Tolerance::RelativeOrAbsolute(0.001, 0.0);

/// Result of comparing a figure with its true value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Within its tolerance.
    Ok,
    /// Outside its tolerance.
    Off,
    /// The true value is not known precisely enough.
    Unknown,
}

impl Judgement {
    /// Name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Judgement::Ok => "ok",
            Judgement::Off => "off",
            Judgement::Unknown => "unknown",
        }
    }
}

/// A figure, its true value and its tolerance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Group of streams, population or direction of a link that the figure is about.
    pub(super) streams: &'static str,
    /// Name as in `streamgauge metrics`, with the statistic.
    pub(super) metric: String,
    pub(super) unit: Unit,
    /// True value.
    pub(super) truth: TrueValue,
    /// Measured value. `None` if nothing was measured.
    pub(super) measured: Option<f64>,
    /// Permitted error.
    pub(super) tolerance: Tolerance,
}

/// Compared figures of one group of streams, population or direction of a link.
pub(super) struct Rows<'a> {
    pub(super) streams: &'static str,
    pub(super) all: &'a mut Vec<Row>,
}

impl Rows<'_> {
    /// Adds a figure with its true and its measured value.
    pub(super) fn add(
        &mut self,
        metric: impl Into<String>,
        unit: Unit,
        (truth, measured): (TrueValue, Option<f64>),
        tolerance: Tolerance,
    ) {
        self.all.push(Row {
            streams: self.streams,
            metric: metric.into(),
            unit,
            truth,
            measured,
            tolerance,
        });
    }
}

impl Row {
    /// Returns the measured minus the true value. `None` if nothing was measured.
    pub(super) fn error(&self) -> Option<f64> {
        self.measured.map(|measured| measured - self.truth.value)
    }

    /// Judges the error. A figure that was not measured is `Off`.
    pub(super) fn judge(&self) -> Judgement {
        let Some(error) = self.error().map(f64::abs) else {
            return Judgement::Off;
        };
        let permitted = self.tolerance.for_value(self.truth.value);
        if error <= permitted {
            Judgement::Ok
        } else if error <= permitted + self.truth.uncertainty {
            Judgement::Unknown
        } else {
            // NaN is off too.
            Judgement::Off
        }
    }
}

/// Returns the worst judgement: `Off` before `Unknown` before `Ok`.
pub(super) fn worst<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Judgement {
    let mut worst = Judgement::Ok;
    for judgement in rows.into_iter().map(Row::judge) {
        match judgement {
            Judgement::Off => return Judgement::Off,
            Judgement::Unknown => worst = Judgement::Unknown,
            Judgement::Ok => {}
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(truth: f64, measured: Option<f64>, tolerance: Tolerance) -> Row {
        Row {
            streams: "steady",
            metric: "jitter".to_owned(),
            unit: Unit::Seconds,
            truth: TrueValue {
                value: truth,
                uncertainty: 0.0,
            },
            measured,
            tolerance,
        }
    }

    #[test]
    fn counts_are_exact_or_off() {
        assert_eq!(row(1000.0, Some(1000.0), COUNT).judge(), Judgement::Ok);
        assert_eq!(row(1000.0, Some(999.0), COUNT).judge(), Judgement::Off);
        assert_eq!(row(1000.0, None, COUNT).judge(), Judgement::Off);
        assert_eq!(row(1000.0, Some(f64::NAN), COUNT).judge(), Judgement::Off);
    }

    #[test]
    fn stated_tolerances_are_applied() {
        for (tolerance, truth, good, bad) in [
            // 20 µs below 1 ms, 2 % above.
            (JITTER, 0.5e-3, 0.519e-3, 0.521e-3),
            (JITTER, 5e-3, 5.099e-3, 5.101e-3),
            (STARTUP, 0.15, 0.1491, 0.1489),
            (BIT_RATE, 1e6, 0.9991e6, 0.9989e6),
        ] {
            assert_eq!(
                row(truth, Some(good), tolerance).judge(),
                Judgement::Ok,
                "{good}"
            );
            assert_eq!(
                row(truth, Some(bad), tolerance).judge(),
                Judgement::Off,
                "{bad}"
            );
        }
    }

    #[test]
    fn error_within_the_uncertainty_of_truth_is_unknown() {
        let mut row = row(1e-3, Some(1.03e-3), JITTER);
        row.truth.uncertainty = 15e-6;
        assert_eq!(row.judge(), Judgement::Unknown);
        row.measured = Some(1.05e-3);
        assert_eq!(row.judge(), Judgement::Off);
        row.measured = Some(1.01e-3);
        assert_eq!(row.judge(), Judgement::Ok);
    }

    #[test]
    fn off_outweighs_unknown_and_ok() {
        let good = row(1.0, Some(1.0), COUNT);
        let bad = row(1.0, Some(2.0), COUNT);
        let mut unknown = bad.clone();
        unknown.truth.uncertainty = 5.0;
        assert_eq!(worst([&good]), Judgement::Ok);
        assert_eq!(worst([&good, &unknown]), Judgement::Unknown);
        assert_eq!(worst([&unknown, &bad, &good]), Judgement::Off);
    }
}

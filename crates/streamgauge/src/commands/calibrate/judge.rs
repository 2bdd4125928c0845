//! What is measured against what is true: errors, tolerances, and whether they are kept.

use measure::Unit;
pub(super) use protocol::calibration::{DELAY as STARTUP, Known, Tolerance};

/// Counts: exact.
pub(super) const COUNT: Tolerance = Tolerance::Exact;
/// The mean of the interarrival jitter: 2 %, or 20 µs.
pub(super) const JITTER: Tolerance = Tolerance::ShareOr(0.02, 20e-6);
/// Bit rates: 0.1 %.
pub(super) const BIT_RATE: Tolerance = Tolerance::ShareOr(0.001, 0.0);

/// What becomes of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Within its tolerance.
    Ok,
    /// Not within it.
    Off,
    /// The true value is not known well enough to tell.
    Unknown,
}

impl Judgement {
    /// As it is written in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Judgement::Ok => "ok",
            Judgement::Off => "off",
            Judgement::Unknown => "unknown",
        }
    }
}

/// One figure, judged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Whose.
    pub(super) streams: &'static str,
    /// Which, as `streamgauge metrics` names it, and which figure of it.
    pub(super) metric: String,
    /// What it is counted in.
    pub(super) unit: Unit,
    /// What is true.
    pub(super) truth: Known,
    /// What was measured; `None` where nothing was.
    pub(super) measured: Option<f64>,
    /// By how much it may be off.
    pub(super) tolerance: Tolerance,
}

impl Row {
    /// By how much it is off.
    pub(super) fn error(&self) -> Option<f64> {
        self.measured.map(|measured| measured - self.truth.value)
    }

    /// How that is to be judged. What was not measured is off.
    pub(super) fn judge(&self) -> Judgement {
        let Some(error) = self.error().map(f64::abs) else {
            return Judgement::Off;
        };
        let most = self.tolerance.of(self.truth.value);
        if error <= most {
            Judgement::Ok
        } else if error <= most + self.truth.unsure {
            Judgement::Unknown
        } else {
            // A figure that is no number is off too.
            Judgement::Off
        }
    }
}

/// What becomes of many: off where one is, else unknown where one is.
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
            truth: Known {
                value: truth,
                unsure: 0.0,
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
    fn tolerances_are_those_that_are_stated() {
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
    fn nobody_is_found_guilty_on_a_truth_that_is_not_known() {
        let mut row = row(1e-3, Some(1.03e-3), JITTER);
        row.truth.unsure = 15e-6;
        assert_eq!(row.judge(), Judgement::Unknown);
        row.measured = Some(1.05e-3);
        assert_eq!(row.judge(), Judgement::Off);
        row.measured = Some(1.01e-3);
        assert_eq!(row.judge(), Judgement::Ok);
    }

    #[test]
    fn one_that_is_off_outweighs_all() {
        let good = row(1.0, Some(1.0), COUNT);
        let bad = row(1.0, Some(2.0), COUNT);
        let mut unknown = bad.clone();
        unknown.truth.unsure = 5.0;
        assert_eq!(worst([&good]), Judgement::Ok);
        assert_eq!(worst([&good, &unknown]), Judgement::Unknown);
        assert_eq!(worst([&unknown, &bad, &good]), Judgement::Off);
    }
}

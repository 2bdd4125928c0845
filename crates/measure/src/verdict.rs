//! The verdict of a run: result, reasons and exit code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::human::significant;
use crate::metric::Unit;
use crate::threshold::ThresholdResult;

/// Exit code: every threshold held.
pub const EXIT_PASS: u8 = 0;
/// Exit code: a threshold failed.
pub const EXIT_FAIL: u8 = 99;
/// Exit code: the scenario or an argument is wrong, or the server could not be launched.
pub const EXIT_BAD_SCENARIO: u8 = 104;
/// Exit code: the user stopped the run.
pub const EXIT_STOPPED: u8 = 105;
/// Exit code: the measurement is invalid.
pub const EXIT_INVALID: u8 = 110;

/// Failure reason of a client whose stream was not published before its timeout. If the publisher
/// failed, that is the cause.
pub const NO_PUBLISHER: &str = "no_publisher";

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Outcome")]
pub enum VerdictResult {
    /// Every threshold held, and the measurement can be trusted.
    Pass,
    /// A threshold did not hold, and the measurement can be trusted.
    Fail,
    /// The measurement cannot be trusted, whatever the thresholds say.
    Invalid,
    /// The user stopped the run before its planned end. The thresholds state what held until then.
    Stopped,
}

impl VerdictResult {
    /// Name of the result in reports.
    pub const fn name(self) -> &'static str {
        match self {
            VerdictResult::Pass => "pass",
            VerdictResult::Fail => "fail",
            VerdictResult::Invalid => "invalid",
            VerdictResult::Stopped => "stopped",
        }
    }
}

/// Verdict of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Outcome of the run.
    pub result: VerdictResult,
    /// Reasons: failed thresholds, or what makes the measurement invalid. Empty for a pass.
    pub reasons: Vec<String>,
    /// True if the user stopped the run before its planned end.
    pub stopped_by_user: bool,
}

/// Input of a verdict in addition to the thresholds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerdictInput {
    /// Reasons why the measurement cannot be trusted: [`crate::Health::reasons`] and other
    /// findings.
    pub invalid: Vec<String>,
    /// Failures other than thresholds: the server ended, or a threshold with `abort` ended the run.
    pub failed: Vec<String>,
    /// True if the user stopped the run before its planned end.
    pub stopped_by_user: bool,
}

impl Verdict {
    /// Decides the verdict. A threshold in doubt, or undecided, makes the run invalid.
    pub fn decide(thresholds: &[ThresholdResult], input: VerdictInput) -> Verdict {
        let mut reasons = input.invalid;
        for threshold in thresholds.iter().filter(|threshold| threshold.in_doubt) {
            reasons.push(format!(
                "`{}` could have gone the other way: packets that were lost on this machine \
                 (tester.overflow, tester.softnet_drops) are among the lost packets: fix that and run \
                 again",
                threshold.text
            ));
        }
        let undecided = thresholds.iter().filter(|threshold| threshold.undecided);
        reasons.extend(undecided.map(ThresholdResult::explain));
        let is_invalid = !reasons.is_empty();
        reasons.extend(input.failed);
        let failed = thresholds.iter().filter(|threshold| threshold.has_failed());
        reasons.extend(failed.map(ThresholdResult::explain));
        Verdict {
            result: match (is_invalid, reasons.is_empty()) {
                _ if input.stopped_by_user => VerdictResult::Stopped,
                (true, _) => VerdictResult::Invalid,
                (false, false) => VerdictResult::Fail,
                (false, true) => VerdictResult::Pass,
            },
            reasons,
            stopped_by_user: input.stopped_by_user,
        }
    }

    /// The exit code. If several apply, "stopped by the user" takes precedence over "invalid", and
    /// "invalid" over "failed". (A bad scenario, [`EXIT_BAD_SCENARIO`], takes precedence over all
    /// and has no verdict.)
    pub const fn exit_code(&self) -> u8 {
        match self.result {
            VerdictResult::Stopped => EXIT_STOPPED,
            VerdictResult::Invalid => EXIT_INVALID,
            VerdictResult::Fail => EXIT_FAIL,
            VerdictResult::Pass => EXIT_PASS,
        }
    }
}

impl ThresholdResult {
    /// Describes the result, such as `viewers.loss < 7%: it was 8.2%`.
    pub fn explain(&self) -> String {
        let mut text = format!("`{}`", self.text);
        if self.implied {
            text += " (implied)";
        }
        let statistic = match &self.statistic {
            Some(name) => format!("the {name} was"),
            None => "it was".to_owned(),
        };
        let shown = |value| figure_four_digits(value, self.unit);
        match (self.value, self.window) {
            (Some(value), _) if self.undecided => {
                // The part after the semicolon says what to do.
                text += &match self.clock_error {
                    Some(error) => format!(
                        " cannot be decided: {statistic} ~{}, and clocks of two runners may differ by \
                         {}; a delay between them must be at least three times as long, and must differ \
                         from the limit by more",
                        shown(value),
                        shown(error),
                    ),
                    None => format!(
                        " cannot be decided: {statistic} ~{}, and the clock of a runner is not known; \
                         a machine was paused, its clock drifts, or its runner did not answer any more",
                        shown(value),
                    ),
                };
            }
            (None, _) => text += ": there was no data, so it failed",
            (Some(value), None) => text += &format!(": {statistic} {}", shown(value)),
            (Some(value), Some(window)) => {
                let value = shown(value);
                text += &format!(": {statistic} {value} in window {window}, the worst");
            }
        }
        text
    }
}

/// Formats a figure with four significant digits and a unit of fitting size.
///
/// ```
/// use measure::{Unit, verdict::figure_four_digits};
/// assert_eq!(figure_four_digits(0.08217, Unit::Ratio), "8.217 %");
/// assert_eq!(figure_four_digits(0.0213, Unit::Seconds), "21.3 ms");
/// assert_eq!(figure_four_digits(20e6, Unit::BitsPerSecond), "20 Mbit/s");
/// assert_eq!(figure_four_digits(1234.0, Unit::Count), "1234");
/// ```
pub fn figure_four_digits(value: f64, unit: Unit) -> String {
    let magnitude = value.abs();
    let thousands = |base: f64, steps: &[&str]| {
        let mut shown = value;
        let mut step = 0;
        while shown.abs() >= base && step + 1 < steps.len() {
            shown /= base;
            step += 1;
        }
        format!("{} {}", digits(shown), steps[step])
    };
    match unit {
        Unit::Count => digits(value),
        // Processor time in percent of one core, as top(1) shows it.
        Unit::Ratio | Unit::Cores => format!("{} %", digits(value * 100.0)),
        Unit::BitsPerSecond => thousands(1e3, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]),
        Unit::Bytes => thousands(1024.0, &["B", "KiB", "MiB", "GiB"]),
        Unit::Seconds if magnitude == 0.0 => "0 s".to_owned(),
        Unit::Seconds if magnitude < 1e-6 => format!("{} ns", digits(value * 1e9)),
        Unit::Seconds if magnitude < 1e-3 => format!("{} µs", digits(value * 1e6)),
        Unit::Seconds if magnitude < 1.0 => format!("{} ms", digits(value * 1e3)),
        Unit::Seconds => format!("{} s", digits(value)),
    }
}

/// Formats four significant digits.
fn digits(value: f64) -> String {
    match value == 0.0 || !value.is_finite() {
        true => value.abs().to_string(),
        false => significant(value, 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(passed: bool, in_doubt: bool) -> ThresholdResult {
        ThresholdResult {
            text: "viewers.loss < 7%".to_owned(),
            subject: "viewers".to_owned(),
            value: Some(0.0817),
            statistic: None,
            unit: Unit::Ratio,
            limit: 0.07,
            passed,
            window: None,
            no_data: false,
            implied: false,
            in_doubt,
            undecided: false,
            clock_error: None,
        }
    }

    #[test]
    fn exit_codes_follow_their_precedence() {
        let invalid = VerdictInput {
            invalid: vec!["the tester was too slow".to_owned()],
            ..VerdictInput::default()
        };
        let stopped = |grounds: &VerdictInput| VerdictInput {
            stopped_by_user: true,
            ..grounds.clone()
        };
        let code = |thresholds: &[ThresholdResult], grounds: &VerdictInput| {
            Verdict::decide(thresholds, grounds.clone()).exit_code()
        };
        let (held, missed) = ([result(true, false)], [result(false, false)]);
        let good = VerdictInput::default();
        assert_eq!(code(&held, &good), 0);
        assert_eq!(code(&missed, &good), 99);
        assert_eq!(code(&missed, &invalid), 110);
        assert_eq!(code(&missed, &stopped(&invalid)), 105);
        assert_eq!(code(&held, &stopped(&good)), 105);
        let doubtful = Verdict::decide(&[result(true, true)], VerdictInput::default());
        assert_eq!(doubtful.result, VerdictResult::Invalid);
    }

    #[test]
    fn stopped_run_neither_passes_nor_fails() {
        for passed in [true, false] {
            let grounds = VerdictInput {
                stopped_by_user: true,
                ..VerdictInput::default()
            };
            let verdict = Verdict::decide(&[result(passed, false)], grounds);
            assert_eq!(verdict.result, VerdictResult::Stopped);
            assert_eq!(verdict.reasons.is_empty(), passed);
        }
    }

    #[test]
    fn aborted_run_fails_even_if_the_threshold_holds_at_the_end() {
        let grounds = VerdictInput {
            failed: vec!["stopped early".to_owned()],
            ..VerdictInput::default()
        };
        let verdict = Verdict::decide(&[result(true, false)], grounds);
        assert_eq!(verdict.exit_code(), EXIT_FAIL);
        assert_eq!(verdict.reasons, ["stopped early"]);
    }

    #[test]
    fn reasons_state_the_measured_value() {
        let verdict = Verdict::decide(&[result(false, false)], VerdictInput::default());
        assert_eq!(verdict.reasons, ["`viewers.loss < 7%`: it was 8.17 %"]);
        let nothing = ThresholdResult {
            value: None,
            no_data: true,
            ..result(false, false)
        };
        assert!(nothing.explain().contains("no data"));
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(figure_four_digits(123_456.0, Unit::Count), "123456");
        assert_eq!(
            figure_four_digits(0.000_012_345_6, Unit::Ratio),
            "0.001235 %"
        );
        assert_eq!(figure_four_digits(3_600.5, Unit::Seconds), "3600 s");
        assert_eq!(figure_four_digits(2.5e-7, Unit::Seconds), "250 ns");
        assert_eq!(figure_four_digits(1_536.0, Unit::Bytes), "1.5 KiB");
        assert_eq!(figure_four_digits(-0.5, Unit::Ratio), "-50 %");
        assert_eq!(figure_four_digits(0.0, Unit::Cores), "0 %");
        assert_eq!(figure_four_digits(1.25, Unit::Cores), "125 %");
    }
}

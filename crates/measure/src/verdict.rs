//! The verdict: what a run comes to, why, and as which exit code.

use serde::{Deserialize, Serialize};

use crate::metric::Unit;
use crate::threshold::ThresholdResult;

/// Exit code: every threshold held.
pub const EXIT_PASS: u8 = 0;
/// Exit code: a threshold failed.
pub const EXIT_FAIL: u8 = 99;
/// Exit code: the scenario, an argument or the launch of the server is wrong.
pub const EXIT_BAD_SCENARIO: u8 = 104;
/// Exit code: the user stopped the run.
pub const EXIT_STOPPED: u8 = 105;
/// Exit code: the measurement is invalid.
pub const EXIT_INVALID: u8 = 110;

/// What a run comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictResult {
    /// Every threshold held, and the measurement can be trusted.
    Pass,
    /// A threshold did not hold, and the measurement can be trusted.
    Fail,
    /// The measurement cannot be trusted, so nothing is claimed from it.
    Invalid,
}

impl VerdictResult {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            VerdictResult::Pass => "pass",
            VerdictResult::Fail => "fail",
            VerdictResult::Invalid => "invalid",
        }
    }
}

/// What a run comes to, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What it comes to.
    pub result: VerdictResult,
    /// Why: first what makes it invalid, then the thresholds that failed. Empty of a pass.
    pub reasons: Vec<String>,
    /// Whether the user stopped the run before its planned end.
    pub stopped_by_user: bool,
}

impl Verdict {
    /// The verdict on a run with these thresholds. `invalid` are the reasons why the measurement
    /// cannot be trusted, out of [`crate::Health::reasons`] and whatever else was found; a
    /// threshold in doubt is one more.
    pub fn decide(
        thresholds: &[ThresholdResult],
        invalid: Vec<String>,
        stopped_by_user: bool,
    ) -> Verdict {
        let mut reasons = invalid;
        for threshold in thresholds.iter().filter(|threshold| threshold.in_doubt) {
            reasons.push(format!(
                "`{}` could have gone the other way: packets were lost on this machine \
                 (tester.overflow, tester.softnet_drops), and they are among the lost ones: mend that, \
                 and run it again",
                threshold.text
            ));
        }
        let is_invalid = !reasons.is_empty();
        let failed = thresholds.iter().filter(|threshold| !threshold.passed);
        reasons.extend(failed.map(ThresholdResult::explain));
        Verdict {
            result: match (is_invalid, reasons.is_empty()) {
                (true, _) => VerdictResult::Invalid,
                (false, false) => VerdictResult::Fail,
                (false, true) => VerdictResult::Pass,
            },
            reasons,
            stopped_by_user,
        }
    }

    /// The exit code. Where several hold, stopped by the user comes before invalid, and that before
    /// failed. (A bad scenario, [`EXIT_BAD_SCENARIO`], comes before all, and to no verdict.)
    pub const fn exit_code(&self) -> u8 {
        match self.result {
            _ if self.stopped_by_user => EXIT_STOPPED,
            VerdictResult::Invalid => EXIT_INVALID,
            VerdictResult::Fail => EXIT_FAIL,
            VerdictResult::Pass => EXIT_PASS,
        }
    }
}

impl ThresholdResult {
    /// The outcome in words, such as `viewers.loss < 7%: it was 8.2%`.
    pub fn explain(&self) -> String {
        let mut text = format!("`{}`", self.text);
        if self.implied {
            text += match self.text.ends_with(".failed == 0") {
                true => " (which holds for every population unless another is written)",
                false => " (which holds unless another is written)",
            };
        }
        match (self.value, self.window) {
            (None, _) => text += ": there was no data, so it failed",
            (Some(value), None) => text += &format!(": it was {}", figure(value, self.unit)),
            (Some(value), Some(window)) => {
                text += &format!(
                    ": it was {} in window {window}, the worst",
                    figure(value, self.unit)
                );
            }
        }
        text
    }
}

/// A figure for people: four significant digits, with a unit of fitting size.
///
/// ```
/// use measure::{Unit, verdict::figure};
/// assert_eq!(figure(0.08217, Unit::Ratio), "8.217 %");
/// assert_eq!(figure(0.0213, Unit::Seconds), "21.3 ms");
/// assert_eq!(figure(20e6, Unit::BitsPerSecond), "20 Mbit/s");
/// assert_eq!(figure(1234.0, Unit::Count), "1234");
/// ```
pub fn figure(value: f64, unit: Unit) -> String {
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
        Unit::Ratio => format!("{} %", digits(value * 100.0)),
        Unit::Cores => format!("{} cores", digits(value)),
        Unit::BitsPerSecond => thousands(1e3, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]),
        Unit::Bytes => thousands(1024.0, &["B", "KiB", "MiB", "GiB"]),
        Unit::Seconds if magnitude == 0.0 => "0 s".to_owned(),
        Unit::Seconds if magnitude < 1e-6 => format!("{} ns", digits(value * 1e9)),
        Unit::Seconds if magnitude < 1e-3 => format!("{} µs", digits(value * 1e6)),
        Unit::Seconds if magnitude < 1.0 => format!("{} ms", digits(value * 1e3)),
        Unit::Seconds => format!("{} s", digits(value)),
    }
}

/// Four significant digits, but never fewer than stand before the point, and no zeros at the end.
fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{}", value.abs());
    }
    let before = value.abs().log10().floor() as i32 + 1;
    let after = usize::try_from((4 - before).clamp(0, 12)).unwrap_or(0);
    let text = format!("{value:.after$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
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
            unit: Unit::Ratio,
            limit: 0.07,
            passed,
            window: None,
            no_data: false,
            implied: false,
            in_doubt,
        }
    }

    #[test]
    fn exit_codes_follow_their_precedence() {
        let invalid = || vec!["the tester was too slow".to_owned()];
        let code = |verdict: Verdict| verdict.exit_code();
        let (held, missed) = ([result(true, false)], [result(false, false)]);
        assert_eq!(code(Verdict::decide(&held, vec![], false)), 0);
        assert_eq!(code(Verdict::decide(&missed, vec![], false)), 99);
        assert_eq!(code(Verdict::decide(&missed, invalid(), false)), 110);
        assert_eq!(code(Verdict::decide(&missed, invalid(), true)), 105);
        assert_eq!(code(Verdict::decide(&held, vec![], true)), 105);
        let doubtful = Verdict::decide(&[result(true, true)], vec![], false);
        assert_eq!(doubtful.result, VerdictResult::Invalid);
    }

    #[test]
    fn reasons_say_what_was_found() {
        let verdict = Verdict::decide(&[result(false, false)], vec![], false);
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
        assert_eq!(figure(123_456.0, Unit::Count), "123456");
        assert_eq!(figure(0.000_012_345_6, Unit::Ratio), "0.001235 %");
        assert_eq!(figure(3_600.5, Unit::Seconds), "3600 s");
        assert_eq!(figure(2.5e-7, Unit::Seconds), "250 ns");
        assert_eq!(figure(1_536.0, Unit::Bytes), "1.5 KiB");
        assert_eq!(figure(-0.5, Unit::Ratio), "-50 %");
        assert_eq!(figure(0.0, Unit::Cores), "0 cores");
    }
}

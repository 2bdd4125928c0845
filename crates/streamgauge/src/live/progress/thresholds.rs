//! Thresholds of the scenario over the run so far.

use measure::ThresholdResult;
use measure::verdict::figure_four_digits;
use report::human::{count, plural};

use super::line::{ScreenLine, Tone};

/// State of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Holds,
    Violated,
    /// A delay between machines that is too short for the error of their clocks.
    Undecided,
    /// The metric of the threshold has no data yet.
    NoData,
}

impl State {
    fn of(result: &ThresholdResult) -> State {
        match result {
            ThresholdResult { no_data: true, .. } => State::NoData,
            ThresholdResult {
                undecided: true, ..
            } => State::Undecided,
            ThresholdResult { passed: true, .. } => State::Holds,
            _ => State::Violated,
        }
    }

    fn mark(self) -> (Tone, &'static str) {
        match self {
            State::Holds => (Tone::Good, "✓"),
            State::Violated => (Tone::Bad, "✗"),
            State::Undecided => (Tone::Doubtful, "~"),
            State::NoData => (Tone::Faint, "-"),
        }
    }
}

fn value(result: &ThresholdResult) -> String {
    match result.value {
        Some(value) => figure_four_digits(value, result.unit),
        None => "no data".to_owned(),
    }
}

/// Returns the thresholds in at most this many lines: whether each holds, its value so far, and its
/// text. If there are more, those that do not hold come first.
pub(super) fn threshold_lines(results: &[ThresholdResult], lines: usize) -> Vec<ScreenLine> {
    let mut shown: Vec<&ThresholdResult> = results.iter().collect();
    if shown.len() > lines {
        // Stable, so that the others keep their order.
        shown.sort_by_key(|result| State::of(result) != State::Violated);
        shown.truncate(lines.saturating_sub(1));
    }
    let values: Vec<String> = shown.iter().map(|result| value(result)).collect();
    let widest = values.iter().map(|value| value.chars().count());
    let widest = widest.max().unwrap_or(0);
    let mut texts: Vec<ScreenLine> = shown
        .iter()
        .zip(&values)
        .map(|(result, value)| {
            let (tone, mark) = State::of(result).mark();
            let line = ScreenLine::default().with(tone, mark);
            line.with(Tone::Strong, &format!(" {value:>widest$}"))
                .with(Tone::Plain, &format!("  {}", result.text))
        })
        .collect();
    let more = (results.len() - shown.len()) as f64;
    if more > 0.0 && lines > 0 {
        let text = match shown.is_empty() {
            true => summary(results),
            false => format!("and {}", plural(more, "more threshold", "more thresholds")),
        };
        texts.push(ScreenLine::plain(&text));
    }
    texts
}

/// Returns the number of thresholds that hold, and of those that have no data yet. During the ramp
/// of a trial, none has any.
fn summary(results: &[ThresholdResult]) -> String {
    let number = |state| {
        let of_state = results.iter().filter(|result| State::of(result) == state);
        of_state.count() as f64
    };
    let (holding, without_data) = (number(State::Holds), number(State::NoData));
    let all = results.len() as f64;
    if without_data == all {
        return format!(
            "{} without data yet",
            plural(all, "threshold", "thresholds")
        );
    }
    let all = plural(all, "threshold holds", "thresholds hold");
    match without_data {
        0.0 => format!("{} of {all}", count(holding)),
        _ => format!(
            "{} of {all}, {} without data yet",
            count(holding),
            count(without_data)
        ),
    }
}

/// Returns the state of the thresholds as part of a line, for output that is not a terminal. `None`
/// if there are none.
pub(super) fn plain_thresholds(results: &[ThresholdResult]) -> Option<String> {
    let violated = results
        .iter()
        .filter(|result| State::of(result) == State::Violated);
    let violated: Vec<String> = violated
        .map(|result| format!("{} ({})", result.text, value(result)))
        .collect();
    let mut text = summary(results);
    if !violated.is_empty() {
        text.push_str(&format!(", violated: {}", violated.join(", ")));
    }
    (!results.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use measure::Unit;
    use report::paint::Paint;

    use super::*;

    fn result(text: &str, value: Option<f64>, passed: bool) -> ThresholdResult {
        ThresholdResult {
            text: text.to_owned(),
            subject: "viewers".to_owned(),
            value,
            statistic: None,
            unit: Unit::Ratio,
            limit: 0.07,
            passed,
            window: None,
            no_data: value.is_none(),
            implied: false,
            in_doubt: false,
            undecided: false,
            clock_error: None,
        }
    }

    fn shown(results: &[ThresholdResult], lines: usize) -> Vec<String> {
        let lines = threshold_lines(results, lines);
        lines
            .iter()
            .map(|line| line.painted(Paint::default()))
            .collect()
    }

    #[test]
    fn each_threshold_has_its_value_and_state() {
        let mut results = [
            result("viewers.loss < 7%", Some(0.0012), true),
            result("viewers.loss < 1%", Some(0.082), false),
            result("viewers.wrong < 7%", None, false),
            result("viewers.content < 7%", Some(0.0), false),
        ];
        results[3].undecided = true;
        assert_eq!(
            shown(&results, 6),
            [
                "✓  0.12 %  viewers.loss < 7%",
                "✗   8.2 %  viewers.loss < 1%",
                "- no data  viewers.wrong < 7%",
                "~     0 %  viewers.content < 7%",
            ]
        );
        assert_eq!(
            plain_thresholds(&results).as_deref(),
            Some("1 of 4 thresholds hold, 1 without data yet, violated: viewers.loss < 1% (8.2 %)")
        );
        assert_eq!(
            plain_thresholds(&results[2..3]).as_deref(),
            Some("1 threshold without data yet")
        );
        assert_eq!(plain_thresholds(&[]), None);
        assert!(shown(&[], 6).is_empty());
    }

    #[test]
    fn of_many_thresholds_those_that_fail_are_shown() {
        let mut results = vec![result("viewers.loss < 7%", Some(0.01), true); 7];
        results[6] = result("viewers.loss < 1%", Some(0.02), false);
        let lines = shown(&results, 3);
        assert_eq!(lines[0], "✗ 2 %  viewers.loss < 1%");
        assert_eq!(lines[1], "✓ 1 %  viewers.loss < 7%");
        assert_eq!(lines[2], "and 5 more thresholds");
        assert_eq!(shown(&results, 1), ["6 of 7 thresholds hold"]);
        assert!(shown(&results, 0).is_empty());
    }
}

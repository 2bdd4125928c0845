//! The verdict in words: a sentence with its cause, and what explains it.

use measure::metric::MetricSource;
use measure::threshold::Comparison;
use measure::{Threshold, Unit, VerdictResult};
use serde_json::{Value, json};

use super::cards::{parts, shown_metrics};
use super::time_series::TimeSeries;
use crate::cause::{cause, other_reasons};
use crate::head::SERVED_WELL;
use crate::human::{count, digits, duration, figure, plural, short_duration};
use crate::metric_words::{capital, metric_words};
use crate::model::{self, Report};
use crate::rows::{RenderedRow, rows};

/// Explains an outcome.
fn meaning(outcome: VerdictResult) -> &'static str {
    match outcome {
        VerdictResult::Pass => "The measurement can be trusted, and no requirement failed.",
        VerdictResult::Fail => "A threshold did not hold, and the measurement can be trusted.",
        VerdictResult::Invalid => {
            "The measurement cannot be trusted: these figures say nothing about the server."
        }
        VerdictResult::Stopped => "The user stopped the run before its planned end.",
    }
}

/// Returns the verdict with its explanation.
pub(super) fn verdict(report: &Report, time_series: &TimeSeries) -> Value {
    let mut detail = None;
    let in_words = || cause(report).map_or_else(String::new, |text| capital(&text));
    let (sentence, since) = match report.verdict.result {
        VerdictResult::Pass => (pass_sentence(report), None),
        VerdictResult::Fail => match decisive_threshold(report) {
            Some(of) => {
                detail = causes_of_viewers(report, &report.thresholds[of]);
                (
                    describe_threshold(&report.thresholds[of]),
                    failure_times(time_series, report, of),
                )
            }
            None => (in_words(), None),
        },
        VerdictResult::Invalid => {
            // The part after the first semicolon says where it happened and what to do.
            let cause = cause(report).unwrap_or_default();
            let (why, rest) = cause.split_once("; ").unwrap_or((&cause, ""));
            detail = Some(capital(rest)).filter(|rest| !rest.is_empty());
            (format!("Not to be trusted: {why}."), None)
        }
        VerdictResult::Stopped => (in_words(), None),
    };
    let failed = report.verdict.result == VerdictResult::Fail;
    let limited = match (failed, report.server_limits.first(), &report.server) {
        (true, Some(limit), _) => Some(format!("What limited the server: {}.", limit.text)),
        (true, None, Some(_)) => {
            Some("No measurement of the server shows what limited it.".to_owned())
        }
        _ => None,
    };
    json!({
        "result": report.verdict.result,
        "meaning": meaning(report.verdict.result),
        "sentence": sentence,
        "detail": detail,
        "since": since,
        "limited": limited,
        "more": other_reasons(report)
            .into_iter()
            .map(|reason| describe_reason(report, reason))
            .collect::<Vec<_>>(),
    })
}

/// Describes a reason: a failed threshold in words, as at the top, any other as it is.
fn describe_reason(report: &Report, reason: &str) -> String {
    let mut failed = report.thresholds.iter().filter(|one| one.has_failed());
    let of_reason = failed.find(|one| reason.starts_with(&format!("`{}`", one.threshold)));
    match of_reason.filter(|_| report.verdict.result == VerdictResult::Fail) {
        Some(threshold) => match causes_of_viewers(report, threshold) {
            Some(causes) => format!("{} {causes}", describe_threshold(threshold)),
            None => describe_threshold(threshold),
        },
        None => reason.to_owned(),
    }
}

/// Returns why viewers were not served well, if a threshold reads their share: the explanation in
/// the row of the summary.
fn causes_of_viewers(report: &Report, threshold: &model::Threshold) -> Option<String> {
    let parsed = Threshold::parse(&threshold.threshold).ok()?;
    let population = report.population(&threshold.subject)?;
    if parsed.metric() != SERVED_WELL {
        return None;
    }
    let mut rows = rows(population, report.server.is_some()).into_iter();
    rows.find_map(|(row, shown)| match shown {
        RenderedRow::Text(text) if shown_metrics(row).contains(&SERVED_WELL) => {
            Some(format!("{}.", parts(&text).1))
        }
        _ => None,
    })
}

fn pass_sentence(report: &Report) -> String {
    let written = report.thresholds.iter().filter(|one| !one.implied).count();
    let implied = report.thresholds.len() - written;
    let both = match (written, implied) {
        (0, _) => format!("every threshold held ({implied} implied)"),
        (_, 0) => plural(written as f64, "threshold held", "thresholds held"),
        _ => {
            let written = plural(written as f64, "threshold", "thresholds");
            let implied = plural(implied as f64, "implied one", "implied ones");
            format!("{written} and {implied} held")
        }
    };
    let clients: u64 = report
        .populations
        .iter()
        .map(|one| one.clients.started)
        .sum();
    format!(
        "{} in {}: {both}, and the tester was fit to measure.",
        plural(clients as f64, "client", "clients"),
        short_duration(report.run.duration)
    )
}

/// Returns the index of the threshold that explains a failed run, if a threshold is the cause. The
/// end of the server and failures of clients have sentences of their own.
fn decisive_threshold(report: &Report) -> Option<usize> {
    let cause_text = cause(report)?;
    if report.verdict.reasons.first() != Some(&cause_text) {
        return None;
    }
    report.thresholds.iter().position(|threshold| {
        threshold.has_failed() && cause_text.starts_with(&format!("`{}`", threshold.threshold))
    })
}

/// Describes a failed threshold, such as
/// `Loss of viewers was 0.9 %, but less than 0.5 % is required: 1.8 times as much.`
fn describe_threshold(threshold: &model::Threshold) -> String {
    let Ok(parsed) = Threshold::parse(&threshold.threshold) else {
        return format!("`{}` did not hold.", threshold.threshold);
    };
    let mut what = metric_words(parsed.metric());
    if let Some(reason) = parsed.reason() {
        what += &format!(" ({})", metric_words(reason));
    }
    if let Some(statistic) = &threshold.statistic {
        what += &format!(" ({statistic})");
    }
    let what = capital(&what);
    let Some(value) = threshold.value else {
        return format!(
            "{what} of {} has no data, so it does not hold.",
            threshold.subject
        );
    };
    let demanded = figure(threshold.unit, threshold.limit);
    let demanded = match parsed.comparison() {
        Comparison::Less => format!("less than {demanded} is"),
        Comparison::AtMost => format!("at most {demanded} is"),
        Comparison::Greater => format!("more than {demanded} is"),
        Comparison::AtLeast => format!("at least {demanded} is"),
        Comparison::Equal => format!("exactly {demanded} is"),
        Comparison::NotEqual => format!("anything but {demanded} is"),
    };
    if parsed.metric() == SERVED_WELL {
        return format!(
            "{} of {} were served well, but {demanded} required.",
            figure(threshold.unit, value),
            threshold.subject
        );
    }
    let times = value / threshold.limit;
    let by = match times.is_finite() && threshold.limit > 0.0 {
        true if times >= 1000.0 => format!(": {} times as much", count(times.round())),
        true if times > 1.005 => format!(": {} times as much", digits(times)),
        true if times < 0.995 => format!(": {} % of it", digits(100.0 * times)),
        _ => String::new(),
    };
    let value = figure(threshold.unit, value);
    match threshold.unit {
        // Names of counters are no words for a sentence: `received`, `failed`, `stalls`.
        Unit::Count => {
            let written = threshold.threshold.split(['<', '>', '=', '!']).next();
            let name = written.unwrap_or_default().trim();
            format!("`{name}` was {value}, but {demanded} required{by}.")
        }
        _ => format!(
            "{what} of {} was {value}, but {demanded} required{by}.",
            threshold.subject
        ),
    }
}

/// Describes the times at which a threshold did not hold.
pub(super) fn failure_times(
    time_series: &TimeSeries,
    report: &Report,
    threshold: usize,
) -> Option<String> {
    let failure = time_series.since(threshold)?;
    let warm_up = report.run.warm_up;
    if is_of_the_end(report, &report.thresholds[threshold]) {
        return None;
    }
    let first = failure.first?;
    if failure.adds_up && first < 1.0 {
        return Some("The limit was exceeded within the first second.".to_owned());
    }
    let first = clock(first);
    if failure.adds_up {
        return Some(format!(
            "The limit was exceeded {first} after the start of the run."
        ));
    }
    if failure.all == 1 {
        return Some("This was the case in the only second of the measurement.".to_owned());
    }
    if failure.windows == failure.all {
        let without = match warm_up > 0.0 {
            true => " after the warm-up",
            false => "",
        };
        return Some(format!("This was the case in every second{without}."));
    }
    Some(format!(
        "This was the case in {} of {} seconds, first {first} after the start of the run.",
        count(failure.windows as f64),
        count(failure.all as f64),
    ))
}

/// Returns `true` for a threshold on a share of clients, each counted when it ends: the second of
/// its end says nothing about when it went wrong.
fn is_of_the_end(report: &Report, threshold: &model::Threshold) -> bool {
    let parsed = Threshold::parse(&threshold.threshold).ok();
    let population = report.population(&threshold.subject);
    let source = parsed.zip(population).and_then(|(parsed, population)| {
        let metric = population.catalogue.find(parsed.metric())?;
        Some((metric.source, population.catalogue))
    });
    match source {
        Some((MetricSource::Counter(id) | MetricSource::Share(id, _), catalogue)) => {
            catalogue.whole_run().any(|own| own == id)
        }
        _ => false,
    }
}

/// Formats a time in the run.
fn clock(at: f64) -> String {
    match at {
        at if at < 120.0 => format!("{} s", digits((at * 10.0).round() / 10.0)),
        at => duration(at),
    }
}

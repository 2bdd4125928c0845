//! Cause of a run's verdict in one sentence: the line that is read first, and often alone.

use measure::VerdictResult;
use measure::verdict::NO_PUBLISHER;

use crate::human::{count, plural, short_duration};
use crate::model::{Failure, Population, Report};

/// Returns the cause of a verdict, or `None` for a pass.
///
/// - A run that lost runners as its scenario permits: which, and what was judged.
/// - A run that the user stopped: the time, and whether its thresholds held until then.
/// - An invalid run: the first reason why the measurement cannot be trusted.
/// - A failed run: the end of the server; or what happened to the failed clients, if a threshold on
///   them failed, publishers before those who waited for them; else the first threshold that did
///   not hold.
pub fn cause(report: &Report) -> Option<String> {
    let verdict = &report.verdict;
    match verdict.result {
        VerdictResult::Pass => degraded(report),
        VerdictResult::Stopped => Some(stopped(report)),
        VerdictResult::Invalid => verdict.reasons.first().cloned(),
        VerdictResult::Fail => servers_end(report)
            .or_else(|| failed_clients(report).map(|(_, text)| text))
            .or_else(|| verdict.reasons.first().cloned())
            .map(|cause| match degraded(report) {
                None => cause,
                Some(degraded) => format!("{cause}; {degraded}"),
            }),
    }
}

/// Returns which runners a run lost, as its scenario permits, and what was judged.
fn degraded(report: &Report) -> Option<String> {
    let mut lost = report.runners.iter().filter_map(|one| one.lost.as_deref());
    let first = lost.next()?;
    let others = match lost.count() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    Some(format!(
        "degraded: {first}{others}; only the {} in which all runners were present are judged",
        short_duration(report.run.duration)
    ))
}

/// Returns the reasons that the cause does not state.
pub(crate) fn other_reasons(report: &Report) -> Vec<&str> {
    let reasons = report.verdict.reasons.iter().map(String::as_str);
    let of_clients = match servers_end(report) {
        Some(_) => None,
        None => failed_clients(report),
    };
    match (report.verdict.result, of_clients) {
        (VerdictResult::Pass | VerdictResult::Stopped, _) => reasons.collect(),
        (VerdictResult::Fail, Some((population, _))) => {
            let implied = format!("`{population}.failed == 0` (implied)");
            reasons
                .filter(|reason| !reason.starts_with(&implied))
                .collect()
        }
        (VerdictResult::Invalid | VerdictResult::Fail, _) => reasons.skip(1).collect(),
    }
}

/// Returns all reasons for the verdict, the cause first.
pub(crate) fn all_reasons(report: &Report) -> Vec<String> {
    match report.verdict.result {
        VerdictResult::Pass | VerdictResult::Stopped => report.verdict.reasons.clone(),
        VerdictResult::Invalid | VerdictResult::Fail => {
            let others = other_reasons(report).into_iter().map(str::to_owned);
            cause(report).into_iter().chain(others).collect()
        }
    }
}

/// Returns the reason that the server under test ended, if it did. It explains all failures of
/// clients.
fn servers_end(report: &Report) -> Option<String> {
    let first = report.verdict.reasons.first()?;
    first.starts_with("the server ended").then(|| first.clone())
}

fn stopped(report: &Report) -> String {
    let after = short_duration(report.run.duration);
    let known = || {
        let thresholds = report.thresholds.iter();
        thresholds.filter(|threshold| threshold.value.is_some() && !threshold.undecided)
    };
    let all = known().count();
    let missed: Vec<&str> = known()
        .filter(|threshold| !threshold.passed)
        .map(|threshold| threshold.threshold.as_str())
        .collect();
    let until_then = match (all, missed.as_slice()) {
        (0, _) => "; nothing was measured until then".to_owned(),
        (_, []) => format!(
            "; until then {} held",
            plural(all as f64, "threshold", "thresholds")
        ),
        (_, [one]) => format!("; until then `{one}` did not hold"),
        (_, [first, rest @ ..]) => format!(
            "; until then `{first}` and {} more of {all} thresholds did not hold",
            rest.len()
        ),
    };
    format!("stopped by the user after {after}{until_then}")
}

/// Returns the failure that most clients of a population had.
fn most_frequent(population: &Population) -> Option<&Failure> {
    let failures = population.clients.failures.iter();
    failures.max_by_key(|failure| failure.count)
}

/// Describes what happened to the failed clients, if a threshold on their number did not hold.
fn failed_clients(report: &Report) -> Option<(&str, String)> {
    let on_failed = |population: &&Population| {
        population.clients.failed > 0
            && report.thresholds.iter().any(|threshold| {
                !threshold.passed
                    && threshold.subject == population.name
                    && threshold.threshold.contains(".fail")
                    && threshold.limit < population.clients.failed as f64
            })
    };
    // Viewers that wait for a stream fail because its publisher failed.
    let is_cause = |population: &Population| {
        let reason = most_frequent(population).map(|failure| failure.reason.as_str());
        reason != Some(NO_PUBLISHER)
    };
    let population = report
        .populations
        .iter()
        .filter(on_failed)
        .max_by_key(|population| (is_cause(population), population.clients.failed))?;
    let clients = &population.clients;
    let most = most_frequent(population)?;
    let word = if clients.started == 1 {
        "client"
    } else {
        "clients"
    };
    let clients_text = match report.populations.len() {
        1 => word.to_owned(),
        _ => format!("{word} of `{}`", population.name),
    };
    let what = match most.example.as_deref() {
        Some(example) if !example.is_empty() => example,
        _ => &most.reason,
    };
    let others = clients.failed - most.count.min(clients.failed);
    let others = match others {
        0 => String::new(),
        _ => format!("; {} of them for this reason", count(most.count as f64)),
    };
    let text = format!(
        "{} of {} {clients_text} failed: {what}{others}",
        count(clients.failed as f64),
        count(clients.started as f64)
    );
    Some((&population.name, text))
}

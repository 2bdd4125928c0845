//! Why a run came out as it did, in one sentence: the line that is read first, and often alone.

use crate::human::{count, plural, span};
use crate::model::{Outcome, Population, Report};

/// The cause of a verdict that is no pass. `None` of a pass.
///
/// * Of a run that the user stopped: when, and whether all held until then.
/// * Of an invalid one: the first reason why the measurement cannot be trusted.
/// * Of a failed one: what happened to the clients that failed, where that is what was demanded;
///   else the first threshold that did not hold.
pub fn cause(report: &Report) -> Option<String> {
    let verdict = &report.verdict;
    match verdict.result {
        Outcome::Pass => None,
        Outcome::Stopped => Some(stopped(report)),
        Outcome::Invalid => verdict.reasons.first().cloned(),
        Outcome::Fail => failed_clients(report).or_else(|| verdict.reasons.first().cloned()),
    }
}

/// The reasons that the cause has not said yet.
pub(crate) fn other_reasons(report: &Report) -> Vec<&str> {
    let reasons = report.verdict.reasons.iter().map(String::as_str);
    match report.verdict.result {
        Outcome::Pass | Outcome::Stopped => reasons.collect(),
        Outcome::Fail if failed_clients(report).is_some() => reasons
            .filter(|reason| !reason.contains(".failed == 0` (implied)"))
            .collect(),
        Outcome::Invalid | Outcome::Fail => reasons.skip(1).collect(),
    }
}

fn stopped(report: &Report) -> String {
    let after = span(report.run.duration);
    let all = report.thresholds.len();
    let held = report
        .thresholds
        .iter()
        .filter(|threshold| threshold.passed)
        .count();
    let until_then = match (all, all - held) {
        (0, _) => String::new(),
        (_, 0) => format!(
            "; until then {} held",
            plural(all as f64, "threshold", "thresholds")
        ),
        (_, missed) => format!("; until then {missed} of {all} thresholds did not hold"),
    };
    format!("stopped by the user after {after}{until_then}")
}

/// What happened to clients, where a threshold on how many failed did not hold.
fn failed_clients(report: &Report) -> Option<String> {
    let on_failed = |population: &&Population| {
        population.clients.failed > 0
            && report.thresholds.iter().any(|threshold| {
                !threshold.passed
                    && threshold.subject == population.name
                    && threshold.threshold.contains(".fail")
            })
    };
    let population = report
        .populations
        .iter()
        .filter(on_failed)
        .max_by_key(|population| population.clients.failed)?;
    let clients = &population.clients;
    let most = clients.failures.iter().max_by_key(|found| found.count)?;
    let whose = match report.populations.len() {
        1 => "clients".to_owned(),
        _ => format!("clients of `{}`", population.name),
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
    Some(format!(
        "{} of {} {whose} failed: {what}{others}",
        count(clients.failed as f64),
        count(clients.started as f64)
    ))
}

//! Conclusions from a series in sentences, for the terminal and the HTML page.

use super::names::short_names;
use super::{Capacity, Found, Interval, LeftOut, MostMessages, RowOutcome, Scaling, Series};
use crate::human::{count, digits, figure, plural};
use crate::terminal::one_line;
use measure::Unit;

pub(crate) fn with(others: &[(String, String)]) -> String {
    if others.is_empty() {
        return String::new();
    }
    let keys: Vec<String> = others.iter().map(|(key, _)| key.clone()).collect();
    let names = short_names(&keys);
    let others = names.iter().zip(others);
    let others = others.map(|(name, (_, value))| format!("{name} {}", one_line(value)));
    format!("with {}: ", others.collect::<Vec<_>>().join(", "))
}

/// Describes the number of clients with the most acknowledged messages.
pub(crate) fn most(most: &MostMessages, series: &Series) -> String {
    let others = with(&most.with);
    let left_out = left_out_text(&most.left_out);
    let (Some(clients), Some(messages)) = (most.clients, most.messages) else {
        return format!("{others}no eligible run{left_out}");
    };
    let all = series
        .most_messages
        .iter()
        .filter_map(|other| other.messages);
    let best = match series.most_messages.len() > 1 && all.fold(0.0, f64::max) == messages {
        true => ", the best of all",
        false => "",
    };
    let nearly = match most.nearly_with.filter(|&fewer| fewer < clients) {
        Some(fewer) => format!(
            "; at least 95 % of that with {} already",
            count(fewer as f64)
        ),
        None => String::new(),
    };
    let more = match most.at_the_end {
        true => "; no eligible run had more clients, so the maximum may be higher",
        false => "",
    };
    format!(
        "{others}{} messages/s with {}{best}{nearly}{more}{left_out}",
        count(messages.round()),
        plural(clients as f64, "client", "clients"),
    )
}

/// Lists the runs that were left out.
fn left_out_text(runs: &[LeftOut]) -> String {
    let runs: Vec<String> = runs
        .iter()
        .map(|run| format!("{} ({})", count(run.clients as f64), run.reason))
        .collect();
    match runs.is_empty() {
        true => String::new(),
        false => format!("; left out: {}", runs.join(", ")),
    }
}

pub(crate) fn capacity(capacity: &Capacity) -> String {
    let others = with(&capacity.with);
    let rate = capacity.bitrate.map_or_else(String::new, |rate| {
        format!(" ({})", figure(Unit::BitsPerSecond, rate))
    });
    let next = match (capacity.first_not_passed, capacity.outcome) {
        (Some(clients), Some(outcome)) => {
            format!("the run with {} {}", count(clients as f64), how(outcome))
        }
        _ => "no run had more clients, so the capacity may be far higher".to_owned(),
    };
    match capacity.passed {
        Some(clients) => format!(
            "{others}passed up to {}{rate}; {next}",
            plural(clients as f64, "client", "clients")
        ),
        None => format!("{others}no number of clients passed; {next}"),
    }
}

/// Describes the outcome of a run that did not pass.
fn how(outcome: RowOutcome) -> &'static str {
    match outcome {
        RowOutcome::Fail => "failed",
        RowOutcome::Stopped => "was stopped",
        RowOutcome::NotBegun => "did not begin",
        RowOutcome::Planned => "was not run",
        RowOutcome::Pass | RowOutcome::Invalid => "was invalid",
    }
}

/// Describes the first value with which a run passed.
pub(crate) fn found(found: &Found) -> String {
    let others = with(&found.with);
    let before = match (&found.not_passed, found.outcome) {
        (Some(value), Some(outcome)) => {
            format!("the run with {} {}", one_line(value), how(outcome))
        }
        _ if !found.finished => "no earlier value was tried".to_owned(),
        _ => "no earlier value was left to try".to_owned(),
    };
    if !found.finished {
        let so_far = match &found.passed {
            Some(value) => format!("{} passed; {before}", one_line(value)),
            None => "nothing has passed".to_owned(),
        };
        return format!("{others}the search for {} was cut off: {so_far}", found.key);
    }
    match &found.passed {
        Some(value) => {
            let value = one_line(value);
            format!("{others}{} passes from {value} on; {before}", found.key)
        }
        None => format!("{others}no value of {} passed; {before}", found.key),
    }
}

/// Describes the model of a server: the fit, and each parameter with its name.
pub(crate) fn scaling(scaling: &Scaling) -> (String, Vec<(&'static str, String)>) {
    let others = with(&scaling.with);
    let left_out = left_out_text(&scaling.left_out);
    let (Some(lambda), Some(sigma), Some(kappa)) = (scaling.lambda, scaling.sigma, scaling.kappa)
    else {
        let why = scaling.refused.as_deref().unwrap_or("nothing was fitted");
        return (format!("{others}none: {why}{left_out}"), Vec::new());
    };
    let r_squared = scaling
        .r_squared
        .map_or_else(String::new, |share| format!(", R² {share:.4}"));
    let rate = |value: f64| figure(Unit::BitsPerSecond, value);
    let range = |interval: Interval, show: &dyn Fn(f64) -> String| {
        format!(
            "{} ({} to {})",
            show(interval.value),
            show(interval.low),
            show(interval.high)
        )
    };
    let model = format!(
        "{others}universal scalability law over {} runs{r_squared}; 95 % confidence{left_out}",
        scaling.points
    );
    let mut lines = vec![
        ("one client alone, lambda", range(lambda, &rate)),
        ("contention, sigma", range(sigma, &digits)),
        ("coherency, kappa", range(kappa, &small)),
    ];
    match scaling.knee {
        Some(knee) => {
            let far = if knee.measured {
                ""
            } else {
                " (extrapolated beyond the measured range)"
            };
            let clients = range(knee.clients, &|clients| count(clients.round()));
            lines.push(("knee", format!("{clients} clients{far}")));
            lines.push(("predicted maximum", range(knee.bitrate, &rate)));
        }
        None => {
            let refused = scaling.refused.iter();
            lines.extend(refused.map(|why| ("knee", format!("none: {why}"))));
        }
    }
    (model, lines)
}

/// Formats a number that may be very small: 0.00003 is hard to read.
fn small(value: f64) -> String {
    if value == 0.0 || value.abs() >= 1e-3 {
        digits(value)
    } else {
        format!("{value:.2e}")
    }
}

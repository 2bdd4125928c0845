//! Result of a capacity search in sentences.

use super::search::{
    CapacityResult, LevelResult, LoadValue, SearchState, TrialOutcome, TrialResult,
};
use super::words::with;
use crate::human::{count, digits, figure, plural, short_duration};
use crate::terminal::one_line;
use measure::Unit;

/// Returns the answer in one sentence: `243 clients (95 %: 236 to 249)`.
pub(crate) fn answer(found: &CapacityResult) -> String {
    format!("{}{}", with(&found.with), answer_alone(found))
}

/// Returns the answer without the other values.
pub(crate) fn answer_alone(found: &CapacityResult) -> String {
    match &found.capacity {
        Some(capacity) => known(found, capacity),
        None => unknown(found),
    }
}

fn known(found: &CapacityResult, capacity: &LoadValue) -> String {
    let interval = found.low.as_ref().zip(found.high.as_ref());
    let interval = interval.map(|(low, high)| {
        let sure = digits(found.sure * 100.0);
        format!(" ({sure} %: {} to {})", value(low), value(high))
    });
    let bracket = || {
        let (held, failed) = found
            .largest_held
            .as_ref()
            .zip(found.smallest_failed.as_ref())?;
        Some(format!(
            ": {} held, {} failed",
            value(&held.load),
            value(&failed.load)
        ))
    };
    let why = match found.state {
        SearchState::Budget if found.quick => "; the budget ended",
        SearchState::Budget => "; the budget ended before the interval was as narrow as requested",
        SearchState::Trials => "; the interval is not narrower after the maximum number of trials",
        SearchState::CutOff => "; the search was cut off",
        _ => "",
    };
    let more = match interval {
        Some(interval) => interval,
        None if found.quick => String::new(),
        None => bracket().unwrap_or_default(),
    };
    format!("{}{more}{why}", named(&found.key, &value(capacity)))
}

/// Returns what may give an answer if the search found none.
fn next_step(found: &CapacityResult) -> Option<&'static str> {
    if found.capacity.is_some() {
        return None;
    }
    match found.state {
        SearchState::Budget if found.largest_held.is_some() => {
            Some("a larger first load (`from`), or more time (`budget`)")
        }
        SearchState::Trials if found.largest_held.is_some() => Some("a larger first load (`from`)"),
        SearchState::Budget | SearchState::Trials if found.smallest_failed.is_some() => {
            Some("a smaller first load (`from`)")
        }
        SearchState::Budget | SearchState::Trials => None,
        SearchState::TesterLimit => Some("a faster machine, or several with runners"),
        SearchState::AboveMax => Some("a larger `max`"),
        SearchState::BelowMin | SearchState::CutOff | SearchState::Found => None,
    }
}

fn unknown(found: &CapacityResult) -> String {
    let why = match found.state {
        SearchState::TesterLimit => "the tester ends here",
        SearchState::AboveMax => "the largest load held",
        SearchState::BelowMin => "the smallest load failed",
        SearchState::Budget => "the budget ended",
        SearchState::Trials if found.quick => "eight loads were tried",
        SearchState::Trials => "the maximum number of trials was reached",
        SearchState::CutOff => "the search was cut off",
        SearchState::Found => "nothing more is known",
    };
    match (&found.largest_held, &found.smallest_failed) {
        (Some(held), _) => {
            format!("at least {}: {why}", named(&found.key, &value(&held.load)))
        }
        (None, Some(failed)) => {
            format!("below {}: {why}", named(&found.key, &value(&failed.load)))
        }
        (None, None) => format!("unknown: {why}"),
    }
}

/// Returns the capacity alone, with the name of the load.
pub(crate) fn capacity(found: &CapacityResult) -> Option<String> {
    let capacity = found.capacity.as_ref()?;
    Some(named(&found.key, &value(capacity)))
}

/// Returns the capacity and its interval alone.
pub(crate) fn short_answer(found: &CapacityResult) -> String {
    match &found.capacity {
        Some(capacity) => match (&found.low, &found.high) {
            (Some(low), Some(high)) => {
                format!("{} ({} to {})", value(capacity), value(low), value(high))
            }
            _ => value(capacity),
        },
        None => String::new(),
    }
}

/// Describes a trial: its load, its result, and the reason if it got worse.
pub(crate) fn trial(trial: &TrialResult) -> String {
    let result = match trial.result {
        TrialOutcome::Held => "held",
        TrialOutcome::Failed => "failed",
        TrialOutcome::GettingWorse => "got worse",
        TrialOutcome::Invalid => "was invalid",
    };
    let why = trial.worsened.as_ref();
    let why = why.map_or_else(String::new, |why| format!(": {}", one_line(why)));
    format!(
        "{} {result}, judged for {}{why}",
        value(&trial.load),
        short_duration(trial.hold)
    )
}

/// Returns the details of the answer, each with its name.
pub(crate) fn details(found: &CapacityResult) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let level = |level: &LevelResult, part: u32| {
        let trials = level.held + level.failed;
        let of = plural(f64::from(trials), "trial", "trials");
        format!(
            "{} ({part} of {of})",
            named(&found.key, &value(&level.load))
        )
    };
    if let Some(held) = &found.largest_held {
        all.push(("largest that held", level(held, held.held)));
    }
    if let Some(failed) = &found.smallest_failed {
        all.push(("smallest that failed", level(failed, failed.failed)));
    }
    let broke = found.broke.iter().map(|one| {
        let threshold = one_line(&one.threshold);
        let first = match found.broke.len() {
            1 => String::new(),
            _ => format!(", first in {}", one.first),
        };
        format!(
            "{threshold} (in {} of {} failed trials{first})",
            one.trials, one.of
        )
    });
    let broke: Vec<String> = broke.collect();
    if !broke.is_empty() {
        all.push(("broke", broke.join(", ")));
    }
    if let Some(next) = next_step(found) {
        all.push(("try next", next.to_owned()));
    }
    if let Some(unsettled) = unsettled(found) {
        let load = named(&found.key, &value(&unsettled.load));
        let why = unsettled
            .worsened
            .as_deref()
            .map_or_else(String::new, one_line);
        all.push(("does not settle", format!("{load}: {why}")));
    }
    for limit in &found.limits {
        let text = one_line(&limit.text);
        all.push((
            "limited by",
            format!("{text} (in {} of {} trials)", limit.trials, limit.of),
        ));
    }
    if let Some(served) = found.served.filter(|served| *served > 0) {
        let rate = found
            .bitrate
            .map(|rate| format!(", {}", figure(Unit::BitsPerSecond, rate)));
        let served = plural(served as f64, "client", "clients");
        all.push((
            "served there",
            format!("{served}{}", rate.unwrap_or_default()),
        ));
    }
    let invalid = found
        .trials
        .iter()
        .filter(|trial| trial.result == TrialOutcome::Invalid);
    let invalid = match invalid.count() {
        0 => String::new(),
        some => format!(", {some} of them invalid"),
    };
    all.push((
        "trials",
        format!(
            "{}{invalid}, in {} of {}",
            found.trials.len(),
            short_duration(found.spent),
            short_duration(found.budget)
        ),
    ));
    all
}

/// Returns the last trial in which a metric got worse again, after the load had been held for
/// longer.
fn unsettled(found: &CapacityResult) -> Option<&TrialResult> {
    let gets_worse = |trial: &TrialResult| trial.result == TrialOutcome::GettingWorse;
    let mut pairs = found.trials.windows(2).rev();
    let pair = pairs.find(|pair| pair.iter().all(gets_worse) && pair[0].load == pair[1].load)?;
    pair.last()
}

/// Returns a load as text: counts with separators, quantities as in a scenario.
fn value(load: &LoadValue) -> String {
    match load.text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => count(load.value),
        false => load.text.clone(),
    }
}

/// Adds the name of the load to its value.
fn named(key: &str, value: &str) -> String {
    match key.rsplit('.').next() {
        Some("clients") if value == "1" => "1 client".to_owned(),
        Some("clients") => format!("{value} clients"),
        Some(name) => format!("{name} {value}"),
        None => value.to_owned(),
    }
}

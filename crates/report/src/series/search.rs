//! Result of a capacity search, from its trials.

use std::collections::BTreeMap;

use measure::capacity::{End, Level, Method, Scale, Search, Step, Trial, Verdict};
use runfile::series::{CapacityGoal, Index, TrialEntry};
use schemars::JsonSchema;

use super::{Row, Series, grouped};

/// Points of the distribution with a smaller probability than this part of the largest are left
/// out.
const PROBABILITY_MIN: f64 = 1e-4;

/// Number of observed limits that are named.
const LIMITS_MAX: usize = 4;

/// Result of a capacity search for one combination of the other values.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct CapacityResult {
    /// Other varied values, by key.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// Dotted key of the load.
    pub key: String,
    /// Reason for the end of the search.
    pub state: SearchState,
    /// Largest load that is expected to hold; null if it is unknown.
    pub capacity: Option<LoadValue>,
    /// Lower end of the interval that contains the capacity; null without an interval.
    pub low: Option<LoadValue>,
    /// Upper end of that interval.
    pub high: Option<LoadValue>,
    /// Probability with which the interval contains the capacity, from 0 to 1.
    pub sure: f64,
    /// True if the search made one trial for each load, so that no interval is stated.
    pub quick: bool,
    /// Largest load that held; null if none did.
    pub largest_held: Option<LevelResult>,
    /// Smallest load that failed; null if none did.
    pub smallest_failed: Option<LevelResult>,
    /// Thresholds that broke, in how many of the failed trials: the one that most often broke
    /// before the others first.
    pub broke: Vec<Broken>,
    /// Limits of the server that were observed in failed trials, most frequent first. Those at the
    /// smallest load that failed, or of all failed trials if there were none.
    pub limits: Vec<ObservedLimit>,
    /// Number of clients that were served in the median trial at the largest load that held.
    pub served: Option<u64>,
    /// Media bit rate of that trial in bit/s, as in `figures.bitrate`.
    pub bitrate: Option<f64>,
    /// Trials, in order.
    pub trials: Vec<TrialResult>,
    /// Distribution of the capacity, in ascending order. Empty before the search narrows the
    /// interval.
    pub distribution: Vec<Probability>,
    /// Duration of all trials in seconds.
    pub spent: f64,
    /// Maximum duration of the search in seconds.
    pub budget: f64,
}

/// Reason for the end of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchState {
    /// The capacity is known as accurately as requested.
    Found,
    /// The smallest load failed.
    BelowMin,
    /// The largest load held.
    AboveMax,
    /// The tester was unfit, twice at one load.
    TesterLimit,
    /// The budget does not suffice for another trial.
    Budget,
    /// The maximum number of trials, or of loads of a quick search, was reached.
    Trials,
    /// The search was stopped, or is still running.
    CutOff,
}

/// A load.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct LoadValue {
    /// Value in the base unit of its kind: a count, seconds, bit/s, bytes, a share, or events per
    /// second.
    pub value: f64,
    /// Value as written in a scenario.
    pub text: String,
}

/// Trials of one load.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct LevelResult {
    /// The load.
    pub load: LoadValue,
    /// Number of trials that held.
    pub held: u32,
    /// Number of trials that failed.
    pub failed: u32,
    /// Number of trials that were invalid.
    pub invalid: u32,
}

/// A threshold that broke.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct Broken {
    /// Threshold as written.
    pub threshold: String,
    /// Number of failed trials in which it broke.
    pub trials: u64,
    /// Number of failed trials in which it broke before the others.
    pub first: u64,
    /// Number of failed trials.
    pub of: u64,
}

/// A limit of the server that was observed in failed trials.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct ObservedLimit {
    /// Statement of one of the trials, with its figures.
    pub text: String,
    /// Number of trials with a limit of this kind.
    pub trials: u64,
    /// Number of trials that were searched for limits.
    pub of: u64,
}

/// A trial.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct TrialResult {
    /// The load.
    pub load: LoadValue,
    /// Time for which it was judged, in seconds.
    pub hold: f64,
    /// Result.
    pub result: TrialOutcome,
    /// Metric that got worse during the hold; null if none did.
    pub worsened: Option<String>,
    /// Name of the run file in the folder.
    pub file: String,
    /// Index of the run in `runs`.
    pub run: usize,
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// All thresholds held.
    Held,
    /// A threshold broke.
    Failed,
    /// All thresholds held, but a metric got worse.
    GettingWorse,
    /// The tester was unfit.
    Invalid,
}

/// Probability that the capacity is near a load.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Probability {
    /// The load in its base unit.
    pub value: f64,
    /// Probability, from 0 to 1.
    pub probability: f64,
}

/// Returns the result of the search for each combination of the other values.
pub(super) fn of(series: &Series, index: &Index) -> Vec<CapacityResult> {
    let Some(goal) = &index.capacity else {
        return Vec::new();
    };
    let Some(axis) = index.varied.iter().position(|axis| axis.key == goal.key) else {
        return Vec::new();
    };
    let mut groups: BTreeMap<usize, Group<'_>> = BTreeMap::new();
    for (run, (entry, row)) in index.runs.iter().zip(&series.runs).enumerate() {
        let Some(entry) = &entry.trial else {
            continue;
        };
        let group = groups.entry(entry.combination).or_default();
        group.with = series.others(row, axis);
        group.tried.push(Tried { run, row, entry });
    }
    let groups = groups.into_iter();
    groups
        .map(|(combination, group)| {
            let mut ended = goal.ended.iter();
            let ended = ended.find(|ended| ended.combination == combination);
            result(goal, group.with, ended.map(|ended| ended.end), &group.tried)
        })
        .collect()
}

/// Trials of one search.
#[derive(Default)]
struct Group<'a> {
    with: Vec<(String, String)>,
    tried: Vec<Tried<'a>>,
}

/// A trial with its run.
struct Tried<'a> {
    run: usize,
    row: &'a Row,
    entry: &'a TrialEntry,
}

fn result(
    goal: &CapacityGoal,
    with: Vec<(String, String)>,
    end: Option<End>,
    tried: &[Tried<'_>],
) -> CapacityResult {
    let trials: Vec<Trial> = tried.iter().map(|tried| tried.entry.trial).collect();
    let search = Search::resumed(goal.settings.clone(), &trials);
    let scale = goal.scale;
    let answer = search.answer();
    let level = |level: Level| LevelResult {
        load: load_value(scale, level.load),
        held: level.held,
        failed: level.failed,
        invalid: level.invalid,
    };
    let held = answer.largest_held.map(|level| level.load);
    let served = held.and_then(|load| median_trial(tried, load));
    // Clients of other populations, such as a publisher, are not part of the load.
    let is_clients = goal.key.starts_with("clients.") && goal.key.ends_with(".load.clients");
    let most = held.filter(|_| is_clients).unwrap_or(u64::MAX);
    let served = served.map(|(served, bitrate)| (served.min(most), bitrate));
    let (broke, limits) = (broke(tried), limits(tried, answer.smallest_failed));
    CapacityResult {
        with,
        key: goal.key.clone(),
        state: state(&search, end),
        capacity: answer.capacity.map(|load| load_value(scale, load)),
        low: answer
            .interval
            .map(|found| load_value(scale, found.low.floor() as u64)),
        high: answer
            .interval
            .map(|found| load_value(scale, found.high.ceil() as u64)),
        sure: goal.settings.sure,
        quick: goal.settings.method != Method::Interval,
        largest_held: answer.largest_held.map(level),
        smallest_failed: answer.smallest_failed.map(level),
        broke,
        limits,
        served: served.map(|figures| figures.0),
        bitrate: served.and_then(|figures| figures.1),
        trials: tried
            .iter()
            .map(|tried| trial_result(scale, tried))
            .collect(),
        distribution: distribution(scale, &search),
        spent: search.spent().as_secs_f64(),
        budget: goal.settings.budget.as_secs_f64(),
    }
}

fn load_value(scale: Scale, load: u64) -> LoadValue {
    LoadValue {
        value: crate::metrics::round_figure(load as f64 * scale.unit()),
        text: scale.text(load),
    }
}

/// Returns the state of a search: as recorded, or as its trials alone show it.
fn state(search: &Search, end: Option<End>) -> SearchState {
    let of_trials = || match search.next(|_, _| std::time::Duration::ZERO) {
        Step::End(end) => Some(end),
        Step::Try { .. } => None,
    };
    match end.or_else(of_trials) {
        Some(End::Found) => SearchState::Found,
        Some(End::BelowMin) => SearchState::BelowMin,
        Some(End::AboveMax) => SearchState::AboveMax,
        Some(End::TesterLimit) => SearchState::TesterLimit,
        Some(End::Budget) => SearchState::Budget,
        Some(End::Trials) => SearchState::Trials,
        None => SearchState::CutOff,
    }
}

/// Returns the clients served and the bit rate of the median trial that held at a load.
fn median_trial(tried: &[Tried<'_>], load: u64) -> Option<(u64, Option<f64>)> {
    let at_load = tried.iter().filter(|tried| {
        tried.entry.trial.load == load && tried.entry.trial.verdict == Verdict::Held
    });
    let figures = at_load.filter_map(|tried| tried.row.figures.as_ref());
    let mut all: Vec<(u64, Option<f64>)> = figures
        .map(|figures| (figures.served, figures.bitrate))
        .collect();
    all.sort_by(|one, other| one.1.unwrap_or(0.0).total_cmp(&other.1.unwrap_or(0.0)));
    all.get(all.len() / 2).copied()
}

fn has_failed(tried: &&Tried<'_>) -> bool {
    tried.entry.trial.verdict == Verdict::Failed
}

/// Counts the thresholds that broke in failed trials.
fn broke(tried: &[Tried<'_>]) -> Vec<Broken> {
    let failed: Vec<&Tried<'_>> = tried.iter().filter(has_failed).collect();
    let of = failed.len() as u64;
    let broken = failed.iter().flat_map(|tried| {
        let is_first = |one| tried.row.broke_first.as_ref() == Some(one);
        tried
            .row
            .broke
            .iter()
            .map(move |one| (one, u64::from(is_first(one))))
    });
    let counted = grouped(broken)
        .into_iter()
        .map(|(threshold, firsts)| Broken {
            threshold: threshold.clone(),
            trials: firsts.len() as u64,
            first: firsts.iter().sum(),
            of,
        });
    let mut found: Vec<Broken> = counted.collect();
    found.sort_by_key(|one| std::cmp::Reverse((one.first, one.trials)));
    found
}

/// Counts the kinds of limits that were observed.
fn limits(tried: &[Tried<'_>], smallest_failed: Option<Level>) -> Vec<ObservedLimit> {
    let failed = || tried.iter().filter(has_failed);
    let at_bound = failed()
        .filter(|tried| smallest_failed.is_some_and(|level| level.load == tried.entry.trial.load));
    let has_limit = |tried: &&&Tried<'_>| !tried.row.limits.is_empty();
    let at_bound: Vec<&Tried<'_>> = at_bound.collect();
    let searched = match at_bound.iter().any(|tried| has_limit(&tried)) {
        true => at_bound,
        false => failed().collect(),
    };
    let of = searched.len() as u64;
    let observed = searched.iter().flat_map(|tried| &tried.row.limits);
    let by_kind = grouped(observed.map(|limit| (limit.kind, &limit.text)));
    let counted = by_kind.into_iter().map(|(_, texts)| ObservedLimit {
        text: texts[0].clone(),
        trials: texts.len() as u64,
        of,
    });
    let mut found: Vec<ObservedLimit> = counted.collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.trials));
    found.truncate(LIMITS_MAX);
    found
}

fn trial_result(scale: Scale, tried: &Tried<'_>) -> TrialResult {
    TrialResult {
        load: load_value(scale, tried.entry.trial.load),
        hold: tried.entry.trial.hold.as_secs_f64(),
        result: match tried.entry.trial.verdict {
            Verdict::Held => TrialOutcome::Held,
            Verdict::Failed => TrialOutcome::Failed,
            Verdict::GettingWorse => TrialOutcome::GettingWorse,
            Verdict::Invalid => TrialOutcome::Invalid,
        },
        worsened: tried.entry.worsened.clone(),
        file: tried.row.file.clone(),
        run: tried.run,
    }
}

fn distribution(scale: Scale, search: &Search) -> Vec<Probability> {
    let Some(posterior) = search.posterior() else {
        return Vec::new();
    };
    let all = posterior.capacities();
    let top = all.iter().map(|point| point.1).fold(0.0, f64::max);
    let shown = all
        .into_iter()
        .filter(|point| point.1 >= top * PROBABILITY_MIN);
    shown
        .map(|(load, probability)| Probability {
            value: load * scale.unit(),
            probability,
        })
        .collect()
}

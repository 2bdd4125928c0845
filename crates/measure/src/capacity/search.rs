//! The search: from the trials to the next load.

use std::time::Duration;

use super::bounds::{self, Level};
use super::posterior::{Interval, Posterior};
use super::{Answer, End, Method, Settings, Step, Trial, Verdict};

/// Width of the bracket above which one trial decides a level.
const COARSE_WIDTH: f64 = 0.2;

/// Width of the bracket at which sharpening begins (RFC 9971, goal width).
const GOAL_WIDTH: f64 = 0.05;

/// Distance of neighbouring loads.
const GRID: f64 = 0.0125;

/// Difference between equal and opposite results that classifies a level: with three trials and an
/// exceed ratio of 0.5, the third trial cannot change it.
const DECISIVE: u32 = 2;

/// Fewest valid trials before an interval is stated.
const TRIALS_MIN: usize = 10;

/// Most trials of a search.
pub const TRIALS_MAX: usize = 60;

/// Most levels of a quick search.
const QUICK_LEVELS_MAX: usize = 8;

/// Quantiles of the posterior at which trials are made, in turn.
const SHARPENING_QUANTILES: [f64; 2] = [0.2, 0.8];

/// State of a search: a function of its settings and trials.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    trials: Vec<Trial>,
    /// In ascending order of loads.
    levels: Vec<Level>,
    /// Smallest load at which the tester was unfit twice.
    tester_limit: Option<u64>,
    /// Load that must be held for this longer time, because it got worse.
    longer: Option<(u64, Duration)>,
    /// Load that failed on a server that had been overloaded before.
    unconfirmed: Option<u64>,
    /// True if a threshold broke since the start of the server.
    overloaded: bool,
    /// True if the next trial shows whether the server has recovered from an overload.
    recovering: bool,
    spent: Duration,
    posterior: Option<Posterior>,
}

impl Search {
    /// Creates a search without trials.
    pub fn new(settings: Settings) -> Search {
        Search {
            settings,
            trials: Vec::new(),
            levels: Vec::new(),
            tester_limit: None,
            longer: None,
            unconfirmed: None,
            overloaded: false,
            recovering: false,
            spent: Duration::ZERO,
            posterior: None,
        }
    }

    /// Creates a search that goes on after the trials of an earlier one.
    pub fn resumed(settings: Settings, trials: &[Trial]) -> Search {
        let mut search = Search::new(settings);
        trials.iter().for_each(|trial| search.record(*trial));
        search
    }

    /// All trials, in order.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Trials of each load, in ascending order of loads.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Total duration of the trials.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Distribution of the capacity, from the start of sharpening on.
    pub fn posterior(&self) -> Option<&Posterior> {
        self.posterior.as_ref()
    }

    /// Records the result of a trial.
    pub fn record(&mut self, trial: Trial) {
        self.trials.push(trial);
        self.spent += trial.took;
        if trial.fresh {
            self.overloaded = false;
        }
        let was_overloaded = std::mem::take(&mut self.recovering) || self.overloaded;
        let held_longer = self.longer.take().is_some();
        let failed = match trial.verdict {
            Verdict::Invalid => return self.record_invalid(trial.load),
            Verdict::GettingWorse if !held_longer => {
                self.longer = Some((trial.load, trial.hold * 2));
                return;
            }
            Verdict::GettingWorse | Verdict::Failed => true,
            Verdict::Held => false,
        };
        self.unconfirmed = None;
        if failed {
            self.overloaded = true;
            // The earlier overload may be the reason, so a fresh server has to confirm it.
            if was_overloaded && !trial.fresh && self.settings.continuing {
                self.unconfirmed = Some(trial.load);
                return;
            }
            self.recovering = self.settings.continuing;
        }
        self.level(trial.load).count(failed);
        if let Some(posterior) = &mut self.posterior {
            posterior.record(trial.load, failed);
        }
        let is_outgrown = self.posterior.as_ref().map(Posterior::is_at_an_edge);
        let is_interval = self.settings.method == Method::Interval;
        if is_interval && is_outgrown.unwrap_or_else(|| self.is_bracketed()) {
            self.posterior = Some(self.posterior_of_all());
        }
    }

    fn record_invalid(&mut self, load: u64) {
        let level = self.level(load);
        level.invalid += 1;
        if level.invalid >= 2 && level.invalid > level.held + level.failed {
            let limit = self.tester_limit.map_or(load, |limit| limit.min(load));
            self.tester_limit = Some(limit);
        }
    }

    fn level(&mut self, load: u64) -> &mut Level {
        let at = self.levels.binary_search_by_key(&load, |level| level.load);
        let at = at.unwrap_or_else(|at| {
            let level = Level::default();
            self.levels.insert(at, Level { load, ..level });
            at
        });
        &mut self.levels[at]
    }

    /// Returns `true` if the bracket of the confirmed bounds has the goal width.
    fn is_bracketed(&self) -> bool {
        let (lower, upper) = bounds::relevant(&self.levels, DECISIVE);
        let bounds = lower.zip(upper);
        bounds.is_some_and(|(lower, upper)| is_narrow(lower.load, upper.load, GOAL_WIDTH))
    }

    /// Computes the posterior around the present bracket.
    fn posterior_of_all(&self) -> Posterior {
        let (lower, upper) = bounds::relevant(&self.levels, 1);
        let loads = || self.levels.iter().map(|level| level.load);
        let lower = lower.map(|level| level.load).or_else(|| loads().min());
        let upper = upper.map(|level| level.load).or_else(|| loads().max());
        Posterior::of(lower.unwrap_or(1), upper.unwrap_or(1), &self.levels)
    }

    /// Returns the next step. `cost` estimates the duration of a trial from its load and hold.
    pub fn next(&self, cost: impl Fn(u64, Duration) -> Duration) -> Step {
        let (load, hold, fresh) = match self.wanted() {
            Ok(wanted) => wanted,
            Err(end) => return Step::End(end),
        };
        let left = self.settings.budget.saturating_sub(self.spent);
        if self.trials.len() >= TRIALS_MAX {
            return Step::End(End::Trials);
        }
        if cost(load, hold) > left {
            return Step::End(End::Budget);
        }
        Step::Try { load, hold, fresh }
    }

    /// Returns the load, hold and freshness of the next trial.
    fn wanted(&self) -> Result<(u64, Duration, bool), End> {
        let Settings {
            hold, continuing, ..
        } = self.settings;
        if let Some((load, hold)) = self.longer {
            return Ok((load, hold, !continuing));
        }
        if let Some(load) = self.unconfirmed {
            return Ok((load, hold, true));
        }
        let load = self.wanted_load()?;
        let (lower, _) = bounds::relevant(&self.levels, 1);
        match lower.filter(|_| self.recovering) {
            Some(lower) => Ok((lower.load, hold, false)),
            None => Ok((load, hold, !continuing || self.trials.is_empty())),
        }
    }

    fn wanted_load(&self) -> Result<u64, End> {
        let method = self.settings.method;
        if let Some(level) = self.levels.iter().find(|level| level.is_undecided()) {
            return Ok(level.load);
        }
        let (lower, upper) = bounds::relevant(&self.levels, 1);
        if method == Method::Quick && self.levels.len() >= QUICK_LEVELS_MAX {
            return Err(match (lower, upper) {
                _ if self.is_below_limit(upper) => End::TesterLimit,
                (Some(_), Some(_)) => End::Found,
                _ => End::Trials,
            });
        }
        if let Some(posterior) = &self.posterior {
            return self.sharpen(posterior);
        }
        // A load that failed above the tester's limit does not bound the capacity below that limit.
        let upper = upper.filter(|_| !self.is_below_limit(upper));
        if let Some(load) = upper.and_then(|upper| self.served_load(lower, upper)) {
            return Ok(load);
        }
        match (lower, upper) {
            (None, None) => self.first_load(),
            (Some(lower), None) => self.climb(lower),
            (None, Some(upper)) => self.descend(upper),
            (Some(lower), Some(upper)) => match method {
                Method::Interval => Ok(bracketing_load(lower, upper)),
                Method::Quick => between(lower.load, upper.load).ok_or(End::Found),
                Method::List => between_positions(lower.load, upper.load).ok_or(End::Found),
            },
        }
    }

    /// Returns the load that the server carried in the smallest level that failed, or the next one
    /// if that has held. `None` if it is unknown, was tried, or is not within the bracket.
    fn served_load(&self, lower: Option<Level>, upper: Level) -> Option<u64> {
        let mut trials = self.trials.iter().rev();
        let served = trials.find_map(|trial| trial.served.filter(|_| trial.load == upper.load))?;
        let held = lower.map_or(self.settings.min.saturating_sub(1), |lower| lower.load);
        let load = match lower.is_some() && served == held {
            true => (served + 1).max((served as f64 * (1.0 + GRID)).ceil() as u64),
            false => served,
        };
        let is_tried = self.levels.iter().any(|level| level.load == load);
        (load > held && load < upper.load && !is_tried).then_some(load)
    }

    fn first_load(&self) -> Result<u64, End> {
        let Settings { from, min, max, .. } = self.settings;
        match self.tester_limit {
            None => Ok(from.clamp(min, max)),
            Some(limit) if limit > min => Ok((limit / 2).max(min)),
            Some(_) => Err(End::TesterLimit),
        }
    }

    /// Returns a larger load, because none failed yet.
    fn climb(&self, lower: Level) -> Result<u64, End> {
        if let Some(limit) = self.tester_limit {
            let is_close = is_narrow(lower.load, limit, COARSE_WIDTH);
            let load = between(lower.load, limit).filter(|_| !is_close);
            return load.ok_or(End::TesterLimit);
        }
        let max = self.settings.max;
        match self.settings.method {
            _ if lower.load >= max => Err(End::AboveMax),
            Method::List => Ok(between_positions(lower.load, max + 1).unwrap_or(max)),
            Method::Interval | Method::Quick => Ok(lower.load.saturating_mul(2).min(max)),
        }
    }

    /// Returns `true` if the tester was unfit at a load below the smallest one that failed.
    fn is_below_limit(&self, upper: Option<Level>) -> bool {
        let limit = self.tester_limit;
        limit.is_some_and(|limit| upper.is_none_or(|upper| limit < upper.load))
    }

    /// Returns a smaller load, because none held yet.
    fn descend(&self, upper: Level) -> Result<u64, End> {
        let Settings { min, method, .. } = self.settings;
        match upper.load > min {
            true => Ok((upper.load / 2).max(min)),
            false if method != Method::Interval || upper.failed >= DECISIVE => Err(End::BelowMin),
            false => Ok(min),
        }
    }

    /// Returns the load of which the result tells most about the capacity.
    fn sharpen(&self, posterior: &Posterior) -> Result<u64, End> {
        let Settings {
            min,
            max,
            sure,
            within,
            ..
        } = self.settings;
        let interval = posterior.interval(sure);
        if self.reaches_tester_limit(interval) {
            return Err(End::TesterLimit);
        }
        let is_narrow = interval.high - interval.low <= within * posterior.capacity();
        let is_one_load = interval.high.floor() <= interval.low.floor();
        let is_whole = !posterior.is_at_an_edge();
        if self.valid_trials() >= TRIALS_MIN && is_whole && (is_narrow || is_one_load) {
            return Err(End::Found);
        }
        let [low, high] = SHARPENING_QUANTILES;
        let load = match self.trials.len().is_multiple_of(2) {
            true => posterior.quantile(low).floor(),
            false => posterior.quantile(high).ceil(),
        };
        Ok((load as u64).clamp(min, max))
    }

    fn valid_trials(&self) -> usize {
        let valid = |trial: &&Trial| trial.verdict != Verdict::Invalid;
        self.trials.iter().filter(valid).count()
    }

    /// Returns `true` if the capacity may lie where the tester is unfit.
    fn reaches_tester_limit(&self, interval: Interval) -> bool {
        let limit = self.tester_limit;
        limit.is_some_and(|limit| interval.high >= limit as f64)
    }

    /// Returns the answer as far as it is known.
    pub fn answer(&self) -> Answer {
        let (largest_held, smallest_failed) = bounds::relevant(&self.levels, 1);
        let Settings { sure, min, max, .. } = self.settings;
        let posterior = self.posterior.as_ref();
        let sharp = posterior.map(|own| (own.capacity(), own.interval(sure)));
        let is_unknown = match sharp {
            Some((_, interval)) => self.reaches_tester_limit(interval),
            None => self.is_below_limit(smallest_failed),
        };
        let is_sharp = self.valid_trials() >= TRIALS_MIN && !is_unknown;
        let sharp = sharp.filter(|_| is_sharp);
        let bracket = largest_held.zip(smallest_failed).filter(|_| !is_unknown);
        let bracket = bracket.map(|(lower, _)| lower.load);
        let capacity = sharp.map(|(capacity, _)| capacity as u64).or(bracket);
        // The distribution reaches beyond the loads that are possible.
        let within = |load: f64| load.clamp(min as f64, max as f64);
        Answer {
            capacity: capacity.map(|capacity| capacity.clamp(min, max)),
            interval: sharp.map(|(_, interval)| Interval {
                low: within(interval.low),
                high: within(interval.high),
            }),
            largest_held,
            smallest_failed,
        }
    }
}

/// Returns the next load while the bracket is wider than the goal.
fn bracketing_load(lower: Level, upper: Level) -> u64 {
    let middle = between(lower.load, upper.load);
    let is_coarse = !is_narrow(lower.load, upper.load, COARSE_WIDTH);
    match middle {
        Some(middle) if is_coarse => middle,
        _ if lower.held < lower.failed + DECISIVE => lower.load,
        _ if upper.failed < upper.held + DECISIVE => upper.load,
        Some(middle) => middle,
        None => lower.load,
    }
}

/// Returns `true` if the bracket is not wider than this part of its upper bound, or contains no
/// other load.
fn is_narrow(lower: u64, upper: u64, width: f64) -> bool {
    upper <= lower + 1 || (upper - lower) as f64 <= width * upper as f64
}

/// Returns the geometric mean of two loads, or `None` if no load of the grid is between them.
fn between(lower: u64, upper: u64) -> Option<u64> {
    if is_narrow(lower, upper, GRID) {
        return None;
    }
    let middle = (lower as f64 * upper as f64).sqrt().round() as u64;
    Some(middle.clamp(lower + 1, upper - 1))
}

/// Returns the position in the middle, or `None` if the two are neighbours.
fn between_positions(lower: u64, upper: u64) -> Option<u64> {
    (upper > lower + 1).then(|| lower + (upper - lower).div_ceil(2))
}

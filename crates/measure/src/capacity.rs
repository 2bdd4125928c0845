//! Controller of a capacity search: it chooses the next load from the history of trials, and states
//! the capacity with its interval. It does no I/O and reads no clock.
//!
//! Terms are those of MLRsearch (RFC 9971), applied to an integer load such as a number of clients:
//!
//! | MLRsearch | here |
//! |---|---|
//! | load | an integer on a geometric grid of 1.25 % |
//! | trial | one level, held for [`Settings::hold`] |
//! | high-loss trial | a threshold broke during the hold |
//! | goal duration sum, exceed ratio | three trials, 0.5: two equal results classify a load |
//! | goal width | 5 % of the upper bound |
//! | maximum load | a load at which the tester was invalid twice |
//!
//! A trial is not judged by its loss ratio alone, so the search does not conform to RFC 9971.
//!
//! # Phases
//! 1. *Bracket*: the load is doubled or halved, one trial a level, until the largest load that held
//!    and the smallest that failed are within 20 %. Then each bound is confirmed and the bracket is
//!    halved until it is 5 % wide.
//! 2. *Sharpen*: all trials give a [`Posterior`] over the capacity. The next trial is at its 20 or
//!    80 % point, until the interval is as narrow as [`Settings::within`].
//!
//! The bracket alone is not a confidence interval: with a knee of 3 % it misses the capacity in
//! half of all searches.

#![deny(missing_docs)]

mod bounds;
mod posterior;
mod scale;
mod search;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::units::duration;
use serde::{Deserialize, Serialize};

pub use bounds::Level;
pub use posterior::{Interval, Posterior};
pub use scale::{Scale, ValueKind};
pub use search::{Search, TRIALS_MAX};

/// Goals and limits of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// First load.
    pub from: u64,
    /// Smallest load, at least 1.
    pub min: u64,
    /// Largest load.
    pub max: u64,
    /// Time for which each level is judged.
    #[serde(with = "duration")]
    pub hold: Duration,
    /// Probability with which the interval contains the capacity, such as 0.95.
    pub sure: f64,
    /// Width of the interval as a part of the capacity, such as 0.1.
    pub within: f64,
    /// Maximum duration of all trials together.
    #[serde(with = "duration")]
    pub budget: Duration,
    /// Number of trials for each level, and whether an interval is stated.
    pub method: Method,
    /// True if trials are made on one server that keeps running.
    pub continuing: bool,
}

/// Number of trials for each level, and whether an interval is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Several trials for each level, until the interval is narrow enough.
    Interval,
    /// One trial for each of at most eight levels. No interval is stated.
    Quick,
    /// One trial for each level. No interval is stated. Loads are positions in a list of values:
    /// every position can be tried, and the distance between two positions means nothing.
    List,
}

impl Settings {
    /// Returns the settings of a search in a list with this number of values.
    pub fn of_list(values: u64) -> Settings {
        Settings {
            from: 1,
            min: 1,
            max: values,
            hold: Duration::ZERO,
            sure: 0.0,
            within: 0.0,
            budget: Duration::MAX,
            method: Method::List,
            continuing: false,
        }
    }
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All thresholds held.
    Held,
    /// A threshold broke.
    Failed,
    /// All thresholds held, but a metric got worse during the whole hold and would break one later.
    GettingWorse,
    /// The tester was unfit, so the trial says nothing about the server.
    Invalid,
}

/// A trial: one load that was held and judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Load of the level.
    pub load: u64,
    /// Time for which it was judged.
    #[serde(with = "duration")]
    pub hold: Duration,
    /// Result.
    pub verdict: Verdict,
    /// Number of clients that did not fail, if some did. The search tries this load next if it is
    /// within the bracket. `None` if no client failed, or if the load is not a number of clients.
    pub served: Option<u64>,
    /// Duration from the start of the server to its end, including ramp and settling.
    #[serde(with = "duration")]
    pub took: Duration,
    /// True if the server was started for this trial.
    pub fresh: bool,
}

/// Next action of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a trial.
    Try {
        /// Load of the level.
        load: u64,
        /// Time for which it is to be judged.
        hold: Duration,
        /// True if the server must be started for this trial.
        fresh: bool,
    },
    /// The search has ended.
    End(End),
}

/// Reason for the end of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The interval is as narrow as requested, or cannot be narrower.
    Found,
    /// The smallest load fails.
    BelowMin,
    /// The largest load holds.
    AboveMax,
    /// The tester was unfit, twice at one load, before the capacity was reached.
    TesterLimit,
    /// The budget does not suffice for the next trial.
    Budget,
    /// The maximum number of trials, or of levels of a quick search, is reached.
    Trials,
}

/// Result of a search so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Largest load that is expected to hold. `None` if no load failed, or if none held.
    pub capacity: Option<u64>,
    /// Interval that contains the capacity. `None` for a quick search and before ten trials.
    pub interval: Option<Interval>,
    /// Largest load that held.
    pub largest_held: Option<Level>,
    /// Smallest load that failed.
    pub smallest_failed: Option<Level>,
}

//! Comparison of two servers, from a metric of several runs of each.
//!
//! The unit is the run: the windows of one run depend on each other, so an interval that is made
//! from them calls identical servers different. Runs of two servers that alternate form pairs, and
//! a pair has one difference. Its mean is judged by Student's t distribution. Runs that were made
//! separately have no pairs; they are judged by Welch's test.
//!
//! Logarithms are compared, so that a difference is a ratio. Shares, and metrics that are zero in
//! some run, are compared as they are.

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Smallest relative difference that counts, by default: 5 %.
pub const MIN_EFFECT: f64 = 0.05;

/// Smallest difference between two shares that counts: 0.1 percentage points.
pub const MIN_EFFECT_OF_SHARES: f64 = 0.001;

/// Confidence of intervals and words.
pub const CONFIDENCE: f64 = 0.95;

/// Smallest number of pairs, or of separate runs of each server, that is judged.
const RUNS_MIN: usize = 3;

/// Number of pairs for each pair that may be left out.
const PAIRS_FOR_ONE_SPOILED: usize = 6;

/// A pair is spoiled if its difference is this many minimum effects from the median.
const SPOILED_EFFECTS: f64 = 3.0;

/// A pair is spoiled if its difference is this many standard deviations from the median. The
/// deviation is estimated from the median absolute deviation.
const SPOILED_DEVIATIONS: f64 = 6.0;

/// Ratio of the standard deviation to the median absolute deviation of a normal distribution.
const DEVIATION_OF_MAD: f64 = 1.4826;

/// Values of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample<'a> {
    /// Runs of A and B that alternated: (A, B).
    Pairs(&'a [(f64, f64)]),
    /// Runs of A and of B that were made separately.
    Separate(&'a [f64], &'a [f64]),
}

/// Scale of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ScaleName")]
pub enum Scale {
    /// B divided by A.
    Ratio,
    /// B minus A: for shares, and if a value is zero.
    Difference,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "WordName")]
pub enum Word {
    /// B is better by at least the smallest effect that counts.
    Better,
    /// B is worse by at least that effect.
    Worse,
    /// The difference is smaller than that effect.
    Same,
    /// The runs show none of the others.
    CannotTell,
}

impl Word {
    /// The word as shown.
    pub const fn text(self) -> &'static str {
        match self {
            Word::Better => "better",
            Word::Worse => "worse",
            Word::Same => "same",
            Word::CannotTell => "cannot tell",
        }
    }
}

/// Comparison of one metric of B with that of A.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Scale of the effect.
    pub scale: Scale,
    /// Ratio of B to A, or the difference between them.
    pub effect: f64,
    /// Interval that contains the true effect with probability [`CONFIDENCE`]. `None` if there are
    /// too few runs.
    pub interval: Option<(f64, f64)>,
    /// Smallest effect that counts, as a share for [`Scale::Ratio`].
    pub min_effect: f64,
    /// Probability of a difference at least this large between identical servers. `None` if there
    /// are too few runs, or if all runs have the same value.
    pub p_value: Option<f64>,
    /// True if two one-sided tests show that the difference is smaller than the minimum effect.
    pub is_equivalent: bool,
    /// Indices of pairs that were left out, because they differ far too much from the others. If
    /// there are any, the servers are never called the same.
    pub spoiled: Vec<usize>,
}

/// Mean of differences, with its standard error and degrees of freedom.
struct Estimate {
    mean: f64,
    /// `None` if there are too few values.
    error: Option<(f64, f64)>,
}

/// Compares a metric of B with that of A. `is_share` tells that the metric is a share, from 0 to 1.
/// `min_effect` is the smallest relative difference that counts. Returns `None` without values.
pub fn compare(sample: Sample<'_>, is_share: bool, min_effect: f64) -> Option<Comparison> {
    let scale = match is_share || sample.has_zero() {
        true => Scale::Difference,
        false => Scale::Ratio,
    };
    let of_shares = MIN_EFFECT_OF_SHARES;
    // Smallest effect on the scale of the differences.
    let least = match scale {
        Scale::Ratio => min_effect.ln_1p(),
        Scale::Difference if is_share => of_shares,
        Scale::Difference => min_effect * sample.mean_of_a()?.abs(),
    };
    let on_scale = |value: f64| match scale {
        Scale::Ratio => value.ln(),
        Scale::Difference => value,
    };
    let (estimate, spoiled) = match sample {
        Sample::Pairs(pairs) => {
            let all: Vec<f64> = pairs
                .iter()
                .map(|(a, b)| on_scale(*b) - on_scale(*a))
                .collect();
            let spoiled = spoiled(&all, least);
            let kept = all.iter().enumerate();
            let kept: Vec<f64> = kept
                .filter_map(|(at, one)| (!spoiled.contains(&at)).then_some(*one))
                .collect();
            (paired(&kept)?, spoiled)
        }
        Sample::Separate(a, b) => {
            let [a, b] = [a, b].map(|all| all.iter().copied().map(on_scale).collect::<Vec<_>>());
            (welch(&a, &b)?, Vec::new())
        }
    };
    let back = |value: f64| match scale {
        Scale::Ratio => value.exp(),
        Scale::Difference => value,
    };
    // Values that are too large for a sum have no error.
    let error = estimate.error.filter(|(error, freedom)| {
        let is_sound = error.is_finite() && freedom.is_finite() && *freedom > 0.0;
        is_sound && estimate.mean.is_finite()
    });
    let judged = error.map(|error| judge(estimate.mean, error, least));
    Some(Comparison {
        scale,
        effect: back(estimate.mean),
        interval: judged.map(|judged| (back(judged.low), back(judged.high))),
        min_effect: match scale {
            Scale::Ratio => min_effect,
            Scale::Difference => least,
        },
        p_value: judged.and_then(|judged| judged.p_value),
        is_equivalent: spoiled.is_empty() && judged.is_some_and(|judged| judged.is_equivalent),
        spoiled,
    })
}

impl Sample<'_> {
    /// A logarithm of zero or less is no number.
    fn has_zero(&self) -> bool {
        let is_zero = |value: &f64| *value <= 0.0;
        match self {
            Sample::Pairs(pairs) => pairs.iter().any(|(a, b)| is_zero(a) || is_zero(b)),
            Sample::Separate(a, b) => a.iter().chain(*b).any(is_zero),
        }
    }

    fn mean_of_a(&self) -> Option<f64> {
        let all: Vec<f64> = match self {
            Sample::Pairs(pairs) => pairs.iter().map(|(a, _)| *a).collect(),
            Sample::Separate(a, _) => a.to_vec(),
        };
        mean(&all)
    }
}

fn mean(all: &[f64]) -> Option<f64> {
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// Returns the variance of at least two values.
fn variance(all: &[f64], mean: f64) -> f64 {
    let squares = all.iter().map(|one| (one - mean).powi(2));
    squares.sum::<f64>() / (all.len() - 1) as f64
}

fn median(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    f64::midpoint(sorted[count / 2], sorted[(count - 1) / 2])
}

/// Returns the pairs that differ far too much from the others, such as one with a run that was
/// disturbed. More than one of [`PAIRS_FOR_ONE_SPOILED`] pairs are kept: then the server varies.
fn spoiled(differences: &[f64], least: f64) -> Vec<usize> {
    if differences.len() < PAIRS_FOR_ONE_SPOILED {
        return Vec::new();
    }
    let middle = median(differences);
    let distances: Vec<f64> = differences.iter().map(|one| (one - middle).abs()).collect();
    let deviation = DEVIATION_OF_MAD * median(&distances);
    let far = (SPOILED_EFFECTS * least).max(SPOILED_DEVIATIONS * deviation);
    let found: Vec<usize> = (0..differences.len())
        .filter(|at| distances[*at] > far)
        .collect();
    match found.len() <= differences.len() / PAIRS_FOR_ONE_SPOILED {
        true => found,
        false => Vec::new(),
    }
}

fn paired(differences: &[f64]) -> Option<Estimate> {
    let mean = mean(differences)?;
    let count = differences.len() as f64;
    let error = (differences.len() >= RUNS_MIN).then(|| {
        let error = (variance(differences, mean) / count).sqrt();
        (error, count - 1.0)
    });
    Some(Estimate { mean, error })
}

/// Welch's test for two samples with unequal variances, with the degrees of freedom by
/// Satterthwaite.
fn welch(a: &[f64], b: &[f64]) -> Option<Estimate> {
    let (of_a, of_b) = (mean(a)?, mean(b)?);
    let mean = of_b - of_a;
    if a.len() < RUNS_MIN || b.len() < RUNS_MIN {
        return Some(Estimate { mean, error: None });
    }
    let part = |all: &[f64], mean: f64| variance(all, mean) / all.len() as f64;
    let (a_part, b_part) = (part(a, of_a), part(b, of_b));
    let sum = a_part + b_part;
    let degrees = |part: f64, all: &[f64]| part.powi(2) / (all.len() - 1) as f64;
    let freedom = match sum > 0.0 {
        true => sum.powi(2) / (degrees(a_part, a) + degrees(b_part, b)),
        false => (a.len() + b.len() - 2) as f64,
    };
    Some(Estimate {
        mean,
        error: Some((sum.sqrt(), freedom)),
    })
}

#[derive(Clone, Copy)]
struct Judged {
    low: f64,
    high: f64,
    p_value: Option<f64>,
    is_equivalent: bool,
}

fn judge(mean: f64, (error, freedom): (f64, f64), least: f64) -> Judged {
    if error <= 0.0 {
        // Every run has the same value, or every pair the same difference.
        return Judged {
            low: mean,
            high: mean,
            p_value: (mean != 0.0).then_some(0.0),
            is_equivalent: mean == 0.0 || mean.abs() < least,
        };
    }
    let student = StudentsT::new(0.0, 1.0, freedom).expect("the degrees of freedom are positive");
    let alpha = 1.0 - CONFIDENCE;
    let half = student.inverse_cdf(1.0 - alpha / 2.0) * error;
    let one_sided = student.inverse_cdf(1.0 - alpha) * error;
    Judged {
        low: mean - half,
        high: mean + half,
        p_value: Some(2.0 * student.sf(mean.abs() / error)),
        is_equivalent: mean + one_sided < least && mean - one_sided > -least,
    }
}

impl Comparison {
    /// True if the effect is at least the smallest that counts.
    fn counts(&self) -> bool {
        match self.scale {
            Scale::Ratio => self.effect.ln().abs() >= self.min_effect.ln_1p(),
            Scale::Difference => self.effect != 0.0 && self.effect.abs() >= self.min_effect,
        }
    }

    /// True if the metric of B is the larger one.
    fn is_larger(&self) -> bool {
        match self.scale {
            Scale::Ratio => self.effect > 1.0,
            Scale::Difference => self.effect > 0.0,
        }
    }
}

/// Returns the word for each of several metrics that were compared together. `true` tells that a
/// larger value of the metric is better. P-values are adjusted for the number of metrics by Holm's
/// method, so that one of them calls identical servers different with a probability of at most 5 %
/// for all metrics together.
pub fn words(all: &[(Comparison, bool)]) -> Vec<Word> {
    let mut tested: Vec<(usize, f64)> = all
        .iter()
        .enumerate()
        .filter_map(|(at, (comparison, _))| Some((at, comparison.p_value?)))
        .collect();
    tested.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut different = vec![false; all.len()];
    let count = tested.len();
    for (number, (at, p_value)) in tested.into_iter().enumerate() {
        if p_value * (count - number) as f64 >= 1.0 - CONFIDENCE {
            break;
        }
        different[at] = true;
    }
    let each = all.iter().zip(different);
    each.map(|((comparison, larger_is_better), different)| {
        if different && comparison.counts() {
            match comparison.is_larger() == *larger_is_better {
                true => Word::Better,
                false => Word::Worse,
            }
        } else if comparison.is_equivalent {
            Word::Same
        } else {
            Word::CannotTell
        }
    })
    .collect()
}

#[cfg(test)]
mod tests;

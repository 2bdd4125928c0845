//! Posterior distribution of the capacity, from all trials that held or failed.

use super::bounds::Level;

/// Number of capacities on the grid.
const POINTS: usize = 161;

/// Widths of the knee, as a part of the capacity: the smaller, the sharper is the transition from
/// trials that hold to trials that fail. All are equally likely at first.
const KNEES: [f64; 5] = [0.003, 0.01, 0.03, 0.06, 0.12];

/// Shares of trials that fail at any load.
const LAPSES: [f64; 2] = [0.003, 0.05];

/// Distance from the bracket to the ends of the grid, in logarithms.
const REACH: f64 = 0.3;

/// Number of points at each end of the grid that must be nearly without probability, and the most
/// that they may have together.
const EDGE: usize = 5;
const EDGE_MAX: f64 = 0.01;

/// Smallest likelihood of a result.
const LIKELIHOOD_MIN: f64 = 1e-9;

/// Interval of loads that contains the capacity with the requested probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Distribution of the capacity, the width of its knee and the share of lapses. The probability
/// that a trial fails is logistic in the logarithm of the load, and one half at the capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Posterior {
    /// Logarithm of the smallest capacity of the grid.
    first: f64,
    /// Difference of the logarithms of neighbouring capacities.
    step: f64,
    /// Log-likelihood of each combination of lapses, knee and capacity, in this order.
    weights: Vec<f64>,
    /// Probability of each capacity.
    probabilities: Vec<f64>,
}

impl Posterior {
    /// Creates the distribution that follows from these trials. Before them, all capacities around
    /// the bracket are equally likely.
    pub(crate) fn of(lower: u64, upper: u64, levels: &[Level]) -> Posterior {
        let first = (lower.max(1) as f64).ln() - REACH;
        let last = (upper.max(lower).max(1) as f64 + 1.0).ln() + REACH;
        let mut posterior = Posterior {
            first,
            step: (last - first) / (POINTS - 1) as f64,
            weights: vec![0.0; POINTS * KNEES.len() * LAPSES.len()],
            probabilities: Vec::new(),
        };
        for level in levels {
            posterior.weigh(level.load, f64::from(level.held), f64::from(level.failed));
        }
        posterior.normalize();
        posterior
    }

    pub(crate) fn record(&mut self, load: u64, failed: bool) {
        let failures = f64::from(u8::from(failed));
        self.weigh(load, 1.0 - failures, failures);
        self.normalize();
    }

    /// Adds the log-likelihood of this number of trials that held and that failed.
    fn weigh(&mut self, load: u64, held: f64, failed: f64) {
        let load = (load.max(1) as f64).ln();
        let mut weights = self.weights.iter_mut();
        for lapse in LAPSES {
            for knee in KNEES {
                for point in 0..POINTS {
                    let capacity = self.first + self.step * point as f64;
                    let overload = 1.0 / (1.0 + ((capacity - load) / knee).exp());
                    let fails = lapse + (1.0 - lapse) * overload;
                    let weight = weights.next().expect("one for each combination");
                    // A floor keeps one fluke from ruling out a combination.
                    if held > 0.0 {
                        *weight += held * (1.0 - fails).max(LIKELIHOOD_MIN).ln();
                    }
                    if failed > 0.0 {
                        *weight += failed * fails.max(LIKELIHOOD_MIN).ln();
                    }
                }
            }
        }
    }

    fn normalize(&mut self) {
        let top = self.weights.iter().copied().fold(f64::MIN, f64::max);
        let mut sums = vec![0.0; POINTS];
        for (index, weight) in self.weights.iter().enumerate() {
            sums[index % POINTS] += (weight - top).exp();
        }
        let total: f64 = sums.iter().sum();
        self.probabilities = sums.into_iter().map(|sum| sum / total).collect();
    }

    /// Capacities of the grid in ascending order, each with its probability.
    pub fn capacities(&self) -> Vec<(f64, f64)> {
        let points = self.probabilities.iter().enumerate();
        points
            .map(|(point, probability)| (self.at(point as f64), *probability))
            .collect()
    }

    /// Capacity at a point of the grid, or between two.
    fn at(&self, point: f64) -> f64 {
        (self.first + self.step * point).exp()
    }

    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut before = 0.0;
        for (point, &probability) in self.probabilities.iter().enumerate() {
            if before + probability >= part {
                let within = (part - before) / probability - 0.5;
                return self.at(point as f64 + within);
            }
            before += probability;
        }
        self.at((POINTS - 1) as f64)
    }

    /// Median.
    pub fn capacity(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Central interval that contains the capacity with probability `sure`.
    pub fn interval(&self, sure: f64) -> Interval {
        let outside = (1.0 - sure) / 2.0;
        Interval {
            low: self.quantile(outside),
            high: self.quantile(1.0 - outside),
        }
    }

    /// Returns `true` if the distribution does not fit into the grid.
    pub(crate) fn is_at_an_edge(&self) -> bool {
        let all = &self.probabilities;
        let sum = |part: &[f64]| part.iter().sum::<f64>();
        sum(&all[..EDGE]) > EDGE_MAX || sum(&all[POINTS - EDGE..]) > EDGE_MAX
    }
}

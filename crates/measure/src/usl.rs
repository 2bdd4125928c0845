//! The universal scalability law, fitted to measurements of a server.
//!
//! Neil Gunther's law ("Guerrilla Capacity Planning", 2007, chapter 4) gives the output of a system
//! with N clients:
//!
//! ```text
//! X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))
//! ```
//!
//! `lambda` is the output for a single client. `sigma`, contention, is the share of the work that
//! is serialized. `kappa`, coherency, is the cost of keeping the parts consistent, which grows with
//! the number of pairs. With `kappa` above 0 the output has a maximum at the knee
//! `sqrt((1 - sigma) / kappa)` and decreases beyond it.
//!
//! # Method
//!
//! The fit minimizes the squared errors of X with the Levenberg-Marquardt algorithm, subject to
//! `lambda > 0`, `0 <= sigma <= 1` and `kappa >= 0`. It starts from the weighted linear fit of
//! `N / X`, which is a polynomial in N. The intervals are Wald intervals: the estimate plus and
//! minus the t quantile (97.5 %, number of points minus 3 degrees of freedom) times the standard
//! error from the covariance `s^2 (J'J)^-1`, clipped to the bounds. They are valid if the errors of
//! X are independent and of equal variance, and only as far as the law itself holds. The intervals
//! of the knee follow from the same covariance by the delta method.

/// Minimum number of distinct N for a fit.
pub const DISTINCT_MIN: usize = 4;

/// Maximum number of iterations of the fit. It takes about ten.
const STEPS_MAX: usize = 200;

/// A `kappa` that reduces the output at the largest N by less than this share counts as 0.
const CURVATURE_MIN: f64 = 1e-6;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Number of clients, above 0.
    pub clients: f64,
    /// Output, in any unit.
    pub output: f64,
}

/// An estimate with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Parameters of the fitted law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Output for a single client, in the unit of the output.
    pub lambda: Estimate,
    /// Contention, from 0 to 1.
    pub sigma: Estimate,
    /// Coherency, at least 0.
    pub kappa: Estimate,
    /// Number of fitted points.
    pub points: usize,
    /// Smallest and largest N that was measured.
    pub range: (f64, f64),
    /// Share of the output's variance that the law explains; 1 is all of it.
    pub r_squared: f64,
    /// Standard deviation of the residuals, in the unit of the output.
    pub residual: f64,
    /// Maximum of the output. `None` if the interval of `kappa` contains 0: the measurements show
    /// no curvature.
    pub knee: Option<Knee>,
}

/// Maximum of the output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// Number of clients.
    pub clients: Estimate,
    /// Output at the maximum, in the unit of the output.
    pub output: Estimate,
    /// True if the maximum lies within the measured range. Otherwise it is extrapolated.
    pub measured: bool,
}

/// Reason why there is no fit.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// Too few distinct N.
    #[error("{found} different numbers of clients are too few: at least {DISTINCT_MIN} are needed")]
    TooFew {
        /// Number of distinct N.
        found: usize,
    },
    /// An output or an N is not a positive number.
    #[error("a number of clients or an output is not above 0")]
    NoOutput,
    /// The points do not determine the three parameters.
    #[error("the measured points do not determine the curve")]
    Undetermined,
}

/// Fits the law to the points.
///
/// # Errors
/// Returns the reason if the points do not allow a fit.
pub fn fit(points: &[Point]) -> Result<Fit, FitError> {
    let mut distinct: Vec<f64> = points.iter().map(|point| point.clients).collect();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    if distinct.len() < DISTINCT_MIN {
        return Err(FitError::TooFew {
            found: distinct.len(),
        });
    }
    let good = |value: f64| value.is_finite() && value > 0.0;
    if !points
        .iter()
        .all(|point| good(point.clients) && good(point.output))
    {
        return Err(FitError::NoOutput);
    }
    let range = (distinct[0], distinct[distinct.len() - 1]);
    // Scaled to the largest output, so that the unit does not affect the numerical accuracy.
    let scale = points.iter().map(|point| point.output).fold(0.0, f64::max);
    let scaled: Vec<Point> = points
        .iter()
        .map(|point| Point {
            clients: point.clients,
            output: point.output / scale,
        })
        .collect();
    let start = linearised(&scaled).ok_or(FitError::Undetermined)?;
    let found = levenberg_marquardt(&scaled, start);
    let squares = sum_of_squares(&scaled, found);
    let freedom = points.len() - 3;
    let variance = squares / freedom as f64;
    let (normal, _) = normal_equations(&scaled, found);
    let covariance = inverse(normal).ok_or(FitError::Undetermined)?;
    let t = t_quantile_975(freedom);
    // The interval of a value at least 0, from its share of the variance of the residuals.
    let interval = |value: f64, share: f64, unit: f64, most: f64| {
        let half = t * (variance * share).max(0.0).sqrt();
        Estimate {
            value: value * unit,
            low: (value - half).max(0.0) * unit,
            high: (value + half).min(most) * unit,
        }
    };
    let estimate = |index: usize, unit: f64, most: f64| {
        interval(found[index], covariance[index][index], unit, most)
    };
    let (sigma, kappa) = (estimate(1, 1.0, 1.0), estimate(2, 1.0, f64::INFINITY));
    let mean = scaled.iter().map(|point| point.output).sum::<f64>() / points.len() as f64;
    let all: f64 = scaled
        .iter()
        .map(|point| (point.output - mean).powi(2))
        .sum();
    let largest = range.1;
    let curved = kappa.low * largest * (largest - 1.0) > CURVATURE_MIN && sigma.value < 1.0;
    let knee = curved.then(|| {
        let clients = ((1.0 - sigma.value) / kappa.value).sqrt();
        let around = |value: f64, slopes: Parameters, unit: f64| {
            let share = propagated_variance(&covariance, slopes);
            interval(value, share, unit, f64::INFINITY)
        };
        let of_clients = [
            0.0,
            -clients / (2.0 * (1.0 - sigma.value)),
            -clients / (2.0 * kappa.value),
        ];
        Knee {
            clients: around(clients, of_clients, 1.0),
            // At the maximum the output does not depend on the number of clients, only on the
            // parameters.
            output: around(law(found, clients), slopes(found, clients), scale),
            measured: (range.0..=range.1).contains(&clients),
        }
    });
    Ok(Fit {
        lambda: estimate(0, scale, f64::INFINITY),
        sigma,
        kappa,
        points: points.len(),
        range,
        r_squared: if all > 0.0 { 1.0 - squares / all } else { 0.0 },
        residual: variance.sqrt() * scale,
        knee,
    })
}

impl Fit {
    /// Returns the output that the law predicts for `clients` clients, in the unit of the output.
    pub fn output(&self, clients: f64) -> f64 {
        law(
            [self.lambda.value, self.sigma.value, self.kappa.value],
            clients,
        )
    }
}

/// `lambda`, `sigma`, `kappa`.
type Parameters = [f64; 3];
type Matrix = [[f64; 3]; 3];

fn law([lambda, sigma, kappa]: Parameters, n: f64) -> f64 {
    lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
}

/// Partial derivatives of the law with respect to each parameter.
fn slopes([lambda, sigma, kappa]: Parameters, n: f64) -> Parameters {
    let below = 1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0);
    let steep = -lambda * n / (below * below);
    [n / below, steep * (n - 1.0), steep * n * (n - 1.0)]
}

/// Variance of a value with these derivatives with respect to the parameters.
fn propagated_variance(covariance: &Matrix, slopes: Parameters) -> f64 {
    let each = covariance.iter().zip(slopes);
    each.map(|(row, slope)| {
        let inner: f64 = row
            .iter()
            .zip(slopes)
            .map(|(value, other)| value * other)
            .sum();
        slope * inner
    })
    .sum()
}

fn sum_of_squares(points: &[Point], at: Parameters) -> f64 {
    points
        .iter()
        .map(|point| (point.output - law(at, point.clients)).powi(2))
        .sum()
}

/// Clamps the parameters to their bounds.
fn bounded([lambda, sigma, kappa]: Parameters) -> Parameters {
    [lambda.max(1e-12), sigma.clamp(0.0, 1.0), kappa.max(0.0)]
}

/// Starting point of the fit. `N / X = (1 + sigma (N - 1) + kappa N (N - 1)) / lambda` is linear in
/// `1 / lambda`, `sigma / lambda` and `kappa / lambda`. The weights make it minimize the error of
/// X.
fn linearised(points: &[Point]) -> Option<Parameters> {
    let mut normal = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    for point in points {
        let n = point.clients;
        let weight = (point.output * point.output / n).powi(2);
        let row = [1.0, n - 1.0, n * (n - 1.0)];
        add_row(&mut normal, &mut right, row, n / point.output, weight);
    }
    let [a, b, c] = solve(normal, right)?;
    let start = if a > 0.0 {
        [1.0 / a, b / a, c / a]
    } else {
        // No law within the bounds fits: start at the straight line through the smallest N.
        let first = points
            .iter()
            .min_by(|one, other| one.clients.total_cmp(&other.clients))?;
        [first.output / first.clients, 0.0, 0.0]
    };
    Some(bounded(start))
}

/// Returns `J'J` and `J'r`.
fn normal_equations(points: &[Point], at: Parameters) -> (Matrix, Parameters) {
    let mut normal = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    for point in points {
        let row = slopes(at, point.clients);
        let rest = point.output - law(at, point.clients);
        add_row(&mut normal, &mut right, row, rest, 1.0);
    }
    (normal, right)
}

/// Adds an equation to the normal equations: its factors, its right side and its weight.
fn add_row(normal: &mut Matrix, right: &mut Parameters, row: Parameters, is: f64, weight: f64) {
    for (i, one) in row.iter().enumerate() {
        for (j, other) in row.iter().enumerate() {
            normal[i][j] += weight * one * other;
        }
        right[i] += weight * one * is;
    }
}

/// Levenberg-Marquardt iterations. A parameter at its bound whose step would leave the bounds is
/// held fixed.
fn levenberg_marquardt(points: &[Point], start: Parameters) -> Parameters {
    let mut at = start;
    let mut squares = sum_of_squares(points, at);
    let mut damping = 1e-3;
    for _ in 0..STEPS_MAX {
        let (normal, right) = normal_equations(points, at);
        let held = [
            false,
            (at[1] <= 0.0 && right[1] < 0.0) || (at[1] >= 1.0 && right[1] > 0.0),
            at[2] <= 0.0 && right[2] < 0.0,
        ];
        let mut damped = normal;
        let mut wanted = right;
        for i in 0..3 {
            damped[i][i] *= 1.0 + damping;
            if held[i] {
                damped[i] = [0.0; 3];
                for row in &mut damped {
                    row[i] = 0.0;
                }
                damped[i][i] = 1.0;
                wanted[i] = 0.0;
            }
        }
        let next = solve(damped, wanted).map(|step| {
            let next = bounded([at[0] + step[0], at[1] + step[1], at[2] + step[2]]);
            (next, sum_of_squares(points, next))
        });
        let Some((next, next_squares)) = next.filter(|(_, other)| *other < squares) else {
            damping *= 10.0;
            if damping > 1e12 {
                break;
            }
            continue;
        };
        let gained = squares - next_squares;
        at = next;
        squares = next_squares;
        damping = (damping / 10.0).max(1e-12);
        if gained <= squares * 1e-14 {
            break;
        }
    }
    at
}

/// Solves three linear equations. Rows and columns are scaled first, because those of `kappa` are
/// 10^5 times those of `lambda`. Returns `None` if the equations are linearly dependent.
fn solve(matrix: Matrix, right: Parameters) -> Option<Parameters> {
    let sizes = scale_factors(&matrix)?;
    let mut rows: [[f64; 4]; 3] = [[0.0; 4]; 3];
    for i in 0..3 {
        for j in 0..3 {
            rows[i][j] = matrix[i][j] / (sizes[i] * sizes[j]);
        }
        rows[i][3] = right[i] / sizes[i];
    }
    for column in 0..3 {
        let pivot = (column..3).max_by(|&one, &other| {
            rows[one][column]
                .abs()
                .total_cmp(&rows[other][column].abs())
        })?;
        if rows[pivot][column].abs() < 1e-14 {
            return None;
        }
        rows.swap(column, pivot);
        let above = rows[column];
        for (index, row) in rows.iter_mut().enumerate() {
            if index != column {
                let share = row[column] / above[column];
                for (value, other) in row.iter_mut().zip(above) {
                    *value -= share * other;
                }
            }
        }
    }
    let mut found = [0.0; 3];
    for i in 0..3 {
        found[i] = rows[i][3] / rows[i][i] / sizes[i];
    }
    found.iter().all(|value| value.is_finite()).then_some(found)
}

fn scale_factors(matrix: &Matrix) -> Option<Parameters> {
    let sizes = [0, 1, 2].map(|i| matrix[i][i].sqrt());
    sizes
        .iter()
        .all(|size| size.is_finite() && *size > 0.0)
        .then_some(sizes)
}

fn inverse(matrix: Matrix) -> Option<Matrix> {
    let mut columns = [[0.0; 3]; 3];
    for (i, column) in columns.iter_mut().enumerate() {
        let mut unit = [0.0; 3];
        unit[i] = 1.0;
        *column = solve(matrix, unit)?;
    }
    // The inverse is symmetric.
    Some(columns)
}

/// 97.5 % quantile of Student's t distribution with `freedom` degrees of freedom (at least 1).
///
/// Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4, solved by
/// bisection.
pub fn t_quantile_975(freedom: usize) -> f64 {
    let freedom = freedom.clamp(1, 10_000);
    let (mut low, mut high) = (0.0_f64, std::f64::consts::FRAC_PI_2);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if t_probability(freedom, middle) < 0.95 {
            low = middle;
        } else {
            high = middle;
        }
    }
    low.tan() * (freedom as f64).sqrt()
}

/// Probability that `|t| < sqrt(freedom) tan(angle)`.
fn t_probability(freedom: usize, angle: f64) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    let square = cosine * cosine;
    let odd = !freedom.is_multiple_of(2);
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    // Powers of the cosine from 1 or 0 up to freedom - 2.
    let mut power = usize::from(odd);
    while power + 2 <= freedom {
        sum += term;
        let next = power as f64;
        term *= square * (next + 1.0) / (next + 2.0);
        power += 2;
    }
    if odd {
        std::f64::consts::FRAC_2_PI * (angle + sine * sum)
    } else {
        sine * sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRUTH: Parameters = [1.2, 0.02, 1.5e-5];
    const CLIENTS: [f64; 10] = [
        20.0, 50.0, 80.0, 120.0, 160.0, 200.0, 240.0, 280.0, 320.0, 360.0,
    ];

    fn points(truth: Parameters, clients: &[f64], mut noise: impl FnMut() -> f64) -> Vec<Point> {
        clients
            .iter()
            .map(|&clients| Point {
                clients,
                output: law(truth, clients) + noise(),
            })
            .collect()
    }

    /// Seeded normal noise: the sum of twelve numbers of a linear congruential generator.
    fn normal(seed: u64, deviation: f64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            let sum: f64 = (0..12)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (state >> 11) as f64 / (1u64 << 53) as f64
                })
                .sum();
            (sum - 6.0) * deviation
        }
    }

    #[test]
    fn quantiles_match_published_tables() {
        for (freedom, quantile) in [
            (1, 12.7062),
            (2, 4.3027),
            (3, 3.1824),
            (4, 2.7764),
            (5, 2.5706),
            (10, 2.2281),
            (30, 2.0423),
            (120, 1.9799),
            (10_000, 1.9602),
        ] {
            let found = t_quantile_975(freedom);
            assert!((found - quantile).abs() < 6e-5, "{freedom}: {found}");
        }
    }

    #[test]
    fn intervals_have_their_nominal_coverage() {
        const SERIES: u64 = 2_000;
        let knee = ((1.0 - TRUTH[1]) / TRUTH[2]).sqrt();
        let truths = [TRUTH[0], TRUTH[1], TRUTH[2], knee, law(TRUTH, knee)];
        let mut held = [0_u32; 5];
        for seed in 0..SERIES {
            let fit =
                fit(&points(TRUTH, &CLIENTS, normal(seed, 0.4))).expect("it is a good series");
            let knee = fit.knee.expect("it is far from straight");
            let estimates = [fit.lambda, fit.sigma, fit.kappa, knee.clients, knee.output];
            for (index, (estimate, truth)) in estimates.iter().zip(truths).enumerate() {
                held[index] += u32::from((estimate.low..=estimate.high).contains(&truth));
            }
        }
        // Three standard errors of a share of 95 % in 2,000 are 1.5 %; the law is not quite linear.
        for held in held {
            let share = f64::from(held) / SERIES as f64;
            assert!((0.93..=0.97).contains(&share), "{share}");
        }
    }

    /// Results of scipy 1.18 for the same points: `optimize.curve_fit` with bounds, and `stats.t`.
    #[test]
    fn fit_matches_scipy() {
        let clients = [
            1.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 48.0, 64.0,
        ];
        let bent = [
            20.0, 78.0, 130.0, 170.0, 190.0, 200.0, 205.0, 205.0, 200.0, 180.0, 150.0,
        ];
        let flat = [
            20.0, 78.0, 130.0, 170.0, 190.0, 200.0, 210.0, 230.0, 260.0, 280.0, 310.0,
        ];
        let bent_found = [
            (20.974_130_6, 0.994_888_502),
            (0.026_717_553_9, 0.005_911_503_35),
            (0.001_522_209_41, 6.882_545_24e-5),
        ];
        // Here kappa is at its bound.
        let flat_found = [
            (21.848_842_97, 5.064_381_2),
            (0.057_770_781_2, 0.030_654_405_6),
            (0.0, 2.719_289_8e-4),
        ];
        for (outputs, known) in [(bent, bent_found), (flat, flat_found)] {
            let points: Vec<Point> = clients
                .iter()
                .zip(outputs)
                .map(|(&clients, output)| Point { clients, output })
                .collect();
            let fit = fit(&points).expect("it is a good series");
            for (estimate, (value, half)) in [fit.lambda, fit.sigma, fit.kappa].iter().zip(known) {
                let near = |found: f64, known: f64| (found - known).abs() <= 1e-4 * half;
                assert!(near(estimate.value, value), "{estimate:?}");
                assert!(near(estimate.high, value + half), "{estimate:?}");
            }
        }
    }

    #[test]
    fn straight_line_has_no_knee() {
        let mut claimed = 0;
        for seed in 0..500 {
            let noisy = points([1.2, 0.0, 0.0], &CLIENTS, normal(seed, 0.5));
            claimed += u32::from(fit(&noisy).expect("it is a good series").knee.is_some());
        }
        // One of two tails of 5 % in total.
        assert!(claimed <= 25, "{claimed} of 500");
        let exact = fit(&points([1.2, 0.0, 0.0], &CLIENTS, || 0.0)).expect("it is a good series");
        assert_eq!(exact.knee, None, "{exact:?}");
    }

    #[test]
    fn knee_is_the_maximum_of_the_output() {
        let fit = fit(&points(TRUTH, &CLIENTS, || 0.0)).expect("it is a good series");
        let knee = fit.knee.expect("it is curved");
        assert!(knee.measured);
        assert!((knee.clients.value - (0.98_f64 / 1.5e-5).sqrt()).abs() < 1e-3);
        for beside in [-1.0, 1.0] {
            assert!(fit.output(knee.clients.value + beside) < knee.output.value);
        }
        let short = &CLIENTS[..5];
        let far = super::fit(&points(TRUTH, short, || 0.0)).expect("it is a good series");
        assert!(!far.knee.expect("it is curved").measured);
    }

    #[test]
    fn too_few_points_are_refused() {
        let few = points(TRUTH, &[10.0, 20.0, 30.0, 30.0, 20.0], || 0.0);
        assert_eq!(fit(&few), Err(FitError::TooFew { found: 3 }));
        assert_eq!(fit(&[]), Err(FitError::TooFew { found: 0 }));
        let silent = points([0.0, 0.0, 0.0], &CLIENTS, || 0.0);
        assert_eq!(fit(&silent), Err(FitError::NoOutput));
    }

    proptest! {
        #[test]
        fn exact_points_recover_the_parameters(
            lambda in 1e-3_f64..1e9,
            sigma in 0.0_f64..0.5,
            kappa in 1e-6_f64..1e-2,
        ) {
            let fit = fit(&points([lambda, sigma, kappa], &CLIENTS, || 0.0)).expect("it is a good series");
            prop_assert!((fit.lambda.value / lambda - 1.0).abs() < 1e-4, "{fit:?}");
            prop_assert!((fit.sigma.value - sigma).abs() < 1e-4, "{fit:?}");
            prop_assert!((fit.kappa.value / kappa - 1.0).abs() < 1e-3, "{fit:?}");
        }

        #[test]
        fn no_measurement_causes_a_panic(
            list in proptest::collection::vec((-10.0_f64..1e6, -10.0_f64..1e12), 0..20),
        ) {
            let points: Vec<Point> = list
                .into_iter()
                .map(|(clients, output)| Point { clients, output })
                .collect();
            if let Ok(fit) = fit(&points) {
                prop_assert!((0.0..=1.0).contains(&fit.sigma.value), "{fit:?}");
                prop_assert!(fit.kappa.value >= 0.0 && fit.lambda.value > 0.0, "{fit:?}");
                for estimate in [fit.lambda, fit.sigma, fit.kappa] {
                    prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{fit:?}");
                }
            }
        }
    }
}

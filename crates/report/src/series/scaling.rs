//! Model of the server: the universal scalability law, fitted to its output.

use measure::usl::{self, Point};
use schemars::JsonSchema;
use serde::Serializer;

use super::{Row, RowOutcome, Series};
use crate::human::plural;
use crate::metrics::round_figure;

/// The universal scalability law, `X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))`, fitted
/// to the bit rates (`figures.bitrate`) of the runs that differ only in the number of clients N of
/// one population. The fit is by nonlinear least squares. The intervals have 95 % confidence
/// (Wald): the estimate plus and minus the t quantile times the standard error from the covariance,
/// cut at the bounds.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, JsonSchema)]
pub struct Scaling {
    /// Other varied values, by key.
    #[serde(serialize_with = "as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// Key that sets the number of clients.
    pub key: String,
    /// Number of runs in the fit.
    pub points: usize,
    /// Runs that were left out, with the reason.
    pub left_out: Vec<LeftOut>,
    /// Reason why nothing was fitted or no knee is claimed; null if everything is known.
    pub refused: Option<String>,
    /// Output for a single client, in bit/s.
    pub lambda: Option<Interval>,
    /// Contention: the share of the work that must queue, from 0 to 1.
    pub sigma: Option<Interval>,
    /// Coherency: the cost of keeping the parts in step, for each pair of clients.
    pub kappa: Option<Interval>,
    /// Share of the output's variance that the law explains; 1 is all of it.
    pub r_squared: Option<f64>,
    /// Standard deviation of the output that the law does not explain, in bit/s.
    pub residual: Option<f64>,
    /// Maximum of the output, at sqrt((1 - sigma) / kappa) clients. Null if the interval of `kappa`
    /// contains 0, so that no curvature was seen.
    pub knee: Option<Knee>,
}

/// An estimate with its interval of 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Interval {
    /// Estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Maximum of the output.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Knee {
    /// Number of clients.
    pub clients: Interval,
    /// Predicted maximum, in bit/s.
    pub bitrate: Interval,
    /// True if the maximum is within the measured range. Otherwise it is extrapolated.
    pub measured: bool,
}

/// A run that was left out.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct LeftOut {
    /// Number of clients of the run.
    pub clients: u64,
    /// Reason for leaving out the run.
    pub reason: String,
}

pub(super) fn as_map<S: Serializer>(
    list: &[(String, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(list.iter().map(|(key, value)| (key, value)))
}

/// Returns the model for each combination of the other values.
pub(super) fn of(series: &Series) -> Vec<Scaling> {
    let Some(axis) = series.clients_axis() else {
        return Vec::new();
    };
    series
        .group_by_others(axis)
        .into_iter()
        .map(|(with, rows)| {
            let mut points = Vec::new();
            let mut left_out = Vec::new();
            for (clients, row) in rows {
                match output(row) {
                    Ok(output) => points.push(Point {
                        clients: clients as f64,
                        output,
                    }),
                    Err(reason) => left_out.push(LeftOut { clients, reason }),
                }
            }
            fit(with, series.varied[axis].clone(), &points, left_out)
        })
        .collect()
}

/// Returns the bit rate of a run, or the reason why it says nothing about the server.
fn output(row: &Row) -> Result<f64, String> {
    let figures = match (row.outcome, &row.figures) {
        (RowOutcome::Pass | RowOutcome::Fail, Some(figures)) => figures,
        (RowOutcome::Invalid, _) => return Err("invalid".to_owned()),
        (RowOutcome::Stopped, _) => return Err("stopped".to_owned()),
        (RowOutcome::NotBegun, _) => return Err("did not begin".to_owned()),
        _ => return Err("not run".to_owned()),
    };
    match (figures.failed, figures.bitrate) {
        (0, Some(bitrate)) => Ok(bitrate),
        (0, None) => Err("no media came".to_owned()),
        (failed, _) => {
            let clients = plural(failed as f64, "client", "clients");
            Err(format!("{clients} failed"))
        }
    }
}

fn fit(
    with: Vec<(String, String)>,
    key: String,
    points: &[Point],
    left_out: Vec<LeftOut>,
) -> Scaling {
    let nothing = Scaling {
        with,
        key,
        points: points.len(),
        left_out,
        ..Scaling::default()
    };
    let fit = match usl::fit(points) {
        Ok(fit) => fit,
        Err(refusal) => {
            return Scaling {
                refused: Some(refusal.to_string()),
                ..nothing
            };
        }
    };
    let interval = |estimate: usl::Estimate| Interval {
        value: round_figure(estimate.value),
        low: round_figure(estimate.low),
        high: round_figure(estimate.high),
    };
    Scaling {
        refused: fit.knee.is_none().then(|| {
            "no curvature was seen (the interval of kappa contains 0), so no knee is claimed"
                .to_owned()
        }),
        lambda: Some(interval(fit.lambda)),
        sigma: Some(interval(fit.sigma)),
        kappa: Some(interval(fit.kappa)),
        r_squared: Some(round_figure(fit.r_squared)),
        residual: Some(round_figure(fit.residual)),
        knee: fit.knee.map(|knee| Knee {
            clients: interval(knee.clients),
            bitrate: interval(knee.output),
            measured: knee.measured,
        }),
        ..nothing
    }
}

//! Head of a report: the target, the time, and the figures that matter most for each population.

use measure::metric::{MetricSource, Statistic};
use measure::{KeyFigure, Unit};
use serde_json::Value;

use crate::distinct::distinct;
use crate::human::{figure, plural};
use crate::metrics::MetricFigures;
use crate::model::{Population, Report, Run};

/// Share of viewers served well, which only viewers have.
pub(crate) const SERVED_WELL: &str = "served_well";

/// Number of figures in the head of a population.
pub(crate) const KEY_FIGURES: usize = 3;

/// Maximum number of populations whose figures are in the head.
pub(crate) const POPULATIONS: usize = 3;

/// A key figure with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownFigure {
    pub(crate) metric: &'static str,
    pub(crate) text: String,
    /// Statistic of a distribution, such as `p95`; empty for other metrics.
    pub(crate) statistic: &'static str,
}

/// Returns the known key figures of a population, the most important first. A rate of zero does not
/// count as known: the population does nothing of the kind.
pub(crate) fn key_figures(population: &Population) -> impl Iterator<Item = ShownFigure> {
    let keys = population.catalogue.key_figures();
    keys.filter_map(move |key| shown(key, population))
}

fn shown(key: &KeyFigure, population: &Population) -> Option<ShownFigure> {
    let found = population.metrics.find(key.metric)?;
    let source = population.catalogue.find(key.metric)?.source;
    let (text, statistic) = match (&found.figures, key.statistic) {
        (MetricFigures::Value(Some(value)), _) => {
            let is_rate = matches!(source, MetricSource::Rate(..));
            if is_rate && *value == 0.0 {
                return None;
            }
            // The unit of a rate of events is a count, which has no decimals.
            let value = match (found.unit, is_rate) {
                (Unit::Count, true) => value.round(),
                _ => *value,
            };
            (figure(found.unit, value), "")
        }
        (MetricFigures::Level(Some(level)), _) => (figure(found.unit, level.max), "max"),
        (MetricFigures::Distribution(Some(found_values)), Statistic::Quantile(_)) => {
            (found_values.text(found.unit, found_values.p95), "p95")
        }
        (MetricFigures::Distribution(Some(found_values)), _) => {
            (found_values.text(found.unit, found_values.mean), "mean")
        }
        _ => return None,
    };
    Some(ShownFigure {
        metric: key.metric,
        text,
        statistic,
    })
}

/// Returns the populations with those of viewers first, otherwise in the order of the scenario:
/// what viewers receive is the result of a run in which others publish it.
pub(crate) fn by_importance(report: &Report) -> Vec<&Population> {
    let mut all: Vec<&Population> = report.populations.iter().collect();
    all.sort_by_key(|population| {
        let mut figures = key_figures(population);
        !figures.any(|one| one.metric == SERVED_WELL)
    });
    all
}

/// Describes the key figures of a population in one line, or returns `None` if none is known.
pub(crate) fn figures_line(population: &Population) -> Option<String> {
    let figures = key_figures(population).take(KEY_FIGURES);
    let figures = figures.map(|one| match one.statistic {
        "" => format!("{} {}", one.metric, one.text),
        statistic => format!("{} {} ({statistic})", one.metric, one.text),
    });
    let figures: Vec<String> = figures.collect();
    (!figures.is_empty()).then(|| figures.join(", "))
}

/// Returns the populations with key figures, with their lines, and the number of further ones.
pub(crate) fn populations(report: &Report) -> (Vec<(&str, String)>, usize) {
    let all = by_importance(report).into_iter();
    let mut lines: Vec<(&str, String)> = all
        .filter_map(|one| Some((one.name.as_str(), figures_line(one)?)))
        .collect();
    let more = lines.len().saturating_sub(POPULATIONS);
    lines.truncate(POPULATIONS);
    (lines, more)
}

/// Describes the target: the servers that clients requested. `None` if the scenario is unknown.
pub(crate) fn target(run: &Run) -> Option<String> {
    let (first, rest) = run.targets.split_first()?;
    Some(match rest.len() {
        0 => first.clone(),
        more => format!(
            "{first} and {}",
            plural(more as f64, "more server", "more servers")
        ),
    })
}

/// Start of the run, such as `2026-02-03 04:05:06 UTC`.
pub(crate) fn began(run: &Run) -> String {
    date(&run.started_at)
}

/// Formats a date and time (RFC 3339) for reading.
pub(crate) fn date(text: &str) -> String {
    text.replace('T', " ").replace('Z', " UTC")
}

/// Returns the servers in the URLs of a scenario, each once: scheme, host and port. If all clients
/// request the same URL, returns that URL.
pub(crate) fn targets(scenario: &Value) -> Vec<String> {
    let populations = scenario["populations"].as_array().into_iter().flatten();
    let urls = populations.flat_map(|one| one["urls"].as_array().into_iter().flatten());
    let urls: Vec<&str> = urls.filter_map(Value::as_str).collect();
    match urls.split_first() {
        Some((first, rest)) if rest.iter().all(|url| url == first) => {
            return vec![(*first).to_owned()];
        }
        _ => {}
    }
    distinct(urls.into_iter().map(server_of))
}

/// Returns the scheme, host and port of a URL, without credentials.
fn server_of(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    match host.is_empty() {
        // A path of this machine.
        true => url.to_owned(),
        false => format!("{scheme}://{host}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_server_is_a_target_once() {
        let scenario = |urls: &[&[&str]]| {
            let populations = urls.iter().map(|urls| json!({"urls": urls}));
            targets(&json!({"populations": populations.collect::<Vec<_>>()}))
        };
        assert_eq!(scenario(&[]), [""; 0]);
        assert_eq!(
            scenario(&[&["rtsp://h:8554/a?b"], &["rtsp://h:8554/a?b"]]),
            ["rtsp://h:8554/a?b"]
        );
        assert_eq!(
            scenario(&[
                &["rtsp://me:***@h:8554/a", "rtsp://h:8554/b"],
                &[
                    "whep+http://[::1]:8889/a/whep",
                    "unix:///run/a.sock",
                    "rtsp://h:8554"
                ],
            ]),
            [
                "rtsp://h:8554",
                "whep+http://[::1]:8889",
                "unix:///run/a.sock"
            ]
        );
    }
}

//! Position of each run of a series in its charts: the value on the axis, the panel, and the line.

use std::collections::BTreeSet;

use crate::metric_words::metric_words;
use crate::series::Series;
use crate::series::names::short_names;

/// Ratio of the largest to the smallest value from which an axis is logarithmic.
const WIDE: f64 = 20.0;

/// Maximum number of lines in a panel. With more lines, each gets its own panel.
const LINES_MAX: usize = 6;

/// Position of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) panel: usize,
    pub(super) line: usize,
    /// Position on the axis: the value, or its index among the values if it is not a number.
    pub(super) x: f64,
}

/// Axis, panels and lines of all charts of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ChartLayout {
    /// Title of the axis.
    pub(super) axis: String,
    /// True if the values on the axis are numbers, so that lines can join them.
    pub(super) numeric: bool,
    /// True if the axis is logarithmic.
    pub(super) log: bool,
    /// Positions and texts of the values on the axis.
    pub(super) ticks: Vec<(f64, String)>,
    /// Titles of the panels. A single panel without a title if nothing else is varied.
    pub(super) panels: Vec<String>,
    /// Labels of the lines.
    pub(super) lines: Vec<String>,
    /// Positions of the runs, in their order.
    pub(super) runs: Vec<Position>,
}

/// Key of named cases in place of values (`vary: { cases: [...] }`).
const CASE: &str = "case";

/// Returns the distinct texts in the order of their first appearance.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}

fn index_of(all: &[String], text: &str) -> usize {
    all.iter().position(|one| one == text).unwrap_or(0)
}

impl ChartLayout {
    /// Returns the positions for a series, or `None` if nothing is varied.
    pub(super) fn of(series: &Series) -> Option<ChartLayout> {
        let names = short_names(&series.varied);
        let value = |row: usize, key: usize| -> String {
            let values = &series.runs[row].values;
            values.get(key).cloned().unwrap_or_default()
        };
        let rows = 0..series.runs.len();
        let values_of = |key: usize| distinct(rows.clone().map(|row| value(row, key)));
        let all: Vec<Vec<String>> = (0..names.len()).map(values_of).collect();
        let numbers: Vec<Option<Vec<f64>>> = all.iter().map(|texts| numbers(texts)).collect();
        let axis = series.clients_axis().or_else(|| {
            // The key with the most values. Of several, one with numbers is preferred, then the one
            // that changes fastest.
            let keys = 0..names.len();
            keys.max_by_key(|&key| (all[key].len(), numbers[key].is_some(), key))
        })?;
        let mut others: Vec<usize> = (0..names.len())
            .filter(|&key| key != axis && all[key].len() > 1)
            .collect();
        // A key without numbers, such as the server, is shown in panels side by side.
        let side = others.iter().position(|&key| numbers[key].is_none());
        let side = (!others.is_empty()).then(|| others.remove(side.unwrap_or(0)));
        let label = |row: usize, keys: &[usize]| {
            let labels = keys.iter().map(|&key| match &*names[key] {
                // The name of a case is self-explanatory.
                CASE => value(row, key),
                name => format!("{} {}", metric_words(name), value(row, key)),
            });
            labels.collect::<Vec<_>>().join(", ")
        };
        let mut panel_keys: Vec<usize> = side.into_iter().collect();
        let mut lines = distinct(rows.clone().map(|row| label(row, &others)));
        if lines.len() > LINES_MAX {
            panel_keys.append(&mut others);
            lines = vec![String::new()];
        }
        let panels = distinct(rows.clone().map(|row| label(row, &panel_keys)));
        let texts = &all[axis];
        let numeric = numbers[axis].is_some();
        let xs = numbers[axis].clone();
        let xs = xs.unwrap_or_else(|| (0..texts.len()).map(|at| at as f64).collect());
        let runs = rows
            .map(|row| Position {
                panel: index_of(&panels, &label(row, &panel_keys)),
                line: index_of(&lines, &label(row, &others)),
                x: xs
                    .get(index_of(texts, &value(row, axis)))
                    .copied()
                    .unwrap_or(0.0),
            })
            .collect();
        let least = xs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = xs.iter().copied().fold(0.0, f64::max);
        let mut ticks: Vec<(f64, String)> = xs.into_iter().zip(texts.iter().cloned()).collect();
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(ChartLayout {
            axis: metric_words(&names[axis]),
            numeric,
            log: numeric && least > 0.0 && most / least >= WIDE,
            ticks,
            panels,
            lines,
            runs,
        })
    }
}

/// Parses the values as numbers of one unit. Returns `None` if any is not such a number.
fn numbers(texts: &[String]) -> Option<Vec<f64>> {
    let mut unit = None;
    let each = texts.iter().map(|text| {
        let (value, of) = quantity(text)?;
        (*unit.get_or_insert(of) == of).then_some(value)
    });
    each.collect()
}

/// Parses a number with its unit, converted to the base unit: `178ms` is 0.178 of `s`.
fn quantity(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let (factor, unit) = match unit.trim() {
        "ns" => (1e-9, "s"),
        "us" | "µs" => (1e-6, "s"),
        "ms" => (1e-3, "s"),
        "min" | "m" => (60.0, "s"),
        "h" => (3600.0, "s"),
        "kbps" => (1e3, "bps"),
        "Mbps" => (1e6, "bps"),
        "Gbps" => (1e9, "bps"),
        "KiB" => (1024.0, "B"),
        "MiB" => (1_048_576.0, "B"),
        "GiB" => (1_073_741_824.0, "B"),
        other => (1.0, other),
    };
    number.is_finite().then_some((number * factor, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Option<Vec<f64>> {
        numbers(
            &texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn values_of_one_unit_are_numbers() {
        assert_eq!(of(&["50", "100"]), Some(vec![50.0, 100.0]));
        assert_eq!(of(&["5ms", "1s", "2min"]), Some(vec![0.005, 1.0, 120.0]));
        assert_eq!(of(&["0.5%", "2 %"]), Some(vec![0.5, 2.0]));
        assert_eq!(of(&["64KiB", "1MiB"]), Some(vec![65_536.0, 1_048_576.0]));
        assert_eq!(of(&["20/s", "50/s"]), Some(vec![20.0, 50.0]));
        for none in [
            &["udp", "tcp"][..],
            &["5ms", "64KiB"],
            &["0.5%", "0.5% in bursts of 2"],
            &["1", "-"],
            &["", "1"],
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}

//! Where each run of a series stands in its charts: how far along the axis, in which of several
//! panels side by side, and on which line.

use std::collections::BTreeSet;

use super::charts::words;
use crate::series::Series;
use crate::series::names::short_names;

/// From this ratio of the largest value to the smallest on, an axis is logarithmic.
const WIDE: f64 = 20.0;

/// The most lines in a panel. Where there were more, each has a panel of its own.
const LINES_MAX: usize = 6;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spot {
    pub(super) panel: usize,
    pub(super) line: usize,
    /// Along the axis: the value itself, or the number of its kind where it is no number.
    pub(super) x: f64,
}

/// The axis, the panels and the lines of all charts of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spots {
    /// What the axis is of.
    pub(super) axis: String,
    /// Whether values along it are numbers, so that lines may join them.
    pub(super) numeric: bool,
    /// Whether it is logarithmic.
    pub(super) log: bool,
    /// Where values of it are, and what they read as.
    pub(super) ticks: Vec<(f64, String)>,
    /// What each panel is of; one without a title where nothing else is varied.
    pub(super) panels: Vec<String>,
    /// What each line is of.
    pub(super) lines: Vec<String>,
    /// Of each run, in their order.
    pub(super) runs: Vec<Spot>,
}

/// The key of what has a name in place of a value (`vary: { cases: [...] }`).
const CASE: &str = "case";

/// Distinct texts in the order in which they first come.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}

fn place(all: &[String], text: &str) -> usize {
    all.iter().position(|one| one == text).unwrap_or(0)
}

impl Spots {
    /// Those of a series; none where nothing is varied.
    pub(super) fn of(series: &Series) -> Option<Spots> {
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
            // The key of most values; of equals one of numbers, and the fastest.
            let keys = 0..names.len();
            keys.max_by_key(|&key| (all[key].len(), numbers[key].is_some(), key))
        })?;
        let mut others: Vec<usize> = (0..names.len())
            .filter(|&key| key != axis && all[key].len() > 1)
            .collect();
        // What is no number stands side by side, such as servers.
        let side = others.iter().position(|&key| numbers[key].is_none());
        let side = (!others.is_empty()).then(|| others.remove(side.unwrap_or(0)));
        let label = |row: usize, keys: &[usize]| {
            let labels = keys.iter().map(|&key| match &*names[key] {
                // Its name tells what it is.
                CASE => value(row, key),
                name => format!("{} {}", words(name), value(row, key)),
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
            .map(|row| Spot {
                panel: place(&panels, &label(row, &panel_keys)),
                line: place(&lines, &label(row, &others)),
                x: xs
                    .get(place(texts, &value(row, axis)))
                    .copied()
                    .unwrap_or(0.0),
            })
            .collect();
        let least = xs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = xs.iter().copied().fold(0.0, f64::max);
        let mut ticks: Vec<(f64, String)> = xs.into_iter().zip(texts.iter().cloned()).collect();
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(Spots {
            axis: words(&names[axis]),
            numeric,
            log: numeric && least > 0.0 && most / least >= WIDE,
            ticks,
            panels,
            lines,
            runs,
        })
    }
}

/// The values as numbers of one unit, where all are.
fn numbers(texts: &[String]) -> Option<Vec<f64>> {
    let mut unit = None;
    let each = texts.iter().map(|text| {
        let (value, of) = quantity(text)?;
        (*unit.get_or_insert(of) == of).then_some(value)
    });
    each.collect()
}

/// A number and what it is of: `178ms` is 0.178 of `s`.
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

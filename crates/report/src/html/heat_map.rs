//! Heat map: a distribution over time as counts in the cells of a grid, exact rather than
//! estimated.

use std::collections::BTreeMap;

use measure::Sparse;
use serde_json::{Value, json};

use super::downsample::rounded;

/// Number of rows per decade of values: the bound of each row is 1.21 times that of the row below.
const ROWS_OF_A_DECADE: f64 = 12.0;

/// Period of time, with the number of values in each row.
#[derive(Clone, Debug, Default)]
struct Column {
    begins: f64,
    ends: f64,
    rows: BTreeMap<i32, u64>,
}

/// Heat map of a distribution.
#[derive(Clone, Debug)]
pub(super) struct HeatMap {
    /// Maximum number of columns.
    columns_max: usize,
    /// Number of windows per column.
    step: usize,
    filled: usize,
    columns: Vec<Column>,
}

impl HeatMap {
    pub(super) fn new(columns_max: usize) -> HeatMap {
        HeatMap {
            columns_max: columns_max.max(4),
            step: 1,
            filled: 0,
            columns: Vec::new(),
        }
    }

    /// Adds the distribution of a window. `scale` is the value of one step of it.
    pub(super) fn push(&mut self, begins: f64, seconds: f64, values: Option<&Sparse>, scale: f64) {
        let ends = begins + seconds;
        if self.columns.is_empty() || self.filled >= self.step {
            self.columns.push(Column {
                begins,
                ends,
                rows: BTreeMap::new(),
            });
            self.filled = 0;
        }
        self.filled += 1;
        if let Some(column) = self.columns.last_mut() {
            column.ends = ends;
            for &(value, count) in values.map_or(&[][..], |values| &values.buckets) {
                *column.rows.entry(row_of(value as f64 * scale)).or_default() += count;
            }
        }
        if self.columns.len() > self.columns_max {
            self.join();
        }
    }

    fn join(&mut self) {
        if self.columns.len().is_multiple_of(2) {
            self.filled += self.step;
        }
        self.step *= 2;
        let mut joined: Vec<Column> = Vec::with_capacity(self.columns.len().div_ceil(2));
        for (index, column) in std::mem::take(&mut self.columns).into_iter().enumerate() {
            match joined.last_mut() {
                Some(last) if index % 2 == 1 => {
                    last.ends = column.ends;
                    for (row, count) in column.rows {
                        *last.rows.entry(row).or_default() += count;
                    }
                }
                _ => joined.push(column),
            }
        }
        self.columns = joined;
    }

    /// Returns the data of the heat map. `rows` is the number of rows per decade. Each of `columns`
    /// has its start, its length, its lowest row, and the number of values in that row and in each
    /// row above. Row `r` has the values up to 10^(r / rows) that are above the bound of the row
    /// below. A column without values is left out.
    pub(super) fn value(&self) -> Value {
        let columns: Vec<Value> = self.columns.iter().filter_map(shown).collect();
        json!({"rows": ROWS_OF_A_DECADE, "columns": columns})
    }
}

fn shown(column: &Column) -> Option<Value> {
    let (&first, _) = column.rows.first_key_value()?;
    let (&last, _) = column.rows.last_key_value()?;
    let mut list = vec![
        json!(rounded(column.begins, 3)),
        json!(rounded(column.ends - column.begins, 3)),
        json!(first),
    ];
    let counts = (first..=last).map(|row| column.rows.get(&row).copied().unwrap_or(0));
    list.extend(counts.map(|count| json!(count)));
    Some(Value::Array(list))
}

/// Returns the row of a value. Zero and values below a nanosecond share the lowest row.
fn row_of(value: f64) -> i32 {
    (value.max(1e-9).log10() * ROWS_OF_A_DECADE).ceil() as i32
}

#[cfg(test)]
mod tests {
    use measure::Histogram;

    use super::*;

    #[test]
    fn no_value_is_lost_when_columns_are_joined() {
        let mut heat = HeatMap::new(4);
        let mut all = 0;
        for window in 0..37u64 {
            let mut seen = Histogram::new();
            for value in 0..window {
                seen.record(value * value * 1_000);
                all += 1;
            }
            heat.push(window as f64, 1.0, Some(&seen.to_sparse()), 1e-9);
        }
        assert!(heat.columns.len() <= 4);
        let rows = heat.columns.iter().flat_map(|column| column.rows.values());
        assert_eq!(rows.sum::<u64>(), all);
        let value = heat.value();
        let columns = value["columns"].as_array().expect("a list");
        let counts = columns
            .iter()
            .flat_map(|column| &column.as_array().expect("a list")[3..]);
        assert_eq!(counts.filter_map(Value::as_u64).sum::<u64>(), all);
        assert_eq!(heat.columns.last().map(|column| column.ends), Some(37.0));
    }

    #[test]
    fn rows_include_their_upper_bound() {
        assert_eq!(row_of(1.0), 0);
        assert_eq!(row_of(1.01), 1);
        assert_eq!(row_of(0.1), -12);
        assert_eq!(row_of(0.0), -108);
    }
}

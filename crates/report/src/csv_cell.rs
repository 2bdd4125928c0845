//! Cells of tables of comma-separated values.

use crate::sanitize;

/// Formats a cell.
pub(crate) fn format_cell(cell: &str) -> String {
    let mut text = sanitize::single_line(cell).into_owned();
    let is_number = text.parse::<f64>().is_ok();
    if text.starts_with(['=', '+', '-', '@']) && !is_number {
        text.insert(0, '\'');
    }
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::format_cell;

    #[test]
    fn cells_are_quoted_and_never_formulas() {
        for (cell, expected) in [
            ("plain", "plain"),
            ("a, b", "\"a, b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("-1.5", "-1.5"),
            ("=1+2", "'=1+2"),
            ("-cmd", "'-cmd"),
            ("two\nlines", "two\u{240a}lines"),
        ] {
            assert_eq!(format_cell(cell), expected);
        }
    }
}

//! Cells of tables of comma-separated values.

use std::io::{self, Write};

use crate::sanitize;

/// Writes a line of a table.
pub(crate) fn write_line<'a>(
    out: &mut (impl Write + ?Sized),
    cells: impl IntoIterator<Item = &'a str>,
) -> io::Result<()> {
    for (index, cell) in cells.into_iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        out.write_all(format_cell(cell).as_bytes())?;
    }
    out.write_all(b"\n")
}

/// Formats a cell.
fn format_cell(cell: &str) -> String {
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

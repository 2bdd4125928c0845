//! Lines at the bottom of a terminal that are redrawn in place.

use std::fmt::Write as _;
use std::io::{self, Write};

use report::paint::Paint;

use super::line::ScreenLine;

/// Columns and rows that the lines may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// At least 1.
    pub(super) columns: usize,
    /// At least 1.
    pub(super) rows: usize,
}

/// Size of a terminal that does not report its size.
const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// Synchronized output: marks a frame for terminals that support it. Others ignore it.
const BEGIN: &str = "\u{1b}[?2026h";
const END: &str = "\u{1b}[?2026l";

/// Lines on standard error that are redrawn in place.
///
/// The cursor rests below the last line and is never hidden, so nothing must be restored if the
/// process is killed.
pub(super) struct Block {
    paint: Paint,
    /// Lines on the screen.
    shown: Vec<ScreenLine>,
    /// Columns and rows of the terminal when the lines were drawn.
    terminal: (usize, usize),
}

impl Block {
    pub(super) fn new(paint: Paint) -> Block {
        Block {
            paint,
            shown: Vec::new(),
            terminal: (0, 0),
        }
    }

    /// Replaces the lines on the screen.
    pub(super) fn draw(&mut self, lines: impl FnOnce(Size) -> Vec<ScreenLine>) {
        let terminal = terminal();
        // A line that fills the last column leaves the cursor between two rows. The row below the
        // lines is the cursor's.
        let size = Size {
            columns: terminal.0.saturating_sub(1).max(1),
            rows: terminal.1.saturating_sub(1).max(1),
        };
        let lines = lines(size);
        if lines != self.shown || terminal != self.terminal {
            let text = self.frame(lines, terminal);
            put(&text);
        }
    }

    /// Writes a line above the block. The line stays on the screen.
    pub(super) fn write_above(&mut self, text: &str) {
        let lines = std::mem::take(&mut self.shown);
        let terminal = terminal();
        let line = ScreenLine::plain(text).painted(self.paint);
        let up = cursor_up(&lines, terminal);
        let rest = self.frame(lines, terminal);
        put(&format!("{up}\u{1b}[J{line}\r\n{rest}"));
    }

    /// Removes the lines.
    pub(super) fn clear(&mut self) {
        if !self.shown.is_empty() {
            let text = self.frame(Vec::new(), terminal());
            put(&text);
        }
    }

    /// Returns what a terminal of these columns and rows receives to replace the shown lines. Each
    /// line overwrites the old line in its row and nothing is cleared first, so nothing flickers.
    fn frame(&mut self, lines: Vec<ScreenLine>, terminal: (usize, usize)) -> String {
        let mut text = format!("{BEGIN}{}", cursor_up(&self.shown, terminal));
        for line in &lines {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}\u{1b}[K\r\n", line.painted(self.paint));
        }
        text.push_str("\u{1b}[J");
        text.push_str(END);
        self.shown = lines;
        self.terminal = terminal;
        text
    }
}

/// Returns the sequence that moves the cursor from below these lines to the first of them. A
/// terminal that has become narrower has wrapped the lines, as most do. Others, such as xterm, cut
/// them off: there the block then moves up, over earlier output.
fn cursor_up(lines: &[ScreenLine], (columns, rows): (usize, usize)) -> String {
    let taken = lines.iter().map(|line| line.width().div_ceil(columns));
    let taken: usize = taken.map(|rows| rows.max(1)).sum();
    match taken.min(rows.saturating_sub(1)) {
        0 => "\r".to_owned(),
        taken => format!("\r\u{1b}[{taken}A"),
    }
}

/// Returns the columns and rows of the terminal.
fn terminal() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or(DEFAULT_SIZE, |size| {
        (usize::from(size.ws_col), usize::from(size.ws_row))
    })
}

/// Writes the text at once. A closed terminal must not end a run.
fn put(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(shown: &[&str]) -> Block {
        Block {
            shown: shown.iter().map(|text| ScreenLine::plain(text)).collect(),
            ..Block::new(Paint::default())
        }
    }

    #[test]
    fn lines_are_written_over_those_before() {
        let mut block = block(&["one", "two", "three"]);
        let text = block.frame(
            vec![ScreenLine::plain("1"), ScreenLine::plain("2")],
            (80, 24),
        );
        let drawn = "\r\u{1b}[3A1\u{1b}[K\r\n2\u{1b}[K\r\n\u{1b}[J";
        assert_eq!(text, format!("{BEGIN}{drawn}{END}"));
        let text = block.frame(Vec::new(), (80, 24));
        assert_eq!(text, format!("{BEGIN}\r\u{1b}[2A\u{1b}[J{END}"));
    }

    #[test]
    fn narrower_terminal_has_wrapped_the_lines_before() {
        let lines = block(&[&"x".repeat(79), "short", ""]).shown;
        assert_eq!(cursor_up(&lines, (80, 24)), "\r\u{1b}[3A");
        assert_eq!(cursor_up(&lines, (40, 24)), "\r\u{1b}[4A");
        assert_eq!(cursor_up(&lines, (20, 24)), "\r\u{1b}[6A");
        // Lines that have left the screen at the top cannot be reached.
        assert_eq!(cursor_up(&lines, (20, 4)), "\r\u{1b}[3A");
        assert_eq!(cursor_up(&[], (80, 24)), "\r");
    }
}

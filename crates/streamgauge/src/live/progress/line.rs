//! A line of a terminal: text in parts with a tone each. Its width is known and can be limited.

use report::paint::Paint;
use report::sanitize::single_line;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Look of a part of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Strong,
    Faint,
    Good,
    Doubtful,
    Bad,
}

/// A line of a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScreenLine(Vec<(Tone, String)>);

impl ScreenLine {
    /// Returns a line without colour.
    pub(super) fn plain(text: &str) -> ScreenLine {
        ScreenLine::default().with(Tone::Plain, text)
    }

    /// Adds text at the end. Control characters become visible signs, because text from a server
    /// must not reach the terminal as a command.
    pub(super) fn with(mut self, tone: Tone, text: &str) -> ScreenLine {
        self.0.push((tone, single_line(text).into_owned()));
        self
    }

    /// Returns the number of columns that the line takes.
    pub(super) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.width()).sum()
    }

    /// Truncates the line to at most this many columns. A truncated line ends with `…`.
    pub(super) fn cut(self, columns: usize) -> ScreenLine {
        if self.width() <= columns {
            return self;
        }
        let mut left = columns.saturating_sub(1);
        let mut parts = Vec::new();
        'parts: for (tone, text) in self.0 {
            let mut kept = String::new();
            for c in text.chars() {
                let width = c.width().unwrap_or(0);
                if width > left {
                    kept.push('…');
                    parts.push((tone, kept));
                    break 'parts;
                }
                left -= width;
                kept.push(c);
            }
            parts.push((tone, kept));
        }
        if columns == 0 {
            parts.clear();
        }
        ScreenLine(parts)
    }

    /// Returns the line with the escape sequences of its colours.
    pub(super) fn painted(&self, paint: Paint) -> String {
        let parts = self.0.iter().map(|(tone, text)| match tone {
            Tone::Plain => text.clone(),
            Tone::Strong => paint.strong(text),
            Tone::Faint => paint.faint(text),
            Tone::Good => paint.good(text),
            Tone::Doubtful => paint.doubtful(text),
            Tone::Bad => paint.bad(text),
        });
        parts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_line_fits_and_is_marked() {
        let line = ScreenLine::plain("viewers").with(Tone::Bad, ", 10 failed");
        assert_eq!(line.width(), 18);
        assert_eq!(line.clone().cut(18), line);
        let text = |columns| line.clone().cut(columns).painted(Paint::default());
        assert_eq!(text(17), "viewers, 10 fail…");
        assert_eq!(text(5), "view…");
        assert_eq!(text(7), "viewer…");
        assert_eq!(text(1), "…");
        assert_eq!(text(0), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let line = ScreenLine::plain("摄像机");
        assert_eq!(line.width(), 6);
        assert_eq!(line.cut(4).painted(Paint::default()), "摄…");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let line = ScreenLine::plain("a\u{1b}[2Jb\nc\u{9b}d");
        assert_eq!(line.painted(Paint::default()), "a␛[2Jb␊c<U+009B>d");
    }
}

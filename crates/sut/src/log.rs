//! End of a server's output, and search for the line that shows that it is ready.

use std::collections::VecDeque;

use regex_lite::Regex;

use crate::error::SutError;

/// Amount of output that is kept, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a line in a search, in bytes.
const LINE_MAX: usize = 8 * 1024;

/// Maximum size of a compiled regular expression, in bytes.
const PATTERN_MAX: usize = 1 << 20;

/// Condition on a line.
#[derive(Debug)]
pub(crate) enum Matcher {
    /// This text anywhere in the line.
    Text(String),
    /// This expression anywhere in the line.
    Pattern(Box<Regex>),
}

impl Matcher {
    /// Returns a matcher for a regular expression.
    pub(crate) fn of_pattern(text: &str) -> Result<Matcher, SutError> {
        Ok(Matcher::Pattern(Box::new(pattern(text)?)))
    }

    fn matches(&self, line: &str) -> bool {
        match self {
            Matcher::Text(text) => line.contains(text.as_str()),
            Matcher::Pattern(regex) => regex.is_match(line),
        }
    }
}

/// Compiles a regular expression of the user.
pub(crate) fn pattern(text: &str) -> Result<Regex, SutError> {
    regex_lite::RegexBuilder::new(text)
        .size_limit(PATTERN_MAX)
        .build()
        .map_err(|error| SutError::BadPattern {
            pattern: text.to_owned(),
            reason: error.to_string(),
        })
}

/// End of the output, with both streams in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Log {
    kept: VecDeque<u8>,
}

impl Log {
    /// Adds output, and drops the oldest beyond the limit.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEPT_BYTES_MAX)..];
        let surplus = (self.kept.len() + bytes.len()).saturating_sub(KEPT_BYTES_MAX);
        self.kept.drain(..surplus);
        self.kept.extend(bytes);
    }

    /// Returns the text that is kept, without the first line if its beginning was dropped.
    pub(crate) fn tail(&self) -> String {
        let (front, back) = self.kept.as_slices();
        let mut bytes = [front, back].concat();
        if bytes.len() == KEPT_BYTES_MAX
            && let Some(end) = bytes.iter().position(|&byte| byte == b'\n')
        {
            bytes.drain(..=end);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Splits an output stream into lines and searches for the awaited one.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    open: Vec<u8>,
}

impl Lines {
    /// Adds output, and calls `each` with each line that is complete.
    pub(crate) fn for_each_line(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        self.split(bytes, |line, ended| {
            if ended {
                each(&text_of(line));
            }
        });
    }

    /// Adds output. Returns `true` if a line of it matches. The last line is searched even before
    /// its end: a prompt has none.
    pub(crate) fn push_and_match(&mut self, bytes: &[u8], matcher: &Matcher) -> bool {
        let mut found = false;
        self.split(bytes, |line, _| found |= matcher.matches(&text_of(line)));
        found
    }

    /// Adds output, and calls `each` with each line, and with whether it has ended.
    fn split(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8], bool)) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_MAX.saturating_sub(self.open.len());
            self.open.extend_from_slice(&piece[..piece.len().min(room)]);
            let ended = piece.ends_with(b"\n");
            each(&self.open, ended);
            if ended {
                self.open.clear();
            }
        }
    }
}

/// Returns a line as text, without its end.
fn text_of(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end_matches(['\n', '\r']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_64_kib_in_whole_lines() {
        let mut log = Log::default();
        for number in 0..20_000 {
            log.push(format!("line {number}\n").as_bytes());
        }
        let tail = log.tail();
        assert!(tail.len() <= KEPT_BYTES_MAX && tail.len() > KEPT_BYTES_MAX - 100);
        assert!(tail.starts_with("line ") && tail.ends_with("line 19999\n"));
        log.push(&vec![b'x'; 3 * KEPT_BYTES_MAX]);
        assert_eq!(log.tail().len(), KEPT_BYTES_MAX);
    }

    #[test]
    fn finds_a_line_that_comes_in_pieces() {
        let matcher = Matcher::Text("is ready".to_owned());
        let mut lines = Lines::default();
        assert!(!lines.push_and_match(b"server is", &matcher));
        assert!(lines.push_and_match(b" ready", &matcher));
        let mut lines = Lines::default();
        assert!(!lines.push_and_match(b"server is\n ready\n", &matcher));
    }

    #[test]
    fn a_pattern_is_anchored_to_its_line() {
        let matcher = Matcher::of_pattern(r"^(?i)Listening on \d+$").unwrap();
        let mut lines = Lines::default();
        assert!(!lines.push_and_match(b"not listening on 80\n", &matcher));
        assert!(lines.push_and_match(b"listening on 80\r\n", &matcher));
    }

    #[test]
    fn endless_lines_are_bounded() {
        let matcher = Matcher::Text("never".to_owned());
        let mut lines = Lines::default();
        for _ in 0..100 {
            lines.push_and_match(&[b'x'; 1000], &matcher);
        }
        assert!(lines.open.len() <= LINE_MAX);
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let error = Matcher::of_pattern("a(").unwrap_err();
        assert!(error.to_string().contains("`a(`"));
    }
}

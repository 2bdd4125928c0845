//! Origins: positions in the texts that settings come from.

use std::fmt;
use std::sync::Arc;

use crate::masking::{MASK, is_secret_key, mask_text};

/// A text with settings: the file, an argument or an environment variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceText {
    pub(crate) kind: SourceKind,
    /// Name of the file, option or variable.
    pub(crate) name: String,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    File,
    /// `--set KEY=VALUE`, as a whole.
    Set,
    /// `VARIABLE=VALUE`.
    Environment,
    /// An option of the command line with its value, such as `--ramp 20s`.
    Option,
}

/// A byte range of a [`SourceText`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) source: Arc<SourceText>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl SourceText {
    pub(crate) fn new(
        kind: SourceKind,
        name: impl Into<String>,
        text: impl Into<String>,
    ) -> Arc<SourceText> {
        Arc::new(SourceText {
            kind,
            name: name.into(),
            text: text.into(),
        })
    }

    /// Returns line and column of a byte, both from 1, with columns in characters.
    pub(crate) fn line_column(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..floor(&self.text, at.min(self.text.len()))];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
}

/// Returns the start of the character that contains the byte `at`.
pub(crate) fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl Origin {
    pub(crate) fn new(source: &Arc<SourceText>, start: usize, end: usize) -> Origin {
        let length = source.text.len();
        Origin {
            source: Arc::clone(source),
            start: start.min(length),
            end: end.clamp(start.min(length), length),
        }
    }

    pub(crate) fn whole(source: &Arc<SourceText>) -> Origin {
        Origin::new(source, 0, source.text.len())
    }

    /// Returns the text of this range.
    pub(crate) fn text(&self) -> &str {
        self.source.text.get(self.start..self.end).unwrap_or("")
    }

    /// Returns `true` if `other` lies within this range.
    pub(crate) fn contains(&self, other: &Origin) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
            && self.start <= other.start
            && other.end <= self.end
    }

    /// Returns a part of this range.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Origin {
        let start = (self.start + offset).min(self.end);
        Origin::new(&self.source, start, (start + length).min(self.end))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.kind {
            SourceKind::File => {
                let (line, column) = self.source.line_column(self.start);
                write!(f, "{}:{line}:{column}", self.source.name)
            }
            SourceKind::Set | SourceKind::Option => f.write_str(&shown(&self.source.text)),
            SourceKind::Environment => write!(f, "environment variable {}", self.source.name),
        }
    }
}

/// Formats an argument for messages, without the value of a secret setting.
fn shown(argument: &str) -> String {
    let setting = argument.strip_prefix("--set ").unwrap_or("");
    match setting.split_once('=') {
        Some((key, _)) if is_secret_key(key) => format!("--set {key}={MASK}"),
        _ => mask_text(argument),
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

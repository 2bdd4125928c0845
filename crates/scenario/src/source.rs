//! Where a piece of a scenario was written: a place in a text that can be shown.

use std::fmt;
use std::sync::Arc;

use crate::masking::{MASK, is_secret_key, mask_text};

/// A text that settings come from: the file, or one argument or environment variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceText {
    pub(crate) kind: SourceKind,
    /// The file's name, the option's or the variable's.
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

/// A place in a [`SourceText`], in bytes.
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

    /// Line and column of a byte, both counted from 1, columns in characters.
    pub(crate) fn line_column(&self, at: usize) -> (usize, usize) {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
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

    /// The text at that place.
    pub(crate) fn text(&self) -> &str {
        self.source.text.get(self.start..self.end).unwrap_or("")
    }

    /// Whether a place lies within this one.
    pub(crate) fn contains(&self, other: &Origin) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
            && self.start <= other.start
            && other.end <= self.end
    }

    /// A place within this one.
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

/// An argument as messages name it: without the value of a setting that is a secret.
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

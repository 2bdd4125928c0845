//! `--force`: whether the user wants files replaced.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Whether an existing file may be replaced even though it is not a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// `--force` was given.
    Given,
    /// `--force` is possible but was not given.
    NotGiven,
    /// The command has no `--force`.
    Unknown,
}

impl Force {
    /// Returns the value of a command that has the option.
    pub(crate) fn of(given: bool) -> Force {
        if given { Force::Given } else { Force::NotGiven }
    }
}

/// Returns `true` if writing to the path loses nothing: no file, an empty file, a device or a pipe,
/// or a file of ours by its first bytes.
pub(crate) fn is_replaceable(
    path: &Path,
    length: usize,
    is_ours: impl FnOnce(&[u8]) -> bool,
) -> bool {
    let holds_something = |about: fs::Metadata| about.is_file() && about.len() > 0;
    if !fs::metadata(path).is_ok_and(holds_something) {
        return true;
    }
    let mut head = Vec::new();
    // A file that cannot be read is no report of this user.
    let read = File::open(path).and_then(|file| file.take(length as u64).read_to_end(&mut head));
    read.is_ok() && is_ours(&head)
}

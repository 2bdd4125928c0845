//! `--force`: whether the user wants files replaced.

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

//! Whether the user wants files replaced.

/// Whether what is there already may be replaced though it is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// The user said so.
    Given,
    /// The user could say so.
    NotGiven,
    /// The command has no such option.
    Unknown,
}

impl Force {
    /// That of a command with the option.
    pub(crate) fn of(given: bool) -> Force {
        if given { Force::Given } else { Force::NotGiven }
    }
}

//! Build of the program that made a run.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of digits of a commit in texts.
const COMMIT_DIGITS: usize = 12;

/// Source and platform of a build of streamgauge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Build {
    /// Git commit of the source, in hexadecimal digits; null if it was built without the
    /// repository.
    pub commit: Option<String>,
    /// True if the source had changes that are not in the commit.
    pub modified: bool,
    /// Platform as Rust names it, such as `x86_64-unknown-linux-musl`.
    pub target: String,
}

impl Build {
    /// The first digits of the commit, and whether the source had changes.
    pub fn source(&self) -> String {
        let commit = self.commit.as_deref().unwrap_or("unknown");
        let short: String = commit.chars().take(COMMIT_DIGITS).collect();
        match self.modified {
            true => format!("{short} with changes"),
            false => short,
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "commit {}, {}", self.source(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_commit_changes_and_target() {
        let build = |commit: Option<&str>, modified| Build {
            commit: commit.map(str::to_owned),
            modified,
            target: "x86_64-unknown-linux-musl".to_owned(),
        };
        let long = "0123456789abcdef0123456789abcdef01234567";
        for (commit, modified, text) in [
            (Some(long), false, "commit 0123456789ab, "),
            (Some(long), true, "commit 0123456789ab with changes, "),
            (None, false, "commit unknown, "),
        ] {
            let expected = format!("{text}x86_64-unknown-linux-musl");
            assert_eq!(build(commit, modified).to_string(), expected);
        }
    }
}

//! Real browsers that do the same as the clients of a population and report what they measure
//! themselves. The protocol provides the page; this module records its figures.

mod figures;
pub mod metrics;

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use figures::{Figures, PageState, PageTotals};
pub use metrics::BROWSER_CATALOGUE;

/// Kind of a browser's subject in run files.
pub const KIND: &str = "browser";

/// Maximum number of browsers of a population: each one takes a good part of a processor core.
const BROWSERS_MAX: u32 = 8;

/// Real browsers that do the same as the clients of a population, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// Number of headless Chromium browsers, from 1 to 8.
    #[schemars(range(min = 1, max = 8))]
    pub chromium: u32,
}

impl Golden {
    /// Checks that the number is in range. The error says why not.
    pub fn check(self) -> Result<(), String> {
        match self.chromium {
            1..=BROWSERS_MAX => Ok(()),
            _ => Err(format!(
                "`chromium` must be a number of browsers from 1 to {BROWSERS_MAX}"
            )),
        }
    }
}

/// The page that a browser opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// HTML document. It polls `word` in its own folder for its next command, and posts its
    /// [`Figures`] to `figures` there.
    pub html: String,
    /// `true` if the browser accepts any server certificate.
    pub is_insecure: bool,
}

/// Command to the page from the engine that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCommand {
    /// Wait: the run has not begun.
    Wait,
    /// Connect to the server.
    Begin,
    /// Disconnect.
    Leave,
}

impl PageCommand {
    /// Text form that the page reads.
    pub fn text(self) -> &'static str {
        match self {
            PageCommand::Wait => "wait",
            PageCommand::Begin => "begin",
            PageCommand::Leave => "leave",
        }
    }
}

/// Returns the name of the subject with the figures of a population's browsers.
pub fn subject(population: &str) -> String {
    format!("{population}_golden")
}

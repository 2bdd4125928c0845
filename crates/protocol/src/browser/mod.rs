//! A real browser beside the clients of a population: it is sent to the same place, and tells what
//! it sees itself. What the page does is its protocol's; what is counted is here.

mod figures;
pub mod metrics;

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use figures::{Figures, Seen, State};
pub use metrics::BROWSER_CATALOGUE;

/// The kind of subject that a browser is, in run files.
pub const KIND: &str = "browser";

/// The most browsers of a population: each takes a good part of a processor core.
const BROWSERS_MAX: u32 = 8;

/// How many real browsers do what the clients of a population do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// How many headless Chromiums, from 1 to 8.
    #[schemars(range(min = 1, max = 8))]
    pub chromium: u32,
}

impl Golden {
    /// Whether these values make sense; if not, why.
    pub(crate) fn check(self) -> Result<(), String> {
        match self.chromium {
            1..=BROWSERS_MAX => Ok(()),
            _ => Err(format!(
                "`chromium` is a number of browsers from 1 to {BROWSERS_MAX}"
            )),
        }
    }
}

/// What a browser is to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The document. It asks `word` of the folder that it is in for what to do, and posts its
    /// [`Figures`] to `figures` there.
    pub html: String,
    /// Whether certificates of any server are good.
    pub is_insecure: bool,
}

/// What the page is told by whoever serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The run has not begun.
    Wait,
    /// Go to the server.
    Begin,
    /// Leave it.
    Leave,
}

impl Word {
    /// As the page reads it.
    pub fn text(self) -> &'static str {
        match self {
            Word::Wait => "wait",
            Word::Begin => "begin",
            Word::Leave => "leave",
        }
    }
}

/// The name of the subject that has the figures of the browsers beside a population.
pub fn subject(population: &str) -> String {
    format!("{population}_golden")
}

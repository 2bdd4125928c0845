//! Reports of a run, made from its run file and from nothing else: the summary for a terminal and
//! the JSON report.

pub mod human;
pub mod json;
mod limits;
mod loss;
pub mod model;
pub mod paint;
pub mod schema;
pub mod source;
pub mod terminal;
pub mod time;
pub mod window;

pub use limits::{Limit, LimitKind};
pub use loss::WhereLost;
pub use model::Report;
pub use runfile::{Reader, Subject};
pub use source::open;
pub use terminal::{Layout, summary};

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The run file could not be read.
    #[error(transparent)]
    RunFile(#[from] runfile::RunFileError),
    /// It could not be written.
    #[error("cannot write the report: {0}")]
    Write(#[from] std::io::Error),
}

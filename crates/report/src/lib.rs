//! Reports of a run or a series, made from run files and from nothing else: the summary or the
//! table for a terminal, the JSON report, JUnit XML, Markdown, CSV, the HTML page, the text that
//! Prometheus scrapes and the messages that a collector of OpenTelemetry is sent. All text for a
//! terminal goes through [`gate`], and so do the texts of a page.

mod cause;
pub mod csv;
pub mod gate;
pub mod html;
pub use measure::human;
pub mod json;
pub mod junit;
mod limits;
pub mod link;
mod loss;
pub mod markdown;
pub mod media;
pub mod metrics;
pub mod model;
pub mod otlp;
mod own_counts;
pub mod paint;
pub mod prometheus;
mod rows;
pub mod running;
pub mod schema;
pub mod series;
mod shorten;
pub mod source;
pub mod terminal;
pub mod time;
pub mod window;

pub use cause::cause;
pub use limits::{Limit, LimitKind};
pub use loss::WhereLost;
pub use model::Report;
pub use runfile::{Reader, Subject, io_reason};
pub use shorten::shorten;
pub use source::open;
pub use terminal::{Layout, headline, summary};

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The run file could not be read.
    #[error(transparent)]
    RunFile(#[from] runfile::RunFileError),
    /// It is no series, or its index cannot be read.
    #[error(transparent)]
    Index(#[from] runfile::series::IndexError),
    /// The folder of a series could not be listed.
    #[error(
        "{}: the folder cannot be read: {}; name a folder that you may read", .path.display(), io_reason(.error)
    )]
    Folder {
        /// Where.
        path: std::path::PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It could not be written.
    #[error("cannot write the report: {}", io_reason(.0))]
    Write(#[from] std::io::Error),
}

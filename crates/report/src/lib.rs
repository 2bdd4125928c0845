//! Reports of a run or a series, made from run files only: the summary or the table for a terminal,
//! the JSON report, JUnit XML, Markdown, CSV, the HTML page, the text for Prometheus and the
//! messages for an OpenTelemetry collector. All text for a terminal, and all texts of a page, pass
//! through [`sanitize`].

mod cause;
pub mod csv;
mod csv_cell;
mod delay_error;
mod distinct;
mod head;
pub mod html;
pub mod sanitize;
pub use measure::human;
pub mod json;
pub mod junit;
mod limits;
pub mod link;
pub mod live_figures;
mod loss;
pub mod markdown;
pub mod media;
mod metric_words;
pub mod metrics;
pub mod model;
pub mod otlp;
mod own_counts;
pub mod paint;
pub mod prometheus;
mod rows;
pub mod schema;
pub mod series;
mod shorten;
pub mod source;
pub mod terminal;
pub mod time;
pub mod window;
mod worsening;

pub use cause::cause;
pub use limits::{Limit, LimitKind};
pub use loss::WhereLost;
pub use model::Report;
pub use runfile::{Reader, Subject, io_reason};
pub use shorten::shorten;
pub use source::open;
pub use terminal::{Layout, headline, summary};
pub use worsening::worsened;

/// Error of making a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The run file could not be read.
    #[error(transparent)]
    RunFile(#[from] runfile::RunFileError),
    /// The folder is not a series, or its index cannot be read.
    #[error(transparent)]
    Index(#[from] runfile::series::IndexError),
    /// The folder of a series could not be listed.
    #[error(
        "{}: the folder cannot be read: {}; name a folder that you may read", .path.display(), io_reason(.error)
    )]
    Folder {
        path: std::path::PathBuf,
        error: std::io::Error,
    },
    /// The report could not be written.
    #[error("cannot write the report: {}", io_reason(.0))]
    Write(#[from] std::io::Error),
}

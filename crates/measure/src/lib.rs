//! Measurement: counters, mergeable histograms, windows, thresholds and the verdict; and what is
//! measured: plans of [`load`] and the search for a [`capacity`].
//!
//! This crate is pure: it opens no file or socket, reads no clock and starts no thread. A protocol
//! core may therefore depend on it, and tests feed it numbers directly.
//!
//! Data flow: a worker adds to a [`Recorder`] while packets arrive. Once a second it takes a
//! [`Window`] from the recorder. The windows of all workers are merged into one, which is written
//! to the run file, judged by the thresholds, and added to the [`Totals`] of the run.

#![deny(missing_docs)]

pub mod build;
pub mod capacity;
pub mod clock_error;
pub mod comparison;
pub mod health;
pub mod histogram;
pub mod human;
pub mod link;
pub mod load;
pub mod media;
pub mod metric;
pub mod nearest;
pub mod recorder;
pub mod server;
pub mod sources;
pub mod summary;
pub mod tester;
pub mod threshold;
pub mod time;
pub mod totals;
pub mod units;
pub mod usl;
pub mod verdict;

pub use build::Build;
pub use clock_error::ClockError;
pub use health::{Finding, Health, HealthBounds};
pub use histogram::{Histogram, Sparse};
pub use link::LINK_CATALOGUE;
pub use metric::{
    BetterWhen, Catalogue, ContentCheck, CounterId, Disqualifier, GaugeId, Group, HistogramId,
    KeyFigure, Meaning, Metric, Statistic, TableColumn, Unit,
};
pub use recorder::{Recorder, Window};
pub use server::SERVER_CATALOGUE;
pub use sources::{Pacing, SourceStream, Sources};
pub use summary::SummaryRow;
pub use tester::TESTER_CATALOGUE;
pub use threshold::{Judge, Threshold, ThresholdError, ThresholdResult};
pub use time::{ArrivalRun, Time};
pub use totals::Totals;
pub use verdict::{Verdict, VerdictInput, VerdictResult};

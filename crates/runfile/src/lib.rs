//! The run file: all measurements of one run, in one SQLite file.
//!
//! [`RunFile`] writes it during the run, in a separate thread and with one transaction a second, so
//! a killed run loses at most its last second. [`Reader`] reads it during the run or later. Every
//! report is made from it.
//!
//! # Format
//!
//! An SQLite database with `application_id` 0x53474147 and the format version in `user_version`
//! (see [`VERSION`]). While it is being written, it is in WAL mode and has up to two companion
//! files (`-wal`, `-shm`); a finished run is one plain file. A killed run leaves its log (`-wal`),
//! which must be copied together with the database: readers never write, so the log stays. Times
//! are nanoseconds since the start of the run, unless a column says otherwise. Figures are in the
//! units that the catalogue of their subject states.
//!
//! | table | a row is | columns |
//! |---|---|---|
//! | `meta` | a fact about the run | `key`, `value` (JSON). Keys: `version` (of streamgauge),
//! `scenario` (as resolved), `machine`, `seed`, `started_at` (seconds since 1970), `warm_up_nanos`,
//! `starts_in_warm_up` (whether delays of clients that start in the warm-up count), `window_nanos`,
//! and the [`fact`]s; `ended` (true) is written last, so a file without it belongs to a run that
//! was cut off |
//! | `subject` | a population, its browser, a direction of an emulated link, the server or the
//! tester | `id`, `name`, `kind` (selects the catalogue: a protocol, `browser`, `uplink`,
//! `downlink`, `server`, `tester`), `catalogue` (JSON: the metrics with unit and definition, and
//! the metric names in the order of the arrays in `figures`) |
//! | `window` | a window of measurement | `idx`, `start_ns`, `seconds` |
//! | `figures` | figures of a subject in a window | `window`, `subject`, `counters` (JSON array of
//! integers), `gauges` (JSON array of numbers, null where none was taken) |
//! | `histogram` | a distribution in a window | `window`, `subject`, `metric` (its name), `blob`
//! (see [`blob`]) |
//! | `failure` | clients that failed in a window | `window`, `subject`, `reason`, `count` |
//! | `client` | a client | `id`, `subject`, `slot`, `generation`, `url`, `due`, `begun`,
//! `first_media`, `ended` (times, null if the event did not occur), `outcome` (`completed`,
//! `stopped`, `failed`; null while the client is alive), `reason`, `detail`, `streams` (JSON) |
//! | `event` | an event | `id` (the order), `time`, `kind`, `subject` (a name, or null), `text` |
//! | `served` | counts of a reference server of this process for one stream | `id`, `line` (JSON) |
//! | `verdict` | the verdict: one row | `id` (1), `verdict` (JSON), `thresholds` (JSON) |
//!
//! Two views expand the arrays of `figures`: `counter` (`window`, `subject`, `metric`, `value`) and
//! `gauge` (same columns). They provide totals without streamgauge:
//!
//! ```sql
//! SELECT metric, sum(value) FROM counter WHERE subject = 'viewers' GROUP BY metric;
//! ```

pub mod blob;
mod catalogue;
mod database;
mod error;
pub mod fact;
mod merge_log;
mod open;
mod reader;
mod rows;
mod schema;
pub mod series;
mod writer;

pub use error::{RunFileError, io_reason};
pub use fact::{Fact, Noted};
pub use merge_log::merge_log;
pub use reader::{Reader, Rows, Subject};
pub use rows::{
    ClientOutcome, ClientRow, EventRow, FailureRow, Header, Machine, SubjectHeader, WindowRow,
};
pub use schema::VERSION;
pub use writer::RunFile;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

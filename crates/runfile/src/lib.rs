//! The run file: everything that was seen in one run, in one SQLite file.
//!
//! [`RunFile`] writes it while the run goes on, by a thread of its own and with one transaction a
//! second, so that whatever kills the run, all but its last second stays. [`Reader`] reads it,
//! while it is being written or at any time later; every report is made from it.
//!
//! # Format
//!
//! An SQLite database with `application_id` 0x53474147 and the version of this format in
//! `user_version` (see [`VERSION`]). While it is written it is in WAL mode, so up to three files
//! belong to it (`-wal`, `-shm`); a finished run is one plain file. A run that was killed leaves
//! its log (`-wal`), which has to be copied with it: readers never write, so it stays. Times are
//! nanoseconds since the run began, unless a column says otherwise. Figures are in the units that
//! the catalogue of their subject states.
//!
//! | table | a row is | columns |
//! |---|---|---|
//! | `meta` | a fact about the run | `key`, `value` (JSON). Keys: `version` (of streamgauge), `scenario` (as resolved), `machine`, `seed`, `started_at` (seconds since 1970), `warm_up_nanos`, `window_nanos`, and what else was noted; `ended` (true) is written last, so a file without it is of a run that was cut off |
//! | `subject` | a population, the server or the tester | `id`, `name`, `kind` (which catalogue: a protocol, `server`, `tester`), `catalogue` (JSON: the metrics with unit and definition, and the names that stand behind the places in `figures`) |
//! | `window` | a window of measurement | `idx`, `start_ns`, `seconds` |
//! | `figures` | what a window saw of a subject | `window`, `subject`, `counters` (JSON array of integers), `gauges` (JSON array of numbers, null where none was taken) |
//! | `histogram` | a distribution in a window | `window`, `subject`, `metric` (its name), `blob` (see [`blob`]) |
//! | `failure` | clients that failed in a window | `window`, `subject`, `reason`, `count` |
//! | `client` | a client | `id`, `subject`, `slot`, `generation`, `url`, `due`, `begun`, `first_media`, `ended` (times, null where it never came), `outcome` (`completed`, `stopped`, `failed`; null while it lives), `reason`, `detail`, `streams` (JSON) |
//! | `event` | something that happened | `id` (the order), `time`, `kind`, `subject` (a name, or null), `text` |
//! | `served` | what a reference server of this process did to one stream | `id`, `line` (JSON) |
//! | `verdict` | the verdict: one row | `id` (1), `verdict` (JSON), `thresholds` (JSON) |
//!
//! Two views spell the arrays of `figures` out: `counter` (`window`, `subject`, `metric`, `value`)
//! and `gauge` (the same). So a total can be had without streamgauge:
//!
//! ```sql
//! SELECT metric, sum(value) FROM counter WHERE subject = 'viewers' GROUP BY metric;
//! ```

pub mod blob;
mod catalogue;
mod database;
mod error;
mod open;
mod plain;
mod reader;
mod rows;
mod schema;
pub mod series;
mod writer;

pub use error::{RunFileError, io_reason};
pub use plain::make_plain;
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

//! Run file of the current run, for readers while it is written.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use report::{Reader, ReportError};

/// Tolerance for the start of a run before its request: times in a run file are rounded, and a load
/// of a run that continues begins with the end of the one before, which is judged first.
const START_TOLERANCE: Duration = Duration::from_secs(10);

/// Run file of a run that starts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CurrentRunFile {
    path: PathBuf,
    /// Time of the request, since 1970.
    requested_at: Duration,
}

impl CurrentRunFile {
    pub(crate) fn new(path: &Path) -> CurrentRunFile {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        CurrentRunFile {
            path: path.to_owned(),
            requested_at: now.unwrap_or_default(),
        }
    }

    /// Opens the run file. Returns `None` if it does not exist yet, or if it is an older file that
    /// the run is going to replace.
    pub(crate) fn open(&self) -> Result<Option<Reader>, ReportError> {
        if !self.path.exists() {
            return Ok(None);
        }
        let reader = report::open(&self.path, engine::catalogue_of)?;
        let is_new = reader.header().started_at + START_TOLERANCE >= self.requested_at;
        Ok(is_new.then_some(reader))
    }
}

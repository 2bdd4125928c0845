//! Run file of the current run, for readers while it is written.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use report::{Reader, ReportError};

/// Tolerance for the start of a run before its request: times in a run file are rounded.
const ROUNDED: Duration = Duration::from_secs(1);

/// Run file of a run that starts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    path: PathBuf,
    /// Time of the request, since 1970.
    asked_at: Duration,
}

impl Followed {
    pub(crate) fn new(path: &Path) -> Followed {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Followed {
            path: path.to_owned(),
            asked_at: now.unwrap_or_default(),
        }
    }

    /// Opens the run file. Returns `None` if it does not exist yet, or if it is an older file that
    /// the run is going to replace.
    pub(crate) fn open(&self) -> Result<Option<Reader>, ReportError> {
        if !self.path.exists() {
            return Ok(None);
        }
        let reader = report::open(&self.path, engine::catalogue_of)?;
        let is_new = reader.header().started_at + ROUNDED >= self.asked_at;
        Ok(is_new.then_some(reader))
    }
}

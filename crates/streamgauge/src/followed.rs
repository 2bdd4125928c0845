//! The run file of a run under way, for those that read it while it is written.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use report::{Reader, ReportError};

/// How much earlier than it was asked for a run may have begun: times in a file are rounded.
const ROUNDED: Duration = Duration::from_secs(1);

/// Where a run is kept that begins now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    path: PathBuf,
    /// Since 1970.
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

    /// Opens it; none where it is not there yet, or an older one that the run is to replace.
    pub(crate) fn open(&self) -> Result<Option<Reader>, ReportError> {
        if !self.path.exists() {
            return Ok(None);
        }
        let reader = report::open(&self.path, engine::catalogue_of)?;
        let is_new = reader.header().started_at + ROUNDED >= self.asked_at;
        Ok(is_new.then_some(reader))
    }
}

//! Conversion of a run file to one plain file after it was read while it was being written.

use std::path::Path;

use crate::error::RunFileError;
use crate::open::{companion, open_to_write};

/// Merges the log of a run file into its database and removes the log. The writer cannot do this
/// while readers keep the file open, and readers only read. Does nothing if there is no log. Call
/// it once all readers of this process have closed the file.
///
/// # Errors
/// [`RunFileError::Write`] if another process still reads the file, or if it cannot be written. The
/// run is then complete but in several files: the companions ending in `-wal` and `-shm` belong to
/// it.
pub fn merge_log(path: &Path) -> Result<(), RunFileError> {
    if !companion(path, "-wal").exists() {
        return Ok(());
    }
    let database = open_to_write(path);
    let merged = database.and_then(|it| it.pragma_update(None, "journal_mode", "DELETE"));
    merged.map_err(|error| RunFileError::Write {
        path: path.to_owned(),
        windows: 0,
        why: error.to_string(),
    })
}

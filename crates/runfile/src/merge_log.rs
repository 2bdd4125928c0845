//! Conversion of a run file to one plain file after it was read while it was being written.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::RunFileError;

/// Time to wait for remaining readers of the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Merges the log of a run file into its database and removes the log. The writer cannot do this
/// while readers keep the file open, and readers only read. Does nothing if there is no log. Call
/// it once all readers of this process have closed the file.
///
/// # Errors
/// [`RunFileError::Write`] if another process still reads the file, or if it cannot be written. The
/// run is then complete but in several files: the companions ending in `-wal` and `-shm` belong to
/// it.
pub fn merge_log(path: &Path) -> Result<(), RunFileError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if !Path::new(&log).exists() {
        return Ok(());
    }
    let fold = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(path, flags)?;
        database.busy_timeout(BUSY_TIMEOUT)?;
        database.pragma_update(None, "journal_mode", "DELETE")
    };
    fold().map_err(|error: rusqlite::Error| RunFileError::Write {
        path: path.to_owned(),
        windows: 0,
        why: error.to_string(),
    })
}

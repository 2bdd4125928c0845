//! A run file as one plain file, also where somebody read it while it was written.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::RunFileError;

/// How long to wait for somebody who still reads the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Folds the log of a run file into it and removes the log: the writer could not while readers kept
/// the file open, and these only read. Does nothing where there is no log. To be called once all
/// readers of this process have closed the file.
///
/// # Errors
/// [`RunFileError::Write`] where somebody else still reads the file, or it cannot be written. Then
/// the run is whole, but in several files: those whose names end in `-wal` and `-shm` belong to it.
pub fn make_plain(path: &Path) -> Result<(), RunFileError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if !Path::new(&log).exists() {
        return Ok(());
    }
    let fold = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(path, flags)?;
        database.busy_timeout(PATIENCE)?;
        database.pragma_update(None, "journal_mode", "DELETE")
    };
    fold().map_err(|error: rusqlite::Error| RunFileError::Write {
        path: path.to_owned(),
        windows: 0,
        why: error.to_string(),
    })
}

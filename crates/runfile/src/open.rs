//! Opening a run file for reading, whatever state it was left in.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{RunFileError, io_reason};
use crate::schema;

/// The longest text or blob that is read.
const LONGEST_VALUE: i32 = 64 << 20;

/// How long a reader waits for a writer that is in its way.
const BUSY: Duration = Duration::from_secs(5);

/// The name of a copy, in a directory of its own.
const COPY: &str = "copy";

/// The path of a file that SQLite puts beside the database.
pub(crate) fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// An open run file; and the directory of a copy, where it could not be read in its place.
pub(crate) type Opened = (Connection, Option<tempfile::TempDir>);

/// Opens a run file: a finished one, one that is being written, or one that a killed run left.
pub(crate) fn open_database(path: &Path) -> Result<Opened, RunFileError> {
    let unreadable = |why: String| RunFileError::Open {
        path: path.to_owned(),
        why,
    };
    let file = File::open(path).map_err(|error| unreadable(io_reason(&error)))?;
    let metadata = file
        .metadata()
        .map_err(|error| unreadable(io_reason(&error)))?;
    if !metadata.is_file() {
        return Err(unreadable("it is no file".to_owned()));
    }
    // A writer holds the lock as long as it lives.
    if companion(path, "-wal").exists() && file.try_lock().is_ok() {
        fold_log(path);
    }
    drop(file);
    let (database, copy) = match connect(path) {
        // Its log cannot be read in its place: that takes an index, and this directory may not be
        // written to, or has no room.
        Err(error) if is_about_the_place(&error) => {
            let copy = copy(path).map_err(|error| unreadable(io_reason(&error)))?;
            (connect(&copy.path().join(COPY)), Some(copy))
        }
        other => (other, None),
    };
    let database = database.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => RunFileError::NotARunFile {
            path: path.to_owned(),
        },
        _ => unreadable(error.to_string()),
    })?;
    identify(&database, path)?;
    Ok((database, copy))
}

/// Puts what a killed run left in the log into the database, so that the file is one again. Where
/// that cannot be done (the file may not be written to) nothing changes, and the log is read where it is.
fn fold_log(path: &Path) {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if let Ok(database) = Connection::open_with_flags(path, flags)
        && identify(&database, path).is_ok()
    {
        let _ = database.pragma_update(None, "journal_mode", "DELETE");
    }
}

fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(BUSY)?;
    database.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
    // What is wrong with a file shows when it is first read.
    database.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
    Ok(database)
}

fn is_about_the_place(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::SystemIoFailure)
    )
}

/// Copies the file and its log to where they can be read.
pub(crate) fn copy(path: &Path) -> io::Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    std::fs::copy(path, directory.path().join(COPY))?;
    let log = companion(path, "-wal");
    if log.exists() {
        std::fs::copy(log, companion(&directory.path().join(COPY), "-wal"))?;
    }
    Ok(directory)
}

/// Says whether it is a run file of a version that is known.
fn identify(database: &Connection, path: &Path) -> Result<(), RunFileError> {
    let path = path.to_owned();
    let pragma = |name: &str| database.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    if !matches!(pragma("application_id"), Ok(id) if id == schema::APPLICATION_ID) {
        return Err(RunFileError::NotARunFile { path });
    }
    match pragma("user_version") {
        Ok(version) if version > schema::VERSION => Err(RunFileError::Newer {
            path,
            version,
            known: schema::VERSION,
        }),
        Ok(schema::VERSION) => Ok(()),
        _ => Err(RunFileError::NotARunFile { path }),
    }
}

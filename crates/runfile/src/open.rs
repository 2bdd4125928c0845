//! Opening of run files for reading, whatever their state and their source.
//!
//! Neither the file nor its log is ever written: a run file may come from any source, and reading
//! one must change nothing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::database::{BUSY_TIMEOUT, Database};
use crate::error::{RunFileError, io_reason};
use crate::schema;

/// File name of the copy in its temporary directory.
const COPY: &str = "copy";

/// First bytes of every SQLite database.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Length of a database header (https://www.sqlite.org/fileformat2.html, "The Database Header").
const HEADER: usize = 100;

/// Returns the path of a companion file of the database, such as its `-wal`.
pub(crate) fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Connects to the database to write to it.
pub(crate) fn open_to_write(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// Opens a run file that is finished, still being written, or left by a killed run.
pub(crate) fn open_database(path: &Path) -> Result<Database, RunFileError> {
    let unreadable = |why: String| RunFileError::Open {
        path: path.to_owned(),
        why,
    };
    let damaged = |why: String| RunFileError::damaged(path, why);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => RunFileError::Missing {
            path: path.to_owned(),
        },
        _ => unreadable(io_reason(&error)),
    };
    // Checked first: opening a pipe without a writer would block forever.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    let mut file = File::open(path).map_err(failed)?;
    let mut head = Vec::new();
    (&mut file)
        .take(HEADER as u64)
        .read_to_end(&mut head)
        .map_err(failed)?;
    check_head(path, &head)?;
    // A writer holds the lock for its lifetime.
    let is_written = file.try_lock().is_err();
    let length = file.metadata().map_err(failed)?.len();
    drop(file);
    let mut has_log = false;
    for suffix in ["-wal", "-shm"] {
        let Ok(metadata) = fs::symlink_metadata(companion(path, suffix)) else {
            continue;
        };
        if !metadata.is_file() {
            return Err(damaged(format!("its `{suffix}` is not a regular file")));
        }
        has_log |= suffix == "-wal" && metadata.len() > 0;
    }
    let plain = !is_written && !has_log;
    if plain && let Some(whole) = length_in_header(&head).filter(|&whole| whole > length) {
        return Err(damaged(format!(
            "its end is missing: it has {length} of {whole} bytes"
        )));
    }
    let database = match connect(path, plain) {
        // The log cannot be read in place: reading it takes an index file, and the directory is
        // read-only or has no space.
        Err(error) if is_location_error(&error) => {
            let copy = copy(path).map_err(|error| {
                let folder = std::env::temp_dir();
                let (why, folder) = (io_reason(&error), folder.display());
                unreadable(format!(
                    "it must be copied to {folder} to be read, and copying fails: {why}"
                ))
            })?;
            connect(&copy.path().join(COPY), false).map(|mut database| {
                database.copy = Some(copy);
                database
            })
        }
        other => other,
    };
    let database = database.map_err(|error| damaged(error.to_string()))?;
    identify(&database, path)?;
    database.check_schema().map_err(damaged)?;
    Ok(database)
}

/// Rejects a file that does not begin like a run file.
fn check_head(path: &Path, head: &[u8]) -> Result<(), RunFileError> {
    let length = head.len();
    if length == 0 {
        return Err(RunFileError::Empty {
            path: path.to_owned(),
        });
    }
    if is_run_file(head) {
        return Ok(());
    }
    Err(
        match length < HEADER && MAGIC.starts_with(&head[..length.min(16)]) {
            true => RunFileError::damaged(path, format!("it ends after {length} bytes")),
            false => RunFileError::NotARunFile {
                path: path.to_owned(),
            },
        },
    )
}

/// Returns `true` if a file with these first bytes is a run file.
pub(crate) fn is_run_file(head: &[u8]) -> bool {
    let id = u32::try_from(schema::APPLICATION_ID).unwrap_or_default();
    head.starts_with(MAGIC) && head.get(68..72) == Some(&id.to_be_bytes())
}

/// Returns the file length that a database header states. Returns `None` if its page count was not
/// written with the last change (ibid., "In-header database size").
fn length_in_header(head: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let page = u64::from(u16::from_be_bytes(head.get(16..18)?.try_into().ok()?));
    let page = if page == 1 { 65_536 } else { page };
    let is_current = number(24)? == number(92)?;
    is_current.then_some(u64::from(number(28)?) * page)
}

/// Connects to the database. `plain` means that nothing writes to the file and that it has no log:
/// SQLite then opens it as immutable, without locking it or searching for companion files.
fn connect(path: &Path, plain: bool) -> Result<Database, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = if plain {
        Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
    } else {
        Connection::open_with_flags(path, flags)?
    };
    Database::new(connection)
}

/// Returns the path as a URI (https://www.sqlite.org/uri.html) of a file that does not change.
fn immutable_uri(path: &Path) -> String {
    // An empty authority precedes an absolute path, so that slashes at its start are not read as
    // those before a host.
    let mut uri = String::from(if path.is_absolute() {
        "file://"
    } else {
        "file:"
    });
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

fn is_location_error(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::SystemIoFailure)
    )
}

/// Copies the file and its log to a temporary directory, where they can be read.
pub(crate) fn copy(path: &Path) -> io::Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    fs::copy(path, directory.path().join(COPY))?;
    let log = companion(path, "-wal");
    if log.exists() {
        fs::copy(log, companion(&directory.path().join(COPY), "-wal"))?;
    }
    Ok(directory)
}

/// Checks that the database is a run file of a known format version.
fn identify(database: &Database, path: &Path) -> Result<(), RunFileError> {
    let path = path.to_owned();
    if !matches!(database.pragma("application_id"), Ok(id) if id == schema::APPLICATION_ID) {
        return Err(RunFileError::NotARunFile { path });
    }
    match database.pragma("user_version") {
        Ok(version) if version > schema::VERSION => Err(RunFileError::Newer {
            path,
            version,
            known: schema::VERSION,
        }),
        Ok(schema::VERSION) => Ok(()),
        _ => Err(RunFileError::NotARunFile { path }),
    }
}

//! Errors of run files.

use std::io;
use std::path::PathBuf;

/// Error of a run file. Each message names the file and says what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunFileError {
    /// A run file exists at the path, and overwriting was not requested.
    #[error(
        "{}: a run file exists already; add `--force` to replace it, or name another file with `-o`", .path.display()
    )]
    Exists { path: PathBuf },
    /// A file that is not a run file exists at the path. It is never overwritten.
    #[error("{}: this is not a run file, so it is not replaced; name another file with `-o`", .path.display())]
    Foreign { path: PathBuf },
    /// Another run is writing to the file.
    #[error(
        "{}: another run is writing to this file; name another file with `-o`, or wait until that run ends",
        .path.display()
    )]
    InUse { path: PathBuf },
    /// The file could not be created.
    #[error("{}: the run file cannot be created: {why}; name another place with `-o`", .path.display())]
    Create { path: PathBuf, why: String },
    #[error(
        "{}: the disk is full; the run file has the first {windows} windows, which can be reported; \
         free some space, or name another place with `-o`", .path.display()
    )]
    DiskFull {
        path: PathBuf,
        /// Number of windows that were kept.
        windows: u64,
    },
    /// Writing to the file failed.
    #[error(
        "{}: the run file cannot be written: {why}; its first {windows} windows can be reported; \
         name another place with `-o`", .path.display()
    )]
    Write {
        path: PathBuf,
        /// Number of windows that were kept.
        windows: u64,
        why: String,
    },
    #[error("{}: there is no such file; name a run file, or the folder of a series", .path.display())]
    Missing { path: PathBuf },
    /// The file cannot be read, or the path is not a file.
    #[error(
        "{}: the run file cannot be read: {why}; name a run file that you may read, or the folder of a series",
        .path.display()
    )]
    Open { path: PathBuf, why: String },
    #[error(
        "{}: the file is empty: its run ended before anything was written, or the copy is incomplete; run it again, \
         or copy it again", .path.display()
    )]
    Empty { path: PathBuf },
    /// The file is of another kind.
    #[error(
        "{}: this is not a run file of streamgauge; name a file that `run`, `load` or `demo` created, or the folder of \
         a series", .path.display()
    )]
    NotARunFile { path: PathBuf },
    /// A newer streamgauge made the file.
    #[error(
        "{}: the run file has format version {version}, and this streamgauge reads versions up to {known}; \
         use a newer streamgauge", .path.display()
    )]
    Newer {
        path: PathBuf,
        /// Format version of the file.
        version: i64,
        /// Newest format version that this program reads.
        known: i64,
    },
    /// The file has a subject of a kind without a catalogue.
    #[error(
        "{}: `{subject}` has the kind `{kind}`, which this streamgauge does not know; use the streamgauge that made \
         the file, or a newer one", .path.display()
    )]
    UnknownKind {
        path: PathBuf,
        subject: String,
        kind: String,
    },
    /// The contents are inconsistent.
    #[error(
        "{}: the run file is damaged: {why}; copy it again from the original, with its `-wal` file if \
         there is one", .path.display()
    )]
    Damaged { path: PathBuf, why: String },
}

impl RunFileError {
    pub(crate) fn create(path: &std::path::Path, why: impl ToString) -> RunFileError {
        RunFileError::Create {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }

    pub(crate) fn damaged(path: &std::path::Path, why: String) -> RunFileError {
        let path = path.to_owned();
        RunFileError::Damaged { path, why }
    }
}

/// Returns the reason of an I/O error in plain words, without the system's error number.
pub fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        io::ErrorKind::QuotaExceeded => "your quota of this disk is used up".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        io::ErrorKind::NotADirectory => "a part of its path is a file, not a folder".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        _ => error.to_string(),
    }
}

//! What can go wrong with a run file.

use std::io;
use std::path::PathBuf;

/// What went wrong with a run file. Each message is a sentence that names the file, and says what
/// to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunFileError {
    /// A run file is there already, and overwriting it was not asked for.
    #[error(
        "{}: there is a run file already; add `--force` to replace it, or name another file with `-o`", .path.display()
    )]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// Something that is no run file is where one should be made. It is never overwritten.
    #[error("{}: this is no run file, so it is not replaced; name another file with `-o`", .path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
    },
    /// Another run is writing to it.
    #[error(
        "{}: another run is writing to this file; name another file with `-o`, or wait until that run has ended",
        .path.display()
    )]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// It could not be made.
    #[error("{}: the run file cannot be made: {why}; name another place with `-o`", .path.display())]
    Create {
        /// Where.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The disk is full.
    #[error(
        "{}: the disk is full, and the run file ends here with its first {windows} windows, which can be reported; \
         make room, or name another place with `-o`", .path.display()
    )]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// How many windows were kept.
        windows: u64,
    },
    /// It could not be written any further.
    #[error(
        "{}: the run file cannot be written any further: {why}; its first {windows} windows can be reported; \
         name another place with `-o`", .path.display()
    )]
    Write {
        /// Where.
        path: PathBuf,
        /// How many windows were kept.
        windows: u64,
        /// What went wrong.
        why: String,
    },
    /// There is no such file.
    #[error("{}: there is no such file; name a run file, or the folder of a series", .path.display())]
    Missing {
        /// Where.
        path: PathBuf,
    },
    /// It cannot be read, or is no file.
    #[error(
        "{}: the run file cannot be read: {why}; name a run file that you may read, or the folder of a series",
        .path.display()
    )]
    Open {
        /// Where.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// Nothing is in it.
    #[error(
        "{}: the file is empty, because its run ended before anything was kept, or it was not copied to its end; run it again, \
         or copy it again", .path.display()
    )]
    Empty {
        /// Where.
        path: PathBuf,
    },
    /// It is something else.
    #[error(
        "{}: this is no run file of streamgauge; name a file that `run`, `load` or `demo` has made, or the folder of \
         a series", .path.display()
    )]
    NotARunFile {
        /// Where.
        path: PathBuf,
    },
    /// It was made by a newer streamgauge.
    #[error(
        "{}: the run file has version {version} of the format, and this streamgauge reads up to {known}; \
         use a newer streamgauge", .path.display()
    )]
    Newer {
        /// Where.
        path: PathBuf,
        /// The file's version.
        version: i64,
        /// The newest version that is known.
        known: i64,
    },
    /// It names a kind of subject that there is no catalogue for.
    #[error(
        "{}: `{subject}` is of the kind `{kind}`, which this streamgauge does not know; use the streamgauge that made \
         the file, or a newer one", .path.display()
    )]
    UnknownKind {
        /// Where.
        path: PathBuf,
        /// The subject.
        subject: String,
        /// Its kind.
        kind: String,
    },
    /// What it holds makes no sense.
    #[error(
        "{}: the run file is damaged: {why}; copy it again from where it was made, with the file `-wal` beside it if \
         there is one", .path.display()
    )]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
}

impl RunFileError {
    pub(crate) fn create(path: &std::path::Path, why: impl ToString) -> RunFileError {
        RunFileError::Create {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}

/// What an input or output error means to a person, without the system's error number.
pub fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        io::ErrorKind::QuotaExceeded => "your quota of this disk is used up".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        io::ErrorKind::NotADirectory => "a part of its path is a file, and no folder".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        _ => error.to_string(),
    }
}

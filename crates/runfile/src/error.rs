//! What can go wrong with a run file.

use std::io;
use std::path::PathBuf;

/// What went wrong with a run file. Each message names the file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunFileError {
    /// A run file is there already, and overwriting it was not asked for.
    #[error("{}: there is a run file already, and it is not overwritten unasked", .path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// Something that is no run file is where one should be made. It is never overwritten.
    #[error("{}: there is a file that is no run file, and it is not overwritten", .path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
    },
    /// Another run is writing to it.
    #[error("{}: another run is writing to this file", .path.display())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// It could not be made.
    #[error("{}: the run file cannot be made: {why}", .path.display())]
    Create {
        /// Where.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The disk is full.
    #[error(
        "{}: the disk is full, so the run file ends here; the first {windows} windows are in it and \
         stay readable", .path.display()
    )]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// How many windows were kept.
        windows: u64,
    },
    /// It could not be written any further.
    #[error(
        "{}: the run file cannot be written any further: {why}; the first {windows} windows are in it \
         and stay readable", .path.display()
    )]
    Write {
        /// Where.
        path: PathBuf,
        /// How many windows were kept.
        windows: u64,
        /// What went wrong.
        why: String,
    },
    /// There is no such file, or it may not be read.
    #[error("{}: the run file cannot be opened: {why}", .path.display())]
    Open {
        /// Where.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// It is something else.
    #[error("{}: this is no run file of streamgauge", .path.display())]
    NotARunFile {
        /// Where.
        path: PathBuf,
    },
    /// It was made by a newer streamgauge.
    #[error(
        "{}: the run file has version {version} of the format, and this streamgauge reads up to {known}: \
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
        "{}: `{subject}` is of the kind `{kind}`, which this streamgauge does not know", .path.display()
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
    #[error("{}: the run file is damaged: {why}", .path.display())]
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
pub(crate) fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        _ => error.to_string(),
    }
}

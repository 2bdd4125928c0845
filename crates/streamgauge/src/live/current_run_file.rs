//! Run file of the current run, for readers while it is written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use report::{Reader, ReportError};

/// Run file of a run that starts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CurrentRunFile {
    path: PathBuf,
    /// Older file at the path, which the run is going to replace.
    replaced: Option<Identity>,
}

/// Identity of a file. Its number alone can be given to the next file, so it has the time at which
/// the file was made as well, if the file system keeps that.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
    made: Option<SystemTime>,
}

impl Identity {
    fn of(path: &Path) -> Option<Identity> {
        let metadata = fs::metadata(path).ok()?;
        Some(Identity {
            device: metadata.dev(),
            number: metadata.ino(),
            made: metadata.created().ok(),
        })
    }
}

impl CurrentRunFile {
    /// Must be called before the run file is made.
    pub(crate) fn new(path: &Path) -> CurrentRunFile {
        CurrentRunFile {
            path: path.to_owned(),
            replaced: Identity::of(path),
        }
    }

    /// Opens the run file. Returns `None` if it does not exist yet, or if it is an older file that
    /// the run is going to replace.
    pub(crate) fn open(&self) -> Result<Option<Reader>, ReportError> {
        match Identity::of(&self.path) {
            Some(found) if Some(&found) != self.replaced.as_ref() => {
                report::open(&self.path, engine::catalogue_of).map(Some)
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_file_is_not_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.run");
        let new = CurrentRunFile::new(&path);
        assert!(new.open().is_ok_and(|reader| reader.is_none()));
        fs::write(&path, "not a run file").expect("it can be written");
        assert!(new.open().is_err());
        let replaced = CurrentRunFile::new(&path);
        assert!(replaced.open().is_ok_and(|reader| reader.is_none()));
        // The new file is made while the old one still has its number.
        let other = folder.path().join("y.run");
        fs::write(&other, "another").expect("it can be written");
        fs::rename(&other, &path).expect("it can be replaced");
        assert!(replaced.open().is_err());
    }
}

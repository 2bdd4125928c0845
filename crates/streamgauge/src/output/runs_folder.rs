//! Folder in which runs are kept unless the user names another place.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use runfile::series::INDEX;

use crate::exit::Failure;

/// Environment variable with another folder.
pub(crate) const FOLDER_VARIABLE: &str = "STREAMGAUGE_RUNS";

/// The folder, in the current one.
const DEFAULT_FOLDER: &str = "streamgauge-runs";

/// The folder.
#[derive(Debug)]
pub(crate) struct RunsFolder {
    pub(crate) path: PathBuf,
    /// True if the environment names it.
    pub(crate) is_users: bool,
}

impl RunsFolder {
    /// Returns the folder that the environment names, or the default one. It may not exist.
    pub(crate) fn of_environment() -> RunsFolder {
        RunsFolder::of(std::env::var_os(FOLDER_VARIABLE))
    }

    fn of(variable: Option<OsString>) -> RunsFolder {
        let named = variable.filter(|value| !value.is_empty());
        RunsFolder {
            is_users: named.is_some(),
            path: named.map_or_else(|| DEFAULT_FOLDER.into(), PathBuf::from),
        }
    }

    /// Returns the run file or the series that was written last.
    pub(crate) fn newest(&self) -> Result<PathBuf, Failure> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let runs = entries.filter_map(|entry| {
            let path = entry.path();
            Some((written_at(&path)?, path))
        });
        runs.max().map(|(_, path)| path).ok_or_else(|| {
            Failure::bad(format_args!(
                "{}: there is no run to report; name a run file, or the folder of a series",
                self.path.display()
            ))
        })
    }

    /// Returns the path of a run that the user names: a name alone may also be one in this folder.
    pub(crate) fn find(&self, named: &Path) -> PathBuf {
        let mut parts = named.components();
        let is_name = matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(_)), None)
        );
        let here = self.path.join(named);
        match is_name && !named.exists() && here.exists() {
            true => here,
            false => named.to_owned(),
        }
    }
}

/// Returns the time at which a run file or a series was written last. `None` if the path is
/// neither.
fn written_at(path: &Path) -> Option<SystemTime> {
    let main = match path.extension().and_then(OsStr::to_str)? {
        "run" => path.to_owned(),
        "series" => path.join(INDEX),
        _ => return None,
    };
    // The last seconds of a run in progress are in its log.
    let mut log = main.as_os_str().to_owned();
    log.push("-wal");
    let log = fs::metadata(log).and_then(|metadata| metadata.modified());
    let main = fs::metadata(main).and_then(|metadata| metadata.modified());
    main.ok().max(log.ok())
}

/// A folder that was made for a run. It is removed if it is still empty when this is dropped: then
/// no run has begun.
#[derive(Debug)]
pub(crate) struct MadeFolder(PathBuf);

impl MadeFolder {
    /// Makes the folder. Returns `None` if it exists already.
    pub(crate) fn make(path: &Path) -> io::Result<Option<MadeFolder>> {
        match fs::create_dir(path) {
            Ok(()) => Ok(Some(MadeFolder(path.to_owned()))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for MadeFolder {
    fn drop(&mut self) {
        // Fails if something is in it.
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn environment_names_the_folder() {
        let of = |value: Option<&str>| RunsFolder::of(value.map(OsString::from));
        let named = of(Some("/data/runs"));
        assert!(named.is_users && named.path == Path::new("/data/runs"));
        for unset in [None, Some("")] {
            let default = of(unset);
            assert!(!default.is_users && default.path == Path::new("streamgauge-runs"));
        }
    }

    #[test]
    fn newest_run_or_series_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let runs = RunsFolder::of(Some(folder.path().into()));
        assert!(runs.newest().is_err());
        let write = |name: &str, second| {
            let path = folder.path().join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).expect("it can be made");
            }
            let file = File::create(path).expect("it can be written");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            file.set_modified(time).expect("it can be set");
        };
        let newest = || runs.newest().ok()?.file_name()?.to_str().map(str::to_owned);
        write("a.run", 20);
        write("b.run", 10);
        write("notes.txt", 90);
        assert_eq!(newest().as_deref(), Some("a.run"));
        write("c.series/series.json", 30);
        assert_eq!(newest().as_deref(), Some("c.series"));
        write("b.run-wal", 40);
        assert_eq!(newest().as_deref(), Some("b.run"));
    }

    #[test]
    fn name_alone_is_looked_up_in_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let runs = RunsFolder::of(Some(folder.path().into()));
        File::create(folder.path().join("a.run")).expect("it can be written");
        assert_eq!(runs.find(Path::new("a.run")), folder.path().join("a.run"));
        for other in ["b.run", "./a.run", "x/a.run", "/a.run"] {
            assert_eq!(runs.find(Path::new(other)), Path::new(other));
        }
    }

    #[test]
    fn made_folder_is_removed_only_if_it_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("runs");
        drop(MadeFolder::make(&path));
        assert!(!path.exists());
        let made = MadeFolder::make(&path).expect("it can be made");
        assert!(made.is_some());
        assert!(MadeFolder::make(&path).is_ok_and(|again| again.is_none()));
        File::create(path.join("a.run")).expect("it can be written");
        drop(made);
        assert!(path.join("a.run").exists());
    }
}

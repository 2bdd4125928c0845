//! Servers that streamgauge knows how to start.
//!
//! An entry is data and one function that makes the command; adding one is adding a file here and a
//! line in [`entries`].

mod gstreamer;
mod vlc;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::SutError;
use crate::spec::Launch;

/// The user that servers run as which refuse to be root: `nobody`.
const NOBODY: u32 = 65534;

/// A server in the catalogue.
#[derive(Debug)]
pub struct Entry {
    /// Its name, as in `launch: NAME`.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// How it is started, what it serves and where.
    pub details: &'static str,
    /// The command that installs what it needs on Debian and Ubuntu.
    pub install: &'static str,
    /// The TCP port it listens on where nothing else is said.
    pub port: u16,
    build: fn(&Request<'_>) -> Result<Built, SutError>,
}

impl Entry {
    /// Makes the command, and the folder of files that it needs.
    pub(crate) fn build(
        &'static self,
        port: u16,
        clips: &[PathBuf],
        audio: bool,
    ) -> Result<Built, SutError> {
        (self.build)(&Request {
            entry: self,
            port,
            clips,
            audio,
        })
    }

    fn missing(&self, what: &str) -> SutError {
        SutError::Missing {
            what: what.to_owned(),
            remedy: self.install.to_owned(),
        }
    }
}

/// Every server there is.
pub fn entries() -> &'static [&'static Entry] {
    static ENTRIES: [&Entry; 2] = [&vlc::ENTRY, &gstreamer::ENTRY];
    &ENTRIES
}

/// The entry of that name.
///
/// # Errors
/// There is none; the error names those there are.
pub fn find(name: &str) -> Result<&'static Entry, SutError> {
    entries()
        .iter()
        .find(|entry| entry.name == name)
        .copied()
        .ok_or_else(|| SutError::UnknownServer {
            name: name.to_owned(),
            known: entries()
                .iter()
                .map(|entry| entry.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// What an entry makes its command from.
pub(crate) struct Request<'a> {
    entry: &'static Entry,
    port: u16,
    clips: &'a [PathBuf],
    audio: bool,
}

/// A command that is ready to start.
pub(crate) struct Built {
    pub(crate) launch: Launch,
    pub(crate) urls: Vec<String>,
    pub(crate) scratch: TempDir,
}

/// What to say where ffmpeg is needed and missing.
pub fn ffmpeg_missing() -> SutError {
    SutError::Missing {
        what: "ffmpeg".to_owned(),
        remedy: "apt-get install ffmpeg".to_owned(),
    }
}

/// Looks for a program as a shell would.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(runs)
}

/// A folder for a server's files, which every user may read.
fn scratch() -> Result<TempDir, SutError> {
    let own = std::env::temp_dir();
    let place = if may_enter(&own) {
        own
    } else {
        PathBuf::from("/tmp")
    };
    let scratch = tempfile::Builder::new()
        .prefix("streamgauge-")
        .tempdir_in(&place)
        .map_err(SutError::file("make a folder in", place))?;
    open_to_all(scratch.path(), 0o755)?;
    Ok(scratch)
}

fn open_to_all(path: &Path, mode: u32) -> Result<(), SutError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(SutError::file("open to all users", path))
}

/// Writes a file that every user may read.
fn write(path: &Path, text: &str) -> Result<(), SutError> {
    fs::write(path, text).map_err(SutError::file("write", path))?;
    open_to_all(path, 0o644)
}

/// A folder in `scratch` that `user` may write to.
fn home(scratch: &Path, user: Option<u32>) -> Result<PathBuf, SutError> {
    let home = scratch.join("home");
    fs::create_dir(&home).map_err(SutError::file("make", &home))?;
    if user.is_some() {
        chown(&home, user, user).map_err(SutError::file("give away", &home))?;
    }
    Ok(home)
}

/// Makes the clips appear in `scratch` as clip1.mp4 and so on, so that `user` can read them: as links,
/// or as copies where they lie in a folder that this user may not enter, such as root's home.
fn bring_clips(
    clips: &[PathBuf],
    scratch: &Path,
    user: Option<u32>,
) -> Result<Vec<PathBuf>, SutError> {
    let mut brought = Vec::new();
    for (number, clip) in (1..).zip(clips) {
        let path = scratch.join(format!("clip{number}.mp4"));
        let readable = user.is_none()
            || clip.parent().is_some_and(may_enter)
                && fs::metadata(clip).is_ok_and(|file| file.mode() & 0o004 != 0);
        let result: io::Result<()> = if readable {
            std::os::unix::fs::symlink(clip, &path)
        } else {
            fs::copy(clip, &path).map(|_| ())
        };
        result.map_err(SutError::file("bring a clip to", &path))?;
        if !readable {
            open_to_all(&path, 0o644)?;
        }
        brought.push(path);
    }
    Ok(brought)
}

/// Whether every user may go into the folder, through all those above it.
fn may_enter(folder: &Path) -> bool {
    fs::canonicalize(folder).is_ok_and(|folder| {
        folder
            .ancestors()
            .all(|path| fs::metadata(path).is_ok_and(|file| file.mode() & 0o001 != 0))
    })
}

/// Whom to run a server as that refuses to be root.
fn unprivileged() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(NOBODY)
}

/// The address a catalogue server is reached at.
fn url(port: u16, path: &str) -> String {
    format!("rtsp://127.0.0.1:{port}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        let mut names: Vec<_> = entries().iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), entries().len());
        for entry in entries() {
            assert!(entry.install.contains("install"), "{}", entry.name);
            assert!(!entry.summary.is_empty() && !entry.details.is_empty());
            assert_eq!(find(entry.name).unwrap().name, entry.name);
        }
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = find("vcl").unwrap_err().to_string();
        assert!(
            error.contains("vcl") && error.contains("vlc, gstreamer"),
            "{error}"
        );
    }

    #[test]
    fn clips_out_of_reach_are_copied() {
        let closed = tempfile::tempdir().unwrap();
        fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let clip = closed.path().join("c.mp4");
        fs::write(&clip, "x").unwrap();
        let scratch = scratch().unwrap();
        let brought =
            bring_clips(std::slice::from_ref(&clip), scratch.path(), Some(NOBODY)).unwrap();
        assert!(fs::symlink_metadata(&brought[0]).unwrap().is_file());
        fs::remove_file(&brought[0]).unwrap();
        let brought = bring_clips(&[clip], scratch.path(), None).unwrap();
        assert!(fs::symlink_metadata(&brought[0]).unwrap().is_symlink());
    }

    #[test]
    fn finds_programs() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program-at-all"), None);
    }
}

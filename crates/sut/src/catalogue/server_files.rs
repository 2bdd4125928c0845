//! Files of a server of the catalogue: its program, its own folder and its clips.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::SutError;
use crate::user::User;

/// Finds a program like a shell: in PATH if its name has no slash.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    find_program_for(name, None)
}

/// Finds a program that `user` may execute.
pub(super) fn find_program_for(name: &str, user: Option<&User>) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        is_program(path) && user.is_none_or(|user| user.may_execute(path).unwrap_or(false))
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(runs);
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(runs)
}

/// Returns `true` if a path is a file with an execute permission.
pub(crate) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Creates a folder for a server's files, which every user may read.
pub(crate) fn scratch() -> Result<TempDir, SutError> {
    let own = std::env::temp_dir();
    let parent = if may_enter(&own) {
        own
    } else {
        PathBuf::from("/tmp")
    };
    let scratch = tempfile::Builder::new()
        .prefix("streamgauge-")
        .tempdir_in(&parent)
        .map_err(SutError::file("create a folder in", parent))?;
    open_to_all(scratch.path(), 0o755)?;
    Ok(scratch)
}

/// Sets the permissions of a file or folder.
pub(crate) fn open_to_all(path: &Path, mode: u32) -> Result<(), SutError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(SutError::file("change the permissions of", path))
}

/// Writes a file that every user may read.
pub(super) fn write(path: &Path, text: &str) -> Result<(), SutError> {
    fs::write(path, text).map_err(SutError::file("write", path))?;
    open_to_all(path, 0o644)
}

/// Makes a file readable for `user` only.
pub(super) fn restrict_to(path: &Path, user: Option<&User>) -> Result<(), SutError> {
    if let Some(user) = user {
        chown(path, Some(user.number), Some(user.group))
            .map_err(SutError::file("change the owner of", path))?;
    }
    open_to_all(path, 0o600)
}

/// Returns a free port of the loopback interface and a random secret.
pub(super) fn admin() -> Result<(u16, String), SutError> {
    let failed = |error: io::Error| SutError::Supervisor(error.to_string());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let mut random = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(failed)?;
    let secret = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((port, secret))
}

/// Creates a folder in `scratch` that `user` may write to.
pub(crate) fn home(scratch: &Path, user: Option<&User>) -> Result<PathBuf, SutError> {
    let home = scratch.join("home");
    fs::create_dir(&home).map_err(SutError::file("create", &home))?;
    if let Some(user) = user {
        chown(&home, Some(user.number), Some(user.group))
            .map_err(SutError::file("change the owner of", &home))?;
    }
    Ok(home)
}

/// Provides the clips in `scratch` as clip1.mp4 and so on, so that `user` can read them: as
/// symbolic links, or as copies if they are in a folder that this user may not enter, such as
/// root's home.
pub(super) fn provide_clips(
    clips: &[PathBuf],
    scratch: &Path,
    user: Option<&User>,
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
        result.map_err(SutError::file("provide a clip at", &path))?;
        if !readable {
            open_to_all(&path, 0o644)?;
        }
        brought.push(path);
    }
    Ok(brought)
}

/// Returns `true` if every user may enter the folder, through all its ancestors.
fn may_enter(folder: &Path) -> bool {
    fs::canonicalize(folder).is_ok_and(|folder| {
        folder
            .ancestors()
            .all(|path| fs::metadata(path).is_ok_and(|file| file.mode() & 0o001 != 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_out_of_reach_are_copied() {
        let closed = tempfile::tempdir().unwrap();
        fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let clip = closed.path().join("c.mp4");
        fs::write(&clip, "x").unwrap();
        let scratch = scratch().unwrap();
        let nobody = User::find("65534").unwrap();
        let brought =
            provide_clips(std::slice::from_ref(&clip), scratch.path(), Some(&nobody)).unwrap();
        assert!(fs::symlink_metadata(&brought[0]).unwrap().is_file());
        fs::remove_file(&brought[0]).unwrap();
        let brought = provide_clips(&[clip], scratch.path(), None).unwrap();
        assert!(fs::symlink_metadata(&brought[0]).unwrap().is_symlink());
    }

    #[test]
    fn finds_programs() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("/bin/sh"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find_program("no-such-program-at-all"), None);
        assert_eq!(find_program("/etc/passwd"), None);
    }
}

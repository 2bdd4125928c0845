//! The program of a custom command: its path, and whether it exists.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use scenario::{Server, ServerStart};

use crate::catalogue;
use crate::error::SutError;

/// Name of this executable at the beginning of a command. It works from a checkout as well as after
/// installation.
const OWN: &str = "streamgauge";

/// Returns the program for the first word of a command: the path of this executable for [`OWN`],
/// else the word.
pub(crate) fn resolve_program(word: &OsStr) -> OsString {
    let own = || std::env::current_exe().ok().filter(|path| path.is_file());
    match word == OWN {
        // If the file has been removed, the program may still be in PATH.
        true => own().map_or_else(|| word.to_owned(), PathBuf::into_os_string),
        false => word.to_owned(),
    }
}

/// Checks that the program of a server to launch exists. Starts nothing but the probe of an entry
/// of the catalogue.
///
/// # Errors
/// If something is missing; the error says how to fix it.
pub fn check(server: &Server) -> Result<(), SutError> {
    match &server.start {
        ServerStart::Launch { name, .. } => catalogue::check(name, server.user.as_deref()),
        ServerStart::Command(words) => {
            let word = words.first().map_or("", String::as_str);
            let path = server.environment.get("PATH").map(OsString::from);
            let path = path.or_else(|| std::env::var_os("PATH"));
            let directory = server.directory.as_deref();
            let program = resolve_program(OsStr::new(word));
            match find(&program, directory, path.as_deref()) {
                Some(_) => Ok(()),
                None => Err(missing(word, directory)),
            }
        }
        ServerStart::Observe { .. }
        | ServerStart::Exporters { .. }
        | ServerStart::Observer { .. } => Ok(()),
    }
}

fn missing(word: &str, directory: Option<&Path>) -> SutError {
    let reason = match (word.contains('/'), directory) {
        (false, _) => "is not in PATH".to_owned(),
        (true, Some(directory)) if Path::new(word).is_relative() => {
            let directory = directory.display();
            format!("is not in {directory}, the working directory of the server")
        }
        (true, _) => "does not exist, or cannot be executed".to_owned(),
    };
    SutError::Unusable(format!(
        "`server.command` names the program `{word}`, which {reason}: install it, or write its path"
    ))
}

/// Finds a program like execvp(3) from the folder `directory` with the PATH `path`.
fn find(program: &OsStr, directory: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    let directory = directory.unwrap_or(Path::new(""));
    if Path::new(program).components().count() > 1 || program.as_encoded_bytes().contains(&b'/') {
        return Some(directory.join(program)).filter(|path| catalogue::is_program(path));
    }
    std::env::split_paths(path?)
        .map(|folder| directory.join(folder).join(program))
        .find(|path| catalogue::is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_name_means_this_executable() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(resolve_program(OsStr::new("streamgauge")), own);
        for other in ["./streamgauge", "streamgauge2", "vlc"] {
            assert_eq!(resolve_program(OsStr::new(other)), other);
        }
    }

    #[test]
    fn programs_are_found_like_execvp_does() {
        let found = |word: &str, directory: Option<&str>, path: &str| {
            let directory = directory.map(Path::new);
            find(OsStr::new(word), directory, Some(OsStr::new(path))).is_some()
        };
        assert!(found("sh", None, "/nowhere:/bin"));
        assert!(!found("sh", None, "/nowhere"));
        assert!(found("./sh", Some("/bin"), "/nowhere"));
        assert!(found("bin/sh", Some("/"), "/nowhere"));
        assert!(found("sh", Some("/"), "bin"));
        assert!(!found("/etc/passwd", None, "/bin"), "no program");
        assert!(!found("", None, "/bin"));
    }

    #[test]
    fn missing_program_error_tells_where_it_was_searched() {
        let message =
            |word, directory: Option<&str>| missing(word, directory.map(Path::new)).to_string();
        assert!(message("relayd", None).contains("`relayd`, which is not in PATH"));
        assert!(message("./relayd", Some("/srv")).contains("is not in /srv"));
        assert!(message("/relayd", Some("/srv")).contains("does not exist"));
    }
}

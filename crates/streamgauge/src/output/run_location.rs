//! Path of a run file or a series. It is chosen before anything starts, so that no server is
//! launched for a run that cannot be kept.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use report::io_reason;
use runfile::RunFile;
use runfile::series::{INDEX, Index};
use tempfile::TempDir;

use crate::args::{Results, TraceOptions};
use crate::exit::Failure;
use crate::output::ReportFormat;
use crate::output::runs_folder::{MadeFolder, RunsFolder};
use crate::ui::console::Console;

/// Bytes that must be writable in the folder of a run: less than its first second takes.
const PROBE_SIZE: usize = 64 << 10;

/// Kind of result that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultKind {
    /// A run, in a file.
    Run,
    /// A series of runs, in a folder.
    Series,
}

/// Path at which a run or a series is kept.
#[derive(Debug)]
pub(crate) struct RunLocation {
    /// The run file, or the folder of the series.
    pub(crate) path: PathBuf,
    /// True if an existing file or series at the path may be replaced.
    pub(crate) overwrite: bool,
    /// Folder of a run that is not kept. It exists until the run has been reported.
    temporary: Option<TempDir>,
    /// Folder that was made for this run. It disappears if no run begins.
    _made: Option<MadeFolder>,
    /// True if runs are added to an existing series.
    pub(crate) continued: bool,
}

impl ResultKind {
    fn extension(self) -> &'static str {
        match self {
            ResultKind::Run => "run",
            ResultKind::Series => "series",
        }
    }
}

impl RunLocation {
    /// Returns a path at which nothing exists yet.
    fn new(path: PathBuf) -> RunLocation {
        RunLocation {
            path,
            overwrite: false,
            temporary: None,
            _made: None,
            continued: false,
        }
    }

    /// Chooses the path that the arguments name, or one in the folder of runs, and checks that it
    /// can be written. If the user named neither and the current folder cannot be written, the run
    /// continues and is not kept.
    ///
    /// # Errors
    /// A message for people that says what to do.
    pub(crate) fn choose(
        kind: ResultKind,
        name: &str,
        results: &Results,
        tracing: &TraceOptions,
        console: Console,
    ) -> Result<RunLocation, Failure> {
        if results.no_run_file {
            return RunLocation::temporary(kind);
        }
        let Some(out) = &results.out else {
            return RunLocation::in_runs_folder(kind, name, tracing, console);
        };
        if out.as_os_str() == "-" {
            return Err(Failure::bad(
                "-o -: a run file is a database and cannot go to standard output; name a file, or write the JSON \
                 report there with `--json -`",
            ));
        }
        for (form, path) in ReportFormat::all(&results.reports) {
            if path == out {
                return Err(Failure::bad(format_args!(
                    "{}: the run file and the {} report cannot be the same file; name another one \
                     with `-o`",
                    out.display(),
                    form.name()
                )));
            }
        }
        let is_series = kind == ResultKind::Series && out.join(INDEX).exists();
        if (out.is_dir() || out.as_os_str().as_bytes().ends_with(b"/")) && !is_series {
            return RunLocation::at(kind, name, out).map_err(|error| unusable(out, &error));
        }
        let place = RunLocation {
            overwrite: results.force || is_empty_file(out),
            ..RunLocation::new(out.clone())
        };
        match kind {
            ResultKind::Run => place.check_file(tracing),
            ResultKind::Series => place.check_folder(is_series),
        }?;
        Ok(place)
    }

    /// Returns the location of a run that goes on: its run file is replaced.
    pub(crate) fn of_unfinished(path: &Path) -> RunLocation {
        RunLocation {
            overwrite: true,
            continued: true,
            ..RunLocation::new(path.to_owned())
        }
    }

    /// Returns the location of a series to which runs are added.
    pub(crate) fn of_existing(folder: &Path) -> Result<RunLocation, Failure> {
        probe(folder).map_err(|error| unusable(folder, &error))?;
        Ok(RunLocation {
            continued: true,
            ..RunLocation::new(folder.to_owned())
        })
    }

    /// Returns `true` if the run still exists after the command.
    pub(crate) fn is_kept(&self) -> bool {
        self.temporary.is_none()
    }

    fn temporary(kind: ResultKind) -> Result<RunLocation, Failure> {
        let refused = |error: io::Error| {
            Failure::bad(format_args!(
                "{}: cannot create a folder for the run there: {}; name another one with `-o`, or with the environment \
                 variable TMPDIR",
                std::env::temp_dir().display(),
                io_reason(&error)
            ))
        };
        let folder = tempfile::Builder::new()
            .prefix("streamgauge-")
            .tempdir()
            .map_err(refused)?;
        probe(folder.path()).map_err(refused)?;
        let name = format!("it.{}", kind.extension());
        let path = folder.path().join(name);
        Ok(RunLocation {
            temporary: Some(folder),
            ..RunLocation::new(path)
        })
    }

    fn in_runs_folder(
        kind: ResultKind,
        name: &str,
        tracing: &TraceOptions,
        console: Console,
    ) -> Result<RunLocation, Failure> {
        let folder = RunsFolder::of_environment();
        let error = match RunLocation::at(kind, name, &folder.path) {
            Ok(location) => return Ok(location),
            Err(error) if folder.is_users => return Err(unusable(&folder.path, &error)),
            Err(error) => error,
        };
        let (folder, why) = (folder.path.display(), io_reason(&error));
        if !tracing.trace.is_empty() {
            return Err(Failure::bad(format_args!(
                "{folder}: this folder cannot be written, and traces are kept next to the run file: {why}; name \
                 another place with `-o`"
            )));
        }
        console.say(&format!(
            "warning: no run file is kept, because the folder {folder} cannot be written: {why}; name another with `-o`"
        ));
        RunLocation::temporary(kind)
    }

    /// Returns an unused path in a folder, which is created if it is missing.
    fn at(kind: ResultKind, name: &str, folder: &Path) -> io::Result<RunLocation> {
        let made = MadeFolder::make(folder)?;
        probe(folder)?;
        Ok(RunLocation {
            _made: made,
            ..RunLocation::new(unused_path(folder, name, kind))
        })
    }

    fn check_file(&self, tracing: &TraceOptions) -> Result<(), Failure> {
        RunFile::check(&self.path, self.overwrite).map_err(Failure::bad)?;
        let folder = folder_of(&self.path);
        probe(folder).map_err(|error| unusable(folder, &error))?;
        if self.overwrite || tracing.trace.is_empty() {
            return Ok(());
        }
        let name = self.path.file_name().unwrap_or_default();
        let is_trace = |other: &OsStr| {
            let rest = other.as_bytes().strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b".") && rest.ends_with(b".pcapng"))
        };
        let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
        match entries.find(|entry| is_trace(&entry.file_name())) {
            Some(trace) => Err(Failure::bad(format_args!(
                "{}: a trace already exists; add `--force` to replace it, or name another run file with `-o`",
                self.path.with_file_name(trace.file_name()).display()
            ))),
            None => Ok(()),
        }
    }

    fn check_folder(&self, is_series: bool) -> Result<(), Failure> {
        let path = self.path.display();
        if !is_series && self.path.symlink_metadata().is_ok() {
            return Err(Failure::bad(format_args!(
                "{path}: this is not a folder, but a series is kept in one; name a folder with `-o`"
            )));
        }
        if is_series {
            if !self.overwrite {
                return Err(Failure::bad(format_args!(
                    "{path}: a series already exists; add `--force` to replace it, or name another folder with `-o`"
                )));
            }
            for run in Index::read(&self.path).map_err(Failure::bad)?.runs {
                RunFile::check(&self.path.join(run.file), true).map_err(Failure::bad)?;
            }
        }
        let folder = match is_series {
            true => &self.path,
            false => folder_of(&self.path),
        };
        probe(folder).map_err(|error| unusable(folder, &error))
    }
}

/// Returns the folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Returns `true` if the path is an empty file, such as `mktemp` makes. Replacing it loses nothing.
fn is_empty_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
}

/// Checks that a file can be created in a folder and written.
fn probe(folder: &Path) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".streamgauge-")
        .tempfile_in(folder)?;
    file.write_all(&[0; PROBE_SIZE])
}

fn unusable(folder: &Path, error: &io::Error) -> Failure {
    let folder = folder.display();
    if error.kind() == io::ErrorKind::NotFound {
        return Failure::bad(format_args!(
            "{folder}: there is no such folder to keep the run in; create it, or name another place with `-o`"
        ));
    }
    Failure::bad(format_args!(
        "{folder}: the run cannot be kept in this folder: {}; name another place with `-o`",
        io_reason(error)
    ))
}

/// Returns an unused path in a folder: `streamgauge-NAME-TIME.run`, or `.series`.
fn unused_path(folder: &Path, name: &str, kind: ResultKind) -> PathBuf {
    let extension = kind.extension();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let stem = format!("streamgauge-{}-{}", slug(name), report::time::compact(now));
    let first = format!("{stem}.{extension}");
    let numbered = (2..).map(|number: u32| format!("{stem}-{number}.{extension}"));
    std::iter::once(first.clone())
        .chain(numbered)
        .map(|name| folder.join(name))
        .find(|path| !path.exists())
        .unwrap_or_else(|| folder.join(first))
}

/// Converts a name to a part of a file name: letters, digits and single dashes, at most 40
/// characters.
pub(crate) fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= 40 {
            break;
        }
    }
    match slug.trim_end_matches('-') {
        "" => "run".to_owned(),
        slug => slug.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_safe_file_names() {
        assert_eq!(
            slug("VLC on demand, everybody at once"),
            "vlc-on-demand-everybody-at-once"
        );
        assert_eq!(slug("../../etc/passwd"), "etc-passwd");
        assert_eq!(slug("---"), "run");
        assert!(slug(&"x".repeat(500)).len() <= 40);
    }
}

//! Files that the user asked for: a place that cannot be written is said before a run, not after it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::exit::Failure;

/// Where the JSON report goes.
pub(crate) enum Json {
    /// To standard output.
    Stdout,
    /// To a file.
    File(Claim),
}

/// A file that can be written, though nothing has been written yet.
pub(crate) struct Claim {
    path: PathBuf,
    /// We made it, and there is nothing in it: it goes again if it is not used.
    empty: bool,
}

impl Json {
    /// Sees to it that `path` can be written; `-` is standard output.
    pub(crate) fn claim(path: &Path) -> Result<Json, Failure> {
        if path == Path::new("-") {
            return Ok(Json::Stdout);
        }
        let empty = !path.exists();
        match OpenOptions::new().append(true).create(true).open(path) {
            Ok(_) => Ok(Json::File(Claim {
                path: path.to_owned(),
                empty,
            })),
            Err(error) => Err(refused(path, &error)),
        }
    }

    /// Whether it takes standard output, so that nothing else may be written there.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Json::Stdout)
    }

    /// Writes it.
    pub(crate) fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), report::ReportError>,
    ) -> Result<(), Failure> {
        match self {
            Json::Stdout => {
                let mut out = BufWriter::new(io::stdout().lock());
                match write(&mut out) {
                    // The reader has what it wanted.
                    Err(report::ReportError::Write(error))
                        if error.kind() == io::ErrorKind::BrokenPipe =>
                    {
                        Ok(())
                    }
                    other => other.map_err(Failure::bad),
                }
            }
            Json::File(mut claim) => {
                let file =
                    File::create(&claim.path).map_err(|error| refused(&claim.path, &error))?;
                claim.empty = false;
                let mut out = BufWriter::new(file);
                write(&mut out).map_err(|error| match error {
                    report::ReportError::Write(error) => refused(&claim.path, &error),
                    other => Failure::bad(other),
                })
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.empty {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::bad(format_args!("cannot write {}: {error}", path.display()))
}

/// A path for a run file in this folder that nothing stands at: `streamgauge-NAME-TIME.run`.
pub(crate) fn run_file(name: &str) -> PathBuf {
    free(name, "run")
}

/// A path for the folder of a series that nothing stands at: `streamgauge-NAME-TIME.series`.
pub(crate) fn series_folder(name: &str) -> PathBuf {
    free(name, "series")
}

fn free(name: &str, extension: &str) -> PathBuf {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let stem = format!("streamgauge-{}-{}", slug(name), report::time::compact(now));
    let numbered = (2..).map(|number: u32| format!("{stem}-{number}.{extension}"));
    std::iter::once(format!("{stem}.{extension}"))
        .chain(numbered)
        .map(PathBuf::from)
        .find(|path| !path.exists())
        .unwrap_or_else(|| PathBuf::from(format!("{stem}.{extension}")))
}

/// The name, fit for the name of a file: letters, digits and single dashes, not too long.
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
    fn names_become_names_of_files() {
        assert_eq!(
            slug("VLC on demand, everybody at once"),
            "vlc-on-demand-everybody-at-once"
        );
        assert_eq!(slug("../../etc/passwd"), "etc-passwd");
        assert_eq!(slug("---"), "run");
        assert!(slug(&"x".repeat(500)).len() <= 40);
    }
}

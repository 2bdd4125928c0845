//! Files that the user asked for: a place that cannot be written is said before a run, not after it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use report::io_reason;

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
                    Err(report::ReportError::Write(error)) => Err(Failure::bad(format_args!(
                        "cannot write to standard output: {}; send it to another place",
                        io_reason(&error)
                    ))),
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
    Failure::bad(format_args!(
        "{}: the report cannot be written: {}; name another place with `--json`",
        path.display(),
        io_reason(error)
    ))
}

//! Folder for the tables of a run, which `--csv` names.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use report::csv::{TABLES, Table, TableWriter};
use report::{ReportError, io_reason};

use crate::exit::Failure;
use crate::output::overwrite::{Force, is_replaceable};

/// A folder to which the tables can be written.
pub(crate) struct CsvFolder {
    path: PathBuf,
    /// True if this process created the folder. It is removed if it is not used.
    created: bool,
}

impl CsvFolder {
    /// Creates the folder if it is missing. A file that has the name of a table but is not a table
    /// of streamgauge is not replaced.
    pub(crate) fn claim(path: &Path, force: Force) -> Result<CsvFolder, Failure> {
        let created = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => false,
            Err(error) => return Err(refused(path, &error)),
        };
        let folder = CsvFolder {
            path: path.to_owned(),
            created,
        };
        for table in TABLES {
            let file = path.join(table.file);
            // The table of runs has further columns.
            let head = table.head();
            let head = head.trim_end().as_bytes();
            let is_table = |begins: &[u8]| begins == head;
            if force != Force::Given && !is_replaceable(&file, head.len(), is_table) {
                return Err(Failure::bad(format_args!(
                    "{} is not a table of streamgauge, so it is not replaced: name another folder \
                     with `--csv`",
                    file.display()
                )));
            }
        }
        // Whether files can be created in the folder is checked before the run.
        tempfile::tempfile_in(path).map_err(|error| refused(path, &error))?;
        Ok(folder)
    }

    /// Writes the tables.
    pub(crate) fn write(
        mut self,
        add: impl FnOnce(&mut TableWriter<BufWriter<File>>) -> Result<(), ReportError>,
    ) -> Result<(), Failure> {
        self.created = false;
        let written = (|| {
            let open = |table: Table| File::create(self.path.join(table.file)).map(BufWriter::new);
            let mut tables = TableWriter::begin(open)?;
            add(&mut tables)?;
            Ok(tables.end()?)
        })();
        written.map_err(|error| match error {
            ReportError::Write(error) => refused(&self.path, &error),
            other => Failure::bad(other),
        })
    }
}

impl Drop for CsvFolder {
    fn drop(&mut self) {
        if self.created {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::bad(format_args!(
        "{}: tables cannot be written there: {}; name another folder with `--csv`",
        path.display(),
        io_reason(error)
    ))
}

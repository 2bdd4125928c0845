//! Folder of a series.

use std::fs;
use std::io;
use std::path::Path;

use report::io_reason;
use runfile::series::{INDEX, Index, IndexError};

use crate::exit::Failure;
use crate::output::run_location::slug;

/// Creates the folder. An existing series in it is removed; other files stay.
///
/// # Errors
/// The folder cannot be created or cleared. The message says what to do.
pub(super) fn make(path: &Path) -> Result<(), Failure> {
    let refused = |error: io::Error| {
        Failure::bad(format_args!(
            "{}: the folder for the series cannot be created: {}; name another place with `-o`",
            path.display(),
            io_reason(&error)
        ))
    };
    match Index::read(path) {
        Ok(index) => remove_old_files(path, &index),
        Err(IndexError::Missing { .. }) => fs::create_dir_all(path).map_err(refused),
        Err(error) => Err(Failure::bad(error)),
    }
}

/// Returns `true` if the folder has nothing but the index: no run has begun.
pub(super) fn is_without_runs(path: &Path) -> bool {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names == [INDEX]
}

/// Removes a folder that has nothing but the index.
pub(super) fn remove_without_runs(path: &Path) {
    if is_without_runs(path) {
        // Errors are ignored: a leftover index only lists runs that could not begin.
        let _ = fs::remove_file(path.join(INDEX)).and_then(|()| fs::remove_dir(path));
    }
}

fn remove_old_files(folder: &Path, index: &Index) -> Result<(), Failure> {
    // A killed run leaves these files next to its run file; they belong to it.
    let files = index.runs.iter().flat_map(|run| {
        ["", "-wal", "-shm"].map(|suffix| folder.join(format!("{}{suffix}", run.file)))
    });
    for path in files.chain([folder.join(INDEX)]) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::bad(format_args!(
                    "{}: this part of the old series cannot be replaced: {}; name another folder with `-o`",
                    path.display(),
                    io_reason(&error)
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the file name of a run: its number, counted from 1, and its values.
pub(super) fn run_file(run: usize, runs: usize, values: &[String]) -> String {
    let digits = runs.to_string().len();
    let values = slug(&values.join(" "));
    format!("{:0digits$}-{values}.run", run + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_order_of_the_runs() {
        let values = ["udp".to_owned(), "50".to_owned()];
        assert_eq!(run_file(0, 12, &values), "01-udp-50.run");
        assert_eq!(run_file(9, 10, &["../x".to_owned()]), "10-x.run");
    }

    #[test]
    fn replacing_a_series_removes_only_its_own_files() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("a.series");
        assert!(make(&path).is_ok(), "it is made");
        fs::write(path.join("notes.txt"), "mine").expect("it can be written");
        let index = Index {
            index_version: 1,
            streamgauge: String::new(),
            name: String::new(),
            started_at: 0.0,
            settle: 0.0,
            varied: Vec::new(),
            find: None,
            capacity: None,
            min_effect: None,
            runs: Vec::new(),
            ended: true,
        };
        index.write(&path).expect("it can be written");
        assert!(make(&path).is_ok(), "it is a series");
        assert!(!path.join(INDEX).exists());
        assert!(path.join("notes.txt").exists());
        // The folder goes only if nothing else is in it.
        index.write(&path).expect("it can be written");
        remove_without_runs(&path);
        assert!(path.join(INDEX).exists());
        fs::remove_file(path.join("notes.txt")).expect("it is there");
        remove_without_runs(&path);
        assert!(!path.exists());
    }
}

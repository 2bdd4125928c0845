//! The folder of a series.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runfile::series::{INDEX, Index, IndexError};

use crate::exit::Failure;
use crate::output::{series_folder, slug};

/// Makes the folder: the one that was asked for, or one that nothing stands at. A series that is there already
/// is replaced if it was asked for by name; anything else is left alone.
pub(super) fn make(name: &str, asked_for: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = match asked_for {
        Some(path) => path.to_owned(),
        None => series_folder(name),
    };
    let refused = |error: &io::Error| {
        Failure::bad(format_args!(
            "the folder {} cannot be made: {error}",
            path.display()
        ))
    };
    if asked_for.is_some() && path.exists() {
        empty(&path)?;
    } else {
        fs::create_dir_all(&path).map_err(|error| refused(&error))?;
    }
    Ok(path)
}

/// Takes away the series that a folder holds. What else is in it stays.
fn empty(folder: &Path) -> Result<(), Failure> {
    let foreign = |what: &str| {
        Failure::bad(format_args!(
            "{} {what}: it is not overwritten; name another folder for the series",
            folder.display()
        ))
    };
    let entries = fs::read_dir(folder).map_err(|_| foreign("is no folder that can be read"))?;
    let index = match Index::read(folder) {
        Ok(index) => index,
        Err(IndexError::Missing { .. }) if entries.count() == 0 => return Ok(()),
        Err(IndexError::Missing { .. }) => {
            return Err(foreign("holds something else than a series"));
        }
        Err(error) => return Err(Failure::bad(error)),
    };
    // What a killed run leaves beside its file belongs to it.
    let files = index.runs.iter().flat_map(|run| {
        ["", "-wal", "-shm"].map(|suffix| folder.join(format!("{}{suffix}", run.file)))
    });
    for path in files.chain([folder.join(INDEX)]) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::bad(format_args!(
                    "{} cannot be replaced: {error}",
                    path.display()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The name of a run's file: its number, counted from 1, and its values.
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
    fn only_a_series_is_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("a.series");
        assert!(make("a", Some(&path)).is_ok(), "it is made");
        assert!(make("a", Some(&path)).is_ok(), "it is empty");
        fs::write(path.join("notes.txt"), "mine").expect("it can be written");
        assert!(make("a", Some(&path)).is_err(), "it holds something else");
        let index = Index {
            index_version: 1,
            streamgauge: String::new(),
            name: String::new(),
            started_at: 0.0,
            settle: 0.0,
            varied: Vec::new(),
            runs: Vec::new(),
            ended: true,
        };
        index.write(&path).expect("it can be written");
        assert!(make("a", Some(&path)).is_ok(), "it is a series");
        assert!(!path.join(INDEX).exists());
        assert!(path.join("notes.txt").exists());
    }
}

//! The index of a series: which runs there are in a folder, and how each came out.
//!
//! A series is a folder of run files and this one JSON file, [`INDEX`]. It is written before the
//! first run and again whenever a run begins or ends, always as a whole, so that a kill loses
//! nothing. What a run saw is in its run file alone; the index holds the order, and the runs that
//! have no run file.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::io_reason;

/// The name of the index in the folder.
pub const INDEX: &str = "series.json";

/// The version of the index's format. It grows when a name goes away or changes its meaning.
pub const INDEX_VERSION: u32 = 1;

/// The largest index that is read.
const LARGEST: u64 = 16 << 20;

/// What is known of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// The version of this format.
    pub index_version: u32,
    /// The version of streamgauge that made it.
    pub streamgauge: String,
    /// The scenario's name.
    pub name: String,
    /// When it began, in seconds since 1970.
    pub started_at: f64,
    /// The time between two runs, in seconds.
    pub settle: f64,
    /// What is varied, the slowest first.
    pub varied: Vec<Axis>,
    /// The key of which the first value was looked for with which a run passes. Then there are only
    /// the runs that were needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub find: Option<String>,
    /// Every run, in order.
    pub runs: Vec<Entry>,
    /// Whether the series came to its end: all its runs, or as the scenario or the user ended it.
    pub ended: bool,
}

/// What the index of any version has.
#[derive(Deserialize)]
struct Versioned {
    index_version: u32,
}

/// A key that is varied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// The dotted key of the scenario.
    pub key: String,
    /// Its values as they are shown, in order.
    pub values: Vec<String>,
}

/// A run of a series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The value of each key that is varied, in the order of the keys.
    pub values: Vec<String>,
    /// The name of its run file in the folder.
    pub file: String,
    /// How it stands.
    pub outcome: EntryOutcome,
    /// Why, of a run that could not begin.
    pub reason: Option<String>,
}

/// How a run of a series stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryOutcome {
    /// It has not had its turn; of a series that has ended, it never will.
    Planned,
    /// It has begun. If nothing writes any more, it was cut off.
    Running,
    /// Every threshold held.
    Pass,
    /// A threshold failed.
    Fail,
    /// The measurement cannot be trusted.
    Invalid,
    /// The user stopped it before its planned end.
    Stopped,
    /// It could not begin.
    NotBegun,
}

/// Why an index could not be read or written. Each message names the folder or the file, and says
/// what to do.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// There is none.
    #[error(
        "{}: no series is in this folder, neither its index `series.json` nor a run file of one; name a run file, or a \
         folder that `run` has made of a scenario with `vary`", .folder.display()
    )]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// It is not to be read.
    #[error(
        "{}: the index of the series cannot be read: {why}; take it out of the folder, and the table is made from the \
         run files alone", .path.display()
    )]
    Read {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It was made by a newer streamgauge.
    #[error(
        "{}: the index of the series has version {version} of the format, and this streamgauge reads up to \
         {INDEX_VERSION}; use a newer streamgauge", .path.display()
    )]
    Newer {
        /// Where.
        path: PathBuf,
        /// The index's version.
        version: u32,
    },
    /// It could not be written.
    #[error(
        "{}: the index of the series cannot be written: {why}; name another place with `-o`", .path.display()
    )]
    Write {
        /// Where.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
}

impl Index {
    /// Reads the index of the series in `folder`.
    ///
    /// # Errors
    /// Where there is none, or one that makes no sense: no file outside of the folder is ever
    /// named.
    pub fn read(folder: &Path) -> Result<Index, IndexError> {
        let path = folder.join(INDEX);
        let wrong = |why: String| IndexError::Read {
            path: path.clone(),
            why,
        };
        // Asked first: a pipe that nobody writes to would be opened for ever.
        match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_file() => {
                return Err(wrong("it is no regular file".to_owned()));
            }
            _ => {}
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(IndexError::Missing {
                    folder: folder.to_owned(),
                });
            }
            Err(error) => return Err(wrong(io_reason(&error))),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| wrong(io_reason(&error)))?;
        if bytes.len() as u64 > LARGEST {
            return Err(wrong("it is larger than 16 MiB".to_owned()));
        }
        let unsound = |error: serde_json::Error| wrong(format!("it is damaged ({error})"));
        // Asked first: what else is in one of a later version is not known.
        let Versioned { index_version } = serde_json::from_slice(&bytes).map_err(unsound)?;
        if index_version > INDEX_VERSION {
            return Err(IndexError::Newer {
                path,
                version: index_version,
            });
        }
        let index: Index = serde_json::from_slice(&bytes).map_err(unsound)?;
        for run in &index.runs {
            if !is_plain(&run.file) {
                return Err(wrong(format!("`{}` is no name of a run file", run.file)));
            }
            if run.values.len() != index.varied.len() {
                return Err(wrong(format!(
                    "`{}` has not one value for each key",
                    run.file
                )));
            }
        }
        Ok(index)
    }

    /// Writes it, as a whole or not at all.
    ///
    /// # Errors
    /// What the system said.
    pub fn write(&self, folder: &Path) -> Result<(), IndexError> {
        let path = folder.join(INDEX);
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(".series-")
                .tempfile_in(folder)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            // Others may read it, as they may a run file.
            let mode = fs::metadata(folder)?.permissions();
            let mode = std::os::unix::fs::PermissionsExt::mode(&mode) & 0o666;
            fs::set_permissions(
                file.path(),
                std::os::unix::fs::PermissionsExt::from_mode(mode),
            )?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|error| IndexError::Write {
            path: path.clone(),
            why: io_reason(&error),
        })
    }
}

/// Whether it names a run file in the folder, and nothing elsewhere.
fn is_plain(name: &str) -> bool {
    name.ends_with(".run") && !name.contains(['/', '\0']) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        Index {
            index_version: INDEX_VERSION,
            streamgauge: "0.1.0".to_owned(),
            name: "a".to_owned(),
            started_at: 1.5,
            settle: 5.0,
            varied: vec![Axis {
                key: "duration".to_owned(),
                values: vec!["5s".to_owned()],
            }],
            find: None,
            runs: vec![Entry {
                values: vec!["5s".to_owned()],
                file: "01.run".to_owned(),
                outcome: EntryOutcome::NotBegun,
                reason: Some("no".to_owned()),
            }],
            ended: false,
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        assert!(matches!(
            Index::read(folder.path()),
            Err(IndexError::Missing { .. })
        ));
        index().write(folder.path()).expect("it can be written");
        index().write(folder.path()).expect("and again");
        assert_eq!(Index::read(folder.path()).expect("it is good"), index());
        let names = fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(names, 1, "nothing stays beside it");
    }

    #[test]
    fn an_index_that_makes_no_sense_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let changed: [fn(&mut Index); 5] = [
            |index| index.runs[0].file = "../01.run".to_owned(),
            |index| index.runs[0].file = "/01.run".to_owned(),
            |index| index.runs[0].file = "01.txt".to_owned(),
            |index| index.runs[0].values.clear(),
            |index| index.index_version = 2,
        ];
        for change in changed {
            let mut bad = index();
            change(&mut bad);
            bad.write(folder.path()).expect("it can be written");
            let error = Index::read(folder.path()).expect_err("it makes no sense");
            assert!(error.to_string().contains(INDEX), "{error}");
        }
        fs::write(folder.path().join(INDEX), "{").expect("it can be written");
        assert!(Index::read(folder.path()).is_err());
    }

    #[test]
    fn a_pipe_in_place_of_the_index_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let made = std::process::Command::new("mkfifo")
            .arg(folder.path().join(INDEX))
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "mkfifo is everywhere"
        );
        let error = Index::read(folder.path()).expect_err("it is no file");
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
}

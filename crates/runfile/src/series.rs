//! Index of a series: the runs in a folder, and the outcome of each.
//!
//! A series is a folder of run files and one JSON file, [`INDEX`]. The index is written before the
//! first run and whenever a run begins or ends, always as a whole, so that a kill loses nothing.
//! The measurements of a run are in its run file only. The index holds the order of the runs, and
//! the runs without a run file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use measure::capacity::{End, Scale, Settings, TRIALS_MAX, Trial};
use serde::{Deserialize, Serialize};

use crate::error::io_reason;

/// File name of the index in the folder.
pub const INDEX: &str = "series.json";

/// Key of two compared variants.
pub const COMPARE: &str = "compare";

/// Version of the index format. It increases when a key is removed or changes its meaning.
pub const INDEX_VERSION: u32 = 1;

/// Maximum size of an index that is read, in bytes.
const INDEX_BYTES_MAX: u64 = 16 << 20;

/// Largest load of a trial, and largest power of ten of a scale.
const LOAD_MAX: u64 = 1_000_000_000_000_000;
const EXPONENT_MAX: i32 = 18;

/// Index of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// Version of this format.
    pub index_version: u32,
    /// Version of streamgauge that wrote the index.
    pub streamgauge: String,
    /// Name of the scenario.
    pub name: String,
    /// Start of the series, in seconds since 1970.
    pub started_at: f64,
    /// Pause between two runs, in seconds.
    pub settle: f64,
    /// Varied keys, the one that changes most slowly first.
    pub varied: Vec<Axis>,
    /// Key whose first passing value was searched for. The index then has only the runs that the
    /// search needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub find: Option<String>,
    /// Goal of a capacity search. The runs are then its trials, and the last of the varied keys is
    /// the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityGoal>,
    /// Smallest relative difference that counts between two variants. The last of the varied keys
    /// is then [`COMPARE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_effect: Option<f64>,
    /// All runs, in order.
    pub runs: Vec<Entry>,
    /// `true` if the series ended: after all its runs, or earlier by the scenario or the user.
    pub ended: bool,
}

/// Field that the index of every version has.
#[derive(Deserialize)]
struct IndexVersion {
    index_version: u32,
}

/// Goal of a capacity search: one search for each combination of the other varied keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityGoal {
    /// Dotted key of the load.
    pub key: String,
    /// Scale of the loads.
    pub scale: Scale,
    /// Goals and limits of each search.
    pub settings: Settings,
    /// The scenario without the load, its duration and its seed. Trials of another scenario cannot
    /// be added.
    pub scenario: serde_json::Value,
    /// Searches that have ended.
    pub ended: Vec<EndedSearch>,
}

/// End of a capacity search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedSearch {
    /// Combination of the other varied values, counted from 0.
    pub combination: usize,
    /// Reason for the end.
    pub end: End,
}

/// A trial of a capacity search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialEntry {
    /// Combination of the other varied values, counted from 0.
    pub combination: usize,
    /// The trial, as the search recorded it.
    #[serde(flatten)]
    pub trial: Trial,
    /// Description of the metric that got worse during the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worsened: Option<String>,
}

/// A varied key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Dotted key in the scenario.
    pub key: String,
    /// Values as displayed, in order.
    pub values: Vec<String>,
}

/// A run of a series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Value of each varied key, in the order of the keys.
    pub values: Vec<String>,
    /// Name of the run file in the folder.
    pub file: String,
    /// State or outcome of the run.
    pub outcome: EntryOutcome,
    /// Reason why the run could not begin.
    pub reason: Option<String>,
    /// The run as a trial of a capacity search, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialEntry>,
}

/// State or outcome of a run of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryOutcome {
    /// The run has not begun; if the series has ended, it never will.
    Planned,
    /// The run has begun. If nothing writes to its file any more, it was cut off.
    Running,
    /// Every threshold held.
    Pass,
    /// A threshold failed.
    Fail,
    /// The measurement cannot be trusted.
    Invalid,
    /// The user stopped it before its planned end.
    Stopped,
    /// The run could not begin.
    NotBegun,
}

/// Error of reading or writing an index. Each message names the folder or the file and says what to
/// do.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error(
        "{}: there is no series in this folder: neither the index `series.json` nor a run file of a series; name a run file, or a \
         folder that `run` created from a scenario with `vary`", .folder.display()
    )]
    Missing { folder: PathBuf },
    /// The index cannot be read or is inconsistent.
    #[error(
        "{}: the index of the series cannot be read: {why}; remove it from the folder to make the table from the \
         run files alone", .path.display()
    )]
    Read { path: PathBuf, why: String },
    /// A newer streamgauge wrote the index.
    #[error(
        "{}: the index of the series has format version {version}, and this streamgauge reads versions up to \
         {INDEX_VERSION}; use a newer streamgauge", .path.display()
    )]
    Newer { path: PathBuf, version: u32 },
    #[error(
        "{}: the index of the series cannot be written: {why}; name another place with `-o`", .path.display()
    )]
    Write { path: PathBuf, why: String },
}

impl Index {
    /// Returns the names of the two compared variants, the first one first.
    pub fn variants(&self) -> Option<[String; 2]> {
        let axis = self.varied.iter().find(|axis| axis.key == COMPARE)?;
        <[String; 2]>::try_from(axis.values.clone()).ok()
    }

    /// Reads the index of the series in `folder`.
    ///
    /// # Errors
    /// Fails if the index is missing, unreadable or inconsistent. An index that names a file
    /// outside the folder is inconsistent.
    pub fn read(folder: &Path) -> Result<Index, IndexError> {
        let path = folder.join(INDEX);
        let wrong = |why: String| IndexError::Read {
            path: path.clone(),
            why,
        };
        // Checked first: opening a pipe without a writer would block forever.
        match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_file() => {
                return Err(wrong("it is not a regular file".to_owned()));
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
        file.take(INDEX_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| wrong(io_reason(&error)))?;
        if bytes.len() as u64 > INDEX_BYTES_MAX {
            return Err(wrong("it is larger than 16 MiB".to_owned()));
        }
        let unsound = |error: serde_json::Error| wrong(format!("it is damaged ({error})"));
        // Checked first: the other fields of a later version are unknown.
        let IndexVersion { index_version } = serde_json::from_slice(&bytes).map_err(unsound)?;
        if index_version > INDEX_VERSION {
            return Err(IndexError::Newer {
                path,
                version: index_version,
            });
        }
        let index: Index = serde_json::from_slice(&bytes).map_err(unsound)?;
        match index.fault() {
            Some(fault) => Err(wrong(fault)),
            None => Ok(index),
        }
    }

    /// Describes what is inconsistent in the index, if anything.
    fn fault(&self) -> Option<String> {
        for Entry { file, values, .. } in &self.runs {
            if !is_run_file_name(file) {
                return Some(format!("`{file}` is not the name of a run file"));
            }
            if values.len() != self.varied.len() {
                return Some(format!("`{file}` does not have one value for each key"));
            }
        }
        if !self.min_effect.is_none_or(is_share) {
            return Some("its smallest effect that counts is no share".to_owned());
        }
        let is_possible = self.is_possible_search();
        (!is_possible).then(|| "it describes an impossible search".to_owned())
    }

    /// Returns `false` if loads, shares or the scale of the search are out of range.
    fn is_possible_search(&self) -> bool {
        let trials = self.runs.iter().filter_map(|run| run.trial.as_ref());
        let loads = trials.flat_map(|entry| [Some(entry.trial.load), entry.trial.served]);
        let are_loads = loads.flatten().all(|load| load <= LOAD_MAX);
        let Some(CapacityGoal {
            scale, settings, ..
        }) = &self.capacity
        else {
            return are_loads;
        };
        are_loads
            && (1..=settings.max).contains(&settings.min)
            && settings.max <= LOAD_MAX
            && (settings.min..=settings.max).contains(&settings.from)
            && is_share(settings.sure)
            && is_share(settings.within)
            && (-EXPONENT_MAX..=EXPONENT_MAX).contains(&scale.exponent)
            && self.searches_are_bounded()
    }

    /// Returns `true` if no search has more trials than a search makes.
    fn searches_are_bounded(&self) -> bool {
        let mut trials = BTreeMap::new();
        for entry in self.runs.iter().filter_map(|run| run.trial.as_ref()) {
            *trials.entry(entry.combination).or_insert(0) += 1;
        }
        trials.values().all(|count| *count <= TRIALS_MAX)
    }

    /// Writes the index, as a whole or not at all.
    ///
    /// # Errors
    /// [`IndexError::Write`] with the reason from the system.
    pub fn write(&self, folder: &Path) -> Result<(), IndexError> {
        let path = folder.join(INDEX);
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(".series-")
                .tempfile_in(folder)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            // Others may read the index, as they may read a run file.
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

fn is_share(share: f64) -> bool {
    share > 0.0 && share <= 1.0
}

/// Returns `true` if `name` is the name of a run file in the folder itself.
fn is_run_file_name(name: &str) -> bool {
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
            capacity: None,
            min_effect: None,
            runs: vec![Entry {
                values: vec!["5s".to_owned()],
                file: "01.run".to_owned(),
                outcome: EntryOutcome::NotBegun,
                reason: Some("no".to_owned()),
                trial: None,
            }],
            ended: false,
        }
    }

    #[test]
    fn written_index_reads_back_unchanged() {
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
    fn inconsistent_index_is_rejected() {
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
    fn pipe_in_place_of_the_index_is_rejected() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let made = std::process::Command::new("mkfifo")
            .arg(folder.path().join(INDEX))
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "mkfifo is everywhere"
        );
        let error = Index::read(folder.path()).expect_err("it is no file");
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}

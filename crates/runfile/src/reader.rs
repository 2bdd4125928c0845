//! Reader of a run file, finished or not.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::{Catalogue, ThresholdResult, Time, Totals, Verdict, Window};
use rusqlite::{Row, params};
use serde::de::DeserializeOwned;

use crate::blob;
use crate::catalogue::{Mapping, StoredCatalogue};
use crate::database::Database;
use crate::error::RunFileError;
use crate::fact::{self, Fact};
use crate::open::open_database;
use crate::rows::{ClientRow, EventRow, FailureRow, Header, SubjectHeader, WindowRow};

/// Maximum rows in a page of clients, events or served streams.
const ROWS_PER_PAGE: usize = 256;

/// Maximum windows in a page.
const WINDOWS_PER_PAGE: usize = 16;

/// Maximum number of subjects. A scenario has at most a hundred populations.
const SUBJECTS_MAX: usize = 128;

/// Maximum number of different failure reasons in a run. Reasons are names from the enumerated sets
/// of the protocols.
const REASONS_MAX: usize = 1_000;

/// A run file that is open for reading. Reading changes nothing: the log that a killed run left is
/// read and stays in place.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    database: Database,
    header: Header,
    subjects: Vec<Subject>,
    /// Failure reasons read so far.
    reasons: RefCell<BTreeSet<String>>,
}

/// A population, its browser, a direction of an emulated link, the server or the tester.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    /// Selects the catalogue of its figures: a protocol's name, `browser`, `uplink`, `downlink`,
    /// `server` or `tester`.
    pub kind: String,
    /// Catalogue of this kind in this program.
    pub catalogue: Catalogue,
    /// Metrics of the catalogue that the file lacks because an older streamgauge made it. They have
    /// no figures, although counters read as zero.
    pub absent: Vec<&'static str>,
    /// Metrics in the file that the catalogue lacks because another version of streamgauge made it.
    pub unknown: Vec<String>,
    id: i64,
    mapping: Mapping,
    /// Number of distributions in the stored catalogue.
    stored_distributions: usize,
}

impl Reader {
    /// Opens the run file at `path`. `catalogue` returns the catalogue of a kind of subject.
    pub fn open(
        path: &Path,
        catalogue: impl Fn(&str) -> Option<Catalogue>,
    ) -> Result<Reader, RunFileError> {
        let database = open_database(path)?;
        let damaged = |why: String| RunFileError::damaged(path, why);
        let mut subjects = Vec::new();
        let rows: Vec<(i64, String, String, String)> = database
            .rows(
                "SELECT id, name, kind, catalogue FROM subject ORDER BY id",
                [],
                SUBJECTS_MAX,
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )
            .map_err(damaged)?;
        for (id, name, kind, stored) in rows {
            let stored: StoredCatalogue = serde_json::from_str(&stored)
                .map_err(|error| damaged(format!("the catalogue of `{name}`: {error}")))?;
            let Some(catalogue) = catalogue(&kind) else {
                return Err(RunFileError::UnknownKind {
                    path: path.to_owned(),
                    subject: name,
                    kind,
                });
            };
            let mapping = Mapping::new(&stored, catalogue);
            subjects.push(Subject {
                name,
                kind,
                catalogue,
                absent: mapping.absent.clone(),
                unknown: mapping.unknown.clone(),
                id,
                mapping,
                stored_distributions: stored.distributions.len(),
            });
        }
        let header = read_header(&database, &subjects).map_err(damaged)?;
        Ok(Reader {
            path: path.to_owned(),
            database,
            header,
            subjects,
            reasons: RefCell::default(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Facts known at the start of the run.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns `true` if the run ended regularly, and `false` if it was cut off or is still going
    /// on.
    pub fn is_finished(&self) -> Result<bool, RunFileError> {
        Ok(self.fact(&fact::ENDED)?.unwrap_or(false))
    }

    /// Returns a fact that was noted about the run. Returns `None` if it is missing, or if this
    /// program cannot read it.
    pub fn fact<T: DeserializeOwned>(&self, fact: &Fact<T>) -> Result<Option<T>, RunFileError> {
        let noted = read_meta(&self.database, fact.name()).map_err(|why| self.damaged(why))?;
        Ok(noted.and_then(|value| fact.read(value)))
    }

    /// Subjects in the order of reports.
    pub fn subjects(&self) -> &[Subject] {
        &self.subjects
    }

    /// Returns the subject with this name.
    pub fn find_subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// Name and catalogue of each subject.
    pub fn catalogues(&self) -> Vec<(&str, Catalogue)> {
        let subjects = self.subjects.iter();
        let named = subjects.map(|subject| (subject.name.as_str(), subject.catalogue));
        named.collect()
    }

    /// Returns totals of each subject by name, without any window.
    pub fn empty_totals(&self) -> BTreeMap<String, Totals> {
        let subjects = self.subjects.iter();
        let empty = subjects.map(|one| (one.name.clone(), Totals::new(one.catalogue)));
        empty.collect()
    }

    /// Iterates over the windows in order, including the warm-up. Only a few are in memory at a
    /// time.
    pub fn windows(&self) -> Rows<'_, WindowRow> {
        Rows::new(self, Reader::window_page)
    }

    /// Iterates over the windows with an index above `index`, like [`Reader::windows`]: those that
    /// a run in progress has added since. `None` means all windows.
    pub fn windows_after(&self, index: Option<u64>) -> Rows<'_, WindowRow> {
        let last = index.map(|index| i64::try_from(index).unwrap_or(i64::MAX));
        Rows {
            last: last.unwrap_or(i64::MIN),
            ..self.windows()
        }
    }

    /// Time at which the run was asked to stop, or [`Time::NEVER`] if none was noted. Later windows
    /// count in no rate and no mean level.
    pub fn stopped_at(&self) -> Result<Time, RunFileError> {
        let seconds = self.fact(&fact::STOPPED_AT)?;
        let after = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(after.map_or(Time::NEVER, Time::from_start))
    }

    /// Totals of each subject by name, without the warm-up.
    pub fn totals(&self) -> Result<BTreeMap<String, Totals>, RunFileError> {
        let mut all = self.empty_totals();
        let stopped_at = self.stopped_at()?;
        for row in self.windows() {
            let row = row?;
            for (name, window) in &row.subjects {
                if let Some(totals) = all.get_mut(name) {
                    self.header.add_counted(totals, window, &row, stopped_at);
                }
            }
        }
        Ok(all)
    }

    /// Iterates over the clients by id.
    pub fn clients(&self) -> Rows<'_, ClientRow> {
        Rows::new(self, Reader::client_page)
    }

    /// Failure counts by subject and reason, without the warm-up. The most frequent reason of a
    /// subject comes first.
    pub fn failures(&self) -> Result<Vec<FailureRow>, RunFileError> {
        let warm_up = i64::try_from(self.header.warm_up_windows()).unwrap_or(i64::MAX);
        self.collect(
            "SELECT subject.name, reason, sum(count) FROM failure \
             JOIN subject ON subject.id = failure.subject WHERE window >= ?1 \
             GROUP BY subject.id, reason ORDER BY subject.id, sum(count) DESC, reason",
            params![warm_up],
            SUBJECTS_MAX * REASONS_MAX,
            |row| {
                Ok(FailureRow {
                    subject: row.get(0)?,
                    reason: row.get(1)?,
                    count: row.get::<_, i64>(2)? as u64,
                })
            },
        )
    }

    /// Iterates over the events in the order in which they were written.
    pub fn events(&self) -> Rows<'_, EventRow> {
        Rows::new(self, |reader, after| {
            reader.collect(
                "SELECT id, time, kind, subject, text FROM event WHERE id > ?1 ORDER BY id LIMIT 256",
                params![after],
                ROWS_PER_PAGE,
                |row| {
                    let event = EventRow {
                        time: time(row.get(1)?),
                        kind: row.get(2)?,
                        subject: row.get(3)?,
                        text: row.get(4)?,
                    };
                    Ok((row.get(0)?, event))
                },
            )
        })
    }

    /// Iterates over the counts of reference servers of the same process, one row per stream.
    pub fn served(&self) -> Rows<'_, serde_json::Value> {
        Rows::new(self, |reader, after| {
            reader.collect(
                "SELECT id, line FROM served WHERE id > ?1 ORDER BY id LIMIT 256",
                params![after],
                ROWS_PER_PAGE,
                |row| Ok((row.get(0)?, json(row, 1)?)),
            )
        })
    }

    /// Returns the verdict and the threshold results it is based on, or `None` if the run was cut
    /// off before it had a verdict.
    pub fn verdict(&self) -> Result<Option<(Verdict, Vec<ThresholdResult>)>, RunFileError> {
        let sql = "SELECT verdict, thresholds FROM verdict";
        let rows = self.collect(sql, [], 1, |row| Ok((json(row, 0)?, json(row, 1)?)))?;
        Ok(rows.into_iter().next())
    }

    fn damaged(&self, why: String) -> RunFileError {
        RunFileError::damaged(&self.path, why)
    }

    fn collect<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        rows_max: usize,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, RunFileError> {
        self.database
            .rows(sql, params, rows_max, read)
            .map_err(|why| self.damaged(why))
    }

    fn client_page(&self, after: i64) -> Result<Vec<(i64, ClientRow)>, RunFileError> {
        self.collect(
            "SELECT id, subject, slot, generation, url, due, begun, first_media, ended, outcome, \
             reason, detail, streams FROM client WHERE id > ?1 ORDER BY id LIMIT 256",
            params![after],
            ROWS_PER_PAGE,
            |row| {
                let id: i64 = row.get(0)?;
                let some_time = |index| row.get::<_, Option<i64>>(index);
                let outcome: Option<String> = row.get(9)?;
                let client = ClientRow {
                    id: id as u64,
                    subject: row.get(1)?,
                    slot: row.get(2)?,
                    generation: row.get(3)?,
                    url: row.get(4)?,
                    due: time(row.get(5)?),
                    begun: some_time(6)?.map(time),
                    first_media: some_time(7)?.map(time),
                    ended: some_time(8)?.map(time),
                    outcome: outcome
                        .map(|name| {
                            serde_json::from_value(name.as_str().into())
                                .map_err(|_| conversion(9, format!("unknown outcome `{name}`")))
                        })
                        .transpose()?,
                    reason: row.get(10)?,
                    detail: row.get(11)?,
                    streams: json(row, 12)?,
                };
                Ok((id, client))
            },
        )
    }

    fn window_page(&self, after: i64) -> Result<Vec<(i64, WindowRow)>, RunFileError> {
        let mut windows = self.collect(
            "SELECT idx, start_ns, seconds FROM window WHERE idx > ?1 ORDER BY idx LIMIT 16",
            params![after],
            WINDOWS_PER_PAGE,
            |row| {
                let index: i64 = row.get(0)?;
                let window = WindowRow {
                    index: index as u64,
                    start: time(row.get(1)?),
                    seconds: row.get(2)?,
                    subjects: BTreeMap::new(),
                };
                Ok((index, window))
            },
        )?;
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else {
            return Ok(windows);
        };
        let range = params![first.0, last.0];
        let figures_max = WINDOWS_PER_PAGE * self.subjects.len();
        let distributions = self
            .subjects
            .iter()
            .map(|subject| subject.stored_distributions)
            .max();
        let mut figures: BTreeMap<(i64, i64), Window> = BTreeMap::new();
        let lines = self.collect(
            "SELECT window, subject, counters, gauges FROM figures WHERE window BETWEEN ?1 AND ?2",
            range,
            figures_max,
            |row| {
                let key: (i64, i64) = (row.get(0)?, row.get(1)?);
                let counters: Vec<i64> = json(row, 2)?;
                let gauges: Vec<Option<f64>> = json(row, 3)?;
                Ok((key, counters, gauges))
            },
        )?;
        for (key, counters, gauges) in lines {
            let subject = self.subject(key.1)?;
            let window = subject.mapping.window(&counters, &gauges).ok_or_else(|| {
                self.damaged(format!(
                    "window {} of `{}` does not have as many figures as its catalogue",
                    key.0, subject.name
                ))
            })?;
            figures.insert(key, window);
        }
        let blobs = self.collect(
            "SELECT window, subject, metric, blob FROM histogram WHERE window BETWEEN ?1 AND ?2",
            range,
            figures_max * distributions.unwrap_or(0),
            |row| {
                let key: (i64, i64) = (row.get(0)?, row.get(1)?);
                let sparse = row
                    .get_ref(3)?
                    .as_blob()
                    .ok()
                    .and_then(blob::decode)
                    .ok_or_else(|| conversion(3, "not a distribution".to_owned()))?;
                Ok((key, row.get::<_, String>(2)?, sparse))
            },
        )?;
        for (key, metric, sparse) in blobs {
            let id = self.subject(key.1)?.mapping.distribution(&metric);
            if let (Some(id), Some(window)) = (id, figures.get_mut(&key)) {
                window.histograms.insert(id, sparse);
            }
        }
        let failures = self.collect(
            "SELECT window, subject, reason, count FROM failure WHERE window BETWEEN ?1 AND ?2",
            range,
            figures_max * REASONS_MAX,
            |row| {
                let key: (i64, i64) = (row.get(0)?, row.get(1)?);
                Ok((key, row.get::<_, String>(2)?, row.get::<_, u32>(3)?))
            },
        )?;
        let mut reasons = self.reasons.borrow_mut();
        for (key, reason, count) in failures {
            if !reasons.contains(&reason) {
                reasons.insert(reason.clone());
            }
            if reasons.len() > REASONS_MAX {
                let why = format!("its clients failed for more than {REASONS_MAX} reasons");
                return Err(self.damaged(why));
            }
            if let Some(window) = figures.get_mut(&key) {
                window.failures.insert(reason, u64::from(count));
            }
        }
        for ((index, subject), window) in figures {
            let name = self.subject(subject)?.name.clone();
            if let Ok(at) = windows.binary_search_by_key(&index, |(index, _)| *index) {
                windows[at].1.subjects.insert(name, window);
            }
        }
        Ok(windows)
    }

    fn subject(&self, id: i64) -> Result<&Subject, RunFileError> {
        self.subjects
            .iter()
            .find(|subject| subject.id == id)
            .ok_or_else(|| {
                self.damaged(format!(
                    "there are figures of subject {id}, which does not exist"
                ))
            })
    }
}

/// Reads the next rows: those with a number above the given one.
type Fetch<T> = fn(&Reader, i64) -> Result<Vec<(i64, T)>, RunFileError>;

/// Rows of a run file in order, with a few of them in memory at a time. An error ends the
/// iteration.
///
/// Numbers must increase from row to row. A damaged file that breaks this causes an error, because
/// continuing after the last row would return to it forever.
#[derive(Debug)]
pub struct Rows<'a, T> {
    reader: &'a Reader,
    fetch: Fetch<T>,
    last: i64,
    ready: VecDeque<(i64, T)>,
    ended: bool,
}

impl<'a, T> Rows<'a, T> {
    fn new(reader: &'a Reader, fetch: Fetch<T>) -> Rows<'a, T> {
        Rows {
            reader,
            fetch,
            last: i64::MIN,
            ready: VecDeque::new(),
            ended: false,
        }
    }
}

impl<T> Iterator for Rows<'_, T> {
    type Item = Result<T, RunFileError>;

    fn next(&mut self) -> Option<Result<T, RunFileError>> {
        if self.ready.is_empty() && !self.ended {
            match (self.fetch)(self.reader, self.last) {
                Ok(rows) => {
                    self.ended = rows.is_empty();
                    self.ready = rows.into();
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        let (number, row) = self.ready.pop_front()?;
        if number <= self.last {
            self.ended = true;
            self.ready.clear();
            let last = self.last;
            let why = format!("the row numbered {number} comes after the one numbered {last}");
            return Some(Err(self.reader.damaged(why)));
        }
        self.last = number;
        Some(Ok(row))
    }
}

fn time(nanos: i64) -> Time {
    Time::from_nanos(nanos as u64)
}

fn conversion(column: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Null, why.into())
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| conversion(column, error.to_string()))
}

fn read_meta(database: &Database, key: &str) -> Result<Option<serde_json::Value>, String> {
    let sql = "SELECT value FROM meta WHERE key = ?1";
    let rows = database.rows(sql, [key], 1, |row| json(row, 0));
    let value = rows.map_err(|why| format!("`{key}`: {why}"))?;
    Ok(value.into_iter().next())
}

fn read_header(database: &Database, subjects: &[Subject]) -> Result<Header, String> {
    fn get<T: DeserializeOwned>(database: &Database, key: &str) -> Result<T, String> {
        let value = read_meta(database, key)?.ok_or_else(|| format!("`{key}` is missing"))?;
        serde_json::from_value(value).map_err(|error| format!("`{key}`: {error}"))
    }
    let window = Duration::from_nanos(get(database, "window_nanos")?);
    if window.is_zero() {
        return Err("its window length is zero".to_owned());
    }
    let started_at = Duration::try_from_secs_f64(get(database, "started_at")?)
        .map_err(|error| format!("`started_at`: {error}"))?;
    Ok(Header {
        version: get(database, "version")?,
        scenario: get(database, "scenario")?,
        machine: get(database, "machine")?,
        seed: get(database, "seed")?,
        started_at,
        warm_up: Duration::from_nanos(get(database, "warm_up_nanos")?),
        // Run files of earlier versions lack it.
        starts_in_warm_up: read_meta(database, "starts_in_warm_up")? == Some(true.into()),
        window,
        subjects: subjects
            .iter()
            .map(|subject| SubjectHeader {
                name: subject.name.clone(),
                kind: subject.kind.clone(),
                catalogue: subject.catalogue,
            })
            .collect(),
    })
}

//! Writer of a run file: a handle for the run, and a thread that owns the database.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use measure::{ThresholdResult, Time, Verdict};
use rusqlite::{Connection, ErrorCode, params};

use crate::blob;
use crate::catalogue::StoredCatalogue;
use crate::error::{RunFileError, io_reason};
use crate::fact::{self, Noted};
use crate::open::{companion, is_run_file, open_to_write};
use crate::rows::{ClientRow, EventRow, Header, WindowRow};
use crate::schema;

/// Maximum number of rows waiting for the writer. A caller that hands over one more blocks.
const QUEUE: usize = 512;

/// Maximum time between a row and the end of its transaction.
const COMMIT_EVERY: Duration = Duration::from_secs(1);

/// A run file that is being written.
///
/// The caller only pays for copying a row. A thread writes it, and commits with each window and
/// after a second at the latest. The caller blocks only if the disk is so slow that 512 rows are
/// waiting; a thread that measures should therefore leave this to another thread.
///
/// After an error such as a full disk, all further rows are dropped and [`RunFile::error`] returns
/// the error.
///
/// A run file that is dropped without [`RunFile::finish`] is consistent but marked as cut off.
#[derive(Debug)]
pub struct RunFile {
    path: PathBuf,
    queue: Sender<Command>,
    /// The first error, which ended writing.
    error: Arc<OnceLock<RunFileError>>,
    thread: Option<JoinHandle<()>>,
}

/// Row or command for the writer thread.
#[derive(Debug)]
enum Command {
    Meta(Noted),
    Window(Box<WindowRow>),
    Client(Box<ClientRow>),
    Event(EventRow),
    Served(serde_json::Value),
    Verdict(Box<(Verdict, Vec<ThresholdResult>)>),
    Flush(Sender<()>),
    /// End of the run. `whole` is `false` if the run was cut off.
    End {
        whole: bool,
    },
}

impl RunFile {
    /// Creates a run file at `path`, which must not exist.
    pub fn create(path: &Path, header: &Header) -> Result<RunFile, RunFileError> {
        RunFile::create_with_page_limit(path, header, None)
    }

    /// Creates a run file at `path` and replaces an existing run file. An empty file counts as one.
    /// Any other existing file is an error, as is a run file that is being written.
    pub fn create_over(path: &Path, header: &Header) -> Result<RunFile, RunFileError> {
        remove_old(path)?;
        RunFile::create_with_page_limit(path, header, None)
    }

    /// Checks that no existing file prevents the creation of a run file at `path`, without changing
    /// anything. With `overwrite`, a run file that nothing writes to is allowed.
    ///
    /// # Errors
    /// Those errors of [`RunFile::create`] and [`RunFile::create_over`] that an existing file
    /// causes.
    pub fn check(path: &Path, overwrite: bool) -> Result<(), RunFileError> {
        if overwrite {
            return lock_replaceable(path).map(|_| ());
        }
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(RunFileError::create(path, io_reason(&error))),
            Ok(_) => Err(existing_file_error(path)),
        }
    }

    /// `max_pages` limits the size of the database. Tests simulate a full disk with it.
    pub(crate) fn create_with_page_limit(
        path: &Path,
        header: &Header,
        max_pages: Option<u32>,
    ) -> Result<RunFile, RunFileError> {
        let claim = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(existing_file_error(path));
            }
            Err(error) => return Err(RunFileError::create(path, io_reason(&error))),
        };
        let made = claim
            .try_lock()
            .map_err(|error| RunFileError::create(path, error))
            .and_then(|()| {
                open_database(path, header, max_pages).map_err(|error| match is_disk_full(&error) {
                    true => RunFileError::create(path, "the disk is full"),
                    false => RunFileError::create(path, error),
                })
            });
        let database = match made {
            Ok(database) => database,
            Err(error) => {
                // The file is ours and empty.
                let _ = std::fs::remove_file(path);
                return Err(error);
            }
        };
        let (queue, rows) = bounded(QUEUE);
        let error = Arc::<OnceLock<RunFileError>>::default();
        let writer = Writer {
            path: path.to_owned(),
            _lock: claim,
            error: Arc::clone(&error),
            subjects: header
                .subjects
                .iter()
                .map(|s| {
                    (
                        s.name.clone(),
                        StoredCatalogue::new(s.catalogue).distributions,
                    )
                })
                .collect(),
            committed_windows: 0,
            windows_pending: 0,
            transaction: None,
        };
        let thread = std::thread::Builder::new()
            .name("run-file".to_owned())
            .spawn(move || writer.run(database, &rows))
            .map_err(|error| RunFileError::create(path, io_reason(&error)))?;
        Ok(RunFile {
            path: path.to_owned(),
            queue,
            error,
            thread: Some(thread),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes a fact about the run. A later value replaces an earlier one.
    pub fn note(&self, noted: Noted) {
        self.put(Command::Meta(noted));
    }

    /// Writes a window. Each index may be used once.
    pub fn window(&self, row: WindowRow) {
        self.put(Command::Window(Box::new(row)));
    }

    /// Writes the state of a client, replacing an earlier row of it.
    pub fn client(&self, row: ClientRow) {
        self.put(Command::Client(Box::new(row)));
    }

    pub fn event(&self, row: EventRow) {
        self.put(Command::Event(row));
    }

    /// Writes the counts of a reference server of this process for one stream.
    pub fn served(&self, line: serde_json::Value) {
        self.put(Command::Served(line));
    }

    /// Writes the verdict, replacing an earlier one.
    pub fn verdict(&self, verdict: &Verdict, thresholds: &[ThresholdResult]) {
        self.put(Command::Verdict(Box::new((
            verdict.clone(),
            thresholds.to_vec(),
        ))));
    }

    /// Waits until all rows so far are committed or have failed.
    pub fn flush(&self) -> Result<(), RunFileError> {
        let (done, wait) = bounded(1);
        self.put(Command::Flush(done));
        // The sender is dropped without an answer if the thread has ended.
        let _ = wait.recv();
        self.error().map_or(Ok(()), Err)
    }

    /// Returns the error that ended writing, if any. It is permanent.
    pub fn error(&self) -> Option<RunFileError> {
        self.error.get().cloned()
    }

    /// Marks the file as complete and closes it, as one plain file if no reader has it open.
    pub fn finish(mut self) -> Result<PathBuf, RunFileError> {
        self.end(true);
        self.error().map_or_else(|| Ok(self.path.clone()), Err)
    }

    /// Closes the file and removes it, because the run could not begin.
    pub fn discard(mut self) {
        self.end(false);
        // Errors are ignored: a leftover is a valid run file without windows.
        for suffix in ["-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(companion(&self.path, suffix));
        }
        let _ = std::fs::remove_file(&self.path);
    }

    fn put(&self, command: Command) {
        // The thread receives until the end of the run. It stops earlier only by a panic, which
        // `end` turns into an error.
        let _ = self.queue.send(command);
    }

    fn end(&mut self, whole: bool) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.put(Command::End { whole });
        if thread.join().is_err() {
            self.error.get_or_init(|| RunFileError::Write {
                path: self.path.clone(),
                windows: 0,
                why: "the thread that writes it has panicked".to_owned(),
            });
        }
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// Returns the error for a path that exists although a run file is to be created there.
fn existing_file_error(path: &Path) -> RunFileError {
    let path = path.to_owned();
    // A pipe is not opened: that could block forever.
    let is_file = std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_file());
    match is_file && looks_like_a_run_file(&path).unwrap_or(false) {
        true => RunFileError::Exists { path },
        false => RunFileError::Foreign { path },
    }
}

/// Returns `true` if the file begins like a run file.
fn looks_like_a_run_file(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(72).read_to_end(&mut head)?;
    Ok(is_run_file(&head))
}

/// Returns the locked run file at `path` if it may be replaced, or `None` if the path does not
/// exist. An empty file counts as a run file.
fn lock_replaceable(path: &Path) -> Result<Option<File>, RunFileError> {
    let failed = |error: io::Error| RunFileError::create(path, io_reason(&error));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let path = path.to_owned();
    if !metadata.is_file()
        || (metadata.len() > 0 && !looks_like_a_run_file(&path).map_err(failed)?)
    {
        return Err(RunFileError::Foreign { path });
    }
    let file = File::open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(RunFileError::InUse { path }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn remove_old(path: &Path) -> Result<(), RunFileError> {
    let failed = |error: io::Error| RunFileError::create(path, io_reason(&error));
    let Some(_locked) = lock_replaceable(path)? else {
        return Ok(());
    };
    // Companions first: a log without its database is harmless, but it would damage another
    // database.
    for suffix in ["-wal", "-shm", "-journal"] {
        match std::fs::remove_file(companion(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    std::fs::remove_file(path).map_err(failed)
}

fn open_database(
    path: &Path,
    header: &Header,
    max_pages: Option<u32>,
) -> Result<Connection, rusqlite::Error> {
    let mut database = open_to_write(path)?;
    let transaction = database.transaction()?;
    transaction.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", schema::VERSION)?;
    transaction.execute_batch(schema::TABLES)?;
    transaction.execute_batch(schema::VIEWS)?;
    for (key, value) in [
        ("version", header.version.clone().into()),
        ("scenario", header.scenario.clone()),
        (
            "machine",
            serde_json::to_value(&header.machine).map_err(json)?,
        ),
        ("seed", header.seed.into()),
        ("started_at", header.started_at.as_secs_f64().into()),
        ("warm_up_nanos", nanos(header.warm_up).into()),
        ("starts_in_warm_up", header.starts_in_warm_up.into()),
        ("window_nanos", nanos(header.window).into()),
    ] {
        put_meta(&transaction, key, &value)?;
    }
    for (id, subject) in header.subjects.iter().enumerate() {
        let catalogue =
            serde_json::to_string(&StoredCatalogue::new(subject.catalogue)).map_err(json)?;
        transaction.execute(
            "INSERT INTO subject VALUES (?1, ?2, ?3, ?4)",
            params![id as i64, subject.name, subject.kind, catalogue],
        )?;
    }
    transaction.commit()?;
    // WAL starts here, so that the ids above are in the database itself rather than in its log.
    database.pragma_update(None, "journal_mode", "WAL")?;
    // A committed transaction survives a kill of the process, but possibly not a power cut. The
    // file is consistent after either.
    database.pragma_update(None, "synchronous", "NORMAL")?;
    if let Some(pages) = max_pages {
        database.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(database)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn json(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

/// Returns `true` if there was no space for the database, its log or the index of the log.
fn is_disk_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| {
        error.code == ErrorCode::DiskFull
            || error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
    })
}

fn put_meta(
    database: &Connection,
    key: &str,
    value: &serde_json::Value,
) -> Result<(), rusqlite::Error> {
    database
        .prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?
        .execute(params![key, value.to_string()])?;
    Ok(())
}

/// Converts a time to SQLite's signed integer.
fn sql_time(time: Time) -> i64 {
    time.as_nanos() as i64
}

/// State of the writer thread, without the database.
struct Writer {
    path: PathBuf,
    /// Held open and locked, so that no other run takes the file for a leftover.
    _lock: File,
    error: Arc<OnceLock<RunFileError>>,
    /// Name of each subject, by its id in the file, and the names of its distributions, by index.
    subjects: Vec<(String, Vec<String>)>,
    /// Number of committed windows.
    committed_windows: u64,
    windows_pending: u64,
    /// Deadline of the open transaction.
    transaction: Option<Instant>,
}

impl Writer {
    fn run(mut self, database: Connection, commands: &Receiver<Command>) {
        let mut whole = None;
        while whole.is_none() {
            let command = match self.transaction {
                Some(until) => commands.recv_deadline(until),
                None => commands.recv().map_err(RecvTimeoutError::from),
            };
            let broken = self.error.get().is_some();
            let done = match command {
                Err(RecvTimeoutError::Timeout) => self.commit(&database),
                Err(RecvTimeoutError::Disconnected) => {
                    whole = Some(false);
                    Ok(())
                }
                Ok(Command::End { whole: mark }) => {
                    whole = Some(mark);
                    Ok(())
                }
                Ok(Command::Flush(done)) => {
                    let committed = self.commit(&database);
                    // Handled here, not below: the error must be stored before `done` is sent.
                    if let Err(error) = committed {
                        self.fail(&database, &error);
                    }
                    let _ = done.send(());
                    Ok(())
                }
                Ok(_) if broken => Ok(()),
                Ok(command) => self.write(&database, &command),
            };
            if let Err(error) = done {
                self.fail(&database, &error);
            }
        }
        if self.error.get().is_none()
            && let Err(error) = self.end(&database, whole == Some(true))
        {
            self.fail(&database, &error);
        }
        // Closed before the lock on the file is released. After a failure the log stays next to the
        // database, where readers find it.
        drop(database);
    }

    fn fail(&mut self, database: &Connection, error: &rusqlite::Error) {
        // A partial transaction is not a whole second. The rollback fails if SQLite has already
        // rolled back.
        let _ = database.execute_batch("ROLLBACK");
        self.transaction = None;
        let (path, windows) = (self.path.clone(), self.committed_windows);
        let why = error.to_string();
        self.error.get_or_init(|| match is_disk_full(error) {
            true => RunFileError::DiskFull { path, windows },
            false => RunFileError::Write { path, windows, why },
        });
    }

    fn begin(&mut self, database: &Connection) -> Result<(), rusqlite::Error> {
        if self.transaction.is_none() {
            database.execute_batch("BEGIN IMMEDIATE")?;
            self.transaction = Some(Instant::now() + COMMIT_EVERY);
        }
        Ok(())
    }

    fn commit(&mut self, database: &Connection) -> Result<(), rusqlite::Error> {
        if self.transaction.is_some() {
            database.execute_batch("COMMIT")?;
            self.transaction = None;
            self.committed_windows += std::mem::take(&mut self.windows_pending);
        }
        Ok(())
    }

    /// Commits, with the mark of a complete run if `whole`, and leaves WAL mode.
    fn end(&mut self, database: &Connection, whole: bool) -> Result<(), rusqlite::Error> {
        if whole {
            self.begin(database)?;
            put_meta(database, fact::ENDED.name(), &true.into())?;
        }
        self.commit(database)?;
        // Leaving WAL mode merges the log into the database and removes it. If a reader has the
        // file open, `merge_log` does this later.
        match database.pragma_update(None, "journal_mode", "DELETE") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseLocked) => Ok(()),
            other => other,
        }
    }

    fn write(&mut self, database: &Connection, command: &Command) -> Result<(), rusqlite::Error> {
        self.begin(database)?;
        match command {
            Command::Meta(noted) => put_meta(database, noted.name, &noted.value)?,
            Command::Window(window) => {
                self.write_window(database, window)?;
                self.windows_pending += 1;
                // A window arrives once a second, so this is the only transaction of that second.
                self.commit(database)?;
            }
            Command::Client(client) => write_client(database, client)?,
            Command::Event(event) => {
                database
                    .prepare_cached("INSERT INTO event VALUES (NULL, ?1, ?2, ?3, ?4)")?
                    .execute(params![
                        sql_time(event.time),
                        event.kind,
                        event.subject,
                        event.text
                    ])?;
            }
            Command::Served(line) => {
                database
                    .prepare_cached("INSERT INTO served VALUES (NULL, ?1)")?
                    .execute(params![line.to_string()])?;
            }
            Command::Verdict(both) => {
                let verdict = serde_json::to_string(&both.0).map_err(json)?;
                let thresholds = serde_json::to_string(&both.1).map_err(json)?;
                database
                    .prepare_cached("INSERT OR REPLACE INTO verdict VALUES (1, ?1, ?2)")?
                    .execute(params![verdict, thresholds])?;
            }
            // Handled by the caller's loop.
            Command::Flush(_) | Command::End { .. } => {}
        }
        Ok(())
    }

    fn write_window(&self, database: &Connection, row: &WindowRow) -> Result<(), rusqlite::Error> {
        let index = row.index as i64;
        let seconds = if row.seconds.is_finite() {
            row.seconds
        } else {
            0.0
        };
        database
            .prepare_cached("INSERT INTO window VALUES (?1, ?2, ?3)")?
            .execute(params![index, sql_time(row.start), seconds])?;
        for (name, window) in &row.subjects {
            let subject = self.subjects.iter().position(|(known, _)| known == name);
            let subject =
                subject.ok_or_else(|| rusqlite::Error::InvalidParameterName(name.clone()))?;
            let counters = serde_json::to_string(&window.counters).map_err(json)?;
            // A level that is not finite is written as null, which means that none was taken.
            let gauges = serde_json::to_string(&window.gauges).map_err(json)?;
            database
                .prepare_cached("INSERT INTO figures VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![index, subject as i64, counters, gauges])?;
            for (id, sparse) in &window.histograms {
                let metric = &self.subjects[subject].1[usize::from(id.0)];
                database
                    .prepare_cached("INSERT INTO histogram VALUES (?1, ?2, ?3, ?4)")?
                    .execute(params![index, subject as i64, metric, blob::encode(sparse)])?;
            }
            for (reason, count) in &window.failures {
                database
                    .prepare_cached("INSERT INTO failure VALUES (?1, ?2, ?3, ?4)")?
                    .execute(params![index, subject as i64, reason, *count as i64])?;
            }
        }
        Ok(())
    }
}

fn write_client(database: &Connection, row: &ClientRow) -> Result<(), rusqlite::Error> {
    database
        .prepare_cached(
            "INSERT OR REPLACE INTO client VALUES \
             (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            row.id as i64,
            row.subject,
            row.slot,
            row.generation,
            row.url,
            sql_time(row.due),
            row.begun.map(sql_time),
            row.first_media.map(sql_time),
            row.ended.map(sql_time),
            row.outcome.map(|outcome| outcome.name()),
            row.reason,
            row.detail,
            row.streams.to_string(),
        ])?;
    Ok(())
}

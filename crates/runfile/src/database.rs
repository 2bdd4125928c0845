//! Read access to a run file's database, with limits that make reading an untrusted file safe.
//!
//! A run file may come from any source. It is therefore opened read-only, its schema must be the
//! one that this program creates, and each query is limited in steps, rows and bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, Row};

use crate::schema;

/// Maximum length of a text or blob that is read, in bytes. The longest value written is a scenario
/// with many URLs.
const VALUE_BYTES_MAX: i32 = 32 << 20;

/// Maximum total length of the texts and blobs in the result of one query, in bytes.
const RESULT_BYTES_MAX: usize = 64 << 20;

/// Steps of SQLite's virtual machine between two calls of the progress handler.
const STEPS_PER_PROGRESS_CALL: i32 = 100_000;

/// Maximum number of progress handler calls in a query. A query of sixteen windows of a hundred
/// populations takes about 10^6 steps; the limit is 2 * 10^7 steps, which take seconds.
const PROGRESS_CALLS_MAX: u32 = 200;

/// Time that a reader and a writer wait for each other's lock.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// An open run file.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    /// Progress handler calls during the current query.
    progress_calls: Arc<AtomicU32>,
    /// Temporary copy of the file, if it could not be read in place.
    pub(crate) copy: Option<tempfile::TempDir>,
}

impl Database {
    /// Applies the limits to a connection that was opened read-only.
    pub(crate) fn new(mut connection: Connection) -> Result<Database, rusqlite::Error> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        for (option, on) in [
            // A schema cannot call functions with side effects.
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            // A view can run any query, including an endless one.
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        ] {
            connection.set_db_config(option, on)?;
        }
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        let progress_calls = Arc::new(AtomicU32::new(0));
        let calls = Arc::clone(&progress_calls);
        let too_long = move || calls.fetch_add(1, Ordering::Relaxed) >= PROGRESS_CALLS_MAX;
        connection.progress_handler(STEPS_PER_PROGRESS_CALL, Some(too_long))?;
        connection.pragma_update(None, "cell_size_check", true)?;
        let database = Database {
            connection,
            progress_calls,
            copy: None,
        };
        // Damage to the file shows at the first read.
        database
            .connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(database)
    }

    /// Returns the value of a numeric pragma.
    pub(crate) fn pragma(&self, name: &str) -> Result<i64, rusqlite::Error> {
        self.connection
            .pragma_query_value(None, name, |row| row.get(0))
    }

    /// Checks that the schema is the one that this program creates. The error names the first table
    /// that differs.
    ///
    /// Tables are compared by their SQL, so none of them can be a view, a virtual table or a table
    /// with generated columns.
    pub(crate) fn check_schema(&self) -> Result<(), String> {
        let squeezed = |sql: &str| sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let found: Vec<(String, String, i64, String)> = self.rows(
            "SELECT name, type, rootpage, sql FROM sqlite_schema WHERE sql IS NOT NULL",
            [],
            1_000,
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )?;
        for sql in schema::tables() {
            let made = |name: &str, kind: &str, page: i64, as_made: &str| {
                kind == "table"
                    && page > 0
                    && schema::name_of(sql) == name
                    && squeezed(as_made) == squeezed(sql)
            };
            if !found
                .iter()
                .any(|(name, kind, page, as_made)| made(name, kind, *page, as_made))
            {
                let name = schema::name_of(sql);
                return Err(format!(
                    "its table `{name}` is missing or differs from the one that streamgauge creates"
                ));
            }
        }
        Ok(())
    }

    /// Runs a query and reads each row with `read`. Fails if there are more than `rows_max` rows.
    ///
    /// # Errors
    /// SQLite's message, or a description of the limit that was exceeded.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        rows_max: usize,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, String> {
        self.progress_calls.store(0, Ordering::Relaxed);
        let message = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::OperationInterrupted) => {
                "reading it takes far longer than reading an intact file".to_owned()
            }
            _ => error.to_string(),
        };
        let mut statement = self.connection.prepare_cached(sql).map_err(message)?;
        let columns = statement.column_count();
        let mut found = statement.query(params).map_err(message)?;
        let mut rows = Vec::new();
        let mut bytes = 0;
        while let Some(row) = found.next().map_err(message)? {
            for column in 0..columns {
                let value = row.get_ref(column).map_err(message)?;
                bytes += match value {
                    rusqlite::types::ValueRef::Text(text) => text.len(),
                    rusqlite::types::ValueRef::Blob(blob) => blob.len(),
                    _ => 0,
                };
            }
            if rows.len() >= rows_max || bytes > RESULT_BYTES_MAX {
                return Err("it holds far more data than a run writes in one place".to_owned());
            }
            rows.push(read(row).map_err(message)?);
        }
        Ok(rows)
    }
}

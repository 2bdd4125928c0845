//! A run file's database as a reader has it: nothing in it can make reading it dangerous or
//! endless.
//!
//! A run file may come from anybody. So it is opened for reading only, its schema must be the one
//! that this program makes, and each query has a bound on its steps, its rows and its bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, Row};

use crate::schema;

/// The longest text or blob that is read, in bytes. The longest that is written is a scenario of
/// many URLs.
const LONGEST_VALUE: i32 = 32 << 20;

/// The most bytes of texts and blobs that one query may bring.
const MOST_BYTES: usize = 64 << 20;

/// How many steps of SQLite's machine lie between two looks at how many a query has taken.
const STEPS: i32 = 100_000;

/// How often it is looked, at most: a query of sixteen windows of a hundred populations takes some
/// 10^6 steps, and this is 2 * 10^7, or seconds.
const LOOKS: u32 = 200;

/// How long a reader waits for a writer that is in its way.
const BUSY: Duration = Duration::from_secs(5);

/// An open run file.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    /// How often it was looked in the query under way.
    looks: Arc<AtomicU32>,
    /// Holds a copy of the file, where it could not be read in its place.
    pub(crate) copy: Option<tempfile::TempDir>,
}

impl Database {
    /// Takes a connection that was opened for reading only, and bounds what can be done by it.
    pub(crate) fn new(mut connection: Connection) -> Result<Database, rusqlite::Error> {
        connection.busy_timeout(BUSY)?;
        for (option, on) in [
            // No function that acts on anything else is called from a schema.
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            // A view can stand for any query, one without an end too.
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        ] {
            connection.set_db_config(option, on)?;
        }
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        let looks = Arc::new(AtomicU32::new(0));
        let looked = Arc::clone(&looks);
        let too_long = move || looked.fetch_add(1, Ordering::Relaxed) >= LOOKS;
        connection.progress_handler(STEPS, Some(too_long))?;
        connection.pragma_update(None, "cell_size_check", true)?;
        let database = Database {
            connection,
            looks,
            copy: None,
        };
        // What is wrong with a file shows when it is first read.
        database
            .connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(database)
    }

    /// The value of a pragma that is a number.
    pub(crate) fn pragma(&self, name: &str) -> Result<i64, rusqlite::Error> {
        self.connection
            .pragma_query_value(None, name, |row| row.get(0))
    }

    /// Says what is wrong with the schema, where it is not the one that this program makes.
    ///
    /// The tables are compared by how they were made, so that none of them is a view, a virtual
    /// table or a table with columns that are computed.
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
                    "its table `{name}` is missing, or is not as streamgauge makes it"
                ));
            }
        }
        Ok(())
    }

    /// The rows of a query, each read by `read`; at most `most` of them.
    ///
    /// # Errors
    /// In words: what SQLite says, or that a bound was reached.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        most: usize,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, String> {
        self.looks.store(0, Ordering::Relaxed);
        let said = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::OperationInterrupted) => {
                "reading it takes far longer than it can in a sound file".to_owned()
            }
            _ => error.to_string(),
        };
        let mut statement = self.connection.prepare_cached(sql).map_err(said)?;
        let columns = statement.column_count();
        let mut found = statement.query(params).map_err(said)?;
        let mut rows = Vec::new();
        let mut bytes = 0;
        while let Some(row) = found.next().map_err(said)? {
            for column in 0..columns {
                let value = row.get_ref(column).map_err(said)?;
                bytes += match value {
                    rusqlite::types::ValueRef::Text(text) => text.len(),
                    rusqlite::types::ValueRef::Blob(blob) => blob.len(),
                    _ => 0,
                };
            }
            if rows.len() >= most || bytes > MOST_BYTES {
                return Err("it holds far more than a run leaves in one place".to_owned());
            }
            rows.push(read(row).map_err(said)?);
        }
        Ok(rows)
    }
}

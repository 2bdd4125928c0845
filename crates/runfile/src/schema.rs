//! Tables and views of a run file.

/// Format version that is written, and the newest that is read.
pub const VERSION: i64 = 1;

/// `application_id` of a run file: "SGAG".
pub(crate) const APPLICATION_ID: i64 = 0x5347_4147;

/// Creates the tables of a run file in an empty database. Readers compare each statement with the
/// schema of the file, so a changed statement needs a new [`VERSION`].
pub(crate) const TABLES: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE subject (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, catalogue TEXT NOT NULL);
CREATE TABLE window (idx INTEGER PRIMARY KEY, start_ns INTEGER NOT NULL, seconds REAL NOT NULL);
CREATE TABLE figures (
    window INTEGER NOT NULL, subject INTEGER NOT NULL, counters TEXT NOT NULL, gauges TEXT NOT NULL,
    PRIMARY KEY (window, subject)) WITHOUT ROWID;
CREATE TABLE histogram (
    window INTEGER NOT NULL, subject INTEGER NOT NULL, metric TEXT NOT NULL, blob BLOB NOT NULL,
    PRIMARY KEY (window, subject, metric)) WITHOUT ROWID;
CREATE TABLE failure (
    window INTEGER NOT NULL, subject INTEGER NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (window, subject, reason)) WITHOUT ROWID;
CREATE TABLE client (
    id INTEGER PRIMARY KEY, subject TEXT NOT NULL, slot INTEGER NOT NULL, generation INTEGER NOT NULL,
    url TEXT NOT NULL, due INTEGER NOT NULL, begun INTEGER, first_media INTEGER, ended INTEGER,
    outcome TEXT, reason TEXT, detail TEXT, streams TEXT NOT NULL);
CREATE TABLE event (
    id INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, subject TEXT, text TEXT NOT NULL);
CREATE TABLE served (id INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE verdict (
    id INTEGER PRIMARY KEY CHECK (id = 1), verdict TEXT NOT NULL, thresholds TEXT NOT NULL);
";

/// Creates the views. They are for other programs; the readers of this crate use none.
pub(crate) const VIEWS: &str = "
CREATE VIEW counter AS
    SELECT figures.window AS window, subject.name AS subject, names.value AS metric,
           places.value AS value
    FROM figures JOIN subject ON subject.id = figures.subject,
         json_each(subject.catalogue, '$.counters') AS names,
         json_each(figures.counters) AS places
    WHERE names.key = places.key;
CREATE VIEW gauge AS
    SELECT figures.window AS window, subject.name AS subject, names.value AS metric,
           places.value AS value
    FROM figures JOIN subject ON subject.id = figures.subject,
         json_each(subject.catalogue, '$.gauges') AS names,
         json_each(figures.gauges) AS places
    WHERE names.key = places.key AND places.value IS NOT NULL;
";

/// Statements that create the tables.
pub(crate) fn tables() -> impl Iterator<Item = &'static str> {
    TABLES
        .split(';')
        .map(str::trim)
        .filter(|statement| !statement.is_empty())
}

/// Returns the name of the table that a statement creates.
pub(crate) fn name_of(statement: &str) -> &str {
    let rest = statement.strip_prefix("CREATE TABLE ").unwrap_or_default();
    rest.split([' ', '(']).next().unwrap_or_default()
}

//! Malicious and damaged run files are rejected soon, and reading them changes nothing.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::tests::{catalogue, header, lossy, read, temporary_path};
use super::*;

/// Limit for the duration of a rejection, which takes far less.
const SOON: Duration = Duration::from_secs(60);

/// Writes a valid run file and changes its database with these statements.
fn changed(path: &Path, sql: &str) {
    let file = RunFile::create(path, &header()).expect("a new file");
    file.window(lossy(0));
    file.finish().expect("nothing is in its way");
    let database = Connection::open(path).expect("a database");
    database.execute_batch(sql).expect("it can be changed");
}

fn refused(path: &Path) -> RunFileError {
    Reader::open(path, catalogue).expect_err("refused")
}

#[test]
fn only_tables_made_by_this_program_are_read() {
    let endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)";
    for (table, sql) in [
        (
            "window",
            format!("DROP TABLE window; CREATE VIEW window AS {endless} SELECT x AS idx, 0 AS start_ns, 1.0 AS seconds FROM r;"),
        ),
        (
            "meta",
            format!("ALTER TABLE meta RENAME TO m; CREATE VIEW meta AS {endless} SELECT m.key, m.value FROM m, r WHERE x < 0;"),
        ),
        (
            "verdict",
            "DROP TABLE verdict; CREATE TABLE verdict (id INTEGER PRIMARY KEY, verdict TEXT AS (hex(zeroblob(1 << 24))), thresholds TEXT);"
                .to_owned(),
        ),
        (
            "served",
            "DROP TABLE served; CREATE VIRTUAL TABLE served USING fts5(id, line);".to_owned(),
        ),
        ("event", "DROP TABLE event;".to_owned()),
        (
            "client",
            "DROP TABLE client; CREATE TABLE client AS SELECT 1 AS id;".to_owned(),
        ),
    ] {
        let (_directory, path) = temporary_path();
        changed(&path, &sql);
        let begun = Instant::now();
        let error = refused(&path);
        assert!(begun.elapsed() < SOON, "{table}: {:?}", begun.elapsed());
        let said = format!("its table `{table}` is missing or differs from the one that streamgauge creates");
        assert!(error.to_string().contains(&said), "{error}");
    }
}

#[test]
fn unknown_tables_and_indexes_are_ignored() {
    let (_directory, path) = temporary_path();
    changed(
        &path,
        "CREATE TABLE notes (text); CREATE INDEX when_due ON client (due);",
    );
    assert_eq!(read(&path).windows().count(), 1);
}

#[test]
fn endless_query_is_interrupted() {
    let (_directory, path) = temporary_path();
    changed(&path, "");
    let database = open::open_database(&path).expect("a run file");
    let endless =
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r";
    for _ in 0..2 {
        let begun = Instant::now();
        let error = database
            .rows(endless, [], 1, |_| Ok(()))
            .expect_err("endless");
        assert!(error.contains("takes far longer"), "{error}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    // The next query has its full budget again.
    assert_eq!(database.rows("SELECT 1", [], 1, |_| Ok(())), Ok(vec![()]));
}

#[test]
fn oversized_query_result_is_rejected() {
    let (_directory, path) = temporary_path();
    changed(&path, "");
    let database = open::open_database(&path).expect("a run file");
    let numbers = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)";
    for what in ["x", "zeroblob(20000000)"] {
        let sql = format!("{numbers} SELECT {what} FROM r");
        let error = database
            .rows(&sql, [], 100, |_| Ok(()))
            .expect_err("too much");
        assert!(error.contains("far more data than a run writes"), "{error}");
    }
    let error = database
        .rows("SELECT zeroblob(40000000)", [], 1, |_| Ok(()))
        .expect_err("too long");
    assert!(error.contains("too big"), "{error}");
}

#[test]
fn subjects_and_reasons_are_bounded() {
    let (_directory, path) = temporary_path();
    let numbers = "(WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 1001) SELECT x FROM r)";
    let sql = "INSERT INTO subject SELECT x + 2, 'n' || x, kind, catalogue FROM subject,";
    changed(&path, &format!("{sql} {numbers} WHERE id = 0;"));
    assert!(refused(&path).to_string().contains("far more"));

    let (_directory, path) = temporary_path();
    let sql = "INSERT INTO failure SELECT 0, 0, 'reason ' || x, 1 FROM";
    changed(&path, &format!("{sql} {numbers};"));
    let error = read(&path).totals().expect_err("too many reasons");
    assert!(
        error.to_string().contains("more than 1000 reasons"),
        "{error}"
    );
}

#[test]
fn truncated_file_is_reported_as_truncated() {
    let (_directory, path) = temporary_path();
    changed(&path, "");
    let whole = std::fs::read(&path).expect("it is there");
    for (length, said) in [
        (50, "it ends after 50 bytes"),
        (whole.len() / 2, "its end is missing"),
        (whole.len() - 1, "its end is missing"),
    ] {
        std::fs::write(&path, &whole[..length]).expect("there is room");
        let error = refused(&path).to_string();
        assert!(
            error.contains(said) && error.contains("copy it again"),
            "{error}"
        );
    }
}

#[test]
fn pipe_in_place_of_a_file_or_its_log_is_rejected() {
    let (directory, path) = temporary_path();
    let pipe = |path: &Path| {
        let made = Command::new("mkfifo").arg(path).status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "mkfifo is everywhere"
        );
    };
    let own = directory.path().join("pipe.run");
    pipe(&own);
    assert!(matches!(refused(&own), RunFileError::Open { .. }));
    changed(&path, "");
    pipe(&open::companion(&path, "-wal"));
    assert!(matches!(refused(&path), RunFileError::Damaged { .. }));
}

#[test]
fn reading_leaves_no_files_and_ignores_a_journal() {
    let (directory, path) = temporary_path();
    changed(&path, "");
    // A journal that SQLite would roll back if it opened the file for writing.
    let journal = open::companion(&path, "-journal");
    std::fs::write(&journal, [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7])
        .expect("there is room");
    let before = std::fs::read(&path).expect("it is there");
    assert_eq!(read(&path).windows().count(), 1);
    assert!(std::fs::read(&path).expect("it is there") == before);
    assert!(journal.exists());
    let files = std::fs::read_dir(directory.path())
        .expect("it is there")
        .count();
    assert_eq!(files, 2, "the file and its journal");
}

#[test]
fn paths_with_special_characters_can_be_opened() {
    let (directory, path) = temporary_path();
    changed(&path, "");
    for name in ["a b?c#d%41&e.run", "größe.run", "file:x?mode=rw.run"] {
        let odd = directory.path().join(name);
        std::fs::copy(&path, &odd).expect("there is room");
        assert_eq!(read(&odd).windows().count(), 1, "{name}");
    }
}

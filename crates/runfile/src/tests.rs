//! Everything written can be read back, even if writing ends abnormally.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::metric::Group;
use measure::totals::Statistic;
use measure::{Catalogue, Histogram, HistogramId, Time, Totals, Verdict, VerdictInput, Window};
use proptest::prelude::*;
use rusqlite::Connection;

use super::*;

measure::metrics! {
    /// Figures of every kind.
    pub(crate) VIEWERS after Group::NONE;
    counters {
        /// Packets.
        EXPECTED = "expected", Count, "";
        /// Packets received.
        RECEIVED = "received", Count, "";
    }
    gauges {
        /// Clients.
        ACTIVE = "active", Count, "", Sum;
        /// A level that is seldom taken.
        RARE = "rare", Bytes, "", Max;
    }
    distributions {
        /// A delay.
        DELAY = "delay", Seconds, "RFC 0";
        /// A length.
        LENGTH = "length", Count, "";
    }
    derived {
        /// Share lost.
        "loss", Ratio, "", LossRatio(EXPECTED, RECEIVED);
    }
    starts { LENGTH; }
}
static GROUPS: [&Group; 1] = [&VIEWERS];
const CATALOGUE: Catalogue = Catalogue(&GROUPS);

/// A later version of the catalogue: one counter is gone, a new one comes first.
mod later {
    use super::Group;
    measure::metrics! {
        /// Figures of every kind.
        pub(crate) VIEWERS after Group::NONE;
        counters {
            /// New.
            NEW = "new", Count, "";
            /// Packets received.
            RECEIVED = "received", Count, "";
        }
        gauges {
            /// A level that is seldom taken.
            RARE = "rare", Bytes, "", Max;
        }
        distributions {
            /// A length.
            LENGTH = "length", Count, "";
        }
        derived {}
    }
    pub(crate) static GROUPS: [&Group; 1] = [&VIEWERS];
}

pub(crate) fn catalogue(kind: &str) -> Option<Catalogue> {
    (kind == "test").then_some(CATALOGUE)
}

pub(crate) fn header() -> Header {
    Header {
        version: "1.2.3".to_owned(),
        scenario: serde_json::json!({"name": "a test", "rate": 0.1}),
        machine: Machine {
            kernel: "Linux 6.1".to_owned(),
            cores: 2,
            memory: 8 << 30,
        },
        seed: u64::MAX,
        started_at: Duration::from_millis(1_790_000_000_250),
        warm_up: Duration::from_millis(1500),
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: ["viewers", "others"]
            .map(|name| SubjectHeader {
                name: name.to_owned(),
                kind: "test".to_owned(),
                catalogue: CATALOGUE,
            })
            .into(),
    }
}

fn window(index: u64, subjects: BTreeMap<String, Window>) -> WindowRow {
    WindowRow {
        index,
        start: Time::from_nanos(index * 1_000_000_000),
        seconds: 1.0,
        subjects,
    }
}

/// A window in which `viewers` expected 100 packets and received 99.
pub(crate) fn lossy(index: u64) -> WindowRow {
    let mut viewers = Window::empty(CATALOGUE);
    viewers.counters = vec![100, 99];
    window(index, BTreeMap::from([("viewers".to_owned(), viewers)]))
}

pub(crate) fn read(path: &Path) -> Reader {
    Reader::open(path, catalogue).expect("a run file")
}

pub(crate) fn temporary_path() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("a run.db");
    (directory, path)
}

fn any_window() -> impl Strategy<Value = Window> {
    let counter = -1_000_000_000i64..1_000_000_000_000;
    let values = || proptest::collection::vec(0u64..(1 << 43), 0..20);
    (
        proptest::collection::vec(counter, 2),
        proptest::collection::vec(proptest::option::of(-1e12f64..1e12), 2),
        (values(), values()),
        proptest::collection::btree_map("[a-z_]{1,8}", 1u64..1000, 0..3),
    )
        .prop_map(|(counters, gauges, (delays, lengths), failures)| {
            let mut histograms = BTreeMap::new();
            for (id, values) in [(DELAY, delays), (LENGTH, lengths)] {
                let mut histogram = Histogram::new();
                values.iter().for_each(|value| histogram.record(*value));
                if !histogram.is_empty() {
                    histograms.insert(id, histogram.to_sparse());
                }
            }
            Window {
                counters,
                gauges,
                histograms,
                failures,
            }
        })
}

/// All figures of these totals.
fn figures(totals: &Totals) -> Vec<Option<f64>> {
    let statistics = [
        Statistic::Value,
        Statistic::Mean,
        Statistic::Min,
        Statistic::Max,
        Statistic::Quantile(0.95),
        Statistic::Count,
    ];
    CATALOGUE
        .metrics()
        .flat_map(|metric| statistics.map(|statistic| totals.figure(metric, statistic)))
        .collect()
}

#[test]
fn starts_of_clients_count_in_the_warm_up_if_the_run_says_so() {
    let of = |value| {
        let mut histogram = Histogram::new();
        histogram.record(value);
        histogram.to_sparse()
    };
    let (delay, length) = (of(5), of(7));
    for starts_in_warm_up in [false, true] {
        let (_directory, path) = temporary_path();
        let header = Header {
            starts_in_warm_up,
            ..header()
        };
        let file = RunFile::create(&path, &header).expect("a new file");
        for index in 0..3 {
            let mut row = lossy(index);
            let viewers = row.subjects.get_mut("viewers").expect("it is there");
            viewers.histograms = BTreeMap::from([(DELAY, delay.clone()), (LENGTH, length.clone())]);
            file.window(row);
        }
        file.finish().expect("nothing is in its way");
        let totals = read(&path).totals().expect("sound");
        let count = |name| totals["viewers"].named(name, Statistic::Count);
        // The warm-up of 1.5 s takes two windows of one second. The length is a start.
        let starts = if starts_in_warm_up { 3.0 } else { 1.0 };
        assert_eq!((count("length"), count("delay")), (Some(starts), Some(1.0)));
        assert_eq!(
            totals["viewers"].named("expected", Statistic::Value),
            Some(100.0)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn windows_and_totals_read_back_unchanged(
        windows in proptest::collection::vec((any_window(), any_window()), 0..20),
    ) {
        let (_directory, path) = temporary_path();
        let file = RunFile::create(&path, &header()).expect("a new file");
        let mut rows = Vec::new();
        let mut totals = BTreeMap::from(
            ["viewers", "others"].map(|name| (name.to_owned(), Totals::new(CATALOGUE))),
        );
        for (index, (viewers, others)) in (0..).zip(windows) {
            let subjects = BTreeMap::from([
                ("viewers".to_owned(), viewers),
                ("others".to_owned(), others),
            ]);
            // The warm-up of 1.5 s takes two windows of one second.
            if index >= 2 {
                for (name, window) in &subjects {
                    totals.get_mut(name).expect("named above").add(window, 1.0);
                }
            }
            rows.push(window(index, subjects));
        }
        rows.iter().cloned().for_each(|row| file.window(row));
        file.finish().expect("nothing is in its way");
        let reader = read(&path);
        let back: Vec<WindowRow> = reader.windows().map(|row| row.expect("sound")).collect();
        prop_assert_eq!(&back, &rows);
        let sums = reader.totals().expect("sound");
        let mut failures = BTreeMap::new();
        for (name, expected) in &totals {
            prop_assert_eq!(figures(&sums[name]), figures(expected));
            prop_assert_eq!(sums[name].failures(), expected.failures());
            prop_assert_eq!(sums[name].seconds(), expected.seconds());
            for (reason, count) in expected.failures() {
                failures.insert((name.clone(), reason.clone()), *count);
            }
        }
        let found = reader.failures().expect("sound").into_iter();
        let found: BTreeMap<_, _> = found.map(|f| ((f.subject, f.reason), f.count)).collect();
        prop_assert_eq!(found, failures);
    }

    #[test]
    fn damaged_file_does_not_panic(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let (_directory, path) = temporary_path();
        let file = RunFile::create(&path, &header()).expect("a new file");
        (0..20).for_each(|index| file.window(lossy(index)));
        file.event(EventRow::default());
        file.finish().expect("nothing is in its way");
        let mut bytes = std::fs::read(&path).expect("it is there");
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        std::fs::write(&path, bytes).expect("there is room");
        if let Ok(reader) = Reader::open(&path, catalogue) {
            let _ = reader.totals();
            let _ = reader.failures();
            let _ = reader.verdict();
            let _ = reader.events().count() + reader.clients().count() + reader.served().count();
        }
    }
}

#[test]
fn decreasing_row_number_is_an_error() {
    let (_directory, path) = temporary_path();
    let file = RunFile::create(&path, &header()).expect("a new file");
    (0..20).for_each(|index| file.window(lossy(index)));
    file.finish().expect("nothing is in its way");
    let root: usize = Connection::open(&path)
        .and_then(|database| {
            let sql = "SELECT rootpage FROM sqlite_master WHERE name = 'window'";
            database.query_row(sql, [], |row| row.get::<_, i64>(0))
        })
        .map(|page| page as usize)
        .expect("it has a page");

    // A leaf cell is the length of the payload, the row number and the payload
    // (https://www.sqlite.org/fileformat2.html, "B-tree Pages").
    let mut bytes = std::fs::read(&path).expect("it is there");
    let number =
        |bytes: &[u8], at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let page = (root - 1) * number(&bytes, 16);
    assert_eq!(
        (bytes[page], number(&bytes, page + 3)),
        (13, 20),
        "a leaf with all rows"
    );
    let last = page + number(&bytes, page + 8 + 2 * 19);
    assert_eq!(bytes[last + 1], 19, "the last window's number");
    bytes[last + 1] = 5;
    std::fs::write(&path, bytes).expect("there is room");

    let reader = read(&path);
    let rows: Vec<_> = reader.windows().take(100).collect();
    assert_eq!(rows.len(), 20);
    assert!(rows[..19].iter().all(Result::is_ok));
    let error = rows[19].as_ref().expect_err("it leads back").to_string();
    assert!(
        error.contains("the row numbered 5 comes after the one numbered 18"),
        "{error}"
    );
    assert!(reader.totals().is_err());
}

#[test]
fn clients_events_and_header_read_back_unchanged() {
    let (directory, path) = temporary_path();
    let file = RunFile::create(&path, &header()).expect("a new file");
    let client = |id: u64| ClientRow {
        id,
        subject: "viewers".to_owned(),
        slot: 3,
        generation: 1,
        url: format!("rtsp://127.0.0.1/{id}"),
        due: Time::from_nanos(5),
        begun: Some(Time::from_nanos(6)),
        outcome: Some(ClientOutcome::Failed),
        reason: Some("status_404".to_owned()),
        detail: Some("DESCRIBE: 404 Not Found".to_owned()),
        streams: serde_json::json!([{"expected": 7}]),
        ..ClientRow::default()
    };
    for id in 0..600 {
        file.client(ClientRow {
            outcome: None,
            ..client(id)
        });
        file.client(client(id));
    }
    let event = |number: u64| EventRow {
        time: Time::from_nanos(number),
        kind: "note".to_owned(),
        subject: number.is_multiple_of(2).then(|| "viewers".to_owned()),
        text: format!("number {number}"),
    };
    (0..300).for_each(|number| file.event(event(number)));
    file.served(serde_json::json!({"sent": 5}));
    file.note(fact::RECEIVE_PATH.of(&"ring".to_owned()));
    let verdict = Verdict::decide(
        &[],
        VerdictInput {
            invalid: vec!["too slow".to_owned()],
            stopped_by_user: true,
            ..VerdictInput::default()
        },
    );
    file.verdict(&verdict, &[]);
    assert_eq!(file.finish().expect("no error"), path);

    let plain: Vec<_> = std::fs::read_dir(directory.path())
        .expect("it is there")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert_eq!(plain, ["a run.db"], "one plain file is left");

    let reader = read(&path);
    assert!(reader.is_finished().expect("sound"));
    let (ours, theirs) = (header(), reader.header());
    assert_eq!(theirs.version, ours.version);
    assert_eq!(theirs.scenario, ours.scenario);
    assert_eq!(theirs.machine, ours.machine);
    assert_eq!(theirs.seed, ours.seed);
    assert_eq!(theirs.started_at, ours.started_at);
    assert_eq!(theirs.warm_up, ours.warm_up);
    assert_eq!(theirs.subjects[1].name, "others");
    let clients: Vec<ClientRow> = reader.clients().map(|row| row.expect("sound")).collect();
    assert_eq!(clients, (0..600).map(client).collect::<Vec<_>>());
    let events: Vec<EventRow> = reader.events().map(|row| row.expect("sound")).collect();
    assert_eq!(events, (0..300).map(event).collect::<Vec<_>>());
    assert_eq!(reader.served().count(), 1);
    assert_eq!(
        reader.fact(&fact::RECEIVE_PATH).expect("sound"),
        Some("ring".to_owned())
    );
    assert_eq!(reader.verdict().expect("sound"), Some((verdict, vec![])));
}

#[test]
fn existing_file_is_not_overwritten_unless_requested() {
    let (_directory, path) = temporary_path();
    let file = RunFile::create(&path, &header()).expect("a new file");
    let again = RunFile::create(&path, &header());
    assert!(
        matches!(again, Err(RunFileError::Exists { .. })),
        "{again:?}"
    );
    let stolen = RunFile::create_over(&path, &header());
    assert!(
        matches!(stolen, Err(RunFileError::InUse { .. })),
        "{stolen:?}"
    );
    file.finish().expect("no error");
    let over = RunFile::create_over(&path, &header()).expect("an old run file");
    over.window(lossy(0));
    over.finish().expect("no error");
    assert_eq!(read(&path).windows().count(), 1);

    for text in [
        "my thesis",
        "SQLite format 3\0 but not ours, and long enough to hold an id ........",
    ] {
        std::fs::write(&path, text).expect("there is room");
        for made in [
            RunFile::create(&path, &header()),
            RunFile::create_over(&path, &header()),
        ] {
            assert!(
                matches!(made, Err(RunFileError::Foreign { .. })),
                "{made:?}"
            );
        }
        assert_eq!(std::fs::read(&path).expect("still there"), text.as_bytes());
    }
}

#[test]
fn discarded_file_leaves_nothing() {
    let (directory, path) = temporary_path();
    let file = RunFile::create(&path, &header()).expect("a new file");
    file.window(lossy(0));
    file.flush().expect("there is room");
    file.discard();
    let left = std::fs::read_dir(directory.path()).expect("it is there");
    assert_eq!(left.count(), 0);
}

#[test]
fn creation_error_names_the_path() {
    let error = RunFile::create(Path::new("/nowhere/at/all.run"), &header()).expect_err("no place");
    assert_eq!(
        error.to_string(),
        "/nowhere/at/all.run: the run file cannot be created: there is no such file or directory; name another place with `-o`"
    );
}

#[test]
fn full_disk_keeps_committed_windows() {
    let (_directory, path) = temporary_path();
    let file = RunFile::create_with_page_limit(&path, &header(), Some(40)).expect("a new file");
    let mut index = 0;
    let error = loop {
        let mut row = lossy(index);
        row.subjects.get_mut("viewers").expect("in it").failures =
            BTreeMap::from([("x".repeat(3000), 1)]);
        file.window(row);
        index += 1;
        if let Err(error) = file.flush() {
            break error;
        }
        assert!(index < 1000, "40 pages do not hold so much");
    };
    let RunFileError::DiskFull { windows, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(windows, index - 1);
    assert!(windows > 0);
    assert!(error.to_string().contains("the disk is full"), "{error}");
    // Further rows are dropped without blocking the caller.
    for index in index..index + 2000 {
        file.window(lossy(index));
    }
    assert!(file.error().is_some());
    assert!(file.finish().is_err());
    let reader = read(&path);
    assert_eq!(reader.windows().count() as u64, windows);
    assert!(!reader.is_finished().expect("sound"));
    assert_eq!(reader.verdict().expect("sound"), None);
}

#[test]
fn run_in_progress_can_be_read() {
    let (_directory, path) = temporary_path();
    let file = RunFile::create(&path, &header()).expect("a new file");
    file.window(lossy(0));
    file.flush().expect("no error");
    let reader = read(&path);
    assert_eq!(reader.windows().count(), 1);
    assert!(!reader.is_finished().expect("sound"));
    file.window(lossy(1));
    file.flush().expect("no error");
    assert_eq!(reader.windows().count(), 2);
    drop(reader);
    // Dropped without `finish`.
    drop(file);
    let reader = read(&path);
    assert_eq!(reader.windows().count(), 2);
    assert!(!reader.is_finished().expect("sound"));
}

#[test]
fn other_files_are_rejected() {
    let (directory, path) = temporary_path();
    let open = |path: &Path| Reader::open(path, catalogue).expect_err("refused");
    assert!(matches!(open(&path), RunFileError::Missing { .. }));
    assert!(matches!(open(directory.path()), RunFileError::Open { .. }));
    std::fs::write(&path, "").expect("there is room");
    assert!(matches!(open(&path), RunFileError::Empty { .. }));
    for text in ["hello", &"no database ".repeat(1000)] {
        std::fs::write(&path, text).expect("there is room");
        let error = open(&path);
        assert!(
            matches!(error, RunFileError::NotARunFile { .. }),
            "{error:?}"
        );
    }
    std::fs::remove_file(&path).expect("it is there");
    let other = Connection::open(&path).expect("a new database");
    other.execute_batch("CREATE TABLE t (x)").expect("a table");
    drop(other);
    assert!(matches!(open(&path), RunFileError::NotARunFile { .. }));
    std::fs::remove_file(&path).expect("it is there");

    RunFile::create(&path, &header())
        .expect("a new file")
        .finish()
        .expect("no error");
    let unknown = Reader::open(&path, |_| None).expect_err("no catalogue");
    assert!(
        matches!(unknown, RunFileError::UnknownKind { .. }),
        "{unknown:?}"
    );
    let database = Connection::open(&path).expect("a database");
    database
        .pragma_update(None, "user_version", VERSION + 1)
        .expect("set");
    drop(database);
    let newer = open(&path);
    assert!(
        newer.to_string().contains("use a newer streamgauge"),
        "{newer}"
    );
}

#[test]
fn figures_of_another_catalogue_are_read_by_name() {
    let (_directory, path) = temporary_path();
    let file = RunFile::create(&path, &header()).expect("a new file");
    let mut row = lossy(2);
    let viewers = row.subjects.get_mut("viewers").expect("in it");
    viewers.gauges = vec![Some(1.0), Some(2.5)];
    let mut length = Histogram::new();
    length.record(77);
    viewers.histograms =
        BTreeMap::from([(LENGTH, length.to_sparse()), (DELAY, length.to_sparse())]);
    file.window(row);
    file.finish().expect("no error");

    let reader = Reader::open(&path, |_| Some(Catalogue(&later::GROUPS))).expect("it fits by name");
    assert_eq!(reader.subjects()[0].absent, ["new"]);
    assert_eq!(
        reader.subjects()[0].unknown,
        ["expected", "active", "delay"]
    );
    let totals = &reader.totals().expect("sound")["viewers"];
    assert_eq!(totals.named("received", Statistic::Value), Some(99.0));
    assert_eq!(totals.named("rare", Statistic::Max), Some(2.5));
    assert_eq!(totals.named("length", Statistic::Max), Some(77.0));
    assert_eq!(later::LENGTH, HistogramId(0));
}

#[test]
fn views_and_docs_are_readable_with_plain_sqlite() {
    let (_directory, path) = temporary_path();
    let file = RunFile::create(&path, &header()).expect("a new file");
    (0..3).for_each(|index| file.window(lossy(index)));
    file.finish().expect("no error");
    let database = Connection::open(&path).expect("a database");
    let one = |sql: &str| -> String {
        database
            .query_row(sql, [], |row| row.get(0))
            .expect("one row")
    };
    let sum = "SELECT CAST(sum(value) AS TEXT) FROM counter \
               WHERE subject = 'viewers' AND metric = 'received'";
    assert_eq!(one(sum), "297");
    let doc = "SELECT value ->> 'doc' FROM subject, json_each(catalogue, '$.metrics') \
               WHERE name = 'viewers' AND value ->> 'name' = 'loss'";
    assert_eq!(one(doc), "Share lost.");
}

#[test]
fn leftover_log_can_be_read_from_a_copy() {
    let (directory, path) = temporary_path();
    let file = RunFile::create(&path, &header()).expect("a new file");
    file.window(lossy(0));
    file.flush().expect("no error");
    // The state after a kill: a database and its log, but no index.
    let copy = directory.path().join("left");
    std::fs::copy(&path, &copy).expect("there is room");
    let log = |path: &Path| open::companion(path, "-wal");
    std::fs::copy(log(&path), log(&copy)).expect("there is room");
    let copied = open::copy(&copy).expect("there is room");
    assert_eq!(read(&copied.path().join("copy")).windows().count(), 1);
    let before = [&copy, &log(&copy)].map(|path| std::fs::read(path).expect("it is there"));
    assert_eq!(read(&copy).windows().count(), 1);
    let after = [&copy, &log(&copy)].map(|path| std::fs::read(path).expect("it is there"));
    assert!(before == after, "reading changes nothing");
}

//! A killed run loses at most its last second.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use measure::{TESTER_CATALOGUE, Time, Window, tester};
use runfile::{ClientRow, Header, Machine, Reader, RunFile, SubjectHeader, WindowRow};

/// Path of the run file in the process that is killed; set only there.
const PATH: &str = "RUNFILE_TEST_KILLED_PATH";
const READY: &str = "ready to be killed";
const WINDOWS: u64 = 1500;

fn write_until_killed(path: &str) {
    let header = Header {
        version: "0".to_owned(),
        scenario: serde_json::Value::Null,
        machine: Machine::default(),
        seed: 1,
        started_at: Duration::from_secs(1),
        warm_up: Duration::ZERO,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: vec![SubjectHeader {
            name: "tester".to_owned(),
            kind: "tester".to_owned(),
            catalogue: TESTER_CATALOGUE,
        }],
    };
    let file = RunFile::create(path.as_ref(), &header).expect("a new file");
    for index in 0..WINDOWS {
        let mut window = Window::empty(TESTER_CATALOGUE);
        window.counters[usize::from(tester::SENDS_FAILED.0)] = 2;
        file.window(WindowRow {
            index,
            start: Time::from_nanos(index),
            seconds: 1.0,
            subjects: BTreeMap::from([("tester".to_owned(), window)]),
        });
    }
    file.flush().expect("there is room");
    // Not committed: may be lost.
    file.client(ClientRow::default());
    let mut out = std::io::stdout();
    writeln!(out, "\n{READY}").expect("somebody listens");
    out.flush().expect("somebody listens");
    // Blocks until standard input closes, which happens after the kill.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn killed_run_keeps_committed_windows() {
    if let Ok(path) = std::env::var(PATH) {
        return write_until_killed(&path);
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("killed.run");
    let mut child = Command::new(std::env::current_exe().expect("we run"))
        .args([
            "--exact",
            "killed_run_keeps_committed_windows",
            "--nocapture",
        ])
        .env(PATH, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("we can run ourselves");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = lines.map_while(Result::ok).any(|line| line == READY);
    assert!(ready, "the process ended before its time");
    child.kill().expect("it lives");
    child.wait().expect("it is ours");

    assert!(directory.path().join("killed.run-wal").exists());
    let catalogue = |kind: &str| (kind == "tester").then_some(TESTER_CATALOGUE);
    let reader = Reader::open(&path, catalogue).expect("a run file");
    assert!(!reader.is_finished().expect("sound"));
    assert_eq!(reader.windows().count() as u64, WINDOWS);
    let totals = &reader.totals().expect("sound")["tester"];
    assert_eq!(totals.counter(tester::SENDS_FAILED), 2 * WINDOWS as i64);
}

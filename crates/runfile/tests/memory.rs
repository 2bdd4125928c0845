//! Memory does not grow with the length of a run, neither in writing nor in reading.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::time::Duration;

use measure::totals::Statistic;
use measure::{Histogram, TESTER_CATALOGUE, Time, Window, tester};
use runfile::{Header, Machine, Reader, RunFile, SubjectHeader, WindowRow};

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split(' ').nth(1).expect("the second figure");
    pages.parse::<usize>().expect("a number") * 4096
}

#[test]
fn hour_takes_hardly_more_memory_than_a_minute() {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 3600;
    /// Far below the 50 MiB that an hour of windows takes.
    const GROWTH: usize = 12 << 20;

    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("hour.run");
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
    let mut histogram = Histogram::new();
    (0..1000u64).for_each(|step| histogram.record(step * step * 1000));
    let lag = histogram.to_sparse();
    assert!(lag.buckets.len() > 900, "{}", lag.buckets.len());

    let file = RunFile::create(&path, &header).expect("a new file");
    let mut after_a_minute = 0;
    for index in 0..HOUR {
        let mut window = Window::empty(TESTER_CATALOGUE);
        window.histograms = BTreeMap::from([(tester::LAG, lag.clone())]);
        file.window(WindowRow {
            index,
            start: Time::from_nanos(index),
            seconds: 1.0,
            subjects: BTreeMap::from([("tester".to_owned(), window)]),
        });
        // At most a minute of windows is queued; a real run queues one or two rows.
        if index % MINUTE == 0 {
            file.flush().expect("there is room");
        }
        if index == MINUTE {
            after_a_minute = resident();
        }
    }
    file.flush().expect("there is room");
    let written = resident();
    file.finish().expect("there is room");
    assert!(
        written < after_a_minute + GROWTH,
        "writing: from {after_a_minute} to {written} bytes"
    );

    let catalogue = |kind: &str| (kind == "tester").then_some(TESTER_CATALOGUE);
    let reader = Reader::open(&path, catalogue).expect("a run file");
    let before = resident();
    let mut windows = 0;
    for row in reader.windows() {
        windows += row.expect("sound").subjects.len() as u64;
    }
    let read = resident();
    assert_eq!(windows, HOUR);
    assert!(
        read < before + GROWTH,
        "reading: from {before} to {read} bytes"
    );
    let totals = &reader.totals().expect("sound")["tester"];
    let metric = TESTER_CATALOGUE.find("lag").expect("it is one");
    let count = totals.figure(metric, Statistic::Count);
    assert_eq!(count, Some((HOUR * 1000) as f64));
}

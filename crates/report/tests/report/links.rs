//! Reports of runs over an emulated link.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kit::media::rtp::metrics as rtp;
use measure::{
    Catalogue, LINK_CATALOGUE, Recorder, SERVER_CATALOGUE, TESTER_CATALOGUE, Time, link,
};
use protocols::PROTOCOLS;
use report::{Layout, Report, html, source, summary};
use runfile::{Fact, Header, Machine, RunFile, SubjectHeader, WindowRow};
use serde_json::{Value, json};

use crate::catalogue_of;

/// Creates a run in which the link loses 60 packets in window 1 and drops one by its own fault.
/// These packets are missed in window 2, and the server loses another 3.
fn make(path: &Path) {
    make_with(path, &[120]);
}

/// Creates a run with frames of these delays, in milliseconds.
fn make_with(path: &Path, frames: &[u64]) {
    let subjects = [
        ("viewers", "rtsp"),
        ("tester", "tester"),
        ("uplink", "uplink"),
        ("downlink", "downlink"),
    ];
    let header = Header {
        version: "0.1.0".to_owned(),
        scenario: json!({"name": "far away", "varied": [{"key": "link.rtt", "value": "178ms"}]}),
        machine: Machine::default(),
        seed: 7,
        started_at: Duration::from_secs(1_798_761_599),
        warm_up: Duration::ZERO,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: subjects
            .map(|(name, kind)| SubjectHeader {
                name: name.to_owned(),
                kind: kind.to_owned(),
                catalogue: catalogue_of(kind).expect("it is a known kind"),
            })
            .to_vec(),
    };
    let file = RunFile::create(path, &header).expect("a run file can be made");
    file.note(
        Fact::new("links")
            .of(&json!({"uplink": "RTT 178ms, loss 6%", "downlink": "RTT 178ms, loss 6%"})),
    );
    for index in 0..4 {
        let catalogue = catalogue_of("rtsp").expect("it is there");
        let mut viewers = Recorder::new(catalogue);
        let missed = if index == 2 { 64 } else { 0 };
        viewers.add(rtp::EXPECTED, 1_000);
        viewers.add(rtp::RECEIVED, 1_000 - missed);
        for &delay in frames {
            viewers.record(rtp::FRAME_DELAY, delay * 1_000_000);
        }
        if let [first, .., last] = frames {
            viewers.record(rtp::PLAYOUT_BUFFER, (last - first) * 1_000_000);
        }
        let mut tester = Recorder::new(TESTER_CATALOGUE);
        tester.add(measure::tester::SOFTNET_DROPS, 0);
        let [mut up, mut down] = [(); 2].map(|()| Recorder::new(LINK_CATALOGUE));
        let lost = if index == 1 { 60 } else { 0 };
        up.add(link::PACKETS, 10);
        up.add(link::DELIVERED, 10);
        down.add(link::PACKETS, 1_000);
        down.add(link::DELIVERED, 1_000 - lost);
        down.add(link::LOST, lost);
        down.add(link::LOST_BY_CHANCE, lost);
        down.add(link::OVERLOAD, u64::from(index == 1));
        down.set(link::QUEUE_BYTES, 12_000.0);
        for distribution in [link::PLANNED_DELAY, link::DELAY] {
            down.record(distribution, 89_000_000);
        }
        down.record(link::LATENESS, 30_000);
        file.window(WindowRow {
            index,
            start: Time::from_start(Duration::from_secs(index)),
            seconds: 1.0,
            subjects: BTreeMap::from([
                ("viewers".to_owned(), viewers.take_window()),
                ("tester".to_owned(), tester.take_window()),
                ("uplink".to_owned(), up.take_window()),
                ("downlink".to_owned(), down.take_window()),
            ]),
        });
    }
    file.finish().expect("the run file can be finished");
}

fn with_report<T>(work: impl FnOnce(&Report, &report::Reader) -> T) -> T {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("far.run");
    make(&path);
    let reader = report::open(&path, catalogue_of).expect("it is a run file");
    let report = Report::from_run(&reader).expect("it can be reported");
    work(&report, &reader)
}

#[test]
fn summary_shows_link_losses_next_to_client_losses() {
    let text = with_report(|report, _| summary(report, Layout::default()));
    for line in [
        "lost by               emulated link 61 (95.31 %), server 3, tester 0",
        "link  RTT 178ms, loss 6%",
        "uplink                40 packets, none lost",
        "downlink              4,000 packets, 60 lost (1.5 %): 60 by chance; 1",
        "queue up to 11.7 KiB; delay p50 89 ms (planned 89 ms)",
    ] {
        assert!(text.contains(line), "no `{line}` in:\n{text}");
    }
    let all = with_report(|report, _| {
        let everything = Layout {
            verbose: true,
            ..Layout::default()
        };
        summary(report, everything)
    });
    assert!(all.contains("every metric of downlink"), "{all}");
}

#[test]
fn json_report_with_links_matches_the_schema() {
    let written = with_report(|report, reader| {
        let mut out = Vec::new();
        report::json::write(report, source::windows(reader), &mut out).expect("memory takes it");
        serde_json::from_slice::<Value>(&out).expect("it is JSON")
    });
    let down = &written["links"]["downlink"];
    assert_eq!(down["link"], "RTT 178ms, loss 6%");
    assert_eq!(down["metrics"]["lost_by_chance"], 60);
    assert_eq!(written["windows"][1]["links"]["downlink"]["lost"], 60);
    assert_eq!(written["windows"][1]["links"]["uplink"]["packets"], 10);
    let populations = written["populations"].as_object().expect("an object");
    assert_eq!(populations.len(), 1);
    let lost = &populations["viewers"]["where_lost"];
    assert_eq!(
        (&lost["on_link"], &lost["elsewhere"]),
        (&json!(61), &json!(3))
    );
    let protocols: Vec<Catalogue> = PROTOCOLS.iter().map(|one| one.catalogue).collect();
    let schema = report::schema::report_schema(&protocols, SERVER_CATALOGUE, TESTER_CATALOGUE);
    let validator = jsonschema::validator_for(&schema).expect("it is a schema");
    let errors: Vec<String> = validator
        .iter_errors(&written)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn markdown_has_a_line_for_each_direction() {
    let text = with_report(|report, _| {
        let mut out = Vec::new();
        report::markdown::write(report, &mut out).expect("a vector takes all");
        String::from_utf8(out).expect("it is UTF-8")
    });
    let line = "**downlink** (RTT 178ms, loss 6%): 4,000 packets, 60 lost (1.5 %): 60 by chance;";
    assert!(text.contains(line), "{text}");
}

#[test]
fn the_table_of_a_series_has_the_loss_of_the_link() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    make(&folder.path().join("one.run"));
    let series = report::series::Series::open(folder.path(), catalogue_of);
    let series = series.expect("it is a series");
    let figures = series.runs[0].figures.as_ref().expect("it was measured");
    assert_eq!(figures.link_loss, Some(0.015));
    let delay = figures.delay.expect("time codes came over a link");
    // Without publishers, the uplink carries no media.
    assert_eq!((delay.media, delay.link, delay.rest), (0.12, 0.089, 0.031));
    assert_eq!(
        (delay.sender, delay.buffer, delay.viewer),
        (None, None, None)
    );
    let table = report::series::table(&series, Layout::default());
    assert!(table.contains("loss %") && table.contains("1.5"), "{table}");
}

#[test]
fn viewer_delay_counts_no_wait_twice() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    make_with(&folder.path().join("one.run"), &[120, 220, 320]);
    let series = report::series::Series::open(folder.path(), catalogue_of);
    let series = series.expect("it is a series");
    let figures = series.runs[0].figures.as_ref().expect("it was measured");
    let delay = figures.delay.expect("time codes came over a link");
    let near = |found: f64, expected: f64| (found - expected).abs() < 0.001 * expected;
    assert!(near(delay.media, 0.22), "{delay:?}");
    assert!(
        delay.buffer.is_some_and(|buffer| near(buffer, 0.2)),
        "{delay:?}"
    );
    // The first frame arrived after 120 ms and played 200 ms later, when the last one arrived.
    assert!(
        delay.viewer.is_some_and(|viewer| near(viewer, 0.32)),
        "{delay:?}"
    );
}

#[test]
fn tables_have_rows_of_links() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    with_report(|_, reader| {
        let open =
            |table: report::csv::Table| std::fs::File::create(folder.path().join(table.file));
        let mut tables = report::csv::TableWriter::begin(open).expect("there is room");
        tables.add("far", reader).expect("it can be written");
        tables.end().expect("it can be written");
    });
    let text = std::fs::read_to_string(folder.path().join("windows.csv")).expect("it is there");
    assert!(
        text.contains("far,1,1,downlink,lost,value,60,false\n"),
        "{text}"
    );
}

#[test]
fn page_attributes_a_late_noticed_outage_to_the_link() {
    let page = with_report(|report, reader| {
        let mut page = Vec::new();
        html::write(report, reader, &mut page).expect("a vector takes all");
        String::from_utf8(page).expect("it is UTF-8")
    });
    let begins = "<script type=\"application/json\" id=\"data\">";
    let from = page.find(begins).expect("there is data") + begins.len();
    let to = from + page[from..].find("</script").expect("it ends");
    let data: Value = serde_json::from_str(&page[from..to]).expect("it is JSON");
    let run = &data["runs"][0];
    assert_eq!(run["links"][1]["name"], "downlink");
    assert_eq!(run["links"][1]["asked"], "RTT 178ms, loss 6%");
    let charts = run["course"]["charts"].as_array().expect("there are some");
    let loss = charts
        .iter()
        .find(|chart| chart["title"] == "Loss, by where it happened")
        .expect("it is drawn");
    let values = |label: &str| {
        let lines = loss["lines"].as_array().expect("there are some").iter();
        let line = lines.clone().find(|line| line["label"] == label);
        line.unwrap_or_else(|| panic!("no {label}: {loss}"))["values"].clone()
    };
    assert_eq!(values("on the emulated link"), json!([0, 0, 0.061, 0]));
    assert_eq!(
        values("in the network or the server"),
        json!([0, 0, 0.003, 0])
    );
}

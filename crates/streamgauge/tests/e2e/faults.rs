//! Runs against a server with injected faults: every count equals what the server really did.

use crate::support::{Counts, Process, RUN_TIMEOUT, Report, Server, folder, streamgauge};

/// Number of clients that play at a time.
const CLIENTS: u64 = 8;

/// Media of three seconds, whose sequence numbers wrap around after the first 36 packets.
const MEDIA: [&str; 8] = [
    "--length",
    "3s",
    "--bitrate",
    "400kbps",
    "--first-seq",
    "65500",
    "--seed",
    "11",
];

/// Plays everything to its end over `transport`, and compares the counts with the server's report.
fn found_exactly(transport: &str, faults: &[&str]) -> (Report, Counts) {
    let folder = folder();
    let mut arguments = MEDIA.to_vec();
    for fault in faults {
        arguments.extend(["--fault", fault]);
    }
    let server = Server::start(folder.path(), &arguments);
    let clients = CLIENTS.to_string();
    let (url, json) = (server.url(), folder.path().join("load.json"));
    let mut load = streamgauge([
        "load",
        &url,
        "-c",
        &clients,
        "--transport",
        transport,
        "--seed",
        "3",
        "--json",
        "load.json",
    ]);
    // The media ends with BYE. A pause of the server near its end is not the end.
    load.env("STREAMGAUGE_CLIENTS__VIEWERS__END_SILENCE", "10s");
    Process::start(load, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    let (streams, done) = server.stop();
    let report = Report::read(&json);
    report.tester_was_fit();
    assert_eq!(
        streams.len() as u64,
        CLIENTS,
        "one line a stream of a session"
    );
    assert_eq!(
        report.clients("completed"),
        CLIENTS,
        "{}",
        report.0["populations"]
    );
    assert_eq!(report.counts(), done, "{transport} {faults:?}");
    assert!(
        streams
            .iter()
            .all(|stream| stream["last_left_extended_seq"].as_u64() > Some(65_535)),
        "the numbers of every stream wrap around"
    );
    (report, done)
}

#[test]
fn udp_clean() {
    let (report, done) = found_exactly("udp", &[]);
    assert_eq!(report.metric("timed_by_reading"), 0);
    assert_eq!((done.lost, done.duplicated, done.reordered), (0, 0, 0));
}

#[test]
fn udp_loss() {
    let (_, done) = found_exactly("udp", &["loss=5%"]);
    assert!(done.lost > 0 && done.duplicated == 0, "{done:?}");
}

#[test]
fn udp_loss_in_bursts() {
    let (report, done) = found_exactly("udp", &["loss-burst=2%x4"]);
    assert!(done.lost > 0, "{done:?}");
    assert!(report.metric("loss_burst_length")["max"].as_f64() >= Some(4.0));
}

#[test]
fn udp_duplicates() {
    let (_, done) = found_exactly("udp", &["duplicate=5%"]);
    assert!(done.duplicated > 0 && done.lost == 0, "{done:?}");
}

#[test]
fn udp_reordering() {
    let (_, done) = found_exactly("udp", &["reorder=5%x3"]);
    assert!(done.reordered > 0 && done.lost == 0, "{done:?}");
}

#[test]
fn udp_all_at_once() {
    let faults = ["loss=3%", "duplicate=3%", "reorder=3%x2", "jitter=3ms"];
    let (_, done) = found_exactly("udp", &faults);
    assert!(
        done.lost > 0 && done.duplicated > 0 && done.reordered > 0,
        "{done:?}"
    );
}

#[test]
fn tcp_clean() {
    let (report, done) = found_exactly("tcp", &[]);
    // Without a packet ring more packets are timed by reading, but not if each read brings one
    // segment.
    let (by_reading, received) = (report.metric("timed_by_reading"), report.metric("received"));
    assert!(by_reading.as_f64() < Some(received.as_f64().expect("a count") / 2.0));
    assert_eq!((done.lost, done.duplicated, done.reordered), (0, 0, 0));
}

#[test]
fn tcp_all_at_once() {
    let (_, done) = found_exactly("tcp", &["loss=3%", "duplicate=3%", "reorder=3%x2"]);
    assert!(
        done.lost > 0 && done.duplicated > 0 && done.reordered > 0,
        "{done:?}"
    );
}

#[test]
fn the_same_seed_makes_the_same_faults() {
    let (_, first) = found_exactly("udp", &["loss=5%", "duplicate=5%"]);
    let (_, second) = found_exactly("udp", &["loss=5%", "duplicate=5%"]);
    assert_eq!(first, second);
}

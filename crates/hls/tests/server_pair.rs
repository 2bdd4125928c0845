//! Players against the reference server, in virtual time over a virtual network: each fault is
//! found as often as it was injected.

use std::sync::Arc;
use std::time::Duration;

use hls::PROTOCOL;
use hls::client::Client;
use hls::config::{ClientConfig, LowLatency, VariantChoice};
use hls::metrics as m;
use hls::server::{ServedConnection, Server, ServerConfig};
use kit::faults::FaultSet as _;
use kit::http1::Url;
use kit::mediagen::segments::Container;
use measure::units::{BitRate, TimeSpan};
use measure::{CounterId, HistogramId};
use session::testing::{Pair, PairSettings, RunEnd, SessionNumber, Side};
use session::{Outcome, Output, Record};

const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);
const LENGTH: Duration = Duration::from_secs(40);

/// A server with segments of 2 s, and 40 s of live media after the full playlist that it begins
/// with.
fn server(faults: &[&str]) -> ServerConfig {
    let mut config = ServerConfig {
        bitrate: 200_000,
        length: Some(LENGTH),
        wall_clock: WALL_CLOCK,
        ..ServerConfig::default()
    };
    for fault in faults {
        config.faults.add(fault).expect("it is one");
    }
    config
}

/// A server with five parts in each segment.
fn server_with_parts(faults: &[&str]) -> ServerConfig {
    ServerConfig {
        container: Container::FragmentedMp4,
        part: Some(Duration::from_millis(400)),
        ..server(faults)
    }
}

/// A finished run: the client's figures, and the server's report.
struct Run {
    pair: Pair,
    served: Vec<ServedConnection>,
    notes: Vec<&'static str>,
}

impl Run {
    fn new(server: ServerConfig, config: ClientConfig, path: &str) -> Run {
        let server = Server::new(server).expect("it is valid");
        let mut settings = PairSettings::new(1, PROTOCOL.catalogue);
        settings.port = 80;
        let url = Url::parse(&format!("http://server{path}")).expect("a URL");
        let client = Client::new(Arc::new(config), url, Some(WALL_CLOCK));
        let mut pair = Pair::new(settings, Box::new(client), move |number| {
            server.session(number.0 as u64)
        });
        assert_eq!(pair.run(Duration::from_secs(200)), RunEnd::Ended);
        let (mut served, mut notes) = (Vec::new(), Vec::new());
        for (_, output) in pair.outputs() {
            match output {
                Output::Record(record) => served.push(connection(record)),
                Output::Note(note) => notes.push(note.kind),
                _ => {}
            }
        }
        Run {
            pair,
            served,
            notes,
        }
    }

    fn outcome(&self) -> &Outcome {
        self.pair.outcome(SessionNumber(0)).expect("it has ended")
    }

    #[track_caller]
    fn assert_ended_by_server(&self) {
        let outcome = self.outcome();
        let is_it = matches!(outcome, Outcome::EndedByServer { in_order: true, .. });
        assert!(is_it, "{outcome:?}");
    }

    fn reason(&self) -> &'static str {
        match self.outcome() {
            Outcome::Failed(failure) => failure.reason,
            other => panic!("{other:?}"),
        }
    }

    fn count(&mut self, counter: CounterId) -> u64 {
        self.pair.recorder(Side::Client).counter(counter)
    }

    /// Number of values, and the largest in milliseconds.
    fn recorded(&mut self, histogram: HistogramId) -> (u64, f64) {
        let recorded = self.pair.recorder(Side::Client).histogram(histogram);
        recorded.map_or((0, 0.0), |own| {
            (own.count(), own.max().unwrap_or(0) as f64 / 1e6)
        })
    }

    /// Sum over all connections.
    fn sum(&self, of: impl Fn(&ServedConnection) -> u64) -> u64 {
        self.served.iter().map(of).sum()
    }

    /// Checks that both sides count the same.
    #[track_caller]
    fn assert_agreement(&mut self) {
        let pairs: [(CounterId, u64); 8] = [
            (m::REQUESTS, self.sum(|own| own.requests)),
            (m::PLAYLISTS, self.sum(|own| own.playlists)),
            (m::RELOADS, self.sum(|own| own.reloads)),
            (m::PLAYLISTS_DELTA, self.sum(|own| own.deltas)),
            (m::SEGMENTS, self.sum(|own| own.segments + own.parts)),
            (m::PARTS, self.sum(|own| own.parts)),
            (m::DISCONTINUITIES, self.sum(|own| own.discontinuities)),
            (m::PAYLOAD_BYTES, self.sum(|own| own.bytes)),
        ];
        for (counter, served) in pairs {
            assert_eq!(self.count(counter), served, "{counter:?}");
        }
        // The connection of a hint that turns out to be wrong is closed.
        assert!(self.sum(|own| own.unfinished) <= self.count(m::HINTS_WASTED));
    }
}

fn connection(record: &Record) -> ServedConnection {
    let served = record.downcast_ref::<ServedConnection>();
    served.expect("it is one").clone()
}

const PATH: &str = "/a/index.m3u8";

fn usual() -> ClientConfig {
    ClientConfig::default()
}

#[test]
fn live_segments_are_played_as_they_are_made() {
    for container in [Container::MpegTs, Container::FragmentedMp4] {
        let config = ServerConfig {
            container,
            ..server(&[])
        };
        let mut run = Run::new(config, usual(), PATH);
        run.assert_ended_by_server();
        run.assert_agreement();
        // Three before the start, and 20 after it.
        assert_eq!(run.count(m::SEGMENTS), 23);
        assert_eq!(run.count(m::SEGMENTS_DUE), 23);
        assert_eq!(run.count(m::STALLS), 0);
        assert_eq!(run.count(m::PLAYLISTS_STALE), 0);
        let sections = u64::from(container == Container::FragmentedMp4);
        assert_eq!(run.sum(|own| own.initializations), sections);
        // Three segments of 2 s, and a few milliseconds for the requests.
        let (count, latency) = run.recorded(m::LIVE_LATENCY);
        assert_eq!(count, 23);
        assert!((6000.0..6050.0).contains(&latency), "{latency}");
    }
}

#[test]
fn parts_are_played_as_they_are_made() {
    for low_latency in [LowLatency::Hints, LowLatency::Parts] {
        let config = ClientConfig {
            low_latency,
            ..usual()
        };
        let mut run = Run::new(server_with_parts(&[]), config, PATH);
        run.assert_ended_by_server();
        run.assert_agreement();
        // Playback begins with the last whole segment, and 100 parts follow.
        assert_eq!(run.count(m::PARTS), 105);
        assert_eq!(run.count(m::SEGMENTS_DUE), 105);
        assert_eq!(run.count(m::STALLS), 0);
        assert_eq!(run.count(m::RELOADS), 100);
        assert_eq!(run.count(m::RELOADS_LATE), 0);
        assert_eq!(run.count(m::RELOADS_SHORT), 0);
        // The last playlist is whole, because it says that no more follows.
        assert_eq!(run.count(m::PLAYLISTS_DELTA), 99);
        let hinted = match low_latency {
            LowLatency::Hints => 100,
            _ => 0,
        };
        assert_eq!(run.count(m::HINTS_USED), hinted);
        assert_eq!(run.sum(|own| own.hinted), hinted);
        assert_eq!(run.count(m::HINTS_WASTED), 0);
        let (_, latency) = run.recorded(m::LIVE_LATENCY);
        // Three parts from the end.
        assert!((1200.0..1250.0).contains(&latency), "{latency}");
    }
}

#[test]
fn late_and_slow_segments_stall_playback() {
    // Each fifth segment comes 8 s late, or takes so long, while 6 s are buffered at most.
    for (fault, is_late) in [("late=5:8s", true), ("slow=5:8s", false)] {
        let mut run = Run::new(server(&[fault]), usual(), PATH);
        run.assert_ended_by_server();
        run.assert_agreement();
        let faults = run.sum(|own| if is_late { own.late } else { own.slow });
        assert_eq!(run.count(m::SEGMENTS_LATE), faults, "{fault}");
        assert!(faults >= 4, "{faults}");
        let stalls = run.count(m::STALLS);
        assert!((1..=faults).contains(&stalls), "{stalls} of {faults}");
        let (count, longest) = run.recorded(m::STALL_TIME);
        assert_eq!(count, stalls);
        assert!((1900.0..8100.0).contains(&longest), "{longest}");
        assert_eq!(run.count(m::SEGMENTS_FAILED), 0);
    }
}

#[test]
fn missing_segments_gaps_and_discontinuities_are_counted_exactly() {
    for made in [server, server_with_parts] {
        let faults = ["missing=6", "gap=5", "discontinuity=3"];
        let mut run = Run::new(made(&faults), usual(), PATH);
        run.assert_ended_by_server();
        run.assert_agreement();
        let missing = run.sum(|own| own.missing);
        assert!(missing >= 3, "{missing}");
        // A hinted part that is refused is requested again when the playlist lists it.
        let hints = run.count(m::HINTS_WASTED);
        assert_eq!(run.count(m::SEGMENTS_FAILED) + hints, missing);
        // Whole segments are gaps, each of five parts: numbers 9, 14, 19, 24 and 29.
        let is_in_parts = run.count(m::PARTS) > 0;
        let gaps = if is_in_parts { 5 * 5 } else { 5 };
        assert_eq!(run.count(m::SEGMENTS_GAP), gaps);
        assert!(run.count(m::DISCONTINUITIES) >= 3);
        let due = run.count(m::SEGMENTS) + run.count(m::SEGMENTS_FAILED) + gaps;
        assert_eq!(run.count(m::SEGMENTS_DUE), due);
        let failed = run.notes.iter().filter(|kind| **kind == "segment_failed");
        let failed = failed.count() as u64;
        assert_eq!(failed, run.count(m::SEGMENTS_FAILED));
    }
}

#[test]
fn damaged_segments_and_wrong_durations_are_counted_exactly() {
    let recorded = |faults: &[&str]| ServerConfig {
        is_recorded: true,
        ..server(faults)
    };
    let in_fmp4 = |faults: &[&str]| ServerConfig {
        container: Container::FragmentedMp4,
        ..recorded(faults)
    };
    let ts_parts = |faults: &[&str]| ServerConfig {
        container: Container::MpegTs,
        ..server_with_parts(faults)
    };
    type Made<'a> = &'a dyn Fn(&[&str]) -> ServerConfig;
    let all: [(Made<'_>, bool); 5] = [
        (&server, true),
        (&server_with_parts, false),
        (&ts_parts, true),
        (&recorded, true),
        (&in_fmp4, false),
    ];
    for (made, is_ts) in all {
        let faults = ["damaged=7", "wrong-duration=4:700ms", "discontinuity=3"];
        let mut run = Run::new(made(&faults), usual(), PATH);
        let damaged = run.sum(|own| own.damaged);
        assert!(damaged >= 2, "{damaged}");
        assert_eq!(run.count(m::SEGMENTS_DAMAGED), damaged);
        let errors = if is_ts { damaged } else { 0 };
        assert_eq!(run.count(m::CONTINUITY_ERRORS), errors);
        assert_eq!(run.count(m::CONTINUITY_LOST), errors);
        assert_eq!(run.count(m::SYNC_LOSSES), 0);
        let of = |notes: &[&str], kind| notes.iter().filter(|own| **own == kind).count() as u64;
        assert_eq!(of(&run.notes, "segment_damaged"), damaged);
        let wrong = run.count(m::DURATIONS_WRONG);
        assert_eq!(of(&run.notes, "duration_wrong"), wrong);
        // Before a discontinuity, the next segment shows nothing. Parts are not compared.
        let misstated = run.sum(|own| own.misstated);
        let in_parts = run.count(m::PARTS) > 0;
        assert_eq!(misstated == 0, in_parts);
        assert!(
            in_parts || (0 < wrong && wrong < misstated),
            "{wrong}, {misstated}"
        );
        let mut run = Run::new(made(&faults[..2]), usual(), PATH);
        assert_eq!(run.count(m::DURATIONS_WRONG), run.sum(|own| own.misstated));
        let mut clean = Run::new(made(&[]), usual(), PATH);
        let found = [m::SEGMENTS_DAMAGED, m::DURATIONS_WRONG];
        assert_eq!(found.map(|counter| clean.count(counter)), [0, 0]);
    }
}

#[test]
fn time_codes_tell_when_pictures_were_made() {
    for made in [server, server_with_parts] {
        let mut run = Run::new(made(&[]), usual(), PATH);
        let latency = run.recorded(m::LIVE_LATENCY);
        assert!(latency.0 > 0);
        let codes = run.recorded(m::PICTURE_LATENCY);
        assert!(codes.0 >= latency.0, "{codes:?}, {latency:?}");
        // The date of a segment is in whole milliseconds.
        assert!((codes.1 - latency.1).abs() < 2.0, "{codes:?}, {latency:?}");
    }
}

#[test]
fn wrong_hints_are_wasted_and_cost_no_part() {
    let mut run = Run::new(server_with_parts(&["wrong-hint=5"]), usual(), PATH);
    run.assert_ended_by_server();
    run.assert_agreement();
    // 100 parts were hinted, each fifth by a wrong name.
    assert_eq!(run.count(m::HINTS_WASTED), 20);
    assert_eq!(run.count(m::HINTS_USED), 80);
    assert_eq!(run.count(m::PARTS), 105);
    assert_eq!(run.count(m::SEGMENTS_FAILED), 0);
    assert_eq!(run.count(m::STALLS), 0);
}

#[test]
fn server_that_does_not_wait_is_found() {
    let mut run = Run::new(server_with_parts(&["no-wait"]), usual(), PATH);
    run.assert_ended_by_server();
    run.assert_agreement();
    assert!(run.count(m::RELOADS_SHORT) > 20);
    // Hints are refused, unless the part was complete by chance.
    assert!(run.count(m::HINTS_USED) < 5);
    assert_eq!(run.count(m::SEGMENTS_DUE), run.count(m::SEGMENTS));
}

#[test]
fn playlists_that_stand_still_are_found() {
    let mut run = Run::new(server(&["stale=20s:8s"]), usual(), PATH);
    run.assert_ended_by_server();
    run.assert_agreement();
    assert!(run.count(m::PLAYLISTS_STALE) >= 2);
    assert!(run.count(m::STALLS) >= 1);
    // With parts, the requests wait until the playlist changes: 5 s is less than the server may
    // let them wait.
    let mut run = Run::new(server_with_parts(&["stale=20s:5s"]), usual(), PATH);
    run.assert_ended_by_server();
    run.assert_agreement();
    assert_eq!(run.count(m::RELOADS_LATE), 2);
    let (_, longest) = run.recorded(m::RELOAD_DELAY);
    assert!((4500.0..5500.0).contains(&longest), "{longest}");
    assert!(run.count(m::STALLS) >= 1);
}

#[test]
fn recorded_media_is_played_in_the_variant_that_was_chosen() {
    for (variant, at_least, at_most) in [
        (VariantChoice::Highest, 200_000, 280_000),
        (VariantChoice::Lowest, 100_000, 170_000),
    ] {
        let config = ServerConfig {
            variants: 2,
            is_recorded: true,
            ..server(&[])
        };
        let client = ClientConfig { variant, ..usual() };
        let mut run = Run::new(config, client, PATH);
        assert_eq!(run.outcome(), &Outcome::Completed);
        run.assert_agreement();
        assert_eq!(run.count(m::SEGMENTS), 20);
        // A multivariant playlist, and that of the variant.
        assert_eq!(run.count(m::PLAYLISTS), 2);
        let rate = run.count(m::PAYLOAD_BYTES) * 8 / LENGTH.as_secs();
        assert!((at_least..at_most).contains(&rate), "{rate}");
    }
}

#[test]
fn fault_of_a_part_hits_its_segment() {
    let config = ClientConfig {
        low_latency: LowLatency::None,
        ..usual()
    };
    // Every fourteenth part is missing: in segments 8, 11, 13, 16, 19, 22, 25 and 27.
    let mut run = Run::new(server_with_parts(&["missing=14"]), config, PATH);
    run.assert_ended_by_server();
    run.assert_agreement();
    let missing = run.sum(|own| own.missing);
    assert_eq!(run.count(m::SEGMENTS_FAILED), missing);
    assert_eq!(missing, 8);
    assert_eq!(run.count(m::PARTS), 0);
}

#[test]
fn missing_segments_of_recorded_media_are_refused_at_once() {
    let config = ServerConfig {
        is_recorded: true,
        length: Some(Duration::from_secs(120)),
        ..server(&["missing=30"])
    };
    let mut run = Run::new(config, usual(), PATH);
    assert_eq!(run.outcome(), &Outcome::Completed);
    run.assert_agreement();
    assert_eq!(run.count(m::SEGMENTS_FAILED), 2);
    assert_eq!(run.sum(|own| own.missing), 2);
    assert_eq!(run.sum(|own| own.refused), 0);
}

#[test]
fn wrong_answers_have_their_reasons() {
    for (fault, reason) in [
        ("answer=404", "status_404"),
        ("answer=503", "status_5xx"),
        ("answer=html", "bad_playlist"),
        ("answer=redirect", "redirect_loop"),
        ("answer=silent", "timeout_response"),
    ] {
        let config = ClientConfig {
            request_timeout: TimeSpan(Duration::from_secs(2)),
            ..usual()
        };
        let run = Run::new(server(&[fault]), config, PATH);
        assert_eq!(run.reason(), reason, "{fault}");
    }
}

#[test]
fn unknown_paths_are_refused() {
    for path in [
        "/index.m3u8",
        "/a/b.m3u8",
        "/a/1/index.m3u8",
        "/a/0/init.mp4",
        "/a/0/b/index.m3u8",
    ] {
        let run = Run::new(server(&[]), usual(), path);
        assert_eq!(run.reason(), "status_404", "{path}");
        assert_eq!(run.sum(|own| own.refused), 1);
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let wrong = [
        (
            ServerConfig {
                segment: Duration::from_millis(1),
                ..server(&[])
            },
            "--segment",
        ),
        (
            ServerConfig {
                gop: Some(20),
                ..server(&[])
            },
            "--gop",
        ),
        (
            ServerConfig {
                part: Some(Duration::from_secs(3)),
                ..server(&[])
            },
            "--part",
        ),
        (
            ServerConfig {
                is_recorded: true,
                length: None,
                ..server(&[])
            },
            "--length",
        ),
        (
            ServerConfig {
                bitrate: 1000,
                ..server(&[])
            },
            "bit rate",
        ),
    ];
    for (config, named) in wrong {
        let error = Server::new(config).expect_err(named);
        assert!(error.contains(named), "{error}");
    }
}

/// A server of three variants, of about 1.0, 0.5 and 0.3 Mbit/s.
fn server_with_variants(faults: &[&str]) -> ServerConfig {
    ServerConfig {
        bitrate: 800_000,
        variants: 3,
        ..server(faults)
    }
}

fn adaptive(bandwidth: Option<u64>) -> ClientConfig {
    ClientConfig {
        variant: VariantChoice::Adaptive,
        bandwidth: bandwidth.map(BitRate),
        ..usual()
    }
}

#[test]
fn adaptive_player_changes_up_once_on_a_fast_link() {
    for made in [
        server_with_variants(&[]),
        ServerConfig {
            part: Some(Duration::from_millis(500)),
            container: Container::FragmentedMp4,
            ..server_with_variants(&[])
        },
        ServerConfig {
            is_recorded: true,
            ..server_with_variants(&[])
        },
    ] {
        let (is_recorded, in_parts) = (made.is_recorded, made.part.is_some());
        let mut run = Run::new(made, adaptive(None), PATH);
        match is_recorded {
            true => assert_eq!(run.outcome(), &Outcome::Completed),
            false => run.assert_ended_by_server(),
        }
        // The first estimate is 500 kbit/s: it begins with the lowest variant.
        assert_eq!(run.count(m::SWITCHES), 1);
        assert_eq!(run.count(m::SWITCHES_DOWN), 0);
        assert_eq!(run.count(m::STALLS), 0);
        let segments = match (is_recorded, in_parts) {
            (true, _) => 20,
            (false, false) => 23,
            (false, true) => 84,
        };
        assert_eq!(run.count(m::SEGMENTS), segments);
        assert_eq!(run.count(m::SEGMENTS_DUE), segments);
        // Each variant has its own section.
        let sections = if in_parts { 2 } else { 0 };
        assert_eq!(run.sum(|own| own.initializations), sections);
        let bytes = run.sum(|own| own.bytes);
        assert_eq!(run.count(m::PAYLOAD_BYTES), bytes);
        assert!(bytes * 8 / LENGTH.as_secs() > 700_000, "{bytes}");
    }
}

#[test]
fn adaptive_player_stays_below_its_bandwidth() {
    let mut run = Run::new(server_with_variants(&[]), adaptive(Some(900_000)), PATH);
    run.assert_ended_by_server();
    run.assert_agreement();
    assert_eq!(run.count(m::SWITCHES), 0);
    let rate = run.count(m::PAYLOAD_BYTES) * 8 / 46;
    assert!((380_000..650_000).contains(&rate), "{rate}");
}

#[test]
fn adaptive_player_changes_down_if_bodies_are_slow() {
    // The best variant has the bandwidth of its first choice, but 2 s of it take 3 s to arrive.
    let made = server_with_variants(&["slow=1:3s"]);
    let mut run = Run::new(made, adaptive(Some(5_000_000)), PATH);
    run.assert_ended_by_server();
    assert!(run.count(m::SWITCHES_DOWN) >= 1);
    assert_eq!(run.count(m::SWITCHES_DOWN), run.count(m::SWITCHES));
    assert!(run.count(m::STALLS) >= 1);
}

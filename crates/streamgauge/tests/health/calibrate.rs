//! Calibration: measured figures are right, and wrong ones are detected.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::exclusive::{alone, among_light_tests, run_first};
use crate::support::{folder, run};

fn document(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

fn figures(path: &Value) -> &Vec<Value> {
    path["figures"].as_array().expect("a list")
}

/// Calibrates a protocol, which must pass, and returns the results.
fn calibrated(folder: &Path, protocol: &str) -> Value {
    let arguments = [
        "calibrate",
        "--protocol",
        protocol,
        "--quick",
        "--skip-capacity",
        "--json",
        "out.json",
        // A link that is late by some milliseconds on a busy machine makes no figure wrong.
        "--set",
        "tester.health.link_lateness_p99=20ms",
    ];
    let finished = run_first(folder, arguments);
    let found = document(&folder.join("out.json"));
    let paths = found["paths"].as_array().expect("a list").iter();
    let wrong: Vec<&Value> = paths
        .flat_map(figures)
        .filter(|row| row["result"] != "ok")
        .collect();
    let why = format!("{wrong:#?}\n{}\n{}", finished.stdout, finished.stderr);
    assert_eq!(finished.status.code(), Some(0), "{why}");
    assert!(finished.stdout.contains("true: all"), "{why}");
    assert_eq!(found["result"], "pass");
    found
}

#[test]
fn every_figure_is_true_over_every_receive_path() {
    let _light = among_light_tests();
    let folder = folder();
    let found = calibrated(folder.path(), "rtsp");
    let paths = found["paths"].as_array().expect("a list");
    let missing = found["missing"].as_array().map_or(0, Vec::len);
    assert_eq!(paths.len() + missing, 3, "ring, sockets, TCP");
    for path in paths {
        assert_eq!(path["protocol"], "rtsp");
        let of = |streams: &str, metric: &str| {
            figures(path)
                .iter()
                .find(|row| row["streams"] == streams && row["metric"] == metric)
                .unwrap_or_else(|| panic!("no {metric} of {streams}"))
        };
        // The faults did occur.
        for metric in ["lost", "duplicated", "reordered", "loss_bursts"] {
            assert!(
                of("faulty", metric)["true"].as_f64() > Some(10.0),
                "{metric}"
            );
        }
        assert!(of("jittery", "jitter.mean")["true"].as_f64() > Some(0.002));
        assert!(of("jittery", "startup_delay.mean")["true"].as_f64() > Some(0.15));
        let rate = of("steady", "bitrate")["true"].as_f64().expect("a number");
        assert!((14e6..18e6).contains(&rate), "{rate}");
    }
}

/// Returns the true value of a figure.
fn truth(path: &Value, streams: &str, metric: &str) -> f64 {
    let rows = figures(path).iter();
    let mut rows = rows.filter(|row| row["streams"] == streams && row["metric"] == metric);
    let row = rows
        .next()
        .unwrap_or_else(|| panic!("no {metric} of {streams}"));
    row["true"].as_f64().expect("it is known")
}

/// Returns the paths without a link, by ring and by sockets as far as this process may use them,
/// and the path over a link.
fn near_and_far(found: &Value) -> (Vec<&Value>, Vec<&Value>) {
    let paths = found["paths"].as_array().expect("a list");
    let missing = found["missing"].as_array().map_or(0, Vec::len);
    assert_eq!(paths.len() + missing, 3, "ring, sockets, a link");
    let (far, near): (Vec<_>, Vec<_>) = paths.iter().partition(|path| path["over_link"] == true);
    assert!(!near.is_empty());
    (near, far)
}

/// Returns `true` if no link could be made.
fn misses_the_link(found: &Value) -> bool {
    let missing = found["missing"].as_array().expect("a list");
    missing.iter().any(|path| path["over_link"] == true)
}

#[test]
fn every_figure_of_srt_is_true_also_over_a_link() {
    let _light = among_light_tests();
    let folder = folder();
    let found = calibrated(folder.path(), "srt");
    let (near, far) = near_and_far(&found);
    for path in near {
        // The faults did occur.
        for (streams, metric) in [
            ("recovered", "pkt_rcv_recovered"),
            ("recovered", "pkt_rcv_retrans"),
            ("lost", "pkt_rcv_drop"),
            ("spoilt", "pkt_rcv_duplicate"),
            ("spoilt", "damaged"),
            ("viewers", "pkt_rcv_recovered"),
        ] {
            assert!(truth(path, streams, metric) > 10.0, "{metric} of {streams}");
        }
    }
    match far.first() {
        Some(far) => {
            // The server's lateness is added to the delay of the link.
            let delay = truth(far, "far", "datagram_delay.mean");
            assert!(delay >= 0.025, "{delay}");
        }
        None => assert!(misses_the_link(&found), "{found:#}"),
    }
}

#[test]
fn every_figure_of_hls_is_true() {
    let _light = among_light_tests();
    let folder = folder();
    let found = calibrated(folder.path(), "hls");
    let path = &found["paths"][0];
    assert_eq!(path["path"], "tcp");
    // The faults did occur.
    for (streams, metric) in [
        ("live", "segments"),
        ("parts", "reloads"),
        ("parts", "playlists_delta"),
        ("faulty", "segments_failed"),
        ("faulty", "segments_late"),
        ("faulty", "discontinuities"),
    ] {
        assert!(
            truth(path, streams, metric) >= 10.0,
            "{metric} of {streams}"
        );
    }
    // Each segment was held back for 200 ms.
    let delay = truth(path, "delayed", "segment_delay.mean");
    assert!((0.2..0.5).contains(&delay), "{delay}");
}

#[test]
fn every_figure_of_webrtc_is_true_by_headers_and_decrypted() {
    let _light = among_light_tests();
    let folder = folder();
    let found = calibrated(folder.path(), "webrtc");
    let (near, far) = near_and_far(&found);
    for path in near {
        // The faults did occur.
        for (streams, metric) in [
            ("faulty", "lost"),
            ("faulty", "duplicated"),
            ("faulty", "reordered"),
            ("recovered", "recovered_packets"),
            ("viewers", "lost"),
            ("decrypted", "frames_delivered"),
        ] {
            assert!(truth(path, streams, metric) > 10.0, "{metric} of {streams}");
        }
    }
    for path in far {
        let delay = truth(path, "far", "frame_delay.mean");
        assert!((0.025..0.030).contains(&delay), "{delay}");
    }
}

#[test]
fn every_figure_of_rtmp_is_true_also_over_a_link() {
    let _alone = alone();
    let folder = folder();
    let found = calibrated(folder.path(), "rtmp");
    let paths = found["paths"].as_array().expect("a list");
    let of = truth;
    // The faults did occur.
    let near = &paths[0];
    assert_eq!(
        (&near["path"], &near["over_link"]),
        (&"tcp".into(), &false.into())
    );
    for streams in ["faulty", "viewers"] {
        assert!(of(near, streams, "malformed") > 10.0, "{streams}");
        let published = of(near, streams, "frames_published");
        assert!(
            published > of(near, streams, "frames_delivered") + 10.0,
            "{streams}"
        );
    }
    assert_eq!(of(near, "faulty", "stalls"), 20.0);
    assert!(of(near, "publishers", "sent_frames") > 1000.0);
    // The lack of permission to make a link is reported. With a link, each direction has its own
    // delay.
    let missing = found["missing"].as_array().expect("a list");
    let Some(far) = paths.get(1) else {
        assert_eq!(missing[0]["over_link"], true, "{found:#}");
        return;
    };
    let delays = ["far", "far_viewers"].map(|streams| of(far, streams, "frame_delay.mean"));
    assert!((0.025..0.030).contains(&delays[0]), "{delays:?}");
    assert!((0.035..0.045).contains(&delays[1]), "{delays:?}");
}

#[test]
fn calibration_detects_a_tester_that_loses_packets() {
    let _alone = alone();
    let folder = folder();
    let arguments = "calibrate --protocol rtsp --quick --skip-capacity --path sockets \
                     --json out.json --set tester.receive_buffer=4KiB";
    let finished = run_first(folder.path(), arguments.split_whitespace()).expect(110);
    assert!(finished.stdout.contains("NOT OK"), "{}", finished.stdout);
    let found = document(&folder.path().join("out.json"));
    assert_eq!(found["result"], "invalid");
    let lost = figures(&found["paths"][0])
        .iter()
        .find(|row| row["streams"] == "faulty" && row["metric"] == "lost")
        .expect("it is there");
    assert_eq!(lost["result"], "off");
    assert!(lost["error"].as_f64() > Some(0.0), "{lost}");
}

#[test]
fn capacity_is_reported_unless_figures_are_wrong() {
    let _alone = alone();
    let folder = folder();
    let arguments = "calibrate --protocol rtsp --quick --path sockets --json out.json";
    run_first(folder.path(), arguments.split(' '));
    let found = document(&folder.path().join("out.json"));
    let path = &found["paths"][0];
    // A tester with wrong figures has no capacity.
    assert_eq!(
        path["capacity"].is_null(),
        path["result"] == "off",
        "{found:#}"
    );
    if let Some(limit) = path["capacity"]["limit"].as_str() {
        assert!(["tester", "server", "none"].contains(&limit), "{limit}");
    }
}

#[test]
fn errors_about_arguments_name_them() {
    let folder = folder();
    run(folder.path(), ["calibrate", "--set", "tester.recieve=ring"])
        .expect(104)
        .names("receive");
    run(folder.path(), ["calibrate", "--protocol", "rtcp"])
        .expect(104)
        .names("rtsp, hls, rtmp, srt");
    let unheard = "calibrate --protocol rtmp --path sockets";
    run(folder.path(), unheard.split(' '))
        .expect(104)
        .names("--path");
}

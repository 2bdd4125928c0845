//! Calibration trials of the HLS metrics.

use kit::calibration::{
    Check, Evidence, Statistic, Tolerance, Trial, TrialClients, TrueValue, Truth,
};

const URL: &str = "hls+http://{address}/live/index.m3u8";

/// Segments and parts that the server sent to their end.
const SENT: &[&str] = &["/segments", "/parts"];

/// Time by which the server of the last trial is late on purpose, in seconds.
const LATE: f64 = 0.2;

/// The delay begins before the request is sent, and the first requests wait for their connections.
const DELAY_TOLERANCE: Tolerance = Tolerance::Absolute(5e-3);

pub(super) static TRIALS: &[Trial] = &[
    Trial {
        server: "--bitrate 400kbps --segment 1s --length {length}",
        link: None,
        thresholds: &[],
        clients: &[players("live")],
        checks: &[
            Check::count("live", "requests", &["/requests"]),
            Check::count("live", "playlists", &["/playlists"]),
            Check::count("live", "segments", SENT),
            Check::count("live", "segments_due", SENT),
            Check::count("live", "payload_bytes", &["/bytes"]),
            Check::zero("live", "parts"),
            Check::zero("live", "reloads"),
            Check::zero("live", "playlists_backwards"),
            Check::zero("live", "playlists_odd"),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --format fmp4 --segment 1s --part 200ms --length {length}",
        link: None,
        thresholds: &[],
        clients: &[players("parts")],
        checks: &[
            Check::count("parts", "requests", &["/requests"]),
            Check::count("parts", "playlists", &["/playlists"]),
            Check::count("parts", "reloads", &["/reloads"]),
            Check::count("parts", "playlists_delta", &["/deltas"]),
            Check::count("parts", "segments", SENT),
            Check::count("parts", "segments_due", SENT),
            Check::count("parts", "parts", &["/parts"]),
            Check::count("parts", "payload_bytes", &["/bytes"]),
            Check::zero("parts", "hints_wasted"),
            Check::zero("parts", "bytes_wasted"),
            Check::zero("parts", "reloads_short"),
            Check::zero("parts", "playlists_unusable"),
            Check::zero("parts", "playlists_odd"),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --segment 500ms --recorded --length {length} --fault missing=4 \
                 --fault discontinuity=3 --fault late=5:1s",
        link: None,
        thresholds: &["faulty.wrong <= 100%"],
        clients: &[players("faulty")],
        checks: &[
            Check::count("faulty", "requests", &["/requests"]),
            Check::count("faulty", "segments", SENT),
            Check::count("faulty", "segments_due", &["/segments", "/missing"]),
            Check::count("faulty", "segments_failed", &["/missing"]),
            Check::count("faulty", "segments_late", &["/late"]),
            Check::count("faulty", "discontinuities", &["/discontinuities"]),
            Check::count("faulty", "payload_bytes", &["/bytes"]),
            Check::count("faulty", "refusals", &["/missing"]),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --segment 500ms --recorded --length {length} --fault damaged=4 \
                 --fault wrong-duration=3:1s",
        link: None,
        thresholds: &["damaged.wrong <= 100%"],
        clients: &[players("damaged")],
        checks: &[
            Check::count("damaged", "segments", SENT),
            Check::count("damaged", "segments_damaged", &["/damaged"]),
            Check::count("damaged", "continuity_errors", &["/damaged"]),
            Check::count("damaged", "continuity_lost", &["/damaged"]),
            Check::count("damaged", "durations_wrong", &["/misstated"]),
            Check::zero("damaged", "sync_losses"),
        ],
    },
    Trial {
        server: "--bitrate 400kbps --segment 500ms --recorded --length {length} --fault \
                 late=1:200ms",
        link: None,
        thresholds: &[],
        clients: &[players("delayed")],
        checks: &[
            Check::count("delayed", "segments", SENT),
            Check {
                clients: "delayed",
                metric: "segment_delay",
                figure: Statistic::Mean,
                truth: Truth::Known(delay),
                tolerance: DELAY_TOLERANCE,
            },
            Check {
                clients: "delayed",
                metric: "segment_delay",
                figure: Statistic::Count,
                truth: Truth::Sum(SENT),
                tolerance: Tolerance::Exact,
            },
        ],
    },
];

/// Players that stay until the media ends.
const fn players(name: &'static str) -> TrialClients {
    TrialClients {
        name,
        number: 10,
        url: URL,
        keys: &["leave: at_end"],
    }
}

/// Number of times that threads wait for a processor on behalf of a request, outside of what the
/// server measures: the player's to learn of the connection, the server's to read the request, and
/// the player's to read the response.
const WAITS: f64 = 3.0;

/// Mean time in which the server answered a request for a segment. By how much it was later than it
/// was told to be shows how long its threads waited for a processor. All others of the same machine
/// wait about as long.
fn delay(evidence: &Evidence) -> Option<TrueValue> {
    let nanos = evidence.sum("/media_nanos")?;
    let segments = evidence.sum("/segments")?;
    let value = nanos / segments / 1e9;
    Some(TrueValue {
        value,
        uncertainty: WAITS * (value - LATE).max(0.0),
    })
}

use std::path::Path;

use kit::media::rtp::metrics as rtp;
use kit::metrics as clients;
use measure::{
    Catalogue, LINK_CATALOGUE, Recorder, SERVER_CATALOGUE, Statistic, TESTER_CATALOGUE, Time,
    server, tester,
};
use protocols::PROTOCOLS;
use rtsp::metrics as rtsp;
use runfile::{Header, Machine, Reader, RunFile, SubjectHeader, WindowRow};
use serde_json::json;

use super::message::{AnyValue, OneValue};
use super::*;

const BEGAN: u64 = 1_798_761_599;

fn catalogue_of(kind: &str) -> Option<Catalogue> {
    match kind {
        "server" => Some(SERVER_CATALOGUE),
        "tester" => Some(TESTER_CATALOGUE),
        "uplink" | "downlink" => Some(LINK_CATALOGUE),
        name => {
            protocols::install();
            kit::registry::find(name).map(|protocol| protocol.catalogue)
        }
    }
}

/// Creates a run file with subjects of these names and kinds.
fn made(path: &Path, subjects: &[(&str, &str)]) -> RunFile {
    let subjects = subjects.iter().map(|&(name, kind)| SubjectHeader {
        name: name.to_owned(),
        kind: kind.to_owned(),
        catalogue: catalogue_of(kind).expect("it is a known kind"),
    });
    let header = Header {
        version: "0.1.0".to_owned(),
        scenario: json!({"name": "evening"}),
        machine: Machine::default(),
        seed: 7,
        started_at: Duration::from_secs(BEGAN),
        warm_up: Duration::ZERO,
        starts_in_warm_up: false,
        window: Duration::from_secs(1),
        subjects: subjects.collect(),
    };
    RunFile::create(path, &header).expect("a run file can be made")
}

fn window(file: &RunFile, index: u64, seconds: f64) {
    let mut seen = Recorder::new(catalogue_of("rtsp").expect("it is a protocol"));
    seen.set(clients::ACTIVE, 10.0 + index as f64);
    seen.add(rtp::EXPECTED, 1_000);
    seen.add(rtp::RECEIVED, 990);
    seen.add(rtp::PAYLOAD_BYTES, 1_000_000);
    seen.record(rtp::JITTER, 0);
    seen.record(rtp::JITTER, 1_000_000 + index);
    seen.fail("connection_refused");
    let mut of_server = Recorder::new(SERVER_CATALOGUE);
    of_server.set(server::CPU, 0.4);
    let mut own = Recorder::new(TESTER_CATALOGUE);
    own.record(tester::LAG, 300_000);
    file.window(WindowRow {
        index,
        start: Time::from_start(Duration::from_secs(index)),
        seconds,
        subjects: BTreeMap::from([
            ("viewers".to_owned(), seen.take_window()),
            ("server".to_owned(), of_server.take_window()),
            ("tester".to_owned(), own.take_window()),
        ]),
    });
}

const SUBJECTS: [(&str, &str); 3] = [
    ("viewers", "rtsp"),
    ("server", "server"),
    ("tester", "tester"),
];

/// All metrics of a message.
fn metrics(message: &[u8]) -> Vec<Metric> {
    let mut request = Request::decode(message).expect("it is one");
    let mut of_all = request.resource_metrics.pop().expect("there is one");
    of_all.scope_metrics.pop().expect("there is one").metrics
}

fn found<'a>(metrics: &'a [Metric], name: &str) -> &'a Metric {
    let found = metrics.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("{name} is missing"))
}

fn text(value: &Option<AnyValue>) -> &str {
    match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(OneValue::Text(text)) => text,
        None => "",
    }
}

#[test]
fn message_matches_the_run_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.run");
    let file = made(&path, &SUBJECTS);
    (0..3).for_each(|index| window(&file, index, 1.0));
    // A short window: it counts, but has no levels.
    window(&file, 3, 0.02);
    file.flush().expect("it is written");
    let reader = Reader::open(&path, catalogue_of).expect("it is a run file");
    let (mut running, mut push) = (LiveFigures::new(&reader), Push::default());
    running
        .update(&reader, |running| push.window(running))
        .expect("it can be read");
    let message = push.message(&running);
    let request = Request::decode(message.as_slice()).expect("it is one");
    let resource = request.resource_metrics[0].resource.as_ref();
    let attributes = &resource.expect("there is one").attributes;
    let attributes: Vec<(&str, &str)> = attributes
        .iter()
        .map(|pair| (pair.key.as_str(), text(&pair.value)))
        .collect();
    for wanted in [
        ("service.name", "streamgauge"),
        ("streamgauge.scenario", "evening"),
        ("streamgauge.seed", "7"),
        ("streamgauge.run.id", "2026-12-31T23:59:59Z-7"),
    ] {
        assert!(attributes.contains(&wanted), "{wanted:?} in {attributes:?}");
    }
    let metrics = metrics(&message);
    let totals = reader.totals().expect("it can be read");
    let totals = &totals["viewers"];

    let received = found(&metrics, "streamgauge.received");
    let Some(Data::Sum(sum)) = &received.data else {
        panic!("{received:?}");
    };
    assert!(sum.is_monotonic);
    let point = &sum.data_points[0];
    assert_eq!(point.value, Some(NumberValue::Int(3_960)));
    assert_eq!(totals.named("received", Statistic::Value), Some(3_960.0));
    assert_eq!(point.attributes, [KeyValue::text("population", "viewers")]);
    assert_eq!(point.start_time_unix_nano, BEGAN * 1_000_000_000);
    assert_eq!(point.time_unix_nano, BEGAN * 1_000_000_000 + 3_020_000_000);

    let jitter = found(&metrics, "streamgauge.jitter");
    assert_eq!(jitter.unit, "s");
    let Some(Data::ExponentialHistogram(all)) = &jitter.data else {
        panic!("{jitter:?}");
    };
    assert_eq!(all.aggregation_temporality, CUMULATIVE);
    let point = &all.data_points[0];
    let counts = &point
        .positive
        .as_ref()
        .expect("there are some")
        .bucket_counts;
    assert_eq!((point.count, point.zero_count), (8, 4));
    assert_eq!(counts.iter().sum::<u64>(), 4);
    let sum = 4_000_006e-9;
    assert!(
        (point.sum.expect("it is known") - sum).abs() < 1e-15,
        "{point:?}"
    );
    assert_eq!(
        (point.min, point.max),
        (Some(0.0), Some(1_000_003.0 * 1e-9))
    );

    let bitrate = found(&metrics, "streamgauge.bitrate");
    assert_eq!(bitrate.unit, "By/s");
    let Some(Data::Gauge(levels)) = &bitrate.data else {
        panic!("{bitrate:?}");
    };
    let values = levels.data_points.iter().map(|point| point.value);
    let values: Vec<_> = values.collect();
    assert_eq!(values, [Some(NumberValue::Double(1_000_000.0)); 3]);
    let times = levels.data_points.iter();
    let times: Vec<u64> = times.map(|point| point.time_unix_nano).collect();
    assert_eq!(
        times[..2],
        [1, 2].map(|second| (BEGAN + second) * 1_000_000_000)
    );

    let failures = found(&metrics, "streamgauge.failures");
    let Some(Data::Sum(sum)) = &failures.data else {
        panic!("{failures:?}");
    };
    let attributes = &sum.data_points[0].attributes;
    assert_eq!(
        attributes[1],
        KeyValue::text("reason", "connection_refused")
    );
    assert_eq!(sum.data_points[0].value, Some(NumberValue::Int(4)));
}

#[test]
fn short_window_has_no_levels() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.run");
    let file = made(&path, &SUBJECTS);
    window(&file, 0, 1.0);
    window(&file, 1, 0.02);
    file.flush().expect("it is written");
    let reader = Reader::open(&path, catalogue_of).expect("it is a run file");
    let mut running = LiveFigures::new(&reader);
    running.update(&reader, |_| {}).expect("it can be read");
    let shown = crate::prometheus::write(&running);
    let level = "streamgauge_bitrate_bytes_per_second{population=\"viewers\"} 1000000\n";
    assert!(shown.contains(level), "{shown}");
}

#[test]
fn counters_of_unused_features_are_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.run");
    let file = made(&path, &SUBJECTS);
    window(&file, 0, 1.0);
    file.flush().expect("it is written");
    let reader = Reader::open(&path, catalogue_of).expect("it is a run file");
    let mut running = LiveFigures::new(&reader);
    let mut shown = || {
        running.update(&reader, |_| {}).expect("it can be read");
        let has = |name: &str| running.families().contains_key(name);
        // A fault of a feature in use is shown as 0.
        assert!(has("streamgauge_duplicated_total") && has("streamgauge_failed_total"));
        [
            "streamgauge_sent_packets_total",
            "streamgauge_not_taken_total",
            "streamgauge_actions_total",
        ]
        .map(has)
    };
    assert_eq!(shown(), [false; 3]);
    let mut publishing = Recorder::new(catalogue_of("rtsp").expect("it is a protocol"));
    publishing.add(rtsp::SENT_PACKETS, 1);
    file.window(WindowRow {
        index: 1,
        start: Time::from_start(Duration::from_secs(1)),
        seconds: 1.0,
        subjects: BTreeMap::from([("viewers".to_owned(), publishing.take_window())]),
    });
    file.flush().expect("it is written");
    assert_eq!(shown(), [true, true, false]);
}

#[test]
fn unsent_levels_are_kept_up_to_a_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.run");
    let file = made(&path, &SUBJECTS);
    let more = WINDOWS_MAX as u64 + 5;
    (0..more).for_each(|index| window(&file, index, 1.0));
    file.flush().expect("it is written");
    let reader = Reader::open(&path, catalogue_of).expect("it is a run file");
    let (mut running, mut push) = (LiveFigures::new(&reader), Push::default());
    let mut update = |push: &mut Push| {
        let updated = running.update(&reader, |running| push.window(running));
        updated.expect("it can be read");
        push.message(&running)
    };
    let points = |message: &[u8]| match &found(&metrics(message), "streamgauge.active").data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(points(&update(&mut push)), WINDOWS_MAX);
    assert_eq!(push.left_out(), 5);
    push.sent();
    assert!(!push.has_unsent());
    window(&file, more, 1.0);
    file.flush().expect("it is written");
    assert_eq!(points(&update(&mut push)), 1);
}

#[test]
fn runners_have_names_and_labels_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.run");
    let file = made(&path, &SUBJECTS);
    let states = [
        tester::RunnerState {
            name: "one".to_owned(),
            active: Some(4),
            playing: Some(3),
            cpu: Some(0.25),
            lag_max: Some(0.002),
            healthy: true,
            lost: false,
        },
        tester::RunnerState {
            name: "two".to_owned(),
            lost: true,
            ..tester::RunnerState::default()
        },
    ];
    file.note(runfile::fact::RUNNER_STATES.of(&states.into()));
    window(&file, 0, 1.0);
    file.flush().expect("it is written");
    let reader = Reader::open(&path, catalogue_of).expect("it is a run file");
    let (mut running, mut push) = (LiveFigures::new(&reader), Push::default());
    running
        .update(&reader, |running| push.window(running))
        .expect("it can be read");
    let shown = crate::prometheus::write(&running);
    let samples = shown.lines().filter(|line| line.contains("{runner="));
    // Figures of a lost runner are unknown.
    assert_eq!(
        samples.collect::<Vec<_>>(),
        [
            "streamgauge_runner_active{runner=\"one\"} 4",
            "streamgauge_runner_cpu_cores{runner=\"one\"} 0.25",
            "streamgauge_runner_lag_max_seconds{runner=\"one\"} 0.002",
            "streamgauge_runner_lost{runner=\"one\"} 0",
            "streamgauge_runner_lost{runner=\"two\"} 1",
            "streamgauge_runner_playing{runner=\"one\"} 3",
        ]
    );
    let metrics = metrics(&push.message(&running));
    let lag = found(&metrics, "streamgauge.runner.lag_max");
    assert_eq!(lag.unit, "s");
    let Some(Data::Gauge(lag)) = &lag.data else {
        panic!("{lag:?}");
    };
    let point = &lag.data_points[0];
    assert_eq!(point.value, Some(NumberValue::Double(0.002)));
    assert_eq!(point.attributes, [KeyValue::text("runner", "one")]);
    assert_eq!(point.time_unix_nano, (BEGAN + 1) * 1_000_000_000);
    for (prometheus, family) in &running.families() {
        let (name, kind) = (&family.name, family.name.kind);
        assert_eq!(translated(&name.otlp(), ucum(name.unit), kind), *prometheus);
    }
}

/// Converts a name by the rules for OTLP in Prometheus
/// (opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics, "OTLP Metric points
/// to Prometheus").
fn translated(metric: &str, unit: &str, kind: MetricType) -> String {
    let mut name = metric.replace('.', "_");
    let suffix = match unit {
        "s" => "_seconds",
        "By" => "_bytes",
        "By/s" => "_bytes_per_second",
        "1" if kind == MetricType::Gauge => "_ratio",
        // An annotation, or no unit.
        _ => "",
    };
    if !name.ends_with(suffix) {
        name += suffix;
    }
    if kind == MetricType::Counter && !name.ends_with("_total") {
        name += "_total";
    }
    name
}

#[test]
fn otlp_names_convert_to_prometheus_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.run");
    let mut subjects: Vec<(&str, &str)> = PROTOCOLS
        .iter()
        .map(|protocol| (protocol.name, protocol.name))
        .collect();
    subjects.extend([
        ("server", "server"),
        ("tester", "tester"),
        ("downlink", "downlink"),
    ]);
    let file = made(&path, &subjects);
    file.flush().expect("it is written");
    let reader = Reader::open(&path, catalogue_of).expect("it is a run file");
    let running = LiveFigures::new(&reader);
    let families = running.families();
    assert!(families.len() > 100, "{}", families.len());
    let mut units = BTreeMap::new();
    for (prometheus, family) in &families {
        let (name, kind) = (&family.name, family.name.kind);
        let unit = ucum(name.unit);
        assert_eq!(translated(&name.otlp(), unit, kind), *prometheus);
        // Each name has one unit and one kind.
        let other = units.insert(name.otlp(), (unit, kind));
        assert!(other.is_none(), "{prometheus} and {other:?}");
    }
}

#[test]
fn malformed_response_counts_as_empty() {
    assert_eq!(
        parse_response(b"\xff\xff\xff"),
        CollectorResponse::default()
    );
    assert_eq!(parse_response(b""), CollectorResponse::default());
}

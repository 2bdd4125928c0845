//! An OpenTelemetry collector receives what the report says, in messages that it knows, and never
//! delays a run.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{
    Process, RUN_TIMEOUT, Report, assert_one_plain_file, folder, number, run, streamgauge,
};

/// Requests that a collector received: heads and bodies.
type Sent = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector that accepts every message.
struct Collector {
    port: u16,
    sent: Sent,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (sent, over) = (Sent::default(), Arc::new(AtomicBool::new(false)));
        let (theirs, is_over) = (sent.clone(), over.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                let Some(message) = stream.ok().and_then(taken) else {
                    continue;
                };
                theirs.lock().expect("nobody panics").push(message);
            }
        });
        Collector {
            port,
            sent,
            over,
            thread: Some(thread),
        }
    }

    /// Stops the collector and returns what it received.
    fn stop(mut self) -> Vec<(String, Vec<u8>)> {
        self.over.store(true, Ordering::Release);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        let thread = self.thread.take().expect("it was started");
        thread.join().expect("it does not panic");
        std::mem::take(&mut *self.sent.lock().expect("nobody panics"))
    }
}

/// Reads a request and answers it.
fn taken(mut stream: TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut room = [0; 16 << 10];
    loop {
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        if let Some(end) = head {
            let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length?.parse().ok()?;
            if bytes.len() == end + 4 + length {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    .ok()?;
                return Some((head, bytes.split_off(end + 4)));
            }
        }
        let count = stream.read(&mut room).ok().filter(|&count| count > 0)?;
        bytes.extend_from_slice(&room[..count]);
    }
}

/// A message in the wire format of protobuf (protobuf.dev/programming-guides/encoding): numbers and
/// values of fields. The numbers are those of opentelemetry-proto 1.x.
#[derive(Debug, Default)]
struct Message(Vec<(u64, Field)>);

#[derive(Debug)]
enum Field {
    Varint(u64),
    Fixed(u64),
    Bytes(Vec<u8>),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("it is whole");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number that does not end");
}

fn part<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (part, rest) = bytes.split_at(length);
    *bytes = rest;
    part
}

impl Message {
    /// Parses a message, which may have only fields of these numbers.
    fn read(mut bytes: &[u8], known: &[u64]) -> Message {
        let mut message = Message::default();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Varint(varint(&mut bytes)),
                1 => {
                    let fixed = part(&mut bytes, 8).try_into().expect("so many");
                    Field::Fixed(u64::from_le_bytes(fixed))
                }
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).expect("it fits");
                    Field::Bytes(part(&mut bytes, length).to_vec())
                }
                other => panic!("no field of OTLP has the wire type {other}"),
            };
            assert!(known.contains(&(key >> 3)), "unknown field {}", key >> 3);
            message.0.push((key >> 3, field));
        }
        message
    }

    fn fields(&self, number: u64) -> impl Iterator<Item = &Field> {
        let fields = self.0.iter().filter(move |(found, _)| *found == number);
        fields.map(|(_, field)| field)
    }

    fn bytes(&self, number: u64) -> impl Iterator<Item = &[u8]> {
        self.fields(number).map(|field| match field {
            Field::Bytes(bytes) => bytes.as_slice(),
            other => panic!("{other:?}"),
        })
    }

    /// Parses the messages in a field, which may have only fields of these numbers.
    fn all(&self, number: u64, known: &'static [u64]) -> impl Iterator<Item = Message> {
        self.bytes(number)
            .map(move |bytes| Message::read(bytes, known))
    }

    fn one(&self, number: u64, known: &'static [u64]) -> Message {
        let mut all: Vec<Message> = self.all(number, known).collect();
        assert_eq!(all.len(), 1, "field {number}");
        all.remove(0)
    }

    fn text(&self, number: u64) -> &str {
        let bytes = self.bytes(number).next().unwrap_or_default();
        std::str::from_utf8(bytes).expect("it is UTF-8")
    }

    /// Returns the value of a field, 0 if it is absent.
    fn number(&self, number: u64) -> u64 {
        match self.fields(number).next() {
            None => 0,
            Some(Field::Varint(value) | Field::Fixed(value)) => *value,
            Some(Field::Bytes(bytes)) => panic!("{bytes:?}"),
        }
    }

    fn double(&self, number: u64) -> f64 {
        f64::from_bits(self.number(number))
    }
}

/// Parses a request. Returns the resource and the metrics.
fn read(body: &[u8]) -> (Message, Vec<Message>) {
    let of_all = Message::read(body, &[1]).one(1, &[1, 2]);
    let scope = of_all.one(2, &[1, 2]);
    let resource = of_all.one(1, &[1]);
    (resource, scope.all(2, &[1, 2, 3, 5, 7, 10]).collect())
}

fn metric<'a>(metrics: &'a [Message], name: &str) -> &'a Message {
    let found = metrics.iter().find(|metric| metric.text(1) == name);
    found.unwrap_or_else(|| panic!("{name} is missing"))
}

/// Fields of a data point of a gauge or a sum.
const NUMBER_POINT: &[u64] = &[2, 3, 4, 6, 7];

#[test]
fn collector_receives_what_the_report_says() {
    let folder = folder();
    let collector = Collector::start();
    let url = format!("http://me:SECRET1@127.0.0.1:{}", collector.port);
    let mut command = streamgauge([
        "demo", "-c", "5", "--ramp", "0s", "-d", "4s", "-o", "x.run", "--json", "x.json", "--otlp",
        &url,
    ]);
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=SECRET%32");
    let finished = Process::start(command, folder.path()).finish(RUN_TIMEOUT);
    let finished = finished.expect(0);
    assert!(!finished.stderr.contains("OTLP"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("SECRET"), "{}", finished.stderr);
    assert_one_plain_file(folder.path());
    let kept = fs::read(folder.path().join("x.run")).expect("it is there");
    for secret in ["SECRET", "--otlp"] {
        let held = kept
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!held, "{secret}");
    }
    let sent = collector.stop();
    let (head, body) = sent.last().expect("there are some");
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    for line in ["api-key: SECRET2", "authorization: Basic bWU6U0VDUkVUMQ=="] {
        assert!(head.lines().any(|found| found == line), "{head}");
    }

    let report = Report::read(&folder.path().join("x.json"));
    // The level of each window arrived exactly once.
    let levels = sent.iter().flat_map(|(_, body)| {
        let (_, metrics) = read(body);
        let active = metrics
            .iter()
            .filter(|metric| metric.text(1) == "streamgauge.active");
        let points =
            active.flat_map(|metric| metric.one(5, &[1]).all(1, NUMBER_POINT).collect::<Vec<_>>());
        points.map(|point| point.number(3)).collect::<Vec<u64>>()
    });
    let levels: Vec<u64> = levels.collect();
    assert!(levels.is_sorted_by(|one, next| one < next), "{levels:?}");
    let windows = report.0["windows"].as_array().expect("a list");
    let is_whole = |window: &&Value| window["seconds"].as_f64().is_some_and(|time| time >= 0.5);
    assert_eq!(
        levels.len(),
        windows.iter().filter(is_whole).count(),
        "{levels:?}"
    );

    let (resource, metrics) = read(body);
    let started_at = report.0["run"]["started_at"].as_str().expect("a time");
    let run_id = format!("{started_at}-{}", report.0["run"]["seed"]);
    let ids = resource
        .all(1, &[1, 2])
        .filter(|pair| pair.text(1) == "streamgauge.run.id");
    let ids: Vec<String> = ids
        .map(|pair| pair.one(2, &[1]).text(1).to_owned())
        .collect();
    assert_eq!(ids, [run_id]);

    for name in ["received", "expected", "started", "bytes_received"] {
        let Some(wanted) = report.metric(name).as_u64() else {
            continue;
        };
        let sum = metric(&metrics, &format!("streamgauge.{name}")).one(7, &[1, 2, 3]);
        // Cumulative and monotonic.
        assert_eq!((sum.number(2), sum.number(3)), (2, 1));
        assert_eq!(sum.one(1, NUMBER_POINT).number(6), wanted, "{name}");
    }
    assert!(number(report.metric("received")) > 0);

    let delay = metric(&metrics, "streamgauge.startup_delay");
    assert_eq!(delay.text(3), "s");
    let all = delay.one(10, &[1, 2]);
    assert_eq!(all.number(2), 2);
    let point = all.one(1, &[1, 2, 3, 4, 5, 6, 7, 8, 12, 13]);
    let reported = report.metric("startup_delay");
    assert_eq!(number(&reported["count"]), 5, "{reported}");
    assert_eq!(point.number(4), 5);
    let buckets = point.one(8, &[1, 2]);
    let mut counts = buckets.bytes(2).next().expect("they are packed");
    let mut counted = point.number(7);
    while !counts.is_empty() {
        counted += varint(&mut counts);
    }
    assert_eq!(counted, 5);
    let near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-4 * wanted;
    let figure = |name: &str| reported[name].as_f64().expect("a number");
    assert!(
        near(point.double(5), figure("mean") * 5.0),
        "{point:?} {reported}"
    );
    assert!(
        near(point.double(13), figure("max")),
        "{point:?} {reported}"
    );
}

#[test]
fn absent_or_silent_collector_does_not_delay_the_run() {
    let folder = folder();
    // Accepts connections and never answers.
    let hangs = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let gone = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let ports = [&hangs, &gone].map(|one| one.local_addr().expect("it is bound").port());
    drop(gone);
    for (port, why) in ports.into_iter().zip([
        &["it took too long", "not complete in time"][..],
        &["refused"],
    ]) {
        let url = format!("http://127.0.0.1:{port}");
        let begun = Instant::now();
        let line = [
            "demo",
            "-c",
            "2",
            "--ramp",
            "0s",
            "-d",
            "5s",
            "--no-run-file",
            "--otlp",
            &url,
        ];
        let command = streamgauge(line);
        let finished = Process::start(command, folder.path()).finish(RUN_TIMEOUT);
        let finished = finished.expect(0);
        let warnings: Vec<&str> = finished
            .stderr
            .lines()
            .filter(|line| line.contains("OTLP"))
            .collect();
        assert_eq!(warnings.len(), 1, "{}", finished.stderr);
        for part in ["warning: OTLP: ", "the run's end is missing there"] {
            assert!(warnings[0].contains(part), "{part}: {warnings:?}");
        }
        let says = |reason: &&str| warnings[0].contains(reason);
        assert!(why.iter().any(says), "{why:?}: {warnings:?}");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn invalid_collector_url_is_an_error_before_the_run() {
    let folder = folder();
    let line = [
        "demo",
        "-d",
        "1s",
        "--otlp",
        "grpc://me:SECRET@127.0.0.1:4317",
    ];
    let finished = run(folder.path(), line).expect(104).names("http://");
    assert!(!finished.stderr.contains("SECRET"), "{}", finished.stderr);
}

//! Messages: the counts of both sides agree, faults are counted exactly, back-pressure does not
//! slow the schedule, and hostile servers are named.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port, have, number, run, run_concurrently,
    streamgauge, wait_for,
};

/// A reference server for messages.
pub(crate) struct Server {
    process: Process,
    port: u16,
    report: PathBuf,
}

impl Server {
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Server {
        let port = free_port();
        let report = folder.join(format!("served-{port}.jsonl"));
        let mut command =
            streamgauge(["serve", "messages", "--port", &port.to_string(), "--report"]);
        command.arg(&report).args(arguments);
        let mut process = Process::start(command, folder);
        process.listen(port);
        Server {
            process,
            port,
            report,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    /// Stops the server and returns its totals.
    pub(crate) fn stop(self) -> Value {
        self.process.signal("TERM");
        self.process.finish(RUN_TIMEOUT).expect(0);
        let text = fs::read_to_string(&self.report).expect("the server wrote its report");
        let last = text.lines().last().expect("a last line");
        let last: Value = serde_json::from_str(last).expect("it is JSON");
        // Each second has a line, and their sum is the total.
        let seconds = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let messages = seconds.filter_map(|line| line["counts"]["messages"].as_u64());
        assert_eq!(messages.sum::<u64>(), number(&last["messages"]["messages"]));
        last["messages"].clone()
    }
}

/// Variables with which clients wait at their end for a server that a busy machine keeps waiting.
pub(crate) const PATIENT_END: [(&str, &str); 2] = [
    ("STREAMGAUGE_CLIENTS__SENDERS__CLOSE_TIMEOUT", "10s"),
    ("STREAMGAUGE_STOP_TIMEOUT", "15s"),
];

pub(crate) fn load(folder: &Path, url: &str, arguments: &[&str], code: i32) -> Report {
    let json = folder.join("report.json");
    let run_file = folder.join("report.run");
    let fixed = [
        "--json",
        json.to_str().expect("UTF-8"),
        "-o",
        run_file.to_str().expect("UTF-8"),
    ];
    let mut command = streamgauge(["load", url].iter().chain(arguments).chain(&fixed));
    command.envs(PATIENT_END);
    Process::start(command, folder)
        .finish(RUN_TIMEOUT)
        .expect(code);
    let _ = fs::remove_file(&run_file);
    Report::read(&json)
}

pub(crate) fn count(report: &Report, name: &str) -> u64 {
    number(report.metric(name))
}

#[test]
fn both_sides_count_every_message() {
    run_concurrently(
        &[
            ("sink", &["--every", "20ms"][..]),
            ("sink", &["--sleep", "1ms"]),
            ("sink", &["--rate", "50/s"]),
            ("echo", &["--rate", "50/s", "--answers", "echo"]),
            ("echo", &["--in-flight", "3"]),
        ],
        |&(mode, pattern)| {
            let folder = folder();
            let server = Server::start(folder.path(), &["--mode", mode]);
            let report = load(
                folder.path(),
                &server.url(),
                &[&["-c", "40", "-d", "4s"], pattern].concat(),
                0,
            );
            let served = server.stop();
            let sent = count(&report, "sent");
            assert!(sent > 500, "{sent} with {pattern:?}");
            assert_eq!(sent, number(&served["messages"]), "{pattern:?}: {served}");
            assert_eq!(sent, count(&report, "acknowledged"));
            assert_eq!(count(&report, "closed_in_order"), 40);
            assert_eq!(
                count(&report, "answered"),
                number(&served["replies"]).min(if mode == "echo" { u64::MAX } else { 0 })
            );
            assert_eq!(
                count(&report, "lost_in_flight")
                    + count(&report, "unanswered")
                    + count(&report, "answers_wrong"),
                0
            );
            if mode == "echo" {
                assert_eq!(number(&report.metric("round_trip")["count"]), sent);
                let shortest = report.metric("round_trip_from_sent")["p50"]
                    .as_f64()
                    .expect("it was measured");
                let whole = report.metric("round_trip")["p50"]
                    .as_f64()
                    .expect("it was measured");
                assert!(
                    shortest > 0.0 && shortest <= whole,
                    "{shortest} and {whole}"
                );
            }
        },
    );
}

#[test]
fn counts_of_both_sides_agree_after_a_stop() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--mode", "echo"]);
    let json = folder.path().join("report.json");
    let mut command = streamgauge([
        "load",
        &server.url(),
        "-c",
        "50",
        "--every",
        "2ms",
        "--answers",
        "echo",
        "--json",
        json.to_str().expect("UTF-8"),
    ]);
    command.envs(PATIENT_END);
    let client = Process::start(command, folder.path());
    wait_for("messages come", Duration::from_secs(60), || {
        let text = fs::read_to_string(&server.report).unwrap_or_default();
        let last: Value = serde_json::from_str(text.lines().last()?).ok()?;
        (last["counts"]["messages"].as_u64()? > 1000).then_some(())
    });
    client.signal("INT");
    client.finish(RUN_TIMEOUT).expect(105);
    let report = Report::read(&json);
    let served = server.stop();
    assert_eq!(count(&report, "sent"), number(&served["messages"]));
    assert_eq!(count(&report, "answered"), number(&served["replies"]));
    assert_eq!(
        count(&report, "lost_in_flight") + count(&report, "unanswered"),
        0
    );
}

#[test]
fn faults_of_the_server_are_counted_exactly() {
    let folder = folder();
    for framing in [&[][..], &["--delimiter", "\\r\\n"]] {
        let faults = [
            "--fault",
            "drop=2%",
            "--fault",
            "wrong=3%",
            "--fault",
            "delay=5ms",
        ];
        let server = Server::start(folder.path(), &[&faults, framing].concat());
        let pattern = [
            "-c",
            "20",
            "--rate",
            "100/s",
            "--answers",
            "echo",
            "-d",
            "4s",
        ];
        let report = load(
            folder.path(),
            &server.url(),
            &[&pattern, framing].concat(),
            // Wrong content fails the run although it has no threshold on it.
            99,
        );
        let served = server.stop();
        assert!(
            number(&served["dropped"]) > 0 && number(&served["spoilt"]) > 0,
            "{served}"
        );
        assert_eq!(count(&report, "sent"), number(&served["messages"]));
        assert_eq!(
            count(&report, "answered") + count(&report, "answers_wrong"),
            number(&served["replies"])
        );
        assert_eq!(
            count(&report, "answers_missed") + count(&report, "unanswered"),
            number(&served["dropped"])
        );
        // A wrong answer after one that was left out is taken for the answer to the message before.
        assert_eq!(count(&report, "answers_wrong"), number(&served["spoilt"]));
        let delay = report.metric("round_trip_from_sent")["p50"]
            .as_f64()
            .expect("it was measured");
        assert!(delay >= 0.005, "{delay}");
    }
    let server = Server::start(folder.path(), &["--fault", "close=1%"]);
    let report = load(
        folder.path(),
        &server.url(),
        &["-c", "20", "--rate", "100/s", "-d", "6s"],
        99,
    );
    let served = server.stop();
    let closed = number(&served["closed"]);
    assert!(closed >= 10, "{served}");
    assert_eq!(
        report.failures("closed_by_server") + report.failures("reset"),
        closed
    );
}

#[test]
fn deaf_server_shows_as_messages_not_sent() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--fault", "deaf"]);
    let pattern = ["-c", "5", "--every", "10ms", "--size", "100000", "-d", "5s"];
    // Lost messages fail the run.
    let report = load(folder.path(), &server.url(), &pattern, 99);
    server.stop();
    let (sent, not_sent) = (count(&report, "sent"), count(&report, "due_not_sent"));
    assert!(not_sent > 100, "{sent} sent, {not_sent} not");
    // Five seconds of a hundred rounds each, and more if the end is late: the schedule continued.
    assert!(
        (200..=1000).contains(&count(&report, "rounds")),
        "{}",
        count(&report, "rounds")
    );
    assert_eq!(sent + not_sent, count(&report, "due"));
    assert!(count(&report, "lost_in_flight") > 0);
    assert_eq!(
        count(&report, "acknowledged") + count(&report, "lost_in_flight"),
        sent
    );
    report.tester_was_fit();
}

#[test]
fn cost_of_a_launched_server_is_reported_per_message() {
    let folder = folder();
    let port = free_port();
    let file = folder.path().join("scenario.yaml");
    let text = format!(
        "duration: 3s\nserver:\n  command: [\"{}\", serve, messages, --mode, sink, --port, \"{port}\"]\n  ready: {{port: {port}}}\n\
         clients:\n  viewers:\n    protocol: messages\n    urls: [\"tcp://127.0.0.1:{port}\"]\n    plan: {{every: 10ms}}\n    load: {{clients: 50}}\n",
        env!("CARGO_BIN_EXE_streamgauge")
    );
    fs::write(&file, text).expect("it can be written");
    let finished = run(folder.path(), [&"run", &file.to_str().expect("UTF-8")]).expect(0);
    let shown = finished.stdout + &finished.stderr;
    assert!(
        shown.contains("cpu_per_message") && shown.contains("of a core"),
        "{shown}"
    );
    assert!(shown.contains("acknowledged"), "{shown}");
}

/// Behaviour of a server towards a connection.
type Act = fn(TcpStream) -> std::io::Result<()>;

/// Handles each connection with `act`. Its threads end with the connections, which end with the
/// client.
fn each(act: Act) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has left is no error.
            thread::spawn(move || act(stream));
        }
    });
    format!("tcp://127.0.0.1:{port}")
}

fn until_the_end(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

#[test]
fn hostile_servers_are_named() {
    let folder = folder();
    let scenario = |duration: &str, url: &str, keys: &str| {
        format!(
            "duration: {duration}\nclients:\n  viewers:\n    protocol: messages\n    urls: [\"{url}\"]\n    load: {{clients: 3}}\n    {keys}\n"
        )
    };
    let cases: [(&str, Act, &str); 5] = [
        (
            "malformed_answer",
            |mut stream| {
                stream.write_all(b"\xff\xff\xff\xff and so on")?;
                until_the_end(stream)
            },
            "{framing: {length: {bytes: 4}}, plan: {rate: 10/s}, answers: any}",
        ),
        (
            "malformed_answer",
            |mut stream| loop {
                stream.write_all(&[b'x'; 65536])?;
            },
            "{framing: {delimiter: \"\\n\"}, plan: {rate: 10/s}, answers: echo, longest_answer: 1MiB}",
        ),
        (
            "closed_by_server",
            // Without a reset, even if messages are on their way.
            |stream| {
                stream.shutdown(Shutdown::Write)?;
                until_the_end(stream)
            },
            "{plan: {rate: 10/s}}",
        ),
        (
            "wrong_greeting",
            |mut stream| {
                stream.write_all(&[b'x'; 100_000])?;
                until_the_end(stream)
            },
            "{greeting: [{expect: OK}]}",
        ),
        (
            "timeout_greeting",
            until_the_end,
            "{greeting: [{send: hello}, {expect: OK}], greeting_timeout: 500ms}",
        ),
    ];
    for (reason, act, keys) in cases {
        let keys = keys
            .strip_prefix('{')
            .and_then(|keys| keys.strip_suffix('}'));
        let keys = keys.expect("each is in braces");
        // Each key is on a line of its own.
        let file = folder.path().join("scenario.yaml");
        let keys = split_keys(keys).join("\n    ");
        // The run ends with its clients.
        fs::write(&file, scenario("20s", &each(act), &keys)).expect("it can be written");
        let json = folder.path().join("hostile.json");
        let command = [
            "run",
            file.to_str().expect("UTF-8"),
            "--json",
            json.to_str().expect("UTF-8"),
        ];
        run(folder.path(), command).expect(99);
        let report = Report::read(&json);
        assert_eq!(
            report.failures(reason),
            3,
            "{reason}: {}",
            report.0["populations"]
        );
    }
    // Half a frame and then nothing is no answer.
    let half = each(|mut stream| {
        stream.write_all(b"\0\0\x01\0abc")?;
        until_the_end(stream)
    });
    let file = folder.path().join("scenario.yaml");
    let keys = "framing: {length: {bytes: 4}}\n    plan: {rate: 10/s}\n    answers: echo\n    answer_timeout: 500ms";
    fs::write(&file, scenario("4s", &half, keys)).expect("it can be written");
    let json = folder.path().join("half.json");
    run(
        folder.path(),
        [
            "run",
            file.to_str().expect("UTF-8"),
            "--json",
            json.to_str().expect("UTF-8"),
        ],
    )
    .expect(99);
    let report = Report::read(&json);
    assert_eq!(count(&report, "answered"), 0);
    assert_eq!(
        count(&report, "answers_timed_out") + count(&report, "unanswered"),
        count(&report, "sent")
    );
}

/// Splits the keys of a flow mapping at commas outside brackets.
fn split_keys(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut keys) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                keys.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    keys.push(text[from..].trim());
    keys
}

#[test]
fn messages_go_over_tls_and_websockets() {
    let folder = folder();
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate =
        rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
            .and_then(|parameters| parameters.self_signed(&key))
            .expect("a certificate");
    fs::write(folder.path().join("own.pem"), certificate.pem()).expect("written");
    fs::write(folder.path().join("key.pem"), key.serialize_pem()).expect("written");
    let tls = ["--tls-cert", "own.pem", "--tls-key", "key.pem"];
    for (scheme, arguments) in [
        ("tls", &tls[..]),
        ("ws", &["--websocket"]),
        (
            "wss",
            &[
                "--websocket",
                "--tls-cert",
                "own.pem",
                "--tls-key",
                "key.pem",
            ],
        ),
    ] {
        let server = Server::start(folder.path(), arguments);
        let url = format!("{scheme}://127.0.0.1:{}", server.port);
        let mut load_it = vec![
            "-c",
            "10",
            "--rate",
            "50/s",
            "--answers",
            "echo",
            "-d",
            "4s",
        ];
        if scheme.ends_with('s') && scheme != "ws" {
            load_it.extend(["--tls-ca", "own.pem"]);
        }
        let report = load(folder.path(), &url, &load_it, 0);
        let served = server.stop();
        assert!(count(&report, "sent") > 100, "{scheme}");
        assert_eq!(
            count(&report, "sent"),
            number(&served["messages"]),
            "{scheme}"
        );
        assert_eq!(
            count(&report, "answered"),
            count(&report, "sent"),
            "{scheme}"
        );
        assert_eq!(
            count(&report, "acknowledged"),
            count(&report, "sent"),
            "{scheme}"
        );
    }
}

#[test]
fn messages_go_over_unix_sockets() {
    let folder = folder();
    let path = folder.path().join("echo.sock");
    let listener = UnixListener::bind(&path).expect("the folder is new");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut out = stream.try_clone()?;
                let mut stream = stream;
                std::io::copy(&mut stream, &mut out)
            });
        }
    });
    let url = format!("unix://{}", path.display());
    let report = load(
        folder.path(),
        &url,
        // At a rate: otherwise a fast machine would finish before anything is measured.
        &[
            "-c",
            "5",
            "--rate",
            "100/s",
            "--answers",
            "echo",
            "--messages",
            "200",
        ],
        0,
    );
    assert_eq!(
        (count(&report, "answered"), count(&report, "acknowledged")),
        (1000, 1000)
    );
    assert_eq!(report.clients("completed"), 5);
}

#[test]
fn socat_echoes() {
    if !have("socat") {
        return;
    }
    let folder = folder();
    let port = free_port();
    let mut command = Command::new("socat");
    command.args([
        &format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr"),
        "EXEC:cat",
    ]);
    let mut socat = Process::start(command, folder.path());
    socat.listen(port);
    let report = load(
        folder.path(),
        &format!("tcp://127.0.0.1:{port}"),
        // At a rate: otherwise a fast machine would finish before anything is measured.
        &[
            "-c",
            "5",
            "--rate",
            "50/s",
            "--answers",
            "echo",
            "--messages",
            "100",
        ],
        0,
    );
    assert_eq!(count(&report, "answered"), 500);
    assert_eq!(report.clients("completed"), 5);
}

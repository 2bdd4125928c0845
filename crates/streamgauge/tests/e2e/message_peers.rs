//! Messages to a foreign server, over every transport; and hostile WebSocket servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::messages::{count, load};
use crate::support::{Process, folder, have, number, wait_for};

/// Time limit for starting and stopping.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message server in Python.
pub(crate) struct Peer {
    process: Process,
    kind: &'static str,
    port: u16,
    report: PathBuf,
    socket: PathBuf,
}

impl Peer {
    pub(crate) fn start(folder: &Path, kind: &'static str, words: &[&str]) -> Peer {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/message_peer.py");
        let socket = folder.join(format!("{kind}.sock"));
        let report = folder.join(format!("{kind}.json"));
        let path = format!("path={}", socket.display());
        let mut python = Command::new("python3");
        python.args(["-u", program, kind]).arg(&report);
        python.args(words).arg(path);
        let mut process = Process::start(python, folder);
        let port = wait_for("the server listens", PATIENCE, || {
            assert!(process.runs(), "it ended: {}", process.stderr_text());
            process.stdout_text().lines().next()?.parse().ok()
        });
        Peer {
            process,
            kind,
            port,
            report,
            socket,
        }
    }

    pub(crate) fn url(&self) -> String {
        match self.kind {
            "unix" => format!("unix://{}", self.socket.display()),
            kind => format!("{kind}://127.0.0.1:{}", self.port),
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Stops the server and returns its counts.
    pub(crate) fn stop(self) -> Value {
        self.process.signal("TERM");
        self.process.finish(PATIENCE).expect(0);
        let text = fs::read_to_string(&self.report).expect("it wrote what it counted");
        serde_json::from_str(&text).expect("it is JSON")
    }
}

/// Makes a self-signed certificate for 127.0.0.1. Returns the arguments that name it.
fn certificate(folder: &Path) -> [String; 2] {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .and_then(|parameters| parameters.self_signed(&key))
        .expect("a certificate");
    let [cert, secret] = ["own.pem", "key.pem"].map(|name| folder.join(name));
    fs::write(&cert, certificate.pem()).expect("it can be written");
    fs::write(&secret, key.serialize_pem()).expect("it can be written");
    [
        format!("cert={}", cert.display()),
        format!("key={}", secret.display()),
    ]
}

/// Returns the arguments of clients that send for this time and wait for the echo.
fn echo(duration: &str) -> Vec<&str> {
    let words = "-c 10 --rate 50/s --answers echo -d".split(' ');
    words.chain([duration]).collect()
}

#[test]
fn foreign_server_counts_the_same_over_each_transport() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    let [cert, key] = certificate(folder.path());
    for kind in ["tcp", "tls", "ws", "wss", "unix"] {
        let mut words = vec![cert.as_str(), &key];
        if kind == "wss" {
            words.push("pieces=1");
        }
        let peer = Peer::start(folder.path(), kind, &words);
        let mut arguments = echo("4s");
        if matches!(kind, "tls" | "wss") {
            arguments.extend(["--tls-ca", "own.pem"]);
        }
        let report = load(folder.path(), &peer.url(), &arguments, 0);
        let counted = peer.stop();
        let sent = count(&report, "sent");
        assert!(sent > 500, "{kind}: {sent}");
        assert_eq!(number(&counted["messages"]), sent, "{kind}: {counted}");
        assert_eq!(number(&counted["connections"]), 10, "{kind}: {counted}");
        for name in ["acknowledged", "answered"] {
            assert_eq!(count(&report, name), sent, "{kind}: {name}");
        }
        for name in ["answers_wrong", "unanswered", "unasked", "lost_in_flight"] {
            assert_eq!(count(&report, name), 0, "{kind}: {name}");
        }
        assert_eq!(count(&report, "closed_in_order"), 10, "{kind}");
        if kind.starts_with("ws") {
            // Each client closed with status 1000 (RFC 6455, 7.4.1).
            assert_eq!(number(&counted["codes"]["1000"]), 10, "{kind}: {counted}");
            assert!(counted["cut"].is_null(), "{kind}: {counted}");
        } else {
            assert_eq!(number(&counted["bytes"]), 36 * sent, "{kind}: {counted}");
        }
        if kind == "wss" {
            let pongs = number(&counted["pongs"]);
            // Pongs to the last answers come after the close, if at all.
            assert!(pongs + 10 >= sent, "{pongs} of {sent}");
        }
    }
}

#[test]
fn client_waits_for_late_answers_before_it_closes() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    let peer = Peer::start(folder.path(), "tcp", &["late=0.1"]);
    let report = load(folder.path(), &peer.url(), &echo("4s"), 0);
    let counted = peer.stop();
    let sent = count(&report, "sent");
    assert_eq!(number(&counted["messages"]), sent, "{counted}");
    // A tenth of a second of messages was in flight when the run ended.
    assert_eq!(count(&report, "answered"), sent);
    assert_eq!(count(&report, "unanswered"), 0);
}

#[test]
fn hostile_websockets_are_named_and_bounded() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    for (hostile, reason) in [
        ("masked", "malformed_answer"),
        ("endless", "malformed_answer"),
        ("handshake", "websocket_refused"),
        // Endless pings from a server that reads nothing: their pongs are not kept.
        ("pings", "flooded"),
    ] {
        let peer = Peer::start(folder.path(), "ws", &[&format!("hostile={hostile}")]);
        // The run ends with its clients.
        let report = load(folder.path(), &peer.url(), &echo("20s"), 99);
        assert_eq!(
            report.failures(reason),
            10,
            "{hostile}: {}",
            report.0["populations"]
        );
        let memory = report.0["tester"]["rss"]["max"].as_f64();
        assert!(
            memory.is_some_and(|bytes| bytes < 128.0 * 1024.0 * 1024.0),
            "{memory:?}"
        );
        peer.stop();
    }
}

//! Hostile peers: their own sessions end, and all others continue.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::scripted::{Answer, Scripted};
use crate::support::{Report, Server, folder, number, run};

/// Returns bytes that look like the start of a message at every fourth byte, and never become one.
fn flood() -> Vec<u8> {
    b"PLAY".repeat(64 * 1024)
}

/// Returns the processor time that a process has used, in hundredths of a second (proc(5)).
fn processor_ticks(id: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let (_, after_name) = stat.rsplit_once(')').expect("it has a name");
    let times = after_name.split_whitespace().skip(11).take(2);
    times
        .map(|ticks| ticks.parse::<u64>().expect("a number"))
        .sum()
}

#[test]
fn flooding_server_does_not_affect_clients_of_others() {
    let folder = folder();
    let good = Server::start(folder.path(), &["--bitrate", "200kbps"]);
    let hostile = Scripted::start(|_| Answer::Flood);
    // All clients are on one worker.
    let text = format!(
        "workers: 1\n\
         clients:\n  viewers:\n    protocol: rtsp\n    urls: [\"{}\"]\n    transport: tcp\n    load: {{ clients: 20 }}\n  \
         victims:\n    protocol: rtsp\n    urls: [\"{}\"]\n    transport: tcp\n    load: {{ clients: 3 }}\n\
         duration: 8s\n",
        good.url(),
        hostile.url()
    );
    fs::write(folder.path().join("test.yaml"), text).expect("written");
    let arguments = ["run", "test.yaml", "--json", "out.json"];
    let finished = run(folder.path(), arguments).expect(99);
    let report = Report::read(&folder.path().join("out.json"));
    report.tester_was_fit();
    assert_eq!(report.counts().lost, 0, "{}", report.counts().lost);
    assert_eq!(report.clients("failed"), 0);
    let victims = &report.0["populations"]["victims"]["clients"];
    let failures = &victims["failures"];
    assert_eq!(number(&failures["garbage"]), 3, "{victims}");
    assert!(finished.stdout.contains("garbage"), "{}", finished.stdout);
}

#[test]
fn flooding_client_does_not_delay_other_clients() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let connect = || {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("a time");
        stream.set_write_timeout(patience).expect("a time");
        stream
    };
    let before = processor_ticks(server.id());
    let mut hostile = connect();
    // The server may hang up meanwhile.
    let _ = hostile.write_all(&flood());
    let mut other = connect();
    other
        .write_all(b"OPTIONS rtsp://h/a RTSP/1.0\r\nCSeq: 1\r\n\r\n")
        .expect("it listens");
    let mut answer = [0; 12];
    other.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"RTSP/1.0 200");
    // The server hangs up on the hostile client, after an answer that it does not understand it.
    let mut answer = Vec::new();
    let _ = hostile.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"RTSP/1.0 400"));
    assert_ne!(hostile.read(&mut [0; 1]).ok(), Some(1));
    // This took seconds when each byte was checked for every possible start of a message.
    let ticks = processor_ticks(server.id()) - before;
    assert!(ticks < 100, "{ticks}");
}

//! Limits of the server: the report names what limited it, and nothing else.

use std::fs;

use crate::support::{Report, folder, free_port, have, number, run};

/// Returns the statement about this kind of limit.
fn limit(report: &Report, kind: &str) -> Option<String> {
    let limits = report.0["server_limits"].as_array().expect("a list");
    let found = limits.iter().find(|limit| limit["kind"] == kind)?;
    Some(found["text"].as_str().expect("a text").to_owned())
}

/// Server for three clients. Once they are connected it opens the wanted number of files, or as
/// many as its limit permits, and then logs an error.
const HOARDER: &str = "
import os, socket, sys, threading, time
port, wanted = map(int, sys.argv[1:])
listener = socket.create_server(('127.0.0.1', port))
def read(connection):
    while connection.recv(65536):
        pass
connections = [listener.accept()[0] for _ in range(3)]
for connection in connections:
    threading.Thread(target=read, args=(connection,), daemon=True).start()
try:
    for _ in range(wanted):
        os.open('/dev/null', os.O_RDONLY)
except OSError as error:
    while True:
        print('error:', error.strerror, flush=True)
        time.sleep(0.3)
threading.Event().wait()
";

#[test]
fn server_without_file_descriptors_is_named_as_limited() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    fs::write(folder.path().join("hoarder.py"), HOARDER).expect("written");
    for (files, wanted) in [(64, 1000), (900, 100)] {
        let port = free_port();
        let text = format!(
            "server:
  command: [sh, -c, 'ulimit -n {files} && exec python3 hoarder.py {port} {wanted}']
  directory: .
  ready: {{ port: {port} }}
clients:
  senders: {{ urls: ['tcp://127.0.0.1:{port}'], plan: {{ every: 100ms }}, load: {{ clients: 3 }} }}
duration: 7s
"
        );
        fs::write(folder.path().join("test.yaml"), text).expect("written");
        let arguments = ["run", "test.yaml", "--json", "out.json", "--no-run-file"];
        run(folder.path(), arguments).expect(0);
        let report = Report::read(&folder.path().join("out.json"));
        let (descriptors, log) = (limit(&report, "file_descriptors"), limit(&report, "log"));
        let share = &report.0["server"]["file_descriptors_share"]["max"];
        if wanted < files {
            assert_eq!((descriptors, log), (None, None));
            assert!(share.as_f64() < Some(0.3), "{share}");
            continue;
        }
        assert!(share.as_f64() >= Some(0.95), "{share}");
        let descriptors = descriptors.expect("it had no more");
        assert!(
            descriptors.contains(" % of the file descriptors"),
            "{descriptors}"
        );
        let log = log.expect("it said so");
        assert!(log.contains("lines"), "{log}");
        let complaints = report.0["server_log"]["complaints"].to_string();
        assert!(complaints.contains("Too many open files"), "{complaints}");
    }
}

#[test]
fn named_log_is_searched_for_own_patterns() {
    let folder = folder();
    let port = free_port();
    fs::write(folder.path().join("server.log"), "overrun 0\n").expect("written");
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let text = format!(
        "server:
  command: [sh, -c, '(while sleep 0.5; do echo overrun 7 >> server.log; echo overrun 8 again >> server.log; echo an error; done) & exec {program} serve rtsp -q --port {port}']
  directory: .
  ready: {{ port: {port} }}
  log: {{ file: server.log, match: ['overrun [1-9]'], ignore: [again] }}
clients: {{ viewers: {{ urls: ['rtsp://127.0.0.1:{port}/a'], load: {{ clients: 1 }} }} }}
duration: 8s
"
    );
    fs::write(folder.path().join("test.yaml"), text).expect("written");
    let arguments = ["run", "test.yaml", "--json", "out.json"];
    run(folder.path(), arguments).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    let complaints = &report.0["server_log"]["complaints"];
    assert_eq!(complaints.as_array().map(Vec::len), Some(1), "{complaints}");
    assert_eq!(complaints[0]["first"], "overrun 7");
    let lines = number(&report.0["server"]["log_complaints"]);
    let written = fs::read_to_string(folder.path().join("server.log")).expect("it is there");
    let written = written.lines().filter(|line| *line == "overrun 7").count() as u64;
    assert!((3..=written).contains(&lines), "{lines} of {written}");
    assert_eq!(number(&complaints[0]["lines"]), lines);
    let text = limit(&report, "log").expect("it is said");
    assert!(text.contains(&format!("{lines} such as")), "{text}");
    let events = report.0["events"].to_string();
    assert_eq!(events.matches("server_log").count(), 3, "{events}");

    fs::write(
        folder.path().join("test.yaml"),
        "server: {observe: {pid: 1}, log: {match: [a]}}\nclients: {viewers: {urls: ['rtsp://h/a'], load: {clients: 1}}}\n",
    )
    .expect("written");
    let refused = run(folder.path(), ["check", "--offline", "test.yaml"]).expect(104);
    refused.names("log: {file:");

    fs::write(
        folder.path().join("test.yaml"),
        "server: {launch: vlc, log: {ignore: []}}\nclients: {viewers: {urls: ['rtsp://h/a'], load: {clients: 1}}}\n",
    )
    .expect("written");
    let refused = run(folder.path(), ["check", "--offline", "test.yaml"]).expect(104);
    refused.names("server.log.ignore");
}

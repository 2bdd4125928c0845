//! HLS as tshark sees it: requests, responses and bytes are counted alike.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port, have, number, run, streamgauge, wait_for,
};

/// Path that no player requests.
const PROBE: &str = "/probe";
const END: &str = "/end-of-the-capture";

/// Requests a path, which the server does not have.
fn ask(port: u16, path: &str) {
    let mut server = TcpStream::connect(("127.0.0.1", port)).expect("the server is up");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    server.write_all(request.as_bytes()).expect("it is read");
    let _ = server.read_to_end(&mut Vec::new());
}

/// Starts tshark, and returns when it captures what goes to and from this port.
fn capture(folder: &Path, port: u16) -> Process {
    let mut command = Command::new("tshark");
    // A large buffer: packets that the capture lost could not be compared.
    command.args(["-i", "lo", "-B", "64", "-w", "capture.pcapng", "-f"]);
    command.arg(format!("tcp port {port}"));
    let capture = Process::start(command, folder);
    wait_for("tshark captures", Duration::from_secs(60), || {
        ask(port, PROBE);
        has_captured(folder, PROBE).then_some(())
    });
    capture
}

fn has_captured(folder: &Path, text: &str) -> bool {
    let file = fs::read(folder.join("capture.pcapng")).unwrap_or_default();
    file.windows(text.len())
        .any(|bytes| bytes == text.as_bytes())
}

/// Returns these fields of each packet that passes a filter, in tshark's reading.
fn dissected<const N: usize>(
    folder: &Path,
    port: u16,
    filter: &str,
    fields: [&str; N],
) -> Vec<[String; N]> {
    let mut command = Command::new("tshark");
    command.args(["-r", "capture.pcapng", "-T", "fields", "-Y", filter]);
    command.args(["-d", &format!("tcp.port=={port},http")]);
    for field in fields {
        command.args(["-e", field]);
    }
    let finished = Process::start(command, folder).finish(RUN_TIMEOUT);
    let text = finished.expect(0).stdout;
    let lines = text.lines().map(|line| {
        let mut columns = line.split('\t').map(str::to_owned);
        std::array::from_fn(|_| columns.next().unwrap_or_default())
    });
    lines.collect()
}

#[test]
fn requests_responses_and_bytes_are_counted_as_by_tshark() {
    if !have("tshark") {
        return;
    }
    let (folder, port) = (folder(), free_port());
    let port_text = port.to_string();
    let mut server = Process::start(
        streamgauge([
            "serve",
            "hls",
            "--port",
            &port_text,
            "--recorded",
            "--length",
            "12s",
            "--segment",
            "1s",
            "--bitrate",
            "500kbps",
            "--fault",
            "missing=4",
        ]),
        folder.path(),
    );
    server.listen(port);
    let capture = capture(folder.path(), port);
    let url = format!("http://127.0.0.1:{port}/live/index.m3u8");
    let arguments = ["load", &url, "-c", "5", "-q", "--json", "out.json"];
    // A quarter of the segments is missing.
    run(folder.path(), arguments).expect(99);
    ask(port, END);
    // Packets that are not in the file yet would be lost with the capture.
    wait_for("tshark has seen all", Duration::from_secs(60), || {
        has_captured(folder.path(), END).then_some(())
    });
    capture.signal("INT");
    capture.finish(Duration::from_secs(60));

    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.clients("completed"), 5);
    let metric = |name: &str| number(report.metric(name));
    let seen = |filter: &str, fields: [&str; 2]| dissected(folder.path(), port, filter, fields);
    let of_players = "http.request.uri matches \"^/live/\"";
    let requests = seen(of_players, ["http.request.uri", "tcp.stream"]);
    assert_eq!(metric("requests"), requests.len() as u64);
    let to_players = "http.response_for.uri matches \"/live/\"";
    let responses = seen(to_players, ["http.response.code", "http.content_length"]);
    assert_eq!(responses.len(), requests.len());
    let missing = responses.iter().filter(|own| own[0] == "404").count() as u64;
    assert_eq!(missing, 5 * 3);
    assert_eq!(metric("responses_4xx"), missing);
    assert_eq!(metric("segments_failed"), missing);
    let segments = format!(
        "{to_players} and http.response.code == 200 and not http.response_for.uri contains \"m3u8\""
    );
    let bodies = seen(&segments, ["http.content_length", "http.response.code"]);
    let lengths = bodies
        .iter()
        .map(|own| own[0].parse::<u64>().expect("a length"));
    assert_eq!(metric("segments"), bodies.len() as u64);
    assert_eq!(metric("payload_bytes"), lengths.sum::<u64>());
    // Bytes of the connections that the players used, as TCP carried them.
    let mut streams: Vec<&str> = requests.iter().map(|own| own[1].as_str()).collect();
    streams.sort_unstable();
    streams.dedup();
    let answered =
        format!("tcp.srcport == {port} and tcp.len > 0 and not tcp.analysis.retransmission");
    let packets = seen(&answered, ["tcp.stream", "tcp.len"]);
    let of_players = packets
        .iter()
        .filter(|own| streams.contains(&own[0].as_str()));
    let bytes: u64 = of_players
        .map(|own| own[1].parse::<u64>().expect("a length"))
        .sum();
    assert_eq!(metric("wire_bytes"), bytes);
}

//! Transport streams over HTTP: counts equal what a server did, its errors are named, and real
//! servers are played.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use kit::mediagen::ts::packet::{PACKET_LEN, SYNC};
use kit::mediagen::ts::stamp::Stamp;

use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port, have, number, run, streamgauge,
};

/// Answers each GET with what `answer` writes. Its threads end with their connections, which end
/// with the client.
fn serve(answer: fn(&str, &mut TcpStream) -> std::io::Result<()>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let reader = stream.try_clone().map(BufReader::new)?;
                let mut lines = reader.lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                // Reads up to the empty line.
                lines.find(String::is_empty);
                let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
                // A client that has left is no error.
                let _ = answer(&target, &mut stream);
                std::io::Result::Ok(())
            });
        }
    });
    port
}

/// Waits a moment, so that a stream is sent in real time.
fn pace() {
    thread::park_timeout(Duration::from_millis(20));
}

/// Returns a stamped datagram of three packets, due now.
fn datagram(group: &str, number: u64) -> Vec<u8> {
    let mut rest = [0u8; 2 * PACKET_LEN];
    for (n, packet) in rest.chunks_mut(PACKET_LEN).enumerate() {
        let continuity = (number * 2 + n as u64) % 16;
        packet[..4].copy_from_slice(&[SYNC, 1, 0, 0x10 | continuity as u8]);
    }
    let group: SocketAddr = group.parse().expect("an address");
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("it is later");
    let stamp = Stamp {
        packets: 3,
        group,
        source: 7,
        number,
        due: since.as_nanos() as u64,
        check: crc32(&rest),
    };
    [&stamp.write()[..], &rest].concat()
}

/// CRC-32 of IEEE 802.3, bit by bit. It shares no code with the client.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

const GROUP: &str = "239.81.0.1:4056";

/// In each hundred datagrams: ten are lost, of which five are replaced by the one before them; two
/// are swapped; one of another group is added; one is damaged.
fn faulty(_: &str, stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    for hundred in 0..40u64 {
        let mut chunk = Vec::new();
        for number in hundred * 100..hundred * 100 + 100 {
            match number % 100 {
                10..15 => {}
                20..25 => chunk.extend(datagram(GROUP, hundred * 100 + 19)),
                50 => chunk.extend(datagram(GROUP, number + 1)),
                51 => chunk.extend(datagram(GROUP, number - 1)),
                70 => {
                    let mut damaged = datagram(GROUP, number);
                    damaged[300] ^= 1;
                    chunk.extend(damaged);
                }
                80 => {
                    chunk.extend(datagram(GROUP, number));
                    chunk.extend(datagram("239.81.0.2:4056", number));
                }
                _ => chunk.extend(datagram(GROUP, number)),
            }
        }
        write!(stream, "{:x}\r\n", chunk.len())?;
        stream.write_all(&chunk)?;
        stream.write_all(b"\r\n")?;
        pace();
    }
    stream.write_all(b"0\r\n\r\n")
}

#[test]
fn every_datagram_of_a_faulty_relay_is_accounted_for() {
    let port = serve(faulty);
    let folder = folder();
    let url = format!("http://127.0.0.1:{port}/udp/{GROUP}");
    let finished = run(
        folder.path(),
        ["load", &url, "-c", "2", "--json", "out.json"],
    );
    // Wrong content fails the run although it has no threshold.
    let finished = finished.expect(99);
    assert!(finished.stdout.contains("wrong <= 0.1%"), "{finished:?}");
    let report = Report::read(&folder.path().join("out.json"));
    report.tester_was_fit();
    assert_eq!(report.clients("completed"), 2);
    let counts = report.counts();
    let found = [
        counts.expected,
        counts.received,
        counts.lost,
        counts.duplicated,
        counts.reordered,
    ];
    assert_eq!(found, [4000, 3600, 400, 200, 40].map(|one| 2 * one));
    let metric = |name: &str| number(report.metric(name));
    assert_eq!((metric("foreign"), metric("damaged")), (80, 80));
    assert_eq!((metric("sync_losses"), metric("stray_packets")), (0, 0));
    assert_eq!(metric("chunked"), 2);
    let wrong = report.metric("wrong").as_f64().expect("stamps came");
    assert!((wrong - (1.0 - 3560.0 / 4240.0)).abs() < 1e-9, "{wrong}");
    let delay = &report.metric("datagram_delay");
    assert_eq!(number(&delay["count"]), 2 * (3600 - 40));
    assert!(
        delay["p50"]
            .as_f64()
            .is_some_and(|p50| p50 > 0.0 && p50 < 60.0),
        "{delay}"
    );
    let shown = finished.stdout;
    for part in [
        "10 %",
        "800 of 8,000",
        "80 foreign datagrams",
        "datagram_delay",
    ] {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
}

/// Errors of a server, by the requested path.
fn wrong(target: &str, stream: &mut TcpStream) -> std::io::Result<()> {
    let mut say = |text: &str| stream.write_all(text.as_bytes());
    match target {
        "/html" => say(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<!DOCTYPE html><p>No such channel</p>",
        )?,
        "/gzip" => {
            stream.write_all(&[&b"HTTP/1.1 200 OK\r\n\r\n\x1f\x8b\x08"[..], &[0; 60]].concat())?
        }
        "/header" => {
            say("HTTP/1.1 200 OK\r\n")?;
            loop {
                say("X-Endless: and so it goes on\r\n")?;
            }
        }
        "/chunk" => {
            say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nG0123456789\r\n")?
        }
        "/a" => say("HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\n")?,
        "/b" => say("HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n")?,
        "/full" => say("HTTP/1.1 503 Service Unavailable\r\n\r\n")?,
        "/endless" => {
            say("HTTP/1.1 200 OK\r\n\r\n")?;
            loop {
                say(&"no transport stream ".repeat(100))?;
            }
        }
        "/other" => say("SSH-2.0-OpenSSH_9.2\r\n")?,
        "/null" => {
            say("HTTP/1.1 200 OK\r\nContent-Type: video/mp2t\r\n\r\n")?;
            loop {
                stream.write_all(&kit::mediagen::ts::looped_stream::NULL.repeat(7))?;
                thread::sleep(Duration::from_millis(10));
            }
        }
        _ => say("HTTP/1.1 200 OK\r\nContent-Type: video/mp2t\r\n\r\n")?,
    }
    // Waits until the client hangs up.
    std::io::copy(stream, &mut std::io::sink()).map(|_| ())
}

#[test]
fn server_errors_are_named_as_the_failure_of_each_client() {
    let port = serve(wrong);
    for (path, reason) in [
        ("html", "not_ts"),
        ("gzip", "not_ts"),
        ("header", "header_too_long"),
        ("chunk", "bad_chunk"),
        ("a", "redirect_loop"),
        ("full", "status_503"),
        ("endless", "not_ts"),
        ("other", "not_http"),
        ("silence", "no_media"),
    ] {
        let folder = folder();
        let text = format!(
            "name: {path}\nclients:\n  viewers:\n    protocol: http-ts\n    urls: [\"http://127.0.0.1:{port}/{path}\"]\n    \
             no_media: 5s\n    load: {{ clients: 3 }}\nduration: 20s\n"
        );
        fs::write(folder.path().join("test.yaml"), text).expect("the test's folder can be written");
        let finished = run(folder.path(), ["run", "test.yaml", "--json", "out.json"]).expect(99);
        let report = Report::read(&folder.path().join("out.json"));
        let failures = &report.0["populations"]["viewers"]["clients"]["failures"];
        assert_eq!(
            (report.clients("started"), report.failures(reason)),
            (3, 3),
            "{path}: {failures}"
        );
        assert!(finished.stdout.contains(reason), "{}", finished.stdout);
    }
}

#[test]
fn null_packets_are_no_media() {
    let url = format!("http://127.0.0.1:{}/null", serve(wrong));
    let folder = folder();
    let arguments = ["load", &url, "-c", "2", "-d", "5s", "--json", "out.json"];
    let finished = run(folder.path(), arguments).expect(99);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(
        (report.clients("started"), report.clients("failed")),
        (2, 0)
    );
    assert!(number(report.metric("ts_packets")) > 100);
    assert_eq!(number(report.metric("non_null_packets")), 0);
    assert!(
        finished.stdout.contains("non_null_packets > 0"),
        "{}",
        finished.stdout
    );
}

#[test]
fn check_validates_http_ts_scenarios() {
    let folder = folder();
    let text = "name: relay\nclients:\n  viewers:\n    protocol: http-ts\n    urls: [\"http://127.0.0.1:9/udp/239.81.0.1:4056\"]\n    \
                grup: 239.81.0.1:4056\n    load: { clients: 3 }\n";
    fs::write(folder.path().join("test.yaml"), text).expect("the test's folder can be written");
    run(folder.path(), ["check", "test.yaml"])
        .expect(104)
        .names("did you mean `group`?");
    fs::write(
        folder.path().join("test.yaml"),
        text.replace("grup", "group"),
    )
    .expect("written");
    run(folder.path(), ["check", "--offline", "test.yaml"]).expect(0);
}

/// Plays the stream of another program for eight seconds. Returns the report and the output.
fn plays(url: &str, clients: &str) -> (Report, String) {
    let folder = folder();
    let arguments = ["load", url, "-c", clients, "-d", "8s", "--json", "out.json"];
    let finished = Process::start(streamgauge(arguments), folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    (
        Report::read(&folder.path().join("out.json")),
        finished.stdout,
    )
}

/// Makes a clip of ten seconds in this folder.
fn clip(folder: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args([
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=320x180:r=25:d=10",
        "-c:v",
        "libx264",
    ]);
    command.args([
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-f",
        "mpegts",
        "clip.ts",
    ]);
    Process::start(command, folder)
        .finish(RUN_TIMEOUT)
        .expect(0);
}

#[test]
fn vlc_is_played() {
    if !have("cvlc") || !have("ffmpeg") || !have("setpriv") {
        return;
    }
    let folder = folder();
    clip(folder.path());
    // VLC refuses to run as root.
    let mut open = Command::new("chmod");
    open.args(["-R", "a+rX", "."]);
    Process::start(open, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    let port = free_port();
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "env",
        "HOME=/tmp",
        "cvlc",
        "-q",
        "clip.ts",
        "--loop",
    ]);
    command.args([
        "--sout",
        &format!("#std{{access=http,mux=ts,dst=127.0.0.1:{port}/x}}"),
        "--sout-keep",
    ]);
    let mut vlc = Process::start(command, folder.path());
    vlc.listen(port);
    let (report, shown) = plays(&format!("http://127.0.0.1:{port}/x"), "3");
    report.tester_was_fit();
    assert_eq!(report.clients("stopped"), 3);
    assert_eq!(number(report.metric("sync_losses")), 0);
    for delay in [
        "pat_delay",
        "pmt_delay",
        "startup_delay",
        "first_byte_delay",
    ] {
        assert_eq!(report.metric(delay)["count"], 3, "{delay}");
    }
    assert!(
        number(report.metric("payload_bytes")) > 3 * 20_000,
        "{shown}"
    );
    assert_eq!(number(report.metric("expected")), 0);
    assert!(
        shown.contains("the stream does not tell what was sent"),
        "{shown}"
    );
}

#[test]
fn ffmpeg_is_played() {
    if !have("ffmpeg") {
        return;
    }
    let folder = folder();
    clip(folder.path());
    let port = free_port();
    let mut command = Command::new("ffmpeg");
    command.args([
        "-v",
        "error",
        "-re",
        "-stream_loop",
        "-1",
        "-i",
        "clip.ts",
        "-c",
        "copy",
        "-f",
        "mpegts",
        "-listen",
        "1",
    ]);
    command.arg(format!("http://127.0.0.1:{port}/x"));
    let mut ffmpeg = Process::start(command, folder.path());
    ffmpeg.listen(port);
    let (report, shown) = plays(&format!("http://127.0.0.1:{port}/x"), "1");
    report.tester_was_fit();
    assert_eq!(report.clients("stopped"), 1);
    let broken = (
        number(report.metric("sync_losses")),
        number(report.metric("continuity_errors")),
    );
    assert_eq!(broken, (0, 0), "{shown}");
    assert_eq!(report.metric("random_access_delay")["count"], 1, "{shown}");
    assert!(
        number(&report.metric("pcr_interval")["count"]) > 10,
        "{shown}"
    );
    assert_eq!(number(report.metric("chunked")), 1);
}

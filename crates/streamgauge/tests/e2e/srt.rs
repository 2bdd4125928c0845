//! SRT: counts equal what a reference server did, and libsrt's own programs are played from,
//! published to and served.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::scrape::get;
use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port as tcp_port, have, number, run, streamgauge,
    wait_for,
};

pub(crate) use crate::support::free_udp_port as free_port;

/// Returns the number of UDP sockets that are bound or, with `connected`, connected to this port.
pub(crate) fn sockets(port: u16, connected: bool) -> usize {
    let table = fs::read_to_string("/proc/net/udp").expect("Linux has it");
    let table_6 = fs::read_to_string("/proc/net/udp6").unwrap_or_default();
    let end = format!(":{port:04X}");
    let lines = table.lines().skip(1).chain(table_6.lines().skip(1));
    let column = if connected { 2 } else { 1 };
    lines
        .filter(|line| {
            let address = line.split_whitespace().nth(column);
            address.is_some_and(|address| address.ends_with(&end))
        })
        .count()
}

pub(crate) fn wait_for_port(port: u16) {
    wait_for("the port is bound", Duration::from_secs(60), || {
        (sockets(port, false) > 0).then_some(())
    });
}

/// Starts the reference server on this port.
pub(crate) fn serve(folder: &Path, port: u16, with: &[&str]) -> Process {
    let mut command = streamgauge(["serve", "srt", "--port", &port.to_string()]);
    command.args(["--report", "served.jsonl"]).args(with);
    let server = Process::start(command, folder);
    wait_for_port(port);
    server
}

/// Stops the server and returns its report about each connection.
pub(crate) fn served(server: Process, folder: &Path) -> Vec<Value> {
    server.signal("TERM");
    server.finish(Duration::from_secs(60));
    let text = fs::read_to_string(folder.join("served.jsonl")).expect("it was written");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines = lines.map(|line| line.expect("a line of JSON"));
    lines.filter(|line| line["connection"].is_u64()).collect()
}

pub(crate) fn sum(lines: &[Value], pointer: &str) -> u64 {
    let counts = lines
        .iter()
        .filter_map(|line| line.pointer(pointer)?.as_u64());
    counts.sum()
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("the folder can be written to");
}

/// Waits until a run has received `unique` packets, or none for some seconds. `metrics` is the port
/// of its metrics. A relay that ended before would lose packets that it holds for the latency.
pub(crate) fn wait_for_packets(metrics: u16, unique: u64) {
    let mut last = (None, Instant::now());
    wait_for("the player has everything", RUN_TIMEOUT, || {
        let text = get(metrics, "/metrics")?;
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("streamgauge_pkt_recv_unique_total{"))?;
        let count: f64 = line.rsplit(' ').next()?.parse().ok()?;
        if last.0 != Some(count) {
            last = (Some(count), Instant::now());
        }
        let over = last.1.elapsed() > Duration::from_secs(8);
        (over || count >= unique as f64).then_some(())
    });
}

/// Asserts that srt-live-transmit relayed `unique` packets of 4 Mb/s without a gap. When its
/// publisher leaves, it drops its backlog: at most two seconds of media, on a busy machine.
#[track_caller]
pub(crate) fn assert_relayed(played: &Report, unique: u64) {
    let count = |name: &str| number(played.metric(name));
    let received = count("pkt_recv_unique");
    assert!(
        received <= unique && received + 800 >= unique,
        "{received} of {unique}"
    );
    for name in ["expected", "received"] {
        assert_eq!(count(name), received, "{name}");
    }
}

#[test]
fn published_stream_passes_srt_live_transmit_complete() {
    if !have("srt-live-transmit") {
        return;
    }
    for (query, key_length) in [("", 16), ("&passphrase=hush-hush-hush", 32)] {
        let folder = folder();
        let (into, out) = (free_port(), free_port());
        let mut command = Command::new("srt-live-transmit");
        let listen = |port| format!("srt://127.0.0.1:{port}?mode=listener{query}");
        command.args(["-q", &listen(into), &listen(out)]);
        let relay = Process::start(command, folder.path());
        wait_for_port(into);
        wait_for_port(out);
        // With 4 s of latency, nothing is too late on a busy machine.
        let clients = |port, seconds: u32, with: &str| {
            format!(
                "name: srt\nduration: {seconds}s\nstop_timeout: 20s\nclients:\n  viewers:\n    \
                 protocol: srt\n    {with}\n    key_length: {key_length}\n    \
                 urls: [\"srt://127.0.0.1:{port}?latency=4000{query}\"]\n    \
                 load: {{ clients: 1, start: at_once }}\n"
            )
        };
        let play = clients(out, 300, "leave: at_end\n    no_media: 60s");
        write(folder.path(), "play.yaml", &play);
        let publish = clients(into, 8, "publish: { bitrate: 4Mbps }");
        write(folder.path(), "publish.yaml", &publish);
        let metrics = tcp_port();
        let port = metrics.to_string();
        let arguments = [
            "run",
            "play.yaml",
            "--json",
            "play.json",
            "--metrics",
            &port,
        ];
        let player = streamgauge(arguments);
        let player = Process::start(player, folder.path());
        wait_for("the player is there", Duration::from_secs(60), || {
            (sockets(out, true) > 0).then_some(())
        });
        let publisher = ["run", "publish.yaml", "--json", "publish.json"];
        run(folder.path(), publisher).expect(0);
        let report = |name: &str| Report::read(&folder.path().join(name));
        let sent = report("publish.json");
        let unique = number(sent.metric("pkt_sent_unique"));
        wait_for_packets(metrics, unique);
        relay.signal("TERM");
        player.finish(RUN_TIMEOUT).expect(0);
        let played = report("play.json");
        assert_eq!(played.clients("completed"), 1);
        let count = |name: &str| number(played.metric(name));
        // 380 packets a second.
        assert!(unique > 1300, "{unique}");
        assert_relayed(&played, unique);
        for name in [
            "continuity_errors",
            "damaged",
            "pkt_rcv_undecrypt",
            "pkt_malformed",
        ] {
            assert_eq!(count(name), 0, "{name} {query}");
        }
        assert!(played.metric("datagram_delay")["p50"].as_f64() > Some(0.5));
        assert_eq!(played.metric("agreed_latency")["p50"].as_f64(), Some(4.0));
    }
}

#[test]
fn every_packet_that_the_server_leaves_out_is_counted() {
    // A ring if this process may have one.
    for receive in ["auto", "sockets"] {
        what_is_left_out_is_found(receive);
    }
}

fn what_is_left_out_is_found(receive: &str) {
    let folder = folder();
    let port = free_port();
    let server = serve(
        folder.path(),
        port,
        &["--length", "4s", "--fault", "lose=3%"],
    );
    let scenario = format!(
        "name: lossy\nduration: 20s\nclients:\n  viewers:\n    protocol: srt\n    \
         leave: at_end\n    urls: [\"srt://localhost:{port}?streamid=one&latency=4000\"]\n    \
         load: {{ clients: 5, start: at_once }}\n"
    );
    write(folder.path(), "run.yaml", &scenario);
    let path = format!("tester.receive={receive}");
    let arguments = ["run", "run.yaml", "--json", "out.json", "--set", &path];
    run(folder.path(), arguments).expect(0);
    let served = served(server, folder.path());
    let report = Report::read(&folder.path().join("out.json"));
    report.tester_was_fit();
    let path = report.0["tester"]["receive_path"].as_str();
    assert!(path == Some("sockets") || (path == Some("ring") && receive == "auto"));
    assert_eq!(report.clients("completed"), 5);
    let count = |name: &str| number(report.metric(name));
    let (media, left_out) = (sum(&served, "/media"), sum(&served, "/wrongs/left_out"));
    assert!(media > 5 * 700 && left_out > 50, "{media} {left_out}");
    assert_eq!(count("pkt_recv_unique"), media);
    assert_eq!(count("received"), media);
    assert_eq!(count("pkt_rcv_loss"), left_out);
    assert_eq!(count("pkt_rcv_recovered"), left_out);
    assert_eq!(count("pkt_rcv_drop"), 0);
    assert_eq!(count("continuity_errors"), 0);
    assert_eq!(count("pkt_rcv_retrans"), sum(&served, "/sent/again"));
    assert_eq!(report.metric("recovery_margin")["count"], left_out);
}

#[test]
fn ffmpeg_plays_from_the_reference_server_and_publishes_to_it() {
    if !have("ffmpeg") {
        return;
    }
    let folder = folder();
    let port = free_port();
    let server = serve(
        folder.path(),
        port,
        &["--passphrase", "hush-hush-hush", "--streams", "1"],
    );
    let ffmpeg = |arguments: &[&str]| {
        let mut command = Command::new("ffmpeg");
        command
            .args(["-nostdin", "-hide_banner", "-loglevel", "error"])
            .args(arguments);
        Process::start(command, folder.path())
    };
    let url = |id: &str| {
        format!("srt://127.0.0.1:{port}?passphrase=hush-hush-hush&pkt_size=1316&streamid={id}")
    };
    let publisher = ffmpeg(&[
        "-re",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=320x180:r=25",
        "-t",
        "600",
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-f",
        "mpegts",
        &url("publish:cam"),
    ]);
    let scenario = format!(
        "name: cam\nduration: 8s\nclients:\n  viewers:\n    protocol: srt\n    \
         urls: [\"{}\"]\n    load: {{ clients: 3, start: at_once }}\n",
        url("read:cam")
    );
    write(folder.path(), "run.yaml", &scenario);
    // A stream that is not published yet is refused.
    wait_for("ffmpeg publishes", Duration::from_secs(60), || {
        let url = url("read:cam");
        let arguments = [
            "load", &url, "-c", "1", "-d", "1s", "--json", "try.json", "--force",
        ];
        let tried = Process::start(streamgauge(arguments), folder.path());
        tried.finish(RUN_TIMEOUT);
        let report = Report::read(&folder.path().join("try.json"));
        let connected = report.metric("connect_delay")["count"].as_u64() == Some(1);
        (connected && report.failures("stream_not_found") == 0).then_some(())
    });
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    publisher.signal("TERM");
    publisher.finish(RUN_TIMEOUT);
    // The player decodes, and prints errors in the stream.
    let player = ffmpeg(&["-i", &url("stream1"), "-t", "2", "-f", "null", "-"]);
    let played = player.finish(RUN_TIMEOUT).expect(0);
    assert_eq!(played.stderr, "");
    let report = Report::read(&folder.path().join("out.json"));
    let count = |name: &str| number(report.metric(name));
    assert_eq!((count("continuity_errors"), count("pkt_rcv_drop")), (0, 0));
    // Unstamped, because ffmpeg made the stream.
    assert_eq!(count("expected"), 0);
    assert!(count("non_null_packets") > 1000);
    let served = served(server, folder.path());
    let published = served.iter().find(|line| line["published"] == true);
    let published = published.expect("ffmpeg published");
    let unique = number(&published["receiver"]["pktRecvUnique"]);
    assert_eq!(number(&published["media"]), unique);
    assert_eq!(number(&published["undecryptable"]), 0);
    let text = fs::read(folder.path().join("out.json")).expect("it is there");
    assert!(!String::from_utf8_lossy(&text).contains("hush"));
}

#[test]
fn wrong_passphrases_and_unknown_keys_are_named() {
    let folder = folder();
    let port = free_port();
    let server = serve(folder.path(), port, &["--passphrase", "hush-hush-hush"]);
    for (query, reason) in [
        ("passphrase=hush-hush-hash", "wrong_passphrase"),
        ("", "passphrase_missing"),
    ] {
        let url = format!("srt://127.0.0.1:{port}?{query}");
        let arguments = [
            "load", &url, "-c", "1", "-d", "20s", "--json", "out.json", "--force",
        ];
        let finished = run(folder.path(), arguments);
        finished.expect(99);
        let report = Report::read(&folder.path().join("out.json"));
        assert_eq!(report.failures(reason), 1);
    }
    let url = format!("srt://127.0.0.1:{port}?latensy=200");
    let finished = run(folder.path(), ["load", &url, "-c", "1", "-d", "2s"]);
    finished.expect(104).names("did you mean `latency`?");
    served(server, folder.path());
}

#[test]
fn srt_live_transmit_is_launched_by_its_name() {
    if !have("srt-live-transmit") {
        return;
    }
    let folder = folder();
    let port = free_port();
    let scenario = format!(
        "name: launched\nduration: 6s\nserver: {{ launch: srt-live-transmit, port: {port} }}\n\
         clients:\n  viewers:\n    protocol: srt\n    urls: [\"srt://127.0.0.1:{port}\"]\n    \
         load: {{ clients: 1, start: at_once }}\n"
    );
    write(folder.path(), "run.yaml", &scenario);
    // Nobody sends to it, so the client fails.
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.failures("no_media"), 1);
    assert_eq!(report.metric("connect_delay")["count"], 1);
}

#[test]
fn find_needs_few_runs_for_the_first_latency_that_passes() {
    let folder = folder();
    let port = free_port();
    let scenario = format!(
        "name: found\nduration: 5s\nserver:\n  \
         command: [streamgauge, serve, srt, --port, \"{port}\", --latency, 20ms]\n  \
         ready: {{ udp: {port} }}\nclients:\n  viewers:\n    \
         urls: [\"srt://127.0.0.1:{port}?streamid=one\"]\n    \
         load: {{ clients: 1, start: at_once }}\nvary:\n  \
         clients.viewers.latency: [50ms, 100ms, 150ms, 200ms, 250ms, 300ms, 350ms]\n\
         find: clients.viewers.latency\nsettle: 0s\n\
         thresholds: [\"viewers.agreed_latency.p50 > 180ms\"]\n"
    );
    write(folder.path(), "run.yaml", &scenario);
    let ran = run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    let shown = ran.stdout + &ran.stderr;
    assert!(shown.contains("passes from 200ms on"), "{shown}");
    let text = fs::read(folder.path().join("out.json")).expect("it was written");
    let series: Value = serde_json::from_slice(&text).expect("it is JSON");
    let found = &series["found"][0];
    assert_eq!(
        (&found["passed"], &found["not_passed"]),
        (&"200ms".into(), &"150ms".into())
    );
    // Runs with 350, 200, 100 and 150 ms.
    assert_eq!(series["runs"].as_array().map(Vec::len), Some(4));
}

#[test]
fn server_on_all_addresses_answers_from_the_asked_one() {
    let folder = folder();
    let port = free_port();
    let server = serve(folder.path(), port, &["--listen", "0.0.0.0"]);
    let url = format!("srt://127.0.0.2:{port}");
    let arguments = ["load", &url, "-c", "2", "-d", "5s", "--json", "out.json"];
    run(folder.path(), arguments).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    assert!(number(report.metric("pkt_recv")) > 0);
    served(server, folder.path());
}

#[test]
fn answer_from_another_address_is_named() {
    let folder = folder();
    let bind = |address| std::net::UdpSocket::bind((address, 0)).expect("a free port");
    let (asked, answering) = (bind("127.0.0.1"), bind("127.0.0.2"));
    let asked_at = asked.local_addr().expect("bound");
    let url = format!("srt://{asked_at}?conntimeo=6000");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let within = Some(Duration::from_millis(100));
            asked.set_read_timeout(within).expect("it is not zero");
            let mut request = [0; 1500];
            while !ended.load(Ordering::Relaxed) {
                if let Ok((length, from)) = asked.recv_from(&mut request) {
                    let sent = answering.send_to(&request[..length], from);
                    sent.expect("loopback takes it");
                }
            }
        });
        let arguments = ["load", &url, "-c", "1", "-d", "12s", "--receive", "ring"];
        let ran = run(folder.path(), arguments);
        ended.store(true, Ordering::Relaxed);
        let shown = ran.stdout + &ran.stderr;
        // Lines are wrapped.
        let words: Vec<_> = shown.split_whitespace().collect();
        let named = "datagrams came from 127.0.0.2, which do not count";
        let has_no_ring = shown.contains("CAP_NET_RAW");
        assert!(has_no_ring || words.join(" ").contains(named), "{shown}");
    });
}

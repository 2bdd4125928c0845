//! `--trace`: the packets of one client, as tshark reads them, agree with the report.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{
    Finished, Process, RUN_TIMEOUT, Report, Server, folder, free_port, have, number, run,
    streamgauge, wait_for,
};

/// Clock rate of the reference server's video, in Hz.
const CLOCK_RATE: f64 = 90_000.0;

/// A capture file of a client of the server on `port`.
struct Capture {
    path: PathBuf,
    port: u16,
}

/// An RTP packet as tshark prints it.
struct Rtp {
    /// Nanoseconds since 1970.
    at: i64,
    timestamp: u32,
    ssrc: u64,
    /// Length of the datagram, header included. 0 on a connection.
    length: u64,
}

impl Capture {
    fn new(folder: &Path, name: &str, server: &Server) -> Capture {
        Capture {
            path: folder.join(name),
            port: server.port,
        }
    }

    /// Returns tshark's output with these arguments.
    fn tshark(&self, arguments: &[&str]) -> String {
        let output = Command::new("tshark")
            .args(["-n", "-d", &format!("tcp.port=={},rtsp", self.port)])
            .args(["-o", "ip.check_checksum:TRUE"])
            .args(["-o", "tcp.check_checksum:TRUE"])
            .args(["-o", "udp.check_checksum:TRUE"])
            .arg("-r")
            .arg(&self.path)
            .args(arguments)
            .output()
            .expect("tshark is there");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// Returns the fields of each packet that passes a filter. If a frame has several values of a
    /// field, they follow each other.
    fn fields(&self, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        let mut arguments = vec!["-Y", filter, "-T", "fields"];
        for field in fields {
            arguments.extend(["-e", field]);
        }
        let text = self.tshark(&arguments);
        let split = |line: &str| line.split('\t').map(str::to_owned).collect();
        text.lines().map(split).collect()
    }

    fn rtp(&self) -> Vec<Rtp> {
        let fields = [
            "frame.time_epoch",
            "rtp.timestamp",
            "rtp.ssrc",
            "udp.length",
        ];
        let mut packets = Vec::new();
        for row in self.fields("rtp", &fields) {
            let at: i64 = row[0].replace('.', "").parse().expect("nine decimals");
            for (timestamp, ssrc) in row[1].split(',').zip(row[2].split(',')) {
                let ssrc = ssrc.strip_prefix("0x").expect("it is hexadecimal");
                packets.push(Rtp {
                    at,
                    timestamp: timestamp.parse().expect("a number"),
                    ssrc: u64::from_str_radix(ssrc, 16).expect("a number"),
                    length: row[3].parse().unwrap_or(0),
                });
            }
        }
        packets
    }

    /// Asserts what holds for every trace that is complete.
    #[track_caller]
    fn is_sound(&self) {
        // Wireshark does not remove the emulation prevention bytes (H.264, 7.4.1) from the
        // parameter sets of a session description, and reports them as malformed.
        let wrong = [
            "ip.checksum.status == 0",
            "tcp.checksum.status == 0",
            "udp.checksum.status == 0",
            "tcp.analysis.lost_segment",
            "tcp.analysis.retransmission",
            "tcp.analysis.ack_lost_segment",
            "tcp.analysis.window_full",
            "(_ws.malformed && !sdp)",
        ]
        .join(" || ");
        assert_eq!(
            self.fields(&wrong, &["_ws.col.Info"]),
            Vec::<Vec<String>>::new()
        );
        let rows = self.fields(
            "frame",
            &[
                "tcp.checksum.status",
                "udp.checksum.status",
                "rtsp.method",
                "rtsp.status",
            ],
        );
        let column = |index: usize| {
            let values = rows.iter().map(move |row| row[index].as_str());
            values.filter(|value| !value.is_empty())
        };
        let checked = column(0).chain(column(1)).filter(|&status| status == "1");
        assert_eq!(checked.count(), rows.len());
        let requests = ["OPTIONS", "DESCRIBE", "SETUP", "PLAY", "TEARDOWN"];
        assert_eq!(column(2).collect::<Vec<_>>(), requests);
        assert_eq!(column(3).collect::<Vec<_>>(), ["200"; 5]);
    }
}

/// Returns the mean of the interarrival jitter after each packet, in seconds: RFC 3550, 6.4.1.
fn mean_jitter(packets: &[Rtp]) -> f64 {
    let (mut jitter, mut sum) = (0.0, 0.0);
    for pair in packets.windows(2) {
        let interval = (pair[1].at - pair[0].at) as f64 / 1e9;
        let units = pair[1].timestamp.wrapping_sub(pair[0].timestamp) as i32;
        let difference = interval - f64::from(units) / CLOCK_RATE;
        jitter += (difference.abs() - jitter) / 16.0;
        sum += jitter;
    }
    sum / (packets.len() - 1) as f64
}

/// Returns the command under test, which plays all media even if a busy machine interrupts the
/// server.
fn to_the_end<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut load = streamgauge(arguments);
    load.env("STREAMGAUGE_CLIENTS__VIEWERS__END_SILENCE", "8s");
    load
}

/// Plays from a faulty server with one client, whose trace must agree with the report.
fn says_what_the_report_says(transport: &str) {
    if !have("tshark") {
        return;
    }
    let folder = folder();
    let faults = "--length 3s --bitrate 2Mbps --seed 11 --fault loss=3% --fault duplicate=3% \
                  --fault reorder=3%x2 --fault jitter=3ms";
    let faults: Vec<&str> = faults.split(' ').filter(|word| !word.is_empty()).collect();
    let server = Server::start(folder.path(), &faults);
    let url = server.url();
    let arguments = format!(
        "load {url} --transport {transport} --receive sockets --json out.json --out x.run --trace 0"
    );
    let load = to_the_end(arguments.split(' '));
    let finished = Process::start(load, folder.path()).finish(RUN_TIMEOUT);
    let finished = finished.expect(0);
    assert!(
        finished.stderr.contains("x.run.viewers-0.pcapng"),
        "{}",
        finished.stderr
    );
    let report = Report::read(&folder.path().join("out.json"));
    report.tester_was_fit();
    let events = report.0["events"].as_array().expect("there are some");
    let is_reported = events.iter().any(|event| event["kind"] == "trace");
    assert!(is_reported, "{events:?}");

    let capture = Capture::new(folder.path(), "x.run.viewers-0.pcapng", &server);
    capture.is_sound();
    let packets = capture.rtp();
    let counts = report.counts();
    assert!(counts.lost > 0 && counts.duplicated > 0, "{counts:?}");
    let received = packets.len() as u64;
    assert_eq!(received, counts.received + counts.duplicated, "{counts:?}");
    let (ours, theirs) = (&report.metric("jitter")["mean"], mean_jitter(&packets));
    let ours = ours.as_f64().expect("there were packets");
    assert!(
        (ours - theirs).abs() <= theirs / 100.0,
        "jitter: report {ours}, capture {theirs}"
    );
    let (_, done) = server.stop();
    assert_eq!(received, done.received + done.duplicated);
}

#[test]
fn trace_of_udp_agrees_with_the_report() {
    says_what_the_report_says("udp");
}

#[test]
fn trace_of_tcp_agrees_with_the_report() {
    says_what_the_report_says("tcp");
}

/// Plays with several clients on several workers. Each trace must hold all packets of one client,
/// and no others. Returns `None` if tshark or the ring is missing.
fn keeps_clients_apart(receive: &str) -> Option<()> {
    if !have("tshark") {
        return None;
    }
    let folder = folder();
    let server = Server::start(
        folder.path(),
        &["--length", "2s", "--bitrate", "1Mbps", "--mtu", "4000"],
    );
    let url = server.url();
    let arguments = format!(
        "load {url} -c 6 --workers 2 --receive {receive} --json out.json --out x.run \
         --trace viewers/3 --trace 4"
    );
    let process = Process::start(to_the_end(arguments.split_whitespace()), folder.path());
    let finished = process.finish(RUN_TIMEOUT);
    if finished
        .stderr
        .contains("cannot be received by a packet ring")
    {
        return None;
    }
    finished.expect(0);
    let captures = [3, 4].map(|number| {
        let name = format!("x.run.viewers-{number}.pcapng");
        Capture::new(folder.path(), &name, &server)
    });
    let (streams, _) = server.stop();
    let mut seen = BTreeSet::new();
    for capture in captures {
        capture.is_sound();
        let packets = capture.rtp();
        let ssrcs: BTreeSet<u64> = packets.iter().map(|packet| packet.ssrc).collect();
        assert_eq!(ssrcs.len(), 1, "one client's");
        let served = streams
            .iter()
            .find(|stream| ssrcs.contains(&number(&stream["ssrc"])))
            .expect("the server sent it");
        assert_eq!(packets.len() as u64, number(&served["sent"]));
        assert!(
            packets.iter().any(|packet| packet.length > 3000),
            "larger ones than a ring or a batch keeps are there, and whole"
        );
        seen.extend(ssrcs);
    }
    assert_eq!(seen.len(), 2, "two clients");
    Some(())
}

#[test]
fn traces_with_sockets_keep_clients_apart() {
    keeps_clients_apart("sockets");
}

#[test]
fn traces_with_a_ring_keep_clients_apart() {
    // `None` if there is no ring.
    let _ = keeps_clients_apart("ring");
}

#[test]
fn trace_of_a_killed_run_can_be_read() {
    if !have("tshark") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "1Mbps"]);
    let arguments = format!("load {} -c 2 --out x.run --trace 1", server.url());
    let load = Process::start(streamgauge(arguments.split(' ')), folder.path());
    let capture = Capture::new(folder.path(), "x.run.viewers-1.pcapng", &server);
    wait_for("media is in the file", Duration::from_secs(60), || {
        let length = capture.path.metadata().ok()?.len();
        (length > 50_000).then_some(())
    });
    load.signal("KILL");
    let Finished { status, .. } = load.finish(Duration::from_secs(60));
    assert_eq!(status.code(), None, "it was killed");
    assert!(capture.rtp().len() > 20);
}

#[test]
fn trace_on_a_full_disk_is_incomplete_and_the_run_continues() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--length", "2s"]);
    // Every write to this file fails.
    std::os::unix::fs::symlink("/dev/full", folder.path().join("x.run.viewers-0.pcapng"))
        .expect("the folder can be written");
    let url = server.url();
    let arguments = ["load", &url, "--trace", "0", "--out", "x.run"];
    let arguments = arguments
        .into_iter()
        .chain(["--json", "out.json", "--force"]);
    run(folder.path(), arguments)
        .expect(0)
        .names("incomplete: writing the file failed");
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.clients("completed"), 1);
    let events = report.0["events"].as_array().expect("there are some");
    let kinds: Vec<&str> = events.iter().filter_map(|e| e["kind"].as_str()).collect();
    assert!(
        kinds.contains(&"trace_incomplete") && kinds.contains(&"trace"),
        "{events:?}"
    );
}

#[test]
fn trace_of_an_unknown_client_is_an_error_before_the_run() {
    let folder = folder();
    let url = format!("rtsp://127.0.0.1:{}/1", free_port());
    for name in ["5", "viewers/5", "watchers/1"] {
        let arguments = ["load", &url, "-c", "5", "--trace", name, "--out", "x.run"];
        run(folder.path(), arguments)
            .expect(104)
            .names(name)
            .names("viewers/0 to viewers/4");
        assert!(!folder.path().join("x.run").exists(), "nothing has begun");
    }
}

//! Real browsers next to the clients of a run: their own figures are in the report, and they end
//! with the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::namespace::Namespace;
use crate::support::{
    Process, Report, assert_most_arrived, folder, free_port, have, number, run, streamgauge,
    wait_for,
};

/// Browsers start slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the reference server on this port.
fn serve(folder: &Path, port: u16) -> Process {
    let port_text = port.to_string();
    let command = streamgauge([
        "serve",
        "webrtc",
        "--port",
        &port_text,
        "--audio",
        "--bitrate",
        "500kbps",
        // No packet leaves before the browser has its keys: the browser would not count it.
        "--fault",
        "delay=2s",
        "--report",
        "served.jsonl",
    ]);
    let mut server = Process::start(command, folder);
    server.listen(port);
    server
}

fn viewers(port: u16, duration: &str) -> String {
    format!(
        "clients:
  viewers:
    urls: ['whep+http://127.0.0.1:{port}/whep/one']
    golden: {{ chromium: 1 }}
    load: {{ clients: 1 }}
duration: {duration}
"
    )
}

fn of(report: &Report, population: &str, metric: &str) -> u64 {
    number(&report.0["populations"][population]["metrics"][metric])
}

#[test]
fn browser_counts_each_packet_that_was_sent_to_it() {
    if !have("chromium") {
        return;
    }
    let (folder, port) = (folder(), free_port());
    let server = serve(folder.path(), port);
    fs::write(folder.path().join("s.yaml"), viewers(port, "12s")).expect("there is room");
    run(folder.path(), ["run", "s.yaml", "--json", "out.json"]).expect(0);
    server.signal("TERM");
    server.finish(PATIENCE);
    let text = fs::read_to_string(folder.path().join("served.jsonl")).expect("it was written");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let sessions: Vec<Value> = lines.map(|line| line.expect("a line of JSON")).collect();
    let sent = sessions
        .iter()
        .filter_map(|line| line.pointer("/sent/sent")?.as_u64());
    let report = Report::read(&folder.path().join("out.json"));
    let golden = |name: &str| of(&report, "viewers_golden", name);
    let ours = of(&report, "viewers", "received");
    assert!(
        golden("packets_received") > 100,
        "{}",
        golden("packets_received")
    );
    let sent: Vec<u64> = sent.collect();
    let [first, second] = sent[..] else {
        panic!("{sent:?}");
    };
    let (theirs, lost) = (golden("packets_received"), golden("packets_lost"));
    // A browser that a busy machine keeps waiting loses packets at its socket.
    assert!(4 * lost < theirs, "{lost} lost, {theirs} came");
    // A client of streamgauge stops counting when it begins to leave; the browser does not.
    let fits = |own: u64, other: u64| (theirs..=theirs + lost).contains(&own) && ours <= other;
    assert!(
        fits(first, second) || fits(second, first),
        "{theirs} and {ours} came, {lost} were lost, and sent were {sent:?}"
    );
    assert!(golden("frames_decoded") > 50 && golden("key_frames_decoded") > 0);
    assert!(golden("received_samples") > 8_000);
    assert_eq!(
        (golden("started"), golden("stopped"), golden("failed")),
        (1, 1, 0)
    );
    let found = &report.0["populations"]["viewers_golden"]["metrics"];
    for name in [
        "cpu",
        "cpu_renderer",
        "pss",
        "jitter",
        "jitter_buffer_delay",
        "startup_delay",
    ] {
        assert!(found[name]["mean"].is_number(), "{name}: {}", found[name]);
    }
}

/// Returns the browser processes below `parent` that use a folder of streamgauge, with their
/// folders.
fn browsers(parent: u32) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("this is Linux").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut words = line.split('\0');
        let profile = words.find_map(|word| word.strip_prefix("--user-data-dir="));
        if let Some(profile) = profile.filter(|_| is_below(pid, parent)) {
            let scratch = Path::new(profile).ancestors().nth(2).expect("it is deep");
            found.push((pid, scratch.to_owned()));
        }
    }
    found
}

fn is_below(pid: u32, parent: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let above = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
    match above {
        Some(0 | 1) | None => false,
        Some(above) => above == parent || is_below(above, parent),
    }
}

#[test]
fn nothing_of_a_browser_is_left_after_kill_9() {
    if !have("chromium") {
        return;
    }
    let (folder, port) = (folder(), free_port());
    let _server = serve(folder.path(), port);
    fs::write(folder.path().join("s.yaml"), viewers(port, "60s")).expect("there is room");
    let load = Process::start(streamgauge(["run", "s.yaml"]), folder.path());
    wait_for("the run has begun", PATIENCE, || {
        load.stderr_text().contains("running").then_some(())
    });
    let started = wait_for("several processes", PATIENCE, || {
        let started = browsers(load.id());
        (started.len() > 1).then_some(started)
    });
    load.signal("KILL");
    load.finish(PATIENCE);
    wait_for("all of the browser is gone", PATIENCE, || {
        let gone = |(pid, scratch): &(u32, PathBuf)| {
            !Path::new(&format!("/proc/{pid}")).exists() && !scratch.exists()
        };
        started.iter().all(gone).then_some(())
    });
}

#[test]
fn error_about_a_missing_browser_names_the_package() {
    let folder = folder();
    fs::write(folder.path().join("s.yaml"), viewers(9, "6s")).expect("there is room");
    for command in ["run", "check"] {
        let mut command = streamgauge([command, "s.yaml"]);
        command.env("PATH", folder.path());
        let ended = Process::start(command, folder.path()).finish(PATIENCE);
        ended.expect(104).names("apt-get install chromium");
    }
}

#[test]
fn browser_decodes_the_vp8_of_others_in_a_janus_room() {
    if !have("janus") || !have("chromium") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    let scenario = "network: veth
server: { launch: janus }
clients:
  people:
    urls: ['janus+ws://{server}:8188/videoroom/77']
    participate: { bitrate: 256kbps, video_codec: vp8, audio: true }
    room: { publishers: 10, video_codecs: vp8 }
    golden: { chromium: 1 }
    load: { clients: 2, ramp: 1s }
duration: 20s
";
    fs::write(folder.path().join("room.yaml"), scenario).expect("there is room");
    run(folder.path(), ["run", "room.yaml", "--json", "room.json"]).expect(0);
    let report = Report::read(&folder.path().join("room.json"));
    let golden = |name: &str| of(&report, "people_golden", name);
    // The browser sees both clients, and both see it.
    let streams = &report.0["populations"]["people_golden"]["metrics"]["streams"]["max"];
    assert_eq!(streams.as_f64(), Some(4.0));
    assert_eq!(golden("failed"), 0);
    // Janus and a browser that a busy machine keeps waiting lose packets at their sockets.
    let (lost, theirs) = (golden("packets_lost"), golden("packets_received"));
    assert!(4 * lost < theirs, "{lost} lost, {theirs} came");
    assert!(golden("frames_decoded") > 50 && golden("frames_encoded") > 20);
    let (sent, received) = (
        of(&report, "people", "sent_packets"),
        of(&report, "people", "received"),
    );
    let ours = sent + 2 * golden("packets_sent");
    assert!(received > sent && received <= ours, "{received} of {ours}");
    assert_most_arrived(received, of(&report, "people", "expected"));
}

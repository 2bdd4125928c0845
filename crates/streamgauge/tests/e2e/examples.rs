//! Runs every file in `examples/` as its own comment says. Each is shortened by `--set`, and runs
//! in a network namespace of its own, because the ports and addresses in examples may be in use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::namespace::Namespace;
use crate::support::{
    Process, folder, have, have_built, run, run_concurrently, streamgauge, wait_for,
};
use crate::webrtc_recordings::webm;

/// Time limit of an example, including its clips.
const EXAMPLE_TIMEOUT: Duration = Duration::from_secs(120);

/// An example, and the settings that make it short enough for a test.
struct Example {
    file: &'static str,
    set: &'static [&'static str],
}

/// Examples that need no other program.
const MESSAGES: [Example; 4] = [
    Example {
        file: "messages-12.yaml",
        // Without a pause both sides use all of two cores, and a tester that waits for a core is
        // invalid.
        set: &["duration=4s", "warm_up=1s", "clients.users.plan.sleep=2ms"],
    },
    Example {
        file: "messages-3000.yaml",
        set: SOME_CONNECTIONS,
    },
    Example {
        file: "messages-6000.yaml",
        set: SOME_CONNECTIONS,
    },
    Example {
        file: "messages-series.yaml",
        set: &[
            "duration=3s",
            "warm_up=1s",
            "settle=0s",
            "clients.users.load.ramp=500ms",
            "vary.clients.users.load.clients=[20, 40]",
            "vary.clients.users.plan.sleep=[5ms]",
        ],
    },
];
const SOME_CONNECTIONS: &[&str] = &[
    "duration=4s",
    "warm_up=1s",
    "clients.users.load.clients=60",
    "clients.users.load.ramp=500ms",
];

/// Examples of SRT, with streamgauge's own server.
const SRT: [Example; 1] = [Example {
    file: "srt-publish.yaml",
    set: &[
        "duration=8s",
        "clients.viewers.load={clients: 4, ramp: 500ms}",
        // A sender drops packets that are not acknowledged in time, and a busy machine delays that.
        "clients.cameras.latency=3s",
        "clients.viewers.latency=3s",
        "thresholds=[\"viewers.pkt_loss <= 0%\"]",
    ],
}];

/// Examples of rooms, with Janus if it is installed.
const ROOMS: [Example; 8] = [
    Example {
        file: "janus-broadcast.yaml",
        set: &[
            "duration=10s",
            "clients.viewers.load={clients: 3, ramp: 1s}",
            "thresholds=[\"viewers.received > 0\"]",
        ],
    },
    Example {
        file: "janus-mountpoint.yaml",
        set: &[
            "duration=10s",
            "clients.viewers.load={clients: 3, ramp: 1s}",
            "thresholds=[\"viewers.received > 0\"]",
        ],
    },
    Example {
        file: "janus-last-n.yaml",
        set: &[
            "duration=10s",
            "clients.people.load={clients: 3, ramp: 1s}",
            "clients.people.last_n=1",
            "thresholds=[\"people.sent_voice_packets > 0\"]",
        ],
    },
    Example {
        file: "janus-simulcast.yaml",
        set: &[
            "duration=10s",
            "clients.stage.load={clients: 1, ramp: 1s}",
            "clients.gallery.load={clients: 2, ramp: 1s}",
            "thresholds=[\"gallery.received > 0\"]",
        ],
    },
    Example {
        file: "janus-roles.yaml",
        set: &[
            "duration=10s",
            "clients.pupils_240p.load={clients: 1, ramp: 1s}",
            "clients.pupils_144p.load={clients: 2, ramp: 2s}",
            "thresholds=[\"teacher.sent_packets > 0\"]",
        ],
    },
    Example {
        file: "janus-rooms.yaml",
        set: &[
            "duration=10s",
            "clients.people.load={clients: 3, ramp: 2s}",
            "thresholds=[\"people.sent_packets > 0\"]",
        ],
    },
    Example {
        file: "janus-rooms-series.yaml",
        set: &[
            "duration=10s",
            "warm_up=3s",
            "settle=0s",
            "clients.people.load.ramp=1s",
            "thresholds=[\"people.sent_packets > 0\"]",
            "vary.clients.people.load.clients=[2, 3]",
        ],
    },
    Example {
        file: "janus-ten-rooms.yaml",
        set: &[
            "duration=10s",
            "clients.people.load={clients: 20, ramp: 2s}",
            "thresholds=[\"people.sent_packets > 0\"]",
        ],
    },
];

/// Examples of LiveKit rooms, if LiveKit is built.
const LIVEKIT: [Example; 1] = [Example {
    file: "livekit-room.yaml",
    set: &[
        "duration=10s",
        "clients.people.load={clients: 3, ramp: 1s}",
        // LiveKit loses packets while a busy machine keeps it waiting.
        "thresholds=[\"people.received > 0\"]",
    ],
}];

/// Examples with an emulated link, which the run makes itself.
const LINKS: [Example; 10] = [
    Example {
        file: "link-changes.yaml",
        set: &[
            "duration=11s",
            // Longer than a busy machine keeps the server from sending.
            "link.outages=[4500ms..7s]",
            "link.stages=[{at: 2s, loss: 2%}, {at: 4s, loss: 0%}]",
        ],
    },
    Example {
        file: "link-places.yaml",
        set: &[
            "duration=4s",
            "clients.viewers.load={clients: 4, ramp: 500ms}",
            "vary.clients.viewers.transport=[udp]",
        ],
    },
    Example {
        file: "link-two-populations.yaml",
        set: &[
            "duration=5s",
            // The queue of the link drops packets if a busy machine lets the server send a burst.
            "thresholds=[\"near.loss <= 0%\", \"far_downlink.lost_by_chance > 0\"]",
        ],
    },
    Example {
        file: "rtmp-srt-delay.yaml",
        set: &[
            "duration=8s",
            "vary.link.rtt=[17ms]",
            "vary.link.loss=[0.1%]",
        ],
    },
    Example {
        file: "rtmp-srt-capacity.yaml",
        // No package provides MediaMTX.
        set: &[
            "vary=",
            "server={launch: nginx-rtmp}",
            "clients.publisher.urls=['rtmp://{server}/live/stream']",
            "clients.viewers.urls=['rtmp://{server}/live/stream']",
            "clients.viewers.load={clients: 2}",
            "capacity={of: clients.viewers.load.clients, max: 2, hold: 2s, budget: 1m}",
        ],
    },
    Example {
        file: "rtmp-srt-ladder.yaml",
        set: &[
            "duration=8s",
            "vary.link.rtt=[17ms]",
            "vary.clients.publisher.publish.bitrate=[1Mbps]",
        ],
    },
    Example {
        file: "srt-messages.yaml",
        set: &[
            "duration=5s",
            "clients.readers.load={clients: 4, start: at_once}",
            "thresholds=[\"readers.message_loss <= 0%\"]",
        ],
    },
    Example {
        file: "hls-latency.yaml",
        set: &[
            "duration=5s",
            "vary.link.loss=[0.5%]",
            "vary.clients.viewers.low_latency=[none, hints]",
            "clients.viewers.load.clients=2",
        ],
    },
    Example {
        file: "hls-or-ll-hls.yaml",
        set: &[
            "duration=5s",
            "vary.clients.viewers.live_distance=[4s]",
            "clients.viewers.load.clients=2",
        ],
    },
    Example {
        file: "srt-latency.yaml",
        set: &[
            "duration=6s",
            "vary.link.rtt=[20ms]",
            "vary.link.loss=[0.5%]",
            "vary.clients.viewer.latency=[20ms, 4s]",
        ],
    },
];

/// Examples that compare relays. Few machines have the relays, so the reference relay takes their
/// place.
const RELAYS: [Example; 4] = [
    Example {
        file: "relays-400M.yaml",
        set: SLOW,
    },
    Example {
        file: "relays-eight-groups.yaml",
        set: SLOW,
    },
    Example {
        file: "relays-one-group.yaml",
        set: SLOW,
    },
    Example {
        file: "relays-zapping.yaml",
        set: &[
            "duration=8s",
            "sources.channels.bitrate=2Mbps",
            "clients.viewers.zap.every=1s..2s",
            "clients.viewers.load.clients=4",
            // On a busy machine a relay may be silent for a second, and leave a group late.
            "thresholds=[\"viewers.zap_delay.count > 4\", \"viewers.zaps_failed <= 8\", \
             \"viewers.continuity_errors == 0\", \"server.groups_kept == 0\"]",
        ],
    },
];
const SLOW: &[&str] = &[
    "duration=4s",
    "warm_up=1s",
    "sources.channels.bitrate=2Mbps",
];
const REFERENCE_RELAY: [&str; 6] = [
    "vary=",
    "server.launch=",
    "server.port=",
    "server.groups=",
    "server.command=[streamgauge, serve, http-ts, --interface, lo, --port, \"5140\"]",
    "server.ready={port: 5140}",
];

/// Examples that launch a known server.
const LAUNCHED: [Example; 4] = [
    Example {
        file: "rtsp-actions.yaml",
        set: &[
            "server.clips.length=8s",
            "server.clips.count=2",
            "clients.viewers.urls=[\"rtsp://127.0.0.1:8554/clip{1..2}\"]",
            "clients.viewers.load.clients=2",
            "clients.viewers.actions=[{wait: 1s}, {pause: 1s}, {wait: 1s}, {seek: 4s..5s}, {wait: 1s}, {leave: {}}]",
        ],
    },
    Example {
        file: "rtsp-gstreamer.yaml",
        set: SHORT_CLIPS,
    },
    Example {
        file: "rtsp-vod.yaml",
        set: SHORT_CLIPS,
    },
    Example {
        file: "rtsp-vod-series.yaml",
        set: &[
            "server.clips.length=4s",
            "server.clips.count=2",
            "clients.viewers.urls=[\"rtsp://127.0.0.1:8554/clip{1..2}\"]",
            "vary.clients.viewers.load.clients=[1, 2]",
            "settle=0s",
        ],
    },
];
const SHORT_CLIPS: &[&str] = &[
    "server.clips.length=4s",
    "server.clips.count=2",
    "clients.viewers.urls=[\"rtsp://127.0.0.1:8554/clip{1..2}\"]",
    "clients.viewers.load.clients=2",
];

/// Example that publishes a file of the user's.
const RECORDING: &str = "janus-recording.yaml";

/// Examples whose comments start another process first.
const PREPARED: [&str; 4] = [
    RECORDING,
    "rtsp-observe.yaml",
    "rtsp-publish.yaml",
    "rtsp-receiver.yaml",
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Returns a namespace with the addresses that examples name. Returns `None` if namespaces are not
/// permitted, and prints why.
fn namespace() -> Option<Namespace> {
    let namespace = Namespace::with_multicast()?;
    namespace.ip("address add 10.0.0.1/32 dev lo");
    namespace.ip("address add 10.0.0.3/32 dev lo");
    Some(namespace)
}

/// Parts of the names of metrics that depend on how busy the machine is.
const TIMES: [&str; 3] = ["delay", "_to_media", "longest_gap"];

/// Returns a setting of an example's thresholds without those on times, which depend on how busy
/// the machine is.
fn thresholds_without_times(example: &Path) -> String {
    let text = fs::read_to_string(example).expect("it was just copied");
    let (_, after) = text.split_once("\nthresholds:\n").unwrap_or_default();
    let items = after.lines().map_while(|line| line.strip_prefix("  - "));
    let is_time = |item: &str| TIMES.iter().any(|part| item.contains(part));
    let kept: Vec<&str> = items.filter(|item| !is_time(item)).collect();
    match kept.is_empty() {
        true => "thresholds=".to_owned(),
        false => format!("thresholds=[{}]", kept.join(", ")),
    }
}

/// Runs an example from a copy of the folder, because its clips are made next to it.
fn run_it(namespace: &Namespace, file: &str, set: &[&str], environment: &[(&str, &str)]) {
    let folder = folder();
    let copy = folder.path().join("examples");
    fs::create_dir(&copy).expect("the folder is the test's");
    let path = copy.join(file);
    let text = fs::read_to_string(examples().join(file)).expect("the example is there");
    // SRT gives up after its latency, for which a busy machine may keep it waiting.
    let text = text.replace("latency=1440", "latency=3000");
    let text = text.replace("latency: 1440ms", "latency: 3000ms");
    fs::write(&path, text).expect("the folder is the test's");
    let mut arguments = vec!["run", path.to_str().expect("a plain path")];
    let unhurried = thresholds_without_times(&path);
    if !set.iter().any(|one| one.starts_with("thresholds=")) {
        arguments.extend(["--set", &unhurried]);
    }
    for one in set {
        arguments.extend(["--set", one]);
    }
    // Which packets a link loses follows from the seed. With some, srt-live-transmit's only answer
    // to a handshake is lost: it does not listen any more once it has a client.
    arguments.extend(["--seed", "1"]);
    // Other tests need the processors too.
    arguments.extend(["--set", "tester.priority=normal"]);
    let mut command = namespace.within(&streamgauge(&arguments));
    command.envs(environment.iter().copied());
    let ended = Process::start(command, folder.path()).finish(EXAMPLE_TIMEOUT);
    assert_eq!(
        ended.status.code(),
        Some(0),
        "{file}:\n{}\n{}",
        ended.stdout,
        ended.stderr
    );
}

/// Runs examples at the same time, each in a namespace of its own.
fn run_each(examples: &[Example]) {
    run_concurrently(examples, |example| {
        let Some(namespace) = namespace() else { return };
        run_it(&namespace, example.file, example.set, &[]);
    });
}

#[test]
fn every_example_is_run_by_a_test() {
    let there: BTreeSet<String> = fs::read_dir(examples())
        .expect("there are examples")
        .map(|entry| entry.expect("it can be read").file_name().into_string())
        .map(|name| name.expect("a plain name"))
        .collect();
    let tested = MESSAGES.iter().chain(&SRT).chain(&LINKS).chain(&RELAYS);
    let tested = tested.chain(&LAUNCHED).chain(&ROOMS).chain(&LIVEKIT);
    let tested: BTreeSet<String> = tested
        .map(|example| example.file)
        .chain(PREPARED)
        .map(str::to_owned)
        .collect();
    assert_eq!(there, tested);
}

#[test]
fn every_example_is_a_valid_scenario() {
    let folder = folder();
    for entry in fs::read_dir(examples()).expect("there are examples") {
        let path = entry.expect("it can be read").path();
        let check = ["check".as_ref(), "--offline".as_ref(), path.as_os_str()];
        let ended = run(folder.path(), check).expect(0);
        assert!(
            !ended.stderr.contains("warning"),
            "{}:\n{}",
            path.display(),
            ended.stderr
        );
    }
}

#[test]
fn examples_of_messages_run() {
    run_each(&MESSAGES);
}

#[test]
fn examples_of_srt_run() {
    run_each(&SRT);
}

#[test]
fn examples_of_rooms_run() {
    if !have("janus") {
        return;
    }
    run_each(&ROOMS);
    let Some(namespace) = namespace() else { return };
    let folder = folder();
    if webm(folder.path()) {
        let file = folder.path().join("talk.webm");
        let file = format!("clients.speakers.participate.file={}", file.display());
        let set = [
            &*file,
            "duration=10s",
            "clients.speakers.load={clients: 1, start: at_once}",
            "clients.audience.load={clients: 2, ramp: 1s}",
            "thresholds=[\"audience.received > 0\"]",
        ];
        run_it(&namespace, RECORDING, &set, &[]);
    }
}

#[test]
fn examples_of_livekit_run() {
    if !have_built("livekit-server") {
        return;
    }
    run_each(&LIVEKIT);
}

#[test]
fn examples_of_links_run() {
    if !Path::new("/dev/net/tun").exists() {
        return;
    }
    run_each(&LINKS);
}

#[test]
fn examples_of_relays_run() {
    run_concurrently(&RELAYS, |example| {
        let Some(namespace) = namespace() else { return };
        let set: Vec<&str> = REFERENCE_RELAY.iter().chain(example.set).copied().collect();
        run_it(&namespace, example.file, &set, &[]);
    });
}

#[test]
fn examples_that_launch_a_server_run() {
    let (vlc, gstreamer) = (have("vlc"), crate::servers::have_gstreamer());
    if !(vlc && gstreamer && have("ffmpeg")) {
        return;
    }
    run_each(&LAUNCHED);
}

#[test]
fn examples_that_need_another_process_run() {
    let Some(namespace) = namespace() else { return };
    let folder = folder();
    let start = |line: &str, until: &str| {
        let command = namespace.within(&streamgauge(line.split(' ')));
        let process = Process::start(command, folder.path());
        wait_for("it listens", Duration::from_secs(60), || {
            process.stdout_text().contains(until).then_some(())
        });
        process
    };
    let server = start("serve rtsp", "listening on");
    let pid = format!("server.observe.pid={}", server.id());
    let observe = [
        pid.as_str(),
        "clients.viewers.urls=[\"rtsp://127.0.0.1:8554/live\"]",
        "duration=8s",
        "warm_up=1s",
        "clients.viewers.leave={after: 4s}",
        "clients.viewers.load={clients: 4, ramp: 2s}",
    ];
    run_it(&namespace, "rtsp-observe.yaml", &observe, &[]);
    run_it(&namespace, "rtsp-publish.yaml", &["duration=5s"], &[]);
    drop(server);

    let receiver = start(
        "receive --listen 10.0.0.3:8560 --ports 40000..41999",
        "secret",
    );
    let _server = start(
        "serve rtsp --listen 10.0.0.1 --audio --allow-destination 10.0.0.3",
        "listening on",
    );
    let output = receiver.stdout_text();
    let secret = output
        .lines()
        .find_map(|line| line.split_once("secret").map(|(_, rest)| rest))
        .and_then(|rest| rest.split_whitespace().last())
        .expect("it prints its secret");
    let set = [
        "duration=5s",
        "warm_up=1s",
        "clients.viewers.load={clients: 4, ramp: 3s}",
    ];
    let environment = [("STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET", secret)];
    run_it(&namespace, "rtsp-receiver.yaml", &set, &environment);
}

//! Participants of a Janus room after streamgauge was killed: nothing is left of them, and the next
//! run passes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::janus::{Over, configure};
use crate::linked_runs::descendants;
use crate::namespace::Namespace;
use crate::network::interfaces;
use crate::support::{
    Process, RUN_TIMEOUT, Report, assert_most_arrived, folder, have, number, run, streamgauge,
    wait_for,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a scenario of three participants in a room that the run creates.
fn people(server: &str, host: &str) -> String {
    format!(
        "{server}
clients:
  viewers:
    protocol: webrtc
    urls: ['janus+ws://{host}:8188/videoroom/77']
    participate: {{ bitrate: 256kbps, audio: true }}
    room: {{ publishers: 10 }}
    load: {{ clients: 3, start: at_once }}
"
    )
}

/// Returns the network namespace of a process.
fn namespace_of(id: u32) -> Option<String> {
    let link = fs::read_link(format!("/proc/{id}/ns/net")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// Returns the processes in a network namespace.
fn within(namespace: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("Linux has it").flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| namespace_of(*id).as_deref() == Some(namespace))
        .collect()
}

/// Waits until all three play, and kills the run.
fn killed_in_the_midst(mut playing: Process) {
    wait_for("all play", PATIENCE, || {
        assert!(playing.runs(), "{}", playing.stderr_text());
        playing
            .stderr_text()
            .contains("3 of 3 playing")
            .then_some(())
    });
    playing.signal("KILL");
    playing.finish(PATIENCE);
}

/// Checks that the next run has only its own participants.
fn meets_nobody_else(folder: &Path) {
    let report = Report::read(&folder.join("next.json"));
    let count = |name: &str| number(report.metric(name));
    assert_eq!(report.clients("failed"), 0);
    // Each participant sends over one peer connection, and receives the two others over another.
    assert_eq!(count("peers_connected"), 6);
    let (sent, received) = (count("sent_packets"), count("received"));
    assert!(
        received > sent && received <= 2 * sent,
        "{sent} and {received}"
    );
    assert_most_arrived(received, count("expected"));
}

#[test]
fn kill_9_frees_ports_sockets_room_and_network() {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    let before = interfaces();
    let server = "network: veth\nserver: { launch: janus }";
    let text = people(server, "{server}");
    fs::write(folder.path().join("room.yaml"), text).expect("there is room");
    let arguments = ["run", "room.yaml", "--set", "duration=180s", "--no-live"];
    let playing = Process::start(streamgauge(arguments), folder.path());
    let own = namespace_of(std::process::id()).expect("Linux has namespaces");
    let (namespaces, started) = wait_for("Janus has a network of its own", PATIENCE, || {
        let started = descendants(playing.id());
        let namespaces: Vec<String> = started.iter().filter_map(|id| namespace_of(*id)).collect();
        let apart = namespaces.iter().any(|namespace| *namespace != own);
        apart.then_some((namespaces, started))
    });
    assert!(!started.is_empty());
    killed_in_the_midst(playing);
    // Sockets, ports and the room end with the processes, and with their namespace.
    for namespace in namespaces.iter().filter(|namespace| **namespace != own) {
        wait_for("nobody is in the network", PATIENCE, || {
            within(namespace).is_empty().then_some(())
        });
    }
    wait_for("all interfaces are gone", PATIENCE, || {
        (interfaces() == before).then_some(())
    });
    let arguments = [
        "run",
        "room.yaml",
        "--set",
        "duration=8s",
        "--json",
        "next.json",
    ];
    run(folder.path(), arguments).expect(0);
    meets_nobody_else(folder.path());
}

#[test]
fn running_janus_forgets_killed_participants() {
    if !have("janus") {
        return;
    }
    let Some(namespace) = Namespace::with_multicast() else {
        return;
    };
    let folder = folder();
    // Janus offers no address of the loopback interface.
    namespace.ip("link add one type veth peer name two");
    namespace.ip("addr add 10.81.5.1/24 dev one");
    for name in ["one", "two"] {
        namespace.ip(&format!("link set {name} up"));
    }
    configure(folder.path(), "10.81.5.1", Over::WebSockets);
    let mut command = Command::new("janus");
    command
        .args(["-C", "janus.jcfg", "-F", "."])
        .arg("--disable-colors");
    let _janus = Process::start(namespace.within(&command), folder.path());
    wait_for("Janus listens", PATIENCE, || {
        // Port 8188 in hexadecimal, in the state LISTEN.
        let table = namespace.table("tcp") + &namespace.table("tcp6");
        let listens = |line: &str| line.contains(":1FFC ") && line.contains(" 0A ");
        table.lines().any(listens).then_some(())
    });
    let text = people("", "10.81.5.1");
    fs::write(folder.path().join("room.yaml"), text).expect("there is room");
    let arguments = ["run", "room.yaml", "--set", "duration=180s", "--no-live"];
    let playing = Process::start(namespace.within(&streamgauge(arguments)), folder.path());
    killed_in_the_midst(playing);
    let arguments = [
        "run",
        "room.yaml",
        "--set",
        "duration=8s",
        "--json",
        "next.json",
    ];
    let next = Process::start(namespace.within(&streamgauge(arguments)), folder.path());
    next.finish(RUN_TIMEOUT).expect(0);
    meets_nobody_else(folder.path());
}

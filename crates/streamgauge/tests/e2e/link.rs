//! A program behind an emulated link: exactly the packets arrive that the link lets through, with
//! the configured delay, and the record agrees.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::namespace::Namespace;
use crate::support::{Finished, Process, folder, streamgauge, wait_for};

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a network with a loopback interface, or `None` if it cannot be made.
fn network() -> Option<Namespace> {
    let namespace = Namespace::with_multicast()?;
    Path::new("/dev/net/tun").exists().then_some(namespace)
}

fn run(namespace: &Namespace, folder: &Path, options: &[&str], program: &[&str]) -> Finished {
    let arguments = ["link"].iter().chain(options).chain(&["--"]).chain(program);
    let command = streamgauge(arguments.map(OsStr::new));
    Process::start(namespace.within(&command), folder).finish(PATIENCE)
}

/// Sends numbered datagrams to an echo at the other end and prints the numbers that come back. It
/// ends when the last one is back, which is not lost.
const ASK: &str = "
import os, socket, sys, time
sent = int(sys.argv[1])
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.connect((os.environ['STREAMGAUGE_LINK_HOST'], int(sys.argv[2])))
end.settimeout(30)
begun = time.monotonic()
for number in range(sent):
    end.send(b'%06d' % number)
back = []
while not back or back[-1] != sent - 1:
    back.append(int(end.recv(100)))
print(time.monotonic() - begun, *back)
";

/// Starts an echo in the network, which ends with the test.
fn echo(namespace: &Namespace, folder: &Path) -> (Process, u16) {
    const ECHO: &str = "
import socket
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind(('0.0.0.0', 0))
print(end.getsockname()[1], flush=True)
while True:
    datagram, sender = end.recvfrom(100)
    end.sendto(datagram, sender)
";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", ECHO]);
    let process = Process::start(namespace.within(&command), folder);
    let port = wait_for("the port of the echo", PATIENCE, || {
        process.stdout_text().trim().parse().ok()
    });
    (process, port)
}

#[test]
fn packets_arrive_as_the_link_drops_and_delays_them() {
    let Some(namespace) = network() else { return };
    let folder = folder();
    let (_echo, port) = echo(&namespace, folder.path());
    let record = folder.path().join("record.json");
    let port = port.to_string();
    let finished = run(
        &namespace,
        folder.path(),
        &[
            "--rtt",
            "200ms",
            "--up",
            "loss=every 10",
            "--down",
            "loss=packets 0, 1, 5",
            "--json",
            &record.display().to_string(),
        ],
        &["python3", "-c", ASK, "99", &port],
    );
    let output = &finished.stdout;
    let mut words = output.split_whitespace();
    let seconds: f64 = words
        .next()
        .and_then(|word| word.parse().ok())
        .expect(output);
    let back: Vec<u64> = words.map(|word| word.parse().expect(output)).collect();
    // On the way up every tenth is lost; on the way back the first, the second and the sixth.
    let there = (0..99).filter(|number| number % 10 != 9);
    let expected: Vec<u64> = there
        .zip(0..)
        .filter(|(_, index)| ![0, 1, 5].contains(index))
        .map(|(number, _)| number)
        .collect();
    assert_eq!(back, expected);
    assert!(
        (0.2..PATIENCE.as_secs_f64()).contains(&seconds),
        "{seconds}"
    );

    let record: Value = serde_json::from_str(&fs::read_to_string(record).expect("it is there"))
        .expect("it is JSON");
    for (name, packets, lost) in [("uplink", 99, 9), ("downlink", 90, 3)] {
        let direction = &record[name];
        assert_eq!(direction["packets"], packets, "{record}");
        assert_eq!(direction["lost"], lost, "{record}");
        assert_eq!(direction["lost_by_chance"], lost, "{record}");
        assert_eq!(direction["delivered"], packets - lost, "{record}");
        assert_eq!(direction["planned_delay"]["max"], 0.1, "{record}");
        let late = direction["lateness"]["max"]
            .as_f64()
            .expect("there were packets");
        let delay = direction["delay"]["max"]
            .as_f64()
            .expect("there were packets");
        assert!(delay >= 0.1 && delay <= 0.1 + late + 1e-9, "{record}");
    }
    assert_eq!(record["link"]["rtt"], "200ms");
    // A busy machine may make the link late; then the record says so.
    let fit = record["fit"] == true;
    assert_eq!(finished.status.code(), Some(if fit { 0 } else { 110 }));
    assert_eq!(finished.stderr.contains("not to be trusted"), !fit);
}

#[test]
fn program_behind_a_link_runs_as_under_a_shell() {
    let Some(namespace) = network() else { return };
    let folder = folder();
    let code = run(&namespace, folder.path(), &[], &["sh", "-c", "exit 7"]);
    assert_eq!(code.status.code(), Some(7), "{code:?}");
    let killed = run(&namespace, folder.path(), &[], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(128 + 9), "{killed:?}");
    let missing = run(&namespace, folder.path(), &[], &["no-such-program"]);
    assert_eq!(missing.status.code(), Some(104), "{missing:?}");
    assert!(missing.stderr.contains("cannot start `no-such-program`"));
    let finished = run(&namespace, folder.path(), &[], &["echo", "to {host}"]);
    assert_eq!(finished.stdout, "to 10.82.0.1\n");

    // A signal to the command ends the program.
    let waits = [
        "link",
        "--",
        "sh",
        "-c",
        "echo begun; exec cat /dev/zero > /dev/null",
    ];
    let command = streamgauge(waits.map(OsStr::new));
    let waiting = Process::start(namespace.within(&command), folder.path());
    wait_for("the program", PATIENCE, || {
        waiting.stdout_text().contains("begun").then_some(())
    });
    waiting.signal("TERM");
    let ended = waiting.finish(PATIENCE);
    assert_eq!(ended.status.code(), Some(128 + 15), "{ended:?}");
    // The link is removed completely.
    wait_for("the end of the interface", PATIENCE, || {
        (!namespace.table("dev").contains("sglink")).then_some(())
    });
}

#[test]
fn invalid_links_are_refused_before_the_program_starts() {
    let folder = folder();
    for (options, message) in [
        (
            &["--rtt", "10ms", "--delay", "5ms"][..],
            "cannot be used with",
        ),
        (&["--loss", "0.5"], "0.5%"),
        (&["--queue", "100ms"], "--rate"),
        (&["--up", "lost=1%"], "unknown key `lost`"),
        (&["--outage", "3s..1s"], "must end after its begin"),
        (&["--trace", "no-such-file"], "no-such-file"),
        (&["--mtu", "100"], "576"),
    ] {
        let arguments = ["link"]
            .iter()
            .chain(options)
            .chain(&["--", "touch", "begun"]);
        let command = streamgauge(arguments.map(OsStr::new));
        let finished = Process::start(command, folder.path()).finish(PATIENCE);
        assert_eq!(
            finished.status.code(),
            Some(104),
            "{options:?}: {finished:?}"
        );
        assert!(
            finished.stderr.contains(message),
            "{options:?}: {finished:?}"
        );
    }
    assert!(!folder.path().join("begun").exists());
}

#[test]
fn rate_and_queue_of_a_link_are_applied() {
    let Some(namespace) = network() else { return };
    let folder = folder();
    let record = folder.path().join("record.json");
    // 200 datagrams of 1,228 bytes at once: at 10 Mb/s each takes 0.9824 ms, and the queue holds 20
    // ms.
    const BURST: &str = "
import os, socket
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(200):
    end.sendto(b'x' * 1200, (os.environ['STREAMGAUGE_LINK_HOST'], 9))
";
    let file = record.display().to_string();
    let options = ["--rate", "10Mbps", "--queue", "20ms", "--json", &file];
    run(
        &namespace,
        folder.path(),
        &options,
        &["python3", "-c", BURST],
    );
    let record: Value = serde_json::from_str(&fs::read_to_string(record).expect("it is there"))
        .expect("it is JSON");
    let up = &record["uplink"];
    assert_eq!(up["packets"], 200, "{record}");
    assert_eq!(up["lost"], up["lost_queue_full"], "{record}");
    let lost = up["lost"].as_u64().expect("a number");
    // About twenty find room, and one more for each millisecond that sending took.
    assert!((1..=180).contains(&lost), "{record}");
    let queue = up["queue_bytes"]["max"].as_f64().expect("a number");
    assert!((1228.0..=21.0 * 1228.0).contains(&queue), "{record}");
}

#[test]
fn many_packets_leave_at_their_time_on_average() {
    let Some(namespace) = network() else { return };
    let folder = folder();
    let record = folder.path().join("record.json");
    // 3,000 packets a second for two seconds: a small machine looks at intervals then.
    const STREAM: &str = "
import os, socket, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# Unconnected: nobody listens, and answers of ICMP are no errors then.
to = (os.environ['STREAMGAUGE_LINK_HOST'], 9)
begun = time.monotonic()
for number in range(6000):
    time.sleep(max(0, begun + number / 3000 - time.monotonic()))
    end.sendto(bytes(100), to)
";
    let file = record.display().to_string();
    run(
        &namespace,
        folder.path(),
        &["--delay", "20ms", "--json", &file],
        &["python3", "-c", STREAM],
    );
    let record: Value = serde_json::from_str(&fs::read_to_string(record).expect("it is there"))
        .expect("it is JSON");
    let up = &record["uplink"];
    assert_eq!(up["packets"], 6000, "{record}");
    assert_eq!(up["delivered"], 6000, "{record}");
    // Single packets leave up to 0.2 ms early; a busy machine makes them late.
    for which in ["p50", "mean"] {
        let delay = up["delay"][which].as_f64().expect("a delay");
        assert!(delay >= 0.0199, "{record}");
    }
}

#[test]
fn trace_changes_the_link_while_it_is_used() {
    let Some(namespace) = network() else { return };
    let folder = folder();
    let (_echo, port) = echo(&namespace, folder.path());
    let trace = folder.path().join("trace.csv");
    fs::write(&trace, "time,rate,delay,loss\n0,,0.001,0\n5,,0.2,\n").expect("there is room");
    // Asks until three answers take as long as the second line of the trace demands: a busy machine
    // may delay one.
    const UNTIL_SLOW: &str = "
import os, socket, sys, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.connect((os.environ['STREAMGAUGE_LINK_HOST'], int(sys.argv[1])))
end.settimeout(30)
quick = slow = 0
while slow < 3:
    begun = time.monotonic()
    end.send(b'x')
    end.recv(10)
    took = time.monotonic() - begun
    slow = slow + 1 if took >= 0.4 else 0
    quick += took < 0.2
    time.sleep(0.01)
print(quick)
";
    let begun = Instant::now();
    let finished = run(
        &namespace,
        folder.path(),
        &["--trace", &trace.display().to_string()],
        &["python3", "-c", UNTIL_SLOW, &port.to_string()],
    );
    let quick: u64 = finished.stdout.trim().parse().expect("a number");
    assert!(quick > 0, "{finished:?}");
    assert!(begun.elapsed() >= Duration::from_millis(5400));
}

#[test]
fn program_ends_if_the_link_is_killed() {
    let Some(namespace) = network() else { return };
    let folder = folder();
    // The shell prints its process ID and stays.
    let words = [
        "link",
        "--delay",
        "1ms",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 600",
    ];
    let command = streamgauge(words.map(OsStr::new));
    let link = Process::start(namespace.within(&command), folder.path());
    let program: u32 = wait_for("the program runs", PATIENCE, || {
        link.stdout_text().trim().parse().ok()
    });
    let proc = format!("/proc/{program}/stat");
    // A zombie has ended.
    let runs = || {
        let stat = fs::read_to_string(&proc).unwrap_or_default();
        stat.contains(") S") || stat.contains(") R") || stat.contains(") D")
    };
    assert!(runs(), "it is the program's number");
    // The kernel gives the inode of a removed namespace to the next one. The guard, which kills
    // the processes of a namespace, must hold it open.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", link.id()));
    let network = fs::read_link(format!("/proc/{program}/ns/net")).expect("it runs");
    let holds = |child: &str| {
        let held = fs::read_link(format!("/proc/{child}/fd/1"));
        held.is_ok_and(|held| held == network)
    };
    let children = children.expect("Linux lists children");
    assert!(children.split_whitespace().any(holds), "{children}");
    link.signal("KILL");
    wait_for("the program ends too", PATIENCE, || (!runs()).then_some(()));
}

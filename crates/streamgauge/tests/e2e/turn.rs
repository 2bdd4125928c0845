//! WebRTC through coturn: clients count what the reference server sent them, and coturn logs their
//! relayed addresses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Process, Report, assert_most_arrived, folder, free_port, have, number, run, run_concurrently,
    streamgauge,
};

/// Starts coturn on this port, with a user `me` whose password is `hush-hush`. Returns `None` if it
/// is not installed.
fn relays(folder: &Path, port: u16, with: &[&str]) -> Option<Process> {
    if !have("turnserver") {
        return None;
    }
    let mut command = Command::new("turnserver");
    command
        .args(["-n", "--no-cli", "--no-dtls", "--verbose"])
        .args(["--listening-ip", "127.0.0.1", "--relay-ip", "127.0.0.1"])
        .args(["--listening-port", &port.to_string(), "--realm", "here"])
        .args(["--lt-cred-mech", "--user", "me:hush-hush"])
        .args(["--userdb", "turn.sqlite", "--pidfile", "turn.pid"])
        .args(["--simple-log", "--log-file", "turn.log"])
        .args(with);
    let mut server = Process::start(command, folder);
    server.listen(port);
    Some(server)
}

/// Starts the reference server on this port.
fn serve(folder: &Path, port: u16, with: &[&str]) -> Process {
    let mut command = streamgauge(["serve", "webrtc", "--port", &port.to_string()]);
    command.args(["--report", "served.jsonl"]).args(with);
    let mut server = Process::start(command, folder);
    server.listen(port);
    server
}

/// Stops the server. Returns the sums of its counts over all sessions.
fn served<const N: usize>(server: Process, folder: &Path, pointers: [&str; N]) -> [u64; N] {
    server.signal("TERM");
    server.finish(Duration::from_secs(60));
    let text = fs::read_to_string(folder.join("served.jsonl")).expect("it was written");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let mut lines: Vec<Value> = lines.map(|line| line.expect("a line of JSON")).collect();
    lines.pop();
    pointers.map(|pointer| {
        let counts = lines
            .iter()
            .filter_map(|line| line.pointer(pointer)?.as_u64());
        counts.sum()
    })
}

fn turn(port: u16, transport: &str, password: &str) -> String {
    let (scheme, transport, keys) = match transport {
        "tls" => ("turns", "tcp", "\n    tls: { ca: cert.pem }"),
        transport => ("turn", transport, ""),
    };
    format!(
        "turn: {{ url: '{scheme}:127.0.0.1:{port}?transport={transport}', user: me, \
         password: {password} }}{keys}"
    )
}

/// Plays through coturn. Returns `false` if the kernel dropped datagrams at coturn's sockets, which
/// it does if the machine leaves coturn no time.
fn plays_through_coturn(transport: &str, keys: &str, path: Option<&str>) -> bool {
    let folder = folder();
    let (relay, port) = (free_port(), free_port());
    let names = vec!["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("it can be made");
    let write = |name: &str, text: String| {
        fs::write(folder.path().join(name), text).expect("there is room");
    };
    write("cert.pem", made.cert.pem());
    write("key.pem", made.signing_key.serialize_pem());
    let with = "--allow-loopback-peers --stale-nonce=2 --cert cert.pem --pkey key.pem";
    let with: Vec<&str> = with.split(' ').collect();
    let Some(coturn) = relays(folder.path(), relay, &with) else {
        return true;
    };
    let with: Vec<&str> = "--audio --length 4s --fault loss=2%".split(' ').collect();
    let server = serve(folder.path(), port, &with);
    let turn = turn(relay, transport, "hush-hush");
    let scenario = format!(
        "duration: 20s\nclients:\n  viewers:\n    leave: at_end\n    {keys}\n    {turn}\n    \
     urls: [\"whep+http://127.0.0.1:{port}/whep/one\"]\n    \
     load: {{ clients: 3, start: at_once }}\n"
    );
    fs::write(folder.path().join("run.yaml"), scenario).expect("there is room");
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.clients("completed"), 3);
    let count = |name: &str| number(report.metric(name));
    let counts = ["/sent/expected", "/sent/payload_bytes", "/sent/left_out"];
    let [expected, bytes, left_out] = served(server, folder.path(), counts);
    assert!(expected > 3 * 400, "{expected}");
    assert_eq!(count("expected"), expected, "{transport} {keys}");
    if keys.contains("nack") {
        if count("lost") > left_out {
            return false;
        }
        assert_eq!(count("lost"), left_out, "{transport} {keys}");
        assert_eq!(count("payload_bytes"), bytes, "{transport} {keys}");
        assert!(left_out > 0);
    } else {
        // Packets lost at the end are requested too late.
        assert!(count("recovered_packets") > count("lost"));
        assert_eq!(count("unauthentic"), 0);
    }
    assert_eq!(count("stun_refused"), 0);
    assert!(report.metric("turn_delay")["p50"].as_f64() > Some(0.0));
    let found = report.0["tester"]["receive_path"].as_str();
    if path.is_some() {
        assert_eq!(found, path);
    }
    coturn.signal("TERM");
    coturn.finish(Duration::from_secs(60));
    let log = fs::read_to_string(folder.path().join("turn.log")).expect("it was written");
    let of = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    // Over UDP a client repeats a request that coturn does not answer within 250 ms.
    let one_each = |count: usize| count == 3 || (transport == "udp" && count > 3);
    assert!(one_each(of("ALLOCATE processed, success")), "{log}");
    assert!(one_each(of("CHANNEL_BIND processed, success")), "{log}");
    assert!(of("CREATE_PERMISSION processed, success") >= 3, "{log}");
    // Clients release their allocations at the end, after the first nonce has expired.
    assert!(one_each(of("REFRESH processed, success")), "{log}");
    assert!(of("error 438") >= 3, "{log}");
    true
}

#[test]
fn media_through_coturn_is_counted_exactly() {
    run_concurrently(
        &[
            ("udp", "nack: false", Some("sockets")),
            ("udp", "receive: decrypted", Some("sockets")),
            ("tcp", "nack: false", None),
            ("tls", "nack: false", None),
        ],
        |&(transport, keys, path)| {
            let mut attempts = 0..3;
            let counted = attempts.any(|_| plays_through_coturn(transport, keys, path));
            assert!(
                counted,
                "coturn lost datagrams three times: {transport} {keys}"
            );
        },
    );
}

#[test]
fn streams_are_published_and_played_through_coturn() {
    run_concurrently(&["udp", "tcp"], |&transport| {
        let folder = folder();
        let (relay, port) = (free_port(), free_port());
        let Some(_coturn) = relays(folder.path(), relay, &["--allow-loopback-peers"]) else {
            return;
        };
        let server = serve(folder.path(), port, &[]);
        let turn = turn(relay, transport, "hush-hush");
        let scenario = format!(
            "duration: 7s\nclients:\n  cameras:\n    {turn}\n    \
             urls: [\"whip+http://127.0.0.1:{port}/whip/cam{{1..2}}\"]\n    \
             publish: {{ bitrate: 1Mbps, audio: true }}\n    \
             load: {{ clients: 2, start: at_once }}\n  viewers:\n    {turn}\n    \
             receive: decrypted\n    pick: in_turn\n    \
             urls: [\"whep+http://127.0.0.1:{port}/whep/cam{{1..2}}\"]\n    \
             load: {{ clients: 2, start: at_once }}\n"
        );
        fs::write(folder.path().join("run.yaml"), scenario).expect("there is room");
        run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
        let report = Report::read(&folder.path().join("out.json"));
        let of = |population: &str, name: &str| {
            number(&report.0["populations"][population]["metrics"][name])
        };
        let [received, unauthentic] = served(
            server,
            folder.path(),
            ["/received/received", "/received/unauthentic"],
        );
        let sent = of("cameras", "sent_packets");
        // Packets in the relay when a publisher leaves do not reach the server. On a busy machine
        // these are those of two seconds.
        assert!(
            sent > 500 && received <= sent && received > sent / 2,
            "{received} of {sent}"
        );
        assert_eq!(unauthentic, 0);
        assert_eq!(of("viewers", "unauthentic"), 0);
        // coturn may drop some on a busy machine.
        assert_most_arrived(of("viewers", "received"), of("viewers", "expected"));
        assert!(of("viewers", "received") > 500);
        assert!(
            of("viewers", "frames_delivered") > 0,
            "time codes come through"
        );
    });
}

#[test]
fn refusals_of_coturn_have_failure_reasons() {
    for (with, password, reason, text) in [
        (
            &["--allow-loopback-peers"][..],
            "wrong",
            "turn_unauthorized",
            "401",
        ),
        (
            &["--allow-loopback-peers", "--user-quota=1"],
            "hush-hush",
            "turn_refused",
            "486",
        ),
        (&[], "hush-hush", "turn_refused", "CreatePermission: 403"),
    ] {
        let folder = folder();
        let (relay, port) = (free_port(), free_port());
        let Some(_coturn) = relays(folder.path(), relay, with) else {
            return;
        };
        let _server = serve(folder.path(), port, &[]);
        let turn = turn(relay, "udp", password);
        let scenario = format!(
            "duration: 10s\nclients:\n  viewers:\n    {turn}\n    ice_timeout: 5s\n    \
             urls: [\"whep+http://127.0.0.1:{port}/whep/one\"]\n    \
             load: {{ clients: 2, start: at_once }}\n"
        );
        fs::write(folder.path().join("run.yaml"), scenario).expect("there is room");
        let ended = run(folder.path(), ["run", "run.yaml", "--json", "out.json"]);
        let shown = ended.expect(99).stdout;
        assert!(shown.contains(text), "{text}: {shown}");
        assert!(!shown.contains("hush-hush"), "{shown}");
        let report = Report::read(&folder.path().join("out.json"));
        assert!(report.failures(reason) > 0, "{}", report.0["populations"]);
        let runs = folder.path().join("streamgauge-runs");
        let left = [folder.path(), &runs].map(|one| fs::read_dir(one).expect("it is there"));
        let left = left.into_iter().flatten();
        let left = left.map(|entry| entry.expect("it is there").path());
        let ours = |path: &PathBuf| {
            path.extension()
                .is_some_and(|end| end == "run" || end == "json")
        };
        for path in left.filter(ours) {
            let bytes = fs::read(&path).expect("it is there");
            let shown = bytes.windows(9).any(|own| own == b"hush-hush");
            assert!(!shown, "the password is in {}", path.display());
        }
    }
    // No TURN server listens there.
    let folder = folder();
    let port = free_port();
    let _server = serve(folder.path(), port, &[]);
    let turn = turn(free_port(), "udp", "hush-hush");
    let scenario = format!(
        "duration: 20s\nclients:\n  viewers:\n    {turn}\n    \
         urls: [\"whep+http://127.0.0.1:{port}/whep/one\"]\n    \
         load: {{ clients: 2, start: at_once }}\n"
    );
    fs::write(folder.path().join("run.yaml"), scenario).expect("there is room");
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(99);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.failures("refused"), 2, "{}", report.0["populations"]);
}

//! Keys of runs over several machines, and what they permit.

use std::fs;
use std::path::Path;

use crate::cluster::PATIENCE;
use crate::support::{
    Process, Report, Server, folder, free_port, have, listens, number, run, streamgauge, wait_for,
};

/// Speaks to NATS over TLS with the certificate that it is given, or none, and prints the answers.
const STRANGER: &str = "
import socket, ssl, sys
port, authority, own, *lines = sys.argv[1:]
plain = socket.create_connection(('localhost', int(port)), timeout=20)
plain.recv(4096)
context = ssl.create_default_context(cafile=authority)
if own:
    context.load_cert_chain(own)
try:
    nats = context.wrap_socket(plain, server_hostname='localhost')
    awaited = lines.pop(0)[5:].encode() if lines[0].startswith('WAIT ') else b'PONG'
    nats.settimeout(20)
    nats.sendall(''.join(line + '\\r\\n' for line in ['CONNECT {\"verbose\":false}', *lines, 'PING']).encode())
    answer = b''
    while awaited not in answer:
        part = nats.recv(65536)
        if not part:
            break
        answer += part
    print(answer.decode())
except OSError as error:
    print('refused:', error)
";

#[test]
fn keys_permit_each_only_its_own_and_strangers_nothing() {
    let needed = ["nats-server", "python3", "ffmpeg"];
    if !needed.into_iter().all(have) {
        return;
    }
    let folder = folder();
    let port = free_port().to_string();
    let made = ["cluster", "keys", "--host", "localhost", "--port", &port];
    let runners = ["--runner", "one", "--runner", "two"];
    run(folder.path(), made.into_iter().chain(runners)).expect(0);
    let keys = folder.path().join("cluster-keys");
    let mut command = std::process::Command::new("nats-server");
    command.args(["-c", "nats.conf"]);
    let mut nats = Process::start(command, &keys);
    wait_for("NATS listens", PATIENCE, || {
        assert!(nats.runs(), "it ended: {}", nats.stderr_text());
        listens(port.parse().expect("a port")).then_some(())
    });
    let at = format!("tls://localhost:{port}");
    let credentials = |name: &str| match name {
        "coordinator" => keys.join("coordinator.pem"),
        name => keys.join("runners").join(format!("{name}.pem")),
    };
    let command = |words: &[&str], name: &str| {
        let mut command = streamgauge(words.iter().copied());
        command
            .args(["--at", &at, "--creds"])
            .arg(credentials(name));
        command
    };

    let runners = ["one", "two"].map(|name| {
        let mut process = Process::start(command(&["runner", "--name", name], name), folder.path());
        wait_for("the runner waits for runs", PATIENCE, || {
            let [own, server] = [&process, &nats].map(Process::stderr_text);
            assert!(process.runs(), "it ended: {own}\nNATS: {server}");
            let text = process.stderr_text();
            text.contains("waits for runs").then_some(())
        });
        process
    });
    let server = Server::start(folder.path(), &[]);
    clip(&folder.path().join("clip.ts"));
    let url = format!("rtsp://127.0.0.1:{}/published", server.port);
    let text = format!(
        "duration: 5s\nclients:\n  publishers: {{urls: ['{url}'], publish: {{file: clip.ts}}, load: {{clients: 1}}}}\n  \
         viewers: {{urls: ['{url}'], load: {{clients: 4}}}}\n"
    );
    fs::write(folder.path().join("many.yaml"), text).expect("the test's folder can be written");
    let words = ["run", "many.yaml", "--runners", "2", "--json", "many.json"];
    let ran = Process::start(command(&words, "coordinator"), folder.path());
    let ran = ran.finish(PATIENCE);
    // Coordinator and runners lacked no right.
    let log = nats.stderr_text();
    assert!(!log.contains("Violation"), "{log}");
    ran.expect(0);
    let report = Report::read(&folder.path().join("many.json"));
    let played = &report.0["populations"]["viewers"]["metrics"];
    assert!(number(&played["frames_delivered"]) > 0, "{played}");

    // A runner cannot take the name in the certificate of another.
    let wrong = Process::start(command(&["runner", "--name", "one"], "two"), folder.path());
    let told = wrong.finish(PATIENCE).expect(104).stderr;
    assert!(
        told.contains("does not permit this runner the name `one`"),
        "{told}"
    );
    let unknown = Process::start(streamgauge(["runner", "--at", &at]), folder.path());
    unknown.finish(PATIENCE).expect(104);

    let speak = |name: Option<&str>, lines: &[&str]| {
        let own = name.map(credentials);
        let mut python = std::process::Command::new("python3");
        python
            .args(["-c", STRANGER, &port])
            .arg(keys.join("ca.pem"));
        python.arg(own.unwrap_or_default()).args(lines);
        let output = python.output().expect("python3 is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told = speak(None, &["SUB sg.> 1", "PUB sg.hello 2\r\n{}"]);
    assert!(told.contains("refused") && !told.contains("PONG"), "{told}");
    // A runner neither reads nor writes what is another's.
    for line in [
        "SUB sg.do.one.* 1",
        "SUB sg.r.*.one 1",
        "SUB sg.> 1",
        "SUB _INBOX_one.> 1",
        "SUB _INBOX_coordinator.> 1",
        "SUB > 1",
        "PUB sg.do.one.x 2\r\n{}",
        "PUB sg.hello 2\r\n{}",
        "PUB sg.lead.x 2\r\n{}",
        "PUB sg.r.x.one 2\r\n{}",
        "PUB sg.beat.x.one 2\r\n{}",
        "PUB _INBOX_coordinator.x 2\r\n{}",
        "PUB $KV.sg_names.one 2\r\n{}",
        "PUB $O.sg_files.C.x 2\r\n{}",
        "PUB $JS.API.STREAM.DELETE.SG_REPORTS 2\r\n{}",
        "PUB $JS.API.STREAM.UPDATE.SG_REPORTS 2\r\n{}",
        "PUB $JS.API.STREAM.PURGE.SG_REPORTS 2\r\n{}",
        "PUB $JS.API.CONSUMER.CREATE.SG_REPORTS.x 2\r\n{}",
        "PUB $JS.API.CONSUMER.DURABLE.CREATE.SG_REPORTS.x 2\r\n{}",
        "PUB $JS.API.STREAM.MSG.GET.SG_REPORTS 2\r\n{}",
    ] {
        let told = speak(Some("two"), &[line]);
        assert!(told.contains("Permissions Violation"), "{line}: {told}");
    }
    let told = speak(
        Some("two"),
        &["SUB sg.do.two.* 1", "PUB sg.r.x.two 2\r\n{}"],
    );
    assert!(told.contains("PONG") && !told.contains("-ERR"), "{told}");
    // Nor does a message to itself, which names a subject for the answer, permit that subject.
    let lines = [
        "SUB sg.t.*.* 1",
        "PUB sg.t.x.two sg.do.one.y 2\r\n{}",
        "PUB sg.do.one.y 2\r\n{}",
    ];
    let told = speak(Some("two"), &lines);
    assert!(told.contains("Permissions Violation"), "{told}");
    // No claim of a name can remove those of others.
    let lines = [
        "WAIT deny_purge",
        "SUB _INBOX_two.x 1",
        "PUB $JS.API.STREAM.INFO.KV_sg_names _INBOX_two.x 0\r\n",
    ];
    let told = speak(Some("two"), &lines);
    let kept = told.contains("\"deny_purge\":true");
    assert!(
        kept && !told.contains("\"allow_rollup_hdrs\":true"),
        "{told}"
    );
    drop(runners);
}

/// Makes a short clip.
fn clip(path: &Path) {
    let mut command = std::process::Command::new("ffmpeg");
    command.args([
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "testsrc=size=160x120:rate=25:duration=2",
    ]);
    command
        .args(["-c:v", "libx264", "-bf", "0", "-g", "25", "-f", "mpegts"])
        .arg(path);
    let made = command.status().expect("ffmpeg is there");
    assert!(made.success());
}

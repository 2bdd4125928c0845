//! Verdicts: a run that did not measure anything does not pass, and the report says why.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::scripted::{Answer, Scripted};
use crate::support::{Process, RUN_TIMEOUT, Report, Server, folder, run, streamgauge, wait_for};

/// Starts a server that accepts connections, keeps them, and does nothing else.
fn idle_server() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        let kept: Vec<TcpStream> = listener.incoming().flatten().take(64).collect();
        drop(kept);
    });
    port
}

/// Starts a server that accepts WebSockets, reads them, and never answers a message.
fn mute_websocket() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let _ = accept_websocket(&mut stream);
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(read) if read > 0) {}
            });
        }
    });
    port
}

/// Answers the handshake of a WebSocket (RFC 6455, 4.2.2) with the system's tools, without code of
/// streamgauge.
fn accept_websocket(stream: &mut TcpStream) -> std::io::Result<()> {
    use std::io::Write;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 8192 {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let key = head
        .lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("sec-websocket-key")
                .then(|| value.trim().to_owned())
        })
        .unwrap_or_default();
    let script = "import base64,hashlib,sys;print(base64.b64encode(hashlib.sha1((sys.argv[1]+\
                  '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest()).decode())";
    let accept = std::process::Command::new("python3")
        .args(["-c", script, &key])
        .output()?;
    let accept = String::from_utf8_lossy(&accept.stdout).trim().to_owned();
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

#[test]
fn bound_on_a_share_needs_a_unit() {
    let folder = folder();
    for (threshold, help) in [
        ("viewers.loss < 1", "write `1%`, or `100%`"),
        ("viewers.loss < 101%", "from 0% to 100%"),
        ("viewers.startup_delay < 2s", "`startup_delay.p95`"),
    ] {
        run(
            folder.path(),
            ["load", "rtsp://127.0.0.1:1/a", "--threshold", threshold],
        )
        .expect(104)
        .names(help);
    }
}

#[test]
fn plan_that_is_longer_than_the_run_is_refused() {
    let folder = folder();
    let arguments = "load rtsp://127.0.0.1:1/a -c 20 -d 2s --ramp 10s";
    run(folder.path(), arguments.split(' '))
        .expect(104)
        .names("the run ends after 2s, when 4 of its 20 clients have started");
    let scenario = "clients: {viewers: {urls: ['rtsp://127.0.0.1:1/a'], load: {clients: 20, one_every: 1s}}}\n\
                    duration: 19s\n";
    std::fs::write(folder.path().join("short.yaml"), scenario).expect("the folder is the test's");
    run(folder.path(), ["check", "--offline", "short.yaml"])
        .expect(104)
        .names("19 of its 20 clients");
}

#[test]
fn run_that_measured_nothing_does_not_pass() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let url = server.url();
    let ended = run(folder.path(), ["load", &url, "-d", "1ms"]).expect(110);
    assert!(
        ended
            .stdout
            .lines()
            .nth(1)
            .is_some_and(|line| line.contains("nothing was measured")),
        "{}",
        ended.stdout
    );
    // A server that accepts everything and sends nothing: the run ends before its clients time out.
    let silent = Scripted::start(|_| Answer::Good);
    let ended = run(folder.path(), ["load", &silent.url(), "-d", "6s"]).expect(99);
    assert!(
        ended.stdout.contains("FAILED viewers.received > 0"),
        "{}",
        ended.stdout
    );
}

#[test]
fn stopped_run_reports_which_thresholds_held() {
    for signal in ["INT", "TERM", "HUP"] {
        let folder = folder();
        let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
        let url = server.url();
        let arguments = ["load", &url, "--transport", "tcp", "--json", "out.json"];
        let load = Process::start(streamgauge(arguments), folder.path());
        // A client that waits for its media when it is stopped has failed.
        wait_for("a client plays", Duration::from_secs(60), || {
            load.stderr_text().contains("1 of 1 playing").then_some(())
        });
        load.signal(signal);
        let ended = load.finish(RUN_TIMEOUT).expect(105);
        let mut lines = ended.stdout.lines();
        let (first, second) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        assert!(
            first.starts_with("STOPPED  "),
            "SIG{signal}: {}",
            ended.stdout
        );
        assert!(
            second.contains("stopped by the user after"),
            "{}",
            ended.stdout
        );
        assert!(second.contains("thresholds held"), "{}", ended.stdout);
        assert!(!ended.stdout.contains("PASS"), "{}", ended.stdout);
        let report = Report::read(&folder.path().join("out.json"));
        assert_eq!(report.result(), "stopped");
    }
}

#[test]
fn rates_cover_the_time_of_sending_but_not_of_closing() {
    let folder = folder();
    let url = format!("tcp://127.0.0.1:{}", idle_server());
    let arguments = ["load", &url, "-c", "2", "-d", "8s", "--json", "out.json"];
    let mut load = streamgauge(arguments);
    load.env("STREAMGAUGE_CLIENTS__SENDERS__CLOSE_TIMEOUT", "8s")
        .env("STREAMGAUGE_STOP_TIMEOUT", "8s");
    Process::start(load, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    // One message a second on each of two connections. The server never closes them, which the run
    // waits for. With that time the rate would be 1. Without it, the rate is below 2 if a busy
    // machine begins late or sends the last messages after the end.
    let rate = report.metric("sent_rate").as_f64().expect("it has a rate");
    assert!((1.2..=2.5).contains(&rate), "{rate}");
    let duration = report.0["run"]["duration"].as_f64().expect("a number");
    let closing = report.0["run"]["closing"].as_f64().expect("a number");
    assert!((7.9..=8.1).contains(&duration), "{duration}");
    assert!(closing > 5.0, "{closing}");
}

#[test]
fn unanswered_messages_fail_a_run() {
    let folder = folder();
    let url = format!("ws://127.0.0.1:{}/", mute_websocket());
    let arguments = ["load", &url, "-c", "3", "-d", "6s", "--in-flight", "1"];
    let ended = run(folder.path(), arguments).expect(99);
    assert!(
        ended.stdout.contains(".unanswered == 0"),
        "{}",
        ended.stdout
    );
}

#[test]
fn each_run_reports_a_seed_of_its_own() {
    let folder = folder();
    let seed = |arguments: &str| {
        let ended = run(folder.path(), arguments.split(' '));
        let line = ended.stdout.lines().find(|line| line.starts_with("seed"));
        let line = line.unwrap_or_else(|| panic!("{}", ended.stdout));
        line.split_whitespace()
            .nth(1)
            .expect("it is named")
            .to_owned()
    };
    let load = "load rtsp://127.0.0.1:1/a -c 1 -d 2s";
    assert_ne!(seed(load), seed(load));
    assert_eq!(seed("load rtsp://127.0.0.1:1/a -c 1 -d 2s --seed 77"), "77");
}

#[test]
fn clients_turned_away_fail_a_run() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let url = server.url();
    let line = ["load", &url, "--arrivals", "4/s", "-c", "3", "-d", "5s"];
    let ended = run(folder.path(), line).expect(99);
    assert!(
        ended.stdout.contains("FAILED viewers.turned_away == 0"),
        "{}",
        ended.stdout
    );
    let allowed = line
        .into_iter()
        .chain(["--threshold", "viewers.turned_away < 60"]);
    run(folder.path(), allowed).expect(0);
}

#[test]
fn second_line_has_the_cause_even_if_quiet() {
    let folder = folder();
    let why = "2 of 2 clients failed: connection refused (127.0.0.1:1)";
    let line = ["load", "rtsp://127.0.0.1:1/a", "-c", "2", "-d", "9s"];
    let ended = run(folder.path(), line).expect(99);
    assert_eq!(
        ended.stdout.lines().nth(1).map(str::trim),
        Some(why),
        "{}",
        ended.stdout
    );
    let ended = run(folder.path(), line.into_iter().chain(["-q"])).expect(99);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.stdout);
    assert!(lines[0].starts_with("FAIL"), "{}", ended.stdout);
    assert_eq!(lines[1].trim(), why);
}

#[test]
fn threshold_shows_the_statistic_that_it_compared() {
    let folder = folder();
    let thresholds = [
        "viewers.startup_delay.p99.9 < 50s",
        "viewers.startup_delay.mean < 50s",
        "viewers.active < 100",
        "viewers.loss.worst < 100%",
    ];
    let mut line = vec!["demo", "-c", "5", "-d", "5s", "--ramp", "0s"];
    for threshold in thresholds {
        line.extend(["--threshold", threshold]);
    }
    let ended = run(folder.path(), line).expect(0);
    let row = |threshold: &str| {
        let found = ended.stdout.lines().find(|row| row.contains(threshold));
        found
            .unwrap_or_else(|| panic!("{}", ended.stdout))
            .to_owned()
    };
    assert!(row("p99.9").ends_with("(p99.9)"), "{}", ended.stdout);
    assert!(row("delay.mean").ends_with("(mean)"), "{}", ended.stdout);
    assert!(row("active").ends_with("(mean)"), "{}", ended.stdout);
    assert!(row("worst").contains("(window "), "{}", ended.stdout);
}

#[test]
fn failed_threshold_with_abort_ends_the_run() {
    let folder = folder();
    let server = Server::start(
        folder.path(),
        &["--bitrate", "100kbps", "--fault", "loss=50%"],
    );
    let scenario = |delay: &str| {
        format!(
            "clients: {{viewers: {{urls: ['{}'], load: {{clients: 2}}}}}}\nduration: 40s\n\
             thresholds: [{{threshold: 'viewers.loss < 1%', abort: true, delay: {delay}}}]\n",
            server.url()
        )
    };
    std::fs::write(folder.path().join("abort.yaml"), scenario("3s")).expect("it can be written");
    let ended = run(folder.path(), ["run", "abort.yaml", "--json", "out.json"]).expect(99);
    assert!(
        ended.stdout.contains("ended early, after"),
        "{}",
        ended.stdout
    );
    let report = Report::read(&folder.path().join("out.json"));
    let duration = report.0["run"]["duration"].as_f64().expect("a number");
    assert!((3.0..30.0).contains(&duration), "{duration}");
    std::fs::write(
        folder.path().join("late.yaml"),
        scenario("50s").replace("40s", "5s"),
    )
    .expect("it can be written");
    let ended = run(folder.path(), ["run", "late.yaml"]).expect(99);
    assert!(!ended.stdout.contains("ended early"), "{}", ended.stdout);
}

#[test]
fn check_fails_if_the_server_is_unreachable() {
    let folder = folder();
    let scenario =
        "clients: {viewers: {urls: ['tcp://127.0.0.1:1'], load: {clients: 2}}}\nduration: 5s\n";
    std::fs::write(folder.path().join("away.yaml"), scenario).expect("the folder is the test's");
    let ended = run(folder.path(), ["check", "away.yaml"])
        .expect(99)
        .names("127.0.0.1:1: connection refused");
    assert!(!ended.stderr.contains("is valid"), "{}", ended.stderr);
    run(folder.path(), ["check", "--offline", "away.yaml"]).expect(0);
}

#[test]
fn threshold_without_data_is_warned_of() {
    let folder = folder();
    let scenario = "clients: {viewers: {urls: ['rtsp://127.0.0.1:1/a'], load: {clients: 2, ramp: 2s}}}\n\
                    duration: 9s\nwarm_up: 3s\nthresholds: ['viewers.startup_delay.p95 < 1s']\n";
    std::fs::write(folder.path().join("late.yaml"), scenario).expect("the folder is the test's");
    run(folder.path(), ["check", "--offline", "late.yaml"])
        .expect(0)
        .names("`viewers.startup_delay.p95 < 1s` will have no data");
}

#[test]
fn population_without_media_fails_whatever_is_allowed() {
    let folder = folder();
    let line = [
        "load",
        "rtsp://127.0.0.1:1/a",
        "-c",
        "2",
        "-d",
        "20s",
        "--threshold",
        "viewers.failed <= 5",
        "--threshold",
        "viewers.received < 1000000",
    ];
    let ended = run(folder.path(), line).expect(99);
    assert!(
        ended.stdout.contains("FAILED viewers.received > 0"),
        "{}",
        ended.stdout
    );
}

#[test]
fn end_of_the_server_fails_the_run_and_is_the_cause() {
    let folder = folder();
    let port = crate::support::free_port();
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let scenario = format!(
        "server: {{command: [timeout, -s, KILL, '8', {program}, serve, rtsp, --port, '{port}'], \
         ready: {{port: {port}}}}}\n\
         clients: {{viewers: {{urls: ['rtsp://127.0.0.1:{port}/a'], load: {{clients: 2}}}}}}\nduration: 40s\n"
    );
    std::fs::write(folder.path().join("crash.yaml"), scenario).expect("the folder is the test's");
    let ended = run(folder.path(), ["run", "crash.yaml"]).expect(99);
    let second = ended
        .stdout
        .lines()
        .nth(1)
        .unwrap_or_default()
        .trim()
        .to_owned();
    assert!(second.starts_with("the server ended, "), "{}", ended.stdout);
}

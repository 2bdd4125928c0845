//! A run ends clean and keeps what it measured, however it ends.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::scripted::{Answer, Scripted};
use crate::support::{
    Process, RUN_TIMEOUT, Report, Server, established, folder, free_port, number, run,
    run_concurrently, streamgauge, wait_for,
};

const CLIENTS: usize = 5;

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

const SIGABRT: i32 = 6;

/// Starts a run without an end and waits until its clients are connected.
fn endless(folder: &Path, url: &str, port: u16) -> Process {
    let arguments = format!("load {url} -c {CLIENTS} --transport tcp --json out.json --out x.run");
    let load = Process::start(streamgauge(arguments.split(' ')), folder);
    wait_for("all clients are connected", Duration::from_secs(60), || {
        (established(port) == CLIENTS).then_some(())
    });
    load
}

/// Returns the number of windows that the run file holds so far.
fn windows(folder: &Path) -> usize {
    let finished = run(folder, ["report", "x.run", "--quiet", "--json", "-"]);
    let report = serde_json::from_str::<serde_json::Value>(&finished.stdout).ok();
    report.map_or(0, |report| report["windows"].as_array().map_or(0, Vec::len))
}

#[test]
fn ctrl_c_tears_every_session_down_and_reports() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let load = endless(folder.path(), &server.url(), server.port);
    // A client without a session has nothing to tear down.
    wait_for("all clients play", PATIENCE, || {
        let text = load.stderr_text();
        text.contains(&format!("{CLIENTS} of {CLIENTS} playing"))
            .then_some(())
    });
    wait_for("a window is written", PATIENCE, || {
        (windows(folder.path()) >= 1).then_some(())
    });
    load.signal("INT");
    load.finish(PATIENCE).expect(105);

    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(
        report.clients("stopped"),
        CLIENTS as u64,
        "{}",
        report.0["populations"]
    );
    assert_eq!(report.clients("failed"), 0, "{}", report.0["populations"]);
    assert_eq!(report.0["verdict"]["stopped_by_user"], true);
    let torn_down = number(&report.metric("teardown_delay")["count"]);
    assert_eq!(torn_down, CLIENTS as u64);
    report.tester_was_fit();
    assert_eq!(established(server.port), 0);
    // Every packet that left before the TEARDOWN was counted.
    let (_, done) = server.stop();
    assert_eq!(report.counts().lost, 0, "{done:?}");
}

#[test]
fn server_that_ignores_teardown_does_not_delay_the_end() {
    let folder = folder();
    let server = Scripted::start(|method| match method {
        "TEARDOWN" => Answer::Silence,
        _ => Answer::Good,
    });
    let load = endless(folder.path(), &server.url(), server.port);
    wait_for("all clients play", PATIENCE, || {
        (server.seen("PLAY") == CLIENTS).then_some(())
    });
    load.signal("INT");
    load.finish(Duration::from_secs(15)).expect(105);
    // A thread of the server may still have to read it.
    wait_for("TEARDOWN of each client", PATIENCE, || {
        (server.seen("TEARDOWN") == CLIENTS).then_some(())
    });
    assert_eq!(
        Report::read(&folder.path().join("out.json")).clients("started"),
        CLIENTS as u64
    );
}

#[test]
fn second_ctrl_c_ends_the_run_at_once() {
    let folder = folder();
    // This server never answers and never hangs up. A stopped client waits ten minutes for both.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let url = format!("tcp://{}", silent.local_addr().expect("it is bound"));
    let arguments = format!("load {url} -c {CLIENTS} --answers echo --out x.run");
    let mut command = streamgauge(arguments.split(' '));
    command
        .env("STREAMGAUGE_CLIENTS__SENDERS__CLOSE_TIMEOUT", "10m")
        .env("STREAMGAUGE_STOP_TIMEOUT", "10m");
    let load = Process::start(command, folder.path());
    let says = |what: &str| {
        wait_for(what, PATIENCE, || {
            load.stderr_text().contains(what).then_some(())
        });
    };
    says(&format!("{CLIENTS} of {CLIENTS} connected"));
    load.signal("INT");
    says("stopping");
    load.signal("INT");
    load.finish(PATIENCE).expect(105);
    assert!(folder.path().join("x.run").exists());
}

#[test]
fn run_file_lacks_only_the_last_second_after_kill_9() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let load = endless(folder.path(), &server.url(), server.port);
    let mut before = 0;
    let written = wait_for("each window is written at its end", PATIENCE, || {
        let now = windows(folder.path());
        let more = now.saturating_sub(std::mem::replace(&mut before, now));
        // Reading the file may take longer than a window.
        (now >= 3 && (1..=2).contains(&more)).then_some(now)
    });
    load.signal("KILL");
    load.finish(PATIENCE);

    run(folder.path(), ["report", "x.run", "--json", "again.json"]);
    let report = Report::read(&folder.path().join("again.json"));
    assert_eq!(report.0["run"]["finished"], false);
    let kept = report.0["windows"].as_array().map_or(0, Vec::len);
    assert!(kept >= written, "{kept} of {written}");
    assert!(report.counts().received > 0);
}

/// Returns the child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let list = Command::new("ps")
        .args(["-o", "pid=", "--ppid", &parent.to_string()])
        .output()
        .expect("there is a ps");
    let text = String::from_utf8_lossy(&list.stdout);
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[test]
fn killed_supervisor_makes_the_run_invalid() {
    let folder = folder();
    let port = free_port();
    // The bare name is this executable, so no server needs to be installed.
    let scenario = format!(
        "server:\n  command: [streamgauge, serve, rtsp, --port, '{port}', --bitrate, 100kbps]\n  \
         ready: {{port: {port}}}\nclients:\n  viewers:\n    urls: ['rtsp://127.0.0.1:{port}/1']\n    \
         transport: tcp\n    load: {{clients: 2}}\nduration: 120s\n"
    );
    std::fs::write(folder.path().join("s.yaml"), scenario).expect("it can be written");
    let arguments = ["run", "s.yaml", "--json", "out.json", "--out", "x.run"];
    let load = Process::start(streamgauge(arguments), folder.path());
    wait_for("all clients play", Duration::from_secs(60), || {
        (established(port) == 2).then_some(())
    });
    let supervisor = children(load.id());
    let server = children(*supervisor.first().expect("the server is launched by one"));
    assert_eq!((supervisor.len(), server.len()), (1, 1));
    let killed = Command::new("kill")
        .args(["-9", &supervisor[0].to_string()])
        .status();
    assert!(killed.is_ok_and(|status| status.success()));
    wait_for("the server ends with it", PATIENCE, || {
        (!Path::new(&format!("/proc/{}", server[0])).exists()).then_some(())
    });
    // The clients fail, and the run ends with them.
    let finished = load.finish(RUN_TIMEOUT).expect(110);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.result(), "invalid");
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(
        reasons.contains("the supervisor of the server was lost (it was killed)"),
        "{reasons}"
    );
    assert!(
        !finished.stdout.contains("the server ended"),
        "{}",
        finished.stdout
    );
}

/// A small file system that is unmounted when it is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Returns `None` if mounting is not permitted.
    fn mount(path: &'a Path) -> Option<SmallDisk<'a>> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=160k", "tmpfs"])
            .arg(path)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(SmallDisk(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn full_disk_is_reported_and_ends_the_run() {
    let folder = folder();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("the test's folder can be written");
    // Only root can mount. Other users cannot have a full disk without filling a real one.
    let Some(_mounted) = SmallDisk::mount(&disk) else {
        return;
    };
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let url = server.url();
    let arguments = ["load", &url, "-c", "20", "-d", "60s", "--out", "disk/x.run"];
    let load = Process::start(streamgauge(arguments), folder.path());
    let finished = load.finish(Duration::from_secs(50)).names("x.run");
    assert!(
        ["full", "space"]
            .iter()
            .any(|word| finished.stderr.contains(word)),
        "{}",
        finished.stderr
    );
    assert_ne!(finished.status.code(), Some(0));
    assert!(finished.status.code().is_some(), "it ended of itself");
    assert_eq!(established(server.port), 0);
}

/// Starts a reference server of this protocol whose media lasts for a second.
fn serve_a_second(folder: &Path, protocol: &str, port: u16) -> Process {
    let port = port.to_string();
    let arguments = ["serve", protocol, "--port", &port, "--length", "1s"];
    let mut server = Process::start(streamgauge(arguments), folder);
    wait_for("the server listens", Duration::from_secs(60), || {
        assert!(server.runs(), "the server ended: {}", server.stderr_text());
        server.stdout_text().contains("listening on").then_some(())
    });
    server
}

#[test]
fn end_of_stream_by_the_server_fails_viewers_unless_expected() {
    let cases = [
        ("webrtc", "whep+http", "/whep/a", Some("ended_by_server")),
        // With its usual latency SRT gives up what a busy machine keeps for more than a second.
        ("srt", "srt", "?latency=4000", Some("peer_shutdown")),
        // These servers announce the length of their media.
        ("rtsp", "rtsp", "/1", None),
        ("rtmp", "rtmp", "/live/a", None),
    ];
    run_concurrently(&cases, |(protocol, scheme, path, reason)| {
        let folder = folder();
        let port = free_port();
        let _server = serve_a_second(folder.path(), protocol, port);
        for (keys, ends) in [
            ("duration: 60s", false),
            ("duration: 60s", true),
            ("warm_up: 0s", false),
        ] {
            let leave = if ends {
                "leave: at_end"
            } else {
                "rejoin: false"
            };
            let scenario = format!(
                "clients:\n  viewers:\n    urls: [\"{scheme}://127.0.0.1:{port}{path}\"]\n    \
                 {leave}\n    load: {{ clients: 2 }}\n{keys}\n"
            );
            std::fs::write(folder.path().join("s.yaml"), scenario).expect("it can be written");
            let finished = run(folder.path(), ["run", "s.yaml", "--json", "out.json"]);
            let report = Report::read(&folder.path().join("out.json"));
            match reason.filter(|_| keys.starts_with("duration") && !ends) {
                None => {
                    finished.expect(0);
                    assert_eq!(report.clients("completed"), 2, "{protocol} {keys} {leave}");
                }
                Some(reason) => {
                    let finished = finished.expect(99);
                    assert!(finished.stdout.contains("at_end"), "{}", finished.stdout);
                    assert_eq!(report.failures(reason), 2, "{protocol}");
                }
            }
        }
    });
}

#[test]
fn run_out_of_memory_is_invalid_instead_of_aborted() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    // The memory that the program needs without clients depends on its build.
    let limits = std::iter::successors(Some(25 << 10), |limit| Some(limit + limit / 10));
    for kibibytes in limits.take_while(|limit| *limit < 800 << 10) {
        let words = "exec \"$0\" load $1 -c 2000 -d 3s --transport tcp --workers 1";
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {kibibytes}; {words}")])
            .arg(streamgauge::<&str>([]).get_program())
            .arg(server.url());
        let finished = Process::start(command, folder.path()).finish(RUN_TIMEOUT);
        // The kernel itself kills a program that it cannot load (SIGSEGV).
        assert_ne!(finished.status.signal(), Some(SIGABRT), "{finished:?}");
        if finished.stderr.contains("out of memory") {
            assert_eq!(finished.status.code(), Some(110), "{finished:?}");
            return;
        }
    }
    panic!("no limit was too low");
}

#[test]
fn servers_refuse_sessions_above_their_limit() {
    for (protocol, url) in [
        ("rtsp", "rtsp://127.0.0.1:{}/1"),
        ("srt", "srt://127.0.0.1:{}"),
    ] {
        let folder = folder();
        let port = free_port().to_string();
        let arguments = ["serve", protocol, "--port", &port, "--max-sessions", "2"];
        let server = Process::start(streamgauge(arguments), folder.path());
        wait_for("the server listens", Duration::from_secs(60), || {
            server.stdout_text().contains("listening on").then_some(())
        });
        let url = url.replace("{}", &port);
        let load = ["load", &url, "-c", "3", "-d", "6s", "--json", "out.json"];
        run(folder.path(), load).expect(99);
        let report = Report::read(&folder.path().join("out.json"));
        let ended = (report.clients("failed"), report.clients("stopped"));
        assert_eq!(ended, (1, 2), "{protocol}");
        server.signal("TERM");
        let ended = server.finish(Duration::from_secs(60));
        let said = ended.stdout + &ended.stderr;
        assert!(
            said.contains("the maximum (--max-sessions)"),
            "{protocol}: {said}"
        );
    }
}

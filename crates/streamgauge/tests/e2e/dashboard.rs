//! Dashboard of a run: updates for browsers, and access control.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Process, RUN_TIMEOUT, assert_one_plain_file, folder, free_port, run, streamgauge, wait_for,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request and returns the connection.
pub(crate) fn ask(port: u16, method: &str, target: &str, host: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    Some(stream)
}

fn get(port: u16, target: &str, host: &str) -> Option<String> {
    answer_to(ask(port, "GET", target, host)?)
}

/// Returns the whole answer. Returns `None` if there is none: a request that takes more than two
/// seconds is dropped.
fn answer_to(mut stream: TcpStream) -> Option<String> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    (!answer.is_empty()).then_some(answer)
}

/// Iterates over the events that a browser receives, until the connection ends: the name and the
/// data of each.
fn received_events(stream: TcpStream) -> impl Iterator<Item = (String, Value)> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut event = String::new();
    lines.filter_map(move |line| {
        if let Some(name) = line.strip_prefix("event: ") {
            event = name.to_owned();
        }
        let data = line.strip_prefix("data: ")?;
        let data = serde_json::from_str(data).expect("it is JSON in one line");
        Some((event.clone(), data))
    })
}

/// Iterates over the runs that a browser receives, until the connection ends.
pub(crate) fn received_runs(stream: TcpStream) -> impl Iterator<Item = Value> {
    let events = received_events(stream);
    events.filter_map(|(name, data)| (name == "run").then_some(data))
}

/// Number of seconds in the charts of a run.
fn seconds(run: &Value) -> usize {
    run["course"]["times"].as_array().map_or(0, Vec::len)
}

#[test]
fn browser_receives_the_run_until_its_end() {
    let folder = folder();
    let port = free_port();
    let dashboard = format!("--dashboard={port}");
    // The run is stopped once the page has received two updates, however late that is.
    let arguments = ["demo", "-c", "5", "--ramp", "0s", "-d", "120s", &dashboard];
    let demo = Process::start(streamgauge(arguments), folder.path());
    let page = wait_for("the page", PATIENCE, || get(port, "/", "localhost"));
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("connect-src 'self'\""), "{page}");
    let host = format!("127.0.0.1:{port}");
    let (first, mut runs) = wait_for("the run", PATIENCE, || {
        let mut runs = received_runs(ask(port, "GET", "/events", &host)?);
        Some((runs.next()?, runs))
    });
    assert_eq!(first["verdict"]["result"], "running", "{first}");
    // The first update has a whole second.
    assert!(seconds(&first) >= 1, "{first}");
    let grown = runs.find(|run| seconds(run) > seconds(&first));
    assert_eq!(grown.expect("it grows")["verdict"]["result"], "running");
    demo.signal("INT");
    let last = runs.last().expect("it ends");
    assert_eq!(last["verdict"]["result"], "stopped", "{last}");
    let bars = last["thresholds"].as_array().expect("a list");
    assert!(
        bars.iter().any(|bar| bar["metric"] == "received"),
        "{bars:?}"
    );
    demo.finish(RUN_TIMEOUT).expect(105);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_one_plain_file(&folder.path().join("streamgauge-runs"));
}

#[test]
fn only_authorised_requests_are_answered() {
    let folder = folder();
    let (here, elsewhere) = (free_port(), free_port());
    let dashboard = format!("--dashboard={here}");
    let arguments = ["demo", "-c", "1", "-d", "60s", &dashboard];
    let demo = Process::start(streamgauge(arguments), folder.path());
    wait_for("the page", PATIENCE, || get(here, "/", "127.0.0.1"));
    // A name of another site that resolves to this machine.
    let refused = wait_for("a refusal", PATIENCE, || {
        get(here, "/events", "evil.example")
    });
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    let answer = wait_for("an answer", PATIENCE, || {
        answer_to(ask(here, "POST", "/", "127.0.0.1")?)
    });
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    demo.signal("INT");
    demo.finish(RUN_TIMEOUT).expect(105);

    let dashboard = format!("--dashboard=0.0.0.0:{elsewhere}");
    let arguments = ["demo", "-c", "1", "-d", "60s", &dashboard];
    let demo = Process::start(streamgauge(arguments), folder.path());
    let (address, token) = wait_for("the address", PATIENCE, || {
        printed_address(&demo.stderr_text(), "dashboard at http://")
    });
    assert_eq!(token.len(), 32);
    // Another machine cannot open 0.0.0.0.
    assert!(!address.ip().is_unspecified(), "{address}");
    assert_eq!(address.port(), elsewhere);
    let refused = wait_for("an answer", PATIENCE, || get(elsewhere, "/", "127.0.0.1"));
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let target = format!("/?token={token}");
    let page = wait_for("the page", PATIENCE, || {
        get(elsewhere, &target, "camera.example")
    });
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    demo.signal("INT");
    demo.finish(RUN_TIMEOUT).expect(105);
}

/// Returns the address and the token of a URL that the command printed after this text.
fn printed_address(output: &str, after: &str) -> Option<(SocketAddr, String)> {
    let (_, url) = output.split_once(after)?;
    let (address, rest) = url.split_once('/')?;
    let (_, token) = rest.split_once("?token=")?;
    let token = token.split_once('\n')?.0.to_owned();
    Some((address.parse().expect("an address and a port"), token))
}

#[test]
fn metrics_and_dashboard_have_one_token_and_a_usable_address() {
    let folder = folder();
    for any in ["0.0.0.0", "[::]"] {
        // Not every machine has IPv6.
        if std::net::TcpListener::bind(format!("{any}:0")).is_err() {
            continue;
        }
        let (metrics, dashboard) = (free_port(), free_port());
        let metrics = format!("{any}:{metrics}");
        let dashboard = format!("--dashboard={any}:{dashboard}");
        let arguments = [
            "demo",
            "-c",
            "1",
            "-d",
            "60s",
            "--metrics",
            &metrics,
            &dashboard,
        ];
        let demo = Process::start(streamgauge(arguments), folder.path());
        let text = || demo.stderr_text();
        let (page, token) = wait_for("the dashboard", PATIENCE, || {
            printed_address(&text(), "dashboard at http://")
        });
        let (figures, other) = wait_for("the metrics", PATIENCE, || {
            printed_address(&text(), "metrics for Prometheus at http://")
        });
        assert_eq!(token, other);
        for (address, target) in [(page, "/"), (figures, "/metrics")] {
            assert!(!address.ip().is_unspecified(), "{}", text());
            let answer = wait_for("an answer", PATIENCE, || {
                let mut stream = TcpStream::connect(address).ok()?;
                stream.set_read_timeout(Some(PATIENCE)).ok()?;
                let request = format!("GET {target}?token={token} HTTP/1.1\r\nHost: x\r\n\r\n");
                stream.write_all(request.as_bytes()).ok()?;
                let answer = answer_to(stream)?;
                // Metrics are unavailable before the run begins.
                (!answer.starts_with("HTTP/1.1 503 ")).then_some(answer)
            });
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        demo.signal("INT");
        demo.finish(RUN_TIMEOUT).expect(105);
    }
}

/// The first update could be that of the older run.
#[test]
fn replaced_run_is_never_shown() {
    let folder = folder();
    let port = free_port();
    let dashboard = format!("--dashboard={port}");
    let arguments = |seed| ["demo", "-c", "2", "-d", "5s", "-o", "x.run", "--seed", seed];
    run(folder.path(), arguments("7")).expect(0);
    let mut command = streamgauge(arguments("8"));
    command.args(["--force", &dashboard]);
    let demo = Process::start(command, folder.path());
    let host = format!("127.0.0.1:{port}");
    let runs = wait_for("the run", PATIENCE, || {
        let events = ask(port, "GET", "/events", &host)?;
        let runs: Vec<Value> = received_runs(events).collect();
        (!runs.is_empty()).then_some(runs)
    });
    for run in &runs {
        let command = run["command"].as_str().unwrap_or_default();
        assert!(command.contains("--seed 8"), "{run}");
    }
    demo.finish(RUN_TIMEOUT).expect(0);
}

#[test]
fn lingering_page_shows_the_end_until_a_signal() {
    let folder = folder();
    let port = free_port();
    let dashboard = format!("--dashboard={port}");
    let arguments = [
        "demo",
        "-c",
        "2",
        "-d",
        "4s",
        &dashboard,
        "--dashboard-linger",
    ];
    let demo = Process::start(streamgauge(arguments), folder.path());
    wait_for("the end of the run", RUN_TIMEOUT, || {
        let stays = format!("the dashboard stays at http://127.0.0.1:{port}/");
        demo.stderr_text().contains(&stays).then_some(())
    });
    // The report is not delayed.
    assert!(
        demo.stdout_text().contains("PASS"),
        "{}",
        demo.stdout_text()
    );
    assert_one_plain_file(&folder.path().join("streamgauge-runs"));
    // A browser that comes after the end of the run.
    let host = format!("127.0.0.1:{port}");
    let events = wait_for("a browser", PATIENCE, || ask(port, "GET", "/events", &host));
    let events: Vec<_> = received_events(events).take(3).collect();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["definitions", "run", "end"]);
    assert_eq!(events[1].1["verdict"]["result"], "pass", "{events:?}");
    assert!(seconds(&events[1].1) >= 3, "{events:?}");
    let end = &events[2].1;
    assert_eq!(end["stays"], true, "{end}");
    // Standard input is not a terminal.
    assert_eq!(end["until_key"], false, "{end}");
    assert!(
        end["kept"]
            .as_str()
            .is_some_and(|path| path.ends_with(".run"))
    );
    demo.signal("INT");
    demo.finish(RUN_TIMEOUT).expect(0);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn lingering_ends_after_its_time_and_with_the_process() {
    let folder = folder();
    let port = free_port();
    let dashboard = format!("--dashboard={port}");
    let linger = "--dashboard-linger=1s";
    let arguments = ["demo", "-c", "1", "-d", "3s", &dashboard, linger];
    run(folder.path(), arguments)
        .expect(0)
        .names("the dashboard stays");
    let linger = "--dashboard-linger";
    let arguments = ["demo", "-c", "1", "-d", "600s", &dashboard, linger];
    let demo = Process::start(streamgauge(arguments), folder.path());
    let host = format!("127.0.0.1:{port}");
    let events = wait_for("a browser", PATIENCE, || ask(port, "GET", "/events", &host));
    let mut events = received_events(events);
    assert!(events.any(|(name, _)| name == "run"));
    demo.signal("TERM");
    let end = events.find(|(name, _)| name == "end").expect("it is told");
    assert_eq!(end.1["stays"], false, "{end:?}");
    demo.finish(RUN_TIMEOUT).expect(105);
    run(folder.path(), ["demo", "-d", "1s", "--dashboard-linger"])
        .expect(104)
        .names("--dashboard");
}

#[test]
fn address_in_use_is_an_error_before_the_run() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it is bound").port();
    let folder = folder();
    let dashboard = format!("--dashboard={port}");
    run(folder.path(), ["demo", "-d", "1s", &dashboard])
        .expect(104)
        .names("--dashboard=ADDRESS");
}

//! A real Prometheus scrapes a run and has the figures of the run file.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Process, RUN_TIMEOUT, assert_one_plain_file, folder, free_port, run, streamgauge, wait_for,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the answer to a request, if any.
pub(crate) fn get(port: u16, target: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = format!("GET {target} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Returns the last sample of a metric in Prometheus: its time and its value.
fn known(port: u16, name: &str) -> Option<(f64, f64)> {
    // A range query has the time of the stored sample; an instant query would have that of the
    // query.
    let answer = get(port, &format!("/api/v1/query?query={name}[1h]"))?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let body: Value = serde_json::from_str(body).ok()?;
    let last = body["data"]["result"][0]["values"].as_array()?.last()?;
    Some((last[0].as_f64()?, last[1].as_str()?.parse().ok()?))
}

/// Returns the queries of each panel of the Grafana dashboard, as Grafana sends them without a
/// selection.
fn panels() -> Vec<(String, Vec<String>)> {
    let dashboard = include_str!("../../../../packaging/grafana.json");
    let dashboard: Value = serde_json::from_str(dashboard).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let panels = panels.iter().filter_map(|panel| {
        let targets = panel["targets"].as_array()?;
        let queries = targets.iter().map(|target| {
            let text = target["expr"].as_str().expect("each has one");
            let text = text.replace("$__rate_interval", "5s");
            ["job", "instance", "population"]
                .iter()
                .fold(text, |text, name| text.replace(&format!("${name}"), ".*"))
        });
        Some((panel["title"].to_string(), queries.collect()))
    });
    panels.collect()
}

/// Returns the number of series in the answer to a query. `None` if Prometheus refuses it or is
/// unreachable.
fn answered(port: u16, query: &str) -> Option<usize> {
    let coded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = get(port, &format!("/api/v1/query?query={coded}"))?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let body: Value = serde_json::from_str(body).ok()?;
    (body["status"] == "success").then(|| body["data"]["result"].as_array().map_or(0, Vec::len))
}

/// Returns the sum of a counter over the first windows of a run.
fn counted(folder: &Path, metric: &str, windows: usize) -> f64 {
    let table = fs::read_to_string(folder.join("tables/windows.csv")).expect("it was written");
    let rows = table.lines().skip(1).map(|line| line.split(',').collect());
    let rows: Vec<Vec<&str>> = rows.collect();
    let mut starts: Vec<f64> = rows
        .iter()
        .map(|row| row[1].parse().expect("a number"))
        .collect();
    starts.dedup();
    let within = starts.get(windows).copied().unwrap_or(f64::INFINITY);
    rows.iter()
        .filter(|row| row[3] == "viewers" && row[4] == metric)
        .filter(|row| row[1].parse::<f64>().is_ok_and(|start| start < within))
        .map(|row| row[6].parse::<f64>().expect("a number"))
        .sum()
}

#[test]
fn prometheus_agrees_with_the_run_file() {
    let folder = folder();
    let (metrics, own) = (free_port(), free_port());
    let config = format!(
        "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms }}\n\
         scrape_configs: [{{ job_name: run, static_configs: [{{ targets: ['127.0.0.1:{metrics}'] }}] }}]\n"
    );
    fs::write(folder.path().join("prometheus.yml"), config).expect("it can be written");
    let mut command = Command::new("prometheus");
    command.args([
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        &format!("--web.listen-address=127.0.0.1:{own}"),
    ]);
    let _prometheus = Process::start(command, folder.path());
    wait_for("Prometheus", PATIENCE, || {
        get(own, "/-/ready").filter(|answer| answer.contains(" 200 "))
    });
    let port = metrics.to_string();
    let arguments = [
        "demo",
        "-c",
        "5",
        "--ramp",
        "0s",
        "-d",
        "600s",
        "-o",
        "x.run",
        "--metrics",
        &port,
    ];
    let demo = Process::start(streamgauge(arguments), folder.path());
    let (at, windows, received) = wait_for("three windows of one scrape", PATIENCE, || {
        let (at, windows) = known(own, "streamgauge_windows_total")?;
        let (then, received) = known(own, "streamgauge_received_total")?;
        (windows >= 3.0 && at == then).then_some((at, windows, received))
    });
    // Prometheus understands every query of the dashboard, and every panel eventually shows
    // something. The exceptions are the panels of failures and of the link, of which this run has
    // none.
    for (title, queries) in panels() {
        let shown = || {
            let series = queries.iter().map(|query| {
                answered(own, query).unwrap_or_else(|| panic!("{title}: {query} is refused"))
            });
            (series.sum::<usize>() > 0).then_some(())
        };
        if title.contains("by reason") || title.contains("link") {
            assert_eq!(shown(), None, "{title}");
        } else {
            wait_for(&title, PATIENCE, shown);
        }
    }
    let other = get(metrics, "/else").expect("it answers");
    assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
    demo.signal("INT");
    demo.finish(RUN_TIMEOUT).expect(105);
    assert_one_plain_file(folder.path());
    assert!(received > 0.0 && at > 0.0);
    run(folder.path(), ["report", "x.run", "--csv", "tables"]).expect(0);
    assert_eq!(
        counted(folder.path(), "received", windows as usize),
        received
    );
    // The port is closed once the run has ended.
    assert!(TcpStream::connect(("127.0.0.1", metrics)).is_err());
}

/// Prometheus sends the token if it is configured with `authorization: { credentials: TOKEN }`.
#[test]
fn metrics_for_other_machines_require_the_token() {
    let folder = folder();
    let port = free_port();
    let metrics = format!("0.0.0.0:{port}");
    let arguments = ["demo", "-c", "1", "-d", "600s", "--metrics", &metrics];
    let mut command = streamgauge(arguments);
    let token = "of-my-own-0123456789";
    command.env("STREAMGAUGE_TOKEN", token);
    let demo = Process::start(command, folder.path());
    let refused = wait_for("an answer", PATIENCE, || get(port, "/metrics"));
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert!(
        refused.contains("\r\nWWW-Authenticate: Bearer "),
        "{refused}"
    );
    wait_for("figures", PATIENCE, || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: tester.example\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.contains("streamgauge_windows_total").then_some(())
    });
    assert!(
        !demo.stderr_text().contains(token),
        "{}",
        demo.stderr_text()
    );
    assert!(
        demo.stderr_text().contains("STREAMGAUGE_TOKEN"),
        "{}",
        demo.stderr_text()
    );
    demo.signal("INT");
    demo.finish(RUN_TIMEOUT).expect(105);

    let mut command = streamgauge(["demo", "-d", "1s", "--metrics", &metrics]);
    command.env("STREAMGAUGE_TOKEN", "short");
    let refused = Process::start(command, folder.path()).finish(RUN_TIMEOUT);
    refused.expect(104).names("STREAMGAUGE_TOKEN");
}

#[test]
fn metrics_address_in_use_is_an_error_before_the_run() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener
        .local_addr()
        .expect("it is bound")
        .port()
        .to_string();
    let folder = folder();
    run(folder.path(), ["demo", "-d", "1s", "--metrics", &port])
        .expect(104)
        .names("--metrics");
    run(folder.path(), ["demo", "-d", "1s", "--metrics", "here"])
        .expect(104)
        .names("127.0.0.1:9105");
}

//! `streamgauge demo`: the first command of a new user.

use crate::support::{Report, assert_one_plain_file, folder, run, run_concurrently};

#[test]
fn demo_passes_and_reports() {
    let folder = folder();
    let json = folder.path().join("demo.json");
    let finished = run(
        folder.path(),
        [
            "demo",
            "--clients",
            "50",
            "--ramp",
            "1s",
            "--duration",
            "4s",
            "--json",
            "demo.json",
        ],
    )
    .expect(0);
    let shown = finished.stdout + &finished.stderr;
    assert!(shown.to_lowercase().contains("pass"), "{shown}");

    let report = Report::read(&json);
    assert_eq!(report.result(), "pass");
    report.tester_was_fit();
    assert_eq!(report.clients("started"), 50);
    assert_eq!(report.clients("failed"), 0);
    let counts = report.counts();
    assert!(counts.received > 0);
    assert_eq!(counts.lost, 0, "{counts:?}");
    assert!(report.metric("startup_delay")["p95"].as_f64() > Some(0.0));
    assert!(report.0["windows"].as_array().map_or(0, Vec::len) >= 3);
}

#[test]
fn version_and_reports_name_build_and_receive_path() {
    let folder = folder();
    let version = run(folder.path(), ["--version"]).expect(0).stdout;
    let target = env!("PROGRAM_TARGET");
    let commit = option_env!("PROGRAM_COMMIT").unwrap_or("unknown");
    let short = commit.get(..12).unwrap_or(commit);
    assert!(
        version.starts_with(concat!("streamgauge ", env!("CARGO_PKG_VERSION"), "\n")),
        "{version}"
    );
    assert!(version.contains(&format!("commit: {short}")), "{version}");
    assert!(
        version.contains(&format!("target: {target}\n")),
        "{version}"
    );
    let path = match version.contains("receives by: packet ring") {
        true => "ring",
        false => "sockets",
    };

    let line = "demo --clients 2 --duration 4s --json a.json --html a.html --markdown a.md";
    let shown = run(folder.path(), line.split(' ')).expect(0).stdout;
    let report = Report::read(&folder.path().join("a.json"));
    assert_eq!(report.0["build"]["target"], target);
    assert_eq!(
        report.0["build"]["commit"].as_str(),
        option_env!("PROGRAM_COMMIT")
    );
    assert_eq!(report.0["tester"]["receive_path"], path);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
    let page = read("a.html").expect("it was written");
    let markdown = read("a.md").expect("it was written").replace('\\', "");
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, text) in [
        ("terminal", &shown),
        ("HTML", &page),
        ("Markdown", &markdown),
    ] {
        assert!(text.contains(&format!("commit {short}")), "{name}: {text}");
        assert!(text.contains(target), "{name}: {text}");
    }
    assert!(shown.contains(&format!("read by {path}")), "{shown}");
    assert!(markdown.contains(&format!("read by {path}")), "{markdown}");
    let named = format!("[\"packets read by\",\"{path}\"]");
    assert!(page.contains(&named), "{named}");
}

#[test]
fn fault_is_measured_and_fails_its_threshold() {
    let folder = folder();
    let arguments = "demo --clients 20 --ramp 100ms --duration 4s --fault loss=5% --json demo.json";
    let mut arguments: Vec<&str> = arguments.split(' ').collect();
    arguments.extend(["--threshold", "viewers.loss < 1%"]);
    run(folder.path(), arguments).expect(99);
    let report = Report::read(&folder.path().join("demo.json"));
    assert_eq!(report.result(), "fail");
    let loss = report
        .metric("loss")
        .as_f64()
        .expect("packets were expected");
    assert!((0.01..0.15).contains(&loss), "{loss}");
}

#[test]
fn report_repeats_the_figures_of_the_run() {
    let folder = folder();
    let arguments = "demo --clients 5 --ramp 100ms --duration 4s --json first.json --out x.run";
    run(folder.path(), arguments.split(' ')).expect(0);
    run(folder.path(), ["report", "x.run", "--json", "again.json"]).expect(0);
    let first = Report::read(&folder.path().join("first.json"));
    let again = Report::read(&folder.path().join("again.json"));
    assert_eq!(first.0, again.0);
    assert_one_plain_file(folder.path());
}

#[test]
fn every_protocol_that_can_be_demonstrated_passes() {
    run_concurrently(&["hls", "rtmp", "srt", "webrtc"], |&protocol| {
        let folder = folder();
        let arguments = format!("demo {protocol} --clients 20 --duration 6s --json demo.json");
        let mut arguments: Vec<&str> = arguments.split(' ').collect();
        if protocol == "srt" {
            // SRT gives up what a busy machine keeps for more than a second.
            arguments.extend(["--threshold", "viewers.wrong <= 50%"]);
        }
        run(folder.path(), arguments).expect(0);
        let report = Report::read(&folder.path().join("demo.json"));
        assert_eq!(report.clients("started"), 20, "{protocol}");
        assert_eq!(report.clients("failed"), 0, "{protocol}");
        assert!(report.metric("bitrate").as_f64() > Some(0.0), "{protocol}");
    });
    let folder = folder();
    let arguments = ["demo", "srt", "--fault", "lose=5%", "-c", "5", "-d", "3s"];
    let arguments = arguments.iter().chain(&["--json", "demo.json"]);
    // On a busy machine some packets arrive after 120 ms, which fails the run.
    let finished = run(folder.path(), arguments);
    assert!(
        matches!(finished.status.code(), Some(0 | 99)),
        "{finished:?}"
    );
    let report = Report::read(&folder.path().join("demo.json"));
    assert!(report.metric("pkt_rcv_recovered").as_u64() > Some(0));
}

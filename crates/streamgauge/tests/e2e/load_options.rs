//! Options of `load` that several protocols share: publishing in one line, and header fields.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port, free_udp_port, listens, number, run,
    streamgauge, wait_for,
};

/// Starts the reference server of this protocol.
fn serve(folder: &Path, protocol: &str, port: u16, with: &[&str]) -> Process {
    let mut command = streamgauge(["serve", protocol, "--port", &port.to_string()]);
    command.args(with);
    let server = Process::start(command, folder);
    wait_for("the server is ready", Duration::from_secs(60), || {
        (listens(port) || crate::srt::sockets(port, false) > 0).then_some(())
    });
    server
}

fn load(folder: &Path, arguments: &[&str]) -> crate::support::Finished {
    let end = ["-c", "2", "-d", "4s", "--json", "out.json"];
    run(folder, ["load"].iter().chain(arguments).chain(&end))
}

#[test]
fn one_line_publishes_over_each_protocol() {
    let (tcp, udp) = (free_port(), free_udp_port());
    for (protocol, port, url, sent) in [
        (
            "rtsp",
            tcp,
            format!("rtsp://127.0.0.1:{tcp}/one{{1..2}}"),
            "sent_frames",
        ),
        (
            "rtmp",
            tcp,
            format!("rtmp://127.0.0.1:{tcp}/live/one{{1..2}}"),
            "sent_frames",
        ),
        (
            "srt",
            udp,
            format!("srt://127.0.0.1:{udp}?streamid=%23!::r=one{{1..2}},m=publish"),
            "pkt_sent_unique",
        ),
        (
            "webrtc",
            tcp,
            format!("whip+http://127.0.0.1:{tcp}/whip/one{{1..2}}"),
            "sent_frames",
        ),
    ] {
        let folder = folder();
        let server = serve(folder.path(), protocol, port, &[]);
        load(folder.path(), &["--publish", &url]).expect(0);
        let report = Report::read(&folder.path().join("out.json"));
        let publishers = &report.0["populations"]["publishers"];
        assert_eq!(number(&publishers["clients"]["stopped"]), 2, "{protocol}");
        assert!(number(&publishers["metrics"][sent]) > 50, "{protocol}");
        server.signal("TERM");
        server.finish(RUN_TIMEOUT);
    }
}

#[test]
fn header_fields_of_one_line_reach_the_server_and_stay_secret() {
    let (folder, port) = (folder(), free_port());
    let server = serve(folder.path(), "webrtc", port, &["--token", "hush-hush"]);
    let url = format!("whep+http://127.0.0.1:{port}/whep/one");
    let field = |token: &str| format!("Authorization: Bearer {token}");
    let finished = load(folder.path(), &[&url, "-H", &field("hush-hush")]);
    assert!(
        !finished.stderr.contains("hush-hush"),
        "{}",
        finished.stderr
    );
    finished.expect(0);
    let text = fs::read_to_string(folder.path().join("out.json")).expect("it was written");
    assert!(!text.contains("hush-hush"));
    let finished = load(folder.path(), &[&url, "--header", &field("wrong")]);
    finished.expect(99);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.clients("failed"), 2);
    server.signal("TERM");
    server.finish(RUN_TIMEOUT);
}

#[test]
fn header_fields_are_refused_where_there_are_none() {
    let folder = folder();
    let url = "rtmp://127.0.0.1:1/live/one";
    load(folder.path(), &[url, "-H", "X-One: hush-hush"])
        .expect(104)
        .names("does not apply to clients of these URLs");
    load(
        folder.path(),
        &["http://127.0.0.1:1/one", "-H", "Host: one"],
    )
    .expect(104)
    .names("the client sets `Host` itself");
}

#[test]
fn tokens_and_urls_come_from_files() {
    let (folder, port) = (folder(), free_port());
    let server = serve(folder.path(), "webrtc", port, &["--token", "hush-hush"]);
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("the folder can be written to");
    };
    write(
        "urls.txt",
        &format!("# viewers\nwhep+http://127.0.0.1:{port}/whep/{{stream}}\n"),
    );
    let scenario = "duration: 4s
clients:
  viewers:
    data: users.csv
    urls: { file: urls.txt }
    token: \"{token}\"
    pick: in_turn
    load: { clients: 2, start: at_once }
";
    write("run.yaml", scenario);
    for (second, failed) in [("hush-hush", 0), ("wrong", 1)] {
        write(
            "users.csv",
            &format!("stream,token\none,hush-hush\ntwo,{second}\n"),
        );
        run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(if failed == 0 {
            0
        } else {
            99
        });
        let text = fs::read_to_string(folder.path().join("out.json")).expect("it was written");
        assert!(!text.contains("hush-hush"));
        assert_eq!(Report::parse(&text).clients("failed"), failed);
    }
    server.signal("TERM");
    server.finish(RUN_TIMEOUT);
}

#[test]
fn population_begins_later() {
    let (folder, port) = (folder(), free_port());
    let server = serve(folder.path(), "rtmp", port, &[]);
    let scenario = format!(
        "duration: 6s
clients:
  viewers:
    urls: [\"rtmp://127.0.0.1:{port}/live/one\"]
    load: {{ after: 4s, clients: 2, start: at_once }}
"
    );
    fs::write(folder.path().join("run.yaml"), scenario).expect("the folder can be written to");
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    // Two seconds of 25 pictures for each.
    let received = number(report.metric("frames"));
    assert!((1..150).contains(&received), "{received}");
    server.signal("TERM");
    server.finish(RUN_TIMEOUT);
}

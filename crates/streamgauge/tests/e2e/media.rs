//! Media descriptions of servers before a run, and warnings about them.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::support::{Report, Server, folder, number, run};

/// Writes a scenario whose run asks servers for up to 10 s, a quarter of its duration, and ends
/// with its clients, after 3 s.
fn scenario(folder: &Path, urls: &[String], clients: u32) {
    let text = format!(
        "clients: {{viewers: {{protocol: rtsp, urls: {urls:?}, load: {{clients: {clients}}}, leave: {{after: 3s}}}}}}\n\
         duration: 40s\n"
    );
    fs::write(folder.join("s.yaml"), text).expect("written");
}

#[test]
fn large_differences_of_media_cause_a_warning() {
    let folder = folder();
    let small = Server::start(folder.path(), &["--bitrate", "1Mbps", "--length", "5s"]);
    let large = Server::start(folder.path(), &["--bitrate", "3Mbps", "--length", "5s"]);
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = closed.local_addr().expect("bound").port();
    drop(closed);
    let urls = [
        small.url(),
        large.url(),
        format!("rtsp://ann:secret@127.0.0.1:{nobody}/a"),
    ];
    scenario(folder.path(), &urls, 4);
    let checked = run(folder.path(), ["check", "s.yaml"]).expect(0);
    // sd / mean is 0.5 for the two, and four clients halve it.
    for text in [
        "H264",
        "1 Mbit/s, 5 s",
        "3 Mbit/s, 5 s",
        "not known: refused",
        "coefficient of variation 0.50 (known for 2 of 3 URLs)",
        "25.0 % from seed to seed",
    ] {
        assert!(
            checked.stdout.contains(text),
            "no {text} in {}",
            checked.stdout
        );
    }
    assert!(!checked.stdout.contains("secret"), "{}", checked.stdout);
    // Enough clients even it out. A URL without a server is reported above, and is no error.
    scenario(folder.path(), &urls[..2], 1000);
    let checked = run(folder.path(), ["check", "s.yaml"]).expect(0);
    assert!(!checked.stdout.contains("warning"), "{}", checked.stdout);

    scenario(folder.path(), &urls[..2], 4);
    let finished = run(
        folder.path(),
        ["run", "s.yaml", "--json", "out.json", "-o", "a.run"],
    )
    .expect(0);
    assert!(
        finished.stdout.contains("25.0 % from seed"),
        "{}",
        finished.stdout
    );
    let media = &Report::read(&folder.path().join("out.json")).0["media"];
    assert_eq!(media["urls"].as_array().map(Vec::len), Some(2), "{media}");
    let described = &media["urls"][1]["description"];
    assert_eq!(number(&described["bitrate"]), 3_000_000, "{media}");
    assert_eq!(described["length"].as_f64(), Some(5.0), "{media}");
    assert_eq!(described["streams"][0]["codec"], "H264");
    assert_eq!(media["differences"][0]["kind"], "bit_rate");

    run(
        folder.path(),
        [
            "run",
            "s.yaml",
            "--no-describe",
            "--json",
            "out.json",
            "-o",
            "a.run",
            "--force",
        ],
    )
    .expect(0);
    let media = &Report::read(&folder.path().join("out.json")).0["media"];
    assert_eq!(media["urls"].as_array().map(Vec::len), Some(0), "{media}");
}

#[test]
fn check_asks_servers_in_the_way_of_clients() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--user", "ann:secret", "--length", "5s"]);
    let port = server.port;
    scenario(folder.path(), &[server.url()], 1);
    let checked = run(folder.path(), ["check", "s.yaml"]).expect(99);
    assert!(
        checked.stdout.contains("not known: status_401"),
        "{}",
        checked.stdout
    );
    let url = format!("rtsp://ann:secret@127.0.0.1:{port}/a");
    scenario(folder.path(), &[url], 1);
    let checked = run(folder.path(), ["check", "s.yaml"]).expect(0);
    assert!(checked.stdout.contains("ann:***@"), "{}", checked.stdout);
    assert!(checked.stdout.contains("H264"), "{}", checked.stdout);
    let (served, _) = server.stop();
    assert!(served.is_empty(), "nothing was played: {served:?}");
}

#[test]
fn silent_server_delays_a_run_by_a_share_of_its_duration() {
    let folder = folder();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let url = format!("rtsp://127.0.0.1:{port}/a");
    let begun = std::time::Instant::now();
    let finished = run(folder.path(), ["load", &url, "-d", "4s", "-o", "a.run"]);
    let took = begun.elapsed();
    // The server is asked for 1 s before the run, and half a second is for the end; on a busy
    // machine the rest takes longer.
    assert!(took.as_secs_f64() < 20.0, "{took:?}: {finished:?}");
    assert!(finished.stdout.contains("not known: "), "{finished:?}");
}

#[test]
fn silent_server_delays_a_check_by_some_seconds() {
    let folder = folder();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let urls: Vec<String> = (0..20)
        .map(|n| format!("rtsp://127.0.0.1:{port}/{n}"))
        .collect();
    scenario(folder.path(), &urls, 1);
    let begun = std::time::Instant::now();
    let checked = run(folder.path(), ["check", "s.yaml"]).expect(99);
    assert!(begun.elapsed().as_secs() < 20);
    assert!(checked.stdout.contains("not known: not asked"));
    assert!(
        checked.stdout.contains("timeout_options"),
        "{}",
        checked.stdout
    );
}

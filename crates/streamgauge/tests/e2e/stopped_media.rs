//! Media that stops during a run: a run that ends before the time-out of silence fails as well. So
//! does a run in which the server does not read published media.

use crate::scripted::{Answer, Scripted};
use crate::support::{Report, Server, folder, run};

#[test]
fn media_that_stops_before_the_end_fails_the_run() {
    for transport in ["udp", "tcp"] {
        let folder = folder();
        let server = Server::start(folder.path(), &["--fault", "stop=1s"]);
        let url = server.url();
        let arguments = [
            "load",
            &url,
            "-c",
            "3",
            "-d",
            "5s",
            "--json",
            "load.json",
            "--transport",
            transport,
        ];
        run(folder.path(), arguments).expect(99);
        let report = Report::read(&folder.path().join("load.json"));
        assert_eq!(report.clients("failed"), 3, "{}", report.0["populations"]);
    }
}

#[test]
fn server_that_does_not_read_published_media_fails_the_run() {
    let folder = folder();
    let server = Scripted::start(|method| match method {
        "RECORD" => Answer::Deaf,
        _ => Answer::Good,
    });
    let scenario = format!(
        "clients: {{publishers: {{urls: [{}], transport: tcp, publish: {{bitrate: 50Mbps}}, load: {{clients: 1}}}}}}\n\
         duration: 4s\n",
        server.url()
    );
    std::fs::write(folder.path().join("deaf.yaml"), scenario).expect("the folder is the test's");
    let ended = run(folder.path(), ["run", "deaf.yaml"]).expect(99);
    let found = "FAILED publishers.not_taken == 0";
    assert!(ended.stdout.contains(found), "{}", ended.stdout);
}

#[test]
fn fast_publisher_with_a_reading_server_passes() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    // A picture that is sent at once is larger than the queue of a connection.
    let scenario = format!(
        "clients: {{publishers: {{urls: [{}], transport: tcp, publish: {{bitrate: 40Mbps}}, load: {{clients: 1}}}}}}\n\
         duration: 4s\n",
        server.url()
    );
    std::fs::write(folder.path().join("fast.yaml"), scenario).expect("the folder is the test's");
    run(folder.path(), ["run", "fast.yaml"]).expect(0);
}

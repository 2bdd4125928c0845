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
            "9s",
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
         duration: 6s\n",
        server.url()
    );
    std::fs::write(folder.path().join("deaf.yaml"), scenario).expect("the folder is the test's");
    let ended = run(folder.path(), ["run", "deaf.yaml"]).expect(99);
    let found = "FAILED publishers.not_taken == 0";
    assert!(ended.stdout.contains(found), "{}", ended.stdout);
}

#[test]
fn publisher_of_large_pictures_with_a_reading_server_passes() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    // A picture that is sent at once is larger than the queue of a connection. There are few, so
    // that the kernel holds those that a busy server has not read for two seconds.
    let scenario = format!(
        "clients: {{publishers: {{urls: [{}], transport: tcp, \
         publish: {{bitrate: 5Mbps, frame_rate: 1}}, load: {{clients: 1}}}}}}\n\
         duration: 6s\n",
        server.url()
    );
    std::fs::write(folder.path().join("large.yaml"), scenario).expect("the folder is the test's");
    run(folder.path(), ["run", "large.yaml"]).expect(0);
}

//! Media that comes, and then stops: a run that ends before the time-out of silence does not pass
//! either. Nor does one in which nobody takes the media.

use crate::scripted::{Answer, Scripted};
use crate::support::{Report, Server, folder, run};

#[test]
fn media_that_has_stopped_when_the_run_ends_fails_it() {
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
fn a_server_that_does_not_read_what_is_published_fails_a_run() {
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
fn a_server_that_reads_a_fast_publisher_passes() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    // A picture that is sent at once is larger than what is queued for a connection.
    let scenario = format!(
        "clients: {{publishers: {{urls: [{}], transport: tcp, publish: {{bitrate: 40Mbps}}, load: {{clients: 1}}}}}}\n\
         duration: 4s\n",
        server.url()
    );
    std::fs::write(folder.path().join("fast.yaml"), scenario).expect("the folder is the test's");
    run(folder.path(), ["run", "fast.yaml"]).expect(0);
}

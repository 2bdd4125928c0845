//! Media that comes, and then stops: a run that ends before the time-out of silence does not pass either.

use crate::support::{Report, Server, alone, folder, run};

#[test]
fn media_that_has_stopped_when_the_run_ends_fails_it() {
    let _alone = alone();
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

//! `streamgauge load`: runs a scenario made from one command line.

use scenario::{OneLiner, Scenario};

use crate::args;
use crate::commands::play::{Play, play};
use crate::commands::run::overrides;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

pub(crate) fn load(arguments: &args::Load, console: Console) -> Result<Exit, Failure> {
    let scenario = scenario(arguments)?;
    let play_it = Play {
        scenario: &scenario,
        results: &arguments.results,
        tracing: &arguments.shared.tracing,
        runners: &arguments.runners,
        unfinished: None,
    };
    play(play_it, console)
}

fn scenario(arguments: &args::Load) -> Result<Scenario, Failure> {
    let (urls, publish) = urls_and_publication(arguments);
    // Reports and file names contain the scenario's name, so it must not contain a password.
    let shown = urls.iter().map(|url| without_user(url));
    let line = OneLiner {
        urls: urls.clone(),
        name: Some(scenario::mask_text(&shown.collect::<Vec<_>>().join(" "))),
        clients: arguments.clients.clone(),
        ramp: arguments.ramp.clone(),
        one_every: arguments.one_every.clone(),
        arrivals: arguments.arrivals.clone(),
        duration: arguments.duration.clone(),
        warm_up: arguments.warm_up.clone(),
        transport: arguments.transport.clone(),
        pick: arguments.pick.clone(),
        leave: arguments.leave_after.clone(),
        rejoin: arguments.rejoin,
        thresholds: arguments.thresholds.clone(),
        seed: arguments.seed.clone(),
        workers: arguments.shared.workers.clone(),
        headers: arguments.shared.requests.headers.clone(),
        publish: publish.clone(),
        search_settle: None,
    };
    let mut overrides = overrides();
    let population = scenario::one_liner_population(&urls, publish.is_some());
    overrides.options = arguments.shared.settings(population);
    overrides.options.extend(arguments.server.settings());
    Scenario::from_one_liner(&line, &overrides).map_err(Failure::diagnostic)
}

/// Returns the URLs and the value of `--publish`. A URL right after `--publish` is no file.
fn urls_and_publication(arguments: &args::Load) -> (Vec<String>, Option<String>) {
    let mut urls = arguments.urls.clone();
    let mut publish = arguments.publish.clone();
    if let Some(file) = publish.as_mut().filter(|file| file.contains("://")) {
        urls.insert(0, std::mem::take(file));
    }
    (urls, publish)
}

/// Returns the URL without user name and password.
pub(crate) fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority = rest.find(['/', '?']).unwrap_or(rest.len());
    let host = rest[..authority].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[host..])
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn read(line: &[&str]) -> Result<Scenario, Failure> {
        protocols::install();
        let words = ["streamgauge", "load"]
            .into_iter()
            .chain(line.iter().copied());
        match Cli::try_parse_from(words)
            .expect("the arguments are good")
            .command
        {
            Command::Load(arguments) => scenario(&arguments),
            _ => panic!("it is a load"),
        }
    }

    #[test]
    fn command_line_becomes_a_scenario() {
        let line = [
            "rtsp://127.0.0.1/a{1..3}",
            "-c",
            "20",
            "--ramp",
            "2s",
            "-d",
            "6s",
        ];
        let scenario = read(&line).expect("it is a good line");
        assert_eq!(scenario.populations[0].urls.len(), 3);
        assert_eq!(scenario.populations[0].load.clients_max(), 20);
        assert_eq!(scenario.duration.map(|time| time.as_secs()), Some(6));
        assert!(scenario.server.is_none());
    }

    #[test]
    fn pid_option_observes_a_process() {
        let scenario = read(&["rtsp://127.0.0.1/a", "--pid", "42"]).expect("it is a good line");
        let server = scenario.server.expect("there is a server");
        assert_eq!(server.start, scenario::ServerStart::Observe { pid: 42 });
    }

    #[test]
    fn tls_options_are_applied() {
        let line = [
            "rtsps://127.0.0.1/a",
            "--tls-ca",
            "own.pem",
            "--tls-server-name",
            "cam.local",
        ];
        let scenario = read(&line).expect("it is a good line");
        let tls = scenario.populations[0]
            .config
            .facts()
            .tls
            .expect("it knows TLS");
        assert!(tls.verify);
        assert_eq!(tls.ca.as_deref(), Some(std::path::Path::new("own.pem")));
        assert_eq!(tls.server_name.as_deref(), Some("cam.local"));
        let scenario = read(&["rtsps://h/a", "--tls-no-verify"]).expect("it is a good line");
        let tls = scenario.populations[0]
            .config
            .facts()
            .tls
            .expect("it knows TLS");
        assert!(!tls.verify);
    }

    #[test]
    fn publish_takes_a_file_or_none() {
        let url = "rtsp://127.0.0.1/a";
        for (line, file) in [
            (&["--publish", url][..], None),
            (&[url, "--publish"], None),
            (&["--publish", "a.mp4", url], Some("a.mp4")),
            (&[url, "--publish=a.mp4"], Some("a.mp4")),
        ] {
            let line = [line, &["-d", "5s"]].concat();
            let scenario = read(&line).expect("it is a good line");
            let publishers = &scenario.populations[0];
            assert_eq!(publishers.name, "publishers", "{line:?}");
            assert_eq!(publishers.urls, [url]);
            let source = publishers.config.facts().published.expect("it publishes");
            assert_eq!(
                source.file.as_deref(),
                file.map(std::path::Path::new),
                "{line:?}"
            );
        }
    }

    #[test]
    fn header_options_become_keys_of_the_population() {
        let line = [
            "ws://127.0.0.1/a",
            "-H",
            "Origin: https://o:1",
            "--header",
            "X-Key:k",
        ];
        let scenario = read(&line).expect("it is a good line");
        let config = serde_json::to_value(&scenario.populations[0].config).expect("plain data");
        let headers = serde_json::json!({"Origin": "https://o:1", "X-Key": "k"});
        assert_eq!(config.get("headers"), Some(&headers), "{config}");
    }

    #[test]
    fn invalid_command_lines_exit_with_104() {
        for line in [
            &["rtsp://127.0.0.1/a", "-d", "60"][..],
            &["rtsp://127.0.0.1/a", "-c", "many"],
            &["ftp://127.0.0.1/a"],
            &["rtsp://127.0.0.1/a", "--threshold", "viewers.los < 1%"],
            &["http://127.0.0.1/a", "--publish", "-d", "5s"],
            &["whip+http://127.0.0.1/a", "-d", "5s"],
            &["--publish", "-d", "5s"],
            &["rtmp://127.0.0.1/a/b", "-H", "Origin: o"],
            &["rtsp://127.0.0.1/a", "-H", "Origin"],
            &["rtsp://127.0.0.1/a", "-H", "A: 1", "-H", "A: 2"],
            &["rtsp://127.0.0.1/a", "-H", "CSeq: 1"],
        ] {
            let failure = read(line).expect_err("it is a wrong line");
            assert_eq!(failure.exit, Exit::Bad, "{line:?}");
        }
    }

    #[test]
    fn scenario_name_contains_no_password() {
        assert_eq!(
            without_user("rtsp://me:se@cret@h:8554/a@b"),
            "rtsp://h:8554/a@b"
        );
        assert_eq!(without_user("rtsp://h/a"), "rtsp://h/a");
        let scenario = read(&["rtsp://me:secret@127.0.0.1/a"]).expect("it is a good line");
        assert_eq!(scenario.name, "rtsp://127.0.0.1/a");
    }
}

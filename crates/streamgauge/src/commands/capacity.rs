//! `streamgauge capacity`: searches for the capacity of a server from one command line.

use scenario::{CapacitySearch, OneLiner, OptionSetting, Plan};

use crate::args;
use crate::commands::load::without_user;
use crate::commands::run::overrides;
use crate::commands::series::capacity;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Default of the first number of clients.
const FROM: &str = "10";

/// Pause between two trials.
const SETTLE: &str = "2s";

pub(crate) fn capacity(arguments: &args::Capacity, console: Console) -> Result<Exit, Failure> {
    let search = search(arguments)?;
    let play = capacity::Play {
        search: &search,
        results: &arguments.results,
        tracing: &arguments.shared.tracing,
        runners: &arguments.runners,
        resume: arguments.resuming.resume.as_deref(),
    };
    capacity::play(&play, console)
}

fn search(arguments: &args::Capacity) -> Result<CapacitySearch, Failure> {
    let thresholds = match arguments.thresholds.is_empty() {
        true => scenario::capacity_thresholds(&arguments.urls),
        false => arguments.thresholds.clone(),
    };
    let urls = arguments.urls.iter().map(|url| without_user(url));
    let line = OneLiner {
        urls: arguments.urls.clone(),
        name: Some(scenario::mask_text(&urls.collect::<Vec<_>>().join(" "))),
        clients: Some(FROM.to_owned()),
        search_settle: Some(SETTLE.to_owned()),
        ramp: Some(arguments.ramp.clone()),
        transport: arguments.transport.clone(),
        pick: arguments.pick.clone(),
        thresholds,
        seed: arguments.seed.clone(),
        workers: arguments.shared.workers.clone(),
        headers: arguments.shared.requests.headers.clone(),
        ..OneLiner::default()
    };
    let mut overrides = overrides();
    overrides.set.clone_from(&arguments.set);
    let population = scenario::one_liner_population(&arguments.urls, false);
    overrides.options = arguments.shared.settings(population);
    overrides.options.extend(arguments.server.settings());
    overrides.options.extend(goal(arguments));
    match Plan::of_one_liner(&line, &overrides).map_err(Failure::diagnostic)? {
        Plan::Capacity(search) => Ok(*search),
        Plan::Run(_) | Plan::Series(_) => Err(Failure::bad(
            "the settings remove the search: leave out `--set capacity=`",
        )),
    }
}

/// Returns the goal of the search as settings of the scenario, which validates them.
fn goal(arguments: &args::Capacity) -> Vec<OptionSetting> {
    let quick = arguments.quick.then(|| "true".to_owned());
    args::given([
        ("--from", "capacity.from", &arguments.from),
        ("--min", "capacity.min", &arguments.min),
        ("--max", "capacity.max", &arguments.max),
        ("--hold", "capacity.hold", &arguments.hold),
        ("--budget", "capacity.budget", &arguments.budget),
        ("--sure", "capacity.sure", &arguments.sure),
        ("--within", "capacity.within", &arguments.within),
        ("--quick", "capacity.quick", &quick),
    ])
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn read(line: &[&str]) -> Result<CapacitySearch, Failure> {
        protocols::install();
        let words = ["streamgauge", "capacity"].into_iter();
        let cli = Cli::try_parse_from(words.chain(line.iter().copied()));
        match cli.expect("the arguments are good").command {
            Command::Capacity(arguments) => search(&arguments),
            _ => panic!("it is a search"),
        }
    }

    #[test]
    fn command_line_becomes_a_search() {
        let found = read(&["rtsp://u:p@127.0.0.1/a", "--hold", "10s", "--quick"]);
        let search = found.expect("it is a good line");
        assert_eq!(search.key(), "clients.viewers.load.clients");
        assert_eq!(search.settings().from, 10);
        let set = read(&["rtsp://127.0.0.1/a", "--set", "capacity.from=50"]);
        assert_eq!(set.map(|search| search.settings().from).ok(), Some(50));
        let hold = search.settings().hold;
        let trial = search.scenario(0, 40, hold).expect("it is a scenario");
        assert_eq!(trial.name, "rtsp://127.0.0.1/a");
        assert_eq!(trial.populations[0].load.clients_max(), 40);
        // The last of 40 clients starts after 39 parts of 40 of the ramp.
        assert_eq!(trial.warm_up.as_millis(), 4_875 + 5_000);
        assert_eq!(trial.duration, Some(trial.warm_up + hold));
        let thresholds = trial.thresholds.iter().map(|one| one.text.as_str());
        assert_eq!(
            thresholds.collect::<Vec<_>>(),
            ["viewers.loss < 1%", "viewers.startup_delay.p95 < 2s"]
        );
    }

    #[test]
    fn invalid_command_lines_exit_with_104() {
        for line in [
            &["rtsp://127.0.0.1/a", "--from", "0"][..],
            &["rtsp://127.0.0.1/a", "--from", "many"],
            &["rtsp://127.0.0.1/a", "--min", "20", "--max", "10"],
            &["rtsp://127.0.0.1/a", "--hold", "1s"],
            &["rtsp://127.0.0.1/a", "--budget", "1m"],
            &["rtsp://127.0.0.1/a", "--set", "capacity="],
        ] {
            let failure = read(line).expect_err("it is a wrong line");
            assert_eq!(failure.exit, Exit::Bad, "{line:?}");
        }
    }
}

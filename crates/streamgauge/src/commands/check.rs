//! `streamgauge check`: prints what a scenario needs and does, and how its servers describe their
//! media.

use engine::Control;
use measure::media::Media;
use scenario::{CapacitySearch, Plan, Scenario, Server, ServerStart};

use crate::args;
use crate::commands::{run, series};
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;
use crate::ui::descriptor_limit;
use crate::ui::signals::Watch;

pub(crate) fn check(arguments: &args::Check, console: Console) -> Result<Exit, Failure> {
    let mut overrides = run::overrides();
    overrides.set.clone_from(&arguments.set);
    let plan = run::load(&arguments.scenario, &overrides)?;
    let (mut lines, first) = match &plan {
        Plan::Run(scenario) => (Vec::new(), scenario.as_ref().clone()),
        Plan::Series(series) => {
            let mut lines = series.lines();
            lines.push("the first of them:".to_owned());
            (lines, series.scenario(0).map_err(Failure::diagnostic)?)
        }
        Plan::Capacity(search) => {
            let mut lines = search.lines();
            lines.push("the first trial:".to_owned());
            let first = first_trial(search, 0);
            (lines, first.map_err(Failure::diagnostic)?)
        }
    };
    if !console.quiet {
        lines.extend_from_slice(first.describe().lines());
        if let Some(placement) = &arguments.runners {
            let (names, weights): (Vec<_>, Vec<_>) = placement.expected().into_iter().unzip();
            lines.extend(engine::Dealing::new(&first, &weights).lines(&first, &names));
        }
        let mut text = lines.join("\n");
        text.push('\n');
        console.print_wrapped(&text, 4)?;
    }
    if let Some(ServerStart::Launch { name, .. }) =
        first.server.as_ref().map(|server| &server.start)
    {
        let listed = sut::catalogue::find(name).map_err(Failure::bad)?;
        listed.entry.map_err(Failure::diagnostic)?;
    }
    for scenario in scenarios(&plan) {
        for placed in scenario?.links() {
            let courses = placed.link.timelines();
            courses.map_err(|error| Failure::bad(format_args!("`link`: {error}")))?;
        }
    }
    if !arguments.offline {
        for server in servers(&plan)? {
            sut::check(&server).map_err(|error| masked(&first, error))?;
        }
    }
    if !arguments.offline && first.golden().next().is_some() {
        sut::Browser::program().map_err(Failure::bad)?;
    }
    match &plan {
        // Each runner checks what its own machine permits.
        _ if arguments.runners.is_some() => {}
        Plan::Run(scenario) => descriptor_limit::check(scenario)?,
        Plan::Series(series) => series::check(series)?,
        Plan::Capacity(_) => descriptor_limit::check(&first)?,
    }
    for warning in first.warnings() {
        console.say(&format!("warning: {warning}"));
    }
    if arguments.offline {
        console.say("the scenario is valid; its servers were not contacted (--offline)");
        return Ok(Exit::Pass);
    }
    let start = first.server.as_ref().map(|server| &server.start);
    if let Some(ServerStart::Launch { .. } | ServerStart::Command(_)) = start {
        console.say(
            "the scenario is valid; the run starts the server itself and asks for the description of its media",
        );
        return Ok(Exit::Pass);
    }
    if !can_be_reached(&first, console) {
        return Ok(Exit::Failed);
    }
    let exit = ask(&first, console)?;
    if exit == Exit::Pass {
        console.say("the scenario is valid");
    }
    Ok(exit)
}

/// Returns `true` if any of the scenario's servers accepts a connection. A server that does not is
/// only a warning: with several servers that may be intended.
fn can_be_reached(scenario: &Scenario, console: Console) -> bool {
    let tried = engine::check_reachability(scenario);
    let any = tried.is_empty() || tried.iter().any(|reached| reached.error.is_none());
    for reached in &tried {
        if let Some(error) = &reached.error {
            console.say(&format!("warning: {}: {error}", reached.address));
        }
    }
    if !any {
        console.say(
            "the scenario can be read, but its server cannot be reached: start it, or correct `urls`",
        );
    }
    any
}

/// Returns an error with the scenario's secrets masked.
fn masked(scenario: &Scenario, error: impl std::fmt::Display) -> Failure {
    Failure::bad(scenario.secrets().mask(&error.to_string()))
}

/// Iterates over the scenarios of all runs, one at a time: there may be a thousand.
fn scenarios(plan: &Plan) -> Box<dyn Iterator<Item = Result<Scenario, Failure>> + '_> {
    match plan {
        Plan::Run(scenario) => Box::new(std::iter::once(Ok(scenario.as_ref().clone()))),
        Plan::Series(series) => {
            let runs = (0..series.runs()).map(|run| series.scenario(run));
            Box::new(runs.map(|run| run.map_err(Failure::diagnostic)))
        }
        Plan::Capacity(search) => {
            let runs = 0..search.combinations().runs();
            let runs = runs.map(|combination| first_trial(search, combination));
            Box::new(runs.map(|run| run.map_err(Failure::diagnostic)))
        }
    }
}

fn first_trial(
    search: &CapacitySearch,
    combination: usize,
) -> Result<Scenario, scenario::ScenarioError> {
    let settings = search.settings();
    search.scenario(combination, settings.from, settings.hold)
}

/// Returns the servers that the runs launch or observe, without duplicates.
fn servers(plan: &Plan) -> Result<Vec<Server>, Failure> {
    let mut servers: Vec<Server> = Vec::new();
    for scenario in scenarios(plan) {
        let server = scenario?.server;
        servers.extend(server.filter(|server| !servers.contains(server)));
    }
    Ok(servers)
}

/// Asks the servers of a scenario to describe their media.
fn ask(scenario: &Scenario, console: Console) -> Result<Exit, Failure> {
    let control = Control::new();
    let _watch = Watch::start(control.clone())?;
    let media = match engine::describe(scenario, engine::DESCRIBE_TIMEOUT, &control) {
        Ok(media) => media,
        Err(engine::EngineError::Stopped) => return Ok(Exit::Stopped),
        Err(error) => return Err(masked(scenario, error)),
    };
    if !console.quiet {
        let lines: Vec<String> = report::media::lines(&media)
            .into_iter()
            .map(|line| format!("media: {line}\n"))
            .collect();
        console.print(&lines.concat())?;
    }
    Ok(exit_of(&media))
}

/// Returns the exit of the check: it fails only if no URL has a description. That one of several
/// has none may be intended.
fn exit_of(media: &Media) -> Exit {
    let known = |url: &measure::media::DescribedUrl| url.description.is_some();
    match media.urls.is_empty() || media.urls.iter().any(known) {
        true => Exit::Pass,
        false => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::media::{DescribedUrl, MediaDescription};

    #[test]
    fn check_fails_only_if_no_url_is_described() {
        let url = |known: bool| DescribedUrl {
            population: "viewers".to_owned(),
            url: "rtsp://h/a".to_owned(),
            description: known.then(MediaDescription::default),
            failure: None,
        };
        for (known, code) in [
            (&[][..], 0),
            (&[true], 0),
            (&[false, true], 0),
            (&[false, false], 99),
        ] {
            let media = Media {
                urls: known.iter().map(|&known| url(known)).collect(),
                ..Media::default()
            };
            assert_eq!(exit_of(&media).code(), code, "{known:?}");
        }
    }
}

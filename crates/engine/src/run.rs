//! Preparation of a run: everything that must be ready before the coordinator takes over.

pub(crate) mod coordinator;
pub(crate) mod coverage;
pub(crate) mod crew;
pub(crate) mod dealing;
pub(crate) mod environment;
pub(crate) mod levels;
pub(crate) mod media_description;
pub(crate) mod ownership;
pub(crate) mod parts;
pub(crate) mod reachability;
pub(crate) mod recording;
pub(crate) mod server_release;
pub(crate) mod sources;
pub(crate) mod subjects;

use std::collections::{BTreeMap, BTreeSet};

use measure::load::Holds;
use measure::media::Media;
use measure::{Recorder, Time, Totals, VerdictInput, server, tester};
use net::Clock;
use runfile::{EventRow, Header, Noted, fact};
use scenario::Scenario;
use sut::Sut;

use crate::control::Control;
use crate::error::EngineError;
use crate::machine::since_1970;
use crate::modes::browsers;
use crate::network::Networks;
use crate::options::Options;
use crate::progress::{Finished, Phase, Progress};
use crate::run::coordinator::Coordinator;
use crate::run::coordinator::figures::Figures;
use crate::run::coordinator::runners::RunnerJudges;
use crate::run::crew::{Crew, LocalCrew};
use crate::run::dealing::Dealing;
use crate::run::environment::Environment;
use crate::run::levels::{Levels, RunningLevels};
use crate::run::parts::{catalogues, header, subjects};
use crate::run::recording::Recording;
use crate::runner::{RunnerInfo, RunnerOrder, RunnerPlan};
use crate::window_merger::WindowMerger;

/// Runs a scenario.
///
/// `progress` is called on the calling thread: while the server starts, then once per window.
///
/// # Errors
/// Any fault that keeps the run from beginning. Later faults are part of the verdict.
pub fn run(
    scenario: &Scenario,
    options: &Options,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Finished, EngineError> {
    let finished = run_with(scenario, None, options, control, progress)?;
    Ok(finished.expect("a run without levels has a result"))
}

/// Runs levels of clients, one after another, on a server that continues. The load of `scenario` is
/// the largest that a level may have. `options.run_file` is not used. Returns the result of a level
/// that did not reach its end, or `None` if every level did.
///
/// # Errors
/// Any fault that keeps the run from beginning, or the run file of a level from being made.
pub fn run_levels(
    scenario: &Scenario,
    mut levels: Levels<'_>,
    options: &Options,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Finished>, EngineError> {
    run_with(scenario, Some(levels.borrow()), options, control, progress)
}

/// Runs a scenario with these runners, like [`run`].
///
/// # Errors
/// Any fault that keeps the run from beginning.
pub fn run_on(
    crew: &mut dyn Crew,
    scenario: &Scenario,
    options: &Options,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Finished, EngineError> {
    browsers::check(scenario)?;
    let finished = run_prepared(scenario, None, crew, None, options, control, progress)?;
    Ok(finished.expect("a run without levels has a result"))
}

/// Runs levels of clients with these runners, like [`run_levels`].
///
/// # Errors
/// Any fault that keeps the run from beginning, or the run file of a level from being made.
pub fn run_levels_on(
    crew: &mut dyn Crew,
    scenario: &Scenario,
    mut levels: Levels<'_>,
    options: &Options,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Finished>, EngineError> {
    browsers::check(scenario)?;
    let levels = Some(levels.borrow());
    run_prepared(scenario, levels, crew, None, options, control, progress)
}

fn run_with<'a>(
    scenario: &'a Scenario,
    mut levels: Option<Levels<'a>>,
    options: &'a Options,
    control: &'a Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Finished>, EngineError> {
    // Missing browsers are reported before anything is created.
    browsers::check(scenario)?;
    let mut networks = Networks::make(scenario)?;
    // Worker threads inherit the namespace of the thread that starts them.
    let _stay = networks.as_ref().map(Networks::enter).transpose()?;
    let dealing = Dealing::whole(scenario);
    let plan = RunnerPlan::new(&RunnerOrder {
        scenario,
        dealing: &dealing,
        runner: 0,
        changing: levels.as_ref().map(|levels| levels.population.as_str()),
        options,
    })?;
    let mut crew = LocalCrew::new(scenario, options, plan);
    let levels = levels.as_mut().map(Levels::borrow);
    run_prepared(
        scenario,
        levels,
        &mut crew,
        networks.as_mut(),
        options,
        control,
        progress,
    )
}

/// Runs a scenario with these runners.
fn run_prepared<'a>(
    scenario: &'a Scenario,
    levels: Option<Levels<'a>>,
    crew: &'a mut dyn Crew,
    networks: Option<&mut Networks>,
    options: &'a Options,
    control: &'a Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Finished>, EngineError> {
    let subjects = subjects(scenario);
    let header = header(scenario, &options.version, subjects.clone());
    let figures = Figures::new(scenario, &header)?;
    let mut environment = Environment::start(scenario, crew, networks, control, progress)?;
    let sut = environment.sut.as_ref();
    let invalid = sut.map_or_else(Vec::new, |sut| ownership::check(scenario, sut, false));
    let media = if options.describe {
        ask_about_media(scenario, control, progress)?
    } else {
        Media::default()
    };
    let header = Header {
        started_at: since_1970(&Clock::start()),
        ..header
    };
    let runners = crew.start()?;
    // After all that may fail, so that nothing is replaced by a run that cannot begin.
    let run_file = match &levels {
        // Each level has a run file of its own.
        Some(_) => Recording(None),
        None => Recording::create(&options.run_file, options.overwrite, &header)?,
    };
    // The run begins here: everything is ready.
    let clock = match crew.agree() {
        Ok(clock) => clock,
        Err(error) => {
            run_file.discard();
            return Err(error);
        }
    };
    environment.begin(scenario, &clock);
    crew.begin(&clock);
    run_file.note_begin(&clock, Time::ZERO);
    let counts = environment.sut.as_ref().is_some_and(Sut::has_counters);
    let mut facts = facts(scenario, options, crew, counts, &runners);
    facts.push(fact::MEDIA.of(&media));
    for noted in &facts {
        run_file.note(noted.clone());
    }
    for text in runners.iter().flat_map(|runner| runner.receivers.clone()) {
        run_file.event(EventRow {
            time: Time::ZERO,
            kind: "receiver".to_owned(),
            subject: None,
            text,
        });
    }
    let mut coordinator = Coordinator {
        scenario,
        control,
        clock,
        assembly: WindowMerger::new(runners.len(), catalogues(scenario)),
        runners: RunnerJudges::new(scenario, &crew.summaries(), figures.warm_up_windows),
        figures,
        workers: worker_totals(&runners),
        lost_runners: BTreeSet::new(),
        counts_until: Time::NEVER,
        unknown: unknown(&runners),
        crew,
        overflow: 0,
        server: Recorder::new(server::SERVER_CATALOGUE),
        environment,
        earlier: options.earlier.as_ref(),
        server_is_gone: false,
        run_file,
        secrets: scenario.secrets(),
        path: options.run_file.clone(),
        grounds: VerdictInput {
            invalid,
            ..VerdictInput::default()
        },
        phase: Phase::Running,
        stop_deadline: None,
        stopped_at: scenario.duration.map_or(Time::NEVER, Time::from_start),
        holds: Holds::default(),
        aborted: false,
        levels: None,
        level_fault: None,
    };
    if let Some(levels) = levels {
        let running = RunningLevels::new(levels, scenario, options, facts, subjects);
        coordinator.begin_levels(running)?;
    }
    coordinator.run(progress)
}

/// Facts about a run that are known when it begins. `server_counts` is true if the server has
/// counters of its own.
fn facts(
    scenario: &Scenario,
    options: &Options,
    crew: &dyn Crew,
    server_counts: bool,
    runners: &[RunnerInfo],
) -> Vec<Noted> {
    let mut facts = Vec::new();
    if !options.command.is_empty() {
        let command = scenario.secrets().mask(&options.command);
        facts.push(fact::COMMAND.of(&command));
    }
    facts.extend(crew.facts());
    if let Some(build) = &options.build {
        facts.push(fact::BUILD.of(build));
    }
    facts.push(fact::SERVER_COUNTS.of(&server_counts));
    facts.push(fact::RECEIVE_PATH.of(&receive_paths(runners)));
    let hint = |runner: &RunnerInfo| runner.receive_hint.clone();
    facts.push(fact::RECEIVE_HINT.of(&runners.iter().find_map(hint)));
    let asked = scenario.links().flat_map(|placed| {
        let line = placed.link.line();
        placed.subjects().map(|name| (name, line.clone()))
    });
    facts.push(fact::LINKS.of(&asked.collect()));
    facts
}

/// Empty totals of each worker of each runner, by their numbers.
fn worker_totals(runners: &[RunnerInfo]) -> BTreeMap<(u32, u32), Totals> {
    let each = (0..).zip(runners);
    each.flat_map(|(number, runner)| (0..runner.workers).map(move |worker| (number, worker)))
        .map(|worker| (worker, Totals::new(tester::TESTER_CATALOGUE)))
        .collect()
}

/// Receive paths of the runners: `ring`, `sockets`, or both.
fn receive_paths(runners: &[RunnerInfo]) -> String {
    let paths = runners.iter().map(|runner| runner.receive_path.as_str());
    let paths: BTreeSet<&str> = paths.collect();
    paths.into_iter().collect::<Vec<_>>().join(" and ")
}

/// Names of the tester's counters that are unavailable on the machine of any runner.
fn unknown(runners: &[RunnerInfo]) -> Vec<String> {
    let names = runners.iter().flat_map(|runner| runner.unknown.clone());
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Asks the servers for media descriptions and warns about URLs that differ too much.
fn ask_about_media(
    scenario: &Scenario,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Media, EngineError> {
    let what = match media_description::describable_url_count(scenario) {
        0 => return Ok(Media::default()),
        1 => "its URL",
        _ => "all URLs",
    };
    let asking = Phase::Launching(format!("requesting the media description of {what}"));
    progress(&Progress::without_clients(asking));
    let media = media_description::describe(
        scenario,
        media_description::describe_timeout(scenario.duration),
        control,
    )?;
    for difference in &media.differences {
        let (population, text) = (&difference.population, &difference.text);
        let warning = Phase::Warning(format!("{population}: {text}"));
        progress(&Progress::without_clients(warning));
    }
    Ok(media)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use scenario::Pick;
    use session::{Context, Input, Session};

    /// A session that panics.
    struct Broken;

    impl Session for Broken {
        fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) {
            panic!("on purpose");
        }

        fn deadline(&self) -> Option<Time> {
            None
        }
    }

    #[test]
    fn scenario_and_sockets_have_the_same_default_buffer() {
        assert_eq!(
            scenario::DEFAULT_RECEIVE_BUFFER,
            net::ports::RECEIVE_BUFFER as u64
        );
    }

    #[test]
    fn worker_that_panics_makes_the_run_invalid_and_lets_it_end() {
        protocols::install();
        let text = "clients: {viewers: {protocol: rtsp, urls: ['rtsp://127.0.0.1:9/a'], \
                    load: {clients: 2}}}\nworkers: 2\n";
        let scenario = Scenario::parse("test", text, &scenario::Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"));
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            run_file: folder.path().join("run"),
            ..Options::default()
        };
        let dealing = Dealing::whole(&scenario);
        let plan = RunnerPlan::new(&RunnerOrder {
            scenario: &scenario,
            dealing: &dealing,
            runner: 0,
            changing: None,
            options: &options,
        });
        let mut plan = plan.expect("nothing to read");
        assert_eq!(plan.workers.len(), 2);
        let population = &mut plan.workers[0].populations[0];
        let clients = population.clients.as_mut().expect("clients");
        clients.pick = Pick::InTurn;
        clients.client = Arc::new(|_, _| Ok(Box::new(Broken)));
        let control = Control::new();
        let mut crew = LocalCrew::new(&scenario, &options, plan);
        let run = run_prepared(
            &scenario,
            None,
            &mut crew,
            None,
            &options,
            &control,
            &mut |_| {},
        );
        let finished = run.expect("a report all the same").expect("a result");
        let reasons = &finished.verdict.reasons;
        assert!(
            reasons.iter().any(|reason| reason.contains("crashed")),
            "{reasons:?}"
        );
        assert_eq!(finished.verdict.result, measure::VerdictResult::Invalid);
    }
}

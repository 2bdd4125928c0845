//! Preparation of a run: everything that must be ready before the coordinator takes over.

pub(crate) mod coordinator;
pub(crate) mod coverage;
pub(crate) mod crew;
pub(crate) mod dealing;
pub(crate) mod levels;
pub(crate) mod media_description;
pub(crate) mod ownership;
pub(crate) mod parts;
pub(crate) mod reachability;
pub(crate) mod recording;
pub(crate) mod server_release;
pub(crate) mod sources;
pub(crate) mod subjects;

use std::collections::BTreeSet;
use std::path::Path;

use load::Holds;
use measure::media::Media;
use measure::{Catalogue, Health, Recorder, Time, Totals, server, tester};
use net::Clock;
use net::Namespace;
use runfile::{EventRow, Header, Noted, RunFile, fact};
use scenario::Scenario;
use sut::Sut;

use crate::control::Control;
use crate::error::EngineError;
use crate::machine::since_1970;
use crate::modes::browsers::{self, Browsers};
use crate::network::Networks;
use crate::options::Options;
use crate::progress::{Finished, Phase, Progress};
use crate::run::coordinator::Coordinator;
use crate::run::coordinator::live::ClientsSoFar;
use crate::run::coordinator::runners::RunnerJudges;
use crate::run::coverage::Coverage;
use crate::run::crew::{Crew, LocalCrew};
use crate::run::dealing::Dealing;
use crate::run::levels::{Levels, RunningLevels};
use crate::run::parts::{header, judge, subjects};
use crate::run::recording::Recording;
use crate::run::server_release::PeakHoldings;
use crate::run::sources::Sources;
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
    let finished = run_prepared((scenario, None), crew, None, options, control, progress)?;
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
    let levels = (scenario, Some(levels.borrow()));
    run_prepared(levels, crew, None, options, control, progress)
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
        (scenario, levels),
        &mut crew,
        networks.as_mut(),
        options,
        control,
        progress,
    )
}

/// Runs a scenario with these runners.
fn run_prepared<'a>(
    (scenario, levels): (&'a Scenario, Option<Levels<'a>>),
    crew: &'a mut dyn Crew,
    mut networks: Option<&mut Networks>,
    options: &'a Options,
    control: &'a Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Finished>, EngineError> {
    let subjects = subjects(scenario);
    let names: Vec<(&str, Catalogue)> = subjects
        .iter()
        .map(|subject| (subject.name.as_str(), subject.catalogue))
        .collect();
    let header = header(scenario, &options.version, subjects.clone());
    let judge = judge(scenario, &names, header.warm_up_windows())?;
    let bounds = scenario.tester.health.clone();
    let health = Health::new(bounds, &names, header.warm_up_windows());
    // Before the server: some servers look up their multicast groups when they start.
    let links = networks.as_mut().map(|networks| networks.take_links());
    let networks = networks.as_deref();
    let links = links.unwrap_or_default();
    if !links.all_realtime() {
        let text = "the emulated link has no real-time priority (CAP_SYS_NICE): on a busy machine packets leave late";
        progress(&Progress::without_clients(Phase::Warning(text.to_owned())));
    }
    let sources = Sources::start(scenario, networks.map(Networks::sources))?;
    let apart = networks.and_then(Networks::server_apart);
    let observed = match &scenario.server {
        Some(server) => crew.observe_server(server)?,
        None => None,
    };
    let mut sut = match observed {
        Some(sut) => Some(sut),
        None => start_server(scenario, apart, control, progress)?,
    };
    if let Some(sut) = &mut sut {
        sut.watch_groups(server_release::groups(scenario));
    }
    let mut browsers = Browsers::start(scenario, control)?;
    let invalid = sut
        .as_ref()
        .map_or_else(Vec::new, |sut| ownership::check(scenario, sut, false));
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
        Some(_) => None,
        None if options.overwrite => Some(RunFile::create_over(&options.run_file, &header)?),
        None => Some(RunFile::create(&options.run_file, &header)?),
    };
    let run_file = Recording(run_file);
    // The run begins here: everything is ready.
    let clock = match crew.agree() {
        Ok(clock) => clock,
        Err(error) => {
            run_file.discard();
            return Err(error);
        }
    };
    if let Some(sut) = &mut sut {
        sut.begin();
    }
    let lingers = scenario
        .server
        .as_ref()
        .is_some_and(|server| server.linger.is_some());
    let holding = sut.as_ref().filter(|_| lingers).map(PeakHoldings::baseline);
    if let Some(sources) = &sources {
        sources.begin();
    }
    links.begin(&clock);
    browsers.begin();
    crew.begin(&clock);
    // CLOCK_MONOTONIC is the same in all processes of the machine, so their times can be compared.
    let monotonic = clock.to_monotonic_nanos(Time::ZERO);
    run_file.note(fact::CLOCK_MONOTONIC_NANOS.of(&monotonic));
    run_file.note(fact::STARTED_AT.of(&since_1970(&clock).as_secs_f64()));
    let mut facts: Vec<Noted> = Vec::new();
    if !options.command.is_empty() {
        let command = scenario.secrets().mask(&options.command);
        facts.push(fact::COMMAND.of(&command));
    }
    facts.extend(crew.facts());
    if let Some(build) = &options.build {
        facts.push(fact::BUILD.of(build));
    }
    let counts = sut.as_ref().is_some_and(Sut::has_counters);
    facts.push(fact::SERVER_COUNTS.of(&counts));
    facts.push(fact::RECEIVE_PATH.of(&receive_paths(&runners)));
    let hint = |runner: &RunnerInfo| runner.receive_hint.clone();
    facts.push(fact::RECEIVE_HINT.of(&runners.iter().find_map(hint)));
    let asked = scenario.links().flat_map(|placed| {
        let line = placed.link.line();
        placed.subjects().map(|name| (name, line.clone()))
    });
    facts.push(fact::LINKS.of(&asked.collect()));
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
    let coordinator = Coordinator {
        scenario,
        control,
        clock,
        assembly: WindowMerger::new(
            runners.len(),
            scenario
                .populations
                .iter()
                .map(|p| p.config.protocol().catalogue)
                .collect(),
        ),
        warm_up_windows: header.warm_up_windows(),
        totals: subjects
            .iter()
            .map(|subject| (subject.name.clone(), Totals::new(subject.catalogue)))
            .collect(),
        clients: ClientsSoFar::of_all(scenario),
        workers: (0..)
            .zip(&runners)
            .flat_map(|(number, runner)| (0..runner.workers).map(move |worker| (number, worker)))
            .map(|worker| (worker, Totals::new(tester::TESTER_CATALOGUE)))
            .collect(),
        runners: RunnerJudges::new(scenario, &crew.summaries(), header.warm_up_windows()),
        lost_runners: BTreeSet::new(),
        counts_until: Time::NEVER,
        unknown: unknown(&runners),
        crew,
        overflow: 0,
        judge,
        health,
        server: Recorder::new(server::SERVER_CATALOGUE),
        sources,
        links,
        browsers,
        sut,
        holding,
        windows: 0,
        earlier: options.earlier.as_ref(),
        server_is_gone: false,
        run_file,
        secrets: scenario.secrets(),
        path: options.run_file.clone(),
        invalid_reasons: invalid,
        phase: Phase::Running,
        stop_deadline: None,
        stopped_at: scenario.duration.map_or(Time::NEVER, Time::from_start),
        holds: Holds::default(),
        failure_reasons: Vec::new(),
        aborted: false,
        coverage: Coverage::new(scenario),
        stopped_by_user: false,
        levels: None,
        level_fault: None,
    };
    let mut coordinator = coordinator;
    if let Some(levels) = levels {
        let running = RunningLevels::new(levels, scenario, options, facts, subjects);
        coordinator.begin_levels(running)?;
    }
    coordinator.run(progress)
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

/// Starts the server in the namespace `apart`, or in that of the calling thread.
fn start_server(
    scenario: &Scenario,
    apart: Option<&Namespace>,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Sut>, EngineError> {
    let Some(server) = &scenario.server else {
        return Ok(None);
    };
    let options = sut::Options {
        cancelled: control.stop_flag(),
        ..sut::Options::default()
    };
    let address = scenario.network.server_address();
    let spec = sut::ServerSpec::from(server).with_host(address);
    let secrets = scenario.secrets();
    let mut tell = |step: sut::Progress| {
        let text = secrets.mask(&in_words(&step));
        progress(&Progress::without_clients(Phase::Launching(text)));
    };
    // The paths of the scenario are resolved already.
    let started = match apart {
        None => {
            let tell = std::cell::RefCell::new(tell);
            Sut::start_with(&spec, Path::new(""), &options, &|step| {
                (tell.borrow_mut())(step);
            })
        }
        Some(space) => {
            let (steps_sender, steps) = crossbeam_channel::bounded(16);
            let start = move || {
                let report_step = |step| {
                    // The receiver reads until this thread has ended.
                    let _ = steps_sender.send(step);
                };
                Ok(Sut::start_with(
                    &spec,
                    Path::new(""),
                    &options,
                    &report_step,
                ))
            };
            let ended = std::thread::scope(|scope| {
                let thread = scope.spawn(|| space.run_in(start));
                steps.iter().for_each(&mut tell);
                thread.join()
            });
            let failed = EngineError::system("cannot start the server in its network");
            let broke_down = |_| Err(std::io::Error::other("the thread panicked"));
            ended.unwrap_or_else(broke_down).map_err(failed)?
        }
    };
    match started {
        Ok(sut) => Ok(Some(sut)),
        Err(sut::SutError::Cancelled) => Err(EngineError::Stopped),
        Err(error) => Err(error.into()),
    }
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

fn in_words(step: &sut::Progress) -> String {
    match step {
        sut::Progress::MakingClip {
            number,
            count,
            path,
        } => {
            format!("making clip {number} of {count}: {}", path.display())
        }
        sut::Progress::Starting { command } => format!("starting {command}"),
        sut::Progress::WaitingFor { what, within } => {
            format!("waiting up to {} s for {what}", within.as_secs())
        }
        sut::Progress::Ready { pid, after } => {
            format!(
                "server ready after {:.1} s (pid {pid})",
                after.as_secs_f64()
            )
        }
    }
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
            (&scenario, None),
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

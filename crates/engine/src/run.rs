//! Preparation of a run: everything that must be ready before the coordinator takes over.

use std::path::Path;
use std::time::Duration;

use load::{Holds, Share, Slots};
use measure::media::Media;
use measure::{Catalogue, Health, Recorder, Time, Totals, server, tester};
use net::{Clock, Namespace, PortRange};
use protocol::registry::RunContext;
use runfile::{EventRow, Header, RunFile};
use scenario::{Population, Priority, Scenario};
use sut::Sut;

use crate::browsers::{self, Browsers};
use crate::clients::{client_factory, surroundings, tls};
use crate::control::Control;
use crate::coordinator::Coordinator;
use crate::coverage::Coverage;
use crate::error::EngineError;
use crate::levels::{Levels, RunningLevels};
use crate::machine::since_1970;
use crate::media_description;
use crate::network::Networks;
use crate::options::Options;
use crate::ownership;
use crate::process::Process;
use crate::progress::{Finished, Phase, Progress, TesterProgress};
use crate::receive_path::ReceivePath;
use crate::recording::Recording;
use crate::remote_worker::{self, RemoteWorker};
use crate::run_parts::{header, judge, subjects};
use crate::server_release::{self, PeakHoldings};
use crate::sources::Sources;
use crate::trace::{self, Traced, Traces};
use crate::window_merger::WindowMerger;
use crate::worker::{ClientPlan, MakeClient, WorkerPopulation};
use crate::worker_count::workers;
use crate::worker_pool::{WorkerPlan, WorkerPool};

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
pub fn run_levels<'a>(
    scenario: &'a Scenario,
    levels: Levels<'a>,
    options: &'a Options,
    control: &'a Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Finished>, EngineError> {
    let finished = run_with(scenario, Some(levels), options, control, progress)?;
    Ok(finished)
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
    let networks = Networks::make(scenario)?;
    // Worker threads inherit the namespace of the thread that starts them.
    let _stay = networks.as_ref().map(Networks::enter).transpose()?;
    let mut resolved = None;
    let remote_workers = remote_worker::connect(scenario, &options.version, &mut resolved)?;
    let scenario = resolved.as_ref().unwrap_or(scenario);
    let receive_path = ReceivePath::choose(scenario)?;
    let surroundings = surroundings(scenario);
    let prepared = PreparedRun {
        plans: worker_plans(scenario, &receive_path, &surroundings, levels.as_ref())?,
        remote_workers,
        surroundings,
        networks,
    };
    run_prepared(
        (scenario, levels.as_mut().map(Levels::borrow)),
        prepared,
        &receive_path,
        options,
        control,
        progress,
    )
}

/// Workers of a run, and what they share.
struct PreparedRun {
    /// One plan per local worker.
    plans: Vec<WorkerPlan>,
    /// Receivers on other machines.
    remote_workers: Vec<RemoteWorker>,
    /// State that the clients of all workers share.
    surroundings: RunContext,
    /// Namespaces that were created for the run.
    networks: Option<Networks>,
}

/// Runs a scenario with these workers.
fn run_prepared<'a>(
    (scenario, levels): (&'a Scenario, Option<Levels<'a>>),
    prepared: PreparedRun,
    receive_path: &ReceivePath,
    options: &'a Options,
    control: &'a Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Finished>, EngineError> {
    let PreparedRun {
        mut plans,
        remote_workers,
        surroundings,
        mut networks,
    } = prepared;
    let traced = trace::find(&options.trace, scenario)?;
    if scenario.tester.priority == Priority::Raised {
        may_go_first()?;
    }
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
    let links = networks.as_mut().map(Networks::take_links);
    let links = links.unwrap_or_default();
    if !links.all_realtime() {
        let text = "the emulated link has no real-time priority (CAP_SYS_NICE): on a busy machine packets leave late";
        progress(&before_it_begins(Phase::Warning(text.to_owned())));
    }
    let sources = Sources::start(scenario, networks.as_ref().map(Networks::sources))?;
    let apart = networks.as_ref().and_then(Networks::server_apart);
    let mut sut = start_server(scenario, apart, control, progress)?;
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
    let run_file = match &levels {
        // Each level has a run file of its own.
        Some(_) => None,
        None if options.overwrite => Some(RunFile::create_over(&options.run_file, &header)?),
        None => Some(RunFile::create(&options.run_file, &header)?),
    };
    let run_file = Recording(run_file);
    let overwrite = options.overwrite;
    let traces = Traces::start(traced, &options.run_file, overwrite, &options.version)?;
    for plan in &mut plans {
        for (index, population) in plan.populations.iter_mut().enumerate() {
            if let Some(clients) = &mut population.clients {
                clients.traced = traces.of(index);
            }
        }
    }
    let mut crew = WorkerPool::start(plans, scenario.stop_timeout, scenario.seed)?;
    let receivers: Vec<String> = remote_workers.iter().map(RemoteWorker::to_string).collect();
    for receiver in remote_workers {
        crew.add_remote_worker(receiver);
    }
    let workers = crew.len();
    // The run begins here: everything is ready.
    let clock = Clock::start();
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
    surroundings.set_wall_clock(since_1970(&clock));
    traces.begin(&clock);
    links.begin(&clock);
    browsers.begin();
    crew.begin(&clock);
    // CLOCK_MONOTONIC is the same in all processes of the machine, so their times can be compared.
    let monotonic = clock.to_monotonic_nanos(Time::ZERO);
    run_file.meta("clock_monotonic_nanos", monotonic.into());
    run_file.meta("started_at", since_1970(&clock).as_secs_f64().into());
    let mut facts: Vec<(&'static str, serde_json::Value)> = Vec::new();
    if !options.command.is_empty() {
        let command = scenario.secrets().mask(&options.command);
        facts.push(("command", command.into()));
    }
    let counts = sut.as_ref().is_some_and(Sut::has_counters);
    facts.push(("server_counts", counts.into()));
    facts.push(("receive_path", receive_path.name().into()));
    facts.push(("receive_hint", receive_path.hint().into()));
    let asked = scenario.links().flat_map(|placed| {
        let line = placed.link.line();
        placed.subjects().map(|name| (name, line.clone().into()))
    });
    facts.push(("links", serde_json::Value::Object(asked.collect())));
    facts.push(("media", serde_json::to_value(&media).unwrap_or_default()));
    for (key, value) in &facts {
        run_file.meta(key, value.clone());
    }
    for text in receivers {
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
            crew.len(),
            scenario
                .populations
                .iter()
                .map(|p| p.config.protocol().catalogue)
                .collect(),
            tester::TESTER_CATALOGUE,
        ),
        pool: crew,
        warm_up_windows: header.warm_up_windows(),
        totals: subjects
            .iter()
            .map(|subject| (subject.name.clone(), Totals::new(subject.catalogue)))
            .collect(),
        started_and_failed: scenario.populations.iter().map(|_| (0, 0)).collect(),
        workers: (0..workers)
            .map(|_| Totals::new(tester::TESTER_CATALOGUE))
            .collect(),
        overflow: 0,
        judge,
        health,
        server: Recorder::new(server::SERVER_CATALOGUE),
        process: Process::new(),
        crash_checked_at: Time::ZERO,
        sources,
        links,
        browsers,
        sut,
        holding,
        windows: 0,
        server_is_gone: false,
        run_file,
        secrets: scenario.secrets(),
        path: options.run_file.clone(),
        traces,
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

/// Checks whether threads of this process may raise their priority, on a thread of its own.
fn may_go_first() -> Result<(), EngineError> {
    let tried = std::thread::spawn(net::thread::raise_priority).join();
    match tried.unwrap_or_else(|_| Err(std::io::Error::other("the thread that tried panicked"))) {
        Ok(()) => Ok(()),
        Err(error) => Err(EngineError::Priority(error)),
    }
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
        progress(&before_it_begins(Phase::Launching(text)));
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
    progress(&before_it_begins(asking));
    let media = media_description::describe(
        scenario,
        media_description::describe_timeout(scenario.duration),
        control,
    )?;
    for difference in &media.differences {
        let (population, text) = (&difference.population, &difference.text);
        let warning = Phase::Warning(format!("{population}: {text}"));
        progress(&before_it_begins(warning));
    }
    Ok(media)
}

fn before_it_begins(phase: Phase) -> Progress {
    Progress {
        elapsed: Duration::ZERO,
        phase,
        populations: Vec::new(),
        server_cpu: None,
        tester: TesterProgress {
            healthy: true,
            ..TesterProgress::default()
        },
        failures: Vec::new(),
        is_held: false,
        held: Duration::ZERO,
    }
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

/// Plans of the local workers.
fn worker_plans(
    scenario: &Scenario,
    receive_path: &ReceivePath,
    surroundings: &RunContext,
    levels: Option<&Levels<'_>>,
) -> Result<Vec<WorkerPlan>, EngineError> {
    let changes =
        |population: &Population| levels.is_some_and(|levels| levels.population == population.name);
    let workers = workers(scenario);
    let tls: Vec<_> = scenario
        .populations
        .iter()
        .map(tls)
        .collect::<Result<_, _>>()?;
    let makers: Vec<MakeClient> = scenario
        .populations
        .iter()
        .map(|population| client_factory(population, surroundings))
        .collect::<Result<_, _>>()?;
    let receive_buffer = usize::try_from(scenario.tester.receive_buffer).unwrap_or(usize::MAX);
    let ports = |worker| {
        PortRange::share(receive_path.ports(), worker, workers).with_receive_buffer(receive_buffer)
    };
    let plans = (0..workers)
        .map(|worker| WorkerPlan {
            populations: scenario
                .populations
                .iter()
                .zip(tls.iter().zip(&makers))
                .map(|(population, (tls, maker))| WorkerPopulation {
                    name: population.name.clone(),
                    catalogue: population.config.protocol().catalogue,
                    clients: Some(ClientPlan {
                        share: match changes(population) {
                            true => Share::open(
                                population.load.rejoin,
                                Slots::every(worker.into(), workers.into()),
                            ),
                            false => Share::new(&population.load, worker, workers),
                        },
                        urls: population.urls.clone(),
                        pick: population.pick,
                        leave: population.leave,
                        run_ends: scenario.duration.map_or(Time::NEVER, Time::from_start),
                        client: maker.clone(),
                        tls: tls.clone(),
                        traced: Traced::default(),
                        media: population.config.has_media(),
                        sources: population.config.source_addresses().to_vec(),
                    }),
                })
                .collect(),
            serving: Vec::new(),
            endpoints: Vec::new(),
            ports: ports(worker),
            ring: receive_path.ring(&ports(worker)),
            raised_priority: scenario.tester.priority == Priority::Raised,
            realtime_pacer: false,
        })
        .collect();
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use protocol::session::{Context, Input, Session};
    use scenario::Pick;

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
        let receive_path = ReceivePath::choose(&scenario).expect("sockets at the least");
        let surroundings = RunContext::default();
        let plans = worker_plans(&scenario, &receive_path, &surroundings, None);
        let mut plans = plans.expect("nothing to read");
        assert_eq!(plans.len(), 2);
        let mut plan = plans[0].populations[0].clients.take().expect("clients");
        plan.pick = Pick::InTurn;
        plan.client = Arc::new(|_, _| Ok(Box::new(Broken)));
        plans[0].populations[0].clients = Some(plan);
        let control = Control::new();
        let team = PreparedRun {
            plans,
            remote_workers: Vec::new(),
            surroundings,
            networks: None,
        };
        let run = run_prepared(
            (&scenario, None),
            team,
            &receive_path,
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

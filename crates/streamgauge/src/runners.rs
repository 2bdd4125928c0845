//! Clients of a run are played by this process or by runners.

use std::cell::RefCell;

use cluster::{Cluster, ClusterError, ClusterOptions, Placement, RunState};
use engine::{Control, EngineError, Finished, Levels, Options, Progress};
use scenario::Scenario;

use crate::args::RunnerPlacement;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;
use crate::ui::descriptor_limit;

/// The runners of a run or a series.
#[derive(Default)]
pub(crate) struct Runners {
    cluster: Option<RefCell<Cluster>>,
    /// Run that goes on.
    resumed: RefCell<Option<RunState>>,
}

impl Runners {
    /// Starts the runners that the user asks for, and waits for those that wait elsewhere.
    /// `control` ends the wait.
    pub(crate) fn open(
        placement: &RunnerPlacement,
        control: &Control,
        console: Console,
    ) -> Result<Runners, Failure> {
        let access = placement.access.access().map_err(Failure::bad)?;
        let wanted = match (&placement.runners, &access) {
            (None, None) => return Ok(Runners::default()),
            (None, Some(_)) => {
                return Err(Failure::bad(
                    "--at: say how many runners that wait there are to play: `--runners 4`",
                ));
            }
            (Some(Placement::Waiting(_)), None) => {
                return Err(Failure::bad(
                    "--runners: name the NATS server at which these runners wait (`--at`), or let \
                     them be started: `--runners local:4`",
                ));
            }
            (Some(Placement::Placed(_)), Some(_)) => {
                return Err(Failure::bad(
                    "--at: runners that are started here use a NATS server that is started for them: \
                     leave `--at` out",
                ));
            }
            (Some(wanted), _) => wanted,
        };
        let password = engine::draw_secret().map_err(Failure::bad)?;
        let version = env!("CARGO_PKG_VERSION");
        let stop = || control.is_stopped();
        let opened = Cluster::open(&ClusterOptions {
            placement: wanted,
            at: access.as_ref(),
            password: &password,
            version,
            within: placement.runner_timeout.0,
            stop: &stop,
        });
        let cluster = opened.map_err(|error| match error {
            ClusterError::Stopped => Failure::new(Exit::Stopped, error),
            error => Failure::bad(error),
        })?;
        for runner in cluster.runners() {
            let machine = &runner.machine;
            console.say(&format!(
                "runner {}: on {} ({} cores, Linux {})",
                runner.name, machine.host, machine.cores, machine.kernel
            ));
        }
        Ok(Runners::of(cluster, None))
    }

    /// Reaches the runners of a run that goes on.
    pub(crate) fn resume(placement: &RunnerPlacement, state: RunState) -> Result<Runners, Failure> {
        let access = placement.access.access().map_err(Failure::bad)?;
        let access = access.ok_or_else(|| {
            Failure::bad("--resume: name the NATS server of the run (`--at`): runners that a command starts end with it")
        })?;
        let cluster = Cluster::connect(&access, env!("CARGO_PKG_VERSION"));
        Ok(Runners::of(cluster.map_err(Failure::bad)?, Some(state)))
    }

    fn of(cluster: Cluster, resumed: Option<RunState>) -> Runners {
        Runners {
            cluster: Some(RefCell::new(cluster)),
            resumed: RefCell::new(resumed),
        }
    }

    /// Checks that this process can open the files of a scenario's clients, if it plays them.
    pub(crate) fn check_descriptors(&self, scenario: &Scenario) -> Result<(), Failure> {
        match &self.cluster {
            None => descriptor_limit::check(scenario),
            Some(_) => Ok(()),
        }
    }

    /// Runs a scenario; see [`engine::run`].
    pub(crate) fn run(
        &self,
        scenario: &Scenario,
        options: &Options,
        control: &Control,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Finished, EngineError> {
        let Some(cluster) = &self.cluster else {
            return engine::run(scenario, options, control, progress);
        };
        let mut cluster = cluster.borrow_mut();
        let crew = match self.resumed.take() {
            Some(state) => cluster.resume(state, scenario, control),
            None => cluster.prepare(scenario, None, control),
        };
        let mut crew = crew.map_err(refused)?;
        engine::run_on(&mut crew, scenario, options, control, progress)
    }

    /// Runs levels; see [`engine::run_levels`].
    pub(crate) fn run_levels(
        &self,
        scenario: &Scenario,
        levels: Levels<'_>,
        options: &Options,
        control: &Control,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Finished>, EngineError> {
        let Some(cluster) = &self.cluster else {
            return engine::run_levels(scenario, levels, options, control, progress);
        };
        let population = Some(levels.population.as_str());
        let crew = cluster.borrow_mut().prepare(scenario, population, control);
        let mut crew = crew.map_err(refused)?;
        engine::run_levels_on(&mut crew, scenario, levels, options, control, progress)
    }
}

fn refused(error: ClusterError) -> EngineError {
    match error {
        ClusterError::Stopped => EngineError::Stopped,
        error => EngineError::Runners(error.to_string()),
    }
}

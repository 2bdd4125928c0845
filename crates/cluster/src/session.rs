//! A coordinator together with the NATS server and the runners that it starts.

use std::time::Duration;

use engine::Control;
use scenario::{Scenario, ServerStart};
use tempfile::TempDir;

use crate::connection::Access;
use crate::coordinator::{Coordinator, RunnerFacts, Wanted};
use crate::crew::RemoteCrew;
use crate::error::ClusterError;
use crate::nats_server::NatsServer;
use crate::placed::PlacedRunner;
use crate::placement::Placement;
use crate::run_state::RunState;

/// Where the runners of a coordinator are, and how they are reached.
pub struct ClusterOptions<'a> {
    pub placement: &'a Placement,
    /// NATS server of the user. Without it, one is started.
    pub at: Option<&'a Access>,
    /// Password of the server that is started.
    pub password: &'a str,
    /// Version of this program.
    pub version: &'a str,
    /// Time for which runners are waited for.
    pub within: Duration,
    /// Ends the wait when it returns `true`.
    pub stop: &'a dyn Fn() -> bool,
}

/// Runners that are ready for runs. Those that were started for them end with it.
pub struct Cluster {
    // Before the runners: it tells them to leave.
    coordinator: Coordinator,
    facts: Vec<RunnerFacts>,
    runners: Vec<PlacedRunner>,
    /// Time for which runners are waited for.
    within: Duration,
    _nats: Option<NatsServer>,
    _folder: Option<TempDir>,
}

impl Cluster {
    /// Starts what has to be started, and waits for the runners.
    ///
    /// # Errors
    /// Something cannot be started, or too few runners come.
    pub fn open(options: &ClusterOptions<'_>) -> Result<Cluster, ClusterError> {
        let ClusterOptions { placement, at, .. } = *options;
        let nats = match at {
            Some(_) => None,
            None => Some(NatsServer::start(options.password)?),
        };
        let access = match (&nats, at) {
            (Some(nats), _) => nats.access().clone(),
            (None, Some(access)) => access.clone(),
            (None, None) => Access::default(),
        };
        let mut coordinator = Coordinator::connect(&access, options.version)?;
        let mut runners = Vec::new();
        let mut folder = None;
        if let (Placement::Placed(places), Some(nats)) = (placement, &nats) {
            let own = tempfile::tempdir();
            let own = own.map_err(ClusterError::system("no temporary folder"))?;
            for place in places {
                runners.push(PlacedRunner::start(place, nats, own.path())?);
            }
            for runner in &mut runners {
                runner.connect(nats, options.within, options.stop)?;
            }
            folder = Some(own);
        }
        let mut check = || {
            if (options.stop)() {
                return Err(ClusterError::Stopped);
            }
            runners.iter_mut().try_for_each(PlacedRunner::check)
        };
        let facts = coordinator.gather(&placement.wanted(), None, options.within, &mut check)?;
        Ok(Cluster {
            coordinator,
            facts,
            runners,
            within: options.within,
            _nats: nats,
            _folder: folder,
        })
    }

    /// Connects to the NATS server of runs that have begun.
    ///
    /// # Errors
    /// No connection.
    pub fn connect(at: &Access, version: &str) -> Result<Cluster, ClusterError> {
        Ok(Cluster {
            coordinator: Coordinator::connect(at, version)?,
            facts: Vec::new(),
            runners: Vec::new(),
            within: Duration::ZERO,
            _nats: None,
            _folder: None,
        })
    }

    /// Goes on with a run whose coordinator has ended.
    ///
    /// # Errors
    /// That coordinator lives, or the run cannot go on here.
    pub fn resume(
        &mut self,
        state: RunState,
        scenario: &Scenario,
        control: &Control,
    ) -> Result<RemoteCrew, ClusterError> {
        self.coordinator.resume(state, scenario, control)
    }

    /// The runners, in their order.
    pub fn runners(&self) -> &[RunnerFacts] {
        &self.facts
    }

    /// Prepares all runners for a run.
    ///
    /// # Errors
    /// A runner refuses its part, or the scenario works on one machine only.
    pub fn prepare(
        &mut self,
        scenario: &Scenario,
        changing: Option<&str>,
        control: &Control,
    ) -> Result<RemoteCrew, ClusterError> {
        // A runner may have restarted since the last run.
        let names = self.facts.iter().map(|runner| runner.name.clone());
        let wanted = Wanted::Named(names.collect());
        let runners = &mut self.runners;
        let mut check = || {
            if control.is_stopped() {
                return Err(ClusterError::Stopped);
            }
            runners.iter_mut().try_for_each(PlacedRunner::check)
        };
        let observer = match scenario.server.as_ref().map(|server| &server.start) {
            Some(ServerStart::Observer { runner }) => Some(runner.as_str()),
            _ => None,
        };
        self.coordinator
            .gather(&wanted, observer, self.within, &mut check)?;
        self.coordinator.prepare(scenario, changing, control)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // All at once: each may take some seconds.
        self.runners.iter_mut().for_each(PlacedRunner::end);
    }
}

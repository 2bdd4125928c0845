//! The runners of a run, from the point of view of its coordinator.

use std::time::Duration;

use measure::tester::RunnerSummary;
use net::Clock;
use runfile::Noted;
use scenario::{Scenario, Server};
use sut::Sut;

use crate::error::EngineError;
use crate::machine::since_1970;
use crate::messages::RunnerCommand;
use crate::options::Options;
use crate::runner::{Runner, RunnerInfo, RunnerPlan, RunnerReport};
use crate::trace::Trace;

/// The runners of a run: one in this process, or several on other machines.
pub trait Crew {
    /// Begins to observe the server, if a runner on its machine does that.
    ///
    /// # Errors
    /// That runner cannot observe it.
    fn observe_server(&mut self, _server: &Server) -> Result<Option<Sut>, EngineError> {
        Ok(None)
    }

    /// Starts the workers of all runners. They are ready on return, and play nothing yet. Returns
    /// facts about each runner.
    ///
    /// # Errors
    /// A runner cannot start.
    fn start(&mut self) -> Result<Vec<RunnerInfo>, EngineError>;

    /// Agrees with all runners on the start of the run, and returns the run's clock at that start.
    ///
    /// # Errors
    /// A runner does not take part.
    fn agree(&mut self) -> Result<Clock, EngineError>;

    /// Facts for the run file, once the start is agreed: those that another coordinator would need
    /// to go on with the run.
    fn facts(&self) -> Vec<Noted> {
        Vec::new()
    }

    /// Starts the clients of a runner in this process. Others have agreed on their start.
    fn begin(&mut self, clock: &Clock);

    /// Time that a command takes to all runners, in addition to that within a process.
    fn lead(&self) -> Duration {
        Duration::ZERO
    }

    /// Sends a command to all runners, after those that were sent before.
    fn send(&mut self, command: &RunnerCommand);

    /// Waits for the next report of any runner, at most for `within`. Returns it with the number of
    /// its runner.
    fn receive(&mut self, within: Duration) -> Option<(u32, RunnerReport)>;

    /// Traces of the run, once all runners have ended.
    fn take_traces(&mut self) -> Vec<Trace>;

    /// Summary of each runner, without its resource use. Empty if the only one is in this process.
    fn summaries(&self) -> Vec<RunnerSummary> {
        Vec::new()
    }
}

/// The only runner of a run, in this process.
pub(crate) struct LocalCrew<'a> {
    scenario: &'a Scenario,
    options: &'a Options,
    plan: Option<RunnerPlan>,
    runner: Option<Runner>,
}

impl<'a> LocalCrew<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        options: &'a Options,
        plan: RunnerPlan,
    ) -> LocalCrew<'a> {
        LocalCrew {
            scenario,
            options,
            plan: Some(plan),
            runner: None,
        }
    }
}

impl Crew for LocalCrew<'_> {
    fn start(&mut self) -> Result<Vec<RunnerInfo>, EngineError> {
        let Some(plan) = self.plan.take() else {
            return Ok(Vec::new());
        };
        let runner = Runner::start(plan, self.scenario, self.options)?;
        let info = runner.info();
        self.runner = Some(runner);
        Ok(vec![info])
    }

    fn agree(&mut self) -> Result<Clock, EngineError> {
        Ok(Clock::start())
    }

    fn begin(&mut self, clock: &Clock) {
        if let Some(runner) = &mut self.runner {
            runner.make_ready(clock, since_1970(clock));
            runner.begin(clock);
        }
    }

    fn send(&mut self, command: &RunnerCommand) {
        if let Some(runner) = &self.runner {
            runner.send(command);
        }
    }

    fn receive(&mut self, within: Duration) -> Option<(u32, RunnerReport)> {
        let report = self.runner.as_mut()?.next_report(within)?;
        Some((0, report))
    }

    fn take_traces(&mut self) -> Vec<Trace> {
        let runner = self.runner.as_mut();
        runner.map(Runner::take_traces).unwrap_or_default()
    }
}

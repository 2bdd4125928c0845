//! Going on with a run whose coordinator has ended.
//!
//! The runners play on without a coordinator for some time, and their reports stay in the log. A
//! new coordinator takes the reports from the first one on, so the run file becomes the one that
//! the first coordinator would have written.

use std::time::Duration;

use engine::Control;
use futures_util::StreamExt;
use futures_util::future::join_all;
use scenario::{Scenario, ServerStart};

use crate::coordinator::{Coordinator, RUNNERS_MAX};
use crate::crew::RemoteCrew;
use crate::error::ClusterError;
use crate::machine;
use crate::member::{Member, exchange_with};
use crate::names::is_word;
use crate::run_state::{RunState, scenario_digest};
use crate::storage::{lead_subject, report_subject};

/// Time in which a living coordinator gives a sign.
const LEAD_WITHIN: Duration = Duration::from_millis(2_500);

/// Time limit for everything that is asked.
const ASK_TIMEOUT: Duration = Duration::from_secs(20);

/// Number of exchanges of timestamps with each runner.
const EXCHANGES: usize = 8;

impl Coordinator {
    /// Takes over a run whose coordinator has ended.
    ///
    /// # Errors
    /// The coordinator lives, the scenario or the machine is another one, or nothing is left of the
    /// run.
    pub fn resume(
        &mut self,
        state: RunState,
        scenario: &Scenario,
        control: &Control,
    ) -> Result<RemoteCrew, ClusterError> {
        let refused = |why: &str| Err(ClusterError::resume(why));
        if state.boot != machine::facts().boot {
            return refused("it was started on another machine, or before a restart of this one");
        }
        if state.scenario != scenario_digest(scenario) {
            return refused("the scenario or its settings differ from those of the run");
        }
        let start = scenario.server.as_ref().map(|server| &server.start);
        if start.is_some_and(|start| !start.is_observed()) || !scenario.sources.is_empty() {
            return refused("the server or the sources that the run had started ended with it");
        }
        let known = state.members.len();
        if known == 0 || known > RUNNERS_MAX || state.ready.len() != known {
            return refused("its run file is corrupt");
        }
        let all = state.members.iter().chain(&state.observer);
        if !is_word(&state.run) || !all.into_iter().all(Member::is_sound) {
            return refused("its run file is corrupt");
        }
        if state.version != self.version() {
            return refused("another version of streamgauge has begun it");
        }
        let has_observer = matches!(start, Some(ServerStart::Observer { .. }));
        let observer = state.observer.clone().filter(|_| has_observer);
        if self.has_coordinator(&state.run) {
            return refused("its coordinator is alive");
        }
        let (members, last) = self.take_over(&state.run, state.members.clone())?;
        let reader = self.reader_of(state.run.clone(), last);
        let crew = RemoteCrew::new(
            self.shared.clone(),
            reader,
            &members,
            observer,
            scenario,
            control,
        );
        Ok(crew.with_state(state))
    }

    /// Returns `true` if a coordinator of the run gives a sign of life.
    fn has_coordinator(&self, run: &str) -> bool {
        let (client, subject) = (self.shared.client.clone(), lead_subject(run));
        let heard = self.shared.background.wait(ASK_TIMEOUT, async move {
            let Ok(mut signs) = client.subscribe(subject).await else {
                return true;
            };
            let sign = tokio::time::timeout(LEAD_WITHIN, signs.next()).await;
            matches!(sign, Ok(Some(_)))
        });
        // Unless it is known to be dead, it lives.
        heard.unwrap_or(true)
    }

    /// Checks that the log has the reports of the run. Returns the runners with what is known about
    /// their clocks, and the number of the last report.
    fn take_over(
        &self,
        run: &str,
        members: Vec<Member>,
    ) -> Result<(Vec<Member>, u64), ClusterError> {
        let (client, log) = (self.shared.client.clone(), self.shared.storage.log.clone());
        let run = run.to_owned();
        let taken = self.shared.background.wait(ASK_TIMEOUT, async move {
            let mut last = 0;
            for member in &members {
                let subject = report_subject(&run, &member.name);
                if let Ok(found) = log.get_last_raw_message_by_subject(&subject).await {
                    last = found.sequence.max(last);
                }
            }
            let each = members.into_iter().map(|mut member| {
                let client = client.clone();
                async move {
                    // One that has ended does not answer.
                    let exchanged = exchange_with(&client, &member, EXCHANGES).await;
                    let exchanges = exchanged.unwrap_or_default().into_iter();
                    exchanges.for_each(|one| member.clock.add(one));
                    member
                }
            });
            (last, join_all(each).await)
        });
        match taken {
            Ok((0, _)) => Err(ClusterError::resume(
                "NATS no longer has the reports of this run",
            )),
            Ok((last, members)) => Ok((members, last)),
            Err(_) => Err(ClusterError::resume(format!(
                "NATS did not answer within {} s",
                ASK_TIMEOUT.as_secs()
            ))),
        }
    }
}

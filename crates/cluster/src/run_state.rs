//! State of a run in its run file, with which another coordinator can go on.

use runfile::Fact;
use scenario::Scenario;
use serde::{Deserialize, Serialize};

use crate::clock::AgreedOffset;
use crate::files::digest;
use crate::member::Member;
use crate::orders::ReadyInfo;

/// State of a run over runners, so that another coordinator can go on with it.
pub const RUN_STATE: Fact<RunState> = Fact::new("run_state");

/// State that a coordinator needs to go on with a run. It contains no secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Seed of the scenario.
    pub seed: u64,
    /// Version of the program.
    pub(crate) version: String,
    pub(crate) run: String,
    /// SHA-256 of the scenario.
    pub(crate) scenario: String,
    pub(crate) members: Vec<Member>,
    pub(crate) observer: Option<Member>,
    pub(crate) ready: Vec<ReadyInfo>,
    /// Start of the run by the monotonic clock, and the machine that has this clock.
    pub(crate) start: i64,
    pub(crate) boot: String,
    /// Offset of each runner's clock by which it began.
    pub(crate) agreed: Vec<Option<AgreedOffset>>,
}

/// Identifies a scenario with all its settings.
pub(crate) fn scenario_digest(scenario: &Scenario) -> String {
    let portable = serde_json::to_vec(&scenario.portable()).unwrap_or_default();
    let thresholds = scenario.thresholds.iter();
    let thresholds: Vec<String> = thresholds.map(|one| format!("{one:?}")).collect();
    let others = format!("{:?}{:?}", scenario.server, scenario.sources);
    let text = [thresholds.join("\n"), others].join("\n");
    digest(&[portable, text.into_bytes()].concat())
}

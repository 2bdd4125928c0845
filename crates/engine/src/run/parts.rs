//! Subjects, header and judge of a run.

use std::time::Duration;

use kit::browser;
use measure::link::{DOWNLINK, LINK_CATALOGUE, UPLINK};
use measure::threshold::{Judge, Threshold};
use measure::{Catalogue, server, tester};
use runfile::{Header, SubjectHeader};
use scenario::Scenario;

use crate::error::EngineError;
use crate::machine;
use crate::worker::WINDOW;

/// Subjects of the run file.
pub(crate) fn subjects(scenario: &Scenario) -> Vec<SubjectHeader> {
    let mut subjects = Vec::new();
    for population in &scenario.populations {
        let protocol = population.config.protocol();
        subjects.push(SubjectHeader {
            name: population.name.clone(),
            kind: protocol.name.to_owned(),
            catalogue: protocol.catalogue,
        });
        if population.config.facts().golden.is_some() {
            subjects.push(SubjectHeader {
                name: browser::subject(&population.name),
                kind: browser::KIND.to_owned(),
                catalogue: browser::BROWSER_CATALOGUE,
            });
        }
    }
    let own = [
        ("server", server::SERVER_CATALOGUE),
        ("tester", tester::TESTER_CATALOGUE),
    ];
    for (name, catalogue) in own {
        if name != "server" || scenario.server.is_some() {
            let (name, kind) = (name.to_owned(), name.to_owned());
            subjects.push(SubjectHeader {
                name,
                kind,
                catalogue,
            });
        }
    }
    for placed in scenario.links() {
        for (name, kind) in placed.subjects().into_iter().zip([UPLINK, DOWNLINK]) {
            subjects.push(SubjectHeader {
                name,
                kind: kind.to_owned(),
                catalogue: LINK_CATALOGUE,
            });
        }
    }
    subjects
}

/// Header of the run file.
pub(crate) fn header(scenario: &Scenario, version: &str, subjects: Vec<SubjectHeader>) -> Header {
    Header {
        version: version.to_owned(),
        scenario: scenario.shown(),
        machine: machine::describe(),
        seed: scenario.seed,
        started_at: Duration::ZERO,
        warm_up: scenario.warm_up,
        starts_in_warm_up: scenario.starts_in_warm_up,
        window: WINDOW,
        subjects,
    }
}

/// Judge of the scenario's thresholds and of the implied ones.
pub(crate) fn judge(
    scenario: &Scenario,
    subjects: &[(&str, Catalogue)],
    warm_up_windows: u64,
) -> Result<Judge, EngineError> {
    let refused = |text: &str, error: measure::threshold::ThresholdError| EngineError::Threshold {
        text: text.to_owned(),
        message: error.to_string(),
    };
    let mut thresholds = Vec::new();
    for threshold in &scenario.thresholds {
        let text = &threshold.text;
        thresholds.push(Threshold::parse(text).map_err(|error| refused(text, error))?);
    }
    let mut judge =
        Judge::new(thresholds, subjects, warm_up_windows).map_err(|error| refused("", error))?;
    for population in &scenario.populations {
        for demand in population.config.default_thresholds() {
            let text = format!("{}.{demand}", population.name);
            judge = judge
                .with(&text, subjects)
                .map_err(|error| refused(&text, error))?;
        }
    }
    Ok(judge)
}

//! Subjects, header and judge of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use kit::browser;
use measure::link::{DOWNLINK, LINK_CATALOGUE, UPLINK};
use measure::threshold::{Judge, Threshold};
use measure::{Catalogue, Window, server, tester};
use runfile::{Header, SubjectHeader};
use scenario::Scenario;

use crate::error::EngineError;
use crate::machine;
use crate::worker::WINDOW;

/// Subjects of the run file.
pub(crate) fn subjects(scenario: &Scenario) -> Vec<SubjectHeader> {
    let mut subjects = Vec::new();
    let mut add = |name: String, kind: &str, catalogue: Catalogue| {
        let kind = kind.to_owned();
        subjects.push(SubjectHeader {
            name,
            kind,
            catalogue,
        });
    };
    for population in &scenario.populations {
        let (name, protocol) = (&population.name, population.config.protocol());
        add(name.clone(), protocol.name, protocol.catalogue);
        if population.config.facts().golden.is_some() {
            let catalogue = browser::BROWSER_CATALOGUE;
            add(browser::subject(name), browser::KIND, catalogue);
        }
    }
    if scenario.server.is_some() {
        add("server".to_owned(), "server", server::SERVER_CATALOGUE);
    }
    add("tester".to_owned(), "tester", tester::TESTER_CATALOGUE);
    for placed in scenario.links() {
        for (name, kind) in placed.subjects().into_iter().zip([UPLINK, DOWNLINK]) {
            add(name, kind, LINK_CATALOGUE);
        }
    }
    subjects
}

/// Metrics of each population.
pub(crate) fn catalogues(scenario: &Scenario) -> Vec<Catalogue> {
    let populations = scenario.populations.iter();
    let catalogues = populations.map(|population| population.config.protocol().catalogue);
    catalogues.collect()
}

/// Windows of the populations and of the tester, by subject.
pub(crate) fn windows_by_subject(
    scenario: &Scenario,
    populations: Vec<Window>,
    tester: Window,
) -> BTreeMap<String, Window> {
    let names = scenario.populations.iter();
    let names = names.map(|population| population.name.clone());
    let tester = ("tester".to_owned(), tester);
    names.zip(populations).chain([tester]).collect()
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

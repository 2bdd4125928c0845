//! The run file of a runner: its own measurements, even if its coordinator is lost.

use std::path::Path;

use runfile::{EventRow, Noted, RunFile, WindowRow};
use scenario::Scenario;

use super::RunnerReport;
use crate::error::EngineError;
use crate::run::parts::{header, subjects};

/// The run file of one runner. It has no verdict: only the whole run has one.
pub struct RunnerRecord {
    file: RunFile,
    names: Vec<String>,
}

impl RunnerRecord {
    /// Creates the file, which must not exist.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(
        path: &Path,
        scenario: &Scenario,
        version: &str,
    ) -> Result<RunnerRecord, EngineError> {
        let header = header(scenario, version, subjects(scenario));
        let populations = scenario.populations.iter();
        Ok(RunnerRecord {
            file: RunFile::create(path, &header)?,
            names: populations.map(|one| one.name.clone()).collect(),
        })
    }

    /// Stores a fact.
    pub fn note(&self, noted: Noted) {
        self.file.note(noted);
    }

    /// Stores a report.
    pub fn add(&self, report: &RunnerReport) {
        match report {
            RunnerReport::Window(window) => {
                let populations = self.names.iter().cloned().zip(window.populations.clone());
                let tester = ("tester".to_owned(), window.tester());
                self.file.window(WindowRow {
                    index: window.index,
                    start: window.begins,
                    seconds: window.seconds,
                    subjects: populations.chain([tester]).collect(),
                });
            }
            RunnerReport::Client(row) => self.file.client((**row).clone()),
            RunnerReport::Event(event) => self.file.event(event.clone()),
            RunnerReport::Fault(text) | RunnerReport::Lost(text) => self.file.event(EventRow {
                kind: "fault".to_owned(),
                text: text.clone(),
                ..EventRow::default()
            }),
            RunnerReport::TopicMessage { .. } | RunnerReport::Ended => {}
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(self) -> Result<(), EngineError> {
        self.file.finish()?;
        Ok(())
    }
}

//! Levels of a continuing run: the clients of a population change from level to level, while the
//! server and most clients continue. Each level has a run file and a verdict of its own, as if it
//! were a run.

use std::path::PathBuf;
use std::time::Duration;

use measure::Time;
use net::Clock;
use runfile::{ClientRow, Header, Noted, SubjectHeader, fact};
use scenario::Scenario;

use crate::error::EngineError;
use crate::machine::since_1970;
use crate::messages::RunnerCommand;
use crate::options::Options;
use crate::progress::{Finished, Progress};
use crate::run::parts::header;
use crate::run::recording::Recording;
use crate::worker::WINDOW;

/// Lead time of a level, so that all workers know of it before it begins.
const NOTICE: Duration = Duration::from_millis(100);

/// A level.
#[derive(Clone, Debug)]
pub struct Level {
    /// Scenario of a run with this level alone: its load, warm-up, duration and varied values.
    pub scenario: Scenario,
    /// Path of its run file, which must not exist.
    pub run_file: PathBuf,
}

/// Levels of a run.
pub struct Levels<'a> {
    /// Name of the population whose clients change.
    pub population: String,
    /// First level.
    pub first: Level,
    /// Returns the next level, from the result of the last one. `None` ends the run.
    pub next: &'a mut dyn FnMut(&Finished) -> Option<Level>,
}

impl Levels<'_> {
    /// Returns the same levels for a shorter time.
    pub(crate) fn borrow(&mut self) -> Levels<'_> {
        Levels {
            population: self.population.clone(),
            first: self.first.clone(),
            next: &mut *self.next,
        }
    }
}

/// Levels in progress.
pub(crate) struct RunningLevels<'a> {
    /// Index of the population whose clients change.
    pub(crate) population: usize,
    /// First level, until it begins.
    pub(crate) first: Option<Level>,
    next: &'a mut dyn FnMut(&Finished) -> Option<Level>,
    options: &'a Options,
    /// Facts that are noted in each run file.
    facts: Vec<Noted>,
    subjects: Vec<SubjectHeader>,
    /// Number of windows before the current level, and of the current level.
    pub(crate) first_window: u64,
    windows: u64,
    /// Begin of the current level: the end of the last window of the level before.
    begins: Time,
    /// Number of clients of the current level, and of those that were active before it.
    pub(crate) clients: u64,
    active_before: u64,
    /// True after the last level, or if one could not begin.
    pub(crate) is_over: bool,
}

/// Parts of the coordinator that a new level replaces.
pub(crate) struct NewLevel {
    pub(crate) run_file: Recording,
    pub(crate) header: Header,
    /// End of the level, within it.
    pub(crate) ends: Time,
    /// Changes the number of clients.
    pub(crate) change: RunnerCommand,
}

impl<'a> RunningLevels<'a> {
    pub(crate) fn new(
        levels: Levels<'a>,
        scenario: &Scenario,
        options: &'a Options,
        facts: Vec<Noted>,
        subjects: Vec<SubjectHeader>,
    ) -> RunningLevels<'a> {
        let mut populations = scenario.populations.iter();
        let population = populations.position(|one| one.name == levels.population);
        RunningLevels {
            population: population.unwrap_or(0),
            first: Some(levels.first),
            next: levels.next,
            options,
            facts,
            subjects,
            first_window: 0,
            windows: 0,
            begins: Time::ZERO,
            clients: 0,
            active_before: 0,
            is_over: false,
        }
    }

    /// Returns the row of a client in the run file of the current level. Of a client that began
    /// before the level, neither its start nor its figures belong to the level.
    pub(crate) fn client(&self, row: ClientRow) -> ClientRow {
        let is_older = row.begun.is_some_and(|begun| begun < self.begins);
        let time = |at: Time| self.time(at);
        ClientRow {
            due: self.time(row.due),
            begun: row.begun.map(time),
            first_media: row.first_media.filter(|_| !is_older).map(time),
            ended: row.ended.map(time),
            streams: match is_older {
                true => serde_json::Value::Array(Vec::new()),
                false => row.streams,
            },
            ..row
        }
    }

    /// Returns the reason why the current level is invalid if the tester did not run all of its
    /// clients: those that were active before and those that started in it.
    pub(crate) fn missing_clients(&self, started: u64) -> Option<String> {
        let (begun, wanted) = (self.active_before + started, self.clients);
        (begun < wanted).then(|| {
            format!(
                "the tester ran {begun} of the {wanted} clients of this level: give it more cores, \
                 or start them over a longer time"
            )
        })
    }

    /// Notes the number of active clients at the end of a level.
    pub(crate) fn note_active(&mut self, seen: &Progress) {
        let population = seen.populations.get(self.population);
        self.active_before = population.map_or(0, |(_, population)| population.active);
    }

    /// Time within the current level. Earlier times become 0.
    pub(crate) fn time(&self, at: Time) -> Time {
        Time::from_start(at.since(self.begins))
    }

    /// Returns `true` if a level with this number of windows is complete.
    pub(crate) fn is_complete(&self, windows: u64) -> bool {
        !self.is_over && windows >= self.windows
    }

    /// Returns the next level; `None` after the last one. The current level had `windows` windows,
    /// and ended with the result `finished` at its time `ended`.
    pub(crate) fn after(
        &mut self,
        finished: &Finished,
        windows: u64,
        ended: Time,
    ) -> Option<Level> {
        self.begins += ended.since_start();
        self.first_window += windows;
        let next = (self.next)(finished).filter(|_| !finished.server_ended);
        self.is_over = next.is_none();
        next
    }

    /// Makes the run file and the judges of a level.
    pub(crate) fn begin(
        &mut self,
        level: &Level,
        clock: &Clock,
        lead: Duration,
    ) -> Result<NewLevel, EngineError> {
        let scenario = &level.scenario;
        let load = &scenario.populations[self.population].load;
        // The clients change after the begin of the level, which is in the past.
        let begin = clock.now() + NOTICE + lead;
        let gap = Duration::from_secs_f64(begin.since(self.begins).as_secs_f64().ceil());
        let warm_up = scenario.warm_up + gap;
        let held = scenario.duration.unwrap_or_default();
        let held = held.saturating_sub(scenario.warm_up).as_secs_f64() / WINDOW.as_secs_f64();
        let header = Header {
            warm_up,
            started_at: since_1970(clock) + self.begins.since_start(),
            ..header(scenario, &self.options.version, self.subjects.clone())
        };
        let run_file = Recording::create(&level.run_file, self.options.overwrite, &header)?;
        self.windows = header.warm_up_windows() + (held.round() as u64).max(1);
        let ends = Time::from_start(WINDOW * u32::try_from(self.windows).unwrap_or(u32::MAX));
        let clients = load.clients_max();
        self.clients = clients;
        run_file.note_begin(clock, self.begins);
        run_file.note(fact::STOPPED_AT.of(&ends.as_secs_f64()));
        run_file.note(fact::LEVEL.of(&fact::Level {
            population: scenario.populations[self.population].name.clone(),
            clients,
        }));
        for noted in &self.facts {
            run_file.note(noted.clone());
        }
        Ok(NewLevel {
            run_file,
            header,
            ends,
            change: RunnerCommand::Extend {
                population: self.population,
                begin: begin + load.after,
                over: measure::load::last_start(load)
                    .map_or(Duration::ZERO, |last| last.since_start() - load.after),
                clients,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_without_all_of_its_clients_is_invalid() {
        protocols::install();
        let text = "clients: {viewers: {protocol: rtsp, urls: ['rtsp://127.0.0.1:9/a'], \
                    load: {clients: 9}}}\nduration: 9s\n";
        let scenario = Scenario::parse("test", text, &scenario::Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"));
        let levels = Levels {
            population: "viewers".to_owned(),
            first: Level {
                scenario: scenario.clone(),
                run_file: PathBuf::new(),
            },
            next: &mut |_| None,
        };
        let options = Options::default();
        let mut running = RunningLevels::new(levels, &scenario, &options, Vec::new(), Vec::new());
        running.clients = 9;
        assert!(
            running
                .missing_clients(8)
                .is_some_and(|why| why.contains("8 of the 9"))
        );
        running.active_before = 5;
        assert!(running.missing_clients(3).is_some());
        assert_eq!(running.missing_clients(4), None);
        // More were active than the level wants.
        running.active_before = 20;
        assert_eq!(running.missing_clients(0), None);
    }
}

//! Series: one scenario, several runs one after the other, and a table of all.

pub(crate) mod capacity;
mod continuing;
mod folder;
mod runner;
mod trial_log;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use measure::capacity::{Search, Settings, Step, Trial, Verdict};
use runfile::series::{Axis, Entry, EntryOutcome, INDEX_VERSION, Index};
use scenario::{Secrets, Series, StopAt};

use crate::args::{Results, RunnerPlacement, TraceOptions};
use crate::commands::compare::{self, Baseline};
use crate::commands::play::claim_outputs;
use crate::commands::series_output::write_out;
use crate::exit::{Exit, Failure};
use crate::output::Outputs;
use crate::output::run_location::{ResultKind, RunLocation};
use crate::ui::console::Console;
use crate::ui::descriptor_limit;
use runner::{Runner, outcome_text};

/// A series to run, and where its results go.
pub(crate) struct Play<'a> {
    pub(crate) series: &'a Series,
    /// Here, `out` names a folder.
    pub(crate) results: &'a Results,
    /// Clients whose traffic is captured in every run.
    pub(crate) tracing: &'a TraceOptions,
    /// Runners that play the clients of every run.
    pub(crate) runners: &'a RunnerPlacement,
}

/// Checks for every run what depends on this machine: the limit of file descriptors.
pub(crate) fn check(series: &Series) -> Result<(), Failure> {
    for run in 0..series.runs() {
        descriptor_limit::check(&series.scenario(run).map_err(Failure::diagnostic)?)?;
    }
    Ok(())
}

/// Runs the series, until the user or the scenario ends it, and shows the table.
pub(crate) fn play(play: &Play<'_>, console: Console) -> Result<Exit, Failure> {
    if play.runners.runners.is_none() {
        check(play.series)?;
    }
    let first = play.series.scenario(0).map_err(Failure::diagnostic)?;
    let location = RunLocation::choose(
        ResultKind::Series,
        &first.name,
        play.results,
        play.tracing,
        console,
    )?;
    let baseline = play.results.baseline.as_deref();
    if baseline.is_some() && play.series.comparison().is_some() {
        return Err(Failure::bad(
            "--baseline: a scenario with `compare` is compared with itself; leave one of them out",
        ));
    }
    let baseline = Baseline::check(baseline, &location.path, false)?;
    let outputs = claim_outputs(play.results)?;
    let runner = Runner::start(
        play.results,
        play.tracing,
        play.runners,
        console,
        location,
        secrets_of(play.series)?,
        play.series.settle(),
    )?;
    let mut run = SeriesRun {
        play,
        runner,
        index: index(play.series, &first.name),
        skipped: vec![false; play.series.runs()],
        found_all: true,
    };
    for line in play.series.lines() {
        console.say(&line);
    }
    let gone = run.run_all();
    let lingering = run.runner.finish(&run.index);
    gone?;
    let stopped = run.runner.control.is_stopped();
    let folder = &run.runner.location.path;
    let of_runs = match play.series.find() {
        None => exit_of(&run.index, stopped),
        // Failed runs are part of the search.
        Some(_) => match exit_of(&run.searched(), stopped) {
            Exit::Pass if !run.found_all => Exit::Failed,
            other => other,
        },
    };
    let concluded = compare::conclude(baseline, folder, of_runs, outputs, console, |outputs| {
        let report = report(&run.runner.location, outputs, console)?;
        Ok(match report.comparisons.is_empty() {
            true => of_runs,
            false => with_variants(of_runs, &report),
        })
    });
    run.runner.linger(lingering.filter(|_| concluded.is_ok()));
    concluded
}

/// Returns the exit code of a comparison of variants. Their runs may fail thresholds: these name
/// the metrics.
fn with_variants(of_runs: Exit, report: &report::series::Series) -> Exit {
    match of_runs {
        Exit::Pass | Exit::Failed | Exit::Invalid => compare::exit_of(report),
        other => other,
    }
}

fn secrets_of(series: &Series) -> Result<Vec<Secrets>, Failure> {
    let scenarios = (0..series.runs()).map(|run| series.scenario(run));
    scenarios
        .map(|scenario| Ok(scenario.map_err(Failure::diagnostic)?.secrets()))
        .collect()
}

/// A series in progress.
struct SeriesRun<'a> {
    play: &'a Play<'a>,
    runner: Runner<'a>,
    index: Index,
    /// Runs that a search can skip.
    skipped: Vec<bool>,
    /// True if every search has found a run that passes.
    found_all: bool,
}

impl SeriesRun<'_> {
    fn run_all(&mut self) -> Result<(), Failure> {
        self.write()?;
        let searches = self.play.series.searches();
        if searches.is_empty() {
            for run in 0..self.play.series.runs() {
                if !self.run_and_record(run)? {
                    break;
                }
            }
        }
        for runs in searches {
            if !self.search(&runs)? {
                break;
            }
        }
        self.index.ended = true;
        self.write()
    }

    /// Searches for the first of these runs that passes. Returns `true` if the series continues.
    fn search(&mut self, runs: &[usize]) -> Result<bool, Failure> {
        let values = runs.len();
        let mut search = Search::new(Settings::of_list(values as u64));
        let mut tried = vec![false; values];
        while let Step::Try { load, hold, fresh } = search.next(|_, hold| hold) {
            // The last value is the easiest.
            let at = values.saturating_sub(usize::try_from(load).unwrap_or(values));
            if !self.run_and_record(runs[at])? {
                return Ok(false);
            }
            tried[at] = true;
            let passed = self.index.runs[runs[at]].outcome == EntryOutcome::Pass;
            search.record(Trial {
                load,
                hold,
                verdict: if passed {
                    Verdict::Held
                } else {
                    Verdict::Failed
                },
                served: None,
                took: Duration::ZERO,
                fresh,
            });
        }
        for (at, &run) in runs.iter().enumerate() {
            self.skipped[run] = !tried[at];
        }
        self.found_all &= search.answer().largest_held.is_some();
        self.write()?;
        Ok(true)
    }

    /// Runs one run and keeps its outcome in the index. Returns `true` if the series continues.
    fn run_and_record(&mut self, run: usize) -> Result<bool, Failure> {
        if self.runner.runs_started > 0 {
            self.runner
                .settle(&self.number(self.runner.runs_started + 1));
        }
        if self.runner.control.is_stopped() {
            return Ok(false);
        }
        self.runner.runs_started += 1;
        self.say(run);
        self.index.runs[run].outcome = EntryOutcome::Running;
        self.write()?;
        let scenario = self.play.series.scenario(run);
        let scenario = scenario.map_err(Failure::diagnostic)?;
        let (outcome, reason) = self.runner.run(&scenario, &self.index.runs[run].file);
        let text = outcome_text(outcome, reason.as_deref());
        self.runner.console.say(&text);
        self.index.runs[run].outcome = outcome;
        self.index.runs[run].reason = reason;
        self.write()?;
        let ends = self.play.series.stop_at() == StopAt::Fail && outcome != EntryOutcome::Pass;
        Ok(!ends)
    }

    /// Returns the number of a run as text. The total is left out in a search, where it is not
    /// known.
    fn number(&self, begun: usize) -> String {
        match self.play.series.find() {
            None => format!("run {begun} of {}", self.play.series.runs()),
            Some(_) => format!("run {begun}"),
        }
    }

    /// Returns the index with failed runs as passed: in a search, a failed run is no failure of the
    /// series.
    fn searched(&self) -> Index {
        let mut index = self.index.clone();
        for run in &mut index.runs {
            if run.outcome == EntryOutcome::Fail {
                run.outcome = EntryOutcome::Pass;
            }
        }
        index
    }

    fn say(&self, run: usize) {
        let settings = self.play.series.settings(run).into_iter();
        let settings = settings.map(|setting| format!("{}: {}", setting.key, setting.value));
        let settings = settings.collect::<Vec<_>>().join(", ");
        let number = self.number(self.runner.runs_started);
        self.runner.console.say(&format!("{number}: {settings}"));
    }

    fn write(&self) -> Result<(), Failure> {
        let mut index = self.index.clone();
        let mut unneeded = self.skipped.iter();
        index.runs.retain(|_| unneeded.next() != Some(&true));
        index
            .write(&self.runner.location.path)
            .map_err(Failure::bad)
    }
}

fn index(series: &Series, name: &str) -> Index {
    let values = |run| -> Vec<String> {
        let settings = series.settings(run).into_iter();
        settings.map(|setting| setting.value).collect()
    };
    let runs = (0..series.runs()).map(|run| Entry {
        values: values(run),
        file: folder::run_file(run, series.runs(), &values(run)),
        outcome: EntryOutcome::Planned,
        reason: None,
        trial: None,
    });
    Index {
        runs: runs.collect(),
        ..empty_index(series, name)
    }
}

/// Returns the index of a series that starts now, without runs.
fn empty_index(series: &Series, name: &str) -> Index {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let axes = series.varied().into_iter().map(|(key, values)| Axis {
        key: key.to_owned(),
        values,
    });
    Index {
        index_version: INDEX_VERSION,
        streamgauge: env!("CARGO_PKG_VERSION").to_owned(),
        name: name.to_owned(),
        started_at: now.as_secs_f64(),
        settle: series.settle().as_secs_f64(),
        varied: axes.collect(),
        find: series.find().map(str::to_owned),
        capacity: None,
        min_effect: series.comparison().map(|comparison| comparison.min_effect),
        runs: Vec::new(),
        ended: false,
    }
}

/// Returns the exit code of the gravest outcome: could not begin, then stopped, invalid, failed.
fn exit_of(index: &Index, stopped: bool) -> Exit {
    let any = |outcome| index.runs.iter().any(|run| run.outcome == outcome);
    if any(EntryOutcome::NotBegun) {
        return Exit::Bad;
    }
    // A stop between two runs leaves no run with the outcome `Stopped`.
    let stopped_between = stopped && any(EntryOutcome::Planned);
    Exit::of_run(
        any(EntryOutcome::Stopped) || stopped_between,
        any(EntryOutcome::Invalid),
        any(EntryOutcome::Fail),
    )
}

/// Reports the series in a folder: in every requested form, and as a table.
pub(crate) fn show(folder: &Path, outputs: Outputs, console: Console) -> Result<(), Failure> {
    write_out(&open(folder)?, folder, outputs, console)
}

/// Reports the series that has just ended, and returns its report.
fn report(
    location: &RunLocation,
    outputs: Outputs,
    console: Console,
) -> Result<report::series::Series, Failure> {
    let mut series = open(&location.path)?;
    let is_without_runs = !location.continued && folder::is_without_runs(&location.path);
    if !location.is_kept() || is_without_runs {
        series.folder = PathBuf::new();
    }
    write_out(&series, &location.path, outputs, console)?;
    if is_without_runs {
        folder::remove_without_runs(&location.path);
    }
    Ok(series)
}

fn open(folder: &Path) -> Result<report::series::Series, Failure> {
    report::series::Series::open(folder, engine::catalogue_of).map_err(Failure::bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index_of(outcomes: &[EntryOutcome]) -> Index {
        Index {
            index_version: INDEX_VERSION,
            streamgauge: String::new(),
            name: String::new(),
            started_at: 0.0,
            settle: 0.0,
            varied: Vec::new(),
            find: None,
            capacity: None,
            min_effect: None,
            runs: outcomes
                .iter()
                .map(|&outcome| Entry {
                    values: Vec::new(),
                    file: String::new(),
                    outcome,
                    reason: None,
                    trial: None,
                })
                .collect(),
            ended: true,
        }
    }

    #[test]
    fn series_exits_with_the_gravest_outcome_of_its_runs() {
        use EntryOutcome::{Fail, Invalid, NotBegun, Pass, Planned, Stopped};
        for (outcomes, stopped, code) in [
            (&[Pass, Pass][..], false, 0),
            (&[Pass, Fail, Pass], false, 99),
            (&[Fail, Planned], false, 99),
            (&[Fail, Invalid], false, 110),
            (&[Pass, Planned], true, 105),
            (&[Invalid, Stopped, Planned], true, 105),
            (&[Pass, Pass], true, 0),
            (&[NotBegun, Stopped], true, 104),
        ] {
            assert_eq!(
                exit_of(&index_of(outcomes), stopped).code(),
                code,
                "{outcomes:?}"
            );
        }
    }
}

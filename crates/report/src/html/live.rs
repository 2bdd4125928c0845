//! Page of a run in progress: its frame, and its content, which is kept up to date from the run
//! file.
//!
//! Each window is read once, after it was written. All other content is computed from sums, so an
//! update costs as much as the new windows and the clients that ended.

use std::collections::BTreeMap;
use std::io::Write;

use measure::tester::RunnerState;
use measure::totals::measured_seconds;
use measure::{Health, HealthBounds, Judge, Threshold, Unit, Verdict};
use runfile::{Reader, fact};
use serde_json::{Value, json};

use super::page::Connections;
use super::run::run;
use super::time_series::{Resolution, TimeSeries};
use super::{clients, overview, page};
use crate::ReportError;
use crate::human::{count, duration, figure_or_dash, plural};
use crate::model::Report;
use crate::source::{Sums, clock_error, cut_off, noted};

/// Resolution of the charts of a run in progress.
const RESOLUTION: Resolution = Resolution::new(1_200, 200);

/// Writes the frame: a page without a run, which asks its server for the run and for changes.
///
/// # Errors
/// Fails if writing fails.
pub fn write_live(out: &mut dyn Write) -> Result<(), ReportError> {
    let data = json!({
        "page_version": 1,
        "streamgauge": env!("CARGO_PKG_VERSION"),
        "definitions": {},
        "live": true,
    });
    let title = "streamgauge: running";
    page::write(title, title, data, Vec::new(), Connections::SameOrigin, out)
}

/// State of the page of a run in progress.
pub struct Live {
    sums: Sums,
    judge: Judge,
    health: Health,
    time_series: TimeSeries,
    last_window: Option<u64>,
}

impl Live {
    /// Creates the page of a run with its thresholds and the health bounds of the tester. No window
    /// has been read yet.
    ///
    /// # Errors
    /// Fails if the run file cannot be read. A threshold that cannot be judged is left out.
    pub fn new(
        reader: &Reader,
        thresholds: &[String],
        bounds: HealthBounds,
    ) -> Result<Live, ReportError> {
        let subjects = reader.catalogues();
        let warm_up = reader.header().warm_up_windows();
        let parsed = thresholds.iter().filter_map(|text| {
            let threshold = Threshold::parse(text).ok()?;
            threshold.check(&subjects).ok()?;
            Some(threshold)
        });
        let judge = Judge::new(parsed.collect(), &subjects, warm_up)
            .or_else(|_| Judge::new(Vec::new(), &subjects, warm_up))
            .expect("implied thresholds are of the subjects themselves");
        let health = Health::new(bounds, &subjects, warm_up);
        let sums = Sums::new(reader);
        let demanded = judge.finish(&sums.totals, clock_error(reader)?);
        let nothing = Report::of(reader, &sums, cut_off(), demanded, health.findings())?;
        Ok(Live {
            time_series: TimeSeries::new(reader, &nothing, RESOLUTION),
            sums,
            judge,
            health,
            last_window: None,
        })
    }

    /// Reads everything that was written since the last update. Returns `true` if there are new
    /// windows.
    ///
    /// # Errors
    /// Fails if the run file cannot be read.
    pub fn update(&mut self, reader: &Reader) -> Result<bool, ReportError> {
        let before = self.last_window;
        let stopped_at = self.sums.read_stop(reader)?;
        for row in reader.windows_after(before) {
            let row = row?;
            self.last_window = Some(row.index);
            self.sums.window(reader, &row);
            let measured = measured_seconds(row.start, row.seconds, stopped_at);
            let seconds = measured.unwrap_or(0.0);
            self.judge.window(row.index, seconds, &row.subjects);
            self.health.window(row.index, row.seconds, &row.subjects);
            // Holds are written before the windows that they affect.
            self.time_series.read_holds(reader)?;
            self.time_series.window(reader, &row);
        }
        Ok(self.last_window != before)
    }

    /// Returns `true` if a window has been read.
    pub fn has_windows(&self) -> bool {
        self.last_window.is_some()
    }

    /// Returns the data of the run for the page. After the end of the run, this is the data of
    /// every later report.
    ///
    /// # Errors
    /// Fails if the run file cannot be read.
    pub fn value(&self, reader: &Reader) -> Result<Value, ReportError> {
        let shown = match reader.is_finished()? {
            true => run(&Report::from_run(reader)?, reader, RESOLUTION)?,
            false => self.so_far(reader)?,
        };
        Ok(page::sanitized(shown))
    }

    /// Returns the definitions of the run's metrics, by kind of subject.
    pub fn definitions(reader: &Reader) -> Value {
        let mut definitions = BTreeMap::new();
        overview::definitions(reader, &mut definitions);
        page::sanitized(json!(definitions))
    }

    fn so_far(&self, reader: &Reader) -> Result<Value, ReportError> {
        // A threshold without data is not violated yet.
        let mut judged = self.judge.finish(&self.sums.totals, clock_error(reader)?);
        judged.retain(|threshold| !threshold.no_data);
        let findings = self.health.findings();
        let verdict = Verdict::decide(&judged, measure::VerdictInput::default());
        let report = Report::of(reader, &self.sums, verdict, judged, findings)?;
        let mut run = overview::head(reader, &report, &self.time_series)?;
        let warm_up = self.warm_up_left(reader);
        if warm_up.is_some() {
            remove_figures(&mut run);
        }
        run["verdict"] = json!({
            "result": "running",
            "sentence": sentence(&report, warm_up.as_deref()),
            "more": report.verdict.reasons,
            "meaning": "Thresholds cover the run so far. The verdict follows at the end.",
        });
        run["course"] = self.time_series.value(reader);
        run["clients"] = clients::clients(reader, false)?;
        let runners: Vec<RunnerState> = noted(reader, &fact::RUNNER_STATES)?;
        run["tester"]["runners_now"] = runners.iter().map(runner).collect();
        run["warming_up"] = json!(warm_up);
        Ok(run)
    }

    /// Returns the end of the warm-up as text, if no window after it has been read.
    fn warm_up_left(&self, reader: &Reader) -> Option<String> {
        let header = reader.header();
        let windows = header.warm_up_windows();
        let is_over = self.last_window.is_some_and(|last| last >= windows);
        let ends = windows as f64 * header.window.as_secs_f64();
        (windows > 0 && !is_over).then(|| duration(ends))
    }
}

/// Returns the row of a runner in the last window.
fn runner(runner: &RunnerState) -> Value {
    json!({
        "name": runner.name,
        "playing": figure_or_dash(Unit::Count, runner.playing.map(|clients| clients as f64)),
        "active": figure_or_dash(Unit::Count, runner.active.map(|clients| clients as f64)),
        "cpu": figure_or_dash(Unit::Cores, runner.cpu),
        "late": figure_or_dash(Unit::Seconds, runner.lag_max),
        "ended": runner.playing.is_none(),
        "healthy": runner.healthy,
        "lost": runner.lost,
    })
}

/// Removes the figures of all subjects but the tester: during the warm-up they would show that
/// nothing was received.
fn remove_figures(run: &mut Value) {
    for list in ["populations", "links"] {
        for subject in run[list].as_array_mut().into_iter().flatten() {
            subject["figures"] = json!([]);
        }
    }
    if run["server"].is_object() {
        run["server"]["figures"] = json!([]);
    }
}

/// Describes the progress and the state of a run, whose warm-up ends at this time.
fn sentence(report: &Report, warm_up: Option<&str>) -> String {
    let time = duration(report.run.duration);
    let time = match report.run.planned {
        Some(planned) => format!("{time} of {}", duration(planned)),
        None => time,
    };
    let broken = report
        .thresholds
        .iter()
        .filter(|one| one.has_failed())
        .count();
    let held = report.thresholds.iter().filter(|one| one.passed).count();
    let thresholds = match (held, broken) {
        (0, 0) => match warm_up {
            Some(ends) => format!("warm-up until {ends}"),
            None => "nothing has been measured yet".to_owned(),
        },
        (all, 0) => plural(all as f64, "threshold holds", "thresholds hold"),
        (_, broken) => format!(
            "{} of {} thresholds violated so far",
            count(broken as f64),
            count((held + broken) as f64)
        ),
    };
    let fit = match report.tester.health.iter().any(|finding| finding.invalid) {
        true => "the tester crosses its health bounds",
        false => "the tester is fit",
    };
    format!("{time}: {thresholds}, {fit}.")
}

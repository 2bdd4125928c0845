//! Computation of the report's figures from the run file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use measure::link::{DOWNLINK, UPLINK};
use measure::load::{Holds, HoldsSpec};
use measure::server::ServerLog;
use measure::tester::RunnerSummary;
use measure::totals::measured_seconds;
use measure::{
    Catalogue, ClockError, Finding, Meaning, ThresholdResult, Time, Totals, Verdict, VerdictResult,
};
use runfile::{ClientOutcome, Fact, Reader, Subject, fact};

use crate::ReportError;
use crate::limits::{Evidence, SubjectKind};
use crate::loss::{self, PopulationLink};
use crate::metrics::{Metrics, round_figure};
use crate::model::{
    Clients, Event, Failure, Held, Link, Population, Report, Run, SCHEMA_VERSION, Setting, Tester,
    Threshold,
};
use crate::time::rfc3339;
use crate::window::{ReportWindow, SubjectWindow, counter, level};

/// Kinds of subjects that are not populations.
pub(crate) const SERVER: &str = "server";
pub(crate) const TESTER: &str = "tester";

/// Maximum number of events in a report: the oldest. The run file has all events.
const EVENTS_MAX: usize = 10_000;

/// Maximum total length of the texts of events, and of the examples of failures, in bytes. The
/// texts of a run are far shorter: the limit bounds the memory that a foreign file can take.
const TEXTS_MAX: usize = 16 << 20;

/// Opens a run file for a report. `catalogue` returns the metrics of a kind of subject: `server`,
/// `tester`, or a protocol's name.
pub fn open(
    path: &Path,
    catalogue: impl Fn(&str) -> Option<Catalogue>,
) -> Result<Reader, ReportError> {
    Ok(Reader::open(path, catalogue)?)
}

/// Counts of clients over the whole run, including the warm-up.
#[derive(Clone, Debug, Default)]
struct ClientCounts {
    started: i64,
    completed: i64,
    stopped: i64,
    failed: i64,
    active_max: f64,
    failures: BTreeMap<String, u64>,
}

/// Sums over the windows of a run.
pub(crate) struct Sums {
    /// Figures of each subject so far, without the warm-up.
    pub(crate) totals: BTreeMap<String, Totals>,
    clients: BTreeMap<String, ClientCounts>,
    evidence: Evidence,
    /// Time at which the run was asked to stop. Later windows are in no rate.
    stopped_at: Time,
    duration: f64,
    /// Time from the stop to the end of the last window, in seconds.
    closing: f64,
    /// Total length of the windows that count in figures, in seconds.
    measured: f64,
}

impl Sums {
    fn of(reader: &Reader) -> Result<Sums, ReportError> {
        let mut sums = Sums::new(reader);
        sums.stopped_at = reader.stopped_at()?;
        for row in reader.windows() {
            sums.window(reader, &row?);
        }
        Ok(sums)
    }

    /// Creates the sums of a run in progress, without windows.
    pub(crate) fn new(reader: &Reader) -> Sums {
        Sums {
            totals: reader.empty_totals(),
            clients: BTreeMap::new(),
            evidence: Evidence::default(),
            stopped_at: Time::NEVER,
            duration: 0.0,
            closing: 0.0,
            measured: 0.0,
        }
    }

    /// Reads the time at which the run was asked to stop.
    pub(crate) fn read_stop(&mut self, reader: &Reader) -> Result<Time, ReportError> {
        self.stopped_at = reader.stopped_at()?;
        Ok(self.stopped_at)
    }

    /// Adds a window.
    pub(crate) fn window(&mut self, reader: &Reader, row: &runfile::WindowRow) {
        let is_counted = row.index >= reader.header().warm_up_windows();
        // Resources that the server released after the run are in a window of zero length.
        if row.seconds > 0.0 {
            let end = row.start.as_secs_f64() + row.seconds;
            self.duration = end.min(self.stopped_at.as_secs_f64());
            self.closing = end - self.duration;
            self.evidence.window(row.start.as_secs_f64(), row.seconds);
        }
        if is_counted {
            let counts = measured_seconds(row.start, row.seconds, self.stopped_at);
            self.measured += counts.unwrap_or(0.0);
        }
        for (name, window) in &row.subjects {
            let Some(totals) = self.totals.get_mut(name) else {
                continue;
            };
            let header = reader.header();
            header.add_counted(totals, window, row, self.stopped_at);
            let catalogue = totals.catalogue();
            let whose = match reader.find_subject(name) {
                Some(subject) if subject.kind == SERVER => Some(SubjectKind::Server),
                Some(subject) if subject.kind == TESTER => Some(SubjectKind::Tester),
                Some(subject) if is_link(subject) => None,
                _ => Some(SubjectKind::Population),
            };
            if let Some(whose) = whose
                && row.seconds > 0.0
            {
                self.evidence.add(whose, catalogue, window, row.seconds);
            }
            let clients = self.clients.entry(name.clone()).or_default();
            let count = |name| counter(catalogue, window, name).unwrap_or(0);
            clients.started += count("started");
            clients.completed += count("completed");
            clients.stopped += count("stopped");
            clients.failed += count("failed");
            let active = level(catalogue, window, "active");
            clients.active_max = clients.active_max.max(active.unwrap_or(0.0));
            for (reason, count) in &window.failures {
                *clients.failures.entry(reason.clone()).or_default() += count;
            }
        }
    }

    /// Returns every metric of a subject. Metrics that the file lacks have no figures.
    fn metrics(&self, subject: &Subject, clocks: ClockError) -> Metrics {
        let mut metrics = match self.totals.get(&subject.name) {
            Some(totals) => Metrics::of(totals).with_delay_error(subject.catalogue, clocks),
            None => Metrics::default(),
        };
        metrics.clear_unknown(|name| subject.absent.contains(&name));
        metrics
    }
}

impl Report {
    /// Reads the report from a run file, finished or not.
    pub fn from_run(reader: &Reader) -> Result<Report, ReportError> {
        let sums = Sums::of(reader)?;
        let (verdict, thresholds) = match reader.verdict()? {
            Some((verdict, thresholds)) => (verdict, thresholds),
            None => (cut_off(), Vec::new()),
        };
        let health = noted(reader, &fact::HEALTH)?;
        Report::of(reader, &sums, verdict, thresholds, health)
    }

    /// Makes the report of the sums so far, with this verdict.
    pub(crate) fn of(
        reader: &Reader,
        sums: &Sums,
        verdict: Verdict,
        thresholds: Vec<ThresholdResult>,
        health: Vec<Finding>,
    ) -> Result<Report, ReportError> {
        let header = reader.header();
        let runners: Vec<RunnerSummary> = noted(reader, &fact::RUNNERS)?;
        let clocks = ClockError::of(&runners);
        let finished = reader.is_finished()?;
        let examples = failure_examples(reader, sums)?;
        let population = |subject: &Subject| Population {
            name: subject.name.clone(),
            clients: clients(&subject.name, sums, &examples),
            where_lost: None,
            metrics: sums.metrics(subject, clocks),
            catalogue: subject.catalogue,
        };
        let mut populations: Vec<Population> = reader
            .subjects()
            .iter()
            .filter(|subject| is_population(subject))
            .map(population)
            .collect();
        let of_name = |name| reader.subjects().iter().find(move |s| s.kind == name);
        let mut tester = of_name(TESTER)
            .map(|subject| sums.metrics(subject, clocks))
            .unwrap_or_default();
        let unknown: Vec<String> = noted(reader, &fact::UNKNOWN)?;
        tester.clear_unknown(|name| unknown.iter().any(|unknown| unknown == name));
        let asked: BTreeMap<String, String> = noted(reader, &fact::LINKS)?;
        let links = reader.subjects().iter().filter(|subject| is_link(subject));
        let links: Vec<Link> = links
            .map(|subject| Link {
                name: subject.name.clone(),
                link: asked.get(&subject.name).cloned().unwrap_or_default(),
                metrics: sums.metrics(subject, clocks),
            })
            .collect();
        let dropped = |name: &str| {
            let link = links.iter().find(|link| link.name == name)?;
            let overload = link.metrics.value("overload").unwrap_or(0.0);
            Some((link.metrics.value("lost")? + overload).max(0.0) as u64)
        };
        let seen: Vec<(&Metrics, Option<PopulationLink>)> = populations
            .iter()
            .map(|found| (&found.metrics, PopulationLink::of(&found.name, dropped)))
            .collect();
        let (each, where_lost) = loss::attribute(&seen, &tester);
        for (population, lost) in populations.iter_mut().zip(each) {
            population.where_lost = lost;
        }
        let server_log: ServerLog = noted(reader, &fact::SERVER_LOG)?;
        let holds = holds(reader)?;
        let last = Duration::try_from_secs_f64(sums.duration + sums.closing);
        let last = Time::from_start(last.unwrap_or_default());
        let counts: bool = noted(reader, &fact::SERVER_COUNTS)?;
        let server = of_name(SERVER).map(|subject| {
            let mut metrics = sums.metrics(subject, clocks);
            // A server that was not queried has no counts of its own.
            metrics.clear_unknown(|name| !counts && is_own_count(name));
            metrics
        });
        let cpu_per_message = cpu_per_message(server.as_ref(), &populations, sums.measured);
        Ok(Report {
            schema_version: SCHEMA_VERSION,
            streamgauge: header.version.clone(),
            build: reader.fact(&fact::BUILD)?,
            run: Run {
                name: header.scenario["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                targets: crate::head::targets(&header.scenario),
                seed: header.seed,
                started_at: rfc3339(header.started_at),
                duration: round_figure(sums.duration),
                planned: planned(reader)
                    .map(|planned| round_figure(planned + holds.held_by(last).as_secs_f64())),
                held: held(&holds),
                closing: round_figure(sums.closing),
                warm_up: header.warm_up.as_secs_f64(),
                finished,
                varied: varied(reader),
            },
            verdict,
            thresholds: thresholds.into_iter().map(Into::into).collect(),
            populations,
            links,
            media: noted(reader, &fact::MEDIA)?,
            sources: reader.fact(&fact::SOURCES)?,
            server,
            cpu_per_message,
            server_limits: sums.evidence.limits(header.machine.cores, &server_log),
            server_log,
            server_gave_back: reader.fact(&fact::GIVEN_BACK)?,
            tester: Tester {
                receive_path: reader.fact(&fact::RECEIVE_PATH)?,
                receive_hint: noted(reader, &fact::RECEIVE_HINT)?,
                health,
                workers: noted(reader, &fact::WORKERS)?,
                where_lost,
                metrics: tester,
            },
            runners,
            events: events(reader)?,
            path: reader.path().to_owned(),
        })
    }
}

/// Returns the error of delays between clients of the run, as far as it is known yet.
pub(crate) fn clock_error(reader: &Reader) -> Result<ClockError, ReportError> {
    let runners: Vec<RunnerSummary> = noted(reader, &fact::RUNNERS)?;
    Ok(ClockError::of(&runners))
}

/// Returns `true` for a metric that the server counts itself.
fn is_own_count(name: &str) -> bool {
    name.starts_with("counted_") || name.starts_with("counts_")
}

/// Returns the periods in which the user held the run's plan.
pub(crate) fn holds(reader: &Reader) -> Result<Holds, ReportError> {
    let spec: HoldsSpec = noted(reader, &fact::HELD)?;
    Ok(spec.into())
}

fn held(holds: &Holds) -> Vec<Held> {
    let spec = HoldsSpec::from(holds);
    let holds = spec.0.into_iter();
    let holds = holds.map(|(from, to)| Held {
        from: round_figure(from),
        to: to.map(round_figure),
    });
    holds.collect()
}

/// Returns the planned duration of the run in seconds, if its scenario states one.
fn planned(reader: &Reader) -> Option<f64> {
    let written = reader.header().scenario["duration"].as_str()?;
    let length: measure::units::TimeSpan = written.parse().ok()?;
    Some(length.0.as_secs_f64())
}

/// Returns the varied values from the run's scenario. Empty if the run is not of a series.
fn varied(reader: &Reader) -> Vec<Setting> {
    let list = reader.header().scenario["varied"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(|one| {
            let text = |name: &str| Some(one[name].as_str()?.to_owned());
            Some(Setting {
                key: text("key")?,
                value: text("value")?,
            })
        })
        .collect()
}

/// Iterates over the windows of a run file in the form of the JSON report. Only a few are in memory
/// at a time.
pub fn windows(reader: &Reader) -> impl Iterator<Item = Result<ReportWindow, ReportError>> {
    let of_no_length = |row: &Result<runfile::WindowRow, _>| matches!(row, Ok(row) if row.seconds == 0.0 && row.subjects.len() < reader.subjects().len());
    let windows = reader.windows().filter(move |row| !of_no_length(row));
    let clocks = clock_error(reader).unwrap_or_default();
    windows.map(move |row| {
        let mut row = row?;
        let mut take = |subject: &Subject| {
            let window = row.subjects.remove(&subject.name)?;
            Some(SubjectWindow::of(
                subject.catalogue,
                window,
                row.seconds,
                clocks,
            ))
        };
        let mut line = ReportWindow {
            start: round_figure(row.start.as_secs_f64()),
            seconds: round_figure(row.seconds),
            ..ReportWindow::default()
        };
        for subject in reader.subjects() {
            match (take(subject), subject.kind.as_str()) {
                (None, _) => {}
                (Some(window), SERVER) => line.server = Some(window),
                (Some(window), TESTER) => line.tester = Some(window),
                (Some(window), _) if is_link(subject) => {
                    line.links.push((subject.name.clone(), window));
                }
                (Some(window), _) => line.populations.push((subject.name.clone(), window)),
            }
        }
        Ok(line)
    })
}

/// Returns a fact that was noted about the run. Returns the default if it is missing, or if this
/// program cannot read it.
pub(crate) fn noted<T>(reader: &Reader, fact: &Fact<T>) -> Result<T, ReportError>
where
    T: serde::de::DeserializeOwned + Default,
{
    Ok(reader.fact(fact)?.unwrap_or_default())
}

/// Returns the server's processor time per message, if clients only send messages: its mean
/// processor usage times the measured time, divided by the number of messages.
fn cpu_per_message(
    server: Option<&Metrics>,
    populations: &[Population],
    seconds: f64,
) -> Option<f64> {
    let mut messages = 0.0;
    for population in populations {
        let metric = population
            .catalogue
            .rate_counter_metric(Meaning::Operations)?;
        messages += population.metrics.value(metric.name).unwrap_or(0.0);
    }
    let cpu = server?.level("cpu")?.mean;
    (messages > 0.0).then(|| round_figure(cpu * seconds / messages))
}

/// Returns `true` for a population, that is, neither the server, the tester nor a link.
pub(crate) fn is_population(subject: &Subject) -> bool {
    subject.kind != SERVER && subject.kind != TESTER && !is_link(subject)
}

/// Returns `true` for a direction of an emulated link.
pub(crate) fn is_link(subject: &Subject) -> bool {
    [UPLINK, DOWNLINK].contains(&subject.kind.as_str())
}

fn clients(
    population: &str,
    sums: &Sums,
    examples: &BTreeMap<(String, String), String>,
) -> Clients {
    let counts = sums.clients.get(population).cloned().unwrap_or_default();
    let number = |count: i64| u64::try_from(count).unwrap_or(0);
    let failures = counts.failures.into_iter().map(|(reason, count)| Failure {
        example: examples
            .get(&(population.to_owned(), reason.clone()))
            .cloned(),
        reason,
        count,
    });
    Clients {
        started: number(counts.started),
        active_max: counts.active_max.max(0.0) as u64,
        completed: number(counts.completed),
        stopped: number(counts.stopped),
        failed: number(counts.failed),
        failures: failures.collect(),
    }
}

/// Returns the details of the first failed client for each population and reason.
fn failure_examples(
    reader: &Reader,
    sums: &Sums,
) -> Result<BTreeMap<(String, String), String>, ReportError> {
    let wanted: usize = sums
        .clients
        .values()
        .map(|counts| counts.failures.len())
        .sum();
    let mut found = BTreeMap::new();
    if wanted == 0 {
        return Ok(found);
    }
    let mut bytes = 0;
    for client in reader.clients() {
        let client = client?;
        if client.outcome != Some(ClientOutcome::Failed) {
            continue;
        }
        if let (Some(reason), Some(detail)) = (client.reason, client.detail) {
            found.entry((client.subject, reason)).or_insert_with(|| {
                bytes += detail.len();
                detail
            });
        }
        if found.len() >= wanted || bytes > TEXTS_MAX {
            break;
        }
    }
    Ok(found)
}

fn events(reader: &Reader) -> Result<Vec<Event>, ReportError> {
    let mut events = Vec::new();
    let mut bytes = 0;
    for row in reader.events().take(EVENTS_MAX) {
        let row = row?;
        bytes += row.text.len() + row.kind.len();
        if bytes > TEXTS_MAX {
            break;
        }
        events.push(Event {
            at: row.time.as_secs_f64(),
            kind: row.kind,
            subject: row.subject,
            text: row.text,
        });
    }
    Ok(events)
}

pub(crate) fn cut_off() -> Verdict {
    Verdict {
        result: VerdictResult::Invalid,
        reasons: vec![
            "the run was cut off or is still running: it has no verdict, and the figures cover it up \
             to the last second kept"
                .to_owned(),
        ],
        stopped_by_user: false,
    }
}

impl From<ThresholdResult> for Threshold {
    fn from(result: ThresholdResult) -> Threshold {
        Threshold {
            threshold: result.text,
            subject: result.subject,
            passed: result.passed,
            value: result.value.map(round_figure),
            statistic: result.statistic,
            limit: round_figure(result.limit),
            worst_window: result.window,
            implied: result.implied,
            in_doubt: result.in_doubt,
            undecided: result.undecided,
            clock_error: result.clock_error.map(round_figure),
            unit: result.unit,
        }
    }
}

//! Trials that protocols declare: clients against the reference servers of these protocols. Every
//! figure is compared with what the servers report.

use std::path::Path;
use std::time::Duration;

use engine::{Control, Progress};
use kit::calibration::{Evidence, Statistic, Tolerance, Trial as Declared, TrialClients};
use measure::Unit;
use measure::link::{DOWNLINK, UPLINK};
use report::metrics::Metrics;
use report::{Reader, Report};
use scenario::ServerStart;
use serde_json::{Value, json};

use super::case::CalibrationCase;
use super::judge::{COUNT, Row, Rows, TrueValue};
use super::trial::{
    Reference, START_INTERVAL, Trial, TrialError, metrics_of, play, scenario, start_time, utf8,
};
use crate::commands::demo::reference_server;
use crate::commands::free_port::free_port;
use crate::exit::Failure;

/// Permitted error of the delay that a link planned for a packet: the rounding of its clock.
const PLANNED: Tolerance = Tolerance::Absolute(10e-6);

/// Common settings of all trials of a case.
pub(super) struct TrialContext<'a> {
    pub(super) course: CalibrationCase,
    /// Length of the media.
    pub(super) length: Duration,
    /// Folder for temporary files.
    pub(super) folder: &'a Path,
    /// Settings of the tester that the user gave.
    pub(super) set: &'a [String],
}

impl TrialContext<'_> {
    /// Runs the trials of a case: all at once over loopback, one after the other over links.
    pub(super) fn trial(
        &self,
        control: &Control,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Trial, TrialError> {
        let trials: Vec<&Declared> = self.course.declared().collect();
        if !self.course.over_link {
            return self.over_loopback(&trials, control, progress);
        }
        let mut all = Trial::default();
        for trial in trials {
            let found = self.over_link(trial, control, progress)?;
            all.receive_path = found.receive_path;
            all.rows.extend(found.rows);
            all.reasons.extend(found.reasons);
        }
        Ok(all)
    }

    fn over_loopback(
        &self,
        trials: &[&Declared],
        control: &Control,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Trial, TrialError> {
        let protocol = self.course.protocol;
        let mut servers = Vec::new();
        let thresholds: Vec<&str> = trials
            .iter()
            .flat_map(|trial| trial.thresholds)
            .copied()
            .collect();
        let mut text = format!(
            "name: calibrate\nthresholds: {}\nclients:\n",
            json!(thresholds)
        );
        for (number, trial) in trials.iter().enumerate() {
            let (name, flags) = (number.to_string(), self.flags(trial));
            let server = Reference::start(protocol, self.folder, &name, flags)?;
            text.push_str(&self.populations(trial, &format!("127.0.0.1:{}", server.port)));
            servers.push(server);
        }
        let (reader, report) = self.play(&text, control, progress)?;
        let mut rows = Vec::new();
        for (trial, server) in trials.iter().zip(servers) {
            let evidence = evidence(&reader, &report, &server.finish())?;
            compare(trial, &evidence, &report, &mut rows)?;
        }
        Ok(Trial::of(report, rows))
    }

    fn over_link(
        &self,
        trial: &Declared,
        control: &Control,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Trial, TrialError> {
        let protocol = self.course.protocol;
        let Some(link) = trial.link else {
            return Err(Failure::bad("a trial over a link declares no link").into());
        };
        let port = free_port(protocol.transport)?;
        let served = self.folder.join("linked.served");
        let mut with = self.flags(trial);
        with.extend(["--report".to_owned(), utf8(&served)?]);
        with.extend(["--listen", "0.0.0.0"].map(str::to_owned));
        let server = reference_server(protocol, port, with)?;
        let (ServerStart::Command(command), Some(ready)) = (&server.start, &server.ready) else {
            return Err(Failure::bad("a reference server is started by a command").into());
        };
        let text = format!(
            "name: calibrate\nthresholds: {}\nlink: {{ up: {{ delay: {}ms }}, down: {{ delay: {}ms }} }}\nserver:\n  \
             command: {}\n  ready: {}\nclients:\n{}",
            json!(trial.thresholds),
            link.up,
            link.down,
            // JSON is a subset of YAML, in which scenarios are written.
            json!(command),
            json!(ready),
            self.populations(trial, &format!("{{server}}:{port}")),
        );
        let (reader, report) = self.play(&text, control, progress)?;
        let mut evidence = evidence(&reader, &report, &served)?;
        let mut rows = Vec::new();
        let directions = [(link.up, &mut evidence.up), (link.down, &mut evidence.down)];
        for (name, (millis, known)) in [UPLINK, DOWNLINK].into_iter().zip(directions) {
            let found = report.links.iter().find(|link| link.name == name);
            let found = found.ok_or_else(|| Failure::bad("the run file lacks a link"))?;
            *known = compare_link(name, millis, &found.metrics, &mut rows);
        }
        compare(trial, &evidence, &report, &mut rows)?;
        Ok(Trial::of(report, rows))
    }

    fn play(
        &self,
        text: &str,
        control: &Control,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(Reader, Report), TrialError> {
        let scenario = scenario(self.course.way, text, self.set)?;
        play(&scenario, self.folder, control, progress)
    }

    /// Returns the flags of a trial's server.
    fn flags(&self, trial: &Declared) -> Vec<String> {
        let flags = trial.server.split_whitespace();
        flags.map(|flag| self.filled(flag)).collect()
    }

    /// Returns the populations of a trial as text of a scenario. Its server is at `address`.
    fn populations(&self, trial: &Declared, address: &str) -> String {
        let population = |clients: &TrialClients| {
            let mut text = format!(
                "  {}:\n    protocol: {}\n    urls: [\"{}\"]\n    load: {{ clients: {}, one_every: {}ms }}\n",
                clients.name,
                self.course.protocol.name,
                clients.url.replace("{address}", address),
                clients.number,
                START_INTERVAL.as_millis(),
            );
            for key in clients.keys {
                text.push_str(&format!("    {}\n", self.filled(key)));
            }
            text
        };
        trial.clients.iter().map(population).collect()
    }

    fn filled(&self, text: &str) -> String {
        text.replace("{length}", &format!("{}ms", self.length.as_millis()))
    }
}

/// Collects the evidence after a run whose server wrote its report to `served`.
fn evidence(reader: &Reader, report: &Report, served: &Path) -> Result<Evidence, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let path = served.display();
        Failure::bad(format_args!(
            "the reference server's report {path}: {error}"
        ))
    };
    let text = std::fs::read_to_string(served).map_err(|error| unreadable(&error))?;
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines = lines.collect::<Result<Vec<Value>, _>>();
    let populations = report.populations.iter();
    let means = populations.flat_map(|population| {
        let metrics = population.metrics.0.iter();
        metrics.filter_map(|metric| {
            let found = population.metrics.distribution(metric.name)?;
            Some(((population.name.clone(), metric.name), found.mean))
        })
    });
    Ok(Evidence {
        means: means.collect(),
        served: lines.map_err(|error| unreadable(&error))?,
        start_nanos: start_time(reader)?,
        start_interval_nanos: START_INTERVAL.as_nanos() as f64,
        longest_lag: report
            .tester
            .workers
            .iter()
            .filter_map(|worker| worker.lag_max)
            .fold(0.0, f64::max),
        ..Evidence::default()
    })
}

/// Compares a direction of a link with its settings. Returns its delay, with its mean lateness as
/// the uncertainty.
fn compare_link(
    name: &'static str,
    millis: u32,
    metrics: &Metrics,
    rows: &mut Vec<Row>,
) -> TrueValue {
    let configured = f64::from(millis) / 1e3;
    let mut rows = Rows {
        streams: name,
        all: rows,
    };
    let mean = |metric| metrics.distribution(metric).map(|found| found.mean);
    let planned = (TrueValue::exactly(configured), mean("planned_delay"));
    rows.add("planned_delay.mean", Unit::Seconds, planned, PLANNED);
    for metric in ["lost", "overload"] {
        let none = (TrueValue::exactly(0.0), metrics.value(metric));
        rows.add(metric, Unit::Count, none, COUNT);
    }
    TrueValue {
        value: configured,
        uncertainty: mean("lateness").unwrap_or(0.0),
    }
}

/// Compares what the clients of a trial measured with what is known.
fn compare(
    trial: &Declared,
    evidence: &Evidence,
    report: &Report,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    for check in trial.checks {
        let metrics = metrics_of(report, check.clients)?;
        let unit = match check.figure {
            Statistic::Count => Unit::Count,
            _ => metrics
                .find(check.metric)
                .map_or(Unit::Count, |metric| metric.unit),
        };
        // An unknown truth is NaN: no measured value agrees with it.
        let truth = check
            .truth
            .value(evidence)
            .unwrap_or(TrueValue::exactly(f64::NAN));
        rows.push(Row {
            streams: check.clients,
            metric: format!("{}{}", check.metric, check.figure.suffix()),
            unit,
            truth,
            measured: measured(metrics, check.metric, check.figure),
            tolerance: check.tolerance,
        });
    }
    Ok(())
}

fn measured(metrics: &Metrics, metric: &str, figure: Statistic) -> Option<f64> {
    let found = metrics.distribution(metric);
    match figure {
        Statistic::Value => metrics.value(metric),
        Statistic::Mean => found.map(|found| found.mean),
        Statistic::Max => found.map(|found| found.max),
        Statistic::Count => Some(found.map_or(0.0, |found| found.count as f64)),
    }
}

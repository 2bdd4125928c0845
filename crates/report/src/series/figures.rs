//! What a table says of one run.

use std::collections::BTreeMap;

use measure::metric::Source;
use measure::totals::Statistic;
use measure::{Disqualifier, TableColumn, Totals, Unit, Window};
use runfile::{Reader, Subject};
use schemars::JsonSchema;

use super::contest::{self, Allowed};
use crate::ReportError;
use crate::model::{Metrics, Report, tidy};

/// The column of how many messages a second were acknowledged, and its name in the JSON report.
pub(crate) const MESSAGES: &str = "messages";

/// The figures of one run, over all its populations. What is null is unknown.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, JsonSchema)]
pub struct Figures {
    /// The most clients that got media, or whose connection for messages stood, at the end of any
    /// second.
    pub playing: u64,
    /// Clients that asked for media, or for such a connection. Who was ended by the plan before any
    /// came is not among them.
    pub asked: u64,
    /// Of these, the clients that were served: they did not fail, what they asked for came, and no
    /// more of it was lost or wrong than is allowed (0.1 %, or what the scenario's own threshold on
    /// `wrong` or else `loss` allows, if that is more).
    pub served: u64,
    /// Media, or messages sent, in bit/s: half of the seconds in which there was any had at least
    /// as much. So neither a beginning nor an end in which few play makes it smaller.
    pub bitrate: Option<f64>,
    /// The same over the whole run, as the run's own report says.
    pub bitrate_mean: Option<f64>,
    /// Messages that were acknowledged a second: half of the seconds in which any were had at least
    /// as many. Null where none are sent.
    pub messages: Option<f64>,
    /// Packets of media that came, first copies only; where their source stamps datagrams, these.
    pub received: u64,
    /// The share of the expected packets that never came.
    pub loss: Option<f64>,
    /// The share of what should have come, or came, that is wrong, where the content can be
    /// checked.
    pub wrong: Option<f64>,
    /// Half of the clients had media at most so long after their first request was due, in seconds.
    pub startup_delay_p50: Option<f64>,
    /// 95 % of the clients did.
    pub startup_delay_p95: Option<f64>,
    /// The mean jitter (RFC 3550), in seconds.
    pub jitter: Option<f64>,
    /// The share of the packets whose time is not known to be that of their arrival.
    pub timed_by_reading: Option<f64>,
    /// The mean of the server's processor time, in cores.
    pub server_cpu: Option<f64>,
    /// The same of the second in which it was largest.
    pub server_cpu_peak: Option<f64>,
    /// The same mean, for each Gb/s of media that came right (`bitrate_mean` without what came
    /// again, was foreign or damaged). Null where it cannot be told what is right.
    pub cpu_per_gbit: Option<f64>,
    /// The server's processor time for each message that was acknowledged, in seconds. Null where
    /// clients do anything else too.
    pub cpu_per_message: Option<f64>,
    /// The most memory of the server's own (USS), in bytes; where that is unknown, its resident
    /// set.
    pub server_memory: Option<f64>,
    /// Clients that failed.
    pub failed: u64,
    /// Whether no bound of the tester's health was crossed so far that the measurement is invalid;
    /// null of a run that was cut off.
    pub tester_fit: Option<bool>,
    /// What else the table has columns of, by their names: a metric of the clients' protocol, with
    /// the statistic behind it.
    pub columns: BTreeMap<&'static str, Option<f64>>,
    /// The columns that the clients' protocols have, in their order.
    #[serde(skip)]
    pub(super) shown: Vec<Shown>,
    /// Why it cannot be the best of anything, as far as its figures tell.
    #[serde(skip)]
    pub(super) contest: Option<String>,
}

/// A column that a run has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shown {
    pub(super) column: &'static TableColumn,
    pub(super) unit: Unit,
}

/// What is added up over the populations, window by window.
#[derive(Default)]
struct Sums {
    playing: f64,
    rates: Vec<f64>,
    message_rates: Vec<f64>,
    payload: f64,
    seconds: f64,
    totals: Vec<Totals>,
}

/// The most windows whose bit rates are kept, for the one in their middle: some twelve days.
const MOST_WINDOWS: usize = 1 << 20;

/// Subjects that are populations.
pub(super) fn populations(reader: &Reader) -> impl Iterator<Item = &Subject> {
    let subjects = reader.subjects().iter();
    subjects.filter(|subject| subject.kind != "server" && subject.kind != "tester")
}

impl Sums {
    fn of(reader: &Reader) -> Result<Sums, ReportError> {
        let subjects: Vec<&Subject> = populations(reader).collect();
        let mut sums = Sums {
            totals: subjects
                .iter()
                .map(|subject| Totals::new(subject.catalogue))
                .collect(),
            ..Sums::default()
        };
        let warm_up = reader.header().warm_up_windows();
        for row in reader.windows() {
            let row = row?;
            let (mut playing, mut payload, mut messages) = (0.0, 0.0, 0.0);
            for (subject, totals) in subjects.iter().zip(&mut sums.totals) {
                let Some(window) = row.subjects.get(&subject.name) else {
                    continue;
                };
                playing += level(subject, window, "playing");
                if row.index < warm_up {
                    continue;
                }
                payload += counter_behind(subject, window, "bitrate");
                messages += counter_behind(subject, window, MESSAGES);
                totals.add(window, row.seconds);
            }
            sums.playing = sums.playing.max(playing);
            if row.index < warm_up {
                continue;
            }
            sums.payload += payload;
            sums.seconds += row.seconds;
            // The sliver in which a run ends is no second.
            if payload > 0.0 && row.seconds > 0.5 && sums.rates.len() < MOST_WINDOWS {
                sums.rates.push(payload * 8.0 / row.seconds);
            }
            if messages > 0.0 && row.seconds > 0.5 && sums.message_rates.len() < MOST_WINDOWS {
                sums.message_rates.push(messages / row.seconds);
            }
        }
        Ok(sums)
    }

    fn figure(&self, name: &str, statistic: Statistic) -> Option<f64> {
        Totals::pooled(&self.totals, name, statistic).map(tidy)
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.figure(name, Statistic::Value)
    }

    fn count(&self, name: &str) -> f64 {
        self.value(name).unwrap_or(0.0)
    }

    /// Media that came right, in bit/s.
    fn right_rate(&self) -> Option<f64> {
        let mut sum = 0.0;
        for totals in &self.totals {
            let count = |name| totals.named(name, Statistic::Value).unwrap_or(0.0);
            let payload = count("payload_bytes");
            // First copies are all that counts as media where nothing else is known to be wrong.
            let share = match totals.catalogue().find("wrong") {
                None => 1.0,
                Some(_) if payload == 0.0 => 0.0,
                Some(_) => {
                    let came =
                        count("received") + count("duplicated") + count("late") + count("foreign");
                    if came <= 0.0 {
                        return None;
                    }
                    (count("received") - count("damaged")) / came
                }
            };
            sum += payload * share;
        }
        (self.seconds > 0.0).then(|| sum * 8.0 / self.seconds)
    }

    fn column(&self, column: &TableColumn) -> Option<f64> {
        let any = |names: &[&str]| names.iter().any(|name| self.count(name) > 0.0);
        let known = column.known_with.is_empty() || any(column.known_with);
        if !known || any(column.only_without) {
            return None;
        }
        self.figure(column.metric, column.statistic)
    }
}

/// What half of them reached.
fn middle_of(rates: &mut [f64]) -> Option<f64> {
    let middle = rates.len() / 2;
    if rates.is_empty() {
        return None;
    }
    let (_, rate, _) = rates.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*rate)
}

/// What the window counted of what a column of the table shows the rate of.
fn counter_behind(subject: &Subject, window: &Window, column: &str) -> f64 {
    let counter = subject.catalogue.counter_behind(column);
    let count = counter.and_then(|id| window.counters.get(usize::from(id.0)));
    count.map_or(0.0, |count| *count as f64)
}

fn level(subject: &Subject, window: &Window, name: &str) -> f64 {
    match subject.catalogue.find(name).map(|metric| metric.source) {
        Some(Source::Gauge(id, _)) => {
            let level = window.gauges.get(usize::from(id.0));
            level.copied().flatten().unwrap_or(0.0)
        }
        _ => 0.0,
    }
}

impl Figures {
    pub(super) fn of(reader: &Reader, report: &Report) -> Result<Figures, ReportError> {
        let mut sums = Sums::of(reader)?;
        let allowed = Allowed::of(report);
        let clients = contest::clients(reader, &allowed)?;
        let of_server = |figure: fn(&Metrics) -> Option<f64>| {
            let figure = report.server.as_ref().and_then(figure);
            figure.map(tidy)
        };
        let server_cpu = of_server(|server| Some(server.level("cpu")?.mean));
        let gbits = sums.right_rate().map(|rate| rate / 1e9);
        let packets = sums.value("ts_packets").or(sums.value("received"));
        let mut figures = Figures {
            playing: sums.playing.max(0.0) as u64,
            asked: clients.asked,
            served: clients.served,
            bitrate: middle_of(&mut sums.rates).map(tidy),
            bitrate_mean: (sums.seconds > 0.0).then(|| tidy(sums.payload * 8.0 / sums.seconds)),
            messages: middle_of(&mut sums.message_rates).map(tidy),
            received: sums.count("received").max(0.0) as u64,
            loss: sums.value("loss"),
            wrong: sums.value("wrong"),
            startup_delay_p50: sums.figure("startup_delay", Statistic::Quantile(0.5)),
            startup_delay_p95: sums.figure("startup_delay", Statistic::Quantile(0.95)),
            jitter: sums.figure("jitter", Statistic::Mean),
            timed_by_reading: packets
                .filter(|&packets| packets > 0.0)
                .and_then(|packets| Some(tidy(sums.value("timed_by_reading")? / packets))),
            server_cpu,
            server_cpu_peak: of_server(|server| Some(server.level("cpu")?.max)),
            cpu_per_gbit: server_cpu
                .zip(gbits.filter(|&rate| rate > 0.0))
                .map(|(cpu, rate)| tidy(cpu / rate)),
            cpu_per_message: report.cpu_per_message,
            server_memory: of_server(|server| {
                let level = server.level("uss").or_else(|| server.level("rss"))?;
                Some(level.max)
            }),
            failed: report
                .populations
                .iter()
                .map(|population| population.clients.failed)
                .sum(),
            tester_fit: (!report.tester.health.is_empty())
                .then(|| report.tester.health.iter().all(|finding| !finding.invalid)),
            ..Figures::default()
        };
        for subject in populations(reader) {
            for column in subject.catalogue.table() {
                let seen = |shown: &Shown| shown.column.name == column.name;
                if figures.shown.iter().any(seen) {
                    continue;
                }
                let metric = subject.catalogue.find(column.metric);
                let unit = match metric {
                    Some(metric) => metric.unit,
                    None if column.name == "cpu_per_message" => Unit::Seconds,
                    None if column.name == "cpu_per_gbit" => Unit::Cores,
                    None => Unit::Count,
                };
                figures.shown.push(Shown { column, unit });
                if metric.is_some() && figures.own(column.name).is_none() {
                    figures.columns.insert(column.name, sums.column(column));
                }
            }
        }
        let broken = contest::Broken {
            errors: sums.count("continuity_errors"),
            lost: sums.count("continuity_lost"),
            packets: sums.count("ts_packets"),
        };
        let mut declared: Vec<&Disqualifier> = Vec::new();
        for disqualifier in populations(reader).flat_map(|one| one.catalogue.disqualifiers()) {
            if !declared.contains(&disqualifier) {
                declared.push(disqualifier);
            }
        }
        let too_much = contest::too_much(report, &declared, &|name| sums.count(name));
        figures.contest = contest::why(report, &figures, &allowed, broken, too_much);
        Ok(figures)
    }

    /// The figure of that name that every run has, whatever its clients speak: `None` where there
    /// is no such name.
    fn own(&self, name: &str) -> Option<Option<f64>> {
        Some(match name {
            "playing" => Some(self.playing as f64),
            "served" => Some(self.served as f64),
            "bitrate" => self.bitrate,
            "received" => Some(self.received as f64),
            "loss" => self.loss,
            "startup_delay_p50" => self.startup_delay_p50,
            "startup_delay_p95" => self.startup_delay_p95,
            "jitter" => self.jitter,
            "server_cpu" => self.server_cpu,
            "server_cpu_peak" => self.server_cpu_peak,
            "cpu_per_gbit" => self.cpu_per_gbit,
            "cpu_per_message" => self.cpu_per_message,
            MESSAGES => self.messages,
            "server_memory" => self.server_memory,
            "failed" => Some(self.failed as f64),
            _ => return None,
        })
    }

    /// What it has in a column.
    pub(super) fn value(&self, column: &TableColumn) -> Option<f64> {
        let further = || self.columns.get(column.name).copied();
        self.own(column.name).or_else(further).flatten()
    }

    /// Whether so many of the packets' times are those of reading that a figure made of them may
    /// be, too.
    pub(super) fn is_doubtful(&self, column: &TableColumn) -> bool {
        let enough = match column.statistic {
            Statistic::Quantile(share) => 1.0 - share,
            _ => 0.01,
        };
        column.of_times && self.timed_by_reading.is_some_and(|share| share > enough)
    }
}

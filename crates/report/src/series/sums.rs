//! Computation of a run's figures from its run file.

use measure::link::DOWNLINK;
use measure::threshold::WRONG;
use measure::totals::{Statistic, WINDOW_SECONDS_MIN, measured_seconds};
use measure::{ClockError, Meaning, TableColumn, Totals, Unit, Window};
use runfile::{Reader, Subject};

use super::delay;
use super::eligibility::{self, Allowed, ContinuityErrors};
use super::figures::{Figures, ShownColumn};
use crate::ReportError;
use crate::distinct::distinct;
use crate::metrics::{Metrics, round_figure};
use crate::model::Report;
use crate::source::is_population;
use crate::window::level;

/// Sums over the populations, window by window.
#[derive(Default)]
struct Sums {
    playing: f64,
    message_rates: Vec<f64>,
    payload: f64,
    seconds: f64,
    totals: Vec<Totals>,
}

/// Maximum number of windows whose message rates are kept for the median: about twelve days.
const WINDOWS_MAX: usize = 1 << 20;

fn populations(reader: &Reader) -> impl Iterator<Item = &Subject> {
    let subjects = reader.subjects().iter();
    subjects.filter(|subject| is_population(subject))
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
        let stopped_at = reader.stopped_at()?;
        for row in reader.windows() {
            let row = row?;
            let (mut playing, mut payload, mut messages) = (0.0, 0.0, 0.0);
            for (subject, totals) in subjects.iter().zip(&mut sums.totals) {
                let Some(window) = row.subjects.get(&subject.name) else {
                    continue;
                };
                playing += level(subject.catalogue, window, "playing").unwrap_or(0.0);
                let header = reader.header();
                header.add_counted(totals, window, &row, stopped_at);
                if row.index < warm_up {
                    continue;
                }
                payload += rate_counter_value(subject, window, Meaning::BitRate);
                messages += rate_counter_value(subject, window, Meaning::Operations);
            }
            sums.playing = sums.playing.max(playing);
            if row.index < warm_up {
                continue;
            }
            // Rates exclude the time after the end of the run.
            let Some(seconds) = measured_seconds(row.start, row.seconds, stopped_at) else {
                continue;
            };
            sums.payload += payload;
            sums.seconds += seconds;
            // The fraction of a second in which a run ends is too short for a rate.
            let whole = seconds >= WINDOW_SECONDS_MIN;
            if messages > 0.0 && whole && sums.message_rates.len() < WINDOWS_MAX {
                sums.message_rates.push(messages / seconds);
            }
        }
        Ok(sums)
    }

    fn figure(&self, name: &str, statistic: Statistic) -> Option<f64> {
        Totals::pooled(&self.totals, name, statistic).map(round_figure)
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.figure(name, Statistic::Value)
    }

    fn count(&self, name: &str) -> f64 {
        self.value(name).unwrap_or(0.0)
    }

    /// Bit rate of correct media, in bit/s.
    fn correct_rate(&self) -> Option<f64> {
        let mut sum = 0.0;
        for totals in &self.totals {
            let count = |name| totals.named(name, Statistic::Value).unwrap_or(0.0);
            let Some(content) = totals.catalogue().content() else {
                continue;
            };
            let payload = count(content.payload);
            // Without a metric of wrong content, all media is correct: only first copies count as
            // media.
            let share = match totals.catalogue().find(WRONG) {
                None => 1.0,
                Some(_) if payload == 0.0 => 0.0,
                Some(_) => {
                    let unwanted: f64 = content.unwanted.iter().copied().map(count).sum();
                    let came = count(content.received) + unwanted;
                    if came <= 0.0 {
                        return None;
                    }
                    (count(content.received) - count(content.damaged)) / came
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

/// Returns the median, the upper one of an even number of rates.
fn median(rates: &mut [f64]) -> Option<f64> {
    let middle = rates.len() / 2;
    if rates.is_empty() {
        return None;
    }
    let (_, rate, _) = rates.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*rate)
}

/// Returns the value in a window of the counter whose rate a column shows.
fn rate_counter_value(subject: &Subject, window: &Window, meaning: Meaning) -> f64 {
    let counter = subject.catalogue.rate_counter(meaning);
    let count = counter.and_then(|id| window.counters.get(usize::from(id.0)));
    count.map_or(0.0, |count| *count as f64)
}

/// Returns the share of packets that links lost on the way to the clients.
fn link_loss(report: &Report) -> Option<f64> {
    let links = report
        .links
        .iter()
        .filter(|link| link.name.ends_with(DOWNLINK));
    let (mut lost, mut all) = (0.0, 0.0);
    for link in links {
        let count = |name| link.metrics.value(name).unwrap_or(0.0);
        lost += count("lost");
        all += count("lost") + count("delivered");
    }
    (all > 0.0).then(|| round_figure(lost / all))
}

/// Computes the figures of a run from its run file and its report.
pub(super) fn figures(reader: &Reader, report: &Report) -> Result<Figures, ReportError> {
    let mut sums = Sums::of(reader)?;
    let allowed = Allowed::of(report);
    let clients = eligibility::clients(reader, &allowed)?;
    let clocks = ClockError::of(&report.runners);
    let of_server = |figure: fn(&Metrics) -> Option<f64>| {
        let figure = report.server.as_ref().and_then(figure);
        figure.map(round_figure)
    };
    let server_cpu = of_server(|server| Some(server.level("cpu")?.mean));
    let gbits = sums.correct_rate().map(|rate| rate / 1e9);
    let content = populations(reader).find_map(|subject| subject.catalogue.content());
    let packets = content.and_then(|content| {
        let packets = sums.value(content.packets);
        packets.or_else(|| sums.value(content.received))
    });
    let mut figures = Figures {
        playing: sums.playing.max(0.0) as u64,
        asked: clients.asked,
        served: clients.served,
        bitrate: (sums.seconds > 0.0 && sums.payload > 0.0)
            .then(|| round_figure(sums.payload * 8.0 / sums.seconds)),
        messages: median(&mut sums.message_rates).map(round_figure),
        received: sums.count("received").max(0.0) as u64,
        loss: sums.value("loss"),
        link_loss: link_loss(report),
        delay: delay::parts(report, |name| sums.figure(name, Statistic::Min)),
        wrong: sums.value(WRONG),
        startup_delay_p50: sums.figure("startup_delay", Statistic::Quantile(0.5)),
        startup_delay_p95: sums.figure("startup_delay", Statistic::Quantile(0.95)),
        jitter: sums.figure("jitter", Statistic::Mean),
        timed_by_reading: packets
            .filter(|&packets| packets > 0.0)
            .and_then(|packets| Some(round_figure(sums.value("timed_by_reading")? / packets))),
        server_cpu,
        server_cpu_peak: of_server(|server| Some(server.level("cpu")?.max)),
        cpu_per_gbit: server_cpu
            .zip(gbits.filter(|&rate| rate > 0.0))
            .map(|(cpu, rate)| round_figure(cpu / rate)),
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
            let seen = |shown: &ShownColumn| shown.column.name == column.name;
            if figures.shown.iter().any(seen) {
                continue;
            }
            let metric = subject.catalogue.find(column.metric);
            let unit = match (metric, column.meaning) {
                (Some(metric), _) => metric.unit,
                (None, Meaning::CpuPerOperation) => Unit::Seconds,
                (None, Meaning::CpuPerGbit) => Unit::Cores,
                (None, _) => Unit::Count,
            };
            figures.shown.push(ShownColumn { column, unit });
            if let Some(metric) = metric
                && figures.own(column).is_none()
            {
                let value = sums.column(column);
                let hidden = value.is_some_and(|value| clocks.hides(value));
                if metric.between_clients && hidden {
                    figures.uncertain.push(column.name);
                }
                figures.columns.insert(column.name, value);
            }
        }
    }
    let continuity = content.map_or_else(ContinuityErrors::default, |content| ContinuityErrors {
        errors: sums.count(content.gaps),
        lost: sums.count(content.missing),
        packets: sums.count(content.packets),
    });
    let declared = populations(reader).flat_map(|one| one.catalogue.disqualifiers());
    let declared = distinct(declared);
    let disqualifier = eligibility::first_disqualifier(report, &declared, &|name| sums.count(name));
    figures.contest =
        eligibility::ineligibility_of_figures(report, &figures, &allowed, continuity, disqualifier);
    Ok(figures)
}

//! Data above the charts: the verdict with its cause, thresholds, the most important figures, and
//! the facts of the run.

use std::collections::BTreeMap;

use measure::tester::RunnerSummary;
use measure::{Catalogue, Threshold, Unit, VerdictResult};
use runfile::Reader;
use serde_json::{Value, json};

use super::cards::{card, ranks, shown_metrics};
use super::time_series::TimeSeries;
use super::verdict::{failure_times, verdict};
use crate::ReportError;
use crate::head;
use crate::human::{count, duration, figure, figure_or_dash, plural, short_duration};
use crate::link::loss_reasons;
use crate::metric_words::metric_words;
use crate::metrics::{MetricFigures, Metrics};
use crate::model::{self, Population, Report};
use crate::own_counts::OwnCounts;
use crate::rows::rows;
use crate::terminal::clients_line;

/// Maximum number of events on a page; the JSON report has more.
const EVENTS_MAX: usize = 500;

/// Kinds of events that are listed but not marked in charts, because nothing went wrong.
const UNMARKED_EVENTS: [&str; 3] = ["cpu_source", "trace", "receiver"];

/// Returns the data of a run without its charts.
pub(super) fn head(
    reader: &Reader,
    report: &Report,
    time_series: &TimeSeries,
) -> Result<Value, ReportError> {
    let run = &report.run;
    Ok(json!({
        "name": run.name,
        "varied": run.varied,
        "target": head::target(&report.run),
        "facts": facts(report),
        "keys": keys(report),
        "verdict": verdict(report, time_series),
        "thresholds": thresholds(reader, report, time_series),
        "populations": report.populations.iter()
            .map(|population| self::population(population, report))
            .collect::<Vec<_>>(),
        "delay_note": report.delay_note(),
        "links": report.links.iter().map(link).collect::<Vec<_>>(),
        "server": report.server.as_ref().map(|server| self::server(server, report)),
        "limits": report.server_limits.iter().map(|limit| &limit.text).collect::<Vec<_>>(),
        "tester": tester(report),
        "metrics": metrics(report),
        "events": events(report, time_series),
        "events_left_out": report.events.len().saturating_sub(EVENTS_MAX),
        "media": crate::media::lines(&report.media),
        "about": about(reader, report),
        "command": reader.fact(&runfile::fact::COMMAND)?,
        "scenario": reader.header().scenario,
        "duration": run.duration,
        "warm_up": reader.header().warm_up_windows() as f64 * reader.header().window.as_secs_f64(),
    }))
}

/// Returns what was tested, when and for how long.
fn facts(report: &Report) -> Vec<String> {
    let run = &report.run;
    let target = head::target(run).into_iter();
    let lasted = short_duration(run.duration);
    target.chain([head::began(run), lasted]).collect()
}

/// Returns the key figures of each population, for the head of the page.
fn keys(report: &Report) -> Vec<Value> {
    let populations = head::by_importance(report).into_iter();
    let populations = populations.filter_map(|population| {
        let figures: Vec<Value> = head::key_figures(population)
            .take(head::KEY_FIGURES)
            .map(|one| {
                json!({
                    "metric": one.metric,
                    "first": one.text,
                    "of": one.statistic,
                })
            })
            .collect();
        (!figures.is_empty()).then(|| json!({"name": population.name, "figures": figures}))
    });
    populations.take(head::POPULATIONS).collect()
}

fn thresholds(reader: &Reader, report: &Report, time_series: &TimeSeries) -> Vec<Value> {
    let all = report.thresholds.iter().enumerate();
    let mut shown: Vec<Value> = all
        .map(|(of, threshold)| {
            let parsed = Threshold::parse(&threshold.threshold).ok();
            let comparison = parsed
                .as_ref()
                .map(|parsed| parsed.comparison().to_string());
            let subject = reader.find_subject(&threshold.subject);
            json!({
                "text": threshold.threshold,
                "kind": subject.map(|subject| &subject.kind),
                "metric": parsed.as_ref().map(Threshold::metric),
                "comparison": comparison,
                "passed": threshold.passed,
                "implied": threshold.implied,
                "in_doubt": threshold.in_doubt,
                "undecided": threshold.undecided,
                "value": threshold.value,
                "limit": threshold.limit,
                "shown": threshold.value_text(),
                "bound": figure(threshold.unit, threshold.limit),
                "statistic": threshold.statistic,
                "worst_window": threshold.worst_window,
                "since": failure_times(time_series, report, of).filter(|_| threshold.has_failed()),
            })
        })
        .collect();
    shown.sort_by_key(|threshold| {
        let is = |key: &str| threshold[key] == json!(true);
        (is("passed"), is("implied"))
    });
    shown
}

fn population(population: &Population, report: &Report) -> Value {
    let clients = &population.clients;
    let stopped = report.verdict.stopped_by_user;
    let rows = rows(population, report.server.is_some());
    let ranks = ranks(population, rows.iter().map(|(row, _)| *row));
    let has_cards = ranks.iter().any(Option::is_some);
    let figures = rows.into_iter().zip(&ranks).map(|((row, shown), rank)| {
        // The metrics that the row shows come before those that it depends on.
        let defined = shown_metrics(row)
            .into_iter()
            .chain(row.metrics())
            .find(|name| population.catalogue.find(name).is_some());
        let mut card = card(row.label, defined, shown);
        card["size"] = json!(match rank {
            Some(0) => "large",
            None if has_cards => "row",
            _ => "small",
        });
        (rank.unwrap_or(usize::MAX), card)
    });
    let mut figures: Vec<(usize, Value)> = figures.collect();
    figures.sort_by_key(|(rank, _)| *rank);
    let figures = figures.into_iter().map(|(_, card)| card);
    let mut failures: Vec<&model::Failure> = clients.failures.iter().collect();
    failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
    let failures = failures.iter().map(|failure| {
        json!({"reason": failure.reason, "count": failure.count, "example": failure.example})
    });
    json!({
        "name": population.name,
        "clients": clients_line(clients, &population.metrics, stopped),
        "figures": figures.collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
    })
}

/// Returns the data of one direction of an emulated link.
fn link(link: &model::Link) -> Value {
    let metrics = &link.metrics;
    let plain = |name: &str| Some(figure(metrics.find(name)?.unit, metrics.value(name)?));
    let why = loss_reasons(metrics);
    let time = |label: &str, name: &str, rest: String| {
        let found = metrics.distribution(name)?;
        let first = figure(Unit::Seconds, found.p99);
        Some(json!({"label": label, "metric": name, "first": first, "of": "p99", "rest": rest}))
    };
    let planned = metrics
        .distribution("planned_delay")
        .map_or_else(String::new, |found| {
            format!("planned {}", figure(Unit::Seconds, found.p99))
        });
    let most = metrics
        .distribution("lateness")
        .map_or_else(String::new, |found| {
            format!("max {}", figure(Unit::Seconds, found.max))
        });
    let queue = metrics.level("queue_bytes").filter(|queue| queue.max > 0.0);
    let cards = [
        plain("packets").map(|packets| {
            let rest = plain("bitrate").unwrap_or_default();
            json!({"label": "packets", "metric": "packets", "first": packets, "rest": rest})
        }),
        plain("loss").map(|loss| {
            json!({"label": "loss", "metric": "loss", "first": loss, "rest": why})
        }),
        queue.map(|queue| {
            let first = figure(Unit::Bytes, queue.max);
            json!({"label": "queue_bytes", "metric": "queue_bytes", "first": first, "of": "peak", "rest": ""})
        }),
        time("delay", "delay", planned),
        time("lateness", "lateness", most),
    ];
    let cards: Vec<Value> = cards.into_iter().flatten().collect();
    json!({"name": link.name, "asked": link.link, "figures": cards})
}

fn server(server: &Metrics, report: &Report) -> Value {
    let card = |name: &str| {
        let (unit, level) = (server.find(name)?.unit, server.level(name)?);
        let of_a_core = if unit == Unit::Cores {
            " of one core"
        } else {
            ""
        };
        let rest = format!("mean {}{of_a_core}", figure(unit, level.mean));
        let first = figure(unit, level.max);
        Some(json!({"label": name, "metric": name, "first": first, "of": "peak", "rest": rest}))
    };
    let machine = server.level("cpu").is_none().then_some("machine_cpu");
    let levels = ["cpu", "cpu_hottest_thread", "rss"]
        .into_iter()
        .chain(machine);
    let mut cards: Vec<Value> = levels.filter_map(card).collect();
    if let Some(drops) = server.value("socket_drops") {
        cards.push(json!({
            "label": "socket_drops", "metric": "socket_drops",
            "first": count(drops), "rest": "dropped datagrams",
        }));
    }
    if let Some(OwnCounts { out, rest }) = OwnCounts::of(server) {
        cards.push(json!({
            "label": "own counters", "metric": "counted_packets_out", "first": out, "rest": rest,
        }));
    }
    if let Some(seconds) = report.cpu_per_message {
        let first = figure(Unit::Seconds, seconds);
        cards.push(json!({"label": "cpu_per_message", "first": first, "rest": "of a core"}));
    }
    if let Some(given) = &report.server_gave_back {
        let first = given.groups_left_within.map(short_duration);
        cards.push(json!({
            "label": "after the last client",
            "first": first.as_deref().unwrap_or("-"),
            "rest": format!(
                "until the last group was left; {} kept after {}",
                plural(given.groups_kept as f64, "group", "groups"),
                short_duration(given.looked_for)
            ),
        }));
    }
    json!({"figures": cards})
}

fn tester(report: &Report) -> Value {
    let health = &report.tester.health;
    let fit = health.iter().all(|finding| !finding.invalid);
    let word = match (fit, report.verdict.result) {
        (false, _) => "not to be trusted",
        // The run is invalid for another reason than the tester's health.
        (true, VerdictResult::Invalid) => "within its bounds",
        (true, _) => "fit",
    };
    let findings = health.iter().map(|finding| {
        let (worst, limit) = (finding.worst, finding.limit);
        let crossed = finding.invalid || worst.is_some_and(|worst| worst > limit);
        json!({
            "bound": metric_words(&finding.bound),
            "metric": finding.metric.split('.').nth(1),
            "limit": figure(finding.unit, limit),
            "worst": worst.map(|worst| figure(finding.unit, worst)),
            "share": worst.filter(|_| limit > 0.0).map(|worst| worst / limit),
            "window": finding.worst_window,
            "windows": finding.windows,
            "crossed": crossed,
            "invalid": finding.invalid,
        })
    });
    let lost = report.tester.metrics.value("overflow");
    json!({
        "word": word,
        "fit": fit,
        "lost_here": figure_or_dash(Unit::Count, lost),
        "path": report.tester.receive_path,
        "hint": report.tester.receive_hint,
        "health": findings.collect::<Vec<_>>(),
        "runners": report.runners.iter().map(runner).collect::<Vec<_>>(),
    })
}

/// Returns the row of a runner of a run over several machines.
fn runner(runner: &RunnerSummary) -> Value {
    let figures = &runner.figures;
    let lost = runner.lost.iter().chain(&runner.unfit);
    json!({
        "name": runner.name,
        "host": runner.host,
        "clients": count(runner.clients_max as f64),
        "cpu": figure_or_dash(Unit::Cores, figures.cpu_mean),
        "peak": figure_or_dash(Unit::Cores, figures.cpu_max),
        "late": figure_or_dash(Unit::Seconds, figures.lag_p99),
        "began": figure_or_dash(Unit::Seconds, runner.began_late),
        "clock": figure_or_dash(Unit::Seconds, runner.clock_uncertainty),
        "faults": lost.collect::<Vec<_>>(),
    })
}

/// Returns every metric of every subject as text, for the table at the end of the page.
fn metrics(report: &Report) -> Vec<Value> {
    let rows = |metrics: &Metrics| -> Vec<Value> {
        let named = metrics.0.iter();
        let texts = named.map(|named| {
            let mut text = named.text(", ")?;
            if let MetricFigures::Distribution(Some(found)) = named.figures {
                text += &format!(" ({} values)", count(found.count as f64));
            }
            Some(json!([named.name, text]))
        });
        texts.flatten().collect()
    };
    let all = report.subjects().into_iter();
    all.map(|(name, metrics)| json!({"subject": name, "rows": rows(metrics)}))
        .collect()
}

fn events(report: &Report, time_series: &TimeSeries) -> Vec<Value> {
    let events = report.events.iter().take(EVENTS_MAX).map(|event| {
        let value = json!({
            "at": event.at,
            "kind": metric_words(&event.kind),
            "subject": event.subject,
            "text": event.text,
            "marked": !UNMARKED_EVENTS.contains(&event.kind.as_str()),
        });
        (event.at, value)
    });
    let firsts = time_series
        .first_failures()
        .map(|(population, reason, at)| {
            let value = json!({
                "at": at,
                "kind": "first failure",
                "subject": population,
                "text": format!("the first client of {population} failed: {reason}"),
                "marked": true,
            });
            (at, value)
        });
    let mut all: Vec<(f64, Value)> = events.chain(firsts).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, value)| value).collect()
}

fn about(reader: &Reader, report: &Report) -> Value {
    let run = &report.run;
    let header = reader.header();
    let machine = &header.machine;
    let mut rows = vec![
        ("began", head::began(run)),
        ("lasted", lasted(run)),
        ("seed", run.seed.to_string()),
        ("streamgauge", report.version_text()),
        (
            "tester's machine",
            format!(
                "{}, {} of memory, {}",
                plural(f64::from(machine.cores), "core", "cores"),
                figure(Unit::Bytes, machine.memory as f64),
                machine.kernel
            ),
        ),
    ];
    if let Some(text) = run.held_in_words() {
        rows.push(("held", text));
    }
    if let Some(path) = &report.tester.receive_path {
        rows.push(("packets read by", path.clone()));
    }
    for setting in &run.varied {
        rows.push(("varied", format!("{}: {}", setting.key, setting.value)));
    }
    if let Some(name) = report.path.file_name() {
        rows.push(("run file", name.to_string_lossy().into_owned()));
    }
    json!(rows)
}

fn lasted(run: &model::Run) -> String {
    let mut text = short_duration(run.duration);
    if let Some(planned) = run.planned
        && run.duration < planned - 1.0
    {
        text += &format!(" of {} planned", short_duration(planned));
    }
    if run.closing >= 1.0 {
        text += &format!(
            ", then {} until all clients had ended",
            duration(run.closing)
        );
    }
    if run.warm_up > 0.0 {
        text += &format!(
            "; the first {} are left out of the figures",
            duration(run.warm_up)
        );
    }
    if !run.finished {
        text += "; the run was cut off or is still running";
    }
    text
}

/// Adds the definitions of all metrics in the catalogues that a page uses, by kind of subject.
pub(super) fn definitions(reader: &Reader, known: &mut BTreeMap<String, Value>) {
    for subject in reader.subjects() {
        if !known.contains_key(&subject.kind) {
            known.insert(subject.kind.clone(), defined(subject.catalogue));
        }
    }
}

fn defined(catalogue: Catalogue) -> Value {
    let metrics = catalogue.metrics().map(|metric| {
        let text = metric.doc.replace("\n ", " ");
        let value = json!([text, metric.reference, metric.unit]);
        (metric.name.to_owned(), value)
    });
    Value::Object(metrics.collect())
}

//! Eligibility of runs as the best of a column: a run must have served what was requested. A server
//! that sends too little, or other content, has less to do, so its savings prove nothing.

use std::collections::BTreeMap;

use measure::metric::Statistic;
use measure::threshold::WRONG_MAX_DEFAULT;
use measure::{ContentCheck, Disqualifier, Threshold, Totals};
use runfile::{ClientOutcome, ClientRow, Reader, fact};
use serde_json::Value;

use super::figures::Figures;
use super::{Row, RowOutcome};
use crate::ReportError;
use crate::human::{count, digits};
use crate::model::Report;

/// Reason for a run in which all clients were served but a threshold failed.
pub(super) const THRESHOLD: &str = "a threshold failed";

/// Allowed share of wrong or missing media, by population.
pub(super) struct Allowed {
    media: BTreeMap<String, f64>,
}

/// Returns the limit that the scenario's own thresholds set for a metric of a population.
fn threshold_limit(report: &Report, population: &str, metric: &str) -> Option<f64> {
    let limits = report.thresholds.iter().filter_map(|result| {
        let threshold = Threshold::parse(&result.threshold).ok()?;
        let is_it = threshold.subject() == population && threshold.metric() == metric;
        (is_it && !threshold.reads_worst_window()).then_some(result.limit)
    });
    limits.min_by(f64::total_cmp)
}

impl Allowed {
    /// Returns 0.1 % for each population, or more if the scenario's own thresholds allow more. Of
    /// the metrics that the protocol names for this, the first with a threshold decides.
    pub(super) fn of(report: &Report) -> Allowed {
        let populations = report.populations.iter();
        let populations = populations.map(|population| {
            let content = population.catalogue.content();
            let metrics = content.map_or(&[][..], |content| content.allowed_by);
            let mut limits = metrics.iter();
            let limit = limits.find_map(|metric| threshold_limit(report, &population.name, metric));
            let share = limit.map_or(WRONG_MAX_DEFAULT, |limit| limit.max(WRONG_MAX_DEFAULT));
            (population.name.clone(), share)
        });
        Allowed {
            media: populations.collect(),
        }
    }

    fn share(&self, population: &str) -> f64 {
        let share = self.media.get(population).copied();
        share.unwrap_or(WRONG_MAX_DEFAULT)
    }

    /// Share allowed for all populations together: the largest of their shares.
    fn largest(&self) -> f64 {
        let shares = self.media.values().copied();
        shares.fold(WRONG_MAX_DEFAULT, f64::max)
    }
}

/// Number of clients that made a request, and of those that were served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clients {
    pub(super) asked: u64,
    pub(super) served: u64,
}

/// Counts the clients of a level of a continuing run: most of them began before it and go on after
/// it, so they are counted at its end. Returns `None` for any other run.
fn clients_of_level(reader: &Reader) -> Result<Option<Clients>, ReportError> {
    let Some(level) = reader.fact(&fact::LEVEL)? else {
        return Ok(None);
    };
    let (name, asked) = (level.population.as_str(), level.clients);
    let Some(subject) = reader.find_subject(name) else {
        return Ok(None);
    };
    let mut playing = 0.0;
    for row in reader.windows() {
        let row = row?;
        if let Some(window) = row.subjects.get(name) {
            let totals = Totals::of_window(subject.catalogue, window, row.seconds);
            playing = totals.named("playing", Statistic::Value).unwrap_or(0.0);
        }
    }
    Ok(Some(Clients {
        asked,
        served: asked.min(playing as u64),
    }))
}

/// Counts clients by their outcome.
pub(super) fn clients(reader: &Reader, allowed: &Allowed) -> Result<Clients, ReportError> {
    if let Some(found) = clients_of_level(reader)? {
        return Ok(found);
    }
    let mut found = Clients::default();
    let subjects = reader.subjects().iter();
    let contents = subjects.filter_map(|subject| {
        let content = subject.catalogue.content()?;
        Some((subject.name.as_str(), content))
    });
    let contents: BTreeMap<&str, &ContentCheck> = contents.collect();
    for client in reader.clients() {
        let client = client?;
        let failed = client.outcome == Some(ClientOutcome::Failed);
        // The client ended before anything could arrive.
        if !failed && client.first_media.is_none() {
            continue;
        }
        found.asked += 1;
        let content = contents.get(client.subject.as_str());
        let allowed = allowed.share(&client.subject);
        if !failed && content.is_none_or(|content| received_correctly(&client, content, allowed)) {
            found.served += 1;
        }
    }
    Ok(found)
}

fn received_correctly(client: &ClientRow, content: &ContentCheck, allowed: f64) -> bool {
    let mut all = Counts::default();
    for stream in client.streams.as_array().into_iter().flatten() {
        all.add(stream, content);
    }
    all.wrong() <= allowed
}

/// Counts of a client, summed over its streams. A count that a stream lacks is zero.
#[derive(Default)]
struct Counts {
    expected: f64,
    received: f64,
    /// Packets that should not have arrived: duplicated, late or foreign.
    unwanted: f64,
    damaged: f64,
    continuity: ContinuityErrors,
}

impl Counts {
    fn add(&mut self, stream: &Value, content: &ContentCheck) {
        let number = |place: &str, name: &str| {
            let counts = stream.pointer(place).and_then(|counts| counts.get(name));
            counts.and_then(Value::as_f64).unwrap_or(0.0)
        };
        self.expected += number("", content.expected);
        self.received += number("", content.received);
        for name in content.unwanted {
            self.unwanted += number(content.unwanted_at, name);
        }
        self.damaged += number(content.unwanted_at, content.damaged);
        self.continuity.errors += number(content.packets_at, content.gaps);
        self.continuity.lost += number(content.packets_at, content.missing);
        self.continuity.packets += number(content.packets_at, content.packets);
    }

    fn wrong(&self) -> f64 {
        let all = self.expected + self.unwanted;
        if all > 0.0 {
            (all - (self.received - self.damaged)) / all
        } else {
            self.continuity.share()
        }
    }
}

/// Continuity counter results of streams without other information on what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContinuityErrors {
    pub(super) errors: f64,
    /// Missing packets, at least.
    pub(super) lost: f64,
    /// Received packets.
    pub(super) packets: f64,
}

impl ContinuityErrors {
    fn share(self) -> f64 {
        let lost = self.lost.max(self.errors);
        if lost > 0.0 {
            lost / (lost + self.packets)
        } else {
            0.0
        }
    }
}

/// Describes the first of the protocols' disqualifiers that exceeds its limit. `count` returns the
/// sum of a metric over the populations.
pub(super) fn first_disqualifier(
    report: &Report,
    declared: &[&Disqualifier],
    count: &dyn Fn(&str) -> f64,
) -> Option<String> {
    declared.iter().find_map(|declared| {
        let part: f64 = declared.parts.iter().map(|name| count(name)).sum();
        let all = count(declared.of);
        let share = if all > 0.0 { part / all } else { 0.0 };
        let populations = report.populations.iter();
        let allowed = populations
            .filter_map(|population| {
                threshold_limit(report, &population.name, declared.allowed_by?)
            })
            .fold(WRONG_MAX_DEFAULT, f64::max);
        (share > allowed).then(|| format!("{} % {}", digits(share * 100.0), declared.description))
    })
}

/// Returns the reason why a run did not serve what was requested, according to its figures.
pub(super) fn ineligibility_of_figures(
    report: &Report,
    figures: &Figures,
    allowed: &Allowed,
    continuity: ContinuityErrors,
    disqualifier: Option<String>,
) -> Option<String> {
    let mut words = Vec::new();
    if figures.failed > 0 {
        let failures = report
            .populations
            .iter()
            .flat_map(|population| &population.clients.failures);
        let refused: u64 = failures
            .filter(|failure| failure.reason.starts_with("status_"))
            .map(|failure| failure.count)
            .sum();
        let (some, all) = (
            count(figures.failed as f64),
            count(figures.asked.max(figures.failed) as f64),
        );
        words.push(if refused == figures.failed {
            format!("refused {some} of {all}")
        } else {
            format!("{some} of {all} failed")
        });
    }
    let limit = allowed.largest();
    let lost = figures.loss.filter(|&loss| loss > limit);
    let wrong = figures.wrong.is_some_and(|wrong| wrong > limit);
    if let Some(loss) = lost {
        words.push(format!("{} % lost", digits(loss * 100.0)));
    } else if wrong {
        words.push("wrong content".to_owned());
    } else if figures.loss.is_none() && continuity.share() > limit {
        words.push(format!("{} continuity errors", count(continuity.errors)));
    }
    words.extend(disqualifier);
    let unserved = figures.asked - figures.served;
    if words.is_empty() && unserved > 0 {
        let (some, all) = (count(unserved as f64), count(figures.asked as f64));
        words.push(format!("wrong for {some} of {all}"));
    }
    (!words.is_empty()).then(|| words.join(", "))
}

/// Returns the reason why a run cannot be the best of any column, or `None` if it is eligible.
pub(super) fn ineligibility(row: &Row) -> Option<String> {
    let figures = row.figures.as_ref();
    let word = match row.outcome {
        RowOutcome::Pass | RowOutcome::Fail => match figures {
            Some(figures) => figures.contest.clone(),
            None => Some("nothing was measured".to_owned()),
        },
        RowOutcome::Invalid => Some("invalid".to_owned()),
        RowOutcome::Stopped => Some("stopped".to_owned()),
        RowOutcome::NotBegun => Some("it did not begin".to_owned()),
        RowOutcome::Planned => Some("not run".to_owned()),
    };
    let failed = row.outcome == RowOutcome::Fail;
    word.or_else(|| failed.then(|| THRESHOLD.to_owned()))
}

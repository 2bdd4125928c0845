//! Clients of a run: their outcomes, the distributions of their figures, and the worst clients.

use std::collections::BTreeMap;

use measure::{ContentCheck, Unit};
use runfile::{ClientOutcome, ClientRow, Reader, fact};
use serde_json::{Value, json};

use crate::ReportError;
use crate::human::{count, figure, figure_or_dash};
use crate::source::is_population;

/// Number of clients that are listed as the worst.
const WORST: usize = 20;

/// Maximum number of bars of a distribution.
const BARS: usize = 24;

/// Ratio of the largest to the smallest value above which the bars have a logarithmic axis.
const LOG_AXIS_RATIO: f64 = 30.0;

/// Distribution of values, each kept as three digits and a power of ten. It has a few thousand
/// different values at most, for any number of clients.
#[derive(Clone, Debug, Default)]
struct ValueCounts {
    values: BTreeMap<(i32, u32), u64>,
    zeros: u64,
    max: f64,
}

impl ValueCounts {
    fn add(&mut self, value: f64) {
        if !value.is_finite() || value <= 0.0 {
            self.zeros += 1;
            return;
        }
        self.max = self.max.max(value);
        let power = value.log10().floor() as i32;
        let digits = (value / 10f64.powi(power - 2)).round() as u32;
        *self.values.entry((power, digits)).or_default() += 1;
    }

    fn count(&self) -> u64 {
        self.zeros + self.values.values().sum::<u64>()
    }

    /// Returns the values above zero, ascending.
    fn nonzero(&self) -> impl Iterator<Item = (f64, u64)> {
        let values = self.values.iter();
        values.map(|(&(power, digits), &count)| (f64::from(digits) * 10f64.powi(power - 2), count))
    }

    fn quantile(&self, share: f64) -> f64 {
        let wanted = (share * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = self.zeros;
        if below >= wanted {
            return 0.0;
        }
        for (value, count) in self.nonzero() {
            below += count;
            if below >= wanted {
                return value;
            }
        }
        self.max
    }

    /// Returns the bars: lower and upper edge, and number of clients. Clients with zero have a
    /// separate bar.
    fn bars(&self) -> Vec<(f64, f64, u64)> {
        let mut bars = Vec::new();
        if self.zeros > 0 {
            bars.push((0.0, 0.0, self.zeros));
        }
        let Some((first, _)) = self.nonzero().next() else {
            return bars;
        };
        let last = self.nonzero().last().map_or(first, |(value, _)| value);
        let wide = last / first > LOG_AXIS_RATIO;
        let to = |value: f64| if wide { value.ln() } else { value };
        let back = |value: f64| if wide { value.exp() } else { value };
        let number = match last > first {
            true => BARS,
            false => 1,
        };
        let step = (to(last) - to(first)) / number as f64;
        let edge = |at: usize| back(to(first) + step * at as f64);
        let mut counts = vec![0; number];
        for (value, count) in self.nonzero() {
            let at = ((to(value) - to(first)) / step) as usize;
            let at = if step > 0.0 { at.min(number - 1) } else { 0 };
            if let Some(bar) = counts.get_mut(at) {
                *bar += count;
            }
        }
        bars.extend((0..number).map(|at| (edge(at), edge(at + 1), counts[at])));
        bars
    }

    fn value(&self, label: &str, unit: Unit, of_nothing: &str) -> Option<Value> {
        let all = self.count();
        if all == 0 {
            return None;
        }
        let shown = |value| figure(unit, value);
        let bars = self.bars().into_iter().map(|(from, to, clients)| {
            let range = if to == 0.0 {
                of_nothing.to_owned()
            } else if from == to {
                shown(from)
            } else {
                format!("{} to {}", shown(from), shown(to))
            };
            json!([range, clients])
        });
        let quantiles = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)];
        let quantiles = quantiles.map(|(name, share)| match share {
            1.0 => format!("{name} {}", shown(self.max)),
            _ => format!("{name} {}", shown(self.quantile(share))),
        });
        Some(json!({
            "label": label,
            "clients": all,
            "text": quantiles.join(", "),
            "bars": bars.collect::<Vec<_>>(),
        }))
    }
}

/// Figures of a client: its title, its unit, and what stands for zero.
const FIGURES: [(&str, Unit, &str); 3] = [
    ("Loss", Unit::Ratio, "none"),
    ("Start-up delay", Unit::Seconds, "at once"),
    ("Bit rate", Unit::BitsPerSecond, "nothing"),
];

/// Outcomes and distributions of the clients of a population.
#[derive(Default)]
struct Population {
    outcomes: BTreeMap<&'static str, u64>,
    figures: [ValueCounts; 3],
}

/// A client with its figures.
struct Client {
    row: ClientRow,
    figures: [Option<f64>; 3],
}

impl Client {
    fn of(row: ClientRow, content: Option<&ContentCheck>) -> Client {
        let sum = |name: &str| {
            let streams = row.streams.as_array().into_iter().flatten();
            let counts = streams.filter_map(|stream| stream.get(name)?.as_f64());
            counts.reduce(|a, b| a + b)
        };
        let (payload, expected, received) = match content {
            Some(content) => (content.payload, content.expected, content.received),
            None => ("payload_bytes", "expected", "received"),
        };
        let expected = sum(expected).filter(|&expected| expected > 0.0);
        let loss = expected
            .zip(sum(received))
            .map(|(expected, received)| ((expected - received) / expected).max(0.0));
        let seconds = row
            .first_media
            .zip(row.ended)
            .map(|(first, ended)| ended.since(first).as_secs_f64());
        // A shorter time is not enough for a rate.
        let seconds = seconds.filter(|&seconds| seconds >= 0.5);
        let startup = row
            .first_media
            .map(|first| first.since(row.due).as_secs_f64());
        let bitrate = sum(payload)
            .zip(seconds)
            .map(|(bytes, seconds)| 8.0 * bytes / seconds);
        Client {
            figures: [loss, startup, bitrate],
            row,
        }
    }

    fn failed(&self) -> bool {
        self.row.outcome == Some(ClientOutcome::Failed)
    }

    /// Sort key of the worst clients: failure first, then loss, then start-up delay.
    fn severity(&self) -> (bool, f64, f64) {
        let [loss, startup, _] = self.figures.map(|figure| figure.unwrap_or(0.0));
        (self.failed(), loss, startup)
    }

    fn is_worse(&self, other: &Client) -> bool {
        self.severity()
            .partial_cmp(&other.severity())
            .is_some_and(std::cmp::Ordering::is_gt)
    }

    fn outcome(&self) -> &'static str {
        match self.row.outcome {
            Some(ClientOutcome::Completed) => "completed",
            Some(ClientOutcome::Stopped) => "ended as planned",
            Some(ClientOutcome::Failed) => "failed",
            None => "not ended",
        }
    }

    fn value(&self, command: Option<&str>) -> Value {
        let name = format!("{}/{}", self.row.subject, self.row.slot);
        let why = match (&self.row.reason, &self.row.detail) {
            (Some(reason), Some(detail)) => format!("{reason}: {detail}"),
            (Some(reason), None) => reason.clone(),
            _ => String::new(),
        };
        let [loss, startup, bitrate] =
            [0, 1, 2].map(|at| figure_or_dash(FIGURES[at].1, self.figures[at]));
        json!({
            "trace": command.map(|command| format!("{command} -o traced.run --trace '{name}'")),
            "name": name,
            "url": self.row.url,
            "outcome": self.outcome(),
            "why": why,
            "loss": loss,
            "startup": startup,
            "bitrate": bitrate,
        })
    }
}

/// Returns the outcomes, the distributions and the worst clients. Only a few clients are in memory
/// at a time.
pub(super) fn clients(reader: &Reader, stopped_by_user: bool) -> Result<Value, ReportError> {
    let mut populations: BTreeMap<&str, Population> = BTreeMap::new();
    let mut worst: Vec<Client> = Vec::new();
    for row in reader.clients() {
        let row = row?;
        let Some(subject) = reader.find_subject(&row.subject) else {
            continue;
        };
        let client = Client::of(row, subject.catalogue.content());
        let population = populations.entry(&subject.name).or_default();
        let outcome = match client.outcome() {
            "ended as planned" if stopped_by_user => "stopped",
            outcome => outcome,
        };
        *population.outcomes.entry(outcome).or_default() += 1;
        for (spread, value) in population.figures.iter_mut().zip(client.figures) {
            if let Some(value) = value {
                spread.add(value);
            }
        }
        let place = worst.partition_point(|other| !client.is_worse(other));
        if place < WORST {
            worst.insert(place, client);
            worst.truncate(WORST);
        }
    }
    let command = reader.fact(&fact::COMMAND)?;
    let command = command.as_deref();
    let subjects = reader.subjects().iter().filter(|one| is_population(one));
    let shown = subjects.filter_map(|subject| {
        let population = populations.get(subject.name.as_str())?;
        let all: u64 = population.outcomes.values().sum();
        let outcomes = population.outcomes.iter();
        let outcomes = outcomes.map(|(name, number)| json!([name, number, count(*number as f64)]));
        let spreads = population.figures.iter().zip(FIGURES);
        let spreads = spreads.filter_map(|(spread, (label, unit, of_nothing))| {
            spread.value(label, unit, of_nothing)
        });
        Some(json!({
            "name": subject.name,
            "all": all,
            "outcomes": outcomes.collect::<Vec<_>>(),
            "spreads": spreads.collect::<Vec<_>>(),
        }))
    });
    let shown: Vec<Value> = shown.collect();
    let worst: Vec<Value> = worst.iter().map(|client| client.value(command)).collect();
    Ok(json!({"populations": shown, "worst": worst}))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_client_is_in_a_bar() {
        let mut spread = ValueCounts::default();
        for value in [0.0, 0.0, 1.0, 2.0, 3.0, 3.0] {
            spread.add(value);
        }
        let bars = spread.bars();
        assert_eq!(bars[0], (0.0, 0.0, 2));
        assert_eq!(bars.len(), 1 + BARS);
        assert_eq!(bars[1].2, 1);
        assert_eq!(bars[BARS].2, 2);
        assert_eq!(spread.quantile(0.5), 1.0);
        assert_eq!(spread.quantile(0.2), 0.0);
    }

    proptest! {
        #[test]
        fn bars_are_complete_and_quantiles_are_close(
            values in proptest::collection::vec(0.0f64..1e9, 1..200),
        ) {
            let mut spread = ValueCounts::default();
            values.iter().for_each(|&value| spread.add(value));
            let bars = spread.bars();
            prop_assert_eq!(bars.iter().map(|bar| bar.2).sum::<u64>(), values.len() as u64);
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let exact = sorted[values.len().div_ceil(2) - 1];
            let near = (spread.quantile(0.5) - exact).abs() <= 0.006 * exact;
            prop_assert!(near, "{} for {}", spread.quantile(0.5), exact);
        }
    }
}

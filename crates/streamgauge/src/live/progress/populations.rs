//! State of a population: its clients, how fast they start, its rates.

use std::collections::VecDeque;

use engine::{ClientRole, PopulationProgress, Rates};
use measure::Unit;
use report::human::{count, figure};

use super::history::{POINTS_MAX, PopulationHistory};
use super::line::{ScreenLine, Tone};
use super::roles::{rate_role, role_word};

/// Minimum length of a sparkline that is of use, in columns.
const SPARK_MIN: usize = 4;

/// Loss that takes the full height of a sparkline if no loss was higher: 1 %.
const LOSS_SCALE: f64 = 0.01;

/// Returns the number of clients, such as `25 of 60 playing`. Without a plan, the total is the
/// number of running clients.
fn clients(population: &PopulationProgress) -> String {
    let all = population.planned.unwrap_or(population.active);
    // After a change of the plan, clients that leave are still counted.
    let all = all.max(population.playing);
    format!(
        "{} of {} {}",
        count(population.playing as f64),
        count(all as f64),
        role_word(population.role)
    )
}

/// Returns the clients that have started and have no media or connection yet, if any.
fn starting(population: &PopulationProgress) -> Option<String> {
    let starting = population.starting;
    (starting > 0).then(|| format!("{} starting", count(starting as f64)))
}

/// Returns how fast clients start, such as `startup_delay p95 120 ms`.
fn start_delay(population: &PopulationProgress) -> Option<String> {
    let delay = population.start_delay?;
    let p95 = figure(Unit::Seconds, delay.p95);
    Some(format!("{} p95 {p95}", delay.metric))
}

fn failed(population: &PopulationProgress) -> (Tone, String) {
    let tone = match population.failed {
        0 => Tone::Plain,
        _ => Tone::Bad,
    };
    (tone, format!("{} failed", count(population.failed as f64)))
}

/// Line of a population.
pub(super) struct Head<'a> {
    pub(super) name: &'a str,
    pub(super) population: &'a PopulationProgress,
    /// Shown at the end if there is room.
    pub(super) url: Option<&'a String>,
    /// True if the line has the rates as well.
    pub(super) with_rates: bool,
}

impl Head<'_> {
    /// Returns as much as fits. The number of clients and of failures always comes first.
    pub(super) fn line(&self, columns: usize) -> ScreenLine {
        let population = self.population;
        let start = |clients: &str| {
            let (tone, failed) = failed(population);
            ScreenLine::default()
                .with(Tone::Strong, self.name)
                .with(Tone::Plain, &format!(": {clients}, "))
                .with(tone, &failed)
        };
        let mut line = start(&clients(population));
        if line.width() > columns {
            let playing = count(population.playing as f64);
            return start(&format!("{playing} {}", role_word(population.role)));
        }
        let plain = |text: String| (Tone::Plain, text);
        let rates = population.rates.as_ref().filter(|_| self.with_rates);
        let parts = [
            rates.map(|rates| plain(rate(population.role, rates))),
            rates.and_then(|rates| detail(population.role, rates)),
            start_delay(population).map(plain),
            starting(population).map(plain),
            self.url.map(|url| (Tone::Faint, url.clone())),
        ];
        for (tone, text) in parts.into_iter().flatten() {
            let longer = line.clone().with(Tone::Plain, ", ").with(tone, &text);
            if longer.width() > columns {
                break;
            }
            line = longer;
        }
        line
    }
}

/// Returns the rates of a population, with sparklines of the last windows.
pub(super) fn sparks(
    population: &PopulationProgress,
    track: &PopulationHistory,
    columns: usize,
) -> ScreenLine {
    // Figures at fixed columns are easier to read, but narrow terminals have no room for them.
    let pad = columns >= 60;
    let columns = columns.saturating_sub(2);
    let role = population.role;
    let (rate, detail) = match &population.rates {
        Some(rates) => (rate(role, rates), detail(role, rates)),
        None => ("-".to_owned(), None),
    };
    let detail = detail.filter(|_| track.rate.len() == track.detail.len());
    let first = match pad {
        true => format!("{rate:>14} "),
        false => format!("{rate} "),
    };
    let detail = detail.map(|(tone, text)| match pad {
        true => (tone, format!("{text:<14} ")),
        false => (tone, format!("{text} ")),
    });
    let labels = first.chars().count()
        + detail
            .as_ref()
            .map_or(0, |(_, text)| text.chars().count() + 2);
    let room = columns.saturating_sub(labels);
    let (room, detail_room) = match &detail {
        Some(_) if room / 2 >= SPARK_MIN => (room / 2, room / 2),
        _ if room >= SPARK_MIN => (room, 0),
        _ => (0, 0),
    };
    let room = room.min(POINTS_MAX);
    let mut line = ScreenLine::plain("  ")
        .with(Tone::Plain, &first)
        .with(Tone::Faint, &spark(&track.rate, 0.0, room));
    if let Some((tone, text)) = detail {
        let scale_min = match role {
            ClientRole::Send => 0.0,
            ClientRole::Play | ClientRole::Publish => LOSS_SCALE,
        };
        line = line
            .with(Tone::Plain, "  ")
            .with(tone, &text)
            .with(Tone::Faint, &spark(&track.detail, scale_min, detail_room));
    }
    line
}

/// Returns the state of a population as part of a line, for output that is not a terminal.
pub(super) fn plain_population(name: &str, population: &PopulationProgress) -> String {
    let rates = population.rates.as_ref();
    let parts = [
        Some(clients(population)),
        Some(failed(population).1),
        rates.map(|rates| rate(population.role, rates)),
        rates.and_then(|rates| Some(detail(population.role, rates)?.1)),
        start_delay(population),
        starting(population),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{name}: {}", parts.join(", "))
}

/// Returns the rates of received and published media, or of messages.
fn rate(role: ClientRole, rates: &Rates) -> String {
    let bits = |rate| figure(Unit::BitsPerSecond, rate);
    match rate_role(role, rates) {
        ClientRole::Play if rates.sent_bitrate > 0.0 => {
            format!("{}, {} sent", bits(rates.bitrate), bits(rates.sent_bitrate))
        }
        ClientRole::Play => bits(rates.bitrate),
        ClientRole::Publish => format!("{} sent", bits(rates.sent_bitrate)),
        ClientRole::Send => format!("{} messages/s", count(rates.sent.round())),
    }
}

/// Returns the second figure of a population: loss, or answers if there are any.
fn detail(role: ClientRole, rates: &Rates) -> Option<(Tone, String)> {
    match rate_role(role, rates) {
        ClientRole::Play => {
            // Media in a connection has none.
            let loss = rates.loss()?;
            let tone = if loss > 0.0 { Tone::Bad } else { Tone::Plain };
            Some((tone, format!("loss {}", figure(Unit::Ratio, loss))))
        }
        ClientRole::Publish => None,
        ClientRole::Send => (rates.answered > 0.0).then(|| {
            let text = format!("{} answered/s", count(rates.answered.round()));
            (Tone::Plain, text)
        }),
    }
}

/// Returns a sparkline of the newest values, one column each. The highest of them, or `scale_min`,
/// takes the full height. A value above 0 is always higher than 0.
fn spark(values: &VecDeque<f64>, scale_min: f64, columns: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = values.iter().skip(values.len().saturating_sub(columns));
    let top = shown.clone().copied().fold(scale_min, f64::max);
    let bars = shown.map(|&value| {
        let height = match value > 0.0 {
            true => (value / top * 7.0).round().clamp(1.0, 7.0) as usize,
            false => 0,
        };
        BARS[height]
    });
    let text: String = bars.collect();
    // Padding, so that text after the sparkline keeps its column.
    let missing = columns.saturating_sub(values.len());
    format!("{}{text}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_shows_the_newest_and_hides_no_loss() {
        let values: VecDeque<f64> = [0.0, 0.0001, 0.5, 1.0].into_iter().collect();
        assert_eq!(spark(&values, 0.0, 4), "▁▂▅█");
        assert_eq!(spark(&values, 0.0, 2), "▅█");
        assert_eq!(spark(&values, 0.0, 6), "  ▁▂▅█");
        assert_eq!(spark(&values, 2.0, 4), "▁▂▃▅");
        assert_eq!(spark(&VecDeque::new(), 0.0, 3), "   ");
    }
}

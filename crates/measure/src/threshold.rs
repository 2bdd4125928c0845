//! Thresholds: conditions that a run must meet, written `viewers.loss < 7%`.
//!
//! ```text
//! subject.metric[.statistic][.worst] OPERATOR quantity
//! ```
//!
//! * The **subject** is a population, `server` or `tester`.
//! * The **metric** is one of the subject's metrics, as listed by `streamgauge metrics`. Client
//!   counts are among them: `viewers.failed == 0`, `viewers.active.max >= 200`. For populations,
//!   `failures.REASON` is the number of clients that failed for one reason, and `failures` the
//!   number of all that failed. A reason includes its more specific reasons: `failures.tls` counts
//!   `tls_expired`.
//! * The **statistic** is `mean`, `min`, `max`, a percentile such as `p95` or `p99.9` (also written
//!   `p999`), or `count`. A distribution requires one. A counter or a derived metric has none. For
//!   a gauge the default is its mean.
//! * **`.worst`** reads the window with the worst violation instead of the whole run.
//! * The **operator** is `<`, `<=`, `>`, `>=`, `==` or `!=`.
//! * The **quantity** has a unit that fits the metric (see [`crate::units`]). A share requires `%`
//!   and is at most 100 %. Processor time requires `%` (of one core) or `cores`: `server.cpu < 95%`
//!   is the same as `server.cpu < 0.95cores`.
//!
//! The warm-up is excluded, except for client counts: `started`, `completed`, `stopped`, `failed`,
//! `turned_away` and `failures` cover the whole run, because a client that was refused during the
//! warm-up is missing for the rest of the run.

mod judge;
mod worsening;

use std::collections::BTreeMap;
use std::fmt;

use crate::metric::{Catalogue, Metric, MetricSource, Statistic, Unit};
use crate::nearest::suggest;
use crate::recorder::Window;
use crate::totals::Totals;
use crate::units::{Quantity, parse_quantity};

pub use judge::{Judge, ThresholdResult};
pub use worsening::{BLOCKS, Worsening, worsening};

/// A parsed threshold. [`Threshold::check`] verifies that its names exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    text: String,
    subject: Name,
    metric: Name,
    /// Named reason of a threshold on `failures`.
    reason: Option<String>,
    statistic: Statistic,
    statistic_at: usize,
    worst: bool,
    comparison: Comparison,
    quantity: Quantity,
    quantity_at: usize,
}

/// A name and its byte offset in the text.
#[derive(Clone, Debug, PartialEq)]
struct Name {
    text: String,
    at: usize,
}

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Comparison {
    /// True if the comparison holds. No comparison with a NaN holds.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Comparison::Less => value < limit,
            Comparison::AtMost => value <= limit,
            Comparison::Greater => value > limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Equal => value == limit,
            Comparison::NotEqual => !value.is_nan() && value != limit,
        }
    }

    /// Distance towards violation: the larger of two results is the worse one.
    fn badness(self, value: f64, limit: f64) -> f64 {
        match self {
            Comparison::Less | Comparison::AtMost => value,
            Comparison::Greater | Comparison::AtLeast => -value,
            Comparison::Equal => (value - limit).abs(),
            Comparison::NotEqual => -(value - limit).abs(),
        }
    }

    /// Side on which the comparison bounds a value, or `None` if it bounds both sides.
    fn bounds(self) -> Option<Side> {
        match self {
            Comparison::Less | Comparison::AtMost => Some(Side::Above),
            Comparison::Greater | Comparison::AtLeast => Some(Side::Below),
            Comparison::Equal | Comparison::NotEqual => None,
        }
    }
}

/// Side on which a comparison bounds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::Greater => ">",
            Comparison::AtLeast => ">=",
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
        })
    }
}

/// Error in a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {help}")]
pub struct ThresholdError {
    /// Description of the error.
    pub message: String,
    /// Suggested correction.
    pub help: String,
    /// Byte offset in the threshold's text.
    pub offset: usize,
}

fn error(offset: usize, message: impl Into<String>, help: impl Into<String>) -> ThresholdError {
    ThresholdError {
        message: message.into(),
        help: help.into(),
        offset,
    }
}

/// Maximum length of a threshold, in bytes.
const THRESHOLD_BYTES_MAX: usize = 500;

impl Threshold {
    /// Parses a threshold.
    pub fn parse(text: &str) -> Result<Threshold, ThresholdError> {
        const FORM: &str =
            "write it as SUBJECT.METRIC OPERATOR QUANTITY, such as `viewers.loss < 7%`";
        if text.len() > THRESHOLD_BYTES_MAX {
            return Err(error(
                0,
                format!("the threshold is longer than {THRESHOLD_BYTES_MAX} bytes"),
                FORM,
            ));
        }
        let Some(operator_at) = text.find(['<', '>', '=', '!']) else {
            return Err(error(0, "the threshold has no comparison operator", FORM));
        };
        let (comparison, quantity_from) = read_comparison(text, operator_at)?;
        if let Some((at, second)) = second_threshold(text, quantity_from) {
            // `viewers.bitrate > 1Mbps and < 5Mbps` is about the same metric twice.
            let left = match second.starts_with(['<', '>', '=', '!']) {
                true => format!("{} ", text[..operator_at].trim()),
                false => String::new(),
            };
            let help = format!("write each as a threshold of its own, such as `{left}{second}`");
            return Err(error(
                at,
                "there are several comparisons in one threshold",
                help,
            ));
        }

        let left = &text[..operator_at];
        let mut parts = Vec::new();
        let mut at = left.len() - left.trim_start().len();
        for part in left.trim().split('.') {
            let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if part.is_empty() || !part.chars().all(good) {
                let message = if part.is_empty() {
                    "a name is missing".to_owned()
                } else {
                    format!("`{part}` is not a name of a subject, metric or statistic")
                };
                // Without the spaces, is it one?
                let dotted = left.split_whitespace().collect::<Vec<_>>().join(".");
                let meant = format!("{dotted} {}", text[operator_at..].trim());
                let help = match dotted != left.trim() && Threshold::parse(&meant).is_ok() {
                    true => format!("did you mean `{meant}`?"),
                    false => FORM.to_owned(),
                };
                return Err(error(at, message, help));
            }
            parts.push(Name {
                text: part.to_owned(),
                at,
            });
            at += part.len() + 1;
        }
        let mut parts = parts.into_iter().peekable();
        let subject = parts.next().expect("splitting gives at least one part");
        let Some(metric) = parts.next() else {
            return Err(error(
                subject.at,
                format!("`{}` must name a subject and a metric", subject.text),
                FORM,
            ));
        };
        let reason = parts.next_if(|part| metric.text == FAILURES && part.text != WORST);
        let reason = reason.map(|part| part.text);
        let mut rest: Vec<Name> = parts.collect();
        let worst = rest.pop_if(|part| part.text == WORST).is_some();
        let statistic_at = rest.first().map_or(metric.at, |part| part.at);
        // A percentile such as p99.9 was split at its point.
        let written = rest
            .iter()
            .map(|part| part.text.as_str())
            .collect::<Vec<_>>()
            .join(".");
        let statistic = read_statistic(&written, statistic_at)?;

        let right = &text[quantity_from..];
        let quantity_at = quantity_from + (right.len() - right.trim_start().len());
        let quantity = parse_quantity(right).map_err(|bad| {
            error(
                quantity_at,
                bad.to_string(),
                "the right side is a number with its unit, such as 7%, 2s, 20Mbps, 1MB or 100",
            )
        })?;
        Ok(Threshold {
            text: text.trim().to_owned(),
            subject,
            metric,
            reason,
            statistic,
            statistic_at,
            worst,
            comparison,
            quantity,
            quantity_at,
        })
    }

    /// The threshold as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Subject whose metric is read: a population, `server` or `tester`.
    pub fn subject(&self) -> &str {
        &self.subject.text
    }

    /// Metric that is read.
    pub fn metric(&self) -> &str {
        &self.metric.text
    }

    /// True if the worst window is read instead of the whole run.
    pub fn reads_worst_window(&self) -> bool {
        self.worst
    }

    /// Statistic that is read; [`Statistic::Value`] if none is given.
    pub fn statistic(&self) -> Statistic {
        self.statistic
    }

    /// Comparison operator.
    pub fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// Reason named by a threshold on `failures`.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// True if this replaces the implied threshold `failed == 0` of its population. A threshold on
    /// a single reason does not: the other reasons would be unchecked.
    fn is_on_failed(&self) -> bool {
        let on_failed =
            self.metric.text == "failed" || (self.metric.text == FAILURES && self.reason.is_none());
        // `failed >= 0` always holds.
        on_failed && self.comparison.bounds() != Some(Side::Below)
    }

    /// True if this replaces an implied threshold: it reads the same metric and bounds it on the
    /// same side.
    pub fn replaces(&self, implied: &Threshold) -> bool {
        // `== 0` is a bound from above, because no count is below 0.
        let theirs = implied.comparison.bounds().unwrap_or(Side::Above);
        (self.subject(), self.metric()) == (implied.subject(), implied.metric())
            && self.comparison.bounds().is_none_or(|ours| ours == theirs)
    }

    /// True if this replaces the implied threshold on `wrong` of its population: it sets an
    /// explicit limit on loss or on wrong content.
    fn is_on_content(&self) -> bool {
        [WRONG, "loss", "lost"].contains(&self.metric.text.as_str())
    }

    /// Name of the statistic that is read, such as `mean` or `p95`; `None` if the metric has only
    /// one figure. For a gauge without an explicit statistic it is the mean.
    fn statistic_name(&self, reads: &ThresholdFigure) -> Option<String> {
        let ThresholdFigure::Metric(metric, statistic) = reads else {
            return None;
        };
        let is_level = matches!(metric.source, MetricSource::Gauge(..));
        Some(match statistic {
            // In a single window a gauge has one value.
            Statistic::Value if is_level && !self.worst => "mean".to_owned(),
            Statistic::Value => return None,
            Statistic::Mean => "mean".to_owned(),
            Statistic::Min => "min".to_owned(),
            Statistic::Max => "max".to_owned(),
            Statistic::Count => "count".to_owned(),
            Statistic::Quantile(share) => format!("p{}", without_binary_noise(share * 100.0)),
        })
    }

    /// Checks that all names exist among `subjects` and that the unit fits.
    pub fn check(&self, subjects: &[(&str, Catalogue)]) -> Result<(), ThresholdError> {
        self.resolve(subjects).map(|_| ())
    }

    fn resolve(&self, subjects: &[(&str, Catalogue)]) -> Result<Resolved, ThresholdError> {
        let names = || subjects.iter().map(|(name, _)| *name);
        let Some((_, catalogue)) = subjects.iter().find(|(name, _)| *name == self.subject()) else {
            return Err(error(
                self.subject.at,
                format!("there is no population `{}`", self.subject()),
                suggest(self.subject(), names()),
            ));
        };
        let (reads, unit) = if self.metric() == FAILURES && catalogue.find("failed").is_some() {
            if self.statistic != Statistic::Value {
                return Err(error(
                    self.statistic_at,
                    "the number of failures is a single value and has no statistics",
                    "leave the statistic out",
                ));
            }
            (ThresholdFigure::Failures(self.reason.clone()), Unit::Count)
        } else {
            let Some(metric) = catalogue.find(self.metric()) else {
                return Err(error(
                    self.metric.at,
                    format!("`{}` has no metric `{}`", self.subject(), self.metric()),
                    suggest(self.metric(), catalogue.metrics().map(|metric| metric.name)),
                ));
            };
            self.check_statistic(metric)?;
            let unit = match self.statistic {
                Statistic::Count => Unit::Count,
                _ => metric.unit,
            };
            (ThresholdFigure::Metric(metric, self.statistic), unit)
        };
        Ok(Resolved {
            catalogue: *catalogue,
            reads,
            unit,
            limit: self.limit(unit)?,
        })
    }

    fn check_statistic(&self, metric: &Metric) -> Result<(), ThresholdError> {
        let name = metric.name;
        match (metric.source, self.statistic) {
            (MetricSource::Distribution(_), Statistic::Value) => Err(error(
                self.metric.at,
                format!("`{name}` is a distribution: a statistic is missing"),
                format!(
                    "write `{name}.mean`, `{name}.p95`, `{name}.p99.9`, `{name}.min`, `{name}.max` \
                     or `{name}.count`"
                ),
            )),
            (MetricSource::Gauge(..), Statistic::Quantile(_) | Statistic::Count) => Err(error(
                self.statistic_at,
                format!("`{name}` is a level, sampled once a window: it has no such statistic"),
                "a level has mean, min and max",
            )),
            (MetricSource::Distribution(_) | MetricSource::Gauge(..), _) => Ok(()),
            (_, Statistic::Value) => Ok(()),
            _ => Err(error(
                self.statistic_at,
                format!("`{name}` is a single value and has no statistics"),
                format!("leave the statistic out, or write `{name}.worst` for the worst window"),
            )),
        }
    }

    /// Returns the limit in the metric's unit.
    fn limit(&self, unit: Unit) -> Result<f64, ThresholdError> {
        let Quantity {
            value,
            unit: written,
        } = self.quantity;
        let bad = |message: String, help: String| Err(error(self.quantity_at, message, help));
        match (unit, written) {
            // Zero needs no unit.
            (_, Unit::Count) if value == 0.0 => Ok(0.0),
            (Unit::Ratio, Unit::Count) => bad(
                format!("`{value}` has no unit: `{}` is a share", self.metric()),
                match value <= 1.0 {
                    true => format!(
                        "write `{value}%`, or `{}%`",
                        without_binary_noise(value * 100.0)
                    ),
                    false => format!("write `{value}%`"),
                },
            ),
            (Unit::Ratio, Unit::Ratio) if value > 1.0 => bad(
                format!(
                    "a share is never above 100%: the result for `{}` is always the same",
                    self.metric()
                ),
                "write a share from 0% to 100%".to_owned(),
            ),
            (Unit::Cores, Unit::Count) => bad(
                format!(
                    "`{value}` has no unit: `{}` is processor time",
                    self.metric()
                ),
                format!("write `{value}cores`, or `{value}%` of one core"),
            ),
            (Unit::Cores, Unit::Ratio) => Ok(value),
            (a, b) if a == b => Ok(value),
            _ => bad(
                format!(
                    "`{}` is {}, but {} is not",
                    &self.text[..self.text.find(['<', '>', '=', '!']).unwrap_or(0)].trim_end(),
                    noun(unit),
                    self.quantity
                ),
                format!("write it {}", example(unit)),
            ),
        }
    }
}

/// A threshold whose names have been resolved.
#[derive(Clone, Debug)]
struct Resolved {
    catalogue: Catalogue,
    reads: ThresholdFigure,
    unit: Unit,
    limit: f64,
}

/// Figure that a threshold reads.
#[derive(Clone, Debug)]
enum ThresholdFigure {
    Metric(&'static Metric, Statistic),
    /// Clients that failed for this reason, or for any reason.
    Failures(Option<String>),
}

/// Counters of a population that count clients.
const CLIENT_COUNTERS: [&str; 5] = ["started", "completed", "stopped", "failed", "turned_away"];

impl Resolved {
    /// Number of clients that a window counts, or `None` if the threshold does not count clients.
    fn clients(&self, window: &Window) -> Option<i64> {
        match &self.reads {
            ThresholdFigure::Metric(metric, _) if self.catalogue.find("failed").is_some() => {
                match metric.source {
                    MetricSource::Counter(id) if CLIENT_COUNTERS.contains(&metric.name) => {
                        window.counters.get(usize::from(id.0)).copied()
                    }
                    _ => None,
                }
            }
            ThresholdFigure::Metric(..) => None,
            ThresholdFigure::Failures(reason) => {
                Some(failures_for_reason(&window.failures, reason.as_deref()) as i64)
            }
        }
    }

    fn value(&self, totals: &Totals) -> Option<f64> {
        let value = match &self.reads {
            ThresholdFigure::Metric(metric, statistic) => totals.figure(metric, *statistic),
            ThresholdFigure::Failures(reason) => {
                Some(failures_for_reason(totals.failures(), reason.as_deref()) as f64)
            }
        };
        // Without any measured time, even a count of zero is no data.
        value.filter(|value| !value.is_nan() && totals.seconds() > 0.0)
    }
}

/// Metric for the share of wrong content.
pub const WRONG: &str = "wrong";

/// Default limit on the share of expected or received content that may be wrong: 0.1 %.
pub const WRONG_MAX_DEFAULT: f64 = 0.001;

/// Thresholds that apply without being written, in the order of the subjects:
///
/// * `NAME.failed == 0` of each population, unless there is a threshold on its `failed` or
///   `failures`;
/// * `NAME.turned_away == 0` of each population with that metric, unless there is a threshold on
///   it;
/// * `NAME.wrong <= 0.1%` of each population with that metric, unless there is a threshold on its
///   `wrong`, `loss` or `lost`. It is not judged if the correct content is unknown.
pub fn implied_thresholds(written: &[Threshold], subjects: &[(&str, Catalogue)]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, catalogue) in subjects {
        let is_written = |is_on: fn(&Threshold) -> bool| {
            let mut of_it = written
                .iter()
                .filter(|threshold| threshold.subject() == *name);
            of_it.any(is_on)
        };
        if catalogue.find("failed").is_some() && !is_written(Threshold::is_on_failed) {
            found.push(format!("{name}.failed == 0"));
        }
        let on_turned_away = |threshold: &Threshold| threshold.metric() == TURNED_AWAY;
        if catalogue.find(TURNED_AWAY).is_some() && !is_written(on_turned_away) {
            found.push(format!("{name}.{TURNED_AWAY} == 0"));
        }
        if catalogue.find(WRONG).is_some() && !is_written(Threshold::is_on_content) {
            found.push(format!("{name}.{WRONG} <= {}%", WRONG_MAX_DEFAULT * 100.0));
        }
    }
    found
}

/// Number of failures for a reason, including more specific reasons that begin with it and `_`; of
/// all failures for `None`.
fn failures_for_reason(failures: &BTreeMap<String, u64>, reason: Option<&str>) -> u64 {
    let is_of = |name: &str, reason: &str| {
        let rest = name.strip_prefix(reason);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let own = failures
        .iter()
        .filter(|(name, _)| reason.is_none_or(|reason| is_of(name, reason)));
    own.map(|(_, count)| count).sum()
}

const FAILURES: &str = "failures";
/// Clients rejected by the tester because an open-model load had reached its cap.
const TURNED_AWAY: &str = "turned_away";
const WORST: &str = "worst";

fn read_comparison(text: &str, at: usize) -> Result<(Comparison, usize), ThresholdError> {
    let rest = &text[at..];
    for (symbol, comparison) in [
        ("<=", Comparison::AtMost),
        (">=", Comparison::AtLeast),
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ] {
        if let Some(after) = rest.strip_prefix(symbol)
            && !after.starts_with(['<', '>', '=', '!'])
        {
            return Ok((comparison, at + symbol.len()));
        }
    }
    let end = rest.find(|c| !"<>=!".contains(c)).unwrap_or(rest.len());
    Err(error(
        at,
        format!("unknown operator `{}`", &rest[..end]),
        "operators are <, <=, >, >=, == and !=",
    ))
}

/// Returns the second comparison of a text that has several, and where it begins.
fn second_threshold(text: &str, from: usize) -> Option<(usize, &str)> {
    let rest = &text[from..];
    let operator = rest.find(['<', '>', '=', '!'])?;
    let parted = [",", ";", "&&", " and ", " or ", "|"];
    let ends = parted
        .iter()
        .filter_map(|word| Some(rest[..operator].find(word)? + word.len()));
    let begin = ends.max()?;
    let second = &rest[begin..];
    let at = from + begin + (second.len() - second.trim_start().len());
    let second = parted.iter().filter_map(|word| second.split_once(word));
    let second = second
        .map(|(first, _)| first)
        .min_by_key(|first| first.len());
    Some((at, second.unwrap_or(&rest[begin..]).trim()))
}

fn read_statistic(text: &str, at: usize) -> Result<Statistic, ThresholdError> {
    Ok(match text {
        "" => Statistic::Value,
        "mean" => Statistic::Mean,
        "min" => Statistic::Min,
        "max" => Statistic::Max,
        "count" => Statistic::Count,
        _ => {
            let percent = text
                .strip_prefix('p')
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
                .and_then(percentile)
                .filter(|percent| *percent > 0.0 && *percent < 100.0);
            let Some(percent) = percent else {
                let known = [
                    "mean", "min", "max", "p50", "p90", "p95", "p99", "p99.9", "count", WORST,
                ];
                let help = match text.starts_with("worst.") {
                    true => "`.worst` comes last".to_owned(),
                    false => suggest(text, known),
                };
                return Err(error(at, format!("unknown statistic `{text}`"), help));
            };
            Statistic::Quantile(percent / 100.0)
        }
    })
}

/// Parses the digits of a percentile: `95`, `99.9`, or `999` for 99.9 as other tools write it.
fn percentile(digits: &str) -> Option<f64> {
    match digits.strip_prefix("99") {
        Some(rest) if !rest.is_empty() && !rest.contains('.') => format!("99.{rest}").parse().ok(),
        _ => digits.parse().ok(),
    }
}

/// Removes the rounding error of binary fractions: 0.07 times 100 is shown as 7.
fn without_binary_noise(value: f64) -> f64 {
    format!("{value:.9}").parse().unwrap_or(value)
}

fn noun(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "a plain number",
        Unit::Seconds => "a duration",
        Unit::BitsPerSecond => "a bit rate",
        Unit::Bytes => "a number of bytes",
        Unit::Ratio => "a share",
        Unit::Cores => "a number of processor cores",
    }
}

fn example(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "without a unit, such as 100",
        Unit::Seconds => "with ns, us, ms, s, m or h, such as 500ms or 2s",
        Unit::BitsPerSecond => "with bps, kbps, Mbps or Gbps, such as 20Mbps",
        Unit::Bytes => "with B, kB, MB, GB, KiB, MiB or GiB, such as 64MiB",
        Unit::Ratio => "with %, such as 0.5%",
        Unit::Cores => "as 95% (of one core) or 1.5cores",
    }
}

#[cfg(test)]
mod tests;

//! Comparison of two variants, metric by metric, from several runs of each.

use measure::comparison::{self, Comparison, Sample, Scale, Word};
use measure::metric::Statistic;
use measure::threshold::Comparison as Operator;
use measure::{BetterWhen, Meaning, TableColumn, Threshold, Unit};
use schemars::JsonSchema;

use super::figures::ShownColumn;
use super::{Row, RowOutcome, Series, best, columns, grouped};
use crate::human::digits;
use crate::metric_words::metric_words;
use crate::model;

/// Key of the compared variants.
pub(crate) use runfile::series::COMPARE;

/// Key of the number of a repetition.
pub(crate) const REPEAT: &str = "repeat";

/// Metrics whose values are numbers of clients. They are compared as shares of all clients.
const FAILURES: [&str; 3] = ["failed", "failures", "turned_away"];

/// Comparison of two variants, with all other values equal.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct ComparisonResult {
    /// Other varied values, by key.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// Name of the first variant, with which the second one is compared.
    pub a: String,
    /// Name of the second variant.
    pub b: String,
    /// True if the runs of both alternated, so that neighbours form pairs. False if they were made
    /// separately: a change of the machine in between then looks like one of the server.
    pub paired: bool,
    /// Indices in `runs` of the compared runs of A, in their order.
    pub runs_a: Vec<usize>,
    /// Indices in `runs` of the compared runs of B; with `paired`, each forms a pair with that of A
    /// at the same place.
    pub runs_b: Vec<usize>,
    /// Runs or pairs that could not be compared, with the reason.
    pub left_out: Vec<String>,
    /// Metrics of thresholds that have no value in the runs of A or of B.
    pub without_data: Vec<String>,
    /// Differences between the scenarios and the machines of A and B, apart from the server.
    pub differences: Vec<String>,
    /// Result for all judged metrics together.
    pub result: Word,
    /// Each metric. The judged ones are first: those of the explicit thresholds and the share of
    /// failed clients, or all if there are no explicit thresholds.
    pub metrics: Vec<ComparedMetric>,
}

/// A metric of A and B.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct ComparedMetric {
    /// Metric as in a threshold, such as `viewers.loss`, or the name of a column.
    pub name: String,
    /// Name in words.
    pub title: String,
    /// True if the metric counts for the result.
    pub judged: bool,
    /// Unit of the values.
    pub unit: Unit,
    /// True if a larger value is better.
    pub larger_is_better: bool,
    /// Values of A, one for each run or pair that has one.
    pub a: Vec<f64>,
    /// Values of B, one for each run or pair that has one.
    pub b: Vec<f64>,
    /// Numbers of the pairs of these values, counted from 1. Empty if the runs form no pairs.
    pub pairs: Vec<usize>,
    /// Scale of `effect`, `low`, `high` and `min_effect`.
    pub scale: Scale,
    /// Ratio of B to A (geometric mean), or the mean difference between them in the unit. Null if
    /// the runs of A or of B have no value.
    pub effect: Option<f64>,
    /// Lower end of the 95 % interval of the effect; null with too few runs.
    pub low: Option<f64>,
    /// Upper end of that interval.
    pub high: Option<f64>,
    /// Smallest effect that counts: a share with a ratio, else a difference in the unit.
    pub min_effect: f64,
    /// Probability of such a difference between identical servers, for this metric alone; null with
    /// too few runs, or if no run differs.
    pub p_value: Option<f64>,
    /// Numbers of the pairs that were left out because they differ far too much from the others.
    pub spoiled: Vec<usize>,
    /// Result for this metric.
    pub result: Word,
    /// Metric of the windows that the curves show.
    #[serde(skip)]
    pub(crate) curve: Option<Curve>,
}

/// Metric of a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    /// Subject; `None` for all populations together.
    pub(crate) subject: Option<String>,
    pub(crate) metric: String,
    pub(crate) statistic: Statistic,
}

/// A value that is compared, and the direction in which it improves.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) name: String,
    title: String,
    pub(crate) unit: Unit,
    pub(crate) larger_is_better: bool,
    pub(crate) value: Option<f64>,
    /// Subject and metric of a threshold.
    reads: Option<(String, String)>,
    curve: Option<Curve>,
}

/// Returns the metrics of the explicit thresholds of a run. The operator of a threshold tells in
/// which direction its metric improves.
pub(crate) fn of_thresholds(report: &model::Report) -> Vec<Measured> {
    let explicit = report
        .thresholds
        .iter()
        .filter(|threshold| !threshold.implied);
    let mut found: Vec<Measured> = Vec::new();
    for result in explicit {
        let Ok(threshold) = Threshold::parse(&result.threshold) else {
            continue;
        };
        let larger_is_better = match threshold.comparison() {
            Operator::Less | Operator::AtMost => false,
            Operator::Greater | Operator::AtLeast => true,
            Operator::Equal if result.limit == 0.0 => false,
            Operator::Equal | Operator::NotEqual => continue,
        };
        let end = result.threshold.find(['<', '>', '=', '!']).unwrap_or(0);
        let name = result.threshold[..end].trim().to_owned();
        if found.iter().any(|other| other.name == name) {
            continue;
        }
        let (unit, value) = match report.population(threshold.subject()) {
            Some(population) if FAILURES.contains(&threshold.metric()) => {
                let all = population.clients.started.max(1) as f64;
                (Unit::Ratio, result.value.map(|clients| clients / all))
            }
            _ => (result.unit, result.value),
        };
        let (subject, metric) = (
            threshold.subject().to_owned(),
            threshold.metric().to_owned(),
        );
        // Their unit is another one.
        let has_curve = !FAILURES.contains(&threshold.metric());
        let curve = has_curve.then(|| Curve {
            subject: Some(subject.clone()),
            metric: metric.clone(),
            statistic: threshold.statistic(),
        });
        found.push(Measured {
            title: title(&threshold, report.populations.len() > 1),
            name,
            unit,
            larger_is_better,
            value,
            reads: Some((subject, metric)),
            curve,
        });
    }
    found
}

/// Returns the metric of a threshold in words.
fn title(threshold: &Threshold, name_population: bool) -> String {
    let population = name_population || ["server", "tester"].contains(&threshold.subject());
    let subject = match population {
        true => format!("{} ", threshold.subject()),
        false => String::new(),
    };
    let reason = threshold
        .reason()
        .map(|reason| format!(" ({})", metric_words(reason)));
    let statistic = match threshold.statistic() {
        Statistic::Value => String::new(),
        Statistic::Mean => " mean".to_owned(),
        Statistic::Min => " min".to_owned(),
        Statistic::Max => " max".to_owned(),
        Statistic::Count => " count".to_owned(),
        Statistic::Quantile(share) => format!(" p{}", digits(share * 100.0)),
    };
    let worst = match threshold.reads_worst_window() {
        true => ", worst second",
        false => "",
    };
    format!(
        "{subject}{}{}{statistic}{worst}",
        metric_words(threshold.metric()),
        reason.unwrap_or_default()
    )
}

/// A metric to compare.
struct Metric {
    about: Measured,
    source: Source,
    judged: bool,
}

/// Source of a metric's value in a run.
enum Source {
    /// The threshold that reads the metric of this name.
    Threshold,
    Column(&'static TableColumn),
    /// Failed clients, as a share of all.
    Failed(&'static TableColumn),
}

impl Metric {
    /// Returns the value of a run, or `None` if it is unknown.
    fn value(&self, row: &Row) -> Option<f64> {
        let figures = || row.figures.as_ref();
        let value = match self.source {
            Source::Threshold => {
                let mut all = row.measured.iter();
                all.find(|other| other.name == self.about.name)?.value?
            }
            Source::Column(column) => {
                let known = figures()?.value(column)?;
                Some(known).filter(|_| !figures().is_some_and(|own| own.is_doubtful(column)))?
            }
            Source::Failed(column) => {
                let all = figures()?.asked.max(figures()?.failed).max(1);
                figures()?.value(column)? / all as f64
            }
        };
        value.is_finite().then_some(value)
    }
}

/// Returns the metrics of the runs of both variants: those of the thresholds, the share of failed
/// clients, then the columns of the table.
fn metrics(series: &Series, kept: &[Vec<&Row>; 2]) -> Vec<Metric> {
    let mut found: Vec<Metric> = Vec::new();
    let has_threshold = |name: &str| {
        let reads = |row: &&Row| row.measured.iter().any(|measured| measured.name == name);
        kept.iter().all(|rows| rows.iter().any(reads))
    };
    for measured in kept.iter().flatten().flat_map(|row| &row.measured) {
        let is_known = found
            .iter()
            .any(|metric| metric.about.name == measured.name);
        // Scenarios may have other thresholds.
        if is_known || !has_threshold(&measured.name) {
            continue;
        }
        found.push(Metric {
            about: measured.clone(),
            source: Source::Threshold,
            judged: true,
        });
    }
    let has_thresholds = !found.is_empty();
    // A column is left out if both variants have values of a threshold on its metric.
    let is_known = |metric: &&Metric| {
        let has_value = |row: &&Row| metric.value(row).is_some();
        kept.iter().all(|rows| rows.iter().any(has_value))
    };
    let reads: Vec<(String, String)> = found
        .iter()
        .filter(is_known)
        .filter_map(|metric| metric.about.reads.clone())
        .collect();
    let reads_of = |server: bool, name: &str| {
        let mut reads = reads.iter();
        reads.any(|(subject, metric)| (subject == "server") == server && metric == name)
    };
    // A server that fails its clients has nothing else to be judged by.
    if !FAILURES[..2].iter().any(|name| reads_of(false, name)) {
        found.push(of_column(
            ShownColumn {
                column: &best::FAILED,
                unit: Unit::Count,
            },
            true,
        ));
    }
    for shown in columns::of(series) {
        let column = shown.column;
        // The figures of a link follow from its configuration, and the number of served clients
        // from that of failed ones.
        let is_configured = column.name.starts_with("link_") || column.name.starts_with("delay_");
        let is_count = column.meaning == Meaning::Served || column.name == "playing";
        let is_read = match column.name {
            "failed" => true,
            "server_cpu" => reads_of(true, "cpu"),
            _ => reads_of(false, column.metric),
        };
        if !is_configured && !is_count && !is_read {
            found.push(of_column(shown, !has_thresholds));
        }
    }
    found
}

/// Returns the metric of a column.
fn of_column(shown: ShownColumn, judged: bool) -> Metric {
    let column = shown.column;
    let is_failed = column.name == "failed";
    Metric {
        about: Measured {
            name: column.name.to_owned(),
            title: columns::name(column),
            unit: match (is_failed, column.meaning) {
                (true, _) => Unit::Ratio,
                (_, Meaning::CpuPerOperation) => Unit::Seconds,
                _ => shown.unit,
            },
            larger_is_better: column.better == BetterWhen::Larger,
            value: None,
            reads: None,
            curve: curve_of(column),
        },
        source: match is_failed {
            true => Source::Failed(column),
            false => Source::Column(column),
        },
        judged,
    }
}

fn curve_of(column: &TableColumn) -> Option<Curve> {
    let server = |metric: &str| Curve {
        subject: Some("server".to_owned()),
        metric: metric.to_owned(),
        statistic: Statistic::Value,
    };
    match column.name {
        "server_cpu" => Some(server("cpu")),
        "server_memory" => Some(server("uss")),
        _ if column.metric.is_empty() => None,
        _ => Some(Curve {
            subject: None,
            metric: column.metric.to_owned(),
            statistic: column.statistic,
        }),
    }
}

/// Runs of the two variants.
struct Sides<'a> {
    names: [String; 2],
    /// Index and row of each run. Those of a pair are at the same place.
    rows: [Vec<(usize, &'a Row)>; 2],
    with: Vec<(String, String)>,
}

/// Compares the two variants of a series, for each combination of the other values.
pub(super) fn of(series: &Series, basis: Basis<'_>) -> Vec<ComparisonResult> {
    let all = sides(series).into_iter();
    all.map(|sides| compare(series, sides, basis)).collect()
}

/// Conditions of a comparison.
#[derive(Clone, Copy)]
pub(super) struct Basis<'a> {
    /// True if the runs alternated, so that neighbours form pairs. False if they were made
    /// separately.
    pub(super) paired: bool,
    pub(super) min_effect: f64,
    /// True if invalid runs count as well.
    pub(super) with_invalid: bool,
    /// Differences between the variants, apart from the server.
    pub(super) differences: &'a [String],
}

/// Groups the runs by the other values.
fn sides(series: &Series) -> Vec<Sides<'_>> {
    let Some(axis) = series.varied.iter().position(|key| key == COMPARE) else {
        return Vec::new();
    };
    let Some(names) = &series.variants else {
        return Vec::new();
    };
    let runs = series.runs.iter().enumerate().filter_map(|(run, row)| {
        let side = names
            .iter()
            .position(|name| row.values.get(axis) == Some(name))?;
        let mut with = series.others(row, axis);
        with.retain(|(key, _)| key != REPEAT);
        Some((with, (side, (run, row))))
    });
    let sides = grouped(runs).into_iter().map(|(with, runs)| Sides {
        names: names.clone(),
        rows: [0, 1].map(|side| {
            let own = runs.iter().filter(|(of, _)| *of == side);
            own.map(|(_, run)| *run).collect()
        }),
        with,
    });
    sides.collect()
}

/// Returns the reason why a run cannot be compared.
fn why_not(row: &Row, with_invalid: bool) -> Option<&'static str> {
    match row.outcome {
        RowOutcome::Pass | RowOutcome::Fail => row.figures.is_none().then_some("is not readable"),
        RowOutcome::Invalid if with_invalid && row.figures.is_some() => None,
        RowOutcome::Invalid => Some("is invalid"),
        RowOutcome::Stopped => Some("was stopped"),
        RowOutcome::NotBegun => Some("could not begin"),
        RowOutcome::Planned => Some("was not made"),
    }
}

fn compare(series: &Series, sides: Sides<'_>, basis: Basis<'_>) -> ComparisonResult {
    let Sides { names, rows, with } = sides;
    let why_not = |row: &Row| why_not(row, basis.with_invalid);
    let mut left_out = Vec::new();
    let mut kept: [Vec<(usize, &Row)>; 2] = [Vec::new(), Vec::new()];
    let mut numbers = basis.paired.then(Vec::new);
    if let Some(numbers) = &mut numbers {
        for (at, (a, b)) in rows[0].iter().zip(&rows[1]).enumerate() {
            let bad = [(a, &names[0]), (b, &names[1])];
            let bad = bad
                .into_iter()
                .find_map(|((_, row), name)| Some((why_not(row)?, name)));
            match bad {
                Some((why, name)) => {
                    left_out.push(format!("pair {}: the run of {name} {why}", at + 1));
                }
                None => {
                    numbers.push(at + 1);
                    kept[0].push(*a);
                    kept[1].push(*b);
                }
            }
        }
    } else {
        for (side, rows) in rows.iter().enumerate() {
            for (at, (run, row)) in rows.iter().enumerate() {
                match why_not(row) {
                    Some(why) => {
                        left_out.push(format!("run {} of {} {why}", at + 1, names[side]));
                    }
                    None => kept[side].push((*run, row)),
                }
            }
        }
    }
    let [runs_a, runs_b] = [0, 1].map(|side| kept[side].iter().map(|(run, _)| *run).collect());
    let kept = kept.map(|side| side.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
    let mut without_data = Vec::new();
    let mut compared: Vec<(ComparedMetric, Option<Comparison>)> = Vec::new();
    for metric in metrics(series, &kept) {
        let is_of_threshold = matches!(metric.source, Source::Threshold);
        let title = metric.about.title.clone();
        match compare_metric(metric, &kept, &numbers, basis.min_effect) {
            Some(found) => compared.push(found),
            None if is_of_threshold => without_data.push(title),
            None => {}
        }
    }
    let mut metrics: Vec<ComparedMetric> = Vec::with_capacity(compared.len());
    for judged in [true, false] {
        // Metrics that do not count must not make it harder to judge those that do.
        let group = || {
            compared
                .iter()
                .filter(|(metric, _)| metric.judged == judged)
        };
        let tested: Vec<(Comparison, bool)> = group()
            .filter_map(|(metric, found)| Some((found.clone()?, metric.larger_is_better)))
            .collect();
        let mut words = comparison::words(&tested).into_iter();
        metrics.extend(group().map(|(metric, found)| {
            // A metric that only one variant has cannot be judged.
            let word = found.as_ref().and_then(|_| words.next());
            ComparedMetric {
                result: word.unwrap_or(Word::CannotTell),
                ..metric.clone()
            }
        }));
    }
    ComparisonResult {
        with,
        runs_a,
        runs_b,
        result: overall(&metrics, !without_data.is_empty()),
        left_out,
        without_data,
        differences: basis.differences.to_vec(),
        paired: basis.paired,
        metrics,
        a: names[0].clone(),
        b: names[1].clone(),
    }
}

/// Returns the word for all judged metrics: worse if any is worse, else unknown if any is unknown
/// or has no data, as a threshold without data does not hold.
fn overall(metrics: &[ComparedMetric], lacks_data: bool) -> Word {
    let judged = || metrics.iter().filter(|metric| metric.judged);
    let any = |word: Word| judged().any(|metric| metric.result == word);
    if any(Word::Worse) {
        Word::Worse
    } else if judged().next().is_none() || lacks_data || any(Word::CannotTell) {
        Word::CannotTell
    } else if any(Word::Better) {
        Word::Better
    } else {
        Word::Same
    }
}

/// Compares a metric. `numbers` are those of the pairs, if the runs form pairs. Returns `None` if
/// no run has a value. The comparison is missing if one variant has no value.
fn compare_metric(
    metric: Metric,
    kept: &[Vec<&Row>; 2],
    numbers: &Option<Vec<usize>>,
    min_effect: f64,
) -> Option<(ComparedMetric, Option<Comparison>)> {
    let values = |rows: &[&Row]| -> Vec<f64> {
        let values = rows.iter().filter_map(|row| metric.value(row));
        values.collect()
    };
    let [mut a, mut b] = [values(&kept[0]), values(&kept[1])];
    let mut pairs = Vec::new();
    let is_share = metric.about.unit == Unit::Ratio;
    let found = match numbers {
        _ if a.is_empty() && b.is_empty() => return None,
        Some(numbers) => {
            let all = kept[0].iter().zip(&kept[1]).zip(numbers);
            let all = all.filter_map(|((a, b), number)| {
                Some((*number, (metric.value(a)?, metric.value(b)?)))
            });
            let (known, both): (Vec<usize>, Vec<(f64, f64)>) = all.unzip();
            if !both.is_empty() {
                pairs = known;
                (a, b) = both.iter().copied().unzip();
            }
            comparison::compare(Sample::Pairs(&both), is_share, min_effect)
        }
        None => comparison::compare(Sample::Separate(&a, &b), is_share, min_effect),
    };
    let interval = found.as_ref().and_then(|found| found.interval);
    let spoiled = found.as_ref().map_or(&[][..], |found| &found.spoiled);
    let about = metric.about;
    let compared = ComparedMetric {
        name: about.name,
        title: about.title,
        judged: metric.judged,
        unit: about.unit,
        larger_is_better: about.larger_is_better,
        spoiled: spoiled
            .iter()
            .filter_map(|at| pairs.get(*at).copied())
            .collect(),
        a,
        b,
        pairs,
        scale: found.as_ref().map_or(Scale::Ratio, |found| found.scale),
        effect: found.as_ref().map(|found| found.effect),
        low: interval.map(|interval| interval.0),
        high: interval.map(|interval| interval.1),
        min_effect: found.as_ref().map_or(min_effect, |found| found.min_effect),
        p_value: found.as_ref().and_then(|found| found.p_value),
        result: Word::CannotTell,
        curve: about.curve,
    };
    Some((compared, found))
}

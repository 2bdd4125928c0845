//! Figures of a run for a collector of OpenTelemetry: messages of OTLP 1
//! (opentelemetry.io/docs/specs/otlp), protobuf over HTTP.
//!
//! Metric names have the prefix `streamgauge.`, and units are a separate field in UCUM notation:
//! `streamgauge.loss`, `1`. The rules for the conversion from OTLP to Prometheus therefore yield
//! the names of [`crate::prometheus`]: `streamgauge_loss_ratio`. Counters are monotonic sums since
//! the start of the run; distributions are exponential histograms; levels, shares and rates are
//! gauges, with one point for each window.

mod exponential;
mod message;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use measure::metric::{MetricSource, Unit};
use prost::Message;

use crate::live_figures::{Family, LiveFigures, MetricType, PREFIX, Series};
use crate::time::rfc3339;
use exponential::exponential;
use message::{
    CUMULATIVE, Data, ExponentialHistogram, ExponentialPoint, Gauge, InstrumentationScope,
    KeyValue, Metric, NumberPoint, NumberValue, Request, Resource, ResourceMetrics, Response,
    ScopeMetrics, Sum,
};

/// Content type of requests and responses.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// Default path at a collector for metrics (OTLP, "OTLP/HTTP Request").
pub const PATH: &str = "/v1/metrics";

/// Maximum number of windows waiting to be sent. If there are more, the levels of the oldest are
/// left out and counted. Counters and distributions lose nothing, because each message covers the
/// whole run.
pub const WINDOWS_MAX: usize = 60;

/// Figures of a run that are still to be sent.
#[derive(Debug, Default)]
pub struct Push {
    waiting: VecDeque<Levels>,
    /// True if a window was added since the last delivered message. A window that was cut short has
    /// no levels.
    has_news: bool,
    left_out: u64,
}

/// Levels, shares and rates of one window.
#[derive(Debug)]
struct Levels {
    /// End of the window, in nanoseconds since 1970.
    at: u64,
    /// Values by subject and metric.
    values: BTreeMap<(usize, &'static str), f64>,
}

/// Response of a collector that accepted a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorResponse {
    /// Number of data points that the collector rejected.
    pub rejected: u64,
    /// Reason of the rejection, or another message; empty if everything was accepted.
    pub text: String,
}

impl Push {
    /// Adds the window that `figures` has just added.
    pub fn window(&mut self, figures: &LiveFigures) {
        self.has_news = true;
        if !figures.had_levels {
            return;
        }
        let at = nanos(now(figures));
        // The window of released resources has the same time as the window before it.
        while self.waiting.back().is_some_and(|last| last.at >= at) {
            self.waiting.pop_back();
        }
        if self.waiting.len() == WINDOWS_MAX {
            self.waiting.pop_front();
            self.left_out += 1;
        }
        let values = figures.gauges().filter_map(|(subject, metric)| {
            let value = figures.level(subject, metric)?;
            Some(((subject, metric.name), value))
        });
        let values = values.collect();
        self.waiting.push_back(Levels { at, values });
    }

    /// Returns `true` if anything has not been sent.
    pub fn has_unsent(&self) -> bool {
        self.has_news
    }

    /// Encodes the message (`ExportMetricsServiceRequest`) with all figures.
    pub fn message(&self, figures: &LiveFigures) -> Vec<u8> {
        let times = Times {
            start: nanos(figures.started_at),
            now: nanos(now(figures)),
        };
        let mut metrics = self.of_the_run(figures, times);
        for family in figures.families().into_values() {
            metrics.extend(self.metric(family, figures, times));
        }
        let scope = InstrumentationScope {
            name: PREFIX.to_owned(),
            version: figures.version.clone(),
        };
        let run_id = run_id(figures);
        let attributes = vec![
            KeyValue::text("service.name", PREFIX),
            KeyValue::text("service.version", &figures.version),
            KeyValue::text("service.instance.id", &run_id),
            KeyValue::text("streamgauge.run.id", &run_id),
            KeyValue::text("streamgauge.scenario", &figures.name),
            KeyValue::text("streamgauge.seed", &figures.seed.to_string()),
        ];
        let of_all = ResourceMetrics {
            resource: Some(Resource { attributes }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics,
            }],
        };
        let request = Request {
            resource_metrics: vec![of_all],
        };
        request.encode_to_vec()
    }

    /// Marks the figures of the last message as delivered.
    pub fn sent(&mut self) {
        self.waiting.clear();
        self.has_news = false;
    }

    /// Returns the number of windows whose levels were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    fn of_the_run(&self, figures: &LiveFigures, times: Times) -> Vec<Metric> {
        let seconds = times.point(Vec::new(), NumberValue::Double(figures.seconds));
        let windows = NumberValue::Int(whole(figures.windows() as f64));
        let windows = times.point(Vec::new(), windows);
        vec![
            Metric {
                name: format!("{PREFIX}.run"),
                description: "Measured time of the run so far.".to_owned(),
                unit: ucum(Unit::Seconds).to_owned(),
                data: Some(Data::Gauge(Gauge {
                    data_points: vec![seconds],
                })),
            },
            Metric {
                name: format!("{PREFIX}.windows"),
                description: "Number of windows measured so far.".to_owned(),
                unit: ucum(Unit::Count).to_owned(),
                data: Some(Data::Sum(Sum::monotonic(vec![windows]))),
            },
        ]
    }

    /// Returns `None` if the metric has no points.
    fn metric(&self, family: Family<'_>, figures: &LiveFigures, times: Times) -> Option<Metric> {
        let series = family.series.iter();
        let data = match family.name.kind {
            MetricType::Counter => {
                let points = series.map(|series| count(series, times)).collect();
                Data::Sum(Sum::monotonic(points))
            }
            MetricType::Gauge => Data::Gauge(Gauge {
                data_points: series
                    .flat_map(|series| self.levels(series, times))
                    .collect(),
            }),
            MetricType::Histogram => Data::ExponentialHistogram(ExponentialHistogram {
                data_points: series
                    .filter_map(|series| distribution(series, figures, times))
                    .collect(),
                aggregation_temporality: CUMULATIVE,
            }),
        };
        let metric = Metric {
            name: family.name.otlp(),
            description: family.doc.split_whitespace().collect::<Vec<_>>().join(" "),
            unit: ucum(family.name.unit).to_owned(),
            data: Some(data),
        };
        metric.has_points().then_some(metric)
    }

    /// Returns the waiting levels of a series. The state of a runner is only known now.
    fn levels<'a>(
        &'a self,
        series: &'a Series<'_>,
        times: Times,
    ) -> impl Iterator<Item = NumberPoint> + 'a {
        let newest = series.metric.is_none().then(|| NumberPoint {
            start_time_unix_nano: 0,
            ..times.point(attributes(series), NumberValue::Double(series.value))
        });
        let waiting = self.waiting.iter().filter_map(|levels| {
            let key = (series.subject, series.metric?.name);
            let value = *levels.values.get(&key)?;
            Some(NumberPoint {
                attributes: attributes(series),
                start_time_unix_nano: 0,
                time_unix_nano: levels.at,
                value: Some(NumberValue::Double(value)),
            })
        });
        newest.into_iter().chain(waiting)
    }
}

/// Period of the sums in a message.
#[derive(Clone, Copy)]
struct Times {
    /// Start of the run, in nanoseconds since 1970.
    start: u64,
    /// End of the measured time, in nanoseconds since 1970.
    now: u64,
}

impl Times {
    fn point(self, attributes: Vec<KeyValue>, value: NumberValue) -> NumberPoint {
        NumberPoint {
            attributes,
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            value: Some(value),
        }
    }
}

fn count(series: &Series<'_>, times: Times) -> NumberPoint {
    // A count in nanoseconds that is reported in seconds has a fraction.
    let is_scaled = series
        .metric
        .is_some_and(|metric| matches!(metric.source, MetricSource::Scaled(..)));
    let value = match is_scaled {
        true => NumberValue::Double(series.value),
        false => NumberValue::Int(whole(series.value)),
    };
    times.point(attributes(series), value)
}

fn distribution(
    series: &Series<'_>,
    figures: &LiveFigures,
    times: Times,
) -> Option<ExponentialPoint> {
    let metric = series.metric?;
    let values = figures.distribution(series.subject, metric)?;
    let scale = metric.unit.scale();
    Some(ExponentialPoint {
        attributes: attributes(series),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        ..exponential(values, scale)
    })
}

fn attributes(series: &Series<'_>) -> Vec<KeyValue> {
    let labels = series.labels.iter();
    labels
        .map(|(key, value)| KeyValue::text(key, value))
        .collect()
}

/// Counters are whole numbers below 2^53.
fn whole(count: f64) -> i64 {
    count as i64
}

/// Returns the unit in the notation of OTLP, which is that of UCUM (ucum.org). Counts have no unit,
/// and their names no suffix.
fn ucum(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "",
        Unit::Seconds => "s",
        Unit::BitsPerSecond => "By/s",
        Unit::Bytes => "By",
        Unit::Ratio => "1",
        Unit::Cores => "{cpu}",
    }
}

/// Returns the id of a run: its start and its seed, which every report shows.
fn run_id(figures: &LiveFigures) -> String {
    format!("{}-{}", rfc3339(figures.started_at), figures.seed)
}

/// Returns the end of the measured time, since 1970.
fn now(figures: &LiveFigures) -> Duration {
    figures.started_at + Duration::try_from_secs_f64(figures.seconds).unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses the response to an accepted message (`ExportMetricsServiceResponse`). A malformed
/// response counts as empty.
pub fn parse_response(answer: &[u8]) -> CollectorResponse {
    let answer = Response::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    CollectorResponse {
        rejected: u64::try_from(partial.rejected_data_points).unwrap_or(0),
        text: partial.error_message,
    }
}

#[cfg(test)]
mod tests;

//! The figures of a run as a collector of OpenTelemetry takes them: messages of OTLP 1
//! (opentelemetry.io/docs/specs/otlp), protobuf over HTTP.
//!
//! A name is that of the metric with `streamgauge.` before, and the unit stands beside it in UCUM's
//! letters: `streamgauge.loss`, `1`. So the rules by which OTLP becomes Prometheus give the names
//! that [`crate::prometheus`] has: `streamgauge_loss_ratio`. Counters are monotonic sums from the
//! run's beginning; distributions are exponential histograms; levels, shares and rates are gauges,
//! with one point for each window.

mod exponential;
mod message;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use measure::metric::{MetricSource, Unit};
use prost::Message;

use crate::running::{Family, Kind, PREFIX, Running, Series};
use crate::time::rfc3339;
use exponential::exponential;
use message::{
    CUMULATIVE, Data, ExponentialHistogram, ExponentialPoint, Gauge, InstrumentationScope,
    KeyValue, Metric, NumberPoint, NumberValue, Request, Resource, ResourceMetrics, Response,
    ScopeMetrics, Sum,
};

/// The content type of requests and answers.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// Where a collector takes metrics unless told otherwise (OTLP, "OTLP/HTTP Request").
pub const PATH: &str = "/v1/metrics";

/// How many windows wait to be sent at most. Of more the levels of the oldest are left out, and
/// counted; counters and distributions lose nothing, because each message has all of the run.
pub const WINDOWS_MAX: usize = 60;

/// What is still to be sent of a run.
#[derive(Debug, Default)]
pub struct Push {
    waiting: VecDeque<Levels>,
    /// Whether a window came since the last message that arrived: one that was cut short has no
    /// levels.
    has_news: bool,
    left_out: u64,
}

/// Levels, shares and rates of one window.
#[derive(Debug)]
struct Levels {
    /// The window's end, in nanoseconds since 1970.
    at: u64,
    /// By subject and metric.
    values: BTreeMap<(usize, &'static str), f64>,
}

/// What a collector said of a message that it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How many data points it did not take.
    pub rejected: u64,
    /// Why, or what else it has to say; empty where all is well.
    pub text: String,
}

impl Push {
    /// Takes in the window that `running` has just taken in.
    pub fn window(&mut self, running: &Running) {
        self.has_news = true;
        if !running.had_levels() {
            return;
        }
        let at = nanos(now(running));
        // What the server gave back has no time of its own.
        while self.waiting.back().is_some_and(|last| last.at >= at) {
            self.waiting.pop_back();
        }
        if self.waiting.len() == WINDOWS_MAX {
            self.waiting.pop_front();
            self.left_out += 1;
        }
        let values = running.gauges().filter_map(|(subject, metric)| {
            let value = running.level(subject, metric)?;
            Some(((subject, metric.name), value))
        });
        let values = values.collect();
        self.waiting.push_back(Levels { at, values });
    }

    /// Whether there is anything that has not been sent.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// The message (`ExportMetricsServiceRequest`) with all of it.
    pub fn message(&self, running: &Running) -> Vec<u8> {
        let times = Times {
            start: nanos(running.started_at),
            now: nanos(now(running)),
        };
        let mut metrics = self.of_the_run(running, times);
        for family in running.families().into_values() {
            metrics.extend(self.metric(family, running, times));
        }
        let scope = InstrumentationScope {
            name: PREFIX.to_owned(),
            version: running.version.clone(),
        };
        let run_id = run_id(running);
        let attributes = vec![
            KeyValue::text("service.name", PREFIX),
            KeyValue::text("service.version", &running.version),
            KeyValue::text("service.instance.id", &run_id),
            KeyValue::text("streamgauge.run.id", &run_id),
            KeyValue::text("streamgauge.scenario", &running.name),
            KeyValue::text("streamgauge.seed", &running.seed.to_string()),
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

    /// What the last message held has arrived.
    pub fn sent(&mut self) {
        self.waiting.clear();
        self.has_news = false;
    }

    /// Of how many windows the levels were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    fn of_the_run(&self, running: &Running, times: Times) -> Vec<Metric> {
        let seconds = NumberPoint {
            value: Some(NumberValue::Double(running.seconds)),
            ..times.point(Vec::new())
        };
        let windows = NumberPoint {
            value: Some(NumberValue::Int(whole(running.windows() as f64))),
            ..times.point(Vec::new())
        };
        vec![
            Metric {
                name: format!("{PREFIX}.run"),
                description: "How long the run has been measured for.".to_owned(),
                unit: ucum(Unit::Seconds).to_owned(),
                data: Some(Data::Gauge(Gauge {
                    data_points: vec![seconds],
                })),
            },
            Metric {
                name: format!("{PREFIX}.windows"),
                description: "How many windows have been measured.".to_owned(),
                unit: ucum(Unit::Count).to_owned(),
                data: Some(Data::Sum(Sum::monotonic(vec![windows]))),
            },
        ]
    }

    /// Nothing where it has no points.
    fn metric(&self, family: Family<'_>, running: &Running, times: Times) -> Option<Metric> {
        let series = family.series.iter();
        let data = match family.name.kind {
            Kind::Counter => {
                let points = series.map(|series| count(series, times)).collect();
                Data::Sum(Sum::monotonic(points))
            }
            Kind::Gauge => Data::Gauge(Gauge {
                data_points: series.flat_map(|series| self.levels(series)).collect(),
            }),
            Kind::Histogram => Data::ExponentialHistogram(ExponentialHistogram {
                data_points: series
                    .filter_map(|series| distribution(series, running, times))
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

    fn levels<'a>(&'a self, series: &'a Series<'_>) -> impl Iterator<Item = NumberPoint> + 'a {
        self.waiting.iter().filter_map(|levels| {
            let key = (series.subject, series.metric?.name);
            let value = *levels.values.get(&key)?;
            Some(NumberPoint {
                attributes: attributes(series),
                start_time_unix_nano: 0,
                time_unix_nano: levels.at,
                value: Some(NumberValue::Double(value)),
            })
        })
    }
}

/// The time that a message's sums are of.
#[derive(Clone, Copy)]
struct Times {
    /// When the run began, in nanoseconds since 1970.
    start: u64,
    /// Up to when it has been measured.
    now: u64,
}

impl Times {
    fn point(self, attributes: Vec<KeyValue>) -> NumberPoint {
        NumberPoint {
            attributes,
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            value: None,
        }
    }
}

fn count(series: &Series<'_>, times: Times) -> NumberPoint {
    // What is counted in nanoseconds and told in seconds has a fraction.
    let is_scaled = series
        .metric
        .is_some_and(|metric| matches!(metric.source, MetricSource::Scaled(..)));
    let value = match is_scaled {
        true => NumberValue::Double(series.count),
        false => NumberValue::Int(whole(series.count)),
    };
    NumberPoint {
        value: Some(value),
        ..times.point(attributes(series))
    }
}

fn distribution(series: &Series<'_>, running: &Running, times: Times) -> Option<ExponentialPoint> {
    let metric = series.metric?;
    let values = running.distribution(series.subject, metric)?;
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

/// A unit as OTLP writes it: UCUM's letters (ucum.org). Of what is counted it says nothing, as the
/// name does.
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

/// What tells a run from others: when it began and its seed, both of which every report shows.
fn run_id(running: &Running) -> String {
    format!("{}-{}", rfc3339(running.started_at), running.seed)
}

/// Up to when it has been measured, since 1970.
fn now(running: &Running) -> Duration {
    running.started_at + Duration::try_from_secs_f64(running.seconds).unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the answer to a message that was taken (`ExportMetricsServiceResponse`); an answer that
/// cannot be read says nothing.
pub fn taken(answer: &[u8]) -> Taken {
    let answer = Response::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    Taken {
        rejected: u64::try_from(partial.rejected_data_points).unwrap_or(0),
        text: partial.error_message,
    }
}

#[cfg(test)]
mod tests;

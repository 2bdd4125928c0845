//! Messages of OTLP, with the fields that are used here. Field numbers and types are those of
//! opentelemetry-proto 1.x, whose stable messages never change.
//!
//! `collector/metrics/v1/metrics_service.proto`, `metrics/v1/metrics.proto`,
//! `resource/v1/resource.proto`, `common/v1/common.proto`.

use prost::{Message, Oneof};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: since the start of the run.
pub(super) const CUMULATIVE: i32 = 2;

/// `ExportMetricsServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_metrics: Vec<ResourceMetrics>,
}

/// `ExportMetricsServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// `ExportMetricsPartialSuccess`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_data_points: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) description: String,
    #[prost(string, tag = "3")]
    pub(super) unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 10")]
    pub(super) data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "10")]
    ExponentialHistogram(ExponentialHistogram),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub(super) data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub(super) data_points: Vec<NumberPoint>,
    /// `AggregationTemporality`.
    #[prost(int32, tag = "2")]
    pub(super) aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub(super) is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExponentialHistogram {
    #[prost(message, repeated, tag = "1")]
    pub(super) data_points: Vec<ExponentialPoint>,
    /// `AggregationTemporality`.
    #[prost(int32, tag = "2")]
    pub(super) aggregation_temporality: i32,
}

/// `NumberDataPoint`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NumberPoint {
    #[prost(message, repeated, tag = "7")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) time_unix_nano: u64,
    #[prost(oneof = "NumberValue", tags = "4, 6")]
    pub(super) value: Option<NumberValue>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(super) enum NumberValue {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

/// `ExponentialHistogramDataPoint`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExponentialPoint {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub(super) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(super) sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    pub(super) scale: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub(super) positive: Option<Buckets>,
    #[prost(double, optional, tag = "12")]
    pub(super) min: Option<f64>,
    #[prost(double, optional, tag = "13")]
    pub(super) max: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Buckets {
    #[prost(sint32, tag = "1")]
    pub(super) offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    pub(super) bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "OneValue", tags = "1")]
    pub(super) value: Option<OneValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OneValue {
    #[prost(string, tag = "1")]
    Text(String),
}

impl KeyValue {
    pub(super) fn text(key: &str, value: &str) -> KeyValue {
        let value = Some(OneValue::Text(value.to_owned()));
        KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value }),
        }
    }
}

impl Sum {
    /// Creates a sum that only increases, since the start of the run.
    pub(super) fn monotonic(data_points: Vec<NumberPoint>) -> Sum {
        Sum {
            data_points,
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }
    }
}

impl Metric {
    pub(super) fn has_points(&self) -> bool {
        match &self.data {
            None => false,
            Some(Data::Gauge(gauge)) => !gauge.data_points.is_empty(),
            Some(Data::Sum(sum)) => !sum.data_points.is_empty(),
            Some(Data::ExponentialHistogram(all)) => !all.data_points.is_empty(),
        }
    }
}

//! Figures of one run of a series.

use std::collections::BTreeMap;

use measure::totals::Statistic;
use measure::{Meaning, TableColumn, Unit};
use schemars::JsonSchema;

use super::delay::DelayParts;

/// Figures of one run over all its populations. Null means unknown.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, JsonSchema)]
pub struct Figures {
    /// Largest number of clients that received media, or whose connection for messages was open, at
    /// the end of any second.
    pub playing: u64,
    /// Number of clients that requested media or a connection for messages. Clients that the plan
    /// ended before anything arrived do not count.
    pub asked: u64,
    /// Number of these clients that were served: they did not fail, they received what they
    /// requested, and no more of it was lost or wrong than is allowed (0.1 %, or the limit of the
    /// scenario's own threshold on `wrong` or else `loss`, if that is higher).
    pub served: u64,
    /// Mean bit rate of media, or of the messages sent, in bit/s, without the warm-up: as in the
    /// run's own report, and as thresholds on `bitrate` compare it. Null if there was none.
    pub bitrate: Option<f64>,
    /// Acknowledged messages per second: the median over the seconds with any. Null if no messages
    /// are sent.
    pub messages: Option<f64>,
    /// Packets of media received, first copies only. If the source stamps datagrams, these are
    /// counted instead.
    pub received: u64,
    /// Share of the expected packets that never arrived.
    pub loss: Option<f64>,
    /// Share of the packets that emulated links lost on the way to the clients; null without such
    /// links.
    pub link_loss: Option<f64>,
    /// Parts of a viewer's delay, if media with time codes arrived over an emulated link.
    pub delay: Option<DelayParts>,
    /// Share of the expected and the unwanted packets that is missing, damaged or unwanted; null if
    /// the content cannot be checked.
    pub wrong: Option<f64>,
    /// Median delay from the time the first request was due to the first media, in seconds.
    pub startup_delay_p50: Option<f64>,
    /// 95th percentile of that delay, in seconds.
    pub startup_delay_p95: Option<f64>,
    /// Mean jitter (RFC 3550), in seconds.
    pub jitter: Option<f64>,
    /// Share of the packets that may have the time of reading instead of the time of arrival.
    pub timed_by_reading: Option<f64>,
    /// Mean processor usage of the server, in cores.
    pub server_cpu: Option<f64>,
    /// Largest processor usage of the server in a second, in cores.
    pub server_cpu_peak: Option<f64>,
    /// Mean processor usage of the server in cores, per Gb/s of correct media (`bitrate`
    /// without duplicated, foreign and damaged media). Null if the correct share of the media is
    /// unknown.
    pub cpu_per_gbit: Option<f64>,
    /// Processor time of the server per acknowledged message, in seconds. Null if clients do
    /// anything else as well.
    pub cpu_per_message: Option<f64>,
    /// Largest memory of the server alone (USS), in bytes; its resident set if that is unknown.
    pub server_memory: Option<f64>,
    /// Number of failed clients.
    pub failed: u64,
    /// True if no health bound of the tester makes the measurement invalid; null for a run that was
    /// cut off.
    pub tester_fit: Option<bool>,
    /// Values of the other columns of the table, by name: each a metric of the clients' protocol,
    /// with the statistic behind it.
    pub columns: BTreeMap<&'static str, Option<f64>>,
    /// Columns of the clients' protocols, in their order.
    #[serde(skip)]
    pub(super) shown: Vec<ShownColumn>,
    /// Columns with a delay between clients that is below three clock errors.
    #[serde(skip)]
    pub(super) uncertain: Vec<&'static str>,
    /// Reason in these figures why the run is not eligible as the best, if any.
    #[serde(skip)]
    pub(super) contest: Option<String>,
}

/// Column of a run, with the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ShownColumn {
    pub(crate) column: &'static TableColumn,
    pub(crate) unit: Unit,
}

impl Figures {
    /// Returns the value of a column that every run has, regardless of the protocol. Returns `None`
    /// for any other column.
    pub(super) fn own(&self, column: &TableColumn) -> Option<Option<f64>> {
        match column.meaning {
            Meaning::BitRate => return Some(self.bitrate),
            Meaning::Operations => return Some(self.messages),
            Meaning::Served => return Some(Some(self.served as f64)),
            Meaning::CpuPerGbit => return Some(self.cpu_per_gbit),
            Meaning::CpuPerOperation => return Some(self.cpu_per_message),
            Meaning::Figure => {}
        }
        Some(match column.name {
            "playing" => Some(self.playing as f64),
            "received" => Some(self.received as f64),
            "loss" => self.loss,
            "link_loss" => self.link_loss,
            "delay_viewer" => self.delay?.viewer,
            "delay_sender" => self.delay?.sender,
            "delay_link" => Some(self.delay?.link),
            "delay_rest" => Some(self.delay?.rest),
            "delay_buffer" => self.delay?.buffer,
            "startup_delay_p50" => self.startup_delay_p50,
            "startup_delay_p95" => self.startup_delay_p95,
            "jitter" => self.jitter,
            "server_cpu" => self.server_cpu,
            "server_cpu_peak" => self.server_cpu_peak,
            "server_memory" => self.server_memory,
            "failed" => Some(self.failed as f64),
            _ => return None,
        })
    }

    /// Returns the value in a column.
    pub(crate) fn value(&self, column: &TableColumn) -> Option<f64> {
        let further = || self.columns.get(column.name).copied();
        self.own(column).or_else(further).flatten()
    }

    /// Returns `true` if the value of this column is unreliable: it may come from times of reading,
    /// because too many packets have no time of arrival, or it is too short for the clock error.
    pub(crate) fn is_doubtful(&self, column: &TableColumn) -> bool {
        let enough = match column.statistic {
            Statistic::Quantile(share) => 1.0 - share,
            _ => 0.01,
        };
        let by_reading = self.timed_by_reading.is_some_and(|share| share > enough);
        (column.from_arrival_times && by_reading) || self.uncertain.contains(&column.name)
    }
}

//! What a table says of one run.

use std::collections::BTreeMap;

use measure::totals::Statistic;
use measure::{Meaning, TableColumn, Unit};
use schemars::JsonSchema;

use super::delay::DelayParts;

/// The figures of one run, over all its populations. What is null is unknown.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, JsonSchema)]
pub struct Figures {
    /// The most clients that got media, or whose connection for messages stood, at the end of any
    /// second.
    pub playing: u64,
    /// Clients that asked for media, or for such a connection. Who was ended by the plan before any
    /// came is not among them.
    pub asked: u64,
    /// Of these, the clients that were served: they did not fail, what they asked for came, and no
    /// more of it was lost or wrong than is allowed (0.1 %, or what the scenario's own threshold on
    /// `wrong` or else `loss` allows, if that is more).
    pub served: u64,
    /// Media, or messages sent, in bit/s: half of the seconds in which there was any had at least
    /// as much. So neither a beginning nor an end in which few play makes it smaller.
    pub bitrate: Option<f64>,
    /// The same over the whole run, as the run's own report says.
    pub bitrate_mean: Option<f64>,
    /// Messages that were acknowledged a second: half of the seconds in which any were had at least
    /// as many. Null where none are sent.
    pub messages: Option<f64>,
    /// Packets of media that came, first copies only; where their source stamps datagrams, these.
    pub received: u64,
    /// The share of the expected packets that never came.
    pub loss: Option<f64>,
    /// The share of the packets that emulated links lost on their way to the clients; null where
    /// there is none.
    pub link_loss: Option<f64>,
    /// What a viewer's delay is made of, where media with time codes came over an emulated link.
    pub delay: Option<DelayParts>,
    /// The share of what should have come, or came, that is wrong, where the content can be
    /// checked.
    pub wrong: Option<f64>,
    /// Half of the clients had media at most so long after their first request was due, in seconds.
    pub startup_delay_p50: Option<f64>,
    /// 95 % of the clients did.
    pub startup_delay_p95: Option<f64>,
    /// The mean jitter (RFC 3550), in seconds.
    pub jitter: Option<f64>,
    /// The share of the packets whose time is not known to be that of their arrival.
    pub timed_by_reading: Option<f64>,
    /// The mean of the server's processor time, in cores.
    pub server_cpu: Option<f64>,
    /// The same of the second in which it was largest.
    pub server_cpu_peak: Option<f64>,
    /// The same mean, for each Gb/s of media that came right (`bitrate_mean` without what came
    /// again, was foreign or damaged). Null where it cannot be told what is right.
    pub cpu_per_gbit: Option<f64>,
    /// The server's processor time for each message that was acknowledged, in seconds. Null where
    /// clients do anything else too.
    pub cpu_per_message: Option<f64>,
    /// The most memory of the server's own (USS), in bytes; where that is unknown, its resident
    /// set.
    pub server_memory: Option<f64>,
    /// Clients that failed.
    pub failed: u64,
    /// Whether no bound of the tester's health was crossed so far that the measurement is invalid;
    /// null of a run that was cut off.
    pub tester_fit: Option<bool>,
    /// What else the table has columns of, by their names: a metric of the clients' protocol, with
    /// the statistic behind it.
    pub columns: BTreeMap<&'static str, Option<f64>>,
    /// The columns that the clients' protocols have, in their order.
    #[serde(skip)]
    pub(super) shown: Vec<Shown>,
    /// Why it cannot be the best of anything, as far as its figures tell.
    #[serde(skip)]
    pub(super) contest: Option<String>,
}

/// A column that a run has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) column: &'static TableColumn,
    pub(crate) unit: Unit,
}

impl Figures {
    /// The figure of a column that every run has, whatever its clients speak: `None` where there
    /// is no such figure.
    pub(super) fn own(&self, column: &TableColumn) -> Option<Option<f64>> {
        match column.meaning {
            Meaning::BitRate => return Some(self.bitrate),
            Meaning::Done => return Some(self.messages),
            Meaning::Served => return Some(Some(self.served as f64)),
            Meaning::CpuPerGbit => return Some(self.cpu_per_gbit),
            Meaning::CpuPerDone => return Some(self.cpu_per_message),
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

    /// What it has in a column.
    pub(crate) fn value(&self, column: &TableColumn) -> Option<f64> {
        let further = || self.columns.get(column.name).copied();
        self.own(column).or_else(further).flatten()
    }

    /// Whether so many of the packets' times are those of reading that a figure made of them may
    /// be, too.
    pub(crate) fn is_doubtful(&self, column: &TableColumn) -> bool {
        let enough = match column.statistic {
            Statistic::Quantile(share) => 1.0 - share,
            _ => 0.01,
        };
        column.of_times && self.timed_by_reading.is_some_and(|share| share > enough)
    }
}

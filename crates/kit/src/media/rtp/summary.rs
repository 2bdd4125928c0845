//! Summary of a received stream, kept when its session ends.

use std::time::Duration;

use measure::Time;
use serde::Serialize;

use super::{RtpReceiver, StreamCounts};
use crate::media::sdp::MediaKind;
use crate::media::ts::checker::{DatagramCounts, PidCounts, TsChecker, TsCounts};
use crate::mediagen::ts::packet::PACKET_LEN;
use crate::viewer::Delivery;
use session::StreamRow;

/// Columns in the row of an RTP stream, as JSON pointers: kind, URL, source, and the metrics of
/// these names for this stream only.
pub const RTP_COLUMNS: &[&str] = &[
    "/kind",
    "/url",
    "/ssrc",
    "/expected",
    "/received",
    "/payload_bytes",
    "/wire_bytes",
    "/duplicated",
    "/reordered",
    "/late",
    "/malformed",
    "/restarts",
    "/sender_reports",
    "/lost_tail",
];

/// Columns of a transport stream, in addition to [`RTP_COLUMNS`]; those of `datagrams` if stamped
/// datagrams arrived.
pub const TS_COLUMNS: &[&str] = &[
    "/ts/ts_packets",
    "/ts/sync_losses",
    "/ts/out_of_sync_bytes",
    "/ts/continuity_errors",
    "/ts/continuity_lost",
    "/ts/ts_duplicates",
    "/ts/transport_errors",
    "/ts/malformed",
    "/ts/table_errors",
    "/ts/untracked_packets",
    "/ts/pcr_jumps",
    "/ts/datagrams/expected",
    "/ts/datagrams/received",
    "/ts/datagrams/duplicated",
    "/ts/datagrams/reordered",
    "/ts/datagrams/late",
    "/ts/datagrams/foreign",
    "/ts/datagrams/old_channel",
    "/ts/datagrams/damaged",
    "/ts/datagrams/stray_packets",
    "/ts/datagrams/restarts",
    "/ts/pids",
];

/// One stream of a client, as written to the client's row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSummary {
    /// Media type of the stream.
    pub kind: MediaKind,
    /// Control URL of the stream.
    pub url: String,
    /// Synchronisation source that was received last.
    pub ssrc: Option<u32>,
    #[serde(flatten)]
    pub counts: StreamCounts,
    /// Counts of a transport stream. The counts above are then those of stamped datagrams, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Box<TsSummary>>,
    /// Mean of the interarrival jitter after each packet.
    #[serde(skip)]
    pub jitter_mean: Option<Duration>,
    /// Longest time without a packet.
    #[serde(skip)]
    pub longest_gap: Duration,
    /// Smallest playout delay with which every complete frame would have played in time.
    #[serde(skip)]
    pub playout_buffer: Option<Duration>,
    /// Total duration of the stalls.
    #[serde(skip)]
    pub stalled: Duration,
    /// Arrival of the first packet.
    #[serde(skip)]
    pub first_arrival: Option<Time>,
    /// Arrival of the last packet.
    #[serde(skip)]
    pub last_arrival: Option<Time>,
}

/// Counts of a transport stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TsSummary {
    /// Counts that every transport stream has.
    #[serde(flatten)]
    pub counts: TsCounts,
    /// Counts of stamped datagrams; `None` if none arrived.
    pub datagrams: Option<DatagramCounts>,
    /// PIDs in the stream.
    pub pids: Vec<PidCounts>,
}

impl StreamSummary {
    /// Summarises the current state of a checker of a transport stream.
    pub fn from_checker(
        url: impl Into<String>,
        wire_bytes: u64,
        checker: &TsChecker,
    ) -> StreamSummary {
        let own = checker.datagrams().copied().unwrap_or_default();
        StreamSummary {
            kind: MediaKind::Multiplex,
            url: url.into(),
            ssrc: None,
            counts: StreamCounts {
                expected: own.expected,
                received: own.received,
                payload_bytes: checker.counts().ts_packets * PACKET_LEN as u64,
                wire_bytes,
                duplicated: own.duplicated,
                reordered: own.reordered,
                late: own.late,
                restarts: own.restarts,
                ..StreamCounts::default()
            },
            ts: Some(Box::new(TsSummary {
                counts: *checker.counts(),
                datagrams: checker.datagrams().copied(),
                pids: checker.pids().collect(),
            })),
            jitter_mean: None,
            longest_gap: checker.longest_gap(),
            playout_buffer: None,
            stalled: checker.stalled(),
            first_arrival: checker.first_arrival(),
            last_arrival: checker.last_arrival(),
        }
    }

    /// Media of this stream that reached the viewer. The continuity counters show the loss of a
    /// transport stream without stamps.
    pub fn delivery(&self) -> Delivery {
        let (expected, missing) = match &self.ts {
            Some(ts) if ts.datagrams.is_none() => {
                let missing = ts.counts.continuity_lost;
                (ts.counts.ts_packets + missing, missing)
            }
            _ => (self.counts.expected, self.counts.lost()),
        };
        Delivery {
            stalled: self.stalled,
            expected,
            missing,
        }
    }

    /// Adds another stream that the client received: counters are summed, the longest gap is kept.
    /// PIDs belong to one stream and are removed.
    pub fn add(&mut self, other: &StreamSummary) {
        self.counts.add(&other.counts);
        if let (Some(own), Some(others)) = (&mut self.ts, &other.ts) {
            own.counts.add(&others.counts);
            if let Some(others) = &others.datagrams {
                own.datagrams.get_or_insert_default().add(others);
            }
            own.pids.clear();
        }
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.stalled += other.stalled;
        self.first_arrival = self.first_arrival.or(other.first_arrival);
        self.last_arrival = other.last_arrival.or(self.last_arrival);
    }

    /// Sums the rows of several streams, with a title instead of a URL. `None` if there are none.
    pub fn sum_rows(rows: &[StreamRow], title: &str) -> Option<StreamRow> {
        let all = rows.iter();
        let mut all = all.filter_map(|row| row.downcast_ref::<StreamSummary>());
        let mut sum = all.next()?.clone();
        all.for_each(|row| sum.add(row));
        sum.url = title.to_owned();
        Some(StreamRow::new(sum))
    }

    /// Summarises the current state of a receiver.
    pub fn from_receiver(
        kind: MediaKind,
        url: impl Into<String>,
        receiver: &RtpReceiver,
    ) -> StreamSummary {
        StreamSummary {
            kind,
            url: url.into(),
            ssrc: receiver.ssrc(),
            counts: *receiver.counts(),
            ts: None,
            jitter_mean: receiver.mean_jitter(),
            longest_gap: receiver.longest_gap(),
            playout_buffer: receiver.playout_buffer(),
            stalled: receiver.stalled(),
            first_arrival: receiver.first_arrival(),
            last_arrival: receiver.last_arrival(),
        }
    }
}

/// Returns the rows of streams as summaries.
///
/// # Panics
/// If a row has another type.
pub fn summaries(rows: &[StreamRow]) -> Vec<StreamSummary> {
    let summary = |row: &StreamRow| row.downcast_ref().cloned();
    let summaries = rows.iter().map(summary).collect::<Option<_>>();
    summaries.expect("each is of a stream of RTP or a transport stream")
}

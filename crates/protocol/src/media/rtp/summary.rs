//! What is kept of a stream that was received, when its session is over.

use std::time::Duration;

use measure::Time;
use serde::Serialize;

use super::{RtpReceiver, StreamCounts};
use crate::media::sdp::MediaKind;

/// One stream of a client, as it is written to the client's row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSummary {
    /// What it carried.
    pub kind: MediaKind,
    /// Its control URL.
    pub url: String,
    /// The synchronisation source received last.
    pub ssrc: Option<u32>,
    /// What was counted.
    #[serde(flatten)]
    pub counts: StreamCounts,
    /// Mean of the interarrival jitter after each packet.
    #[serde(skip)]
    pub jitter_mean: Option<Duration>,
    /// The longest time without a packet.
    #[serde(skip)]
    pub longest_gap: Duration,
    /// The smallest delay with which every whole frame would have played in time.
    #[serde(skip)]
    pub playout_buffer: Option<Duration>,
    /// When the first packet came.
    #[serde(skip)]
    pub first_arrival: Option<Time>,
    /// When the last packet came.
    #[serde(skip)]
    pub last_arrival: Option<Time>,
}

impl StreamSummary {
    /// What a receiver knows now.
    pub fn new(kind: MediaKind, url: impl Into<String>, receiver: &RtpReceiver) -> StreamSummary {
        StreamSummary {
            kind,
            url: url.into(),
            ssrc: receiver.ssrc(),
            counts: *receiver.counts(),
            jitter_mean: receiver.mean_jitter(),
            longest_gap: receiver.longest_gap(),
            playout_buffer: receiver.playout_buffer(),
            first_arrival: receiver.first_arrival(),
            last_arrival: receiver.last_arrival(),
        }
    }
}

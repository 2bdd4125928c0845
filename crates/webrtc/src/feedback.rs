//! RTCP feedback from receivers to senders: missing packets (NACK), key frame requests (PLI, FIR),
//! packet arrival times (transport-wide congestion control) and bandwidth estimates (REMB). Also
//! the bounded state that both sides keep for it.
//!
//! Sender and receiver reports are in [`kit::media::rtcp`].

mod arrivals;
mod bandwidth_estimator;
mod history;
mod message;
mod nack_tracker;
mod packet_types;
mod rtx;
mod transport_cc;
mod write;

#[cfg(test)]
mod tests;

pub use arrivals::{Arrivals, ArrivalsCounts};
pub use bandwidth_estimator::{BandwidthEstimator, PacketFeedback};
pub use history::{SendHistory, SendHistoryCounts, SentPacket};
pub use message::{Message, messages};
pub use nack_tracker::{NackCounts, NackTracker};
pub use rtx::{RtxStream, parse_rtx};
pub use transport_cc::{TICK, TransportCc};
pub use write::{bare_goodbye, write_fir, write_nack, write_pli, write_remb};

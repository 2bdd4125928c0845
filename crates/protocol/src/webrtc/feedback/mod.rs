//! What receivers tell senders in RTCP beyond reports: what is missing, that a key frame is needed,
//! when packets arrived, how much they can take. And what both sides keep for it, bounded.
//!
//! Reports are those of [`crate::media::rtcp`].

mod arrivals;
mod estimate;
mod formats;
mod history;
mod message;
mod missing;
mod retransmission;
mod transport_cc;
mod write;

#[cfg(test)]
mod tests;

pub use arrivals::{Arrivals, ArrivalsCounts};
pub use estimate::{Estimator, Told};
pub use history::{History, HistoryCounts, Sent};
pub use message::{Message, Messages, messages};
pub use missing::{Missing, MissingCounts};
pub use retransmission::{Retransmissions, original};
pub use transport_cc::{TICK, TransportCc};
pub use write::{write_fir, write_nack, write_pli, write_remb};

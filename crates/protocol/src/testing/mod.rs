//! Two sessions against each other in virtual time, over a seeded network: no ports, no sleeps.
//!
//! [`Pair`] stands in for the engine: it carries out what a client and the sessions of a server want
//! done, over a [`link::Link`] for datagrams, which knows exactly what it did to them, and over
//! reliable streams that are cut anywhere. For one seed everything happens in the same order, every time.
//!
//! Built with the crate's own tests, and for other crates with the feature `testing`.

pub mod conformance;
mod pair;
mod stream;

use crate::media::rtp::StreamSummary;
use crate::session::StreamRow;

pub use pair::{Door, End, Pair, PairSettings, Path, SessionNumber, Side};

/// The rows of streams in the type that they all are of.
///
/// # Panics
/// One is of another type.
pub fn summaries(rows: &[StreamRow]) -> Vec<StreamSummary> {
    let summary = |row: &StreamRow| row.get().cloned();
    let summaries = rows.iter().map(summary).collect::<Option<_>>();
    summaries.expect("each is of a stream of RTP or a transport stream")
}

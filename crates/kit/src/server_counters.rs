//! Counters of servers, read over an administrative interface for comparison with the clients'
//! counters. Without I/O.

mod janus_admin;

use serde::Deserialize;

pub use janus_admin::{JanusAdmin, Step};

/// Supported interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterInterface {
    /// Janus Admin API over a WebSocket.
    JanusAdmin,
}

/// Counters of a server. All except the lost packets only increase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Media packets that the server received.
    pub packets_in: u64,
    /// Bytes of the received packets.
    pub bytes_in: u64,
    /// Media packets that the server sent.
    pub packets_out: u64,
    /// Bytes of the sent packets.
    pub bytes_out: u64,
    /// Packets that receivers requested from the server again.
    pub nacked_in: u64,
    /// Packets that the server requested from senders again.
    pub nacked_out: u64,
    /// Retransmissions that the server received.
    pub retransmissions_in: u64,
    /// Packets that the server reports as lost on the way to it.
    pub lost_in: u64,
    /// Packets that receivers reported to the server as lost.
    pub lost_out: u64,
}

impl Counts {
    fn fields(&mut self) -> [&mut u64; 9] {
        [
            &mut self.packets_in,
            &mut self.bytes_in,
            &mut self.packets_out,
            &mut self.bytes_out,
            &mut self.nacked_in,
            &mut self.nacked_out,
            &mut self.retransmissions_in,
            &mut self.lost_in,
            &mut self.lost_out,
        ]
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(mut self, mut other: Counts) -> Counts {
        for (own, more) in self.fields().into_iter().zip(other.fields()) {
            *own = own.saturating_add(*more);
        }
        self
    }
}

/// Result of one query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Totals so far. They include PeerConnections that have ended, with their values of the last
    /// query before the end.
    pub counts: Counts,
    /// Number of open PeerConnections.
    pub peers: u64,
    /// Number of PeerConnections of earlier queries that have ended.
    pub ended: u64,
    /// Number of packets queued for sending.
    pub queued: u64,
    /// Number of PeerConnections whose counters could not be read.
    pub unreadable: u64,
}

//! What a server counts itself, asked over an interface that it has for that: to be read beside
//! what its clients counted. Without I/O.

mod janus_admin;

use serde::Deserialize;

pub use janus_admin::{JanusAdmin, Step};

/// The interfaces that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Janus' Admin API, over a WebSocket.
    JanusAdmin,
}

/// What was counted. All but what is lost only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets of media that the server received.
    pub packets_in: u64,
    /// Bytes of these.
    pub bytes_in: u64,
    /// Packets of media that the server sent.
    pub packets_out: u64,
    /// Bytes of these.
    pub bytes_out: u64,
    /// Packets that the server was asked to send again.
    pub nacked_in: u64,
    /// Packets that the server asked for again.
    pub nacked_out: u64,
    /// Packets that came to the server again.
    pub retransmissions_in: u64,
    /// Packets that the server says never reached it.
    pub lost_in: u64,
    /// Packets that receivers told the server never reached them.
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

    /// Both together.
    #[must_use]
    pub fn plus(mut self, mut other: Counts) -> Counts {
        for (own, more) in self.fields().into_iter().zip(other.fields()) {
            *own = own.saturating_add(*more);
        }
        self
    }
}

/// What one look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// All that was counted so far, also for those that are gone meanwhile: of them, what was known
    /// at the look before.
    pub counts: Counts,
    /// PeerConnections that were there.
    pub peers: u64,
    /// PeerConnections that were there at an earlier look and are gone.
    pub gone: u64,
    /// Packets that waited to be sent.
    pub queued: u64,
    /// PeerConnections that said nothing of themselves that could be read.
    pub unread: u64,
}

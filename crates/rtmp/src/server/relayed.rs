//! Messages that are relayed from publishing to playing clients.

use bytes::Bytes;
use measure::Time;

use crate::codec::message::MessageType;
use crate::flow::MessageCategory;
use kit::published_streams::{self, RelayedItem};

/// All published streams, by application and name.
pub(super) type PublishedStreams = published_streams::PublishedStreams<RelayedMessage>;

#[derive(Clone, Debug)]
pub(super) struct RelayedMessage {
    pub(super) kind: MessageType,
    pub(super) category: MessageCategory,
    /// Arrival of its last byte.
    pub(super) received_at: Time,
    pub(super) timestamp: u32,
    pub(super) payload: Bytes,
}

impl RelayedItem for RelayedMessage {
    fn bytes(&self) -> usize {
        self.payload.len()
    }
}

/// Topic on which new messages of a stream and its end are announced.
pub(super) fn topic(index: usize) -> String {
    format!("rtmp-server/{index}")
}

//! Messages that are relayed from publishing to playing clients.

use bytes::Bytes;
use measure::Time;

use crate::published_streams::{self, Item};
use crate::rtmp::codec::message::Kind;
use crate::rtmp::flow::What;

/// All published streams, by application and name.
pub(super) type PublishedStreams = published_streams::PublishedStreams<Relayed>;

/// A relayed message.
#[derive(Clone, Debug)]
pub(super) struct Relayed {
    pub(super) kind: Kind,
    pub(super) what: What,
    /// Arrival of its last byte.
    pub(super) at: Time,
    pub(super) timestamp: u32,
    pub(super) payload: Bytes,
}

impl Item for Relayed {
    fn bytes(&self) -> usize {
        self.payload.len()
    }
}

/// Topic on which new messages of a stream and its end are announced.
pub(super) fn topic(index: usize) -> String {
    format!("rtmp-server/{index}")
}

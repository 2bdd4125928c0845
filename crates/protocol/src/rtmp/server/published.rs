//! What is passed on from clients that publish to those that play.

use bytes::Bytes;
use measure::Time;

use crate::published_streams::{self, Item};
use crate::rtmp::codec::message::Kind;
use crate::rtmp::flow::What;

/// All streams that are published, by application and name.
pub(super) type PublishedStreams = published_streams::PublishedStreams<Relayed>;

/// A message that is passed on.
#[derive(Clone, Debug)]
pub(super) struct Relayed {
    pub(super) kind: Kind,
    pub(super) what: What,
    /// When its last byte came.
    pub(super) at: Time,
    pub(super) timestamp: u32,
    pub(super) payload: Bytes,
}

impl Item for Relayed {
    fn bytes(&self) -> usize {
        self.payload.len()
    }
}

/// The topic on which it is said that a stream has more, or is over.
pub(super) fn topic(index: usize) -> String {
    format!("rtmp-server/{index}")
}

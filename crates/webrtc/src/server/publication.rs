//! Media of publishers on its way to players.

use bytes::Bytes;

use crate::sdp::{Codec, MediaKind};
use kit::published_streams;
use session::{Context, Output, PacketHeader};

/// Track that players can receive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Track {
    pub(super) kind: MediaKind,
    pub(super) codec: Codec,
}

/// Stream that a client publishes.
#[derive(Debug)]
pub(super) struct Publication {
    /// Number of the publisher's PeerConnection. It distinguishes the publication from an earlier
    /// one of the same name, whose players do not play this one.
    pub(super) number: u64,
    pub(super) name: String,
    /// Slot of the publisher's PeerConnection, and index of the stream. The topics for the
    /// publisher and for its players are named after them.
    pub(super) publisher_slot: usize,
    pub(super) stream_index: usize,
    pub(super) tracks: Vec<Track>,
}

/// Item of a published stream.
#[derive(Clone, Debug)]
pub(super) enum StreamItem {
    /// RTP packet of a track.
    Media {
        /// Index of the track.
        track: usize,
        /// RTP header without contributing sources and extensions (RFC 3550, 5.1).
        header: PacketHeader,
        /// Audio level, if the publisher sends it in a header extension (RFC 6464, 3).
        level: Option<u8>,
        /// Payload, including padding.
        payload: Bytes,
    },
    /// Timestamps of a sender report (RFC 3550, 6.4.1).
    Clock {
        /// Index of the track.
        track: usize,
        /// NTP timestamp.
        ntp_time: u64,
        /// RTP timestamp.
        rtp_time: u32,
    },
}

impl published_streams::RelayedItem for StreamItem {
    fn bytes(&self) -> usize {
        match self {
            StreamItem::Media { payload, .. } => payload.len(),
            StreamItem::Clock { .. } => 0,
        }
    }
}

/// Message between sessions. Each one carries the number of the PeerConnection that it concerns,
/// because a topic's last message outlives that PeerConnection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerMessage {
    /// New items of a stream are available.
    NewItems,
    /// A stream ended.
    StreamEnded,
    /// A key frame of a stream is requested.
    KeyFrameRequest,
    /// The PeerConnection must end.
    Close,
    /// The streams that the PeerConnection plays change.
    PlayChanges,
}

impl PeerMessage {
    const ALL: [(PeerMessage, &'static str); 5] = [
        (PeerMessage::NewItems, "more"),
        (PeerMessage::StreamEnded, "over"),
        (PeerMessage::KeyFrameRequest, "picture"),
        (PeerMessage::Close, "close"),
        (PeerMessage::PlayChanges, "plays"),
    ];

    /// Formats the message for a PeerConnection.
    fn format_for(self, number: u64) -> String {
        let mut all = PeerMessage::ALL.iter();
        let (_, name) = all.find(|(word, _)| *word == self).expect("all are there");
        format!("{name} {number}")
    }

    /// Publishes the message for a PeerConnection on a topic.
    pub(super) fn publish(self, cx: &mut Context<'_>, topic: String, number: u64) {
        let message = self.format_for(number).into();
        cx.out.push_back(Output::Publish { topic, message });
    }

    /// Parses a message and the number of its PeerConnection.
    pub(super) fn parse(message: &str) -> Option<(PeerMessage, u64)> {
        let (name, number) = message.split_once(' ')?;
        let mut all = PeerMessage::ALL.iter();
        let (word, _) = all.find(|(_, known)| *known == name)?;
        Some((*word, number.parse().ok()?))
    }

    /// Parses a message. Returns `None` if it concerns a PeerConnection other than `about`.
    pub(super) fn parse_for(message: &str, about: u64) -> Option<PeerMessage> {
        let (word, number) = PeerMessage::parse(message)?;
        (number == about).then_some(word)
    }
}

/// Topic of a PeerConnection, by its slot.
pub(super) fn peer_topic(slot: usize) -> String {
    format!("webrtc-server/peer/{slot}")
}

/// Topic of a published stream, by its index.
pub(super) fn stream_topic(index: usize) -> String {
    format!("webrtc-server/stream/{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_for_another_peer_is_ignored() {
        for (word, _) in PeerMessage::ALL {
            let text = word.format_for(7);
            assert_eq!(PeerMessage::parse_for(&text, 7), Some(word));
            assert_eq!(PeerMessage::parse_for(&text, 8), None);
        }
        for wrong in ["", "more", "more x", "much 7"] {
            assert_eq!(PeerMessage::parse_for(wrong, 7), None);
        }
    }
}

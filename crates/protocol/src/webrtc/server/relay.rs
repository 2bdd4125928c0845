//! Media of publishers on its way to players.

use bytes::Bytes;

use crate::published_streams;
use crate::session::PacketHeader;
use crate::webrtc::sdp::{Codec, MediaKind};

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
    /// `slot` is the publisher's slot, and `index` that of the stream. The topics for the publisher
    /// and for its players are named after them.
    pub(super) slot: usize,
    pub(super) index: usize,
    pub(super) tracks: Vec<Track>,
}

/// Item of a published stream.
#[derive(Clone, Debug)]
pub(super) enum Relay {
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

impl published_streams::Item for Relay {
    fn bytes(&self) -> usize {
        match self {
            Relay::Media { payload, .. } => payload.len(),
            Relay::Clock { .. } => 0,
        }
    }
}

/// Message between sessions. Each one carries the number of the PeerConnection that it concerns,
/// because a topic's last message outlives that PeerConnection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// New items of a stream are available.
    More,
    /// A stream ended.
    Over,
    /// A key frame of a stream is requested.
    Picture,
    /// The PeerConnection must end.
    Close,
    /// The streams that the PeerConnection plays change.
    Plays,
}

impl Word {
    const ALL: [(Word, &'static str); 5] = [
        (Word::More, "more"),
        (Word::Over, "over"),
        (Word::Picture, "picture"),
        (Word::Close, "close"),
        (Word::Plays, "plays"),
    ];

    /// Formats the message for a PeerConnection.
    pub(super) fn about(self, number: u64) -> String {
        let mut all = Word::ALL.iter();
        let (_, name) = all.find(|(word, _)| *word == self).expect("all are there");
        format!("{name} {number}")
    }

    /// Parses a message and the number of its PeerConnection.
    pub(super) fn read(message: &str) -> Option<(Word, u64)> {
        let (name, number) = message.split_once(' ')?;
        let mut all = Word::ALL.iter();
        let (word, _) = all.find(|(_, known)| *known == name)?;
        Some((*word, number.parse().ok()?))
    }

    /// Parses a message. Returns `None` if it concerns a PeerConnection other than `about`.
    pub(super) fn of(message: &str, about: u64) -> Option<Word> {
        let (word, number) = Word::read(message)?;
        (number == about).then_some(word)
    }
}

/// Topic of a PeerConnection, by its slot.
pub(super) fn topic_of_peer(slot: usize) -> String {
    format!("webrtc-server/peer/{slot}")
}

/// Topic of a published stream, by its index.
pub(super) fn topic_of_stream(index: usize) -> String {
    format!("webrtc-server/stream/{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_for_another_peer_is_ignored() {
        for (word, _) in Word::ALL {
            let said = word.about(7);
            assert_eq!(Word::of(&said, 7), Some(word));
            assert_eq!(Word::of(&said, 8), None);
        }
        for wrong in ["", "more", "more x", "much 7"] {
            assert_eq!(Word::of(wrong, 7), None);
        }
    }
}

//! What publishers send, on its way to those that play it.

use bytes::Bytes;

use crate::published_streams;
use crate::session::PacketHeader;
use crate::webrtc::sdp::{Codec, MediaKind};

/// A media that players can have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Track {
    /// Sound or pictures.
    pub(super) kind: MediaKind,
    /// What it is coded with.
    pub(super) codec: Codec,
}

/// A stream that a client publishes.
#[derive(Debug)]
pub(super) struct Publication {
    /// The number of its PeerConnection: who played the one before of that name is none of its
    /// players.
    pub(super) number: u64,
    /// What it is called.
    pub(super) name: String,
    /// Where that one is among all, and which of the streams it is: by these it is told things,
    /// and its players are.
    pub(super) slot: usize,
    pub(super) index: usize,
    /// What it has.
    pub(super) tracks: Vec<Track>,
}

/// A piece of a stream.
#[derive(Clone, Debug)]
pub(super) enum Relay {
    /// A packet of one of its media.
    Media {
        /// Which.
        track: usize,
        /// Its header, without contributing sources and extensions (RFC 3550, 5.1).
        header: PacketHeader,
        /// How loud it is, where its publisher says so in a header extension (RFC 6464, 3).
        level: Option<u8>,
        /// Its payload, with the padding if there is any.
        payload: Bytes,
    },
    /// What time it was when: of a sender report (RFC 3550, 6.4.1).
    Clock {
        /// Of which media.
        track: usize,
        /// As NTP has it.
        ntp_time: u64,
        /// As the media's timestamps have it.
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

/// What is said on topics, each with the number of the PeerConnection that it is about: what was
/// said last on a topic outlives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// There is more of a stream.
    More,
    /// A stream is over.
    Over,
    /// A key frame of a stream is wanted.
    Picture,
    /// A PeerConnection is to end.
    Close,
    /// A PeerConnection has more to play.
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

    /// What is said of that PeerConnection.
    pub(super) fn about(self, number: u64) -> String {
        let mut all = Word::ALL.iter();
        let (_, name) = all.find(|(word, _)| *word == self).expect("all are there");
        format!("{name} {number}")
    }

    /// What was said, and of which PeerConnection.
    pub(super) fn read(message: &str) -> Option<(Word, u64)> {
        let (name, number) = message.split_once(' ')?;
        let mut all = Word::ALL.iter();
        let (word, _) = all.find(|(_, known)| *known == name)?;
        Some((*word, number.parse().ok()?))
    }

    /// What was said of that PeerConnection; none where it was of another.
    pub(super) fn of(message: &str, about: u64) -> Option<Word> {
        let (word, number) = Word::read(message)?;
        (number == about).then_some(word)
    }
}

/// The topic of a PeerConnection, by its place among all.
pub(super) fn topic_of_peer(slot: usize) -> String {
    format!("webrtc-server/peer/{slot}")
}

/// The topic of a stream that is published, by its place among all.
pub(super) fn topic_of_stream(index: usize) -> String {
    format!("webrtc-server/stream/{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_one_is_nothing_to_another() {
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

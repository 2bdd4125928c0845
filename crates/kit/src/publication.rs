//! Messages between the clients of a run about the streams that they publish.

use std::sync::Arc;

use measure::Time;

use crate::media::sdp::MediaKind;
use session::{Context, Output};

/// First word while the stream is published. The kinds of its media follow, if known.
const LIVE: &str = "live";
/// First word after the end of the stream. The source of its stamps and its number of packets
/// follow, if known.
const GONE: &str = "gone";

/// Publishes a message to the players of a stream.
pub fn publish_message(cx: &mut Context<'_>, topic: String, message: Arc<str>) {
    cx.out.push_back(Output::Publish { topic, message });
}

/// Message of a client that starts to publish a stream with these kinds of media.
pub fn live(kinds: &[&str]) -> Arc<str> {
    [&[LIVE], kinds].concat().join(" ").into()
}

/// Message of a client that ended its stream. `had` is the source of its stamps and its number of
/// packets.
pub fn gone(had: Option<(u64, u64)>) -> Arc<str> {
    match had {
        Some((source, packets)) => format!("{GONE} {source} {packets}").into(),
        None => GONE.into(),
    }
}

/// Returns whether the message announces a published stream; `None` for other messages.
pub fn is_live(message: &str) -> Option<bool> {
    match message.split(' ').next() {
        Some(LIVE) => Some(true),
        Some(GONE) => Some(false),
        _ => None,
    }
}

/// State of the publisher of a player's stream, if it is a client of the same run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Publisher {
    /// Time at which the publisher left.
    left_at: Option<Time>,
    audio: bool,
    video: bool,
    /// Source of the stamps of an ended stream, and its number of packets.
    final_counts: Option<(u64, u64)>,
}

impl Publisher {
    /// Handles a message about the stream.
    pub fn handle_message(&mut self, message: &str, now: Time) {
        let mut words = message.split(' ').skip(1);
        match is_live(message) {
            Some(true) => {
                self.left_at = None;
                for kind in words {
                    self.audio |= kind == MediaKind::Audio.name();
                    self.video |= kind == MediaKind::Video.name();
                }
            }
            Some(false) => {
                let mut number = || words.next()?.parse().ok();
                self.final_counts = number().zip(number());
                self.left_at = Some(now);
            }
            None => {}
        }
    }

    /// Returns `true` if the publisher has left. The end of its stream is then not a failure of the
    /// server.
    pub fn has_left(&self) -> bool {
        self.left_at.is_some()
    }

    /// Time at which the publisher left.
    pub fn left_at(&self) -> Option<Time> {
        self.left_at
    }

    /// Returns `true` if the publisher announced media of this kind.
    pub fn sends(&self, kind: MediaKind) -> bool {
        match kind {
            MediaKind::Audio => self.audio,
            MediaKind::Video => self.video,
            _ => false,
        }
    }

    /// Source of the stamps of the ended stream, and its number of packets.
    pub fn final_counts(&self) -> Option<(u64, u64)> {
        self.final_counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publisher_follows_live_and_gone_messages() {
        let mut publisher = Publisher::default();
        let now = Time::from_nanos(7);
        publisher.handle_message(&live(&["audio"]), now);
        assert!(publisher.sends(MediaKind::Audio) && !publisher.sends(MediaKind::Video));
        publisher.handle_message("something else", now);
        assert!(!publisher.has_left());
        publisher.handle_message(&gone(Some((3, 500))), now);
        assert_eq!(
            (publisher.left_at(), publisher.final_counts()),
            (Some(now), Some((3, 500)))
        );
        // The stream returns.
        publisher.handle_message(&live(&[]), now);
        assert!(!publisher.has_left());
        publisher.handle_message(&gone(None), now);
        assert_eq!(
            (publisher.has_left(), publisher.final_counts()),
            (true, None)
        );
    }
}

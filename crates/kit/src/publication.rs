//! Messages between the clients of a run about the streams that they publish.

use std::sync::Arc;
use std::time::Duration;

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

/// Length of the windows in which a run is measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Time before the end of a window at which sent media is counted. A busy event loop may be late by
/// as much, and the media still counts in the window in which it left.
const COUNT_BEFORE_END: Duration = Duration::from_millis(10);

/// Time at which the media that a flow has sent since the last count is to be counted next: shortly
/// before the end of the window. Windows begin at whole seconds of the run.
pub fn next_count(now: Time) -> Time {
    let counted = now + COUNT_BEFORE_END;
    let into = counted.as_nanos() % WINDOW.as_nanos() as u64;
    now + (WINDOW - Duration::from_nanos(into))
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
    fn sent_media_is_counted_shortly_before_the_end_of_each_window() {
        let at = |micros| Time::ZERO + Duration::from_micros(micros);
        for (now, next) in [
            (0, 990_000),
            (989_999, 990_000),
            (990_000, 1_990_000),
            (999_000, 1_990_000),
            (1_000_000, 1_990_000),
            (1_990_100, 2_990_000),
        ] {
            assert_eq!(next_count(at(now)), at(next), "{now}");
        }
    }

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

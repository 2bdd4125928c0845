//! Messages between the clients of a run about the streams that they publish.

use std::sync::Arc;

use measure::Time;

use crate::media::sdp::MediaKind;
use crate::session::{Context, Output};

/// First word while the stream is there. The kinds of its media follow, if they are known.
const LIVE: &str = "live";
/// First word after the end of the stream. The source of its stamps and the number of its packets
/// follow, if they are known.
const GONE: &str = "gone";

/// Says a message to the players of a stream.
pub(crate) fn tell(cx: &mut Context<'_>, topic: String, message: Arc<str>) {
    cx.out.push_back(Output::Tell { topic, message });
}

/// Message of a client that publishes a stream with these kinds of media.
pub(crate) fn live(kinds: &[&str]) -> Arc<str> {
    [&[LIVE], kinds].concat().join(" ").into()
}

/// Message of a client that published a stream. `had`: the source of its stamps, and the number of
/// its packets.
pub(crate) fn gone(had: Option<(u64, u64)>) -> Arc<str> {
    match had {
        Some((source, packets)) => format!("{GONE} {source} {packets}").into(),
        None => GONE.into(),
    }
}

/// Whether a message says that the stream is there; `None` for other messages.
pub(crate) fn is_live(message: &str) -> Option<bool> {
    match message.split(' ').next() {
        Some(LIVE) => Some(true),
        Some(GONE) => Some(false),
        _ => None,
    }
}

/// What a player knows of the publisher of its stream, if that is a client of the same run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Publisher {
    /// Time when it left.
    left: Option<Time>,
    audio: bool,
    video: bool,
    /// The source of the stamps of an ended stream, and the number of its packets.
    had: Option<(u64, u64)>,
}

impl Publisher {
    /// Takes in a message about the stream.
    pub(crate) fn hear(&mut self, message: &str, now: Time) {
        let mut words = message.split(' ').skip(1);
        match is_live(message) {
            Some(true) => {
                self.left = None;
                for kind in words {
                    self.audio |= kind == MediaKind::Audio.name();
                    self.video |= kind == MediaKind::Video.name();
                }
            }
            Some(false) => {
                let mut number = || words.next()?.parse().ok();
                self.had = number().zip(number());
                self.left = Some(now);
            }
            None => {}
        }
    }

    /// Whether the publisher has left. The end of its stream is then no failure of the server.
    pub(crate) fn has_left(&self) -> bool {
        self.left.is_some()
    }

    /// Time when the publisher left.
    pub(crate) fn left_at(&self) -> Option<Time> {
        self.left
    }

    /// Whether the publisher said that it sends media of this kind.
    pub(crate) fn sends(&self, kind: MediaKind) -> bool {
        match kind {
            MediaKind::Audio => self.audio,
            MediaKind::Video => self.video,
            _ => false,
        }
    }

    /// The source of the stamps of the ended stream, and the number of its packets.
    pub(crate) fn had(&self) -> Option<(u64, u64)> {
        self.had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_understood() {
        let mut publisher = Publisher::default();
        let now = Time::from_nanos(7);
        publisher.hear(&live(&["audio"]), now);
        assert!(publisher.sends(MediaKind::Audio) && !publisher.sends(MediaKind::Video));
        publisher.hear("something else", now);
        assert!(!publisher.has_left());
        publisher.hear(&gone(Some((3, 500))), now);
        assert_eq!(
            (publisher.left_at(), publisher.had()),
            (Some(now), Some((3, 500)))
        );
        // It comes back.
        publisher.hear(&live(&[]), now);
        assert!(!publisher.has_left());
        publisher.hear(&gone(None), now);
        assert_eq!((publisher.has_left(), publisher.had()), (true, None));
    }
}

//! Messages between the clients of a run about the streams that they publish.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use crate::media::sdp::MediaKind;
use session::{Context, Output};

/// First word of [`Publication::Live`] on its way to another client.
const LIVE: &str = "live";
/// First word of [`Publication::Gone`].
const GONE: &str = "gone";

/// Statement of a client about the stream that it publishes, for the players of that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The stream is published, with these kinds of media, if they are known.
    Live { audio: bool, video: bool },
    /// The stream has ended, with the source of its stamps and its number of packets, if known.
    Gone { had: Option<(u64, u64)> },
}

impl Publication {
    /// A stream whose kinds of media are not known.
    pub const LIVE: Publication = Publication::Live {
        audio: false,
        video: false,
    };

    /// An ended stream of which nothing else is known.
    pub const GONE: Publication = Publication::Gone { had: None };

    /// Says this to the players of a stream.
    pub fn publish(self, cx: &mut Context<'_>, topic: String) {
        let message: Arc<str> = self.to_string().into();
        cx.out.push_back(Output::Publish { topic, message });
    }

    /// Reads a message. Returns `None` for messages about something else.
    pub fn parse(message: &str) -> Option<Publication> {
        let mut words = message.split(' ');
        match words.next() {
            Some(LIVE) => {
                let has = |kind: MediaKind| words.clone().any(|word| word == kind.name());
                Some(Publication::Live {
                    audio: has(MediaKind::Audio),
                    video: has(MediaKind::Video),
                })
            }
            Some(GONE) => {
                let mut number = || words.next()?.parse().ok();
                let had = number().zip(number());
                Some(Publication::Gone { had })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Publication {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Publication::Live { audio, video } => {
                out.write_str(LIVE)?;
                for (has, kind) in [(audio, MediaKind::Audio), (video, MediaKind::Video)] {
                    if has {
                        write!(out, " {}", kind.name())?;
                    }
                }
                Ok(())
            }
            Publication::Gone { had: None } => out.write_str(GONE),
            Publication::Gone {
                had: Some((source, packets)),
            } => write!(out, "{GONE} {source} {packets}"),
        }
    }
}

/// Length of the windows in which a run is measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Time before the end of a window at which sent media is counted. An event loop that is late by
/// less still counts it in the window in which it left. Loops look at such deadlines at heartbeats
/// of 40 ms, some sessions every 5 or 20 ms: all of them divide the window.
const COUNT_BEFORE_END: Duration = Duration::from_millis(40);

/// Time at which the media that a flow has sent since the last count is to be counted next: shortly
/// before the end of the window. Windows begin at whole seconds of the run.
pub fn next_count(now: Time) -> Time {
    let counted = now + COUNT_BEFORE_END;
    let into = counted.as_nanos() % WINDOW.as_nanos() as u64;
    now + (WINDOW - Duration::from_nanos(into))
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
        match Publication::parse(message) {
            Some(Publication::Live { audio, video }) => {
                self.left_at = None;
                self.audio |= audio;
                self.video |= video;
            }
            Some(Publication::Gone { had }) => {
                self.final_counts = had;
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
            (0, 960_000),
            (959_999, 960_000),
            (960_000, 1_960_000),
            (999_000, 1_960_000),
            (1_000_000, 1_960_000),
            (1_960_100, 2_960_000),
        ] {
            assert_eq!(next_count(at(now)), at(next), "{now}");
        }
    }

    #[test]
    fn publication_is_read_as_it_was_said() {
        for said in [
            Publication::LIVE,
            Publication::Live {
                audio: true,
                video: false,
            },
            Publication::Live {
                audio: true,
                video: true,
            },
            Publication::GONE,
            Publication::Gone {
                had: Some((u64::MAX, 0)),
            },
        ] {
            assert_eq!(Publication::parse(&said.to_string()), Some(said));
        }
        for other in ["", "lively", "something else"] {
            assert_eq!(Publication::parse(other), None, "{other}");
        }
    }

    #[test]
    fn publisher_follows_live_and_gone_messages() {
        let mut publisher = Publisher::default();
        let now = Time::from_nanos(7);
        let audio = Publication::Live {
            audio: true,
            video: false,
        };
        publisher.handle_message(&audio.to_string(), now);
        assert!(publisher.sends(MediaKind::Audio) && !publisher.sends(MediaKind::Video));
        publisher.handle_message("something else", now);
        assert!(!publisher.has_left());
        let gone = Publication::Gone {
            had: Some((3, 500)),
        };
        publisher.handle_message(&gone.to_string(), now);
        assert_eq!(
            (publisher.left_at(), publisher.final_counts()),
            (Some(now), Some((3, 500)))
        );
        // The stream returns.
        publisher.handle_message(&Publication::LIVE.to_string(), now);
        assert!(!publisher.has_left());
        publisher.handle_message(&Publication::GONE.to_string(), now);
        assert_eq!(
            (publisher.has_left(), publisher.final_counts()),
            (true, None)
        );
    }
}

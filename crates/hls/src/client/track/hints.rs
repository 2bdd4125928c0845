//! Hinted parts of a track: requested before the playlist lists them (rfc8216bis, 4.4.5.3).

use std::time::Duration;

use super::{Next, Track, Wanted};
use crate::config::{ClientConfig, LowLatency};
use crate::content::{Content, Encryption};
use crate::inspection::Findings;
use crate::playlist::{Hint, Segment};

/// A hinted part that was received.
#[derive(Debug)]
pub(super) struct Hinted {
    pub(super) hint: Hint,
    pub(super) bytes: u64,
    pub(super) content: Content,
    pub(super) findings: Findings,
    /// Time from the head of the response to its end.
    pub(super) download: Duration,
}

impl Track {
    /// Returns the request for the part that the server will have next.
    pub(super) fn next_hint(&self, config: &ClientConfig) -> Next {
        let Some(playlist) = &self.playlist else {
            return Next::Nothing;
        };
        // An older playlist, as from a cache, hints at what the player has.
        let is_next = playlist.normal(self.next, true) == playlist.end();
        // Without a first part the initialization section may be missing.
        let is_free = is_next && !self.end.is_zero() && self.held.is_none();
        let hint = playlist.hint.as_ref().filter(|_| is_free);
        match hint.filter(|hint| self.refused.as_ref() != Some(*hint)) {
            Some(hint) if config.low_latency == LowLatency::Hints => Next::Fetch {
                uri: hint.uri.to_string(),
                range: hint.range,
                wanted: Wanted::Hint(hint.clone()),
                key: None,
            },
            _ => Next::Nothing,
        }
    }

    /// Compares the hinted part that was requested, or received, with the piece that the playlist
    /// lists in its place. Returns the number of useless bytes if the playlist lists another piece
    /// there, or has ended.
    pub(super) fn match_hint(&mut self, in_parts: bool) -> Option<u64> {
        let (hint, bytes) = match (&self.wanted, &self.held) {
            (Some(Wanted::Hint(hint)), _) => (hint, self.body_bytes),
            (_, Some(held)) => (&held.hint, held.bytes),
            (_, None) => return None,
        };
        let is_wasted = match self.piece(in_parts) {
            Some((_, piece)) => piece.media().is_gap || !hint.is(piece.media()),
            None => self.playlist.as_ref().is_some_and(|own| own.is_ended),
        };
        if is_wasted {
            self.held = None;
        }
        is_wasted.then_some(bytes)
    }

    /// Takes the part that is held. Returns the time that its body took and what was found in it,
    /// or why it cannot be played.
    pub(in crate::client) fn take_held(
        &mut self,
        encryption: &Encryption,
    ) -> Result<(Duration, Findings), String> {
        let Some(held) = self.held.take() else {
            return Ok((Duration::ZERO, Findings::default()));
        };
        self.body_bytes = held.bytes;
        held.content.check(held.bytes, encryption)?;
        Ok((held.download, held.findings))
    }
}

impl Hint {
    /// True if it is this resource.
    fn is(&self, media: &Segment) -> bool {
        self.uri == media.uri && self.range == media.range
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::http1::Url;

    #[test]
    fn hinted_part_of_the_playlist_before_is_of_no_use() {
        let mut own = Track::new(Url::parse("http://h/a.m3u8").expect("a URL"));
        let other = || Url::parse("http://h/b.m3u8").expect("a URL");
        assert_eq!(own.change_playlist(other()), None);
        own.held = Some(Hinted {
            hint: Hint {
                uri: "part".into(),
                range: None,
            },
            bytes: 700,
            content: Content::default(),
            findings: Findings::default(),
            download: Duration::ZERO,
        });
        assert_eq!(own.change_playlist(other()), Some(700));
        assert!(own.held.is_none());
    }
}

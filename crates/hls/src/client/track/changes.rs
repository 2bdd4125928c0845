//! Changes of a track to the playlist of another variant or rendition.

use super::{Lane, ROUNDING, Track};
use crate::config::{ClientConfig, LowLatency};
use kit::http1::Url;

/// A playlist to which a track changes.
#[derive(Clone, Debug)]
pub(in crate::client) struct NextPlaylist {
    pub(in crate::client) url: Url,
    /// True if the track does not return to the current one.
    pub(in crate::client) is_final: bool,
}

impl Track {
    /// Goes on with the playlist of another variant or rendition, at the same place. Returns the
    /// bytes of each hint that was received and is of no use any more.
    pub(in crate::client) fn change_playlist(
        &mut self,
        url: Url,
        config: &ClientConfig,
    ) -> [Option<u64>; 2] {
        let is_between = self.next.part > 0 && self.is_between_segments();
        self.attempts.count_success(Lane::Playlists);
        self.reported = self.reported_end(&url, config);
        self.previous_url = Some(std::mem::replace(&mut self.url, url));
        self.playlist = None;
        self.map = None;
        self.last = None;
        self.refused = None;
        self.refused_map = None;
        self.behind_since = None;
        if is_between {
            self.go_to(self.next.next_segment());
        }
        let part = self.held.take().map(|held| held.bytes);
        let map = self.held_map.take().map(|held| held.bytes);
        [part, map]
    }

    /// Returns what the playlist at a URL ends with, if the current one says so and the server can
    /// wait for it. Players of whole segments ask for no part.
    fn reported_end(&self, url: &Url, config: &ClientConfig) -> Option<(u64, Option<u32>)> {
        let playlist = self.playlist.as_ref()?;
        let can_block = playlist.control.can_block_reload;
        if config.low_latency == LowLatency::None || !can_block {
            return None;
        }
        let resolve = |uri: &str| self.base.redirect(uri).ok();
        let is_it = |uri: &str| resolve(uri).is_some_and(|other| other.is_same_resource(url));
        // The multivariant playlist may add a token to the URL.
        let without_query = |url: &Url| {
            let path = url.target().split('?').next();
            (url.authority().to_owned(), path.map(str::to_owned))
        };
        let is_like_it = |uri: &str| {
            resolve(uri).is_some_and(|other| without_query(&other) == without_query(url))
        };
        let reported = playlist.reported_end(is_it);
        let (sequence, part) = reported.or_else(|| playlist.reported_end(is_like_it))?;
        Some((sequence, part.filter(|_| self.is_in_parts(config))))
    }

    /// Returns the playlist with which it goes on now, if it is to change.
    pub(in crate::client) fn take_next_playlist(&mut self) -> Option<NextPlaylist> {
        let is_free = !self.media.is_busy() && !self.is_over && self.is_between_segments();
        self.next_playlist.take_if(|_| is_free)
    }

    /// True if the next piece begins a segment, so that it can be of another variant.
    pub(in crate::client) fn is_between_segments(&self) -> bool {
        let is_complete = || {
            let playlist = self.playlist.as_ref()?;
            let segment = playlist.segment(self.next.sequence)?;
            let parts = playlist.parts_of(self.next.sequence);
            Some(match parts.is_empty() {
                true => segment.duration.saturating_sub(self.parts_before.0) <= ROUNDING,
                false => self.next.part as usize >= parts.len(),
            })
        };
        self.next.part == 0 || is_complete() == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::playlist::Playlist;

    const SECOND: Duration = Duration::from_secs(1);

    fn track() -> Track {
        Track::new(Url::parse("http://h/a.m3u8").expect("a URL"))
    }

    #[test]
    fn segment_whose_parts_are_not_listed_ends_with_its_duration() {
        let text = b"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\na\n#EXTINF:4,\nb\n";
        let Ok(Playlist::Media(playlist)) = Playlist::parse(text, None) else {
            panic!("it is one");
        };
        let mut own = track();
        own.playlist = Some(*playlist);
        assert!(own.is_between_segments());
        own.next.part = 2;
        own.parts_before.0 = 2 * SECOND;
        assert!(!own.is_between_segments());
        own.parts_before.0 = 4 * SECOND;
        assert!(own.is_between_segments());
    }

    #[test]
    fn change_of_playlist_goes_on_after_a_whole_segment_or_within_it() {
        let text = b"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\na\n#EXTINF:4,\nb\n";
        for (played, next) in [(2, (0, 2)), (4, (1, 0))] {
            let Ok(Playlist::Media(playlist)) = Playlist::parse(text, None) else {
                panic!("it is one");
            };
            let mut own = track();
            own.playlist = Some(*playlist);
            own.next.part = 2;
            own.parts_before.0 = played * SECOND;
            let url = Url::parse("http://h/b.m3u8").expect("a URL");
            own.change_playlist(url, &ClientConfig::default());
            assert_eq!((own.next.sequence, own.next.part), next);
        }
    }
}

//! Requests: what a path and its query name.

use super::Shared;
use crate::playlist::Place;

/// A resource that was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requested {
    Multivariant,
    Playlist {
        variant: usize,
        is_above: bool,
        reload: Reload,
    },
    Initialization {
        variant: usize,
    },
    Segment {
        variant: usize,
        sequence: u64,
    },
    Part {
        variant: usize,
        place: Place,
    },
    /// A part that only a wrong hint names.
    Wrong,
}

/// Delivery directives of a request for a playlist (rfc8216bis, 6.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reload {
    /// Segment that must be in the playlist.
    pub(super) sequence: Option<u64>,
    /// Part of it.
    pub(super) part: Option<u32>,
    /// True if segments may be left out.
    pub(super) may_skip: bool,
}

impl Shared {
    /// Returns what a target names; `None` if it is nothing of this server.
    pub(super) fn find(&self, target: &str) -> Option<Requested> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut names = path.strip_prefix('/')?.split('/');
        names.next().filter(|name| !name.is_empty())?;
        let reload = Reload::parse(query);
        let (first, second) = (names.next()?, names.next());
        if names.next().is_some() {
            return None;
        }
        let Some(file) = second else {
            return match (first, self.videos.len()) {
                ("index.m3u8", 1) => Some(Requested::Playlist {
                    variant: 0,
                    is_above: true,
                    reload,
                }),
                ("index.m3u8", _) => Some(Requested::Multivariant),
                _ => None,
            };
        };
        let variant: usize = first.parse().ok()?;
        if variant >= self.videos.len() {
            return None;
        }
        if file == "index.m3u8" {
            return Some(Requested::Playlist {
                variant,
                is_above: false,
                reload,
            });
        }
        if file == "init.mp4" && self.videos[variant].initialization().is_some() {
            return Some(Requested::Initialization { variant });
        }
        let stem = file.strip_suffix(self.suffix())?.strip_suffix('.')?;
        if stem.starts_with("wrong-") {
            return Some(Requested::Wrong);
        }
        match stem.split_once('.') {
            None => Some(Requested::Segment {
                variant,
                sequence: stem.parse().ok()?,
            }),
            Some((sequence, part)) => {
                let place = Place {
                    sequence: sequence.parse().ok()?,
                    part: part.parse().ok()?,
                };
                let exists =
                    self.timeline.part.is_some() && place.part < self.timeline.parts_of_segment();
                exists.then_some(Requested::Part { variant, place })
            }
        }
    }
}

impl Reload {
    fn parse(query: &str) -> Reload {
        let mut reload = Reload::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "_HLS_msn" => reload.sequence = value.parse().ok(),
                "_HLS_part" => reload.part = value.parse().ok(),
                "_HLS_skip" => reload.may_skip = ["YES", "v2"].contains(&value),
                _ => {}
            }
        }
        reload
    }
}

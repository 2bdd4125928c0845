//! Resources of the server: playlists, segments, parts and initialization sections, made on request
//! and kept for the requests of others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kit::mediagen::segments::{Container, Cut, SegmentedVideo};
use kit::mediagen::ts::packet::PACKET_LEN;
use measure::Time;

use super::Shared;
use super::faults::is_nth;
use super::playlists;
use crate::playlist::Place;

/// Maximum number of bytes that are kept, and of resources.
const KEPT_BYTES_MAX: usize = 64 << 20;
const KEPT_MAX: usize = 1024;

/// Identity of a resource that is made on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Resource {
    /// The playlist of a variant at this end.
    Playlist {
        variant: usize,
        end: Place,
        is_over: bool,
        /// True if it lies above the folder of its variant.
        is_above: bool,
        /// True if segments may be left out.
        may_skip: bool,
    },
    Segment {
        variant: usize,
        sequence: u64,
    },
    Part {
        variant: usize,
        place: Place,
    },
}

/// The resources that were made last.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_resource: HashMap<Resource, Bytes>,
    /// In the order in which they were made.
    order: VecDeque<Resource>,
    bytes: usize,
}

impl Shared {
    /// Returns a resource. `now` is the time whose playlists are shown.
    pub(super) fn get(self: &Arc<Shared>, resource: Resource) -> Bytes {
        let kept = |entries: &Entries| entries.by_resource.get(&resource).cloned();
        let entries = || self.kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept(&entries()) {
            return found;
        }
        // Others are not kept waiting. Two may make the same, which costs only time.
        let made: Bytes = self.make(resource).into();
        let mut entries = entries();
        if entries.by_resource.insert(resource, made.clone()).is_none() {
            entries.order.push_back(resource);
            entries.bytes += made.len();
        }
        while entries.bytes > KEPT_BYTES_MAX || entries.order.len() > KEPT_MAX {
            let Some(oldest) = entries.order.pop_front() else {
                break;
            };
            let removed = entries.by_resource.remove(&oldest);
            entries.bytes -= removed.map_or(0, |removed| removed.len());
        }
        made
    }

    fn make(&self, resource: Resource) -> Vec<u8> {
        match resource {
            Resource::Playlist {
                end,
                is_over,
                is_above,
                may_skip,
                variant,
            } => playlists::media(self, variant, (end, is_over), is_above, may_skip).into_bytes(),
            Resource::Segment { variant, sequence } => {
                let pictures = self.timeline.pictures_of(sequence);
                self.write(variant, sequence, pictures)
            }
            Resource::Part { variant, place } => {
                let pictures = self.timeline.pictures_of_part(place);
                self.write(variant, place.sequence, pictures)
            }
        }
    }

    fn write(&self, variant: usize, sequence: u64, pictures: std::ops::Range<u64>) -> Vec<u8> {
        let cut = Cut {
            segment: sequence,
            begins_segment: pictures.start == self.timeline.pictures_of(sequence).start,
            pictures,
            source: self.source.wrapping_add(variant as u32),
        };
        let due = |picture| self.timeline.date(picture).as_nanos() as u64;
        self.video(variant).write(&cut, due)
    }

    /// Peak bit rate of a variant: that of its largest segment, in bit/s.
    pub(super) fn bandwidth(&self, variant: usize) -> u64 {
        let timeline = &self.timeline;
        let bits = |sequence| {
            let pictures = timeline.pictures_of(sequence);
            let seconds = timeline.duration(&pictures).as_secs_f64();
            let bytes = self.write(variant, sequence, pictures).len();
            (bytes as f64 * 8.0 / seconds).ceil() as u64
        };
        // The loop has an even number of groups of pictures, and a segment at least one.
        (0..2).map(bits).max().unwrap_or_default()
    }

    pub(super) fn video(&self, variant: usize) -> &SegmentedVideo {
        &self.videos[variant.min(self.videos.len() - 1)]
    }

    /// The end of the playlists that are shown at `now`, and whether the media has ended.
    pub(super) fn end_at(&self, now: Time) -> (Place, bool) {
        if self.config.is_recorded {
            let sequence = self.timeline.end.unwrap_or_default();
            return (Place { sequence, part: 0 }, true);
        }
        let shown = self.config.faults.shown_at(now);
        (self.timeline.end_at(shown), self.timeline.is_over(shown))
    }

    /// Number of a segment or, if the server offers parts, of a part, for faults.
    pub(super) fn number(&self, place: Place) -> u64 {
        let parts = match self.timeline.part {
            Some(_) => u64::from(self.timeline.parts_of_segment()),
            None => 1,
        };
        place.sequence * parts + u64::from(place.part)
    }

    /// True if a fault of each n-th one hits this resource: a whole segment if it hits a part of
    /// it.
    pub(super) fn is_hit(&self, fault: Option<u64>, resource: Resource) -> bool {
        match resource {
            Resource::Part { place, .. } => is_nth(fault, self.number(place)),
            Resource::Segment { sequence, .. } => {
                let first = self.number(Place { sequence, part: 0 });
                let next = self.number(Place { sequence, part: 0 }.next_segment());
                (first..next).any(|number| is_nth(fault, number))
            }
            Resource::Playlist { .. } => false,
        }
    }

    /// Returns a copy of a segment or part that is not whole: without its last but one transport
    /// packet, or without the last byte of its last box.
    pub(super) fn damage(&self, body: &Bytes) -> Bytes {
        match self.config.container {
            // Too short to have two packets of the video.
            Container::MpegTs if body.len() < 6 * PACKET_LEN => {
                body.slice(..body.len().saturating_sub(1))
            }
            Container::MpegTs => {
                let end = body.len().saturating_sub(PACKET_LEN);
                let begin = end.saturating_sub(PACKET_LEN);
                [&body[..begin], &body[end..]].concat().into()
            }
            Container::FragmentedMp4 => body.slice(..body.len().saturating_sub(1)),
        }
    }

    /// True if the playlist states a wrong duration of this segment, and another follows.
    pub(super) fn is_misstated(&self, resource: Resource) -> bool {
        let Resource::Segment { sequence, .. } = resource else {
            return false;
        };
        let fault = self.config.faults.wrong_duration;
        let is_last = self.timeline.end.is_some_and(|end| sequence + 1 >= end);
        !is_last && is_nth(fault.map(|(nth, _)| nth), sequence)
    }

    /// Duration of a segment as the playlist states it.
    pub(super) fn stated_duration(&self, sequence: u64) -> Duration {
        let fault = self.config.faults.wrong_duration;
        let added = fault.filter(|(nth, _)| is_nth(Some(*nth), sequence));
        let duration = self.timeline.duration(&self.timeline.pictures_of(sequence));
        duration + added.map_or(Duration::ZERO, |(_, time)| time)
    }

    /// True if the playlist states this segment as missing.
    pub(super) fn is_gap(&self, sequence: u64) -> bool {
        is_nth(self.config.faults.gap, sequence)
    }
}

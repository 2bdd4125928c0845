//! Negotiated media sections, and whether media arrives in each of them.

use std::time::Duration;

use measure::Time;

use super::{Track, Tracks};
use kit::media::sdp::MediaKind;
use kit::media::silence;

/// A section in which media is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) mid: String,
    pub(crate) kind: MediaKind,
    /// Track ID given by the server.
    pub(crate) track: Option<String>,
    /// Sources named by the server, each with the SSRC of its retransmissions; empty if it named
    /// none.
    pub(crate) sources: Vec<(u32, Option<u32>)>,
    /// Time of negotiation.
    pub(crate) since: Time,
}

/// Media status of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaStatus {
    /// Media arrives, or arrived until its source sent a BYE.
    Flowing,
    /// No media has arrived for this time, after some had.
    Stopped(Duration),
    /// Media never arrived, for this time since it was possible.
    NeverArrived(Duration),
    /// No media is expected: the sender has muted the track.
    Muted,
    /// The streams of the section cannot be determined.
    Unknown,
}

impl Tracks {
    /// Sets the sections in which media is expected.
    pub(crate) fn set_sections(&mut self, mut sections: Vec<Section>) {
        for section in &mut sections {
            let mut known = self.sections.iter();
            let same = known.find(|known| known.mid == section.mid && known.kind == section.kind);
            if let Some(same) = same {
                section.since = same.since;
            }
        }
        // Nearly all clients have one or two sections, which stay.
        sections.shrink_to_fit();
        self.sections = sections;
    }

    /// Returns the status of each section, for a PeerConnection that connected at `connected_at`.
    /// `silence` is the configured time after which media counts as stopped. `muted_until` returns
    /// the end of the last mute of a track ([`Time::NEVER`] while it is muted).
    pub(crate) fn section_statuses(
        &self,
        now: Time,
        connected_at: Time,
        silence: Duration,
        muted_until: impl Fn(&str) -> Option<Time>,
    ) -> Vec<(&Section, MediaStatus)> {
        let mut sources: Vec<(u32, usize)> = Vec::new();
        for (index, section) in self.sections.iter().enumerate() {
            sources.extend(section.sources.iter().map(|(ssrc, _)| (*ssrc, index)));
        }
        sources.sort_unstable();
        let mut newest: Vec<Option<&Track>> = vec![None; self.sections.len()];
        let mut unassigned = Vec::new();
        for track in self.tracks.iter().filter(|track| track.receiver.is_some()) {
            let index = match sources.binary_search_by_key(&track.ssrc, |(ssrc, _)| *ssrc) {
                Ok(at) => Some(sources[at].1),
                Err(_) => self.sole_section_of_kind(track.kind),
            };
            let Some(index) = index else {
                unassigned.push(track.kind);
                continue;
            };
            if newest[index].is_none_or(|known| known.last_arrival() < track.last_arrival()) {
                newest[index] = Some(track);
            }
        }
        let statuses = self.sections.iter().zip(newest).map(|(section, newest)| {
            let muted = section.track.as_deref().and_then(&muted_until);
            let since = muted.map_or(section.since, |until| section.since.max(until));
            let status = match newest {
                _ if since == Time::NEVER => MediaStatus::Muted,
                Some(track) if track.bye_received => MediaStatus::Flowing,
                Some(track) => track.status(now, since, silence),
                None if unassigned.contains(&section.kind) => MediaStatus::Unknown,
                None => MediaStatus::NeverArrived(now.since(since.max(connected_at))),
            };
            (section, status)
        });
        statuses.collect()
    }

    /// Returns the section of a kind, if it is the only one and names no sources.
    fn sole_section_of_kind(&self, kind: MediaKind) -> Option<usize> {
        let sections = self.sections.iter().enumerate();
        let mut of_kind = sections.filter(|(_, section)| section.kind == kind);
        let (index, only) = of_kind.next()?;
        (of_kind.next().is_none() && only.sources.is_empty()).then_some(index)
    }
}

impl Track {
    fn last_arrival(&self) -> Option<Time> {
        self.receiver.as_ref()?.last_arrival()
    }

    /// Returns the status of the track in a section that was negotiated, perhaps again, at `since`.
    fn status(&self, now: Time, since: Time, silence: Duration) -> MediaStatus {
        let receiver = self.receiver.as_ref();
        let ends = receiver.and_then(|own| own.first_arrival().zip(own.last_arrival()));
        let (Some(receiver), Some((first, last))) = (receiver, ends) else {
            return MediaStatus::Unknown;
        };
        let bound = silence::bound(last.since(first), receiver.longest_gap(), silence);
        let silent = now.since(last.max(since));
        match silent < bound {
            true => MediaStatus::Flowing,
            false => MediaStatus::Stopped(silent),
        }
    }
}

//! Sections of the agreed descriptions, and whether media comes in each of them.

use std::time::Duration;

use measure::Time;

use super::{Track, Tracks};
use crate::media::sdp::MediaKind;
use crate::media::silence;

/// A section in which media is to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::webrtc) struct Section {
    /// What names it.
    pub(in crate::webrtc) mid: String,
    /// Sound or pictures.
    pub(in crate::webrtc) kind: MediaKind,
    /// The name of the server's track.
    pub(in crate::webrtc) track: Option<String>,
    /// The sources that the server named, each with that of its retransmissions; none where it
    /// named none.
    pub(in crate::webrtc) sources: Vec<(u32, Option<u32>)>,
    /// Since when it has been agreed.
    pub(in crate::webrtc) since: Time,
}

/// What comes in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::webrtc) enum Course {
    /// Media, or it did until its source said goodbye.
    Goes,
    /// Nothing for so long, after there was some.
    Stopped(Duration),
    /// Nothing for as long as the section could have had media.
    NeverCame(Duration),
    /// Nothing is to come: who sends it has muted it.
    Muted,
    /// It cannot be told which streams are in it.
    Unknown,
}

impl Tracks {
    /// Says in which sections media is to come from now on.
    pub(in crate::webrtc) fn expect(&mut self, mut sections: Vec<Section>) {
        for section in &mut sections {
            let mut known = self.sections.iter();
            let same = known.find(|known| known.mid == section.mid && known.kind == section.kind);
            if let Some(same) = same {
                section.since = same.since;
            }
        }
        // Nearly all clients have one or two, and they stay.
        sections.shrink_to_fit();
        self.sections = sections;
    }

    /// What comes in each section, over a PeerConnection that has stood since `stood`. `silence` is
    /// the configured time after which media counts as stopped, `muted_until` says until when a
    /// track was muted ([`Time::NEVER`] while it is).
    pub(in crate::webrtc) fn courses(
        &self,
        now: Time,
        stood: Time,
        silence: Duration,
        muted_until: impl Fn(&str) -> Option<Time>,
    ) -> Vec<(&Section, Course)> {
        let mut named: Vec<(u32, usize)> = Vec::new();
        for (place, section) in self.sections.iter().enumerate() {
            named.extend(section.sources.iter().map(|(ssrc, _)| (*ssrc, place)));
        }
        named.sort_unstable();
        let mut newest: Vec<Option<&Track>> = vec![None; self.sections.len()];
        let mut strangers = Vec::new();
        for track in self.tracks.iter().filter(|track| track.receiver.is_some()) {
            let place = match named.binary_search_by_key(&track.ssrc, |(ssrc, _)| *ssrc) {
                Ok(at) => Some(named[at].1),
                Err(_) => self.only_section(track.kind),
            };
            let Some(place) = place else {
                strangers.push(track.kind);
                continue;
            };
            if newest[place].is_none_or(|known| known.last() < track.last()) {
                newest[place] = Some(track);
            }
        }
        let courses = self.sections.iter().zip(newest).map(|(section, newest)| {
            let muted = section.track.as_deref().and_then(&muted_until);
            let since = muted.map_or(section.since, |until| section.since.max(until));
            let course = match newest {
                _ if since == Time::NEVER => Course::Muted,
                Some(track) if track.gone => Course::Goes,
                Some(track) => track.course(now, since, silence),
                None if strangers.contains(&section.kind) => Course::Unknown,
                None => Course::NeverCame(now.since(since.max(stood))),
            };
            (section, course)
        });
        courses.collect()
    }

    /// The only section of a kind, where there is one and it names no sources.
    fn only_section(&self, kind: MediaKind) -> Option<usize> {
        let sections = self.sections.iter().enumerate();
        let mut of_kind = sections.filter(|(_, section)| section.kind == kind);
        let (place, only) = of_kind.next()?;
        (of_kind.next().is_none() && only.sources.is_empty()).then_some(place)
    }
}

impl Track {
    fn last(&self) -> Option<Time> {
        self.receiver.as_ref()?.last_arrival()
    }

    /// Whether it goes on, in a section that was agreed at `since`: again, perhaps.
    fn course(&self, now: Time, since: Time, silence: Duration) -> Course {
        let receiver = self.receiver.as_ref();
        let ends = receiver.and_then(|own| own.first_arrival().zip(own.last_arrival()));
        let (Some(receiver), Some((first, last))) = (receiver, ends) else {
            return Course::Unknown;
        };
        let bound = silence::bound(last.since(first), receiver.longest_gap(), silence);
        let silent = now.since(last.max(since));
        match silent < bound {
            true => Course::Goes,
            false => Course::Stopped(silent),
        }
    }
}

//! What both descriptions come to.

use std::collections::{BTreeMap, BTreeSet};

use super::codec::Codec;
use super::description::{Direction, Extension, MediaKind, MediaSection, SessionDescription};

/// A source of the other side, as far as its description names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSource {
    /// Its synchronisation source.
    pub ssrc: u32,
    /// That of its retransmissions.
    pub rtx_ssrc: Option<u32>,
}

/// One section that both sides take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Its place among the sections.
    pub place: usize,
    /// What names it.
    pub mid: String,
    /// Sound or pictures.
    pub kind: MediaKind,
    /// Who sends, as this side sees it.
    pub direction: Direction,
    /// Codecs in order of preference, with the payload types of the answer. For media that this
    /// side offered to receive, the payload types are those of the offer (RFC 3264, 5.1).
    pub codecs: Vec<Codec>,
    /// Header extensions, under the answer's numbers.
    pub extensions: Vec<Extension>,
    /// The name that the other side has for its track (`a=msid`, RFC 8830, 2).
    pub track: Option<String>,
    /// The other side's sources; none where it does not name them (simulcast by RID).
    pub remote_sources: Vec<RemoteSource>,
    /// The layers of a simulcast that the other side receives, by RID, as it names them (RFC 8853,
    /// 5.1): of alternatives the first. None where it takes one stream.
    pub layers: Vec<String>,
}

impl Agreed {
    /// Whether a codec has that feedback, by its words in `a=rtcp-fb`.
    pub fn has_feedback(&self, words: &str) -> bool {
        let mut all = self.codecs.iter().flat_map(|codec| &codec.feedback);
        all.any(|own| own == words)
    }

    /// The number of a header extension.
    pub fn extension_id(&self, uri: &str) -> Option<u16> {
        let mut extensions = self.extensions.iter();
        extensions.find(|own| own.uri == uri).map(|own| own.id)
    }
}

/// What both sides take: the sections of media that neither refuses. `answer` is the one of both
/// that was made last; the other side's is `remote`.
pub fn agreed(
    local: &SessionDescription,
    remote: &SessionDescription,
    local_is_answer: bool,
) -> Vec<Agreed> {
    let pairs = local.media.iter().zip(&remote.media).enumerate();
    let media = pairs.filter(|(_, (local, _))| local.kind != MediaKind::Application);
    let taken = media.filter(|(_, (local, remote))| !local.rejected && !remote.rejected);
    let agreed = taken.map(|(place, (local, remote))| {
        let answer = if local_is_answer { local } else { remote };
        Agreed {
            place,
            mid: local.mid.clone(),
            kind: local.kind,
            direction: Direction::of(
                local.direction.sends() && remote.direction.receives(),
                local.direction.receives() && remote.direction.sends(),
            ),
            codecs: match local_is_answer || local.direction.sends() {
                true => answer.codecs.clone(),
                false => received(local, remote),
            },
            extensions: answer.extensions.clone(),
            track: track(remote),
            remote_sources: sources(remote),
            layers: layers(remote),
        }
    });
    agreed.collect()
}

/// Codecs of a section that was offered to be received: all offered codecs with their payload
/// types, whatever the answer says, as in browsers. Feedback is that of the same codec in the
/// answer.
fn received(offered: &MediaSection, answer: &MediaSection) -> Vec<Codec> {
    let codec = |own: &Codec| Codec {
        feedback: counterpart(own, &answer.codecs)
            .map_or_else(Vec::new, |own| own.feedback.clone()),
        ..own.clone()
    };
    offered.codecs.iter().map(codec).collect()
}

/// Finds the codec in the answer. Servers alter parameters and payload types: among several, the
/// one with the same payload type or parameters is taken.
fn counterpart<'a>(offered: &Codec, answered: &'a [Codec]) -> Option<&'a Codec> {
    let same = |own: &&Codec| own.is(&offered.name) && own.clock_rate == offered.clock_rate;
    let mut all = answered.iter().filter(same);
    let exact = all.clone().find(|own| {
        own.payload_type == offered.payload_type || own.parameters == offered.parameters
    });
    exact.or_else(|| all.next())
}

fn track(section: &MediaSection) -> Option<String> {
    let mut words = section.msid.as_deref()?.split_ascii_whitespace();
    words.nth(1).map(str::to_owned)
}

/// The most layers that are looked at.
const LAYERS_MAX: usize = 16;

/// What stands behind `recv` in `a=simulcast`. A layer that begins with `~` is not to be sent until
/// it is asked for (RFC 8853, 5.1), for which nothing is agreed upon here: it is left out.
fn layers(section: &MediaSection) -> Vec<String> {
    let mut words = section.simulcast.iter();
    let mut words = words
        .next()
        .into_iter()
        .flat_map(|text| text.split_ascii_whitespace());
    let received = words
        .find(|word| *word == "recv")
        .and_then(|_| words.next());
    let layers = received.into_iter().flat_map(|list| list.split(';'));
    let first = layers.filter_map(|layer| layer.split(',').next());
    first
        .filter(|layer| !layer.starts_with('~'))
        .map(str::to_owned)
        .take(LAYERS_MAX)
        .collect()
}

fn sources(section: &MediaSection) -> Vec<RemoteSource> {
    let groups = section.ssrc_groups.iter();
    let groups = groups.filter_map(|group| match (&group.semantics[..], &group.ssrcs[..]) {
        ("FID", [of, rtx]) => Some((*of, *rtx)),
        _ => None,
    });
    // A description may name thousands. Of those that are named twice the first counts.
    let mut of: BTreeMap<u32, u32> = BTreeMap::new();
    let mut repairs: BTreeSet<u32> = BTreeSet::new();
    for (ssrc, rtx) in groups {
        of.entry(ssrc).or_insert(rtx);
        repairs.insert(rtx);
    }
    let media = section.ssrcs.iter().map(|source| source.ssrc);
    let media = media.filter(|ssrc| !repairs.contains(ssrc));
    let source = |ssrc| RemoteSource {
        ssrc,
        rtx_ssrc: of.get(&ssrc).copied(),
    };
    media.map(source).collect()
}

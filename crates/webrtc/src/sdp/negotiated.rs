//! Result of a negotiation.

use std::collections::{BTreeMap, BTreeSet};

use super::codec::Codec;
use super::description::{Direction, HeaderExtension, MediaKind, MediaSection, SessionDescription};

/// A source of the other side, if its description names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSource {
    pub ssrc: u32,
    /// SSRC of its retransmissions.
    pub rtx_ssrc: Option<u32>,
}

/// A media section that both sides accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiatedMedia {
    /// Index of the section.
    pub index: usize,
    pub mid: String,
    pub kind: MediaKind,
    /// Direction as seen by this side.
    pub direction: Direction,
    /// Codecs in order of preference, with the payload types of the answer. For media that this
    /// side offered to receive, the payload types are those of the offer (RFC 3264, 5.1).
    pub codecs: Vec<Codec>,
    /// Header extensions with the IDs of the answer.
    pub extensions: Vec<HeaderExtension>,
    /// Track ID of the other side (`a=msid`, RFC 8830, 2).
    pub track: Option<String>,
    /// Sources of the other side; empty if it does not name them (simulcast by RID).
    pub remote_sources: Vec<RemoteSource>,
    /// RIDs of the simulcast layers that the other side receives, in its order (RFC 8853, 5.1); the
    /// first of each set of alternatives. Empty if it receives a single stream.
    pub layers: Vec<String>,
}

impl NegotiatedMedia {
    /// Returns `true` if any codec has that feedback, by its value in `a=rtcp-fb`.
    pub fn has_feedback(&self, words: &str) -> bool {
        self.codecs.iter().any(|codec| codec.has_feedback(words))
    }

    /// Returns the ID of a header extension, if it is valid.
    pub fn extension_id(&self, uri: &str) -> Option<u8> {
        HeaderExtension::find_id(&self.extensions, uri)
    }
}

/// Returns the media sections that both sides accepted. `local_is_answer` is true if this side's
/// description is the answer, and false if `remote` is.
pub fn negotiated_media(
    local: &SessionDescription,
    remote: &SessionDescription,
    local_is_answer: bool,
) -> Vec<NegotiatedMedia> {
    let pairs = local.media.iter().zip(&remote.media).enumerate();
    let media = pairs.filter(|(_, (local, _))| local.kind != MediaKind::Application);
    let accepted = media.filter(|(_, (local, remote))| !local.rejected && !remote.rejected);
    let negotiated = accepted.map(|(index, (local, remote))| {
        let answer = if local_is_answer { local } else { remote };
        NegotiatedMedia {
            index,
            mid: local.mid.clone(),
            kind: local.kind,
            direction: Direction::of(
                local.direction.sends() && remote.direction.receives(),
                local.direction.receives() && remote.direction.sends(),
            ),
            codecs: match local_is_answer || local.direction.sends() {
                true => answer.codecs.clone(),
                false => receive_codecs(local, remote),
            },
            extensions: answer.extensions.clone(),
            track: remote_track_id(remote),
            remote_sources: remote_sources(remote),
            layers: receive_layers(remote),
        }
    });
    negotiated.collect()
}

/// Returns the codecs of a section that was offered to be received: all offered codecs with their
/// payload types, whatever the answer contains, as in browsers. The feedback is that of the same
/// codec in the answer.
fn receive_codecs(offered: &MediaSection, answer: &MediaSection) -> Vec<Codec> {
    let codec = |own: &Codec| Codec {
        feedback: matching_codec(own, &answer.codecs)
            .map_or_else(Vec::new, |own| own.feedback.clone()),
        ..own.clone()
    };
    offered.codecs.iter().map(codec).collect()
}

/// Finds an offered codec in the answer. Servers change parameters and payload types, so the codec
/// with the same payload type or parameters is preferred among several.
fn matching_codec<'a>(offered: &Codec, answered: &'a [Codec]) -> Option<&'a Codec> {
    let same = |own: &&Codec| own.has_name(&offered.name) && own.clock_rate == offered.clock_rate;
    let mut all = answered.iter().filter(same);
    let exact = all.clone().find(|own| {
        own.payload_type == offered.payload_type || own.parameters == offered.parameters
    });
    exact.or_else(|| all.next())
}

fn remote_track_id(section: &MediaSection) -> Option<String> {
    let mut words = section.msid.as_deref()?.split_ascii_whitespace();
    words.nth(1).map(str::to_owned)
}

/// Maximum number of layers that are returned.
const LAYERS_MAX: usize = 16;

/// Returns the layers after `recv` in `a=simulcast`. A layer with a leading `~` is initially paused
/// (RFC 8853, 5.1); resuming it is not negotiated here, so it is left out.
fn receive_layers(section: &MediaSection) -> Vec<String> {
    let text = section.simulcast.as_deref().unwrap_or_default();
    let mut words = text
        .split_ascii_whitespace()
        .skip_while(|word| *word != "recv");
    let layers = words.nth(1).into_iter().flat_map(|list| list.split(';'));
    let first = layers.filter_map(|layer| layer.split(',').next());
    first
        .filter(|layer| !layer.starts_with('~'))
        .map(str::to_owned)
        .take(LAYERS_MAX)
        .collect()
}

fn remote_sources(section: &MediaSection) -> Vec<RemoteSource> {
    let groups = section.ssrc_groups.iter();
    let groups = groups.filter_map(|group| match (&group.semantics[..], &group.ssrcs[..]) {
        ("FID", [of, rtx]) => Some((*of, *rtx)),
        _ => None,
    });
    // A description may name thousands of sources. The first of several groups for a source counts.
    let mut of: BTreeMap<u32, u32> = BTreeMap::new();
    let mut rtx_ssrcs: BTreeSet<u32> = BTreeSet::new();
    for (ssrc, rtx) in groups {
        of.entry(ssrc).or_insert(rtx);
        rtx_ssrcs.insert(rtx);
    }
    let media = section.ssrcs.iter().map(|source| source.ssrc);
    let media = media.filter(|ssrc| !rtx_ssrcs.contains(ssrc));
    let source = |ssrc| RemoteSource {
        ssrc,
        rtx_ssrc: of.get(&ssrc).copied(),
    };
    media.map(source).collect()
}

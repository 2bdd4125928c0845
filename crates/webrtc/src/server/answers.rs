//! Answers to offers: selected media and their payload types.

use super::publication::Track;
use crate::sdp::{
    AnswerConfig, Codec, Direction, FeedbackTypes, LocalSource, MediaKind, MediaSection,
    SessionDescription, TransportParameters, extension,
};

/// A track as it is sent to a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentTrack {
    /// Index of the track in its stream.
    pub(super) track: usize,
    pub(super) kind: MediaKind,
    pub(super) payload_type: u8,
    /// `nack` is true if the player requests missing packets. `rtx` is the payload type of the RTX
    /// stream for retransmissions, if the player takes RTX.
    pub(super) nack: bool,
    pub(super) rtx: Option<u8>,
    pub(super) ssrc: u32,
    pub(super) rtx_ssrc: u32,
    /// ID of the header extension with transport-wide sequence numbers.
    pub(super) transport_cc_id: Option<u8>,
    pub(super) audio_level_id: Option<u8>,
}

/// A track as it is received from a publisher.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReceivedTrack {
    pub(super) track: Track,
    pub(super) payload_type: u8,
    /// True if the publisher retransmits requested packets.
    pub(super) nack: bool,
    /// ID of the header extension with transport-wide sequence numbers.
    pub(super) transport_cc_id: Option<u8>,
    pub(super) audio_level_id: Option<u8>,
}

/// Server's part of an answer.
pub(super) struct LocalParams {
    pub(super) transport: TransportParameters,
    /// Session ID of the description's `o=` line.
    pub(super) session_id: u64,
    pub(super) cname: String,
    /// True if the packets of a transport are numbered.
    pub(super) transport_cc: bool,
}

/// Returns the ID of the transport-wide sequence number extension, if the section has both the
/// extension and `transport-cc` feedback for the codec.
fn transport_cc_id_of(section: &MediaSection, payload_type: u8) -> Option<u8> {
    let codec = section.codec(payload_type)?;
    let id = section.extension_id(extension::TRANSPORT_CC);
    id.filter(|_| codec.has_feedback("transport-cc"))
}

/// Returns the feedback that players may send. Bandwidth estimates (REMB) are counted but not acted
/// on. `transport_cc` is true if the packets of a transport are numbered.
pub(super) fn player_feedback(transport_cc: bool) -> FeedbackTypes {
    FeedbackTypes {
        transport_cc,
        ..FeedbackTypes::default()
    }
}

/// Returns the packetization mode of H.264 (RFC 6184, 8.1); the result is equal for all other
/// codecs.
fn packetization(codec: &Codec) -> &str {
    codec.parameter("packetization-mode").unwrap_or("0")
}

/// Reduces a section to the first wanted codec and its retransmissions. Returns the payload type of
/// that codec; rejects the section if no codec is wanted.
fn retain_one_codec(section: &mut MediaSection, wanted: impl Fn(&Codec) -> bool) -> Option<u8> {
    let mut media = section.codecs.iter();
    let chosen = media.find(|codec| codec.is_media() && wanted(codec));
    let chosen = chosen.map(|codec| codec.payload_type);
    match chosen {
        Some(chosen) => section.codecs.retain(|codec| {
            codec.payload_type == chosen || codec.associated_payload_type() == Some(chosen)
        }),
        None => reject_section(section),
    }
    chosen
}

fn reject_section(section: &mut MediaSection) {
    section.rejected = true;
    section.direction = Direction::Inactive;
    // A media line must list at least one format, even if it is rejected.
    section.codecs.truncate(1);
    section.ssrcs.clear();
    section.ssrc_groups.clear();
    section.candidates.clear();
}

/// Removes rejected sections from the BUNDLE group, and lists the candidates only once.
fn remove_rejected(answer: &mut SessionDescription) {
    let rejected = answer.media.iter().filter(|media| media.rejected);
    let rejected: Vec<String> = rejected.map(|media| media.mid.clone()).collect();
    answer.bundle.retain(|mid| !rejected.contains(mid));
    answer.keep_first_candidates();
}

/// Answers a player's offer for a stream with these tracks. `ssrcs` returns the SSRCs of a track
/// and of its retransmissions. Returns `None` if the player accepts no track.
pub(super) fn answer_player(
    offer: &SessionDescription,
    tracks: &[Track],
    ssrcs: impl Fn(usize) -> (u32, u32),
    local: &LocalParams,
) -> Option<(SessionDescription, Vec<SentTrack>)> {
    let source = |(index, track): (usize, &Track)| {
        let (ssrc, rtx_ssrc) = ssrcs(index);
        let source = LocalSource {
            ssrc,
            rtx_ssrc: Some(rtx_ssrc),
            cname: local.cname.clone(),
            stream_id: "streamgauge".to_owned(),
            track_id: format!("{}{index}", track.kind.name()),
            layers: Vec::new(),
        };
        (track.kind, source)
    };
    let config = AnswerConfig {
        receive: false,
        sources: tracks.iter().enumerate().map(source).collect(),
        codecs: tracks
            .iter()
            .map(|track| track.codec.name.clone())
            .collect(),
        extensions: extensions(MediaKind::Audio, local.transport_cc),
        feedback: player_feedback(local.transport_cc),
        ..AnswerConfig::receive_all(local.session_id)
    };
    let mut answer = offer.answer(&config, &local.transport);
    let mut sent_tracks = Vec::new();
    for section in answer.media.iter_mut().filter(|media| !media.rejected) {
        let own_ssrc = section.ssrcs.first().map(|source| source.ssrc);
        let index = (0..tracks.len()).find(|index| Some(ssrcs(*index).0) == own_ssrc);
        let Some(index) = index else {
            // The player may ask for more tracks than the stream has.
            retain_one_codec(section, |_| true);
            continue;
        };
        let wanted = &tracks[index].codec;
        let fits = |codec: &Codec| {
            codec.has_name(&wanted.name)
                && codec.clock_rate == wanted.clock_rate
                && packetization(codec) == packetization(wanted)
        };
        let Some(payload_type) = retain_one_codec(section, fits) else {
            continue;
        };
        let ssrcs = ssrcs(index);
        if section.rtx_payload_type(payload_type).is_none() {
            section.ssrcs.retain(|source| source.ssrc != ssrcs.1);
            section.ssrc_groups.clear();
        }
        sent_tracks.extend(sent_track_of(section, (index, payload_type), ssrcs));
    }
    remove_rejected(&mut answer);
    (!sent_tracks.is_empty()).then_some((answer, sent_tracks))
}

/// Returns the track that is sent in a section. The arguments name the track's index in its stream,
/// its payload type and its SSRCs. Returns `None` if the section lacks the payload type.
pub(super) fn sent_track_of(
    section: &MediaSection,
    (track, payload_type): (usize, u8),
    (ssrc, rtx_ssrc): (u32, u32),
) -> Option<SentTrack> {
    Some(SentTrack {
        track,
        kind: section.kind,
        payload_type,
        nack: section.codec(payload_type)?.has_feedback("nack"),
        rtx: section.rtx_payload_type(payload_type),
        ssrc,
        rtx_ssrc,
        transport_cc_id: transport_cc_id_of(section, payload_type),
        audio_level_id: section.extension_id(extension::AUDIO_LEVEL),
    })
}

/// Returns the header extensions of media of this kind.
pub(super) fn extensions(kind: MediaKind, transport_cc: bool) -> Vec<String> {
    let level = (kind == MediaKind::Audio).then_some(extension::AUDIO_LEVEL);
    let numbers = transport_cc.then_some(extension::TRANSPORT_CC);
    let all = level.into_iter().chain(numbers);
    all.map(str::to_owned).collect()
}

/// Answers a publisher's offer: accepts the first audio and the first video section. Returns `None`
/// if the offer sends neither.
pub(super) fn answer_publisher(
    offer: &SessionDescription,
    local: &LocalParams,
) -> Option<(SessionDescription, Vec<ReceivedTrack>)> {
    let config = AnswerConfig {
        extensions: extensions(MediaKind::Audio, local.transport_cc),
        // Retransmissions of publishers arrive in the stream itself.
        feedback: FeedbackTypes {
            rtx: false,
            remb: false,
            ..player_feedback(local.transport_cc)
        },
        ..AnswerConfig::receive_all(local.session_id)
    };
    let mut answer = offer.answer(&config, &local.transport);
    let mut received: Vec<ReceivedTrack> = Vec::new();
    for section in answer.media.iter_mut().filter(|media| !media.rejected) {
        let kind = section.kind;
        let is_first = received.iter().all(|other| other.track.kind != kind);
        if !is_first || !section.direction.receives() {
            reject_section(section);
            continue;
        }
        // Simulcast layers would be several streams of one track.
        section.rids.clear();
        section.simulcast = None;
        let Some(payload_type) = retain_one_codec(section, |_| true) else {
            continue;
        };
        let codec = section.codec(payload_type).cloned();
        let codec = codec.expect("it was left in the section");
        received.push(ReceivedTrack {
            nack: codec.has_feedback("nack"),
            transport_cc_id: transport_cc_id_of(section, payload_type),
            audio_level_id: section.extension_id(extension::AUDIO_LEVEL),
            track: Track {
                kind,
                codec: Codec {
                    feedback: Vec::new(),
                    ..codec
                },
            },
            payload_type,
        });
    }
    remove_rejected(&mut answer);
    (!received.is_empty()).then_some((answer, received))
}

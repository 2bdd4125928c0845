//! Answers to offers: which media, under which payload types.

use super::relay::Track;
use crate::webrtc::sdp::{
    AnswerConfig, Codec, Direction, Feedback, LocalSource, MediaKind, MediaSection,
    SessionDescription, Transport, extension,
};

/// How a media goes to a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// Which of the stream's.
    pub(super) track: usize,
    pub(super) kind: MediaKind,
    pub(super) payload_type: u8,
    /// Whether the player asks for what is missing, and the payload type of the stream in which it
    /// then comes, where it has one of its own.
    pub(super) nack: bool,
    pub(super) rtx: Option<u8>,
    pub(super) ssrc: u32,
    pub(super) rtx_ssrc: u32,
    /// The number of the header extension that numbers the packets of the transport.
    pub(super) transport: Option<u8>,
    /// The number of the header extension that tells how loud sound is.
    pub(super) level: Option<u8>,
}

/// How a media comes of a publisher.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Taken {
    pub(super) track: Track,
    pub(super) payload_type: u8,
    /// Whether the publisher sends again what it is asked for.
    pub(super) nack: bool,
    /// The number of the header extension that numbers the packets of the transport.
    pub(super) transport: Option<u8>,
    /// The number of the header extension that tells how loud sound is.
    pub(super) level: Option<u8>,
}

/// What the answer says of this side.
pub(super) struct Own<'a> {
    pub(super) transport: &'a Transport,
    /// The number that names the session.
    pub(super) session_id: u64,
    pub(super) cname: &'a str,
    /// Whether packets of a transport are numbered.
    pub(super) transport_cc: bool,
}

impl Own<'_> {
    /// Which feedback there is, of that.
    fn feedback(&self, of: Feedback) -> Feedback {
        Feedback {
            transport_cc: self.transport_cc,
            ..of
        }
    }

    /// Which header extensions are taken.
    fn extensions(&self) -> Vec<String> {
        let numbers = self.transport_cc.then_some(extension::TRANSPORT_CC);
        let all = [extension::AUDIO_LEVEL].into_iter().chain(numbers);
        all.map(str::to_owned).collect()
    }
}

/// The number of the extension in a section of which that codec is left, where both say so.
fn transport_of(section: &MediaSection, payload_type: u8) -> Option<u8> {
    let codec = section.codec(payload_type)?;
    let mut feedback = codec.feedback.iter();
    feedback.find(|words| *words == "transport-cc")?;
    u8::try_from(section.extension_id(extension::TRANSPORT_CC)?).ok()
}

/// The number of the extension that tells how loud sound is.
fn level_of(section: &MediaSection) -> Option<u8> {
    u8::try_from(section.extension_id(extension::AUDIO_LEVEL)?).ok()
}

/// Feedback that players may give. How much they say that they can take is counted, not heeded.
const OF_PLAYERS: Feedback = Feedback {
    nack: true,
    rtx: true,
    pli: true,
    fir: true,
    remb: true,
    ..Feedback::NONE
};

/// Feedback that publishers are given. What they send again comes in the stream itself.
const TO_PUBLISHERS: Feedback = Feedback {
    rtx: false,
    remb: false,
    ..OF_PLAYERS
};

/// What repairs or accompanies media, and is none.
const BESIDE_MEDIA: [&str; 6] = [
    "rtx",
    "red",
    "ulpfec",
    "flexfec-03",
    "CN",
    "telephone-event",
];

fn is_media(codec: &Codec) -> bool {
    !BESIDE_MEDIA.iter().any(|name| codec.is(name))
}

/// How packets of H.264 may be made up (RFC 6184, 8.1); the same for all of any other codec.
fn packetization(codec: &Codec) -> &str {
    codec.parameter("packetization-mode").unwrap_or("0")
}

/// Leaves one codec in a section, and its retransmissions; says which. Without one the section is
/// refused.
fn keep_one(section: &mut MediaSection, wanted: impl Fn(&Codec) -> bool) -> Option<u8> {
    let mut media = section.codecs.iter();
    let chosen = media.find(|codec| is_media(codec) && wanted(codec));
    let chosen = chosen.map(|codec| codec.payload_type);
    match chosen {
        Some(chosen) => section
            .codecs
            .retain(|codec| codec.payload_type == chosen || codec.retransmits() == Some(chosen)),
        None => refuse(section),
    }
    chosen
}

fn refuse(section: &mut MediaSection) {
    section.rejected = true;
    section.direction = Direction::Inactive;
    // A media line names one all the same.
    section.codecs.truncate(1);
    section.ssrcs.clear();
    section.ssrc_groups.clear();
    section.candidates.clear();
}

/// Takes refused sections out of what shares a transport, and tells addresses once.
fn settle(answer: &mut SessionDescription) {
    let refused = answer.media.iter().filter(|media| media.rejected);
    let refused: Vec<String> = refused.map(|media| media.mid.clone()).collect();
    answer.bundle.retain(|mid| !refused.contains(mid));
    answer.tell_addresses_once();
}

fn says_nack(codec: &Codec) -> bool {
    codec.feedback.iter().any(|words| words == "nack")
}

/// The answer to a player, of a stream with these media; `ssrcs` are the sources of each, and of
/// its retransmissions. `None`: it takes none of them.
pub(super) fn answer_player(
    offer: &SessionDescription,
    tracks: &[Track],
    ssrcs: impl Fn(usize) -> (u32, u32),
    own: &Own<'_>,
) -> Option<(SessionDescription, Vec<Planned>)> {
    let source = |(place, track): (usize, &Track)| {
        let (ssrc, rtx_ssrc) = ssrcs(place);
        let source = LocalSource {
            ssrc,
            rtx_ssrc: Some(rtx_ssrc),
            cname: own.cname.to_owned(),
            stream: "streamgauge".to_owned(),
            track: format!("{}{place}", track.kind.name()),
            layers: Vec::new(),
        };
        (track.kind, source)
    };
    let config = AnswerConfig {
        session_id: own.session_id,
        version: 2,
        receive: false,
        sources: tracks.iter().enumerate().map(source).collect(),
        codecs: tracks.iter().map(|own| own.codec.name.clone()).collect(),
        extensions: own.extensions(),
        feedback: own.feedback(OF_PLAYERS),
        data: false,
    };
    let mut answer = offer.answer(&config, own.transport);
    let mut planned = Vec::new();
    for section in answer.media.iter_mut().filter(|media| !media.rejected) {
        let own_ssrc = section.ssrcs.first().map(|source| source.ssrc);
        let place = (0..tracks.len()).find(|place| Some(ssrcs(*place).0) == own_ssrc);
        let Some(place) = place else {
            // The player may want more than there is.
            keep_one(section, |_| true);
            continue;
        };
        let wanted = &tracks[place].codec;
        let fits = |codec: &Codec| {
            codec.is(&wanted.name)
                && codec.clock_rate == wanted.clock_rate
                && packetization(codec) == packetization(wanted)
        };
        let Some(payload_type) = keep_one(section, fits) else {
            continue;
        };
        let (ssrc, rtx_ssrc) = ssrcs(place);
        let rtx = section.retransmissions_of(payload_type);
        if rtx.is_none() {
            section.ssrcs.retain(|source| source.ssrc != rtx_ssrc);
            section.ssrc_groups.clear();
        }
        planned.push(Planned {
            track: place,
            kind: section.kind,
            payload_type,
            nack: section.codec(payload_type).is_some_and(says_nack),
            rtx,
            ssrc,
            rtx_ssrc,
            transport: transport_of(section, payload_type),
            level: level_of(section),
        });
    }
    settle(&mut answer);
    (!planned.is_empty()).then_some((answer, planned))
}

/// A media that was offered, as the answer takes it; `None` where it does not. It is the one of
/// that place in its stream, and has that payload type and those sources.
pub(super) fn planned_of(
    answered: &MediaSection,
    (track, payload_type): (usize, u8),
    (ssrc, rtx_ssrc): (u32, u32),
) -> Option<Planned> {
    let codec = answered.codec(payload_type)?;
    let taken = !answered.rejected && answered.direction.receives();
    taken.then(|| Planned {
        track,
        kind: answered.kind,
        payload_type,
        nack: says_nack(codec),
        rtx: answered.retransmissions_of(payload_type),
        ssrc,
        rtx_ssrc,
        transport: transport_of(answered, payload_type),
        level: level_of(answered),
    })
}

/// The header extensions that are offered to who is in a room.
pub(super) fn offered_extensions(kind: MediaKind, transport_cc: bool) -> Vec<String> {
    let level = (kind == MediaKind::Audio).then_some(extension::AUDIO_LEVEL);
    let numbers = transport_cc.then_some(extension::TRANSPORT_CC);
    let all = level.into_iter().chain(numbers);
    all.map(str::to_owned).collect()
}

/// The feedback that is offered to who is in a room.
pub(super) fn offered_feedback(transport_cc: bool) -> Feedback {
    Feedback {
        transport_cc,
        ..OF_PLAYERS
    }
}

/// The answer to a publisher: the first sound and the first pictures are taken. `None`: it sends
/// neither.
pub(super) fn answer_publisher(
    offer: &SessionDescription,
    own: &Own<'_>,
) -> Option<(SessionDescription, Vec<Taken>)> {
    let config = AnswerConfig {
        extensions: own.extensions(),
        feedback: own.feedback(TO_PUBLISHERS),
        ..AnswerConfig::receive_all(own.session_id)
    };
    let mut answer = offer.answer(&config, own.transport);
    let mut taken: Vec<Taken> = Vec::new();
    for section in answer.media.iter_mut().filter(|media| !media.rejected) {
        let kind = section.kind;
        let is_first = taken.iter().all(|other| other.track.kind != kind);
        if !is_first || !section.direction.receives() {
            refuse(section);
            continue;
        }
        // Layers of a simulcast would be several streams of one media.
        section.rids.clear();
        section.simulcast = None;
        let Some(payload_type) = keep_one(section, |_| true) else {
            continue;
        };
        let codec = section.codec(payload_type).cloned();
        let codec = codec.expect("it was left in the section");
        taken.push(Taken {
            nack: says_nack(&codec),
            transport: transport_of(section, payload_type),
            level: level_of(section),
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
    settle(&mut answer);
    (!taken.is_empty()).then_some((answer, taken))
}

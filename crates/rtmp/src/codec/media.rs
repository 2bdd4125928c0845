//! Headers of audio and video messages (Adobe, "Video File Format Specification 10.1", E.4.2 and
//! E.4.3; Veovera, "Enhanced RTMP" v1 and v2).

use std::fmt;

use kit::mediagen::time_code::TimeCode;
use serde::{Serialize, Serializer};

/// Audio or video codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Avc,
    Aac,
    /// Codec that Enhanced RTMP names by four characters.
    FourCc([u8; 4]),
    /// Codec number of FLV: video up to 15, audio from 16 on.
    Other(u8),
}

impl fmt::Display for Codec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Avc => out.write_str("h264"),
            Codec::Aac => out.write_str("aac"),
            Codec::FourCc(name) => match name {
                b"avc1" => out.write_str("h264"),
                b"hvc1" => out.write_str("hevc"),
                b"vvc1" => out.write_str("vvc"),
                b"av01" => out.write_str("av1"),
                b"vp08" => out.write_str("vp8"),
                b"vp09" => out.write_str("vp9"),
                b"mp4a" => out.write_str("aac"),
                b"Opus" => out.write_str("opus"),
                b"fLaC" => out.write_str("flac"),
                b"ac-3" => out.write_str("ac3"),
                b"ec-3" => out.write_str("eac3"),
                b".mp3" => out.write_str("mp3"),
                name => name.escape_ascii().fmt(out),
            },
            Codec::Other(number @ ..16) => write!(out, "video {number}"),
            // FLV, E.4.2.1.
            Codec::Other(18) => out.write_str("mp3"),
            Codec::Other(23) => out.write_str("pcma"),
            Codec::Other(24) => out.write_str("pcmu"),
            Codec::Other(27) => out.write_str("speex"),
            Codec::Other(number) => write!(out, "audio {}", number - 16),
        }
    }
}

impl Serialize for Codec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Content of a media message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketContent {
    /// Decoder configuration (sequence header).
    Config,
    Frame {
        /// True if decoding can start here; always true for audio.
        key: bool,
    },
    /// Sequence end, metadata, or a command to the player.
    Other,
    /// Unknown codec or packet type, so the content may be anything.
    Unknown,
}

/// Header of a media message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaHeader {
    /// The codec; `None` if the message states none.
    pub codec: Option<Codec>,
    pub content: PacketContent,
    /// Track ID; 0 unless stated. For several tracks in one message, that of the first.
    pub track: u8,
    /// Offset of the data for the decoder.
    pub data: usize,
}

/// Codec number of H.264 (FLV, E.4.3.1).
const FLV_AVC: u8 = 7;
/// HEVC, as many servers and players in China use it. FLV does not define this number. Packets look
/// like those of H.264.
const FLV_HEVC: u8 = 12;
/// Codec number of AAC (FLV, E.4.2.1).
const FLV_AAC: u8 = 10;
/// Sound format that marks a header of Enhanced RTMP v2.
const FLV_AUDIO_EXTENDED: u8 = 9;
/// Frame types of a key frame and of a command (FLV, E.4.3.1).
const FRAME_TYPE_KEY: u8 = 1;
const FRAME_TYPE_COMMAND: u8 = 5;

/// Packet types of Enhanced RTMP v2 ("Enhanced Audio", `AudioPacketType`; "Enhanced Video",
/// `VideoPacketType`).
mod packet {
    pub(super) const SEQUENCE_START: u8 = 0;
    pub(super) const CODED_FRAMES: u8 = 1;
    pub(super) const SEQUENCE_END: u8 = 2;
    /// Video only: like `CODED_FRAMES`, without a composition time.
    pub(super) const CODED_FRAMES_X: u8 = 3;
    /// Video only.
    pub(super) const METADATA: u8 = 4;
    /// Audio only.
    pub(super) const MULTICHANNEL_CONFIG: u8 = 4;
    /// Video only.
    pub(super) const MPEG2_TS_SEQUENCE_START: u8 = 5;
    pub(super) const AUDIO_MULTITRACK: u8 = 5;
    pub(super) const VIDEO_MULTITRACK: u8 = 6;
    pub(super) const MOD_EX: u8 = 7;
}

/// Multitrack types of Enhanced RTMP v2 (`AvMultitrackType`).
const ONE_TRACK: u8 = 0;
const MANY_TRACKS_MANY_CODECS: u8 = 2;

/// Header of Enhanced RTMP v2 (`ExAudioTagHeader`, `ExVideoTagHeader`), up to the data of the first
/// track.
struct ExHeader {
    packet: u8,
    four_cc: [u8; 4],
    track: u8,
    data: usize,
    /// True if all fields have defined values.
    is_known: bool,
}

impl ExHeader {
    /// Reads the header after the packet type, from offset `at` on. Returns `None` if it is
    /// truncated.
    fn read(payload: &[u8], mut packet: u8, mut at: usize, multitrack: u8) -> Option<ExHeader> {
        let (mut kind, mut is_known) = (None, true);
        if packet == multitrack {
            let types = *payload.get(at)?;
            at += 1;
            packet = types & 0x0f;
            // Nested multitrack packets are not allowed.
            is_known = types >> 4 <= MANY_TRACKS_MANY_CODECS
                && packet != multitrack
                && packet != packet::MOD_EX;
            kind = Some(types >> 4);
        }
        // If each track has its own codec, that of the first is here too.
        let name = *payload.get(at..)?.first_chunk()?;
        at += 4;
        let mut track = 0;
        if let Some(kind) = kind {
            track = *payload.get(at)?;
            // The track's size follows, unless it is the only track.
            at += if kind == ONE_TRACK { 1 } else { 4 };
        }
        Some(ExHeader {
            packet,
            four_cc: name,
            track,
            data: at,
            is_known,
        })
    }

    fn tag(&self, content: PacketContent) -> MediaHeader {
        MediaHeader {
            codec: Some(Codec::FourCc(self.four_cc)),
            content: match self.is_known {
                true => content,
                false => PacketContent::Unknown,
            },
            track: self.track,
            data: self.data,
        }
    }
}

/// Skips the `ModEx` prelude of Enhanced RTMP v2, which may be empty. Returns the packet type after
/// it and the offset after that, or `None` if it is truncated.
fn skip_mod_ex(payload: &[u8]) -> Option<(u8, usize)> {
    let mut packet = payload.first()? & 0x0f;
    let mut at = 1;
    while packet == packet::MOD_EX {
        let mut size = usize::from(*payload.get(at)?) + 1;
        at += 1;
        if size == 256 {
            size = usize::from(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?)) + 1;
            at += 2;
        }
        at += size;
        // The upper four bits are the type of the skipped data.
        packet = payload.get(at)? & 0x0f;
        at += 1;
    }
    Some((packet, at))
}

impl MediaHeader {
    /// Creates an FLV header, which has no tracks.
    fn flv(codec: Codec, content: PacketContent, data: usize) -> MediaHeader {
        MediaHeader {
            codec: Some(codec),
            content,
            track: 0,
            data,
        }
    }

    /// Parses the header of a video or an audio message. Returns `None` if it is empty or
    /// truncated.
    #[inline]
    pub fn parse(video: bool, payload: &[u8]) -> Option<MediaHeader> {
        match video {
            true => MediaHeader::parse_video(payload),
            false => MediaHeader::parse_audio(payload),
        }
    }

    /// Parses the header of a video message. Returns `None` if it is empty or truncated.
    #[inline]
    fn parse_video(payload: &[u8]) -> Option<MediaHeader> {
        let (&first, rest) = payload.split_first()?;
        if first & 0x80 != 0 {
            return MediaHeader::parse_extended_video(payload);
        }
        let (kind, codec) = (first >> 4, first & 0x0f);
        let frame = PacketContent::Frame {
            key: kind == FRAME_TYPE_KEY,
        };
        let known = match codec {
            FLV_AVC => Codec::Avc,
            FLV_HEVC => Codec::FourCc(*b"hvc1"),
            // FLV, E.4.3.1: codec numbers outside of this range are undefined and may have packets
            // of any kind.
            1..FLV_AVC => {
                let content = if kind == FRAME_TYPE_COMMAND {
                    PacketContent::Other
                } else {
                    frame
                };
                return Some(MediaHeader::flv(Codec::Other(codec), content, 1));
            }
            _ => {
                let unknown = PacketContent::Unknown;
                return Some(MediaHeader::flv(Codec::Other(codec), unknown, 1));
            }
        };
        let content = match rest.first()? {
            0 => PacketContent::Config,
            1 if kind != FRAME_TYPE_COMMAND => frame,
            _ => PacketContent::Other,
        };
        Some(MediaHeader::flv(known, content, 5))
    }

    /// Parses a header of Enhanced RTMP v2, "Enhanced Video": one flag bit, three bits of frame
    /// type, and four bits of packet type.
    fn parse_extended_video(payload: &[u8]) -> Option<MediaHeader> {
        let kind = payload.first()? >> 4 & 7;
        let (packet, at) = skip_mod_ex(payload)?;
        if kind == FRAME_TYPE_COMMAND && packet != packet::METADATA {
            return Some(MediaHeader {
                codec: None,
                content: PacketContent::Other,
                track: 0,
                data: at,
            });
        }
        let header = ExHeader::read(payload, packet, at, packet::VIDEO_MULTITRACK)?;
        let frame = PacketContent::Frame {
            key: kind == FRAME_TYPE_KEY,
        };
        let mut tag = header.tag(match header.packet {
            packet::SEQUENCE_START | packet::MPEG2_TS_SEQUENCE_START => PacketContent::Config,
            packet::CODED_FRAMES | packet::CODED_FRAMES_X => frame,
            packet::SEQUENCE_END | packet::METADATA => PacketContent::Other,
            _ => PacketContent::Unknown,
        });
        // Composition time.
        if header.packet == packet::CODED_FRAMES
            && matches!(&header.four_cc, b"avc1" | b"hvc1" | b"vvc1")
        {
            tag.data += 3;
        }
        Some(tag)
    }

    /// Parses the header of an audio message. Returns `None` if it is empty or truncated.
    #[inline]
    fn parse_audio(payload: &[u8]) -> Option<MediaHeader> {
        let (&first, rest) = payload.split_first()?;
        let frame = PacketContent::Frame { key: true };
        Some(match first >> 4 {
            FLV_AUDIO_EXTENDED => {
                let (packet, at) = skip_mod_ex(payload)?;
                let header = ExHeader::read(payload, packet, at, packet::AUDIO_MULTITRACK)?;
                header.tag(match header.packet {
                    packet::SEQUENCE_START => PacketContent::Config,
                    packet::CODED_FRAMES => frame,
                    packet::SEQUENCE_END | packet::MULTICHANNEL_CONFIG => PacketContent::Other,
                    _ => PacketContent::Unknown,
                })
            }
            FLV_AAC => {
                let content = match rest.first()? {
                    0 => PacketContent::Config,
                    _ => frame,
                };
                MediaHeader::flv(Codec::Aac, content, 2)
            }
            // Reserved (FLV, E.4.2.1).
            format @ 12..=13 => {
                MediaHeader::flv(Codec::Other(16 + format), PacketContent::Unknown, 1)
            }
            format => MediaHeader::flv(Codec::Other(16 + format), frame, 1),
        })
    }
}

/// Number of NAL units searched for a time code: a delimiter, parameter sets, encoder information.
const UNITS_MAX: usize = 8;

/// Returns the time code of an H.264 frame (ISO/IEC 14496-15, 5.3.4.2), of which the beginning is
/// enough. NAL unit lengths have four bytes, as all servers use them.
#[inline]
pub fn find_time_code(mut units: &[u8]) -> Option<TimeCode> {
    for _ in 0..UNITS_MAX {
        let (length, rest) = units.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let nal = rest.get(..length.min(rest.len()))?;
        match nal.first()? & 0x1f {
            // A picture: a time code would precede it.
            1..=5 => return None,
            6 => {
                if let Some(code) = TimeCode::find(nal) {
                    return Some(code);
                }
            }
            _ => {}
        }
        units = rest.get(length..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn video_headers_are_parsed() {
        let tag = |payload: &[u8]| {
            let tag = MediaHeader::parse_video(payload)?;
            let codec = tag
                .codec
                .map_or_else(String::new, |codec| codec.to_string());
            Some((codec, tag.content, tag.data))
        };
        let frame = |key| PacketContent::Frame { key };
        for (payload, expected) in [
            (
                &[0x17, 0, 0, 0, 0][..],
                Some(("h264", PacketContent::Config, 5)),
            ),
            (&[0x17, 1, 0, 0, 0], Some(("h264", frame(true), 5))),
            (&[0x27, 1, 0, 0, 40], Some(("h264", frame(false), 5))),
            (&[0x17, 2, 0, 0, 0], Some(("h264", PacketContent::Other, 5))),
            (&[0x57, 1, 0, 0, 0], Some(("h264", PacketContent::Other, 5))),
            (&[0x12, 1], Some(("video 2", frame(true), 1))),
            (b"\x90hvc1\x01", Some(("hevc", PacketContent::Config, 5))),
            (b"\x91hvc1\x00\x00\x00", Some(("hevc", frame(true), 8))),
            (b"\xa3hvc1", Some(("hevc", frame(false), 5))),
            (b"\x91av01", Some(("av1", frame(true), 5))),
            (b"\xa1vp09", Some(("vp9", frame(false), 5))),
            (b"\x94av01", Some(("av1", PacketContent::Other, 5))),
            // HEVC without Enhanced RTMP, and codec numbers that FLV does not define.
            (
                &[0x1c, 0, 0, 0, 0],
                Some(("hevc", PacketContent::Config, 5)),
            ),
            (&[0x1c, 1, 0, 0, 0], Some(("hevc", frame(true), 5))),
            (&[0x2c, 1, 0, 0, 0], Some(("hevc", frame(false), 5))),
            (&[0x1c], None),
            (&[0x1d, 1], Some(("video 13", PacketContent::Unknown, 1))),
            (&[0x10, 1], Some(("video 0", PacketContent::Unknown, 1))),
            // A command has no codec, unless it is metadata.
            (b"\xd0\x00", Some(("", PacketContent::Other, 1))),
            (b"\xd4hvc1", Some(("hevc", PacketContent::Other, 5))),
            // ModEx of 3 bytes; two ModEx packets, the second with a 16-bit size; then another
            // packet type.
            (b"\x97\x02\0\0\x01\x01hvc1", Some(("hevc", frame(true), 13))),
            (
                b"\xa7\x02\0\0\x01\x03hvc1",
                Some(("hevc", frame(false), 10)),
            ),
            (
                b"\x97\x00\x05\x07\xff\x00\x02abc\x00av01",
                Some(("av1", PacketContent::Config, 15)),
            ),
            (b"\x97\x02\0\0\x01", None),
            (b"\x97\xff\xff\xff\0", None),
            // Multitrack: one track, several of one codec, several of several codecs.
            (b"\x96\x01hvc1\x02", Some(("hevc", frame(true), 10))),
            (b"\x96\x03hvc1\x02", Some(("hevc", frame(true), 7))),
            (b"\x96\x13av01\x00\0\0\x09", Some(("av1", frame(true), 10))),
            (
                b"\x96\x20av01\x01\0\0\x09",
                Some(("av1", PacketContent::Config, 10)),
            ),
            (
                b"\x96\x31av01\x00",
                Some(("av1", PacketContent::Unknown, 10)),
            ),
            (
                b"\x96\x06av01\x00",
                Some(("av1", PacketContent::Unknown, 7)),
            ),
            (b"\x96\x01hvc1", None),
            (b"\x9aav01", Some(("av1", PacketContent::Unknown, 5))),
            (b"\x91ab\x00\xff", Some(("ab\\x00\\xff", frame(true), 5))),
            (b"\x91av0", None),
            (&[0x17], None),
            (&[], None),
        ] {
            let expected = expected.map(|(codec, content, data)| (codec.to_owned(), content, data));
            assert_eq!(tag(payload), expected, "{payload:?}");
        }
    }

    #[test]
    fn audio_headers_are_parsed() {
        let tag = |payload: &[u8]| {
            let tag = MediaHeader::parse_audio(payload)?;
            let codec = tag
                .codec
                .map_or_else(String::new, |codec| codec.to_string());
            Some((codec, tag.content, tag.data))
        };
        let frame = PacketContent::Frame { key: true };
        for (payload, expected) in [
            (
                &[0xaf, 0, 0x12][..],
                Some(("aac", PacketContent::Config, 2)),
            ),
            (&[0xaf, 1], Some(("aac", frame, 2))),
            (&[0x2f], Some(("mp3", frame, 1))),
            (&[0x82], Some(("pcmu", frame, 1))),
            (b"\x90Opus", Some(("opus", PacketContent::Config, 5))),
            (b"\x91Opus", Some(("opus", frame, 5))),
            (b"\x94mp4a", Some(("aac", PacketContent::Other, 5))),
            (b"\x95\x01mp4a\x01", Some(("aac", frame, 7))),
            (b"\x95\x00mp4a\x01", Some(("aac", PacketContent::Config, 7))),
            (b"\x95\x11Opus\x00\0\0\x05", Some(("opus", frame, 10))),
            (
                b"\x97\x02\0\0\x01\x05\x01mp4a\x01",
                Some(("aac", frame, 12)),
            ),
            (b"\x95mp4", None),
            (&[0xcf, 1], Some(("audio 12", PacketContent::Unknown, 1))),
            (&[0xaf], None),
            (&[], None),
        ] {
            let expected = expected.map(|(codec, content, data)| (codec.to_owned(), content, data));
            assert_eq!(tag(payload), expected, "{payload:?}");
        }
    }

    #[test]
    fn time_code_is_found_before_the_picture() {
        let code = TimeCode {
            source: 1,
            number: 2,
            nanos: 3,
        };
        let nal = code.to_nal();
        let unit = |nal: &[u8]| [&(nal.len() as u32).to_be_bytes()[..], nal].concat();
        let sets = [unit(&[9, 0xf0]), unit(&[0x67; 20]), unit(&[0x68; 4])].concat();
        let all = [sets, unit(&nal), unit(&[0x65; 300])].concat();
        assert_eq!(find_time_code(&all), Some(code));
        assert_eq!(find_time_code(&all[..100]), Some(code));
        assert_eq!(find_time_code(&all[..60]), None);
        let behind = [unit(&[0x65; 30]), unit(&nal)].concat();
        assert_eq!(find_time_code(&behind), None);
        assert_eq!(find_time_code(&[255; 40]), None);
    }
}

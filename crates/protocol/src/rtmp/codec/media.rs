//! What messages of audio and video begin with (Adobe, "Video File Format Specification 10.1",
//! E.4.2 and E.4.3; Veovera, "Enhanced RTMP" v1 and v2).

use std::fmt;

use mediagen::time_code::TimeCode;
use serde::{Serialize, Serializer};

/// How media is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// H.264.
    Avc,
    /// AAC.
    Aac,
    /// What Enhanced RTMP names by four characters.
    FourCc([u8; 4]),
    /// A number of FLV: of video up to 15, of audio from 16 on.
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

/// What a message of media holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// What a decoder needs beforehand.
    Config,
    /// A frame.
    Frame {
        /// Whether a decoder can begin with it. Of audio always.
        key: bool,
    },
    /// Neither: an end, metadata, a command to the player.
    Other,
}

/// The beginning of a message of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// How it is coded.
    pub codec: Codec,
    /// What it holds.
    pub content: Content,
    /// Where what the decoder gets begins.
    pub data: usize,
}

/// The number of H.264 (FLV, E.4.3.1).
const FLV_AVC: u8 = 7;
/// The number of AAC (FLV, E.4.2.1).
const FLV_AAC: u8 = 10;
/// The number of what Enhanced RTMP v2 has instead of a format of sound.
const FLV_AUDIO_EXTENDED: u8 = 9;
/// The frame type of a picture that a decoder can begin with, and of a command (FLV, E.4.3.1).
const KEY: u8 = 1;
const COMMAND: u8 = 5;

impl Tag {
    /// Reads the beginning of a message of video; none where it is empty or cut off.
    #[inline]
    pub fn of_video(payload: &[u8]) -> Option<Tag> {
        let (&first, rest) = payload.split_first()?;
        // Enhanced RTMP: the first bit, then three of the frame's type and four of the packet's.
        if first & 0x80 != 0 {
            let name = *rest.first_chunk()?;
            let key = first >> 4 & 7 == KEY;
            // The packets of H.264 and HEVC have a time of composition between.
            let has_time = matches!(&name, b"avc1" | b"hvc1");
            let (content, data) = match first & 0x0f {
                0 => (Content::Config, 5),
                1 => (Content::Frame { key }, if has_time { 8 } else { 5 }),
                3 => (Content::Frame { key }, 5),
                _ => (Content::Other, 5),
            };
            return Some(Tag {
                codec: Codec::FourCc(name),
                content,
                data,
            });
        }
        let (kind, codec) = (first >> 4, first & 0x0f);
        let key = kind == KEY;
        if codec != FLV_AVC {
            let content = match kind {
                COMMAND => Content::Other,
                _ => Content::Frame { key },
            };
            return Some(Tag {
                codec: Codec::Other(codec),
                content,
                data: 1,
            });
        }
        let content = match rest.first()? {
            0 => Content::Config,
            1 if kind != COMMAND => Content::Frame { key },
            _ => Content::Other,
        };
        Some(Tag {
            codec: Codec::Avc,
            content,
            data: 5,
        })
    }

    /// Reads the beginning of a message of audio; none where it is empty or cut off.
    #[inline]
    pub fn of_audio(payload: &[u8]) -> Option<Tag> {
        let (&first, rest) = payload.split_first()?;
        let frame = Content::Frame { key: true };
        Some(match first >> 4 {
            FLV_AUDIO_EXTENDED => Tag {
                codec: Codec::FourCc(*rest.first_chunk()?),
                content: match first & 0x0f {
                    0 => Content::Config,
                    1 => frame,
                    _ => Content::Other,
                },
                data: 5,
            },
            FLV_AAC => Tag {
                codec: Codec::Aac,
                content: match rest.first()? {
                    0 => Content::Config,
                    _ => frame,
                },
                data: 2,
            },
            format => Tag {
                codec: Codec::Other(16 + format),
                content: frame,
                data: 1,
            },
        })
    }
}

/// How many NAL units before a time code are looked at: a delimiter, parameter sets, what an
/// encoder says of itself.
const UNITS_MAX: usize = 8;

/// The time code in a frame of H.264 (ISO/IEC 14496-15, 5.3.4.2), of which the beginning is enough.
/// Lengths have four bytes, as all servers have them.
#[inline]
pub fn time_code(mut units: &[u8]) -> Option<TimeCode> {
    for _ in 0..UNITS_MAX {
        let (length, rest) = units.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let nal = rest.get(..length.min(rest.len()))?;
        match nal.first()? & 0x1f {
            // A picture: the code stands before it.
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
    fn video_says_what_it_is() {
        let tag = |payload: &[u8]| {
            let tag = Tag::of_video(payload)?;
            Some((tag.codec.to_string(), tag.content, tag.data))
        };
        let frame = |key| Content::Frame { key };
        for (payload, expected) in [
            (&[0x17, 0, 0, 0, 0][..], Some(("h264", Content::Config, 5))),
            (&[0x17, 1, 0, 0, 0], Some(("h264", frame(true), 5))),
            (&[0x27, 1, 0, 0, 40], Some(("h264", frame(false), 5))),
            (&[0x17, 2, 0, 0, 0], Some(("h264", Content::Other, 5))),
            (&[0x57, 1, 0, 0, 0], Some(("h264", Content::Other, 5))),
            (&[0x12, 1], Some(("video 2", frame(true), 1))),
            (b"\x90hvc1\x01", Some(("hevc", Content::Config, 5))),
            (b"\x91hvc1\x00\x00\x00", Some(("hevc", frame(true), 8))),
            (b"\xa3hvc1", Some(("hevc", frame(false), 5))),
            (b"\x91av01", Some(("av1", frame(true), 5))),
            (b"\xa1vp09", Some(("vp9", frame(false), 5))),
            (b"\x94av01", Some(("av1", Content::Other, 5))),
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
    fn audio_says_what_it_is() {
        let tag = |payload: &[u8]| {
            let tag = Tag::of_audio(payload)?;
            Some((tag.codec.to_string(), tag.content, tag.data))
        };
        let frame = Content::Frame { key: true };
        for (payload, expected) in [
            (&[0xaf, 0, 0x12][..], Some(("aac", Content::Config, 2))),
            (&[0xaf, 1], Some(("aac", frame, 2))),
            (&[0x2f], Some(("mp3", frame, 1))),
            (&[0x82], Some(("pcmu", frame, 1))),
            (b"\x90Opus", Some(("opus", Content::Config, 5))),
            (b"\x91Opus", Some(("opus", frame, 5))),
            (b"\x95mp4a", Some(("aac", Content::Other, 5))),
            (&[0xaf], None),
            (&[], None),
        ] {
            let expected = expected.map(|(codec, content, data)| (codec.to_owned(), content, data));
            assert_eq!(tag(payload), expected, "{payload:?}");
        }
    }

    #[test]
    fn a_time_code_is_found_before_the_picture() {
        let code = TimeCode {
            source: 1,
            number: 2,
            nanos: 3,
        };
        let nal = code.to_nal();
        let unit = |nal: &[u8]| [&(nal.len() as u32).to_be_bytes()[..], nal].concat();
        let sets = [unit(&[9, 0xf0]), unit(&[0x67; 20]), unit(&[0x68; 4])].concat();
        let all = [sets, unit(&nal), unit(&[0x65; 300])].concat();
        assert_eq!(time_code(&all), Some(code));
        assert_eq!(time_code(&all[..100]), Some(code));
        assert_eq!(time_code(&all[..60]), None);
        let behind = [unit(&[0x65; 30]), unit(&nal)].concat();
        assert_eq!(time_code(&behind), None);
        assert_eq!(time_code(&[255; 40]), None);
    }
}

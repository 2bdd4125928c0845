//! Generated video cut into segments, as servers of HLS offer it: MPEG-TS or fragmented MP4.
//!
//! The bytes of a picture follow from its number: the same pictures are always the same bytes, so a
//! server keeps no segments. Pictures are counted over all loops, and each has a time code.

use std::ops::Range;

use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::h264::H264Stream;
use crate::mediagen::time_code::TimeCode;
use crate::mediagen::video::{SettingsError, VideoSettings};

mod mp4;
mod mpeg_ts;

/// Format of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Container {
    /// MPEG-TS (ISO/IEC 13818-1).
    #[default]
    MpegTs,
    /// Fragmented MP4 (ISO/IEC 14496-12), with an initialization section.
    FragmentedMp4,
}

/// Endless video, of which any segment can be written.
#[derive(Debug)]
pub struct SegmentedVideo {
    stream: H264Stream,
    frame_rate: FrameRate,
    gop: u32,
    writer: Writer,
}

#[derive(Debug)]
enum Writer {
    MpegTs(mpeg_ts::Writer),
    Mp4(Box<mp4::Writer>),
}

/// Part of a video: whole pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Numbers of the pictures. At least one.
    pub pictures: Range<u64>,
    /// Number of cuts before it with `begins_segment`.
    pub segment: u64,
    /// True if a decoder begins here: the cut has what is before the first picture.
    pub begins_segment: bool,
    /// Identifies the sender in the time codes.
    pub source: u32,
}

impl SegmentedVideo {
    /// Generates one loop of the video. Takes up to some seconds if the bit rate is very high.
    ///
    /// # Errors
    /// The bit rate is too low or too high for such pictures.
    pub fn new(
        settings: &VideoSettings,
        container: Container,
    ) -> Result<SegmentedVideo, SettingsError> {
        let stream = H264Stream::new(settings)?;
        let frame_rate = settings.frame_rate;
        let writer = match container {
            Container::MpegTs => Writer::MpegTs(mpeg_ts::Writer::new(&stream)),
            Container::FragmentedMp4 => {
                Writer::Mp4(Box::new(mp4::Writer::new(&stream, frame_rate)))
            }
        };
        Ok(SegmentedVideo {
            stream,
            frame_rate,
            gop: settings.gop,
            writer,
        })
    }

    /// Pictures per second.
    pub fn frame_rate(&self) -> FrameRate {
        self.frame_rate
    }

    /// Width and height in samples.
    pub fn size(&self) -> (u32, u32) {
        self.stream.size
    }

    /// Codec in the form of RFC 6381: `avc1.42c01e`.
    pub fn codec(&self) -> String {
        let profile = self.stream.sps.get(1..4).unwrap_or_default();
        let profile: String = profile.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("avc1.{profile}")
    }

    /// True if decoding can begin with this picture.
    pub fn is_key(&self, picture: u64) -> bool {
        picture.is_multiple_of(self.gop.into())
    }

    /// The initialization section that a player reads before any segment; `None` if the format has
    /// none.
    pub fn initialization(&self) -> Option<&[u8]> {
        match &self.writer {
            Writer::MpegTs(_) => None,
            Writer::Mp4(writer) => Some(writer.initialization()),
        }
    }

    /// Writes a cut. `due` returns the planned send time of a picture for its time code, in
    /// nanoseconds since 1970.
    pub fn write(&self, cut: &Cut, due: impl Fn(u64) -> u64) -> Vec<u8> {
        let mut out = Vec::new();
        if let Writer::MpegTs(writer) = &self.writer
            && cut.begins_segment
        {
            writer.tables(cut.segment, &mut out);
        }
        let pictures = cut.pictures.clone().map(|number| Picture {
            number,
            nals: &self.stream.pictures[(number % self.stream.pictures.len() as u64) as usize],
            is_key: self.is_key(number),
            code: TimeCode {
                source: cut.source,
                number: number as u32,
                nanos: due(number),
            },
        });
        match &self.writer {
            Writer::MpegTs(writer) => {
                for picture in pictures {
                    writer.picture(&picture, self.frame_rate, &mut out);
                }
            }
            Writer::Mp4(writer) => writer.fragment(&pictures.collect::<Vec<_>>(), &mut out),
        }
        out
    }
}

/// A picture to write.
#[derive(Clone, Copy, Debug)]
struct Picture<'a> {
    number: u64,
    /// NAL units; those of a key picture begin with the parameter sets.
    nals: &'a [Vec<u8>],
    is_key: bool,
    code: TimeCode,
}

#[cfg(test)]
mod tests;

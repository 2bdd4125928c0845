//! Segments in fragmented MP4 (ISO/IEC 14496-12, 8.8): one fragment for each segment or part.

use std::num::NonZeroU32;

use shiguredo_mp4::TrackKind;
use shiguredo_mp4::Uint;
use shiguredo_mp4::boxes::{Avc1Box, AvccBox, SampleEntry, VisualSampleEntryFields};
use shiguredo_mp4::mux::{Fmp4SegmentMuxer, Sample};

use super::Picture;
use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::h264::{H264Stream, before_slices};
use crate::mediagen::time_code::NAL_BYTES;

/// Reason why the library must accept what is written: it is known before.
const KNOWN: &str = "generated video has one track, known sizes and short fragments";

/// Length of a box header, and of one with version and flags.
const BOX: usize = 8;
const FULL_BOX: usize = 12;

/// Writes fragments.
#[derive(Debug)]
pub(super) struct Writer {
    /// Knows the track. What it writes has the wrong place.
    muxer: Fmp4SegmentMuxer,
    initialization: Vec<u8>,
    rate: FrameRate,
}

impl Writer {
    pub(super) fn new(stream: &H264Stream, rate: FrameRate) -> Writer {
        let mut muxer = Fmp4SegmentMuxer::new().expect(KNOWN);
        let first = Sample {
            sample_entry: Some(entry(stream)),
            ..sample(rate, true, 0, 1)
        };
        muxer.create_media_segment_metadata(&[first]).expect(KNOWN);
        let initialization = muxer.init_segment_bytes().expect(KNOWN);
        // Later decoding times need 64 bits. The library writes as many once they are that large.
        let longest = Sample {
            duration: u32::MAX,
            ..sample(rate, true, 0, 1)
        };
        for _ in 0..2 {
            let again = std::slice::from_ref(&longest);
            muxer.create_media_segment_metadata(again).expect(KNOWN);
        }
        Writer {
            initialization,
            muxer,
            rate,
        }
    }

    pub(super) fn initialization(&self) -> &[u8] {
        &self.initialization
    }

    /// Appends a fragment of consecutive pictures.
    pub(super) fn fragment(&self, pictures: &[Picture<'_>], out: &mut Vec<u8>) {
        let Some(first) = pictures.first() else {
            return;
        };
        let mut offset = 0;
        let mut samples = Vec::with_capacity(pictures.len());
        for picture in pictures {
            // The parameter sets are in the initialization section.
            let (_, slices) = before_slices(picture.nals);
            let units: usize = slices.iter().map(|nal| 4 + nal.len()).sum();
            let size = 4 + NAL_BYTES + units;
            samples.push(sample(self.rate, picture.is_key, offset, size));
            offset += size as u64;
        }
        let metadata = self.muxer.clone().create_media_segment_metadata(&samples);
        let mut metadata = metadata.expect(KNOWN);
        set_position(&mut metadata, first.number, self.rate);
        out.extend(metadata);
        for picture in pictures {
            let code = picture.code.to_nal();
            let (_, slices) = before_slices(picture.nals);
            for nal in [&code[..]]
                .into_iter()
                .chain(slices.iter().map(Vec::as_slice))
            {
                out.extend((nal.len() as u32).to_be_bytes());
                out.extend(nal);
            }
        }
    }
}

fn sample(rate: FrameRate, is_key: bool, offset: u64, size: usize) -> Sample {
    Sample {
        track_kind: TrackKind::Video,
        sample_entry: None,
        keyframe: is_key,
        timescale: NonZeroU32::new(rate.numerator()).unwrap_or(NonZeroU32::MIN),
        duration: rate.denominator(),
        composition_time_offset: None,
        data_offset: offset,
        data_size: size,
    }
}

fn entry(stream: &H264Stream) -> SampleEntry {
    let (width, height) = stream.size;
    let at = |index: usize| stream.sps.get(index).copied().unwrap_or(0);
    SampleEntry::Avc1(Avc1Box {
        visual: VisualSampleEntryFields {
            data_reference_index: VisualSampleEntryFields::DEFAULT_DATA_REFERENCE_INDEX,
            width: width as u16,
            height: height as u16,
            horizresolution: VisualSampleEntryFields::DEFAULT_HORIZRESOLUTION,
            vertresolution: VisualSampleEntryFields::DEFAULT_VERTRESOLUTION,
            frame_count: VisualSampleEntryFields::DEFAULT_FRAME_COUNT,
            compressorname: VisualSampleEntryFields::NULL_COMPRESSORNAME,
            depth: VisualSampleEntryFields::DEFAULT_DEPTH,
        },
        avcc_box: AvccBox {
            avc_profile_indication: at(1),
            profile_compatibility: at(2),
            avc_level_indication: at(3),
            length_size_minus_one: Uint::new(3),
            sps_list: vec![stream.sps.clone()],
            pps_list: vec![stream.pps.clone()],
            chroma_format: None,
            bit_depth_luma_minus8: None,
            bit_depth_chroma_minus8: None,
            sps_ext_list: Vec::new(),
        },
        unknown_boxes: Vec::new(),
    })
}

/// Sets the sequence number of a fragment (`mfhd`) and its decoding time (`tfdt`). The library
/// counts them from the first fragment that it wrote.
fn set_position(fragment: &mut [u8], picture: u64, rate: FrameRate) {
    let time = picture.saturating_mul(rate.denominator().into());
    for_each_box(fragment, 0, &mut |kind, content| match kind {
        b"mfhd" => content[4..8].copy_from_slice(&(picture as u32).to_be_bytes()),
        b"tfdt" => content[4..12].copy_from_slice(&time.to_be_bytes()),
        _ => {}
    });
}

/// Calls `f` with the type and content of each box, also of those within `moof` and `traf`.
fn for_each_box(mut boxes: &mut [u8], depth: u32, f: &mut impl FnMut(&[u8; 4], &mut [u8])) {
    while boxes.len() >= FULL_BOX {
        let length = u32::from_be_bytes([boxes[0], boxes[1], boxes[2], boxes[3]]) as usize;
        let kind = [boxes[4], boxes[5], boxes[6], boxes[7]];
        // The last one has no content yet.
        let Some((own, rest)) = boxes.split_at_mut_checked(length.max(BOX)) else {
            return;
        };
        match (&kind, depth) {
            (b"moof" | b"traf", 0..2) => for_each_box(&mut own[BOX..], depth + 1, f),
            _ => f(&kind, &mut own[BOX..]),
        }
        boxes = rest;
    }
}

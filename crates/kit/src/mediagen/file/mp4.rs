//! MP4, including fragmented MP4 (ISO/IEC 14496-12 and 14496-15).

use shiguredo_mp4::TrackKind;
use shiguredo_mp4::boxes::SampleEntry;
use shiguredo_mp4::demux::{
    DemuxError, Fmp4FileDemuxer, Input, Mp4FileDemuxer, Mp4FileKind, Mp4FileKindDetector,
    RequiredInput, Sample,
};

use super::fragments::with_relative_offsets;
use super::{AccessUnit, Track, about_aac};
use crate::mediagen::steps;

/// Maximum number of boxes and samples read from a file.
const STEPS_MAX: usize = 4_000_000;

/// Reads the tracks of a file: the first H.264 track and, if `audio`, the first AAC track.
pub(super) fn tracks(bytes: &[u8], audio: bool) -> Result<Vec<Track>, String> {
    // The file is in memory: the reader receives exactly the range it requests, or what exists of
    // it.
    let file = with_relative_offsets(bytes)?;
    let part = |wanted: RequiredInput| {
        let begin = usize::try_from(wanted.position).unwrap_or(usize::MAX);
        let rest = file.get(begin..).unwrap_or_default();
        let size = wanted.size.unwrap_or(rest.len()).min(rest.len());
        steps::count_bytes(size);
        Input {
            position: wanted.position,
            data: &rest[..size],
        }
    };
    let mut detector = Mp4FileKindDetector::new();
    for _ in 0..STEPS_MAX {
        let Some(wanted) = detector.required_input() else {
            break;
        };
        detector.handle_input(part(wanted));
    }
    let kind = detector.file_kind().map_err(in_words)?;
    let mut reader = Reader::new(bytes, audio);
    match kind {
        Some(Mp4FileKind::FragmentedMp4) => {
            let mut demuxer = Fmp4FileDemuxer::new();
            for _ in 0..STEPS_MAX {
                if let Some(wanted) = demuxer.required_input() {
                    demuxer.handle_input(part(wanted));
                    // Errors are reported by the next call of `next_sample`.
                    if demuxer.required_input().is_some() {
                        continue;
                    }
                }
                match demuxer.next_sample() {
                    Ok(Some(sample)) => reader.take(&sample)?,
                    Ok(None) => break,
                    Err(error) => return Err(in_words(error)),
                }
            }
        }
        Some(Mp4FileKind::Mp4) => {
            let mut demuxer = Mp4FileDemuxer::new();
            for _ in 0..STEPS_MAX {
                let Some(wanted) = demuxer.required_input() else {
                    break;
                };
                demuxer.handle_input(part(wanted));
            }
            for _ in 0..STEPS_MAX {
                match demuxer.next_sample() {
                    Ok(Some(sample)) => reader.take(&sample)?,
                    Ok(None) => break,
                    Err(error) => return Err(in_words(error)),
                }
            }
        }
        None => return Err("the MP4 file is truncated".to_owned()),
    }
    Ok(reader
        .video
        .into_iter()
        .chain(reader.audio)
        .map(|(_, track)| track)
        .collect())
}

/// Formats the library's error without its source location, which is a path of the build machine.
fn in_words(error: DemuxError) -> String {
    let text = error.to_string();
    let words = text.split(" (at ").next().unwrap_or_default();
    format!("the MP4 file cannot be read: {words}")
}

struct Reader<'a> {
    bytes: &'a [u8],
    wants_audio: bool,
    /// Remaining bytes for samples. All samples together may not exceed the file size; otherwise
    /// overlapping samples of a small file could exhaust the memory.
    left: usize,
    /// Tracks with their IDs in the file.
    video: Option<(u32, Track)>,
    audio: Option<(u32, Track)>,
    /// Size of a NAL unit's length field, in bytes.
    length_bytes: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], wants_audio: bool) -> Reader<'a> {
        Reader {
            bytes,
            wants_audio,
            left: bytes.len(),
            video: None,
            audio: None,
            length_bytes: 4,
        }
    }

    fn take(&mut self, sample: &Sample<'_>) -> Result<(), String> {
        let id = sample.track.track_id;
        let known = [&self.video, &self.audio]
            .into_iter()
            .flatten()
            .any(|(known, _)| *known == id);
        if !known && let Some(entry) = sample.sample_entry {
            self.begin(id, sample.track.kind, entry)?;
        }
        let left = self.left.checked_sub(sample.data_size.max(1));
        self.left = left.ok_or("the MP4 file declares more sample data than it contains")?;
        steps::count_bytes(sample.data_size.max(1));
        let scale = u128::from(sample.track.timescale.get());
        let nanos =
            |time: u64| u64::try_from(u128::from(time) * 1_000_000_000 / scale).unwrap_or(u64::MAX);
        let decode = nanos(sample.timestamp);
        let offset = sample.composition_time_offset.unwrap_or(0);
        let show = nanos(sample.timestamp.saturating_add_signed(offset));
        let begin = usize::try_from(sample.data_offset).unwrap_or(usize::MAX);
        let data = begin
            .checked_add(sample.data_size)
            .and_then(|end| self.bytes.get(begin..end))
            .ok_or("the MP4 file is truncated")?;
        match (&mut self.video, &mut self.audio) {
            (Some((own, Track::Video { units, .. })), _) if *own == id => units.push(AccessUnit {
                decode,
                show,
                data: nals(data, self.length_bytes),
            }),
            (_, Some((own, Track::Audio { units, .. }))) if *own == id => units.push(AccessUnit {
                decode,
                show,
                data: data.to_vec(),
            }),
            _ => {}
        }
        Ok(())
    }

    /// Adds a track if it is wanted and is the first of its kind.
    fn begin(&mut self, id: u32, kind: TrackKind, entry: &SampleEntry) -> Result<(), String> {
        match (kind, entry) {
            (TrackKind::Video, _) if self.video.is_some() => {}
            (TrackKind::Audio, _) if self.audio.is_some() || !self.wants_audio => {}
            (_, SampleEntry::Avc1(entry)) => {
                let config = &entry.avcc_box;
                self.length_bytes = usize::from(config.length_size_minus_one.get()) + 1;
                let track = Track::Video {
                    sps: config.sps_list.clone(),
                    pps: config.pps_list.clone(),
                    units: Vec::new(),
                };
                self.video = Some((id, track));
            }
            (_, SampleEntry::Mp4a(entry)) => {
                let config = &entry.esds_box.es.dec_config_descr;
                let config = config.dec_specific_info.as_ref();
                let config = config.ok_or("the AAC track has no configuration")?;
                // The values in the sample entry itself are often constants.
                let (rate, channels) = about_aac(&config.payload);
                let track = Track::Audio {
                    config: config.payload.clone(),
                    samples_per_second: rate.unwrap_or(entry.audio.samplerate.integer.into()),
                    channels: channels.unwrap_or(entry.audio.channelcount),
                    units: Vec::new(),
                };
                self.audio = Some((id, track));
            }
            (TrackKind::Video, _) => return Err("the video is not H.264".to_owned()),
            (TrackKind::Audio, _) => {
                return Err("the audio is not AAC; `audio: false` leaves it out".to_owned());
            }
        }
        Ok(())
    }
}

/// Splits a sample into NAL units. A truncated unit is ignored.
fn nals(mut data: &[u8], length_bytes: usize) -> Vec<Vec<u8>> {
    let mut nals = Vec::new();
    while let Some((length, rest)) = data.split_at_checked(length_bytes) {
        let length = length
            .iter()
            .fold(0usize, |length, byte| length << 8 | usize::from(*byte));
        let Some((nal, rest)) = rest.split_at_checked(length) else {
            break;
        };
        nals.push(nal.to_vec());
        data = rest;
    }
    nals
}

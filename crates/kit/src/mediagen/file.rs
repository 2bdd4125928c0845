//! Media from files as clips that can be looped: MP4 and MPEG-TS with H.264 and AAC, and browser
//! recordings ([`recorded`]).
//!
//! The loop begins with the first picture that can be decoded by itself and is as long as the
//! longer of video and audio; both restart together. Pictures are unchanged, except that each is
//! preceded by a time code, and IDR pictures also by the parameter sets, so that late joiners can
//! decode them.

mod fragments;
mod ivf;
mod mjr;
mod mp4;
mod recording;
mod recordings;
mod ts;
mod vpx;
mod webm;

pub use recordings::recorded;

use std::sync::Arc;

use super::clip::{Clip, FrameTimes};

/// Maximum length of a loop, in nanoseconds: one hour.
const LENGTH_MAX: u64 = 3_600_000_000_000;

/// A video or audio track of a file.
#[derive(Debug)]
enum Track {
    Video {
        /// Parameter sets, as NAL units.
        sps: Vec<Vec<u8>>,
        pps: Vec<Vec<u8>>,
        /// Access units, split into NAL units.
        units: Vec<AccessUnit<Vec<Vec<u8>>>>,
    },
    Audio {
        /// The AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1).
        config: Vec<u8>,
        samples_per_second: u32,
        channels: u16,
        units: Vec<AccessUnit<Vec<u8>>>,
    },
}

/// An access unit. Times are in nanoseconds, on the file's clock.
#[derive(Debug)]
struct AccessUnit<T> {
    /// Decoding time and presentation time.
    decode: u64,
    show: u64,
    data: T,
}

/// Maximum total length of the parameter sets, in bytes. They are repeated before each IDR picture,
/// so longer ones would turn a small file into a large clip.
const SETS_MAX: usize = 16 * 1024;

/// NAL unit types (H.264, table 7-1).
const IDR: u8 = 5;
const SPS: u8 = 7;
const PPS: u8 = 8;
const DELIMITER: u8 = 9;

/// Sampling frequencies by index (ISO/IEC 14496-3, table 1.18).
const FREQUENCIES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000,
    7350,
];

/// Returns the sampling frequency and the number of channels of an AudioSpecificConfig, each if it
/// is encoded in the common way (ISO/IEC 14496-3, 1.6.2.1).
fn about_aac(config: &[u8]) -> (Option<u32>, Option<u16>) {
    let [first, second, ..] = *config else {
        return (None, None);
    };
    let index = first << 1 & 0x0e | second >> 7;
    let Some(&rate) = FREQUENCIES.get(usize::from(index)) else {
        return (None, None);
    };
    let channels = u16::from(second >> 3 & 0x0f);
    (Some(rate), Some(channels).filter(|&channels| channels > 0))
}

fn kind(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |first| first & 0x1f)
}

/// Splits a file's media into clips, video first. `audio` selects whether its audio is included.
///
/// # Errors
/// The file has another format or encoding, or is too long. The text states the reason.
pub fn clips(bytes: &[u8], mtu: usize, audio: bool) -> Result<Vec<Arc<Clip>>, String> {
    let tracks = match bytes {
        [0x47, ..] if bytes.get(188) == Some(&0x47) => ts::tracks(bytes, audio)?,
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => mp4::tracks(bytes, audio)?,
        _ => return Err("the file is neither MP4 nor MPEG-TS".to_owned()),
    };
    let begins = tracks.iter().find_map(Track::first_idr);
    let begins = begins.ok_or("the file has no H.264 IDR picture")?;
    let ends: Vec<Option<u64>> = tracks.iter().map(|track| track.end(begins)).collect();
    let length = length_of(&ends)?;
    let mut clips = Vec::new();
    for track in tracks {
        clips.extend(track.clip(begins, length, mtu)?.map(Arc::new));
    }
    Ok(clips)
}

/// End of a stream. The last unit lasts as long as the previous one. `None` if there are no units,
/// if the end precedes `begins`, or if it overflows.
fn end<T>(units: &[AccessUnit<T>], begins: u64) -> Option<u64> {
    let last = units.last()?.decode;
    let before = units.iter().rev().nth(1).map(|unit| unit.decode);
    let lasts = last_frame_duration(before.map(|before| last.saturating_sub(before)));
    last.checked_add(lasts)?.checked_sub(begins)
}

/// Duration of the last frame of a loop, in nanoseconds: that of the previous frame, or 40 ms if
/// there is none.
fn last_frame_duration(before: Option<u64>) -> u64 {
    let alone = 40_000_000;
    before.unwrap_or(alone).clamp(1_000_000, 10_000_000_000)
}

/// Returns the length of a loop from the ends of its streams.
fn length_of(ends: &[Option<u64>]) -> Result<u64, String> {
    let ends: Option<Vec<u64>> = ends.iter().copied().collect();
    match ends.and_then(|ends| ends.into_iter().max()) {
        None => Err(BAD_TIMES.to_owned()),
        Some(0) => Err("the timestamps give a length of zero".to_owned()),
        Some(length) if length > LENGTH_MAX => Err("the media is longer than an hour".to_owned()),
        Some(length) => Ok(length),
    }
}

/// Error for a stream that ends before it begins, whose times overflow, or whose loop ends before
/// its last frame.
const BAD_TIMES: &str = "the timestamps go back or are out of range";

/// Maximum number of frames per second, on average over a loop: no supported codec needs more, and
/// repeated timestamps would otherwise cause a flood.
const RATE_MAX: u64 = 1000;

/// Checks the send times of a loop's frames, which must be in order.
fn check_times(frames: &[(u64, u32)], length: u64) -> Result<(), String> {
    if frames.last().is_some_and(|&(due, _)| due >= length) {
        return Err(BAD_TIMES.to_owned());
    }
    let most = u128::from(length) * u128::from(RATE_MAX) / 1_000_000_000;
    match frames.len() as u128 > most {
        true => Err(format!("there are more than {RATE_MAX} frames a second")),
        false => Ok(()),
    }
}

/// Converts a time to ticks of a clock, rounded to the nearest.
fn ticks(nanos: u64, clock_rate: u32) -> u32 {
    ((u128::from(nanos) * u128::from(clock_rate) + 500_000_000) / 1_000_000_000) as u32
}

impl Track {
    /// Decoding time of the first IDR picture.
    fn first_idr(&self) -> Option<u64> {
        let Track::Video { units, .. } = self else {
            return None;
        };
        let mut units = units.iter();
        let idr = units.find(|unit| unit.data.iter().any(|nal| kind(nal) == IDR))?;
        Some(idr.decode)
    }

    fn end(&self, begins: u64) -> Option<u64> {
        match self {
            Track::Video { units, .. } => end(units, begins),
            Track::Audio { units, .. } => end(units, begins),
        }
    }

    /// Makes the loop. Returns `None` for audio without any unit after the beginning.
    fn clip(self, begins: u64, length: u64, mtu: usize) -> Result<Option<Clip>, String> {
        let mut times = Vec::new();
        let mut latest = 0;
        let mut time = |decode: u64, show: u64, clock_rate| {
            // Send times must not decrease.
            latest = latest.max(decode - begins);
            times.push((latest, ticks(show.saturating_sub(begins), clock_rate)));
        };
        let clip = match self {
            Track::Video { sps, pps, units } => {
                if sps.iter().chain(&pps).map(Vec::len).sum::<usize>() > SETS_MAX {
                    return Err("the H.264 parameter sets are too long".to_owned());
                }
                let mut pictures = Vec::new();
                for unit in units.into_iter().filter(|unit| unit.decode >= begins) {
                    time(unit.decode, unit.show, Clip::VIDEO_CLOCK_RATE);
                    pictures.push(with_parameter_sets(unit.data, &sps, &pps));
                }
                let (Some(sps), Some(pps)) = (sps.first(), pps.first()) else {
                    return Err("the file has no H.264 parameter sets".to_owned());
                };
                Clip::video_of_file(sps, pps, &pictures, mtu)?
            }
            Track::Audio {
                config,
                samples_per_second,
                channels,
                units,
            } => {
                let mut frames = Vec::new();
                for unit in units.into_iter().filter(|unit| unit.decode >= begins) {
                    time(unit.decode, unit.show, samples_per_second);
                    frames.push(unit.data);
                }
                if frames.is_empty() {
                    return Ok(None);
                }
                Clip::aac(&config, samples_per_second, channels, &frames, mtu)?
            }
        };
        check_times(&times, length)?;
        let times = FrameTimes {
            frames: times,
            length,
        };
        Ok(Some(clip.with_times(times)))
    }
}

/// Prepares a picture for sending: removes delimiters, and adds the parameter sets to an IDR
/// picture without them.
fn with_parameter_sets(mut nals: Vec<Vec<u8>>, sps: &[Vec<u8>], pps: &[Vec<u8>]) -> Vec<Vec<u8>> {
    nals.retain(|nal| !matches!(kind(nal), 0 | DELIMITER));
    let has = |wanted| nals.iter().any(|nal| kind(nal) == wanted);
    if has(IDR) && !has(SPS) && !has(PPS) {
        nals.splice(0..0, sps.iter().chain(pps).cloned());
    }
    nals
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;
    use crate::mediagen::steps;
    use crate::mediagen::time_code::TimeCode;

    /// Three seconds of video with reordered pictures, and audio; `None` if ffmpeg is not
    /// available.
    fn made(name: &str, options: &[&str]) -> Option<Vec<u8>> {
        let path = std::env::temp_dir().join(format!("streamgauge-{}-{name}", std::process::id()));
        let made = Command::new("ffmpeg")
            .args([
                "-v",
                "error",
                "-y",
                "-f",
                "lavfi",
                "-i",
                "testsrc2=size=320x240:rate=25",
            ])
            .args(["-f", "lavfi", "-i", "sine=sample_rate=44100", "-t", "3"])
            .args([
                "-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "25", "-c:a", "aac",
            ])
            .args(options)
            .arg(&path)
            .status();
        let bytes = made
            .ok()
            .filter(|status| status.success())
            .map(|_| std::fs::read(&path).expect("it was just made"));
        let _ = std::fs::remove_file(&path);
        bytes
    }

    fn looks_right(bytes: &[u8]) {
        let both = clips(bytes, 1400, true).expect("it can be sent");
        let [video, audio] = &both[..] else {
            panic!("{} clips", both.len());
        };
        assert_eq!((video.media(), video.frames), ("video", 75));
        assert_eq!(
            video.frame_rate().to_string().split('/').next(),
            Some("25000")
        );
        assert!(
            video.parameters().contains("profile-level-id=64"),
            "{}",
            video.parameters()
        );
        let times = video.times.as_ref().expect("listed");
        let length = times.length;
        assert!(length.abs_diff(3_000_000_000) < 150_000_000, "{length}");
        assert_eq!(audio.times.as_ref().expect("listed").length, length);
        // Send times are evenly spaced, and all presentation times differ.
        for (frame, &(due, _)) in (0u64..).zip(&times.frames) {
            assert!(
                due.abs_diff(frame * 40_000_000) < 2_000_000,
                "{frame}: {due}"
            );
        }
        let mut shown: Vec<u32> = times
            .frames
            .iter()
            .map(|&(_, ticks)| ticks / 3600)
            .collect();
        assert!(!shown.is_sorted());
        shown.sort_unstable();
        shown.dedup();
        assert_eq!(shown.len(), 75);
        // Each picture has one code, within the bytes that a packet ring keeps of a packet.
        let coded: Vec<u32> = video
            .packets
            .iter()
            .filter(|packet| {
                TimeCode::find(&packet.payload[..packet.payload.len().min(90)]).is_some()
            })
            .map(|packet| packet.frame)
            .collect();
        assert_eq!(coded, (0..75).collect::<Vec<u32>>());
        assert!(
            video
                .packets
                .iter()
                .all(|packet| packet.payload.len() <= 1400)
        );
        // 1,024 samples a frame.
        assert_eq!(audio.encoding(), "mpeg4-generic/44100/1");
        assert!(
            audio.parameters().contains("config=1208"),
            "{}",
            audio.parameters()
        );
        assert!((125..=131).contains(&audio.frames), "{}", audio.frames);
        let frames = &audio.times.as_ref().expect("listed").frames;
        // Without edit lists, ffmpeg makes the first frame longer.
        for pair in frames[1..].windows(2) {
            assert!((pair[1].1 - pair[0].1).abs_diff(1024) <= 4, "{pair:?}");
        }
        for packet in &audio.packets {
            let length =
                usize::from(u16::from_be_bytes([packet.payload[2], packet.payload[3]]) >> 3);
            assert_eq!(
                (&packet.payload[..2], length),
                (&[0, 16][..], packet.payload.len() - 4)
            );
        }
        assert_eq!(clips(bytes, 1400, false).expect("without sound").len(), 1);
        // A truncated file is refused, or read as far as it is complete.
        for length in [0, 100, 189, 1000, bytes.len() / 2, bytes.len() - 1] {
            let _ = clips(&bytes[..length], 1400, true);
        }
    }

    #[test]
    fn mp4_is_split_into_clips() {
        if let Some(bytes) = made("plain.mp4", &[]) {
            looks_right(&bytes);
        }
    }

    #[test]
    fn fragmented_mp4_is_split_into_clips() {
        let options = ["-movflags", "frag_keyframe+empty_moov+default_base_moof"];
        if let Some(bytes) = made("fragmented.mp4", &options) {
            looks_right(&bytes);
        }
    }

    #[test]
    fn fragments_with_absolute_offsets_are_supported() {
        // The default of ffmpeg.
        let options = ["-movflags", "frag_keyframe+empty_moov"];
        if let Some(bytes) = made("absolute.mp4", &options) {
            looks_right(&bytes);
        }
    }

    #[test]
    fn error_in_an_mp4_names_no_path_of_a_library() {
        let Some(bytes) = made("broken.mp4", &[]) else {
            return;
        };
        let mut refused = 0;
        for at in (0..bytes.len()).step_by(97) {
            let mut broken = bytes.clone();
            let end = broken.len().min(at + 16);
            broken[at..end].fill(0xff);
            if let Err(error) = clips(&broken, 1400, true) {
                assert!(!error.contains(".rs"), "{error}");
                refused += 1;
            }
        }
        assert!(refused > 0);
    }

    #[test]
    fn mpeg_ts_is_split_into_clips() {
        if let Some(bytes) = made("plain.ts", &[]) {
            looks_right(&bytes);
        }
    }

    #[test]
    fn small_file_makes_no_large_clip() {
        let unit = |number: u64| AccessUnit {
            decode: number * 40_000_000,
            show: number * 40_000_000,
            data: vec![vec![IDR, 1, 2, 3]],
        };
        let track = Track::Video {
            sps: vec![vec![SPS; SETS_MAX]],
            pps: vec![vec![PPS; 4]],
            units: (0..1000).map(unit).collect(),
        };
        let clip = track.clip(0, 40_000_000_000, 1400).map(|_| ());
        let why = "the H.264 parameter sets are too long";
        assert_eq!(clip, Err(why.to_owned()));
        let times = |times: &[u64]| Track::Audio {
            config: vec![0x12, 0x08],
            samples_per_second: 44_100,
            channels: 1,
            units: (times.iter())
                .map(|&at| AccessUnit {
                    decode: at,
                    show: at,
                    data: vec![1, 2, 3],
                })
                .collect(),
        };
        let refused = |track: Track| {
            let length = length_of(&[track.end(0)])?;
            track.clip(0, length, 1400).map(|_| ())
        };
        assert_eq!(refused(times(&[0, 20_000_000, 40_000_000])), Ok(()));
        // The last frame is due after the end of the loop.
        assert_eq!(
            refused(times(&[0, 60_000_000, 20_000_000])),
            Err(BAD_TIMES.to_owned())
        );
        // Overlapping samples, each as long as half of the file.
        let Some(mut bytes) = made("overlaps.mp4", &["-movflags", "faststart"]) else {
            return;
        };
        let half = (bytes.len() as u32 / 2).to_be_bytes();
        let tables: Vec<usize> = (0..bytes.len() - 4)
            .filter(|&at| &bytes[at..at + 4] == b"stsz")
            .collect();
        assert_eq!(tables.len(), 2);
        for at in tables {
            // Version and flags, common size of all samples or 0, number of samples, and the sizes.
            bytes[at + 8..at + 12].copy_from_slice(&half);
        }
        let steps = steps::of(|| assert!(clips(&bytes, 1400, true).is_err()));
        assert!(
            steps < 20 * bytes.len() as u64,
            "{steps} for {}",
            bytes.len()
        );
    }

    #[test]
    fn unusable_files_state_the_reason() {
        let refused = |bytes: &[u8]| clips(bytes, 1400, true).expect_err("it cannot be sent");
        assert_eq!(refused(b"RIFF"), "the file is neither MP4 nor MPEG-TS");
        assert_eq!(refused(&[]), "the file is neither MP4 nor MPEG-TS");
        let Some(other) = made("other.mp4", &["-c:v", "mpeg4"]) else {
            return;
        };
        assert_eq!(refused(&other), "the video is not H.264");
        let Some(other) = made("other.ts", &["-c:v", "mpeg2video", "-b_strategy", "0"]) else {
            return;
        };
        assert_eq!(refused(&other), "the first programme has no H.264 stream");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            kind in 0..3,
        ) {
            let mut bytes = bytes;
            if kind == 1 && bytes.len() > 188 {
                for packet in bytes.chunks_mut(188) {
                    packet[0] = 0x47;
                }
            } else if kind == 2 && bytes.len() > 8 {
                bytes[..8].copy_from_slice(b"\0\0\0\x14ftyp");
            }
            let _ = clips(&bytes, 1400, true);
        }
    }
}

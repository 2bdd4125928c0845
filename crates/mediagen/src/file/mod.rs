//! Media out of files: MP4 and MPEG-TS with H.264 and AAC, and recordings of what browsers send
//! ([`recorded`]), made into clips that can be sent over and over.
//!
//! The loop begins with the first picture that can be decoded by itself and is as long as the
//! longer of picture and sound; both begin anew together. Pictures are passed on as they are, with
//! a time code before each and, before those that can be decoded by themselves, the parameter sets,
//! so that who comes late can decode too.

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

/// The longest media that is taken from a file, in nanoseconds: an hour.
const LENGTH_MAX: u64 = 3_600_000_000_000;

/// Picture or sound, as it is in a file.
#[derive(Debug)]
enum Track {
    Video {
        /// Sequence and picture parameter sets, as NAL units.
        sps: Vec<Vec<u8>>,
        pps: Vec<Vec<u8>>,
        /// Each with its NAL units.
        units: Vec<Unit<Vec<Vec<u8>>>>,
    },
    Audio {
        /// The AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1).
        config: Vec<u8>,
        samples_per_second: u32,
        channels: u16,
        units: Vec<Unit<Vec<u8>>>,
    },
}

/// One access unit. Times are in nanoseconds, in the file's own counting.
#[derive(Debug)]
struct Unit<T> {
    /// When it is to be decoded, and when it is shown.
    decode: u64,
    show: u64,
    data: T,
}

/// The longest parameter sets that are taken, all together, in bytes. They are put before each
/// picture that can be decoded by itself, so that longer ones would make a small file a large clip.
const SETS_MAX: usize = 16 * 1024;

/// NAL unit types (H.264, table 7-1).
const IDR: u8 = 5;
const SPS: u8 = 7;
const PPS: u8 = 8;
const DELIMITER: u8 = 9;

/// Sampling frequencies by their index (ISO/IEC 14496-3, table 1.18).
const FREQUENCIES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000,
    7350,
];

/// The sampling frequency and the number of channels that an AudioSpecificConfig states, each where
/// it does so in its usual way (ISO/IEC 14496-3, 1.6.2.1).
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

/// Cuts a file's media into clips, video first. `audio` says whether its sound is wanted.
///
/// # Errors
/// It is no such file, or of other encodings, or longer than is taken; the text says so.
pub fn clips(bytes: &[u8], mtu: usize, audio: bool) -> Result<Vec<Arc<Clip>>, String> {
    let tracks = match bytes {
        [0x47, ..] if bytes.get(188) == Some(&0x47) => ts::tracks(bytes, audio)?,
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => mp4::tracks(bytes, audio)?,
        _ => return Err("it is neither MP4 nor MPEG-TS".to_owned()),
    };
    let begins = tracks.iter().find_map(Track::first_idr);
    let begins = begins.ok_or("it holds no H.264 picture that can be decoded by itself")?;
    let ends: Vec<Option<u64>> = tracks.iter().map(|track| track.end(begins)).collect();
    let length = length_of(&ends)?;
    let mut clips = Vec::new();
    for track in tracks {
        clips.extend(track.clip(begins, length, mtu)?.map(Arc::new));
    }
    Ok(clips)
}

/// How long the last unit lasts is that of the one before. None where it comes before the
/// beginning, or its time is beyond all.
fn end<T>(units: &[Unit<T>], begins: u64) -> Option<u64> {
    let last = units.last()?.decode;
    let before = units.iter().rev().nth(1).map(|unit| unit.decode);
    let lasts = lasts(before.map(|before| last.saturating_sub(before)));
    last.checked_add(lasts)?.checked_sub(begins)
}

/// How long the last frame of a loop lasts, in nanoseconds: as long as the one before, where there
/// is one.
fn lasts(before: Option<u64>) -> u64 {
    let alone = 40_000_000;
    before.unwrap_or(alone).clamp(1_000_000, 10_000_000_000)
}

/// How long a loop is, by where each of its streams ends.
fn length_of(ends: &[Option<u64>]) -> Result<u64, String> {
    let ends: Option<Vec<u64>> = ends.iter().copied().collect();
    match ends.and_then(|ends| ends.into_iter().max()) {
        None => Err(BACK.to_owned()),
        Some(0) => Err("its times say that it is over at once".to_owned()),
        Some(length) if length > LENGTH_MAX => Err("it is longer than an hour".to_owned()),
        Some(length) => Ok(length),
    }
}

/// Of a stream that ends before it begins, or beyond all times; or before its last frame.
const BACK: &str = "its times go back, or beyond all";

/// The most frames a second, on average over a loop: none of those that are taken needs as many,
/// and times that stand still would make a flood of it.
const RATE_MAX: u64 = 1000;

/// Looks at when the frames of a loop are due, in order.
fn check_times(frames: &[(u64, u32)], length: u64) -> Result<(), String> {
    if frames.last().is_some_and(|&(due, _)| due >= length) {
        return Err(BACK.to_owned());
    }
    let most = u128::from(length) * u128::from(RATE_MAX) / 1_000_000_000;
    match frames.len() as u128 > most {
        true => Err(format!("it has more than {RATE_MAX} frames a second")),
        false => Ok(()),
    }
}

/// A time in ticks of a clock, to the nearest.
fn ticks(nanos: u64, clock_rate: u32) -> u32 {
    ((u128::from(nanos) * u128::from(clock_rate) + 500_000_000) / 1_000_000_000) as u32
}

impl Track {
    /// When the first picture comes that can be decoded by itself.
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

    /// The loop of it; none where nothing of it comes after the beginning.
    fn clip(self, begins: u64, length: u64, mtu: usize) -> Result<Option<Clip>, String> {
        let mut times = Vec::new();
        let mut latest = 0;
        let mut time = |decode: u64, show: u64, clock_rate| {
            // As they are to be sent; never back.
            latest = latest.max(decode - begins);
            times.push((latest, ticks(show.saturating_sub(begins), clock_rate)));
        };
        let clip = match self {
            Track::Video { sps, pps, units } => {
                if sps.iter().chain(&pps).map(Vec::len).sum::<usize>() > SETS_MAX {
                    return Err("its parameter sets of H.264 are longer than is taken".to_owned());
                }
                let mut pictures = Vec::new();
                for unit in units.into_iter().filter(|unit| unit.decode >= begins) {
                    time(unit.decode, unit.show, Clip::VIDEO_CLOCK_RATE);
                    pictures.push(whole(unit.data, &sps, &pps));
                }
                let (Some(sps), Some(pps)) = (sps.first(), pps.first()) else {
                    return Err("it holds no parameter sets of H.264".to_owned());
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

/// A picture as it is sent: without delimiters, and with the parameter sets where it needs nothing
/// else.
fn whole(mut nals: Vec<Vec<u8>>, sps: &[Vec<u8>], pps: &[Vec<u8>]) -> Vec<Vec<u8>> {
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
    use crate::steps;
    use crate::time_code::TimeCode;

    /// Three seconds of pictures that are shown in another order than they are sent, and of sound;
    /// none without ffmpeg.
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
        // Even when they are to be sent; and of their times to be shown none is there twice.
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
        // Each picture has one code, where what is kept of a packet holds it.
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
        // 1024 samples a frame.
        assert_eq!(audio.encoding(), "mpeg4-generic/44100/1");
        assert!(
            audio.parameters().contains("config=1208"),
            "{}",
            audio.parameters()
        );
        assert!((125..=131).contains(&audio.frames), "{}", audio.frames);
        let frames = &audio.times.as_ref().expect("listed").frames;
        // Where there are no edit lists, ffmpeg makes the first frame longer instead.
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
        // What is cut off is refused, or what is whole of it taken.
        for length in [0, 100, 189, 1000, bytes.len() / 2, bytes.len() - 1] {
            let _ = clips(&bytes[..length], 1400, true);
        }
    }

    #[test]
    fn an_mp4_of_another_program_is_cut_into_clips() {
        if let Some(bytes) = made("plain.mp4", &[]) {
            looks_right(&bytes);
        }
    }

    #[test]
    fn a_fragmented_mp4_too() {
        let options = ["-movflags", "frag_keyframe+empty_moov+default_base_moof"];
        if let Some(bytes) = made("fragmented.mp4", &options) {
            looks_right(&bytes);
        }
    }

    #[test]
    fn fragments_with_absolute_offsets_are_read_too() {
        // As ffmpeg writes them unless it is told otherwise.
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
        for place in (0..bytes.len()).step_by(97) {
            let mut broken = bytes.clone();
            let end = broken.len().min(place + 16);
            broken[place..end].fill(0xff);
            if let Err(error) = clips(&broken, 1400, true) {
                assert!(!error.contains(".rs"), "{error}");
                refused += 1;
            }
        }
        assert!(refused > 0);
    }

    #[test]
    fn an_mpeg_ts_too() {
        if let Some(bytes) = made("plain.ts", &[]) {
            looks_right(&bytes);
        }
    }

    #[test]
    fn a_small_file_makes_no_large_clip() {
        let unit = |number: u64| Unit {
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
        let why = "its parameter sets of H.264 are longer than is taken";
        assert_eq!(clip, Err(why.to_owned()));
        let times = |times: &[u64]| Track::Audio {
            config: vec![0x12, 0x08],
            samples_per_second: 44_100,
            channels: 1,
            units: (times.iter())
                .map(|&at| Unit {
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
        // The last that is sent is due when the loop is over.
        assert_eq!(
            refused(times(&[0, 60_000_000, 20_000_000])),
            Err(BACK.to_owned())
        );
        // Samples that overlap: each as long as half of the file.
        let Some(mut bytes) = made("overlaps.mp4", &["-movflags", "faststart"]) else {
            return;
        };
        let half = (bytes.len() as u32 / 2).to_be_bytes();
        let tables: Vec<usize> = (0..bytes.len() - 4)
            .filter(|&at| &bytes[at..at + 4] == b"stsz")
            .collect();
        assert_eq!(tables.len(), 2);
        for at in tables {
            // Version and flags, the size of all samples where they have one, how many, and each.
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
    fn what_cannot_be_sent_says_why() {
        let refused = |bytes: &[u8]| clips(bytes, 1400, true).expect_err("it cannot be sent");
        assert_eq!(refused(b"RIFF"), "it is neither MP4 nor MPEG-TS");
        assert_eq!(refused(&[]), "it is neither MP4 nor MPEG-TS");
        let Some(other) = made("other.mp4", &["-c:v", "mpeg4"]) else {
            return;
        };
        assert_eq!(refused(&other), "its video is not H.264");
        let Some(other) = made("other.ts", &["-c:v", "mpeg2video", "-b_strategy", "0"]) else {
            return;
        };
        assert_eq!(refused(&other), "its first programme holds no H.264");
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_taken_without_harm(
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

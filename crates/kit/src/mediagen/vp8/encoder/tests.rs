//! The stream keeps its bit rate, and an independent decoder shows the exact levels that were
//! drawn.

use proptest::prelude::*;

use super::*;
use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::tests::run;
use crate::mediagen::video::PictureForm;

fn settings(bits_per_second: u64, frames: u32, gop: u32) -> VideoSettings {
    VideoSettings {
        bits_per_second,
        frame_rate: FrameRate::whole(frames),
        gop,
        mtu: 1200,
        form: PictureForm::default(),
    }
}

fn payload_of(stream: &Vp8Stream, mtu: usize) -> u64 {
    let bytes = stream
        .frames
        .iter()
        .map(|own| payload_bytes(own.len(), mtu));
    bytes.sum::<usize>() as u64
}

/// Decodes frames with ffmpeg. Returns the luma of each picture; `None` if ffmpeg is not available.
fn shown(size: (u32, u32), frames: &[&Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let mut ivf = b"DKIF\0\0\x20\0VP80".to_vec();
    for side in [size.0, size.1] {
        ivf.extend((side as u16).to_le_bytes());
    }
    ivf.extend([25, 0, 0, 0, 1, 0, 0, 0]);
    ivf.extend((frames.len() as u32).to_le_bytes());
    ivf.extend([0; 4]);
    for (number, frame) in (0_u64..).zip(frames) {
        ivf.extend((frame.len() as u32).to_le_bytes());
        ivf.extend(number.to_le_bytes());
        ivf.extend_from_slice(frame);
    }
    let arguments = "-v warning -xerror -f ivf -i - -f rawvideo -pix_fmt yuv420p -fps_mode \
                     passthrough -";
    let arguments: Vec<&str> = arguments.split_ascii_whitespace().collect();
    let (success, bytes, complaints) = run("ffmpeg", &arguments, &ivf)?;
    assert!(success && complaints.is_empty(), "{size:?}: {complaints}");
    let luma = (size.0 * size.1) as usize;
    let pictures = bytes.chunks_exact(luma + 2 * (luma / 4));
    let pictures = pictures.map(|picture| picture[..luma].to_vec());
    Some(pictures.collect())
}

/// Checks the last row and column of each macroblock, which texture does not change.
fn levels_are_right(size: (u32, u32), numbers: &[u64], pictures: &[Vec<u8>]) {
    let (width, grid) = (size.0 as usize, Grid::of(size));
    assert_eq!(pictures.len(), numbers.len());
    for (number, picture) in numbers.iter().zip(pictures) {
        for (row, column) in (0..size.1 as usize / 16)
            .flat_map(|row| (0..width / 16).map(move |column| (row, column)))
        {
            let level = grid.level(column, *number);
            for within in 0..16 {
                let right = picture[(row * 16 + within) * width + column * 16 + 15];
                let below = picture[(row * 16 + 15) * width + column * 16 + within];
                let found = [right, below].map(i32::from);
                assert_eq!(found, [level; 2], "{number}: {column}, {row}, {within}");
            }
        }
    }
}

#[test]
fn ffmpeg_decodes_the_levels_that_were_drawn() {
    for (settings, size) in [
        (settings(64_000, 25, 50), None),
        (settings(300_000, 25, 25), Some((320, 180))),
        (settings(1_500_000, 25, 50), None),
        (settings(4_000_000, 30, 60), Some((1280, 720))),
        (settings(1_000_000, 10, 1), None),
        (settings(150_000, 5, 300), Some((322, 98))),
    ] {
        let settings = VideoSettings {
            form: PictureForm {
                size,
                ..PictureForm::default()
            },
            ..settings
        };
        let stream = Vp8Stream::new(&settings).expect("the rate can be met");
        // Two loops: the first frame follows the last one.
        let frames: Vec<&Vec<u8>> = stream.frames.iter().chain(&stream.frames).collect();
        let count = stream.frames.len() as u64;
        let numbers: Vec<u64> = (0..count).chain(0..count).collect();
        if let Some(pictures) = shown(stream.size, &frames) {
            levels_are_right(stream.size, &numbers, &pictures);
        }
    }
}

#[test]
fn frames_of_another_rate_may_follow_and_be_lost() {
    let high = settings(900_000, 25, 25);
    let high = Vp8Stream::new(&high).expect("the rate can be met");
    let low = high
        .at_bit_rate(&settings(300_000, 25, 25))
        .expect("it can");
    let mut frames = Vec::new();
    let mut numbers = Vec::new();
    for (number, (one, other)) in (0_u64..).zip(high.frames.iter().zip(&low.frames)) {
        let is_key = number % 25 == 0;
        if number % 4 == 2 && !is_key {
            continue;
        }
        numbers.push(number);
        frames.push(if number % 3 == 1 { other } else { one });
    }
    if let Some(pictures) = shown(high.size, &frames) {
        levels_are_right(high.size, &numbers, &pictures);
    }
    // A requested key frame: the next GOP begins early.
    let early: Vec<u64> = (0..10).chain(25..50).collect();
    let frames: Vec<&Vec<u8>> = early.iter().map(|at| &high.frames[*at as usize]).collect();
    if let Some(pictures) = shown(high.size, &frames) {
        levels_are_right(high.size, &early, &pictures);
    }
}

#[test]
fn impossible_rates_state_the_minimum() {
    let error = Vp8Stream::new(&settings(5_000, 25, 50)).expect_err("it is too low");
    let SettingsError::BitRateTooLow { asked, needed, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(asked, 5_000);
    assert!(Vp8Stream::new(&settings(needed, 25, 50)).is_ok());
    assert!(Vp8Stream::check(&settings(needed, 25, 50)).is_ok());
    assert!(Vp8Stream::new(&settings(needed - 200, 25, 50)).is_err());
    assert!(Vp8Stream::check(&settings(needed - 200, 25, 50)).is_err());
}

#[test]
fn reported_minimum_bit_rate_is_sufficient() {
    for (size, gop) in [
        ((320, 180), 50),
        ((640, 360), 10),
        ((96, 64), 3),
        ((1280, 720), 25),
    ] {
        let with = |rate| VideoSettings {
            form: PictureForm {
                size: Some(size),
                ..PictureForm::default()
            },
            ..settings(rate, 25, gop)
        };
        let Err(SettingsError::BitRateTooLow { needed, .. }) = Vp8Stream::new(&with(1)) else {
            panic!("it is too low");
        };
        // Just above the minimum, later frames limit the room of earlier ones.
        for rate in [needed, needed * 21 / 20, needed * 3 / 2] {
            let stream = Vp8Stream::new(&with(rate)).expect("it can be met");
            let wanted = rate * stream.frames.len() as u64 / (8 * 25);
            let spent = payload_of(&stream, 1200);
            assert!(
                spent <= wanted && spent + 1 >= wanted,
                "{size:?}: {spent} of {wanted}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn loop_has_its_bit_rate_to_the_byte(
        rate in 20_000_u64..600_000,
        frames in 1_u32..31,
        gop in 1_u32..80,
        mtu in 128_usize..1500,
    ) {
        let settings = VideoSettings { mtu, ..settings(rate, frames, gop) };
        let Ok(stream) = Vp8Stream::new(&settings) else {
            prop_assert!(Vp8Stream::check(&settings).is_err());
            return Ok(());
        };
        prop_assert!(Vp8Stream::check(&settings).is_ok());
        let wanted = rate * stream.frames.len() as u64 / (8 * u64::from(frames));
        let spent = payload_of(&stream, mtu);
        // A packet cannot consist of a descriptor alone.
        prop_assert!(spent <= wanted && spent + 1 >= wanted, "{} of {}", spent, wanted);
        for frame in &stream.frames {
            let payloads = cut(frame, mtu);
            let length: usize = payloads.iter().map(Bytes::len).sum();
            prop_assert_eq!(length, payload_bytes(frame.len(), mtu));
            prop_assert!(payloads.iter().all(|own| (2..=mtu).contains(&own.len())));
            let whole: Vec<u8> = payloads.iter().flat_map(|own| own[1..].to_vec()).collect();
            prop_assert_eq!(&whole, frame);
            // One code, in the last packet.
            let coded = payloads.iter().map(|own| TimeCode::find(own).is_some());
            let coded: Vec<bool> = coded.collect();
            let last = coded.len() - 1;
            prop_assert!(coded.iter().enumerate().all(|(at, coded)| *coded == (at == last)));
        }
    }
}

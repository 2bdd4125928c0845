//! The stream keeps its bit rate, and an independent decoder accepts it without errors.

use proptest::prelude::*;

use super::*;
use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::tests::run;
use crate::mediagen::video::PictureForm;

fn settings(bits_per_second: u64, frame_rate: FrameRate, gop: u32) -> VideoSettings {
    VideoSettings {
        bits_per_second,
        frame_rate,
        gop,
        mtu: 1400,
        form: PictureForm::default(),
    }
}

fn payload_of(stream: &H264Stream, mtu: usize) -> u64 {
    let bytes = stream
        .pictures
        .iter()
        .map(|nals| cut_bytes(&slices(nals), mtu));
    bytes.sum::<usize>() as u64
}

fn decodes(settings: &VideoSettings, loops: usize) {
    let stream = H264Stream::new(settings).unwrap();
    let bytes = stream.annex_b().repeat(loops);
    let decode = [
        "-v",
        "warning",
        "-xerror",
        "-probesize",
        "100M",
        "-f",
        "h264",
        "-i",
        "-",
        "-f",
        "null",
        "-",
    ];
    if let Some((success, _, complaints)) = run("ffmpeg", &decode, &bytes) {
        assert!(
            success && complaints.is_empty(),
            "{settings:?}: {complaints}"
        );
    }
    let probe = [
        "-v",
        "warning",
        "-probesize",
        "100M",
        "-f",
        "h264",
        "-count_frames",
        "-show_entries",
        "stream=width,height,r_frame_rate,nb_read_frames,profile",
        "-of",
        "default=nw=1",
        "-",
    ];
    if let Some((success, output, complaints)) = run("ffprobe", &probe, &bytes) {
        assert!(
            success && complaints.is_empty(),
            "{settings:?}: {complaints}"
        );
        let output = String::from_utf8(output).unwrap();
        let rate = settings.frame_rate;
        for line in [
            match settings.form.profile {
                Profile::Baseline => "profile=Constrained Baseline".to_owned(),
                Profile::Main => "profile=Main".to_owned(),
            },
            format!("width={}", stream.size.0),
            format!("height={}", stream.size.1),
            format!("r_frame_rate={}/{}", rate.numerator(), rate.denominator()),
            format!("nb_read_frames={}", stream.pictures.len() * loops),
        ] {
            assert!(
                output.lines().any(|output| output == line),
                "{settings:?}: {line}: {output}"
            );
        }
    }
}

#[test]
fn ffmpeg_decodes_low_rates() {
    decodes(&settings(20_000, FrameRate::whole(5), 10), 2);
    decodes(&settings(20_000, FrameRate::whole(25), 50), 2);
    decodes(&settings(100_000, FrameRate::whole(25), 50), 2);
}

#[test]
fn ffmpeg_decodes_usual_rates() {
    decodes(&settings(1_000_000, FrameRate::whole(25), 50), 2);
    decodes(&settings(4_000_000, "30000/1001".parse().unwrap(), 60), 2);
}

#[test]
fn ffmpeg_decodes_high_rates() {
    decodes(&settings(50_000_000, FrameRate::whole(60), 120), 1);
}

#[test]
fn ffmpeg_decodes_intra_only_and_long_gops() {
    decodes(&settings(2_000_000, FrameRate::whole(10), 1), 2);
    decodes(&settings(300_000, FrameRate::whole(25), 600), 2);
}

#[test]
fn ffmpeg_decodes_the_levels_that_were_drawn() {
    let settings = settings(400_000, FrameRate::whole(25), 50);
    let stream = H264Stream::new(&settings).unwrap();
    let arguments = [
        "-v",
        "warning",
        "-f",
        "h264",
        "-i",
        "-",
        "-f",
        "rawvideo",
        "-pix_fmt",
        "yuv420p",
        "-frames:v",
        "1",
        "-",
    ];
    let Some((true, picture, _)) = run("ffmpeg", &arguments, &stream.annex_b()) else {
        return;
    };
    let (width, height) = (stream.size.0 as usize, stream.size.1 as usize);
    assert_eq!(picture.len(), width * height * 3 / 2);
    // The first picture: bar in the first column of macroblocks, texture first, gradient last.
    let last_row = &picture[width * (height - 1)..width * height];
    assert_eq!(last_row[0], 225);
    assert!(
        (150..=180).contains(&last_row[width - 1]),
        "{}",
        last_row[width - 1]
    );
    assert!(last_row[16..].windows(2).all(|pair| pair[0] <= pair[1]));
}

#[test]
fn impossible_rates_state_the_minimum() {
    let asked = settings(2_000, FrameRate::whole(30), 60);
    let Err(SettingsError::BitRateTooLow { needed, .. }) = H264Stream::new(&asked) else {
        panic!("2 kb/s must not do");
    };
    assert!(H264Stream::new(&settings(needed, FrameRate::whole(30), 60)).is_ok());
    assert!(matches!(
        H264Stream::new(&settings(u64::MAX, FrameRate::whole(30), 60)),
        Err(SettingsError::BitRateTooHigh { .. })
    ));
    assert_eq!(
        H264Stream::new(&settings(1_000_000, FrameRate::whole(30), 0)).unwrap_err(),
        SettingsError::Gop(0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn bit_rate_is_kept(
        bits_per_second in 20_000u64..3_000_000,
        rate in 5u32..30,
        seconds in 1u32..4,
        mtu in 200usize..1500,
    ) {
        let settings = VideoSettings {
            bits_per_second,
            frame_rate: FrameRate::whole(rate),
            gop: rate * seconds,
            mtu,
            form: PictureForm::default(),
        };
        let stream = H264Stream::new(&settings).unwrap();
        let wanted = bits_per_second * stream.pictures.len() as u64 / u64::from(rate) / 8;
        let got = payload_of(&stream, mtu);
        prop_assert!(got.abs_diff(wanted) <= 8.max(wanted / 10_000), "{} for {}", got, wanted);
    }
}

#[test]
fn pictures_have_the_requested_form() {
    let form = |size, profile| VideoSettings {
        form: PictureForm { size, profile },
        ..settings(2_136_000, FrameRate::whole(60), 120)
    };
    let asked = form(Some((1280, 720)), Profile::Main);
    let stream = H264Stream::new(&asked).expect("there is room for it");
    assert_eq!((stream.size, stream.sps[1]), ((1280, 720), 77));
    assert_eq!(stream.pictures.len(), 120);
    decodes(&asked, 2);
    // A size smaller than the bit rate allows, which is cropped.
    decodes(&form(Some((320, 180)), Profile::Baseline), 2);
    for size in [(1281, 720), (1280, 46), (1280, 4098)] {
        assert_eq!(
            H264Stream::new(&form(Some(size), Profile::Main)).map(|stream| stream.size),
            Err(SettingsError::Size(size.0, size.1))
        );
    }
    let low = VideoSettings {
        bits_per_second: 100_000,
        ..asked
    };
    let error = H264Stream::new(&low).map(|stream| stream.size);
    assert!(
        matches!(error, Err(SettingsError::BitRateTooLow { .. })),
        "{error:?}"
    );
}

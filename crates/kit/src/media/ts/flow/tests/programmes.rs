//! Programmes with a given form, with audio.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::ts::looped_stream::LoopedStream;
use crate::mediagen::ts::synthetic::{Programme, SyntheticError};
use crate::mediagen::video::{PictureForm, Profile};

use super::{all_of, check, settings};

fn programme(frame_rate: &str, gop: u32) -> Programme {
    Programme {
        rate: 3_300_000,
        frame_rate: frame_rate.parse().expect("it is one"),
        gop,
        form: PictureForm {
            size: Some((1280, 720)),
            profile: Profile::Main,
        },
        audio: true,
    }
}

/// Streams and warnings that ffprobe reports; `None` if ffprobe is missing and the environment
/// allows it.
fn probed(bytes: &[u8]) -> Option<(String, String)> {
    let child = Command::new("ffprobe")
        .args(["-v", "warning", "-count_frames", "-f", "mpegts", "-i", "-"])
        .args([
            "-show_entries",
            "stream=codec_name,profile,width,nb_read_frames,r_frame_rate",
        ])
        .args(["-of", "compact=nk=1:p=0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let may_be = std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some();
            assert!(may_be, "ffprobe does not start: {error}");
            return None;
        }
    };
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes).ok());
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it writes");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&output.stdout), text(&output.stderr)))
}

#[test]
fn programme_with_audio_continues_across_its_end() {
    let looped = Arc::new(LoopedStream::programme(&programme("60", 120)).expect("there is room"));
    // The loop is 8 s, which is a whole number of audio frames.
    let sent = all_of(settings(&looped), 17);
    let pids = check(3_300_000, 0x100, &sent);
    assert!(pids[&0x101] > 17 * 46 * 2, "{pids:?}");
    let bytes: Vec<u8> = sent.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let Some((streams, complaints)) = probed(&bytes) else {
        return;
    };
    let lines: Vec<Vec<&str>> = streams
        .lines()
        .map(|line| line.split('|').collect())
        .collect();
    let video = lines.iter().find(|line| line[0] == "h264").expect(&streams);
    assert!(
        video.contains(&"Main") && video.contains(&"1280") && video.contains(&"60/1"),
        "{streams}"
    );
    let frames = |line: &[&str]| line[line.len() - 1].parse::<u64>().expect("a number");
    // The last frames may be incomplete.
    assert!(
        (17 * 60 - 40..=17 * 60).contains(&frames(video)),
        "{streams}"
    );
    let audio = lines.iter().find(|line| line[0] == "aac").expect(&streams);
    let all = 17 * 48_000 / 1024;
    assert!((all - 30..=all + 1).contains(&frames(audio)), "{streams}");
    // The stream is truncated in the middle of frames, and has no other error.
    let other = |line: &&str| !line.contains("[aac") && !line.contains("[h264");
    let others: Vec<&str> = complaints.lines().filter(other).collect();
    assert!(others.len() <= 2, "{complaints}");
}

#[test]
fn audio_and_video_without_common_end_are_refused() {
    let error = LoopedStream::programme(&programme("997/1000", 2)).map(drop);
    let rate: FrameRate = "997/1000".parse().expect("it is one");
    assert_eq!(error, Err(SyntheticError::Audio(rate)));
    let without = Programme {
        audio: false,
        ..programme("997/1000", 2)
    };
    assert!(LoopedStream::programme(&without).is_ok());
}

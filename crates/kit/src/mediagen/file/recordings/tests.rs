use std::process::Command;

use proptest::prelude::*;

use super::*;

/// Two seconds of 30 pictures per second, encoded by ffmpeg; `None` if ffmpeg is not available.
fn made(name: &str, options: &[&str]) -> Option<Vec<u8>> {
    let path = std::env::temp_dir().join(format!("streamgauge-{}-{name}", std::process::id()));
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-y", "-f", "lavfi"])
        .args(["-i", "testsrc2=size=320x240:rate=30"])
        .args(["-f", "lavfi", "-i", "sine=sample_rate=48000", "-t", "2"])
        .args(["-g", "30", "-b:v", "1M"])
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

/// Copies the video of a file into a file of another format.
fn copied(bytes: &[u8], name: &str) -> Option<Vec<u8>> {
    let path = |name: &str| {
        std::env::temp_dir().join(format!("streamgauge-{}-of-{name}", std::process::id()))
    };
    let (from, to) = (path("b.webm"), path(name));
    std::fs::write(&from, bytes).expect("there is room");
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-y", "-i"])
        .arg(&from)
        .args(["-an", "-c", "copy"])
        .arg(&to)
        .status();
    let made = made.ok().filter(|status| status.success());
    let copied = made.map(|_| std::fs::read(&to).expect("it was just made"));
    let _ = (std::fs::remove_file(&from), std::fs::remove_file(&to));
    copied
}

fn taken(bytes: &[u8], audio: bool) -> Result<Vec<Arc<Clip>>, String> {
    recorded(bytes, 1200, audio).expect("it is a recording")
}

/// Reassembles the frames of a video clip.
fn frames(clip: &Clip, descriptor: usize) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = vec![Vec::new(); clip.frames as usize];
    for packet in &clip.packets {
        frames[packet.frame as usize].extend_from_slice(&packet.payload[descriptor..]);
        assert!(packet.payload.len() <= 1200);
        assert_eq!(packet.marker, packet.part.0 + 1 == packet.part.1);
    }
    frames
}

#[test]
fn ivf_and_webm_of_ffmpeg_give_the_same_pictures() {
    for (codec, encoder) in [("VP8", "libvpx"), ("VP9", "libvpx-vp9")] {
        let fast = ["-c:v", encoder, "-deadline", "realtime", "-cpu-used", "8"];
        let both = [&fast[..], &["-c:a", "libopus", "-b:a", "32k"]].concat();
        let Some(webm) = made("b.webm", &both) else {
            return;
        };
        let ivf = copied(&webm, "a.ivf").expect("there is an ffmpeg");
        let of_ivf = taken(&ivf, true).expect("it can be sent");
        let of_webm = taken(&webm, true).expect("it can be sent");
        assert_eq!((of_ivf.len(), of_webm.len()), (1, 2));
        let video = &of_webm[0];
        assert_eq!(video.encoding(), format!("{codec}/90000"));
        assert_eq!((video.frames, of_ivf[0].frames), (60, 60), "{codec}");
        // The first byte of a payload is the descriptor.
        assert!(frames(video, 1) == frames(&of_ivf[0], 1), "{codec}");
        let times = video.times.as_ref().expect("listed");
        for (frame, &(due, ticks)) in (0_u64..).zip(&times.frames) {
            // WebM times have a resolution of one millisecond.
            assert!(
                due.abs_diff(frame * 1_000_000_000 / 30) <= 1_000_000,
                "{frame}: {due}"
            );
            assert!(ticks.abs_diff(frame as u32 * 3000) <= 90);
        }
        let keys = video.packets.iter().filter(|packet| match codec {
            "VP8" => packet.payload[0] == 0x10 && packet.payload[1] & 1 == 0,
            _ => packet.payload[0] & 0x48 == 0x08,
        });
        assert_eq!(keys.count(), 2, "{codec}: one a second");
        let sound = &of_webm[1];
        assert_eq!((sound.media(), sound.encoding()), ("audio", "opus/48000/2"));
        assert!((99..=102).contains(&sound.frames), "{}", sound.frames);
        assert_eq!(taken(&webm, false).expect("without sound").len(), 1);
        for length in (0..ivf.len()).step_by(997) {
            let _ = recorded(&ivf[..length], 1200, true);
            let _ = recorded(&webm[..length.min(webm.len())], 1200, true);
        }
    }
}

/// A Janus recording of these packets: sequence number, timestamp and payload.
fn mjr(about: &str, packets: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let mut file = b"MJR00002".to_vec();
    file.extend((about.len() as u16).to_be_bytes());
    file.extend(about.as_bytes());
    for (sequence, timestamp, payload) in packets {
        file.extend(b"MEET\0\0\0\0");
        // With a header extension of one word, and padding.
        let head = [0xb0, 96];
        let length = 12 + 8 + payload.len() + 2;
        file.extend((length as u16).to_be_bytes());
        file.extend(head);
        file.extend(sequence.to_be_bytes());
        file.extend(timestamp.to_be_bytes());
        file.extend([0, 0, 0, 7, 0xbe, 0xde, 0, 1, 1, 2, 3, 4]);
        file.extend(*payload);
        file.extend([0, 2]);
    }
    file
}

#[test]
fn janus_packets_keep_payloads_and_get_new_times() {
    let about = r#"{"t":"v","c":"vp8","s":1,"u":2}"#;
    let (key, more, inter) = (&[0x10, 0x00, 9][..], &[0x00, 8][..], &[0x10, 0x01, 7][..]);
    // With a 15-bit picture ID and layer indices.
    let numbered = &[0x90, 0xc0, 0x81, 0x02, 0x03, 0x00, 9][..];
    // The first frame is not a key frame, two packets were reordered, one was duplicated, and
    // sequence numbers and timestamps wrap around.
    let file = mjr(
        about,
        &[
            (65_533, 4_294_960_000, inter),
            (65_534, 4_294_963_000, numbered),
            (0, 4_294_966_000, inter),
            (65_535, 4_294_963_000, more),
            (0, 4_294_966_000, inter),
            (1, 1_704, inter),
        ],
    );
    let clips = taken(&file, true).expect("it can be sent");
    let [video] = &clips[..] else {
        panic!("{} clips", clips.len());
    };
    let all: Vec<(u32, bool, &[u8])> = (video.packets.iter())
        .map(|packet| (packet.frame, packet.marker, &packet.payload[..]))
        .collect();
    let expected = [
        (0, false, key),
        (0, true, more),
        (1, true, inter),
        (2, true, inter),
    ];
    assert_eq!(all, expected);
    let times = video.times.as_ref().expect("listed");
    let ticks: Vec<u32> = times.frames.iter().map(|own| own.1).collect();
    assert_eq!(ticks, [0, 3000, 6000]);
    assert!(times.length.abs_diff(100_000_000) <= 2, "{}", times.length);
}

#[test]
fn impossible_times_cause_no_flood() {
    let about = r#"{"c":"vp8"}"#;
    let (key, inter) = (&[0x10, 0x00][..], &[0x10, 0x01][..]);
    // The encoder restarted twice: the frame rate stays the same.
    let times = [
        9_000,
        12_000,
        15_000,
        100,
        3_100,
        4_000_000_000,
        4_000_003_000,
    ];
    let packets: Vec<(u16, u32, &[u8])> = (0_u16..)
        .zip(times)
        .map(|(at, time)| (at, time, if at == 0 { key } else { inter }))
        .collect();
    let clips = taken(&mjr(about, &packets), true).expect("it can be sent");
    let times = clips[0].times.as_ref().expect("listed");
    let ticks: Vec<u32> = times.frames.iter().map(|own| own.1).collect();
    assert_eq!(ticks, [0, 3000, 6000, 9000, 12_000, 15_000, 18_000]);
    // A single frame does not exceed 1000 frames a second.
    let alone = taken(&mjr(about, &packets[..1]), true).expect("it can be sent");
    assert_eq!(
        alone[0].times.as_ref().map(|own| own.length),
        Some(40_000_000)
    );
    let ivf = |times: &[u64]| {
        let mut file = b"DKIF\0\0\x20\0VP80\x10\0\x10\0\xe8\x03\0\0\x01\0\0\0".to_vec();
        file.resize(32, 0);
        for time in times {
            file.extend([1, 0, 0, 0]);
            file.extend(time.to_le_bytes());
            file.push(0x10);
        }
        file
    };
    let refused = |times: &[u64]| taken(&ivf(times), true).map(|_| ());
    let beyond = u64::MAX / 1_000_000;
    assert_eq!(refused(&[0, 40]), Ok(()));
    assert_eq!(
        refused(&[1_000_000_000]),
        Ok(()),
        "the first is the beginning"
    );
    assert_eq!(
        refused(&[u64::MAX]),
        Err("an IVF time is out of range".to_owned())
    );
    assert_eq!(
        refused(&[0, beyond]),
        Err("the timestamps go back or are out of range".to_owned())
    );
    assert_eq!(
        refused(&[0, 3_600_000]),
        Err("the media is longer than an hour".to_owned())
    );
    // Two frames in two milliseconds, and three.
    assert_eq!(refused(&[5, 6]), Ok(()));
    let flood = Err("there are more than 1000 frames a second".to_owned());
    assert_eq!(refused(&[5, 5, 6]), flood);
    assert_eq!(refused(&[5; 1001]), flood);
}

#[test]
fn webm_track_fields_may_come_in_any_order() {
    let entry = |first: &[u8], second: &[u8]| [b"\xae\x8b", first, second].concat();
    let (number, codec) = (&b"\xd7\x81\x07"[..], &b"\x86\x85V_VP8"[..]);
    for track in [entry(number, codec), entry(codec, number)] {
        let other = b"\xae\x8c\xd7\x81\x01\x86\x86A_OPUS";
        let head = b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\xff";
        let frames =
            b"\x1f\x43\xb6\x75\xff\xe7\x81\0\xa3\x86\x87\0\0\x80\x10\0\xa3\x85\x81\0\x02\0\x07";
        let file = [&head[..], other, &track, frames].concat();
        let clips = taken(&file, true).expect("it can be sent");
        let kinds: Vec<&str> = clips.iter().map(|clip| clip.media()).collect();
        assert_eq!(kinds, ["video", "audio"]);
        assert_eq!(&clips[0].packets[0].payload[..], [0x10, 0x10, 0]);
    }
}

#[test]
fn unusable_recordings_state_the_reason() {
    let refused = |bytes: &[u8]| taken(bytes, true).expect_err("it cannot be sent");
    assert!(recorded(b"RIFF", 1200, true).is_none());
    assert_eq!(refused(b"DKIF"), "the IVF header is truncated");
    assert_eq!(
        refused(&mjr(r#"{"c":"speex"}"#, &[])),
        "unknown codec `speex`"
    );
    assert!(refused(&mjr("nothing", &[])).contains("is not valid JSON"));
    let inter: &[u8] = &[0x10, 0x01];
    assert_eq!(
        refused(&mjr(r#"{"c":"vp8"}"#, &[(1, 1, inter)])),
        "the recording has no key frame"
    );
    let opus = |length| mjr(r#"{"c":"opus"}"#, &[(1, 1, &vec![7; length][..])]);
    assert!(taken(&opus(1460), true).is_ok());
    assert_eq!(
        refused(&opus(1461)),
        "a packet of 1461 bytes exceeds the limit of 1460 for a datagram"
    );
    assert_eq!(refused(b"\x1a\x45\xdf\xa3"), "no VP8, VP9 or Opus track");
    let mut ivf = b"DKIF\0\0\x20\0AV01".to_vec();
    ivf.resize(32, 1);
    assert_eq!(refused(&ivf), "the IVF codec `AV01` is neither VP8 nor VP9");
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_a_panic(
        kind in 0..3_usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..8),
    ) {
        let mut file = match kind {
            0 => [&b"DKIF\0\0\x20\0VP80"[..], &bytes].concat(),
            1 => [&b"\x1a\x45\xdf\xa3\x80\xae\x80\xd7\x81\x01\x86\x85V_VP8\xa3"[..], &bytes].concat(),
            _ => mjr(r#"{"c":"h264"}"#, &[(1, 2, &bytes), (2, 2, &[5]), (4, 9, &bytes)]),
        };
        for (at, value) in changes {
            let at = usize::from(at) % file.len();
            file[at] = value;
        }
        if let Some(Ok(clips)) = recorded(&file, 1200, true) {
            for clip in clips {
                let times = clip.times.as_ref().expect("listed");
                assert!(times.frames.is_sorted_by_key(|&(due, _)| due));
                assert!(times.frames.iter().all(|&(due, _)| due < times.length));
                // Each lasts at least a millisecond on average.
                assert!(times.length / times.frames.len() as u64 >= 1_000_000);
                let longest = clip.packets.iter().map(|packet| packet.payload.len()).max();
                assert!(longest <= Some(1460));
            }
        }
    }
}

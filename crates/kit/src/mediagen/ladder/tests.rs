//! An encoder keeps its bit rate whatever is requested, and its output can be decoded.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::tests::run;
use crate::mediagen::video::PictureForm;

const RATE: u64 = 1_000_000;
const FRAMES: u32 = 25;
const GOP: u32 = 50;

fn settings() -> VideoSettings {
    VideoSettings {
        bits_per_second: RATE,
        frame_rate: FrameRate::whole(FRAMES),
        gop: GOP,
        mtu: 1200,
        form: PictureForm::default(),
    }
}

fn ladder() -> Arc<Ladder> {
    static LADDER: LazyLock<Arc<Ladder>> =
        LazyLock::new(|| Arc::new(Ladder::h264(&settings()).expect("it is possible")));
    LADDER.clone()
}

fn vp8() -> Arc<Ladder> {
    static LADDER: LazyLock<Arc<Ladder>> =
        LazyLock::new(|| Arc::new(Ladder::vp8(&settings()).expect("it is possible")));
    LADDER.clone()
}

fn bytes(encoder: &Encoder, picture: &Picture) -> u64 {
    let packets = 0..picture.packets();
    packets
        .map(|index| encoder.packet(picture, index).payload.len() as u64)
        .sum()
}

#[test]
fn encoder_without_requests_returns_the_clip_unchanged() {
    left_alone(ladder());
    left_alone(vp8());
}

fn left_alone(ladder: Arc<Ladder>) {
    let mut encoder = Encoder::new(ladder);
    let clip = encoder.clip().clone();
    for round in 0..3 {
        let mut packets = clip.packets.iter();
        for number in 0..clip.frames {
            let picture = encoder.next_picture();
            assert_eq!(picture.is_key, number % GOP == 0, "{round}");
            for index in 0..picture.packets() {
                let packet = packets.next().expect("it has as many");
                assert_eq!(encoder.packet(&picture, index).payload, packet.payload);
            }
        }
        assert!(packets.next().is_none());
    }
    assert_eq!(encoder.early_key_frames(), 0);
}

#[test]
fn key_frame_comes_at_once_and_starts_a_whole_gop() {
    let mut encoder = Encoder::new(ladder());
    for _ in 0..20 {
        encoder.next_picture();
    }
    encoder.key_frame();
    assert!(encoder.next_picture().is_key);
    for _ in 1..GOP {
        assert!(!encoder.next_picture().is_key);
    }
    assert!(encoder.next_picture().is_key);
    assert_eq!(encoder.early_key_frames(), 1);
}

#[test]
fn requested_key_frames_are_limited_to_four_a_second() {
    let mut encoder = Encoder::new(ladder());
    let mut keys = 0;
    for _ in 0..FRAMES * 10 {
        encoder.key_frame();
        keys += u32::from(encoder.next_picture().is_key);
    }
    // A key frame every seven pictures.
    assert_eq!(keys, (FRAMES * 10).div_ceil(7));
    // A request that comes too early is deferred.
    let mut encoder = Encoder::new(ladder());
    encoder.next_picture();
    encoder.key_frame();
    let next = (1..GOP).find(|_| encoder.next_picture().is_key);
    assert_eq!(next, Some(7));
}

#[test]
fn ladder_ends_at_pictures_without_texture() {
    ends(ladder());
    ends(vp8());
}

fn ends(ladder: Arc<Ladder>) {
    assert!(
        ladder.lowest_bitrate() <= RATE / 8,
        "{}",
        ladder.lowest_bitrate()
    );
    let mut encoder = Encoder::new(ladder.clone());
    assert_eq!(encoder.set_bitrate(2 * RATE), RATE);
    assert_eq!(encoder.set_bitrate(1), ladder.lowest_bitrate());
    assert_eq!(encoder.set_bitrate(500_000), 500_000);
    assert_eq!(encoder.bitrate(), 500_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn bit_rate_is_exact_whatever_is_requested(
        rates in proptest::collection::vec(200_000u64..1_100_000, 1..4),
        requests in proptest::collection::btree_set(0u32..1500, 0..200),
        is_vp8 in any::<bool>(),
    ) {
        let mut encoder = Encoder::new(if is_vp8 { vp8() } else { ladder() });
        let largest = encoder.ladder.rungs[0].pictures[0].bytes;
        let (mut sent, mut due, mut number) = (0, 0, 0);
        for rate in rates {
            let rate = encoder.set_bitrate(rate);
            let begin = number;
            // Ends with a whole GOP, because the sizes within a GOP differ.
            while number < begin + 500 || !encoder.next.is_multiple_of(GOP) {
                if requests.contains(&number) {
                    encoder.key_frame();
                }
                let picture = encoder.next_picture();
                sent += bytes(&encoder, &picture);
                due += rate;
                number += 1;
            }
            let wanted = due / 8 / u64::from(FRAMES);
            prop_assert!(
                sent.abs_diff(wanted) <= u64::from(largest),
                "{} for {}, a picture has up to {}", sent, wanted, largest
            );
        }
    }
}

/// Converts packets to a byte stream with start codes (H.264, annex B; RFC 6184, 5.7.1 and 5.8).
fn byte_stream<'a>(payloads: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    const START: [u8; 4] = [0, 0, 0, 1];
    let mut stream = Vec::new();
    for payload in payloads {
        match payload[0] & 0x1f {
            24 => {
                let mut rest = &payload[1..];
                while let [high, low, after @ ..] = rest {
                    let length = usize::from(u16::from_be_bytes([*high, *low]));
                    stream.extend(START);
                    stream.extend(&after[..length]);
                    rest = &after[length..];
                }
            }
            28 => {
                if payload[1] & 0x80 != 0 {
                    stream.extend(START);
                    stream.push(payload[0] & 0xe0 | payload[1] & 0x1f);
                }
                stream.extend(&payload[2..]);
            }
            _ => {
                stream.extend(START);
                stream.extend(payload);
            }
        }
    }
    stream
}

/// Decodes a stream with ffmpeg. Returns the number of frames and the error output; `None` if
/// ffmpeg is missing and may be.
fn decoded(format: &str, stream: Vec<u8>) -> Option<(usize, String)> {
    let decode = [
        "-v",
        "warning",
        "-probesize",
        "100M",
        "-f",
        format,
        "-i",
        "-",
    ];
    let frames = ["-f", "framecrc", "-"];
    let (_, output, complaints) = run("ffmpeg", &[&decode[..], &frames].concat(), &stream)?;
    let output = String::from_utf8_lossy(&output);
    let frames = output.lines().filter(|line| !line.starts_with('#')).count();
    Some((frames, complaints))
}

#[test]
fn ffmpeg_decodes_early_key_frames_and_changing_bit_rates() {
    let mut stream = Vec::new();
    encoded(ladder(), |packets| {
        stream.extend(byte_stream(
            packets.iter().map(|packet| &packet.payload[..]),
        ));
    });
    if let Some((frames, complaints)) = decoded("h264", stream) {
        assert_eq!((frames, complaints), (400, String::new()));
    }
    // The decoder reads the picture size from the frames.
    let mut ivf = b"DKIF\0\0\x20\0VP80".to_vec();
    ivf.extend([16, 0, 16, 0, 25, 0, 0, 0, 1, 0, 0, 0]);
    ivf.resize(32, 0);
    let mut number = 0_u64;
    encoded(vp8(), |packets| {
        let frame: Vec<u8> = packets
            .iter()
            .flat_map(|packet| packet.payload[1..].to_vec())
            .collect();
        ivf.extend((frame.len() as u32).to_le_bytes());
        ivf.extend(number.to_le_bytes());
        ivf.extend(frame);
        number += 1;
    });
    if let Some((frames, complaints)) = decoded("ivf", ivf) {
        assert_eq!((frames, complaints), (400, String::new()));
    }
}

/// Output of an encoder that receives many requests.
fn encoded(ladder: Arc<Ladder>, mut takes: impl FnMut(&[&ClipPacket])) {
    let mut encoder = Encoder::new(ladder);
    for number in 0..400u32 {
        if number % 37 == 5 {
            encoder.key_frame();
        }
        if number % 11 == 3 {
            encoder.set_bitrate(u64::from(number * 7919 % 1000) * 1000);
        }
        let picture = encoder.next_picture();
        let packets = (0..picture.packets()).map(|index| encoder.packet(&picture, index));
        takes(&packets.collect::<Vec<_>>());
    }
    assert!(encoder.early_key_frames() >= 9);
}

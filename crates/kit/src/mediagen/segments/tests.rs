//! Tests of segments: they are whole, join without a gap, and have their time codes.

use std::collections::BTreeMap;

use super::*;
use crate::mediagen::ts::packet::{Header, PACKET_LEN};
use crate::mediagen::video::PictureForm;

const GOP: u64 = 10;

fn video(container: Container) -> SegmentedVideo {
    let settings = VideoSettings {
        bits_per_second: 500_000,
        frame_rate: FrameRate::whole(10),
        gop: GOP as u32,
        mtu: 65_000,
        form: PictureForm::default(),
    };
    SegmentedVideo::new(&settings, container).expect("it can be generated")
}

fn due(picture: u64) -> u64 {
    1_000_000 * picture
}

/// Writes pictures; those of a segment if the first one is a key picture.
fn write(video: &SegmentedVideo, pictures: Range<u64>) -> Vec<u8> {
    let cut = Cut {
        segment: pictures.start / GOP,
        begins_segment: video.is_key(pictures.start),
        pictures,
        source: 7,
    };
    video.write(&cut, due)
}

#[test]
fn transport_segments_join_without_a_gap() {
    let video = video(Container::MpegTs);
    let mut next: BTreeMap<u16, u8> = BTreeMap::new();
    let mut pictures = 0;
    // Beyond the loop, which has an even number of groups.
    for segment in 0..5 {
        let bytes = write(&video, GOP * segment..GOP * (segment + 1));
        let (packets, rest) = bytes.as_chunks::<PACKET_LEN>();
        assert!(rest.is_empty());
        for (index, packet) in packets.iter().enumerate() {
            let header = Header::parse(packet).expect("it is well formed");
            let expected = next.entry(header.pid).or_insert(header.continuity);
            assert_eq!(*expected, header.continuity, "{segment}, {index}");
            *expected = (*expected + 1) % 16;
            match index {
                0 => assert_eq!(header.pid, 0),
                1 => assert_eq!(header.pid, 0x1000),
                _ => assert_eq!(header.pid, 0x100),
            }
            if header.pid == 0x100 && header.unit_start {
                assert_eq!(header.random_access, pictures % GOP == 0);
                let clock = header.pcr.expect("each picture has a clock reference");
                assert_eq!(clock, 27_000_000 * 95 / 10 + 2_700_000 * pictures);
                let code = TimeCode::find_in_stream(header.payload_of(packet));
                let code = code.expect("it is in the first packet");
                assert_eq!((code.number, code.source), (pictures as u32, 7));
                assert_eq!(code.nanos, due(pictures));
                pictures += 1;
            }
        }
    }
    assert_eq!(pictures, 50);
}

#[test]
fn parts_are_pieces_of_their_segment() {
    for container in [Container::MpegTs, Container::FragmentedMp4] {
        let video = video(container);
        let whole = write(&video, 20..30);
        let parts: Vec<Vec<u8>> = [20..23, 23..26, 26..30]
            .into_iter()
            .map(|pictures| write(&video, pictures))
            .collect();
        match container {
            Container::MpegTs => assert_eq!(parts.concat(), whole),
            // Each part has a fragment of its own.
            Container::FragmentedMp4 => assert!(parts.concat().len() > whole.len()),
        }
        assert_eq!(whole, write(&video, 20..30));
    }
}

#[test]
fn fragments_have_their_place_and_their_pictures() {
    let video = video(Container::FragmentedMp4);
    let initialization = video.initialization().expect("there is one");
    assert_eq!(&initialization[4..8], b"ftyp");
    let position = |bytes: &[u8], kind: &[u8; 4]| {
        let at = bytes.windows(4).position(|four| four == kind);
        at.unwrap_or_else(|| panic!("there is no {kind:?}"))
    };
    position(initialization, b"avcC");
    for pictures in [0..10, 40..50, 43..46, 1 << 40..(1 << 40) + 10] {
        let bytes = write(&video, pictures.clone());
        assert_eq!(&bytes[4..8], b"moof");
        let at = position(&bytes, b"mfhd") + 8;
        assert_eq!(bytes[at..at + 4], (pictures.start as u32).to_be_bytes());
        let at = position(&bytes, b"tfdt") + 4;
        assert_eq!(bytes[at], 1, "it has 64 bits");
        let time = bytes[at + 4..at + 12].iter();
        let time = time.fold(0, |time, byte| time << 8 | u64::from(*byte));
        assert_eq!(time, pictures.start);
        // The time codes of all pictures, in order.
        let data = &bytes[position(&bytes, b"mdat") + 4..];
        let mut rest = data;
        let mut codes = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk() {
            let (nal, after) = after.split_at(u32::from_be_bytes(*length) as usize);
            codes.extend(TimeCode::find(nal).map(|code| code.number));
            rest = after;
        }
        assert!(rest.is_empty());
        let numbers: Vec<u32> = pictures.map(|number| number as u32).collect();
        assert_eq!(codes, numbers);
    }
}

#[test]
fn bit_rate_is_kept_but_for_the_container() {
    for (container, most) in [(Container::MpegTs, 1.25), (Container::FragmentedMp4, 1.1)] {
        let bytes = write(&video(container), 0..20).len();
        let share = bytes as f64 * 8.0 / 2.0 / 500_000.0;
        assert!((0.95..most).contains(&share), "{container:?}: {share}");
    }
}

use proptest::prelude::*;

use super::super::write::{self, MessageHeader};
use super::*;

/// Messages that a reader returned (type, timestamp, stream, length and first bytes), and their
/// total size on the wire.
#[derive(Debug, Default, PartialEq)]
struct ReadResult {
    messages: Vec<(u8, u32, u32, u32, Vec<u8>)>,
    wire: u64,
    failed: Option<Malformed>,
}

fn read_pieces(pieces: &[&[u8]], keeps_media: bool) -> ReadResult {
    let mut reader = ChunkReader::new(keeps_media);
    let mut heard = ReadResult::default();
    for piece in pieces {
        let mut at = 0;
        loop {
            match reader.next_message(piece, &mut at) {
                Ok(Some(ReadMessage::Media(media))) => {
                    let kind = if media.video { 9 } else { 8 };
                    let kept = match keeps_media {
                        true => media.body,
                        false => media.head.to_vec(),
                    };
                    heard.wire += u64::from(media.wire);
                    let row = (kind, media.timestamp, media.stream, media.length, kept);
                    heard.messages.push(row);
                }
                Ok(Some(ReadMessage::Message(message))) => {
                    heard.wire += u64::from(message.wire_bytes);
                    let length = message.payload.len() as u32;
                    let row = (
                        message.type_id,
                        message.timestamp,
                        message.message_stream,
                        length,
                        message.payload,
                    );
                    heard.messages.push(row);
                }
                Ok(None) => break,
                Err(malformed) => {
                    heard.failed = Some(malformed);
                    return heard;
                }
            }
        }
        assert_eq!(at, piece.len());
    }
    heard
}

fn head(kind: MessageType, timestamp: u32) -> MessageHeader {
    let chunk_stream = match kind {
        MessageType::Video => write::VIDEO,
        MessageType::Audio => write::AUDIO,
        _ => write::COMMANDS,
    };
    MessageHeader {
        chunk_stream,
        kind,
        timestamp,
        stream: 1,
    }
}

fn any_kind() -> impl Strategy<Value = MessageType> {
    prop_oneof![
        Just(MessageType::Audio),
        Just(MessageType::Video),
        Just(MessageType::Command),
        Just(MessageType::Data)
    ]
}

proptest! {
    #[test]
    fn messages_survive_a_round_trip_with_any_fragmentation(
        messages in proptest::collection::vec(
            (any_kind(), any::<u32>(), 0usize..700, any::<u8>()), 0..8),
        chunk_size in prop_oneof![1u32..10, 100u32..5000],
        piece in 1usize..2000,
        keeps_media: bool,
    ) {
        let mut bytes = Vec::new();
        write::set_chunk_size(chunk_size, &mut bytes);
        let mut expected = vec![(1, 0, 0, 4, chunk_size.to_be_bytes().to_vec())];
        for (kind, timestamp, length, fill) in messages {
            let payload: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_add(fill)).collect();
            let before = bytes.len();
            let (one, other) = payload.split_at(length / 3);
            head(kind, timestamp).write(&[one, other], chunk_size, &mut bytes);
            prop_assert_eq!(bytes.len() - before, head(kind, timestamp).wire_bytes(length, chunk_size));
            let passed_over = matches!(kind, MessageType::Audio | MessageType::Video) && !keeps_media;
            let kept = match passed_over {
                true => &payload[..length.min(HEAD_BYTES_MAX)],
                false => &payload[..],
            };
            expected.push((kind.id(), timestamp, 1, length as u32, kept.to_vec()));
        }
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        let heard = read_pieces(&pieces, keeps_media);
        prop_assert_eq!(heard.failed, None);
        prop_assert_eq!(heard.messages, expected);
        prop_assert_eq!(heard.wire, bytes.len() as u64);
    }

    #[test]
    fn fragmentation_does_not_change_the_result(
        bytes in proptest::collection::vec(prop_oneof![3 => 0u8..24, 1 => any::<u8>()], 0..600),
        piece in 1usize..60,
        keeps_media: bool,
    ) {
        let whole = read_pieces(&[&bytes], keeps_media);
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        prop_assert_eq!(read_pieces(&pieces, keeps_media), whole);
    }
}

#[test]
fn chunks_of_several_streams_may_be_interleaved() {
    let mut bytes = vec![];
    // The first 128 of 200 bytes of video, then audio, then the rest of the video.
    bytes.extend([6, 0, 0, 40, 0, 0, 200, 9, 1, 0, 0, 0]);
    bytes.extend([0x17; 128]);
    bytes.extend([4, 0, 0, 41, 0, 0, 2, 8, 1, 0, 0, 0, 0xaf, 1]);
    bytes.extend([0xc6]);
    bytes.extend([0x18; 72]);
    let heard = read_pieces(&[&bytes], false);
    let rows: Vec<(u8, u32, u32)> = heard
        .messages
        .iter()
        .map(|row| (row.0, row.1, row.3))
        .collect();
    assert_eq!(rows, [(8, 41, 2), (9, 40, 200)]);
    assert_eq!(heard.wire, bytes.len() as u64);
}

#[test]
fn abbreviated_headers_inherit_fields() {
    let mut bytes = vec![];
    bytes.extend([4, 0, 0, 40, 0, 0, 1, 8, 1, 0, 0, 0, 1]);
    bytes.extend([0x44, 0, 0, 23, 0, 0, 2, 8, 2, 2]);
    bytes.extend([0x84, 0, 0, 24, 3, 3]);
    bytes.extend([0xc4, 4, 4]);
    let heard = read_pieces(&[&bytes], false);
    let rows: Vec<(u32, u32)> = heard.messages.iter().map(|row| (row.1, row.3)).collect();
    assert_eq!(rows, [(40, 1), (63, 2), (87, 2), (111, 2)]);
}

#[test]
fn chunk_stream_ids_of_up_to_three_bytes_are_read() {
    let mut bytes = vec![];
    for id in [
        &[2][..],
        &[63],
        &[0, 0],
        &[0, 255],
        &[1, 0, 0],
        &[1, 255, 255],
    ] {
        bytes.extend(id);
        bytes.extend([0, 0, 1, 0, 0, 1, 8, 1, 0, 0, 0, 7]);
    }
    let heard = read_pieces(&[&bytes], false);
    assert_eq!((heard.messages.len(), heard.failed), (6, None));
}

#[test]
fn extended_timestamps_of_type_3_chunks_may_have_any_value() {
    // A writer that includes the field may write any value.
    for further in [[1, 2, 3, 4], [0; 4]] {
        let mut bytes = Vec::new();
        for message in 0..3u8 {
            bytes.extend([6, 0xff, 0xff, 0xff, 0, 1, 44, 9, 1, 0, 0, 0, 1, 2, 3, 4]);
            bytes.extend([message; 128]);
            for length in [128, 44] {
                bytes.push(0xc6);
                bytes.extend(further);
                bytes.extend(vec![message; length]);
            }
        }
        for piece in [1, 3, 7, 150, 2000] {
            let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
            let heard = read_pieces(&pieces, true);
            let expected = (0..3).map(|message| (9, 0x0102_0304, 1, 300, vec![message; 300]));
            assert_eq!(heard.messages, expected.collect::<Vec<_>>());
            assert_eq!((heard.failed, heard.wire), (None, bytes.len() as u64));
        }
    }
}

#[test]
fn payload_like_an_omitted_extended_timestamp_is_kept() {
    let mut bytes = vec![6, 0xff, 0xff, 0xff, 0, 1, 8, 9, 1, 0, 0, 0, 1, 2, 3, 4];
    let payload = [&[7; 132][..], &[0; 132]].concat();
    bytes.extend(&payload[..128]);
    for part in payload[128..].chunks(128) {
        bytes.push(0xc6);
        bytes.extend(part);
    }
    let heard = read_pieces(&[&bytes], true);
    assert_eq!(heard.messages, [(9, 0x0102_0304, 1, 264, payload)]);
}

#[test]
fn extended_timestamps_may_be_omitted_in_type_3_chunks() {
    for repeats in [true, false] {
        let mut bytes = vec![6, 255, 255, 255, 0, 0, 200, 9, 1, 0, 0, 0, 1, 2, 3, 4];
        bytes.extend([0x17; 128]);
        bytes.push(0xc6);
        if repeats {
            bytes.extend([1, 2, 3, 4]);
        }
        bytes.extend([0x18; 72]);
        let heard = read_pieces(&[&bytes], true);
        let [(9, 0x0102_0304, 1, 200, payload)] = &heard.messages[..] else {
            panic!("{heard:?}");
        };
        assert_eq!(payload[127..129], [0x17, 0x18]);
    }
}

#[test]
fn omitted_extended_timestamp_costs_no_payload() {
    // The last chunk may have less payload than an extended timestamp has bytes. A message follows.
    for tail in 1..8 {
        let mut bytes = vec![
            6,
            255,
            255,
            255,
            0,
            0,
            128 + tail,
            9,
            1,
            0,
            0,
            0,
            1,
            2,
            3,
            4,
        ];
        bytes.extend([0x17; 128]);
        bytes.push(0xc6);
        bytes.extend((0..tail).map(|byte| 0x20 + byte));
        bytes.extend([7, 0, 0, 5, 0, 0, 6, 9, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
        let whole = read_pieces(&[&bytes], true);
        assert_eq!(whole.failed, None);
        assert_eq!(whole.messages.len(), 2, "{whole:?}");
        assert_eq!(whole.messages[0].4.len(), 128 + usize::from(tail));
        assert_eq!(whole.messages[1].4, [1, 2, 3, 4, 5, 6]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read_pieces(&single, true), whole);
        for cut in 0..bytes.len() {
            assert_eq!(
                read_pieces(&[&bytes[..cut], &bytes[cut..]], true),
                whole,
                "cut at {cut}"
            );
        }
    }
}

#[test]
fn aggregate_is_split_into_its_parts() {
    let mut aggregate = vec![];
    for (kind, time, length) in [
        (8u8, 1000u32, 3usize),
        (9, 1020, 0),
        (18, 1021, 4),
        (9, 1040, 300),
    ] {
        let [_, a, b, c] = (length as u32).to_be_bytes();
        let [high, x, y, z] = time.to_be_bytes();
        aggregate.extend([kind, a, b, c, x, y, z, high, 0, 0, 0]);
        aggregate.extend(vec![7; length]);
        aggregate.extend((length as u32 + 11).to_be_bytes());
    }
    let mut bytes = vec![];
    let of = MessageHeader {
        chunk_stream: 6,
        kind: MessageType::Aggregate,
        timestamp: 50,
        stream: 1,
    };
    of.write(&[&aggregate], 128, &mut bytes);
    for (piece, keeps_media) in [(1, false), (7, true), (1000, true), (1000, false)] {
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        let heard = read_pieces(&pieces, keeps_media);
        let rows: Vec<(u8, u32)> = heard.messages.iter().map(|row| (row.0, row.1)).collect();
        // The back pointer of the last part completes the aggregate itself.
        assert_eq!(rows, [(8, 50), (9, 70), (18, 71), (9, 90), (22, 50)]);
        let kept = if keeps_media { 300 } else { HEAD_BYTES_MAX };
        assert_eq!(
            (heard.messages[3].3, heard.messages[3].4.len()),
            (300, kept)
        );
        assert_eq!((heard.wire, heard.failed), (bytes.len() as u64, None));
    }
    let wrong = [9, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let mut bytes = vec![];
    of.write(&[&wrong], 128, &mut bytes);
    assert_eq!(
        read_pieces(&[&bytes], false).failed,
        Some(Malformed::Aggregate)
    );
}

#[test]
fn aborted_message_is_discarded() {
    let mut bytes = vec![3, 0, 0, 0, 0, 0, 200, 20, 0, 0, 0, 0];
    bytes.extend([1; 128]);
    bytes.extend([2, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
    bytes.extend([3, 0, 0, 0, 0, 0, 1, 20, 0, 0, 0, 0, 5]);
    let heard = read_pieces(&[&bytes], false);
    let rows: Vec<(u8, u32)> = heard.messages.iter().map(|row| (row.0, row.3)).collect();
    assert_eq!((rows, heard.failed), (vec![(2, 4), (20, 1)], None));
}

#[test]
fn each_violation_has_its_error() {
    let chunk_size = |size: [u8; 4]| {
        let bytes = [&[2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0][..], &size].concat();
        read_pieces(&[&bytes], false).failed
    };
    assert_eq!(chunk_size([0; 4]), Some(Malformed::ChunkSize(0)));
    assert_eq!(
        chunk_size([128, 0, 0, 0]),
        Some(Malformed::ChunkSize(1 << 31))
    );
    assert_eq!(chunk_size([127, 255, 255, 255]), None);
    let failed = |bytes: &[u8]| read_pieces(&[bytes], false).failed;
    assert_eq!(failed(&[0xc4]), Some(Malformed::NoHeader(4)));
    assert_eq!(
        failed(&[2, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 1]),
        Some(Malformed::TooShort(1))
    );
    let begun = [6, 0, 0, 0, 0, 0, 200, 9, 1, 0, 0, 0];
    let twice = [&begun[..], &[0; 128], &begun].concat();
    assert_eq!(failed(&twice), Some(Malformed::Interrupted(6)));
    let long = [3, 0, 0, 0, 1, 0, 1, 20, 0, 0, 0, 0];
    let too_long = Malformed::TooLong {
        kind: 20,
        length: 65_537,
    };
    assert_eq!(failed(&long), Some(too_long));
    let many: Vec<u8> = (0..=STREAMS_MAX as u8)
        .flat_map(|id| [0, id, 0, 0, 0, 0, 0, 0, 8, 1, 0, 0, 0])
        .collect();
    assert_eq!(failed(&many), Some(Malformed::ChunkStreams));
}

#[test]
fn buffered_bytes_are_bounded() {
    // Commands begin on many chunk streams, and none is completed.
    let mut bytes = vec![];
    write::set_chunk_size(65_535, &mut bytes);
    for id in 3..60 {
        bytes.extend([id, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 0]);
        bytes.extend(vec![0; 65_535]);
    }
    let mut reader = ChunkReader::new(false);
    let mut at = 0;
    let failed = loop {
        assert!(reader.memory() < BUFFERED_BYTES_MAX + 65_536 + STREAMS_MAX * 512);
        match reader.next_message(&bytes, &mut at) {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(malformed) => break Some(malformed),
        }
    };
    assert!(failed.is_some());
}

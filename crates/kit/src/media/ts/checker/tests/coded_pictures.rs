//! Pictures with time codes: which arrived completely, and when.

use std::sync::Arc;

use crate::mediagen::time_code::TimeCode;
use crate::mediagen::ts::looped_stream::LoopedStream;
use crate::mediagen::ts::mux::Mux;

use super::*;

/// Pictures that the stream contains.
const PICTURES: usize = 10;

/// Builds a stream in which each picture was due 1 ms after the one before, with the indices of the
/// first packets of its pictures.
fn stream() -> (Vec<[u8; PACKET_LEN]>, Vec<usize>) {
    let looped = LoopedStream::synthetic(2_000_000).expect("a possible rate");
    let mut mux = Mux::new(Arc::new(looped), 7);
    let (mut packets, mut first) = (Vec::new(), Vec::new());
    while first.len() <= PICTURES {
        mux.set_due(WALL_CLOCK.as_nanos() as u64 + first.len() as u64 * 1_000_000);
        mux.next(|packet| packets.push(*packet));
        let packet = packets.last().expect("it was added");
        let header = Header::parse(packet).expect("a packet");
        if header.pid == VIDEO && header.unit_start {
            assert!(TimeCode::find_in_stream(header.payload_of(packet)).is_some());
            first.push(packets.len() - 1);
        }
    }
    (packets, first)
}

/// Feeds the packets, each 10 ms after the one before, by the fast path if possible, and by the
/// general path. Returns the number of published and of delivered pictures, and their longest
/// delay in milliseconds.
fn measured(packets: &[[u8; PACKET_LEN]]) -> (u64, u64, u64) {
    let both = [false, true].map(|general_path_only| {
        let mut bench = Bench::new();
        bench.checker.general_path_only = general_path_only;
        for (index, packet) in packets.iter().enumerate() {
            bench.feed(packet, ms(1000 + 10 * index as u64));
        }
        bench.checker.finish(&mut bench.recorder);
        assert_eq!(bench.count(m::TIME_CODES_AHEAD), 0);
        let delays = bench.recorder.histogram(m::FRAME_DELAY);
        let longest = delays.and_then(|delays| delays.max());
        (
            bench.count(m::FRAMES_PUBLISHED),
            bench.count(m::FRAMES_DELIVERED),
            longest.unwrap_or(0) / 1_000_000,
        )
    });
    assert_eq!(both[0], both[1]);
    both[0]
}

#[test]
fn delay_ends_with_the_last_packet() {
    let (packets, first) = stream();
    let last = packets[..first[PICTURES]].iter().rposition(|packet| {
        let header = Header::parse(packet).expect("a packet");
        header.pid == VIDEO && header.has_payload
    });
    let last = last.expect("a picture has packets");
    let delay = 1000 + 10 * last as u64 - (PICTURES as u64 - 1);
    let (published, delivered, longest) = measured(&packets);
    // Whether the last picture is complete is unknown.
    assert_eq!((published, delivered), (PICTURES as u64, PICTURES as u64));
    // The histogram has some bits of precision.
    assert!(longest.abs_diff(delay) * 100 <= delay, "{longest} {delay}");
}

#[test]
fn picture_without_one_of_its_packets_is_not_delivered() {
    let (packets, first) = stream();
    let all = PICTURES as u64;
    let picture = first[4]..first[5];
    let video = picture.filter(|&index| {
        let header = Header::parse(&packets[index]).expect("a packet");
        header.pid == VIDEO && header.has_payload
    });
    let video: Vec<usize> = video.collect();
    for (lost, delivered) in [
        (&video[1..2], all - 1),
        (&video[video.len() - 1..], all - 1),
        // The picture before it is not known to be complete either.
        (&video[..1], all - 2),
        (&video[..], all - 2),
    ] {
        let left = packets.iter().enumerate();
        let left = left.filter(|(index, _)| !lost.contains(index));
        let left: Vec<[u8; PACKET_LEN]> = left.map(|(_, packet)| *packet).collect();
        let (published, arrived, _) = measured(&left);
        assert_eq!((published, arrived), (all, delivered), "{lost:?}");
    }
}

#[test]
fn packet_may_be_sent_twice() {
    let (packets, first) = stream();
    let mut twice = packets;
    twice.insert(first[3], twice[first[3]]);
    let (published, delivered, _) = measured(&twice);
    assert_eq!((published, delivered), (PICTURES as u64, PICTURES as u64));
}

#[test]
fn scrambled_pictures_have_no_codes() {
    let (mut packets, _) = stream();
    for packet in &mut packets {
        packet[3] |= 0x80;
    }
    assert_eq!(measured(&packets), (0, 0, 0));
}

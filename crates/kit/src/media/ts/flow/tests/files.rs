use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use proptest::prelude::*;

use crate::mediagen::ts::from_file::FileError;
use crate::mediagen::ts::from_file::time_in;
use crate::mediagen::ts::looped_stream::{LoopedStream, NULL, TIME_WRAP, read_time};
use crate::mediagen::ts::packet::{Header, NULL_PID, PACKET_LEN};
use crate::mediagen::ts::stamp::STAMP_PID;
use crate::mediagen::ts::tables::{packets as cut, pmt};

use super::{all_of, check, settings};
use crate::media::ts::flow::TsFlow;
use session::Flow;

/// A file with `seconds` of a generated stream, from its first packet on; without stamps if it is
/// to look like that of another source.
fn file(rate: u64, seconds: u64, stamps: bool) -> Vec<u8> {
    let looped = Arc::new(LoopedStream::synthetic(rate).expect("a possible rate"));
    let map = pmt(1, 0x100, &[(0x1b, 0x100)]);
    let map = cut(0x1000, &map)[0];
    let mut bytes = Vec::new();
    for (_, datagram) in all_of(settings(&looped), seconds) {
        for packet in datagram.as_chunks::<PACKET_LEN>().0 {
            let mut packet = *packet;
            let header = Header::parse(&packet).expect("a packet");
            match header.pid {
                STAMP_PID if !stamps => packet = NULL,
                0x1000 if !stamps => {
                    packet = map;
                    packet[3] |= header.continuity;
                }
                _ => {}
            }
            bytes.extend_from_slice(&packet);
        }
    }
    bytes
}

/// Presentation times in the order of sending, and the clock before each.
fn times(sent: &[(Time, Vec<u8>)]) -> Vec<(u64, u64)> {
    let (mut found, mut clock) = (Vec::new(), 0);
    for packet in sent
        .iter()
        .flat_map(|(_, bytes)| bytes.as_chunks::<PACKET_LEN>().0)
    {
        let header = Header::parse(packet).expect("a packet");
        clock = header.pcr.unwrap_or(clock);
        if header.pid == 0x100
            && let Some((at, _)) = time_in(0, &header, packet).expect("it is whole")
        {
            let at = usize::from(at);
            let bytes = packet[at..].first_chunk().expect("it is whole");
            found.push((read_time(*bytes), clock / 300));
        }
    }
    found
}

/// Asserts what holds across loops: pictures are due evenly, and none is sent after it is due.
fn pictures_go_on(sent: &[(Time, Vec<u8>)], loops: u64) {
    let times = times(sent);
    assert!(times.len() as u64 >= loops * 25);
    for (index, two) in times.windows(2).enumerate() {
        let step = (two[1].0 + TIME_WRAP - two[0].0) % TIME_WRAP;
        assert_eq!(step, 3600, "after picture {index}");
    }
    for (shown, clock) in times {
        let ahead = (shown + TIME_WRAP - clock) % TIME_WRAP;
        assert!(ahead < 3 * 90_000, "{shown} {clock}");
    }
}

#[test]
fn file_continues_across_its_end() {
    let bytes = file(2_000_000, 3, false);
    let looped = LoopedStream::of_file(&bytes, None).expect("a good file");
    assert!(looped.lists_stamps());
    // As fast as it was generated, plus the added stamps.
    let own = 2_000_000.0 * 7.0 / 6.0;
    let rate = looped.bits_per_second();
    assert!((rate as f64 / own - 1.0).abs() < 0.05, "{rate}");
    let sent = all_of(settings(&Arc::new(looped)), 10);
    check(rate, 0x100, &sent);
    pictures_go_on(&sent, 3);
}

#[test]
fn recording_of_own_source_can_be_sent_again() {
    let bytes = file(2_000_000, 2, true);
    let looped = LoopedStream::of_file(&bytes, Some(3_000_000)).expect("a good file");
    assert!(looped.lists_stamps());
    let sent = all_of(settings(&Arc::new(looped)), 6);
    check(3_000_000, 0x100, &sent);
    pictures_go_on(&sent, 2);
}

#[test]
fn too_low_bit_rate_names_a_sufficient_one() {
    let bytes = file(8_000_000, 2, false);
    let error = LoopedStream::of_file(&bytes, Some(1_000_000)).expect_err("too low");
    let FileError::NeedsMore { asked, needs } = error else {
        panic!("{error}");
    };
    assert_eq!(asked, 1_000_000);
    assert!((5_000_000..9_000_000).contains(&needs), "{needs}");
    assert!(LoopedStream::of_file(&bytes, Some(needs)).is_ok());
    assert_eq!(
        LoopedStream::of_file(&bytes, Some(1)).expect_err("too low"),
        FileError::Rate(1)
    );
}

#[test]
fn changing_tables_are_kept_and_stamps_unlisted() {
    let mut bytes = file(2_000_000, 2, false);
    let other = cut(0x1000, &pmt(1, 0x100, &[(0x1b, 0x100), (0x0f, 0x101)]));
    let last = bytes.as_chunks_mut::<PACKET_LEN>().0.iter_mut().rev();
    let mut last = last.filter(|packet| packet[1..3] == [0x50, 0]);
    let packet = last.next().expect("it has maps");
    packet[4..].copy_from_slice(&other[0][4..]);
    let looped = LoopedStream::of_file(&bytes, None).expect("a good file");
    assert!(!looped.lists_stamps());
    let rate = looped.bits_per_second();
    check(rate, 0x100, &all_of(settings(&Arc::new(looped)), 5));
}

#[test]
fn unusable_files_name_the_reason() {
    let good = file(1_000_000, 2, false);
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        LoopedStream::of_file(&bytes, None)
            .map(|_| ())
            .expect_err("refused")
    };
    assert_eq!(error(&|bytes| bytes.clear()), FileError::NoTs);
    assert_eq!(error(&|bytes| bytes.fill(0x48)), FileError::NoTs);
    assert_eq!(
        error(&|bytes| bytes[PACKET_LEN * 50] = 0),
        FileError::NoSync(50)
    );
    let on = |pid: u16, change: &dyn Fn(&mut [u8; PACKET_LEN])| {
        error(&|bytes| {
            for packet in bytes.as_chunks_mut::<PACKET_LEN>().0 {
                if u16::from_be_bytes([packet[1] & 0x1f, packet[2]]) == pid {
                    change(packet);
                }
            }
        })
    };
    let damage = |packet: &mut [u8; PACKET_LEN]| packet[12] ^= 1;
    assert_eq!(on(0, &damage), FileError::NoProgramme);
    assert_eq!(on(0x1000, &damage), FileError::NoProgramme);
    assert_eq!(
        on(0x100, &|packet| packet[3] |= 0x80),
        FileError::Scrambled(0x100)
    );
    let no_clock = |packet: &mut [u8; PACKET_LEN]| {
        if packet[3] & 0x30 == 0x20 {
            packet[1..3].copy_from_slice(&[0x1f, 0xff]);
        }
    };
    assert_eq!(on(0x100, &no_clock), FileError::NoClock);
    assert_eq!(
        on(NULL_PID, &|packet| packet[1..3]
            .copy_from_slice(&STAMP_PID.to_be_bytes())),
        FileError::StampPid
    );
    let twice = |bytes: &mut Vec<u8>| {
        let again = bytes.clone();
        bytes.extend(again);
    };
    assert!(matches!(error(&twice), FileError::ClockJumps(_)));
}

#[test]
fn duplicate_packets_are_sent_once() {
    let good = file(1_000_000, 2, false);
    let mut doubled = Vec::new();
    for packet in good.as_chunks::<PACKET_LEN>().0 {
        let header = Header::parse(packet).expect("a packet");
        let count = if header.pid == 0x100 && header.has_payload {
            2
        } else {
            1
        };
        for _ in 0..count {
            doubled.extend_from_slice(packet);
        }
    }
    let looped = |bytes: &[u8]| Arc::new(LoopedStream::of_file(bytes, None).expect("a good file"));
    let (once, twice) = (looped(&good), looped(&doubled));
    assert_eq!(once.packets(), twice.packets());
    let sent = all_of(settings(&twice), 5);
    check(twice.bits_per_second(), 0x100, &sent);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_piece_of_a_file_can_be_looped(skip in 0usize..500, cut in 0usize..500, spare in 0u64..4_000_000) {
        let bytes = file(2_000_000, 3, false);
        let piece = &bytes[skip * 7..bytes.len() - cut * 11];
        let own = LoopedStream::of_file(piece, None).expect("a good file");
        let rate = own.bits_per_second() + spare;
        let looped = LoopedStream::of_file(piece, Some(rate)).expect("it has room");
        let sent = all_of(settings(&Arc::new(looped)), 9);
        check(rate, 0x100, &sent);
        pictures_go_on(&sent, 2);
    }

    #[test]
    fn damaged_files_do_not_panic(damage in prop::collection::vec((0usize..100_000, any::<u8>()), 0..200)) {
        let mut bytes = file(700_000, 1, false);
        for (offset, value) in damage {
            let offset = offset % bytes.len();
            bytes[offset] = value;
        }
        if let Ok(looped) = LoopedStream::of_file(&bytes, None) {
            let mut flow = TsFlow::new(settings(&Arc::new(looped)));
            flow.start(Time::ZERO);
            let end = Time::ZERO + Duration::from_secs(3);
            while flow.next_due().is_some_and(|due| due < end) {
                prop_assert!(flow.next_packet(end).is_some());
            }
        }
    }
}

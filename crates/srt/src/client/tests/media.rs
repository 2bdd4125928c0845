//! Video and audio that stop.

use super::*;
use kit::mediagen::ts::looped_stream::LoopedStream;
use kit::mediagen::ts::packet::{PACKET_LEN, PAT_PID, SYNC, write_pcr};
use kit::mediagen::ts::tables;

const MAP: u16 = 0x20;
const VIDEO: u16 = 0x100;
const AUDIO: u16 = 0x101;

fn packet(pid: u16, flags: u8, number: u64, control: u8, rest: &[u8]) -> [u8; PACKET_LEN] {
    let mut packet = [0xff; PACKET_LEN];
    let [high, low] = pid.to_be_bytes();
    packet[..4].copy_from_slice(&[SYNC, flags | high, low, control | (number % 16) as u8]);
    packet[4..4 + rest.len()].copy_from_slice(rest);
    packet
}

/// File of 8 s of audio, with video up to `video` ms. `key` is the NAL unit of every tenth picture.
fn file(video: u64, key: u8) -> LoopedStream {
    let streams = [(0x1b, VIDEO), (0x0f, AUDIO)];
    let mut out = Vec::new();
    // Continuity counters of video, audio, PAT and PMT.
    let mut numbers = [0u64; 4];
    for at in (0..8000).step_by(40) {
        if at % 400 == 0 {
            for (place, pid, section) in [
                (2, PAT_PID, tables::pat(7, MAP)),
                (3, MAP, tables::pmt(7, VIDEO, &streams)),
            ] {
                let payload = [&[0][..], &section].concat();
                out.extend(packet(pid, 0x40, numbers[place], 0x10, &payload));
                numbers[place] += 1;
            }
        }
        // The PCR has packets of its own, so that it does not depend on pictures.
        let clock = [&[183, 0x10][..], &write_pcr(at * 27_000)].concat();
        out.extend(packet(VIDEO, 0, numbers[0] + 15, 0x20, &clock));
        if at < video {
            let unit = if at % 400 == 0 { key } else { 0x41 };
            let payload = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, unit];
            out.extend(packet(VIDEO, 0x40, numbers[0], 0x10, &payload));
            numbers[0] += 1;
        }
        let payload = [0, 0, 1, 0xc0, 0, 9, 0x80, 0, 0];
        out.extend(packet(AUDIO, 0x40, numbers[1], 0x10, &payload));
        numbers[1] += 1;
    }
    LoopedStream::of_file(&out, None).expect("a good file")
}

/// Outcome of a player that is stopped after 6 s, and number of silent streams.
fn played(video: u64, key: u8) -> (Outcome, u64) {
    let settings = settings();
    let publisher = client(&settings, ClientConfig::default(), "streamid=publish:own");
    let publisher = publisher.publishing(Arc::new(file(video, key)));
    let player = client(&settings, ClientConfig::default(), "streamid=read:own");
    let mut pair = begin(settings, publisher, server(&[]));
    let player = pair.add_client(waiting(player));
    pair.run(Duration::from_secs(6));
    pair.stop(player, Duration::ZERO);
    pair.stop(CLIENT, Duration::ZERO);
    pair.run(Duration::from_secs(20));
    let outcome = pair.outcome(player).expect("it is over").clone();
    let silent = pair.recorder(Side::Client).counter(ts::STREAMS_SILENT);
    (outcome, silent)
}

#[test]
fn frozen_picture_counts_while_audio_continues() {
    assert_eq!(played(8000, 0x67), (Outcome::Stopped, 0));
    assert_eq!(played(3000, 0x67), (Outcome::Stopped, 1));
}

#[test]
fn viewer_without_a_picture_fails() {
    match played(8000, 0x41).0 {
        Outcome::Failed(failure) => assert_eq!(failure.reason, "no_picture"),
        other => panic!("{other:?}"),
    }
}

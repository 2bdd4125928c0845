//! Tests of video and audio that stop, and of the end of streams.

use super::*;
use kit::mediagen::ts::packet::PAT_PID;
use kit::mediagen::ts::tables;

const MAP: u16 = 0x20;
const VIDEO: u16 = 0x100;
const AUDIO: u16 = 0x101;

/// First packet of a PES packet.
fn unit(pid: u16, number: u64, payload: &[u8]) -> [u8; PACKET_LEN] {
    let mut packet = [0xff; PACKET_LEN];
    let [high, low] = pid.to_be_bytes();
    packet[..4].copy_from_slice(&[SYNC, 0x40 | high, low, 0x10 | (number % 16) as u8]);
    packet[4..4 + payload.len()].copy_from_slice(payload);
    packet
}

/// Tables of a programme with H.264 and AAC.
fn programme() -> Vec<u8> {
    let streams = [(0x1b, VIDEO), (0x0f, AUDIO)];
    let pat = tables::packets(PAT_PID, &tables::pat(7, MAP));
    let map = tables::packets(MAP, &tables::pmt(7, VIDEO, &streams));
    [pat, map].concat().concat()
}

impl Bench {
    /// Sends audio for `millis` ms, and video for `video` ms. The first picture is a key picture if
    /// `is_key`.
    pub(super) fn watch(&mut self, millis: u64, video: u64, is_key: bool) {
        self.bytes(&programme());
        for at in (0..millis).step_by(40) {
            let kind = if at == 0 && is_key { 0x67 } else { 0x41 };
            if at < video {
                self.bytes(&unit(VIDEO, at / 40, &[0, 0, 1, 0xe0, 0, 0, 0, 0, 1, kind]));
            }
            self.bytes(&unit(AUDIO, at / 40, b"x"));
            self.after(40);
        }
    }

    fn notes(&mut self, wanted: &str) -> Vec<String> {
        let text = |output: &Output| match output {
            Output::Note(note) if note.kind == wanted => Some(note.text.clone()),
            _ => None,
        };
        self.out.iter().filter_map(text).collect()
    }
}

#[test]
fn frozen_video_is_counted_and_noted() {
    for (video, silent) in [(6000, 0), (3000, 1), (40, 1)] {
        let mut bench = Bench::answered("");
        bench.watch(6000, video, true);
        bench.stop();
        assert_eq!(bench.count(ts::STREAMS_SILENT), silent, "{video}");
        let notes = bench.notes("silent_stream");
        assert_eq!(notes.len() as u64, silent);
        assert!(
            notes.iter().all(|note| note.contains("no video for")),
            "{notes:?}"
        );
        assert_eq!(bench.ended().1, Outcome::Stopped);
    }
    // In a file, video may end before audio.
    let mut bench = Bench::answered("Transfer-Encoding: chunked\r\n");
    let length = programme().len() + 2 * PACKET_LEN;
    bench.bytes(format!("{length:x}\r\n").as_bytes());
    bench.watch(40, 40, true);
    bench.bytes(b"\r\n");
    for number in 1..150 {
        let chunk = [b"bc\r\n", &unit(AUDIO, number, b"x")[..], b"\r\n"].concat();
        bench.bytes(&chunk);
        bench.after(40);
    }
    bench.bytes(b"0\r\n\r\n");
    assert_eq!(bench.count(ts::STREAMS_SILENT), 0);
    assert!(bench.notes("stream_ended")[0].contains("the end of its body"));
    assert_eq!(bench.ended_by_server(), "ended_by_server");
}

#[test]
fn viewer_without_a_picture_fails() {
    let mut bench = Bench::answered("");
    bench.watch(4000, 4000, false);
    bench.stop();
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "no_picture");
    assert!(detail.contains("no random-access point in 3.9"), "{detail}");
    // A client that leaves before a key picture can be expected has not failed.
    let mut bench = Bench::answered("");
    bench.watch(1500, 1500, false);
    bench.stop();
    assert_eq!(bench.ended().1, Outcome::Stopped);
}

#[test]
fn stream_that_ends_by_its_length_is_noted() {
    let mut bench = Bench::answered("Content-Length: 1880\r\n");
    bench.bytes(&packets(10));
    assert_eq!(bench.count(m::ENDED_BY_LENGTH), 1);
    let notes = bench.notes("stream_ended");
    assert!(
        notes[0].contains("its Content-Length of 1880 bytes"),
        "{notes:?}"
    );
    assert_eq!(bench.ended_by_server(), "ended_by_server");
    let mut bench = Bench::answered("Transfer-Encoding: identity\r\nContent-Length: -1\r\n");
    bench.bytes(&packets(10));
    bench.stop();
    assert_eq!(
        (bench.count(m::ENDED_BY_LENGTH), bench.count(m::CHUNKED)),
        (0, 0)
    );
    assert_eq!(bench.ended().1, Outcome::Stopped);
}

#[test]
fn packets_of_204_bytes_are_played_and_noted() {
    let mut bench = Bench::answered("");
    let sent = packets(10);
    let long = sent
        .chunks(PACKET_LEN)
        .map(|packet| [packet, &[7; 16]].concat());
    bench.bytes(&long.collect::<Vec<_>>().concat());
    assert_eq!(bench.count(ts::TS_PACKETS), 10);
    let notes = bench.notes("packet_size");
    assert!(notes[0].contains("packets of 204 bytes"), "{notes:?}");
}

#[test]
fn header_lists_are_read_from_all_lines() {
    let mut bench = Bench::answered("Content-Encoding: identity\r\nContent-Encoding: gzip\r\n");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "not_ts");
    assert!(detail.contains("Content-Encoding: gzip"), "{detail}");
    let mut bench = Bench::answered("Content-Length: lots\r\n");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "malformed_response");
    assert!(detail.contains("Content-Length `lots`"), "{detail}");
}

#[test]
fn refusal_is_reported_before_its_body_ends() {
    let mut bench = Bench::asked();
    bench.bytes(b"HTTP/1.1 403 Not You\r\nContent-Length: 999999999\r\n\r\nendless");
    let (reason, detail) = bench.failed();
    assert_eq!(reason, "status_403");
    assert!(detail.contains("403 Not You"), "{detail}");
}

//! Video and audio, each on its own.

use super::*;
use crate::mediagen::ts::tables;

const AUDIO: u16 = 0x101;
const H264: u8 = 0x1b;
const AAC: u8 = 0x0f;

/// A picture with parameter sets before it, and one without.
const KEY: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x67];
const OTHER: &[u8] = &[0, 0, 1, 0xe0, 0, 0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x41];

impl Bench {
    /// Feeds the tables of a programme with these streams at millisecond `at`.
    fn tables(&mut self, streams: &[(u8, u16)], at: u64) {
        for (pid, section) in [
            (PAT_PID, tables::pat(7, MAP)),
            (MAP, tables::pmt(7, VIDEO, streams)),
        ] {
            for packet in tables::packets(pid, &section) {
                self.feed(&packet, ms(at));
            }
        }
    }

    fn unit(&mut self, pid: u16, payload: &[u8], at: u64) {
        self.feed(&plain(pid, at, true, payload), ms(at));
    }

    fn silent_media(&self) -> Vec<String> {
        self.checker
            .silent_media()
            .map(|silent| silent.to_string())
            .collect()
    }

    fn gap(&self, metric: HistogramId) -> Option<u64> {
        Some(self.recorder.histogram(metric)?.max()? / 1_000_000)
    }
}

/// A programme of `seconds`: video up to `video` ms, audio up to `audio` ms, a key picture every
/// second, and in sync from the first packet on.
fn programme(video: u64, audio: u64, seconds: u64) -> Bench {
    let mut bench = Bench::new();
    let null = plain(NULL_PID, 0, false, &[]);
    bench.feed(&null.repeat(3), ms(1000));
    for at in (1000..1000 + seconds * 1000).step_by(40) {
        if at % 400 == 200 {
            bench.tables(&[(H264, VIDEO), (AAC, AUDIO)], at);
        }
        if at <= 1000 + video {
            let payload = if at % 1000 == 200 { KEY } else { OTHER };
            bench.unit(VIDEO, payload, at);
        }
        if at <= 1000 + audio {
            bench.unit(AUDIO, b"x", at);
        }
    }
    bench
}

#[test]
fn a_frozen_picture_is_silent_video() {
    let mut frozen = programme(3000, 6000, 6);
    let silent = frozen.silent_media();
    assert!(
        matches!(&silent[..], [one] if one.starts_with("no video for 2.9")),
        "{silent:?}"
    );
    assert_eq!(frozen.checker.without_picture(), None);
    assert!(frozen.checker.longest_gap() < Duration::from_millis(100));
    frozen.checker.finish(&mut frozen.recorder);
    assert_eq!(frozen.gap(m::VIDEO_GAP), Some(40));
    // Video that ends after its first key picture, or audio that ends.
    let silent = programme(220, 6000, 6).silent_media();
    assert!(
        matches!(&silent[..], [one] if one.starts_with("no video for")),
        "{silent:?}"
    );
    let silent = programme(6000, 3000, 6).silent_media();
    assert!(
        matches!(&silent[..], [one] if one.starts_with("no audio for")),
        "{silent:?}"
    );
    assert!(programme(6000, 6000, 6).silent_media().is_empty());
    assert!(programme(4500, 6000, 6).silent_media().is_empty());
}

#[test]
fn gap_counts_once_media_continues() {
    let mut bench = programme(1000, 4000, 4);
    for at in (5000..6000).step_by(40) {
        bench.unit(VIDEO, OTHER, at);
        bench.unit(AUDIO, b"x", at);
    }
    assert!(bench.silent_media().is_empty());
    bench.checker.finish(&mut bench.recorder);
    assert_eq!(bench.gap(m::VIDEO_GAP), Some(3000));
    assert_eq!(bench.gap(m::AUDIO_GAP), Some(40));
}

#[test]
fn media_named_by_the_map_but_missing_is_silent() {
    let mut bench = programme(0, 6000, 1);
    assert!(bench.silent_media().is_empty());
    let mut bench2 = Bench::new();
    bench2.feed(&plain(NULL_PID, 0, false, &[]).repeat(3), ms(1000));
    bench2.tables(&[(H264, VIDEO), (AAC, AUDIO)], 1000);
    for at in (1000..4000).step_by(40) {
        bench2.unit(AUDIO, b"x", at);
    }
    let silent: Vec<_> = bench2.checker.silent_media().collect();
    assert!(
        matches!(&silent[..], [one] if one.never_arrived()),
        "{silent:?}"
    );
    // A programme with audio only lacks nothing.
    bench.tables(&[(AAC, AUDIO)], 2000);
    bench.unit(AUDIO, b"x", 6000);
    assert!(bench.silent_media().is_empty());
}

/// Video without a random-access point for 3 s; `change` alters each packet.
fn without_key(kind: u8, change: impl Fn(&mut [u8; PACKET_LEN])) -> Option<Duration> {
    let mut bench = Bench::new();
    bench.feed(&plain(NULL_PID, 0, false, &[]).repeat(3), ms(1000));
    bench.tables(&[(kind, VIDEO)], 1000);
    for at in (1000..=4000).step_by(40) {
        let mut packet = plain(VIDEO, at, true, OTHER);
        change(&mut packet);
        bench.feed(&packet, ms(at));
    }
    bench.checker.without_picture()
}

#[test]
fn video_without_a_random_access_point_shows_no_picture() {
    assert_eq!(without_key(H264, |_| {}), Some(Duration::from_secs(3)));
    assert_eq!(programme(6000, 6000, 6).checker.without_picture(), None);
    // Scrambled video and VC-1 cannot be judged.
    assert_eq!(without_key(H264, |packet| packet[3] |= 0xc0), None);
    assert_eq!(without_key(0xea, |_| {}), None);
}

#[test]
fn parameter_sets_may_follow_first_packet_of_a_picture() {
    let mut bench = Bench::new();
    bench.feed(&plain(NULL_PID, 0, false, &[]).repeat(3), ms(1000));
    bench.tables(&[(H264, VIDEO)], 1000);
    // The beginning of this picture was lost.
    bench.feed(&plain(VIDEO, 0, false, &[0, 0, 1, 0x67]), ms(1010));
    assert_eq!(bench.checker.random_access(), None);
    bench.feed(&plain(VIDEO, 1, true, &OTHER[..11]), ms(1020));
    bench.feed(&plain(VIDEO, 2, false, &[0, 0, 1, 0x67]), ms(1030));
    assert_eq!(bench.checker.random_access(), Some(ms(1020)));
}

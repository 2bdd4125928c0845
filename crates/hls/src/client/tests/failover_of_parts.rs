//! Variants of the same bit rate with parts, of which one replaces another that fails.

use super::failover::{not_found, unavailable};
use super::low_latency::Origin;
use super::*;

#[test]
fn player_of_parts_goes_on_within_a_segment_of_another_variant() {
    // The first server ceases to answer with anything in the middle of a segment.
    let mut world = World::new(config(), |path, now| {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n/b/live.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1\n/c/live.m3u8\n";
        match path {
            "/a/index.m3u8" => Some(Answer::ok(text)),
            _ if path.starts_with("/b/") && now > at(5_300) => Some(not_found()),
            _ => Origin::default().answer(&path.replace(['b', 'c'], "a"), now),
        }
    });
    world.run(at(12_100));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::FAILOVERS), 1);
    assert_eq!(world.count(m::SEGMENTS_MISSED), 0);
    assert_eq!(world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE));
    let paths = world.paths();
    let numbers = |folder: &str| -> Vec<u64> {
        let own = paths
            .iter()
            .filter_map(|path| path.strip_prefix(folder)?.strip_suffix(".part"));
        own.map(|number| number.parse().expect("a number"))
            .collect()
    };
    let (mut first, second) = (numbers("/b/"), numbers("/c/"));
    assert_eq!(first.pop(), Some(second[0]), "the last one was refused");
    assert_eq!(second[0] % 4, 3, "it is in the middle of a segment");
    assert_eq!([first, second].concat(), (36..=64).collect::<Vec<u64>>());
}

#[test]
fn request_that_waits_is_repeated_plainly_before_a_variant_is_left() {
    let mut world = World::new(config(), |path, now| {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n/b/live.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1\n/c/live.m3u8\n";
        match path {
            "/a/index.m3u8" => Some(Answer::ok(text)),
            _ if path.contains("_HLS_") && now < at(400) => Some(not_found()),
            _ => Origin::default().answer(&path.replace(['b', 'c'], "a"), now),
        }
    });
    world.run(at(8_000));
    world.stop();
    assert_eq!(world.count(m::FAILOVERS), 0);
    assert_eq!(world.notes, ["playlist_failed"]);
}

#[test]
fn hint_of_a_variant_that_is_left_is_wasted() {
    let mut world = World::new(config(), |path, now| {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n/b/live.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1\n/c/live.m3u8\n";
        match path {
            "/a/index.m3u8" => Some(Answer::ok(text)),
            _ if path.starts_with("/b/") && now > at(5_300) => match path.ends_with(".part") {
                true => None,
                false => Some(not_found()),
            },
            _ => Origin::default().answer(&path.replace(['b', 'c'], "a"), now),
        }
    });
    world.run(at(12_100));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(
        [world.count(m::FAILOVERS), world.count(m::HINTS_WASTED)],
        [1, 1]
    );
    assert_eq!(world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE));
}

/// A server of low-latency HLS with two variants of the same bit rate, `b` and `c`, each with audio
/// of its own. `fails` says which requests are refused, by their path.
fn play_parts(
    until: u64,
    fails: impl Fn(&str, Time) -> Option<Option<Answer>>,
) -> World<impl FnMut(&str, Time) -> Option<Answer>> {
    let mut world = World::new(config(), move |path, now| {
        let text = "#EXTM3U\n\
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"b\",NAME=\"x\",URI=\"/b/sound/live.m3u8\"\n\
            #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"c\",NAME=\"x\",URI=\"/c/sound/live.m3u8\"\n\
            #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"b\"\n/b/live.m3u8\n\
            #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"c\"\n/c/live.m3u8\n";
        if path == "/a/index.m3u8" {
            return Some(Answer::ok(text));
        }
        if let Some(answer) = fails(path, now) {
            return answer;
        }
        let name = path.rsplit('/').next().expect("a name");
        Origin::default().answer(&format!("/a/{name}"), now)
    });
    world.run(at(until));
    world
}

#[test]
fn both_tracks_leave_a_server_that_is_gone() {
    for from in (5_000..7_000).step_by(100) {
        let mut world = play_parts(16_000, |path, now| {
            (path.starts_with("/b/") && now > at(from)).then(|| Some(not_found()))
        });
        assert_eq!(world.stop(), Outcome::Stopped, "{from}");
        assert_eq!(
            world.count(m::SEGMENTS),
            world.count(m::SEGMENTS_DUE),
            "{from}"
        );
        assert_eq!(world.count(m::FAILOVERS), 1, "{from}");
        let paths = world.paths();
        for folder in ["/c/live", "/c/sound/live"] {
            let own = paths.iter().filter(|path| path.starts_with(folder));
            assert!(own.count() > 10, "{from}: {folder}");
        }
        assert!(world.count(m::STALLS) <= 1, "{from}");
    }
}

#[test]
fn new_audio_has_three_attempts_after_the_video_has_changed() {
    let tried = std::cell::Cell::new(0);
    let mut world = play_parts(16_000, |path, now| {
        if path.starts_with("/b/") && now > at(5_300) {
            return Some(Some(not_found()));
        }
        let is_first = path.starts_with("/c/sound/live") && tried.replace(tried.get() + 1) == 0;
        is_first.then(|| Some(unavailable()))
    });
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::FAILOVERS), 1);
    assert_eq!(world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE));
}

#[test]
fn first_part_of_a_segment_keeps_its_first_request() {
    let mut world = World::new(
        ClientConfig {
            low_latency: LowLatency::Parts,
            ..config()
        },
        |path, now| {
            let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n/b/live.m3u8\n\
                        #EXT-X-STREAM-INF:BANDWIDTH=1\n/c/live.m3u8\n";
            match path {
                "/a/index.m3u8" => Some(Answer::ok(text)),
                "/b/44.part" => Some(not_found().in_time(400)),
                _ => Origin::default().answer(&path.replace(['b', 'c'], "a"), now),
            }
        },
    );
    world.run(at(8_000));
    world.stop();
    assert_eq!(
        [world.count(m::FAILOVERS), world.count(m::SEGMENTS_RETRIED)],
        [1, 1]
    );
    // The refusal takes 0.2 s, then the playlist, the initialization section and the part follow.
    let (_, longest) = world.recorded(m::PART_DELAY);
    assert!((255..270).contains(&longest), "{longest}");
}

#[test]
fn parts_of_other_durations_are_found_by_their_time() {
    // The second server has two parts in a segment instead of four.
    let head = "#EXT-X-PART-INF:PART-TARGET=1\n#EXT-X-MEDIA-SEQUENCE:10\n\
                #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=3";
    let part = |number: u32, milliseconds: u32| {
        let seconds = f64::from(milliseconds) / 1000.0;
        format!("#EXT-X-PART:DURATION={seconds},URI=\"{number}.p\",INDEPENDENT=YES\n")
    };
    let parts = |count: u32, milliseconds: u32| -> String {
        (0..count)
            .map(|number| part(number, milliseconds))
            .collect()
    };
    for (played, second, requested) in [
        (3, 1000, "/a/two/1.p"),
        (2, 1000, "/a/two/1.p"),
        (3, 500, "/a/two/3.p"),
    ] {
        let count = 2000 / second;
        let mut world = World::new(config(), |path, now| {
            let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\none/v.m3u8\n\
                        #EXT-X-STREAM-INF:BANDWIDTH=1\ntwo/v.m3u8\n";
            Some(match path.split('?').next() {
                Some("/a/index.m3u8") => Answer::ok(text),
                Some("/a/one/v.m3u8") if now < at(100) => {
                    let lines = parts(played, 500);
                    playlist(head, &lines)
                }
                Some("/a/one/v.m3u8") => not_found(),
                Some("/a/two/v.m3u8") => {
                    let lines = parts(count, second) + "#EXTINF:2,\nwhole.ts\n#EXT-X-ENDLIST\n";
                    playlist(head, &lines)
                }
                _ => Answer::ok([0xff; 188]),
            })
        });
        world.run(at(60_000));
        assert!(
            matches!(world.outcome, Some(Outcome::EndedByServer { .. })),
            "{:?}",
            world.outcome
        );
        let paths = world.paths();
        let first = paths
            .iter()
            .find(|path| path.starts_with("/a/two/") && path.ends_with(".p"));
        assert_eq!(first, Some(&requested), "{paths:?}");
        // All media of the segment is shown once.
        let shown = world.count(m::SHOWN_NANOSECONDS) / 1_000_000;
        assert_eq!(shown, 2000, "{paths:?}");
    }
}

#[test]
fn audio_alone_may_leave_a_server() {
    for from in (5_000..7_000).step_by(100) {
        let mut world = play_parts(16_000, |path, now| {
            let is_gone = path.starts_with("/b/sound") && now > at(from);
            is_gone.then(|| Some(not_found()))
        });
        assert_eq!(world.stop(), Outcome::Stopped, "{from}");
        assert_eq!(
            world.count(m::SEGMENTS),
            world.count(m::SEGMENTS_DUE),
            "{from}"
        );
        assert_eq!(world.count(m::FAILOVERS), 1, "{from}");
    }
}

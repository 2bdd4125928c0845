//! Recorded media, variants and byte ranges.

use kit::mediagen::frame_rate::FrameRate;
use kit::mediagen::segments::{Container, Cut, SegmentedVideo};
use kit::mediagen::video::{PictureForm, VideoSettings};

use super::*;

fn recorded(count: u64) -> Answer {
    let mut lines = String::new();
    for number in 0..count {
        lines += &format!("#EXTINF:2.0,\n{number}.ts\n");
    }
    playlist("#EXT-X-PLAYLIST-TYPE:VOD", &(lines + "#EXT-X-ENDLIST\n"))
}

fn segment() -> Answer {
    Answer::ok([0xff; 188])
}

#[test]
fn recorded_media_plays_to_its_end_with_a_bounded_buffer() {
    let config = ClientConfig {
        buffer_max: TimeSpan(Duration::from_secs(6)),
        ..config()
    };
    let mut world = World::new(config, |path, _| match path.ends_with(".m3u8") {
        true => Some(recorded(10)),
        false => Some(segment()),
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    // 20 s of media, from 42 ms on.
    assert_eq!(world.now, at(20_042));
    assert_eq!(world.count(m::SEGMENTS), 10);
    assert_eq!(world.count(m::PLAYLISTS), 1);
    assert_eq!(world.count(m::STALLS), 0);
    // The first three fill the buffer; each later one is requested when there is room for it.
    let times: Vec<u64> = world.asked[1..]
        .iter()
        .map(|asked| asked.at.since(at(42)).as_millis() as u64)
        .collect();
    assert_eq!(times[3..], [2000, 4000, 6000, 8000, 10_000, 12_000, 14_000]);
    // Recorded media has no live latency.
    assert_eq!(world.recorded(m::LIVE_LATENCY).0, 0);
}

#[test]
fn initialization_sections_and_byte_ranges_are_requested() {
    let lines = "#EXT-X-MAP:URI=\"all.mp4\",BYTERANGE=\"100@0\"\n\
                 #EXTINF:2.0,\n#EXT-X-BYTERANGE:1000@100\nall.mp4\n\
                 #EXTINF:2.0,\n#EXT-X-BYTERANGE:500\nall.mp4\n\
                 #EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"/other/init.mp4\"\n\
                 #EXTINF:2.0,\n?b=1\n\
                 #EXT-X-GAP\n#EXTINF:2.0,\nnever.mp4\n\
                 #EXT-X-ENDLIST\n";
    let mut world = World::new(config(), move |path, _| {
        Some(match path.ends_with(".m3u8") {
            true => playlist("", lines),
            false => Answer::new("206 Partial Content", *b"\0\0\0\x18styp"),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    let asked: Vec<(&str, Option<&str>)> = world.asked[1..]
        .iter()
        .map(|asked| {
            let range = asked
                .head
                .lines()
                .find_map(|line| line.strip_prefix("Range: "));
            (asked.path.as_str(), range)
        })
        .collect();
    assert_eq!(
        asked,
        [
            ("/a/all.mp4", Some("bytes=0-99")),
            ("/a/all.mp4", Some("bytes=100-1099")),
            ("/a/all.mp4", Some("bytes=1100-1599")),
            ("/other/init.mp4", None),
            ("/a/index.m3u8?b=1", None),
        ]
    );
    let counts = [
        m::SEGMENTS,
        m::SEGMENTS_GAP,
        m::SEGMENTS_DUE,
        m::DISCONTINUITIES,
    ];
    assert_eq!(counts.map(|counter| world.count(counter)), [3, 1, 4, 1]);
}

#[test]
fn bodies_are_compared_with_their_byte_ranges() {
    let run = |length: usize| {
        let lines = "#EXTINF:2.0,\n#EXT-X-BYTERANGE:1000@5000\na.ts\n#EXT-X-ENDLIST\n";
        let mut world = World::new(config(), move |path, _| {
            Some(match path.ends_with(".m3u8") {
                true => playlist("", lines),
                false => Answer::ok(vec![0xff; length]),
            })
        });
        world.run(at(60_000));
        world
    };
    // A server that ignores ranges sends all.
    let (reason, detail) = run(9000).failed();
    assert_eq!(reason, "wrong_range");
    assert!(detail.contains("byte range of 1000 bytes"), "{detail}");
    for (length, damaged) in [(1000, 0), (999, 1)] {
        let world = run(length);
        assert_eq!(world.outcome, Some(Outcome::Completed));
        let counts = [m::SEGMENTS, m::SEGMENTS_DAMAGED].map(|own| world.count(own));
        assert_eq!(counts, [1, damaged]);
    }
}

const VARIANTS: &str = "#EXTM3U\n\
    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"en\",URI=\"audio/en.m3u8\"\n\
    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"de\",DEFAULT=YES,URI=\"audio/de.m3u8\"\n\
    #EXT-X-STREAM-INF:BANDWIDTH=2000000,AUDIO=\"a\"\nmid.m3u8\n\
    #EXT-X-STREAM-INF:BANDWIDTH=5000000,AUDIO=\"a\"\nhigh.m3u8\n\
    #EXT-X-STREAM-INF:BANDWIDTH=500000\nlow.m3u8\n";

#[test]
fn variant_and_its_audio_are_chosen() {
    for (variant, expected) in [
        (
            VariantChoice::Highest,
            &["/a/high.m3u8", "/a/audio/de.m3u8"][..],
        ),
        (VariantChoice::First, &["/a/mid.m3u8", "/a/audio/de.m3u8"]),
        (VariantChoice::Lowest, &["/a/low.m3u8"]),
    ] {
        let config = ClientConfig {
            variant,
            ..config()
        };
        let mut world = World::new(config, |path, _| {
            Some(match path {
                "/a/index.m3u8" => Answer::ok(VARIANTS),
                _ if path.ends_with(".m3u8") => recorded(2),
                _ => segment(),
            })
        });
        world.run(at(60_000));
        assert_eq!(world.outcome, Some(Outcome::Completed));
        let mut paths = world.paths();
        paths.retain(|path| path.ends_with(".m3u8"));
        assert_eq!(paths[1..], *expected);
        assert_eq!(world.count(m::SEGMENTS), 2 * expected.len() as u64);
    }
}

#[test]
fn playback_waits_for_both_tracks() {
    let mut world = World::new(config(), |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(VARIANTS),
            _ if path.ends_with(".m3u8") => recorded(3),
            // The second segment of the audio is late.
            "/a/audio/1.ts" => segment().in_time(2500),
            _ => segment(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::STALLS), 1);
    // The segment was requested at the moment at which playback began.
    assert_eq!(world.recorded(m::STALL_TIME), (1, 500));
}

#[test]
fn full_buffer_of_one_track_waits_for_the_other() {
    // After 33 s of audio, the next segment has room when 6 s are shown. The video stalls at 4 s.
    let slow = ClientConfig {
        request_timeout: TimeSpan(Duration::from_secs(60)),
        body_timeout: TimeSpan(Duration::from_secs(60)),
        silence: TimeSpan(Duration::from_secs(60)),
        ..config()
    };
    let mut world = World::new(slow, |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(VARIANTS),
            "/a/audio/de.m3u8" => {
                let segments = (0..20).map(|number| format!("#EXTINF:3.0,\n{number}.ts\n"));
                playlist("", &(segments.collect::<String>() + "#EXT-X-ENDLIST\n"))
            }
            _ if path.ends_with(".m3u8") => recorded(30),
            "/a/2.ts" => segment().in_time(40_000),
            _ => segment(),
        })
    });
    world.run(at(200_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::STALLS), 1);
}

#[test]
fn redirects_are_followed_and_segments_are_relative_to_the_new_url() {
    let mut world = World::new(config(), |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::new("302 Found\r\nLocation: /b/c/x.m3u8", ""),
            "/b/c/x.m3u8" => recorded(1),
            _ => segment(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.paths(), ["/a/index.m3u8", "/b/c/x.m3u8", "/b/c/0.ts"]);
    assert_eq!(world.count(m::REDIRECTS), 1);
}

#[test]
fn adaptive_player_returns_from_a_variant_whose_playlist_is_missing() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(
                "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900000\nhigh.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=800000\nbroken.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=100000\nlow.m3u8\n",
            ),
            "/a/high.m3u8" => Answer::new("404 Not Found", ""),
            "/a/broken.m3u8" => Answer::ok("<html>"),
            _ if path.ends_with(".m3u8") => playlist("", &segments(8)),
            _ => Answer::ok([0xff; 188].repeat(1000)).in_time(100),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.notes, ["variant_failed", "variant_failed"]);
    // The player tried each variant once. No segment was lost, and none was received twice.
    assert_eq!(world.count(m::SWITCHES), 2);
    assert_eq!(world.count(m::SEGMENTS), 8);
    assert_eq!(world.count(m::SEGMENTS_DUE), 8);
    assert_eq!(world.count(m::STALLS), 0);
    let tried = |path: &str| world.paths().iter().filter(|own| **own == path).count();
    assert_eq!([tried("/a/high.m3u8"), tried("/a/broken.m3u8")], [1, 1]);
    assert_eq!(tried("/a/low.m3u8"), 3);
}

/// Recorded segments of 2 s, to the end.
fn segments(count: u32) -> String {
    let lines = (0..count).map(|number| format!("#EXTINF:2,\n{number}.ts\n"));
    lines.collect::<String>() + "#EXT-X-ENDLIST\n"
}

#[test]
fn long_bodies_are_read_together_except_for_the_first_and_unknown_ones() {
    let lines: String = (0..5)
        .map(|number| format!("#EXTINF:2.0,\n{number}.ts\n"))
        .collect();
    let lines = lines + "#EXT-X-ENDLIST\n";
    let mut world = World::new(config(), move |path, _| {
        Some(match path {
            "/a/index.m3u8" => playlist("", &lines),
            // Short, and of unknown length.
            "/a/2.ts" => Answer::ok(vec![0xff; 1000]),
            "/a/3.ts" => Answer {
                has_length: false,
                closes: true,
                ..Answer::ok(vec![0xff; 50_000])
            },
            _ => Answer::ok(vec![0xff; 50_000]),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.count(m::SEGMENTS), 5);
    let lengths: Vec<u64> = world.expected.iter().map(|own| own.1).collect();
    assert_eq!(lengths, [50_000, 50_000]);
    let media = world.asked.iter().find(|asked| asked.path == "/a/1.ts");
    assert_eq!(
        world.expected[0].0,
        media.expect("it was requested").channel
    );
}

#[test]
fn failure_after_some_media_does_not_end_a_player_that_still_fills_its_buffer() {
    let lines: String = (0..5)
        .map(|number| format!("#EXTINF:2.0,\n{number}.ts\n"))
        .collect();
    let lines = lines + "#EXT-X-ENDLIST\n";
    let config = ClientConfig {
        playout_buffer: TimeSpan(Duration::from_secs(5)),
        ..config()
    };
    let mut world = World::new(config, move |path, _| {
        Some(match path {
            "/a/index.m3u8" => playlist("", &lines),
            "/a/1.ts" => Answer::new("404 Not Found", ""),
            _ => Answer::ok([0xff; 188]),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.notes, ["segment_failed"]);
    assert_eq!(world.count(m::SEGMENTS), 4);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 1);
}

#[test]
fn tracks_of_live_media_begin_at_the_same_distance_from_the_end() {
    let config = ClientConfig {
        live_distance: Some(TimeSpan(Duration::from_secs(5))),
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(
                "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"a\",DEFAULT=YES,\
                 URI=\"audio.m3u8\"\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"a\"\nvideo.m3u8\n",
            ),
            "/a/video.m3u8" => playlist("", "#EXTINF:4.0,\nv0\n#EXTINF:4.0,\nv1\n"),
            "/a/audio.m3u8" => playlist(
                "",
                "#EXTINF:2.0,\na0\n#EXTINF:2.0,\na1\n#EXTINF:2.0,\na2\n#EXTINF:2.0,\na3\n",
            ),
            _ => Answer::ok([0xff; 188]),
        })
    });
    world.run(at(1000));
    // Both have all of their media up to the same end, five seconds after the position of the
    // start.
    let began = world.client.playback_began.expect("it has begun");
    let dry = world.client.playback.dry_at().expect("it plays");
    assert_eq!(dry.since(began), Duration::from_secs(5));
}

#[test]
fn audio_changes_with_the_variant_after_a_whole_segment() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        let group = |id: &str| {
            format!("#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{id}\",NAME=\"x\",URI=\"{id}.m3u8\"\n")
        };
        let named = |prefix: &str| segments(4).replace(".ts", &format!(".{prefix}"));
        Some(match path {
            "/a/index.m3u8" => Answer::ok(format!(
                "#EXTM3U\n{}{}#EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"good\"\nhigh.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"poor\"\nlow.m3u8\n",
                group("good"),
                group("poor"),
            )),
            "/a/high.m3u8" => playlist("", &named("high")),
            "/a/low.m3u8" => playlist("", &named("low")),
            "/a/good.m3u8" => playlist("", &named("good")),
            "/a/poor.m3u8" => playlist("", &named("poor")),
            // The first one is still being received when the variant changes.
            _ if path.ends_with(".poor") => Answer::ok([0xff; 188]).in_time(500),
            _ => Answer::ok([0xff; 188].repeat(1000)).in_time(100),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::SWITCHES), 1);
    let paths = world.paths();
    let media: Vec<&str> = paths
        .into_iter()
        .filter(|path| !path.contains("m3u8"))
        .collect();
    let of = |kind: &str| media.iter().filter(|path| path.ends_with(kind)).count();
    assert_eq!(
        [of(".low"), of(".high"), of(".poor"), of(".good")],
        [1, 3, 1, 3]
    );
    assert!(media.contains(&"/a/0.poor") && !media.contains(&"/a/0.good"));
    assert_eq!(world.count(m::STALLS), 0);
}

#[test]
fn first_picture_at_which_decoding_can_start_is_timed_once() {
    let settings = VideoSettings {
        bits_per_second: 300_000,
        frame_rate: FrameRate::whole(5),
        gop: 10,
        mtu: 65_000,
        form: PictureForm::default(),
    };
    for container in [Container::MpegTs, Container::FragmentedMp4] {
        let video = SegmentedVideo::new(&settings, container).expect("it can be made");
        let map = video.initialization().map(<[u8]>::to_vec);
        let lines = match map {
            Some(_) => format!("#EXT-X-MAP:URI=\"init\"\n{}", segments(4)),
            None => segments(4),
        };
        let write = |pictures: std::ops::Range<u64>| {
            let cut = Cut {
                segment: pictures.start / 10,
                pictures,
                begins_segment: true,
                source: 1,
            };
            video.write(&cut, |picture| picture)
        };
        // The first segment has no key frame. In the second, it is the first picture.
        let (segment, alone) = (write(10..20), write(10..11));
        let alone = match container {
            Container::MpegTs => &alone[..],
            Container::FragmentedMp4 => {
                let data = alone.windows(4).position(|kind| kind == b"mdat");
                &alone[data.expect("it has data") + 4..]
            }
        };
        let begin = segment.windows(alone.len()).position(|own| own == alone);
        let end = begin.expect("it is there") + alone.len();
        // The last byte of the picture comes second. In a transport stream, the next picture shows
        // that it is complete.
        let cuts = vec![end / 2, end, (end + segment.len()) / 2];
        for is_read_at_end in [false, true] {
            let (lines, map, cuts, write) = (lines.clone(), map.clone(), cuts.clone(), &write);
            let mut world = World::new(config(), move |path, _| {
                let number = path.trim_start_matches("/a/").trim_end_matches(".ts");
                Some(match number.parse::<u64>() {
                    Ok(0) => Answer::ok(write(1..10)).in_time(200),
                    Ok(number) => Answer {
                        cuts: cuts.clone(),
                        is_read_at_end,
                        ..Answer::ok(write(number * 10..number * 10 + 10)).in_time(400)
                    },
                    Err(_) if number == "init" => Answer::ok(map.clone().unwrap_or_default()),
                    Err(_) => playlist("", &lines),
                })
            });
            world.run(at(60_000));
            assert_eq!(world.outcome, Some(Outcome::Completed));
            assert_eq!(world.count(m::SEGMENTS), 4);
            // Playlist, initialization section if there is one, a segment, the head of the second,
            // and two of its four pieces, every 50 ms.
            let arrived = match container {
                Container::MpegTs => 20 + 200 + 200 + 100,
                Container::FragmentedMp4 => 20 + 20 + 200 + 200 + 100,
            };
            let (count, delay) = world.recorded(m::KEY_FRAME_DELAY);
            assert!(
                count == 1 && (arrived..arrived + 10).contains(&delay),
                "{container:?}: {delay} instead of {arrived}"
            );
        }
    }
}

#[test]
fn audio_that_is_missing_leaves_the_audio_before() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        let group = |id: &str, uri: &str| {
            format!("#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{id}\",NAME=\"x\",URI=\"{uri}\"\n")
        };
        Some(match path {
            "/a/index.m3u8" => Answer::ok(format!(
                "#EXTM3U\n{}{}{}#EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"good\"\nhigh.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=2000000000,AUDIO=\"away\"\nhighest.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"poor\"\nlow.m3u8\n",
                group("good", "good.m3u8"),
                group("poor", "poor.m3u8"),
                // A player may not request this one, and leaves its variant out.
                group("away", "http://10.9.9.9/away.m3u8"),
            )),
            "/a/good.m3u8" => Answer::new("404 Not Found", ""),
            _ if path.ends_with(".m3u8") => {
                let kind = path.trim_start_matches("/a/").trim_end_matches(".m3u8");
                playlist("", &segments(14).replace(".ts", &format!(".{kind}")))
            }
            _ if path.ends_with(".poor") => Answer::ok([0xff; 188]).in_time(1500),
            // The player changes down, and up again.
            "/a/2.high" => Answer::ok([0xff; 188].repeat(1000)).in_time(8000),
            _ => Answer::ok([0xff; 188].repeat(1000)).in_time(100),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.notes, ["variant_failed", "variant_failed"]);
    assert!(world.note_texts[0].contains("10.9.9.9"));
    let paths = world.paths();
    let of = |kind: &str| paths.iter().filter(|path| path.ends_with(kind)).count();
    assert_eq!(world.count(m::SWITCHES), 3);
    assert_eq!((of(".low") + of(".high"), of(".poor")), (14, 14));
    assert_eq!([of("/a/good.m3u8"), of("/a/poor.m3u8")], [1, 2]);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
}

/// Plays recorded media in two variants, whose playlists name audio renditions and initialization
/// sections in folders of their own. `audio` are the URIs of the renditions, in ascending order.
fn change_with_audio(
    audio: [&str; 2],
    answer: fn(&str) -> Option<Answer>,
) -> World<impl FnMut(&str, Time) -> Option<Answer>> {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let media = |id: &str, uri: &str| {
        format!("#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{id}\",NAME=\"x\",URI=\"{uri}\"\n")
    };
    let multivariant = format!(
        "#EXTM3U\n{}{}#EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"poor\"\nlow/v.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"good\"\nhigh/v.m3u8\n",
        media("poor", audio[0]),
        media("good", audio[1]),
    );
    let mut world = World::new(config, move |path, _| {
        Some(match answer(path) {
            Some(answer) => answer,
            None if path == "/a/index.m3u8" => Answer::ok(multivariant.clone()),
            None if path.ends_with(".m3u8") => {
                let kind = if path.ends_with("v.m3u8") { "v" } else { "a" };
                let named = segments(4).replace(".ts", &format!(".{kind}"));
                playlist("", &format!("#EXT-X-MAP:URI=\"init.{kind}\"\n{named}"))
            }
            None => Answer::ok(b"\0\0\0\x08moof\0\0\0\0mdat".repeat(5000)).in_time(100),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::SWITCHES), 1);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    world
}

#[test]
fn audio_does_not_change_before_what_is_under_way_has_arrived() {
    // The initialization section of the first rendition is slow. That of the second has the same
    // name.
    let world = change_with_audio(["low/a.m3u8", "high/a.m3u8"], |path| {
        (path == "/a/low/init.a").then(|| Answer::ok(*b"\0\0\0\x08moov").in_time(500))
    });
    for path in ["/a/low/init.a", "/a/high/init.a", "/a/high/0.a"] {
        assert!(world.paths().contains(&path), "{path}: {:?}", world.paths());
    }
}

#[test]
fn audio_that_is_over_does_not_change() {
    let world = change_with_audio(["low/a.m3u8", "high/a.m3u8"], |path| {
        let is_quick = path.ends_with(".a") || path.ends_with("a.m3u8");
        let is_first = path == "/a/low/0.v";
        match (is_quick, is_first) {
            (true, _) if path.ends_with("m3u8") => {
                Some(playlist("", &segments(1).replace(".ts", ".a")))
            }
            (true, _) => Some(Answer::ok([0xff; 188])),
            (_, true) => Some(Answer::ok(b"\0\0\0\x08moof\0\0\0\0mdat".repeat(9000)).in_time(600)),
            _ => None,
        }
    });
    assert!(!world.paths().contains(&"/a/high/a.m3u8"));
}

#[test]
fn variant_that_holds_its_audio_itself_is_received_once() {
    let world = change_with_audio(["low/a.m3u8", "high/v.m3u8"], |_| None);
    let of = |path: &str| world.paths().iter().filter(|own| **own == path).count();
    assert_eq!([of("/a/high/v.m3u8"), of("/a/high/2.v")], [1, 1]);
}

//! Variants of the same bit rate, of which one replaces another that fails.

use super::*;

/// Two variants of 900 kbit/s and one of 100 kbit/s, each with audio of its own.
const REDUNDANT: &str = "#EXTM3U\n\
    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"one\",NAME=\"x\",URI=\"one/audio.m3u8\"\n\
    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"two\",NAME=\"x\",URI=\"two/audio.m3u8\"\n\
    #EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"one\"\none/high.m3u8\n\
    #EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"one\"\none/low.m3u8\n\
    #EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"two\"\ntwo/high.m3u8\n";

/// Recorded segments of 2 s.
pub(super) fn segments(count: u32) -> Answer {
    let lines = (0..count).map(|number| format!("#EXTINF:2,\n{number}.ts\n"));
    playlist("", &(lines.collect::<String>() + "#EXT-X-ENDLIST\n"))
}

/// Answers to a player of [`REDUNDANT`]. Audio segments are apart from those of the video.
fn redundant(path: &str) -> Answer {
    let Answer { body, .. } = segments(4);
    match path.rsplit('/').next() {
        Some("index.m3u8") => Answer::ok(REDUNDANT),
        Some("audio.m3u8") => {
            let text = String::from_utf8(body).expect("it is text");
            Answer::ok(text.replace(".ts", ".aac.ts"))
        }
        Some(name) if name.ends_with(".m3u8") => segments(4),
        _ => Answer::ok([0xff; 188].repeat(10)),
    }
}

pub(super) fn not_found() -> Answer {
    Answer::new("404 Not Found", "")
}

/// Plays redundant variants to the end; `fails` says which requests are refused, and how. Returns
/// the world after the end.
pub(super) fn play_redundant(
    variant: VariantChoice,
    fails: impl Fn(&str, Time) -> Option<Answer>,
) -> World<impl FnMut(&str, Time) -> Option<Answer>> {
    let config = ClientConfig {
        variant,
        ..config()
    };
    let mut world = World::new(config, move |path, now| {
        Some(fails(path, now).unwrap_or_else(|| redundant(path)))
    });
    world.run(at(120_000));
    world
}

pub(super) fn number_of(paths: &[&str], wanted: &str) -> usize {
    paths.iter().filter(|path| path.ends_with(wanted)).count()
}

#[test]
fn missing_playlist_is_replaced_by_that_of_another_variant() {
    for fails in ["/a/one/high.m3u8", "/a/one/audio.m3u8"] {
        let world = play_redundant(VariantChoice::Highest, |path, _| {
            (path == fails).then(not_found)
        });
        assert_eq!(world.outcome, Some(Outcome::Completed), "{fails}");
        assert_eq!(world.notes, ["variant_failed"], "{fails}");
        assert_eq!(world.count(m::FAILOVERS), 1);
        assert_eq!(world.count(m::SWITCHES), 0);
        assert_eq!(world.count(m::SEGMENTS), 8);
        assert_eq!(world.count(m::SEGMENTS_DUE), 8);
        let paths = world.paths();
        assert_eq!(number_of(&paths, fails), 1);
        // Both tracks have changed; no segment was received from both.
        assert_eq!(number_of(&paths, "two/high.m3u8"), 1, "{paths:?}");
        assert_eq!(number_of(&paths, "two/audio.m3u8"), 1, "{paths:?}");
        for number in 0..4 {
            assert_eq!(number_of(&paths, &format!("/{number}.ts")), 1, "{paths:?}");
            assert_eq!(
                number_of(&paths, &format!("/{number}.aac.ts")),
                1,
                "{paths:?}"
            );
        }
    }
}

#[test]
fn refused_segment_is_received_from_another_variant() {
    let world = play_redundant(VariantChoice::Highest, |path, _| {
        (path == "/a/one/2.ts").then(|| not_found().in_time(400))
    });
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.notes, ["variant_failed"]);
    assert_eq!(world.count(m::FAILOVERS), 1);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    assert_eq!(world.count(m::SEGMENTS_RETRIED), 1);
    assert_eq!(world.count(m::SEGMENTS), 8);
    assert_eq!(world.count(m::SEGMENTS_DUE), 8);
    let paths = world.paths();
    let video: Vec<&str> = paths
        .iter()
        .filter(|path| path.ends_with(".ts") && !path.ends_with(".aac.ts"))
        .copied()
        .collect();
    let expected = [
        "/a/one/0.ts",
        "/a/one/1.ts",
        "/a/one/2.ts",
        "/a/two/2.ts",
        "/a/two/3.ts",
    ];
    assert_eq!(video, expected);
    // A player waits from the first request on: the refusal takes 0.2 s, then the playlist and the
    // segment follow.
    let (_, longest) = world.recorded(m::SEGMENT_DELAY);
    assert!((235..250).contains(&longest), "{longest}");
}

#[test]
fn variant_is_left_once_and_its_failures_count_as_before_after_that() {
    // Neither has segment 2, and the second fails once with segment 3.
    let world = play_redundant(VariantChoice::Highest, |path, now| {
        let broken = || Answer::new("503 Service Unavailable", "");
        let third = || (path.ends_with("/3.ts") && now < at(400)).then(broken);
        path.ends_with("/2.ts").then(not_found).or_else(third)
    });
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(
        world.notes,
        ["variant_failed", "segment_failed", "request_failed"]
    );
    assert_eq!(world.count(m::FAILOVERS), 1);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 1);
    assert_eq!(world.count(m::SEGMENTS), 7);
    assert_eq!(world.count(m::SEGMENTS_DUE), 8);
}

#[test]
fn variants_with_the_same_playlist_are_no_replacement() {
    let mut world = World::new(config(), |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(
                "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nv.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=1\nv.m3u8\n",
            ),
            _ => not_found(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.failed().0, "status_404");
    assert_eq!(world.paths(), ["/a/index.m3u8", "/a/v.m3u8"]);
    assert_eq!(world.count(m::FAILOVERS), 0);
}

#[test]
fn failures_that_may_pass_do_not_end_a_variant_at_once() {
    let fails = |path: &str, now: Time| {
        let broken = || Answer::new("503 Service Unavailable", "");
        (path == "/a/one/1.ts" && now < at(500)).then(broken)
    };
    let world = play_redundant(VariantChoice::Highest, fails);
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.notes, ["request_failed"]);
    assert_eq!(world.count(m::FAILOVERS), 0);
}

#[test]
fn variant_that_was_just_chosen_is_replaced_by_its_equal_before_the_player_returns() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        Some(match path {
            "/a/one/high.m3u8" => Answer::new("503 Service Unavailable", ""),
            _ if path.ends_with(".m3u8") => redundant(path),
            _ => Answer::ok([0xff; 188].repeat(1000)).in_time(100),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.notes, ["variant_failed"]);
    assert_eq!(
        [world.count(m::SWITCHES), world.count(m::FAILOVERS)],
        [1, 1]
    );
    let paths = world.paths();
    assert_eq!(number_of(&paths, "two/high.m3u8"), 1);
    assert_eq!(world.count(m::STALLS), 0);
}

/// Live segments of 2 s in a window of five, whose end is at `now`.
pub(super) fn live(now: Time) -> Answer {
    let end = 10 + now.since(Time::ZERO).as_secs() / 2;
    let lines = (end - 5..end).map(|number| format!("#EXTINF:2,\n{number}.ts\n"));
    let head = format!("#EXT-X-MEDIA-SEQUENCE:{}", end - 5);
    playlist(&head, &lines.collect::<String>())
}

/// Plays the live media of two servers for 20 s; `fails` says which requests are refused.
fn play_two(
    fails: impl Fn(&str, Time) -> Option<Answer>,
) -> World<impl FnMut(&str, Time) -> Option<Answer>> {
    let mut world = World::new(config(), move |path, now| {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\none/v.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1\ntwo/v.m3u8\n";
        if let Some(answer) = fails(path, now) {
            return Some(answer);
        }
        Some(match path {
            "/a/index.m3u8" => Answer::ok(text),
            _ if path.ends_with(".m3u8") => live(now),
            _ => Answer::ok([0xff; 188]),
        })
    });
    world.run(at(20_000));
    world
}

pub(super) fn unavailable() -> Answer {
    Answer::new("503 Service Unavailable", "")
}

#[test]
fn live_playlist_that_fails_three_times_is_replaced() {
    let mut world = play_two(|path, now| {
        let is_second = path.contains("two/v") && (at(7_000)..at(9_000)).contains(&now);
        let is_gone = path.contains("one/v") && now > at(3_000);
        (is_gone || is_second).then(unavailable)
    });
    assert_eq!(world.stop(), Outcome::Stopped);
    // The failures of the first do not count against the second, which fails once.
    let failed = "playlist_failed";
    assert_eq!(world.notes, [failed, failed, "variant_failed", failed]);
    assert_eq!(world.count(m::FAILOVERS), 1);
    assert_eq!(world.count(m::SEGMENTS_MISSED), 0);
    assert_eq!(world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE));
}

#[test]
fn first_playlist_that_fails_is_replaced_at_once() {
    let mut world = play_two(|path, _| path.contains("one/").then(unavailable));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.notes, ["variant_failed"]);
    assert!(world.recorded(m::PLAYBACK_DELAY).1 < 100);
}

#[test]
fn section_that_does_not_come_does_not_delay_the_other_variant() {
    let mut world = World::new(config(), |path, now| {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\none/v.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1\ntwo/v.m3u8\n";
        match path {
            "/a/index.m3u8" => Some(Answer::ok(text)),
            "/a/one/i.mp4" => None,
            "/a/one/v.m3u8" if now > at(1_000) => Some(not_found()),
            _ if path.ends_with(".m3u8") => {
                let map = "#EXT-X-MAP:URI=\"i.mp4\"\n#EXT-X-MEDIA-SEQUENCE:";
                let text = String::from_utf8(live(now).body).expect("it is text");
                Some(Answer::ok(text.replace("#EXT-X-MEDIA-SEQUENCE:", map)))
            }
            "/a/two/i.mp4" => {
                let section = [b"\0\0\0\x08styp".as_slice(), &[0; 792]].concat();
                Some(Answer::ok(section))
            }
            _ => {
                let media = [b"\0\0\0\x08moof\0\0\0\0mdat".as_slice(), &[0; 184]].concat();
                Some(Answer::ok(media))
            }
        }
    });
    world.run(at(9_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.notes, ["variant_failed"]);
    let (_, began) = world.recorded(m::PLAYBACK_DELAY);
    assert!((2_000..2_200).contains(&began), "{began}");
}

/// Variants of the same bit rate with audio of their own: the video and the audio of each.
fn with_audio(variants: &[(&str, Option<&str>)]) -> String {
    let mut text = "#EXTM3U\n".to_owned();
    for (index, (_, audio)) in variants.iter().enumerate() {
        if let Some(audio) = audio {
            text += &format!(
                "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{index}\",NAME=\"x\",URI=\"{audio}\"\n"
            );
        }
    }
    for (index, (video, audio)) in variants.iter().enumerate() {
        let audio = audio.map_or(String::new(), |_| format!(",AUDIO=\"{index}\""));
        text += &format!("#EXT-X-STREAM-INF:BANDWIDTH=1{audio}\n{video}\n");
    }
    text
}

/// Plays such variants, of whose playlists those with `missing` in their name are not found.
pub(super) fn play_with_audio(
    variants: &[(&str, Option<&str>)],
) -> World<impl FnMut(&str, Time) -> Option<Answer> + use<>> {
    let text = with_audio(variants);
    let mut world = World::new(config(), move |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(text.clone()),
            _ if path.contains("missing") => not_found(),
            _ if path.ends_with(".m3u8") => segments(2),
            _ => Answer::ok([0xff; 188]),
        })
    });
    world.run(at(60_000));
    world
}

#[test]
fn variant_with_the_same_missing_audio_is_no_replacement() {
    let missing = Some("missing.m3u8");
    let world = play_with_audio(&[
        ("a.m3u8", missing),
        ("b.m3u8", missing),
        ("a.m3u8", Some("c.m3u8")),
    ]);
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::FAILOVERS), 1);
    let expected = ["/a/index.m3u8", "/a/a.m3u8", "/a/missing.m3u8", "/a/c.m3u8"];
    let mut paths = world.paths();
    paths.retain(|path| path.ends_with(".m3u8"));
    assert_eq!(paths, expected);
}

#[test]
fn audio_is_not_replaced_by_none() {
    let mut world = play_with_audio(&[("a.m3u8", Some("missing.m3u8")), ("b.m3u8", None)]);
    assert_eq!(world.failed().0, "status_404");
    assert_eq!(world.count(m::FAILOVERS), 0);
}

#[test]
fn audio_that_was_left_is_not_tried_again() {
    let variants = [
        ("a.m3u8", Some("missing-1.m3u8")),
        ("b.m3u8", Some("missing-2.m3u8")),
    ];
    let mut world = play_with_audio(&variants);
    assert_eq!(world.failed().0, "status_404");
    let paths = world.paths();
    assert_eq!(number_of(&paths, "missing-1.m3u8"), 1);
    assert_eq!(number_of(&paths, "missing-2.m3u8"), 1);
}

#[test]
fn segment_that_has_left_the_playlist_is_no_reason_to_leave_the_variant() {
    // Segment 8 is refused after 16 s, when the playlist begins with a later one.
    let mut world = play_two(|path, _| {
        path.ends_with("one/8.ts")
            .then(|| not_found().in_time(32_000))
    });
    world.stop();
    assert_eq!(world.count(m::FAILOVERS), 0);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 1);
    let known = world.count(m::SEGMENTS)
        + world.count(m::SEGMENTS_FAILED)
        + world.count(m::SEGMENTS_MISSED);
    assert_eq!(world.count(m::SEGMENTS_DUE), known);
}

#[test]
fn another_variant_has_attempts_of_its_own() {
    let tried = std::cell::Cell::new(0);
    let world = play_redundant(VariantChoice::Highest, |path, _| match path {
        "/a/one/2.ts" => Some(not_found()),
        "/a/two/2.ts" if tried.replace(tried.get() + 1) < 5 => Some(unavailable()),
        _ => None,
    });
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    assert_eq!(world.count(m::SEGMENTS_RETRIED), 6);
    assert_eq!(world.count(m::SEGMENTS), 8);
}

#[test]
fn other_playlist_has_three_attempts_too() {
    // The second fails once, at its first request.
    let mut world = play_two(|path, now| {
        let is_second = path.contains("two/v") && now < at(6_500);
        let is_gone = path.contains("one/v") && now > at(3_000);
        (is_gone || is_second).then(unavailable)
    });
    assert_eq!(world.stop(), Outcome::Stopped);
    let failed = "playlist_failed";
    assert_eq!(world.notes, [failed, failed, "variant_failed", failed]);
    assert_eq!(world.count(m::STALLS), 0);
}

#[test]
fn audio_that_was_just_chosen_is_replaced_before_the_player_returns() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        let group = |id: &str| {
            format!("#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{id}\",NAME=\"x\",URI=\"{id}.m3u8\"\n")
        };
        Some(match path {
            "/a/index.m3u8" => Answer::ok(format!(
                "#EXTM3U\n{}{}{}#EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"poor\"\nlow.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"broken\"\none.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"good\"\ntwo.m3u8\n",
                group("poor"),
                group("broken"),
                group("good"),
            )),
            "/a/broken.m3u8" => unavailable(),
            _ if path.ends_with(".m3u8") => segments(8),
            _ => Answer::ok([0xff; 188].repeat(1000)).in_time(100),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(
        [world.count(m::SWITCHES), world.count(m::FAILOVERS)],
        [1, 1]
    );
    assert_eq!(world.notes, ["variant_failed"]);
    let paths = world.paths();
    assert_eq!(
        [
            number_of(&paths, "good.m3u8"),
            number_of(&paths, "poor.m3u8")
        ],
        [1, 1]
    );
}

#[test]
fn segment_that_all_variants_lack_counts_once() {
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\none/v.m3u8\n\
                #EXT-X-STREAM-INF:BANDWIDTH=1\ntwo/v.m3u8\n\
                #EXT-X-STREAM-INF:BANDWIDTH=1\nthree/v.m3u8\n";
    let mut world = World::new(config(), |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(text),
            _ if path.ends_with(".m3u8") => segments(6),
            _ if path.ends_with("/2.ts") || path.ends_with("/3.ts") => not_found(),
            _ => Answer::ok([0xff; 188]),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(
        [world.count(m::FAILOVERS), world.count(m::SEGMENTS_FAILED)],
        [2, 2]
    );
    assert_eq!(
        [world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE)],
        [4, 6]
    );
}

#[test]
fn segment_in_flight_is_received_from_the_other_variant() {
    // The playlist is gone while segment 8 is being received.
    let mut world = play_two(|path, now| {
        let is_gone = path.ends_with("one/v.m3u8") && now > at(3_000);
        // A part of the body arrives before.
        let slow = || Answer {
            cuts: vec![100],
            ..Answer::ok([0xff; 188]).in_time(2_400)
        };
        let is_slow = path.ends_with("one/10.ts");
        is_gone.then(not_found).or_else(|| is_slow.then(slow))
    });
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE));
    assert_eq!(
        [
            world.count(m::SEGMENTS_RETRIED),
            world.count(m::SEGMENTS_MISSED)
        ],
        [1, 0]
    );
    let paths = world.paths();
    assert_eq!(number_of(&paths, "one/10.ts"), 1);
    assert_eq!(number_of(&paths, "two/10.ts"), 1);
    assert_eq!(
        [world.count(m::STALLS), world.count(m::BYTES_WASTED)],
        [0, 100]
    );
    // The delay begins with the first request.
    let (_, longest) = world.recorded(m::SEGMENT_DELAY);
    assert!((1_900..2_200).contains(&longest), "{longest}");
}

#[test]
fn repeated_request_does_not_wait_after_a_change() {
    // Segment 10 fails with a status that may pass, until the playlist is gone too.
    let mut world = play_two(|path, now| {
        let is_gone = path.ends_with("one/v.m3u8") && now > at(3_000);
        let is_broken = path.ends_with("one/10.ts");
        is_gone
            .then(not_found)
            .or_else(|| is_broken.then(unavailable))
    });
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE));
    let asked = world
        .asked
        .iter()
        .find(|asked| asked.path.ends_with("two/10.ts"));
    let changed = world
        .asked
        .iter()
        .find(|asked| asked.path.ends_with("two/v.m3u8"));
    let (asked, changed) = (
        asked.expect("it is requested").at,
        changed.expect("it changes").at,
    );
    assert!(asked.since(changed) < Duration::from_millis(50));
    let (_, longest) = world.recorded(m::SEGMENT_DELAY);
    assert!((1_900..2_200).contains(&longest), "{longest}");
}

#[test]
fn player_returns_if_the_other_variant_is_gone() {
    let world = play_redundant(VariantChoice::Highest, |path, _| match path {
        "/a/one/2.ts" | "/a/two/high.m3u8" => Some(not_found()),
        _ => None,
    });
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(
        world.notes,
        ["variant_failed", "variant_failed", "segment_failed"]
    );
    assert_eq!(
        [world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE)],
        [7, 8]
    );
    // The player also returns after a missing segment of the audio.
    let world = play_redundant(VariantChoice::Highest, |path, _| match path {
        "/a/one/2.aac.ts" | "/a/two/audio.m3u8" => Some(not_found()),
        _ => None,
    });
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(
        [world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE)],
        [7, 8]
    );
}

#[test]
fn audio_changes_early_if_its_old_playlist_fails() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(
                "#EXTM3U\n\
                 #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"0\",NAME=\"x\",URI=\"poor.m3u8\"\n\
                 #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"1\",NAME=\"x\",URI=\"one.m3u8\"\n\
                 #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"2\",NAME=\"x\",URI=\"two.m3u8\"\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"0\"\nlow.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"1\"\nhigh-one.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=900000,AUDIO=\"2\"\nhigh-two.m3u8\n",
            ),
            _ if path.ends_with(".m3u8") => {
                let text = String::from_utf8(segments(4).body).expect("it is text");
                let kind = path.trim_start_matches("/a/").trim_end_matches(".m3u8");
                Answer::ok(text.replace(".ts", &format!(".{kind}")))
            }
            "/a/0.poor" => not_found().in_time(600),
            _ => Answer::ok([0xff; 188].repeat(1000)).in_time(100),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(
        [world.count(m::SWITCHES), world.count(m::FAILOVERS)],
        [1, 0]
    );
    assert_eq!(world.count(m::SEGMENTS), 8);
    let paths = world.paths();
    assert_eq!(
        [number_of(&paths, ".one"), number_of(&paths, ".two")],
        [4, 0]
    );
}

#[test]
fn thousands_of_segments_that_cannot_be_requested_end_the_client() {
    let mut world = World::new(config(), |path, _| {
        let elsewhere = "#EXTINF:0,\nhttp://10.9.9.9/a.ts\n".repeat(40_000);
        let first = "#EXTINF:2,\n0.ts\n";
        Some(match path.ends_with(".m3u8") {
            true => playlist("", &format!("{first}{elsewhere}#EXT-X-ENDLIST\n")),
            false => Answer::ok([0xff; 188]),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.failed().0, "redirect_refused");
    assert_eq!(world.count(m::SEGMENTS_FAILED), 1000);
}

#[test]
fn player_does_not_return_because_of_one_failure() {
    let tried = std::cell::Cell::new(0);
    let world = play_redundant(VariantChoice::Highest, |path, _| match path {
        "/a/one/2.ts" => Some(not_found()),
        "/a/two/high.m3u8" if tried.replace(tried.get() + 1) == 0 => Some(unavailable()),
        _ => None,
    });
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.notes, ["variant_failed", "playlist_failed"]);
    assert_eq!(world.count(m::SEGMENTS), 8);
}

#[test]
fn player_does_not_return_once_it_has_the_other_playlist() {
    let mut world = play_two(|path, now| {
        let is_gone = path.ends_with("two/v.m3u8") && now > at(8_000);
        let is_missing = path.ends_with("one/9.ts");
        is_gone
            .then(unavailable)
            .or_else(|| is_missing.then(not_found))
    });
    assert_eq!(world.failed().0, "status_5xx");
    assert_eq!(world.count(m::FAILOVERS), 1);
}

#[test]
fn video_that_is_over_does_not_change_with_the_audio() {
    let world = play_redundant(VariantChoice::Highest, |path, _| {
        let late = || not_found().in_time(1_000);
        path.ends_with("one/3.aac.ts").then(late)
    });
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(
        [world.count(m::SEGMENTS), world.count(m::SEGMENTS_RETRIED)],
        [8, 1]
    );
    let paths = world.paths();
    assert_eq!(number_of(&paths, "two/high.m3u8"), 0);
    assert_eq!(number_of(&paths, "two/3.aac.ts"), 1);
}

#[test]
fn segment_in_flight_that_has_left_the_playlist_has_failed() {
    // Segment 10 takes 18 s; the playlist begins with 12 when its server is gone.
    let mut world = play_two(|path, now| {
        let is_gone = path.ends_with("one/v.m3u8") && now > at(15_000);
        let slow = || Answer::ok([0xff; 188]).in_time(18_000);
        let is_slow = path.ends_with("one/10.ts");
        is_gone.then(not_found).or_else(|| is_slow.then(slow))
    });
    world.stop();
    assert_eq!(
        [world.count(m::FAILOVERS), world.count(m::SEGMENTS_RETRIED)],
        [1, 0]
    );
    assert_eq!(world.count(m::SEGMENTS_FAILED), 1);
    let known = [m::SEGMENTS, m::SEGMENTS_FAILED, m::SEGMENTS_MISSED].map(|own| world.count(own));
    assert_eq!(world.count(m::SEGMENTS_DUE), known.iter().sum::<u64>());
    assert!(known[0] > 3 && known[2] > 0, "{known:?}");
}

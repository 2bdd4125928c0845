//! Odd servers and media, which are played nevertheless.

use super::*;

fn recorded(count: u64, seconds: u64) -> Answer {
    let mut lines = format!("#EXT-X-TARGETDURATION:{seconds}\n");
    for number in 0..count {
        lines += &format!("#EXTINF:{seconds},\n{number}.ts\n");
    }
    playlist("", &(lines + "#EXT-X-ENDLIST\n"))
}

/// A live playlist of these segments of 2 s.
pub(super) fn window(first: u64, end: u64) -> Answer {
    let mut lines = String::new();
    for number in first..end {
        lines += &format!("#EXTINF:2,\n{number}.ts\n");
    }
    playlist(&format!("#EXT-X-MEDIA-SEQUENCE:{first}"), &lines)
}

pub(super) fn segment() -> Answer {
    Answer::ok([0xff; 188])
}

#[test]
fn redirects_can_be_forbidden_without_forbidding_segments() {
    let config = ClientConfig {
        follow: kit::redirect_policy::RedirectPolicy::None,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nb.m3u8\n"),
            "/a/b.m3u8" => recorded(2, 2),
            _ => segment(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
}

#[test]
fn segments_longer_than_the_buffer_play_without_a_stall() {
    let mut world = World::new(config(), |path, _| {
        Some(match path.ends_with(".m3u8") {
            true => recorded(4, 60),
            false => segment(),
        })
    });
    world.run(at(600_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.now, at(240_042));
    assert_eq!(world.count(m::STALLS), 0);
}

#[test]
fn bodies_that_end_with_the_connection_are_complete() {
    let mut world = World::new(config(), |path, _| {
        let mut answer = match path.ends_with(".m3u8") {
            true => recorded(3, 2),
            false => segment(),
        };
        answer.closes = true;
        answer.has_length = false;
        Some(answer)
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::SEGMENTS), 3);
}

#[test]
fn playlist_that_moves_on_during_a_request_misses_only_what_was_not_requested() {
    // Segment 7 takes 5 s; in the meantime the playlist has gone on from 5..8 to 9..12.
    let mut world = World::new(config(), |path, now| {
        Some(match path {
            "/a/7.ts" => segment().in_time(5000),
            _ if path.ends_with(".ts") => segment(),
            _ if now < at(1000) => window(5, 8),
            _ => window(9, 12),
        })
    });
    world.run(at(6000));
    world.stop();
    let mut paths = world.paths();
    paths.retain(|path| path.ends_with(".ts"));
    let expected = [
        "/a/5.ts", "/a/6.ts", "/a/7.ts", "/a/9.ts", "/a/10.ts", "/a/11.ts",
    ];
    assert_eq!(paths, expected);
    assert_eq!(world.count(m::SEGMENTS_MISSED), 1);
    assert_eq!(world.count(m::SEGMENTS), 6);
    assert_eq!(world.count(m::SEGMENTS_DUE), 7);
}

#[test]
fn older_playlist_of_a_cache_repeats_no_segment() {
    let mut world = World::new(config(), |path, now| {
        Some(match path.ends_with(".m3u8") {
            false => segment(),
            true if now < at(1000) => window(4, 10),
            true if now < at(3000) => window(3, 9),
            true => window(5, 11),
        })
    });
    world.run(at(6000));
    world.stop();
    let mut paths = world.paths();
    paths.retain(|path| path.ends_with(".ts"));
    assert_eq!(paths, ["/a/7.ts", "/a/8.ts", "/a/9.ts", "/a/10.ts"]);
    assert_eq!(world.count(m::PLAYLISTS_BACKWARDS), 1);
    assert_eq!(world.count(m::SEGMENTS_MISSED), 0);
}

#[test]
fn numbers_that_jump_ahead_are_no_missed_segments() {
    let mut world = World::new(config(), |path, now| {
        Some(match path.ends_with(".m3u8") {
            false => segment(),
            true if now < at(1000) => window(4, 10),
            true => window(1 << 62, (1 << 62) + 6),
        })
    });
    world.run(at(6000));
    world.stop();
    assert_eq!(world.count(m::SEGMENTS_MISSED), 0);
    assert_eq!(world.count(m::SEGMENTS_DUE), world.count(m::SEGMENTS));
    // Three before the jump, and the last three after it.
    assert_eq!(world.count(m::SEGMENTS), 6);
}

#[test]
fn bodies_that_are_no_media_have_failed() {
    let play = |page: &'static [u8]| {
        let lines = "#EXTINF:2,\n0.ts\n#EXTINF:2,\n1.ts\n#EXTINF:2,\n2.ts\n";
        let mut world = World::new(config(), move |path, _| {
            Some(match path {
                "/a/0.ts" => segment(),
                _ if path.ends_with(".ts") => Answer::ok(page),
                _ => playlist("", &format!("{lines}#EXT-X-ENDLIST\n")),
            })
        });
        world.run(at(60_000));
        assert_eq!(world.outcome, Some(Outcome::Completed));
        [m::SEGMENTS, m::SEGMENTS_FAILED].map(|counter| world.count(counter))
    };
    assert_eq!(play(b"<html>not found</html>"), [1, 2]);
    assert_eq!(play(b""), [1, 2]);
}

#[test]
fn client_that_is_stopped_after_the_media_has_failed() {
    let stopped = |time| {
        let mut world = World::new(config(), |path, _| {
            Some(match path.ends_with(".m3u8") {
                true => window(0, 3),
                false => segment(),
            })
        });
        world.run(at(time));
        world.stop();
        world.outcome
    };
    // 6 s of media, and two target durations of 2 s.
    assert_eq!(stopped(9900), Some(Outcome::Stopped));
    let outcome = stopped(10_100);
    let failure = outcome.as_ref().and_then(Outcome::failure);
    assert_eq!(failure.map(|failure| failure.reason), Some("media_stopped"));
}

#[test]
fn bytes_after_a_response_are_no_answer_to_the_next_request() {
    let mut world = World::new(config(), |path, _| {
        let mut answer = match path.ends_with(".m3u8") {
            true => recorded(3, 2),
            false => segment(),
        };
        answer.further = b"x".to_vec();
        Some(answer)
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert!(world.notes.is_empty());
    assert_eq!(world.count(m::SEGMENTS), 3);
}

#[test]
fn sections_that_arrive_do_not_hide_segments_that_fail() {
    let mut lines = String::new();
    for number in 0..9 {
        lines += &format!("#EXT-X-MAP:URI=\"{number}.mp4\"\n#EXTINF:2,\n{number}.m4s\n");
    }
    let answer = playlist("", &(lines + "#EXT-X-ENDLIST\n"));
    let mut world = World::new(config(), move |path, _| {
        Some(match path {
            "/a/index.m3u8" => answer.clone(),
            "/a/0.m4s" => segment(),
            _ if path.ends_with(".m4s") => Answer::new("404 Not Found", ""),
            _ => segment(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.failed().0, "status_404");
    // The failure that ends the client counts, too.
    assert_eq!(world.count(m::SEGMENTS_FAILED), 3);
}

#[test]
fn end_that_becomes_known_late_is_no_stall() {
    let mut world = World::new(config(), |path, now| {
        Some(match path.ends_with(".m3u8") {
            false => segment(),
            true => {
                let mut answer = window(0, 3);
                if now > at(8000) {
                    answer.body.extend_from_slice(b"#EXT-X-ENDLIST\n");
                }
                answer
            }
        })
    });
    world.run(at(60_000));
    assert!(matches!(world.outcome, Some(Outcome::EndedByServer { .. })));
    assert_eq!(world.count(m::STALLS), 0);
    assert_eq!(world.recorded(m::STALL_TIME).0, 0);
}

#[test]
fn buffer_is_bounded_while_another_track_is_waited_for() {
    let multivariant = "#EXTM3U\n\
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"b\",URI=\"audio/b.m3u8\"\n\
        #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"a\"\nvideo.m3u8\n";
    let mut world = World::new(config(), move |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(multivariant),
            "/a/audio/0.ts" => segment().in_time(15_000),
            _ if path.ends_with(".m3u8") => recorded(100, 2),
            _ => segment(),
        })
    });
    world.run(at(14_000));
    let mut paths = world.paths();
    paths.retain(|path| path.ends_with(".ts"));
    // 30 s of video, and the first segment of audio.
    assert_eq!(paths.len(), 16);
}

#[test]
fn broken_rules_are_counted_and_each_is_told_once() {
    // Segments of 3 s with a target duration of 2 s.
    let mut world = World::new(config(), |path, now| {
        if !path.ends_with(".m3u8") {
            return Some(segment());
        }
        let mut lines = "#EXT-X-TARGETDURATION:2\n".to_owned();
        for number in 0..3 + now.since(Time::ZERO).as_secs() / 3 {
            lines += &format!("#EXTINF:3,\n{number}.ts\n");
        }
        Some(playlist("", &lines))
    });
    world.run(at(10_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    let odd = world.count(m::PLAYLISTS_ODD);
    assert!(odd >= 3 && odd == world.count(m::PLAYLISTS), "{odd}");
    assert_eq!(world.notes, ["playlist_odd"]);
    let text = &world.note_texts[0];
    assert!(
        text.starts_with("segment 0 has 3 s, the target duration is 2 s")
            && text.ends_with("http://10.0.0.1/a/index.m3u8"),
        "{text}"
    );
}

#[test]
fn playback_begins_where_the_playlist_says() {
    let first = |start: &str, is_ended: bool, config: ClientConfig| {
        let mut lines = format!("#EXT-X-START:TIME-OFFSET={start}\n");
        for number in 0..10 {
            lines += &format!("#EXTINF:2,\n{number}.ts\n");
        }
        if is_ended {
            lines += "#EXT-X-ENDLIST\n";
        }
        let mut world = World::new(config, move |path, _| {
            Some(match path.ends_with(".m3u8") {
                true => playlist("", &lines),
                false => segment(),
            })
        });
        world.run(at(3000));
        world.asked[1].path.clone()
    };
    for is_ended in [false, true] {
        for (start, expected) in [
            ("-5", "/a/7.ts"),
            ("3", "/a/1.ts"),
            ("0", "/a/0.ts"),
            // Beyond the ends.
            ("-100", "/a/0.ts"),
            ("100", "/a/9.ts"),
        ] {
            assert_eq!(first(start, is_ended, config()), expected, "{start}");
        }
    }
    // The key has precedence for live media.
    for (is_ended, expected) in [(false, "/a/6.ts"), (true, "/a/7.ts")] {
        let config = ClientConfig {
            live_distance: Some(TimeSpan(Duration::from_secs(8))),
            ..config()
        };
        assert_eq!(first("-5", is_ended, config), expected);
    }
}

#[test]
fn media_before_the_stated_start_is_not_shown() {
    // Playback begins at 5 s of 8: within the third segment.
    let lines = "#EXT-X-START:TIME-OFFSET=5\n".to_owned()
        + &"#EXTINF:2,\na.ts\n".repeat(4)
        + "#EXT-X-ENDLIST\n";
    let mut world = World::new(config(), move |path, _| {
        Some(match path.ends_with(".m3u8") {
            true => playlist("", &lines),
            false => segment(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::SEGMENTS), 2);
    assert_eq!(world.count(m::SHOWN_NANOSECONDS), 3_000_000_000);
}

#[test]
fn multivariant_playlist_says_where_all_tracks_begin() {
    let mut world = World::new(config(), |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(
                "#EXTM3U\n#EXT-X-START:TIME-OFFSET=-6\n\
                 #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"a\",URI=\"b.m3u8\"\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"a\"\nv.m3u8\n",
            ),
            _ if path.ends_with(".m3u8") => recorded(9, 2),
            _ => segment(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::SEGMENTS), 6);
}

#[test]
fn default_audio_of_the_variant_itself_needs_no_playlist() {
    for variant in [VariantChoice::Highest, VariantChoice::Adaptive] {
        default_audio_is_played(variant);
    }
}

fn default_audio_is_played(variant: VariantChoice) {
    let config = ClientConfig {
        variant,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(
                "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"en\",DEFAULT=YES\n\
                 #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"fr\",URI=\"fr.m3u8\"\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=9,AUDIO=\"a\"\nv.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=9,AUDIO=\"a\"\nsame-elsewhere.m3u8\n",
            ),
            _ if path.ends_with(".m3u8") => recorded(2, 2),
            _ => segment(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    // The player takes the first of two variants with the same bit rate.
    let playlists = world.paths();
    let playlists: Vec<_> = playlists
        .iter()
        .filter(|own| own.ends_with("m3u8"))
        .collect();
    assert_eq!(playlists, [&"/a/index.m3u8", &"/a/v.m3u8"]);
}

/// Runs a player of live media whose segment 4 is answered with `failing` until `until`. Returns
/// the times of the requests for it in milliseconds, and counts of segments that were received,
/// repeated, failed and missed.
fn repeated(failing: Answer, until: Time) -> (Vec<u64>, [u64; 4]) {
    let mut world = player_of_failing(failing, until);
    world.run(at(60_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    let asked = world.asked.iter().filter(|own| own.path == "/a/4.ts");
    let times: Vec<u64> = asked
        .map(|own| own.at.since(Time::ZERO).as_millis() as u64)
        .collect();
    let counts = [
        m::SEGMENTS,
        m::SEGMENTS_RETRIED,
        m::SEGMENTS_FAILED,
        m::SEGMENTS_MISSED,
    ];
    (times, counts.map(|counter| world.count(counter)))
}

/// A player of live media whose segment 4 is answered with `failing` until `until`.
fn player_of_failing(
    failing: Answer,
    until: Time,
) -> World<impl FnMut(&str, Time) -> Option<Answer>> {
    World::new(config(), move |path, now| {
        let end = 5 + now.since(Time::ZERO).as_secs() / 2;
        Some(match path {
            "/a/index.m3u8" => window(end.saturating_sub(10), end),
            "/a/4.ts" if now < until => failing.clone(),
            _ => segment(),
        })
    })
}

#[test]
fn segments_are_requested_again_after_failures_that_may_pass() {
    let gaps = |times: &[u64]| -> Vec<u64> {
        let pairs = times.windows(2).map(|pair| pair[1] - pair[0]);
        pairs.map(|gap| gap / 1000).collect()
    };
    // The server recovers after the third attempt.
    let failing = Answer::new("503 Service Unavailable", "");
    let (times, counts) = repeated(failing.clone(), at(5000));
    assert_eq!(gaps(&times), [1, 2, 4]);
    assert_eq!(
        (times.len(), counts[1..] == [3, 0, 0]),
        (4, true),
        "{counts:?}"
    );
    // The server does not recover, and segment 4 leaves the playlist after 20 s.
    let (times, [_, retried, failed, missed]) = repeated(failing, at(600_000));
    assert_eq!(gaps(&times), [1, 2, 4, 8]);
    assert_eq!((retried, failed, missed), (4, 1, 0));
    // A missing segment is not requested again.
    let missing = Answer::new("404 Not Found", "");
    let (times, [.., retried, failed, missed]) = repeated(missing, at(600_000));
    assert_eq!((times.len(), retried, failed, missed), (1, 0, 1, 0));
    // A response that breaks off.
    let broken = Answer {
        has_length: false,
        head: "200 OK\r\nContent-Length: 1000".to_owned(),
        closes: true,
        ..segment()
    };
    let (times, counts) = repeated(broken, at(2000));
    assert_eq!((times.len(), &counts[1..]), (3, &[2, 0, 0][..]));
}

#[test]
fn delay_of_a_segment_has_its_failed_attempts() {
    // The fourth attempt succeeds, 7 s after the first.
    let failing = Answer::new("503 Service Unavailable", "");
    let mut world = player_of_failing(failing, at(5000));
    world.run(at(30_000));
    world.stop();
    let (_, max) = world.recorded(m::SEGMENT_DELAY);
    assert!((7000..7200).contains(&max), "{max}");
    assert_eq!(world.count(m::SEGMENTS_LATE), 1);
}

#[test]
fn segment_that_is_to_be_repeated_at_the_end_has_failed() {
    let failing = Answer::new("503 Service Unavailable", "");
    let mut world = player_of_failing(failing, at(60_000));
    world.run(at(3000));
    assert_eq!(world.stop(), Outcome::Stopped);
    let [due, segments, failed] =
        [m::SEGMENTS_DUE, m::SEGMENTS, m::SEGMENTS_FAILED].map(|own| world.count(own));
    assert_eq!((due, failed), (segments + 1, 1));
}

#[test]
fn each_segment_has_attempts_of_its_own() {
    // Segments 4 and 20 are refused for ever, and leave the playlist after 20 s.
    let mut world = World::new(config(), move |path, now| {
        let end = 5 + now.since(Time::ZERO).as_secs() / 2;
        Some(match path {
            "/a/index.m3u8" => window(end.saturating_sub(10), end),
            "/a/4.ts" | "/a/20.ts" => Answer::new("503 Service Unavailable", ""),
            _ => segment(),
        })
    });
    world.run(at(100_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    let asked = world.asked.iter().filter(|own| own.path == "/a/20.ts");
    let times: Vec<Time> = asked.map(|own| own.at).collect();
    let gap = times[1].since(times[0]).as_secs();
    assert_eq!(gap, 1, "{times:?}");
}

#[test]
fn segment_that_fails_after_it_has_left_the_playlist_is_not_repeated() {
    // Segment 4 is refused when the playlist, of three segments, is far beyond it.
    let mut world = World::new(config(), move |path, now| {
        let end = 5 + now.since(Time::ZERO).as_secs() / 2;
        Some(match path {
            "/a/index.m3u8" => window(end - 3, end),
            "/a/4.ts" => Answer::new("503 Service Unavailable", "").in_time(18_000),
            _ => segment(),
        })
    });
    world.run(at(40_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    let [due, segments, failed, missed, retried] = [
        m::SEGMENTS_DUE,
        m::SEGMENTS,
        m::SEGMENTS_FAILED,
        m::SEGMENTS_MISSED,
        m::SEGMENTS_RETRIED,
    ]
    .map(|counter| world.count(counter));
    assert_eq!((failed, retried), (1, 0));
    assert_eq!(due, segments + failed + missed);
    // From segment 2 on, all count.
    let last = world
        .paths()
        .into_iter()
        .rev()
        .find(|path| path.ends_with(".ts"));
    let last = last.and_then(|path| path.strip_prefix("/a/")?.strip_suffix(".ts"));
    let last: u64 = last
        .and_then(|number| number.parse().ok())
        .expect("a number");
    assert_eq!(due, last - 2 + 1);
}

#[test]
fn server_whose_segments_all_fail_ends_the_client_with_their_reason() {
    let mut world = World::new(config(), move |path, now| {
        let end = 5 + now.since(Time::ZERO).as_secs() / 2;
        Some(match path {
            "/a/index.m3u8" => window(end.saturating_sub(5), end),
            _ if now < at(1000) => segment(),
            _ => Answer::new("503 Service Unavailable", ""),
        })
    });
    world.client.config = Arc::new(ClientConfig {
        silence: TimeSpan(Duration::from_secs(100)),
        ..config()
    });
    world.run(at(200_000));
    assert_eq!(world.failed().0, "status_5xx");
    assert_eq!(world.count(m::SEGMENTS_FAILED), 3);
    let retried = world.count(m::SEGMENTS_RETRIED);
    assert!((4..10).contains(&retried), "{retried}");
}

/// Checks that a player of segments of 2 s requests each once, and follows no restart.
fn assert_no_restart(config: ClientConfig, playlist_at: impl Fn(Time) -> Answer) {
    let mut world = World::new(config, move |path, now| {
        Some(match path {
            "/a/index.m3u8" => playlist_at(now),
            _ => segment(),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    let paths = world.paths().into_iter();
    let mut paths: Vec<_> = paths.filter(|own| own.ends_with(".ts")).collect();
    let all = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(all, paths.len(), "each segment is requested once");
    assert_eq!(world.count(m::SEGMENTS_MISSED), 0);
    assert!(!world.notes.contains(&"playlist_restarted"));
}

#[test]
fn older_playlists_of_a_cache_are_no_restart() {
    let silence = |seconds| ClientConfig {
        silence: TimeSpan(Duration::from_secs(seconds)),
        ..config()
    };
    // Until when the cache is behind, from 10 s on; by how many seconds; whether it stands still.
    for (until, behind, stands, silence) in [
        // The cache stands still for longer than three target durations.
        (18, 10, true, silence(5)),
        (30, 10, true, silence(20)),
        // The playlist grows, and will soon have the next segment.
        (19, 10, false, silence(20)),
        // The playlist is far behind, for less than three target durations.
        (14, 36, false, silence(20)),
    ] {
        assert_no_restart(silence, move |now| {
            let now = now.since(Time::ZERO).as_secs();
            let is_behind = (10..until).contains(&now);
            let seconds = match is_behind {
                true if stands => 100,
                true => 100 + now - behind,
                false => 100 + now,
            };
            let end = seconds / 2;
            window(end - 20, end)
        });
    }
}

#[test]
fn dates_that_are_derived_from_durations_do_not_tell_a_restart() {
    // Segments of 1.6 s are stated as 2 s, and only the first has a date. Every second answer comes
    // from a cache that is four segments behind.
    let answers = std::cell::Cell::new(0);
    assert_no_restart(config(), move |now| {
        answers.set(answers.get() + 1);
        let is_older = answers.get() % 2 == 0;
        let end = 20 + now.since(Time::ZERO).as_millis() as u64 / 1600;
        let first = if is_older { end - 14 } else { end - 10 };
        let date = first * 1600;
        let (minute, second, millisecond) = (date / 60_000, date / 1000 % 60, date % 1000);
        let mut lines = format!(
            "#EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:{minute:02}:{second:02}.{millisecond:03}Z\n"
        );
        for number in first..first + 10 {
            lines += &format!("#EXTINF:2,\n{number}.ts\n");
        }
        playlist(&format!("#EXT-X-MEDIA-SEQUENCE:{first}"), &lines)
    });
}

#[test]
fn refused_first_segment_ends_the_client_at_once() {
    let mut world = World::new(config(), |path, _| {
        Some(match path.ends_with(".m3u8") {
            true => recorded(9, 2),
            false => Answer::new("503 Service Unavailable", ""),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.failed().0, "status_5xx");
    assert_eq!(
        (world.asked.len(), world.count(m::SEGMENTS_RETRIED)),
        (2, 0)
    );
}

#[test]
fn few_missing_parts_do_not_end_the_client() {
    // Three of ten parts of 200 ms are missing, or all of ten: two seconds, the target duration.
    for (missing, ends) in [(3, false), (10, true)] {
        let mut world = World::new(config(), move |path, now| {
            let complete = 20 + now.since(Time::ZERO).as_millis() as u64 / 200;
            let name = path.trim_start_matches("/a/");
            if name.ends_with(".ts") {
                let number: u64 = name.trim_end_matches(".ts").parse().expect("a number");
                let is_missing = number >= 30 && number % 10 < missing || number >= complete;
                return Some(match is_missing {
                    true => Answer::new("404 Not Found", ""),
                    false => segment(),
                });
            }
            let mut text = "#EXT-X-PART-INF:PART-TARGET=0.2\n#EXT-X-SERVER-CONTROL:\
                            CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.6\n"
                .to_owned();
            for number in 0..complete {
                if number % 10 == 0 && number > 0 {
                    text += &format!("#EXTINF:2,\ns{number}.ts\n");
                }
                text += &format!("#EXT-X-PART:DURATION=0.2,INDEPENDENT=YES,URI=\"{number}.ts\"\n");
            }
            Some(playlist("", &text).in_time(200))
        });
        world.run(at(12_100));
        let is_over = world.outcome.is_some();
        assert_eq!(is_over, ends, "{:?}", world.outcome);
        if !is_over {
            assert_eq!(world.count(m::SEGMENTS_FAILED), 15);
        }
    }
}

#[test]
fn server_that_counts_again_within_its_window_is_followed() {
    // A playlist from the start of the stream on. After 10 s the server begins again, with other
    // names, with other dates, or with nothing that tells.
    for (renames, has_dates, latest) in [(true, false, 3), (false, true, 3), (false, false, 12)] {
        let restart = at(10_000);
        let mut world = World::new(config(), move |path, now| {
            if !path.ends_with(".m3u8") {
                return Some(segment());
            }
            let (begin, name, minute) = match now < restart {
                true => (Time::ZERO, "a", 1),
                false => (restart, if renames { "b" } else { "a" }, 2),
            };
            let before = if now < restart { 20 } else { 1 };
            let mut lines = String::new();
            for number in 0..before + now.since(begin).as_secs() / 2 {
                if has_dates {
                    lines += &format!(
                        "#EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:{:02}:{:02}Z\n",
                        minute + number / 30,
                        2 * number % 60
                    );
                }
                lines += &format!("#EXTINF:2,\n{name}{number}.ts\n");
            }
            Some(playlist("", &lines))
        });
        world.run(at(40_000));
        assert_eq!(world.stop(), Outcome::Stopped);
        // One of the first ten segments of the new stream.
        let is_early = |path: &str| path.ends_with(".ts") && path.len() == "/a/b0.ts".len();
        let mut again = world.asked.iter().filter(|own| own.at >= restart);
        let first = again.find(|own| is_early(&own.path));
        let first = first.expect("the new stream is played").at.since(restart);
        assert!(first <= Duration::from_secs(latest), "{first:?}");
        let notes = world.notes.iter();
        let restarts = notes.filter(|kind| **kind == "playlist_restarted");
        assert_eq!(restarts.count(), 1);
    }
}

#[test]
fn request_that_waits_for_too_much_is_repeated_without_its_wish() {
    // The server begins again after 5 s, and refuses to wait for what is far away.
    let restart = at(5000);
    let mut world = World::new(config(), move |path, now| {
        if !path.contains(".m3u8") {
            return Some(segment());
        }
        let (begin, before) = match now < restart {
            true => (Time::ZERO, 100),
            false => (restart, 4),
        };
        let end = before + now.since(begin).as_secs() / 2;
        let awaited = path.split_once("_HLS_msn=").map(|(_, number)| number);
        let awaited: Option<u64> = awaited.map(|number| number.parse().expect("a number"));
        if awaited.is_some_and(|awaited| awaited > end + 1) {
            return Some(Answer::new("400 Bad Request", ""));
        }
        let first = end.saturating_sub(5);
        let head =
            format!("#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES\n#EXT-X-MEDIA-SEQUENCE:{first}");
        let mut lines = String::new();
        for number in first..end + u64::from(awaited.is_some()) {
            lines += &format!("#EXTINF:2,\n{number}.ts\n");
        }
        let waits = if awaited.is_some() { 2000 } else { 20 };
        Some(playlist(&head, &lines).in_time(waits))
    });
    world.run(at(30_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::RESPONSES_4XX), 1);
    assert!(world.paths().contains(&"/a/6.ts"), "{:?}", world.paths());
}

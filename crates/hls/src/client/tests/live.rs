//! Live playlists.

use super::*;

/// A live playlist of the six segments that were complete at `now`. Segment `n` lasts 2 s and is
/// complete at `2 (n + 1)` s after the start of the encoder, 20 s before the start of the run.
fn window(now: Time) -> Answer {
    let since = now.since(Time::ZERO) + Duration::from_secs(20);
    let complete = since.as_secs() / 2;
    numbered(complete.saturating_sub(6), complete)
}

fn numbered(first: u64, end: u64) -> Answer {
    let mut lines = String::new();
    for number in first..end {
        let date = 1_700_000_000 - 20 + 2 * number;
        let (hour, minute, second) = (date / 3600 % 24, date / 60 % 60, date % 60);
        lines += &format!(
            "#EXT-X-PROGRAM-DATE-TIME:2023-11-14T{hour:02}:{minute:02}:{second:02}.000Z\n\
             #EXTINF:2.0,\n{number}.ts\n"
        );
    }
    playlist(&format!("#EXT-X-MEDIA-SEQUENCE:{first}"), &lines)
}

fn live(path: &str, now: Time) -> Option<Answer> {
    Some(match path.ends_with(".m3u8") {
        true => window(now),
        false => Answer::ok([0xff; 188].repeat(10)),
    })
}

#[test]
fn player_follows_a_live_playlist_without_stalls() {
    let mut world = World::new(config(), live);
    world.run(at(30_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    // At the start, segments 4 to 9 are complete; three target durations from the end is 7. A new
    // one is complete every 2 s until 30 s: 24 is, and had been requested.
    assert!(world.asked.iter().any(|asked| asked.path == "/a/7.ts"));
    let segments = world.count(m::SEGMENTS);
    assert!((17..=18).contains(&segments), "{segments}");
    assert_eq!(world.count(m::SEGMENTS_DUE), segments);
    assert_eq!(world.count(m::PAYLOAD_BYTES), segments * 1880);
    assert_eq!(world.count(m::STALLS), 0);
    assert_eq!(world.count(m::PLAYLISTS_STALE), 0);
    assert_eq!(world.count(m::REQUESTS), world.asked.len() as u64);
    // Two connections, however many requests.
    let mut channels: Vec<u32> = world.asked.iter().map(|asked| asked.channel.0).collect();
    channels.sort_unstable();
    channels.dedup();
    assert_eq!(channels, [0, 1]);
    // One millisecond for each connection, 20 for each answer.
    assert_eq!(world.recorded(m::PLAYBACK_DELAY), (1, 42));
    assert_eq!(world.recorded(m::SEGMENT_DELAY), (segments, 21));
    // Segment 7 begins 6 s before the start, and is shown 42 ms after it.
    assert_eq!(world.recorded(m::LIVE_LATENCY), (segments, 6042));
    let service = world.service.expect("it is judged");
    assert_eq!(service.judgement(false), Some(Judgement::Well));
}

#[test]
fn playback_begins_where_the_server_or_the_user_wants() {
    let first = |config, head: &'static str| {
        let mut world = World::new(config, move |path, now| {
            let mut answer = live(path, now)?;
            if path.ends_with(".m3u8") {
                let text = String::from_utf8(answer.body).expect("text");
                answer.body = text.replacen("\n", &format!("\n{head}\n"), 1).into_bytes();
            }
            Some(answer)
        });
        world.run(at(500));
        world.asked[1].path.clone()
    };
    let held = "#EXT-X-SERVER-CONTROL:HOLD-BACK=8.0";
    assert_eq!(first(config(), held), "/a/6.ts");
    let near = ClientConfig {
        live_distance: Some(TimeSpan(Duration::from_secs(3))),
        ..config()
    };
    assert_eq!(first(near, held), "/a/8.ts");
}

#[test]
fn slow_segments_stall_playback_for_a_known_time() {
    // Each segment of 2 s takes 3 s. The first begins playback at 3.022 s; of each later one
    // playback waits for 1 s.
    let mut world = World::new(config(), |path, now| {
        let answer = live(path, now)?;
        Some(match path.ends_with(".m3u8") {
            true => answer,
            false => answer.in_time(3000),
        })
    });
    world.run(at(15_000));
    world.stop();
    assert_eq!(world.count(m::SEGMENTS), 4);
    assert_eq!(world.count(m::SEGMENTS_LATE), 4);
    // Segments end at 3.022, 6.022, 9.022 and 12.022 s; at 14.022 s the buffer is empty again.
    assert_eq!(world.count(m::STALLS), 4);
    let stalls = world.recorder.histogram(m::STALL_TIME).expect("recorded");
    assert_eq!(stalls.count(), 4);
    assert_eq!(world.recorded(m::STALL_TIME).1, 1000);
    // From the beginning of playback to the end of the run.
    let [shown, stalled] = [m::SHOWN_NANOSECONDS, m::STALL_NANOSECONDS].map(|own| world.count(own));
    assert_eq!((shown, stalled), (8_000_000_000, 3_978_000_000));
    let service = world.service.expect("it is judged");
    assert_eq!(service.judgement(false), Some(Judgement::StartedLate));
}

#[test]
fn playlist_that_does_not_change_is_stale_and_ends_the_client() {
    let mut world = World::new(config(), |path, _| live(path, Time::ZERO));
    world.run(at(60_000));
    let (reason, detail) = world.failed();
    assert_eq!(reason, "media_stopped");
    assert!(
        detail.contains("no segment was complete for 20s"),
        "{detail}"
    );
    assert_eq!(world.count(m::SEGMENTS), 3);
    // Requests at 0, then 2 s later, then every second.
    let asked = world.asked.iter().filter(|own| own.path.ends_with("m3u8"));
    let times: Vec<u64> = asked
        .map(|own| own.at.since(Time::ZERO).as_secs())
        .collect();
    assert_eq!(times[..5], [0, 2, 3, 4, 5]);
    let unchanged = world.count(m::PLAYLISTS_UNCHANGED);
    assert_eq!(unchanged, times.len() as u64 - 1);
    // At 2 s and 3 s it is not older than 3 s.
    assert_eq!(world.count(m::PLAYLISTS_STALE), unchanged - 2);
    // Three segments of 2 s, then 20 s of silence.
    assert_eq!(world.now, at(26_042));
    assert_eq!(world.count(m::STALLS), 1);
}

#[test]
fn segments_that_left_the_playlist_are_missed() {
    let mut world = World::new(config(), |path, now| match path.ends_with(".m3u8") {
        true if now < at(1000) => Some(numbered(4, 10)),
        true => Some(numbered(14, 20)),
        false => live(path, now),
    });
    world.run(at(4000));
    world.stop();
    // 7, 8 and 9 were played; 10 to 13 are gone; 14 to 19 are there.
    assert_eq!(world.count(m::SEGMENTS_MISSED), 4);
    assert_eq!(world.count(m::SEGMENTS), 9);
    assert_eq!(world.count(m::SEGMENTS_DUE), 13);
    assert_eq!(world.notes, ["segments_missed"]);
    let service = world.service.expect("it is judged");
    assert_eq!(service.judgement(false), Some(Judgement::Loss));
}

#[test]
fn numbers_that_begin_again_are_followed() {
    let mut world = World::new(config(), |path, now| match path.ends_with(".m3u8") {
        true if now < at(3000) => Some(numbered(1004, 1010)),
        true => Some(numbered(0, 4)),
        false => live(path, now),
    });
    world.run(at(5000));
    world.stop();
    assert_eq!(world.count(m::PLAYLISTS_BACKWARDS), 1);
    // 1007 to 1009, then 1 to 3.
    assert_eq!(world.count(m::SEGMENTS), 6);
    assert!(world.paths().contains(&"/a/1.ts"));
}

#[test]
fn refused_segments_are_skipped_until_there_are_three_in_a_row() {
    let mut world = World::new(config(), |path, now| match path {
        "/a/8.ts" | "/a/9.ts" => Some(Answer::new("404 Not Found", "no")),
        _ => live(path, now),
    });
    world.run(at(10_000));
    assert_eq!(world.outcome, None);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 2);
    assert_eq!(world.count(m::REFUSALS), 2);
    assert_eq!(world.notes, ["segment_failed", "segment_failed"]);
    let mut world = World::new(config(), |path, now| match path {
        "/a/7.ts" => live(path, now),
        _ if path.ends_with(".ts") => Some(Answer::new("404 Not Found", "no")),
        _ => live(path, now),
    });
    world.run(at(10_000));
    let (reason, detail) = world.failed();
    assert_eq!(reason, "status_404");
    assert!(detail.contains("http://10.0.0.1/a/10.ts"), "{detail}");
}

#[test]
fn playlist_that_fails_is_requested_again() {
    let mut failures = 0;
    let mut world = World::new(config(), |path, now| {
        if path.ends_with(".m3u8") && now > Time::ZERO + Duration::from_secs(1) && failures < 2 {
            failures += 1;
            return Some(Answer::new("503 Service Unavailable", ""));
        }
        live(path, now)
    });
    world.run(at(20_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.notes, ["playlist_failed", "playlist_failed"]);
    let mut world = World::new(config(), |path, now| match path.ends_with(".m3u8") {
        true if now > at(1000) => Some(Answer::new("503 Service Unavailable", "")),
        _ => live(path, now),
    });
    world.run(at(20_000));
    assert_eq!(world.failed().0, "status_5xx");
}

#[test]
fn end_of_a_live_playlist_is_an_end_by_the_server() {
    let mut world = World::new(config(), |path, now| {
        let mut answer = live(path, now)?;
        if path.ends_with(".m3u8") && now > at(3000) {
            answer = window(at(3000));
            answer.body.extend_from_slice(b"#EXT-X-ENDLIST\n");
        }
        Some(answer)
    });
    world.run(at(60_000));
    let Some(Outcome::EndedByServer {
        at: end,
        in_order,
        failure,
    }) = &world.outcome
    else {
        panic!("{:?}", world.outcome);
    };
    assert!(*in_order && failure.reason == "ended_by_server");
    // Segments 7 to 10 last 8 s from 42 ms on.
    assert_eq!(*end, at(8042));
    assert_eq!(world.count(m::STALLS), 0);
}

#[test]
fn connection_that_the_server_closes_between_requests_is_made_again() {
    let mut world = World::new(config(), |path, now| {
        let mut answer = live(path, now)?;
        answer.closes = path.ends_with(".ts");
        Some(answer)
    });
    world.run(at(10_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE));
    assert_eq!(world.count(m::STALLS), 0);
    assert!(world.notes.is_empty());
}

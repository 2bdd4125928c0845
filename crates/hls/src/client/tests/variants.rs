//! Multivariant playlists: what they define, and which of their variants are played.

use super::failover::{
    live, not_found, number_of, play_redundant, play_with_audio, segments, unavailable,
};
use super::low_latency::Origin;
use super::*;

#[test]
fn variables_come_from_the_multivariant_playlist_and_the_url() {
    let mut world = World::new(config(), |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(
                "#EXTM3U\n#EXT-X-DEFINE:NAME=\"host\",VALUE=\"s3\"\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=1\n{$host}.m3u8?token=a%2Fb\n",
            ),
            "/a/s3.m3u8?token=a%2Fb" => playlist(
                "#EXT-X-DEFINE:IMPORT=\"host\"\n#EXT-X-DEFINE:QUERYPARAM=\"token\"",
                "#EXTINF:2,\n{$host}/0.ts?t={$token}\n#EXT-X-ENDLIST\n",
            ),
            "/a/s3/0.ts?t=a/b" => Answer::ok([0xff; 188]),
            other => panic!("{other}"),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::SEGMENTS), 1);
}

#[test]
fn variable_that_is_not_defined_ends_the_client_with_its_name() {
    let mut world = World::new(config(), |_, _| {
        Some(playlist(
            "#EXT-X-DEFINE:IMPORT=\"host\"",
            "#EXTINF:2,\n0.ts\n",
        ))
    });
    world.run(at(60_000));
    let (reason, detail) = world.failed();
    assert_eq!(reason, "bad_playlist");
    let expected = "it imports the variable \"host\", which no multivariant playlist defines: \
                    http://10.0.0.1/a/index.m3u8";
    assert_eq!(detail, expected);
}

#[test]
fn variant_elsewhere_is_left_out_and_told() {
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nhttp://10.9.9.9/v.m3u8\n\
                #EXT-X-STREAM-INF:BANDWIDTH=1\nv.m3u8\n";
    for variant in [VariantChoice::First, VariantChoice::Adaptive] {
        let config = ClientConfig {
            variant,
            ..config()
        };
        let mut world = World::new(config, |path, _| {
            Some(match path {
                "/a/index.m3u8" => Answer::ok(text),
                "/a/v.m3u8" => segments(2),
                _ => Answer::ok([0xff; 188]),
            })
        });
        world.run(at(60_000));
        assert_eq!(world.outcome, Some(Outcome::Completed));
        assert_eq!(world.notes, ["variant_failed"]);
        assert!(
            world.note_texts[0].contains("10.9.9.9"),
            "{:?}",
            world.note_texts
        );
    }
}

#[test]
fn adaptive_player_leaves_a_bit_rate_that_is_gone() {
    // The player begins with the lower bit rate.
    let world = play_redundant(VariantChoice::Adaptive, |path, _| {
        path.ends_with("low.m3u8").then(not_found)
    });
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.notes, ["variant_failed"]);
    assert_eq!(world.count(m::SWITCHES), 1);
    assert_eq!(world.count(m::SWITCHES_DOWN), 0);
    assert_eq!(world.count(m::FAILOVERS), 0);
    let paths = world.paths();
    assert_eq!(number_of(&paths, "low.m3u8"), 1);
    assert_eq!(number_of(&paths, "high.m3u8"), 1);
    // If all variants fail, the client has the reason of the last failure.
    let mut world = play_redundant(VariantChoice::Adaptive, |path, _| {
        path.contains("/one/").then(not_found).or_else(|| {
            let broken = || Answer::ok("<html>");
            path.contains("/two/").then(broken)
        })
    });
    assert_eq!(world.failed().0, "bad_playlist");
}

/// Returns the requests of an adaptive player for its second playlist, and the events. The server
/// answers the first of these requests with `answer`.
/// `changed` changes the text of each playlist.
fn change_with_report(
    low_latency: LowLatency,
    answer: Option<Answer>,
    changed: impl Fn(&str) -> String,
    token: &str,
) -> (Vec<String>, Vec<String>) {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        low_latency,
        ..config()
    };
    let mut first = answer;
    let mut world = World::new(config, |path, now| {
        let text = format!(
            "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\nlow/live.m3u8\n\
             #EXT-X-STREAM-INF:BANDWIDTH=900000\nhigh/live.m3u8{token}\n"
        );
        if path == "/a/index.m3u8" {
            return Some(Answer::ok(text));
        }
        if path.contains("high/live")
            && let Some(answer) = first.take()
        {
            return Some(answer);
        }
        let plain = path.replace("/a/low/", "/a/").replace("/a/high/", "/a/");
        let mut answer = Origin::default().answer(&plain, now)?;
        match plain.contains(".m3u8") {
            true => {
                let text = String::from_utf8(answer.body).expect("it is text");
                let report = "#EXT-X-RENDITION-REPORT:URI=\"../high/live.m3u8\"\n";
                answer.body = (changed(&text) + report).into_bytes();
            }
            // Long enough for the estimate.
            false => answer.body.extend([0; 60_000]),
        }
        Some(answer)
    });
    world.run(at(8_000));
    world.stop();
    assert_eq!(world.count(m::SWITCHES), 1);
    assert_eq!(world.count(m::SEGMENTS), world.count(m::SEGMENTS_DUE));
    assert_eq!(world.count(m::STALLS), 0);
    // Requests that name no segment, also that for the multivariant playlist.
    let plain = |path: &&&str| path.contains(".m3u8") && !path.contains("_HLS_msn");
    let plain = world.paths().iter().filter(plain).count() as u64;
    assert_eq!(world.recorded(m::PLAYLIST_DELAY).0, plain);
    let mut paths = world.paths();
    paths.retain(|path| path.contains("high/live.m3u8"));
    let notes = world.notes.iter().map(ToString::to_string).collect();
    (paths.into_iter().map(str::to_owned).collect(), notes)
}

#[test]
fn change_of_variant_asks_for_the_reported_end() {
    // Segments 0 to 9 are complete, with four parts each.
    let (paths, notes) = change_with_report(LowLatency::Hints, None, str::to_owned, "");
    assert_eq!(paths[0], "/a/high/live.m3u8?_HLS_msn=9&_HLS_part=3");
    assert!(
        paths[1].starts_with("/a/high/live.m3u8?_HLS_msn=10&_HLS_part="),
        "{paths:?}"
    );
    assert_eq!(notes, [""; 0]);
    // The report lacks the token of the URL.
    let (paths, _) = change_with_report(LowLatency::Hints, None, str::to_owned, "?t=1");
    assert_eq!(paths[0], "/a/high/live.m3u8?t=1&_HLS_msn=9&_HLS_part=3");
    // Players of whole segments ask for no part, and only for what the server can wait for.
    let segments = |text: &str| text.replace("#EXT-X-PART-INF:PART-TARGET=0.5\n", "");
    let at_once = |text: &str| text.replace("CAN-BLOCK-RELOAD=YES,", "");
    let (hints, none) = (LowLatency::Hints, LowLatency::None);
    for (paths, first) in [
        (
            change_with_report(hints, None, segments, "").0,
            "/a/high/live.m3u8?_HLS_msn=9",
        ),
        (
            change_with_report(hints, None, at_once, "").0,
            "/a/high/live.m3u8",
        ),
        (
            change_with_report(none, None, str::to_owned, "").0,
            "/a/high/live.m3u8",
        ),
    ] {
        assert_eq!(paths[0], first);
    }
}

#[test]
fn server_that_refuses_the_reported_end_is_asked_without_it() {
    let refused = Answer::new("400 Bad Request", "");
    let (paths, notes) = change_with_report(LowLatency::Hints, Some(refused), str::to_owned, "");
    assert_eq!(paths[0], "/a/high/live.m3u8?_HLS_msn=9&_HLS_part=3");
    assert_eq!(paths[1], "/a/high/live.m3u8");
    assert_eq!(notes, ["playlist_failed"]);
}

#[test]
fn audio_elsewhere_needs_permission() {
    let mut world = play_with_audio(&[("a.m3u8", Some("http://10.9.9.9/c.m3u8"))]);
    assert_eq!(world.failed().0, "redirect_refused");
}

/// An adaptive player of three bit rates with 2 Mbit/s, of which 70 % count at first.
fn play_three(
    fails: impl Fn(&str) -> Option<Answer>,
) -> World<impl FnMut(&str, Time) -> Option<Answer>> {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        bandwidth: Some(measure::units::BitRate(2_000_000)),
        ..config()
    };
    let mut world = World::new(config, move |path, _| {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\nlow.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=900000\nmid.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1200000\nhigh.m3u8\n";
        if let Some(answer) = fails(path) {
            return Some(answer);
        }
        Some(match path {
            "/a/index.m3u8" => Answer::ok(text),
            _ if path.ends_with(".m3u8") => segments(4),
            _ => Answer::ok([0xff; 188].repeat(2000)).in_time(100),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    world
}

#[test]
fn adaptive_player_leaves_a_bit_rate_for_the_best_of_the_others() {
    let world = play_three(|path| path.ends_with("high.m3u8").then(not_found));
    assert_eq!(
        [world.count(m::SWITCHES), world.count(m::SWITCHES_DOWN)],
        [1, 1]
    );
    let mut paths = world.paths();
    paths.retain(|path| path.ends_with(".m3u8"));
    assert_eq!(paths, ["/a/index.m3u8", "/a/high.m3u8", "/a/mid.m3u8"]);
}

#[test]
fn adaptive_player_skips_a_missing_segment_without_a_change() {
    let world = play_three(|path| path.ends_with("/2.ts").then(not_found));
    assert_eq!(world.count(m::SWITCHES), 0);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 1);
    assert_eq!(world.notes, ["segment_failed"]);
}

#[test]
fn adaptive_player_stays_if_a_playlist_fails_once() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let mut world = World::new(config, |path, now| {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\nlow.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=900000000\nhigh.m3u8\n";
        Some(match path {
            "/a/index.m3u8" => Answer::ok(text),
            _ if path.ends_with(".m3u8") && (at(3_000)..at(4_500)).contains(&now) => unavailable(),
            _ if path.ends_with(".m3u8") => live(now),
            _ => Answer::ok([0xff; 188]),
        })
    });
    world.run(at(12_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.notes, ["playlist_failed"]);
    assert_eq!(world.count(m::SWITCHES), 0);
}

#[test]
fn bandwidth_limits_a_variant_that_does_not_change() {
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=300000\nlow.m3u8\n\
                #EXT-X-STREAM-INF:BANDWIDTH=900000\nmid.m3u8\n\
                #EXT-X-STREAM-INF:BANDWIDTH=1200000\nhigh.m3u8\n";
    let play = |bandwidth: u64, spread: f64, seed: u64| {
        let config = ClientConfig {
            bandwidth: Some(measure::units::BitRate(bandwidth)),
            bandwidth_spread: measure::units::Ratio(spread),
            ..config()
        };
        let mut world = World::new(config, |path, _| {
            Some(match path {
                "/a/index.m3u8" => Answer::ok(text),
                _ if path.ends_with(".m3u8") => segments(2),
                _ => Answer::ok([0xff; 188]),
            })
        });
        world.client = world.client.with_seed(seed);
        world.run(at(60_000));
        assert_eq!(world.outcome, Some(Outcome::Completed));
        assert_eq!(world.count(m::SWITCHES), 0);
        world.paths()[1].to_owned()
    };
    for (bandwidth, expected) in [
        (100_000, "/a/low.m3u8"),
        (899_999, "/a/low.m3u8"),
        (900_000, "/a/mid.m3u8"),
        (5_000_000, "/a/high.m3u8"),
    ] {
        assert_eq!(play(bandwidth, 0.0, 1), expected, "{bandwidth}");
    }
    let mut chosen: Vec<String> = (0..40).map(|seed| play(900_000, 0.9, seed)).collect();
    chosen.sort();
    chosen.dedup();
    assert_eq!(chosen, ["/a/high.m3u8", "/a/low.m3u8", "/a/mid.m3u8"]);
}

#[test]
fn delay_is_compared_with_the_duration() {
    let mut world = World::new(config(), |path, _| {
        Some(match path.ends_with(".m3u8") {
            true => segments(3),
            false => Answer::ok([0xff; 188]).in_time(500),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    // Each segment of 2 s takes 0.5 s, and the first one 1 ms more for its connection.
    assert_eq!(world.recorded(m::DELAY_PER_SECOND), (3, 251));
}

#[test]
fn adaptive_player_does_not_leave_a_bit_rate_for_its_audio() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let mut world = World::new(config, |path, _| {
        Some(match path {
            "/a/index.m3u8" => Answer::ok(
                "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"x\",URI=\"a.m3u8\"\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=100000,AUDIO=\"a\"\nlow.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=900000000,AUDIO=\"a\"\nhigh.m3u8\n",
            ),
            "/a/a.m3u8" => not_found(),
            _ if path.ends_with(".m3u8") => segments(4),
            _ => Answer::ok([0xff; 188]),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.failed().0, "status_404");
    assert_eq!(world.count(m::SWITCHES), 0);
}

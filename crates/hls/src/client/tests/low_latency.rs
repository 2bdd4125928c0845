//! Low-latency HLS: parts, requests that wait, hints, updates that leave out segments.

use super::*;

/// Duration of a part in milliseconds. Four make a segment.
const PART: u64 = 500;

/// Number of parts that were complete when the run began.
const COMPLETE: u64 = 40;

/// A server of low-latency HLS. Parts are numbered from its start; part `n` is complete 500 ms
/// after the one before.
#[derive(Clone, Default)]
pub(super) struct Origin {
    /// The server answers at once, even if a request waits for a part.
    never_waits: bool,
    /// Segments that its updates leave out; 0: none.
    skips: u64,
    /// Hints name another resource than the playlist.
    hints_are_wrong: bool,
    /// The server refuses requests for parts that are not complete.
    refuses_hints: bool,
    /// Number of parts after which it stops.
    stops_after: Option<u64>,
    /// First part of the segment that has a second initialization section.
    second_from: Option<u64>,
    /// Number of parts before it at which the server begins to hint at the section.
    second_ahead: u64,
    /// Time from which on the section exists.
    second_at: Time,
    /// The server hints at another section instead.
    hints_at_third: bool,
}

impl Origin {
    fn complete_at(number: u64) -> Time {
        at((number + 1).saturating_sub(COMPLETE) * PART)
    }

    fn playlist(&self, complete: u64, skips: u64) -> String {
        let (segments, parts) = (complete / 4, complete % 4);
        let first = segments.saturating_sub(6);
        let mut text = format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PART-INF:PART-TARGET=0.5\n\
             #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.5,CAN-SKIP-UNTIL=12\n\
             #EXT-X-MEDIA-SEQUENCE:{first}\n"
        );
        let second_from = self.second_from.map(|part| part / 4);
        let is_second = second_from.is_some_and(|second| second < first + skips);
        let section = if is_second { "second" } else { "init" };
        text += &format!("#EXT-X-MAP:URI=\"{section}.mp4\"\n");
        if skips > 0 {
            text += &format!("#EXT-X-SKIP:SKIPPED-SEGMENTS={skips}\n");
        }
        for segment in first + skips..=segments {
            if second_from == Some(segment) {
                text += "#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"second.mp4\"\n";
            }
            let date = 1_700_000_000 - COMPLETE * PART / 1000 + 2 * segment;
            let (hour, minute, second) = (date / 3600 % 24, date / 60 % 60, date % 60);
            text += &format!(
                "#EXT-X-PROGRAM-DATE-TIME:2023-11-14T{hour:02}:{minute:02}:{second:02}Z\n"
            );
            let listed = match segment {
                _ if segment == segments => parts,
                _ if segment + 3 > segments => 4,
                _ => 0,
            };
            for part in 0..listed {
                let independent = if part == 0 { ",INDEPENDENT=YES" } else { "" };
                let number = 4 * segment + part;
                text += &format!("#EXT-X-PART:DURATION=0.5,URI=\"{number}.part\"{independent}\n");
            }
            if segment < segments {
                text += &format!("#EXTINF:2.0,\n{segment}.mp4\n");
            }
        }
        let name = if self.hints_are_wrong {
            "wrong"
        } else {
            "part"
        };
        let is_near = |part| complete <= part && part <= complete + self.second_ahead;
        if self.second_from.is_some_and(is_near) {
            let section = match self.hints_at_third {
                true => "third",
                false => "second",
            };
            text += &format!("#EXT-X-PRELOAD-HINT:TYPE=MAP,URI=\"{section}.mp4\"\n");
        }
        text += &format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{complete}.{name}\"\n");
        text
    }

    pub(super) fn answer(&self, path: &str, now: Time) -> Option<Answer> {
        let (file, query) = path.split_once('?').unwrap_or((path, ""));
        let name = file.trim_start_matches("/a/");
        let (stem, kind) = name.split_once('.').expect("names have a suffix");
        let number: u64 = stem.parse().unwrap_or_default();
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        let ready_at = match kind {
            "m3u8" if self.never_waits => now,
            "m3u8" => {
                let parse = |key| value(key).map(|value| value.parse::<u64>().expect("a number"));
                match (parse("_HLS_msn"), parse("_HLS_part")) {
                    (Some(msn), Some(part)) => Self::complete_at(4 * msn + part),
                    (Some(msn), None) => Self::complete_at(4 * msn + 3),
                    (None, _) => now,
                }
            }
            "mp4" if stem == "second" => self.second_at,
            "mp4" => now,
            _ => Self::complete_at(number),
        };
        let ready_at = ready_at.max(now);
        if self.refuses_hints && ready_at > now && (kind == "part" || stem == "second") {
            return Some(Answer::new("404 Not Found", ""));
        }
        let mut complete = COMPLETE + ready_at.since(Time::ZERO).as_millis() as u64 / PART;
        if let Some(end) = self.stops_after {
            if ready_at > Self::complete_at(end - 1) {
                return None;
            }
            complete = complete.min(end);
        }
        let skips = match value("_HLS_skip") {
            Some("YES") => self.skips,
            _ => 0,
        };
        let body = match kind {
            "m3u8" => self.playlist(complete, skips).into_bytes(),
            "mp4" => [b"\0\0\0\x08styp".as_slice(), &[0; 792]].concat(),
            _ => [b"\0\0\0\x08moof\0\0\0\0mdat".as_slice(), &[0; 184]].concat(),
        };
        let wait = ready_at.since(now) + Duration::from_millis(20);
        Some(Answer::ok(body).in_time(wait.as_millis() as u64))
    }

    fn world(self, config: ClientConfig) -> World<impl FnMut(&str, Time) -> Option<Answer>> {
        World::new(config, move |path, now| self.answer(path, now))
    }
}

fn with(low_latency: LowLatency) -> ClientConfig {
    ClientConfig {
        low_latency,
        ..config()
    }
}

#[test]
fn player_of_parts_is_near_the_live_edge() {
    for low_latency in [LowLatency::Hints, LowLatency::Parts] {
        let mut world = Origin::default().world(with(low_latency));
        world.run(at(10_100));
        assert_eq!(world.stop(), Outcome::Stopped);
        // Playback begins with part 36, the first of a segment, 2 s from the end. Then parts 40 to
        // 59 are complete, the last one at 10 s.
        let parts = world
            .paths()
            .into_iter()
            .filter(|path| path.ends_with(".part"));
        let requested: Vec<&str> = parts.collect();
        let expected: Vec<String> = (36..=60)
            .map(|number| format!("/a/{number}.part"))
            .collect();
        let (hinted, end) = match low_latency {
            LowLatency::Hints => (20, 25),
            _ => (0, 24),
        };
        assert_eq!(requested, expected[..end]);
        assert_eq!(world.count(m::PARTS), 24);
        assert_eq!(world.count(m::SEGMENTS), 24);
        assert_eq!(world.count(m::SEGMENTS_DUE), 24);
        assert_eq!(world.count(m::HINTS_USED), hinted);
        assert_eq!(world.count(m::HINTS_WASTED), 0);
        assert_eq!(world.count(m::BYTES_WASTED), 0);
        assert_eq!(world.count(m::STALLS), 0);
        assert_eq!(world.count(m::SEGMENTS_LATE), 0);
        // One reload for each part, and each is answered 20 ms after the part is complete.
        assert_eq!(world.count(m::RELOADS), 20);
        assert_eq!(world.count(m::PLAYLISTS), 21);
        assert_eq!(world.count(m::RELOADS_LATE), 0);
        assert_eq!(world.count(m::RELOADS_SHORT), 0);
        assert_eq!(world.recorded(m::RELOAD_DELAY), (20, 500));
        assert_eq!(world.recorded(m::PLAYLIST_DELAY), (1, 21));
        // Requests that wait do not count: 1 ms for a connection, and half of 20.
        assert_eq!(world.recorded(m::RESPONSE_DELAY).1, 10);
        assert_eq!(world.recorded(m::HINT_DELAY).0, hinted);
        assert_eq!(world.recorded(m::PART_DELAY).0, 24 - hinted);
        // The initialization section and two parts take 20 ms each, after 21 for the playlist and 1
        // for the second connection. The first part is independent, and is not shown: it begins 2 s
        // from the end, and playback 1.5 s.
        assert_eq!(world.recorded(m::PLAYBACK_DELAY), (1, 82));
        assert_eq!(world.recorded(m::LIVE_LATENCY), (23, 1582));
        // Playback began 82 ms after the start; each part is in the playlist 20 ms after it is
        // complete, and 500 ms after the one before.
        let (count, max) = world.recorded(m::LIVE_DISTANCE);
        assert_eq!((count, max), (20, 1562));
    }
}

#[test]
fn player_of_segments_waits_for_nothing() {
    let mut world = Origin::default().world(with(LowLatency::None));
    world.run(at(10_000));
    world.stop();
    assert!(world.paths().iter().all(|path| !path.contains("_HLS_")));
    assert_eq!(world.count(m::PARTS), 0);
    assert_eq!(world.count(m::RELOADS), 0);
    assert!((6..=7).contains(&world.count(m::SEGMENTS)));
    assert!(world.recorded(m::LIVE_LATENCY).1 > 6000);
}

#[test]
fn server_that_does_not_wait_is_asked_once_for_each_part() {
    let origin = Origin {
        never_waits: true,
        ..Origin::default()
    };
    let mut world = origin.world(with(LowLatency::Parts));
    world.run(at(10_000));
    world.stop();
    let (reloads, short) = (world.count(m::RELOADS), world.count(m::RELOADS_SHORT));
    assert!((20..=40).contains(&reloads), "{reloads}");
    assert!(short >= reloads / 2, "{short} of {reloads}");
    assert_eq!(world.count(m::STALLS), 0);
    assert!(world.count(m::PARTS) >= 22);
}

#[test]
fn updates_leave_out_segments_that_the_player_has() {
    let origin = Origin {
        skips: 2,
        ..Origin::default()
    };
    let mut world = origin.world(config());
    world.run(at(10_100));
    world.stop();
    assert_eq!(world.count(m::PARTS), 24);
    assert_eq!(world.count(m::PLAYLISTS_DELTA), 20);
    assert_eq!(world.count(m::PLAYLISTS_UNUSABLE), 0);
    assert!(
        world
            .paths()
            .contains(&"/a/index.m3u8?_HLS_msn=10&_HLS_part=0&_HLS_skip=YES")
    );
}

#[test]
fn update_that_leaves_out_too_much_is_followed_by_a_whole_playlist() {
    // Each answer leaves out six segments; a segment after the next update one of them is unknown.
    let mut latest = 0;
    let origin = Origin {
        skips: 6,
        ..Origin::default()
    };
    let mut world = World::new(config(), move |path, now| {
        let answer = origin.answer(path, now)?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        // The numbers of its updates are one too high.
        if text.contains("#EXT-X-SKIP") {
            latest += 1;
            let first = 40 / 4 - 6 + latest;
            let from = text.find("SEQUENCE:").expect("it has one") + 9;
            let end = from + text[from..].find('\n').expect("it ends");
            let text = format!("{}{}{}", &text[..from], 100 + first, &text[end..]);
            return Some(Answer {
                body: text.into_bytes(),
                ..answer
            });
        }
        Some(answer)
    });
    world.run(at(10_100));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert!(world.count(m::PLAYLISTS_UNUSABLE) >= 8);
    assert_eq!(world.count(m::PLAYLISTS_DELTA), 0);
    assert_eq!(world.count(m::STALLS), 0);
}

#[test]
fn hint_that_the_playlist_does_not_list_is_wasted() {
    let origin = Origin {
        hints_are_wrong: true,
        ..Origin::default()
    };
    let mut world = origin.world(config());
    world.run(at(10_200));
    world.stop();
    assert_eq!(world.count(m::HINTS_USED), 0);
    // Parts 40 to 59. The part of that name was complete with the playlist.
    assert_eq!(world.count(m::HINTS_WASTED), 20);
    let wasted = world.count(m::BYTES_WASTED);
    // The body has arrived with the playlist, or just after it.
    assert!(wasted.is_multiple_of(200) && wasted <= 20 * 200, "{wasted}");
    // Each part was requested as the playlist listed it.
    assert_eq!(world.count(m::PARTS), 24);
    assert_eq!(world.recorded(m::PART_DELAY).0, 24);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    assert_eq!(world.count(m::STALLS), 0);
}

#[test]
fn part_whose_hint_is_refused_is_requested_when_it_is_listed() {
    let origin = Origin {
        refuses_hints: true,
        ..Origin::default()
    };
    let mut world = origin.world(config());
    world.run(at(10_200));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::PARTS), 24);
    // Each hint was requested once.
    assert_eq!(world.count(m::HINTS_WASTED), 21);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    assert!(world.notes.iter().all(|kind| *kind == "hint_failed"));
    assert_eq!(world.notes.len(), 21);
}

/// Requests for initialization sections after the first, with the time of each; hints used, hints
/// wasted, and their bytes; notes.
type Sections = (Vec<(Time, String)>, [u64; 3], Vec<&'static str>);

/// Runs a player of a server whose parts from number 48 on have another initialization section.
fn run_with_sections(origin: Origin) -> Sections {
    let origin = Origin {
        second_from: Some(48),
        ..origin
    };
    let mut world = origin.world(config());
    world.run(at(10_100));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::PARTS), 24);
    assert_eq!(world.count(m::STALLS), 0);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    let sections = world.asked.iter();
    let sections = sections.filter(|asked| asked.path.ends_with(".mp4"));
    let mut sections: Vec<_> = sections.map(|own| (own.at, own.path.clone())).collect();
    assert_eq!(sections.remove(0).1, "/a/init.mp4");
    let counts = [m::HINTS_USED, m::HINTS_WASTED, m::BYTES_WASTED].map(|own| world.count(own));
    (sections, counts, world.notes)
}

#[test]
fn hinted_section_is_requested_before_it_is_needed() {
    // A segment before, or with the part that needs it; then it takes longer than the part before.
    let late = Origin::complete_at(47) + Duration::from_millis(300);
    for (second_ahead, second_at) in [(4, Time::ZERO), (0, Time::ZERO), (0, late)] {
        let (sections, counts, notes) = run_with_sections(Origin {
            second_ahead,
            second_at,
            ..Origin::default()
        });
        let asked: Vec<_> = sections.iter().map(|(_, path)| path.as_str()).collect();
        assert_eq!(asked, ["/a/second.mp4"]);
        let hinted_at = Origin::complete_at(47 - second_ahead);
        let asked_after = sections[0].0.since(hinted_at);
        assert!(asked_after <= Duration::from_millis(50), "{asked_after:?}");
        assert_eq!((counts, notes.as_slice()), ([21, 0, 0], &[][..]));
    }
}

#[test]
fn hinted_section_does_not_delay_the_parts_before() {
    // The answer comes two parts too late for part 44, which does not need the section.
    let (sections, counts, notes) = run_with_sections(Origin {
        second_ahead: 4,
        second_at: Origin::complete_at(46),
        ..Origin::default()
    });
    let asked: Vec<_> = sections.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(asked, ["/a/second.mp4", "/a/second.mp4"]);
    assert!(sections[1].0 > Origin::complete_at(48), "{sections:?}");
    // Part 44 was requested when it was listed.
    assert_eq!((counts, notes.as_slice()), ([19, 1, 0], &[][..]));
}

#[test]
fn hinted_section_that_arrives_is_waited_for() {
    // Part 44 is listed when the head of the response has arrived, and half of the time has passed.
    let (sections, counts, notes) = run_with_sections(Origin {
        second_ahead: 4,
        second_at: Origin::complete_at(43) + Duration::from_millis(700),
        ..Origin::default()
    });
    let asked: Vec<_> = sections.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(asked, ["/a/second.mp4"]);
    assert_eq!((counts, notes.as_slice()), ([20, 0, 0], &[][..]));
}

#[test]
fn held_part_that_cannot_be_played_is_wasted() {
    // Part 44 turns out to be encrypted when it is listed: with a key that is missing, or does not
    // fit.
    for key in [Answer::new("404 Not Found", ""), Answer::ok([1; 16])] {
        let origin = Origin::default();
        let mut world = World::new(config(), move |path, now| {
            if path == "/a/key" {
                return Some(key.clone());
            }
            let answer = origin.answer(path, now)?;
            if !path.contains(".m3u8") {
                return Some(answer);
            }
            let line = "#EXT-X-PART:DURATION=0.5,URI=\"44.part\",INDEPENDENT=YES\n";
            let encrypted =
                format!("#EXT-X-KEY:METHOD=AES-128,URI=\"key\"\n{line}#EXT-X-KEY:METHOD=NONE\n");
            let text = String::from_utf8_lossy(&answer.body).replace(line, &encrypted);
            let body = text.into_bytes();
            Some(Answer { body, ..answer })
        });
        world.run(at(10_100));
        assert_eq!(world.stop(), Outcome::Stopped);
        let counts = [
            m::PARTS,
            m::SEGMENTS_FAILED,
            m::HINTS_USED,
            m::HINTS_WASTED,
            m::BYTES_WASTED,
        ];
        let counts = counts.map(|counter| world.count(counter));
        assert_eq!(counts, [23, 1, 19, 1, 200]);
        assert_eq!(world.notes, ["segment_failed"]);
    }
}

#[test]
fn hint_that_cannot_be_requested_is_not_wasted() {
    let origin = Origin::default();
    let mut world = World::new(config(), move |path, now| {
        let answer = origin.answer(path, now)?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let text = text.replace("TYPE=PART,URI=\"", "TYPE=PART,URI=\"https://10.9.9.9/");
        let body = match path.contains(".m3u8") {
            true => text.into_bytes(),
            false => answer.body,
        };
        Some(Answer { body, ..answer })
    });
    world.run(at(10_200));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::PARTS), 24);
    let wasted = [m::HINTS_WASTED, m::BYTES_WASTED].map(|own| world.count(own));
    assert_eq!(wasted, [0, 0]);
    assert_eq!(world.notes, vec!["hint_failed"; 21]);
}

#[test]
fn hinted_section_that_is_not_listed_is_wasted() {
    let (sections, counts, notes) = run_with_sections(Origin {
        second_ahead: 4,
        hints_at_third: true,
        ..Origin::default()
    });
    let asked: Vec<_> = sections.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(asked, ["/a/third.mp4", "/a/second.mp4"]);
    // The section is requested when the first part that needs it is listed, while that is held.
    assert!(sections[1].0 > Origin::complete_at(48), "{sections:?}");
    assert_eq!((counts, notes.as_slice()), ([20, 1, 800], &[][..]));
}

#[test]
fn section_whose_hint_is_refused_is_requested_when_it_is_listed() {
    let (sections, counts, notes) = run_with_sections(Origin {
        refuses_hints: true,
        second_ahead: 4,
        second_at: Origin::complete_at(46),
        ..Origin::default()
    });
    let asked: Vec<_> = sections.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(asked, ["/a/second.mp4", "/a/second.mp4"]);
    assert!(sections[0].0 < Origin::complete_at(44), "{sections:?}");
    assert!(sections[1].0 > Origin::complete_at(48), "{sections:?}");
    // So are the hints at parts.
    assert_eq!(counts[..2], [0, 1 + 21]);
    assert_eq!(notes, vec!["hint_failed"; 22]);
}

#[test]
fn player_that_falls_behind_goes_on_with_whole_segments() {
    // From 2 to 14 s each part takes 3 s, so that the playlist ceases to list the parts.
    let origin = Origin::default();
    let mut world = World::new(with(LowLatency::Parts), move |path, now| {
        let answer = origin.answer(path, now)?;
        let is_slow = path.ends_with(".part") && now > at(2000) && now < at(14_000);
        Some(match is_slow {
            true => answer.in_time(3000),
            false => answer,
        })
    });
    world.run(at(30_000));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert!(world.paths().iter().any(|path| path.ends_with("2.mp4")));
    // Some parts of the first such segment had arrived before.
    let wasted = world.count(m::BYTES_WASTED);
    assert!(
        (200..=600).contains(&wasted) && wasted.is_multiple_of(200),
        "{wasted}"
    );
    assert!(world.count(m::STALLS) > 0);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    // No media is played twice: the received media covers the time from 2 s before the start,
    // without what is still to come.
    let received = world.client.tracks[0].end;
    let live = Duration::from_secs(30 + 2);
    assert!(
        received <= live && received + Duration::from_secs(1) >= live,
        "{received:?}"
    );
}

#[test]
fn server_that_stops_answering_has_three_target_durations() {
    let origin = Origin {
        stops_after: Some(COMPLETE + 4),
        ..Origin::default()
    };
    let config = ClientConfig {
        request_timeout: TimeSpan(Duration::from_secs(1)),
        ..config()
    };
    let mut world = origin.world(config);
    world.run(at(60_000));
    let (reason, detail) = world.failed();
    assert_eq!(reason, "timeout_response");
    assert!(detail.contains("no answer within 6s"), "{detail}");
}

#[test]
fn failures_that_are_not_in_a_row_do_not_end_the_client() {
    // Each tenth part is missing, hinted or not. The others are held before they are listed.
    let origin = Origin::default();
    let mut world = World::new(config(), move |path, now| {
        let answer = origin.answer(path, now)?;
        Some(match path.ends_with("5.part") {
            true => Answer::new("404 Not Found", ""),
            false => answer,
        })
    });
    world.run(at(40_100));
    assert_eq!(world.stop(), Outcome::Stopped);
    // Parts 45, 55 and so on to 115 are missing; the run covers parts 36 to 119.
    assert_eq!(world.count(m::SEGMENTS_FAILED), 8);
    assert_eq!(world.count(m::HINTS_WASTED), 8);
    assert_eq!(world.count(m::PARTS), 84 - 8);
    assert_eq!(world.count(m::SEGMENTS_DUE), 84);
}

#[test]
fn hint_that_the_last_playlist_does_not_list_is_given_up() {
    // The playlist ends after 44 parts, and the server never answers the hint at part 44.
    let origin = Origin::default();
    let mut world = World::new(config(), move |path, now| {
        if path.ends_with("/44.part") {
            return None;
        }
        let answer = origin.answer(path, now)?;
        if !path.contains(".m3u8") {
            return Some(answer);
        }
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let Some((before, _)) = text.split_once("#EXT-X-PART:DURATION=0.5,URI=\"44.part\"") else {
            return Some(answer);
        };
        let body = format!("{before}#EXT-X-ENDLIST\n").into_bytes();
        Some(Answer { body, ..answer })
    });
    world.run(at(60_000));
    let outcome = world.outcome.clone().expect("it has ended");
    assert!(
        matches!(outcome, Outcome::EndedByServer { .. }),
        "{outcome:?}"
    );
    assert_eq!(world.count(m::HINTS_WASTED), 1);
    assert_eq!(world.count(m::PARTS), 8);
    assert_eq!(world.count(m::STALLS), 0);
    // Four seconds of media. The first half second is not shown, and the rest from 82 ms after the
    // start.
    assert_eq!(world.now, at(3582));
}

#[test]
fn older_playlists_of_a_cache_are_neither_hints_nor_hurry() {
    // Every second answer comes from a cache that is two parts behind.
    let origin = Origin::default();
    let mut count = 0;
    let mut world = World::new(config(), move |path, now| {
        if !path.contains(".m3u8") {
            return origin.answer(path, now);
        }
        count += 1;
        if count % 2 == 1 {
            return origin.answer(path, now);
        }
        let complete = COMPLETE + now.since(Time::ZERO).as_millis() as u64 / PART;
        Some(Answer::ok(origin.playlist(complete - 2, 0)))
    });
    world.run(at(10_100));
    assert_eq!(world.stop(), Outcome::Stopped);
    // No part is requested twice, and a request that was answered too early is followed by a pause.
    let mut parts: Vec<&str> = world.paths();
    parts.retain(|path| path.ends_with(".part"));
    let requested = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts.len(), requested);
    assert_eq!(world.count(m::HINTS_WASTED), 0);
    // No request asks for what an older playlist lacked.
    let directive = |path: &str, name: &str| -> Option<u64> {
        let (_, after) = path.split_once(name)?;
        let digits = after.split('&').next()?;
        digits.parse().ok()
    };
    let awaited: Vec<(u64, u64)> = world
        .paths()
        .iter()
        .filter_map(|path| {
            Some((
                directive(path, "_HLS_msn=")?,
                directive(path, "_HLS_part=")?,
            ))
        })
        .collect();
    assert!(awaited.is_sorted(), "{awaited:?}");
    assert!(world.count(m::RELOADS) < 45, "{}", world.count(m::RELOADS));
    assert!(world.count(m::RELOADS_SHORT) > 10);
    assert_eq!(world.count(m::STALLS), 0);
}

/// A server whose segments have a new initialization section from number 11 on, and keys from 12
/// on.
fn changing(path: &str, now: Time, key: &'static [u8]) -> Option<Answer> {
    let origin = Origin::default();
    if path.ends_with(".key") {
        return Some(Answer::ok(key));
    }
    let answer = origin.answer(path, now)?;
    if !path.contains(".m3u8") {
        let name = path.trim_start_matches("/a/").split('.').next();
        let number: u64 = name.and_then(|name| name.parse().ok()).unwrap_or_default();
        let is_encrypted = path.ends_with(".part") && number >= 48;
        let first = Answer::ok(encrypted::segment([1; 16], u128::from(number / 4)));
        return Some(match is_encrypted {
            true => Answer {
                body: first.body,
                ..answer
            },
            false => answer,
        });
    }
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.contains("URI=\"44.part\"") {
            lines.push("#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"other.mp4\"");
        }
        if line.contains("URI=\"48.part\"") && line.starts_with("#EXT-X-PART") {
            lines.push("#EXT-X-KEY:METHOD=AES-128,URI=\"a.key\"");
        }
        lines.push(line);
    }
    let body = lines.join("\n").into_bytes();
    Some(Answer { body, ..answer })
}

#[test]
fn hinted_parts_have_their_sections_and_keys() {
    let mut world = World::new(config(), |path, now| changing(path, now, &[1; 16]));
    world.run(at(7100));
    assert_eq!(world.stop(), Outcome::Stopped);
    // Parts 36 to 53.
    assert_eq!(world.count(m::PARTS), 18);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    assert_eq!(world.count(m::KEYS), 1);
    assert_eq!(world.count(m::HINTS_WASTED), 0);
    let asked = |name: &str| {
        world
            .paths()
            .iter()
            .filter(|path| path.ends_with(name))
            .count()
    };
    assert_eq!(
        [asked("init.mp4"), asked("other.mp4"), asked("a.key")],
        [1, 1, 1]
    );
    // With a wrong key, no part after it can be played.
    let mut world = World::new(config(), |path, now| changing(path, now, &[2; 16]));
    world.run(at(60_000));
    let (reason, detail) = world.failed();
    assert_eq!(reason, "not_media");
    assert!(detail.contains("with its key"), "{detail}");
    assert_eq!(world.count(m::PARTS), 12);
}

#[test]
fn section_that_fails_once_costs_a_player_of_segments_one_segment() {
    let mut failed = 0;
    let mut world = World::new(with(LowLatency::None), move |path, now| {
        if path.ends_with("other.mp4") && failed == 0 {
            failed += 1;
            return Some(Answer::new("404 Not Found", ""));
        }
        // Without keys.
        let answer = changing(path, now, &[1; 16])?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        match path.contains(".m3u8") {
            true => {
                let body = text.replace("#EXT-X-KEY", "#EXT-X-NONE").into_bytes();
                Some(Answer { body, ..answer })
            }
            false => Some(answer),
        }
    });
    world.run(at(16_100));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 1);
    assert_eq!(
        world.count(m::SEGMENTS_DUE),
        world.count(m::SEGMENTS) + 1,
        "{:?}",
        world.paths()
    );
    // Segment 11 needed the section.
    assert!(!world.paths().contains(&"/a/11.mp4"));
    assert!(world.paths().contains(&"/a/12.mp4"));
}

#[test]
fn rest_of_a_segment_adds_only_what_was_not_played() {
    // Playback begins with the third of four parts. Then the playlist has no parts any more.
    let head = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PART-INF:PART-TARGET=0.5\n\
        #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.6\n#EXT-X-MEDIA-SEQUENCE:9\n";
    let parts: String = (0..4)
        .map(|part| {
            let independent = if part % 2 == 0 {
                ",INDEPENDENT=YES"
            } else {
                ""
            };
            format!("#EXT-X-PART:DURATION=0.5,URI=\"9.{part}\"{independent}\n")
        })
        .collect();
    let segment = |number: u64| format!("#EXTINF:2,\n{number}.mp4\n");
    let first = format!("{head}{parts}{}", segment(9));
    let later: String = (9..13).map(segment).collect();
    let later = format!("{head}{later}#EXT-X-ENDLIST\n");
    let mut world = World::new(config(), move |path, _| {
        let media = [b"\0\0\0\x08moof\0\0\0\0mdat".as_slice(), &[0; 184]].concat();
        Some(match path {
            "/a/index.m3u8" => Answer::ok(first.clone()),
            _ if path.contains("_HLS_msn") => Answer::ok(later.clone()).in_time(300),
            "/a/9.2" => Answer::ok(media).in_time(700),
            _ => Answer::ok(media),
        })
    });
    world.run(at(60_000));
    assert!(matches!(world.outcome, Some(Outcome::EndedByServer { .. })));
    let mut requested = world.paths();
    requested.retain(|path| !path.contains("m3u8"));
    assert_eq!(
        requested,
        ["/a/9.2", "/a/9.mp4", "/a/10.mp4", "/a/11.mp4", "/a/12.mp4"]
    );
    // One second of segment 9, and three segments.
    assert_eq!(world.client.tracks[0].end, Duration::from_secs(7));
    assert_eq!(world.count(m::BYTES_WASTED), 200);
}

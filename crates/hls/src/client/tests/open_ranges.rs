//! Hints at the rest of a resource: parts of a segment that arrive in one response.

use super::*;

/// Duration of a part in milliseconds. Four make a segment.
const PART: u64 = 500;

/// Number of bytes of a part.
const LENGTH: usize = 200;

/// Number of parts that were complete when the run began.
const COMPLETE: u64 = 40;

/// Time from when a part is complete to its arrival in milliseconds.
const WAY: u64 = 20;

/// A server whose segments are resources that grow by a part every 500 ms.
#[derive(Clone, Copy, Default)]
struct Origin {
    /// Time by which playlists are late, in milliseconds.
    playlists_late: u64,
    /// Each answer to a request for the rest of a resource ends with its first part.
    ends_early: bool,
    /// The end of each answer arrives 10 ms after its last byte.
    ends_late: bool,
    fault: Option<Fault>,
    /// Segment 12 and later ones have another initialization section, and the playlist hints at it.
    changes_section: bool,
    /// All segments are in one resource, which grows without an end.
    is_one_resource: bool,
    /// The first half of each part arrives 400 ms before the second one.
    is_slow: bool,
}

/// Fault of each answer to a request for the rest of a resource.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The whole resource instead of its rest. If all of it was requested, only its first part.
    IgnoresRange,
    /// Another range, according to its head.
    OtherRange,
    /// No bytes.
    Empty,
    /// The second part is cut off in its middle, and the response ends.
    Short,
    /// The connection is lost there.
    CutOff,
    /// The second part is no media.
    NoMedia,
    /// More bytes than are kept.
    Endless,
    /// Bytes after the last part.
    Further,
    /// The same, many of them, and the head states the length of the body.
    StatedLength,
    /// The body does not end after the last part.
    DoesNotEnd,
}

fn part() -> Vec<u8> {
    [b"\0\0\0\x08moof\0\0\0\0mdat".as_slice(), &[0; LENGTH - 16]].concat()
}

fn complete_at(number: u64) -> Time {
    at((number + 1).saturating_sub(COMPLETE) * PART)
}

fn playlist_of(complete: u64, changes_section: bool, is_one_resource: bool) -> String {
    // URI of the resource of a segment, and number of the part at its beginning.
    let resource = |segment: u64| match is_one_resource {
        true => ("0.mp4".to_owned(), 0),
        false => (format!("{segment}.mp4"), 4 * segment),
    };
    let offset = |number: u64, segment| (number - resource(segment).1) * LENGTH as u64;
    let segments = complete / 4;
    let first = segments - 6;
    let mut text = format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PART-INF:PART-TARGET=0.5\n\
         #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.5\n\
         #EXT-X-MEDIA-SEQUENCE:{first}\n"
    );
    for segment in first..=segments {
        let parts = (complete - 4 * segment).min(4);
        let (uri, _) = resource(segment);
        if changes_section {
            let section = if segment < 12 { "first" } else { "second" };
            text += &format!("#EXT-X-MAP:URI=\"{section}.mp4\"\n");
        }
        if segment + 3 > segments {
            for part in 0..parts {
                let offset = offset(4 * segment + part, segment);
                text += &format!(
                    "#EXT-X-PART:DURATION=0.5,URI=\"{uri}\",\
                     BYTERANGE=\"{LENGTH}@{offset}\"\n"
                );
            }
        }
        if segment < segments {
            text += &format!("#EXTINF:2.0,\n{uri}\n");
        }
    }
    let start = match offset(complete, segments) {
        0 => String::new(),
        offset => format!(",BYTERANGE-START={offset}"),
    };
    let (uri, _) = resource(segments);
    if changes_section && complete == 4 * 12 {
        text += "#EXT-X-PRELOAD-HINT:TYPE=MAP,URI=\"second.mp4\"\n";
    }
    text + &format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{uri}\"{start}\n")
}

impl Origin {
    fn answer(self, resource: &str, now: Time) -> Option<Answer> {
        let name = resource.trim_start_matches("/a/");
        if let Some((segment, range)) = name.split_once(".mp4#bytes=") {
            let segment: u64 = segment.parse().expect("a number");
            let (first, last) = range.split_once('-').expect("a range");
            let first: usize = first.parse().expect("a number");
            let (offset, skipped) = (first / LENGTH, first % LENGTH);
            assert_eq!(skipped, 0, "parts begin there");
            if last.is_empty() {
                return Some(self.rest(segment, offset as u64, now));
            }
            return Some(Answer::new("206 Partial Content", part()));
        }
        if name == "first.mp4" || name == "second.mp4" {
            return Some(Answer::ok(b"\0\0\0\x08styp".as_slice()));
        }
        let (_, query) = name.split_once('?').unwrap_or((name, ""));
        let number = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.find(|(name, _)| *name == key)?.1;
            value.parse::<u64>().ok()
        };
        let awaited = number("_HLS_msn").zip(number("_HLS_part"));
        let ready = awaited.map_or(now, |(segment, part)| complete_at(4 * segment + part));
        let ready = ready.max(now);
        let complete = COMPLETE + ready.since(Time::ZERO).as_millis() as u64 / PART;
        let takes = ready.since(now).as_millis() as u64 + WAY + self.playlists_late;
        let text = playlist_of(complete, self.changes_section, self.is_one_resource);
        Some(Answer::ok(text).in_time(takes))
    }

    /// Answers a request for the parts of a segment from `first` on.
    fn rest(self, segment: u64, first: u64, now: Time) -> Answer {
        let ignores_range = self.fault == Some(Fault::IgnoresRange);
        if ignores_range && first > 0 {
            return Answer::ok([part(), part(), part(), part()].concat());
        }
        let is_empty = self.fault == Some(Fault::Empty);
        let last = match self.ends_early || ignores_range || is_empty {
            true => first,
            false if self.is_one_resource => first + 40,
            false => 3,
        };
        let has_length = self.fault == Some(Fault::StatedLength);
        let coding = if has_length {
            ""
        } else {
            "\r\nTransfer-Encoding: chunked"
        };
        let mut answer = Answer::new(&format!("206 Partial Content{coding}"), "");
        if self.fault == Some(Fault::OtherRange) {
            answer.head += "\r\nContent-Range: bytes 7-9/*";
        }
        answer.has_length = has_length;
        let chunk = |bytes: &[u8]| match has_length {
            true => bytes.to_vec(),
            false => [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
        };
        for number in first..=last {
            let mut bytes = part();
            let is_second = number == first + 1;
            match self.fault {
                Some(Fault::Short | Fault::CutOff) if is_second => bytes.truncate(LENGTH / 2),
                Some(Fault::NoMedia) if is_second => bytes.fill(b'?'),
                Some(Fault::Endless) if is_second => bytes = vec![0; 5 << 20],
                Some(Fault::Further) if number == 3 => bytes.extend([0; 7]),
                Some(Fault::StatedLength) if number == 3 => bytes.extend([0; 20_000]),
                Some(Fault::Empty) => bytes.clear(),
                _ => {}
            }
            let begin = answer.body.len();
            if !bytes.is_empty() {
                answer.body.extend(chunk(&bytes));
            }
            let ready = complete_at(4 * segment + number).max(now);
            answer.takes = ready.since(now) + Duration::from_millis(WAY);
            if self.is_slow {
                let earlier = Duration::from_millis(400);
                answer.cuts.push(begin + LENGTH / 2);
                answer.arrivals.push(answer.takes.saturating_sub(earlier));
            }
            if number < last {
                answer.cuts.push(answer.body.len());
            }
            answer.arrivals.push(answer.takes);
            if is_second && self.fault == Some(Fault::Short) {
                break;
            }
            if is_second && self.fault == Some(Fault::CutOff) {
                answer.closes = true;
                return answer;
            }
        }
        if self.ends_late {
            answer.cuts.push(answer.body.len());
            answer.takes += Duration::from_millis(10);
            answer.arrivals.push(answer.takes);
        }
        if self.fault != Some(Fault::DoesNotEnd) && !has_length {
            answer.body.extend(b"0\r\n\r\n");
        }
        answer
    }

    /// Runs a player for 20 parts of 500 ms.
    fn run(self) -> Seen {
        // Shorter than the parts of a segment take.
        let config = ClientConfig {
            body_timeout: TimeSpan(Duration::from_secs(1)),
            ..config()
        };
        let mut world = World::new(config, move |path, now| self.answer(path, now));
        world.serves_ranges = true;
        world.run(at(10_150 + self.playlists_late));
        assert_eq!(world.stop(), Outcome::Stopped);
        // Each part is wanted as soon as it arrives.
        assert!(world.expected.is_empty(), "{:?}", world.expected);
        let rests = world.asked.iter().filter_map(|asked| {
            let range = asked.head.split("Range: bytes=").nth(1)?;
            let first = range.split("\r\n").next()?.strip_suffix('-')?;
            Some(format!("{} {first}", asked.path))
        });
        Seen {
            rests: rests.collect(),
            parts: world.count(m::PARTS),
            stalls: world.count(m::STALLS),
            failed: world.count(m::SEGMENTS_FAILED),
            used: world.count(m::HINTS_USED),
            wasted: (world.count(m::HINTS_WASTED), world.count(m::BYTES_WASTED)),
            listed: world.recorded(m::PART_DELAY).0,
            hint_delay: world.recorded(m::HINT_DELAY),
            damaged_or_late: world.count(m::SEGMENTS_DAMAGED) + world.count(m::SEGMENTS_LATE),
            notes: world.note_texts,
        }
    }
}

/// Requests and figures of a player.
#[derive(Debug)]
struct Seen {
    /// Requests for the rest of a resource: path and first byte.
    rests: Vec<String>,
    parts: u64,
    stalls: u64,
    failed: u64,
    /// Parts that had arrived by hints.
    used: u64,
    /// Hints that were of no use, and their bytes.
    wasted: (u64, u64),
    /// Parts that were requested when the playlist listed them.
    listed: u64,
    hint_delay: (u64, u64),
    damaged_or_late: u64,
    notes: Vec<String>,
}

#[test]
fn parts_of_a_segment_arrive_in_one_response() {
    for (playlists_late, ends_late) in [(0, false), (0, true), (300, false)] {
        let seen = Origin {
            playlists_late,
            ends_late,
            ..Origin::default()
        }
        .run();
        // The hint of the first playlist, and one for each segment.
        let rests: Vec<String> = (10..=15)
            .map(|number| format!("/a/{number}.mp4 0"))
            .collect();
        assert_eq!(seen.rests, rests);
        assert_eq!((seen.parts, seen.used, seen.wasted), (24, 20, (0, 0)));
        assert_eq!((seen.stalls, seen.failed, seen.damaged_or_late), (0, 0, 0));
        // The first part of each response, from its request on.
        let longest = 500 - playlists_late - if ends_late { 10 } else { 0 };
        assert_eq!(seen.hint_delay, (5, longest));
        assert_eq!(seen.listed, 4);
        assert!(seen.notes.is_empty(), "{:?}", seen.notes);
    }
}

#[test]
fn hinted_section_is_used_while_the_rest_of_a_segment_arrives() {
    let seen = Origin {
        changes_section: true,
        ..Origin::default()
    }
    .run();
    // The section is requested when both are hinted at, and counts as a hint.
    assert_eq!((seen.parts, seen.used, seen.wasted), (24, 21, (0, 0)));
    assert_eq!(seen.rests.len(), 6, "{:?}", seen.rests);
}

#[test]
fn response_may_last_as_long_as_its_parts_arrive() {
    let seen = Origin {
        is_one_resource: true,
        ..Origin::default()
    }
    .run();
    // The time limit of a body is 1 s here.
    assert_eq!(seen.rests, ["/a/0.mp4 8000"]);
    assert_eq!((seen.parts, seen.used, seen.wasted), (24, 20, (0, 0)));
}

#[test]
fn change_of_the_variant_wastes_no_used_response() {
    let config = ClientConfig {
        variant: VariantChoice::Adaptive,
        ..config()
    };
    let origin = Origin {
        is_slow: true,
        ..Origin::default()
    };
    // 200 bytes in 400 ms are 4 kbit/s.
    let mut world = World::new(config, move |path, now| {
        if path == "/a/index.m3u8" {
            return Some(Answer::ok(
                "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nlow/live.m3u8\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=10000\nhigh/live.m3u8\n",
            ));
        }
        origin.answer(&path.replace("low/", "").replace("high/", ""), now)
    });
    world.serves_ranges = true;
    world.run(at(20_150));
    assert_eq!(world.stop(), Outcome::Stopped);
    assert!(world.count(m::SWITCHES) > 0, "{:?}", world.paths());
    assert!(world.count(m::HINTS_USED) > 8);
    assert_eq!(world.count(m::HINTS_WASTED), 0);
    assert_eq!(world.count(m::BYTES_WASTED), 0);
}

#[test]
fn response_that_ends_early_is_followed_by_another_request() {
    let seen = Origin {
        ends_early: true,
        ..Origin::default()
    }
    .run();
    assert_eq!(seen.rests.len(), 21);
    assert_eq!((seen.parts, seen.used, seen.wasted), (24, 20, (0, 0)));
}

#[test]
fn parts_that_a_response_lacks_are_requested_when_they_are_listed() {
    // Hints used, hints wasted with their bytes, notes. Each segment is requested from its
    // beginning, and again from its third part if the second one is at fault.
    for (fault, used, wasted, notes) in [
        (Fault::Short, 10, (0, 1000), 0),
        (Fault::CutOff, 10, (0, 1000), 10),
        (Fault::IgnoresRange, 5, (15, 0), 15),
        (Fault::Empty, 0, (20, 0), 20),
        (Fault::Endless, 10, (0, 10 * (5 << 20)), 10),
        (Fault::OtherRange, 0, (20, 0), 20),
        // The first part of the next segment is listed while the response goes on.
        (Fault::DoesNotEnd, 16, (0, 0), 0),
        (Fault::Further, 16, (0, 28), 0),
        (Fault::StatedLength, 16, (0, 4 * 20_000), 0),
    ] {
        let seen = Origin {
            fault: Some(fault),
            ..Origin::default()
        }
        .run();
        assert_eq!(
            (seen.parts, seen.stalls, seen.failed),
            (24, 0, 0),
            "{seen:?}"
        );
        assert_eq!((seen.used, seen.wasted), (used, wasted), "{seen:?}");
        assert_eq!(seen.listed, 24 - used, "{seen:?}");
        assert_eq!(seen.notes.len(), notes, "{seen:?}");
    }
}

#[test]
fn part_that_is_no_media_is_missing() {
    let seen = Origin {
        fault: Some(Fault::NoMedia),
        ..Origin::default()
    }
    .run();
    // The second part of each response, of which there are two for each segment.
    assert_eq!((seen.parts, seen.failed, seen.used), (14, 10, 10));
    assert_eq!(seen.wasted, (0, 10 * LENGTH as u64));
}

//! Tests of the parser of playlists.

use proptest::prelude::*;

use super::*;

fn place(sequence: u64, part: u32) -> Place {
    Place { sequence, part }
}

fn media(text: &str) -> MediaPlaylist {
    match Playlist::parse(text.as_bytes(), None) {
        Ok(Playlist::Media(playlist)) => *playlist,
        other => panic!("{other:?}"),
    }
}

#[test]
fn live_playlist_of_ffmpeg_is_read() {
    let playlist = media(
        "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n\
         #EXTINF:2.000000,\n#EXT-X-PROGRAM-DATE-TIME:2026-11-29T06:44:13.522+0000\nindex7.ts\n\
         #EXTINF:1.920000,\nindex8.ts\n",
    );
    assert_eq!(playlist.target_duration, Duration::from_secs(2));
    assert_eq!((playlist.media_sequence, playlist.end_sequence()), (7, 9));
    assert!(!playlist.is_ended);
    let second = playlist.segment(8).expect("it is there");
    assert_eq!(second.duration, Duration::from_millis(1920));
    assert_eq!(&*second.uri, "index8.ts");
    // The date of the first one, and its duration.
    assert_eq!(second.date, Some(Duration::from_millis(1_795_934_655_522)));
    assert_eq!(playlist.segment(9), None);
    assert_eq!(playlist.segment(6), None);
}

#[test]
fn odd_lines_are_skipped_as_players_do() {
    let playlist = media(
        "\u{feff}#EXTM3U\r\n#EXT-X-TARGETDURATION:2\r\n#EXT-X-FUTURE:a=b\r\n# a comment\r\n\r\n\
         #EXT-X-MEDIA-SEQUENCE:x\r\n#EXTINF:2\r\na.ts\r\nlost.ts\r\n#EXTINF:1.5,Title, with\r\n b.ts \r\n",
    );
    let uris: Vec<&str> = playlist.segments.iter().map(|own| &*own.uri).collect();
    assert_eq!(uris, ["a.ts", "b.ts"]);
    assert_eq!(playlist.media_sequence, 0);
}

#[test]
fn keys_apply_to_the_segments_after_them() {
    let playlist = media(
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\na\n\
         #EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1F\n#EXT-X-MAP:URI=\"m\"\n#EXTINF:2,\nb\n\
         #EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n\
         #EXTINF:2,\nc\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"l\"\n#EXTINF:2,\nd\n\
         #EXT-X-KEY:METHOD=NONE\n#EXTINF:2,\ne\n\
         #EXT-X-KEY:METHOD=AES-128,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n\
         #EXTINF:2,\nf\n#EXT-X-KEY:METHOD=SAMPLE-AES-CTR,URI=\"x\",KEYFORMAT=\"urn:uuid:0\"\n\
         #EXTINF:2,\ng\n#EXT-X-KEY:METHOD=AES-256,URI=\"k\"\n#EXTINF:2,\nh\n",
    );
    let keys: Vec<Option<(&str, Option<u8>, bool)>> = playlist
        .segments
        .iter()
        .map(|own| {
            let key = own.key.as_ref()?;
            let iv = key.iv.map(|iv| iv[15]);
            Some((
                key.uri.as_deref().unwrap_or("other"),
                iv,
                key.is_of_segments,
            ))
        })
        .collect();
    let first = Some(("k", Some(0x1f), true));
    let samples = Some(("l", None, false));
    assert_eq!(keys[..5], [None, first, first, samples, None]);
    // Keys that only other software can use; of an unknown method nothing is known either.
    let others = [true, false, true].map(|is_of_segments| Some(("other", None, is_of_segments)));
    assert_eq!(keys[5..], others);
    let map = playlist.segments[1].map.as_ref().expect("it has one");
    assert_eq!(map.key, playlist.segments[1].key);
}

#[test]
fn blanks_in_tags_are_no_part_of_names_and_values() {
    let text =
        "#EXTM3U\n#EXT-X-STREAM-INF: PROGRAM-ID=1, BANDWIDTH=1251135, AUDIO=\"a b\"\n v.m3u8 \n";
    let Ok(Playlist::Multivariant(playlist)) = Playlist::parse(text.as_bytes(), None) else {
        panic!("it is one");
    };
    let expected = Variant {
        bandwidth: 1_251_135,
        audio: Some("a b".to_owned()),
        uri: "v.m3u8".to_owned(),
    };
    assert_eq!(playlist.variants, [expected]);
    let playlist =
        media("#EXTM3U\n#EXT-X-TARGETDURATION: 10\n#EXTINF: 10,\na.ts\n#EXT-X-ENDLIST \n");
    assert_eq!(playlist.segments.len(), 1);
    assert!(playlist.is_ended && playlist.oddities.is_empty());
}

#[test]
fn odd_lines_of_multivariant_playlists_are_told() {
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=7,RESOLUTION=640x360,\na\n\
                #EXT-X-STREAM-INF:BANDWIDTH=many\nb\n";
    let Ok(Playlist::Multivariant(playlist)) = Playlist::parse(text.as_bytes(), None) else {
        panic!("it is one");
    };
    assert_eq!(playlist.variants.len(), 1);
    assert!(!playlist.oddities.is_empty());
}

#[test]
fn last_number_of_all_is_handled() {
    let playlist = media(&format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{}\n",
        u64::MAX
    ));
    assert_eq!(playlist.numbered().count(), 0);
}

#[test]
fn target_duration_is_whole_seconds_and_at_least_one() {
    for (value, expected, is_odd) in [("10", 10, false), ("0", 1, true), ("10.9", 10, true)] {
        let playlist = media(&format!("#EXTM3U\n#EXT-X-TARGETDURATION:{value}\n"));
        assert_eq!(playlist.target_duration, Duration::from_secs(expected));
        assert_eq!(playlist.oddities.is_empty(), !is_odd, "{value}");
    }
    for value in ["", "ten", "-1", "NaN"] {
        let text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:{value}\n");
        let read = Playlist::parse(text.as_bytes(), None);
        assert_eq!(read, Err(PlaylistError::NoTargetDuration), "{value}");
    }
}

#[test]
fn impossible_playlists_have_their_reason() {
    let error = |text: &str| Playlist::parse(text.as_bytes(), None).expect_err(text);
    let after = |text: &str| error(&format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{text}"));
    assert_eq!(error("#EXTINF:1,\na.ts"), PlaylistError::NotPlaylist);
    assert_eq!(
        error("#EXTM3U\n#EXTINF:1,\na.ts"),
        PlaylistError::NoTargetDuration
    );
    assert_eq!(
        error("#EXTM3U\n#EXT-X-TARGETDURATION:18446744073709551615\n"),
        PlaylistError::TargetDuration(u64::MAX)
    );
    for duration in ["-1", "1e300", "86401"] {
        let text = format!("#EXTINF:{duration},\na.ts\n");
        assert_eq!(after(&text), PlaylistError::SegmentDuration);
    }
    assert_eq!(
        after("#EXT-X-MEDIA-SEQUENCE:18446744073709551615\n#EXTINF:1,\na.ts\n"),
        PlaylistError::SequenceTooLarge
    );
    let many = "#EXTINF:1,\na\n".repeat(SEGMENTS_MAX + 1);
    assert_eq!(after(&many), PlaylistError::TooManySegments);
    let many = "#EXT-X-PART:DURATION=1,URI=\"a\"\n".repeat(PARTS_MAX + 1);
    assert_eq!(after(&many), PlaylistError::TooManyParts);
    let many = "#EXT-X-STREAM-INF:BANDWIDTH=1\na\n".repeat(VARIANTS_MAX + 1);
    assert_eq!(after(&many), PlaylistError::TooManyVariants);
    let many =
        "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"b\",URI=\"c\"\n".repeat(VARIANTS_MAX + 1);
    assert_eq!(after(&many), PlaylistError::TooManyVariants);
}

#[test]
fn playback_begins_three_target_durations_before_the_end() {
    let text = |count: usize| {
        let segments = "#EXTINF:2,\na\n".repeat(count);
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:10\n{segments}")
    };
    for (count, start) in [(0, 10), (1, 10), (3, 10), (6, 13)] {
        let begins = media(&text(count)).start(None, false);
        assert_eq!(begins, place(start, 0), "{count}");
    }
    let near = Some(Duration::from_millis(1));
    assert_eq!(media(&text(6)).start(near, false), place(15, 0));
    let ended = media(&(text(6) + "#EXT-X-ENDLIST\n"));
    assert_eq!(ended.start(None, false), place(10, 0));
    assert_eq!(ended.start(near, false), place(15, 0));
}

/// A playlist with segments 4 to 6, of which the last is complete in two of three parts.
const LOW_LATENCY: &str = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-VERSION:9\n\
    #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.5,CAN-SKIP-UNTIL=12.0\n\
    #EXT-X-PART-INF:PART-TARGET=0.5\n#EXT-X-MEDIA-SEQUENCE:4\n#EXT-X-MAP:URI=\"init.mp4\"\n\
    #EXT-X-PROGRAM-DATE-TIME:2026-11-29T06:44:10Z\n#EXTINF:2,\n4.mp4\n\
    #EXT-X-PART:DURATION=0.5,URI=\"5.0\",INDEPENDENT=YES\n\
    #EXT-X-PART:DURATION=0.5,URI=\"5\",BYTERANGE=\"100@7\"\n\
    #EXT-X-PART:DURATION=0.5,URI=\"5\",BYTERANGE=\"50\"\n\
    #EXT-X-PART:DURATION=0.5,URI=\"5.3\",INDEPENDENT=YES,GAP=YES\n\
    #EXTINF:2.001,\n5.mp4\n\
    #EXT-X-PART:DURATION=0.5,URI=\"6.0\",INDEPENDENT=YES\n\
    #EXT-X-PART:DURATION=0.4,URI=\"6.1\"\n\
    #EXT-X-PRELOAD-HINT:TYPE=MAP,URI=\"next.mp4\"\n\
    #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"6.2\"\n";

#[test]
fn parts_belong_to_the_segment_that_follows_them() {
    let playlist = media(LOW_LATENCY);
    assert!(playlist.is_low_latency());
    assert_eq!(playlist.end(), place(6, 2));
    assert_eq!(playlist.parts_of(4), []);
    assert_eq!(playlist.parts_of(7), []);
    let uris = |sequence| -> Vec<&str> {
        let parts = playlist.parts_of(sequence).iter();
        parts.map(|part| &*part.media.uri).collect()
    };
    assert_eq!(uris(5), ["5.0", "5", "5", "5.3"]);
    assert_eq!(uris(6), ["6.0", "6.1"]);
    let [_, second, third, last] = playlist.parts_of(5) else {
        panic!("{playlist:?}");
    };
    let (offset, length) = (107, 50);
    assert_eq!(third.media.range, Some(ByteRange { offset, length }));
    assert_eq!(third.place, place(5, 2));
    assert!(!second.is_independent && last.is_independent && last.media.is_gap);
    assert_eq!(second.media.map, playlist.segments[0].map);
    // Dates go on from part to part, and from segment to segment.
    let first = playlist.segments[0].date.expect("it is stated");
    let since = |part: &Part| part.media.date.map(|date| date - first);
    assert_eq!(since(second), Some(Duration::from_millis(2500)));
    let newest = &playlist.parts_of(6)[1];
    assert_eq!(since(newest), Some(Duration::from_millis(4501)));
    let hint = playlist.hint.as_ref().expect("it has a hint");
    assert_eq!((&*hint.uri, hint.extent), ("6.2", Extent::Whole));
}

#[test]
fn pieces_are_parts_as_long_as_the_playlist_lists_them() {
    let playlist = media(LOW_LATENCY);
    let names = |begin, in_parts| {
        let mut names = Vec::new();
        let mut next = playlist.piece(begin, in_parts);
        while let Some((at, piece)) = next {
            names.push(piece.media().uri.to_string());
            next = playlist.piece(piece.end(at), in_parts);
        }
        names
    };
    let all = ["4.mp4", "5.0", "5", "5", "5.3", "6.0", "6.1"];
    assert_eq!(names(place(4, 0), true), all);
    assert_eq!(names(place(4, 0), false), ["4.mp4", "5.mp4"]);
    assert_eq!(names(place(5, 3), true), ["5.3", "6.0", "6.1"]);
    // After the last part of a segment comes the next segment.
    assert_eq!(names(place(5, 4), true), ["6.0", "6.1"]);
    // The other parts of segment 4 cannot be had any more.
    assert_eq!(names(place(4, 2), true), all);
    assert_eq!(names(place(6, 2), true), [""; 0]);
    let ahead = playlist.duration_from(place(5, 3), true);
    assert_eq!(ahead, Duration::from_millis(1400));
}

#[test]
fn playback_of_parts_begins_with_an_independent_one() {
    let playlist = media(LOW_LATENCY);
    let start = |milliseconds: Option<u64>| {
        let distance = milliseconds.map(Duration::from_millis);
        playlist.start(distance, true)
    };
    // The hold-back of parts is 1.5 s: 1.4 s is not enough, and the two parts before it depend on
    // others.
    assert_eq!(start(None), place(5, 0));
    assert_eq!(start(Some(1400)), place(5, 3));
    assert_eq!(start(Some(900)), place(6, 0));
    assert_eq!(start(Some(0)), place(6, 0));
    assert_eq!(start(Some(3000)), place(4, 0));
    assert_eq!(start(Some(9000)), place(4, 0));
    assert_eq!(playlist.start(None, false), place(4, 0));
}

#[test]
fn updates_take_what_they_leave_out_from_the_playlist_before() {
    let before = media(LOW_LATENCY);
    let update = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:4\n\
        #EXT-X-SKIP:SKIPPED-SEGMENTS=2\n#EXTINF:1.5,\n6.mp4\n";
    let read = |text: &str, before| Playlist::parse(text.as_bytes(), before);
    let Ok(Playlist::Media(playlist)) = read(update, Some(&before)) else {
        panic!("it can be read");
    };
    assert!(playlist.is_delta);
    assert_eq!(playlist.segments[..2], before.segments[..]);
    let last = playlist.segment(6).expect("it is there");
    assert_eq!(last.map, before.segments[1].map);
    let first = before.segments[0].date.expect("it is stated");
    assert_eq!(last.date, Some(first + Duration::from_millis(4001)));
    for (text, before) in [
        (update, None),
        (&update.replace("SEGMENTS=2", "SEGMENTS=3"), Some(&before)),
        (&update.replace("SEQUENCE:4", "SEQUENCE:3"), Some(&before)),
        (
            &update.replace("SEGMENTS=2", "SEGMENTS=18446744073709551615"),
            Some(&before),
        ),
    ] {
        assert_eq!(read(text, before), Err(PlaylistError::SkippedUnknown));
    }
}

#[test]
fn hints_name_a_part_or_the_rest_of_a_resource() {
    let hint = |attributes: &str| {
        let text = format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"a\"{attributes}\n");
        media(&format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{text}")).hint
    };
    let extent = |attributes| hint(attributes).map(|hint| hint.extent);
    assert_eq!(extent(""), Some(Extent::Whole));
    assert_eq!(extent(",BYTERANGE-START=0"), Some(Extent::Whole));
    let (offset, length) = (5, 6);
    let both = ",BYTERANGE-START=5,BYTERANGE-LENGTH=6";
    let range = ByteRange { offset, length };
    assert_eq!(extent(both), Some(Extent::Range(range)));
    assert_eq!(extent(",BYTERANGE-START=5"), Some(Extent::From(5)));
    assert_eq!(extent(",BYTERANGE-LENGTH=0"), None);
    // Where parts are ranges, the whole resource is more than the next part.
    let part = |range: &str| {
        let text = format!("#EXT-X-PART:DURATION=1,URI=\"a\"{range}\n");
        let hint = "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"b\"\n";
        let playlist = media(&format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{text}{hint}"));
        playlist.hint.map(|hint| hint.extent)
    };
    assert_eq!(part(""), Some(Extent::Whole));
    assert_eq!(part(",BYTERANGE=\"5@0\""), Some(Extent::From(0)));
    // An initialization section has an end.
    let open = "#EXT-X-PRELOAD-HINT:TYPE=MAP,URI=\"a\",BYTERANGE-START=5\n";
    let playlist = media(&format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{open}"));
    assert_eq!(playlist.map_hint, None);
}

#[test]
fn hints_at_sections_and_parts_are_kept_apart() {
    let playlist = media(
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n\
         #EXT-X-PRELOAD-HINT:TYPE=MAP,URI=\"c\",BYTERANGE-START=3,BYTERANGE-LENGTH=4\n\
         #EXT-X-PART:DURATION=1,URI=\"a\",BYTERANGE=\"5@0\"\n\
         #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"a\",BYTERANGE-START=5,BYTERANGE-LENGTH=6\n\
         #EXT-X-PRELOAD-HINT:TYPE=KEY,URI=\"d\"\n",
    );
    let hint = |kind, uri: &str, offset, length| Hint {
        kind,
        uri: uri.into(),
        extent: Extent::Range(ByteRange { offset, length }),
    };
    assert_eq!(playlist.map_hint, Some(hint(HintKind::Map, "c", 3, 4)));
    assert_eq!(playlist.hint, Some(hint(HintKind::Part, "a", 5, 6)));
}

prop_compose! {
    fn segment()(
        milliseconds in 0u64..100_000,
        uri in "[a-z0-9]{1,8}\\.(ts|m4s)",
        range in proptest::option::of((0u64..1 << 40, 1u64..1 << 40)),
        is_discontinuous in any::<bool>(),
        is_gap in any::<bool>(),
    ) -> Segment {
        Segment {
            duration: Duration::from_millis(milliseconds),
            uri: uri.into(),
            range: range.map(|(offset, length)| ByteRange { offset, length }),
            map: None,
            date: None,
            is_date_stated: false,
            is_discontinuous,
            is_gap,
            key: None,
        }
    }
}

fn write(playlist: &MediaPlaylist) -> String {
    let mut text = format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:{}\n#EXT-X-MEDIA-SEQUENCE:{}\n",
        playlist.target_duration.as_secs(),
        playlist.media_sequence
    );
    for segment in &playlist.segments {
        if segment.is_discontinuous {
            text += "#EXT-X-DISCONTINUITY\n";
        }
        if segment.is_gap {
            text += "#EXT-X-GAP\n";
        }
        if let Some(range) = segment.range {
            text += &format!("#EXT-X-BYTERANGE:{}@{}\n", range.length, range.offset);
        }
        let seconds = segment.duration.as_secs_f64();
        text += &format!("#EXTINF:{seconds:.3},\n{}\n", segment.uri);
    }
    if playlist.is_ended {
        text += "#EXT-X-ENDLIST\n";
    }
    text
}

#[test]
fn reports_tell_what_other_playlists_end_with() {
    let parse = |lines: &str, reports: &str| {
        let text = format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n{lines}\n{reports}\n"
        );
        match Playlist::parse(text.as_bytes(), None) {
            Ok(Playlist::Media(playlist)) => *playlist,
            other => panic!("{other:?}"),
        }
    };
    let end = |playlist: &MediaPlaylist| playlist.reported_end(|uri| uri == "b");
    let segment = "#EXTINF:2,\na";
    let part = "#EXT-X-PART:DURATION=1,URI=\"p\"";
    for (lines, report, expected) in [
        (segment, "URI=\"b\",LAST-MSN=9,LAST-PART=3", (9, Some(3))),
        (segment, "LAST-MSN=9, URI=\"b\"", (9, None)),
        // Numbers that are left out equal those of this playlist (rfc8216bis, 4.4.5.4).
        (segment, "URI=\"b\"", (7, None)),
        (
            &format!("{part}\n{part}\n{segment}"),
            "URI=\"b\"",
            (7, Some(1)),
        ),
        (&format!("{segment}\n{part}"), "URI=\"b\"", (8, Some(0))),
        (
            &format!("{segment}\n{part}"),
            "URI=\"b\",LAST-PART=4",
            (8, Some(4)),
        ),
    ] {
        let tag = "#EXT-X-RENDITION-REPORT";
        let playlist = parse(lines, &format!("{tag}:URI=\"c\"\n{tag}:{report}"));
        assert_eq!(end(&playlist), Some(expected), "{lines} {report}");
        assert!(playlist.oddities.is_empty());
    }
    for report in [
        "LAST-MSN=9",
        "URI=b,LAST-MSN=9",
        "URI=\"b\",LAST-MSN=x",
        "URI=\"b\",LAST-PART=4294967296",
        "URI=\"b\",LAST-MSN=\"9\"",
        "",
    ] {
        let playlist = parse(segment, &format!("#EXT-X-RENDITION-REPORT:{report}"));
        assert_eq!(end(&playlist), None, "{report}");
        assert!(!playlist.oddities.is_empty(), "{report}");
    }
    let many = "#EXT-X-RENDITION-REPORT:URI=\"b\"\n".repeat(VARIANTS_MAX + 1);
    let text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{many}");
    let error = Playlist::parse(text.as_bytes(), None);
    assert_eq!(error, Err(PlaylistError::TooManyVariants));
}

proptest! {
    #[test]
    fn written_playlists_are_read_again(
        seconds in 1u64..1000,
        media_sequence in 0u64..1 << 62,
        is_ended in any::<bool>(),
        segments in proptest::collection::vec(segment(), 0..20),
    ) {
        let playlist = MediaPlaylist {
            target_duration: Duration::from_secs(seconds),
            media_sequence,
            is_ended,
            control: ServerControl::default(),
            start_offset: None,
            part_target: None,
            segments: segments.into_iter().map(Arc::new).collect(),
            parts: Vec::new(),
            hint: None,
            map_hint: None,
            reports: Vec::new(),
            is_delta: false,
            oddities: Oddities::default(),
        };
        let mut read = Playlist::parse(write(&playlist).as_bytes(), None);
        if let Ok(Playlist::Media(read)) = &mut read {
            let target = playlist.target_duration;
            let is_long = |own: &Arc<Segment>| own.duration >= target + Duration::from_millis(500);
            prop_assert_eq!(!read.oddities.is_empty(), playlist.segments.iter().any(is_long));
            read.oddities = Oddities::default();
        }
        prop_assert_eq!(read, Ok(Playlist::Media(Box::new(playlist))));
    }

    #[test]
    fn any_text_is_handled(lines in proptest::collection::vec(
        prop_oneof![
            "\\PC{0,20}",
            "#EXT(INF|-X-[A-Z-]{1,20}):\\PC{0,20}",
            "#EXT-X-(BYTERANGE|MEDIA-SEQUENCE|TARGETDURATION):[0-9@]{0,22}",
            "#EXT-X-MAP:URI=\"[a-z]{0,3}\",BYTERANGE=\"[0-9@]{0,22}\"",
            "#EXTINF:[0-9.e-]{0,8},",
            "#EXT-X-PART:DURATION=[0-9.e-]{0,8},URI=\"[a-z]?\"(,INDEPENDENT=YES)?",
            "#EXT-X-SKIP:SKIPPED-SEGMENTS=[0-9]{0,20}",
        ],
        0..20,
    )) {
        let text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{}", lines.join("\n"));
        if let Ok(Playlist::Media(playlist)) = Playlist::parse(text.as_bytes(), None) {
            for in_parts in [false, true] {
                let start = playlist.start(None, in_parts);
                prop_assert!(start.sequence >= playlist.media_sequence);
                prop_assert!(start <= playlist.end());
            }
        }
    }
}

/// A playlist whose third segment has these tags before its duration, and what follows it.
fn with_third(sequence: u64, tags: &str, end: &str) -> String {
    format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:{sequence}\n\
         #EXT-X-MAP:URI=\"i\"\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n\
         #EXT-X-PROGRAM-DATE-TIME:2026-11-29T06:44:09Z\n\
         #EXTINF:2,\na\n#EXTINF:2,\nb\n{tags}#EXTINF:{end}\n"
    )
}

#[test]
fn segments_that_stay_are_shared_with_the_playlist_before() {
    let before = media(&with_third(7, "", "2,\nc"));
    let after = |text: &str| match Playlist::parse(text.as_bytes(), Some(&before)) {
        Ok(Playlist::Media(playlist)) => *playlist,
        other => panic!("{other:?}"),
    };
    let is_shared = |now: &MediaPlaylist| -> Vec<bool> {
        let shared = |(own, at)| {
            let before = before.segment(at);
            before.is_some_and(|before| Arc::ptr_eq(before, own))
        };
        now.numbered().map(shared).collect()
    };
    assert_eq!(is_shared(&after(&with_third(7, "", "2,\nc"))), [true; 3]);
    // Each of what a segment has.
    for (tags, end) in [
        ("", "1,\nc"),
        ("", "2,\nd"),
        ("#EXT-X-BYTERANGE:5\n", "2,\nc"),
        ("#EXT-X-MAP:URI=\"j\"\n", "2,\nc"),
        ("#EXT-X-PROGRAM-DATE-TIME:2026-11-29T06:44:14Z\n", "2,\nc"),
        // This date is also the derived one.
        ("#EXT-X-PROGRAM-DATE-TIME:2026-11-29T06:44:13Z\n", "2,\nc"),
        ("#EXT-X-DISCONTINUITY\n", "2,\nc"),
        ("#EXT-X-GAP\n", "2,\nc"),
        ("#EXT-X-KEY:METHOD=NONE\n", "2,\nc"),
        ("#EXT-X-KEY:METHOD=AES-128,URI=\"l\"\n", "2,\nc"),
    ] {
        let text = with_third(7, tags, end);
        let now = after(&text);
        assert_eq!(is_shared(&now), [true, true, false], "{tags}{end}");
        // Without the playlist before, the result is the same.
        assert_eq!(now.segments, media(&text).segments, "{tags}{end}");
    }
    // One segment later, under the same names, they are others.
    assert_eq!(is_shared(&after(&with_third(8, "", "2,\nc"))), [false; 3]);
}

#[test]
fn fractions_of_seconds_in_dates_have_any_number_of_digits() {
    for (fraction, nanoseconds) in [
        ("", 0),
        (".", 0),
        (".5", 500_000_000),
        (",05", 50_000_000),
        (".123456789", 123_456_789),
        (".1234567891", 123_456_789),
    ] {
        let text = format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n\
             #EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:01{fraction}Z\n#EXTINF:2,\na\n"
        );
        let date = media(&text).segments[0].date;
        assert_eq!(date, Some(Duration::new(1, nanoseconds)), "{fraction}");
    }
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n\
                #EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:01.5xZ\n#EXTINF:2,\na\n";
    assert_eq!(media(text).segments[0].date, None);
}

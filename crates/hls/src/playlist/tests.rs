//! Tests of the parser of playlists.

use proptest::prelude::*;

use super::*;

fn media(text: &str) -> MediaPlaylist {
    match Playlist::parse(text.as_bytes()) {
        Ok(Playlist::Media(playlist)) => playlist,
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
         #EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:2,\nb\n#EXTINF:2,\nc\n\
         #EXT-X-KEY:METHOD=NONE\n#EXTINF:2,\nd\n",
    );
    let encrypted: Vec<bool> = playlist
        .segments
        .iter()
        .map(|own| own.is_encrypted)
        .collect();
    assert_eq!(encrypted, [false, true, true, false]);
}

#[test]
fn impossible_playlists_have_their_reason() {
    let error = |text: &str| Playlist::parse(text.as_bytes()).expect_err(text);
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
        assert_eq!(media(&text(count)).start(None), start, "{count}");
    }
    let near = Some(Duration::from_millis(1));
    assert_eq!(media(&text(6)).start(near), 15);
    let ended = media(&(text(6) + "#EXT-X-ENDLIST\n"));
    assert_eq!(ended.start(near), 10);
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
            is_discontinuous,
            is_gap,
            is_encrypted: false,
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
            hold_back: None,
            segments,
        };
        let read = Playlist::parse(write(&playlist).as_bytes());
        prop_assert_eq!(read, Ok(Playlist::Media(playlist)));
    }

    #[test]
    fn any_text_is_handled(lines in proptest::collection::vec(
        prop_oneof![
            "\\PC{0,20}",
            "#EXT(INF|-X-[A-Z-]{1,20}):\\PC{0,20}",
            "#EXT-X-(BYTERANGE|MEDIA-SEQUENCE|TARGETDURATION):[0-9@]{0,22}",
            "#EXT-X-MAP:URI=\"[a-z]{0,3}\",BYTERANGE=\"[0-9@]{0,22}\"",
            "#EXTINF:[0-9.e-]{0,8},",
        ],
        0..20,
    )) {
        let text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{}", lines.join("\n"));
        if let Ok(Playlist::Media(playlist)) = Playlist::parse(text.as_bytes()) {
            prop_assert!(playlist.start(None) >= playlist.media_sequence);
            prop_assert!(playlist.start(None) <= playlist.end_sequence());
        }
    }
}

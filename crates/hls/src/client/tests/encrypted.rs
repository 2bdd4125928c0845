//! Encrypted segments, and compressed playlists.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use libdeflater::{CompressionLvl, Compressor};

use super::*;

/// Encrypts the first block of a segment of 160 bytes (AES-128, CBC).
pub(super) fn segment(key: [u8; 16], iv: u128) -> Vec<u8> {
    let plain = u128::from_be_bytes(*b"G@\0\x10 media media") ^ iv;
    let mut block = plain.to_be_bytes().into();
    Aes128::new(&key.into()).encrypt_block(&mut block);
    [block.as_slice(), &[7; 144]].concat()
}

/// Recorded media of six segments: one in plain text, two with a key whose vector is the number,
/// one with a vector of its own, one with a second key, and one with samples that are encrypted.
const PLAYLIST: &str = "#EXTINF:2,\n0.ts\n\
    #EXT-X-KEY:METHOD=AES-128,URI=\"k1\"\n#EXTINF:2,\n1.ts\n#EXTINF:2,\n2.ts\n\
    #EXT-X-KEY:METHOD=AES-128,URI=\"k1\",IV=0x0009\n#EXTINF:2,\n3.ts\n\
    #EXT-X-KEY:METHOD=AES-128,URI=\"k2\"\n#EXTINF:2,\n4.ts\n\
    #EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"k3\"\n#EXTINF:2,\n5.ts\n#EXT-X-ENDLIST\n";

fn serve(path: &str) -> Answer {
    Answer::ok(match path.trim_start_matches("/a/") {
        "index.m3u8" => return playlist("", PLAYLIST),
        "k1" => vec![1; 16],
        "k2" => vec![2; 16],
        "k3" => vec![3; 16],
        "1.ts" => segment([1; 16], 1),
        "2.ts" => segment([1; 16], 2),
        "3.ts" => segment([1; 16], 9),
        "4.ts" => segment([2; 16], 4),
        _ => b"\xff\xf1\0\x10 media media".repeat(10),
    })
}

#[test]
fn keys_are_requested_once_before_their_segments() {
    let mut world = World::new(config(), |path, _| Some(serve(path)));
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    let names = [
        "index.m3u8",
        "0.ts",
        "k1",
        "1.ts",
        "2.ts",
        "3.ts",
        "k2",
        "4.ts",
        "k3",
        "5.ts",
    ];
    let requested: Vec<&str> = world
        .paths()
        .iter()
        .map(|path| path.trim_start_matches("/a/"))
        .collect();
    assert_eq!(requested, names);
    assert_eq!(world.count(m::KEYS), 3);
    assert_eq!(world.recorded(m::KEY_DELAY).0, 3);
    assert_eq!(world.count(m::SEGMENTS), 6);
    assert_eq!(world.count(m::SEGMENTS_FAILED), 0);
    // Keys are no media.
    assert_eq!(world.count(m::PAYLOAD_BYTES), 6 * 160);
}

#[test]
fn wrong_keys_and_bodies_have_their_reasons() {
    type Change = fn(&str, Answer) -> Answer;
    let changes: [(Change, &str, u64); 5] = [
        // Two segments of the first key, and the next of it after three failures.
        (
            |path, own| match path {
                "/a/k2" => Answer::ok(vec![2; 17]),
                _ => own,
            },
            "the key has 17 bytes instead of 16",
            1,
        ),
        (
            |path, own| match path {
                "/a/k2" => Answer::ok(Vec::new()),
                _ => own,
            },
            "the key has 0 bytes instead of 16",
            1,
        ),
        (
            |path, own| match path {
                "/a/k2" => Answer::new("404 Not Found", ""),
                _ => own,
            },
            "404 Not Found",
            1,
        ),
        (
            |path, own| match path {
                "/a/k2" => Answer::ok(vec![9; 16]),
                _ => own,
            },
            "with its key, the body is not media",
            1,
        ),
        (
            |path, own| match path {
                "/a/2.ts" => Answer::ok(vec![1; 161]),
                _ => own,
            },
            "161 bytes are no multiple of 16",
            1,
        ),
    ];
    for (change, text, failed) in changes {
        let mut world = World::new(config(), move |path, _| Some(change(path, serve(path))));
        world.run(at(60_000));
        assert_eq!(world.outcome, Some(Outcome::Completed), "{text}");
        assert_eq!(world.count(m::SEGMENTS_FAILED), failed, "{text}");
        assert_eq!(world.count(m::SEGMENTS), 6 - failed, "{text}");
        assert_eq!(world.notes, ["segment_failed"]);
        assert!(world.note_texts[0].contains(text), "{:?}", world.note_texts);
    }
}

#[test]
fn segments_whose_key_needs_other_software_are_counted() {
    let format = "KEYFORMAT=\"com.apple.streamingkeydelivery\"";
    let play = |method: &str, body: &'static [u8]| {
        let text = format!(
            "#EXTINF:2,\n0.ts\n#EXT-X-KEY:METHOD={method},URI=\"skd://a\",{format}\n\
             #EXTINF:2,\n1.ts\n#EXT-X-ENDLIST\n"
        );
        let mut world = World::new(config(), move |path, _| {
            Some(match path {
                "/a/index.m3u8" => playlist("", &text),
                "/a/0.ts" => serve("/a/0.ts"),
                _ => Answer::ok(body),
            })
        });
        world.run(at(60_000));
        assert_eq!(world.outcome, Some(Outcome::Completed));
        assert_eq!(world.count(m::KEYS), 0);
        [m::SEGMENTS, m::SEGMENTS_FAILED].map(|counter| world.count(counter))
    };
    // Whole segments can be any bytes. Where samples are encrypted, the container is not.
    assert_eq!(play("AES-128", b"\x17\x93 any bytes"), [2, 0]);
    assert_eq!(play("AES-128", b""), [1, 1]);
    assert_eq!(play("SAMPLE-AES", b"\x17\x93 any bytes"), [1, 1]);
    assert_eq!(play("SAMPLE-AES", b"\xff\xf1 packed audio"), [2, 0]);
}

#[test]
fn tracks_share_their_key() {
    let answer = |path: &str| match path {
        "/a/index.m3u8" => Answer::ok(
            "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"b\",URI=\"audio.m3u8\"\n\
             #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"a\"\nvideo.m3u8\n",
        ),
        _ if path.ends_with(".m3u8") => playlist(
            "",
            &format!(
                "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:2,\n{}\n#EXT-X-ENDLIST\n",
                path.replace("m3u8", "ts")
            ),
        ),
        "/a/k" => Answer::ok([5; 16]),
        _ => Answer::ok(segment([5; 16], 0)),
    };
    let mut world = World::new(config(), move |path, _| Some(answer(path)));
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::SEGMENTS), 2);
    assert_eq!(world.count(m::KEYS), 1);
}

#[test]
fn first_key_that_is_missing_ends_the_client() {
    let playlist_of = |path: &str| match path {
        "/a/index.m3u8" => playlist(
            "",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:2,\n0.ts\n#EXT-X-ENDLIST\n",
        ),
        _ => Answer::new("403 Forbidden", ""),
    };
    let mut world = World::new(config(), move |path, _| Some(playlist_of(path)));
    world.run(at(60_000));
    let (reason, detail) = world.failed();
    assert_eq!(reason, "status_403");
    assert!(detail.contains("/a/k"), "{detail}");
}

fn gzip(answer: Answer) -> Answer {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut body = vec![0; compressor.gzip_compress_bound(answer.body.len())];
    let length = compressor.gzip_compress(&answer.body, &mut body);
    body.truncate(length.expect("the bound is kept"));
    Answer {
        body,
        head: "200 OK\r\nContent-Encoding: gzip".to_owned(),
        ..answer
    }
}

#[test]
fn playlists_may_be_compressed_and_segments_are_not() {
    let mut world = World::new(config(), |path, _| {
        let answer = serve(path);
        Some(match path.ends_with(".m3u8") {
            true => gzip(answer),
            false => answer,
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    for asked in &world.asked {
        let accepted = match asked.path.ends_with(".m3u8") {
            true => "Accept-Encoding: gzip\r\n",
            false => "Accept-Encoding: identity\r\n",
        };
        assert!(asked.head.contains(accepted), "{}", asked.head);
    }
}

#[test]
fn playlists_whose_coding_is_wrong_have_their_reason() {
    for (head, body, text) in [
        ("Content-Encoding: br", &b"x"[..], "its coding `br`"),
        (
            "Content-Encoding: gzip",
            b"#EXTM3U",
            "not complete gzip data",
        ),
    ] {
        let head = format!("200 OK\r\n{head}");
        let mut world = World::new(config(), move |_, _| Some(Answer::new(&head, body)));
        world.run(at(60_000));
        let (reason, detail) = world.failed();
        assert_eq!(reason, "bad_playlist");
        assert!(detail.contains(text), "{detail}");
    }
}

#[test]
fn keys_may_stand_in_the_playlist() {
    // Sixteen bytes of 1, in both forms (RFC 2397).
    let percent = format!("data:,{}", "%01".repeat(16));
    for (uri, kept) in [
        ("data:text/plain;base64,AQEBAQEBAQEBAQEBAQEBAQ==", 3),
        ("DATA:;Base64,AQEBAQEBAQEBAQEBAQEBAQ%3D%3D", 3),
        ("data:;base64,AQEBAQEBAQEB%0AAQEBAQEBAQ", 3),
        (percent.as_str(), 3),
        ("data:;base64,AQEB", 1),
        ("data:nothing", 1),
    ] {
        let text = format!(
            "#EXTINF:2,\n0.ts\n#EXT-X-KEY:METHOD=AES-128,URI=\"{uri}\"\n\
             #EXTINF:2,\n1.ts\n#EXTINF:2,\n2.ts\n#EXT-X-ENDLIST\n"
        );
        let mut world = World::new(config(), move |path, _| {
            Some(match path {
                "/a/index.m3u8" => playlist("", &text),
                _ => serve(path),
            })
        });
        world.run(at(60_000));
        assert_eq!(world.outcome, Some(Outcome::Completed));
        assert_eq!(world.count(m::SEGMENTS), kept, "{uri}");
        assert_eq!(world.count(m::SEGMENTS_FAILED), 3 - kept, "{uri}");
        assert_eq!(world.count(m::KEYS), 0, "{uri}");
    }
}

#[test]
fn track_waits_for_the_key_that_another_has_requested() {
    // From the second segment on, both tracks need the same key, which takes 300 ms.
    let small = ClientConfig {
        buffer_max: TimeSpan(Duration::from_secs(2)),
        ..config()
    };
    let mut world = World::new(small, |path, _| {
        let lines = "#EXTINF:2,\nplain.ts\n#EXT-X-KEY:METHOD=AES-128,URI=\"k1\"\n\
                     #EXTINF:2,\n1.ts\n#EXT-X-ENDLIST\n";
        Some(match path.rsplit('/').next().expect("a name") {
            "index.m3u8" => Answer::ok(
                "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"a\",URI=\"audio.m3u8\"\n\
                 #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"a\"\nvideo.m3u8\n",
            ),
            name if name.ends_with("m3u8") => playlist("", lines),
            "k1" => Answer::ok([1; 16]).in_time(300),
            "1.ts" => Answer::ok(segment([1; 16], 1)),
            _ => serve("0.ts"),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    assert_eq!(world.count(m::KEYS), 1);
    assert_eq!(world.count(m::SEGMENTS), 4);
}

#[test]
fn section_is_not_requested_again_when_the_key_changes() {
    let mut world = World::new(config(), |path, _| {
        let lines = "#EXT-X-KEY:METHOD=AES-128,URI=\"k1\",IV=0x09\n#EXT-X-MAP:URI=\"init.mp4\"\n\
                     #EXTINF:2,\n3.ts\n\
                     #EXT-X-KEY:METHOD=AES-128,URI=\"k2\"\n#EXT-X-MAP:URI=\"init.mp4\"\n\
                     #EXT-X-MEDIA-SEQUENCE:3\n#EXTINF:2,\n4.ts\n#EXT-X-ENDLIST\n";
        Some(match path {
            "/a/index.m3u8" => playlist("", lines),
            "/a/init.mp4" => serve("3.ts"),
            _ => serve(path),
        })
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    let paths = world.paths();
    let sections = paths.iter().filter(|path| path.ends_with("init.mp4"));
    assert_eq!(sections.count(), 1, "{paths:?}");
}

#[test]
fn repeated_request_for_a_key_counts_once() {
    let mut refusals = 1;
    let mut world = World::new(config(), move |path, _| {
        if path == "/a/k1" && refusals > 0 {
            refusals -= 1;
            return Some(Answer::new("503 Service Unavailable", ""));
        }
        Some(serve(path))
    });
    world.run(at(60_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
    let counts = [m::SEGMENTS_RETRIED, m::SEGMENTS_FAILED, m::KEYS].map(|own| world.count(own));
    assert_eq!(counts, [1, 0, 3]);
}

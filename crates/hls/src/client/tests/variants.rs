//! Multivariant playlists: what they define, and which of their variants are played.

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

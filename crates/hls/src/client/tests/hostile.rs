//! Servers that misbehave: each has its reason, and nothing is unbounded.

use super::*;

/// Plays what the server answers to the first request.
fn fail_with(answer: Answer) -> (&'static str, String) {
    let mut world = World::new(config(), move |_, _| Some(answer.clone()));
    world.run(at(120_000));
    world.failed()
}

#[test]
fn what_is_no_playlist_has_its_reason() {
    let text = |text: &str| Answer::ok(text);
    for (answer, reason, detail) in [
        (
            text("<html>"),
            "bad_playlist",
            "does not begin with #EXTM3U",
        ),
        (text(""), "bad_playlist", "does not begin with #EXTM3U"),
        (text("#EXTM3U\n"), "bad_playlist", "TARGETDURATION"),
        (
            text("#EXTM3U\n#EXT-X-TARGETDURATION:100000\n"),
            "bad_playlist",
            "target duration of 100000 s",
        ),
        (
            text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nindex.m3u8\n"),
            "bad_playlist",
            "multivariant playlist itself",
        ),
        (
            text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nhttp://10.9.9.9/x.m3u8\n"),
            "redirect_refused",
            "`follow: any`",
        ),
        (
            Answer::new("404 Not Found", ""),
            "status_404",
            "404 Not Found",
        ),
        (Answer::new("204 No Content", ""), "bad_playlist", "#EXTM3U"),
        (
            Answer::new("302 Found\r\nLocation: http://10.9.9.9/", ""),
            "redirect_refused",
            "10.9.9.9",
        ),
        (
            Answer::new("302 Found\r\nLocation: /a/index.m3u8", ""),
            "redirect_loop",
            "requested before",
        ),
        (Answer::new("302 Found", ""), "bad_redirect", "Location"),
        (
            text("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-ENDLIST\n"),
            "no_media",
            "ended",
        ),
    ] {
        let (found, why) = fail_with(answer);
        assert_eq!(found, reason, "{why}");
        assert!(why.contains(detail), "{why}");
    }
}

#[test]
fn segments_elsewhere_need_permission() {
    let lines = "#EXTINF:2.0,\nhttp://10.9.9.9/0.ts\n#EXT-X-ENDLIST\n";
    let mut world = World::new(config(), move |_, _| Some(playlist("", lines)));
    world.run(at(1000));
    let (reason, detail) = world.failed();
    assert_eq!(reason, "redirect_refused");
    assert!(detail.contains("10.9.9.9"), "{detail}");
}

#[test]
fn redirects_end() {
    let mut hop = 0;
    let mut world = World::new(config(), |_, _| {
        hop += 1;
        let head = format!("302 Found\r\nLocation: /{hop}");
        Some(Answer::new(&head, ""))
    });
    world.run(at(1000));
    assert_eq!(world.failed().0, "too_many_redirects");
}

#[test]
fn long_playlist_ends_the_client_before_it_is_held() {
    let mut body = b"#EXTM3U\n".to_vec();
    body.resize(PLAYLIST_BYTES_MAX + 1, b'#');
    assert_eq!(fail_with(Answer::ok(body)).0, "playlist_too_long");
}

#[test]
fn silent_servers_end_the_client_in_time() {
    // No answer at all, then one whose body does not come, then no segment.
    let mut world = World::new(config(), |_, _| None);
    world.run(at(120_000));
    assert_eq!(world.failed().0, "timeout_response");
    assert_eq!(world.now, at(10_001));
    let mut world = World::new(config(), |_, _| {
        let mut answer = playlist("", "");
        answer.takes = Duration::from_secs(200);
        Some(answer)
    });
    world.run(at(120_000));
    assert_eq!(world.failed().0, "timeout_response");
    let mut world = World::new(config(), |_, _| Some(playlist("", "")));
    world.run(at(120_000));
    assert_eq!(world.failed().0, "no_media");
    assert_eq!(world.now, at(20_000));
    let mut world = World::new(config(), |_, _| Some(playlist("", "")));
    world.run(at(1500));
    assert!(matches!(world.stop(), Outcome::Failed(failure) if failure.reason == "no_media"));
}

#[test]
fn broken_connections_have_their_reasons() {
    let mut world = World::new(config(), |_, _| None);
    let channel = world.open[0];
    world.input(Input::OpenFailed {
        channel,
        error: ChannelError::Refused,
    });
    assert_eq!(world.failed().0, "refused");
    for (answer, reason) in [
        (&b""[..], "closed_in_response"),
        (b"HTTP/1.1 200 OK\r\nConte", "closed_in_response"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n#EXT",
            "cut_off",
        ),
        (b"RTSP/1.0 200 OK\r\n\r\n", "not_http"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
            "bad_chunk",
        ),
    ] {
        let mut world = World::new(config(), |_, _| None);
        let channel = world.open[0];
        world.run(at(5));
        let now = world.now;
        world.input(Input::Bytes {
            channel,
            bytes: answer,
            at: now,
            runs: &[],
        });
        if world.outcome.is_none() {
            world.open.clear();
            let reason = CloseReason::End;
            world.input(Input::Closed { channel, reason });
        }
        assert_eq!(world.failed().0, reason);
    }
}

#[test]
fn bytes_that_nobody_asked_for_close_the_connection() {
    let lines = "#EXTINF:2.0,\n0.ts\n#EXT-X-ENDLIST\n";
    let mut world = World::new(config(), move |path, _| {
        let mut answer = match path.ends_with(".m3u8") {
            true => playlist("", lines),
            false => Answer::ok([0xff; 188]),
        };
        if path.ends_with(".m3u8") {
            // One answer more than requests.
            let length = answer.body.len();
            answer.head += &format!("\r\nContent-Length: {length}");
        }
        Some(answer)
    });
    world.run(at(15));
    let channel = world.open[0];
    let now = world.now;
    world.run(at(25));
    world.input(Input::Bytes {
        channel,
        bytes: b"HTTP/1.1 200 OK\r\n\r\nmore",
        at: now,
        runs: &[],
    });
    assert!(!world.open.contains(&channel));
    world.run(at(10_000));
    assert_eq!(world.outcome, Some(Outcome::Completed));
}

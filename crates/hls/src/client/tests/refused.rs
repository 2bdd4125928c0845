//! Tests of responses that refuse a request, and of their connections.

use std::collections::BTreeSet;

use super::odd::{segment, window};
use super::*;

/// A refusal with a body of this length.
fn refusal(length: usize) -> Answer {
    Answer::new("404 Not Found", vec![b'x'; length])
}

/// Live media in which every request for segment 4 gets `answer`, for 20 s.
fn play(answer: Answer) -> World<impl FnMut(&str, Time) -> Option<Answer>> {
    let mut world = World::new(config(), move |path, now| {
        let end = 5 + now.since(Time::ZERO).as_secs() / 2;
        Some(match path {
            "/a/index.m3u8" => window(end.saturating_sub(10), end),
            "/a/4.ts" => answer.clone(),
            _ => segment(),
        })
    });
    world.run(at(20_000));
    world
}

/// Number of connections of a player.
fn connections<S>(world: &World<S>) -> usize {
    let channels: BTreeSet<ChannelId> = world.asked.iter().map(|asked| asked.channel).collect();
    channels.len()
}

#[test]
fn connection_of_a_refused_request_is_used_again() {
    let mut chunked = refusal(0);
    chunked.head += "\r\nTransfer-Encoding: chunked";
    chunked.has_length = false;
    chunked.body = b"3\r\nabc\r\n0\r\n\r\n".to_vec();
    let whole = [0, 1, 1000, 64 << 10].map(refusal);
    for mut answer in whole.into_iter().chain([chunked]) {
        let length = answer.body.len();
        answer.cuts = vec![length / 3, length / 2];
        let mut world = play(answer);
        assert_eq!(connections(&world), 2, "{length}");
        assert_eq!(world.notes, ["segment_failed"], "{length}");
        assert_eq!(world.count(m::REFUSALS), 1);
        let segments = world.count(m::SEGMENTS);
        assert!(segments > 9);
        // The body of a refusal does not count as media.
        assert_eq!(world.count(m::PAYLOAD_BYTES), segments * 188);
        assert_eq!(world.stop(), Outcome::Stopped);
    }
}

#[test]
fn connection_whose_refusal_is_long_or_has_no_end_is_closed() {
    let long = refusal((64 << 10) + 1);
    let mut closing = refusal(10);
    closing.head += "\r\nConnection: close";
    let mut chunked = refusal(0);
    chunked.head += "\r\nTransfer-Encoding: chunked";
    chunked.has_length = false;
    chunked.body = [&b"10001\r\n"[..], &[b'x'; 0x10001], b"\r\n0\r\n\r\n"].concat();
    let mut endless = refusal(10);
    endless.has_length = false;
    let mut with_more = refusal(10);
    with_more.further = b"y".to_vec();
    for (name, answer) in [
        ("long", long),
        ("closing", closing),
        ("chunked", chunked),
        ("endless", endless),
        ("with more", with_more),
    ] {
        let mut world = play(answer);
        assert_eq!(connections(&world), 3, "{name}");
        assert_eq!(world.notes, ["segment_failed"], "{name}");
        assert_eq!(world.stop(), Outcome::Stopped);
    }
}

#[test]
fn refusal_is_the_reason_though_its_body_does_not_arrive() {
    let status = "404 Not Found\r\nContent-Length: 1000";
    let mut cut_off = Answer::new(status, "begin");
    cut_off.has_length = false;
    cut_off.closes = true;
    let mut silent = cut_off.clone();
    silent.closes = false;
    for answer in [refusal(0), cut_off, silent] {
        let mut world = World::new(config(), |_, _| Some(answer.clone()));
        world.run(at(120_000));
        let (reason, detail) = world.failed();
        assert_eq!(reason, "status_404");
        assert!(detail.starts_with("404 Not Found, "), "{detail}");
        assert!(world.open.is_empty(), "all connections are closed");
    }
}

#[test]
fn refused_playlist_is_requested_again_on_its_connection() {
    let mut world = World::new(config(), |path, now| {
        let end = 5 + now.since(Time::ZERO).as_secs() / 2;
        let is_refused = (at(4000)..at(5500)).contains(&now);
        Some(match path {
            "/a/index.m3u8" if is_refused => Answer::new("503 Service Unavailable", "busy"),
            "/a/index.m3u8" => window(0, end),
            _ => segment(),
        })
    });
    world.run(at(20_000));
    assert!(world.notes.contains(&"playlist_failed"));
    assert_eq!(connections(&world), 2);
    assert_eq!(world.stop(), Outcome::Stopped);
}

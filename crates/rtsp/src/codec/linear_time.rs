//! Tests that the decoding cost is linear in the length of the input, whatever it contains.

use crate::codec::{Decoder, MAX_BODY, MAX_HEAD};
use kit::mediagen::steps;

/// Maximum number of steps per byte. Each byte is examined a few times: for the end of its line,
/// for the name of a method, and when it is buffered.
const STEPS_PER_BYTE_MAX: u64 = 48;

fn assert_linear(what: &str, make: impl Fn(usize) -> Vec<u8>) {
    steps::assert_linear(what, STEPS_PER_BYTE_MAX, make, |pieces| {
        let mut decoder = Decoder::unbounded();
        for piece in pieces {
            if decoder.feed(piece, |_| {}).is_err() {
                // An overflow ends decoding: continue with the next connection.
                decoder = Decoder::unbounded();
            }
        }
    });
}

fn repeated(text: &[u8]) -> impl Fn(usize) -> Vec<u8> {
    let text = text.to_vec();
    move |size| text.iter().copied().cycle().take(size).collect()
}

#[test]
fn garbage_that_looks_like_messages_is_skipped_in_linear_time() {
    for text in [
        "PLAY",
        "PLAY ",
        "PLAY   ",
        "RTSP/1.0",
        "RTSP/1.0 ",
        "RTSP/1.0 200 OK",
        "RTSP/",
        "R",
        "P",
        "GET_PARAMETER",
        "GET_PARAMETER ",
        "SET_PARAMETER x ",
        "PLAY rtsp://h/ RTSP/1.0",
        "PLAY rtsp://h/ RTSP/1.0\r",
        "PLAY RTSP/1.0 ",
        "\r",
        "$",
        "x$$$PLAY ",
        "$\0\0\u{8}x",
        "\0",
        "abc def ",
        "0123456789",
    ] {
        assert_linear(text, repeated(text.as_bytes()));
        // The stream is out of sync from the beginning.
        let lost = [b"\0", text.as_bytes()].concat();
        assert_linear(text, |size| {
            let mut bytes = repeated(text.as_bytes())(size);
            bytes[..lost.len()].copy_from_slice(&lost);
            bytes
        });
    }
}

#[test]
fn lines_that_turn_out_garbage_are_skipped_in_linear_time() {
    // As many plausible beginnings as a line holds, and an end that makes all of them garbage.
    for end in [
        "\n",
        "\r\n",
        "\x01",
        "\r\r\n",
        " RTSP/1.0\n",
        " RTSP/1.0   \r\n",
    ] {
        for (begin, blanks) in [
            ("PLAY ", 0),
            ("PLAY ", 4000),
            ("RTSP/1.0 ", 4000),
            ("P ", 100),
        ] {
            let line = format!("{}{}{end}", begin.repeat(700), " ".repeat(blanks));
            assert_linear(&format!("{begin}..{end:?}"), repeated(line.as_bytes()));
        }
    }
}

#[test]
fn messages_cost_in_proportion_to_their_length() {
    let fold = format!("X: y\r\n{}", " z\r\n".repeat(2000));
    let names: String = (0..200).map(|n| format!("N{n}: {n}\r\n")).collect();
    for (what, text) in [
        ("tiny requests", "P * RTSP/1.0\n\n".to_owned()),
        ("tiny answers", "RTSP/1.0 200\n\n".to_owned()),
        ("blank lines", "\r\n".to_owned()),
        ("line feeds", "\n".to_owned()),
        ("empty frames", "$\0\0\0".to_owned()),
        ("short frames", "$\0\0\u{4}abcd".to_owned()),
        ("a folded header", format!("PLAY * RTSP/1.0\r\n{fold}\r\n")),
        ("many headers", format!("PLAY * RTSP/1.0\r\n{names}\r\n")),
        (
            "no colons",
            format!("PLAY * RTSP/1.0\r\n{}\r\n", "x\r\n".repeat(5000)),
        ),
        (
            "bodies",
            format!(
                "RTSP/1.0 200\r\nContent-Length: 5000\r\n\r\n{}",
                "x".repeat(5000)
            ),
        ),
        (
            "bad lengths",
            "RTSP/1.0 200\r\nContent-Length: x\r\n\r\n".to_owned(),
        ),
        (
            "a body and then garbage",
            format!(
                "RTSP/1.0 200\r\nContent-Length: 50\r\n\r\n{}PLAY PLAY ",
                "x".repeat(50)
            ),
        ),
    ] {
        assert_linear(what, repeated(text.as_bytes()));
    }
    let body = format!("RTSP/1.0 200\r\nContent-Length: {MAX_BODY}\r\n\r\n");
    assert_linear("a long body", |size| {
        let mut bytes = body.clone().into_bytes();
        bytes.resize(size, b'x');
        bytes
    });
    assert_linear("a head without end", |size| {
        let mut bytes = b"PLAY * RTSP/1.0\r\nX: ".to_vec();
        bytes.resize(size.min(MAX_HEAD), b'y');
        bytes.resize(size, b'\n');
        bytes
    });
}

#[test]
fn frames_cost_in_proportion_to_their_length() {
    let frame = |payload: &[u8]| {
        let length = (payload.len() as u16).to_be_bytes();
        [&[b'$', 0][..], &length, payload].concat()
    };
    for (what, payload) in [
        ("RTP", [&[0x80, 96][..], &[7; 1400]].concat()),
        ("padded RTP", [&[0xa0, 96][..], &[7; 1400]].concat()),
        ("RTCP", [&[0x80, 200][..], &[7; 26]].concat()),
        ("the longest", vec![0x80; 65_535]),
    ] {
        assert_linear(what, repeated(&frame(&payload)));
    }
}

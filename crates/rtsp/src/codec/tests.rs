use proptest::prelude::*;

use crate::codec::{
    BUFFER_KEPT_MAX, Decoder, Headers, Item, MAX_BODY, MAX_HEAD, MAX_START_LINE,
    MESSAGES_PER_READ_MAX, Method, Overflow, Request, Response, SPLIT_FRAME_KEPT,
    USELESS_BYTES_MAX, cseq,
};

/// An item without borrows. Adjacent garbage is added up. Of RTP frames longer than
/// [`SPLIT_FRAME_KEPT`], only the first bytes and the length.
#[derive(Clone, Debug, PartialEq)]
enum OwnedItem {
    Frame(u8, Vec<u8>, usize),
    Request(Request),
    Response(Response),
    Garbage(usize),
    Malformed(&'static str),
}

fn push_item(items: &mut Vec<OwnedItem>, item: Item<'_>) {
    let item = match item {
        Item::Frame {
            channel,
            payload,
            length,
        } => {
            let owned = frame(
                channel,
                &[payload, &vec![0; length - payload.len()]].concat(),
            );
            if let OwnedItem::Frame(_, wanted, _) = &owned {
                assert!(payload.len() >= wanted.len(), "as much as is wanted");
            }
            owned
        }
        Item::Request(request) => OwnedItem::Request(request),
        Item::Response(response) => OwnedItem::Response(response),
        Item::Malformed(malformed) => OwnedItem::Malformed(malformed.reason),
        Item::Garbage { bytes } => OwnedItem::Garbage(bytes),
    };
    match (items.last_mut(), item) {
        (Some(OwnedItem::Garbage(sum)), OwnedItem::Garbage(bytes)) => *sum += bytes,
        (_, item) => items.push(item),
    }
}

/// Returns the part of a frame that does not depend on where reads end.
fn frame(channel: u8, payload: &[u8]) -> OwnedItem {
    let in_part = payload.len() > SPLIT_FRAME_KEPT
        && payload[0] & 0xe0 == 0x80
        && !(192..=223).contains(&payload[1]);
    let wanted = if in_part {
        SPLIT_FRAME_KEPT
    } else {
        payload.len()
    };
    OwnedItem::Frame(channel, payload[..wanted].to_vec(), payload.len())
}

fn decode_pieces(pieces: &[&[u8]]) -> (Vec<OwnedItem>, Result<usize, Overflow>) {
    let mut decoder = Decoder::new();
    let mut items = Vec::new();
    for piece in pieces {
        if let Err(overflow) = decoder.feed(piece, |item| push_item(&mut items, item)) {
            return (items, Err(overflow));
        }
    }
    (items, Ok(decoder.buffered()))
}

/// Returns the offset in the stream at which each item was complete.
fn item_ends(pieces: &[&[u8]]) -> Vec<usize> {
    let mut decoder = Decoder::new();
    let (mut ends, mut begin) = (Vec::new(), 0);
    for piece in pieces {
        let fed = decoder.feed_with_ends(piece, |_, end| ends.push(begin + end));
        fed.expect("nothing is too large");
        begin += piece.len();
    }
    ends
}

#[test]
fn item_ends_do_not_depend_on_read_boundaries() {
    let rtp = [&[b'$', 0, 0, 200, 0x80, 96][..], &[7; 198]].concat();
    let padded = [&[b'$', 0, 0, 200, 0xa0, 96][..], &[7; 198]].concat();
    let rtcp = [&[b'$', 1, 0, 28, 0x80, 200][..], &[7; 26]].concat();
    let answer = b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 5\r\n\r\nhello".to_vec();
    let items = [rtp.clone(), rtcp, padded, answer, rtp];
    let ends: Vec<usize> = items
        .iter()
        .scan(0, |end, item| {
            *end += item.len();
            Some(*end)
        })
        .collect();
    let stream = items.concat();
    for size in 1..=stream.len() {
        let pieces: Vec<&[u8]> = stream.chunks(size).collect();
        assert_eq!(item_ends(&pieces), ends, "in pieces of {size}");
    }
}

fn decode(bytes: &[u8]) -> Vec<OwnedItem> {
    let (items, end) = decode_pieces(&[bytes]);
    assert_eq!(end, Ok(0), "nothing is left over");
    items
}

fn response(status: u16, reason: &str, headers: &[(&str, &str)], body: &[u8]) -> OwnedItem {
    let mut all = Headers::new();
    for (name, value) in headers {
        all.push(*name, *value);
    }
    OwnedItem::Response(Response {
        status,
        reason: reason.to_owned(),
        headers: all,
        body: body.to_vec(),
    })
}

#[test]
fn plain_response_is_decoded() {
    let bytes = b"RTSP/1.0 200 OK\r\nCSeq: 3\r\nContent-Length: 4\r\n\r\nv=0\n";
    assert_eq!(
        decode(bytes),
        [response(
            200,
            "OK",
            &[("CSeq", "3"), ("Content-Length", "4")],
            b"v=0\n"
        )]
    );
}

#[test]
fn common_server_mistakes_are_tolerated() {
    let bytes = b"\r\n\nRTSP/1.0 404\nCSeq : 7\nServer: a\n  folded\n\tagain \nno colon\nX:\n\n";
    assert_eq!(
        decode(bytes),
        [response(
            404,
            "",
            &[("CSeq", "7"), ("Server", "a folded again"), ("X", "")],
            b""
        )]
    );
    assert_eq!(
        decode(b"RTSP/2.0  200  All right \r\n\r\n"),
        [response(200, "All right", &[], b"")]
    );
}

#[test]
fn header_names_are_case_insensitive() {
    let OwnedItem::Response(response) =
        &decode(b"RTSP/1.0 200 OK\r\ncseq: 12\r\nPUBLIC: A\r\npublic: B\r\n\r\n")[0]
    else {
        panic!("a response");
    };
    assert_eq!(cseq(&response.headers), Some(12));
    assert_eq!(
        response.headers.all("Public").collect::<Vec<_>>(),
        ["A", "B"]
    );
}

#[test]
fn frames_are_decoded_between_messages() {
    let mut bytes = b"$\x00\x00\x03abc".to_vec();
    bytes.extend_from_slice(b"RTSP/1.0 200 OK\r\n\r\n$\x01\x00\x00$\x02\x00\x01$");
    assert_eq!(
        decode(&bytes),
        [
            frame(0, b"abc"),
            response(200, "OK", &[], b""),
            frame(1, b""),
            frame(2, b"$"),
        ]
    );
}

#[test]
fn only_the_beginning_of_a_split_rtp_packet_is_kept() {
    let packet = |first: u8, second: u8| [vec![first, second], vec![7; 30_000]].concat();
    for (payload, kept) in [
        (packet(0x80, 96), 4 + SPLIT_FRAME_KEPT),
        (packet(0x80, 200), 20_000),
        (packet(0xa0, 96), 20_000),
        (packet(0x00, 96), 20_000),
    ] {
        let bytes = framed(1, &payload);
        let mut decoder = Decoder::new();
        let mut items = Vec::new();
        for piece in [&bytes[..5], &bytes[5..100], &bytes[100..20_000]] {
            decoder
                .feed(piece, |item| push_item(&mut items, item))
                .unwrap();
        }
        assert_eq!((decoder.buffered(), items.len()), (kept, 0));
        decoder
            .feed(&bytes[20_000..], |item| push_item(&mut items, item))
            .unwrap();
        assert_eq!(items, [frame(1, &payload)]);
        assert_eq!(decoder.buffered(), 0);
        assert!(decoder.memory() <= BUFFER_KEPT_MAX);
    }
}

#[test]
fn requests_of_a_server_are_decoded() {
    let items = decode(b"ANNOUNCE rtsp://a/b c RTSP/1.0\r\nCSeq: 1\r\n\r\n");
    let OwnedItem::Request(request) = &items[0] else {
        panic!("a request");
    };
    assert_eq!(request.method, Method::Announce);
    assert_eq!(request.uri, "rtsp://a/b c");
    assert!(matches!(
        &decode(b"FLY * RTSP/1.0\r\n\r\n")[0],
        OwnedItem::Request(Request { method: Method::Other(name), .. }) if name == "FLY"
    ));
}

#[test]
fn garbage_is_skipped_to_the_next_frame_or_message() {
    // No packet of version 2 follows the `$` in the garbage.
    let mut bytes = b"\x01\x02rubbish $\x00\x00\x10\x00 more\n".to_vec();
    let garbage = bytes.len();
    let packet = [0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
    bytes.extend_from_slice(b"$\x00\x00\x0c");
    bytes.extend_from_slice(&packet);
    bytes.extend_from_slice(b"junkRTSP/1.0 200 OK\r\n\r\n");
    assert_eq!(
        decode(&bytes),
        [
            OwnedItem::Garbage(garbage),
            frame(0, &packet),
            OwnedItem::Garbage(4),
            response(200, "OK", &[], b""),
        ]
    );
}

#[test]
fn a_content_length_that_is_too_small_leaves_garbage() {
    let items = decode(
        b"RTSP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nv=0\r\ns=-\r\nRTSP/1.0 404 Gone\r\n\r\n",
    );
    assert_eq!(
        items,
        [
            response(200, "OK", &[("Content-Length", "2")], b"v="),
            OwnedItem::Garbage(8),
            response(404, "Gone", &[], b""),
        ]
    );
}

#[test]
fn invalid_content_length_is_malformed() {
    for (bytes, what) in [
        (
            &b"RTSP/1.0 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"[..],
            "conflicting values of Content-Length",
        ),
        (
            b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n",
            "Content-Length is not a number",
        ),
        (
            b"RTSP/1.0 200 OK\r\nContent-Length:\r\n\r\n",
            "Content-Length is not a number",
        ),
    ] {
        assert_eq!(decode(bytes), [OwnedItem::Malformed(what)]);
    }
    let twice = b"RTSP/1.0 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx";
    assert!(matches!(&decode(twice)[0], OwnedItem::Response(r) if r.body == b"x"));
}

#[test]
fn oversized_messages_end_the_stream() {
    let mut head = b"RTSP/1.0 200 OK\r\n".to_vec();
    head.resize(MAX_HEAD + 1, b'a');
    let body = format!(
        "RTSP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n",
        MAX_BODY + 1
    );
    let huge = "RTSP/1.0 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n";
    let many = format!("RTSP/1.0 200 OK\r\n{}\r\n", "a: b\r\n".repeat(300));
    for (bytes, what) in [
        (head.as_slice(), "head too long"),
        (body.as_bytes(), "body too long"),
        (huge.as_bytes(), "body too long"),
        (many.as_bytes(), "too many headers"),
    ] {
        let mut decoder = Decoder::new();
        assert_eq!(decoder.feed(bytes, |_| ()), Err(Overflow::TooLarge(what)));
        assert_eq!(decoder.feed(b"x", |_| ()), Err(Overflow::TooLarge(what)));
        assert_eq!(decoder.buffered(), 0);
    }
    // A long line that is not a start line is garbage, not an overflow.
    let line = vec![b'a'; 3 * MAX_START_LINE];
    assert!(
        matches!(decode_pieces(&[&line]).0[..], [OwnedItem::Garbage(n)] if n >= MAX_START_LINE)
    );
}

#[test]
fn a_header_value_cannot_smuggle_a_line() {
    let mut request = Request::new(Method::Options, "*");
    request.headers.push("User-Agent", "a\r\nEvil: b");
    let items = decode(&request.encode());
    assert!(matches!(&items[0], OwnedItem::Request(r) if r.headers.get("Evil").is_none()));
}

fn header() -> impl Strategy<Value = (String, String)> {
    (
        "[A-Za-z][A-Za-z-]{0,12}".prop_filter("has a meaning of its own", |name| {
            !name.eq_ignore_ascii_case("content-length")
        }),
        "([!-~]([ -~]{0,20}[!-~])?)?",
    )
}

fn headers() -> impl Strategy<Value = Headers> {
    prop::collection::vec(header(), 0..6).prop_map(|all| {
        let mut headers = Headers::new();
        for (name, value) in all {
            headers.push(name, value);
        }
        headers
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..60)
}

fn framed(channel: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[b'$', channel, high, low], payload].concat()
}

/// An item and its encoding.
fn item() -> impl Strategy<Value = (Vec<u8>, OwnedItem)> {
    let first = prop_oneof![Just(0x80), Just(0xa0), any::<u8>()];
    let second = prop_oneof![Just(96), Just(200), any::<u8>()];
    let packet = (first, second, prop::collection::vec(any::<u8>(), 0..300))
        .prop_map(|(first, second, rest)| [vec![first, second], rest].concat());
    let frame = (any::<u8>(), prop_oneof![body(), packet])
        .prop_map(|(channel, payload)| (framed(channel, &payload), frame(channel, &payload)));
    let method = prop_oneof![
        prop::sample::select(Method::KNOWN.to_vec()),
        "[A-Z][A-Z_]{0,20}".prop_map(|name| Method::from_name(&name)),
    ];
    let request = (
        method,
        "(\\*|rtsp://[a-z0-9/?=&;,-]{1,20})",
        headers(),
        body(),
    )
        .prop_map(|(method, uri, headers, body)| {
            let request = Request {
                method,
                uri,
                headers,
                body,
            };
            (request.encode(), request)
        });
    let request = request.prop_map(|(bytes, mut request)| {
        if !request.body.is_empty() {
            let length = request.body.len().to_string();
            request.headers.push("Content-Length", length);
        }
        (bytes, OwnedItem::Request(request))
    });
    let response = (
        100u16..=999,
        "([!-~]([ -~]{0,10}[!-~])?)?",
        headers(),
        body(),
    )
        .prop_map(|(status, reason, headers, body)| {
            let mut response = Response {
                status,
                reason,
                headers,
                body,
            };
            let bytes = response.encode();
            if !response.body.is_empty() {
                let length = response.body.len().to_string();
                response.headers.push("Content-Length", length);
            }
            (bytes, OwnedItem::Response(response))
        });
    prop_oneof![3 => frame, 1 => request, 1 => response]
}

fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.push(0);
    at.push(bytes.len());
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn encoded_items_are_decoded_however_they_are_split(
        items in prop::collection::vec(item(), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let bytes: Vec<u8> = items.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let expected: Vec<OwnedItem> = items.into_iter().map(|(_, item)| item).collect();
        let (found, end) = decode_pieces(&cut(&bytes, &cuts));
        prop_assert_eq!(found, expected);
        prop_assert_eq!(end, Ok(0));
    }

    #[test]
    fn items_do_not_depend_on_how_bytes_are_split(
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            item().prop_map(|(bytes, _)| bytes),
            item().prop_map(|(mut bytes, _)| { bytes.truncate(bytes.len() / 2); bytes }),
            "[$RTSP/1.0 \r\n2ADEG:]{0,20}".prop_map(String::into_bytes),
            Just(b"RTSP/1.0 200 OK\r\n".to_vec()),
            Just(b"$\x00\x00\x08\x80".to_vec()),
            Just(vec![b'P'; MAX_START_LINE]),
            Just([b"PLAY ".as_slice(), &vec![b'P'; MAX_START_LINE]].concat()),
            Just(vec![b'\n'; 3]),
        ], 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let bytes = pieces.concat();
        let whole = decode_pieces(&[&bytes]);
        let parts = decode_pieces(&cut(&bytes, &cuts));
        let (mut ours, mut theirs) = (whole.0, parts.0);
        // Garbage at the very end may be reported sooner or later. Its sum with the buffered bytes
        // is the same.
        let left = |items: &mut Vec<OwnedItem>, kept: Result<usize, Overflow>| {
            let garbage = match items.last() {
                Some(OwnedItem::Garbage(bytes)) => { let bytes = *bytes; items.pop(); bytes }
                _ => 0,
            };
            kept.map(|kept| kept + garbage)
        };
        prop_assert_eq!(left(&mut ours, whole.1), left(&mut theirs, parts.1));
        prop_assert_eq!(ours, theirs);
    }
}

#[test]
fn too_many_messages_in_one_read_end_the_stream() {
    let request = b"P * RTSP/1.0\n\n";
    let mut decoder = Decoder::new();
    let mut count = 0;
    let fine = request.repeat(MESSAGES_PER_READ_MAX);
    for _ in 0..3 {
        decoder
            .feed(&fine, |_| count += 1)
            .expect("as many as are taken");
    }
    assert_eq!(count, 3 * MESSAGES_PER_READ_MAX);
    let fed = decoder.feed(&request.repeat(20_000), |_| count += 1);
    assert_eq!(fed, Err(Overflow::Messages));
    assert_eq!(count, 4 * MESSAGES_PER_READ_MAX + 1);
    assert_eq!(
        decoder.feed(request, |_| count += 1),
        Err(Overflow::Messages)
    );
    assert_eq!(count, 4 * MESSAGES_PER_READ_MAX + 1);
    let malformed = b"RTSP/1.0 200 OK\nContent-Length: x\n\n".repeat(MESSAGES_PER_READ_MAX + 1);
    assert_eq!(
        Decoder::new().feed(&malformed, |_| {}),
        Err(Overflow::Messages)
    );
}

#[test]
fn only_a_stream_of_mostly_garbage_is_ended() {
    let garbage_of = |text: &[u8]| {
        let mut decoder = Decoder::new();
        let mut bytes = 0;
        let all = text.repeat(256 * 1024 / text.len());
        let fed = all.chunks(10_000).try_for_each(|piece| {
            decoder.feed(piece, |item| match item {
                Item::Garbage { bytes: more } => bytes += more,
                Item::Frame { length, .. } => bytes += 4 + length,
                _ => {}
            })
        });
        assert_eq!(fed, Err(Overflow::Useless));
        bytes
    };
    for text in [&b"PLAY"[..], b"\0", b"$\0\0\0", b"$\0\0\x03abc"] {
        let useless = garbage_of(text);
        assert!(
            (USELESS_BYTES_MAX..=2 * USELESS_BYTES_MAX).contains(&useless),
            "{useless}"
        );
    }
    // As the reference server injects on request, for hours: 64 bytes between packets.
    let packet = [&[b'$', 0, 0, 200, 0x80, 96][..], &[7; 198]].concat();
    let piece = [&packet[..], &packet, &[0x81; 64]].concat();
    let mut decoder = Decoder::new();
    let mut garbage = 0;
    for read in piece.repeat(20_000).chunks(10_000) {
        let fed = decoder.feed(read, |item| {
            if let Item::Garbage { bytes } = item {
                garbage += bytes;
            }
        });
        fed.expect("there is more of use");
    }
    assert_eq!(garbage, 20_000 * 64);
}

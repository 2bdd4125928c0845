use proptest::prelude::*;

use super::*;

/// Decodes pieces: the items, the joined bodies, and the state at the close.
fn decode(pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>, Result<CloseState, ResponseError>) {
    let mut decoder = ResponseDecoder::new();
    let (mut items, mut all) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut at = 0;
        loop {
            match decoder.next(piece, &mut at) {
                Err(malformed) => return (items, all, Err(malformed)),
                Ok(None) => break,
                Ok(Some(ResponseItem::Head(head))) => {
                    items.push(format!("{} {}", head.status, head.reason))
                }
                Ok(Some(ResponseItem::Body { bytes, start })) => {
                    assert_eq!(&piece[start..start + bytes.len()], bytes);
                    all.extend_from_slice(bytes);
                }
                Ok(Some(ResponseItem::End)) => items.push("end".to_owned()),
            }
        }
        assert!(decoder.buffer.len() <= MAX_HEAD);
    }
    (items, all, Ok(decoder.at_close()))
}

fn whole(text: &str) -> (Vec<String>, String, Result<CloseState, ResponseError>) {
    let (items, body, end) = decode(&[text.as_bytes()]);
    (items, String::from_utf8_lossy(&body).into_owned(), end)
}

#[test]
fn requests_have_a_host_field() {
    let url = Url::parse("http://u:p@h:81/a?b").expect("a URL");
    let request = write_request("GET", &url, Version::Http11, &[("Accept", "*/*")]);
    assert_eq!(
        request,
        b"GET /a?b HTTP/1.1\r\nHost: h:81\r\nAccept: */*\r\n\r\n"
    );
    assert!(is_token("X-A") && !is_token("a b") && !is_token(""));
    assert!(is_value("a b") && !is_value("a\r\nb"));
}

#[test]
fn bodies_end_by_length_chunk_or_close() {
    let (items, body, end) = whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef");
    assert_eq!(
        (&*items.join(","), &*body, end),
        ("200 OK,end", "abc", Ok(CloseState::Over))
    );
    let (items, body, end) = whole("HTTP/1.0 200 Fine so far\nX: y\n\nabc");
    assert_eq!(
        (&*items.join(","), &*body, end),
        ("200 Fine so far", "abc", Ok(CloseState::UntilClose))
    );
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\nContent-Length: 9\r\n\r\n3;x=y\r\nabc\r\n0A\r\n0123456789\r\n";
    let (_, body, end) = whole(chunked);
    assert_eq!(
        (&*body, end),
        ("abc0123456789", Ok(CloseState::TruncatedBody))
    );
    let (items, body, end) = whole(&format!("{chunked}0\r\nTrailer: 1\r\n\r\nmore"));
    assert_eq!(
        (&*items.join(","), &*body, end),
        ("200 OK,end", "abc0123456789", Ok(CloseState::Over))
    );
    let (items, ..) = whole("\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204\r\n\r\n");
    assert_eq!(items, ["204 ", "end"]);
    assert_eq!(whole("").2, Ok(CloseState::Empty));
    assert_eq!(whole("HTTP/1.1 200").2, Ok(CloseState::TruncatedHead));
    assert_eq!(
        whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").2,
        Ok(CloseState::TruncatedBody)
    );
}

#[test]
fn folds_at_the_ends_of_a_value_add_no_space() {
    let text = b"HTTP/1.1 302 Found\r\nLocation:\r\n /x\r\nA: 1\r\n \t\r\n\r\n";
    let Ok(Some(ResponseItem::Head(head))) = ResponseDecoder::new().next(text, &mut 0) else {
        panic!("a head");
    };
    assert_eq!(head.headers.get("Location"), Some("/x"));
    assert_eq!(head.headers.get("A"), Some("1"));
}

#[test]
fn header_fields_are_found_whatever_their_case_and_folds() {
    let text = b"HTTP/1.1 302 Found\r\nLOCATION: /x\r\nA: 1\r\n  2\r\na: 3\r\n\r\n";
    let mut at = 0;
    let item = ResponseDecoder::new().next(text, &mut at).expect("a head");
    let Some(ResponseItem::Head(head)) = item else {
        panic!("{item:?} is not a head");
    };
    assert_eq!((head.version, head.status), (Version::Http11, 302));
    assert_eq!(head.headers.get("Location"), Some("/x"));
    assert_eq!(head.headers.all("A").collect::<Vec<_>>(), ["1 2", "3"]);
}

#[test]
fn body_of_unknown_length_ends_with_the_connection() {
    for fields in [
        "Content-Length: -1",
        "Content-Length: -1, -1",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: ,\r\nContent-Length:",
    ] {
        let (items, body, end) = whole(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nabc"));
        assert_eq!(
            (&*items, &*body),
            (&["200 OK".to_owned()][..], "abc"),
            "{fields}"
        );
        assert_eq!(end, Ok(CloseState::UntilClose), "{fields}");
    }
    let (_, body, end) =
        whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nabc");
    assert_eq!((&*body, end), ("ab", Ok(CloseState::Over)));
    let (_, body, end) = whole(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: Chunked\r\n\r\n\
         2\r\nab\r\n0\r\n\r\n",
    );
    assert_eq!((&*body, end), ("ab", Ok(CloseState::Over)));
}

#[test]
fn malformed_responses_are_reported() {
    let wrong = |text: &str| whole(text).2.expect_err(text);
    assert_eq!(wrong("ICY 200 OK\r\n\r\n"), ResponseError::NotHttp);
    assert_eq!(wrong("G"), ResponseError::NotHttp);
    assert_eq!(wrong("HTTP/1.1 20 OK\r\n\r\n"), ResponseError::StatusLine);
    assert_eq!(wrong("HTTP/1.1 2x0 OK\r\n\r\n"), ResponseError::StatusLine);
    assert_eq!(
        wrong("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"),
        ResponseError::HeaderField
    );
    assert_eq!(
        wrong("HTTP/1.1 200 OK\r\n folded\r\n\r\n"),
        ResponseError::HeaderField
    );
    let field = |field: &str| wrong(&format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n"));
    let length = |value| ResponseError::Length(FieldText::new(value));
    assert_eq!(field("Content-Length: 1, 2"), length("2"));
    assert_eq!(
        field("Content-Length: 1\r\nContent-Length: -1"),
        length("-1")
    );
    for wrong in ["x", "--1", "-", "+1", "1 1", "99999999999999999999"] {
        assert_eq!(field(&format!("Content-Length: {wrong}")), length(wrong));
    }
    let shown = length(&"é".repeat(99)).to_string();
    assert!(shown.contains("`éé") && shown.contains("...`"), "{shown}");
    assert_eq!(
        field("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"),
        ResponseError::TransferCoding(FieldText::new("gzip, chunked"))
    );
    let chunk = |chunk: &str| {
        wrong(&format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"
        ))
    };
    assert_eq!(chunk("x\r\n"), ResponseError::ChunkSize);
    assert_eq!(chunk("\r\n"), ResponseError::ChunkSize);
    assert_eq!(chunk("11111111111111111\r\n"), ResponseError::ChunkSize);
    assert_eq!(
        chunk(&format!("1;{}", "x".repeat(MAX_CHUNK_LINE))),
        ResponseError::ChunkSize
    );
    // More bytes arrive than the size states.
    assert_eq!(chunk("2\r\nabc\r\n"), ResponseError::ChunkEnd);
    assert_eq!(chunk("2\r\nab\rc"), ResponseError::ChunkEnd);
    assert_eq!(
        chunk(&format!("0\r\nX: {}", "x".repeat(MAX_HEAD))),
        ResponseError::HeadTooLong
    );
}

#[test]
fn endless_head_is_rejected() {
    assert_eq!(
        whole(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1 << 20))).2,
        Err(ResponseError::HeadTooLong)
    );
    assert_eq!(
        whole(&format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "x: y\r\n".repeat(200)
        ))
        .2,
        Err(ResponseError::HeadTooLong)
    );
    let pieces: Vec<&[u8]> = iter::once(&b"HTTP/1.1 200 OK\r\n"[..])
        .chain((0..10_000).map(|_| &b"x: y\r\n"[..]))
        .collect();
    assert_eq!(decode(&pieces).2, Err(ResponseError::HeadTooLong));
    let empty: Vec<&[u8]> = vec![b"\r\n"; 100];
    assert_eq!(decode(&empty).2, Ok(CloseState::Empty));
}

proptest! {
    #[test]
    fn result_does_not_depend_on_how_input_is_split(
        head in prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 200\n\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\n",
            "",
        ]),
        rest in prop::collection::vec(
            prop::sample::select(vec!["5\r\nhello\r\n", "0\r\n\r\n", "a;b\r\n0123456789\r\n", "\r\n", "x", "0", "HTTP/1.1 200 OK\r\n"]),
            0..8,
        ),
        cuts in prop::collection::vec(1usize..30, 1..20),
    ) {
        let text = head.to_owned() + &rest.concat();
        let mut pieces = Vec::new();
        let mut left = text.as_bytes();
        for cut in cuts.iter().cycle() {
            if left.is_empty() { break; }
            let (piece, after) = left.split_at((*cut).min(left.len()));
            pieces.push(piece);
            left = after;
        }
        let (items, body, end) = decode(&pieces);
        let (of_whole, whole_body, whole_end) = decode(&[text.as_bytes()]);
        prop_assert_eq!((items, body, end), (of_whole, whole_body, whole_end));
    }

    #[test]
    fn any_bytes_are_handled_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), good in any::<bool>()) {
        let head = if good { &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..] } else { b"" };
        let text = [head, &bytes].concat();
        let one_by_one: Vec<&[u8]> = text.chunks(1).collect();
        prop_assert_eq!(decode(&one_by_one), decode(&[&text]));
    }
}

#[test]
fn responses_are_read_in_linear_time() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let fields: String = (0..100).map(|n| format!("N{n}: {n}\r\n")).collect();
    for (what, first, again) in [
        ("blank lines", "", "\r\n".to_owned()),
        (
            "interim responses (1xx)",
            "",
            "HTTP/1.1 100 \r\n\r\n".to_owned(),
        ),
        ("an endless line", "HTTP/1.1 200 OK\r\nX: ", "y".to_owned()),
        ("endless lines", "HTTP/1.1 200 OK\r\n", "x:y\r\n".to_owned()),
        (
            "many fields",
            "",
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n"),
        ),
        ("a body", "HTTP/1.1 200 OK\r\n\r\n", "x".to_owned()),
        ("small chunks", chunked, "1\r\nx\r\n".to_owned()),
        (
            "large chunks",
            chunked,
            format!("1000\r\n{}\r\n", "x".repeat(4096)),
        ),
        (
            "extensions",
            chunked,
            format!("1;{}\r\nx\r\n", "e".repeat(200)),
        ),
        ("an endless size", chunked, "0".to_owned()),
        ("trailers", &format!("{chunked}0\r\n"), "x:y\r\n".to_owned()),
    ] {
        let make = |size| {
            first
                .bytes()
                .chain(again.bytes().cycle())
                .take(size)
                .collect()
        };
        steps::assert_linear(what, 8, make, |pieces| {
            let mut decoder = ResponseDecoder::new();
            for piece in pieces {
                let mut at = 0;
                loop {
                    match decoder.next(piece, &mut at) {
                        Ok(None) => break,
                        Ok(Some(ResponseItem::End)) | Err(_) => {
                            // A new decoder continues, as for the next response on another
                            // connection.
                            decoder = ResponseDecoder::new();
                            if at >= piece.len() {
                                break;
                            }
                        }
                        Ok(Some(_)) => {}
                    }
                }
            }
        });
    }
}

#[test]
fn bytes_before_the_head_are_bounded() {
    for before in [
        "\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 102 x\r\nA: b\r\n\r\n",
    ] {
        let fits = before.repeat(MAX_HEAD / before.len());
        let (items, _, end) = whole(&format!(
            "{fits}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!((items.len(), end), (2, Ok(CloseState::Over)));
        let (_, _, end) = whole(&format!("{fits}{before}{before}"));
        assert_eq!(end, Err(ResponseError::HeadTooLong));
    }
}

#[test]
fn small_chunks_are_accepted_but_not_endless_framing() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    // One packet of a transport stream in each chunk.
    let sound = format!("bc\r\n{}\r\n", "x".repeat(188)).repeat(20_000);
    assert_eq!(
        whole(&format!("{head}{sound}")).2,
        Ok(CloseState::TruncatedBody)
    );
    let tiny = "1\r\nx\r\n".repeat(20_000);
    let (_, body, end) = whole(&format!("{head}{tiny}"));
    assert_eq!(end, Err(ResponseError::ChunksTooSmall));
    assert!(
        (MAX_FRAMING / 6..MAX_FRAMING / 4).contains(&body.len()),
        "{}",
        body.len()
    );
}

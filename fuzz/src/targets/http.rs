//! HTTP/1: responses, and the requests of a relay's clients.

use http_ts::relay;
use kit::http1::{CloseState, Head, ResponseDecoder, ResponseError, ResponseItem};

use crate::input::Input;

/// The result of decoding a connection: the head, the body, `true` if the decoder reported the end,
/// and the state when the connection closes.
type Read = (
    Option<Head>,
    Vec<u8>,
    bool,
    Result<CloseState, ResponseError>,
);

fn decode(pieces: &[&[u8]]) -> Read {
    let mut decoder = ResponseDecoder::new();
    let (mut head, mut all, mut over) = (None, Vec::new(), false);
    for piece in pieces {
        let mut at = 0;
        loop {
            match decoder.next(piece, &mut at) {
                Err(malformed) => {
                    assert_eq!(decoder.next(b"x", &mut 0), Err(malformed));
                    return (head, all, over, Err(malformed));
                }
                Ok(None) => break,
                Ok(Some(item)) => {
                    assert!(!over, "{item:?} after the end");
                    match item {
                        ResponseItem::Head(found) => assert!(head.replace(*found).is_none()),
                        ResponseItem::Body { bytes, start } => {
                            assert!(head.is_some() && !bytes.is_empty());
                            assert_eq!(&piece[start..start + bytes.len()], bytes);
                            all.extend_from_slice(bytes);
                        }
                        ResponseItem::End => over = true,
                    }
                }
            }
        }
    }
    (head, all, over, Ok(decoder.at_close()))
}

/// Decodes a response: pieces give the same result as the whole. The head can be written and read
/// back.
pub(super) fn http1(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let cuts = input.cuts();
    let stream = input.rest();
    let whole = decode(&[stream]);
    assert_eq!(decode(&cuts.pieces(stream)), whole);
    assert!(whole.1.len() <= stream.len());
    if let Some(head) = whole.0 {
        let mut written = format!("HTTP/1.1 {} {}\r\n", head.status, head.reason).into_bytes();
        for name in ["Content-Length", "Transfer-Encoding", "Location"] {
            for value in head.headers.all(name) {
                written.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
        }
        written.extend_from_slice(b"\r\n");
        let (again, ..) = decode(&[&written]);
        let again = again.expect("what was read can be written");
        assert_eq!((again.status, &again.reason), (head.status, &head.reason));
        for name in ["Content-Length", "Transfer-Encoding", "Location"] {
            assert!(again.headers.all(name).eq(head.headers.all(name)));
        }
    }
}

/// Reads the head of a request to a relay.
pub(super) fn relay_request(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let size = usize::from(input.byte());
    relay::read_any(input.rest(), size);
}

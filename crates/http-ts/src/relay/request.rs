//! Requests of clients: the request head (RFC 9112, 2 and 3), as far as a relay needs it.

use std::net::{IpAddr, SocketAddr};

use kit::http1::{HeadReader, RequestLine, TooLong, Version, start_line};

/// Maximum length of a request head in bytes.
const HEAD_MAX: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) target: String,
    pub(super) is_get: bool,
    /// True for HTTP/1.1, whose clients support chunks.
    pub(super) supports_chunks: bool,
}

/// Reason why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    /// The head exceeds the length limit.
    TooLong,
    /// Not an HTTP/1 request.
    Malformed,
}

/// Reads the head of one request.
#[derive(Debug)]
pub(super) struct RequestReader(HeadReader);

impl Default for RequestReader {
    fn default() -> RequestReader {
        RequestReader(HeadReader::new(HEAD_MAX))
    }
}

impl RequestReader {
    /// Consumes bytes, and returns the request once its head is complete. Bytes after the head are
    /// ignored.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Option<Result<Request, RequestError>> {
        match self.0.read(&mut bytes) {
            Ok(None) => None,
            Ok(Some(head)) => Some(parse(&head).ok_or(RequestError::Malformed)),
            Err(TooLong) => Some(Err(RequestError::TooLong)),
        }
    }
}

fn parse(head: &[u8]) -> Option<Request> {
    let line = RequestLine::parse(start_line(head))?;
    Some(Request {
        target: line.target.to_owned(),
        is_get: line.method == "GET",
        supports_chunks: line.version == Version::Http11,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedGroup {
    pub(super) group: SocketAddr,
    /// True if RTP headers precede the transport stream.
    pub(super) rtp: bool,
}

impl RequestedGroup {
    /// Parses the target of a request. Returns `None` if it names no group.
    pub(super) fn parse(target: &str) -> Option<RequestedGroup> {
        let path = target.split('?').next()?;
        let (kind, group) = path.strip_prefix('/')?.split_once('/')?;
        let rtp = match kind {
            "udp" => false,
            "rtp" => true,
            _ => return None,
        };
        let group: SocketAddr = group.parse().ok()?;
        let is_group = match group.ip() {
            IpAddr::V4(address) => address.is_multicast(),
            IpAddr::V6(address) => address.is_multicast(),
        };
        (is_group && group.port() != 0).then_some(RequestedGroup { group, rtp })
    }
}

/// Reads arbitrary bytes as a request head, at once and in pieces of `size`.
///
/// # Panics
/// If the result depends on the pieces, or a target does not survive a round trip.
#[cfg(any(test, fuzzing))]
pub fn read_any(bytes: &[u8], size: usize) {
    let whole = RequestReader::default().feed(bytes);
    let mut reader = RequestReader::default();
    let mut pieces = bytes.chunks(size.max(1));
    let found = pieces.find_map(|piece| reader.feed(piece));
    assert_eq!(found, whole);
    assert!(reader.0.buffered() <= HEAD_MAX);
    if let Some(Ok(request)) = whole
        && let Some(group) = RequestedGroup::parse(&request.target)
    {
        let kind = if group.rtp { "rtp" } else { "udp" };
        let written = format!("/{kind}/{}", group.group);
        assert_eq!(RequestedGroup::parse(&written), Some(group));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use kit::mediagen::steps;

    fn read(text: &str) -> Option<Result<Request, RequestError>> {
        RequestReader::default().feed(text.as_bytes())
    }

    #[test]
    fn requests_are_read_as_soon_as_they_are_complete() {
        let text = "GET /udp/239.81.0.1:4056 HTTP/1.1\r\nHost: a\r\n\r\nmore";
        let expected = Request {
            target: "/udp/239.81.0.1:4056".to_owned(),
            is_get: true,
            supports_chunks: true,
        };
        assert_eq!(read(text), Some(Ok(expected.clone())));
        assert_eq!(read(&text[..text.len() - 6]), None);
        let mut reader = RequestReader::default();
        let bytewise = text.bytes().find_map(|byte| reader.feed(&[byte]));
        assert_eq!(bytewise, Some(Ok(expected)));
        let old = read("HEAD / HTTP/1.0\r\n\r\n")
            .expect("whole")
            .expect("sound");
        assert!(!old.is_get && !old.supports_chunks);
    }

    #[test]
    fn requests_are_read_in_linear_time() {
        for text in [
            "x",
            "\r\n",
            "\r",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nX: y\r\n",
        ] {
            let make = |size| text.bytes().cycle().take(size).collect();
            steps::assert_linear(text, 8, make, |pieces| {
                let mut reader = RequestReader::default();
                for piece in pieces {
                    // Once a request is complete, the next client's follows.
                    for part in piece.chunks(500) {
                        if reader.feed(part).is_some() {
                            reader = RequestReader::default();
                        }
                    }
                }
            });
        }
    }

    #[test]
    fn malformed_requests_are_rejected() {
        for wrong in [
            "\r\n\r\n",
            "GET /\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET / x HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(read(wrong), Some(Err(RequestError::Malformed)), "{wrong:?}");
        }
        assert_eq!(read(&"x".repeat(HEAD_MAX - 1)), None);
        assert_eq!(
            read(&"x".repeat(HEAD_MAX)),
            Some(Err(RequestError::TooLong))
        );
        assert_eq!(read(&"x".repeat(1 << 20)), Some(Err(RequestError::TooLong)));
    }

    #[test]
    fn groups_are_read_from_paths() {
        let wanted =
            |target: &str| RequestedGroup::parse(target).map(|w| (w.group.to_string(), w.rtp));
        let group = |text: &str, rtp| Some((text.to_owned(), rtp));
        assert_eq!(
            wanted("/udp/239.81.0.1:4056"),
            group("239.81.0.1:4056", false)
        );
        assert_eq!(
            wanted("/rtp/[ff15::1]:4056?x=1"),
            group("[ff15::1]:4056", true)
        );
        // The relay must not join or send to an address that is no group.
        for none in [
            "/",
            "/udp/",
            "/udp/10.0.0.1:4056",
            "/udp/239.81.0.1",
            "/udp/239.81.0.1:0",
            "/tcp/239.81.0.1:4056",
            "udp/239.81.0.1:4056",
        ] {
            assert_eq!(wanted(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..60)) {
            let mut reader = RequestReader::default();
            for piece in pieces {
                if reader.feed(&piece).is_some() {
                    break;
                }
                prop_assert!(reader.0.buffered() < HEAD_MAX);
            }
        }

        #[test]
        fn fragmentation_does_not_change_the_result(text in "GET /(udp|rtp)/[0-9\\[\\]:.a-f]{0,20} HTTP/1.[01]\r\n([a-z]{0,9}\r\n){0,3}", size in 0usize..20) {
            read_any(text.as_bytes(), size);
        }
    }
}

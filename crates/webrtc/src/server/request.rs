//! HTTP/1 requests with bodies, parsed from pieces of any size.

use kit::http1::{
    FieldRules, HeadReader, Headers, MAX_HEAD, MAX_HEADERS, RequestLine, lines, start_line,
};

/// Maximum length of a body, in bytes.
pub(super) const BODY_MAX: usize = 256 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path of the request target, without the query.
    pub(super) path: String,
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
}

/// Result of reading bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadResult {
    /// A complete request.
    Request(Request),
    /// The client waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1).
    ExpectsContinue,
    /// More bytes are needed.
    Incomplete,
}

/// Parser of requests. It holds at most one head and one body.
#[derive(Debug)]
pub(super) struct RequestReader {
    head: HeadReader,
    /// Request whose body is incomplete, with the body's full length.
    incomplete: Option<(Request, usize)>,
}

impl RequestReader {
    pub(super) fn new() -> RequestReader {
        RequestReader {
            head: HeadReader::new(MAX_HEAD),
            incomplete: None,
        }
    }

    /// Consumes the bytes up to the next result. An error is the status to answer with; nothing can
    /// be read after it.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Result<ReadResult, u16> {
        if self.incomplete.is_none() {
            // Empty lines before a request are ignored (RFC 9112, 2.2).
            if self.head.is_empty() {
                while let [b'\r' | b'\n', rest @ ..] = bytes {
                    *bytes = rest;
                }
            }
            let Some(head) = self.head.read(bytes).map_err(|_| 431u16)? else {
                return Ok(ReadResult::Incomplete);
            };
            let (request, length) = read_head(&head)?;
            let expects = request.headers.get("Expect");
            let expects_continue =
                expects.is_some_and(|text| text.eq_ignore_ascii_case("100-continue"));
            self.incomplete = Some((request, length));
            if expects_continue && length > 0 && bytes.is_empty() {
                return Ok(ReadResult::ExpectsContinue);
            }
        }
        let Some((request, length)) = &mut self.incomplete else {
            return Ok(ReadResult::Incomplete);
        };
        let missing = *length - request.body.len();
        let (body, rest) = bytes.split_at(missing.min(bytes.len()));
        request.body.extend_from_slice(body);
        *bytes = rest;
        if request.body.len() < *length {
            return Ok(ReadResult::Incomplete);
        }
        let complete = self.incomplete.take();
        Ok(complete.map_or(ReadResult::Incomplete, |(request, _)| {
            ReadResult::Request(request)
        }))
    }

    /// Number of bytes held.
    #[cfg(test)]
    fn held(&self) -> usize {
        let incomplete = self.incomplete.as_ref();
        self.head.buffered() + incomplete.map_or(0, |(request, _)| request.body.len())
    }
}

/// Parses a head. Returns the request without its body, and the body's length.
fn read_head(head: &[u8]) -> Result<(Request, usize), u16> {
    let line = RequestLine::parse(start_line(head)).ok_or(400u16)?;
    let fields = lines(head).skip(1);
    let headers = Headers::parse(fields, FieldRules::Strict, MAX_HEADERS).map_err(|_| 400u16)?;
    if headers.get("Transfer-Encoding").is_some() {
        // The length of the body must be stated (RFC 9112, 6.3).
        return Err(411);
    }
    let mut length = 0;
    for (index, text) in headers.all("Content-Length").enumerate() {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value: usize = match digits {
            // A value that overflows is above the limit in any case.
            true => text.parse().unwrap_or(usize::MAX),
            false => return Err(400),
        };
        if index > 0 && value != length {
            return Err(400);
        }
        length = value;
    }
    if length > BODY_MAX {
        return Err(413);
    }
    let path = line.target.split(['?', '#']).next().unwrap_or_default();
    let request = Request {
        method: line.method.to_owned(),
        path: path.to_owned(),
        headers,
        body: Vec::new(),
    };
    Ok((request, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], size: usize) -> (Vec<Request>, Option<u16>) {
        let (mut reader, mut found) = (RequestReader::new(), Vec::new());
        for mut piece in text.chunks(size) {
            loop {
                match reader.take(&mut piece) {
                    Ok(ReadResult::Request(request)) => found.push(request),
                    Ok(ReadResult::ExpectsContinue) => {}
                    Ok(ReadResult::Incomplete) => break,
                    Err(status) => return (found, Some(status)),
                }
            }
            assert!(reader.held() <= MAX_HEAD + BODY_MAX);
        }
        (found, None)
    }

    #[test]
    fn requests_parse_from_pieces_of_any_size() {
        let text = b"POST /whep/a?x=1 HTTP/1.1\r\nContent-Length: 5\r\nA: b\r\n\r\nv=0\r\n\r\n\
                     DELETE /session/1 HTTP/1.1\r\n\r\n";
        for size in 1..text.len() {
            let (found, error) = read(text, size);
            assert_eq!((found.len(), error), (2, None), "{size}");
            assert_eq!(found[0].path, "/whep/a");
            assert_eq!(found[0].body, b"v=0\r\n");
            assert_eq!(found[0].headers.get("a"), Some("b"));
            assert_eq!(found[1].method, "DELETE");
            assert!(found[1].body.is_empty());
        }
    }

    #[test]
    fn expect_continue_is_reported_once() {
        let mut reader = RequestReader::new();
        let mut head = &b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"[..];
        assert_eq!(reader.take(&mut head), Ok(ReadResult::ExpectsContinue));
        assert_eq!(reader.take(&mut head), Ok(ReadResult::Incomplete));
        let mut body = &b"ab"[..];
        assert!(
            matches!(reader.take(&mut body), Ok(ReadResult::Request(own)) if own.body == b"ab")
        );
    }

    #[test]
    fn invalid_requests_map_to_status_codes() {
        let long = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(MAX_HEAD));
        for (text, status) in [
            ("hello\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
            (
                "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                400,
            ),
            ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 262145\r\n\r\n", 413),
            (
                "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                413,
            ),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
            (&long, 431),
        ] {
            for size in [1, 1000, usize::MAX] {
                let (found, error) = read(text.as_bytes(), size.min(text.len()));
                assert_eq!((found.len(), error), (0, Some(status)), "{text:.60}");
            }
        }
    }
}

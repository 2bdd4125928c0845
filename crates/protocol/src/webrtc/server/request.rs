//! Requests of HTTP/1 with their bodies, out of pieces cut anywhere.

use crate::http1::{
    FieldRules, HeadReader, Headers, MAX_HEAD, MAX_HEADERS, RequestLine, lines, start_line,
};

/// The longest description that is taken, in bytes.
pub(super) const BODY_MAX: usize = 256 * 1024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Its path, without the query.
    pub(super) path: String,
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
}

/// What came next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// A whole request.
    Request(Request),
    /// The client waits to be told that its body is wanted (RFC 9110, 10.1.1).
    Waits,
    /// More has to come.
    Part,
}

/// Reads requests. It holds no more than a head and a body may be long.
#[derive(Debug)]
pub(super) struct RequestReader {
    head: HeadReader,
    /// A request whose body is still to come, and how long that is.
    begun: Option<(Request, usize)>,
}

impl RequestReader {
    pub(super) fn new() -> RequestReader {
        RequestReader {
            head: HeadReader::new(MAX_HEAD),
            begun: None,
        }
    }

    /// Takes what it needs of `bytes`. An error is the status to answer with, after which nothing
    /// more can be read.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Result<Came, u16> {
        if self.begun.is_none() {
            // Empty lines before a request are passed over (RFC 9112, 2.2).
            if self.head.is_empty() {
                while let [b'\r' | b'\n', rest @ ..] = bytes {
                    *bytes = rest;
                }
            }
            let Some(head) = self.head.take(bytes).map_err(|_| 431u16)? else {
                return Ok(Came::Part);
            };
            let (request, length) = read_head(&head)?;
            let expects = request.headers.get("Expect");
            let waits = expects.is_some_and(|text| text.eq_ignore_ascii_case("100-continue"));
            self.begun = Some((request, length));
            if waits && length > 0 && bytes.is_empty() {
                return Ok(Came::Waits);
            }
        }
        let Some((request, length)) = &mut self.begun else {
            return Ok(Came::Part);
        };
        let missing = *length - request.body.len();
        let (own, rest) = bytes.split_at(missing.min(bytes.len()));
        request.body.extend_from_slice(own);
        *bytes = rest;
        if request.body.len() < *length {
            return Ok(Came::Part);
        }
        let whole = self.begun.take();
        Ok(whole.map_or(Came::Part, |(request, _)| Came::Request(request)))
    }

    /// How many bytes are held.
    #[cfg(test)]
    fn held(&self) -> usize {
        let begun = self.begun.as_ref();
        self.head.held() + begun.map_or(0, |(request, _)| request.body.len())
    }
}

/// A request without its body, and how long that is.
fn read_head(head: &[u8]) -> Result<(Request, usize), u16> {
    let line = RequestLine::parse(start_line(head)).ok_or(400u16)?;
    let fields = lines(head).skip(1);
    let headers = Headers::parse(fields, FieldRules::Strict, MAX_HEADERS).map_err(|_| 400u16)?;
    if headers.get("Transfer-Encoding").is_some() {
        // Its length has to be said (RFC 9112, 6.3).
        return Err(411);
    }
    let mut length = 0;
    for (place, text) in headers.all("Content-Length").enumerate() {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let own: usize = match digits {
            // One that does not fit is too long in any case.
            true => text.parse().unwrap_or(usize::MAX),
            false => return Err(400),
        };
        if place > 0 && own != length {
            return Err(400);
        }
        length = own;
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
                    Ok(Came::Request(request)) => found.push(request),
                    Ok(Came::Waits) => {}
                    Ok(Came::Part) => break,
                    Err(status) => return (found, Some(status)),
                }
            }
            assert!(reader.held() <= MAX_HEAD + BODY_MAX);
        }
        (found, None)
    }

    #[test]
    fn requests_are_read_however_they_are_cut() {
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
    fn who_waits_to_send_a_body_is_told_once() {
        let mut reader = RequestReader::new();
        let mut head = &b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"[..];
        assert_eq!(reader.take(&mut head), Ok(Came::Waits));
        assert_eq!(reader.take(&mut head), Ok(Came::Part));
        let mut body = &b"ab"[..];
        assert!(matches!(reader.take(&mut body), Ok(Came::Request(own)) if own.body == b"ab"));
    }

    #[test]
    fn what_cannot_be_taken_has_a_status() {
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

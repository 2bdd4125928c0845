//! Message heads: a start line and header fields (RFC 9112, 2 to 5), read and written. RTSP has
//! header fields of the same form (RFC 2326, 4.2).

use super::headers::{FieldError, FieldRules, Headers, USUAL_HEAD, is_token, is_value};
use super::{MAX_HEADERS, ResponseError, Version};
use crate::mediagen::steps;

/// Head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Version of the response.
    pub version: Version,
    /// Status code, from 100 to 999.
    pub status: u16,
    /// Reason phrase.
    pub reason: String,
    pub headers: Headers,
}

impl Head {
    /// Parses a head without the empty line at its end.
    pub(super) fn parse(bytes: &[u8]) -> Result<Head, ResponseError> {
        let mut lines = lines(bytes).filter(|line| !line.is_empty());
        let first = String::from_utf8_lossy(lines.next().unwrap_or_default());
        let (version, status, reason) = parse_status_line(&first)?;
        let headers = Headers::parse(lines, FieldRules::Strict, MAX_HEADERS);
        Ok(Head {
            version,
            status,
            reason: reason.to_owned(),
            headers: headers.map_err(|error| match error {
                FieldError::Malformed => ResponseError::HeaderField,
                FieldError::TooMany => ResponseError::HeadTooLong,
            })?,
        })
    }

    /// Returns `true` if the connection can be reused after this response (RFC 9112, 9.3): with
    /// HTTP/1.0 only if the server says so.
    pub fn keeps_alive(&self) -> bool {
        let options = self.headers.list("Connection");
        let mut keeps = self.version == Version::Http11;
        for option in options {
            if option.eq_ignore_ascii_case("close") {
                return false;
            }
            keeps |= option.eq_ignore_ascii_case("keep-alive");
        }
        keeps
    }
}

/// Writes a header field. Line ends and NUL become spaces, so that the value cannot begin another
/// field.
pub fn write_field(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend(value.bytes().map(|byte| match byte {
        b'\r' | b'\n' | 0 => b' ',
        byte => byte,
    }));
    out.extend_from_slice(b"\r\n");
}

/// Writes a whole head with the empty line at its end. The start line must not contain line ends.
pub fn write_head(start_line: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    debug_assert!(is_value(start_line));
    let mut out = Vec::with_capacity(USUAL_HEAD);
    out.extend_from_slice(start_line.as_bytes());
    write_fields(fields.iter().copied(), &mut out);
    out
}

/// Writes what follows a start line: its end, header fields, and the empty line at the end.
pub(super) fn write_fields<'a>(
    fields: impl Iterator<Item = (&'a str, &'a str)>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"\r\n");
    for (name, value) in fields {
        debug_assert!(is_token(name) && is_value(value));
        write_field(name, value, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Lines of a head, which end in CRLF or LF.
pub fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Start line of a head whose lines end in CRLF.
pub fn start_line(head: &[u8]) -> &[u8] {
    head.split(|&byte| byte == b'\r').next().unwrap_or_default()
}

/// Start line of a request (RFC 9112, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub version: Version,
}

impl RequestLine<'_> {
    /// Parses a start line. Returns `None` if it is not an HTTP/1 request.
    pub fn parse(line: &[u8]) -> Option<RequestLine<'_>> {
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let version = match version {
            "HTTP/1.0" => Version::Http10,
            "HTTP/1.1" => Version::Http11,
            _ => return None,
        };
        words.next().is_none().then_some(RequestLine {
            method,
            target,
            version,
        })
    }
}

/// Parses the status line of a response (RFC 9112, 4): version, status and reason phrase.
pub fn parse_status_line(line: &str) -> Result<(Version, u16, &str), ResponseError> {
    let mut parts = line.splitn(3, ' ');
    let version = match parts.next().unwrap_or_default() {
        "HTTP/1.0" => Version::Http10,
        // A higher minor version is treated as the highest known one (RFC 9110, 2.5).
        name if name.strip_prefix("HTTP/1.").is_some_and(is_digit) => Version::Http11,
        _ => return Err(ResponseError::StatusLine),
    };
    let status = parts.next().unwrap_or_default();
    let number = status.parse::<u16>().ok();
    let number = number.filter(|number| status.len() == 3 && (100..1000).contains(number));
    let status = number.ok_or(ResponseError::StatusLine)?;
    Ok((version, status, parts.next().unwrap_or_default().trim()))
}

fn is_digit(text: &str) -> bool {
    matches!(text.as_bytes(), [digit] if digit.is_ascii_digit())
}

/// The head exceeds the maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Buffers a head whose lines end in CRLF, from pieces that are split anywhere. It buffers no more
/// than its maximum, and scans each byte at most twice.
#[derive(Debug)]
pub struct HeadReader {
    head: Vec<u8>,
    /// Maximum length of the head in bytes, with the empty line at its end.
    bytes_max: usize,
}

impl HeadReader {
    /// Creates a reader with a maximum of `bytes_max` bytes.
    pub const fn new(bytes_max: usize) -> HeadReader {
        HeadReader {
            head: Vec::new(),
            bytes_max,
        }
    }

    /// Consumes bytes of the head from `bytes`. Returns the head once it is complete, without the
    /// empty line at its end; the bytes after it stay in `bytes`.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, TooLong> {
        const END: &[u8] = b"\r\n\r\n";
        let before = self.head.len();
        // The end may begin in the bytes received before.
        let from = before.saturating_sub(END.len() - 1);
        let room = self.bytes_max - before;
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        steps::count_bytes(self.head.len() - from);
        let end = self.head[from..]
            .windows(END.len())
            .position(|window| window == END);
        match end {
            Some(end) => {
                *bytes = &bytes[from + end + END.len() - before..];
                let mut head = std::mem::take(&mut self.head);
                steps::count_bytes(from + end);
                head.truncate(from + end);
                Ok(Some(head))
            }
            None if self.head.len() == self.bytes_max => Err(TooLong),
            None => {
                *bytes = &[];
                Ok(None)
            }
        }
    }

    /// Returns `true` if no byte of a head has arrived.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Number of buffered bytes.
    pub fn buffered(&self) -> usize {
        self.head.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_values_cannot_inject_lines() {
        let mut out = Vec::new();
        write_field("A", "b\r\nC: d\0", &mut out);
        assert_eq!(out, b"A: b  C: d \r\n");
        let head = write_head("GET / HTTP/1.1", &[("Host", "h"), ("X", "")]);
        assert_eq!(head, b"GET / HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n");
    }

    #[test]
    fn head_reader_stops_at_the_end_of_the_head() {
        let text = b"GET / HTTP/1.1\r\nA: b\n\nC: d\r\n\r\nmore";
        for size in 1..text.len() {
            let mut reader = HeadReader::new(64);
            let mut found = None;
            let mut taken = 0;
            for mut piece in text.chunks(size) {
                let before = piece.len();
                found = reader.read(&mut piece).expect("the head fits");
                taken += before - piece.len();
                if found.is_some() {
                    break;
                }
            }
            let head = found.expect("the head is complete");
            assert_eq!(head, text[..taken - 4]);
            assert_eq!((taken, reader.buffered()), (text.len() - 4, 0));
            let line = RequestLine::parse(start_line(&head)).expect("a request");
            assert_eq!((line.method, line.target), ("GET", "/"));
        }
        let mut reader = HeadReader::new(8);
        assert_eq!(reader.read(&mut &b"1234567"[..]), Ok(None));
        assert_eq!(reader.read(&mut &b"89"[..]), Err(TooLong));
        assert_eq!(reader.buffered(), 8);
        let whole = HeadReader::new(8).read(&mut &b"1234\r\n\r\n9"[..]);
        assert_eq!(whole, Ok(Some(b"1234".to_vec())));
    }

    #[test]
    fn start_lines_need_three_words() {
        for wrong in [
            "",
            "GET /",
            "GET / HTTP/2.0",
            "GET / x HTTP/1.1",
            "GET  / HTTP/1.1",
        ] {
            assert_eq!(RequestLine::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(
            parse_status_line("HTTP/1.7 404  Not here "),
            Ok((Version::Http11, 404, "Not here"))
        );
        for wrong in ["HTTP/1.1", "HTTP/2 200", "HTTP/1.1 99", "HTTP/1.1 0200 OK"] {
            assert_eq!(parse_status_line(wrong), Err(ResponseError::StatusLine));
        }
    }
}

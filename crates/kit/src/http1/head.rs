//! Message heads: a start line and header fields (RFC 9112, 2 to 5), read and written. RTSP has
//! header fields of the same form (RFC 2326, 4.2).

use std::borrow::Cow;

use super::{MAX_HEADERS, ResponseError, Version};
use crate::mediagen::steps;
use crate::url::percent_encode_bytes;

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

/// Header fields in message order. Names are case-insensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

/// Treatment of lines that are not header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRules {
    /// The head is malformed. A name that is not a token (RFC 9110, 5.6.2) is malformed too.
    Strict,
    /// The line is skipped. A name is any text before the colon.
    Lenient,
}

/// Reason why header fields could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// A line is not a header field.
    Malformed,
    /// There are too many fields.
    TooMany,
}

impl Headers {
    /// Creates an empty list.
    pub const fn new() -> Headers {
        Headers(Vec::new())
    }

    /// Parses at most `fields_max` fields. Empty lines are skipped.
    pub fn parse<'a>(
        lines: impl Iterator<Item = &'a [u8]>,
        rules: FieldRules,
        fields_max: usize,
    ) -> Result<Headers, FieldError> {
        let strict = rules == FieldRules::Strict;
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let line = decode_line(line);
            if line.starts_with([' ', '\t']) {
                // A folded line continues the value before it (RFC 9112, 5.2).
                match fields.last_mut() {
                    Some((_, value)) => unfold(value, line.trim()),
                    None if strict => return Err(FieldError::Malformed),
                    None => {}
                }
                continue;
            }
            let field = line.split_once(':').map(|(name, value)| match strict {
                true => (name.trim_end(), value.trim()),
                false => (name.trim(), value.trim()),
            });
            match field.filter(|(name, _)| !strict || is_token(name)) {
                Some(_) if fields.len() >= fields_max => return Err(FieldError::TooMany),
                Some((name, value)) => fields.push((name.to_owned(), value.to_owned())),
                None if strict => return Err(FieldError::Malformed),
                None => {}
            }
        }
        Ok(Headers(fields))
    }

    /// Returns the value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        let found = fields.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    /// Returns the values of all fields of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self
            .0
            .iter()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name));
        own.map(|(_, value)| value.as_str())
    }

    /// Returns the elements of a list-valued field, from all lines of this name, in order, without
    /// empty ones (RFC 9110, 5.3 and 5.6.1). Elements must not contain quoted commas.
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let elements = self.all(name).flat_map(|value| value.split(','));
        elements
            .map(str::trim)
            .filter(|element| !element.is_empty())
    }

    /// Returns `true` if the list contains the token, ignoring case.
    pub fn contains_token(&self, name: &str, token: &str) -> bool {
        self.list(name)
            .any(|element| element.eq_ignore_ascii_case(token))
    }

    /// Appends a field.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Replaces all fields of this name by one.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.remove(name);
        self.push(name, value);
    }

    /// Removes all fields of this name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
    }

    /// Returns all fields as name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Decodes a line. Bytes that are not UTF-8 are replaced, except in fields that hold a URL: there
/// they are percent-encoded, because the URL would differ without them.
fn decode_line(line: &[u8]) -> Cow<'_, str> {
    const OF_URLS: [&[u8]; 3] = [b"Location", b"Content-Location", b"Content-Base"];
    let text = String::from_utf8_lossy(line);
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
    let name = name.trim_ascii();
    match OF_URLS.iter().any(|of| of.eq_ignore_ascii_case(name)) {
        true if matches!(text, Cow::Owned(_)) => Cow::Owned(percent_encode_bytes(line)),
        _ => text,
    }
}

/// Appends a folded line to a value.
fn unfold(value: &mut String, more: &str) {
    if !value.is_empty() && !more.is_empty() {
        value.push(' ');
    }
    value.push_str(more);
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
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(start_line.as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in fields {
        debug_assert!(is_token(name) && is_value(value));
        write_field(name, value, &mut out);
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Returns `true` if the text is a token, which can be the name of a header field (RFC 9110,
/// 5.6.2).
pub fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

/// Returns `true` if the text can be the value of a header field (RFC 9110, 5.5): one line without
/// control characters.
pub fn is_value(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\t' || byte >= 0x20 && byte != 0x7f)
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
    fn a_list_may_span_lines_and_hold_empty_elements() {
        let text = "Connection: keep-alive\r\nA: x\r\nconnection: ,Foo ,\tUPGRADE,\r\nB:\r\n";
        let headers = Headers::parse(lines(text.as_bytes()), FieldRules::Strict, 9);
        let headers = headers.expect("sound fields");
        let all: Vec<_> = headers.list("Connection").collect();
        assert_eq!(all, ["keep-alive", "Foo", "UPGRADE"]);
        assert!(
            headers.contains_token("Connection", "upgrade")
                && headers.contains_token("Connection", "foo")
        );
        assert!(
            !headers.contains_token("Connection", "up") && !headers.contains_token("A", "upgrade")
        );
        assert_eq!(headers.list("B").chain(headers.list("C")).count(), 0);
    }

    #[test]
    fn url_fields_keep_bytes_that_are_not_utf8() {
        let head = b"location : /T\xe9l\xe9\r\nX: \xe9\r\nContent-Base: /\xc3\xa9\r\n";
        let headers = Headers::parse(lines(head), FieldRules::Strict, 9).expect("sound fields");
        assert_eq!(headers.get("Location"), Some("/T%E9l%E9"));
        assert_eq!(headers.get("X"), Some("\u{fffd}"));
        assert_eq!(headers.get("Content-Base"), Some("/é"));
    }

    fn fields(text: &str, rules: FieldRules, fields_max: usize) -> Result<String, FieldError> {
        let headers = Headers::parse(lines(text.as_bytes()), rules, fields_max)?;
        let all = headers
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        Ok(all.collect::<Vec<_>>().join(";"))
    }

    #[test]
    fn field_rules_decide_on_malformed_lines() {
        use FieldRules::{Lenient, Strict};
        let sound = "A: 1\r\nB : 2\n C\r\n\r\n\t\r\nD:\r\n  e\r\n";
        for rules in [Strict, Lenient] {
            assert_eq!(fields(sound, rules, 9).as_deref(), Ok("A=1;B=2 C;D=e"));
            assert_eq!(fields(sound, rules, 2), Err(FieldError::TooMany));
        }
        for (wrong, lenient) in [
            ("no colon\r\nA: 1", "A=1"),
            (" folded\r\nA: 1", "A=1"),
            ("a b: 1", "a b=1"),
            (": 1", "=1"),
        ] {
            assert_eq!(fields(wrong, Strict, 9), Err(FieldError::Malformed));
            assert_eq!(fields(wrong, Lenient, 9).as_deref(), Ok(lenient));
        }
    }

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

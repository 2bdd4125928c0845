//! Heads of messages: a start line and header fields (RFC 9112, 2 to 5), read and written. RTSP has
//! header fields of the same form (RFC 2326, 4.2).

use std::borrow::Cow;

use super::{MAX_HEADERS, Malformed, Version};
use crate::url::percent_encode_bytes;
use mediagen::steps;

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The version that the server speaks.
    pub version: Version,
    /// The status, from 100 to 999.
    pub status: u16,
    /// What the server says of the status, in words.
    pub reason: String,
    /// The header fields.
    pub headers: Headers,
}

impl Head {
    /// Reads a head, without the empty line at its end.
    pub(super) fn parse(bytes: &[u8]) -> Result<Head, Malformed> {
        let mut lines = lines(bytes).filter(|line| !line.is_empty());
        let first = String::from_utf8_lossy(lines.next().unwrap_or_default());
        let (version, status, reason) = parse_status_line(&first)?;
        let headers = Headers::parse(lines, FieldRules::Strict, MAX_HEADERS);
        Ok(Head {
            version,
            status,
            reason: reason.to_owned(),
            headers: headers.map_err(|error| match error {
                FieldError::Unreadable => Malformed::HeaderField,
                FieldError::TooMany => Malformed::HeadTooLong,
            })?,
        })
    }
}

impl Head {
    /// Whether the connection can be used for another request after this answer (RFC 9112, 9.3):
    /// one of HTTP/1.0 only if the server says so.
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

/// Header fields, in the order in which they stand in the message. Names are case-insensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

/// What becomes of a line that is no header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldRules {
    /// It makes the head unreadable; so does a name that is no token (RFC 9110, 5.6.2).
    Strict,
    /// It is passed over, and a name is whatever stands before the colon.
    Lenient,
}

/// Why header fields could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldError {
    /// A line is no header field.
    Unreadable,
    /// There are more than are taken.
    TooMany,
}

impl Headers {
    /// No header.
    pub const fn new() -> Headers {
        Headers(Vec::new())
    }

    /// Reads at most `most` fields. Empty lines are passed over.
    pub(crate) fn parse<'a>(
        lines: impl Iterator<Item = &'a [u8]>,
        rules: FieldRules,
        most: usize,
    ) -> Result<Headers, FieldError> {
        let strict = rules == FieldRules::Strict;
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let line = text(line);
            if line.starts_with([' ', '\t']) {
                // A folded line goes on with the value before (RFC 9112, 5.2).
                match fields.last_mut() {
                    Some((_, value)) => unfold(value, line.trim()),
                    None if strict => return Err(FieldError::Unreadable),
                    None => {}
                }
                continue;
            }
            let field = line.split_once(':').map(|(name, value)| match strict {
                true => (name.trim_end(), value.trim()),
                false => (name.trim(), value.trim()),
            });
            match field.filter(|(name, _)| !strict || is_token(name)) {
                Some(_) if fields.len() >= most => return Err(FieldError::TooMany),
                Some((name, value)) => fields.push((name.to_owned(), value.to_owned())),
                None if strict => return Err(FieldError::Unreadable),
                None => {}
            }
        }
        Ok(Headers(fields))
    }

    /// The value of the first header of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        let found = fields.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    /// The values of all headers of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self
            .0
            .iter()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name));
        own.map(|(_, value)| value.as_str())
    }

    /// The elements of a field whose value is a list: those of all lines of that name, in order,
    /// without empty ones (RFC 9110, 5.3 and 5.6.1). For elements that hold no quoted commas.
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let elements = self.all(name).flat_map(|value| value.split(','));
        elements
            .map(str::trim)
            .filter(|element| !element.is_empty())
    }

    /// True if a list names that token, in capital or small letters.
    pub fn lists(&self, name: &str, token: &str) -> bool {
        self.list(name)
            .any(|element| element.eq_ignore_ascii_case(token))
    }

    /// Adds a header after those that stand already.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Takes all headers of that name out, and adds one.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.remove(name);
        self.push(name, value);
    }

    /// Takes all headers of that name out.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
    }

    /// All headers, as name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The text of a line. Bytes that are not UTF-8 are lost, except in fields that hold a URL: there
/// they are percent-encoded, because another URL would be asked for without them.
fn text(line: &[u8]) -> Cow<'_, str> {
    const OF_URLS: [&[u8]; 3] = [b"Location", b"Content-Location", b"Content-Base"];
    let text = String::from_utf8_lossy(line);
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
    let name = name.trim_ascii();
    match OF_URLS.iter().any(|of| of.eq_ignore_ascii_case(name)) {
        true if matches!(text, Cow::Owned(_)) => Cow::Owned(percent_encode_bytes(line)),
        _ => text,
    }
}

/// Adds what a folded line holds to a value.
fn unfold(value: &mut String, more: &str) {
    if !value.is_empty() && !more.is_empty() {
        value.push(' ');
    }
    value.push_str(more);
}

/// Writes a header field. What could end its line becomes a space, or it would begin another.
pub(crate) fn write_field(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend(value.bytes().map(|byte| match byte {
        b'\r' | b'\n' | 0 => b' ',
        byte => byte,
    }));
    out.extend_from_slice(b"\r\n");
}

/// Writes a whole head, the empty line at its end included. The start line must hold no line end.
pub(crate) fn write_head(start_line: &str, fields: &[(&str, &str)]) -> Vec<u8> {
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

/// Checks further header fields of a request, as users write them. `own` are the names of those
/// that the client writes itself; of each of these `instead` may say what to write.
///
/// # Errors
/// What is wrong with them, and what to do.
pub(crate) fn check_further<'a>(
    fields: impl IntoIterator<Item = (&'a String, &'a String)>,
    own: &[&str],
    instead: impl Fn(&str) -> Option<&'static str>,
) -> Result<(), String> {
    for (name, value) in fields {
        if !is_token(name) {
            return Err(format!("`{name}` cannot be the name of a header field"));
        }
        if !is_value(value) {
            return Err(format!(
                "the value of `{name}` must be one line of printable characters"
            ));
        }
        if let Some(own) = own.iter().find(|own| own.eq_ignore_ascii_case(name)) {
            let help = instead(own).unwrap_or("take it out");
            return Err(format!("`{name}` is the client's own; {help}"));
        }
    }
    Ok(())
}

/// Whether a text can be the name of a header field (RFC 9110, 5.6.2).
pub fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

/// Whether a text can be the value of a header field (RFC 9110, 5.5): one line without control
/// characters.
pub fn is_value(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\t' || byte >= 0x20 && byte != 0x7f)
}

/// The lines of a head, which end in CRLF or LF.
pub(crate) fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// The start line of a head whose lines end in CRLF.
pub(crate) fn start_line(head: &[u8]) -> &[u8] {
    head.split(|&byte| byte == b'\r').next().unwrap_or_default()
}

/// The start line of a request (RFC 9112, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) version: Version,
}

impl RequestLine<'_> {
    /// Reads a start line; none where it is no request's of HTTP/1.
    pub(crate) fn parse(line: &[u8]) -> Option<RequestLine<'_>> {
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

/// The start line of an answer (RFC 9112, 4): version, status and reason.
pub(crate) fn parse_status_line(line: &str) -> Result<(Version, u16, &str), Malformed> {
    let mut parts = line.splitn(3, ' ');
    let version = match parts.next().unwrap_or_default() {
        "HTTP/1.0" => Version::Http10,
        // A higher minor number is understood as the highest that is known (RFC 9110, 2.5).
        name if name.strip_prefix("HTTP/1.").is_some_and(is_digit) => Version::Http11,
        _ => return Err(Malformed::StatusLine),
    };
    let status = parts.next().unwrap_or_default();
    let number = status.parse::<u16>().ok();
    let number = number.filter(|number| status.len() == 3 && (100..1000).contains(number));
    let status = number.ok_or(Malformed::StatusLine)?;
    Ok((version, status, parts.next().unwrap_or_default().trim()))
}

fn is_digit(text: &str) -> bool {
    matches!(text.as_bytes(), [digit] if digit.is_ascii_digit())
}

/// That a head is longer than is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Gathers a head whose lines end in CRLF, out of pieces cut anywhere. It holds no more than it
/// may, and looks at each byte once or twice.
#[derive(Debug)]
pub(crate) struct HeadReader {
    head: Vec<u8>,
    /// The longest head, the empty line at its end included, in bytes.
    most: usize,
}

impl HeadReader {
    /// One that takes at most so many bytes.
    pub(crate) const fn new(most: usize) -> HeadReader {
        HeadReader {
            head: Vec::new(),
            most,
        }
    }

    /// Takes bytes of the head in, out of `bytes`, and gives it once it is whole, without the empty
    /// line at its end. What is behind it is left in `bytes`.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, TooLong> {
        const END: &[u8] = b"\r\n\r\n";
        let before = self.head.len();
        // The end may begin in what was there before.
        let from = before.saturating_sub(END.len() - 1);
        let room = self.most - before;
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        steps::took(self.head.len() - from);
        let end = self.head[from..]
            .windows(END.len())
            .position(|window| window == END);
        match end {
            Some(end) => {
                *bytes = &bytes[from + end + END.len() - before..];
                let mut head = std::mem::take(&mut self.head);
                steps::took(from + end);
                head.truncate(from + end);
                Ok(Some(head))
            }
            None if self.head.len() == self.most => Err(TooLong),
            None => {
                *bytes = &[];
                Ok(None)
            }
        }
    }

    /// Whether nothing of a head has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// How many bytes are held.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
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
        assert!(headers.lists("Connection", "upgrade") && headers.lists("Connection", "foo"));
        assert!(!headers.lists("Connection", "up") && !headers.lists("A", "upgrade"));
        assert_eq!(headers.list("B").chain(headers.list("C")).count(), 0);
    }

    #[test]
    fn urls_keep_their_bytes_whatever_they_encode() {
        let head = b"location : /T\xe9l\xe9\r\nX: \xe9\r\nContent-Base: /\xc3\xa9\r\n";
        let headers = Headers::parse(lines(head), FieldRules::Strict, 9).expect("sound fields");
        assert_eq!(headers.get("Location"), Some("/T%E9l%E9"));
        assert_eq!(headers.get("X"), Some("\u{fffd}"));
        assert_eq!(headers.get("Content-Base"), Some("/é"));
    }

    fn fields(text: &str, rules: FieldRules, most: usize) -> Result<String, FieldError> {
        let headers = Headers::parse(lines(text.as_bytes()), rules, most)?;
        let all = headers
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        Ok(all.collect::<Vec<_>>().join(";"))
    }

    #[test]
    fn rules_say_what_becomes_of_a_line_that_is_no_field() {
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
            assert_eq!(fields(wrong, Strict, 9), Err(FieldError::Unreadable));
            assert_eq!(fields(wrong, Lenient, 9).as_deref(), Ok(lenient));
        }
    }

    #[test]
    fn a_field_stays_on_its_line() {
        let mut out = Vec::new();
        write_field("A", "b\r\nC: d\0", &mut out);
        assert_eq!(out, b"A: b  C: d \r\n");
        let head = write_head("GET / HTTP/1.1", &[("Host", "h"), ("X", "")]);
        assert_eq!(head, b"GET / HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n");
    }

    #[test]
    fn heads_are_gathered_up_to_their_end_and_no_further() {
        let text = b"GET / HTTP/1.1\r\nA: b\n\nC: d\r\n\r\nmore";
        for size in 1..text.len() {
            let mut reader = HeadReader::new(64);
            let mut found = None;
            let mut taken = 0;
            for mut piece in text.chunks(size) {
                let before = piece.len();
                found = reader.take(&mut piece).expect("it fits");
                taken += before - piece.len();
                if found.is_some() {
                    break;
                }
            }
            let head = found.expect("it is whole");
            assert_eq!(head, text[..taken - 4]);
            assert_eq!((taken, reader.held()), (text.len() - 4, 0));
            let line = RequestLine::parse(start_line(&head)).expect("a request");
            assert_eq!((line.method, line.target), ("GET", "/"));
        }
        let mut reader = HeadReader::new(8);
        assert_eq!(reader.take(&mut &b"1234567"[..]), Ok(None));
        assert_eq!(reader.take(&mut &b"89"[..]), Err(TooLong));
        assert_eq!(reader.held(), 8);
        let whole = HeadReader::new(8).take(&mut &b"1234\r\n\r\n9"[..]);
        assert_eq!(whole, Ok(Some(b"1234".to_vec())));
    }

    #[test]
    fn start_lines_have_three_words() {
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
            assert_eq!(parse_status_line(wrong), Err(Malformed::StatusLine));
        }
    }
}

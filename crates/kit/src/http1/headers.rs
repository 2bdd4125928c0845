//! Header fields (RFC 9110, 5; RFC 9112, 5).

use std::borrow::Cow;
use std::fmt;

use crate::url::percent_encode_bytes;

/// Length of a usual head, for which memory is allocated at once.
pub(super) const USUAL_HEAD: usize = 256;

/// Number of fields of a usual head, for which memory is allocated at once.
const USUAL_FIELDS: usize = 8;

/// Header fields in message order. Names are case-insensitive.
///
/// A list takes three allocations, whatever the number of its fields. It is one pointer, because
/// decoders return messages and media packets as one type, which would grow with it.
#[derive(Clone, Default)]
pub struct Headers(Option<Box<Contents>>);

/// Fields of a list.
#[derive(Clone, Default)]
struct Contents {
    /// Names and values, one after the other.
    text: String,
    fields: Vec<Field>,
}

/// Place of a field in the text: its name, and its value directly behind.
#[derive(Clone, Copy)]
struct Field {
    begin: usize,
    name_end: usize,
    end: usize,
}

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
    /// More fields than the caller allows.
    TooMany,
}

impl Headers {
    /// Creates an empty list.
    pub const fn new() -> Headers {
        Headers(None)
    }

    /// Parses at most `fields_max` fields. Empty lines are skipped.
    pub fn parse<'a>(
        lines: impl Iterator<Item = &'a [u8]>,
        rules: FieldRules,
        fields_max: usize,
    ) -> Result<Headers, FieldError> {
        let strict = rules == FieldRules::Strict;
        let mut contents = Contents {
            text: String::with_capacity(USUAL_HEAD),
            fields: Vec::with_capacity(USUAL_FIELDS),
        };
        for line in lines.filter(|line| !line.is_empty()) {
            let line = decode_line(line);
            if line.starts_with([' ', '\t']) {
                // A folded line continues the value before it (RFC 9112, 5.2).
                match contents.fields.is_empty() {
                    false => contents.unfold(line.trim()),
                    true if strict => return Err(FieldError::Malformed),
                    true => {}
                }
                continue;
            }
            let field = line.split_once(':').map(|(name, value)| match strict {
                true => (name.trim_end(), value.trim()),
                false => (name.trim(), value.trim()),
            });
            match field.filter(|(name, _)| !strict || is_token(name)) {
                Some(_) if contents.fields.len() >= fields_max => return Err(FieldError::TooMany),
                Some((name, value)) => contents.push(name, value),
                None if strict => return Err(FieldError::Malformed),
                None => {}
            }
        }
        Ok(Headers(Some(Box::new(contents))))
    }

    /// Returns the value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.iter();
        let found = fields.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(found.1)
    }

    /// Returns the values of all fields of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self
            .iter()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name));
        own.map(|(_, value)| value)
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
    pub fn push(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) {
        let contents = self.0.get_or_insert_default();
        contents.push(name.as_ref(), value.as_ref());
    }

    /// Replaces all fields of this name by one.
    pub fn set(&mut self, name: &str, value: impl AsRef<str>) {
        self.remove(name);
        self.push(name, value);
    }

    /// Removes all fields of this name.
    pub fn remove(&mut self, name: &str) {
        if self.get(name).is_none() {
            return;
        }
        let mut others = Headers::new();
        let rest = self
            .iter()
            .filter(|(own, _)| !own.eq_ignore_ascii_case(name));
        rest.for_each(|(name, value)| others.push(name, value));
        *self = others;
    }

    /// Returns all fields as name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|contents| contents.iter())
    }
}

impl Contents {
    fn push(&mut self, name: &str, value: &str) {
        let begin = self.text.len();
        self.text.push_str(name);
        let name_end = self.text.len();
        self.text.push_str(value);
        let end = self.text.len();
        self.fields.push(Field {
            begin,
            name_end,
            end,
        });
    }

    /// Appends a folded line to the last value, with which the text ends.
    fn unfold(&mut self, more: &str) {
        if let Some(field) = self.fields.last_mut() {
            if field.name_end < field.end && !more.is_empty() {
                self.text.push(' ');
            }
            self.text.push_str(more);
            field.end = self.text.len();
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let parts = |field: &Field| {
            (
                &self.text[field.begin..field.name_end],
                &self.text[field.name_end..field.end],
            )
        };
        self.fields.iter().map(parts)
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Headers) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Headers {}

impl fmt::Debug for Headers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.iter()).finish()
    }
}

/// Decodes a line. Bytes that are not UTF-8 are replaced, except in fields that hold a URL: there
/// they are percent-encoded, because the URL would differ without them.
fn decode_line(line: &[u8]) -> Cow<'_, str> {
    const OF_URLS: [&[u8]; 3] = [b"Location", b"Content-Location", b"Content-Base"];
    let not_text = match str::from_utf8(line) {
        Ok(text) => return Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(line),
    };
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
    let name = name.trim_ascii();
    match OF_URLS.iter().any(|of| of.eq_ignore_ascii_case(name)) {
        true => Cow::Owned(percent_encode_bytes(line)),
        false => not_text,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::lines;

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
    fn fields_are_removed_and_replaced() {
        let mut headers = Headers::new();
        for (name, value) in [("A", "1"), ("b", ""), ("a", "2"), ("C", "3")] {
            headers.push(name, value);
        }
        let mut others = headers.clone();
        others.remove("none");
        assert_eq!(others, headers);
        others.set("a", "4");
        let all: Vec<_> = others.iter().collect();
        assert_eq!(all, [("b", ""), ("C", "3"), ("a", "4")]);
        assert_ne!(others, headers);
        let mut same = Headers::new();
        all.into_iter()
            .for_each(|(name, value)| same.push(name, value));
        assert_eq!(others, same);
        assert_eq!(format!("{same:?}"), r#"{"b": "", "C": "3", "a": "4"}"#);
    }
}

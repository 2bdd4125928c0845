//! Content of messages: fixed bytes, and placeholders that are replaced in each message.

use std::fmt;

use session::seeds::derive_seed;

/// Maximum length of a message in bytes, without framing.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of parts of a template.
const PARTS_MAX: usize = 64;

/// Maximum width of a counter in digits: that of the largest number.
const COUNTER_DIGITS_MAX: usize = 20;

/// Part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Fixed bytes.
    Bytes(Box<[u8]>),
    /// Number of the message on its connection, from 1, in decimal. With a width, only the lowest
    /// digits.
    Counter(Option<u8>),
    /// Time of sending: nanoseconds since 1970, in 19 digits.
    Time,
    /// Number of random letters and digits.
    Random(u32),
}

/// Number of digits of a time.
const TIME_DIGITS: usize = 19;

/// Template of messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    parts: Box<[Part]>,
    /// Length of a message without its counters of variable width.
    fixed_length: usize,
    /// Number of counters of variable width.
    variable_counters: usize,
}

impl fmt::Debug for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Template({} bytes and more)", self.fixed_length)
    }
}

/// Values for the placeholders of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceholderValues {
    /// Number of the message on its connection, from 1.
    pub number: u64,
    /// Time of sending, in nanoseconds since 1970.
    pub nanos: u64,
    /// Seed of random characters, together with the number.
    pub seed: u64,
}

impl Template {
    /// Creates messages of this size: up to eight digits of the counter, followed by letters.
    pub fn with_size(size: usize) -> Template {
        let digits = size.min(8);
        let letters: Vec<u8> = (b'a'..=b'z').cycle().take(size - digits).collect();
        let width = u8::try_from(digits).expect("it is 8 at most");
        let counter = (digits > 0).then_some(Part::Counter(Some(width)));
        let rest = (!letters.is_empty()).then(|| Part::Bytes(letters.into()));
        Template::from_parts(counter.into_iter().chain(rest).collect())
    }

    /// Creates messages that always consist of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Template {
        Template::from_parts(vec![Part::Bytes(bytes.into())])
    }

    /// Parses a text: `{counter}`, `{counter:8}`, `{time}` and `{random:8}` are placeholders, `{{`
    /// and `}}` stand for braces.
    ///
    /// # Errors
    /// Returns the reason if the text is invalid.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            bytes.extend(&rest.as_bytes()[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                bytes.extend(brace.as_bytes());
                rest = after;
                continue;
            }
            let (name, after) = match rest.split_once('}') {
                Some(found) if brace == "{" => found,
                _ => {
                    return Err("unmatched brace; write `{{` or `}}` for a brace".to_owned());
                }
            };
            rest = after;
            if !bytes.is_empty() {
                parts.push(Part::Bytes(std::mem::take(&mut bytes).into()));
            }
            parts.push(parse_placeholder(name)?);
        }
        bytes.extend(rest.as_bytes());
        if !bytes.is_empty() {
            parts.push(Part::Bytes(bytes.into()));
        }
        if parts.len() > PARTS_MAX {
            return Err(format!(
                "the text has more than {PARTS_MAX} parts, counting placeholders and the text \
                 between them"
            ));
        }
        let template = Template::from_parts(parts);
        if template.length_max() > MESSAGE_BYTES_MAX {
            return Err(format!("messages have at most {MESSAGE_BYTES_MAX} bytes"));
        }
        Ok(template)
    }

    fn from_parts(parts: Vec<Part>) -> Template {
        let mut fixed = 0usize;
        let mut open_counters = 0;
        for part in &parts {
            match part {
                Part::Bytes(bytes) => fixed += bytes.len(),
                Part::Counter(Some(width)) => fixed += usize::from(*width),
                Part::Counter(None) => open_counters += 1,
                Part::Time => fixed += TIME_DIGITS,
                Part::Random(length) => fixed = fixed.saturating_add(*length as usize),
            }
        }
        Template {
            parts: parts.into(),
            fixed_length: fixed,
            variable_counters: open_counters,
        }
    }

    /// Returns the length of message `number`.
    pub fn length(&self, number: u64) -> usize {
        self.fixed_length + self.variable_counters * digits(number)
    }

    /// Returns the maximum length of a message.
    pub fn length_max(&self) -> usize {
        self.fixed_length
            .saturating_add(self.variable_counters * COUNTER_DIGITS_MAX)
    }

    /// Returns true if all messages have the same length.
    pub fn has_fixed_length(&self) -> bool {
        self.variable_counters == 0
    }

    /// Returns true if messages contain their time of sending.
    pub fn contains_time(&self) -> bool {
        self.parts.contains(&Part::Time)
    }

    /// Returns true if every message is valid UTF-8.
    pub fn is_text(&self) -> bool {
        let text =
            |part: &Part| !matches!(part, Part::Bytes(bytes) if str::from_utf8(bytes).is_err());
        self.parts.iter().all(text)
    }

    /// Appends a message to `out` (hot path).
    #[inline]
    pub fn write(&self, values: &PlaceholderValues, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::Counter(width) => {
                    let mut digits = [b'0'; COUNTER_DIGITS_MAX];
                    let from = write_digits(values.number, &mut digits);
                    let from = width.map_or(from, |width| COUNTER_DIGITS_MAX - usize::from(width));
                    out.extend_from_slice(&digits[from..]);
                }
                Part::Time => {
                    let mut digits = [b'0'; COUNTER_DIGITS_MAX];
                    write_digits(values.nanos, &mut digits);
                    out.extend_from_slice(&digits[COUNTER_DIGITS_MAX - TIME_DIGITS..]);
                }
                Part::Random(length) => write_random(values, *length as usize, out),
            }
        }
    }
}

fn parse_placeholder(name: &str) -> Result<Part, String> {
    let (name, length) = match name.split_once(':') {
        Some((name, length)) => (name, Some(length)),
        None => (name, None),
    };
    let number = |length_max: usize| -> Result<Option<usize>, String> {
        let Some(length) = length else {
            return Ok(None);
        };
        match length.parse() {
            Ok(length) if (1..=length_max).contains(&length) => Ok(Some(length)),
            _ => Err(format!(
                "`{{{name}:{length}}}` must have a length from 1 to {length_max}"
            )),
        }
    };
    match name {
        "counter" => {
            Ok(Part::Counter(number(COUNTER_DIGITS_MAX)?.map(|width| {
                u8::try_from(width).expect("it is 20 at most")
            })))
        }
        "time" if length.is_none() => Ok(Part::Time),
        "random" => Ok(Part::Random(
            u32::try_from(number(MESSAGE_BYTES_MAX)?.unwrap_or(8)).expect("it is bounded"),
        )),
        _ => Err(format!(
            "unknown placeholder `{{{name}}}`: there are `{{counter}}`, `{{counter:8}}`, `{{time}}` and `{{random:8}}`; write `{{{{` for a brace"
        )),
    }
}

/// Returns the number of decimal digits.
fn digits(number: u64) -> usize {
    number
        .checked_ilog10()
        .map_or(1, |digits| digits as usize + 1)
}

/// Writes a number at the end of `digits`. Returns the index of its first digit.
#[inline]
fn write_digits(mut number: u64, digits: &mut [u8; COUNTER_DIGITS_MAX]) -> usize {
    let mut at = COUNTER_DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}

fn write_random(values: &PlaceholderValues, length: usize, out: &mut Vec<u8>) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789ab";
    let mut drawn = 0;
    for index in 0..length {
        if index % 10 == 0 {
            drawn = derive_seed(&[values.seed, values.number, index as u64]);
        }
        out.push(LETTERS[(drawn & 63) as usize]);
        drawn >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filling(number: u64) -> PlaceholderValues {
        PlaceholderValues {
            number,
            nanos: 1_700_000_000_123_456_789,
            seed: 7,
        }
    }

    fn written(template: &Template, number: u64) -> String {
        let mut out = Vec::new();
        template.write(&filling(number), &mut out);
        assert_eq!(out.len(), template.length(number));
        String::from_utf8(out).expect("the template is text")
    }

    #[test]
    fn placeholders_are_replaced() {
        let template =
            Template::parse("n={counter} {counter:4} at {time} {{x}} {random:3}!").expect("valid");
        let text = written(&template, 12_345);
        assert!(
            text.starts_with("n=12345 2345 at 1700000000123456789 {x} "),
            "{text}"
        );
        assert_eq!(text.len(), template.length(12_345));
        assert_eq!(written(&template, 12_345), text);
        assert_ne!(written(&template, 12_346)[40..], text[40..]);
        assert!(template.contains_time() && !template.has_fixed_length());
        assert_eq!(written(&Template::parse("").expect("valid"), 1), "");
    }

    #[test]
    fn messages_have_exactly_the_given_size() {
        assert_eq!(
            written(&Template::with_size(36), 42),
            "00000042abcdefghijklmnopqrstuvwxyzab"
        );
        assert_eq!(written(&Template::with_size(3), 1042), "042");
        for size in 0..40 {
            assert_eq!(written(&Template::with_size(size), u64::MAX).len(), size);
        }
    }

    #[test]
    fn invalid_placeholders_are_rejected() {
        for wrong in [
            "{",
            "}",
            "a{counter",
            "{count}",
            "{counter:0}",
            "{counter:21}",
            "{time:3}",
            "{random:x}",
            "{random:9999999}",
        ] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn written_messages_have_the_predicted_length(text in "[a-z{}:0-9]{0,30}", number: u64) {
            if let Ok(template) = Template::parse(&text) {
                let text = written(&template, number);
                prop_assert!(text.len() <= template.length_max());
            }
        }
    }
}

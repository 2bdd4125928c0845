//! What a message holds: bytes that stay, and places that are filled in anew for each.

use std::fmt;

use crate::mix::mix;

/// The longest message, in bytes, framing not counted.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The most places of a template.
const MAX_PARTS: usize = 64;

/// The widest counter, in digits: what the largest one has.
const WIDEST: usize = 20;

/// What a message is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Bytes as they are.
    Bytes(Box<[u8]>),
    /// The number of the message on its connection, from 1, in decimal; of so many digits where it
    /// has a width, its highest left out.
    Counter(Option<u8>),
    /// When it was sent: nanoseconds since 1970, of 19 digits.
    Time,
    /// So many letters and digits, drawn.
    Random(u32),
}

/// How long a time is.
const TIME_DIGITS: usize = 19;

/// What a message is made from.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    parts: Box<[Part]>,
    /// How long a message is without its counters that have no width.
    fixed: usize,
    /// How many counters have no width.
    open_counters: usize,
}

impl fmt::Debug for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Template({} bytes and more)", self.fixed)
    }
}

/// What fills a message in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// Which message of its connection it is, from 1.
    pub number: u64,
    /// When it is sent, in nanoseconds since 1970.
    pub nanos: u64,
    /// What is drawn follows from this and the number.
    pub seed: u64,
}

impl Template {
    /// Messages of so many bytes: eight digits of the counter, as far as they fit, and letters.
    pub fn of_size(size: usize) -> Template {
        let digits = size.min(8);
        let letters: Vec<u8> = (b'a'..=b'z').cycle().take(size - digits).collect();
        let width = u8::try_from(digits).expect("it is 8 at most");
        let counter = (digits > 0).then_some(Part::Counter(Some(width)));
        let rest = (!letters.is_empty()).then(|| Part::Bytes(letters.into()));
        Template::of_parts(counter.into_iter().chain(rest).collect())
    }

    /// Messages that are always these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Template {
        Template::of_parts(vec![Part::Bytes(bytes.into())])
    }

    /// What was written as text: `{counter}`, `{counter:8}`, `{time}` and `{random:8}` are filled
    /// in, `{{` and `}}` are braces.
    ///
    /// # Errors
    /// What is wrong with it.
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
                    return Err(
                        "a brace without its other half; write `{{` or `}}` for a brace".to_owned(),
                    );
                }
            };
            rest = after;
            if !bytes.is_empty() {
                parts.push(Part::Bytes(std::mem::take(&mut bytes).into()));
            }
            parts.push(part(name)?);
        }
        bytes.extend(rest.as_bytes());
        if !bytes.is_empty() {
            parts.push(Part::Bytes(bytes.into()));
        }
        if parts.len() > MAX_PARTS {
            return Err(format!("it has more than {MAX_PARTS} places to fill in"));
        }
        let template = Template::of_parts(parts);
        if template.longest() > MAX_MESSAGE {
            return Err(format!("messages have at most {MAX_MESSAGE} bytes"));
        }
        Ok(template)
    }

    fn of_parts(parts: Vec<Part>) -> Template {
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
            fixed,
            open_counters,
        }
    }

    /// How long message `number` is.
    pub fn length(&self, number: u64) -> usize {
        self.fixed + self.open_counters * digits(number)
    }

    /// How long the longest is.
    pub fn longest(&self) -> usize {
        self.fixed.saturating_add(self.open_counters * WIDEST)
    }

    /// Whether all messages are of one length.
    pub fn is_of_one_length(&self) -> bool {
        self.open_counters == 0
    }

    /// Whether when it is sent is part of a message.
    pub fn tells_time(&self) -> bool {
        self.parts.contains(&Part::Time)
    }

    /// Whether every message is valid UTF-8.
    pub fn is_text(&self) -> bool {
        let text =
            |part: &Part| !matches!(part, Part::Bytes(bytes) if str::from_utf8(bytes).is_err());
        self.parts.iter().all(text)
    }

    /// Adds a message to `out`. The hot path.
    #[inline]
    pub fn write(&self, filling: &Filling, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::Counter(width) => {
                    let mut digits = [b'0'; WIDEST];
                    let from = write_digits(filling.number, &mut digits);
                    let from = width.map_or(from, |width| WIDEST - usize::from(width));
                    out.extend_from_slice(&digits[from..]);
                }
                Part::Time => {
                    let mut digits = [b'0'; WIDEST];
                    write_digits(filling.nanos, &mut digits);
                    out.extend_from_slice(&digits[WIDEST - TIME_DIGITS..]);
                }
                Part::Random(length) => write_random(filling, *length as usize, out),
            }
        }
    }
}

fn part(name: &str) -> Result<Part, String> {
    let (name, length) = match name.split_once(':') {
        Some((name, length)) => (name, Some(length)),
        None => (name, None),
    };
    let number = |most: usize| -> Result<Option<usize>, String> {
        let Some(length) = length else {
            return Ok(None);
        };
        match length.parse() {
            Ok(length) if (1..=most).contains(&length) => Ok(Some(length)),
            _ => Err(format!(
                "`{{{name}:{length}}}` must name a length from 1 to {most}"
            )),
        }
    };
    match name {
        "counter" => {
            Ok(Part::Counter(number(WIDEST)?.map(|width| {
                u8::try_from(width).expect("it is 20 at most")
            })))
        }
        "time" if length.is_none() => Ok(Part::Time),
        "random" => Ok(Part::Random(
            u32::try_from(number(MAX_MESSAGE)?.unwrap_or(8)).expect("it is bounded"),
        )),
        _ => Err(format!(
            "`{{{name}}}` is nothing that can be filled in: there are `{{counter}}`, `{{counter:8}}`, `{{time}}` and `{{random:8}}`; write `{{{{` for a brace"
        )),
    }
}

/// How many decimal digits a number has.
fn digits(number: u64) -> usize {
    number
        .checked_ilog10()
        .map_or(1, |digits| digits as usize + 1)
}

/// Writes a number at the end of `digits`, and says where it begins.
#[inline]
fn write_digits(mut number: u64, digits: &mut [u8; WIDEST]) -> usize {
    let mut at = WIDEST;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}

fn write_random(filling: &Filling, length: usize, out: &mut Vec<u8>) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789ab";
    let mut drawn = 0;
    for place in 0..length {
        if place % 10 == 0 {
            drawn = mix(&[filling.seed, filling.number, place as u64]);
        }
        out.push(LETTERS[(drawn & 63) as usize]);
        drawn >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filling(number: u64) -> Filling {
        Filling {
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
    fn places_are_filled_in() {
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
        assert!(template.tells_time() && !template.is_of_one_length());
        assert_eq!(written(&Template::parse("").expect("valid"), 1), "");
    }

    #[test]
    fn a_size_is_kept_exactly() {
        assert_eq!(
            written(&Template::of_size(36), 42),
            "00000042abcdefghijklmnopqrstuvwxyzab"
        );
        assert_eq!(written(&Template::of_size(3), 1042), "042");
        for size in 0..40 {
            assert_eq!(written(&Template::of_size(size), u64::MAX).len(), size);
        }
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
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
        fn whatever_is_written_is_as_long_as_was_said(text in "[a-z{}:0-9]{0,30}", number: u64) {
            if let Ok(template) = Template::parse(&text) {
                let text = written(&template, number);
                prop_assert!(text.len() <= template.longest());
            }
        }
    }
}

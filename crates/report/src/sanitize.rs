//! Sanitizing of texts for a terminal: texts from outside cannot control it, hide in it, or change
//! the order of its text.
//!
//! Names, reasons, thresholds and events of a run file, and responses of servers, are text of
//! unknown origin. An escape sequence in them could clear the screen, set the clipboard or forge a
//! verdict. Each such character is replaced by a visible representation, so that nothing is hidden.

use std::borrow::Cow;
use std::fmt::Write;

/// Maximum length of the numbers in one of our style sequences, such as `38;1`.
const STYLE_LENGTH_MAX: usize = 12;

/// Sanitizes a value for a single line: control characters, including line ends, and invisible
/// characters become visible.
pub fn single_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        push(&mut safe, c);
    }
    Cow::Owned(safe)
}

/// Sanitizes a text of several lines for a terminal: line ends and tabs pass, and with `colour`
/// also the sequences that [`Paint`](crate::paint::Paint) writes.
pub fn multi_line(text: &str, colour: bool) -> Cow<'_, str> {
    let passes = |c: char| matches!(c, '\n' | '\t');
    if !text.contains(|c| is_unsafe(c) && !passes(c)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = if colour { style(rest) } else { None };
        let taken = match style {
            Some(style) => {
                safe.push_str(style);
                style.len()
            }
            // Line end of a file from another system.
            None if rest.starts_with("\r\n") => 1,
            None if passes(c) => {
                safe.push(c);
                1
            }
            None => {
                push(&mut safe, c);
                c.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(safe)
}

/// Escapes a JSON text without changing its meaning: unsafe characters, which can only be in its
/// strings, are written as `\uXXXX`.
pub fn json(text: &str) -> Cow<'_, str> {
    let escaped = |c: char| is_unsafe(c) && c != '\n';
    if !text.contains(escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if escaped(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

fn push(safe: &mut String, c: char) {
    match c {
        // Unicode has pictures of these characters from U+2400 on.
        '\0'..='\u{1f}' => safe.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}')),
        '\u{7f}' => safe.push('\u{2421}'),
        _ if is_unsafe(c) => {
            let _ = write!(safe, "<U+{:04X}>", u32::from(c));
        }
        _ => safe.push(c),
    }
}

/// Returns `true` for control characters, and for invisible characters that change how others are
/// displayed: Unicode category Cf, fillers, line separators, tags, and noncharacters.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fdd0}'..='\u{fdef}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
        || u32::from(c) & 0xfffe == 0xfffe
}

/// Returns the style sequence (weight or text colour) at the start of `text`. Sequences that could
/// hide text are not accepted: black, concealed, blinking, or another background.
fn style(text: &str) -> Option<&str> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    if end > STYLE_LENGTH_MAX || !numbers[end..].starts_with('m') {
        return None;
    }
    let known = |number: &str| {
        matches!(
            number,
            "0" | "1" | "2" | "4" | "22" | "24" | "31" | "32" | "33" | "34" | "35" | "36" | "39"
        )
    };
    numbers[..end]
        .split(';')
        .all(known)
        .then(|| &text[..text.len() - numbers.len() + end + 1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_controls_become_visible() {
        for (text, shown) in [
            ("a viewer, größer 一", "a viewer, größer 一"),
            ("\u{1b}[2J", "␛[2J"),
            ("\u{1b}]52;c;eA==\u{7}", "␛]52;c;eA==␇"),
            ("\u{9b}31m\u{7f}", "<U+009B>31m␡"),
            ("a\u{202e}b\u{200b}c\u{2066}", "a<U+202E>b<U+200B>c<U+2066>"),
            ("\u{feff}\u{e0041}", "<U+FEFF><U+E0041>"),
            ("one\r\ntwo\tthree", "one␍␊two␉three"),
        ] {
            assert_eq!(single_line(text), shown);
        }
    }

    #[test]
    fn own_colours_pass_only_if_enabled() {
        let paint = crate::paint::Paint { colour: true };
        let text = paint.strong(&paint.bad("FAIL")) + "\n\tnext\r\n";
        assert_eq!(multi_line(&text, true), text.replace('\r', ""));
        assert_eq!(multi_line(&text, false), "␛[1m␛[31mFAIL␛[0m␛[0m\n\tnext\n");
        // Concealed, black, another background, another function, too long, cut off.
        for hostile in ["8m", "30m", "0;41m", "2J", "1;1;1;1;1;1;1m", "1", ""] {
            let shown = multi_line(&format!("\u{1b}[{hostile}"), true).into_owned();
            assert_eq!(shown, format!("␛[{hostile}"));
        }
    }

    proptest! {
        #[test]
        fn nothing_unsafe_passes(text in "(\\PC|\\x1b|\\[|[0-9;m]|\\x9b|\\r|\\n|\\t|\u{202e}|\u{200d}){0,40}") {
            prop_assert!(!single_line(&text).contains(is_unsafe));
            let kept = multi_line(&text, false).into_owned();
            prop_assert!(!kept.contains(|c| is_unsafe(c) && !matches!(c, '\n' | '\t')));
            // Sanitized text passes unchanged.
            prop_assert_eq!(multi_line(&kept, false), kept.as_str());
            let coloured = multi_line(&text, true).into_owned();
            let escapes = coloured.matches('\x1b').count();
            prop_assert!(escapes <= coloured.matches('m').count());
        }

        #[test]
        fn json_keeps_its_meaning(text in any::<String>()) {
            let written = serde_json::to_string(&text).expect("a text is JSON");
            let safe = json(&written);
            prop_assert!(!safe.contains(is_unsafe));
            let back: String = serde_json::from_str(&safe).expect("it still is");
            prop_assert_eq!(back, text);
        }
    }
}

//! Secrets in the lines of a scenario that an error shows.
//!
//! The text may be invalid YAML: the mistake is the reason for showing it. It is therefore read
//! word by word, and masked too much rather than too little.

use super::{is_like_secret, is_public_header, is_secret_key, mask_in_place, secret_words};

/// Masks `--set KEY=VALUE` and `VARIABLE=VALUE`; all offsets stay the same.
pub(crate) fn mask_setting(text: &str) -> String {
    let Some((key, value)) = text.split_once('=') else {
        return mask_in_place(text);
    };
    let path = key.trim_start_matches("--set ").to_lowercase();
    let holds = |name: &str| path.contains(name);
    if is_secret_key(&path)
        || key.split('.').any(is_like_secret)
        || ["environment", "headers", "greeting"]
            .into_iter()
            .any(holds)
    {
        return format!("{key}={}", "*".repeat(value.len()));
    }
    mask_in_place(text)
}

/// A word of the text.
#[derive(Debug)]
struct Word {
    /// Byte range without quotes.
    from: usize,
    to: usize,
    /// True if a colon follows.
    is_key: bool,
    /// Number of open brackets.
    depth: usize,
    /// Offset from the beginning of the line, in bytes.
    column: usize,
}

/// Masks every secret that its key names or that is recognizable; all offsets stay the same.
pub(crate) fn mask_excerpt(text: &str) -> String {
    let words = words(text);
    let mut masked = text.to_owned();
    let mut hide = |word: &Word, skip: usize| {
        let from = word.from + skip;
        masked.replace_range(from..word.to, &"*".repeat(word.to - from));
    };
    // End of the last value of each kind of key. Keys within that value are already covered.
    let mut done = [0; 3];
    for (at, key) in words.iter().enumerate().filter(|(_, word)| word.is_key) {
        let kind = match &text[key.from..key.to] {
            "headers" => 0,
            "command" => 1,
            "environment" | "greeting" | "connect" => 2,
            name if is_like_secret(name) => 2,
            _ => continue,
        };
        if at < done[kind] {
            continue;
        }
        let rest = &words[at + 1..];
        let length = rest.iter().take_while(|word| is_below(word, key)).count();
        done[kind] = at + 1 + length;
        let below = rest[..length].iter();
        match kind {
            0 => {
                let mut open = false;
                for word in below {
                    if word.is_key {
                        open = is_public_header(&text[word.from..word.to]);
                    } else if !open {
                        hide(word, 0);
                    }
                }
            }
            1 => {
                let below: Vec<&Word> = below.collect();
                let texts: Vec<String> = below
                    .iter()
                    .map(|word| text[word.from..word.to].to_owned())
                    .collect();
                for (word, secret) in below.iter().zip(secret_words(&texts)) {
                    if let Some(skip) = secret {
                        hide(word, skip);
                    }
                }
            }
            _ => {
                below
                    .filter(|word| !word.is_key)
                    .for_each(|word| hide(word, 0));
            }
        }
    }
    mask_in_place(&masked)
}

/// Returns `true` if a word belongs to the value of `key`.
fn is_below(word: &Word, key: &Word) -> bool {
    if key.depth > 0 {
        return word.depth > key.depth || word.depth == key.depth && !word.is_key;
    }
    word.depth > 0 || word.column > key.column
}

fn words(text: &str) -> Vec<Word> {
    let bytes = text.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(b'\n');
    let mut words = Vec::new();
    let (mut at, mut line, mut depth) = (0, 0, 0_usize);
    while at < bytes.len() {
        let first = byte(at);
        match first {
            b'\n' => (at, line) = (at + 1, at + 1),
            b' ' | b'\t' | b'\r' | b',' | b':' => at += 1,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' => (at, depth) = (at + 1, depth.saturating_sub(1)),
            b'-' if byte(at + 1).is_ascii_whitespace() => at += 1,
            b'#' if at == line || byte(at - 1).is_ascii_whitespace() => {
                while at < bytes.len() && byte(at) != b'\n' {
                    at += 1;
                }
            }
            _ => {
                let column = at - line;
                let quoted = first == b'"' || first == b'\'';
                let from = at + usize::from(quoted);
                let mut to = from;
                while to < bytes.len() {
                    let ends = match byte(to) {
                        // In double quotes a backslash escapes the next character.
                        b'\\' if first == b'"' => {
                            to += 1;
                            false
                        }
                        other if quoted => other == first,
                        b'\n' => true,
                        b',' | b'{' | b'}' | b'[' | b']' => depth > 0,
                        b':' => byte(to + 1).is_ascii_whitespace(),
                        b'#' => byte(to - 1).is_ascii_whitespace(),
                        _ => false,
                    };
                    if ends {
                        break;
                    }
                    to += 1;
                }
                let to = to.min(bytes.len());
                at = (to + usize::from(quoted)).min(bytes.len());
                let mut next = at;
                while byte(next) == b' ' {
                    next += 1;
                }
                let trimmed = text.get(from..to).map_or(0, |word| word.trim_end().len());
                words.push(Word {
                    from,
                    to: if quoted { to } else { from + trimmed },
                    is_key: byte(next) == b':',
                    depth,
                    column,
                });
                if let Some(newline) = text.get(from..to).and_then(|word| word.rfind('\n')) {
                    line = from + newline + 1;
                }
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_masked_in_place() {
        for (text, masked) in [
            (
                "headers: {X-Auth: hdrsecret3, User-Agent: me, 'X-B': \"q, r\"}",
                "headers: {X-Auth: **********, User-Agent: me, 'X-B': \"****\"}",
            ),
            (
                "server: {command: [x, --password, cmdpw999], environment: {TOKEN: envsecret1}, bogus: 1}",
                "server: {command: [x, --password, ********], environment: {TOKEN: **********}, bogus: 1}",
            ),
            (
                "server:\n  environment:\n    TOKEN: abc # why\n    B: 'd: é'\n  command:\n  - x\n  - --key=abc\n  - -p\n  ready: {port: 1}\n",
                "server:\n  environment:\n    TOKEN: *** # why\n    B: '*****'\n  command:\n  - x\n  - --key=***\n  - -p\n  ready: {port: 1}\n",
            ),
            (
                "greeting: [{send: hello}, {expect: ok}]\nurls: ['rtsp://u:pw@h/a']\n",
                "greeting: [{send: *****}, {expect: **}]\nurls: ['rtsp://u:**@h/a']\n",
            ),
            (
                "media: {secret: abc, ports: 1}",
                "media: {secret: ***, ports: 1}",
            ),
            ("environment: {A: abc, B", "environment: {A: ***, *"),
            (
                "duration: 1s\nvary: {x: [1, 2]}",
                "duration: 1s\nvary: {x: [1, 2]}",
            ),
        ] {
            assert_eq!(mask_excerpt(text), masked);
            assert_eq!(masked.len(), text.len());
        }
    }

    #[test]
    fn command_line_settings_are_masked() {
        for (text, masked) in [
            (
                "--set server.environment.A=abc",
                "--set server.environment.A=***",
            ),
            (
                "--set server.environment={A: b}",
                "--set server.environment=******",
            ),
            ("--set duration=1x", "--set duration=1x"),
            (
                "STREAMGAUGE_SERVER__ENVIRONMENT__A=abc",
                "STREAMGAUGE_SERVER__ENVIRONMENT__A=***",
            ),
        ] {
            assert_eq!(mask_setting(text), masked);
        }
    }

    proptest! {
        #[test]
        fn any_text_keeps_its_length_and_lines(text in "(environment: |headers: |command: |[-{}\\[\\],:'\"\\\\#é \na])*") {
            prop_assert_eq!(mask_excerpt(&text).len(), text.len());
        }
    }
}

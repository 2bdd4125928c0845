//! Blanks in tags. The syntax has none outside of quoted strings and titles (RFC 8216, 4.1 and
//! 4.2), but servers write them, and all players skip them.

use std::borrow::Cow;

/// Returns the text without blanks at the ends of lines, without those in tags that belong neither
/// to a quoted string, nor to the title of a segment, nor to a date, and without commas after the
/// last attribute.
pub(super) fn without_blanks(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let ends_in_comma = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.ends_with(b",") && line.starts_with(b"#EXT-X-")
    };
    let is_tidy = !bytes.contains(&b' ')
        && !bytes.contains(&b'\t')
        && !bytes.split(|&byte| byte == b'\n').any(ends_in_comma);
    if is_tidy {
        return Cow::Borrowed(text);
    }
    let mut tidy = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.trim();
        match line.split_once(':').filter(|_| line.starts_with("#EXT")) {
            Some((name, value)) => {
                tidy += name.trim_end();
                tidy.push(':');
                let value = value.trim_start();
                match name.trim_end() {
                    "#EXTINF" => {
                        let (duration, title) =
                            value.split_at(value.find(',').unwrap_or(value.len()));
                        tidy += duration.trim_end();
                        tidy += title;
                    }
                    "#EXT-X-PROGRAM-DATE-TIME" => tidy += value,
                    _ => push_attributes(&mut tidy, value),
                }
            }
            None => tidy += line,
        }
        tidy.push('\n');
    }
    Cow::Owned(tidy)
}

/// Adds a list of attributes, without the blanks outside of quoted strings.
fn push_attributes(tidy: &mut String, value: &str) {
    let mut is_quoted = false;
    for own in value.chars() {
        is_quoted ^= own == '"';
        if is_quoted || !matches!(own, ' ' | '\t') {
            tidy.push(own);
        }
    }
    let end = tidy.trim_end_matches(',').len();
    tidy.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_titles_strings_and_uris_stay() {
        for (line, expected) in [
            (
                "#EXT-X-STREAM-INF:PROGRAM-ID=1, BANDWIDTH=7",
                "#EXT-X-STREAM-INF:PROGRAM-ID=1,BANDWIDTH=7",
            ),
            ("#EXT-X-KEY: METHOD = NONE", "#EXT-X-KEY:METHOD=NONE"),
            (
                "#EXT-X-MEDIA:NAME=\"a, b\" ,URI=\"c d\"",
                "#EXT-X-MEDIA:NAME=\"a, b\",URI=\"c d\"",
            ),
            ("#EXTINF: 10 , a title", "#EXTINF:10, a title"),
            ("#EXTINF: 10", "#EXTINF:10"),
            ("#EXT-X-ENDLIST ", "#EXT-X-ENDLIST"),
            (
                "#EXT-X-STREAM-INF:BANDWIDTH=7,",
                "#EXT-X-STREAM-INF:BANDWIDTH=7",
            ),
            (
                "#EXT-X-PROGRAM-DATE-TIME: 2026-01-01 00:00:00Z ",
                "#EXT-X-PROGRAM-DATE-TIME:2026-01-01 00:00:00Z",
            ),
            ("\ta b.ts ", "a b.ts"),
            ("# a: comment", "# a: comment"),
        ] {
            assert_eq!(without_blanks(line), format!("{expected}\n"), "{line}");
        }
        assert!(matches!(
            without_blanks("#EXTINF:1,a\r\nb"),
            Cow::Borrowed(_)
        ));
    }
}

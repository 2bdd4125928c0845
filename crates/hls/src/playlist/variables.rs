//! Variables in playlists (rfc8216bis, 4.3 and 4.4.2.3).

use std::borrow::Cow;
use std::collections::HashMap;

use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::{Define, Tag};
use quick_m3u8::{HlsLine, Reader};

use super::PlaylistError;
use kit::url::percent_decode;

/// Maximum number of variables of a playlist.
pub const VARIABLES_MAX: usize = 256;

/// Maximum number of bytes of the names and values of a playlist's variables.
const BYTES_MAX: usize = 64 << 10;

/// Maximum number of bytes of a playlist in which variables are replaced by their values.
pub const REPLACED_MAX: usize = 4 << 20;

/// Beginning of a reference to a variable.
const REFERENCE: &str = "{$";

/// Number of characters of a name in an error.
const SHOWN_MAX: usize = 60;

/// Variables that a playlist defines, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    values: HashMap<Box<str>, Box<str>>,
    /// Number of bytes of the names and values.
    bytes: usize,
}

/// Sources of variables outside of a playlist.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin<'a> {
    /// Path and query of the URL from which the playlist came.
    pub target: &'a str,
    /// Variables of the multivariant playlist that names it.
    pub variables: Option<&'a Variables>,
}

impl Variables {
    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|value| &**value)
    }

    fn define(&mut self, definition: &Define<'_>, origin: Origin<'_>) -> Result<(), PlaylistError> {
        let (name, value) = match definition {
            Define::Name(own) => (own.name(), Cow::Borrowed(own.value())),
            Define::Import(own) => {
                let name = own.import();
                let value = origin.variables.and_then(|variables| variables.get(name));
                let value = value.ok_or_else(|| PlaylistError::NotImported(shown(name)))?;
                (name, Cow::Borrowed(value))
            }
            Define::Queryparam(own) => {
                let name = own.queryparam();
                let value = parameter(origin.target, name);
                let value = value.ok_or_else(|| PlaylistError::NotInQuery(shown(name)))?;
                (name, Cow::Owned(value))
            }
        };
        if self.get(name).is_some() {
            return Err(PlaylistError::DefinedTwice(shown(name)));
        }
        self.bytes += name.len() + value.len();
        if self.values.len() == VARIABLES_MAX || self.bytes > BYTES_MAX {
            return Err(PlaylistError::TooManyVariables);
        }
        self.values.insert(name.into(), (*value).into());
        Ok(())
    }

    /// Appends a line in which each reference to a variable is replaced by its value.
    fn replace_in(&self, line: &str, text: &mut String) -> Result<(), PlaylistError> {
        let mut rest = line;
        while let Some(begin) = rest.find(REFERENCE) {
            let after = &rest[begin + REFERENCE.len()..];
            let is_of_name = |own: char| own.is_ascii_alphanumeric() || matches!(own, '-' | '_');
            let end = after.find(|own| !is_of_name(own)).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            text.push_str(&rest[..begin]);
            match after.strip_prefix('}').filter(|_| !name.is_empty()) {
                Some(after) => {
                    let value = self.get(name);
                    let value = value.ok_or_else(|| PlaylistError::NotDefined(shown(name)))?;
                    text.push_str(value);
                    rest = after;
                }
                None => {
                    text.push_str(REFERENCE);
                    rest = &rest[begin + REFERENCE.len()..];
                }
            }
            if text.len() > REPLACED_MAX {
                return Err(PlaylistError::TooLongReplaced);
            }
        }
        text.push_str(rest);
        Ok(())
    }
}

/// Returns the text in which references to variables are replaced by their values, and the
/// variables. A playlist without references and definitions stays as it is.
pub(super) fn replace<'a>(
    text: Cow<'a, str>,
    origin: Origin<'_>,
) -> Result<(Cow<'a, str>, Variables), PlaylistError> {
    const TAG: &str = "#EXT-X-DEFINE:";
    let mut variables = Variables::default();
    if !text.contains(REFERENCE) && !text.contains(TAG) {
        return Ok((text, variables));
    }
    let mut replaced = String::with_capacity(text.len());
    for line in text.lines() {
        let begin = replaced.len();
        let is_attributes = line.starts_with("#EXT-X-") || !line.starts_with('#');
        match is_attributes {
            true => variables.replace_in(line, &mut replaced)?,
            false => replaced.push_str(line),
        }
        if line.starts_with(TAG)
            && let Some(definition) = parse(&replaced[begin..])
        {
            variables.define(&definition, origin)?;
        }
        replaced.push('\n');
    }
    Ok((Cow::Owned(replaced), variables))
}

/// Parses a tag that defines a variable; `None` if it is malformed.
fn parse(line: &str) -> Option<Define<'_>> {
    let options = ParsingOptionsBuilder::new()
        .with_parsing_for_define()
        .build();
    match Reader::from_str(line, options).read_line() {
        Ok(Some(HlsLine::KnownTag(KnownTag::Hls(Tag::Define(definition))))) => Some(definition),
        _ => None,
    }
}

/// Returns the decoded value of a query parameter; `None` if it is missing or empty, or would not
/// be a string in a playlist (RFC 8216, 4.2).
fn parameter(target: &str, name: &str) -> Option<String> {
    let (_, query) = target.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(own, _)| percent_decode(own) == name)?;
    let value = percent_decode(value);
    let is_string = !value.contains(|own: char| own == '"' || own.is_control());
    (is_string && !value.is_empty()).then_some(value)
}

/// Returns the beginning of a name, for an error.
fn shown(name: &str) -> String {
    name.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playlist::Playlist;

    fn replaced(text: &str, origin: Origin<'_>) -> Result<String, PlaylistError> {
        replace(Cow::Borrowed(text), origin).map(|(text, _)| text.into_owned())
    }

    /// The last line of a text after these definitions.
    fn last_line(text: &str, origin: Origin<'_>) -> String {
        let text = replaced(text, origin).expect("all are defined");
        text.lines().next_back().expect("there is one").to_owned()
    }

    #[test]
    fn references_are_replaced_in_attributes_and_uris() {
        let define =
            "#EXT-X-DEFINE:NAME=\"a\",VALUE=\"x y\"\n#EXT-X-DEFINE:NAME=\"b-_9\",VALUE=\"\"\n";
        for (line, expected) in [
            ("p/{$a}.ts?q={$b-_9}1", "p/x y.ts?q=1"),
            ("{$a}{$a}", "x yx y"),
            (
                "#EXT-X-MAP:URI=\"{$a}/i.mp4\"",
                "#EXT-X-MAP:URI=\"x y/i.mp4\"",
            ),
            ("#EXTINF:2,{$a}", "#EXTINF:2,{$a}"),
            ("# {$a}", "# {$a}"),
            // Text that is no reference.
            ("{$}{$a.ts {$a b} {$", "{$}{$a.ts {$a b} {$"),
            ("{{$a}}", "{x y}"),
        ] {
            assert_eq!(
                last_line(&format!("{define}{line}"), Origin::default()),
                expected
            );
        }
    }

    #[test]
    fn playlist_without_references_stays_as_it_is() {
        let text = "#EXTM3U\na$b.ts";
        let replaced = replace(Cow::Borrowed(text), Origin::default());
        assert!(matches!(replaced, Ok((Cow::Borrowed(_), _))));
    }

    #[test]
    fn value_may_refer_to_an_earlier_variable() {
        let text =
            "#EXT-X-DEFINE:NAME=\"a\",VALUE=\"1\"\n#EXT-X-DEFINE:NAME=\"b\",VALUE=\"{$a}2\"\n{$b}";
        assert_eq!(last_line(text, Origin::default()), "12");
    }

    #[test]
    fn parameters_of_the_url_are_decoded() {
        let origin = Origin {
            target: "/a.m3u8?token=s%2fb&x=&q=%22&n=%0A&plus=a+b&t%6Fk=7",
            variables: None,
        };
        let own = |name: &str| {
            let text = format!("#EXT-X-DEFINE:QUERYPARAM=\"{name}\"\n{{${name}}}");
            replaced(&text, origin).map(|text| text.lines().next_back().map(str::to_owned))
        };
        for (name, value) in [("token", "s/b"), ("plus", "a+b"), ("tok", "7")] {
            assert_eq!(own(name), Ok(Some(value.to_owned())));
        }
        for name in ["x", "q", "n", "other"] {
            assert_eq!(own(name), Err(PlaylistError::NotInQuery(name.to_owned())));
        }
    }

    #[test]
    fn variables_of_the_multivariant_playlist_are_imported() {
        let text = "#EXTM3U\n#EXT-X-DEFINE:NAME=\"t\",VALUE=\"s3\"\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1\n{$t}/v.m3u8\n";
        let Ok(Playlist::Multivariant(all)) = Playlist::parse(text.as_bytes(), None) else {
            panic!("it is one");
        };
        assert_eq!(all.variants[0].uri, "s3/v.m3u8");
        let text =
            "#EXTM3U\n#EXT-X-DEFINE:IMPORT=\"t\"\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{$t}.ts\n";
        let origin = Origin {
            target: "/",
            variables: Some(&all.variables),
        };
        let Ok(Playlist::Media(media)) = Playlist::parse_at(text.as_bytes(), None, origin) else {
            panic!("it is one");
        };
        assert_eq!(&*media.segments[0].uri, "s3.ts");
        let error = Playlist::parse(text.as_bytes(), None);
        assert_eq!(error, Err(PlaylistError::NotImported("t".to_owned())));
    }

    #[test]
    fn undefined_and_repeated_variables_are_refused() {
        let define = "#EXT-X-DEFINE:NAME=\"a\",VALUE=\"1\"\n";
        let later = format!("{{$b}}\n{define}#EXT-X-DEFINE:NAME=\"b\",VALUE=\"1\"\n");
        for (text, error) in [
            (later, PlaylistError::NotDefined("b".to_owned())),
            (
                "{$b}.ts".to_owned(),
                PlaylistError::NotDefined("b".to_owned()),
            ),
            (
                define.repeat(2),
                PlaylistError::DefinedTwice("a".to_owned()),
            ),
            (
                format!("{define}{{${}}}", "b".repeat(99)),
                PlaylistError::NotDefined("b".repeat(60)),
            ),
        ] {
            assert_eq!(replaced(&text, Origin::default()), Err(error));
        }
    }

    #[test]
    fn number_and_length_are_bounded() {
        let define =
            |at: usize, value: &str| format!("#EXT-X-DEFINE:NAME=\"{at}\",VALUE=\"{value}\"\n");
        let many = |count| (0..count).map(|at| define(at, "")).collect::<String>();
        assert!(replaced(&many(VARIABLES_MAX), Origin::default()).is_ok());
        let error = replaced(&many(VARIABLES_MAX + 1), Origin::default());
        assert_eq!(error, Err(PlaylistError::TooManyVariables));
        // Each value is twice as long as the one before.
        let doubled: String = (1..30)
            .map(|at| define(at, &format!("{{${0}}}{{${0}}}", at - 1)))
            .collect();
        let error = replaced(&(define(0, "aa") + &doubled), Origin::default());
        assert_eq!(error, Err(PlaylistError::TooManyVariables));
        let long = define(0, &"a".repeat(BYTES_MAX - 1));
        let fits = (REPLACED_MAX - long.len()) / (BYTES_MAX - 1);
        assert!(replaced(&(long.clone() + &"{$0}".repeat(fits)), Origin::default()).is_ok());
        let error = replaced(&(long + &"{$0}".repeat(fits + 1)), Origin::default());
        assert_eq!(error, Err(PlaylistError::TooLongReplaced));
    }

    #[test]
    fn malformed_definitions_define_nothing() {
        for line in [
            "NAME=\"a\"",
            "VALUE=\"1\"",
            "X",
            "",
            "NAME=\"a\",VALUE=1",
            "IMPORT=a",
        ] {
            let text =
                format!("#EXT-X-DEFINE:{line}\n#EXT-X-DEFINE:NAME=\"a\",VALUE=\"2\"\n{{$a}}");
            assert_eq!(last_line(&text, Origin::default()), "2", "{line}");
        }
    }
}

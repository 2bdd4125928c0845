//! Common parts of all protocols' URLs (RFC 3986, 3): user information, host, port and the rest.
//! Each protocol defines its schemes and the meaning of a path.

use std::fmt;
use std::net::Ipv6Addr;

/// Maximum length of a URL in bytes.
pub const MAX_URL: usize = 4096;

/// A user name with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    /// Password; empty if there is none.
    pub password: String,
}

impl Credentials {
    /// Parses user information (RFC 3986, 3.2.1) and percent-decodes it.
    pub fn parse(user_info: &str) -> Credentials {
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        Credentials {
            user: percent_decode(user),
            password: percent_decode(password),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A URL that is not valid for a client, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    /// URL without credentials, for display; empty if it is too long.
    pub url: String,
    pub why: UrlProblem,
}

/// Reason why a URL is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlProblem {
    /// The scheme is not one of the protocol's.
    #[error("is not a valid {kind}: it must begin with {schemes}")]
    Scheme {
        /// Kind of URL that is expected.
        kind: &'static str,
        /// Permitted schemes, as text.
        schemes: &'static str,
    },
    /// The host is missing or malformed.
    #[error("has no host")]
    Host,
    /// The host is an IPv6 address without brackets (RFC 3986, 3.2.2).
    #[error("has an IPv6 address without brackets; write it in brackets, such as `[::1]:8554`")]
    Ipv6,
    /// The port is invalid.
    #[error("has a port that is not a number from 1 to 65535")]
    Port,
    /// The URL contains spaces or control characters.
    #[error("contains a space or a control character; write a space as %20")]
    Character,
    /// The URL is longer than [`MAX_URL`].
    #[error("the URL is longer than {MAX_URL} bytes")]
    TooLong,
    /// A reason specific to a protocol.
    #[error("{0}")]
    Other(String),
}

impl fmt::Display for UrlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UrlError { url, why } = self;
        match why {
            UrlProblem::TooLong => write!(out, "{why}"),
            UrlProblem::Other(_) => write!(out, "`{url}`: {why}"),
            _ => write!(out, "`{url}` {why}"),
        }
    }
}

impl std::error::Error for UrlError {}

impl UrlProblem {
    /// Returns the error for a URL, which is shown without credentials.
    pub fn error_for(self, url: &str) -> UrlError {
        let url = match self {
            UrlProblem::TooLong => String::new(),
            _ => without_credentials(url),
        };
        UrlError { url, why: self }
    }
}

/// Returns the scheme of a URL in lowercase; empty if it has none.
///
/// # Errors
/// [`UrlProblem::TooLong`].
pub fn scheme(url: &str) -> Result<String, UrlError> {
    match url.split_once("://") {
        _ if url.len() > MAX_URL => Err(UrlProblem::TooLong.error_for(url)),
        Some((scheme, _)) => Ok(scheme.to_ascii_lowercase()),
        None => Ok(String::new()),
    }
}

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlParts<'a> {
    /// Text before the `@`, not decoded; `None` without an `@`.
    pub user_info: Option<&'a str>,
    /// Host name or address; an IPv6 address has no brackets, but keeps its zone.
    pub host: String,
    /// Zone of an IPv6 address, which `host` contains too.
    pub zone: Option<&'a str>,
    /// Port; `None` if the URL has none.
    pub port: Option<u16>,
    /// Host and port as sent in requests: as written, without a zone.
    pub authority: String,
    /// Path and query as written; empty if the URL has neither.
    pub target: &'a str,
}

impl UrlParts<'_> {
    /// Splits an absolute URL of any scheme.
    ///
    /// # Errors
    /// [`UrlProblem::TooLong`], [`UrlProblem::Character`], [`UrlProblem::Host`] or
    /// [`UrlProblem::Port`].
    pub fn parse(url: &str) -> Result<UrlParts<'_>, UrlError> {
        let wrong = |why: UrlProblem| why.error_for(url);
        if url.len() > MAX_URL {
            return Err(wrong(UrlProblem::TooLong));
        }
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(wrong(UrlProblem::Character));
        }
        let (_, rest) = url
            .split_once("://")
            .ok_or_else(|| wrong(UrlProblem::Host))?;
        let (authority, target) = split_authority(rest);
        // A fragment is not sent to the server.
        let target = target.split_once('#').map_or(target, |(target, _)| target);
        let (user_info, host_and_port) = match authority.rsplit_once('@') {
            Some((user_info, host_and_port)) => (Some(user_info), host_and_port),
            None => (None, authority),
        };
        let (host, zone, authority, port) = match host_and_port.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed
                    .split_once(']')
                    .filter(|(_, port)| port.is_empty() || port.starts_with(':'))
                    .ok_or_else(|| wrong(UrlProblem::Host))?;
                let (address, zone) = split_zone(host).ok_or_else(|| wrong(UrlProblem::Host))?;
                let host = match zone {
                    Some(zone) => format!("{address}%{zone}"),
                    None => address.to_owned(),
                };
                // A zone has a meaning on this machine only (RFC 6874, 4).
                let sent = format!("[{address}]{port}");
                (host, zone, sent, port.strip_prefix(':').unwrap_or(""))
            }
            None => {
                let (host, port) = host_and_port.split_once(':').unwrap_or((host_and_port, ""));
                if host_and_port.parse::<Ipv6Addr>().is_ok() {
                    return Err(wrong(UrlProblem::Ipv6));
                }
                (host.to_owned(), None, host_and_port.to_owned(), port)
            }
        };
        if host.is_empty() {
            return Err(wrong(UrlProblem::Host));
        }
        let port = match port {
            "" => None,
            port => match port.parse() {
                Ok(0) | Err(_) => return Err(wrong(UrlProblem::Port)),
                Ok(port) => Some(port),
            },
        };
        Ok(UrlParts {
            user_info,
            host,
            zone,
            port,
            authority,
            target,
        })
    }
}

/// Splits the text after `://` into the authority and the rest.
pub fn split_authority(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// Returns the URL without credentials, for requests and messages.
pub fn without_credentials(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (authority, _) = split_authority(&url[start..]);
    match authority.rfind('@') {
        Some(at) => format!("{}{}", &url[..start], &url[start + at + 1..]),
        None => url.to_owned(),
    }
}

/// Splits an IPv6 address of a URL and its optional zone: `fe80::1%25eth0` (RFC 6874, 2), or with a
/// bare `%` as users write it.
fn split_zone(host: &str) -> Option<(&str, Option<&str>)> {
    let (address, zone) = match host.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (host, None),
    };
    address.parse::<Ipv6Addr>().ok()?;
    (zone != Some("")).then_some((address, zone))
}

/// Decodes percent-encoding (RFC 3986, 2.1). An invalid sequence is kept as it is.
pub fn percent_decode(text: &str) -> String {
    String::from_utf8_lossy(&percent_decode_bytes(text)).into_owned()
}

/// Decodes percent-encoding of bytes that may be no text. An invalid sequence is kept as it is.
pub fn percent_decode_bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| {
            let byte = after.get(at)?;
            char::from(*byte).to_digit(16)
        };
        if let (b'%', Some(high), Some(low)) = (first, digit(0), digit(1)) {
            out.push((high * 16 + low) as u8);
            rest = &after[2..];
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

/// Resolves a reference from a server, such as the value of `Location` or `Content-Base`, against
/// the absolute URL of the request (RFC 3986, 5.2). The result is an absolute URL that can be
/// requested:
///
/// - An absolute reference stays unchanged; one that has only an authority or a path takes the rest
///   from `base`. An empty reference is `base` itself.
/// - Dot segments are removed from the path (5.2.4).
/// - Characters that are illegal in a path or query are percent-encoded: spaces, control
///   characters, characters beyond ASCII (each byte of their UTF-8) and the delimiters
///   ``"<>\^`{|}``. A `%` stays, whatever follows it. Browsers, curl and ffmpeg do the same. A
///   fragment is kept.
/// - Credentials are those of the reference, never those of `base`.
///
/// Bytes that are not UTF-8 must be encoded first with [`percent_encode_bytes`], as
/// [`crate::http1::Headers`] does for fields that hold a URL.
///
/// # Errors
/// [`UrlProblem::TooLong`] if the reference or the result is longer than [`MAX_URL`]. Host and
/// scheme of the result are checked by the protocol's own parser.
pub fn resolve(base: &str, reference: &str) -> Result<String, UrlError> {
    let reference = reference.trim();
    if reference.len() > MAX_URL || base.len() > MAX_URL {
        return Err(UrlProblem::TooLong.error_for(reference));
    }
    let base = without_credentials(base);
    let (scheme, rest) = base.split_once("://").unwrap_or(("", &base));
    let (authority, target) = split_authority(rest);
    let target = target.split('#').next().unwrap_or_default();
    let own_scheme = reference
        .split_once(':')
        .is_some_and(|(scheme, _)| is_scheme(scheme));
    let absolute = if own_scheme {
        reference.to_owned()
    } else if reference.starts_with("//") {
        format!("{scheme}:{reference}")
    } else {
        let (path, _) = split_path(target);
        let target = match reference.chars().next() {
            None | Some('#') => format!("{target}{reference}"),
            Some('/') => reference.to_owned(),
            Some('?') => format!("{path}{reference}"),
            _ => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{reference}")
            }
        };
        format!("{scheme}://{authority}{target}")
    };
    let Some((scheme, rest)) = absolute.split_once("://") else {
        return Ok(absolute);
    };
    let (authority, target) = split_authority(rest);
    let (path, behind) = split_path(target);
    let target = percent_encode(&(remove_dot_segments(path) + behind));
    let url = format!("{scheme}://{authority}{target}");
    match url.len() > MAX_URL {
        true => Err(UrlProblem::TooLong.error_for(&url)),
        false => Ok(url),
    }
}

/// Returns `true` if the text before the first `:` of a reference is a scheme (RFC 3986, 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Splits a target into its path and the query with the fragment.
fn split_path(target: &str) -> (&str, &str) {
    target.split_at(target.find(['?', '#']).unwrap_or(target.len()))
}

/// Removes the segments `.` and `..` from the path of an absolute URL (RFC 3986, 5.2.4).
pub fn remove_dot_segments(path: &str) -> String {
    let Some(segments) = path.strip_prefix('/') else {
        return path.to_owned();
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_dots = false;
    for segment in segments.split('/') {
        ends_in_dots = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    if ends_in_dots {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

/// Percent-encodes characters that are illegal in a path or query. A `%` stays.
pub fn percent_encode(text: &str) -> String {
    encode_except(text.as_bytes(), |byte| {
        byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte)
    })
}

/// Converts bytes to text and percent-encodes each byte beyond ASCII (RFC 3986, 2.1). This keeps
/// text in an encoding other than UTF-8: `T\xe9l\xe9` becomes `T%E9l%E9`.
pub fn percent_encode_bytes(bytes: &[u8]) -> String {
    encode_except(bytes, |byte| byte.is_ascii())
}

/// Percent-encodes all bytes but those that may stay.
fn encode_except(bytes: &[u8], stays: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match stays(byte) {
            true => out.push(char::from(byte)),
            false => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(url: &str) -> UrlParts<'_> {
        UrlParts::parse(url).expect(url)
    }

    fn why(url: &str) -> UrlProblem {
        UrlParts::parse(url).expect_err(url).why
    }

    #[test]
    fn urls_are_split_into_parts() {
        let all = parts("x://us%40er:p@ss@Host:81/a/b?c=d#e");
        assert_eq!(all.user_info, Some("us%40er:p@ss"));
        assert_eq!((&*all.host, all.zone, all.port), ("Host", None, Some(81)));
        assert_eq!((&*all.authority, all.target), ("Host:81", "/a/b?c=d"));
        let bare = parts("x://h");
        assert_eq!((bare.user_info, bare.port, bare.target), (None, None, ""));
        assert_eq!(parts("x://h?y").target, "?y");
        assert_eq!(
            (parts("x://h:").port, &*parts("x://h:").authority),
            (None, "h:")
        );
    }

    #[test]
    fn ipv6_addresses_need_brackets_and_zones_are_not_sent() {
        let url = parts("x://[::1]:99");
        assert_eq!(
            (&*url.host, url.port, &*url.authority),
            ("::1", Some(99), "[::1]:99")
        );
        for url in ["x://[fe80::1%eth0]/", "x://[fe80::1%25eth0]/"] {
            let url = parts(url);
            assert_eq!((&*url.host, url.zone), ("fe80::1%eth0", Some("eth0")));
            assert_eq!(url.authority, "[fe80::1]");
        }
        for url in ["x://[::1", "x://[::1]9/", "x://[x]/", "x://[fe80::1%]/"] {
            assert_eq!(why(url), UrlProblem::Host, "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_rejected_with_the_reason() {
        for url in ["h/a", "x://", "x://:1/", "x://u:p@/"] {
            assert_eq!(why(url), UrlProblem::Host, "{url}");
        }
        for url in ["x://h:0/", "x://h:65536", "x://h:y/", "x://h:1:2"] {
            assert_eq!(why(url), UrlProblem::Port, "{url}");
        }
        for url in ["x://h/a b", "x://h/\r\nX: y", "x://h/\x7f"] {
            assert_eq!(why(url), UrlProblem::Character, "{url}");
        }
        let long = format!("x://h/{}", "a".repeat(MAX_URL));
        assert_eq!(why(&long), UrlProblem::TooLong);
        assert_eq!(
            scheme(&long).map_err(|error| error.why),
            Err(UrlProblem::TooLong)
        );
        assert_eq!(scheme("RtSp://h").as_deref(), Ok("rtsp"));
        assert_eq!(scheme("h/a").as_deref(), Ok(""));
    }

    #[test]
    fn errors_do_not_reveal_passwords() {
        for url in ["x://u:secret@:80/", "x://u:secret@h:0/@", "u:secret@h"] {
            let error = UrlParts::parse(url).expect_err(url).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let error = UrlProblem::Other("something else".to_owned()).error_for("x://u:p@h");
        assert_eq!(error.to_string(), "`x://h`: something else");
        assert_eq!(
            UrlProblem::Host.error_for("x://u@/").to_string(),
            "`x:///` has no host"
        );
        let long = UrlProblem::TooLong.error_for("x://h").to_string();
        assert_eq!(long, "the URL is longer than 4096 bytes");
    }

    #[test]
    fn credentials_are_percent_decoded() {
        let credentials = Credentials::parse("us%40er:p%3Aw:d%zz%4");
        assert_eq!(credentials.user, "us@er");
        assert_eq!(credentials.password, "p:w:d%zz%4");
        assert!(!format!("{credentials:?}").contains("p:w"));
        assert_eq!(Credentials::parse("u").password, "");
    }

    #[test]
    fn references_resolve_as_in_rfc_3986() {
        // RFC 3986, 5.4, with `http` instead of `a`, and one reference with another scheme.
        let base = "http://a/b/c/d;p?q";
        for (reference, expected) in [
            ("g:h", "g:h"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q#s"),
            ("g?y#s", "http://a/b/c/g?y#s"),
            (";x", "http://a/b/c/;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/../h", "http://a/b/c/h"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("g#s/../x", "http://a/b/c/g#s/../x"),
        ] {
            assert_eq!(
                resolve(base, reference).as_deref(),
                Ok(expected),
                "{reference}"
            );
        }
        assert_eq!(resolve("x://u:p@h", "g").as_deref(), Ok("x://h/g"));
        assert_eq!(resolve("x://h?q", "?r").as_deref(), Ok("x://h?r"));
        assert_eq!(
            resolve("x://h/a", "y://u:p@g//a/../b").as_deref(),
            Ok("y://u:p@g//b")
        );
    }

    #[test]
    fn illegal_characters_of_references_are_escaped() {
        for (reference, expected) in [
            ("/live/My Channel.ts", "/live/My%20Channel.ts"),
            (" /a\tb\u{1} ", "/a%09b%01"),
            ("/Télé?n=é", "/T%C3%A9l%C3%A9?n=%C3%A9"),
            ("/a%20b%zz%", "/a%20b%zz%"),
            (r#"/"<>\^`{|}"#, "/%22%3C%3E%5C%5E%60%7B%7C%7D"),
            ("/[x]!$&'()*+,;=:@~-._", "/[x]!$&'()*+,;=:@~-._"),
            (&percent_encode_bytes(b"/T\xe9l\xe9.ts"), "/T%E9l%E9.ts"),
        ] {
            let expected = format!("x://h{expected}");
            assert_eq!(resolve("x://h/", reference), Ok(expected), "{reference}");
        }
        // An invalid host stays invalid.
        assert_eq!(resolve("x://h/", "//a b/").as_deref(), Ok("x://a b/"));
        let long = format!("/{}", " ".repeat(MAX_URL / 3));
        assert!(resolve("x://h/", &format!("{long}a")).is_err());
        assert!(resolve("x://h/", &"a".repeat(MAX_URL + 1)).is_err());
    }

    proptest! {
        #[test]
        fn any_reference_resolves_to_a_valid_target(reference in any::<String>()) {
            if let Ok(url) = resolve("x://h:1/a/b?c", &reference)
                && let Some((_, rest)) = url.split_once("://")
            {
                let (_, target) = split_authority(rest);
                prop_assert!(target.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert_eq!(resolve("x://h:1/a/b?c", &url), Ok(url));
            }
        }

        #[test]
        fn authority_and_target_parse_again(url in "x://([a-z:%@]{0,9}@)?([a-z]{1,9}|\\[[a-f0-9:]{2,9}\\])(:[0-9]{0,5})?[/?#a-z]{0,9}") {
            if let Ok(read) = UrlParts::parse(&url) {
                let again = format!("x://{}{}", read.authority, read.target);
                let again = UrlParts::parse(&again).expect("the URL was parsed before");
                prop_assert_eq!(again, UrlParts { user_info: None, ..read });
            }
        }
    }
}

//! What URLs of all protocols have in common (RFC 3986, 3): user information, host, port and what
//! follows them. Which schemes there are, and what a path means, each protocol says itself.

use std::fmt;

/// The longest URL taken, in bytes.
pub const MAX_URL: usize = 4096;

/// A name with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password; empty where there is none.
    pub password: String,
}

impl Credentials {
    /// The name and the password of user information (RFC 3986, 3.2.1), percent-decoded.
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

/// Why no client can be sent to a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    /// The URL as it may be shown; empty where it is too long.
    pub url: String,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// None of the protocol's schemes.
    #[error("is no {kind}: it must begin with {schemes}")]
    Scheme {
        /// What it should be.
        kind: &'static str,
        /// The schemes that there are, in words.
        schemes: &'static str,
    },
    /// No host, or none that can be read.
    #[error("names no host")]
    Host,
    /// A port that is none.
    #[error("has a port that is not a number from 1 to 65535")]
    Port,
    /// Blanks or control characters.
    #[error("holds a blank or a control character; write a blank as %20")]
    Character,
    /// Longer than [`MAX_URL`].
    #[error("the URL is longer than {MAX_URL} bytes")]
    TooLong,
    /// Something that a protocol says in its own words.
    #[error("{0}")]
    Other(String),
}

impl fmt::Display for UrlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UrlError { url, why } = self;
        match why {
            Why::TooLong => write!(out, "{why}"),
            Why::Other(_) => write!(out, "`{url}`: {why}"),
            _ => write!(out, "`{url}` {why}"),
        }
    }
}

impl std::error::Error for UrlError {}

impl Why {
    /// The error of that URL, which is shown without its password.
    pub fn of(self, url: &str) -> UrlError {
        let url = match self {
            Why::TooLong => String::new(),
            _ => without_credentials(url),
        };
        UrlError { url, why: self }
    }
}

/// The scheme of a URL in small letters; empty where there is none.
///
/// # Errors
/// [`Why::TooLong`].
pub fn scheme(url: &str) -> Result<String, UrlError> {
    match url.split_once("://") {
        _ if url.len() > MAX_URL => Err(Why::TooLong.of(url)),
        Some((scheme, _)) => Ok(scheme.to_ascii_lowercase()),
        None => Ok(String::new()),
    }
}

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// What stands before the `@`, as it is written; none without an `@`.
    pub user_info: Option<&'a str>,
    /// Name or address; an IPv6 address without its brackets, with its zone.
    pub host: String,
    /// The zone of an IPv6 address, which stands in `host` too.
    pub zone: Option<&'a str>,
    /// The port, where one is named.
    pub port: Option<u16>,
    /// Host and port as they are sent: as written, without a zone.
    pub authority: String,
    /// Path and query as they are written; empty where there are none.
    pub target: &'a str,
}

impl Parts<'_> {
    /// Takes an absolute URL apart, whatever its scheme.
    ///
    /// # Errors
    /// [`Why::TooLong`], [`Why::Character`], [`Why::Host`] or [`Why::Port`].
    pub fn of(url: &str) -> Result<Parts<'_>, UrlError> {
        let wrong = |why: Why| why.of(url);
        if url.len() > MAX_URL {
            return Err(wrong(Why::TooLong));
        }
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(wrong(Why::Character));
        }
        let (_, rest) = url.split_once("://").ok_or_else(|| wrong(Why::Host))?;
        let (authority, target) = split_authority(rest);
        // A fragment is the client's own.
        let target = target.split_once('#').map_or(target, |(target, _)| target);
        let (user_info, place) = match authority.rsplit_once('@') {
            Some((user_info, place)) => (Some(user_info), place),
            None => (None, authority),
        };
        let (host, zone, authority, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed
                    .split_once(']')
                    .filter(|(_, port)| port.is_empty() || port.starts_with(':'))
                    .ok_or_else(|| wrong(Why::Host))?;
                let (address, zone) = split_zone(host).ok_or_else(|| wrong(Why::Host))?;
                let host = match zone {
                    Some(zone) => format!("{address}%{zone}"),
                    None => address.to_owned(),
                };
                // A zone means something on this machine alone (RFC 6874, 4).
                let sent = format!("[{address}]{port}");
                (host, zone, sent, port.strip_prefix(':').unwrap_or(""))
            }
            None => {
                let (host, port) = place.split_once(':').unwrap_or((place, ""));
                (host.to_owned(), None, place.to_owned(), port)
            }
        };
        if host.is_empty() {
            return Err(wrong(Why::Host));
        }
        let port = match port {
            "" => None,
            port => match port.parse() {
                Ok(0) | Err(_) => return Err(wrong(Why::Port)),
                Ok(port) => Some(port),
            },
        };
        Ok(Parts {
            user_info,
            host,
            zone,
            port,
            authority,
            target,
        })
    }
}

/// What stands behind `://`: the authority, and what follows it.
pub fn split_authority(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// The URL without name and password, fit for requests and messages.
pub(crate) fn without_credentials(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let (authority, _) = split_authority(&url[start..]);
    match authority.rfind('@') {
        Some(at) => format!("{}{}", &url[..start], &url[start + at + 1..]),
        None => url.to_owned(),
    }
}

/// An IPv6 address as URLs write it, and its zone, where it has one: `fe80::1%25eth0`
/// (RFC 6874, 2), or with a bare `%` as people write it.
fn split_zone(host: &str) -> Option<(&str, Option<&str>)> {
    let (address, zone) = match host.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (host, None),
    };
    address.parse::<std::net::Ipv6Addr>().ok()?;
    (zone != Some("")).then_some((address, zone))
}

/// Decodes `%41` (RFC 3986, 2.1); a `%` that begins no such thing stands for itself.
pub fn percent_decode(text: &str) -> String {
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
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(url: &str) -> Parts<'_> {
        Parts::of(url).expect(url)
    }

    fn why(url: &str) -> Why {
        Parts::of(url).expect_err(url).why
    }

    #[test]
    fn urls_are_taken_apart() {
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
    fn addresses_stand_in_brackets_and_zones_are_not_sent() {
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
            assert_eq!(why(url), Why::Host, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for url in ["h/a", "x://", "x://:1/", "x://u:p@/"] {
            assert_eq!(why(url), Why::Host, "{url}");
        }
        for url in ["x://h:0/", "x://h:65536", "x://h:y/", "x://h:1:2"] {
            assert_eq!(why(url), Why::Port, "{url}");
        }
        for url in ["x://h/a b", "x://h/\r\nX: y", "x://h/\x7f"] {
            assert_eq!(why(url), Why::Character, "{url}");
        }
        let long = format!("x://h/{}", "a".repeat(MAX_URL));
        assert_eq!(why(&long), Why::TooLong);
        assert_eq!(scheme(&long).map_err(|error| error.why), Err(Why::TooLong));
        assert_eq!(scheme("RtSp://h").as_deref(), Ok("rtsp"));
        assert_eq!(scheme("h/a").as_deref(), Ok(""));
    }

    #[test]
    fn errors_show_no_password() {
        for url in ["x://u:secret@:80/", "x://u:secret@h:0/@", "u:secret@h"] {
            let error = Parts::of(url).expect_err(url).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let error = Why::Other("something else".to_owned()).of("x://u:p@h");
        assert_eq!(error.to_string(), "`x://h`: something else");
        assert_eq!(Why::Host.of("x://u@/").to_string(), "`x:///` names no host");
        let long = Why::TooLong.of("x://h").to_string();
        assert_eq!(long, "the URL is longer than 4096 bytes");
    }

    #[test]
    fn names_and_passwords_are_decoded() {
        let credentials = Credentials::parse("us%40er:p%3Aw:d%zz%4");
        assert_eq!(credentials.user, "us@er");
        assert_eq!(credentials.password, "p:w:d%zz%4");
        assert!(!format!("{credentials:?}").contains("p:w"));
        assert_eq!(Credentials::parse("u").password, "");
    }

    proptest! {
        #[test]
        fn what_is_sent_is_read_again(url in "x://([a-z:%@]{0,9}@)?([a-z]{1,9}|\\[[a-f0-9:]{2,9}\\])(:[0-9]{0,5})?[/?#a-z]{0,9}") {
            if let Ok(read) = Parts::of(&url) {
                let again = format!("x://{}{}", read.authority, read.target);
                let again = Parts::of(&again).expect("it was read");
                prop_assert_eq!(again, Parts { user_info: None, ..read });
            }
        }
    }
}

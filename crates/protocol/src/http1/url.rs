//! URLs of HTTP (RFC 9110, 4.2).

use std::fmt;

/// The longest URL taken, in bytes.
pub const MAX_URL: usize = 4096;

/// An absolute URL of HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    secure: bool,
    /// Name or address, an IPv6 address without its brackets, with its zone.
    host: String,
    port: u16,
    /// Host and port as `Host` names them.
    authority: String,
    /// Path and query.
    target: String,
    /// `user:password`, percent-decoded.
    credentials: Option<String>,
}

/// Why a text is no URL that a client can be sent to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Neither `http://` nor `https://`.
    #[error("`{0}` is no HTTP URL: it must begin with http:// or https://")]
    Scheme(String),
    /// No host, or none that can be read.
    #[error("`{0}` names no host")]
    Host(String),
    /// A port that is none.
    #[error("`{0}` has a port that is not a number from 1 to 65535")]
    Port(String),
    /// Blanks or control characters.
    #[error("`{0}` holds a blank or a control character; write a blank as %20")]
    Character(String),
    /// Longer than is taken.
    #[error("the URL is longer than {MAX_URL} bytes")]
    TooLong,
}

impl Url {
    /// The port of `http` where a URL names none (RFC 9110, 4.2.1).
    pub const DEFAULT_PORT: u16 = 80;

    /// The port of `https` where a URL names none (RFC 9110, 4.2.2).
    pub const DEFAULT_TLS_PORT: u16 = 443;

    /// Takes an absolute URL apart.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<Url, UrlError> {
        let shown = || without_credentials(url);
        if url.len() > MAX_URL {
            return Err(UrlError::TooLong);
        }
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| UrlError::Scheme(shown()))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(UrlError::Scheme(shown())),
        };
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(UrlError::Character(shown()));
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // A fragment is the client's own.
        let target = target.split_once('#').map_or(target, |(target, _)| target);
        let target = match target.starts_with('/') {
            true => target.to_owned(),
            false => format!("/{target}"),
        };
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, sent, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed
                    .split_once(']')
                    .ok_or_else(|| UrlError::Host(shown()))?;
                let (address, zone) = match host.split_once('%') {
                    // As RFC 6874 writes it, and as people do.
                    Some((address, zone)) => {
                        (address, Some(zone.strip_prefix("25").unwrap_or(zone)))
                    }
                    None => (host, None),
                };
                if address.parse::<std::net::Ipv6Addr>().is_err()
                    || zone == Some("")
                    || !(port.is_empty() || port.starts_with(':'))
                {
                    return Err(UrlError::Host(shown()));
                }
                let host = match zone {
                    Some(zone) => format!("{address}%{zone}"),
                    None => address.to_owned(),
                };
                // A zone means something on this machine alone (RFC 6874, 4).
                (
                    host,
                    format!("[{address}]{port}"),
                    port.strip_prefix(':').unwrap_or(""),
                )
            }
            None => {
                let (host, port) = place.split_once(':').unwrap_or((place, ""));
                (host.to_owned(), place.to_owned(), port)
            }
        };
        if host.is_empty() {
            return Err(UrlError::Host(shown()));
        }
        let port = match port {
            "" if secure => Url::DEFAULT_TLS_PORT,
            "" => Url::DEFAULT_PORT,
            port => port
                .parse()
                .ok()
                .filter(|&port| port != 0)
                .ok_or_else(|| UrlError::Port(shown()))?,
        };
        Ok(Url {
            secure,
            host,
            port,
            authority: sent,
            target,
            credentials: user.filter(|user| !user.is_empty()).map(decoded),
        })
    }

    /// Name or address of the server; an IPv6 address stands without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is over TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host and port as they are written, without name and password.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query, `/` where there are none.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Name and password as `Authorization: Basic` has them before it codes them (RFC 7617, 2); none where there are none.
    pub fn user_info(&self) -> Option<&str> {
        self.credentials.as_deref()
    }

    /// Whether both ask the same server for the same, whoever asks.
    pub fn is_same_place(&self, other: &Url) -> bool {
        let place = |url: &Url| (url.secure, url.host.to_ascii_lowercase(), url.port);
        self.target == other.target && place(self) == place(other)
    }

    /// The URL that the server sends one on to: absolute, or relative to this one (RFC 9110, 10.2.2). The password goes along to the same
    /// host and port only, and from TLS to TLS only.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn redirect(&self, location: &str) -> Result<Url, UrlError> {
        let location = location.trim();
        let scheme = if self.secure { "https" } else { "http" };
        let mut url = if location.is_empty() {
            return Err(UrlError::Host(String::new()));
        } else if location
            .split_once(':')
            .is_some_and(|(scheme, _)| is_scheme(scheme))
        {
            Url::parse(location)?
        } else if location.starts_with("//") {
            Url::parse(&format!("{scheme}:{location}"))?
        } else {
            let path = self
                .target
                .split_once('?')
                .map_or(&*self.target, |(path, _)| path);
            let target = match location.chars().next() {
                Some('/') => location.to_owned(),
                Some('?') => format!("{path}{location}"),
                _ => format!(
                    "{}/{location}",
                    path.rsplit_once('/').map_or("", |(folder, _)| folder)
                ),
            };
            let mut url = Url::parse(&format!("{scheme}://{}{target}", self.authority))?;
            // What is written there names no zone.
            url.host.clone_from(&self.host);
            url
        };
        let same = url.host == self.host && url.port == self.port;
        if url.credentials.is_none() && same && (url.secure || !self.secure) {
            url.credentials.clone_from(&self.credentials);
        }
        Ok(url)
    }
}

/// Whether a reference that begins so names a scheme (RFC 3986, 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(out, "{scheme}://{}{}", self.authority, self.target)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A URL as it may be shown.
fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((_, place)) => format!("{scheme}://{place}{}", &rest[end..]),
        None => url.to_owned(),
    }
}

/// Percent-decoded; what is no code stays as it is.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| {
            after
                .get(at)
                .and_then(|&byte| char::from(byte).to_digit(16))
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
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url =
            Url::parse("http://me:p%40ss@Relay:8080/rtp/239.1.1.1:5000?a=b#c").expect("a URL");
        assert_eq!(
            (url.host(), url.port(), url.is_secure()),
            ("Relay", 8080, false)
        );
        assert_eq!(url.authority(), "Relay:8080");
        assert_eq!(url.target(), "/rtp/239.1.1.1:5000?a=b");
        assert_eq!(url.user_info(), Some("me:p@ss"));
        assert_eq!(url.to_string(), "http://Relay:8080/rtp/239.1.1.1:5000?a=b");
        assert!(!format!("{url:?}").contains("ss@"));
        let url = Url::parse("HTTPS://[fe80::1%25eth0]").expect("a URL");
        assert_eq!(
            (url.host(), url.port(), url.is_secure()),
            ("fe80::1%eth0", 443, true)
        );
        assert_eq!((url.authority(), url.target()), ("[fe80::1]", "/"));
        assert_eq!(Url::parse("http://h?x").expect("a URL").target(), "/?x");
    }

    #[test]
    fn what_is_no_url_is_said_without_its_password() {
        for wrong in [
            "h/a",
            "rtsp://h/a",
            "http://",
            "http://u:secret@:80/",
            "http://h:0/",
            "http://h:x/",
            "http://h/a b",
            "http://[1/",
        ] {
            let error = Url::parse(wrong).expect_err(wrong).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let long = format!("http://h/{}", "a".repeat(MAX_URL));
        assert_eq!(Url::parse(&long), Err(UrlError::TooLong));
    }

    #[test]
    fn redirects_are_relative_or_not_and_take_the_password_no_further() {
        let url = Url::parse("http://u:p@h:81/a/b?c").expect("a URL");
        let to = |location: &str| url.redirect(location).map(|url| url.to_string());
        assert_eq!(to("/x").as_deref(), Ok("http://h:81/x"));
        assert_eq!(to("x").as_deref(), Ok("http://h:81/a/x"));
        assert_eq!(to("?y").as_deref(), Ok("http://h:81/a/b?y"));
        assert_eq!(to("//g/x").as_deref(), Ok("http://g/x"));
        assert_eq!(to("https://g/x").as_deref(), Ok("https://g/x"));
        assert!(to("").is_err() && to("udp://239.0.0.1:1/").is_err());
        let kept = |location: &str| url.redirect(location).expect("a URL").user_info().is_some();
        assert!(kept("/x") && kept("http://h:81/y"));
        assert!(!kept("http://g:81/") && !kept("http://h/"));
    }
}

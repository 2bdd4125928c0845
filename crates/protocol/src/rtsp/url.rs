//! URLs of RTSP (RFC 2326, 3.2), and how controls are resolved against them (C.1.1).
//!
//! What is asked for is kept letter by letter: servers compare URLs as text, so nothing is
//! normalised, but for user information, which is taken out.

use std::fmt;

/// The port where a URL names none (RFC 2326, 3.2).
pub const DEFAULT_PORT: u16 = 554;

/// The same over TLS (RFC 7826, 4.2; of RTSP 1.0 it is custom).
pub const DEFAULT_TLS_PORT: u16 = 322;

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

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// An absolute URL of RTSP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Without user information, as it is sent in requests.
    text: String,
    /// Where the path begins in `text`.
    path: usize,
    /// Whether it is over TLS.
    secure: bool,
    /// Name or address, an IPv6 address without its brackets, with its zone.
    host: String,
    port: u16,
    credentials: Option<Credentials>,
}

/// Why a text is no URL that a client can be sent to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Neither `rtsp://` nor `rtsps://`.
    #[error("`{0}` is no RTSP URL: it must begin with rtsp:// or rtsps://")]
    Scheme(String),
    /// RTSP over UDP.
    #[error("`{0}`: RTSP requests over UDP (rtspu) are not supported; use rtsp://")]
    OverUdp(String),
    /// No host.
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
    /// Takes an absolute URL apart.
    pub fn parse(url: &str) -> Result<Url, UrlError> {
        let shown = || without_credentials(url);
        if url.len() > MAX_URL {
            return Err(UrlError::TooLong);
        }
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| UrlError::Scheme(shown()))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "rtsp" => false,
            "rtsps" => true,
            "rtspu" => return Err(UrlError::OverUdp(shown())),
            _ => return Err(UrlError::Scheme(shown())),
        };
        if url.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(UrlError::Character(shown()));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // A fragment is the client's own.
        let path = path.split_once('#').map_or(path, |(path, _)| path);
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((user_info, place)) => (Some(parse_user_info(user_info)), place),
            None => (None, authority),
        };
        let (host, sent, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed
                    .split_once(']')
                    .ok_or_else(|| UrlError::Host(shown()))?;
                let (address, zone) = split_zone(host).ok_or_else(|| UrlError::Host(shown()))?;
                if !(port.is_empty() || port.starts_with(':')) {
                    return Err(UrlError::Host(shown()));
                }
                let host = match zone {
                    Some(zone) => format!("{address}%{zone}"),
                    None => address.to_owned(),
                };
                // A zone means something on this machine alone (RFC 6874, 4).
                let sent = format!("[{address}]{port}");
                (host, sent, port.strip_prefix(':').unwrap_or(""))
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
            "" if secure => DEFAULT_TLS_PORT,
            "" => DEFAULT_PORT,
            port => port
                .parse()
                .ok()
                .filter(|&port| port != 0)
                .ok_or_else(|| UrlError::Port(shown()))?,
        };
        let scheme = if secure { "rtsps" } else { "rtsp" };
        let start = format!("{scheme}://{sent}");
        Ok(Url {
            path: start.len(),
            text: start + path,
            secure,
            host,
            port,
            credentials: credentials.filter(|c| !c.user.is_empty() || !c.password.is_empty()),
        })
    }

    /// The URL as it is sent: without user information.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Name or address of the server; an IPv6 address stands without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Host and port as they are written, without name and password.
    pub fn authority(&self) -> &str {
        let scheme = self.text.find("://").map_or(0, |at| at + 3);
        &self.text[scheme..self.path]
    }

    /// Path and query, `/` where there are none.
    pub fn target(&self) -> &str {
        match &self.text[self.path..] {
            "" => "/",
            target => target,
        }
    }

    /// What the stream is called among the clients of a run: the same for all URLs that lead to it alike.
    pub fn stream_name(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        format!("rtsp {host} {} {}", self.port, self.target())
    }

    /// Whether it is over TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Name and password out of the URL, percent-decoded.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The URL that the server sends one on to: absolute, or relative to this one. The password
    /// goes along to the same host only, and from TLS to TLS only.
    pub fn redirect(&self, location: &str) -> Result<Url, UrlError> {
        let location = location.trim();
        let mut target = if location.contains("://") {
            Url::parse(location)?
        } else if location.is_empty() {
            return Err(UrlError::Host(String::new()));
        } else if location.starts_with('/') {
            Url::parse(&format!("{}{location}", &self.text[..self.path]))?
        } else {
            let path = self.text.split_once('?').map_or(&*self.text, |(p, _)| p);
            let folder = match path.rfind('/') {
                Some(slash) if slash >= self.path => &path[..slash],
                _ => path,
            };
            Url::parse(&format!("{folder}/{location}"))?
        };
        let as_safe = target.secure || !self.secure;
        if target.credentials.is_none() && target.host == self.host && as_safe {
            target.credentials.clone_from(&self.credentials);
        }
        Ok(target)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The URL that controls of a description are relative to: `Content-Base`, `Content-Location`, or
/// what was asked for, in that order (RFC 2326, C.1.1). Values that are no URL are passed over.
pub fn base(content_base: Option<&str>, content_location: Option<&str>, asked: &Url) -> String {
    [content_base, content_location]
        .into_iter()
        .flatten()
        .map(|value| value.trim().trim_matches('"'))
        .find_map(|value| {
            if is_absolute(value) {
                Some(without_credentials(value))
            } else if value.starts_with('/') {
                Some(format!("{}{value}", &asked.text[..asked.path]))
            } else {
                None
            }
        })
        .filter(|base| base.len() <= MAX_URL)
        .unwrap_or_else(|| asked.text.clone())
}

/// The URL that a `control` attribute means.
///
/// Servers do not mean what RFC 3986 says of relative references (the last part of the base would be
/// replaced): a relative control is put behind the base, with one `/` between, also behind a query.
pub fn control(base: &str, control: Option<&str>) -> String {
    let control = control.map(str::trim).unwrap_or_default();
    if control.is_empty() || control == "*" {
        return base.to_owned();
    }
    if is_absolute(control) {
        return without_credentials(control);
    }
    if control.starts_with('/') {
        let authority = base.find("://").map_or(0, |at| at + 3);
        let end = base[authority..]
            .find(['/', '?'])
            .map_or(base.len(), |at| authority + at);
        return format!("{}{control}", &base[..end]);
    }
    if base.ends_with('/') || control.starts_with('?') {
        format!("{base}{control}")
    } else {
        format!("{base}/{control}")
    }
}

/// Whether two URLs mean the same stream, as far as servers differ in writing them: in a slash at
/// the end, in the scheme's and host's case, in a port that is the default one.
pub fn same(a: &str, b: &str) -> bool {
    fn parts(url: &str) -> (String, &str) {
        let Some((scheme, rest)) = url.split_once("://") else {
            return (String::new(), url.trim_end_matches('/'));
        };
        let default = match scheme.eq_ignore_ascii_case("rtsps") {
            true => ":322",
            false => ":554",
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let authority = rest[..end].to_ascii_lowercase();
        let authority = authority
            .strip_suffix(default)
            .map_or(authority.clone(), str::to_owned);
        (authority, rest[end..].trim_end_matches('/'))
    }
    parts(a) == parts(b)
}

fn is_absolute(url: &str) -> bool {
    url.get(..7)
        .is_some_and(|start| start.eq_ignore_ascii_case("rtsp://"))
        || url.get(..8).is_some_and(|start| {
            start.eq_ignore_ascii_case("rtspu://") || start.eq_ignore_ascii_case("rtsps://")
        })
}

/// The URL without name and password, fit for requests and messages.
fn without_credentials(url: &str) -> String {
    let Some(start) = url.find("://").map(|at| at + 3) else {
        return url.to_owned();
    };
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| start + at);
    match url[start..end].rfind('@') {
        Some(at) => format!("{}{}", &url[..start], &url[start + at + 1..]),
        None => url.to_owned(),
    }
}

/// An IPv6 address as URLs write it, and its zone, where it has one: `fe80::1%25eth0` (RFC 6874, 2), or with a bare
/// `%` as people write it.
fn split_zone(host: &str) -> Option<(&str, Option<&str>)> {
    let (address, zone) = match host.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (host, None),
    };
    address.parse::<std::net::Ipv6Addr>().ok()?;
    let named = |zone: &str| {
        !zone.is_empty()
            && zone
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
    };
    zone.is_none_or(named).then_some((address, zone))
}

fn parse_user_info(user_info: &str) -> Credentials {
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    Credentials {
        user: percent_decode(user),
        password: percent_decode(password),
    }
}

/// Decodes `%41`; a `%` that begins no such thing stands for itself.
fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit = |offset: usize| {
            bytes
                .get(at + offset)
                .and_then(|&b| char::from(b).to_digit(16))
        };
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) = (digit(1), digit(2))
        {
            out.push((high * 16 + low) as u8);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Url {
        Url::parse(url).expect(url)
    }

    #[test]
    fn host_port_and_user_are_found() {
        let url = parse("rtsp://127.0.0.1:8554/a/b?c=d&e");
        assert_eq!((url.host(), url.port()), ("127.0.0.1", 8554));
        assert_eq!(url.as_str(), "rtsp://127.0.0.1:8554/a/b?c=d&e");
        assert_eq!(url.credentials(), None);
        let url = parse("RTSP://us%40er:p%3Aw:d%zz@cam.local");
        assert_eq!((url.host(), url.port()), ("cam.local", 554));
        assert_eq!(url.as_str(), "rtsp://cam.local");
        let credentials = url.credentials().expect("there are some");
        assert_eq!(credentials.user, "us@er");
        assert_eq!(credentials.password, "p:w:d%zz");
        assert!(!format!("{credentials:?}").contains("p:w"));
        let url = parse("rtsp://a:b@c@[::1]:99/x#y");
        assert_eq!((url.host(), url.port()), ("::1", 99));
        assert_eq!(url.as_str(), "rtsp://[::1]:99/x");
        assert_eq!(url.credentials().map(|c| &*c.password), Some("b@c"));
        assert_eq!(parse("rtsp://h?x").port(), 554);
        let url = parse("RTSPS://u:p@h/a");
        assert_eq!((url.port(), url.is_secure()), (322, true));
        assert_eq!(url.as_str(), "rtsps://h/a");
        assert!(!parse("rtsp://h/a").is_secure());
    }

    #[test]
    fn a_zone_is_for_this_machine_alone() {
        for url in ["rtsp://[fe80::1%eth0]:99/a", "rtsp://[fe80::1%25eth0]:99/a"] {
            let url = parse(url);
            assert_eq!((url.host(), url.port()), ("fe80::1%eth0", 99));
            assert_eq!(url.as_str(), "rtsp://[fe80::1]:99/a");
            assert_eq!(
                url.redirect("/b").expect("a URL").as_str(),
                "rtsp://[fe80::1]:99/b"
            );
        }
    }

    #[test]
    fn what_is_no_url_says_why() {
        for (url, part) in [
            ("", "rtsp://"),
            ("http://h/", "must begin"),
            ("rtsps://u:secret@", "no host"),
            ("rtsp://[fe80::1%]/", "no host"),
            ("rtsp://[fe80::1%a/b]/", "no host"),
            ("rtspu://h/", "over UDP"),
            ("rtsp://", "no host"),
            ("rtsp://:554/a", "no host"),
            ("rtsp://[::1/a", "no host"),
            ("rtsp://[x]/a", "no host"),
            ("rtsp://h:0/", "port"),
            ("rtsp://h:65536/", "port"),
            ("rtsp://h:x/", "port"),
            ("rtsp://h/a b", "%20"),
            ("rtsp://h/a\r\nX: y", "control character"),
        ] {
            let error = Url::parse(url).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!(
            Url::parse(&format!("rtsp://h/{}", "a".repeat(MAX_URL))),
            Err(UrlError::TooLong)
        );
    }

    #[test]
    fn controls_as_servers_write_them() {
        for (base, written, url) in [
            // live555, GStreamer, VLC
            ("rtsp://h/a/", Some("track1"), "rtsp://h/a/track1"),
            ("rtsp://h/a", Some("stream=0"), "rtsp://h/a/stream=0"),
            (
                "rtsp://h:8556/v1/",
                Some("rtsp://h:8556/v1/trackID=0"),
                "rtsp://h:8556/v1/trackID=0",
            ),
            // Cameras with queries
            (
                "rtsp://h/live?ch=1",
                Some("trackID=1"),
                "rtsp://h/live?ch=1/trackID=1",
            ),
            (
                "rtsp://h/c/101/?transportmode=unicast",
                Some("trackID=1"),
                "rtsp://h/c/101/?transportmode=unicast/trackID=1",
            ),
            ("rtsp://h/a", Some("?ctype=video"), "rtsp://h/a?ctype=video"),
            ("rtsp://h/a/b", Some("/c"), "rtsp://h/c"),
            ("rtsp://h", Some("/c"), "rtsp://h/c"),
            ("rtsp://h", Some("c"), "rtsp://h/c"),
            ("rtsp://h/a", Some("*"), "rtsp://h/a"),
            ("rtsp://h/a/", None, "rtsp://h/a/"),
            ("rtsp://h/a", Some(" "), "rtsp://h/a"),
            ("rtsp://h/a", Some("RTSP://u:p@h2/x"), "RTSP://h2/x"),
        ] {
            assert_eq!(control(base, written), url);
        }
    }

    #[test]
    fn the_base_is_taken_in_order() {
        let asked = parse("rtsp://u:p@h:99/a?b");
        assert_eq!(
            base(Some(" rtsp://h:99/a/ "), Some("rtsp://x/"), &asked),
            "rtsp://h:99/a/"
        );
        assert_eq!(base(None, Some("rtsp://x/"), &asked), "rtsp://x/");
        assert_eq!(base(Some(""), None, &asked), "rtsp://h:99/a?b");
        assert_eq!(base(Some("nonsense"), None, &asked), "rtsp://h:99/a?b");
        assert_eq!(base(Some("/p/"), None, &asked), "rtsp://h:99/p/");
        assert_eq!(base(Some("rtsp://u:p@h/a"), None, &asked), "rtsp://h/a");
    }

    #[test]
    fn redirects_lead_on() {
        let from = parse("rtsp://u:p@h:99/a/b?c");
        let same_host = from.redirect("rtsp://h:98/x").expect("a URL");
        assert_eq!(
            (same_host.as_str(), same_host.port()),
            ("rtsp://h:98/x", 98)
        );
        assert!(same_host.credentials().is_some());
        let other = from.redirect("rtsp://other/x").expect("a URL");
        assert!(other.credentials().is_none());
        let secure = parse("rtsps://u:p@h/a");
        let plain = secure.redirect("rtsp://h/a").expect("a URL");
        assert!(plain.credentials().is_none());
        assert!(!plain.is_secure());
        let again = secure.redirect("/b").expect("a URL");
        assert!(again.is_secure() && again.credentials().is_some());
        assert_eq!(
            from.redirect("/y").expect("a URL").as_str(),
            "rtsp://h:99/y"
        );
        assert_eq!(
            from.redirect("y").expect("a URL").as_str(),
            "rtsp://h:99/a/y"
        );
        assert_eq!(
            parse("rtsp://h").redirect("y").expect("a URL").as_str(),
            "rtsp://h/y"
        );
        assert!(from.redirect("").is_err());
        assert!(from.redirect("http://h/").is_err());
    }

    #[test]
    fn streams_are_the_same_however_they_are_written() {
        assert!(same("rtsp://H:554/a/", "RTSP://h/a"));
        assert!(!same("rtsp://h/a", "rtsp://h/A"));
        assert!(!same("rtsp://h/a", "rtsp://h:1/a"));
        assert!(same("rtsps://h:322/a", "rtsps://h/a"));
        assert!(!same("rtsps://h:554/a", "rtsps://h/a"));
        assert!(same("track1/", "track1"));
    }
}

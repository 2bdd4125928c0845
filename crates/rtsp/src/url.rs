//! RTSP URLs (RFC 2326, 3.2), and the resolution of control URLs against them (C.1.1).
//!
//! Servers compare URLs as text, so a requested URL is sent as it was given. Only the scheme is
//! written in lower case, and user information, the zone of an IPv6 address and a fragment are
//! removed.

use std::fmt;

pub use kit::url::UrlError;
use kit::url::{Credentials, MAX_URL, UrlParts, UrlProblem, without_credentials};

/// Default port (RFC 2326, 3.2).
pub const DEFAULT_PORT: u16 = 554;

/// Default port over TLS (RFC 7826, 4.2). RTSP 1.0 does not define one, but this one is customary.
pub const DEFAULT_TLS_PORT: u16 = 322;

/// An absolute RTSP URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// URL without user information, as sent in requests.
    text: String,
    /// Offset of the path in `text`.
    path: usize,
    /// True for RTSP over TLS (`rtsps`).
    secure: bool,
    /// Name or address. An IPv6 address has its zone, but no brackets.
    host: String,
    port: u16,
    credentials: Option<Credentials>,
}

impl Url {
    /// Parses an absolute URL.
    pub fn parse(url: &str) -> Result<Url, UrlError> {
        let secure = match kit::url::scheme(url)?.as_str() {
            "rtsp" => false,
            "rtsps" => true,
            "rtspu" => {
                let why = "RTSP requests over UDP (rtspu) are not supported; use rtsp://";
                return Err(UrlProblem::Other(why.to_owned()).error_for(url));
            }
            _ => {
                let why = UrlProblem::Scheme {
                    kind: "RTSP URL",
                    schemes: "rtsp:// or rtsps://",
                };
                return Err(why.error_for(url));
            }
        };
        let parts = UrlParts::parse(url)?;
        if !parts.zone.is_none_or(is_zone) {
            return Err(UrlProblem::Host.error_for(url));
        }
        let (scheme, default) = match secure {
            true => ("rtsps", DEFAULT_TLS_PORT),
            false => ("rtsp", DEFAULT_PORT),
        };
        let start = format!("{scheme}://{}", parts.authority);
        let credentials = parts.user_info.map(Credentials::parse);
        Ok(Url {
            path: start.len(),
            text: start + parts.target,
            secure,
            host: parts.host,
            port: parts.port.unwrap_or(default),
            credentials: credentials.filter(|c| !c.user.is_empty() || !c.password.is_empty()),
        })
    }

    /// Returns the URL as sent in requests, without user information.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the name or address of the server. An IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns host and port as written in the URL, without user information.
    pub fn authority(&self) -> &str {
        let scheme = self.text.find("://").map_or(0, |at| at + 3);
        &self.text[scheme..self.path]
    }

    /// Returns path and query. Returns `/` if the URL has neither.
    pub fn target(&self) -> &str {
        match &self.text[self.path..] {
            "" => "/",
            target => target,
        }
    }

    /// Returns the name of the stream within a run. URLs with the same host, port, path and query
    /// have the same name.
    pub fn stream_name(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        format!("rtsp {host} {} {}", self.port, self.target())
    }

    /// Returns `true` for RTSP over TLS (`rtsps`).
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns name and password of the URL, percent-decoded.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Returns `true` if header fields with credentials for this URL may be sent to `other`: it has
    /// the same host and port, and is not in plain text if this one has TLS.
    pub fn shares_credentials_with(&self, other: &Url) -> bool {
        self.host.eq_ignore_ascii_case(&other.host)
            && self.port == other.port
            && (other.secure || !self.secure)
    }

    /// Resolves the location of a redirect, which is absolute or relative to this URL. Credentials
    /// are kept only for the same host, and never in a redirect from TLS to plain TCP.
    pub fn redirect(&self, location: &str) -> Result<Url, UrlError> {
        let location = make_valid(location.trim());
        let url = if location.contains("://") {
            location
        } else if location.is_empty() {
            return Err(UrlProblem::Host.error_for(""));
        } else if location.starts_with('/') {
            format!("{}{location}", &self.text[..self.path])
        } else {
            let path = self.text.split_once('?').map_or(&*self.text, |(p, _)| p);
            let folder = match path.rfind('/') {
                Some(slash) if slash >= self.path => &path[..slash],
                _ => path,
            };
            format!("{folder}/{location}")
        };
        let mut target = Url::parse(&make_valid(&url))?;
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

/// Returns the base URL of the controls in a description: `Content-Base`, `Content-Location` or the
/// requested URL, in that order (RFC 2326, C.1.1). Values that are not URLs are skipped.
pub fn control_base(
    content_base: Option<&str>,
    content_location: Option<&str>,
    asked: &Url,
) -> String {
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
        .map(|base| make_valid(&base))
        .filter(|base| base.len() <= MAX_URL)
        .unwrap_or_else(|| asked.text.clone())
}

/// Resolves a `control` attribute against `base`.
///
/// Servers do not follow RFC 3986, where a relative reference replaces the last segment of the
/// base. They append a relative control to the base, separated by one `/`, even after a query.
pub fn resolve_control(base: &str, control: Option<&str>) -> String {
    make_valid(&join_control(base, control))
}

fn join_control(base: &str, control: Option<&str>) -> String {
    let control = control.map(str::trim).unwrap_or_default();
    if control.is_empty() || control == "*" {
        return base.to_owned();
    }
    if is_absolute(control) {
        return without_credentials(control);
    }
    if control.starts_with('/') {
        return format!("{}{control}", &base[..authority_end(base)]);
    }
    if base.ends_with('/') || control.starts_with('?') {
        format!("{base}{control}")
    } else {
        format!("{base}/{control}")
    }
}

/// Makes a URL from a server's answer valid (RFC 3986): percent-encodes characters that are not
/// allowed in a URL, and removes dot segments from the path of an absolute URL (5.2.4). Leaves the
/// host and valid URLs unchanged.
pub fn make_valid(url: &str) -> String {
    let is_absolute = url.contains("://");
    let path = if is_absolute { authority_end(url) } else { 0 };
    let (authority, target) = url.split_at(path);
    let target = kit::url::percent_encode(target);
    let (folders, query) = match target.find('?') {
        Some(at) => target.split_at(at),
        None => (&*target, ""),
    };
    let is_dot = |part: &str| matches!(part, "." | "..");
    if !is_absolute || !folders.split('/').any(is_dot) {
        return format!("{authority}{target}");
    }
    format!(
        "{authority}{}{query}",
        kit::url::remove_dot_segments(folders)
    )
}

/// Returns the offset at which the scheme and the authority of a URL end.
fn authority_end(url: &str) -> usize {
    let start = url.find("://").map_or(0, |at| at + 3);
    let length = url[start..].find(['/', '?']);
    length.map_or(url.len(), |length| start + length)
}

/// Returns whether two URLs name the same stream. Ignores differences that servers introduce: the
/// scheme, the case of the host, an explicit default port, and a trailing slash.
pub fn same_stream(a: &str, b: &str) -> bool {
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

/// Returns whether `zone` is a valid zone of an IPv6 address: characters that need no
/// percent-encoding (RFC 6874, 2).
fn is_zone(zone: &str) -> bool {
    zone.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Url {
        Url::parse(url).expect(url)
    }

    #[test]
    fn urls_from_servers_are_made_valid() {
        for (given, legal_one) in [
            ("rtsp://h/My Cam/", "rtsp://h/My%20Cam/"),
            ("rtsp://h/caf\u{e9}?a=b c", "rtsp://h/caf%C3%A9?a=b%20c"),
            ("rtsp://h/a/./b/../c/", "rtsp://h/a/c/"),
            ("rtsp://h/a/../../b/..", "rtsp://h/"),
            ("rtsp://h/a?x=../y", "rtsp://h/a?x=../y"),
            ("rtsp://h", "rtsp://h"),
            ("rtsp://h?x", "rtsp://h?x"),
            ("rtsp://h/a//b%20c/trackID=0", "rtsp://h/a//b%20c/trackID=0"),
        ] {
            assert_eq!(make_valid(given), legal_one);
            assert_eq!(make_valid(legal_one), legal_one);
        }
        let asked = parse("rtsp://h/live");
        let own = control_base(Some("rtsp://h/My Cam/"), None, &asked);
        assert_eq!(
            resolve_control(&own, Some("track 1")),
            "rtsp://h/My%20Cam/track%201"
        );
        assert_eq!(
            resolve_control("rtsp://h/a/b/", Some("../t1")),
            "rtsp://h/a/t1"
        );
        let on = |location: &str| asked.redirect(location).expect(location).to_string();
        assert_eq!(on("rtsp://h/My Cam"), "rtsp://h/My%20Cam");
        assert_eq!(on("/a/../b"), "rtsp://h/b");
        assert_eq!(on("../b"), "rtsp://h/b");
    }

    #[test]
    fn host_port_and_credentials_are_parsed() {
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
    fn zone_is_not_sent_to_the_server() {
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
    fn invalid_urls_are_rejected_with_a_reason() {
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
            Url::parse(&format!("rtsp://h/{}", "a".repeat(MAX_URL))).map_err(|error| error.why),
            Err(UrlProblem::TooLong)
        );
    }

    #[test]
    fn controls_of_real_servers_are_resolved() {
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
            assert_eq!(resolve_control(base, written), url);
        }
    }

    #[test]
    fn base_is_chosen_by_precedence() {
        let asked = parse("rtsp://u:p@h:99/a?b");
        assert_eq!(
            control_base(Some(" rtsp://h:99/a/ "), Some("rtsp://x/"), &asked),
            "rtsp://h:99/a/"
        );
        assert_eq!(control_base(None, Some("rtsp://x/"), &asked), "rtsp://x/");
        assert_eq!(control_base(Some(""), None, &asked), "rtsp://h:99/a?b");
        assert_eq!(
            control_base(Some("nonsense"), None, &asked),
            "rtsp://h:99/a?b"
        );
        assert_eq!(control_base(Some("/p/"), None, &asked), "rtsp://h:99/p/");
        assert_eq!(
            control_base(Some("rtsp://u:p@h/a"), None, &asked),
            "rtsp://h/a"
        );
    }

    #[test]
    fn redirects_keep_credentials_only_if_safe() {
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
    fn spelling_of_a_url_does_not_matter() {
        assert!(same_stream("rtsp://H:554/a/", "RTSP://h/a"));
        assert!(!same_stream("rtsp://h/a", "rtsp://h/A"));
        assert!(!same_stream("rtsp://h/a", "rtsp://h:1/a"));
        assert!(same_stream("rtsps://h:322/a", "rtsps://h/a"));
        assert!(!same_stream("rtsps://h:554/a", "rtsps://h/a"));
        assert!(same_stream("track1/", "track1"));
    }
}

//! HTTP URLs (RFC 9110, 4.2).

use std::fmt;

pub use crate::url::UrlError;
use crate::url::{MAX_URL, UrlParts, UrlProblem, percent_decode, resolve};

/// An absolute HTTP URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    secure: bool,
    /// Host name or address; an IPv6 address has no brackets, but may have a zone.
    host: String,
    port: u16,
    /// Host and port as in the `Host` field.
    authority: String,
    /// Path and query.
    target: String,
    /// `user:password`, percent-decoded.
    credentials: Option<String>,
}

impl Url {
    /// Port of an `http` URL that has none (RFC 9110, 4.2.1).
    pub const DEFAULT_PORT: u16 = 80;

    /// Port of an `https` URL that has none (RFC 9110, 4.2.2).
    pub const DEFAULT_TLS_PORT: u16 = 443;

    /// Parses an absolute URL.
    ///
    /// # Errors
    /// [`UrlError`] if the URL is invalid.
    pub fn parse(url: &str) -> Result<Url, UrlError> {
        let (secure, default) = match crate::url::scheme(url)?.as_str() {
            "http" => (false, Url::DEFAULT_PORT),
            "https" => (true, Url::DEFAULT_TLS_PORT),
            _ => {
                let why = UrlProblem::Scheme {
                    kind: "HTTP URL",
                    schemes: "http:// or https://",
                };
                return Err(why.error_for(url));
            }
        };
        let parts = UrlParts::parse(url)?;
        let target = match parts.target.starts_with('/') {
            true => parts.target.to_owned(),
            false => format!("/{}", parts.target),
        };
        let user_info = parts.user_info.filter(|user_info| !user_info.is_empty());
        Ok(Url {
            secure,
            host: parts.host,
            port: parts.port.unwrap_or(default),
            authority: parts.authority,
            target,
            credentials: user_info.map(percent_decode),
        })
    }

    /// Host name or address of the server; an IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `true` for `https`.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host and port as written, without credentials.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query; `/` if the URL has neither.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// `user:password` as in `Authorization: Basic` before encoding (RFC 7617, 2); `None` if the
    /// URL has no credentials.
    pub fn user_info(&self) -> Option<&str> {
        self.credentials.as_deref()
    }

    /// Returns `true` if both URLs mean the same resource of the same server, whatever the
    /// credentials.
    pub fn is_same_resource(&self, other: &Url) -> bool {
        let origin = |url: &Url| (url.secure, url.host.to_ascii_lowercase(), url.port);
        self.target == other.target && origin(self) == origin(other)
    }

    /// Returns `true` if credentials for this URL may be sent to `other`: it has the same host and
    /// port, and is not in plain text if this one has TLS.
    pub fn shares_credentials_with(&self, other: &Url) -> bool {
        self.host.eq_ignore_ascii_case(&other.host)
            && self.port == other.port
            && (other.secure || !self.secure)
    }

    /// Appends parameters, such as `a=1&b=2`, to the query. They must be escaped.
    pub fn append_query(&mut self, parameters: &str) {
        let separator = match self.target.contains('?') {
            true => '&',
            false => '?',
        };
        self.target.push(separator);
        self.target.push_str(parameters);
    }

    /// Resolves the target of a redirect, absolute or relative to this URL (RFC 9110, 10.2.2),
    /// escaped as [`resolve`] does. Credentials are kept only for the same host and port, and not
    /// from TLS to plain text.
    ///
    /// # Errors
    /// [`UrlError`] if the target is invalid.
    pub fn redirect(&self, location: &str) -> Result<Url, UrlError> {
        if location.trim().is_empty() {
            return Err(UrlProblem::Host.error_for(""));
        }
        if let Some(url) = self.plain_sibling(location) {
            return Ok(url);
        }
        let mut url = Url::parse(&resolve(&self.to_string(), location)?)?;
        // The zone is neither sent nor displayed, so it is lost in `resolve`.
        if url.authority == self.authority {
            url.host.clone_from(&self.host);
        }
        if url.credentials.is_none() && self.shares_credentials_with(&url) {
            url.credentials.clone_from(&self.credentials);
        }
        Ok(url)
    }

    /// Resolves a reference that needs no rewriting, as most in playlists: a path relative to the
    /// folder of this URL, of plain characters and without dot segments.
    fn plain_sibling(&self, reference: &str) -> Option<Url> {
        let path = self.target.split('?').next()?;
        let (folder, _) = path.rsplit_once('/')?;
        let is_plain = |text: &str| {
            text.len() < MAX_URL / 4
                && text.bytes().all(is_plain_byte)
                && !text.split('/').any(|segment| segment.starts_with('.'))
        };
        let is_relative = !reference.starts_with(['/', '?']);
        // With the longest scheme.
        let is_long = "https://".len() + self.authority.len() + self.target.len() > MAX_URL;
        if is_long || !is_relative || !is_plain(reference) || !is_plain(folder) {
            return None;
        }
        let mut target = String::with_capacity(folder.len() + 1 + reference.len());
        for part in [folder, "/", reference] {
            target.push_str(part);
        }
        Some(Url {
            secure: self.secure,
            host: self.host.clone(),
            port: self.port,
            authority: self.authority.clone(),
            target,
            credentials: self.credentials.clone(),
        })
    }
}

/// True for characters that need no escaping in a target, and that are no part of a scheme, an
/// authority or a fragment (RFC 3986, 2.2 and 2.3).
fn is_plain_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/?=&%+".contains(&byte)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn plain_references_are_resolved_as_others(
            folders in "(/[a-c.%]{0,3}){0,3}",
            reference in "[a-c0./?=&%+~]{1,12}",
            has_password: bool,
        ) {
            let user = if has_password { "u:p@" } else { "" };
            let url = Url::parse(&format!("http://{user}[fe80::1%25eth0]:81{folders}/x?y=/z"));
            let url = url.expect("a URL");
            let Some(found) = url.plain_sibling(&reference) else {
                return Ok(());
            };
            let expected = Url::parse(&resolve(&url.to_string(), &reference).expect("it is valid"));
            let expected = expected.expect("a URL");
            prop_assert_eq!(found.to_string(), expected.to_string());
            prop_assert_eq!((found.host(), found.port()), (url.host(), url.port()));
            prop_assert_eq!(found.user_info(), url.user_info());
        }
    }

    #[test]
    fn references_in_need_of_rewriting_are_not_plain() {
        let url = Url::parse("http://h/a/b?c").expect("a URL");
        for reference in ["0/123.ts", "x.m4s?token=a%20b&n=1", "v1/720p_3~.ts"] {
            let found = url.plain_sibling(reference).expect("it is plain");
            assert_eq!(found.target(), format!("/a/{reference}"));
        }
        for other in [
            "/x",
            "//g/x",
            "?y",
            "#z",
            "../x",
            "a/./b",
            "a b",
            "http://g/",
            "\u{e9}",
            "a;b:c",
            "a#b",
        ] {
            assert_eq!(url.plain_sibling(other), None, "{other}");
        }
        let odd = Url::parse("http://h/a/../b/c").expect("a URL");
        assert_eq!(odd.plain_sibling("x"), None);
    }

    #[test]
    fn parameters_are_appended_to_the_query() {
        for (url, appended) in [
            ("http://a/b", "http://a/b?c=1"),
            ("http://a/b?t=2", "http://a/b?t=2&c=1"),
            ("http://a", "http://a/?c=1"),
        ] {
            let mut url = Url::parse(url).expect("a URL");
            url.append_query("c=1");
            assert_eq!(url.to_string(), appended);
        }
    }

    #[test]
    fn urls_are_parsed_into_parts() {
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
    fn url_errors_do_not_reveal_passwords() {
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
        assert_eq!(
            Url::parse(&long).map_err(|error| error.why),
            Err(UrlProblem::TooLong)
        );
    }

    #[test]
    fn redirects_resolve_and_keep_the_password_on_one_host() {
        let url = Url::parse("http://u:p@h:81/a/b?c").expect("a URL");
        let to = |location: &str| url.redirect(location).map(|url| url.to_string());
        assert_eq!(to("/x").as_deref(), Ok("http://h:81/x"));
        assert_eq!(to("x").as_deref(), Ok("http://h:81/a/x"));
        assert_eq!(to("?y").as_deref(), Ok("http://h:81/a/b?y"));
        assert_eq!(to("//g/x").as_deref(), Ok("http://g/x"));
        assert_eq!(to("https://g/x").as_deref(), Ok("https://g/x"));
        assert_eq!(to("../x/./y z").as_deref(), Ok("http://h:81/x/y%20z"));
        assert_eq!(to("http://g/a b").as_deref(), Ok("http://g/a%20b"));
        assert!(to("http://g h/").is_err());
        assert!(to("").is_err() && to("udp://239.0.0.1:1/").is_err());
        let zoned = Url::parse("http://[fe80::1%25eth0]:81/a").expect("a URL");
        let next = zoned.redirect("b c").expect("a URL");
        assert_eq!((next.host(), next.target()), ("fe80::1%eth0", "/b%20c"));
        let kept = |location: &str| url.redirect(location).expect("a URL").user_info().is_some();
        assert!(kept("/x") && kept("http://h:81/y"));
        assert!(!kept("http://g:81/") && !kept("http://h/"));
    }
}

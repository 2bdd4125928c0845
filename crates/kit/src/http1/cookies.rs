//! Cookies that servers set along one chain of redirects (RFC 6265), in bounded memory.

use std::fmt;
use std::net::IpAddr;

use super::{Headers, Url};

/// Maximum number of cookies. Further ones are rejected.
const COOKIES_MAX: usize = 16;

/// Maximum length of a cookie, name and value together, in bytes. Longer ones are rejected.
const COOKIE_BYTES_MAX: usize = 2048;

/// A cookie and the requests that it is sent with.
#[derive(Clone, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    /// Lowercase.
    domain: String,
    /// `true` if the cookie is sent to this host only, not to its subdomains.
    host_only: bool,
    path: String,
    /// `true` if the cookie is sent over TLS only.
    secure: bool,
}

/// The cookies of one client. Formatting shows their names and never their values, which are
/// secrets.
#[derive(Clone, Default)]
pub struct Cookies(Vec<Cookie>);

impl Cookies {
    /// Stores the cookies of a response. Returns `true` if this changes the cookies of later
    /// requests.
    ///
    /// A `Max-Age` of 0 or less deletes a cookie. `Expires` is ignored: a chain of redirects is
    /// shorter than the life of a cookie.
    pub fn store(&mut self, url: &Url, headers: &Headers) -> bool {
        let mut changed = false;
        for text in headers.all("Set-Cookie") {
            let Some((cookie, keep)) = parse(url, text) else {
                continue;
            };
            let position = self.0.iter().position(|own| {
                (&own.name, &own.domain, &own.path) == (&cookie.name, &cookie.domain, &cookie.path)
            });
            match position {
                Some(position) if keep => {
                    changed |= self.0[position] != cookie;
                    self.0[position] = cookie;
                }
                Some(position) => {
                    self.0.remove(position);
                    changed = true;
                }
                None if keep && self.0.len() < COOKIES_MAX => {
                    self.0.push(cookie);
                    changed = true;
                }
                None => {}
            }
        }
        changed
    }

    /// Returns the value of `Cookie` for a request of the URL, or `None` without matching cookies.
    pub fn for_request(&self, url: &Url) -> Option<String> {
        let host = url.host().to_ascii_lowercase();
        let path = path_of(url);
        let own = self.0.iter().filter(|cookie| {
            let is_host =
                host == cookie.domain || !cookie.host_only && is_subdomain(&host, &cookie.domain);
            is_host && path_matches(path, &cookie.path) && (url.is_secure() || !cookie.secure)
        });
        let own: Vec<_> = own
            .map(|cookie| format!("{}={}", cookie.name, cookie.value))
            .collect();
        (!own.is_empty()).then(|| own.join("; "))
    }

    /// Returns `true` if there are no cookies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all cookies.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl fmt::Display for Cookies {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cookie) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(out, "{comma}`{}`", cookie.name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Cookies {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Parses a value of `Set-Cookie` (5.2). The flag is `true` if the cookie is kept, `false` if it is
/// deleted.
fn parse(url: &Url, text: &str) -> Option<(Cookie, bool)> {
    let mut parts = text.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let legal = |text: &str| text.bytes().all(|byte| byte >= b' ' && byte != 0x7f);
    if name.is_empty()
        || name.len() + value.len() > COOKIE_BYTES_MAX
        || !legal(name)
        || !legal(value)
    {
        return None;
    }
    let host = url.host().to_ascii_lowercase();
    let path = path_of(url);
    let default_path = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut cookie = Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        domain: host.clone(),
        host_only: true,
        path: match default_path {
            "" => "/".to_owned(),
            folder => folder.to_owned(),
        },
        secure: false,
    };
    let mut keep = true;
    for attribute in parts {
        let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match name.as_str() {
            "secure" => cookie.secure = true,
            "max-age" => keep = value.parse::<i64>().map_or(keep, |seconds| seconds > 0),
            "path" if value.starts_with('/') && value.len() <= COOKIE_BYTES_MAX => {
                cookie.path = value.to_owned();
            }
            "domain" => {
                let domain = value
                    .strip_prefix('.')
                    .unwrap_or(value)
                    .to_ascii_lowercase();
                if domain.is_empty() || domain == host {
                    continue;
                }
                // A server must not set cookies for other hosts or for a top-level domain.
                if !is_subdomain(&host, &domain) || !domain.contains('.') {
                    return None;
                }
                (cookie.domain, cookie.host_only) = (domain, false);
            }
            _ => {}
        }
    }
    Some((cookie, keep))
}

fn path_of(url: &Url) -> &str {
    let target = url.target();
    target.split('?').next().unwrap_or(target)
}

/// Returns `true` if the host is a subdomain of `domain` (5.1.3). An address never is.
fn is_subdomain(host: &str, domain: &str) -> bool {
    let above = host.strip_suffix(domain);
    above.is_some_and(|above| above.ends_with('.')) && host.parse::<IpAddr>().is_err()
}

/// Returns `true` if the path matches a cookie's path (5.1.4).
fn path_matches(path: &str, of: &str) -> bool {
    path.strip_prefix(of)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || of.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(url: &str) -> Url {
        Url::parse(url).expect("a URL")
    }

    fn set(cookies: &mut Cookies, from: &str, value: &str) -> bool {
        let mut headers = Headers::new();
        headers.push("Set-Cookie", value);
        cookies.store(&url(from), &headers)
    }

    fn given(set_by: &str, value: &str, asked: &str) -> Option<String> {
        let mut cookies = Cookies::default();
        set(&mut cookies, set_by, value);
        cookies.for_request(&url(asked))
    }

    #[test]
    fn cookies_are_sent_only_to_matching_urls() {
        let from = "http://a.example.org/live/x?t=/y/z";
        for (value, asked, expected) in [
            ("s=1", "http://A.example.org:81/live/y", Some("s=1")),
            (
                "s = a=b ; HttpOnly",
                "http://a.example.org/live",
                Some("s=a=b"),
            ),
            ("s=1", "http://a.example.org/livelier", None),
            ("s=1; Path=/", "http://a.example.org/", Some("s=1")),
            ("s=1; path=/live/", "http://a.example.org/live", None),
            ("s=1; Path=/", "http://b.example.org/", None),
            ("s=1; Path=/", "http://c.a.example.org/", None),
            (
                "s=1; Path=/; Domain=.Example.org",
                "http://b.example.org/",
                Some("s=1"),
            ),
            (
                "s=1; Path=/; Domain=example.org",
                "http://example.org/",
                Some("s=1"),
            ),
            (
                "s=1; Path=/; Domain=example.org",
                "http://badexample.org/",
                None,
            ),
            ("s=1; Path=/; Domain=org", "http://a.example.org/", None),
            ("s=1; Path=/; Domain=other.org", "http://other.org/", None),
            ("s=1; Path=/; Secure", "http://a.example.org/", None),
            ("s=1; Path=/; Secure", "https://a.example.org/", Some("s=1")),
            ("s=1; Path=/; Max-Age=0", "http://a.example.org/", None),
            ("no cookie", "http://a.example.org/live", None),
            ("=1", "http://a.example.org/live", None),
            ("s=\u{1}", "http://a.example.org/live", None),
        ] {
            assert_eq!(
                given(from, value, asked).as_deref(),
                expected,
                "{value} at {asked}"
            );
        }
        let at_address = "http://10.0.0.1/";
        assert_eq!(given(at_address, "s=1; Domain=0.0.1", at_address), None);
    }

    #[test]
    fn cookies_are_replaced_deleted_and_bounded() {
        let (mut cookies, at) = (Cookies::default(), "http://h/");
        assert!(set(&mut cookies, at, "a=1") && !set(&mut cookies, at, "a=1"));
        assert!(set(&mut cookies, at, "a=2") && set(&mut cookies, at, "b=secret"));
        assert_eq!(
            cookies.for_request(&url(at)).as_deref(),
            Some("a=2; b=secret")
        );
        assert_eq!(format!("{cookies} {cookies:?}"), "`a`, `b` `a`, `b`");
        assert!(set(&mut cookies, at, "a=; Max-Age=-1") && !set(&mut cookies, at, "a=; Max-Age=0"));
        assert!(!set(
            &mut cookies,
            at,
            &format!("c={}", "x".repeat(COOKIE_BYTES_MAX))
        ));
        for number in 0..99 {
            set(&mut cookies, at, &format!("n{number}=1"));
        }
        assert_eq!(cookies.0.len(), COOKIES_MAX);
        assert!(set(&mut cookies, at, "b=3"));
        cookies.clear();
        assert!(cookies.is_empty() && cookies.for_request(&url(at)).is_none());
    }
}

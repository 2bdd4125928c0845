//! RTMP URLs: `rtmp://host/app/stream`, `rtmps://host:443/app/instance/stream?token=x`.

use std::fmt;

use kit::url::{UrlError, UrlParts, UrlProblem, scheme};

/// Default port of RTMP (RTMP, 4).
pub(super) const DEFAULT_PORT: u16 = 1935;
/// Default port of RTMP over TLS.
pub(super) const DEFAULT_TLS_PORT: u16 = 443;

/// Location of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// True for RTMP over TLS.
    pub(super) secure: bool,
    /// Host name or address.
    pub(super) host: String,
    pub(super) port: u16,
    authority: String,
    /// Application name for `connect`.
    pub(super) app: String,
    /// Stream name for `play` and `publish`; empty if the URL has none.
    pub(super) stream: String,
}

impl Url {
    /// Parses a URL. The application is `app` if the path begins with it, otherwise the path
    /// without its last part. The rest is the stream, including the query. The query may follow the
    /// application instead: `live?vhost=a/stream`.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str, app: Option<&str>) -> Result<Url, UrlError> {
        let wrong = |why: UrlProblem| why.error_for(url);
        let secure = match scheme(url)?.as_str() {
            "rtmp" => false,
            "rtmps" => true,
            _ => {
                return Err(wrong(UrlProblem::Scheme {
                    kind: "RTMP URL",
                    schemes: "rtmp:// or rtmps://",
                }));
            }
        };
        let parts = UrlParts::parse(url)?;
        let other = |text: &str| wrong(UrlProblem::Other(text.to_owned()));
        if parts.user_info.is_some() {
            return Err(other(
                "RTMP has no name and password; append credentials to the stream name, \
                 as in rtmp://host/app/stream?user=NAME&pass=WORD",
            ));
        }
        let path = parts.target.strip_prefix('/').unwrap_or_default();
        let named = app.and_then(|app| {
            let rest = path.strip_prefix(app)?;
            Some((app, rest.strip_prefix('/')?))
        });
        let (app, stream) = match named {
            Some(named) => named,
            None => match stream_separator(path) {
                Some(cut) => (&path[..cut], &path[cut + 1..]),
                // Servers without applications take the first path part as the stream.
                None => (path, ""),
            },
        };
        if app.is_empty() || app.starts_with('?') {
            return Err(other(
                "it names no application: write rtmp://host/app/stream",
            ));
        }
        Ok(Url {
            secure,
            port: parts.port.unwrap_or(match secure {
                true => DEFAULT_TLS_PORT,
                false => DEFAULT_PORT,
            }),
            authority: parts.authority,
            host: parts.host,
            app: app.to_owned(),
            stream: stream.to_owned(),
        })
    }

    /// Returns true if both URLs mean the same application of the same server.
    pub fn is_same_application(&self, other: &Url) -> bool {
        let server = |url: &Url| (url.secure, url.host.to_ascii_lowercase(), url.port);
        self.app == other.app && server(self) == server(other)
    }

    /// URL of the application (RTMP, 7.2.1.1).
    pub fn tc_url(&self) -> String {
        let scheme = if self.secure { "rtmps" } else { "rtmp" };
        format!("{scheme}://{}/{}", self.authority, self.app)
    }

    /// Topic of messages about the stream: host, port, application and stream, without queries,
    /// which may hold a token.
    pub fn topic(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        format!("{host}:{}/{}", self.port, self.path())
    }

    /// Application and stream, without their queries.
    pub fn path(&self) -> String {
        let stream = self.stream.split('?').next().unwrap_or_default();
        let app = self.app.split('?').next().unwrap_or_default();
        format!("{app}/{stream}")
    }
}

/// Returns the position of the slash between application and stream: the last one before the query.
/// If there is none, the query belongs to the application, and the stream follows it, possibly with
/// a query of its own.
fn stream_separator(path: &str) -> Option<usize> {
    let (before, query) = match path.split_once('?') {
        None => return path.rfind('/'),
        Some(parts) => parts,
    };
    if let Some(cut) = before.rfind('/') {
        return Some(cut);
    }
    let query_begins = before.len() + 1;
    let (own, _) = query.split_once('?').unwrap_or((query, ""));
    let cut = own.rfind('/').or_else(|| query.rfind('/'));
    cut.map(|cut| query_begins + cut)
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stream.as_str() {
            // Without a stream the slash is optional, unless a slash in the query would be taken
            // for it.
            "" if self.app.contains('?') && stream_separator(&self.app).is_none() => {
                write!(out, "{}", self.tc_url())
            }
            stream => write!(out, "{}/{stream}", self.tc_url()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(url: &str) -> Url {
        Url::parse(url, None).expect(url)
    }

    #[test]
    fn last_path_part_is_the_stream() {
        for (url, app, stream) in [
            ("rtmp://h/live/a", "live", "a"),
            ("rtmp://h/live/room/a?token=x/y", "live/room", "a?token=x/y"),
            ("rtmp://h/live", "live", ""),
            ("rtmp://h/live/", "live", ""),
            (
                "rtmp://h/live?vhost=a&key=b/stream",
                "live?vhost=a&key=b",
                "stream",
            ),
            (
                "rtmp://h/live?vhost=a/s?token=x/y",
                "live?vhost=a",
                "s?token=x/y",
            ),
            ("rtmp://h/live?vhost=a", "live?vhost=a", ""),
            ("rtmp://h/live?a=b?c/s", "live?a=b?c", "s"),
        ] {
            let parsed = parse(url);
            assert_eq!((&*parsed.app, &*parsed.stream), (app, stream), "{url}");
        }
        let named = Url::parse("rtmp://h/live/room/a", Some("live")).expect("valid");
        assert_eq!((&*named.app, &*named.stream), ("live", "room/a"));
        let unknown = Url::parse("rtmp://h/live/room/a", Some("vod")).expect("valid");
        assert_eq!(unknown.app, "live/room");
    }

    #[test]
    fn default_port_depends_on_the_scheme() {
        assert_eq!(parse("RTMP://H/a/b").port, 1935);
        let secure = parse("rtmps://[::1]/a/b");
        assert_eq!(
            (secure.port, secure.secure, &*secure.host),
            (443, true, "::1")
        );
        assert_eq!(secure.tc_url(), "rtmps://[::1]/a");
        assert_eq!(parse("rtmp://H:5/a/b?x=1").topic(), "h:5/a/b");
        assert_eq!(parse("rtmp://H:5/a?x=1/b").topic(), "h:5/a/b");
    }

    #[test]
    fn invalid_urls_are_explained() {
        for (url, part) in [
            ("http://h/a/b", "is not a valid RTMP URL"),
            ("rtmp://h", "names no application"),
            ("rtmp:///a/b", "has no host"),
            ("rtmp://u:p@h/a/b", "no name and password"),
        ] {
            let error = Url::parse(url, None).expect_err(url).to_string();
            assert!(error.contains(part) && !error.contains("u:p"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn urls_survive_a_round_trip(url in "rtmps?://[a-z]{1,5}(:[1-9])?/[a-z/?=]{1,12}") {
            if let Ok(read) = Url::parse(&url, None) {
                prop_assert_eq!(Url::parse(&read.to_string(), None), Ok(read));
            }
        }
    }
}

//! URLs of RTMP: `rtmp://host/app/stream`, `rtmps://host:443/app/instance/stream?token=x`.

use std::fmt;

use crate::url::{Parts, UrlError, Why, scheme};

/// The port of RTMP where a URL names none (RTMP, 4).
pub(super) const DEFAULT_PORT: u16 = 1935;
/// The port of RTMP over TLS.
pub(super) const DEFAULT_TLS_PORT: u16 = 443;

/// Where a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    secure: bool,
    host: String,
    port: u16,
    authority: String,
    app: String,
    stream: String,
}

impl Url {
    /// Splits a URL. The application is `app` if the path begins with it, otherwise the path
    /// without its last part. The rest is the stream, with the query. The query may follow the
    /// application instead: `live?vhost=a/stream`.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str, app: Option<&str>) -> Result<Url, UrlError> {
        let wrong = |why: Why| why.of(url);
        let secure = match scheme(url)?.as_str() {
            "rtmp" => false,
            "rtmps" => true,
            _ => {
                return Err(wrong(Why::Scheme {
                    kind: "RTMP URL",
                    schemes: "rtmp:// or rtmps://",
                }));
            }
        };
        let parts = Parts::of(url)?;
        let other = |text: &str| wrong(Why::Other(text.to_owned()));
        if parts.user_info.is_some() {
            return Err(other(
                "RTMP has no name and password; write what the server wants behind the stream, \
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
            None => match stream_begins(path) {
                Some(cut) => (&path[..cut], &path[cut + 1..]),
                // Servers without applications take the first part for the stream.
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

    /// Whether it is over TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Name or address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The application, as `connect` names it.
    pub fn app(&self) -> &str {
        &self.app
    }

    /// The stream, as `play` and `publish` name it; empty where the URL names none.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The URL of the application (RTMP, 7.2.1.1).
    pub fn of_app(&self) -> String {
        let scheme = if self.secure { "rtmps" } else { "rtmp" };
        format!("{scheme}://{}/{}", self.authority, self.app)
    }

    /// Topic of messages about the stream: host, port, application and stream, without what follows
    /// a question mark, such as a token.
    pub fn stream_name(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        format!("{host}:{}/{}", self.port, self.path())
    }

    /// Application and stream without their queries.
    pub fn path(&self) -> String {
        let stream = self.stream.split('?').next().unwrap_or_default();
        let app = self.app.split('?').next().unwrap_or_default();
        format!("{app}/{stream}")
    }
}

/// Position of the slash between application and stream: the last one before the query. Without
/// one, the query belongs to the application, and the stream follows it, with its own query if it
/// has one.
fn stream_begins(path: &str) -> Option<usize> {
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
            // Without a stream there need be no slash, unless one in the query would be taken for
            // it.
            "" if self.app.contains('?') && stream_begins(&self.app).is_none() => {
                write!(out, "{}", self.of_app())
            }
            stream => write!(out, "{}/{stream}", self.of_app()),
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
    fn the_last_part_is_the_stream() {
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
            assert_eq!((parsed.app(), parsed.stream()), (app, stream), "{url}");
        }
        let named = Url::parse("rtmp://h/live/room/a", Some("live")).expect("valid");
        assert_eq!((named.app(), named.stream()), ("live", "room/a"));
        let unknown = Url::parse("rtmp://h/live/room/a", Some("vod")).expect("valid");
        assert_eq!(unknown.app(), "live/room");
    }

    #[test]
    fn ports_and_names_are_those_of_the_scheme() {
        assert_eq!(parse("RTMP://H/a/b").port(), 1935);
        let secure = parse("rtmps://[::1]/a/b");
        assert_eq!(
            (secure.port(), secure.is_secure(), secure.host()),
            (443, true, "::1")
        );
        assert_eq!(secure.of_app(), "rtmps://[::1]/a");
        assert_eq!(parse("rtmp://H:5/a/b?x=1").stream_name(), "h:5/a/b");
        assert_eq!(parse("rtmp://H:5/a?x=1/b").stream_name(), "h:5/a/b");
    }

    #[test]
    fn what_is_wrong_is_said() {
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
        fn a_url_is_written_as_it_is_read(url in "rtmps?://[a-z]{1,5}(:[1-9])?/[a-z/?=]{1,12}") {
            if let Ok(read) = Url::parse(&url, None) {
                prop_assert_eq!(Url::parse(&read.to_string(), None), Ok(read));
            }
        }
    }
}

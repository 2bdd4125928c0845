//! URLs of message servers: `tcp://127.0.0.1:9000`, `tls://host:9000`, `ws://host/chat`,
//! `wss://host/chat`, `unix:///run/server.sock`.

use std::fmt;
use std::path::{Path, PathBuf};

use kit::url::{UrlError, UrlParts, UrlProblem, split_authority};
use kit::{http1, websocket};

/// Maximum length of a Unix socket's path in bytes (unix(7), `sun_path`, without the terminating
/// null byte).
pub const PATH_BYTES_MAX: usize = 107;

/// Supported schemes.
pub const SCHEMES: &[&str] = &["tcp", "tls", "ws", "wss", "unix"];

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A TCP port, with or without TLS.
    Tcp {
        /// Host name or address; an IPv6 address has no brackets.
        host: String,
        port: u16,
        /// True for TLS.
        secure: bool,
        /// URL of the WebSocket, if messages use one.
        websocket: Option<Box<http1::Url>>,
    },
    Unix(PathBuf),
}

impl Target {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<Target, UrlError> {
        let wrong = |why: UrlProblem| why.error_for(url);
        let other = |why: &str| wrong(UrlProblem::Other(why.to_owned()));
        let no_scheme = || {
            wrong(UrlProblem::Scheme {
                kind: "URL of a message server",
                schemes: "tcp://, tls://, ws://, wss:// or unix://",
            })
        };
        let malformed = |error: UrlError| other(&error.why.to_string());
        let (scheme, rest) = url.split_once("://").ok_or_else(no_scheme)?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "unix" => return Target::unix(rest).map_err(other),
            "ws" | "wss" => {
                let parsed = websocket::parse_url(url).map_err(malformed)?;
                return Ok(Target::Tcp {
                    host: parsed.host().to_owned(),
                    port: parsed.port(),
                    secure: parsed.is_secure(),
                    websocket: Some(Box::new(parsed)),
                });
            }
            "tcp" => false,
            "tls" => true,
            _ => return Err(no_scheme()),
        };
        let parts = UrlParts::parse(url).map_err(malformed)?;
        let (_, path) = split_authority(rest);
        if !path.trim_end_matches('/').is_empty() {
            return Err(other("a path has no meaning here; remove it"));
        }
        let port = parts
            .port
            .ok_or_else(|| other("it has no port: write tcp://host:9000"))?;
        Ok(Target::Tcp {
            host: parts.host,
            port,
            secure,
            websocket: None,
        })
    }

    fn unix(rest: &str) -> Result<Target, &'static str> {
        if !rest.starts_with('/') {
            return Err("a Unix socket needs an absolute path: write unix:///run/server.sock");
        }
        if rest.len() > PATH_BYTES_MAX || rest.contains('\0') {
            return Err("the path of a Unix socket has at most 107 bytes");
        }
        Ok(Target::Unix(PathBuf::from(rest)))
    }

    /// Returns true for TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, Target::Tcp { secure: true, .. })
    }

    /// Returns true for a WebSocket.
    pub fn is_websocket(&self) -> bool {
        matches!(
            self,
            Target::Tcp {
                websocket: Some(_),
                ..
            }
        )
    }

    /// Returns the path of a Unix socket, or `None` for a port.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Target::Unix(path) => Some(path),
            Target::Tcp { .. } => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp { host, port, .. } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Target::Tcp { host, port, .. } => write!(out, "{host}:{port}"),
            Target::Unix(path) => path.display().fmt(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let shown = |url| {
            Target::parse(url).map(|target| {
                (
                    target.to_string(),
                    target.is_secure(),
                    target.is_websocket(),
                )
            })
        };
        for (url, place, secure, websocket) in [
            ("tcp://127.0.0.1:9000", "127.0.0.1:9000", false, false),
            ("TCP://h:1/", "h:1", false, false),
            ("tls://[::1]:9000", "[::1]:9000", true, false),
            ("ws://h/chat?a=b", "h:80", false, true),
            ("wss://h:7000", "h:7000", true, true),
            ("unix:///run/a b", "/run/a b", false, false),
        ] {
            assert_eq!(
                shown(url),
                Ok((place.to_owned(), secure, websocket)),
                "{url}"
            );
        }
    }

    #[test]
    fn invalid_urls_are_rejected_with_the_reason() {
        for (url, why) in [
            ("h:1", "must begin with"),
            ("udp://h:1", "must begin with"),
            ("tcp://h", "no port"),
            ("tcp://:1", "host"),
            ("tcp://h:0", "65535"),
            ("tcp://h:70000", "65535"),
            ("tcp://h:1/a", "path"),
            ("unix://run/a", "absolute"),
            ("ws://h a", "space"),
        ] {
            let error = Target::parse(url)
                .expect_err("it leads nowhere")
                .to_string();
            assert!(error.contains(why), "{error}");
        }
        let long = format!("unix:///{}", "a".repeat(107));
        assert!(Target::parse(&long).is_err());
    }
}

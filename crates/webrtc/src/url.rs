//! WebRTC URLs. The scheme selects the signalling.

use std::fmt;

use kit::http1;
use kit::url::{UrlError, UrlProblem, percent_decode};
use kit::websocket;

pub const SCHEMES: &[&str] = &[
    "whep+http",
    "whep+https",
    "whip+http",
    "whip+https",
    "janus+ws",
    "janus+wss",
    "janus+http",
    "janus+https",
    "livekit+ws",
    "livekit+wss",
];

/// URL of a WebRTC client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Address of the signalling: the WHIP or WHEP endpoint, the WebSocket or HTTP API of Janus, or
    /// the WebSocket of LiveKit without the path that its protocol appends.
    pub endpoint: http1::Url,
    /// True for Janus over HTTP.
    pub long_poll: bool,
    pub resource: Resource,
}

/// Resource that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// WHEP endpoint (draft-ietf-wish-whep), from which clients play.
    Whep,
    /// WHIP endpoint (RFC 9725), to which clients publish.
    Whip,
    /// Room of the Janus VideoRoom plugin.
    Room(JanusId),
    /// Mount point of the Janus Streaming plugin.
    Mountpoint(JanusId),
    /// LiveKit room, by name.
    LiveKit(String),
}

/// ID of a Janus room or mount point: a number, or a string if Janus is configured with
/// `string_ids`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JanusId {
    Number(u64),
    Text(String),
}

/// Maximum length of a string ID from the server, in bytes: thousands of them are kept.
const ID_LENGTH_MAX: usize = 256;

impl JanusId {
    fn parse(text: &str) -> JanusId {
        match text.parse() {
            // A number with leading zeros is a string, because it would be formatted differently.
            Ok(number) if text == format!("{number}") => JanusId::Number(number),
            _ => JanusId::Text(text.to_owned()),
        }
    }

    /// Returns the ID as a JSON value.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            JanusId::Number(number) => (*number).into(),
            JanusId::Text(text) => text.as_str().into(),
        }
    }

    /// Parses a JSON value. Returns `None` if it is neither an unsigned integer nor a string of at
    /// most 256 bytes.
    pub fn from_json(value: &serde_json::Value) -> Option<JanusId> {
        match value {
            serde_json::Value::Number(number) => number.as_u64().map(JanusId::Number),
            serde_json::Value::String(text) if text.len() <= ID_LENGTH_MAX => {
                Some(JanusId::Text(text.clone()))
            }
            _ => None,
        }
    }
}

impl fmt::Display for JanusId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JanusId::Number(number) => number.fmt(out),
            JanusId::Text(text) => text.fmt(out),
        }
    }
}

/// Default port of Janus over a WebSocket, as in the configuration of Janus.
pub const JANUS_PORT: u16 = 8188;

/// Default port of Janus over HTTP.
pub const JANUS_HTTP_PORT: u16 = 8088;

/// Default port of LiveKit, as in its configuration.
pub const LIVEKIT_PORT: u16 = 7880;

/// Maximum length of the name of a LiveKit room, in bytes: it becomes part of a token.
const ROOM_NAME_MAX: usize = 256;

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<Url, UrlError> {
        let scheme = kit::url::scheme(url)?;
        let wrong = || {
            UrlProblem::Scheme {
                kind: "WebRTC URL",
                schemes: "whep+http(s)://, whip+http(s)://, janus+ws(s)://, janus+http(s):// or \
                          livekit+ws(s)://",
            }
            .error_for(url)
        };
        let (signalling, below) = scheme.split_once('+').ok_or_else(wrong)?;
        // The lower-case scheme has the length of the original, as schemes are ASCII.
        let rest = &url[scheme.len()..];
        let inner = format!("{below}{rest}");
        match (signalling, below) {
            ("whep" | "whip", "http" | "https") => Ok(Url {
                endpoint: http1::Url::parse(&inner).map_err(|error| error.why.error_for(url))?,
                long_poll: false,
                resource: match signalling {
                    "whep" => Resource::Whep,
                    _ => Resource::Whip,
                },
            }),
            ("janus", "ws" | "wss" | "http" | "https") => Url::parse_janus(url, &inner),
            ("livekit", "ws" | "wss") => Url::parse_livekit(url, &inner),
            _ => Err(wrong()),
        }
    }

    /// Parses `ws://host:port[/path]/videoroom/ROOM` or `.../streaming/ID`, or `http://...`.
    fn parse_janus(url: &str, inner: &str) -> Result<Url, UrlError> {
        let other = |text: &str| UrlProblem::Other(text.to_owned()).error_for(url);
        let long_poll = inner.starts_with("http");
        let parse = |text: &str| match long_poll {
            true => http1::Url::parse(text),
            false => websocket::parse_url(text),
        };
        let whole = parse(inner).map_err(|error| error.why.error_for(url))?;
        let (path, query) = split_query(&whole);
        // Requests go below that path, and a path that begins with `//` would name another host.
        if long_poll && path.contains("//") {
            return Err(other(
                "the path contains two slashes in a row; write only one",
            ));
        }
        let no_resource = || other("the URL must end with /videoroom/ROOM or /streaming/ID");
        let (path, id) = path
            .trim_end_matches('/')
            .rsplit_once('/')
            .ok_or_else(no_resource)?;
        let (path, plugin) = path.rsplit_once('/').ok_or_else(no_resource)?;
        if id.is_empty() {
            return Err(no_resource());
        }
        let id = JanusId::parse(&percent_decode(id));
        let resource = match plugin {
            "videoroom" => Resource::Room(id),
            "streaming" => Resource::Mountpoint(id),
            _ => return Err(no_resource()),
        };
        // The rest of the path is that of the WebSocket or the HTTP API. The default is that of
        // Janus.
        let (default_path, port) = match long_poll {
            true => ("/janus", JANUS_HTTP_PORT),
            false => ("/", JANUS_PORT),
        };
        let path = if path.is_empty() { default_path } else { path };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let endpoint = parse(&format!("{}{path}{query}", origin(inner, port)));
        Ok(Url {
            long_poll,
            endpoint: endpoint.map_err(|error| error.why.error_for(url))?,
            resource,
        })
    }

    /// Parses `ws://host:port[/path]/ROOM`.
    fn parse_livekit(url: &str, inner: &str) -> Result<Url, UrlError> {
        let other = |text: &str| UrlProblem::Other(text.to_owned()).error_for(url);
        let whole = websocket::parse_url(inner).map_err(|error| error.why.error_for(url))?;
        let target = whole.target();
        if target.contains('?') {
            return Err(other("queries are not allowed; remove the query"));
        }
        let (path, room) = target.rsplit_once('/').unwrap_or_default();
        let room = percent_decode(room);
        if room.is_empty() || room.len() > ROOM_NAME_MAX {
            return Err(other("no valid room; write livekit+ws://host/ROOM"));
        }
        let path = if path.is_empty() { "/" } else { path };
        let endpoint = websocket::parse_url(&format!("{}{path}", origin(inner, LIVEKIT_PORT)));
        Ok(Url {
            long_poll: false,
            endpoint: endpoint.map_err(|error| error.why.error_for(url))?,
            resource: Resource::LiveKit(room),
        })
    }

    /// Returns `true` for a room, in which many clients publish.
    pub fn is_room(&self) -> bool {
        matches!(self.resource, Resource::Room(_) | Resource::LiveKit(_))
    }

    /// Returns the topic of messages about media published at this URL. For WHIP and WHEP, it is
    /// the URL without the segment that differs between them.
    pub fn topic(&self) -> String {
        let (path, query) = self.path_and_query();
        let path = path.join("/");
        let kind = match &self.resource {
            Resource::Room(id) => format!("/room/{id}"),
            Resource::LiveKit(name) => format!("/room/{name}"),
            Resource::Mountpoint(id) => format!("/streaming/{id}"),
            Resource::Whep | Resource::Whip => String::new(),
        };
        let query = query.map_or(String::new(), |query| format!("?{query}"));
        format!(
            "{}:{}/{path}{query}{kind}",
            self.host(),
            self.endpoint.port()
        )
    }

    /// Returns the path of the stream on its server, by which other protocols find it. SRS names
    /// the stream in the query: `?app=live&stream=one`.
    pub fn stream_path(&self) -> Option<String> {
        if !matches!(self.resource, Resource::Whep | Resource::Whip) {
            return None;
        }
        let (path, query) = self.path_and_query();
        let value = |name: &str| {
            let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        Some(match (value("app"), value("stream")) {
            (Some(app), Some(stream)) => format!("{app}/{stream}"),
            _ => path.join("/"),
        })
    }

    /// Returns the host in lower case.
    pub fn host(&self) -> String {
        self.endpoint.host().to_ascii_lowercase()
    }

    /// Returns the segments of the path except `whip` and `whep`, and the query.
    fn path_and_query(&self) -> (Vec<&str>, Option<&str>) {
        let (path, query) = split_query(&self.endpoint);
        let named = |part: &&str| !part.is_empty() && !matches!(*part, "whip" | "whep");
        (path.split('/').filter(named).collect(), query)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.endpoint.is_secure() { "s" } else { "" };
        let (authority, target) = (self.endpoint.authority(), self.endpoint.target());
        let path = target.trim_end_matches('/');
        let janus = if self.long_poll {
            "janus+http"
        } else {
            "janus+ws"
        };
        match &self.resource {
            Resource::Whep => write!(out, "whep+http{secure}://{authority}{target}"),
            Resource::Whip => write!(out, "whip+http{secure}://{authority}{target}"),
            Resource::Room(id) => write!(out, "{janus}{secure}://{authority}{path}/videoroom/{id}"),
            Resource::Mountpoint(id) => {
                write!(out, "{janus}{secure}://{authority}{path}/streaming/{id}")
            }
            Resource::LiveKit(room) => write!(out, "livekit+ws{secure}://{authority}{path}/{room}"),
        }
    }
}

/// Returns path and query of a URL.
fn split_query(url: &http1::Url) -> (&str, Option<&str>) {
    let split = url.target().split_once('?');
    split.map_or((url.target(), None), |(path, query)| (path, Some(query)))
}

/// Returns scheme and authority of a URL. Adds the port if the URL has none and its scheme is not
/// secure.
fn origin(url: &str, default_port: u16) -> String {
    let (scheme, after) = url.split_once("://").unwrap_or_default();
    let (authority, _) = kit::url::split_authority(after);
    let has_port = match authority.rsplit_once('@').map_or(authority, |(_, at)| at) {
        bracketed if bracketed.starts_with('[') => bracketed.contains("]:"),
        host => host.contains(':'),
    };
    let port = match has_port || matches!(scheme, "wss" | "https") {
        true => String::new(),
        false => format!(":{default_port}"),
    };
    format!("{scheme}://{authority}{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Url {
        Url::parse(url).expect(url)
    }

    #[test]
    fn scheme_selects_the_signalling() {
        let url = parse("whep+http://u:p@Host:8889/live/one/whep?x=1");
        assert_eq!(url.resource, Resource::Whep);
        assert_eq!(
            url.endpoint.to_string(),
            "http://Host:8889/live/one/whep?x=1"
        );
        assert_eq!(url.to_string(), "whep+http://Host:8889/live/one/whep?x=1");
        let publisher = parse("WHIP+https://host/live/one/whip");
        assert_eq!(publisher.resource, Resource::Whip);
        assert!(publisher.endpoint.is_secure());
        assert_eq!(publisher.endpoint.port(), 443);
    }

    #[test]
    fn janus_resource_follows_the_websocket_path() {
        let url = parse("janus+ws://10.77.0.1/videoroom/1234");
        assert_eq!(url.resource, Resource::Room(JanusId::Number(1234)));
        assert_eq!(
            (url.endpoint.port(), url.endpoint.target()),
            (JANUS_PORT, "/")
        );
        let url = parse("janus+wss://[::1]:9/janus/streaming/a%20b");
        assert_eq!(
            url.resource,
            Resource::Mountpoint(JanusId::Text("a b".to_owned()))
        );
        assert_eq!((url.endpoint.port(), url.endpoint.target()), (9, "/janus"));
        assert!(url.endpoint.is_secure());
        assert_eq!(parse("janus+wss://h/streaming/1").endpoint.port(), 443);
        assert_eq!(
            parse("janus+ws://[::1]/streaming/1").endpoint.port(),
            JANUS_PORT
        );
        let url = parse("janus+http://h/videoroom/9");
        assert!(url.long_poll);
        assert_eq!(
            (url.endpoint.port(), url.endpoint.target()),
            (JANUS_HTTP_PORT, "/janus")
        );
        assert_eq!(url.to_string(), "janus+http://h:8088/janus/videoroom/9");
        let url = parse("janus+https://h:9/other/videoroom/9");
        assert_eq!((url.endpoint.port(), url.endpoint.target()), (9, "/other"));
        assert_eq!(JanusId::parse("007"), JanusId::Text("007".to_owned()));
    }

    #[test]
    fn livekit_room_follows_the_websocket_path() {
        let url = parse("livekit+ws://127.0.0.1/a%20room");
        assert_eq!(url.resource, Resource::LiveKit("a room".to_owned()));
        assert_eq!(
            (url.endpoint.port(), url.endpoint.target()),
            (LIVEKIT_PORT, "/")
        );
        let url = parse("livekit+wss://h/below/here/room");
        assert_eq!(
            (url.endpoint.port(), url.endpoint.target()),
            (443, "/below/here")
        );
        assert_eq!(url.to_string(), "livekit+wss://h/below/here/room");
        assert_eq!(parse("livekit+ws://[::1]:9/r").endpoint.port(), 9);
        assert!(url.is_room());
    }

    #[test]
    fn publishers_and_players_of_a_stream_share_a_topic() {
        let name = |url: &str| parse(url).topic();
        assert_eq!(
            name("whep+http://H:8889/live/whep"),
            name("whip+http://h:8889/live/whip")
        );
        assert_eq!(
            name("whep+http://h:1985/rtc/v1/whep/?app=live&stream=a"),
            name("whip+http://h:1985/rtc/v1/whip/?app=live&stream=a")
        );
        assert_ne!(
            name("whep+http://h/live/one/whep"),
            name("whip+http://h/live/two/whip")
        );
        assert_ne!(
            name("janus+ws://h/videoroom/1"),
            name("janus+ws://h/videoroom/2")
        );
        let path = |url: &str| parse(url).stream_path();
        for (url, wanted) in [
            ("whep+http://h:8889/live/one/whep", Some("live/one")),
            ("whip+http://h/one/whip?token=x", Some("one")),
            (
                "whep+http://h:1985/rtc/v1/whep/?app=live&stream=a",
                Some("live/a"),
            ),
            ("janus+ws://h/videoroom/1", None),
        ] {
            assert_eq!(path(url).as_deref(), wanted, "{url}");
        }
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for (url, part) in [
            ("http://h/whep", "is not a valid WebRTC URL"),
            ("whep+ws://h/whep", "is not a valid WebRTC URL"),
            ("whep+http://u:secret@/", "has no host"),
            ("janus+http://h//videoroom/9", "two slashes"),
            ("janus+http://h//api/videoroom/9", "two slashes"),
            ("janus+ws://h", "/videoroom/ROOM"),
            ("janus+ws://h/echotest/1", "/videoroom/ROOM"),
            ("janus+ws://h/videoroom/", "/videoroom/ROOM"),
            ("livekit+ws://h", "livekit+ws://host/ROOM"),
            ("livekit+ws://h/room?a=1", "remove the query"),
        ] {
            let error = Url::parse(url).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}

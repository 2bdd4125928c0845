//! The keys that a scenario may set for clients of transport streams over HTTP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::follow::Follow;
use crate::http1::{self, Url, Version};
use crate::span::Span;
use crate::tls::TlsConfig;

/// The version of HTTP in which is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HttpVersion {
    /// HTTP/1.0: no server may answer in chunks.
    #[serde(rename = "1.0")]
    Http10,
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "1.1")]
    Http11,
}

impl HttpVersion {
    /// As messages have it.
    pub const fn version(self) -> Version {
        match self {
            HttpVersion::Http10 => Version::Http10,
            HttpVersion::Http11 => Version::Http11,
        }
    }
}

/// How clients change channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zap {
    /// How long a client stays on a channel: `5s`, or `2s..10s` for times drawn by the seed. At
    /// least 100ms.
    pub every: Span,
    /// How many times it changes; where the next change would be due, it leaves. Default: it
    /// changes for as long as it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// Nobody stays on a channel for a shorter time.
const LEAST_STAY: Duration = Duration::from_millis(100);

/// Keys of a population of transport streams over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// The group, as `239.81.0.1:4056`, whose datagrams are to come: stamped ones of another are
    /// foreign. Default: the multicast address and port that the URL names, as URLs of relays do;
    /// where it names none, that of the first datagram which comes. Of streams without stamps it
    /// says nothing.
    #[schemars(with = "Option<String>")]
    pub group: Option<SocketAddr>,
    /// How long connecting may take, looking up the name included. Default 5s.
    pub connect_timeout: TimeSpan,
    /// How long the head of each answer may take. Default 10s.
    pub request_timeout: TimeSpan,
    /// How long after the head of the answer the first packet may take: then the client has failed
    /// with `no_media`. Default 10s.
    pub no_media: TimeSpan,
    /// How long no packet may come before the client has failed with `media_stopped`. Default 10s.
    pub silence: TimeSpan,
    /// To which hosts the server may send the client on: `same_host` (default: that of the URL, at
    /// any port), `any`, or `none` for no redirects at all. A redirect elsewhere fails with
    /// `redirect_refused`.
    pub follow: Follow,
    /// The version of HTTP in which is asked: `"1.1"` (default) or `"1.0"`.
    pub http_version: HttpVersion,
    /// Further header fields of the request, by their names.
    pub headers: BTreeMap<String, String>,
    /// The value of `User-Agent`. Default `streamgauge/` and the version.
    pub user_agent: String,
    /// Changes channel while it plays: `{every: 5s}`, or `{every: 2s..10s, count: 20}`. The
    /// connection is closed, and another URL of the population's is asked for: with `pick: random`
    /// any other, else the next of them. Default: it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zap: Option<Zap>,
    /// How TLS is spoken with URLs of `https`: `{verify: false}`, or `{ca: FILE}`.
    pub tls: TlsConfig,
}

/// Advice for a key that populations once had.
pub(super) fn former_key(key: &str) -> Option<&'static str> {
    (key == "at_close").then_some("if the server's streams end, write `leave: at_end`")
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
        ClientConfig {
            group: None,
            connect_timeout: seconds(5),
            request_timeout: seconds(10),
            no_media: seconds(10),
            silence: seconds(10),
            follow: Follow::default(),
            http_version: HttpVersion::default(),
            headers: BTreeMap::new(),
            user_agent: concat!("streamgauge/", env!("CARGO_PKG_VERSION")).to_owned(),
            zap: None,
            tls: TlsConfig::default(),
        }
    }
}

/// The header fields that are the client's own.
const OWN: [&str; 6] = [
    "Host",
    "User-Agent",
    "Connection",
    "Accept-Encoding",
    "Content-Length",
    "Transfer-Encoding",
];

impl ClientConfig {
    /// Whether these values make sense together; if not, which key is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, span) in [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
        ] {
            if span.0.is_zero() {
                return Err((key, format!("`{key}` must be longer than nothing")));
            }
        }
        if !http1::is_value(&self.user_agent) {
            let text = "`user_agent` must be one line of printable characters".to_owned();
            return Err(("user_agent", text));
        }
        let instead = |own: &str| (own == "User-Agent").then_some("write `user_agent`");
        http1::check_further(&self.headers, &OWN, instead).map_err(|text| ("headers", text))?;
        if let Some(zap) = &self.zap {
            let wrong = |text: &str| Err(("zap", text.to_owned()));
            if zap.every.least < LEAST_STAY {
                return wrong(
                    "nobody changes channel that fast; write `zap: {every: 100ms}` or a longer time",
                );
            }
            if zap.count == Some(0) {
                return wrong("`zap` with a `count` of 0 changes nothing; take it out");
            }
            if self.group.is_some() {
                let text = "`group` does not go with `zap`: each channel has a group of its own; take it out";
                return Err(("group", text.to_owned()));
            }
        }
        self.tls.check().map_err(|text| ("tls", text))
    }

    /// The group whose datagrams a stream from that URL is to bring, as far as it is known.
    pub fn group_of(&self, url: &Url) -> Option<SocketAddr> {
        self.group.or_else(|| group_in(url.target()))
    }
}

impl Zap {
    /// What a client does, in words.
    pub fn in_words(&self) -> String {
        match self.count {
            None => format!("changes channel every {}", self.every),
            Some(1) => format!("changes channel once, after {}, and leaves", self.every),
            Some(count) => format!(
                "changes channel every {}, {count} times, and leaves",
                self.every
            ),
        }
    }
}

/// The multicast group that the path of a URL names, such as `/rtp/239.81.0.1:4056` or
/// `/udp/10.0.0.1@239.81.0.1:4056`.
fn group_in(target: &str) -> Option<SocketAddr> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    path.split('/').find_map(|part| {
        let place = part.rsplit_once('@').map_or(part, |(_, place)| place);
        let address: SocketAddr = place.parse().ok()?;
        address.ip().is_multicast().then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ClientConfig, String> {
        let config: ClientConfig = serde_json::from_str(text).map_err(|error| error.to_string())?;
        config.check().map_err(|(key, _)| key.to_owned())?;
        Ok(config)
    }

    #[test]
    fn keys_are_read_and_senseless_ones_refused() {
        assert_eq!(read("{}"), Ok(ClientConfig::default()));
        let config = read(r#"{"group":"239.1.1.1:5","http_version":"1.0","headers":{"X-A":"b"}}"#)
            .expect("valid");
        assert_eq!(config.http_version.version(), Version::Http10);
        let written = serde_json::to_string(&config).expect("plain data");
        assert_eq!(read(&written), Ok(config));
        for (wrong, key) in [
            (r#"{"silence":"0s"}"#, "silence"),
            (r#"{"user_agent":"a\r\nb"}"#, "user_agent"),
            (r#"{"headers":{"a b":"c"}}"#, "headers"),
            (r#"{"headers":{"a":"c\nd"}}"#, "headers"),
            (r#"{"headers":{"host":"c"}}"#, "headers"),
            (r#"{"zap":{"every":"99ms..5s"}}"#, "zap"),
            (r#"{"zap":{"every":"5s","count":0}}"#, "zap"),
            (r#"{"zap":{"every":"5s"},"group":"239.1.1.1:5"}"#, "group"),
        ] {
            assert_eq!(read(wrong), Err(key.to_owned()), "{wrong}");
        }
        let zapping = read(r#"{"zap":{"every":"2s..5s","count":3}}"#).expect("valid");
        let words = zapping.zap.map(|zap| zap.in_words());
        assert_eq!(
            words.as_deref(),
            Some("changes channel every 2s..5s, 3 times, and leaves")
        );
        assert!(
            read(r#"{"zap":{}}"#).is_err() && read(r#"{"zap":{"every":"5s","evry":1}}"#).is_err()
        );
        assert!(
            read(r#"{"group":"somewhere"}"#).is_err() && read(r#"{"grup":"239.1.1.1:5"}"#).is_err()
        );
    }

    #[test]
    fn urls_of_relays_name_their_group() {
        let group = |target: &str| group_in(target).map(|group| group.to_string());
        assert_eq!(
            group("/rtp/239.81.0.1:4056").as_deref(),
            Some("239.81.0.1:4056")
        );
        assert_eq!(
            group("/udp/10.0.0.1@239.81.0.1:4056/?fcc=10.0.0.2:5").as_deref(),
            Some("239.81.0.1:4056")
        );
        assert_eq!(
            group("/udp/[ff15::1]:4056").as_deref(),
            Some("[ff15::1]:4056")
        );
        for none in [
            "/1",
            "/rtp/10.0.0.1:4056",
            "/x?239.81.0.1:4056",
            "/rtp/239.81.0.1",
        ] {
            assert_eq!(group(none), None, "{none}");
        }
    }
}

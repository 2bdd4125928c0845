//! Scenario keys of clients for transport streams over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use kit::http1::{self, AdditionalFields, Url, Version};
use kit::keys::{KeyError, check_positive};
use kit::redirect_policy::RedirectPolicy;
use kit::viewer::ServedWell;
use kit::zapping::Zap;
use session::tls::TlsConfig;

/// Keys of a population of clients for transport streams over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Expected multicast group, such as `239.81.0.1:4056`. Stamped datagrams of another group
    /// count as foreign. Default: the multicast address and port in the URL, as URLs of relays have
    /// them; otherwise the group of the first datagram. Has no effect on streams without stamps.
    #[schemars(with = "Option<String>")]
    pub group: Option<SocketAddr>,
    /// Time limit for connecting, including name resolution. Default 5s.
    pub connect_timeout: TimeSpan,
    /// Time limit for each response head. Default 10s.
    pub request_timeout: TimeSpan,
    /// Time limit for the first packet after the response head. If it is exceeded, the client fails
    /// with `no_media`. Default 10s.
    pub no_media: TimeSpan,
    /// Time without any packet after which the client fails with `media_stopped`. Default 10s.
    pub silence: TimeSpan,
    /// Playout buffer assumed when counting stalls. Default 1s.
    pub playout_buffer: TimeSpan,
    /// Bounds within which a viewer counts as served well (`viewers.served_well`):
    /// `{start: 2s, stalled: 0s, loss: 1%}`.
    pub served_well: ServedWell,
    /// Hosts to which the server may redirect the client: `same_host` (default: that of the URL, at
    /// any port), `any`, or `none` for no redirects at all. Any other redirect fails with
    /// `redirect_refused`.
    pub follow: RedirectPolicy,
    /// HTTP version of requests: `"1.1"` (default) or `"1.0"`.
    pub http_version: Version,
    /// Additional header fields of each request, by name, such as `{Origin: "https://a.org"}`.
    /// Those with credentials (`Authorization`, `Cookie`) are sent only to the host and port of the
    /// URL. Default: none.
    pub headers: AdditionalFields,
    /// Value of `User-Agent`. Default: `streamgauge/` and the version.
    pub user_agent: String,
    /// Channel changes during playback: `{every: 5s}`, or `{every: 2s..10s, count: 20}`. The client
    /// closes the connection and requests another URL of the population: any other with
    /// `pick: random`, otherwise the next one. Default: no changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zap: Option<Zap>,
    /// TLS settings for `https` URLs: `{verify: false}` or `{ca: FILE}`.
    pub tls: TlsConfig,
}

pub(super) fn removed_key_advice(key: &str) -> Option<&'static str> {
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
            playout_buffer: seconds(1),
            served_well: ServedWell::default(),
            follow: RedirectPolicy::default(),
            http_version: Version::default(),
            headers: AdditionalFields::default(),
            user_agent: concat!("streamgauge/", env!("CARGO_PKG_VERSION")).to_owned(),
            zap: None,
            tls: TlsConfig::default(),
        }
    }
}

/// Header fields that the client sets itself.
const RESERVED_HEADERS: [&str; 6] = [
    "Host",
    "User-Agent",
    "Connection",
    "Accept-Encoding",
    "Content-Length",
    "Transfer-Encoding",
];

impl ClientConfig {
    /// Checks that the values are consistent. Otherwise returns the wrong key and the reason.
    pub fn check(&self) -> Result<(), KeyError> {
        check_positive([
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
        ])?;
        if !http1::is_value(&self.user_agent) {
            let text = "`user_agent` must be one line of printable characters".to_owned();
            return Err(("user_agent", text));
        }
        let instead = |own: &str| (own == "User-Agent").then_some("write `user_agent`");
        self.headers
            .check(&RESERVED_HEADERS, instead)
            .map_err(|text| ("headers", text))?;
        if let Some(zap) = &self.zap {
            zap.check().map_err(|text| ("zap", text))?;
            if self.group.is_some() {
                let text = "`group` cannot be combined with `zap`, because each channel has its own group; remove it";
                return Err(("group", text.to_owned()));
            }
        }
        self.tls.check().map_err(|text| ("tls", text))
    }

    /// Returns the group whose datagrams are expected from this URL, if it is known.
    pub fn group_of(&self, url: &Url) -> Option<SocketAddr> {
        self.group.or_else(|| group_in(url.target()))
    }
}

/// Returns the multicast group in the path of a URL, such as `/rtp/239.81.0.1:4056` or
/// `/udp/10.0.0.1@239.81.0.1:4056`.
fn group_in(target: &str) -> Option<SocketAddr> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    path.split('/').find_map(|part| {
        let authority = part
            .rsplit_once('@')
            .map_or(part, |(_, authority)| authority);
        let address: SocketAddr = authority.parse().ok()?;
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
    fn keys_are_read_and_invalid_values_rejected() {
        assert_eq!(read("{}"), Ok(ClientConfig::default()));
        let config = read(r#"{"group":"239.1.1.1:5","http_version":"1.0","headers":{"X-A":"b"}}"#)
            .expect("valid");
        assert_eq!(config.http_version, Version::Http10);
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
        let words = zapping.zap.map(|zap| zap.describe());
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
    fn group_is_read_from_relay_urls() {
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

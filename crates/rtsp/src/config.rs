//! Scenario keys of RTSP clients.

use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actions::{self, Action};
use kit::http1::AdditionalFields;
use kit::keys::{KeyError, check_positive};
use kit::media::source::SourceConfig;
use kit::redirect_policy::RedirectPolicy;
use kit::remote_receiver::MediaConfig;
use kit::viewer::ServedWell;
use kit::zapping::Zap;
use session::tls::TlsConfig;

/// Media transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// RTP over UDP, unicast, on a pair of ports for each stream.
    #[default]
    Udp,
    /// RTP interleaved in the RTSP connection (RFC 2326, 10.12).
    Tcp,
    /// RTP interleaved in an RTSP connection that is tunnelled over HTTP: two connections, a GET
    /// and a POST.
    Http,
    /// RTP over UDP to a multicast group named by the server. All clients of a worker share one
    /// copy.
    Multicast,
}

/// Request used as a keep-alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeepAlive {
    /// GET_PARAMETER if the server lists it in `Public`, otherwise OPTIONS.
    #[default]
    Auto,
    /// Always OPTIONS.
    Options,
    /// Always GET_PARAMETER, without a body.
    GetParameter,
}

/// Keys of an RTSP population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Media transport: `udp` (default), `tcp`, `http` (interleaved, and tunnelled over HTTP) or
    /// `multicast`.
    pub transport: Transport,
    /// Name of the network interface used to join multicast groups. Default: the interface used to
    /// reach the server.
    pub interface: Option<String>,
    /// Timeout for connecting, including name resolution. Default 5s.
    pub connect_timeout: TimeSpan,
    /// Timeout for the answer to each request. Default 10s.
    pub request_timeout: TimeSpan,
    /// Maximum time from the answer to PLAY to the first media packet of any stream. After that,
    /// the client fails with `no_media`. Default 10s.
    pub no_media: TimeSpan,
    /// Maximum time without a packet of any stream. After that, the media counts as ended if its
    /// known length is reached or, if its length is unknown, a stream sent BYE or the publisher
    /// left. Otherwise the client fails with `media_stopped`. Default 10s.
    pub silence: TimeSpan,
    /// Maximum time without a packet of any stream after the known length of the media has played.
    /// After that, the media counts as ended. Default 1s.
    pub end_silence: TimeSpan,
    /// Playout buffer assumed when counting stalls. Default 1s.
    pub playout_buffer: TimeSpan,
    /// Bounds within which a viewer counts as served well (`viewers.served_well`):
    /// `{start: 2s, stalled: 0s, loss: 1%}`.
    pub served_well: ServedWell,
    /// Request used as a keep-alive: `auto` (default), `options` or `get_parameter`.
    pub keep_alive: KeepAlive,
    /// Whether to send receiver reports (RTCP), about every 5 s per stream. Default true. No
    /// reports are sent if the server's description forbids them (`b=RR:0`). Of the clients that
    /// share a multicast group, one reports for all clients of its worker, less often if many other
    /// receivers report (RFC 3550, 6.2). No reports are sent to a source-specific group.
    pub receiver_reports: bool,
    /// Whether a UDP client sends one small packet to each of the server's ports before PLAY, to
    /// open the path through a NAT between them. Default false.
    pub punch_holes: bool,
    /// Media address and ports that differ from those of the signalling, for `transport: udp`:
    /// `{address: 10.0.0.2, ports: 40000..}` asks the server to send media to this address
    /// (`destination`; RFC 2326, 12.39) and to consecutive ports. Default: the address that
    /// requests come from.
    pub media: Option<MediaConfig>,
    /// Hosts to which the server may direct the client: `same_host` (default: the host of the URL,
    /// at any port), `any`, or `none` for no redirects. Any other redirect fails with
    /// `redirect_refused`. If an answer to SETUP names a source of the media (`source`) other than
    /// the server's address, receiver reports would be sent there, and the client fails with
    /// `source_refused` unless this key is `any`.
    pub follow: RedirectPolicy,
    /// Media that the clients publish, such as `{bitrate: 2Mbps, audio: true}`, or `{}` for all
    /// defaults. Each client needs a URL of its own to publish to, so `pick` defaults to `own`.
    /// Default: none, the clients play.
    pub publish: Option<SourceConfig>,
    /// Whether to look for time codes in frames if no population of the scenario publishes, because
    /// another run on another machine does. In a run that publishes, this is always on. Default
    /// false, which saves some work per packet.
    pub time_codes: bool,
    /// TLS settings for `rtsps` URLs: `{verify: false}`, or `{ca: FILE}`. TLS secures only the RTSP
    /// connection; `transport: tcp` sends the media through it too.
    pub tls: TlsConfig,
    /// Text of the `User-Agent` header. Default: `streamgauge/` and the version.
    pub user_agent: String,
    /// Additional header fields of each request, by name, such as `{Require: onvif-replay}`. With
    /// `transport: http`, those of the HTTP requests too. Fields with credentials
    /// (`Authorization`, `Cookie`) are sent only to the host and port of the URL. `Authorization`
    /// replaces name and password of the URL. Default: none.
    pub headers: AdditionalFields,
    /// Actions of each client while it plays, in this order. After the last one, the client plays
    /// to the end. Default: none, the client plays from the beginning to the end.
    pub actions: Vec<Action>,
    /// Channel changes during playback: `{every: 5s}`, or `{every: 2s..10s, count: 20}`. The client
    /// leaves its stream and requests another URL of the population on a new connection: any other
    /// with `pick: random`, otherwise the next one. Default: no changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zap: Option<Zap>,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
        ClientConfig {
            transport: Transport::default(),
            interface: None,
            connect_timeout: seconds(5),
            request_timeout: seconds(10),
            no_media: seconds(10),
            silence: seconds(10),
            end_silence: seconds(1),
            playout_buffer: seconds(1),
            served_well: ServedWell::default(),
            keep_alive: KeepAlive::default(),
            receiver_reports: true,
            punch_holes: false,
            media: None,
            follow: RedirectPolicy::default(),
            publish: None,
            time_codes: false,
            tls: TlsConfig::default(),
            user_agent: concat!("streamgauge/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: AdditionalFields::default(),
            actions: Vec::new(),
            zap: None,
        }
    }
}

/// Header fields that the client sets itself.
const OWN_FIELDS: [&str; 16] = [
    "Accept",
    "Cache-Control",
    "Connection",
    "Content-Length",
    "Content-Type",
    "CSeq",
    "Host",
    "Pragma",
    "Range",
    "Scale",
    "Session",
    "Speed",
    "Transfer-Encoding",
    "Transport",
    "User-Agent",
    "x-sessioncookie",
];

impl ClientConfig {
    /// Checks whether these values make sense together. Returns the wrong key and the reason if
    /// they do not.
    pub fn check(&self) -> Result<(), KeyError> {
        let wrong = |key, text: &str| Err((key, text.to_owned()));
        check_positive([
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
            ("end_silence", self.end_silence),
        ])?;
        if self.user_agent.bytes().any(|b| b < 0x20 || b == 0x7f) {
            let text = "`user_agent` must be one line of printable characters";
            return wrong("user_agent", text);
        }
        let instead = |own: &str| (own == "User-Agent").then_some("write `user_agent`");
        let headers = self.headers.check(&OWN_FIELDS, instead);
        headers.map_err(|text| ("headers", text))?;
        if self.interface.is_some() && self.transport != Transport::Multicast {
            return wrong("interface", "`interface` requires `transport: multicast`");
        }
        if let Some(media) = &self.media {
            if self.transport != Transport::Udp {
                return wrong("media", "`media` requires `transport: udp`");
            }
            media.check().map_err(|text| ("media", text))?;
            if media.receiver.is_some() && self.punch_holes {
                let text = "`punch_holes` cannot be combined with `media.receiver`";
                return wrong("punch_holes", text);
            }
        }
        if let Some(source) = &self.publish {
            let made = source.check().and_then(|()| source.check_generated());
            made.map_err(|text| ("publish", text))?;
            if matches!(self.transport, Transport::Http | Transport::Multicast) {
                let text = "clients can publish only over `transport: udp` or `tcp`";
                return wrong("transport", text);
            }
            if self.media.is_some() {
                let text = "`media` cannot be combined with `publish`, because publishers send their media to the server; remove it";
                return wrong("media", text);
            }
            if !self.actions.is_empty() {
                let text = "`actions` cannot be combined with `publish`, because publishers play nothing; remove them, or let \
                            another population of the same URLs play";
                return wrong("actions", text);
            }
        }
        if let Some(zap) = &self.zap {
            zap.check_with(&[
                ("publish", self.publish.is_some()),
                ("actions", !self.actions.is_empty()),
                ("media", self.media.is_some()),
            ])?;
        }
        self.tls.check().map_err(|text| ("tls", text))?;
        actions::check(&self.actions).map_err(|text| ("actions", text))?;
        let of_its_own = |action: &Action| !matches!(action, Action::Wait(_) | Action::Leave(_));
        if self.transport == Transport::Multicast && self.actions.iter().any(of_its_own) {
            let text = "`transport: multicast` sends all clients the same media, so `actions` may only be `wait` and `leave`; \
                        remove the others, or write `transport: udp`";
            return wrong("actions", text);
        }
        if self.has_remote_receiver() && self.actions.iter().any(of_its_own) {
            let text = "a receiver on another machine cannot follow changes of position or speed, so `actions` may only be `wait` and `leave` \
                        with `media: {receiver: ...}`; remove the others, or receive the media on this machine";
            return wrong("actions", text);
        }
        Ok(())
    }

    /// Returns `true` if another machine receives the media.
    pub fn has_remote_receiver(&self) -> bool {
        let media = self.media.as_ref();
        media.is_some_and(|media| media.receiver.is_some())
    }

    /// Returns the maximum number of file descriptors of one client, for media with this many
    /// streams. Sockets of multicast groups are not counted, because clients share them.
    pub fn max_sockets(&self, streams: usize) -> usize {
        match self.transport {
            // The media sockets are on the other machine.
            Transport::Udp if self.has_remote_receiver() => 2,
            Transport::Udp => 1 + 2 * streams,
            Transport::Tcp | Transport::Multicast => 1,
            Transport::Http => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_clients_cannot_seek() {
        let config = |transport: &str, actions: &str| {
            let text = format!(r#"{{"transport":"{transport}","actions":[{actions}]}}"#);
            let config = serde_json::from_str::<ClientConfig>(&text).expect("each is valid");
            config.check().map_err(|(key, _)| key)
        };
        let leaves = r#"{"wait":"1s"},{"leave":{}}"#;
        assert_eq!(config("multicast", leaves), Ok(()));
        assert_eq!(config("multicast", r#"{"seek":"1s"}"#), Err("actions"));
        assert_eq!(config("udp", r#"{"seek":"1s"}"#), Ok(()));
    }

    #[test]
    fn clients_with_a_remote_receiver_cannot_seek() {
        let config = |media: &str, actions: &str| {
            let text = format!(r#"{{"transport":"udp","media":{media},"actions":[{actions}]}}"#);
            let config = serde_json::from_str::<ClientConfig>(&text).expect("each is valid");
            config.check().map_err(|(key, _)| key)
        };
        let there = r#"{"receiver":"10.0.0.3:8560","secret":"0123456789abcdef"}"#;
        let here = r#"{"address":"10.0.0.3"}"#;
        let leaves = r#"{"wait":"1s"},{"leave":{}}"#;
        for other in [r#"{"pause":"1s"}"#, r#"{"seek":"1s"}"#, r#"{"speed":2}"#] {
            assert_eq!(config(there, other), Err("actions"));
            assert_eq!(config(here, other), Ok(()));
        }
        assert_eq!(config(there, leaves), Ok(()));
    }

    #[test]
    fn zapping_clients_only_play() {
        let zap = |more: &str| {
            let text = format!(r#"{{"zap":{{"every":"1s"}}{more}}}"#);
            let config = serde_json::from_str::<ClientConfig>(&text).expect("each is valid");
            config.check().map_err(|(key, _)| key)
        };
        assert_eq!(zap(""), Ok(()));
        for more in [
            r#","publish":{}"#,
            r#","actions":[{"wait":"1s"}]"#,
            r#","media":{"address":"10.0.0.3"}"#,
        ] {
            assert_eq!(zap(more), Err("zap"), "{more}");
        }
    }

    #[test]
    fn empty_config_equals_the_defaults() {
        let config: ClientConfig = serde_json::from_str("{}").expect("valid");
        assert_eq!(config, ClientConfig::default());
        assert_eq!(config.check(), Ok(()));
        assert_eq!(
            (config.max_sockets(2), config.request_timeout.0.as_secs()),
            (5, 10)
        );
    }

    #[test]
    fn keys_are_parsed_and_unknown_keys_rejected() {
        let config: ClientConfig = serde_json::from_str(
            r#"{"transport":"tcp","request_timeout":"500ms","keep_alive":"get_parameter","receiver_reports":false}"#,
        )
        .expect("valid");
        assert_eq!(config.transport, Transport::Tcp);
        assert_eq!(config.request_timeout.0, Duration::from_millis(500));
        assert_eq!(config.keep_alive, KeepAlive::GetParameter);
        assert!(!config.receiver_reports);
        assert_eq!(config.max_sockets(2), 1);
        assert!(serde_json::from_str::<ClientConfig>(r#"{"transprot":"tcp"}"#).is_err());
        assert!(serde_json::from_str::<ClientConfig>(r#"{"silence":10}"#).is_err());
    }

    #[test]
    fn invalid_values_are_rejected_with_their_key() {
        let config = ClientConfig {
            silence: TimeSpan(Duration::ZERO),
            ..ClientConfig::default()
        };
        assert_eq!(config.check().expect_err("zero").0, "silence");
        let config = ClientConfig {
            user_agent: "a\r\nb".to_owned(),
            ..ClientConfig::default()
        };
        assert_eq!(config.check().expect_err("two lines").0, "user_agent");
        for wrong in [
            r#"{"a":"b\r\nc: d"}"#,
            r#"{"cseq":"1"}"#,
            r#"{"User-Agent":"a"}"#,
            r#"{"content-length":"0"}"#,
        ] {
            let config = ClientConfig {
                headers: serde_json::from_str(wrong).expect("fields"),
                ..ClientConfig::default()
            };
            assert_eq!(config.check().expect_err(wrong).0, "headers", "{wrong}");
        }
    }
}

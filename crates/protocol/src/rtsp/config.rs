//! The keys that a scenario may set for RTSP clients.

use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actions::{self, Action};
use crate::follow::Follow;
use crate::media::source::SourceConfig;
use crate::remote_receiver::MediaConfig;
use crate::tls::TlsConfig;

/// How media is carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// RTP over UDP, unicast, on a pair of ports for each stream.
    #[default]
    Udp,
    /// Interleaved in the RTSP connection (RFC 2326, 10.12).
    Tcp,
    /// The same, and the RTSP connection tunnelled over HTTP: two connections, a GET and a POST.
    Http,
    /// RTP over UDP to a multicast group that the server names: one copy for all clients of a
    /// worker.
    Multicast,
}

/// By which request a client shows that it lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeepAlive {
    /// GET_PARAMETER where the server says in `Public` that it knows it, else OPTIONS.
    #[default]
    Auto,
    /// OPTIONS, always.
    Options,
    /// GET_PARAMETER without a body, always.
    GetParameter,
}

/// Keys of an RTSP population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// How media is carried: `udp` (default), `tcp`, `http` (interleaved, and tunnelled over HTTP)
    /// or `multicast`.
    pub transport: Transport,
    /// The name of the network interface through which multicast groups are joined. Default: the
    /// one through which the server is reached.
    pub interface: Option<String>,
    /// How long connecting may take, looking up the name included. Default 5s.
    pub connect_timeout: TimeSpan,
    /// How long each request may take to be answered. Default 10s.
    pub request_timeout: TimeSpan,
    /// How long after the answer to PLAY the first media packet may take to arrive, of any stream:
    /// then the client has failed with `no_media`. Default 10s.
    pub no_media: TimeSpan,
    /// How long no stream may bring a packet before the media counts as over (where its length is
    /// not known, or is reached) or the client as failed with `media_stopped`. Default 10s.
    pub silence: TimeSpan,
    /// How long no stream may bring a packet, once the media's known length has played, before it
    /// counts as over. Default 1s.
    pub end_silence: TimeSpan,
    /// The playout buffer for which stalls are counted. Default 1s.
    pub playout_buffer: TimeSpan,
    /// By which request a client shows that it lives: `auto` (default), `options` or
    /// `get_parameter`.
    pub keep_alive: KeepAlive,
    /// Whether receiver reports (RTCP) are sent, about every 5 s and a stream. Default true. None
    /// are sent where the server's description forbids it (`b=RR:0`). Of the clients that share a
    /// multicast group one reports for all of its worker, less often where many others report (RFC
    /// 3550, 6.2); none does to a source-specific group.
    pub receiver_reports: bool,
    /// Whether a UDP client sends one small packet to each of the server's ports before PLAY, to
    /// open the way through a NAT between them. Default false.
    pub punch_holes: bool,
    /// Where media goes, apart from the signalling, with `transport: udp`:
    /// `{address: 10.0.0.2, ports: 40000..}` asks the server to send it to this address
    /// (`destination`; RFC 2326, 12.39) and to consecutive ports. Default: to where requests come
    /// from.
    pub media: Option<MediaConfig>,
    /// To which hosts the server may direct the client: `same_host` (default: that of the URL, at
    /// any port), `any`, or `none` for no redirects at all. A redirect elsewhere fails with
    /// `redirect_refused`. Where an answer to SETUP says that media comes from another address than
    /// the server's (`source`), to which receiver reports would then go, the client fails with
    /// `source_refused` unless this is `any`.
    pub follow: Follow,
    /// What the clients publish, such as `{bitrate: 2Mbps, audio: true}`, or `{}` for all defaults.
    /// Each publishes to its URL, which is to be its own: `pick` is `own` unless something else is
    /// written. Default: nothing, they play.
    pub publish: Option<SourceConfig>,
    /// Whether time codes are looked for in the frames where no population of the scenario
    /// publishes: another run, on another machine, does. In a run that publishes they always are.
    /// Default false: that spares some work with each packet.
    pub time_codes: bool,
    /// How TLS is spoken with URLs of `rtsps`: `{verify: false}`, or `{ca: FILE}`. Only the
    /// connection is secured: `transport: tcp` sends the media through it too.
    pub tls: TlsConfig,
    /// The text of the `User-Agent` header. Default `streamgauge/` and the version.
    pub user_agent: String,
    /// What each client does while it plays, in this order. After the last it plays on to the end.
    /// Default: nothing, it plays from the beginning to the end.
    pub actions: Vec<Action>,
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
            keep_alive: KeepAlive::default(),
            receiver_reports: true,
            punch_holes: false,
            media: None,
            follow: Follow::default(),
            publish: None,
            time_codes: false,
            tls: TlsConfig::default(),
            user_agent: concat!("streamgauge/", env!("CARGO_PKG_VERSION")).to_owned(),
            actions: Vec::new(),
        }
    }
}

impl ClientConfig {
    /// Whether these values make sense together; if not, which key is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, span) in [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
            ("end_silence", self.end_silence),
        ] {
            if span.0.is_zero() {
                return Err((key, format!("`{key}` must be longer than nothing")));
            }
        }
        if self.user_agent.bytes().any(|b| b < 0x20 || b == 0x7f) {
            let text = "`user_agent` must be one line of printable characters".to_owned();
            return Err(("user_agent", text));
        }
        if self.interface.is_some() && self.transport != Transport::Multicast {
            let text = "`interface` is for `transport: multicast` alone".to_owned();
            return Err(("interface", text));
        }
        if let Some(media) = &self.media {
            if self.transport != Transport::Udp {
                let text = "`media` is for `transport: udp` alone".to_owned();
                return Err(("media", text));
            }
            media.check().map_err(|text| ("media", text))?;
            if media.receiver.is_some() && self.punch_holes {
                let text = "`punch_holes` is not for a `media.receiver`".to_owned();
                return Err(("punch_holes", text));
            }
        }
        if let Some(source) = &self.publish {
            let made = source.check().and_then(|()| source.check_made());
            made.map_err(|text| ("publish", text))?;
            if matches!(self.transport, Transport::Http | Transport::Multicast) {
                let text = "clients publish by `transport: udp` or `tcp`".to_owned();
                return Err(("transport", text));
            }
            if self.media.is_some() {
                let text = "clients that publish send their media to the server, so `media` is not for them; leave it out";
                return Err(("media", text.to_owned()));
            }
            if !self.actions.is_empty() {
                let text = "clients that publish play nothing, so they have no `actions`; leave them out, or let \
                            another population of the same URLs play";
                return Err(("actions", text.to_owned()));
            }
        }
        self.tls.check().map_err(|text| ("tls", text))?;
        actions::check(&self.actions).map_err(|text| ("actions", text))?;
        let of_its_own = |action: &Action| !matches!(action, Action::Wait(_) | Action::Leave(_));
        if self.transport == Transport::Multicast && self.actions.iter().any(of_its_own) {
            let text = "`transport: multicast` brings all clients the same, so `actions` may be `wait` and `leave` alone; \
                        take the others out, or write `transport: udp`";
            return Err(("actions", text.to_owned()));
        }
        if self.has_receiver() && self.actions.iter().any(of_its_own) {
            let text = "a receiver on another machine is told of no other position or speed, so `actions` may be `wait` and `leave` \
                        alone with `media: {receiver: ...}`; take the others out, or have the media received on this machine";
            return Err(("actions", text.to_owned()));
        }
        Ok(())
    }

    /// Whether media is received by another machine.
    pub fn has_receiver(&self) -> bool {
        let media = self.media.as_ref();
        media.is_some_and(|media| media.receiver.is_some())
    }

    /// How many file descriptors one client may need, for media of so many streams. Those of a
    /// multicast group are not one client's.
    pub fn sockets(&self, streams: usize) -> usize {
        match self.transport {
            // Its media is another machine's.
            Transport::Udp if self.has_receiver() => 2,
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
    fn who_shares_a_stream_cannot_seek() {
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
    fn whose_media_another_machine_receives_cannot_seek() {
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
    fn nothing_written_is_all_default() {
        let config: ClientConfig = serde_json::from_str("{}").expect("valid");
        assert_eq!(config, ClientConfig::default());
        assert_eq!(config.check(), Ok(()));
        assert_eq!(
            (config.sockets(2), config.request_timeout.0.as_secs()),
            (5, 10)
        );
    }

    #[test]
    fn keys_are_read_and_unknown_ones_refused() {
        let config: ClientConfig = serde_json::from_str(
            r#"{"transport":"tcp","request_timeout":"500ms","keep_alive":"get_parameter","receiver_reports":false}"#,
        )
        .expect("valid");
        assert_eq!(config.transport, Transport::Tcp);
        assert_eq!(config.request_timeout.0, Duration::from_millis(500));
        assert_eq!(config.keep_alive, KeepAlive::GetParameter);
        assert!(!config.receiver_reports);
        assert_eq!(config.sockets(2), 1);
        assert!(serde_json::from_str::<ClientConfig>(r#"{"transprot":"tcp"}"#).is_err());
        assert!(serde_json::from_str::<ClientConfig>(r#"{"silence":10}"#).is_err());
    }

    #[test]
    fn senseless_values_name_their_key() {
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
    }
}

//! Scenario keys of WebRTC clients.

use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sdp::FeedbackTypes;
use super::signalling::janus::room_config::{RoomConfig, Subscribe};
use super::turn::TurnConfig;
use kit::browser::Golden;
use kit::http1::AdditionalFields;
use kit::keys::{KeyError, check_positive};
use kit::media::source::SourceConfig;
use kit::redirect_policy::RedirectPolicy;
use kit::viewer::ServedWell;
use kit::websocket::ClientHandshake;
use kit::zapping::Zap;
use session::tls::TlsConfig;

/// Processing of received media packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// Only the header is read, which is not encrypted.
    #[default]
    Headers,
    /// Each packet is authenticated and decrypted.
    Decrypted,
}

/// DTLS certificates of the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Certificates {
    /// One certificate for all clients.
    #[default]
    Shared,
    /// A certificate for each client, generated when it starts.
    Own,
}

/// Congestion control of publishing clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Clients send at the configured bit rate.
    #[default]
    Ignore,
    /// The video follows the estimated bandwidth, up to the configured bit rate.
    Follow,
}

/// Simulcast layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Highest bit rate.
    High,
    /// Middle bit rate.
    Middle,
    /// Lowest bit rate.
    Low,
}

impl Layer {
    /// Returns the layer's number in Janus and LiveKit.
    pub(super) fn number(self) -> u8 {
        match self {
            Layer::High => 2,
            Layer::Middle => 1,
            Layer::Low => 0,
        }
    }
}

/// Keys of a WebRTC population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Processing of received media: `headers` (default: only the header is read, which is not
    /// encrypted, by the packet ring if available) or `decrypted` (each packet is authenticated and
    /// decrypted, at several times the cost).
    pub receive: Receive,
    /// Timeout for connecting, including name resolution. Default 5s.
    pub connect_timeout: TimeSpan,
    /// Timeout for the answer to each signalling request, and to each request to a TURN server.
    /// Default 10s.
    pub request_timeout: TimeSpan,
    /// Maximum time in which ICE must find a path to the server. After that, the client fails with
    /// `ice_timeout`. Default 10s.
    pub ice_timeout: TimeSpan,
    /// Maximum time for the DTLS handshake after ICE. After that, the client fails with
    /// `dtls_timeout`. Default 10s.
    pub dtls_timeout: TimeSpan,
    /// Maximum time from the end of the handshake to the first media packet. After that, the client
    /// fails with `no_media`. In a room, the time counts only while another participant publishes.
    /// Default 10s.
    pub no_media: TimeSpan,
    /// Maximum time without media. After that, the client fails with `media_stopped`. In a room,
    /// the time counts only while another participant publishes. Default 10s.
    pub silence: TimeSpan,
    /// Playout buffer assumed when counting stalls. Default 1s.
    pub playout_buffer: TimeSpan,
    /// Bounds within which a viewer counts as served well (`viewers.served_well`):
    /// `{start: 2s, stalled: 0s, loss: 1%}`.
    pub served_well: ServedWell,
    /// Whether to send receiver reports (RTCP), once a second per stream. Default true.
    pub receiver_reports: bool,
    /// Whether publishing clients send sender reports (RTCP), once a second per stream. Default
    /// true.
    pub sender_reports: bool,
    /// Whether to request missing packets (NACK) if the server supports it. A request is repeated
    /// after 100 ms or a round trip, whichever is longer. Default true.
    pub nack: bool,
    /// Whether to request a key frame (PLI) if too many packets are missing for NACK, and the
    /// server supports PLI. Needs `nack`. Default true.
    pub pli: bool,
    /// Whether to request key frames with a full intra request (FIR; RFC 5104, 4.3.1) if the server
    /// supports FIR and not PLI, as browsers do. Needs `nack`. Default true.
    pub fir: bool,
    /// Whether to accept retransmissions in a stream of their own (RTX). They count in the stream
    /// that they repair. Default: as `nack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtx: Option<bool>,
    /// Whether to report the arrival times of packets to the server ten times a second
    /// (transport-wide congestion control), if it numbers the packets of a transport, as browsers
    /// do. Default true.
    pub transport_cc: bool,
    /// Whether to send a bandwidth estimate to the server once a second (REMB), if it supports that
    /// and arrival times are not reported: 1.5 times the rate received in that second, reduced by
    /// half of the share that was lost if that share is above 10 %. Default true.
    pub remb: bool,
    /// Whether publishing clients retransmit packets that the server requests (NACK). Video is
    /// retransmitted in a stream of its own (RTX) if the server supports that. Default true.
    pub retransmit: bool,
    /// Whether publishing clients lower the bit rate of generated video on congestion: `ignore`
    /// (default) or `follow` (as browsers do, based on the server's reports of arrival times
    /// (transport-wide congestion control), bandwidth (REMB) and loss).
    pub congestion: Control,
    /// Whether to send the client's ICE candidates in a separate request after the description
    /// (trickle ICE; RFC 8838). Default false: the description contains them.
    pub trickle: bool,
    /// DTLS certificate of the clients: `shared` (default: one for all) or `own` (each client
    /// generates its own, which takes processor time).
    pub certificate: Certificates,
    /// TURN server that relays all media, such as
    /// `{url: "turn:10.0.0.1:3478?transport=udp", user: u, password: p}`: clients then have no
    /// other candidates. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnConfig>,
    /// Token for a WHIP, WHEP or LiveKit server (`Authorization: Bearer`), or the `token` of Janus.
    /// A LiveKit token belongs to one client, because it contains the client's name in the room. A
    /// secret: it is masked in all output of a run. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Several tokens instead of `token`: one for each URL, in the same order, or, if their numbers
    /// differ, for the clients in turn. Secrets, as `token`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<String>,
    /// Name of the LiveKit API key, with which each client makes its own token. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Janus API secret, or the secret of LiveKit's `api_key`. A secret: it is masked in all output
    /// of a run. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_secret: Option<String>,
    /// PIN of the Janus room or mount point. A secret: it is masked in all output of a run.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Hosts to which the server may redirect the client: `same_host` (default: the host of the
    /// URL, any port), `any`, or `none` for no redirects at all.
    pub follow: RedirectPolicy,
    /// Media that the clients publish over WHIP, such as `{bitrate: 2Mbps, audio: true}`, or `{}`
    /// for all defaults. Each client needs a URL of its own, so the default of `pick` is `own`.
    /// Default: none, the clients play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<SourceConfig>,
    /// Media that each client publishes in a Janus or LiveKit room, such as
    /// `{bitrate: 256kbps, audio: true}`. Default: none, the clients only receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participate: Option<SourceConfig>,
    /// Media that each client sends to a Janus mount point as plain RTP, such as
    /// `{bitrate: 2Mbps, audio: true}`. The client creates the mount point of its URL, which must
    /// be its own, and removes it at the end. Default: none, the clients play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<SourceConfig>,
    /// How clients in a room receive the others: `together` (default: over one PeerConnection),
    /// `each` (each participant over its own PeerConnection; Janus only) or `nobody`.
    pub subscribe: Subscribe,
    /// Simulcast layer that clients in a room receive: `high`, `middle` or `low`. Default: the
    /// server's choice, usually the highest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    /// Number of the most recent speakers whose video clients in a Janus room receive. Audio is
    /// received from all participants. The server must report who speaks, as rooms created by the
    /// run do. Needs `subscribe: together`. Default: the video of all participants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_n: Option<u32>,
    /// Janus room to create if it does not exist, such as
    /// `{publishers: 100, bitrate: 256kbps}`. A client that knows of no other publisher when it
    /// leaves destroys the room. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomConfig>,
    /// Real browsers that do the same as the clients at the same time: `{chromium: 1}`. They play
    /// from WHEP or a mount point, or take part in a room. Their own statistics appear in the
    /// report as `NAME_golden`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub golden: Option<Golden>,
    /// Channel changes of clients that play from WHEP: `{every: 5s}`, or
    /// `{every: 2s..10s, count: 20}`. The client leaves its session and begins one with another URL
    /// of the population: any other with `pick: random`, otherwise the next one. Needs
    /// `receive: decrypted`, because the first picture is encrypted. Default: no changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zap: Option<Zap>,
    /// Whether to look for time codes in frames if no population of the scenario publishes: for
    /// media published by the server, or by another run on another machine. A run that publishes
    /// always looks for them. Needs `receive: decrypted`. Default false.
    pub time_codes: bool,
    /// TLS settings for secure URLs: `{verify: false}`, or `{ca: FILE}`. They apply to the
    /// signalling; media is always encrypted.
    pub tls: TlsConfig,
    /// Value of the `User-Agent` header. Default `streamgauge/` and the version.
    pub user_agent: String,
    /// Additional header fields of each request of the signalling, by name, such as
    /// `{Origin: "https://a.org"}`; of a WebSocket, those of its first request. Fields with
    /// credentials (`Authorization`, `Cookie`) are sent only to the host and port of the URL.
    /// Default: none.
    #[serde(skip_serializing_if = "AdditionalFields::is_empty")]
    pub headers: AdditionalFields,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
        ClientConfig {
            receive: Receive::default(),
            connect_timeout: seconds(5),
            request_timeout: seconds(10),
            ice_timeout: seconds(10),
            dtls_timeout: seconds(10),
            no_media: seconds(10),
            silence: seconds(10),
            playout_buffer: seconds(1),
            served_well: ServedWell::default(),
            receiver_reports: true,
            sender_reports: true,
            nack: true,
            pli: true,
            fir: true,
            rtx: None,
            transport_cc: true,
            remb: true,
            retransmit: true,
            congestion: Control::default(),
            trickle: false,
            certificate: Certificates::default(),
            turn: None,
            token: None,
            tokens: Vec::new(),
            api_key: None,
            api_secret: None,
            pin: None,
            follow: RedirectPolicy::default(),
            publish: None,
            feed: None,
            participate: None,
            subscribe: Subscribe::default(),
            layer: None,
            last_n: None,
            room: None,
            golden: None,
            zap: None,
            time_codes: false,
            tls: TlsConfig::default(),
            user_agent: concat!("streamgauge/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: AdditionalFields::default(),
        }
    }
}

/// Header fields that the signalling sets itself: those of the handshake of a WebSocket, and these.
const OWN_FIELDS: [&str; 5] = [
    "Accept",
    "Accept-Encoding",
    "Content-Type",
    "If-Match",
    "User-Agent",
];

impl ClientConfig {
    /// Checks that the values are consistent. Otherwise returns the invalid key and the reason.
    pub fn check(&self) -> Result<(), KeyError> {
        check_positive([
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("ice_timeout", self.ice_timeout),
            ("dtls_timeout", self.dtls_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
        ])?;
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        for (key, tokens) in [
            ("token", self.token.as_slice()),
            ("tokens", self.tokens.as_slice()),
        ] {
            if tokens.iter().any(|token| !plain(token)) {
                let text = "a token must be a non-empty word of printable ASCII without spaces";
                return Err((key, text.to_owned()));
            }
        }
        let has_both = self.token.is_some() && !self.tokens.is_empty();
        let text = "`token` and `tokens` cannot be combined; remove one of them";
        refuse_if(has_both, "tokens", text)?;
        let text = "`user_agent` must be one line of printable characters";
        refuse_if(!kit::http1::is_value(&self.user_agent), "user_agent", text)?;
        self.check_headers().map_err(|text| ("headers", text))?;
        let is_encrypted = self.time_codes && self.receive != Receive::Decrypted;
        let text = "`time_codes` needs `receive: decrypted`: the payload is encrypted";
        refuse_if(is_encrypted, "time_codes", text)?;
        let text = "`rtx` needs `nack`: only requested packets are retransmitted";
        refuse_if(self.rtx == Some(true) && !self.nack, "rtx", text)?;
        if let Some(turn) = &self.turn {
            turn.check().map_err(|text| ("turn", text))?;
        }
        self.tls.check().map_err(|text| ("tls", text))?;
        if let Some(golden) = self.golden {
            golden.check().map_err(|text| ("golden", text))?;
        }
        for (key, source) in [
            ("publish", &self.publish),
            ("participate", &self.participate),
            ("feed", &self.feed),
        ] {
            if let Some(source) = source {
                check_source(source).map_err(|text| (key, text))?;
            }
        }
        let is_generated = self.source().is_some_and(|source| source.file.is_none());
        let follows = self.follows_congestion();
        let text = "`congestion: follow` needs generated video in `publish` or `participate`";
        refuse_if(follows && !is_generated, "congestion", text)?;
        let has_layers = follows && self.source().is_some_and(|source| source.simulcast);
        let text = "`congestion: follow` supports only one layer; remove it or `simulcast`";
        refuse_if(has_layers, "congestion", text)?;
        self.check_room_keys()?;
        self.check_feed()?;
        if let Some(zap) = &self.zap {
            zap.check_with(&[
                ("publish", self.publish.is_some()),
                ("participate", self.participate.is_some()),
                ("feed", self.feed.is_some()),
                ("golden", self.golden.is_some()),
            ])?;
            let text = "`zap` needs `receive: decrypted`: the first picture is encrypted";
            refuse_if(self.receive != Receive::Decrypted, "zap", text)?;
        }
        let sends_both = self.publish.is_some() && self.participate.is_some();
        let text = "`publish` is for WHIP and `participate` for rooms; remove one of them";
        refuse_if(sends_both, "participate", text)
    }

    fn check_headers(&self) -> Result<(), String> {
        let own = [&ClientHandshake::OWN_FIELDS[..], &OWN_FIELDS].concat();
        let instead = |own: &str| (own == "User-Agent").then_some("write `user_agent`");
        self.headers.check(&own, instead)
    }

    /// Checks that clients change channel only between streams of WHEP. Returns the invalid key and
    /// the reason.
    pub(super) fn check_zap(&self, is_whep: bool) -> Result<(), KeyError> {
        let text = "only clients of `whep+http://` change channel; remove `zap`";
        refuse_if(self.zap.is_some() && !is_whep, "zap", text)
    }

    /// Returns `true` if clients in a room receive the others.
    pub(super) fn receives_others(&self) -> bool {
        self.subscribe != Subscribe::Nobody
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some() || !self.tokens.is_empty()
    }

    /// Checks that the client has no two credentials: `headers` with `Authorization`, and a key.
    /// `of_livekit` is true for LiveKit rooms. Returns the invalid key and the reason.
    pub(super) fn check_authorization(&self, of_livekit: bool) -> Result<(), KeyError> {
        let key = match (self.has_token(), of_livekit) {
            (true, _) => "token",
            (false, true) => "api_key",
            (false, false) => return Ok(()),
        };
        if !self.headers.contains("Authorization") {
            return Ok(());
        }
        let text = format!("the client sets `Authorization` itself, from `{key}`; remove one");
        Err(("headers", text))
    }

    /// Returns the feedback that is negotiated for received media.
    pub(super) fn receive_feedback(&self) -> FeedbackTypes {
        FeedbackTypes {
            nack: self.nack,
            rtx: self.accepts_rtx(),
            pli: self.nack && self.pli,
            fir: self.nack && self.fir,
            transport_cc: self.transport_cc,
            remb: self.remb,
        }
    }

    /// Returns `true` if retransmissions may have a stream of their own.
    fn accepts_rtx(&self) -> bool {
        self.rtx.unwrap_or(true) && self.nack
    }

    /// Returns `true` if sent video follows the estimated bandwidth.
    pub(super) fn follows_congestion(&self) -> bool {
        self.congestion == Control::Follow
    }

    /// Returns the maximum payload of a sent packet, in bytes.
    pub(super) fn payload_max(&self) -> usize {
        let source = self.publish.as_ref().or(self.participate.as_ref());
        source.map_or_else(|| SourceConfig::default().mtu, |source| source.mtu)
    }

    /// Returns the feedback that is negotiated for sent media. The key frames of a file are fixed.
    pub(super) fn send_feedback(&self) -> FeedbackTypes {
        let makes_key_frames = self.source().is_none_or(|source| source.file.is_none());
        FeedbackTypes {
            pli: makes_key_frames,
            fir: makes_key_frames,
            nack: self.retransmit,
            rtx: self.retransmit,
            transport_cc: self.follows_congestion(),
            remb: self.follows_congestion(),
        }
    }

    /// Returns the media to send: over WHIP, in a room, or to a mount point.
    pub(super) fn source(&self) -> Option<&SourceConfig> {
        let own = self.publish.as_ref().or(self.participate.as_ref());
        own.or(self.feed.as_ref())
    }
}

/// Refuses a key for the reason in `text` if it is wrong.
pub(super) fn refuse_if(is_wrong: bool, key: &'static str, text: &str) -> Result<(), KeyError> {
    match is_wrong {
        true => Err((key, text.to_owned())),
        false => Ok(()),
    }
}

/// Maximum payload for a datagram of 1,280 bytes, including IPv6 and SRTP.
const PAYLOAD_MAX: usize = 1200;

/// Checks the keys of a source.
fn check_source(source: &SourceConfig) -> Result<(), String> {
    source.check_for_webrtc()?;
    with_limited_mtu(source).check_generated()
}

/// Returns the source with packets limited to a size that fits every path.
pub(super) fn with_limited_mtu(source: &SourceConfig) -> SourceConfig {
    let mut source = source.clone();
    source.mtu = source.mtu.min(PAYLOAD_MAX);
    source
}

#[cfg(test)]
mod tests;

//! The keys that a scenario may set for WebRTC clients.

use std::time::Duration;

use measure::units::{BitRate, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sdp::Feedback;
use super::signalling::janus::Subscribe;
use super::turn::TurnConfig;
use crate::browser::Golden;
use crate::follow::Follow;
use crate::media::source::SourceConfig;
use crate::tls::TlsConfig;

/// What is done with each packet of media that comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// Its header is read, which is not encrypted.
    #[default]
    Headers,
    /// It is authenticated and decrypted.
    Decrypted,
}

/// Which certificate a client shows in DTLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Certificates {
    /// That of all clients.
    #[default]
    Shared,
    /// One of its own, made when it begins.
    Own,
}

/// Whether clients that publish send less where the path or the server takes less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// They send what is written.
    #[default]
    Ignore,
    /// The video has the bit rate that is estimated, and never more than is written.
    Follow,
}

/// A layer of a simulcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The best.
    High,
    /// That between.
    Middle,
    /// The one of the lowest bit rate.
    Low,
}

impl Layer {
    /// Its number, as Janus and LiveKit have it.
    pub(super) fn number(self) -> u8 {
        match self {
            Layer::High => 2,
            Layer::Middle => 1,
            Layer::Low => 0,
        }
    }
}

/// A room of Janus' VideoRoom that the run makes where it is not there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RoomConfig {
    /// How many may publish in it. Default: 1000.
    pub publishers: u32,
    /// The bit rate that Janus asks publishers to keep below. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitrate: Option<BitRate>,
    /// The codecs of the video that it takes, such as `h264` or `vp8,h264`. Default:
    /// h264,vp8,vp9.
    pub video_codecs: String,
    /// The codecs of the audio that it takes, such as `opus` or `pcmu`. Default: pcmu,opus.
    pub audio_codecs: String,
}

impl Default for RoomConfig {
    fn default() -> RoomConfig {
        RoomConfig {
            publishers: 1000,
            bitrate: None,
            video_codecs: "h264,vp8,vp9".to_owned(),
            audio_codecs: "pcmu,opus".to_owned(),
        }
    }
}

impl RoomConfig {
    /// What the request says that makes it. It tells everybody who talks, after half a second of
    /// sound that is louder than -50 dBov: whoever else comes may want to know.
    fn request(&self) -> Value {
        let bitrate = self.bitrate.map_or(0, |BitRate(rate)| rate);
        json!({
            "permanent": false,
            "publishers": self.publishers,
            "bitrate": bitrate,
            "videocodec": self.video_codecs,
            "audiocodec": self.audio_codecs,
            "fir_freq": 0,
            "audiolevel_event": true,
            "audio_active_packets": 25,
            "audio_level_average": 50,
        })
    }
}

/// Keys of a WebRTC population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// What is done with media that comes: `headers` (default: only its header is read, which is
    /// not encrypted, by the packet ring where there is one) or `decrypted` (each packet is
    /// authenticated and decrypted; several times as dear).
    pub receive: Receive,
    /// How long connecting may take, looking up the name included. Default 5s.
    pub connect_timeout: TimeSpan,
    /// How long each request of the signalling, and each to a TURN server, may take to be answered.
    /// Default 10s.
    pub request_timeout: TimeSpan,
    /// How long ICE may take to find a way to the server: then the client has failed with
    /// `ice_timeout`. Default 10s.
    pub ice_timeout: TimeSpan,
    /// How long the handshake of DTLS may take after that: then the client has failed with
    /// `dtls_timeout`. Default 10s.
    pub dtls_timeout: TimeSpan,
    /// How long after the handshake the first media may take: then the client has failed with
    /// `no_media`. In a room that counts only while somebody else publishes there. Default 10s.
    pub no_media: TimeSpan,
    /// How long no media may come before the client has failed with `media_stopped`. In a room that
    /// counts only while somebody else publishes there. Default 10s.
    pub silence: TimeSpan,
    /// The playout buffer for which stalls are counted. Default 1s.
    pub playout_buffer: TimeSpan,
    /// Whether receiver reports (RTCP) are sent, once a second and a stream. Default true.
    pub receiver_reports: bool,
    /// Whether clients that publish send sender reports (RTCP), once a second and a stream. Default
    /// true.
    pub sender_reports: bool,
    /// Whether the server is asked for what is missing (NACK) where it agrees to that, each time
    /// after 100 ms or a round trip, whichever is longer. Default true.
    pub nack: bool,
    /// Whether it is asked for a key frame (PLI) where too much is missing to be asked for, and it
    /// agrees to that. Needs `nack`. Default true.
    pub pli: bool,
    /// Whether the request is a full intra request (FIR; RFC 5104, 4.3.1) where it agrees to that
    /// and not to PLI, as browsers do. Needs `nack`. Default true.
    pub fir: bool,
    /// Whether retransmissions may come in a stream of their own (RTX), which becomes part of the
    /// stream that it repairs. Default: as `nack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtx: Option<bool>,
    /// Whether servers that number the packets of a transport are told ten times a second which of
    /// them arrived, and when (transport-wide congestion control), as browsers do. Default true.
    pub transport_cc: bool,
    /// Whether servers are told once a second how much can be taken (REMB), where they agree to
    /// that and are not told of arrivals: half as much again as came in that second, less half of
    /// the share that was lost if that is above 10 %. Default true.
    pub remb: bool,
    /// Whether clients that publish send again what the server asks for (NACK): of video in a
    /// stream of its own (RTX) where the server takes that. Default true.
    pub retransmit: bool,
    /// Whether clients that publish generated video lower its bit rate: `ignore` (default) or
    /// `follow` (as browsers do: by what the server says of arrivals (transport-wide congestion
    /// control), of what it can take (REMB) and of loss).
    pub congestion: Control,
    /// Whether our addresses follow the description in a request of their own (trickle ICE; RFC
    /// 8838), and are not in it. Default false.
    pub trickle: bool,
    /// Which certificate clients show in DTLS: `shared` (default: the same one) or `own` (each
    /// makes one of its own, which takes processor time).
    pub certificate: Certificates,
    /// A TURN server by which all media goes, such as
    /// `{url: "turn:10.0.0.1:3478?transport=udp", user: u, password: p}`: clients have no other
    /// address then. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnConfig>,
    /// The token that WHIP, WHEP and LiveKit servers are shown (`Authorization: Bearer`), or that
    /// Janus is told as `token`. Of LiveKit it is one client's: it has the client's name in the
    /// room. A secret: it is masked in all that a run leaves. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The name of LiveKit's API key, by which each client makes a token of its own. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Janus' API secret, or that of LiveKit's `api_key`. A secret: it is masked in all that a run
    /// leaves. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_secret: Option<String>,
    /// The PIN of the room or the mount point of Janus. A secret: it is masked in all that a run
    /// leaves. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// To which hosts the server may direct the client: `same_host` (default: that of the URL, at
    /// any port), `any`, or `none` for no redirects at all.
    pub follow: Follow,
    /// What the clients publish by WHIP, such as `{bitrate: 2Mbps, audio: true}`, or `{}` for all
    /// defaults. Each publishes to its URL, which is to be its own: `pick` is `own` unless
    /// something else is written. Default: nothing, they play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<SourceConfig>,
    /// What each client publishes in a room of Janus or LiveKit, such as
    /// `{bitrate: 256kbps, audio: true}`. Default: nothing, they only receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participate: Option<SourceConfig>,
    /// What each client feeds to a mount point of Janus in plain RTP, such as `{bitrate: 2Mbps,
    /// audio: true}`: it makes the mount point of its URL, which is to be its own, and takes it
    /// away at the end. Default: nothing, they play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<SourceConfig>,
    /// How clients in a room receive the others: `together` (default: all over one
    /// PeerConnection), `each` (each over one of its own, of Janus alone) or `nobody`.
    pub subscribe: Subscribe,
    /// Which layer of those who send a simulcast clients in a room receive: `high`, `middle` or
    /// `low`. Default: what the server chooses, mostly the best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    /// Of how many of those who talked last clients in a room of Janus receive the video; they
    /// receive everybody's audio. Who talks is told by the server: a room that the run makes does.
    /// Needs `subscribe: together`. Default: everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_n: Option<u32>,
    /// The room of Janus that is made where it is not there, such as
    /// `{publishers: 100, bitrate: 256kbps}`.
    /// Who leaves nobody behind in it takes it away. Default: none is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomConfig>,
    /// Real browsers that do what the clients do, beside them: `{chromium: 1}`. They play from WHEP
    /// or a mount point, or take part in a room; what they say of themselves stands in the report
    /// as `NAME_golden`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub golden: Option<Golden>,
    /// Whether time codes are looked for in the frames where no population of the scenario
    /// publishes: the server does, or another run on another machine. In a run that publishes they
    /// always are. Needs `receive: decrypted`. Default false.
    pub time_codes: bool,
    /// How TLS is spoken with secure URLs: `{verify: false}`, or `{ca: FILE}`. It is the
    /// signalling's; media is always encrypted.
    pub tls: TlsConfig,
    /// The text of the `User-Agent` header. Default `streamgauge/` and the version.
    pub user_agent: String,
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
            api_key: None,
            api_secret: None,
            pin: None,
            follow: Follow::default(),
            publish: None,
            feed: None,
            participate: None,
            subscribe: Subscribe::default(),
            layer: None,
            last_n: None,
            room: None,
            golden: None,
            time_codes: false,
            tls: TlsConfig::default(),
            user_agent: concat!("streamgauge/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl ClientConfig {
    /// Whether these values make sense together; if not, which key is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, span) in [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("ice_timeout", self.ice_timeout),
            ("dtls_timeout", self.dtls_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
        ] {
            if span.0.is_zero() {
                return Err((key, format!("`{key}` must be longer than nothing")));
            }
        }
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if self.token.as_deref().is_some_and(|token| !plain(token)) {
            let text = "`token` must be a word without blanks";
            return Err(("token", text.to_owned()));
        }
        if !crate::http1::is_value(&self.user_agent) {
            let text = "`user_agent` must be one line";
            return Err(("user_agent", text.to_owned()));
        }
        if self.time_codes && self.receive != Receive::Decrypted {
            let text = "`time_codes` needs `receive: decrypted`: they are in what is encrypted";
            return Err(("time_codes", text.to_owned()));
        }
        if self.rtx == Some(true) && !self.nack {
            let text = "`rtx` needs `nack`: nothing comes again that nobody asks for";
            return Err(("rtx", text.to_owned()));
        }
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
        let made = self.source().is_some_and(|source| source.file.is_none());
        if self.follows() && !made {
            let text = "`congestion: follow` needs generated video, by `publish` or `participate`";
            return Err(("congestion", text.to_owned()));
        }
        if self.follows() && self.source().is_some_and(|source| source.simulcast) {
            let text = "`congestion: follow` is of one layer; take it or `simulcast` out";
            return Err(("congestion", text.to_owned()));
        }
        if self.layer.is_some() && self.subscribe == Subscribe::Nobody {
            let text = "`layer` is of those who receive, and `subscribe` is `nobody`";
            return Err(("layer", text.to_owned()));
        }
        if self.last_n == Some(0) {
            let text = "`last_n` must be at least 1";
            return Err(("last_n", text.to_owned()));
        }
        if self.last_n.is_some() && self.subscribe != Subscribe::Together {
            let text = "`last_n` needs `subscribe: together`";
            return Err(("last_n", text.to_owned()));
        }
        self.check_feed()?;
        if self.publish.is_some() && self.participate.is_some() {
            let text = "`publish` is of WHIP and `participate` of rooms; take one out";
            return Err(("participate", text.to_owned()));
        }
        Ok(())
    }

    fn check_feed(&self) -> Result<(), (&'static str, String)> {
        let Some(source) = &self.feed else {
            return Ok(());
        };
        let with = [
            ("publish", self.publish.is_some()),
            ("participate", self.participate.is_some()),
            ("golden", self.golden.is_some()),
            ("turn", self.turn.is_some()),
            ("congestion", self.follows()),
        ];
        if let Some((key, _)) = with.into_iter().find(|(_, written)| *written) {
            let text = "it does not go with `feed`, which is plain RTP to a mount point; take one \
                        out";
            return Err((key, text.to_owned()));
        }
        if source.simulcast || source.talk.is_some() {
            let text = "`simulcast` and `talk` are not fed to a mount point; take them out";
            return Err(("feed", text.to_owned()));
        }
        Ok(())
    }

    /// Whether these values make sense with a mount point of Janus, or with what is none; if not,
    /// which key does not, and why.
    pub(super) fn check_mountpoint(&self, is_one: bool) -> Result<(), (&'static str, String)> {
        if self.feed.is_some() && !is_one {
            let text = "`feed` is of mount points of Janus (`janus+ws://HOST/streaming/ID`)";
            return Err(("feed", text.to_owned()));
        }
        if self.participate.is_some() && is_one {
            let text = "`participate` is of rooms; a mount point is fed: write `feed`";
            return Err(("participate", text.to_owned()));
        }
        if self.publish.is_some() && is_one {
            let text = "`publish` is of WHIP; a mount point is fed: write `feed`";
            return Err(("publish", text.to_owned()));
        }
        Ok(())
    }

    /// Whether these values make sense in rooms of LiveKit; if not, which key does not, and why.
    pub(super) fn check_for_livekit(&self) -> Result<(), (&'static str, String)> {
        let has_key = self.api_key.is_some() && self.api_secret.is_some();
        if self.token.is_none() && !has_key {
            let text = "LiveKit wants to know who comes: write `api_key` and `api_secret`, by \
                        which each client makes a token, or a `token`";
            return Err(("api_key", text.to_owned()));
        }
        if self.subscribe == Subscribe::Each {
            let text = "LiveKit sends everybody over one PeerConnection: `subscribe` is `together` \
                        or `nobody` there";
            return Err(("subscribe", text.to_owned()));
        }
        for (key, written) in [("room", self.room.is_some()), ("pin", self.pin.is_some())] {
            if written {
                let text = format!("`{key}` is of Janus; LiveKit makes a room when somebody comes");
                return Err((key, text));
            }
        }
        if self.publish.is_some() {
            let text = "`publish` is of WHIP; in rooms it is `participate`";
            return Err(("publish", text.to_owned()));
        }
        Ok(())
    }

    /// What the request says that makes the room, where one is made.
    pub(super) fn room_request(&self) -> Option<Value> {
        let room = self.room.as_ref();
        room.map(RoomConfig::request)
    }

    /// Whether these values make sense with URLs that are no rooms of Janus; with `of_livekit` they
    /// are rooms of LiveKit. If not, which key does not, and why.
    pub(super) fn check_without_room(
        &self,
        of_livekit: bool,
    ) -> Result<(), (&'static str, String)> {
        if self.layer.is_some() && !of_livekit {
            let text = "`layer` is of rooms of Janus or LiveKit; take it out";
            return Err(("layer", text.to_owned()));
        }
        if self.last_n.is_some() {
            let text = "`last_n` is of rooms of Janus; take it out";
            return Err(("last_n", text.to_owned()));
        }
        Ok(())
    }

    /// Which feedback is agreed upon: what is given or heeded here.
    pub(super) fn feedback(&self) -> Feedback {
        Feedback {
            nack: self.nack,
            rtx: self.takes_rtx(),
            pli: self.nack && self.pli,
            fir: self.nack && self.fir,
            transport_cc: self.transport_cc,
            remb: self.remb,
        }
    }

    /// Whether retransmissions may come in a stream of their own.
    fn takes_rtx(&self) -> bool {
        self.rtx.unwrap_or(true) && self.nack
    }

    /// Whether what is sent follows what can be taken.
    pub(super) fn follows(&self) -> bool {
        self.congestion == Control::Follow
    }

    /// The most payload of a packet that is sent, in bytes.
    pub(super) fn packet(&self) -> usize {
        let source = self.publish.as_ref().or(self.participate.as_ref());
        source.map_or_else(|| SourceConfig::default().mtu, |source| source.mtu)
    }

    /// Which feedback is heeded of what is sent. A file has its key frames where it has them.
    pub(super) fn heeded_feedback(&self) -> Feedback {
        let makes_key_frames = self.source().is_none_or(|source| source.file.is_none());
        Feedback {
            pli: makes_key_frames,
            fir: makes_key_frames,
            nack: self.retransmit,
            rtx: self.retransmit,
            transport_cc: self.follows(),
            remb: self.follows(),
        }
    }

    /// What is sent, be it by WHIP or in a room.
    pub(super) fn source(&self) -> Option<&SourceConfig> {
        let own = self.publish.as_ref().or(self.participate.as_ref());
        own.or(self.feed.as_ref())
    }
}

/// The longest payload that fits into a datagram of 1,280 bytes, IPv6 and SRTP included.
const MTU_MAX: usize = 1200;

/// Whether the keys of a source make sense here.
fn check_source(source: &SourceConfig) -> Result<(), String> {
    source.check_with_audio_codec()?;
    usual(source).check_made()
}

/// The source with what is usual here where nothing is written: packets that fit into every path.
pub(super) fn usual(source: &SourceConfig) -> SourceConfig {
    let mut source = source.clone();
    source.mtu = source.mtu.min(MTU_MAX);
    source
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
        let config = read(
            r#"{"receive":"decrypted","room":{"publishers":30},"participate":{"bitrate":"256kbps"},
                "subscribe":"each"}"#,
        )
        .expect("valid");
        assert_eq!(config.room.as_ref().map(|room| room.publishers), Some(30));
        let written = serde_json::to_string(&config).expect("plain data");
        assert_eq!(read(&written), Ok(config));
        for (wrong, key) in [
            (r#"{"silence":"0s"}"#, "silence"),
            (r#"{"token":"two words"}"#, "token"),
            (r#"{"user_agent":"a\nb"}"#, "user_agent"),
            (r#"{"time_codes":true}"#, "time_codes"),
            (r#"{"congestion":"follow"}"#, "congestion"),
            (
                r#"{"congestion":"follow","publish":{"file":"a.mp4"}}"#,
                "congestion",
            ),
            (
                r#"{"congestion":"follow","participate":{"simulcast":true}}"#,
                "congestion",
            ),
            (r#"{"last_n":0}"#, "last_n"),
            (r#"{"layer":"low","subscribe":"nobody"}"#, "layer"),
            (r#"{"participate":{"bitrate":"10kbps"}}"#, "participate"),
            (
                r#"{"participate":{"bitrate":"256kbps","simulcast":true}}"#,
                "participate",
            ),
            (
                r#"{"participate":{"bitrate":"2Mbps","size":"160x90","simulcast":true}}"#,
                "participate",
            ),
            (r#"{"last_n":3,"subscribe":"each"}"#, "last_n"),
            (
                r#"{"participate":{"file":"a.mp4","simulcast":true}}"#,
                "participate",
            ),
            (r#"{"rtx":true,"nack":false}"#, "rtx"),
            (r#"{"publish":{"mtu":10}}"#, "publish"),
            (r#"{"publish":{},"participate":{}}"#, "participate"),
            (r#"{"feed":{},"participate":{}}"#, "participate"),
            (r#"{"feed":{},"golden":{"chromium":1}}"#, "golden"),
            (r#"{"feed":{},"congestion":"follow"}"#, "congestion"),
            (r#"{"feed":{"simulcast":true}}"#, "feed"),
            (r#"{"publish":{"audio_codec":"opus"}}"#, "publish"),
            (
                r#"{"publish":{"video_codec":"vp8","profile":"main"}}"#,
                "publish",
            ),
            (
                r#"{"publish":{"file":"a.webm","video_codec":"vp8"}}"#,
                "publish",
            ),
            (
                r#"{"publish":{"audio":true,"audio_codec":"pcmu","talk":{}}}"#,
                "publish",
            ),
            (
                r#"{"publish":{"audio":true,"audio_codec":"opus","talk":{"speakers":0}}}"#,
                "publish",
            ),
            (
                r#"{"publish":{"audio":true,"audio_codec":"opus","talk":{"turn":"0s"}}}"#,
                "publish",
            ),
            (r#"{"golden":{"chromium":0}}"#, "golden"),
            (
                r#"{"turn":{"url":"stun:h","user":"u","password":"p"}}"#,
                "turn",
            ),
            (
                r#"{"turn":{"url":"turn:h","user":"","password":"p"}}"#,
                "turn",
            ),
        ] {
            assert_eq!(read(wrong), Err(key.to_owned()), "{wrong}");
        }
        assert!(read(r#"{"recieve":"headers"}"#).is_err());
    }

    #[test]
    fn keys_that_a_room_of_livekit_has_no_use_for_are_refused() {
        let wrong = |text: &str| {
            let config: ClientConfig = serde_json::from_str(text).expect(text);
            config.check_for_livekit().err().map(|(key, _)| key)
        };
        for (keys, key) in [
            (r#""token":"a""#, None),
            (
                r#""api_key":"a","api_secret":"b","subscribe":"nobody""#,
                None,
            ),
            (r#""api_secret":"b""#, Some("api_key")),
            (r#""token":"a","subscribe":"each""#, Some("subscribe")),
            (r#""token":"a","room":{}"#, Some("room")),
            (r#""token":"a","pin":"1""#, Some("pin")),
            (r#""token":"a","publish":{}"#, Some("publish")),
            (
                r#""token":"a","participate":{"simulcast":true},"layer":"low""#,
                None,
            ),
        ] {
            assert_eq!(wrong(&format!("{{{keys}}}")), key, "{keys}");
        }
    }

    #[test]
    fn key_frames_are_asked_for_and_made_where_they_can_be() {
        let config = |text: &str| -> ClientConfig {
            serde_json::from_str(text).expect("it is a configuration")
        };
        for (text, asks) in [
            ("{}", (true, true)),
            (r#"{"pli":false}"#, (false, true)),
            (r#"{"fir":false}"#, (true, false)),
            (r#"{"nack":false}"#, (false, false)),
        ] {
            let given = config(text).feedback();
            assert_eq!((given.pli, given.fir), asks, "{text}");
        }
        for (text, makes) in [
            (r#"{"publish":{}}"#, true),
            (r#"{"participate":{},"retransmit":false}"#, true),
            (r#"{"publish":{"file":"a.webm"}}"#, false),
        ] {
            let heeded = config(text).heeded_feedback();
            assert_eq!((heeded.pli, heeded.fir), (makes, makes), "{text}");
        }
    }
}

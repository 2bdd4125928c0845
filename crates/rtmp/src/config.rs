//! Scenario keys of RTMP clients.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::codec::amf0;
use super::codec::handshake::HandshakeVariant;
use super::source::Tracks;
use kit::keys::{KeyError, check_positive};
use kit::media::source::SourceConfig;
use kit::viewer::ServedWell;
use kit::zapping::Zap;
use session::AckDelay;
use session::tls::TlsConfig;

/// Value of a connect parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Parameter {
    /// `true` or `false`.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
}

impl Parameter {
    /// Returns the value in AMF0.
    pub(super) fn to_amf0(&self) -> amf0::Value {
        match self {
            Parameter::Boolean(yes) => amf0::Value::Boolean(*yes),
            Parameter::Number(number) => amf0::Value::Number(*number),
            Parameter::Text(text) => amf0::Value::string(text.clone()),
        }
    }
}

/// Delay of TCP acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledge {
    /// Within 2 to 20 ms.
    Soon,
    /// Immediately.
    AtOnce,
}

impl Acknowledge {
    pub(super) const fn acks(self) -> AckDelay {
        match self {
            Acknowledge::Soon => AckDelay::Soon,
            Acknowledge::AtOnce => AckDelay::AtOnce,
        }
    }
}

/// Keys of an RTMP population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Application name, for streams whose name has several parts: with `app: live`, the stream of
    /// `rtmp://host/live/room/one` is `room/one`. Default: none; the application is the path
    /// without its last part.
    pub app: Option<String>,
    /// Additional parameters of `connect` by name, such as `{token: abc}`. A parameter with a
    /// standard name (`flashVer`, `swfUrl`, `pageUrl`, `tcUrl`) replaces the standard value.
    /// Default: none.
    pub connect: BTreeMap<String, Parameter>,
    /// Time limit for connecting, including name resolution. Default 5s.
    pub connect_timeout: TimeSpan,
    /// Time limit for the handshake and for each command. Default 10s.
    pub request_timeout: TimeSpan,
    /// Time limit for the first frame after the answer to `play`. If it is exceeded, the client
    /// fails with `no_media`. Default 10s.
    pub no_media: TimeSpan,
    /// Time without any frame after which the client fails with `media_stopped`. Default 10s.
    pub silence: TimeSpan,
    /// Playout buffer that determines what counts as a stall. Default 1s.
    pub playout_buffer: TimeSpan,
    /// Bounds within which a viewer counts as served well (`viewers.served_well`):
    /// `{start: 2s, stalled: 0s, loss: 1%}`.
    pub served_well: ServedWell,
    /// Buffer length that the client announces to the server (`SetBufferLength`). Default 3s.
    pub buffer: TimeSpan,
    /// Handshake variant: `plain` (default), as specified, or `digest`, as Flash Player, with
    /// digests if the server uses them too.
    pub handshake: HandshakeVariant,
    /// Delay of TCP acknowledgements: `soon` (within 2 to 20 ms, depending on the kernel), or
    /// `at_once`, like a player that reads immediately. Servers that hold back small segments until
    /// all data is acknowledged (Nagle's algorithm), such as nginx-rtmp, wait for this delay, and
    /// their frames arrive later. `at_once` needs about six times the processor time. Default:
    /// `at_once` in runs whose frames may carry time codes, so that frame delays match those of a
    /// player; otherwise `soon`.
    pub acknowledge: Option<Acknowledge>,
    /// Media that the clients publish, such as `{bitrate: 2Mbps, audio: true}`, or `{}` for all
    /// defaults. Generated audio is AAC silence at 192 kb/s. Each client needs a URL of its own, so
    /// `pick` defaults to `own`. Default: none; the clients play.
    pub publish: Option<SourceConfig>,
    /// Chunk size in bytes of publishing clients, from 128 to 65536. Default 4096.
    pub chunk_size: u32,
    /// Delay after which a publishing client drops frames that the connection has not taken, up to
    /// the next key frame. They count as `not_taken`. Default: never; frames are sent however late.
    pub drop_after: Option<TimeSpan>,
    /// Look for time codes even if no population of this scenario publishes, because another run
    /// publishes, for example on another machine. A run that publishes always looks for them.
    /// Default false.
    pub time_codes: bool,
    /// Channel changes during playback: `{every: 5s}`, or `{every: 2s..10s, count: 20}`. The client
    /// deletes its stream and requests another URL of the population: any other with
    /// `pick: random`, otherwise the next one. Streams of one application use the same connection
    /// if the server supports that. Default: no changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zap: Option<Zap>,
    /// TLS settings for `rtmps` URLs: `{verify: false}` or `{ca: FILE}`.
    pub tls: TlsConfig,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
        ClientConfig {
            app: None,
            connect: BTreeMap::new(),
            connect_timeout: seconds(5),
            request_timeout: seconds(10),
            no_media: seconds(10),
            silence: seconds(10),
            playout_buffer: seconds(1),
            served_well: ServedWell::default(),
            buffer: seconds(3),
            handshake: HandshakeVariant::default(),
            acknowledge: None,
            publish: None,
            chunk_size: 4096,
            drop_after: None,
            time_codes: false,
            zap: None,
            tls: TlsConfig::default(),
        }
    }
}

/// Parameters of `connect` that a scenario cannot set: they state what the client supports and
/// where it connects.
const RESERVED_PARAMETERS: [&str; 2] = ["app", "objectEncoding"];

impl ClientConfig {
    /// Checks that the values are consistent. Otherwise returns the wrong key and the reason.
    pub fn check(&self) -> Result<(), KeyError> {
        check_positive([
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
        ])?;
        if let Some(source) = &self.publish {
            Tracks::check(source).map_err(|text| ("publish", text))?;
        }
        if let Some(zap) = &self.zap {
            zap.check_with(&[("publish", self.publish.is_some())])?;
        }
        if !(128..=65_536).contains(&self.chunk_size) {
            let text = "`chunk_size` must be from 128 to 65536 bytes".to_owned();
            return Err(("chunk_size", text));
        }
        let wrong = |app: &String| app.is_empty() || app.starts_with('/') || app.ends_with('/');
        if self.app.as_ref().is_some_and(wrong) {
            let text = "`app` must be a part of the path without leading or trailing slash, such as `live`";
            return Err(("app", text.to_owned()));
        }
        if let Some(name) = RESERVED_PARAMETERS
            .iter()
            .find(|name| self.connect.contains_key(**name))
        {
            return Err((
                "connect",
                format!("`{name}` is set by the client itself; remove it"),
            ));
        }
        self.tls.check().map_err(|text| ("tls", text))
    }
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
        let config = read(r#"{"app":"live","connect":{"a":1,"b":true,"c":"x"}}"#).expect("valid");
        let values: Vec<amf0::Value> = config.connect.values().map(Parameter::to_amf0).collect();
        let expected = [
            amf0::Value::Number(1.0),
            amf0::Value::Boolean(true),
            amf0::Value::string("x"),
        ];
        assert_eq!(values, expected);
        let written = serde_json::to_string(&config).expect("plain data");
        assert_eq!(read(&written), Ok(config));
        for (wrong, key) in [
            (r#"{"silence":"0s"}"#, "silence"),
            (r#"{"app":"/live"}"#, "app"),
            (r#"{"connect":{"app":"x"}}"#, "connect"),
            (r#"{"publish":{"mtu":500}}"#, "publish"),
            (r#"{"publish":{},"zap":{"every":"1s"}}"#, "zap"),
            (r#"{"zap":{"every":"1ms"}}"#, "zap"),
            (r#"{"chunk_size":1}"#, "chunk_size"),
        ] {
            assert_eq!(read(wrong), Err(key.to_owned()), "{wrong}");
        }
        assert!(read(r#"{"silense":"1s"}"#).is_err());
    }
}

//! The keys that a scenario may set for RTMP clients.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::codec::amf0;
use super::codec::handshake::Style;
use super::source::Tracks;
use crate::media::source::SourceConfig;
use crate::session::Acks;
use crate::tls::TlsConfig;

/// A value of a connect parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Parameter {
    /// `true` or `false`.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl Parameter {
    /// As a command has it.
    pub(super) fn value(&self) -> amf0::Value {
        match self {
            Parameter::Boolean(yes) => amf0::Value::Boolean(*yes),
            Parameter::Number(number) => amf0::Value::Number(*number),
            Parameter::Text(text) => amf0::Value::text(text.clone()),
        }
    }
}

/// Which handshake a client begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HandshakeStyle {
    /// As the specification has it.
    #[default]
    Plain,
    /// With digests.
    Digest,
}

impl HandshakeStyle {
    pub(super) const fn style(self) -> Style {
        match self {
            HandshakeStyle::Plain => Style::Plain,
            HandshakeStyle::Digest => Style::Digest,
        }
    }
}

/// How soon what comes is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledge {
    /// Within 2 to 20 ms.
    Soon,
    /// At once.
    AtOnce,
}

impl Acknowledge {
    pub(super) const fn acks(self) -> Acks {
        match self {
            Acknowledge::Soon => Acks::Soon,
            Acknowledge::AtOnce => Acks::AtOnce,
        }
    }
}

/// Keys of an RTMP population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// The application, where that is not all of the path but its last part: with `app: live`, the
    /// stream of `rtmp://host/live/room/one` is `room/one`. Default: none.
    pub app: Option<String>,
    /// Further parameters of `connect`, by their names, such as `{token: abc}`. One of a usual name
    /// (`flashVer`, `swfUrl`, `pageUrl`, `tcUrl`) replaces the usual value. Default: none.
    pub connect: BTreeMap<String, Parameter>,
    /// How long connecting may take, looking up the name included. Default 5s.
    pub connect_timeout: TimeSpan,
    /// How long the handshake and each command may take. Default 10s.
    pub request_timeout: TimeSpan,
    /// How long after the answer to `play` the first frame may take: then the client has failed
    /// with `no_media`. Default 10s.
    pub no_media: TimeSpan,
    /// How long no frame may come before the client has failed with `media_stopped`. Default 10s.
    pub silence: TimeSpan,
    /// The playout buffer for which stalls are counted. Default 1s.
    pub playout_buffer: TimeSpan,
    /// The buffer that the client states to the server (`SetBufferLength`). Default 3s.
    pub buffer: TimeSpan,
    /// Which handshake is begun: `plain` (default), as the specification has it, or `digest`, as
    /// Flash Player, with digests where the server has them too.
    pub handshake: HandshakeStyle,
    /// How soon what comes is acknowledged: `soon` (within 2 to 20 ms, as the kernel can), or
    /// `at_once`, as a player does that reads at once. Servers that send nothing small before all is
    /// acknowledged (Nagle's algorithm), such as nginx-rtmp, are kept waiting for as long, and frames
    /// come later by as much. `at_once` costs some six times the processor time. Default: `at_once`
    /// in runs where frames may bear time codes, whose delay is then a player's; else `soon`.
    pub acknowledge: Option<Acknowledge>,
    /// What the clients publish, such as `{bitrate: 2Mbps, audio: true}`, or `{}` for all defaults.
    /// Sound that is made is silence in AAC of 192 kb/s. Each publishes to its URL, which is to be
    /// its own: `pick` is `own` unless something else is written. Default: nothing, they play.
    pub publish: Option<SourceConfig>,
    /// The size in bytes of the chunks in which clients publish, at most 65536. Default 4096.
    pub chunk_size: u32,
    /// After how long frames are left out that the connection has not taken, up to the next with
    /// which a decoder can begin, of clients that publish: they are counted as `not_taken`. Default:
    /// never, they are sent however late.
    pub drop_after: Option<TimeSpan>,
    /// Whether time codes are looked for in the frames where no population of the scenario
    /// publishes: another run, on another machine, does. In a run that publishes they always are.
    /// Default false.
    pub time_codes: bool,
    /// How TLS is spoken with URLs of `rtmps`: `{verify: false}`, or `{ca: FILE}`.
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
            buffer: seconds(3),
            handshake: HandshakeStyle::default(),
            acknowledge: None,
            publish: None,
            chunk_size: 4096,
            drop_after: None,
            time_codes: false,
            tls: TlsConfig::default(),
        }
    }
}

/// Parameters of `connect` that are the client's own, because they say what it can do or where it
/// goes.
const OWN: [&str; 2] = ["app", "objectEncoding"];

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
        if let Some(source) = &self.publish {
            Tracks::check(source).map_err(|text| ("publish", text))?;
        }
        if !(128..=65_536).contains(&self.chunk_size) {
            let text = "`chunk_size` is from 128 to 65536 bytes".to_owned();
            return Err(("chunk_size", text));
        }
        let wrong = |app: &String| app.is_empty() || app.starts_with('/') || app.ends_with('/');
        if self.app.as_ref().is_some_and(wrong) {
            let text = "`app` is a part of the path, without a slash at its ends: write `live`";
            return Err(("app", text.to_owned()));
        }
        if let Some(name) = OWN.iter().find(|name| self.connect.contains_key(**name)) {
            return Err((
                "connect",
                format!("`{name}` is the client's own; take it out"),
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
    fn keys_are_read_and_senseless_ones_refused() {
        assert_eq!(read("{}"), Ok(ClientConfig::default()));
        let config = read(r#"{"app":"live","connect":{"a":1,"b":true,"c":"x"}}"#).expect("valid");
        let values: Vec<amf0::Value> = config.connect.values().map(Parameter::value).collect();
        let expected = [
            amf0::Value::Number(1.0),
            amf0::Value::Boolean(true),
            amf0::Value::text("x"),
        ];
        assert_eq!(values, expected);
        let written = serde_json::to_string(&config).expect("plain data");
        assert_eq!(read(&written), Ok(config));
        for (wrong, key) in [
            (r#"{"silence":"0s"}"#, "silence"),
            (r#"{"app":"/live"}"#, "app"),
            (r#"{"connect":{"app":"x"}}"#, "connect"),
            (r#"{"publish":{"mtu":500}}"#, "publish"),
            (r#"{"chunk_size":1}"#, "chunk_size"),
        ] {
            assert_eq!(read(wrong), Err(key.to_owned()), "{wrong}");
        }
        assert!(read(r#"{"silense":"1s"}"#).is_err());
    }
}

//! The keys that a scenario may set for SRT clients.

use std::sync::Arc;
use std::time::Duration;

use measure::units::{BitRate, Size, TimeSpan};
use mediagen::ts::looped_stream::{LoopedStream, RATE_MIN};
use mediagen::ts::synthetic::Programme;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arq::message_flow::MadeMessages;
use super::arq::sender::PACKETS_MAX;
use super::codec::packet::PAYLOAD_MAX;
use super::codec::stream_id::StreamId;
use super::crypto::{self, Passphrase};
use super::made::Made;
use crate::media::rtp::Pacing;
use crate::media::source::SourceConfig;

/// The longest latency: a handshake has 16 bits for it.
pub(super) const LATENCY_MAX_MS: u64 = 65_535;

/// The longest message, in bytes. Two of them fit into a send buffer, also where they are encrypted.
const MESSAGE_SIZE_MAX: u64 = 5_000_000;
const _: () = assert!(2 * MESSAGE_SIZE_MAX < PACKETS_MAX as u64 * (PAYLOAD_MAX as u64 - 16));

/// The lowest bit rate of messages.
const MESSAGES_RATE_MIN: u64 = 1000;

/// How a connection comes about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The client calls a listener.
    #[default]
    Caller,
    /// Client and peer call each other, each from the port that the other one calls.
    Rendezvous,
}

/// How long keys are, in bytes: 16 (AES-128), 24 or 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub enum KeyLength {
    /// AES-128.
    #[default]
    Bytes16,
    /// AES-192.
    Bytes24,
    /// AES-256.
    Bytes32,
}

impl TryFrom<u16> for KeyLength {
    type Error = String;

    fn try_from(bytes: u16) -> Result<KeyLength, String> {
        let known = KeyLength::read(&bytes.to_string());
        known.ok_or_else(|| format!("keys have 16, 24 or 32 bytes, and not {bytes}"))
    }
}

impl From<KeyLength> for u16 {
    fn from(length: KeyLength) -> u16 {
        match length {
            KeyLength::Bytes16 => 16,
            KeyLength::Bytes24 => 24,
            KeyLength::Bytes32 => 32,
        }
    }
}

impl KeyLength {
    /// As a URL says it.
    pub(super) fn read(text: &str) -> Option<KeyLength> {
        match text {
            "16" => Some(KeyLength::Bytes16),
            "24" => Some(KeyLength::Bytes24),
            "32" => Some(KeyLength::Bytes32),
            _ => None,
        }
    }

    /// As the handshake has it.
    pub(super) fn agreed(self) -> crypto::KeyLength {
        match self {
            KeyLength::Bytes16 => crypto::KeyLength::Aes128,
            KeyLength::Bytes24 => crypto::KeyLength::Aes192,
            KeyLength::Bytes32 => crypto::KeyLength::Aes256,
        }
    }
}

/// Which cipher encrypts (`SRTO_CRYPTOMODE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cipher {
    /// What the peer takes; where the client decides, AES-CTR.
    #[default]
    Auto,
    /// AES-CTR, which any peer knows.
    Ctr,
    /// AES-GCM, which also tells what was damaged or forged: libsrt from 1.5.2 on, where it was
    /// built for it.
    Gcm,
}

impl Cipher {
    /// As a URL says it.
    pub(super) fn read(text: &str) -> Option<Cipher> {
        match text {
            "0" => Some(Cipher::Auto),
            "1" => Some(Cipher::Ctr),
            "2" => Some(Cipher::Gcm),
            _ => None,
        }
    }

    /// As the handshake has it.
    pub(super) fn mode(self) -> crypto::CipherMode {
        match self {
            Cipher::Auto => crypto::CipherMode::Auto,
            Cipher::Ctr => crypto::CipherMode::Ctr,
            Cipher::Gcm => crypto::CipherMode::Gcm,
        }
    }
}

/// Keys of an SRT population. What the query of a URL says goes before them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// How the connection comes about: `caller` (default), the client calls a listener, or
    /// `rendezvous`, both call each other. The client's port is then the same as the URL's, or what
    /// the URL says by `port`; each client needs a URL of its own.
    pub mode: Mode,
    /// The latency that the client wants: what is lost is asked for as long, and given up then. The
    /// longer of both sides' counts. Of a client that publishes it is what is asked of the server.
    /// At most 65535ms. Default 120ms.
    pub latency: TimeSpan,
    /// The passphrase of encrypted streams, of 10 to 79 bytes. A secret: it is masked in all that a
    /// run leaves. Default: none, nothing is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
    /// How long keys are, in bytes: 16 (default), 24 or 32.
    #[schemars(with = "u16")]
    pub key_length: KeyLength,
    /// Which cipher encrypts: `auto` (default: AES-CTR, or in a rendezvous what the peer decides),
    /// `ctr` or `gcm` (AES-GCM). A peer that takes another one fails with `cipher_mismatch`.
    pub cipher: Cipher,
    /// The stream id that is said to the server, of at most 512 bytes, where the URL has none, such
    /// as `#!::r=live/one,m=request`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<String>,
    /// How long the handshake may take, looking up the name included: then the client has failed
    /// with `handshake_timeout`. Default 3s.
    pub connect_timeout: TimeSpan,
    /// How long after the handshake the first media may take: then the client has failed with
    /// `no_media`. Default 10s.
    pub no_media: TimeSpan,
    /// How long no media may come before the client has failed with `media_stopped`. Default 10s.
    pub silence: TimeSpan,
    /// How long the server may say nothing at all, no keepalive either, before the client has
    /// failed with `peer_idle`. Default 5s.
    pub peer_idle: TimeSpan,
    /// Whether messages are carried (`SRTT_FILE` with `SRTO_MESSAGEAPI`) and not live media: of one
    /// packet or of many, in order or not. Clients count them, and look at nothing that is in them.
    /// With `publish` they send them, evenly, at its `bitrate`. Default: false.
    pub messages: bool,
    /// How long each message is, of clients that publish messages: from 1B to 5MB. It goes in
    /// packets of up to 1456 bytes. Default 10kB.
    pub message_size: Size,
    /// Whether messages that clients publish are to be handed on in order, each once all before it
    /// have come or were dropped (SRT, 3.1: the order flag). Default: true.
    pub messages_in_order: bool,
    /// After how long a message is dropped that the server has not acknowledged, from when it was
    /// due, of clients that publish messages (`msgttl` of `srt_sendmsg2`; SRT, 3.2.9). Default:
    /// never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ttl: Option<TimeSpan>,
    /// What the clients publish, such as `{bitrate: 2Mbps}`, `{file: clip.ts}`, or `{}` for all
    /// defaults: a transport stream at a constant bit rate, 1316 bytes in a packet. `bitrate` is
    /// that of the stream; what is made has a time code in each packet, and with `audio: true`
    /// silence in AAC of 192 kb/s. With `messages: true` only `bitrate` goes, which is that of the
    /// messages. Default: nothing, they play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<SourceConfig>,
    /// The most that a client sends, retransmissions included, of clients that publish. Default: by
    /// `overhead`; of messages: none, they leave as soon as the server has room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<BitRate>,
    /// How much more than the media a client may send for the sake of retransmissions, in percent:
    /// 5 to 100. Messages have no such bound. Default 25.
    pub overhead: u32,
}

/// Advice for a key that populations once had.
pub(super) fn former_key(key: &str) -> Option<&'static str> {
    (key == "at_shutdown").then_some("if the server's streams end, write `leave: at_end`")
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
        ClientConfig {
            mode: Mode::default(),
            latency: TimeSpan(Duration::from_millis(120)),
            passphrase: None,
            key_length: KeyLength::default(),
            cipher: Cipher::default(),
            stream_id: None,
            connect_timeout: seconds(3),
            no_media: seconds(10),
            silence: seconds(10),
            peer_idle: seconds(5),
            messages: false,
            message_size: Size(10_000),
            messages_in_order: true,
            message_ttl: None,
            publish: None,
            max_bandwidth: None,
            overhead: 25,
        }
    }
}

/// Whether it is a share that `overhead` may be, in percent.
pub(super) fn is_overhead(percent: &u32) -> bool {
    (5..=100).contains(percent)
}

impl ClientConfig {
    /// Whether these values make sense together; if not, which key is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, span) in [
            ("connect_timeout", self.connect_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
            ("peer_idle", self.peer_idle),
        ] {
            if span.0.is_zero() {
                return Err((key, format!("`{key}` must be longer than nothing")));
            }
        }
        if self.latency.0 > Duration::from_millis(LATENCY_MAX_MS) {
            let text = format!("`latency` is at most {LATENCY_MAX_MS}ms");
            return Err(("latency", text));
        }
        if let Some(Err(error)) = self.passphrase.as_ref().map(Passphrase::new) {
            return Err(("passphrase", error.to_string()));
        }
        if let Some(Err(error)) = self.stream_id.as_ref().map(StreamId::new) {
            return Err(("stream_id", error.to_string()));
        }
        if !is_overhead(&self.overhead) {
            return Err(("overhead", "`overhead` is from 5 to 100 percent".to_owned()));
        }
        self.check_messages()?;
        match &self.publish {
            Some(source) if self.messages => {
                check_messages_source(source).map_err(|text| ("publish", text))
            }
            Some(source) => check_source(source).map_err(|text| ("publish", text)),
            None if self.max_bandwidth.is_some() => {
                let text = "`max_bandwidth` is of clients that `publish`; take it out";
                Err(("max_bandwidth", text.to_owned()))
            }
            None => Ok(()),
        }
    }

    fn check_messages(&self) -> Result<(), (&'static str, String)> {
        let usual = ClientConfig::default();
        let sends = self.messages && self.publish.is_some();
        for (key, written) in [
            ("message_size", self.message_size != usual.message_size),
            (
                "messages_in_order",
                self.messages_in_order != usual.messages_in_order,
            ),
            ("message_ttl", self.message_ttl.is_some()),
        ] {
            if written && !sends {
                return Err((
                    key,
                    format!(
                        "`{key}` is of clients that publish messages: write `messages: true` and \
                         `publish: {{ bitrate: 1Mbps }}`, or take it out"
                    ),
                ));
            }
        }
        check_message_size(self.message_size)
            .map_err(|text| ("message_size", format!("`message_size` {text}")))?;
        if self.message_ttl.is_some_and(|ttl| ttl.0.is_zero()) {
            let text = "`message_ttl` must be longer than nothing";
            return Err(("message_ttl", text.to_owned()));
        }
        Ok(())
    }

    /// What the clients publish; none where they play. Takes up to some seconds. `file` is what
    /// their file holds, where there is one.
    ///
    /// # Errors
    /// No stream can be made by the settings, or out of the file; the text says why.
    pub(super) fn made(&self, file: Option<&[u8]>) -> Result<Option<Made>, String> {
        let Some(source) = &self.publish else {
            return Ok(None);
        };
        if !self.messages {
            return stream(source, file).map(|looped| Some(Made::Stream(Arc::new(looped))));
        }
        Ok(Some(Made::Messages(MadeMessages {
            size: usize::try_from(self.message_size.0).unwrap_or(usize::MAX),
            bits_per_second: source.made_bitrate(),
            in_order: self.messages_in_order,
            ttl: self.message_ttl.map(|ttl| ttl.0),
        })))
    }
}

/// Whether messages may be that long.
///
/// # Errors
/// What it is instead.
pub(super) fn check_message_size(size: Size) -> Result<(), String> {
    match size.0 {
        1..=MESSAGE_SIZE_MAX => Ok(()),
        _ => Err(format!("is from 1B to {}", Size(MESSAGE_SIZE_MAX))),
    }
}

/// Whether the keys of a source make sense for messages.
///
/// # Errors
/// What is wrong.
pub(super) fn check_messages_source(source: &SourceConfig) -> Result<(), String> {
    let rest = SourceConfig {
        bitrate: None,
        ..source.clone()
    };
    if rest != SourceConfig::default() {
        let text = "with `messages: true` only `bitrate` is used of `publish`; take the rest out";
        return Err(text.to_owned());
    }
    match source.bitrate {
        Some(BitRate(rate)) if rate < MESSAGES_RATE_MIN => {
            let least = MESSAGES_RATE_MIN / 1000;
            Err(format!("`bitrate` of messages is at least {least} kb/s"))
        }
        _ => Ok(()),
    }
}

/// Whether the keys of a source make sense for a transport stream.
///
/// # Errors
/// What is wrong.
pub(super) fn check_source(source: &SourceConfig) -> Result<(), String> {
    source.check()?;
    let usual = SourceConfig::default();
    for (key, written) in [
        ("mtu", source.mtu != usual.mtu),
        ("pacing", source.pacing != Pacing::AtOnce),
    ] {
        if written {
            return Err(format!(
                "`{key}` does not go with SRT, which sends a transport stream; take it out"
            ));
        }
    }
    if source.file.is_some() && source.audio.is_some() {
        let text = "a transport stream is published as it is; take `audio` out";
        return Err(text.to_owned());
    }
    match source.bitrate {
        Some(BitRate(rate)) if rate < RATE_MIN => {
            Err(format!("`bitrate` is at least {} kb/s", RATE_MIN / 1000))
        }
        _ => Ok(()),
    }
}

/// Makes the stream of a source. Takes up to some seconds. `file` is what the file holds, where
/// there is one.
///
/// # Errors
/// No stream can be made by the settings, or out of the file; the text says why.
pub(super) fn stream(source: &SourceConfig, file: Option<&[u8]>) -> Result<LoopedStream, String> {
    match file {
        Some(bytes) => {
            let rate = source.bitrate.map(|BitRate(rate)| rate);
            LoopedStream::of_file(bytes, rate).map_err(|error| error.to_string())
        }
        None => {
            let made = LoopedStream::programme(&Programme {
                rate: source.made_bitrate(),
                frame_rate: source.made_frame_rate(),
                gop: source.made_gop(),
                form: source.made_form(),
                audio: source.audio.unwrap_or(false),
            });
            made.map_err(|error| error.to_string())
        }
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
        let config = read(
            r#"{"latency":"200ms","passphrase":"0123456789","key_length":32,"cipher":"gcm",
                "publish":{"bitrate":"2Mbps"}}"#,
        )
        .expect("valid");
        assert_eq!(config.key_length.agreed(), crypto::KeyLength::Aes256);
        let written = serde_json::to_string(&config).expect("plain data");
        assert_eq!(read(&written), Ok(config));
        for (wrong, key) in [
            (r#"{"silence":"0s"}"#, "silence"),
            (r#"{"latency":"66s"}"#, "latency"),
            (r#"{"passphrase":"short"}"#, "passphrase"),
            (r#"{"stream_id":""}"#, "stream_id"),
            (r#"{"overhead":4}"#, "overhead"),
            (r#"{"max_bandwidth":"2Mbps"}"#, "max_bandwidth"),
            (r#"{"publish":{"gop":5},"messages":true}"#, "publish"),
            (
                r#"{"publish":{"bitrate":"999bps"},"messages":true}"#,
                "publish",
            ),
            (r#"{"publish":{},"message_size":"1kB"}"#, "message_size"),
            (
                r#"{"messages":true,"messages_in_order":false}"#,
                "messages_in_order",
            ),
            (r#"{"message_ttl":"1s"}"#, "message_ttl"),
            (
                r#"{"publish":{},"messages":true,"message_size":"0B"}"#,
                "message_size",
            ),
            (
                r#"{"publish":{},"messages":true,"message_size":"6MB"}"#,
                "message_size",
            ),
            (
                r#"{"publish":{},"messages":true,"message_ttl":"0s"}"#,
                "message_ttl",
            ),
            (r#"{"publish":{"mtu":500}}"#, "publish"),
            (r#"{"publish":{"file":"a.ts","audio":false}}"#, "publish"),
            (r#"{"publish":{"bitrate":"100kbps"}}"#, "publish"),
        ] {
            assert_eq!(read(wrong), Err(key.to_owned()), "{wrong}");
        }
        assert!(read(r#"{"latensy":"1s"}"#).is_err());
    }
}

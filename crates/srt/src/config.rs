//! Scenario keys of SRT clients.

use std::sync::Arc;
use std::time::Duration;

use kit::mediagen::ts::looped_stream::{LoopedStream, RATE_MIN};
use kit::mediagen::ts::synthetic::Programme;
use measure::units::{BitRate, Size, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arq::message_source::MessageSource;
use super::arq::sender::PACKETS_MAX;
use super::codec::packet::PAYLOAD_MAX;
use super::codec::stream_id::StreamId;
use super::crypto::{CipherMode, KeyLength, Passphrase};
use super::source_media::SourceMedia;
use kit::keys::{KeyError, check_positive};
use kit::media::rtp::Pacing;
use kit::media::source::SourceConfig;
use kit::viewer::ServedWell;
use kit::zapping::Zap;

/// Maximum latency in milliseconds: a handshake has 16 bits for it.
pub(super) const LATENCY_MAX_MS: u64 = 65_535;

/// Maximum message size in bytes. Two such messages fit into a send buffer, even if encrypted.
const MESSAGE_SIZE_MAX: u64 = 5_000_000;
const _: () = assert!(2 * MESSAGE_SIZE_MAX < PACKETS_MAX as u64 * (PAYLOAD_MAX as u64 - 16));

/// Minimum bit rate of messages, in bit/s.
const MESSAGES_RATE_MIN: u64 = 1000;

/// Way in which a connection is established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The client calls a listener.
    #[default]
    Caller,
    /// Client and peer call each other, each from the port that the other one calls.
    Rendezvous,
}

/// Keys of an SRT population. The query of a URL takes precedence over them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Way in which the connection is established: `caller` (default), the client calls a listener,
    /// or `rendezvous`, both call each other. In a rendezvous the client's port is the port of the
    /// URL, or the one that the URL sets with `port`; each client needs a URL of its own.
    pub mode: Mode,
    /// Latency that the client requests: lost packets are retransmitted within it, and then given
    /// up. The longer latency of both sides counts. A client that publishes requests it of the
    /// server. At most 65535ms. Default 120ms.
    pub latency: TimeSpan,
    /// Passphrase of encrypted streams, of 10 to 79 bytes. A secret: it is masked in everything
    /// that a run writes. Default: none, no encryption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
    /// Length of keys in bytes: 16 (default), 24 or 32.
    #[schemars(with = "u16")]
    pub key_length: KeyLength,
    /// Cipher that encrypts: `auto` (default: AES-CTR, or in a rendezvous the peer's choice), `ctr`
    /// or `gcm` (AES-GCM). The client fails with `cipher_mismatch` if the peer uses another cipher.
    pub cipher: CipherMode,
    /// Stream id sent to the server if the URL has none, of at most 512 bytes, such as
    /// `#!::r=live/one,m=request`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<String>,
    /// Maximum duration of the handshake, including the lookup of the host name. The client then
    /// fails with `handshake_timeout`. Default 3s.
    pub connect_timeout: TimeSpan,
    /// Maximum time from the handshake to the first media. The client then fails with `no_media`.
    /// Default 10s.
    pub no_media: TimeSpan,
    /// Maximum time without media. The client then fails with `media_stopped`. Default 10s.
    pub silence: TimeSpan,
    /// Playout buffer assumed when counting stalls. Default 1s.
    pub playout_buffer: TimeSpan,
    /// Bounds within which a viewer counts as served well (`viewers.served_well`):
    /// `{start: 2s, stalled: 0s, loss: 1%}`.
    pub served_well: ServedWell,
    /// Maximum time without any packet from the server, including keep-alives. The client then
    /// fails with `peer_idle`. Default 5s.
    pub peer_idle: TimeSpan,
    /// True if clients carry messages (`SRTT_FILE` with `SRTO_MESSAGEAPI`) instead of live media:
    /// of one packet or of several, in order or not. Clients count messages, and do not check their
    /// content. With `publish` they send messages, evenly spaced, at its `bitrate`. Default: false.
    pub messages: bool,
    /// Size of each message of clients that publish messages: from 1B to 5MB. A message is sent in
    /// packets of up to 1456 bytes. Default 10kB.
    pub message_size: Size,
    /// True if published messages must be delivered in order, each after all before it have arrived
    /// or were dropped (SRT, 3.1: the order flag). Default: true.
    pub messages_in_order: bool,
    /// Time from when a published message was due until it is dropped if the server has not
    /// acknowledged it (`msgttl` of `srt_sendmsg2`; SRT, 3.2.9). Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ttl: Option<TimeSpan>,
    /// Media that the clients publish, such as `{bitrate: 2Mbps}`, `{file: clip.ts}`, or `{}` for
    /// all defaults: a transport stream at a constant bit rate, 1316 bytes in a packet. `bitrate`
    /// is that of the stream. Generated media has a time code in each packet, and with `audio:
    /// true` silent AAC audio of 192 kb/s. With `messages: true` only `bitrate` is used, as the bit
    /// rate of the messages. Default: nothing, the clients play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<SourceConfig>,
    /// Maximum bandwidth of a client that publishes, including retransmissions. Default: set by
    /// `overhead`; for messages unlimited, they leave as soon as the server has space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<BitRate>,
    /// Additional bandwidth for retransmissions, in percent of the media: 5 to 100. Does not limit
    /// messages. Default 25.
    pub overhead: u32,
    /// Channel changes during playback: `{every: 5s}`, or `{every: 2s..10s, count: 20}`. The client
    /// shuts the connection down and calls another URL of the population, such as another stream
    /// id: any other with `pick: random`, otherwise the next one. Default: no changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zap: Option<Zap>,
}

/// Advice for a key that no longer exists.
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
            cipher: CipherMode::default(),
            stream_id: None,
            connect_timeout: seconds(3),
            no_media: seconds(10),
            silence: seconds(10),
            playout_buffer: seconds(1),
            served_well: ServedWell::default(),
            peer_idle: seconds(5),
            messages: false,
            message_size: Size(10_000),
            messages_in_order: true,
            message_ttl: None,
            publish: None,
            max_bandwidth: None,
            overhead: 25,
            zap: None,
        }
    }
}

/// True if `overhead` may have that value, in percent.
pub(super) fn is_overhead(percent: &u32) -> bool {
    (5..=100).contains(percent)
}

impl ClientConfig {
    /// Returns `true` if clients receive media at a port that is known in advance: false for
    /// publishers, which receive control packets only, and in a rendezvous, where the peer knows
    /// it.
    pub(crate) fn receives_from_known_port(&self) -> bool {
        self.publish.is_none() && self.mode == Mode::Caller
    }

    /// Checks the values. Returns the invalid key, and the reason.
    pub fn check(&self) -> Result<(), KeyError> {
        check_positive([
            ("connect_timeout", self.connect_timeout),
            ("no_media", self.no_media),
            ("silence", self.silence),
            ("peer_idle", self.peer_idle),
        ])?;
        if self.latency.0 > Duration::from_millis(LATENCY_MAX_MS) {
            let text = format!("`latency` must be at most {LATENCY_MAX_MS}ms");
            return Err(("latency", text));
        }
        if let Some(Err(error)) = self.passphrase.as_ref().map(Passphrase::new) {
            return Err(("passphrase", error.to_string()));
        }
        if let Some(Err(error)) = self.stream_id.as_ref().map(StreamId::new) {
            return Err(("stream_id", error.to_string()));
        }
        if !is_overhead(&self.overhead) {
            return Err(("overhead", "`overhead` must be 5 to 100 percent".to_owned()));
        }
        self.check_messages()?;
        if let Some(zap) = &self.zap {
            zap.check_with(&[
                ("publish", self.publish.is_some()),
                ("messages", self.messages),
                ("mode", self.mode == Mode::Rendezvous),
            ])?;
        }
        match &self.publish {
            Some(source) if self.messages => {
                check_messages_source(source).map_err(|text| ("publish", text))
            }
            Some(source) => check_source(source).map_err(|text| ("publish", text)),
            None if self.max_bandwidth.is_some() => {
                let text = "`max_bandwidth` is only for clients that `publish`; remove it";
                Err(("max_bandwidth", text.to_owned()))
            }
            None => Ok(()),
        }
    }

    fn check_messages(&self) -> Result<(), KeyError> {
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
                        "`{key}` is only for clients that publish messages: write `messages: true` \
                         and `publish: {{ bitrate: 1Mbps }}`, or remove it"
                    ),
                ));
            }
        }
        check_message_size(self.message_size)
            .map_err(|text| ("message_size", format!("`message_size` {text}")))?;
        if self.message_ttl.is_some_and(|ttl| ttl.0.is_zero()) {
            let text = "`message_ttl` must be longer than 0s";
            return Err(("message_ttl", text.to_owned()));
        }
        Ok(())
    }

    /// Media that the clients publish, or `None` if they play. Takes up to some seconds. `file` is
    /// the content of their file, if any.
    ///
    /// # Errors
    /// Reason why no stream can be made from the settings or the file.
    pub(super) fn source_media(&self, file: Option<&[u8]>) -> Result<Option<SourceMedia>, String> {
        let Some(source) = &self.publish else {
            return Ok(None);
        };
        if !self.messages {
            return stream(source, file).map(|looped| Some(SourceMedia::Stream(Arc::new(looped))));
        }
        Ok(Some(SourceMedia::Messages(MessageSource {
            size: usize::try_from(self.message_size.0).unwrap_or(usize::MAX),
            bits_per_second: source.generated_bitrate(),
            in_order: self.messages_in_order,
            ttl: self.message_ttl.map(|ttl| ttl.0),
        })))
    }
}

/// Checks the size of messages.
///
/// # Errors
/// The valid range.
pub(super) fn check_message_size(size: Size) -> Result<(), String> {
    match size.0 {
        1..=MESSAGE_SIZE_MAX => Ok(()),
        _ => Err(format!("must be from 1B to {}", Size(MESSAGE_SIZE_MAX))),
    }
}

/// Checks the keys of a source for messages.
///
/// # Errors
/// Reason why a key is invalid.
pub(super) fn check_messages_source(source: &SourceConfig) -> Result<(), String> {
    let rest = SourceConfig {
        bitrate: None,
        ..source.clone()
    };
    if rest != SourceConfig::default() {
        let text = "with `messages: true`, `publish` takes only `bitrate`; remove the other keys";
        return Err(text.to_owned());
    }
    match source.bitrate {
        Some(BitRate(rate)) if rate < MESSAGES_RATE_MIN => {
            let least = MESSAGES_RATE_MIN / 1000;
            Err(format!(
                "`bitrate` of messages must be at least {least} kbit/s"
            ))
        }
        _ => Ok(()),
    }
}

/// Checks the keys of a source for a transport stream.
///
/// # Errors
/// Reason why a key is invalid.
pub(super) fn check_source(source: &SourceConfig) -> Result<(), String> {
    source.check()?;
    let usual = SourceConfig::default();
    for (key, written) in [
        ("mtu", source.mtu != usual.mtu),
        ("pacing", source.pacing != Pacing::AtOnce),
    ] {
        if written {
            return Err(format!(
                "`{key}` is not supported by SRT, which sends a transport stream; remove it"
            ));
        }
    }
    if source.file.is_some() && source.audio.is_some() {
        let text = "a transport stream file is published unchanged; remove `audio`";
        return Err(text.to_owned());
    }
    match source.bitrate {
        Some(BitRate(rate)) if rate < RATE_MIN => Err(format!(
            "`bitrate` must be at least {} kbit/s",
            RATE_MIN / 1000
        )),
        _ => Ok(()),
    }
}

/// Makes the stream of a source. Takes up to some seconds. `file` is the content of the file, if
/// any.
///
/// # Errors
/// Reason why no stream can be made from the settings or the file.
pub(super) fn stream(source: &SourceConfig, file: Option<&[u8]>) -> Result<LoopedStream, String> {
    match file {
        Some(bytes) => {
            let rate = source.bitrate.map(|BitRate(rate)| rate);
            LoopedStream::of_file(bytes, rate).map_err(|error| error.to_string())
        }
        None => {
            let made = LoopedStream::programme(&Programme {
                rate: source.generated_bitrate(),
                frame_rate: source.generated_frame_rate(),
                gop: source.generated_gop(),
                form: source.generated_form(),
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
    fn keys_are_parsed_and_invalid_values_refused() {
        assert_eq!(read("{}"), Ok(ClientConfig::default()));
        let config = read(
            r#"{"latency":"200ms","passphrase":"0123456789","key_length":32,"cipher":"gcm",
                "publish":{"bitrate":"2Mbps"}}"#,
        )
        .expect("valid");
        assert_eq!(config.key_length, KeyLength::Aes256);
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

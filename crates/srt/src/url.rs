//! SRT URLs: `srt://host:port?streamid=live&latency=200`. The query is read as in libsrt's
//! programs.

use std::fmt;
use std::time::Duration;

use measure::nearest::suggest;

use super::codec::stream_id::{AccessControl, StreamId};
use super::config::{self, Mode};
use super::crypto::{CipherMode, KeyLength, Passphrase};
use kit::url::{UrlError, UrlParts, UrlProblem, percent_decode, scheme};

/// Default port of the reference server. SRT defines none, so URLs must name a port.
pub(super) const DEFAULT_PORT: u16 = 9000;

/// Keys of a query.
const KEYS: [&str; 16] = [
    "mode",
    "port",
    "transtype",
    "messageapi",
    "streamid",
    "latency",
    "rcvlatency",
    "peerlatency",
    "passphrase",
    "pbkeylen",
    "cryptomode",
    "conntimeo",
    "peeridletimeo",
    "maxbw",
    "oheadbw",
    "pkt_size",
];

/// Address of a stream, and the connection settings of the URL. Settings that the URL omits come
/// from the keys of the population.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    /// Host name or address.
    pub(super) host: String,
    pub(super) port: u16,
    display: String,
    /// `streamid`.
    pub stream_id: Option<StreamId>,
    /// `mode`.
    pub mode: Option<Mode>,
    /// `transtype=file` with `messageapi=1`: messages are carried.
    pub messages: bool,
    /// `port`: the local port.
    pub local_port: Option<u16>,
    /// `latency` or `rcvlatency`: latency of the client's receiver.
    pub latency: Option<Duration>,
    /// `peerlatency` or `latency`: minimum latency requested of the peer's receiver.
    pub peer_latency: Option<Duration>,
    /// `passphrase`.
    pub passphrase: Option<Passphrase>,
    /// `pbkeylen`.
    pub key_length: Option<KeyLength>,
    /// `cryptomode`.
    pub cipher: Option<CipherMode>,
    /// `conntimeo`.
    pub connect_timeout: Option<Duration>,
    /// `peeridletimeo`.
    pub peer_idle: Option<Duration>,
    /// `maxbw`, in bit/s.
    pub max_bandwidth: Option<u64>,
    /// `oheadbw`, in percent.
    pub overhead: Option<u32>,
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<Url, UrlError> {
        if scheme(url)? != "srt" {
            return Err(UrlProblem::Scheme {
                kind: "SRT URL",
                schemes: "srt://",
            }
            .error_for(url));
        }
        let parts = UrlParts::parse(url)?;
        // The query may contain the passphrase.
        let (shown, query) = url.split_once('?').unwrap_or((url, ""));
        let other = |text: String| UrlProblem::Other(text).error_for(shown);
        if parts.user_info.is_some() {
            return Err(other(
                "SRT URLs have no user name and password; write them into the stream id, as \
                 in srt://host:port?streamid=#!::r=NAME,u=USER"
                    .to_owned(),
            ));
        }
        let path = parts.target.split(['?', '#']).next().unwrap_or_default();
        if !matches!(path, "" | "/") {
            return Err(other(format!(
                "SRT URLs have no path: write `{path}` into the stream id, as in \
                 srt://{}?streamid={}",
                parts.authority,
                path.trim_start_matches('/'),
            )));
        }
        let port = parts.port.ok_or_else(|| {
            let host = &parts.authority;
            other(format!(
                "the port is missing, and SRT has no default port: write srt://{host}:PORT"
            ))
        })?;
        let mut read = Url {
            port,
            display: format!("srt://{}", parts.authority),
            host: parts.host,
            ..Url::default()
        };
        // A stream id may start with `#`, so the URL has no fragment.
        for field in fields_of(query) {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            read.field(key, &percent_decode(value)).map_err(other)?;
        }
        let is_file = fields_of(query).any(|field| field == "transtype=file");
        if is_file && !read.messages {
            return Err(other(
                "byte streams are not supported; use `transtype=file&messageapi=1` for messages"
                    .to_owned(),
            ));
        }
        read.messages &= is_file;
        if let Some(id) = &read.stream_id {
            read.display = format!("{}?streamid={id}", read.display);
        }
        Ok(read)
    }

    fn field(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "streamid" => {
                let id = StreamId::new(value).map_err(|error| format!("streamid: {error}"))?;
                self.stream_id = Some(id);
            }
            "mode" => {
                self.mode = Some(match value {
                    "caller" => Mode::Caller,
                    "listener" => {
                        return Err(
                            "clients are callers, so the server must listen: remove `mode`"
                                .to_owned(),
                        );
                    }
                    "rendezvous" => Mode::Rendezvous,
                    other => {
                        return Err(format!(
                            "mode: `{other}` is unknown; write `mode=caller` or `mode=rendezvous`"
                        ));
                    }
                });
            }
            "port" => {
                let port = value.parse().ok().filter(|&port: &u16| port != 0);
                let port = port.ok_or_else(|| format!("port: `{value}` is not a local port"))?;
                self.local_port = Some(port);
            }
            "transtype" if !matches!(value, "live" | "file") => {
                return Err(format!("transtype: `{value}` is neither `live` nor `file`"));
            }
            // Live media consists of messages of one packet each.
            "messageapi" => self.messages = matches!(value, "1" | "yes" | "true" | "on"),
            // Generated media has packets of that size.
            "pkt_size" if value != "1316" => {
                return Err(format!("pkt_size: `{value}` is not supported, only 1316"));
            }
            "transtype" | "pkt_size" => {}
            "latency" => {
                self.latency = Some(latency(key, value)?);
                self.peer_latency = self.peer_latency.or(self.latency);
            }
            "rcvlatency" => self.latency = Some(latency(key, value)?),
            "peerlatency" => self.peer_latency = Some(latency(key, value)?),
            // Errors do not contain the value.
            "passphrase" if value.is_empty() => {}
            "passphrase" => {
                self.passphrase = Some(Passphrase::new(value).map_err(|error| error.to_string())?);
            }
            "pbkeylen" => {
                self.key_length = match value {
                    "0" => None,
                    "16" => Some(KeyLength::Aes128),
                    "24" => Some(KeyLength::Aes192),
                    "32" => Some(KeyLength::Aes256),
                    _ => {
                        return Err(format!(
                            "pbkeylen: `{value}` must be 16, 24 or 32, in bytes"
                        ));
                    }
                };
            }
            "cryptomode" => {
                self.cipher = Some(match value {
                    "0" => CipherMode::Auto,
                    "1" => CipherMode::Ctr,
                    "2" => CipherMode::Gcm,
                    _ => {
                        return Err(format!(
                            "cryptomode: `{value}` is not 0 (auto), 1 (AES-CTR) or 2 (AES-GCM)"
                        ));
                    }
                });
            }
            "conntimeo" => {
                self.connect_timeout = Some(Duration::from_millis(number(key, value)?.max(1)));
            }
            "peeridletimeo" => {
                self.peer_idle = Some(Duration::from_millis(number(key, value)?.max(1)));
            }
            // In bytes per second; -1 is unlimited, 0 depends on the media.
            "maxbw" => {
                self.max_bandwidth = match value {
                    "-1" | "0" => None,
                    _ => Some(number(key, value)?.saturating_mul(8)),
                };
            }
            "oheadbw" => {
                let share = number(key, value)?;
                let share = u32::try_from(share).ok().filter(config::is_overhead);
                self.overhead = Some(share.ok_or("oheadbw: it must be from 5 to 100 percent")?);
            }
            unknown => {
                let suggestion = suggest(unknown, KEYS);
                return Err(format!(
                    "unknown key `{unknown}` in the query; {suggestion}"
                ));
            }
        }
        Ok(())
    }

    /// Name by which the publishers and players of a run identify the stream: host, port and the
    /// resource of the stream id.
    pub fn stream_name(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        format!("{host}:{}/{}", self.port, self.resource())
    }

    /// Stream that the stream id names; empty without a stream id.
    pub fn resource(&self) -> String {
        resource(self.stream_id.as_ref().map_or("", StreamId::as_str))
    }
}

/// Does not show the passphrase.
impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.display)
    }
}

/// Stream that a stream id names: in the syntax of access control (SRT, appendix B), in that of
/// MediaMTX (`publish:NAME`, `read:NAME`), or the whole stream id.
pub(super) fn resource(stream_id: &str) -> String {
    if let Some(read) = AccessControl::parse(stream_id) {
        return read.resource.unwrap_or_default();
    }
    let named = stream_id.split_once(':');
    match named {
        Some(("publish" | "read", rest)) => rest.split(':').next().unwrap_or_default().to_owned(),
        _ => stream_id.to_owned(),
    }
}

/// True if the caller with that stream id publishes.
pub(super) fn publishes(stream_id: &str) -> bool {
    match AccessControl::parse(stream_id) {
        Some(read) => read.publishes(),
        None => stream_id.starts_with("publish:"),
    }
}

fn fields_of(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|field| !field.is_empty())
}

fn number(key: &str, value: &str) -> Result<u64, String> {
    let number = value.parse();
    number.map_err(|_| format!("{key}: `{value}` is not a number"))
}

fn latency(key: &str, value: &str) -> Result<Duration, String> {
    let millis = number(key, value)?;
    if millis > config::LATENCY_MAX_MS {
        return Err(format!(
            "{key}: {millis} is above the maximum of {} ms; the unit is milliseconds here, \
             and microseconds in ffmpeg's URLs",
            config::LATENCY_MAX_MS
        ));
    }
    Ok(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Url {
        Url::parse(url).expect(url)
    }

    #[test]
    fn queries_are_parsed_as_in_libsrt() {
        let url = parse(
            "srt://Host:4200?mode=caller&latency=200&streamid=#!::r=live/one,m=publish&pbkeylen=32&\
             passphrase=0123%2D456789&conntimeo=1500&maxbw=125000&oheadbw=40&transtype=live",
        );
        assert_eq!((&*url.host, url.port), ("Host", 4200));
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!((url.latency, url.peer_latency), (millis(200), millis(200)));
        assert_eq!(url.connect_timeout, millis(1500));
        assert_eq!(url.max_bandwidth, Some(1_000_000));
        assert_eq!(url.overhead, Some(40));
        assert_eq!(url.key_length, Some(KeyLength::Aes256));
        assert_eq!(url.passphrase, Passphrase::new("0123-456789").ok());
        assert_eq!(url.stream_name(), "host:4200/live/one");
        let own = url
            .stream_id
            .as_ref()
            .map(StreamId::as_str)
            .unwrap_or_default();
        assert!(publishes(own));
        assert_eq!(
            url.to_string(),
            "srt://Host:4200?streamid=#!::r=live/one,m=publish"
        );
        let url = parse("srt://[::1]:9/?rcvlatency=80&peerlatency=90");
        assert_eq!((url.latency, url.peer_latency), (millis(80), millis(90)));
        assert_eq!((&*url.host, &url.stream_id), ("::1", &None));
        assert_eq!(
            parse("srt://h:9?cryptomode=2").cipher,
            Some(CipherMode::Gcm)
        );
        let url = parse("srt://h:9?mode=rendezvous&port=8");
        assert_eq!(
            (url.mode, url.local_port),
            (Some(Mode::Rendezvous), Some(8))
        );
        for (query, messages) in [
            ("messageapi=1", false),
            ("transtype=live&messageapi=1", false),
            ("messageapi=true&transtype=file", true),
        ] {
            assert_eq!(parse(&format!("srt://h:9?{query}")).messages, messages);
        }
    }

    #[test]
    fn publisher_and_player_ids_name_the_same_stream() {
        for (publisher, player) in [
            ("#!::r=a,m=publish", "#!::r=a,m=request"),
            ("#!::r=a,m=publish", "a"),
            ("publish:a", "read:a:user:word"),
        ] {
            assert_eq!(resource(publisher), resource(player));
            assert!(publishes(publisher) && !publishes(player));
        }
    }

    #[test]
    fn errors_name_the_problem_without_the_passphrase() {
        for (url, part) in [
            ("rtmp://h:1", "is not a valid SRT URL"),
            ("srt://h", "port is missing"),
            ("srt://h:1/live", "?streamid=live"),
            ("srt://u:p@h:1", "no user name and password"),
            (
                "srt://h:1?latency=200000&passphrase=hush-hush-hush",
                "microseconds",
            ),
            ("srt://h:1?latencey=200", "did you mean `latency`?"),
            ("srt://h:1?mode=listener", "clients are callers"),
            ("srt://h:1?mode=meeting", "mode=rendezvous"),
            ("srt://h:1?mode=rendezvous&port=0", "not a local port"),
            ("srt://h:1?passphrase=hush", "the passphrase has 4 bytes"),
            ("srt://h:1?pbkeylen=17", "16, 24 or 32"),
            ("srt://h:1?cryptomode=3", "2 (AES-GCM)"),
            ("srt://h:1?oheadbw=200", "5 to 100"),
            ("srt://h:1?streamid=", "empty"),
            ("srt://h:1?transtype=file", "`transtype=file&messageapi=1`"),
            ("srt://h:1?transtype=bulk", "neither `live` nor `file`"),
        ] {
            let error = Url::parse(url).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}

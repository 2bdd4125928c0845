//! URLs of SRT: `srt://host:port?streamid=live&latency=200`, with the query as libsrt's programs
//! read it.

use std::fmt;
use std::time::Duration;

use measure::nearest::suggest;

use super::codec::stream_id::{AccessControl, StreamId};
use super::config::{self, Cipher, KeyLength, Mode};
use super::crypto::Passphrase;
use crate::url::{Parts, UrlError, Why, percent_decode, scheme};

/// The port of a server where nothing else is said. SRT has none, so URLs have to name it.
pub(super) const DEFAULT_PORT: u16 = 9000;

/// The keys of a query.
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

/// Where a stream is, and what the URL says of the connection. What it does not say, the keys of
/// the population do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    host: String,
    port: u16,
    shown: String,
    /// `streamid`.
    pub stream_id: Option<StreamId>,
    /// `mode`.
    pub mode: Option<Mode>,
    /// `transtype=file` with `messageapi=1`: messages are carried.
    pub messages: bool,
    /// `port`: the local port.
    pub local_port: Option<u16>,
    /// `latency` and `rcvlatency`: the latency to receive with.
    pub latency: Option<Duration>,
    /// `peerlatency`, or `latency`: what is asked of the peer's receiver at least.
    pub peer_latency: Option<Duration>,
    /// `passphrase`.
    pub passphrase: Option<Passphrase>,
    /// `pbkeylen`.
    pub key_length: Option<KeyLength>,
    /// `cryptomode`.
    pub cipher: Option<Cipher>,
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
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<Url, UrlError> {
        if scheme(url)? != "srt" {
            return Err(Why::Scheme {
                kind: "SRT URL",
                schemes: "srt://",
            }
            .of(url));
        }
        let parts = Parts::of(url)?;
        // The query may hold the passphrase.
        let (shown, query) = url.split_once('?').unwrap_or((url, ""));
        let other = |text: String| Why::Other(text).of(shown);
        if parts.user_info.is_some() {
            return Err(other(
                "SRT has no name and password; write what the server wants into the stream id, as \
                 in srt://host:port?streamid=#!::r=NAME,u=USER"
                    .to_owned(),
            ));
        }
        let place = parts.target.split(['?', '#']).next().unwrap_or_default();
        if !matches!(place, "" | "/") {
            return Err(other(format!(
                "SRT has no paths: write what `{place}` names into the stream id, as in \
                 srt://{}?streamid={}",
                parts.authority,
                place.trim_start_matches('/'),
            )));
        }
        let port = parts.port.ok_or_else(|| {
            let host = &parts.authority;
            other(format!(
                "it names no port, and SRT has no usual one: write srt://{host}:PORT"
            ))
        })?;
        let mut read = Url {
            port,
            shown: format!("srt://{}", parts.authority),
            host: parts.host,
            stream_id: None,
            mode: None,
            messages: false,
            local_port: None,
            latency: None,
            peer_latency: None,
            passphrase: None,
            key_length: None,
            cipher: None,
            connect_timeout: None,
            peer_idle: None,
            max_bandwidth: None,
            overhead: None,
        };
        // A stream id may begin with `#`, so there is no fragment.
        for field in fields_of(query) {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            read.field(key, &percent_decode(value)).map_err(other)?;
        }
        let is_file = fields_of(query).any(|field| field == "transtype=file");
        if is_file && !read.messages {
            return Err(other(
                "messages are had by `transtype=file&messageapi=1`; a stream of bytes cannot be had"
                    .to_owned(),
            ));
        }
        read.messages &= is_file;
        if let Some(id) = &read.stream_id {
            read.shown = format!("{}?streamid={id}", read.shown);
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
                            "clients call, so the server has to listen: leave `mode` out"
                                .to_owned(),
                        );
                    }
                    "rendezvous" => Mode::Rendezvous,
                    other => {
                        return Err(format!(
                            "mode: `{other}` is none; write `mode=caller` or `mode=rendezvous`"
                        ));
                    }
                });
            }
            "port" => {
                let port = value.parse().ok().filter(|&port: &u16| port != 0);
                let port = port.ok_or_else(|| format!("port: `{value}` is no local port"))?;
                self.local_port = Some(port);
            }
            "transtype" if !matches!(value, "live" | "file") => {
                return Err(format!("transtype: `{value}` is none of `live` and `file`"));
            }
            // Live media is in messages of one packet each.
            "messageapi" => self.messages = matches!(value, "1" | "yes" | "true" | "on"),
            // What is made has packets of that size.
            "pkt_size" if value != "1316" => {
                return Err(format!("pkt_size: `{value}` cannot be had, only 1316"));
            }
            "transtype" | "pkt_size" => {}
            "latency" => {
                self.latency = Some(latency(key, value)?);
                self.peer_latency = self.peer_latency.or(self.latency);
            }
            "rcvlatency" => self.latency = Some(latency(key, value)?),
            "peerlatency" => self.peer_latency = Some(latency(key, value)?),
            // Its value is not repeated.
            "passphrase" if value.is_empty() => {}
            "passphrase" => {
                self.passphrase = Some(Passphrase::new(value).map_err(|error| error.to_string())?);
            }
            "pbkeylen" => {
                self.key_length = match value {
                    "0" => None,
                    _ => Some(KeyLength::read(value).ok_or_else(|| {
                        format!("pbkeylen: `{value}` is none of 16, 24 and 32 bytes")
                    })?),
                };
            }
            "cryptomode" => {
                let cipher = Cipher::read(value);
                self.cipher = Some(cipher.ok_or_else(|| {
                    format!("cryptomode: `{value}` is none of 0 (auto), 1 (AES-CTR), 2 (AES-GCM)")
                })?);
            }
            "conntimeo" => {
                self.connect_timeout = Some(Duration::from_millis(number(key, value)?.max(1)));
            }
            "peeridletimeo" => {
                self.peer_idle = Some(Duration::from_millis(number(key, value)?.max(1)));
            }
            // In bytes a second; -1 is no bound, 0 follows the media.
            "maxbw" => {
                self.max_bandwidth = match value {
                    "-1" | "0" => None,
                    _ => Some(number(key, value)?.saturating_mul(8)),
                };
            }
            "oheadbw" => {
                let share = number(key, value)?;
                let share = u32::try_from(share).ok().filter(config::is_overhead);
                self.overhead = Some(share.ok_or("oheadbw: it is from 5 to 100 percent")?);
            }
            unknown => {
                let suggestion = suggest(unknown, KEYS);
                return Err(format!(
                    "there is no `{unknown}` in its query; {suggestion}"
                ));
            }
        }
        Ok(())
    }

    /// Name or address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What the stream is called by those who publish and play it in one run: host, port, and what
    /// the stream id names.
    pub fn stream_name(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        format!("{host}:{}/{}", self.port, self.resource())
    }

    /// The stream that the stream id names; empty without one.
    pub fn resource(&self) -> String {
        resource(self.stream_id.as_ref().map_or("", StreamId::as_str))
    }
}

/// Without the passphrase.
impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.shown)
    }
}

/// The stream that a stream id names: by the syntax of access control (SRT, appendix B), by that of
/// MediaMTX (`publish:NAME`, `read:NAME`), or all of it.
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

/// Whether a stream id says that its caller publishes.
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
    number.map_err(|_| format!("{key}: `{value}` is no number"))
}

fn latency(key: &str, value: &str) -> Result<Duration, String> {
    let millis = number(key, value)?;
    if millis > config::LATENCY_MAX_MS {
        return Err(format!(
            "{key}: {millis} is more than the {} ms that there may be; it is in milliseconds here, \
             and in microseconds in ffmpeg's URLs",
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
    fn queries_are_read_as_libsrt_reads_them() {
        let url = parse(
            "srt://Host:4200?mode=caller&latency=200&streamid=#!::r=live/one,m=publish&pbkeylen=32&\
             passphrase=0123%2D456789&conntimeo=1500&maxbw=125000&oheadbw=40&transtype=live",
        );
        assert_eq!((url.host(), url.port()), ("Host", 4200));
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!((url.latency, url.peer_latency), (millis(200), millis(200)));
        assert_eq!(url.connect_timeout, millis(1500));
        assert_eq!(url.max_bandwidth, Some(1_000_000));
        assert_eq!(url.overhead, Some(40));
        assert_eq!(url.key_length, Some(KeyLength::Bytes32));
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
        assert_eq!((url.host(), &url.stream_id), ("::1", &None));
        assert_eq!(parse("srt://h:9?cryptomode=2").cipher, Some(Cipher::Gcm));
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
    fn publishers_and_players_of_a_stream_find_each_other() {
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
    fn what_is_wrong_is_said_without_the_passphrase() {
        for (url, part) in [
            ("rtmp://h:1", "is not a valid SRT URL"),
            ("srt://h", "names no port"),
            ("srt://h:1/live", "?streamid=live"),
            ("srt://u:p@h:1", "no name and password"),
            (
                "srt://h:1?latency=200000&passphrase=hush-hush-hush",
                "microseconds",
            ),
            ("srt://h:1?latencey=200", "did you mean `latency`?"),
            ("srt://h:1?mode=listener", "clients call"),
            ("srt://h:1?mode=meeting", "mode=rendezvous"),
            ("srt://h:1?mode=rendezvous&port=0", "no local port"),
            ("srt://h:1?passphrase=hush", "the passphrase has 4 bytes"),
            ("srt://h:1?pbkeylen=17", "16, 24 and 32"),
            ("srt://h:1?cryptomode=3", "2 (AES-GCM)"),
            ("srt://h:1?oheadbw=200", "5 to 100"),
            ("srt://h:1?streamid=", "empty"),
            ("srt://h:1?transtype=file", "`transtype=file&messageapi=1`"),
            ("srt://h:1?transtype=bulk", "none of `live` and `file`"),
        ] {
            let error = Url::parse(url).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}

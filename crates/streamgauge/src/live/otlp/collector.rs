//! An OpenTelemetry collector, and the transport of messages to it: one POST on a connection of its
//! own (OTLP, "OTLP/HTTP").

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Instant;

use kit::auth::basic;
use kit::http1::{ResponseDecoder, ResponseItem, Url, Version, is_token, is_value, write_request};
use kit::url::percent_decode;
use measure::{ArrivalRun, Time};
use net::tls::{Client, TlsLayer, Trust};
use report::io_reason;
use report::otlp::{CONTENT_TYPE, CollectorResponse, PATH, parse_response};
use scenario::mask_text;

use crate::live::http::{remaining, write_until};

/// Environment variables with headers. The first is for metrics only and has precedence.
const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];
/// Environment variables that name a file of trusted certificates.
const CERTIFICATES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];
/// Headers that the user cannot set.
const RESERVED_HEADERS: [&str; 6] = [
    "host",
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "connection",
];
/// Maximum number of bytes of an answer that are read.
const ANSWER_MAX: usize = 64 << 10;
/// Maximum number of characters of the collector's message that are shown.
const TEXT_MAX: usize = 200;

/// Destination of messages. Its headers are secrets: only its masked URL is ever shown.
pub(super) struct Collector {
    url: Url,
    shown: String,
    headers: Vec<(String, String)>,
    tls: Client,
}

impl fmt::Display for Collector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.shown)
    }
}

impl Collector {
    /// Parses the URL of `--otlp` and the environment variables that complete it.
    ///
    /// # Errors
    /// A message for people, without secrets.
    pub(super) fn new(
        url: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Collector, String> {
        let wrong = |url: &str, why: &str| format!("--otlp {}: {why}", mask_text(url));
        let parse = |text: &str| {
            Url::parse(text).map_err(|error| mask_text(&wrong(url, &error.to_string())))
        };
        let parsed = match parse(url)? {
            base if base.target() == "/" => parse(&format!("{}{PATH}", url.trim_end_matches('/')))?,
            whole => whole,
        };
        let variable = |names: [&'static str; 2]| {
            let set = names
                .into_iter()
                .filter_map(|name| Some((name, variable(name)?)));
            let mut set = set.filter(|(_, value)| !value.is_empty());
            set.next()
        };
        let mut headers = match variable(HEADERS) {
            None => Vec::new(),
            Some((name, value)) => headers(name, value.to_str().unwrap_or("?"))?,
        };
        let is_authorization = |(name, _): &(String, String)| name == "authorization";
        if let Some(user_info) = parsed.user_info()
            && !headers.iter().any(is_authorization)
        {
            headers.push(("authorization".to_owned(), basic(user_info)));
        }
        let authorities = variable(CERTIFICATES);
        let tls = Client::new(Trust {
            accept_any: false,
            authorities: authorities.as_ref().map(|(_, path)| PathBuf::from(path)),
        });
        if parsed.is_secure() {
            tls.prepare().map_err(|fault| match &authorities {
                Some((name, _)) => format!("{name}: {fault}"),
                None => wrong(url, &fault.to_string()),
            })?;
        }
        Ok(Collector {
            shown: mask_text(&parsed.to_string()),
            url: parsed,
            headers,
            tls,
        })
    }

    /// Sends a message and returns the collector's answer.
    ///
    /// # Errors
    /// A message for people: the collector cannot be reached, does not answer by `until`, or
    /// refuses the whole message.
    pub(super) fn push(&self, message: &[u8], until: Instant) -> Result<CollectorResponse, String> {
        let length = message.len().to_string();
        let mut fields = vec![
            ("Content-Type", CONTENT_TYPE),
            ("Content-Length", &length),
            ("Connection", "close"),
            (
                "User-Agent",
                concat!("streamgauge/", env!("CARGO_PKG_VERSION")),
            ),
        ];
        let own = self.headers.iter();
        fields.extend(own.map(|(name, value)| (name.as_str(), value.as_str())));
        let head = write_request("POST", &self.url, Version::Http11, &fields);
        let in_words = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "it took too long".to_owned(),
            _ => mask_text(&io_reason(&error)),
        };
        let mut connection = self.connect(until).map_err(in_words)?;
        connection.write(&head).map_err(in_words)?;
        connection.write(message).map_err(in_words)?;
        let (status, body) = connection.answer().map_err(in_words)?;
        match status {
            200 => {
                let mut taken = parse_response(&body);
                taken.text = taken.text.chars().take(TEXT_MAX).collect();
                taken.text = mask_text(&taken.text);
                Ok(taken)
            }
            201..=299 => Ok(CollectorResponse::default()),
            status => Err(format!("HTTP status {status}")),
        }
    }

    fn connect(&self, until: Instant) -> io::Result<Connection> {
        let mut failed = io::Error::other("its name resolves to no address");
        for address in (self.url.host(), self.url.port()).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, remaining(until)?) {
                Err(error) => failed = error,
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    let layer = match self.url.is_secure() {
                        false => None,
                        true => Some(self.tls.layer(self.url.host()).map_err(io::Error::other)?),
                    };
                    let mut connection = Connection {
                        stream,
                        layer,
                        until,
                    };
                    connection.handshake()?;
                    return Ok(connection);
                }
            }
        }
        Err(failed)
    }
}

/// Parses a list of headers (OpenTelemetry, "Protocol Exporter": the form of W3C Baggage). Names
/// become lower case.
fn headers(variable: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let mut headers = Vec::new();
    for (number, part) in (1..).zip(text.split(',')) {
        if part.trim().is_empty() {
            continue;
        }
        let wrong = |why: &str| {
            // The message contains no part of the header, which may be a secret.
            format!("{variable}: header {number} {why}; write NAME=VALUE,NAME=VALUE")
        };
        let (name, value) = part.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
        // Text after a semicolon is meaningful in Baggage only.
        let value = value.split(';').next().unwrap_or_default();
        let name = name.trim().to_ascii_lowercase();
        let value = percent_decode(value.trim());
        if !is_token(&name) {
            return Err(wrong("has an invalid name"));
        }
        if !is_value(&value) {
            return Err(wrong("has an invalid value"));
        }
        if RESERVED_HEADERS.contains(&name.as_str()) {
            return Err(wrong("is set by streamgauge"));
        }
        headers.push((name, value));
    }
    Ok(headers)
}

/// A connection to a collector.
struct Connection {
    stream: TcpStream,
    layer: Option<TlsLayer>,
    /// Deadline of the whole exchange.
    until: Instant,
}

impl Connection {
    fn handshake(&mut self) -> io::Result<()> {
        let Some(layer) = &mut self.layer else {
            return Ok(());
        };
        let mut out = Vec::new();
        layer.flush(&mut out)?;
        write_until(&mut self.stream, &out, self.until)?;
        let mut plain = Vec::new();
        while self.layer.as_ref().is_some_and(TlsLayer::is_handshaking) {
            if !self.read(&mut plain)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Limits the length of what is sealed at once.
        for part in bytes.chunks(64 << 10) {
            match &mut self.layer {
                None => write_until(&mut self.stream, part, self.until)?,
                Some(layer) => {
                    let mut sealed = Vec::new();
                    layer.seal(&[part], &mut sealed)?;
                    write_until(&mut self.stream, &sealed, self.until)?;
                }
            }
        }
        Ok(())
    }

    /// Appends the next bytes to `plain`. Returns `false` at the end.
    fn read(&mut self, plain: &mut Vec<u8>) -> io::Result<bool> {
        let mut buffer = [0; 16 << 10];
        self.stream.set_read_timeout(Some(remaining(self.until)?))?;
        let count = match self.stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            count => count?,
        };
        let bytes = &buffer[..count];
        if count == 0 {
            return Ok(false);
        }
        let Some(layer) = &mut self.layer else {
            plain.extend_from_slice(bytes);
            return Ok(true);
        };
        let together = ArrivalRun {
            end: count,
            at: Time::ZERO,
            exact: false,
        };
        let mut out = Vec::new();
        let opened = layer.open(bytes, &[together], plain, &mut Vec::new(), &mut out);
        write_until(&mut self.stream, &out, self.until)?;
        Ok(!opened.map_err(io::Error::other)?.peer_closed)
    }

    /// Returns the status of the answer, and its body up to the limit.
    fn answer(&mut self) -> io::Result<(u16, Vec<u8>)> {
        let mut decoder = ResponseDecoder::new();
        let mut status = None;
        let mut body = Vec::new();
        loop {
            let mut plain = Vec::new();
            let more = self.read(&mut plain)?;
            let mut at = 0;
            while let Some(item) = decoder.next(&plain, &mut at).map_err(io::Error::other)? {
                match item {
                    ResponseItem::Head(head) => status = Some(head.status),
                    ResponseItem::Body { bytes, .. } => {
                        let space = ANSWER_MAX.saturating_sub(body.len());
                        body.extend_from_slice(&bytes[..bytes.len().min(space)]);
                        if space < bytes.len() {
                            break;
                        }
                    }
                    ResponseItem::End => return Ok((status.unwrap_or(0), body)),
                }
            }
            match status {
                Some(status) if !more || body.len() >= ANSWER_MAX => return Ok((status, body)),
                None if !more => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

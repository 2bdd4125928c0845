//! The `Transport` header (RFC 2326, 12.39).

use std::fmt;
use std::net::IpAddr;

use super::{split_unquoted, unquote};

/// Lower transport of RTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LowerTransport {
    /// UDP: `RTP/AVP`, `RTP/AVP/UDP`.
    #[default]
    Udp,
    /// Interleaved frames in the RTSP connection: `RTP/AVP/TCP`.
    Tcp,
}

/// Delivery mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Unicast,
    Multicast,
}

/// A pair of ports or interleaved channels, for RTP and RTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports<T> {
    /// Used for RTP.
    pub media: T,
    /// Used for RTCP.
    pub control: T,
}

impl<T> Ports<T> {
    pub const fn new(media: T, control: T) -> Ports<T> {
        Ports { media, control }
    }
}

impl Ports<u16> {
    /// Parses `5000-5001`. If only one port is stated, RTCP uses the next one.
    fn parse(text: &str) -> Option<Ports<u16>> {
        let mut parts = unquote(text).split('-').map(str::trim);
        let media: u16 = parts.next()?.parse().ok()?;
        let control = match parts.next() {
            Some(text) => text.parse().ok()?,
            None => media.checked_add(1)?,
        };
        Some(Ports { media, control })
    }
}

impl Ports<u8> {
    /// Returns the usual channels of the stream with this index, below 128.
    pub(crate) fn of_stream(index: usize) -> Ports<u8> {
        let first = (2 * index) as u8;
        Ports::new(first, first + 1)
    }

    fn parse_channels(text: &str) -> Option<Ports<u8>> {
        let ports = Ports::parse(text)?;
        Some(Ports {
            media: ports.media.try_into().ok()?,
            control: ports.control.try_into().ok()?,
        })
    }
}

impl<T: fmt::Display> fmt::Display for Ports<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.media, self.control)
    }
}

/// One transport specification, as requested by a client or granted by a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Profile in upper case: `AVP`, `AVPF`, `SAVP`. Empty means `AVP`.
    pub profile: String,
    pub lower: LowerTransport,
    /// Unicast or multicast, if stated. RFC 2326 defaults to multicast, but real servers mean
    /// unicast.
    pub cast: Option<Delivery>,
    /// Client's ports for unicast.
    pub client_port: Option<Ports<u16>>,
    /// Server's ports for unicast.
    pub server_port: Option<Ports<u16>>,
    /// Group's ports for multicast.
    pub port: Option<Ports<u16>>,
    /// Interleaved channels.
    pub interleaved: Option<Ports<u8>>,
    /// SSRC of the server's packets.
    pub ssrc: Option<u32>,
    /// Source address of the media.
    pub source: Option<String>,
    /// Destination address of the media.
    pub destination: Option<String>,
    /// Time to live for multicast.
    pub ttl: Option<u8>,
    /// `PLAY` or `RECORD`; `None` means `PLAY`.
    pub mode: Option<String>,
}

impl Transport {
    /// Returns a specification of UDP unicast to these ports of the client.
    pub fn udp(client_port: Ports<u16>) -> Transport {
        Transport {
            cast: Some(Delivery::Unicast),
            client_port: Some(client_port),
            ..Transport::default()
        }
    }

    /// Returns a specification of UDP multicast to a group and ports chosen by the server.
    pub fn multicast() -> Transport {
        Transport {
            cast: Some(Delivery::Multicast),
            ..Transport::default()
        }
    }

    /// Returns a specification of interleaved frames on these channels.
    pub fn tcp(interleaved: Ports<u8>) -> Transport {
        Transport {
            lower: LowerTransport::Tcp,
            cast: Some(Delivery::Unicast),
            interleaved: Some(interleaved),
            ..Transport::default()
        }
    }

    /// Parses the RTP specifications of a header value, in order of preference. Reads at most 16
    /// specifications.
    pub fn parse_all(value: &str) -> Vec<Transport> {
        split_unquoted(value, ',')
            .take(16)
            .filter_map(Transport::parse_one)
            .collect()
    }

    /// Parses the first RTP specification of a header value.
    pub fn parse(value: &str) -> Option<Transport> {
        split_unquoted(value, ',').find_map(Transport::parse_one)
    }

    /// Returns the source as an address, unless it is the unspecified one.
    pub(crate) fn source_address(&self) -> Option<IpAddr> {
        let source = self.source.as_deref()?.parse().ok();
        source.filter(|source: &IpAddr| !source.is_unspecified())
    }

    fn parse_one(spec: &str) -> Option<Transport> {
        let mut parts = split_unquoted(spec, ';').map(str::trim);
        let mut protocol = parts.next()?.split('/').map(str::trim);
        if !protocol.next()?.eq_ignore_ascii_case("RTP") {
            return None;
        }
        let profile = protocol.next()?.to_ascii_uppercase();
        let lower = match protocol.next() {
            Some(lower) if lower.eq_ignore_ascii_case("TCP") => LowerTransport::Tcp,
            Some(lower) if lower.eq_ignore_ascii_case("UDP") => LowerTransport::Udp,
            None => LowerTransport::Udp,
            Some(_) => return None,
        };
        let mut transport = Transport {
            profile: if profile == "AVP" {
                String::new()
            } else {
                profile
            },
            lower,
            ..Transport::default()
        };
        for part in parts.take(64) {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim(), value.trim()),
                None => (part, ""),
            };
            match name.to_ascii_lowercase().as_str() {
                "unicast" => transport.cast = Some(Delivery::Unicast),
                "multicast" => transport.cast = Some(Delivery::Multicast),
                "client_port" => transport.client_port = Ports::parse(value),
                "server_port" => transport.server_port = Ports::parse(value),
                "port" => transport.port = Ports::parse(value),
                "interleaved" => transport.interleaved = Ports::parse_channels(value),
                "ssrc" => transport.ssrc = parse_ssrc(value),
                "source" => transport.source = parse_text(value),
                "destination" => transport.destination = parse_text(value),
                "ttl" => transport.ttl = unquote(value).parse().ok(),
                "mode" => transport.mode = parse_text(value).map(|mode| mode.to_ascii_uppercase()),
                _ => {}
            }
        }
        Some(transport)
    }
}

/// Returns the text without quotation marks. Returns `None` if it is empty or contains a quotation
/// mark, which cannot be encoded.
fn parse_text(value: &str) -> Option<String> {
    let value = unquote(value);
    (!value.is_empty() && !value.contains('"')).then(|| value.to_owned())
}

/// Encodes a text, with quotation marks if a separator in it would end it early.
fn quote_text(value: &str) -> String {
    match value.contains([';', ',']) {
        true => format!("\"{value}\""),
        false => value.to_owned(),
    }
}

/// Parses eight hexadecimal digits (RFC 2326, 12.39). Some servers omit leading zeros, pad with
/// blanks or write a `0x` prefix.
fn parse_ssrc(value: &str) -> Option<u32> {
    let value = unquote(value);
    let value = value.strip_prefix("0x").unwrap_or(value);
    u32::from_str_radix(value, 16).ok()
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = match self.profile.as_str() {
            "" => "AVP",
            profile => profile,
        };
        write!(f, "RTP/{profile}")?;
        if self.lower == LowerTransport::Tcp {
            f.write_str("/TCP")?;
        }
        match self.cast {
            Some(Delivery::Unicast) => f.write_str(";unicast")?,
            Some(Delivery::Multicast) => f.write_str(";multicast")?,
            None => {}
        }
        let ports = |ports: Option<Ports<u16>>| ports.map(|ports| ports.to_string());
        let fields = [
            ("destination", self.destination.as_deref().map(quote_text)),
            ("source", self.source.as_deref().map(quote_text)),
            ("interleaved", self.interleaved.map(|own| own.to_string())),
            ("port", ports(self.port)),
            ("client_port", ports(self.client_port)),
            ("server_port", ports(self.server_port)),
            ("ttl", self.ttl.map(|ttl| ttl.to_string())),
            ("ssrc", self.ssrc.map(|ssrc| format!("{ssrc:08X}"))),
            ("mode", self.mode.as_ref().map(|mode| format!("\"{mode}\""))),
        ];
        let mut stated = fields
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        stated.try_for_each(|(name, value)| write!(f, ";{name}={value}"))
    }
}

//! `Transport` (RFC 2326, 12.39).

use std::fmt;

use super::{split_unquoted, unquote};

/// What RTP runs over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lower {
    /// UDP: `RTP/AVP`, `RTP/AVP/UDP`.
    #[default]
    Udp,
    /// Frames in the RTSP connection: `RTP/AVP/TCP`.
    Tcp,
}

/// To how many the media goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// To one.
    Unicast,
    /// To a group.
    Multicast,
}

/// A pair of ports or channels: media, and its RTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports<T> {
    /// For media.
    pub media: T,
    /// For RTCP.
    pub control: T,
}

impl<T> Ports<T> {
    /// A pair.
    pub const fn new(media: T, control: T) -> Ports<T> {
        Ports { media, control }
    }
}

impl Ports<u16> {
    /// `5000-5001`; of a single number the next one is for RTCP.
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

/// One way to carry a stream, as a client asks for it or a server grants it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// The profile: `AVP`, `AVPF`, `SAVP`, upper case. Empty reads as `AVP`.
    pub profile: String,
    /// What RTP runs over.
    pub lower: Lower,
    /// Unicast or multicast, where it is said. RFC 2326 has multicast for default, real servers
    /// mean unicast.
    pub cast: Option<Cast>,
    /// The client's ports, unicast.
    pub client_port: Option<Ports<u16>>,
    /// The server's ports, unicast.
    pub server_port: Option<Ports<u16>>,
    /// The group's ports, multicast.
    pub port: Option<Ports<u16>>,
    /// The channels of frames in the connection.
    pub interleaved: Option<Ports<u8>>,
    /// The synchronisation source of what the server sends.
    pub ssrc: Option<u32>,
    /// Where the media comes from.
    pub source: Option<String>,
    /// Where the media goes to.
    pub destination: Option<String>,
    /// Time to live, multicast.
    pub ttl: Option<u8>,
    /// `PLAY` or `RECORD`; `None` means PLAY.
    pub mode: Option<String>,
}

impl Transport {
    /// UDP to one client on these ports.
    pub fn udp(client_port: Ports<u16>) -> Transport {
        Transport {
            cast: Some(Cast::Unicast),
            client_port: Some(client_port),
            ..Transport::default()
        }
    }

    /// UDP to a group and ports of the server's choice.
    pub fn multicast() -> Transport {
        Transport {
            cast: Some(Cast::Multicast),
            ..Transport::default()
        }
    }

    /// Frames in the connection on these channels.
    pub fn tcp(interleaved: Ports<u8>) -> Transport {
        Transport {
            lower: Lower::Tcp,
            cast: Some(Cast::Unicast),
            interleaved: Some(interleaved),
            ..Transport::default()
        }
    }

    /// Every specification in a header value that is one of RTP, in order of preference; at most
    /// 16.
    pub fn parse_all(value: &str) -> Vec<Transport> {
        split_unquoted(value, ',')
            .take(16)
            .filter_map(Transport::parse_one)
            .collect()
    }

    /// The first specification of a header value.
    pub fn parse(value: &str) -> Option<Transport> {
        split_unquoted(value, ',').find_map(Transport::parse_one)
    }

    fn parse_one(spec: &str) -> Option<Transport> {
        let mut parts = split_unquoted(spec, ';').map(str::trim);
        let mut protocol = parts.next()?.split('/').map(str::trim);
        if !protocol.next()?.eq_ignore_ascii_case("RTP") {
            return None;
        }
        let profile = protocol.next()?.to_ascii_uppercase();
        let lower = match protocol.next() {
            Some(lower) if lower.eq_ignore_ascii_case("TCP") => Lower::Tcp,
            Some(lower) if lower.eq_ignore_ascii_case("UDP") => Lower::Udp,
            None => Lower::Udp,
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
                "unicast" => transport.cast = Some(Cast::Unicast),
                "multicast" => transport.cast = Some(Cast::Multicast),
                "client_port" => transport.client_port = Ports::parse(value),
                "server_port" => transport.server_port = Ports::parse(value),
                "port" => transport.port = Ports::parse(value),
                "interleaved" => transport.interleaved = Ports::parse_channels(value),
                "ssrc" => transport.ssrc = parse_ssrc(value),
                "source" => transport.source = text(value),
                "destination" => transport.destination = text(value),
                "ttl" => transport.ttl = unquote(value).parse().ok(),
                "mode" => transport.mode = text(value).map(|mode| mode.to_ascii_uppercase()),
                _ => {}
            }
        }
        Some(transport)
    }
}

/// A text; none where it is empty, or holds a quotation mark, for which there is no way to write
/// it.
fn text(value: &str) -> Option<String> {
    let value = unquote(value);
    (!value.is_empty() && !value.contains('"')).then(|| value.to_owned())
}

/// A text as it is written: in quotation marks where it would else end early.
fn written(value: &str) -> String {
    match value.contains([';', ',']) {
        true => format!("\"{value}\""),
        false => value.to_owned(),
    }
}

/// Eight hexadecimal digits (RFC 2326, 12.39). Some servers leave out leading zeros, pad with
/// blanks, or put `0x` before it.
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
        if self.lower == Lower::Tcp {
            f.write_str("/TCP")?;
        }
        match self.cast {
            Some(Cast::Unicast) => f.write_str(";unicast")?,
            Some(Cast::Multicast) => f.write_str(";multicast")?,
            None => {}
        }
        if let Some(destination) = &self.destination {
            write!(f, ";destination={}", written(destination))?;
        }
        if let Some(source) = &self.source {
            write!(f, ";source={}", written(source))?;
        }
        if let Some(channels) = self.interleaved {
            write!(f, ";interleaved={channels}")?;
        }
        if let Some(ports) = self.port {
            write!(f, ";port={ports}")?;
        }
        if let Some(ports) = self.client_port {
            write!(f, ";client_port={ports}")?;
        }
        if let Some(ports) = self.server_port {
            write!(f, ";server_port={ports}")?;
        }
        if let Some(ttl) = self.ttl {
            write!(f, ";ttl={ttl}")?;
        }
        if let Some(ssrc) = self.ssrc {
            write!(f, ";ssrc={ssrc:08X}")?;
        }
        if let Some(mode) = &self.mode {
            write!(f, ";mode=\"{mode}\"")?;
        }
        Ok(())
    }
}

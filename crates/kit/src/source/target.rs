//! Destination of a source.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Encapsulation of a transport stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    /// Transport stream packets directly in UDP.
    Udp,
    /// Transport stream packets in RTP (RFC 2250).
    Rtp,
}

/// A multicast group and the encapsulation: `udp://239.81.0.1:4056`, `rtp://[ff15::1]:4056`. An
/// address of the loopback interface is valid too. Addresses of other hosts are not, because such a
/// host has not asked for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Encapsulation of the stream.
    pub carriage: Encapsulation,
    /// Address and port.
    pub group: SocketAddr,
}

/// Reason why a URL is not a valid destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The syntax is wrong.
    #[error(
        "`{0}` is not a valid destination: write udp://GROUP:PORT or rtp://GROUP:PORT, such as udp://239.81.0.1:4056 or rtp://[ff15::1]:4056"
    )]
    Syntax(String),
    /// The address belongs to a single host.
    #[error(
        "`{0}` is not a multicast group: streams are sent only to groups, which receivers join, and to addresses of the loopback interface, 127.0.0.0/8 and [::1]"
    )]
    NotMulticast(String),
    /// All hosts of a network receive this group.
    #[error(
        "`{0}` is reserved for network protocols (RFC 5771, 4; RFC 4291, 2.7.1): use another group, such as 239.81.0.1 or [ff15::1]"
    )]
    Reserved(String),
}

impl FromStr for Destination {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Destination, TargetError> {
        let short = || text.chars().take(80).collect::<String>();
        let form = || TargetError::Syntax(short());
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let carriage = match scheme.to_ascii_lowercase().as_str() {
            "udp" => Encapsulation::Udp,
            "rtp" => Encapsulation::Rtp,
            _ => return Err(form()),
        };
        // Players write an `@` before groups that they receive.
        let address = rest.trim_start_matches('@').trim_end_matches('/');
        let group: SocketAddr = address.parse().map_err(|_| form())?;
        if group.port() == 0 {
            return Err(form());
        }
        let ip = group.ip();
        if !ip.is_multicast() && !ip.is_loopback() {
            return Err(TargetError::NotMulticast(short()));
        }
        let reserved = match ip {
            IpAddr::V4(ip) => ip.octets()[..3] == Ipv4Addr::new(224, 0, 0, 0).octets()[..3],
            // Permanently assigned groups of scopes up to link-local.
            IpAddr::V6(ip) => ip.is_multicast() && matches!(ip.segments()[0], 0xff00..=0xff02),
        };
        match reserved {
            true => Err(TargetError::Reserved(short())),
            false => Ok(Destination { carriage, group }),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.carriage {
            Encapsulation::Udp => "udp",
            Encapsulation::Rtp => "rtp",
        };
        write!(out, "{scheme}://{}", self.group)
    }
}

impl serde::Serialize for Destination {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_parsed_and_displayed() {
        for text in [
            "udp://239.81.0.1:4056",
            "rtp://232.1.1.1:5004",
            "udp://[ff15::1]:4056",
            "rtp://[ff12::42%2]:4056",
            "udp://127.0.0.1:4056",
            "rtp://[::1]:4056",
        ] {
            let target: Destination = text.parse().expect(text);
            assert_eq!(target.to_string(), text);
        }
        let target: Destination = "UDP://@239.81.0.1:4056/"
            .parse()
            .expect("as players write it");
        assert_eq!(target.to_string(), "udp://239.81.0.1:4056");
    }

    #[test]
    fn unicast_and_reserved_destinations_are_rejected() {
        let error = |text: &str| text.parse::<Destination>().expect_err(text);
        for text in [
            "udp://10.0.0.1:4056",
            "rtp://8.8.8.8:53",
            "udp://255.255.255.255:9",
            "udp://0.0.0.0:9",
            "rtp://[2001:db8::1]:4056",
            "udp://[::]:9",
            "udp://[::ffff:10.0.0.1]:9",
        ] {
            assert_eq!(error(text), TargetError::NotMulticast(text.to_owned()));
        }
        for text in ["udp://224.0.0.1:4056", "rtp://[ff02::1]:4056"] {
            assert_eq!(error(text), TargetError::Reserved(text.to_owned()));
        }
        for text in [
            "239.81.0.1:4056",
            "http://239.81.0.1:4056",
            "udp://239.81.0.1",
            "udp://239.81.0.1:0",
            "udp://group:4056",
            "udp://ff15::1:4056",
            "",
        ] {
            assert_eq!(error(text), TargetError::Syntax(text.to_owned()));
        }
    }
}

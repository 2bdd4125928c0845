//! Multicast groups that a server relays.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

/// A multicast group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// What is sent to it: `rtp` or `udp` (MPEG-TS as it is).
    pub kind: String,
    /// Its address, as a URL writes it.
    pub address: String,
    /// Its UDP port.
    pub port: u16,
}

impl Group {
    /// Reads `rtp://ADDRESS:PORT` or `udp://ADDRESS:PORT`; nothing where it is another text, or no
    /// multicast address.
    pub(crate) fn parse(url: &str) -> Option<Group> {
        let (kind, rest) = url.split_once("://")?;
        let address: SocketAddr = rest.parse().ok()?;
        let fits =
            ["rtp", "udp"].contains(&kind) && address.ip().is_multicast() && address.port() > 0;
        fits.then(|| Group {
            kind: kind.to_owned(),
            address: match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            },
            port: address.port(),
        })
    }
}

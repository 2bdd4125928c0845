//! Multicast groups that a server relays.

use std::net::SocketAddr;

use serde::Serialize;

use crate::urls;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Payload: `rtp`, or `udp` for MPEG-TS without RTP.
    pub kind: String,
    /// Address in URL syntax.
    pub address: String,
    /// UDP port.
    pub port: u16,
}

impl Group {
    /// Parses `rtp://ADDRESS:PORT` or `udp://ADDRESS:PORT`. Returns `None` for any other text and
    /// for an address that is not multicast.
    pub(crate) fn parse(url: &str) -> Option<Group> {
        let (kind, rest) = url.split_once("://")?;
        let address: SocketAddr = rest.parse().ok()?;
        let fits =
            ["rtp", "udp"].contains(&kind) && address.ip().is_multicast() && address.port() > 0;
        fits.then(|| Group {
            kind: kind.to_owned(),
            address: urls::host(address.ip()),
            port: address.port(),
        })
    }
}

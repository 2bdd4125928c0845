//! The network of a run.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::words::words;

/// Network of the clients, sources and server of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// This machine's own network.
    #[default]
    Own,
    /// A network namespace created for the run, with only a loopback interface.
    Loopback,
    /// Network namespaces created for the run: one each for sources, server and clients, connected
    /// by pairs of virtual Ethernet interfaces.
    Veth,
}

words!(Network: 3 { Own = "own", Loopback = "loopback", Veth = "veth" });

/// The server's interface towards the clients, in a [`Network::Veth`].
pub const VETH_CLIENTS: &str = "clients";

/// The server's interface towards the sources, in a [`Network::Veth`].
pub const VETH_SOURCES: &str = "sources";

/// The interface towards the server, of clients and of sources, in a [`Network::Veth`].
pub const VETH_SERVER: &str = "server";

/// The server's address towards the clients, in a [`Network::Veth`].
pub const VETH_SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 2);

impl Network {
    /// Returns the address at which clients find the server: the value of `{server}` in their URLs.
    pub const fn server_address(self) -> IpAddr {
        match self {
            Network::Own | Network::Loopback => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Network::Veth => IpAddr::V4(VETH_SERVER_ADDRESS),
        }
    }

    /// Returns the default interface of a source.
    pub(crate) const fn source_interface(self) -> &'static str {
        match self {
            Network::Own | Network::Loopback => "lo",
            Network::Veth => VETH_SERVER,
        }
    }

    /// Returns the default interface on which a launched server receives multicast.
    pub(crate) const fn server_interface(self, sources: bool) -> &'static str {
        match (self, sources) {
            (Network::Own | Network::Loopback, _) => "lo",
            (Network::Veth, true) => VETH_SOURCES,
            (Network::Veth, false) => VETH_CLIENTS,
        }
    }

    /// Describes the network; `None` for this machine's own.
    pub(crate) fn line(self) -> Option<&'static str> {
        match self {
            Network::Own => None,
            Network::Loopback => Some(
                "network: a namespace created for the run, with only a loopback interface; needs CAP_SYS_ADMIN and CAP_NET_ADMIN",
            ),
            Network::Veth => Some(
                "network: namespaces created for the run, sources - server - clients, the server at 10.81.0.2; needs CAP_SYS_ADMIN \
                 and CAP_NET_ADMIN",
            ),
        }
    }
}

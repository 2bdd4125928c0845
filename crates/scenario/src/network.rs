//! The network that a run is in.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::words::words;

/// The network that clients, sources and the server of a run are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// That of this machine.
    #[default]
    Own,
    /// A network namespace made for the run, in which there is nothing but a loopback interface.
    Loopback,
    /// Network namespaces made for the run: the sources', the server's and the clients', tied to
    /// each other by pairs of virtual Ethernet interfaces.
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
    /// The address at which clients find the server: what `{server}` stands for in their URLs.
    pub const fn server_address(self) -> IpAddr {
        match self {
            Network::Own | Network::Loopback => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Network::Veth => IpAddr::V4(VETH_SERVER_ADDRESS),
        }
    }

    /// By which interface a source sends, unless the scenario says otherwise.
    pub(crate) const fn source_interface(self) -> &'static str {
        match self {
            Network::Own | Network::Loopback => "lo",
            Network::Veth => VETH_SERVER,
        }
    }

    /// By which interface a server that is launched receives multicast, unless the scenario says
    /// otherwise.
    pub(crate) const fn server_interface(self, sources: bool) -> &'static str {
        match (self, sources) {
            (Network::Own | Network::Loopback, _) => "lo",
            (Network::Veth, true) => VETH_SOURCES,
            (Network::Veth, false) => VETH_CLIENTS,
        }
    }

    /// What it is, in words; nothing of this machine's own.
    pub(crate) fn line(self) -> Option<&'static str> {
        match self {
            Network::Own => None,
            Network::Loopback => Some(
                "network: a namespace made for the run, with a loopback interface alone; needs CAP_SYS_ADMIN and CAP_NET_ADMIN",
            ),
            Network::Veth => Some(
                "network: namespaces made for the run, sources - server - clients, the server at 10.81.0.2; needs CAP_SYS_ADMIN \
                 and CAP_NET_ADMIN",
            ),
        }
    }
}

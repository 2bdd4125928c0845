//! The networks that are made for a run: nothing of them is named, so all of it ends with what is
//! in it.

use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use link::Course;
use net::Namespace;
use net::namespace::Tie;
use scenario::{
    Network, PlacedLink, Scenario, VETH_CLIENTS, VETH_SERVER, VETH_SERVER_ADDRESS, VETH_SOURCES,
};

use crate::error::EngineError;
use crate::links::{End, Links};

/// The length of the prefix of both networks.
const PREFIX: u8 = 24;

/// The same of IPv6.
const PREFIX_V6: u8 = 64;

/// TCP's congestion control of the calling thread's namespace, those that the kernel has loaded,
/// and those that a namespace may have which is not the machine's own (tcp(7)).
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// The namespaces of a run.
#[derive(Debug)]
pub(crate) struct Networks {
    /// Where the clients are, and all else that the run does.
    clients: Arc<Namespace>,
    /// Where the server is.
    server: Arc<Namespace>,
    /// Where the sources are.
    sources: Arc<Namespace>,
    /// What carries packets between clients and server.
    links: Links,
}

impl Networks {
    /// Those that a scenario wants; `None` where it is content with this machine's own.
    ///
    /// # Errors
    /// This process may not make them.
    pub(crate) fn make(scenario: &Scenario) -> Result<Option<Networks>, EngineError> {
        let made = match scenario.network {
            Network::Own => return Ok(None),
            Network::Loopback => Networks::loopback(),
            Network::Veth => Networks::veth(!scenario.sources.is_empty(), scenario.link.is_some()),
        };
        let mut made = made.map_err(|error| EngineError::Network {
            network: scenario.network.name(),
            error,
        })?;
        if let Some(congestion) = &scenario.congestion {
            made.control_congestion_by(congestion)?;
        }
        for placed in scenario.links() {
            let courses = placed.link.courses().map_err(EngineError::LinkPlan)?;
            let tied = made.link(placed, courses, scenario.seed);
            tied.map_err(|error| EngineError::Link { error })?;
        }
        Ok(Some(made))
    }

    /// Has TCP of clients and server control congestion so. It holds for connections to come.
    fn control_congestion_by(&self, name: &str) -> Result<(), EngineError> {
        for space in [&self.clients, &self.server] {
            let set = space.within(|| std::fs::write(CONGESTION, name));
            set.map_err(|error| EngineError::Congestion {
                name: name.to_owned(),
                help: not_controlled(name, &error),
                error,
            })?;
        }
        Ok(())
    }

    /// Ties clients and server by an emulated link.
    fn link(&mut self, placed: PlacedLink<'_>, courses: [Course; 2], seed: u64) -> io::Result<()> {
        let network = placed.network;
        let own = format!("link{network}");
        // The one that is there in place of a pair of virtual Ethernet interfaces is called as they
        // are.
        let (near, far) = match network {
            0 => (VETH_SERVER, VETH_CLIENTS),
            _ => (own.as_str(), own.as_str()),
        };
        let [near_addresses, far_addresses] = [1, 2].map(|last| addresses(network, last));
        let ends = [
            End {
                space: &self.clients,
                tie: Tie {
                    interface: near,
                    addresses: &near_addresses,
                },
            },
            End {
                space: &self.server,
                tie: Tie {
                    interface: far,
                    addresses: &far_addresses,
                },
            },
        ];
        let mtu = placed.link.mtu();
        self.links
            .tie(placed.subjects(), ends, mtu, courses, seed)?;
        if network != 0 {
            // Servers may tell of addresses by which clients would go round the link.
            for end in ends {
                end.space.keep_apart(&end.tie, network)?;
            }
        }
        if network == 0 {
            self.clients.multicast_by(near)?;
            if Arc::ptr_eq(&self.sources, &self.clients) {
                self.server.multicast_by(far)?;
            }
        }
        Ok(())
    }

    /// One for all.
    fn loopback() -> io::Result<Networks> {
        let one = Arc::new(Namespace::new()?);
        one.loop_multicast()?;
        Ok(Networks {
            clients: one.clone(),
            server: one.clone(),
            sources: one,
            links: Links::default(),
        })
    }

    /// One for the clients, one for the server, and one for the sources where there are any.
    /// Clients and server are tied to each other unless that is left to a link.
    fn veth(with_sources: bool, linked: bool) -> io::Result<Networks> {
        let (clients, server) = (Namespace::new()?, Namespace::new()?);
        if !linked {
            let to_clients = addresses(0, 2);
            let own = Tie {
                interface: VETH_CLIENTS,
                addresses: &to_clients,
            };
            let from_clients = addresses(0, 1);
            let theirs = Tie {
                interface: VETH_SERVER,
                addresses: &from_clients,
            };
            server.tie(&own, &clients, &theirs)?;
            clients.multicast_by(VETH_SERVER)?;
            if !with_sources {
                // All multicast there is comes from the server.
                server.multicast_by(VETH_CLIENTS)?;
            }
        }
        let (clients, server) = (Arc::new(clients), Arc::new(server));
        if !with_sources {
            return Ok(Networks {
                sources: clients.clone(),
                clients,
                server,
                links: Links::default(),
            });
        }
        let sources = Namespace::new()?;
        let to_sources = addresses(1, 2);
        let own = Tie {
            interface: VETH_SOURCES,
            addresses: &to_sources,
        };
        let from_sources = addresses(1, 1);
        let theirs = Tie {
            interface: VETH_SERVER,
            addresses: &from_sources,
        };
        server.tie(&own, &sources, &theirs)?;
        server.multicast_by(VETH_SOURCES)?;
        sources.multicast_by(VETH_SERVER)?;
        Ok(Networks {
            clients,
            server,
            sources: Arc::new(sources),
            links: Links::default(),
        })
    }

    /// What carries packets between clients and server, for whoever keeps its record.
    pub(crate) fn take_links(&mut self) -> Links {
        std::mem::take(&mut self.links)
    }

    /// Where the sources are.
    pub(crate) fn sources(&self) -> &Arc<Namespace> {
        &self.sources
    }

    /// Where the server is, if that is not where the clients are.
    pub(crate) fn server_apart(&self) -> Option<&Namespace> {
        (!Arc::ptr_eq(&self.server, &self.clients)).then_some(&*self.server)
    }

    /// Moves the calling thread to the clients, and with it all threads and processes that it
    /// starts, until what this returns is dropped.
    ///
    /// # Errors
    /// The kernel does not let it.
    pub(crate) fn stay(&self) -> Result<Stay, EngineError> {
        let failed = || EngineError::system("cannot enter the network of the run");
        let back = Namespace::current().map_err(failed())?;
        self.clients.enter().map_err(failed())?;
        Ok(Stay {
            back,
            thread: PhantomData,
        })
    }
}

/// A thread's stay in another network.
#[derive(Debug)]
pub(crate) struct Stay {
    back: Namespace,
    /// It is of the thread that it was made on.
    thread: PhantomData<*const ()>,
}

impl Drop for Stay {
    fn drop(&mut self) {
        // It was let in, so it is let out: what it takes is the same.
        let _ = self.back.enter();
    }
}

/// What to do where TCP cannot control congestion so.
fn not_controlled(name: &str, error: &io::Error) -> String {
    let list = |path: &str| {
        let list = std::fs::read_to_string(path).unwrap_or_default();
        list.trim().to_owned()
    };
    let (available, allowed) = (list(AVAILABLE), list(ALLOWED));
    match error.kind() {
        // It is there, but the kernel restricts it to the machine's own network.
        io::ErrorKind::PermissionDenied => format!(
            "other networks than the machine's own may have {allowed}; allow it with `sysctl \
             net.ipv4.tcp_allowed_congestion_control=\"{allowed} {name}\"`"
        ),
        _ => format!("this kernel has {available}; others may be modules, such as tcp_{name}"),
    }
}

/// The addresses of one end: of the network towards the clients (0), the sources (1), or clients
/// that have a link for themselves.
fn addresses(network: u8, last: u8) -> [(IpAddr, u8); 2] {
    let [first, second, ..] = VETH_SERVER_ADDRESS.octets();
    let v4 = Ipv4Addr::new(first, second, network, last);
    let v6 = Ipv6Addr::new(0xfd81, 0, 0, network.into(), 0, 0, 0, last.into());
    [(v4.into(), PREFIX), (v6.into(), PREFIX_V6)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_where_the_scenario_has_it() {
        let (address, _) = addresses(0, 2)[0];
        assert_eq!(address, Network::Veth.server_address());
        assert_eq!(addresses(1, 1)[0].0.to_string(), "10.81.1.1");
        assert_eq!(addresses(1, 1)[1].0.to_string(), "fd81:0:0:1::1");
    }
}

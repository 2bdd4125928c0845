//! Network namespaces of a run. They have no names, so the kernel removes each with its last user.

pub(crate) mod resolver;
pub(crate) mod target_filter;

use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use net::Namespace;
use net::namespace::InterfaceConfig;
use scenario::{
    Network, PlacedLink, Scenario, VETH_CLIENTS, VETH_SERVER, VETH_SERVER_ADDRESS, VETH_SOURCES,
};
use session::Interface;
use session::link::SettingsTimeline;

use crate::error::EngineError;
use crate::link::placed::{LinkEnd, Links};

/// IPv4 prefix length of every network.
const PREFIX: u8 = 24;

/// IPv6 prefix length of every network.
const PREFIX_V6: u8 = 64;

/// TCP congestion control of the calling thread's namespace; the algorithms that the kernel has
/// loaded; those that a namespace other than the initial one may use (tcp(7)).
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

#[derive(Debug)]
pub(crate) struct Networks {
    /// Namespace of the clients and of everything else in the run.
    clients: Arc<Namespace>,
    server: Arc<Namespace>,
    pub(crate) sources: Arc<Namespace>,
    /// Links between clients and server, until the owner of their record takes them.
    pub(crate) links: Links,
}

impl Networks {
    /// Creates the namespaces of a scenario. Returns `None` if it uses the machine's own network.
    ///
    /// # Errors
    /// This process is not permitted to create them.
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
            made.set_congestion_control(congestion)?;
        }
        for placed in scenario.links() {
            let courses = placed.link.timelines().map_err(EngineError::LinkSettings)?;
            let tied = made.link(placed, courses, scenario.seed);
            tied.map_err(|error| EngineError::Link { error })?;
        }
        Ok(Some(made))
    }

    /// Sets the TCP congestion control of clients and server. Applies to new connections.
    fn set_congestion_control(&self, name: &str) -> Result<(), EngineError> {
        for space in [&self.clients, &self.server] {
            let set = space.run_in(|| std::fs::write(CONGESTION, name));
            set.map_err(|error| EngineError::Congestion {
                name: name.to_owned(),
                help: congestion_hint(name, &error),
                error,
            })?;
        }
        Ok(())
    }

    /// Connects clients and server by an emulated link.
    fn link(
        &mut self,
        placed: PlacedLink<'_>,
        courses: [SettingsTimeline; 2],
        seed: u64,
    ) -> io::Result<()> {
        let network = placed.network;
        let own = format!("link{network}");
        // The link of network 0 replaces the veth pair and takes over its interface names.
        let (near, far) = match network {
            0 => (VETH_SERVER, VETH_CLIENTS),
            _ => (own.as_str(), own.as_str()),
        };
        let [near_addresses, far_addresses] = [1, 2].map(|last| addresses(network, last));
        let ends = [
            LinkEnd::new(&self.clients, near, &near_addresses),
            LinkEnd::new(&self.server, far, &far_addresses),
        ];
        let mtu = placed.link.mtu();
        self.links
            .tie(placed.subjects(), ends, mtu, courses, seed)?;
        if network != 0 {
            // Servers may announce addresses at which clients would bypass the link.
            for end in ends {
                end.space.isolate(&end.tie, network)?;
            }
        } else {
            self.clients.route_multicast_through(near)?;
            if Arc::ptr_eq(&self.sources, &self.clients) {
                self.server.route_multicast_through(far)?;
            }
        }
        Ok(())
    }

    /// One namespace for clients, server and sources.
    fn loopback() -> io::Result<Networks> {
        let one = Arc::new(Namespace::new()?);
        one.route_multicast_to_loopback()?;
        Ok(Networks {
            clients: one.clone(),
            server: one.clone(),
            sources: one,
            links: Links::default(),
        })
    }

    /// One namespace for the clients, one for the server, and one for the sources if there are any.
    /// A veth pair connects clients and server, unless `linked`: then an emulated link does.
    fn veth(with_sources: bool, linked: bool) -> io::Result<Networks> {
        let (clients, server) = (Namespace::new()?, Namespace::new()?);
        if !linked {
            connect_to_server(&server, 0, VETH_CLIENTS, &clients)?;
            clients.route_multicast_through(VETH_SERVER)?;
            if !with_sources {
                // All multicast comes from the server.
                server.route_multicast_through(VETH_CLIENTS)?;
            }
        }
        let (clients, server) = (Arc::new(clients), Arc::new(server));
        let mut sources = clients.clone();
        if with_sources {
            sources = Arc::new(Namespace::new()?);
            connect_to_server(&server, 1, VETH_SOURCES, &sources)?;
            server.route_multicast_through(VETH_SOURCES)?;
            sources.route_multicast_through(VETH_SERVER)?;
        }
        Ok(Networks {
            clients,
            server,
            sources,
            links: Links::default(),
        })
    }

    /// Namespace of the server; `None` if the clients share it.
    pub(crate) fn server_apart(&self) -> Option<&Namespace> {
        (!Arc::ptr_eq(&self.server, &self.clients)).then_some(&*self.server)
    }

    /// Moves the calling thread to the namespace of the clients until the returned guard is
    /// dropped. Threads and processes that it starts meanwhile inherit the namespace.
    ///
    /// # Errors
    /// The kernel refuses to change the namespace.
    pub(crate) fn enter(&self) -> Result<NamespaceGuard, EngineError> {
        let failed = || EngineError::system("cannot enter the network of the run");
        let back = Namespace::current().map_err(failed())?;
        self.clients.enter().map_err(failed())?;
        Ok(NamespaceGuard {
            back,
            thread: PhantomData,
        })
    }
}

/// Guard of a thread's stay in another namespace. Dropping it moves the thread back.
#[derive(Debug)]
pub(crate) struct NamespaceGuard {
    back: Namespace,
    /// Not `Send`: the guard belongs to the thread that created it.
    thread: PhantomData<*const ()>,
}

impl Drop for NamespaceGuard {
    fn drop(&mut self) {
        // Leaving needs the same privilege as entering, which succeeded.
        let _ = self.back.enter();
    }
}

/// Hint for an error while setting the congestion control.
fn congestion_hint(name: &str, error: &io::Error) -> String {
    let list = |path: &str| {
        let list = std::fs::read_to_string(path).unwrap_or_default();
        list.trim().to_owned()
    };
    let (available, allowed) = (list(AVAILABLE), list(ALLOWED));
    match error.kind() {
        // The algorithm exists, but the kernel restricts it to the initial namespace.
        io::ErrorKind::PermissionDenied => format!(
            "network namespaces may use {allowed}; allow it with `sysctl \
             net.ipv4.tcp_allowed_congestion_control=\"{allowed} {name}\"`"
        ),
        _ => format!("this kernel has {available}; load others as a module, such as tcp_{name}"),
    }
}

/// The network interface that a scenario or a session names.
pub(crate) fn multicast_interface(interface: Interface) -> net::multicast::Interface {
    match interface {
        Interface::Address(address) => net::multicast::Interface::WithAddress(address),
        Interface::Name(name) => net::multicast::Interface::Named(name),
    }
}

/// Connects the server to another namespace by a veth pair. `interface` is the server's end.
fn connect_to_server(
    server: &Namespace,
    network: u8,
    interface: &str,
    other: &Namespace,
) -> io::Result<()> {
    let [theirs, own] = [1, 2].map(|last| addresses(network, last));
    let own = InterfaceConfig {
        interface,
        addresses: &own,
    };
    let theirs = InterfaceConfig {
        interface: VETH_SERVER,
        addresses: &theirs,
    };
    server.connect_by_veth(&own, other, &theirs)
}

/// Addresses of one end of a network: network 0 leads to the clients, 1 to the sources, others to
/// populations with a link of their own.
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
    fn veth_server_has_the_address_of_the_scenario() {
        let (address, _) = addresses(0, 2)[0];
        assert_eq!(address, Network::Veth.server_address());
        assert_eq!(addresses(1, 1)[0].0.to_string(), "10.81.1.1");
        assert_eq!(addresses(1, 1)[1].0.to_string(), "fd81:0:0:1::1");
    }
}

//! Whether the observed server process is the one that the clients talk to.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use kit::url::UrlParts;
use scenario::Scenario;
use sut::{PortOwner, Sut, Transport};

/// Compares the owners of all ports that the scenario's URLs name on this machine with the observed
/// server. Returns a reason for each port that another process owns. `at_end` also reports ports
/// that no process owns: set it only while the server runs, and not at the beginning of a run, when
/// the server may not listen yet.
pub(crate) fn check(scenario: &Scenario, sut: &Sut, at_end: bool) -> Vec<String> {
    let mut ports = Vec::new();
    for population in &scenario.populations {
        let protocol = population.config.protocol();
        let endpoints: BTreeSet<(String, u16)> = population
            .urls
            .iter()
            .filter_map(|url| endpoint(url, protocol.default_port_of(url)))
            .collect();
        for (host, port) in endpoints {
            // No other machine has the address of a server that is in its own namespace.
            if is_of_the_server(&host, scenario) || is_this_machine(&host) {
                ports.push((port, protocol.transport));
            }
        }
    }
    ports.sort_unstable_by_key(|&(port, transport)| (port, transport == Transport::Udp));
    ports.dedup();
    ports
        .into_iter()
        .filter_map(|(port, transport)| match sut.owns_port(port, transport) {
            PortOwner::Other { pid, name } => Some(format!(
                "port {port} belongs to {name} (pid {pid}), not to the server that was measured ({}, \
                 pid {}): stop that process or observe it instead",
                sut.description(),
                sut.pid().unwrap_or_default(),
            )),
            PortOwner::Nobody if at_end => Some(format!(
                "no process listens on port {port}, which the URLs name: the server that was measured ({}, pid \
                 {}) was not the one that was tested",
                sut.description(),
                sut.pid().unwrap_or_default(),
            )),
            PortOwner::Ours | PortOwner::Nobody | PortOwner::Unknown => None,
        })
        .collect()
}

/// Host and port of a URL.
pub(crate) fn endpoint(url: &str, default: u16) -> Option<(String, u16)> {
    let parts = UrlParts::parse(url).ok()?;
    Some((parts.host, parts.port.unwrap_or(default)))
}

/// True if `host` is the server's address in a network that was made for the run.
fn is_of_the_server(host: &str, scenario: &Scenario) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    address.is_some_and(|address| scenario.is_created_server_address(address))
}

/// True if `host` resolves to an address of this machine, to which a socket can be bound.
fn is_this_machine(host: &str) -> bool {
    let addresses: Vec<IpAddr> = match (host, 0).to_socket_addrs() {
        Ok(addresses) => addresses.map(|address| address.ip()).collect(),
        Err(_) => return false,
    };
    addresses
        .into_iter()
        .any(|ip| ip.is_loopback() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_reads_host_and_port_of_a_url() {
        let found = |url| endpoint(url, 554);
        let at = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(found("rtsp://h/a:1"), at("h", 554));
        assert_eq!(found("rtsp://u:p@h:8554/a"), at("h", 8554));
        assert_eq!(found("rtsp://[::1]:8554/a"), at("::1", 8554));
        assert_eq!(found("rtsp://[fe80::1%25lo]"), at("fe80::1%lo", 554));
        assert_eq!(found("rtsp://h?x"), at("h", 554));
        assert_eq!(found("nothing"), None);
    }

    #[test]
    fn loopback_is_this_machine_and_documentation_addresses_are_not() {
        assert!(is_this_machine("127.0.0.2"));
        assert!(!is_this_machine("192.0.2.1"));
    }
}

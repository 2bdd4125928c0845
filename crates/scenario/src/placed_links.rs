//! Positions of the links of a scenario: one shared link, and links of single populations.

use std::net::{IpAddr, Ipv4Addr};

use crate::emulated_link::Link;
use crate::error::Problem;
use crate::model::{Population, Scenario};
use crate::network::VETH_SERVER_ADDRESS;
use crate::node::Node;

/// Networks 0 and 1 are those between server and clients, and between sources and server.
const FIRST_OF_POPULATIONS: usize = 2;

/// A link of a scenario and its position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedLink<'a> {
    /// Settings of the link.
    pub link: &'a Link,
    /// Population that has the link for itself; `None` for the shared link.
    pub population: Option<&'a str>,
    /// Number of its network: the third byte of the IPv4 addresses of both ends.
    pub network: u8,
}

impl PlacedLink<'_> {
    /// Returns the names of its records: from the clients to the server, and back.
    pub fn subjects(&self) -> [String; 2] {
        measure::link::subjects(self.population)
    }
}

impl Scenario {
    /// Returns the links of the scenario, the shared one first.
    pub fn links(&self) -> impl Iterator<Item = PlacedLink<'_>> {
        let shared = self.link.iter().map(|link| PlacedLink {
            link,
            population: None,
            network: 0,
        });
        let own = self.populations.iter().enumerate();
        let own = own.filter_map(|(at, population)| {
            Some(PlacedLink {
                link: population.link.as_ref()?,
                population: Some(&population.name),
                network: network_of(at),
            })
        });
        shared.chain(own)
    }

    /// Returns `true` if `address` is that of the server in a network created for the run.
    pub fn is_created_server_address(&self, address: IpAddr) -> bool {
        let usual = self.network.server_address();
        let mut of_links = self.links().map(|link| server_address(link.network));
        !usual.is_loopback() && (address == usual || of_links.any(|own| address == own))
    }
}

/// Returns the number of the network of a population's own link, from the population's index.
fn network_of(population: usize) -> u8 {
    // A scenario has at most 100 populations.
    u8::try_from(FIRST_OF_POPULATIONS + population).unwrap_or(u8::MAX)
}

/// Returns the server's address in a network.
fn server_address(network: u8) -> IpAddr {
    let [first, second, _, last] = VETH_SERVER_ADDRESS.octets();
    Ipv4Addr::new(first, second, network, last).into()
}

/// Returns the server's address for the clients of a population with its own link, from the
/// population's index.
pub(crate) fn own_server_address(population: usize) -> IpAddr {
    server_address(network_of(population))
}

/// Returns the names of the records of all links.
pub(crate) fn subjects(link: Option<&Link>, populations: &[Population]) -> Vec<String> {
    let shared = link.map(|_| None);
    let own = populations.iter().filter(|one| one.link.is_some());
    let own = own.map(|one| Some(one.name.as_str()));
    let all = shared.into_iter().chain(own);
    all.flat_map(measure::link::subjects).collect()
}

/// Refuses populations with the name of a direction of another population's link.
pub(crate) fn check_names(populations: &[Population], root: &Node, problems: &mut Vec<Problem>) {
    let taken = subjects(None, populations);
    let entries = root.get("clients").into_iter().flat_map(Node::entries);
    for entry in entries.filter(|entry| taken.contains(&entry.key)) {
        let text = format!(
            "`{}` is a direction of another population's link",
            entry.key
        );
        Problem::new(&entry.key_origin, text)
            .help("thresholds use that name for the direction: choose another")
            .report(problems);
    }
}

//! Where the links of a scenario are: one that populations share, and those that they have for
//! themselves.

use std::net::{IpAddr, Ipv4Addr};

use crate::emulated_link::Link;
use crate::error::Problem;
use crate::model::{Population, Scenario};
use crate::network::VETH_SERVER_ADDRESS;
use crate::node::Node;

/// The networks 0 and 1 are those between server and clients, and between sources and server.
const FIRST_OF_POPULATIONS: usize = 2;

/// A link of a scenario, and where it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedLink<'a> {
    /// What it does.
    pub link: &'a Link,
    /// The population that has it for itself; none of the one that all others share.
    pub population: Option<&'a str>,
    /// The number of its network: the third byte of both ends' addresses of IPv4.
    pub network: u8,
}

impl PlacedLink<'_> {
    /// Whom its record is of: from the clients to the server, and back.
    pub fn subjects(&self) -> [String; 2] {
        measure::link::subjects(self.population)
    }
}

impl Scenario {
    /// The links of the scenario: first the one that populations share.
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

    /// Whether clients find the server at that address, in a network that is made for the run.
    pub fn is_made_for_the_server(&self, address: IpAddr) -> bool {
        let usual = self.network.server_address();
        let mut of_links = self.links().map(|link| server_address(link.network));
        !usual.is_loopback() && (address == usual || of_links.any(|own| address == own))
    }
}

/// The number of the network in which the population of that place has its own link.
fn network_of(population: usize) -> u8 {
    // A scenario has at most 100 of them.
    u8::try_from(FIRST_OF_POPULATIONS + population).unwrap_or(u8::MAX)
}

/// The server's address in the network of that number.
fn server_address(network: u8) -> IpAddr {
    let [first, second, _, last] = VETH_SERVER_ADDRESS.octets();
    Ipv4Addr::new(first, second, network, last).into()
}

/// The address at which the clients of the population of that place find the server, where its
/// link is its own.
pub(crate) fn own_server_address(population: usize) -> IpAddr {
    server_address(network_of(population))
}

/// Whose records the links of a scenario have.
pub(crate) fn subjects(link: Option<&Link>, populations: &[Population]) -> Vec<String> {
    let shared = link.map(|_| None);
    let own = populations.iter().filter(|one| one.link.is_some());
    let own = own.map(|one| Some(one.name.as_str()));
    let all = shared.into_iter().chain(own);
    all.flat_map(measure::link::subjects).collect()
}

/// Refuses populations that are called as a direction of another's link is.
pub(crate) fn check_names(populations: &[Population], root: &Node, problems: &mut Vec<Problem>) {
    let taken = subjects(None, populations);
    let entries = root.get("clients").into_iter().flat_map(Node::entries);
    for entry in entries.filter(|entry| taken.contains(&entry.key)) {
        problems.push(
            Problem::new(
                &entry.key_origin,
                format!(
                    "`{}` is a direction of another population's link",
                    entry.key
                ),
            )
            .help("thresholds use that name for it: choose another"),
        );
    }
}

//! Where connections without media come from: source addresses in turn when one has no ports left.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use mio::net::TcpStream;

/// How many addresses connections to 127.0.0.0/8 come from, where none are named: 127.0.0.1,
/// 127.0.0.2 and so on.
const LOOPBACK_SOURCES: usize = 64;

/// How many connections come from an address before it is the next one's turn.
///
/// Long before none is left the kernel takes milliseconds to find one: so an address is used for a
/// quarter of its ports, by all workers together.
const PORTS_A_TURN: usize = 7_000;

/// The source addresses of each population.
pub(crate) struct SourceAddresses {
    each: Vec<InTurn>,
    /// How many connections come from an address before it is the next one's turn.
    ports_a_turn: usize,
}

/// Which of the source addresses is taken now, and how many connections it has had in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InTurn {
    at: usize,
    used: usize,
}

/// Why there is no connection.
pub(crate) enum NotConnected {
    /// No address has a port left, which is to be noted so.
    NoPorts(io::Error, String),
    Other(io::Error),
}

impl SourceAddresses {
    /// Of so many populations, on one of so many workers.
    pub(crate) fn new(populations: usize, workers: usize) -> SourceAddresses {
        SourceAddresses {
            each: vec![InTurn::default(); populations],
            ports_a_turn: PORTS_A_TURN / workers.max(1),
        }
    }

    /// Begins to connect, from the address whose turn it is of those that the population names:
    /// when that has no port left, from the next.
    pub(crate) fn connect(
        &mut self,
        population: usize,
        named: &[IpAddr],
        to: SocketAddr,
    ) -> Result<TcpStream, NotConnected> {
        let socket = self.connect_by(population, named, to, |source| {
            net::connect::connect_from(source, to)
        });
        socket.map(TcpStream::from_std)
    }

    fn connect_by<T>(
        &mut self,
        population: usize,
        named: &[IpAddr],
        to: SocketAddr,
        mut connect: impl FnMut(Option<IpAddr>) -> io::Result<T>,
    ) -> Result<T, NotConnected> {
        let same_family = |source: &&IpAddr| source.is_ipv4() == to.is_ipv4();
        let local: Vec<IpAddr> = named.iter().filter(same_family).copied().collect();
        let count = match (local.len(), to.ip()) {
            (0, IpAddr::V4(address)) if address.is_loopback() => LOOPBACK_SOURCES,
            (0, _) => 1,
            (named, _) => named,
        };
        let own = &mut self.each[population];
        if own.used >= self.ports_a_turn {
            *own = InTurn {
                at: (own.at + 1) % count,
                used: 0,
            };
        }
        let mut error = io::ErrorKind::AddrNotAvailable.into();
        for tried in 0..count {
            let at = (own.at + tried) % count;
            let source = match local.get(at) {
                Some(source) => Some(*source),
                None if at == 0 => None,
                None => Some(IpAddr::V4(Ipv4Addr::from(0x7f00_0001 + at as u32))),
            };
            match connect(source) {
                Ok(socket) => {
                    let used = if at == own.at { own.used + 1 } else { 1 };
                    *own = InTurn { at, used };
                    return Ok(socket);
                }
                Err(refused)
                    if matches!(
                        refused.kind(),
                        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse
                    ) =>
                {
                    error = refused;
                }
                Err(other) => return Err(NotConnected::Other(other)),
            }
        }
        let text = no_ports_text(to, count, named.is_empty());
        Err(NotConnected::NoPorts(error, text))
    }
}

fn no_ports_text(to: SocketAddr, count: usize, none_named: bool) -> String {
    let ports = net::connect::ephemeral_ports();
    let ports = ports.map_or_else(
        || "its ports".to_owned(),
        |ports| {
            format!(
                "the {} ports {} to {} (net.ipv4.ip_local_port_range)",
                ports.clone().count(),
                ports.start(),
                ports.end()
            )
        },
    );
    let from = match count {
        1 => "the one source address".to_owned(),
        count => format!("{count} source addresses"),
    };
    let help = match none_named {
        true => "name addresses of this machine in `source_addresses`",
        false => "name more in `source_addresses`",
    };
    format!(
        "no port is left for another connection to {to}: {from} have used {ports} each; {help}, or \
         listen on more ports"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_without_ports_gives_way_to_the_next_which_is_kept() {
        let mut addresses = SourceAddresses::new(1, 1);
        let named = ["10.0.0.1", "fe80::1", "10.0.0.2"].map(|a| a.parse().expect("an address"));
        let mut tried = Vec::new();
        for _ in 0..2 {
            let connected = addresses.connect_by(0, &named, to("10.0.0.9:80"), |source| {
                tried.push(source);
                match source == Some(named[0]) {
                    true => Err(io::ErrorKind::AddrNotAvailable.into()),
                    false => Ok(()),
                }
            });
            assert!(connected.is_ok());
        }
        assert_eq!(tried, [named[0], named[2], named[2]].map(Some));
    }

    #[test]
    fn loopback_has_addresses_of_its_own_and_each_is_left_after_its_turn() {
        let mut addresses = SourceAddresses::new(1, PORTS_A_TURN);
        let mut tried = Vec::new();
        for _ in 0..3 {
            let connected = addresses.connect_by(0, &[], to("127.0.0.1:80"), |source| {
                tried.push(source);
                Ok(())
            });
            assert!(connected.is_ok());
        }
        let address = |last| Some(Ipv4Addr::new(127, 0, 0, last).into());
        assert_eq!(tried, [None, address(2), address(3)]);
    }

    #[test]
    fn what_to_do_is_said_when_no_port_is_left() {
        let mut addresses = SourceAddresses::new(1, 1);
        let none = |_| Err::<(), _>(io::ErrorKind::AddrInUse.into());
        match addresses.connect_by(0, &[], to("10.0.0.9:80"), none) {
            Err(NotConnected::NoPorts(_, text)) => {
                assert!(text.contains("the one source address"), "{text}");
                assert!(text.contains("`source_addresses`"), "{text}");
            }
            _ => panic!("no address has a port"),
        }
    }
}

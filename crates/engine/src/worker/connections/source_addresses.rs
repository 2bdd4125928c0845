//! Source addresses of connections without media; used in turn when one has no ports left.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use mio::net::TcpStream;

/// Number of source addresses for connections to 127.0.0.0/8 if none are configured: 127.0.0.1,
/// 127.0.0.2 and so on.
const LOOPBACK_SOURCES: usize = 64;

/// Number of connections from one source address before the next one is used.
///
/// The kernel takes milliseconds to find a free port long before the last one is used. All workers
/// together therefore use at most a quarter of the ports of an address in a row.
const PORTS_A_TURN: usize = 7_000;

/// The source addresses of each population.
pub(crate) struct SourceAddresses {
    each: Vec<SourceCursor>,
    /// This worker's part of [`PORTS_A_TURN`].
    ports_a_turn: usize,
}

/// Index of the current source address, and the number of connections from it in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SourceCursor {
    at: usize,
    used: usize,
}

/// Reason why no connection was started.
pub(crate) enum NotConnected {
    /// All source addresses have run out of ports; with the text of a note.
    NoPorts(io::Error, String),
    Other(io::Error),
}

impl SourceAddresses {
    /// Creates the state for `populations` populations, on one of `workers` workers.
    pub(crate) fn new(populations: usize, workers: usize) -> SourceAddresses {
        SourceAddresses {
            each: vec![SourceCursor::default(); populations],
            ports_a_turn: PORTS_A_TURN / workers.max(1),
        }
    }

    /// Begins to connect from the population's current source address, or from the next one if it
    /// has no ports left.
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
            *own = SourceCursor {
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
                    *own = SourceCursor { at, used };
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
        1 => "the only source address has".to_owned(),
        count => format!("each of {count} source addresses has"),
    };
    let help = match none_named {
        true => "list addresses of this machine in `source_addresses`",
        false => "list more addresses in `source_addresses`",
    };
    format!(
        "no local port left for another connection to {to}: {from} used {ports}; {help}, or let \
         the server listen on more ports"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn next_source_address_is_used_once_ports_run_out() {
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
    fn loopback_source_addresses_rotate() {
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
    fn error_about_missing_ports_says_what_to_do() {
        let mut addresses = SourceAddresses::new(1, 1);
        let none = |_| Err::<(), _>(io::ErrorKind::AddrInUse.into());
        match addresses.connect_by(0, &[], to("10.0.0.9:80"), none) {
            Err(NotConnected::NoPorts(_, text)) => {
                assert!(text.contains("the only source address"), "{text}");
                assert!(text.contains("`source_addresses`"), "{text}");
            }
            _ => panic!("no address has a port"),
        }
    }
}

//! A port for a reference server that this program starts.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::ops::RangeInclusive;

use kit::descriptor::Transport;

use crate::exit::Failure;

/// Lowest port that is tried. Programs with a port of their own mostly have a lower one.
const FIRST: u16 = 10_000;

/// Lowest port that clients of UDP use unless they are told otherwise.
const CLIENTS: u16 = 16_384;

/// Number of ports among which two programs seldom choose the same.
const ENOUGH: u16 = 1000;

/// Number of ports that are tried at most.
const ATTEMPTS: u32 = 64;

/// Returns a free port outside the range from which the kernel chooses, so that no connection takes
/// the port before the server does. Another server may; then this one fails and reports it.
pub(crate) fn free_port(of: Transport) -> Result<u16, Failure> {
    let (first, count) = candidates(net::connect::ephemeral_ports());
    let random = RandomState::new();
    let ports = (0..ATTEMPTS).map(|attempt| {
        let offset = random.hash_one(attempt) % u64::from(count);
        first + offset as u16
    });
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in ports {
        match bind(of, port) {
            Ok(()) => return Ok(port),
            Err(error) => last = error,
        }
    }
    let text = format_args!("no port to serve on, of {ATTEMPTS} that were tried: {last}");
    Err(Failure::bad(text))
}

/// Returns the first of the ports that the kernel does not choose from, and their number: those
/// above its own or, if they are few, those below that no client of ours uses.
fn candidates(chosen: Option<RangeInclusive<u16>>) -> (u16, u16) {
    // Linux, unless it is told otherwise.
    let chosen = chosen.unwrap_or(32_768..=60_999);
    let above = u16::MAX - chosen.end();
    let below = CLIENTS.min(*chosen.start()).saturating_sub(FIRST);
    if above >= ENOUGH {
        (chosen.end() + 1, above)
    } else if below > 0 {
        (FIRST, below)
    } else {
        (FIRST, u16::MAX - FIRST)
    }
}

/// Binds sockets to a port, and closes them. A server of TCP may use the same port of UDP as well.
fn bind(of: Transport, port: u16) -> io::Result<()> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let _udp = UdpSocket::bind(address)?;
    match of {
        Transport::Tcp => TcpListener::bind(address).map(drop),
        Transport::Udp => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_ports_that_the_kernel_does_not_choose() {
        for (chosen, expected) in [
            (Some(32_768..=60_999), (61_000, 4_536)),
            (Some(15_000..=65_000), (10_000, 5_000)),
            (Some(32_768..=65_535), (10_000, 6_384)),
            // The kernel chooses from all ports.
            (Some(1024..=65_535), (10_000, 55_535)),
            (None, (61_000, 4_536)),
        ] {
            assert_eq!(candidates(chosen), expected);
        }
    }

    #[test]
    fn ports_that_are_taken_are_not_returned() {
        let port = free_port(Transport::Tcp).expect("there is one");
        let _own = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
        assert!(bind(Transport::Tcp, port).is_err());
        assert!(bind(Transport::Udp, port).is_ok());
    }
}

//! TCP connections from local ports of one's own choice, so that a [`crate::PacketRing`] for these ports sees them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;

use socket2::{Domain, Protocol, Socket, Type};

/// How many ports are tried for one connection, where others hold them.
const TRIES: usize = 64;

/// Local ports for connections. They are taken in turn, so that one that became free is used again as late as
/// possible: the kernel remembers a closed connection's for a minute.
#[derive(Debug)]
pub struct ConnectPorts {
    first: u16,
    taken: Vec<bool>,
    next: usize,
}

impl ConnectPorts {
    /// All of these ports. UDP may use the same ones: each protocol has its own.
    pub fn new(ports: RangeInclusive<u16>) -> ConnectPorts {
        let count = usize::from(ports.end().saturating_sub(*ports.start())) + 1;
        ConnectPorts {
            first: *ports.start(),
            taken: vec![false; if ports.is_empty() { 0 } else { count }],
            next: 0,
        }
    }

    /// Begins to connect, without waiting, from the next free port, and says which that is. It stays taken
    /// until it is given back.
    ///
    /// # Errors
    /// `AddrInUse` where no port is to be had, which says nothing about others; else what the operating
    /// system says of the connection.
    pub fn connect(&mut self, to: SocketAddr) -> io::Result<(TcpStream, u16)> {
        let mut tries = 0;
        for _ in 0..self.taken.len() {
            let index = self.next;
            self.next = (self.next + 1) % self.taken.len();
            if self.taken[index] {
                continue;
            }
            let port = self.first + u16::try_from(index).expect("there are no more ports");
            match connect(port, to) {
                Ok(stream) => {
                    self.taken[index] = true;
                    return Ok((stream, port));
                }
                // Another's, or a connection to the same place that has not been forgotten.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
                    ) => {}
                Err(error) => return Err(error),
            }
            tries += 1;
            if tries >= TRIES {
                break;
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Gives a port back, after its connection was closed.
    pub fn release(&mut self, port: u16) {
        let index = port.checked_sub(self.first).map(usize::from);
        if let Some(place) = index.and_then(|index| self.taken.get_mut(index)) {
            *place = false;
        }
    }
}

fn connect(port: u16, to: SocketAddr) -> io::Result<TcpStream> {
    // linux/errno.h
    const EINPROGRESS: i32 = 115;
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A port that a closed connection to somewhere else had may be used at once.
    socket.set_reuse_address(true)?;
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, port).into())?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connections_come_from_different_ports_of_the_range_until_there_is_none() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(local).expect("a free port");
            let to = listener.local_addr().expect("bound");
            let mut ports = ConnectPorts::new(21_000..=21_007);
            let mut connections = Vec::new();
            while let Ok((stream, port)) = ports.connect(to) {
                let (_, from) = listener.accept().expect("it connects");
                assert_eq!(from.port(), port);
                assert!((21_000..=21_007).contains(&port));
                assert_eq!(stream.local_addr().expect("bound").port(), port);
                connections.push((stream, port));
            }
            // Others of this machine may sit on some.
            let mut taken: Vec<u16> = connections.iter().map(|&(_, port)| port).collect();
            assert!(!taken.is_empty() && taken.len() <= 8);
            taken.dedup();
            assert_eq!(taken.len(), connections.len());
            let error = ports.connect(to).expect_err("none is left");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            ports.release(taken[0]);
            ports.release(1);
            let (stream, port) = connections.swap_remove(0);
            drop(stream);
            // The other end has not closed it, so that the kernel keeps it for a while: no other may be taken
            // for it, though.
            if let Ok((_, again)) = ports.connect(to) {
                assert_eq!(again, port);
            }
        }
    }

    #[test]
    fn what_is_wrong_with_the_connection_is_said_and_takes_no_port() {
        let mut ports = ConnectPorts::new(21_010..=21_010);
        let nowhere: SocketAddr = "255.255.255.255:1".parse().expect("an address");
        let error = ports.connect(nowhere).expect_err("it is nobody's");
        assert_ne!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(ports.taken, [false]);
    }
}

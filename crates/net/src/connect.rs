//! TCP connections from chosen local ports, so that a [`crate::PacketRing`] for these ports sees
//! them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;

use socket2::{Domain, Protocol, Socket, Type};

use crate::multicast::unspecified;

/// Ports tried for one connection if others are in use.
const PORT_ATTEMPTS_MAX: usize = 64;

/// Local ports for connections. They are taken in rotation, so that a released port is reused as
/// late as possible: the kernel holds the port of a closed connection for a minute.
#[derive(Debug)]
pub struct ConnectPorts {
    first: u16,
    taken: Vec<bool>,
    next: usize,
}

impl ConnectPorts {
    /// Uses all of `ports`. UDP may use the same numbers: each protocol has its own ports.
    pub fn new(ports: RangeInclusive<u16>) -> ConnectPorts {
        let count = usize::from(ports.end().saturating_sub(*ports.start())) + 1;
        ConnectPorts {
            first: *ports.start(),
            taken: vec![false; if ports.is_empty() { 0 } else { count }],
            next: 0,
        }
    }

    /// Starts a non-blocking connect from the next free port. Returns the port, which stays taken
    /// until it is released.
    ///
    /// # Errors
    /// `AddrInUse` if no port is free for this destination, which says nothing about other
    /// destinations; otherwise the operating system's error for the connection.
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
                // In use by another program, or by a closed connection to the same destination that
                // the kernel still holds.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
                    ) => {}
                Err(error) => return Err(error),
            }
            tries += 1;
            if tries >= PORT_ATTEMPTS_MAX {
                break;
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Releases a port after its connection was closed.
    pub fn release(&mut self, port: u16) {
        let index = port.checked_sub(self.first).map(usize::from);
        if let Some(place) = index.and_then(|index| self.taken.get_mut(index)) {
            *place = false;
        }
    }
}

/// Starts a non-blocking connect from the local address `source`, or from the one that the routes
/// select. The kernel chooses the port once it knows the destination, so that an address can use
/// all its ports for each destination (`IP_BIND_ADDRESS_NO_PORT`; ip(7)).
///
/// # Errors
/// `AddrNotAvailable` if the address has no port left for that destination or is not local;
/// otherwise the operating system's error.
pub fn connect_from(source: Option<IpAddr>, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = new_socket(to)?;
    if let Some(source) = source {
        crate::options::choose_port_on_connect(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    start_connect(socket, &to.into())
}

/// Connects to a Unix stream socket (unix(7)) without blocking. Returns it as a `TcpStream`,
/// because it is used as a byte stream.
///
/// # Errors
/// The operating system's error; `WouldBlock` if too many connections wait to be accepted.
pub fn connect_unix(path: &Path) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&socket2::SockAddr::unix(path)?)?;
    Ok(socket.into())
}

/// Returns the ports that the kernel chooses from, or `None` if they cannot be read.
pub fn ephemeral_ports() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = text.split_ascii_whitespace().map(str::parse);
    Some(ends.next()?.ok()?..=ends.next()?.ok()?)
}

fn connect(port: u16, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = new_socket(to)?;
    // Allows the immediate reuse of a port whose closed connection had another destination.
    socket.set_reuse_address(true)?;
    let any = unspecified(to.ip());
    socket.bind(&SocketAddr::new(any, port).into())?;
    start_connect(socket, &to.into())
}

fn new_socket(to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn start_connect(socket: Socket, to: &socket2::SockAddr) -> io::Result<TcpStream> {
    // linux/errno.h
    const EINPROGRESS: i32 = 115;
    match socket.connect(to) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connections_use_distinct_ports_until_none_is_left() {
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
            // Other programs of this machine may use some of the ports.
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
            // The peer has not closed the connection, so the kernel holds the port for a while. No
            // other port may be taken for it, however.
            if let Ok((_, again)) = ports.connect(to) {
                assert_eq!(again, port);
            }
        }
    }

    #[test]
    fn failed_connect_returns_its_error_and_takes_no_port() {
        let mut ports = ConnectPorts::new(21_010..=21_010);
        let nowhere: SocketAddr = "255.255.255.255:1".parse().expect("an address");
        let error = ports.connect(nowhere).expect_err("it is nobody's");
        assert_ne!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(ports.taken, [false]);
    }

    #[test]
    fn each_source_address_has_all_ports() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let to = listener.local_addr().expect("bound");
        for source in [None, Some("127.0.0.9".parse().expect("an address"))] {
            let stream = connect_from(source, to).expect("it begins");
            let (_, from) = listener.accept().expect("it connects");
            assert_eq!(from, stream.local_addr().expect("bound"));
            let expected = source.unwrap_or(to.ip());
            assert_eq!(from.ip(), expected);
            let ports = ephemeral_ports().expect("linux tells");
            assert!(ports.contains(&from.port()), "{from}");
        }
        // A documentation address (RFC 5737), which no machine has.
        let nobodys = Some("192.0.2.1".parse().expect("an address"));
        let error = connect_from(nobodys, to).expect_err("it is not this machine's");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn unix_socket_is_a_byte_stream() {
        use std::io::{Read, Write};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        connect_unix(&path).expect_err("nobody is there");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("the folder is new");
        let mut ours = connect_unix(&path).expect("it listens");
        let (mut theirs, _) = listener.accept().expect("it is connected");
        theirs.write_all(b"abc").expect("it takes them");
        let mut bytes = [0; 3];
        ours.read_exact(&mut bytes).expect("they came");
        assert_eq!(&bytes, b"abc");
        ours.write_all(b"abc").expect("it takes them");
        assert!(crate::timed_read::unacknowledged(&ours).expect("it tells") > 0);
        theirs.read_exact(&mut bytes).expect("they came");
        assert_eq!(
            crate::timed_read::unacknowledged(&ours).expect("it tells"),
            0
        );
    }
}

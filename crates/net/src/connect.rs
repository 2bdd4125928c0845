//! TCP connections from local ports of one's own choice, so that a [`crate::PacketRing`] for these
//! ports sees them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;

use socket2::{Domain, Protocol, Socket, Type};

/// How many ports are tried for one connection, where others hold them.
const TRIES: usize = 64;

/// Local ports for connections. They are taken in turn, so that one that became free is used again
/// as late as possible: the kernel remembers a closed connection's for a minute.
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

    /// Begins to connect, without waiting, from the next free port, and says which that is. It
    /// stays taken until it is given back.
    ///
    /// # Errors
    /// `AddrInUse` where no port is to be had, which says nothing about others; else what the
    /// operating system says of the connection.
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

/// Begins to connect, without waiting, from that address of this machine, or from the one that its
/// routes name. The port is the kernel's choice, made when it is known where the connection goes:
/// so an address has all its ports for each place that is connected to (`IP_BIND_ADDRESS_NO_PORT`;
/// ip(7)).
///
/// # Errors
/// `AddrNotAvailable` where the address has no port left for that place, or is none of this
/// machine's; else what the operating system says.
pub fn connect_from(source: Option<IpAddr>, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if let Some(source) = source {
        crate::options::choose_port_late(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    begin(socket, &to.into())
}

/// Connects to a Unix socket of streams (unix(7)), without waiting. It is handed out as what it is
/// used as: a stream of bytes.
///
/// # Errors
/// What the operating system says; `WouldBlock` where too many connections wait to be accepted.
pub fn connect_unix(path: &Path) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&socket2::SockAddr::unix(path)?)?;
    Ok(socket.into())
}

/// The ports that the kernel chooses from; none where it does not tell.
pub fn ephemeral_ports() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = text.split_ascii_whitespace().map(str::parse);
    Some(ends.next()?.ok()?..=ends.next()?.ok()?)
}

fn connect(port: u16, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A port that a closed connection to somewhere else had may be used at once.
    socket.set_reuse_address(true)?;
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, port).into())?;
    begin(socket, &to.into())
}

fn begin(socket: Socket, to: &socket2::SockAddr) -> io::Result<TcpStream> {
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
            // The other end has not closed it, so that the kernel keeps it for a while: no other
            // may be taken for it, though.
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
        // An address for documentation (RFC 5737), which no machine has.
        let nobodys = Some("192.0.2.1".parse().expect("an address"));
        let error = connect_from(nobodys, to).expect_err("it is not this machine's");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn a_unix_socket_is_a_stream_of_bytes() {
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
        assert!(crate::stream::unacknowledged(&ours).expect("it tells") > 0);
        theirs.read_exact(&mut bytes).expect("they came");
        assert_eq!(crate::stream::unacknowledged(&ours).expect("it tells"), 0);
    }
}

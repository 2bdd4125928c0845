//! Pairs of UDP ports: an even port for RTP and the odd port above it for RTCP (RFC 3550, 11).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use socket2::{Domain, Protocol, Socket, Type};

use crate::options::{self, DropRule};

/// Default port range for media: below the range from which Linux takes ephemeral ports (32768 and
/// up), so that no connection of this machine uses one of them.
pub const DEFAULT_RANGE: Range<u16> = 10_000..32_768;

/// Receive buffer requested for each media socket: about eight seconds at 1 Mb/s, so that a worker
/// that is busy elsewhere for a moment loses nothing. The kernel grants at most net.core.rmem_max.
pub const RECEIVE_BUFFER: usize = 1 << 20;

/// One worker's contiguous range of ports. Pairs are taken in rotation, so that a released pair is
/// reused as late as possible, when no peer sends to it any more.
#[derive(Debug)]
pub struct PortRange {
    first: u16,
    taken: Vec<bool>,
    next: usize,
    pairs_taken: usize,
    receive_buffer: usize,
}

/// Two bound, non-blocking sockets on an even port and the odd one above it.
#[derive(Debug)]
pub struct Pair {
    /// Socket on the even port.
    pub media: std::net::UdpSocket,
    /// Socket on the odd port.
    pub control: std::net::UdpSocket,
    /// The even port.
    pub port: u16,
}

impl PortRange {
    /// Uses all pairs that lie completely within `range`.
    pub fn new(range: Range<u16>) -> PortRange {
        let first = range.start.next_multiple_of(2);
        let pairs = usize::from(range.end.saturating_sub(first)) / 2;
        PortRange {
            first,
            taken: vec![false; pairs],
            next: 0,
            pairs_taken: 0,
            receive_buffer: RECEIVE_BUFFER,
        }
    }

    /// Uses the part of `range` that belongs to `worker`, one of `workers`.
    pub fn share(range: Range<u16>, worker: u32, workers: u32) -> PortRange {
        let pairs = u32::from(range.end.saturating_sub(range.start)) / 2;
        let at = |index: u32| {
            let pair = u64::from(pairs) * u64::from(index) / u64::from(workers);
            u32::from(range.start) + 2 * u32::try_from(pair).expect("at most the pairs")
        };
        let port = |port: u32| u16::try_from(port).expect("within the range");
        PortRange::new(port(at(worker))..port(at(worker + 1)))
    }

    /// Sets the receive buffer of media sockets; 0 keeps the system's default.
    pub fn with_receive_buffer(self, bytes: usize) -> PortRange {
        PortRange {
            receive_buffer: bytes,
            ..self
        }
    }

    /// Receive buffer requested for each media socket, in bytes; 0 keeps the system's default.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Range from the first port to the last. `None` if there is no pair.
    pub fn ports(&self) -> Option<std::ops::RangeInclusive<u16>> {
        let pairs = u16::try_from(self.taken.len()).expect("fewer pairs than ports");
        (pairs > 0).then(|| self.first..=self.first + (2 * pairs - 1))
    }

    /// Number of pairs, free or taken.
    pub fn pairs(&self) -> usize {
        self.taken.len()
    }

    pub fn pairs_taken(&self) -> usize {
        self.pairs_taken
    }

    /// Binds the next free pair on `local`. Skips ports that another program holds.
    ///
    /// # Errors
    /// `AddrInUse` if no pair is left; otherwise the operating system's error if a socket cannot be
    /// created or `local` is not a local address.
    pub fn bind(&mut self, local: IpAddr) -> io::Result<Pair> {
        self.bind_next(local, MediaDelivery::Received)
    }

    /// Binds the next free pair, but drops and counts what arrives at the media port
    /// ([`options::drop_all`]). For media that is taken from a packet ring.
    ///
    /// # Errors
    /// Those of [`PortRange::bind`].
    pub fn reserve(&mut self, local: IpAddr) -> io::Result<Pair> {
        self.bind_next(local, MediaDelivery::Dropped)
    }

    /// Binds one socket on the next free even port, and none on the odd port above it. The kernel
    /// drops and counts the datagrams that `rule` selects ([`options::drop_matching`]). For media
    /// that is taken from a packet ring and shares its port with datagrams to be received.
    ///
    /// # Errors
    /// Those of [`PortRange::bind`].
    pub fn reserve_single(
        &mut self,
        local: IpAddr,
        rule: DropRule,
    ) -> io::Result<std::net::UdpSocket> {
        let buffer = self.receive_buffer;
        self.take_next(|port| {
            let socket = new_socket(SocketAddr::new(local, port))?;
            options::drop_matching(&socket, rule)?;
            bind_socket(socket, SocketAddr::new(local, port), buffer)
        })
    }

    fn bind_next(&mut self, local: IpAddr, media: MediaDelivery) -> io::Result<Pair> {
        let buffer = self.receive_buffer;
        self.take_next(|port| bind_pair(local, port, media, buffer))
    }

    /// Calls `bind` for free even ports in rotation until a port is not in use.
    fn take_next<T>(&mut self, bind: impl Fn(u16) -> io::Result<T>) -> io::Result<T> {
        for _ in 0..self.taken.len() {
            let index = self.next;
            self.next = (self.next + 1) % self.taken.len();
            if self.taken[index] {
                continue;
            }
            let port = self.first + 2 * u16::try_from(index).expect("fewer pairs than ports");
            match bind(port) {
                Ok(taken) => {
                    self.taken[index] = true;
                    self.pairs_taken += 1;
                    return Ok(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "no free pair of ports is left",
        ))
    }

    /// Releases a pair after its sockets were closed.
    pub fn release(&mut self, port: u16) {
        if let Some(taken) = self.taken.get_mut(usize::from((port - self.first) / 2)) {
            self.pairs_taken -= usize::from(*taken);
            *taken = false;
        }
    }
}

fn bind_pair(local: IpAddr, port: u16, media: MediaDelivery, buffer: usize) -> io::Result<Pair> {
    let address = SocketAddr::new(local, port);
    let media = match media {
        MediaDelivery::Received => bind(address, buffer)?,
        MediaDelivery::Dropped => bind_dropping(address)?,
    };
    let control = bind(SocketAddr::new(local, port + 1), 0)?;
    Ok(Pair {
        media,
        control,
        port,
    })
}

/// Treatment of datagrams that arrive at a media port.
#[derive(Clone, Copy)]
enum MediaDelivery {
    Received,
    Dropped,
}

/// Opens a non-blocking UDP socket for addresses of this family.
pub(crate) fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Opens a UDP socket that only holds its port, and sends. It drops datagrams from the first one
/// on.
fn bind_dropping(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = new_socket(address)?;
    options::drop_all(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Opens a non-blocking UDP socket with kernel timestamps. A receive buffer of 0 keeps the system's
/// default.
pub fn bind(address: SocketAddr, receive_buffer: usize) -> io::Result<std::net::UdpSocket> {
    bind_socket(new_socket(address)?, address, receive_buffer)
}

fn bind_socket(
    socket: Socket,
    address: SocketAddr,
    receive_buffer: usize,
) -> io::Result<std::net::UdpSocket> {
    prepare(&socket, receive_buffer)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Sets the receive buffer, unless it is 0, and requests timestamps and the count of drops.
pub(crate) fn prepare(socket: &Socket, receive_buffer: usize) -> io::Result<()> {
    if receive_buffer > 0 {
        socket.set_recv_buffer_size(receive_buffer)?;
    }
    options::enable_timestamps_and_drop_counts(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn pairs_are_even_and_odd_and_bounded() {
        let mut range = PortRange::new(20_001..20_009);
        assert_eq!(range.pairs(), 3);
        let pairs: Vec<Pair> = std::iter::from_fn(|| range.bind(LOCAL).ok()).collect();
        assert!(pairs.len() <= 3);
        for pair in &pairs {
            assert_eq!(pair.port % 2, 0);
            assert_eq!(pair.media.local_addr().expect("bound").port(), pair.port);
            assert_eq!(
                pair.control.local_addr().expect("bound").port(),
                pair.port + 1
            );
        }
        assert_eq!(
            range.bind(LOCAL).expect_err("none left").kind(),
            io::ErrorKind::AddrInUse
        );
        let ports: Vec<u16> = pairs.iter().map(|pair| pair.port).collect();
        assert_eq!(range.pairs_taken(), ports.len());
        drop(pairs);
        for &port in &ports {
            range.release(port);
            range.release(port);
        }
        assert_eq!(range.pairs_taken(), 0);
        assert_eq!(range.bind(LOCAL).expect("free again").port, ports[0]);
    }

    #[test]
    fn shares_are_disjoint_and_complete() {
        for workers in 1..=7 {
            let shares: Vec<PortRange> = (0..workers)
                .map(|worker| PortRange::share(10_000..32_768, worker, workers))
                .collect();
            let pairs: usize = shares.iter().map(PortRange::pairs).sum();
            assert_eq!(pairs, (32_768 - 10_000) / 2);
            for pair in shares.windows(2) {
                let end = usize::from(pair[0].first) + 2 * pair[0].pairs();
                assert_eq!(end, usize::from(pair[1].first));
            }
        }
    }
}

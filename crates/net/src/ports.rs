//! Pairs of UDP ports, an even one for RTP and the odd one above it for RTCP (RFC 3550, 11).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use socket2::{Domain, Protocol, Socket, Type};

use crate::options::{self, Marked};

/// Where media is received when nothing else is said: below the range out of which Linux takes
/// ephemeral ports (32768 up), so that no connection of this machine sits on one.
pub const DEFAULT_RANGE: Range<u16> = 10_000..32_768;

/// Receive buffer asked for each media socket: at 1 Mb/s about eight seconds, so that a worker that
/// is busy elsewhere for a moment loses nothing. The kernel grants at most net.core.rmem_max.
pub const RECEIVE_BUFFER: usize = 1 << 20;

/// One worker's contiguous range of ports. Pairs are taken in turn, so that one that became free is
/// used again as late as possible, when nobody sends to it any more.
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
    /// On the even port.
    pub media: std::net::UdpSocket,
    /// On the odd port.
    pub control: std::net::UdpSocket,
    /// The even port.
    pub port: u16,
}

impl PortRange {
    /// All pairs that lie wholly within `range`.
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

    /// The part of `range` that belongs to one of several workers.
    pub fn share(range: Range<u16>, worker: u32, workers: u32) -> PortRange {
        let pairs = u32::from(range.end.saturating_sub(range.start)) / 2;
        let at = |index: u32| {
            let pair = u64::from(pairs) * u64::from(index) / u64::from(workers);
            u32::from(range.start) + 2 * u32::try_from(pair).expect("at most the pairs")
        };
        let port = |port: u32| u16::try_from(port).expect("within the range");
        PortRange::new(port(at(worker))..port(at(worker + 1)))
    }

    /// The same with another receive buffer for media sockets; 0 is the system's default.
    pub fn with_receive_buffer(self, bytes: usize) -> PortRange {
        PortRange {
            receive_buffer: bytes,
            ..self
        }
    }

    /// The receive buffer that is asked for each media socket, in bytes; 0 is the system's default.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// From the first port to the last; nothing where there is no pair.
    pub fn ports(&self) -> Option<std::ops::RangeInclusive<u16>> {
        let pairs = u16::try_from(self.taken.len()).expect("fewer pairs than ports");
        (pairs > 0).then(|| self.first..=self.first + (2 * pairs - 1))
    }

    /// How many pairs there are, free or not.
    pub fn pairs(&self) -> usize {
        self.taken.len()
    }

    /// How many pairs are taken.
    pub fn pairs_taken(&self) -> usize {
        self.pairs_taken
    }

    /// Binds the next free pair on `local`. Ports that another program holds are passed over.
    ///
    /// # Errors
    /// `AddrInUse` where no pair is left; what the operating system says where a socket cannot be
    /// made or `local` is no address of this machine.
    pub fn bind(&mut self, local: IpAddr) -> io::Result<Pair> {
        self.bind_next(local, Media::Received)
    }

    /// The same, but nothing can be received on the media port: the kernel drops and counts what
    /// comes for it ([`options::drop_all`]). For media that is taken out of a packet ring.
    ///
    /// # Errors
    /// As [`PortRange::bind`].
    pub fn reserve(&mut self, local: IpAddr) -> io::Result<Pair> {
        self.bind_next(local, Media::Dropped)
    }

    /// Binds one socket on the next free even port, and none on the odd one above it: of what comes
    /// the kernel drops and counts what is marked ([`options::drop_marked`]). For media that is
    /// taken out of a packet ring, where it shares its port with what is to be heard.
    ///
    /// # Errors
    /// As [`PortRange::bind`].
    pub fn reserve_single(
        &mut self,
        local: IpAddr,
        marked: Marked,
    ) -> io::Result<std::net::UdpSocket> {
        let buffer = self.receive_buffer;
        self.take_next(|port| {
            let socket = unbound(SocketAddr::new(local, port))?;
            options::drop_marked(&socket, marked)?;
            bound(socket, SocketAddr::new(local, port), buffer)
        })
    }

    fn bind_next(&mut self, local: IpAddr, media: Media) -> io::Result<Pair> {
        let buffer = self.receive_buffer;
        self.take_next(|port| bind_pair(local, port, media, buffer))
    }

    /// What `bind` makes of the next free even port.
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

    /// Gives a pair back, after its sockets were closed.
    pub fn release(&mut self, port: u16) {
        if let Some(place) = self.taken.get_mut(usize::from((port - self.first) / 2)) {
            self.pairs_taken -= usize::from(*place);
            *place = false;
        }
    }
}

fn bind_pair(local: IpAddr, port: u16, media: Media, buffer: usize) -> io::Result<Pair> {
    let address = SocketAddr::new(local, port);
    let media = match media {
        Media::Received => bind(address, buffer)?,
        Media::Dropped => bind_dropping(address)?,
    };
    let control = bind(SocketAddr::new(local, port + 1), 0)?;
    Ok(Pair {
        media,
        control,
        port,
    })
}

/// What becomes of what arrives on a media port.
#[derive(Clone, Copy)]
enum Media {
    Received,
    Dropped,
}

fn unbound(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A UDP socket that only holds its port, and sends. It drops from the first datagram on.
fn bind_dropping(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = unbound(address)?;
    options::drop_all(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// A non-blocking UDP socket with the kernel's timestamps switched on. A receive buffer of 0 leaves
/// the system's default.
pub fn bind(address: SocketAddr, receive_buffer: usize) -> io::Result<std::net::UdpSocket> {
    bound(unbound(address)?, address, receive_buffer)
}

fn bound(
    socket: Socket,
    address: SocketAddr,
    receive_buffer: usize,
) -> io::Result<std::net::UdpSocket> {
    if receive_buffer > 0 {
        socket.set_recv_buffer_size(receive_buffer)?;
    }
    options::ask_arrival_time_and_drops(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
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

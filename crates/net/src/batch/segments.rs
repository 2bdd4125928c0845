//! Sending what lies in one piece of memory as one or several datagrams.

use std::io;
use std::os::fd::AsRawFd;

use super::send::{Address, Controls, JOINED_MIN};

/// How often a datagram is tried whose turn another one's error took.
const TRIES: u32 = 3;

/// Sends datagrams that lie behind each other in memory, all of one length but the last, which may
/// be shorter. Where they are more than an ordinary packet holds, the kernel cuts them apart
/// (`UDP_SEGMENT`, udp(7)). A kernel or a device that cannot do so says so the first time, and is
/// not asked again.
#[derive(Debug)]
pub struct SegmentSender {
    joins: bool,
}

/// What became of datagrams that were to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams that the kernel did not take.
    pub refused: usize,
    /// Whether it said that nobody is there, of a connected socket (ECONNREFUSED).
    pub nobody_there: bool,
}

impl Default for SegmentSender {
    fn default() -> SegmentSender {
        SegmentSender::new()
    }
}

impl SegmentSender {
    /// One that has the kernel cut.
    pub fn new() -> SegmentSender {
        SegmentSender { joins: true }
    }

    /// The same, with cutting by the kernel allowed or not.
    pub fn with_joining(mut self, joins: bool) -> SegmentSender {
        self.joins = joins;
        self
    }

    /// Sends `bytes` as datagrams of `size` bytes, to an address or to where the socket is
    /// connected, and tells of each that the kernel took. Never waits: what does not fit into the
    /// socket's buffer is refused.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn send(
        &mut self,
        socket: &impl AsRawFd,
        to: Option<&Address>,
        bytes: &[u8],
        size: usize,
        mut left: impl FnMut(&[u8]),
    ) -> Sent {
        let mut sent = Sent {
            refused: 0,
            nobody_there: false,
        };
        let mut cannot_join = false;
        if self.joins && bytes.len() > size.max(JOINED_MIN) {
            match retried(|| send_one(socket, to, bytes, Some(size)), &mut sent) {
                Ok(()) => {
                    bytes.chunks(size).for_each(left);
                    return sent;
                }
                Err(error) => match error.raw_os_error() {
                    // The device cannot do it, unless the address is what is wrong.
                    Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) => cannot_join = true,
                    // Each is too long for this way in one piece.
                    Some(libc::EMSGSIZE) => {}
                    _ => {
                        sent.refused = bytes.len().div_ceil(size);
                        return sent;
                    }
                },
            }
        }
        for datagram in bytes.chunks(size) {
            match retried(|| send_one(socket, to, datagram, None), &mut sent) {
                Ok(()) => left(datagram),
                Err(_) => sent.refused += 1,
            }
        }
        if cannot_join && sent.refused == 0 {
            self.joins = false;
        }
        sent
    }
}

/// Tries again where the error is that of an earlier datagram, or none.
fn retried(mut send: impl FnMut() -> io::Result<()>, sent: &mut Sent) -> io::Result<()> {
    let mut tries = 0;
    loop {
        let error = match send() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECONNREFUSED) => {
                sent.nobody_there = true;
                tries += 1;
                if tries == TRIES {
                    return Err(error);
                }
            }
            _ => return Err(error),
        }
    }
}

fn send_one(
    socket: &impl AsRawFd,
    to: Option<&Address>,
    bytes: &[u8],
    size: Option<usize>,
) -> io::Result<()> {
    let mut iovec = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut controls = Controls::none();
    // SAFETY: a message header of zeroes is a valid one: no name, no buffers, no control.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some(to) = to {
        let (name, length) = to.raw();
        header.msg_name = name.cast_mut();
        header.msg_namelen = length;
    }
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    let size = size.map(|size| u16::try_from(size).unwrap_or(0));
    controls.wire(&mut header, size, to.and_then(Address::source));
    // SAFETY: the header points to an address, a buffer and perhaps control messages that live
    // until the call is over, each with its length; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
    match sent {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
        socket.set_nonblocking(true).expect("linux can");
        let mut buffer = [0; 65_536];
        std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec())).collect()
    }

    #[test]
    fn what_is_in_one_piece_arrives_in_datagrams() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let sender = UdpSocket::bind(local).expect("a free port");
            let receiver = UdpSocket::bind(local).expect("a free port");
            let to: Address = receiver.local_addr().expect("bound").into();
            for (length, size) in [
                (1, 1),
                (1000, 1000),
                (2500, 1000),
                (64_000, 1000),
                (9, 1400),
            ] {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 / 5) as u8).collect();
                for joins in [true, false] {
                    let mut segments = SegmentSender::new().with_joining(joins);
                    let mut told = Vec::new();
                    let sent = segments.send(&sender, Some(&to), &bytes, size, |datagram| {
                        told.push(datagram.to_vec());
                    });
                    assert_eq!((sent.refused, sent.nobody_there), (0, false));
                    assert_eq!(segments.joins, joins, "loopback takes it");
                    let expected: Vec<_> = bytes.chunks(size).map(<[u8]>::to_vec).collect();
                    assert_eq!(told, expected);
                    assert_eq!(
                        received(&receiver),
                        expected,
                        "{local} {length} {size} {joins}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_connected_socket_says_that_nobody_is_there() {
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let gone = UdpSocket::bind("127.0.0.1:0").and_then(|gone| gone.local_addr());
        sender
            .connect(gone.expect("bound"))
            .expect("any address will do");
        let mut segments = SegmentSender::new();
        let mut send = |bytes| segments.send(&sender, None, bytes, 3, |_| {});
        assert!(!send(b"one").nobody_there);
        let second = send(b"two");
        assert_eq!((second.nobody_there, second.refused), (true, 0));
    }

    #[test]
    fn what_the_kernel_does_not_take_is_counted() {
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        // Broadcast that was not asked for is refused.
        let to = "127.255.255.255:9".parse::<std::net::SocketAddr>();
        let to: Address = to.expect("an address").into();
        for length in [2500, 1000] {
            let bytes = vec![0; length];
            let sent = SegmentSender::new().send(&sender, Some(&to), &bytes, 1000, |_| {
                panic!("it is refused");
            });
            assert_eq!(sent.refused, length.div_ceil(1000));
        }
    }
}

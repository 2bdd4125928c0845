//! Sends one contiguous buffer as one or several datagrams.

use std::io;
use std::os::fd::AsRawFd;

use super::send::{ATTEMPTS_MAX, Address, ControlMessages, GSO_PACKET_MIN};

/// Sends datagrams that are contiguous in memory and have the same length, except that the last may
/// be shorter. If they exceed an ordinary packet, the kernel splits them (GSO: `UDP_SEGMENT`,
/// udp(7)). If the kernel or the device refuses this, datagrams are sent separately from then on.
#[derive(Debug)]
pub struct GsoSender {
    gso: bool,
}

/// Result of [`GsoSender::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSummary {
    /// Datagrams that the kernel did not accept.
    pub refused: usize,
    /// True if the kernel reported that no socket has the peer's port (ECONNREFUSED, connected
    /// sockets only).
    pub connection_refused: bool,
}

impl Default for GsoSender {
    fn default() -> GsoSender {
        GsoSender::new()
    }
}

impl GsoSender {
    /// Returns a sender that uses GSO.
    pub fn new() -> GsoSender {
        GsoSender { gso: true }
    }

    /// Enables or disables GSO.
    pub fn with_gso(mut self, enabled: bool) -> GsoSender {
        self.gso = enabled;
        self
    }

    /// Sends `bytes` as datagrams of `size` bytes, to `to` or to the connected peer, and calls
    /// `on_sent` for each datagram that the kernel accepted. Never blocks: a datagram that does not
    /// fit into the socket's buffer is refused.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn send(
        &mut self,
        socket: &impl AsRawFd,
        to: Option<&Address>,
        bytes: &[u8],
        size: usize,
        mut on_sent: impl FnMut(&[u8]),
    ) -> SendSummary {
        let mut sent = SendSummary {
            refused: 0,
            connection_refused: false,
        };
        let mut gso_unsupported = false;
        if self.gso && bytes.len() > size.max(GSO_PACKET_MIN) {
            match send_with_retry(|| send_one(socket, to, bytes, Some(size)), &mut sent) {
                Ok(()) => {
                    bytes.chunks(size).for_each(on_sent);
                    return sent;
                }
                Err(error) => match error.raw_os_error() {
                    // The device does not support GSO, unless the address is the cause.
                    Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) => gso_unsupported = true,
                    // Each datagram is longer than the path MTU.
                    Some(libc::EMSGSIZE) => {}
                    _ => {
                        sent.refused = bytes.len().div_ceil(size);
                        return sent;
                    }
                },
            }
        }
        for datagram in bytes.chunks(size) {
            match send_with_retry(|| send_one(socket, to, datagram, None), &mut sent) {
                Ok(()) => on_sent(datagram),
                Err(_) => sent.refused += 1,
            }
        }
        if gso_unsupported && sent.refused == 0 {
            self.gso = false;
        }
        sent
    }
}

/// Retries if the error belongs to an earlier datagram, or if the call was interrupted.
fn send_with_retry(
    mut send: impl FnMut() -> io::Result<()>,
    sent: &mut SendSummary,
) -> io::Result<()> {
    let mut tries = 0;
    loop {
        let error = match send() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECONNREFUSED) => {
                sent.connection_refused = true;
                tries += 1;
                if tries == ATTEMPTS_MAX {
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
    let mut controls = ControlMessages::empty();
    // SAFETY: an all-zero message header is valid: no name, no buffers, no control messages.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some(to) = to {
        let (name, length) = to.raw();
        header.msg_name = name.cast_mut();
        header.msg_namelen = length;
    }
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    let size = size.map(|size| u16::try_from(size).unwrap_or(0));
    controls.fill(&mut header, size, to.and_then(Address::source));
    // SAFETY: the header points to an address, a buffer and possibly control messages, which live
    // until the call returns, each with its length; the kernel only reads them.
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
    fn one_buffer_arrives_as_datagrams_of_the_given_size() {
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
                    let mut segments = GsoSender::new().with_gso(joins);
                    let mut told = Vec::new();
                    let sent = segments.send(&sender, Some(&to), &bytes, size, |datagram| {
                        told.push(datagram.to_vec());
                    });
                    assert_eq!((sent.refused, sent.connection_refused), (0, false));
                    assert_eq!(segments.gso, joins, "loopback takes it");
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
    fn connected_socket_reports_connection_refused() {
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let gone = UdpSocket::bind("127.0.0.1:0").and_then(|gone| gone.local_addr());
        sender
            .connect(gone.expect("bound"))
            .expect("any address will do");
        let mut segments = GsoSender::new();
        let mut send = |bytes| segments.send(&sender, None, bytes, 3, |_| {});
        assert!(!send(b"one").connection_refused);
        let second = send(b"two");
        assert_eq!((second.connection_refused, second.refused), (true, 0));
    }

    #[test]
    fn refused_datagrams_are_counted() {
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        // Broadcast is refused unless the socket enabled it.
        let to = "127.255.255.255:9".parse::<std::net::SocketAddr>();
        let to: Address = to.expect("an address").into();
        for length in [2500, 1000] {
            let bytes = vec![0; length];
            let sent = GsoSender::new().send(&sender, Some(&to), &bytes, 1000, |_| {
                panic!("it is refused");
            });
            assert_eq!(sent.refused, length.div_ceil(1000));
        }
    }
}

//! Sending: `sendmmsg`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::SockAddr;

/// How many datagrams one call sends.
const SEND_COUNT: usize = 64;

/// Sends datagrams in batches: each a short header of its own and a payload that may be shared.
pub struct SendBatch<P> {
    entries: Vec<Entry<P>>,
}

struct Entry<P> {
    to: SockAddr,
    header: [u8; 12],
    payload: P,
}

impl<P: AsRef<[u8]>> Default for SendBatch<P> {
    fn default() -> SendBatch<P> {
        SendBatch::new()
    }
}

impl<P: AsRef<[u8]>> SendBatch<P> {
    /// An empty batch.
    pub fn new() -> SendBatch<P> {
        SendBatch {
            entries: Vec::with_capacity(SEND_COUNT),
        }
    }

    /// Adds a datagram; says whether the batch is full and has to be sent.
    pub fn push(&mut self, to: SocketAddr, header: [u8; 12], payload: P) -> bool {
        self.entries.push(Entry {
            to: to.into(),
            header,
            payload,
        });
        self.entries.len() >= SEND_COUNT
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all, and tells of each that it has not left.
    pub fn discard(&mut self, mut left: impl FnMut(bool)) {
        self.entries.drain(..).for_each(|_| left(false));
    }

    /// Sends all, and tells of each in order whether it left. A datagram that the kernel refuses (no
    /// room, nobody there) is not tried again, and does not keep back those after it.
    pub fn send(&mut self, socket: &impl AsRawFd, mut left: impl FnMut(bool)) {
        let mut begin = 0;
        while begin < self.entries.len() {
            match self.send_from(socket, begin) {
                Ok(sent) => {
                    (0..sent).for_each(|_| left(true));
                    begin += sent;
                }
                // A socket reports the ICMP error of an earlier datagram at the next send, which has
                // then not been tried: once more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    left(false);
                    begin += 1;
                }
            }
        }
        self.entries.clear();
    }

    fn send_from(&self, socket: &impl AsRawFd, begin: usize) -> io::Result<usize> {
        let entries = &self.entries[begin..self.entries.len().min(begin + SEND_COUNT)];
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut iovecs = [[none; 2]; SEND_COUNT];
        // SAFETY: message headers of zeroes are valid ones: no name, no buffers, no control.
        let mut headers: [libc::mmsghdr; SEND_COUNT] = unsafe { std::mem::zeroed() };
        for ((entry, iovec), header) in entries.iter().zip(&mut iovecs).zip(&mut headers) {
            let payload = entry.payload.as_ref();
            iovec[0] = libc::iovec {
                iov_base: entry.header.as_ptr().cast_mut().cast(),
                iov_len: entry.header.len(),
            };
            iovec[1] = libc::iovec {
                iov_base: payload.as_ptr().cast_mut().cast(),
                iov_len: payload.len(),
            };
            header.msg_hdr.msg_name = entry.to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = entry.to.len();
            header.msg_hdr.msg_iov = iovec.as_mut_ptr();
            header.msg_hdr.msg_iovlen = 2;
        }
        // SAFETY: every header points to an address and two buffers that live until after the call,
        // with their lengths; the kernel only reads from them.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                libc::c_uint::try_from(entries.len()).expect("at most the batch"),
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

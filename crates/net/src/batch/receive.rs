//! Batched receiving: `recvmmsg`, with control messages for each datagram's arrival time and the
//! number of dropped datagrams.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use measure::Time;
use socket2::SockAddr;

use crate::clock::Clock;

/// Maximum number of datagrams per call.
const RECEIVE_COUNT: usize = 64;

/// Bytes kept of each datagram. Media datagrams of real servers are shorter than 1500 bytes; the
/// true length of a longer datagram is still known.
const RECEIVE_BYTES: usize = 2048;

/// Limits of a batch of whole datagrams. The longest datagram has 65,535 bytes with its headers.
const WHOLE_COUNT: usize = 16;
const WHOLE_BYTES: usize = 1 << 16;

/// Space for the control messages: a timestamp (32 bytes with its header), a drop count (24), and a
/// destination address (at most 40).
const CONTROL_BYTES: usize = 128;

/// Aligned as the kernel requires for control messages.
#[repr(align(8))]
#[derive(Clone)]
struct Control([u8; CONTROL_BYTES]);

/// Receives datagrams in batches. Each worker has one and uses it for all its sockets.
///
/// The kernel's structures are linked once: most calls receive one or two datagrams, and would
/// otherwise spend more time on headers than on receiving.
pub struct ReceiveBatch {
    /// One buffer of `buffer_bytes` bytes per datagram.
    buffers: Vec<u8>,
    buffer_bytes: usize,
    names: Vec<MaybeUninit<libc::sockaddr_storage>>,
    headers: Vec<libc::mmsghdr>,
    /// Only referenced by pointers in `headers`, like `_iovecs`.
    _controls: Vec<Control>,
    _iovecs: Vec<libc::iovec>,
    received: Vec<Received>,
}

#[derive(Clone, Copy)]
struct Received {
    length: usize,
    from: Option<SocketAddr>,
    to: Option<IpAddr>,
    at: Option<i64>,
}

/// A datagram of a [`ReceiveBatch`].
#[derive(Clone, Copy, Debug)]
pub struct ReceivedDatagram<'a> {
    pub from: SocketAddr,
    /// Destination address, if requested for the socket
    /// ([`enable_destination_address`](crate::options::enable_destination_address)).
    pub to: Option<IpAddr>,
    /// First bytes, at most 2048; all bytes in a batch of whole datagrams.
    pub bytes: &'a [u8],
    /// Length of the datagram, even if `bytes` is shorter.
    pub length: usize,
    /// Kernel arrival time; the current time if the kernel gave none.
    pub at: Time,
}

impl Default for ReceiveBatch {
    fn default() -> ReceiveBatch {
        ReceiveBatch::new()
    }
}

impl ReceiveBatch {
    /// Returns an empty batch of about 150 KiB.
    pub fn new() -> ReceiveBatch {
        ReceiveBatch::with_buffers(RECEIVE_COUNT, RECEIVE_BYTES)
    }

    /// Returns an empty batch for whole datagrams: 1 MiB, of which only pages that were ever filled
    /// are resident.
    pub fn whole() -> ReceiveBatch {
        ReceiveBatch::with_buffers(WHOLE_COUNT, WHOLE_BYTES)
    }

    /// Returns an empty batch for many whole datagrams: 4 MiB, of which only pages that were ever
    /// filled are resident.
    pub fn bulk() -> ReceiveBatch {
        ReceiveBatch::with_buffers(RECEIVE_COUNT, WHOLE_BYTES)
    }

    fn with_buffers(count: usize, buffer_bytes: usize) -> ReceiveBatch {
        let mut buffers = vec![0; count * buffer_bytes];
        let mut controls = vec![Control([0; CONTROL_BYTES]); count];
        let mut names: Vec<MaybeUninit<libc::sockaddr_storage>> =
            vec![MaybeUninit::zeroed(); count];
        let mut iovecs: Vec<libc::iovec> = buffers
            .chunks_exact_mut(buffer_bytes)
            .map(|buffer| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: buffer_bytes,
            })
            .collect();
        let parts = iovecs.iter_mut().zip(&mut controls).zip(&mut names);
        let headers = parts
            .map(|((iovec, control), name)| {
                // SAFETY: an all-zero message header is valid: no name, no buffers, no control
                // messages.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_name = name.as_mut_ptr().cast();
                header.msg_hdr.msg_iov = iovec;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
                reset_lengths(&mut header);
                header
            })
            .collect();
        ReceiveBatch {
            buffers,
            buffer_bytes,
            names,
            headers,
            _controls: controls,
            _iovecs: iovecs,
            received: Vec::with_capacity(count),
        }
    }

    /// Receives the socket's queued datagrams, at most a full batch, without blocking. Fails with
    /// `WouldBlock` if there are none.
    pub fn receive(&mut self, socket: &impl AsRawFd) -> io::Result<ReceiveSummary> {
        for header in self.headers.iter_mut().take(self.received.len()) {
            reset_lengths(header);
        }
        self.received.clear();
        // SAFETY: every header points to its own name, buffer and control area, which belong to
        // this batch, are never moved or resized, and have the given lengths; nothing else accesses
        // them during the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(io::Error::last_os_error());
        };
        let mut drops = None;
        for (index, header) in self.headers.iter().enumerate().take(count) {
            let told = read_control(&header.msg_hdr);
            drops = told.drops.or(drops);
            // SAFETY: the kernel wrote `msg_namelen` bytes of the name, whose first bytes hold its
            // family; the name was zeroed before.
            let name = unsafe {
                SockAddr::new(
                    std::mem::transmute_copy(self.names[index].assume_init_ref()),
                    header.msg_hdr.msg_namelen,
                )
            };
            self.received.push(Received {
                length: header.msg_len as usize,
                from: name.as_socket(),
                to: told.to,
                at: told.at,
            });
        }
        Ok(ReceiveSummary {
            count,
            more: count == self.headers.len(),
            drops,
        })
    }

    /// Iterates over the datagrams of the last [`ReceiveBatch::receive`], in order of arrival.
    pub fn datagrams<'a>(
        &'a self,
        clock: &'a Clock,
    ) -> impl Iterator<Item = ReceivedDatagram<'a>> + 'a {
        self.received
            .iter()
            .zip(self.buffers.chunks_exact(self.buffer_bytes))
            .filter_map(|(received, buffer)| {
                Some(ReceivedDatagram {
                    from: received.from?,
                    to: received.to,
                    bytes: &buffer[..received.length.min(buffer.len())],
                    length: received.length,
                    at: received
                        .at
                        .map_or_else(|| clock.now(), |nanos| clock.from_realtime(nanos)),
                })
            })
    }
}

/// Result of [`ReceiveBatch::receive`].
#[derive(Clone, Copy, Debug)]
pub struct ReceiveSummary {
    /// Number of datagrams received.
    pub count: usize,
    /// True if the batch was filled, so that the socket may hold more.
    pub more: bool,
    /// Datagrams that the kernel dropped for this socket since it was opened, if it reported them.
    pub drops: Option<u32>,
}

/// Sets a header's lengths to the space available; the kernel overwrites them with the space used.
fn reset_lengths(header: &mut libc::mmsghdr) {
    header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
    header.msg_hdr.msg_flags = 0;
}

/// Contents of the control messages of a datagram, or of bytes of a connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct ControlData {
    pub(crate) at: Option<i64>,
    drops: Option<u32>,
    to: Option<IpAddr>,
}

/// Reads the control messages of a header that the kernel filled in.
pub(crate) fn read_control(header: &libc::msghdr) -> ControlData {
    let mut told = ControlData::default();
    // SAFETY: the kernel filled in `header`, so its control area holds whole control messages in
    // `msg_controllen` bytes; the CMSG functions stay within them, and each payload is read,
    // unaligned, as the type that belongs to its level and kind.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    told.at = Some(time.tv_sec * 1_000_000_000 + time.tv_nsec);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    told.drops = Some(data.cast::<u32>().read_unaligned());
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let to = data.cast::<libc::in_pktinfo>().read_unaligned();
                    told.to = Some(to.ipi_addr.s_addr.to_ne_bytes().into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let to = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    told.to = Some(to.ipi6_addr.s6_addr.into());
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Address, GsoSender, SendBatch};
    use crate::ports;

    fn socket() -> std::net::UdpSocket {
        ports::bind("127.0.0.1:0".parse().expect("an address"), 0).expect("a free port")
    }

    #[test]
    fn datagrams_keep_order_length_sender_and_time() {
        let (sender, receiver) = (socket(), socket());
        let clock = Clock::start();
        let to = receiver.local_addr().expect("bound");
        let mut batch = SendBatch::new();
        for number in 0..50u8 {
            batch.push(
                to.into(),
                &[number; 12],
                vec![number; if number == 7 { 9000 } else { 100 }],
            );
        }
        let mut sent = 0;
        batch.send(&sender, &clock, |_, at| sent += usize::from(at.is_some()));
        assert_eq!(sent, 50);
        let mut receive = ReceiveBatch::new();
        let filled = receive
            .receive(&receiver)
            .expect("they are there: loopback delivers in the call");
        assert_eq!((filled.count, filled.more), (50, false));
        for (number, datagram) in receive.datagrams(&clock).enumerate() {
            assert_eq!(usize::from(datagram.bytes[0]), number);
            assert_eq!(datagram.length, if number == 7 { 9012 } else { 112 });
            assert_eq!(datagram.from, sender.local_addr().expect("bound"));
            assert!(datagram.at <= clock.now() + std::time::Duration::from_millis(1));
        }
        let empty = receive.receive(&receiver).expect_err("nothing left");
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn whole_batch_receives_the_longest_datagram() {
        let (sender, receiver) = (socket(), socket());
        let to = receiver.local_addr().expect("bound");
        // The longest payload over IPv4.
        let longest: Vec<u8> = (0..65_507u32).map(|number| (number % 251) as u8).collect();
        sender.send_to(&longest, to).expect("loopback takes it");
        let mut receive = ReceiveBatch::whole();
        receive.receive(&receiver).expect("loopback has delivered");
        let clock = Clock::start();
        let received: Vec<&[u8]> = receive.datagrams(&clock).map(|d| d.bytes).collect();
        assert_eq!(received, [&longest[..]]);
    }

    #[test]
    fn replies_use_the_requested_source_address() {
        for (all, asked) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "::1")] {
            let server = ports::bind(all.parse().expect("an address"), 0).expect("a free port");
            crate::options::enable_destination_address(&server).expect("linux tells");
            let asked: IpAddr = asked.parse().expect("an address");
            let port = server.local_addr().expect("bound").port();
            let local = match asked {
                IpAddr::V4(_) => "127.0.0.1:0",
                IpAddr::V6(_) => "[::1]:0",
            };
            let client = std::net::UdpSocket::bind(local).expect("a free port");
            // A connected socket receives from this address only.
            client.connect((asked, port)).expect("any address will do");
            client.set_nonblocking(true).expect("linux can");
            client.send(b"asks").expect("loopback takes it");
            let clock = Clock::start();
            let mut receive = ReceiveBatch::new();
            receive.receive(&server).expect("loopback has delivered");
            let came: Vec<_> = receive.datagrams(&clock).map(|d| (d.from, d.to)).collect();
            let from = client.local_addr().expect("bound");
            assert_eq!(came, [(from, Some(asked))]);
            let to = Address::from(from).with_source(Some(asked));
            let heard = || {
                let mut room = [0; 2000];
                std::iter::from_fn(|| client.recv(&mut room).ok()).collect::<Vec<_>>()
            };
            // A single datagram, and several in one GSO send.
            for (length, expected) in [(900, vec![900]), (2900, vec![1000, 1000, 900])] {
                let sent =
                    GsoSender::new().send(&server, Some(&to), &vec![7; length], 1000, |_| {});
                assert_eq!((sent.refused, heard()), (0, expected.clone()));
                let mut batch = SendBatch::new();
                for &length in &expected {
                    batch.push(to, &[], vec![7; length]);
                }
                batch.send(&server, &clock, |_, left| assert!(left.is_some()));
                assert_eq!(heard(), expected);
            }
            // Datagrams with another source address are sent separately and do not reach this
            // client.
            if asked.is_ipv4() {
                let other = to.with_source(Some([127, 0, 0, 3].into()));
                let mut batch = SendBatch::new();
                for to in [to, other] {
                    batch.push(to, &[], vec![7; 1000]);
                }
                batch.send(&server, &clock, |_, left| assert!(left.is_some()));
                assert_eq!(heard(), [1000]);
            }
        }
    }

    #[test]
    fn kernel_drops_are_reported() {
        let sender = socket();
        let receiver =
            ports::bind("127.0.0.1:0".parse().expect("an address"), 4096).expect("a free port");
        let to = receiver.local_addr().expect("bound");
        for _ in 0..200 {
            sender.send_to(&[0; 1000], to).expect("loopback takes it");
        }
        let mut receive = ReceiveBatch::new();
        let mut kept = 0;
        while let Ok(filled) = receive.receive(&receiver) {
            kept += filled.count;
        }
        let dropped = crate::options::drops(&receiver).expect("linux tells");
        assert!(dropped > 0);
        assert_eq!(kept + dropped as usize, 200);
    }
}

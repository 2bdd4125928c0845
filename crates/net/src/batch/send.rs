//! Batched sending: `sendmmsg`, and segmentation by the kernel (GSO: `UDP_SEGMENT`) where it pays.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use measure::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock::Clock;

/// Maximum number of datagrams per call.
pub const SEND_COUNT: usize = 64;

/// Datagrams are combined for GSO only if the whole IP packet is longer than this. A capture on
/// this machine sees the combined packet and recognises it by its length: a packet of up to 1600
/// bytes may be an ordinary one.
pub(super) const GSO_PACKET_MIN: usize = 1600;

/// Maximum combined payload: the length of an IP packet has 16 bits, headers included.
const GSO_PAYLOAD_MAX: usize = 65_000;

/// Maximum wait for space in the socket's buffer: longer than a network card takes to send one
/// buffer, and short enough not to delay the next batch.
const BUFFER_WAIT_MAX: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// Attempts per datagram while the socket reports the error of an earlier datagram.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// Destination of datagrams, in the kernel's format.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    name: Name,
    /// True if the socket is connected to this address.
    connected: bool,
    /// Source address; `None` if the kernel chooses it.
    source: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug)]
enum Name {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        let name = match address {
            SocketAddr::V4(v4) => Name::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Name::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        };
        Address {
            name,
            connected: false,
            source: None,
        }
    }
}

impl Address {
    /// Declares that the socket is connected to this address. Datagrams then carry no address,
    /// which saves the kernel a route lookup for each (udp(7)).
    pub fn connected(self) -> Address {
        Address {
            connected: true,
            ..self
        }
    }

    /// Sets the source address, for a socket bound to the unspecified address.
    pub fn with_source(self, source: Option<IpAddr>) -> Address {
        Address { source, ..self }
    }

    pub(super) fn raw(&self) -> (*const libc::c_void, libc::socklen_t) {
        match &self.name {
            _ if self.connected => (std::ptr::null(), 0),
            Name::V4(name) => (
                std::ptr::from_ref(name).cast(),
                size_of::<libc::sockaddr_in>() as libc::socklen_t,
            ),
            Name::V6(name) => (
                std::ptr::from_ref(name).cast(),
                size_of::<libc::sockaddr_in6>() as libc::socklen_t,
            ),
        }
    }

    fn is_same(&self, other: &Address) -> bool {
        let is_same_name = match (&self.name, &other.name) {
            (Name::V4(a), Name::V4(b)) => {
                a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr
            }
            (Name::V6(a), Name::V6(b)) => {
                a.sin6_port == b.sin6_port
                    && a.sin6_scope_id == b.sin6_scope_id
                    && a.sin6_flowinfo == b.sin6_flowinfo
                    && a.sin6_addr.s6_addr == b.sin6_addr.s6_addr
            }
            _ => false,
        };
        is_same_name && self.source == other.source
    }

    /// Source address, or `None` if the kernel chooses it.
    pub(super) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Length of the IP and UDP headers.
    fn overhead(&self) -> usize {
        match self.name {
            Name::V4(_) => 28,
            Name::V6(_) => 48,
        }
    }
}

/// Control messages of an outgoing message, in this order: segment size, and source address.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ControlMessages {
    segment: SegmentControl,
    source: SourceControl,
}

/// Control message with a header and a length of two bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct SegmentControl {
    header: libc::cmsghdr,
    size: u16,
    /// `CMSG_SPACE` rounds up to the header's alignment.
    padding: [u8; 6],
}

/// Control message with a header, the interface and the address: `in_pktinfo` or `in6_pktinfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SourceControl {
    header: libc::cmsghdr,
    data: [u8; SOURCE_MAX],
}

/// The longer of the two, rounded up to the header's alignment.
const SOURCE_MAX: usize = size_of::<libc::in6_pktinfo>().next_multiple_of(8);

impl ControlMessages {
    /// Returns empty control messages; [`ControlMessages::fill`] fills them in.
    pub(super) fn empty() -> ControlMessages {
        let header = control_header(0, 0, 0);
        ControlMessages {
            segment: SegmentControl {
                header,
                size: 0,
                padding: [0; 6],
            },
            source: SourceControl {
                header,
                data: [0; SOURCE_MAX],
            },
        }
    }

    /// Fills in the segment size and the source address, if given, and points `message` to them.
    /// `self` must not move before the message is sent.
    pub(super) fn fill(
        &mut self,
        message: &mut libc::msghdr,
        size: Option<u16>,
        source: Option<IpAddr>,
    ) {
        let header = |level, kind, data| {
            // `CMSG_LEN(data)`
            control_header(level, kind, size_of::<libc::cmsghdr>() + data)
        };
        let mut length = 0;
        if let Some(size) = size {
            let kind = libc::UDP_SEGMENT;
            self.segment.header = header(libc::SOL_UDP, kind, size_of::<u16>());
            self.segment.size = size;
            length += size_of::<SegmentControl>();
        }
        if let Some(source) = source {
            // Interface 0 leaves the choice to the kernel. The source address follows it in
            // `in_pktinfo` (`ipi_spec_dst`), and precedes it in `in6_pktinfo`.
            self.source.data = [0; SOURCE_MAX];
            let bytes = match source {
                IpAddr::V4(source) => {
                    let bytes = size_of::<libc::in_pktinfo>();
                    self.source.header = header(libc::IPPROTO_IP, libc::IP_PKTINFO, bytes);
                    self.source.data[4..8].copy_from_slice(&source.octets());
                    bytes
                }
                IpAddr::V6(source) => {
                    let bytes = size_of::<libc::in6_pktinfo>();
                    self.source.header = header(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, bytes);
                    self.source.data[..16].copy_from_slice(&source.octets());
                    bytes
                }
            };
            // `CMSG_SPACE(bytes)`
            length += size_of::<libc::cmsghdr>() + bytes.next_multiple_of(8);
        }
        message.msg_controllen = length as _;
        message.msg_control = match (size, source) {
            (None, None) => std::ptr::null_mut(),
            (None, Some(_)) => std::ptr::from_mut(&mut self.source).cast(),
            // Points to the whole struct, so that the kernel may read the second message too.
            (Some(_), _) => std::ptr::from_mut(self).cast(),
        };
    }
}

/// Header of a control message of this length.
fn control_header(level: libc::c_int, kind: libc::c_int, length: usize) -> libc::cmsghdr {
    // SAFETY: an all-zero header is valid. In musl it has padding, which the kernel takes for a
    // part of the length.
    let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
    header.cmsg_len = length as _;
    header.cmsg_level = level;
    header.cmsg_type = kind;
    header
}

/// Sends datagrams in batches. Each datagram has a short header of its own and a payload that may
/// be shared.
///
/// Consecutive datagrams with the same destination and the same length (the last may be shorter)
/// are passed to the kernel as one, if together they are larger than any ordinary packet. The
/// kernel splits them after they passed the network stack (GSO: `UDP_SEGMENT`, udp(7)). The
/// receiver gets the same datagrams. If the kernel or the device refuses this, datagrams are sent
/// separately from then on.
pub struct SendBatch<P> {
    entries: Vec<Entry<P>>,
    /// Arguments of the next system call, rebuilt for each.
    messages: Vec<Message>,
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
    controls: Vec<ControlMessages>,
    gso: bool,
}

/// Maximum length of a datagram's own header.
const HEADER_MAX: usize = 40;

struct Entry<P> {
    to: Address,
    header: [u8; HEADER_MAX],
    header_length: usize,
    payload: P,
    length: usize,
}

/// Consecutive entries that form one message of `sendmmsg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    begin: usize,
    count: usize,
}

impl<P: AsRef<[u8]>> Default for SendBatch<P> {
    fn default() -> SendBatch<P> {
        SendBatch::new()
    }
}

impl<P: AsRef<[u8]>> SendBatch<P> {
    /// Returns an empty batch of about 20 KiB.
    pub fn new() -> SendBatch<P> {
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        SendBatch {
            entries: Vec::with_capacity(SEND_COUNT),
            messages: Vec::with_capacity(SEND_COUNT),
            // SAFETY: all-zero message headers are valid: no name, no buffers, no control messages.
            headers: vec![unsafe { std::mem::zeroed() }; SEND_COUNT],
            iovecs: vec![none; 2 * SEND_COUNT],
            controls: vec![ControlMessages::empty(); SEND_COUNT],
            gso: true,
        }
    }

    /// Enables or disables GSO. Default: enabled.
    pub fn with_gso(mut self, enabled: bool) -> SendBatch<P> {
        self.gso = enabled;
        self
    }

    /// Adds a datagram.
    ///
    /// # Panics
    /// If the batch is full, or if the header is longer than 40 bytes.
    pub fn push(&mut self, to: Address, header: &[u8], payload: P) {
        assert!(!self.is_full(), "a full batch has to be sent first");
        let mut own = [0; HEADER_MAX];
        own[..header.len()].copy_from_slice(header);
        let length = header.len() + payload.as_ref().len();
        self.entries.push(Entry {
            to,
            header: own,
            header_length: header.len(),
            payload,
            length,
        });
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns `true` if the batch must be sent before another datagram is added.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= SEND_COUNT
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sends all datagrams and empties the batch. Calls `on_sent` for each, in the order of
    /// addition, with the times right before and after the system call that accepted it, or with
    /// `None` if the kernel refused it (no buffer space, no route). A refused datagram is not
    /// retried and does not block later ones. If the socket's buffer is full, the call waits up to
    /// one millisecond for space, but only once.
    ///
    /// Returns `true` if the kernel reported ECONNREFUSED for a connected socket. It does so only
    /// once, so no other call sees the error.
    pub fn send(
        &mut self,
        socket: &impl AsRawFd,
        clock: &Clock,
        mut on_sent: impl FnMut(usize, Option<(Time, Time)>),
    ) -> bool {
        let mut connection_refused = false;
        self.messages.clear();
        self.build_messages(0, 0);
        let (mut next, mut tries, mut waited) = (0, 0, false);
        while next < self.messages.len() {
            let at = clock.now();
            let error = match self.send_from(socket, next) {
                Ok(sent) => {
                    let times = Some((at, clock.now()));
                    for message in &self.messages[next..next + sent] {
                        let entries = message.begin..message.begin + message.count;
                        entries.for_each(|index| on_sent(index, times));
                    }
                    next += sent;
                    tries = 0;
                    continue;
                }
                Err(error) => error,
            };
            let message = self.messages[next];
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                // A socket reports the ICMP error of an earlier datagram at the next send, and does
                // not attempt that send.
                Some(libc::ECONNREFUSED) => {
                    connection_refused = true;
                    if tries < ATTEMPTS_MAX {
                        tries += 1;
                        continue;
                    }
                }
                // The device or the kernel does not support GSO: from now on, datagrams are sent
                // separately.
                Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) if message.count > 1 => {
                    self.gso = false;
                    self.messages.truncate(next);
                    self.build_messages(message.begin, 0);
                    continue;
                }
                // Longer than the path MTU: sent separately, the datagrams may be fragmented.
                Some(libc::EMSGSIZE) if message.count > 1 => {
                    self.messages.truncate(next);
                    self.build_messages(message.begin, message.begin + message.count);
                    continue;
                }
                Some(libc::EAGAIN) if !waited => {
                    waited = true;
                    wait_for_buffer_space(socket);
                    continue;
                }
                _ => {}
            }
            (message.begin..message.begin + message.count).for_each(|index| on_sent(index, None));
            next += 1;
            tries = 0;
        }
        self.entries.clear();
        connection_refused
    }

    /// Builds messages from the entries from `begin` on. Entries before `combine_from` are sent
    /// separately.
    fn build_messages(&mut self, mut begin: usize, combine_from: usize) {
        while begin < self.entries.len() {
            let count = if self.gso && begin >= combine_from {
                count_combinable(&self.entries[begin..])
            } else {
                1
            };
            let index = self.messages.len();
            let entries = &self.entries[begin..begin + count];
            let iovecs = &mut self.iovecs[2 * begin..2 * (begin + count)];
            for (entry, iovec) in entries.iter().zip(iovecs.chunks_exact_mut(2)) {
                let payload = entry.payload.as_ref();
                iovec[0].iov_base = entry.header.as_ptr().cast_mut().cast();
                iovec[0].iov_len = entry.header_length;
                iovec[1].iov_base = payload.as_ptr().cast_mut().cast();
                iovec[1].iov_len = payload.len();
            }
            let header = &mut self.headers[index].msg_hdr;
            let (name, length) = entries[0].to.raw();
            header.msg_name = name.cast_mut();
            header.msg_namelen = length;
            header.msg_iov = iovecs.as_mut_ptr();
            header.msg_iovlen = iovecs.len() as _;
            let size = (count > 1)
                .then(|| u16::try_from(entries[0].length).expect("less than is combined"));
            self.controls[index].fill(header, size, entries[0].to.source);
            self.messages.push(Message { begin, count });
            begin += count;
        }
    }

    fn send_from(&mut self, socket: &impl AsRawFd, first: usize) -> io::Result<usize> {
        let headers = &mut self.headers[first..self.messages.len()];
        // SAFETY: `build_messages` built every header after entries were last added. Each header
        // points to an address and to buffers, in entries that are neither moved nor dropped before
        // the call returns, and possibly to its own control messages, all with their lengths; the
        // kernel only reads them.
        // Not `libc::sendmmsg`: that of musl makes a call for each message.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                libc::c_long::from(socket.as_raw_fd()),
                headers.as_mut_ptr(),
                headers.len(),
                libc::c_long::from(libc::MSG_DONTWAIT),
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Returns how many entries, from the first on, can be combined into one message.
fn count_combinable<P>(entries: &[Entry<P>]) -> usize {
    let first = &entries[0];
    let (mut count, mut total) = (1, first.length);
    for entry in &entries[1..] {
        if entry.length > first.length
            || total + entry.length > GSO_PAYLOAD_MAX
            || !entry.to.is_same(&first.to)
        {
            break;
        }
        count += 1;
        total += entry.length;
        if entry.length < first.length {
            break;
        }
    }
    if total + first.to.overhead() > GSO_PACKET_MIN {
        count
    } else {
        1
    }
}

fn wait_for_buffer_space(socket: &impl AsRawFd) {
    // SAFETY: the socket is borrowed, and therefore open, for longer than this.
    let fd = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    // The next attempt finds out whether there is space.
    let _ = poll(
        &mut [PollFd::new(&fd, PollFlags::OUT)],
        Some(&BUFFER_WAIT_MAX),
    );
}

#[cfg(test)]
mod tests;

//! Socket options that no safe crate offers.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use socket2::{SockFilter, SockRef};

use crate::ring::filter::{ABOVE, Label, Program, UDP_BYTES, WHOLE, assemble};

/// Value of options that are switched on.
pub(crate) const ON: libc::c_int = 1;

/// Requests the kernel's arrival time and the count of dropped datagrams with each datagram
/// (`SO_TIMESTAMPNS`, `SO_RXQ_OVFL`; socket(7)).
pub fn enable_timestamps_and_drop_counts(socket: &impl AsRawFd) -> io::Result<()> {
    enable_timestamps(socket)?;
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &ON)
}

/// Requests the kernel's arrival time (`SO_TIMESTAMPNS`; socket(7)).
pub(crate) fn enable_timestamps(socket: &impl AsRawFd) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &ON)
}

/// Requests the destination address of each datagram (`IP_PKTINFO`, ip(7); `IPV6_RECVPKTINFO`, RFC
/// 3542, 6.1). A socket bound to the unspecified address needs it to reply from the right address.
///
/// # Errors
/// The operating system's error.
pub fn enable_destination_address(socket: &UdpSocket) -> io::Result<()> {
    let (level, name) = match socket.local_addr()? {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    set(socket.as_raw_fd(), level, name, &ON)
}

/// Number of datagrams that the kernel dropped since the socket was opened, because its buffer was
/// full or because of its filter ([`drop_all`]). Source: `SO_MEMINFO`, `SK_MEMINFO_DROPS`. Wraps
/// around.
pub fn drops(socket: &impl AsRawFd) -> io::Result<u32> {
    // The kernel's order: RMEM_ALLOC, RCVBUF, WMEM_ALLOC, SNDBUF, FWD_ALLOC, WMEM_QUEUED, OPTMEM,
    // BACKLOG, DROPS (linux/sock_diag.h).
    const SO_MEMINFO: libc::c_int = 55;
    const DROPS: usize = 8;
    let values: [u32; 9] = get(socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO)?;
    Ok(values[DROPS])
}

/// Drops every datagram that arrives at this UDP socket (BPF: `ret 0`; `SO_ATTACH_FILTER`). The
/// socket holds its port, can send, and keeps the kernel from answering with ICMP; but the kernel
/// queues nothing and wakes no thread.
///
/// These datagrams count in [`drops`] and in the machine's `Udp: InErrors` (not in `RcvbufErrors`).
///
/// # Errors
/// The operating system's error.
pub fn drop_all(socket: &impl AsFd) -> io::Result<()> {
    let refuse = (libc::BPF_RET | libc::BPF_K) as u16;
    SockRef::from(socket).attach_filter(&[SockFilter::new(refuse, 0, 0, 0)])
}

/// Selects the datagrams that a socket drops: see [`drop_matching`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRule {
    /// Smallest and largest first byte of datagrams that are dropped.
    pub first_byte: [u8; 2],
    /// Smallest and largest second byte of datagrams that are delivered nevertheless.
    pub except_second_byte: Option<[u8; 2]>,
}

/// Drops the datagrams whose first bytes match `rule` when they arrive at this UDP socket
/// (`SO_ATTACH_FILTER`). All others are delivered, including empty ones.
///
/// Dropped datagrams count in [`drops`], as with [`drop_all`].
///
/// # Errors
/// The operating system's error.
pub fn drop_matching(socket: &impl AsFd, rule: DropRule) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&drop_filter(rule))
}

/// Returns the filter of [`drop_matching`]. It sees a datagram from its UDP header on. A load
/// beyond the end would drop the datagram, so the length is checked before each load.
fn drop_filter(rule: DropRule) -> Vec<SockFilter> {
    let mut program = Program::default();
    let mut examine = |at: u32, [least, greatest]: [u8; 2], other, above, within| {
        program.load_length();
        program.at_least(UDP_BYTES + at + 1, other);
        program.load(libc::BPF_B, UDP_BYTES + at);
        program.at_least(least.into(), other);
        program.branch(ABOVE, greatest.into(), above, within);
    };
    let (pass, refuse) = (Label::KeepAll, Label::Refuse);
    examine(0, rule.first_byte, pass, Some(pass), None);
    if let Some(bounds) = rule.except_second_byte {
        examine(1, bounds, refuse, Some(refuse), Some(pass));
    }
    program.set_label(refuse);
    program.push(libc::BPF_RET | libc::BPF_K, 0);
    program.set_label(pass);
    program.push(libc::BPF_RET | libc::BPF_K, WHOLE);
    assemble(&program.finish())
}

/// Delays the readiness of a connection until it has `bytes` bytes to read, or as many as its
/// buffer holds; its end is reported at once (`SO_RCVLOWAT`; socket(7)). A read still returns
/// whatever there is. Default: 1.
///
/// # Errors
/// The operating system's error.
pub fn set_receive_low_water(socket: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let fd = socket.as_raw_fd();
    set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes)
}

/// Limits the unsent bytes of a connection: while the kernel holds `bytes` of them, it accepts no
/// more (`TCP_NOTSENT_LOWAT`; tcp(7)). Default: as many as its send buffer has space for.
///
/// # Errors
/// The operating system's error.
pub fn set_unsent_low_water(socket: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let fd = socket.as_raw_fd();
    set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes)
}

/// Maximum delay of an acknowledgement, in microseconds (`TCP_DELACK_MAX_US`, linux/tcp.h; Linux
/// 6.15).
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// Limits the delay of acknowledgements on a connection to two ticks of the kernel's clock: 2, 8 or
/// 20 ms, depending on how the kernel is built. Default: 40 ms and more, while received bytes are
/// not read.
///
/// # Errors
/// The operating system's error if it is older than Linux 6.15.
pub fn limit_ack_delay(socket: &impl AsRawFd) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let set_to = |us: libc::c_int| set(fd, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, &us);
    // The kernel refuses less than two ticks.
    set_to(2000)
        .or_else(|_| set_to(8000))
        .or_else(|_| set_to(20_000))
}

/// Size of a socket's receive buffer as the kernel counts it, with its own overhead for each
/// datagram (`SO_RCVBUF`; socket(7)).
///
/// # Errors
/// The operating system's error.
pub fn receive_buffer(socket: &impl AsFd) -> io::Result<usize> {
    SockRef::from(socket).recv_buffer_size()
}

/// Makes the kernel choose the port when the socket is connected, instead of when it is bound to an
/// address (`IP_BIND_ADDRESS_NO_PORT`; ip(7)).
///
/// # Errors
/// The operating system's error.
pub fn choose_port_on_connect(socket: &impl AsRawFd) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    set(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &ON)
}

/// Sets an option of a socket. `T` is the kernel's type for it, without a pointer.
pub(crate) fn set<T>(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for reads of `length` bytes for the duration of the call; the kernel
    // only reads it.
    check(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) })
}

/// Returns an option of a socket. `T` is the kernel's type for it: numbers only, so that all values
/// of its bytes are valid.
pub(crate) fn get<T: Default>(fd: RawFd, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for writes of `length` bytes, every value of these bytes is valid
    // for it, and the kernel writes at most that many.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length) })?;
    Ok(value)
}

/// Converts the result of a system call that has just returned: 0, or -1 with an error number.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    /// Returns what a socket with this filter receives of all test datagrams.
    fn passed(rule: DropRule) -> Vec<Vec<u8>> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        drop_matching(&socket, rule).expect("the filter is sound");
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let to = socket.local_addr().expect("it is bound");
        for datagram in datagrams() {
            sender.send_to(&datagram, to).expect("the buffer has space");
        }
        // Loopback delivers within the send call.
        socket.set_nonblocking(true).expect("it is open");
        let mut buffer = [0; 64];
        std::iter::from_fn(|| {
            socket
                .recv(&mut buffer)
                .ok()
                .map(|length| buffer[..length].to_vec())
        })
        .collect()
    }

    fn datagrams() -> Vec<Vec<u8>> {
        let edges = [0, 1, 127, 128, 150, 191, 192, 200, 223, 224, 255];
        let pairs = edges
            .iter()
            .flat_map(|&first| edges.map(|second| vec![first, second, 9]));
        let short = edges.iter().map(|&first| vec![first]);
        pairs.chain(short).chain([vec![]]).collect()
    }

    #[test]
    fn only_matching_datagrams_are_dropped() {
        let some = Some([192, 223]);
        for (first, except_second) in [
            ([128, 191], some),
            ([128, 191], None),
            ([0, 255], some),
            ([0, 255], None),
            ([128, 191], Some([0, 255])),
        ] {
            let rule = DropRule {
                first_byte: first,
                except_second_byte: except_second,
            };
            let matches = |datagram: &[u8]| {
                let within = |byte, [least, greatest]: [u8; 2]| (least..=greatest).contains(&byte);
                let other = except_second.zip(datagram.get(1));
                datagram.first().is_some_and(|&byte| within(byte, first))
                    && !other.is_some_and(|(bounds, &byte)| within(byte, bounds))
            };
            let mut expected = datagrams();
            expected.retain(|datagram| !matches(datagram));
            assert_eq!(passed(rule), expected, "{rule:?}");
        }
    }
}

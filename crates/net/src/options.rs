//! Socket options that no safe crate offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use socket2::{SockFilter, SockRef};

/// Asks for the kernel's arrival time and the count of dropped datagrams with each datagram
/// (`SO_TIMESTAMPNS`, `SO_RXQ_OVFL`; socket(7)).
pub fn ask_arrival_time_and_drops(socket: &impl AsRawFd) -> io::Result<()> {
    ask_arrival_time(socket)?;
    set_int(socket.as_raw_fd(), libc::SO_RXQ_OVFL, 1)
}

/// Asks for the kernel's arrival time (`SO_TIMESTAMPNS`; socket(7)).
pub(crate) fn ask_arrival_time(socket: &impl AsRawFd) -> io::Result<()> {
    set_int(socket.as_raw_fd(), libc::SO_TIMESTAMPNS, 1)
}

/// How many datagrams the kernel has dropped for lack of room in this socket's buffer, or because
/// of its filter ([`drop_all`]), since it was opened (`SO_MEMINFO`, `SK_MEMINFO_DROPS`). Wraps
/// around.
pub fn drops(socket: &impl AsRawFd) -> io::Result<u32> {
    // The kernel's order: RMEM_ALLOC, RCVBUF, WMEM_ALLOC, SNDBUF, FWD_ALLOC, WMEM_QUEUED, OPTMEM,
    // BACKLOG, DROPS (linux/sock_diag.h).
    const SO_MEMINFO: libc::c_int = 55;
    const DROPS: usize = 8;
    let mut values = [0u32; 9];
    let mut length = libc::socklen_t::try_from(size_of_val(&values)).expect("36 fits");
    // SAFETY: `values` is valid for writes of `length` bytes, and the kernel writes at most that
    // many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(values[DROPS])
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has the kernel drop every datagram that comes for this UDP socket (`SO_ATTACH_FILTER` with a
/// filter that passes nothing). The socket keeps its port, can send, and keeps the kernel from
/// answering with ICMP; but nothing is queued and nobody is woken.
///
/// What is dropped so counts in [`drops`], and in the machine's `Udp: InErrors` (not in
/// `RcvbufErrors`).
///
/// # Errors
/// What the operating system says.
pub fn drop_all(socket: &impl AsFd) -> io::Result<()> {
    let refuse = (libc::BPF_RET | libc::BPF_K) as u16;
    SockRef::from(socket).attach_filter(&[SockFilter::new(refuse, 0, 0, 0)])
}

/// Has the kernel tell of this connection's bytes only when there are so many, as far as its buffer
/// takes them; of its end at once (`SO_RCVLOWAT`; socket(7)). Reading gives whatever there is.
/// Default: 1.
///
/// # Errors
/// What the operating system says.
pub fn set_receive_low_water(socket: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_int(socket.as_raw_fd(), libc::SO_RCVLOWAT, bytes)
}

/// How much a socket's receive buffer takes, as the kernel counts: with what it needs itself for
/// each datagram (`SO_RCVBUF`; socket(7)).
///
/// # Errors
/// What the operating system says.
pub fn receive_buffer(socket: &impl AsFd) -> io::Result<usize> {
    SockRef::from(socket).recv_buffer_size()
}

/// Has the kernel choose a port when the socket is connected, and not when it is bound to an
/// address (`IP_BIND_ADDRESS_NO_PORT`; ip(7)).
///
/// # Errors
/// What the operating system says.
pub fn choose_port_late(socket: &impl AsRawFd) -> io::Result<()> {
    set(
        socket.as_raw_fd(),
        libc::IPPROTO_IP,
        libc::IP_BIND_ADDRESS_NO_PORT,
        1,
    )
}

fn set_int(fd: RawFd, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, name, value)
}

fn set(fd: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("4 fits");
    // SAFETY: `value` is valid for reads of `length` bytes for the duration of the call.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

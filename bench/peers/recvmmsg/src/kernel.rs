//! System calls: epoll, recvmmsg, filters, drop counts.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Maximum number of datagrams in one call.
const BATCH: usize = 64;
/// Larger than any packet here.
const PACKET: usize = 2048;
/// `SO_MEMINFO`, and the index of the drops in its result (linux/sock_diag.h).
const SO_MEMINFO: libc::c_int = 55;
const SK_MEMINFO_DROPS: usize = 8;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Raises the limit of descriptors: three per client soon exceed the usual 1024.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` outlives both calls, which read and write nothing else.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Drops every datagram of a socket (classic BPF: `ret 0`).
pub fn drop_all(socket: i32) -> io::Result<()> {
    let mut code = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &mut code,
    };
    // SAFETY: the program and its instruction live until the call returns; the kernel copies them.
    checked(unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            mem::size_of_val(&program) as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Returns the number of packets that the kernel dropped for a socket; 0 if unknown.
pub fn drops(socket: i32) -> u32 {
    let mut values = [0u32; SK_MEMINFO_DROPS + 1];
    let mut length = mem::size_of_val(&values) as libc::socklen_t;
    // SAFETY: `values` has `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result == 0 {
        values[SK_MEMINFO_DROPS]
    } else {
        0
    }
}

/// Reads standard input. Returns the number of lines that ended, or `None` at its end.
pub fn read_lines() -> Option<usize> {
    let mut bytes = [0u8; 4096];
    // SAFETY: `bytes` has that many bytes.
    let count = unsafe { libc::read(0, bytes.as_mut_ptr().cast(), bytes.len()) };
    match usize::try_from(count) {
        Ok(count) if count > 0 => Some(bytes[..count].iter().filter(|&&b| b == b'\n').count()),
        _ => None,
    }
}

/// An epoll instance. One thread waits; any thread may add sockets.
pub struct Poll(OwnedFd);

/// Result of a wait: the places of readable sockets.
pub struct Ready([libc::epoll_event; 512], usize);

impl Ready {
    pub fn new() -> Ready {
        Ready([libc::epoll_event { events: 0, u64: 0 }; 512], 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0[..self.1].iter().map(|event| event.u64)
    }
}

impl Poll {
    pub fn new() -> io::Result<Poll> {
        // SAFETY: no memory is passed; the descriptor is new and ours.
        let epoll = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        Ok(Poll(unsafe { OwnedFd::from_raw_fd(epoll) }))
    }

    pub fn add(&self, socket: i32, place: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: place,
        };
        // SAFETY: the event lives until the call returns.
        checked(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, socket, &mut event)
        })?;
        Ok(())
    }

    /// Waits at most `timeout` milliseconds; -1 means forever.
    pub fn wait(&self, ready: &mut Ready, timeout: i32) -> io::Result<()> {
        // SAFETY: `ready` has as many events as the call is told.
        let result = checked(unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                ready.0.as_mut_ptr(),
                ready.0.len() as i32,
                timeout,
            )
        });
        ready.1 = match result {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(())
    }
}

/// Buffers for the datagrams of one call.
pub struct Batch {
    packets: Box<[[u8; PACKET]; BATCH]>,
    // Points into `packets` and `_vectors`, whose memory does not move.
    headers: Box<[libc::mmsghdr; BATCH]>,
    _vectors: Box<[libc::iovec; BATCH]>,
}

impl Batch {
    pub fn new() -> Batch {
        let mut packets = Box::new([[0u8; PACKET]; BATCH]);
        // SAFETY: all zeroes is a valid value of these C structures.
        let mut vectors: Box<[libc::iovec; BATCH]> =
            Box::new(unsafe { MaybeUninit::zeroed().assume_init() });
        // SAFETY: as above.
        let mut headers: Box<[libc::mmsghdr; BATCH]> =
            Box::new(unsafe { MaybeUninit::zeroed().assume_init() });
        for ((packet, vector), header) in packets
            .iter_mut()
            .zip(vectors.iter_mut())
            .zip(headers.iter_mut())
        {
            vector.iov_base = packet.as_mut_ptr().cast();
            vector.iov_len = PACKET;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        Batch {
            packets,
            headers,
            _vectors: vectors,
        }
    }

    /// Reads a socket once and hands out each datagram: its bytes, and its full length.
    pub fn receive(&mut self, socket: i32, mut each: impl FnMut(&[u8], usize)) {
        // SAFETY: the headers point to buffers that live as long as `self`, and nothing else refers
        // to them during the call.
        let count = unsafe {
            libc::recvmmsg(
                socket,
                self.headers.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        // An error means that the socket is empty; the poll reports further datagrams.
        let count = usize::try_from(count).unwrap_or(0);
        for (packet, header) in self.packets.iter().zip(self.headers.iter()).take(count) {
            let length = header.msg_len as usize;
            each(&packet[..length.min(PACKET)], length);
        }
    }
}

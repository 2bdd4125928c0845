//! System calls: epoll, read.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Raises the limit of descriptors: one per client soon exceeds the usual 1024.
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

/// Reads once. Returns the number of bytes, 0 at the end of the stream, or `None` if nothing is
/// available.
pub fn read(socket: RawFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: `buffer` has that many bytes, and nothing else refers to it during the call.
    let count = unsafe {
        libc::recv(
            socket,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT,
        )
    };
    match usize::try_from(count) {
        Ok(count) => Ok(Some(count)),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        },
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

/// An epoll instance.
pub struct Poll(OwnedFd);

/// Result of a wait: the places of readable descriptors.
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

    pub fn add(&self, socket: RawFd, place: u64) -> io::Result<()> {
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

    pub fn remove(&self, socket: RawFd) -> io::Result<()> {
        // SAFETY: no event is passed; no kernel since 2.6.9 needs one.
        checked(unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                socket,
                std::ptr::null_mut(),
            )
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

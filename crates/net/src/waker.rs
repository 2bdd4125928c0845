//! Waking a thread that waits for its sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a loop that polls it, edge-triggered, for being readable. Any thread may hold it; so it is
/// made apart from the poll, which can then belong to a thread with [a table of descriptors of its
/// own](crate::files::spawn_with_own_table).
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// One that nobody polls yet. A wake before that is seen when it is.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    /// Wakes, once for any number of calls before the other thread has looked.
    pub fn wake(&self) {
        // It fails only where so many wakes were not looked at that their count would overflow, and
        // then there is one to be seen.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl Waker {
    /// Forgets that it was woken: for who polls it level-triggered.
    pub fn clear(&self) {
        // Where nobody has woken it, there is nothing to be read.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

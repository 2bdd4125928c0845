//! Wakes a thread that polls its sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a loop that polls it, edge-triggered, for readability. Any thread may hold it. It is
/// created separately from the poll, which can then belong to a thread with [its own descriptor
/// table](crate::descriptors::spawn_with_own_table).
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Returns a waker that no thread polls yet. Polling later still sees an earlier wake-up.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    /// Wakes the polling thread, once for any number of calls before it reacts.
    pub fn wake(&self) {
        // The write fails only if the counter would overflow, and then a wake-up is pending.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl Waker {
    /// Clears the wake-up, for a thread that polls level-triggered.
    pub fn clear(&self) {
        // The read fails if there was no wake-up.
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

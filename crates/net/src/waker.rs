//! Wakes a thread that polls its sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

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

    /// Waits until the waker is woken, for at most `timeout`, with the precision of the thread's
    /// wake-ups (ppoll(2)).
    ///
    /// # Errors
    /// The operating system's error; a signal is not an error.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        wait_for_any(&mut [PollFd::new(self, PollFlags::IN)], timeout)
    }
}

/// Waits until one of the descriptors is ready, for at most `timeout`.
pub(crate) fn wait_for_any(polled: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(polled, Some(&timeout)) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        polled => Ok(polled.map(|_| ())?),
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

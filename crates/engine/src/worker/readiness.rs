//! Socket readiness: the polls of a worker, and the sockets that still have unread data.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use measure::Time;
use mio::event::{Event, Source};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use net::ring::PacketRing;
use net::{Clock, Timer, Waker};

use super::ids::SocketId;

const TIMER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
/// Token of packet rings; no socket has it.
const RING: Token = Token(SocketId::NONE);

/// The polls of a worker, its timer, and the sockets with more data than one iteration reads.
pub(super) struct Readiness {
    poll: Poll,
    /// RTCP sockets and sockets that are read late. They never wake the loop, but are polled
    /// whenever it is awake, at the latest at the next heartbeat. Arrival times are the kernel's,
    /// and with thousands of clients a wake-up for each report would cost more than reading it.
    control: Poll,
    /// True once a socket was registered there.
    has_control: Cell<bool>,
    timer: Timer,
    unread: Vec<SocketId>,
}

/// Events of one wait.
pub(super) struct Ready {
    events: Events,
    control: Events,
}

impl Ready {
    pub(super) fn new() -> Ready {
        Ready {
            events: Events::with_capacity(1024),
            control: Events::with_capacity(1024),
        }
    }

    /// Events of the sockets that wake the loop.
    pub(super) fn events(&self) -> impl Iterator<Item = (SocketId, &Event)> {
        self.events.iter().filter_map(of_socket)
    }

    /// Events of the sockets that do not wake the loop.
    pub(super) fn control(&self) -> impl Iterator<Item = (SocketId, &Event)> {
        self.control.iter().filter_map(of_socket)
    }
}

fn of_socket(event: &Event) -> Option<(SocketId, &Event)> {
    SocketId::from_token(event.token()).map(|id| (id, event))
}

impl Readiness {
    /// Creates polls with only the timer and the waker.
    pub(super) fn new(waker: &Waker) -> io::Result<Readiness> {
        let (poll, timer) = (Poll::new()?, Timer::new()?);
        for (fd, token) in [(timer.as_raw_fd(), TIMER), (waker.as_raw_fd(), WAKER)] {
            poll.registry()
                .register(&mut SourceFd(&fd), token, Interest::READABLE)?;
        }
        Ok(Readiness {
            poll,
            control: Poll::new()?,
            has_control: Cell::new(false),
            timer,
            unread: Vec::new(),
        })
    }

    /// Waits until a socket is ready or `next` has come; does not wait if `at_once` is set. Returns
    /// `false` if the wait was interrupted.
    pub(super) fn wait(
        &mut self,
        ready: &mut Ready,
        next: Time,
        at_once: bool,
        clock: &Clock,
    ) -> io::Result<bool> {
        self.timer.set(next, clock)?;
        let wait = at_once.then_some(Duration::ZERO);
        match self.poll.poll(&mut ready.events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            result => result?,
        }
        if self.has_control.get() {
            match self.control.poll(&mut ready.control, Some(Duration::ZERO)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => result?,
            }
        }
        if ready.events.iter().any(|event| event.token() == TIMER) {
            self.timer.fired();
        }
        Ok(true)
    }

    /// Registers a socket for reading.
    pub(super) fn poll(&self, socket: &mut impl Source, id: SocketId) -> io::Result<()> {
        let registry = self.poll.registry();
        registry.register(socket, id.token(), Interest::READABLE)
    }

    /// Registers a packet ring. Its events only wake the loop: ready blocks are found in its
    /// memory.
    pub(super) fn poll_ring(&self, ring: &PacketRing) -> io::Result<()> {
        let registry = self.poll.registry();
        registry.register(&mut SourceFd(&ring.as_raw_fd()), RING, Interest::READABLE)
    }

    /// Registers a socket that never wakes the loop.
    pub(super) fn poll_control(&self, socket: &mut impl Source, id: SocketId) -> io::Result<()> {
        self.has_control.set(true);
        let registry = self.control.registry();
        registry.register(socket, id.token(), Interest::READABLE)
    }

    /// Registers a connection for reading and writing.
    pub(super) fn poll_read_write(&self, socket: &mut impl Source, id: SocketId) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(socket, id.token(), interest)
    }

    /// Deregisters a socket that wakes the loop.
    pub(super) fn deregister(&self, socket: &mut impl Source) -> io::Result<()> {
        self.poll.registry().deregister(socket)
    }

    /// Deregisters a socket that never wakes the loop.
    pub(super) fn deregister_control(&self, socket: &mut impl Source) -> io::Result<()> {
        self.control.registry().deregister(socket)
    }

    /// Marks a socket for reading in the next iteration: it may hold more data, which no
    /// further event will announce.
    pub(super) fn read_later(&mut self, id: SocketId) {
        self.unread.push(id);
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Returns the sockets marked for reading, each once, and clears the list.
    pub(super) fn take_unread(&mut self) -> Vec<SocketId> {
        let mut unread = std::mem::take(&mut self.unread);
        unread.sort_unstable();
        unread.dedup();
        unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_sockets_are_returned_once_and_media_first() {
        let waker = Waker::new().expect("linux has it");
        let mut readiness = Readiness::new(&waker).expect("linux has it");
        assert!(!readiness.has_unread());
        for id in [
            SocketId::Connection(1),
            SocketId::Pair(7),
            SocketId::Connection(1),
        ] {
            readiness.read_later(id);
        }
        assert!(readiness.has_unread());
        let unread = readiness.take_unread();
        assert_eq!(unread, [SocketId::Pair(7), SocketId::Connection(1)]);
        assert!(!readiness.has_unread());
    }
}

//! Which sockets can be read: the polls of a worker, and the sockets of which more is left.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use measure::Time;
use mio::event::{Event, Source};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use net::ring::PacketRing;
use net::{Clock, Timer, Waker};

use super::keys::Place;

const TIMER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
/// Token of packet rings, which no socket has.
const RING: Token = Token(Place::NONE);

/// The polls of a worker, its timer, and which sockets have more to read than one turn allows.
pub(super) struct Readiness {
    poll: Poll,
    /// The sockets for RTCP. They never wake the loop: they are polled whenever it is awake, which
    /// is with each heartbeat at the latest. Times are the kernel's, and with thousands of clients
    /// waking for each report would cost more than reading it.
    control: Poll,
    timer: Timer,
    unread: Vec<Place>,
}

/// What a wait has brought.
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

    /// The sockets that wake the loop.
    pub(super) fn events(&self) -> impl Iterator<Item = (Place, &Event)> {
        self.events.iter().filter_map(of_socket)
    }

    /// The sockets that do not.
    pub(super) fn control(&self) -> impl Iterator<Item = (Place, &Event)> {
        self.control.iter().filter_map(of_socket)
    }
}

fn of_socket(event: &Event) -> Option<(Place, &Event)> {
    Place::of(event.token()).map(|place| (place, event))
}

impl Readiness {
    /// With nothing to poll but the timer and the waker.
    pub(super) fn new(waker: &Waker) -> io::Result<Readiness> {
        let (poll, timer) = (Poll::new()?, Timer::new()?);
        for (fd, token) in [(timer.as_raw_fd(), TIMER), (waker.as_raw_fd(), WAKER)] {
            poll.registry()
                .register(&mut SourceFd(&fd), token, Interest::READABLE)?;
        }
        Ok(Readiness {
            poll,
            control: Poll::new()?,
            timer,
            unread: Vec::new(),
        })
    }

    /// Waits until something can be read, `next` comes, or, with `at_once`, not at all. Says
    /// whether it was not interrupted.
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
        match self.control.poll(&mut ready.control, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => result?,
        }
        if ready.events.iter().any(|event| event.token() == TIMER) {
            self.timer.fired();
        }
        Ok(true)
    }

    /// Polls a socket that is read only.
    pub(super) fn poll(&self, socket: &mut impl Source, place: Place) -> io::Result<()> {
        let registry = self.poll.registry();
        registry.register(socket, place.token(), Interest::READABLE)
    }

    /// Polls a packet ring. Its events only wake the loop: its memory shows which blocks are ready.
    pub(super) fn poll_ring(&self, ring: &PacketRing) -> io::Result<()> {
        let registry = self.poll.registry();
        registry.register(&mut SourceFd(&ring.as_raw_fd()), RING, Interest::READABLE)
    }

    /// Polls a socket that never wakes the loop.
    pub(super) fn poll_control(&self, socket: &mut impl Source, place: Place) -> io::Result<()> {
        let registry = self.control.registry();
        registry.register(socket, place.token(), Interest::READABLE)
    }

    /// Polls a connection.
    pub(super) fn poll_both_ways(&self, socket: &mut impl Source, place: Place) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(socket, place.token(), interest)
    }

    /// Polls a socket no more that wakes the loop.
    pub(super) fn forget(&self, socket: &mut impl Source) -> io::Result<()> {
        self.poll.registry().deregister(socket)
    }

    /// Polls a socket no more that never wakes the loop.
    pub(super) fn forget_control(&self, socket: &mut impl Source) -> io::Result<()> {
        self.control.registry().deregister(socket)
    }

    /// A socket may hold more, of which no event will tell.
    pub(super) fn read_later(&mut self, place: Place) {
        self.unread.push(place);
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The sockets that may hold more, each once.
    pub(super) fn take_unread(&mut self) -> Vec<Place> {
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
    fn what_is_to_be_read_later_comes_once_and_media_first() {
        let waker = Waker::new().expect("linux has it");
        let mut readiness = Readiness::new(&waker).expect("linux has it");
        assert!(!readiness.has_unread());
        for place in [Place::Connection(1), Place::Pair(7), Place::Connection(1)] {
            readiness.read_later(place);
        }
        assert!(readiness.has_unread());
        let unread = readiness.take_unread();
        assert_eq!(unread, [Place::Pair(7), Place::Connection(1)]);
        assert!(!readiness.has_unread());
    }
}

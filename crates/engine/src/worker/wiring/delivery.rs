//! Delivery of received data to sessions, immediately or after the packet ring has caught up.

use std::time::Duration;

use measure::{ArrivalRun, Time, tester};
use session::{CloseReason, Datagram, Input, Port};

use crate::worker::Worker;
use crate::worker::connections::SegmentTimes;
use crate::worker::deferred::{Deferred, RingMark};
use crate::worker::ids::{ChannelKey, SessionKey};
use crate::worker::media_counter::counting;
use crate::worker::sessions::Channel;

/// Maximum time of releasing deferred inputs before the loop goes on and comes back to them.
const RELEASE_TIME_MAX: Duration = Duration::from_millis(5);

impl Worker {
    /// Reads the rings if they are due.
    pub(crate) fn read_rings(&mut self) {
        let Some(rings) = &self.rings else { return };
        // The ring must promptly deliver the segments of connections that are read periodically.
        let times = self.connections.segment_times.as_ref();
        let at_once = times.is_some_and(SegmentTimes::needs_prompt_reads);
        if rings.are_due(self.runtime.clock.now(), at_once) {
            self.read_rings_now();
        }
    }

    /// Reads the rings.
    pub(crate) fn read_rings_now(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        rings.read(self.connections.segment_times.as_ref(), counting!(self));
        self.deliver_pending();
        self.release_deferred();
    }

    /// Time of the next read of the rings, or of the next deferred input that must be delivered.
    pub(crate) fn rings_due(&self) -> Time {
        let turn = self.runtime.turn;
        let due = self.rings.as_ref();
        due.map_or(Time::NEVER, |rings| {
            rings.next_read(turn).min(rings.deferred.expires())
        })
    }

    /// Returns `true` if no input is deferred.
    pub(crate) fn nothing_is_deferred(&self) -> bool {
        let rings = self.rings.as_ref();
        rings.is_none_or(|rings| rings.deferred.is_empty())
    }

    /// Counts the packets dropped for lack of room in the rings.
    pub(crate) fn collect_ring_drops(&mut self) {
        if let Some(rings) = &mut self.rings {
            let drops = rings.take_drops();
            self.runtime.tester.add(tester::RING_OVERFLOW, drops);
        }
    }

    /// Delivers deferred inputs that can be released, for at most [`RELEASE_TIME_MAX`]: if
    /// thousands of sessions end together, there are many.
    pub(crate) fn release_deferred(&mut self) {
        self.release_until(self.runtime.clock.now() + RELEASE_TIME_MAX);
    }

    /// Delivers all deferred inputs that can be released.
    pub(crate) fn release_all_ready(&mut self) {
        self.release_until(Time::NEVER);
    }

    fn release_until(&mut self, end: Time) {
        while self.can_release_deferred()
            && let Some(rings) = &mut self.rings
            && let Some(waiting) = rings.deferred.pop()
        {
            self.deliver_deferred(waiting);
            self.deliver_pending();
            if self.runtime.clock.now() >= end {
                break;
            }
        }
    }

    /// Returns `true` if a deferred input can be released.
    pub(crate) fn can_release_deferred(&self) -> bool {
        let rings = self.rings.as_ref();
        rings.is_some_and(|rings| rings.can_release(self.runtime.turn))
    }

    /// Delivers all deferred inputs in order, even if the rings have not caught up.
    fn flush_deferred(&mut self) {
        while let Some(rings) = &mut self.rings
            && let Some(waiting) = rings.deferred.pop()
        {
            self.deliver_deferred(waiting);
        }
    }

    fn deliver_deferred(&mut self, waiting: Deferred) {
        match waiting {
            Deferred::Bytes {
                to: ChannelKey { session, channel },
                bytes,
                at,
                runs,
            } => {
                let (bytes, runs) = (&bytes, &runs);
                let input = Input::Bytes {
                    channel,
                    bytes,
                    at,
                    runs,
                };
                self.deliver(session, input);
            }
            Deferred::Datagram {
                to: ChannelKey { session, channel },
                port,
                from,
                bytes,
                at,
            } => {
                let bytes = &bytes;
                let alone = [Datagram { from, at, bytes }];
                let input = match port {
                    Some(port) => Input::Datagram {
                        channel,
                        port,
                        from,
                        bytes,
                        at,
                    },
                    None => Input::Datagrams {
                        channel,
                        datagrams: &alone,
                    },
                };
                self.deliver(session, input);
            }
            Deferred::Closed { owner, reason } => {
                let channel = owner.channel;
                let closed = Input::Closed { channel, reason };
                self.runtime.inbox.push(owner.session, closed);
            }
            Deferred::End { place, owner } => self.read_to_end(place, owner),
            Deferred::Port { place, arrived } => {
                if let Some(port) = self.pairs.release_media_port(place) {
                    self.take_back_from_ring(port, arrived);
                }
            }
            Deferred::SinglePort { port, arrived } => {
                self.pairs.release(port);
                self.take_back_from_ring(port, arrived);
            }
        }
    }

    /// Handles the end of a periodically read connection. Returns `true` if the end is deferred
    /// until the ring has delivered everything before it.
    pub(crate) fn end_waits(&mut self, place: usize, owner: ChannelKey) -> bool {
        let mark = self.mark();
        if let Some(mark) = mark {
            self.defer(mark, Deferred::End { place, owner });
        }
        mark.is_some()
    }

    /// Returns the mark up to which the rings must be read to have counted everything that has
    /// arrived, or `None` if it is reached and nothing is deferred.
    fn mark(&mut self) -> Option<RingMark> {
        let now = self.runtime.clock.now();
        self.rings.as_mut()?.mark_if_behind(now)
    }

    /// Returns the mark to which an input of the session must be deferred, or `None` if it can be
    /// delivered immediately.
    fn deferral_mark(&mut self, session: SessionKey) -> Option<RingMark> {
        if !self.slot(session).is_some_and(|slot| slot.on_ring) {
            return None;
        }
        if self.rings.as_ref()?.deferred.is_full() {
            self.flush_deferred();
            return None;
        }
        self.mark()
    }

    fn defer(&mut self, mark: RingMark, waiting: Deferred) {
        if let Some(rings) = &mut self.rings {
            rings.deferred.push(mark, waiting);
        }
    }

    fn deliver_or_defer(&mut self, mark: Option<RingMark>, waiting: Deferred) {
        match mark {
            None => self.deliver_deferred(waiting),
            Some(mark) => self.defer(mark, waiting),
        }
    }

    /// Delivers or defers bytes of a connection.
    #[inline]
    pub(crate) fn bytes_arrived(
        &mut self,
        to: ChannelKey,
        bytes: &[u8],
        at: Time,
        runs: &[ArrivalRun],
    ) {
        let ChannelKey { session, channel } = to;
        // Inputs that begin a stream are not deferred.
        let started = self.slot(session).is_some_and(|slot| slot.has_media());
        let mark = started.then(|| self.deferral_mark(session)).flatten();
        match mark {
            None => {
                let input = Input::Bytes {
                    channel,
                    bytes,
                    at,
                    runs,
                };
                self.deliver(session, input);
            }
            Some(mark) => {
                let waiting = Deferred::Bytes {
                    to,
                    bytes: bytes.to_vec(),
                    at,
                    runs: runs.to_vec(),
                };
                self.defer(mark, waiting);
            }
        }
    }

    /// Delivers or defers a datagram that no sink counts.
    pub(crate) fn datagram_arrived(
        &mut self,
        to: ChannelKey,
        port: Port,
        datagram: &net::batch::ReceivedDatagram<'_>,
    ) {
        let ChannelKey { session, channel } = to;
        let (from, bytes, at) = (datagram.from, datagram.bytes, datagram.at);
        let Some(mark) = self.deferral_mark(session) else {
            let input = Input::Datagram {
                channel,
                port,
                from,
                bytes,
                at,
            };
            return self.deliver(session, input);
        };
        let waiting = Deferred::Datagram {
            to,
            port: Some(port),
            from,
            bytes: bytes.to_vec(),
            at,
        };
        self.defer(mark, waiting);
    }

    /// Delivers or defers datagrams of a single socket that no sink counts. They are deferred only
    /// once media has begun, so that the start of a stream is not delayed. They are not deferred
    /// either if the ring does not receive the socket's media: such a session sends, and requests
    /// for its data must be answered immediately.
    pub(crate) fn datagrams_arrived(&mut self, to: ChannelKey, datagrams: &[Datagram<'_>]) {
        let ChannelKey { session, channel } = to;
        let slot = self.sessions.get(session);
        let waits = slot.filter(|slot| slot.has_media()).is_some_and(|slot| {
            let Some(Channel::Datagrams { place, .. }) = slot.channel(channel) else {
                return false;
            };
            self.datagrams.is_on_ring(place)
        });
        let Some(mark) = waits.then(|| self.deferral_mark(session)).flatten() else {
            return self.deliver(session, Input::Datagrams { channel, datagrams });
        };
        for datagram in datagrams {
            let waiting = Deferred::Datagram {
                to,
                port: None,
                from: datagram.from,
                bytes: datagram.bytes.to_vec(),
                at: datagram.at,
            };
            self.defer(mark, waiting);
        }
    }

    /// Delivers or defers the end of a connection. Its channel is forgotten at once.
    pub(crate) fn connection_ended(&mut self, owner: ChannelKey, reason: CloseReason) {
        if let Some(slot) = self.slot(owner.session) {
            slot.forget_channel(owner.channel);
        }
        let mark = self.deferral_mark(owner.session);
        self.deliver_or_defer(mark, Deferred::Closed { owner, reason });
    }

    /// Releases a media port whose media the ring receives, after all its datagrams are counted.
    pub(crate) fn port_ends(&mut self, port: Deferred) {
        let mark = self.mark();
        self.deliver_or_defer(mark, port);
    }

    fn take_back_from_ring(&mut self, port: u16, arrived: u32) {
        if let Some(rings) = &mut self.rings {
            rings.take_back(port, arrived, counting!(self));
        }
    }
}

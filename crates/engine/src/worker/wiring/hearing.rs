//! What sessions hear, at once or when the packet ring has handed over all that came earlier.

use std::borrow::Cow;
use std::time::Duration;

use measure::{Run, Time, tester};
use protocol::session::{ChannelId, Closed, Datagram, Input, Port};

use crate::worker::Worker;
use crate::worker::connections::SegmentTimes;
use crate::worker::counting::counting;
use crate::worker::deferred::{Deferred, Mark};
use crate::worker::inbox::Pending;
use crate::worker::keys::SessionKey;
use crate::worker::sessions::Channel;

/// How long what has waited is passed on before the loop goes on, and comes back to it.
const LETTING_GO: Duration = Duration::from_millis(5);

impl Worker {
    /// Works off what the rings hold if it is time for that.
    pub(crate) fn read_rings(&mut self) {
        let Some(rings) = &self.rings else { return };
        // Of connections that are read seldom the ring has to show all in time.
        let times = self.connections.segment_times();
        let at_once = times.is_some_and(SegmentTimes::hurries);
        if rings.are_due(self.runtime.clock.now(), at_once) {
            self.read_rings_now();
        }
    }

    /// Works off what the rings hold.
    pub(crate) fn read_rings_now(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        rings.read(self.connections.segment_times(), counting!(self));
        self.settle();
        self.let_go();
    }

    /// When the rings have to be read next, or something heard that waits for them.
    pub(crate) fn rings_due(&self) -> Time {
        let turn = self.runtime.turn;
        let due = self.rings.as_ref();
        due.map_or(Time::NEVER, |rings| {
            rings.next_read(turn).min(rings.deferred.ends())
        })
    }

    /// Whether nothing waits for the rings.
    pub(crate) fn nothing_is_deferred(&self) -> bool {
        let rings = self.rings.as_ref();
        rings.is_none_or(|rings| rings.deferred.is_empty())
    }

    /// Takes up what the kernel could not put into the rings.
    pub(crate) fn collect_ring_drops(&mut self) {
        if let Some(rings) = &mut self.rings {
            let drops = rings.take_drops();
            self.runtime.tester.add(tester::RING_OVERFLOW, drops);
        }
    }

    /// Passes on what has waited for the rings and need not any more, for as long as the loop can
    /// bear it: where thousands of sessions end together, it is much.
    pub(crate) fn let_go(&mut self) {
        self.let_go_until(self.runtime.clock.now() + LETTING_GO);
    }

    /// Passes on all that has waited for the rings and need not any more.
    pub(crate) fn let_go_of_all(&mut self) {
        self.let_go_until(Time::NEVER);
    }

    fn let_go_until(&mut self, end: Time) {
        while self.can_let_go()
            && let Some(rings) = &mut self.rings
            && let Some(waiting) = rings.deferred.pop()
        {
            self.hear(&waiting);
            self.settle();
            if self.runtime.clock.now() >= end {
                break;
            }
        }
    }

    /// Whether something has waited for the rings and need not any more.
    pub(crate) fn can_let_go(&self) -> bool {
        let rings = self.rings.as_ref();
        rings.is_some_and(|rings| rings.can_let_go(self.runtime.turn))
    }

    /// Passes on all that has waited, in its order, though the rings have not brought all before
    /// it.
    fn let_all_go(&mut self) {
        while let Some(rings) = &mut self.rings
            && let Some(waiting) = rings.deferred.pop()
        {
            self.hear(&waiting);
        }
    }

    fn hear(&mut self, waiting: &Deferred<'_>) {
        match *waiting {
            Deferred::Bytes {
                session,
                channel,
                ref bytes,
                at,
                ref runs,
            } => {
                let input = Input::Bytes {
                    channel,
                    bytes,
                    at,
                    runs,
                };
                self.deliver(session, input);
            }
            Deferred::Datagram {
                session,
                channel,
                port,
                from,
                ref bytes,
                at,
            } => {
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
            Deferred::Closed {
                session,
                channel,
                how,
            } => {
                self.runtime
                    .inbox
                    .push(session, Pending::Closed { channel, how });
            }
            Deferred::End {
                place,
                session,
                channel,
            } => self.read_to_end(place, session, channel),
            Deferred::Port { place, arrived } => self.give_port_back(place, arrived),
            Deferred::SinglePort { port, arrived } => {
                self.pairs.release(port);
                self.take_back_from_ring(port, arrived);
            }
        }
    }

    /// The end of a connection that is read seldom has been heard; says whether it has to wait
    /// until the ring has shown what came before.
    pub(crate) fn end_waits(
        &mut self,
        place: usize,
        session: SessionKey,
        channel: ChannelId,
    ) -> bool {
        let mark = self.mark();
        if let Some(mark) = mark {
            let end = Deferred::End {
                place,
                session,
                channel,
            };
            self.wait(mark, end);
        }
        mark.is_some()
    }

    /// Until when the rings have to be read for all to be counted that has arrived; nothing if they
    /// have been.
    fn mark(&mut self) -> Option<Mark> {
        let now = self.runtime.clock.now();
        self.rings.as_mut()?.mark_if_behind(now)
    }

    /// Whether something for that session has to wait, and for what.
    fn must_wait(&mut self, session: SessionKey) -> Option<Mark> {
        if !self.slot(session).is_some_and(|slot| slot.on_ring) {
            return None;
        }
        if self.rings.as_ref()?.deferred.is_full() {
            self.let_all_go();
            return None;
        }
        self.mark()
    }

    fn wait(&mut self, mark: Mark, waiting: Deferred<'_>) {
        if let Some(rings) = &mut self.rings {
            rings.deferred.push(mark, waiting);
        }
    }

    fn hear_or_wait(&mut self, mark: Option<Mark>, waiting: Deferred<'_>) {
        match mark {
            None => self.hear(&waiting),
            Some(mark) => self.wait(mark, waiting),
        }
    }

    /// Bytes of a connection, for its session.
    #[inline]
    pub(crate) fn bytes_arrived(
        &mut self,
        session: SessionKey,
        channel: ChannelId,
        bytes: &[u8],
        at: Time,
        runs: &[Run],
    ) {
        // What begins a stream is not held up.
        let started = self.slot(session).is_some_and(|slot| slot.has_media());
        let mark = started.then(|| self.must_wait(session)).flatten();
        let bytes = Deferred::Bytes {
            session,
            channel,
            bytes: Cow::Borrowed(bytes),
            at,
            runs: Cow::Borrowed(runs),
        };
        self.hear_or_wait(mark, bytes);
    }

    /// A datagram that no sink counts, for its session.
    pub(crate) fn datagram_arrived(
        &mut self,
        session: SessionKey,
        channel: ChannelId,
        port: Port,
        datagram: &net::batch::Datagram<'_>,
    ) {
        let mark = self.must_wait(session);
        let datagram = Deferred::Datagram {
            session,
            channel,
            port: Some(port),
            from: datagram.from,
            bytes: Cow::Borrowed(datagram.bytes),
            at: datagram.at,
        };
        self.hear_or_wait(mark, datagram);
    }

    /// Datagrams of a single socket that no sink counts, for its session. Once its media has begun
    /// they wait for the ring: what begins it is not held up. Nor is what comes to a socket whose
    /// media is not the ring's, because it sends: what is asked for there is to be sent at once.
    pub(crate) fn datagrams_arrived(
        &mut self,
        session: SessionKey,
        channel: ChannelId,
        datagrams: &[Datagram<'_>],
    ) {
        let slot = self.sessions.get(session);
        let waits = slot.filter(|slot| slot.has_media()).is_some_and(|slot| {
            let Some(Channel::Datagrams { place, .. }) = slot.channel(channel) else {
                return false;
            };
            self.datagrams.is_on_ring(place)
        });
        let Some(mark) = waits.then(|| self.must_wait(session)).flatten() else {
            return self.deliver(session, Input::Datagrams { channel, datagrams });
        };
        for datagram in datagrams {
            let waiting = Deferred::Datagram {
                session,
                channel,
                port: None,
                from: datagram.from,
                bytes: Cow::Borrowed(datagram.bytes),
                at: datagram.at,
            };
            self.wait(mark, waiting);
        }
    }

    /// A connection has ended, for its session.
    pub(crate) fn connection_ended(
        &mut self,
        session: SessionKey,
        channel: ChannelId,
        how: Closed,
    ) {
        let mark = self.must_wait(session);
        let closed = Deferred::Closed {
            session,
            channel,
            how,
        };
        self.hear_or_wait(mark, closed);
    }

    /// A media port whose media comes by the ring is wanted no more, and the kernel has counted so
    /// many datagrams for it. It stays taken until all of them are counted.
    pub(crate) fn port_ends(&mut self, place: usize, arrived: u32) {
        let mark = self.mark();
        self.hear_or_wait(mark, Deferred::Port { place, arrived });
    }

    /// The same of a single socket, which has been closed.
    pub(crate) fn single_port_ends(&mut self, port: u16, arrived: u32) {
        let mark = self.mark();
        self.hear_or_wait(mark, Deferred::SinglePort { port, arrived });
    }

    /// Takes a media port back of which all has been counted that the ring brings.
    fn give_port_back(&mut self, media: usize, arrived: u32) {
        if let Some(port) = self.pairs.give_back(media) {
            self.take_back_from_ring(port, arrived);
        }
    }

    fn take_back_from_ring(&mut self, port: u16, arrived: u32) {
        if let Some(rings) = &mut self.rings {
            rings.take_back(port, arrived, counting!(self));
        }
    }
}

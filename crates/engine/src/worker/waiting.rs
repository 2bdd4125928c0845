//! What sessions are to hear, and do not hear before the packet ring has handed over all that came
//! earlier.
//!
//! A ring's packets are counted some time after they have arrived; a control connection and RTCP
//! are heard at once. So that no session takes leave of a stream (a BYE, the answer to TEARDOWN)
//! before it has been counted to the end, what a session hears waits until the ring has handed over
//! all that had arrived before: RTCP and the end of a connection always, bytes of a connection once
//! media has begun. Before that they do not wait: the delay of a start-up is not prolonged.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use measure::{Run, Time};
use protocol::session::{ChannelId, Closed, Input, Port};

use super::Worker;
use super::inbox::Pending;
use super::keys::SessionKey;
use super::ring::Mark;

/// How long anything waits for the ring at most. That long only where the kernel's count of what
/// arrived and ours do not agree.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long what has waited is passed on before the loop goes on, and comes back to it.
const LETTING_GO: Duration = Duration::from_millis(5);

/// How many bytes of what sessions are yet to hear may wait. Beyond that they hear all of it at
/// once.
const WAITING_BYTES: usize = 16 << 20;

/// What waits, in its order, each until the rings have brought all up to its mark.
#[derive(Default)]
pub(super) struct Queue {
    entries: VecDeque<(Mark, Waiting<'static>)>,
    bytes: usize,
}

/// Something that may have to wait.
pub(super) enum Waiting<'a> {
    Bytes {
        session: SessionKey,
        channel: ChannelId,
        bytes: Cow<'a, [u8]>,
        at: Time,
        runs: Cow<'a, [Run]>,
    },
    Datagram {
        session: SessionKey,
        channel: ChannelId,
        port: Port,
        from: SocketAddr,
        bytes: Cow<'a, [u8]>,
        at: Time,
    },
    Closed {
        session: SessionKey,
        channel: ChannelId,
        how: Closed,
    },
    /// The end of a connection that is read seldom, and what has come before it.
    End {
        place: usize,
        session: SessionKey,
        channel: ChannelId,
    },
    /// A media socket that nobody wants any more; the kernel has counted so many datagrams for it.
    Port { place: usize, arrived: u32 },
}

impl Waiting<'_> {
    fn size(&self) -> usize {
        match self {
            Waiting::Bytes { bytes, .. } | Waiting::Datagram { bytes, .. } => bytes.len(),
            Waiting::Closed { .. } | Waiting::End { .. } | Waiting::Port { .. } => 0,
        }
    }

    /// With bytes of its own.
    fn kept(self) -> Waiting<'static> {
        match self {
            Waiting::Bytes {
                session,
                channel,
                bytes,
                at,
                runs,
            } => Waiting::Bytes {
                session,
                channel,
                bytes: Cow::Owned(bytes.into_owned()),
                at,
                runs: Cow::Owned(runs.into_owned()),
            },
            Waiting::Datagram {
                session,
                channel,
                port,
                from,
                bytes,
                at,
            } => Waiting::Datagram {
                session,
                channel,
                port,
                from,
                bytes: Cow::Owned(bytes.into_owned()),
                at,
            },
            Waiting::Closed {
                session,
                channel,
                how,
            } => Waiting::Closed {
                session,
                channel,
                how,
            },
            Waiting::End {
                place,
                session,
                channel,
            } => Waiting::End {
                place,
                session,
                channel,
            },
            Waiting::Port { place, arrived } => Waiting::Port { place, arrived },
        }
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether no more may wait.
    fn is_full(&self) -> bool {
        self.bytes >= WAITING_BYTES
    }

    fn push(&mut self, mark: Mark, waiting: Waiting<'_>) {
        self.bytes += waiting.size();
        self.entries.push_back((mark, waiting.kept()));
    }

    fn pop(&mut self) -> Option<Waiting<'static>> {
        let (_, waiting) = self.entries.pop_front()?;
        self.bytes -= waiting.size();
        Some(waiting)
    }

    fn first(&self) -> Option<&Mark> {
        self.entries.front().map(|(mark, _)| mark)
    }
}

impl Worker {
    /// Says when something has to be heard though the ring has not brought all before it.
    pub(super) fn waiting_ends(&self) -> Time {
        match self.rings.as_ref().and_then(|rings| rings.waiting.first()) {
            Some(mark) => mark.at + PATIENCE,
            None => Time::NEVER,
        }
    }

    /// Passes on what has waited for the rings and need not any more, for as long as the loop can
    /// bear it: where thousands of sessions end together, it is much.
    pub(super) fn let_go(&mut self) {
        self.let_go_until(self.runtime.clock.now() + LETTING_GO);
    }

    /// Passes on all that has waited for the rings and need not any more.
    pub(super) fn let_go_of_all(&mut self) {
        self.let_go_until(Time::NEVER);
    }

    fn let_go_until(&mut self, end: Time) {
        while self.can_let_go()
            && let Some(rings) = &mut self.rings
            && let Some(waiting) = rings.waiting.pop()
        {
            self.hear(&waiting);
            self.settle();
            if self.runtime.clock.now() >= end {
                break;
            }
        }
    }

    /// Whether something has waited for the rings and need not any more.
    pub(super) fn can_let_go(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| {
            let first = rings.waiting.first();
            first.is_some_and(|mark| rings.reached(mark) || self.runtime.turn >= mark.at + PATIENCE)
        })
    }

    /// Passes on all that has waited, in its order, though the rings have not brought all before
    /// it.
    fn let_all_go(&mut self) {
        while let Some(rings) = &mut self.rings
            && let Some(waiting) = rings.waiting.pop()
        {
            self.hear(&waiting);
        }
    }

    fn hear(&mut self, waiting: &Waiting<'_>) {
        match *waiting {
            Waiting::Bytes {
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
            Waiting::Datagram {
                session,
                channel,
                port,
                from,
                ref bytes,
                at,
            } => {
                let input = Input::Datagram {
                    channel,
                    port,
                    from,
                    bytes,
                    at,
                };
                self.deliver(session, input);
            }
            Waiting::Closed {
                session,
                channel,
                how,
            } => {
                self.runtime
                    .inbox
                    .push(session, Pending::Closed { channel, how });
            }
            Waiting::End {
                place,
                session,
                channel,
            } => self.read_to_end(place, session, channel),
            Waiting::Port { place, arrived } => self.give_port_back(place, arrived),
        }
    }

    /// The end of a connection that is read seldom has been heard; says whether it has to wait
    /// until the ring has shown what came before.
    pub(super) fn end_waits(
        &mut self,
        place: usize,
        session: SessionKey,
        channel: ChannelId,
    ) -> bool {
        let mark = self.mark();
        if let Some(mark) = mark {
            let end = Waiting::End {
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
        let rings = self.rings.as_mut()?;
        let mark = rings.mark(now);
        (!rings.waiting.is_empty() || !rings.reached(&mark)).then_some(mark)
    }

    /// Whether something for that session has to wait, and for what.
    fn must_wait(&mut self, session: SessionKey) -> Option<Mark> {
        if !self.slot(session).is_some_and(|slot| slot.on_ring) {
            return None;
        }
        if self.rings.as_ref()?.waiting.is_full() {
            self.let_all_go();
            return None;
        }
        self.mark()
    }

    fn wait(&mut self, mark: Mark, waiting: Waiting<'_>) {
        if let Some(rings) = &mut self.rings {
            rings.waiting.push(mark, waiting);
        }
    }

    fn hear_or_wait(&mut self, mark: Option<Mark>, waiting: Waiting<'_>) {
        match mark {
            None => self.hear(&waiting),
            Some(mark) => self.wait(mark, waiting),
        }
    }

    /// Bytes of a connection, for its session.
    #[inline]
    pub(super) fn bytes_arrived(
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
        let bytes = Waiting::Bytes {
            session,
            channel,
            bytes: Cow::Borrowed(bytes),
            at,
            runs: Cow::Borrowed(runs),
        };
        self.hear_or_wait(mark, bytes);
    }

    /// A datagram that no sink counts, for its session.
    pub(super) fn datagram_arrived(
        &mut self,
        session: SessionKey,
        channel: ChannelId,
        port: Port,
        datagram: &net::batch::Datagram<'_>,
    ) {
        let mark = self.must_wait(session);
        let datagram = Waiting::Datagram {
            session,
            channel,
            port,
            from: datagram.from,
            bytes: Cow::Borrowed(datagram.bytes),
            at: datagram.at,
        };
        self.hear_or_wait(mark, datagram);
    }

    /// A connection has ended, for its session.
    pub(super) fn connection_ended(
        &mut self,
        session: SessionKey,
        channel: ChannelId,
        how: Closed,
    ) {
        let mark = self.must_wait(session);
        let closed = Waiting::Closed {
            session,
            channel,
            how,
        };
        self.hear_or_wait(mark, closed);
    }

    /// A media port whose media comes by the ring is wanted no more, and the kernel has counted so
    /// many datagrams for it. It stays taken until all of them are counted.
    pub(super) fn port_ends(&mut self, place: usize, arrived: u32) {
        let mark = self.mark();
        self.hear_or_wait(mark, Waiting::Port { place, arrived });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use crossbeam_channel::bounded;
    use net::ring::{Family, RingSettings};
    use protocol::session::{Context, Session};

    use super::super::tests::ring::may_have_a_ring;
    use super::super::{Config, Mailbox, PopulationPlan};
    use super::*;
    use crate::resolver::Resolver;

    /// A session that is long at hearing anything.
    struct Slow;

    impl Session for Slow {
        fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) {
            let begun = Instant::now();
            while begun.elapsed() < LETTING_GO {
                std::hint::spin_loop();
            }
        }

        fn deadline(&self) -> Option<Time> {
            None
        }
    }

    fn worker() -> Worker {
        let (reports, _) = bounded(1);
        let (mailbox, commands) = Mailbox::new().expect("a waker");
        Worker::new(Config {
            index: 0,
            commands,
            reports,
            others: Vec::new(),
            resolver: Resolver::start().expect("a thread"),
            mailbox,
            ports: net::PortRange::new(30_000..30_040),
            goes_first: false,
            in_real_time: false,
            ring: Some(RingSettings::new(Family::V4, 30_000..=30_039)),
            populations: vec![PopulationPlan {
                name: "slow".to_owned(),
                catalogue: protocol::registry::RTSP_PROTOCOL.catalogue,
                clients: None,
            }],
            serving: Vec::new(),
            endpoints: Vec::new(),
            stop_timeout: Duration::ZERO,
            seed: 0,
        })
        .expect("a worker")
    }

    #[test]
    fn much_that_has_waited_is_heard_some_at_a_time_and_in_its_order() {
        if !may_have_a_ring() {
            return;
        }
        let mut worker = worker();
        let session = worker.add_session(Box::new(Slow), 0, None);
        let mark = worker.rings.as_mut().expect("a ring").mark(Time::ZERO);
        for number in 0..5 {
            let bytes = vec![number];
            let waiting = Waiting::Bytes {
                session,
                channel: ChannelId(0),
                bytes: Cow::Owned(bytes),
                at: Time::ZERO,
                runs: Cow::Borrowed(&[]),
            };
            worker.wait(mark, waiting);
        }
        let left = |worker: &Worker| worker.rings.as_ref().expect("a ring").waiting.bytes;
        worker.let_go();
        assert_eq!(left(&worker), 4, "the loop looks at other things");
        assert!(worker.can_let_go());
        let first = worker
            .rings
            .as_ref()
            .expect("a ring")
            .waiting
            .entries
            .front();
        assert!(matches!(first, Some((_, Waiting::Bytes { bytes, .. })) if bytes[..] == [1]));
        worker.let_go_of_all();
        assert_eq!(left(&worker), 0);
        assert!(!worker.can_let_go());
    }
}

//! The senders of media of one worker, at home or lent to what sends for it.

use std::any::Any;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use measure::Time;
use slab::Slab;

/// A place in [`Flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(usize);

/// A sender of media with a schedule of its own. Once started it is asked for its packets by
/// whoever sends for its worker, on another thread where they are datagrams. It may make them there
/// as it likes: encrypt them, or send again what its session was asked for.
pub trait Flow: Any + fmt::Debug + Send {
    /// When the next packet is due; [`Time::NEVER`] while none is, and `None` where none will
    /// follow: then it has ended. What a session does to it may make that earlier.
    fn next_due(&self) -> Option<Time>;

    /// The next packet, if it is due.
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket>;

    /// Tells what became of a packet: when it left, or that the network stack did not take it.
    /// Comes for each packet, in the order in which they were handed out.
    fn left(&mut self, tag: Tag, left: Option<Handover>);

    /// Whether the times at which each packet leaves are wanted exactly: then it has a system call
    /// of its own.
    fn wants_times(&self) -> bool {
        false
    }

    /// Whether its packets are to be spaced evenly rather than to leave together with those of
    /// others.
    fn wants_even_spacing(&self) -> bool {
        false
    }

    /// Whether it sends parts of a stream in a connection, none of which may be missing. Then it is
    /// asked for a packet only while nothing else waits on the connection, and is told that a packet
    /// has left when the kernel has taken all of it, of which it keeps little that is not sent. It
    /// hands out no further packet before.
    fn waits_for_room(&self) -> bool {
        false
    }
}

/// A packet whose time has come: a datagram, or a piece of a connection's bytes.
#[derive(Clone, Debug)]
pub struct FlowPacket {
    /// When it was due.
    pub due: Time,
    /// Its first bytes: the protocol's headers, and in a connection what frames them.
    pub header: PacketHeader,
    /// The rest, which may be shared with all other receivers of the same media.
    pub payload: Bytes,
    /// To be handed back to [`Flow::left`].
    pub tag: Tag,
}

/// Which packet of its flow one is, as the flow numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u64);

/// The first bytes of a packet, at most [`PacketHeader::ROOM`]. They are copied, so they are for
/// what each packet has of its own.
#[derive(Clone, Copy)]
pub struct PacketHeader {
    bytes: [u8; PacketHeader::ROOM],
    length: u8,
}

impl PacketHeader {
    /// The most bytes.
    pub const ROOM: usize = 40;

    /// None.
    pub const EMPTY: PacketHeader = PacketHeader {
        bytes: [0; PacketHeader::ROOM],
        length: 0,
    };

    /// The same with more behind it.
    ///
    /// # Panics
    /// If that is longer than there is room.
    #[inline]
    #[must_use]
    pub fn with(mut self, more: &[u8]) -> PacketHeader {
        let begin = usize::from(self.length);
        let end = begin + more.len();
        self.bytes[begin..end].copy_from_slice(more);
        self.length = end as u8;
        self
    }
}

impl Deref for PacketHeader {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for PacketHeader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

/// When the network stack took a packet: not before `began`, not after `ended`.
///
/// Of a datagram both are read around the system call; on the loopback interface it also arrives
/// between them. So it is of a packet in a connection, unless the connection was full: then it
/// waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Right before the call.
    pub began: Time,
    /// Right after it.
    pub ended: Time,
}

impl Handover {
    /// At a time that is known exactly.
    pub fn at(time: Time) -> Handover {
        Handover {
            began: time,
            ended: time,
        }
    }
}

/// Whoever a flow was lent to ([`Flows::lend`]): how its session still reaches it.
///
/// While the flow is away it may send at any moment, but neither while it is reached nor after it
/// was taken back.
pub trait Lender {
    /// Calls `reach`, once, with the flow, which sends nothing meanwhile.
    fn with(&mut self, reach: &mut dyn FnMut(&mut dyn Flow));

    /// Gives the flow back. What it says it has sent is then final.
    fn take(self: Box<Self>) -> Box<dyn Flow>;
}

/// All senders of one worker, side by side.
#[derive(Debug, Default)]
pub struct Flows(Slab<Place>);

/// What a session does wrong that asks for a flow of another type.
const OTHER_TYPE: &str = "a session takes its flow for another than it made";

/// Why nobody finds a flow between its places: nothing else is called meanwhile.
const BETWEEN: &str = "a flow is between its places only within one call";

enum Place {
    Home(Box<dyn Flow>),
    Lent(Box<dyn Lender>),
    /// On its way between the two: only within [`Flows::lend`] and [`Flows::take_back`].
    Between,
}

impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Home(flow) => flow.fmt(out),
            Place::Lent(_) => out.write_str("Lent"),
            Place::Between => out.write_str("Between"),
        }
    }
}

impl Flows {
    /// Adds a sender. It sends nothing before [`Output::StartFlow`](super::Output::StartFlow).
    pub fn insert(&mut self, flow: impl Flow) -> FlowId {
        FlowId(self.0.insert(Place::Home(Box::new(flow))))
    }

    /// What `reach` makes of the sender in that place, which is of that type: see [`Flows::reach`].
    ///
    /// # Panics
    /// If it was taken out, or is of another type: only its session does that, and knows what it
    /// made.
    pub fn with<F: Flow, R>(&mut self, id: FlowId, reach: impl FnOnce(&mut F) -> R) -> R {
        self.reach(id, |flow| {
            let flow: &mut dyn Any = flow;
            reach(flow.downcast_mut().expect(OTHER_TYPE))
        })
    }

    /// What `reach` makes of the sender in that place. One that is sending may wait for this, or be
    /// waited for: what takes long is to be done elsewhere.
    ///
    /// # Panics
    /// If it was taken out: only its session does that.
    pub fn reach<R>(&mut self, id: FlowId, reach: impl FnOnce(&mut dyn Flow) -> R) -> R {
        match &mut self.0[id.0] {
            Place::Home(flow) => reach(&mut **flow),
            Place::Lent(lender) => {
                let mut reach = Some(reach);
                let mut result = None;
                lender.with(&mut |flow| {
                    if let Some(reach) = reach.take() {
                        result = Some(reach(flow));
                    }
                });
                result.expect("a lender calls what it is given")
            }
            Place::Between => unreachable!("{BETWEEN}"),
        }
    }

    /// Takes a sender out, back from where it was lent to. It sends no more, so what it says it has
    /// sent is final.
    ///
    /// # Panics
    /// If it was taken out already: only its session does that.
    pub fn remove(&mut self, id: FlowId) -> Box<dyn Flow> {
        match self.0.remove(id.0) {
            Place::Home(flow) => flow,
            Place::Lent(lender) => lender.take(),
            Place::Between => unreachable!("{BETWEEN}"),
        }
    }

    /// The same, of that type.
    ///
    /// # Panics
    /// If it was taken out already, or is of another type.
    pub fn take<F: Flow>(&mut self, id: FlowId) -> Box<F> {
        let flow: Box<dyn Any> = self.remove(id);
        flow.downcast().expect(OTHER_TYPE)
    }

    /// Whether a sender is in that place, at home or lent.
    pub fn contains(&self, id: FlowId) -> bool {
        self.0.contains(id.0)
    }

    /// Lends a sender that is at home: `lend` takes it and says how it is reached from now on. Says
    /// whether it was at home.
    ///
    /// # Panics
    /// If it was taken out.
    pub fn lend(
        &mut self,
        id: FlowId,
        lend: impl FnOnce(Box<dyn Flow>) -> Box<dyn Lender>,
    ) -> bool {
        let place = &mut self.0[id.0];
        match std::mem::replace(place, Place::Between) {
            Place::Home(flow) => {
                *place = Place::Lent(lend(flow));
                true
            }
            lent => {
                *place = lent;
                false
            }
        }
    }

    /// Takes a sender back from where it was lent to; nothing, where it is at home or was taken
    /// out.
    pub fn take_back(&mut self, id: FlowId) {
        let Some(place) = self.0.get_mut(id.0) else {
            return;
        };
        *place = match std::mem::replace(place, Place::Between) {
            Place::Lent(lender) => Place::Home(lender.take()),
            home => home,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;

    use measure::Time;

    use super::*;
    use crate::media::rtp::RtpFlow;
    use crate::media::rtp::flow::{Clip, Faults, FlowSettings, Pacing};

    fn flow() -> RtpFlow {
        RtpFlow::new(FlowSettings {
            clip: Arc::new(Clip::audio()),
            pacing: Pacing::Spread,
            ssrc: 7,
            first_seq: 1,
            first_timestamp: 0,
            length: None,
            faults: Faults::default(),
            seed: 0,
            log: false,
        })
    }

    type Away = Rc<RefCell<Option<Box<dyn Flow>>>>;

    struct Friend(Away);

    impl Lender for Friend {
        fn with(&mut self, reach: &mut dyn FnMut(&mut dyn Flow)) {
            reach(&mut **self.0.borrow_mut().as_mut().expect("it is here"));
        }

        fn take(self: Box<Self>) -> Box<dyn Flow> {
            self.0.borrow_mut().take().expect("it is here")
        }
    }

    fn lend(flows: &mut Flows, id: FlowId) -> Away {
        let away = Away::default();
        let put = away.clone();
        assert!(flows.lend(id, move |flow| {
            *put.borrow_mut() = Some(flow);
            Box::new(Friend(put))
        }));
        away
    }

    #[test]
    fn a_flow_is_reached_at_home_and_away() {
        let mut flows = Flows::default();
        let (other, id) = (flows.insert(flow()), flows.insert(flow()));
        let start = Time::from_nanos(5);
        flows.with(id, |flow: &mut RtpFlow| flow.start(start));
        let away = lend(&mut flows, id);
        assert!(flows.contains(id) && away.borrow().is_some());
        assert_eq!(flows.reach(id, |flow| flow.next_due()), Some(start));
        assert!(!flows.lend(id, |_| unreachable!("it is not at home")));
        // What is done to it there is done to it.
        flows.with(id, RtpFlow::pause);
        flows.take_back(id);
        assert!(away.borrow().is_none());
        assert_eq!(flows.reach(id, |flow| flow.next_due()), None);
        flows.take_back(id);
        let away = lend(&mut flows, id);
        let flow: Box<RtpFlow> = flows.take(id);
        assert!(away.borrow().is_none() && !flows.contains(id));
        assert_eq!(flow.ssrc(), 7);
        flows.take_back(id);
        assert!(flows.contains(other) && !flows.contains(id));
    }
}

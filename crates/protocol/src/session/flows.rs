//! The senders of media of one worker, at home or lent to what sends for it.

use std::fmt;

use measure::Time;
use slab::Slab;

use crate::media::rtp::{FlowPacket, Handover, RtpFlow, Tag};
use crate::media::ts::flow::TsFlow;

/// A place in [`Flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(usize);

/// A sender of media with a schedule of its own.
#[derive(Debug)]
pub enum Flow {
    /// A stream of RTP.
    Rtp(Box<RtpFlow>),
    /// A transport stream.
    Ts(Box<TsFlow>),
}

impl Flow {
    /// When the next packet is due; `None` where none will follow.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        match self {
            Flow::Rtp(flow) => flow.next_due(),
            Flow::Ts(flow) => flow.next_due(),
        }
    }

    /// The next packet, if it is due.
    #[inline]
    pub fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        match self {
            Flow::Rtp(flow) => flow.next_packet(now),
            Flow::Ts(flow) => flow.next_packet(now),
        }
    }

    /// Tells what became of a packet: when it left, or that the network stack did not take it.
    #[inline]
    pub fn left(&mut self, tag: Tag, left: Option<Handover>) {
        match self {
            Flow::Rtp(flow) => flow.left(tag, left),
            Flow::Ts(flow) => flow.left(left),
        }
    }

    /// Whether the times at which each packet leaves are wanted exactly: then it has a system call of its own.
    #[inline]
    pub fn wants_times(&self) -> bool {
        match self {
            Flow::Rtp(flow) => flow.wants_times(),
            Flow::Ts(_) => false,
        }
    }

    /// The stream of RTP that it is.
    ///
    /// # Panics
    /// If it is none: its session knows what it made.
    pub fn rtp(&mut self) -> &mut RtpFlow {
        match self {
            Flow::Rtp(flow) => flow,
            Flow::Ts(_) => panic!("{NOT_RTP}"),
        }
    }

    /// The same, taken out.
    ///
    /// # Panics
    /// If it is none: its session knows what it made.
    pub fn into_rtp(self) -> Box<RtpFlow> {
        match self {
            Flow::Rtp(flow) => flow,
            Flow::Ts(_) => panic!("{NOT_RTP}"),
        }
    }
}

const NOT_RTP: &str = "a session takes its flow for one of RTP, and it is not";

/// Whoever a flow was lent to ([`Flows::lend`]): how its session still reaches it.
///
/// While the flow is away it may send at any moment, but neither while it is reached nor after it was
/// taken back.
pub trait Lender {
    /// Calls `reach`, once, with the flow, which sends nothing meanwhile.
    fn with(&mut self, reach: &mut dyn FnMut(&mut Flow));

    /// Gives the flow back. What it says it has sent is then final.
    fn take(self: Box<Self>) -> Flow;
}

/// All senders of one worker, side by side.
#[derive(Debug, Default)]
pub struct Flows(Slab<Place>);

/// Why nobody finds a flow between its places: nothing else is called meanwhile.
const BETWEEN: &str = "a flow is between its places only within one call";

enum Place {
    Home(Flow),
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
    pub fn insert(&mut self, flow: Flow) -> FlowId {
        FlowId(self.0.insert(Place::Home(flow)))
    }

    /// What `reach` makes of the RTP sender in that place: see [`Flows::reach`].
    ///
    /// # Panics
    /// If it was taken out, or sends no RTP: only its session does that, and knows what it made.
    pub fn with<R>(&mut self, id: FlowId, reach: impl FnOnce(&mut RtpFlow) -> R) -> R {
        self.reach(id, |flow| reach(flow.rtp()))
    }

    /// What `reach` makes of the sender in that place. One that is sending may wait for this, or be
    /// waited for: what takes long is to be done elsewhere.
    ///
    /// # Panics
    /// If it was taken out: only its session does that.
    pub fn reach<R>(&mut self, id: FlowId, reach: impl FnOnce(&mut Flow) -> R) -> R {
        match &mut self.0[id.0] {
            Place::Home(flow) => reach(flow),
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

    /// Takes a sender out, back from where it was lent to. It sends no more, so what it says it has sent is
    /// final.
    ///
    /// # Panics
    /// If it was taken out already: only its session does that.
    pub fn remove(&mut self, id: FlowId) -> Flow {
        match self.0.remove(id.0) {
            Place::Home(flow) => flow,
            Place::Lent(lender) => lender.take(),
            Place::Between => unreachable!("{BETWEEN}"),
        }
    }

    /// Whether a sender is in that place, at home or lent.
    pub fn contains(&self, id: FlowId) -> bool {
        self.0.contains(id.0)
    }

    /// Lends a sender that is at home: `lend` takes it and says how it is reached from now on. Says whether
    /// it was at home.
    ///
    /// # Panics
    /// If it was taken out.
    pub fn lend(&mut self, id: FlowId, lend: impl FnOnce(Flow) -> Box<dyn Lender>) -> bool {
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

    /// Takes a sender back from where it was lent to; nothing, where it is at home or was taken out.
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
    use crate::media::rtp::flow::{Clip, Faults, FlowSettings, Pacing};

    fn flow() -> Flow {
        Flow::Rtp(Box::new(RtpFlow::new(FlowSettings {
            clip: Arc::new(Clip::audio()),
            pacing: Pacing::Spread,
            ssrc: 7,
            first_seq: 1,
            first_timestamp: 0,
            length: None,
            faults: Faults::default(),
            seed: 0,
            log: false,
        })))
    }

    type Away = Rc<RefCell<Option<Flow>>>;

    struct Friend(Away);

    impl Lender for Friend {
        fn with(&mut self, reach: &mut dyn FnMut(&mut Flow)) {
            reach(self.0.borrow_mut().as_mut().expect("it is here"));
        }

        fn take(self: Box<Self>) -> Flow {
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
        flows.with(id, |flow| flow.start(start));
        let away = lend(&mut flows, id);
        assert!(flows.contains(id) && away.borrow().is_some());
        assert_eq!(flows.with(id, |flow| flow.next_due()), Some(start));
        assert!(!flows.lend(id, |_| unreachable!("it is not at home")));
        // What is done to it there is done to it.
        flows.with(id, RtpFlow::pause);
        flows.take_back(id);
        assert!(away.borrow().is_none());
        assert_eq!(flows.with(id, |flow| flow.next_due()), None);
        flows.take_back(id);
        let away = lend(&mut flows, id);
        let flow = flows.remove(id).into_rtp();
        assert!(away.borrow().is_none() && !flows.contains(id));
        assert_eq!(flow.ssrc(), 7);
        flows.take_back(id);
        assert!(flows.contains(other) && !flows.contains(id));
    }
}

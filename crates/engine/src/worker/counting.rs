//! What counting a packet of media needs, beside what its socket knows.

use std::net::IpAddr;

use measure::tester;
use protocol::session::{Arrival, MediaEvent, SinkId, Sinks};

use super::inbox::Pending;
use super::keys::SessionKey;
use super::populations::Populations;
use super::runtime::Runtime;

/// The sinks, and where what they count goes.
pub(super) struct Counting<'a> {
    pub(super) sinks: &'a mut Sinks,
    pub(super) populations: &'a mut Populations,
    pub(super) runtime: &'a mut Runtime,
}

/// What counts media on a worker, the rest of which can be used beside it.
macro_rules! counting {
    ($worker:ident) => {
        &mut $crate::worker::counting::Counting {
            sinks: &mut $worker.sinks,
            populations: &mut $worker.populations,
            runtime: &mut $worker.runtime,
        }
    };
}
pub(super) use counting;

/// Counts a datagram from another address than the server's. Tells the session of the first one.
#[cold]
pub(super) fn foreign(
    is_known: &mut bool,
    (session, sink): (SessionKey, SinkId),
    from: IpAddr,
    runtime: &mut Runtime,
) {
    runtime.tester.add(tester::FOREIGN_PACKETS, 1);
    if !std::mem::replace(is_known, true) {
        let event = MediaEvent::Foreign { from };
        runtime.inbox.push(session, Pending::Media { sink, event });
    }
}

impl Counting<'_> {
    /// Counts a packet. What its session is to hear of it is pending then; says whether it is
    /// anything.
    #[inline]
    pub(super) fn packet(
        &mut self,
        (session, population): (SessionKey, usize),
        sink: SinkId,
        arrival: &Arrival<'_>,
    ) -> bool {
        let recorder = self.populations.recorder_at(population, arrival.at);
        let event = self.sinks.packet(sink, arrival, recorder);
        if let Some(event) = event {
            let heard = Pending::Media { sink, event };
            self.runtime.inbox.push(session, heard);
        }
        event.is_some()
    }
}

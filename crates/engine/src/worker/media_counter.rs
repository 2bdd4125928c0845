//! Context for counting a media packet.

use std::net::IpAddr;

use measure::tester;
use net::batch::ReceivedDatagram;
use session::{Arrival, Input, MediaEvent, SinkId, Sinks};

use super::ids::SessionKey;
use super::populations::Populations;
use super::runtime::Runtime;

/// The sinks and the recorders they write to.
pub(super) struct MediaCounter<'a> {
    pub(super) sinks: &'a mut Sinks,
    pub(super) populations: &'a mut Populations,
    pub(super) runtime: &'a mut Runtime,
}

/// Borrows the fields of a worker that counting needs, leaving the others usable.
macro_rules! counting {
    ($worker:ident) => {
        &mut $crate::worker::media_counter::MediaCounter {
            sinks: &mut $worker.sinks,
            populations: &mut $worker.populations,
            runtime: &mut $worker.runtime,
        }
    };
}
pub(super) use counting;

/// Counts a datagram from an address other than the server's. Notifies the session of the first
/// one, if the socket has a sink.
#[cold]
pub(super) fn count_foreign(
    is_known: &mut bool,
    session: SessionKey,
    sink: Option<SinkId>,
    from: IpAddr,
    runtime: &mut Runtime,
) {
    runtime.tester.add(tester::FOREIGN_PACKETS, 1);
    if let Some(sink) = sink
        && !std::mem::replace(is_known, true)
    {
        let event = MediaEvent::Foreign { from };
        runtime.inbox.push(session, Input::Media { sink, event });
    }
}

impl MediaCounter<'_> {
    /// Counts a datagram of media. Queues the resulting media event for the session and returns
    /// `true` if there is one.
    #[inline]
    pub(super) fn datagram(
        &mut self,
        session: SessionKey,
        population: usize,
        sink: SinkId,
        datagram: &ReceivedDatagram<'_>,
    ) -> bool {
        let arrival = Arrival {
            at: datagram.at,
            bytes: datagram.bytes,
            length: datagram.length,
            // IP and UDP headers.
            overhead: if datagram.from.is_ipv4() { 28 } else { 48 },
        };
        let recorder = self.populations.recorder_at(population, arrival.at);
        let event = self.sinks.packet(sink, &arrival, recorder);
        if let Some(event) = event {
            let input = Input::Media { sink, event };
            self.runtime.inbox.push(session, input);
        }
        event.is_some()
    }
}

//! Message counts of a client. The content of messages is not a transport stream, and is not
//! checked.

use measure::{Recorder, Time};

use crate::codec::packet::DataHeader;
use crate::messages::{MessageOutcome, MessageTracker};
use crate::metrics as m;
use crate::seq::SeqNumber;
use kit::lifecycle::MediaTimes;
use kit::media::shared::Arrivals;

/// Messages of a connection.
#[derive(Debug, Default)]
pub(super) struct MessageCounter {
    messages: MessageTracker,
    first: Option<Time>,
    arrivals: Arrivals,
}

impl MessageCounter {
    /// Counts a packet that arrived for the first time. Everything before `acknowledged` has
    /// arrived or was given up.
    pub(super) fn packet(
        &mut self,
        header: &DataHeader,
        length: usize,
        at: Time,
        acknowledged: SeqNumber,
        recorder: &mut Recorder,
    ) {
        match self.first {
            None => {
                self.first = Some(at);
                self.arrivals.begin(at);
            }
            Some(_) => self.arrivals.packet(at),
        }
        let report = &mut |outcome| count(outcome, recorder);
        self.messages
            .add_packet(header, length, at, acknowledged, report);
    }

    /// Settles messages after everything before `acknowledged` has arrived or was given up.
    pub(super) fn settle(&mut self, now: Time, acknowledged: SeqNumber, recorder: &mut Recorder) {
        let report = &mut |outcome| count(outcome, recorder);
        self.messages.settle(now, acknowledged, report);
    }

    /// Arrival times of all packets. `None` before the first.
    pub(super) fn media_times(&self) -> Option<MediaTimes> {
        Some(MediaTimes {
            first: self.first?,
            last: self.arrivals.last(),
            longest_gap: self.arrivals.longest_gap(),
        })
    }
}

fn count(outcome: MessageOutcome, recorder: &mut Recorder) {
    match outcome {
        MessageOutcome::Whole(message) => {
            recorder.add(m::MESSAGES_EXPECTED, 1);
            recorder.add(m::MESSAGES_WHOLE, 1);
            recorder.add(m::MESSAGE_BYTES, message.bytes);
            recorder.add(m::MESSAGES_EARLY, u64::from(message.is_early));
            recorder.record_duration(m::MESSAGE_TIME, message.completion_time);
        }
        MessageOutcome::Incomplete => {
            recorder.add(m::MESSAGES_EXPECTED, 1);
            recorder.add(m::MESSAGES_INCOMPLETE, 1);
        }
        MessageOutcome::Missing(messages) => recorder.add(m::MESSAGES_EXPECTED, messages.into()),
        MessageOutcome::InconsistentPacket => recorder.add(m::MESSAGE_CONTRADICTIONS, 1),
    }
}

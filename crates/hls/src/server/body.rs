//! Bodies of responses, sent as fast as the client takes them.

use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Length of a piece. The kernel keeps less than this unsent.
const PIECE: usize = 64 << 10;

/// Number of pieces of a body that is spread over some time.
const SLOW_PIECES: u32 = 10;

/// A body that is being sent.
#[derive(Debug)]
pub(super) struct BodyFlow {
    rest: Bytes,
    piece: usize,
    next: Time,
    interval: Duration,
    is_pending: bool,
    sent: u64,
    /// Time when the kernel took the last piece.
    ended: Time,
}

impl BodyFlow {
    /// Creates the flow of a body. It is sent at once, or spread over `slowly`.
    pub(super) fn new(body: Bytes, now: Time, slowly: Option<Duration>) -> BodyFlow {
        let piece = match slowly {
            Some(_) => body.len().div_ceil(SLOW_PIECES as usize).max(1),
            None => PIECE,
        };
        BodyFlow {
            rest: body,
            piece,
            next: now,
            interval: slowly.map_or(Duration::ZERO, |time| time / (SLOW_PIECES - 1)),
            is_pending: false,
            sent: 0,
            ended: now,
        }
    }

    /// Number of bytes that the kernel has taken.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Time when the kernel took the last piece.
    pub(super) fn ended(&self) -> Time {
        self.ended
    }
}

impl Flow for BodyFlow {
    fn next_due(&self) -> Option<Time> {
        match (self.is_pending, self.rest.is_empty()) {
            (true, _) => Some(Time::NEVER),
            (false, true) => None,
            (false, false) => Some(self.next),
        }
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if self.is_pending || self.rest.is_empty() || self.next > now {
            return None;
        }
        let due = self.next;
        self.next = due + self.interval;
        self.is_pending = true;
        let payload = self.rest.split_to(self.piece.min(self.rest.len()));
        Some(FlowPacket {
            due,
            header: PacketHeader::EMPTY,
            tag: Tag(payload.len() as u64),
            payload,
        })
    }

    fn packet_sent(&mut self, Tag(length): Tag, left: Option<Handover>) {
        self.is_pending = false;
        if let Some(left) = left {
            self.sent += length;
            self.ended = left.ended;
        }
    }

    fn needs_send_times(&self) -> bool {
        true
    }

    fn is_byte_stream(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_sent_piece_by_piece() {
        let body = Bytes::from(vec![1; 3 * PIECE + 1]);
        for (slowly, ends) in [(None, 0), (Some(Duration::from_secs(9)), 9)] {
            let mut flow = BodyFlow::new(body.clone(), Time::ZERO, slowly);
            let (mut now, mut length) = (Time::ZERO, 0);
            while let Some(due) = flow.next_due() {
                assert_ne!(due, Time::NEVER);
                now = now.max(due);
                let packet = flow.next_packet(now).expect("it is due");
                length += packet.payload.len();
                assert_eq!(flow.next_due(), Some(Time::NEVER));
                assert!(flow.next_packet(now).is_none());
                flow.packet_sent(packet.tag, Some(Handover::at(now)));
            }
            assert_eq!((length, flow.sent()), (body.len(), body.len() as u64));
            assert_eq!(now, Time::ZERO + Duration::from_secs(ends));
        }
    }
}

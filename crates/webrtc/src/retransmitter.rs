//! Retransmissions that the other side requests.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use measure::Time;

use crate::feedback::{RtxStream, SendHistory, SendHistoryCounts};
use session::PacketHeader;

/// Number of packets kept: some four seconds of 1 Mb/s video.
const HISTORY_LENGTH: usize = 512;

/// Maximum number of queued retransmissions. The other side requests further packets again if it
/// still needs them.
const QUEUE_MAX: usize = 256;

/// Upper limit of the round-trip time, which the server can prolong at will.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);

/// Recently sent packets of a stream, and a queue of retransmissions.
#[derive(Debug)]
pub(super) struct Retransmitter {
    history: SendHistory,
    /// Retransmission stream. `None` to retransmit in the original stream.
    rtx_stream: Option<RtxStream>,
    /// Sequence numbers, each with the time of its request.
    queue: VecDeque<(u16, Time)>,
}

impl Retransmitter {
    pub(super) fn new(rtx_stream: Option<RtxStream>) -> Retransmitter {
        Retransmitter {
            history: SendHistory::new(HISTORY_LENGTH),
            rtx_stream,
            queue: VecDeque::new(),
        }
    }

    /// Returns `true` if retransmissions have a stream of their own.
    pub(super) fn has_rtx_stream(&self) -> bool {
        self.rtx_stream.is_some()
    }

    /// Stores a packet that is sent for the first time.
    pub(super) fn store(&mut self, header: &PacketHeader, payload: &Bytes) {
        if let Some(&[high, low]) = header.get(2..4) {
            let sequence = u16::from_be_bytes([high, low]);
            self.history.store(sequence, *header, payload.clone());
        }
    }

    /// Queues requested packets. Packets requested again within `round_trip` are ignored, because
    /// the retransmission is still in flight.
    pub(super) fn queue_requested(
        &mut self,
        missing: &[u16],
        now: Time,
        round_trip: Option<Duration>,
    ) {
        if let Some(round_trip) = round_trip {
            self.history.set_round_trip(round_trip.min(ROUND_TRIP_MAX));
        }
        let room = QUEUE_MAX - self.queue.len();
        let queued = missing.iter().take(room);
        self.queue.extend(queued.map(|sequence| (*sequence, now)));
    }

    /// Returns the time of the oldest request in the queue.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.queue.front().map(|(_, at)| *at)
    }

    /// Returns the header of the next retransmission, the time of the request and the original
    /// sequence number. Appends the payload to `out`.
    pub(super) fn next_retransmission(
        &mut self,
        now: Time,
        out: &mut BytesMut,
    ) -> Option<(PacketHeader, Time, u16)> {
        while let Some((sequence, due)) = self.queue.pop_front() {
            let Some(sent) = self.history.retransmit(sequence, now) else {
                continue;
            };
            let payload: &Bytes = &sent.payload;
            let header = match &mut self.rtx_stream {
                Some(stream) => stream.wrap(&sent.header, payload, out),
                None => {
                    out.extend_from_slice(payload);
                    Some(sent.header)
                }
            };
            if let Some(header) = header {
                return Some((header, due, sequence));
            }
        }
        None
    }

    /// Returns the counts of all requests.
    pub(super) fn counts(&self) -> SendHistoryCounts {
        self.history.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    fn send(retransmitter: &mut Retransmitter, sequence: u16) {
        let header = PacketHeader::EMPTY
            .append(&[0x80, 96])
            .append(&sequence.to_be_bytes())
            .append(&[0, 0, 0, 1, 0, 0, 0, 7]);
        let payload = Bytes::from(sequence.to_be_bytes().to_vec());
        retransmitter.store(&header, &payload);
    }

    #[test]
    fn first_request_is_answered_immediately() {
        let mut retransmitter = Retransmitter::new(None);
        send(&mut retransmitter, 7);
        let round_trip = Some(Duration::from_millis(300));
        let answers = |retransmitter: &mut Retransmitter, ms: u64| {
            retransmitter.queue_requested(&[7], at(ms), round_trip);
            retransmitter
                .next_retransmission(at(ms), &mut BytesMut::new())
                .is_some()
        };
        assert!(answers(&mut retransmitter, 1));
        assert!(
            !answers(&mut retransmitter, 300),
            "the answer may be on its way"
        );
        assert!(answers(&mut retransmitter, 301));
    }

    #[test]
    fn requested_packet_is_retransmitted_once_per_round_trip() {
        for stream in [
            None,
            Some(RtxStream {
                ssrc: 9,
                payload_type: 97,
                next_sequence: 4,
            }),
        ] {
            let mut retransmitter = Retransmitter::new(stream);
            for sequence in [65_535, 0, 1] {
                send(&mut retransmitter, sequence);
            }
            retransmitter.queue_requested(&[65_535, 1, 1, 77], at(10), None);
            assert_eq!(retransmitter.next_due(), Some(at(10)));
            let mut out = BytesMut::new();
            let mut found = Vec::new();
            while let Some((header, due, sequence)) =
                retransmitter.next_retransmission(at(11), &mut out)
            {
                assert_eq!(due, at(10));
                assert!([65_535, 1].contains(&sequence));
                found.push((header[2..4].to_vec(), header[11], out.split().to_vec()));
            }
            let expected = match stream {
                None => [
                    (vec![255, 255], 7, vec![255, 255]),
                    (vec![0, 1], 7, vec![0, 1]),
                ],
                Some(_) => [
                    (vec![0, 4], 9, vec![255, 255, 255, 255]),
                    (vec![0, 5], 9, vec![0, 1, 0, 1]),
                ],
            };
            assert_eq!(found, expected);
            assert_eq!(retransmitter.next_due(), None);
            let counts = retransmitter.counts();
            assert_eq!((counts.requested, counts.retransmitted), (4, 2));
            assert_eq!((counts.too_soon, counts.unknown), (1, 1));
        }
    }

    #[test]
    fn number_of_retransmissions_is_bounded() {
        let mut retransmitter = Retransmitter::new(None);
        let all: Vec<u16> = (0..=u16::MAX).collect();
        for sequence in &all {
            send(&mut retransmitter, *sequence);
        }
        retransmitter.queue_requested(&all[65_000..], at(10), None);
        retransmitter.queue_requested(&all, at(10), None);
        let mut out = BytesMut::new();
        let mut sent = 0;
        while retransmitter
            .next_retransmission(at(11), &mut out)
            .is_some()
        {
            sent += 1;
        }
        assert!(sent <= QUEUE_MAX, "{sent}");
    }
}

//! Congestion control of publishing clients, by REMB, transport-wide feedback or receiver reports.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

use crate::feedback::{BandwidthEstimator, PacketFeedback, TICK, TransportCc};
use crate::transport_sequence::TransportSequence;
use session::PacketHeader;

/// Maximum number of sent packets of a stream that the session has not collected yet.
const UNCOLLECTED_MAX: usize = 2048;
/// Number of packets of a transport whose send times are kept: about four seconds at 10 Mb/s.
const SENT_PACKETS_KEPT: usize = 4096;

/// Minimum bit rate in bits per second, as in browsers.
const BITRATE_MIN: u64 = 30_000;

/// Bytes of a packet besides its payload: headers of IP, UDP and RTP with extensions, and the SRTP
/// trailer.
const HEADERS: usize = OVERHEAD + 12 + 12 + 16;

/// Bytes of the headers of IP and UDP, which use capacity of the path.
const OVERHEAD: usize = 28;

/// Maximum age of the last transport feedback. Without newer feedback, receiver reports are used.
const FEEDBACK_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval over which the video payload's share of the sent bytes is measured.
const SHARE_INTERVAL: Duration = Duration::from_secs(1);

/// Share of the video payload before the first measurement.
const SHARE: f64 = 0.9;

/// Packet that was sent with a transport-wide sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentPacket {
    number: u16,
    at: Time,
    /// Bytes on the wire, with all headers.
    wire: u32,
    /// Bytes of the payload alone.
    payload: u32,
    /// True if the server has reported that it did not arrive.
    lost: bool,
}

/// Numbers the packets of a stream and remembers them.
#[derive(Debug)]
pub(super) struct NumberedStream {
    numbers: TransportSequence,
    uncollected: VecDeque<SentPacket>,
}

impl NumberedStream {
    pub(super) fn new(numbers: TransportSequence) -> NumberedStream {
        NumberedStream {
            numbers,
            uncollected: VecDeque::new(),
        }
    }

    /// Returns the header of the next packet, with a transport-wide sequence number if there is
    /// room.
    pub(super) fn add_number(
        &mut self,
        header: &PacketHeader,
        payload: usize,
        trailer: usize,
        now: Time,
    ) -> PacketHeader {
        let Some((numbered, number)) = self.numbers.add_number(header) else {
            return *header;
        };
        if self.uncollected.len() >= UNCOLLECTED_MAX {
            self.uncollected.pop_front();
        }
        self.uncollected.push_back(SentPacket {
            number,
            at: now,
            wire: (numbered.len() + payload + trailer + OVERHEAD) as u32,
            payload: payload as u32,
            lost: false,
        });
        numbered
    }

    /// Hands the sent packets over to `into`. `follows` is true if the stream follows the estimate.
    pub(super) fn collect_into(&mut self, follows: bool, into: &mut CongestionControl) {
        for packet in self.uncollected.drain(..) {
            into.record_sent(packet, follows);
        }
    }
}

/// Estimates how much a transport may send.
#[derive(Debug)]
pub(super) struct CongestionControl {
    /// Transport-wide sequence numbers, if the server sends feedback for them.
    numbers: Option<TransportSequence>,
    /// Sent packets, each at the index `number % SENT_PACKETS_KEPT`.
    sent_packets: Vec<Option<SentPacket>>,
    /// Time of the last transport feedback, or of the creation.
    last_feedback_at: Time,
    estimator: BandwidthEstimator,
    /// Start of the current measurement of `share`, and the bytes since then: all of them, and the
    /// payload of streams that follow the estimate.
    share_counts: (Time, u64, u64),
    share: f64,
}

impl CongestionControl {
    /// Creates the estimate for a transport that sends `bitrate` (in bits per second) as long as it
    /// may, in packets of at most `packet` bytes of payload.
    pub(super) fn new(
        now: Time,
        bitrate: u64,
        packet: usize,
        extension: Option<u8>,
    ) -> CongestionControl {
        // Covers headers, audio and reports as well. Headers count twice because one packet of each
        // picture is not full.
        let header_share = (2 * HEADERS) as f64 / packet.max(1) as f64;
        let bitrate_max = (bitrate as f64 * (1.1 + header_share)) as u64 + 150_000;
        CongestionControl {
            numbers: extension.map(TransportSequence::new),
            sent_packets: Vec::new(),
            last_feedback_at: now,
            estimator: BandwidthEstimator::new(now, bitrate_max, BITRATE_MIN, bitrate_max),
            share_counts: (now, 0, 0),
            share: SHARE,
        }
    }

    pub(super) fn numbers(&self) -> Option<TransportSequence> {
        self.numbers.clone()
    }

    fn record_sent(&mut self, packet: SentPacket, follows: bool) {
        if self.sent_packets.is_empty() {
            self.sent_packets.resize(SENT_PACKETS_KEPT, None);
        }
        self.sent_packets[usize::from(packet.number) % SENT_PACKETS_KEPT] = Some(packet);
        self.share_counts.1 += u64::from(packet.wire);
        if follows {
            self.share_counts.2 += u64::from(packet.payload);
        }
    }

    /// Handles transport feedback: which packets arrived, and when.
    pub(super) fn handle_transport_feedback(&mut self, now: Time, message: &TransportCc) {
        let tick = TICK.as_nanos() as i64;
        // The reference time counts units of 64 ms, which are 256 ticks.
        let mut at = i64::from(message.reference_time) * 256 * tick;
        let mut feedback = Vec::new();
        for (index, arrival) in message.receive_deltas.iter().enumerate() {
            if let Some(delta) = arrival {
                at += i64::from(*delta) * tick;
            }
            let number = message.base_sequence.wrapping_add(index as u16);
            let Some(entry) = self
                .sent_packets
                .get_mut(usize::from(number) % SENT_PACKETS_KEPT)
            else {
                continue;
            };
            let Some(packet) = entry.as_mut().filter(|packet| packet.number == number) else {
                continue;
            };
            let was_lost = std::mem::replace(&mut packet.lost, true);
            if was_lost && arrival.is_none() {
                continue;
            }
            feedback.push(PacketFeedback {
                sent_at: packet.at,
                bytes: packet.wire,
                arrived_nanos: arrival.map(|_| at),
                was_lost,
            });
            // A packet that is reported missing may still arrive.
            if arrival.is_some() {
                *entry = None;
            }
        }
        let (since, wire, payload) = self.share_counts;
        if now.since(since) >= SHARE_INTERVAL {
            if wire > 0 && payload > 0 {
                self.share = payload as f64 / wire as f64;
            }
            self.share_counts = (now, 0, 0);
        }
        // Feedback about packets that were never sent does not count.
        if !feedback.is_empty() {
            self.last_feedback_at = now;
        }
        self.estimator.record_feedback(now, &feedback);
    }

    pub(super) fn remb(&mut self, bitrate: u64) {
        self.estimator.remb(bitrate);
    }

    /// Handles the loss in receiver reports. It is ignored while transport feedback arrives,
    /// whatever was negotiated.
    pub(super) fn handle_report(&mut self, now: Time, packets: u64, lost: u64) {
        let has_feedback =
            self.numbers.is_some() && now.since(self.last_feedback_at) <= FEEDBACK_TIMEOUT;
        if has_feedback {
            return;
        }
        if self.numbers.is_some() {
            self.estimator.reset_delay();
        }
        self.estimator.record_loss_report(now, packets, lost);
    }

    /// Returns the bit rate that may be sent with all headers, and the part of it for video
    /// payload, in bits per second.
    pub(super) fn estimate(&self) -> (u64, u64) {
        let all = self.estimator.estimate();
        (all, (all as f64 * self.share) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn feedback_is_matched_to_sent_packets() {
        let mut congestion = CongestionControl::new(at(0), 1_000_000, 1100, Some(3));
        let (initial, _) = congestion.estimate();
        let header = PacketHeader::EMPTY.append(&[0x80, 96]).append(&[0; 10]);
        let numbers = congestion.numbers().expect("it has some");
        let mut streams = [
            NumberedStream::new(numbers.clone()),
            NumberedStream::new(numbers),
        ];
        let mut first = Vec::new();
        for turn in 0..300 {
            for (index, stream) in streams.iter_mut().enumerate() {
                let numbered = stream.add_number(&header, 900 - 800 * index, 16, at(turn * 4));
                first.push(u16::from_be_bytes([numbered[17], numbered[18]]));
            }
        }
        // Numbers are consecutive across both streams.
        assert!(
            first
                .iter()
                .zip(1..)
                .all(|(number, expected)| *number == expected)
        );
        for (follows, stream) in [true, false].into_iter().zip(&mut streams) {
            stream.collect_into(follows, &mut congestion);
        }
        // All packets arrive, with growing delay.
        let message = |delta: i16| TransportCc {
            base_sequence: 1,
            receive_deltas: (0..600).map(|index| Some(delta * (index % 2))).collect(),
            ..TransportCc::default()
        };
        congestion.handle_transport_feedback(at(1300), &message(40));
        let (all, payload) = congestion.estimate();
        assert!(all < initial, "{all}");
        // The share of the video payload is known now.
        let share = 900.0 / f64::from(900 + 16 + 28 + 20 + 100 + 16 + 28 + 20);
        assert_eq!(payload, (all as f64 * share) as u64);
        // Repeated feedback changes nothing.
        congestion.handle_transport_feedback(at(1310), &message(400));
        assert_eq!(congestion.estimate().0, all);
    }

    #[test]
    fn reports_count_without_transport_feedback() {
        for numbers in [None, Some(3)] {
            let mut congestion = CongestionControl::new(at(0), 1_000_000, 1100, numbers);
            let (initial, _) = congestion.estimate();
            let header = PacketHeader::EMPTY.append(&[0x80, 96]).append(&[0; 10]);
            let report = |congestion: &mut CongestionControl, from: u64| {
                for second in from..from + 5 {
                    congestion.handle_report(at(second * 1000), 100, 30);
                }
                congestion.estimate().0
            };
            if let Some(numbers) = congestion.numbers() {
                let mut stream = NumberedStream::new(numbers);
                for second in 1..10 {
                    stream.add_number(&header, 900, 16, at(second * 1000));
                    stream.collect_into(true, &mut congestion);
                    let message = TransportCc {
                        base_sequence: second as u16,
                        receive_deltas: vec![Some(0)],
                        ..TransportCc::default()
                    };
                    congestion.handle_transport_feedback(at(second * 1000), &message);
                    congestion.handle_report(at(second * 1000), 100, 30);
                }
                assert_eq!(congestion.estimate().0, initial);
            }
            assert!(
                report(&mut congestion, 13) < initial * 7 / 10,
                "{numbers:?}"
            );
        }
    }

    #[test]
    fn packet_reported_missing_twice_is_lost_once() {
        let mut congestion = CongestionControl::new(at(0), 1_000_000, 1100, Some(3));
        let (initial, _) = congestion.estimate();
        let header = PacketHeader::EMPTY.append(&[0x80, 96]).append(&[0; 10]);
        let mut stream = NumberedStream::new(congestion.numbers().expect("it has some"));
        for packet in 0..100 {
            stream.add_number(&header, 900, 16, at(packet * 4));
        }
        stream.collect_into(true, &mut congestion);
        let message = |base: u16, count: u16| TransportCc {
            base_sequence: base,
            receive_deltas: (base..base + count)
                .map(|number| (number <= 95).then_some(16))
                .collect(),
            ..TransportCc::default()
        };
        congestion.handle_transport_feedback(at(600), &message(1, 100));
        for turn in 1..20 {
            congestion.handle_transport_feedback(at(600 + turn * 600), &message(96, 5));
        }
        assert_eq!(congestion.estimate().0, initial);
    }

    #[test]
    fn delay_estimate_expires_without_feedback() {
        let mut congestion = CongestionControl::new(at(0), 1_000_000, 1100, Some(3));
        let header = PacketHeader::EMPTY.append(&[0x80, 96]).append(&[0; 10]);
        let mut stream = NumberedStream::new(congestion.numbers().expect("it has some"));
        for packet in 0..300 {
            stream.add_number(&header, 900, 16, at(packet * 8));
        }
        stream.collect_into(true, &mut congestion);
        // Each packet takes longer than the one before: the path is full.
        let message = TransportCc {
            base_sequence: 1,
            receive_deltas: vec![Some(40); 300],
            ..TransportCc::default()
        };
        congestion.handle_transport_feedback(at(2600), &message);
        let (lowered, _) = congestion.estimate();
        for second in 10..30 {
            congestion.handle_report(at(second * 1000), 100, 0);
        }
        assert!(congestion.estimate().0 > lowered, "{lowered}");
    }

    #[test]
    fn estimate_covers_headers_of_small_packets() {
        let (all, _) = CongestionControl::new(at(0), 4_000_000, 256, None).estimate();
        assert!(all > 4_000_000 * (256 + 68) / 256, "{all}");
    }

    #[test]
    fn uncollected_packets_are_bounded() {
        let mut congestion = CongestionControl::new(at(0), 1_000_000, 1100, Some(3));
        let header = PacketHeader::EMPTY.append(&[0x80, 96]).append(&[0; 10]);
        let mut stream = NumberedStream::new(congestion.numbers().expect("it has some"));
        for _ in 0..100_000 {
            stream.add_number(&header, 100, 16, at(0));
        }
        assert_eq!(stream.uncollected.len(), UNCOLLECTED_MAX);
        stream.collect_into(true, &mut congestion);
        assert_eq!(congestion.sent_packets.len(), SENT_PACKETS_KEPT);
    }
}

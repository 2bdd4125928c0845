//! Congestion control of publishing clients, by REMB, transport-wide feedback or receiver reports.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

use crate::session::PacketHeader;
use crate::webrtc::feedback::{Estimator, TICK, Told, TransportCc};
use crate::webrtc::transport_numbers::TransportNumbers;

/// Maximum number of sent packets of a stream that the session has not collected yet.
const WAITING_MAX: usize = 2048;
/// Number of packets of a transport whose send times are kept: about four seconds at 10 Mb/s.
const KEPT: usize = 4096;

/// Minimum bit rate in bits per second, as in browsers.
const LEAST: u64 = 30_000;

/// Bytes of a packet besides its payload: headers of IP, UDP and RTP with extensions, and the SRTP
/// trailer.
const HEADERS: usize = OVERHEAD + 12 + 12 + 16;

/// Bytes of the headers of IP and UDP, which use capacity of the path.
const OVERHEAD: usize = 28;

/// Maximum age of the last transport feedback. Without newer feedback, receiver reports are used.
const TOLD_FOR: Duration = Duration::from_secs(2);

/// Interval over which the video payload's share of the sent bytes is measured.
const SHARE_EVERY: Duration = Duration::from_secs(1);

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
pub(super) struct Numbered {
    numbers: TransportNumbers,
    waiting: VecDeque<SentPacket>,
}

impl Numbered {
    pub(super) fn new(numbers: TransportNumbers) -> Numbered {
        Numbered {
            numbers,
            waiting: VecDeque::new(),
        }
    }

    /// Returns the header of the next packet, with a transport-wide sequence number if there is
    /// room.
    pub(super) fn number(
        &mut self,
        header: &PacketHeader,
        (payload, trailer): (usize, usize),
        now: Time,
    ) -> PacketHeader {
        let Some((numbered, number)) = self.numbers.number(header) else {
            return *header;
        };
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(SentPacket {
            number,
            at: now,
            wire: (numbered.len() + payload + trailer + OVERHEAD) as u32,
            payload: payload as u32,
            lost: false,
        });
        numbered
    }

    /// Hands the sent packets over to `into`. `follows` is true if the stream follows the estimate.
    pub(super) fn take(&mut self, follows: bool, into: &mut Congestion) {
        for packet in self.waiting.drain(..) {
            into.sent(packet, follows);
        }
    }
}

/// Estimates how much a transport may send.
#[derive(Debug)]
pub(super) struct Congestion {
    /// Transport-wide sequence numbers, if the server sends feedback for them.
    numbers: Option<TransportNumbers>,
    /// Sent packets, each at the index `number % KEPT`.
    kept: Vec<Option<SentPacket>>,
    /// Time of the last transport feedback, or of the creation.
    told: Time,
    estimator: Estimator,
    /// Start of the current measurement of `share`, and the bytes since then: all of them, and the
    /// payload of streams that follow the estimate.
    counted: (Time, u64, u64),
    share: f64,
}

impl Congestion {
    /// Creates the estimate for a transport that sends `bitrate` (in bits per second) as long as it
    /// may, in packets of at most `packet` bytes of payload.
    pub(super) fn new(
        now: Time,
        (bitrate, packet): (u64, usize),
        extension: Option<u8>,
    ) -> Congestion {
        // Covers headers, audio and reports as well. Headers count twice because one packet of each
        // picture is not full.
        let beside = (2 * HEADERS) as f64 / packet.max(1) as f64;
        let most = (bitrate as f64 * (1.1 + beside)) as u64 + 150_000;
        Congestion {
            numbers: extension.map(TransportNumbers::new),
            kept: Vec::new(),
            told: now,
            estimator: Estimator::new(now, most, LEAST, most),
            counted: (now, 0, 0),
            share: SHARE,
        }
    }

    pub(super) fn numbers(&self) -> Option<TransportNumbers> {
        self.numbers.clone()
    }

    fn sent(&mut self, packet: SentPacket, follows: bool) {
        if self.kept.is_empty() {
            self.kept.resize(KEPT, None);
        }
        self.kept[usize::from(packet.number) % KEPT] = Some(packet);
        self.counted.1 += u64::from(packet.wire);
        if follows {
            self.counted.2 += u64::from(packet.payload);
        }
    }

    /// Handles transport feedback: which packets arrived, and when.
    pub(super) fn told(&mut self, now: Time, message: &TransportCc) {
        let tick = TICK.as_nanos() as i64;
        // The reference time counts units of 64 ms, which are 256 ticks.
        let mut at = i64::from(message.reference) * 256 * tick;
        let mut told = Vec::new();
        for (place, arrival) in message.arrivals.iter().enumerate() {
            if let Some(delta) = arrival {
                at += i64::from(*delta) * tick;
            }
            let number = message.base.wrapping_add(place as u16);
            let Some(kept) = self.kept.get_mut(usize::from(number) % KEPT) else {
                continue;
            };
            let Some(packet) = kept.as_mut().filter(|packet| packet.number == number) else {
                continue;
            };
            let was_lost = std::mem::replace(&mut packet.lost, true);
            if was_lost && arrival.is_none() {
                continue;
            }
            told.push(Told {
                sent: packet.at,
                bytes: packet.wire,
                arrived: arrival.map(|_| at),
                was_lost,
            });
            // A packet that is reported missing may still arrive.
            if arrival.is_some() {
                *kept = None;
            }
        }
        let (since, wire, payload) = self.counted;
        if now.since(since) >= SHARE_EVERY {
            if wire > 0 && payload > 0 {
                self.share = payload as f64 / wire as f64;
            }
            self.counted = (now, 0, 0);
        }
        // Feedback about packets that were never sent does not count.
        if !told.is_empty() {
            self.told = now;
        }
        self.estimator.told(now, &told);
    }

    pub(super) fn remb(&mut self, bitrate: u64) {
        self.estimator.remb(bitrate);
    }

    /// Handles the loss in receiver reports. It is ignored while transport feedback arrives,
    /// whatever was negotiated.
    pub(super) fn reported(&mut self, now: Time, packets: u64, lost: u64) {
        let is_told = self.numbers.is_some() && now.since(self.told) <= TOLD_FOR;
        if is_told {
            return;
        }
        if self.numbers.is_some() {
            self.estimator.forget_delay();
        }
        self.estimator.reported(now, packets, lost);
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
        let mut congestion = Congestion::new(at(0), (1_000_000, 1100), Some(3));
        let (most, _) = congestion.estimate();
        let header = PacketHeader::EMPTY.with(&[0x80, 96]).with(&[0; 10]);
        let numbers = congestion.numbers().expect("it has some");
        let mut streams = [Numbered::new(numbers.clone()), Numbered::new(numbers)];
        let mut first = Vec::new();
        for turn in 0..300 {
            for (place, stream) in streams.iter_mut().enumerate() {
                let numbered = stream.number(&header, (900 - 800 * place, 16), at(turn * 4));
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
            stream.take(follows, &mut congestion);
        }
        // All packets arrive, with growing delay.
        let message = |delta: i16| TransportCc {
            base: 1,
            arrivals: (0..600).map(|place| Some(delta * (place % 2))).collect(),
            ..TransportCc::default()
        };
        congestion.told(at(1300), &message(40));
        let (all, payload) = congestion.estimate();
        assert!(all < most, "{all}");
        // The share of the video payload is known now.
        let share = 900.0 / f64::from(900 + 16 + 28 + 20 + 100 + 16 + 28 + 20);
        assert_eq!(payload, (all as f64 * share) as u64);
        // Repeated feedback changes nothing.
        congestion.told(at(1310), &message(400));
        assert_eq!(congestion.estimate().0, all);
    }

    #[test]
    fn reports_count_without_transport_feedback() {
        for numbers in [None, Some(3)] {
            let mut congestion = Congestion::new(at(0), (1_000_000, 1100), numbers);
            let (most, _) = congestion.estimate();
            let header = PacketHeader::EMPTY.with(&[0x80, 96]).with(&[0; 10]);
            let report = |congestion: &mut Congestion, from: u64| {
                for second in from..from + 5 {
                    congestion.reported(at(second * 1000), 100, 30);
                }
                congestion.estimate().0
            };
            if let Some(numbers) = congestion.numbers() {
                let mut stream = Numbered::new(numbers);
                for second in 1..10 {
                    stream.number(&header, (900, 16), at(second * 1000));
                    stream.take(true, &mut congestion);
                    let message = TransportCc {
                        base: second as u16,
                        arrivals: vec![Some(0)],
                        ..TransportCc::default()
                    };
                    congestion.told(at(second * 1000), &message);
                    congestion.reported(at(second * 1000), 100, 30);
                }
                assert_eq!(congestion.estimate().0, most);
            }
            assert!(report(&mut congestion, 13) < most * 7 / 10, "{numbers:?}");
        }
    }

    #[test]
    fn packet_reported_missing_twice_is_lost_once() {
        let mut congestion = Congestion::new(at(0), (1_000_000, 1100), Some(3));
        let (most, _) = congestion.estimate();
        let header = PacketHeader::EMPTY.with(&[0x80, 96]).with(&[0; 10]);
        let mut stream = Numbered::new(congestion.numbers().expect("it has some"));
        for packet in 0..100 {
            stream.number(&header, (900, 16), at(packet * 4));
        }
        stream.take(true, &mut congestion);
        let message = |base: u16, count: u16| TransportCc {
            base,
            arrivals: (base..base + count)
                .map(|number| (number <= 95).then_some(16))
                .collect(),
            ..TransportCc::default()
        };
        congestion.told(at(600), &message(1, 100));
        for turn in 1..20 {
            congestion.told(at(600 + turn * 600), &message(96, 5));
        }
        assert_eq!(congestion.estimate().0, most);
    }

    #[test]
    fn delay_estimate_expires_without_feedback() {
        let mut congestion = Congestion::new(at(0), (1_000_000, 1100), Some(3));
        let header = PacketHeader::EMPTY.with(&[0x80, 96]).with(&[0; 10]);
        let mut stream = Numbered::new(congestion.numbers().expect("it has some"));
        for packet in 0..300 {
            stream.number(&header, (900, 16), at(packet * 8));
        }
        stream.take(true, &mut congestion);
        // Each packet takes longer than the one before: the path is full.
        let message = TransportCc {
            base: 1,
            arrivals: vec![Some(40); 300],
            ..TransportCc::default()
        };
        congestion.told(at(2600), &message);
        let (lowered, _) = congestion.estimate();
        for second in 10..30 {
            congestion.reported(at(second * 1000), 100, 0);
        }
        assert!(congestion.estimate().0 > lowered, "{lowered}");
    }

    #[test]
    fn estimate_covers_headers_of_small_packets() {
        let (all, _) = Congestion::new(at(0), (4_000_000, 256), None).estimate();
        assert!(all > 4_000_000 * (256 + 68) / 256, "{all}");
    }

    #[test]
    fn uncollected_packets_are_bounded() {
        let mut congestion = Congestion::new(at(0), (1_000_000, 1100), Some(3));
        let header = PacketHeader::EMPTY.with(&[0x80, 96]).with(&[0; 10]);
        let mut stream = Numbered::new(congestion.numbers().expect("it has some"));
        for _ in 0..100_000 {
            stream.number(&header, (100, 16), at(0));
        }
        assert_eq!(stream.waiting.len(), WAITING_MAX);
        stream.take(true, &mut congestion);
        assert_eq!(congestion.kept.len(), KEPT);
    }
}

//! How a client that publishes heeds what the server says it can take, or of arrivals.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

use crate::session::PacketHeader;
use crate::webrtc::feedback::{Estimator, TICK, Told, TransportCc};
use crate::webrtc::transport_numbers::TransportNumbers;

/// The most packets of a stream that wait to be taken over by the session, and those of a transport
/// of which it is known when they were sent: of 10 Mb/s those of some four seconds.
const WAITING_MAX: usize = 2048;
const KEPT: usize = 4096;

/// The least that is sent: as browsers have it, in bits per second.
const LEAST: u64 = 30_000;

/// What a packet has beside its payload: headers of IP, UDP and RTP with extensions, and what SRTP
/// adds.
const HEADERS: usize = OVERHEAD + 12 + 12 + 16;

/// Headers of IP and UDP, of packets that are counted against what a path can carry.
const OVERHEAD: usize = 28;

/// For how long the server is believed to tell of arrivals since it did so last.
const TOLD_FOR: Duration = Duration::from_secs(2);

/// Over how long it is found which share of what is sent is the payload of pictures.
const SHARE_EVERY: Duration = Duration::from_secs(1);

/// That share where it is not known yet.
const SHARE: f64 = 0.9;

/// A packet that was sent with a number of its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentPacket {
    number: u16,
    at: Time,
    /// With all headers, and the payload alone.
    wire: u32,
    payload: u32,
    /// Whether the server has said that it did not arrive.
    lost: bool,
}

/// Numbers the packets of a stream, and remembers them.
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

    /// The header of the next packet, with its number.
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

    /// Hands over what was sent.
    pub(super) fn take(&mut self, follows: bool, into: &mut Congestion) {
        for packet in self.waiting.drain(..) {
            into.sent(packet, follows);
        }
    }
}

/// What a transport may send.
#[derive(Debug)]
pub(super) struct Congestion {
    /// The numbers of its packets, where the server tells of them.
    numbers: Option<TransportNumbers>,
    /// At their numbers' remainders.
    kept: Vec<Option<SentPacket>>,
    /// When the server last told of arrivals, or when it could begin to.
    told: Time,
    estimator: Estimator,
    /// Since when bytes are counted: all, and the payload of streams that follow.
    counted: (Time, u64, u64),
    share: f64,
}

impl Congestion {
    /// Of a transport that sends `bitrate` in bits per second as long as it may, in packets of that
    /// many bytes of payload at most.
    pub(super) fn new(
        now: Time,
        (bitrate, packet): (u64, usize),
        extension: Option<u8>,
    ) -> Congestion {
        // The payload with its headers, and sound and reports beside it. Of each picture one packet
        // is not full.
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

    /// The server tells when packets arrived.
    pub(super) fn told(&mut self, now: Time, message: &TransportCc) {
        let tick = TICK.as_nanos() as i64;
        // Ticks in 64 ms.
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
            // One that did not may have been overtaken.
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
        // Numbers of packets that were never sent tell nothing.
        if !told.is_empty() {
            self.told = now;
        }
        self.estimator.told(now, &told);
    }

    pub(super) fn remb(&mut self, bitrate: u64) {
        self.estimator.remb(bitrate);
    }

    /// The server says how many packets were sent and lost: heeded where it does not tell of each
    /// packet, whatever was agreed.
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

    /// What may be sent with all headers, and the payload that pictures may have of that, in bits
    /// per second.
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
    fn what_is_told_goes_with_what_was_sent() {
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
        // One after the other, whichever the stream.
        assert!(
            first
                .iter()
                .zip(1..)
                .all(|(number, expected)| *number == expected)
        );
        for (follows, stream) in [true, false].into_iter().zip(&mut streams) {
            stream.take(follows, &mut congestion);
        }
        // All arrive, each later than the one before by as much as it was sent later, and more.
        let message = |delta: i16| TransportCc {
            base: 1,
            arrivals: (0..600).map(|place| Some(delta * (place % 2))).collect(),
            ..TransportCc::default()
        };
        congestion.told(at(1300), &message(40));
        let (all, payload) = congestion.estimate();
        assert!(all < most, "{all}");
        // The share of the pictures' payload is known now.
        let share = 900.0 / f64::from(900 + 16 + 28 + 20 + 100 + 16 + 28 + 20);
        assert_eq!(payload, (all as f64 * share) as u64);
        // The same again tells nothing.
        congestion.told(at(1310), &message(400));
        assert_eq!(congestion.estimate().0, all);
    }

    #[test]
    fn reports_are_heeded_where_arrivals_are_not_told_or_no_more() {
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
    fn a_packet_that_is_told_to_be_missing_again_is_lost_once() {
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
    fn what_was_told_of_arrivals_holds_no_longer_when_no_more_is_told() {
        let mut congestion = Congestion::new(at(0), (1_000_000, 1100), Some(3));
        let header = PacketHeader::EMPTY.with(&[0x80, 96]).with(&[0; 10]);
        let mut stream = Numbered::new(congestion.numbers().expect("it has some"));
        for packet in 0..300 {
            stream.number(&header, (900, 16), at(packet * 8));
        }
        stream.take(true, &mut congestion);
        // Each takes longer than the one before: the path is full.
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
    fn there_is_room_for_the_headers_of_small_packets() {
        let (all, _) = Congestion::new(at(0), (4_000_000, 256), None).estimate();
        assert!(all > 4_000_000 * (256 + 68) / 256, "{all}");
    }

    #[test]
    fn what_waits_is_bounded() {
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

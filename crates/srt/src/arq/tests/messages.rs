//! Messages of many packets over a link that loses and reorders packets.

use std::collections::BTreeSet;

use super::*;
use crate::arq::sender::SentMessageCounts;
use crate::messages::{MessageOutcome as Became, MessageTracker};

/// Interval of messages.
const EVERY: Duration = Duration::from_millis(20);
const COUNT: u32 = 120;

/// Parameters of a transmission.
#[derive(Clone, Copy)]
struct Sending {
    seed: u64,
    in_order: bool,
    loss: f64,
    ttl: Option<Duration>,
}

/// Result of a transmission.
#[derive(Default)]
struct Sent {
    became: Vec<Became>,
    sizes: Vec<u64>,
    /// Offset of the first packet of each message, and of the one after its last.
    places: Vec<(u32, u32)>,
    /// Time at which each packet first arrived, and was first announced as dropped.
    came: BTreeMap<u32, Time>,
    dropped: BTreeMap<u32, Time>,
    messages: SentMessageCounts,
    statistics: SenderStatistics,
    waiting: usize,
}

impl Sent {
    fn whole(&self) -> impl Iterator<Item = &crate::messages::Message> {
        self.became.iter().filter_map(|became| match became {
            Became::Whole(message) => Some(message),
            _ => None,
        })
    }

    /// Messages that could arrive whole, derived from the arrival of packets: every packet arrived
    /// before the sender announced its drop.
    fn could_arrive(&self) -> BTreeSet<u32> {
        let could = |&(first, end): &(u32, u32)| {
            (first..end).all(
                |place| match (self.came.get(&place), self.dropped.get(&place)) {
                    (Some(came), Some(dropped)) => came <= dropped,
                    (came, _) => came.is_some(),
                },
            )
        };
        let numbers = (1..).zip(&self.places);
        let whole = numbers.filter(|(_, places)| could(places));
        whole.map(|(number, _)| number).collect()
    }
}

/// Sends messages of different sizes.
fn send(sending: Sending) -> Sent {
    let Sending {
        seed,
        in_order,
        loss,
        ttl,
    } = sending;
    let settings = Settings {
        delay: millis(10),
        jitter: Jitter {
            spread: millis(3),
            reorders: true,
            ..Jitter::default()
        },
        loss: Loss::Random(loss),
        ..Settings::default()
    };
    let start = Time::from_start(Duration::from_secs(1));
    let clock = SocketClock::new(start);
    let mut sender = Sender::new(SenderConfig::messages(CONFIG_FIRST, 7, clock, ttl));
    let tsbpd = TsbpdConfig {
        reference: start,
        timestamp: 0,
        latency: Duration::ZERO,
    };
    let live = ReceiverConfig::live(CONFIG_FIRST, 8, clock, tsbpd);
    let mut receiver = Receiver::new(ReceiverConfig {
        tsbpd: None,
        ..live
    });
    let mut media: Link<Vec<u8>> = Link::new(settings.clone(), Vec::new(), seed);
    let mut back: Link<Vec<u8>> = Link::new(settings, Vec::new(), seed + 1);
    let mut messages = MessageTracker::default();
    let mut sent = Sent::default();
    let place = |sequence: SeqNumber| sequence.distance_from(CONFIG_FIRST) as u32;
    let (mut now, mut buffer) = (start, Vec::new());
    let end = start + EVERY * COUNT + Duration::from_secs(20);
    while now < end {
        while sent.sizes.len() < COUNT as usize && start + EVERY * sent.sizes.len() as u32 <= now {
            let size = (sent.sizes.len() * 137 + 1) % 12_000 + 1;
            sent.sizes.push(size as u64);
            let message = Bytes::from(vec![7; size]);
            let first = sender.push_message(now, &message, in_order).expect("room");
            sent.places
                .push((place(first), place(sender.next_sequence())));
        }
        while let Some(packet) = sender.next_packet(now) {
            let datagram = [&packet.header[..], &packet.payload].concat();
            let _ = media.send(now, datagram.len() + 28, datagram);
        }
        while sender.write_next(now, &mut buffer) {
            let _ = media.send(now, buffer.len() + 28, std::mem::take(&mut buffer));
        }
        while let Some(delivery) = media.take(now) {
            let (at, report) = (delivery.due, &mut |outcome| sent.became.push(outcome));
            match Packet::parse(&delivery.packet).expect("it is one") {
                Packet::Data(header, payload) => {
                    sent.came.entry(place(header.sequence)).or_insert(at);
                    if let PacketStatus::New { .. } = receiver.data(&header, payload, at) {
                        let behind = receiver.acknowledged();
                        messages.add_packet(&header, payload.len(), at, behind, report);
                    }
                }
                Packet::Control(header, control) => {
                    let refused = receiver.statistics().pkt_recv_refused_drop_request;
                    receiver.control(&control, header.timestamp, at);
                    let is_taken = refused == receiver.statistics().pkt_recv_refused_drop_request;
                    if let (Control::DropRequest { first, last, .. }, true) = (control, is_taken) {
                        for place in place(first)..=place(last) {
                            sent.dropped.entry(place).or_insert(at);
                        }
                    }
                    messages.settle(at, receiver.acknowledged(), report);
                }
            }
        }
        while receiver.write_next(now, &mut buffer) {
            let _ = back.send(now, buffer.len() + 28, std::mem::take(&mut buffer));
        }
        while let Some(delivery) = back.take(now) {
            if let Ok(Packet::Control(_, control)) = Packet::parse(&delivery.packet) {
                sender.control(&control, delivery.due);
            }
        }
        now += millis(1);
    }
    sent.messages = sender.messages().expect("it sends messages");
    sent.statistics = sender.statistics();
    sent.waiting = sender.unacknowledged();
    sent
}

#[test]
fn messages_arrive_whole_despite_losses() {
    for seed in 0..20 {
        for in_order in [true, false] {
            let sent = send(Sending {
                seed,
                in_order,
                loss: 0.05,
                ttl: None,
            });
            let mut early = 0;
            let whole = sent.became.iter().map(|outcome| match outcome {
                Became::Whole(message) => {
                    early += u32::from(message.is_early);
                    message.bytes
                }
                other => panic!("{other:?}"),
            });
            let mut whole: Vec<u64> = whole.collect();
            let mut sizes = sent.sizes;
            if !in_order {
                whole.sort_unstable();
                sizes.sort_unstable();
            }
            // This includes the last ones: unacknowledged packets are retransmitted.
            assert_eq!(whole, sizes, "{seed}");
            assert_eq!(early > 0, !in_order, "{seed}");
            let expected = SentMessageCounts {
                taken: COUNT.into(),
                acknowledged: COUNT.into(),
                ..SentMessageCounts::default()
            };
            assert_eq!((sent.messages, sent.waiting), (expected, 0), "{seed}");
        }
    }
}

#[test]
fn acknowledged_packets_are_not_retransmitted() {
    let sent = send(Sending {
        seed: 1,
        in_order: true,
        loss: 0.0,
        ttl: None,
    });
    // Reordered packets are requested before they arrive.
    let reordered = sent.statistics.pkt_snd_loss;
    assert!(sent.statistics.pkt_retrans <= reordered);
    assert_eq!(sent.whole().count(), COUNT as usize);
}

#[test]
fn messages_arrive_whole_exactly_if_they_beat_the_drop() {
    let (mut dropped, mut whole, mut incomplete) = (0, 0, 0);
    for seed in 0..300 {
        let sending = Sending {
            seed,
            in_order: seed % 2 == 0,
            loss: [0.02, 0.1, 0.3][seed as usize % 3],
            ttl: Some(millis([30, 60, 150, 400][seed as usize % 4])),
        };
        let sent = send(sending);
        let came: BTreeSet<u32> = sent.whole().map(|message| message.number).collect();
        assert_eq!(came.len(), sent.whole().count(), "{seed}: each once");
        assert_eq!(came, sent.could_arrive(), "{seed}");
        let messages = sent.messages;
        assert_eq!(messages.taken, u64::from(COUNT), "{seed}");
        // No message is left, and none is acknowledged that did not arrive.
        assert_eq!(
            messages.acknowledged + messages.dropped,
            messages.taken,
            "{seed}"
        );
        assert_eq!(sent.waiting, 0, "{seed}");
        assert!(messages.acknowledged <= came.len() as u64, "{seed}");
        // Each message is accounted for if a later one reveals it.
        let known = sent.became.iter().map(|became| match became {
            Became::Whole(_) | Became::Incomplete => 1,
            Became::Missing(count) => *count,
            Became::InconsistentPacket => panic!("{seed}: nothing contradicts"),
        });
        let known: u32 = known.sum();
        let last = sent
            .became
            .iter()
            .filter(|became| **became == Became::Incomplete);
        incomplete += last.count();
        // Messages before the first and after the last that arrived are not revealed.
        let beside = match (came.first(), came.last()) {
            (Some(first), Some(last)) => first - 1 + COUNT - last,
            _ => COUNT,
        };
        let unseen = COUNT - known;
        assert!(unseen <= beside, "{seed}: {unseen} of {beside}");
        dropped += messages.dropped;
        whole += came.len();
    }
    // All outcomes must occur, or the test shows nothing.
    assert!(
        dropped > 1000 && whole > 1000 && incomplete > 100,
        "{dropped} {whole} {incomplete}"
    );
}

#[test]
fn messages_in_time_are_not_dropped() {
    // A round trip takes up to 26 ms, and acknowledgements are sent every 10 ms.
    let sent = send(Sending {
        seed: 3,
        in_order: true,
        loss: 0.0,
        ttl: Some(millis(60)),
    });
    assert_eq!(sent.messages.dropped, 0);
    assert_eq!(sent.whole().count(), COUNT as usize);
    let sent = send(Sending {
        seed: 3,
        in_order: true,
        loss: 1.0,
        ttl: Some(millis(60)),
    });
    assert_eq!(sent.messages.dropped, u64::from(COUNT));
    assert_eq!(sent.whole().count(), 0);
}

#[test]
fn message_without_buffer_space_is_refused_whole() {
    let clock = SocketClock::new(Time::ZERO);
    let config = SenderConfig::messages(CONFIG_FIRST, 7, clock, None);
    let mut sender = Sender::new(SenderConfig {
        packets_max: 10,
        ..config
    });
    let message = Bytes::from(vec![1; 6 * 1456]);
    let now = Time::ZERO;
    assert!(sender.push_message(now, &message, true).is_ok());
    assert!(sender.push_message(now, &message, true).is_err());
    assert!(
        sender
            .push_message(now, &message.slice(..4 * 1456), true)
            .is_ok()
    );
    let expected = SentMessageCounts {
        taken: 2,
        refused: 1,
        ..SentMessageCounts::default()
    };
    assert_eq!(sender.messages(), Some(expected));
    assert_eq!(sender.statistics().pkt_snd_refused, 6);
    let packets: Vec<_> = std::iter::from_fn(|| sender.next_packet(now)).collect();
    assert_eq!(packets.len(), 10);
}

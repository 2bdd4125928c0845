//! Sender and receiver against each other in virtual time, over a link that loses, reorders and
//! duplicates packets; and against a model that knows only the arrival of packets.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use proptest::prelude::*;
use session::link::{Jitter, Link, Loss, Settings};

use super::TsbpdConfig;
use super::receiver::{PacketStatus, Receiver, ReceiverConfig};
use super::sender::{Sender, SenderConfig};
use super::statistics::{ReceiverStatistics, SenderStatistics};
use crate::codec::packet::{Control, DataHeader, Packet};
use crate::seq::{SeqNumber, SocketClock};

mod drift;
mod hostile;
mod libsrt;
mod messages;
mod model;

const CONFIG_FIRST: SeqNumber = SeqNumber::MAX.minus(300);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Parameters of a transmission.
#[derive(Clone)]
struct Case {
    seed: u64,
    media: Settings,
    back: Settings,
    latency: Duration,
    packets: u32,
    every: Duration,
    first: SeqNumber,
}

impl Case {
    fn new(seed: u64, link: Settings) -> Case {
        Case {
            seed,
            media: link.clone(),
            back: link,
            latency: millis(120),
            packets: 250,
            every: millis(2),
            first: CONFIG_FIRST,
        }
    }
}

/// Result of a transmission.
struct Outcome {
    sent: SenderStatistics,
    received: ReceiverStatistics,
    /// Numbers of the packets with the status `New`, in order of arrival.
    new: Vec<u32>,
    /// Each copy of a data packet that arrived: number, arrival time, and whether it was
    /// retransmitted.
    arrived: Vec<(u32, Time, bool)>,
    /// Due time of each packet.
    due: Vec<Time>,
    /// Data packets offered to the link, lost by it, and duplicated by it.
    offered: u64,
    lost: u64,
    doubled: u64,
}

fn run(case: &Case) -> Outcome {
    let start = Time::from_start(Duration::from_secs(1));
    let clock = SocketClock::new(start);
    let delay = case.media.delay;
    let mut sender = Sender::new(SenderConfig::live(case.first, 7, clock, case.latency));
    let tsbpd = TsbpdConfig {
        reference: start + delay,
        timestamp: 0,
        latency: case.latency,
    };
    let config = ReceiverConfig::live(case.first, 8, clock, tsbpd);
    let mut receiver = Receiver::new(config);
    let mut media: Link<Vec<u8>> = Link::new(case.media.clone(), Vec::new(), case.seed);
    let mut back: Link<Vec<u8>> = Link::new(case.back.clone(), Vec::new(), case.seed + 1);
    let mut outcome = Outcome {
        sent: SenderStatistics::default(),
        received: ReceiverStatistics::default(),
        new: Vec::new(),
        arrived: Vec::new(),
        due: Vec::new(),
        offered: 0,
        lost: 0,
        doubled: 0,
    };
    let number = |sequence: SeqNumber| sequence.distance_from(case.first) as u32;
    let (mut made, mut buffer) = (0, Vec::new());
    let mut now = start;
    let end = start + case.every * case.packets + case.latency + Duration::from_secs(3);
    while now < end {
        while made < case.packets && start + case.every * made <= now {
            let at = start + case.every * made;
            let payload = Bytes::copy_from_slice(&made.to_be_bytes());
            assert_eq!(sender.push(at, payload), Ok(case.first.plus(made)));
            outcome.due.push(at + delay + case.latency);
            made += 1;
        }
        while let Some(packet) = sender.next_packet(now) {
            assert!(packet.due <= now);
            let datagram = [&packet.header[..], &packet.payload].concat();
            outcome.offered += 1;
            let taken = media.send(now, datagram.len() + 28, datagram);
            outcome.lost += u64::from(taken.is_err());
        }
        buffer.clear();
        while sender.write_next(now, &mut buffer) {
            let _ = media.send(now, buffer.len() + 28, buffer.clone());
            buffer.clear();
        }
        while let Some(delivery) = media.take(now) {
            match Packet::parse(&delivery.packet).expect("it is one") {
                Packet::Data(header, payload) => {
                    outcome.doubled += u64::from(delivery.copy);
                    let at = delivery.due;
                    let number = number(header.sequence);
                    outcome.arrived.push((number, at, header.retransmitted));
                    assert_eq!(payload, number.to_be_bytes());
                    let status = receiver.data(&header, payload, at);
                    if let PacketStatus::New { due, .. } = status {
                        assert_eq!(due, Some(outcome.due[number as usize]));
                        outcome.new.push(number);
                    }
                }
                Packet::Control(header, control) => {
                    receiver.control(&control, header.timestamp, delivery.due);
                }
            }
        }
        buffer.clear();
        while receiver.write_next(now, &mut buffer) {
            let _ = back.send(now, buffer.len() + 28, buffer.clone());
            buffer.clear();
        }
        while let Some(delivery) = back.take(now) {
            let Ok(Packet::Control(_, control)) = Packet::parse(&delivery.packet) else {
                panic!("a receiver sends control packets");
            };
            sender.control(&control, delivery.due);
        }
        // Advances to the next event.
        let next = [
            (made < case.packets).then(|| start + case.every * made),
            Some(sender.next_due()),
            Some(sender.control_due()),
            Some(receiver.due()),
            media.next_departure(),
            back.next_departure(),
        ];
        let next = next.into_iter().flatten().min().unwrap_or(end);
        // Work that stays due must not stop the clock.
        now = next.max(now + Duration::from_micros(1));
    }
    receiver.finish(now);
    outcome.sent = sender.statistics();
    outcome.received = receiver.statistics();
    assert!(receiver.bytes() < 24 * 1024);
    outcome
}

/// Packets that could be delivered, derived from the arrival of the first copy of each: a packet is
/// given up once any packet behind it has arrived and is due.
fn could_arrive(outcome: &Outcome) -> Vec<u32> {
    let mut first: BTreeMap<u32, Time> = BTreeMap::new();
    for &(number, at, _) in &outcome.arrived {
        first.entry(number).or_insert(at);
    }
    let mut given_up = Time::NEVER;
    let mut could = Vec::new();
    for (&number, &at) in first.iter().rev() {
        if at <= given_up {
            could.push(number);
        }
        given_up = given_up.min(at.max(outcome.due[number as usize]));
    }
    could.reverse();
    could
}

/// Checks that each packet is accounted for, and that both sides counted what the network did.
fn check(case: &Case, outcome: &Outcome) {
    let seed = case.seed;
    let (sent, received) = (&outcome.sent, &outcome.received);
    let could = could_arrive(outcome);
    let mut new = outcome.new.clone();
    new.sort_unstable();
    assert_eq!(new, could, "{seed}");
    // Sender.
    let again = outcome.arrived.iter().filter(|copy| copy.2).count() as u64;
    assert_eq!(sent.pkt_sent, outcome.offered, "{seed}");
    assert_eq!(sent.pkt_sent, sent.pkt_sent_unique + sent.pkt_retrans);
    assert_eq!(sent.pkt_sent_unique, u64::from(case.packets), "{seed}");
    assert_eq!(sent.pkt_recv_lying_ranges, 0, "{seed}");
    assert_eq!(sent.pkt_recv_future_ack, 0, "{seed}");
    // Receiver.
    let arrived = outcome.arrived.len() as u64;
    assert_eq!(arrived, outcome.offered - outcome.lost + outcome.doubled);
    assert_eq!(received.pkt_recv, arrived, "{seed}");
    assert_eq!(received.pkt_rcv_retrans, again, "{seed}");
    assert_eq!(received.pkt_recv_unique, could.len() as u64, "{seed}");
    let useless = received.pkt_rcv_belated + received.pkt_rcv_duplicate;
    assert_eq!(received.pkt_recv_unique + useless, arrived, "{seed}");
    let found = received.pkt_rcv_recovered + received.pkt_rcv_reordered;
    assert_eq!(received.pkt_rcv_loss, found + received.pkt_rcv_drop);
    // Losses at the end are unknown, because no packet arrived after them.
    let known = 1 + u64::from(outcome.arrived.iter().map(|copy| copy.0).max().unwrap_or(0));
    assert_eq!(received.pkt_recv_unique + received.pkt_rcv_drop, known);
}

fn bad(loss: f64) -> Settings {
    Settings {
        delay: millis(20),
        jitter: Jitter {
            spread: millis(5),
            reorders: true,
            ..Jitter::default()
        },
        loss: Loss::Random(loss),
        duplicate: 0.02,
        reorder: 0.02,
        held_back: millis(15),
        ..Settings::default()
    }
}

#[test]
fn perfect_link_brings_each_packet_once() {
    let link = Settings {
        delay: millis(20),
        ..Settings::default()
    };
    let case = Case::new(1, link);
    let outcome = run(&case);
    check(&case, &outcome);
    assert_eq!(outcome.new.len(), 250);
    assert_eq!(outcome.sent.pkt_sent, 250);
    assert_eq!(outcome.received.pkt_rcv_loss, 0);
    assert_eq!(outcome.sent.pkt_snd_buf, 0);
    // Time advances in steps of at least one microsecond.
    assert!(outcome.received.us_rtt.abs_diff(40_000) < 5);
    assert!(outcome.sent.us_rtt.abs_diff(40_000) < 5);
    // One every 10 ms until everything is confirmed.
    let acks = outcome.received.pkt_sent_ack;
    assert!((45..=65).contains(&acks), "{acks}");
    assert_eq!(outcome.sent.pkt_recv_ack, acks);
    assert_eq!(outcome.received.pkt_recv_ackack, acks);
}

#[test]
fn bad_links_deliver_exactly_what_could_arrive_in_time() {
    let mut dropped = 0;
    for seed in 0..1500 {
        let loss = [0.0, 0.01, 0.05, 0.2, 0.5][seed as usize % 5];
        let case = Case {
            latency: millis([60, 120, 300][seed as usize % 3]),
            ..Case::new(seed, bad(loss))
        };
        let outcome = run(&case);
        check(&case, &outcome);
        dropped += outcome.received.pkt_rcv_drop;
    }
    // Packets must be lost as well, or the test shows nothing.
    assert!(dropped > 1000, "{dropped}");
}

#[test]
fn slow_links_with_bursts_deliver_what_could_arrive() {
    for seed in 0..400 {
        let media = Settings {
            loss: Loss::Bursts {
                share: 0.1,
                length: 12.0,
            },
            rate: Some(2_000_000),
            ..bad(0.0)
        };
        let case = Case {
            media,
            latency: millis(200),
            ..Case::new(seed, bad(0.02))
        };
        check(&case, &run(&case));
    }
}

#[test]
fn latency_of_many_round_trips_recovers_everything() {
    for seed in 0..200 {
        let case = Case {
            latency: Duration::from_secs(2),
            ..Case::new(seed, bad(0.1))
        };
        let outcome = run(&case);
        check(&case, &outcome);
        assert_eq!(outcome.received.pkt_rcv_drop, 0, "{seed}");
        assert!(outcome.received.pkt_rcv_recovered > 10, "{seed}");
    }
}

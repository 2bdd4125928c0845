//! Messages of many packets over a link that loses and reorders.

use super::*;
use crate::srt::messages::{Messages, Outcome as Became};

/// Every how long a message is handed in.
const EVERY: Duration = Duration::from_millis(20);
const COUNT: u32 = 120;

/// Sends messages of growing sizes; gives what became of each, and the sizes.
fn send(seed: u64, in_order: bool, loss: f64) -> (Vec<Became>, Vec<u64>) {
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
    let live = SenderConfig::live(CONFIG_FIRST, 7, clock, Duration::ZERO);
    let mut sender = Sender::new(SenderConfig {
        too_late_drop: false,
        ..live
    });
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
    let (mut messages, mut became) = (Messages::default(), Vec::new());
    let mut sizes = Vec::new();
    let (mut now, mut buffer) = (start, Vec::new());
    let end = start + EVERY * COUNT + Duration::from_secs(5);
    while now < end {
        while sizes.len() < COUNT as usize && start + EVERY * sizes.len() as u32 <= now {
            let size = (sizes.len() * 137 + 1) % 12_000 + 1;
            sizes.push(size as u64);
            let message = Bytes::from(vec![7; size]);
            let taken = sender.push_message(now, &message, in_order);
            assert!(taken.is_ok(), "{taken:?}");
        }
        while let Some(packet) = sender.next_packet(now) {
            let datagram = [&packet.header[..], &packet.payload].concat();
            let _ = media.send(now, datagram.len() + 28, datagram);
        }
        while sender.write_next(now, &mut buffer) {
            let _ = media.send(now, buffer.len() + 28, std::mem::take(&mut buffer));
        }
        while let Some(delivery) = media.take(now) {
            let (at, told) = (delivery.due, &mut |outcome| became.push(outcome));
            match Packet::parse(&delivery.packet).expect("it is one") {
                Packet::Data(header, payload) => {
                    if let Verdict::New { .. } = receiver.data(&header, payload, at) {
                        let behind = receiver.acknowledged();
                        messages.packet(&header, payload.len(), at, behind, told);
                    }
                }
                Packet::Control(header, control) => {
                    receiver.control(&control, header.timestamp, at);
                    messages.settle(at, receiver.acknowledged(), told);
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
    (became, sizes)
}

#[test]
fn messages_of_many_packets_come_whole_whatever_is_lost() {
    for seed in 0..20 {
        for in_order in [true, false] {
            let (became, mut sizes) = send(seed, in_order, 0.05);
            let mut early = 0;
            let whole = became.iter().map(|outcome| match outcome {
                Became::Whole(message) => {
                    early += u32::from(message.is_early);
                    message.bytes
                }
                other => panic!("{other:?}"),
            });
            let mut whole: Vec<u64> = whole.collect();
            // What is lost behind the last one that comes shows nowhere.
            assert!(whole.len() + 1 >= sizes.len(), "{seed} {}", whole.len());
            sizes.truncate(whole.len());
            if !in_order {
                whole.sort_unstable();
                sizes.sort_unstable();
            }
            if in_order || whole.len() == COUNT as usize {
                assert_eq!(whole, sizes, "{seed}");
            }
            assert_eq!(early > 0, !in_order, "{seed}");
        }
    }
}

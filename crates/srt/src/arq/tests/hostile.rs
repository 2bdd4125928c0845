//! A dishonest peer is counted, and has no other effect.

use super::*;
use crate::arq::sender::{Bandwidth, PushError};
use crate::codec::packet::{Ack, AckReport, ControlHeader, LossRange, PAYLOAD_MAX, write_nak};

const START: Time = Time::from_nanos(1_000_000_000);
const HEAD: ControlHeader = ControlHeader {
    timestamp: 0,
    destination: 7,
};

fn at(millis: u64) -> Time {
    START + Duration::from_millis(millis)
}

fn sender() -> Sender {
    let clock = SocketClock::new(START);
    Sender::new(SenderConfig::live(CONFIG_FIRST, 7, clock, millis(120)))
}

/// Sender that has sent `count` packets, one per millisecond.
fn sent(count: u32) -> Sender {
    let mut sender = sender();
    for number in 0..count {
        let at = at(number.into());
        sender.push(at, Bytes::from_static(b"media")).expect("room");
        assert!(sender.next_packet(at).is_some());
    }
    sender
}

fn ack(number: u32, next: u32, report: Option<AckReport>) -> Control<'static> {
    Control::Ack(Ack {
        number,
        next: CONFIG_FIRST.plus(next),
        report,
    })
}

fn range(first: u32, last: u32) -> LossRange {
    LossRange {
        first: CONFIG_FIRST.plus(first),
        last: CONFIG_FIRST.plus(last),
    }
}

/// Passes a loss list to a sender.
fn ask(sender: &mut Sender, at: Time, ranges: &[LossRange]) {
    let mut bytes = Vec::new();
    write_nak(HEAD, ranges.iter().copied(), &mut bytes);
    let Ok(Packet::Control(_, control)) = Packet::parse(&bytes) else {
        panic!("it is sound");
    };
    sender.control(&control, at);
}

#[test]
fn acks_of_unsent_packets_are_refused_and_counted() {
    let mut sender = sent(10);
    sender.push(at(10), Bytes::new()).expect("room");
    sender.control(&ack(1, 11, None), at(10));
    sender.control(&ack(1, 1_000_000_000, None), at(10));
    assert_eq!(sender.statistics().pkt_recv_future_ack, 2);
    assert_eq!(sender.unacknowledged(), 11);
    assert!(!sender.write_next(at(10), &mut Vec::new()));
    sender.control(&ack(1, 10, None), at(10));
    assert_eq!(sender.unacknowledged(), 1);
    // An old acknowledgement changes nothing.
    sender.control(&ack(2, 3, None), at(10));
    assert_eq!(sender.unacknowledged(), 1);
}

#[test]
fn bogus_loss_lists_are_counted_and_bounded() {
    let mut sender = sent(10);
    ask(
        &mut sender,
        at(20),
        &[range(8, 10), range(10, 10), range(5, 5)],
    );
    assert_eq!(sender.statistics().pkt_recv_lying_ranges, 2);
    assert_eq!(sender.statistics().pkt_snd_loss, 1);
    let again = sender.next_packet(at(20)).expect("it was asked for");
    assert_eq!(again.sequence, CONFIG_FIRST.plus(5));
    assert!(sender.next_packet(at(20)).is_none());
    // The same range, repeated.
    let all = vec![range(0, 9); 180];
    ask(&mut sender, at(500), &all);
    assert_eq!(sender.statistics().pkt_recv_lying_ranges, 2 + 179);
    let count = std::iter::from_fn(|| sender.next_packet(at(500))).count();
    assert_eq!(count, 10);
    assert_eq!(sender.next_due(), Time::NEVER);
}

#[test]
fn naks_of_forgotten_packets_get_a_drop_request() {
    let mut sender = sent(10);
    sender.control(&ack(0, 4, None), at(10));
    ask(&mut sender, at(10), &[range(0, 1), range(3, 5)]);
    let mut out = Vec::new();
    let mut dropped = Vec::new();
    while sender.write_next(at(10), &mut out) {
        match Packet::parse(&out) {
            Ok(Packet::Control(_, Control::DropRequest { first, last, .. })) => {
                dropped.push(LossRange { first, last });
            }
            other => panic!("{other:?}"),
        }
        out.clear();
    }
    assert_eq!(dropped, [range(0, 1), range(3, 3)]);
    let again: Vec<SeqNumber> = std::iter::from_fn(|| sender.next_packet(at(10)))
        .map(|packet| packet.sequence)
        .collect();
    assert_eq!(again, [CONFIG_FIRST.plus(4), CONFIG_FIRST.plus(5)]);
    // The number of waiting answers is bounded.
    let gone = vec![range(0, 1); 180];
    ask(&mut sender, at(11), &gone);
    assert!(sender.statistics().pkt_unanswered > 100);
}

#[test]
fn sender_drops_late_packets_and_refuses_overflow() {
    let clock = SocketClock::new(START);
    let config = SenderConfig {
        packets_max: 5,
        flow_window: 3,
        ..SenderConfig::live(CONFIG_FIRST, 7, clock, millis(120))
    };
    let mut sender = Sender::new(config);
    for number in 0..5 {
        let pushed = sender.push(at(number), Bytes::from_static(b"media"));
        assert_eq!(pushed, Ok(CONFIG_FIRST.plus(number as u32)));
    }
    assert_eq!(sender.push(at(5), Bytes::new()), Err(PushError::Full));
    let long = Bytes::from(vec![0; PAYLOAD_MAX + 1]);
    assert_eq!(
        sender.push(at(5), long),
        Err(PushError::TooLong(PAYLOAD_MAX + 1))
    );
    // The flow window limits the packets in flight.
    let sent = std::iter::from_fn(|| sender.next_packet(at(6))).count();
    assert_eq!((sent, sender.next_due()), (3, Time::NEVER));
    // 1 s and 20 ms, because the latency is shorter.
    assert!(sender.next_packet(at(1020)).is_none());
    assert_eq!(sender.unacknowledged(), 5);
    assert!(sender.next_packet(at(1022)).is_some());
    let count = sender.statistics();
    assert_eq!((count.pkt_snd_drop, count.pkt_snd_drop_unsent), (2, 0));
    assert!(sender.next_packet(at(5000)).is_none());
    let count = sender.statistics();
    assert_eq!((count.pkt_snd_drop, count.pkt_snd_drop_unsent), (5, 1));
    assert_eq!(count.pkt_snd_refused, 1);
    assert_eq!((count.byte_snd_buf, count.pkt_flight_size), (0, 0));
}

#[test]
fn recent_retransmissions_are_not_repeated() {
    let mut sender = sent(10);
    let report = AckReport {
        rtt: 100_000,
        rtt_variance: 5_000,
        free_packets: 8000,
        rates: None,
    };
    sender.control(&ack(1, 2, Some(report)), at(20));
    for (millis, leaves) in [(20, true), (60, false), (100, false), (101, true)] {
        ask(&mut sender, at(millis), &[range(5, 5)]);
        assert_eq!(sender.next_packet(at(millis)).is_some(), leaves, "{millis}");
    }
    assert_eq!(sender.statistics().pkt_snd_loss_repeated, 2);
}

#[test]
fn sender_keeps_within_its_bandwidth() {
    let clock = SocketClock::new(START);
    let mut sender = Sender::new(SenderConfig {
        bandwidth: Bandwidth::Fixed(1_000_000),
        ..SenderConfig::live(CONFIG_FIRST, 7, clock, millis(120))
    });
    for _ in 0..100 {
        sender
            .push(START, Bytes::from_static(&[0; 1206]))
            .expect("room");
    }
    let mut left = 0;
    for millis in 0..=500 {
        left += std::iter::from_fn(|| sender.next_packet(at(millis))).count();
    }
    // 1,250 bytes with headers take 10 ms each, and the first packet leaves at once.
    assert_eq!(left, 51);
}

fn receiver() -> Receiver {
    with_config(|_| {})
}

fn with_config(change: impl FnOnce(&mut ReceiverConfig)) -> Receiver {
    let tsbpd = TsbpdConfig {
        reference: START,
        timestamp: 0,
        latency: millis(120),
    };
    let mut config = ReceiverConfig::live(CONFIG_FIRST, 8, SocketClock::new(START), tsbpd);
    change(&mut config);
    Receiver::new(config)
}

fn data(number: u32, millis: u32) -> DataHeader {
    let mut bytes = [0; 16];
    bytes[0..4].copy_from_slice(&CONFIG_FIRST.plus(number).value().to_be_bytes());
    bytes[8..12].copy_from_slice(&(millis * 1000).to_be_bytes());
    match Packet::parse(&bytes) {
        Ok(Packet::Data(header, _)) => header,
        other => panic!("{other:?}"),
    }
}

#[test]
fn drop_request_ends_the_wait() {
    let mut receiver = receiver();
    receiver.data(&data(0, 0), b"", at(0));
    receiver.data(&data(5, 5), b"", at(5));
    let drop = |first, last| Control::DropRequest {
        message: 0,
        first: CONFIG_FIRST.plus(first),
        last: CONFIG_FIRST.plus(last),
    };
    receiver.control(&drop(2, 3), 0, at(6));
    let count = receiver.statistics();
    assert_eq!((count.pkt_rcv_drop, count.pkt_rcv_missing), (2, 2));
    // 6 to 8 were not known to be missing.
    receiver.control(&drop(4, 8), 0, at(7));
    let count = receiver.statistics();
    assert_eq!((count.pkt_rcv_loss, count.pkt_rcv_drop), (7, 6));
    // The next packet is in order, and the last missing one is given up at its deadline.
    receiver.data(&data(9, 9), b"", at(9));
    assert_eq!(receiver.statistics().pkt_rcv_missing, 1);
    // A drop request cannot create a gap, and one that reaches far ahead is refused.
    receiver.control(&drop(20, 21), 0, at(10));
    receiver.control(&drop(10, 100_000), 0, at(10));
    let count = receiver.statistics();
    assert_eq!(count.pkt_recv_refused_drop_request, 2);
    assert_eq!(count.pkt_recv_drop_request, 4);
}

#[test]
fn packets_far_ahead_are_refused() {
    let mut receiver = receiver();
    assert_eq!(
        receiver.data(&data(8192, 0), b"", at(0)),
        PacketStatus::BeyondWindow
    );
    assert!(matches!(
        receiver.data(&data(8191, 0), b"", at(0)),
        PacketStatus::New { .. }
    ));
    assert_eq!(receiver.statistics().pkt_rcv_beyond_window, 1);
    assert_eq!(receiver.statistics().pkt_rcv_loss, 8191);
}

#[test]
fn unexpected_ackacks_are_counted() {
    let mut receiver = receiver();
    receiver.data(&data(0, 0), b"", at(0));
    receiver.control(&Control::AckAck { number: 1 }, 0, at(1));
    assert!(receiver.write_next(at(20), &mut Vec::new()));
    for number in [0, 2, 129, 1, 1] {
        receiver.control(&Control::AckAck { number }, 0, at(30));
    }
    let count = receiver.statistics();
    assert_eq!(count.pkt_recv_ackack, 6);
    assert_eq!(count.pkt_recv_foreign_ackack, 5);
    assert_eq!(count.us_rtt, 10_000);
}

#[test]
fn round_trip_ends_when_its_answer_arrives() {
    let mut receiver = receiver();
    receiver.data(&data(0, 0), b"", at(0));
    assert!(receiver.write_next(at(20), &mut Vec::new()));
    // Data that arrived later is read first.
    receiver.data(&data(1, 40), b"", at(60));
    receiver.control(&Control::AckAck { number: 1 }, 0, at(21));
    assert_eq!(receiver.statistics().us_rtt, 1_000);
}

#[test]
fn packet_in_time_counts_though_it_is_read_late() {
    for (read_delay, in_time) in [(0, false), (3, true)] {
        let mut receiver = with_config(|config| config.read_delay_max = millis(read_delay));
        let due = receiver.due_of(5_000).expect("it has due times");
        receiver.data(&data(0, 0), b"", at(0));
        receiver.data(&data(5, 5), b"", at(5));
        // The deadline has passed, but a packet that arrived before it is not read yet.
        receiver.write_next(due + millis(2), &mut Vec::new());
        let status = receiver.data(&data(3, 3), b"", due - millis(1));
        let is_new = matches!(status, PacketStatus::New { .. });
        assert_eq!(is_new, in_time, "{read_delay} {status:?}");
        // The packet is given up later.
        receiver.write_next(due + millis(9), &mut Vec::new());
        assert_eq!(receiver.statistics().pkt_rcv_missing, 0);
    }
}

#[test]
fn naks_without_tsbpd_repeat_after_300_ms() {
    let mut receiver = with_config(|config| config.tsbpd = None);
    receiver.data(&data(0, 0), b"", at(0));
    receiver.data(&data(5, 5), b"", at(5));
    assert!(receiver.feedback_is_due());
    let mut naks = Vec::new();
    for now in 5..1000 {
        let mut out = Vec::new();
        let before = receiver.statistics().pkt_sent_nak;
        while receiver.write_next(at(now), &mut out) {}
        if receiver.statistics().pkt_sent_nak > before {
            naks.push(now);
        }
        // Round trips of one millisecond.
        let number = receiver.statistics().pkt_sent_ack as u32;
        receiver.control(&Control::AckAck { number }, 0, at(now + 1));
    }
    assert_eq!(naks[0], 5);
    let waits: Vec<u64> = naks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.iter().all(|wait| *wait >= 300), "{waits:?}");
    assert!(!receiver.feedback_is_due());
}

#[test]
fn gaps_beyond_one_nak_are_requested_by_the_next() {
    let mut receiver = receiver();
    for number in 0..=500 {
        receiver.data(&data(number * 2, 0), b"", at(1));
    }
    while receiver.write_next(at(1), &mut Vec::new()) {}
    let counts = receiver.statistics();
    assert_eq!(counts.pkt_asked, 500);
    assert!(counts.pkt_sent_nak > 1, "{counts:?}");
}

#[test]
fn light_ack_follows_64_packets() {
    let mut receiver = receiver();
    let mut out = Vec::new();
    for number in 0..200 {
        receiver.data(&data(number, 0), b"", at(20));
        while receiver.write_next(at(20), &mut out) {}
    }
    let count = receiver.statistics();
    // A full acknowledgement for the first packet, then a light one for every 64.
    assert_eq!((count.pkt_sent_ack, count.pkt_sent_light_ack), (4, 3));
}

proptest! {
    /// Counters stay consistent, whatever arrives.
    #[test]
    fn sender_survives_any_input(
        steps in prop::collection::vec((0u8..5, 0u32..60, 0u32..20, 0u64..400), 1..100),
    ) {
        let mut sender = sender();
        let (mut now, mut pushed) = (START, 0u64);
        for (kind, number, count, millis) in steps {
            match kind {
                0 => for _ in 0..count {
                    pushed += u64::from(sender.push(now, Bytes::from_static(b"x")).is_ok());
                },
                1 => while let Some(packet) = sender.next_packet(now) {
                    prop_assert!(packet.due <= now);
                },
                2 => sender.control(&ack(number, number, None), now),
                3 => {
                    let other = range(count, number.max(count));
                    ask(&mut sender, now, &[range(number, number + count), other]);
                }
                _ => now += Duration::from_millis(millis),
            }
            let count = sender.statistics();
            prop_assert!(count.pkt_flight_size <= count.pkt_snd_buf);
            prop_assert_eq!(count.byte_snd_buf, count.pkt_snd_buf);
            prop_assert!(count.pkt_sent_unique <= pushed);
        }
        now += Duration::from_secs(10);
        while sender.next_packet(now).is_some() {}
        prop_assert_eq!(sender.unacknowledged(), 0);
    }
}

proptest! {
    #[test]
    fn message_sender_stays_bounded_with_any_input(
        inputs in prop::collection::vec((any::<bool>(), 0u32..60, 0u32..60, 0u64..90), 0..200),
        ttl in prop::option::of(1u64..200),
    ) {
        let clock = SocketClock::new(START);
        let ttl = ttl.map(millis);
        let mut sender = Sender::new(SenderConfig::messages(CONFIG_FIRST, 7, clock, ttl));
        let (mut now, mut out) = (START, Vec::new());
        for (asks, first, more, wait) in inputs {
            now += millis(wait);
            let message = Bytes::from(vec![7; 40 * more as usize * more as usize + 1]);
            let _ = sender.push_message(now, &message, more % 2 == 0);
            match asks {
                true => ask(&mut sender, now, &[range(first, first + more)]),
                false => sender.control(&ack(more, first * 10, None), now),
            }
            let mut left = 0;
            while sender.next_packet(now).is_some() {
                left += 1;
                prop_assert!(left <= 2 * 8192);
            }
            let mut answers = 0;
            while sender.write_next(now, &mut out) {
                answers += 1;
                prop_assert!(answers <= 2 * 64);
            }
            out.clear();
            let messages = sender.messages().expect("it sends messages");
            prop_assert!(messages.acknowledged + messages.dropped <= messages.taken);
        }
    }
}

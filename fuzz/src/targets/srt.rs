//! SRT: packets, and both sides of a transmission whose peer sends anything.

use std::time::Duration;

use measure::Time;
use srt::arq::TsbpdConfig;
use srt::arq::receiver::{PacketStatus, Receiver, ReceiverConfig};
use srt::arq::sender::{Bandwidth, Sender, SenderConfig};
use srt::codec::packet::{Control, HEADER, LossRange, Packet, destination_socket_id, is_data};
use srt::messages::{MessageOutcome, MessageTracker};
use srt::seq::{SeqNumber, SocketClock};

use crate::input::Input;

const START: Time = Time::from_nanos(1_000_000_000);
const FIRST: SeqNumber = SeqNumber::MAX.minus(20);
const LATENCY: Duration = Duration::from_millis(120);

/// Checks that a packet that was read is written unchanged, and that a loss list is no longer than
/// its bytes allow.
pub(crate) fn packets(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    assert!(destination_socket_id(bytes).is_some());
    match packet {
        Packet::Data(header, payload) => {
            assert!(is_data(bytes));
            assert_eq!((&header.write()[..], payload), bytes.split_at(HEADER));
        }
        Packet::Control(header, control) => {
            assert!(!is_data(bytes));
            let mut again = Vec::new();
            control.write(header, &mut again);
            assert_eq!(Packet::parse(&again), Ok(packet));
            if let Control::Nak(list) = control {
                let ranges: Vec<LossRange> = list.ranges().collect();
                assert!(!ranges.is_empty() && ranges.len() <= bytes.len() / 4);
                assert!(
                    ranges
                        .iter()
                        .all(|range| !range.last.is_before(range.first))
                );
            }
        }
    }
}

/// Advances the time and returns the next datagram, which has its length in front. If the lowest
/// bit of `near` is set, a data packet gets a sequence number near the expected one.
fn datagrams(input: &mut Input<'_>, now: &mut Time) -> Vec<u8> {
    *now += Duration::from_millis(u64::from(input.byte()));
    let near = input.byte();
    let mut bytes = input.piece().to_vec();
    if near & 1 != 0
        && let Some(field) = bytes.first_chunk_mut::<4>()
        && field[0] & 0x80 == 0
    {
        *field = FIRST.plus(u32::from(near >> 1)).value().to_be_bytes();
    }
    bytes
}

/// Checks that every packet is accounted for, and that memory is bounded.
pub(crate) fn receiver(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let tsbpd = TsbpdConfig {
        reference: START,
        timestamp: if settings & 1 == 0 {
            0
        } else {
            u32::MAX - 1_000_000
        },
        latency: LATENCY,
    };
    let live = ReceiverConfig::live(FIRST, 8, SocketClock::new(START), tsbpd);
    let mut receiver = Receiver::new(ReceiverConfig {
        tsbpd: (settings & 4 == 0).then_some(tsbpd),
        window: 64,
        ..live
    });
    let (mut now, mut out) = (START, Vec::new());
    let mut messages = MessageTracker::default();
    let (mut whole, mut in_messages) = (0, 0);
    while !input.is_empty() {
        let datagram = datagrams(&mut input, &mut now);
        let mut on_outcome = |outcome| {
            if let MessageOutcome::Whole(message) = outcome {
                whole += 1;
                in_messages += message.bytes;
            }
        };
        match Packet::parse(&datagram) {
            Ok(Packet::Data(header, payload)) => {
                if let PacketStatus::New { .. } = receiver.data(&header, payload, now) {
                    let behind = receiver.acknowledged();
                    messages.add_packet(&header, payload.len(), now, behind, &mut on_outcome);
                }
            }
            Ok(Packet::Control(header, control)) => {
                receiver.control(&control, header.timestamp, now);
                messages.settle(now, receiver.acknowledged(), &mut on_outcome);
            }
            Err(_) => {}
        }
        assert!(messages.open_count() <= 1024);
        let mut responses = 0;
        loop {
            out.clear();
            if !receiver.write_next(now, &mut out) {
                break;
            }
            assert!(matches!(Packet::parse(&out), Ok(Packet::Control(..))));
            responses += 1;
            assert!(responses <= 4, "one packet is answered by a few");
        }
        let _ = receiver.due();
        let count = receiver.statistics();
        assert!(whole <= count.pkt_recv_unique && in_messages <= count.byte_recv_unique);
        let useless = count.pkt_rcv_belated + count.pkt_rcv_duplicate + count.pkt_rcv_beyond_window;
        assert_eq!(count.pkt_recv, count.pkt_recv_unique + useless);
        let found = count.pkt_rcv_recovered + count.pkt_rcv_reordered;
        assert_eq!(
            count.pkt_rcv_loss,
            found + count.pkt_rcv_drop + count.pkt_rcv_missing
        );
    }
    receiver.finish(now);
    assert_eq!(receiver.statistics().pkt_rcv_missing, 0);
}

/// Checks that only accepted data is sent, and that the buffer is bounded and empty in the end.
pub(crate) fn sender(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let messages = settings & 3 == 3;
    let mut sender = Sender::new(SenderConfig {
        messages,
        message_ttl: Some(LATENCY),
        bandwidth: match settings & 3 {
            0 => Bandwidth::Unlimited,
            1 => Bandwidth::Fixed(100_000),
            _ => Bandwidth::Input {
                rate_min: 0,
                overhead_percent: 25,
            },
        },
        packets_max: 64,
        flow_window: 1 + u32::from(settings >> 2),
        ..SenderConfig::live(FIRST, 7, SocketClock::new(START), LATENCY)
    });
    let (mut now, mut out, mut taken) = (START, Vec::new(), 0);
    while !input.is_empty() {
        for _ in 0..input.byte() % 16 {
            taken += match messages {
                false => u64::from(sender.push(now, vec![0x47; 5].into()).is_ok()),
                // A message of three packets.
                true => match sender.push_message(now, &vec![0x47; 3000].into(), true) {
                    Ok(_) => 3,
                    Err(_) => 0,
                },
            };
        }
        let datagram = datagrams(&mut input, &mut now);
        if let Ok(Packet::Control(_, control)) = Packet::parse(&datagram) {
            sender.control(&control, now);
        }
        let next = sender.next_sequence();
        while let Some(packet) = sender.next_packet(now) {
            assert!(packet.due <= now && packet.sequence.is_before(next));
            let Ok(Packet::Data(header, _)) = Packet::parse(&packet.header) else {
                panic!("the sender's packet is data");
            };
            assert_eq!(header.retransmitted, packet.retransmitted);
        }
        while sender.write_next(now, &mut out) {}
        let count = sender.statistics();
        assert!(count.pkt_snd_buf <= 64 && count.pkt_flight_size <= count.pkt_snd_buf);
        if let Some(messages) = sender.messages() {
            assert!(messages.acknowledged + messages.dropped <= messages.taken);
        } else {
            assert_eq!(count.byte_snd_buf, 5 * count.pkt_snd_buf);
        }
        assert!(count.pkt_sent_unique <= taken);
        out.clear();
    }
    now += Duration::from_secs(60);
    while sender.next_packet(now).is_some() {}
    assert_eq!(sender.unacknowledged(), 0);
}

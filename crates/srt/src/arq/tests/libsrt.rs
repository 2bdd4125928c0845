//! Replay of packets that libsrt received and sent.
//!
//! The capture was taken at a `srt-live-transmit` 1.5.1 on port 9000 that received 500 packets at a
//! latency of 60 ms, through a proxy with 15 to 27 ms of delay and 10 % of loss in both directions.
//! Data packets are truncated after 4 bytes of payload, the packet's number.

use super::*;
use crate::codec::packet::is_data;

const CAPTURE: &[u8] = include_bytes!("../../testdata/srt-live-transmit_lossy.pcap");

const PORT: [u8; 2] = 9000u16.to_be_bytes();

/// Packets of the 500 that libsrt did not write out.
const NOT_DELIVERED: [u32; 6] = [156, 170, 281, 363, 438, 443];

/// Datagrams of a capture of Ethernet frames: time, true if it goes to the receiver, and content.
fn datagrams() -> impl Iterator<Item = (Time, bool, &'static [u8])> {
    let mut rest = &CAPTURE[24..];
    std::iter::from_fn(move || {
        let (head, after) = rest.split_at_checked(16)?;
        let word = |at: usize| {
            let word = head[at..at + 4].try_into().expect("4 bytes");
            u64::from(u32::from_le_bytes(word))
        };
        let at = Time::from_nanos((word(0) * 1_000_000 + word(4)) * 1000);
        let (frame, after) = after.split_at(word(8) as usize);
        rest = after;
        Some((at, frame[36..38] == PORT, &frame[42..]))
    })
}

#[test]
fn packets_of_libsrt_round_trip() {
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, _, bytes) in datagrams() {
        let packet = Packet::parse(bytes).expect("libsrt wrote it");
        let (kind, written) = match packet {
            Packet::Data(header, payload) => ("data", [&header.write(), payload].concat()),
            Packet::Control(header, control) => {
                let mut written = Vec::new();
                control.write(header, &mut written);
                let kind = match control {
                    Control::Handshake(_) => "handshake",
                    Control::KeepAlive => "keepalive",
                    Control::Ack(_) => "ack",
                    Control::AckAck { .. } => "ackack",
                    Control::Nak(_) => "nak",
                    Control::Shutdown => "shutdown",
                    other => panic!("{other:?}"),
                };
                (kind, written)
            }
        };
        assert_eq!(written, bytes, "{packet:?}");
        assert_eq!(is_data(bytes), kind == "data");
        *kinds.entry(kind).or_default() += 1;
    }
    // Counts of tshark.
    let expected = [
        ("ack", 108),
        ("ackack", 87),
        ("data", 605),
        ("handshake", 4),
        ("keepalive", 6),
        ("nak", 137),
        ("shutdown", 1),
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
}

/// Replays the capture to our receiver.
fn replay() -> (Receiver, Vec<u32>) {
    // The second handshake to the receiver contained the HSREQ.
    let (reference, _, handshake) = datagrams()
        .filter(|(_, to_receiver, bytes)| *to_receiver && !is_data(bytes))
        .nth(1)
        .expect("there are two");
    let Ok(Packet::Control(header, Control::Handshake(_))) = Packet::parse(handshake) else {
        panic!("it is one");
    };
    let tsbpd = TsbpdConfig {
        reference,
        timestamp: header.timestamp,
        latency: millis(60),
    };
    let of_data = |(_, _, bytes)| match Packet::parse(bytes) {
        Ok(Packet::Data(header, payload)) if payload == [0; 4] => Some(header.sequence),
        _ => None,
    };
    let first = datagrams().find_map(of_data).expect("the first one came");
    let config = ReceiverConfig::live(first, 8, SocketClock::new(reference), tsbpd);
    let mut receiver = Receiver::new(config);
    let mut new = Vec::new();
    for (at, to_receiver, bytes) in datagrams() {
        if let (true, Ok(Packet::Data(header, payload))) = (to_receiver, Packet::parse(bytes)) {
            let number = u32::from_be_bytes(payload.try_into().expect("it is cut"));
            assert_eq!(header.sequence, first.plus(number));
            if let PacketStatus::New { .. } = receiver.data(&header, payload, at) {
                new.push(number);
            }
        }
    }
    (receiver, new)
}

#[test]
fn replay_receives_exactly_what_libsrt_delivered() {
    let (receiver, mut new) = replay();
    new.sort_unstable();
    let expected: Vec<u32> = (0..500).filter(|n| !NOT_DELIVERED.contains(n)).collect();
    assert_eq!(new, expected);
    let count = receiver.statistics();
    assert_eq!((count.pkt_recv, count.pkt_recv_unique), (605, 494));
    assert_eq!((count.pkt_rcv_drop, count.pkt_rcv_missing), (6, 0));
}

/// Both detect the same gaps.
#[test]
fn replay_misses_as_many_packets_as_libsrt_requested() {
    let mut asked = BTreeMap::new();
    for (_, to_receiver, bytes) in datagrams() {
        if let (false, Ok(Packet::Control(_, Control::Nak(list)))) =
            (to_receiver, Packet::parse(bytes))
        {
            for range in list.ranges() {
                let each = (0..range.count()).map(|more| (range.first.plus(more).value(), ()));
                asked.extend(each);
            }
        }
    }
    let (receiver, _) = replay();
    let count = receiver.statistics();
    assert_eq!(count.pkt_rcv_loss, asked.len() as u64);
    let found = count.pkt_rcv_recovered + count.pkt_rcv_reordered;
    assert_eq!(count.pkt_rcv_loss, found + 6);
}

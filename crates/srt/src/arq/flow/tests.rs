//! A looped stream over a lossy link, received by the transport stream checker.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::BytesMut;
use measure::Recorder;
use session::link::{Link, Loss, Settings};

use super::*;
use crate::arq::TsbpdConfig;
use crate::arq::receiver::{PacketStatus, Receiver, ReceiverConfig};
use crate::arq::sender::{PayloadCipher, SenderConfig};
use crate::arq::statistics::{ReceiverStatistics, SenderStatistics};
use crate::codec::packet::{DataHeader, KeyFlag, Packet};
use crate::reorder_buffer::ReorderBuffer;
use crate::seq::{SeqNumber, SocketClock};
use kit::media::ts::checker::{DatagramCounts, TsChecker, TsCheckerConfig, TsCounts};
use kit::mediagen::ts::looped_stream::DATAGRAM;
use session::ArrivalTimes;

/// XORs each byte with the low byte of the sequence number, and appends that byte 16 times.
#[derive(Debug)]
struct Turn(u64);

impl PayloadCipher for Turn {
    fn encrypt(&mut self, header: &DataHeader, payload: &mut BytesMut) -> KeyFlag {
        self.0 += 1;
        let key = header.sequence.value() as u8;
        payload.iter_mut().for_each(|byte| *byte ^= key);
        payload.extend_from_slice(&[key; 16]);
        KeyFlag::Odd
    }
}

struct Played {
    left: DepartureCounts,
    sent: SenderStatistics,
    received: ReceiverStatistics,
    datagrams: DatagramCounts,
    ts: TsCounts,
    made: u64,
}

fn play(seed: u64, loss: Loss, latency: Duration, encrypted: bool) -> Played {
    let first = SeqNumber::MAX.minus(100);
    let (start, delay) = (
        Time::from_start(Duration::from_secs(3)),
        Duration::from_millis(20),
    );
    let clock = SocketClock::new(start);
    let mut sender = Sender::new(SenderConfig::live(first, 7, clock, latency));
    if encrypted {
        sender.set_cipher(Box::new(Turn(0)));
    }
    let looped = Arc::new(LoopedStream::synthetic(2_000_000).expect("a possible rate"));
    let settings = SourceSettings {
        address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9000),
        source: 7,
        wall_clock: Duration::from_secs(1_700_000_000),
        length: Some(Duration::from_secs(2)),
    };
    let mut flow = SourceFlow::stream(looped, settings, sender);
    assert_eq!(flow.next_due(), Some(Time::NEVER));
    flow.start(start);
    let tsbpd = TsbpdConfig {
        reference: start + delay,
        timestamp: 0,
        latency,
    };
    let config = ReceiverConfig::live(first, 8, clock, tsbpd);
    let mut receiver = Receiver::new(config);
    let mut checker = TsChecker::new(&TsCheckerConfig {
        due: start,
        group: None,
        previous_channel: None,
        wall_clock: Some(Duration::from_secs(1_700_000_000)),
        playout_buffer: Duration::from_secs(1),
    });
    let mut recorder = Recorder::new(crate::PROTOCOL.catalogue);
    let link = Settings {
        delay,
        loss,
        ..Settings::default()
    };
    let mut media: Link<Vec<u8>> = Link::new(link.clone(), Vec::new(), seed);
    let mut back: Link<Vec<u8>> = Link::new(link, Vec::new(), seed + 1);
    // In their order, as clients do.
    let mut in_order = ReorderBuffer::new(first);
    let clear_of = |header: &DataHeader, payload: &[u8]| {
        let mut clear = payload.to_vec();
        if encrypted {
            assert_eq!(header.key, KeyFlag::Odd);
            let turn = header.sequence.value() as u8;
            assert_eq!(clear.split_off(DATAGRAM), [turn; 16]);
            clear.iter_mut().for_each(|byte| *byte ^= turn);
        }
        assert_eq!(clear.len(), DATAGRAM);
        clear
    };
    let mut feed = |payload: &[u8], at: Time| {
        checker.feed(payload, 0, &mut ArrivalTimes::new(&[], at), &mut recorder);
    };
    let (mut now, mut out) = (start, Vec::new());
    while flow.next_due().is_some() {
        while let Some(packet) = flow.next_packet(now) {
            let bytes = [&packet.header[..], &packet.payload].concat();
            let _ = media.send(now, bytes.len() + 28, bytes);
            flow.packet_sent(packet.tag, Some(Handover::at(now)));
        }
        out.clear();
        while flow.sender().write_next(now, &mut out) {
            let _ = media.send(now, out.len() + 28, std::mem::take(&mut out));
        }
        while let Some(delivery) = media.take(now) {
            match Packet::parse(&delivery.packet).expect("it is one") {
                Packet::Data(header, payload) => {
                    let status = receiver.data(&header, payload, delivery.due);
                    if matches!(status, PacketStatus::New { .. }) {
                        let clear = clear_of(&header, payload);
                        in_order.insert(header.sequence, delivery.due, &clear, &mut feed);
                    }
                    let given_up = receiver.acknowledged();
                    in_order.give_up_before(given_up, delivery.due, &mut feed);
                }
                Packet::Control(header, control) => {
                    receiver.control(&control, header.timestamp, delivery.due);
                }
            }
        }
        while receiver.write_next(now, &mut out) {
            let _ = back.send(now, out.len() + 28, std::mem::take(&mut out));
        }
        while let Some(delivery) = back.take(now) {
            if let Ok(Packet::Control(_, control)) = Packet::parse(&delivery.packet) {
                flow.sender().control(&control, delivery.due);
            }
        }
        let next = [
            flow.next_due(),
            Some(flow.sender().control_due()),
            Some(receiver.due()),
            media.next_departure(),
            back.next_departure(),
        ];
        let next = next
            .into_iter()
            .flatten()
            .min()
            .expect("the flow has not ended");
        now = next.max(now + Duration::from_micros(1));
    }
    receiver.finish(now);
    in_order.give_up_before(first.plus(1000), now, &mut feed);
    assert_eq!(flow.next_due(), None);
    Played {
        left: flow.departure_counts(),
        sent: flow.sender().statistics(),
        received: receiver.statistics(),
        datagrams: *checker.datagrams().expect("they are stamped"),
        ts: *checker.counts(),
        made: flow.made(),
    }
}

#[test]
fn flow_of_pushed_payloads_makes_none() {
    let now = Time::from_start(Duration::from_secs(3));
    let first = SeqNumber::new(7);
    let latency = Duration::from_millis(100);
    let sender = SenderConfig::live(first, 7, SocketClock::new(now), latency);
    let mut flow = SourceFlow::pushed(Sender::new(sender));
    flow.start(now);
    assert_eq!(flow.next_due(), Some(Time::NEVER));
    assert!(flow.next_packet(now).is_none() && flow.made() == 0);
}

#[test]
fn looped_stream_arrives_whole_over_a_lossy_link() {
    for seed in 0..20 {
        for encrypted in [false, true] {
            let latency = Duration::from_secs(1);
            let played = play(seed, Loss::Random(0.05), latency, encrypted);
            // 2 Mbit/s for 2 s. Losses at the very end are not recovered, because no packet follows
            // them.
            assert_eq!(played.made, 380);
            assert_eq!(played.left.first, played.made);
            assert_eq!(played.left.again, played.sent.pkt_retrans);
            assert!(played.left.again > 5);
            let unique = played.received.pkt_recv_unique;
            assert!((375..=380).contains(&unique), "{unique}");
            let found = (played.datagrams.received, played.datagrams.expected);
            assert_eq!(found, (unique, unique));
            assert_eq!(played.datagrams.damaged, 0);
            assert_eq!(played.ts.continuity_errors, 0);
            assert_eq!(played.datagrams.reordered, 0);
        }
    }
}

#[test]
fn late_packets_are_missing_in_the_stream_and_counted() {
    for seed in 0..20 {
        let latency = Duration::from_millis(30);
        let played = play(seed, Loss::Random(0.1), latency, false);
        let dropped = played.received.pkt_rcv_drop;
        assert!(dropped > 5);
        let missing = played.datagrams.expected - played.datagrams.received;
        // Losses before the first datagram are known to the receiver only, which knows where the
        // stream begins.
        assert!(
            (dropped - 3..=dropped).contains(&missing),
            "{missing} {dropped}"
        );
        assert!(played.ts.continuity_errors > 0);
    }
}

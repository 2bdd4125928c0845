//! An SRT packet allocates nothing: when it is counted or retransmitted.

use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use srt::arq::TsbpdConfig;
use srt::arq::receiver::{Receiver, ReceiverConfig};
use srt::arq::sender::{Sender, SenderConfig};
use srt::codec::packet::Packet;
use srt::seq::{SeqNumber, SocketClock};

const START: Time = Time::from_nanos(1_000_000_000);
const PACKET_INTERVAL: Duration = Duration::from_millis(4);
const LATENCY: Duration = Duration::from_millis(120);
const FIRST: SeqNumber = SeqNumber::MAX.minus(3000);

/// Both ends, with every tenth packet lost once.
struct Ends {
    sender: Sender,
    receiver: Receiver,
    payload: Bytes,
    now: Time,
    sent: u64,
    said: Vec<u8>,
    datagram: Vec<u8>,
}

impl Ends {
    fn new() -> Ends {
        let clock = SocketClock::new(START);
        let tsbpd = TsbpdConfig {
            reference: START,
            timestamp: 0,
            latency: LATENCY,
        };
        let config = ReceiverConfig::live(FIRST, 8, clock, tsbpd);
        Ends {
            sender: Sender::new(SenderConfig::live(FIRST, 7, clock, LATENCY)),
            receiver: Receiver::new(config),
            payload: Bytes::from(vec![0x47; 1316]),
            now: START,
            sent: 0,
            said: Vec::new(),
            datagram: Vec::new(),
        }
    }

    fn play(&mut self, packets: u32) {
        for _ in 0..packets {
            self.now += PACKET_INTERVAL;
            let pushed = self.sender.push(self.now, self.payload.clone());
            pushed.expect("there is room");
            while let Some(packet) = self.sender.next_packet(self.now) {
                self.sent += u64::from(!packet.retransmitted);
                if !packet.retransmitted && self.sent.is_multiple_of(10) {
                    continue;
                }
                self.datagram.clear();
                self.datagram.extend_from_slice(&packet.header);
                self.datagram.extend_from_slice(&packet.payload);
                if let Ok(Packet::Data(header, payload)) = Packet::parse(&self.datagram) {
                    self.receiver.data(&header, payload, self.now);
                }
            }
            self.said.clear();
            while self.receiver.write_next(self.now, &mut self.said) {
                if let Ok(Packet::Control(_, control)) = Packet::parse(&self.said) {
                    self.sender.control(&control, self.now);
                }
                self.said.clear();
            }
            while self.sender.write_next(self.now, &mut self.said) {
                if let Ok(Packet::Control(header, control)) = Packet::parse(&self.said) {
                    self.receiver.control(&control, header.timestamp, self.now);
                }
                self.said.clear();
            }
        }
    }
}

#[test]
fn media_allocates_nothing() {
    let mut ends = Ends::new();
    ends.play(1000);
    let info = allocation_counter::measure(|| ends.play(10_000));
    assert_eq!(info.count_total, 0);
    let received = ends.receiver.statistics();
    // The last packet was lost, which a later packet would have revealed.
    assert_eq!(received.pkt_recv_unique + received.pkt_rcv_missing, 10_999);
    assert!(received.pkt_rcv_recovered >= 1_099);
    assert_eq!(
        ends.sender.statistics().pkt_retrans,
        received.pkt_rcv_recovered
    );
}

#[test]
fn receiver_uses_less_than_24_kib() {
    let info = allocation_counter::measure(|| {
        let mut ends = Ends::new();
        ends.play(2000);
        // Includes the sender and the test itself.
        assert!(ends.receiver.statistics().pkt_recv_unique > 1990);
    });
    assert!(info.bytes_max < 24 * 1024, "{}", info.bytes_max);
}

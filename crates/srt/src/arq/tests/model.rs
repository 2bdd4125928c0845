//! A receiver against a model, with packets that no sane sender would send.

use super::*;

proptest! {
    /// Every packet is accounted for, and memory is bounded, whatever arrives.
    #[test]
    fn receiver_survives_any_input(
        packets in prop::collection::vec(
            (0u32..600, any::<u32>(), any::<bool>(), 0u64..30),
            1..200,
        ),
    ) {
        let start = Time::from_start(Duration::from_secs(1));
        let tsbpd = TsbpdConfig { reference: start, timestamp: 0, latency: millis(120) };
        let config = ReceiverConfig::live(CONFIG_FIRST, 8, SocketClock::new(start), tsbpd);
        let mut receiver = Receiver::new(ReceiverConfig {
            window: 256,
            ..config
        });
        let (mut now, mut out) = (start, Vec::new());
        for (number, timestamp, control, millis) in packets {
            now += Duration::from_millis(millis);
            if control {
                let first = CONFIG_FIRST.plus(number);
                let last = first.plus(timestamp % 50);
                let drop = Control::DropRequest { message: 0, first, last };
                receiver.control(&drop, timestamp, now);
            } else {
                let mut header = [0; 16];
                let sequence = CONFIG_FIRST.plus(number);
                header[..4].copy_from_slice(&sequence.value().to_be_bytes());
                header[8..12].copy_from_slice(&timestamp.to_be_bytes());
                let Ok(Packet::Data(header, _)) = Packet::parse(&header) else {
                    return Err(TestCaseError::fail("it is data"));
                };
                receiver.data(&header, b"payload", now);
            }
            let mut sent = 0;
            out.clear();
            while receiver.write_next(now, &mut out) {
                sent += 1;
            }
            prop_assert!(sent <= 3, "{}", sent);
            let count = receiver.statistics();
            let useless = count.pkt_rcv_belated
                + count.pkt_rcv_duplicate
                + count.pkt_rcv_beyond_window;
            prop_assert_eq!(count.pkt_recv, count.pkt_recv_unique + useless);
            let found = count.pkt_rcv_recovered + count.pkt_rcv_reordered;
            prop_assert_eq!(count.pkt_rcv_loss, found + count.pkt_rcv_drop + count.pkt_rcv_missing);
        }
    }
}

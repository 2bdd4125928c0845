//! Wrong statements of servers about the first packet (RTP-Info).

use super::*;

#[test]
fn low_seq_is_no_loss_if_first_packet_has_rtptime() {
    let run = |seq: u16, rtptime: Option<u32>, early: bool, first: u16| {
        let mut bench = Bench::new();
        let set = |bench: &mut Bench| {
            bench.receiver.set_base(seq, rtptime, &mut bench.recorder);
        };
        if early {
            set(&mut bench);
        }
        bench.packets(first..first + 10);
        if !early {
            set(&mut bench);
        }
        bench.packets(first + 10..first + 20);
        bench.finish();
        (bench.counts()[0] - 20, bench.count(m::RTP_INFO_MISMATCH))
    };
    let time = |sequence: u16| Some(u32::from(sequence) * 3600);
    for early in [true, false] {
        // GStreamer states AAC like this.
        assert_eq!(run(99, time(100), early, 100), (0, 1));
        assert_eq!(run(100, time(100), early, 100), (0, 0));
        // The first packet was lost: the packet that arrived first has a later timestamp.
        assert_eq!(run(100, time(100), early, 101), (1, 0));
        assert_eq!(run(98, time(98), early, 101), (3, 0));
        // The timestamp is not stated, or does not help.
        assert_eq!(run(99, None, early, 100), (1, 0));
        assert_eq!(run(101, time(100), early, 100), (0, 1));
    }
}

#[test]
fn received_packets_outweigh_a_stated_seq() {
    let run = |seq: u16, rtptime: Option<u32>, first: u16, tcp: bool, early: bool| {
        let mut bench = Bench::new();
        if tcp {
            let config = ReceiverConfig {
                clock_rate: 90_000,
                payload_types: vec![96],
                playout_buffer: Duration::from_millis(100),
            };
            bench.receiver = RtpReceiver::new(&config).over_reliable_transport();
        }
        let set = |bench: &mut Bench| {
            bench.receiver.set_base(seq, rtptime, &mut bench.recorder);
        };
        if early {
            set(&mut bench);
        }
        bench.packets(first..first + 10);
        if !early {
            set(&mut bench);
        }
        bench.packets(first + 10..first + 100);
        bench.finish();
        (bench.counts()[0] - 100, bench.count(m::RTP_INFO_MISMATCH))
    };
    for early in [true, false] {
        for tcp in [true, false] {
            assert_eq!(run(0, None, 1500, tcp, early), (0, 1));
            assert_eq!(run(1500, None, 1500, tcp, early), (0, 0));
            // Servers drop a few packets at the start.
            assert_eq!(run(1497, None, 1500, tcp, early), (3, 0));
        }
        // TCP loses no packet before the first.
        assert_eq!(run(1400, None, 1500, true, early), (0, 1));
        assert_eq!(run(1400, None, 1500, false, early), (100, 0));
        // The timestamps contradict: 100 packets of 40 ms are 4 s.
        let time = 1400 * 3600;
        assert_eq!(run(1400, Some(time), 1500, false, early), (100, 0));
        assert_eq!(run(1400, Some(0), 1500, false, early), (0, 1));
    }
}

//! Packets without payload are not media, and a loss breaks only the frames that it affects.

use super::*;

impl Bench {
    /// Sends a packet of padding only, as senders do to probe the path.
    fn padding(&mut self, sequence: u16, timestamp: u32) -> Option<MediaEvent> {
        let header = Header {
            padding: true,
            ..self.header(sequence, timestamp, false)
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(12 + 200, 0);
        bytes[211] = 200;
        self.raw(&bytes)
    }

    fn after(&mut self, millis: u64) {
        self.at += Duration::from_millis(millis);
    }

    fn highest(&self, histogram: HistogramId) -> u64 {
        let histogram = self.recorder.histogram(histogram);
        histogram.and_then(|own| own.max()).unwrap_or(0)
    }
}

#[test]
fn padding_between_frames_is_no_media() {
    let mut bench = Bench::new();
    let mut sequence = 1000u16;
    for frame in 0..150u32 {
        let header = bench.header(sequence, frame * 3600, true);
        bench.send(&header);
        sequence += 1;
        if frame % 25 < 5 {
            bench.after(1);
            // The timestamp is an hour before the media.
            assert_eq!(
                bench.padding(sequence, (frame * 3600).wrapping_sub(324_000_000)),
                None
            );
            sequence += 1;
            bench.after(39);
        } else {
            bench.after(40);
        }
    }
    bench.finish();
    assert_eq!(bench.receiver.frames(), (150, 0, 0));
    assert_eq!(bench.counts(), [180, 180, 0, 0, 0, 0, 0]);
    assert!(bench.highest(m::JITTER) < 1000);
    assert_eq!(bench.receiver.longest_gap(), Duration::from_millis(40));
    assert_eq!(bench.receiver.counts().payload_bytes, 150 * PAYLOAD as u64);
}

#[test]
fn padding_inside_and_between_frames_breaks_none() {
    // Three packets per frame, with padding inside and at the end; with and without marker bits.
    for marks in [true, false] {
        let mut bench = Bench::new();
        let mut number = 65_000u16;
        let mut next = || {
            number = number.wrapping_add(1);
            number
        };
        for frame in 0..40u32 {
            let time = frame * 3600;
            for part in 0..3 {
                let header = bench.header(next(), time, marks && part == 2);
                bench.send(&header);
                bench.padding(next(), 7);
            }
            if frame == 20 {
                // A burst of probes.
                for _ in 0..300 {
                    bench.padding(next(), 7);
                }
            }
            bench.after(40);
        }
        bench.finish();
        assert_eq!(bench.receiver.frames(), (40, 0, 0), "{marks}");
    }
}

#[test]
fn packet_lost_next_to_padding_breaks_only_its_frame() {
    let mut bench = Bench::new();
    for frame in 0..20u16 {
        for part in 0..4u16 {
            let sequence = frame * 4 + part;
            match (frame, part) {
                // The packet with the marker bit of one frame is lost.
                (10, 2) => {}
                (_, 3) => {
                    bench.padding(sequence, 0);
                }
                _ => {
                    let header = bench.header(sequence, u32::from(frame) * 3600, part == 2);
                    bench.send(&header);
                }
            }
        }
    }
    bench.finish();
    assert_eq!(bench.receiver.frames(), (19, 1, 0));
    assert_eq!(bench.counts()[..2], [80, 79]);
}

#[test]
fn a_stream_begins_with_its_first_payload() {
    let mut bench = Bench::new();
    bench.set_base(99);
    for sequence in 100..110 {
        assert_eq!(bench.padding(sequence, 5), None);
        bench.after(100);
    }
    assert_eq!(bench.receiver.first_arrival(), None);
    assert_eq!(bench.receiver.last_arrival(), None);
    let at = bench.at;
    assert_eq!(bench.packet(110), Some(MediaEvent::First { at }));
    bench.packets(111..120);
    bench.finish();
    // One packet was stated and is missing.
    assert_eq!(bench.counts(), [21, 20, 0, 0, 0, 0, 0]);
    assert_eq!(bench.receiver.first_arrival(), Some(at));
    assert_eq!(bench.receiver.longest_gap(), Duration::ZERO);

    // Padding of another source says nothing about this one.
    let mut bench = Bench::new();
    bench.ssrc = 1;
    bench.padding(7, 5);
    bench.ssrc = SSRC;
    assert!(bench.packet(5000).is_some());
    bench.packets([5001, 5002]);
    bench.finish();
    assert_eq!(bench.receiver.counts().restarts, 0);
    assert_eq!(bench.receiver.counts().lost(), 0);
}

#[test]
fn counters_balance_for_arbitrary_padding() {
    let mut bench = Bench::new();
    let mut random = 1u32;
    for _ in 0..20_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let sequence = (random >> 16) as u16 & 0x3ff;
        bench.after(u64::from(random >> 30));
        bench.ssrc = SSRC + u32::from(random >> 28 == 0);
        match random >> 8 & 3 {
            0 => bench.packet(sequence),
            1 => bench.raw(&[0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]),
            _ => bench.padding(sequence, random),
        };
    }
    bench.finish();
    let [expected, received, ..] = bench.counts();
    assert!(received <= expected);
}

#[test]
fn lost_audio_packet_breaks_no_other_frame() {
    let config = ReceiverConfig {
        clock_rate: 48_000,
        payload_types: vec![96],
        playout_buffer: Duration::from_millis(100),
    };
    let mut bench = Bench::with(&config);
    bench.receiver = RtpReceiver::new(&config).with_single_packets();
    for number in 0..500u16 {
        if number % 50 != 49 {
            // Only a talk spurt begins with the marker bit (RFC 3551, 4.1).
            let header = bench.header(number, u32::from(number) * 960, number == 0);
            bench.send(&header);
        }
        bench.after(20);
    }
    bench.finish();
    // The last lost packet is after all that arrived.
    assert_eq!(bench.receiver.counts().lost(), 9);
    assert_eq!(bench.receiver.frames(), (490, 0, 0));
}

#[test]
fn lost_packet_breaks_exactly_one_picture() {
    // Frames of three packets: the first, the middle or the last packet is lost.
    for (lost, broken) in [(30, 1), (31, 1), (32, 1)] {
        let mut bench = Bench::new();
        for number in (0..90u16).filter(|number| *number != lost) {
            let header = bench.header(number, u32::from(number / 3) * 3600, number % 3 == 2);
            bench.send(&header);
        }
        bench.finish();
        assert_eq!(bench.receiver.frames(), (30 - broken, broken, 0), "{lost}");
    }
}

#[test]
fn reported_loss_is_never_negative() {
    let mut bench = Bench::new();
    bench.packets([1, 2, 2, 2, 3, 3]);
    assert_eq!(bench.receiver.report_block(bench.at).cumulative_lost, 0);
}

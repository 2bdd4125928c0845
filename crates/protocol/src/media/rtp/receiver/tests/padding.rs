//! Packets without payload are no media, and losses break no frame that they did not touch.

use super::*;

impl Bench {
    /// A packet of padding alone, as it is sent to probe the path.
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
            // An hour before the media.
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
fn padding_within_and_beside_frames_breaks_none() {
    // Three packets a frame, with padding in the midst and at the end; with marks and without.
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
                // A burst that probes.
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
fn a_packet_lost_beside_padding_breaks_its_frame_alone() {
    let mut bench = Bench::new();
    for frame in 0..20u16 {
        for part in 0..4u16 {
            let sequence = frame * 4 + part;
            match (frame, part) {
                // The marker's packet of one frame.
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
    // One was stated and is missing.
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
fn any_padding_keeps_the_books_balanced() {
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
fn lost_sound_breaks_no_neighbour() {
    let config = ReceiverConfig {
        clock_rate: 48_000,
        payload_types: vec![96],
        playout_buffer: Duration::from_millis(100),
    };
    let mut bench = Bench::with(&config);
    bench.receiver = RtpReceiver::new(&config).with_single_packets();
    for number in 0..500u16 {
        if number % 50 != 49 {
            // Only a talk spurt begins with the mark (RFC 3551, 4.1).
            let header = bench.header(number, u32::from(number) * 960, number == 0);
            bench.send(&header);
        }
        bench.after(20);
    }
    bench.finish();
    // The last one lost is behind all that came.
    assert_eq!(bench.receiver.counts().lost(), 9);
    assert_eq!(bench.receiver.frames(), (490, 0, 0));
}

#[test]
fn a_lost_packet_of_a_picture_breaks_one_picture() {
    // Frames of three packets: the first, the middle and the last are lost.
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
fn reports_never_state_less_than_nothing() {
    let mut bench = Bench::new();
    bench.packets([1, 2, 2, 2, 3, 3]);
    assert_eq!(bench.receiver.report_block(bench.at).cumulative_lost, 0);
}

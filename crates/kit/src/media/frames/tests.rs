use measure::{Catalogue, HistogramId};

use super::*;
use crate::metrics::{CLIENTS, ZAPPING};
use crate::viewer::VIEWERS;

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &m::FRAMES_GROUP]);
const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

/// A receiver and its recorder.
struct Bench {
    receiver: FrameReceiver,
    recorder: Recorder,
}

impl Bench {
    fn new(clock_rate: u32) -> Bench {
        Bench {
            receiver: FrameReceiver::new(&FrameConfig {
                clock_rate,
                playout_buffer: Duration::from_millis(500),
                wall_clock: Some(WALL_CLOCK),
            }),
            recorder: Recorder::new(CATALOGUE),
        }
    }

    fn frame(&mut self, at_ms: u64, timestamp: u32) -> Option<MediaEvent> {
        self.coded(at_ms, timestamp, None)
    }

    fn coded(&mut self, at_ms: u64, timestamp: u32, code: Option<TimeCode>) -> Option<MediaEvent> {
        let frame = Frame {
            at: ms(at_ms),
            timestamp,
            payload: 1000,
            wire: 1012,
            code,
        };
        self.receiver.frame(&frame, &mut self.recorder)
    }

    /// Largest recorded value, in milliseconds.
    fn maximum(&self, histogram: HistogramId) -> Option<u64> {
        let largest = self.recorder.histogram(histogram)?.max()?;
        Some((largest + 500_000) / 1_000_000)
    }
}

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

#[test]
fn frames_in_time_cause_no_stall_or_clock_jump() {
    let mut bench = Bench::new(1000);
    // The timestamps wrap around.
    let first = u32::MAX - 400;
    for n in 0..25u32 {
        let event = bench.frame(100 + u64::from(n) * 40, first.wrapping_add(n * 40));
        let expected = (n == 0).then(|| MediaEvent::First { at: ms(100) });
        assert_eq!(event, expected);
    }
    bench.receiver.finish(&mut bench.recorder);
    let expected = FrameCounts {
        frames: 25,
        payload_bytes: 25_000,
        wire_bytes: 25 * 1012,
        stalls: 0,
        clock_jumps: 0,
    };
    assert_eq!(bench.receiver.counts(), expected);
    let counters = [m::FRAMES, m::PAYLOAD_BYTES, m::WIRE_BYTES, m::STALLS];
    let counted = counters.map(|counter| bench.recorder.counter(counter));
    assert_eq!(counted, [25, 25_000, 25 * 1012, 0]);
    let recorded = [m::JITTER, m::LATENESS, m::LONGEST_GAP, m::PLAYOUT_BUFFER];
    let maxima = recorded.map(|histogram| bench.maximum(histogram));
    assert_eq!(maxima, [Some(0), Some(0), Some(40), Some(0)]);
    assert_eq!(bench.receiver.last_arrival(), Some(ms(100 + 24 * 40)));
}

#[test]
fn outage_is_a_gap_and_a_stall_but_no_clock_jump() {
    let mut bench = Bench::new(90_000);
    for n in 0..20 {
        assert_eq!(bench.frame(n * 50, n as u32 * 4500).is_some(), n == 0);
    }
    // No frame arrives for 3 s, then all delayed frames arrive at once.
    for n in 20..80 {
        assert_eq!(bench.frame(4000, n * 4500), None);
    }
    bench.receiver.finish(&mut bench.recorder);
    assert_eq!(bench.receiver.counts().clock_jumps, 0);
    assert_eq!(bench.receiver.longest_gap(), Duration::from_millis(3050));
    assert_eq!(bench.maximum(m::LATENESS), Some(3000));
    assert_eq!(bench.maximum(m::EARLY), Some(50));
    assert_eq!(bench.maximum(m::PLAYOUT_BUFFER), Some(3000));
    // The buffer covers half a second of it.
    assert_eq!(bench.recorder.counter(m::STALLS), 1);
    assert_eq!(bench.maximum(m::STALL_TIME), Some(2500));
}

#[test]
fn restarted_clock_is_a_jump_and_no_stall() {
    for (at, timestamp, jumps) in [
        (1040, 0, true),
        (1040, 1_000_000, true),
        // Bursts may be ahead of time, and frames may be out of order.
        (1040, 6000, false),
        (1040, 4960, false),
        (61_040, 70_000, false),
        (61_040, 73_000, true),
    ] {
        let mut bench = Bench::new(1000);
        bench.frame(1000, 5000);
        let event = bench.frame(at, timestamp);
        let jumped = MediaEvent::ClockJumped { at: ms(at) };
        assert_eq!(event, jumps.then_some(jumped), "{at} {timestamp}");
        assert_eq!(bench.recorder.counter(m::CLOCK_JUMPS), u64::from(jumps));
        if jumps {
            bench.frame(at + 40, timestamp + 40);
            assert_eq!(bench.recorder.counter(m::STALLS), 0);
            assert_eq!(bench.maximum(m::LATENESS), Some(0));
        }
    }
    // Without a clock there are no jumps.
    let mut bench = Bench::new(0);
    bench.frame(0, 0);
    assert_eq!(bench.frame(1, u32::MAX / 2), None);
}

#[test]
fn silence_at_the_end_is_a_gap_and_a_stall() {
    let mut bench = Bench::new(1000);
    bench.receiver.finish_silent(ms(500), &mut bench.recorder);
    assert_eq!(bench.maximum(m::LONGEST_GAP), None);
    let mut bench = Bench::new(1000);
    for n in 0..5u32 {
        bench.frame(u64::from(n) * 100, n * 100);
    }
    for _ in 0..2 {
        bench.receiver.finish_silent(ms(2400), &mut bench.recorder);
    }
    assert_eq!(bench.maximum(m::LONGEST_GAP), Some(2000));
    // The last frame is shown for 100 ms, and the buffer holds 500 ms.
    assert_eq!(bench.maximum(m::STALL_TIME), Some(1400));
    assert_eq!(bench.recorder.counter(m::STALLS), 1);
}

#[test]
fn time_codes_measure_frame_delay_and_loss() {
    let mut bench = Bench::new(1000);
    for number in [3, 4, 7] {
        let due = ms(u64::from(number) * 40);
        let code = TimeCode {
            source: 9,
            number,
            nanos: WALL_CLOCK.as_nanos() as u64 + due.as_nanos(),
        };
        bench.coded(u64::from(number) * 40 + 25, number * 40, Some(code));
    }
    let counters = [
        m::FRAMES_PUBLISHED,
        m::FRAMES_DELIVERED,
        m::TIME_CODES_AHEAD,
    ];
    let counted = counters.map(|counter| bench.recorder.counter(counter));
    assert_eq!(counted, [5, 3, 0]);
    assert_eq!(bench.maximum(m::FRAME_DELAY), Some(25));
}

use measure::Catalogue;

use super::*;
use crate::metrics::RTMP;
use kit::media::frames::metrics::FRAMES_GROUP;
use kit::metrics::{CLIENTS, ZAPPING};
use kit::viewer::VIEWERS;

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &FRAMES_GROUP, &RTMP]);

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// A player and its recorder.
struct Bench {
    playing: Playing,
    recorder: Recorder,
}

impl Bench {
    fn new() -> Bench {
        let start_times = StartTimes {
            due: ms(0),
            started: ms(0),
            asked: ms(0),
            is_later_channel: false,
        };
        Bench {
            playing: Playing::new(start_times, Duration::from_secs(1), None),
            recorder: Recorder::new(CATALOGUE),
        }
    }

    /// Delivers a message that begins with `head`.
    fn comes(&mut self, video: bool, at: Time, timestamp: u32, head: &[u8]) {
        let media = MediaMessage {
            video,
            timestamp,
            stream: 1,
            length: 100,
            wire: 112,
            head,
            body: Vec::new(),
        };
        let mut times = ArrivalTimes::new(&[], at);
        self.playing
            .handle_media(&media, 1, &mut times, &mut self.recorder);
    }

    fn count(&self, counter: CounterId) -> u64 {
        self.recorder.counter(counter)
    }

    fn most(&self, histogram: measure::HistogramId) -> Duration {
        let most = self.recorder.histogram(histogram).and_then(|all| all.max());
        Duration::from_nanos(most.expect("measured"))
    }
}

#[test]
fn timestamp_wraparound_does_not_change_metrics() {
    let figures = |base: u32| {
        let mut bench = Bench::new();
        for frame in 0..100u32 {
            let timestamp = base.wrapping_add(frame * 40);
            let at = ms(1000 + u64::from(frame) * 40);
            bench.comes(true, at, timestamp, &[0x17, 1, 0, 0, 0]);
            let later = at + Duration::from_millis(20);
            bench.comes(false, later, timestamp.wrapping_add(15), &[0xaf, 1]);
        }
        bench.playing.finish(None, &mut bench.recorder);
        use kit::media::frames::metrics as f;
        let counts = [f::FRAMES, f::STALLS, f::CLOCK_JUMPS].map(|counter| bench.count(counter));
        let delays = [m::AV_SKEW, f::JITTER, f::PLAYOUT_BUFFER, f::LONGEST_GAP];
        (counts, delays.map(|delay| bench.most(delay)))
    };
    let usual = figures(0);
    assert_eq!(usual.0, [200, 0, 0]);
    assert_eq!(usual.1[0], Duration::from_millis(5));
    for before in [1, 100, 1999, 2000, 2001, 3999] {
        assert_eq!(figures(u32::MAX - before), usual, "{before}");
        assert_eq!(figures((1 << 31) - before), usual, "{before}");
    }
}

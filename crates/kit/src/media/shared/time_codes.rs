//! Time codes in the frames of a stream: end-to-end delay of each frame, and frames that never
//! arrived.

use std::time::Duration;

use measure::{Recorder, Time};

use super::TimeCodeMetrics;
use crate::mediagen::time_code::TimeCode;

/// Maximum number of open frames with a time code. A receiver keeps fewer frames open.
const OPEN_MAX: usize = 16;

/// A frame number that is further ahead belongs to a restarted stream.
const AHEAD_MAX: u32 = 100_000;

/// Time codes of a stream.
#[derive(Debug, Default)]
pub(crate) struct TimeCodes {
    /// Wall clock at the start of the run, in nanoseconds since 1970.
    wall_clock_origin: u64,
    source: Option<u32>,
    highest: u32,
    /// Frames published and delivered: see `frames_published` and `frames_delivered`.
    published: u64,
    delivered: u64,
    /// True if the frames before the next received one were not expected.
    gap_expected: bool,
    /// Timestamps and send times of the time codes whose frames are not closed yet, and the index
    /// of the next slot.
    open: [Option<(u32, u64)>; OPEN_MAX],
    next: usize,
}

impl TimeCodes {
    pub(crate) fn new(wall_clock: Duration) -> TimeCodes {
        TimeCodes {
            wall_clock_origin: u64::try_from(wall_clock.as_nanos()).unwrap_or(u64::MAX),
            ..TimeCodes::default()
        }
    }

    /// Frames published and delivered so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.published, self.delivered)
    }

    /// Handles the time code of the frame with this timestamp.
    pub(crate) fn frame_code<M: TimeCodeMetrics>(
        &mut self,
        timestamp: u32,
        code: TimeCode,
        recorder: &mut Recorder,
    ) {
        let ahead = code.number.wrapping_sub(self.highest);
        if self.source != Some(code.source) {
            self.source = Some(code.source);
            self.begin_source::<M>(code.number, recorder);
        } else if (1..=AHEAD_MAX).contains(&ahead) {
            self.highest = code.number;
            let missed = std::mem::take(&mut self.gap_expected);
            let published = if missed { 1 } else { ahead.into() };
            recorder.count(&mut self.published, M::FRAMES_PUBLISHED, published);
        } else if (AHEAD_MAX..u32::MAX - AHEAD_MAX).contains(&ahead) {
            self.begin_source::<M>(code.number, recorder);
        } else {
            // A frame that was sent earlier, out of order or duplicated.
            let known = self.open.iter().flatten();
            if known.clone().any(|&(other, _)| other == timestamp) {
                return;
            }
        }
        self.open[self.next] = Some((timestamp, code.nanos));
        self.next = (self.next + 1) % OPEN_MAX;
    }

    /// Does not count the frames up to the next received one as missing: the client paused or
    /// seeks.
    pub(crate) fn expect_gap(&mut self) {
        self.gap_expected = true;
    }

    fn begin_source<M: TimeCodeMetrics>(&mut self, number: u32, recorder: &mut Recorder) {
        self.gap_expected = false;
        self.highest = number;
        recorder.count(&mut self.published, M::FRAMES_PUBLISHED, 1);
    }

    fn take(&mut self, timestamp: u32) -> Option<u64> {
        let found = self
            .open
            .iter_mut()
            .find(|open| open.is_some_and(|(other, _)| other == timestamp))?;
        found.take().map(|(_, nanos)| nanos)
    }

    /// Handles the complete arrival of the frame with this timestamp.
    pub(crate) fn frame_complete<M: TimeCodeMetrics>(
        &mut self,
        timestamp: u32,
        arrived: Time,
        recorder: &mut Recorder,
    ) {
        let Some(sent) = self.take(timestamp) else {
            return;
        };
        recorder.count(&mut self.delivered, M::FRAMES_DELIVERED, 1);
        match self
            .wall_clock_origin
            .saturating_add(arrived.as_nanos())
            .checked_sub(sent)
        {
            Some(delay) => recorder.record(M::FRAME_DELAY, delay),
            None => recorder.add(M::TIME_CODES_AHEAD, 1),
        }
    }

    /// Handles a frame that the end of the stream truncated. The frame no longer counts as
    /// published, because its fate is unknown.
    pub(crate) fn frame_truncated<M: TimeCodeMetrics>(
        &mut self,
        timestamp: u32,
        recorder: &mut Recorder,
    ) {
        if self.take(timestamp).is_some() {
            // A frame from before an expected gap was not counted.
            self.published = self.published.saturating_sub(1);
            recorder.take_back(M::FRAMES_PUBLISHED, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use measure::Catalogue;

    use super::super::figures;
    use super::*;
    use crate::media::rtp::flow::{Clip, Faults, FlowSettings, Pacing, RtpFlow};
    use crate::media::rtp::metrics as m;
    use crate::media::rtp::{ReceiverConfig, RtpReceiver};
    use crate::mediagen::frame_rate::FrameRate;
    use crate::mediagen::video::{PictureForm, VideoSettings};
    use crate::metrics::{CLIENTS, ZAPPING};
    use crate::viewer::VIEWERS;
    use session::{Arrival, Flow};

    struct Own;
    figures!(Own);

    const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &m::RTP]);
    const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

    /// Sends `seconds` of coded video to a receiver with the given wall clock. `delay_of` returns
    /// the delay of each packet, or `None` if the packet is lost.
    fn watched(
        seconds: u64,
        wall_clock: Duration,
        mut delay_of: impl FnMut(u64) -> Option<Duration>,
    ) -> Recorder {
        let settings = VideoSettings {
            bits_per_second: 2_000_000,
            frame_rate: FrameRate::whole(25),
            gop: 50,
            mtu: 1400,
            form: PictureForm::default(),
        };
        let mut flow = RtpFlow::new(FlowSettings {
            clip: Arc::new(Clip::coded_video(&settings).expect("valid")),
            pacing: Pacing::AtOnce,
            ssrc: 7,
            first_seq: 65_500,
            first_timestamp: u32::MAX - 1000,
            length: Some(Duration::from_secs(seconds)),
            faults: Faults::default(),
            seed: 1,
            log: false,
        })
        .with_time_codes(WALL_CLOCK);
        let mut receiver = RtpReceiver::new(&ReceiverConfig {
            clock_rate: 90_000,
            payload_types: vec![96],
            playout_buffer: Duration::from_secs(1),
        })
        .with_time_codes(wall_clock);
        let mut recorder = Recorder::new(CATALOGUE);
        flow.start(Time::from_nanos(5_000_000_000));
        let mut number = 0;
        while let Some(due) = flow.next_due() {
            let packet = flow.next_packet(due).expect("it is due");
            if let Some(delay) = delay_of(number) {
                let bytes = [&packet.header[..], &packet.payload].concat();
                // Packet rings keep this many bytes.
                let kept = bytes.len().min(12 + 80);
                let arrival = Arrival {
                    at: due + delay,
                    bytes: &bytes[..kept],
                    length: bytes.len(),
                    overhead: 28,
                };
                receiver.packet(&arrival, &mut recorder);
            }
            number += 1;
        }
        receiver.finish(&mut recorder);
        recorder
    }

    fn counts(recorder: &Recorder) -> [u64; 3] {
        [
            m::FRAMES_PUBLISHED,
            m::FRAMES_DELIVERED,
            m::TIME_CODES_AHEAD,
        ]
        .map(|counter| recorder.counter(counter))
    }

    #[test]
    fn frame_delay_is_that_of_its_last_packet() {
        let delay = Duration::from_millis(30);
        let recorder = watched(4, WALL_CLOCK, |_| Some(delay));
        assert_eq!(counts(&recorder), [100, 100, 0]);
        let delays = recorder.histogram(m::FRAME_DELAY).expect("recorded");
        assert_eq!(delays.count(), 100);
        for delay in [delays.min(), delays.max()] {
            let delay = delay.expect("there are some");
            assert!(delay.abs_diff(30_000_000) < 100_000, "{delay}");
        }
    }

    #[test]
    fn frames_that_lost_any_packet_are_lost() {
        // A second (25 frames) is lost entirely, and then single packets are lost.
        let whole = watched(4, WALL_CLOCK, |number| {
            (!(200..400).contains(&number) && number % 97 != 50).then_some(Duration::ZERO)
        });
        let [published, delivered, ahead] = counts(&whole);
        assert_eq!((published, ahead), (100, 0));
        assert!((40..85).contains(&delivered), "{delivered}");
        assert_eq!(delivered, whole.counter(m::FRAMES));
    }

    #[test]
    fn frames_skipped_by_a_pause_are_not_missed() {
        let mut recorder = Recorder::new(CATALOGUE);
        let mut codes = TimeCodes::new(WALL_CLOCK);
        let mut come = |number: u32, codes: &mut TimeCodes| {
            let source = 7;
            let nanos = u64::from(number);
            let code = TimeCode {
                source,
                number,
                nanos,
            };
            codes.frame_code::<Own>(number * 3600, code, &mut recorder);
            recorder.counter(m::FRAMES_PUBLISHED)
        };
        assert_eq!(come(10, &mut codes), 1);
        assert_eq!(come(12, &mut codes), 3);
        codes.expect_gap();
        assert_eq!(come(500, &mut codes), 4);
        assert_eq!(come(502, &mut codes), 6);
    }

    #[test]
    fn frames_ahead_of_the_wall_clock_are_counted() {
        let behind = WALL_CLOCK - Duration::from_secs(1);
        let recorder = watched(1, behind, |_| Some(Duration::from_millis(1)));
        assert_eq!(counts(&recorder), [25, 25, 25]);
        assert!(recorder.histogram(m::FRAME_DELAY).is_none());
    }
}

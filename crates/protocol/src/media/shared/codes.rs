//! Time codes in the frames of one stream: how long each frame was on its way, and which never
//! came.

use std::time::Duration;

use measure::{Recorder, Time};

use super::Figures;
use mediagen::time_code::TimeCode;

/// How many frames may be open with their codes at once: more than frames are.
const OPEN: usize = 16;

/// Numbers that go up by more than this at once are those of a stream that began anew.
const AHEAD_MAX: u32 = 100_000;

/// The time codes of a stream.
#[derive(Debug)]
pub(crate) struct Codes {
    /// The wall clock when time began, in nanoseconds since 1970.
    began: u64,
    source: Option<u32>,
    highest: u32,
    /// Whether frames before the next that comes were not to come.
    breaks_off: bool,
    /// timestamp and time of the codes whose frames are not closed yet, and where the next is
    /// put.
    open: [Option<(u32, u64)>; OPEN],
    next: usize,
}

impl Codes {
    pub(crate) fn new(wall_clock: Duration) -> Codes {
        Codes {
            began: u64::try_from(wall_clock.as_nanos()).unwrap_or(u64::MAX),
            source: None,
            highest: 0,
            breaks_off: false,
            open: [None; OPEN],
            next: 0,
        }
    }

    /// Takes in the code of the frame with this timestamp.
    pub(crate) fn code<M: Figures>(
        &mut self,
        timestamp: u32,
        code: TimeCode,
        recorder: &mut Recorder,
    ) {
        let ahead = code.number.wrapping_sub(self.highest);
        if self.source != Some(code.source) {
            self.source = Some(code.source);
            self.begin::<M>(code.number, recorder);
        } else if (1..=AHEAD_MAX).contains(&ahead) {
            self.highest = code.number;
            let missed = std::mem::take(&mut self.breaks_off);
            recorder.add(M::FRAMES_PUBLISHED, if missed { 1 } else { ahead.into() });
        } else if (AHEAD_MAX..u32::MAX - AHEAD_MAX).contains(&ahead) {
            self.begin::<M>(code.number, recorder);
        } else {
            // One of before, out of its order, or once more.
            let known = self.open.iter().flatten();
            if known.clone().any(|&(other, _)| other == timestamp) {
                return;
            }
        }
        self.open[self.next] = Some((timestamp, code.nanos));
        self.next = (self.next + 1) % OPEN;
    }

    /// Frames up to the next that comes are not missed: the client had paused, or goes elsewhere.
    pub(crate) fn break_off(&mut self) {
        self.breaks_off = true;
    }

    fn begin<M: Figures>(&mut self, number: u32, recorder: &mut Recorder) {
        self.breaks_off = false;
        self.highest = number;
        recorder.add(M::FRAMES_PUBLISHED, 1);
    }

    fn take(&mut self, timestamp: u32) -> Option<u64> {
        let found = self
            .open
            .iter_mut()
            .find(|open| open.is_some_and(|(other, _)| other == timestamp))?;
        found.take().map(|(_, nanos)| nanos)
    }

    /// The frame with this timestamp has come whole.
    pub(crate) fn whole<M: Figures>(
        &mut self,
        timestamp: u32,
        arrived: Time,
        recorder: &mut Recorder,
    ) {
        let Some(sent) = self.take(timestamp) else {
            return;
        };
        recorder.add(M::FRAMES_DELIVERED, 1);
        match self
            .began
            .saturating_add(arrived.as_nanos())
            .checked_sub(sent)
        {
            Some(delay) => recorder.record(M::FRAME_DELAY, delay),
            None => recorder.add(M::TIME_CODES_AHEAD, 1),
        }
    }

    /// The frame with this timestamp was cut off by the end of the stream: nobody can say what
    /// became of it.
    pub(crate) fn cut_off<M: Figures>(&mut self, timestamp: u32, recorder: &mut Recorder) {
        if self.take(timestamp).is_some() {
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
    use crate::metrics::CLIENTS;
    use crate::session::Arrival;
    use mediagen::frame_rate::FrameRate;
    use mediagen::video::{PictureForm, VideoSettings};

    struct Own;
    figures!(Own);

    const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &m::RTP]);
    const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

    /// Sends `seconds` of coded video to a receiver whose wall clock differs, with what `way` makes
    /// of each packet: how long it takes, or nothing for a loss.
    fn watched(
        seconds: u64,
        wall_clock: Duration,
        mut way: impl FnMut(u64) -> Option<Duration>,
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
            if let Some(delay) = way(number) {
                let bytes = [&packet.header[..], &packet.payload].concat();
                // As much as a ring keeps.
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
    fn every_frames_delay_is_that_of_its_last_packet() {
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
    fn frames_that_lost_a_packet_or_all_are_lost() {
        // A second of 25 frames lost as a whole, and then single packets.
        let whole = watched(4, WALL_CLOCK, |number| {
            (!(200..400).contains(&number) && number % 97 != 50).then_some(Duration::ZERO)
        });
        let [published, delivered, ahead] = counts(&whole);
        assert_eq!((published, ahead), (100, 0));
        assert!((40..85).contains(&delivered), "{delivered}");
        assert_eq!(delivered, whole.counter(m::FRAMES));
    }

    #[test]
    fn what_a_pause_leaves_out_is_not_missed() {
        let mut recorder = Recorder::new(CATALOGUE);
        let mut codes = Codes::new(WALL_CLOCK);
        let mut come = |number: u32, codes: &mut Codes| {
            let source = 7;
            let nanos = u64::from(number);
            let code = TimeCode {
                source,
                number,
                nanos,
            };
            codes.code::<Own>(number * 3600, code, &mut recorder);
            recorder.counter(m::FRAMES_PUBLISHED)
        };
        assert_eq!(come(10, &mut codes), 1);
        assert_eq!(come(12, &mut codes), 3);
        codes.break_off();
        assert_eq!(come(500, &mut codes), 4);
        assert_eq!(come(502, &mut codes), 6);
    }

    #[test]
    fn clocks_that_differ_are_told_where_it_shows() {
        let behind = WALL_CLOCK - Duration::from_secs(1);
        let recorder = watched(1, behind, |_| Some(Duration::from_millis(1)));
        assert_eq!(counts(&recorder), [25, 25, 25]);
        assert!(recorder.histogram(m::FRAME_DELAY).is_none());
    }
}

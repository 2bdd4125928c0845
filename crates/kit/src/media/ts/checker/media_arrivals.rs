//! Arrivals of video and audio of the programme, each on its own: a stream whose packets continue
//! can show a frozen picture.

use std::fmt;
use std::time::Duration;

use measure::{Recorder, Time};

use super::tables::{Tables, VideoCoding};
use crate::media::shared::Arrivals;
use crate::media::silence;
use crate::media::ts::metrics as m;

/// Duration of a stream without the video or audio that its map names, or without a random-access
/// point, after which the viewer has failed.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Arrivals of one kind of media: the first packet of each PES packet.
#[derive(Debug, Default)]
struct KindArrivals {
    first: Option<Time>,
    arrivals: Arrivals,
    /// True if some of it was scrambled.
    scrambled: bool,
}

impl KindArrivals {
    #[inline]
    fn unit(&mut self, at: Time, scrambled: bool) {
        if self.first.is_none() {
            self.first = Some(at);
            self.arrivals.begin(at);
        }
        self.arrivals.packet(at);
        self.scrambled |= scrambled;
    }
}

/// A kind of media that did not arrive, or stopped, while the rest of its stream continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentMedia {
    /// `video` or `audio`.
    kind: &'static str,
    /// Duration of the stream without it.
    time: Duration,
    /// True if no packet of it arrived.
    never_arrived: bool,
}

impl SilentMedia {
    /// True if no packet of it arrived.
    pub fn never_arrived(&self) -> bool {
        self.never_arrived
    }
}

impl fmt::Display for SilentMedia {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, time) = (self.kind, self.time.as_secs_f64());
        match self.never_arrived {
            true => write!(
                out,
                "no {kind} in {time:.3} s, although the programme map names it"
            ),
            false => write!(
                out,
                "no {kind} for {time:.3} s, while the rest of the stream arrived"
            ),
        }
    }
}

/// Video and audio of a programme.
#[derive(Debug, Default)]
pub(super) struct MediaArrivals {
    video: KindArrivals,
    audio: KindArrivals,
    /// Arrival time of the first programme map.
    since: Option<Time>,
}

impl MediaArrivals {
    /// Records the arrival of the programme map.
    pub(super) fn map_arrived(&mut self, at: Time) {
        self.since.get_or_insert(at);
    }

    /// Records the start of a PES packet or a section.
    #[inline]
    pub(super) fn unit(&mut self, tables: &Tables, pid: u16, at: Time, scrambled: bool) {
        if tables.video().is_some_and(|(own, _)| own == pid) {
            self.video.unit(at, scrambled);
        } else if tables.audio_pids.contains(&pid) {
            self.audio.unit(at, scrambled);
        }
    }

    /// Returns the kinds of media in the map that were silent, or missing, at the `last` packet of
    /// the stream.
    pub(super) fn silent(&self, tables: &Tables, last: Time) -> impl Iterator<Item = SilentMedia> {
        let since = self.since;
        let video = tables.video().map(|_| ("video", &self.video));
        let audio = (!tables.audio_pids.is_empty()).then_some(("audio", &self.audio));
        let kinds = [video, audio].into_iter().flatten();
        kinds.filter_map(move |(name, kind)| {
            let gap = kind.arrivals.longest_gap();
            let (from, bound) = match kind.first {
                None => (since?, SILENCE_MAX),
                Some(first) => {
                    let own = kind.arrivals.last();
                    (own, silence::bound(own.since(first), gap, Duration::ZERO))
                }
            };
            let time = last.since(from);
            (time >= bound).then_some(SilentMedia {
                kind: name,
                time,
                never_arrived: kind.first.is_none(),
            })
        })
    }

    /// Duration of the stream without a random-access point, if its map names readable video.
    /// `None` if the duration is too short, or random access cannot be detected.
    pub(super) fn without_picture(&self, tables: &Tables, last: Time) -> Option<Duration> {
        let (_, coding) = tables.video()?;
        let time = last.since(self.since?);
        let is_known = coding != VideoCoding::Other && !self.video.scrambled;
        (is_known && time >= SILENCE_MAX).then_some(time)
    }

    /// Records the gaps at the end of the stream.
    pub(super) fn finish(&self, recorder: &mut Recorder) {
        for (metric, kind) in [(m::VIDEO_GAP, &self.video), (m::AUDIO_GAP, &self.audio)] {
            if kind.first.is_some() {
                recorder.record_duration(metric, kind.arrivals.longest_gap());
            }
        }
    }

    /// Counts the gap up to `until`, if the stream should have continued.
    pub(super) fn silent_until(&mut self, until: Time) {
        for kind in [&mut self.video, &mut self.audio] {
            if kind.first.is_some() {
                kind.arrivals.silent_until(until);
            }
        }
    }
}

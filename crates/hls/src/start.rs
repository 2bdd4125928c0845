//! Times at which the media of segments starts, as the media has them.

use kit::media::ts::checker::TimeStamps;

/// Unit and end of presentation time stamps of transport streams (ISO/IEC 13818-1, 2.4.3.7).
const STAMP_HZ: u32 = 90_000;
const STAMP_WRAP: u64 = 1 << 33;

/// Time at which the media of a body starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Time at which the first picture or sample is decoded, and shown.
    ticks: [u64; 2],
    /// Ticks per second.
    scale: u32,
    /// Number of ticks after which the count begins again at zero.
    wrap: Option<u64>,
    /// Number of its track; of transport streams, 1 for video and 0 for another kind.
    track: u32,
    /// True for audio of a transport stream, which some servers do not cut at the stated time.
    pub(crate) is_of_audio: bool,
}

impl Start {
    /// Creates the start of a track with this time scale.
    pub(crate) fn new(ticks: [u64; 2], scale: u32, track: u32) -> Start {
        Start {
            ticks,
            scale,
            wrap: None,
            track,
            is_of_audio: false,
        }
    }

    /// Creates the start at the time stamps of a transport stream.
    pub(crate) fn of_stamps(stamps: TimeStamps) -> Start {
        Start {
            ticks: [stamps.decoding, stamps.presentation],
            scale: STAMP_HZ,
            wrap: Some(STAMP_WRAP),
            track: stamps.is_picture.into(),
            is_of_audio: !stamps.is_picture,
        }
    }

    /// Returns the seconds from `before` to this start, by the times of decoding and of
    /// presentation: negative if this start lies before the other, `None` if their tracks or units
    /// differ.
    pub(crate) fn seconds_since(&self, before: Start) -> Option<[f64; 2]> {
        let unit = |start: &Start| (start.scale, start.wrap, start.track);
        let is_comparable = unit(self) == unit(&before) && self.scale > 0;
        is_comparable.then(|| {
            [0, 1].map(|kind| {
                let difference = i128::from(self.ticks[kind]) - i128::from(before.ticks[kind]);
                let ticks = match self.wrap.map(i128::from) {
                    Some(wrap) => (difference + wrap / 2).rem_euclid(wrap) - wrap / 2,
                    None => difference,
                };
                ticks as f64 / f64::from(self.scale)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_compared_in_their_unit_and_over_the_wrap() {
        let stamp = |ticks| {
            Start::of_stamps(TimeStamps {
                presentation: (ticks + 9000) % STAMP_WRAP,
                decoding: ticks,
                is_picture: true,
            })
        };
        assert_eq!(stamp(90_007).seconds_since(stamp(7)), Some([1.0; 2]));
        assert_eq!(stamp(7).seconds_since(stamp(90_007)), Some([-1.0; 2]));
        let late = stamp(STAMP_WRAP - 45_000);
        assert_eq!(stamp(45_000).seconds_since(late), Some([1.0; 2]));
        assert_eq!(late.seconds_since(stamp(45_000)), Some([-1.0; 2]));
        let sample = |ticks, scale| Start::new([ticks; 2], scale, 1);
        let last = sample(u64::MAX, 1000);
        assert_eq!(
            last.seconds_since(sample(u64::MAX - 1000, 1000)),
            Some([1.0; 2])
        );
        assert_eq!(
            sample(0, 1000).seconds_since(sample(1000, 1000)),
            Some([-1.0; 2])
        );
        assert_eq!(sample(2000, 1000).seconds_since(sample(0, 2000)), None);
        assert_eq!(
            sample(2000, 1000).seconds_since(Start::new([0; 2], 1000, 2)),
            None
        );
        assert_eq!(sample(2000, STAMP_HZ).seconds_since(stamp(0)), None);
        let shown = Start::new([2000, 2500], 1000, 1);
        assert_eq!(shown.seconds_since(sample(0, 1000)), Some([2.0, 2.5]));
    }
}

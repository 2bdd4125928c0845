//! Output of a live encoder at any time: pictures, segments and parts, computed from the number
//! of each.

use std::ops::Range;
use std::time::Duration;

use kit::mediagen::frame_rate::FrameRate;
use measure::Time;

use crate::playlist::Place;

/// The schedule of the encoder. It began before the server, so that a playlist is full at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) frame_rate: FrameRate,
    /// Pictures of a segment.
    pub(super) segment: u64,
    /// Pictures of a part; `None` without parts. The last part of a segment may have fewer.
    pub(super) part: Option<u64>,
    /// Number of segments that were complete when the server began.
    pub(super) earlier: u64,
    /// Number of all segments; `None` if there is no end.
    pub(super) end: Option<u64>,
    /// Wall-clock time since 1970 at [`Time::ZERO`].
    pub(super) wall_clock: Duration,
}

impl Timeline {
    /// Time from the first picture to the end of the picture before `picture`.
    fn offset(&self, picture: u64) -> Duration {
        Duration::from_nanos(self.frame_rate.nanos(picture))
    }

    /// Number of pictures that are complete at `now`.
    fn pictures_at(&self, now: Time) -> u64 {
        let since = now.since(Time::ZERO) + self.offset(self.earlier * self.segment);
        let begun = self.frame_rate.frames_within(since);
        // The first picture that begins later may begin now: all before it are complete.
        let complete = match self.offset(begun) <= since {
            true => begun,
            false => begun.saturating_sub(1),
        };
        match self.end {
            Some(end) => complete.min(end * self.segment),
            None => complete,
        }
    }

    /// Number of parts of a segment.
    pub(super) fn parts_of_segment(&self) -> u32 {
        self.part.map_or(1, |part| self.segment.div_ceil(part)) as u32
    }

    /// Pictures of a segment.
    pub(super) fn pictures_of(&self, sequence: u64) -> Range<u64> {
        sequence * self.segment..(sequence + 1) * self.segment
    }

    /// Pictures of part `part` of segment `sequence`.
    pub(super) fn pictures_of_part(&self, place: Place) -> Range<u64> {
        let of_segment = self.pictures_of(place.sequence);
        let length = self.part.unwrap_or(self.segment);
        let begin = of_segment.start + length * u64::from(place.part);
        begin.min(of_segment.end)..(begin + length).min(of_segment.end)
    }

    /// Place of the segment or part that is not complete at `now`.
    pub(super) fn end_at(&self, now: Time) -> Place {
        let complete = self.pictures_at(now);
        Place {
            sequence: complete / self.segment,
            part: match self.part {
                Some(part) => (complete % self.segment / part) as u32,
                None => 0,
            },
        }
    }

    /// Time when all before this place is complete; not before [`Time::ZERO`].
    pub(super) fn complete_at(&self, place: Place) -> Time {
        let picture = self.pictures_of_part(place).start;
        let before = self.offset(self.earlier * self.segment);
        Time::ZERO + self.offset(picture).saturating_sub(before)
    }

    /// True if the media has ended at `now`.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.end
            .is_some_and(|end| self.pictures_at(now) >= end * self.segment)
    }

    /// Duration of these pictures.
    pub(super) fn duration(&self, pictures: &Range<u64>) -> Duration {
        self.offset(pictures.end)
            .saturating_sub(self.offset(pictures.start))
    }

    /// Date at which a picture was taken, since 1970.
    pub(super) fn date(&self, picture: u64) -> Duration {
        let before = self.offset(self.earlier * self.segment);
        (self.wall_clock + self.offset(picture)).saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> Timeline {
        Timeline {
            frame_rate: FrameRate::whole(25),
            segment: 50,
            part: Some(8),
            earlier: 10,
            end: Some(20),
            wall_clock: Duration::from_secs(1000),
        }
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    fn place(sequence: u64, part: u32) -> Place {
        Place { sequence, part }
    }

    #[test]
    fn places_are_complete_when_their_time_has_come() {
        let timeline = timeline();
        assert_eq!(timeline.parts_of_segment(), 7);
        assert_eq!(timeline.pictures_of_part(place(10, 0)), 500..508);
        // The last part has two pictures.
        assert_eq!(timeline.pictures_of_part(place(10, 6)), 548..550);
        for (time, end) in [
            (0, place(10, 0)),
            (319, place(10, 0)),
            (320, place(10, 1)),
            (1999, place(10, 6)),
            (2000, place(11, 0)),
            (20_000, place(20, 0)),
            (90_000, place(20, 0)),
        ] {
            assert_eq!(timeline.end_at(at(time)), end, "{time}");
            assert_eq!(timeline.is_over(at(time)), time >= 20_000);
        }
        for (next, time) in [(place(10, 1), 320), (place(11, 0), 2000), (place(3, 2), 0)] {
            assert_eq!(timeline.complete_at(next), at(time));
        }
    }

    #[test]
    fn every_part_is_complete_exactly_when_it_ends() {
        for rate in ["25", "30000/1001", "24", "7/3"] {
            let timeline = Timeline {
                frame_rate: rate.parse().expect("it is valid"),
                end: None,
                ..timeline()
            };
            for sequence in 10..30 {
                for part in 1..timeline.parts_of_segment() {
                    let next = place(sequence, part);
                    let time = timeline.complete_at(next);
                    assert_eq!(timeline.end_at(time), next);
                    let before = at(0) + time.since(at(0)).saturating_sub(Duration::from_nanos(1));
                    assert!(timeline.end_at(before) < next);
                }
            }
        }
    }

    #[test]
    fn pictures_have_the_date_at_which_they_were_taken() {
        // The encoder began 20 s before the server.
        let timeline = timeline();
        assert_eq!(timeline.date(500), Duration::from_secs(1000));
        assert_eq!(timeline.date(0), Duration::from_secs(980));
        assert_eq!(timeline.duration(&(500..508)), Duration::from_millis(320));
    }
}

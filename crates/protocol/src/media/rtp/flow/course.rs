//! Where in the media a flow goes, and how fast (RFC 2326, 12.29, 12.34 and 12.35).

use std::time::Duration;

use measure::Time;

use super::{RtpFlow, State, nanos, ticks};

/// What is to be sent from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    /// From which media time: the first frame at or after it. `None` for where the flow is.
    pub from: Option<Duration>,
    /// Up to which media time; `None` for the end, or backwards the beginning.
    pub until: Option<Duration>,
    /// How much media passes in a second of play; backwards where it is negative, never 0. The bit
    /// rate and the steps of the timestamps stay (RFC 2326, 12.34 and B): of faster media, less is
    /// sent.
    pub scale: f64,
    /// How many seconds of play are sent in a second; above 0. Bit rate and timestamps go that much
    /// faster (RFC 2326, 12.35).
    pub speed: f64,
}

impl Course {
    /// As usual, from where the flow is to the end.
    pub const ON: Course = Course {
        from: None,
        until: None,
        scale: 1.0,
        speed: 1.0,
    };
}

/// How media time follows from the schedule's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    pub(super) scale: f64,
    pub(super) speed: f64,
    /// A media time, and when the schedule is there, in nanoseconds.
    media: u64,
    at: u64,
}

impl Pace {
    pub(super) const USUAL: Pace = Pace {
        scale: 1.0,
        speed: 1.0,
        media: 0,
        at: 0,
    };

    /// The media time at a time of the schedule.
    fn media_at(&self, at: u64) -> u64 {
        let moved = times(at.saturating_sub(self.at), self.scale.abs());
        match self.scale < 0.0 {
            true => self.media.saturating_sub(moved),
            false => self.media.saturating_add(moved),
        }
    }
}

/// What is sent without a break: from a start to the next pause. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Segment {
    /// When it began.
    since: Time,
    /// The schedule's time with which it began.
    from: u64,
    /// How long the stream had played then, by its timestamps.
    played: u64,
    /// RTP timestamp with which it began, less the schedule's ticks there.
    pub(super) base: u32,
    speed: f64,
    /// Its inverse: no packet is to wait for a division.
    stretch: f64,
}

impl Segment {
    /// When what has that time in the schedule is due.
    #[inline]
    pub(super) fn due(&self, at: u64) -> Time {
        // Within a segment the schedule never goes back.
        self.since + Duration::from_nanos(times(at.saturating_sub(self.from), self.stretch))
    }
}

/// So many times a length of time; exact where that changes nothing.
#[inline]
fn times(nanos: u64, factor: f64) -> u64 {
    match factor == 1.0 {
        true => nanos,
        // What is too long for it ends at the longest time there is.
        false => (nanos as f64 * factor) as u64,
    }
}

impl RtpFlow {
    /// What a start at that time begins: with the next packet, and with timestamps that have gone
    /// on as time has, or farther where more was sent, so that they neither jump nor go back
    /// wherever in the media it is (RFC 2326, B).
    pub(super) fn segment(&self, at: Time) -> Segment {
        let played = self.played(at);
        // Frames that are shown later than they are sent have timestamps that are ahead, the first
        // of them too.
        let ticks_here = match self.clip.times {
            None => self.schedule.ticks,
            Some(_) => ticks(Duration::from_nanos(self.schedule.at), self.clip.clock_rate),
        };
        Segment {
            since: at,
            from: self.schedule.at,
            played,
            base: self
                .first_timestamp
                .wrapping_add(ticks(Duration::from_nanos(played), self.clip.clock_rate))
                .wrapping_sub(ticks_here),
            speed: self.pace.speed,
            stretch: 1.0 / self.pace.speed,
        }
    }

    /// How long the stream has played at that time, by its timestamps, in nanoseconds.
    pub(super) fn played(&self, at: Time) -> u64 {
        match self.state {
            State::Idle => 0,
            State::Running(segment) => {
                let since = nanos(at.since(segment.since));
                segment.played.saturating_add(times(since, segment.speed))
            }
            State::Paused { played } => nanos(at.since(self.began)).max(played),
        }
    }

    /// How long the stream will have played with the next packet, where a segment is left there.
    pub(super) fn played_to_next(&self, segment: Segment) -> u64 {
        let sent = self.schedule.at.saturating_sub(segment.from);
        segment.played.saturating_add(sent)
    }

    /// Goes elsewhere in the media, or on otherwise, no farther than the stream's end. Sequence
    /// numbers go on. What was being sent pauses.
    pub fn direct(&mut self, course: Course) {
        self.pause();
        let mut media = nanos(self.position());
        let clip = &self.clip;
        let schedule = &mut self.schedule;
        if let Some(from) = course.from {
            let frame = clip.frames_within(from);
            let in_loop = frame % u64::from(clip.frames);
            schedule.frames_before = frame - in_loop;
            schedule.place = clip
                .packets
                .partition_point(|packet| u64::from(packet.frame) < in_loop);
            let packets = clip.packets.len() as u64;
            let place = schedule.place as u64;
            self.shift = (place + packets - schedule.number % packets) % packets;
            schedule.enter(frame, clip, self.pacing);
            media = schedule.at;
        }
        let until = match (course.until, self.length) {
            (Some(until), Some(length)) => Some(until.min(length)),
            (until, length) => until.or(length),
        };
        let left = match course.scale < 0.0 {
            true => Some(media.saturating_sub(course.until.map_or(0, nanos))),
            false => until.map(|until| nanos(until).saturating_sub(media)),
        };
        schedule.frames_end = left.map_or(u64::MAX, |left| {
            let end = times(left, 1.0 / course.scale.abs()).saturating_add(schedule.at);
            clip.frames_within(Duration::from_nanos(end))
        });
        self.pace = Pace {
            scale: course.scale,
            speed: course.speed,
            media,
            at: schedule.at,
        };
    }

    /// `Scale` and `Speed` of what it sends.
    pub fn pace(&self) -> (f64, f64) {
        (self.pace.scale, self.pace.speed)
    }

    /// Media time of the next packet: where a pause stands, or how much has been played.
    pub fn position(&self) -> Duration {
        Duration::from_nanos(self.pace.media_at(self.schedule.at))
    }

    /// The RTP timestamp that belongs to a time (RFC 3550, 6.4.1).
    pub fn timestamp_at(&self, at: Time) -> u32 {
        let played = Duration::from_nanos(self.played(at));
        self.first_timestamp
            .wrapping_add(ticks(played, self.clip.clock_rate))
    }
}

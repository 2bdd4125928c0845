//! Position and pace of a flow (RFC 2326, 12.29, 12.34 and 12.35).

use std::time::Duration;

use measure::Time;

use super::{RtpFlow, State, nanos, ticks};

/// Position and pace to play with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playback {
    /// Start in media time: the first frame at or after it. `None` for the current position.
    pub start: Option<Duration>,
    /// End in media time; `None` for the end of the media, or its beginning if it is played
    /// backwards.
    pub end: Option<Duration>,
    /// Media time per second of play; negative for backwards, never 0. The bit rate and the
    /// timestamp steps do not change (RFC 2326, 12.34 and B): less is sent of media that is played
    /// faster.
    pub scale: f64,
    /// Seconds of play that are sent per second; above 0. Multiplies the bit rate and the pace of
    /// the timestamps (RFC 2326, 12.35).
    pub speed: f64,
}

impl Playback {
    /// Normal pace, from the current position to the end.
    pub const CONTINUE: Playback = Playback {
        start: None,
        end: None,
        scale: 1.0,
        speed: 1.0,
    };
}

/// Relation between schedule time and media time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MediaPace {
    pub(super) scale: f64,
    pub(super) speed: f64,
    /// A media time, and the schedule time that corresponds to it, in nanoseconds.
    media: u64,
    at: u64,
}

impl MediaPace {
    pub(super) const NORMAL: MediaPace = MediaPace {
        scale: 1.0,
        speed: 1.0,
        media: 0,
        at: 0,
    };

    /// Returns the media time at a schedule time.
    fn media_at(&self, at: u64) -> u64 {
        let moved = scale_nanos(at.saturating_sub(self.at), self.scale.abs());
        match self.scale < 0.0 {
            true => self.media.saturating_sub(moved),
            false => self.media.saturating_add(moved),
        }
    }
}

/// A period of uninterrupted sending: from a start to the next pause. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SendingPeriod {
    since: Time,
    /// Schedule time at the start.
    from: u64,
    /// Duration of play before the start, by the timestamps.
    played: u64,
    /// RTP timestamp at the start, less the ticks of the schedule there.
    pub(super) base: u32,
    speed: f64,
    /// Inverse of `speed`: saves a division per packet.
    stretch: f64,
}

impl SendingPeriod {
    /// Returns the due time that corresponds to a schedule time.
    #[inline]
    pub(super) fn due(&self, at: u64) -> Time {
        // The schedule never goes back within a period.
        self.since + Duration::from_nanos(scale_nanos(at.saturating_sub(self.from), self.stretch))
    }
}

/// Multiplies a time by a factor; exact if the factor is 1.
#[inline]
fn scale_nanos(nanos: u64, factor: f64) -> u64 {
    match factor == 1.0 {
        true => nanos,
        // The cast saturates.
        false => (nanos as f64 * factor) as u64,
    }
}

impl RtpFlow {
    /// Returns the period that a start at `at` begins. Its first packet is the next one of the
    /// schedule. Its timestamps have advanced with time, or further if more was sent, so that they
    /// neither jump nor go back wherever in the media the flow continues (RFC 2326, B).
    pub(super) fn period_from(&self, at: Time) -> SendingPeriod {
        let played = self.played(at);
        // Frames that are shown later than they are sent have timestamps ahead of their send time,
        // including the first frame.
        let ticks_here = match self.clip.times {
            None => self.schedule.ticks,
            Some(_) => ticks(
                Duration::from_nanos(self.schedule.frame_nanos),
                self.clip.clock_rate,
            ),
        };
        SendingPeriod {
            since: at,
            from: self.schedule.frame_nanos,
            played,
            base: self
                .first_timestamp
                .wrapping_add(ticks(Duration::from_nanos(played), self.clip.clock_rate))
                .wrapping_sub(ticks_here),
            speed: self.pace.speed,
            stretch: 1.0 / self.pace.speed,
        }
    }

    /// Duration of play at `at`, by the timestamps, in nanoseconds.
    pub(super) fn played(&self, at: Time) -> u64 {
        match self.state {
            State::Idle => 0,
            State::Running(period) => {
                let since = nanos(at.since(period.since));
                period
                    .played
                    .saturating_add(scale_nanos(since, period.speed))
            }
            State::Paused { played } => nanos(at.since(self.began)).max(played),
        }
    }

    /// Duration of play at the next packet, if the period ends there.
    pub(super) fn played_to_next(&self, period: SendingPeriod) -> u64 {
        let sent = self.schedule.frame_nanos.saturating_sub(period.from);
        period.played.saturating_add(sent)
    }

    /// Changes position and pace, within the length of the stream. Sequence numbers continue. The
    /// flow pauses until the next start.
    pub fn set_playback(&mut self, playback: Playback) {
        self.pause();
        let mut media = nanos(self.position());
        let clip = &self.clip;
        let schedule = &mut self.schedule;
        if let Some(from) = playback.start {
            let frame = clip.frames_within(from);
            let in_loop = frame % u64::from(clip.frames);
            schedule.frames_before = frame - in_loop;
            schedule.index = clip
                .packets
                .partition_point(|packet| u64::from(packet.frame) < in_loop);
            let packets = clip.packets.len() as u64;
            let index = schedule.index as u64;
            self.clip_offset = (index + packets - schedule.number % packets) % packets;
            schedule.begin_frame(frame, clip, self.pacing);
            media = schedule.frame_nanos;
        }
        let until = match (playback.end, self.length) {
            (Some(until), Some(length)) => Some(until.min(length)),
            (until, length) => until.or(length),
        };
        let left = match playback.scale < 0.0 {
            true => Some(media.saturating_sub(playback.end.map_or(0, nanos))),
            false => until.map(|until| nanos(until).saturating_sub(media)),
        };
        schedule.frames_end = left.map_or(u64::MAX, |left| {
            let end =
                scale_nanos(left, 1.0 / playback.scale.abs()).saturating_add(schedule.frame_nanos);
            clip.frames_within(Duration::from_nanos(end))
        });
        self.pace = MediaPace {
            scale: playback.scale,
            speed: playback.speed,
            media,
            at: schedule.frame_nanos,
        };
    }

    /// `Scale` and `Speed` of the flow.
    pub fn scale_and_speed(&self) -> (f64, f64) {
        (self.pace.scale, self.pace.speed)
    }

    /// Media time of the next packet: the position of a pause, or the time played so far.
    pub fn position(&self) -> Duration {
        Duration::from_nanos(self.pace.media_at(self.schedule.frame_nanos))
    }

    /// RTP timestamp that corresponds to a time (RFC 3550, 6.4.1).
    pub fn timestamp_at(&self, at: Time) -> u32 {
        let played = Duration::from_nanos(self.played(at));
        self.first_timestamp
            .wrapping_add(ticks(played, self.clip.clock_rate))
    }
}

//! Model of playback: the buffer, the stalls, and when each moment of the media is shown.

use std::time::Duration;

use measure::Time;

/// Playback of media that arrives in segments. Positions in the media count from its first segment.
#[derive(Debug)]
pub(crate) struct Playback {
    /// Media that must be buffered before playback begins, and before it goes on after a stall.
    buffer: Duration,
    /// Position at which playback begins.
    start: Duration,
    state: State,
    /// End of the media that has arrived.
    end: Duration,
    stalled: Duration,
    /// Position up to which [`take_shown`](Playback::take_shown) has counted.
    counted: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No media has been shown.
    Before,
    /// At `since`, `position` was shown.
    Playing { since: Time, position: Duration },
    /// `position` has been shown since this time.
    Stalled { since: Time, position: Duration },
}

/// Effects of an arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Playback has begun.
    pub(crate) begins: bool,
    /// A stall of this duration has ended.
    pub(crate) stalled: Option<Duration>,
}

impl Playback {
    pub(crate) fn new(buffer: Duration) -> Playback {
        Playback {
            buffer,
            start: Duration::ZERO,
            state: State::Before,
            end: Duration::ZERO,
            stalled: Duration::ZERO,
            counted: Duration::ZERO,
        }
    }

    /// Lets playback begin at this position. What comes before is decoded, but not shown.
    pub(crate) fn start_at(&mut self, position: Duration) {
        self.start = position;
    }

    /// True if `position` is not before the beginning of playback.
    pub(crate) fn shows(&self, position: Duration) -> bool {
        position >= self.start
    }

    /// Takes media up to `end`, which was complete at `now`. With `is_last` no more follows, and
    /// playback waits for no more.
    pub(crate) fn extend(&mut self, now: Time, end: Duration, is_last: bool) -> Change {
        let mut change = Change::default();
        self.run_dry(now);
        self.end = self.end.max(end);
        let position = match self.state {
            State::Playing { .. } => return change,
            State::Before => {
                // The media has ended before that position.
                if is_last && self.start >= self.end {
                    self.start = Duration::ZERO;
                }
                self.start
            }
            State::Stalled { position, .. } => position,
        };
        let ahead = self.end.saturating_sub(position);
        if ahead.is_zero() || (ahead < self.buffer && !is_last) {
            return change;
        }
        match self.state {
            State::Stalled { since, .. } => {
                let stalled = now.since(since);
                self.stalled += stalled;
                change.stalled = Some(stalled);
            }
            _ => {
                change.begins = true;
                self.counted = self.start;
            }
        }
        let since = now;
        self.state = State::Playing { since, position };
        change
    }

    /// Lets the picture stand still if the buffer was empty before `now`.
    fn run_dry(&mut self, now: Time) {
        if let Some(dry) = self.dry_at().filter(|dry| *dry < now) {
            self.state = State::Stalled {
                since: dry,
                position: self.end,
            };
        }
    }

    /// Returns when all that has arrived will have been shown; `None` unless it plays.
    pub(crate) fn dry_at(&self) -> Option<Time> {
        self.shown_at(self.end)
    }

    /// Returns when `position` is shown, if nothing stalls before; `None` unless it plays.
    pub(crate) fn shown_at(&self, position: Duration) -> Option<Time> {
        match self.state {
            State::Playing {
                since,
                position: from,
            } => Some(since + position.saturating_sub(from)),
            State::Before | State::Stalled { .. } => None,
        }
    }

    /// Returns when `position` is shown; `None` unless playback runs and the media up to there has
    /// arrived.
    pub(crate) fn reached_at(&self, position: Duration) -> Option<Time> {
        self.shown_at(position).filter(|_| position <= self.end)
    }

    /// Returns since when the picture stands still at `now`; `None` if it does not.
    pub(crate) fn stands_since(&self, now: Time) -> Option<Time> {
        match self.state {
            State::Before => None,
            State::Playing { .. } => self.dry_at().filter(|dry| *dry < now),
            State::Stalled { since, .. } => Some(since),
        }
    }

    /// Position that is shown at `now`, and whether playback waits for media there.
    pub(crate) fn position(&self, now: Time) -> (Duration, bool) {
        match self.state {
            State::Before => (self.start, true),
            State::Stalled { position, .. } => (position, true),
            State::Playing { since, position } => {
                let shown = position + now.since(since);
                (shown.min(self.end), shown >= self.end)
            }
        }
    }

    /// Ends playback at `now`. Returns the duration of the stall that it ended, if any. With
    /// `is_over` all media has been shown, so that an empty buffer is no stall.
    pub(crate) fn finish(&mut self, now: Time, is_over: bool) -> Option<Duration> {
        if is_over {
            return None;
        }
        self.run_dry(now);
        let State::Stalled { since, .. } = self.state else {
            return None;
        };
        let stalled = now.since(since);
        self.stalled += stalled;
        Some(stalled)
    }

    /// Returns how much media was shown since the last call.
    pub(crate) fn take_shown(&mut self, now: Time) -> Duration {
        let (position, _) = self.position(now);
        let before = std::mem::replace(&mut self.counted, position);
        match self.state {
            State::Before => Duration::ZERO,
            State::Playing { .. } | State::Stalled { .. } => position.saturating_sub(before),
        }
    }

    /// True if playback has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.state != State::Before
    }

    /// Total duration of the stalls that have ended.
    pub(crate) fn stalled(&self) -> Duration {
        self.stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    #[test]
    fn playback_stalls_from_the_end_of_the_buffer_to_the_next_segment() {
        let mut playback = Playback::new(Duration::ZERO);
        assert!(playback.extend(at(500), 2 * SECOND, false).begins);
        assert_eq!(playback.dry_at(), Some(at(2500)));
        assert_eq!(
            playback.extend(at(2400), 4 * SECOND, false),
            Change::default()
        );
        assert_eq!(
            playback.position(at(3000)),
            (Duration::from_millis(2500), false)
        );
        assert_eq!(playback.position(at(4500)), (4 * SECOND, true));
        assert_eq!(playback.reached_at(4 * SECOND), Some(at(4500)));
        assert_eq!(playback.reached_at(5 * SECOND), None);
        // Dry at 4.5 s, and the next segment is complete at 5.25 s.
        let change = playback.extend(at(5250), 6 * SECOND, false);
        assert_eq!(change.stalled, Some(Duration::from_millis(750)));
        assert_eq!(playback.shown_at(5 * SECOND), Some(at(6250)));
        assert_eq!(playback.finish(at(7000), false), None);
        assert_eq!(playback.stalled(), Duration::from_millis(750));
    }

    #[test]
    fn shown_media_and_stalls_fill_the_time_since_playback_began() {
        let mut playback = Playback::new(Duration::ZERO);
        playback.start_at(SECOND);
        assert_eq!(playback.take_shown(at(400)), Duration::ZERO);
        assert!(playback.extend(at(500), 3 * SECOND, false).begins);
        // The media arrived 100 ms ago. Playback stalls at 2.5 s, and goes on at 4 s.
        let mut shown = playback.take_shown(at(600));
        assert_eq!(shown, Duration::from_millis(100));
        shown += playback.take_shown(at(3000));
        let stalled = playback.extend(at(4000), 8 * SECOND, false).stalled;
        let stalled = stalled.expect("it stood still");
        shown += playback.take_shown(at(6000));
        assert_eq!((shown, stalled), (4 * SECOND, SECOND * 3 / 2));
        assert_eq!(shown + stalled, Duration::from_millis(6000 - 500));
    }

    #[test]
    fn playback_waits_for_its_buffer_unless_the_media_is_shorter() {
        let mut playback = Playback::new(3 * SECOND);
        assert!(!playback.extend(at(0), 2 * SECOND, false).begins);
        assert!(playback.extend(at(100), 4 * SECOND, false).begins);
        // After a stall it waits for 3 s again.
        assert_eq!(playback.extend(at(5100), 6 * SECOND, false).stalled, None);
        let change = playback.extend(at(6100), 8 * SECOND, false);
        assert_eq!(change.stalled, Some(2 * SECOND));
        let mut short = Playback::new(3 * SECOND);
        assert!(short.extend(at(0), 2 * SECOND, true).begins);
    }

    #[test]
    fn playback_begins_within_the_media() {
        let mut playback = Playback::new(SECOND);
        playback.start_at(3 * SECOND);
        assert_eq!(playback.position(at(0)), (3 * SECOND, true));
        for end in [2, 3] {
            assert!(!playback.extend(at(100), end * SECOND, false).begins);
        }
        assert!(playback.extend(at(500), 4 * SECOND, false).begins);
        assert_eq!(playback.dry_at(), Some(at(1500)));
        assert!(playback.shows(3 * SECOND) && !playback.shows(2 * SECOND));
        let mut short = Playback::new(SECOND);
        short.start_at(3 * SECOND);
        assert!(short.extend(at(0), 3 * SECOND, true).begins);
        assert_eq!(short.dry_at(), Some(at(3000)));
    }

    #[test]
    fn stall_at_the_end_counts_unless_the_media_is_over() {
        for is_over in [false, true] {
            let mut playback = Playback::new(Duration::ZERO);
            playback.extend(at(0), SECOND, false);
            let stalled = playback.finish(at(1500), is_over);
            assert_eq!(stalled.is_some(), !is_over);
        }
    }
}

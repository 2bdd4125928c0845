//! Failed requests of a track, and further attempts.

use std::time::Duration;

use measure::Time;

use super::Lane;
use crate::connection::Refusal;

/// Number of failures in a row after which a playlist or the segments of a track count as gone.
const FAILURES_MAX: u32 = 3;

/// Number of failures in a row after which the segments of a track count as gone, however short
/// they are.
const FAILURES_MOST: u32 = 1000;

/// Failures in a row, and the attempts to get the next piece.
#[derive(Debug, Default)]
pub(in crate::client) struct Attempts {
    /// Failures in a row of playlists, and of media.
    failures: [u32; 2],
    /// Duration of the media whose requests have failed in a row.
    failed: Duration,
    /// The next piece, if a request for it has failed and is repeated.
    next: Option<NextAttempt>,
}

/// Attempts to get the next piece.
#[derive(Debug)]
struct NextAttempt {
    /// Number of attempts that were planned after the first.
    count: u32,
    /// Time of the next one; `None` once it has come.
    at: Option<Time>,
    /// True if that time has come, and nothing was requested since.
    is_due: bool,
    /// Time of the first request for the piece itself.
    since: Option<Time>,
    /// Reason for the last failure.
    refusal: Refusal,
}

impl Attempts {
    /// Counts a failure of this much media, or of a playlist. Returns `true` if what is requested
    /// counts as gone.
    pub(super) fn count_failure(&mut self, lane: Lane, media: Duration, target: Duration) -> bool {
        let failures = &mut self.failures[lane as usize];
        *failures += 1;
        let are_many = *failures >= FAILURES_MAX;
        match lane {
            Lane::Playlists => are_many,
            // Three parts are soon missing.
            Lane::Media => {
                self.failed = self.failed.saturating_add(media);
                are_many && self.failed >= target || *failures >= FAILURES_MOST
            }
        }
    }

    pub(in crate::client) fn count_success(&mut self, lane: Lane) {
        self.failures[lane as usize] = 0;
        if lane == Lane::Media {
            self.failed = Duration::ZERO;
        }
    }

    /// Plans another attempt. `asked_at` is the time of the request that failed, if that was for
    /// the piece itself. Returns `false` if the piece is to be given up.
    pub(super) fn plan(&mut self, now: Time, asked_at: Option<Time>, refusal: &Refusal) -> bool {
        let before = self.next.as_ref().map_or(0, |next| next.count);
        let retries = refusal.failure.retries();
        let Some(delay) = retries.and_then(|retries| retries.delay(before)) else {
            return false;
        };
        self.next = Some(NextAttempt {
            count: before + 1,
            at: Some(now + delay),
            is_due: false,
            since: self.since().or(asked_at),
            refusal: refusal.clone(),
        });
        true
    }

    /// Begins the attempts again at another server. `since` is the time of the first request for
    /// the piece, if there was one.
    pub(in crate::client) fn begin_again(&mut self, since: Option<Time>, refusal: &Refusal) {
        self.next = Some(NextAttempt {
            count: 0,
            at: None,
            is_due: true,
            since,
            refusal: refusal.clone(),
        });
    }

    /// True if the next attempt is to be made later than now.
    pub(in crate::client) fn wait(&mut self, now: Time) -> bool {
        let Some(next) = &mut self.next else {
            return false;
        };
        next.is_due |= next.at.take_if(|at| *at <= now).is_some();
        next.at.is_some()
    }

    /// Time of the next attempt, until it has come.
    pub(in crate::client) fn next_at(&self) -> Option<Time> {
        self.next.as_ref()?.at
    }

    /// Returns `true` for the first request since the time of the next attempt has come.
    pub(in crate::client) fn take_due(&mut self) -> bool {
        let next = self.next.as_mut();
        next.is_some_and(|next| std::mem::take(&mut next.is_due))
    }

    /// Time of the first request for the next piece, if that has failed.
    pub(in crate::client) fn since(&self) -> Option<Time> {
        self.next.as_ref()?.since
    }

    /// Forgets the attempts to get the next piece. Returns the reason for the last failure, if
    /// there was one.
    pub(in crate::client) fn forget(&mut self) -> Option<Refusal> {
        self.next.take().map(|next| next.refusal)
    }
}

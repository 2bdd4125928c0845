//! State of each runner during a run, and the rules by which the coordinator gives one up.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::AgreedOffset;
use crate::member::Member;
use crate::orders::Beat;

/// Time without a sign of life after which a runner is lost. It is never taken back.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// Time after which reports of a runner that the log does not have are lost.
const LAG_MAX: Duration = Duration::from_secs(12);

/// Current state of the runners.
#[derive(Default)]
pub(super) struct States {
    pub(super) each: Vec<MemberState>,
    pub(super) disconnected_since: Option<Instant>,
}

impl States {
    /// Judges the silence of runners from now on.
    pub(super) fn begin_to_wait(&mut self, now: Instant) {
        for state in &mut self.each {
            (state.seen, state.made_more, state.missing) = (now, now, None);
        }
    }
}

pub(super) struct MemberState {
    /// Last sign of life.
    pub(super) seen: Instant,
    pub(super) clients: u64,
    pub(super) late: Option<u64>,
    /// Offset of its clock by which it began.
    pub(super) agreed: Option<AgreedOffset>,
    pub(super) has_ended: bool,
    /// Why it is lost: given up, or stopped by itself.
    pub(super) lost: Option<String>,
    /// True if it was given up. It is never taken back.
    pub(super) is_given_up: bool,
    pub(super) member: Member,
    pub(super) beat: Beat,
    /// Time at which the runner last reported that it had made more.
    pub(super) made_more: Instant,
    /// Number of windows and last reports that came.
    pub(super) came: u64,
    /// Number that the runner had made, and since when it has not come.
    pub(super) missing: Option<(u64, Instant)>,
}

impl MemberState {
    pub(super) fn new(member: &Member) -> MemberState {
        let now = Instant::now();
        MemberState {
            seen: now,
            clients: 0,
            late: None,
            agreed: None,
            has_ended: false,
            lost: None,
            is_given_up: false,
            member: member.clone(),
            beat: Beat::default(),
            made_more: now,
            came: 0,
            missing: None,
        }
    }

    pub(super) fn is_present(&self) -> bool {
        !self.has_ended && !self.is_given_up
    }

    /// Takes a sign of life.
    pub(super) fn hear(&mut self, beat: Beat, now: Instant) {
        self.seen = now;
        self.clients = beat.clients;
        self.late = beat.late.or(self.late);
        if beat.made > self.beat.made {
            self.made_more = now;
        }
        self.beat = beat;
    }

    /// Returns why the runner is to be given up, if it is.
    pub(super) fn fault(&mut self, has_begun: bool, now: Instant) -> Option<String> {
        let silent = now.duration_since(self.seen);
        if silent >= LOST_AFTER {
            return Some(format!("no sign of life for {} s", silent.as_secs()));
        }
        if !has_begun {
            return None;
        }
        let stuck = Duration::from_millis(self.beat.stuck);
        if stuck >= LOST_AFTER {
            return Some(format!("it has hung for {} s", stuck.as_secs()));
        }
        let idle = now.duration_since(self.made_more);
        if !self.beat.has_ended && idle >= LOST_AFTER {
            return Some(format!("it has reported nothing for {} s", idle.as_secs()));
        }
        match &mut self.missing {
            Some((made, _)) if self.came >= *made => self.missing = None,
            Some((_, since)) if now.duration_since(*since) >= LAG_MAX => {
                let late = now.duration_since(*since).as_secs();
                let reason = self.beat.refused.as_ref();
                let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
                return Some(format!(
                    "its reports have not come through NATS for {late} s{reason}"
                ));
            }
            Some(_) => {}
            None if self.came < self.beat.made => self.missing = Some((self.beat.made, now)),
            None => {}
        }
        None
    }
}

pub(super) fn lock(states: &Mutex<States>) -> MutexGuard<'_, States> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

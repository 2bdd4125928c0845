//! Turn-taking in a group: which clients talk when. Turns follow each other, overlap, or leave
//! silence in between.
//!
//! All clients of a group compute the same schedule from the group's seed and exchange no messages.
//! The schedule consists of independent periods: a client that joins late computes from the start
//! of the current period, not from the start of the run.

use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use session::seeds::derive_seed;

/// Simulated conversation among the clients of a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TalkConfig {
    /// Average number of clients that talk at the same time: 0.05 to 20. Limited by the number of
    /// clients. Default: 1.
    pub speakers: f64,
    /// Average length of a turn: 1s to 60s. Every turn lasts at least a quarter of it. Default: 8s.
    pub turn: TimeSpan,
}

impl Default for TalkConfig {
    fn default() -> TalkConfig {
        TalkConfig {
            speakers: 1.0,
            turn: TimeSpan(Duration::from_secs(8)),
        }
    }
}

impl TalkConfig {
    /// Checks that the values are in range.
    pub fn check(&self) -> Result<(), String> {
        if !(0.05..=20.0).contains(&self.speakers) {
            return Err("`talk.speakers` must be 0.05 to 20".to_owned());
        }
        let bounds = Duration::from_secs(1)..=Duration::from_secs(60);
        if !bounds.contains(&self.turn.0) {
            return Err("`talk.turn` must be 1s to 60s".to_owned());
        }
        Ok(())
    }
}

/// Length of a period of the schedule.
const PERIOD: Duration = Duration::from_secs(600);

/// Share of the mean length that every turn has. The rest is distributed exponentially.
const FIXED_SHARE: f64 = 0.25;

/// Minimum length of a turn. The remainder of a period is left silent if it is shorter.
const TURN_MIN: Duration = Duration::from_millis(250);

/// A turn of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Start of the turn, in run time.
    pub start: Duration,
    /// End of the turn, in run time.
    pub end: Duration,
    /// Seed of the loudness.
    seed: u64,
}

impl Turn {
    /// Returns the audio level of a frame of the turn, in -dBov: 20 to 40 (RFC 6464, 3).
    pub fn level(&self, frame: u64) -> u8 {
        let voice = 22 + derive_seed(&[self.seed, 1]) % 17;
        (voice - 2 + derive_seed(&[self.seed, 2, frame]) % 5) as u8
    }
}

/// Identifies a client within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Seed that the whole group shares.
    pub seed: u64,
    /// Index in the group, from 0.
    pub index: u64,
    /// Size of the group.
    pub group_size: u64,
}

/// Turn schedule of a group, and the turns of one member.
#[derive(Clone, Debug)]
pub struct TurnSchedule {
    config: TalkConfig,
    member: Member,
    period: u32,
    /// Number of turns that have begun in the period.
    turns_begun: u64,
    /// Start of the next turn.
    next_start: Duration,
    /// Members that talk when the newest turn begins, and the ends of their turns.
    talking: Vec<(u64, Duration)>,
    /// Newest turn of this member.
    own_turn: Option<Turn>,
}

impl TurnSchedule {
    /// Creates the schedule, beginning at the start of the run.
    pub fn new(config: TalkConfig, member: Member) -> TurnSchedule {
        TurnSchedule {
            config,
            member,
            period: 0,
            turns_begun: 0,
            next_start: Duration::ZERO,
            talking: Vec::new(),
            own_turn: None,
        }
    }

    /// Returns the member's turn that runs at `now` or begins before `now + ahead`. `now` must not
    /// decrease from call to call.
    pub fn turn(&mut self, now: Duration, ahead: Duration) -> Option<Turn> {
        let period = (now.as_secs() / PERIOD.as_secs()) as u32;
        if period > self.period {
            self.begin_period(period);
        }
        loop {
            if let Some(own) = self.own_turn.filter(|own| own.end > now) {
                return Some(own);
            }
            if self.next_start >= now + ahead {
                return None;
            }
            self.schedule_next_turn();
        }
    }

    fn begin_period(&mut self, period: u32) {
        self.period = period;
        self.turns_begun = 0;
        self.next_start = PERIOD * period;
        self.talking.clear();
    }

    /// Returns a pseudo-random number from 0 to 1 for the next turn.
    fn random(&self, what: u64) -> f64 {
        let of = [self.member.seed, self.period.into(), self.turns_begun, what];
        (derive_seed(&of) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Decides who takes the next turn, and for how long.
    fn schedule_next_turn(&mut self) {
        let (from, end) = (self.next_start, PERIOD * (self.period + 1));
        if from >= end {
            return self.begin_period(self.period + 1);
        }
        let mean = self.config.turn.0.as_secs_f64();
        let length = mean * (FIXED_SHARE - (1.0 - FIXED_SHARE) * (1.0 - self.random(0)).ln());
        // If turns begin `speakers` times per turn length, `speakers` members talk on average.
        let wait = length / self.config.speakers * (0.5 + self.random(1));
        let seed = derive_seed(&[self.member.seed, self.period.into(), self.turns_begun, 2]);
        self.turns_begun += 1;
        self.next_start = from + Duration::from_secs_f64(wait);
        let until = (from + Duration::from_secs_f64(length)).min(end);
        self.talking.retain(|(_, until)| *until > from);
        if until - from < TURN_MIN {
            return;
        }
        let Some(who) = self.pick_silent_member(seed) else {
            return;
        };
        self.talking.push((who, until));
        if who == self.member.index {
            self.own_turn = Some(Turn {
                start: from,
                end: until,
                seed,
            });
        }
    }

    /// Picks a member that does not talk. Returns `None` if all members talk.
    fn pick_silent_member(&self, seed: u64) -> Option<u64> {
        let of = self.member.group_size.max(1);
        // One candidate more than members that talk: at least one candidate is silent.
        let some = of.min(self.talking.len() as u64 + 1);
        let mut some = (0..some).map(|step| (seed % of + step) % of);
        some.find(|who| self.talking.iter().all(|(other, _)| other != who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(20);

    fn group(speakers: f64, turn: u64, of: u64) -> Vec<TurnSchedule> {
        let config = TalkConfig {
            speakers,
            turn: TimeSpan(Duration::from_secs(turn)),
        };
        let member = |index| Member {
            seed: 7,
            index,
            group_size: of,
        };
        (0..of)
            .map(|index| TurnSchedule::new(config, member(index)))
            .collect()
    }

    /// Returns the number of members that talk at each step.
    fn talking_counts(group: &mut [TurnSchedule], steps: u32) -> Vec<usize> {
        let talks =
            |talk: &mut TurnSchedule, now| talk.turn(now, STEP).is_some_and(|own| own.start <= now);
        let at = |step| {
            group
                .iter_mut()
                .map(|talk| usize::from(talks(talk, STEP * step)))
                .sum()
        };
        (0..steps).map(at).collect()
    }

    #[test]
    fn average_number_of_speakers_is_met() {
        for (speakers, of) in [(0.3, 4), (1.2, 12), (4.0, 30)] {
            let counts = talking_counts(&mut group(speakers, 4, of), 240_000);
            let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
            assert!((mean / speakers - 1.0).abs() < 0.06, "{mean} of {speakers}");
            // Some steps are silent, and some turns overlap.
            assert!(speakers > 2.0 || counts.contains(&0), "{speakers}");
            assert!(speakers < 1.0 || counts.iter().any(|talking| *talking > 1));
        }
    }

    #[test]
    fn all_have_turns_and_speakers_are_bounded() {
        let mut two = group(10.0, 2, 2);
        assert!(
            talking_counts(&mut two, 5000)
                .iter()
                .all(|talking| *talking <= 2)
        );
        let mut ten = group(1.0, 2, 10);
        let turns = |talk: &mut TurnSchedule| {
            (0..50_000)
                .filter_map(|step| talk.turn(STEP * step, STEP))
                .count()
        };
        let each: Vec<usize> = ten.iter_mut().map(turns).collect();
        assert!(
            each.iter().all(|own| (2000..9000).contains(own)),
            "{each:?}"
        );
    }

    #[test]
    fn late_member_computes_the_same_schedule() {
        let mut early = group(1.2, 8, 5);
        talking_counts(&mut early, 100_000);
        let now = STEP * 100_000;
        let ahead = Duration::from_millis(400);
        for (mut late, early) in group(1.2, 8, 5).into_iter().zip(&mut early) {
            for step in 0..30_000 {
                let now = now + STEP * step;
                let of = |talk: &mut TurnSchedule| {
                    talk.turn(now, ahead).filter(|own| own.start < now + ahead)
                };
                assert_eq!(of(&mut late), of(early));
            }
        }
    }

    #[test]
    fn audio_levels_vary_within_20_to_40() {
        let mut levels = Vec::new();
        for talk in &mut group(1.0, 8, 5) {
            let own = talk
                .turn(Duration::ZERO, PERIOD)
                .expect("in ten minutes each talks");
            assert!(own.end - own.start >= Duration::from_secs(2));
            levels.extend((0..500).map(|frame| own.level(frame)));
        }
        assert!(levels.iter().all(|level| (20..=40).contains(level)));
        levels.sort_unstable();
        levels.dedup();
        assert!(levels.len() > 5);
    }
}

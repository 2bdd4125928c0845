//! Stretches in which a plan is held.

use std::time::Duration;

use measure::Time;
use serde::{Deserialize, Serialize};

use crate::plan;
use crate::spec::{Load, Shape};

/// How often a plan may be held: 1,000 times.
pub const MAX_HOLDS: usize = 1_000;

/// When a plan was held. Its time stands still in these stretches, so that the level stays where it
/// is, and all that is planned for later comes later by so much.
///
/// Arrivals (the open model) have no level that could be held: they go on at their rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds(Vec<Hold>);

/// A stretch in which a plan was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    from: Time,
    /// Never, while it is held.
    to: Time,
}

/// Stretches as a file states them: seconds from the beginning of the run, the second null while
/// the plan is held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HoldsSpec(pub Vec<(f64, Option<f64>)>);

impl Holds {
    /// Holds the plan from then on. Says whether it does: not where it is held already, or has been
    /// held [`MAX_HOLDS`] times.
    pub fn begin(&mut self, from: Time) -> bool {
        let may = !self.is_held() && self.0.len() < MAX_HOLDS;
        if may {
            let to = Time::NEVER;
            self.0.push(Hold { from, to });
        }
        may
    }

    /// Lets the plan go on from then on. Gives how long it was held; nothing where it was not.
    pub fn end(&mut self, to: Time) -> Option<Duration> {
        let last = self.0.last_mut().filter(|last| last.to == Time::NEVER)?;
        last.to = to.max(last.from);
        Some(last.to.since(last.from))
    }

    /// Whether the plan is held now, or from a time on that has been named.
    pub fn is_held(&self) -> bool {
        self.0.last().is_some_and(|last| last.to == Time::NEVER)
    }

    /// Whether it was ever held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long it was held in all by that time.
    pub fn held_by(&self, at: Time) -> Duration {
        let holds = self.0.iter();
        holds.map(|hold| at.min(hold.to).since(hold.from)).sum()
    }

    /// The time of the plan at a time of the run: so much earlier as it was held before. Never
    /// stays never.
    pub fn plan_time(&self, at: Time) -> Time {
        match at {
            Time::NEVER => Time::NEVER,
            at => at - self.held_by(at),
        }
    }

    /// How many clients the plan of `load` wants at a time of the run: as [`crate::wanted`] of a
    /// plan that was not held.
    pub fn wanted(&self, load: &Load, at: Time) -> u64 {
        let at = match load.shape {
            Shape::Arrivals { .. } => at,
            _ => self.plan_time(at),
        };
        plan::wanted(load, at)
    }
}

impl From<&Holds> for HoldsSpec {
    fn from(holds: &Holds) -> HoldsSpec {
        let holds = holds.0.iter().map(|hold| {
            let to = (hold.to != Time::NEVER).then(|| hold.to.as_secs_f64());
            (hold.from.as_secs_f64(), to)
        });
        HoldsSpec(holds.collect())
    }
}

impl From<HoldsSpec> for Holds {
    /// What makes no sense is left out: a run file may be anybody's.
    fn from(spec: HoldsSpec) -> Holds {
        let time = |seconds: f64| {
            let time = Duration::try_from_secs_f64(seconds);
            time.map(Time::from_start).ok()
        };
        let mut holds = Holds::default();
        for (from, to) in spec.0 {
            let to = to.map_or(Some(Time::NEVER), time);
            let (Some(from), Some(to)) = (time(from), to) else {
                continue;
            };
            let after = holds.0.last().is_none_or(|last| last.to <= from);
            if after && from <= to && holds.0.len() < MAX_HOLDS {
                holds.0.push(Hold { from, to });
            }
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_start(Duration::from_secs(seconds))
    }

    fn held_twice() -> Holds {
        let mut holds = Holds::default();
        assert!(holds.begin(at(4)));
        assert!(!holds.begin(at(5)));
        assert_eq!(holds.end(at(7)), Some(Duration::from_secs(3)));
        assert_eq!(holds.end(at(8)), None);
        assert!(holds.begin(at(10)));
        holds
    }

    #[test]
    fn a_plan_stands_still_while_it_is_held() {
        let holds = held_twice();
        let times = [0, 4, 5, 7, 9, 10, 99].map(|second| holds.plan_time(at(second)));
        assert_eq!(times, [0, 4, 4, 4, 6, 7, 7].map(at));
        assert_eq!(holds.plan_time(Time::NEVER), Time::NEVER);
        assert_eq!(holds.held_by(at(12)), Duration::from_secs(5));
    }

    #[test]
    fn the_level_stays_and_arrivals_go_on() {
        let holds = held_twice();
        let ramp = Load {
            shape: Shape::Ramp {
                clients: 10,
                over: Duration::from_secs(10),
            },
            rejoin: false,
        };
        let levels = [3, 4, 6, 8, 20].map(|second| holds.wanted(&ramp, at(second)));
        assert_eq!(levels, [4, 5, 5, 6, 8]);
        let arrivals = Load {
            shape: Shape::Arrivals {
                per_second: 1.0,
                max_clients: 100,
            },
            rejoin: false,
        };
        assert_eq!(holds.wanted(&arrivals, at(20)), 21);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let holds = held_twice();
        let spec = HoldsSpec::from(&holds);
        assert_eq!(spec.0, [(4.0, Some(7.0)), (10.0, None)]);
        assert_eq!(Holds::from(spec), holds);
        let odd = vec![
            (5.0, Some(4.0)),
            (f64::NAN, None),
            (1.0, Some(2.0)),
            (1.5, None),
            (-1.0, None),
        ];
        let read = Holds::from(HoldsSpec(odd));
        assert_eq!(HoldsSpec::from(&read).0, [(1.0, Some(2.0))]);
    }

    #[test]
    fn a_plan_is_not_held_without_end() {
        let mut holds = Holds::default();
        for second in 0..MAX_HOLDS as u64 {
            assert!(holds.begin(at(2 * second)));
            holds.end(at(2 * second + 1));
        }
        assert!(!holds.begin(at(9_999)));
    }
}

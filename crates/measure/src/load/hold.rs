//! Periods in which a load plan is held.

use std::time::Duration;

use crate::Time;
use serde::{Deserialize, Serialize};

use super::plan;
use super::spec::{Load, Shape};

/// Maximum number of holds of a plan: 1,000.
pub const MAX_HOLDS: usize = 1_000;

/// Periods in which a plan was held. Plan time stands still in them, so that the level stays
/// constant and later steps are delayed by the same duration.
///
/// Arrivals (the open model) have no level to hold: they continue at their rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds(Vec<Hold>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    from: Time,
    /// [`Time::NEVER`] while the plan is held.
    to: Time,
}

/// Holds as a file states them: seconds since the start of the run. The second value is null while
/// the plan is held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HoldsSpec(pub Vec<(f64, Option<f64>)>);

impl Holds {
    /// Holds the plan from `from` on. Returns `false` if it is held already, or has been held
    /// [`MAX_HOLDS`] times.
    pub fn begin(&mut self, from: Time) -> bool {
        let may = !self.is_held() && self.0.len() < MAX_HOLDS;
        if may {
            let to = Time::NEVER;
            self.0.push(Hold { from, to });
        }
        may
    }

    /// Resumes the plan at `to`. Returns the duration of the hold, or `None` if the plan was not
    /// held.
    pub fn end(&mut self, to: Time) -> Option<Duration> {
        let last = self.0.last_mut().filter(|last| last.to == Time::NEVER)?;
        last.to = to.max(last.from);
        Some(last.to.since(last.from))
    }

    /// True if the plan is held, or will be from an announced time on.
    pub fn is_held(&self) -> bool {
        self.0.last().is_some_and(|last| last.to == Time::NEVER)
    }

    /// Total duration of holds up to `at`.
    pub fn held_by(&self, at: Time) -> Duration {
        let holds = self.0.iter();
        holds.map(|hold| at.min(hold.to).since(hold.from)).sum()
    }

    /// Plan time at a time of the run: earlier by the duration of the holds before it.
    /// [`Time::NEVER`] stays [`Time::NEVER`].
    pub fn plan_time(&self, at: Time) -> Time {
        match at {
            Time::NEVER => Time::NEVER,
            at => at - self.held_by(at),
        }
    }

    /// Number of clients that the plan of `load` wants at a time of the run: [`super::wanted`],
    /// with the holds taken into account.
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
    /// Skips invalid entries, because a run file may come from anywhere.
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
    fn plan_time_stands_still_while_the_plan_is_held() {
        let holds = held_twice();
        let times = [0, 4, 5, 7, 9, 10, 99].map(|second| holds.plan_time(at(second)));
        assert_eq!(times, [0, 4, 4, 4, 6, 7, 7].map(at));
        assert_eq!(holds.plan_time(Time::NEVER), Time::NEVER);
        assert_eq!(holds.held_by(at(12)), Duration::from_secs(5));
    }

    #[test]
    fn hold_keeps_the_level_and_arrivals_continue() {
        let holds = held_twice();
        let ramp = Load {
            shape: Shape::Ramp {
                clients: 10,
                over: Duration::from_secs(10),
            },
            rejoin: false,
            after: Duration::ZERO,
        };
        let levels = [3, 4, 6, 8, 20].map(|second| holds.wanted(&ramp, at(second)));
        assert_eq!(levels, [4, 5, 5, 6, 8]);
        let arrivals = Load {
            shape: Shape::Arrivals {
                per_second: 1.0,
                max_clients: 100,
            },
            rejoin: false,
            after: Duration::ZERO,
        };
        assert_eq!(holds.wanted(&arrivals, at(20)), 21);
    }

    #[test]
    fn holds_are_written_and_read_back() {
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
    fn number_of_holds_is_limited() {
        let mut holds = Holds::default();
        for second in 0..MAX_HOLDS as u64 {
            assert!(holds.begin(at(2 * second)));
            holds.end(at(2 * second + 1));
        }
        assert!(!holds.begin(at(9_999)));
    }
}

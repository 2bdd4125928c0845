//! The plan in integers: times at which slots enter and leave.

use std::time::Duration;

use crate::Time;

use super::slots::Slots;
use super::spec::{Load, Shape};

/// Number of clients that the plan of `load` wants at `at`. For arrivals: the number that would be
/// active if none left.
pub fn wanted(load: &Load, at: Time) -> u64 {
    match &load.shape {
        Shape::Arrivals {
            per_second,
            max_clients,
        } => arrived(*per_second, load.after, at)
            .min(u128::from(*max_clients))
            .try_into()
            .unwrap_or(*max_clients),
        _ => pieces(load)
            .iter()
            .rfind(|piece| piece.begin <= at)
            .map_or(0, |piece| piece.level(at)),
    }
}

/// Number of clients that the plan of `load` has started by `at`, without those that rejoined. For
/// arrivals: the number that have arrived, turned away or not.
pub fn started(load: &Load, at: Time) -> u64 {
    match &load.shape {
        Shape::Arrivals { per_second, .. } => arrived(*per_second, load.after, at)
            .try_into()
            .unwrap_or(u64::MAX),
        _ => pieces(load)
            .iter()
            .filter(|piece| piece.to > piece.from && piece.begin <= at)
            .map(|piece| piece.level(at) - piece.from - u64::from(piece.skips_first))
            .sum(),
    }
}

/// Start of the last client of the plan, without those that rejoin. `None` for arrivals, which
/// never end, and for a plan without clients.
pub fn last_start(load: &Load) -> Option<Time> {
    let pieces = pieces(load);
    let last = pieces.iter().rfind(|piece| piece.to > piece.from)?;
    Some(last.time_of(last.steps() - 1))
}

/// A section of the plan in which the level only rises, only falls, or is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) begin: Time,
    /// Nanoseconds from the time of the first step to one step after the last.
    length: u64,
    from: u64,
    pub(crate) to: u64,
    /// Omits the last step of this fall (and, for `skips_first`, the first step of this rise). At
    /// the bottom of a valley, a client would otherwise be stopped and another started in the same
    /// slot at the same instant.
    skips_last: bool,
    skips_first: bool,
}

/// A slot that enters or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) at: Time,
    pub(crate) slot: u64,
    pub(crate) enters: bool,
}

impl Piece {
    pub(crate) fn new(begin: Time, length: u64, from: u64, to: u64) -> Piece {
        Piece {
            begin,
            length,
            from,
            to,
            skips_last: false,
            skips_first: false,
        }
    }

    fn steps(&self) -> u64 {
        self.from.abs_diff(self.to)
    }

    /// Time of step `number`. The first step of a rise is at its beginning, the last step of a fall
    /// at its end.
    fn time_of(&self, number: u64) -> Time {
        let scaled = u128::from(number) * u128::from(self.length) / u128::from(self.steps().max(1));
        self.begin + Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// The first step from `number` on whose slot is one of `own`, with its number.
    pub(crate) fn next_step(&self, number: u64, own: &Slots) -> Option<(u64, Step)> {
        let rises = self.to > self.from;
        let number = number.max(u64::from(rises && self.skips_first));
        let skipped = u64::from(!rises && self.skips_last);
        let count = self.steps().saturating_sub(skipped);
        if number >= count {
            return None;
        }
        let (slot, number) = if rises {
            let slot = own.at_or_after(self.from + number)?;
            (slot, slot - self.from)
        } else {
            let slot = own.at_or_before(self.from - 1 - number)?;
            (slot, self.from - 1 - slot)
        };
        (number < count).then(|| {
            let at = self.time_of(number + u64::from(!rises));
            let enters = rises;
            (number, Step { at, slot, enters })
        })
    }

    /// Level at a time within the piece or after it.
    fn level(&self, at: Time) -> u64 {
        let steps = self.steps();
        if steps == 0 {
            return self.to;
        }
        // The largest n with floor(n * length / steps) <= elapsed.
        let elapsed = u128::from(at.as_nanos() - self.begin.as_nanos());
        let reached = if self.length == 0 {
            steps
        } else {
            let n = ((elapsed + 1) * u128::from(steps) - 1) / u128::from(self.length);
            u64::try_from(n).unwrap_or(u64::MAX).min(steps)
        };
        if self.to > self.from {
            self.from + reached.saturating_add(1).min(steps)
        } else {
            self.from - reached
        }
    }
}

/// Pieces of a closed model's plan. Empty for arrivals.
pub(crate) fn pieces(load: &Load) -> Vec<Piece> {
    let first = Time::from_start(load.after);
    match &load.shape {
        Shape::AtOnce { clients } => vec![Piece::new(first, 0, 0, *clients)],
        Shape::Ramp { clients, over } => {
            vec![Piece::new(first, nanos(*over), 0, *clients)]
        }
        Shape::OneEvery { clients, every } => {
            let length = nanos(*every).saturating_mul(*clients);
            vec![Piece::new(first, length, 0, *clients)]
        }
        Shape::Stages(stages) => {
            let mut pieces: Vec<Piece> = Vec::with_capacity(stages.len());
            let mut begin = first;
            let mut level = 0;
            for stage in stages {
                let mut piece = Piece::new(begin, nanos(stage.over), level, stage.clients);
                if let Some(last) = pieces.last_mut()
                    && last.to < last.from
                    && piece.to > piece.from
                {
                    last.skips_last = true;
                    piece.skips_first = true;
                }
                pieces.push(piece);
                begin += stage.over;
                level = stage.clients;
            }
            pieces
        }
        Shape::Arrivals { .. } => Vec::new(),
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Number of arrivals by `at`, of which the first is at `after`.
fn arrived(per_second: f64, after: Duration, at: Time) -> u128 {
    match at.since_start().checked_sub(after) {
        Some(elapsed) => ArrivalRate::new(per_second).arrived(Time::from_start(elapsed)),
        None => 0,
    }
}

/// Arrivals at a fixed rate, exact to 10^-12 per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrivalRate {
    /// Arrivals per 10^12 seconds.
    per_tera_second: u128,
}

/// Nanoseconds in 10^12 seconds.
const TERA_SECOND: u128 = 1_000_000_000_000_000_000_000;

impl ArrivalRate {
    pub(crate) fn new(per_second: f64) -> ArrivalRate {
        // The cast saturates, and turns NaN into 0.
        let per_tera_second = (per_second * 1e12).round() as u128;
        ArrivalRate {
            per_tera_second: per_tera_second.clamp(1, TERA_SECOND),
        }
    }

    /// Time of arrival `number`, counted from 0; [`Time::NEVER`] if it is not representable.
    pub(crate) fn time_of(self, number: u64) -> Time {
        u128::from(number)
            .checked_mul(TERA_SECOND)
            .and_then(|scaled| u64::try_from(scaled / self.per_tera_second).ok())
            .map_or(Time::NEVER, Time::from_nanos)
    }

    /// Number of arrivals by `at`.
    fn arrived(self, at: Time) -> u128 {
        (u128::from(at.as_nanos()) + 1)
            .checked_mul(self.per_tera_second)
            .map_or(u128::MAX, |scaled| (scaled - 1) / TERA_SECOND + 1)
    }
}

//! Jitter that keeps the order of packets.
//!
//! Independent delays per packet, with the rule that no packet may overtake another, would have a
//! mean above the configured delay: at a high packet rate all packets wait for the latest one. At
//! 1,000 packets/s, 10 ms of jitter would add 6 ms to each. Delays are therefore drawn over time,
//! and each packet gets the delay of its moment, as in a queue of cross traffic. The delay rises at
//! once and falls by at most one second per second: packets then leave together, and in order. Each
//! fall is centred on its moment. The mean over time is therefore the mean of the distribution, at
//! any packet rate.

use std::time::Duration;

use measure::Time;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::random::delay;
use super::settings::{Jitter, Shape};

/// Delay as a function of time, in steps with one drawn level each.
#[derive(Clone, Debug)]
pub(crate) struct OrderedJitter {
    seed: u64,
    /// Step number and draws of the last two levels.
    drawn: [(u64, [f64; 2]); 2],
}

impl OrderedJitter {
    pub(crate) fn new(seed: u64) -> OrderedJitter {
        let mut jitter = OrderedJitter {
            seed,
            drawn: [(0, [0.0; 2]); 2],
        };
        jitter.drawn = [0, 1].map(|step| (step, jitter.draw(step)));
        jitter
    }

    /// Delay of a packet that is sent at that time. Packets sent in order arrive in order, except
    /// after a tail that lasts longer than a step: the caller must enforce the order then.
    pub(crate) fn delay(&mut self, sent: Time, mean: Duration, jitter: &Jitter) -> Duration {
        if jitter.spread.is_zero() {
            return mean;
        }
        let step = nanos(jitter.spread).saturating_mul(spreads_of_step(jitter.shape));
        let at = sent.as_nanos();
        // The nearest step boundary, with the number of the step after it.
        let boundary = at / step + u64::from(at % step >= step.div_ceil(2));
        let after = i128::from(at) - i128::from(boundary) * i128::from(step);
        let before = self.level(boundary.wrapping_sub(1));
        let behind = self.level(boundary);
        let [from, to] =
            [before, behind].map(|draws| i128::from(nanos(delay(mean, jitter, draws))));
        let fall = from - to;
        let found = match 2 * after.abs() < fall {
            true => (from + to) / 2 - after,
            false if after < 0 => from,
            false => to,
        };
        Duration::from_nanos(u64::try_from(found).unwrap_or(0))
    }

    fn level(&mut self, step: u64) -> [f64; 2] {
        let place = (step % 2) as usize;
        if self.drawn[place].0 != step {
            self.drawn[place] = (step, self.draw(step));
        }
        self.drawn[place].1
    }

    /// Draws the level of a step from the seed and the step number only, so a long period without
    /// packets costs nothing.
    fn draw(&self, step: u64) -> [f64; 2] {
        let seed = self.seed.rotate_left(32) ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Pcg64::seed_from_u64(seed).random()
    }
}

/// Length of a step as a multiple of the spread. Most falls end within a step, before the next
/// begins.
fn spreads_of_step(shape: Shape) -> u64 {
    match shape {
        Shape::Uniform => 2,
        Shape::Normal => 6,
        Shape::Pareto => 8,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

//! Random values of each packet.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::settings::{Jitter, Loss, Shape};

/// Shape of the Pareto distribution. The variance is finite above 2.
const PARETO_SHAPE: f64 = 3.0;

/// Random values of one packet. Floats are from 0 to below 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) corrupt: f64,
    /// Index of the wrong bit, taken modulo the number of bits.
    pub(crate) bit: u64,
    /// For the jitter of the packet and of its second copy.
    pub(crate) jitter: [[f64; 2]; 2],
}

/// Source of random values of one direction.
#[derive(Clone, Debug)]
pub(crate) struct RandomSource {
    rng: Pcg64,
    /// True within a burst of losses.
    in_burst: bool,
}

impl RandomSource {
    pub(crate) fn new(seed: u64) -> RandomSource {
        RandomSource {
            rng: Pcg64::seed_from_u64(seed),
            in_burst: false,
        }
    }

    /// Draws the values of the next packet, the same number for every packet.
    pub(crate) fn draw(&mut self) -> Draws {
        Draws {
            loss: self.rng.random(),
            duplicate: self.rng.random(),
            reorder: self.rng.random(),
            corrupt: self.rng.random(),
            bit: self.rng.random(),
            jitter: self.rng.random(),
        }
    }

    /// Whether packet `number` is lost. Must be called once per packet, in order.
    pub(crate) fn loses(&mut self, loss: &Loss, number: u64, draw: f64) -> bool {
        match *loss {
            Loss::None => false,
            Loss::Random(share) => draw < share,
            Loss::Bursts { share, length } => {
                // Gilbert model: a burst ends with probability 1/length and begins as often as the
                // share requires.
                let stays = match self.in_burst {
                    true => 1.0 - 1.0 / length,
                    false => share / (length * (1.0 - share)),
                };
                self.in_burst = draw < stays;
                self.in_burst
            }
            Loss::Every(count) => count > 0 && (number + 1).is_multiple_of(count),
            Loss::List(ref numbers) => numbers.binary_search(&number).is_ok(),
        }
    }
}

/// Draws a delay with jitter.
pub(crate) fn delay(mean: Duration, jitter: &Jitter, [first, second]: [f64; 2]) -> Duration {
    if jitter.spread.is_zero() {
        return mean;
    }
    // Offset in units of the spread.
    let off = match jitter.shape {
        Shape::Uniform => 2.0 * first - 1.0,
        // Box-Muller transform. 1 - x is never 0.
        Shape::Normal => {
            let radius = (-2.0 * (1.0 - first).ln()).sqrt();
            (radius * (std::f64::consts::TAU * second).cos()).clamp(-4.0, 4.0)
        }
        Shape::Pareto => {
            let value = (1.0 - first).powf(-1.0 / PARETO_SHAPE);
            let mean = PARETO_SHAPE / (PARETO_SHAPE - 1.0);
            let variance = mean / ((PARETO_SHAPE - 1.0) * (PARETO_SHAPE - 2.0));
            ((value - mean) / variance.sqrt()).min(20.0)
        }
    };
    let nanos = mean.as_nanos() as f64 + off * jitter.spread.as_nanos() as f64;
    Duration::from_nanos(nanos.round().max(0.0) as u64)
}

/// Minimum delay for a mean and jitter.
pub(crate) fn delay_min(mean: Duration, jitter: &Jitter) -> Duration {
    let spreads = match jitter.shape {
        Shape::Uniform => 1.0,
        Shape::Normal => 4.0,
        // (1 - 3/2) / sqrt(3/4), rounded up.
        Shape::Pareto => 0.6,
    };
    mean.saturating_sub(jitter.spread.mul_f64(spreads))
}

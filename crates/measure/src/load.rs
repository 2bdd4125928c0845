//! Load plans: pure functions from time to the number of clients wanted, and their exact split over
//! workers.
//!
//! No I/O, no clock, no randomness. A [`Load`] is a plan that treats clients as *slots*, counted
//! from 0: slot `k` is wanted while the level of the plan is above `k`. Every moment at which a
//! slot enters or leaves is computed in integers from the start of the plan, so nothing drifts in
//! long runs. Slots are divided by their numbers ([`Slots`]), so their owners need no coordination:
//! together the [`Share`]s do exactly what a single one would do.
//!
//! Closed models (at once, ramp, one every, stages) keep a number of clients. In the open model
//! (arrivals) clients arrive at a fixed rate, however the server responds.

mod hold;
mod plan;
mod share;
mod slots;
mod spec;

pub use hold::{Holds, HoldsSpec, MAX_HOLDS};
pub use plan::{last_start, started, wanted};
pub use share::{Action, REJOIN_PAUSE, Share};
pub use slots::{Slots, WEIGHTS_MAX, divide, period};
pub use spec::{Load, LoadError, LoadSpec, MAX_CLIENTS, MAX_STAGES, Shape, Stage, StartKind};

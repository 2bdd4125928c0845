//! When: pure functions from time to clients wanted, and their exact split over workers.
//!
//! No I/O, no clock, no randomness. A [`Load`] is a plan that sees clients as *slots*, counted from
//! 0: slot `k` is wanted while the plan's level is above `k`. Every moment at which a slot comes or
//! goes is worked out from the plan's beginning in integers, so nothing drifts however long a run
//! is, and a worker can own every `workers`-th slot without talking to the others: together the
//! [`Share`]s do exactly what one alone would.
//!
//! Closed models (at once, ramp, one every, stages) keep a number of clients; the open model
//! (arrivals) has clients come at a rate of their own, whatever the server makes of it.

mod hold;
mod plan;
mod share;
mod spec;

pub use hold::{Holds, HoldsSpec, MAX_HOLDS};
pub use plan::{last_start, started, wanted};
pub use share::{Action, REJOIN_PAUSE, Share};
pub use spec::{Load, LoadError, LoadSpec, MAX_CLIENTS, MAX_STAGES, Shape, Stage, StartKind};

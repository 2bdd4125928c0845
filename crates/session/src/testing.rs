//! Two sessions against each other in virtual time, over a seeded network: no ports, no sleeps.
//!
//! [`Pair`] takes the place of the engine: it carries out the outputs of a client and of a server's
//! sessions. Datagrams travel over a [`Link`](crate::link::Link), which knows exactly what it did
//! to them, and bytes over reliable streams that are split anywhere. Events happen in the same
//! order in every run with the same seed.
//!
//! Compiled for the crate's own tests, and for other crates with the feature `testing`.

pub mod conformance;
mod pair;
mod stream;

use crate::{Judgement, Outcome, Output};

pub use pair::{Pair, PairSettings, PathCounts, RunEnd, ServerReaction, SessionNumber, Side};

/// Returns how well the viewers that have ended were served, in the order in which they ended.
pub fn judgements(pair: &Pair) -> Vec<Option<Judgement>> {
    let judgement = |(session, output): &(SessionNumber, Output)| match output {
        Output::Viewed(service) => {
            let failed = matches!(pair.outcome(*session), Some(Outcome::Failed(_)));
            Some(service.judgement(failed))
        }
        _ => None,
    };
    pair.outputs().iter().filter_map(judgement).collect()
}
